"""The fabric between the NICs: an event simulation at packet granularity.

Timing rules
------------
1. A frame of n bytes (without FCS) occupies a link for one *slot*: (n + 24) byte times at the link's rate,
   rounded up to a picosecond. The 24 bytes are preamble, FCS and gap. Its first bit enters the link when the
   slot begins, its last bit when the slot ends, and the next slot may begin at that instant.
2. A bit that enters a link at t leaves it at t + delay.
3. A switch stores and forwards: at (arrival of the last bit + switch latency) the frame is looked up and put
   into the output port. An idle port begins its slot at that very instant.
4. A port has two queues, control and data by the DSCP of the outermost header. When a slot ends, the oldest
   control frame goes next, else the oldest data frame. A queue holds whole waiting frames; a frame that would
   take it beyond its size in bytes is dropped and counted. The frame in its slot no longer waits.
5. At one instant, ports whose slot ends come before frames that arrive; among either, the lower direction
   number comes first, then the lower sequence number of that direction.
6. NICs hand in a frame with the time of its last bit and receive a frame with the time of its first bit.

So the reaction of the fabric to a frame is never earlier than its last bit plus the delay of the NIC's
link: as long as windows are no longer than ``lookahead_ps``, the result does not depend on the windows.

Source: profile.md 1 and 6; design.md 5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

from mrc_host.fabric.counters import DirectionCounters, FabricTotals, QueueSamples
from mrc_host.fabric.events import NEVER, EventHeap
from mrc_host.fabric.switch import DropReason, Packet, build_tables, parse
from mrc_host.fabric.taps import Tap, TapChains
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import UsidPlan
from mrc_rtl.wire import GAP_PREAMBLE_FCS_BYTES

__all__ = ["Arrival", "Fabric"]

DELAYED = 1 << 48
"""First sequence number of frames a tap delayed on a NIC's link: behind all others of that instant."""

SLOT_END = b""
"""Item of the event at the end of a slot."""


class Arrival(NamedTuple):
    """A frame that reaches a NIC.

    Parameters
    ----------
    time_first_bit_ps : int
        When its first bit reaches the NIC. The last one follows after the slot of the frame; where taps add
        delays, frames may overlap and the receiver takes them one after the other.
    nic : int
        Host number.
    port : int
        Plane.
    frame : bytes
        The frame without FCS.
    sequence : int
        Counts the frames of this direction in the order they were sent; breaks ties.
    """

    time_first_bit_ps: int
    nic: int
    port: int
    frame: bytes
    sequence: int


