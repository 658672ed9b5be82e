"""What the fabric of an experiment allows at best: completion times from the capacity that faults leave.

Between two hosts everything passes, as a fluid: the links of either host; the links from a T0 up and down to
one; and those between two T0s over each T1, of which the slower half counts. A fault takes its share of the
capacity of its links as long as it acts; the bound knows of it at once, no protocol does.

Source: experiments.md 3.2 and 3.3; profile.md 10.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction

from mrc_host.experiment.schema import Experiment
from mrc_host.fabric.faults import FaultSpec
from mrc_host.fabric.fluid import NEVER_DONE, Capacity, FluidFlow, Resource, completion_ps
from mrc_host.fabric.topology import Topology

__all__ = ["Ideal"]

MICROSECOND_PS = 1_000_000
Ends = tuple[int, int]


class Ideal:
    """The fabric of an experiment as a fluid.

    Parameters
    ----------
    experiment : Experiment
        With its faults.
    topology : Topology
        Its fabric, built.

    Attributes
    ----------
    faulty : bool
        Whether a fault takes capacity from a link.
    """

    def __init__(self, experiment: Experiment, topology: Topology) -> None:
        self._topology = topology
        end_ps = round(experiment.limits.simulated_time_us * MICROSECOND_PS)
        self._losses: dict[int, list[tuple[int, int, Fraction]]] = defaultdict(list)
        for fault in experiment.faults:
            self._take(fault, end_ps)
        self.faulty = bool(self._losses)
        self._times = sorted(
            {0}
            | {
                time
                for losses in self._losses.values()
                for first, last, _ in losses
                for time in (first, last)
            }
        )

    def _take(self, fault: FaultSpec, end_ps: int) -> None:
        share = Fraction(str(fault.share_left))
        if share == 1 or fault.traffic not in ("all", "data") or fault.packets is not None:
            return
        begin = round(fault.from_us * MICROSECOND_PS)
        end = end_ps if fault.to_us is None else round(fault.to_us * MICROSECOND_PS)
        for place in fault.places(self._topology):
            if place.evs:
                continue  # the link is there for other EVs
            for number in fault.directions(place, self._topology):
                self._losses[number] += [(first, last, share) for first, last in fault.acting(begin, end)]

    def rate(self, direction: int, time_ps: int) -> Fraction:
        """Capacity of a direction of a link at a time, in bytes a picosecond."""
        rate = 1 / self._topology.directions[direction].byte_ps
        for first, last, share in self._losses.get(direction, ()):
            if first <= time_ps < last:
                rate *= share
        return rate

    def completion_ps(self, loads: Sequence[tuple[Ends, Fraction, int]]) -> list[int | None]:
        """Return when each load has passed, None for one that never does.

        Parameters
        ----------
        loads : sequence of ((source, target), bytes on the wire, begin in picoseconds after the start)
        """
        ends = [load[0] for load in loads]
        resources = [
            Resource(tuple(users), self._capacity(capacity)) for users, capacity in self._resources(ends)
        ]
        done = completion_ps([FluidFlow(size, begin) for _, size, begin in loads], resources)
        return [None if time == NEVER_DONE else time for time in done]

    def _capacity(self, capacity: Callable[[int], Fraction]) -> Capacity:
        return tuple((time, capacity(time)) for time in self._times)

    def _resources(self, ends: Sequence[Ends]) -> list[tuple[list[int], Callable[[int], Fraction]]]:
        """Return who uses what, and how much there is of it at a time."""
        topology = self._topology
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for number, (source, target) in enumerate(ends):
            groups["from", source].append(number)
            groups["to", target].append(number)
            groups["between", source, target].append(number)
            if not topology.same_t0(source, target):
                first, last = topology.t0_of(source), topology.t0_of(target)
                groups["up", first].append(number)
                groups["down", last].append(number)
                groups["pair", first, last].append(number)
        return [(users, self._meaning(key)) for key, users in groups.items()]

    def _meaning(self, key: tuple[object, ...]) -> Callable[[int], Fraction]:
        kind, *numbers = key
        planes = range(self._topology.planes)
        one = {
            "from": self._host_up,
            "to": self._host_down,
            "up": self._t0_up,
            "down": self._t0_down,
        }
        if kind in one:
            of_one = one[str(kind)]
            return lambda time: sum((of_one(int(str(numbers[0])), p, time) for p in planes), Fraction(0))
        of_two = self._hosts if kind == "between" else self._pair
        low, high = (int(str(item)) for item in numbers)
        return lambda time: sum((of_two(low, high, p, time) for p in planes), Fraction(0))

    def _host_up(self, host: int, plane: int, time_ps: int) -> Fraction:
        return self.rate(self._topology.host_link(host, plane).up.number, time_ps)

    def _host_down(self, host: int, plane: int, time_ps: int) -> Fraction:
        return self.rate(self._topology.host_link(host, plane).down.number, time_ps)

    def _t1_rate(self, plane: int, t0: int, t1: int, up: bool, time_ps: int) -> Fraction:
        link = self._topology.t1_link(plane, t0, t1)
        return self.rate((link.up if up else link.down).number, time_ps)

    def _t0_up(self, t0: int, plane: int, time_ps: int) -> Fraction:
        t1s = range(1, self._topology.t1_per_plane + 1)
        return sum((self._t1_rate(plane, t0, t1, True, time_ps) for t1 in t1s), Fraction(0))

    def _t0_down(self, t0: int, plane: int, time_ps: int) -> Fraction:
        t1s = range(1, self._topology.t1_per_plane + 1)
        return sum((self._t1_rate(plane, t0, t1, False, time_ps) for t1 in t1s), Fraction(0))

    def _pair(self, first: int, last: int, plane: int, time_ps: int) -> Fraction:
        return sum(
            (
                min(
                    self._t1_rate(plane, first, t1, True, time_ps),
                    self._t1_rate(plane, last, t1, False, time_ps),
                )
                for t1 in range(1, self._topology.t1_per_plane + 1)
            ),
            Fraction(0),
        )

    def _hosts(self, source: int, target: int, plane: int, time_ps: int) -> Fraction:
        ways = [self._host_up(source, plane, time_ps), self._host_down(target, plane, time_ps)]
        if not self._topology.same_t0(source, target):
            ways.append(
                self._pair(self._topology.t0_of(source), self._topology.t0_of(target), plane, time_ps)
            )
        return min(ways)
