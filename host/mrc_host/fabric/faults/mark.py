"""Switch ports that mark although nothing waits."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mrc_host.experiment.fields import number
from mrc_host.fabric.faults.base import FaultSpec, register_fault
from mrc_host.fabric.faults.running import Site
from mrc_host.fabric.faults.selection import Place, fed_by_switches
from mrc_host.fabric.packet import MARKABLE_CLASSES, Packet
from mrc_host.fabric.topology import Topology

__all__ = ["Mark"]


@register_fault("mark")
class Mark(FaultSpec):
    """Output ports of switches mark ECN-capable packets with CE whether or not anything waits.

    Of a switch, the ports of it are meant; of a plane, all ports of its switches: a packet runs the risk at
    each.

    Parameters
    ----------
    share : float
        Probability of each packet.
    """

    SELECTORS: ClassVar[tuple[str, ...]] = ("link", "port", "switch", "plane")

    share: Annotated[float, number("share of packets", 0, 1, low_allowed=False)] = 1.0

    def directions(self, place: Place, topology: Topology) -> tuple[int, ...]:
        """Return the directions that a switch feeds."""
        return fed_by_switches(place, topology, self.selector, self.direction)

    def concerns(self, site: Site, start_ps: int, packet: Packet) -> bool:
        """Whether the packet can be marked at all."""
        return super().concerns(site, start_ps, packet) and MARKABLE_CLASSES[packet.outer_class]

    def act(self, site: Site, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Mark the packet or not."""
        if not site.draws.chance(self.share):
            return None
        packet.mark_ce()
        site.port.marked += 1
        return [(0, packet)]
