"""The PSN that an operation of the sequencer is about, and where it stands."""

from enum import IntEnum
from typing import TYPE_CHECKING

from amaranth.hdl import Cat, Mux, Signal, Value
from amaranth.lib.memory import Memory

from ..layouts import AETH, CC_STATE, NETH, SETH
from ..records import BODY_BITS
from ..wire import Opcode
from .qp_table import command_fields
from .queues import Operation
from .records import ev_name
from .tx_tracker import ev_check

if TYPE_CHECKING:
    from .sequencer import Sequencer

__all__ = ["Origin", "add", "add_ends", "latch_distances", "latch_judgement", "latch_sight", "remembers"]


class Origin(IntEnum):
    """Where the aim of a state starts from; only OPERATION takes a step that the operation asks for."""

    OPERATION = 0
    LOOK = 1  # the PSN aimed at last
    UNACKED = 2  # the oldest PSN not covered
    SETTLED = 3  # where the walk over a plane's packets begins (:mod:`mrc_rtl.requester.losses`)


#: exponential_count that means no limit.
_NO_LIMIT = 25


def add(s: "Sequencer") -> None:
    """Add what tells the PSN of an operation.

    ``aimed`` is the PSN at the end of the operation's first cycles, ``look_psn`` the same one cycle later;
    with ``step_up`` and ``step_down`` it is one more or less, with ``stepping`` it lies ``step`` from the
    feedback's.
    """
    m, context = s.m, s.context
    # Latched in LOOK: where the PSN of the operation stands.
    s.relative = Signal(24)  # PSN - oldest unacknowledged
    s.ack_relative = Signal(24)  # PSN - first PSN without transport ACK
    s.behind = Signal(24)  # next new PSN - PSN
    # Latched in WEIGH: what the comparisons and the tracker say of it.
    s.in_window = Signal()
    s.inside = Signal()  # the PSN lies inside the peer's window, if it is not before it
    s.at_end = Signal()  # the PSN is the next new one
    s.was_acked = Signal()
    s.was_queued = Signal()
    s.same_ev = Signal()  # the feedback echoes the entropy value of the PSN's last transmission
    s.remembered = Signal()  # the tracker still knows the PSN: no later one took its place
    s.suspect = Signal(ev_name(s.config))  # plane and number of that entropy value
    s.acceptable = Signal()  # the PSN is not before the oldest unacknowledged nor beyond the next
    s.advances = Signal()  # and it is not the oldest unacknowledged itself
    s.ack_advances = Signal()  # the PSN is behind the first without transport ACK
    s.covered = Signal()  # the oldest request is opened, and its last PSN has its transport ACK
    s.unfinished = Signal()  # some request is posted and not completed
    s.opened = Signal()  # some request is opened and not completed,
    s.one_opened = Signal()  # just one is
    s.refused = Signal()  # the host's command is not allowed
    s.starts_anew = Signal()  # it begins or ends a QP
    s.exhausted = Signal()  # no further timeout is allowed
    s.free = Signal(s.slot_bits + 1)  # requests that may still be posted

    feedback = s.feedback.payload
    s.seth = SETH(feedback.body[BODY_BITS - SETH.size :])
    s.cc_state = CC_STATE(feedback.body[BODY_BITS - SETH.size - CC_STATE.size : BODY_BITS - SETH.size])
    s.neth = NETH(feedback.body[BODY_BITS - NETH.size :])
    s.aeth = AETH(feedback.body[BODY_BITS - AETH.size :])
    # The kind of feedback; in registers, which hold it from the second cycle of an operation on.
    s.is_sack, s.is_nack, s.is_ack, s.is_nak = Signal(), Signal(), Signal(), Signal()
    kinds = Signal(4)
    acknowledge = feedback.opcode == Opcode.ACKNOWLEDGE
    m.d.comb += [
        kinds[0].eq(feedback.opcode == Opcode.SACK),
        kinds[1].eq(feedback.opcode == Opcode.NACK),
        kinds[2].eq(acknowledge & (s.aeth.syndrome[5:] == 0)),
        kinds[3].eq(acknowledge & (s.aeth.syndrome[5:] != 0)),
    ]
    m.d.sync += Cat(s.is_sack, s.is_nack, s.is_ack, s.is_nak).eq(kinds)

    s.step_up, s.step_down = Signal(), Signal()
    s.ahead = Signal()  # the aim is for a comparison only
    s.origin = Signal(Origin)  # where the aim starts from, unless it is the operation's PSN
    s.step = Signal(16)  # with ``stepping``, a signed distance from the PSN of the operation
    s.stepping = Signal()
    source = Signal(24)
    end = Signal(24)
    s.aimed = Signal(24)
    far = Mux(s.stepping, s.step[-1], s.step_down)
    distance = Cat(Mux(s.stepping, s.step, s.step_down.replicate(16)), far.replicate(8))
    m.d.comb += [
        # The bit below the sum is the carry in.
        s.aimed.eq((Cat(1, source) + Cat(s.step_up, distance))[1:]),
        source.eq(context.psns.unacked),
    ]
    m.d.sync += end.eq(s.end)
    with m.If(~s.ahead):
        m.d.sync += s.look_psn.eq(s.aimed)
    s.settled = Signal(24)
    with m.Switch(s.operation):
        with m.Case(Operation.SENT):
            m.d.comb += source.eq(s.again.payload.psn)
        with m.Case(Operation.FEEDBACK):
            # The PSNs of SACK and NACK stand at the same place.
            m.d.comb += source.eq(feedback.psn)
            with m.If(kinds[0] | kinds[1]):
                m.d.comb += source.eq(s.neth.nack_psn)
            m.d.comb += s.step_up.eq((kinds[0] | kinds[2]) & ~s.stepping & (s.origin == Origin.OPERATION))
        with m.Case(Operation.HOST):
            m.d.comb += source.eq(command_fields(s.host.payload)["initial_psn"])
        with m.Case(Operation.RETRANSMIT):
            m.d.comb += source.eq(s.entry.psn)
            if s.config.go_back_n:
                with m.If(s.entry.rest):
                    m.d.comb += source.eq(context.progress.resend)
        with m.Case(Operation.TURN):
            m.d.comb += source.eq(context.psns.next)
        with m.Case(Operation.TIMEOUT):
            # All that is sent is SACKed: in the end the aim is the last PSN of the oldest request.
            with m.If(s.at_end):
                m.d.comb += [source.eq(end), s.step_down.eq(1)]
    with m.Switch(s.origin):
        with m.Case(Origin.LOOK):
            m.d.comb += source.eq(s.look_psn)
        with m.Case(Origin.UNACKED):
            m.d.comb += source.eq(context.psns.unacked)
        with m.Case(Origin.SETTLED):
            m.d.comb += source.eq(s.settled)


