"""Messages that arrive at random, with sizes from a distribution.

The distribution ``web_search`` is that of the flows of a search cluster (Alizadeh et al., Data Center TCP,
SIGCOMM 2010), in the piecewise linear form that simulators use; ``cdf`` takes any other.

Source: design.md 5 (random numbers are hashes of seed, component, counter).
"""

from __future__ import annotations

from bisect import bisect_left
from math import log
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from mrc_host.errors import ConfigError
from mrc_host.experiment.fields import choice, number, refuse, whole
from mrc_host.experiment.workload import (
    MICROSECOND_PS,
    OPERATIONS,
    SIZE_MAXIMUM,
    Flow,
    PlannedMessage,
    Setting,
    Traffic,
    register_workload,
)
from mrc_host.fabric.events import component_key, random_bits

__all__ = ["DISTRIBUTIONS", "RandomArrivals"]

Cdf = list[tuple[int, float]]

DISTRIBUTIONS: dict[str, Cdf] = {
    "web_search": [
        (1, 0.0),
        (10_000, 0.15),
        (20_000, 0.20),
        (30_000, 0.30),
        (50_000, 0.40),
        (80_000, 0.53),
        (200_000, 0.60),
        (1_000_000, 0.70),
        (2_000_000, 0.80),
        (5_000_000, 0.90),
        (10_000_000, 0.97),
        (30_000_000, 1.0),
    ],
}
"""Points (bytes, share of messages that are not larger), linear in between."""

GAPS, SIZES, PEERS = (component_key(f"random arrivals: {part}") for part in ("gaps", "sizes", "peers"))
UNIT = float(1 << 64)


def _check_cdf(value: Any) -> Any:
    expected = "a list of [bytes, share] that rises from share 0 to 1"
    if not isinstance(value, list | tuple) or len(value) < 2:
        raise refuse(expected, value)
    points: Cdf = []
    for point in value:
        if not isinstance(point, list | tuple) or len(point) != 2:
            raise refuse(expected, point)
        size, share = point
        numbers = isinstance(size, int) and isinstance(share, int | float)
        if isinstance(size, bool) or isinstance(share, bool) or not numbers or not 1 <= size < SIZE_MAXIMUM:
            raise refuse(expected, point)
        points.append((size, float(share)))
    rising = all(low[0] < high[0] and low[1] <= high[1] for low, high in zip(points, points[1:]))
    if not rising or points[0][1] != 0 or points[-1][1] != 1:
        raise refuse(expected, [list(point) for point in points])
    return points


@register_workload("random_arrivals")
class RandomArrivals(Traffic):
    """Every host sends messages to random other hosts, at random times (a Poisson process).

    Parameters
    ----------
    load : float
        Mean share of a host's links that payload takes.
    duration_us : float
        Messages arrive for so long.
    sizes : str
        Name of a distribution, or ``fixed``.
    fixed_bytes : int
        Size of ``fixed``.
    cdf : list of [bytes, share], optional
        A distribution of its own, instead of ``sizes``.
    largest_bytes : int, optional
        Sizes above are cut to this.
    operation : str
        As for other workloads.
    """

    load: Annotated[float, number("share of the host's links", 0, 1, low_allowed=False)]
    duration_us: Annotated[float, number("microseconds", 0, 1e6, low_allowed=False)]
    sizes: Annotated[str, choice("fixed", *DISTRIBUTIONS)] = "web_search"
    fixed_bytes: Annotated[int, whole(1, SIZE_MAXIMUM - 1, "bytes")] = 65_536
    cdf: Annotated[list[tuple[int, float]], BeforeValidator(_check_cdf)] | None = None
    largest_bytes: Annotated[int, whole(1, SIZE_MAXIMUM - 1, "bytes")] | None = None
    operation: Annotated[str, choice(*OPERATIONS)] = "write_imm"

    @model_validator(mode="after")
    def _one_distribution(self) -> RandomArrivals:
        if self.cdf is not None and "sizes" in self.model_fields_set:
            raise refuse("a workload with sizes or cdf, not both", self.sizes)
        return self

    @property
    def immediates(self) -> bool:
        """Whether messages complete at the receiver too."""
        return self.operation == "write_imm"

    def flows(self, hosts: int) -> list[Flow]:
        """Return the flows of seed 1 at 100 Gb/s a host; a run draws its own."""
        return self.drawn(Setting(hosts, 1, 100.0))

    def drawn(self, setting: Setting) -> list[Flow]:
        """Draw the messages of a run."""
        if setting.hosts < 2:
            raise ConfigError("fabric.hosts", f"at least 2 for workload {self.kind}", setting.hosts)
        mean_gap_ps = self.mean_bytes() * 8000 / (self.load * setting.host_gbps)
        end_ps = self.duration_us * MICROSECOND_PS
        plans: dict[tuple[int, int], list[PlannedMessage]] = {}
        for host in range(setting.hosts):
            time_ps, count = 0.0, 0
            while True:
                counter = host << 32 | count
                count += 1
                time_ps -= log(1 - _share(setting.seed, GAPS, counter)) * mean_gap_ps
                if time_ps >= end_ps:
                    break
                size = self._size(_share(setting.seed, SIZES, counter))
                other = random_bits(setting.seed, PEERS, counter) * (setting.hosts - 1) >> 64
                ends = (host, other + (other >= host))
                message = PlannedMessage(size, self.immediates, round(time_ps))
                plans.setdefault(ends, []).append(message)
        if not plans:
            raise ConfigError("workload.duration_us", "so long that a message arrives", self.duration_us)
        return [
            Flow(place, source, target, tuple(plan))
            for place, ((source, target), plan) in enumerate(sorted(plans.items()))
        ]

    def mean_bytes(self) -> float:
        """Return the mean size of the distribution."""
        points = self._points()
        if len(points) == 1:
            return float(points[0][0])
        limit = self.largest_bytes or SIZE_MAXIMUM
        total = 0.0
        for (low, before), (high, after) in zip(points, points[1:]):
            share = after - before
            if high <= limit:
                total += share * (low + high) / 2
            elif low >= limit:
                total += share * limit
            else:
                inside = (limit - low) / (high - low)
                total += share * (inside * (low + limit) / 2 + (1 - inside) * limit)
        return total

    def _points(self) -> Cdf:
        if self.cdf is not None:
            return self.cdf
        if self.sizes == "fixed":
            return [(min(self.fixed_bytes, self.largest_bytes or SIZE_MAXIMUM), 1.0)]
        return DISTRIBUTIONS[self.sizes]

    def _size(self, share: float) -> int:
        points = self._points()
        if len(points) == 1:
            return points[0][0]
        above = max(1, bisect_left([point[1] for point in points], share))
        (low, before), (high, after) = points[above - 1], points[above]
        inside = (share - before) / (after - before) if after > before else 1.0
        size = max(1, round(low + inside * (high - low)))
        return min(size, self.largest_bytes or size)


def _share(seed: int, component: int, counter: int) -> float:
    return random_bits(seed, component, counter) / UNIT
