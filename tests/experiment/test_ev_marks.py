"""EV marks against what faults really did, and metrics that must not stay constant.

Sweep: faults of a link in both directions, in one, of answers only, of one EV; policies.
Stimulus: a permutation on *F* in which a link dies and comes back.
Checks: dead EVs are retired and marked true, healthy ones false; times count from the fault; metrics differ
between runs that differ.
Timing: simulated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mrc_host.benches.model_speed import f_experiment
from mrc_host.experiment.definitions import DEFINITIONS
from mrc_host.experiment.load import parse_experiment
from mrc_host.experiment.metrics import Metric
from mrc_host.experiment.nics import NicKinds
from mrc_host.experiment.runner import run_experiment

LINK = "p0.t0.1-p0.t1.1"


def run(path: Path, *faults: dict[str, Any], megabytes: float = 4, **sections: Any) -> dict[str, Any]:
    description = f_experiment(8, megabytes, {"faults": list(faults), **sections})
    description["fabric"] |= {"ecn": {}, "trimming": {}}
    description["qp"] = {"congestion_control": "nscc"}
    result = run_experiment(
        parse_experiment(description), out=path / "run", nic_factory=NicKinds(("model",)), records=False
    )
    assert result.metrics["bytes_mismatched"].value == 0
    return values(result.metrics)


def values(metrics: dict[str, Metric]) -> dict[str, Any]:
    return {name: metric.value for name, metric in metrics.items()}


def test_every_ev_over_a_dead_link_is_retired_and_nothing_else_is_true(tmp_path: Path) -> None:
    found = run(tmp_path, {"kind": "down", "link": LINK, "from_us": 20})
    # 8 flows cross the link in one direction or the other, each with 8 EVs on that path.
    assert found["evs_retired"] + found["evs_dead_in_use"] == 64
    assert found["evs_retired"] >= 60
    assert found["ev_marks_true"] >= found["evs_retired"]
    assert 1.0 < found["ev_retire_rtt_first"] <= found["ev_retire_rtt_median"] <= found["ev_retire_rtt_last"]
    assert found["ev_recover_us"] is None


def test_one_direction_kills_the_evs_of_one_side(tmp_path: Path) -> None:
    found = run(tmp_path, {"kind": "down", "link": LINK, "direction": "up", "from_us": 20})
    assert found["evs_retired"] + found["evs_dead_in_use"] == 32


def test_lost_answers_kill_no_ev(tmp_path: Path) -> None:
    found = run(tmp_path, {"kind": "blackhole", "link": LINK, "traffic": "acks", "from_us": 20})
    assert found["evs_retired"] == found["ev_marks_true"] == 0
    assert found["ev_marks_false"] >= found["ev_false_marks_peak"]


def test_an_ev_that_loses_packets_is_no_false_mark(tmp_path: Path) -> None:
    found = run(tmp_path, {"kind": "random_loss", "ev": 0xC0010000, "probability": 0.5, "from_us": 10})
    assert found["evs_retired"] >= 6
    assert found["ev_marks_true"] >= found["evs_retired"]


def test_evs_come_back_after_the_fault(tmp_path: Path) -> None:
    found = run(tmp_path, {"kind": "down", "link": LINK, "from_us": 10, "to_us": 30}, megabytes=20)
    assert found["evs_retired"] >= 32
    assert found["evs_not_recovered"] == 0
    assert 128 < found["ev_recover_us"] < 700, "three successes, 64 µs apart"


def test_an_oblivious_sender_keeps_dead_evs(tmp_path: Path) -> None:
    model = {"nic": {**f_experiment(8, 4)["nic"], "model": {"spray_policy": "oblivious"}}}
    found = run(tmp_path, {"kind": "down", "link": LINK, "from_us": 20}, **model)
    assert (found["evs_retired"], found["evs_dead_in_use"]) == (0, 64)


CONSTANT = frozenset({"bytes_mismatched", "plane_imbalance_packets"})
"""What may be the same in all runs below."""
NEEDS_MORE = frozenset({"fct_us_p99", "slowdown_p99", "step_time_us_max", "evs_per_window"})
"""What these runs have no value of, or that moves with others."""


def test_no_metric_is_the_same_in_all_runs(tmp_path: Path) -> None:
    """Runs that differ in faults, sizes, policy, fabric and workload: every metric notices one."""
    nic = f_experiment(8, 4)["nic"]
    dead = {"kind": "down", "link": LINK, "from_us": 10, "to_us": 30}
    incast = {"kind": "incast", "bytes_per_nic": 300_000, "message_bytes": 100_000}
    steps = {"kind": "all_to_all", "bytes_per_nic": 70_000, "compute_us": 5, "steps": 2}
    more = {"nic": {**nic, "parameters": {**nic["parameters"], "qps": 32, "memory_regions": 64}}}
    fabric = f_experiment(8, 4)["fabric"]
    oblivious = {"nic": {**nic, "model": {"spray_policy": "oblivious"}}}
    runs = [
        run(tmp_path / "plain"),
        run(tmp_path / "dead", dead, megabytes=12),
        run(tmp_path / "short", dead),
        run(tmp_path / "unasked", dead, megabytes=12, nic={**nic, "model": {"recovery_probes": False}}),
        run(tmp_path / "oblivious", {"kind": "down", "link": LINK, "from_us": 20}, **oblivious),
        run(tmp_path / "incast", workload=incast, fabric={**fabric, "control_queue_bytes": 300}, **more),
        run(tmp_path / "steps", workload=steps, **more),
        run(tmp_path / "slow", {"kind": "slow", "link": LINK, "rate_share": 0.1}),
        run(
            tmp_path / "skew",
            fabric={**f_experiment(8, 4)["fabric"], "t1_link_delay_ns": [1000, 1000, 1000, 9000]},
        ),
        run(tmp_path / "lossy", {"kind": "random_loss", "plane": [0, 1], "probability": 0.01}),
        run(tmp_path / "answers", {"kind": "blackhole", "link": "p0.t0.*", "traffic": "acks", "from_us": 10}),
    ]
    same = {name for name in DEFINITIONS if len({found[name] for found in runs}) == 1}
    assert same <= CONSTANT | NEEDS_MORE
