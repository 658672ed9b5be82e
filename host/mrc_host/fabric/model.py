"""The fabric between the NICs: an event simulation at packet granularity.

Timing rules
------------
1. A frame of n bytes (without FCS) occupies a link for one *slot*: (n + 24) byte times at the link's rate,
   rounded up to a picosecond. The 24 bytes are preamble, FCS and gap. Its first bit enters the link when the
   slot begins, its last bit when the slot ends, and the next slot may begin at that instant.
2. A bit that enters a link at t leaves it at t + delay.
3. A switch stores and forwards: at (arrival of the last bit + switch latency) the frame is put into the
   output port. An idle port begins its slot at that very instant.
4. A port has three queues; see :mod:`mrc_host.fabric.port`. The frame in its slot no longer waits.
5. At one instant, ports whose slot ends come before frames that arrive; among either, the lower direction
   number comes first, then the lower sequence number of that direction.
6. NICs hand in a frame with the time of its last bit and receive a frame with the time of its first bit.
7. A frame keeps the way through the switches that their tables gave it when it entered.

So the reaction of the fabric to a frame is never earlier than its last bit plus the delay of the NIC's
link: as long as windows are no longer than ``lookahead_ps``, the result does not depend on the windows.

Source: profile.md 1 and 6; design.md 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from mypy_extensions import i64, mypyc_attr

from mrc_host.fabric.counters import DirectionCounters, FabricTotals, QueueCounters, QueueSamples
from mrc_host.fabric.events import NEVER
from mrc_host.fabric.heap import ARRIVAL, FLUSH, LATE_ARRIVAL, SLOT_END, Event, EventHeap
from mrc_host.fabric.packet import FRESH, DropReason, Packet, QueueClass
from mrc_host.fabric.port import SEQUENCE_BITS, Port
from mrc_host.fabric.routes import RouteFinder
from mrc_host.fabric.taps import Hook, Tap, TapHook, attach
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import UsidPlan

__all__ = ["Arrival", "Fabric", "NicObserver"]

DELAYED: Final = 1 << SEQUENCE_BITS - 1
"""First sequence number of frames a hook delayed on a NIC's link: behind all others of that instant."""


class Arrival(NamedTuple):
    """A frame that reaches a NIC.

    Parameters
    ----------
    time_first_bit_ps : int
        When its first bit reaches the NIC. The last one follows after the slot of the frame; where hooks add
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


@mypyc_attr(allow_interpreted_subclasses=True)
class NicObserver:
    """Sees every packet at the NICs; the base class ignores it.

    Calls for one port and one kind come in order of time; it must not change packets.
    """

    def sent(self, port: Port, start_ps: i64, packet: Packet) -> None:
        """A packet whose first bit enters the NIC's link at a time, before faults on that link act."""

    def delivered(self, port: Port, first_bit_ps: i64, packet: Packet) -> None:
        """A packet whose first bit reaches the NIC at a time, after all faults."""


