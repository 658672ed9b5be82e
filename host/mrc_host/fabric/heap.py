"""What happens next: a heap of events that are kept and used again, and lists of packets in order.

A direction has one event for the end of its slot and one for the first packet on its link: the packets
behind it arrive in order, so they need none. No event is made while packets pass, and none is compared by
more than two integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

if TYPE_CHECKING:
    from mrc_host.fabric.packet import Packet
    from mrc_host.fabric.port import Port

__all__ = ["ARRIVAL", "FLUSH", "LATE_ARRIVAL", "SLOT_END", "Event", "PacketList", "pop", "push", "sink"]

ARRIVAL: Final = 0
"""The first packet on the link of a port reaches a switch."""
SLOT_END: Final = 1
"""The slot of a port ends, and packets wait."""
LATE_ARRIVAL: Final = 2
"""A packet that was delayed on the link of a port reaches a switch: it has an event of its own."""
FLUSH: Final = 3
"""The queues of a port are emptied."""


class Event:
    """Something that happens at a port.

    Parameters
    ----------
    kind : int
        :data:`ARRIVAL`, :data:`SLOT_END`, :data:`LATE_ARRIVAL` or :data:`FLUSH`.
    port : Port
        Where.

    Attributes
    ----------
    time : int
        When, in picoseconds.
    order : int
        Breaks ties; no two events of one time have the same.
    packet : Packet or None
        That of a late arrival.
    """

    __slots__ = ("kind", "order", "packet", "port", "time")

    def __init__(self, kind: i64, port: Port, time: i64 = 0, order: i64 = 0) -> None:
        self.kind: i64 = kind
        self.port: Port = port
        self.time: i64 = time
        self.order: i64 = order
        self.packet: Packet | None = None


def push(heap: list[Event], event: Event) -> None:
    """Add an event to a heap."""
    at: i64 = len(heap)
    heap.append(event)
    time: i64 = event.time
    order: i64 = event.order
    while at:
        above: i64 = (at - 1) >> 1
        other = heap[above]
        if other.time < time or (other.time == time and other.order < order):
            break
        heap[at] = other
        at = above
    heap[at] = event


def pop(heap: list[Event]) -> None:
    """Remove the first event of a heap."""
    last = heap.pop()
    if heap:
        heap[0] = last
        sink(heap)


def sink(heap: list[Event]) -> None:
    """Put the first event of a heap, whose time has grown, to its place."""
    event = heap[0]
    time: i64 = event.time
    order: i64 = event.order
    count: i64 = len(heap)
    at: i64 = 0
    below: i64 = 1
    while below < count:
        other = heap[below]
        right: i64 = below + 1
        if right < count:
            second = heap[right]
            if second.time < other.time or (second.time == other.time and second.order < other.order):
                below = right
                other = second
        if time < other.time or (time == other.time and order < other.order):
            break
        heap[at] = other
        at = below
        below = 2 * at + 1
    heap[at] = event


class PacketList:
    """Packets in a row, each knowing the one behind it; a packet is in one row at a time.

    Attributes
    ----------
    first : Packet or None
    count : int
    """

    __slots__ = ("_last", "count", "first")

    def __init__(self) -> None:
        self.first: Packet | None = None
        self._last: Packet | None = None
        self.count: i64 = 0

    def append(self, packet: Packet) -> None:
        """Add a packet behind the last one."""
        last = self._last
        if last is None:
            self.first = packet
        else:
            last.behind = packet
        self._last = packet
        self.count += 1

    def insert(self, packet: Packet) -> None:
        """Add a packet behind those that come before it, by time and sequence."""
        before: Packet | None = None
        item = self.first
        while item is not None and (item.time_ps, item.sequence) < (packet.time_ps, packet.sequence):
            before, item = item, item.behind
        if item is None:
            self.append(packet)
            return
        packet.behind = item
        if before is None:
            self.first = packet
        else:
            before.behind = packet
        self.count += 1

    def take(self) -> Packet:
        """Remove the first packet; there must be one."""
        packet = self.first
        assert packet is not None
        self.first = packet.behind
        packet.behind = None
        if self.first is None:
            self._last = None
        self.count -= 1
        return packet

    def clear(self) -> None:
        """Remove all packets."""
        while self.first is not None:
            self.take()
