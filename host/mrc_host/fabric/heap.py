"""What happens next: a heap of events that are kept and used again, and lists of packets in order.

A direction has one event for the end of its slot and one for the first packet on its link: the packets
behind it arrive in order, so they need none. No event is made while packets pass, and none is compared by
more than two integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.vecs import append, vec
from mypy_extensions import i64

if TYPE_CHECKING:
    from mrc_host.fabric.packet import Packet
    from mrc_host.fabric.port import Port

__all__ = ["ARRIVAL", "FLUSH", "LATE_ARRIVAL", "SLOT_END", "Event", "EventHeap", "PacketList"]

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


class EventHeap:
    """Events in order of time and order.

    Attributes
    ----------
    count : int
        Events in it.
    """

    __slots__ = ("_items", "count")

    def __init__(self) -> None:
        # Places behind the last event hold events that were there before.
        self._items: vec[Event] = vec[Event]()
        self.count: i64 = 0

    def first(self) -> Event:
        """Return the first event; there must be one."""
        return self._items[0]

    def events(self) -> list[Event]:
        """Return all events, in no order."""
        return [self._items[place] for place in range(self.count)]

    def push(self, event: Event) -> None:
        """Add an event."""
        at: i64 = self.count
        if at == len(self._items):
            self._items = append(self._items, event)
        self.count = at + 1
        items = self._items
        time: i64 = event.time
        order: i64 = event.order
        while at:
            above: i64 = (at - 1) >> 1
            other = items[above]
            if other.time < time or (other.time == time and other.order < order):
                break
            items[at] = other
            at = above
        items[at] = event

    def pop(self) -> None:
        """Remove the first event."""
        count: i64 = self.count - 1
        self.count = count
        if count:
            self._items[0] = self._items[count]
            self.sink()

    def sink(self) -> None:
        """Put the first event, whose time has grown, to its place."""
        items = self._items
        event = items[0]
        time: i64 = event.time
        order: i64 = event.order
        count: i64 = self.count
        at: i64 = 0
        below: i64 = 1
        while below < count:
            other = items[below]
            right: i64 = below + 1
            if right < count:
                second = items[right]
                if second.time < other.time or (second.time == other.time and second.order < other.order):
                    below = right
                    other = second
            if time < other.time or (time == other.time and order < other.order):
                break
            items[at] = other
            at = below
            below = 2 * at + 1
        items[at] = event


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
