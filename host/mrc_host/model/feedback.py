"""What SACKs, NACKs, transport ACKs and timeouts do to a QP.

Source: profile.md 3, 4 and 8; protocol.md 1.9 to 1.11, 2.2, 2.4 to 2.7, 7-Q10.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from mrc_host.model.loss import NOBODY
from mrc_host.model.packet import ModelPacket
from mrc_host.model.prober import Prober
from mrc_host.model.send_qp import NO_PSN, SendQp
from mrc_host.model.send_side import SendSide
from mrc_rtl.config import TICK_PS
from mrc_rtl.records import GlobalCounter, TraceKind
from mrc_rtl.tables import CompletionStatus, QpErrorReason, QpState
from mrc_rtl.wire import MPR_UNIT_PSNS, AethSyndrome, Mark, NackReason

__all__ = ["Feedback"]

_STATUS = {
    int(AethSyndrome.NAK_INVALID_REQUEST): int(CompletionStatus.REMOTE_INVALID_REQUEST),
    int(AethSyndrome.NAK_REMOTE_ACCESS): int(CompletionStatus.REMOTE_ACCESS_ERROR),
    int(AethSyndrome.NAK_REMOTE_OPERATIONAL): int(CompletionStatus.REMOTE_OPERATION_ERROR),
}
_TRIMS: Final = (int(NackReason.TRIMMED), int(NackReason.TRIMMED_LASTHOP))
_RETRIABLE: Final = (int(NackReason.NO_BITMAP), int(NackReason.NO_PKT_BUFFER), int(NackReason.NO_RESOURCE))
_TICK_MASK: Final = 0xFFFF
_TICK_PS: Final = TICK_PS
_RTS: Final = int(QpState.RTS)
_SKIP_ONCE: Final = int(Mark.SKIP_ONCE)
_ALWAYS_SKIP: Final = int(Mark.ALWAYS_SKIP)
_MERGE: Final = int(TraceKind.MERGE)
_WINDOW: Final = int(TraceKind.WINDOW)
_WORD: Final = 0xFF_FFFF
_NO_SAMPLE: Final = 0x7FFF
_ACK: Final = int(AethSyndrome.ACK)


class Feedback:
    """Applies feedback; everything that may leave afterwards is woken.

    Parameters
    ----------
    side : SendSide
    prober : Prober
    """

    def __init__(self, side: SendSide, prober: Prober) -> None:
        self._side = side
        self._shell = side.shell
        self._prober = prober
        options = side.options
        self._reacts: bool = options.mark_reaction
        self._obeys: bool = options.obey_always_skip
        self._blames: bool = options.loss_blame == "stored"
        self._proof: bool = options.undo_rule == "proof"
        self._flag: bool = options.undo_rule == "flag"
        self._adapts: bool = options.reorder_adaptation and options.loss_rule == "rack"
        self._silence: bool = options.probe_judges == "silent" and options.loss_rule == "rack"
        self._retries_unknown: bool = options.unknown_nack == "retry"
        self._keeps_sent: bool = options.mpr_shrink == "keep_sent"

    # -- SACK --------------------------------------------------------------------------------------------

    def on_sack(self, qp: SendQp, packet: ModelPacket) -> None:
        """A SACK: window, losses, EV of the packet that triggered it, congestion control."""
        tracker = qp.tracker
        cumulative: i64 = tracker.psn(packet.cumulative_psn)
        if qp.state != _RTS or cumulative >= tracker.next:
            self._ignore()
            return
        now_ps: i64 = self._shell.now_ps
        trigger: i64 = NO_PSN if packet.probe else tracker.psn(packet.acknowledged_psn)
        rtt: i64 = self._round_trip(qp, packet, trigger)
        if rtt >= 0 and (qp.least_rtt == 0 or rtt < qp.least_rtt):
            qp.least_rtt = rtt
        base: i64 = tracker.psn(packet.sack_base)
        moved = tracker.merge(cumulative, base, packet.sack_bitmap, packet.out_of_order)
        self._shell.trace(
            _MERGE, qp.index, packet.plane, packet.cumulative_psn, len(tracker.newly) | moved << 16
        )
        original: i64 = NO_PSN if packet.retransmission else trigger
        self._acknowledge(qp, original, packet.retransmission)
        if qp.option.get("dynamic_mpr", 0) and packet.mpr_units:
            self._resize(qp, packet.mpr_units * MPR_UNIT_PSNS)
        qp.edge = max(qp.edge, tracker.unacked + qp.window)
        marked = packet.mark == _SKIP_ONCE
        if qp.congestion is not None:
            tick = now_ps // _TICK_PS
            qp.congestion.on_sack(tick, packet.received_units, marked, rtt, packet.penalty, packet.restore)
        self._note_window(qp, rtt)
        if packet.probe:
            sent_before = self._prober.answered(qp, packet.probe_id, marked)
            if sent_before >= 0:
                patience_ps = qp.base_rtt_ps + qp.target_delay_ps if self._silence else 0
                for late in tracker.losses_before(sent_before, now_ps - patience_ps):
                    self._lost(qp, late)
        else:
            self._judge_path(qp, packet, trigger, marked)
        psn: i64 = tracker.next_loss(now_ps, qp.base_rtt_ps)
        while psn != NOBODY:
            self._lost(qp, psn)
            psn = tracker.next_loss(now_ps, qp.base_rtt_ps)
        self._after(qp, moved)

    def _note_window(self, qp: SendQp, rtt: i64) -> None:
        """Report window, bytes in flight and round-trip time, at most four times in a base RTT.

        ``detail``: window (24 bits, all ones without congestion control), bytes in flight << 24 (without it
        those from the oldest PSN not covered on, as full packets), sample in ticks << 48 (0x7FFF for none).
        """
        now_ps: i64 = self._shell.now_ps
        if now_ps < qp.window_due_ps:
            return
        qp.window_due_ps = now_ps + qp.base_rtt_ps // 4
        congestion = qp.congestion
        window, flying = _WORD, int((qp.tracker.next - qp.tracker.unacked) * qp.mtu)
        if congestion is not None:
            window, flying = congestion.window, congestion.in_flight
        sample = int(rtt) if 0 <= rtt < _NO_SAMPLE else _NO_SAMPLE
        detail = min(window, _WORD) | max(0, min(flying, _WORD)) << 24 | sample << 48
        self._shell.trace(_WINDOW, qp.index, 0, qp.tracker.unacked & _WORD, detail)

    def _round_trip(self, qp: SendQp, packet: ModelPacket, trigger: i64) -> i64:
        """The sample of a SACK in ticks, −1 when it belongs to no transmission for certain."""
        tracker = qp.tracker
        if not packet.probe:
            if not tracker.knows(trigger):
                return -1
            if tracker.transmissions[tracker.slot(trigger)] != (2 if packet.retransmission else 1):
                return -1
        arrival: i64 = (packet.received_ps + _TICK_PS // 2) // _TICK_PS
        sample: i64 = arrival - packet.timestamp & _TICK_MASK
        if sample >= 0x8000:
            return -1
        return sample if sample > 1 else 1

    def _acknowledge(self, qp: SendQp, original: i64, by_retransmission: bool) -> None:
        """Judge the newly acknowledged packets; one declared lost may turn out to have arrived.

        ``original`` is the PSN whose first transmission caused the SACK.
        """
        tracker = qp.tracker
        newly = tracker.newly
        if not newly:
            return
        now_ps: i64 = self._shell.now_ps
        qp.tail_clock_ps = now_ps
        lost, heard_ps, ev = tracker.lost, tracker.heard_ps, tracker.ev
        mask: i64 = qp.ring - 1
        stride: i64 = qp.evs.stride
        for psn in newly:
            slot: i64 = psn & mask
            if not lost[slot]:
                heard_ps[ev[slot] // stride] = now_ps
                tracker.prove(psn)
                continue
            lost[slot] = 0
            unsent = tracker.waiting[slot] != 0
            early = now_ps - tracker.sent_ps[slot] < (qp.least_rtt - 1) * _TICK_PS
            if self._proof:
                proven = unsent or psn == original or early
            else:
                proven = self._flag and (unsent or not by_retransmission)
            if not proven:
                if unsent:
                    tracker.forget(psn)
                else:
                    tracker.prove(psn)
                continue
            statistics = self._side.statistics
            statistics.losses_undone += 1
            if self._adapts:
                tracker.adapt(True)
            if not unsent:
                statistics.retransmissions_spurious += 1
            tracker.forget(psn)
            if tracker.blamed[slot] != NOBODY:
                qp.policy.on_undo(tracker.blamed[slot])
                tracker.blamed[slot] = NOBODY

    def _judge_path(self, qp: SendQp, packet: ModelPacket, trigger: i64, marked: bool) -> None:
        """What a SACK says of the EV of the packet that triggered it."""
        tracker = qp.tracker
        if not tracker.knows(trigger):
            return
        index = tracker.ev[tracker.slot(trigger)]
        plane, place = divmod(index, qp.evs.stride)
        profiles = self._side.profiles
        if profiles.value[profiles.row(qp.profile, plane, place)] != packet.entropy:
            self._side.statistics.echoes_differ += 1
            return
        self._shell.confirm_ev(qp.index, plane, packet.entropy)
        if packet.mark == _ALWAYS_SKIP:
            if self._obeys:
                qp.evs.condemn(index)
        elif self._reacts:
            qp.policy.on_ack(index, marked, self._shell.now_ps)

    def _resize(self, qp: SendQp, mpr_psns: int) -> None:
        """The peer tracks so many PSNs now; what was sent stays inside (Q10)."""
        window = min(mpr_psns, qp.ring)
        qp.window = window
        edge = qp.tracker.unacked + window
        qp.edge = max(edge, qp.tracker.next) if self._keeps_sent else edge

    # -- losses ------------------------------------------------------------------------------------------

    def _lost(self, qp: SendQp, psn: i64, urgent: bool = False) -> None:
        """A packet is taken for lost: blame its EV, and send it again."""
        tracker = qp.tracker
        slot = tracker.slot(psn)
        index = tracker.ev[slot]
        tracker.give_up(psn)
        tracker.lost[slot] = 1
        statistics = self._side.statistics
        statistics.losses += 1
        if urgent:
            statistics.retransmissions_timeout += 1
            qp.urgent.append(psn)
        else:
            statistics.retransmissions_loss += 1
            qp.queue_retransmission(psn)
            if self._adapts:
                tracker.adapt(False)
        self._shell.trace(
            TraceKind.LOSS, qp.index, index // qp.evs.stride, psn & 0xFF_FFFF, index | urgent << 16
        )
        if self._blames:
            tracker.blamed[slot] = index
            qp.policy.on_loss(index, self._shell.now_ps)
        if qp.congestion is not None:
            qp.congestion.on_loss(self._shell.now_ps // _TICK_PS, tracker.size[slot])

    # -- NACK --------------------------------------------------------------------------------------------

    def on_nack(self, qp: SendQp, packet: ModelPacket) -> None:
        """A NACK counts for an outstanding PSN that is not SACKed, and for its last transmission only."""
        tracker = qp.tracker
        psn = tracker.psn(packet.psn)
        if qp.state != _RTS or not tracker.unacked <= psn < tracker.next or tracker.is_acked(psn):
            self._ignore()
            return
        slot = tracker.slot(psn)
        index = tracker.ev[slot]
        plane, place = divmod(index, qp.evs.stride)
        profiles = self._side.profiles
        if tracker.waiting[slot]:
            self._ignore()
            return
        if profiles.value[profiles.row(qp.profile, plane, place)] != packet.entropy:
            self._side.statistics.echoes_differ += 1
            self._ignore()
            return
        reason, now_ps = packet.reason, self._shell.now_ps
        if reason == NackReason.UNEXP_EVENT or not (self._retries_unknown or self._known(reason)):
            request = qp.request_of(psn)
            self._side.fail(qp, request, CompletionStatus.GENERAL_ERROR, QpErrorReason.UNEXPECTED_EVENT)
            return
        if qp.goes_back and reason == NackReason.PSN_OOR_WINDOW:
            self._go_back(qp, psn)
            self._after(qp, False)
            return
        trimmed = reason in _TRIMS
        if qp.congestion is not None:
            qp.congestion.on_nack(now_ps // _TICK_PS, tracker.size[slot], trimmed)
        tracker.give_up(psn)
        if trimmed:
            self._side.statistics.retransmissions_trim += 1
            if self._reacts and reason == NackReason.TRIMMED:
                qp.policy.on_trim(index, now_ps)
            qp.queue_retransmission(psn)
        else:
            self._side.statistics.retransmissions_refused += 1
            self._delay(qp, psn)
        self._after(qp, False)

    def _go_back(self, qp: SendQp, psn: i64) -> None:
        """Send everything again from a PSN on (RoCE)."""
        tracker = qp.tracker
        tick: i64 = self._shell.now_ps // _TICK_PS
        while psn < tracker.next:
            slot = tracker.slot(psn)
            if not tracker.waiting[slot] and not tracker.is_acked(psn):
                tracker.give_up(psn)
                self._side.statistics.retransmissions_loss += 1
                qp.queue_retransmission(psn)
                if qp.congestion is not None:
                    qp.congestion.on_loss(tick, tracker.size[slot])
            psn += 1

    @staticmethod
    def _known(reason: int) -> bool:
        return reason in _TRIMS or reason in _RETRIABLE or reason == NackReason.PSN_OOR_WINDOW

    def _delay(self, qp: SendQp, psn: int) -> None:
        """Send a refused packet again after one base RTT."""
        self._shell.schedule(
            self._shell.now_ps + qp.base_rtt_ps,
            self._delayed,
            (qp.generation << 32 | (psn & 0xFFFF_FFFF)) << 8 | qp.index,
        )

    def _delayed(self, key: int) -> None:
        qp = self._side.qps[key & 0xFF]
        if qp.generation != key >> 40:
            return
        tracker = qp.tracker
        psn = key >> 8 & 0xFFFF_FFFF
        if tracker.is_acked(psn) or not tracker.waiting[tracker.slot(psn)]:
            return
        if psn >= tracker.unacked + qp.window:
            self._delay(qp, psn)  # still outside the peer's window
            return
        qp.queue_retransmission(psn)
        self._side.wake(qp)

    # -- transport ACK -----------------------------------------------------------------------------------

    def on_ack(self, qp: SendQp, packet: ModelPacket) -> None:
        """A transport ACK completes requests; a NAK ends the QP."""
        tracker = qp.tracker
        psn = tracker.psn(packet.psn)
        if qp.state != _RTS or psn >= tracker.next:
            self._ignore()
            return
        if packet.syndrome == _ACK:
            moved = tracker.advance(psn)
            self._acknowledge(qp, NO_PSN, False)
            qp.edge = max(qp.edge, tracker.unacked + qp.window)
            if psn >= qp.next_ack:
                qp.next_ack = psn + 1
                moved = True
                self._side.complete_up_to(qp, psn)
            if qp.state == _RTS:
                self._after(qp, moved)
            return
        status = _STATUS.get(packet.syndrome)
        if status is None or psn < qp.next_ack:
            self._ignore()
            return
        request = qp.request_of(psn)
        if request is None and qp.opened:
            request = qp.opened[0]
        self._side.fail(qp, request, status, QpErrorReason.REMOTE_NAK)

    # -- timeout -----------------------------------------------------------------------------------------

    def watch(self, qp: SendQp) -> None:
        """See that somebody looks at the timer and at the tail of a QP that sent something."""
        timer = qp.timer
        if timer.deadline_ps >= 0 and (timer.alarm_ps < 0 or timer.alarm_ps > timer.deadline_ps):
            timer.alarm_ps = timer.deadline_ps
            self._shell.schedule(timer.deadline_ps, self._look_at_timer, qp.generation << 8 | qp.index)
        if qp.tail_alarm_ps < 0:
            self._prober.watch_tail(qp)

    def _look_at_timer(self, key: int) -> None:
        qp = self._side.qps[key & 0xFF]
        timer = qp.timer
        if qp.generation != key >> 8:
            return
        now_ps: i64 = self._shell.now_ps
        if timer.alarm_ps != now_ps:
            return  # an earlier alarm took over
        timer.alarm_ps = -1
        if timer.deadline_ps < 0 or qp.state != _RTS:
            return
        if timer.deadline_ps <= now_ps:
            self._timeout(qp)
        if timer.deadline_ps >= 0 and qp.state == _RTS:
            self.watch(qp)

    def _timeout(self, qp: SendQp) -> None:
        """Retransmit the oldest missing PSN, or the end of a message that lacks its transport ACK."""
        tracker, timer, now_ps = qp.tracker, qp.timer, self._shell.now_ps
        if not qp.opened:
            timer.stop()
            return
        missing = tracker.first_missing()
        oldest = qp.opened[0]
        if missing == tracker.next and oldest is qp.opening:
            timer.start(now_ps)  # everything sent has arrived: nothing is late
            return
        if timer.exhausted:
            self._side.fail(qp, oldest, CompletionStatus.RETRY_EXCEEDED, QpErrorReason.RETRY_EXCEEDED)
            return
        self._shell.count(GlobalCounter.TIMEOUTS)
        timer.attempt = min(timer.attempt + 1, 31)
        timer.start(now_ps)
        self._shell.trace(TraceKind.TIMER, qp.index, 0, missing & 0xFF_FFFF, timer.attempt)
        if missing == tracker.next:
            qp.again = oldest.last
        elif not tracker.waiting[tracker.slot(missing)]:
            self._lost(qp, missing, urgent=True)
            if qp.goes_back:
                self._go_back(qp, missing + 1)
        else:
            # It waits for the congestion window, which nothing opens any more.
            qp.urgent.append(missing)
        self._after(qp, False)

    # -- inside ------------------------------------------------------------------------------------------

    def _after(self, qp: SendQp, progress: bool) -> None:
        """Timer, accounts and readiness after something happened."""
        tracker, timer = qp.tracker, qp.timer
        if not qp.opened:
            timer.stop()
        elif progress:
            timer.progress(self._shell.now_ps)
        if qp.congestion is not None and tracker.missing == 0:
            qp.congestion.on_idle()
        if qp.evs.changes:
            self._side.report_changes(qp)
            self._prober.watch_changed()
        self.watch(qp)
        self._side.wake(qp)

    def _ignore(self) -> None:
        self._shell.count(GlobalCounter.FEEDBACK_IGNORED)
