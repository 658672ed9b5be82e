"""Events that nobody asked for: what became of queue pairs, completion queues and ports."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.tables import EventKind, QpErrorReason

__all__ = ["AsyncEvent"]

_PORT_KINDS = (EventKind.PORT_DOWN, EventKind.PORT_UP)
_VERBS_NAMES = {
    EventKind.COMPLETION_OVERRUN: "IBV_EVENT_CQ_ERR",
    EventKind.PORT_DOWN: "IBV_EVENT_PORT_ERR",
    EventKind.PORT_UP: "IBV_EVENT_PORT_ACTIVE",
}
_QP_NAMES = {
    QpErrorReason.REMOTE_ACCESS: "IBV_EVENT_QP_ACCESS_ERR",
    QpErrorReason.INVALID_REQUEST: "IBV_EVENT_QP_REQ_ERR",
}


@dataclass(frozen=True)
class AsyncEvent:
    """Something that happened without being asked for.

    Parameters
    ----------
    time_ps : int
        When software read it.
    kind : EventKind
    qp_number : int
        0 for an event of a port.
    reason : QpErrorReason or None
        For QP_ERROR: why.
    port : int or None
        For an event of a port: which, from 1.
    """

    time_ps: int
    kind: EventKind
    qp_number: int
    reason: QpErrorReason | None
    port: int | None = None

    @property
    def verbs_name(self) -> str:
        """What the verbs call it."""
        if self.reason is not None:
            return _QP_NAMES.get(self.reason, "IBV_EVENT_QP_FATAL")
        return _VERBS_NAMES[self.kind]

    @classmethod
    def of_register(cls, time_ps: int, fields: dict[str, int]) -> AsyncEvent:
        """Return the event that stands in the register ``event``."""
        kind = EventKind(fields["kind"])
        if kind in _PORT_KINDS:
            return cls(time_ps, kind, 0, None, fields["qp"] + 1)
        reason = QpErrorReason(fields["reason"]) if kind is EventKind.QP_ERROR else None
        return cls(time_ps, kind, QP_NUMBER_BASE + fields["qp"], reason)
