"""Operations of a controller on the entries of an EV profile: REPLACE_EV, MODIFY_EV_STATE, QUERY."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mrc_host.nic.ev_array import EvArray
from mrc_host.nic.ev_batch import (
    EvArrayEntry,
    EvBatchError,
    EvFlag,
    EvQuery,
    EvReplacement,
    EvStateChange,
    run_batch,
)
from mrc_host.nic.ev_checks import EvMode, check_settable
from mrc_host.nic.ev_values import UNPOPULATED, EvEntry, EvKey, check_key
from mrc_host.nic.life_cycle import LifeCycle, ProfileState
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl.tables import DeviceFlag, EvState, TableId

if TYPE_CHECKING:
    from mrc_host.nic.context import Context

__all__ = ["EvOperations"]


class EvOperations(LifeCycle):
    """A profile whose array of entropy values a controller works on.

    An operation takes a batch of entries. The first one that fails ends it: those before it have been carried
    out, and the error says so for each.

    Attributes
    ----------
    context : Context
    number : int
        Its number in the engine.
    array : EvArray
        Its entries, from OFFLINE on.

    Source: protocol.md 2.2, 2.8.
    """

    def __init__(self, context: Context, number: int) -> None:
        super().__init__()
        self.context = context
        self.number = number
        self.array = EvArray(context.capabilities.planes)

    @property
    def mode(self) -> EvMode:
        """Who chooses the values; set from OFFLINE on."""
        mode: EvMode = self.attributes["mode"]
        return mode

    # -- operations --------------------------------------------------------------------------------------

    def replace_ev(self, entries: Sequence[EvReplacement]) -> list[int]:
        """REPLACE_EV: put new values in the place of others; mode EXPLICIT.

        Returns
        -------
        list of int
            For each entry how many of the array's it replaced.

        Raises
        ------
        VerbsError
            EINVAL for state or mode of the profile or the number of entries, EOPNOTSUPP when the device
            cannot do it while ONLINE.
        EvBatchError
            For an entry: ENOENT when its ``ev`` is not in the array, ENOSPC when the port has no room,
            EINVAL for a value, port or state.
        """
        self._check_operation("REPLACE_EV")
        if self.mode is not EvMode.EXPLICIT:
            raise VerbsError("EINVAL", "ev_profile.mode", self.mode.name, "EXPLICIT for REPLACE_EV")
        if self.state is ProfileState.ONLINE:
            self._may_edit_online("entries", "REPLACE_EV")
        return run_batch(entries, EvReplacement, self._limit, self._replace)

    def modify_ev_state(self, entries: Sequence[EvStateChange]) -> list[int]:
        """MODIFY_EV_STATE: deny values, or allow them again.

        Returns
        -------
        list of int
            For each entry how many of the array's it changed.

        Raises
        ------
        VerbsError
            EINVAL for the profile's state or the number of entries, EOPNOTSUPP without EV_STATES.
        EvBatchError
            For an entry: ENOENT when the array does not have it, EINVAL for the state.
        """
        self._check_operation("MODIFY_EV_STATE")
        return run_batch(entries, EvStateChange, self._limit, self._change_state)

    def query_ev_state(self, evs: Sequence[EvKey]) -> EvQuery:
        """QUERY_EV_STATE: return the state of values; copies answer with the worst of theirs.

        At a simulated time the answers come later, see :class:`EvQuery`.

        Raises
        ------
        VerbsError
            As :meth:`modify_ev_state`.
        EvBatchError
            ENOENT for a value that the array does not have; those before it are asked, ``results``.
        """
        self._check_operation("QUERY_EV_STATE")
        query = EvQuery()
        try:
            run_batch(evs, EvKey, self._limit, lambda key: self._ask(query, self.array.find(key)))
        except EvBatchError as error:
            error.results = query
            raise
        return query

    def query_ev_array(self, first: int = 0, count: int | None = None) -> EvQuery:
        """QUERY_EV_ARRAY: return entries of the array, at most ``ev_op_max_entries`` at a time.

        At a simulated time the answers come later, see :class:`EvQuery`.

        Parameters
        ----------
        first : int
            Entry to begin with.
        count : int, optional
            By default all behind it, up to the limit.

        Raises
        ------
        VerbsError
            EINVAL for the profile's state or a range outside the array, EOPNOTSUPP without EV_STATES.
        """
        self._check_operation("QUERY_EV_ARRAY")
        size = len(self.array.entries)
        check_range("ev_array.first", first, 0, size - 1)
        if count is None:
            count = min(size - first, self._limit)
        check_range("ev_array.count", count, 1, min(size - first, self._limit))
        query = EvQuery()
        for entry in self.array.entries[first : first + count]:
            self._ask(query, [entry])
        return query

    def _check_range(self, values: Sequence[int]) -> None:
        if DeviceFlag.EV_EXPLICIT_RANGE not in self.context.capabilities.flags or not values:
            return
        if sorted(values) != list(range(min(values), min(values) + len(values))):
            raise VerbsError(
                "EINVAL", "ev_profile.values", sorted(values),
                "one contiguous range a port (capability EV_EXPLICIT_RANGE)",
            )  # fmt: skip

    def _may_edit_online(self, name: str, value: object) -> None:
        self.context.capabilities.require(
            DeviceFlag.EV_PROFILE_MODIFY_ONLINE, f"ev_profile.{name} while ONLINE", value
        )

    # -- entries -----------------------------------------------------------------------------------------

    @property
    def _limit(self) -> int:
        return self.context.capabilities.ev_op_max_entries

    def _check_operation(self, name: str) -> None:
        self._check_alive()
        self.context.capabilities.require(DeviceFlag.EV_STATES, "ev_profile.operation", name)
        if self.state is ProfileState.INIT:
            raise VerbsError("EINVAL", "ev_profile.state", "INIT", f"OFFLINE or ONLINE for {name}")

    def _replace(self, order: EvReplacement) -> int:
        old, new = order.ev, check_key("ev_new", order.ev_new, self.array.planes)
        check_settable(order.state)
        if not isinstance(order.flags, EvFlag):
            raise VerbsError("EINVAL", "flags", order.flags, "of type EvFlag")
        found = self.array.find(old)[: None if EvFlag.ALL_COPIES in order.flags else 1]
        online = self.state is ProfileState.ONLINE
        if online and new.port != old.port:
            raise VerbsError(
                "EINVAL", "ev_new.port", new.port, f"{old.port} as before while ONLINE (planes stay balanced)"
            )
        staying = [entry for entry in self.array.of_port(new.port) if entry not in found]
        if len(staying) + len(found) > self.context.capabilities.evs_per_plane:
            most = self.context.capabilities.evs_per_plane
            raise VerbsError(
                "ENOSPC", "ev_new.port", new.port, f"a port with fewer than {most} entries, all together"
            )
        self.array.row(EvEntry(new))
        if online:
            self._check_range([entry.key.value for entry in staying] + [new.value] * len(found))
        places = self.array.free_places(new.port, staying, len(found))
        for entry, place in zip(found, places, strict=True):
            entry.key, entry.state = new, order.state
            if online:
                entry.replacements += 1
                self._write(entry)
            else:
                entry.place = place
        return len(found)

    def _change_state(self, order: EvStateChange) -> int:
        check_settable(order.state)
        if order.ev == UNPOPULATED:
            raise VerbsError("EINVAL", "ev", order.ev, "a populated entry")
        found = self.array.find(order.ev)
        for entry in found:
            entry.state = order.state
            if self.state is ProfileState.ONLINE:
                self._write(entry)
        return len(found)

    def _ask(self, query: EvQuery, copies: Sequence[EvEntry]) -> None:
        """Add an entry to a query: what the host knows itself, else what the device says of each copy."""
        key = copies[0].key
        number = query.expect(key)
        answers = [EvArrayEntry(key, copy.state) for copy in copies if not self._device_knows(copy)]
        asked = [copy for copy in copies if self._device_knows(copy)]
        refused = False

        def take(row: dict[str, int] | None) -> None:
            nonlocal refused
            refused = refused or row is None
            answers.append(
                EvArrayEntry(key, EvState(row["state"]), row["bad_qps"])
                if row is not None
                else EvArrayEntry(key, EvState.UNKNOWN)
            )
            finish()

        def finish() -> None:
            if len(answers) == len(copies):
                worst = max(answers, key=lambda answer: (answer.state, answer.bad_qps))
                query.answer(number, None if refused else worst)

        if not asked:
            finish()
        for copy in asked:
            index = self.array.index(self.number, copy)
            self.context.ev_tables.read_entry(self.number, index, take)

    def _device_knows(self, entry: EvEntry) -> bool:
        """Whether a state may have changed without the host."""
        return self.state is ProfileState.ONLINE and entry.state is EvState.GOOD

    def _write(self, entry: EvEntry, clear: bool = False) -> None:
        index = self.array.index(self.number, entry)
        if DeviceFlag.EV_STATES in self.context.capabilities.flags:
            fields = {} if clear else {**self.array.row(entry), "state": entry.state}
            self.context.ev_tables.write_entry(self.number, index, fields)
        elif not clear:
            self.context.driver.write_table(TableId.EV_VALUE, index, self.array.row(entry))
