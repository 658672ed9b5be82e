"""Bind: the last decision before the wire. Which packet, on which plane, with which EV.

Control packets come first, at most three in a row while data waits; data of the QPs that may send follow in
turns. Whoever finds no room now lets others try.

Source: design.md 4 rules 5, 6 and 10; profile.md 3, 5 (reverse path) and 6; protocol.md 2.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from mrc_host.model.ev_set import NONE, SKIPPED, lowest_of
from mrc_host.model.packet import UNBOUND, ModelPacket
from mrc_host.model.send_qp import NO_PSN, SendQp, SendRequest, nominal_size
from mrc_host.model.send_side import SendSide
from mrc_host.model.shell import Settings, Shell
from mrc_host.model.spray import PlaneRounds
from mrc_rtl.config import TICK_PS
from mrc_rtl.records import TraceKind
from mrc_rtl.tables import CompletionStatus, QpErrorReason, QpState, WorkRequestOpcode
from mrc_rtl.wire import Ecn, Opcode

__all__ = ["Binder"]

_PSN_MASK: Final = 0xFF_FFFF
_TICK_MASK: Final = 0xFFFF
_PROBE: Final = int(Opcode.PROBE)
_REQUEST: Final = int(Opcode.ENDPOINT_REQUEST)
_DATA_ECN: Final = int(Ecn.ECT0)
_NOT_ECT: Final = int(Ecn.NOT_ECT)

_RTS: Final = int(QpState.RTS)
_BIND: Final = int(TraceKind.BIND)
_CONTROL: Final = 1 << 57
_TICK_PS: Final = int(TICK_PS)

_IDLE: Final = 0
_BLOCKED: Final = 1
_SENT: Final = 2

_WAIT: Final = -2

_DECISION_CYCLES: Final = 4
"""Cycles of the gateware's decision: the model looks at the same question no more often."""

_ABOUT_BYTES: Final = 64
"""Frames that differ by less leave in the order of their rounds; a much shorter one does not wait."""

_OVERHEAD_BYTES: Final = 200
"""Headers, preamble and gap of the largest frame, rounded up."""


