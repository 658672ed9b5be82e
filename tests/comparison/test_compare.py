"""Comparisons: pairs by seed, intervals, a judgement for each metric, as text, page and exit code.

Sweep: five and eight pairs, one pair, no common seed; better, worse, changed, same, noise, no value;
    a tolerance.
Stimulus: run directories with made-up metrics; two real runs on golden models.
Checks: judgements, intervals, what is left out, errors, files, exit codes.
Timing: none.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from experiment.runs import QUICKSTART, run_small
from mrc_host.cli import mrc
from mrc_host.comparison.compare import DIRECTIONS, Judgement, Side, compare
from mrc_host.comparison.statistics import independent_interval, paired_interval
from mrc_host.errors import MrcError
from mrc_host.experiment.definitions import DEFINITIONS
from mrc_host.experiment.load import load_experiment, resolved_yaml
from mrc_host.experiment.nics import NicKinds
from mrc_host.results import open_runs


def made_up(
    path: Path, seed: int, metrics: dict[str, float | None], setting: str = "", **document: Any
) -> None:
    """Write what a comparison reads of a run directory."""
    path.mkdir(parents=True)
    run = {"name": "made-up", "seed": seed, "verdict": "PASS", "complete": True, "nic": "model", **document}
    (path / "run.json").write_text(json.dumps(run))
    entries = {
        name: {"value": value, "unit": "1", "definition": "", "limits": None, "verdict": None}
        for name, value in metrics.items()
    }
    (path / "metrics.json").write_text(json.dumps(entries))
    flows = [{"fct_us": 100.0 + seed, "fct_bound_us": 100.0}]
    (path / "flows.json").write_text(json.dumps(flows))
    experiment = load_experiment(QUICKSTART, [f"seed={seed}", *([setting] if setting else [])])
    (path / "experiment.yaml").write_text(resolved_yaml(experiment))


def sides(
    root: Path, first: dict[str, Sequence[float]], second: dict[str, Sequence[float]]
) -> tuple[Side, Side]:
    """Write a run for each value of the metrics on both sides, seeds from 1 on."""
    for name, metrics in (("a", first), ("b", second)):
        for number, values in enumerate(zip(*metrics.values(), strict=True)):
            made_up(root / name / str(number), number + 1, dict(zip(metrics, values, strict=True)))
    return Side.of("a", open_runs(root / "a")), Side.of("b", open_runs(root / "b"))


def judgement(
    root: Path, metric: str, first: Sequence[float], second: Sequence[float], **options: float
) -> Judgement:
    """Return what is said of a metric with the given values."""
    a, b = sides(root, {metric: first}, {metric: second})
    return compare(a, b, **options).differences[0].judgement


def invoke(*arguments: str) -> Result:
    """Run ``mrc compare``; what it would exit with is the result's ``return_value``."""
    return CliRunner().invoke(mrc, ["compare", *arguments], standalone_mode=False)


BASE = [1.00, 1.10, 1.05, 1.20, 1.15, 1.02, 1.08, 1.12]


@pytest.mark.parametrize(
    ("metric", "second", "expected"),
    [
        ("fct_over_bound_mean", [value * 1.02 for value in BASE], Judgement.WORSE),
        ("fct_over_bound_mean", [value * 0.98 for value in BASE], Judgement.BETTER),
        ("goodput_gbps", [value * 1.02 for value in BASE], Judgement.BETTER),
        ("goodput_gbps", [value * 0.98 for value in BASE], Judgement.WORSE),
        ("out_of_order_fraction", [value * 1.02 for value in BASE], Judgement.CHANGED),
        ("fct_over_bound_mean", BASE, Judgement.SAME),
        ("fct_over_bound_mean", [v * (1.02, 0.98)[n % 2] for n, v in enumerate(BASE)], Judgement.WITHIN),
    ],
)
def test_judgements_of_eight_pairs(
    tmp_path: Path, metric: str, second: list[float], expected: Judgement
) -> None:
    assert judgement(tmp_path, metric, BASE, second) is expected


def test_pairs_show_what_independent_samples_cannot(tmp_path: Path) -> None:
    second = [value * 1.01 for value in BASE]
    assert judgement(tmp_path, "fct_over_bound_mean", BASE, second) is Judgement.WORSE
    for number, value in enumerate(second):
        made_up(tmp_path / "c" / str(number), number + 101, {"fct_over_bound_mean": value})
    independent = compare(Side.of("a", open_runs(tmp_path / "a")), Side.of("c", open_runs(tmp_path / "c")))
    assert not independent.paired
    assert independent.differences[0].judgement is Judgement.WITHIN


def test_a_tolerance_is_not_a_difference(tmp_path: Path) -> None:
    second = [value * 1.02 for value in BASE]
    assert judgement(tmp_path, "fct_over_bound_mean", BASE, second, tolerance=0.03) is Judgement.WITHIN
    with pytest.raises(MrcError, match=r"tolerance must be at least 0 and below 1, got 1"):
        compare(*(Side.of(name, open_runs(tmp_path / name)) for name in "ab"), tolerance=1)


def test_fewer_than_five_pairs_are_not_judged(tmp_path: Path) -> None:
    assert judgement(tmp_path, "fct_over_bound_mean", BASE[:4], [2.0] * 4) is Judgement.OPEN


