"""What the parts of the requester share: QPs, profiles, who is ready to send, errors and completions.

Source: profile.md 3, 4 and 7; protocol.md 2.8 (EV events).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from mrc_host.fabric.events import component_key
from mrc_host.model.cc_profiles import CcProfiles
from mrc_host.model.ev_profiles import EvProfiles
from mrc_host.model.ev_set import EvSet, PathState
from mrc_host.model.options import ModelOptions
from mrc_host.model.send_qp import SendQp, SendRequest
from mrc_host.model.shell import Shell
from mrc_host.model.spray import create_policy
from mrc_rtl.records import TraceKind
from mrc_rtl.tables import CompletionStatus, EvState, NoticeKind, QpState

__all__ = ["RequesterStatistics", "SendSide"]

_RTS: Final = int(QpState.RTS)
_COMPONENT: Final = component_key("spray policy")
_SHOWN: Final = {
    int(PathState.GOOD): int(EvState.GOOD),
    int(PathState.SKIP): int(EvState.GOOD),
    int(PathState.BACKUP): int(EvState.GOOD),
    int(PathState.ASSUMED_BAD): int(EvState.ASSUMED_BAD),
    int(PathState.DENIED): int(EvState.DENIED),
    int(PathState.ABSENT): int(EvState.UNPOPULATED),
}


class RequesterStatistics:
    """What the requester did, counted over all QPs.

    Attributes
    ----------
    retransmissions_trim, retransmissions_loss, retransmissions_timeout, retransmissions_refused : int
        Packets sent again after a trim, an inferred loss, a timeout, another NACK.
    retransmissions_spurious : int
        Of those after an inferred loss or a timeout: the original had arrived.
    losses, losses_undone : int
        Packets declared lost by inference or timeout, and those that turned out to have arrived.
    echoes_differ : int
        Feedback whose echoed EV is not the one stored with its PSN.
    probes, probes_answered, probes_lost, tail_probes : int
        Reliability probes of paths, and of the tail.
    ev_changes : int
        Changes of states of EVs.
    """

    __slots__ = (
        "echoes_differ",
        "ev_changes",
        "losses",
        "losses_undone",
        "probes",
        "probes_answered",
        "probes_lost",
        "retransmissions_loss",
        "retransmissions_refused",
        "retransmissions_spurious",
        "retransmissions_timeout",
        "retransmissions_trim",
        "tail_probes",
    )

    def __init__(self) -> None:
        self.retransmissions_trim: int = 0
        self.retransmissions_loss: int = 0
        self.retransmissions_timeout: int = 0
        self.retransmissions_refused: int = 0
        self.retransmissions_spurious: int = 0
        self.losses: int = 0
        self.losses_undone: int = 0
        self.echoes_differ: int = 0
        self.probes: int = 0
        self.probes_answered: int = 0
        self.probes_lost: int = 0
        self.tail_probes: int = 0
        self.ev_changes: int = 0

    def as_dict(self) -> dict[str, int]:
        """Every counter by name."""
        return {name: getattr(self, name) for name in self.__slots__}


class SendSide:
    """Shared state of the requester.

    Parameters
    ----------
    shell : Shell
    options : ModelOptions

    Attributes
    ----------
    qps : list of SendQp
    ready : list of SendQp
        QPs that may have something to send; each is in it at most once (``SendQp.queued``).
    up : int
        Ports that are up (mask).
    changed : list of SendQp
        QPs whose EVs went bad since this was last emptied.
    """

    def __init__(self, shell: Shell, options: ModelOptions) -> None:
        self.shell: Shell = shell
        self.options: ModelOptions = options
        config = shell.config
        self.planes: int = config.planes
        self.profiles: EvProfiles = EvProfiles(config)
        self.congestion: CcProfiles = CcProfiles()
        self.statistics: RequesterStatistics = RequesterStatistics()
        self.ready: list[SendQp] = []
        self.changed: list[SendQp] = []
        self.up: i64 = 0
        for plane in range(config.planes):
            self.up |= 1 << plane if shell.port_up(plane) else 0
        self.qps: list[SendQp] = []
        for index in range(config.qps):
            evs = EvSet(config.planes, config.evs_per_plane)
            evs.floor_rule = options.minimum_active_rule
            evs.floor_turns = options.floor_skip_turns
            evs.floor_draws = options.floor_skip_end == "draw"
            evs.counts_two = options.blame_count == "two"
            policy = create_policy(evs, options, shell.seed, _COMPONENT + index)
            self.qps.append(SendQp(index, config.planes, config.mpr_psns, options, policy))

    # -- readiness ---------------------------------------------------------------------------------------

    def wake(self, qp: SendQp) -> None:
        """Something changed for a QP: it may have something to send now."""
        if not qp.queued and qp.state == _RTS:
            qp.queued = True
            self.ready.append(qp)

    def refresh(self, qp: SendQp) -> None:
        """EVs, profile or ports of a QP changed: which planes may it use?"""
        usable: i64 = 0
        if self.profiles.online(qp.profile):
            for plane in range(self.planes):
                if qp.evs.planes[plane].good:
                    usable |= 1 << plane
        qp.usable = usable
        self.wake(qp)

    # -- EV events ---------------------------------------------------------------------------------------

    def report_changes(self, qp: SendQp, noticed: bool = True) -> None:
        """Report what happened to the EVs of a QP since the last call: trace, and notices unless the host
        ordered it.
        """
        changes = qp.evs.changes
        if not changes:
            return
        shell, profiles = self.shell, self.profiles
        stride = qp.evs.stride
        wanted = profiles.events[qp.profile] if noticed else 0
        went_bad = False
        for change in changes:
            plane, place = divmod(change >> 8, stride)
            old, new = change >> 4 & 15, change & 15
            row = profiles.row(qp.profile, plane, place)
            value = profiles.value[row]
            self.statistics.ev_changes += 1
            shell.trace(TraceKind.EV_CHANGE, qp.index, plane, place, value | old << 32 | new << 36)
            if new == PathState.ASSUMED_BAD:
                went_bad = True
            elif new == PathState.SKIP and qp.evs.active <= qp.evs.minimum_active:
                went_bad = True
            shown = _SHOWN[new]
            if shown & wanted and shown != _SHOWN[old]:
                shell.notice(
                    {
                        "kind": int(NoticeKind.EV_STATE),
                        "profile": qp.profile,
                        "port": profiles.port[row] or plane + 1,
                        "place": place,
                        "state": shown,
                        "qp": qp.index,
                        "value": value,
                    }
                )
        changes.clear()
        if went_bad:
            self.changed.append(qp)
        self.refresh(qp)

    # -- completions and errors --------------------------------------------------------------------------

    def complete_up_to(self, qp: SendQp, psn: int) -> bool:
        """A transport ACK covers everything up to a PSN. True when a request was completed."""
        done = False
        opened = qp.opened
        while opened and opened[0].last <= psn and opened[0] is not qp.opening:
            request = opened.popleft()
            done = True
            if request.with_immediate:
                qp.immediates -= 1
            if request.signalled:
                self._complete(qp, request, CompletionStatus.SUCCESS)
        return done

    def fail(self, qp: SendQp, request: SendRequest | None, status: int, reason: int) -> None:
        """A request failed: it gets the status, everything behind and before it is flushed, the QP goes to
        ERROR.
        """
        qp.failed = request
        qp.failed_status = status
        self.shell.enter_error(qp.index, reason)
        self.flush(qp)

    def flush(self, qp: SendQp) -> None:
        """Put a QP into ERROR: everything posted is completed in order."""
        if qp.state in (QpState.ERROR, QpState.RESET):
            return
        qp.state = int(QpState.ERROR)
        for number, request in enumerate(qp.posted):
            request.message_number = qp.message_number + number & 0xFF_FFFF
        requests = [*qp.opened, *qp.posted]
        failed, status = qp.failed, qp.failed_status
        qp.clear()
        qp.timer.stop()
        for request in requests:
            own = request is failed
            self._complete(qp, request, status if own else CompletionStatus.FLUSHED)

    def flush_one(self, qp: SendQp, request: SendRequest) -> None:
        """A request was posted to a QP in ERROR."""
        request.message_number = qp.message_number
        qp.message_number = qp.message_number + 1 & 0xFF_FFFF
        self._complete(qp, request, CompletionStatus.FLUSHED)

    def _complete(self, qp: SendQp, request: SendRequest, status: int) -> None:
        self.shell.complete(
            qp.row["completion_queue"],
            qp.index,
            request.wr_id,
            request.opcode,
            int(status),
            request.length,
            0,
            request.message_number,
        )
