"""Completed flows against what links, headers, other flows and faults allow.

Source: profile.md 10; experiments.md 3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from mrc_host.experiment.ideal import Ideal
from mrc_host.experiment.observations import Observations
from mrc_host.experiment.packet_log import PacketColumns
from mrc_host.experiment.workload import Flow
from mrc_host.fabric.bounds import (
    data_frame_bytes,
    delivery_ps,
    fct_bound_ps,
    goodput_bound_gbps,
    message_wire_bytes,
)
from mrc_rtl.wire import GAP_PREAMBLE_FCS_BYTES

__all__ = ["FlowResult", "flow_results"]


@dataclass(frozen=True)
class FlowResult:
    """A completed flow against what its links allow.

    Parameters
    ----------
    flow : Flow
        Which one.
    fct_ps, bound_ps : int
        From the doorbell of the first byte to the last byte in memory; at best.
    goodput_gbps, goodput_bound_gbps : float
        Payload over completion time; at best.
    reverse_share : float
        Share of the sender's wire bytes that were answers.
    """

    flow: Flow
    fct_ps: int
    bound_ps: int
    goodput_gbps: float
    goodput_bound_gbps: float
    reverse_share: float


def flow_results(seen: Observations) -> list[FlowResult]:
    """Return the completed flows with their bounds; flows of unlike or timed messages have none."""
    results = []
    ideal = Ideal(seen.experiment, seen.topology)
    loads = {(state.flow.bytes, _sharing(seen, state.flow)) for state in seen.states}
    fluid = _fluid_ends(seen, ideal) if ideal.faulty or len(loads) > 1 else {}
    for state in seen.states:
        times = [
            (message.posted_ps, message.last_byte_ps)
            for message in state.messages
            if message.posted_ps is not None and message.last_byte_ps is not None
        ]
        if len(times) < state.flow.messages or len(state.completed_messages) < state.flow.messages:
            continue
        end_ps = max(end for _, end in times)
        fct = end_ps - min(start for start, _ in times)
        size = state.flow.message_bytes
        if size:
            result = _against_bounds(seen, state.flow, size, fct, state.immediates > 0, end_ps)
            results.append(_with_fluid(seen, result, fluid[state.flow.number]) if fluid else result)
    return results


def _fluid_ends(seen: Observations, ideal: Ideal) -> dict[int, int | None]:
    """Return when the flows would end that share what faults leave as a fluid, answers included."""
    mtu = seen.experiment.mtu(seen.config)
    loads, numbers = [], []
    for state in seen.states:
        flow, size = state.flow, state.flow.message_bytes
        if not size:
            continue
        ended = max((message.last_byte_ps or 0 for message in state.messages), default=0)
        answers, packets, _ = _sender_traffic(seen.packets, flow.source, ended)
        own = flow.messages * -(-size // mtu)
        wire = Fraction(
            flow.messages
            * message_wire_bytes(size, mtu, srv6=seen.experiment.srv6, immediate=state.immediates > 0)
        )
        loads.append(
            ((flow.source, flow.target), wire + (Fraction(own * answers, packets) if packets else 0), 0)
        )
        numbers.append(flow.number)
    return dict(zip(numbers, ideal.completion_ps(loads), strict=True))


def _with_fluid(seen: Observations, result: FlowResult, end_ps: int | None) -> FlowResult:
    """Return a result with the bound of the fluid, if that is known: it knows of faults and unlike flows."""
    if end_ps is None:
        return result
    flow = result.flow
    payload = min(flow.message_bytes or 1, seen.experiment.mtu(seen.config))
    frame = data_frame_bytes(payload, srv6=seen.experiment.srv6)
    bound = end_ps + delivery_ps(seen.topology, flow.source, flow.target, frame)
    return replace(result, bound_ps=bound, goodput_bound_gbps=flow.bytes * 8000 / end_ps)


def _against_bounds(
    seen: Observations, flow: Flow, message_bytes: int, fct_ps: int, immediate: bool, end_ps: int
) -> FlowResult:
    topology, mtu = seen.topology, seen.experiment.mtu(seen.config)
    answers, packets, everything = _sender_traffic(seen.packets, flow.source, end_ps)
    reverse = float(Fraction(answers, packets)) if packets else 0.0
    sharing = _sharing(seen, flow)
    bound = fct_bound_ps(
        topology,
        flow.source,
        flow.target,
        message_bytes,
        mtu,
        messages=flow.messages * sharing,
        srv6=seen.experiment.srv6,
        immediate=immediate,
        reverse_bytes_per_packet=reverse,
    )
    rate = min(topology.host_rate_gbps(flow.source), topology.host_rate_gbps(flow.target)) / sharing
    best = goodput_bound_gbps(
        rate,
        message_bytes,
        mtu,
        srv6=seen.experiment.srv6,
        immediate=immediate,
        reverse_bytes_per_packet=reverse,
    )
    return FlowResult(
        flow, fct_ps, bound, flow.bytes * 8000 / fct_ps, best, answers / everything if everything else 0.0
    )


def _sharing(seen: Observations, flow: Flow) -> int:
    """Return how many flows share the links of a flow's source or of its target, itself among them."""
    return max(
        sum(state.flow.source == flow.source for state in seen.states),
        sum(state.flow.target == flow.target for state in seen.states),
    )


def _sender_traffic(packets: PacketColumns, host: int, until_ps: int) -> tuple[int, int, int]:
    """Return wire bytes of answers, number of data packets, and all wire bytes that a host sent by a time."""
    own = (packets["arrived"] == 0) & (packets["nic"] == host) & (packets["time_ps"] <= until_ps)
    wire = packets["frame_bytes"] + GAP_PREAMBLE_FCS_BYTES
    data = own & (packets["data"] == 1)
    everything = int(wire[own].sum())
    return everything - int(wire[data].sum()), int(np.count_nonzero(data)), everything
