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
from collections import deque
from heapq import heappush
from typing import TYPE_CHECKING

from mrc_host.fabric.events import NEVER, component_key, random_bits
from mrc_host.fabric.links import Direction
from mrc_host.fabric.packet import (
    MARKABLE_CLASSES,
    QUEUES,
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

__all__ = ["CONTROL_BURST_BYTES", "SEQUENCE_BITS", "Event", "Port", "Storm"]

SEQUENCE_BITS = 44
"""Bits of the sequence number below the port number in the order of an event."""
CONTROL_BURST_BYTES = 4096
"""Bytes of control that may go ahead of waiting data before its share is enforced."""

CONTROL, RETRANSMISSION, DATA = (int(queue) for queue in QueueClass)
FULL = (DropReason.CONTROL_QUEUE_FULL, DropReason.RETRANSMISSION_QUEUE_FULL, DropReason.QUEUE_FULL)

Event = tuple[int, int, "Packet | None", "Port"]
"""(time in ps, order at that time, packet, port): a packet at the end of a direction, or, without a packet,
the end of a slot. The order is unique, so that packets and ports are never compared."""


class Storm(ABC):
    """Something that acts on packets as they arrive at an output port, before they are queued."""

    __slots__ = ()

    @abstractmethod
    def arrive(self, port: Port, time_ps: int, packet: Packet) -> None:
        """Change a packet that arrives at a time."""


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
    heap : list
        Events of the fabric; the port adds its own.
    outbox : list
        Takes packets for NICs.
    in_use : list
        Gets the port when frames begin to wait, for the queue samples.
    """

    __slots__ = (
        "_draws",
        "_heap",
        "_key",
        "_outbox",
        "_seed",
        "added",
        "arrival_order",
        "busy_until",
        "byte_denominator",
        "byte_numerator",
        "control_credit",
        "control_credit_full",
        "control_weight",
        "delay_ps",
        "depth",
        "drops",
        "ecn_high",
        "ecn_low",
        "end_order",
        "half",
        "high_water",
        "hold_ps",
        "hooks",
        "host",
        "in_use",
        "last_bit",
        "limits",
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
        "special",
        "sent",
        "sent_bytes",
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
        heap: list[Event],
        outbox: list[Packet],
        in_use: list[Port],
    ) -> None:
        self.half = half
        self.number = half.number
        self.host = half.host
        self.plane = half.plane
        self.macs = macs
        self._heap = heap
        self._outbox = outbox
        self.in_use = in_use
        self._seed = seed
        self._key = component_key(f"ecn {half.name}")
        self._draws = 0
        # Constants of the link.
        self.to_nic = half.target_switch < 0
        self.byte_numerator = half.byte_ps.numerator
        self.byte_denominator = half.byte_ps.denominator
        self.delay_ps = half.delay_ps
        self.hold_ps = half.delay_ps + topology.switch_latency_ps
        self.end_order = half.number << SEQUENCE_BITS
        self.arrival_order = len(topology.directions) + half.number << SEQUENCE_BITS
        # Constants of the queues.
        self.limits = [
            topology.control_queue_bytes,
            topology.retransmission_queue_bytes,
            topology.queue_bytes,
        ]
        spec = topology.spec
        share = spec.control_share_percent
        # Tokens for each byte: a byte of the others fills `share`, a byte of control takes `100 - share`.
        self.control_weight = share
        self.control_credit_full = CONTROL_BURST_BYTES * (100 - share)
        self.control_credit = self.control_credit_full
        self.ecn_low = self.ecn_high = NEVER
        if spec.ecn is not None and (spec.ecn.host_ports or not self.to_nic):
            self.ecn_low, self.ecn_high = topology.ecn_thresholds_bytes
        trimming = topology.trimming
        self.trim_at = topology.trim_threshold_bytes(half)
        self.trim_size = trimming.size_bytes
        self.trim_lengths = trimming.correct_lengths
        self.trim_dscp = int(Dscp.TRIMMED_LASTHOP if self.to_nic else Dscp.TRIMMED)
        # State.
        self.routes: dict[bytes, Route] = {}
        self.hooks: list[Hook] = []
        self.storms: list[Storm] = []
        self.rates: list[tuple[int, int, int, int]] = []
        self.special = False  # there is a hook, a storm or a rate of its own
        self.queues: list[deque[Packet]] = [deque() for _ in range(QUEUES)]
        self.depth = [0] * QUEUES
        self.busy_until = 0
        self.waiting = False  # the end of the slot is in the heap
        self.sequence = 0
        self.last_bit = 0
        # Counters.
        self.sent = [0] * QUEUES
        self.sent_bytes = [0] * QUEUES
        self.drops = [0] * len(DropReason)
        self.high_water = [0] * QUEUES
        self.peak = 0
        self.peak_ever = 0
        self.marked = 0
        self.trimmed = 0
        self.overlaps = 0
        self.added = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes in all queues."""
        return self.depth[CONTROL] + self.depth[RETRANSMISSION] + self.depth[DATA]

    def refresh(self) -> None:
        """Note whether the port needs more than the shortest way through the event loop."""
        self.special = bool(self.hooks or self.storms or self.rates)

    def slot_ps(self, wire_bytes: int, time: int) -> int:
        """Return the time that bytes on the wire take from a slot that begins at a time."""
        for begin, end, numerator, denominator in self.rates:
            if begin <= time < end:
                return -(-wire_bytes * numerator // denominator)
        return -(-wire_bytes * self.byte_numerator // self.byte_denominator)

    # -- into the queues ---------------------------------------------------------------------------------

    def take(self, time: int, packet: Packet) -> None:
        """Take a packet that arrives, whatever the port's state."""
        for storm in self.storms:
            storm.arrive(self, time, packet)
        if self.busy_until > time:  # a slot that ends now has ended already
            self.wait(packet)
        else:
            self.begin(time, packet)

    def wait(self, packet: Packet) -> None:
        """Put a packet into its queue while the link is busy: trimmed or not at all where that is full."""
        queue = packet.queue
        depth = self.depth[queue] + packet.size
        if queue != CONTROL and depth > self.trim_at and TRIMMABLE_CLASSES[packet.outer_class]:
            self.cut(packet)
            queue = CONTROL
            depth = self.depth[CONTROL] + packet.size
        if depth > self.limits[queue]:
            lost = queue == CONTROL and packet.is_trimmed
            self.drops[DropReason.TRIMMED_QUEUE_FULL if lost else FULL[queue]] += 1
            return
        self.depth[queue] = depth
        if depth > self.high_water[queue]:
            self.high_water[queue] = depth
        self.queues[queue].append(packet)
        total = self.depth[CONTROL] + self.depth[RETRANSMISSION] + self.depth[DATA]
        if total > self.peak:
            if self.peak == 0:
                self.in_use.append(self)
            self.peak = total
        if not self.waiting:
            self.waiting = True
            heappush(self._heap, (self.busy_until, self.end_order, None, self))

    def cut(self, packet: Packet) -> None:
        """Trim a packet as this port does."""
        packet.trim(self.trim_size, self.trim_dscp, self.trim_lengths)
        self.trimmed += 1

    def flush(self) -> int:
        """Lose everything that waits, and return how many packets that were."""
        lost = 0
        for queue in self.queues:
            lost += len(queue)
            queue.clear()
        self.depth = [0] * QUEUES
        self.drops[DropReason.FAULT] += lost
        return lost

    # -- onto the link -----------------------------------------------------------------------------------

    def next_slot(self, time: int) -> None:
        """A slot has ended: send the next frame that waits."""
        control, again, data = self.queues
        if not again and not data:
            self.control_credit = self.control_credit_full
            if not control:  # a reboot has emptied the queues
                self.waiting = False
                return
            queue = CONTROL
            packet = control.popleft()
        elif control and self.control_credit > 0:
            queue = CONTROL
            packet = control.popleft()
            self.control_credit -= packet.wire_bytes * (100 - self.control_weight)
        else:
            queue = RETRANSMISSION if again else DATA
            packet = again.popleft() if again else data.popleft()
            filled = self.control_credit + packet.wire_bytes * self.control_weight
            full = self.control_credit_full
            self.control_credit = filled if filled < full else full
            if self.depth[queue] > self.ecn_low:
                self._mark(packet, self.depth[queue])
        self.depth[queue] -= packet.size
        self.begin(time, packet)
        if control or again or data:
            heappush(self._heap, (self.busy_until, self.end_order, None, self))
        else:
            self.waiting = False

    def _mark(self, packet: Packet, depth: int) -> None:
        """Mark a packet with the probability its queue's depth gives, if its sender knows ECN."""
        if not MARKABLE_CLASSES[packet.outer_class]:
            return
        if depth < self.ecn_high:
            draw = random_bits(self._seed, self._key, self._draws)
            self._draws += 1
            if draw * (self.ecn_high - self.ecn_low) >> 64 >= depth - self.ecn_low:
                return
        packet.mark_ce()
        self.marked += 1

    def begin(self, time: int, packet: Packet) -> None:
        """Begin the slot of a frame."""
        wire = packet.wire_bytes
        if self.rates:
            slot = self.slot_ps(wire, time)
        else:
            slot = -(-wire * self.byte_numerator // self.byte_denominator)
        end = time + slot
        self.busy_until = end
        self.sent[packet.queue] += 1
        self.sent_bytes[packet.queue] += packet.size
        if self.hooks:
            self._begin_hooked(time, slot, packet)
            return
        self.sequence += 1
        if self.to_nic:
            self.reach_nic(time + self.delay_ps, packet)
        else:
            heappush(self._heap, (end + self.hold_ps, self.arrival_order + self.sequence, packet, self))

    def reach_nic(self, time: int, packet: Packet) -> None:
        """Put a packet whose first bit reaches the NIC at a time into the outbox."""
        packet.time_ps = time
        packet.sequence = self.sequence
        packet.came_by = self
        self._outbox.append(packet)

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
            self.drops[DropReason.FAULT] += 1
        return packets

    def _begin_hooked(self, time: int, slot: int, packet: Packet) -> None:
        """Like the end of :meth:`begin`, with whatever the hooks make of the packet."""
        for delay, item in self.act(time, packet):
            self.sequence += 1
            order = self.arrival_order + self.sequence
            if self.to_nic:
                self.reach_nic(time + self.delay_ps + delay, item)
            else:
                heappush(self._heap, (time + slot + self.hold_ps + delay, order, item, self))
