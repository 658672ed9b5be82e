"""Permutations of 2 MB messages in whole runs on golden models.

Sweep: with and without congestion control.
Stimulus: *F*: 8 hosts, 4 planes of 100 Gb/s, a permutation of one 2 MB message each.
Checks: every byte, completion times against the bound and against each other, nothing lost or sent again.
Timing: simulated.
"""

from __future__ import annotations

import json
from pathlib import Path

from mrc_host.benches.model_speed import f_experiment
from mrc_host.experiment.load import parse_experiment
from mrc_host.experiment.nics import NicKinds
from mrc_host.experiment.runner import run_experiment


def test_a_permutation_ends_near_the_bound_and_starves_nobody(tmp_path: Path) -> None:
    experiment = parse_experiment(f_experiment(8, 2, {"qp": {"congestion_control": "nscc"}}))
    result = run_experiment(experiment, out=tmp_path / "run", nic_factory=NicKinds(("model",)))
    values = {name: metric.value for name, metric in result.metrics.items()}
    assert (result.verdict, result.complete) == ("PASS", True)
    assert (values["bytes_verified"], values["bytes_mismatched"]) == (8 * 2_000_000, 0)
    assert values["fct_over_bound_max"] <= 1.06
    assert values["fct_over_bound_max"] <= 1.02 * values["fct_over_bound_mean"], "all end about together"
    assert values["packets_lost"] == values["retransmissions_loss"] == values["retransmissions_spurious"] == 0
    nics = json.loads((tmp_path / "run" / "counters.json").read_text())["nics"]
    assert all(nic["engine"]["timeouts"] == 0 for nic in nics)


def test_a_permutation_ends_with_every_byte_right_without_congestion_control(tmp_path: Path) -> None:
    experiment = parse_experiment(f_experiment(8, 2))
    result = run_experiment(experiment, out=tmp_path / "run", nic_factory=NicKinds(("model",)))
    values = {name: metric.value for name, metric in result.metrics.items()}
    assert (result.verdict, result.complete) == ("PASS", True)
    assert (values["bytes_verified"], values["bytes_mismatched"]) == (8 * 2_000_000, 0)
    assert values["messages_completed"] == 8 * 2_000_000 // experiment.flows()[0].message_bytes
