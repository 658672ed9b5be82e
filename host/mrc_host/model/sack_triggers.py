"""When a received packet makes a SACK due.

The rules are those of the gateware's block of the same name: a packet that is marked, a retransmission, a
duplicate, or asks for an answer triggers at once, also one that ends the disorder after one that asked.
Otherwise bytes are counted, at least 1024 a packet, and over the threshold the packet of the plane whose turn
it is triggers; a plane that does not come in time is passed over and owed an echo, so that the echoes cover
all planes in use for any threshold.

Source: protocol.md 3.4 and 7 (Q6, Q24), profile.md 5.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

__all__ = ["PLAIN_LIMIT", "QUEUE_DEPTH", "SackTriggers"]

QUEUE_DEPTH: Final = 16
"""Answers of a NIC that wait to be sent; a SACK beyond them is dropped and counted."""
PLAIN_LIMIT: Final = 8
"""Beyond this many only triggers are taken that nothing else makes good."""
_LEAST_BYTES: Final = 1024


class SackTriggers:
    """The count of one QP.

    Parameters
    ----------
    planes : int

    Attributes
    ----------
    wants_ack : bool
        A transport ACK is due with the next SACK.
    strong : bool
        The packet last added triggers whatever waits.
    """

    __slots__ = ("_asked", "_count", "_last", "_owed", "_planes", "_seen", "_turn", "strong", "wants_ack")

    def __init__(self, planes: i64) -> None:
        self._planes: i64 = planes
        self.start()

    def start(self) -> None:
        """Begin anew."""
        self._count: i64 = 0
        self._seen: i64 = 0
        self._last: i64 = 0
        self._turn: i64 = 0
        self._owed: bool = False
        self._asked: bool = False
        self.wants_ack: bool = False
        self.strong: bool = False

    def add_placed(
        self, plane: i64, length: i64, urgent: bool, asks: bool, advanced: bool, drained: bool, threshold: i64
    ) -> bool:
        """A packet was placed; returns whether it triggers.

        Parameters
        ----------
        plane, length : int
        urgent : bool
            It is marked or a retransmission.
        asks : bool
            BTH.a.
        advanced : bool
            A message has been completed.
        drained : bool
            Nothing above the cumulative PSN is placed.
        threshold : int
            Bytes.
        """
        had_asked = self._asked
        self._asked = (had_asked or asks) and not drained
        self.strong = urgent or asks or (had_asked and (drained or advanced))
        self._count += length if length > _LEAST_BYTES else _LEAST_BYTES
        self.wants_ack = self.wants_ack or advanced or asks
        self._seen |= 1 << plane
        turn: i64 = self._following()
        self._turn = turn
        count: i64 = self._count
        in_turn = plane == turn and (count > threshold or self._owed)
        return self.strong or in_turn or count > 2 * threshold

    def add_duplicate(self, plane: i64, below: bool, asks: bool) -> None:
        """A duplicate always triggers; one below the expected PSN is also acknowledged."""
        self.strong = True
        self.wants_ack = self.wants_ack or below or asks
        self._seen |= 1 << plane
        self._turn = self._following()

    def take(self, plane: i64) -> bool:
        """The packet's SACK is queued; returns whether a transport ACK goes with it."""
        self._count = 0
        if not self.strong:
            in_turn = plane == self._turn
            if not in_turn and self._owed:
                self._seen &= ~(1 << self._turn)
            if in_turn or self._owed:
                self._last = self._turn
            self._owed = not in_turn
        acknowledged, self.wants_ack = self.wants_ack, False
        return acknowledged

    def _following(self) -> i64:
        """The nearest plane behind the last one that echoed, among those seen."""
        planes: i64 = self._planes
        plane: i64 = self._last
        turns: i64 = 0
        while turns < planes:
            plane = plane + 1 if plane + 1 < planes else 0
            if self._seen >> plane & 1:
                return plane
            turns += 1
        return self._last
