"""Points of a study, its criteria and comparisons, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Any

from mrc_host.experiment.metrics import FAIL, INCONCLUSIVE, PASS
from mrc_host.experiment.study import Case, Comparison, Study

__all__ = ["ERROR", "Judgement", "Point", "StudyResult", "judge_study"]

ERROR = "ERROR"
"""Verdict of a run in which a fault or an action met nothing."""


@dataclass(frozen=True)
class Point:
    """One run of a study.

    Parameters
    ----------
    case : str
    seed : int
    verdict : str
        PASS, FAIL, INCONCLUSIVE or ERROR.
    complete : bool
        Everything was transferred.
    metrics : dict
        As in ``metrics.json``.
    error : str
        Why it is ERROR; empty otherwise.
    """

    case: str
    seed: int
    verdict: str
    complete: bool
    metrics: dict[str, dict[str, Any]]
    error: str = ""

    def value(self, metric: str) -> float | None:
        """Value of a metric."""
        entry = self.metrics.get(metric)
        return None if entry is None else entry["value"]


@dataclass(frozen=True)
class Judgement:
    """A bound and what became of it.

    Parameters
    ----------
    case : str
        The case, or "case / other" of a comparison.
    metric : str
    value : float or None
        The worst value of the seeds, or the ratio of means.
    limits : dict
        ``equals``, ``at_least``, ``at_most``.
    source : str
        Of the bound.
    verdict : str
    """

    case: str
    metric: str
    value: float | None
    limits: dict[str, float]
    source: str
    verdict: str


@dataclass(frozen=True)
class StudyResult:
    """What a study came to.

    Parameters
    ----------
    study : Study
    points : list of Point
    judgements : list of Judgement
    verdict : str
    """

    study: Study
    points: list[Point]
    judgements: list[Judgement]
    verdict: str

    @property
    def unfinished(self) -> str:
        """Which runs did not transfer everything before they were given up; empty when none."""
        names = [
            f"{item.case} seed {item.seed}" for item in self.points if not item.complete and not item.error
        ]
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        return (
            f"{len(names)} of {len(self.points)} runs did not finish: {', '.join(names[:4])}{more}"
            if names
            else ""
        )

    def values(self, case: str, metric: str) -> list[float]:
        """Values of a metric in a case, seed by seed; seeds without a value are left out."""
        found = [point.value(metric) for point in self.points if point.case == case]
        return [float(value) for value in found if value is not None]

    def mean(self, case: str, metric: str) -> float | None:
        """Mean of a metric over the seeds of a case."""
        values = self.values(case, metric)
        return fmean(values) if values else None


def judge_study(study: Study, points: list[Point]) -> StudyResult:
    """Judge the criteria of all cases and the comparisons between them."""
    judgements: list[Judgement] = []
    result = StudyResult(study, points, judgements, "")
    for case in study.cases:
        own = [point for point in points if point.case == case.name]
        judgements += _of_runs(case, own)
    judgements += [_of_comparison(result, item) for item in study.comparisons]
    verdicts = {item.verdict for item in judgements} | {point.verdict for point in points} & {ERROR}
    for verdict in (ERROR, FAIL, PASS):
        if verdict in verdicts:
            return StudyResult(study, points, judgements, verdict)
    return StudyResult(study, points, judgements, INCONCLUSIVE)


def _of_runs(case: Case, points: list[Point]) -> list[Judgement]:
    """Judge what every run of a case has to fulfil: the worst seed decides."""
    found = []
    for criterion in case.experiments[0].criteria:
        entries = [point.metrics[criterion.metric] for point in points if point.metrics]
        verdicts = {entry["verdict"] for entry in entries}
        verdict = next((item for item in (FAIL, INCONCLUSIVE, PASS) if item in verdicts), INCONCLUSIVE)
        worst = _worst([entry["value"] for entry in entries], criterion.limits)
        found.append(
            Judgement(case.name, criterion.metric, worst, criterion.limits, criterion.source, verdict)
        )
    return found


def _worst(values: list[float | None], limits: dict[str, float]) -> float | None:
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    if "equals" in limits:
        return max(known, key=lambda value: abs(value - limits["equals"]))
    return min(known) if "at_least" in limits and "at_most" not in limits else max(known)


def _of_comparison(result: StudyResult, item: Comparison) -> Judgement:
    value = result.mean(item.case, item.metric)
    label = item.case
    if item.over is not None:
        other = result.mean(item.over, item.metric)
        value = None if value is None or not other else value / other
        label = f"{item.case} / {item.over}"
    limits = {
        name: bound
        for name, bound in (("at_least", item.at_least), ("at_most", item.at_most))
        if bound is not None
    }
    if value is None:
        verdict = INCONCLUSIVE
    else:
        met = value >= limits.get("at_least", value) and value <= limits.get("at_most", value)
        verdict = PASS if met else FAIL
    return Judgement(label, item.metric, value, limits, item.source, verdict)
