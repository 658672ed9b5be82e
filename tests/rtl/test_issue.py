"""The last step of bind: no plan, no record of what was sent and no trace record is lost.

Sweep: none. Stimulus: random decisions for data and control packets as fast as they are taken, takers of the
three streams that wait at random, and the trace for up to 40 cycles.
Checks: each decision gives one plan and one trace record, each data packet one record of what was sent, in
order and with the same packet. Timing: a decision is taken within 60 cycles.
"""

import random

from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from mrc_rtl.config import NicConfig
from mrc_rtl.paths.issue import Issue
from mrc_rtl.records import TraceKind

CONFIG = NicConfig.small().with_(trace=True)
DECISIONS = 60


def test_nothing_is_lost_while_a_taker_waits() -> None:
    dut = Issue(CONFIG)
    wants = Signal()
    source = random.Random(3)
    made: list[tuple[int, int]] = []  # PSN, control
    plans: list[int] = []
    sent: list[int] = []
    traces: list[tuple[int, int]] = []

    async def decide(ctx) -> None:  # type: ignore[no-untyped-def]
        ctx.set(dut.sending, 1)
        for psn in range(1, DECISIONS + 1):
            control = source.randrange(2)
            ctx.set(dut.decision, {"control": control, "row": psn % 4 | control << 3, "plane": psn % 2})
            ctx.set(wants, 1)
            for _ in range(60):
                _, _, left = await ctx.tick().sample(dut.leave)
                if left:
                    break
            assert left, "no decision was taken within 60 cycles"
            ctx.set(wants, 0)
            made.append((psn, control))
            assert ctx.get(dut.ask)
            for _ in range(source.randrange(1, 5)):
                await ctx.tick()
            ctx.set(dut.answer, 1)
            ctx.set(dut.head, {"psn": psn, "length": 5})
            await ctx.tick()
            ctx.set(dut.answer, 0)
            ctx.set(dut.head, {"psn": 0xFFFFFF})
        for _ in range(200):
            await ctx.tick()
        assert ctx.get(dut.idle)

    async def take(ctx) -> None:  # type: ignore[no-untyped-def]
        waits = 0
        while True:
            waits = waits - 1 if waits else source.choice((0, 0, 0, 40))
            ctx.set(dut.trace.ready, waits == 0)
            ctx.set(dut.plan.ready, source.randrange(2))
            ctx.set(dut.sent.ready, source.randrange(2))
            values = await ctx.tick().sample(
                dut.plan.valid & dut.plan.ready, dut.plan.payload.data, dut.plan.payload.length,
                dut.sent.valid & dut.sent.ready, dut.sent.payload.psn,
                dut.trace.valid & dut.trace.ready, dut.trace.payload.psn, dut.trace.payload.kind,
                dut.trace.payload.detail[57],
            )  # fmt: skip
            _, _, plan, data, length, record, psn, trace, trace_psn, kind, control = values
            if plan:
                assert length == 5
                plans.append(data)
            if record:
                sent.append(psn)
            if trace:
                assert kind == TraceKind.BIND
                traces.append((trace_psn, control))

    design = Module()
    design.submodules.dut = dut
    design.d.comb += dut.leave.eq(wants & dut.free)
    simulator = Simulator(design)
    simulator.add_clock(1e-6)
    simulator.add_testbench(decide)
    simulator.add_testbench(take, background=True)
    simulator.run()
    assert traces == made
    assert plans == [1 - control for _, control in made]
    assert sent == [psn for psn, control in made if not control]
