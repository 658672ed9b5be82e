"""Packets that are overtaken."""

from __future__ import annotations

from mrc_host.fabric.faults.base import FaultSpec, Nanoseconds, Probability, register_fault
from mrc_host.fabric.faults.running import Site
from mrc_host.fabric.packet import Packet

__all__ = ["Reorder"]


@register_fault("reorder")
class Reorder(FaultSpec):
    """Some packets are held back, and those behind them go ahead.

    Parameters
    ----------
    probability : float
        Of each packet.
    delay_ns : float
        How long it is held back.
    """

    probability: Probability
    delay_ns: Nanoseconds

    def act(self, site: Site, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Hold the packet back or not."""
        return [(round(self.delay_ns * 1000), packet)] if site.draws.chance(self.probability) else None
