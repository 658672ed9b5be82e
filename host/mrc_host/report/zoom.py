"""A close look at each fault: what planes carried, what was lost and sent again, which paths were left."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mrc_host.experiment import analysis
from mrc_host.experiment.nic_events import ev_changes
from mrc_host.experiment.packet_log import PacketColumns
from mrc_host.experiment.testbed import base_rtt_ps
from mrc_host.model.ev_set import PathState
from mrc_host.report.chart import Chart
from mrc_host.report.data import RunData
from mrc_host.report.faults import draw_faults
from mrc_host.report.figure import Figure
from mrc_host.report.paths import states_over_time
from mrc_rtl.records import TraceKind

__all__ = ["zoom_figures"]

FIGURES_AT_MOST = 6
BEFORE_RTTS, BEHIND_RTTS = 2.0, 8.0
BINS = 100
WIDTH = 1240
GOODPUT_HEIGHT, MARKS_HEIGHT, STATES_HEIGHT = 220, 26, 170


def zoom_figures(data: RunData) -> list[Figure]:
    """Return a figure for the begin of every fault and one for its end, the first few."""
    rtt = base_rtt_ps(data.experiment, data.topology, data.experiment.nic.config()) / 1e6
    moments = []
    for fault in data.faults:
        name = f"{fault['number'] + 1} {fault['kind'].replace('_', ' ')} on {fault['place']}"
        moments.append((float(fault["from_us"]), f"fault_{fault['number'] + 1}_begin", f"{name} begins"))
        if fault["to_us"] is not None:
            moments.append((float(fault["to_us"]), f"fault_{fault['number'] + 1}_end", f"{name} ends"))
    shown = [moment for moment in moments if 0 < moment[0] < data.end_us]
    return [_figure(data, rtt, *moment) for moment in shown[:FIGURES_AT_MOST]]


def _figure(data: RunData, rtt: float, at_us: float, name: str, title: str) -> Figure:
    begin = max(0.0, at_us - BEFORE_RTTS * rtt)
    end = min(data.end_us, at_us + BEHIND_RTTS * rtt)
    edges = np.linspace(begin, end, BINS + 1)
    planes = data.topology.planes
    rates = _rates(data, edges)
    lost, again = _losses(data, begin, end)
    height = GOODPUT_HEIGHT + MARKS_HEIGHT * 2 + STATES_HEIGHT
    top = float(rates.sum(axis=0).max(initial=0)) * 1.15 or 1.0
    chart = Chart(
        title, "time after the start (µs)", "goodput (Gb/s)", (begin, end), (0, top),
        width=WIDTH, height=height, bottom=height - GOODPUT_HEIGHT, left=98,
    )  # fmt: skip
    chart.y_axis(4)
    low = np.zeros(BINS)
    for plane in range(planes):
        high = low + rates[plane]
        chart.step_area(edges.tolist(), low.tolist(), high.tolist(), f"area p{plane}", f"plane {plane}")
        low = high
    draw_faults(chart, data, end, begin)
    _marks(chart, "losses", lost, GOODPUT_HEIGHT + 8, "loss")
    _marks(chart, "sent again", again, GOODPUT_HEIGHT + 8 + MARKS_HEIGHT, "again")
    bad = _states(chart, data, begin, end, height)
    chart.x_axis(10, height - 42)
    rows: list[list[object]] = [
        [f"{edges[n]:.6f}", f"{edges[n + 1]:.6f}", *(f"{rates[plane, n]:.6g}" for plane in range(planes)),
         int(np.count_nonzero((lost >= edges[n]) & (lost < edges[n + 1]))),
         int(np.count_nonzero((again >= edges[n]) & (again < edges[n + 1]))),
         bad[n]]
        for n in range(BINS)
    ]  # fmt: skip
    return Figure(
        name,
        f"Close to {at_us:g} µs: {title}",
        f"{BEFORE_RTTS:g} round-trip times before to {BEHIND_RTTS:g} behind (one is {rtt:.1f} µs). Top: "
        "payload that arrived, planes stacked; strokes: packets senders took for lost, and packets sent "
        "again; bottom: EVs of all flows that are ASSUMED_BAD (solid) and SKIP (dotted).",
        chart.svg(),
        [
            "start_us",
            "end_us",
            *(f"plane_{p}_gbps" for p in range(planes)),
            "losses",
            "sent_again",
            "evs_bad",
        ],
        rows,
        wide=True,
        legend=[(f"p{plane}", f"plane {plane}") for plane in range(planes)],
    )


def _rates(data: RunData, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return payload that arrived for the first time in each bin, in Gb/s, by plane."""
    rates = np.zeros((data.topology.planes, BINS))
    for flow in data.flows:
        first, _ = analysis.first_copies(data.arrivals(flow))
        for plane in range(data.topology.planes):
            mine = analysis.select(first, first["plane"] == plane)
            counts, _ = np.histogram(mine["time_ps"] / 1e6, edges, weights=mine["payload_bytes"])
            rates[plane] += counts
    width = float(edges[1] - edges[0])
    return rates * (8 / 1000 / width)


def _losses(
    data: RunData, begin: float, end: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return when senders took packets for lost, and when packets left again, in µs."""
    lost = data.events["time_ps"][data.events["kind"] == int(TraceKind.LOSS)] / 1e6
    packets: PacketColumns = data.packets
    again = (packets["data"] == 1) & (packets["arrived"] == 0) & (packets["retransmission"] == 1)
    times = packets["time_ps"][again] / 1e6
    return lost[(lost >= begin) & (lost <= end)], times[(times >= begin) & (times <= end)]


def _marks(chart: Chart, label: str, times: npt.NDArray[np.float64], y: int, kind: str) -> None:
    """Draw a row of strokes, one for each time."""
    chart.text(91, y + 14, label, "tick", "end")
    path = "".join(f"M{chart.x(float(time_us)):.1f} {y + 2}v15" for time_us in times)
    chart.add(f'<path class="{kind}" d="{path}"><title>{label}: {len(times)}</title></path>' if path else "")


def _states(chart: Chart, data: RunData, begin: float, end: float, height: int) -> list[int]:
    """Draw how many EVs are bad and skipped; returns those that are bad at the begin of each bin."""
    changes = ev_changes(data.events)
    lines = [
        (kind, *states_over_time(changes, state))
        for kind, state in (("bad", PathState.ASSUMED_BAD), ("skip", PathState.SKIP))
    ]
    highest = max([4, *(count for _, times, counts in lines for t, count in zip(times, counts) if t <= end)])
    inner = chart.below(height - STATES_HEIGHT + 10, height - 42, (0, highest * 1.1), "EVs")
    inner.y_axis(3)
    for kind, times, counts in lines:
        inside = [(max(t, begin), c) for n, (t, c) in enumerate(zip(times, counts))
                  if t <= end and (n + 1 == len(times) or times[n + 1] > begin)]  # fmt: skip
        if inside:
            xs, ys = [t for t, _ in inside], [c for _, c in inside]
            inner.steps([*xs, end], [*ys, ys[-1]], f"line count {kind}", kind)
    draw_faults(inner, data, end, begin, labels=False)
    chart.add(inner.parts)
    _, times, counts = lines[0]
    edges = np.linspace(begin, end, BINS + 1)[:-1]
    return [counts[int(np.searchsorted(times, edge, side="right")) - 1] for edge in edges]
