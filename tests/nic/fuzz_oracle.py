"""What must become of a frame of the attacker: predicted before it is sent.

Ports judge by the model's decoder, which ``tests/model/test_codec.py`` holds against the general codec. What
a frame does that passes them follows from the few facts kept here: which queue pairs there are, and which
PSNs the attacker has used.
"""

from dataclasses import dataclass

from fuzz_bed import FIRST_PSN, GOOD, IDLE, IDLE_KEY, KEY, RECEIVES, TARGET, modulo
from fuzz_craft import ATTACKER, INNER_AT, NIC, NIC_USID, PEER, PLANES

from mrc_host.model.decoder import FrameDecoder
from mrc_host.model.options import ModelOptions
from mrc_host.model.shell import Settings as Registers
from mrc_rtl import wire
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.records import PortCounter
from mrc_rtl.wire import AethSyndrome, EndpointOp, NackReason, Opcode

HALF = 1 << (wire.PSN_BITS - 1)
PEERS = {GOOD: wire.inner_address(PEER), IDLE: wire.inner_address(PEER), TARGET: wire.inner_address(ATTACKER)}
KEYS = {GOOD: KEY, TARGET: KEY, IDLE: IDLE_KEY}
RETRIABLE = frozenset(
    {
        NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP, NackReason.NO_BITMAP, NackReason.NO_PKT_BUFFER,
        NackReason.NO_RESOURCE, NackReason.PSN_OOR_WINDOW,
    }
)  # fmt: skip
CUTS = (
    *((at, at + wire.IPV6.byte_offset("source")) for at in INNER_AT.values()),
    *((at + wire.IPV6.byte_offset("destination"), at + wire.IPV6.bytes) for at in INNER_AT.values()),
)
"""A frame that ends here has a field that is there in part: the gateware judges words, the model bytes."""
CUT_REASONS = (
    PortCounter.DROP_NOT_MRC, PortCounter.DROP_ADDRESS, PortCounter.DROP_TRUNCATED, PortCounter.TRIM_IGNORED,
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What becomes of a frame.

    Parameters
    ----------
    outcomes : tuple of PortCounter
        It is counted as one of these; more than one only where gateware and model differ.
    alone : bool
        What is before it must be decided first, and what comes after it depends on it.
    fails : bool or None
        The attacker's queue pair goes to ERROR; None: it may.
    psn, plane : int
        Of a write that is accepted; psn is None for all others.
    content : tuple, optional
        Bus address and bytes of what it writes to memory.
    """

    outcomes: tuple
    alone: bool = False
    fails: bool | None = False
    psn: int | None = None
    plane: int = 0
    content: tuple | None = None


ASK_AGAIN = Verdict(())
"""Nobody can tell before all that was sent is decided."""


class Oracle:
    """Follows the NIC under test frame by frame.

    Parameters
    ----------
    bed : Bed
    """

    def __init__(self, bed):
        self.bed = bed
        registers = Registers(PLANES)
        registers.own_address, registers.own_usid = wire.inner_address(NIC), NIC_USID
        self._decoders = [
            FrameDecoder(plane, registers, ModelOptions(), bed.nic.nic.config.mtu) for plane in range(PLANES)
        ]
        self.window = bed.nic.nic.config.mpr_psns
        self.renewed()
        self.good_expected = None

    def renewed(self):
        """The attacker's queue pair was connected anew."""
        self.in_error = False
        self.expected = FIRST_PSN
        self.claimed = set()
        self.recent = {}
        self._spans = []
        self.immediates = 0

    def settled(self):
        """Nothing of what was sent is on its way any more."""
        self.recent.clear()
        self._spans.clear()
        while self.expected in self.claimed:
            self.claimed.remove(self.expected)
            self.expected = self.expected + 1 & wire.PSN_MASK

    def judge(self, frame):
        """The verdict of a frame, or None when nobody can tell or when it would be the good peer's own."""
        decoder = self._decoders[frame.plane]
        packet = decoder.decode(frame.data, frame.bad_fcs)
        if packet is None:
            reason = PortCounter(decoder.reason)
            if reason in CUT_REASONS and any(low < len(frame.data) < high for low, high in CUTS):
                return Verdict((reason, *self._or_else(*(other for other in CUT_REASONS if other != reason))))
            return Verdict((reason,))
        if packet.opcode in (Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE):
            return self._endpoint(packet)
        index = packet.destination_qpn - QP_NUMBER_BASE
        if index not in PEERS or (index == TARGET and self.in_error):
            return Verdict((PortCounter.DROP_QP,))
        if packet.source != PEERS[index]:
            return Verdict((PortCounter.DROP_PEER,))
        if packet.partition_key != KEYS[index]:
            return Verdict((PortCounter.DROP_PKEY,))
        if not packet.is_write:
            return self._feedback(packet) if index == TARGET else None
        return self._write(packet) if index == TARGET else self._others_write(packet, index)

    def _endpoint(self, packet):
        if packet.destination_qpn != wire.ENDPOINT_QPN:
            return Verdict((PortCounter.DROP_QP,))
        request = packet.opcode == Opcode.ENDPOINT_REQUEST
        status = request and packet.operation == EndpointOp.PORT_STATUS_UPDATE
        if status and packet.source == PEERS[GOOD]:
            return None  # nothing tells it from the good peer's own
        # Gateware answers only hosts that a queue pair is connected with.
        return Verdict((PortCounter.CONTROL, *self._or_else(PortCounter.DROP_PEER)))

    def _or_else(self, *outcomes):
        """Outcomes that gateware may have instead."""
        return outcomes if self.bed.kind == "rtl" else ()

    def _feedback(self, packet):
        if packet.opcode == Opcode.PROBE:
            return Verdict((PortCounter.CONTROL,))
        fatal = packet.opcode == Opcode.ACKNOWLEDGE and packet.syndrome != AethSyndrome.ACK
        fatal |= packet.opcode == Opcode.NACK and packet.reason not in RETRIABLE
        return Verdict((PortCounter.CONTROL,), alone=fatal, fails=None if fatal else False)

    def _others_write(self, packet, index):
        """A write for a queue pair of the good peer; None when it is inside the window."""
        low, high = (0x1000, 0x1000) if index == IDLE else self.good_expected
        goes = modulo(high, low)
        distance = modulo(packet.psn, low)
        if self.window + goes <= distance < HALF:
            return Verdict((PortCounter.DROP_WINDOW,))
        if distance > HALF + goes:
            return Verdict((PortCounter.TRIMMED_ANSWERED if packet.trimmed else PortCounter.DUPLICATE,))
        if packet.trimmed and distance < self.window:
            return Verdict((PortCounter.TRIMMED_ANSWERED,))
        return None

    def _write(self, packet):
        """A write for the attacker's own queue pair (protocol.md 3.2)."""
        psn, plane = packet.psn, packet.plane
        distance = modulo(psn, self.expected)
        # Two ports decide in any order, and what they accept moves the window.
        edge = self.window <= distance < 2 * self.window or HALF <= distance <= HALF + self.window
        if self.recent.get(psn, plane) != plane or edge and self.recent:
            return ASK_AGAIN
        if self.window <= distance <= HALF:
            return Verdict((PortCounter.DROP_WINDOW,), alone=edge)
        if packet.trimmed:
            return Verdict((PortCounter.TRIMMED_ANSWERED,), alone=edge)
        if distance > HALF or psn in self.claimed:
            return Verdict((PortCounter.DUPLICATE,), alone=edge)
        content = None
        if packet.length:
            at = self.translate(packet.remote_key, packet.address, packet.length)
            if at is None:
                return Verdict((PortCounter.DROP_ACCESS,), alone=True, fails=True)
            # Bytes that both ports write are those of whoever comes last.
            end = at + packet.length
            if any(other != plane and at < stop and start < end for start, stop, other in self._spans):
                return ASK_AGAIN
            content = (at, packet.payload)
        if not wire.has_immediate(packet.opcode):
            return Verdict((PortCounter.ACCEPTED,), psn=psn, plane=plane, content=content)
        if self.immediates >= RECEIVES:
            return None
        return Verdict((PortCounter.ACCEPTED,), True, None, psn, plane, content)

    def accept(self, verdict):
        """A frame with this verdict is sent: follow it."""
        if verdict.psn is not None:
            self.claimed.add(verdict.psn)
            self.recent[verdict.psn] = verdict.plane
            self.immediates += verdict.fails is None
            if verdict.content is not None:
                at, content = verdict.content
                self._spans.append((at, at + len(content), verdict.plane))

    def translate(self, key, address, length):
        """Bus address of bytes the attacker's key allows to write, or None."""
        region = self.bed.regions["target"]
        inside = region.address <= address and address + length <= region.address + region.length
        return region.buffer.bus_address + address - region.address if key == region.rkey and inside else None
