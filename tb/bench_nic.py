"""The whole engine between the agents of a bench, as the device API sees a NIC.

The device API is blocking software: tests call it through ``cocotb.task.bridge`` in a thread of its own, and
its register accesses come back through ``resume`` to the AXI4-Lite agent.
"""

import mmap
from collections.abc import Callable
from typing import Any

import cocotb
import numpy as np
from cocotb.simtime import get_sim_time
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiResp

from agents import (
    axi_lite_master,
    axi_memory_read,
    axi_memory_write,
    idle_inputs,
    start,
    stream_frame,
    stream_sink,
    stream_source,
)
from mrc_host.benches.rig import identity, path
from mrc_host.nic.base import RegisterError
from mrc_host.nic.device import Access, Context, QueuePair, Settings, connect, read_counters
from mrc_rtl import wire
from mrc_rtl.config import NicConfig

__all__ = ["BenchNic", "SelfConnection", "shifted", "started"]

FRACTION_BITS = 16
DESTINATION = wire.ETHERNET.bytes + wire.IPV6.byte_offset("destination")
BLOCK_BYTES, USID_BYTES = wire.USID_BLOCK_BITS // 8, wire.USID_BITS // 8


def shifted(frame: bytes) -> bytes:
    """Return the frame with the list of its outer destination moved up by one uSID, as a switch does."""
    first, end = DESTINATION + BLOCK_BYTES, DESTINATION + wire.IPV6["destination"].bits // 8
    return frame[:first] + frame[first + USID_BYTES : end] + bytes(USID_BYTES) + frame[end:]


class BenchNic:
    """An engine with memory, register agent, clock of the time input, and ports that lead back to themselves.

    Parameters
    ----------
    design:
        The top level handle.
    config:
        Sizes of the engine.
    memory_bytes:
        Host memory.

    Members
    -------
    memory : numpy array of uint8
        Host memory.
    read, write, sinks, sources, control:
        The agents.
    frames : int
        Frames that went round.
    """

    def __init__(self, design: Any, config: NicConfig, memory_bytes: int) -> None:
        self.design = design
        self.config = config
        self.frames = 0
        content = mmap.mmap(-1, memory_bytes)
        self.memory = np.frombuffer(content, dtype=np.uint8)
        self.read = axi_memory_read(design, "memory_read", memory_bytes, content)
        self.write = axi_memory_write(design, "memory_write", memory_bytes, content)
        self.control = axi_lite_master(design, "control")
        planes = range(config.planes)
        self.sinks = [stream_sink(design, f"transmit_{plane}") for plane in planes]
        self.sources = [stream_source(design, f"receive_{plane}") for plane in planes]

    def begin(self) -> None:
        """Raise the links, let time run and connect the ports."""
        self.design.link_up.value = (1 << self.config.planes) - 1
        cocotb.start_soon(self._time())
        for sink, source in zip(self.sinks, self.sources, strict=True):
            cocotb.start_soon(self._loop(sink, source))

    async def _time(self) -> None:
        tick = 0
        while True:
            self.design.now.value = tick << FRACTION_BITS
            await ClockCycles(self.design.clk, self.config.cycles_per_tick)
            tick += 1

    async def _loop(self, sink: Any, source: Any) -> None:
        while True:
            frame = await sink.recv(compact=False)
            data = bytes(byte for byte, keep in zip(frame.tdata, frame.tkeep, strict=True) if keep)
            self.frames += 1
            await source.send(stream_frame(shifted(data)))

    # What the device API asks of a NIC.

    @property
    def time_ps(self) -> int:
        """Simulated time."""
        return int(get_sim_time("ps"))

    def read32(self, address: int) -> int:
        """Read a register."""
        answer = resume(self.control.read)(address, 4)
        if answer.resp != AxiResp.OKAY:
            raise RegisterError(f"register {address:#06x} must allow to be read, got {answer.resp.name}")
        return int.from_bytes(answer.data, "little")

    def write32(self, address: int, value: int) -> None:
        """Write a register."""
        answer = resume(self.control.write)(address, value.to_bytes(4, "little"))
        if answer.resp != AxiResp.OKAY:
            raise RegisterError(f"register {address:#06x} must allow to be written, got {answer.resp.name}")

    def watch(self, tag: int, address: int, length: int) -> None:
        """Nothing to do: tests look at the memory."""

    def unwatch(self, tag: int) -> None:
        """Nothing to do either."""


