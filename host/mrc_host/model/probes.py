"""Reliability probes: which paths that were given up are asked when, and what their answers say.

Every ASSUMED_BAD EV of a QP (and one that a floor keeps in use) is probed on itself: first one base RTT after
it went bad, then at intervals that double from 64 µs to 10 ms while nothing answers and drop back at the
first answer. Enough answers in a row without a mark, each within a bound of the round-trip time, make the EV
GOOD; a marked answer counts as alive and restarts the count. A budget bounds the probes of a NIC to a share
of its packet rate.

Source: protocol.md 2.2, 7-Q17 and Q18; profile.md 4 and 10.
"""

from __future__ import annotations

from typing import Final

from mrc_host.model.options import ModelOptions

__all__ = ["BadPath", "ProbeBudget", "ProbeNumbers"]

_BURST: Final = 16
_PACKET_OVERHEAD: Final = 166


class ProbeBudget:
    """Earliest times for probes, so that they stay within a share of the packet rate (16 may come at once).

    Parameters
    ----------
    packet_ps : int
        Time of a full packet on all planes together.
    permille : int
        Share in 1/1000.
    """

    __slots__ = ("_spacing_ps", "_used_ps")

    def __init__(self, packet_ps: int, permille: int) -> None:
        self._spacing_ps: int = max(1, packet_ps * 1000 // permille)
        self._used_ps: int = 0

    @classmethod
    def for_line(cls, mtu: int, planes: int, byte_ps: int, options: ModelOptions) -> ProbeBudget:
        """The budget of a NIC whose planes need ``byte_ps`` for a byte."""
        return cls((mtu + _PACKET_OVERHEAD) * byte_ps // planes, options.probe_budget_permille)

    def wait_ps(self, now_ps: int) -> int:
        """0 when a probe may leave now (and it is booked), otherwise the time to wait."""
        used = max(self._used_ps, now_ps)
        wait = used - now_ps - (_BURST - 1) * self._spacing_ps
        if wait > 0:
            return wait
        self._used_ps = used + self._spacing_ps
        return 0


class BadPath:
    """What is known about one EV of a QP that is probed.

    Parameters
    ----------
    qp, index : int
        QP and EV index.
    options : ModelOptions

    Attributes
    ----------
    number : int
        Id of the probe that is out, −1 for none.
    sent_ps, due_ps : int
        When it left, and when the path is looked at next.
    """

    __slots__ = (
        "_interval_ps",
        "_longest_ps",
        "_needed",
        "_shortest_ps",
        "_successes",
        "due_ps",
        "index",
        "number",
        "qp",
        "sent_ps",
    )

    def __init__(self, qp: int, index: int, options: ModelOptions) -> None:
        self.qp: int = qp
        self.index: int = index
        self._shortest_ps: int = options.probe_interval_min_ns * 1000
        self._longest_ps: int = options.probe_interval_max_ns * 1000
        self._needed: int = options.probe_successes
        self._interval_ps: int = self._shortest_ps
        self._successes: int = 0
        self.number: int = -1
        self.sent_ps: int = -1
        self.due_ps: int = -1

    def answered(self, marked: bool) -> bool:
        """The probe came back in time. True when the path is good now."""
        self.number = -1
        self._interval_ps = self._shortest_ps
        self._successes = 0 if marked else self._successes + 1
        return self._successes >= self._needed

    def lost(self) -> None:
        """It did not."""
        self.number = -1
        self._successes = 0
        self._interval_ps = min(2 * self._interval_ps, self._longest_ps)

    def next_ps(self) -> int:
        """When the next probe is due, from the last one on."""
        return self.sent_ps + self._interval_ps


class ProbeNumbers:
    """Ids of the probes of a QP that are out: 16 bits on the wire, reused last of all.

    An id stands for the EV that is asked, or for the tail of what was sent.
    """

    __slots__ = ("_next", "_open")

    def __init__(self) -> None:
        self._next: int = 0
        self._open: dict[int, tuple[int, int]] = {}

    def take(self, index: int, time_ps: int) -> int:
        """A new id for a probe on an EV index that leaves at a time; for one of the tail (index −1) it is the
        time up to which its answer judges packets.
        """
        number = self._next
        self._next = number + 1 & 0xFFFF
        self._open[number] = (index, time_ps)
        return number

    def find(self, number: int) -> tuple[int, int] | None:
        """What :meth:`take` was given for a probe that is out, which is then out no more."""
        return self._open.pop(number, None)
