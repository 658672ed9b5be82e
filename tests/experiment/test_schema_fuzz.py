"""Every field of the experiment schema, parameter of the NIC and option of the models runs or is refused.

Sweep: the tables of ``schema_values.py``, which must name every field; all options of the models with their
    choices and limits. Each field with one of its values, drawn by MRC_FUZZ_SEED; with all of them, and so
    many random combinations more, when MRC_FUZZ says how many (``nox -s schema``).
Stimulus: two hosts that send 3 KiB on models; nonsense of every type in every field.
Checks: runs end with every byte right; refusals name file, key, what is allowed and what was found.
Timing: simulated.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from experiment.schema_values import KINDS, PARAMETERS, SIMPLE, tiny
from mrc_host.errors import ConfigError, MrcError
from mrc_host.experiment.load import _model_in, load_experiment, parse_experiment
from mrc_host.experiment.lockstep import Lockstep, Observer
from mrc_host.experiment.nics import NicKinds
from mrc_host.experiment.schema import Experiment
from mrc_host.experiment.script import ACTIONS, Action
from mrc_host.experiment.testbed import Testbed as Bed
from mrc_host.experiment.testbed import build_testbed, set_up
from mrc_host.experiment.workload import WORKLOADS, Traffic, Workload
from mrc_host.fabric.faults import FAULTS, FaultSpec
from mrc_host.model.nscc import congestion_names
from mrc_host.model.options import OPTIONS, ModelOptions
from mrc_host.model.spray import policy_names
from mrc_rtl.config import NicConfig

MODEL = NicKinds.parse("model")
COMBINATIONS = int(os.environ.get("MRC_FUZZ", "0"))
DRAW = random.Random(int(os.environ.get("MRC_FUZZ_SEED", "0")))
BATCH = 25
NONSENSE: tuple[Any, ...] = ("nonsense", "", -1, 1e30, 0.3, [], [[]], {}, {"a": 1}, True, None)
GROUPS: dict[str, tuple[type[BaseModel], dict[str, Any], str]] = {
    "workload": (Traffic, WORKLOADS, "kind"),
    "faults": (FaultSpec, FAULTS, "kind"),
    "script": (Action, ACTIONS, "do"),
}


class Starter(Observer):
    """Starts what an experiment has planned."""

    def __init__(self, testbed: Bed) -> None:
        self.testbed = testbed

    def started(self, start_ps: int, limit_ps: int) -> None:
        self.testbed.start(start_ps, limit_ps)


def runs(description: dict[str, Any]) -> None:
    """Run an experiment on models, and compare every byte."""
    experiment = parse_experiment(description)
    testbed = build_testbed(experiment, MODEL, lambda text: None)
    try:
        set_up(testbed)
        longest = min([testbed.fabric.lookahead_ps, *(host.latency_ps for host in testbed.hosts)])
        window = max(1, int(longest * experiment.runner.fraction))
        lockstep = Lockstep(
            testbed.hosts, testbed.fabric, window_ps=window, observer=Starter(testbed), packets=True
        )
        lockstep.run(round(experiment.limits.simulated_time_us * 1_000_000))
        found = [application.verify() for application in testbed.applications]
        assert sum(check.mismatched + check.disturbed for check in found) == 0
        failed = [state.failure for state in testbed.states if state.failure]
        done = sum(len(state.completed_messages) for state in testbed.states)
        assert done or failed or experiment.faults, description
    finally:
        testbed.close()


# -- the tables name everything --------------------------------------------------------------------------


def fields(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Return the dotted names of all fields of a section and the sections in it."""
    found: set[str] = set()
    for name, field in model.model_fields.items():
        inner = _model_in(field.annotation)
        if name in GROUPS and inner is GROUPS[name][0]:
            continue
        if inner is None:
            found.add(prefix + name)
        else:
            found |= fields(inner, f"{prefix}{name}.")
    return found


def common(section: str) -> type[BaseModel]:
    return Workload if section == "workload" else GROUPS[section][0]


