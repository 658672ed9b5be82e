"""One direction of a link and the switch port that feeds it: queues, priorities, marking, trimming.

Rules
-----
1. Three queues (profile.md 6). When a slot ends, control goes first, then retransmissions, then data.
2. While other queues wait, control has at most its share of the link (a quarter by default): what it sends is
   paid from a credit that what the others send fills up again. A credit of :data:`CONTROL_BURST_BYTES` lets
   short bursts through at once; it is full whenever nothing else waits.
3. A frame that would take its queue beyond its size is dropped. A trimmable one that would take its queue
   beyond the trimming threshold is cut, marked by its DSCP and put into the control queue instead.
4. ECN: when the slot of a retransmission or data frame begins, it is marked with a probability that rises
   linearly from 0 at the lower to 1 at the upper threshold of the bytes in its queue, itself included. A
   frame that did not wait is not marked.

Everything is an integer, and everything hot is an attribute of one object per direction.

Source: profile.md 6; protocol.md 4.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from mrc_host.fabric.events import NEVER, component_key, random_bits
from mrc_host.fabric.heap import ARRIVAL, LATE_ARRIVAL, SLOT_END, Event, EventHeap, PacketList
from mrc_host.fabric.links import Direction
from mrc_host.fabric.packet import (
    MARKABLE_CLASSES,
    TRIMMABLE_CLASSES,
    DropReason,
    Packet,
    QueueClass,
)
from mrc_rtl.wire import Dscp

if TYPE_CHECKING:
    from mrc_host.fabric.routes import Route
    from mrc_host.fabric.taps import Hook
    from mrc_host.fabric.topology import Topology

__all__ = ["CONTROL_BURST_BYTES", "SEQUENCE_BITS", "Port", "Queue", "Storm"]

SEQUENCE_BITS = 44
"""Bits of the sequence number below the port number in the order of an event."""
CONTROL_BURST_BYTES = 4096
"""Bytes of control that may go ahead of waiting data before its share is enforced."""

CONTROL: Final = 0
RETRANSMISSION: Final = 1
DATA: Final = 2
assert (CONTROL, RETRANSMISSION, DATA) == tuple(QueueClass)
TRIMMED_FULL: Final = int(DropReason.TRIMMED_QUEUE_FULL)
FAULT: Final = int(DropReason.FAULT)
FULL: Final = (
    int(DropReason.CONTROL_QUEUE_FULL),
    int(DropReason.RETRANSMISSION_QUEUE_FULL),
    int(DropReason.QUEUE_FULL),
)


@mypyc_attr(allow_interpreted_subclasses=True)
class Storm(ABC):
    """Something that acts on packets as they arrive at an output port, before they are queued."""

    __slots__ = ()

    @abstractmethod
    def arrive(self, port: Port, time_ps: int, packet: Packet) -> None:
        """Change a packet that arrives at a time."""


class Queue:
    """One queue of a port.

    Parameters
    ----------
    limit : int
        Bytes it holds.

    Attributes
    ----------
    depth, high_water : int
        Bytes that wait, and the most that ever did.
    sent, sent_bytes : int
        Frames of its class that the port sent, whether or not they waited.
    """

    __slots__ = ("depth", "high_water", "limit", "packets", "sent", "sent_bytes")

    def __init__(self, limit: int) -> None:
        self.packets: PacketList = PacketList()
        self.limit: i64 = limit
        self.depth: i64 = 0
        self.high_water: i64 = 0
        self.sent: i64 = 0
        self.sent_bytes: i64 = 0


class Port:
    """One direction of a link with the queues in front of it.

    Parameters
    ----------
    topology : Topology
        The fabric.
    half : Direction
        The direction.
    macs : bytes
        MAC addresses of frames on it, destination first, 12 bytes.
    seed : int
        Seed of the run, for ECN marks.
    heap : EventHeap
        Events of the fabric; the port adds its own.
    in_use : list
        Gets the port when frames begin to wait, for the queue samples.
    """

    __slots__ = (
        "_draws",
        "_heap",
        "_key",
        "_seed",
        "added",
        "arrival",
        "arrival_order",
        "busy_until",
        "byte_denominator",
        "byte_numerator",
        "control_credit",
        "control_credit_full",
        "control_weight",
        "delay_ps",
        "drops",
        "ecn_high",
        "ecn_low",
        "end_order",
        "half",
        "hold_ps",
        "hooks",
        "host",
        "in_use",
        "last_bit",
        "link",
        "macs",
        "marked",
        "number",
        "overlaps",
        "peak",
        "peak_ever",
        "plane",
        "queues",
        "rates",
        "routes",
        "slot_end",
        "special",
        "sequence",
        "storms",
        "to_nic",
        "trim_at",
        "trim_dscp",
        "trim_lengths",
        "trim_size",
        "trimmed",
        "waiting",
    )

    def __init__(
        self,
        topology: Topology,
        half: Direction,
        macs: bytes,
        seed: int,
        heap: EventHeap,
        in_use: list[Port],
    ) -> None:
        self.half: Direction = half
        self.number: i64 = half.number
        self.host: i64 = half.host
        self.plane: i64 = half.plane
        self.macs: bytes = macs
        self._heap: EventHeap = heap
        self.in_use: list[Port] = in_use
        self._seed: int = seed
        self._key: int = component_key(f"ecn {half.name}")
        self._draws: int = 0
        # Constants of the link.
        self.to_nic: bool = half.target_switch < 0
        self.byte_numerator: i64 = half.byte_ps.numerator
        self.byte_denominator: i64 = half.byte_ps.denominator
        self.delay_ps: i64 = half.delay_ps
        self.hold_ps: i64 = half.delay_ps + topology.switch_latency_ps
        self.arrival_order: i64 = len(topology.directions) + half.number << SEQUENCE_BITS
        # What happens next.
        self.arrival: Event = Event(ARRIVAL, self)
        self.slot_end: Event = Event(SLOT_END, self, 0, half.number << SEQUENCE_BITS)
        self.link: PacketList = PacketList()
        # Constants of the queues.
        spec = topology.spec
        share = spec.control_share_percent
        # Tokens for each byte: a byte of the others fills `share`, a byte of control takes `100 - share`.
        self.control_weight: i64 = share
        self.control_credit_full: i64 = CONTROL_BURST_BYTES * (100 - share)
        self.control_credit: i64 = self.control_credit_full
        self.ecn_low: i64 = NEVER
        self.ecn_high: i64 = NEVER
        if spec.ecn is not None and (spec.ecn.host_ports or not self.to_nic):
            self.ecn_low, self.ecn_high = topology.ecn_thresholds_bytes
        trimming = topology.trimming
        self.trim_at: i64 = topology.trim_threshold_bytes(half)
        self.trim_size: i64 = trimming.size_bytes
        self.trim_lengths: bool = trimming.correct_lengths
        self.trim_dscp: i64 = int(Dscp.TRIMMED_LASTHOP if self.to_nic else Dscp.TRIMMED)
        # State.
        self.routes: dict[bytes, Route] = {}
        self.hooks: list[Hook] = []
        self.storms: list[Storm] = []
        self.rates: list[tuple[int, int, int, int]] = []
        self.special: bool = False  # there is a hook, a storm or a rate of its own
        self.queues: tuple[Queue, Queue, Queue] = (
            Queue(topology.control_queue_bytes),
            Queue(topology.retransmission_queue_bytes),
            Queue(topology.queue_bytes),
        )
        self.busy_until: i64 = 0
        self.waiting: bool = False  # the end of the slot is in the heap
        self.sequence: i64 = 0
        self.last_bit: i64 = 0
        # Counters.
        self.drops: list[int] = [0] * len(DropReason)
        self.peak: i64 = 0
        self.peak_ever: i64 = 0
        self.marked: i64 = 0
        self.trimmed: i64 = 0
        self.overlaps: i64 = 0
        self.added: i64 = 0

    @property
    def waiting_bytes(self) -> i64:
        """Bytes in all queues."""
        control, again, data = self.queues
        return control.depth + again.depth + data.depth

    def refresh(self) -> None:
        """Note whether the port needs more than the shortest way through the event loop."""
        self.special = bool(self.hooks or self.storms or self.rates)

    def slot_ps(self, wire_bytes: i64, time: i64) -> i64:
        """Return the time that bytes on the wire take from a slot that begins at a time."""
        for begin, end, numerator, denominator in self.rates:
            if begin <= time < end:
                return -(-wire_bytes * numerator // denominator)
        return -(-wire_bytes * self.byte_numerator // self.byte_denominator)

    # -- into the queues ---------------------------------------------------------------------------------

    def take(self, time: i64, packet: Packet) -> None:
        """Take a packet that arrives, whatever the port's state."""
        for storm in self.storms:
            storm.arrive(self, time, packet)
        if self.busy_until > time:  # a slot that ends now has ended already
            self.wait(packet)
        else:
            self.begin(time, packet)

    def wait(self, packet: Packet) -> None:
        """Put a packet into its queue while the link is busy: trimmed or not at all where that is full."""
        control, again, data = self.queues
        number: i64 = packet.queue
        queue = data if number == DATA else again if number == RETRANSMISSION else control
        depth: i64 = queue.depth + packet.size
        if depth > self.trim_at and number != CONTROL and TRIMMABLE_CLASSES[packet.outer_class]:
            self.cut(packet)
            number = CONTROL
            queue = control
            depth = queue.depth + packet.size
        if depth > queue.limit:
            lost = number == CONTROL and packet.is_trimmed
            self.drops[TRIMMED_FULL if lost else FULL[number]] += 1
            return
        queue.depth = depth
        if depth > queue.high_water:
            queue.high_water = depth
        queue.packets.append(packet)
        total: i64 = control.depth + again.depth + data.depth
        if total > self.peak:
            if self.peak == 0:
                self.in_use.append(self)
            self.peak = total
        if not self.waiting:
            self.waiting = True
            self.slot_end.time = self.busy_until
            self._heap.push(self.slot_end)

    def cut(self, packet: Packet) -> None:
        """Trim a packet as this port does."""
        packet.trim(self.trim_size, self.trim_dscp, self.trim_lengths)
        self.trimmed += 1

    def flush(self) -> int:
        """Lose everything that waits, and return how many packets that were."""
        lost = 0
        for queue in self.queues:
            lost += queue.packets.count
            queue.packets.clear()
            queue.depth = 0
        self.drops[FAULT] += lost
        return lost

    # -- onto the link -----------------------------------------------------------------------------------

    def next_slot(self, time: i64) -> None:
        """A slot has ended: send the next frame that waits. ``waiting`` tells whether there are more."""
        control, again, data = self.queues
        if again.packets.count == 0 and data.packets.count == 0:
            self.control_credit = self.control_credit_full
            queue = control
            if control.packets.count == 0:  # a reboot has emptied the queues
                self.waiting = False
                return
            packet = control.packets.take()
        elif control.packets.count and self.control_credit > 0:
            queue = control
            packet = control.packets.take()
            self.control_credit -= packet.wire_bytes * (100 - self.control_weight)
        else:
            queue = again if again.packets.count else data
            packet = queue.packets.take()
            filled: i64 = self.control_credit + packet.wire_bytes * self.control_weight
            full: i64 = self.control_credit_full
            self.control_credit = filled if filled < full else full
            if queue.depth > self.ecn_low:
                self._mark(packet, queue.depth)
        queue.depth -= packet.size
        self.begin(time, packet)
        self.waiting = control.packets.count + again.packets.count + data.packets.count != 0

    def _mark(self, packet: Packet, depth: i64) -> None:
        """Mark a packet with the probability its queue's depth gives, if its sender knows ECN."""
        if not MARKABLE_CLASSES[packet.outer_class]:
            return
        if depth < self.ecn_high:
            # Integers of any size: the product does not fit a word.
            draw: int = random_bits(self._seed, self._key, self._draws)
            span = int(self.ecn_high - self.ecn_low)
            above = int(depth - self.ecn_low)
            self._draws += 1
            if draw * span >> 64 >= above:
                return
        packet.mark_ce()
        self.marked += 1

    def begin(self, time: i64, packet: Packet) -> None:
        """Begin the slot of a frame."""
        wire: i64 = packet.wire_bytes
        slot: i64
        if self.rates:
            slot = self.slot_ps(wire, time)
        else:
            slot = -(-wire * self.byte_numerator // self.byte_denominator)
        end: i64 = time + slot
        self.busy_until = end
        queue = self.queues[packet.queue]
        queue.sent += 1
        queue.sent_bytes += packet.size
        if self.hooks:
            self._begin_hooked(time, slot, packet)
            return
        self.sequence += 1
        packet.sequence = self.sequence
        if self.to_nic:
            packet.time_ps = time + self.delay_ps
            packet.came_by = self
            self.link.append(packet)
        else:
            packet.time_ps = end + self.hold_ps
            self.travel(packet)

    def travel(self, packet: Packet) -> None:
        """Put a packet onto the link to a switch, behind those that are on it."""
        link = self.link
        link.append(packet)
        if link.count == 1:
            self.arrival.time = packet.time_ps
            self.arrival.order = self.arrival_order + packet.sequence
            self._heap.push(self.arrival)

    def travel_late(self, time: i64, order: i64, packet: Packet) -> None:
        """Let a packet that was delayed on the link arrive in the switch at a time of its own."""
        event = Event(LATE_ARRIVAL, self, time, order)
        event.packet = packet
        self._heap.push(event)

    def act(self, start_ps: int, packet: Packet) -> list[tuple[int, Packet]]:
        """Let the hooks act on a frame whose slot begins at a time, and count what they add and remove."""
        packets = [(0, packet)]
        for hook in self.hooks:
            passed: list[tuple[int, Packet]] = []
            for delay, item in packets:
                result = hook.act(self, start_ps + delay, item)
                if result is None:
                    passed.append((delay, item))
                    continue
                for more, replaced in result:
                    if more < 0:
                        raise ValueError(f"delay of a tap on {self.half.name} must be at least 0, got {more}")
                    passed.append((delay + more, replaced))
            packets = passed
        if packets:
            self.added += len(packets) - 1
        else:
            self.drops[FAULT] += 1
        return packets

    def _begin_hooked(self, time: i64, slot: i64, packet: Packet) -> None:
        """Like the end of :meth:`begin`, with whatever the hooks make of the packet."""
        for delay, item in self.act(time, packet):
            self.sequence += 1
            item.sequence = self.sequence
            if self.to_nic:
                item.time_ps = time + self.delay_ps + delay
                item.came_by = self
                self.link.insert(item)
            elif delay:
                place = time + slot + self.hold_ps + delay
                self.travel_late(place, self.arrival_order + self.sequence, item)
            else:
                item.time_ps = time + slot + self.hold_ps
                self.travel(item)
