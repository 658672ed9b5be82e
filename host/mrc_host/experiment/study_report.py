"""The report of a study: criteria first, then every metric of every case with its spread over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from mrc_host.experiment.definitions import DEFINITIONS
from mrc_host.experiment.summary import limits_text, value_text
from mrc_host.report.chart import CHART_STYLE
from mrc_host.report.figure import Figure

if TYPE_CHECKING:
    from mrc_host.experiment.study_verdicts import StudyResult

__all__ = ["study_report"]


def study_report(result: StudyResult, figures: Sequence[Figure] = ()) -> str:
    """Return the report as one HTML page that needs nothing else.

    Parameters
    ----------
    result : StudyResult
    figures : sequence of Figure
        Shown between criteria and metrics.
    """
    study = result.study
    style = files("mrc_host.report").joinpath("style.css").read_text(encoding="utf-8") + CHART_STYLE
    variant = f" ({escape(study.variant)})" if study.variant else ""
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><meta charset="utf-8"><title>{escape(study.name)}</title>',
            f"<style>{style}</style><body><main>",
            f"<h1>{escape(study.title or study.name)}{variant}</h1>",
            f"<p>{escape(study.description)}</p>",
            f"<p><strong>{result.verdict}</strong>: {len(result.points)} runs, {len(study.cases)} cases.</p>",
            f"<p><strong>{escape(result.unfinished)}</strong></p>",
            '<p>Figures over the settings in which the runs differ: <a href="sweep.html">sweep.html</a>.</p>',
            "<h2>Criteria</h2>",
            _criteria(result),
            *(f"<h2>{escape(item.title)}</h2>{item.svg}<p>{escape(item.caption)}</p>" for item in figures),
            "<h2>Metrics</h2>",
            "<p>Mean over the seeds, with the least and the greatest value where they differ.</p>",
            _metrics(result),
            "</main></body></html>",
            "",
        ]
    )


def _row(cells: list[str], tag: str = "td") -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def _criteria(result: StudyResult) -> str:
    rows = [_row(["case", "metric", "value", "bound", "verdict", "source of the bound"], "th")]
    rows += [
        _row(
            [
                escape(item.case),
                item.metric,
                escape(value_text(item.value)),
                escape(limits_text(dict(item.limits))),
                item.verdict,
                escape(item.source),
            ]
        )
        for item in result.judgements
    ]
    return "<table>" + "".join(rows) + "</table>"


def _metrics(result: StudyResult) -> str:
    cases = [case.name for case in result.study.cases]
    rows = [_row(["metric", *map(escape, cases)], "th")]
    for name, definition in DEFINITIONS.items():
        cells = [_spread(result.values(case, name), definition.unit) for case in cases]
        rows.append(_row([f'<span title="{escape(definition.text)}">{name}</span>', *cells]))
    return "<table>" + "".join(rows) + "</table>"


def _spread(values: list[float], unit: str) -> str:
    if not values:
        return "–"
    mean = escape(value_text(sum(values) / len(values), unit))
    if min(values) == max(values):
        return mean
    return f"{mean} ({escape(value_text(min(values)))} … {escape(value_text(max(values)))})"
