"""Figures of congestion control: window, bytes in flight and round-trip time of every flow over time."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from mrc_host.experiment.nic_events import WindowSample, window_samples
from mrc_host.experiment.testbed import base_rtt_ps
from mrc_host.report.chart import Chart
from mrc_host.report.data import RunData
from mrc_host.report.faults import draw_faults
from mrc_host.report.figure import Figure
from mrc_rtl.config import QP_NUMBER_BASE

__all__ = ["rtt_figure", "window_figure"]

POINTS = 240
NOTHING = "No NIC reported windows: models do."


def _by_qp(data: RunData) -> dict[tuple[int, int], list[WindowSample]]:
    samples: dict[tuple[int, int], list[WindowSample]] = defaultdict(list)
    for sample in window_samples(data.events):
        samples[sample.host, sample.qp].append(sample)
    return samples


def _name(data: RunData, host: int, qp: int) -> str:
    for pair in data.queue_pairs:
        if (pair["source"], pair["source_qp"]) == (host, qp + QP_NUMBER_BASE):
            name: str = data.flows[int(pair["flow"])].name
            return name
    return f"h{host} QP {qp + QP_NUMBER_BASE:#x}"


def window_figure(data: RunData) -> Figure:
    """Congestion window (bytes in flight without congestion control) of each queue pair."""
    samples = _by_qp(data)
    limited = any(s.window is not None for group in samples.values() for s in group)
    what = "congestion window" if limited else "bytes in flight"
    lines = {
        key: [(s.time_ps / 1e6, (s.window if limited else s.in_flight) or 0) for s in group]
        for key, group in samples.items()
    }
    chart = _lines(data, f"{what.capitalize()} of queue pairs", f"{what} (KiB)", lines, 1024)
    rows = [
        [_name(data, *key), f"{key[1] + QP_NUMBER_BASE:#x}", f"{s.time_ps / 1e6:.6f}",
         "" if s.window is None else s.window, s.in_flight]
        for key, group in samples.items()
        for s in group
    ]  # fmt: skip
    caption = (
        f"{what.capitalize()} of every queue pair (thin), and their mean (bold), sampled at SACKs at most "
        "four times in a base round-trip time."
    )
    return Figure(
        "window", what.capitalize(), caption if samples else NOTHING, chart.svg(),
        ["flow", "qp", "time_us", "window_bytes", "in_flight_bytes"], rows,
    )  # fmt: skip


def rtt_figure(data: RunData) -> Figure:
    """Round-trip times that senders measured, against that of the empty network."""
    samples = _by_qp(data)
    lines = {
        key: [(s.time_ps / 1e6, s.rtt_ps) for s in group if s.rtt_ps is not None]
        for key, group in samples.items()
    }
    base = base_rtt_ps(data.experiment, data.topology, data.experiment.nic.config())
    chart = _lines(data, "Round-trip time", "round-trip time (µs)", lines, 1_000_000, level=base)
    rows = [
        [_name(data, *key), f"{key[1] + QP_NUMBER_BASE:#x}", f"{time_us:.6f}", f"{rtt / 1e6:.6f}"]
        for key, points in lines.items()
        for time_us, rtt in points
    ]
    caption = (
        "Samples of every queue pair (thin) and their mean (bold); dashed: what timers start from, the "
        "longest path when empty."
    )
    return Figure(
        "rtt", "Round-trip time", caption if samples else NOTHING, chart.svg(),
        ["flow", "qp", "time_us", "rtt_us"], rows,
    )  # fmt: skip


def _lines(
    data: RunData,
    title: str,
    label: str,
    lines: dict[tuple[int, int], list[tuple[float, int]]],
    unit: int,
    *,
    level: int = 0,
) -> Chart:
    """Draw a thin step line for each queue pair, and the mean of all in bold."""
    end = data.end_us
    highest = max([level, *(value for points in lines.values() for _, value in points)], default=0)
    chart = Chart(
        title, "time after the start (µs)", label, (0, end), (0, max(highest / unit, 1) * 1.15), height=300
    )
    chart.y_axis()
    for key, points in lines.items():
        inside = [(time_us, value / unit) for time_us, value in points if time_us <= end]
        chart.steps([t for t, _ in inside], [v for _, v in inside], "thin", _name(data, *key))
    means = _means([points for points in lines.values() if points], end)
    chart.steps([t for t, _ in means], [v / unit for _, v in means], "line", "mean")
    if level:
        chart.level(level / unit, f"empty: {level / unit:.2f} µs")
    draw_faults(chart, data, end)
    chart.x_axis()
    return chart


def _means(lines: list[list[tuple[float, int]]], end: float) -> list[tuple[float, float]]:
    """Return the mean of what each queue pair last reported, from the time on at which all have."""
    if not lines:
        return []
    first = max(points[0][0] for points in lines)
    grid = np.linspace(first, max(end, first), POINTS)
    values = np.zeros(POINTS)
    for points in lines:
        times = np.array([time_us for time_us, _ in points])
        last = np.searchsorted(times, grid, side="right") - 1
        values += np.array([value for _, value in points], dtype=float)[last]
    return list(zip(grid.tolist(), (values / len(lines)).tolist(), strict=True))
