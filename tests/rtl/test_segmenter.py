"""Arithmetic of the segmenter where messages are longest.

Sweep: MTU 256 to 4096; lengths 0, 1, around an MTU, 32 MiB, 2^31, 2^32 - 1 bytes; first PSNs near the wrap.
Stimulus: single jobs for the first, second, middle, last but one and last packet of a message.
Checks: addresses, length, opcode, numbers, immediate; a failed look-up hands the job back.
Timing: every job ends within 60 cycles.
"""

from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from mrc_rtl import wire
from mrc_rtl.config import NicConfig
from mrc_rtl.requester.segmenter import Segmenter

CONFIG = NicConfig(mtu=4096, address_width=64, receive_buffer_bytes=16384)
LIMIT = 60


class _Harness(wiring.Component):
    """The segmenter with its own clock domain and nothing else."""

    def __init__(self) -> None:
        self.segmenter = Segmenter(CONFIG)
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.segmenter = self.segmenter
        return m


def _message(length: int, mtu_log2: int, imm: bool, first: int) -> dict[str, int]:
    return {
        "local": 0x1234_5678_9ABC_DEF1, "remote": 0xFFFF_FFF0_0000_0003, "length": length, "key": 0xA1A2A3A4,
        "rkey": 0xB1B2B3B4, "imm": 0xC1C2C3C4, "opcode": int(imm), "mtu_log2": mtu_log2, "first": first,
    }  # fmt: skip


MESSAGES = [
    _message(length, mtu_log2, imm, first)
    for length, mtu_log2, imm, first in (
        (1, 8, False, 0),
        (0, 12, True, 7),
        (256, 8, True, wire.PSN_MASK),
        (257, 8, False, wire.PSN_MASK),
        (32 << 20, 10, False, 0xFFFF00),
        (1 << 31, 11, True, 0x800000),
        ((1 << 32) - 1, 8, True, 0xABCDEF),
        ((1 << 32) - 1, 12, False, 0),
        ((1 << 32) - 4096, 12, False, 1),
    )
]


