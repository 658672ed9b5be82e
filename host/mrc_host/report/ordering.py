"""Figures about order: who overtakes whom, how far, and why."""

from __future__ import annotations

import numpy as np

from mrc_host.experiment import analysis
from mrc_host.experiment.packet_log import PacketColumns
from mrc_host.experiment.workload import Flow
from mrc_host.report.chart import Chart, marker
from mrc_host.report.data import RunData
from mrc_host.report.faults import draw_faults
from mrc_host.report.figure import Figure

__all__ = ["depth_figure", "latency_figure", "overtaking_figure"]

PACKETS_SHOWN = 120
DEPTH_BARS = 40
MICROSECOND_PS = 1_000_000
ROW = 26


def overtaking_figure(data: RunData) -> Figure:
    """The first packets of one flow as they arrive: PSN over time, plane and path told apart."""
    flow = data.flows[0]
    arrivals, psns = analysis.first_copies(data.arrivals(flow))
    shown = slice(0, PACKETS_SHOWN)
    if not len(psns):
        chart = Chart("Arrivals", "time (µs)", "packet", (0, 1), (0, 1), width=1240)
        chart.text(620, 150, "no data packet arrived", "note", "middle")
        return Figure("arrivals", "How packets overtake", "Nothing arrived.", chart.svg(), wide=True)
    base = int(psns.min())
    late = np.maximum.accumulate(psns) > psns
    times = arrivals["time_ps"][shown] / MICROSECOND_PS
    numbers = psns[shown] - base
    paths = _uplinks(data, flow, arrivals)
    margin = max(1e-3, float(times[-1] - times[0]) * 0.02)
    chart = Chart(
        f"Arrivals of the first packets of {flow.name}",
        "time after the start (µs)",
        "packet, in order of PSN",
        (float(times[0]) - margin, float(times[-1]) + margin),
        (-2, float(numbers.max()) + 3),
        width=1240,
        height=340,
    )
    chart.y_axis()
    highest = np.maximum.accumulate(numbers)
    chart.steps(times.tolist(), highest.tolist(), "thin", "highest PSN that has arrived")
    rows = []
    for place, (time_us, number) in enumerate(zip(times.tolist(), numbers.tolist())):
        plane, uplink, is_late = int(arrivals["plane"][place]), int(paths[place]), bool(late[place])
        words = "overtaken" if is_late else "in order"
        title = f"packet {number}, plane {plane}" + (f", T1 {uplink}" if uplink else "") + f", {words}"
        chart.marker(time_us, number, plane, max(0, uplink - 1), hollow=is_late, title=title)
        rows.append(
            [f"{time_us:.6f}", number, f"{int(arrivals['psn'][place]):#08x}", plane, uplink, int(is_late)]
        )
    draw_faults(chart, data, float(times[-1]) + margin, float(times[0]) - margin)
    chart.x_axis(12)
    legend = [(f"p{plane}", f"plane {plane}") for plane in range(data.topology.planes)]
    shapes = sorted({int(uplink) for uplink in paths[shown]} - {0})
    names = ("circle", "triangle", "square", "diamond")
    shape_text = ", ".join(f"{names[(uplink - 1) % len(names)]} T1 {uplink}" for uplink in shapes)
    return Figure(
        "arrivals",
        f"How packets overtake: the first {len(rows)} packets of {flow.name}",
        "Each mark is a packet at the moment it arrives; colour is its plane"
        + (f", shape its path ({shape_text})" if shapes else "")
        + ". Hollow marks were overtaken: a packet with a higher PSN was there before them. The thin line is "
        "the highest PSN so far.",
        chart.svg(),
        ["time_us", "packet", "psn", "plane", "t1", "overtaken"],
        rows,
        wide=True,
        legend=legend,
    )


def _uplinks(data: RunData, flow: Flow, columns: PacketColumns) -> np.ndarray:
    """Return the T1 of each packet, 0 between hosts of one T0."""
    if data.topology.same_t0(flow.source, flow.target):
        return np.zeros(len(columns["ev"]), dtype=np.int64)
    return analysis.uplinks(columns)


