"""Links that carry less than they should."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, ClassVar

from mrc_host.errors import ConfigError
from mrc_host.experiment.fields import number
from mrc_host.fabric.faults.base import FaultSpec, register_fault
from mrc_host.fabric.faults.running import RunningFault, Site
from mrc_host.fabric.faults.selection import Place
from mrc_host.fabric.packet import Packet
from mrc_host.fabric.topology import Topology

__all__ = ["Slow"]


@register_fault("slow")
class Slow(FaultSpec):
    """Links run at a part of their rate; queues build up in front of them.

    Only directions that a switch feeds can be slowed down: the MAC of a NIC keeps its rate. Of a switch, the
    directions that leave it are meant; of a plane, all that switches feed.

    Parameters
    ----------
    rate_share : float
        Part of the rate that is left, above 0 and below 1.
    """

    SELECTORS: ClassVar[tuple[str, ...]] = ("link", "port", "switch", "plane")
    FILTERS: ClassVar[bool] = False

    rate_share: Annotated[float, number("share of the rate", 0.0001, 0.9999)]

    def directions(self, place: Place, topology: Topology) -> tuple[int, ...]:
        """Return the directions that a switch feeds."""
        halves = [topology.directions[number] for number in place.touched]
        fed = [half for half in halves if half.source_switch >= 0]
        if self.selector == "switch":
            fed = [half for half in fed if half.source_port.startswith(f"{place.name}.")]
        elif self.selector != "plane" and len(fed) < len(halves):
            wanted = f"down on {place.name}, because a NIC's MAC keeps its rate"
            raise ConfigError("direction", wanted, self.direction)
        return tuple(half.number for half in fed)

    def start(self, running: RunningFault) -> None:
        """Give the links their rate for that time."""
        share = Fraction(str(self.rate_share))
        for site in running.sites.values():
            byte = site.port.half.byte_ps / share
            site.port.rates.append((running.begin_ps, running.end_ps, byte.numerator, byte.denominator))
            site.port.refresh()

    @property
    def share_left(self) -> float:
        """What is left of the rate."""
        return self.rate_share

    def act(self, site: Site, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Say that the packet's slot was a longer one; its times come from the rate."""
        return [(0, packet)]
