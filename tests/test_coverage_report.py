"""Coverage of the benches: counters of equal modules add up over designs, and lines keep their text.

Sweep: two designs with one block in common, lines and toggles. Stimulus: files as Verilator writes them.
Checks: shares of each block, the text of a line nobody reached. Timing: none; nothing is simulated.
"""

from coverage_report import Block, blocks_of, parts, points

BLOCK = "module {name}(clk, a, b);\n  if (a)\n    b = 1;\n  else\n    b = 0;\nendmodule\n"
OTHER = "module \\{name} (clk);\n  wire clk;\nendmodule\n"


def counter(kind: str, line: int, what: str, count: int) -> str:
    keys = {"f": "top.v", "l": str(line), "page": f"{kind}/x", "o": what, "h": "TOP"}
    return "C '" + "".join(f"\1{key}\2{value}" for key, value in keys.items()) + f"' {count}\n"


def test_points() -> None:
    assert points(counter("v_line", 3, "block", 7)) == [
        ({"f": "top.v", "l": "3", "page": "v_line/x", "o": "block", "h": "TOP"}, 7)
    ]


def test_equal_blocks_of_two_designs_are_one() -> None:
    blocks: dict[str, Block] = {}
    first = OTHER.format(name="one.top") + BLOCK.format(name="\\one.placement ")
    blocks_of(first, counter("v_branch", 5, "if", 0) + counter("v_branch", 7, "else", 2), blocks)
    second = BLOCK.format(name="\\two.placement ")
    data = (
        counter("v_branch", 2, "if", 0) + counter("v_branch", 4, "else", 3) + counter("v_toggle", 1, "a", 1)
    )
    blocks_of(second, data, blocks)
    assert [block.name for block in blocks.values()] == ["top", "placement"]
    block = list(blocks.values())[1]
    assert block.share("line") == (1, 2)
    assert block.share("toggle") == (1, 1)
    assert block.hits["line", 3, "else"] == 5
    missed = [line for (kind, line, _), count in block.hits.items() if kind == "line" and not count]
    assert [block.text[line].strip() for line in missed] == ["if (a)"]


def test_the_sums_of_an_engines_parts() -> None:
    blocks = {name: Block(name, []) for name in ("plane0.parser", "plane1", "bind")}
    blocks["plane0.parser"].hits.update({("line", 1, "if"): 2, ("line", 2, "else"): 0})
    blocks["plane1"].hits.update({("line", 1, "if"): 1, ("toggle", 3, "a"): 1})
    assert parts(blocks.values())[2:] == [
        "| `plane` | 2 of 3 (66.7 %) | 1 of 1 (100.0 %) |",
        "| `bind` | none | none |",
        "| **all** | 2 of 3 (66.7 %) | 1 of 1 (100.0 %) |",
    ]
