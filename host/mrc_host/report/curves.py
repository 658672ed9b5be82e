"""Trade-offs of a study: one metric against another along each sweep, on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mrc_host.experiment.definitions import DEFINITIONS
from mrc_host.report.chart import Chart, marker
from mrc_host.report.figure import Figure

if TYPE_CHECKING:
    from mrc_host.experiment.study_verdicts import StudyResult

__all__ = ["curve_figures"]

LABEL_WIDTH = 150
LINE_HEIGHT = 13


def curve_figures(result: StudyResult) -> list[Figure]:
    """Return a figure for each curve of a study: a line for each swept case, a mark for each of its values.

    Values are means over the seeds; a value of zero stands on the edge of the chart, marked 0.

    Parameters
    ----------
    result : StudyResult
        Points of which none has a value for one of the metrics are left out.
    """
    return [_figure(result, item.x, item.y) for item in result.study.curves]


def _figure(result: StudyResult, x_name: str, y_name: str) -> Figure:
    lines: dict[str, list[tuple[str, float, float]]] = {}
    for case in result.study.cases:
        x, y = result.mean(case.name, x_name), result.mean(case.name, y_name)
        if x is not None and y is not None:
            swept, _, value = case.name.partition("/")
            lines.setdefault(swept, []).append((value, x, y))
    points = [point for line in lines.values() for point in line]
    x_axis, y_axis = _Axis([point[1] for point in points]), _Axis([point[2] for point in points])
    chart = Chart(
        f"{y_name} against {x_name}", _label(x_name), _label(y_name), x_axis.limits, y_axis.limits,
        width=760, height=440, right=LABEL_WIDTH,
    )  # fmt: skip
    chart.y_axis_names(y_axis.names)
    chart.x_axis_names(x_axis.names)
    taken: list[tuple[float, float]] = []
    for number, (name, line) in enumerate(lines.items()):
        places = [(x_axis.place(of_x), y_axis.place(of_y)) for _, of_x, of_y in line]
        kind = f"p{number % 8}"
        chart.polyline([place[0] for place in places], [place[1] for place in places], f"line {kind}", name)
        for (value, of_x, of_y), (at_x, at_y) in zip(line, places, strict=True):
            title = f"{name} {value}: {of_x:.4g}, {of_y:.4g}"
            chart.add(marker(chart.x(at_x), chart.y(at_y), number, 4.5, f"mark {kind}", title))
        at_x, at_y = places[-1]
        left, top = chart.x(at_x) + 9, chart.y(at_y) + 4
        while any(abs(left - px) < LABEL_WIDTH and abs(top - py) < LINE_HEIGHT for px, py in taken):
            top -= LINE_HEIGHT
        taken.append((left, top))
        chart.text(left, top, name, "note halo")
    rows = [
        (name, value, f"{of_x:.9g}", f"{of_y:.9g}")
        for name, line in lines.items()
        for value, of_x, of_y in line
    ]
    return Figure(
        f"curve-{x_name}-{y_name}",
        f"{y_name} against {x_name}",
        f"{DEFINITIONS[y_name].text} Against: {DEFINITIONS[x_name].text} Means over the seeds; the label of "
        "a line stands at the last value of its sweep.",
        chart.svg(),
        ["case", "value", x_name, y_name],
        rows,
    )


def _label(metric: str) -> str:
    unit = DEFINITIONS[metric].unit
    return metric if unit == "1" else f"{metric} ({unit})"


class _Axis:
    """A logarithmic axis with a place for zero.

    Parameters
    ----------
    values : sequence of float
        What is drawn on it; none is negative.
    """

    def __init__(self, values: Sequence[float]) -> None:
        positive = [value for value in values if value > 0] or [1.0]
        low, high = math.log10(min(positive)), math.log10(max(positive))
        margin = 0.05 * (high - low) + 0.05
        self._zero = low - 3 * margin
        has_zero = any(value == 0 for value in values)
        self.limits = (self._zero - margin / 2 if has_zero else low - margin, high + margin)
        powers = range(math.floor(low), math.ceil(high) + 1)
        steps = (1,) if high - low > 3 else (1, 2, 5)
        marks = [step * 10.0**power for power in powers for step in steps]
        self.names = {
            math.log10(mark): f"{mark:g}"
            for mark in marks
            if low - margin <= math.log10(mark) <= high + margin
        }
        if has_zero:
            self.names[self._zero] = "0"

    def place(self, value: float) -> float:
        """Return where a value stands."""
        return math.log10(value) if value > 0 else self._zero
