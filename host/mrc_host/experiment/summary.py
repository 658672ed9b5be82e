"""What remains on the screen after a run: criteria, and where the report is."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from mrc_host.experiment.metrics import Metric
from mrc_host.experiment.runner import RunResult

__all__ = ["limits_text", "print_summary", "value_text", "waiting_lines"]

FLOWS_SHOWN = 12

WORDS = {"equals": "=", "at_least": "≥", "at_most": "≤"}
STYLES = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow", "ERROR": "bold red"}


def value_text(value: float | None, unit: str = "1") -> str:
    """Return a value as people read it, with its unit."""
    if value is None:
        return "–"
    if float(value).is_integer() and abs(value) < 1e15:
        number = f"{int(value):,}".replace(",", "\u202f")
    else:
        number = f"{value:.4g}"
    unit = unit.removesuffix("s") if value == 1 and unit.endswith("s") else unit
    return number if unit == "1" else f"{number} {unit}"


def limits_text(limits: dict[str, object]) -> str:
    """Return the bounds of a criterion, such as ``≥ 0.95``."""
    bounds = [(WORDS[name], value) for name, value in limits.items() if name in WORDS]
    return ", ".join(
        f"{word} {value_text(value)}" for word, value in bounds if isinstance(value, int | float)
    )


def print_summary(result: RunResult, console: Console | None = None) -> None:
    """Print verdicts and the place of the report."""
    console = console or Console()
    judged: dict[str, Metric] = {name: m for name, m in result.metrics.items() if m.limits}
    if judged:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column, justify in (("criterion", "left"), ("value", "right"), ("bound", "left"), ("", "left")):
            table.add_column(column, justify="right" if justify == "right" else "left", no_wrap=True)
        for name, metric in judged.items():
            verdict = metric.verdict or ""
            table.add_row(
                name,
                value_text(metric.value, metric.unit),
                limits_text(metric.limits),
                f"[{STYLES[verdict]}]{verdict}[/]",
            )
        console.print(table)
    state = "" if result.complete else " (partial: the run did not finish)"
    console.print(f"[{STYLES[result.verdict]}]{result.verdict}[/]{state}  ", end="")
    console.print(str(result.directory / "report.html"), soft_wrap=True, highlight=False)
    document = json.loads((result.directory / "run.json").read_text(encoding="utf-8"))
    for line in waiting_lines(document, str(result.directory)):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def waiting_lines(document: dict[str, Any], directory: str) -> list[str]:
    """Return a line for each flow that did not finish: what it waits for, and which command tells more."""
    lines = []
    for flow in (document.get("unfinished") or [])[:FLOWS_SHOWN]:
        done = f"{flow['completed']} of {flow['messages']} messages"
        lines.append(f"{flow['flow']}: {done}, waits for {flow['waits_for']}")
    rest = len(document.get("unfinished") or []) - FLOWS_SHOWN
    if rest > 0:
        lines.append(f"{rest} more flows did not finish: run.json names them")
    known = [flow for flow in document.get("unfinished") or [] if flow["psn"] is not None]
    if known:
        host = known[0]["flow"].split("→")[0]
        lines.append(
            f"mrc why {directory} --qp {host}:{known[0]['qp']:#x} --psn {known[0]['psn']:#08x} tells more"
        )
    return lines
