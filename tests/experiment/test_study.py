"""Files of several runs: variants, cases, sweeps, seeds, comparisons; and the shipped experiments.

Sweep: keys of a study, overrides, one and two processes.
Stimulus: tiny experiments on the model; the files in experiments/ are read in every variant.
Checks: which runs come out, with what; results do not depend on processes; verdicts counted by hand.
Timing: simulated.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from experiment.schema_values import tiny
from mrc_host.cli import main
from mrc_host.errors import ConfigError
from mrc_host.experiment.nics import NicKinds
from mrc_host.experiment.study import Study, is_study, load_study
from mrc_host.experiment.study_report import study_report
from mrc_host.experiment.study_run import run_study, study_of
from mrc_host.experiment.study_verdicts import Point, judge_study
from mrc_host.report.curves import curve_figures

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SHIPPED = sorted(EXPERIMENTS.glob("e*.yaml"))
MODEL = NicKinds(("model",))


def written(folder: Path, **keys: Any) -> Path:
    file = folder / "study.yaml"
    with file.open("w") as stream:
        YAML().dump({**tiny(), **keys}, stream)
    return file


def two_cases(folder: Path, **keys: Any) -> Path:
    cases = {
        "small": {"workload": {"bytes_per_nic": 1024}},
        "many": {"sweep": {"nic.sack_threshold_bytes": [1024, 2048], "qp.mtu_bytes": [256]}, "seeds": 1},
    }
    return written(folder, cases=cases, seeds=2, **keys)


def test_cases_are_laid_over_the_file_and_sweeps_are_combined(tmp_path: Path) -> None:
    file = two_cases(tmp_path)
    assert is_study(file)
    study = load_study(file, ["host_latency_ns=77"])
    assert [case.name for case in study.cases] == ["small", "many/1024/256", "many/2048/256"]
    assert [[item.seed for item in case.experiments] for case in study.cases] == [[1, 2], [1], [1]]
    assert [case.experiments[0].workload.flows(2)[0].bytes for case in study.cases] == [1024, 3072, 3072]
    assert study.case("many/2048/256").experiments[0].nic.sack_threshold_bytes == 2048
    assert {item.host_latency_ns for case in study.cases for item in case.experiments} == {77}
    assert [len(case.experiments) for case in load_study(file, ["seeds=3"], seed=9).cases] == [1, 1, 1]


def test_a_variant_is_laid_over_everything(tmp_path: Path) -> None:
    variants = {"big": {}, "little": {"without": ["many"], "seeds": 1, "qp": {"entropy_values": 2}}}
    file = two_cases(tmp_path, variants=variants)
    assert load_study(file).variant == "big"
    little = load_study(file, variant="little")
    assert [case.name for case in little.cases] == ["small"]
    assert [item.qp.entropy_values for case in little.cases for item in case.experiments] == [2]
    with pytest.raises(ConfigError, match="variants must be a variant: big, little, got 'huge'"):
        load_study(file, variant="huge")


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"seeds": 0}, "seeds must be a whole number between 1 and 10000, got 0"),
        ({"cases": [1]}, "cases must be a mapping of names to sections"),
        ({"cases": {"a": {"sweep": {"seed": 3}}}}, "cases.a.sweep must be a mapping of dotted keys to lists"),
        ({"cases": {"a": {"qp": {"mtu": 4}}}}, "qp.mtu must be a known key"),
        ({"curves": [{"x": "fct", "y": "fct_us_p50"}]}, "curves.0.x must be one of bytes_verified"),
        (
            {"comparisons": [{"metric": "fct", "case": "all", "at_least": 1, "source": "s"}]},
            "comparisons.0 must be a comparison of a metric: bytes_verified",
        ),
        (
            {"comparisons": [{"metric": "fct_us_p50", "case": "b", "at_least": 1, "source": "s"}]},
            "comparisons.0 must be of cases: all, got 'b'",
        ),
    ],
)
def test_what_is_wrong_in_a_study_is_named(tmp_path: Path, keys: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_study(written(tmp_path, **keys))
    assert text in str(caught.value)


def point(case: str, seed: int, value: float | None, verdict: str = "PASS") -> Point:
    metrics = {
        "fct_us_p50": {"value": value, "verdict": None},
        "bytes_mismatched": {"value": 0, "verdict": verdict},
    }
    return Point(case, seed, verdict, True, metrics)


def compared(tmp_path: Path, **bounds: float) -> Study:
    item = {"metric": "fct_us_p50", "case": "b", "over": "a", "source": "test", **bounds}
    return load_study(written(tmp_path, cases={"a": {}, "b": {}}, seeds=2, comparisons=[item]))


def test_means_of_cases_are_compared(tmp_path: Path) -> None:
    points = [point("a", 1, 2.0), point("a", 2, 4.0), point("b", 1, 6.0), point("b", 2, 9.0)]
    result = judge_study(compared(tmp_path, at_most=2.5), points)
    last = result.judgements[-1]
    assert (last.case, last.value, last.verdict, result.verdict) == ("b / a", 2.5, "PASS", "PASS")
    assert judge_study(compared(tmp_path, at_most=2.4), points).verdict == "FAIL"
    assert judge_study(compared(tmp_path, at_least=2.6), points).verdict == "FAIL"
    points[0] = point("a", 1, None)
    points[1] = point("a", 2, None)
    assert judge_study(compared(tmp_path, at_most=2.4), points).judgements[-1].verdict == "INCONCLUSIVE"


def test_a_curve_has_a_line_for_each_swept_case_and_a_place_for_zero(tmp_path: Path) -> None:
    cases = {name: {"sweep": {"nic.sack_threshold_bytes": [1024, 2048]}} for name in ("a", "b")}
    study = load_study(written(tmp_path, cases=cases, curves=[{"x": "fct_us_p50", "y": "spurious_ratio"}]))
    values = {"a/1024": (2.0, 0.0), "a/2048": (20.0, 0.01), "b/1024": (3.0, 0.1), "b/2048": (None, 0.2)}
    points = []
    for case, (x, y) in values.items():
        item = point(case, 1, x)
        item.metrics["spurious_ratio"] = {"value": y, "verdict": None}
        points.append(item)
    (figure,) = curve_figures(judge_study(study, points))
    assert [row[:2] for row in figure.rows] == [("a", "1024"), ("a", "2048"), ("b", "1024")]
    assert figure.name == "curve-fct_us_p50-spurious_ratio"
    assert ">0</text>" in figure.svg and figure.svg.count('class="mark') == 3
    assert study_report(judge_study(study, points), [figure]).count(figure.svg) == 1


def test_runs_that_did_not_finish_are_named(tmp_path: Path) -> None:
    points = [point("a", 1, 1.0), point("a", 2, 1.0), point("b", 1, 1.0), point("b", 2, 1.0)]
    assert judge_study(compared(tmp_path, at_most=9), points).unfinished == ""
    points[2] = replace(points[2], complete=False)
    result = judge_study(compared(tmp_path, at_most=9), points)
    assert result.unfinished == "1 of 4 runs did not finish: b seed 1"
    assert result.unfinished in study_report(result)


def test_one_bad_seed_fails_a_case(tmp_path: Path) -> None:
    points = [point("a", 1, 1.0), point("a", 2, 1.0, "FAIL"), point("b", 1, 1.0), point("b", 2, 1.0)]
    assert judge_study(compared(tmp_path, at_most=9), points).verdict == "FAIL"


def test_a_study_is_the_same_with_one_and_two_processes(tmp_path: Path) -> None:
    file = two_cases(tmp_path)
    for jobs in (1, 2):
        assert run_study(file, tmp_path / str(jobs), MODEL, jobs=jobs) == 0
    for name in ("metrics.json", "points.csv", "criteria.json"):
        assert (tmp_path / "1" / name).read_text() == (tmp_path / "2" / name).read_text()
    document = json.loads((tmp_path / "1" / "run.json").read_text())
    assert (document["kind"], document["verdict"], document["complete"]) == ("study", "PASS", True)
    assert document["seeds"] == {"small": [1, 2], "many/1024/256": [1], "many/2048/256": [1]}
    rows = (tmp_path / "1" / "points.csv").read_text().splitlines()
    assert rows[0].startswith("case,seed,nic.sack_threshold_bytes,qp.mtu_bytes,verdict,bytes_verified")
    assert len(rows) == 5
    assert (tmp_path / "1" / "points" / "small" / "seed2" / "metrics.json").is_file()
    assert "small" in (tmp_path / "1" / "report.html").read_text()


def exit_code(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    return int(stopped.value.code or 0)


def test_the_command_runs_a_case_of_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = two_cases(tmp_path)
    arguments = ["run", str(file), "--nic", "model", "--jobs", "1", "--out", str(tmp_path / "out")]
    assert exit_code([*arguments, "--case", "small", "--seed", "5"]) == 0
    rows = (tmp_path / "out" / "points.csv").read_text().splitlines()
    assert [row.split(",")[:2] for row in rows[1:]] == [["small", "5"]]
    assert exit_code([*arguments[:-1], str(tmp_path / "other"), "--case", "none"]) == 2
    assert "--case must be one of small, many/1024/256, many/2048/256" in capsys.readouterr().err


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_experiments_have_a_variant_for_the_model_and_one_for_gateware(file: Path) -> None:
    large = study_of(file, MODEL)
    small = study_of(file, NicKinds(("rtl",)))
    assert (large.variant, small.variant) == ("F", "f")
    assert max(len(case.experiments) for case in large.cases) >= 5 or large.name.startswith(("e1", "e3"))
    head = large.cases[0].experiments[0]
    assert (head.fabric.hosts, head.fabric.planes) in ((8, 4), (9, 4))
    assert small.cases[0].experiments[0].fabric.planes == 2
    for study in (large, small):
        for case in study.cases:
            for item in case.experiments:
                assert any(criterion.metric == "bytes_mismatched" for criterion in item.criteria)


def test_the_ten_experiments_are_there() -> None:
    assert [int(file.stem.split("-")[0][1:]) for file in SHIPPED] == sorted(
        range(1, 11), key=lambda number: f"e{number}-"
    )
