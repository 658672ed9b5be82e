"""Computes every metric of a run from what the run recorded; their meaning stands in ``definitions``.

Nothing here looks at a clock on the wall, so that equal runs give equal numbers, bit for bit.

Source: profile.md 10; experiments.md 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from mrc_host.experiment import analysis
from mrc_host.experiment.definitions import DEFINITIONS, SAMPLES_FOR_P99
from mrc_host.experiment.ev_marks import ev_marks
from mrc_host.experiment.flow_results import FlowResult, flow_results
from mrc_host.experiment.observations import Observations
from mrc_host.experiment.schema import Criterion
from mrc_host.experiment.steps import steps_of
from mrc_host.fabric.bounds import (
    control_frame_bytes,
    data_frame_bytes,
    fct_bound_ps,
    wire_bytes,
)
from mrc_rtl.wire import Opcode

__all__ = ["FlowResult", "Metric", "Observations", "compute_metrics", "flow_results", "judge", "verdict_of"]

PASS, FAIL, INCONCLUSIVE = "PASS", "FAIL", "INCONCLUSIVE"
SIGNIFICANT_DIGITS = 9
TIMEOUT_UNIT_PS = 1_024_000
NO_FLOW = "no flow with a bound completed"
EV_METRICS = (
    "ev_retire_rtt_first",
    "ev_retire_rtt_median",
    "ev_retire_rtt_last",
    "evs_retired",
    "evs_dead_in_use",
    "ev_marks_true",
    "ev_marks_false",
    "ev_false_marks_peak",
    "ev_false_marks_end",
    "ev_recover_us",
    "evs_not_recovered",
)


@dataclass
class Metric:
    """A metric of a run, as it stands in ``metrics.json``.

    Parameters
    ----------
    value : int, float or None
        None when it cannot be stated; then ``reason`` says why.
    unit, definition : str
        From the definitions.
    reason : str
        Why there is no value.
    limits : dict
        Bounds of the criterion and their ``source``; empty without a criterion.
    verdict : str or None
        PASS, FAIL or INCONCLUSIVE; None without a criterion.
    """

    value: int | float | None
    unit: str
    definition: str
    reason: str = ""
    limits: dict[str, Any] = field(default_factory=dict)
    verdict: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the form of ``metrics.json``."""
        entry: dict[str, Any] = {
            "value": self.value,
            "unit": self.unit,
            "definition": self.definition,
            "limits": self.limits or None,
            "verdict": self.verdict,
        }
        if self.reason:
            entry["reason"] = self.reason
        return entry


def compute_metrics(seen: Observations) -> dict[str, Metric]:
    """Return all metrics, in the order of the definitions, judged by the experiment's criteria."""
    values: dict[str, int | float | None] = {}
    reasons: dict[str, str] = {}
    _completion(seen, values, reasons)
    _messages(seen, values, reasons)
    _steps(seen, values, reasons)
    _packets(seen, values, reasons)
    _evs(seen, values, reasons)
    _similarity(seen, values, reasons)
    criteria = {criterion.metric: criterion for criterion in seen.experiment.criteria}
    metrics = {}
    for name, definition in DEFINITIONS.items():
        metric = Metric(_rounded(values[name]), definition.unit, definition.text, reasons.get(name, ""))
        if name in criteria:
            judge(metric, criteria[name])
        metrics[name] = metric
    return metrics


def judge(metric: Metric, criterion: Criterion) -> None:
    """Give a metric limits and verdict; without a value it is INCONCLUSIVE."""
    metric.limits = {**criterion.limits, "source": criterion.source}
    value = metric.value
    if value is None:
        metric.verdict = INCONCLUSIVE
        return
    met = (
        (criterion.equals is None or value == criterion.equals)
        and (criterion.at_least is None or value >= criterion.at_least)
        and (criterion.at_most is None or value <= criterion.at_most)
    )
    metric.verdict = PASS if met else FAIL


def verdict_of(metrics: dict[str, Metric]) -> str:
    """Return the verdict of a run: FAIL if a criterion failed, PASS if one was judged, else INCONCLUSIVE."""
    verdicts = {metric.verdict for metric in metrics.values()}
    if FAIL in verdicts:
        return FAIL
    return PASS if PASS in verdicts else INCONCLUSIVE


def _rounded(value: int | float | None) -> int | float | None:
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


