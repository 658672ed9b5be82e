"""Workloads: who sends how much to whom. Each kind is one class that registers itself under a name.

A workload answers one question, :meth:`Traffic.flows`; how bytes become work requests and checks is the
business of :mod:`mrc_host.experiment.transfer`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BeforeValidator, Field, field_validator
from pydantic_core.core_schema import ValidationInfo

from mrc_host.errors import ConfigError
from mrc_host.experiment.fields import Section, choice, number, refuse, register_kind, whole

__all__ = [
    "WORKLOADS",
    "Flow",
    "MessageSpec",
    "Messages",
    "Pairs",
    "Permutation",
    "PlannedMessage",
    "Setting",
    "Traffic",
    "Workload",
    "register_workload",
]

OPERATIONS = ("write_imm", "write")
SIZE_MAXIMUM = 1 << 32
MICROSECOND_PS = 1_000_000


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """A message that will be sent.

    Parameters
    ----------
    bytes : int
        Its size.
    immediate : bool
        It completes at the receiver too (write_imm).
    after_ps : int
        Earliest time to post it, after the start of the run.
    phase : int
        It is posted when all messages of lower phases are complete and the computing of its phase is done.
    key : int
        Name under which other messages may wait for its arrival; -1 for none.
    needs : int
        Key of a message that must have arrived at its sender before; -1 for none.
    """

    bytes: int
    immediate: bool
    after_ps: int = 0
    phase: int = 0
    key: int = -1
    needs: int = -1


@dataclass(frozen=True, slots=True)
class Setting:
    """What a workload may depend on besides its own keys.

    Parameters
    ----------
    hosts : int
        Hosts of the fabric.
    seed : int
        Seed of the run.
    host_gbps : float
        Rate of all links of a host together.
    """

    hosts: int
    seed: int
    host_gbps: float


@dataclass(frozen=True, slots=True)
class Flow:
    """All that one host sends to another over one queue pair.

    Parameters
    ----------
    number : int
        Position among the flows of the run.
    source, target : int
        Hosts.
    plan : tuple of PlannedMessage
        Its messages in the order in which they are posted.
    lane : int
        Which of the queue pairs of the two hosts it uses, from 0.
    """

    number: int
    source: int
    target: int
    plan: tuple[PlannedMessage, ...]
    lane: int = 0

    @property
    def name(self) -> str:
        """Name such as ``h0→h2``; ``h0→h2#1`` on a second queue pair."""
        lane = f"#{self.lane}" if self.lane else ""
        return f"h{self.source}→h{self.target}{lane}"

    @property
    def messages(self) -> int:
        """Number of messages."""
        return len(self.plan)

    @property
    def bytes(self) -> int:
        """Bytes of all messages."""
        return sum(message.bytes for message in self.plan)

    @property
    def message_bytes(self) -> int | None:
        """Size of every message when they are all alike and may be posted at the start, else None."""
        first = self.plan[0]
        alike = first.after_ps == 0 and first.needs < 0 and all(message == first for message in self.plan)
        return first.bytes if alike else None


class Traffic(Section):
    """What all kinds have in common.

    Parameters
    ----------
    kind : str
        Name of the workload.
    outstanding_messages : int
        Messages posted and not yet completed, per flow.
    queue_pairs : int
        Queue pairs between two hosts; their messages take them in turn, and each is a flow of its own.
    """

    name: ClassVar[str] = ""

    kind: str
    outstanding_messages: Annotated[int, whole(1, 1024)] = 8
    queue_pairs: Annotated[int, whole(1, 64)] = 1

    def planned(self, setting: Setting) -> list[Flow]:
        """Return the flows as they are carried out, shared out among the queue pairs of two hosts.

        Raises
        ------
        ConfigError
            As :meth:`flows`; or a pair of hosts has fewer messages than queue pairs.
        """
        flows = self.drawn(setting)
        if self.queue_pairs == 1:
            return flows
        divided: list[Flow] = []
        for flow in flows:
            if flow.messages < self.queue_pairs:
                raise ConfigError(
                    "workload.queue_pairs",
                    f"at most the messages of {flow.name}, {flow.messages}",
                    self.queue_pairs,
                )
            for lane in range(self.queue_pairs):
                plan = flow.plan[lane :: self.queue_pairs]
                divided.append(Flow(len(divided), flow.source, flow.target, plan, lane))
        return divided

    def drawn(self, setting: Setting) -> list[Flow]:
        """Return the flows of a run; kinds that draw them from the seed, or need the rate, override this."""
        return self.flows(setting.hosts)

    def computing_ps(self) -> tuple[int, ...]:
        """Return the time that every host computes before each phase, in picoseconds; one entry a phase."""
        return (0,)

    @abstractmethod
    def flows(self, hosts: int) -> list[Flow]:
        """Return the flows on a fabric of so many hosts, in order of their numbers; none without messages.

        Raises
        ------
        ConfigError
            The workload does not fit the fabric, with the path of the key.
        """

    @property
    @abstractmethod
    def immediates(self) -> bool:
        """Whether any message completes at the receiver too."""


