"""Published figures, and what becomes of them here: claim → experiment → figure → band → verdict.

``experiments/claims.yaml`` lists the claims; ``python -m mrc_host.experiment.claims`` runs the cases they
need and writes ``docs/results.md``. Tier 1 takes minutes, tier 2 all seeds and cases.

Source: lab.md 5 (artefact evaluation: a machine-readable claims file).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from mrc_host.documents import line_of, read_mapping
from mrc_host.errors import ConfigError, MrcError
from mrc_host.experiment.definitions import DEFINITIONS
from mrc_host.experiment.fields import Section, number, refuse, text, whole
from mrc_host.experiment.load import plain
from mrc_host.experiment.metrics import FAIL, INCONCLUSIVE, PASS
from mrc_host.experiment.nics import NicKinds
from mrc_host.experiment.study import Study, load_study
from mrc_host.experiment.study_run import run_points
from mrc_host.experiment.study_verdicts import StudyResult, judge_study
from mrc_host.experiment.summary import value_text
from mrc_host.fabric.spec import config_errors

__all__ = ["Claim", "Outcome", "judge_claim", "load_claims", "reproduce", "results_page"]

FOLDER = Path("experiments")
CLAIMS = FOLDER / "claims.yaml"
PAGE = Path("docs/results.md")
SEEDS_OF_TIER_1 = 2
Text = Annotated[str, text("text")]
Bound = Annotated[float, number("the metric's unit", -1e18, 1e18)]


class Claim(Section):
    """A published figure and where it should come out here.

    Parameters
    ----------
    name : str
        Short and unique.
    claim : str
        What is claimed, in a sentence.
    published : str
        The figure as published, and by whom.
    tier : int
        1 when it is cheap enough for the quick round.
    experiment : str
        File in ``experiments/``.
    case, over : str
        Case of the experiment; its mean is divided by that of ``over`` when given.
    metric : str
        Name of a metric.
    at_least, at_most : float
        Band in which the figure counts as reproduced in shape; at least one.
    cause : str
        Why it comes out otherwise here, when it does.
    """

    name: Text
    claim: Text
    published: Text
    tier: Annotated[int, whole(1, 2)] = 1
    experiment: Text
    case: Text
    over: Text | None = None
    metric: str
    at_least: Bound | None = None
    at_most: Bound | None = None
    cause: str = ""

    @model_validator(mode="after")
    def _can_be_judged(self) -> Claim:
        if self.metric not in DEFINITIONS:
            raise refuse(f"a claim about a metric: {', '.join(DEFINITIONS)}", self.metric)
        if self.at_least is None and self.at_most is None:
            raise refuse("a claim with at_least or at_most", self.name)
        return self

    @property
    def band(self) -> str:
        """The band as text."""
        if self.at_least is None:
            return f"≤ {self.at_most:g}"
        if self.at_most is None:
            return f"≥ {self.at_least:g}"
        return f"{self.at_least:g} to {self.at_most:g}"


class _Claims(Section):
    claims: list[Claim] = Field(min_length=1)


@dataclass(frozen=True)
class Outcome:
    """What became of a claim: the value here, and PASS, FAIL or INCONCLUSIVE."""

    claim: Claim
    value: float | None
    verdict: str


def load_claims(file: Path) -> list[Claim]:
    """Read a file of claims.

    Raises
    ------
    ConfigError
        A key or value is not allowed, or two claims have one name.
    MrcError
        The file cannot be read or is not YAML.
    """
    document = read_mapping(file)
    try:
        claims = _Claims.model_validate(plain(document)).claims
    except ValidationError as error:
        found = config_errors(error, _Claims)[0]
        raise found.located(file, line_of(document, tuple(found.path.split(".")))) from error
    names = [claim.name for claim in claims]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError("claims", "claims with different names", name)
    return claims


def judge_claim(claim: Claim, result: StudyResult) -> Outcome:
    """Judge a claim by the study it is about."""
    value = result.mean(claim.case, claim.metric)
    if claim.over is not None and value is not None:
        other = result.mean(claim.over, claim.metric)
        value = value / other if other else None
    if value is None:
        return Outcome(claim, None, INCONCLUSIVE)
    met = (claim.at_least is None or value >= claim.at_least) and (
        claim.at_most is None or value <= claim.at_most
    )
    return Outcome(claim, value, PASS if met else FAIL)


def reproduce(
    claims: Sequence[Claim], folder: Path, *, tier: int, jobs: int, work: Path, tell: bool = True
) -> list[Outcome]:
    """Run the cases that claims need, and judge the claims.

    Parameters
    ----------
    claims : sequence of Claim
        Those above the tier are left out.
    folder : Path
        Of the experiments.
    tier : int
        1 runs at most two seeds of each case, 2 all.
    jobs : int
        Processes.
    work : Path
        Gets the run directories.
    tell : bool
        Print every claim as it is judged.

    Raises
    ------
    ConfigError, MrcError, InfrastructureError
        An experiment or a claim is wrong, or a run failed for a reason outside of it.
    """
    kinds = NicKinds(("model",))
    chosen = [claim for claim in claims if claim.tier <= tier]
    outcomes: dict[str, Outcome] = {}
    for name in dict.fromkeys(claim.experiment for claim in chosen):
        own = [claim for claim in chosen if claim.experiment == name]
        needed = {case for claim in own for case in (claim.case, claim.over) if case is not None}
        study = load_study(folder / name).with_cases(sorted(needed))
        if tier == 1:
            study = _fewer_seeds(study, SEEDS_OF_TIER_1)
        points = run_points(study, work / Path(name).stem, kinds, jobs)
        result = judge_study(study, points)
        for claim in own:
            outcomes[claim.name] = outcome = judge_claim(claim, result)
            if tell:
                print(f"{outcome.verdict:13}{claim.name}: {value_text(outcome.value)}, band {claim.band}")
                sys.stdout.flush()
    return [outcomes[claim.name] for claim in chosen]


def _fewer_seeds(study: Study, count: int) -> Study:
    cases = tuple(replace(case, experiments=case.experiments[:count]) for case in study.cases)
    return replace(study, cases=cases)


def results_page(outcomes: Sequence[Outcome], tier: int) -> str:
    """Return ``docs/results.md``."""
    good = sum(outcome.verdict == PASS for outcome in outcomes)
    command = "nox -s reproduce" if tier == 1 else f"nox -s reproduce -- --tier {tier}"
    lines = [
        "# Published figures, reproduced",
        "",
        f"{good} of {len(outcomes)} published figures come out within their band. The page is written by",
        f"`{command}` from [claims.yaml](../experiments/claims.yaml); a row is the mean over",
        "seeds of one metric of one case of an experiment, run on the golden model. A band says where it",
        "counts as reproduced in shape: the other simulator, test bed or chip is not this one.",
        "",
        "| claim | published | experiment, case | metric | here | band | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        claim = outcome.claim
        case = claim.case if claim.over is None else f"{claim.case} / {claim.over}"
        lines.append(
            f"| {claim.claim} | {claim.published} | {claim.experiment.removesuffix('.yaml')}, {case} | "
            f"`{claim.metric}` | {value_text(outcome.value)} | {claim.band} | {outcome.verdict} |"
        )
    others = [outcome for outcome in outcomes if outcome.verdict != PASS]
    if others:
        lines += ["", "## What comes out otherwise, and why", ""]
        for outcome in others:
            cause = outcome.claim.cause or "The cause is not known."
            lines.append(f"* **{outcome.claim.name}** ({value_text(outcome.value)}): {cause}")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Reproduce the claims and write the page; exit code 1 when less than 16 or 80 % come out."""
    parser = argparse.ArgumentParser(description="Reproduce the published figures of claims.yaml.")
    parser.add_argument("--tier", type=int, choices=(1, 2), default=1, help="1: minutes; 2: all seeds")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--claims", type=Path, default=CLAIMS)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    try:
        claims = load_claims(options.claims)
        with tempfile.TemporaryDirectory(prefix="reproduce-") as work:
            outcomes = reproduce(
                claims, options.claims.parent, tier=options.tier, jobs=options.jobs, work=Path(work)
            )
    except MrcError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    options.page.write_text(results_page(outcomes, options.tier), encoding="utf-8")
    good = sum(outcome.verdict == PASS for outcome in outcomes)
    print(f"{good} of {len(outcomes)} within their band; {options.page}")
    unexplained = [o.claim.name for o in outcomes if o.verdict != PASS and not o.claim.cause]
    if unexplained:
        print(f"without a cause: {', '.join(unexplained)}", file=sys.stderr)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
