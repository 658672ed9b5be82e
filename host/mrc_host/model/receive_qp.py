"""What a responder keeps of one QP."""

from __future__ import annotations

from mypy_extensions import i64

from mrc_host.model.immediates import Immediates
from mrc_host.model.receive_tracker import ReceiveTracker
from mrc_host.model.sack_triggers import SackTriggers
from mrc_rtl.config import NicConfig
from mrc_rtl.tables import QP_RECEIVE, QpState

__all__ = ["ReceiveQp"]


class ReceiveQp:
    """The row QP_RECEIVE of one QP and what grows from it.

    Parameters
    ----------
    config : NicConfig

    Attributes
    ----------
    state : int
        QpState; ``receiving`` is set in RTR and RTS.
    protection_domain, completion_queue, partition_key, peer_qpn, peer : int
        From the row; ``peer`` is the peer's inner address.
    window : int
        PSNs accepted from the expected one on.
    tracker : ReceiveTracker
    triggers : SackTriggers
    immediates : Immediates
    requests : list of int
        wr_id of each slot of the receive queue.
    in_flight : int
        Packets whose memory writes are not answered.
    waiting : int
        Answers that have not left.
    penalised : bool
        A SACK told the peer to send less.
    in_order : bool
        It accepts writes in the order of their PSNs only.
    gap : int
        PSN that was last reported as missing where writes must come in order; −1 for none.

    Source: profile.md 5; :data:`mrc_rtl.tables.QP_RECEIVE`.
    """

    __slots__ = (
        "_config",
        "_marks",
        "_nacked_ps",
        "_row",
        "completion_queue",
        "gap",
        "immediates",
        "in_flight",
        "in_order",
        "partition_key",
        "peer",
        "peer_qpn",
        "penalised",
        "protection_domain",
        "receiving",
        "requests",
        "state",
        "tracker",
        "triggers",
        "waiting",
        "window",
    )

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        self._row: dict[str, int] = {}
        self._marks: dict[int, int] = {}
        self._nacked_ps: i64 = -1
        self.state: i64 = int(QpState.RESET)
        self.receiving: bool = False
        self.protection_domain: i64 = 0
        self.completion_queue: i64 = 0
        self.partition_key: i64 = 0
        self.peer_qpn: i64 = 0
        self.peer: int = 0
        self.window: i64 = config.mpr_psns
        self.tracker = ReceiveTracker(config.mpr_psns)
        self.triggers = SackTriggers(config.planes)
        self.immediates = Immediates(config.receive_queue_depth)
        self.immediates.limit = config.immediates
        self.requests: list[int] = [0] * config.receive_queue_depth
        self.in_flight: i64 = 0
        self.waiting: i64 = 0
        self.penalised: bool = False
        self.in_order: bool = False
        self.gap: i64 = -1

    def set_state(self, state: int) -> None:
        """Change the state and nothing else."""
        self.state = int(state)
        self.receiving = state in (QpState.RTR, QpState.RTS)

    def starts_anew(self, state: int) -> bool:
        """Whether a row with this state resets the QP or starts it from its initial PSN."""
        return state in (QpState.RESET, QpState.RTR) or (state == QpState.RTS and not self.receiving)

    def apply(self, fields: dict[str, int]) -> bool:
        """Take a row; returns whether the QP began anew."""
        state = fields["state"]
        anew = self.starts_anew(state)
        self._row = dict(fields)
        self.protection_domain = fields["protection_domain"]
        self.completion_queue = fields["completion_queue"]
        self.partition_key = fields["partition_key"]
        self.peer_qpn = fields["peer_qpn"]
        self.in_order = fields["in_order"] == 1
        self.peer = fields["peer_high"] << 64 | fields["peer_low"]
        if anew:
            self.tracker.start(fields["initial_psn"])
            self.triggers.start()
            self.immediates.start(self.immediates.limit, state == QpState.RESET)
            self._marks.clear()
            self._nacked_ps = -1
            self.penalised = False
            self.gap = -1
        self.set_state(state)
        return anew

    def set_limits(self, mpr_psns: int, immediates: int) -> None:
        """Obey QP_OPTION: PSNs tracked and immediates stashed; 0 means all that the engine can."""
        config = self._config
        self.window = min(mpr_psns, config.mpr_psns) if mpr_psns else config.mpr_psns
        self.immediates.limit = min(immediates, config.immediates) if immediates else config.immediates

    def row(self) -> dict[str, int]:
        """All fields of the row, the engine's own included."""
        tracker = self.tracker
        return {
            **{field.name: self._row.get(field.name, 0) for field in QP_RECEIVE.fields},
            "state": self.state,
            "cumulative_psn": tracker.cumulative,
            "highest_psn": tracker.highest,
            "message_number": tracker.messages,
            "received_units": tracker.received_units,
        }

    def may_nack(self, now_ps: i64, interval_ps: i64) -> bool:
        """Whether a NACK that is limited to one an interval may go out; then it counts as sent."""
        if 0 <= self._nacked_ps and now_ps - self._nacked_ps < interval_ps:
            return False
        self._nacked_ps = now_ps
        return True

    def note_mark(self, ev: int, marked: bool) -> None:
        """Count the marked packets that follow each other on an EV."""
        self._marks[ev] = self._marks.get(ev, 0) + 1 if marked else 0

    def marks(self, ev: int) -> int:
        """How many marked packets have followed each other on an EV."""
        return self._marks.get(ev, 0)
