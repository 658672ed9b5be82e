"""Metrics on hand-made packet logs.

Sweep: order, reordering, duplicates, PSN wrap; planes in turn and not; trimmed, lost and spurious
retransmissions; the criteria's three bounds.
Stimulus: rows of a packet log and times of messages written by hand.
Checks: values counted by hand.
Timing: picoseconds given in the rows.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from experiment.runs import QUICKSTART, SMALL
from mrc_host.experiment import analysis
from mrc_host.experiment.definitions import DEFINITIONS
from mrc_host.experiment.load import load_experiment
from mrc_host.experiment.metrics import Metric, compute_metrics, judge, verdict_of
from mrc_host.experiment.observations import Observations
from mrc_host.experiment.packet_log import PacketColumns, PacketLog, PacketRow
from mrc_host.experiment.schema import Criterion
from mrc_host.experiment.transfer import FlowState, Verification
from mrc_host.fabric.bounds import fct_bound_ps, goodput_bound_gbps
from mrc_rtl.wire import PSN_MASK, Opcode, ev_value

FRAME = 4238
SACK_FRAME = 154
MTU = 4096


def packet(time: int, psn: int, **changes: int) -> PacketRow:
    """Return a row: a data packet of flow 0 → 2 that arrives on plane 0 over T1 1."""
    row = PacketRow(
        time_ps=time,
        arrived=1,
        nic=2,
        plane=0,
        source=0,
        target=2,
        opcode=Opcode.WRITE_MIDDLE,
        qp=0x100,
        psn=psn & PSN_MASK,
        ev=ev_value(0, 1, 0),
        frame_bytes=FRAME,
        payload_bytes=MTU,
        retransmission=0,
        trimmed=0,
        data=1,
    )
    return row._replace(**changes)


def sent(time: int, psn: int, **changes: int) -> PacketRow:
    return packet(time, psn, **{"arrived": 0, "nic": 0, **changes})


def log(*rows: PacketRow) -> PacketColumns:
    packets = PacketLog()
    for row in rows:
        packets.append(row)
    return packets.columns()


def test_rows_are_ordered_by_time() -> None:
    columns = log(packet(30, 1), packet(10, 2), packet(20, 3))
    assert columns["psn"].tolist() == [2, 3, 1]


@pytest.mark.parametrize("base", [0, 5000, PSN_MASK - 1], ids=["zero", "middle", "wrap"])
def test_reordering(base: int) -> None:
    order = [0, 1, 4, 2, 5, 3, 2]  # 2 comes twice; the second copy does not count
    columns = log(*(packet(10 * number, base + psn) for number, psn in enumerate(order)))
    result = analysis.reordering(columns)
    assert result.depth.tolist() == [0, 0, 0, 2, 0, 2]
    assert result.late == 2


def test_trimmed_packets_have_no_order() -> None:
    columns = log(packet(0, 0), packet(1, 5, trimmed=1, payload_bytes=0), packet(2, 1))
    assert analysis.reordering(columns).late == 0


def test_nothing_arrived() -> None:
    assert analysis.reordering(log()).late == 0
    assert analysis.plane_imbalance(log(), 4) == 0


def test_imbalance_is_the_worst_of_all_prefixes() -> None:
    planes = [0, 1, 1, 0, 0, 1]  # evens out at the end; after three packets plane 1 leads by 1
    columns = log(*(sent(number, number, plane=plane) for number, plane in enumerate(planes)))
    assert analysis.plane_imbalance(columns, 2) == 1
    columns = log(*(sent(number, number, plane=number // 3) for number in range(6)))
    assert analysis.plane_imbalance(columns, 2) == 3


def test_imbalance_ignores_retransmissions() -> None:
    rows = [sent(number, number, plane=number % 2) for number in range(4)]
    rows += [sent(10 + number, number, plane=1, retransmission=1) for number in range(3)]
    assert analysis.plane_imbalance(log(*rows), 2) == 1


def test_causes_of_retransmissions() -> None:
    sends = log(
        sent(0, 0),
        sent(1, 1),
        sent(2, 2),
        sent(3, 3),
        sent(20, 0, retransmission=1, plane=1),
        sent(21, 1, retransmission=1, plane=1),
        sent(22, 2, retransmission=1, plane=1),
        sent(40, 2, retransmission=1, plane=2),
    )
    arrivals = log(
        packet(10, 0),  # intact: sending it again is spurious
        packet(11, 1, trimmed=1, payload_bytes=0),
        packet(13, 3),
        packet(30, 0, retransmission=1, plane=1),
        packet(31, 1, retransmission=1, plane=1),
        packet(50, 2, retransmission=1, plane=2),
    )
    result = analysis.retransmissions(sends, arrivals)
    assert (result.trim, result.loss, result.spurious) == (1, 2, 1)


def test_paths_of_planes_and_uplinks() -> None:
    columns = log(sent(0, 0), sent(1, 1, ev=ev_value(0, 2, 0)), sent(2, 2, plane=1, ev=ev_value(1, 2, 3)))
    assert len(np.unique(analysis.path_numbers(columns, True))) == 3
    assert len(np.unique(analysis.path_numbers(columns, False))) == 2


def observations(packets: PacketColumns, states: list[FlowState], **changes: object) -> Observations:
    experiment = load_experiment(QUICKSTART, SMALL)
    values = {
        "experiment": experiment,
        "config": experiment.nic.config(),
        "topology": experiment.topology(),
        "states": states,
        "packets": packets,
        "verifications": [Verification(65_536, 0, 0)],
        "frames_dropped": 0,
        "frames_discarded": 0,
        **changes,
    }
    return Observations(**values)  # type: ignore[arg-type]


def finished(posted: list[int], last_byte: list[int]) -> FlowState:
    """Return flow 0 → 2 with the times of its messages in microseconds."""
    flow = load_experiment(QUICKSTART, SMALL).flows()[0]
    state = FlowState(flow, 2)
    for message, start, end in zip(state.messages, posted, last_byte, strict=True):
        message.posted_ps = start * 1_000_000
        message.last_byte_ps = end * 1_000_000
        message.sender_done_ps = message.receiver_done_ps = end * 1_000_000 + 1000
    return state


def test_completion_against_bounds() -> None:
    state = finished([0, 0, 20, 40], [50, 60, 70, 100])
    rows = [sent(number, number, plane=number % 4) for number in range(16)]
    rows += [sent(100 + number, 0, data=0, frame_bytes=SACK_FRAME, opcode=Opcode.SACK) for number in range(4)]
    seen = observations(log(*rows), [state])
    metrics = compute_metrics(seen)
    reverse = 4 * (SACK_FRAME + 24) / 16
    bound = fct_bound_ps(
        seen.topology, 0, 2, 16_384, MTU, messages=4, immediate=True, reverse_bytes_per_packet=reverse
    )
    best = goodput_bound_gbps(25, 16_384, MTU, immediate=True, reverse_bytes_per_packet=reverse)
    goodput = 65_536 * 8 / 100 / 1000
    assert metrics["fct_over_bound_max"].value == pytest.approx(100_000_000 / bound, rel=1e-8)
    assert metrics["fct_over_bound_mean"].value == metrics["fct_over_bound_max"].value
    assert metrics["goodput_gbps"].value == pytest.approx(goodput, rel=1e-8)
    assert metrics["goodput_over_bound"].value == pytest.approx(goodput / best, rel=1e-8)
    assert metrics["fct_us_p50"].value == 55  # 50, 60, 50, 60
    assert metrics["fct_us_p99"].value is None
    assert metrics["fct_us_p99"].reason == "4 messages; a 99th percentile needs 1000"
    assert metrics["messages_completed"].value == 4
    assert metrics["reverse_share"].value == pytest.approx(
        4 * (SACK_FRAME + 24) / (4 * (SACK_FRAME + 24) + 16 * (FRAME + 24)), rel=1e-8
    )


def test_a_flow_that_did_not_finish_has_no_completion_time() -> None:
    state = finished([0, 0, 20, 40], [50, 60, 70, 100])
    state.messages[3].receiver_done_ps = None
    metrics = compute_metrics(observations(log(), [state]))
    assert metrics["messages_completed"].value == 3
    for name in ("goodput_gbps", "goodput_over_bound", "fct_over_bound_mean", "fct_over_bound_max"):
        assert metrics[name].value is None
        assert metrics[name].reason == "no flow with a bound completed"
    assert metrics["out_of_order_fraction"].reason == "no data packet arrived"


def test_flows_that_share_a_host_share_its_bound() -> None:
    first, second = finished([0] * 4, [100] * 4), finished([0] * 4, [100] * 4)
    alone = compute_metrics(observations(log(), [first]))["fct_over_bound_mean"].value
    shared = compute_metrics(observations(log(), [first, second]))["fct_over_bound_mean"].value
    assert alone is not None
    assert shared is not None
    assert shared < alone


def test_losses_and_mismatches_are_summed() -> None:
    checks = [Verification(100, 2, 0), Verification(50, 0, 3)]
    metrics = compute_metrics(
        observations(log(), [], verifications=checks, frames_dropped=2, frames_discarded=5)
    )
    assert metrics["bytes_verified"].value == 150
    assert metrics["bytes_mismatched"].value == 5
    assert metrics["packets_lost"].value == 7


def test_every_metric_is_defined_and_computed() -> None:
    metrics = compute_metrics(observations(log(), [finished([0] * 4, [9] * 4)]))
    assert list(metrics) == list(DEFINITIONS)
    for metric in metrics.values():
        assert metric.value is not None or metric.reason


def test_similarity_by_hand() -> None:
    metrics = compute_metrics(observations(log(), [finished([0] * 4, [9] * 4)]))
    slot = (FRAME + 24) * Fraction(8000) / Fraction("6.25")
    answer = (SACK_FRAME + 24) * Fraction(8000) / Fraction("6.25")
    short, long = ((4 * (slot + answer) + 2 * delay) for delay in (4_000_000, 12_000_000))
    rtt = (short + long) / 2
    window = 25 * rtt / 8000 / (FRAME + 24)
    assert metrics["window_packets"].value == pytest.approx(float(window), rel=1e-6)
    assert metrics["evs_per_window"].value == pytest.approx(float(32 / window), rel=1e-6)
    assert metrics["skew_over_rtt"].value == pytest.approx(float(8_000_000 / rtt), rel=1e-6)
    assert metrics["rto_over_rtt"].value == pytest.approx(float(1_024_000 * 512 / rtt), rel=1e-6)


@pytest.mark.parametrize(
    ("bounds", "value", "verdict"),
    [
        ({"equals": 3}, 3, "PASS"),
        ({"equals": 3}, 4, "FAIL"),
        ({"at_least": 3}, 3, "PASS"),
        ({"at_least": 3}, 2.9, "FAIL"),
        ({"at_most": 3}, 3, "PASS"),
        ({"at_most": 3}, 3.1, "FAIL"),
        ({"at_least": 1, "at_most": 3}, 4, "FAIL"),
        ({"at_least": 1}, None, "INCONCLUSIVE"),
    ],
)
def test_verdicts(bounds: dict[str, float], value: float | None, verdict: str) -> None:
    metric = Metric(value, "1", "text")
    judge(metric, Criterion(metric="bytes_verified", source="test", **bounds))
    assert metric.verdict == verdict
    assert metric.as_dict()["limits"] == {**bounds, "source": "test"}
    expected = verdict if verdict == "FAIL" else ("PASS" if verdict == "PASS" else "INCONCLUSIVE")
    assert verdict_of({"a": metric, "b": Metric(1, "1", "text")}) == expected