def test_counts_that_can_be_zero_are_compared_by_difference(tmp_path: Path) -> None:
    a, b = sides(tmp_path, {"packets_lost": [0, 0, 3, 0, 0]}, {"packets_lost": [5, 4, 9, 5, 7]})
    found = compare(a, b).differences[0]
    assert not found.relative
    assert found.interval is not None
    assert (found.interval.low, found.interval.estimate, found.interval.high) == (4, 5, 7)
    assert found.judgement is Judgement.WORSE


def test_a_metric_without_value_is_said_to_be_missing(tmp_path: Path) -> None:
    made_up(tmp_path / "a", 1, {"fct_us_p99": None})
    made_up(tmp_path / "b", 1, {"fct_us_p99": 3.0})
    comparison = compare(*(Side.of(name, open_runs(tmp_path / name)) for name in "ab"))
    assert comparison.differences[0].judgement is Judgement.MISSING
    assert comparison.verdict == "INCONCLUSIVE"


def test_runs_that_were_not_carried_to_their_end_are_left_out(tmp_path: Path) -> None:
    made_up(tmp_path / "a" / "1", 1, {"goodput_gbps": 1.0})
    made_up(tmp_path / "a" / "2", 2, {"goodput_gbps": 1.0}, interrupted=True)
    made_up(tmp_path / "a" / "3", 3, {}, verdict="ERROR", error="no NIC")
    side = Side.of("a", open_runs(tmp_path / "a"))
    assert side.seeds == [1]
    assert side.left_out == ("2: interrupted", "3: no NIC")
    made_up(tmp_path / "a" / "4", 1, {"goodput_gbps": 1.0})
    with pytest.raises(MrcError, match=r"one run for each seed, got 1 and 4 with seed 1"):
        Side.of("a", open_runs(tmp_path / "a"))
    with pytest.raises(MrcError, match=r"there is no run\.json below it"):
        open_runs(tmp_path / "a" / "1" / "nothing")


def test_settings_that_differ_are_named(tmp_path: Path) -> None:
    made_up(tmp_path / "a", 1, {"goodput_gbps": 1.0})
    made_up(tmp_path / "b", 1, {"goodput_gbps": 1.0}, "qp.entropy_values=16", nic="rtl")
    comparison = compare(*(Side.of(name, open_runs(tmp_path / name)) for name in "ab"))
    assert comparison.settings == [("qp.entropy_values", "(default)", "16"), ("--nic", "model", "rtl")]


def test_intervals_cover_the_median_they_estimate() -> None:
    random = np.random.default_rng(5)
    inside = [
        (interval := paired_interval(random.normal(10, 1, 15).tolist())).low <= 10 <= interval.high
        for _ in range(200)
    ]
    assert 0.88 <= np.mean(inside) <= 1.0
    wide = independent_interval([1.0] * 9, [2.0] * 9, ratio=True)
    assert (wide.low, wide.estimate, wide.high) == (2, 2, 2)
    assert independent_interval([1.0], [3.0], ratio=False).estimate == 2
    with pytest.raises(ValueError, match="must hold at least one, got none"):
        paired_interval([])


def test_every_metric_with_a_direction_is_defined() -> None:
    assert set(DIRECTIONS) <= set(DEFINITIONS)


def test_the_command_prints_and_writes_everything(tmp_path: Path) -> None:
    slower = [value * 1.02 for value in BASE]
    sides(tmp_path, {"fct_over_bound_mean": BASE}, {"fct_over_bound_mean": slower})
    out = tmp_path / "out"
    result = invoke(str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(out))
    assert result.return_value == 1
    assert "8 pairs by seed" in result.output
    assert re.search(r"fct_over_bound_mean .* × 1\.0200 \(1\.0200 to 1\.0200\) +worse", result.output)
    page = (out / "compare.html").read_text()
    assert page.count("<svg") == 2
    assert re.findall(r'(?:src=|url\(|@import)\s*["\']?([^"\')\s]+)', page) == []
    for name in ("ratios", "completions"):
        rows = list(csv.reader((out / "plots" / f"{name}.csv").read_text().splitlines()))
        assert len(rows) > 1
        assert (out / "plots" / f"{name}.svg").is_file()
    document = json.loads((out / "compare.json").read_text())
    assert document["differences"]["fct_over_bound_mean"]["judgement"] == "worse"
    assert document["seeds"] == list(range(1, 9))


def test_several_sides_are_each_compared_with_the_first(tmp_path: Path) -> None:
    for name in "abc":
        made_up(tmp_path / name / "run", 1, {"goodput_gbps": 1.0})
    places = [str(tmp_path / name / "run") for name in "abc"]
    result = invoke(*places, "--out", str(tmp_path / "out"))
    assert result.return_value == 0
    assert "a/run (first) against c/run (second)" in result.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["1", "2"]
    result = invoke(places[0])
    assert isinstance(result.exception, MrcError)
    assert "at least two" in str(result.exception)


def test_real_runs_of_one_seed_are_the_same_and_of_another_window_not(tmp_path: Path) -> None:
    model = NicKinds.parse("model")
    run_small(tmp_path / "a", factory=model)
    run_small(tmp_path / "b", "runner.jobs=1", "runner.window_fraction=1/2", factory=model)
    run_small(tmp_path / "c", "qp.entropy_values=4", factory=model)
    first, second, third = (Side.of(name, open_runs(tmp_path / name)) for name in "abc")
    same = compare(first, second)
    assert same.settings == []
    assert {difference.judgement for difference in same.differences} <= {Judgement.SAME, Judgement.MISSING}
    other = compare(first, third)
    assert [key for key, *_ in other.settings] == ["qp.entropy_values"]
    assert other.judged(Judgement.OPEN)