class Workload(Traffic):
    """Traffic of messages that are all alike.

    Parameters
    ----------
    bytes_per_nic : int
        Bytes each sending NIC sends to each of its peers; a multiple of ``message_bytes``.
    message_bytes : int
        Size of a message.
    operation : str
        ``write_imm`` (completes at both ends) or ``write`` (completes at the sender only).
    """

    bytes_per_nic: Annotated[int, whole(1, SIZE_MAXIMUM, "bytes")]
    message_bytes: Annotated[int, whole(1, SIZE_MAXIMUM - 1, "bytes")]
    operation: Annotated[str, choice(*OPERATIONS)] = "write_imm"

    @property
    def immediates(self) -> bool:
        """Whether messages complete at the receiver too."""
        return self.operation == "write_imm"

    def pairs(self, hosts: int) -> list[tuple[int, int]]:
        """Return (source, target) of every flow on a fabric of so many hosts."""
        raise TypeError(f"workload {self.kind} must say who sends to whom")

    def flows(self, hosts: int) -> list[Flow]:
        """Return one flow for each pair."""
        if self.bytes_per_nic % self.message_bytes:
            raise ConfigError(
                "workload.bytes_per_nic",
                f"a multiple of message_bytes = {self.message_bytes}",
                self.bytes_per_nic,
            )
        plan = (PlannedMessage(self.message_bytes, self.immediates),) * (
            self.bytes_per_nic // self.message_bytes
        )
        return [
            Flow(number, source, target, plan) for number, (source, target) in enumerate(self.pairs(hosts))
        ]


WORKLOADS: dict[str, type[Traffic]] = {}
"""Kinds of workload by name."""

Kind = TypeVar("Kind", bound=type[Traffic])


def register_workload(name: str) -> Callable[[Kind], Kind]:
    """Return a class decorator that makes a workload known under a name."""

    def register(workload: Kind) -> Kind:
        workload.name = name
        return register_kind(WORKLOADS, name, "a workload")(workload)

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
        for place, (source, target) in enumerate(self.flow_pairs):
            if not 0 <= source < hosts or not 0 <= target < hosts or source == target:
                raise ConfigError(
                    f"workload.flow_pairs.{place}",
                    f"two different hosts between 0 and {hosts - 1}",
                    [source, target],
                )
        written = [(source, target) for source, target in self.flow_pairs]
        if len(set(written)) != len(written):
            raise ConfigError("workload.flow_pairs", "a list without repeated pairs", self.flow_pairs)
        return written


class MessageSpec(Section):
    """Messages of the workload ``messages``.

    Parameters
    ----------
    source, target : int
        Hosts, counted from 0.
    operation : str
        As for other workloads.
    bytes : int
        Size; 0 only with write_imm.
    count : int
        How many of them.
    at_us : float
        Earliest time at which they are posted, after the start of the run. Messages of two hosts are posted
        in the order of the file, whatever their times.
    """

    source: Annotated[int, whole(0, (1 << 16) - 1)]
    target: Annotated[int, whole(0, (1 << 16) - 1)]
    operation: Annotated[str, choice(*OPERATIONS)] = "write_imm"
    bytes: Annotated[int, whole(0, SIZE_MAXIMUM - 1, "bytes")]
    count: Annotated[int, whole(1, 1 << 20)] = 1
    at_us: Annotated[float, number("microseconds", 0, 1e9)] = 0.0

    @field_validator("bytes")
    @classmethod
    def _carries_something(cls, value: int, info: ValidationInfo) -> int:
        if value == 0 and info.data.get("operation") == "write":
            raise refuse("at least 1 with operation: write", value)
        return value


def _check_messages(value: Any) -> Any:
    if not isinstance(value, list) or not value:
        raise refuse("a list of messages, at least one", value)
    return value


@register_workload("messages")
class Messages(Traffic):
    """Messages one by one: any sizes, operations and times.

    Parameters
    ----------
    messages : list of MessageSpec
        What is sent.
    """

    messages: Annotated[list[MessageSpec], BeforeValidator(_check_messages)] = Field(min_length=1)

    @property
    def immediates(self) -> bool:
        """Whether any message completes at the receiver too."""
        return any(message.operation == "write_imm" for message in self.messages)

    def flows(self, hosts: int) -> list[Flow]:
        """Return one flow for each source and target."""
        plans: dict[tuple[int, int], list[PlannedMessage]] = {}
        for place, item in enumerate(self.messages):
            for key in ("source", "target"):
                if getattr(item, key) >= hosts:
                    raise ConfigError(
                        f"workload.messages.{place}.{key}",
                        f"a host between 0 and {hosts - 1}",
                        getattr(item, key),
                    )
            if item.source == item.target:
                raise ConfigError(
                    f"workload.messages.{place}.target",
                    f"another host than source = {item.source}",
                    item.target,
                )
            message = PlannedMessage(
                item.bytes, item.operation == "write_imm", round(item.at_us * MICROSECOND_PS)
            )
            plans.setdefault((item.source, item.target), []).extend([message] * item.count)
        return [
            Flow(place, source, target, tuple(plan))
            for place, ((source, target), plan) in enumerate(plans.items())
        ]
