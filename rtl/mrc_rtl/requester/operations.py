"""What each operation of the sequencer does to a send context, one function per kind.

Every function adds the logic of one cycle, state ACT: context, place of the PSN and the tracker's answers are
there. Source: profile.md 4 and 7, protocol.md 1.9 to 1.11 and 2.4.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from amaranth.hdl import Mux, Signal

from ..records import CongestionKind, GlobalCounter, PathOperation
from ..tables import CompletionStatus, QpErrorReason, QpState
from ..wire import AethSyndrome, NackReason
from . import losses
from .qp_table import command_fields
from .timers import MAXIMUM_EXPONENT

if TYPE_CHECKING:
    from .sequencer import Sequencer

__all__ = ["ACTIONS", "weigh_host"]


def _sent(s: "Sequencer") -> None:
    s.m.d.comb += [s.clear_queued.eq(1), s.again.ready.eq(1)]


def _failed(s: "Sequencer") -> None:
    m = s.m
    m.d.comb += [s.failed.ready.eq(1), s.happens.eq(1), s.happens_down.eq(1)]
    with m.If(s.rts):
        s.fail(CompletionStatus.LOCAL_PROTECTION_ERROR, QpErrorReason.LOCAL_PROTECTION, s.failed.payload.slot)


def _error(s: "Sequencer") -> None:
    m, state = s.m, s.context.state
    reason = s.error_in.payload.reason
    m.d.comb += s.error_in.ready.eq(1)
    with m.If(reason == QpErrorReason.LOCAL_READ):
        # The packet whose payload could not be read is gone.
        m.d.comb += [s.happens.eq(1), s.happens_down.eq(1)]
    with m.If((state != QpState.RESET) & (state != QpState.ERROR)):
        m.d.sync += [state.eq(QpState.ERROR), s.complete.eq(1)]
        with m.If(reason == QpErrorReason.LOCAL_READ):
            m.d.sync += [
                s.context.progress.failed.eq(1),
                s.context.progress.failed_slot.eq(s.completed_slot),
                s.context.progress.failed_status.eq(CompletionStatus.GENERAL_ERROR),
            ]


def _feedback(s: "Sequencer") -> None:
    m, progress = s.m, s.context.progress
    stale = s.relative[23]
    m.d.comb += s.feedback.ready.eq(1)

    def ignore() -> None:
        s.count(GlobalCounter.FEEDBACK_IGNORED)

    def advance() -> None:
        with m.If(s.advances):
            s.progressed()
            losses.pass_by(s)

    with m.If(~s.rts):
        ignore()
    with m.Elif(s.is_sack):
        with m.If(s.acceptable | stale):
            m.d.comb += s.feedback.ready.eq(0)
            m.next = "TRIGGER"
            advance()
        with m.Else():
            ignore()
    with m.Elif(s.is_nack):
        _nack(s, ignore)
    with m.Elif(s.is_ack):
        with m.If(s.acceptable | stale):
            advance()
            with m.If(s.ack_advances):
                m.d.sync += [progress.ack_next.eq(s.look_psn), s.complete.eq(1)]
                s.progressed()
            with m.If(s.at_end):
                s.tell_congestion(CongestionKind.IDLE)
        with m.Else():
            ignore()
    with m.Elif(s.is_nak):
        _nak(s, ignore)
    with m.Else():
        ignore()


def _nack(s: "Sequencer", ignore: Callable[[], None]) -> None:
    """A NACK counts for an outstanding PSN that is not SACKed, and for its last transmission only."""
    m = s.m
    reason = s.neth.nack_reason
    with m.If(~(s.in_window & ~s.was_acked & ~s.was_queued & s.same_ev)):
        ignore()
    with m.Elif(reason == NackReason.UNEXP_EVENT):
        s.fail(CompletionStatus.GENERAL_ERROR, QpErrorReason.UNEXPECTED_EVENT, s.slot)
    with m.Elif((reason == NackReason.TRIMMED) | (reason == NackReason.TRIMMED_LASTHOP)):
        s.retransmit(s.retransmit_queue)
        s.tell_congestion(CongestionKind.NACK, trimmed=True)
        with m.If(reason == NackReason.TRIMMED):
            s.tell_path(PathOperation.SKIP)
    if s.config.go_back_n:
        with m.Elif(s.settings.go_back_n & (reason == NackReason.PSN_OOR_WINDOW)):
            s.go_back()
            s.tell_congestion(CongestionKind.LOSS)
    with m.Else():
        # Also one outside the peer's window: it waits like any other, and is looked at again.
        s.retransmit(s.delay_queue)
        s.tell_congestion(CongestionKind.NACK)


def _nak(s: "Sequencer", ignore: Callable[[], None]) -> None:
    """A transport NAK ends the QP; the request that holds its PSN gets the status."""
    m = s.m
    statuses = {
        AethSyndrome.NAK_INVALID_REQUEST: CompletionStatus.REMOTE_INVALID_REQUEST,
        AethSyndrome.NAK_REMOTE_ACCESS: CompletionStatus.REMOTE_ACCESS_ERROR,
        AethSyndrome.NAK_REMOTE_OPERATIONAL: CompletionStatus.REMOTE_OPERATION_ERROR,
    }
    status = Signal(5)
    known = Signal()
    with m.Switch(s.aeth.syndrome):
        for syndrome, value in statuses.items():
            with m.Case(syndrome):
                m.d.comb += [status.eq(value), known.eq(1)]
    with m.If(known & (s.in_window | s.relative[23]) & ~s.ack_relative[23]):
        # What the tracker does not remember belongs to the oldest request.
        s.fail(status, QpErrorReason.REMOTE_NAK, Mux(s.remembered, s.slot, s.completed_slot))
    with m.Else():
        ignore()


def _timeout(s: "Sequencer") -> None:
    m, progress = s.m, s.context.progress
    waiting = Signal()
    unsent = Signal()
    m.d.comb += [
        waiting.eq(s.rts & s.opened),
        # Everything sent is SACKed (the PSN looked at is the oldest without one), and the oldest request
        # is still being sent: nothing is late.
        unsent.eq(s.at_end & progress.message_open & s.one_opened),
    ]
    with m.If(s.is_tail):
        losses.ask(s)
    with m.Else():
        m.d.sync += s.restart_timer.eq(1)
    with m.If(waiting & ~unsent & ~s.is_tail):
        with m.If(s.exhausted):
            s.fail(CompletionStatus.RETRY_EXCEEDED, QpErrorReason.RETRY_EXCEEDED, s.completed_slot)
        with m.Else():
            s.count(GlobalCounter.TIMEOUTS)
            with m.If(progress.attempt != 31):
                m.d.sync += progress.attempt.eq(progress.attempt + 1)
            with m.If(s.at_end):
                # The oldest request lacks its transport ACK.
                s.retransmit(s.retransmit_queue, again=True)
            if s.config.go_back_n:
                with m.Elif(s.settings.go_back_n):
                    s.go_back()
                    s.tell_congestion(CongestionKind.LOSS)
            with m.Elif(~s.was_queued):
                s.retransmit(s.retransmit_queue)
                s.tell_congestion(CongestionKind.LOSS)
                s.tell_path(PathOperation.LOST)
                m.d.comb += [s.set_blame.eq(1), s.losing.eq(1)]


def weigh_host(s: "Sequencer") -> None:
    """One cycle before the host's command is obeyed: whether it is allowed, and begins a QP anew."""
    fields = command_fields(s.host.payload)
    new, state = fields["state"], s.context.state
    resets = new == QpState.RESET
    mtu_ok = (fields["mtu_log2"] >= 8) & (fields["mtu_log2"] <= s.config.mtu.bit_length() - 1)
    s.m.d.sync += [
        s.starts_anew.eq(((new == QpState.RTS) & ~s.rts) | resets),
        s.refused.eq(
            ~resets
            & (
                ~mtu_ok
                | (fields["timeout"] > MAXIMUM_EXPONENT)
                | (new > QpState.ERROR)
                # ERROR ends with RESET only, and RTS does not go back.
                | ((state == QpState.ERROR) & (new != QpState.ERROR))
                | (s.rts & (new < QpState.RTS))
            )
        ),
    ]


