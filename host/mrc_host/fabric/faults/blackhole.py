"""A place that swallows packets while everything looks well."""

from __future__ import annotations

from mrc_host.fabric.faults.base import FaultSpec, register_fault
from mrc_host.fabric.faults.running import Site
from mrc_host.fabric.packet import Packet

__all__ = ["Blackhole"]


@register_fault("blackhole")
class Blackhole(FaultSpec):
    """Every packet that enters the place is lost without a sign; what is already on its links arrives."""

    @property
    def share_left(self) -> float:
        """Nothing is left."""
        return 0.0

    def act(self, site: Site, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Lose the packet."""
        return []
