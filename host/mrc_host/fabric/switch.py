"""What one switch does with a frame: uN shift-and-forward over static routes.

A switch reads the outermost destination address as a list of 16-bit uSIDs behind a 32-bit block. When the
first 48 bits are its own, the list moves up by 16 bits; the new address is looked up among static /48
routes. A list that ends in this switch continues with the segment of a routing header, if one is left.
The hop limit falls by one per switch, and a frame whose hop limit would become 0 is dropped.

Plain frames, whose destination is an inner address, take the /64 route of the host; at a T0 that does not
know the host they go to one of the uplinks, chosen by a hash of addresses, flow label and UDP ports
(ECMP).

A switch compares no lengths: a frame that is shorter than its headers say is carried like any other.

Source: RFC 9800 4.1 (NEXT-CSID), RFC 8986 4.1 (End), RFC 8754 4.3.1 (routing header), profile.md 2 and 6.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

from mrc_host.fabric.events import component_key, random_bits
from mrc_host.fabric.topology import Switch, Topology
from mrc_host.fabric.usid import UsidPlan
from mrc_rtl import wire
from mrc_rtl.wire import Dscp, EtherType, NextHeader, Tier

__all__ = ["CONTROL_DSCPS", "DropReason", "Packet", "SwitchTable", "build_tables", "parse"]

CONTROL_DSCPS = frozenset({Dscp.CONTROL, Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP})
"""Traffic that waits in the control queue, ahead of data (profile.md 6)."""

# Byte offsets within a frame whose outermost network header is IPv6.
IP_AT = wire.ETHERNET.bytes
ETHERTYPE_AT = wire.ETHERNET.byte_offset("ethertype")
NEXT_HEADER_AT = IP_AT + wire.IPV6.byte_offset("next_header")
HOP_LIMIT_AT = IP_AT + wire.IPV6.byte_offset("hop_limit")
SOURCE_AT = IP_AT + wire.IPV6.byte_offset("source")
DESTINATION_AT = IP_AT + wire.IPV6.byte_offset("destination")
PAYLOAD_AT = IP_AT + wire.IPV6.bytes
SEGMENTS_LEFT_AT = PAYLOAD_AT + wire.SRH.byte_offset("segments_left")
SEGMENT_AT = PAYLOAD_AT + wire.SRH.byte_offset("segment")
ROUTING_TYPE_AT = PAYLOAD_AT + wire.SRH.byte_offset("routing_type")
ETHERTYPE_IPV6 = EtherType.IPV6.to_bytes(2, "big")

ADDRESS_BYTES = 16
USID_BYTES = wire.USID_BITS // 8
BLOCK = wire.USID_BLOCK.to_bytes(wire.USID_BLOCK_BITS // 8, "big")
CARRIER_AT = DESTINATION_AT + len(BLOCK)
CARRIER = Struct(f">{wire.USID_PER_ADDRESS}H")
HOST_PREFIX_BYTES = 8
"""Bytes of an inner address that name the host: a /64."""
INNER_PREFIX = (wire.INNER_PREFIX >> 80).to_bytes(6, "big")
"""The /48 that all inner addresses share."""


class DropReason(IntEnum):
    """Why the fabric dropped a frame."""

    QUEUE_FULL = 0
    """The data queue of the output port had no room."""
    CONTROL_QUEUE_FULL = 1
    """The control queue of the output port had no room."""
    HOP_LIMIT = 2
    """The hop limit would have become 0."""
    NO_ROUTE = 3
    """No static route for the destination."""
    END_OF_LIST = 4
    """The uSID list ended in a switch, without a routing header that continues it."""
    NOT_IPV6 = 5
    """No complete IPv6 header behind Ethernet."""
    WRONG_MAC = 6
    """A NIC sent to a MAC address that is not its T0's."""
    FAULT = 7
    """A tap removed the frame."""


class Packet:
    """A frame inside the fabric: its bytes as sent, and apart from them what switches change.

    Attributes
    ----------
    frame : bytes
        The frame without FCS as it entered; hop limit and list position override what stands in it.
    carrier : tuple of int
        The six uSIDs of the outermost destination and a closing 0; empty for an address outside the block.
    position : int
        uSIDs used up: ``carrier[position]`` is now the first one behind the block.
    hop_limit : int
        Outermost hop limit.
    size : int
        Bytes of the frame.
    control : bool
        Whether it waits in the control queue.
    """

    __slots__ = ("carrier", "control", "frame", "hop_limit", "position", "size")

    def __init__(self, frame: bytes, carrier: tuple[int, ...], hop_limit: int, control: bool) -> None:
        self.frame = frame
        self.carrier = carrier
        self.position = 0
        self.hop_limit = hop_limit
        self.size = len(frame)
        self.control = control

    def to_bytes(self, macs: bytes) -> bytes:
        """Return the frame as it stands on a link whose 12 bytes of MAC addresses are given."""
        frame = self.frame
        used = self.position * USID_BYTES
        return b"".join(
            (
                macs,
                frame[ETHERTYPE_AT:HOP_LIMIT_AT],
                self.hop_limit.to_bytes(1, "big"),
                frame[HOP_LIMIT_AT + 1 : CARRIER_AT],
                frame[CARRIER_AT + used : PAYLOAD_AT],
                bytes(used),
                frame[PAYLOAD_AT:],
            )
        )


