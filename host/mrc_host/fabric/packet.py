"""A packet inside the fabric: what the sender made, and apart from it what switches change.

A NIC hands in either a frame, whose outermost header is read once, or a packet that it has as an object
already (:class:`PacketContent`). Bytes of the latter are made only where somebody needs them: a capture, a
tap, a NIC that takes frames. Both ways give the same times, marks and bytes.

Source: profile.md 6 (queues, DSCPs); protocol.md 4.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import TYPE_CHECKING

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
    "QUEUES",
    "DropReason",
    "Packet",
    "PacketContent",
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
HOPS_MAXIMUM = 32
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
QUEUE_OF_CLASS = tuple(int(queue_of_dscp(octet >> 2)) for octet in range(256))
TRIMMABLE_CLASSES = tuple(octet >> 2 in TRIMMABLE_DSCPS for octet in range(256))
TRIMMED_CLASSES = tuple(octet >> 2 in TRIMMED_DSCPS for octet in range(256))
MARKABLE_CLASSES = tuple(octet & 3 in (Ecn.ECT0, Ecn.ECT1) for octet in range(256))


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


class PacketContent(ABC):
    """A packet as the model of a NIC has it: fields instead of bytes.

    The fabric never changes it, and hands the same object to the receiver. A receiver looks at
    :attr:`Packet.trimmed`, :attr:`Packet.size` and :attr:`Packet.ecn` for what switches did to it.
    """

    __slots__ = ()

    @abstractmethod
    def frame(self) -> bytes:
        """Return the frame as its sender put it on the link, from Ethernet on, without FCS."""

    @abstractmethod
    def info(self) -> FrameInfo:
        """Return what :func:`mrc_host.packets.peek.peek` would tell of the frame."""


class Packet:
    """A packet between two NICs.

    Attributes
    ----------
    content : PacketContent or None
        The sender's object; None for a frame that came as bytes or was changed by a tap.
    size : int
        Bytes without FCS.
    wire_bytes : int
        Bytes it occupies on a link: 24 more.
    traffic_class : int
        Outermost traffic class: DSCP and ECN.
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
    """

    __slots__ = (
        "_frame",
        "content",
        "hop",
        "key",
        "outputs",
        "queue",
        "route",
        "size",
        "traffic_class",
        "trim_lengths",
        "wire_bytes",
    )

    def __init__(
        self, frame: bytes | None, content: PacketContent | None, size: int, traffic_class: int, key: bytes
    ) -> None:
        self._frame = frame
        self.content = content
        self.size = size
        self.wire_bytes = size + GAP_PREAMBLE_FCS_BYTES
        self.traffic_class = traffic_class
        self.queue: int = QUEUE_OF_CLASS[traffic_class]
        self.key = key
        self.route: Route | None = None
        self.outputs: tuple[Port | None, ...] = (None,)
        self.hop = 0
        self.trim_lengths = False

    @property
    def ecn(self) -> int:
        """ECN bits of the outermost header."""
        return self.traffic_class & 3

    @property
    def trimmed(self) -> bool:
        """Whether the outermost DSCP says that a switch trimmed it."""
        return TRIMMED_CLASSES[self.traffic_class]

    @property
    def original(self) -> bytes:
        """The frame as it was looked up, before switches changed anything."""
        frame = self._frame
        if frame is None:
            assert self.content is not None
            frame = self._frame = self.content.frame()
        return frame

    @classmethod
    def of_frame(cls, frame: bytes) -> Packet:
        """Read the outermost header of a frame; without a complete IPv6 header the key stays empty."""
        if len(frame) < PAYLOAD_AT or frame[ETHERTYPE_AT:IP_AT] != ETHERTYPE_IPV6 or frame[IP_AT] >> 4 != 6:
            return cls(frame, None, len(frame), 0, b"")
        # The traffic class lies across the first two bytes of the header.
        octet = (frame[IP_AT] & 15) << 4 | frame[IP_AT + 1] >> 4
        return cls(frame, None, len(frame), octet, route_key(frame))

    @classmethod
    def of_content(cls, content: PacketContent, size: int, traffic_class: int, key: bytes) -> Packet:
        """Wrap a packet that exists as an object; nothing of it is read here.

        Parameters
        ----------
        content : PacketContent
            The packet.
        size : int
            Bytes of its frame, without FCS.
        traffic_class : int
            Outermost traffic class.
        key : bytes
            What :func:`route_key` would return of its frame.
        """
        return cls(None, content, size, traffic_class, key)

    def copy(self) -> Packet:
        """Return another packet in the same state."""
        other = Packet(self._frame, self.content, self.size, self.traffic_class, self.key)
        other.route = self.route
        other.outputs = self.outputs
        other.hop = self.hop
        other.trim_lengths = self.trim_lengths
        return other

    def mark(self) -> None:
        """Write CE into the outermost header."""
        self.traffic_class |= int(Ecn.CE)

    def trim(self, size: int, dscp: int, correct_lengths: bool) -> None:
        """Cut to a size and mark as trimmed; a packet that is not longer is only marked."""
        self.traffic_class = dscp << 2 | self.traffic_class & 3
        self.queue = QUEUE_OF_CLASS[self.traffic_class]
        if size < self.size:
            self.size = size
            self.wire_bytes = size + GAP_PREAMBLE_FCS_BYTES
            self.trim_lengths = correct_lengths

    def info(self) -> FrameInfo | None:
        """Return what a quick look tells; None when it is not an MRC packet."""
        if self.content is None:
            found = peek(self.original)
        else:
            found = self.content.info()
        if found is None or not self.key:
            return found
        if self.traffic_class >> 2 == found.dscp and self.ecn == found.ecn:
            return found
        marked = Ecn.CE in (found.ecn, self.ecn)
        changed = found._replace(dscp=self.traffic_class >> 2, ecn=int(Ecn.CE) if marked else self.ecn)
        if not self.trimmed:
            return changed
        reth_at = found.bth_offset + wire.BTH.bytes + wire.METH.bytes
        va_end = reth_at + found.ts * wire.TSETH.bytes + wire.RETH["va"].bits // 8
        return changed._replace(
            trimmed=True,
            payload_len=0,
            msn=found.msn if self.size >= reth_at else None,
            va=found.va if self.size >= va_end else None,
        )

    def to_bytes(self, macs: bytes) -> bytes:
        """Return the frame as it stands on a link whose 12 bytes of MAC addresses are given."""
        frame = self.original
        hop = self.hop
        if hop <= 0:  # no switch has touched it
            return frame
        head = frame[ETHERTYPE_AT:HOP_LIMIT_AT]
        if self.traffic_class != (frame[IP_AT] & 15) << 4 | frame[IP_AT + 1] >> 4:
            octet = self.traffic_class
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
