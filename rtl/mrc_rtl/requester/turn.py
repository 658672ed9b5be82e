"""A QP's turn to send: the sequencer's states that open requests and give out new packets."""

from typing import TYPE_CHECKING

from amaranth.hdl import Cat, Mux, Signal

from ..tables import CompletionStatus, QpErrorReason
from .sack_merge import WORD_LOG2
from .segmenter import mtu_exponents

if TYPE_CHECKING:
    from .sequencer import Sequencer

__all__ = ["add_states"]

#: Packets of one turn while others wait, and at 256 and 512 bit, where changing turns costs more of them.
_BURST, _WIDE_BURST = 4, 8


def add_states(s: "Sequencer") -> None:
    """Add CHECK, SIZE and EMIT: one packet takes two cycles, one that opens its request three. REFUSE and
    BLOCK end a turn with a request that the engine cannot send, or not yet.

    The first PSN behind a message is known from the moment its request is opened, so nothing depends on the
    length of a message. ``ack_request`` is set on the last packet before the QP stops: end of what is posted,
    end of the peer's or the congestion window, end of the immediates allowed.

    Source: protocol.md 2.4 (send conditions), 7-Q6; profile.md 5 (window).
    """
    m, context, settings = s.m, s.context, s.settings
    psns, queue, progress = context.psns, context.queue, context.progress
    limit = _BURST if s.config.packet_interval > 4 else _WIDE_BURST
    s.burst = burst = Signal(range(limit))
    enough = Signal()
    window_end = Signal()
    opening = Signal()  # the packet is the first of a request that is not open yet
    final = Signal()  # the packet is the last of the open request
    none_left = Signal()  # no request is posted behind the packet's
    quotient = Signal(24)  # length over MTU, rounded down
    rest = Signal()  # what does not fill a packet
    few = Signal()  # the quotient is 0 or 1
    immediate = Signal()
    open_next = Signal.like(queue.open)
    immediates_next = Signal.like(queue.immediates)
    immediates_full = Signal()
    m.d.comb += [
        open_next.eq(queue.open + opening),
        immediates_next.eq(queue.immediates + (opening & immediate)),
        immediates_full.eq(immediates_next >= settings.max_immediates),
        enough.eq((burst == limit - 1) & s.others),
        s.new_job.qp.eq(s.qp),
        s.give_slot.eq(Mux(opening, queue.open[: s.slot_bits], s.newest_slot)),
        s.message.first.eq(s.look_psn),
        s.message.rqmsn.eq(progress.rqmsn),
        s.message.msn.eq(queue.completed + (queue.open - s.completed_count)[: len(queue.open)]),
        # The bit below the sum is the carry in.
        few.eq(~quotient[1:].any()),
        s.message_end.eq((Cat(1, s.look_psn) + Cat(rest | (few & ~quotient[0]), quotient))[1:]),
    ]
    with m.State("CHECK"):
        m.d.comb += [s.step_up.eq(1), s.ahead.eq(1)]
        m.d.sync += [
            final.eq(s.aimed == s.end),
            window_end.eq((s.window == 1) | s.last_to_send),
            opening.eq(0),
            immediate.eq(progress.message_immediate),
        ]
        more = progress.message_open | ((queue.open != queue.posted) & ~progress.blocked)
        m.next = "TAIL"
        # A QP without a path keeps its place in the queue, and its packets out of the slots all share.
        with m.If(s.rts & more & s.window_open & s.may_send & s.path_there & s.jobs.w_rdy):
            m.next = "SIZE"
            with m.If(progress.message_open):
                m.next = "EMIT"
    with m.State("SIZE"):
        m.next = "EMIT"
        with m.Switch(settings.mtu_log2):
            for exponent in mtu_exponents(s.config):
                with m.Case(exponent):
                    m.d.sync += [
                        quotient.eq(s.info.length >> exponent),
                        rest.eq(s.info.length[:exponent].any()),
                    ]
        m.d.sync += [opening.eq(1), immediate.eq(s.info.immediate)]
        with m.If(~s.info.valid):
            m.next = "REFUSE"
        with m.Elif(s.info.immediate & immediates_full):
            m.next = "BLOCK"
    with m.State("REFUSE"):
        s.fail(CompletionStatus.GENERAL_ERROR, QpErrorReason.LOCAL_PROTECTION, queue.open[: s.slot_bits])
        m.next = "TAIL"
    with m.State("BLOCK"):
        m.d.sync += progress.blocked.eq(1)
        m.next = "TAIL"
    with m.State("EMIT"):
        last = Signal()
        m.d.comb += [
            s.step_up.eq(1),
            last.eq(Mux(opening, few & ~(quotient[0] & rest), final)),
            none_left.eq(open_next == queue.posted),
            s.message_write.eq(opening),
            s.jobs.w_en.eq(1),
            s.new_job.ack_request.eq(window_end | (last & (none_left | (immediate & immediates_full)))),
            s.give.eq(1),
            s.clear.eq(s.look_psn[:WORD_LOG2] == 0),
            s.happens.eq(1),
        ]
        m.d.sync += [
            psns.next.eq(s.aimed),
            queue.open.eq(open_next),
            queue.immediates.eq(immediates_next),
            progress.rqmsn.eq(progress.rqmsn + (opening & immediate)),
            progress.message_open.eq(~last),
            progress.message_immediate.eq(immediate),
        ]
        with m.If(burst != limit - 1):
            m.d.sync += burst.eq(burst + 1)
        m.next = "CHECK"
        with m.If(enough):
            m.next = "TAIL"
        with m.Elif(opening & ~last):
            m.next = "SETTLE"
    with m.State("SETTLE"):
        # The end just written is not yet read.
        m.next = "CHECK"