def _expected(message: dict[str, int], number: int) -> dict[str, int]:
    mtu = 1 << message["mtu_log2"]
    packets = max(1, -(-message["length"] // mtu))
    last = number == packets - 1
    imm = bool(message["opcode"]) and last
    names = {(1, 1): "ONLY", (1, 0): "FIRST", (0, 0): "MIDDLE", (0, 1): "LAST"}
    name = f"WRITE_{names[number == 0, last]}" + ("_IMM" if imm else "")
    return {
        "local": (message["local"] + number * mtu) & (1 << 64) - 1,
        "va": (message["remote"] + number * mtu) & (1 << 64) - 1,
        "length": message["length"] - number * mtu if last else mtu,
        "opcode": wire.Opcode[name],
        "rqmsn": 0x77 if imm else 0,
        "immediate": int(imm),
    }


def _numbers(message: dict[str, int]) -> list[int]:
    packets = max(1, -(-message["length"] // (1 << message["mtu_log2"])))
    return sorted({0, min(1, packets - 1), packets // 2, max(0, packets - 2), packets - 1})


@pytest.mark.parametrize("allowed", [True, False])
def test_segmenter_arithmetic(allowed: bool) -> None:
    harness = _Harness()
    dut = harness.segmenter

    async def wait(ctx: Any, signal: Any, what: str) -> None:
        for _ in range(LIMIT):
            if ctx.get(signal):
                return
            await ctx.tick()
        raise AssertionError(f"not within {LIMIT} cycles: {what}")

    async def work_queue(ctx: Any) -> None:
        # A read takes as many cycles as the work queue's at 64 bit.
        while not finished:
            await ctx.tick()
            if not ctx.get(dut.read):
                continue
            for _ in range(6):
                await ctx.tick()
            ctx.set(dut.read_done, 1)
            await ctx.tick()
            ctx.set(dut.read_done, 0)

    finished: list[bool] = []

    async def bench(ctx: Any) -> None:
        for message in MESSAGES:
            ctx.set(dut.view_write, 1)
            ctx.set(dut.view_qp, 3)
            ctx.set(dut.view, {"mtu_log2": message["mtu_log2"], "protection_domain": 0x5A})
            ctx.set(dut.message_write, 1)
            ctx.set(dut.message_index, 3 * CONFIG.send_queue_depth + 2)
            ctx.set(dut.message, {"first": message["first"], "msn": 0x4321, "rqmsn": 0x77})
            ctx.set(
                dut.request,
                {
                    "local_address": message["local"], "remote_address": message["remote"],
                    "length": message["length"], "local_key": message["key"], "remote_key": message["rkey"],
                    "immediate": message["imm"], "opcode": message["opcode"],
                },
            )  # fmt: skip
            ctx.set(dut.forget, 1)
            await ctx.tick()
            for signal in (dut.view_write, dut.message_write, dut.forget):
                ctx.set(signal, 0)
            for number in _numbers(message):
                wanted = _expected(message, number)
                psn = message["first"] + number & wire.PSN_MASK
                ctx.set(dut.job.payload, {"qp": 3, "psn": psn, "slot": 2, "retransmission": number & 1})
                ctx.set(dut.job.valid, 1)
                await wait(ctx, dut.job.ready, "job")
                await ctx.tick()
                ctx.set(dut.job.valid, 0)
                if wanted["length"]:
                    await wait(ctx, dut.region.valid, "look-up")
                    asked = dut.region.payload
                    assert ctx.get(asked.address) == wanted["local"]
                    assert ctx.get(asked.length) == wanted["length"]
                    assert ctx.get(asked.key) == message["key"]
                    assert ctx.get(asked.protection_domain) == 0x5A and ctx.get(asked.write) == 0
                    ctx.set(dut.region.ready, 1)
                    await ctx.tick()
                    ctx.set(dut.region.ready, 0)
                    ctx.set(dut.region_answer.payload, {"ok": allowed, "bus_address": 0x1357})
                    ctx.set(dut.region_answer.valid, 1)
                    await wait(ctx, dut.region_answer.ready, "answer taken")
                    await ctx.tick()
                    ctx.set(dut.region_answer.valid, 0)
                    if not allowed:
                        await wait(ctx, dut.failed.valid, "failure")
                        assert ctx.get(dut.failed.payload.psn) == psn
                        assert ctx.get(dut.failed.payload.slot) == 2
                        ctx.set(dut.failed.ready, 1)
                        await ctx.tick()
                        ctx.set(dut.failed.ready, 0)
                        await wait(ctx, dut.idle, "idle")
                        continue
                await wait(ctx, dut.fetch.valid, "fetch")
                descriptor = dut.fetch.payload.descriptor
                address = ctx.get(dut.fetch.payload.bus_address)
                assert address == 0x1357 if wanted["length"] else address % CONFIG.data_bytes == 0
                for name in ("length", "opcode", "immediate"):
                    assert ctx.get(descriptor[name]) == wanted[name], (message, number, name)
                body = ctx.get(descriptor.body)
                assert wire.METH.unpack(body >> 192) == {"rqmsn": wanted["rqmsn"], "msn": 0x4321}
                assert wire.TSETH.unpack(body >> 160 & 0xFFFFFFFF)["ftype"] == 1
                assert wire.RETH.unpack(body >> 32 & (1 << 128) - 1) == {
                    "va": wanted["va"], "rkey": message["rkey"], "dma_len": message["length"]
                }  # fmt: skip
                assert body & 0xFFFFFFFF == message["imm"]
                assert ctx.get(descriptor.psn) == psn and ctx.get(descriptor.retransmission) == number & 1
                ctx.set(dut.fetch.ready, 1)
                await ctx.tick()
                ctx.set(dut.fetch.ready, 0)
                await wait(ctx, dut.idle, "idle")

        finished.append(True)

    simulator = Simulator(harness)
    simulator.add_clock(16e-9)
    simulator.add_testbench(bench)
    simulator.add_testbench(work_queue)
    simulator.run()
