"""Figures over time: goodput of the planes, completion times, queues."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mrc_host.experiment import analysis
from mrc_host.experiment.packet_log import PacketColumns
from mrc_host.fabric.links import Direction
from mrc_host.report.chart import Chart, ticks
from mrc_host.report.data import RunData
from mrc_host.report.faults import draw_faults
from mrc_host.report.figure import Figure
from mrc_rtl.wire import GAP_PREAMBLE_FCS_BYTES

__all__ = ["completion_figure", "goodput_figure", "queue_figure"]

BINS_AIMED_AT = 90
MICROSECOND_PS = 1_000_000


def goodput_figure(data: RunData) -> Figure:
    """Goodput of every plane over time, stacked, against what all links together allow."""
    planes = data.topology.planes
    end = data.end_us
    width = _bin_width_us(end, data.experiment.records.interval_ns / 1000)
    count = max(1, int(np.ceil(end / width)))
    edges = [number * width for number in range(count + 1)]
    edges[-1] = end  # the last bin ends when the last packet has arrived
    arrived = np.zeros((planes, count + 1))
    for flow in data.flows:
        first, _ = analysis.first_copies(data.arrivals(flow))
        for plane in range(planes):
            mine = analysis.select(first, first["plane"] == plane)
            arrived[plane] += _bytes_until(mine, edges, data.topology.host_link(flow.target, plane).down)
    rates = np.diff(arrived, axis=1) * 8 / np.maximum(np.diff(edges), 1e-9) / 1000
    sums = np.vstack((np.zeros(count), np.cumsum(rates, axis=0)))
    bound = sum(result["goodput_bound_gbps"] for result in data.flow_results)
    top = max(bound, float(sums[-1].max()), 1e-9) * 1.12
    chart = Chart(
        "Goodput per plane over time", "time after the start (µs)", "goodput (Gb/s)", (0, end), (0, top),
        width=1240, height=320,
    )  # fmt: skip
    chart.y_axis()
    for plane in range(planes):
        chart.step_area(edges, list(sums[plane]), list(sums[plane + 1]), f"area p{plane}", f"plane {plane}")
    for plane in range(planes):
        middle = count // 2
        height = (sums[plane][middle] + sums[plane + 1][middle]) / 2
        if planes <= 4:
            chart.text(chart.x(end * 0.5), chart.y(height) + 4, f"plane {plane}", "strong halo", "middle")
    draw_faults(chart, data, end)
    if bound:
        chart.level(bound, f"bound: {bound:.1f} Gb/s of payload on all links")
    chart.x_axis(10)
    rows = [
        [
            f"{edges[number]:.4f}",
            f"{edges[number + 1]:.4f}",
            *(f"{rates[plane, number]:.5f}" for plane in range(planes)),
        ]
        for number in range(count)
    ]
    return Figure(
        "goodput",
        "Goodput per plane over time",
        f"Payload that arrived at all NICs for the first time, in bins of {width:g} µs, planes stacked. "
        "Equal bands mean an even spread.",
        chart.svg(),
        ["start_us", "end_us", *(f"plane_{plane}_gbps" for plane in range(planes))],
        rows,
        wide=True,
        legend=[(f"p{plane}", f"plane {plane}") for plane in range(planes)],
    )


def _bytes_until(packets: PacketColumns, edges_us: list[float], link: Direction) -> npt.NDArray[np.float64]:
    """Return the payload that had arrived at each time; a packet arrives evenly during its slot."""
    ends = packets["time_ps"] / MICROSECOND_PS
    slots = (packets["frame_bytes"] + GAP_PREAMBLE_FCS_BYTES) * float(link.byte_ps) / MICROSECOND_PS
    shares = [np.clip(1 - (ends - edge) / slots, 0, 1) for edge in edges_us]
    return np.array([float(np.sum(share * packets["payload_bytes"])) for share in shares])


def _bin_width_us(end_us: float, least_us: float) -> float:
    """Return a round width that makes about :data:`BINS_AIMED_AT` bins, at least ``least_us``."""
    if end_us <= least_us:
        return least_us
    marks = ticks(0, end_us, BINS_AIMED_AT)
    return max(least_us, marks[1] - marks[0]) if len(marks) > 1 else least_us


def completion_figure(data: RunData) -> Figure:
    """Distribution of message completion times, for all messages and for each flow."""
    times = (data.messages["last_byte_ps"] - data.messages["posted_ps"]) / MICROSECOND_PS
    known = ~np.isnan(times.astype(float))
    ordered = np.sort(times[known].astype(float))
    longest = float(ordered[-1]) if len(ordered) else 1.0
    chart = Chart(
        "Completion times of messages", "completion time (µs)", "share of messages (%)",
        (0, longest * 1.05), (0, 100), height=320,
    )  # fmt: skip
    chart.y_axis()
    rows: list[list[object]] = []
    for flow in data.flows:
        mine = known & (data.messages["flow"] == flow.number)
        own = np.sort(times[mine].astype(float))
        xs, ys = _distribution(own)
        chart.steps(xs, ys, "thin", flow.name)
        rows += [[flow.name, f"{value:.6f}"] for value in own]
    xs, ys = _distribution(ordered)
    chart.steps(xs, ys, "line", "all messages")
    if len(ordered):
        median = float(np.percentile(ordered, 50))
        for share, value, word in ((50, median, "median"), (100, longest, "longest")):
            place_x, place_y = chart.x(value), chart.y(share)
            chart.add(f'<circle class="bar" cx="{place_x:.1f}" cy="{place_y:.1f}" r="4"/>')
            down = 25 if share == 100 else 4
            chart.text(
                place_x - (2 if share == 100 else 9),
                place_y + down,
                f"{word} {value:.4g} µs",
                "strong halo",
                "end",
            )
    chart.x_axis()
    posted = data.experiment.workload.outstanding_messages
    return Figure(
        "completion_times",
        "Completion times of messages",
        "From the doorbell to the last byte in the receiver's memory; bold: all messages, thin: each flow. "
        f"Up to {posted} messages of a flow are posted at once and wait behind each other.",
        chart.svg(),
        ["flow", "completion_us"],
        rows,
    )


def _distribution(ordered: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the steps of an empirical distribution in percent, from 0 at x = 0."""
    count = len(ordered)
    xs = [0.0, *ordered.tolist()]
    return xs, [100 * number / max(1, count) for number in range(count + 1)]


