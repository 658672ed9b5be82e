"""Builds SACKs, NACKs, transport ACKs, NAKs, endpoint responses and reliability probes."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .. import layouts, records, wire
from ..config import QP_NUMBER_BASE, NicConfig
from ..records import BODY_BITS, NACK_REASONS, AnswerKind, GlobalCounter
from ..wire import AethSyndrome
from .sack_triggers import SackTriggers

__all__ = ["SackGenerator"]

_WORD = 32


def _bits_of(header: wire.Header, name: str) -> tuple[int, int]:
    """First bit of a field of a header as long as the body, and the bit behind its last."""
    low = header.shift(name)
    return low, low + header[name].bits


class SackGenerator(wiring.Component):
    """Answers received packets with control packets, whose content is read when they are built.

    Triggers wait in :class:`SackTriggers`. For each one the tracker is asked for the QP's state; what comes
    back makes the SACK, NACK or NAK. For the transport ACK behind a SACK it is asked again. Everything leaves
    on the plane its trigger came in on. The service time is in the reflected timestamp: the sender sees the
    time on the network alone. An endpoint response needs nothing of the QP whose path it takes. A reliability
    probe of the requester goes out between two answers; of the QP it needs its peer's number.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    settings : records.settings, in
    now : 48, in
        Time, ticks of 128 ns in bits 47:16.
    init : stream of records.receive_init, in
    coming, report : 1, stream of records.received_report, in
    refused : stream of records.refused_packet, in
    nak : stream of records.nak_trigger, in
        See :class:`SackTriggers`.
    tail_probe : stream of records.tail_probe, in
        With ``config.loss_inference``.
    snapshot, snapshot_answer : streams of records.snapshot_request (out) and records.snapshot_answer (in)
    control : stream of records.control_request
    counter : stream of records.counter_event
        SACK_SENT, NACK_SENT, ACK_SENT, NAK_SENT, SACK_TRIGGERS_DROPPED. Endpoint responses and probes have
        none of their own.
    idle : 1

    Source: protocol.md 1.9 to 1.14, 3.4 to 3.6 and 7 (Q3, Q8, Q9, Q15, Q24); profile.md 5.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "settings": In(records.settings(config)),
                "now": In(48),
                "init": In(stream.Signature(records.receive_init(config))),
                "coming": In(1),
                "report": In(stream.Signature(records.received_report(config))),
                "refused": In(stream.Signature(records.refused_packet(config))),
                "nak": In(stream.Signature(records.nak_trigger(config))),
                "tail_probe": In(stream.Signature(records.tail_probe(config))),
                "snapshot": Out(stream.Signature(records.snapshot_request(config))),
                "snapshot_answer": In(stream.Signature(records.snapshot_answer(config))),
                "control": Out(stream.Signature(records.control_request(config))),
                "counter": Out(stream.Signature(records.counter_event(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.triggers = triggers = SackTriggers(config)
        for name in ("init", "report", "refused", "nak"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(triggers, name))
        m.d.comb += [triggers.settings.eq(self.settings), triggers.coming.eq(self.coming)]

        # What the trigger is answered by.
        trigger = triggers.trigger.payload
        state = self.snapshot_answer.payload
        acknowledging = Signal()  # the transport ACK behind a SACK
        is_nack = Signal()
        is_nak = Signal()
        is_sack = Signal()
        of_probe = Signal()
        to_endpoint = Signal()
        transport = Signal()
        assert AnswerKind.NAK_PSN_SEQUENCE == 4 and AnswerKind.NACK_TRIMMED == 8, "the two high bits"
        m.d.comb += [
            is_nack.eq(trigger.kind[3]),
            is_nak.eq(trigger.kind[2:] == 1),
            of_probe.eq(trigger.kind == AnswerKind.SACK_OF_PROBE),
            to_endpoint.eq(trigger.kind == AnswerKind.ENDPOINT_RESPONSE),
            is_sack.eq(~trigger.kind[2:].any() & ~to_endpoint & ~acknowledging),
            transport.eq(is_nak | acknowledging),
        ]
        reason = Signal(8)
        with m.Switch(trigger.kind):
            for kind, code in NACK_REASONS.items():
                with m.Case(kind):
                    m.d.comb += reason.eq(code)

        question = self.tail_probe.payload
        asking = Signal()  # what is built is a probe
        qp = Signal.like(trigger.qp)
        m.d.comb += qp.eq(Mux(asking, question.qp, trigger.qp))
        own_low = QP_NUMBER_BASE | qp
        reflected = Signal(16)
        m.d.comb += reflected.eq(Mux(trigger.timestamped, trigger.age + self.now[16:32], 0))
        psn = Signal(24)
        m.d.comb += psn.eq(Mux(is_nack | is_nak | to_endpoint, trigger.psn, state.cumulative_psn))

        # PSN of the trigger from the cumulative PSN; a duplicate may be further below than 16 bits reach.
        distance = Signal(24)
        offset = Signal(16)
        base = Signal(len(state.base))
        m.d.comb += [
            distance.eq(trigger.psn - state.cumulative_psn),
            offset.eq(Mux(of_probe, trigger.psn, Mux(distance[-1] & ~distance[15:].all(), 0x8000, distance))),
            base.eq(state.base - state.cumulative_psn),
        ]

        def laid_out(header: str, **values: object) -> Signal:
            view = Signal(layouts.LAYOUTS[header], name=header)
            m.d.comb += [view[name].eq(value) for name, value in values.items()]
            return view

        seth = laid_out(
            "seth",
            m=Mux(trigger.marked, wire.Mark.SKIP_ONCE, wire.Mark.NONE),
            pr=of_probe,
            ack_psn_offset=offset.as_signed(),
            entropy=trigger.ev,
            spdcid=own_low,
            dpdcid=state.peer_qpn_low,
            cack_psn=psn,
            mpr=min(config.mpr_psns // wire.MPR_UNIT_PSNS, 255),
            sack_offset=base.as_signed(),
            sack_bitmap=state.bitmap,
        )
        cc_state = laid_out(
            "cc_state", tx_timestamp=reflected, ooo_count=state.ooo_count, rcvd_bytes=state.received_units
        )
        neth = laid_out(
            "neth", nack_reason=reason, cc_type=wire.NETH["cc_type"].default, tx_timestamp=reflected
        )
        aeth = laid_out(
            "aeth",
            syndrome=Mux(is_nak, AethSyndrome.NAK_PSN_SEQUENCE | trigger.kind[:2], AethSyndrome.ACK),
            msn=state.message_number,
        )

        eeth = laid_out("eeth", op=Cat(trigger.marked, trigger.retransmission))

        peth = laid_out(
            "peth", probe_id=question.number, tx_timestamp=self.now[16:32], ftype=wire.PETH["ftype"].default
        )
        assert all(wire.PETH.offset(name) == wire.SETH.offset(name) for name in ("spdcid", "dpdcid"))

        # Headers stand at the upper end of the body; what follows a shorter one than SETH is ignored. NETH
        # has EV, QPs and PSN where SETH has them; AETH is one word; EETH has the time where CC_STATE has it.
        body = Signal(BODY_BITS)
        words = Signal(4)
        opcode = Signal(8)
        count_kind = Signal(range(4))

        def word(number: int, value: Value) -> Value:
            """One word of the body, or of a header that is laid out like it."""
            end = len(value) - _WORD * number
            return value[end - _WORD : end]

        m.d.comb += body.eq(Cat(cc_state, seth))
        with m.If(asking):
            m.d.comb += [
                *(word(number, body).eq(word(number, Value.cast(peth))) for number in (0, 1, 3)),
                words.eq(wire.PETH.bits // _WORD),
                opcode.eq(wire.Opcode.PROBE),
            ]
        with m.Elif(transport):
            m.d.comb += [
                word(0, body).eq(aeth),
                words.eq(wire.AETH.bits // _WORD),
                opcode.eq(wire.Opcode.ACKNOWLEDGE),
                count_kind.eq(Mux(is_nak, GlobalCounter.NAK_SENT, GlobalCounter.ACK_SENT)),
            ]
        with m.Elif(is_nack):
            m.d.comb += [
                *(word(number, body).eq(word(number, Value.cast(neth))) for number in (0, 4)),
                words.eq(wire.NETH.bits // _WORD),
                opcode.eq(wire.Opcode.NACK),
                count_kind.eq(GlobalCounter.NACK_SENT),
            ]
        with m.Elif(to_endpoint):
            m.d.comb += [
                word(0, body).eq(word(0, Value.cast(eeth))),
                words.eq(wire.EETH.bits // _WORD),
                opcode.eq(wire.Opcode.ENDPOINT_RESPONSE),
            ]
        with m.Else():
            m.d.comb += [
                words.eq((wire.SETH.bits + wire.CC_STATE.bits) // _WORD),
                opcode.eq(wire.Opcode.SACK),
                count_kind.eq(GlobalCounter.SACK_SENT),
            ]

        control = self.control
        load = Signal()
        with m.If(control.ready):
            m.d.sync += control.valid.eq(0)
        with m.If(load):
            m.d.sync += [
                control.valid.eq(1),
                control.payload.psn.eq(psn),
                control.payload.qp.eq(qp),
                control.payload.plane.eq(Mux(asking, question.plane, trigger.plane)),
                control.payload.opcode.eq(opcode),
                control.payload.retransmission.eq(is_sack & trigger.retransmission & ~asking),
                control.payload.body.eq(body),
                control.payload.body_words.eq(words),
            ]
            # All else in EETH is reserved. A reset of the register, which costs nothing.
            with m.If(to_endpoint & ~asking):
                stamp = range(*_bits_of(wire.EETH, "tx_timestamp"))
                first = range(BODY_BITS - _WORD, BODY_BITS)
                m.d.sync += [
                    control.payload.body[bit].eq(0)
                    for bit in range(BODY_BITS)
                    if bit not in stamp and bit not in first
                ]
            with m.If(asking):
                m.d.sync += control.payload.psn.eq(0)

        # Counts: the packet, and refused triggers in between. The bank takes each in a bounded time.
        counting = Signal()
        counted_kind = Signal.like(count_kind)
        refused_triggers = Signal(4)  # beside the one that is offered
        offers_refused = Signal()
        moves = Signal()
        count_base = config.planes * records.PORT_COUNTERS
        m.d.comb += [
            self.counter.valid.eq(counting | offers_refused),
            self.counter.payload.index.eq(
                count_base + Mux(offers_refused, GlobalCounter.SACK_TRIGGERS_DROPPED, counted_kind)
            ),
            moves.eq(refused_triggers.any() & ~self.counter.valid & ~load),
        ]
        with m.If(self.counter.ready):
            m.d.sync += offers_refused.eq(0)
            with m.If(~offers_refused):
                m.d.sync += counting.eq(0)
        with m.If(load & ~to_endpoint & ~asking):
            m.d.sync += [counting.eq(1), counted_kind.eq(count_kind)]
        with m.If(moves):
            m.d.sync += offers_refused.eq(1)
        with m.If(triggers.dropped & ~moves & ~refused_triggers.all()):
            m.d.sync += refused_triggers.eq(refused_triggers + 1)
        with m.Elif(moves & ~triggers.dropped):
            m.d.sync += refused_triggers.eq(refused_triggers - 1)

        # Asked only when the answer can be taken at once, so that the tracker never waits for a port.
        busy = Signal()
        m.d.comb += [
            busy.eq(1),
            self.snapshot.payload.qp.eq(qp),
            self.snapshot.payload.reported.eq(is_sack & ~asking),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [
                    busy.eq(0),
                    self.snapshot.valid.eq((triggers.trigger.valid | asking) & ~control.valid & ~counting),
                ]
                # Not while the snapshot is asked for, nor between a SACK and its transport ACK.
                if config.loss_inference:
                    with m.If(~self.snapshot.valid & ~acknowledging):
                        m.d.sync += asking.eq(self.tail_probe.valid)
                with m.If(self.snapshot.valid & self.snapshot.ready):
                    m.next = "BUILD"
            with m.State("BUILD"):
                m.d.comb += self.snapshot_answer.ready.eq(1)
                with m.If(self.snapshot_answer.valid):
                    m.d.comb += [load.eq(1), self.tail_probe.ready.eq(asking)]
                    m.d.sync += asking.eq(0)
                    with m.If(~asking):
                        m.d.sync += acknowledging.eq(
                            ~acknowledging & (trigger.kind == AnswerKind.SACK_AND_ACK)
                        )
                        m.d.comb += triggers.trigger.ready.eq(
                            acknowledging | (trigger.kind != AnswerKind.SACK_AND_ACK)
                        )
                    m.next = "IDLE"

        counts = self.counter.valid | refused_triggers.any()
        m.d.comb += self.idle.eq(~busy & triggers.idle & ~control.valid & ~counts & ~self.tail_probe.valid)
        return m