class Binder:
    """Sends while planes have room.

    Parameters
    ----------
    side : SendSide
    watch : callable
        Called for a QP after each packet, to see that its timers have an alarm.
    request_sent : callable
        Called for each endpoint request that leaves.

    Attributes
    ----------
    control : list of ModelPacket
        Control packets that wait, oldest first; ``plane`` is the wanted one.
    rounds : PlaneRounds
    """

    def __init__(
        self,
        side: SendSide,
        watch: Callable[[SendQp], None],
        request_sent: Callable[[ModelPacket], None],
    ) -> None:
        self._side = side
        self._watch = watch
        self._request_sent = request_sent
        self._shell: Shell = side.shell
        self._settings: Settings = side.shell.settings
        options = side.options
        self._burst_limit: i64 = options.burst
        self._control_cap: i64 = options.control_cap
        self._another_ev: bool = options.another_ev
        self._another_plane: bool = options.another_plane
        self._always_ask: bool = options.ack_request == "always"
        self._reverse: bool = options.control_path == "reverse"
        self._zero_immediate: bool = options.zero_length_immediate
        self._control_ecn: int = _DATA_ECN if options.control_ect else _NOT_ECT
        self._patience_ns: i64 = options.plane_patience_ns
        config = self._shell.config
        self._two_frames_ps: i64 = 2 * (config.mtu + _OVERHEAD_BYTES) * self._shell.byte_time_ps(0)
        self._traced: bool = config.trace
        self._decision_ps: i64 = _DECISION_CYCLES * config.clock_ps
        self.control: list[ModelPacket] = []
        self.rounds: PlaneRounds = PlaneRounds(side.planes, int(self._patience()))
        self._room: i64 = 0
        self._in_row: i64 = 0
        self._burst: i64 = 0
        self._plane: i64 = 0
        self._ev: i64 = 0
        self._alarm_ps: i64 = -1
        self._end_ps: i64 = -1
        self._round_end_ps: i64 = -1
        self._last_round_end_ps: i64 = -1
        self._byte_ps: i64 = self._shell.byte_time_ps(0)

    def pump(self) -> None:
        """Send while planes have room: control packets first, then data."""
        control, ready = self.control, self._side.ready
        if (not control and not ready) or not self._settings.enable:
            return
        rounds = self.rounds
        self._room = self._shell.rooms() & self._side.up
        if self._room:
            rounds.patience_ps = self._patience()
        while self._room:
            if control and (self._in_row < self._control_cap or not ready) and self._send_control():
                self._in_row = self._in_row + 1 if ready else 0
                continue
            held_back = self._in_row >= self._control_cap
            self._in_row = 0
            if ready and self._send_data(not held_back):
                continue
            if not (control and held_back):
                break
        if rounds.wake_ps > self._shell.now_ps:
            self._look_again(rounds.wake_ps)

    def forget(self, qp: int) -> None:
        """A QP is reset: its control packets that wait are not sent."""
        self.control[:] = [packet for packet in self.control if packet.qp != qp]

    def _wake(self, _: int) -> None:
        """Patience with a plane ended; the shell pumps behind every call."""

    def _patience(self) -> i64:
        if self._patience_ns >= 0:
            return self._patience_ns * 1000
        # A plane that is as fast as the others is never without room for longer than two frames.
        half: i64 = self._settings.base_rtt * _TICK_PS // 2
        return half if half > self._two_frames_ps else self._two_frames_ps

    def _leave(self, plane: i64, packet: ModelPacket) -> None:
        self._shell.transmit(plane, packet)
        if not self._shell.room(plane):
            self._room &= ~(1 << plane)

    # -- control packets ---------------------------------------------------------------------------------

    def _send_control(self) -> bool:
        """Send the first control packet that finds room. False when none does."""
        control = self.control
        at = 0
        while at < len(control):
            packet = control[at]
            plane = self._control_plane(packet)
            if plane == NONE:
                # Its path is gone: what waits for the answer notices that none comes.
                del control[at]
                continue
            if plane >= 0:
                del control[at]
                self._issue_control(plane, packet)
                return True
            at += 1
        return False

    def _control_plane(self, packet: ModelPacket) -> i64:
        """Plane for a control packet: :data:`_WAIT`, or :data:`NONE` when it can never leave."""
        up: i64 = self._side.up
        wanted: i64 = packet.plane
        reachable: i64 = up
        if packet.qp >= 0:
            reachable &= self._side.qps[packet.qp].peer_ports
        # The path is part of the question, or the only one known.
        fixed = packet.opcode == _PROBE or packet.outer_destination != 0 or packet.qp < 0
        if wanted != UNBOUND:
            if up >> wanted & 1 and (fixed or not reachable or reachable >> wanted & 1):
                return wanted if self._room >> wanted & 1 else _WAIT
            if fixed:
                return NONE
        free: i64 = self._room & (reachable or up)
        return lowest_of(free) if free else _WAIT

    def _wanted_planes(self) -> i64:
        """Planes that control packets wait for; data leave them to those."""
        wanted: i64 = 0
        for packet in self.control:
            if packet.plane != UNBOUND:
                wanted |= 1 << packet.plane
        return wanted

    def _issue_control(self, plane: i64, packet: ModelPacket) -> None:
        side, shell = self._side, self._shell
        settings = shell.settings
        opcode: i64 = packet.opcode
        if packet.ev == UNBOUND or (packet.plane != plane and packet.qp >= 0):
            packet.ev = self._control_ev(packet.qp, plane)
        if packet.qp >= 0 and packet.outer_destination == 0:
            self._expand(plane, packet)
        if opcode == _PROBE:
            packet.traffic_class = self._data_class(side.qps[packet.qp], False)
        elif opcode != _REQUEST or packet.qp >= 0:
            packet.traffic_class = settings.dscp_control << 2 | self._control_ecn
        tick: i64 = shell.now_ps // _TICK_PS & _TICK_MASK
        if opcode == _PROBE or opcode == _REQUEST:
            packet.timestamped = True
            packet.timestamp = tick
            if opcode == _REQUEST:
                self._request_sent(packet)
        detail = int(packet.ev | tick << 32 | opcode << 48 | int(packet.retransmission) << 56 | _CONTROL)
        shell.trace(_BIND, max(int(packet.qp), 0), int(plane), int(packet.psn), detail)
        self._leave(plane, packet)

    def _control_ev(self, index: i64, plane: i64) -> int:
        """EV of a control packet: the reverse set's, else the QP's own in turns."""
        if index < 0:
            return 0
        if self._reverse:
            value = self._shell.reverse_ev(int(index), int(plane))
            if value >= 0:
                return value
        qp = self._side.qps[index]
        place = int(qp.evs.planes[plane].pick_control())
        profiles = self._side.profiles
        return profiles.value[profiles.row(qp.profile, plane, max(place, 0))]

    def _expand(self, plane: i64, packet: ModelPacket) -> None:
        """Give a control packet the destination that its EV expands to, when its profile has them.

        A reverse EV that has been replaced since then gives way to a value that stands in the profile.
        """
        profiles = self._side.profiles
        qp = self._side.qps[packet.qp]
        if not profiles.expanded[qp.profile]:
            return
        row = profiles.row_of_value(int(qp.profile), int(plane), int(packet.ev))
        if row == NONE:
            row = profiles.row(qp.profile, plane, max(int(qp.evs.planes[plane].pick_control()), 0))
            packet.ev = profiles.value[row]
        packet.outer_destination = profiles.destination[row]
        if profiles.segment[qp.profile]:
            packet.segment = profiles.segments[row]

    # -- data --------------------------------------------------------------------------------------------

    def _send_data(self, leave_planes: bool) -> bool:
        """Send one data packet of the QP whose turn it is. False when nobody can."""
        ready = self._side.ready
        kept: i64 = self._wanted_planes() if leave_planes and self.control else 0
        for _ in range(len(ready)):
            if not ready:
                return False
            qp = ready[0]
            outcome: i64 = self._try(qp, self._room & ~kept)
            if outcome == _SENT:
                self._burst += 1
                if self._burst >= self._burst_limit and len(ready) > 1:
                    ready.append(ready.pop(0))
                    self._burst = 0
                return True
            self._burst = 0
            if outcome == _IDLE:
                del ready[0]
                qp.queued = False
            elif len(ready) > 1:
                ready.append(ready.pop(0))
        return False

    def _try(self, qp: SendQp, room: i64) -> i64:
        if qp.state != _RTS:
            return _IDLE
        psn: i64 = qp.next_retransmission()
        again = psn != NO_PSN
        if not again and not qp.may_send_new():
            return _IDLE
        usable: i64 = qp.reachable(self._side.up)
        if not usable:
            return _IDLE
        avoided: i64 = NONE
        if again:
            request = qp.request_of(psn)
            if request is None:  # completed in between: nothing to send
                qp.tracker.waiting[qp.tracker.slot(psn)] = 0
                return _SENT
            if self._another_ev:
                avoided = qp.tracker.ev[qp.tracker.slot(psn)]
            if self._another_plane:
                plane: i64 = qp.tracker.ev[qp.tracker.slot(psn)] // qp.evs.stride
                one: i64 = 1
                others: i64 = usable & ~(one << plane)
                if others & room:
                    usable = others
        else:
            request = qp.opening
            if request is None:
                request = qp.open_next()
                if not self._valid(request):
                    self._side.fail(
                        qp, request, CompletionStatus.GENERAL_ERROR, QpErrorReason.LOCAL_PROTECTION
                    )
                    return _SENT
            psn = qp.tracker.next
        mtu: i64 = qp.mtu
        length: i64 = request.length - (psn - request.first) * mtu
        if length > mtu:
            length = mtu
        size: i64 = nominal_size(length, request.with_immediate and psn == request.last)
        if not self._choose(qp, usable, room, avoided, size):
            return _BLOCKED
        if again:
            self._send_again(qp, request, psn, length, size)
        else:
            self._send_new(qp, request, psn, length, size)
        return _SENT

    def _choose(self, qp: SendQp, usable: i64, room: i64, avoided: i64, size: i64) -> bool:
        """Find plane and EV of the next packet; ``avoided`` is taken only when there is no other."""
        rounds, policy = self.rounds, qp.policy
        now_ps: i64 = self._shell.now_ps
        while usable:
            plane: i64 = rounds.choose(usable, room, now_ps)
            if plane < 0 or not self._in_order(plane, size):
                return False
            index: i64 = policy.pick(plane, now_ps)
            if index == avoided and index >= 0:
                index = policy.pick(plane, now_ps)
                if index == avoided and usable & ~(1 << plane):
                    usable &= ~(1 << plane)
                    continue
            if index == SKIPPED:
                if rounds.begins_round:
                    self._last_round_end_ps = self._round_end_ps
                rounds.take(plane)
                continue
            if index == NONE:
                usable &= ~(1 << plane)
                continue
            self._note_end()
            rounds.take(plane)
            self._plane = plane
            self._ev = index
            if qp.evs.changes:
                self._side.report_changes(qp)
            return True
        return False

    def _in_order(self, plane: i64, size: i64) -> bool:
        """Whether a frame sent now leaves behind those of about its length of the round before, so that at no
        time more than one packet lies between planes, as they leave. Otherwise looks again when it does.
        """
        end_ps: i64 = self._shell.start_ps(plane) + size * self._byte_ps
        before_ps: i64 = self._round_end_ps if self.rounds.begins_round else self._last_round_end_ps
        ahead_ps: i64 = before_ps - end_ps
        if 0 <= ahead_ps < _ABOUT_BYTES * self._byte_ps:
            wait_ps: i64 = ahead_ps + 1 if ahead_ps >= self._decision_ps else self._decision_ps
            self._look_again(self._shell.now_ps + wait_ps)
            return False
        self._end_ps = end_ps
        return True

    def _note_end(self) -> None:
        """The frame whose end was looked at last is sent."""
        if self.rounds.begins_round:
            self._last_round_end_ps = self._round_end_ps
            self._round_end_ps = self._end_ps
        elif self._end_ps > self._round_end_ps:
            self._round_end_ps = self._end_ps

    def _look_again(self, time_ps: i64) -> None:
        if self._alarm_ps != time_ps:
            self._alarm_ps = time_ps
            self._shell.schedule(time_ps, self._wake, 0)

    def _send_new(self, qp: SendQp, request: SendRequest, psn: i64, length: i64, size: i64) -> None:
        asks = self._always_ask or qp.stops_after(size)
        if not self._emit(qp, request, psn, length, asks, False):
            return
        tracker, timer = qp.tracker, qp.timer
        now_ps: i64 = self._shell.now_ps
        if tracker.missing == 0:
            qp.tail_clock_ps = now_ps
        tracker.sent(psn, self._ev, now_ps, size)
        if timer.deadline_ps < 0:
            timer.start(now_ps)
        if (
            qp.tail_alarm_ps < 0
            or timer.alarm_ps < 0 <= timer.deadline_ps
            or 0 <= timer.deadline_ps < timer.alarm_ps
        ):
            self._watch(qp)
        qp.last_sent_ps = now_ps
        if qp.congestion is not None:
            qp.congestion.on_send(int(size))
        if psn == request.last:
            qp.opening = None

    def _send_again(self, qp: SendQp, request: SendRequest, psn: i64, length: i64, size: i64) -> None:
        if not self._emit(qp, request, psn, length, True, True):
            return
        tracker = qp.tracker
        now_ps: i64 = self._shell.now_ps
        qp.last_sent_ps = now_ps
        if psn == qp.again:
            qp.again = NO_PSN
            if tracker.is_acked(psn):
                return
        tracker.sent(psn, self._ev, now_ps, size)
        if qp.congestion is not None:
            qp.congestion.on_send(int(size))

    def _valid(self, request: SendRequest) -> bool:
        if request.opcode == WorkRequestOpcode.WRITE:
            return request.length > 0
        if request.opcode == WorkRequestOpcode.WRITE_WITH_IMM:
            return request.length > 0 or self._zero_immediate
        return False

    def _emit(self, qp: SendQp, request: SendRequest, psn: i64, length: i64, asks: bool, again: bool) -> bool:
        """Build a write and send it on the chosen path. False when its data cannot be read."""
        shell = self._shell
        offset = int((psn - request.first) * qp.mtu)
        payload: bytes | None = b""
        if length:
            payload = shell.read_memory(qp.domain, request.local_key, request.local_address + offset, length)
        if payload is None:
            reason = shell.read_failure
            local = reason == QpErrorReason.LOCAL_PROTECTION
            status = CompletionStatus.LOCAL_PROTECTION_ERROR if local else CompletionStatus.GENERAL_ERROR
            self._side.fail(qp, request, status, reason)
            return False
        plane: i64 = self._plane
        profiles = self._side.profiles
        row = profiles.row(qp.profile, plane, self._ev - plane * qp.evs.stride)
        opcode: i64 = request.opcode_of(psn)
        packet = ModelPacket(opcode, qp.index, psn & _PSN_MASK)
        tick: i64 = shell.now_ps // _TICK_PS & _TICK_MASK
        packet.ack_request = asks
        packet.retransmission = again
        packet.timestamped = True
        packet.timestamp = tick
        packet.ev = profiles.value[row]
        packet.traffic_class = self._data_class(qp, again)
        packet.message_number = request.message_number & 0xFFFF
        packet.address = request.remote_address + offset & 0xFFFF_FFFF_FFFF_FFFF
        packet.remote_key = request.remote_key
        packet.message_length = request.length
        if request.with_immediate and psn == request.last:
            packet.receive_number = request.receive_number
            packet.immediate = request.immediate
        packet.payload = payload
        packet.length = length
        if profiles.expanded[qp.profile]:
            packet.outer_destination = profiles.destination[row]
            if profiles.segment[qp.profile]:
                packet.segment = profiles.segments[row]
        if self._traced:
            detail = int(packet.ev | tick << 32 | opcode << 48 | int(again) << 56)
            shell.trace(_BIND, int(qp.index), int(plane), int(packet.psn), detail)
        self._leave(plane, packet)
        return True

    def _data_class(self, qp: SendQp, again: bool) -> i64:
        """Traffic class of data: may it be trimmed, and is it sent again?"""
        settings = self._settings
        dscp: i64 = settings.dscp_no_trim
        if settings.trimming and not qp.never_trimmed:
            dscp = settings.dscp_retransmission if again else settings.dscp_trimmable
        return dscp << 2 | _DATA_ECN
