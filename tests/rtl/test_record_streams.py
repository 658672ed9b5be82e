"""Merging and spreading record streams.

Sweep: 1, 2 and 5 sources and sinks. Stimulus: numbered records with random gaps, random back-pressure.
Checks: every record arrives exactly once, in its source's order; a busy source waits for at most one record
of each other one; payload stays while it waits. Timing: bounded by the number of records.
"""

import random

import pytest
from amaranth.lib import data
from amaranth.sim import Simulator

from mrc_rtl.record_streams import RecordArbiter, RecordBroadcast, RecordRegister

LAYOUT = data.StructLayout({"source": 4, "number": 12})
RECORDS = 60


def run(dut, *benches):
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    for bench in benches:
        simulator.add_testbench(bench)
    simulator.run()


def sender(dut, port, source, gap):
    async def bench(ctx):
        random_ = random.Random(source)
        for number in range(RECORDS):
            while random_.random() < gap:
                await ctx.tick()
            ctx.set(port.payload, {"source": source, "number": number})
            ctx.set(port.valid, 1)
            await ctx.tick().until(port.ready)
            ctx.set(port.valid, 0)

    return bench


def receiver(port, total, got, stall, seed=1):
    async def bench(ctx):
        random_ = random.Random(seed)
        held = None
        while len(got) < total:
            ready = random_.random() >= stall
            ctx.set(port.ready, ready)
            _, _, valid, payload = await ctx.tick().sample(port.valid, port.payload.as_value())
            if held is not None:
                assert valid and payload == held
            held = payload if valid and not ready else None
            if valid and ready:
                got.append((payload & 15, payload >> 4))
        ctx.set(port.ready, 0)

    return bench


@pytest.mark.parametrize("stall", [0, 0.5])
@pytest.mark.parametrize("sources", [1, 2, 5])
def test_arbiter_keeps_every_record_and_is_fair(sources, stall):
    dut = RecordArbiter(LAYOUT, sources)
    got = []
    senders = [sender(dut, dut.inputs[n], n, 0) for n in range(sources)]
    run(dut, *senders, receiver(dut.output, RECORDS * sources, got, stall))
    for source in range(sources):
        assert [number for who, number in got if who == source] == list(range(RECORDS))
    for start in range(0, len(got) - sources, sources):
        assert len({who for who, _ in got[start : start + sources]}) == sources


@pytest.mark.parametrize("sinks", [1, 2, 5])
def test_broadcast_reaches_every_sink_once(sinks):
    dut = RecordBroadcast(LAYOUT, sinks)
    got = [[] for _ in range(sinks)]
    receivers = [receiver(dut.outputs[n], RECORDS, got[n], 0.3, seed=n) for n in range(sinks)]
    run(dut, sender(dut, dut.input, 3, 0.3), *receivers)
    assert all(records == [(3, number) for number in range(RECORDS)] for records in got)


def test_an_arbiter_without_sources_is_refused():
    with pytest.raises(ValueError, match="sources must be at least 1, got 0"):
        RecordArbiter(LAYOUT, 0)


@pytest.mark.parametrize("stall", [0, 0.5])
def test_register_keeps_order_and_takes_a_record_every_second_cycle(stall):
    dut = RecordRegister(LAYOUT)
    got, taken = [], []

    async def watch(ctx):
        cycle = 0
        async for _, _, ready, valid in ctx.tick().sample(dut.input.ready, dut.input.valid):
            if ready and valid:
                taken.append(cycle)
            cycle += 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_process(watch)
    simulator.add_testbench(sender(dut, dut.input, 2, 0))
    simulator.add_testbench(receiver(dut.output, RECORDS, got, stall))
    simulator.run()
    assert got == [(2, number) for number in range(RECORDS)]
    gaps = {after - before for before, after in zip(taken, taken[1:])}
    assert min(gaps) == 2
    if not stall:
        assert gaps == {2}
