"""Reports of sweeps: metrics over the settings in which a set of runs differs, with bands over seeds."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from mrc_host.comparison.compare import Direction, direction_of
from mrc_host.errors import InfrastructureError, MrcError
from mrc_host.experiment.summary import value_text
from mrc_host.report.chart import CHART_STYLE, Chart, marker
from mrc_host.report.figure import Figure
from mrc_host.results import Run

__all__ = ["Sweep", "make_sweep_report", "sweep_of"]

PAGE, TABLE = "sweep.html", "sweep.csv"
FIGURES_AT_MOST = 12
SERIES_AT_MOST = 8
LABEL_WIDTH = 150


@dataclass(frozen=True)
class Sweep:
    """Runs by the settings in which they differ.

    Parameters
    ----------
    keys : tuple of str
        Dotted keys that differ, the one with most values first.
    points : dict of tuple to list of Run
        Runs by the values of the keys.
    metrics : tuple of str
        Metrics that differ between runs, those with a criterion or a better side first.
    """

    keys: tuple[str, ...]
    points: dict[tuple[Any, ...], list[Run]]
    metrics: tuple[str, ...]

    def values(self, point: tuple[Any, ...], metric: str) -> list[float]:
        """Return the values of a metric over the seeds of a point."""
        found = [run.value(metric) for run in self.points[point] if metric in run.metrics]
        return [float(value) for value in found if value is not None]


def sweep_of(runs: Sequence[Run]) -> Sweep:
    """Sort runs by the settings in which they differ.

    Raises
    ------
    MrcError
        No run was measured.
    """
    measured = [run for run in runs if (run.path / "metrics.json").is_file()]
    if not measured:
        raise MrcError("a sweep must hold a measured run, got none")
    every = sorted({key for run in measured for key in run.settings})
    different = [key for key in every if len({_hashable(run.settings.get(key)) for run in measured}) > 1]
    different = [key for key in different if key not in ("name", "title", "description")]
    counts = {key: len({_hashable(run.settings.get(key)) for run in measured}) for key in different}
    keys = tuple(sorted(different, key=lambda key: (-counts[key], key)))
    points: dict[tuple[Any, ...], list[Run]] = {}
    for run in measured:
        points.setdefault(tuple(_hashable(run.settings.get(key)) for key in keys), []).append(run)
    ordered = dict(sorted(points.items(), key=lambda item: [_order(value) for value in item[0]]))
    names = [
        name
        for name, metric in measured[0].metrics.items()
        if len({run.metrics[name].value for run in measured if name in run.metrics}) > 1
    ]
    first = measured[0].metrics
    names.sort(key=lambda name: (not first[name].limits, direction_of(name) is Direction.NONE))
    return Sweep(keys, ordered, tuple(names))


def make_sweep_report(runs: Sequence[Run], folder: Path) -> Path:
    """Write ``sweep.html``, its table as CSV, and its figures; returns the page.

    Raises
    ------
    MrcError
        No run was measured.
    InfrastructureError
        The folder cannot be written.
    """
    sweep = sweep_of(runs)
    figures = [_figure(sweep, metric) for metric in sweep.metrics[:FIGURES_AT_MOST]]
    environment = Environment(
        loader=PackageLoader("mrc_host.report", ""),
        autoescape=select_autoescape(["j2", "html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("sweep.html.j2").render(
        style=environment.get_template("style.css").render() + CHART_STYLE,
        name=folder.name,
        sweep=sweep,
        figures=figures,
        verdicts=_verdicts(sweep),
        rows=[_row(sweep, point) for point in sweep.points],
        shown=sweep.metrics[:FIGURES_AT_MOST],
        runs=sum(len(found) for found in sweep.points.values()),
    )
    try:
        (folder / "plots").mkdir(parents=True, exist_ok=True)
        for figure in figures:
            (folder / "plots" / f"{figure.name}.svg").write_text(figure.standalone_svg(), encoding="utf-8")
            (folder / "plots" / f"{figure.name}.csv").write_text(figure.csv_text(), encoding="utf-8")
        (folder / TABLE).write_text(_csv(sweep), encoding="utf-8")
        (folder / PAGE).write_text(page, encoding="utf-8")
    except OSError as error:
        raise InfrastructureError(f"{folder} must be a folder that can be written, got: {error}") from error
    return folder / PAGE


def _figure(sweep: Sweep, metric: str) -> Figure:
    """Median and range over seeds against the first key, a line for each combination of the others."""
    places, numeric = _places(sweep)
    lines: dict[tuple[Any, ...], list[tuple[float, list[float]]]] = {}
    for point in sweep.points:
        values = sweep.values(point, metric)
        if values:
            lines.setdefault(point[1:], []).append((places[point[:1]], values))
    every = [value for line in lines.values() for _, values in line for value in values]
    low, high = min(every), max(every)
    margin = (high - low) * 0.1 or abs(high) * 0.1 or 1.0
    inside = sorted(places.values())
    gap = max(inside[-1] - inside[0], 1e-9) * 0.06
    definition = next(iter(sweep.points.values()))[0].metrics[metric]
    unit = "" if definition.unit == "1" else f" ({definition.unit})"
    chart = Chart(
        metric, sweep.keys[0] if sweep.keys else "", f"{metric}{unit}",
        (inside[0] - gap, inside[-1] + gap), (low - margin, high + margin),
        height=320, right=LABEL_WIDTH if len(lines) > 1 else 24,
    )  # fmt: skip
    chart.y_axis()
    taken: list[float] = []
    for number, (others, line) in enumerate(lines.items()):
        _draw_line(chart, number, line, numeric)
        if len(lines) > 1 and number < SERIES_AT_MOST:
            x, values = line[-1]
            y = chart.y(float(np.median(values)))
            while any(abs(y - other) < 13 for other in taken):
                y += 13
            taken.append(y)
            text = ", ".join(_text(value) for value in others)
            chart.text(chart.x(x) + 10, y + 4, text, "note halo")
    if numeric:
        chart.x_axis()
    else:
        chart.x_axis_names({place: _text(point[0]) if point else "all" for point, place in places.items()})
    return Figure(
        metric,
        metric,
        definition.definition + " Line: median over seeds; band: from the least to the largest seed.",
        chart.svg(),
        [*sweep.keys, "runs", "least", "median", "largest"],
        [
            [
                *point,
                len(values),
                f"{min(values):.9g}",
                f"{float(np.median(values)):.9g}",
                f"{max(values):.9g}",
            ]
            for point in sweep.points
            if (values := sweep.values(point, metric))
        ],
    )


def _draw_line(chart: Chart, number: int, line: list[tuple[float, list[float]]], numeric: bool) -> None:
    kind = f"p{number % SERIES_AT_MOST}"
    xs = [x for x, _ in line]
    medians = [float(np.median(values)) for _, values in line]
    lows, highs = [min(values) for _, values in line], [max(values) for _, values in line]
    if numeric and len(xs) > 1:
        chart.band(xs, lows, highs, f"band {kind}", "from the least to the largest seed")
        chart.polyline(xs, medians, f"line {kind}")
    for x, low, middle, high in zip(xs, lows, medians, highs, strict=True):
        chart.add(f'<path class="line {kind}" d="M{chart.x(x):.1f} {chart.y(low):.1f}V{chart.y(high):.1f}"/>')
        title = f"{middle:.6g} ({low:.6g} to {high:.6g})"
        chart.add(marker(chart.x(x), chart.y(middle), number, 4.5, f"mark {kind}", title))


def _places(sweep: Sweep) -> tuple[dict[tuple[Any, ...], float], bool]:
    """Return where the values of the first key stand on the x axis, and whether they are numbers."""
    firsts = list(dict.fromkeys(point[:1] for point in sweep.points))
    numeric = all(
        point and isinstance(point[0], int | float) and not isinstance(point[0], bool) for point in firsts
    )
    if numeric:
        return {point: float(point[0]) for point in firsts}, True
    return {point: float(place) for place, point in enumerate(firsts)}, False


def _verdicts(sweep: Sweep) -> list[tuple[str, int]]:
    found = [run.verdict for runs in sweep.points.values() for run in runs]
    return [(verdict, found.count(verdict)) for verdict in sorted(set(found))]


def _row(sweep: Sweep, point: tuple[Any, ...]) -> dict[str, Any]:
    runs = sweep.points[point]
    cells = []
    for metric in sweep.metrics[:FIGURES_AT_MOST]:
        values = sweep.values(point, metric)
        cells.append(value_text(float(np.median(values))) if values else "–")
    return {
        "settings": [_text(value) for value in point],
        "runs": len(runs),
        "passed": sum(run.verdict == "PASS" for run in runs),
        "cells": cells,
    }


def _csv(sweep: Sweep) -> str:
    """Return every run as a row: settings that differ, seed, verdict, all metrics."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    metrics = list(next(iter(sweep.points.values()))[0].metrics)
    writer.writerow([*sweep.keys, "seed", "verdict", "run", *metrics])
    for point, runs in sweep.points.items():
        for run in sorted(runs, key=lambda run: run.seed):
            values = [run.metrics[name].value if name in run.metrics else None for name in metrics]
            writer.writerow([*point, run.seed, run.verdict, run.path.name, *values])
    return stream.getvalue()


def _hashable(value: Any) -> Any:
    return tuple(_hashable(item) for item in value) if isinstance(value, list) else value


def _order(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def _text(value: Any) -> str:
    return "(default)" if value is None else str(value)
