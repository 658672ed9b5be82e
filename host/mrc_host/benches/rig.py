"""Engines connected port to port, without switches and without software that reacts: the engine is the limit.

The ends of a connection are queue pairs of two NICs, or of one NIC that talks to itself. A frame that has
left a port reaches the same port of the other NIC after a fixed delay (store and forward). MACs run at the
highest rate a port can receive, so that the planes together carry at least what the engine can.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from mrc_host.errors import InfrastructureError
from mrc_host.fabric.usid import QpTemplate
from mrc_host.nic.base import Frame, Watch
from mrc_host.nic.build import Progress, print_progress
from mrc_host.nic.device import (
    Access,
    Buffer,
    CompletionQueue,
    Context,
    Identity,
    MemoryRegion,
    Path,
    QueuePair,
    Settings,
    connect,
)
from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_host.nic.verilated import VerilatedNic
from mrc_rtl import wire
from mrc_rtl.config import NicConfig
from mrc_rtl.wire import Tier

__all__ = ["Connection", "Delivered", "Rig", "identity", "line_rate", "path", "small_state"]

WIRE_DELAY_PS = 500_000
PREAMBLE_AND_FCS = 12
WORD_BYTES = 8
FRAME_OVERHEAD = 24
FIRST_TAG = 1 << 8
MEMORY_BYTES = 32 << 20


def line_rate(config: NicConfig) -> Fraction:
    """Return the highest rate of one port in Gb/s: the receive side of a plane takes 64 bits a cycle."""
    return Fraction(8 * WORD_BYTES * 1000, config.clock_ps)


def identity(config: NicConfig, host: int) -> Identity:
    """Return who a host is whose ports lead straight to other hosts."""
    planes = range(config.planes)
    macs = tuple(wire.mac_address(plane, host) for plane in planes)
    return Identity(
        address=wire.inner_address(host),
        usid=wire.usid_value(0, Tier.HOST, host + 1),
        macs=macs,
        next_hop_macs=tuple(wire.mac_address(plane, 1 - host) for plane in planes),
    )


def path(source: int, target: int, *, srv6: bool = True, through_switch: bool = False) -> Path:
    """Return the way between two hosts.

    Parameters
    ----------
    source, target : int
        Hosts.
    srv6 : bool
        With an outer header; its list of uSIDs is the target alone.
    through_switch : bool
        The list begins with a T0, which has to shift it.
    """
    outer = None
    if srv6:
        t0 = wire.usid_value(0, Tier.T0, 1)
        own, peer = (wire.usid_value(0, Tier.HOST, host + 1) for host in (source, target))
        carrier = (t0, peer) if through_switch else (peer,)
        outer = QpTemplate(
            source=wire.outer_address((t0, own)),
            destination=wire.outer_address(carrier),
            plane_positions=tuple(range(len(carrier))),
            uplink_position=None,
        )
    return Path(wire.inner_address(source), wire.inner_address(target), outer)


def small_state(config: NicConfig) -> NicConfig:
    """Return a configuration with fewer QPs and regions, whose model is compiled quicker."""
    return config.with_(qps=8, memory_regions=16, ev_profiles=8, mpr_psns=256)


@dataclass(frozen=True)
class Delivered:
    """A frame handed to a port: when its last bit arrived, its port, and its bytes."""

    time_last_bit_ps: int
    port: int
    data: bytes


@dataclass
class Connection:
    """Two connected queue pairs, by end, each with memory to send from and to receive into.

    Parameters
    ----------
    pairs : list of QueuePair
    sources, sinks : list of Buffer
    source_regions, sink_regions : list of MemoryRegion
    posted, sent : list of int
        Messages of each direction, by the end that sends.
    """

    pairs: list[QueuePair]
    sources: list[Buffer] = field(default_factory=list)
    sinks: list[Buffer] = field(default_factory=list)
    source_regions: list[MemoryRegion] = field(default_factory=list)
    sink_regions: list[MemoryRegion] = field(default_factory=list)

    def post(self, end: int, wr_id: int, offset: int, length: int) -> None:
        """Post a write of bytes at an offset to the same offset at the other end."""
        self.pairs[end].write(
            wr_id,
            local_address=self.sources[end].address + offset,
            lkey=self.source_regions[end].lkey,
            length=length,
            remote_address=self.sinks[1 - end].address + offset,
            rkey=self.sink_regions[1 - end].rkey,
        )


class Rig:
    """One or two verilated NICs whose ports are connected with each other.

    Parameters
    ----------
    config : NicConfig
        Sizes of the engines.
    nics : int
        2, or 1 for an engine that talks to itself.
    gbps : Fraction, optional
        Rate of the MACs; the highest a port can receive when left out.
    settings : Settings, optional
        Of the devices.
    read_latency : int
        Of the host memories, in cycles.
    record : bool
        Record the input pins of NIC 0 from its first cycle on.
    progress : callable
        Gets a line for each step of a build.

    Attributes
    ----------
    contexts : list of Context
        The open devices, one a NIC.
    sent : list of lists of Frame
        Frames that left each NIC.
    delivered : list of lists of Delivered
        Frames handed to each NIC.
    watches : list of lists of Watch
        Writes into watched memory of each NIC.
    holding : bool
        Frames that leave are kept in ``sent`` only.
    stimulus : Stimulus
        What was recorded.
    seconds : float
        Wall time inside the NICs, by calls of ``run`` and ``deliver``.
    """

    def __init__(
        self,
        config: NicConfig,
        *,
        nics: int = 2,
        gbps: Fraction | None = None,
        settings: Settings | None = None,
        read_latency: int = MemoryOptions.read_latency,
        record: bool = False,
        progress: Progress = print_progress,
    ) -> None:
        self.config = config
        self.gbps = gbps or line_rate(config)
        mac = MacOptions(gbps=self.gbps, fifo_bytes=max(256, 4 * config.data_bytes))
        self.nics = [
            VerilatedNic(
                config,
                mac,
                MemoryOptions(size=MEMORY_BYTES, read_latency=read_latency, seed=host),
                progress=progress,
            )
            for host in range(nics)
        ]
        self.stimulus = self.nics[0].new_stimulus()
        if record:
            self.nics[0].record_stimulus(self.stimulus)
        self.contexts = [Context(nic, identity(config, host), settings) for host, nic in enumerate(self.nics)]
        self.sent: list[list[Frame]] = [[] for _ in self.nics]
        self.delivered: list[list[Delivered]] = [[] for _ in self.nics]
        self.watches: list[list[Watch]] = [[] for _ in self.nics]
        self.holding = False
        self.seconds = 0.0
        self._flying: list[list[tuple[int, int, bytes]]] = [[] for _ in self.nics]
        self._free = [[0] * config.planes for _ in self.nics]
        self._domains = [context.protection_domain() for context in self.contexts]
        self._queues: list[CompletionQueue] = [context.completion_queue(4096) for context in self.contexts]
        values = [
            [wire.ev_value(plane, 1, replica) for replica in range(config.evs_per_plane)]
            for plane in range(config.planes)
        ]
        self._profiles = [context.ev_profile(values) for context in self.contexts]

    # -- set-up ------------------------------------------------------------------------------------------

    def connect(
        self, *, mtu: int, buffer_bytes: int, srv6: bool = True, timeout: int = 0, seed: int = 1
    ) -> Connection:
        """Connect a new queue pair of each end; the source buffers are filled with random bytes."""
        ends = (0, len(self.nics) - 1)
        connection = Connection(
            [self.contexts[end].queue_pair(self._domains[end], self._queues[end]) for end in ends]
        )
        connect(
            connection.pairs[0],
            connection.pairs[1],
            profiles=(self._profiles[ends[0]], self._profiles[ends[1]]),
            paths=(path(ends[0], ends[1], srv6=srv6), path(ends[1], ends[0], srv6=srv6)),
            path_mtu=mtu,
            starting_psns=(0xFFFFF0, 5),
            timeout=timeout,
        )
        generator = np.random.default_rng(seed)
        for end in ends:
            source, sink = (self.contexts[end].allocator.allocate(buffer_bytes, 4096) for _ in range(2))
            source.data[:] = generator.integers(0, 256, buffer_bytes, dtype=np.uint8)
            connection.sources.append(source)
            connection.sinks.append(sink)
            connection.source_regions.append(self._domains[end].register(source))
            connection.sink_regions.append(
                self._domains[end].register(sink, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
            )
        return connection

    def align(self) -> None:
        """Bring all NICs to one time, that of the last one, once set-up is done."""
        latest = max(nic.time_ps for nic in self.nics)
        now = -(-latest // WIRE_DELAY_PS) * WIRE_DELAY_PS
        for number in range(len(self.nics)):
            self._run(number, now)

    @property
    def time_ps(self) -> int:
        """Time up to which all NICs have run."""
        return max(nic.time_ps for nic in self.nics)

    @contextmanager
    def scheduled(self) -> Iterator[None]:
        """Let what the block asks of the devices take place from now on, one access after the other."""
        with ExitStack() as stack:
            for context in self.contexts:
                stack.enter_context(context.driver.at(self.time_ps))
            yield

    # -- running -----------------------------------------------------------------------------------------

    def step(self, length_ps: int = WIRE_DELAY_PS) -> None:
        """Let all NICs run for a time not longer than the delay of the wire."""
        end = self.time_ps + length_ps
        for number, flying in enumerate(self._flying):
            due = [frame for frame in flying if frame[0] < end]
            self._flying[number] = [frame for frame in flying if frame[0] >= end]
            for arrival, port, data in due:
                self.deliver(number, arrival, port, data)
        for number in range(len(self.nics)):
            self._run(number, end)

    def run(self, completions: int, limit_us: int = 20_000) -> None:
        """Run until so many messages have completed, over all NICs.

        Raises
        ------
        InfrastructureError
            A completion tells of an error, or the limit of simulated time is reached.
        """
        limit = self.time_ps + limit_us * 1_000_000
        found = 0
        while found < completions:
            self.step()
            for queue in self._queues:
                for completion in queue.poll(4096):
                    if not completion.ok:
                        raise InfrastructureError(
                            f"message {completion.wr_id} must succeed, got {completion.status.name}"
                        )
                    found += 1
            if self.time_ps > limit:
                raise InfrastructureError(
                    f"{completions} messages must complete within {limit_us} us, got {found}"
                )

    def deliver(self, number: int, time_ps: int, port: int, data: bytes) -> int:
        """Hand a frame to a port when its line is free, not before a time; return when its last bit is in."""
        start = max(time_ps, self._free[number][port])
        byte_ps = 8000 / self.gbps
        started = time.perf_counter()
        self.nics[number].deliver(port, start, data)
        self.seconds += time.perf_counter() - started
        last = start + int((len(data) + PREAMBLE_AND_FCS) * byte_ps)
        self._free[number][port] = start + -int(-(len(data) + FRAME_OVERHEAD) * byte_ps // 1)
        self.delivered[number].append(Delivered(last, port, data))
        return last

    def watch_sink(self, connection: Connection, end: int) -> None:
        """Record the engine's writes into the memory that an end receives into."""
        sink, nic = connection.sinks[end], self.nics[end % len(self.nics)]
        nic.watch(FIRST_TAG + connection.pairs[end].index, sink.bus_address, sink.length)

    def _run(self, number: int, until_ps: int) -> None:
        started = time.perf_counter()
        outputs = self.nics[number].run(until_ps)
        self.seconds += time.perf_counter() - started
        self.sent[number] += outputs.frames
        self.watches[number] += [watch for watch in outputs.watches if watch.tag >= FIRST_TAG]
        if self.holding:
            return
        flying = self._flying[(number + 1) % len(self.nics)]
        flying += [
            (frame.time_last_bit_ps + WIRE_DELAY_PS, frame.port, frame.data) for frame in outputs.frames
        ]

    def close(self) -> None:
        """Free the NICs."""
        for nic in self.nics:
            nic.close()