# -- completion ------------------------------------------------------------------------------------------


def _completion(seen: Observations, values: dict[str, int | float | None], reasons: dict[str, str]) -> None:
    values["bytes_verified"] = sum(check.verified for check in seen.verifications)
    values["bytes_mismatched"] = sum(check.mismatched + check.disturbed for check in seen.verifications)
    values["messages_completed"] = sum(len(state.completed_messages) for state in seen.states)
    flows = flow_results(seen)
    ratios = [Fraction(result.fct_ps, result.bound_ps) for result in flows]
    values["goodput_gbps"] = _mean([result.goodput_gbps for result in flows])
    values["goodput_over_bound"] = _mean(
        [result.goodput_gbps / result.goodput_bound_gbps for result in flows]
    )
    values["fct_over_bound_mean"] = float(sum(ratios) / len(ratios)) if ratios else None
    values["fct_over_bound_max"] = float(max(ratios)) if ratios else None
    values["fct_over_bound_min"] = float(min(ratios)) if ratios else None
    whole = flows and flows[-1].flow.number == len(seen.states) - 1
    values["fct_over_bound_last_flow"] = float(ratios[-1]) if whole else None
    if not whole:
        reasons["fct_over_bound_last_flow"] = "the last flow has no bound or did not complete"
    values["jain_index"] = _jain([result.goodput_gbps for result in flows])
    values["reverse_share"] = _mean([result.reverse_share for result in flows])
    if not flows:
        names = ("goodput_gbps", "goodput_over_bound", "fct_over_bound_mean", "fct_over_bound_max")
        reasons.update(dict.fromkeys((*names, "fct_over_bound_min", "jain_index", "reverse_share"), NO_FLOW))


