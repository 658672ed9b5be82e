"""The requester: from doorbells and send requests to fetch commands, and from feedback to completions."""

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..congestion.windows import CongestionWindows
from ..records import (
    completion_record,
    counter_event,
    feedback_record,
    path_operation,
    probe_answer,
    qp_error,
    region_answer,
    region_request,
    tail_probe,
    trace_record,
)
from ..records import settings as settings_layout
from ..stream import TableBus
from ..tables import CONGESTION_INDEX
from .completions import RequestCompletions
from .context import ClearSequence
from .feedback import NOMINAL_HEADER
from .in_flight import InFlight
from .qp_table import QpTable
from .records import doorbell_record, fetch_command, sent_record
from .segmenter import Segmenter
from .sequencer import Sequencer
from .timers import Timers
from .tx_tracker import TxTracker
from .work_queue import WorkQueue

__all__ = ["Requester"]

#: Signals of a table command that go to all who might be meant.
_TABLE_COMMAND = ("write", "index", "word", "last", "write_data")


class Requester(wiring.Component):
    """Wires the parts of the sending half: work queue, sequencer, tracker, timers, segmenter, completions.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    qp_send, send_request : TableBus
        Tables QP_SEND and SEND_REQUEST; from CONGESTION_INDEX on the former is about congestion windows.
    doorbell : stream of doorbell_record, in
        Requests posted; what exceeds the ring is ignored, and so is a doorbell of a QP that is neither in RTS
        nor in ERROR.
    region : stream of region_request, out
    region_answer : stream of region_answer, in
        Local look-up in the memory regions.
    fetch : stream of fetch_command, out
        Packets to read from memory.
    sent : stream of sent_record, in
        Packets that left bind.
    feedback : stream of feedback_record, in
    completion : stream of completion_record, out
    error_in, error_out : streams of qp_error
        Errors of other blocks; errors found here, for the event queue and the receive side.
    path : stream of path_operation, out
        What happened on entropy values.
    probe_answer : stream of probe_answer, out
        Answers to probes whose number has its top bit set.
    tail_probe : stream of tail_probe, out
        Questions for peers that have said nothing new for a while; their numbers have that bit clear.
    counter : stream of counter_event, out
    state_qp, state_sending, state_profile : qp_bits, 1, 8
        Look-up for bind: the QP may send, and its array of entropy values, one cycle after ``state_qp``.
    path_qp, path_there : qp_bits, 1
        Question to bind: the QP has an entropy value on a plane that is up, one cycle after ``path_qp``.
    probe_qp, probe_sending : qp_bits, 1
        Likewise for the prober.
    settings
        Static registers; base_rtt, reorder_window and enable are used.
    now : 48
        Ticks of 128 ns in bits 47 to 16.
    next_deadline, deadline_valid : 32, 1
        Nothing happens before this tick without an input.
    trace : stream of records.trace_record, out
        With ``config.trace``; see :class:`mrc_rtl.requester.sequencer.Sequencer`.
    idle : 1

    Source: design.md 4; profile.md 3, 4 and 7.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        traced = {"trace": Out(stream.Signature(trace_record(config)))} if config.trace else {}
        super().__init__(
            {
                **traced,
                "qp_send": In(TableBus()),
                "send_request": In(TableBus()),
                "doorbell": In(stream.Signature(doorbell_record(config))),
                "region": Out(stream.Signature(region_request(config))),
                "region_answer": In(stream.Signature(region_answer(config))),
                "fetch": Out(stream.Signature(fetch_command(config))),
                "sent": In(stream.Signature(sent_record(config))),
                "feedback": In(stream.Signature(feedback_record(config))),
                "completion": Out(stream.Signature(completion_record(config))),
                "error_in": In(stream.Signature(qp_error(config))),
                "error_out": Out(stream.Signature(qp_error(config))),
                "path": Out(stream.Signature(path_operation(config))),
                "probe_answer": Out(stream.Signature(probe_answer(config))),
                "tail_probe": Out(stream.Signature(tail_probe(config))),
                "counter": Out(stream.Signature(counter_event(config))),
                "state_qp": In(config.qp_bits),
                "state_sending": Out(1),
                "state_profile": Out(8),
                "path_qp": Out(config.qp_bits),
                "path_there": In(1, init=1),
                "probe_qp": In(config.qp_bits),
                "probe_sending": Out(1),
                "settings": In(settings_layout(config)),
                "now": In(48),
                "next_deadline": Out(32),
                "deadline_valid": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.work_queue = work = WorkQueue(config)
        m.submodules.sequencer = sequencer = Sequencer(config)
        m.submodules.tracker = tracker = TxTracker(config)
        m.submodules.timers = timers = Timers(config)
        m.submodules.segmenter = segmenter = Segmenter(config)
        m.submodules.completions = completions = RequestCompletions(config)
        m.submodules.in_flight = in_flight = InFlight(config)
        m.submodules.qp_table = table = QpTable(config)
        flipped = wiring.flipped

        wiring.connect(m, flipped(self.send_request), work.table)
        wiring.connect(m, table.command, sequencer.host)
        wiring.connect(m, flipped(self.doorbell), sequencer.doorbell)
        wiring.connect(m, flipped(self.feedback), sequencer.feedback)
        wiring.connect(m, flipped(self.error_in), sequencer.error_in)
        wiring.connect(m, sequencer.error_out, flipped(self.error_out))
        wiring.connect(m, sequencer.counter, flipped(self.counter))
        wiring.connect(m, sequencer.path, flipped(self.path))
        wiring.connect(m, sequencer.probe_answer, flipped(self.probe_answer))
        wiring.connect(m, sequencer.tail_probe, flipped(self.tail_probe))
        if config.trace:
            wiring.connect(m, sequencer.trace, flipped(self.trace))
        wiring.connect(m, timers.expired, sequencer.expired)
        wiring.connect(m, segmenter.failed, sequencer.failed)
        wiring.connect(m, sequencer.job, segmenter.job)
        wiring.connect(m, sequencer.order, completions.order)
        wiring.connect(m, completions.completion, flipped(self.completion))
        wiring.connect(m, segmenter.region, flipped(self.region))
        wiring.connect(m, flipped(self.region_answer), segmenter.region_answer)

        m.d.comb += [
            table.context.eq(sequencer.host_context),
            table.settings.eq(sequencer.host_values),
            table.refused.eq(sequencer.host_refused),
            table.empty.eq(in_flight.empty),
            in_flight.watch_qp.eq(table.watch_qp),
            # Work queue
            work.info_index.eq(sequencer.info_index),
            sequencer.info.eq(work.info),
            work.read.eq(segmenter.read),
            work.read_index.eq(segmenter.read_index),
            segmenter.read_done.eq(work.read_done),
            segmenter.request.eq(work.request),
            segmenter.forget.eq(work.changed),
            work.wr_read.eq(completions.wr_read),
            work.wr_index.eq(completions.wr_index),
            completions.wr_done.eq(work.wr_done),
            completions.wr_id.eq(work.wr_id),
            # Segmenter
            segmenter.view_write.eq(sequencer.view_write),
            segmenter.view_qp.eq(sequencer.view_qp),
            segmenter.view.eq(sequencer.view),
            segmenter.message_write.eq(sequencer.message_write),
            segmenter.message_index.eq(sequencer.message_index),
            segmenter.message.eq(sequencer.message),
            # Timers
            timers.command.eq(sequencer.timer),
            timers.command_valid.eq(sequencer.timer_valid),
            timers.now.eq(self.now[16:]),
            # One round trip and the delay that is aimed at, which is one more.
            timers.patience.eq(self.settings.base_rtt << 1),
            sequencer.now.eq(self.now[16:]),
            sequencer.base_rtt.eq(self.settings.base_rtt),
            sequencer.reorder_window.eq(self.settings.reorder_window),
            sequencer.enable.eq(self.settings.enable),
            sequencer.hurry.eq(table.draining),
            self.path_qp.eq(sequencer.look_qp),
            sequencer.path_there.eq(self.path_there),
        ]
        # Tracker
        for name in ("look_qp", "look_psn", "clear", "give", "give_slot", "set_queued"):
            m.d.comb += getattr(tracker, name).eq(getattr(sequencer, name))
        for name in ("clear_queued", "merge", "merge_base", "merge_bitmap", "merge_unacked", "merge_next"):
            m.d.comb += getattr(tracker, name).eq(getattr(sequencer, name))
        for name in ("set_blame", "clear_blame"):
            m.d.comb += getattr(tracker, name).eq(getattr(sequencer, name))
        for name in ("acked", "queued", "slot", "attributes", "blame"):
            m.d.comb += getattr(sequencer, name).eq(getattr(tracker, name))
        for name in ("merge_new", "merge_done", "merge_beyond"):
            m.d.comb += getattr(sequencer, name).eq(getattr(tracker, name))

        congestion_idle: Value = Const(1)
        if config.congestion_control:
            congestion_idle = self._windows(m, sequencer, segmenter, table)
        else:
            wiring.connect(m, flipped(self.qp_send), table.table)
            wiring.connect(m, segmenter.fetch, flipped(self.fetch))
            m.d.comb += [sequencer.congestion.ready.eq(1), sequencer.may_send.eq(1)]

        # A packet that leaves frees its count; the sequencer's own events come first.
        sent = self.sent.payload
        m.d.comb += [
            tracker.sent.payload.eq(sent),
            tracker.sent.valid.eq(self.sent.valid & ~sequencer.event),
            self.sent.ready.eq(tracker.sent.ready & ~sequencer.event),
            sequencer.again.valid.eq(self.sent.valid & sent.retransmission & ~sent.discard),
            sequencer.again.payload.qp.eq(sent.qp),
            sequencer.again.payload.psn.eq(sent.psn),
            tracker.take_sent.eq(sequencer.again.ready),
            in_flight.event.eq(sequencer.event | (tracker.sent.valid & tracker.sent.ready)),
            in_flight.down.eq(~sequencer.event | sequencer.event_down),
            in_flight.qp.eq(Mux(sequencer.event, sequencer.event_qp, sent.qp)),
        ]

        # What bind asks of a QP
        m.submodules.states = states = Memory(
            shape=data.StructLayout({"sending": 1, "profile": 8}), depth=config.qps, init=[]
        )
        m.submodules.sequence = sequence = ClearSequence(config.qps)
        state_write = states.write_port()
        state_read = states.read_port(transparent_for=[state_write])
        probe_read = states.read_port()  # a probe too many or too few does no harm
        m.d.comb += [
            probe_read.addr.eq(self.probe_qp),
            self.probe_sending.eq(probe_read.data.sending),
            state_read.addr.eq(self.state_qp),
            self.state_sending.eq(state_read.data.sending),
            self.state_profile.eq(state_read.data.profile),
            state_write.addr.eq(Mux(sequence.cleared, sequencer.view_qp, sequence.row)),
            state_write.data.sending.eq(sequence.cleared & sequencer.sending),
            state_write.data.profile.eq(sequencer.ev_profile),
            state_write.en.eq(sequencer.view_write | ~sequence.cleared),
        ]

        m.d.comb += [
            self.next_deadline.eq(timers.next_deadline),
            self.deadline_valid.eq(timers.deadline_valid),
            self.idle.eq(
                work.idle
                & sequencer.idle
                & tracker.idle
                & timers.idle
                & segmenter.idle
                & completions.idle
                & table.idle
                & congestion_idle
                & in_flight.cleared
            ),
        ]
        return m

    def _windows(self, m: Module, sequencer: Sequencer, segmenter: Segmenter, table: QpTable) -> Value:
        """Add the congestion windows, between table, hand-over and sequencer; return whether they rest."""
        m.submodules.congestion = congestion = CongestionWindows(self.config)
        wiring.connect(m, sequencer.congestion, congestion.event)
        wiring.connect(m, congestion.wake, sequencer.wake)

        # Commands to table QP_SEND, and those of them that are for the congestion windows.
        windows = self.qp_send.index[CONGESTION_INDEX.bit_length() - 1]
        for owner, mine in ((table.table, ~windows), (congestion.table, windows)):
            m.d.comb += [
                owner.valid.eq(self.qp_send.valid & mine),
                *(getattr(owner, name).eq(getattr(self.qp_send, name)) for name in _TABLE_COMMAND),
            ]
        m.d.comb += [
            self.qp_send.ready.eq(Mux(windows, congestion.table.ready, table.table.ready)),
            self.qp_send.done.eq(table.table.done | congestion.table.done),
            self.qp_send.error.eq(Mux(windows, congestion.table.error, table.table.error)),
            self.qp_send.read_data.eq(Mux(windows, congestion.table.read_data, table.table.read_data)),
        ]

        # A packet counts for its congestion window when it is handed over: its size is known here.
        fetch, descriptor = segmenter.fetch, segmenter.fetch.payload.descriptor
        words = descriptor.length[2:]
        m.d.comb += [
            self.fetch.payload.eq(fetch.payload),
            self.fetch.valid.eq(fetch.valid & congestion.sent.ready),
            fetch.ready.eq(self.fetch.ready & congestion.sent.ready),
            congestion.sent.valid.eq(fetch.valid & self.fetch.ready),
            congestion.sent.payload.qp.eq(descriptor.qp),
            # Padded to words; the bit below the sum is the carry in.
            congestion.sent.payload.size.eq(
                (
                    Cat(1, words)
                    + Cat(descriptor.length[:2].any(), Const(NOMINAL_HEADER // 4, 5) | descriptor.immediate)
                )[1:]
                << 2
            ),
            congestion.look_qp.eq(sequencer.look_qp),
            congestion.give.eq(sequencer.give_out),
            congestion.stop.eq(sequencer.stop),
            congestion.now.eq(self.now[16:32]),
            sequencer.may_send.eq(congestion.may_send),
            sequencer.last_to_send.eq(congestion.last),
        ]
        return congestion.idle