def add_ends(s: "Sequencer") -> None:
    """Add the memory of the first PSN behind each opened request, and the look-up in the work queue.

    ``end`` belongs to the newest opened request in a turn, otherwise to the oldest one.
    """
    m, queue, slots = s.m, s.context.queue, s.slot_bits
    m.submodules.ends = ends = Memory(shape=24, depth=s.config.qps * s.config.send_queue_depth, init=[])
    read_port, write_port = ends.read_port(), ends.write_port()
    s.end = read_port.data
    s.newest_slot = Signal(slots)
    s.completed_slot = queue.completed[:slots]
    s.completed_count = queue.completed[: slots + 1]
    index_open = Cat(queue.open[:slots], s.qp)
    index_completed = Cat(s.completed_slot, s.qp)
    m.d.comb += [
        s.newest_slot.eq(queue.open - 1),
        read_port.addr.eq(index_completed),
        write_port.addr.eq(index_open),
        write_port.data.eq(s.message_end),
        write_port.en.eq(s.message_write),
        s.message_index.eq(index_open),
        s.info_index.eq(index_completed),
    ]
    with m.If(s.operation == Operation.TURN):
        m.d.comb += [read_port.addr.eq(Cat(s.newest_slot, s.qp)), s.info_index.eq(index_open)]


def latch_distances(s: "Sequencer") -> None:
    """One cycle after the aim: distances of the PSN from what the context holds."""
    psns, progress = s.context.psns, s.context.progress
    s.m.d.sync += [
        s.relative.eq(s.look_psn - psns.unacked),
        s.ack_relative.eq(s.look_psn - progress.ack_next),
        s.behind.eq(psns.next - s.look_psn),
    ]


def latch_judgement(s: "Sequencer") -> None:
    """One cycle later: what the distances, the tracker, the oldest request and the context say."""
    context, queue, settings = s.context, s.context.queue, s.settings
    attempts = settings.linear_count + settings.exponential_count
    known = ~s.relative[23] & ~s.behind[23]
    posted = (queue.posted - s.completed_count)[: len(queue.posted)]
    latch_sight(s)
    s.m.d.sync += [
        # Between the oldest unacknowledged and the next new PSN lies less than half the circle.
        s.in_window.eq(known & s.behind.any()),
        s.inside.eq(s.relative[: s.config.psn_ring_bits + 1] < settings.mpr_psns),
        s.at_end.eq(~s.behind.any()),
        s.acceptable.eq(known),
        s.advances.eq(known & s.relative.any()),
        s.ack_advances.eq(~s.ack_relative[23] & s.ack_relative.any()),
        s.was_acked.eq(s.acked),
        s.was_queued.eq(s.queued),
        s.covered.eq(~(context.progress.ack_next - s.end)[23] & (queue.open != s.completed_count)),
        s.unfinished.eq(queue.posted != s.completed_count),
        s.opened.eq(queue.open != s.completed_count),
        s.one_opened.eq((queue.open - s.completed_count)[: len(queue.open)] == 1),
        s.exhausted.eq((settings.exponential_count != _NO_LIMIT) & (context.progress.attempt >= attempts)),
        s.free.eq(s.config.send_queue_depth - posted),
    ]


def latch_sight(s: "Sequencer") -> None:
    """In the same cycle: the last transmission of the PSN, and whether the feedback is about that one."""
    s.m.d.sync += [
        # SACK and NACK have the echo at the same place.
        s.same_ev.eq(ev_check(s.neth.entropy) == s.attributes.check),
        s.remembered.eq(remembers(s)),
        s.suspect.plane.eq(s.attributes.plane),
        s.suspect.ev_index.eq(s.attributes.ev_index),
    ]


def remembers(s: "Sequencer") -> Value:
    """Whether the tracker still knows the PSN of the distances: no later one took its place."""
    ring = s.config.psn_ring_bits
    lap, place = s.behind[ring:], s.behind[:ring]
    return Mux(place.any(), lap == 0, lap == 1)
