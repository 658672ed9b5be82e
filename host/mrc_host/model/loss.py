"""Packets in the order of their transmission, and which of them a later one proves lost.

Source: profile.md 4 (RACK per plane and class, constant work per packet); protocol.md 7-Q19.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

__all__ = ["NOBODY", "ProvenLists"]

NOBODY: Final = -1
"""No slot, or no list."""


class ProvenLists:
    """Lists of outstanding packets in transmit order, each with the newest transmission proven to arrive.

    A packet is known by its slot (PSN modulo the ring) and is in at most one list. ``order`` values grow
    along a list: transmit times for RACK, sequence numbers for a count of packets. A packet is overdue when
    one sent at least ``window`` after it is proven. All operations take constant time.

    Parameters
    ----------
    lists, ring : int
        Number of lists and of slots.
    window : int
        In the unit of ``order``, at least 1.
    """

    __slots__ = ("_head", "_newer", "_newest", "_older", "_order", "_tail", "_where", "window")

    def __init__(self, lists: int, ring: int, window: i64) -> None:
        self.window: i64 = window
        self._head: vec[i64] = vec[i64]([NOBODY] * lists)
        self._tail: vec[i64] = vec[i64]([NOBODY] * lists)
        self._newest: vec[i64] = vec[i64]([-1] * lists)
        self._newer: vec[i64] = vec[i64]([NOBODY] * ring)
        self._older: vec[i64] = vec[i64]([NOBODY] * ring)
        self._order: vec[i64] = vec[i64]([0] * ring)
        self._where: vec[i64] = vec[i64]([NOBODY] * ring)

    def append(self, slot: i64, number: i64, order: i64) -> None:
        """A packet in no list was sent: it becomes the last of a list."""
        tail: i64 = self._tail[number]
        self._older[slot] = tail
        self._newer[slot] = NOBODY
        self._order[slot] = order
        self._where[slot] = number
        if tail == NOBODY:
            self._head[number] = slot
        else:
            self._newer[tail] = slot
        self._tail[number] = slot

    def remove(self, slot: i64) -> i64:
        """Take a packet out of its list and return that list; :data:`NOBODY` when it is in none."""
        number: i64 = self._where[slot]
        if number == NOBODY:
            return NOBODY
        older: i64 = self._older[slot]
        newer: i64 = self._newer[slot]
        if older == NOBODY:
            self._head[number] = newer
        else:
            self._newer[older] = newer
        if newer == NOBODY:
            self._tail[number] = older
        else:
            self._older[newer] = older
        self._where[slot] = NOBODY
        return number

    def prove(self, slot: i64) -> i64:
        """A packet arrived: take it out, and let it prove what its list lost. Returns the list as above."""
        number: i64 = self.remove(slot)
        if number != NOBODY and self._order[slot] > self._newest[number]:
            self._newest[number] = self._order[slot]
        return number

    def overdue(self, number: i64) -> i64:
        """The oldest packet of a list if it is overdue, otherwise :data:`NOBODY`."""
        head: i64 = self._head[number]
        if head != NOBODY and self._order[head] + self.window <= self._newest[number]:
            return head
        return NOBODY

    def newest_of(self, number: i64) -> i64:
        """The newest transmission of a list that is proven, −1 for none."""
        return self._newest[number]

    @property
    def newest(self) -> i64:
        """The newest transmission that is proven in any list."""
        newest: i64 = -1
        for order in self._newest:
            if order > newest:
                newest = order
        return newest

    def overtaken(self, margin: i64) -> bool:
        """Whether the oldest packet of any list was sent at least ``margin`` before the newest that is proven
        in any list.
        """
        limit: i64 = self.newest - margin
        for head in self._head:
            if head != NOBODY and self._order[head] <= limit:
                return True
        return False

    def holds(self, slot: i64) -> bool:
        """Whether a packet is in a list."""
        return self._where[slot] != NOBODY
