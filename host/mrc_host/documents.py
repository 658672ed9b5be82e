"""YAML files with line numbers, so that a message can say which line is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mrc_host.errors import ConfigError, MrcError

__all__ = ["line_of", "read_mapping"]


def read_mapping(file: Path) -> Mapping[str, Any]:
    """Read a YAML file whose root is a mapping; the nodes keep their places.

    Raises
    ------
    ConfigError
        The root is something else.
    MrcError
        The file cannot be read or is not YAML.
    """
    try:
        document = YAML(typ="rt").load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise MrcError(f"{file}: must be a readable text file, got: {error}") from error
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{file}:" if mark is None else f"{file}:{mark.line + 1}:"
        raise MrcError(f"{place} must be valid YAML, got: {getattr(error, 'problem', error)}") from error
    if not isinstance(document, Mapping):
        raise ConfigError("the file", "a mapping of keys to values", document, file=file)
    return document


def line_of(document: Any, keys: Sequence[str]) -> int | None:
    """Return the line, from 1, of the deepest key of a path that stands in the file.

    Parameters
    ----------
    document : node of :func:`read_mapping`
    keys : sequence of str
        From the root on; positions in lists as decimal text.
    """
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
