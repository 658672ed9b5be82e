"""Clock, reset and bus agents of the benches, with the agents' logging turned down.

The agents of cocotbext-axi log every payload at INFO, which would take most of a run; all of theirs
log below the top level's name, where the limit is set.
"""

import logging
import random
from collections.abc import Iterator
from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import (
    AxiBus,
    AxiLiteBus,
    AxiLiteMaster,
    AxiRam,
    AxiReadBus,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
    AxiWriteBus,
)
from cocotbext.axi.axi_ram import AxiRamRead, AxiRamWrite

import runner

__all__ = [
    "axi_lite_master",
    "axi_memory",
    "axi_memory_read",
    "axi_memory_write",
    "idle_inputs",
    "random_pauses",
    "reset",
    "start",
    "stream_frame",
    "stream_sink",
    "stream_source",
]

RESET_CYCLES = 4


def _quiet(design: Any) -> None:
    logging.getLogger(f"cocotb.{design._name}").setLevel(logging.WARNING)


def idle_inputs(design: Any) -> None:
    """Drive every input to zero, the first thing a test does: what nobody drives is random or undefined."""
    for name in runner.parameters()["inputs"]:
        if name != "clk":
            getattr(design, name).value = 0


async def start(design: Any) -> None:
    """Start the clock and reset the design. Create the agents before, so that they see the reset."""
    _quiet(design)
    Clock(design.clk, runner.CLOCK_PERIOD_PS, unit="ps").start()
    await reset(design)


async def reset(design: Any) -> None:
    """Hold the reset for four cycles."""
    design.rst.value = 1
    await ClockCycles(design.clk, RESET_CYCLES)
    design.rst.value = 0
    await ClockCycles(design.clk, 1)


def stream_source(design: Any, prefix: str) -> AxiStreamSource:
    """Return an agent that sends frames into the stream `prefix` of the design."""
    _quiet(design)
    return AxiStreamSource(AxiStreamBus.from_prefix(design, f"{prefix}_"), design.clk, design.rst)


def stream_sink(design: Any, prefix: str) -> AxiStreamSink:
    """Return an agent that takes frames from the stream `prefix` of the design."""
    _quiet(design)
    return AxiStreamSink(AxiStreamBus.from_prefix(design, f"{prefix}_"), design.clk, design.rst)


def stream_frame(data: bytes, *, error: bool = False) -> AxiStreamFrame:
    """Return a frame for `stream_source`; `error` sets tuser on its last beat."""
    return AxiStreamFrame(data, tuser=[0] * (len(data) - 1) + [int(error)])


def axi_memory(design: Any, prefix: str, size: int) -> AxiRam:
    """Return `size` bytes of memory that serve the AXI4 manager `prefix` (all five channels)."""
    _quiet(design)
    return AxiRam(AxiBus.from_prefix(design, f"{prefix}_"), design.clk, design.rst, size=size)


def axi_memory_read(design: Any, prefix: str, size: int, memory: Any = None) -> AxiRamRead:
    """Return memory that serves the AXI4 read channels of `prefix`; `memory` shares another's bytes."""
    _quiet(design)
    bus = AxiReadBus.from_prefix(design, f"{prefix}_")
    return AxiRamRead(bus, design.clk, design.rst, size=size, mem=memory)


def axi_memory_write(design: Any, prefix: str, size: int, memory: Any = None) -> AxiRamWrite:
    """Return memory that serves the AXI4 write channels of `prefix`; `memory` shares another's bytes."""
    _quiet(design)
    bus = AxiWriteBus.from_prefix(design, f"{prefix}_")
    return AxiRamWrite(bus, design.clk, design.rst, size=size, mem=memory)


def axi_lite_master(design: Any, prefix: str) -> AxiLiteMaster:
    """Return an agent that reads and writes registers through the AXI4-Lite port `prefix`."""
    _quiet(design)
    return AxiLiteMaster(AxiLiteBus.from_prefix(design, f"{prefix}_"), design.clk, design.rst)


def random_pauses(probability: float, seed: int | None = None) -> Iterator[bool]:
    """Yield for ever whether an agent pauses in the next cycle.

    Parameters
    ----------
    probability:
        Of a pause in one cycle, 0 to 1.
    seed:
        By default drawn from the bench's random generator.
    """
    generator = random.Random(random.getrandbits(32) if seed is None else seed)
    while True:
        yield generator.random() < probability
