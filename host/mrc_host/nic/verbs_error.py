"""The error of the device API: what the C interface tells by errno, with the attribute, value and rule."""

from __future__ import annotations

import errno

from mrc_host.errors import MrcError

__all__ = ["VerbsError", "check_range"]


class VerbsError(MrcError):
    """A call of the device API was refused.

    Parameters
    ----------
    name : str
        Name of the errno the C interface returns, such as ``EINVAL``.
    attribute : str
        What was refused, such as ``qp.timeout``.
    value : object
        What was given.
    rule : str
        What is allowed, worded to follow "must be".
    """

    def __init__(self, name: str, attribute: str, value: object, rule: str) -> None:
        super().__init__(name, attribute, value, rule)
        self.name = name
        self.attribute = attribute
        self.value = value
        self.rule = rule

    @property
    def errno(self) -> int:
        """The number behind the name."""
        return int(getattr(errno, self.name))

    def __str__(self) -> str:
        return f"{self.name}: {self.attribute} must be {self.rule}, got {_text(self.value)}"


def _text(value: object) -> str:
    """Keys and addresses are easier to compare in hexadecimal."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0xFFFF:
        return hex(value)
    return str(value)


def check_range(attribute: str, value: object, low: int, high: int, source: str = "") -> int:
    """Return the value when it is an integer from low to high.

    Raises
    ------
    VerbsError
        EINVAL otherwise; ``source`` is put behind the rule in parentheses.
    """
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    behind = f" ({source})" if source else ""
    raise VerbsError("EINVAL", attribute, value, f"between {low} and {high}{behind}")