class Fabric:
    """All switches and links of a topology.

    Parameters
    ----------
    topology : Topology
        What to simulate.
    seed : int
        Seed of the run; only ECMP hashes depend on it.
    sample_interval_ps : int, optional
        Interval of the queue samples in picoseconds; none are taken when left out.

    Attributes
    ----------
    now_ps : int
        Time up to which the fabric has been advanced.
    samples : QueueSamples
        Queue depths over time.

    Raises
    ------
    ValueError
        When the sampling interval is not positive.
    """

    def __init__(self, topology: Topology, seed: int = 0, sample_interval_ps: int | None = None) -> None:
        if sample_interval_ps is not None and sample_interval_ps < 1:
            raise ValueError(f"sample_interval_ps must be at least 1, got {sample_interval_ps}")
        self.topology = topology
        self.now_ps = 0
        self.samples = QueueSamples()
        self._sample_interval_ps = sample_interval_ps or 0
        self._next_sample_ps = sample_interval_ps or NEVER
        self._latency_ps = topology.switch_latency_ps
        self._queue_bytes = topology.queue_bytes
        self._control_queue_bytes = topology.control_queue_bytes
        by_switch = build_tables(topology, seed)
        # The table a frame meets at the end of each direction; never used for an end at a host.
        self._tables = [by_switch[half.target_switch] for half in topology.directions]
        count = len(topology.directions)
        self._count = count
        self._nic_ports = topology.hosts * topology.planes

        # Constant tables by direction.
        self._byte_numerator = [half.byte_ps.numerator for half in topology.directions]
        self._byte_denominator = [half.byte_ps.denominator for half in topology.directions]
        self._delay_ps = [half.delay_ps for half in topology.directions]
        self._to_nic = [half.target_switch < 0 for half in topology.directions]
        self._macs = UsidPlan(topology).mac_headers()

        # State by direction.
        self._data: list[deque[Packet]] = [deque() for _ in range(count)]
        self._control: list[deque[Packet]] = [deque() for _ in range(count)]
        self._data_bytes = [0] * count
        self._control_bytes = [0] * count
        self._busy_until = [0] * count
        self._waiting = [False] * count  # an event at busy_until is in the heap
        self._sequence = [0] * count
        self._last_bit = [0] * count
        self._taps = TapChains(topology.directions)
        self._tap_chains = self._taps.chains

        # Counters by direction.
        self._frames = [0] * count
        self._bytes = [0] * count
        self._drops = [[0] * count for _ in DropReason]
        self._peak = [0] * count
        self._high_water = [0] * count
        self._in_use: list[int] = []  # directions with a peak above 0 since the last sample
        self._overlaps = [0] * count
        self._delayed = 0
        self._entered = 0
        self._added = 0
        self._delivered = 0

        # Ports of events: a direction whose slot ends, or count + direction for a frame that arrives.
        # A NIC's frame arrives as bytes, because it has not been looked at; others as packets.
        self._events: EventHeap[Packet | bytes] = EventHeap()
        self._outbox: list[tuple[int, int, int, bytes]] = []

    # -- for NICs ----------------------------------------------------------------------------------------

    @property
    def lookahead_ps(self) -> int:
        """Longest safe window in picoseconds: the shortest delay of a host link."""
        return self.topology.lookahead_ps

    def transmit(self, port: int, time_of_last_bit_ps: int, frame: bytes) -> None:
        """Take a frame from a NIC.

        Parameters
        ----------
        port : int
            NIC port, host · planes + plane (``Topology.nic_port``).
        time_of_last_bit_ps : int
            When the frame's slot ends at the NIC. Frames of one port come in order of time; calls for
            different ports may come in any order.
        frame : bytes
            The frame from Ethernet on, without FCS.

        Raises
        ------
        ValueError
            For a port that does not exist, a time before that of the port's previous frame, or one so early
            that the fabric has already passed the frame's arrival.
        """
        if not 0 <= port < self._nic_ports:
            raise ValueError(f"port must be between 0 and {self._nic_ports - 1}, got {port}")
        arrival = time_of_last_bit_ps + self._delay_ps[port]
        if time_of_last_bit_ps < self._last_bit[port]:
            raise ValueError(
                f"time_of_last_bit_ps of port {port} must be at least that of its previous frame, "
                f"{self._last_bit[port]}, got {time_of_last_bit_ps}"
            )
        if arrival < self.now_ps:
            raise ValueError(
                f"time_of_last_bit_ps of port {port} must be at least {self.now_ps - self._delay_ps[port]} "
                f"(the fabric stands at {self.now_ps}), got {time_of_last_bit_ps}"
            )
        slot = self._slot_ps(port, len(frame))
        if time_of_last_bit_ps - slot < self._last_bit[port] and self._sequence[port]:
            self._overlaps[port] += 1
        self._last_bit[port] = time_of_last_bit_ps
        self._sequence[port] += 1
        self._entered += 1
        place = arrival + self._latency_ps
        self._events.push(place, self._count + port, self._sequence[port], bytes(frame))

    def advance(self, until_ps: int) -> list[Arrival]:
        """Simulate all events before a time.

        Parameters
        ----------
        until_ps : int
            End of the window, not contained; at least ``now_ps``.

        Returns
        -------
        list of Arrival
            Frames whose first bit reaches a NIC in [now_ps, until_ps), by time, NIC, port, sequence.

        Raises
        ------
        ValueError
            When the time lies before ``now_ps``.
        """
        if until_ps < self.now_ps:
            raise ValueError(f"until_ps must be at least {self.now_ps}, got {until_ps}")
        heap = self._events.entries
        count = self._count
        tables = self._tables
        busy_until = self._busy_until
        begin = self._begin
        while heap and heap[0][0] < until_ps:
            time, port, _, item = heappop(heap)
            if time >= self._next_sample_ps:
                self._sample(time)
            if port < count:
                self._next_slot(time, port)
                continue
            came_by = port - count
            table = tables[came_by]
            for packet in self._enter(time, came_by, item) if isinstance(item, bytes) else (item,):
                output = table.forward(packet)
                if output < 0:
                    self._drops[-1 - output][came_by] += 1
                elif busy_until[output] > time:  # a slot that ends now has ended already
                    self._wait(output, packet)
                else:
                    begin(time, output, packet)
        if until_ps > self._next_sample_ps:
            self._sample(until_ps - 1)
        self.now_ps = until_ps
        return self._take_arrivals(until_ps)

    def next_arrival_bound_ps(self) -> int:
        """Return a time before which no frame reaches a NIC unless a NIC sends one first.

        :data:`~mrc_host.fabric.events.NEVER` when the fabric is empty.
        """
        outbox = self._outbox[0][0] if self._outbox else NEVER
        return min(outbox, self._events.next_time_ps() + self.lookahead_ps, NEVER)

    # -- taps --------------------------------------------------------------------------------------------

    def tap(self, name: str, tap: Tap) -> Callable[[], None]:
        """Attach a capture or a fault to links; taps of one direction act in the order they came.

        Parameters
        ----------
        name : str
            Name of a direction, ``h0.p0>p0.t0.1.d1``, of a link for both its directions, or a pattern.
        tap : Tap
            What to call.

        Returns
        -------
        callable
            Removes the tap again.

        Raises
        ------
        ValueError
            When no link is named so.
        """
        return self._taps.attach(self.topology.directions_named(name), tap)

    # -- events ------------------------------------------------------------------------------------------

    def _slot_ps(self, direction: int, size: int) -> int:
        return -(
            -(size + GAP_PREAMBLE_FCS_BYTES)
            * self._byte_numerator[direction]
            // self._byte_denominator[direction]
        )

    def _enter(self, time: int, direction: int, frame: bytes) -> list[Packet]:
        """Take a NIC's frame into the T0: taps, then the checks of the first switch."""
        self._frames[direction] += 1
        self._bytes[direction] += len(frame)
        frames = [(0, frame)]
        if self._tap_chains[direction]:
            start = time - self._latency_ps - self._delay_ps[direction]
            frames = self._tapped(direction, start - self._slot_ps(direction, len(frame)), frame)
        packets = []
        for delay, data in frames:
            packet = parse(data)
            if packet is None:
                self._drops[DropReason.NOT_IPV6][direction] += 1
            elif data[:6] != self._macs[direction][:6]:
                self._drops[DropReason.WRONG_MAC][direction] += 1
            elif delay:
                # A sequence of its own: that of transmit() depends on what the NIC has handed in by now.
                self._delayed += 1
                self._events.push(time + delay, self._count + direction, DELAYED + self._delayed, packet)
            else:
                packets.append(packet)
        return packets

    def _wait(self, output: int, packet: Packet) -> None:
        """Put a frame into its queue, unless that is full."""
        size = packet.size
        if packet.control:
            if self._control_bytes[output] + size > self._control_queue_bytes:
                self._drops[DropReason.CONTROL_QUEUE_FULL][output] += 1
                return
            self._control_bytes[output] += size
            self._control[output].append(packet)
        else:
            if self._data_bytes[output] + size > self._queue_bytes:
                self._drops[DropReason.QUEUE_FULL][output] += 1
                return
            self._data_bytes[output] += size
            self._data[output].append(packet)
        depth = self._data_bytes[output] + self._control_bytes[output]
        if depth > self._peak[output]:
            if self._peak[output] == 0:
                self._in_use.append(output)
            self._peak[output] = depth
        if not self._waiting[output]:
            self._waiting[output] = True
            heappush(self._events.entries, (self._busy_until[output], output, 0, SLOT_END))

    def _next_slot(self, time: int, output: int) -> None:
        """A slot has ended while frames wait: send the next one, control first."""
        if self._control[output]:
            packet = self._control[output].popleft()
            self._control_bytes[output] -= packet.size
        else:
            packet = self._data[output].popleft()
            self._data_bytes[output] -= packet.size
        self._begin(time, output, packet)
        if self._control[output] or self._data[output]:
            heappush(self._events.entries, (self._busy_until[output], output, 0, SLOT_END))
        else:
            self._waiting[output] = False

    def _begin(self, time: int, output: int, packet: Packet) -> None:
        """Begin the slot of a frame on an output link."""
        size = packet.size
        slot = self._slot_ps(output, size)
        self._busy_until[output] = time + slot
        self._frames[output] += 1
        self._bytes[output] += size
        if self._tap_chains[output]:
            self._begin_tapped(time, output, slot, packet)
            return
        self._sequence[output] += 1
        if self._to_nic[output]:
            frame = packet.to_bytes(self._macs[output])
            heappush(self._outbox, (time + self._delay_ps[output], output, self._sequence[output], frame))
        else:
            place = time + slot + self._delay_ps[output] + self._latency_ps
            heappush(self._events.entries, (place, self._count + output, self._sequence[output], packet))

    def _tapped(self, direction: int, start_ps: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Return what the taps of a direction make of a frame, and count what they add and remove."""
        frames = self._taps.run(direction, start_ps, frame)
        if frames:
            self._added += len(frames) - 1
        else:
            self._drops[DropReason.FAULT][direction] += 1
        return frames

    def _begin_tapped(self, time: int, output: int, slot: int, packet: Packet) -> None:
        """Like the end of :meth:`_begin`, with whatever the taps make of the frame."""
        arrival = time + self._delay_ps[output]
        for delay, data in self._tapped(output, time, packet.to_bytes(self._macs[output])):
            self._sequence[output] += 1
            sequence = self._sequence[output]
            if self._to_nic[output]:
                heappush(self._outbox, (arrival + delay, output, sequence, data))
                continue
            changed = parse(data)
            if changed is None:
                self._drops[DropReason.NOT_IPV6][output] += 1
                continue
            place = arrival + slot + delay + self._latency_ps
            self._events.push(place, self._count + output, sequence, changed)

    def _take_arrivals(self, until_ps: int) -> list[Arrival]:
        """Empty the outbox up to a time."""
        outbox = self._outbox
        planes = self.topology.planes
        arrivals = []
        while outbox and outbox[0][0] < until_ps:
            time, direction, sequence, frame = heappop(outbox)
            nic, port = divmod(direction - self._nic_ports, planes)
            arrivals.append(Arrival(time, nic, port, frame, sequence))
        self._delivered += len(arrivals)
        return arrivals

    def _sample(self, time: int) -> None:
        """Take the samples that are due at or before a time, none of whose events have happened yet."""
        while self._next_sample_ps <= time:
            still = []
            for output in self._in_use:
                depth = self._data_bytes[output] + self._control_bytes[output]
                peak = self._peak[output]
                self._high_water[output] = max(self._high_water[output], peak)
                self.samples.append(self._next_sample_ps, output, depth, peak)
                self._peak[output] = depth
                if depth:
                    still.append(output)
            self._in_use = still
            if still:
                self._next_sample_ps += self._sample_interval_ps
            else:  # nothing to tell until the first sampling time after this event
                skipped = (time - self._next_sample_ps) // self._sample_interval_ps + 1
                self._next_sample_ps += skipped * self._sample_interval_ps

    # -- counters ----------------------------------------------------------------------------------------

    def counters(self) -> list[DirectionCounters]:
        """Return the counters of every direction, by number, as of ``now_ps``."""
        return [
            DirectionCounters(
                half.name,
                self._frames[half.number],
                self._bytes[half.number],
                {reason: table[half.number] for reason, table in self._by_reason() if table[half.number]},
                max(self._high_water[half.number], self._peak[half.number]),
                self._overlaps[half.number],
            )
            for half in self.topology.directions
        ]

    def totals(self) -> FabricTotals:
        """Return where every frame went, as of ``now_ps``."""
        moving = sum(1 for entry in self._events.entries if entry[1] >= self._count) + len(self._outbox)
        queued = sum(len(queue) for queues in (self._data, self._control) for queue in queues)
        drops = {reason: sum(table) for reason, table in self._by_reason() if any(table)}
        return FabricTotals(self._entered, self._added, self._delivered, drops, moving + queued)

    def _by_reason(self) -> list[tuple[DropReason, list[int]]]:
        return list(zip(DropReason, self._drops, strict=True))
