"""Probes of bad entropy values.

Sweep: one EV and all of several QPs at once; 2 planes and 3, a number that is no power of two.
Stimulus: EVs go bad in a table of the bench; probes are answered, answered with a mark, answered late, or
not; ports fall, QPs end; time jumps to the next deadline whenever the prober rests, as a simulation does.
Checks: when each probe leaves, against the rule; which answers count; which EVs come back; the budget;
nothing is left over. Timing: in ticks of 128 ns, with a few for walks.
"""

from __future__ import annotations

from typing import Any

import pytest
from amaranth.sim import Simulator

from mrc_rtl.config import NicConfig
from mrc_rtl.paths.prober import Prober, probe_number
from mrc_rtl.records import PathOperation, plane_bits

BASE_RTT, INTERVAL, DOUBLINGS, SUCCESSES, SPACING = 60, 500, 3, 3, 40
BOUND = 4 * BASE_RTT
#: Cycles in a tick: a walk over all rows of the bench takes a few ticks.
CYCLES = 40
LATE = 12


class Bench:
    """A prober with a path table of sets and a peer that is a function."""

    def __init__(self, **config: int) -> None:
        self.config = NicConfig(**config)
        self.dut = Prober(self.config)
        self.now = 1 << 20
        self.bad: set[tuple[int, int, int]] = set()
        self.probes: list[tuple[int, tuple[int, int, int], int]] = []
        self.recovered: list[tuple[int, tuple[int, int, int]]] = []
        self.ended: set[int] = set()
        self.answers: list[tuple[int, int, int, int]] = []  # tick, QP, number, mark
        self.peer: Any = lambda ev, number: None
        self._scan: tuple[int, int] | None = None
        self._new: list[tuple[int, int, int]] = []

    def lose(self, *evs: tuple[int, int, int]) -> None:
        """EVs (QP, plane, number) go bad."""
        self.bad |= set(evs)
        self._new += evs

    def answer(self, ticks: int, qp: int, number: int, mark: int = 0) -> None:
        self.answers.append((self.now + ticks, qp, number, mark))

    async def run(self, ctx: Any, ticks: int) -> None:
        """Let time pass."""
        end = self.now + ticks
        while self.now < end:
            for _ in range(CYCLES):
                await self._cycle(ctx)
            self.now += 1
            if ctx.get(self.dut.idle) and not self._new:
                wakes = [end, *(tick for tick, *_ in self.answers)]
                if ctx.get(self.dut.deadline_valid):
                    ahead = ctx.get(self.dut.next_deadline) - self.now & 0xFFFFFFFF
                    assert ahead < 1 << 31, "it rests though something is due"
                    wakes.append(self.now + ahead)
                self.now = max(self.now, min(wakes))

    async def _cycle(self, ctx: Any) -> None:
        dut = self.dut
        ctx.set(dut.now, self.now << 16)
        ctx.set(dut.went_bad, 0)
        if self._new:
            qp, plane, index = self._new.pop(0)
            ctx.set(dut.went_bad, 1)
            ctx.set(dut.changed_qp, qp)
            ctx.set(dut.changed_plane, plane)
            ctx.set(dut.changed_index, index)
        ctx.set(dut.scanned, 0)
        if self._scan is not None:
            ctx.set(dut.scanned, 1)
            ctx.set(dut.bad, sum(1 << n for n in range(32) if (*self._scan, n) in self.bad))
            self._scan = None
        due = next((item for item in self.answers if item[0] <= self.now), None)
        ctx.set(dut.answer.valid, due is not None)
        if due is not None:
            ctx.set(dut.answer.payload, {"qp": due[1], "number": due[2], "marked": due[3], "rtt": 9})
            if ctx.get(dut.answer.ready):
                self.answers.remove(due)
        ctx.set(dut.operation.ready, 1)
        ctx.set(dut.probe.ready, 1)
        if ctx.get(dut.operation.valid):
            item = dut.operation.payload
            ev = (ctx.get(item.qp), ctx.get(item.plane), ctx.get(item.ev_index))
            if ctx.get(item.operation) == PathOperation.SCAN:
                self._scan = ev[:2]
            else:
                assert ctx.get(item.operation) == PathOperation.RECOVER
                self.bad.discard(ev)
                self.recovered.append((self.now, ev))
        if ctx.get(dut.probe.valid):
            item = dut.probe.payload
            ev = (ctx.get(item.qp), ctx.get(item.plane), ctx.get(item.ev_index))
            number = ctx.get(item.number)
            fields = probe_number(self.config)
            assert number >> 15 == 1
            assert (number & 31, number >> 5 & 7) == (ev[2], ev[1]), fields
            self.probes.append((self.now, ev, number))
            self.peer(ev, number)
        looked = ctx.get(dut.state_qp)
        await ctx.tick()
        ctx.set(dut.sending, looked not in self.ended)

    def play(self, script: Any) -> None:
        async def bench(ctx: Any) -> None:
            settings = self.dut.settings
            ctx.set(settings.base_rtt, BASE_RTT)
            ctx.set(settings.probe_interval, INTERVAL)
            ctx.set(settings.probe_doublings, DOUBLINGS)
            ctx.set(settings.probe_successes, SUCCESSES)
            ctx.set(settings.probe_spacing, SPACING)
            ctx.set(settings.port_up, (1 << self.config.planes) - 1)
            await script(ctx)

        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()

    def gaps(self, start: int) -> list[int]:
        """Ticks from ``start`` to the first probe, and from each to the next."""
        times = [start, *(tick for tick, *_ in self.probes)]
        return [after - before for before, after in zip(times, times[1:], strict=False)]


