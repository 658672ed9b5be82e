"""The sequencer: every change of a QP's send context, one operation at a time."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import (
    PORT_COUNTERS,
    CongestionKind,
    GlobalCounter,
    PathOperation,
    congestion_event,
    counter_event,
    feedback_record,
    path_operation,
    probe_answer,
    qp_error,
    tail_probe,
    trace_record,
)
from ..tables import CompletionStatus, QpErrorReason, QpState
from . import aim, choice, feedback, losses, operations, queues, trace, turn
from .context import ContextStore, SettingsStore, qp_settings, send_context
from .qp_table import command_fields, host_command
from .queues import Operation
from .record_queue import RecordQueue
from .records import (
    completion_order,
    doorbell_record,
    failed_job,
    request_info,
    segment_job,
    send_slot_bits,
)
from .sack_merge import WORD
from .segmenter import message_info, segment_view
from .timers import timer_command
from .tx_tracker import psn_attributes, psn_blame

__all__ = ["Operation", "Sequencer"]


class Sequencer(wiring.Component):
    """Takes one operation after the other: fetch the QP's context and change it.

    Nothing else changes a context, so no two changes can race. The context of the last operation stays until
    one of another QP comes. Kinds of operations take turns: one that was
    served waits until every other kind that is waiting was served, so a flood of one kind starves nobody. A
    QP that can send stands once in a queue; its turn gives out a few packets, more while nobody else waits. A
    QP stopped by window or immediates leaves the queue and comes back with the operation that ends the
    reason. One without a path gives its turns away.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    again : stream of {qp, psn}, in
        Retransmissions sent by bind; taken one cycle after the look-up.
    failed, error_in, feedback, expired, host, doorbell : streams, in
        Sources of operations.
    host_context, host_values, host_refused
        Answer, with ``host.ready``: context, settings, and whether a write is not allowed.
    job, order, error_out, counter : streams, out
    path, congestion, probe_answer : streams, out
        What feedback and timeouts say (:func:`mrc_rtl.requester.feedback.add`).
    tail_probe : stream of tail_probe, out
        Questions about the tail of what was sent.
    may_send, last_to_send, give_out, stop : 1
        The congestion window of ``look_qp`` (:class:`mrc_rtl.congestion.windows.CongestionWindows`).
    path_there : 1
        ``look_qp`` has an entropy value on a plane that is up, as of a cycle ago.
    wake : stream of {qp}, in
        A QP that its congestion window stopped may send again.
    look_*, acked, queued, slot, blame, attributes, clear*, give*, set_*, merge*
        The tracker's commands (:class:`mrc_rtl.requester.tx_tracker.TxTracker`).
    info_index, info
        Look-up in the work queue.
    message_*, view_*, sending
        Copies of parts of contexts for the segmenter and for bind, written with ``view_write``.
    timer, timer_valid
        Command for the timers.
    event, event_down, event_qp
        Count of what the engine holds per QP.
    now, base_rtt, reorder_window, hurry
        Ticks (32), ticks (16 each), and whether delayed retransmissions are due at once.
    enable : 1
        QPs may send.
    trace : stream of records.trace_record, out
        With ``config.trace``: MERGE, TIMER and LOSS; their details are :func:`trace.merge_detail`,
        :func:`trace.timer_detail` and :func:`trace.loss_detail` of :mod:`mrc_rtl.requester.trace`. A record
        that is not taken holds the next operation.
    idle : 1

    Source: design.md 4 (data path), profile.md 3, 4 and 7.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        qp, slot = config.qp_bits, send_slot_bits(config)
        traced = {"trace": Out(stream.Signature(trace_record(config)))} if config.trace else {}
        super().__init__(
            {
                **traced,
                "again": In(stream.Signature(data.StructLayout({"qp": qp, "psn": 24}))),
                "failed": In(stream.Signature(failed_job(config))),
                "error_in": In(stream.Signature(qp_error(config))),
                "feedback": In(stream.Signature(feedback_record(config))),
                "expired": In(stream.Signature(data.StructLayout({"qp": qp, "tail": 1}))),
                "host": In(stream.Signature(host_command(config))),
                "host_context": Out(send_context(config)),
                "host_values": Out(qp_settings(config)),
                "host_refused": Out(1),
                "doorbell": In(stream.Signature(doorbell_record(config))),
                "job": Out(stream.Signature(segment_job(config))),
                "order": Out(stream.Signature(completion_order(config))),
                "path": Out(stream.Signature(path_operation(config))),
                "congestion": Out(stream.Signature(congestion_event(config))),
                "probe_answer": Out(stream.Signature(probe_answer(config))),
                "tail_probe": Out(stream.Signature(tail_probe(config))),
                "error_out": Out(stream.Signature(qp_error(config))),
                "counter": Out(stream.Signature(counter_event(config))),
                "may_send": In(1),
                "last_to_send": In(1),
                "path_there": In(1, init=1),
                "give_out": Out(1),
                "stop": Out(1),
                "wake": In(stream.Signature(data.StructLayout({"qp": qp}))),
                "look_qp": Out(qp),
                "look_psn": Out(24),
                "acked": In(1),
                "queued": In(1),
                "slot": In(slot),
                "attributes": In(psn_attributes(config)),
                "clear": Out(1),
                "give": Out(1),
                "give_slot": Out(slot),
                "set_queued": Out(1),
                "clear_queued": Out(1),
                "blame": In(psn_blame(config)),
                "set_blame": Out(1),
                "clear_blame": Out(1),
                "merge": Out(1),
                "merge_base": Out(24),
                "merge_bitmap": Out(64),
                "merge_unacked": Out(24),
                "merge_next": Out(24),
                "merge_new": In(range(WORD + 1)),
                "merge_done": In(1),
                "merge_beyond": In(1),
                "info_index": Out(qp + slot),
                "info": In(request_info()),
                "message_write": Out(1),
                "message_index": Out(qp + slot),
                "message": Out(message_info(config)),
                "view_write": Out(1),
                "view_qp": Out(qp),
                "view": Out(segment_view(config)),
                "sending": Out(1),
                "ev_profile": Out(8),
                "timer": Out(timer_command(config)),
                "timer_valid": Out(1),
                "event": Out(1),
                "event_down": Out(1),
                "event_qp": Out(qp),
                "now": In(32),
                "base_rtt": In(16),
                "reorder_window": In(16),
                "hurry": In(1),
                "enable": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.m = m
        config = self.config
        self.slot_bits = send_slot_bits(config)
        m.submodules.store = self.store = store = ContextStore(config)
        register = Signal(store.rows * store.row_bits)
        layout = send_context(config)
        self.context = context = data.View(layout, register[: layout.size])
        m.submodules.host_settings = self.host_settings = SettingsStore(config)
        self.settings = self.host_settings.settings
        self.qp = Signal(config.qp_bits)
        self.operation = Signal(Operation)
        self.take = Signal()  # an operation begins
        self.timer_next = Signal()
        self.ending = Signal()  # the last cycle of an operation, which may command the timers in the next
        self.happens, self.happens_down = Signal(), Signal()  # events, one cycle before they are told
        self.between = Signal()  # no operation is under way
        self.others = Signal()  # any but a QP's current turn could be taken
        self.looking = Signal()  # the PSN of the operation is looked up
        self.counter_base = config.planes * PORT_COUNTERS
        queues.add(self)

        # New PSNs that the window still allows: the limit less those given out and not SACKed.
        self.window = Signal(len(self.settings.mpr_psns) + 1)
        self.window_open = Signal()
        # For the end of the operation.
        self.restart_timer = Signal()
        self.news = Signal()  # something became acknowledged
        self.asks = Signal()  # a probe of the tail was ordered
        self.is_tail = Signal()  # the timeout is one of the tail
        self.complete = Signal()
        self.announce = Signal()
        self.reason = Signal(4)
        self.late_count = Signal()
        self.late_counter = Signal(range(16))

        self.rts = Signal()
        self.resending = Signal()  # the QP goes back, so nothing new is sent
        if config.go_back_n:
            m.d.comb += self.resending.eq(context.progress.resending)
        aim.add_ends(self)
        aim.add(self)
        feedback.add(self)
        losses.add(self)
        self.order_status = Signal(5)
        order = self.order.payload
        # What goes out does so in every cycle, and the handshake alone says when it counts: gates saved.
        m.d.comb += [
            self.rts.eq(context.state == QpState.RTS),
            self.window.eq(self.settings.mpr_psns + context.psns.unacked - context.psns.next),
            self.window_open.eq(~self.window[-1] & self.window.any() & ~self.resending),
            self.look_qp.eq(self.qp),
            self.view_qp.eq(self.qp),
            self.merge_base.eq(self.look_psn),
            self.merge_bitmap.eq(self.seth.sack_bitmap),
            self.merge_unacked.eq(context.psns.unacked),
            self.merge_next.eq(context.psns.next),
            self.host_context.eq(context),
            self.host_values.eq(self.settings),
            self.view.mtu_log2.eq(self.settings.mtu_log2),
            self.view.protection_domain.eq(self.settings.protection_domain),
            self.sending.eq(self.rts),
            self.ev_profile.eq(self.settings.ev_profile),
            # The command goes out one cycle after the operation's last, when all of this still stands.
            self.timer.qp.eq(self.qp),
            self.is_tail.eq(self.expired.payload.tail),
            self.timer.start.eq(context.progress.armed),
            self.timer.timeout.eq(self.settings.timeout),
            self.timer.linear_count.eq(self.settings.linear_count),
            self.timer.attempt.eq(context.progress.attempt),
            self.errors.w_data.eq(Cat(self.qp, self.reason)),
            order.qp.eq(self.qp),
            order.slot.eq(self.completed_slot),
            order.queue.eq(self.settings.completion_queue),
            order.immediate.eq(self.info.immediate),
            order.length.eq(self.info.length),
            order.message_number.eq(context.queue.completed),
            order.status.eq(self.order_status),
            self.new_entry.qp.eq(self.qp),
            self.new_entry.psn.eq(self.aimed),
            self.new_job.slot.eq(self.give_slot),
            self.new_job.psn.eq(self.look_psn),
            store.leaving.eq(register[: store.row_bits]),
            self.host_settings.write_qp.eq(self.qp),
        ]
        fields = command_fields(self.host.payload)
        limit = fields["mpr_psns"]
        fields["mpr_psns"] = Mux(limit > config.mpr_psns, config.mpr_psns, limit)
        for name, _ in qp_settings(config):
            m.d.comb += self.host_settings.write_settings[name].eq(fields[name])

        m.d.sync += [
            self.timer_valid.eq(self.timer_next),
            self.event.eq(self.happens),
            self.event_down.eq(self.happens_down),
            self.event_qp.eq(self.qp),
        ]
        # An operation counts at most three events and reports one error. The one before may just have.
        room = Signal()
        self.untold = untold = self.trace.valid if config.trace else Const(0)
        m.d.sync += room.eq((self.counts.level < 4) & (self.errors.level < 2) & store.cleared)
        waiting = queues.waiting_operations(self)
        some = choice.add(self, waiting)
        with m.FSM() as states:
            with m.State("PICK"):
                with m.If(room & some & ~untold):
                    m.d.comb += self.take.eq(1)
                    m.next = "LOAD"
                with m.Else():
                    m.d.comb += self.between.eq(1)
            with m.State("LOAD"):
                m.d.sync += [flag.eq(0) for flag in (self.restart_timer, self.complete)]
                m.d.sync += [self.announce.eq(0), self.late_count.eq(0), self.at_end.eq(0)]
                m.d.sync += [self.news.eq(0), self.asks.eq(0)]
                m.d.comb += self.host_settings.read.eq(1)
                with m.If(store.shift):
                    m.d.sync += register.eq(Cat(register[store.row_bits :], store.row))
                with m.If(store.last):
                    m.next = "LOOK"
                    aims = (self.operation == Operation.TURN) | (self.operation == Operation.TIMEOUT)
                    if config.go_back_n:
                        aims |= (self.operation == Operation.RETRANSMIT) & self.entry.rest
                    with m.If(aims):
                        m.next = "AIM"
            with m.State("AIM"):
                # The PSN is one of the context's.
                m.next = "LOOK"
                with m.If(self.operation == Operation.TURN):
                    m.d.sync += context.progress.in_ready.eq(0)
                    m.d.comb += self.ready_queue.r_en.eq(1)
                    m.next = "CHECK"
            with m.State("LOOK"):
                m.d.comb += self.looking.eq(1)
                aim.latch_distances(self)
                with m.If(self.operation == Operation.FEEDBACK):
                    with m.If(self.is_sack):
                        self.count(GlobalCounter.SACK_RECEIVED)
                    with m.Elif(self.is_nack):
                        self.count(GlobalCounter.NACK_RECEIVED)
                    with m.Else():
                        self.count(GlobalCounter.ACK_RECEIVED)
                m.next = "WEIGH"
            with m.State("WEIGH"):
                aim.latch_judgement(self)
                operations.weigh_host(self)
                m.next = "ACT"
            with m.State("ACT"):
                m.next = "TAIL"
                with m.Switch(self.operation):
                    for operation, act in operations.ACTIONS.items():
                        with m.Case(Operation[operation]):
                            act(self)
            with m.State("RELOAD"):
                # The end of the operation goes by what the host wrote.
                m.d.comb += self.host_settings.read.eq(1)
                m.next = "TAIL"
            turn.add_states(self)
            feedback.add_states(self)
        if config.trace:
            trace.add(self)
        m.d.comb += self.idle.eq(
            states.ongoing("PICK")
            & store.cleared
            & ~waiting.any()
            & self.queues_empty
            & ~untold
            & ~self.tail_probe.valid
        )
        return m

    # Helpers of the operations -----------------------------------------------------------------------

    def count(self, counter: GlobalCounter) -> None:
        """Count an event in this cycle."""
        self.m.d.comb += [self.counts.w_en.eq(1), self.counts.w_data.eq(self.counter_base + counter)]

    def count_late(self, counter: GlobalCounter) -> None:
        """Count an event at the end of the operation."""
        self.m.d.sync += [self.late_count.eq(1), self.late_counter.eq(counter)]

    def fail(self, status: CompletionStatus | Signal, reason: QpErrorReason, slot: Signal) -> None:
        """The QP goes to ERROR because of the request in ``slot``; the rest will be flushed."""
        progress = self.context.progress
        self.m.d.sync += [
            self.context.state.eq(QpState.ERROR),
            progress.failed.eq(1),
            progress.failed_slot.eq(slot),
            progress.failed_status.eq(status),
            self.complete.eq(1),
            self.announce.eq(1),
            self.reason.eq(reason),
        ]

    def progressed(self) -> None:
        """The peer proved progress: attempts start from 0 and the timer from now."""
        self.m.d.sync += [
            self.context.progress.attempt.eq(0),
            self.restart_timer.eq(1),
            self.news.eq(1),
        ]

    def retransmit(self, queue: RecordQueue, *, again: bool = False) -> None:
        """Put the packet aimed at into one of the two retransmission queues, or count that it is full.

        ``again``: it is the last packet of the oldest request, which has been SACKed.
        """
        m = self.m
        with m.If(queue.w_rdy):
            m.d.comb += [queue.w_en.eq(1), self.happens.eq(1), self.set_queued.eq(0 if again else 1)]
        with m.Else():
            self.count_late(GlobalCounter.RETRANSMIT_QUEUE_FULL)
        if again:
            m.d.comb += self.new_entry.again.eq(1)

    def go_back(self) -> None:
        """Send everything from the PSN aimed at on again, before anything new."""
        m, progress = self.m, self.context.progress
        m.d.comb += self.new_entry.rest.eq(1)
        with m.If(progress.resending):
            m.d.sync += progress.resend.eq(self.look_psn)
        with m.Elif(self.retransmit_queue.w_rdy):
            m.d.comb += [self.retransmit_queue.w_en.eq(1), self.happens.eq(1)]
            m.d.sync += [progress.resend.eq(self.look_psn), progress.resending.eq(1)]
        with m.Else():
            self.count_late(GlobalCounter.RETRANSMIT_QUEUE_FULL)

    def tell_path(self, operation: PathOperation) -> None:
        """Tell the owner of the path table what happened on the entropy value of the PSN looked at."""
        self.m.d.comb += [self.paths.w_en.eq(1), self.path_operation.eq(operation)]

    def tell_congestion(self, kind: CongestionKind, *, trimmed: bool = False) -> None:
        """Tell the congestion window of the QP at the end of the operation."""
        self.m.d.sync += [self.noticing.eq(1), self.notice.eq(kind), self.trimmed.eq(trimmed)]

    # Parts -------------------------------------------------------------------------------------------

    def tail(self) -> None:
        """Queues, timer and context at the end of an operation."""
        m, context, settings = self.m, self.context, self.settings
        progress, queue = context.progress, context.queue
        run = Signal()
        changes = Signal()  # the timers begin or end
        sendable, enters = Signal(), Signal()
        with m.If(enters):
            m.d.comb += [
                self.ready_queue.w_en.eq(1),
                self.ready_queue.w_data.eq(self.qp),
                self.wake.ready.eq(0),
            ]
        m.d.comb += [
            self.between.eq(1),
            self.ending.eq(1),
            run.eq(self.rts & (queue.open != self.completed_count) & (settings.timeout != 0)),
            sendable.eq(
                self.rts
                & self.window_open
                & (progress.message_open | ((queue.open != queue.posted) & ~progress.blocked))
            ),
            # Stopped by its congestion window it counts as standing there until it is woken.
            self.stop.eq(sendable & ~progress.in_ready & ~self.may_send),
            enters.eq(sendable & ~progress.in_ready & self.may_send),
            self.complete_queue.w_en.eq(self.complete & ~progress.in_complete),
            changes.eq(run ^ progress.armed),
            self.timer_next.eq(
                changes | (run & (self.restart_timer | self.news)) | (self.operation == Operation.TIMEOUT)
            ),
            self.expired.ready.eq(self.operation == Operation.TIMEOUT),
            self.errors.w_en.eq(self.announce),
            self.view_write.eq(1),
        ]
        m.d.sync += [
            self.burst.eq(0),
            self.timer.retransmission.eq(changes | self.restart_timer),
            progress.armed.eq(run),
            progress.in_ready.eq(progress.in_ready | sendable),
            progress.in_complete.eq(progress.in_complete | self.complete),
        ]
        if self.config.loss_inference:
            m.d.sync += [
                self.timer.tail.eq(
                    changes | self.news | ((self.operation == Operation.TIMEOUT) & self.is_tail)
                ),
                progress.asked.eq((progress.asked | self.asks) & ~self.news),
            ]
        with m.If(self.late_count):
            late = self.counter_base + self.late_counter
            m.d.comb += [self.counts.w_en.eq(1), self.counts.w_data.eq(late)]
