"""Trace records of the sequencer: what feedback and timeouts did to a QP."""

from typing import TYPE_CHECKING

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib import data

from ..records import GlobalCounter, TraceKind
from ..tables import QpState
from .queues import Operation

if TYPE_CHECKING:
    from .sequencer import Sequencer

__all__ = ["add", "loss_detail", "merge_detail", "timer_detail"]


def merge_detail() -> data.StructLayout:
    """``detail`` of a MERGE record, whose PSN is the one the feedback is about (a SACK's: cack_psn + 1).

    ``unacked`` and ``unacked_after`` are the oldest PSN not covered before and behind it; ``failed``: it
    ended the QP.
    """
    return data.StructLayout(
        {"opcode": 8, "ignored": 1, "failed": 1, "unused": 6, "unacked": 24, "unacked_after": 24}
    )


def timer_detail() -> data.StructLayout:
    """``detail`` of a TIMER record, whose PSN is the one that is late.

    ``attempt`` counts timeouts since the last progress, this one included; ``idle``: nothing was late;
    ``failed``: retries are exhausted. ``unacked`` and ``next`` are the oldest PSN not covered and the next
    new one.
    """
    return data.StructLayout({"attempt": 5, "idle": 1, "failed": 1, "unused": 9, "unacked": 24, "next": 24})


def loss_detail() -> data.StructLayout:
    """``detail`` of a LOSS record: the plane and the number of the entropy value the packet left on.

    ``urgent``: a timeout says so. The record of the feedback, or of the timeout, follows.
    """
    return data.StructLayout({"ev_index": 5, "plane": 11, "urgent": 1})


def add(s: "Sequencer") -> None:
    """Add the registers and the stream ``trace``: a record for each feedback, each timeout and each loss."""
    m, context, trace = s.m, s.context, s.trace
    opcode = Signal(8)
    plane = Signal.like(s.feedback.payload.plane)
    before = Signal(24)
    psn = Signal(24)
    ignored = Signal()
    timed_out = Signal()
    with m.If(trace.ready):
        m.d.sync += trace.valid.eq(0)
    with m.If(s.looking):
        m.d.sync += [
            opcode.eq(s.feedback.payload.opcode),
            plane.eq(s.feedback.payload.plane),
            before.eq(context.psns.unacked),
            psn.eq(s.look_psn),
            ignored.eq(0),
            timed_out.eq(0),
        ]
    first = s.counts.w_data == s.counter_base + GlobalCounter.FEEDBACK_IGNORED
    with m.If(s.counts.w_en & first):
        m.d.sync += ignored.eq(1)
    with m.If(s.counts.w_en & (s.counts.w_data == s.counter_base + GlobalCounter.TIMEOUTS)):
        m.d.sync += timed_out.eq(1)

    is_timer = s.operation == Operation.TIMEOUT
    failed = s.announce & (context.state == QpState.ERROR)
    merge = Signal(merge_detail(), name="merge_record")
    timer = Signal(timer_detail(), name="timer_record")
    m.d.comb += [
        merge.opcode.eq(opcode),
        merge.ignored.eq(ignored),
        merge.failed.eq(failed),
        merge.unacked.eq(before),
        merge.unacked_after.eq(context.psns.unacked),
        timer.attempt.eq(context.progress.attempt),
        timer.idle.eq(~timed_out & ~failed),
        timer.failed.eq(failed),
        timer.unacked.eq(context.psns.unacked),
        timer.next.eq(context.psns.next),
    ]
    with m.If(s.ending & ((s.operation == Operation.FEEDBACK) | (is_timer & ~s.is_tail))):
        m.d.sync += [
            trace.valid.eq(1),
            trace.payload.kind.eq(Mux(is_timer, TraceKind.TIMER, TraceKind.MERGE)),
            trace.payload.qp.eq(s.qp),
            trace.payload.plane.eq(Mux(is_timer, 0, plane)),
            trace.payload.psn.eq(Mux(is_timer, s.look_psn, psn)),
            trace.payload.detail.eq(Mux(is_timer, Cat(timer), Cat(merge))),
        ]
    loss = Signal(loss_detail(), name="loss_record")
    m.d.comb += [
        loss.ev_index.eq(s.suspect.ev_index),
        loss.plane.eq(s.suspect.plane),
        loss.urgent.eq(is_timer),
    ]
    with m.If(s.losing):
        m.d.sync += [
            trace.valid.eq(1),
            trace.payload.kind.eq(TraceKind.LOSS),
            trace.payload.qp.eq(s.qp),
            trace.payload.plane.eq(s.suspect.plane),
            trace.payload.psn.eq(s.look_psn),
            trace.payload.detail.eq(loss),
        ]
