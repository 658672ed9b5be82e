"""A packet inside the fabric: what the sender made, and apart from it what switches change.

A NIC hands in either a frame, whose outermost header is read once, or a packet that it has as an object
already (a subclass of :class:`Packet`). Bytes of the latter are made only where somebody needs them: a
capture, a tap, a NIC that takes frames. Both ways give the same times, marks and bytes.

Source: profile.md 6 (queues, DSCPs); protocol.md 4.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from mrc_host.packets.packet import TRIMMED_DSCPS
from mrc_host.packets.peek import FrameInfo, peek
from mrc_host.packets.trim import cut
from mrc_rtl import wire
from mrc_rtl.wire import GAP_PREAMBLE_FCS_BYTES, Dscp, Ecn, EtherType, NextHeader

if TYPE_CHECKING:
    from mrc_host.fabric.port import Port
    from mrc_host.fabric.routes import Route

__all__ = [
    "FRESH",
    "HOPS_MAXIMUM",
    "QUEUES",
    "DropReason",
    "Packet",
    "QueueClass",
    "queue_of_dscp",
    "route_key",
]

# Byte offsets within a frame whose outermost network header is IPv6.
IP_AT = wire.ETHERNET.bytes
ETHERTYPE_AT = wire.ETHERNET.byte_offset("ethertype")
NEXT_HEADER_AT = IP_AT + wire.IPV6.byte_offset("next_header")
HOP_LIMIT_AT = IP_AT + wire.IPV6.byte_offset("hop_limit")
SOURCE_AT = IP_AT + wire.IPV6.byte_offset("source")
DESTINATION_AT = IP_AT + wire.IPV6.byte_offset("destination")
PAYLOAD_AT = IP_AT + wire.IPV6.bytes
SEGMENTS_LEFT_AT = PAYLOAD_AT + wire.SRH.byte_offset("segments_left")
ETHERTYPE_IPV6 = EtherType.IPV6.to_bytes(2, "big")
BLOCK = wire.USID_BLOCK.to_bytes(wire.USID_BLOCK_BITS // 8, "big")
"""What addresses of uSID lists begin with."""
FRESH = -1
"""Value of :attr:`Packet.hop` while the hooks of the NIC's link have to act on the packet."""
HOPS_MAXIMUM: Final = 32
"""No list of uSIDs leads through so many switches: above it, a hop limit does not matter."""


class QueueClass(IntEnum):
    """Queues of a switch port, in order of their priority (profile.md 6)."""

    CONTROL = 0
    """SACK, NACK, ACK, and what switches have trimmed."""
    RETRANSMISSION = 1
    """Packets sent again."""
    DATA = 2
    """Everything else."""


QUEUES = len(QueueClass)

QUEUE_BY_DSCP = {
    Dscp.CONTROL: QueueClass.CONTROL,
    Dscp.TRIMMED: QueueClass.CONTROL,
    Dscp.TRIMMED_LASTHOP: QueueClass.CONTROL,
    Dscp.RETX: QueueClass.RETRANSMISSION,
}
TRIMMABLE_DSCPS = frozenset({Dscp.TRIMMABLE, Dscp.RETX})
"""What a switch may trim instead of dropping it."""


def queue_of_dscp(dscp: int) -> QueueClass:
    """Return the queue of a DSCP: those that profile.md 6 does not name are data."""
    return next((queue for known, queue in QUEUE_BY_DSCP.items() if known == dscp), QueueClass.DATA)


# By the whole traffic class byte, as plain numbers: this is read once for every packet.
QUEUE_OF_CLASS: Final = bytes(int(queue_of_dscp(octet >> 2)) for octet in range(256))
TRIMMABLE_CLASSES: Final = tuple(octet >> 2 in TRIMMABLE_DSCPS for octet in range(256))
TRIMMED_CLASSES: Final = tuple(octet >> 2 in TRIMMED_DSCPS for octet in range(256))
MARKABLE_CLASSES: Final = tuple(octet & 3 in (Ecn.ECT0, Ecn.ECT1) for octet in range(256))


class DropReason(IntEnum):
    """Why the fabric dropped a frame."""

    QUEUE_FULL = 0
    """The data queue of the output port had no room."""
    CONTROL_QUEUE_FULL = 1
    """The control queue of the output port had no room for a control packet."""
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
    """A fault or a tap removed the frame."""
    RETRANSMISSION_QUEUE_FULL = 8
    """The retransmission queue of the output port had no room."""
    TRIMMED_QUEUE_FULL = 9
    """The control queue had no room for a trimmed packet: its header is lost too."""


