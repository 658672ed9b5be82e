"""Line and toggle coverage of the gateware's blocks, as the benches reach it.

``python tb/coverage_report.py [PYTEST ARGUMENTS]`` compiles the benches' designs with Verilator's counters,
runs them, and prints a table of blocks and the branches of the receive path that no bench has taken. The
counters of a block add up over all designs in which its Verilog is the same. ``--write`` puts the sums of the
engine's parts into docs/coverage.md; ``--from FOLDER`` takes counters that ``--coverage-to`` left there.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from branch_report import PAGE, share_row, with_section

__all__ = ["Block", "blocks_of", "main", "parts", "points"]

#: Where a block of the receive path begins in the name of a module.
RECEIVE_PATH = (
    "receive", "admission", "admit", "placement", "tracker", "immediates", "sack", "triggers", "regions",
    "completions", "arbiter",
)  # fmt: skip
BENCHES = (
    "tb/test_bind.py", "tb/test_requester.py", "tb/test_transmit.py", "tb/test_receive_front.py",
    "tb/test_receive_back.py", "tb/test_nic.py",
)  # fmt: skip
NARROW = "nic or 64 or bind"
"""Benches of one width: the wider ones take as long again to compile."""

_MODULE = re.compile(r"^module (\\?\S+?) ?\(.*?^endmodule", re.DOTALL | re.MULTILINE)
_POINT = re.compile(r"^C '(.*)' (\d+)$", re.MULTILINE)
_KINDS = {"v_line": "line", "v_branch": "line", "v_toggle": "toggle"}


@dataclass
class Block:
    """Counters of one module.

    Parameters
    ----------
    name : str
        Its path below the top, as of the first design it was met in.
    text : list of str
        Lines of its Verilog.
    hits : dict
        (kind, line in the module, what) → how often.
    """

    name: str
    text: list[str]
    hits: dict[tuple[str, int, str], int] = field(default_factory=lambda: defaultdict(int))

    def share(self, kind: str) -> tuple[int, int]:
        """How many points of a kind were reached, and how many there are."""
        counts = [count for (of_kind, _, _), count in self.hits.items() if of_kind == kind]
        return sum(count > 0 for count in counts), len(counts)


def points(data: str) -> list[tuple[dict[str, str], int]]:
    """The counters of a file that Verilator wrote: their keys, and how often each was reached."""
    return [
        (dict(part.split("\2", 1) for part in match[1].split("\1") if part), int(match[2]))
        for match in _POINT.finditer(data)
    ]


def blocks_of(verilog: str, data: str, blocks: dict[str, Block]) -> None:
    """Add one simulation's counters to those of its modules.

    Parameters
    ----------
    verilog, data : str
        The design, and what Verilator counted in it.
    blocks : dict
        Digest of a module's text → its counters; grows.
    """
    places = []
    for match in _MODULE.finditer(verilog):
        name = match[1].lstrip("\\")
        text = match[0].replace(name, "module")
        digest = hashlib.sha256(text.encode()).hexdigest()
        block = blocks.setdefault(digest, Block(name.partition(".")[2] or name, match[0].splitlines()))
        begin = verilog.count("\n", 0, match.start()) + 1
        places.append((begin, begin + len(block.text), block))
    for keys, count in points(data):
        kind = _KINDS.get(keys.get("page", "").split("/")[0])
        line = int(keys.get("l", 0))
        for begin, end, block in places:
            if kind and begin <= line < end:
                block.hits[kind, line - begin, keys.get("o", "")] += count


def _of_receive_path(block: Block) -> bool:
    return any(name in block.name for name in RECEIVE_PATH)


def _print(blocks: list[Block]) -> None:
    print(f"{'block':<60} {'line':>14} {'toggle':>14}")
    for block in sorted(blocks, key=lambda block: block.name):
        cells = []
        for kind in ("line", "toggle"):
            reached, points_ = block.share(kind)
            cells.append(f"{reached}/{points_} {100 * reached // points_:>3} %" if points_ else "-")
        print(f"{block.name[-60:]:<60} {cells[0]:>14} {cells[1]:>14}")
    print("\nBranches of the receive path that no bench took:")
    for block in sorted(filter(_of_receive_path, blocks), key=lambda block: block.name):
        for (kind, line, what), count in sorted(block.hits.items()):
            if kind == "line" and count == 0:
                print(f"  {block.name}: {block.text[line].strip()} ({what})")


def parts(blocks: Iterable[Block]) -> list[str]:
    """A table of the engine's parts: the sums of the blocks below each block below the top."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for block in blocks:
        part = re.sub(r"\d+$", "", block.name.split(".")[0])
        shares = (*block.share("line"), *block.share("toggle"))
        sums[part] = [one + more for one, more in zip(sums[part], shares)]
    sums["**all**"] = [sum(column) for column in zip(*sums.values())]
    lines = ["| part | lines | bits toggled both ways |", "|---|---|---|"]
    return lines + [share_row(part if "*" in part else f"`{part}`", shares) for part, shares in sums.items()]


def main() -> int:
    """Run the benches with counters, and print what they reached."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the figures into docs/coverage.md")
    parser.add_argument("--from", dest="folder", type=Path, help="take counters that a run left here")
    options, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="coverage-") as own:
        folder, code = options.folder or Path(own), 0
        if not options.folder:
            command = [sys.executable, "-m", "pytest", "--quiet", "-n", "0"]
            # Counters make models several times as large, and their compilation as long.
            command += ["--timeout", "7200", "--coverage-to", own, *(arguments or [*BENCHES, "-k", NARROW])]
            code = subprocess.run(command, check=False).returncode
        blocks: dict[str, Block] = {}
        for data in sorted(folder.glob("*.dat")):
            blocks_of(data.with_suffix(".v").read_text(), data.read_text(errors="replace"), blocks)
    if not blocks:
        print("no bench left counters: see the failures above")
        return code or 1
    _print(list(blocks.values()))
    if options.write:
        PAGE.write_text(with_section(PAGE.read_text(), "engine", parts(blocks.values())))
    return code


if __name__ == "__main__":
    sys.exit(main())