def queue_figure(data: RunData) -> Figure:
    """Deepest queue of each plane over time."""
    planes = data.topology.planes
    end = data.end_us
    queues: PacketColumns = data.queues
    interval = data.experiment.records.interval_ns / 1000
    count = int(np.ceil(end / interval)) + 1
    of_direction = np.array([half.plane for half in data.topology.directions])
    deepest = np.zeros((planes, count))
    if len(queues["time_ps"]):
        place = np.floor(queues["time_ps"] / MICROSECOND_PS / interval).astype(int)
        valid = (place >= 0) & (place < count)
        plane_of = of_direction[queues["direction"][valid]]
        np.maximum.at(deepest, (plane_of, place[valid]), queues["peak_bytes"][valid] / 1024)
    xs = [number * interval for number in range(count)]
    top = max(float(deepest.max(initial=0)), 8.0) * 1.15
    chart = Chart(
        "Deepest switch queue of each plane", "time after the start (µs)", "deepest queue (KiB)",
        (0, max(end, xs[-1])), (0, top), height=300,
    )  # fmt: skip
    chart.y_axis()
    for plane in range(planes):
        chart.steps(xs, deepest[plane].tolist(), f"line p{plane}", f"plane {plane}")
    draw_faults(chart, data, max(end, xs[-1]))
    chart.x_axis()
    size = data.topology.queue_bytes / 1024
    high = max((link["queue_high_water_bytes"] for link in data.counters["links"]), default=0)
    return Figure(
        "queues",
        "Switch queues over time",
        f"Most bytes that waited in any port of a plane, in intervals of {interval:g} µs. A queue holds "
        f"{size:g} KiB; the deepest one reached {high / 1024:.1f} KiB.",
        chart.svg(),
        ["time_us", *(f"plane_{plane}_kib" for plane in range(planes))],
        [
            [f"{xs[number]:.3f}", *(f"{deepest[plane, number]:.3f}" for plane in range(planes))]
            for number in range(count)
        ],
        legend=[(f"p{plane}", f"plane {plane}") for plane in range(planes)],
    )
