"""Switch ports that trim although nothing is full."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mrc_host.experiment.fields import number
from mrc_host.fabric.faults.base import FaultSpec, register_fault
from mrc_host.fabric.faults.running import RunningFault, Site
from mrc_host.fabric.faults.selection import Place, fed_by_switches
from mrc_host.fabric.packet import TRIMMABLE_CLASSES, Packet
from mrc_host.fabric.port import Port, Storm
from mrc_host.fabric.topology import Topology

__all__ = ["TrimStorm"]


class _StormAtPort(Storm):
    """The storm at one output port."""

    __slots__ = ("_share", "_site")

    def __init__(self, site: Site, share: float) -> None:
        self._site = site
        self._share = share

    def arrive(self, port: Port, time_ps: int, packet: Packet) -> None:
        """Trim the packet or not."""
        fault = self._site.fault
        if not fault.begin_ps <= time_ps < fault.end_ps or not TRIMMABLE_CLASSES[packet.outer_class]:
            return
        if not fault.meets(self._site, packet):
            return
        if self._site.draws.chance(self._share):
            fault.hit += 1
            port.cut(packet)


@register_fault("trim_storm")
class TrimStorm(FaultSpec):
    """Output ports of switches trim trimmable packets whether or not their queues are full.

    They are trimmed as the topology's ``trimming`` says, or as its defaults say where it has none. Of a
    switch, the ports of it are meant; of a plane, all ports of its switches: a packet runs the risk at each.

    Parameters
    ----------
    share : float
        Probability of each trimmable packet.
    """

    SELECTORS: ClassVar[tuple[str, ...]] = ("link", "port", "switch", "plane")

    share: Annotated[float, number("share of packets", 0, 1, low_allowed=False)] = 1.0

    def directions(self, place: Place, topology: Topology) -> tuple[int, ...]:
        """Return the directions that a switch feeds."""
        return fed_by_switches(place, topology, self.selector, self.direction)

    def start(self, running: RunningFault) -> None:
        """Let it begin at the ports."""
        for site in running.sites.values():
            site.port.storms.append(_StormAtPort(site, self.share))
            site.port.refresh()

    def concerns(self, site: Site, start_ps: int, packet: Packet) -> bool:
        """On the link itself nothing happens."""
        return False

    def act(self, site: Site, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """On the link itself nothing happens."""
        return None
