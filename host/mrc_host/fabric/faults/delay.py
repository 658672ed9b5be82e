"""Links that are slower to arrive than they were."""

from __future__ import annotations

from typing import Annotated

from mrc_host.experiment.fields import number
from mrc_host.fabric.faults.base import FaultSpec, Nanoseconds, register_fault
from mrc_host.fabric.faults.running import Site
from mrc_host.fabric.packet import Packet

__all__ = ["Delay"]


@register_fault("delay")
class Delay(FaultSpec):
    """Every packet arrives later; those of one direction stay in order.

    Parameters
    ----------
    delay_ns : float
        Added to each.
    jitter_ns : float
        At most so much more, evenly distributed.
    """

    delay_ns: Nanoseconds
    jitter_ns: Annotated[float, number("nanoseconds", 0, 1e9)] = 0.0

    def act(self, site: Site, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Delay the packet, at least as long as keeps it behind the one before."""
        delay = round(self.delay_ns * 1000)
        if self.jitter_ns:
            delay += site.draws.below(round(self.jitter_ns * 1000) + 1)
            site.state = max(site.state, start_ps + delay)
            delay = site.state - start_ps
        return [(delay, packet)]
