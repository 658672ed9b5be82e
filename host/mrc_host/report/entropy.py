"""The figure of entropy values: which share of the packets each one carried."""

from __future__ import annotations

import numpy as np

from mrc_host.report.chart import Chart
from mrc_host.report.data import RunData
from mrc_host.report.figure import Figure

__all__ = ["share_figure"]

CELL_HEIGHT = 26
LEFT, TOP = 92, 46
WIDTH = 1240
COUNTS_SHOWN = 44
"""With more columns than this, cells are too narrow for numbers."""


def share_figure(data: RunData) -> Figure:
    """Packets by flow and EV, shaded by how far they are from an even share."""
    sent = [data.sent(flow) for flow in data.flows]
    values = np.unique(np.concatenate([columns["ev"] for columns in sent])) if sent else np.zeros(0)
    planes = {
        int(ev): int(plane)
        for columns in sent
        for ev, plane in set(zip(columns["ev"].tolist(), columns["plane"].tolist()))
    }
    order = sorted(planes, key=lambda ev: (planes[ev], ev))
    count = max(1, len(order))
    height = TOP + CELL_HEIGHT * max(1, len(sent)) + 46
    chart = Chart("Packets by entropy value", "", "", (0, 1), (0, 1), width=WIDTH, height=height)
    cell = (WIDTH - LEFT - 20) / count
    _heads(chart, order, planes, cell)
    rows: list[list[object]] = []
    for row, (flow, columns) in enumerate(zip(data.flows, sent)):
        y = TOP + CELL_HEIGHT * row
        chart.text(LEFT - 10, y + CELL_HEIGHT / 2 + 4, flow.name, "", "end")
        total = len(columns["ev"])
        for column, ev in enumerate(order):
            packets = int(np.count_nonzero(columns["ev"] == ev))
            even = total / count
            ratio = packets / even if even else 0.0
            title = (
                f"{flow.name}, EV {ev:#010x}, plane {planes[ev]}: {packets} packets, {ratio:.2f} × even share"
            )
            opacity = min(0.9, 0.06 + 0.38 * ratio)
            chart.add(
                f'<rect class="bar p{planes[ev]}" x="{LEFT + cell * column + 0.5:.1f}" y="{y + 0.5:.1f}" '
                f'width="{cell - 1:.1f}" height="{CELL_HEIGHT - 1}" rx="2" fill-opacity="{opacity:.2f}">'
                f"<title>{title}</title></rect>"
            )
            if count <= COUNTS_SHOWN:
                chart.text(LEFT + cell * (column + 0.5), y + CELL_HEIGHT / 2 + 4, str(packets), "", "middle")
            rows.append([flow.name, f"{ev:#010x}", planes[ev], packets, f"{ratio:.6f}"])
    chart.text(
        LEFT, height - 14,
        "Columns: T1 and replica of the EV, in hexadecimal. Cells: packets, stronger above an even share.",
        "note",
    )  # fmt: skip
    spread = _spread(rows)
    return Figure(
        "ev_share",
        "Share per entropy value",
        f"Data packets of each flow on each of its {len(values)} entropy values, retransmissions included. "
        + spread,
        chart.svg(),
        ["flow", "ev", "plane", "packets", "over_even_share"],
        rows,
        wide=True,
    )


def _heads(chart: Chart, order: list[int], planes: dict[int, int], cell: float) -> None:
    """Write the planes and, where they fit, the EVs above the columns."""
    for plane in sorted(set(planes.values())):
        columns = [column for column, ev in enumerate(order) if planes[ev] == plane]
        middle = LEFT + cell * (columns[0] + columns[-1] + 1) / 2
        chart.text(middle, 16, f"plane {plane}", "strong", "middle")
        left, right = LEFT + cell * columns[0] + 1, LEFT + cell * (columns[-1] + 1) - 1
        chart.add(f'<rect class="bar p{plane}" x="{left:.1f}" y="22" width="{right - left:.1f}" height="3"/>')
    if cell >= 28:
        for column, ev in enumerate(order):
            text = f"{ev >> 16 & 0xFF:x}.{ev & 0xFFFF:x}"
            chart.text(LEFT + cell * (column + 0.5), 39, text, "tick", "middle")


def _spread(rows: list[list[object]]) -> str:
    if not rows:
        return "Nothing was sent."
    ratios = [float(str(row[4])) for row in rows]
    return (
        f"The least used one carried {min(ratios):.2f} times its even share, the most used {max(ratios):.2f}."
    )
