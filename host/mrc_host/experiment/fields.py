"""Checked field types for the schema: every refusal reads "key must be <allowed>, got <value>".

The texts are put together by :mod:`mrc_host.experiment.load`, which knows file and line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

__all__ = [
    "Flag",
    "Name",
    "Section",
    "WindowFraction",
    "check_kind",
    "choice",
    "number",
    "refuse",
    "register_kind",
    "text",
    "whole",
]

Kind = TypeVar("Kind", bound=type)


class Section(BaseModel):
    """Base of all sections of an experiment: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def refuse(expected: str, value: Any) -> PydanticCustomError:
    """Return an error that reads "must be <expected>, got <value>" behind the key."""
    return PydanticCustomError(
        "mrc_config", "must be {expected}, got {value}", {"expected": expected, "value": value}
    )


def register_kind(kinds: dict[str, Any], name: str, what: str) -> Callable[[Kind], Kind]:
    """Return a class decorator that makes a kind of section known under a name.

    Parameters
    ----------
    kinds : dict
        Kinds by name; gets the class.
    name : str
    what : str
        What has the name, for the message: "a fault".

    Raises
    ------
    ValueError
        When decorating: there is one of that name.
    """

    def register(kind: Kind) -> Kind:
        if name in kinds:
            raise ValueError(f"name of {what} must be new, got {name!r} again")
        kinds[name] = kind
        return kind

    return register


def check_kind(
    value: Any, base: type[Section], kinds: Mapping[str, type[Section]], what: str, joint: str = ", "
) -> Any:
    """Validate a section by the kind that one of its keys names, for a field of a schema.

    Parameters
    ----------
    value : Any
        Of the file, or a section that is validated already.
    base : type of Section
        Of all kinds.
    kinds : mapping
        Kinds by name.
    what : str
        The section and that key, for the message: "a fault with kind".
    joint : str
        Between the names of the kinds there.
    """
    if isinstance(value, base):
        return value
    if not isinstance(value, dict):
        raise refuse("a mapping of keys to values", value)
    kind = value.get(what.rsplit(" ", 1)[1])
    if not isinstance(kind, str) or kind not in kinds:
        raise refuse(f"{what}: {joint.join(sorted(kinds))}", kind)
    return kinds[kind].model_validate(value)


def whole(low: int, high: int, unit: str = "") -> BeforeValidator:
    """Return a validator for whole numbers from ``low`` to ``high``; ``unit`` is named in the message."""
    of_unit = f" of {unit}" if unit else ""

    def check(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise refuse(f"a whole number{of_unit} between {low} and {high}", value)
        return value

    return BeforeValidator(check)


def number(unit: str, low: float, high: float, *, low_allowed: bool = True) -> BeforeValidator:
    """Return a validator for numbers of a unit, from (or above) ``low`` to ``high``."""

    def check(value: Any) -> Any:
        good = not isinstance(value, bool) and isinstance(value, int | float)
        if not good or not (low <= value if low_allowed else low < value) or not value <= high:
            raise refuse(
                f"a number of {unit} {'from' if low_allowed else 'above'} {low:g} to {high:g}", value
            )
        return float(value)

    return BeforeValidator(check)


def choice(*allowed: str) -> BeforeValidator:
    """Return a validator for one of several words."""

    def check(value: Any) -> Any:
        if value not in allowed:
            raise refuse(f"one of {', '.join(allowed)}", value)
        return value

    return BeforeValidator(check)


def text(what: str) -> BeforeValidator:
    """Return a validator for text that is not empty."""

    def check(value: Any) -> Any:
        if not isinstance(value, str) or not value.strip():
            raise refuse(what, value)
        return value

    return BeforeValidator(check)


def _check_flag(value: Any) -> Any:
    if not isinstance(value, bool):
        raise refuse("true or false", value)
    return value


def _check_name(value: Any) -> Any:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", value):
        raise refuse("a short name of a-z, 0-9, '.', '_' and '-' that begins with a letter or digit", value)
    return value


def _check_window_fraction(value: Any) -> Any:
    expected = "a fraction above 0 and at most 1, such as 1, 1/2 or 1/7"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise refuse(expected, value)
    try:
        fraction = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise refuse(expected, value) from None
    if not 0 < fraction <= 1:
        raise refuse(expected, value)
    return str(fraction)


Flag = Annotated[bool, BeforeValidator(_check_flag)]
"""true or false, nothing that only looks like it."""
Name = Annotated[str, BeforeValidator(_check_name)]
"""Part of a file name."""
WindowFraction = Annotated[str, BeforeValidator(_check_window_fraction)]
"""A fraction as text, "1/7"."""
