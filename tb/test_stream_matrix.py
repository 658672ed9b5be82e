"""The bench foundation proves itself on a small store of frames.

Sweep: data widths 8, 64 and 512 bits; the whole stream matrix; power-up contents of memories.
Stimulus: frames from the matrix; for the monitor, beats driven by hand that break one rule each.
Checks: frames out equal frames in; each broken rule is reported; memories do not power up as zeros.
Timing: one frame leaves in as many cycles as it has beats when nobody pauses; every wait is bounded.
"""

import cocotb
import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles, RisingEdge

import runner
from agents import idle_inputs, start
from matrix import run_stream_case, stream_cases
from mrc_rtl.stream import PacketStream
from stream_monitor import StreamMonitor, StreamRuleBroken

WIDTH = runner.parameters().get("width", 64)


class BeatStore(wiring.Component):
    """A queue of beats and, beside it, one word of a memory that nobody has written yet."""

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(
            {
                "input": In(PacketStream(width)),
                "output": Out(PacketStream(width)),
                "unwritten": Out(32),
                "write": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = Cat(self.input.tdata, self.input.tkeep, self.input.tlast, self.input.tuser)
        m.submodules.queue = queue = SyncFIFOBuffered(width=len(beat), depth=16)
        m.d.comb += [
            queue.w_data.eq(beat),
            queue.w_en.eq(self.input.tvalid),
            self.input.tready.eq(queue.w_rdy),
            Cat(self.output.tdata, self.output.tkeep, self.output.tlast, self.output.tuser).eq(queue.r_data),
            self.output.tvalid.eq(queue.r_rdy),
            queue.r_en.eq(self.output.tready),
        ]
        m.submodules.words = words = memory.Memory(shape=32, depth=64, init=[])
        write_port, read_port = words.write_port(), words.read_port()
        address = Signal(6)
        m.d.sync += address.eq(address + 1)
        m.d.comb += [
            write_port.en.eq(self.write),
            read_port.addr.eq(address),
            self.unwritten.eq(read_port.data),
        ]
        return m


@pytest.mark.parametrize("width", [8, 64, 512])
def test_stream_matrix(simulation: runner.Simulation, width: int) -> None:
    runner.run_bench(lambda: BeatStore(width), __file__, simulation, parameters={"width": width})


def test_a_failure_is_reported(simulation: runner.Simulation) -> None:
    with pytest.raises(runner.BenchFailed, match="no test ran"):
        runner.run_bench(lambda: BeatStore(8), __file__, simulation, only="no such name")


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(case=stream_cases(WIDTH))
async def matrix(dut, case) -> None:
    output = await run_stream_case(dut, case, source="input", sink="output")
    if case.name == "flowing":
        for frame in output.frames:
            beats = -(-len(frame.data) // (WIDTH // 8))
            assert frame.last_cycle - frame.first_cycle + 1 == beats


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def memories_power_up_random(dut) -> None:
    idle_inputs(dut)
    await start(dut)
    await ClockCycles(dut.clk, 2)
    words = set()
    for _ in range(64):
        await RisingEdge(dut.clk)
        words.add(int(dut.unwritten.value))
    assert len(words) > 60, f"64 words of memory hold only {len(words)} different values"


async def _drive(dut, *beats: tuple[int, int, int]) -> None:
    """Put (tvalid, tdata, tlast) on the input, one a cycle, while the queue is kept full."""
    for valid, data, last in beats:
        dut.input__tvalid.value = valid
        dut.input__tdata.value = data
        dut.input__tlast.value = last
        await RisingEdge(dut.clk)


async def _full_queue(dut) -> None:
    """Start with a queue that takes no more, so that a beat at the input waits."""
    idle_inputs(dut)
    dut.input__tkeep.value = (1 << WIDTH // 8) - 1
    await start(dut)
    StreamMonitor(dut, "input")
    await _drive(dut, *[(1, 0, 1)] * 20)
    await _drive(dut, (1, 0, 1))
    assert not int(dut.input__tready.value)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.xfail(raises=StreamRuleBroken)
async def monitor_sees_a_dropped_valid(dut) -> None:
    await _full_queue(dut)
    await _drive(dut, (0, 0, 1), (0, 0, 1), (0, 0, 1))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.xfail(raises=StreamRuleBroken)
async def monitor_sees_changed_data(dut) -> None:
    await _full_queue(dut)
    await _drive(dut, (1, 1, 1), (1, 1, 1), (1, 1, 1))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.xfail(raises=StreamRuleBroken)
@cocotb.parametrize(keep_and_last=[(0, 1), (0, 0)])
async def monitor_sees_a_wrong_keep(dut, keep_and_last) -> None:
    idle_inputs(dut)
    dut.output__tready.value = 1
    await start(dut)
    StreamMonitor(dut, "input")
    dut.input__tkeep.value, last = keep_and_last
    await _drive(dut, (1, 0, last), (1, 0, last), (1, 0, last))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.xfail(raises=StreamRuleBroken)
async def monitor_sees_a_short_gap(dut) -> None:
    idle_inputs(dut)
    dut.input__tkeep.value = 1
    dut.output__tready.value = 1
    await start(dut)
    StreamMonitor(dut, "input", minimum_gap=2)
    await _drive(dut, (1, 0, 1), (0, 0, 1), (1, 0, 1), (0, 0, 1))
