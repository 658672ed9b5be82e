"""The receiving half of the model: checks every packet, places data, answers.

Source: profile.md 2, 4 and 5; protocol.md 1.9 to 1.14, 2.5, 2.6, 3 and 7.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from mrc_host.fabric.heap import PacketList
from mrc_host.model.endpoint_answers import EndpointAnswers, answer_to
from mrc_host.model.immediates import Delivery
from mrc_host.model.memory_port import MemoryPort
from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import ModelPacket
from mrc_host.model.receive_qp import ReceiveQp
from mrc_host.model.receive_tracker import nominal_bytes
from mrc_host.model.regions import HostMemory, MemoryRegions
from mrc_host.model.reverse_evs import ReverseEvs
from mrc_host.model.sack_triggers import PLAIN_LIMIT, QUEUE_DEPTH
from mrc_host.model.shell import Requester, Responder, Shell
from mrc_host.nic.base import Watch
from mrc_rtl import wire
from mrc_rtl.config import QP_NUMBER_BASE, TICK_PS
from mrc_rtl.records import GlobalCounter, PortCounter, TraceKind, Trimmed
from mrc_rtl.tables import CompletionStatus, QpErrorReason, QpState, WorkRequestOpcode
from mrc_rtl.wire import AethSyndrome, Mark, NackReason, Opcode

__all__ = ["ModelResponder"]

_PSN: Final = 0xFF_FFFF
_BEHIND: Final = 0x80_0000
assert (_PSN, _BEHIND) == (wire.PSN_MASK, 1 << (wire.PSN_BITS - 1))
_TICK: Final = 0xFFFF
_LEAST_OFFSET: Final = -0x8000
"""A duplicate may be further behind the cumulative PSN than ack_psn_offset reaches."""
_IMMEDIATES: Final = tuple(wire.has_immediate(opcode) for opcode in range(256))
_LASTS: Final = tuple(wire.is_last(opcode) for opcode in range(256))
_SACK: Final = int(Opcode.SACK)
_NACK: Final = int(Opcode.NACK)
_ACK: Final = int(Opcode.ACKNOWLEDGE)
_REQUEST: Final = int(Opcode.ENDPOINT_REQUEST)
_RESPONSE: Final = int(Opcode.ENDPOINT_RESPONSE)
_QP_BASE: Final = QP_NUMBER_BASE
_TICK_PS: Final = TICK_PS
_PATIENCE_RTTS: Final = 4
_FULL_PENALTY: Final = 127
_ERROR: Final = int(QpState.ERROR)
_LAST_HOP: Final = int(Trimmed.LAST_HOP)
_NO_MARK: Final = int(Mark.NONE)
_SKIP_ONCE: Final = int(Mark.SKIP_ONCE)
_ALWAYS_SKIP: Final = int(Mark.ALWAYS_SKIP)
_ACK_SYNDROME: Final = int(AethSyndrome.ACK)

# Outcomes as plain numbers: an enumeration costs a call each time it is used as one.
_ACCEPTED: Final = int(PortCounter.ACCEPTED)
_CONTROL: Final = int(PortCounter.CONTROL)
_DUPLICATE: Final = int(PortCounter.DUPLICATE)
_TRIMMED_ANSWERED: Final = int(PortCounter.TRIMMED_ANSWERED)
_DROP_ACCESS: Final = int(PortCounter.DROP_ACCESS)
_DROP_BUFFER: Final = int(PortCounter.DROP_NO_PKT_BUFFER)
_DROP_PEER: Final = int(PortCounter.DROP_PEER)
_DROP_PKEY: Final = int(PortCounter.DROP_PKEY)
_DROP_QP: Final = int(PortCounter.DROP_QP)
_DROP_WINDOW: Final = int(PortCounter.DROP_WINDOW)
_SACK_RECEIVED: Final = int(GlobalCounter.SACK_RECEIVED)
_SACK_SENT: Final = int(GlobalCounter.SACK_SENT)
_ACK_RECEIVED: Final = int(GlobalCounter.ACK_RECEIVED)
_ACK_SENT: Final = int(GlobalCounter.ACK_SENT)


class ModelResponder(Responder):
    """See the module's text.

    Parameters
    ----------
    shell : Shell
    options : ModelOptions
    regions : MemoryRegions
    memory : HostMemory
    port : MemoryPort
        The way to it.
    watches : list of Watch
        Gets the writes into watched ranges.
    seed : int
        Of the reverse EV probes.

    Attributes
    ----------
    requester : Requester
        Set by :meth:`attach`.
    qps : list of ReceiveQp
    reverse : ReverseEvs
    """

    def __init__(
        self,
        shell: Shell,
        options: ModelOptions,
        regions: MemoryRegions,
        memory: HostMemory,
        port: MemoryPort,
        watches: list[Watch],
        seed: int,
    ) -> None:
        config = shell.config
        self._shell = shell
        self.requester: Requester
        self._options = options
        self._regions = regions
        self._memory = memory
        self._port = port
        self._watches = watches
        self.qps: list[ReceiveQp] = [ReceiveQp(config) for _ in range(config.qps)]
        self.reverse = ReverseEvs(config.qps, config.planes, seed)
        self._endpoint = EndpointAnswers(shell, options, self.qps, self.reverse)
        self._placements: PacketList = PacketList()
        self._held: list[int] = [0] * config.planes
        self._waiting: i64 = 0
        self._base_mpr_units: i64 = min(config.mpr_psns // wire.MPR_UNIT_PSNS, 255)
        self._reverse_path: bool = options.control_path == "reverse"
        self._reverse_probes: bool = self._reverse_path and options.reverse_probes
        self._checks_keys: bool = options.partition_keys == "table"
        self._watches_marks: bool = options.always_skip_after != 0
        self._acknowledges_each: bool = options.transport_ack == "each"
        self._acknowledges_messages: bool = options.transport_ack == "message"
        self._service_time: bool = options.service_time
        self._align: i64 = options.sack_base_align
        self._walk_every: i64 = options.sack_walk_every
        self._own_first: bool = options.context_order == "sender_first"
        self._buffer_bytes: i64 = config.receive_buffer_bytes
        self._tells_fill: bool = options.penalty_start_permille < 1000 or options.advertise_mpr != "fixed"
        self._trace: bool = config.trace

    def attach(self, requester: Requester) -> None:
        """Tell the responder its requester, before the first packet comes."""
        self.requester = requester
        self._endpoint.requester = requester

    # -- arrival -----------------------------------------------------------------------------------------

    def on_packet(self, packet: ModelPacket) -> None:
        """A frame that passed the port's checks (addresses, lengths, ICRC unless trimmed)."""
        opcode: i64 = packet.opcode
        if opcode == _REQUEST or opcode == _RESPONSE:
            self._endpoint.arrived(packet)
            return
        index: i64 = packet.destination_qpn - _QP_BASE
        if index < 0 or index >= len(self.qps):
            self._count(packet, _DROP_QP)
            return
        qp = self.qps[index]
        packet.qp = index
        if not qp.receiving:
            if qp.state == _ERROR and packet.source == qp.peer and packet.is_write:
                self._refuse_in_error(qp, packet)
            self._count(packet, _DROP_QP)
        elif packet.source != qp.peer:
            self._count(packet, _DROP_PEER)
        elif self._checks_keys and packet.partition_key != qp.partition_key:
            self._count(packet, _DROP_PKEY)
        elif packet.is_write:
            self._write(qp, packet)
        else:
            self._count(packet, _CONTROL)
            self._feedback(qp, packet)

    def refuse_room(self, packet: ModelPacket) -> None:
        """Answer a packet that found no room, where somebody else knows that (a replay)."""
        packet.qp = packet.destination_qpn - _QP_BASE
        if self._options.resource_nack:
            self._nack(self.qps[packet.qp], packet, int(NackReason.NO_PKT_BUFFER))

    def _feedback(self, qp: ReceiveQp, packet: ModelPacket) -> None:
        opcode: i64 = packet.opcode
        index: i64 = packet.qp
        if opcode == _SACK:
            self._shell.count(_SACK_RECEIVED)
            self.requester.on_sack(index, packet)
        elif opcode == _ACK:
            self._shell.count(_ACK_RECEIVED)
            self.requester.on_ack(index, packet)
        elif opcode == _NACK:
            self._shell.count(GlobalCounter.NACK_RECEIVED)
            self.requester.on_nack(index, packet)
        else:
            answer = self._answer(_SACK, packet)
            answer.probe = True
            answer.probe_id = packet.probe_id
            self._sack(qp, packet, answer, strong=True)

    def _write(self, qp: ReceiveQp, packet: ModelPacket) -> None:
        """Decide about a write: place it, or say why not (protocol.md 3.2)."""
        tracker = qp.tracker
        if self._watches_marks:
            qp.note_mark(packet.ev, packet.marked)
        distance: i64 = packet.psn - tracker.expected & _PSN
        outcome: i64
        inside = distance < qp.window
        if not inside and distance <= _BEHIND:
            outcome = _DROP_WINDOW
            if self._options.out_of_window == "nack" and qp.may_nack(self._shell.now_ps, self._rtt_ps):
                self._nack(qp, packet, int(NackReason.PSN_OOR_WINDOW))
        elif not inside or tracker.claimed(distance):
            outcome = _TRIMMED_ANSWERED if packet.trimmed else _DUPLICATE
            qp.triggers.add_duplicate(packet.plane, not inside, packet.ack_request)
            self._sack(qp, packet, self._answer(_SACK, packet), True)
            if not inside and self._acknowledges_each:
                self._acknowledge(qp, packet)
        elif packet.trimmed:
            outcome = _TRIMMED_ANSWERED
            last_hop = packet.trimmed == _LAST_HOP
            self._nack(qp, packet, int(NackReason.TRIMMED_LASTHOP if last_hop else NackReason.TRIMMED))
        elif qp.in_order and distance != qp.in_flight:
            outcome = _DROP_WINDOW
            self._refuse_early(qp, packet)
        else:
            qp.gap = -1
            outcome = self._admit(qp, packet, distance)
        self._count(packet, outcome)
        if self._trace:
            detail = outcome | packet.trimmed << 8 | tracker.expected << 16
            self._shell.trace(int(TraceKind.ADMIT), packet.qp, packet.plane, packet.psn, detail)

    def _refuse_early(self, qp: ReceiveQp, packet: ModelPacket) -> None:
        """A write came before others that must be placed first: say once which one is missing."""
        missing: i64 = qp.tracker.expected + qp.in_flight & _PSN
        if qp.gap == missing:
            return
        qp.gap = missing
        packet.psn = missing
        self._nack(qp, packet, int(NackReason.PSN_OOR_WINDOW))

    def _admit(self, qp: ReceiveQp, packet: ModelPacket, distance: i64) -> i64:
        """A new write inside the window: claim it and send it to memory. Returns the outcome to count."""
        length: i64 = packet.length
        plane: i64 = packet.plane
        packet.region = -1
        if length:
            bus_address = self._regions.translate(
                packet.remote_key, qp.protection_domain, packet.address, length, True
            )
            if bus_address < 0:
                self._fail(qp, packet.qp, packet.psn, plane, int(AethSyndrome.NAK_REMOTE_ACCESS))
                self._shell.enter_error(packet.qp, int(QpErrorReason.REMOTE_ACCESS))
                return _DROP_ACCESS
            packet.bus_address = bus_address
            packet.region = packet.remote_key >> 8
        held: i64 = self._held[plane] + length
        if held > self._buffer_bytes:
            if self._options.resource_nack:
                self._nack(qp, packet, int(NackReason.NO_PKT_BUFFER))
            return _DROP_BUFFER
        qp.tracker.claim(distance)
        self._held[plane] = held
        qp.in_flight += 1
        if length:
            self._regions.in_flight[packet.region] += 1
        self._placements.append(packet)
        self._port.write(self._shell.now_ps, True)
        if _IMMEDIATES[packet.opcode] and not qp.immediates.stash(
            packet.receive_number,
            packet.psn,
            plane,
            packet.message_number,
            packet.immediate,
            packet.message_length,
        ):
            self._refuse_immediate(qp, packet.qp)
        elif self._reverse_probes:
            self._endpoint.probe_reverse(packet.qp)
        return _ACCEPTED

    # -- memory ------------------------------------------------------------------------------------------

    def memory_answered(self) -> None:
        """The memory has answered for the oldest packet."""
        packet = self._placements.take()
        assert isinstance(packet, ModelPacket)
        index: i64 = packet.qp
        length: i64 = packet.length
        qp = self.qps[index]
        done = True
        if length:
            done = self._memory.write(packet.bus_address, packet.payload)
            if done:
                self._memory.watches(self._shell.now_ps, packet.bus_address, length, self._watches)
            self._regions.in_flight[packet.region] -= 1
            self._held[packet.plane] -= length
        qp.in_flight -= 1
        if not qp.receiving:
            return
        if not done:
            self._shell.count(int(GlobalCounter.WRITE_ERRORS))
            self._fail(qp, index, packet.psn, packet.plane, int(AethSyndrome.NAK_REMOTE_OPERATIONAL))
            self._shell.enter_error(index, int(QpErrorReason.REMOTE_OPERATION))
            return
        self._placed(qp, packet)

    def _placed(self, qp: ReceiveQp, packet: ModelPacket) -> None:
        tracker = qp.tracker
        plane: i64 = packet.plane
        opcode: i64 = packet.opcode
        before: i64 = tracker.expected
        nominal: i64 = nominal_bytes(packet.length, packet.timestamped, _IMMEDIATES[opcode])
        passed: i64 = tracker.place(packet.psn, _LASTS[opcode], nominal)
        above: i64 = tracker.out_of_order
        if self._trace:
            detail = tracker.expected | above << 24 | (passed != 0) << 40
            self._shell.trace(int(TraceKind.PLACE), packet.qp, plane, packet.psn, detail)
        if tracker.expected != before and not self._deliver(qp, packet.qp):
            return
        due = qp.triggers.add_placed(
            plane,
            packet.length,
            packet.marked or packet.retransmission,
            packet.ack_request,
            passed != 0,
            above == 0,
            self._shell.settings.sack_threshold,
        )
        if due:
            self._sack(qp, packet, self._answer(_SACK, packet), qp.triggers.strong)
        if passed and self._acknowledges_each:
            self._acknowledge(qp, packet)

    def _deliver(self, qp: ReceiveQp, index: i64) -> bool:
        """Complete the receive requests of messages that are now complete."""
        if not qp.immediates.waits:
            return True
        deliveries: list[Delivery] = []
        good = qp.immediates.advance(qp.tracker.expected, deliveries)
        for delivery in deliveries:
            self._shell.complete(
                qp.completion_queue,
                index,
                qp.requests[delivery.slot],
                int(WorkRequestOpcode.RECEIVE_IMM),
                int(CompletionStatus.SUCCESS),
                delivery.length,
                delivery.immediate,
                delivery.message_number,
            )
        if not good:
            self._refuse_immediate(qp, index)
        return good

    def _refuse_immediate(self, qp: ReceiveQp, index: i64) -> None:
        """More immediates than allowed, or no receive request: there is no RNR (protocol.md 3.3)."""
        immediates = qp.immediates
        syndrome = int(AethSyndrome.NAK_INVALID_REQUEST)
        self._fail(qp, index, immediates.failing_psn, immediates.failing_plane, syndrome)
        self._shell.enter_error(index, int(QpErrorReason.INVALID_REQUEST))

    # -- answers -----------------------------------------------------------------------------------------

    @property
    def _rtt_ps(self) -> i64:
        return self._shell.settings.base_rtt * _TICK_PS

    def _answer(self, opcode: i64, packet: ModelPacket) -> ModelPacket:
        return answer_to(opcode, packet, self._service_time)

    def _sack(self, qp: ReceiveQp, packet: ModelPacket, answer: ModelPacket, strong: bool) -> None:
        """Queue a SACK, and the transport ACK that is due with it."""
        if self._waiting >= (QUEUE_DEPTH if strong else PLAIN_LIMIT):
            self._shell.count(GlobalCounter.SACK_TRIGGERS_DROPPED)
            return
        answer.retransmission = packet.retransmission
        answer.mark = self._mark(qp, packet)
        plane = self._plane(packet)
        acknowledged = False if answer.probe else qp.triggers.take(packet.plane)
        self._enqueue(qp, answer, plane)
        self._shell.count(_SACK_SENT)
        if acknowledged and self._acknowledges_messages:
            self._acknowledge(qp, packet)

    def _acknowledge(self, qp: ReceiveQp, packet: ModelPacket) -> None:
        answer = ModelPacket(_ACK, packet.qp, packet.psn)
        answer.syndrome = _ACK_SYNDROME
        self._enqueue(qp, answer, self._plane(packet))
        self._shell.count(_ACK_SENT)

    def _nack(self, qp: ReceiveQp, packet: ModelPacket, reason: i64) -> None:
        if self._waiting >= QUEUE_DEPTH:
            self._shell.count(GlobalCounter.SACK_TRIGGERS_DROPPED)
            return
        answer = self._answer(_NACK, packet)
        answer.reason = reason
        self._enqueue(qp, answer, self._plane(packet))
        self._shell.count(GlobalCounter.NACK_SENT)

    def _fail(self, qp: ReceiveQp, index: i64, psn: i64, plane: i64, syndrome: i64) -> None:
        """Queue a transport NAK; it leaves although the QP goes to ERROR."""
        answer = ModelPacket(_ACK, index, psn)
        answer.syndrome = syndrome
        self._enqueue(qp, answer, plane)
        self._shell.count(GlobalCounter.NAK_SENT)

    def _refuse_in_error(self, qp: ReceiveQp, packet: ModelPacket) -> None:
        if self._options.error_nack and qp.may_nack(self._shell.now_ps, self._rtt_ps):
            self._nack(qp, packet, int(NackReason.UNEXP_EVENT))

    def _enqueue(self, qp: ReceiveQp, answer: ModelPacket, plane: i64) -> None:
        own: i64 = _QP_BASE + answer.qp & 0xFFFF
        peer: i64 = qp.peer_qpn & 0xFFFF
        if self._own_first:
            answer.source_context, answer.destination_context = own, peer
        else:
            answer.source_context, answer.destination_context = peer, own
        qp.waiting += 1
        self._waiting += 1
        self.requester.enqueue_control(answer, answer.qp, plane)

    def _plane(self, packet: ModelPacket) -> i64:
        """Plane of an answer: where its cause came in, unless that plane's way back looks dead."""
        if not self._reverse_path:
            return packet.plane
        patience = _PATIENCE_RTTS * self._shell.config.planes * self._rtt_ps
        return self.reverse.plane(packet.qp, packet.plane, patience)

    def _mark(self, qp: ReceiveQp, packet: ModelPacket) -> int:
        if self._watches_marks and qp.marks(packet.ev) >= self._options.always_skip_after:
            return _ALWAYS_SKIP
        return _SKIP_ONCE if packet.marked else _NO_MARK

    def fill(self, packet: ModelPacket) -> None:
        """Fill the receive state into an answer that is sent now, and the time it took."""
        opcode: i64 = packet.opcode
        if packet.timestamped and opcode != _REQUEST:
            if self._service_time:
                packet.timestamp = packet.timestamp + self._shell.tick & _TICK
            packet.timestamped = False
        if opcode == _RESPONSE or opcode == _REQUEST:
            return
        qp = self.qps[packet.qp]
        if qp.waiting:
            qp.waiting -= 1
            self._waiting -= 1
        tracker = qp.tracker
        if opcode == _ACK:
            packet.message_number = tracker.messages
            if packet.syndrome == _ACK_SYNDROME:
                packet.psn = tracker.cumulative
        elif opcode == _SACK:
            packet.psn = packet.cumulative_psn = tracker.cumulative
            offset: i64 = (packet.acknowledged_psn - packet.psn + _BEHIND & _PSN) - _BEHIND
            if packet.probe:
                offset = 0
            elif offset < _LEAST_OFFSET:
                offset = _LEAST_OFFSET
            packet.acknowledged_psn = packet.psn + offset & _PSN
            packet.sack_base, packet.sack_bitmap = tracker.bitmap(self._align, self._walk_every)
            packet.out_of_order = min(tracker.out_of_order, 0x7FFF)
            packet.received_units = tracker.received_units
            self._fill_limits(qp, packet)

    def _fill_limits(self, qp: ReceiveQp, packet: ModelPacket) -> None:
        """What the SACK says of the receiver's own state: MPR, penalty on the window, its end."""
        packet.mpr_units = min(qp.window // wire.MPR_UNIT_PSNS, 255)
        if not self._tells_fill:
            return
        options = self._options
        start = options.penalty_start_permille
        fill = max(self._held) * 1000 // self._buffer_bytes
        if options.advertise_mpr == "buffer":
            packet.mpr_units = max(1, packet.mpr_units * (1000 - fill) // 1000)
        if start < 1000:
            if fill > start:
                packet.penalty = (fill - start) * _FULL_PENALTY // (1000 - start)
                qp.penalised = True
            elif qp.penalised:
                packet.restore = True

    # -- life of a QP ------------------------------------------------------------------------------------

    def on_error(self, qp: int) -> None:
        """The QP went to ERROR: accept nothing more; receives that wait are flushed by software."""
        self.qps[qp].set_state(QpState.ERROR)

    def write_row(self, index: int, fields: dict[str, int]) -> bool:
        """Apply a QP_RECEIVE row whose QP has nothing in flight."""
        qp = self.qps[index]
        if qp.apply(fields):
            self._waiting -= qp.waiting
            qp.waiting = 0
            self.reverse.start(index)
        return True

    def stop(self, index: int, state: int) -> bool:
        """Stop a QP that a row starts anew or resets; returns whether nothing of it is in flight."""
        qp = self.qps[index]
        if qp.starts_anew(state):
            qp.set_state(QpState.RESET)
            return qp.in_flight == 0
        return True

    def _count(self, packet: ModelPacket, outcome: i64) -> None:
        self._shell.count_port(packet.plane, outcome)
