"""Claims: the file, verdicts, the page.

Sweep: keys of a claim; values around the band.
Stimulus: hand-made study results; the shipped file.
Checks: every shipped claim names a case of its experiment; verdicts; what the page says.
Timing: none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiment.test_study import point, written
from mrc_host.errors import ConfigError
from mrc_host.experiment.claims import Claim, judge_claim, load_claims, results_page
from mrc_host.experiment.study import load_study
from mrc_host.experiment.study_verdicts import judge_study

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
CLAIMS = load_claims(EXPERIMENTS / "claims.yaml")


def claim(**keys: Any) -> Claim:
    told = {"name": "n", "claim": "c", "published": "p", "experiment": "e.yaml", "metric": "fct_us_p50"}
    return Claim.model_validate({**told, "case": "b", "at_most": 3, **keys})


def test_at_least_twenty_published_figures_are_claimed() -> None:
    assert len(CLAIMS) >= 20
    assert sum(item.tier == 1 for item in CLAIMS) >= 20


@pytest.mark.parametrize("item", CLAIMS, ids=lambda item: item.name)
def test_a_claim_names_cases_of_its_experiment(item: Claim) -> None:
    names = [case.name for case in load_study(EXPERIMENTS / item.experiment).cases]
    assert item.case in names
    assert item.over is None or item.over in names


def test_a_claim_is_judged_by_means(tmp_path: Path) -> None:
    study = load_study(written(tmp_path, cases={"a": {}, "b": {}}, seeds=2))
    points = [point("a", 1, 1.0), point("a", 2, 3.0), point("b", 1, 4.0), point("b", 2, 8.0)]
    result = judge_study(study, points)
    assert judge_claim(claim(), result).verdict == "FAIL"
    assert judge_claim(claim(over="a"), result).value == 3.0
    assert judge_claim(claim(over="a"), result).verdict == "PASS"
    assert judge_claim(claim(at_least=6.1, at_most=None), result).verdict == "FAIL"
    assert judge_claim(claim(metric="slowdown_p50"), result).verdict == "INCONCLUSIVE"
    outcomes = [judge_claim(claim(over="a"), result), judge_claim(claim(cause="It rains."), result)]
    page = results_page(outcomes, 1)
    assert "1 of 2 published figures" in page
    assert "| c | p | e, b / a | `fct_us_p50` | 3 | ≤ 3 | PASS |" in page
    assert "* **n** (6): It rains." in page


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("metric: fct", "claims.0 must be a claim about a metric: bytes_verified"),
        ("at_most: high", "claims.0.at_most must be a number of the metric's unit"),
        ("when: now", "claims.0.when must be a known key"),
    ],
)
def test_what_is_wrong_in_a_claim_is_named_with_its_line(tmp_path: Path, change: str, text: str) -> None:
    keys = {
        "name": "n",
        "claim": "c",
        "published": "p",
        "experiment": "e",
        "case": "a",
        "metric": "fct_us_p50",
    }
    key, value = change.split(": ")
    lines = [f"    {name}: {content}" for name, content in {**keys, "at_most": "1", key: value}.items()]
    file = tmp_path / "claims.yaml"
    file.write_text("claims:\n  -" + "\n".join(lines)[3:] + "\n")
    with pytest.raises(ConfigError) as caught:
        load_claims(file)
    assert text in str(caught.value)
    assert str(file) in str(caught.value)
