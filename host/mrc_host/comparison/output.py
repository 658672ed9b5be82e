"""A comparison as text for the terminal and as a page that opens offline."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from mrc_host.comparison.compare import (
    PAIRS_TO_JUDGE,
    Comparison,
    Difference,
    Direction,
    Judgement,
    direction_of,
)
from mrc_host.comparison.figures import completion_figure, ratio_figure
from mrc_host.errors import InfrastructureError
from mrc_host.experiment.definitions import DEFINITIONS
from mrc_host.experiment.rundir import canonical_json
from mrc_host.experiment.summary import value_text
from mrc_host.report.chart import CHART_STYLE

__all__ = ["comparison_text", "write_comparison"]

PAGE, DATA, TABLE = "compare.html", "compare.json", "compare.csv"
TEMPLATES = [Path(__file__).parent, Path(__file__).parents[1] / "report"]
SHOWN_FIRST = (Judgement.WORSE, Judgement.BETTER, Judgement.CHANGED)


def comparison_text(comparison: Comparison) -> str:
    """Return the comparison as text of at most 110 columns."""
    lines = [
        f"{comparison.first.name} (first) against {comparison.second.name} (second): {_pairing(comparison)}"
    ]
    lines += [
        f"  left out: {text}" for side in (comparison.first, comparison.second) for text in side.left_out
    ]
    if comparison.settings:
        lines.append("settings that differ:")
        lines += [f"  {key}: {first} → {second}" for key, first, second in comparison.settings]
    else:
        lines.append("settings that differ: none but the seed")
    same = comparison.judged(Judgement.SAME)
    told = [d for d in comparison.differences if d.judgement not in (Judgement.SAME, Judgement.MISSING)]
    told.sort(
        key=lambda d: SHOWN_FIRST.index(d.judgement) if d.judgement in SHOWN_FIRST else len(SHOWN_FIRST)
    )
    if told:
        lines += [
            "",
            f"{'metric':<28}{'first':>13}{'second':>13}  {'second/first or difference':<34} judgement",
        ]
        lines += [
            f"{d.metric:<28}{value_text(d.first):>13}{value_text(d.second):>13}  "
            f"{interval_text(d):<34} {d.judgement.value}"
            for d in told
        ]
    if same:
        lines += ["", f"equal in every pair: {', '.join(d.metric for d in same)}"]
    missing = comparison.judged(Judgement.MISSING)
    if missing:
        lines.append(f"without a value: {', '.join(d.metric for d in missing)}")
    lines += ["", comparison.verdict]
    return "\n".join(lines)


def write_comparison(comparison: Comparison, folder: Path) -> Path:
    """Write ``compare.html``, its data as JSON and CSV, and its figures; returns the page.

    Raises
    ------
    InfrastructureError
        The folder cannot be written.
    """
    figures = [ratio_figure(comparison), completion_figure(comparison)]
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(["j2", "html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = environment.get_template("style.css").render() + CHART_STYLE
    rows = [_row(difference) for difference in comparison.differences]
    page = environment.get_template("compare.html.j2").render(
        style=style,
        comparison=comparison,
        pairing=_pairing(comparison),
        rows=rows,
        figures=figures,
        counts=_counts(comparison),
    )
    try:
        (folder / "plots").mkdir(parents=True, exist_ok=True)
        for figure in figures:
            (folder / "plots" / f"{figure.name}.svg").write_text(figure.standalone_svg(), encoding="utf-8")
            (folder / "plots" / f"{figure.name}.csv").write_text(figure.csv_text(), encoding="utf-8")
        (folder / DATA).write_text(canonical_json(_document(comparison)), encoding="utf-8")
        (folder / TABLE).write_text(_csv(comparison), encoding="utf-8")
        (folder / PAGE).write_text(page, encoding="utf-8")
    except OSError as error:
        raise InfrastructureError(f"{folder} must be a folder that can be written, got: {error}") from error
    return folder / PAGE


def interval_text(difference: Difference) -> str:
    """Return estimate and interval of a difference; ratios with ×, differences with their sign."""
    interval = difference.interval
    if interval is None:
        return ""
    if difference.relative:
        return f"× {interval.estimate:.4f} ({interval.low:.4f} to {interval.high:.4f})"
    return f"{interval.estimate:+.4g} ({interval.low:+.4g} to {interval.high:+.4g})"


def _pairing(comparison: Comparison) -> str:
    if comparison.paired:
        seeds = ", ".join(map(str, comparison.seeds))
        count = len(comparison.seeds)
        text = f"{count} pairs by seed ({seeds})" if count > 1 else f"one pair, seed {seeds}"
    else:
        counts = [len(side.runs) for side in (comparison.first, comparison.second)]
        count = min(counts)
        text = f"no common seed; {counts[0]} and {counts[1]} runs as independent samples"
    if count < PAIRS_TO_JUDGE:
        text += f"; differences are judged from {PAIRS_TO_JUDGE} on"
    return text


def _row(difference: Difference) -> dict[str, Any]:
    definition = DEFINITIONS.get(difference.metric)
    judged = difference.pairs and direction_of(difference.metric) is not Direction.NONE
    return {
        "name": difference.metric,
        "definition": definition.text if definition else "",
        "first": value_text(difference.first, difference.unit),
        "second": value_text(difference.second, difference.unit),
        "interval": interval_text(difference),
        "better": f"{difference.second_better} of {len(difference.pairs)}" if judged else "",
        "judgement": difference.judgement.value,
        "kind": {Judgement.WORSE: "fail", Judgement.BETTER: "pass", Judgement.CHANGED: "open"}.get(
            difference.judgement, "plain"
        ),
    }


def _counts(comparison: Comparison) -> list[tuple[str, int]]:
    return [
        (judgement.value, len(found)) for judgement in Judgement if (found := comparison.judged(judgement))
    ]


def _document(comparison: Comparison) -> dict[str, Any]:
    return {
        "first": {"name": comparison.first.name, "runs": [str(run.path) for run in comparison.first.runs]},
        "second": {"name": comparison.second.name, "runs": [str(run.path) for run in comparison.second.runs]},
        "paired": comparison.paired,
        "seeds": comparison.seeds,
        "tolerance": comparison.tolerance,
        "settings": [list(row) for row in comparison.settings],
        "verdict": comparison.verdict,
        "differences": {
            d.metric: {
                "unit": d.unit,
                "first": d.first,
                "second": d.second,
                "relative": d.relative,
                "estimate": d.interval and d.interval.estimate,
                "low": d.interval and d.interval.low,
                "high": d.interval and d.interval.high,
                "judgement": d.judgement.value,
                "pairs": [list(pair) for pair in d.pairs],
            }
            for d in comparison.differences
        },
    }


def _csv(comparison: Comparison) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["metric", "unit", "first", "second", "relative", "estimate", "low", "high", "judgement"])
    for d in comparison.differences:
        bounds = (
            ["", "", ""] if d.interval is None else [d.interval.estimate, d.interval.low, d.interval.high]
        )
        writer.writerow([d.metric, d.unit, d.first, d.second, int(d.relative), *bounds, d.judgement.value])
    return stream.getvalue()
