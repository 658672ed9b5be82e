"""Compares two sides, each a run or a set of runs over seeds, metric by metric.

A simulation is deterministic: only seeds make runs of one side differ. So runs are paired by seed, and what
is judged is the ratio (or the difference) within pairs, which common random numbers make much less noisy than
two independent sets. Without common seeds the sides are compared as independent samples.

Source: lab.md 5, "Baseline comparison" and "Deterministic simulation needs different statistics".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mrc_host.comparison.statistics import Interval, independent_interval, paired_interval
from mrc_host.errors import MrcError
from mrc_host.experiment.definitions import DEFINITIONS
from mrc_host.results import Run

__all__ = [
    "DIRECTIONS",
    "PAIRS_TO_JUDGE",
    "Comparison",
    "Difference",
    "Direction",
    "Judgement",
    "Side",
    "compare",
    "direction_of",
]

PAIRS_TO_JUDGE = 5
"""Fewer pairs (or runs of a side) give no verdict, unless all of them are equal bit for bit."""


class Direction(Enum):
    """Which way a metric gets better."""

    LOWER = "lower"
    HIGHER = "higher"
    NONE = "neither"


DIRECTIONS = {
    **dict.fromkeys(
        ("bytes_verified", "messages_completed", "goodput_gbps", "goodput_over_bound", "paths_used",
         "jain_index"),
        Direction.HIGHER,
    ),
    **dict.fromkeys(
        (
            "bytes_mismatched", "fct_over_bound_mean", "fct_over_bound_max", "fct_over_bound_min",
            "slowdown_p50", "slowdown_p99", "slowdown_max", "step_time_us", "step_time_us_max",
            "step_time_over_bound", "stall_fraction", "straggler_fraction", "fct_us_p50", "fct_us_p99",
            "plane_imbalance_packets", "retransmissions_trim", "retransmissions_loss",
            "retransmissions_spurious", "spurious_ratio", "trimmed_fraction", "packets_lost",
            "trimmed_headers_lost", "ev_retire_rtt_first", "ev_retire_rtt_median", "ev_retire_rtt_last",
            "evs_dead_in_use", "ev_marks_false", "ev_false_marks_peak", "ev_false_marks_end",
            "ev_recover_us", "evs_not_recovered",
        ),
        Direction.LOWER,
    ),
}  # fmt: skip
"""Metrics that have a better side; of all others only that they changed can be said. A definition may name
its own (``better``: lower or higher)."""


class Judgement(Enum):
    """What a comparison says of a metric."""

    SAME = "same"
    """Equal, bit for bit, in every pair."""
    BETTER = "better"
    WORSE = "worse"
    CHANGED = "changed"
    """Beyond the tolerance, of a metric with no better side."""
    WITHIN = "no difference shown"
    """The interval reaches into the tolerance."""
    OPEN = "too few pairs"
    MISSING = "no value"


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Parameters
    ----------
    name : str
        How it is called in tables.
    runs : tuple of Run
        Complete ones, by seed.
    left_out : tuple of str
        Runs that are not used, and why.
    """

    name: str
    runs: tuple[Run, ...]
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, runs: Sequence[Run]) -> Side:
        """Take the runs that were carried to their end.

        Raises
        ------
        MrcError
            None is left, or two have one seed.
        """
        usable: dict[int, Run] = {}
        left_out = []
        for run in runs:
            if run.verdict == "ERROR" or run.document.get("interrupted"):
                left_out.append(f"{run.path.name}: {run.document.get('error') or 'interrupted'}")
            elif run.seed in usable:
                raise MrcError(
                    f"{name} must hold one run for each seed, got {usable[run.seed].path.name} and "
                    f"{run.path.name} with seed {run.seed}"
                )
            else:
                usable[run.seed] = run
        if not usable:
            raise MrcError(f"{name} must hold a finished run, got {'; '.join(left_out) or 'none'}")
        return cls(name, tuple(usable[seed] for seed in sorted(usable)), tuple(left_out))

    @property
    def seeds(self) -> list[int]:
        """Seeds of its runs."""
        return [run.seed for run in self.runs]


@dataclass(frozen=True)
class Difference:
    """How a metric differs.

    Parameters
    ----------
    metric, unit : str
    first, second : float or None
        Medians of the sides.
    pairs : list of (seed, first, second)
        Values by seed; with independent sides empty.
    relative : bool
        ``interval`` is of the ratio second / first; otherwise of the difference second − first.
    interval : Interval or None
        None where no value can be stated.
    judgement : Judgement
    second_better : int
        Pairs in which the second side is the better one.
    """

    metric: str
    unit: str
    first: float | None
    second: float | None
    pairs: list[tuple[int, float, float]]
    relative: bool
    interval: Interval | None
    judgement: Judgement
    second_better: int = 0


