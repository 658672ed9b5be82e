"""Packets that are lost in a row."""

from __future__ import annotations

from typing import Annotated

from mrc_host.experiment.fields import number
from mrc_host.fabric.faults.base import FaultSpec, register_fault
from mrc_host.fabric.faults.running import Site
from mrc_host.fabric.packet import Packet

__all__ = ["BurstLoss"]

GOOD, BAD = range(2)


@register_fault("burst_loss")
class BurstLoss(FaultSpec):
    """Packets of a direction are lost in bursts of random length (Gilbert's model).

    A direction is good or bad; while it is bad, every packet is lost. After each packet it turns good with
    probability 1 / burst_packets, or bad with the probability that makes the loss what is asked for.

    Parameters
    ----------
    loss : float
        Share of packets lost over a long time.
    burst_packets : float
        Mean length of a burst.
    """

    loss: Annotated[float, number("share of packets", 0, 0.9, low_allowed=False)]
    burst_packets: Annotated[float, number("packets", 1, 1e6)]

    def act(self, site: Site, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Lose the packet in a bad state; then move on to the next state."""
        lost = site.state == BAD
        leave = 1 / self.burst_packets
        # In balance, loss × leave = (1 − loss) × enter; a mean of one packet leaves no room for a longer one.
        enter = min(1.0, leave * self.loss / (1 - self.loss))
        if site.draws.chance(leave if lost else enter):
            site.state = GOOD if lost else BAD
        return [] if lost else None
