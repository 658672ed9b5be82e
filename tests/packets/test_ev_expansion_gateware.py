"""EV expansion in gateware equals Python.

Sweep: the vectors and random profiles, 4 to 128 profile bits a cycle, widths that do not fill a power of two.
Stimulus: several profiles in the memory, requests in random order, random back-pressure on the result, rows
read back between requests.
Checks: every result equals the Python expansion, left-aligned; rows read back equal those written; results
follow one another in rows + 2 cycles; idle before and after, not while a result waits; one memory with
one write port; exact messages.
Timing: every wait is bounded by 400 cycles.
"""

from __future__ import annotations

import random

import pytest
from amaranth.sim import Simulator

from mrc_host.packets.ev_expansion import EvProfile
from mrc_rtl.memory_rules import memories_of
from mrc_rtl.paths.ev_expansion import EvExpansion
from packets.ev_profiles import random_profile
from packets.strategies import load

LIMIT = 400


async def write_profile(ctx, dut, number: int, profile: EvProfile) -> None:
    """Write all rows of a profile, left-aligned."""
    spare = dut.width - profile.width
    size = dut.bits_per_cycle
    for row in range(dut.rows):
        shift = dut.width - size * (row + 1)
        words = {
            name: (value << spare) >> shift & ((1 << size) - 1)
            for name, value in (("template", profile.template), ("mask", profile.mask))
        }
        ctx.set(dut.profile_write.payload, {"profile": number, "row": row, **words})
        ctx.set(dut.profile_write.valid, 1)
        await ctx.tick()
    ctx.set(dut.profile_write.valid, 0)


async def wait_for(ctx, signal) -> int:
    """Wait for the cycle in which ``signal`` is 1; returns the cycles that took."""
    for cycles in range(1, LIMIT):
        *_, value = await ctx.tick().sample(signal)
        if value:
            return cycles
    raise AssertionError(f"nothing within {LIMIT} cycles")


def run(
    dut: EvExpansion, profiles: list[EvProfile], requests: list[tuple[int, int]], stall: float
) -> list[int]:
    """Expand the requests; returns the clock cycle of every result."""
    source = random.Random(len(requests))
    cycles: list[int] = []

    async def send(ctx):
        for number, profile in enumerate(profiles):
            await write_profile(ctx, dut, number, profile)
        for number, ev in requests:
            aligned = ev << (dut.ev_bits - profiles[number].ev_bits)
            ctx.set(dut.request.payload, {"profile": number, "ev": aligned})
            ctx.set(dut.request.valid, 1)
            await wait_for(ctx, dut.request.ready)
        ctx.set(dut.request.valid, 0)

    async def receive(ctx):
        cycle = 0
        assert ctx.get(dut.idle)
        for number, ev in requests:
            waited = 0
            while True:
                ready = source.random() >= stall
                ctx.set(dut.result.ready, ready)
                _, _, valid, value = await ctx.tick().sample(dut.result.valid, dut.result.payload)
                cycle += 1
                waited += 1
                assert waited < LIMIT
                assert not (valid and not ready and ctx.get(dut.idle))
                if ready and valid:
                    break
            expected = profiles[number].expand(ev) << (dut.width - profiles[number].width)
            assert value == expected, (profiles[number], hex(ev))
            cycles.append(cycle)
        ctx.set(dut.result.ready, 0)
        assert ctx.get(dut.idle)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(send)
    simulator.add_testbench(receive)
    simulator.run()
    assert len(cycles) == len(requests)
    return cycles


@pytest.mark.parametrize("bits_per_cycle", [8, 16, 128])
def test_vectors(bits_per_cycle):
    entries = load("ev_expansion.json")["profiles"]
    profiles = [EvProfile.from_json(entry) for entry in entries]
    requests = []
    for number, (profile, entry) in enumerate(zip(profiles, entries)):
        for vector in entry["vectors"]:
            spare = 4 * len(vector["ev"]) - profile.ev_bits
            ev = int(vector["ev"], 16) >> spare
            requests.append((number, ev))
            assert profile.expand(ev) == int(vector["expanded"], 16)
    dut = EvExpansion(ev_bits=64, bits_per_cycle=bits_per_cycle, profiles=len(profiles))
    run(dut, profiles, requests, stall=0)


@pytest.mark.parametrize(
    ("width", "ev_bits", "bits_per_cycle", "stall"),
    [
        (128, 32, 8, 0.3),
        (128, 32, 16, 0),
        (128, 64, 32, 0.5),
        (96, 32, 16, 0.3),
        (20, 20, 4, 0),
        (64, 64, 64, 0),
    ],
)
def test_random_profiles(width, ev_bits, bits_per_cycle, stall):
    source = random.Random(width * bits_per_cycle)
    profiles = [random_profile(source, width, ev_bits) for _ in range(13)]
    requests = [
        (number, source.getrandbits(profiles[number].ev_bits))
        for number in (source.randrange(len(profiles)) for _ in range(60))
    ]
    dut = EvExpansion(width=width, ev_bits=ev_bits, bits_per_cycle=bits_per_cycle, profiles=len(profiles))
    cycles = run(dut, profiles, requests, stall)
    if not stall:
        assert {after - before for before, after in zip(cycles, cycles[1:])} == {dut.rows + 2}


def test_rows_read_back_between_requests():
    source = random.Random(5)
    dut = EvExpansion(profiles=3)
    profiles = [random_profile(source, 128, 32) for _ in range(3)]

    async def bench(ctx):
        for number, profile in enumerate(profiles):
            await write_profile(ctx, dut, number, profile)
        ctx.set(dut.profile_row.ready, 1)
        ctx.set(dut.result.ready, 1)
        for number, profile in enumerate(profiles):
            spare = 128 - profile.width
            for row in range(dut.rows):
                ctx.set(dut.request.payload, {"profile": number, "ev": 0})
                ctx.set(dut.request.valid, row % 2)
                ctx.set(dut.profile_read.payload, {"profile": number, "row": row})
                ctx.set(dut.profile_read.valid, 1)
                if row % 2:
                    await wait_for(ctx, dut.request.ready)
                    ctx.set(dut.request.valid, 0)
                await wait_for(ctx, dut.profile_read.ready)
                ctx.set(dut.profile_read.valid, 0)
                await wait_for(ctx, dut.profile_row.valid)
                answer = ctx.get(dut.profile_row.payload)
                shift = 112 - 16 * row
                assert answer.template == (profile.template << spare) >> shift & 0xFFFF
                assert answer.mask == (profile.mask << spare) >> shift & 0xFFFF

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


def test_one_memory_with_one_write_port():
    (fact,) = memories_of(EvExpansion())
    assert (fact.width, fact.depth, fact.read_ports, fact.write_ports) == (32, 32, 1, 1)
    assert fact.granularity == fact.width


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"ev_bits": 0}, "ev_bits must be between 1 and width 128, got 0"),
        ({"bits_per_cycle": 7}, "bits_per_cycle must divide width 128, got 7"),
        ({"profiles": 0}, "profiles must be at least 1, got 0"),
    ],
)
def test_messages(parameters, message):
    with pytest.raises(ValueError) as caught:
        EvExpansion(**parameters)
    assert str(caught.value) == message
