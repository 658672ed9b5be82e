"""Repeats a recorded run and compares every number and row: a simulation must come to the same again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrc_host.errors import MrcError
from mrc_host.experiment.nics import NicFactory
from mrc_host.experiment.progress import ProgressView
from mrc_host.experiment.provenance import source_state
from mrc_host.experiment.runner import run_experiment
from mrc_host.experiment.testbed import Testbed
from mrc_host.life.rerun import factory_of
from mrc_host.results import Run

__all__ = ["Replay", "replay", "replay_text"]

COMPARED = ("packets", "messages", "events", "queues")
"""Tables that must be equal, row by row; those of a finer grain first."""


@dataclass(frozen=True)
class Replay:
    """A run and its repetition.

    Parameters
    ----------
    first, again : Run
    metrics : list of (name, value, value again)
        Metrics that differ.
    rows : list of str
        The first difference in each table that differs.
    sources : list of str
        What differs in the sources and tools, which may explain it.
    """

    first: Run
    again: Run
    metrics: list[tuple[str, Any, Any]]
    rows: list[str]
    sources: list[str]

    @property
    def same(self) -> bool:
        """Whether everything is equal, bit for bit."""
        return not self.metrics and not self.rows


def replay(
    run: Run,
    *,
    out: Path | None = None,
    factory: NicFactory | None = None,
    view: ProgressView | None = None,
    argv: Sequence[str] = (),
    prepare: Callable[[Testbed], None] | None = None,
) -> Replay:
    """Repeat a run in a new directory and compare.

    Parameters
    ----------
    run : Run
    out : Path, optional
        The new run directory; ``runs/<UTC>-<name>`` by default.
    factory : callable, optional
        Makes the NICs, for runs whose NICs were neither gateware nor models.
    view : ProgressView, optional
        Shows what goes on.
    argv : sequence of str
        Kept in the new run.
    prepare : callable, optional
        Called with the testbed when it is ready to run.

    Raises
    ------
    MrcError
        The run was interrupted or never measured, or its NICs cannot be made again.
    """
    if run.document.get("interrupted"):
        raise MrcError(f"{run.path} must be a run that was not interrupted: another one stops somewhere else")
    before = run.metrics
    result = run_experiment(
        run.experiment,
        out=out,
        nic_factory=factory or factory_of(run),
        view=view,
        argv=argv,
        prepare=prepare,
    )
    again = Run(result.directory)
    metrics = [
        (name, before[name].value if name in before else None, entry.value)
        for name, entry in again.metrics.items()
        if name not in before or before[name].value != entry.value
    ]
    metrics += [(name, before[name].value, None) for name in before if name not in again.metrics]
    rows = [text for name in COMPARED if (text := _first_difference(run, again, name))]
    return Replay(run, again, metrics, rows, _sources(run))


def _first_difference(run: Run, again: Run, table: str) -> str:
    """Describe the first row in which two tables differ; empty when they are equal."""
    if not (run.path / f"{table}.parquet").is_file():
        return ""
    first, second = run.table(table), again.table(table)
    if first.equals(second):
        return ""
    if first.column_names != second.column_names:
        return f"{table}: other columns, {first.column_names} and {second.column_names}"
    for number in range(min(len(first), len(second))):
        one, other = first.slice(number, 1).to_pylist()[0], second.slice(number, 1).to_pylist()[0]
        if one != other and not _both_nan(one, other):
            return f"{table}: row {number} was {one} and is {other}"
    return f"{table}: {len(first)} rows before, {len(second)} now; as far as both go they are equal"


def _both_nan(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(a == b or (a != a and b != b) for a, b in zip(one.values(), other.values(), strict=True))


def _sources(run: Run) -> list[str]:
    """Say what differs between the sources a run was made with and those of now."""
    before, now = run.document.get("source") or {}, source_state() or {}
    found = []
    if before.get("commit") != now.get("commit"):
        found.append(f"commit {str(before.get('commit'))[:12]} then, {str(now.get('commit'))[:12]} now")
    if before.get("diff_sha256") != now.get("diff_sha256"):
        found.append("other local changes")
    return found


def replay_text(outcome: Replay) -> str:
    """Return the outcome as text."""
    if outcome.same:
        lines = [
            f"the same again, bit for bit: {len(outcome.again.metrics)} metrics and every row of the tables"
        ]
    else:
        lines = [f"{name}: {value} before, {now} now" for name, value, now in outcome.metrics]
        lines += [f"first difference in {text}" for text in outcome.rows]
        lines += [f"the sources differ: {text}" for text in outcome.sources]
        if not outcome.sources:
            lines.append("the sources are the same: this is a mistake in mrc-testbed")
    return "\n".join([*lines, str(outcome.again.path)])
