"""Which packets are lost: what the arrival of a later one, or the answer to a probe, proves."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib import data
from amaranth.lib.memory import Memory

from ..records import CongestionKind, PathOperation, plane_bits
from . import aim
from .aim import Origin

if TYPE_CHECKING:
    from .sequencer import Sequencer

__all__ = [
    "add",
    "add_states",
    "ask",
    "begin",
    "judge",
    "judge_proof",
    "latch_proof",
    "note_report",
    "pass_by",
]

#: Bits of a probe's number; the top bit is set in a prober's.
_NUMBER_BITS = 15

#: Retransmissions are looked for among so many PSNs from the oldest one that is not covered on.
_RETRANSMISSION_REACH_LOG2 = 6


def add(s: "Sequencer") -> None:
    """Add the memory of settled PSNs and the registers of a proof.

    New packets of one plane leave in the order of their PSNs, so the list in transmit order of a (QP, plane)
    is the ring of PSNs itself, and its head the first PSN that is not settled: one of another plane, one that
    arrived or one that left again is passed over for good. Each PSN is looked at once a plane, and twice at
    a head.
    """
    m, config = s.m, s.config
    bits = config.psn_ring_bits + 1
    s.proof = Signal(data.StructLayout({"plane": plane_bits(config), "ev_index": 5, "again": 1, "time": 16}))
    s.proof_relative = Signal(bits)  # its PSN - oldest unacknowledged
    s.proof_ahead = Signal()  # packets that are not covered were sent before it
    s.undoes = Signal()  # the first transmission of a packet taken for lost arrived
    s.walks = Signal()
    s.settle = Signal()
    s.losing = Signal()  # in this cycle the packet looked up is taken for lost
    s.left = Signal(bits)
    s.passing = Signal()
    if not config.loss_inference:
        return
    with m.If(s.tail_probe.ready):
        m.d.sync += s.tail_probe.valid.eq(0)
    m.submodules.settled = settled = Memory(shape=24, depth=config.qps * config.planes, init=[])
    read_port, write_port = settled.read_port(), settled.write_port()
    m.d.comb += [
        read_port.addr.eq(Cat(s.qp, s.proof.plane)),
        s.settled.eq(read_port.data),
        write_port.addr.eq(Cat(s.qp, s.proof.plane)),
        write_port.data.eq(s.look_psn),
        write_port.en.eq(s.settle),
    ]


def begin(s: "Sequencer") -> None:
    """Behind the host's command that begins a QP: nothing is settled from its first PSN on."""
    if not s.config.loss_inference:
        return
    psns = s.context.psns
    s.m.d.sync += [s.proof.plane.eq(0), psns.held.eq(0), psns.reported.eq(0)]
    s.m.next = "BEGIN"


def pass_by(s: "Sequencer") -> None:
    """The PSN looked at becomes the oldest one that is not covered.

    While the peer holds PSNs behind it, those passed by are counted one by one.
    """
    m, psns = s.m, s.context.psns
    if not s.config.loss_inference:
        m.d.sync += psns.unacked.eq(s.look_psn)
        return
    with m.If(psns.held.any()):
        m.d.comb += [s.feedback.ready.eq(0), s.origin.eq(Origin.UNACKED)]
        m.d.sync += [s.left.eq(s.relative), s.passing.eq(0)]
        m.next = "PASS"
    with m.Else():
        m.d.sync += [psns.unacked.eq(s.look_psn), psns.reported.eq(0)]


def ask(s: "Sequencer") -> None:
    """Ask the peer what it lacks, on another plane than that of the oldest PSN that is not covered.

    The number tells up to which PSN packets were given out. While a question waits none is added, nor while
    nothing is missing.
    """
    m, config, question = s.m, s.config, s.tail_probe.payload
    if not config.loss_inference:
        return
    wanted = s.rts & ~s.at_end & ~s.tail_probe.valid
    if config.go_back_n:
        wanted &= ~s.settings.go_back_n
    plane, turn = s.suspect.plane, s.now[: len(question.plane)]
    if config.planes & config.planes - 1:
        other = Mux(plane == config.planes - 1, 0, plane + 1)
    else:
        other = plane ^ Mux(turn.any(), turn, 1) if config.planes > 1 else plane
    with m.If(wanted):
        m.d.sync += [
            s.tail_probe.valid.eq(1),
            s.asks.eq(1),
            question.qp.eq(s.qp),
            question.number.eq(s.context.psns.next[:_NUMBER_BITS]),
            # One whose port is down is given to another one by bind.
            question.plane.eq(other),
        ]


