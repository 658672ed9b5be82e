"""What one switch does with a frame: uN shift-and-forward over static routes.

A switch reads the outermost destination address as a list of 16-bit uSIDs behind a 32-bit block. When the
first 48 bits are its own, the list moves up by 16 bits; the new address is looked up among static /48
routes. A list that ends in this switch continues with the segment of a routing header, if one is left.
The hop limit falls by one per switch, and a frame whose hop limit would become 0 is dropped.

Plain frames, whose destination is an inner address, take the /64 route of the host; at a T0 that does not
know the host they go to one of the uplinks, chosen by a hash of addresses, flow label and UDP ports
(ECMP), or of what the topology says. Links that the switches know to be dead are left out of that.

A switch compares no lengths: a frame that is shorter than its headers say is carried like any other.

Source: RFC 9800 4.1 (NEXT-CSID), RFC 8986 4.1 (End), RFC 8754 4.3.1 (routing header), profile.md 2 and 6.
"""

from __future__ import annotations

from struct import Struct

from mrc_host.fabric.events import component_key, random_bits
from mrc_host.fabric.packet import (
    BLOCK,
    DESTINATION_AT,
    HOP_LIMIT_AT,
    IP_AT,
    NEXT_HEADER_AT,
    PAYLOAD_AT,
    SEGMENTS_LEFT_AT,
    SOURCE_AT,
    DropReason,
)
from mrc_host.fabric.topology import Switch, Topology
from mrc_host.fabric.usid import UsidPlan
from mrc_rtl import wire
from mrc_rtl.wire import NextHeader, Tier

__all__ = ["Header", "SwitchTable", "build_tables"]

SEGMENT_AT = PAYLOAD_AT + wire.SRH.byte_offset("segment")
ROUTING_TYPE_AT = PAYLOAD_AT + wire.SRH.byte_offset("routing_type")

ADDRESS_BYTES = 16
USID_BYTES = wire.USID_BITS // 8
CARRIER = Struct(f">{wire.USID_PER_ADDRESS}H")
HOST_PREFIX_BYTES = 8
"""Bytes of an inner address that name the host: a /64."""
INNER_PREFIX = (wire.INNER_PREFIX >> 80).to_bytes(6, "big")
"""The /48 that all inner addresses share."""


class Header:
    """The outermost header of a frame on its way through the switches.

    Parameters
    ----------
    frame : bytes
        The frame, complete up to its UDP header.

    Attributes
    ----------
    destination : bytes
        Destination address as it stands now.
    carrier : tuple of int
        The six uSIDs of the destination and a closing 0; empty for an address outside the block.
    position : int
        uSIDs used up: ``carrier[position]`` is now the first one behind the block.
    hop_limit : int
        Hop limit as it stands now.
    segments_left : int
        Segments Left of the routing header once a switch has counted it down; −1 before.
    """

    __slots__ = ("_start", "carrier", "frame", "hop_limit", "position", "segments_left")

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.hop_limit = frame[HOP_LIMIT_AT]
        self.segments_left = -1
        self._start = b""
        self.carrier: tuple[int, ...] = ()
        self.position = 0
        self.go_to(frame[DESTINATION_AT:PAYLOAD_AT])

    @property
    def destination(self) -> bytes:
        """Destination address as it stands now, 16 bytes."""
        used = self.position * USID_BYTES
        return BLOCK + self._start[len(BLOCK) + used :] + bytes(used) if used else self._start

    def go_to(self, destination: bytes) -> None:
        """Write another destination address."""
        self._start = destination
        self.position = 0
        self.carrier = ()
        if destination.startswith(BLOCK):
            self.carrier = (*CARRIER.unpack_from(destination, len(BLOCK)), 0)

    def next_segment(self) -> bool:
        """Continue with the next segment of a routing header behind the outermost IPv6 header.

        Writes the segment into the destination address and counts Segments Left down. False when there is
        no such header or no segment left.
        """
        frame = self.frame
        if frame[NEXT_HEADER_AT] != NextHeader.ROUTING or len(frame) < PAYLOAD_AT + wire.SRH.bytes:
            return False
        left = frame[SEGMENTS_LEFT_AT] if self.segments_left < 0 else self.segments_left
        segment_at = SEGMENT_AT + ADDRESS_BYTES * (left - 1)
        if frame[ROUTING_TYPE_AT] != wire.SRH_ROUTING_TYPE or not left:
            return False
        if len(frame) < segment_at + ADDRESS_BYTES:
            return False
        self.segments_left = left - 1
        self.go_to(frame[segment_at : segment_at + ADDRESS_BYTES])
        return True


