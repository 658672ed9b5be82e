"""Builds SACKs, NACKs, transport ACKs and NAKs."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .. import layouts, records, wire
from ..config import QP_NUMBER_BASE, NicConfig
from ..record_streams import RecordArbiter
from ..records import BODY_BITS, GlobalCounter
from .sack_triggers import NAK_SOURCES, SackTriggers

__all__ = ["SackGenerator"]

_WORD = 32


class SackGenerator(wiring.Component):
    """Answers received packets with control packets, whose content is read when they are built.

    Triggers wait in :class:`SackTriggers`. For each one the tracker is asked for the QP's state; what comes
    back makes the SACK and, when one is due, the transport ACK behind it, or the NACK or NAK. Everything
    leaves on the plane its trigger came in on. The service time is in the reflected timestamp: the sender
    sees the time on the network alone.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    settings : records.settings, in
    now : 48, in
        Time, ticks of 128 ns in bits 47:16.
    init : stream of records.receive_init, in
    report : stream of records.received_report, in
    nack, naks : streams of records.nack_trigger, in
        See :class:`SackTriggers`.
    snapshot, snapshot_answer : streams of records.snapshot_request (out) and records.snapshot_answer (in)
    control : stream of records.control_request
    counter : stream of records.counter_event
        SACK_SENT, NACK_SENT, ACK_SENT, NAK_SENT, SACK_TRIGGERS_DROPPED.
    idle : 1

    Source: protocol.md 1.9 to 1.11, 3.4 to 3.6 and 7 (Q8, Q9, Q15, Q24); profile.md 5.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "settings": In(records.settings(config)),
                "now": In(48),
                "init": In(stream.Signature(records.receive_init(config))),
                "report": In(stream.Signature(records.received_report(config))),
                "nack": In(stream.Signature(records.nack_trigger(config))),
                "naks": In(stream.Signature(records.nack_trigger(config))).array(NAK_SOURCES),
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
        m.submodules.counters = counters = RecordArbiter(records.counter_event(config), 2)
        wiring.connect(m, triggers.counter, counters.inputs[0])
        wiring.connect(m, counters.output, wiring.flipped(self.counter))
        for name in ("init", "report", "nack"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(triggers, name))
        for source, port in zip(self.naks, triggers.naks, strict=True):
            wiring.connect(m, wiring.flipped(source), port)
        m.d.comb += triggers.settings.eq(self.settings)

        trigger = triggers.trigger.payload
        state = self.snapshot_answer.payload
        own_low = QP_NUMBER_BASE | trigger.qp
        reflected = Signal(16)
        m.d.comb += reflected.eq(Mux(trigger.timestamped, trigger.age + self.now[16:32], 0))

        # PSN of the trigger from the cumulative PSN; a duplicate may be further below than 16 bits reach.
        distance = Signal(24)
        offset = Signal(16)
        m.d.comb += [
            distance.eq(trigger.psn - state.cumulative_psn),
            offset.eq(Mux(distance[-1] & ~distance[15:].all(), 0x8000, distance)),
        ]

        def laid_out(header: str, **values: object) -> Signal:
            view = Signal(layouts.LAYOUTS[header], name=header)
            m.d.comb += [view[name].eq(value) for name, value in values.items()]
            return view

        seth = laid_out(
            "seth",
            m=Mux(trigger.marked, wire.Mark.SKIP_ONCE, wire.Mark.NONE),
            ack_psn_offset=offset.as_signed(),
            entropy=trigger.ev,
            spdcid=own_low,
            dpdcid=state.peer_qpn_low,
            cack_psn=state.cumulative_psn,
            mpr=min(config.mpr_psns // wire.MPR_UNIT_PSNS, 255),
            sack_offset=(state.base - state.cumulative_psn)[:16].as_signed(),
            sack_bitmap=state.bitmap,
        )
        cc_state = laid_out(
            "cc_state", tx_timestamp=reflected, ooo_count=state.ooo_count, rcvd_bytes=state.received_units
        )
        neth = laid_out(
            "neth",
            nack_reason=trigger.code,
            entropy=trigger.ev,
            spdcid=own_low,
            dpdcid=state.peer_qpn_low,
            nack_psn=trigger.psn,
            cc_type=wire.NETH["cc_type"].default,
            tx_timestamp=reflected,
        )
        answer = Signal()  # the transport ACK behind a SACK
        kept_message_number = Signal(24)
        aeth = laid_out(
            "aeth",
            syndrome=Mux(trigger.sack, wire.AethSyndrome.ACK, trigger.code),
            msn=Mux(answer, kept_message_number, state.message_number),
        )
        transport = answer | trigger.nak

        # Headers stand at the upper end of the body; what follows a shorter one than SETH is ignored.
        body = Signal(BODY_BITS)
        words = Signal(4)
        opcode = Signal(8)
        kind = Signal(range(4))

        def front(header: Signal) -> Value:
            return body[BODY_BITS - len(header.as_value()) :]

        m.d.comb += body.eq(Cat(cc_state, seth))
        with m.If(transport):
            m.d.comb += [
                front(aeth).eq(aeth),
                words.eq(wire.AETH.bits // _WORD),
                opcode.eq(wire.Opcode.ACKNOWLEDGE),
                kind.eq(Mux(trigger.nak, GlobalCounter.NAK_SENT, GlobalCounter.ACK_SENT)),
            ]
        with m.Elif(trigger.sack):
            m.d.comb += [
                words.eq((wire.SETH.bits + wire.CC_STATE.bits) // _WORD),
                opcode.eq(wire.Opcode.SACK),
                kind.eq(GlobalCounter.SACK_SENT),
            ]
        with m.Else():
            m.d.comb += [
                front(neth).eq(neth),
                words.eq(wire.NETH.bits // _WORD),
                opcode.eq(wire.Opcode.NACK),
                kind.eq(GlobalCounter.NACK_SENT),
            ]

        control = self.control
        load = Signal()
        # The count of the packet goes the same way at the same time.
        count = counters.inputs[1]
        counting = Signal()
        m.d.comb += [
            count.valid.eq(counting),
            self.snapshot.payload.qp.eq(trigger.qp),
            self.snapshot.payload.reported.eq(trigger.sack),
        ]
        with m.If(count.ready):
            m.d.sync += counting.eq(0)
        with m.If(control.ready):
            m.d.sync += control.valid.eq(0)
        room = (~control.valid | control.ready) & (~counting | count.ready)
        # The transport ACK has the cumulative PSN of the SACK before it, which is there already.
        with m.If(load & ~answer):
            m.d.sync += control.payload.psn.eq(Mux(trigger.sack, state.cumulative_psn, trigger.psn))
        with m.If(load):
            m.d.sync += [
                control.valid.eq(1),
                control.payload.qp.eq(trigger.qp),
                control.payload.plane.eq(trigger.plane),
                control.payload.opcode.eq(opcode),
                control.payload.retransmission.eq(trigger.sack & ~answer & trigger.retransmission),
                control.payload.body.eq(body),
                control.payload.body_words.eq(words),
                counting.eq(1),
                count.payload.index.eq(config.planes * records.PORT_COUNTERS + kind),
            ]

        busy = Signal()
        asking = Signal()
        m.d.comb += busy.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                # Asked only when the answer can be taken at once, so that the tracker never waits for a port.
                m.d.comb += [busy.eq(0), self.snapshot.valid.eq(asking)]
                with m.If(triggers.trigger.valid & room):
                    m.d.sync += asking.eq(1)
                with m.If(asking & self.snapshot.ready):
                    m.d.sync += asking.eq(0)
                    m.next = "BUILD"
            with m.State("BUILD"):
                m.d.comb += self.snapshot_answer.ready.eq(1)
                with m.If(self.snapshot_answer.valid):
                    m.d.comb += load.eq(1)
                    m.d.sync += kept_message_number.eq(state.message_number)
                    with m.If(trigger.sack & trigger.ack):
                        m.next = "ACKNOWLEDGE"
                    with m.Else():
                        m.d.comb += triggers.trigger.ready.eq(1)
                        m.next = "IDLE"
            with m.State("ACKNOWLEDGE"):
                m.d.comb += answer.eq(1)
                with m.If(room):
                    m.d.comb += [load.eq(1), triggers.trigger.ready.eq(1)]
                    m.next = "IDLE"

        m.d.comb += self.idle.eq(~busy & triggers.idle & counters.idle & ~control.valid & ~counting)
        return m