def latch_proof(s: "Sequencer") -> None:
    """In ECHO: what the tracker knows of the packet that triggered a SACK; of a probe, when it left.

    That time includes how long the peer took to answer, which the peer added to it.
    """
    m, attributes, blame = s.m, s.attributes, s.blame
    undoes = Signal()
    m.d.comb += [
        undoes.eq(~s.seth.pr & ~s.feedback.payload.retransmission & blame.lost & aim.remembers(s)),
        s.clear_blame.eq(undoes),
    ]
    m.d.sync += [
        s.proof.plane.eq(attributes.plane),
        s.proof.ev_index.eq(attributes.ev_index),
        s.proof.again.eq(attributes.retransmissions.any()),
        s.proof.time.eq(Mux(s.seth.pr, s.cc_state.tx_timestamp, attributes.time)),
        s.proof_relative.eq(s.relative),
        s.proof_ahead.eq(~s.relative[-1] & s.relative.any()),
        s.undoes.eq(undoes),
    ]
    with m.If(undoes):
        m.d.sync += [s.suspect.plane.eq(blame.plane), s.suspect.ev_index.eq(blame.ev_index)]


def judge_proof(s: "Sequencer") -> None:
    """In JUDGE: whether it is certain which transmission arrived, and others may be older.

    The answer to a probe of the tail is looked into unless something new was heard since it left: then what
    is missing may only wait in queues, which a probe overtakes.
    """
    if not s.config.loss_inference:
        return
    number = s.seth.ack_psn_offset.as_unsigned()
    asked = s.context.progress.asked & ~s.news
    certain = s.remembered & s.same_ev & s.sampled
    walks = Mux(s.seth.pr, ~number[-1] & asked, certain & (s.proof.again | s.proof_ahead))
    if s.config.go_back_n:
        # Its peer drops what comes behind a gap, so nothing is overtaken.
        walks &= ~s.settings.go_back_n
    s.m.d.sync += s.walks.eq(walks)


def note_report(s: "Sequencer") -> None:
    """In REPORT: how many PSNs behind the oldest one that is not covered the peer says it holds.

    A SACK that was overtaken by another one says less than that one did.
    """
    if not s.config.loss_inference:
        return
    reported, count = s.context.psns.reported, s.cc_state.ooo_count
    more = Signal.like(reported)
    s.m.d.comb += more.eq(count[: len(reported)] | count[len(reported) :].any().replicate(len(reported)))
    with s.m.If(s.acceptable & (more > reported)):
        s.m.d.sync += reported.eq(more)


def _selective(s: "Sequencer") -> Signal:
    """Whether the proof is a new packet's, which concerns the list of new packets of its plane."""
    return ~s.seth.pr & ~s.proof.again


def judge(s: "Sequencer", end: Callable[[], None]) -> None:
    """Behind the merge of a bitmap: begin to look for losses, or end the operation.

    An answer to a probe that itself tells of something new is no proof either.
    """
    m = s.m
    if not s.config.loss_inference:
        end()
        return
    with m.If(s.walks & ~(s.seth.pr & (s.news | s.merge_new.any()))):
        m.d.comb += [s.origin.eq(Mux(_selective(s), Origin.SETTLED, Origin.UNACKED)), s.stepping.eq(0)]
        m.next = "PLACE"
    with m.Else():
        end()


