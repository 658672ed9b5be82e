"""The array of an EV profile: its entries, where they stand in the engine, and what is written there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy

from mrc_host.nic import ev_values
from mrc_host.nic.ev_format import EvFormat, EvFormatMode
from mrc_host.nic.ev_values import UNPOPULATED, EvEntry, EvKey
from mrc_host.nic.verbs_error import VerbsError
from mrc_host.packets.ev_expansion import EvField
from mrc_host.packets.ev_expansion import EvProfile as Expansion
from mrc_rtl.tables import EV_VALUES_PER_PLANE, EvState

__all__ = ["EvArray"]


class EvArray:
    """Entries in the order of the API.

    Parameters
    ----------
    planes : int
    entries : list of EvEntry
    form : EvFormat, optional
        None: AUTO without a format.
    expansions : tuple of Expansion
        Of each port; empty in mode AUTO.
    """

    def __init__(
        self,
        planes: int,
        entries: list[EvEntry] | None = None,
        form: EvFormat | None = None,
        expansions: tuple[Expansion, ...] = (),
    ) -> None:
        self.planes = planes
        self.entries = entries or []
        self.form = form
        self.expansions = expansions

    # -- how it is made ----------------------------------------------------------------------------------

    @classmethod
    def of_keys(
        cls,
        planes: int,
        keys: Iterable[EvKey],
        form: EvFormat | None = None,
        expansions: tuple[Expansion, ...] = (),
    ) -> EvArray:
        """Return an array of these values, all GOOD, numbered on each port in their order."""
        used = [0] * (planes + 1)
        entries: list[EvEntry] = []
        for key in keys:
            entries.append(EvEntry(key, EvState.GOOD, used[key.port]))
            used[key.port] += 1
        return cls(planes, entries, form, expansions)

    @classmethod
    def automatic(cls, planes: int, count: int, form: EvFormat | None, uplinks: int) -> EvArray:
        """Return the array of mode AUTO."""
        mode = form.mode if form is not None else EvFormatMode.SRV6
        return cls.of_keys(planes, ev_values.automatic_values(mode, count, planes, uplinks), form)

    @classmethod
    def generated(
        cls,
        planes: int,
        count: int,
        form: EvFormat,
        fields: Sequence[EvField] | Mapping[int, Sequence[EvField]],
    ) -> EvArray:
        """Return the array of mode GENERATED: entry i belongs to plane i mod planes."""
        expansions = ev_values.expansions(form, fields, planes)
        columns = [
            ev_values.generated_values(expansion, -(-(count - plane) // planes))
            for plane, expansion in enumerate(expansions)
        ]
        keys = (EvKey(columns[i % planes][i // planes], i % planes + 1) for i in range(count))
        return cls.of_keys(planes, keys, form, expansions)

    @classmethod
    def explicit(
        cls,
        planes: int,
        count: int,
        form: EvFormat,
        fields: Sequence[EvField] | Mapping[int, Sequence[EvField]],
        before: EvArray,
    ) -> EvArray:
        """Return the array of mode EXPLICIT: the entries there were, when they are as many, else none.

        Raises
        ------
        VerbsError
            EINVAL when a value that stands in it breaks a rule of the fields.
        """
        expansions = ev_values.expansions(form, fields, planes)
        if len(before.entries) == count:
            entries = [copy(entry) for entry in before.entries]
        else:
            entries = [EvEntry() for _ in range(count)]
        array = cls(planes, entries, form, expansions)
        for entry in entries:
            if entry.key != UNPOPULATED:
                array.row(entry)
        return array

    # -- what it holds -----------------------------------------------------------------------------------

    def find(self, key: EvKey) -> list[EvEntry]:
        """Return the entries with a value and port.

        Raises
        ------
        VerbsError
            ENOENT when there is none.
        """
        found = [entry for entry in self.entries if entry.key == key]
        if not found:
            raise VerbsError("ENOENT", "ev", key, "in the profile's array")
        return found

    def of_port(self, port: int) -> list[EvEntry]:
        """Return the entries of a port (from 1) in the order of their places."""
        return sorted((e for e in self.entries if e.key.port == port), key=lambda entry: entry.place)

    def free_places(self, port: int, staying: Sequence[EvEntry], count: int) -> list[int]:
        """Return the lowest places of a port that entries which stay do not have."""
        taken = {entry.place for entry in staying}
        return [place for place in range(len(taken) + count) if place not in taken][:count]

    @property
    def expanded(self) -> bool:
        """Outer destinations come from the expansion, not from a QP's template."""
        return bool(self.expansions) and self.form is not None and self.form.mode is EvFormatMode.SRV6

    @property
    def has_segment(self) -> bool:
        """A routing header carries a segment."""
        return self.expanded and self.form is not None and self.form.has_segment

    # -- the engine's tables -----------------------------------------------------------------------------

    def index(self, profile: int, entry: EvEntry) -> int:
        """Return the row of an entry in the tables EV_VALUE and EV_ENTRY."""
        return (profile * self.planes + entry.key.port - 1) * EV_VALUES_PER_PLANE + entry.place

    def row(self, entry: EvEntry) -> dict[str, int]:
        """Return the fields of an entry's row, without its state.

        Raises
        ------
        VerbsError
            EINVAL when the value breaks a rule of the fields.
        """
        expansion = self.expansions[entry.key.port - 1] if self.expansions else None
        return ev_values.entry_fields(self.form, expansion, entry)

    def words(self, plane: int, backups: int) -> dict[str, int]:
        """Return the row of table EV_SET with which a QP begins: backups set aside, DENIED ones out."""
        own = self.of_port(plane + 1)
        words = {"good": 0, "skip": 0}
        for number, entry in enumerate(own):
            if entry.state is EvState.GOOD:
                words["good" if number < len(own) - backups else "skip"] |= 1 << entry.place
        return words
