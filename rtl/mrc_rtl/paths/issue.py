"""From a decision to the plan of a frame, and what the requester and a trace learn of it."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..frame_image import image_head
from ..records import TraceKind, image_row_bits, plane_bits, trace_record, transmit_plan
from ..records import settings as settings_layout
from ..requester.records import send_slot_bits, sent_record
from ..wire import Ecn, Opcode

__all__ = ["Issue", "bind_detail", "decision"]


def bind_detail() -> data.StructLayout:
    """``detail`` of a BIND trace record."""
    return data.StructLayout(
        {"ev": 32, "time": 16, "opcode": 8, "retransmission": 1, "control": 1, "discard": 1, "unused": 5}
    )


def decision(config: NicConfig) -> data.StructLayout:
    """How a waiting packet leaves. ``ev_index`` is the number of its entropy value in ``block``.

    With ``discard`` it does not; then ``stranded`` says that its QP sends, but has no plane to do so.
    """
    return data.StructLayout(
        {
            "control": 1,
            "row": image_row_bits(config),
            "discard": 1,
            "stranded": 1,
            "qp": config.qp_bits,
            "plane": plane_bits(config),
            "block": max(1, (config.ev_profiles * config.planes - 1).bit_length()),
            "ev_index": 5,
        }
    )


class Issue(wiring.Component):
    """Takes a decision, collects the packet's head and its entropy value, and offers the plan.

    Whether the QP still sends is looked at one cycle after the decision, so that none that was stopped in
    the meantime has its data sent. The next decision is taken while the plan waits, not before the plan, the
    record of what was sent and the trace record of the one before are taken, so that none is lost.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    leave, decision : In(1), In(:func:`decision`)
        Pulse, only while ``free``.
    free : Out(1)
    busy, plane : Out(1), Out(plane bits)
        A decision for this plane is not yet counted in the transmitter's room. ``plane`` stays behind it.
    sending : In(1)
        State of the QP, one cycle after ``leave``.
    slot_write, slot_row, send_slot : In
        Keep the send request of the data packet in a slot.
    ask, ask_row, answer, head, opcode
        See :class:`mrc_rtl.paths.images.PacketImages`.
    read, block, index, value
        See :class:`mrc_rtl.paths.spray.EvValues`.
    plan, sent, settings, now, trace
        As of :class:`mrc_rtl.paths.bind.Bind`.
    idle : Out(1)
        No decision is on its way.

    Source: design.md 4 rules 5 and 6; profile.md 6.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        layout = decision(config)
        members = {
            "leave": In(1),
            "decision": In(layout),
            "free": Out(1),
            "busy": Out(1),
            "plane": Out(plane_bits(config)),
            "sending": In(1),
            "slot_write": In(1),
            "slot_row": In(max(1, (config.transmit_slots - 1).bit_length())),
            "send_slot": In(send_slot_bits(config)),
            "ask": Out(1),
            "ask_row": Out(image_row_bits(config)),
            "answer": In(1),
            "head": In(image_head(config)),
            "opcode": In(8),
            "read": Out(1),
            "block": Out(layout["block"].shape),
            "index": Out(5),
            "value": In(32),
            "plan": Out(stream.Signature(transmit_plan(config))),
            "sent": Out(stream.Signature(sent_record(config))),
            "settings": In(settings_layout(config)),
            "now": In(48),
            "idle": Out(1),
        }
        if config.trace:
            members["trace"] = Out(stream.Signature(trace_record(config)))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        current = Signal(decision(config))
        waits = Signal()  # for the head
        left = Signal()
        left_before = Signal()
        sending = Signal()
        value = Signal(32)
        sent_at = Signal(16)
        head = Signal(image_head(config))
        m.submodules.send_slots = slots = Memory(
            shape=send_slot_bits(config), depth=config.transmit_slots, init=[]
        )
        slot_write, slot_read = slots.write_port(), slots.read_port(domain="comb")
        m.d.comb += [
            slot_write.addr.eq(self.slot_row),
            slot_write.data.eq(self.send_slot),
            slot_write.en.eq(self.slot_write),
            slot_read.addr.eq(current.row),
        ]

        def waits_for(output: stream.Interface) -> Value:
            """A record is not yet taken; where there is time for it, this is known a cycle later."""
            return output.valid & ~output.ready if config.packet_interval <= 4 else output.valid

        plan, sent = self.plan.payload, self.sent.payload
        gone = Signal()
        all_taken = Signal()
        counted = Signal()
        m.d.comb += [
            self.read.eq(left),
            self.block.eq(current.block),
            self.index.eq(current.ev_index),
            self.ask.eq(left),
            self.ask_row.eq(current.row),
            gone.eq(~current.control & ((current.discard & ~current.stranded) | ~sending)),
            all_taken.eq(~(waits_for(self.plan) | waits_for(self.sent))),
            self.free.eq(~waits & all_taken),
            # Room is registered: it shows a plan one cycle after it is on offer.
            self.busy.eq(waits | counted),
            self.plane.eq(current.plane),
        ]
        m.d.sync += [left.eq(self.leave), left_before.eq(left), counted.eq(waits)]
        with m.If(self.leave):
            m.d.sync += [waits.eq(1), current.eq(self.decision)]
        with m.If(left):
            m.d.sync += sending.eq(self.sending)
        with m.If(left_before):
            m.d.sync += value.eq(self.value)
        with m.If(self.plan.ready):
            m.d.sync += self.plan.valid.eq(0)
        with m.If(self.sent.ready):
            m.d.sync += self.sent.valid.eq(0)
        endpoint = Signal()
        with m.If(self.answer):
            m.d.sync += [
                waits.eq(0),
                head.eq(self.head),
                endpoint.eq(current.control & (self.opcode == Opcode.ENDPOINT_RESPONSE)),
                sent_at.eq(self.now[16:32]),
                self.plan.valid.eq(1),
                self.sent.valid.eq(~current.control),
            ]

        settings = self.settings
        data_dscp = Mux(
            settings.trimming,
            Mux(head.retransmission, settings.dscp_retransmission, settings.dscp_trimmable),
            settings.dscp_no_trim,
        )
        m.d.comb += [
            plan.qp.eq(current.qp),
            plan.plane.eq(current.plane),
            plan.data.eq(~current.control),
            plan.discard.eq(gone | (current.stranded & ~current.control)),
            plan.endpoint.eq(endpoint),
            plan.ev.eq(value),
            plan.dscp.eq(Mux(current.control, settings.dscp_control, data_dscp)),
            plan.ecn.eq(Mux(current.control, Ecn.NOT_ECT, Ecn.ECT0)),
            plan.retransmission.eq(head.retransmission),
            plan.time.eq(sent_at),
            plan.body_words.eq(head.body_words),
            plan.row.eq(current.row),
            plan.length.eq(head.length),
            sent.qp.eq(current.qp),
            sent.psn.eq(head.psn),
            sent.plane.eq(current.plane),
            sent.ev_index.eq(current.ev_index),
            sent.ev.eq(value),
            sent.send_slot.eq(slot_read.data),
            sent.retransmission.eq(head.retransmission),
            sent.discard.eq(gone),
            sent.time.eq(sent_at),
        ]
        m.d.comb += self.idle.eq(~(waits | self.plan.valid | self.sent.valid))
        if config.trace:
            trace = self.trace.payload
            detail = bind_detail()(trace.detail)
            opcode = Signal(8)
            with m.If(self.answer):
                m.d.sync += opcode.eq(self.opcode)
            traced = Signal()
            m.d.sync += traced.eq(self.answer)
            with m.If(self.trace.ready):
                m.d.sync += self.trace.valid.eq(0)
            with m.If(traced):
                m.d.sync += [
                    self.trace.valid.eq(1),
                    trace.kind.eq(TraceKind.BIND),
                    trace.qp.eq(current.qp),
                    trace.plane.eq(current.plane),
                    trace.psn.eq(head.psn),
                    detail.ev.eq(value),
                    detail.time.eq(sent_at),
                    detail.opcode.eq(opcode),
                    detail.retransmission.eq(head.retransmission),
                    detail.control.eq(current.control),
                    detail.discard.eq(gone),
                ]
            trace_waits = traced | waits_for(self.trace)
            m.d.comb += [
                self.free.eq(~waits & all_taken & ~trace_waits),
                self.idle.eq(~(waits | self.plan.valid | self.sent.valid | traced | self.trace.valid)),
            ]
        return m
