"""Where the states of a profile's entropy values live in a device, and how they are ordered and asked for.

A device with the controller's tables keeps a row for every entry and carries an order to all QPs by itself. A
device without them, the gateware, knows EVs by QP and plane only: the driver, which knows the QPs of a
profile, gives the order for each of them. Either way traffic goes on meanwhile, and no change is lost.

Source: protocol.md 2.2, 2.8; :data:`mrc_rtl.tables.EV_ENTRY`, :data:`mrc_rtl.tables.EV_ORDER`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from mrc_rtl.records import PathOperation
from mrc_rtl.tables import (
    EV_ORDER,
    EV_ORDER_INDEX,
    EV_POLICY,
    EV_POLICY_INDEX,
    EV_VALUES_PER_PLANE,
    ControlTableId,
    EvState,
    QpState,
    TableId,
)

if TYPE_CHECKING:
    from mrc_host.nic.context import Context

__all__ = ["EvTables", "OrderTables", "RowTables"]

#: A long SKIP of the gateware ends at one turn in 16 on average.
_FLOOR_MASK = 15


class EvTables(ABC):
    """Profiles and their entries, as a device holds them.

    Parameters
    ----------
    context : Context
    """

    def __init__(self, context: Context) -> None:
        self.context = context

    @staticmethod
    def of(context: Context) -> EvTables:
        """The tables of a device."""
        return RowTables(context) if context.capabilities.controlled else OrderTables(context)

    @abstractmethod
    def write_profile(self, profile: int, fields: dict[str, int]) -> None:
        """Write a row as of table EV_PROFILE."""

    @abstractmethod
    def write_entry(self, profile: int, index: int, fields: dict[str, int]) -> None:
        """Write a row as of table EV_ENTRY; nothing in ``fields``: it has no value any more."""

    @abstractmethod
    def read_entry(self, profile: int, index: int, answer: Callable[[dict[str, int] | None], None]) -> None:
        """Ask for ``state`` and ``bad_qps`` of an entry that the host does not deny, see
        :meth:`mrc_host.nic.driver.Driver.start_read`.
        """


class RowTables(EvTables):
    """Tables EV_PROFILE and EV_ENTRY."""

    def write_profile(self, profile: int, fields: dict[str, int]) -> None:
        """See :class:`EvTables`."""
        self.context.driver.write_table(ControlTableId.EV_PROFILE, profile, fields)

    def write_entry(self, profile: int, index: int, fields: dict[str, int]) -> None:
        """See :class:`EvTables`."""
        self.context.driver.write_table(ControlTableId.EV_ENTRY, index, fields)

    def read_entry(self, profile: int, index: int, answer: Callable[[dict[str, int] | None], None]) -> None:
        """See :class:`EvTables`."""
        self.context.driver.start_read(ControlTableId.EV_ENTRY, index, answer)


class OrderTables(EvTables):
    """Tables EV_VALUE and EV_SET, with EV_POLICY and EV_ORDER."""

    def write_profile(self, profile: int, fields: dict[str, int]) -> None:
        """See :class:`EvTables`."""
        words = EV_POLICY.pack(
            min_active=fields["min_active"],
            events=fields["events"] & 3,
            oblivious=fields["oblivious"],
            floor_mask=_FLOOR_MASK,
        )
        self.context.driver.write_words(TableId.EV_SET, EV_POLICY_INDEX + profile, words)

    def write_entry(self, profile: int, index: int, fields: dict[str, int]) -> None:
        """See :class:`EvTables`."""
        driver = self.context.driver
        if fields:
            value = {name: fields[name] for name in ("value", "port")}
            driver.write_table(TableId.EV_VALUE, index, value)
        good = fields.get("state") == EvState.GOOD
        place = index % EV_VALUES_PER_PLANE
        operation = PathOperation.ALLOW if good else PathOperation.DENY
        for row in self._rows(profile, index):
            words = EV_ORDER.pack(place=place, operation=operation)
            driver.write_words(TableId.EV_SET, EV_ORDER_INDEX + row, words)

    def read_entry(self, profile: int, index: int, answer: Callable[[dict[str, int] | None], None]) -> None:
        """See :class:`EvTables`."""
        place = index % EV_VALUES_PER_PLANE
        rows = self._rows(profile, index)
        waiting = len(rows)
        bad = 0
        refused = False

        def finish() -> None:
            state = EvState.ASSUMED_BAD if bad else EvState.GOOD
            answer(None if refused else {"state": state, "bad_qps": bad})

        def take(fields: dict[str, int] | None) -> None:
            nonlocal waiting, bad, refused
            waiting -= 1
            if fields is None:
                refused = True
            else:
                bad += fields["bad"] >> place & ~(fields["good"] >> place) & 1
            if not waiting:
                finish()

        if not rows:
            finish()
        for row in rows:
            self.context.driver.start_read(TableId.EV_SET, row, take)

    def _rows(self, profile: int, index: int) -> list[int]:
        """Rows of EV_SET that an entry concerns; QPs that have not begun get theirs when they do."""
        planes = self.context.capabilities.planes
        plane = index // EV_VALUES_PER_PLANE % planes
        return [
            pair.index * planes + plane
            for pair in self.context.queue_pairs.values()
            if pair.state in (QpState.RTR, QpState.RTS) and pair.attributes["ev_profile"].number == profile
        ]