def add_states(s: "Sequencer", end: Callable[[], None]) -> None:
    """Add BEGIN, PASS (see :func:`begin`, :func:`pass_by`) and the walk over packets that may be lost.

    PLACE and SORT find its beginning, SEEK passes one PSN a cycle, GAUGE and VERDICT judge one that is
    missing, TELL tells the congestion window. A new packet that arrived walks the list of its plane up to the
    first one that is not lost, or itself; a retransmission the oldest PSNs; the answer to a probe all that
    were given out when it left, which its number tells. One that is missing is lost when the packet that
    arrived left at least the reorder window later (the probe: one and a half base_rtt), or later on the same
    entropy value. For that the peer must lack it for certain: it is the oldest one, or the peer holds no more
    than what is known. A queue that is full ends the walk: nothing may wait in an operation for the path
    table, which waits for bind, which waits for the operation that takes what was sent.

    That at most one retransmission leaves per PSN and round-trip time needs no clock: what proves the next
    loss left later, and its answer took a round-trip time.

    Source: profile.md 4, rules (i) to (iii); protocol.md 7-Q19.
    """
    m, config, psns, attributes = s.m, s.config, s.context.psns, s.attributes
    if not config.loss_inference:
        return
    ring = config.psn_ring_bits
    selective = _selective(s)
    seen = Signal()  # the tracker's answer belongs to the PSN before the one looked at
    passed = Signal(ring + 1)  # the low bits of that PSN
    unsent, here = Signal(), Signal()
    interest, reach, hit = Signal(), Signal(), Signal()
    candidate, reached = Signal(), Signal()
    gap = Signal(16)  # how much later than the packet the proof left
    near = Signal()  # both left on the same entropy value
    margin = Signal(16)
    whole = Signal()  # what the peer holds is known
    late, lost = Signal(), Signal()
    window = Signal(16)
    m.d.comb += [
        unsent.eq(attributes.lap != passed[-1]),
        here.eq(attributes.plane == s.proof.plane),
        interest.eq(
            ~s.acked
            & ~s.queued
            & Mux(
                s.seth.pr,
                ~unsent,
                Mux(s.proof.again, s.blame.again & here, ~s.blame.again & (unsent | here)),
            )
        ),
        reach.eq(
            Mux(
                selective,
                s.relative[: ring + 1] >= s.proof_relative,
                ~s.behind[: ring + 1].any()
                | Mux(
                    s.seth.pr,
                    passed == s.seth.ack_psn_offset[: ring + 1],
                    s.relative[_RETRANSMISSION_REACH_LOG2 : ring + 1].any(),
                ),
            )
        ),
        hit.eq(seen & (interest | reach)),
        window.eq(Mux(s.reorder_window.any(), s.reorder_window, s.base_rtt >> 1)),
        # A packet's time is that of bind; it may wait for the frames before it, which a probe does not.
        margin.eq(Mux(s.seth.pr, s.base_rtt + (s.base_rtt >> 1), window)),
        lost.eq(late & (~s.relative[: ring + 1].any() | whole)),
    ]

    def onwards() -> None:
        m.d.comb += s.step_up.eq(1)
        m.d.sync += seen.eq(0)
        m.next = "SEEK"

    with m.State("BEGIN"):
        m.d.comb += [s.origin.eq(Origin.LOOK), s.settle.eq(1)]
        m.d.sync += s.proof.plane.eq(s.proof.plane + 1)
        with m.If(s.proof.plane == config.planes - 1):
            m.next = "RELOAD"
    with m.State("PASS"):
        m.d.comb += [s.origin.eq(Origin.LOOK), s.step_up.eq(s.left.any())]
        m.d.sync += [s.passing.eq(s.left.any()), s.left.eq(s.left - 1)]
        with m.If(s.passing & s.acked):
            m.d.sync += psns.held.eq(psns.held - 1)
        with m.If(~s.left.any()):
            m.d.sync += [psns.unacked.eq(s.look_psn), psns.reported.eq(0)]
            m.next = "TRIGGER"
            with m.If(~s.is_sack):
                m.d.comb += s.feedback.ready.eq(1)
                m.next = "TAIL"
    with m.State("PLACE"):
        m.d.comb += s.origin.eq(Origin.LOOK)
        aim.latch_distances(s)
        m.d.sync += whole.eq(s.acceptable & (psns.held >= psns.reported))
        m.next = "SORT"
    with m.State("SORT"):
        m.d.comb += s.origin.eq(Mux(s.relative[-1], Origin.UNACKED, Origin.LOOK))
        m.d.sync += seen.eq(0)
        m.next = "SEEK"
    with m.State("SEEK"):
        m.d.comb += [s.origin.eq(Origin.LOOK), s.step_up.eq(~hit), s.step_down.eq(hit)]
        aim.latch_distances(s)
        m.d.sync += [
            seen.eq(1),
            passed.eq(s.look_psn),
            candidate.eq(interest & ~unsent),
            reached.eq(reach),
            gap.eq(s.proof.time - attributes.time),
            near.eq((attributes.ev_index == s.proof.ev_index) & ~s.seth.pr),
            s.suspect.plane.eq(attributes.plane),
            s.suspect.ev_index.eq(attributes.ev_index),
        ]
        with m.If(hit):
            m.next = "GAUGE"
    with m.State("GAUGE"):
        m.d.comb += s.origin.eq(Origin.LOOK)
        aim.latch_distances(s)
        m.d.sync += late.eq(candidate & ~reached & ~gap[-1] & ((gap >= margin) | (near & gap.any())))
        m.next = "VERDICT"
    with m.State("VERDICT"):
        m.d.comb += s.origin.eq(Origin.LOOK)
        full = ~s.retransmit_queue.w_rdy | ~s.paths.w_rdy
        with m.If(reached | (selective & ~lost) | (lost & full)):
            m.d.comb += s.settle.eq(selective)
            end()
        with m.Elif(~lost):
            onwards()
        with m.Elif(~s.untold):
            m.d.comb += [s.losing.eq(1), s.set_blame.eq(1)]
            m.d.sync += s.notice.eq(CongestionKind.LOSS)
            s.retransmit(s.retransmit_queue)
            s.tell_path(PathOperation.LOST)
            m.next = "TELL"
    with m.State("TELL"):
        m.d.comb += [s.origin.eq(Origin.LOOK), s.congestion.valid.eq(1)]
        with m.If(s.congestion.ready):
            onwards()
