"""Places of one kind that differ in delay."""

from __future__ import annotations

from mrc_host.errors import ConfigError
from mrc_host.fabric.faults.base import FaultSpec, Nanoseconds, register_fault
from mrc_host.fabric.faults.running import Site
from mrc_host.fabric.packet import Packet
from mrc_host.fabric.topology import Topology

__all__ = ["Skew"]


@register_fault("skew")
class Skew(FaultSpec):
    """Delays that differ from place to place: none at the first, ``spread_ns`` at the last, evenly between.

    Parameters
    ----------
    spread_ns : float
        Delay of the last place.
    """

    spread_ns: Nanoseconds

    def check(self, topology: Topology) -> None:
        """Check that there are places to tell apart."""
        super().check(topology)
        if len(self.places(topology)) < 2:
            raise ConfigError(
                self.selector, "a list or pattern of at least two places", getattr(self, self.selector)
            )

    def act(self, site: Site, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Delay the packet by what its place has."""
        place = site.place
        if self.ev is not None:  # one direction carries several EVs
            info = packet.info()
            assert info is not None
            place = self.ev.index(info.ev)
        delay = round(self.spread_ns * 1000) * place // (len(site.fault.places) - 1)
        return [(delay, packet)] if delay else None
