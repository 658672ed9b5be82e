"""EV events of a device that tells them through its event queue: the gateware.

Source: protocol.md 2.8; :class:`mrc_rtl.tables.EventKind`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from mrc_host.nic.notices import EvEvent, check_notice_entries
from mrc_host.nic.verbs_error import check_range
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.tables import EventKind, EvState

if TYPE_CHECKING:
    from mrc_host.nic.context import Context

__all__ = ["EventNotices"]

COUNT_MASK = (1 << 24) - 1


class EventNotices:
    """Stands for the notice ring (:class:`mrc_host.nic.notices.NoticeRing`) where a device has none.

    Parameters
    ----------
    context : Context
    entries : int
        Events kept until they are polled; one that finds no place is counted.

    Attributes
    ----------
    on_endpoint_done : callable
        Called with the fields of a finished endpoint request.
    """

    def __init__(self, context: Context, entries: int) -> None:
        check_notice_entries(entries)
        self.context = context
        self.entries = entries
        self.on_endpoint_done: Callable[[dict[str, int]], None] = lambda fields: None
        self._lost = 0
        self._events: deque[EvEvent] = deque()

    def read(self) -> None:
        """Take all events that the device has, when calls take effect at once; at a time they are brought."""
        if self.context.driver.time_ps is None:
            self.context.fetch_events()

    def poll_ev_events(self, limit: int = 16) -> list[EvEvent]:
        """Take up to ``limit`` EV events, the oldest first.

        Raises
        ------
        VerbsError
            EINVAL for the limit.
        """
        check_range("ev_events.limit", limit, 1, COUNT_MASK)
        self.read()
        return [self._events.popleft() for _ in range(min(limit, len(self._events)))]

    def take(self, time_ps: int, fields: dict[str, int]) -> None:
        """Take the fields of register ``event``, of kind EV_STATE or EV_DROPPED."""
        if fields["kind"] == EventKind.EV_DROPPED:
            self._lost += fields["reason"] | fields["place"] << 4 | fields["state"] << 9 | fields["qp"] << 11
            return
        pair = self.context.queue_pairs.get(fields["qp"])
        profile = pair.attributes.get("ev_profile") if pair else None
        port, place = fields["reason"] + 1, fields["place"]
        entry = profile.entry_at(port, place) if profile else None
        if profile is None or entry is None or len(self._events) >= self.entries:
            self._lost += 1
            return
        self._events.append(
            EvEvent(
                time_ps=time_ps,
                profile_id=profile.number,
                ev=entry.key,
                state=EvState(fields["state"]),
                drop_count=self._lost,
                qp_number=QP_NUMBER_BASE + fields["qp"],
                port=port,
                wire_value=profile.array.row(entry)["value"],
            )
        )
        self._lost = 0
