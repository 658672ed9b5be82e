"""The notice ring: how a device reports EV events and finished endpoint requests without being asked.

The ring lies in host memory like a completion queue, but never overruns: a notice that finds it full is
dropped and counted, and the next one that fits tells how many were lost.

Source: protocol.md 2.8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mrc_host.nic.ev_values import EvKey
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl.config import QP_NUMBER_BASE, TICK_PS
from mrc_rtl.tables import NOTICE, ControlTableId, DeviceFlag, EvState, NoticeKind

if TYPE_CHECKING:
    from mrc_host.nic.context import Context

__all__ = ["NOTICE_TAG", "EvEvent", "NoticeRing", "check_notice_entries"]

#: Tag under which writes into the ring are watched; completion queues and receive buffers have smaller ones.
NOTICE_TAG = 1 << 32
ENTRY_BYTES = 32
LARGEST_LOG2 = 20
COUNT_MASK = (1 << 24) - 1


@dataclass(frozen=True)
class EvEvent:
    """An entropy value began a state that the profile's event mask names.

    Parameters
    ----------
    time_ps : int
        When, in steps of 128 ns.
    profile_id : int
        ``EvProfile.number``.
    ev : EvKey or None
        Value and port; None when the value has been replaced since.
    state : EvState
        GOOD or ASSUMED_BAD.
    drop_count : int
        Events lost before this one: exact with capability EV_EVENT_DROP_COUNT, else 0 or 1.
    qp_number : int
        QP in which it happened. Not in the API.
    port : int
        Port of the EV, from 1.
    wire_value : int
        The 32 bits on the wire.
    """

    time_ps: int
    profile_id: int
    ev: EvKey | None
    state: EvState
    drop_count: int
    qp_number: int
    port: int
    wire_value: int


def check_notice_entries(entries: int) -> None:
    """Check how many notices are to be kept.

    Raises
    ------
    VerbsError
        EINVAL when it is out of range or no power of two.
    """
    check_range("notices.entries", entries, 2, 1 << LARGEST_LOG2)
    if entries & (entries - 1):
        raise VerbsError("EINVAL", "notices.entries", entries, "a power of two")


class NoticeRing:
    """The ring of one device; ``Context.notices`` makes it when it is first used.

    Parameters
    ----------
    context : Context
    entries : int
        Notices that fit, a power of two.

    Attributes
    ----------
    ring : Buffer
    on_endpoint_done : callable
        Called with the fields of a notice ENDPOINT_DONE.
    """

    def __init__(self, context: Context, entries: int) -> None:
        check_notice_entries(entries)
        self.context = context
        self.entries = entries
        self.ring = context.allocator.allocate(entries * ENTRY_BYTES)
        self.ring.data[:] = 0
        self.on_endpoint_done: Callable[[dict[str, int]], None] = lambda fields: None
        self._consumed = 0
        self._reported = 0
        self._lost = 0
        self._ev_events: deque[EvEvent] = deque()
        self._write()
        context.nic.watch(NOTICE_TAG, self.ring.bus_address, self.ring.length)

    def read(self) -> None:
        """Take all notices that stand in the ring."""
        while (fields := self._next()) is not None:
            self._consumed += 1
            self._lost += fields["dropped"]
            if fields["kind"] == NoticeKind.ENDPOINT_DONE:
                self.on_endpoint_done(fields)
            elif len(self._ev_events) >= self.entries:
                self._lost += 1
            else:
                self._ev_events.append(self._event(fields))
                self._lost = 0
        if self._consumed - self._reported >= max(1, self.entries // 4):
            self._reported = self._consumed
            self._write()

    def poll_ev_events(self, limit: int = 16) -> list[EvEvent]:
        """Take up to ``limit`` EV events, the oldest first.

        Raises
        ------
        VerbsError
            EINVAL for the limit.
        """
        check_range("ev_events.limit", limit, 1, COUNT_MASK)
        self.read()
        return [self._ev_events.popleft() for _ in range(min(limit, len(self._ev_events)))]

    def _next(self) -> dict[str, int] | None:
        offset = self._consumed % self.entries * ENTRY_BYTES
        content = self.ring.data[offset : offset + ENTRY_BYTES].tobytes()
        words = [int.from_bytes(content[at : at + 8], "little") for at in range(0, ENTRY_BYTES, 8)]
        fields = NOTICE.unpack(words)
        return None if fields["phase"] == self._consumed // self.entries % 2 else fields

    def _event(self, fields: dict[str, int]) -> EvEvent:
        exact = DeviceFlag.EV_EVENT_DROP_COUNT in self.context.capabilities.flags
        profile = self.context.ev_profiles.get(fields["profile"])
        return EvEvent(
            time_ps=fields["time"] * TICK_PS,
            profile_id=fields["profile"],
            ev=profile.key_of(fields["port"], fields["place"], fields["value"]) if profile else None,
            state=EvState(fields["state"]),
            drop_count=self._lost if exact else min(1, self._lost),
            qp_number=QP_NUMBER_BASE + fields["qp"],
            port=fields["port"],
            wire_value=fields["value"],
        )

    def _write(self) -> None:
        self.context.driver.write_table(
            ControlTableId.DEVICE,
            0,
            {
                "notice_base": self.ring.bus_address,
                "notice_log2_entries": self.entries.bit_length() - 1,
                "notice_enabled": 1,
                "notice_consumer": self._consumed & COUNT_MASK,
            },
        )
