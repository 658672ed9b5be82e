"""ICRC gateware against zlib through the packet codec's icrc_value.

Sweep: widths 64, 128 and 512; every frame length modulo the width; both offsets of the inner header.
Stimulus: random bytes, frames back to back and with gaps, single-bit errors, runts, the golden packets.
Checks: ok for a right ICRC only; inserted bytes equal zlib's; the message of the one parameter check.
Timing: done three cycles after the last beat; insertion costs the beats of the longer frame and no more.
"""

import json
import random
from pathlib import Path

import pytest
from amaranth.sim import Simulator

from mrc_host.packets.icrc import icrc_bytes
from mrc_rtl import wire
from mrc_rtl.icrc import INNER_OFFSETS, IcrcStep
from mrc_rtl.responder.icrc_check import IcrcCheck
from mrc_rtl.transmit.icrc_insert import IcrcInsert

VECTORS = Path(__file__).parents[1] / "vectors" / "packets.json"


def _frame(random_source: random.Random, length: int, offset: int) -> bytes:
    """Random bytes with IP version 6 at the offset; ``length`` counts without ICRC."""
    frame = bytearray(random_source.randbytes(length))
    if length > offset:
        frame[offset] = 0x60 | frame[offset] & 0x0F
    return bytes(frame)


async def _check(ctx, dut, frame: bytes, source: random.Random | None = None) -> None:  # type: ignore[no-untyped-def]
    """Drive one frame, with pauses and with rubbish behind its end when there is a source of it."""
    for at in range(0, len(frame), 8):
        while source and source.random() < 0.1:
            ctx.set(dut.valid, 0)
            await ctx.tick()
        piece = frame[at : at + 8]
        rubbish = source.randbytes(8 - len(piece)) if source else bytes(8 - len(piece))
        last = at + 8 >= len(frame)
        for signal, value in (
            (dut.valid, 1), (dut.data, int.from_bytes(piece + rubbish, "little")), (dut.last, last),
            (dut.position, min(at // 8, 15)), (dut.early, len(piece) <= 2),
        ):  # fmt: skip
            ctx.set(signal, value)
        await ctx.tick()
    ctx.set(dut.valid, 0)


async def _answers(ctx, dut, ends: list[int]) -> list[int]:  # type: ignore[no-untyped-def]
    """``ok`` three cycles after each last word."""
    result = []
    since = [0, 0, 0]
    while len(result) < len(ends):
        *_, last, ok = await ctx.tick().sample(dut.valid & dut.last, dut.ok)
        if since[-1]:
            result.append(ok)
        since = [last, *since[:2]]
    return result


def test_check_accepts_only_right_icrcs() -> None:
    source = random.Random(64)
    cases: list[tuple[bytes, bool]] = []
    for length in [*range(74, 110, 4), 150, 334]:
        frame = _frame(source, length, 14)
        good = frame + icrc_bytes(frame, 14, 54, length)
        cases.append((good, True))
        for _ in range(3):
            bad = bytearray(good)
            covered = [n for n in range(18, len(good)) if n not in (21, 60, 61, 66)]
            bad[source.choice(covered)] ^= 1 << source.randrange(8)
            cases.append((bytes(bad), False))
        free = bytearray(good)
        for place in (*range(14), 15, 16, 17, 21, 60, 61, 66):
            free[place] = source.randrange(256)
        cases.append((bytes(free), True))
    source.shuffle(cases)
    dut = IcrcCheck()
    found: list[int] = []

    async def drive(ctx) -> None:  # type: ignore[no-untyped-def]
        for frame, _ in cases:
            await _check(ctx, dut, frame, source)
        for _ in range(5):
            await ctx.tick()
        assert ctx.get(dut.idle)

    async def watch(ctx) -> None:  # type: ignore[no-untyped-def]
        found.extend(await _answers(ctx, dut, [0] * len(cases)))

    _simulate(dut, drive, watch)
    assert found == [int(right) for _, right in cases]


def test_check_accepts_golden_packets() -> None:
    vectors = json.loads(VECTORS.read_text())["packets"]
    frames = []
    for name, vector in vectors.items():
        packet = bytes.fromhex(vector["hex"])
        if packet[0] >> 4 != 6 or "trim" in name:
            continue
        # The check sees frames without outer header, as plane receive makes them.
        frames.append(bytes(14) + (packet[40:] if packet[6] == wire.NextHeader.IPV6 else packet))
    assert frames
    dut = IcrcCheck()
    found: list[int] = []

    async def drive(ctx) -> None:  # type: ignore[no-untyped-def]
        for frame in frames:
            await _check(ctx, dut, frame)
        for _ in range(5):
            await ctx.tick()

    async def watch(ctx) -> None:  # type: ignore[no-untyped-def]
        found.extend(await _answers(ctx, dut, [0] * len(frames)))

    _simulate(dut, drive, watch)
    assert found == [1] * len(frames)


def _simulate(dut, *testbenches) -> None:  # type: ignore[no-untyped-def]
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    for testbench in testbenches:
        simulator.add_testbench(testbench)
    simulator.run_until(1e-6 * 20_000)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("width", [64, 128, 512])
def test_insert_appends_the_icrc(width: int, waits: bool) -> None:
    lanes = width // 8
    source = random.Random(width)
    cases = [
        (_frame(source, length, INNER_OFFSETS[srv6]), srv6)
        for srv6 in (0, 1)
        for length in [*range(INNER_OFFSETS[srv6] + 60, INNER_OFFSETS[srv6] + 64 + lanes, 4), 254, 270]
    ]
    source.shuffle(cases)
    dut = IcrcInsert(width, tag_bits=8)
    got: list[tuple[bytes, int]] = []
    cycles: list[int] = []

    async def drive(ctx) -> None:  # type: ignore[no-untyped-def]
        for number, (frame, srv6) in enumerate(cases):
            for at in range(0, len(frame), lanes):
                while waits and source.random() < 0.2:
                    await ctx.tick()
                piece = frame[at : at + lanes]
                ctx.set(dut.sink.tvalid, 1)
                rubbish = source.randbytes(lanes - len(piece))
                ctx.set(dut.sink.tdata, int.from_bytes(piece + rubbish, "little"))
                ctx.set(dut.sink.tkeep, (1 << len(piece)) - 1)
                ctx.set(dut.sink.tlast, at + lanes >= len(frame))
                ctx.set(dut.srv6, srv6)
                ctx.set(dut.sink_tag, number & 0xFF)
                await ctx.tick().until(dut.sink.tready)
                ctx.set(dut.sink.tvalid, 0)

    async def watch(ctx) -> None:  # type: ignore[no-untyped-def]
        partial = b""
        cycle = 0
        while len(got) < len(cases):
            ready = not waits or source.random() < 0.7
            ctx.set(dut.source.tready, ready)
            beat = await ctx.tick().sample(
                dut.source.tvalid, dut.source.tdata, dut.source.tkeep, dut.source.tlast, dut.source_tag
            )
            _, _, valid, data, keep, last, tag = beat
            cycle += 1
            if not (valid and ready):
                continue
            cycles.append(cycle)
            partial += data.to_bytes(lanes, "little")[: keep.bit_length()]
            if last:
                got.append((partial, tag))
                partial = b""

    _simulate(dut, drive, watch)
    for number, ((frame, srv6), (received, tag)) in enumerate(zip(cases, got, strict=True)):
        offset = INNER_OFFSETS[srv6]
        assert received == frame + icrc_bytes(frame, offset, offset + 40, len(frame))
        assert tag == number & 0xFF
    if not waits:
        assert cycles[-1] - cycles[0] + 1 == sum(-(-(len(frame) + 4) // lanes) for frame, _ in cases)


def test_width_is_checked() -> None:
    with pytest.raises(ValueError, match="^width must be a positive multiple of 64 bits, got 24$"):
        IcrcStep(24, [0])
