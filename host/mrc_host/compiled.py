"""The compiled modules: model, fabric and what they touch for each packet, made by mypyc and the C compiler.

The source stays plain typed Python and runs as such, with the same results; compiled it is several times
faster. What is compiled lies in the cache beside the compiled engines, under a key of its sources: edited
source never meets an old compilation. ``MRC_COMPILED`` chooses:

* not set: compiled when that is in the cache, otherwise plain;
* ``0``: plain;
* ``1``: compiled; it is made now when it is not in the cache, and an error when it cannot be.

``python -m mrc_host.compiler`` makes it; ``make install`` and the test sessions call that. This module is
imported with the package, so it imports little itself.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

__all__ = [
    "FLAGS",
    "GROUP",
    "MODULES",
    "Finder",
    "activate",
    "imported_sources",
    "note",
    "source_of",
    "state",
]

GROUP = "mrc_model"
"""Name of the shared library that holds the code of all modules."""

FLAGS = ("-O2", "-fno-strict-overflow", "-fwrapv", "-g0", "-w")
"""What the C compiler is told beside Python's own flags."""

VARIABLE = "MRC_COMPILED"

_PACKAGES = {
    "mrc_host.model": "*",
    "mrc_host.fabric": "counters events heap links model packet port routes switch taps",
    "mrc_host.experiment": "lockstep packet_log",
    "mrc_host.nic": "base",
    "mrc_host.packets": "peek trim",
}
_PLAIN = ("__init__", "options", "replay")
"""How the names of modules begin that stay plain: options judge what users write, a replay uses the model."""
_ROOT = Path(__file__).resolve().parent
_IMPORT = re.compile(r"^from (mrc_\w+(?:\.\w+)*) import (\([^)]*\)|.*)$", re.MULTILINE)


def source_of(module: str) -> Path:
    """Return where the source of a module of the project is, whether or not it exists.

    Parameters
    ----------
    module : str
        Dotted name.
    """
    package, *rest = module.split(".")
    root = _ROOT
    if package != "mrc_host":
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.origin is not None
        root = Path(spec.origin).parent
    return root.joinpath(*rest).with_suffix(".py")


def _modules() -> tuple[str, ...]:
    names = []
    for package, chosen in _PACKAGES.items():
        stems = chosen.split()
        if chosen == "*":
            folder = _ROOT.joinpath(*package.split(".")[1:])
            stems = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith(_PLAIN))
        names += [f"{package}.{stem}" for stem in stems]
    return tuple(names)


MODULES = _modules()
"""Names of the compiled modules: nearly all of ``mrc_host.model``, and of others what packets touch."""


def imported_sources() -> list[Path]:
    """Return the sources that decide the compilation: those of the modules, and what they import of the
    project, whose types and constants it goes by.
    """
    paths = [source_of(module) for module in MODULES]
    found = set(paths)
    for path in list(paths):
        for module, names in _IMPORT.findall(path.read_text(encoding="utf-8")):
            for name in ("", *re.findall(r"\w+", names)):
                source = source_of(f"{module}.{name}" if name else module)
                if source not in found and source.is_file():
                    found.add(source)
                    paths.append(source)
    return paths


class Finder(importlib.abc.MetaPathFinder):
    """Finds the compiled modules before Python finds their source.

    It looks into the cache when the first of them is imported.

    Parameters
    ----------
    make : bool
        Make the compilation when it is not in the cache.

    Attributes
    ----------
    found : bool or None
        Whether there is a compilation; None before it was looked for.
    """

    def __init__(self, make: bool) -> None:
        self._make = make
        self._names = frozenset((*MODULES, f"{GROUP}__mypyc"))
        self._folder: Path | None = None
        self.found: bool | None = None

    def look(self) -> bool:
        """Look for the compilation, and make it if it shall be.

        Raises
        ------
        InfrastructureError
            It shall be made and cannot be.
        """
        if self.found is None:
            from mrc_host.compiler import compilation, make_compilation

            self._folder = make_compilation() if self._make else compilation()
            self.found = self._folder is not None
        return self.found

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return where a compiled module is; None leaves the search to others."""
        if fullname not in self._names or not self.look():
            return None
        assert self._folder is not None
        file = str(self._folder / (fullname + importlib.machinery.EXTENSION_SUFFIXES[0]))
        loader = importlib.machinery.ExtensionFileLoader(fullname, file)
        return importlib.util.spec_from_file_location(fullname, file, loader=loader)


_finder: Finder | None = None


def activate() -> None:
    """Let imports find the compiled modules, as ``MRC_COMPILED`` says.

    Raises
    ------
    ValueError
        The variable is neither 0 nor 1.
    """
    global _finder
    wish = os.environ.get(VARIABLE, "")
    if wish not in ("", "0", "1"):
        raise ValueError(f"{VARIABLE} must be 0 or 1, got {wish!r}")
    if _finder is None and wish != "0":
        _finder = Finder(wish == "1")
        sys.meta_path.insert(0, _finder)


def state() -> str:
    """Return what this process uses: ``compiled`` or ``plain``."""
    return "compiled" if _finder is not None and _finder.look() else "plain"


def note() -> str:
    """Return one line for a user whose model runs as plain Python without being asked to, else nothing."""
    if _finder is None or _finder.look():
        return ""
    return (
        "The model runs as plain Python, several times slower: its source is not compiled. "
        "python -m mrc_host.compiler does it, or says what is missing."
    )
