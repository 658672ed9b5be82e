"""Completion times if traffic were a fluid that shares links fairly: what no protocol can beat in fairness.

Flows share resources (the links of a host, the links between tiers in one direction); a resource has a
capacity that changes at known times, when faults begin and end. Rates are max-min fair at every moment
(progressive filling), and change when a flow begins or ends or a capacity changes. All numbers are exact.

Source: experiments.md 3.2 and 3.3 (bounds from the capacity that is left); E7 (max-min fair share).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["NEVER_DONE", "Capacity", "FluidFlow", "Resource", "completion_ps", "fair_rates"]

NEVER_DONE = -1
"""Completion time of a flow that can never end."""

Capacity = tuple[tuple[int, Fraction], ...]
"""Capacity in bytes a picosecond: (from time, capacity), the first from time 0, in order of time."""


@dataclass(frozen=True)
class FluidFlow:
    """Something to carry.

    Parameters
    ----------
    size : Fraction
        Bytes on the wire.
    begin_ps : int
        When it begins.
    """

    size: Fraction
    begin_ps: int = 0


@dataclass(frozen=True)
class Resource:
    """Something that flows share.

    Parameters
    ----------
    users : tuple of int
        Numbers of the flows that pass it.
    capacity : Capacity
    """

    users: tuple[int, ...]
    capacity: Capacity

    def at(self, time_ps: int) -> Fraction:
        """Capacity at a time."""
        now = self.capacity[0][1]
        for begin, value in self.capacity:
            if begin > time_ps:
                break
            now = value
        return now


def fair_rates(
    active: Sequence[int], resources: Sequence[tuple[Sequence[int], Fraction]]
) -> dict[int, Fraction]:
    """Return max-min fair rates.

    Parameters
    ----------
    active : sequence of int
        Flows that have something to send; each passes at least one resource.
    resources : sequence of (users, capacity)
    """
    rates: dict[int, Fraction] = {}
    left = [(set(users) & set(active), capacity) for users, capacity in resources]
    while len(rates) < len(active):
        share, tight = min(
            ((capacity / len(users), number) for number, (users, capacity) in enumerate(left) if users),
            default=(Fraction(0), -1),
        )
        if tight < 0:
            break
        filled = set(left[tight][0])
        rates.update(dict.fromkeys(filled, share))
        left = [(users - filled, capacity - share * len(users & filled)) for users, capacity in left]
    return rates


def completion_ps(flows: Sequence[FluidFlow], resources: Sequence[Resource]) -> list[int]:
    """Return when each flow ends, rounded down; :data:`NEVER_DONE` for one that nothing carries any more.

    Parameters
    ----------
    flows : sequence of FluidFlow
    resources : sequence of Resource
        Every flow passes at least one.
    """
    if not flows:
        return []
    left = [flow.size for flow in flows]
    done = [NEVER_DONE] * len(flows)
    changes = sorted({flow.begin_ps for flow in flows} | {time for r in resources for time, _ in r.capacity})
    now = Fraction(min(flow.begin_ps for flow in flows))
    while True:
        active = [n for n, flow in enumerate(flows) if done[n] == NEVER_DONE and flow.begin_ps <= now]
        following = next((time for time in changes if time > now), None)
        if not active and following is None:
            return done
        rates = fair_rates(active, [(item.users, item.at(int(now))) for item in resources])
        ends = [now + left[n] / rates[n] for n in active if rates.get(n)]
        if not ends and following is None:
            return done
        step = min([*ends, *([Fraction(following)] if following is not None else [])])
        for number in active:
            left[number] -= rates.get(number, Fraction(0)) * (step - now)
            if left[number] <= 0:
                done[number] = int(step)
        now = step