def test_every_field_of_the_schema_is_in_the_tables() -> None:
    assert set(SIMPLE) == fields(Experiment)
    for section, (_, kinds, tag) in GROUPS.items():
        assert set(KINDS[section]) == {"*", *kinds}
        shared = set(common(section).model_fields) - {tag}
        assert set(KINDS[section]["*"]) == shared
        for kind, model in kinds.items():
            own = fields(model) - shared - {tag}
            assert set(KINDS[section][kind]) - {""} == own, kind


def test_every_parameter_and_option_is_in_the_tables() -> None:
    assert set(PARAMETERS) == set(NicConfig.small().as_dict())
    assert set(OPTIONS) == set(ModelOptions().as_dict())


# -- what is valid runs ----------------------------------------------------------------------------------


def of_kind(section: str, kind: str, keys: dict[str, Any]) -> dict[str, Any]:
    """Return the tiny experiment with one section of a kind."""
    description = tiny()
    needed = KINDS[section][kind][""][0]
    if section == "workload":
        base = description["workload"]
        base = {key: value for key, value in base.items() if key in WORKLOADS[kind].model_fields}
        base.pop("flow_pairs", None)
        description["workload"] = {**base, "kind": kind, **needed, **keys}
        return description
    places = ("link", "port", "switch", "plane", "ev", "direction")
    if section == "faults" and any(key in keys for key in places):
        needed = {key: value for key, value in needed.items() if key not in places}
    defaults = {"host": 0} if section == "script" else {}
    description[section] = [{GROUPS[section][2]: kind, **defaults, **needed, **keys}]
    return description


def valid() -> dict[str, list[dict[str, Any]]]:
    """Return experiments by the name of the field they are about."""
    cases = {name: [{**tiny(), **change} for change in changes] for name, changes in SIMPLE.items()}
    carriers = {"workload": "pairs", "faults": "blackhole", "script": "disable_port"}
    for section, kinds in KINDS.items():
        for kind, named in kinds.items():
            for name, values in named.items():
                carrier = carriers[section] if kind == "*" else kind
                cases[f"{section}.{kind}.{name}"] = [of_kind(section, carrier, keys) for keys in values]
    for name, numbers in PARAMETERS.items():
        cases[f"nic.parameters.{name}"] = [with_nic(parameters={name: value}) for value in numbers]
    for name in OPTIONS:
        cases[f"nic.model.{name}"] = [with_nic(model={name: value}) for value in option_values(name)]
    return cases


def with_nic(**keys: Any) -> dict[str, Any]:
    description = tiny()
    description["nic"].update(keys)
    if "evs_per_plane" in keys.get("parameters", {}):
        description["qp"]["entropy_values"] = 4
    return description


def option_values(name: str) -> list[object]:
    """Return allowed values of an option: all choices, or the limits of a range."""
    option, default = OPTIONS[name], getattr(ModelOptions(), name)
    if option.plug_in:
        return sorted({"spray_policy": policy_names, "congestion": congestion_names}[name]())
    if option.choices:
        return list(option.choices)
    if isinstance(default, bool):
        return [True, False]
    low, high = option.low, option.high
    if name == "probe_interval_min_ns":
        high = ModelOptions().probe_interval_max_ns
    if name == "probe_interval_max_ns":
        low = ModelOptions().probe_interval_min_ns
    return [low, high]


CASES = valid()


def chosen() -> list[tuple[str, dict[str, Any]]]:
    """Return one experiment for each field, or all of them in the long session."""
    if COMBINATIONS:
        return [(name, case) for name, cases in CASES.items() for case in cases]
    return [(name, DRAW.choice(cases)) for name, cases in CASES.items()]


CHOSEN = chosen()


def test_all_values_of_the_tables_are_valid() -> None:
    refused = []
    for name, cases in CASES.items():
        for case in cases:
            try:
                parse_experiment(case)
            except ConfigError as error:
                refused.append(f"{name}: {error} with {case}")
    assert refused == []


@pytest.mark.parametrize("first", range(0, len(CHOSEN), BATCH))
def test_every_field_and_option_runs(first: int) -> None:
    for name, description in CHOSEN[first : first + BATCH]:
        try:
            runs(description)
        except Exception as error:
            raise AssertionError(f"{name}: {error!r} with {description}") from error