class Fabric:
    """All switches and links of a topology.

    Parameters
    ----------
    topology : Topology
        What to simulate.
    seed : int
        Seed of the run; ECMP hashes and ECN marks depend on it.
    sample_interval_ps : int, optional
        Interval of the queue samples in picoseconds; none are taken when left out.

    Attributes
    ----------
    now_ps : int
        Time up to which the fabric has been advanced.
    ports : list of Port
        All directions of links with the queues in front of them, by number.
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
        self.now_ps: i64 = 0
        self.samples = QueueSamples()
        self._sample_interval_ps: i64 = sample_interval_ps or 0
        self._next_sample_ps: i64 = sample_interval_ps or NEVER
        self._nic_ports: i64 = topology.hosts * topology.planes
        self._lookahead_ps: i64 = topology.lookahead_ps
        self._heap: EventHeap = EventHeap()
        self._in_use: list[Port] = []  # ports with a peak above 0 since the last sample
        macs = UsidPlan(topology).mac_headers()
        self.ports = [
            Port(topology, half, macs[half.number], seed, self._heap, self._in_use)
            for half in topology.directions
        ]
        self._to_nics = [port for port in self.ports if port.to_nic]
        self._routes = RouteFinder(topology, seed, self.ports)
        self._observers: list[NicObserver] = []
        self._delayed: i64 = 0
        self._entered: i64 = 0
        self._delivered: i64 = 0

    # -- for NICs ----------------------------------------------------------------------------------------

    @property
    def lookahead_ps(self) -> int:
        """Longest safe window in picoseconds: the shortest delay of a host link."""
        return self._lookahead_ps

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
        self.transmit_packet(port, time_of_last_bit_ps, Packet.of_frame(bytes(frame)))

    def transmit_packet(self, port: i64, time_of_last_bit_ps: i64, packet: Packet) -> None:
        """Take a packet from a NIC that has it as an object: see :meth:`transmit`.

        Raises
        ------
        ValueError
            As :meth:`transmit`.
        """
        if not 0 <= port < self._nic_ports:
            raise ValueError(f"port must be between 0 and {self._nic_ports - 1}, got {port}")
        came_by = self.ports[port]
        if time_of_last_bit_ps < came_by.last_bit:
            raise ValueError(
                f"time_of_last_bit_ps of port {port} must be at least that of its previous frame, "
                f"{came_by.last_bit}, got {time_of_last_bit_ps}"
            )
        if time_of_last_bit_ps + came_by.delay_ps < self.now_ps:
            raise ValueError(
                f"time_of_last_bit_ps of port {port} must be at least {self.now_ps - came_by.delay_ps} "
                f"(the fabric stands at {self.now_ps}), got {time_of_last_bit_ps}"
            )
        start: i64 = time_of_last_bit_ps - -(
            -packet.wire_bytes * came_by.byte_numerator // came_by.byte_denominator
        )
        if start < came_by.last_bit and came_by.sequence:
            came_by.overlaps += 1
        came_by.last_bit = time_of_last_bit_ps
        came_by.sequence += 1
        queue = came_by.queues[packet.queue]
        queue.sent += 1
        queue.sent_bytes += packet.size
        self._entered += 1
        for observer in self._observers:
            observer.sent(came_by, start, packet)
        if came_by.hooks:  # they act in the order of the simulation
            packet.hop = FRESH
        elif not self._check_in(packet, came_by, time_of_last_bit_ps):
            return
        packet.time_ps = time_of_last_bit_ps + came_by.hold_ps
        packet.sequence = came_by.sequence
        came_by.travel(packet)

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
        arrivals = []
        for packet in self.advance_packets(until_ps):
            by = packet.came_by
            assert by is not None
            arrivals.append(
                Arrival(packet.time_ps, by.host, by.plane, packet.to_bytes(by.macs), packet.sequence)
            )
        arrivals.sort(key=_arrival_order)
        return arrivals

    def advance_packets(self, until_ps: int) -> list[Packet]:
        """As :meth:`advance`, without making bytes, and port by port: ``time_ps`` and ``came_by`` of a packet
        tell when it reaches which NIC, and :meth:`~mrc_host.fabric.packet.Packet.frame` makes its bytes.

        Raises
        ------
        ValueError
            When the time lies before ``now_ps``.
        """
        if until_ps < self.now_ps:
            raise ValueError(f"until_ps must be at least {self.now_ps}, got {until_ps}")
        while self._next_sample_ps < until_ps:
            self._run(self._next_sample_ps)
            heap = self._heap
            self._sample(min(heap.first().time if heap.count else NEVER, until_ps - 1))
        self._run(until_ps)
        self.now_ps = until_ps
        return self._take_arrivals(until_ps)

    def _run(self, until: i64) -> None:
        """Carry out all events before a time. This is where the time of a simulation goes."""
        heap = self._heap
        while heap.count:
            event = heap.first()
            time: i64 = event.time
            if time >= until:
                return
            port = event.port
            kind: i64 = event.kind
            if kind == ARRIVAL:
                packet = port.link.take()
                # The packet behind it takes over the event, before anything else enters the heap.
                behind = port.link.first
                if behind is None:
                    heap.pop()
                else:
                    event.time = behind.time_ps
                    event.order = port.arrival_order + behind.sequence
                    heap.sink()
                output = packet.outputs[packet.hop]
                if output is None:
                    self._arrive_without_way(time, packet, port)
                    continue
                packet.hop += 1
                if output.special:
                    output.take(time, packet)
                elif output.busy_until > time:  # a slot that ends now has ended already
                    output.wait(packet)
                else:
                    output.begin(time, packet)
            elif kind == SLOT_END:
                port.next_slot(time)
                if port.waiting:
                    event.time = port.busy_until
                    heap.sink()
                else:
                    heap.pop()
            elif kind == LATE_ARRIVAL:
                heap.pop()
                assert event.packet is not None
                self._arrive(time, event.packet, port)
            else:
                heap.pop()
                port.flush()

    def next_arrival_bound_ps(self) -> int:
        """Return a time before which no frame reaches a NIC unless a NIC sends one first.

        :data:`~mrc_host.fabric.events.NEVER` when the fabric is empty.
        """
        bound: i64 = self._heap.first().time + self._lookahead_ps if self._heap.count else NEVER
        for port in self._to_nics:
            packet = port.link.first
            if packet is not None and packet.time_ps < bound:
                bound = packet.time_ps
        return bound

    # -- hooks -------------------------------------------------------------------------------------------

    def tap(self, name: str, tap: Tap) -> Callable[[], None]:
        """Attach a capture or a fault to links; those of one direction act in the order they came.

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
        halves = self.topology.directions_named(name)
        return attach([self.ports[half.number] for half in halves], TapHook(tap))

    def hook(self, directions: list[int], hook: Hook) -> Callable[[], None]:
        """Attach a hook to directions by number; returns the function that removes it again."""
        return attach([self.ports[number] for number in directions], hook)

    def observe(self, observer: NicObserver) -> None:
        """Show every packet at the NICs to an observer."""
        self._observers.append(observer)

    def flush_at(self, time_ps: int, directions: list[int]) -> None:
        """Empty the queues of some ports at a time, before anything else of that time happens.

        Raises
        ------
        ValueError
            When that time has passed.
        """
        if time_ps < self.now_ps:
            raise ValueError(f"time_ps must be at least {self.now_ps}, got {time_ps}")
        for number in directions:
            # Orders below 0 come first.
            self._heap.push(Event(FLUSH, self.ports[number], time_ps, number - len(self.ports)))

    def learn(self, time_ps: int, direction: int, up: bool) -> None:
        """Let the switches know from a time on that a direction between them is down, or up again.

        Plain packets that enter the fabric then are hashed over those that are up.

        Raises
        ------
        ValueError
            When that time has passed.
        """
        if time_ps < self.now_ps:
            raise ValueError(f"time_ps must be at least {self.now_ps}, got {time_ps}")
        self._routes.learn(time_ps, direction, up)

    # -- events ------------------------------------------------------------------------------------------

    def _check_in(self, packet: Packet, came_by: Port, time: i64) -> bool:
        """Check what reaches the switch at the end of a direction and give it its way, or count the drop."""
        if not packet.key:
            came_by.drops[DropReason.NOT_IPV6] += 1
            return False
        if packet.as_bytes and came_by.half.source_switch < 0 and packet.original[:6] != came_by.macs[:6]:
            came_by.drops[DropReason.WRONG_MAC] += 1
            return False
        self._routes.enter(packet, came_by, time)
        return True

    def _arrive_without_way(self, time: i64, packet: Packet, came_by: Port) -> None:
        """Handle a packet that has reached a switch and has no way from there, or none yet."""
        if packet.route is not None and packet.hop != FRESH:
            came_by.drops[packet.route.drop] += 1
            return
        packets = [(0, packet)]
        if packet.hop == FRESH:
            packet.hop = 0
            slot = -(-packet.wire_bytes * came_by.byte_numerator // came_by.byte_denominator)
            packets = came_by.act(time - came_by.hold_ps - slot, packet)
        for delay, item in packets:
            if not self._check_in(item, came_by, time):
                continue
            if not delay:
                self._forward(time, item, came_by)
                continue
            # A sequence of its own: that of transmit() depends on what the NIC has handed in by now.
            self._delayed += 1
            came_by.travel_late(time + delay, came_by.arrival_order + DELAYED + self._delayed, item)

    def _arrive(self, time: i64, packet: Packet, came_by: Port) -> None:
        """A packet has reached the switch at the end of a direction, delayed on the way."""
        if packet.outputs[packet.hop] is None:
            self._arrive_without_way(time, packet, came_by)
        else:
            self._forward(time, packet, came_by)

    def _forward(self, time: i64, packet: Packet, came_by: Port) -> None:
        """Hand a packet to its output port."""
        output = packet.outputs[packet.hop]
        if output is None:
            assert packet.route is not None
            came_by.drops[packet.route.drop] += 1
            return
        packet.hop += 1
        output.take(time, packet)

    def _take_arrivals(self, until_ps: i64) -> list[Packet]:
        """Take what reaches NICs before a time off their links."""
        arrivals: list[Packet] = []
        for port in self._to_nics:
            link = port.link
            packet = link.first
            while packet is not None and packet.time_ps < until_ps:
                arrivals.append(link.take())
                for observer in self._observers:
                    observer.delivered(port, packet.time_ps, packet)
                packet = link.first
        self._delivered += len(arrivals)
        return arrivals

    def _sample(self, time: int) -> None:
        """Take the samples that are due at or before a time, none of whose events have happened yet."""
        while self._next_sample_ps <= time:
            still = []
            for port in sorted(self._in_use, key=lambda port: port.number):
                depth = port.waiting_bytes
                port.peak_ever = max(port.peak_ever, port.peak)
                self.samples.append(self._next_sample_ps, port.number, depth, port.peak)
                port.peak = depth
                if depth:
                    still.append(port)
            self._in_use[:] = still
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
                port.half.name,
                sum(queue.sent for queue in port.queues),
                sum(queue.sent_bytes for queue in port.queues),
                {reason: port.drops[reason] for reason in DropReason if port.drops[reason]},
                max(port.peak_ever, port.peak),
                port.overlaps,
                {
                    name: QueueCounters(queue.sent, queue.sent_bytes, queue.high_water)
                    for name, queue in zip(QueueClass, port.queues, strict=True)
                    if queue.sent or queue.high_water
                },
                port.marked,
                port.trimmed,
            )
            for port in self.ports
        ]

    def totals(self) -> FabricTotals:
        """Return where every frame went, as of ``now_ps``."""
        moving = sum(port.link.count for port in self.ports)
        moving += sum(event.kind == LATE_ARRIVAL for event in self._heap.events())
        queued = sum(queue.packets.count for port in self.ports for queue in port.queues)
        drops = {reason: sum(port.drops[reason] for port in self.ports) for reason in DropReason}
        return FabricTotals(
            self._entered,
            sum(port.added for port in self.ports),
            self._delivered,
            {reason: count for reason, count in drops.items() if count},
            moving + queued,
            sum(port.marked for port in self.ports),
            sum(port.trimmed for port in self.ports),
        )


def _arrival_order(arrival: Arrival) -> tuple[int, int, int, int]:
    return arrival.time_first_bit_ps, arrival.nic, arrival.port, arrival.sequence
