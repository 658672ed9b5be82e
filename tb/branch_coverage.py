"""Counts which branches and bits of the gateware the block tests in Amaranth's simulator reach.

A pytest plugin: ``pytest -p branch_coverage --branches-to FOLDER tests/rtl``. It puts itself between Amaranth
and its simulator, so that nothing is compiled for it, and names what it counts by the gateware's own source.

A branch is an arm of an If, Switch or FSM (``taken``), and an If without Else whose condition does not hold
(``skipped``). Only what holds when a time step has settled counts, not what logic passes through before. A
bit is toggled when it rose and fell between two settled steps. A line that stands in several blocks or sizes
counts once, and is reached when any of them reached it.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from amaranth.sim import _pyrtl, pysim

import mrc_rtl

__all__ = ["Counters", "pytest_addoption", "pytest_configure"]

SOURCES = Path(mrc_rtl.__file__).parent

#: (file below mrc_rtl, line, "taken" or "skipped")
Branch = tuple[str, int, str]
#: (file below mrc_rtl, line, name)
Named = tuple[str, int, str]


def place_of(src_loc: tuple[str, int] | None) -> tuple[str, int] | None:
    """File below mrc_rtl and line of what is written there, None for what is written elsewhere."""
    if src_loc is None or not Path(src_loc[0]).is_relative_to(SOURCES):
        return None
    return Path(src_loc[0]).relative_to(SOURCES).as_posix(), src_loc[1]


class _Process:
    """Branches of one process of a simulator, as bits in the order in which it was compiled."""

    def __init__(self, timeline: Any, settles: bool) -> None:
        self.timeline, self.settles = timeline, settles
        self.branches: list[Branch | None] = []
        self.seen = self.last = 0
        self.now = -1

    def note(self, taken: int) -> None:
        if not self.settles:
            self.seen |= taken
            return
        if self.now != self.timeline.now:
            self.seen |= self.last
            self.now = self.timeline.now
        self.last = taken


class _Signal(pysim._PySignalState):
    """The state of a signal, with the bits that rose and fell between settled steps."""

    __slots__ = ("fell", "now", "rose", "settled", "timeline")

    def __init__(self, signal: Any, pending: Any, timeline: Any) -> None:
        self.timeline = timeline
        self.rose = self.fell = 0
        super().__init__(signal, pending)

    def reset(self) -> None:
        super().reset()
        self.settled, self.now = self.curr, -1

    def settle(self) -> None:
        """Count the change from the last settled value to the present one."""
        self.rose |= self.curr & ~self.settled
        self.fell |= self.settled & ~self.curr
        self.settled = self.curr

    def commit(self) -> bool:
        if self.now != self.timeline.now:
            self.settle()
            self.now = self.timeline.now
        return super().commit()


class Counters:
    """What the simulators of one Python process reached.

    Members
    -------
    branches : dict
        Branch → reached.
    bits : dict
        Named signal → [width, bits that rose, bits that fell].
    """

    def __init__(self) -> None:
        self.branches: dict[Branch, bool] = {}
        self.bits: dict[Named, list[int]] = {}
        self._processes: dict[int, _Process] = {}
        self._signals: list[_Signal] = []

    def add_process(self, process: _Process) -> int:
        """Keep a process; returns the number by which its code names it."""
        number = len(self._processes)
        self._processes[number] = process
        return number

    def add_signal(self, signal: _Signal) -> None:
        """Keep a signal if the gateware's source declares it."""
        if place_of(signal.signal.src_loc):
            self._signals.append(signal)

    def note(self, number: int, taken: int) -> None:
        """A process ran and took these branches."""
        self._processes[number].note(taken)

    def fold(self) -> None:
        """Add what the present simulators did, and forget them."""
        for process in self._processes.values():
            reached = process.seen | process.last
            for place, branch in enumerate(process.branches):
                if branch is not None:
                    self.branches[branch] = self.branches.get(branch, False) or bool(reached >> place & 1)
        for state in self._signals:
            state.settle()
            place = place_of(state.signal.src_loc)
            assert place is not None, "add_signal() keeps no others"
            width = len(state.signal)
            mask = (1 << width) - 1
            entry = self.bits.setdefault((*place, state.signal.name), [0, 0, 0])
            entry[0] = max(entry[0], width)
            entry[1] |= state.rose & mask
            entry[2] |= state.fell & mask
        self._processes.clear()
        self._signals.clear()

    def save(self, path: Path) -> None:
        """Write everything as JSON."""
        content = {
            "branches": [[*branch, reached] for branch, reached in sorted(self.branches.items())],
            "bits": [[*named, *entry] for named, entry in sorted(self.bits.items())],
        }
        path.write_text(json.dumps(content))

    @staticmethod
    def load(paths: Iterable[Path]) -> "Counters":
        """The sum of what several processes wrote."""
        total = Counters()
        for path in paths:
            content = json.loads(path.read_text())
            for file, line, kind, reached in content["branches"]:
                branch = (file, line, kind)
                total.branches[branch] = total.branches.get(branch, False) or reached
            for file, line, name, width, rose, fell in content["bits"]:
                entry = total.bits.setdefault((file, line, name), [0, 0, 0])
                entry[:] = [max(entry[0], width), entry[1] | rose, entry[2] | fell]
        return total

    def shares(self) -> dict[str, tuple[int, int, int, int]]:
        """File → branches reached, branches, bits toggled both ways, bits."""
        found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for (file, _, _), reached in self.branches.items():
            found[file][0] += reached
            found[file][1] += 1
        for (file, _, _), (width, rose, fell) in self.bits.items():
            found[file][2] += (rose & fell).bit_count()
            found[file][3] += width
        return {file: (a, b, c, d) for file, (a, b, c, d) in sorted(found.items())}


