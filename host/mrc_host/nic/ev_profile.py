"""EV profiles: arrays of entropy values that queue pairs use, and their life cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from mrc_host.nic.ev_array import EvArray
from mrc_host.nic.ev_checks import EvEventMask, EvMode, check_complete, check_profile
from mrc_host.nic.ev_format import WIRE_EV_BITS, EvFormat, EvFormatMode
from mrc_host.nic.ev_operations import EvOperations
from mrc_host.nic.ev_values import EvEntry, EvKey
from mrc_host.nic.life_cycle import ProfileState
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl import wire
from mrc_rtl.config import NicConfig
from mrc_rtl.tables import EV_VALUES_PER_PLANE, DeviceFlag

if TYPE_CHECKING:
    from mrc_host.nic.context import Context
    from mrc_host.nic.path import Path

__all__ = ["EvEventMask", "EvMode", "EvProfile"]

#: Attributes that decide what stands in the array.
_SHAPE = {"mode", "format", "ev_count", "fields", "uplinks"}


class EvProfile(EvOperations):
    """An array of entropy values that QPs refer to; made by ``Context.create_ev_profile`` (INIT) or
    ``Context.ev_profile`` (mode AUTO with given values, ONLINE).

    Attributes of :meth:`modify`
    ----------------------------
    mode : EvMode
        Needed to go OFFLINE.
    ev_count : int
        Entries of the array, a multiple of ``ev_count_align`` up to ``ev_max_count_profile``; needed to go
        OFFLINE.
    format : EvFormat
        ONLINE; needed to go OFFLINE except in mode AUTO, which takes SRv6 without one.
    fields : sequence of EvField, or mapping from port to such a sequence
        How EV bits become the format's fields; needed to go OFFLINE except in mode AUTO, which has none.
    ev_min_active : int
        Fewest EVs a QP keeps in use, at most ``ev_count``; needed to go ONLINE.
    ev_event_mask : EvEventMask
        Needed to go ONLINE.
    backups : int
        Last entries of each port that wait to replace one that goes bad; 0. Not in the API.
    uplinks : int
        AUTO in SRv6: T1 switches of a plane, which take turns; 1. Not in the API.
    oblivious : bool
        Marks, trims and losses change no state, so that all values take turns; False. Not in the API.

    While ONLINE, ``ev_event_mask`` and ``fields`` may change where the device has EV_PROFILE_MODIFY_ONLINE.

    Source: protocol.md 2.1, 2.8; profile.md 3.
    """

    kind = "ev_profile"
    names = (
        "mode", "format", "ev_count", "fields", "ev_min_active", "ev_event_mask", "backups", "uplinks",
        "oblivious",
    )  # fmt: skip
    defaults: ClassVar[Mapping[str, Any]] = {"backups": 0, "uplinks": 1, "oblivious": False}
    needed: ClassVar[Mapping[ProfileState, tuple[str, ...]]] = {
        ProfileState.OFFLINE: ("mode", "ev_count"),
        ProfileState.ONLINE: ("ev_min_active", "ev_event_mask"),
    }
    editable_online = ("ev_event_mask", "fields")

    def __init__(self, context: Context, number: int) -> None:
        super().__init__(context, number)
        self._draft = self.array
        self._held: EvFormat | None = None

    # -- what it holds -----------------------------------------------------------------------------------

    @property
    def format(self) -> EvFormat | None:
        """Where values stand in packets; None: SRv6, in mode AUTO."""
        form: EvFormat | None = self.attributes.get("format")
        return form

    @property
    def planes(self) -> tuple[tuple[int, ...], ...]:
        """The 32-bit values of each plane as they are on the wire, at most 32 a plane."""
        ports = range(1, self.context.capabilities.planes + 1)
        return tuple(tuple(self.array.row(e)["value"] for e in self.array.of_port(port)) for port in ports)

    def ev_words(self, plane: int) -> dict[str, int]:
        """Return the row of table EV_SET with which a QP begins."""
        return self.array.words(plane, self.attributes["backups"])

    def key_of(self, port: int, place: int, wire_value: int) -> EvKey | None:
        """Return the name of the value at a place, or None when it is not the one on the wire (any more)."""
        entry = self.entry_at(port, place)
        return entry.key if entry and self.array.row(entry)["value"] == wire_value else None

    def entry_at(self, port: int, place: int) -> EvEntry | None:
        """Return the entry at a place of a port (from 1), or None when there is none."""
        return next((entry for entry in self.array.of_port(port) if entry.place == place), None)

    def check_path(self, path: Path) -> None:
        """Check that packets to a path can carry the profile's values.

        Raises
        ------
        VerbsError
            EINVAL when the format is SRv6 and the path has no outer addresses, or the other way round.
        """
        if self.format is None or (self.format.mode is EvFormatMode.SRV6) == (path.outer is not None):
            return
        rule = "given for" if path.outer is None else "left out for"
        raise VerbsError(
            "EINVAL", "qp.path.outer", path.outer, f"{rule} a profile of format {self.format.mode.name}"
        )

    # -- life cycle --------------------------------------------------------------------------------------

    def adopt(self, values: Sequence[Sequence[int]], **attributes: Any) -> None:
        """INIT → ONLINE in mode AUTO, with wire values of each plane that a driver has chosen itself.

        Parameters
        ----------
        values : sequence of sequences of int
            As :meth:`check` allows.
        attributes
            ``ev_min_active``, ``ev_event_mask``, ``backups`` and ``oblivious``.

        Raises
        ------
        VerbsError
            As :meth:`modify`.
        """
        complete = {**self.defaults, "ev_min_active": 0, "ev_event_mask": EvEventMask(0), **attributes}
        check_profile(self.context.capabilities, complete)
        keys = [EvKey(value, plane + 1) for plane, row in enumerate(values) for value in row]
        array = EvArray.of_keys(self.array.planes, keys)
        check_complete(array, complete)
        self.attributes = {**complete, "mode": EvMode.AUTO, "ev_count": len(keys)}
        self.state = ProfileState.ONLINE
        self._draft = array
        self._apply(ProfileState.OFFLINE, frozenset())

    def _checked(
        self, attributes: dict[str, Any], changed: frozenset[str], after: ProfileState
    ) -> dict[str, Any]:
        check_profile(self.context.capabilities, attributes)
        self._draft = self.array
        if after is ProfileState.INIT:
            self._draft = EvArray(self.array.planes)
            return attributes
        mode, form = attributes["mode"], attributes.get("format")
        for name in ("format", "fields") if mode is not EvMode.AUTO else ():
            if name not in attributes:
                raise VerbsError("EINVAL", f"ev_profile.{name}", None, f"given in mode {mode.name}")
        if mode is EvMode.AUTO and attributes.get("fields"):
            raise VerbsError("EINVAL", "ev_profile.fields", attributes["fields"], "left out in mode AUTO")
        if form is not None:
            if form.context is not self.context:
                raise VerbsError("EINVAL", "ev_profile.format", "that of another device", "of this device")
            form.require_online("ev_profile.format")
        if self.state is ProfileState.INIT or changed & _SHAPE:
            self._draft = self._build(attributes)
        if self._draft.expanded:
            form_name = EvFormatMode.SRV6.name
            self.context.capabilities.require(DeviceFlag.EV_DESTINATIONS, "ev_profile.format", form_name)
        if after is ProfileState.ONLINE and self.state is not after:
            check_complete(self._draft, attributes)
        if after is ProfileState.ONLINE and mode is EvMode.EXPLICIT:
            for port in range(1, self.array.planes + 1):
                self._check_range([entry.key.value for entry in self._draft.of_port(port)])
        return attributes

    def _build(self, attributes: Mapping[str, Any]) -> EvArray:
        planes, count = self.array.planes, attributes["ev_count"]
        mode, form = attributes["mode"], attributes.get("format")
        if mode is EvMode.AUTO or form is None:
            return EvArray.automatic(planes, count, form, attributes["uplinks"])
        if mode is EvMode.GENERATED:
            return EvArray.generated(planes, count, form, attributes["fields"])
        before = self.array if self.attributes.get("mode") is mode else EvArray(planes)
        return EvArray.explicit(planes, count, form, attributes["fields"], before)

    def _apply(self, before: ProfileState, changed: frozenset[str]) -> None:
        old, self.array = self.array, self._draft
        after = self.state
        self._hold(self.format if after is not ProfileState.INIT else None)
        if before is ProfileState.ONLINE and after is ProfileState.OFFLINE:
            for entry in old.entries:
                self._write(entry, clear=True)
        elif after is ProfileState.ONLINE and (before is not after or changed & _SHAPE):
            for entry in self.array.entries:
                self._write(entry)
        if after is not before or after is ProfileState.ONLINE:
            self._write_profile()

    def _hold(self, form: EvFormat | None) -> None:
        if form is self._held:
            return
        if self._held is not None:
            self._held.users -= 1
        if form is not None:
            form.users += 1
        self._held = form

    def _users(self) -> int:
        return sum(pair.attributes.get("ev_profile") is self for pair in self.context.queue_pairs.values())

    def _release(self) -> None:
        self._hold(None)
        if self.state is not ProfileState.INIT:
            self.state, self.attributes = ProfileState.INIT, dict(self.defaults)
            self.array = EvArray(self.array.planes)
            self._write_profile()
        self.context.ev_profile_numbers.release(self.number)
        del self.context.ev_profiles[self.number]

    def _write_profile(self) -> None:
        if DeviceFlag.EV_STATES not in self.context.capabilities.flags:
            return
        fields = {
            "state": self.state,
            "expanded": self.array.expanded,
            "segment": self.array.has_segment,
            "events": self.attributes.get("ev_event_mask", 0),
            "min_active": self.attributes.get("ev_min_active", 0),
            "oblivious": self.attributes["oblivious"],
        }
        self.context.ev_tables.write_profile(self.number, fields)

    # -- helpers for callers -----------------------------------------------------------------------------

    @staticmethod
    def check(config: NicConfig, planes: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """Return the values as tuples when an engine can hold them.

        Raises
        ------
        VerbsError
            EINVAL for the number of planes, of values, or for a value that does not fit 32 bits.
        """
        if not isinstance(planes, list | tuple) or len(planes) != config.planes:
            found = len(planes) if isinstance(planes, list | tuple) else planes
            raise VerbsError("EINVAL", "ev_profile.planes", found, f"{config.planes}, one list a plane")
        limit = min(EV_VALUES_PER_PLANE, config.evs_per_plane)
        for plane, values in enumerate(planes):
            if not isinstance(values, list | tuple):
                raise VerbsError("EINVAL", f"ev_profile.planes[{plane}]", values, "a list of values")
            check_range(f"ev_profile.planes[{plane}].count", len(values), 1, limit)
            for value in values:
                check_range(f"ev_profile.planes[{plane}].value", value, 0, (1 << WIRE_EV_BITS) - 1)
        return tuple(tuple(values) for values in planes)

    @staticmethod
    def by_plane(values: Sequence[int], planes: int) -> list[list[int]]:
        """Sort SRv6 entropy values (``UsidPlan.ev_set``) by the plane they carry."""
        return [[ev for ev in values if wire.EV.unpack(ev)["plane"] == plane] for plane in range(planes)]
