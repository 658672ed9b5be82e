"""Counting branches and bits in Amaranth's simulator, and the page that explains what no test reaches.

Sweep: If and Switch, combinational and clocked; reasons that are missing, stale and right.
Stimulus: a small component whose logic passes through a branch on its way.
Checks: exactly the branches and bits that settled; a branch's text and its number; what the session says.
Timing: none.
"""

from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator, _pyrtl, pysim

import branch_coverage
import branch_report
from branch_coverage import Counters

HERE = Path(__file__)


class Block(wiring.Component):
    def __init__(self):
        super().__init__({"a": In(2), "b": Out(2), "c": Out(2)})

    def elaborate(self, platform):
        m = Module()
        inverse = Signal(2)
        m.d.comb += inverse.eq(~self.a)
        with m.If(inverse == self.a):  # holds only before inverse has followed
            m.d.comb += self.b.eq(3)
        with m.Switch(self.a):
            with m.Case(0):
                m.d.sync += self.c.eq(1)
            with m.Case(1):
                m.d.sync += self.c.eq(2)
            with m.Default():
                m.d.sync += self.c.eq(3)
        return m


@pytest.fixture
def counters(monkeypatch):
    monkeypatch.setattr(branch_coverage, "SOURCES", HERE.parent)
    monkeypatch.setattr(branch_report, "SOURCES", HERE.parent)
    for module, name in ((_pyrtl, "_StatementCompiler"), (pysim, "_PyEngineState")):
        monkeypatch.setattr(module, name, getattr(module, name))
    result = Counters()
    branch_coverage.install(result)
    block = Block()
    simulator = Simulator(block)
    simulator.add_clock(1e-6)

    async def bench(ctx):
        for value in (3, 0, 1):
            ctx.set(block.a, value)
            await ctx.tick()

    simulator.add_testbench(bench)
    simulator.run()
    result.fold()
    return result


def test_only_what_settles_counts(counters):
    found = {branch_report.line_of(branch)[1:]: reached for branch, reached in counters.branches.items()}
    assert found == {
        ("with m.If(inverse == self.a):  # holds only before inverse has followed", "taken"): False,
        ("with m.If(inverse == self.a):  # holds only before inverse has followed", "skipped"): True,
        ("with m.Case(0):", "taken"): True,
        ("with m.Case(1):", "taken"): True,
        ("with m.Default():", "taken"): True,
    }
    bits = {name: entry for (_, _, name), entry in counters.bits.items()}
    assert bits["inverse"] == [2, 3, 1]  # 0, 3, 2
    assert bits["b"] == [2, 0, 0]
    assert bits["c"] == [2, 3, 3]  # 0, 3, 1, 2


def test_counters_of_several_processes_add_up(counters, tmp_path):
    counters.save(tmp_path / "one")
    other = Counters()
    other.branches = {branch: not reached for branch, reached in counters.branches.items()}
    other.save(tmp_path / "two")
    total = Counters.load([tmp_path / "one", tmp_path / "two"])
    assert all(total.branches.values())
    assert total.bits == counters.bits
    assert total.shares() == {HERE.name: (5, 5, counters.shares()[HERE.name][2], 8)}


ROW = "| `{file}` | `{line}` | taken | It is so. |"


def test_a_missed_branch_needs_a_reason_and_a_reason_a_missed_branch(counters, monkeypatch):
    monkeypatch.setattr(branch_report, "RECEIVE_PATH", (HERE.name,))
    missed = "with m.If(inverse == self.a):  # holds only before inverse has followed"
    right = ROW.format(file=HERE.name, line=missed)
    assert branch_report.judge(counters, right) == []
    assert branch_report.judge(counters, "") == [
        f"{HERE.name}: {missed!r} is never taken: no test, no reason"
    ]
    stale = ROW.format(file=HERE.name, line="with m.Case(0):")
    assert branch_report.judge(counters, f"{right}\n{stale}") == [
        f"{HERE.name}: 'with m.Case(0):' has a reason for never being taken, but is taken or not there"
    ]


def test_a_line_with_bars_and_repeated_lines_have_names():
    page = "| `a.py` | `with m.If(x \\| y): #2` | skipped | Because. |"
    assert branch_report.explained(page) == {("a.py", "with m.If(x | y): #2", "skipped"): "Because."}


def test_the_page_explains_branches_that_exist():
    page = branch_report.PAGE.read_text()
    for file, line, _ in branch_report.explained(page):
        text, _, number = line.partition(" #")
        lines = [item.strip() for item in (branch_report.SOURCES / file).read_text().splitlines()]
        assert lines.count(text) >= int(number or 1), (file, line)


def test_figures_replace_what_stood_there():
    page = "a\n<!-- branches -->\nold\n<!-- end -->\nb\n"
    assert (
        branch_report.with_section(page, "branches", ["new"])
        == "a\n<!-- branches -->\nnew\n<!-- end -->\nb\n"
    )
    with pytest.raises(ValueError, match="must have <!-- bits -->"):
        branch_report.with_section(page, "bits", [])
