"""Workloads, what they wait for, and what the fabric allows at best.

Sweep: kinds of workload; faults that take capacity; lanes and steps.
Stimulus: small experiments on the model; hand-made loads for the fluid.
Checks: who sends what to whom, in which order; bounds counted by hand; every byte right.
Timing: simulated.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiment.schema_values import TRACE
from mrc_host.benches.model_speed import f_experiment
from mrc_host.errors import ConfigError
from mrc_host.experiment.ideal import Ideal
from mrc_host.experiment.load import load_experiment, parse_experiment
from mrc_host.experiment.nics import NicKinds
from mrc_host.experiment.runner import RunResult, run_experiment
from mrc_host.experiment.workload import WORKLOADS, Flow, Setting, Traffic
from mrc_host.fabric.fluid import NEVER_DONE, FluidFlow, Resource, completion_ps, fair_rates

SETTING = Setting(8, 1, 400.0)


def workload(**keys: Any) -> Traffic:
    return WORKLOADS[keys["kind"]].model_validate(keys)


def flows(**keys: Any) -> list[Flow]:
    return workload(**keys).planned(SETTING)


def on_f(workload: dict[str, Any], **sections: Any) -> dict[str, Any]:
    description = f_experiment(8, 2, {"workload": workload, **sections})
    description["nic"]["parameters"] |= {"qps": 32, "memory_regions": 64}
    return description


def run(path: Path, workload: dict[str, Any], **sections: Any) -> RunResult:
    experiment = parse_experiment(on_f(workload, **sections))
    result = run_experiment(experiment, out=path / "run", nic_factory=NicKinds(("model",)))
    assert (result.verdict, result.complete) == ("PASS", True)
    return result


def test_an_incast_has_a_flow_from_every_sender_and_the_victim_last() -> None:
    made = flows(
        kind="incast", target=4, bytes_per_nic=100, message_bytes=50, victim=[3, 5], victim_bytes=150
    )
    assert [(f.source, f.target) for f in made] == [*((h, 4) for h in (0, 1, 2, 3, 5, 6, 7)), (3, 5)]
    assert [f.bytes for f in made] == [100] * 7 + [150]
    made = flows(kind="incast", target=0, senders=3, bytes_per_nic=100, message_bytes=50)
    assert [f.source for f in made] == [1, 2, 3]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"target": 8}, "workload.target must be a host between 0 and 7, got 8"),
        ({"senders": 8}, "workload.senders must be at most 7 with fabric.hosts = 8, got 8"),
        (
            {"victim": [0, 3]},
            "workload.victim must be two different hosts between 0 and 7, neither the target 0",
        ),
        (
            {"victim": [1, 3], "victim_bytes": 99},
            "workload.victim_bytes must be a multiple of message_bytes = 50",
        ),
    ],
)
def test_an_incast_that_does_not_fit_is_refused(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        flows(kind="incast", bytes_per_nic=100, message_bytes=50, **keys)
    assert text in str(caught.value)


def test_each_message_of_a_ring_needs_the_one_its_sender_received_before() -> None:
    made = flows(kind="ring_all_reduce", bytes_per_nic=800, steps=2)
    sender = {message.key: flow for flow in made for message in flow.plan}
    for flow in made:
        assert flow.target == (flow.source + 1) % 8
        assert [message.bytes for message in flow.plan] == [100] * 28
        for turn, message in enumerate(flow.plan):
            assert message.phase == turn // 14
            if turn % 14 == 0:
                assert message.needs == -1
            else:
                before = sender[message.needs]
                assert before.target == flow.source
                assert before.plan[turn - 1].key == message.needs


def test_all_to_all_divides_the_data_among_all_others() -> None:
    made = flows(kind="all_to_all", bytes_per_nic=700, steps=3)
    assert len(made) == 56
    assert {(f.messages, f.bytes) for f in made} == {(3, 300)}
    with pytest.raises(ConfigError, match=r"workload.bytes_per_nic must be a multiple of 7 .*, got 100"):
        flows(kind="all_to_all", bytes_per_nic=100)


def test_queue_pairs_take_the_messages_in_turn() -> None:
    made = flows(kind="pairs", flow_pairs=[[0, 1]], bytes_per_nic=70, message_bytes=10, queue_pairs=3)
    assert [(f.number, f.lane, f.messages) for f in made] == [(0, 0, 3), (1, 1, 2), (2, 2, 2)]
    assert [f.name for f in made] == ["h0→h1", "h0→h1#1", "h0→h1#2"]
    with pytest.raises(
        ConfigError, match="workload.queue_pairs must be at most the messages of h0→h1, 1, got 2"
    ):
        flows(kind="pairs", flow_pairs=[[0, 1]], bytes_per_nic=10, message_bytes=10, queue_pairs=2)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1 << 40), load=st.sampled_from([0.2, 0.8]))
def test_random_arrivals_offer_the_load_that_is_asked_for(seed: int, load: float) -> None:
    traffic = workload(kind="random_arrivals", load=load, duration_us=20_000, largest_bytes=2_000_000)
    setting = Setting(8, seed, 400.0)
    made = traffic.planned(setting)
    assert made == traffic.planned(setting)
    assert made != traffic.planned(Setting(8, seed + 1, 400.0))
    offered = sum(flow.bytes for flow in made) * 8 / (20_000e-6 * 8 * 400e9)
    assert abs(offered / load - 1) < 0.2
    for flow in made:
        assert flow.source != flow.target
        times = [message.after_ps for message in flow.plan]
        assert times == sorted(times)
        assert all(1 <= message.bytes <= 2_000_000 for message in flow.plan)


def test_a_distribution_has_to_rise_from_0_to_1() -> None:
    for cdf in ([[1, 0.0]], [[1, 0.1], [2, 1.0]], [[5, 0.0], [2, 1.0]], [[1, 0.0], [2, 0.5]]):
        with pytest.raises(ConfigError, match=r"workload.cdf must be a list of \[bytes, share\] that rises"):
            parse_experiment(on_f({"kind": "random_arrivals", "load": 0.5, "duration_us": 5, "cdf": cdf}))


def test_a_trace_is_read_and_its_path_begins_at_the_experiment(tmp_path: Path) -> None:
    made = flows(kind="trace", file=str(TRACE))
    assert [(f.source, f.target, [m.bytes for m in f.plan]) for f in made] == [
        (0, 1, [1000, 0]),
        (1, 0, [3000]),
    ]
    assert made[1].plan[0].after_ps == 2_500_000
    assert not made[1].plan[0].immediate
    (tmp_path / "t.csv").write_text(TRACE.read_text())
    (tmp_path / "e.yaml").write_text(
        "name: e\nfabric: {hosts: 2, planes: 4, rate_gbps: 1}\nworkload: {kind: trace, file: t.csv}\n"
    )
    assert len(load_experiment(tmp_path / "e.yaml").flows()) == 2


@pytest.mark.parametrize(
    "line", ["0,0,0,5,", "0,0,9,5,", "x,0,1,5,", "0,0,1,-1,", "0,0,1,5,read", "0,0,1", "-1,0,1,5,"]
)
def test_a_line_of_a_trace_that_is_wrong_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(f"time_us,source,target,bytes,operation\n0,1,2,5,\n{line}\n")
    with pytest.raises(ConfigError, match=r"workload.file must be .*t.csv:3"):
        flows(kind="trace", file=str(file))


# -- the fluid -------------------------------------------------------------------------------------------


def test_max_min_shares() -> None:
    # Flow 0 alone on A, 1 and 2 share B, 2 also passes the narrow C.
    rates = fair_rates([0, 1, 2], [([0], Fraction(4)), ([1, 2], Fraction(6)), ([2], Fraction(1))])
    assert rates == {0: 4, 1: 5, 2: 1}


def test_a_fluid_uses_what_others_leave_and_knows_of_faults() -> None:
    always = ((0, Fraction(1)),)
    halved = ((0, Fraction(1)), (10, Fraction(1, 2)), (20, Fraction(1)))
    two = [FluidFlow(Fraction(10)), FluidFlow(Fraction(20))]
    assert completion_ps(two, [Resource((0, 1), always)]) == [20, 30]
    assert completion_ps([FluidFlow(Fraction(20))], [Resource((0,), halved)]) == [25]
    dead = ((0, Fraction(1)), (5, Fraction(0)))
    assert completion_ps(two[:1], [Resource((0,), dead)]) == [NEVER_DONE]
    assert completion_ps([], []) == []


@pytest.mark.parametrize(
    ("fault", "share"),
    [
        ({"kind": "down", "link": "p0.t0.1-p0.t1.1"}, Fraction(15, 16)),
        ({"kind": "down", "plane": 2}, Fraction(3, 4)),
        ({"kind": "slow", "link": "p0.t0.1-p0.t1.1", "rate_share": 0.5}, Fraction(31, 32)),
        ({"kind": "random_loss", "plane": [0, 1, 2, 3], "probability": 0.25}, Fraction(3, 4)),
        ({"kind": "blackhole", "link": "p0.t0.1-p0.t1.1", "traffic": "acks"}, Fraction(1)),
        ({"kind": "random_loss", "ev": 0xC0010000, "probability": 0.2}, Fraction(1)),
    ],
    ids=["link", "plane", "slow", "loss", "acks", "ev"],
)
def test_what_faults_leave(fault: dict[str, Any], share: Fraction) -> None:
    permutation = {"kind": "permutation", "bytes_per_nic": 2_000_000, "message_bytes": 2_000_000}
    experiment = parse_experiment(on_f(permutation, faults=[fault]))
    ideal = Ideal(experiment, experiment.topology())
    assert ideal.faulty == (share < 1)
    loads = [((host, (host + 4) % 8), Fraction(8_000_000), 0) for host in range(8)]
    whole = Fraction(8_000_000 * 8000, 400)
    assert max(time or 0 for time in ideal.completion_ps(loads)) == int(whole / share)


# -- runs ------------------------------------------------------------------------------------------------


def test_steps_compute_then_communicate_then_wait(tmp_path: Path) -> None:
    result = run(tmp_path, {"kind": "ring_all_reduce", "bytes_per_nic": 65_536, "steps": 3, "compute_us": 7})
    values = {name: metric.value for name, metric in result.metrics.items()}
    assert values["messages_completed"] == 3 * 14 * 8
    assert values["step_time_us"] > 7 + 14 * 4
    assert 1.0 <= values["step_time_over_bound"] < 1.3
    assert values["stall_fraction"] == pytest.approx(1 - 7 / values["step_time_us"], rel=0.02)


def test_a_longer_computing_time_shows_in_the_step_and_not_in_its_stall_time(tmp_path: Path) -> None:
    stalled = []
    for compute in (0, 50):
        job = {"kind": "all_to_all", "bytes_per_nic": 70_000, "compute_us": compute}
        metrics = run(tmp_path / str(compute), job).metrics
        stalled.append(metrics["step_time_us"].value * metrics["stall_fraction"].value)
    assert stalled[0] == pytest.approx(stalled[1], rel=0.1)


def test_flows_on_several_queue_pairs_are_all_verified(tmp_path: Path) -> None:
    job = {"kind": "permutation", "bytes_per_nic": 262_144, "message_bytes": 32_768, "queue_pairs": 4}
    values = {name: metric.value for name, metric in run(tmp_path, job).metrics.items()}
    assert values["bytes_verified"] == 8 * 262_144
    assert values["out_of_order_fraction"] < 0.9
    assert values["jain_index"] > 0.9


def test_the_victim_of_an_incast_has_a_bound_of_its_own(tmp_path: Path) -> None:
    job = {
        "kind": "incast",
        "target": 4,
        "victim": [3, 5],
        "bytes_per_nic": 262_144,
        "message_bytes": 262_144,
    }
    run(tmp_path, job)
    bounds = {
        flow["name"]: flow["fct_bound_us"]
        for flow in json.loads((tmp_path / "run" / "flows.json").read_text())
    }
    passing = 64 * 4262 * 8 / 400e3  # 64 packets with their headers at 400 Gb/s, in microseconds
    # Its source gives each of two flows what the other leaves: the incast 1/7, the victim 6/7.
    assert bounds["h3→h5"] == pytest.approx(passing * 7 / 6 + 4.8, abs=0.9)
    assert bounds["h0→h4"] == pytest.approx(passing * 7 + 4.8, abs=0.9)