@dataclass(frozen=True)
class Comparison:
    """Two sides and their differences.

    Parameters
    ----------
    first, second : Side
        The baseline, and what is compared with it.
    paired : bool
        By common seeds.
    seeds : list of int
        Seeds that count.
    tolerance : float
        Share by which a ratio may differ from 1 without being a difference.
    settings : list of (key, first, second)
        Where the experiments differ.
    differences : list of Difference
        In the order of the metrics' definitions.
    """

    first: Side
    second: Side
    paired: bool
    seeds: list[int]
    tolerance: float
    settings: list[tuple[str, str, str]]
    differences: list[Difference] = field(default_factory=list)

    def judged(self, *wanted: Judgement) -> list[Difference]:
        """Return the differences with one of some judgements."""
        return [difference for difference in self.differences if difference.judgement in wanted]

    @property
    def verdict(self) -> str:
        """FAIL when a metric is worse, PASS when one was judged, otherwise INCONCLUSIVE."""
        if self.judged(Judgement.WORSE):
            return "FAIL"
        undecided = (Judgement.OPEN, Judgement.MISSING)
        return "PASS" if any(d.judgement not in undecided for d in self.differences) else "INCONCLUSIVE"


def compare(first: Side, second: Side, *, tolerance: float = 0.0) -> Comparison:
    """Compare two sides.

    Parameters
    ----------
    first, second : Side
        The baseline, and what is compared with it.
    tolerance : float
        Share by which a ratio may differ from 1 without being a difference, from 0 to below 1.

    Raises
    ------
    MrcError
        The tolerance is out of range, or a run has no metrics.
    """
    if not 0 <= tolerance < 1:
        raise MrcError(f"tolerance must be at least 0 and below 1, got {tolerance}")
    common = [seed for seed in first.seeds if seed in second.seeds]
    comparison = Comparison(
        first,
        second,
        bool(common),
        common or first.seeds,
        tolerance,
        _settings(first.runs[0], second.runs[0]),
    )
    known = first.runs[0].metrics
    names = [name for name in DEFINITIONS if name in known] + [n for n in known if n not in DEFINITIONS]
    for name in names:
        if all(name in run.metrics for run in (*first.runs, *second.runs)):
            comparison.differences.append(_difference(comparison, name))
    return comparison


def direction_of(metric: str) -> Direction:
    """Return which way a metric gets better."""
    own = getattr(DEFINITIONS.get(metric), "better", None)
    return Direction(own) if own else DIRECTIONS.get(metric, Direction.NONE)


def _difference(comparison: Comparison, name: str) -> Difference:
    unit = comparison.first.runs[0].metrics[name].unit
    values = [
        {run.seed: run.value(name) for run in side.runs} for side in (comparison.first, comparison.second)
    ]
    if comparison.paired:
        pairs = [
            (seed, float(a), float(b))
            for seed in comparison.seeds
            if (a := values[0][seed]) is not None and (b := values[1][seed]) is not None
        ]
        firsts, seconds = [pair[1] for pair in pairs], [pair[2] for pair in pairs]
    else:
        pairs = []
        firsts, seconds = ([float(v) for v in side.values() if v is not None] for side in values)
    if not firsts or not seconds:
        return Difference(name, unit, None, None, [], False, None, Judgement.MISSING)
    relative = all(value > 0 for value in firsts)
    if comparison.paired:
        each = [b / a if relative else b - a for _, a, b in pairs]
        interval = paired_interval(each)
    else:
        interval = independent_interval(firsts, seconds, ratio=relative)
    first, second = paired_interval(firsts).estimate, paired_interval(seconds).estimate
    enough = min(len(firsts), len(seconds)) >= PAIRS_TO_JUDGE
    same = bool(pairs) and all(a == b for _, a, b in pairs)
    direction = direction_of(name)
    judgement = _judge(interval, relative, comparison.tolerance, direction, enough=enough, same=same)
    better = 0
    if direction is not Direction.NONE:
        better = sum((b > a) if direction is Direction.HIGHER else (b < a) for _, a, b in pairs)
    return Difference(name, unit, first, second, pairs, relative, interval, judgement, better)


def _judge(
    interval: Interval, relative: bool, tolerance: float, direction: Direction, *, enough: bool, same: bool
) -> Judgement:
    if same:
        return Judgement.SAME
    if not enough:
        return Judgement.OPEN
    low, high = (1 - tolerance, 1 + tolerance) if relative else (0.0, 0.0)
    if interval.low <= high and interval.high >= low:
        return Judgement.WITHIN
    if direction is Direction.NONE:
        return Judgement.CHANGED
    rose = interval.low > high
    return Judgement.BETTER if rose == (direction is Direction.HIGHER) else Judgement.WORSE


def _settings(first: Run, second: Run) -> list[tuple[str, str, str]]:
    """Return the settings in which two runs differ, the seed and what changes no result left out."""
    flat = [run.settings for run in (first, second)]
    rows = [
        (key, _text(flat[0].get(key)), _text(flat[1].get(key)))
        for key in sorted(flat[0].keys() | flat[1].keys())
        if flat[0].get(key) != flat[1].get(key)
    ]
    for key in ("nic", "fabric"):
        if first.document.get(key) != second.document.get(key):
            rows.append((f"--{key}", _text(first.document.get(key)), _text(second.document.get(key))))
    commits = [str((run.document.get("source") or {}).get("commit", ""))[:12] for run in (first, second)]
    if commits[0] != commits[1]:
        rows.append(("source", commits[0], commits[1]))
    return rows


def _text(value: Any) -> str:
    return "(default)" if value is None else str(value)
