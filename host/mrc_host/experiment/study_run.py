"""Runs all points of a study (a case with a seed), puts their metrics together, and judges.

The directory of a study holds

==================  ====================================================================================
``run.json``        verdict, variant, cases, seeds, versions; ``kind: study``
``metrics.json``    the metrics of the first case, mean over its seeds, with minimum, median and maximum
``criteria.json``   every criterion of every case, and every comparison, with value, bound and verdict
``points.csv``      a row for each case and seed: the values of the sweep and every metric
``report.html``     criteria and metrics for people
``sweep.html``      metrics over the settings in which the runs differ, with bands over seeds
``plots/``          ``curve-X-Y.svg`` and ``.csv``, the figures that ``curves`` asks for
``points/``         the directory of each run, without its tables; ``mrc replay`` makes them
==================  ====================================================================================

Points do not depend on each other: the result is the same whatever the number of processes.

Source: experiments.md 1; lab.md 5 (deterministic simulation varies the seed).
"""

from __future__ import annotations

import csv
import io
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich.console import Console
from rich.table import Table

from mrc_host.errors import ConfigError
from mrc_host.experiment.definitions import DEFINITIONS
from mrc_host.experiment.nics import NicKinds
from mrc_host.experiment.provenance import machine, source_state, tool_versions
from mrc_host.experiment.rundir import RunDirectory, utc_now
from mrc_host.experiment.runner import EXIT_CODES, run_experiment
from mrc_host.experiment.schema import Experiment
from mrc_host.experiment.study import Case, Study, load_study
from mrc_host.experiment.study_verdicts import ERROR, Point, StudyResult, judge_study
from mrc_host.experiment.summary import STYLES, value_text
from mrc_host.report.curves import curve_figures

__all__ = ["run_points", "run_study", "study_of"]

SCHEMA_VERSION = 1


def study_of(
    file: Path,
    kinds: NicKinds,
    overrides: Iterable[str] = (),
    *,
    seed: int | None = None,
    variant: str | None = None,
    cases: Sequence[str] = (),
) -> Study:
    """Read a study as it will run on NICs of some kinds: gateware takes the variant ``f`` by default.

    Raises
    ------
    ConfigError, MrcError
        As :func:`~mrc_host.experiment.study.load_study`.
    """
    if variant is None and kinds.has_gateware:
        try:
            study = load_study(file, overrides, variant="f", seed=seed)
        except ConfigError as error:
            if error.path != "variants":
                raise
            study = load_study(file, overrides, seed=seed)
    else:
        study = load_study(file, overrides, variant=variant, seed=seed)
    return study.with_cases(cases) if cases else study


def _run_point(task: tuple[str, Experiment, Path, str]) -> Point:
    case, described, path, kinds = task
    # One thread: processes share the cores, and the result does not depend on it.
    experiment = described.model_copy(update={"runner": described.runner.model_copy(update={"jobs": 1})})
    try:
        result = run_experiment(experiment, out=path, nic_factory=NicKinds.parse(kinds), records=False)
    except ConfigError as error:
        # A fault or action that met nothing: the rest was measured all the same.
        return Point(case, experiment.seed, ERROR, False, {}, str(error))
    metrics = {name: metric.as_dict() for name, metric in result.metrics.items()}
    return Point(case, experiment.seed, result.verdict, result.complete, metrics)


def run_points(
    study: Study, folder: Path, kinds: NicKinds, jobs: int, told: Callable[[Point], None] = lambda point: None
) -> list[Point]:
    """Run every point of a study.

    Parameters
    ----------
    study : Study
    folder : Path
        Gets a directory for each.
    kinds : NicKinds
        What NICs are made of.
    jobs : int
        Processes.
    told : callable
        Called with each point, in order.
    """
    tasks = [
        (case.name, experiment, folder / _file_name(case) / f"seed{experiment.seed}", kinds.text)
        for case in study.cases
        for experiment in case.experiments
    ]
    points = []
    for point in _carried_out(tasks, jobs):
        points.append(point)
        told(point)
    return points


def _carried_out(tasks: list[tuple[str, Experiment, Path, str]], jobs: int) -> Iterator[Point]:
    if jobs == 1 or len(tasks) == 1:
        yield from map(_run_point, tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_run_point, tasks)


def _file_name(case: Case) -> str:
    return case.name.replace("/", "_").replace(" ", "")


