"""What all kinds of fault have in common, and the registry.

A kind is a class of checked parameters (:class:`FaultSpec`) with one or two methods that say what happens to
packets. It keeps nothing itself: what belongs to one direction of a link, its random numbers among it, is in
the :class:`Site` that the methods are given.

Source: experiments.md 1 (E5 to E10); protocol.md 5.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_core.core_schema import ValidationInfo

from mrc_host.experiment.fields import Section, check_kind, choice, number, refuse, register_kind, text
from mrc_host.fabric.faults.selection import SELECTORS, Place, select
from mrc_host.fabric.packet import Packet
from mrc_rtl.wire import Opcode, has_payload

if TYPE_CHECKING:
    from mrc_host.fabric.faults.running import RunningFault, Site
    from mrc_host.fabric.topology import Topology

__all__ = ["FAULTS", "TRAFFIC", "FaultSpec", "Nanoseconds", "Probability", "check_fault", "register_fault"]

TRAFFIC: dict[str, Callable[[int, bool], bool]] = {
    "all": lambda opcode, rtx: True,
    "data": lambda opcode, rtx: has_payload(opcode),
    "retransmissions": lambda opcode, rtx: rtx and has_payload(opcode),
    "acks": lambda opcode, rtx: opcode in (Opcode.SACK, Opcode.NACK, Opcode.ACKNOWLEDGE),
    "probes": lambda opcode, rtx: opcode == Opcode.PROBE,
}
"""Kinds of packets by name, from opcode and rtx flag."""

MICROSECONDS = "microseconds"
Probability = Annotated[float, number("probability", 0, 1, low_allowed=False)]
Nanoseconds = Annotated[float, number("nanoseconds", 0, 1e9, low_allowed=False)]
Name = Annotated[str, text("a name or a pattern")]


def _check_numbers(value: Any) -> Any:
    """Take one whole number, text of one (hexadecimal with 0x), or a list of them."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    numbers = []
    for item in items:
        try:
            numbers.append(int(item, 0) if isinstance(item, str) else item)
        except ValueError:
            numbers.append(item)
    if not numbers or any(isinstance(item, bool) or not isinstance(item, int) for item in numbers):
        raise refuse("a whole number or a list of them", value)
    if len(set(numbers)) != len(numbers):
        raise refuse("a list without repeated numbers", value)
    return tuple(numbers)


def _check_packets(value: Any) -> Any:
    """Take a number that counts from 1, or a list of them."""
    numbers = _check_numbers(value)
    if min(numbers) < 1:
        raise refuse("a number that counts from 1, or a list of them", value)
    return numbers


Numbers = Annotated[tuple[int, ...], BeforeValidator(_check_numbers)]
PacketNumbers = Annotated[tuple[int, ...], BeforeValidator(_check_packets)]


