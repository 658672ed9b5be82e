"""EV expansion: from the bits of an entropy value to the fields of a path.

EV bits are consumed most significant first. For each field the value starts as ``init_val``; from the mask's
most significant bit down every set bit takes the next EV bit; the result stands right-aligned in its format
field, which may be wider. Format fields are concatenated most significant first; format fields without a
field are zero. Because of that order the whole expansion is one deposit of EV bits into a mask over the
concatenated width, which is how the gateware does it (:attr:`EvProfile.template`, :attr:`EvProfile.mask`).

Source: protocol.md 2.8; examples in protocol.md 1.15 and 1.16.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MAXIMUM_BITS", "EvField", "EvProfile", "EvRuleError"]

MAXIMUM_BITS = 256
"""An expanded EV is at most an address and one SRH segment."""


class EvRuleError(ValueError):
    """A rule of protocol.md 2.8 is broken.

    Parameters
    ----------
    attribute : str
        What breaks it, such as ``fields[0].mask``.
    rule : str
        What is allowed, worded to follow "must be".
    value : int
        What was given.
    text : str
        The value as messages show it.
    """

    def __init__(self, attribute: str, rule: str, value: int, text: str = "") -> None:
        super().__init__(f"{attribute} must be {rule}, got {text or value}")
        self.attribute = attribute
        self.rule = rule
        self.value = value


@dataclass(frozen=True)
class EvField:
    """One field of an EV profile.

    Parameters
    ----------
    width : int
        Width in bits, at most that of its format field.
    init_val : int
        Value of the bits the mask leaves alone.
    mask : int
        Bits that take EV bits.
    min_val, max_val : int or None
        Allowed range of the EV bits of this field; by default everything the mask can hold. A fixed field
        has mask, min_val and max_val 0.
    """

    width: int
    init_val: int = 0
    mask: int = 0
    min_val: int = 0
    max_val: int | None = None

    @property
    def ev_bits(self) -> int:
        """EV bits the field consumes."""
        return self.mask.bit_count()

    @property
    def highest(self) -> int:
        """Largest allowed value of the EV bits."""
        return (1 << self.ev_bits) - 1 if self.max_val is None else self.max_val


@dataclass(frozen=True)
class EvProfile:
    """An EV format (widths) and the fields that fill it.

    Parameters
    ----------
    format_widths : tuple of int
        Widths of the format fields in bits, most significant first.
    fields : tuple of EvField
        Fields, most significant first; at most as many as format fields.
    name : str
        Name for messages.

    Raises
    ------
    EvRuleError
        When a rule of protocol.md 2.8 is broken; the message names field, value and rule.
    """

    format_widths: tuple[int, ...]
    fields: tuple[EvField, ...]
    name: str = "profile"
    width: int = field(init=False)
    ev_bits: int = field(init=False)
    template: int = field(init=False)
    mask: int = field(init=False)
    _runs: tuple[tuple[int, int, int], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        template = mask = position = 0
        for number, format_width in enumerate(self.format_widths):
            position += format_width
            template <<= format_width
            mask <<= format_width
            if number < len(self.fields):
                item = self.fields[number]
                template |= item.init_val & ~item.mask
                mask |= item.mask
        object.__setattr__(self, "width", position)
        object.__setattr__(self, "ev_bits", mask.bit_count())
        object.__setattr__(self, "template", template)
        object.__setattr__(self, "mask", mask)
        object.__setattr__(self, "_runs", _runs(mask))

    def _check(self) -> None:
        total = sum(self.format_widths)
        for number, format_width in enumerate(self.format_widths):
            if format_width < 1:
                raise EvRuleError(f"format_widths[{number}]", "at least 1 bit", format_width)
        if not 1 <= total <= MAXIMUM_BITS:
            raise EvRuleError("format_widths", f"1 to {MAXIMUM_BITS} bits in sum", total)
        if len(self.fields) > len(self.format_widths):
            raise EvRuleError(
                "fields", f"at most as many as the {len(self.format_widths)} format fields", len(self.fields)
            )
        for number, item in enumerate(self.fields):
            self._check_field(f"fields[{number}]", item, self.format_widths[number])

    @staticmethod
    def _check_field(where: str, item: EvField, allowed: int) -> None:
        if not 1 <= item.width <= allowed:
            raise EvRuleError(
                f"{where}.width", f"between 1 and the format field's {allowed} bits", item.width
            )
        limit = (1 << item.width) - 1
        room = (1 << item.ev_bits) - 1
        for name, value, low, high, rule in (
            ("init_val", item.init_val, 0, limit, f"within {item.width} bits (0 to {limit:#x})"),
            ("mask", item.mask, 0, limit, f"within {item.width} bits (0 to {limit:#x})"),
            (
                "max_val", item.highest, 0, room,
                f"within the {item.ev_bits} bits set in the mask (0 to {room:#x})",
            ),
            ("min_val", item.min_val, 0, item.highest, f"between 0 and max_val {item.highest:#x}"),
        ):  # fmt: skip
            if not low <= value <= high:
                raise EvRuleError(f"{where}.{name}", rule, value, f"{value:#x}")

    @classmethod
    def from_json(cls, data: Any) -> EvProfile:
        """Read a profile from an object with ``format_widths`` and ``fields``; numbers or strings ("0xff").

        Raises
        ------
        ValueError
            For a missing, unknown or wrong key, and as the constructor.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"a profile must be an object, got {type(data).__name__}")
        for key in ("format_widths", "fields"):
            if not isinstance(data.get(key), list):
                raise ValueError(f"{key} must be a list, got {data.get(key)!r}")
        names = ("width", "init_val", "mask", "min_val", "max_val")
        fields: list[EvField] = []
        for number, entry in enumerate(data["fields"]):
            if not isinstance(entry, Mapping) or "width" not in entry:
                raise ValueError(f"fields[{number}] must be an object with a width, got {entry!r}")
            for key in entry:
                if key not in names:
                    raise ValueError(f"fields[{number}] has keys {', '.join(names)}; got {key!r}")
            fields.append(EvField(**{key: _number(f"fields[{number}].{key}", entry[key]) for key in entry}))
        widths = tuple(_number(f"format_widths[{n}]", value) for n, value in enumerate(data["format_widths"]))
        return cls(widths, tuple(fields), str(data.get("profile", "profile")))

    def expand(self, ev: int) -> int:
        """Expand the EV, an integer of :attr:`ev_bits` bits, to the integer of the concatenated fields.

        Raises
        ------
        EvRuleError
            For an EV that is too wide, or a field's EV bits outside its min_val to max_val.
        """
        if not 0 <= ev < 1 << self.ev_bits:
            raise EvRuleError("ev", f"within the {self.ev_bits} bits {self.name} consumes", ev, f"{ev:#x}")
        self._check_ranges(ev)
        result = self.template
        for source, size_mask, target in self._runs:
            result |= (ev >> source & size_mask) << target
        return result

    def _check_ranges(self, ev: int) -> None:
        remaining = self.ev_bits
        for number, item in enumerate(self.fields):
            remaining -= item.ev_bits
            value = ev >> remaining & ((1 << item.ev_bits) - 1)
            if not item.min_val <= value <= item.highest:
                raise EvRuleError(
                    f"the EV bits of fields[{number}]", f"between {item.min_val} and {item.highest}", value
                )

    def expand_hex(self, ev: str) -> str:
        """Expand left-aligned hexadecimal EV bits to hexadecimal; a last partial digit is zero filled.

        Raises
        ------
        ValueError
            For a string that is not hexadecimal, is too short, or has bits set behind the last one consumed;
            and as :meth:`expand`.
        """
        digits = ev.lower().removeprefix("0x").replace("_", "").replace(":", "")
        try:
            value = int(digits, 16) if digits else 0
        except ValueError:
            raise ValueError(f"ev must be hexadecimal, got {ev!r}") from None
        spare = 4 * len(digits) - self.ev_bits
        if spare < 0:
            raise ValueError(
                f"ev must have at least {self.ev_bits} bits for {self.name}, got {4 * len(digits)}"
            )
        if value & ((1 << spare) - 1):
            raise ValueError(f"ev must be zero behind its first {self.ev_bits} bits, got {ev!r}")
        return f"{self.expand(value >> spare):0{-(-self.width // 4)}x}"

    def expand_all(self, evs: Iterable[int]) -> list[int]:
        """Expand several EVs."""
        return [self.expand(ev) for ev in evs]


def _number(path: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return int(value, 0)
        except ValueError:
            pass
    raise ValueError(f'{path} must be a number or a string such as "0xff", got {value!r}')


def _runs(mask: int) -> tuple[tuple[int, int, int], ...]:
    """Split the mask into runs of ones: (EV bit position, mask of the run's size, target position)."""
    runs: list[tuple[int, int, int]] = []
    source = target = 0
    while mask:
        zeros = (mask & -mask).bit_length() - 1
        mask >>= zeros
        target += zeros
        size = (~mask & (mask + 1)).bit_length() - 1
        runs.append((source, (1 << size) - 1, target))
        mask >>= size
        source += size
        target += size
    return tuple(runs)
