"""Figures of path states: a heat map of one flow's EVs, and how many EVs of all flows were in which state.

States differ by height and pattern as well as by colour, so that they can be told apart by everybody and on
paper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mrc_host.experiment.nic_events import EvChange, ev_changes
from mrc_host.experiment.workload import Flow
from mrc_host.model.ev_set import PathState
from mrc_host.report.chart import Chart
from mrc_host.report.data import RunData
from mrc_host.report.faults import draw_faults
from mrc_host.report.figure import Figure
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.wire import EV

__all__ = ["COUNTED", "STATES", "ev_map_figure", "ev_state_figure", "states_over_time"]

WIDTH, LEFT = 1240, 118
HEIGHT_AIMED_AT = 620
MERGED_PIXELS = 2.5
"""Intervals of one state this close to each other are drawn as one."""
STATES = {
    PathState.SKIP: ("skip", "SKIP"),
    PathState.ASSUMED_BAD: ("bad", "ASSUMED_BAD"),
    PathState.DENIED: ("denied", "DENIED"),
    PathState.BACKUP: ("backup", "backup"),
    PathState.ABSENT: ("absent", "absent"),
}
"""States that are drawn: class and name. GOOD is the ground."""
COUNTED = (PathState.ASSUMED_BAD, PathState.SKIP, PathState.DENIED)
NOTHING = (
    "No EV changed its state, or the NICs did not report it: gateware does with nic.parameters.trace: true."
)


@dataclass(frozen=True)
class _Row:
    """An EV of the map with its changes in order."""

    plane: int
    ev: int
    changes: list[EvChange]


def ev_map_figure(data: RunData) -> Figure:
    """States over time of the EVs of the flow whose paths suffered most."""
    changes = ev_changes(data.events)
    columns = ["time_us", "host", "qp", "plane", "place", "ev", "old", "new"]
    table = [
        [f"{c.time_ps / 1e6:.6f}", c.host, f"{c.qp + QP_NUMBER_BASE:#x}", c.plane, c.place, f"{c.ev:#010x}",
         PathState(c.old).name, PathState(c.new).name]
        for c in changes
    ]  # fmt: skip
    title = "EV states over time"
    if not changes:
        chart = Chart(
            title, "time after the start (µs)", "", (0, data.end_us), (0, 1), width=WIDTH, height=110
        )
        draw_faults(chart, data, data.end_us)
        chart.text(WIDTH / 2, 46, "no change of state", "note", "middle")
        chart.x_axis(10)
        return Figure("ev_map", title, NOTHING, chart.svg(), columns, table, wide=True)
    host, qp = _most_affected(changes)
    flow = _flow_of(data, host, qp)
    rows = _rows(data, flow, [c for c in changes if (c.host, c.qp) == (host, qp)])
    step = max(5.0, min(16.0, HEIGHT_AIMED_AT / len(rows)))
    height = round(18 + step * len(rows) + 42)
    end = max(data.end_us, max(c.time_ps for c in changes) / 1e6)
    chart = Chart(
        f"States of the EVs of {flow.name if flow else f'h{host}'}", "time after the start (µs)", "",
        (0, end), (0, 1), width=WIDTH, height=height, left=LEFT,
    )  # fmt: skip
    left, right = chart.x(0), chart.x(end)
    _labels(chart, rows, step)
    for number, row in enumerate(rows):
        y = 18 + step * number
        chart.add(
            f'<rect class="good" x="{left:.1f}" y="{y + 0.4:.1f}" width="{right - left:.1f}" '
            f'height="{step - 0.8:.1f}"/>'
        )
        _draw_row(chart, row, y, step, end)
    draw_faults(chart, data, end)
    chart.x_axis(10)
    used = sorted({change.new for row in rows for change in row.changes} & set(STATES))
    name = flow.name if flow else f"h{host}, QP {qp + QP_NUMBER_BASE:#x}"
    return Figure(
        "ev_map",
        f"{title}: {name}",
        "Each line is an EV, grouped by plane and T1. Empty: GOOD. Of all flows this one lost most paths; "
        "the data beside the figure hold the changes of all.",
        chart.svg(),
        columns,
        table,
        wide=True,
        legend=[(f"evstate {STATES[PathState(state)][0]}", STATES[PathState(state)][1]) for state in used],
    )


def _most_affected(changes: list[EvChange]) -> tuple[int, int]:
    """Return host and QP with most EVs gone bad, and among those with most changes."""
    bad = Counter((c.host, c.qp) for c in changes if c.new == PathState.ASSUMED_BAD)
    every = Counter((c.host, c.qp) for c in changes)
    return min(every, key=lambda pair: (-bad[pair], -every[pair], pair))


def _flow_of(data: RunData, host: int, qp: int) -> Flow | None:
    for pair in data.queue_pairs:
        if (pair["source"], pair["source_qp"]) == (host, qp + QP_NUMBER_BASE):
            return data.flows[int(pair["flow"])]
    return None


def _rows(data: RunData, flow: Flow | None, changes: list[EvChange]) -> list[_Row]:
    """Return the EVs that carried packets or changed, in order of plane and value."""
    known = {(c.plane, c.ev) for c in changes}
    if flow is not None:
        sent = data.sent(flow)
        known |= set(zip(sent["plane"].tolist(), sent["ev"].tolist(), strict=True))
    by_ev: dict[tuple[int, int], list[EvChange]] = {key: [] for key in known}
    for change in changes:
        by_ev[change.plane, change.ev].append(change)
    return [_Row(*key, by_ev[key]) for key in sorted(by_ev)]


def _labels(chart: Chart, rows: list[_Row], step: float) -> None:
    groups: dict[tuple[int, int], list[int]] = {}
    for number, row in enumerate(rows):
        uplink = row.ev >> EV.shift("uplink") & EV["uplink"].mask
        groups.setdefault((row.plane, uplink), []).append(number)
    crowded = any(len(numbers) * step < 13 for numbers in groups.values())
    planes = set()
    for (plane, uplink), numbers in groups.items():
        top, bottom = 18 + step * numbers[0], 18 + step * (numbers[-1] + 1)
        if plane not in planes:
            chart.add(f'<path class="base" d="M{LEFT - 96} {top:.1f}H{WIDTH - 18}"/>')
            chart.text(LEFT - 94, top + 13, f"plane {plane}", "strong", "start")
            planes.add(plane)
        if not crowded:
            chart.text(LEFT - 8, (top + bottom) / 2 + 4, f"T1 {uplink}" if uplink else "", "tick", "end")


def _draw_row(chart: Chart, row: _Row, y: float, step: float, end: float) -> None:
    """Draw the intervals of an EV, one path for each state."""
    shapes: dict[PathState, list[list[float]]] = {}
    begin, state = 0.0, row.changes[0].old if row.changes else int(PathState.GOOD)
    for change in [*row.changes, None]:
        until = end if change is None else change.time_ps / 1e6
        if state != PathState.GOOD:
            spans = shapes.setdefault(PathState(state), [])
            left, right = chart.x(begin), chart.x(until)
            if spans and left - spans[-1][1] < MERGED_PIXELS:
                spans[-1][1] = max(right, spans[-1][1])
            else:
                spans.append([left, max(right, left + 1)])
        if change is not None:
            begin, state = until, change.new
    for kind, spans in shapes.items():
        inset = step * 0.27 if kind in (PathState.SKIP, PathState.BACKUP) else 0.4
        tall = step - 2 * inset
        path = "".join(f"M{a:.1f} {y + inset:.1f}h{b - a:.1f}v{tall:.1f}h{a - b:.1f}z" for a, b in spans)
        title = f"EV {row.ev:#010x}, plane {row.plane}: {STATES[kind][1]}"
        chart.add(f'<path class="evstate {STATES[kind][0]}" d="{path}"><title>{title}</title></path>')


def states_over_time(changes: Iterable[EvChange], state: PathState) -> tuple[list[float], list[int]]:
    """Return times in µs and the number of EVs (of all QPs) in a state from each of them on."""
    times, counts, count = [0.0], [0], 0
    for change in changes:
        count += (change.new == state) - (change.old == state)
        if count != counts[-1]:
            times.append(change.time_ps / 1e6)
            counts.append(max(0, count))
    return times, counts


def ev_state_figure(data: RunData) -> Figure:
    """How many EVs of all flows were in which state over time."""
    changes = ev_changes(data.events)
    end = max([data.end_us, *(c.time_ps / 1e6 for c in changes)])
    lines = {state: states_over_time(changes, state) for state in COUNTED}
    top = max([4, *(max(counts) for _, counts in lines.values())]) * 1.15
    chart = Chart(
        "EVs by state", "time after the start (µs)", "EVs of all flows", (0, end), (0, top), height=300
    )
    chart.y_axis()
    marks = np.unique(np.concatenate([np.array(times) for times, _ in lines.values()]))
    rows = []
    for state, (times, counts) in lines.items():
        name = STATES[state]
        if max(counts):
            chart.steps([*times, end], [*counts, counts[-1]], f"line count {name[0]}", name[1])
    for time_us in marks.tolist():
        values = [
            counts[int(np.searchsorted(times, time_us, side="right")) - 1] for times, counts in lines.values()
        ]
        rows.append([f"{time_us:.6f}", *values])
    draw_faults(chart, data, end)
    chart.x_axis()
    return Figure(
        "ev_states",
        "EVs by state",
        "EVs of all flows that are not GOOD: ASSUMED_BAD solid, SKIP dotted, DENIED dashed."
        if changes
        else NOTHING,
        chart.svg(),
        ["time_us", *(state.name.lower() for state in COUNTED)],
        rows,
        legend=[(f"evstate {STATES[state][0]}", STATES[state][1]) for state in COUNTED],
    )