@pytest.mark.parametrize("seed", range(COMBINATIONS or 5))
def test_combinations_run_or_are_refused(seed: int) -> None:
    """Several fields at once: the sections of some cases, one over the other."""
    draw = random.Random(seed)
    description = tiny()
    for name in draw.sample(sorted(CASES), draw.randrange(2, 6)):
        for section, content in draw.choice(CASES[name]).items():
            if isinstance(content, dict) and section != "workload":
                description[section] = {**description.get(section, {}), **content}
            else:
                description[section] = content
    try:
        parse_experiment(description)
    except MrcError as error:
        assert " must be " in str(error)
        return
    runs(description)


# -- what is not is refused ------------------------------------------------------------------------------


def paths(description: dict[str, Any], name: str) -> tuple[str | int, ...]:
    """Return the keys that lead to the field a case is about."""
    parts = name.split(".")
    if parts[0] in KINDS:
        parts = [parts[0], *parts[2:]]
    keys: list[str | int] = []
    node: Any = description
    for part in parts:
        if isinstance(node, list):
            keys.append(0)
            node = node[0]
        keys.append(part)
        node = node.get(part) if isinstance(node, dict) else None
    return tuple(keys)


NAMES = sorted(name for name in CASES if not name.endswith("."))


@pytest.mark.parametrize("first", range(0, len(NAMES), 4 * BATCH))
def test_nonsense_is_refused_with_its_place(tmp_path: Path, first: int) -> None:
    file = tmp_path / "nonsense.yaml"
    for name in NAMES[first : first + 4 * BATCH]:
        refused = 0
        for value in NONSENSE:
            changed = replaced(CASES[name][0], paths(CASES[name][0], name), value)
            # A file for one of the values: reading YAML takes longer than everything else.
            as_file = value == NONSENSE[0]
            try:
                if as_file:
                    with file.open("w") as stream:
                        YAML().dump(changed, stream)
                    load_experiment(file)
                else:
                    parse_experiment(changed)
            except ConfigError as error:
                refused += 1
                text = str(error)
                assert not as_file or text.startswith(f"{file}:"), (name, value, text)
                assert " must be " in text, (name, value, text)
                assert name.split(".")[0] in error.path or name.split(".")[-1] in error.path, (name, text)
                assert ", got " in text or text.endswith("given"), (name, value, text)
            except Exception as error:
                raise AssertionError(f"{name} = {value!r}: {error!r}") from error
        assert refused >= 5, f"{name} takes {len(NONSENSE) - refused} of {NONSENSE}"


def replaced(node: Any, keys: tuple[str | int, ...], value: Any) -> Any:
    """Return a copy with another value at a place."""
    if not keys:
        return value
    if isinstance(node, list):
        return [
            replaced(item, keys[1:], value) if place == keys[0] else item for place, item in enumerate(node)
        ]
    return {**(node or {}), keys[0]: replaced((node or {}).get(keys[0]), keys[1:], value)}


def test_options_of_models_are_checked() -> None:
    for name in OPTIONS:
        for wrong in ("nonsense", -7, 1.5, [], 10**14):
            with pytest.raises(ConfigError) as caught:
                parse_experiment(with_nic(model={name: wrong}))
            assert caught.value.path == f"nic.model.{name}"


def test_all_plug_ins_of_models_are_known_to_whoever_reads_a_file() -> None:
    """In a process that has made no NIC yet."""
    program = (
        "from mrc_host.experiment.load import parse_experiment\n"
        f"d = {tiny()!r}\n"
        "for name in ('nscc_fixed', 'nscc_float', 'none'):\n"
        "    d['nic']['model'] = {'congestion': name}\n"
        "    parse_experiment(d)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_options_of_models_can_be_set_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    with file.open("w") as stream:
        YAML().dump(tiny(), stream)
    chosen = {name: option_values(name)[0] for name in OPTIONS}
    settings = [
        f"nic.model.{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in chosen.items()
    ]
    assert load_experiment(file, settings).nic.model == chosen
    with pytest.raises(ConfigError, match=r"--set: nic\.model\.nothing must be a known option"):
        load_experiment(file, ["nic.model.nothing=1"])
    with pytest.raises(ConfigError, match=r"--set: nic\.model\.burst must be between 1 and 64, got 0"):
        load_experiment(file, ["nic.model.burst=0"])
