"""Events of a model NIC in order of time, independent of when they were put in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from librt.vecs import append, vec
from mypy_extensions import i64

from mrc_host.nic.base import NEVER

__all__ = [
    "ACCESS",
    "ARRIVAL",
    "CALL",
    "ENTRY",
    "INSIDE",
    "LINK",
    "PLACEMENT",
    "RECEIVED",
    "ROOM",
    "TIMER",
    "Agenda",
    "Call",
]

# What comes from outside precedes what the NIC planned itself for the same time, in a fixed order. So the
# order does not depend on how the time was cut into windows.
LINK: Final = 0
ACCESS: Final = 1
RECEIVED: Final = 2
"""Frames of port p have the order RECEIVED + p."""
INSIDE: Final = 64
TIMER: Final = 65
"""A NIC rests while nothing but timers are planned."""

CALL: Final = 0
"""Kind of a call: its callback and argument say what happens. Those of the others need none."""
ARRIVAL: Final = 1
"""The first packet on the line of a plane has arrived."""
PLACEMENT: Final = 2
"""The memory answers for the payload of a packet."""
ENTRY: Final = 3
"""The memory answers for an entry of a ring."""
ROOM: Final = 4
"""A plane has room again."""

_SEQUENCE_BITS: Final = 48


class Call:
    """Something planned.

    Parameters
    ----------
    kind : int
        :data:`CALL`, :data:`ARRIVAL` and so on.
    plane : int
        Of an arrival, or the one that has room.

    Attributes
    ----------
    time, order : int
        When, in picoseconds, and what breaks ties.
    timer : bool
        It alone keeps the NIC from resting.
    callback, argument
        Of a :data:`CALL`.
    """

    __slots__ = ("argument", "callback", "kind", "order", "plane", "time", "timer")

    def __init__(self, kind: i64, plane: i64 = 0) -> None:
        self.kind: i64 = kind
        self.plane: i64 = plane
        self.time: i64 = 0
        self.order: i64 = 0
        self.timer: bool = False
        self.callback: Callable[[Any], None] | None = None
        self.argument: Any = None


class Agenda:
    """A heap of calls, which are used again.

    Attributes
    ----------
    calls : int
        Calls made so far.
    active : int
        Calls planned that are not timers.
    count : int
        Calls planned.
    """

    __slots__ = ("_items", "_sequence", "_spare", "active", "calls", "count")

    def __init__(self) -> None:
        # Places behind the last call hold calls that were there before.
        self._items: vec[Call] = vec[Call]()
        self._spare: list[Call] = []
        self._sequence: i64 = 0
        self.count: i64 = 0
        self.calls: i64 = 0
        self.active: i64 = 0

    @property
    def next_ps(self) -> int:
        """Time of the next call, NEVER when there is none."""
        return int(self._items[0].time) if self.count else NEVER

    def first(self) -> Call:
        """The next call; there must be one."""
        return self._items[0]

    def enter(self, time_ps: i64, order: i64, callback: Callable[[Any], None], argument: Any) -> None:
        """Call back at a time; calls of one time and order come in the order of entering."""
        call = self._spare.pop() if self._spare else Call(CALL)
        call.kind = CALL
        call.callback = callback
        call.argument = argument
        self.plan(call, time_ps, order)

    def enter_answer(self, time_ps: i64, kind: i64) -> None:
        """Plan an answer of the memory: :data:`PLACEMENT` or :data:`ENTRY`."""
        call = self._spare.pop() if self._spare else Call(kind)
        call.kind = kind
        self.plan(call, time_ps, INSIDE)

    def plan(self, call: Call, time_ps: i64, order: i64) -> None:
        """The same of a call that its owner keeps; it must not be planned already."""
        self._sequence += 1
        call.timer = order == TIMER
        if order != TIMER:
            self.active += 1
        key: i64 = order << _SEQUENCE_BITS | self._sequence
        call.time = time_ps
        call.order = key
        at: i64 = self.count
        if at == len(self._items):
            self._items = append(self._items, call)
        self.count = at + 1
        items = self._items
        while at:
            above: i64 = (at - 1) >> 1
            other = items[above]
            if other.time < time_ps or (other.time == time_ps and other.order < key):
                break
            items[at] = other
            at = above
        items[at] = call

    def again(self, time_ps: i64) -> None:
        """The next call is carried out, and planned once more for a later time with the same order."""
        self.calls += 1
        self._items[0].time = time_ps
        self._sink()

    def take(self) -> Call:
        """Remove the next call and return it; :meth:`free` it when it is carried out and nobody keeps it."""
        items = self._items
        call = items[0]
        self.calls += 1
        if not call.timer:
            self.active -= 1
        count: i64 = self.count - 1
        self.count = count
        if count:
            items[0] = items[count]
            self._sink()
        return call

    def free(self, call: Call) -> None:
        """Use a call again that was entered with :meth:`enter` or :meth:`enter_answer`."""
        self._spare.append(call)

    def _sink(self) -> None:
        """Put the first call to its place."""
        items = self._items
        call = items[0]
        time: i64 = call.time
        order: i64 = call.order
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
        items[at] = call
