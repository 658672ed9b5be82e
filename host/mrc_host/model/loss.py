"""Packets in the order of their transmission, and which of them a later one proves lost.

Source: profile.md 4 (RACK per plane and class, constant work per packet); protocol.md 7-Q19.
"""

from __future__ import annotations

__all__ = ["NOBODY", "ProvenLists"]

NOBODY = -1
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

    def __init__(self, lists: int, ring: int, window: int) -> None:
        self.window: int = window
        self._head: list[int] = [NOBODY] * lists
        self._tail: list[int] = [NOBODY] * lists
        self._newest: list[int] = [-1] * lists
        self._newer: list[int] = [NOBODY] * ring
        self._older: list[int] = [NOBODY] * ring
        self._order: list[int] = [0] * ring
        self._where: list[int] = [NOBODY] * ring

    def append(self, slot: int, number: int, order: int) -> None:
        """A packet in no list was sent: it becomes the last of a list."""
        tail = self._tail[number]
        self._older[slot] = tail
        self._newer[slot] = NOBODY
        self._order[slot] = order
        self._where[slot] = number
        if tail == NOBODY:
            self._head[number] = slot
        else:
            self._newer[tail] = slot
        self._tail[number] = slot

    def remove(self, slot: int) -> int:
        """Take a packet out of its list and return that list; :data:`NOBODY` when it is in none."""
        number = self._where[slot]
        if number == NOBODY:
            return NOBODY
        older, newer = self._older[slot], self._newer[slot]
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

    def prove(self, slot: int) -> int:
        """A packet arrived: take it out, and let it prove what its list lost. Returns the list as above."""
        number = self.remove(slot)
        if number != NOBODY and self._order[slot] > self._newest[number]:
            self._newest[number] = self._order[slot]
        return number

    def overdue(self, number: int) -> int:
        """The oldest packet of a list if it is overdue, otherwise :data:`NOBODY`."""
        head = self._head[number]
        if head != NOBODY and self._order[head] + self.window <= self._newest[number]:
            return head
        return NOBODY

    def newest_of(self, number: int) -> int:
        """The newest transmission of a list that is proven, −1 for none."""
        return self._newest[number]

    @property
    def newest(self) -> int:
        """The newest transmission that is proven in any list."""
        return max(self._newest)

    def overtaken(self, margin: int) -> bool:
        """Whether the oldest packet of any list was sent at least ``margin`` before the newest that is proven
        in any list.
        """
        limit = self.newest - margin
        for head in self._head:
            if head != NOBODY and self._order[head] <= limit:
                return True
        return False

    def holds(self, slot: int) -> bool:
        """Whether a packet is in a list."""
        return self._where[slot] != NOBODY
