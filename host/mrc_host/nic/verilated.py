"""A NIC made of verilated gateware: Python sees frames, memory and registers, never an edge."""

from __future__ import annotations

import ctypes
import mmap
import struct
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np

from mrc_host.errors import InfrastructureError
from mrc_host.nic import library
from mrc_host.nic.base import (
    NEVER,
    Frame,
    Nic,
    Outputs,
    RegisterError,
    RegisterRead,
    Statistics,
    TraceRecord,
    Watch,
)
from mrc_host.nic.build import Progress, build_library, engine_verilog, print_progress
from mrc_host.nic.options import MacOptions, MemoryOptions, byte_time
from mrc_host.nic.stimulus import Stimulus
from mrc_rtl.config import NicConfig

__all__ = ["VerilatedNic"]

WRITE, READ = 0, 1
SYNCHRONOUS_TAG = 1 << 60
#: Cycles after which a register access that was not answered is given up.
ACCESS_LIMIT_CYCLES = 100_000

_FRAME = struct.Struct("<qqiiq")
_WATCH = struct.Struct("<qqqq")
_ACCESS = struct.Struct("<qqIIii")
_TRACE = struct.Struct("<q24s")
_TIME = struct.Struct("<q")


class VerilatedNic(Nic):
    """The engine under Verilator between MACs, a memory and a register bus.

    Cycle n is the interval [n · clock_ps, (n + 1) · clock_ps); ``now`` follows from n exactly, and an input
    of time t is seen by the first cycle that begins at t or later. While the engine is quiescent, cycles
    are skipped up to the next input, deadline or end of the window; the outputs are the same as without.

    Parameters
    ----------
    config : NicConfig
        Sizes of the engine.
    mac : MacOptions
        Line rate and transmit FIFO of the ports.
    memory : MemoryOptions
        Size, latency and back-pressure of the host memory.
    skip_idle : bool
        False clocks every cycle.
    verilog : Path, optional
        The engine as Verilog, instead of ``MrcNic(config)``.
    progress : callable
        Gets a line for each step of a build.
    build : callable
        Makes the library, with the arguments of :func:`~mrc_host.nic.build.build_library`.

    Raises
    ------
    ConfigError
        An option is out of range.
    InfrastructureError
        The engine cannot be built.
    """

    gateware = True

    def __init__(
        self,
        config: NicConfig,
        mac: MacOptions | None = None,
        memory: MemoryOptions | None = None,
        *,
        skip_idle: bool = True,
        verilog: Path | None = None,
        progress: Progress = print_progress,
        build: Callable[..., Path] = build_library,
    ) -> None:
        mac = mac or MacOptions()
        memory = memory or MemoryOptions()
        self._handle: int | None = None
        self.config = config
        byte_ps = byte_time(config, mac)
        path = build(
            verilog or engine_verilog(config),
            planes=config.planes,
            data_width=config.data_width,
            trace=config.trace,
            progress=progress,
        )
        self._library = library.load(path)
        self._bytes = mmap.mmap(-1, memory.size)
        self.memory = np.frombuffer(self._bytes, dtype=np.uint8)
        parameters = library.Parameters(
            period=config.clock_ps,
            cycles_per_tick=config.cycles_per_tick,
            byte_numerator=byte_ps.numerator,
            byte_denominator=byte_ps.denominator,
            fifo_bytes=mac.fifo_bytes,
            skip_idle=skip_idle,
            memory=library.MemoryParameters(
                bytes=self.memory.ctypes.data,
                size=memory.size,
                read_latency=memory.read_latency,
                write_latency=memory.write_latency,
                latency_jitter=memory.latency_jitter,
                outstanding=memory.outstanding,
                stall_period=memory.stall_period,
                stall_cycles=memory.stall_cycles,
                stall_share=int(memory.stall_share * 65536),
                seed=memory.seed,
            ),
        )
        self._handle = self._library.mrc_create(ctypes.byref(parameters))
        self._time_ps = 0
        self._wall_seconds = 0.0
        self._held = Outputs()
        self._failed: list[RegisterError] = []
        self._answers: list[int] = []
        self._decode_trace = _trace_decoder(config) if config.trace else _no_trace

    # -- clock -------------------------------------------------------------------------------------------

    @property
    def time_ps(self) -> int:
        """Time up to which the NIC has run."""
        return self._time_ps

    @property
    def next_activity_ps(self) -> int:
        """Time before which nothing happens unless something is put in; ``time_ps`` while it is busy."""
        held = self._held
        if held.frames or held.watches or held.reads or held.trace or held.interrupts:
            # Frames that register accesses let leave may be older than now.
            return min([self._time_ps, *(frame.time_last_bit_ps for frame in held.frames)])
        return min(NEVER, int(self._library.mrc_next_activity(self._handle)))

    @property
    def statistics(self) -> Statistics:
        """What it cost so far."""
        counters = library.Counters()
        self._library.mrc_counters(self._handle, ctypes.byref(counters))
        names = {name for name, *_ in library.Counters._fields_}
        values = {
            item.name: getattr(counters, item.name) for item in fields(Statistics) if item.name in names
        }
        return Statistics(wall_seconds=self._wall_seconds, **values)

    def run(self, until_ps: int) -> Outputs:
        """Advance to a time and return all outputs with a time before it (and after the last call).

        Raises
        ------
        ValueError
            The time lies before ``time_ps``.
        RegisterError
            A scheduled register access was refused.
        """
        if until_ps < self._time_ps:
            raise ValueError(f"until_ps must be at least {self._time_ps}, got {until_ps}")
        started = time.perf_counter()
        self._library.mrc_run(self._handle, until_ps)
        self._wall_seconds += time.perf_counter() - started
        self._time_ps = until_ps
        self._collect()
        if self._failed:
            raise self._failed.pop(0)
        result, self._held = self._held, Outputs()
        return result

    def settle(self, limit_cycles: int = 100_000) -> None:
        """Let time go on until the NIC rests; what it puts out meanwhile is returned by the next :meth:`run`.

        Raises
        ------
        InfrastructureError
            It is still busy after so many cycles.
        """
        if not self._clock_until_done(limit_cycles, quiet=True):
            raise InfrastructureError(f"the engine must rest within {limit_cycles} cycles, but is still busy")

    # -- ports -------------------------------------------------------------------------------------------

    def deliver(self, port: int, time_first_bit_ps: int, frame: bytes, bad_fcs: bool = False) -> None:
        """Hand a frame (without FCS) to a port; its first bit arrives at the given time.

        Raises
        ------
        ValueError
            The port does not exist, the frame is empty, or the time lies before ``time_ps`` or before that of
            the port's previous frame.
        """
        self._check_port(port)
        self._check_time("time_first_bit_ps", time_first_bit_ps)
        if not frame:
            raise ValueError("frame must have at least 1 byte, got 0")
        if not self._library.mrc_deliver(self._handle, port, time_first_bit_ps, frame, len(frame), bad_fcs):
            raise ValueError(
                f"time_first_bit_ps of port {port} must be at least that of its previous frame, "
                f"got {time_first_bit_ps}"
            )

    def schedule_link(self, time_ps: int, port: int, up: bool) -> None:
        """Change the link of a port at a time; without link frames are lost in both directions."""
        self._check_port(port)
        self._check_time("time_ps", time_ps)
        self._library.mrc_schedule_link(self._handle, time_ps, port, up)

    # -- registers ---------------------------------------------------------------------------------------

    def schedule_write(self, time_ps: int, address: int, value: int) -> None:
        """Write a register at a time. Accesses of one time are carried out in the order of the calls."""
        self._check_time("time_ps", time_ps)
        self._access(time_ps, WRITE, address, value, -1)

    def schedule_read(self, time_ps: int, address: int, tag: int) -> None:
        """Read a register at a time; the answer appears in ``Outputs.reads`` under the tag (0 or more)."""
        self._check_time("time_ps", time_ps)
        if not 0 <= tag < SYNCHRONOUS_TAG:
            raise ValueError(f"tag must be between 0 and 2^60 - 1, got {tag}")
        self._access(time_ps, READ, address, 0, tag)

    def read32(self, address: int) -> int:
        """Read a register now; time goes on until the answer is there (for set-up)."""
        return self._access_now(READ, address, 0)

    def write32(self, address: int, value: int) -> None:
        """Write a register now; time goes on until it is answered (for set-up)."""
        self._access_now(WRITE, address, value)

    def _access(self, time_ps: int, kind: int, address: int, value: int, tag: int) -> None:
        if not 0 <= address < 1 << 16 or address % 4:
            raise ValueError(f"address must be a multiple of 4 below 0x10000, got {address:#x}")
        if not 0 <= value < 1 << 32:
            raise ValueError(f"value must fit 32 bits, got {value:#x}")
        self._library.mrc_schedule_access(self._handle, time_ps, kind, address, value, tag)

    def _access_now(self, kind: int, address: int, value: int) -> int:
        self._access(self._time_ps, kind, address, value, SYNCHRONOUS_TAG)
        self._answers.clear()
        self._clock_until_done(ACCESS_LIMIT_CYCLES, quiet=False)
        if self._failed:
            raise self._failed.pop(0)
        if not self._answers:
            raise RegisterError(f"register {address:#06x} must answer within {ACCESS_LIMIT_CYCLES} cycles")
        return self._answers[0]

    def _clock_until_done(self, cycles: int, quiet: bool) -> bool:
        started = time.perf_counter()
        done = bool(self._library.mrc_settle(self._handle, cycles, quiet))
        self._wall_seconds += time.perf_counter() - started
        self._time_ps = int(self._library.mrc_time(self._handle))
        self._collect()
        return done

    # -- memory ------------------------------------------------------------------------------------------

    def watch(self, tag: int, address: int, length: int) -> None:
        """Report writes into a range of memory under a tag."""
        if address < 0 or length < 1 or address + length > len(self.memory):
            raise ValueError(
                f"watched range must lie inside {len(self.memory)} bytes of memory, "
                f"got {length} at {address:#x}"
            )
        self._library.mrc_watch(self._handle, tag, address, length)

    def unwatch(self, tag: int) -> None:
        """Forget the ranges of a tag."""
        self._library.mrc_unwatch(self._handle, tag)

    def fail_memory(self, address: int, length: int) -> None:
        """Answer bursts that touch a range with SLVERR from now on; they change nothing."""
        self._library.mrc_fail_memory(self._handle, address, length)

    def clear_memory_errors(self) -> None:
        """Forget the ranges of :meth:`fail_memory`."""
        self._library.mrc_clear_memory_errors(self._handle)

    # -- life --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Free the model; the NIC cannot be used any more."""
        if self._handle is not None:
            self._library.mrc_destroy(self._handle)
            self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def record_stimulus(self, stimulus: Stimulus | None) -> None:
        """Record the input pins of every clocked cycle from now on; None ends it."""
        self._library.mrc_record(self._handle, None if stimulus is None else stimulus.handle)

    def new_stimulus(self) -> Stimulus:
        """Return an empty recording for this NIC's model."""
        return Stimulus(self._library)

    # -- inside ------------------------------------------------------------------------------------------

    def _check_port(self, port: int) -> None:
        if not 0 <= port < self.config.planes:
            raise ValueError(f"port must be between 0 and {self.config.planes - 1}, got {port}")

    def _check_time(self, what: str, time_ps: int) -> None:
        if time_ps < self._time_ps:
            raise ValueError(f"{what} must be at least {self._time_ps}, got {time_ps}")

    def _collect(self) -> None:
        """Move what the shim has put out into the outputs that the next run returns."""
        views = library.OutputViews()
        self._library.mrc_outputs(self._handle, ctypes.byref(views))
        held = self._held
        if views.frames.count:
            content = ctypes.string_at(views.frame_bytes.records, views.frame_bytes.count)
            frames = [
                Frame(when, port, sequence, content[offset : offset + length])
                for when, offset, length, port, sequence in _FRAME.iter_unpack(_view(views.frames, _FRAME))
            ]
            frames.sort(key=lambda frame: frame[:3])
            held.frames += frames
        if views.watches.count:
            held.watches += [Watch(*record) for record in _WATCH.iter_unpack(_view(views.watches, _WATCH))]
        if views.accesses.count:
            for record in _ACCESS.iter_unpack(_view(views.accesses, _ACCESS)):
                self._take_access(*record)
        if views.traces.count:
            held.trace += [
                self._decode_trace(when, payload)
                for when, payload in _TRACE.iter_unpack(_view(views.traces, _TRACE))
            ]
        if views.interrupts.count:
            held.interrupts += [record[0] for record in _TIME.iter_unpack(_view(views.interrupts, _TIME))]
        self._library.mrc_clear_outputs(self._handle)

    def _take_access(self, when: int, tag: int, address: int, value: int, kind: int, response: int) -> None:
        if response:
            verb = "written" if kind == WRITE else "read"
            self._failed.append(
                RegisterError(f"register {address:#06x} must allow to be {verb}, got AXI response {response}")
            )
        elif tag == SYNCHRONOUS_TAG:
            self._answers.append(value)
        else:
            self._held.reads.append(RegisterRead(when, tag, address, value))


def _view(view: library.View, record: struct.Struct) -> bytes:
    return ctypes.string_at(view.records, view.count * record.size)


def _no_trace(when: int, payload: bytes) -> TraceRecord:
    raise ValueError(f"an engine without trace must not emit records, got one at {when} ps")


def _trace_decoder(config: NicConfig) -> Callable[[int, bytes], TraceRecord]:
    """Return what splits a trace record into its fields, by the layout the gateware uses."""
    from mrc_rtl.records import trace_record  # imports Amaranth, which only an engine with trace needs

    layout = trace_record(config)
    places = [(layout[name].offset, (1 << layout[name].width) - 1) for name in TraceRecord._fields[1:]]

    def decode(when: int, payload: bytes) -> TraceRecord:
        value = int.from_bytes(payload, "little")
        return TraceRecord(when, *(value >> offset & mask for offset, mask in places))

    return decode
