"""Reads a topology from a file: a YAML file of its own, or the ``fabric`` section of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mrc_host.documents import line_of, read_mapping
from mrc_host.errors import ConfigError
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
    document = read_mapping(file)
    prefix = (SECTION,) if SECTION in document else ()
    section = document[SECTION] if prefix else document
    if not isinstance(section, Mapping):
        raise ConfigError(
            SECTION, "a mapping of keys to values", section, file=file, line=line_of(document, prefix)
        )
    try:
        return Topology(parse_topology(section))
    except ConfigError as error:
        keys = (*prefix, *error.path.split("."))
        placed = ConfigError(".".join(keys), error.expected, error.value)
        raise placed.located(file, line_of(document, keys)) from error
