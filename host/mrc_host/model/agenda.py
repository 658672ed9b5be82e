"""Events of a model NIC in order of time, independent of when they were put in."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from mrc_host.nic.base import NEVER

__all__ = ["ACCESS", "INSIDE", "LINK", "RECEIVED", "TIMER", "Agenda"]

# What comes from outside precedes what the NIC planned itself for the same time, in a fixed order. So the
# order does not depend on how the time was cut into windows.
LINK: Final = 0
ACCESS: Final = 1
RECEIVED: Final = 2
"""Frames of port p have the order RECEIVED + p."""
INSIDE: Final = 64
TIMER: Final = 65
"""A NIC rests while nothing but timers are planned."""

_SEQUENCE_BITS: Final = 48


class Agenda:
    """A heap of calls.

    Attributes
    ----------
    calls : int
        Calls made so far.
    active : int
        Calls planned that are not timers.
    """

    __slots__ = ("_heap", "_sequence", "active", "calls")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._sequence: int = 0
        self.calls: int = 0
        self.active: int = 0

    @property
    def next_ps(self) -> int:
        """Time of the next call, NEVER when there is none."""
        return self._heap[0][0] if self._heap else NEVER

    def enter(self, time_ps: int, order: int, callback: Callable[[Any], None], argument: Any) -> None:
        """Call back at a time; calls of one time and order come in the order of entering."""
        self._sequence += 1
        if order != TIMER:
            self.active += 1
        heappush(self._heap, (time_ps, order << _SEQUENCE_BITS | self._sequence, callback, argument))

    def take(self) -> tuple[int, Callable[[Any], None], Any]:
        """Remove the next call and return its time, callback and argument."""
        time_ps, key, callback, argument = heappop(self._heap)
        self.calls += 1
        if key >> _SEQUENCE_BITS != TIMER:
            self.active -= 1
        return time_ps, callback, argument