class SwitchTable:
    """The forwarding table of one switch. Directions are numbers of :class:`~.topology.Direction`.

    Parameters
    ----------
    own : int
        The switch's own uSID, 16 bits.
    routes : dict of int to int
        /48 routes: uSID behind the block → direction.
    hosts : dict of bytes to int
        /64 routes of plain addresses: first 8 bytes → direction.
    default : tuple of int
        Directions among which plain addresses of other hosts are hashed; empty where there is no such way.
    salt : int
        Makes the hash of each switch another one.
    hash_labels, hash_ports : bool
        Whether flow label and UDP ports enter the hash.
    beyond : dict of bytes to tuple of int, optional
        Behind ``default``, by the first 8 bytes of a plain address: the directions that lead on to its T0.
    """

    __slots__ = ("beyond", "default", "hash_labels", "hash_ports", "hosts", "own", "routes", "salt")

    def __init__(
        self,
        own: int,
        routes: dict[int, int],
        hosts: dict[bytes, int],
        default: tuple[int, ...],
        salt: int,
        hash_labels: bool = True,
        hash_ports: bool = True,
        beyond: dict[bytes, tuple[int, ...]] | None = None,
    ) -> None:
        self.beyond = beyond or {}
        self.own = own
        self.routes = routes
        self.hosts = hosts
        self.default = default
        self.salt = salt
        self.hash_labels = hash_labels
        self.hash_ports = hash_ports

    def forward(self, header: Header, dead: frozenset[int] = frozenset()) -> int:
        """Process a frame: change its address and hop limit, and say where it goes.

        Parameters
        ----------
        header : Header
        dead : frozenset of int
            Directions that switches know to be down: nothing is hashed over them.

        Returns
        -------
        int
            Number of the direction of the output link, or −1 − :class:`DropReason`.
        """
        if header.hop_limit <= 1:
            return -1 - DropReason.HOP_LIMIT
        header.hop_limit -= 1
        if not header.carrier:
            return self._plain(header, dead)
        usid = header.carrier[header.position]
        if usid == self.own:
            header.position += 1
            usid = header.carrier[header.position]
            if not usid and not any(header.carrier[header.position :]):
                if not header.next_segment():
                    return -1 - DropReason.END_OF_LIST
                if not header.carrier:
                    return self._plain(header, dead)
                usid = header.carrier[0]
        return self.routes.get(usid, -1 - DropReason.NO_ROUTE)

    def _plain(self, header: Header, dead: frozenset[int]) -> int:
        """Find the way of an address outside the block."""
        destination = header.destination
        direction = self.hosts.get(destination[:HOST_PREFIX_BYTES])
        if direction is not None:
            return direction
        if self.default and destination.startswith(INNER_PREFIX):
            choices = self.default if not dead else self._live(destination, dead)
            if choices:
                return choices[self._hash(header.frame, destination) * len(choices) >> 64]
        return -1 - DropReason.NO_ROUTE

    def _live(self, destination: bytes, dead: frozenset[int]) -> tuple[int, ...]:
        """Directions of ``default`` from which a plain address can be reached."""
        beyond = self.beyond.get(destination[:HOST_PREFIX_BYTES], self.default)
        return tuple(
            up for up, down in zip(self.default, beyond, strict=True) if up not in dead and down not in dead
        )

    def _hash(self, frame: bytes, destination: bytes) -> int:
        """Return 64 bits from addresses, flow label, next header and, for UDP, the ports."""
        flow_label = 0
        if self.hash_labels:
            flow_label = int.from_bytes(frame[IP_AT : IP_AT + 4], "big") & wire.IPV6["flow_label"].mask
        ports = b""
        if self.hash_ports and frame[NEXT_HEADER_AT] == NextHeader.UDP:
            ports = frame[PAYLOAD_AT : PAYLOAD_AT + 4]
        words = int.from_bytes(frame[SOURCE_AT:DESTINATION_AT] + destination, "big")
        mixed = self.salt
        while words:
            mixed = random_bits(mixed, words & 0xFFFF_FFFF_FFFF_FFFF, 0)
            words >>= 64
        return random_bits(mixed, flow_label << 8 | frame[NEXT_HEADER_AT], int.from_bytes(ports, "big"))