def _jain(rates: Sequence[float]) -> float | None:
    """Return Jain's index of rates."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else None


def _messages(seen: Observations, values: dict[str, int | float | None], reasons: dict[str, str]) -> None:
    """Completion times of single messages, as they are and over those on an empty network."""
    _slowdown(seen, values, reasons)
    times = sorted(
        message.last_byte_ps - message.posted_ps
        for state in seen.states
        for number in state.completed_messages
        if (message := state.messages[number]).last_byte_ps is not None and message.posted_ps is not None
    )
    values["fct_us_p50"] = _percentile_us(times, 50) if times else None
    values["fct_us_p99"] = _percentile_us(times, 99) if len(times) >= SAMPLES_FOR_P99 else None
    if not times:
        reasons["fct_us_p50"] = "no message completed"
    if len(times) < SAMPLES_FOR_P99:
        reasons["fct_us_p99"] = f"{len(times)} messages; a 99th percentile needs {SAMPLES_FOR_P99}"


def _mean(numbers: Sequence[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None


def _percentile_us(ordered: Sequence[int], percent: int) -> float:
    """Return a percentile of picoseconds in microseconds."""
    return _percentile([Fraction(time, 1_000_000) for time in ordered], percent)


def _percentile(ordered: Sequence[Fraction], percent: int) -> float:
    """Return a percentile by linear interpolation between neighbours, exactly."""
    place = Fraction(percent * (len(ordered) - 1), 100)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (place - low) * (ordered[high] - ordered[low]))


def _slowdown(seen: Observations, values: dict[str, int | float | None], reasons: dict[str, str]) -> None:
    """Completion time of messages from the time they were due, over the least possible one."""
    mtu = seen.experiment.mtu(seen.config)
    least: dict[tuple[int, int, int, bool], int] = {}
    ratios = []
    for state in seen.states:
        flow = state.flow
        for number in state.completed_messages:
            plan, message = flow.plan[number], state.messages[number]
            if not plan.bytes or message.last_byte_ps is None or message.posted_ps is None:
                continue
            kind = (flow.source, flow.target, plan.bytes, plan.immediate)
            if kind not in least:
                least[kind] = fct_bound_ps(
                    seen.topology, *kind[:3], mtu, srv6=seen.experiment.srv6, immediate=plan.immediate
                )
            due = seen.start_ps + plan.after_ps if plan.after_ps else message.posted_ps
            ratios.append(Fraction(message.last_byte_ps - min(due, message.posted_ps), least[kind]))
    ratios.sort()
    names = ("slowdown_p50", "slowdown_p99", "slowdown_max")
    values.update(dict.fromkeys(names))
    if not ratios:
        reasons.update(dict.fromkeys(names, "no message completed"))
        return
    values["slowdown_p50"] = _percentile(ratios, 50)
    values["slowdown_max"] = float(ratios[-1])
    if len(ratios) >= SAMPLES_FOR_P99:
        values["slowdown_p99"] = _percentile(ratios, 99)
    else:
        reasons["slowdown_p99"] = f"{len(ratios)} messages; a 99th percentile needs {SAMPLES_FOR_P99}"


def _steps(seen: Observations, values: dict[str, int | float | None], reasons: dict[str, str]) -> None:
    names = (
        "step_time_us",
        "step_time_us_max",
        "step_time_over_bound",
        "stall_fraction",
        "straggler_fraction",
    )
    steps = steps_of(
        seen.experiment,
        seen.topology,
        seen.experiment.mtu(seen.config),
        seen.states,
        seen.phases,
        seen.start_ps,
    )
    values.update(dict.fromkeys(names))
    if not steps:
        reasons.update(dict.fromkeys(names, "no step was completed, or messages have times of their own"))
        return
    durations = [step.duration_ps for step in steps]
    values["step_time_us"] = sum(durations) / len(durations) / 1_000_000
    values["step_time_us_max"] = max(durations) / 1_000_000
    values["stall_fraction"] = _mean([1 - step.computing_ps / step.duration_ps for step in steps])
    values["straggler_fraction"] = _mean([step.waited for step in steps])
    bounded = [step.duration_ps / step.bound_ps for step in steps if step.bound_ps]
    values["step_time_over_bound"] = _mean(bounded)
    if not bounded:
        reasons["step_time_over_bound"] = "faults leave no way"


# -- packets ---------------------------------------------------------------------------------------------


def _packets(seen: Observations, values: dict[str, int | float | None], reasons: dict[str, str]) -> None:
    imbalance, late, arrived, depth, sent_data, trimmed = 0, 0, 0, 0, 0, 0
    paths: list[int] = []
    causes = [0, 0, 0]
    lanes = any(state.flow.lane for state in seen.states)
    for state in seen.states:
        flow = state.flow
        qp = state.receiver.number if state.receiver is not None and lanes else None
        sent = analysis.data_of_flow(seen.packets, flow.source, flow.target, arrived=False, qp=qp)
        received = analysis.data_of_flow(seen.packets, flow.source, flow.target, arrived=True, qp=qp)
        imbalance = max(imbalance, analysis.plane_imbalance(sent, seen.topology.planes))
        across = not seen.topology.same_t0(flow.source, flow.target)
        if seen.experiment.srv6 or not across:
            paths.append(len(np.unique(analysis.path_numbers(sent, across))))
        order = analysis.reordering(received)
        late += order.late
        arrived += len(order.depth)
        depth = max(depth, int(order.depth.max(initial=0)))
        sent_data += len(sent["psn"])
        trimmed += int(received["trimmed"].sum())
        again = analysis.retransmissions(sent, received)
        causes = [causes[0] + again.trim, causes[1] + again.loss, causes[2] + again.spurious]
    values["plane_imbalance_packets"] = imbalance
    values["paths_used"] = min(paths, default=0 if seen.experiment.srv6 else None)
    if values["paths_used"] is None:
        reasons["paths_used"] = "switches choose the path"
    values["out_of_order_fraction"] = late / arrived if arrived else None
    values["out_of_order_depth_max"] = depth
    values["retransmissions_trim"], values["retransmissions_loss"], values["retransmissions_spurious"] = (
        causes
    )
    values["spurious_ratio"] = causes[2] / sent_data if sent_data else None
    values["trimmed_fraction"] = trimmed / sent_data if sent_data else None
    values["packets_lost"] = seen.frames_dropped + seen.frames_discarded
    for name in ("frames_marked", "frames_trimmed", "trimmed_headers_lost", "fault_hits"):
        values[name] = getattr(seen, name)
    if not arrived:
        reasons["out_of_order_fraction"] = "no data packet arrived"
    if not sent_data:
        reasons.update(dict.fromkeys(("spurious_ratio", "trimmed_fraction"), "no data packet was sent"))


# -- entropy values --------------------------------------------------------------------------------------


def _evs(seen: Observations, values: dict[str, int | float | None], reasons: dict[str, str]) -> None:
    """EVs that were retired, against the faults that really were."""
    if not seen.experiment.srv6:
        values.update(dict.fromkeys(EV_METRICS))
        reasons.update(dict.fromkeys(EV_METRICS, "switches choose the path: no EV has one"))
        return
    rtt = mean_rtt_ps(seen)
    marks = ev_marks(
        seen.experiment, seen.topology, seen.states, seen.events, int(rtt), seen.start_ps, seen.end_ps
    )
    times = [float(time / rtt) for time in marks.retire_ps]
    values["ev_retire_rtt_first"] = times[0] if times else None
    values["ev_retire_rtt_median"] = _percentile([Fraction(time) for time in times], 50) if times else None
    values["ev_retire_rtt_last"] = times[-1] if times else None
    values["evs_retired"] = len(times)
    values["evs_dead_in_use"] = marks.kept
    values["ev_marks_true"], values["ev_marks_false"] = marks.true_marks, marks.false_marks
    values["ev_false_marks_peak"], values["ev_false_marks_end"] = marks.false_peak, marks.false_end
    values["ev_recover_us"] = marks.recover_ps[-1] / 1_000_000 if marks.recover_ps else None
    values["evs_not_recovered"] = marks.lost
    if not times:
        names = ("ev_retire_rtt_first", "ev_retire_rtt_median", "ev_retire_rtt_last")
        reasons.update(dict.fromkeys(names, "no EV that died was retired"))
    if not marks.recover_ps:
        reasons["ev_recover_us"] = "no retired EV came back after a fault"
    if marks.false_end is None:
        reasons["ev_false_marks_end"] = "the run ended within one recovery time after the fault"


def mean_rtt_ps(seen: Observations) -> Fraction:
    """Return the mean round-trip time of the empty network over flows and paths, 1 without a flow."""
    topology, experiment = seen.topology, seen.experiment
    frame = data_frame_bytes(experiment.mtu(seen.config), srv6=experiment.srv6)
    answer = control_frame_bytes(Opcode.SACK, srv6=experiment.srv6)
    times = []
    for source, target in sorted({(state.flow.source, state.flow.target) for state in seen.states}):
        paths = topology.paths(source, target)
        times.append(Fraction(sum(topology.base_rtt_ps(path, frame, answer) for path in paths), len(paths)))
    return sum(times, Fraction(0)) / len(times) if times else Fraction(1)


# -- similarity ------------------------------------------------------------------------------------------


def _similarity(seen: Observations, values: dict[str, int | float | None], reasons: dict[str, str]) -> None:
    """Numbers that make regimes comparable; they follow from the experiment, not from the run."""
    topology, experiment = seen.topology, seen.experiment
    frame = data_frame_bytes(experiment.mtu(seen.config), srv6=experiment.srv6)
    answer = control_frame_bytes(Opcode.SACK, srv6=experiment.srv6)
    windows, rtts, skews, links = [], [], [], []
    for state in seen.states:
        flow = state.flow
        paths = topology.paths(flow.source, flow.target)
        rtt = Fraction(sum(topology.base_rtt_ps(path, frame, answer) for path in paths), len(paths))
        ways = [topology.one_way_ps(path, frame) for path in paths]
        rate = Fraction(str(topology.host_rate_gbps(flow.source)))
        rtts.append(rtt)
        skews.append((max(ways) - min(ways)) / rtt)
        windows.append(rate * rtt / 8000 / wire_bytes(frame))
        links.append(Fraction(str(topology.host_link(flow.source, 0).rate_gbps)) * rtt / 8000)
    if not windows:
        names = ("window_packets", "evs_per_window", "buffer_over_bdp", "rto_over_rtt", "skew_over_rtt")
        values.update(dict.fromkeys(names))
        reasons.update(dict.fromkeys(names, "no flow"))
        return
    window = sum(windows) / len(windows)
    mean_rtt = sum(rtts) / len(rtts)
    values["window_packets"] = float(window)
    values["evs_per_window"] = float(experiment.entropy_values(seen.config) / window)
    values["buffer_over_bdp"] = float(topology.queue_bytes / (sum(links) / len(links)))
    values["skew_over_rtt"] = float(max(skews))
    exponent = experiment.qp.timeout_exponent
    values["rto_over_rtt"] = float((TIMEOUT_UNIT_PS << exponent) / mean_rtt) if exponent else None
    if not exponent:
        reasons["rto_over_rtt"] = "the timeout is off"