class FaultSpec(Section):
    """What is common to all kinds of fault.

    Parameters
    ----------
    kind : str
        Name of the kind.
    link, port, switch : str, optional
        Name or pattern of the place; exactly one place is given.
    plane, ev : int or list of int, optional
        Planes from 0; entropy values of 32 bits.
    direction : str
        ``up`` (towards the higher tier), ``down``, or ``both``.
    traffic : str
        ``all``, ``data``, ``retransmissions`` (a part of data), ``acks`` (SACK, NACK, ACK) or ``probes``.
    packets : int or list of int, optional
        Of the packets that each direction of the place would meet, only these, counted from 1.
    from_us, to_us : float
        When it begins and ends, after the start of the run; without ``to_us`` it stays.
    """

    SELECTORS: ClassVar[tuple[str, ...]] = SELECTORS
    """Places the kind can act on."""
    FILTERS: ClassVar[bool] = True
    """Whether it can be confined to a kind of traffic, and to single packets."""

    kind: str
    link: Name | None = None
    port: Name | None = None
    switch: Name | None = None
    plane: Numbers | None = None
    ev: Numbers | None = None
    direction: Annotated[str, choice("both", "up", "down")] = "both"
    traffic: Annotated[str, choice(*TRAFFIC)] = "all"
    packets: PacketNumbers | None = None
    from_us: Annotated[float, number(MICROSECONDS, 0, 1e9)] = 0.0
    to_us: Annotated[float, number(MICROSECONDS, 0, 1e9, low_allowed=False)] | None = Field(
        default=None, validate_default=True
    )

    @field_validator("traffic")
    @classmethod
    def _can_be_confined(cls, value: str, info: ValidationInfo) -> str:
        if value != "all" and not cls.FILTERS:
            raise refuse(f"all: {info.data.get('kind')} acts on everything", value)
        return value

    @field_validator("packets")
    @classmethod
    def _acts_on_packets(cls, value: tuple[int, ...] | None, info: ValidationInfo) -> tuple[int, ...] | None:
        if value is not None and not cls.FILTERS:
            raise refuse(f"left out: {info.data.get('kind')} acts on everything", list(value))
        return value

    @field_validator("to_us")
    @classmethod
    def _ends_after_it_begins(cls, value: float | None, info: ValidationInfo) -> float | None:
        begin = info.data.get("from_us")
        if value is not None and begin is not None and value <= begin:
            raise refuse(f"above from_us = {begin:g}", value)
        return value

    @model_validator(mode="after")
    def _has_one_place(self) -> FaultSpec:
        given = [key for key in SELECTORS if getattr(self, key) is not None]
        if len(given) != 1 or given[0] not in self.SELECTORS:
            raise refuse(f"a fault with exactly one of {', '.join(self.SELECTORS)}", given)
        return self

    @property
    def selector(self) -> str:
        """The key that names the place."""
        return next(key for key in SELECTORS if getattr(self, key) is not None)

    @property
    def place_text(self) -> str:
        """The place as it is written in tables."""
        value = getattr(self, self.selector)
        if isinstance(value, str):
            written = value
        else:
            written = ", ".join(f"{item:08x}" if self.selector == "ev" else str(item) for item in value)
        return f"{self.selector} {written}" + ("" if self.direction == "both" else f", {self.direction}")

    def places(self, topology: Topology) -> list[Place]:
        """Return the places on a topology.

        Raises
        ------
        ConfigError
            There is none; the path is the key within the fault.
        """
        return select(topology, self.selector, getattr(self, self.selector), self.direction)

    def check(self, topology: Topology) -> None:
        """Check the fault against the topology it is meant for.

        Raises
        ------
        ConfigError
            It does not fit; the path is the key within the fault.
        """
        for place in self.places(topology):
            self.directions(place, topology)

    def directions(self, place: Place, topology: Topology) -> tuple[int, ...]:
        """Return the directions of links it acts on: those where a packet is met once.

        Raises
        ------
        ConfigError
            It cannot act there; the path is the key within the fault.
        """
        return place.passed

    def start(self, running: RunningFault) -> None:
        """Begin: called once, when the start of the run is known and before anything happens."""

    @property
    def share_left(self) -> float:
        """Share of a link's capacity that is left for data while the fault acts on it."""
        return 1.0

    def acting(self, begin_ps: int, end_ps: int) -> list[tuple[int, int]]:
        """Return when it takes that capacity, between its begin and its end."""
        return [(begin_ps, end_ps)]

    def outages(self, begin_ps: int, end_ps: int) -> list[tuple[int, int]]:
        """Return when the links at the place are down and their NICs know it, between two times."""
        return []

    def concerns(self, site: Site, start_ps: int, packet: Packet) -> bool:
        """Whether it acts on a packet whose first bit enters the link at a time; its kind fits already."""
        return site.fault.begin_ps <= start_ps < site.fault.end_ps

    @abstractmethod
    def act(self, site: Site, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Say what leaves instead of a packet, as :meth:`mrc_host.fabric.taps.Hook.act` does."""


FAULTS: dict[str, type[FaultSpec]] = {}
"""Kinds of fault by name."""

Kind = TypeVar("Kind", bound=type[FaultSpec])


def register_fault(name: str) -> Callable[[Kind], Kind]:
    """Return a class decorator that makes a kind of fault known under a name."""
    return register_kind(FAULTS, name, "a fault")


def check_fault(value: Any) -> Any:
    """Validate one fault of a file by its kind, for a field of a schema."""
    return check_kind(value, FaultSpec, FAULTS, "a fault with kind")