def parse(frame: bytes) -> Packet | None:
    """Read what a switch needs; None when the frame has no complete IPv6 header behind Ethernet."""
    if len(frame) < PAYLOAD_AT or frame[ETHERTYPE_AT:IP_AT] != ETHERTYPE_IPV6 or frame[IP_AT] >> 4 != 6:
        return None
    # The traffic class lies across the first two bytes of the header; its upper six bits are the DSCP.
    dscp = (frame[IP_AT] << 2 | frame[IP_AT + 1] >> 6) & 0x3F
    return Packet(frame, _carrier(frame, DESTINATION_AT), frame[HOP_LIMIT_AT], dscp in CONTROL_DSCPS)


def _carrier(data: bytes, at: int) -> tuple[int, ...]:
    """Return the uSIDs of an address and a closing 0; nothing for an address outside the block."""
    if data[at : at + len(BLOCK)] != BLOCK:
        return ()
    return (*CARRIER.unpack_from(data, at + len(BLOCK)), 0)


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
    """

    __slots__ = ("default", "hosts", "own", "routes", "salt")

    def __init__(
        self, own: int, routes: dict[int, int], hosts: dict[bytes, int], default: tuple[int, ...], salt: int
    ) -> None:
        self.own = own
        self.routes = routes
        self.hosts = hosts
        self.default = default
        self.salt = salt

    def forward(self, packet: Packet) -> int:
        """Process a frame: change the packet's address and hop limit, and say where it goes.

        Returns
        -------
        int
            Number of the direction of the output link, or −1 − :class:`DropReason`.
        """
        if packet.hop_limit <= 1:
            return -1 - DropReason.HOP_LIMIT
        packet.hop_limit -= 1
        if not packet.carrier:
            return self._plain(packet)
        usid = packet.carrier[packet.position]
        if usid == self.own:
            packet.position += 1
            usid = packet.carrier[packet.position]
            if not usid and not any(packet.carrier[packet.position :]):
                if not _next_segment(packet):
                    return -1 - DropReason.END_OF_LIST
                if not packet.carrier:
                    return self._plain(packet)
                usid = packet.carrier[0]
        return self.routes.get(usid, -1 - DropReason.NO_ROUTE)

    def _plain(self, packet: Packet) -> int:
        """Find the way of an address outside the block."""
        prefix = packet.frame[DESTINATION_AT : DESTINATION_AT + HOST_PREFIX_BYTES]
        direction = self.hosts.get(prefix)
        if direction is not None:
            return direction
        if self.default and prefix.startswith(INNER_PREFIX):
            return self.default[self._hash(packet) * len(self.default) >> 64]
        return -1 - DropReason.NO_ROUTE

    def _hash(self, packet: Packet) -> int:
        """Return 64 bits from addresses, flow label, next header and, for UDP, the ports."""
        frame = packet.frame
        flow_label = int.from_bytes(frame[IP_AT : IP_AT + 4], "big") & wire.IPV6["flow_label"].mask
        ports = b""
        if frame[NEXT_HEADER_AT] == NextHeader.UDP:
            ports = frame[PAYLOAD_AT : PAYLOAD_AT + 4]
        words = int.from_bytes(frame[SOURCE_AT:PAYLOAD_AT], "big")
        mixed = self.salt
        while words:
            mixed = random_bits(mixed, words & 0xFFFF_FFFF_FFFF_FFFF, 0)
            words >>= 64
        return random_bits(mixed, flow_label << 8 | frame[NEXT_HEADER_AT], int.from_bytes(ports, "big"))


def _next_segment(packet: Packet) -> bool:
    """Continue with the next segment of a routing header behind the outermost IPv6 header.

    Writes the segment into the destination address and counts Segments Left down. False when there is no
    such header or no segment left.
    """
    frame = packet.frame
    if frame[NEXT_HEADER_AT] != NextHeader.ROUTING or len(frame) < PAYLOAD_AT + wire.SRH.bytes:
        return False
    left = frame[SEGMENTS_LEFT_AT]
    segment_at = SEGMENT_AT + ADDRESS_BYTES * (left - 1)
    if frame[ROUTING_TYPE_AT] != wire.SRH_ROUTING_TYPE or not left or len(frame) < segment_at + ADDRESS_BYTES:
        return False
    packet.frame = b"".join(
        (
            frame[:DESTINATION_AT],
            frame[segment_at : segment_at + ADDRESS_BYTES],
            frame[PAYLOAD_AT:SEGMENTS_LEFT_AT],
            bytes((left - 1,)),
            frame[SEGMENTS_LEFT_AT + 1 :],
        )
    )
    packet.carrier = _carrier(packet.frame, DESTINATION_AT)
    packet.position = 0
    return True


def _host_prefix(address: int) -> bytes:
    return address.to_bytes(ADDRESS_BYTES, "big")[:HOST_PREFIX_BYTES]


def _t0_table(topology: Topology, plan: UsidPlan, switch: Switch, seed: int) -> SwitchTable:
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
    return SwitchTable(plan.switch_usid(switch), routes, hosts, tuple(uplinks), salt)


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
    return [
        _t0_table(topology, plan, switch, seed)
        if switch.tier is Tier.T0
        else _t1_table(topology, plan, switch)
        for switch in topology.switches
    ]
