"""What the engine carries: efficiency of its data path, and cycles between packets.

Source: profile.md 10 (engine_efficiency, per-packet interval).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mrc_host.benches.rig import Connection, Rig
from mrc_host.errors import InfrastructureError
from mrc_host.nic.build import Progress, print_progress
from mrc_host.nic.device import Counters, Settings, read_counters
from mrc_rtl.config import NicConfig

__all__ = ["Efficiency", "Interval", "check_bytes", "engine_efficiency", "packet_intervals", "saturated"]

#: The saturated interval leaves out this share of the frames at either end.
MARGIN = 0.2
MESSAGE_BYTES = 32_768
SLOT_BYTES = 4096
#: Cycles of memory latency for the intervals: with more, the transmit slots limit the rate of short packets.
SHORT_LATENCY = 4
#: Arrivals at the receiver, in shares of the bound.
PACES = (0.9, 1.0, 1.25, 1.5, 2.0, 3.0)
STEP_LIMIT = 200
#: Exponent of the retransmission timeout, 1 ms: beyond any queue of these transfers.
TIMEOUT = 10
#: Base round-trip time of NICs that are full in both directions: 500 µs, for answers wait behind packets.
FULL_RTT_PS = 500_000_000
TAKEN = ("tx_", "rx_frames", "accepted", "control")


@dataclass(frozen=True)
class Interval:
    """Cycles between packets of a mix.

    Parameters
    ----------
    cycles : float
        Mean over the saturated interval.
    bound : float
        Mean of max(beats of the frame, K) over the same packets.
    packets : int
        Packets in the interval.
    """

    cycles: float
    bound: float
    packets: int


@dataclass(frozen=True)
class Efficiency:
    """How well the data path is used.

    Parameters
    ----------
    value : float
        Frame bytes over cycles × width.
    lost : int
        Frames that were dropped, came twice or were sent again.
    """

    value: float
    lost: int


def saturated(events: Sequence[tuple[int, int]]) -> tuple[Sequence[tuple[int, int]], int]:
    """Return the (time, size) pairs between the margins, and the time they cover.

    The first pair begins the interval and is not counted.
    """
    ordered = sorted(events)
    margin = int(len(ordered) * MARGIN)
    inner = ordered[margin : len(ordered) - margin]
    if len(inner) < 16:
        raise InfrastructureError(f"a saturated interval needs at least 16 packets, got {len(inner)}")
    return inner[1:], inner[-1][0] - inner[0][0]


def engine_efficiency(
    config: NicConfig, mtu: int, packets: int = 600, progress: Progress = print_progress
) -> Efficiency:
    """Return frame bytes over cycles × width in the worst of the four directions of two engines.

    Both engines send long messages to each other on four queue pairs at the same time; data and control
    count, the FCS does not.

    Parameters
    ----------
    config : NicConfig
        Sizes of the engines.
    mtu : int
        Payload of a packet in bytes.
    packets : int
        Data packets that each engine sends, at least.
    progress : callable
        Gets a line for each step of a build.

    Raises
    ------
    InfrastructureError
        A byte is wrong.
    """
    rig = Rig(config, progress=progress, settings=Settings(base_rtt_ps=FULL_RTT_PS))
    try:
        count = -(-packets * mtu // (4 * MESSAGE_BYTES))
        count = min(count, config.send_queue_depth)
        connections = [
            rig.connect(mtu=mtu, buffer_bytes=count * MESSAGE_BYTES, timeout=TIMEOUT, seed=number)
            for number in range(4)
        ]
        rig.align()
        with rig.scheduled():
            for number in range(count):
                for connection in connections:
                    for end in (0, 1):
                        connection.post(end, number, number * MESSAGE_BYTES, MESSAGE_BYTES)
        rig.run(8 * count)
        for connection in connections:
            check_bytes(connection)
        lost = sum(_not_taken(read_counters(context.driver)) for context in rig.contexts)
        cycle_bytes = config.data_bytes / config.clock_ps
        found = []
        for number in range(2):
            sent = [(frame.time_last_bit_ps, len(frame.data)) for frame in rig.sent[number]]
            taken = [(frame.time_last_bit_ps, len(frame.data)) for frame in rig.delivered[number]]
            for events in (sent, taken):
                inner, duration = saturated(events)
                found.append(sum(size for _, size in inner) / (duration * cycle_bytes))
        return Efficiency(min(found), lost)
    finally:
        rig.close()


def packet_intervals(
    config: NicConfig, lengths: Sequence[int], *, srv6: bool = True, progress: Progress = print_progress
) -> tuple[Interval, Interval]:
    """Return the intervals at which an engine sends, and another one places, one-packet messages.

    The messages wait until the ports of the sender open; there is no feedback. Its frames are kept until all
    are there, and then reach the receiver in the order in which they left, 10 % quicker than the bound asks
    it to take them, so that packets wait in its buffers; slower only when it would lose some.

    Parameters
    ----------
    config : NicConfig
        Sizes of the engines.
    lengths : sequence of int
        Bytes of each message, at most one slot of memory.
    srv6 : bool
        With an outer header; without, frames are 40 bytes shorter.
    progress : callable
        Gets a line for each step of a build.

    Raises
    ------
    InfrastructureError
        A byte is wrong, or the receiver loses frames at any pace.
    """
    for pace in PACES:
        rig = Rig(config, read_latency=SHORT_LATENCY, progress=progress)
        try:
            found = _one_pace(rig, lengths, srv6, pace)
        finally:
            rig.close()
        if found is not None:
            return found
    raise InfrastructureError(f"a pace of {PACES[-1]} of the bound must not lose frames, but does")


def _one_pace(rig: Rig, lengths: Sequence[int], srv6: bool, pace: float) -> tuple[Interval, Interval] | None:
    """Measure at one pace of the arrivals, a share of the bound; None when the receiver lost frames."""
    config = rig.config
    connections = _posted(rig, lengths, srv6)
    rig.holding = True
    with rig.scheduled():
        rig.contexts[0].set_ports(range(config.planes))
    if not _stepped(rig, lambda: len(rig.sent[0]) >= len(lengths)):
        raise InfrastructureError(f"{len(lengths)} frames must leave, got {len(rig.sent[0])}")
    frames = sorted(rig.sent[0])
    for connection in connections:
        rig.watch_sink(connection, 1)
    start = rig.time_ps
    for frame in frames:
        rig.deliver(1, start, frame.port, frame.data)
        start += int(pace * _bound(config, len(frame.data)) * config.clock_ps)
    if not _stepped(rig, lambda: len(rig.watches[1]) >= len(frames)):
        return None
    for connection in connections:
        check_bytes(connection, ends=(1,))
    # Packets are placed nearly in the order of arrival: near enough for a mean.
    times = sorted(watch.time_ps for watch in rig.watches[1])
    sizes = [len(frame.data) for frame in frames]
    sent = [(frame.time_last_bit_ps, len(frame.data)) for frame in frames]
    return _interval(config, sent), _interval(config, list(zip(times, sizes, strict=True)))


def check_bytes(connection: Connection, ends: Sequence[int] = (0, 1)) -> None:
    """Compare what the ends received with what the others sent.

    Raises
    ------
    InfrastructureError
        A byte is wrong.
    """
    for end in ends:
        sink, source = connection.sinks[end], connection.sources[1 - end]
        wrong = int(np.count_nonzero(sink.data != source.data))
        if wrong:
            raise InfrastructureError(f"{sink.length} bytes must arrive unchanged, {wrong} are wrong")


def _not_taken(counters: Counters) -> int:
    """Return how many frames were dropped, came twice or were sent again."""
    return sum(
        value
        for port in counters.ports
        for name, value in port.items()
        if not name.startswith(TAKEN) or name == "tx_retransmissions"
    )


def _posted(rig: Rig, lengths: Sequence[int], srv6: bool) -> list[Connection]:
    """Post one-packet messages at NIC 0, whose ports are closed; return the connections."""
    config = rig.config
    pairs = min(config.qps, -(-len(lengths) // min(config.send_queue_depth, config.mpr_psns)))
    slots = -(-len(lengths) // pairs)
    mtu = next(size for size in (256, 512, 1024, 2048, 4096) if size >= max(lengths))
    connections = [
        rig.connect(mtu=mtu, buffer_bytes=slots * SLOT_BYTES, srv6=srv6, seed=number)
        for number in range(pairs)
    ]
    rig.contexts[0].set_ports([])
    for connection in connections:
        connection.sources[0].data[:] = 0
    for number, length in enumerate(lengths):
        connection, slot = connections[number % pairs], number // pairs
        at = slot * SLOT_BYTES
        connection.sources[0].data[at : at + length] = np.arange(number, number + length) % 255 + 1
        connection.post(0, number, at, length)
    rig.align()
    return connections


def _stepped(rig: Rig, reached: Callable[[], bool]) -> bool:
    """Run until something is reached; return whether it is."""
    for _ in range(STEP_LIMIT):
        rig.step()
        if reached():
            return True
    return False


def _bound(config: NicConfig, size: int) -> int:
    return max(-(-size // config.data_bytes), config.packet_interval)


def _interval(config: NicConfig, events: Sequence[tuple[int, int]]) -> Interval:
    inner, duration = saturated(events)
    return Interval(
        cycles=duration / config.clock_ps / len(inner),
        bound=sum(_bound(config, size) for _, size in inner) / len(inner),
        packets=len(inner),
    )