def depth_figure(data: RunData) -> Figure:
    """How far below the highest PSN packets arrive."""
    depths = [analysis.reordering(data.arrivals(flow)).depth for flow in data.flows]
    together = np.concatenate(depths) if depths else np.zeros(0, dtype=np.int64)
    late = together[together > 0]
    deepest = int(together.max(initial=0))
    step = max(1, -(-deepest // DEPTH_BARS))
    count = max(1, -(-deepest // step))
    counts = np.bincount((late - 1) // step, minlength=count)[:count]
    share = 100 * counts / max(1, len(together))
    chart = Chart(
        "Depth of out-of-order arrivals", "PSNs below the highest that had arrived",
        "share of data packets (%)", (1, count * step + 1), (0, max(float(share.max(initial=0)), 0.1) * 1.15),
    )  # fmt: skip
    chart.y_axis()
    for number, value in enumerate(share.tolist()):
        low, high = number * step + 1, (number + 1) * step
        span = f"{low}" if step == 1 else f"{low} to {high}"
        chart.bar(low, step, value, "bar", f"depth {span}: {counts[number]} packets, {value:.2f} %")
    chart.x_axis()
    percent = 100 * len(late) / max(1, len(together))
    chart.text(chart.width - 20, 34, f"{100 - percent:.1f} % arrived in order", "strong halo", "end")
    chart.text(
        chart.width - 20, 51, f"{percent:.1f} % were overtaken, by up to {deepest}", "note halo", "end"
    )
    return Figure(
        "out_of_order",
        "Out-of-order degree",
        "How deep overtaken packets lie below the highest PSN that had arrived, in packets. A receiver that "
        "tracks fewer PSNs than this would drop them.",
        chart.svg(),
        ["depth_from", "depth_to", "packets", "share_percent"],
        [
            [number * step + 1, (number + 1) * step, int(counts[number]), f"{share[number]:.5f}"]
            for number in range(count)
        ],
    )


def latency_figure(data: RunData) -> Figure:
    """One-way delay of data packets on each path: the reason for overtaking."""
    delays: dict[tuple[int, int], list[float]] = {}
    for flow in data.flows:
        sent = data.sent(flow)
        when = {key: time_ps for *key_parts, time_ps in _copies(sent) if (key := tuple(key_parts))}
        arrivals = data.arrivals(flow)
        paths = _uplinks(data, flow, arrivals).tolist()
        for (*key_parts, time_ps), uplink in zip(_copies(arrivals), paths):
            key = tuple(key_parts)
            if key in when:
                delay = (time_ps - when[key]) / MICROSECOND_PS
                delays.setdefault((key[1], uplink), []).append(delay)
    rows = []
    longest = max((max(values) for values in delays.values()), default=1.0)
    height = 66 + ROW * max(1, len(delays))
    chart = Chart(
        "One-way delay by path", "from sender to receiver (µs)", "", (0, longest * 1.08), (0, 1),
        height=height, left=118,
    )  # fmt: skip
    for row, (path, values) in enumerate(sorted(delays.items())):
        plane, uplink = path
        low, median, high = (float(np.percentile(values, share)) for share in (0, 50, 100))
        y = 30 + ROW * row
        name = f"plane {plane}" + (f" · T1 {uplink}" if uplink else "")
        chart.text(108, y + 4, name, "", "end")
        chart.add(
            f'<rect class="area p{plane}" x="{chart.x(low):.1f}" y="{y - 6}" rx="3" '
            f'width="{max(2.0, chart.x(high) - chart.x(low)):.1f}" height="12">'
            f"<title>{name}: {low:.2f} to {high:.2f} µs, median {median:.2f} µs</title></rect>"
        )
        chart.add(marker(chart.x(median), y, max(0, uplink - 1), 5.0, f"late p{plane}"))
        chart.text(chart.x(high) + 8, y + 4, f"{median:.1f}", "note halo")
        rows.append([plane, uplink, len(values), f"{low:.6f}", f"{median:.6f}", f"{high:.6f}"])
    chart.x_axis()
    return Figure(
        "path_delay",
        "One-way delay by path",
        "Least to longest time of data packets from port to port, the mark at the median. Differences "
        "between paths are what makes packets overtake.",
        chart.svg(),
        ["plane", "t1", "packets", "least_us", "median_us", "longest_us"],
        rows,
    )


def _copies(columns: PacketColumns) -> list[tuple[int, ...]]:
    """Return what tells copies of packets apart, and their times: (psn, plane, ev, rtx, time)."""
    names = ("psn", "plane", "ev", "retransmission", "time_ps")
    return list(zip(*(columns[name].tolist() for name in names)))
