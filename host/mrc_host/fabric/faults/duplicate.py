"""Packets that arrive twice."""

from __future__ import annotations

from typing import Annotated

from mrc_host.experiment.fields import number
from mrc_host.fabric.faults.base import FaultSpec, Probability, register_fault
from mrc_host.fabric.faults.running import Site
from mrc_host.fabric.packet import Packet

__all__ = ["Duplicate"]


@register_fault("duplicate")
class Duplicate(FaultSpec):
    """Packets are followed by a copy of themselves.

    Parameters
    ----------
    probability : float
        Of each packet.
    delay_ns : float
        Time from the packet to its copy.
    """

    probability: Probability
    delay_ns: Annotated[float, number("nanoseconds", 0, 1e9)] = 0.0

    def act(self, site: Site, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Repeat the packet or not."""
        if not site.draws.chance(self.probability):
            return None
        return [(0, packet), (round(self.delay_ns * 1000), packet.copy())]