class SelfConnection:
    """Two queue pairs of one engine, connected with each other through a switch that shifts.

    Its methods block: call them through :meth:`call`.

    Parameters
    ----------
    nic:
        The engine.
    buffer_bytes:
        Memory that each end sends from and receives into.
    mtu:
        Path MTU.
    """

    def __init__(self, nic: BenchNic, buffer_bytes: int, mtu: int) -> None:
        self.nic = nic
        self.context = context = Context(nic, identity(nic.config, 0), Settings(sack_threshold=4096))
        domain = context.protection_domain()
        self.queue = context.completion_queue(256)
        values = [
            [wire.ev_value(plane, 1, replica) for replica in range(4)] for plane in range(nic.config.planes)
        ]
        self._profile = context.ev_profile(values)
        self._domain, self._mtu = domain, mtu
        self.pairs: list[QueuePair] = []
        self.reconnect((0xFFFFFC, 100))
        self.sources, self.sinks = (
            [context.allocator.allocate(buffer_bytes) for _ in self.pairs] for _ in range(2)
        )
        self.source_regions = [domain.register(buffer) for buffer in self.sources]
        rights = Access.LOCAL_WRITE | Access.REMOTE_WRITE
        self.sink_regions = [domain.register(buffer, rights) for buffer in self.sinks]
        generator = np.random.default_rng(buffer_bytes)
        for buffer in self.sources:
            buffer.data[:] = generator.integers(0, 256, buffer_bytes, dtype=np.uint8)

    def reconnect(self, starting_psns: tuple[int, int]) -> None:
        """Destroy the queue pairs, if there are any, and connect new ones of the same numbers."""
        for pair in self.pairs:
            pair.destroy()
        self.pairs = [self.context.queue_pair(self._domain, self.queue) for _ in range(2)]
        way = path(0, 0, through_switch=True)
        connect(
            self.pairs[0],
            self.pairs[1],
            profiles=(self._profile, self._profile),
            paths=(way, way),
            path_mtu=self._mtu,
            starting_psns=starting_psns,
        )

    @staticmethod
    async def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call blocking software and return its result."""
        return await bridge(function)(*arguments, **named)

    def write(self, end: int, wr_id: int, offset: int, length: int, immediate: int | None = None) -> None:
        """Post a write to the same offset at the other end, with an immediate unless it is None."""
        places = {
            "local_address": self.sources[end].address + offset,
            "lkey": self.source_regions[end].lkey,
            "length": length,
            "remote_address": self.sinks[1 - end].address + offset,
            "rkey": self.sink_regions[1 - end].rkey,
        }
        if immediate is None:
            self.pairs[end].write(wr_id, **places)
        else:
            self.pairs[end].write_imm(wr_id, **places, immediate=immediate)

    async def completions(self, count: int, limit_cycles: int) -> list[Any]:
        """Wait for so many completions."""
        found: list[Any] = []
        for _ in range(0, limit_cycles, POLL_CYCLES):
            await ClockCycles(self.nic.design.clk, POLL_CYCLES)
            found += await self.call(self.queue.poll)
            if len(found) >= count:
                return found
        raise AssertionError(f"{count} completions must come within {limit_cycles} cycles, got {len(found)}")

    async def counters(self) -> Any:
        """Read all counters."""
        return await self.call(read_counters, self.context.driver)


POLL_CYCLES = 256


async def started(design: Any, config: NicConfig, memory_bytes: int) -> BenchNic:
    """Make the agents, reset the engine and let its ports lead back to themselves."""
    idle_inputs(design)
    nic = BenchNic(design, config, memory_bytes)
    await start(design)
    nic.begin()
    return nic
