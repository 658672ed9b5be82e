"""Small parts of the requester against models.

Sweep: contexts moved in rows of 36 bits (64 bit) and at once (128 bit); queues in distributed RAM and in
    block RAM; bases of bitmaps at every place of a word, below, in and above the window.
Stimulus: random contents and orders.
Checks: what was put in comes out, and nothing else; the acked bits of a ring; echoes of entropy values.
Timing: a bitmap takes twelve cycles, a change of contexts as many as it has rows.
"""

import random
from collections import deque

import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.sim import Simulator

from mrc_rtl import wire
from mrc_rtl.config import NicConfig
from mrc_rtl.requester.context import ContextStore
from mrc_rtl.requester.record_queue import RecordQueue
from mrc_rtl.requester.sack_merge import WORD, SackMerge
from mrc_rtl.requester.tx_tracker import ev_check

CIRCLE = 1 << 24


def simulate(design, bench):
    simulator = Simulator(design)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("width, rows", [(64, 5), (128, 1)])
def test_contexts_change_places(width, rows):
    config = NicConfig().with_(data_width=width)
    store = ContextStore(config)
    assert store.rows == rows
    register = Signal(store.rows * store.row_bits)
    value, change = Signal.like(register), Signal()
    m = Module()
    m.submodules.store = store
    m.d.comb += store.leaving.eq(register[: store.row_bits])
    with m.If(store.shift):
        m.d.sync += register.eq(Cat(register[store.row_bits :], store.row))
    with m.Elif(change):
        m.d.sync += register.eq(value)
    generator = random.Random(1)

    async def bench(ctx):
        await ctx.tick().until(store.cleared)
        kept = dict.fromkeys(range(config.qps), 0)
        here = 0
        for _ in range(60):
            qp = generator.randrange(config.qps)
            ctx.set(store.qp, qp)
            ctx.set(store.change, 1)
            await ctx.tick()
            ctx.set(store.change, 0)
            cycles = 1
            while not ctx.get(store.last):
                await ctx.tick()
                cycles += 1
            await ctx.tick()
            assert cycles == (rows if qp != here else 1)
            assert ctx.get(register) == kept[qp]
            here, kept[qp] = qp, generator.getrandbits(len(register))
            ctx.set(value, kept[qp])
            ctx.set(change, 1)
            await ctx.tick()
            ctx.set(change, 0)

    simulate(m, bench)


@pytest.mark.parametrize("depth", [2, 16, 64])
def test_queues_keep_the_order(depth):
    queue = RecordQueue(9, depth)
    generator = random.Random(2)

    async def bench(ctx):
        model = deque()
        taken = full = 0
        for cycle in range(800):
            put = ctx.get(queue.w_rdy) and generator.random() < (0.8 if cycle // 200 % 2 == 0 else 0.3)
            take = generator.random() < 0.5
            record = generator.getrandbits(9)
            ctx.set(queue.w_data, record)
            ctx.set(queue.w_en, int(put))
            ctx.set(queue.r_en, int(take))
            assert ctx.get(queue.level) == len(model) <= depth
            full += not ctx.get(queue.w_rdy)
            if ctx.get(queue.r_rdy) and take:
                assert ctx.get(queue.r_data) == model.popleft()
                taken += 1
            if put:
                model.append(record)
            await ctx.tick()
        assert taken > 200 and (full or depth == 64)

    simulate(queue, bench)


def test_queue_depth_is_checked():
    with pytest.raises(ValueError, match="depth must be a power of two from 2, got 3"):
        RecordQueue(8, 3)


def test_bitmaps_mark_what_is_outstanding():
    config = NicConfig()
    merge = SackMerge(config)
    words = 2 * config.mpr_psns // WORD
    generator = random.Random(3)

    async def bench(ctx):
        for number in range(100):
            unacked = (CIRCLE - 70 + number) % CIRCLE
            following = unacked + generator.randrange(config.mpr_psns + 1)
            base = (
                unacked + generator.choice((0, -9, -200, -(1 << 15), 1 << 15, generator.randrange(150)))
            ) % CIRCLE
            bitmap = generator.choice((generator.getrandbits(64), (1 << 64) - 1, 1, 1 << 63))
            marked = {
                (base + n - unacked + CIRCLE // 2) % CIRCLE - CIRCLE // 2
                for n in range(64)
                if bitmap >> n & 1
            }
            wanted = {distance for distance in marked if 0 <= distance < following - unacked}
            beyond = any(distance >= following - unacked for distance in marked)
            for name, value in (
                ("base", base),
                ("bitmap", bitmap),
                ("unacked", unacked),
                ("next", following % CIRCLE),
            ):
                ctx.set(getattr(merge, name), value)
            ctx.set(merge.start, 1)
            await ctx.tick()
            ctx.set(merge.start, 0)
            found, read, cycles = set(), None, 1
            while True:
                if ctx.get(merge.write):
                    # The bits belong to the word that was read in the cycle before.
                    bits = ctx.get(merge.bits)
                    found |= {read * WORD + n for n in range(WORD) if bits >> n & 1}
                else:
                    assert ctx.get(merge.bits) == 0
                read = ctx.get(merge.word_number)
                cycles += 1
                if ctx.get(merge.done):
                    break
                assert cycles <= 12
                await ctx.tick()
            assert cycles == 12
            ring = words * WORD
            assert found == {(unacked + distance) % ring for distance in wanted}
            assert ctx.get(merge.beyond) == beyond
            await ctx.tick()
            assert not ctx.get(merge.busy)

    simulate(merge, bench)


def test_echoes_are_told_apart():
    value, check = Signal(32), Signal(11)
    m = Module()
    m.d.comb += check.eq(ev_check(value))
    generator = random.Random(4)

    async def bench(ctx):
        seen = set()
        for number in range(8 * 16 * 16):
            plane, uplink, replica = number >> 8, number >> 4 & 15, number & 15
            ctx.set(value, wire.ev_value(plane, uplink, replica))
            seen.add(ctx.get(check))
        assert len(seen) == 8 * 16 * 16
        for bit in range(32):
            first = generator.getrandbits(32)
            ctx.set(value, first)
            before = ctx.get(check)
            ctx.set(value, first ^ 1 << bit)
            assert ctx.get(check) != before

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
