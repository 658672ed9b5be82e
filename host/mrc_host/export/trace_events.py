"""Builds a trace in the JSON trace-event format, which Perfetto and Chrome's tracing page open.

Only what is needed: tracks, slices, counters, asynchronous slices, and flows (arrows) between slices. Times
are picoseconds here; the file has them in microseconds, rounded to the nanoseconds that readers keep, so that
a slice ends where the next one begins.

Source: "Trace Event Format", Google, the document that Perfetto's import of JSON refers to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TextIO

__all__ = ["Slice", "TraceBuilder", "Track"]

NANOSECOND_PS = 1000
FLOW = "fate"


class Track(NamedTuple):
    """A line of the picture: a thread of a process, in the terms of the format."""

    process: int
    thread: int


class Slice(NamedTuple):
    """A slice that arrows can point at: its track and a time inside it."""

    track: Track
    inside_ps: int


class TraceBuilder:
    """Collects events; :meth:`write` puts them into a file."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._processes: dict[str, int] = {}
        self._threads = 0
        self._flows = 0
        self._asynchronous = 0

    def process(self, name: str) -> int:
        """Return the number of a process, made when it is new; processes stand in the order they came."""
        if name not in self._processes:
            number = self._new_thread()
            self._processes[name] = number
            self._metadata(number, number, "process_name", {"name": name})
            self._metadata(number, number, "process_sort_index", {"sort_index": number})
        return self._processes[name]

    def _new_thread(self) -> int:
        """Return a number that no process and no track has: readers take threads for unique."""
        self._threads += 1
        return self._threads

    def track(self, process: str, name: str) -> Track:
        """Add a track to a process; tracks stand in the order they came."""
        number = self.process(process)
        thread = self._new_thread()
        self._metadata(number, thread, "thread_name", {"name": name})
        self._metadata(number, thread, "thread_sort_index", {"sort_index": thread})
        return Track(number, thread)

    def slice(
        self, track: Track, begin_ps: int, end_ps: int, name: str, kind: str, details: Mapping[str, Any]
    ) -> Slice:
        """Add a slice; slices of a track must not overlap."""
        self._add("X", track, begin_ps, name, kind, args=dict(details), dur=_dur(begin_ps, end_ps))
        return Slice(track, (begin_ps + end_ps) // 2)

    def asynchronous(
        self, process: str, begin_ps: int, end_ps: int, name: str, kind: str, details: Mapping[str, Any]
    ) -> None:
        """Add a slice that may overlap others of its kind."""
        self._asynchronous += 1
        track = self._main(process)
        self._add("b", track, begin_ps, name, kind, id=self._asynchronous, args=dict(details))
        self._add("e", track, end_ps, name, kind, id=self._asynchronous)

    def _main(self, process: str) -> Track:
        number = self.process(process)
        return Track(number, number)

    def counter(self, process: str, time_ps: int, name: str, value: float) -> None:
        """Add a value of a counter, which holds until the next one."""
        self._add("C", self._main(process), time_ps, name, "counter", args={"value": value})

    def arrows(self, slices: Iterable[Slice], name: str) -> None:
        """Lead arrows from slice to slice, in order of time; fewer than two need none."""
        chain = list(slices)
        if len(chain) < 2:
            return
        self._flows += 1
        for place, item in enumerate(chain):
            phase = "s" if place == 0 else "f" if place == len(chain) - 1 else "t"
            binding = {"bp": "e"} if phase == "f" else {}
            self._add(phase, item.track, item.inside_ps, name, FLOW, id=self._flows, **binding)

    def write(self, file: TextIO) -> int:
        """Write the trace, an event a line, metadata first and then by time; returns the number of events."""
        self._events.sort(key=lambda event: (event["ph"] != "M", event["ts"]))
        file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        for place, event in enumerate(self._events):
            file.write(",\n" if place else "")
            file.write(json.dumps(event, separators=(",", ":"), ensure_ascii=False))
        file.write("\n]}\n")
        return len(self._events)

    def _metadata(self, process: int, thread: int, name: str, args: dict[str, Any]) -> None:
        self._events.append({"ph": "M", "pid": process, "tid": thread, "ts": 0, "name": name, "args": args})

    def _add(self, phase: str, track: Track, time_ps: int, name: str, kind: str, **more: Any) -> None:
        self._events.append(
            {
                "ph": phase,
                "pid": track.process,
                "tid": track.thread,
                "ts": _us(time_ps),
                "name": name,
                "cat": kind,
                **more,
            }
        )


def _us(time_ps: int) -> float:
    """Whole nanoseconds, as microseconds."""
    return round(time_ps / NANOSECOND_PS) / 1000


def _dur(begin_ps: int, end_ps: int) -> float:
    """Length of a slice between the rounded ends."""
    return (round(end_ps / NANOSECOND_PS) - round(begin_ps / NANOSECOND_PS)) / 1000
