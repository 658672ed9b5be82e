"""Figures of a comparison: ratios with their intervals, and completion times of both sides."""

from __future__ import annotations

from collections.abc import Sequence

from mrc_host.comparison.compare import Comparison, Difference, Judgement, Side
from mrc_host.report.chart import Chart, marker
from mrc_host.report.figure import Figure

__all__ = ["completion_figure", "ratio_figure"]

ROW = 24
LABELS = 250
WIDTH = 1240
WORDS = 190
SHAPES = {Judgement.BETTER: 1, Judgement.WORSE: 2, Judgement.CHANGED: 3}
"""Marks by judgement: triangle, square, diamond; all others are circles."""


def ratio_figure(comparison: Comparison) -> Figure:
    """Ratio of the second side to the first for each metric, with the interval of its median."""
    shown = [
        difference
        for difference in comparison.differences
        if difference.relative and difference.interval is not None and difference.judgement != Judgement.SAME
    ]
    spread = max(
        [0.02, comparison.tolerance * 1.5]
        + [abs(bound - 1) for d in shown if d.interval for bound in (d.interval.low, d.interval.high)]
    )
    reach = min(1.0, spread * 1.08)
    chart = Chart(
        "Ratios of metrics", f"{comparison.second.name} / {comparison.first.name}", "",
        (1 - reach, 1 + reach), (0, 1), width=WIDTH, height=70 + ROW * max(1, len(shown)), left=LABELS,
        right=WORDS,
    )  # fmt: skip
    top, bottom = 14, 28 + ROW * max(1, len(shown))
    if comparison.tolerance:
        left, right = (chart.x(1 + sign * comparison.tolerance) for sign in (-1, 1))
        chart.add(
            f'<rect class="span" x="{left:.1f}" y="{top}" '
            f'width="{right - left:.1f}" height="{bottom - top}"/>'
        )
    chart.add(f'<path class="base" d="M{chart.x(1):.1f} {top}V{bottom}"/>')
    for number, difference in enumerate(shown):
        _row(chart, difference, 28 + ROW * number, reach)
    if not shown:
        chart.text(WIDTH / 2, 34, "no metric that has a ratio differs", "note", "middle")
    chart.x_axis(8)
    return Figure(
        "ratios",
        "Ratios of metrics",
        f"Median of {comparison.second.name} over {comparison.first.name}, line: its 95 % interval. Metrics "
        "that are equal in every pair or can be 0 are only in the table. ▲ better, ■ worse, ◆ changed, "
        "● nothing shown; shaded: the tolerance.",
        chart.svg(),
        ["metric", "ratio", "low", "high", "judgement"],
        [
            [d.metric, f"{d.interval.estimate:.9g}", f"{d.interval.low:.9g}", f"{d.interval.high:.9g}",
             d.judgement.value]
            for d in shown
            if d.interval is not None
        ],
        wide=True,
    )  # fmt: skip


def _row(chart: Chart, difference: Difference, y: int, reach: float) -> None:
    interval = difference.interval
    assert interval is not None
    low, middle, high = (
        chart.x(min(1 + reach, max(1 - reach, value)))
        for value in (interval.low, interval.estimate, interval.high)
    )
    chart.text(LABELS - 12, y + 4, difference.metric, "", "end")
    chart.add(f'<path class="line" d="M{low:.1f} {y}H{high:.1f}"/>')
    for place in (low, high):
        chart.add(f'<path class="line" d="M{place:.1f} {y - 4}V{y + 4}"/>')
    title = f"{difference.metric}: {interval.estimate:.4g} ({interval.low:.4g} to {interval.high:.4g})"
    chart.add(marker(middle, y, SHAPES.get(difference.judgement, 0), 5.0, "mark", title))
    text = f"{interval.estimate:.4f} · {difference.judgement.value}"
    chart.text(WIDTH - WORDS + 12, y + 4, text, "note")


def completion_figure(comparison: Comparison) -> Figure:
    """Distribution of flows' completion times over their bounds, all seeds together, one line per side."""
    sides = [(side, _ratios(side)) for side in (comparison.first, comparison.second)]
    every = [ratio for _, ratios in sides for ratio in ratios]
    low, high = (min(every), max(every)) if every else (0.0, 1.0)
    margin = max(1e-3, (high - low) * 0.05)
    chart = Chart(
        "Completion times of flows", "completion time / bound", "share of flows (%)",
        (low - margin, high + margin), (0, 105), width=WIDTH, height=300,
    )  # fmt: skip
    chart.y_axis()
    rows: list[list[object]] = []
    for number, (side, ratios) in enumerate(sides):
        xs = [low - margin, *ratios, high + margin]
        ys = [100 * place / max(1, len(ratios)) for place in range(len(ratios) + 1)]
        chart.steps(xs, [*ys, ys[-1]], f"line side{number}", side.name)
        rows += [[side.name, f"{ratio:.9g}"] for ratio in ratios]
    if not every:
        chart.text(WIDTH / 2, 150, "no flow with a bound completed", "note", "middle")
    chart.x_axis(8)
    return Figure(
        "completions",
        "Completion times of flows over their bounds",
        f"All flows of all seeds. Solid: {comparison.first.name}, dashed: {comparison.second.name}.",
        chart.svg(),
        ["side", "completion_over_bound"],
        rows,
        wide=True,
    )


def _ratios(side: Side) -> Sequence[float]:
    return sorted(
        flow["fct_us"] / flow["fct_bound_us"]
        for run in side.runs
        for flow in run.flows
        if flow.get("fct_bound_us")
    )