def _host_prefix(address: int) -> bytes:
    return address.to_bytes(ADDRESS_BYTES, "big")[:HOST_PREFIX_BYTES]


def _ways_down(topology: Topology, plan: UsidPlan, plane: int) -> dict[bytes, tuple[int, ...]]:
    """Return, by the prefix of each host, the directions to its T0 from every T1 of a plane."""
    if not topology.t1_per_plane:
        return {}
    of_t0 = {
        t0: tuple(
            topology.t1_link(plane, t0, index).down.number for index in range(1, topology.t1_per_plane + 1)
        )
        for t0 in range(1, topology.t0_per_plane + 1)
    }
    return {
        _host_prefix(plan.inner_address(host)): of_t0[topology.t0_of(host)] for host in range(topology.hosts)
    }


def _t0_table(
    topology: Topology, plan: UsidPlan, switch: Switch, seed: int, beyond: dict[bytes, tuple[int, ...]]
) -> SwitchTable:
    """Return the table of a T0: its hosts below, every T1 of the plane above."""
    routes: dict[int, int] = {}
    hosts: dict[bytes, int] = {}
    first = (switch.index - 1) * topology.hosts_per_t0
    for host in range(first, first + topology.hosts_per_t0):
        down = topology.host_link(host, switch.plane).down.number
        routes[plan.host_usid(host, switch.plane)] = down
        hosts[_host_prefix(plan.inner_address(host))] = down
    uplinks = []
    for index in range(1, topology.t1_per_plane + 1):
        up = topology.t1_link(switch.plane, switch.index, index).up.number
        routes[wire.usid_value(switch.plane, Tier.T1, index)] = up
        uplinks.append(up)
    salt = random_bits(seed, component_key(switch.name), 0)
    hashed = topology.spec.ecmp_hash
    return SwitchTable(
        plan.switch_usid(switch),
        routes,
        hosts,
        tuple(uplinks),
        salt,
        hash_labels=hashed != "ports",
        hash_ports=hashed != "flow_label",
        beyond=beyond,
    )


def _t1_table(topology: Topology, plan: UsidPlan, switch: Switch) -> SwitchTable:
    """Return the table of a T1: every T0 of the plane below."""
    down = {
        index: topology.t1_link(switch.plane, index, switch.index).down.number
        for index in range(1, topology.t0_per_plane + 1)
    }
    routes = {wire.usid_value(switch.plane, Tier.T0, index): number for index, number in down.items()}
    hosts = {
        _host_prefix(plan.inner_address(host)): down[topology.t0_of(host)] for host in range(topology.hosts)
    }
    return SwitchTable(plan.switch_usid(switch), routes, hosts, (), 0)


def build_tables(topology: Topology, seed: int = 0) -> list[SwitchTable]:
    """Return the forwarding tables of all switches, by switch number.

    Parameters
    ----------
    topology : Topology
        The fabric.
    seed : int
        Seed of the run, for the ECMP hashes.
    """
    plan = UsidPlan(topology)
    beyond = [_ways_down(topology, plan, plane) for plane in range(topology.planes)]
    return [
        _t0_table(topology, plan, switch, seed, beyond[switch.plane])
        if switch.tier is Tier.T0
        else _t1_table(topology, plan, switch)
        for switch in topology.switches
    ]
