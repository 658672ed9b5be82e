"""What feedback says of paths and of congestion: the sequencer's states behind a SACK's cumulative part."""

from typing import TYPE_CHECKING

from amaranth.hdl import Cat, Const, Mux, Signal

from ..records import CongestionKind, GlobalCounter, PathOperation
from ..wire import Mark
from . import aim, losses

if TYPE_CHECKING:
    from .sequencer import Sequencer

__all__ = ["NOMINAL_HEADER", "add", "add_states"]

#: What a packet counts for a congestion window beside its payload (protocol.md 2.7): headers and 40 bytes.
NOMINAL_HEADER = 88

#: Bit of a probe's number that tells a prober's from one of the tail.
_PROBER = 15


def add(s: "Sequencer") -> None:
    """Add the streams ``path``, ``congestion`` and ``probe_answer``.

    Their records are made of the feedback and of registers that stay until the stream's handshake. The size
    of a packet that is refused or lost is told as that of a full one.
    """
    m, seth, cc_state = s.m, s.seth, s.cc_state
    s.notice = Signal(CongestionKind)  # what is told behind an operation, with ``noticing``
    s.noticing = Signal()
    s.trimmed = Signal()
    s.rtt = Signal(16)
    s.sampled = Signal()
    s.reporting = Signal()  # a SACK is told
    s.path_operation = Signal(PathOperation)
    number = seth.ack_psn_offset.as_unsigned()
    event, answer, path = s.congestion.payload, s.probe_answer.payload, s.paths.w_data
    mtu = Signal(6)  # from 256 bytes on
    m.d.comb += [
        mtu.eq(1 << s.settings.mtu_log2[:3]),
        event.qp.eq(s.qp),
        event.kind.eq(Mux(s.reporting, CongestionKind.SACK, s.notice)),
        event.size.eq(Cat(Const(NOMINAL_HEADER, 8), mtu)),
        event.units.eq(cc_state.rcvd_bytes),
        event.marked.eq(Mux(s.reporting, seth.m == Mark.SKIP_ONCE, s.trimmed)),
        event.rtt.eq(Cat(s.rtt[0] | ~s.rtt.any(), s.rtt[1:])),
        event.sampled.eq(s.sampled & ~s.rtt[-1]),
        event.penalty.eq(cc_state.rcv_cwnd_pen),
        event.restore.eq(cc_state.restore_cwnd),
        answer.qp.eq(s.qp),
        answer.number.eq(number),
        answer.marked.eq(seth.m != Mark.NONE),
        answer.rtt.eq(event.rtt),
        path.eq(Cat(s.qp, s.suspect, s.path_operation)),
        s.path.valid.eq(s.paths.r_rdy),
        s.path.payload.eq(s.paths.r_data),
        s.paths.r_en.eq(s.path.ready),
    ]


def add_states(s: "Sequencer") -> None:
    """Add the states between ACT and the merge of a bitmap, and NOTICE, which tells of anything else.

    TRIGGER and BASE aim at the packet that triggered the SACK and at the base of the bitmap, in ECHO the
    tracker answers for the former, in REPORT the congestion window learns of it, in ANSWER a prober.

    Source: profile.md 3 (feedback is attributed by PSN) and 4; nscc.md (when a round-trip time counts).
    """
    m, seth, feedback = s.m, s.seth, s.feedback.payload
    some = Signal()  # the bitmap is not empty

    def judge_losses() -> None:
        losses.judge(s, end)

    def end() -> None:
        with m.If(s.at_end):
            s.tell_congestion(CongestionKind.IDLE)
        m.d.comb += s.feedback.ready.eq(1)
        m.next = "TAIL"
        with m.If(seth.pr & seth.ack_psn_offset.as_unsigned()[_PROBER]):
            m.d.comb += s.feedback.ready.eq(0)
            m.next = "ANSWER"

    with m.State("TRIGGER"):
        m.d.comb += [s.stepping.eq(1), s.step.eq(seth.ack_psn_offset)]
        m.next = "BASE"
    with m.State("BASE"):
        m.d.comb += [s.stepping.eq(1), s.step.eq(seth.sack_offset)]
        aim.latch_distances(s)
        m.next = "ECHO"
    with m.State("ECHO"):
        m.d.comb += [s.stepping.eq(1), s.step.eq(seth.sack_offset)]
        aim.latch_sight(s)
        losses.latch_proof(s)
        # Of which transmission the sample is must be certain: of the first, or of the only one sent again.
        m.d.sync += [
            s.rtt.eq(feedback.received_at - s.cc_state.tx_timestamp),
            s.sampled.eq(s.attributes.retransmissions == feedback.retransmission),
            some.eq(seth.sack_bitmap.any()),
        ]
        m.next = "JUDGE"
    with m.State("JUDGE"):
        m.d.comb += [s.stepping.eq(1), s.step.eq(seth.sack_offset)]
        m.d.sync += s.sampled.eq(seth.pr | (s.sampled & s.remembered))
        losses.judge_proof(s)
        with m.If(s.undoes):
            s.tell_path(PathOperation.UNDO)
        with m.Elif(~seth.pr & s.remembered & s.same_ev):
            with m.If(seth.m == Mark.SKIP_ONCE):
                s.tell_path(PathOperation.SKIP)
            with m.Elif(seth.m == Mark.ALWAYS_SKIP):
                s.tell_path(PathOperation.CONDEMN)
        m.next = "REPORT"
    with m.State("REPORT"):
        m.d.comb += [
            s.reporting.eq(1),
            s.congestion.valid.eq(1),
            s.merge.eq(s.congestion.ready & some),
            # The base stays while the congestion window is not ready.
            s.stepping.eq(1),
            s.step.eq(seth.sack_offset),
        ]
        losses.note_report(s)
        with m.If(s.congestion.ready):
            m.next = "MERGE"
            with m.If(~some):
                judge_losses()
    with m.State("MERGE"):
        if s.config.loss_inference:
            m.d.sync += s.context.psns.held.eq(s.context.psns.held + s.merge_new)
            with m.If(s.merge_new.any()):
                m.d.sync += s.news.eq(1)
        with m.If(s.merge_done):
            with m.If(s.merge_beyond):
                s.count(GlobalCounter.FEEDBACK_IGNORED)
            judge_losses()
    losses.add_states(s, end)
    with m.State("ANSWER"):
        m.d.comb += s.probe_answer.valid.eq(1)
        with m.If(s.probe_answer.ready):
            m.d.comb += s.feedback.ready.eq(1)
            m.next = "TAIL"
    with m.State("TAIL"):
        with m.If(~s.untold):
            s.tail()
            m.next = "PICK"
            with m.If(s.noticing):
                m.next = "NOTICE"
    with m.State("NOTICE"):
        m.d.comb += s.congestion.valid.eq(1)
        with m.If(s.congestion.ready):
            m.d.sync += s.noticing.eq(0)
            m.next = "PICK"
