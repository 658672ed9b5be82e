"""Runs NICs, the fabric between them and the software on top in windows of simulated time.

A window is no longer than the shortest host link (no frame sent in a window arrives in it) and the host
latency (nothing software does in a window takes effect in it). So within a window every NIC can run on its
own, in a thread, and the result depends neither on the length of the windows nor on the number of threads:

1. the fabric advances to the end of the window, which yields all frames that arrive in it;
2. the NICs run to the end of the window;
3. their frames enter the fabric in order of (time, port, sequence);
4. completions, events and timed actions are told to the software in order of (time, host, kind, number).

When all NICs rest and nothing is under way, the run jumps to the next thing that happens.

Source: design.md 5.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Protocol

from mypy_extensions import mypyc_attr

from mrc_host.experiment.application import COMPLETION, EVENT, Host
from mrc_host.fabric.model import Arrival, Fabric
from mrc_host.nic.base import NEVER, Frame, Nic, Outputs, RegisterRead, TraceRecord, Watch

__all__ = ["PARTS", "FabricLike", "Lockstep", "LockstepResult", "Observer"]

START_GRID_PS = 1_000_000

PARTS = {
    "nics": "NICs, between the frames they receive and those they send",
    "fabric": "fabric, handing packets to NICs and logging them",
    "handover": "packets from NICs into the fabric, logged there, and completions",
    "software": "applications on the hosts",
}
"""Parts of a run."""


class FabricLike(Protocol):
    """What a run needs of a fabric; :class:`mrc_host.fabric.model.Fabric` is one."""

    @property
    def lookahead_ps(self) -> int:
        """Longest safe window."""

    def transmit(self, port: int, time_of_last_bit_ps: int, frame: bytes) -> None:
        """Take a frame from NIC port host · planes + plane."""

    def advance(self, until_ps: int) -> list[Arrival]:
        """Simulate to a time; return the frames that reach NICs before it."""

    def next_arrival_bound_ps(self) -> int:
        """Time before which no frame reaches a NIC unless one is sent first."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Observer:
    """Sees what happens in a run, window by window; the base class ignores it."""

    def started(self, start_ps: int, limit_ps: int) -> None:
        """The run begins at a time, before which nothing happens, and ends at another at the latest."""

    def transmitted(self, host: int, frames: Sequence[Frame]) -> None:
        """Frames that left a NIC."""

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Frames that reach NICs."""

    def watched(self, host: int, watches: Sequence[Watch]) -> None:
        """Writes of a NIC into watched ranges of its memory."""

    def traced(self, host: int, records: Sequence[TraceRecord]) -> None:
        """Trace records of a NIC."""

    def advanced(self, time_ps: int) -> None:
        """All that happens before this time has been seen."""


@dataclass(frozen=True)
class LockstepResult:
    """How a run ended.

    Parameters
    ----------
    start_ps, end_ps : int
        Simulated time it covers.
    finished : bool
        All applications were done.
    interrupted : bool
        It was stopped from the keyboard; everything before ``end_ps`` is valid.
    windows : int
        Windows that were simulated.
    jumped_ps : int
        Simulated time that was jumped over.
    wall_seconds : float
    processor_seconds : dict of str to float
        Processor time of each of :data:`PARTS`.
    """

    start_ps: int
    end_ps: int
    finished: bool
    interrupted: bool
    windows: int
    jumped_ps: int
    wall_seconds: float
    processor_seconds: dict[str, float]


class Lockstep:
    """The runner.

    Parameters
    ----------
    hosts : sequence of Host
        Host h is NIC h of the fabric; its device is set up already.
    fabric : FabricLike
        What connects them.
    window_ps : int, optional
        Length of a window, by default the longest that is allowed.
    workers : int
        Threads that run NICs.
    drain_ps : int, optional
        How long the run goes on after the last application was done, at least the longest window.
    observer : Observer, optional
        Sees frames and trace records.
    packets : bool
        NICs that can hand packets to the fabric as objects (``Nic.carry_packets``). Results are the same,
        but the observer is not told of frames that are objects, nor of arrivals.

    Raises
    ------
    ValueError
        A parameter is out of range.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        fabric: FabricLike,
        *,
        window_ps: int | None = None,
        workers: int = 1,
        drain_ps: int = 0,
        observer: Observer | None = None,
        packets: bool = False,
    ) -> None:
        longest = min([fabric.lookahead_ps, *(host.latency_ps for host in hosts)])
        self._window_ps = longest if window_ps is None else window_ps
        if not 1 <= self._window_ps <= longest:
            raise ValueError(
                f"window_ps must be between 1 and {longest} (shortest host link and host latency), "
                f"got {window_ps}"
            )
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self._hosts = list(hosts)
        self._nics: list[Nic] = [host.nic for host in self._hosts]
        self._fabric = fabric
        self._workers = min(workers, len(self._hosts))
        self._drain_ps = max(drain_ps, longest)
        self._observer = observer or Observer()
        self._packets: Fabric | None = None
        if packets:
            if not isinstance(fabric, Fabric):
                raise ValueError("packets need the model of the fabric, got another one")
            self._packets = fabric
            for host in self._hosts:
                host.nic.carry_packets()
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._windows = 0
        self._jumped_ps = 0
        self._done_ps: int | None = None
        self._undone = list(self._hosts)

    def run(self, limit_ps: int) -> LockstepResult:
        """Run until all applications are done, at most for a time.

        Parameters
        ----------
        limit_ps : int
            Longest simulated duration.
        """
        started = time.perf_counter()
        first = max(host.nic.time_ps for host in self._hosts)
        start = now = -(-first // START_GRID_PS) * START_GRID_PS
        interrupted = False
        self._observer.started(start, start + limit_ps)
        self._fabric.advance(start)
        self._take(self._run_nics(None, start))
        for host in self._hosts:
            host.schedule(start, partial(host.application.start, host=host))
        self._act(start + 1)
        pool = ThreadPoolExecutor(self._workers) if self._workers > 1 else None
        try:
            while now < (stop := self._stop(start + limit_ps)):
                end = min(now + self._window_ps, stop)
                quiet_until = min(self._next_time(now), stop)
                if quiet_until > end:
                    self._jumped_ps += quiet_until - now
                    end = quiet_until
                clock = time.process_time()
                self._deliver(end)
                clock = self._spent("fabric", clock)
                outputs = self._run_nics(pool, end)
                clock = self._spent("nics", clock)
                self._take(outputs)
                clock = self._spent("handover", clock)
                self._act(end)
                self._spent("software", clock)
                self._windows += 1
                now = end
                self._observer.advanced(now)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            if pool is not None:
                pool.shutdown()
        return LockstepResult(
            start_ps=start,
            end_ps=now,
            finished=self._done_ps is not None,
            interrupted=interrupted,
            windows=self._windows,
            jumped_ps=self._jumped_ps,
            wall_seconds=time.perf_counter() - started,
            processor_seconds=self._seconds,
        )

    def _spent(self, part: str, since: float) -> float:
        """Count processor time for a part of the run; returns the time now."""
        now = time.process_time()
        self._seconds[part] += now - since
        return now

    def _deliver(self, until_ps: int) -> None:
        """Let the fabric advance, and hand over what reaches NICs before a time."""
        if self._packets is not None:
            nics = self._nics
            for packet in self._packets.advance_packets(until_ps):
                came_by = packet.came_by
                assert came_by is not None
                nics[came_by.host].deliver_packet(came_by.plane, packet.time_ps, packet, came_by.macs)
            return
        arrivals = self._fabric.advance(until_ps)
        for arrival in arrivals:
            self._hosts[arrival.nic].nic.deliver(arrival.port, arrival.time_first_bit_ps, arrival.frame)
        self._observer.arrived(arrivals)

    def _stop(self, limit_ps: int) -> int:
        if self._done_ps is None:
            return limit_ps
        return min(limit_ps, self._done_ps + self._drain_ps)

    def _next_time(self, now: int) -> int:
        """Return the time before which nothing happens at all."""
        next_time = self._fabric.next_arrival_bound_ps()
        for host in self._hosts:
            if next_time <= now + self._window_ps:
                break
            next_time = min(next_time, host.nic.next_activity_ps, host.next_time_ps or NEVER)
        return next_time

    def _run_nics(self, pool: ThreadPoolExecutor | None, until_ps: int) -> list[Outputs]:
        if pool is None:
            return [host.nic.run(until_ps) for host in self._hosts]
        running = [pool.submit(host.nic.run, until_ps) for host in self._hosts]
        return [job.result() for job in running]

    def _take(self, outputs: Sequence[Outputs]) -> None:
        """Hand frames to the fabric, and put completions and events on the hosts' agendas."""
        frames: list[tuple[int, int, int, bytes]] = []
        for number, (host, output) in enumerate(zip(self._hosts, outputs)):
            planes = host.nic.config.planes
            frames += [
                (frame.time_last_bit_ps, number * planes + frame.port, frame.sequence, frame.data)
                for frame in output.frames
            ]
            if output.frames:
                self._observer.transmitted(number, output.frames)
            if output.trace:
                self._observer.traced(number, output.trace)
            if output.watches:
                self._observer.watched(number, output.watches)
            for watch in output.watches:
                queue = host.context.completion_queues.get(watch.tag)
                count = queue.entries_written(watch.address, watch.length) if queue else 0
                if count:
                    call = partial(host.take_completions, number=watch.tag, count=count)
                    host.enter(watch.time_ps, COMPLETION, call)
            for time_ps in output.interrupts:
                host.enter(time_ps, EVENT, partial(self._read_event, host))
            for read in output.reads:
                host.enter(read.time_ps, EVENT, partial(self._take_read, host, read))
        frames.sort(key=lambda frame: frame[:3])
        for time_ps, port, _, data in frames:
            self._fabric.transmit(port, time_ps, data)
        if self._packets is not None:
            self._take_packets(self._packets, outputs)

    def _take_packets(self, fabric: Fabric, outputs: Sequence[Outputs]) -> None:
        """Hand packets that are objects to the fabric; ports never mix them with frames."""
        for number, (host, output) in enumerate(zip(self._hosts, outputs)):
            first = number * host.nic.config.planes
            for packet in output.packets:
                fabric.transmit_packet(first + packet.port, packet.time_ps, packet)

    def _read_event(self, host: Host, time_ps: int) -> None:
        host.context.driver.request_event()

    def _take_read(self, host: Host, read: RegisterRead, time_ps: int) -> None:
        events = host.context.take_reads([read])
        host.take_events(time_ps, events)
        # Until the queue is empty; then the next event interrupts again.
        if host.context.driver.shows_event(read):
            host.context.driver.request_event()

    def _act(self, until_ps: int) -> None:
        """Make all calls on the agendas before a time, in order of (time, host)."""
        hosts = self._hosts
        waiting = [
            (next_time, number)
            for number, host in enumerate(hosts)
            if (next_time := host.next_time_ps) is not None and next_time < until_ps
        ]
        heapify(waiting)
        while waiting:
            time_ps, number = heappop(waiting)
            hosts[number].act()
            next_time = hosts[number].next_time_ps
            if next_time is not None and next_time < until_ps:
                heappush(waiting, (next_time, number))
            self._note_done(time_ps)

    def _note_done(self, time_ps: int) -> None:
        """See whether all applications are done now; one that is done stays so."""
        undone = self._undone
        while undone and undone[-1].application.done:
            undone.pop()
        if self._done_ps is None and not undone:
            self._done_ps = time_ps