def _host(s: "Sequencer") -> None:
    m, context, command = s.m, s.context, s.host.payload
    state = context.state
    fields = command_fields(command)
    new = fields["state"]
    m.d.comb += [s.host.ready.eq(1), s.host_refused.eq(command.write & s.refused)]
    m.next = "RELOAD"
    with m.If(command.write & ~s.refused):
        m.d.comb += s.host_settings.write.eq(1)
        m.d.sync += state.eq(new)
        with m.If(s.starts_anew):
            # The flags of the queues stay: the QP may still stand there.
            m.d.comb += s.clear.eq(1)
            m.d.sync += [
                context.queue.eq(0),
                context.psns.next.eq(s.aimed),
                context.psns.unacked.eq(s.look_psn),
                context.progress.ack_next.eq(s.look_psn),
            ]
            losses.begin(s)
            cleared = ("rqmsn", "attempt", "message_open", "blocked", "failed")
            if s.config.go_back_n:
                cleared += ("resending",)
            if s.config.loss_inference:
                cleared += ("asked",)
            m.d.sync += [context.progress[name].eq(0) for name in cleared]
        with m.Elif(new == QpState.ERROR):
            m.d.sync += s.complete.eq(1)


def _doorbell(s: "Sequencer") -> None:
    m, queue, state = s.m, s.context.queue, s.context.state
    count, free = s.doorbell.payload.count, s.free
    m.d.comb += s.doorbell.ready.eq(1)
    with m.If(s.rts | (state == QpState.ERROR)):
        m.d.sync += queue.posted.eq(queue.posted + Mux(count > free, free, count))
        m.d.sync += s.complete.eq(state == QpState.ERROR)


