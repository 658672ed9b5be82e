"""A QP's turn to send: the sequencer's states that open requests and give out new packets."""

from typing import TYPE_CHECKING

from amaranth.hdl import Signal

from ..tables import CompletionStatus, QpErrorReason
from .sack_merge import WORD_LOG2
from .segmenter import mtu_exponents

if TYPE_CHECKING:
    from .sequencer import Sequencer

__all__ = ["BURST", "add_states"]

#: Packets of one turn while others wait.
BURST = 4


def add_states(s: "Sequencer") -> None:
    """Add CHECK, SIZE, OPEN and EMIT: one packet takes two cycles, one that opens its request four.

    The last PSN of a message stands in the context from the moment its request is opened, so nothing depends
    on the length of a message. ``ack_request`` is set on the last packet before the QP stops: end of what is
    posted, end of the window, end of the immediates allowed.

    Source: protocol.md 2.4 (send conditions), 7-Q6; profile.md 5 (window).
    """
    m, context = s.m, s.context
    psns, queue, progress, limits = context.psns, context.queue, context.progress, context.limits
    burst = Signal(range(BURST))
    window_end = Signal()
    count = Signal(24)
    immediate = Signal()
    slots = len(queue.open) - 1
    immediates_full = Signal()
    m.d.comb += [
        immediates_full.eq(queue.immediates >= limits.max_immediates),
        s.new_job.qp.eq(s.qp),
        s.give_slot.eq((queue.open - 1)[:slots]),
        s.message.first.eq(psns.next),
        s.message.rqmsn.eq(progress.rqmsn),
        s.message.msn.eq(queue.completed + (queue.open - s.completed_count)[: slots + 1]),
        s.message_last.eq(psns.next + count),
    ]
    with m.State("CHECK"):
        m.d.sync += window_end.eq(s.outstanding + 1 == limits.mpr_psns)
        more = progress.message_open | ((queue.open != queue.posted) & ~progress.blocked)
        enough = (burst == BURST - 1) & s.others
        m.next = "TAIL"
        with m.If(s.rts & more & (s.outstanding < limits.mpr_psns) & s.jobs.w_rdy & ~enough):
            m.next = "SIZE"
            with m.If(progress.message_open):
                m.next = "EMIT"
        with m.Else():
            m.d.sync += burst.eq(0)
    with m.State("SIZE"):
        m.next = "OPEN"
        with m.Switch(context.settings.mtu_log2):
            for exponent in mtu_exponents(s.config):
                with m.Case(exponent):
                    m.d.sync += count.eq((s.info.length - 1)[:32] >> exponent)
        with m.If(s.info.length == 0):
            m.d.sync += count.eq(0)
        m.d.sync += immediate.eq(s.info.immediate)
        with m.If(~s.info.valid):
            s.fail(CompletionStatus.GENERAL_ERROR, QpErrorReason.LOCAL_PROTECTION, queue.open[:slots])
            m.next = "TAIL"
        with m.Elif(s.info.immediate & immediates_full):
            m.d.sync += progress.blocked.eq(1)
            m.next = "TAIL"
    with m.State("OPEN"):
        m.d.comb += s.message_write.eq(1)
        m.d.sync += [
            psns.last.eq(s.message_last),
            queue.open.eq(queue.open + 1),
            queue.immediates.eq(queue.immediates + immediate),
            progress.rqmsn.eq(progress.rqmsn + immediate),
            progress.message_open.eq(1),
            progress.message_immediate.eq(immediate),
        ]
        m.next = "EMIT"
    with m.State("EMIT"):
        last = Signal()
        stop = Signal()
        m.d.comb += [
            last.eq(psns.next == psns.last),
            stop.eq((queue.open == queue.posted) | (progress.message_immediate & immediates_full)),
            s.jobs.w_en.eq(1),
            s.new_job.ack_request.eq(window_end | (last & stop)),
            s.give.eq(1),
            s.clear.eq(psns.next[:WORD_LOG2] == 0),
            s.event.eq(1),
        ]
        m.d.sync += psns.next.eq(psns.next + 1)
        with m.If(last):
            m.d.sync += progress.message_open.eq(0)
        with m.If(burst != BURST - 1):
            m.d.sync += burst.eq(burst + 1)
        m.next = "CHECK"
