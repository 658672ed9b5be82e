"""EV format profiles: where entropy values stand in a packet, and the fields they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

from mrc_host.nic.life_cycle import LifeCycle, ProfileState
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl.tables import DeviceFlag

if TYPE_CHECKING:
    from mrc_host.nic.context import Context

__all__ = ["ADDRESS_BITS", "WIRE_EV_BITS", "EvFormat", "EvFormatMode"]

#: Bits of an entropy value in the headers every packet has.
WIRE_EV_BITS = 32
ADDRESS_BITS = 128


class EvFormatMode(IntEnum):
    """Where entropy values stand in a packet."""

    STEV = 0
    """Structured: source port, then the low 16 bits of the flow label; 32 bits."""
    SRV6 = 1
    """Outer destination address, and one segment in a routing header behind it; 128 or 256 bits."""
    UDP = 2
    """Source port; 16 bits."""

    @property
    def flag(self) -> DeviceFlag:
        """What a device needs for it."""
        return {
            EvFormatMode.STEV: DeviceFlag.FORMAT_STEV,
            EvFormatMode.SRV6: DeviceFlag.FORMAT_SRV6,
            EvFormatMode.UDP: DeviceFlag.FORMAT_UDP,
        }[self]

    @property
    def bits(self) -> int:
        """Most bits of the fields together."""
        return {EvFormatMode.STEV: WIRE_EV_BITS, EvFormatMode.SRV6: 2 * ADDRESS_BITS, EvFormatMode.UDP: 16}[
            self
        ]


class EvFormat(LifeCycle):
    """Mode and field widths that EV profiles share; made by ``Context.ev_format``.

    Attributes of :meth:`modify`
    ----------------------------
    mode : EvFormatMode
        Needed to go OFFLINE.
    fields : sequence of int
        Widths in bits, the most significant field first; needed to go ONLINE. Their sum is at most what the
        mode holds; more than an address needs capability FORMAT_SRV6_SRH.

    Source: protocol.md 1.15, 2.8.
    """

    kind = "ev_format"
    names = ("mode", "fields")
    needed: ClassVar[Mapping[ProfileState, tuple[str, ...]]] = {
        ProfileState.OFFLINE: ("mode",),
        ProfileState.ONLINE: ("fields",),
    }

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context
        self.users = 0

    @property
    def mode(self) -> EvFormatMode:
        """Where entropy values stand; set from OFFLINE on."""
        mode: EvFormatMode = self.attributes["mode"]
        return mode

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the fields in bits; set when ONLINE."""
        widths: tuple[int, ...] = self.attributes["fields"]
        return widths

    @property
    def has_segment(self) -> bool:
        """A routing header carries what does not fit the address."""
        return self.mode is EvFormatMode.SRV6 and sum(self.widths) > ADDRESS_BITS

    def _checked(
        self, attributes: dict[str, Any], changed: frozenset[str], after: ProfileState
    ) -> dict[str, Any]:
        capabilities = self.context.capabilities
        checked = dict(attributes)
        if "mode" in attributes:
            mode = attributes["mode"]
            if not isinstance(mode, EvFormatMode):
                raise VerbsError("EINVAL", "ev_format.mode", mode, "of type EvFormatMode")
            capabilities.require(mode.flag, "ev_format.mode", mode.name)
        if "fields" in attributes:
            try:
                widths = tuple(attributes["fields"])
            except TypeError:
                raise VerbsError(
                    "EINVAL", "ev_format.fields", attributes["fields"], "a sequence of widths"
                ) from None
            check_range("ev_format.field_count", len(widths), 1, capabilities.fmt_max_fields)
            for number, width in enumerate(widths):
                check_range(f"ev_format.fields[{number}]", width, 1, ADDRESS_BITS)
            checked["fields"] = widths
            if "mode" in attributes:
                check_range("ev_format.fields.sum", sum(widths), 1, attributes["mode"].bits)
                if attributes["mode"] is EvFormatMode.SRV6 and sum(widths) > ADDRESS_BITS:
                    capabilities.require(DeviceFlag.FORMAT_SRV6_SRH, "ev_format.fields.sum", sum(widths))
        return checked

    def _apply(self, before: ProfileState, changed: frozenset[str]) -> None:
        """Nothing of it is in the device: EV profiles bring what they need."""

    def _users(self) -> int:
        return self.users

    def _release(self) -> None:
        """Nothing to give back."""
