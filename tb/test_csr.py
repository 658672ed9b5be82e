"""The register block on a bus that hesitates, with its rows powered up all ones.

Sweep: every constant and every setting of the map; small configuration.
Stimulus: reads and writes by an AXI4-Lite agent, all five channels pausing at random.
Checks: constants and reset values are right after power-up, written settings read back, addresses outside
the map answer with an error.
Timing: every access is bounded by the test's time; 16 reads without pauses take at most 8 cycles each.
"""

import random

import cocotb
from cocotb.simtime import get_sim_time
from cocotbext.axi import AxiResp

import runner
from agents import axi_lite_master, idle_inputs, random_pauses, start
from mrc_rtl.config import NicConfig
from mrc_rtl.csr import CsrBlock
from mrc_rtl.registers import RegisterKind, constant_value, register_map

CONFIG = NicConfig.small()
MAP = register_map()
WORD_BYTES = 4
CYCLES_PER_READ = 8
OUTSIDE = 0xFFF0
ENABLE = {"control"}
"""Settings left alone, because they start the engine."""


def test_csr(simulation: runner.Simulation) -> None:
    runner.run_bench(lambda: CsrBlock(CONFIG), __file__, simulation)


def elements(register) -> range:
    return range(min(register.count, CONFIG.planes) if register.name.startswith("port_") else register.count)


async def started(dut, *, pauses: bool):
    """Reset the block and return the agent, with every other input quiet."""
    idle_inputs(dut)
    for name in ("send_doorbell", "receive_doorbell", "consumer", "counter"):
        getattr(dut, f"{name}__ready").value = 1
    master = axi_lite_master(dut, "control")
    await start(dut)
    if pauses:
        write, read = master.write_if, master.read_if
        for channel in (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel):
            channel.set_pause_generator(random_pauses(0.4))
    return master


async def get(master, register, index: int = 0) -> int:
    answer = await master.read(register.address(index), WORD_BYTES * register.words)
    assert answer.resp == AxiResp.OKAY, register.name
    return int.from_bytes(answer.data, "little")


async def put(master, register, value: int, index: int = 0) -> None:
    data = value.to_bytes(WORD_BYTES * register.words, "little")
    answer = await master.write(register.address(index), data)
    assert answer.resp == AxiResp.OKAY, register.name


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(pauses=[False, True])
async def constants_and_reset_values(dut, pauses) -> None:
    master = await started(dut, pauses=pauses)
    for register in MAP:
        for index in elements(register):
            if register.kind is RegisterKind.CONSTANT:
                assert await get(master, register, index) == constant_value(register, CONFIG), register.name
            elif register.kind is RegisterKind.SETTING and register.name != "port_administration":
                assert await get(master, register, index) == register.reset, register.name


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(pauses=[False, True])
async def settings_read_back(dut, pauses) -> None:
    master = await started(dut, pauses=pauses)
    settings = [
        (register, index, random.getrandbits(register.width) & register.mask)
        for register in MAP
        if register.kind is RegisterKind.SETTING and register.name not in ENABLE | {"port_administration"}
        for index in elements(register)
    ]
    for register, index, value in settings:
        await put(master, register, value, index)
    for register, index, value in random.sample(settings, len(settings)):
        assert await get(master, register, index) == value, register.name


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def outside_the_map(dut) -> None:
    master = await started(dut, pauses=True)
    assert (await master.read(OUTSIDE, WORD_BYTES)).resp == AxiResp.SLVERR
    assert (await master.write(OUTSIDE, bytes(WORD_BYTES))).resp == AxiResp.SLVERR


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reads_are_quick(dut) -> None:
    master = await started(dut, pauses=False)
    constant = next(register for register in MAP if register.kind is RegisterKind.CONSTANT)
    await get(master, constant)
    before = get_sim_time("ps")
    for _ in range(16):
        await get(master, constant)
    cycles = (get_sim_time("ps") - before) / runner.CLOCK_PERIOD_PS
    assert cycles <= 16 * CYCLES_PER_READ, f"16 reads took {cycles:.0f} cycles"
