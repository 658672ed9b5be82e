"""Switches that reboot."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from mrc_host.experiment.fields import Flag, number
from mrc_host.fabric.faults.base import MICROSECONDS, register_fault
from mrc_host.fabric.faults.outage import Outage
from mrc_host.fabric.faults.running import RunningFault

__all__ = ["Reboot"]


@register_fault("reboot")
class Reboot(Outage):
    """Switches lose what waits in their queues at ``from_us``, and all their links are down until ``to_us``.

    Parameters
    ----------
    to_us : float
        When the switch forwards again; must be given.
    signal : bool
        As for ``down``; on by default, because the links of a switch that starts are dark.
    """

    SELECTORS: ClassVar[tuple[str, ...]] = ("switch", "plane")

    to_us: Annotated[float, number(MICROSECONDS, 0, 1e9, low_allowed=False)]
    signal: Flag = Field(default=True, validate_default=True)

    def start(self, running: RunningFault) -> None:
        """Empty the queues when it begins."""
        topology = running.fabric.topology
        outputs = {
            number
            for place in running.places
            for number in place.touched
            if topology.directions[number].source_switch >= 0 and self._rebooted(running, place.name, number)
        }
        running.fabric.flush_at(running.begin_ps, sorted(outputs))

    def _rebooted(self, running: RunningFault, place: str, number: int) -> bool:
        """Whether a direction leaves a switch of the place: for a plane, all of them do."""
        half = running.fabric.topology.directions[number]
        return self.selector == "plane" or half.source_port.startswith(f"{place}.")
