"""Metrics of steps: how long a phase lasted, what it could have lasted at best, and who waited for whom.

Source: experiments.md, E15 (step time is the maximum over transfers); profile.md 10.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from mrc_host.experiment.ideal import Ideal
from mrc_host.experiment.phases import PhaseTimes
from mrc_host.experiment.schema import Experiment
from mrc_host.experiment.transfer import FlowState
from mrc_host.experiment.workload import PlannedMessage
from mrc_host.fabric.bounds import data_frame_bytes, delivery_ps, fct_bound_ps, message_wire_bytes
from mrc_host.fabric.topology import Topology

__all__ = ["Step", "steps_of"]


@dataclass(frozen=True)
class Step:
    """A phase of a run that came to its end; times in picoseconds.

    Parameters
    ----------
    begin_ps, end_ps : int
        Begin of computing; last byte of its last message in memory.
    computing_ps : int
        How long hosts computed.
    bound_ps : int or None
        Least duration, computing included; None when faults leave no way at all.
    waited : float
        Share of the step that a host waited for the slowest after its own last byte had arrived, mean over
        hosts that receive.
    """

    begin_ps: int
    end_ps: int
    computing_ps: int
    bound_ps: int | None
    waited: float

    @property
    def duration_ps(self) -> int:
        """How long it lasted."""
        return self.end_ps - self.begin_ps


def steps_of(
    experiment: Experiment,
    topology: Topology,
    mtu: int,
    states: Sequence[FlowState],
    phases: Sequence[PhaseTimes],
    start_ps: int,
) -> list[Step]:
    """Return the phases that came to their end; none for messages with times of their own.

    Parameters
    ----------
    experiment, topology : Experiment, Topology
        What was run, and on what.
    mtu : int
        Payload of a full packet.
    states : sequence of FlowState
        Flows with the times of their messages.
    phases : sequence of PhaseTimes
        When phases happened.
    start_ps : int
        Start of the run.
    """
    if any(message.after_ps for state in states for message in state.flow.plan):
        return []
    ideal = Ideal(experiment, topology)
    steps = []
    for number, times in enumerate(phases):
        parts = [
            (state, place)
            for state in states
            for place, item in enumerate(state.flow.plan)
            if item.phase == number
        ]
        ends: dict[int, int] = defaultdict(int)
        complete = times.begun_ps is not None and times.opened_ps is not None
        for state, place in parts:
            message = state.messages[place]
            last = message.last_byte_ps or message.receiver_done_ps
            complete = complete and last is not None and message.sender_done_ps is not None
            ends[state.flow.target] = max(ends[state.flow.target], last or 0)
        if not complete or not parts:
            continue
        assert times.begun_ps is not None and times.opened_ps is not None
        end = max(ends.values())
        computing = times.opened_ps - times.begun_ps
        plans = [((s.flow.source, s.flow.target), s.flow.plan[place]) for s, place in parts]
        least = _least_ps(ideal, topology, mtu, experiment, plans, times.opened_ps - start_ps)
        duration = end - times.begun_ps
        waited = sum(end - own for own in ends.values()) / len(ends) / duration
        steps.append(
            Step(times.begun_ps, end, computing, None if least is None else computing + least, waited)
        )
    return steps


def _least_ps(
    ideal: Ideal,
    topology: Topology,
    mtu: int,
    experiment: Experiment,
    plans: list[tuple[tuple[int, int], PlannedMessage]],
    begin_ps: int,
) -> int | None:
    """Return the least time from the first doorbell of a phase to its last byte in memory."""
    loads: dict[tuple[int, int], int] = defaultdict(int)
    for ends, message in plans:
        if message.bytes:
            loads[ends] += message_wire_bytes(
                message.bytes, mtu, srv6=experiment.srv6, immediate=message.immediate
            )
    smallest = min((min(message.bytes, mtu) for _, message in plans), default=0)
    tail = data_frame_bytes(smallest, srv6=experiment.srv6)
    done = ideal.completion_ps([(ends, Fraction(size), begin_ps) for ends, size in loads.items()])
    times = [time for time in done if time is not None]
    if len(times) < len(done):
        return None
    # The last byte may come from the nearest sender.
    nearest = min((delivery_ps(topology, *ends, tail) for ends in loads), default=0)
    passed = max(times, default=begin_ps) - begin_ps + nearest
    return max(passed, _chain_ps(topology, mtu, experiment, plans))


def _chain_ps(
    topology: Topology, mtu: int, experiment: Experiment, plans: list[tuple[tuple[int, int], PlannedMessage]]
) -> int:
    """Return the least time of the longest chain of messages that wait for each other."""
    latency = round(experiment.host_latency_ns * 1000)
    single: dict[tuple[int, int, int, bool], int] = {}
    ended: dict[int, int] = {}
    for (source, target), message in plans:
        if message.key >= 0 and message.bytes:
            kind = (source, target, message.bytes, message.immediate)
            if kind not in single:
                single[kind] = fct_bound_ps(
                    topology,
                    source,
                    target,
                    message.bytes,
                    mtu,
                    srv6=experiment.srv6,
                    immediate=message.immediate,
                )
    by_key = {message.key: (ends, message) for ends, message in plans if message.key >= 0 and message.bytes}
    for key in sorted(by_key):
        ends, message = by_key[key]
        before = ended.get(message.needs)
        wait = 0 if before is None else before + latency
        ended[key] = wait + single[(*ends, message.bytes, message.immediate)]
    return max(ended.values(), default=0)
