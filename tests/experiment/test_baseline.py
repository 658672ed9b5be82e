"""The single-path baseline: writes in the order of their PSNs, go-back-N, one hashed path.

Sweep: with and without a lost packet.
Stimulus: one pair of hosts and a permutation on a plane of 400 Gb/s, plain IPv6, one EV.
Checks: every byte; one loss costs what was sent behind it; a NACK names the missing PSN once; so do timeouts.
Timing: simulated.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mrc_host.benches.model_speed import f_experiment
from mrc_host.experiment.load import parse_experiment
from mrc_host.experiment.nics import NicKinds
from mrc_host.experiment.runner import run_experiment


def run(path: Path, *faults: dict[str, Any], kind: str = "pairs", **model: Any) -> dict[str, Any]:
    description = f_experiment(8, 1, {"faults": list(faults)})
    description["nic"]["parameters"] |= {"planes": 1, "clock_ps": 1000}
    description["nic"]["model"] = model
    description["fabric"] |= {"planes": 1, "rate_gbps": 400, "queue_bytes": 1 << 20}
    description["qp"] = {
        "routing": "ecmp", "entropy_values": 1, "timeout_exponent": 7, "type": "go_back_n", "oblivious": True
    }  # fmt: skip
    if kind == "pairs":
        description["workload"] |= {"kind": "pairs", "flow_pairs": [[0, 4]]}
    result = run_experiment(parse_experiment(description), out=path, nic_factory=NicKinds(("model",)))
    assert (result.verdict, result.complete) == ("PASS", True)
    values = {name: metric.value for name, metric in result.metrics.items()}
    nics = json.loads((path / "counters.json").read_text())["nics"]
    values["nacks"] = nics[4]["engine"]["nack_sent"]
    values["timeouts"] = nics[0]["engine"]["timeouts"]
    values["early"] = sum(port["drop_window"] for port in nics[4]["ports"])
    return values


def test_in_order_nothing_is_sent_twice(tmp_path: Path) -> None:
    found = run(tmp_path / "run")
    assert found["out_of_order_fraction"] == 0
    assert (found["nacks"], found["early"], found["retransmissions_loss"]) == (0, 0, 0)
    assert found["fct_over_bound_mean"] < 1.1


def test_a_lost_packet_costs_all_that_was_sent_behind_it(tmp_path: Path) -> None:
    lost = {"kind": "blackhole", "port": "h0.p0", "direction": "up", "traffic": "data", "packets": 20}
    found = run(tmp_path / "run", lost)
    assert (found["nacks"], found["timeouts"]) == (1, 0)
    assert found["early"] > 50, "about a round trip of packets at 400 Gb/s"
    sent_twice = found["retransmissions_loss"] + found["retransmissions_spurious"]
    assert found["early"] <= sent_twice <= found["early"] + 120
    assert found["packets_lost"] == found["early"] + 1


def test_when_the_retransmission_is_lost_too_a_timeout_goes_back(tmp_path: Path) -> None:
    lost = {"kind": "blackhole", "port": "h0.p0", "direction": "up", "traffic": "data", "packets": 20}
    again = {
        "kind": "blackhole",
        "port": "h0.p0",
        "direction": "up",
        "traffic": "retransmissions",
        "packets": 1,
    }
    found = run(tmp_path / "run", lost, again)
    assert found["timeouts"] == 1
    assert found["nacks"] == 1, "the same PSN is missing: it is named once"


def test_flows_that_share_an_uplink_take_twice_as_long(tmp_path: Path) -> None:
    found = run(tmp_path / "run", kind="permutation")
    assert found["fct_over_bound_max"] > 1.5
    assert found["paths_used"] is None
