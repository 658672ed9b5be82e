"""Links that are down: once, again and again, or because their switch reboots."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator
from pydantic_core.core_schema import ValidationInfo

from mrc_host.experiment.fields import Flag, refuse
from mrc_host.fabric.faults.base import FaultSpec
from mrc_host.fabric.faults.running import Site
from mrc_host.fabric.faults.selection import Place
from mrc_host.fabric.packet import Packet
from mrc_host.fabric.topology import Topology

__all__ = ["Outage"]


class Outage(FaultSpec):
    """A link is down: whatever is on it at any time of the outage, from first bit to last, is lost.

    Parameters
    ----------
    signal : bool
        Whether the link tells: NICs see ports of theirs go down and up, and T0s take links between switches
        out of ECMP a convergence time later. Routes of uSIDs are static.
    """

    SELECTORS: ClassVar[tuple[str, ...]] = ("link", "port", "switch", "plane")
    FILTERS: ClassVar[bool] = False

    signal: Flag = Field(default=False, validate_default=True)

    @field_validator("signal")
    @classmethod
    def _both_directions_fail(cls, value: bool, info: ValidationInfo) -> bool:
        direction = info.data.get("direction")
        if value and direction != "both":
            raise refuse(f"false with direction = {direction}: a port knows of a whole link only", value)
        return value

    def directions(self, place: Place, topology: Topology) -> tuple[int, ...]:
        """Return everything that touches the place."""
        return place.touched

    @property
    def share_left(self) -> float:
        """Nothing is left."""
        return 0.0

    def down_during(self, begin_ps: int, end_ps: int, first_ps: int, last_ps: int) -> bool:
        """Whether a fault from begin to end has the link down at some time between two others."""
        return first_ps < end_ps and last_ps >= begin_ps

    def concerns(self, site: Site, start_ps: int, packet: Packet) -> bool:
        """Whether the link is down while any bit of the packet is on it."""
        fault = site.fault
        port = site.port
        last = start_ps + port.slot_ps(packet.wire_bytes, start_ps) + port.delay_ps
        return self.down_during(fault.begin_ps, fault.end_ps, start_ps, last)

    def act(self, site: Site, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Lose the packet."""
        return []

    def outages(self, begin_ps: int, end_ps: int) -> list[tuple[int, int]]:
        """Return the outages that NICs are told of."""
        return [(begin_ps, end_ps)] if self.signal and begin_ps < end_ps else []
