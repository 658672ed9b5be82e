"""Do the tests notice faults? ``python tb/mutants.py [NAME ...]`` puts one at a time into a copy.

For each fault of :mod:`mutant_faults` the tests that cover its block run until the first failure. A journal
takes a line for each, so that an interrupted session goes on where it was; a fault whose file, tests or text
changed runs again. The session fails when fewer than nine in ten are noticed, or one of those named on the
command line is not. ``--quick`` runs the four of the continuous integration; ``--list`` only names all.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mrc_rtl.toolchain import cache_directory, content_key
from mutant_faults import COVERING, FAULTS, QUICK, Fault

__all__ = ["Journal", "main", "mutated", "notices", "summary"]

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "rtl"
NOTICED_SHARE = 0.9
LIMIT_SECONDS = 3600
SHARED_CACHES = ("verilator-runtime", "verilator-support")

_MISTAKE = re.compile(r"\b(Name|Type|Syntax|Attribute|Import|Key|Index|ModuleNotFound)Error\b")
"""What a fault that is not hardware any more ends in."""


def mutated(fault: Fault, text: str) -> str:
    """The file's text with the fault.

    Raises
    ------
    ValueError
        The text to replace is not there exactly once.
    """
    found = text.count(fault.old)
    if found != 1:
        raise ValueError(
            f"{fault.name}: {fault.file} must contain {fault.old!r} exactly once, but does {found} times"
        )
    return text.replace(fault.old, fault.new)


def notices(fault: Fault, folder: Path) -> str | None:
    """The first covering test file that fails with the fault, None when none does.

    Parameters
    ----------
    fault : Fault
    folder : Path
        Empty; the gateware's copy and what the tests compile of it go there.

    Raises
    ------
    RuntimeError
        The tests did not run with the copy.
    """
    shutil.copytree(SOURCES, folder / "rtl", ignore=shutil.ignore_patterns("__pycache__"))
    changed = folder / "rtl" / "mrc_rtl" / fault.file
    changed.write_text(mutated(fault, changed.read_text()))
    # Mutants compile into a cache of their own; only what does not depend on the design is shared.
    (folder / "cache").mkdir()
    for name in SHARED_CACHES:
        (folder / "cache" / name).symlink_to(cache_directory(name))
    places = [folder / "rtl", *(ROOT / name for name in ("host", "lab", "tests", "tb"))]
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), "MRC_CACHE_DIR": str(folder / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    used = subprocess.run(
        [sys.executable, "-c", "import mrc_rtl; print(mrc_rtl.__file__)"],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    if not Path(used.strip()).is_relative_to(folder):
        raise RuntimeError(f"the tests must use the gateware in {folder}, but use {used.strip()}")
    for test in COVERING[fault.file]:
        command = [sys.executable, "-m", "pytest", "--quiet", "-x", "-n", "0", "--tb=line"]
        command += ["-p", "no:cacheprovider", "--timeout", str(LIMIT_SECONDS), str(ROOT / test)]
        result = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
        if result.returncode == pytest.ExitCode.OK:
            continue
        mistake = _MISTAKE.search(result.stdout)
        if result.returncode != pytest.ExitCode.TESTS_FAILED or mistake:
            raise RuntimeError(f"{fault.name} must be a working design, but {test} says:\n{result.stdout}")
        return test
    return None


class Journal:
    """What became of each fault, one JSON line each.

    Parameters
    ----------
    path : Path
    fresh : bool
        Forget what stands there.
    """

    def __init__(self, path: Path, fresh: bool = False) -> None:
        self.path = path
        self.entries: dict[str, dict[str, object]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not fresh:
            for line in path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # the line that was being written when the session was killed
                self.entries[entry["name"]] = entry
        elif fresh:
            path.unlink(missing_ok=True)

    def holds(self, fault: Fault) -> bool:
        """Whether the result of this fault, with these tests, is known."""
        return self.entries.get(fault.name, {}).get("key") == key_of(fault)

    def add(self, fault: Fault, by: str | None, seconds: float) -> None:
        """Write a result down."""
        entry = {"name": fault.name, "key": key_of(fault), "by": by, "seconds": round(seconds, 1)}
        self.entries[fault.name] = entry
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def key_of(fault: Fault) -> str:
    """Stands for the fault, the file it is in, and the tests that cover it."""
    tests = [ROOT / test.split("::")[0] for test in COVERING[fault.file]]
    return content_key(fault.old, fault.new, SOURCES / "mrc_rtl" / fault.file, *tests, *COVERING[fault.file])


def summary(faults: Sequence[Fault], journal: Journal) -> Iterator[str]:
    """How many were noticed, and which were not."""
    survivors = [fault for fault in faults if journal.entries[fault.name]["by"] is None]
    yield f"{len(faults) - len(survivors)} of {len(faults)} faults noticed"
    for fault in survivors:
        yield f"not noticed: {fault.name} ({fault.file}): {fault.breaks}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the session; the exit code says whether enough was noticed."""
    parser = argparse.ArgumentParser(description="Faults in the gateware, and the tests that notice them.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults to run, by default all")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--list", action="store_true", help="name the faults and what they break")
    parser.add_argument("--journal", type=Path, default=Path("runs/mutants.jsonl"))
    parser.add_argument("--fresh", action="store_true", help="forget what the journal says is done")
    options = parser.parse_args(arguments)
    names = set(options.names or (QUICK if options.quick else [fault.name for fault in FAULTS]))
    unknown = names - {fault.name for fault in FAULTS}
    if unknown:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; --list names all")
    faults = [fault for fault in FAULTS if fault.name in names]
    if options.list:
        print("\n".join(f"{fault.name}: {fault.file}: {fault.breaks}" for fault in faults))
        return 0
    journal = Journal(options.journal, options.fresh)
    for number, fault in enumerate(faults, 1):
        if not journal.holds(fault):
            started = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
                by = notices(fault, Path(folder))
            journal.add(fault, by, time.monotonic() - started)
        by = journal.entries[fault.name]["by"]
        print(
            f"{number}/{len(faults)} {fault.name}: {f'noticed by {by}' if by else 'NOT NOTICED'}", flush=True
        )
    lines = list(summary(faults, journal))
    print("\n".join(lines))
    wanted = len(faults) if options.names or options.quick else NOTICED_SHARE * len(faults)
    return int(len(faults) - len(lines) + 1 < wanted)


if __name__ == "__main__":
    sys.exit(main())
