"""Experiments on verilated NICs.

Sweep: windows of 1, 1/2 and 1/7; 1, 2 and 4 threads; repetition; a trimmed, a dropped, a duplicated and a
    corrupted packet between two NICs.
Stimulus: the quickstart with 128 KiB for each NIC; faults hit one data packet on a link between T0 and T1.
Checks: metrics and packets bit for bit; every byte right; retransmissions by cause, counters of the receiver.
Timing: simulated; the engine is compiled once for all runs of this machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from experiment.packet_faults import DAMAGES, Damage, hit_third_data_packet
from experiment.runs import QUICKSTART
from mrc_host.experiment import testbed as setup
from mrc_host.experiment.load import load_experiment
from mrc_host.experiment.runner import RunResult, run_experiment

BYTES_PER_NIC = 131_072
MESSAGES = 4 * 8
SETTINGS = (
    f"workload.bytes_per_nic={BYTES_PER_NIC}",
    "workload.message_bytes=16384",
    "limits.simulated_time_us=5000",
    "qp.timeout_exponent=9",
    "criteria=[{metric: bytes_mismatched, equals: 0, source: test}]",
)
SAME = ("metrics.json", "counters.json", "messages.parquet", "packets.parquet", "queues.parquet")


def run(out: Path, *settings: str, prepare: Callable[[setup.Testbed], None] | None = None) -> RunResult:
    experiment = load_experiment(QUICKSTART, [*SETTINGS, *settings])
    return run_experiment(experiment, out=out, prepare=prepare)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished run."""
    directory = tmp_path_factory.mktemp("rtl") / "run"
    result = run(directory)
    assert result.exit_code == 0
    assert result.complete
    return directory


@pytest.mark.timeout(600)
def test_every_byte_arrives_over_every_path(finished: Path) -> None:
    metrics = json.loads((finished / "metrics.json").read_text())
    values = {name: metric["value"] for name, metric in metrics.items()}
    assert values["bytes_verified"] == 4 * BYTES_PER_NIC
    assert values["messages_completed"] == MESSAGES
    assert values["packets_lost"] == 0
    assert values["paths_used"] == 8
    assert values["out_of_order_fraction"] > 0.1
    assert values["retransmissions_loss"] == values["retransmissions_spurious"] == 0
    run_document = json.loads((finished / "run.json").read_text())
    assert run_document["nic"] == "rtl"
    assert len(run_document["netlist_sha256"]) == 64
    assert run_document["speed"]["cycles_skipped"] > 0
    for nic in json.loads((finished / "counters.json").read_text())["nics"]:
        assert nic["memory_violations"] == nic["memory_outside"] == nic["underruns"] == 0


def test_congestion_windows_cost_little_where_nothing_is_congested(finished: Path, tmp_path: Path) -> None:
    result = run(tmp_path / "run", "qp.congestion_control=nscc")
    assert result.complete
    values = {name: metric.value for name, metric in result.metrics.items()}
    assert (values["bytes_verified"], values["packets_lost"]) == (4 * BYTES_PER_NIC, 0)
    without = json.loads((finished / "metrics.json").read_text())
    # The last packet before a window ends asks for a SACK, which shows that there is one.
    assert values["reverse_share"] > without["reverse_share"]["value"]
    assert values["goodput_gbps"] >= 0.95 * without["goodput_gbps"]["value"]


def test_a_queue_pair_that_goes_back_sends_again_what_came_early(tmp_path: Path) -> None:
    settings = ("qp.type=go_back_n", "qp.oblivious=true", "qp.entropy_values=4", "qp.timeout_exponent=6")
    result = run(tmp_path / "run", *settings, "workload.outstanding_messages=2")
    assert result.complete
    values = {name: metric.value for name, metric in result.metrics.items()}
    assert (values["bytes_verified"], values["bytes_mismatched"]) == (4 * BYTES_PER_NIC, 0)
    # Four planes bring packets out of order, which this type takes for losses.
    nics = json.loads((tmp_path / "run" / "counters.json").read_text())["nics"]
    early = sum(port["drop_window"] for nic in nics for port in nic["ports"])
    again = sum(port["tx_retransmissions"] for nic in nics for port in nic["ports"])
    assert 0 < early <= again


@pytest.mark.parametrize(
    "settings",
    [
        ["runner.window_fraction=1/2"],
        ["runner.window_fraction=1/7"],
        ["runner.jobs=1"],
        ["runner.jobs=4"],
        [],
    ],
    ids=["half", "seventh", "one", "four", "again"],
)
def test_how_it_is_run_changes_nothing(finished: Path, tmp_path: Path, settings: list[str]) -> None:
    run(tmp_path / "other", *settings)
    for name in SAME:
        assert (tmp_path / "other" / name).read_bytes() == (finished / name).read_bytes(), name


@pytest.mark.parametrize(("fault", "causes", "counter"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_packet_ends_with_every_byte_right(
    finished: Path, tmp_path: Path, fault: Damage, causes: tuple[int, int, int] | None, counter: str | None
) -> None:
    result = run(tmp_path / "run", prepare=hit_third_data_packet(fault))
    assert result.complete
    assert result.metrics["bytes_verified"].value == 4 * BYTES_PER_NIC
    assert result.metrics["bytes_mismatched"].value == 0
    assert result.metrics["messages_completed"].value == MESSAGES
    nics = json.loads((tmp_path / "run" / "counters.json").read_text())["nics"]
    if counter is not None:
        assert sum(port[counter] for nic in nics for port in nic["ports"]) == 1
    names = ("trim", "loss", "spurious")
    found = tuple(result.metrics[f"retransmissions_{name}"].value for name in names)
    if causes is not None:
        assert found == causes
    else:
        # The packet log knows no ICRC: to it the damaged packet had arrived.
        assert sum(found) == 1
