"""Reads a topology from a file: a YAML file of its own, or the ``fabric`` section of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from mrc_host.errors import ConfigError, MrcError
from mrc_host.fabric.spec import parse_topology
from mrc_host.fabric.topology import Topology

__all__ = ["load_topology"]

SECTION = "fabric"
"""Key of the topology in an experiment."""


def load_topology(file: Path) -> Topology:
    """Read, check and build a topology.

    Parameters
    ----------
    file : pathlib.Path
        A YAML file whose root, or whose section ``fabric``, has the keys of
        :class:`~mrc_host.fabric.spec.TopologySpec`.

    Raises
    ------
    ConfigError
        For a key or value that is not allowed, with file, line and path to the key.
    MrcError
        When the file cannot be read or is not YAML.
    """
    try:
        document = YAML(typ="rt").load(file.read_text(encoding="utf-8"))
    except MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"{error.problem_mark.line + 1}:"
        raise MrcError(f"{file}:{line} must be valid YAML, got: {error.problem}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise MrcError(f"{file}: must be a readable text file, got: {error}") from error
    if not isinstance(document, Mapping):
        raise ConfigError("the file", "a mapping of keys to values", document, file=file)
    prefix = (SECTION,) if SECTION in document else ()
    section = document[SECTION] if prefix else document
    if not isinstance(section, Mapping):
        raise ConfigError(
            SECTION, "a mapping of keys to values", section, file=file, line=_line(document, prefix)
        )
    try:
        return Topology(parse_topology(section))
    except ConfigError as error:
        keys = (*prefix, *error.path.split("."))
        placed = ConfigError(".".join(keys), error.expected, error.value)
        raise placed.located(file, _line(document, keys)) from error


def _line(document: Any, keys: Sequence[str]) -> int | None:
    """Return the line, from 1, of the deepest key of a path that stands in the file."""
    line = None
    node = document
    for key in keys:
        if isinstance(node, Mapping) and key in node:
            line = node.lc.key(key)[0] + 1 if hasattr(node, "lc") else line
            node = node[key]
        elif (
            isinstance(node, Sequence)
            and not isinstance(node, str)
            and key.isdigit()
            and int(key) < len(node)
        ):
            line = node.lc.item(int(key))[0] + 1 if hasattr(node, "lc") else line
            node = node[int(key)]
        else:
            break
    return line
