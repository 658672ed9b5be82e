"""Order among messages of different hosts: phases with barriers, and messages that wait for others.

A phase begins at all hosts at once: they compute for its time, then its messages may be posted. When the last
message of a phase is complete, the software of all hosts learns of it one host latency later, as through a
barrier that costs nothing else, and the next phase begins.

Source: experiments.md, E15 (a step lasts as long as its slowest transfer); design.md 5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mrc_host.experiment.workload import Flow, PlannedMessage

__all__ = ["PhaseTimes", "Phases"]


@dataclass(slots=True)
class PhaseTimes:
    """When a phase happened; times in picoseconds, None while it has not.

    Parameters
    ----------
    begun_ps : int
        Hosts began to compute.
    opened_ps : int
        Its messages may be posted.
    closed_ps : int
        Its last message is complete.
    """

    begun_ps: int | None = None
    opened_ps: int | None = None
    closed_ps: int | None = None


class Phases:
    """What has happened to the messages of a run, as far as others wait for it.

    Parameters
    ----------
    flows : list of Flow
        All flows of the run.
    computing_ps : sequence of int
        Time of computing before each phase.
    latency_ps : int
        From the end of a phase to the begin of the next one.

    Attributes
    ----------
    times : list of PhaseTimes
        By phase.
    """

    def __init__(self, flows: list[Flow], computing_ps: tuple[int, ...], latency_ps: int) -> None:
        last = max((message.phase for flow in flows for message in flow.plan), default=0)
        self.times = [PhaseTimes() for _ in range(last + 1)]
        self._computing = (*computing_ps, *[0] * (last + 1 - len(computing_ps)))
        self._latency_ps = latency_ps
        self._left = [0] * (last + 1)
        for flow in flows:
            for message in flow.plan:
                self._left[message.phase] += 1
        self._arrived: set[int] = set()
        self._openers: list[Callable[[int], None]] = []

    def begin(self, time_ps: int, opener: Callable[[int], None]) -> None:
        """A host begins its part of the run.

        Parameters
        ----------
        time_ps : int
            Start of the run.
        opener : callable
            Called with a time at which a phase opens at all hosts; not for one that is open at the start.
        """
        self._openers.append(opener)
        first = self.times[0]
        if first.begun_ps is None:
            first.begun_ps = time_ps
            first.opened_ps = time_ps + self._computing[0]
        if self._computing[0]:
            opener(time_ps + self._computing[0])

    def allows(self, message: PlannedMessage, time_ps: int) -> bool:
        """Whether nothing that a message has to wait for is missing."""
        opened = self.times[message.phase].opened_ps
        if opened is None or opened > time_ps:
            return False
        return message.needs < 0 or message.needs in self._arrived

    def arrived(self, message: PlannedMessage) -> None:
        """A message is known to be complete where it was sent to."""
        if message.key >= 0:
            self._arrived.add(message.key)

    def completed(self, message: PlannedMessage, time_ps: int) -> None:
        """A message is complete: the last one of a phase opens the next phase."""
        phase = message.phase
        self._left[phase] -= 1
        while not self._left[phase]:
            self.times[phase].closed_ps = time_ps
            phase += 1
            if phase == len(self.times):
                return
            begun = time_ps + self._latency_ps
            self.times[phase].begun_ps = begun
            opened = begun + self._computing[phase]
            self.times[phase].opened_ps = opened
            for opener in self._openers:
                opener(opened)
            time_ps = opened
