"""Reads experiments: YAML with line numbers, overrides, and messages that say where and what.

Whatever is wrong becomes a :class:`~mrc_host.errors.ConfigError`: file, line, dotted path of the key, what is
allowed, and what was found.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mrc_host.documents import line_of, read_mapping
from mrc_host.errors import ConfigError
from mrc_host.experiment.checks import check_experiment
from mrc_host.experiment.schema import Experiment
from mrc_host.experiment.script import ACTIONS, Action
from mrc_host.experiment.workload import Traffic
from mrc_host.experiment.workloads import WORKLOADS
from mrc_host.fabric.faults import FAULTS, FaultSpec

__all__ = [
    "apply_override",
    "load_experiment",
    "parse_experiment",
    "place_files",
    "plain",
    "resolved_yaml",
]

OVERRIDE = "--set"


def load_experiment(file: Path, overrides: Iterable[str] = ()) -> Experiment:
    """Read, override and check an experiment.

    Parameters
    ----------
    file : pathlib.Path
        YAML file.
    overrides : iterable of str
        ``key=value``, the key dotted from the root of the file, the value in YAML: ``fabric.planes=2``.

    Raises
    ------
    ConfigError
        A key or value is not allowed.
    MrcError
        The file cannot be read or is not YAML.
    """
    document = read_mapping(file)
    described = plain(document)
    overridden = [apply_override(described, text) for text in overrides]
    place_files(described, file)
    try:
        return parse_experiment(described)
    except ConfigError as error:
        keys = tuple(error.path.split("."))
        if any(_concerns(path, keys, document) for path in overridden):
            raise error.located(OVERRIDE, None) from error
        raise error.located(file, line_of(document, keys)) from error


def parse_experiment(data: Mapping[str, Any]) -> Experiment:
    """Check an experiment given as nested mappings.

    Raises
    ------
    ConfigError
        For the first thing that is wrong; it has no place in a file.
    """
    try:
        experiment = Experiment.model_validate(dict(data))
    except ValidationError as error:
        raise _problems(error, data)[0] from error
    check_experiment(experiment)
    return experiment


def resolved_yaml(experiment: Experiment) -> str:
    """Return an experiment as YAML with all defaults written out; reading it gives the same experiment."""
    from io import StringIO

    writer = YAML()
    writer.default_flow_style = False
    writer.width = 110
    stream = StringIO()
    writer.dump(experiment.model_dump(mode="json", exclude_none=True), stream)
    return stream.getvalue()


def place_files(document: dict[str, Any], file: Path) -> None:
    """Let names of files inside an experiment begin at its folder."""
    section = document.get("workload")
    if isinstance(section, dict) and isinstance(section.get("file"), str):
        section["file"] = str(file.parent.resolve() / section["file"])


# -- overrides -------------------------------------------------------------------------------------------


def plain(node: Any) -> Any:
    """Return ruamel's nodes as plain objects, so that checks see built-in types."""
    if isinstance(node, Mapping):
        return {str(key): plain(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [plain(value) for value in node]
    if isinstance(node, bool) or node is None:
        return node
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def apply_override(document: dict[str, Any], text: str) -> tuple[str, ...]:
    """Apply ``key=value`` to a document; return the keys of its path."""
    path, equals, value_text = text.partition("=")
    keys = tuple(path.strip().split("."))
    if not equals or not all(keys):
        raise ConfigError(OVERRIDE, "key=value with a dotted key, such as fabric.planes=2", text)
    try:
        value = plain(YAML(typ="safe").load(value_text))
    except YAMLError as error:
        raise ConfigError(OVERRIDE, "key=value with a value in YAML", text) from error
    node: Any = document
    for position, key in enumerate(keys[:-1]):
        if isinstance(node, list):
            node = node[_index(node, keys, position)]
        elif isinstance(node, dict):
            node = node.setdefault(key, {})
        if not isinstance(node, dict | list):
            raise ConfigError(".".join(keys[: position + 1]), "a section, to set a key in it", node).located(
                OVERRIDE, None
            )
    if isinstance(node, list):
        node[_index(node, keys, len(keys) - 1)] = value
    else:
        node[keys[-1]] = value
    return keys


def _concerns(overridden: tuple[str, ...], keys: tuple[str, ...], document: Any) -> bool:
    """Whether an override put what an error is about where it is: the key, or a section around it."""
    if keys[: len(overridden)] == overridden:
        return True
    return overridden[: len(keys)] == keys and line_of(document, keys) is None


def _index(node: list[Any], keys: tuple[str, ...], position: int) -> int:
    key = keys[position]
    if not key.isdigit() or int(key) >= len(node):
        raise ConfigError(
            ".".join(keys[: position + 1]), f"a position between 0 and {len(node) - 1}", key
        ).located(OVERRIDE, None)
    return int(key)


# -- messages --------------------------------------------------------------------------------------------


def _problems(error: ValidationError, data: Mapping[str, Any]) -> list[ConfigError]:
    """Turn pydantic's errors into this project's form, unknown keys first.

    A key that is missing is most often one that is misspelt.
    """
    problems = []
    for item in sorted(error.errors(), key=lambda item: item["type"] != "extra_forbidden"):
        keys = [str(part) for part in item["loc"]]
        path = ".".join(keys) or "the file"
        kind, value = item["type"], item.get("input")
        if kind == "extra_forbidden":
            known = _known_keys(keys[:-1], data)
            near = get_close_matches(keys[-1], known, n=1, cutoff=0.5)
            hint = f" (did you mean {near[0]}?)" if near else ""
            problems.append(ConfigError(path, f"a known key{hint}: {', '.join(known)}", keys[-1]))
        elif kind == "missing":
            problems.append(ConfigError(path, "given"))
        elif kind == "mrc_config":
            problems.append(ConfigError(path, item["ctx"]["expected"], item["ctx"]["value"]))
        elif kind in ("model_type", "model_attributes_type", "dict_type"):
            problems.append(ConfigError(path, "a mapping of keys to values", value))
        else:
            expected = item["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            problems.append(ConfigError(path, expected, value))
    return problems


def _known_keys(keys: Sequence[str], data: Mapping[str, Any]) -> list[str]:
    """Return the keys that may stand in the section a path leads to."""
    model: type[BaseModel] = Experiment
    for key in keys:
        if key.isdigit():
            continue
        inner = _model_in(model.model_fields[key].annotation) if key in model.model_fields else None
        if inner is None:
            break
        model = inner
        if issubclass(model, Traffic):
            section = data.get("workload")
            kind = section.get("kind") if isinstance(section, Mapping) else None
            model = WORKLOADS.get(str(kind), model)
        if issubclass(model, FaultSpec):
            model = FAULTS.get(_kind_in_list(keys, data, "kind"), model)
        if issubclass(model, Action):
            model = ACTIONS.get(_kind_in_list(keys, data, "do"), model)
    return list(model.model_fields)


def _kind_in_list(keys: Sequence[str], data: Mapping[str, Any], key: str) -> str:
    """Return of what kind the entry of a list is that a path leads to: ``faults.3`` or ``script.0``."""
    entries = data.get(keys[0])
    number = int(keys[1]) if len(keys) > 1 and keys[1].isdigit() else -1
    if not isinstance(entries, Sequence) or not 0 <= number < len(entries):
        return ""
    entry = entries[number]
    return str(entry.get(key)) if isinstance(entry, Mapping) else ""


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model inside an annotation such as ``list[Criterion]`` or ``Model | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (list, Union, types.UnionType, Annotated):
        for part in get_args(annotation):
            found = _model_in(part)
            if found is not None:
                return found
    return None
