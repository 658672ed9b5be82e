"""The faults of a run: attached to the fabric before it, given their times at its start, counted through it.

A fault draws its random numbers per direction of a link (hash of seed, fault, direction, count), so that they
depend neither on other faults nor on windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mrc_host.errors import ConfigError
from mrc_host.fabric.events import NEVER, RandomStream
from mrc_host.fabric.faults.base import TRAFFIC, FaultSpec
from mrc_host.fabric.faults.selection import Place
from mrc_host.fabric.model import Fabric
from mrc_host.fabric.packet import Packet
from mrc_host.fabric.port import Port
from mrc_host.fabric.taps import Hook

__all__ = ["FaultOutcome", "LinkChange", "RunningFault", "RunningFaults", "Site"]

MICROSECOND_PS = 1_000_000


class Site:
    """A fault on one direction of a link.

    Attributes
    ----------
    fault : RunningFault
        The fault.
    place : int
        Number of the place among those of the fault.
    port : Port
        The direction.
    draws : RandomStream
        Its random numbers.
    state : int
        Free for the kind of fault; 0 at the start.
    count : int
        Packets it would meet if it were not confined to some of them by number.
    """

    __slots__ = ("count", "draws", "fault", "place", "port", "state")

    def __init__(self, fault: RunningFault, place: int, port: Port, draws: RandomStream) -> None:
        self.fault = fault
        self.place = place
        self.port = port
        self.draws = draws
        self.state = 0
        self.count = 0


class RunningFault(Hook):
    """A fault on a fabric.

    Parameters
    ----------
    number : int
        Position in the experiment.
    spec : FaultSpec
        What it is.
    fabric : Fabric
        Where it acts.
    seed : int
        Seed of the run.

    Attributes
    ----------
    places : list of Place
        Its places.
    sites : dict of int to Site
        By number of the direction.
    begin_ps, end_ps : int
        When it acts; NEVER before the run has started.
    met, hit : int
        Packets it met while it acted, and those that it changed, delayed, lost or repeated.
    signals : int
        Changes of a link that a NIC was told of.
    """

    __slots__ = (
        "_evs",
        "_numbers",
        "_wanted",
        "begin_ps",
        "end_ps",
        "fabric",
        "hit",
        "met",
        "number",
        "places",
        "signals",
        "sites",
        "spec",
    )

    def __init__(self, number: int, spec: FaultSpec, fabric: Fabric, seed: int) -> None:
        self.number = number
        self.spec = spec
        self.fabric = fabric
        self.places: list[Place] = spec.places(fabric.topology)
        self._wanted = None if spec.traffic == "all" else TRAFFIC[spec.traffic]
        self._numbers = None if spec.packets is None else frozenset(spec.packets)
        self._evs: frozenset[int] = frozenset().union(*(place.evs for place in self.places))
        self.begin_ps = self.end_ps = NEVER
        self.met = self.hit = self.signals = 0
        self.sites: dict[int, Site] = {}
        for index, place in enumerate(self.places):
            for direction in spec.directions(place, fabric.topology):
                port = fabric.ports[direction]
                name = f"fault {number} {spec.kind} {port.half.name}"
                self.sites.setdefault(direction, Site(self, index, port, RandomStream(seed, name)))

    def start(self, start_ps: int) -> None:
        """Take the times from the start of the run."""
        self.begin_ps = start_ps + round(self.spec.from_us * MICROSECOND_PS)
        if self.spec.to_us is not None:
            self.end_ps = start_ps + round(self.spec.to_us * MICROSECOND_PS)
        self.spec.start(self)

    def wants(self, packet: Packet) -> bool:
        """Whether a packet is of the kind and EV the fault is confined to."""
        if self._wanted is None and not self._evs:
            return True
        info = packet.info()
        if info is None:
            return False
        return (not self._evs or info.ev in self._evs) and (
            self._wanted is None or self._wanted(info.opcode, info.rtx)
        )

    def meets(self, site: Site, packet: Packet) -> bool:
        """Whether a direction's next packet is one the fault acts on; counts it."""
        if not self.wants(packet):
            return False
        site.count += 1
        if self._numbers is not None and site.count not in self._numbers:
            return False
        self.met += 1
        return True

    def act(self, port: Port, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Let the fault act on a packet, and count."""
        site = self.sites[port.number]
        if not self.spec.concerns(site, start_ps, packet) or not self.meets(site, packet):
            return None
        result = self.spec.act(site, start_ps, packet)
        if result is not None:
            self.hit += 1
        return result


@dataclass(frozen=True, order=True)
class LinkChange:
    """A change of a link that a NIC is told of."""

    time_ps: int
    host: int
    plane: int
    up: bool


@dataclass(frozen=True)
class FaultOutcome:
    """What a fault came to.

    Parameters
    ----------
    number : int
        Position in the experiment.
    kind, place, traffic : str
        What, where, to which packets.
    from_us, to_us : float
        When; ``to_us`` is None for one that stays.
    met, hit, signals : int
        Packets met, packets changed or lost, changes of links told to NICs.
    """

    number: int
    kind: str
    place: str
    traffic: str
    from_us: float
    to_us: float | None
    met: int
    hit: int
    signals: int

    @property
    def matched(self) -> bool:
        """Whether it had anything to act on."""
        return self.met > 0 or self.signals > 0


class RunningFaults:
    """All faults of a run.

    Parameters
    ----------
    specs : sequence of FaultSpec
        In the order of the experiment.
    fabric : Fabric
        Where they act; hooks are attached here, so that captures attached later see what faults leave.
    seed : int
        Seed of the run.
    """

    def __init__(self, specs: Sequence[FaultSpec], fabric: Fabric, seed: int) -> None:
        self._fabric = fabric
        self.faults = [RunningFault(number, spec, fabric, seed) for number, spec in enumerate(specs)]
        for fault in self.faults:
            fabric.hook(list(fault.sites), fault)

    def start(self, start_ps: int, end_ps: int) -> list[LinkChange]:
        """Give all faults their times, and return what NICs are told, by time.

        Parameters
        ----------
        start_ps : int
            Start of the run.
        end_ps : int
            Time at which it ends at the latest.
        """
        outages: dict[tuple[int, int], list[tuple[int, int]]] = {}
        between: dict[int, list[tuple[int, int]]] = {}
        for fault in self.faults:
            fault.start(start_ps)
            intervals = fault.spec.outages(fault.begin_ps, min(fault.end_ps, end_ps))
            for direction in sorted({number for place in fault.places for number in place.touched}):
                half = self._fabric.topology.directions[direction]
                if half.source_switch >= 0 and half.target_switch >= 0:
                    between.setdefault(direction, []).extend(intervals)
                if half.source_switch >= 0 or not intervals:
                    continue
                fault.signals += sum(2 if up < end_ps else 1 for _, up in intervals)
                outages.setdefault((half.host, half.plane), []).extend(intervals)
        convergence_ps = round(self._fabric.topology.spec.ecmp_convergence_us * MICROSECOND_PS)
        for direction, intervals in between.items():
            for down, up in _merged(intervals):
                self._fabric.learn(down + convergence_ps, direction, False)
                if up < end_ps:
                    self._fabric.learn(up + convergence_ps, direction, True)
        changes = []
        for (host, plane), intervals in outages.items():
            for down, up in _merged(intervals):
                changes.append(LinkChange(down, host, plane, False))
                if up < end_ps:
                    changes.append(LinkChange(up, host, plane, True))
        return sorted(changes)

    def outcomes(self) -> list[FaultOutcome]:
        """Return what each fault came to so far."""
        return [
            FaultOutcome(
                fault.number,
                fault.spec.kind,
                fault.spec.place_text,
                fault.spec.traffic,
                fault.spec.from_us,
                fault.spec.to_us,
                fault.met,
                fault.hit,
                fault.signals,
            )
            for fault in self.faults
        ]

    def check_matched(self, simulated_us: float) -> None:
        """Refuse a run in which a fault had nothing to act on.

        Parameters
        ----------
        simulated_us : float
            How long the run was.

        Raises
        ------
        ConfigError
            For the first such fault.
        """
        for outcome in self.outcomes():
            if not outcome.matched:
                raise ConfigError(
                    f"faults.{outcome.number}",
                    f"a fault that meets a packet in the run (of {simulated_us:g} µs)",
                    f"{outcome.kind} on {outcome.place} for {outcome.traffic} from {outcome.from_us:g} µs",
                )


def _merged(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of some intervals, as intervals that do not touch."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged
