"""Experiments on the golden model.

Sweep: the quickstart as it is; windows, threads and repetition; packets as objects and as frames; a trimmed,
    a dropped, a duplicated and a corrupted packet; options that switch to what the first gateware does.
Stimulus: the quickstart, whole and with 128 KiB for each NIC; faults hit one data packet between T0 and T1.
Checks: every criterion; metrics, packets and captures bit for bit; retransmissions by cause, counters.
Timing: simulated.
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
from mrc_host.experiment.nics import NicKinds, NicRequest, model_nic
from mrc_host.experiment.runner import RunResult, run_experiment
from mrc_host.model.nic import ModelNic
from mrc_host.model.options import ModelOptions
from mrc_host.nic.base import Nic
from mrc_host.packets.codec import decode
from mrc_host.packets.pcapng import read_capture

BYTES_PER_NIC = 131_072
MESSAGES = 4 * 8
SETTINGS = (
    f"workload.bytes_per_nic={BYTES_PER_NIC}",
    "workload.message_bytes=16384",
    "limits.simulated_time_us=5000",
    "qp.timeout_exponent=8",
    "criteria=[{metric: bytes_mismatched, equals: 0, source: test}]",
)
SAME = (
    "metrics.json", "counters.json", "flows.json", "messages.parquet", "packets.parquet", "queues.parquet"
)  # fmt: skip
MODEL = NicKinds.parse("model")


class NicOfFrames(ModelNic):
    """A model that hands over bytes and takes bytes."""

    def carry_packets(self) -> bool:
        return False


def nic_of_frames(request: NicRequest) -> Nic:
    made = model_nic(request)
    made.__class__ = NicOfFrames
    return made


def run(
    out: Path,
    *settings: str,
    prepare: Callable[[setup.Testbed], None] | None = None,
    factory: Callable[[NicRequest], Nic] = MODEL,
) -> RunResult:
    experiment = load_experiment(QUICKSTART, [*SETTINGS, *settings])
    return run_experiment(experiment, out=out, nic_factory=factory, prepare=prepare)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished run."""
    directory = tmp_path_factory.mktemp("model") / "run"
    result = run(directory)
    assert result.exit_code == 0
    assert result.complete
    return directory


def test_the_quickstart_passes(tmp_path: Path) -> None:
    experiment = load_experiment(QUICKSTART)
    result = run_experiment(experiment, out=tmp_path / "run", nic_factory=MODEL)
    judged = {name: metric.verdict for name, metric in result.metrics.items() if metric.limits}
    assert judged == {criterion.metric: "PASS" for criterion in experiment.criteria}
    assert result.exit_code == 0
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (document["nic"], document["netlist_sha256"]) == ("model", None)
    for nic in json.loads((tmp_path / "run" / "counters.json").read_text())["nics"]:
        assert nic["memory_outside"] == nic["lost_link_down"] == 0


@pytest.mark.parametrize(
    "settings",
    [["runner.window_fraction=1/7"], ["runner.jobs=1"], ["runner.jobs=4", "runner.window_fraction=1/3"], []],
    ids=["seventh", "one", "four", "again"],
)
def test_how_it_is_run_changes_nothing(finished: Path, tmp_path: Path, settings: list[str]) -> None:
    run(tmp_path / "other", *settings)
    for name in SAME:
        assert (tmp_path / "other" / name).read_bytes() == (finished / name).read_bytes(), name


def test_frames_and_objects_give_the_same(finished: Path, tmp_path: Path) -> None:
    run(tmp_path / "frames", factory=nic_of_frames)
    for name in SAME:
        assert (tmp_path / "frames" / name).read_bytes() == (finished / name).read_bytes(), name


def test_frames_and_objects_give_the_same_under_trims_and_marks(tmp_path: Path) -> None:
    settings = [
        "fabric.queue_bytes=16384",
        "fabric.trimming={size_bytes: 118}",
        "fabric.ecn={}",
        "workload={kind: pairs, flow_pairs: [[1, 0], [2, 0], [3, 0]], bytes_per_nic: 131072, "
        "message_bytes: 16384}",
    ]
    results = [
        run(tmp_path / name, *settings, factory=factory)
        for name, factory in (("objects", MODEL), ("frames", nic_of_frames))
    ]
    metrics = results[0].metrics
    assert results[0].complete and metrics["bytes_verified"].value == 3 * BYTES_PER_NIC
    assert metrics["bytes_mismatched"].value == 0
    assert metrics["frames_trimmed"].value > 0 and metrics["retransmissions_trim"].value > 0
    for name in SAME:
        first, second = (tmp_path / kind / name for kind in ("objects", "frames"))
        assert first.read_bytes() == second.read_bytes(), name


def test_captured_frames_are_whole_and_right(tmp_path: Path) -> None:
    run(tmp_path / "run", "capture.pcap=true", "workload.bytes_per_nic=32768")
    kinds = set()
    for path in sorted((tmp_path / "run" / "pcap").iterdir()):
        for captured in read_capture(path):
            packet = decode(captured.data)
            assert packet.icrc_ok and packet.problems == [], packet.problems
            kinds.add(packet.kind)
    assert kinds >= {"WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST_IMM", "SACK", "ACKNOWLEDGE"}


@pytest.mark.parametrize(("fault", "causes", "counter"), DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("options", ["default", "round_one"])
def test_a_damaged_packet_ends_with_every_byte_right(
    tmp_path: Path, fault: Damage, causes: tuple[int, int, int] | None, counter: str | None, options: str
) -> None:
    chosen = ModelOptions() if options == "default" else ModelOptions.round_one()
    values = json.dumps(chosen.as_dict())
    result = run(tmp_path / "run", f"nic.model={values}", prepare=hit_third_data_packet(fault))
    assert result.complete
    assert result.metrics["bytes_verified"].value == 4 * BYTES_PER_NIC
    assert result.metrics["bytes_mismatched"].value == 0
    assert result.metrics["messages_completed"].value == MESSAGES
    nics = json.loads((tmp_path / "run" / "counters.json").read_text())["nics"]
    if counter is not None:
        assert sum(port[counter] for nic in nics for port in nic["ports"]) == 1
    found = tuple(result.metrics[f"retransmissions_{name}"].value for name in ("trim", "loss", "spurious"))
    if causes is not None:
        assert found == causes
    else:
        # The packet log knows no ICRC: to it the damaged packet had arrived.
        assert sum(found) == 1
