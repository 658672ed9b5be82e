"""Follows one packet through the fabric: every copy of it, its answers, and the queues they met.

The probe stands in front of every queue and behind it, and changes nothing: a run with it is the same run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mrc_host.experiment.testbed import Testbed
from mrc_host.fabric.model import NicObserver
from mrc_host.fabric.packet import Packet
from mrc_host.fabric.port import Port, Storm
from mrc_host.fabric.taps import Hook
from mrc_host.model.packet import ModelPacket
from mrc_host.packets.codec import decode
from mrc_rtl.wire import PSN_BITS, PSN_MASK, SACK_BITMAP_BITS, Opcode, has_payload

__all__ = ["Copy", "Hop", "PacketProbe", "Target"]

HALF_PSN = 1 << PSN_BITS - 1


class Target(NamedTuple):
    """The packet that is followed.

    Parameters
    ----------
    source, target : int
        Hosts.
    source_qp, target_qp : int
        QP numbers of the two ends.
    psn : int
    """

    source: int
    target: int
    source_qp: int
    target_qp: int
    psn: int


@dataclass
class Hop:
    """A packet in a switch port.

    Parameters
    ----------
    port : int
        Number of the direction the port feeds.
    arrived_ps : int
        When it was handed to the port.
    waiting : (int, int, int)
        Bytes in the queues then: control, retransmissions, data.
    size : int
        Bytes of the packet when it came.
    queue : int
        Its class when it came.
    ecn : int
        Its ECN bits when it came.
    began_ps : int or None
        When its first bit entered the link; None when it never did.
    trimmed, marked : bool
        The port cut it, or wrote CE.
    """

    port: int
    arrived_ps: int
    waiting: tuple[int, int, int]
    size: int
    queue: int
    ecn: int
    began_ps: int | None = None
    trimmed: bool = False
    marked: bool = False


@dataclass
class Copy:
    """A transmission of the packet, or an answer to it.

    Parameters
    ----------
    opcode : int
    host : int
        Whose NIC sent it.
    plane, ev : int
    retransmission : bool
    size : int
        Bytes of the frame as sent.
    sent_ps : int
        When its slot ended at the sender.
    arrived_ps : int or None
        When its slot ended at the receiver; None when it never came.
    arrived_trimmed : bool
    hops : list of Hop
        Switch ports it was in; empty when nobody looked.
    reason : int
        Of a NACK.
    mark, trigger, cumulative : int
        Of a SACK: mark, the PSN that caused it (−1 for none), the last PSN covered with all before it.
    covers : bool
        An answer that says the packet has arrived.
    """

    opcode: int
    host: int
    plane: int
    ev: int
    retransmission: bool
    size: int
    sent_ps: int
    arrived_ps: int | None = None
    arrived_trimmed: bool = False
    hops: list[Hop] = field(default_factory=list)
    reason: int = 0
    mark: int = 0
    trigger: int = -1
    cumulative: int = 0
    covers: bool = False

    @property
    def is_data(self) -> bool:
        """Whether it is a transmission of the packet itself."""
        return has_payload(self.opcode)


class _Front(Storm):
    """Stands in front of a port's queues."""

    def __init__(self, probe: PacketProbe) -> None:
        self._probe = probe

    def arrive(self, port: Port, time_ps: int, packet: Packet) -> None:
        """Note a followed packet that is handed to the port."""
        copy = self._probe.copy_of(packet)
        if copy is not None:
            control, again, data = port.queues
            waiting = (int(control.depth), int(again.depth), int(data.depth))
            hop = Hop(
                int(port.number), int(time_ps), waiting, int(packet.size), int(packet.queue), packet.ecn
            )
            copy.hops.append(hop)


class _Behind(Hook):
    """Stands behind a port's queues, before faults act on its link."""

    def __init__(self, probe: PacketProbe) -> None:
        self._probe = probe

    def act(self, port: Port, start_ps: int, packet: Packet) -> None:
        """Note a followed packet that leaves the port."""
        copy = self._probe.copy_of(packet)
        if copy is not None and copy.hops:
            hop = copy.hops[-1]
            hop.began_ps = int(start_ps)
            hop.trimmed = int(packet.size) < hop.size or (packet.is_trimmed and hop.queue != packet.queue)
            hop.marked = packet.ecn != hop.ecn


