"""A reader of JSON traces that refuses what the trace-event format or Perfetto's import would drop."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PHASES = {"M", "X", "C", "b", "e", "s", "t", "f"}


@dataclass
class Trace:
    """What a trace holds, after all rules were checked."""

    tracks: dict[tuple[int, int], str] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    slices: dict[tuple[int, int], list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    counters: dict[tuple[int, str], list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    asynchronous: list[dict[str, Any]] = field(default_factory=list)
    arrows: dict[int, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)
    """By id: the track's name and the slice at each station."""

    def track(self, process: str, name: str) -> list[dict[str, Any]]:
        """Slices of a track by the names of process and track."""
        for (number, thread), title in self.tracks.items():
            if self.processes[number] == process and title == name:
                return self.slices[number, thread]
        raise KeyError((process, name))


def read_trace(path: Path) -> Trace:
    """Read a trace; an AssertionError names the rule that is broken."""
    document = json.loads(path.read_text())
    assert document["displayTimeUnit"] in ("ms", "ns")
    trace = Trace()
    flows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    opened: dict[tuple[int, str, int], dict[str, Any]] = {}
    for event in document["traceEvents"]:
        assert event["ph"] in PHASES, event
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int), event
        assert isinstance(event["ts"], int | float) and event["ts"] >= 0, event
        assert event["name"], event
        place = (event["pid"], event["tid"])
        if event["ph"] == "M":
            if event["name"] == "process_name":
                trace.processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                assert place not in trace.tracks, "a track has one name"
                trace.tracks[place] = event["args"]["name"]
            continue
        assert event["cat"], event
        assert event["pid"] in trace.processes, "processes are named before their events"
        if event["ph"] == "X":
            assert event["dur"] > 0, event
            assert place in trace.tracks, "a slice needs a track"
            trace.slices[place].append(event)
        elif event["ph"] == "C":
            (value,) = event["args"].values()
            trace.counters[event["pid"], event["name"]].append((event["ts"], value))
        elif event["ph"] == "b":
            key = (event["id"], event["cat"], event["pid"])
            assert key not in opened, "an asynchronous slice begins once"
            opened[key] = event
        elif event["ph"] == "e":
            begin = opened.pop((event["id"], event["cat"], event["pid"]))
            assert begin["ts"] <= event["ts"] and begin["name"] == event["name"]
            trace.asynchronous.append({**begin, "end": event["ts"]})
        else:
            flows[event["id"]].append(event)
    assert not opened, "every asynchronous slice ends"
    threads = [thread for _, thread in trace.tracks]
    assert len(set(threads)) == len(threads), "threads are unique in a trace"
    for slices in trace.slices.values():
        slices.sort(key=lambda item: item["ts"])
        for first, second in zip(slices, slices[1:], strict=False):
            end = round(1000 * first["ts"]) + round(1000 * first["dur"])
            assert end <= round(1000 * second["ts"]), f"slices of a track do not overlap: {first}, {second}"
    for number, stations in flows.items():
        trace.arrows[number] = _stations(trace, stations)
    return trace


def _stations(trace: Trace, stations: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    phases = [station["ph"] for station in stations]
    assert phases[0] == "s" and phases[-1] == "f" and set(phases[1:-1]) <= {"t"}, phases
    assert len({(station["name"], station["cat"]) for station in stations}) == 1, "arrows are one flow"
    times = [station["ts"] for station in stations]
    assert times == sorted(times), "arrows lead forward"
    found = []
    for station in stations:
        place = (station["pid"], station["tid"])
        inside = [
            item for item in trace.slices[place] if item["ts"] <= station["ts"] <= item["ts"] + item["dur"]
        ]
        assert inside, f"an arrow needs a slice at its station: {station}"
        found.append((f"{trace.processes[place[0]]} {trace.tracks[place]}", inside[-1]))
    return found
