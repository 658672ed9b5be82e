"""The sequencer's queues, and which kinds of operations wait in them or outside."""

from enum import IntEnum
from typing import TYPE_CHECKING

from amaranth.hdl import Cat, Signal
from amaranth.lib import fifo

from ..records import counter_event, qp_error
from .records import retransmission_entry, segment_job

if TYPE_CHECKING:
    from .sequencer import Sequencer

__all__ = ["Operation", "add", "waiting_operations"]

#: Entries of the retransmission queue and of the queue of delayed retransmissions.
RETRANSMISSIONS = 16


class Operation(IntEnum):
    """What the sequencer does; lower numbers first, but each kind once before any kind again."""

    SENT = 0  # bind sent a retransmission
    FAILED = 1  # a local region look-up failed
    ERROR = 2  # another block puts the QP into ERROR
    FEEDBACK = 3  # SACK, NACK, transport ACK or NAK
    TIMEOUT = 4  # the QP's timer expired
    HOST = 5  # table command
    DOORBELL = 6  # requests were posted
    DELAYED = 7  # a delayed retransmission is due
    COMPLETE = 8  # complete the oldest request, if it may
    RETRANSMIT = 9  # give one packet out again
    TURN = 10  # give out new packets


def add(s: "Sequencer") -> None:
    """Add the queues: ready QPs, QPs to complete, retransmissions now and later, and what leaves.

    A QP stands at most once in each of the first two, so they cannot overflow. A delayed retransmission is
    due one base_rtt after it was put in; all wait equally long, so the oldest is due first.
    """
    m = s.m
    config = s.config
    entry = retransmission_entry(config)
    m.submodules.ready_queue = s.ready_queue = fifo.SyncFIFOBuffered(width=config.qp_bits, depth=config.qps)
    m.submodules.complete_queue = s.complete_queue = fifo.SyncFIFOBuffered(
        width=config.qp_bits, depth=config.qps
    )
    m.submodules.retransmit_queue = s.retransmit_queue = fifo.SyncFIFOBuffered(
        width=entry.size, depth=RETRANSMISSIONS
    )
    m.submodules.delay_queue = s.delay_queue = fifo.SyncFIFOBuffered(
        width=entry.size + 32, depth=RETRANSMISSIONS
    )
    m.submodules.jobs = s.jobs = fifo.SyncFIFOBuffered(width=segment_job(config).size, depth=4)
    m.submodules.counts = s.counts = fifo.SyncFIFOBuffered(width=counter_event(config).size, depth=8)
    m.submodules.errors = s.errors = fifo.SyncFIFOBuffered(width=qp_error(config).size, depth=2)
    s.retransmission = entry(s.retransmit_queue.r_data)
    s.delayed = entry(s.delay_queue.r_data[: entry.size])
    s.new_entry = Signal(entry)
    s.new_job = Signal(segment_job(config))
    s.message_last = Signal(24)
    s.due = Signal()
    due_at = s.delay_queue.r_data[entry.size :]
    s.queues_empty = Signal()
    m.d.comb += [
        s.due.eq(s.delay_queue.r_rdy & (~(s.now - due_at)[31] | s.hurry)),
        s.next_deadline.eq(due_at),
        s.deadline_valid.eq(s.delay_queue.r_rdy),
        s.retransmit_queue.w_data.eq(s.new_entry),
        s.delay_queue.w_data.eq(Cat(s.new_entry, (s.now + s.base_rtt)[:32])),
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
        s.ready_queue.w_data.eq(s.qp),
        s.complete_queue.w_data.eq(s.qp),
        s.queues_empty.eq(
            (s.jobs.level == 0)
            & (s.counts.level == 0)
            & (s.errors.level == 0)
            & (s.retransmit_queue.level == 0)
            & (s.ready_queue.level == 0)
            & (s.complete_queue.level == 0)
            & ((s.delay_queue.level == 0) | (s.delay_queue.r_rdy & ~s.due))
        ),
    ]


def waiting_operations(s: "Sequencer") -> Signal:
    """Which kinds of operations could be taken, one bit each; ``s.others``: any but a QP's current turn."""
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
        waiting[Operation.DELAYED].eq(s.due & s.retransmit_queue.w_rdy),
        waiting[Operation.COMPLETE].eq(s.complete_queue.r_rdy & s.order.ready),
        waiting[Operation.RETRANSMIT].eq(s.retransmit_queue.r_rdy & s.jobs.w_rdy),
        waiting[Operation.TURN].eq(s.ready_queue.r_rdy & s.jobs.w_rdy & s.enable),
    ]
    s.others = Signal()
    m.d.comb += s.others.eq(waiting[: Operation.TURN].any() | s.ready_queue.r_rdy)
    return waiting
