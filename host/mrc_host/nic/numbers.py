"""Numbers of objects in the engine's tables."""

from __future__ import annotations

from mrc_host.nic.verbs_error import VerbsError

__all__ = ["NumberPool"]


class NumberPool:
    """Hands out the numbers from 0 to ``count`` − 1, the lowest free one first.

    Parameters
    ----------
    what : str
        Name of the limit in messages, such as ``device.queue_pairs``.
    count : int
        How many there are.
    """

    def __init__(self, what: str, count: int) -> None:
        self._what = what
        self._count = count
        self._used: set[int] = set()

    def take(self) -> int:
        """Return a free number.

        Raises
        ------
        VerbsError
            ENOMEM when all are in use.
        """
        for number in range(self._count):
            if number not in self._used:
                self._used.add(number)
                return number
        raise VerbsError("ENOMEM", self._what, self._count + 1, f"at most {self._count} at a time")

    def release(self, number: int) -> None:
        """Give a number back."""
        self._used.discard(number)