def _complete(s: "Sequencer") -> None:
    """Complete the oldest request: with success if the transport ACK covers it, or as flushed."""
    m, context, queue, progress = s.m, s.context, s.context.queue, s.context.progress
    error = Signal()
    flush = Signal()
    covered = Signal()
    failing = Signal()
    m.d.comb += [
        error.eq(context.state == QpState.ERROR),
        covered.eq((s.rts | error) & s.covered),
        flush.eq(error & s.unfinished & ~s.covered),
        failing.eq(progress.failed & (progress.failed_slot == s.completed_slot)),
        s.order_status.eq(
            Mux(
                flush,
                Mux(failing, progress.failed_status, CompletionStatus.FLUSHED),
                CompletionStatus.SUCCESS,
            )
        ),
    ]
    with m.If(covered | (error & s.unfinished)):
        m.d.comb += s.order.valid.eq(flush | s.info.signalled)
        m.d.sync += queue.completed.eq(queue.completed + 1)
        with m.If(~s.opened):
            m.d.sync += queue.open.eq(queue.open + 1)
        with m.If(s.opened & s.info.immediate):
            m.d.sync += [queue.immediates.eq(queue.immediates - 1), progress.blocked.eq(0)]
        with m.If(flush & failing):
            m.d.sync += progress.failed.eq(0)
    with m.Else():
        m.d.comb += s.complete_queue.r_en.eq(1)
        m.d.sync += progress.in_complete.eq(0)


def _retransmit(s: "Sequencer") -> None:
    if not s.config.go_back_n:
        _retransmit_one(s)
        return
    with s.m.If(s.entry.rest):
        _retransmit_rest(s)
    with s.m.Else():
        _retransmit_one(s)


def _retransmit_rest(s: "Sequencer") -> None:
    """The next packet of a QP that goes back. Its entry stays in the queue until all are sent again."""
    m, progress = s.m, s.context.progress
    wanted = Signal()
    m.d.comb += [
        s.retransmit_queue.r_en.eq(1),
        s.new_entry.rest.eq(1),
        wanted.eq(s.in_window & ~s.was_acked & ~s.was_queued),
    ]
    with m.If(~s.rts | ~progress.resending | s.at_end | s.behind[23]):
        # All is sent again, or the QP has ended or begun anew since.
        m.d.comb += [s.happens.eq(1), s.happens_down.eq(1)]
        m.d.sync += progress.resending.eq(0)
    with m.Else():
        m.d.comb += s.retransmit_queue.w_en.eq(1)
        with m.If(s.relative[23]):
            m.d.sync += progress.resend.eq(s.context.psns.unacked)
        with m.Elif(~wanted | s.may_send | (s.relative == 0)):
            m.d.sync += progress.resend.eq(progress.resend + 1)
            with m.If(wanted):
                m.d.comb += [
                    s.jobs.w_en.eq(1),
                    s.new_job.slot.eq(s.slot),
                    s.new_job.retransmission.eq(1),
                    s.new_job.ack_request.eq(1),
                    s.set_queued.eq(1),
                    s.happens.eq(1),
                ]


def _retransmit_one(s: "Sequencer") -> None:
    m, entry = s.m, s.entry
    wanted = Signal()
    m.d.comb += [
        s.retransmit_queue.r_en.eq(~s.from_delayed),
        s.delay_queue.r_en.eq(s.from_delayed),
        wanted.eq(
            s.rts
            & ~s.ack_relative[23]
            & ~s.behind[23]
            & ~s.at_end
            & (entry.again | (s.in_window & (~s.was_acked | (s.relative == 0))))
        ),
    ]
    # The congestion window holds back all but the oldest packet, without which nothing would open it again.
    held_back = wanted & ~entry.again & ~s.may_send & (s.relative != 0)
    with m.If(s.from_delayed & (held_back | (wanted & ~s.inside))):
        # Still outside the window of the peer, or its own.
        m.d.comb += s.delay_queue.w_en.eq(1)
    with m.Elif(held_back):
        # Behind all others, which may be of other QPs.
        m.d.comb += s.retransmit_queue.w_en.eq(1)
    with m.Elif(wanted):
        m.d.comb += [
            s.jobs.w_en.eq(1),
            # The tracker does not remember the request of a PSN that all newer ones overtook.
            s.new_job.slot.eq(Mux(entry.again, s.completed_slot, s.slot)),
            s.new_job.retransmission.eq(1),
            s.new_job.ack_request.eq(1),
        ]
    with m.Else():
        m.d.comb += [s.happens.eq(1), s.happens_down.eq(1)]
        # It arrived while it waited to leave again: it never was lost.
        with m.If(s.rts & ~entry.again & s.remembered & s.blame.lost):
            s.tell_path(PathOperation.UNDO)
            m.d.comb += s.clear_blame.eq(1)


ACTIONS: dict[str, Callable[["Sequencer"], None]] = {
    "SENT": _sent,
    "FAILED": _failed,
    "ERROR": _error,
    "FEEDBACK": _feedback,
    "TIMEOUT": _timeout,
    "HOST": _host,
    "DOORBELL": _doorbell,
    "COMPLETE": _complete,
    "RETRANSMIT": _retransmit,
}
"""Logic of each operation by the name of its :class:`mrc_rtl.requester.sequencer.Operation`."""