def install(counters: Counters) -> None:
    """Let every simulator that is made from now on count."""
    plain_compiler: Any = _pyrtl._StatementCompiler
    plain_state: Any = pysim._PyEngineState

    class Compiler(plain_compiler):
        """Compiles statements with a bit set in every branch."""

        helpers = {**plain_compiler.helpers, "note": counters.note}

        def __init__(self, state: Any, emitter: Any, *, inputs: Any = None, outputs: Any = None) -> None:
            super().__init__(state, emitter, inputs=inputs, outputs=outputs)
            self._process: _Process | None = None
            self._settles = inputs is not None

        def on_statements(self, stmts: Any) -> None:
            if self._process is not None:
                super().on_statements(stmts)
                return
            self._process = _Process(self.state.timeline, self._settles)
            number = counters.add_process(self._process)
            self.emitter.append("taken = 0")
            super().on_statements(stmts)
            self.emitter.append(f"note({number}, taken)")

        def _mark(self, src_loc: Any, kind: str) -> None:
            assert self._process is not None, "a Switch stands in a list of statements"
            place = place_of(src_loc)
            self.emitter.append(f"taken |= {1 << len(self._process.branches):#x}")
            self._process.branches.append((*place, kind) if place else None)

        def on_Switch(self, stmt: Any) -> None:
            test = self.emitter.def_var("test", f"{(1 << len(stmt.test)) - 1:#x} & {self.rhs(stmt.test)}")
            cases = list(stmt.cases)
            conditions = all(
                patterns is not None and len(patterns) == 1 and patterns[0].replace("-", "") == "1"
                for patterns, _, _ in cases
            )
            if conditions and cases:
                cases.append((None, None, cases[0][2]))

            def case_handler(patterns: Any, statements: Any, src_loc: Any) -> None:
                self._mark(src_loc or stmt.src_loc, "taken" if statements is not None else "skipped")
                if statements is not None:
                    self(statements)

            self._emit_switch(test, cases, case_handler)

    class State(plain_state):
        """Keeps signals that count."""

        def get_signal(self, signal: Any) -> int:
            if signal not in self.signals:
                self.signals[signal] = len(self.slots)
                self.slots.append(_Signal(signal, self.pending, self.timeline))
                counters.add_signal(self.slots[-1])
            return self.signals[signal]

    _pyrtl._StatementCompiler = Compiler
    pysim._PyEngineState = State


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the folder."""
    parser.addoption("--branches-to", type=Path, help="count branches and toggles in Amaranth's simulator")


class _Plugin:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counters = Counters()
        install(self.counters)

    def pytest_runtest_teardown(self) -> None:
        self.counters.fold()

    def pytest_sessionfinish(self) -> None:
        if self.counters.branches:
            self.counters.save(self.folder / f"branches-{os.getpid()}.json")


def pytest_configure(config: pytest.Config) -> None:
    """Count in this process, if asked to."""
    folder = config.getoption("--branches-to")
    if folder is not None:
        config.pluginmanager.register(_Plugin(folder))
