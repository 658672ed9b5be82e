"""Entropy values of a profile: who chooses them, what they are on the wire, and where they lead.

| mode | values | outer destination |
|---|---|---|
| AUTO | the driver's, 32-bit wire values | made from the QP's template |
| EXPLICIT | the controller's, as bits that the profile's fields expand | the expansion |
| GENERATED | the driver's, spread over what the fields allow | the expansion |

In the formats STEV and UDP the expansion itself is on the wire, in source port and flow label. In SRv6 it is
the destination, and the wire carries a number that names plane, place and replacement of the entry.

Source: protocol.md 1.15, 2.8; profile.md 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from mrc_host.fabric.events import random_bits
from mrc_host.fabric.usid import ev_set
from mrc_host.nic.ev_format import ADDRESS_BITS, WIRE_EV_BITS, EvFormat, EvFormatMode
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_host.packets.ev_expansion import EvField, EvRuleError
from mrc_host.packets.ev_expansion import EvProfile as Expansion
from mrc_rtl import wire
from mrc_rtl.tables import EvState

__all__ = [
    "UNPOPULATED",
    "EvEntry",
    "EvKey",
    "automatic_values",
    "check_key",
    "entry_fields",
    "expansions",
    "generated_values",
]

#: Bits of the replica field that name the place on a plane, and the replacement.
_PLACE_BITS = 5
_REPLACEMENT_MASK = wire.EV["replica"].mask >> _PLACE_BITS
_COMPONENT = 0x4556
#: RoCE's customary range of source ports.
_PORT_BASE = 0xC000
_PORT_MASK = 0x3FFF


@dataclass(frozen=True)
class EvKey:
    """What names an entropy value.

    Parameters
    ----------
    value : int
        AUTO: 32 bits as on the wire. EXPLICIT and GENERATED: the bits that the fields' masks take, the first
        one on top.
    port : int
        Port it belongs to, from 1; 0 only in :data:`UNPOPULATED`.
    """

    value: int
    port: int


#: Name of entries that have no value yet.
UNPOPULATED = EvKey(0, 0)


@dataclass
class EvEntry:
    """An entry of a profile's array.

    Parameters
    ----------
    key : EvKey
    state : EvState
        As far as the host decides: UNPOPULATED, GOOD or DENIED.
    place : int
        Number among the entries of its port.
    replacements : int
        How often its value has been replaced while ONLINE.
    """

    key: EvKey = UNPOPULATED
    state: EvState = EvState.UNPOPULATED
    place: int = 0
    replacements: int = 0


def check_key(attribute: str, key: object, planes: int) -> EvKey:
    """Return a key that names a value of a port.

    Raises
    ------
    VerbsError
        EINVAL for its type or the types of its parts, or a port that does not exist.
    """
    if not isinstance(key, EvKey):
        raise VerbsError("EINVAL", attribute, key, "of type EvKey")
    check_range(f"{attribute}.value", key.value, 0, (1 << 2 * ADDRESS_BITS) - 1)
    check_range(f"{attribute}.port", key.port, 1, planes)
    return key


def automatic_values(mode: EvFormatMode, count: int, planes: int, uplinks: int) -> list[EvKey]:
    """Return the array of a profile of mode AUTO: entry i belongs to plane i mod planes.

    Parameters
    ----------
    mode : EvFormatMode
    count, planes : int
        Entries in all, and planes.
    uplinks : int
        SRV6: T1 switches of a plane, which take turns. Other modes draw values that a switch's hash spreads.
    """
    if mode is EvFormatMode.SRV6:
        return [EvKey(value, i % planes + 1) for i, value in enumerate(ev_set(count, planes, uplinks))]
    taken: set[EvKey] = set()
    keys: list[EvKey] = []
    draw = 0
    while len(keys) < count:
        bits = random_bits(0, _COMPONENT, draw)
        draw += 1
        value = (_PORT_BASE | bits & _PORT_MASK) << 16
        if mode is EvFormatMode.STEV:
            value |= bits >> 16 & 0xFFFF
        key = EvKey(value, len(keys) % planes + 1)
        if key not in taken:
            taken.add(key)
            keys.append(key)
    return keys


def expansions(
    form: EvFormat, fields: Sequence[EvField] | Mapping[int, Sequence[EvField]], planes: int
) -> tuple[Expansion, ...]:
    """Return the expansion of each port.

    Parameters
    ----------
    form : EvFormat
        ONLINE.
    fields : sequence of EvField, or mapping from port to such a sequence
        The fields, of all ports or of each.
    planes : int

    Raises
    ------
    VerbsError
        EINVAL with the rule of protocol.md 2.8 that is broken.
    """
    if isinstance(fields, Mapping):
        if sorted(fields) != list(range(1, planes + 1)):
            raise VerbsError("EINVAL", "ev_profile.fields.ports", sorted(fields), f"1 to {planes}, each once")
        groups = [(f"fields[port {port}]", fields[port]) for port in range(1, planes + 1)]
    else:
        groups = [("fields", fields)] * planes
    result: list[Expansion] = []
    for name, group in groups:
        if not isinstance(group, Sequence) or not all(isinstance(item, EvField) for item in group):
            raise VerbsError("EINVAL", f"ev_profile.{name}", group, "a sequence of EvField")
        try:
            result.append(Expansion(form.widths, tuple(group)))
        except EvRuleError as error:
            where = name + error.attribute.removeprefix("fields")
            raise VerbsError("EINVAL", f"ev_profile.{where}", error.value, error.rule) from error
    return tuple(result)


def generated_values(expansion: Expansion, count: int) -> list[int]:
    """Return ``count`` EVs within the ranges of a profile's fields, spread over all of them.

    They walk through the combinations in steps near the golden section, so that each field takes many
    values; when there are fewer combinations than EVs, all of them come again.
    """
    ranges = [
        (item.ev_bits, item.min_val, item.highest - item.min_val + 1)
        for item in expansion.fields
        if item.ev_bits
    ]
    total = prod(size for _, _, size in ranges)
    step = max(1, total * 618_034 // 1_000_000)
    while gcd(step, total) != 1:
        step += 1
    values: list[int] = []
    for number in range(count):
        rest = number * step % total
        value = shift = 0
        for bits, low, size in reversed(ranges):
            value |= (low + rest % size) << shift
            rest //= size
            shift += bits
        values.append(value)
    return values


def entry_fields(form: EvFormat | None, expansion: Expansion | None, entry: EvEntry) -> dict[str, int]:
    """Return the fields of an entry's row of table EV_ENTRY (without an expansion also of EV_VALUE).

    Parameters
    ----------
    form, expansion
        Of the entry's port; None in mode AUTO, where the value is the wire's.
    entry : EvEntry
        Populated.

    Raises
    ------
    VerbsError
        EINVAL when the value breaks a range of the fields.
    """
    fields = {"value": entry.key.value, "port": entry.key.port}
    if form is None or expansion is None:
        return fields
    expanded = expand(expansion, entry.key.value)
    if form.mode is not EvFormatMode.SRV6:
        fields["value"] = expanded << WIRE_EV_BITS - expansion.width
        return fields
    fields["value"] = wire.EV.pack(
        plane=entry.key.port - 1,
        replica=(entry.replacements & _REPLACEMENT_MASK) << _PLACE_BITS | entry.place,
    )
    path = expanded << 2 * ADDRESS_BITS - expansion.width
    half = (1 << 64) - 1
    for name, shift in (
        ("destination_high", 192), ("destination_low", 128), ("segment_high", 64), ("segment_low", 0),
    ):  # fmt: skip
        fields[name] = path >> shift & half
    return fields


def expand(expansion: Expansion, value: int) -> int:
    """Expand an EV.

    Raises
    ------
    VerbsError
        EINVAL when it is too wide or breaks a range.
    """
    try:
        return expansion.expand(value)
    except EvRuleError as error:
        field = error.attribute.removeprefix("the EV bits of ")
        where = "value" if field == error.attribute else field
        raise VerbsError("EINVAL", f"ev.{where}", error.value, error.rule) from error
