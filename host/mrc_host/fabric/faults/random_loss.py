"""Packets that are lost one by one."""

from __future__ import annotations

from mrc_host.fabric.faults.base import FaultSpec, Probability, register_fault
from mrc_host.fabric.faults.running import Site
from mrc_host.fabric.packet import Packet

__all__ = ["RandomLoss"]


@register_fault("random_loss")
class RandomLoss(FaultSpec):
    """Each packet is lost with a probability, independently of all others.

    Parameters
    ----------
    probability : float
        Above 0, at most 1.
    """

    probability: Probability

    @property
    def share_left(self) -> float:
        """What is not lost."""
        return 1 - self.probability

    def act(self, site: Site, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Lose the packet or not."""
        return [] if site.draws.chance(self.probability) else None
