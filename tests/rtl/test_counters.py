"""The bank of counters.

Sweep: 1 and 12 sources, few and many different counters. Stimulus: random events with and without pauses,
reads by the host in between, wrong indices and writes.
Checks: every counter equals the events sent, also when one counter is hit again and again; reads are exact;
refusals change nothing. Timing: one event of each counter in three cycles; a source waits for at most one
event of each other one.
"""

import random

import pytest

from mrc_rtl import records
from mrc_rtl.config import NicConfig
from mrc_rtl.counters import CounterBank
from record_agents import LIMIT, read_entry, simulate, write_entry

CONFIG = NicConfig.small()
COUNT = records.counter_count(CONFIG)


@pytest.mark.parametrize("sources", [1, 12])
@pytest.mark.parametrize("different", [1, 2, COUNT])
def test_counts(sources, different):
    dut = CounterBank(CONFIG, sources)
    rnd = random.Random(different)
    indices = rnd.sample(range(COUNT), different)
    expected = dict.fromkeys(range(COUNT), 0)
    per_source = 30
    finished = []

    def source(number):
        port = dut.events[number]
        mine = random.Random(number)

        async def run(ctx):
            for _ in range(per_source):
                while mine.random() < 0.3:
                    await ctx.tick()
                index = mine.choice(indices)
                ctx.set(port.payload.index, index)
                ctx.set(port.valid, 1)
                for _ in range(3 * sources + COUNT + 6):
                    _, _, ready = await ctx.tick().sample(port.ready)
                    if ready:
                        break
                assert ready
                ctx.set(port.valid, 0)
                expected[index] += 1
            finished.append(number)

        return run

    async def bench(ctx):
        earlier = dict.fromkeys(range(COUNT), 0)
        for _ in range(LIMIT):
            if len(finished) == sources:
                break
            index = rnd.choice(indices)
            (value,) = await read_entry(ctx, dut.table, index, 1)
            assert earlier[index] <= value <= expected[index]
            earlier[index] = value
            for _ in range(rnd.randrange(6)):
                await ctx.tick()
        for _ in range(4):
            await ctx.tick()
        assert ctx.get(dut.idle)
        assert not await write_entry(ctx, dut.table, 0, [5])
        assert await read_entry(ctx, dut.table, COUNT, 1) is None
        assert await read_entry(ctx, dut.table, 0, 2) is None
        for index in range(COUNT):
            assert await read_entry(ctx, dut.table, index, 1) == [expected[index]]

    simulate(dut, bench, *(source(number) for number in range(sources)))


def test_one_event_a_cycle():
    dut = CounterBank(CONFIG, 3)

    async def bench(ctx):
        await ctx.tick().until(dut.idle)
        for number, port in enumerate(dut.events):
            ctx.set(port.valid, 1)
            ctx.set(port.payload.index, 5 + number)
        taken = 0
        await ctx.tick()  # the first choice
        for _ in range(60):
            _, _, *ready = await ctx.tick().sample(*(port.ready for port in dut.events))
            taken += sum(ready)
        assert taken == 60
        for port in dut.events:
            ctx.set(port.valid, ctx.get(port.ready))  # a record that was chosen stays until it is taken
        await ctx.tick()
        for port in dut.events:
            ctx.set(port.valid, 0)
        for _ in range(4):
            await ctx.tick()
        values = [await read_entry(ctx, dut.table, 5 + number, 1) for number in range(3)]
        assert sorted(values) == [[20], [20], [21]]

    simulate(dut, bench)
