"""Receive contexts while another QP fails in every cycle.

Sweep: memory rows of one and of all words. Stimulus: a QP that fails, for many cycles, while the host starts
and changes QPs, an error comes from elsewhere, and right after reset; a tracker that is late with its answer.
Checks: the states that the host reads; nothing that it or another block asked for is lost. Timing: bounded.
"""

from typing import Any

import pytest

from mrc_rtl.config import NicConfig
from mrc_rtl.responder.receive_contexts import ReceiveContexts
from mrc_rtl.tables import QP_RECEIVE, QpErrorReason, QpState
from record_benches import command, send, simulate

FAILING, HIT, OTHER = 0, 3, 5
WAIT = 25


@pytest.mark.parametrize("width", [64, 512])
def test_nothing_is_lost_while_a_qp_fails(width: int) -> None:
    config = NicConfig(data_width=width, qps=8)
    dut = ReceiveContexts(config)

    async def tracker(ctx: Any) -> None:
        ctx.set(dut.state_request.ready, 1)
        while True:
            *_, asked = await ctx.tick().sample(dut.state_request.valid)
            if asked:
                for _ in range(3):
                    await ctx.tick()
                await send(ctx, dut.state_answer, cumulative_psn=4, highest_psn=9)

    async def rest(ctx: Any) -> None:
        ctx.set(dut.init.ready, 1)
        while True:
            *_, clear = await ctx.tick().sample(dut.clear)
            ctx.set(dut.cleared, clear)

    async def fails(ctx: Any, cycles: int) -> None:
        ctx.set(dut.fail_qp, FAILING)
        ctx.set(dut.fail, 1)
        for _ in range(cycles):
            await ctx.tick()
        ctx.set(dut.fail, 0)

    async def write(ctx: Any, qp: int, state: QpState) -> None:
        words = QP_RECEIVE.pack(state=state, initial_psn=7, peer_low=qp)[: QP_RECEIVE.write_words]
        assert not (await command(ctx, dut.table, write=True, index=qp, words=words))[1]

    async def read(ctx: Any, qp: int) -> dict[str, int]:
        words, error = await command(ctx, dut.table, write=False, index=qp, words=[0] * QP_RECEIVE.words)
        assert not error
        return QP_RECEIVE.unpack(words)

    async def state(ctx: Any, qp: int) -> int:
        return (await read(ctx, qp))["state"]

    async def error(ctx: Any) -> None:
        await send(ctx, dut.error_in, qp=HIT, reason=QpErrorReason.RETRY_EXCEEDED)

    async def bench(ctx: Any) -> None:
        ctx.set(dut.context.reading, 1)
        await fails(ctx, WAIT)  # before the states of all QPs are RESET
        await begin(ctx)
        ctx.set(dut.context.reading, 0)
        await write(ctx, FAILING, QpState.RTR)
        for qp, new in ((HIT, QpState.RTR), (HIT, QpState.RTS), (OTHER, QpState.INIT)):
            failing.append(WAIT)
            await write(ctx, qp, new)
            assert [await state(ctx, qp), await state(ctx, FAILING)] == [new, QpState.ERROR]
        failing.append(WAIT)
        await error(ctx)
        while failing:
            await ctx.tick()
        assert [await state(ctx, qp) for qp in (FAILING, HIT, OTHER)] == [
            QpState.ERROR, QpState.ERROR, QpState.INIT,
        ]  # fmt: skip
        entry = await read(ctx, HIT)
        assert (entry["cumulative_psn"], entry["highest_psn"], entry["peer_low"]) == (4, 9, HIT)

    async def begin(ctx: Any) -> None:
        """Until all states are RESET."""
        for _ in range(4 * config.qps):
            await ctx.tick()

    failing: list[int] = []

    async def failure(ctx: Any) -> None:
        while True:
            await ctx.tick()
            if failing:
                # For some cycles while a command is on its way, with one free cycle in between.
                for _ in range(failing[0]):
                    await fails(ctx, 4)
                    await ctx.tick()
                failing.pop(0)

    simulate(dut, bench, background=(tracker, rest, failure))