def run_study(
    file: Path,
    out: Path | None,
    kinds: NicKinds,
    overrides: Iterable[str] = (),
    *,
    seed: int | None = None,
    jobs: int = 2,
    variant: str | None = None,
    cases: Sequence[str] = (),
    argv: Sequence[str] = (),
    console: Console | None = None,
) -> int:
    """Run a study, write its directory, print the verdicts, and return the exit code of ``mrc run``.

    Parameters
    ----------
    file : Path
        The study.
    out : Path, optional
        Its directory, new or empty; ``runs/<UTC>-<name>`` by default.
    kinds : NicKinds
        What NICs are made of.
    overrides, seed, variant, cases
        As :func:`study_of`.
    jobs : int
        Processes.
    argv : sequence of str
        The command line, kept in ``run.json``.
    console : rich.Console, optional
        For the summary.

    Raises
    ------
    ConfigError, MrcError, InfrastructureError
        The study is wrong, or a run failed for a reason outside of it.
    """
    from mrc_host.experiment.study_report import study_report
    from mrc_host.report.sweep import make_sweep_report
    from mrc_host.results import Run

    console = console or Console()
    study = study_of(file, kinds, overrides, seed=seed, variant=variant, cases=cases)
    directory = RunDirectory(out) if out is not None else RunDirectory.create(study.name)
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": "study",
        "name": study.name,
        "variant": study.variant,
        "nic": kinds.text,
        "complete": False,
        "verdict": None,
        "argv": list(argv),
        "started": utc_now(),
        "cases": {case.name: case.settings for case in study.cases},
        "seeds": {case.name: [item.seed for item in case.experiments] for case in study.cases},
        "source": source_state(),
        "versions": tool_versions(),
        "machine": machine(),
    }
    directory.write_json("run.json", document)
    directory.write_text("study.yaml", file.read_text(encoding="utf-8"))
    try:
        points = run_points(
            study,
            directory.path / "points",
            kinds,
            jobs,
            lambda point: directory.journal.write(
                "point", case=point.case, seed=point.seed, verdict=point.verdict, error=point.error
            ),
        )
        result = judge_study(study, points)
        directory.write_json("metrics.json", summary_metrics(result))
        directory.write_json("criteria.json", [asdict(item) for item in result.judgements])
        directory.write_text("points.csv", points_csv(result))
        figures = curve_figures(result)
        for figure in figures:
            directory.write_text(f"plots/{figure.name}.svg", figure.standalone_svg())
            directory.write_text(f"plots/{figure.name}.csv", figure.csv_text())
        directory.write_text("report.html", study_report(result, figures))
        measured = [Run(path.parent) for path in sorted(directory.path.glob("points/*/*/metrics.json"))]
        if measured:
            make_sweep_report(measured, directory.path)
        complete = all(point.complete for point in points)
        document.update(verdict=result.verdict, complete=complete, finished=utc_now())
        directory.write_json("run.json", document)
    finally:
        directory.close()
    _print(result, console)
    console.print(str(directory.path / "report.html"), soft_wrap=True, highlight=False)
    return EXIT_CODES[result.verdict]


def summary_metrics(result: StudyResult) -> dict[str, Any]:
    """Return the metrics of the first case: mean and spread over seeds, and verdicts."""
    case = result.study.cases[0].name
    judged = {item.metric: item for item in result.judgements if item.case == case}
    summary: dict[str, Any] = {}
    for name, definition in DEFINITIONS.items():
        values = result.values(case, name)
        judgement = judged.get(name)
        limits = None if judgement is None else {**judgement.limits, "source": judgement.source}
        summary[name] = {
            "value": fmean(values) if values else None,
            "unit": definition.unit,
            "definition": f"{definition.text} Mean over the seeds of case {case}.",
            "limits": limits,
            "verdict": None if judgement is None else judgement.verdict,
            "minimum": min(values, default=None),
            "p50": median(values) if values else None,
            "maximum": max(values, default=None),
            "samples": len(values),
        }
    return summary


def points_csv(result: StudyResult) -> str:
    """Return a row for each point: case, seed, values of the sweep, verdict, every metric."""
    settings = list(dict.fromkeys(key for case in result.study.cases for key in case.settings))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["case", "seed", *settings, "verdict", *DEFINITIONS])
    for point in result.points:
        chosen = result.study.case(point.case).settings
        values = [point.value(name) for name in DEFINITIONS]
        writer.writerow(
            [
                point.case,
                point.seed,
                *(chosen.get(key, "") for key in settings),
                point.verdict,
                *("" if value is None else value for value in values),
            ]
        )
    return stream.getvalue()


def _print(result: StudyResult, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("case", "criterion", "value", "bound", ""):
        table.add_column(column, no_wrap=column != "case")
    for item in result.judgements:
        bound = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in item.limits.items())
        table.add_row(
            item.case,
            item.metric,
            value_text(item.value),
            bound,
            f"[{STYLES[item.verdict]}]{item.verdict}[/]",
        )
    console.print(table)
    for point in result.points:
        if point.error:
            console.print(f"{point.case}, seed {point.seed}: {point.error}", style="bold red")
    if result.unfinished:
        console.print(result.unfinished, style="bold yellow")
    console.print(f"[{STYLES[result.verdict]}]{result.verdict}[/]  ", end="")
