"""The probes of all QPs: EVs that were given up are asked until they answer, and the tail of what was sent.

Source: profile.md 4 (tail), 10 (back after the fault); protocol.md 2.2, 7-Q17.
"""

from __future__ import annotations

from typing import Final

from mrc_host.model.binder import Binder
from mrc_host.model.ev_set import NONE, PathState
from mrc_host.model.packet import ModelPacket
from mrc_host.model.probes import BadPath, ProbeBudget
from mrc_host.model.send_qp import SendQp
from mrc_host.model.send_side import SendSide
from mrc_rtl.config import TICK_PS
from mrc_rtl.tables import QpState
from mrc_rtl.wire import Opcode

__all__ = ["Prober"]

_TAIL: Final = -1
_KEY_BITS: Final = 24


class Prober:
    """Sends probes and judges their answers.

    Parameters
    ----------
    side : SendSide
    binder : Binder
    """

    def __init__(self, side: SendSide, binder: Binder) -> None:
        self._side = side
        self._shell = side.shell
        self._binder = binder
        options = side.options
        self._options = options
        self._recovers: bool = options.recovery_probes
        self._tail: bool = options.tail_probe
        self._stale: bool = options.stale_probe
        config = side.shell.config
        self._budget: ProbeBudget = ProbeBudget.for_line(
            config.mtu, config.planes, side.shell.byte_time_ps(0), options
        )

    # -- EVs ---------------------------------------------------------------------------------------------

    def watch_changed(self) -> None:
        """Begin to probe the EVs that went bad since the last call."""
        changed = self._side.changed
        while changed:
            qp = changed.pop()
            if not self._recovers or qp.state != QpState.RTS or not self._answers(qp):
                continue
            for plane, words in enumerate(qp.evs.planes):
                places = int(words.bad) | self._floored(qp, plane)
                while places:
                    lowest = places & -places
                    places ^= lowest
                    index = plane * qp.evs.stride + lowest.bit_length() - 1
                    if index not in qp.bad:
                        qp.bad[index] = BadPath(qp.index, index, self._options)
                        self._schedule(qp, index, self._shell.now_ps + qp.base_rtt_ps)

    def answered(self, qp: SendQp, number: int, marked: bool) -> int:
        """The answer to a probe arrived. For a probe of the tail: packets that left at the returned time or
        before and are missing are lost. −1 otherwise.
        """
        item = qp.numbers.find(number)
        if item is None:
            return -1
        index, limit_ps = item
        if index == _TAIL:
            return limit_ps
        path = qp.bad.get(index)
        if path is None or path.number != number:
            return -1
        self._side.statistics.probes_answered += 1
        if path.answered(marked):
            del qp.bad[index]
            qp.evs.recover(index)
            self._side.report_changes(qp)
        else:
            self._schedule(qp, index, path.next_ps())
        return -1

    def _floored(self, qp: SendQp, plane: int) -> int:
        """EVs in a long SKIP, which a loss would have made bad but for the floor."""
        words = qp.evs.planes[plane]
        skip = int(words.good & words.skip)
        found = 0
        while skip:
            lowest = skip & -skip
            skip ^= lowest
            if words.turns[lowest.bit_length() - 1] > self._options.trim_skip_turns:
                found |= lowest
        return found

    def _schedule(self, qp: SendQp, index: int, time_ps: int) -> None:
        key = (qp.generation << _KEY_BITS | index) << 8 | qp.index
        qp.bad[index].due_ps = time_ps
        self._shell.schedule(time_ps, self._due, key)

    def _due(self, key: int) -> None:
        qp = self._side.qps[key & 0xFF]
        index = key >> 8 & (1 << _KEY_BITS) - 1
        if qp.generation != key >> 8 + _KEY_BITS:
            return
        path = qp.bad.get(index)
        now_ps = self._shell.now_ps
        if path is None or now_ps < path.due_ps:
            return  # recovered, or asked anew since
        if path.number >= 0:
            qp.numbers.find(path.number)
            path.lost()
            self._side.statistics.probes_lost += 1
            self._schedule(qp, index, max(now_ps, path.next_ps()))
            return
        state = qp.evs.state(index)
        if state is not PathState.ASSUMED_BAD and state is not PathState.SKIP:
            del qp.bad[index]
            return
        plane = index // qp.evs.stride
        if not self._side.up & qp.peer_ports & 1 << plane:
            # A dead port says nothing about the path behind it.
            path.sent_ps = now_ps
            self._schedule(qp, index, path.next_ps())
            return
        wait = self._budget.wait_ps(now_ps)
        if wait:
            self._schedule(qp, index, now_ps + wait)
            return
        path.sent_ps = now_ps
        path.number = qp.numbers.take(index, now_ps)
        self._side.statistics.probes += 1
        self._send(qp, plane, index % qp.evs.stride, path.number)
        self._schedule(qp, index, now_ps + self._bound_ps(qp))

    def _bound_ps(self, qp: SendQp) -> int:
        return self._options.probe_rtt_bound * qp.base_rtt_ps

    # -- the tail ----------------------------------------------------------------------------------------

    def watch_tail(self, qp: SendQp) -> None:
        """See that somebody looks at the tail of a QP that has something out."""
        if (
            self._tail
            and not qp.goes_back
            and qp.tail_alarm_ps < 0
            and qp.tracker.missing
            and self._answers(qp)
        ):
            qp.tail_alarm_ps = self._shell.now_ps + qp.base_rtt_ps + qp.target_delay_ps
            self._shell.schedule(qp.tail_alarm_ps, self._look_at_tail, qp.generation << 8 | qp.index)

    def _look_at_tail(self, key: int) -> None:
        qp = self._side.qps[key & 0xFF]
        if qp.generation != key >> 8:
            return
        qp.tail_alarm_ps = -1
        if qp.state != QpState.RTS or qp.tracker.missing == 0:
            return
        now_ps = self._shell.now_ps
        patience = qp.base_rtt_ps + qp.target_delay_ps
        due = max(qp.tail_clock_ps, qp.tail_probe_ps) + patience
        limit_ps = now_ps - qp.base_rtt_ps
        if self._stale and now_ps < due and qp.tracker.overtaken(patience):
            due = qp.tail_probe_ps + patience
            # Others only wait in queues: what was not overtaken is not judged.
            limit_ps = min(limit_ps, qp.tracker.planes.newest - patience)
        if now_ps >= due:
            self._probe_tail(qp, limit_ps)
            due = now_ps + patience
        qp.tail_alarm_ps = due
        self._shell.schedule(due, self._look_at_tail, key)

    @staticmethod
    def _answers(qp: SendQp) -> bool:
        """Whether the peer answers reliability probes, as it said when the QP was connected."""
        return not qp.option.get("probes_dest_unsupported", 0)

    def ask_soon(self, qp: SendQp) -> None:
        """A port went down: one base RTT later ask about what was sent there."""
        if (
            self._stale
            and not qp.goes_back
            and qp.state == QpState.RTS
            and qp.tracker.missing
            and self._answers(qp)
        ):
            self._shell.schedule(
                self._shell.now_ps + qp.base_rtt_ps, self._ask, qp.generation << 8 | qp.index
            )

    def _ask(self, key: int) -> None:
        qp = self._side.qps[key & 0xFF]
        if qp.generation == key >> 8 and qp.state == QpState.RTS and qp.tracker.missing:
            self._probe_tail(qp, self._shell.now_ps - qp.base_rtt_ps)

    def _probe_tail(self, qp: SendQp, limit_ps: int) -> None:
        """Ask on another plane than that of the oldest missing packet; the answer judges what left at a time
        or before.
        """
        tracker = qp.tracker
        usable = qp.reachable(self._side.up)
        if not usable:
            return
        missing = tracker.first_missing()
        last_plane = int(tracker.ev[tracker.slot(missing)]) // qp.evs.stride
        others = usable & ~(1 << last_plane) or usable
        qp.tail_turn = (qp.tail_turn + 1) % self._side.planes
        ahead = int(others >> qp.tail_turn << qp.tail_turn or others)
        plane = (ahead & -ahead).bit_length() - 1
        place = qp.evs.planes[plane].pick_control()
        if place == NONE:
            return
        now_ps = self._shell.now_ps
        qp.tail_probe_ps = now_ps
        self._side.statistics.tail_probes += 1
        self._send(qp, plane, place, qp.numbers.take(_TAIL, max(limit_ps, 0)))

    def _send(self, qp: SendQp, plane: int, place: int, number: int) -> None:
        packet = ModelPacket(int(Opcode.PROBE), qp.index, 0)
        profiles = self._side.profiles
        row = profiles.row(qp.profile, plane, place)
        packet.probe_id = number
        packet.plane = plane
        packet.ev = profiles.value[row]
        packet.timestamped = True
        packet.timestamp = self._shell.now_ps // TICK_PS & 0xFFFF
        if profiles.expanded[qp.profile]:
            packet.outer_destination = profiles.destination[row]
            if profiles.segment[qp.profile]:
                packet.segment = profiles.segments[row]
        self._binder.control.append(packet)