_CE: Final = int(Ecn.CE)
_OVERHEAD: Final = 24
assert _OVERHEAD == GAP_PREAMBLE_FCS_BYTES
_NO_WAY: Final[tuple[Port | None, ...]] = (None,)


@mypyc_attr(allow_interpreted_subclasses=True)
class Packet:
    """A packet between two NICs: a frame as bytes, or in a subclass the fields that a NIC's model has.

    A subclass overrides :meth:`make_frame`, :meth:`look` and :meth:`copy`. Switches change only what stands
    here, and the receiver gets the very object that the sender made.

    Attributes
    ----------
    size : int
        Bytes without FCS.
    wire_bytes : int
        Bytes it occupies on a link: 24 more.
    outer_class : int
        Outermost traffic class as it stands now: DSCP and ECN.
    queue : int
        Number of its queue, a :class:`QueueClass`.
    key : bytes
        Decides its way, with the switch it enters: see :func:`route_key`.
    route : Route or None
        Its way from the switch at which it was looked up; None before.
    outputs : tuple
        The output ports of that way, closed by None.
    hop : int
        Switches of that way it has passed; :data:`FRESH` while the hooks of the NIC's link have to act on it.
    trim_lengths : bool
        Whether the switch that cut it corrected the outermost header's length.
    as_bytes : bool
        It came as bytes, or a tap made it.
    time_ps : int
        When its last bit leaves the port of a NIC; when it is in the switch that a link leads to; when its
        first bit reaches a NIC.
    port : int
        Number of the port at the NIC that sends it.
    sequence : int
        Counts the packets of the direction it came by last, in the order they were sent.
    behind : Packet or None
        The packet behind it in its queue or on its link.
    came_by : Port or None
        That direction, for a packet that has reached a NIC.
    """

    __slots__ = (
        "_frame",
        "as_bytes",
        "behind",
        "came_by",
        "hop",
        "key",
        "outer_class",
        "outputs",
        "port",
        "queue",
        "route",
        "sequence",
        "size",
        "time_ps",
        "trim_lengths",
        "wire_bytes",
    )

    def __init__(self) -> None:
        self._frame: bytes | None = None
        self.as_bytes: bool = False
        self.size: i64 = 0
        self.wire_bytes: i64 = 0
        self.outer_class: i64 = 0
        self.queue: i64 = 0
        self.key: bytes = b""
        self.route: Route | None = None
        self.outputs: tuple[Port | None, ...] = _NO_WAY
        self.hop: i64 = 0
        self.trim_lengths: bool = False
        self.time_ps: i64 = 0
        self.port: i64 = 0
        self.sequence: i64 = 0
        self.came_by: Port | None = None
        self.behind: Packet | None = None

    @classmethod
    def of_frame(cls, frame: bytes) -> Packet:
        """Read the outermost header of a frame; without a complete IPv6 header the key stays empty."""
        packet = Packet()
        packet._frame = frame
        packet.as_bytes = True
        if len(frame) < PAYLOAD_AT or frame[ETHERTYPE_AT:IP_AT] != ETHERTYPE_IPV6 or frame[IP_AT] >> 4 != 6:
            packet.enter(len(frame), 0, b"")
        else:
            # The traffic class lies across the first two bytes of the header.
            octet = (frame[IP_AT] & 15) << 4 | frame[IP_AT + 1] >> 4
            packet.enter(len(frame), octet, route_key(frame))
        return packet

    def enter(self, size: i64, traffic_class: i64, key: bytes) -> None:
        """Say what switches look at; nothing of the packet is read for it.

        Parameters
        ----------
        size : int
            Bytes of its frame, without FCS.
        traffic_class : int
            Of the outermost header.
        key : bytes
            What :func:`route_key` would return of its frame.
        """
        self.size = size
        self.wire_bytes = size + _OVERHEAD
        self.outer_class = traffic_class
        self.queue = QUEUE_OF_CLASS[traffic_class]
        self.key = key

    def make_frame(self) -> bytes:
        """Return the frame as its sender put it on the link, from Ethernet on, without FCS."""
        assert self._frame is not None
        return self._frame

    def look(self) -> FrameInfo | None:
        """Return what :func:`mrc_host.packets.peek.peek` tells of that frame."""
        return peek(self.original)

    def copy(self) -> Packet:
        """Return another packet in the same state."""
        other = Packet()
        self.copy_state(other)
        return other

    def copy_state(self, other: Packet) -> None:
        """Give another packet what stands here of this one."""
        other._frame = self._frame
        other.as_bytes = self.as_bytes
        other.size = self.size
        other.wire_bytes = self.wire_bytes
        other.outer_class = self.outer_class
        other.queue = self.queue
        other.key = self.key
        other.route = self.route
        other.outputs = self.outputs
        other.hop = self.hop
        other.trim_lengths = self.trim_lengths

    @property
    def ecn(self) -> int:
        """ECN bits of the outermost header."""
        return self.outer_class & 3

    @property
    def is_trimmed(self) -> bool:
        """Whether the outermost DSCP says that a switch trimmed it."""
        return TRIMMED_CLASSES[self.outer_class]

    @property
    def original(self) -> bytes:
        """The frame as it was looked up, before switches changed anything."""
        frame = self._frame
        if frame is None:
            frame = self._frame = self.make_frame()
        return frame

    def mark_ce(self) -> None:
        """Write CE into the outermost header."""
        self.outer_class |= _CE

    def trim(self, size: int, dscp: int, correct_lengths: bool) -> None:
        """Cut to a size and mark as trimmed; a packet that is not longer is only marked."""
        self.outer_class = dscp << 2 | self.outer_class & 3
        self.queue = QUEUE_OF_CLASS[self.outer_class]
        if size < self.size:
            self.size = size
            self.wire_bytes = size + _OVERHEAD
            self.trim_lengths = correct_lengths

    def info(self) -> FrameInfo | None:
        """Return what a quick look tells; None when it is not an MRC packet."""
        found = self.look()
        if found is None or not self.key:
            return found
        if self.outer_class >> 2 == found.dscp and self.ecn == found.ecn:
            return found
        marked = Ecn.CE in (found.ecn, self.ecn)
        changed = found._replace(dscp=self.outer_class >> 2, ecn=int(Ecn.CE) if marked else self.ecn)
        if not self.is_trimmed:
            return changed
        reth_at = found.bth_offset + wire.BTH.bytes + wire.METH.bytes
        va_end = reth_at + found.ts * wire.TSETH.bytes + wire.RETH["va"].bits // 8
        return changed._replace(
            trimmed=True,
            payload_len=0,
            msn=found.msn if self.size >= reth_at else None,
            va=found.va if self.size >= va_end else None,
        )

    def frame(self) -> bytes:
        """Return the frame as it reaches a NIC, without FCS."""
        assert self.came_by is not None
        return self.to_bytes(self.came_by.macs)

    def to_bytes(self, macs: bytes) -> bytes:
        """Return the frame as it stands on a link whose 12 bytes of MAC addresses are given."""
        frame = self.original
        hop = self.hop
        if hop <= 0:  # no switch has touched it
            return frame
        head = frame[ETHERTYPE_AT:HOP_LIMIT_AT]
        if self.outer_class != (frame[IP_AT] & 15) << 4 | frame[IP_AT + 1] >> 4:
            octet = self.outer_class
            changed = bytes((0x60 | octet >> 4, (octet & 15) << 4 | frame[IP_AT + 1] & 15))
            head = head[:2] + changed + head[4:]
        route = self.route
        destination, rest = frame[DESTINATION_AT:PAYLOAD_AT], frame[PAYLOAD_AT:]
        if route is not None:
            destination = route.destinations[hop - 1]
            left = route.segments_left[hop - 1]
            if left >= 0:
                at = SEGMENTS_LEFT_AT - PAYLOAD_AT
                rest = rest[:at] + bytes((left,)) + rest[at + 1 :]
        whole = b"".join(
            (
                macs,
                head,
                bytes((frame[HOP_LIMIT_AT] - hop,)),
                frame[SOURCE_AT:DESTINATION_AT],
                destination,
                rest,
            )
        )
        return whole if len(whole) == self.size else cut(whole, self.size, self.trim_lengths)


def route_key(frame: bytes) -> bytes:
    """Return the bytes of a frame that decide its way through switches: a key for caches of ways.

    For a uSID list without a routing header that is the destination address alone, 16 bytes; else
    everything that a switch could look at.
    """
    if frame[NEXT_HEADER_AT] == NextHeader.ROUTING:
        if len(frame) < PAYLOAD_AT + wire.SRH.bytes:
            return frame[IP_AT:]
        return frame[IP_AT : PAYLOAD_AT + 8 + 8 * frame[PAYLOAD_AT + 1]]
    if frame[HOP_LIMIT_AT] > HOPS_MAXIMUM and frame[DESTINATION_AT : DESTINATION_AT + len(BLOCK)] == BLOCK:
        return frame[DESTINATION_AT:PAYLOAD_AT]
    return frame[IP_AT : PAYLOAD_AT + 4]
