"""The retransmission timer of a QP.

Source: profile.md 4 (timeout); protocol.md 1.20, 7-Q11.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

__all__ = ["NO_LIMIT", "RetransmissionTimer", "interval_ps"]

UNIT_PS: Final = 1_024_000
"""1.024 µs."""

LARGEST_EXPONENT: Final = 24
"""Longest interval: 1.024 µs × 2^24 = 17.18 s."""

NO_LIMIT: Final = 25
"""Value of exponential_count that means: never give up."""


def interval_ps(timeout: int, linear_count: int, attempt: int) -> int:
    """Time until attempt k = ``attempt`` + 1: T = 1.024 µs × 2^timeout up to linear_count, then doubling."""
    over = attempt + 1 - linear_count if attempt >= linear_count else 0
    return UNIT_PS << min(timeout + over, LARGEST_EXPONENT)


class RetransmissionTimer:
    """Deadline and attempts of one QP.

    Parameters
    ----------
    timeout, linear_count, exponential_count : int
        As in the table QP_SEND; timeout 0 means no timer.

    Attributes
    ----------
    deadline_ps : int
        When it expires, −1 while it is stopped.
    alarm_ps : int
        Time of the call that is scheduled to look at the deadline, −1 for none.
    attempt : int
        Timeouts since the last progress.
    """

    __slots__ = ("_exponential_count", "_linear_count", "_timeout", "alarm_ps", "attempt", "deadline_ps")

    def __init__(self) -> None:
        self._timeout: int = 0
        self._linear_count: int = 0
        self._exponential_count: int = 0
        self.deadline_ps: i64 = -1
        self.alarm_ps: i64 = -1
        self.attempt: int = 0

    def configure(self, timeout: int, linear_count: int, exponential_count: int) -> None:
        """Take new parameters; a running interval stays as it is."""
        self._timeout = timeout
        self._linear_count = linear_count
        self._exponential_count = exponential_count

    @property
    def exhausted(self) -> bool:
        """Whether one more timeout ends the QP."""
        limit = self._exponential_count
        return limit != NO_LIMIT and self.attempt >= self._linear_count + limit

    def start(self, now_ps: i64) -> None:
        """Begin an interval for the current attempt."""
        if self._timeout:
            self.deadline_ps = now_ps + interval_ps(self._timeout, self._linear_count, self.attempt)

    def stop(self) -> None:
        """Nothing is waited for."""
        self.deadline_ps = -1

    def progress(self, now_ps: i64) -> None:
        """The peer proved progress: attempts begin from 0 and the interval from now."""
        self.attempt = 0
        self.start(now_ps)
