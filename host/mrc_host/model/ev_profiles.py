"""EV profiles: the values of entropy values, their ports and expanded destinations, and what is denied.

They belong to a profile that many QPs use; which of them a QP may use now is its own EV set's affair.

Source: profile.md 3; protocol.md 2.8; tables EV_VALUE, EV_PROFILE and EV_ENTRY of :mod:`mrc_rtl.tables`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from mrc_rtl.config import NicConfig
from mrc_rtl.tables import EV_VALUES_PER_PLANE, EvProfileState, EvState

__all__ = ["EvProfiles"]

_VALUES: Final = int(EV_VALUES_PER_PLANE)
_ONLINE: Final = int(EvProfileState.ONLINE)


class EvProfiles:
    """The profiles of a NIC.

    Rows are numbered as in EV_VALUE: ``(profile × planes + plane) × 32 + place``.

    Parameters
    ----------
    config : NicConfig

    Attributes
    ----------
    value, port : lists of int
        Per row.
    denied : bytearray
        Per row: the controller denies it.
    state, events, minimum_active : lists of int
        Per profile.
    oblivious : list of bool
        Per profile: feedback changes no state.
    expanded, segment : lists of bool
        Per profile: outer destinations are the rows', and there is a segment as well.
    destination, segments : lists of int
        Per row: expanded addresses.
    """

    __slots__ = (
        "denied",
        "destination",
        "events",
        "expanded",
        "minimum_active",
        "oblivious",
        "planes",
        "populated",
        "port",
        "profiles",
        "segment",
        "segments",
        "state",
        "value",
    )

    def __init__(self, config: NicConfig) -> None:
        rows = config.ev_profiles * config.planes * EV_VALUES_PER_PLANE
        self.planes: int = config.planes
        self.profiles: int = config.ev_profiles
        self.value: list[int] = [0] * rows
        self.port: list[int] = [0] * rows
        self.denied: bytearray = bytearray(rows)
        self.populated: bytearray = bytearray(rows)
        self.destination: list[int] = [0] * rows
        self.segments: list[int] = [0] * rows
        self.state: list[int] = [EvProfileState.ONLINE] * config.ev_profiles
        self.events: list[int] = [0] * config.ev_profiles
        self.minimum_active: list[int] = [0] * config.ev_profiles
        self.oblivious: list[bool] = [False] * config.ev_profiles
        self.expanded: list[bool] = [False] * config.ev_profiles
        self.segment: list[bool] = [False] * config.ev_profiles

    def row(self, profile: i64, plane: i64, place: i64) -> int:
        """Row of a place of a plane."""
        return int((profile * self.planes + plane) * _VALUES + place)

    def row_of_value(self, profile: int, plane: int, value: int) -> int:
        """Row of a plane that has a value on the wire; −1 when none has it (any more)."""
        first = self.row(profile, plane, 0)
        for row in range(first, first + EV_VALUES_PER_PLANE):
            if self.populated[row] and self.value[row] == value:
                return row
        return -1

    def place_of(self, row: int) -> tuple[int, int, int]:
        """Profile, plane and place of a row."""
        block, place = divmod(row, EV_VALUES_PER_PLANE)
        profile, plane = divmod(block, self.planes)
        return profile, plane, place

    def online(self, profile: i64) -> bool:
        """Whether QPs may send on a profile's values."""
        return self.state[profile] == _ONLINE

    # -- tables ------------------------------------------------------------------------------------------

    def write_value(self, row: int, fields: dict[str, int]) -> bool:
        """Table EV_VALUE."""
        if row >= len(self.value):
            return False
        self.value[row] = fields["value"]
        self.port[row] = fields["port"]
        self.populated[row] = 1
        return True

    def read_value(self, row: int) -> dict[str, int] | None:
        """Table EV_VALUE."""
        if row >= len(self.value):
            return None
        return {"value": self.value[row], "port": self.port[row]}

    def write_profile(self, profile: int, fields: dict[str, int]) -> bool:
        """Table EV_PROFILE."""
        if profile >= self.profiles or fields["state"] > EvProfileState.ONLINE:
            return False
        self.state[profile] = fields["state"]
        self.expanded[profile] = fields["expanded"] == 1
        self.segment[profile] = fields["segment"] == 1
        self.events[profile] = fields["events"]
        self.minimum_active[profile] = fields["min_active"]
        self.oblivious[profile] = fields["oblivious"] == 1
        return True

    def read_profile(self, profile: int, qps: int) -> dict[str, int] | None:
        """Table EV_PROFILE; ``qps`` use it."""
        if profile >= self.profiles:
            return None
        return {
            "state": int(self.state[profile]),
            "expanded": int(self.expanded[profile]),
            "segment": int(self.segment[profile]),
            "events": self.events[profile],
            "min_active": self.minimum_active[profile],
            "oblivious": int(self.oblivious[profile]),
            "qps": qps,
        }

    def write_entry(self, row: int, fields: dict[str, int]) -> bool:
        """Table EV_ENTRY, without what it does to QPs."""
        if row >= len(self.value):
            return False
        state = fields["state"]
        if state not in (EvState.GOOD, EvState.DENIED, EvState.UNPOPULATED):
            return False
        self.value[row] = fields["value"]
        self.port[row] = fields["port"]
        self.populated[row] = state != EvState.UNPOPULATED
        self.denied[row] = state == EvState.DENIED
        self.destination[row] = fields["destination_high"] << 64 | fields["destination_low"]
        self.segments[row] = fields["segment_high"] << 64 | fields["segment_low"]
        return True

    def read_entry(self, row: int, bad_qps: int) -> dict[str, int] | None:
        """Table EV_ENTRY; in ``bad_qps`` QPs the EV is ASSUMED_BAD."""
        if row >= len(self.value):
            return None
        if self.denied[row]:
            state = EvState.DENIED
        elif not self.populated[row]:
            state = EvState.UNPOPULATED
        else:
            state = EvState.ASSUMED_BAD if bad_qps else EvState.GOOD
        low = (1 << 64) - 1
        return {
            "value": self.value[row],
            "port": self.port[row],
            "state": int(state),
            "destination_high": self.destination[row] >> 64,
            "destination_low": self.destination[row] & low,
            "segment_high": self.segments[row] >> 64,
            "segment_low": self.segments[row] & low,
            "bad_qps": bad_qps,
        }
