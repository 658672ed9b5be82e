"""Gateware and golden model in one run.

Sweep: the first half of the hosts gateware and the second half models, and the other way round; without
    faults, and with a packet trimmed on its way from either kind.
Stimulus: the quickstart with 64 KiB for each NIC; every peer is of the other kind.
Checks: every byte, completions at both ends, nothing lost or refused, retransmissions by cause.
Timing: simulated; the engine is compiled once for all runs of this machine.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiment.packet_faults import UPLINKS, hit_third_data_packet, trimmed
from experiment.runs import run_small
from mrc_host.experiment.nics import NicKinds


@pytest.mark.timeout(600)
@pytest.mark.parametrize("uplink", [None, *UPLINKS], ids=["undisturbed", "trimmed from 1", "trimmed from 2"])
@pytest.mark.parametrize("kinds", ["rtl,model", "model,rtl"])
def test_they_understand_each_other(tmp_path: Path, kinds: str, uplink: str | None) -> None:
    prepare = None if uplink is None else hit_third_data_packet(trimmed, uplink)
    result = run_small(tmp_path / "run", factory=NicKinds.parse(kinds), prepare=prepare)
    values = {name: metric.value for name, metric in result.metrics.items()}
    assert (result.verdict, result.complete) == ("PASS", True)
    assert (values["bytes_verified"], values["messages_completed"]) == (4 * 65_536, 16)
    cut = int(uplink is not None)
    causes = [values[f"retransmissions_{cause}"] for cause in ("trim", "loss", "spurious")]
    assert causes == [cut, 0, 0]
    if not cut:
        assert values["packets_lost"] == 0 and values["plane_imbalance_packets"] <= 1
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (document["nic"], len(document["netlist_sha256"])) == (kinds, 64)
    for nic in json.loads((tmp_path / "run" / "counters.json").read_text())["nics"]:
        assert sum(port["trimmed_answered"] for port in nic["ports"]) <= cut
        assert all(value == 0 for port in nic["ports"] for name, value in port.items() if "drop_" in name)
