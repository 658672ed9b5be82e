"""The uSID plan: addresses, QP templates, MAC addresses and entropy values.

A path is written into the outer destination address as a list of 16-bit uSIDs behind the 32-bit block.
The NIC keeps one *template* per QP, the list with plane bits zero and T1 index 0, and ORs the plane into
every uSID and the uplink into the T1's. Nothing else is stored per path.

Example, plane 5, T0 number 3, uplink 0x2a, T0 number 0x11, host number 7 below it::

    template   5f00:0:3:400:11:807::
    EV         0xc52a0000
    outer      5f00:0:5003:542a:5011:5807::

Source: profile.md 2 and 3; protocol.md 1.16 and appendix B; RFC 9800 (NEXT-CSID), RFC 9602 (block 5f00::/16).
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import NamedTuple

from mrc_host.fabric.spec import PLANES_MAXIMUM, T1_MAXIMUM
from mrc_host.fabric.topology import Switch, Topology
from mrc_rtl import wire
from mrc_rtl.wire import Tier

__all__ = [
    "EvFields",
    "QpTemplate",
    "UsidPlan",
    "address_text",
    "ev_fields",
    "ev_set",
    "ev_value",
    "mac_text",
]

ADDRESS_BITS = 128


class EvFields(NamedTuple):
    """The three fields of an entropy value in SRv6 mode."""

    plane: int
    uplink: int
    replica: int


def ev_value(plane: int, uplink: int, replica: int = 0) -> int:
    """Return the 32-bit EV of a path.

    Parameters
    ----------
    plane : int
        Plane, 0 to 7.
    uplink : int
        Index of the T1, 1 to 255.
    replica : int
        Distinguishes EVs of one path, 0 to 65535; switches ignore it.

    Raises
    ------
    ValueError
        When a field is out of range.
    """
    _check("plane", plane, 0, PLANES_MAXIMUM - 1)
    _check("uplink", uplink, 1, T1_MAXIMUM)
    _check("replica", replica, 0, wire.EV["replica"].mask)
    return wire.ev_value(plane, uplink, replica)


def ev_fields(ev: int) -> EvFields:
    """Return plane, uplink and replica of an EV (inverse of :func:`ev_value`).

    Raises
    ------
    ValueError
        When the value does not begin with the bits 0b11000 of profile.md 3.
    """
    fields = wire.EV.unpack(ev)
    if fields["prefix"] != wire.EV["prefix"].default or fields["zero"] or ev >> wire.EV_BITS:
        raise ValueError(f"EV must be 32 bits that begin with 0b11000, got {ev:#010x}")
    return EvFields(fields["plane"], fields["uplink"], fields["replica"])


def ev_set(count: int, planes: int, uplinks: int) -> tuple[int, ...]:
    """Return the EVs of a QP: evenly over planes, then over uplinks, then replicas.

    Entry i lies in plane i mod planes; within a plane the uplinks take turns; only when all paths have an EV
    do replicas begin. Any prefix of the set is therefore as even as it can be.

    Parameters
    ----------
    count : int
        EVs in the set, at least 1.
    planes : int
        Planes, 1 to 8.
    uplinks : int
        T1 switches per plane; a star has none, and its EVs carry uplink 1 and differ by replica.

    Raises
    ------
    ValueError
        When a count is out of range.
    """
    _check("planes", planes, 1, PLANES_MAXIMUM)
    _check("uplinks", uplinks, 0, T1_MAXIMUM)
    width = max(1, uplinks)
    _check("count", count, 1, planes * width << wire.EV["replica"].bits)
    return tuple(ev_value(i % planes, i // planes % width + 1, i // (planes * width)) for i in range(count))


@dataclass(frozen=True, slots=True)
class QpTemplate:
    """What a NIC stores to build every outer header of a QP.

    Parameters
    ----------
    source : int
        Outer source address with plane bits zero, 128 bits.
    destination : int
        Outer destination address with plane bits zero and T1 index 0, 128 bits.
    plane_positions : tuple of int
        uSID positions of the destination that take the plane; 0 is the first uSID behind the block.
    uplink_position : int or None
        uSID position that takes the uplink; None for hosts of one T0.

    The source's first two uSIDs, T0 and host, always take the plane.
    """

    source: int
    destination: int
    plane_positions: tuple[int, ...]
    uplink_position: int | None

    @property
    def plane_mask(self) -> int:
        """One bit per uSID position, bit 0 the first uSID: which take the plane."""
        return sum(1 << position for position in self.plane_positions)

    @property
    def uplink_mask(self) -> int:
        """One bit per uSID position, bit 0 the first uSID: which takes the uplink (one bit or none)."""
        return 0 if self.uplink_position is None else 1 << self.uplink_position

    def outer_destination(self, plane: int, uplink: int) -> int:
        """Return the outer destination address of a path, 128 bits."""
        address = _with_plane(self.destination, self.plane_positions, plane)
        if self.uplink_position is not None:
            address |= uplink << _usid_shift(self.uplink_position)
        return address

    def outer_source(self, plane: int) -> int:
        """Return the outer source address on a plane, 128 bits."""
        return _with_plane(self.source, (0, 1), plane)


class UsidPlan:
    """Addresses of everything in a topology.

    Parameters
    ----------
    topology : Topology
        The topology whose hosts and switches are named.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    # -- uSIDs -------------------------------------------------------------------------------------------

    def switch_usid(self, switch: Switch) -> int:
        """Return the uSID of a switch, 16 bits."""
        return wire.usid_value(switch.plane, switch.tier, switch.index)

    def host_usid(self, host: int, plane: int) -> int:
        """Return the uSID of a host on a plane, 16 bits; unique within its T0 only."""
        return wire.usid_value(plane, Tier.HOST, self.topology.downlink_of(host))

    # -- addresses ---------------------------------------------------------------------------------------

    def inner_address(self, host: int) -> int:
        """Return fd00:0:0:<host>::1, a host's address on every plane, 128 bits."""
        self.topology.t0_of(host)
        return wire.inner_address(host)

    def outer_source(self, host: int, plane: int) -> int:
        """Return a host's outer source address on a plane: block, own T0, own host."""
        return wire.outer_address((self._t0_usid(host, plane), self.host_usid(host, plane)))

    def outer_destination(self, source: int, target: int, plane: int, uplink: int | None = None) -> int:
        """Return the outer destination address of one path.

        The list is own T0, T1, peer's T0, host; between hosts of one T0 it is T0, host.

        Raises
        ------
        ValueError
            When plane or uplink do not exist.
        """
        path = self.topology.path(source, target, plane, uplink)
        last = (self._t0_usid(target, plane), self.host_usid(target, plane))
        if path.uplink is None:
            return wire.outer_address(last)
        t1 = wire.usid_value(plane, Tier.T1, path.uplink)
        return wire.outer_address((self._t0_usid(source, plane), t1, *last))

    def template(self, source: int, target: int) -> QpTemplate:
        """Return the template of a QP from ``source`` to ``target``."""
        outer_source = wire.outer_address((self._t0_usid(source, 0), self.host_usid(source, 0)))
        last = (self._t0_usid(target, 0), self.host_usid(target, 0))
        if self.topology.same_t0(source, target):
            return QpTemplate(outer_source, wire.outer_address(last), (0, 1), None)
        t1 = wire.USID.pack(plane=0, tier=Tier.T1, index=0)
        carrier = (self._t0_usid(source, 0), t1, *last)
        return QpTemplate(outer_source, wire.outer_address(carrier), (0, 1, 2, 3), 1)

    def ev_set(self, count: int) -> tuple[int, ...]:
        """Return the EVs of a QP on this topology, see :func:`ev_set`."""
        return ev_set(count, self.topology.planes, self.topology.t1_per_plane)

    # -- MAC addresses -----------------------------------------------------------------------------------

    def host_mac(self, host: int, plane: int) -> int:
        """Return the MAC address of a NIC port, ``02:00:00:<plane>:<host>``, 48 bits."""
        self.topology.nic_port(host, plane)
        return wire.mac_address(plane, host)

    def switch_mac(self, switch: Switch) -> int:
        """Return the MAC address all ports of a switch use, ``02:01:<tier>:<plane>:<index>``, 48 bits."""
        return 0x0201 << 32 | int(switch.tier) << 24 | switch.plane << 16 | switch.index

    def next_hop_mac(self, host: int, plane: int) -> int:
        """Return the MAC address a NIC port sends to: that of its T0."""
        topology = self.topology
        return self.switch_mac(topology.switches[topology.t0_number(plane, topology.t0_of(host))])

    def mac_headers(self) -> list[bytes]:
        """Return the 12 bytes of MAC addresses, destination first, of frames on each direction of a link."""
        switches = self.topology.switches
        return [
            b"".join(
                (
                    self.host_mac(half.host, half.plane) if end < 0 else self.switch_mac(switches[end])
                ).to_bytes(6, "big")
                for end in (half.target_switch, half.source_switch)
            )
            for half in self.topology.directions
        ]

    def _t0_usid(self, host: int, plane: int) -> int:
        return wire.usid_value(plane, Tier.T0, self.topology.t0_of(host))


def address_text(address: int) -> str:
    """Return a 128-bit address in IPv6 notation."""
    return str(IPv6Address(address))


def mac_text(mac: int) -> str:
    """Return a 48-bit MAC address as six hexadecimal pairs."""
    return mac.to_bytes(6, "big").hex(":")


def _usid_shift(position: int) -> int:
    """Return the shift of the uSID at a position of an address; 0 is the first one behind the block."""
    return ADDRESS_BITS - wire.USID_BLOCK_BITS - wire.USID_BITS * (position + 1)


def _with_plane(address: int, positions: tuple[int, ...], plane: int) -> int:
    _check("plane", plane, 0, PLANES_MAXIMUM - 1)
    for position in positions:
        address |= plane << (_usid_shift(position) + wire.USID.shift("plane"))
    return address


def _check(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{what} must be between {low} and {high}, got {value}")