def near(found: list[int], wanted: list[int]) -> bool:
    return len(found) == len(wanted) and all(0 <= f - w <= LATE for f, w in zip(found, wanted, strict=True))


def test_intervals_double_while_nothing_answers_and_drop_back_at_the_first_answer() -> None:
    bench = Bench()
    ev = (3, 1, 17)

    async def script(ctx: Any) -> None:
        start = bench.now
        bench.lose(ev)
        await bench.run(ctx, BASE_RTT + 15 * INTERVAL + LATE * 5)
        wanted = [BASE_RTT, 2 * INTERVAL, 4 * INTERVAL, 8 * INTERVAL]
        assert near(bench.gaps(start), wanted), bench.gaps(start)
        assert {item[1] for item in bench.probes} == {ev}
        assert len({number for *_, number in bench.probes}) == 4
        # No further than so often doubled; then the peer answers.
        await bench.run(ctx, 8 * INTERVAL - LATE)
        assert len(bench.probes) == 5
        bench.peer = lambda ev, number: bench.answer(20, ev[0], number)
        start, bench.probes = bench.probes[-1][0], []
        await bench.run(ctx, 8 * INTERVAL + 3 * INTERVAL)
        assert near(bench.gaps(start), [8 * INTERVAL, INTERVAL, INTERVAL]), bench.gaps(start)
        assert [item for _, item in bench.recovered] == [ev]
        await bench.run(ctx, 20 * INTERVAL)
        assert len(bench.probes) == 3, "an EV that came back is not asked"

    bench.play(script)


def test_marks_and_losses_begin_the_count_anew() -> None:
    bench = Bench()
    marks = iter([0, 0, 1, 0, 0, None, 0, 0, 0])

    def peer(ev: tuple[int, int, int], number: int) -> None:
        mark = next(marks)
        if mark is not None:
            bench.answer(5, ev[0], number, mark)

    bench.peer = peer

    async def script(ctx: Any) -> None:
        bench.lose((0, 0, 0))
        await bench.run(ctx, 14 * INTERVAL)
        assert len(bench.probes) == 9 and len(bench.recovered) == 1
        assert next(marks, "none") == "none"

    bench.play(script)


def test_an_answer_counts_once_and_only_that_to_the_last_probe() -> None:
    bench = Bench()
    ev = (7, 0, 31)

    async def script(ctx: Any) -> None:
        bench.lose(ev)
        await bench.run(ctx, BASE_RTT + LATE)
        assert len(bench.probes) == 1
        number = bench.probes[0][2]
        # Late, of another sequence, of another EV, of another QP.
        await bench.run(ctx, BOUND + LATE)
        for qp, wrong in ((7, number), (7, number + (1 << 8)), (7, number ^ 1), (6, number)):
            bench.answer(1, qp, wrong)
        await bench.run(ctx, 2 * INTERVAL - BOUND)
        assert len(bench.probes) == 2
        number = bench.probes[1][2]
        for _ in range(5):
            bench.answer(1, 7, number)
        await bench.run(ctx, 10)
        assert not bench.recovered
        await bench.run(ctx, INTERVAL + LATE)
        assert len(bench.probes) == 3 and not bench.recovered

    bench.play(script)


@pytest.mark.parametrize("what", ["port", "qp"])
def test_who_cannot_answer_is_not_asked(what: str) -> None:
    bench = Bench()
    bench.peer = lambda ev, number: bench.answer(5, ev[0], number)

    async def script(ctx: Any) -> None:
        if what == "port":
            ctx.set(bench.dut.settings.port_up, 0b01)
        bench.ended = {2} if what == "qp" else set()
        bench.lose((2, 1, 4), (1, 0, 9))
        await bench.run(ctx, 6 * INTERVAL)
        assert {ev for _, ev, _ in bench.probes} == {(1, 0, 9)}
        assert [ev for _, ev in bench.recovered] == [(1, 0, 9)]
        ctx.set(bench.dut.settings.port_up, 0b11)
        bench.ended = set()
        await bench.run(ctx, 6 * INTERVAL)
        assert [ev for _, ev in bench.recovered] == [(1, 0, 9), (2, 1, 4)]

    bench.play(script)


@pytest.mark.parametrize("planes", [2, 3])
def test_a_whole_plane_goes_and_comes_within_the_budget(planes: int) -> None:
    bench = Bench(planes=planes)
    bench.peer = lambda ev, number: bench.answer(30, ev[0], number)
    evs = [(qp, planes - 1, index) for qp in (0, 5) for index in range(12)]

    async def script(ctx: Any) -> None:
        start = bench.now
        bench.lose(*evs)
        await bench.run(ctx, 12 * INTERVAL)
        assert {ev for _, ev in bench.recovered} == set(evs) and len(bench.recovered) == len(evs)
        assert len(bench.probes) == SUCCESSES * len(evs)
        times = [tick - start for tick, *_ in bench.probes]
        assert times[15] <= BASE_RTT + LATE, "a burst comes at once"
        for first, last in zip(times, times[32:], strict=False):
            assert last - first >= 16 * SPACING, "a budget is new after so many spacings"
        assert plane_bits(bench.config) == (1 if planes == 2 else 2)

    bench.play(script)


def test_what_the_host_allows_is_forgotten() -> None:
    bench = Bench()

    async def script(ctx: Any) -> None:
        bench.lose((4, 1, 2))
        await bench.run(ctx, BASE_RTT + LATE)
        assert len(bench.probes) == 1
        bench.bad.clear()
        await bench.run(ctx, 3 * INTERVAL)
        assert len(bench.probes) == 1 and not ctx.get(bench.dut.deadline_valid)
        assert ctx.get(bench.dut.idle)

    bench.play(script)
