"""What the hosts of a job do together: ring all-reduce, all-to-all, and the training step around them.

A job runs ``steps`` times: every host computes, then all communicate, then all wait for the slowest.

Source: experiments.md, E15 (synchronous job); profile.md 10.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated

from mrc_host.errors import ConfigError
from mrc_host.experiment.fields import number, whole
from mrc_host.experiment.workload import (
    MICROSECOND_PS,
    SIZE_MAXIMUM,
    Flow,
    PlannedMessage,
    Traffic,
    register_workload,
)

__all__ = ["AllToAll", "Collective", "RingAllReduce"]


class Collective(Traffic):
    """Steps of computing and communicating, with a barrier behind each.

    Parameters
    ----------
    bytes_per_nic : int
        Size of the data that a host reduces, or that it sends to all others together, in each step.
    steps : int
        How often.
    compute_us : float
        Time that every host computes before it communicates, in each step.
    """

    bytes_per_nic: Annotated[int, whole(1, SIZE_MAXIMUM, "bytes")]
    steps: Annotated[int, whole(1, 10_000)] = 1
    compute_us: Annotated[float, number("microseconds", 0, 1e6)] = 0.0

    @property
    def immediates(self) -> bool:
        """Whether messages complete at the receiver too: always, it must know of them."""
        return True

    def computing_ps(self) -> tuple[int, ...]:
        """Return the time of computing before each step."""
        return (round(self.compute_us * MICROSECOND_PS),) * self.steps

    def flows(self, hosts: int) -> list[Flow]:
        """Return the flows, each with its messages of all steps."""
        if hosts < 2:
            raise ConfigError("fabric.hosts", f"at least 2 for workload {self.kind}", hosts)
        plans: dict[tuple[int, int], list[PlannedMessage]] = {}
        for step in range(self.steps):
            for ends, message in self.step(hosts, step):
                plans.setdefault(ends, []).append(message)
        return [
            Flow(place, source, target, tuple(plan))
            for place, ((source, target), plan) in enumerate(plans.items())
        ]

    @abstractmethod
    def step(self, hosts: int, step: int) -> list[tuple[tuple[int, int], PlannedMessage]]:
        """Return (source, target) and message of everything that is sent in a step, in order."""

    def part(self, hosts: int, parts: int) -> int:
        """Return the size of one of so many equal parts.

        Raises
        ------
        ConfigError
            The data cannot be divided like that.
        """
        if self.bytes_per_nic % parts:
            raise ConfigError(
                "workload.bytes_per_nic",
                f"a multiple of {parts} with fabric.hosts = {hosts}",
                self.bytes_per_nic,
            )
        return self.bytes_per_nic // parts


@register_workload("ring_all_reduce")
class RingAllReduce(Collective):
    """Every host sends to the next one, 2 × (hosts − 1) times a part of 1/hosts of the data; from the second
    time on what it has just received, so it waits for that.
    """

    def step(self, hosts: int, step: int) -> list[tuple[tuple[int, int], PlannedMessage]]:
        """Return the messages of one all-reduce."""
        size = self.part(hosts, hosts)
        turns = 2 * (hosts - 1)
        sent = []
        for turn in range(turns):
            for host in range(hosts):
                key = (step * turns + turn) * hosts + host
                before = key - hosts - host + (host - 1) % hosts if turn else -1
                message = PlannedMessage(size, True, phase=step, key=key, needs=before)
                sent.append(((host, (host + 1) % hosts), message))
        return sent


@register_workload("all_to_all")
class AllToAll(Collective):
    """Every host sends 1/(hosts − 1) of its data to each other host, beginning with the next one."""

    def step(self, hosts: int, step: int) -> list[tuple[tuple[int, int], PlannedMessage]]:
        """Return one message for each pair of hosts."""
        size = self.part(hosts, hosts - 1)
        return [
            ((host, (host + distance) % hosts), PlannedMessage(size, True, phase=step))
            for host in range(hosts)
            for distance in range(1, hosts)
        ]
