"""A file of several runs: cases that differ, seeds, and what must hold between cases.

An experiment file may have these keys besides those of an experiment:

=============== ========================================================================================
``variants``    sections by scale, such as ``F`` and ``f``; one of them is laid over the file, cases too;
                ``without`` names cases it leaves out
``cases``       sections by name, each laid over the file; a case may have ``sweep``: lists of values by
                dotted keys (several with commas), of which every combination becomes a case
``seeds``       how many seeds each case runs with: ``seed``, ``seed`` + 1, …; a case may have its own
``curves``      figures of one metric against another along each sweep
``comparisons`` bounds on the mean of a metric in one case, alone or over its mean in another
=============== ========================================================================================

Sections are laid over each other key by key; lists and values replace what was there. Without any of these
keys a file is one run.

Source: experiments.md 1 (every experiment: at least 5 seeds); interfaces.md, "Files".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from mrc_host.documents import line_of, read_mapping
from mrc_host.errors import ConfigError
from mrc_host.experiment.definitions import DEFINITIONS
from mrc_host.experiment.fields import Section, choice, number, refuse, text, whole
from mrc_host.experiment.load import apply_override, parse_experiment, place_files, plain
from mrc_host.experiment.schema import Experiment
from mrc_host.fabric.spec import config_errors

__all__ = ["STUDY_KEYS", "Case", "Comparison", "Study", "is_study", "load_study"]

STUDY_KEYS = ("variants", "cases", "seeds", "comparisons", "curves")
OWN_KEYS = ("seeds", "comparisons", "curves")
ONLY = "all"
SEEDS_MAXIMUM = 10_000


class Comparison(Section):
    """A bound on the mean of a metric over the seeds of a case.

    Parameters
    ----------
    metric : str
        Name of a metric.
    case : str
        Name of a case.
    over : str, optional
        Another case: its mean divides that of the first.
    at_least, at_most : float, optional
        The bound; at least one.
    source : str
        Where it comes from.
    """

    metric: str
    case: str
    over: str | None = None
    at_least: Annotated[float, number("the metric's unit", -1e18, 1e18)] | None = None
    at_most: Annotated[float, number("the metric's unit", -1e18, 1e18)] | None = None
    source: Annotated[str, text("text that says where the bound comes from")]

    @model_validator(mode="after")
    def _has_a_bound(self) -> Comparison:
        if self.metric not in DEFINITIONS:
            raise refuse(f"a comparison of a metric: {', '.join(DEFINITIONS)}", self.metric)
        if self.at_least is None and self.at_most is None:
            raise refuse("a comparison with at_least or at_most", self.metric)
        return self


class Curve(Section):
    """A figure of one metric against another: a line for each swept case.

    Parameters
    ----------
    x, y : str
        Names of metrics.
    """

    x: Annotated[str, choice(*DEFINITIONS)]
    y: Annotated[str, choice(*DEFINITIONS)]


class _StudySection(Section):
    """The keys of a study that are not sections of its experiment."""

    seeds: Annotated[int, whole(1, SEEDS_MAXIMUM)] = 1
    comparisons: list[Comparison] = Field(default_factory=list)
    curves: list[Curve] = Field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """Runs that differ in nothing but the seed.

    Parameters
    ----------
    name : str
        Unique in the study.
    settings : dict
        Values of the sweep it comes from, by dotted key.
    experiments : tuple of Experiment
        One for each seed.
    """

    name: str
    settings: dict[str, Any]
    experiments: tuple[Experiment, ...]


@dataclass(frozen=True)
class Study:
    """All runs of a file.

    Parameters
    ----------
    name, title, description : str
        Of the file.
    variant : str
        The one that was chosen; empty when there are none.
    cases : tuple of Case
    comparisons : tuple of Comparison
    curves : tuple of Curve
    """

    name: str
    title: str
    description: str
    variant: str
    cases: tuple[Case, ...]
    comparisons: tuple[Comparison, ...]
    curves: tuple[Curve, ...] = ()

    def case(self, name: str) -> Case:
        """Return a case by name."""
        return next(case for case in self.cases if case.name == name)

    def with_cases(self, names: Sequence[str]) -> Study:
        """Return the study of some of its cases, with the comparisons that need no others.

        Raises
        ------
        ConfigError
            There is no such case.
        """
        known = [case.name for case in self.cases]
        for name in names:
            if name not in known:
                raise ConfigError("--case", f"one of {', '.join(known)}", name)
        return replace(
            self,
            cases=tuple(case for case in self.cases if case.name in names),
            comparisons=tuple(
                item for item in self.comparisons if item.case in names and item.over in (None, *names)
            ),
        )


def is_study(file: Path) -> bool:
    """Whether a file has more than one run.

    Raises
    ------
    MrcError
        It cannot be read or is not YAML.
    """
    return any(key in read_mapping(file) for key in STUDY_KEYS)


def load_study(
    file: Path, overrides: Iterable[str] = (), *, variant: str | None = None, seed: int | None = None
) -> Study:
    """Read all runs of a file.

    Parameters
    ----------
    file : Path
        YAML.
    overrides : iterable of str
        ``key=value``: those of :data:`STUDY_KEYS` change the study, others every run of it.
    variant : str, optional
        Name of the variant; the first one when left out.
    seed : int, optional
        Only this seed.

    Raises
    ------
    ConfigError
        A key or value is not allowed.
    MrcError
        The file cannot be read or is not YAML.
    """
    document = read_mapping(file)
    try:
        return _study(plain(document), file, list(overrides), variant, seed)
    except ConfigError as error:
        keys = tuple(error.path.split("."))
        raise error.located(file, line_of(document, keys)) from error


def _study(
    document: dict[str, Any], file: Path, overrides: list[str], variant: str | None, seed: int | None
) -> Study:
    own = [item for item in overrides if item.split("=")[0].split(".")[0].strip() in STUDY_KEYS]
    for item in own:
        apply_override(document, item)
    variants = _named(document.pop("variants", None) or {}, "variants")
    cases = _named(document.pop("cases", None) or {ONLY: {}}, "cases")
    values = {key: document.pop(key) for key in OWN_KEYS if key in document}
    chosen = variant if variant is not None else next(iter(variants), "")
    if chosen and chosen not in variants:
        raise ConfigError("variants", f"a variant: {', '.join(variants) or 'the file has none'}", chosen)
    if chosen:
        named = variants[chosen]
        cases = _laid_over(cases, _named(named.pop("cases", None) or {}, f"variants.{chosen}.cases"))
        dropped = named.pop("without", [])
        cases = {name: case for name, case in cases.items() if name not in dropped}
        values |= {key: named.pop(key) for key in OWN_KEYS if key in named}
        document = _laid_over(document, named)
    section = _section(values)
    made: list[Case] = []
    for name, case in cases.items():
        count = case.pop("seeds", section.seeds)
        sweep = case.pop("sweep", {})
        for settings in _combinations(sweep, f"cases.{name}.sweep"):
            described = _laid_over(deepcopy(document), deepcopy(case))
            for keys, value in settings.items():
                for key in keys.split(","):
                    _set(described, key.strip().split("."), value)
            for item in overrides:
                if item not in own:
                    apply_override(described, item)
            place_files(described, file)
            first = described.get("seed", 1)
            seeds = [seed] if seed is not None else list(range(first, first + count))
            label = "/".join([name, *(str(value) for value in settings.values())])
            made.append(Case(label, settings, tuple(_parse(described, number, name) for number in seeds)))
    comparisons = _checked(section.comparisons, [case.name for case in made], bool(chosen))
    head = made[0].experiments[0]
    return Study(
        document.get("name", head.name),
        head.title,
        head.description,
        chosen,
        tuple(made),
        comparisons,
        tuple(section.curves),
    )


def _parse(described: Mapping[str, Any], seed: int, case: str) -> Experiment:
    try:
        return parse_experiment({**described, "seed": seed})
    except ConfigError as error:
        if case == ONLY:
            raise
        raise ConfigError(error.path, f"{error.expected} (case {case})", error.value) from error


def _checked(comparisons: list[Comparison], names: list[str], some: bool) -> tuple[Comparison, ...]:
    """Return the comparisons whose cases exist; a variant may be without a case."""
    kept = []
    for index, item in enumerate(comparisons):
        unknown = [name for name in (item.case, item.over) if name is not None and name not in names]
        if unknown and not some:
            raise ConfigError(f"comparisons.{index}", f"of cases: {', '.join(names)}", unknown[0])
        if not unknown:
            kept.append(item)
    return tuple(kept)


def _section(values: dict[str, Any]) -> _StudySection:
    try:
        return _StudySection.model_validate(values)
    except ValidationError as error:
        raise config_errors(error, _StudySection)[0] from error


def _named(value: Any, path: str) -> dict[str, dict[str, Any]]:
    if not isinstance(value, dict) or not all(isinstance(entry or {}, dict) for entry in value.values()):
        raise ConfigError(path, "a mapping of names to sections", value)
    return {str(name): dict(entry or {}) for name, entry in value.items()}


def _laid_over(below: Any, above: Any) -> Any:
    """Return what stands in two documents, where the second one wins."""
    if isinstance(below, dict) and isinstance(above, dict):
        kinds = [section.get("kind") for section in (below, above)]
        if kinds[1] is not None and kinds[0] != kinds[1]:
            return above
        merged = dict(below)
        for key, value in above.items():
            merged[key] = _laid_over(below[key], value) if key in below else value
        return merged
    return above


def _combinations(sweep: Any, path: str) -> list[dict[str, Any]]:
    if not isinstance(sweep, dict) or not all(
        isinstance(values, list) and values for values in sweep.values()
    ):
        raise ConfigError(path, "a mapping of dotted keys to lists of values", sweep)
    return [dict(zip(sweep, values, strict=True)) for values in product(*sweep.values())]


def _set(document: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        document = document.setdefault(key, {})
    document[keys[-1]] = value
