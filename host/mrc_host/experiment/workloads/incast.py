"""Many senders, one receiver; and somebody beside them who has nothing to do with it.

Source: experiments.md 1, E3 and E4; profile.md 10 (N counts sender hosts).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mrc_host.errors import ConfigError
from mrc_host.experiment.fields import whole
from mrc_host.experiment.workload import Flow, PlannedMessage, Workload, register_workload

__all__ = ["Incast"]

Host = Annotated[int, whole(0, (1 << 16) - 1)]


@register_workload("incast")
class Incast(Workload):
    """Sender hosts all send to one host at once; a victim may send to another one meanwhile.

    Parameters
    ----------
    target : int
        The receiver.
    senders : int, optional
        Sender hosts: those with the lowest numbers other than the target; all when left out.
    victim : [source, target], optional
        Hosts of one more flow, which may share hosts with the others, but not the receiver.
    victim_bytes : int, optional
        What it sends; ``bytes_per_nic`` when left out.
    """

    target: Host = 0
    senders: Annotated[int, whole(1, 1 << 16)] | None = None
    victim: Annotated[list[Host], Field(min_length=2, max_length=2)] | None = None
    victim_bytes: Annotated[int, whole(1, 1 << 32, "bytes")] | None = None

    def pairs(self, hosts: int) -> list[tuple[int, int]]:
        """Return one pair for each sender, then the victim's."""
        if self.target >= hosts:
            raise ConfigError("workload.target", f"a host between 0 and {hosts - 1}", self.target)
        others = [host for host in range(hosts) if host != self.target]
        count = len(others) if self.senders is None else self.senders
        if count > len(others):
            raise ConfigError("workload.senders", f"at most {len(others)} with fabric.hosts = {hosts}", count)
        pairs = [(host, self.target) for host in others[:count]]
        if self.victim is not None:
            source, target = self.victim
            if not 0 <= source < hosts or not 0 <= target < hosts or len({source, target, self.target}) < 3:
                raise ConfigError(
                    "workload.victim",
                    f"two different hosts between 0 and {hosts - 1}, neither the target {self.target}",
                    self.victim,
                )
            pairs.append((source, target))
        return pairs

    def flows(self, hosts: int) -> list[Flow]:
        """Return one flow for each sender, the victim's last."""
        flows = super().flows(hosts)
        if self.victim is not None and self.victim_bytes is not None:
            if self.victim_bytes % self.message_bytes:
                raise ConfigError(
                    "workload.victim_bytes",
                    f"a multiple of message_bytes = {self.message_bytes}",
                    self.victim_bytes,
                )
            message = PlannedMessage(self.message_bytes, self.immediates)
            last = flows[-1]
            plan = (message,) * (self.victim_bytes // self.message_bytes)
            flows[-1] = Flow(last.number, last.source, last.target, plan)
        return flows
