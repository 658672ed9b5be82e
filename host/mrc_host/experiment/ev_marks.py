"""Were EVs retired that deserved it, how soon, and did they come back? Judged by what faults really did.

An EV of a queue pair is *dead* while a fault leaves nothing of a link on its path for data, or takes a share
of the packets of this very EV: the path is known from the EV, the fault from the experiment. A mark is a
change to ASSUMED_BAD. It is true when its EV is dead, or was a moment ago (three round trips, for what was
lost at the end), and false otherwise.

Source: experiments.md 1 (E5, E9, E10), 2 and 3.3; profile.md 10.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from mrc_host.experiment.nic_events import EventColumns, ev_changes
from mrc_host.experiment.schema import Experiment
from mrc_host.experiment.transfer import FlowState
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import UsidPlan, ev_fields
from mrc_host.model.ev_set import PathState
from mrc_host.model.options import ModelOptions
from mrc_host.nic.device import EvProfile
from mrc_rtl.config import QP_NUMBER_BASE

__all__ = ["EvMarks", "ev_marks"]

MICROSECOND_PS = 1_000_000
AFTERWARDS_RTTS = 3
BAD = int(PathState.ASSUMED_BAD)
ACTIVE = (int(PathState.GOOD), int(PathState.SKIP))
Key = tuple[int, int, int, int]
"""Host, QP index, plane and place: an EV of a queue pair."""


@dataclass
class EvMarks:
    """What became of the EVs of a run; times in picoseconds.

    Parameters
    ----------
    retire_ps : list of int
        For each EV that died while its flow ran and was retired: how long after; in order.
    kept : int
        EVs that died, carried data afterwards, and were never retired.
    true_marks, false_marks : int
        Marks of either kind.
    false_peak : int
        Most healthy EVs that were ASSUMED_BAD at a time.
    false_end : int or None
        Healthy EVs that are ASSUMED_BAD one recovery time after the first fault began; of a run without
        faults, at its end. None when the run ended before.
    recover_ps : list of int
        For each EV that had been retired when its fault ended: how long until it was GOOD again.
    lost : int
        EVs that had been retired when their fault ended and did not come back.
    """

    retire_ps: list[int] = field(default_factory=list)
    kept: int = 0
    true_marks: int = 0
    false_marks: int = 0
    false_peak: int = 0
    false_end: int | None = None
    recover_ps: list[int] = field(default_factory=list)
    lost: int = 0


def recovery_ps(experiment: Experiment, rtt_ps: int) -> int:
    """Return one recovery time: interval of probes times successes, and a round trip."""
    options = ModelOptions.from_mapping(experiment.nic.model)
    return options.probe_interval_min_ns * 1000 * options.probe_successes + rtt_ps


def ev_marks(
    experiment: Experiment,
    topology: Topology,
    states: Sequence[FlowState],
    events: EventColumns,
    rtt_ps: int,
    start_ps: int,
    end_ps: int,
) -> EvMarks:
    """Judge the changes of EV states of a run.

    Parameters
    ----------
    experiment, topology : Experiment, Topology
        What was run, and on what.
    states : sequence of FlowState
        Flows, which tell the peers of queue pairs.
    events : EventColumns
        What NICs decided.
    rtt_ps : int
        Mean round-trip time of the empty network.
    start_ps, end_ps : int
        Of the run; flows that ended before need no EV any more.
    """
    judge = _Judge(experiment, topology, states, rtt_ps, start_ps)
    marks = EvMarks()
    bad: dict[Key, bool] = {}
    retired: dict[Key, list[int]] = defaultdict(list)
    back: dict[Key, list[int]] = defaultdict(list)
    first_fault = judge.first_ps
    when = end_ps if first_fault is None else first_fault + recovery_ps(experiment, rtt_ps)
    healthy_bad = 0
    for change in ev_changes(events):
        key = (change.host, change.qp, change.plane, change.place)
        if change.time_ps > when and marks.false_end is None:
            marks.false_end = healthy_bad
        if change.new == BAD:
            dead = judge.was_dead(key, change.ev, change.time_ps)
            bad[key] = dead
            retired[key].append(change.time_ps)
            if dead:
                marks.true_marks += 1
            else:
                marks.false_marks += 1
                healthy_bad += 1
                marks.false_peak = max(marks.false_peak, healthy_bad)
        elif change.old == BAD and key in bad:
            healthy_bad -= not bad.pop(key)
            back[key].append(change.time_ps)
    if marks.false_end is None and end_ps >= when:
        marks.false_end = healthy_bad
    _measure(judge, marks, retired, back, end_ps)
    return marks


def _measure(
    judge: _Judge,
    marks: EvMarks,
    retired: dict[Key, list[int]],
    back: dict[Key, list[int]],
    end_ps: int,
) -> None:
    """Take the times between faults and what became of the EVs they hit."""
    for key, deaths in judge.deaths_of_evs():
        needed_until = judge.needed_until(key)
        for begin, end in deaths:
            times = [time for time in retired.get(key, ()) if begin <= time < end + judge.afterwards_ps]
            if times:
                marks.retire_ps.append(min(times) - begin)
            elif needed_until > min(end, begin + judge.patience_ps):
                marks.kept += 1
            bad_at_end = times and not any(max(times) < time < end for time in back.get(key, ()))
            if bad_at_end and end < end_ps:
                returns = [time for time in back.get(key, ()) if time >= max(end, max(times))]
                if returns:
                    marks.recover_ps.append(max(0, min(returns) - end))
                else:
                    marks.lost += 1
    marks.retire_ps.sort()
    marks.recover_ps.sort()


class _Judge:
    """Knows when which EV was dead."""

    def __init__(
        self,
        experiment: Experiment,
        topology: Topology,
        states: Sequence[FlowState],
        rtt_ps: int,
        start_ps: int,
    ) -> None:
        self._topology = topology
        self._states = states
        config = experiment.nic.config()
        values = UsidPlan(topology).ev_set(experiment.entropy_values(config))
        self._values = EvProfile.by_plane(values, config.planes)
        self.afterwards_ps = AFTERWARDS_RTTS * rtt_ps
        self.patience_ps = 2 * AFTERWARDS_RTTS * rtt_ps
        self._flows = {
            (state.flow.source, state.sender.number - QP_NUMBER_BASE): state
            for state in states
            if state.sender is not None
        }
        limit_ps = start_ps + round(experiment.limits.simulated_time_us * MICROSECOND_PS)
        self._lossy: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.deaths: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for fault in experiment.faults:
            if fault.share_left == 1 or fault.traffic not in ("all", "data") or fault.packets is not None:
                continue
            begin = start_ps + round(fault.from_us * MICROSECOND_PS)
            end = limit_ps if fault.to_us is None else start_ps + round(fault.to_us * MICROSECOND_PS)
            for place in fault.places(topology):
                for ev in place.evs:
                    self._lossy[ev] += fault.acting(begin, end)
                if not place.evs and not fault.share_left:
                    for number in fault.directions(place, topology):
                        self.deaths[number] += fault.acting(begin, end)

    @property
    def first_ps(self) -> int | None:
        """When the first fault of them began."""
        spans = [span for found in (self.deaths, self._lossy) for spans in found.values() for span in spans]
        return min((begin for begin, _ in spans), default=None)

    def deaths_of(self, key: Key, ev: int) -> list[tuple[int, int]]:
        """Return when an EV was dead, without overlaps."""
        state = self._flows.get(key[:2])
        if state is None or not (self.deaths or self._lossy):
            return []
        fields = ev_fields(ev)
        path = self._topology.path(state.flow.source, state.flow.target, fields.plane, fields.uplink)
        spans = sorted(
            [span for half in path.directions for span in self.deaths.get(half.number, ())]
            + self._lossy.get(ev, [])
        )
        merged: list[tuple[int, int]] = []
        for begin, end in spans:
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((begin, end))
        return merged

    def was_dead(self, key: Key, ev: int, time_ps: int) -> bool:
        """Whether an EV is dead, or was a moment ago."""
        return any(begin <= time_ps < end + self.afterwards_ps for begin, end in self.deaths_of(key, ev))

    def deaths_of_evs(self) -> list[tuple[Key, list[tuple[int, int]]]]:
        """Return all EVs that died while their flow ran, with the times."""
        found = []
        for (host, qp), _ in sorted(self._flows.items()):
            for plane, values in enumerate(self._values):
                for place, ev in enumerate(values):
                    key = (host, qp, plane, place)
                    deaths = [span for span in self.deaths_of(key, ev) if span[0] < self.needed_until(key)]
                    if deaths:
                        found.append((key, deaths))
        return found

    def needed_until(self, key: Key) -> int:
        """When the flow of an EV had sent everything, as far as its sender knows."""
        messages = self._flows[key[:2]].messages
        return max((message.sender_done_ps or 0 for message in messages), default=0)
