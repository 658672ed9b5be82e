"""Which branches of the receive path no block test takes, and that docs/coverage.md says why.

``python tb/branch_report.py`` runs the block tests with :mod:`branch_coverage`, prints the share of branches
and bits of every file they simulate, and fails if a branch of the receive path is neither taken nor explained
in the page's table, or if the table explains one that is taken or does not exist. ``--write`` puts the
figures into the page. ``--from FOLDER`` judges counters that are there; other arguments go to pytest.
"""

import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path

from branch_coverage import SOURCES, Branch, Counters

__all__ = ["explained", "figures", "judge", "main", "share_row", "with_section"]

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "coverage.md"
TESTS = ("tests/rtl", "tests/packets/test_ev_expansion_gateware.py")
RECEIVE_PATH = ("responder/", "memory_regions.py", "memory_rules.py", "icrc.py", "counters.py")
"""Files of the receive path, by the start of their names."""

#: (file, its line without blanks around, "taken" or "skipped")
Line = tuple[str, str, str]


def with_section(page: str, name: str, lines: Iterable[str]) -> str:
    """The page with other lines between ``<!-- name -->`` and ``<!-- end -->``."""
    before, mark, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if not mark or not end:
        raise ValueError(f"the page must have <!-- {name} --> and <!-- end -->, but has not")
    return before + mark + "\n".join(lines) + "\n" + end + after


def explained(page: str) -> dict[Line, str]:
    """Branches of the page's table of branches that no test takes, with their reasons."""
    found: dict[Line, str] = {}
    for row in page.replace("\\|", "\0").splitlines():
        cells = [cell.strip().replace("\0", "|").strip("`") for cell in row.strip("|").split("|")]
        if len(cells) == 4 and cells[2] in ("taken", "skipped"):
            found[cells[0], cells[1], cells[2]] = cells[3]
    return found


def line_of(branch: Branch) -> Line:
    """A branch by its text, which stays when lines before it come and go.

    A text that stands in the file before is followed by its number: ``with m.If(a): #2`` is the second one.
    """
    file, line, kind = branch
    lines = [text.strip() for text in (SOURCES / file).read_text().splitlines()[:line]]
    number = lines.count(lines[-1])
    return file, lines[-1] + (f" #{number}" if number > 1 else ""), kind


def judge(counters: Counters, page: str) -> list[str]:
    """What is wrong: branches of the receive path without test and reason, and reasons without a branch."""
    missed = {
        line_of(branch)
        for branch, reached in counters.branches.items()
        if not reached and branch[0].startswith(RECEIVE_PATH)
    }
    reasons = explained(page)
    problems = [
        f"{file}: {text!r} is never {kind}: no test, no reason"
        for file, text, kind in sorted(missed - reasons.keys())
    ]
    problems += [
        f"{file}: {text!r} has a reason for never being {kind}, but is {kind} or not there"
        for file, text, kind in sorted(reasons.keys() - missed)
    ]
    return problems


def figures(counters: Counters) -> list[str]:
    """A table of the files and their shares, and of the receive path as a whole."""
    lines = ["| file | branches | bits toggled both ways |", "|---|---|---|"]
    total = [0, 0, 0, 0]
    for file, shares in counters.shares().items():
        lines.append(share_row(f"`{file}`", shares))
        if file.startswith(RECEIVE_PATH):
            total = [one + more for one, more in zip(total, shares)]
    return [*lines, share_row("**receive path**", total)]


def share_row(name: str, shares: Iterable[int]) -> str:
    """Row of a table: a name, and two pairs of how many of how many."""
    reached, branches, toggled, bits = shares
    cells = [
        f"{some:,} of {all_:,} ({100 * some / all_:.1f} %)" if all_ else "none"
        for some, all_ in ((reached, branches), (toggled, bits))
    ]
    return f"| {name} | {cells[0]} | {cells[1]} |"


def _measure(folder: Path, arguments: list[str]) -> int:
    """Run the block tests with counters; returns how pytest ended."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "tb"), *filter(None, [environment.get("PYTHONPATH")])]
    )
    command = [sys.executable, "-m", "pytest", "--quiet", "-n", "2", "--timeout", "1800"]
    command += ["-p", "branch_coverage", "--branches-to", str(folder), *(arguments or TESTS)]
    return subprocess.run(command, check=False, env=environment, cwd=ROOT).returncode


def main() -> int:
    """Measure, print, and say what is neither tested nor explained."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the figures into docs/coverage.md")
    parser.add_argument("--from", dest="folder", type=Path, help="take counters that a run left here")
    options, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="branches-") as own:
        folder = options.folder or Path(own)
        code = 0 if options.folder else _measure(folder, arguments)
        counters = Counters.load(sorted(folder.glob("branches-*.json")))
    table = figures(counters)
    print("\n".join(table))
    if options.write:
        PAGE.write_text(with_section(PAGE.read_text(), "branches", table))
    problems = judge(counters, PAGE.read_text())
    print("\n".join(problems) or "Every branch of the receive path is taken or explained.")
    return code or bool(problems)


if __name__ == "__main__":
    sys.exit(main())
