"""Software on the hosts of a simulation: it acts when something happened, a host latency later.

Source: design.md 5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from heapq import heappop, heappush

from mrc_host.nic.device import AsyncEvent, CompletionQueue, Context, WorkCompletion

__all__ = ["Application", "Host"]

COMPLETION, EVENT, ACTION = range(3)


class Application(ABC):
    """What runs on a host.

    Its methods are called in order of simulated time. What they ask of the device API takes effect at the
    time of the call plus the host's latency.
    """

    @abstractmethod
    def start(self, time_ps: int, host: Host) -> None:
        """Begin: called once, at the start of the run."""

    @abstractmethod
    def on_completion(self, time_ps: int, queue: CompletionQueue, completion: WorkCompletion) -> None:
        """A work request has completed."""

    @abstractmethod
    def on_event(self, time_ps: int, event: AsyncEvent) -> None:
        """A QP went to ERROR, or lost a completion."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the application has nothing left to do; the run ends when all have."""


class Host:
    """A NIC with its device context and the application that uses it.

    Parameters
    ----------
    context : Context
        The open device.
    application : Application
        What runs here.
    latency_ps : int
        From a completion in memory to the first register write it causes.
    """

    def __init__(self, context: Context, application: Application, latency_ps: int) -> None:
        if latency_ps < 1:
            raise ValueError(f"latency_ps must be at least 1, got {latency_ps}")
        self.context = context
        self.nic = context.nic
        self.application = application
        self.latency_ps = latency_ps
        # What waits to be told to the application: (time, kind, number, call). Completions come before
        # events before actions of one time; numbers count within a kind, so that the order does not depend
        # on when an entry was made.
        self._agenda: list[tuple[int, int, int, Callable[[int], None]]] = []
        self._numbers = [0, 0, 0]
        self._now_ps = 0

    def schedule(self, time_ps: int, action: Callable[[int], None]) -> None:
        """Call ``action(time_ps)`` at a time, not before the present one.

        Raises
        ------
        ValueError
            The time has passed.
        """
        if time_ps < self._now_ps:
            raise ValueError(f"time_ps must be at least {self._now_ps}, got {time_ps}")
        self.enter(time_ps, ACTION, action)

    def enter(self, time_ps: int, kind: int, call: Callable[[int], None]) -> None:
        """Put a call on the agenda."""
        self._numbers[kind] += 1
        heappush(self._agenda, (time_ps, kind, self._numbers[kind], call))

    @property
    def next_time_ps(self) -> int | None:
        """Time of the first call on the agenda."""
        return self._agenda[0][0] if self._agenda else None

    def act(self) -> None:
        """Make the first call on the agenda; what it writes takes effect after the host's latency."""
        time_ps, _, _, call = heappop(self._agenda)
        self._now_ps = time_ps
        with self.context.driver.at(time_ps + self.latency_ps):
            call(time_ps)
            for queue in list(self.context.completion_queues.values()):
                for completion in queue.poll_software():
                    self.application.on_completion(time_ps, queue, completion)

    def take_completions(self, time_ps: int, number: int, count: int) -> None:
        """Read completions that were written at this time, and tell the application."""
        queue = self.context.completion_queues.get(number)
        if queue is None:
            return
        for completion in queue.poll(count):
            self.application.on_completion(time_ps, queue, completion)

    def take_events(self, time_ps: int, events: list[AsyncEvent]) -> None:
        """Tell the application about events."""
        for event in events:
            self.application.on_event(time_ps, event)
