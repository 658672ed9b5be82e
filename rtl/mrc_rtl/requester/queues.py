"""The sequencer's queues, and which kinds of operations wait in them or outside."""

from enum import IntEnum
from typing import TYPE_CHECKING

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib import data

from ..records import counter_event, path_operation, qp_error
from .record_queue import RecordQueue
from .records import retransmission_entry, segment_job

if TYPE_CHECKING:
    from .sequencer import Sequencer

__all__ = ["Operation", "add", "waiting_operations"]

#: Entries of the retransmission queue and of the queue of delayed retransmissions.
RETRANSMISSIONS = 16

#: Bits of the time at which a delayed one is due: half of the circle is longer than any base_rtt.
_DUE_BITS = 17


class Operation(IntEnum):
    """What the sequencer does; lower numbers first, but each kind once before any kind again."""

    SENT = 0  # bind sent a retransmission
    FAILED = 1  # a local region look-up failed
    ERROR = 2  # another block puts the QP into ERROR
    FEEDBACK = 3  # SACK, NACK, transport ACK or NAK
    TIMEOUT = 4  # the QP's timer expired
    HOST = 5  # table command
    DOORBELL = 6  # requests were posted
    COMPLETE = 7  # complete the oldest request, if it may
    RETRANSMIT = 8  # give one packet out again
    TURN = 9  # give out new packets


def add(s: "Sequencer") -> None:
    """Add the queues: ready QPs, QPs to complete, retransmissions now and later, and what leaves.

    A QP stands at most once in each of the first two, so they cannot overflow. A delayed retransmission is
    due one base_rtt after it was put in; all wait equally long, so the oldest is due first. While one waits
    the requester is not idle.
    """
    m = s.m
    config = s.config
    entry = retransmission_entry(config)

    def queue(name: str, width: int, depth: int) -> RecordQueue:
        m.submodules[name] = made = RecordQueue(width, depth)
        return made

    s.ready_queue = queue("ready_queue", config.qp_bits, config.qps)
    s.complete_queue = queue("complete_queue", config.qp_bits, config.qps)
    s.retransmit_queue = queue("retransmit_queue", entry.size, RETRANSMISSIONS)
    s.delay_queue = queue("delay_queue", entry.size + _DUE_BITS, RETRANSMISSIONS)
    # Enough to send on while a SACK is merged.
    s.jobs = queue("jobs", segment_job(config).size, 4 if config.packet_interval > 4 else 8)
    s.counts = queue("counts", counter_event(config).size, 8)
    s.errors = queue("errors", qp_error(config).size, 4)
    s.paths = queue("paths", path_operation(config).size, 4)
    s.new_entry = Signal(entry)
    s.new_job = Signal(segment_job(config))
    s.message_end = Signal(24)
    s.queues_empty = Signal()
    m.d.comb += [
        s.retransmit_queue.w_data.eq(s.new_entry),
        s.jobs.w_data.eq(s.new_job),
        s.job.valid.eq(s.jobs.r_rdy),
        s.job.payload.eq(s.jobs.r_data),
        s.jobs.r_en.eq(s.job.ready),
        s.counter.valid.eq(s.counts.r_rdy),
        s.counter.payload.eq(s.counts.r_data),
        s.counts.r_en.eq(s.counter.ready),
        s.error_out.valid.eq(s.errors.r_rdy),
        s.error_out.payload.eq(s.errors.r_data),
        s.errors.r_en.eq(s.error_out.ready),
        # The end of an operation comes first.
        s.ready_queue.w_data.eq(s.wake.payload.qp),
        s.ready_queue.w_en.eq(s.wake.valid),
        s.wake.ready.eq(1),
        s.give_out.eq(s.jobs.w_en),
        s.complete_queue.w_data.eq(s.qp),
    ]
    _add_delay(s, entry)
    queues = (
        s.jobs, s.counts, s.errors, s.paths,
        s.retransmit_queue, s.delay_queue, s.ready_queue, s.complete_queue,
    )  # fmt: skip
    m.d.comb += s.queues_empty.eq(~Cat(queue.level for queue in queues).any())


def _add_delay(s: "Sequencer", entry: data.StructLayout) -> None:
    """Add the times of delayed retransmissions.

    A time is kept in the bits that tell one base_rtt from the past. ``s.entry`` is the retransmission whose
    turn it is: one that was delayed and is due, or the head of the other queue.
    """
    m = s.m
    due = Signal()
    past = Signal(_DUE_BITS)
    s.from_delayed = Signal()
    s.entry = Signal(entry)
    m.d.comb += [
        s.delay_queue.w_data.eq(Cat(s.new_entry, (s.now[:_DUE_BITS] + s.base_rtt)[:_DUE_BITS])),
        past.eq(s.now[:_DUE_BITS] - s.delay_queue.r_data[entry.size :]),
        due.eq(s.delay_queue.r_rdy & (~past[-1] | s.hurry)),
        s.entry.eq(Mux(s.from_delayed, s.delay_queue.r_data[: entry.size], s.retransmit_queue.r_data)),
    ]
    # Decided between two operations, so that it does not change during one.
    with m.If(s.between & due):
        m.d.sync += s.from_delayed.eq(1)
    with m.Elif(s.delay_queue.r_en):
        m.d.sync += s.from_delayed.eq(0)


def waiting_operations(s: "Sequencer") -> Signal:
    """Which kinds of operations could be taken, one bit each."""
    m = s.m
    waiting = Signal(len(Operation))
    m.d.comb += [
        waiting[Operation.SENT].eq(s.again.valid),
        waiting[Operation.FAILED].eq(s.failed.valid),
        waiting[Operation.ERROR].eq(s.error_in.valid),
        waiting[Operation.FEEDBACK].eq(s.feedback.valid),
        waiting[Operation.TIMEOUT].eq(s.expired.valid),
        waiting[Operation.HOST].eq(s.host.valid),
        waiting[Operation.DOORBELL].eq(s.doorbell.valid),
        waiting[Operation.COMPLETE].eq(s.complete_queue.r_rdy & s.order.ready),
        waiting[Operation.RETRANSMIT].eq((s.retransmit_queue.r_rdy | s.from_delayed) & s.jobs.w_rdy),
        waiting[Operation.TURN].eq(s.ready_queue.r_rdy & s.jobs.w_rdy & s.enable),
    ]
    # The path table may wait for bind, and bind until what it sent is taken: that never waits for the former.
    able = Signal(len(Operation))
    room = ~s.paths.level[1:].any()
    m.d.comb += able.eq(waiting & (room.replicate(len(Operation)) | 1 << Operation.SENT))
    return able