class PacketProbe(NicObserver):
    """The probe; attach it to a testbed before the run.

    Parameters
    ----------
    target : Target

    Attributes
    ----------
    copies : list of Copy
        Of the packet, of NACKs for it, one SACK for each copy that caused one, and of the SACKs and transport
        ACKs that cover it the first that arrived.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.copies: list[Copy] = []
        self._followed: dict[int, tuple[Packet, Copy]] = {}
        self._waiting: dict[int, tuple[Packet, Copy]] = {}  # answers of which the first to arrive counts
        self._covered: set[int] = set()

    def attach(self, testbed: Testbed) -> None:
        """Stand at every port of the fabric."""
        fabric = testbed.fabric
        fabric.observe(self)
        front, behind = _Front(self), _Behind(self)
        for port in fabric.ports:
            if port.half.source_switch >= 0:
                port.storms.insert(0, front)
                port.hooks.insert(0, behind)
                port.refresh()

    def copy_of(self, packet: Packet) -> Copy | None:
        """Return the copy a packet is, if it is followed."""
        found = self._followed.get(id(packet))
        return None if found is None else found[1]

    def sent(self, port: Port, start_ps: int, packet: Packet) -> None:
        """See whether a packet that leaves a NIC is to be followed."""
        copy = self._recognise(port, packet)
        if copy is None:
            return
        copy.sent_ps = int(start_ps) + _slot_ps(port, packet)
        if copy.covers and not self._caused(copy):
            if copy.opcode not in self._covered:
                self._waiting[id(packet)] = (packet, copy)
            return
        self._followed[id(packet)] = (packet, copy)
        self.copies.append(copy)

    def delivered(self, port: Port, first_bit_ps: int, packet: Packet) -> None:
        """A packet reaches a NIC."""
        found = self._followed.get(id(packet)) or self._waiting.pop(id(packet), None)
        if found is None:
            return
        copy = found[1]
        copy.arrived_ps = int(first_bit_ps) + _slot_ps(port, packet)
        copy.arrived_trimmed = packet.is_trimmed
        if copy.covers and copy.opcode not in self._covered:
            self._covered.add(copy.opcode)
            if id(packet) not in self._followed:
                self.copies.append(copy)

    def _caused(self, copy: Copy) -> bool:
        """Whether a copy of the packet caused this SACK, which had none yet."""
        if copy.trigger != self.target.psn:
            return False
        sacks = sum(item.opcode == Opcode.SACK for item in self.copies)
        return sacks < sum(item.is_data for item in self.copies)

    def _recognise(self, port: Port, packet: Packet) -> Copy | None:
        info = packet.info()
        if info is None:
            return None
        target, host = self.target, int(port.host)
        copy = Copy(info.opcode, host, int(port.plane), info.ev, info.rtx, int(packet.size), 0)
        if host == target.source and info.dest_qp == target.target_qp:
            return copy if copy.is_data and info.psn == target.psn else None
        if host != target.target or info.dest_qp != target.source_qp:
            return None
        if info.opcode == Opcode.NACK:
            copy.reason = _reason(packet)
            return copy if info.psn == target.psn else None
        if info.opcode == Opcode.ACKNOWLEDGE:
            copy.cumulative = info.psn
            copy.covers = _behind(target.psn, info.psn)
            return copy if copy.covers else None
        if info.opcode == Opcode.SACK:
            copy.mark, copy.trigger, copy.cumulative, base, bitmap = _sack(packet)
            place = target.psn - base & PSN_MASK
            seen = place < SACK_BITMAP_BITS and bitmap >> place & 1 == 1
            copy.covers = seen or _behind(target.psn, copy.cumulative)
            return copy if copy.covers else None
        return None


def _behind(psn: int, last: int) -> bool:
    """Whether a PSN is not beyond another, on the circle of PSNs."""
    return (last - psn & PSN_MASK) < HALF_PSN


def _slot_ps(port: Port, packet: Packet) -> int:
    return int(-(-packet.wire_bytes * port.byte_numerator // port.byte_denominator))


def _reason(packet: Packet) -> int:
    if isinstance(packet, ModelPacket):
        return int(packet.reason)
    return decode(packet.original)["neth"]["nack_reason"]


def _sack(packet: Packet) -> tuple[int, int, int, int, int]:
    """Return mark, trigger, last PSN covered, base of the bitmap, and the bitmap of a SACK."""
    if isinstance(packet, ModelPacket):
        return (
            int(packet.mark), -1 if packet.probe else int(packet.acknowledged_psn),
            int(packet.cumulative_psn),
            int(packet.sack_base), packet.sack_bitmap,
        )  # fmt: skip
    fields = decode(packet.original)["seth"]
    last = fields["cack_psn"]
    trigger = -1 if fields["pr"] else last + fields["ack_psn_offset"] & PSN_MASK
    return fields["m"], trigger, last, last + fields["sack_offset"] & PSN_MASK, fields["sack_bitmap"]
