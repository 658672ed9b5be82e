"""Immediates of one QP that wait for the messages before theirs, and the receive requests they complete.

Source: protocol.md 3.3 and 1.5; profile.md 7.
"""

from __future__ import annotations

from mrc_rtl import wire

__all__ = ["Delivery", "Immediates"]

_RQMSN = 0xFFFF
_PSN = wire.PSN_MASK
_HALF = 1 << (wire.PSN_BITS - 1)


class Delivery:
    """An immediate whose message is complete, with the slot of the receive request it takes."""

    __slots__ = ("immediate", "length", "message_number", "slot")

    def __init__(self, immediate: int, length: int, message_number: int, slot: int) -> None:
        self.immediate = immediate
        self.length = length
        self.message_number = message_number
        self.slot = slot


class _Stashed:
    __slots__ = ("immediate", "length", "message_number", "plane", "psn")

    def __init__(self, psn: int, plane: int, message_number: int, immediate: int, length: int) -> None:
        self.psn = psn
        self.plane = plane
        self.message_number = message_number
        self.immediate = immediate
        self.length = length


class Immediates:
    """The stash of one QP.

    Parameters
    ----------
    depth : int
        Receive requests that can be posted.

    Attributes
    ----------
    limit : int
        Immediates that may be stashed.
    failing_psn, failing_plane : int
        Of the message that could not be kept or delivered, after :meth:`stash` or :meth:`advance` refused.
    """

    __slots__ = ("_depth", "_next", "_posted", "_stash", "_used", "failing_plane", "failing_psn", "limit")

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._stash: dict[int, _Stashed] = {}
        self._next: int = 0
        self._posted: int = 0
        self._used: int = 0
        self.limit: int = 32
        self.failing_psn: int = 0
        self.failing_plane: int = 0

    @property
    def waits(self) -> bool:
        """Whether an immediate is stashed."""
        return len(self._stash) != 0

    def start(self, limit: int, forget_requests: bool) -> None:
        """Begin anew; posted requests stay unless they are to be forgotten."""
        self._stash.clear()
        self._next = 0
        self.limit = limit
        if forget_requests:
            self._posted = self._used = 0

    def post(self, count: int) -> None:
        """Receive requests were added; more than the queue holds are ignored."""
        if self._posted - self._used + count <= self._depth:
            self._posted += count

    def stash(
        self, number: int, psn: int, plane: int, message_number: int, immediate: int, length: int
    ) -> bool:
        """Keep the immediate of a claimed packet until its turn.

        Parameters
        ----------
        number : int
            METH.RQMSN.
        psn, plane : int
            Of the packet.
        message_number : int
            METH.MSN.
        immediate, length : int
            ImmDt, and the message's length.

        Returns
        -------
        bool
            False when the peer has more of them in flight than it may, or repeats a number.
        """
        ahead = number - self._next & _RQMSN
        if ahead >= self.limit or number in self._stash:
            self.failing_psn, self.failing_plane = psn, plane
            return False
        self._stash[number] = _Stashed(psn, plane, message_number, immediate, length)
        return True

    def advance(self, expected: int, found: list[Delivery]) -> bool:
        """Append what may be delivered now that everything below the expected PSN is placed.

        False when a message is complete and no receive is posted for it; there is no RNR.
        """
        while True:
            head = self._stash.get(self._next)
            if head is None or head.psn - expected & _PSN < _HALF:
                return True
            if self._posted == self._used:
                self.failing_psn, self.failing_plane = head.psn, head.plane
                return False
            found.append(Delivery(head.immediate, head.length, head.message_number, self._used % self._depth))
            del self._stash[self._next]
            self._used += 1
            self._next = self._next + 1 & _RQMSN
