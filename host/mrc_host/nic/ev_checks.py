"""What the attributes of an EV profile may be.

Source: protocol.md 2.8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum, IntFlag
from typing import Any

from mrc_host.nic.capabilities import Capabilities
from mrc_host.nic.ev_array import EvArray
from mrc_host.nic.ev_format import EvFormat
from mrc_host.nic.ev_values import UNPOPULATED
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl.tables import EV_VALUES_PER_PLANE, DeviceFlag, EvState

__all__ = ["EvEventMask", "EvMode", "check_complete", "check_profile", "check_settable"]

LARGEST_UPLINK = 255


class EvMode(IntEnum):
    """Who chooses the values of a profile."""

    AUTO = 1
    """The driver."""
    EXPLICIT = 2
    """The controller, by REPLACE_EV."""
    GENERATED = 4
    """The driver, within the ranges of the fields."""


class EvEventMask(IntFlag):
    """States whose beginning is reported as an EV event."""

    GOOD = EvState.GOOD
    ASSUMED_BAD = EvState.ASSUMED_BAD


_MODE_FLAGS = {EvMode.EXPLICIT: DeviceFlag.EV_EXPLICIT, EvMode.GENERATED: DeviceFlag.EV_GENERATED}


def check_profile(capabilities: Capabilities, attributes: Mapping[str, Any]) -> None:
    """Check each attribute by itself.

    Raises
    ------
    VerbsError
        EINVAL for a value, EOPNOTSUPP for what the device cannot do.
    """
    if "mode" in attributes:
        mode = attributes["mode"]
        _check_type("mode", mode, EvMode)
        if mode in _MODE_FLAGS:
            capabilities.require(_MODE_FLAGS[mode], "ev_profile.mode", mode.name)
    if "format" in attributes and attributes["format"] is not None:
        _check_type("format", attributes["format"], EvFormat)
    if "ev_count" in attributes:
        count = check_range("ev_profile.ev_count", attributes["ev_count"], 1, _most(capabilities))
        if count % capabilities.ev_count_align:
            raise VerbsError(
                "EINVAL", "ev_profile.ev_count", count, f"a multiple of {capabilities.ev_count_align}"
            )
    if "fields" in attributes:
        fields = attributes["fields"]
        if not isinstance(fields, Sequence | Mapping) or isinstance(fields, str | bytes):
            raise VerbsError("EINVAL", "ev_profile.fields", fields, "a sequence of EvField")
    if "ev_min_active" in attributes:
        least = check_range("ev_profile.ev_min_active", attributes["ev_min_active"], 0, _most(capabilities))
        if least:
            capabilities.require(DeviceFlag.EV_STATES, "ev_profile.ev_min_active", least)
    if "ev_event_mask" in attributes:
        mask = attributes["ev_event_mask"]
        check_range("ev_profile.ev_event_mask", mask, 0, EvEventMask.GOOD | EvEventMask.ASSUMED_BAD)
        if mask:
            capabilities.require(DeviceFlag.EV_EVENTS, "ev_profile.ev_event_mask", mask)
    if check_range("ev_profile.backups", attributes["backups"], 0, EV_VALUES_PER_PLANE - 1):
        capabilities.require(DeviceFlag.EV_STATES, "ev_profile.backups", attributes["backups"])
    _check_type("oblivious", attributes["oblivious"], bool)
    check_range("ev_profile.uplinks", attributes["uplinks"], 1, LARGEST_UPLINK)


def check_complete(array: EvArray, attributes: Mapping[str, Any]) -> None:
    """Check what an array must be to go ONLINE.

    Raises
    ------
    VerbsError
        EINVAL for entries without a value, a floor above the number of entries, or backups that leave a port
        without an entry in use.
    """
    empty = sum(entry.key == UNPOPULATED for entry in array.entries)
    if empty:
        raise VerbsError("EINVAL", "ev_profile.unpopulated", empty, "0 to go ONLINE (REPLACE_EV)")
    check_range("ev_profile.ev_min_active", attributes["ev_min_active"], 0, len(array.entries))
    for port in range(1, array.planes + 1):
        own = len(array.of_port(port))
        if own and attributes["backups"] >= own:
            raise VerbsError(
                "EINVAL",
                "ev_profile.backups",
                attributes["backups"],
                f"below the {own} entries of port {port}",
            )


def check_settable(state: object) -> None:
    """Check that a state is one a controller may set.

    Raises
    ------
    VerbsError
        EINVAL for another than GOOD or DENIED.
    """
    if state not in (EvState.GOOD, EvState.DENIED):
        name = state.name if isinstance(state, EvState) else state
        raise VerbsError("EINVAL", "state", name, "GOOD or DENIED (ASSUMED_BAD is the device's to find)")


def _most(capabilities: Capabilities) -> int:
    return capabilities.ev_max_count_profile


def _check_type(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise VerbsError("EINVAL", f"ev_profile.{name}", value, f"of type {kind.__name__}")
