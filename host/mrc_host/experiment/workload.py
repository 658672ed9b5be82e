"""Workloads: who sends how much to whom. Each kind is one class that registers itself under a name.

A workload answers one question, :meth:`Workload.flows`; how bytes become messages, work requests and checks
is the business of :mod:`mrc_host.experiment.application`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BeforeValidator

from mrc_host.errors import ConfigError
from mrc_host.experiment.fields import Section, choice, refuse, whole

__all__ = ["WORKLOADS", "Flow", "Pairs", "Permutation", "Workload", "register_workload"]

OPERATIONS = ("write_imm", "write")
SIZE_MAXIMUM = 1 << 32


@dataclass(frozen=True, slots=True)
class Flow:
    """All that one host sends to another.

    Parameters
    ----------
    number : int
        Position among the flows of the run.
    source, target : int
        Hosts.
    messages : int
        Messages, each of the workload's ``message_bytes``.
    message_bytes : int
        Bytes of a message.
    """

    number: int
    source: int
    target: int
    messages: int
    message_bytes: int

    @property
    def name(self) -> str:
        """Name such as ``h0→h2``."""
        return f"h{self.source}→h{self.target}"

    @property
    def bytes(self) -> int:
        """Bytes of all messages."""
        return self.messages * self.message_bytes


class Workload(Section):
    """What all kinds have in common.

    Parameters
    ----------
    kind : str
        Name of the workload.
    bytes_per_nic : int
        Bytes each sending NIC sends to each of its peers; a multiple of ``message_bytes``.
    message_bytes : int
        Size of a message.
    operation : str
        ``write_imm`` (completes at both ends) or ``write`` (completes at the sender only).
    outstanding_messages : int
        Messages posted and not yet completed, per flow.
    """

    name: ClassVar[str] = ""

    kind: str
    bytes_per_nic: Annotated[int, whole(1, SIZE_MAXIMUM, "bytes")]
    message_bytes: Annotated[int, whole(1, SIZE_MAXIMUM - 1, "bytes")]
    operation: Annotated[str, choice(*OPERATIONS)] = "write_imm"
    outstanding_messages: Annotated[int, whole(1, 1024)] = 8

    def pairs(self, hosts: int) -> list[tuple[int, int]]:
        """Return (source, target) of every flow on a fabric of so many hosts."""
        raise TypeError(f"workload {self.kind} must say who sends to whom")

    def flows(self, hosts: int) -> list[Flow]:
        """Return the flows, in order of their numbers.

        Raises
        ------
        ConfigError
            The workload does not fit the fabric, with the path of the key.
        """
        if self.bytes_per_nic % self.message_bytes:
            raise ConfigError(
                "workload.bytes_per_nic",
                f"a multiple of message_bytes = {self.message_bytes}",
                self.bytes_per_nic,
            )
        messages = self.bytes_per_nic // self.message_bytes
        return [
            Flow(number, source, target, messages, self.message_bytes)
            for number, (source, target) in enumerate(self.pairs(hosts))
        ]


WORKLOADS: dict[str, type[Workload]] = {}
"""Kinds of workload by name."""

Kind = TypeVar("Kind", bound=type[Workload])


def register_workload(name: str) -> Callable[[Kind], Kind]:
    """Return a class decorator that makes a workload known under a name."""

    def register(workload: Kind) -> Kind:
        if name in WORKLOADS:
            raise ValueError(f"workload name must be new, got {name!r} again")
        workload.name = name
        WORKLOADS[name] = workload
        return workload

    return register


@register_workload("permutation")
class Permutation(Workload):
    """Every host sends to one peer and receives from one: host h to host (h + peer_offset) mod hosts.

    Parameters
    ----------
    peer_offset : int, optional
        Distance of the peer, half of the hosts when left out: always across T1.
    """

    peer_offset: Annotated[int, whole(1, 1 << 16)] | None = None

    def pairs(self, hosts: int) -> list[tuple[int, int]]:
        """Return one pair for each host."""
        offset = hosts // 2 if self.peer_offset is None else self.peer_offset
        if not 1 <= offset < hosts:
            raise ConfigError(
                "workload.peer_offset", f"between 1 and {hosts - 1} with fabric.hosts = {hosts}", offset
            )
        return [(host, (host + offset) % hosts) for host in range(hosts)]


def _check_pairs(value: Any) -> Any:
    if (
        not isinstance(value, list)
        or not value
        or any(not isinstance(pair, list) or len(pair) != 2 for pair in value)
        or any(isinstance(host, bool) or not isinstance(host, int) for pair in value for host in pair)
    ):
        raise refuse("a list of pairs of hosts such as [[0, 2], [2, 0]], at least one", value)
    return value


@register_workload("pairs")
class Pairs(Workload):
    """Explicit pairs, several flows from or to one host allowed.

    Parameters
    ----------
    flow_pairs : list of [source, target]
        Hosts, counted from 0.
    """

    flow_pairs: Annotated[list[list[int]], BeforeValidator(_check_pairs)]

    def pairs(self, hosts: int) -> list[tuple[int, int]]:
        """Return the pairs as written."""
        for number, (source, target) in enumerate(self.flow_pairs):
            if not 0 <= source < hosts or not 0 <= target < hosts or source == target:
                raise ConfigError(
                    f"workload.flow_pairs.{number}",
                    f"two different hosts between 0 and {hosts - 1}",
                    [source, target],
                )
        written = [(source, target) for source, target in self.flow_pairs]
        if len(set(written)) != len(written):
            raise ConfigError("workload.flow_pairs", "a list without repeated pairs", self.flow_pairs)
        return written
