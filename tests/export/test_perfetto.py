"""Traces for Perfetto: the form is right, tracks hold what the run recorded, arrows lead from loss to repair.

Sweep: packets that are cut and NACKed, packets lost on a link that dies; the whole run and a part of it.
Stimulus: an incast and an outage on golden models.
Checks: a reader with the rules of the format; slices, counters and arrows against the run's tables; errors.
Timing: none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from experiment.runs import run_small
from export.trace_format import Trace, read_trace
from mrc_host.cli import mrc
from mrc_host.errors import MrcError
from mrc_host.experiment.nic_events import ev_changes
from mrc_host.experiment.nics import NicKinds
from mrc_host.export.perfetto import export_perfetto
from mrc_host.results import Run

MODEL = NicKinds.parse("model")


def traced(path: Path, *settings: str) -> tuple[Run, Trace]:
    run_small(path, *settings, factory=MODEL)
    return Run(path), read_trace(export_perfetto(path))


@pytest.fixture(scope="module")
def incast(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Trace]:
    """Return a run with trimming, and its trace."""
    return traced(
        tmp_path_factory.mktemp("perfetto") / "incast",
        "workload={kind: pairs, flow_pairs: [[1, 0], [2, 0], [3, 0]]}",
        "workload.bytes_per_nic=131072",
        "workload.message_bytes=65536",
        "fabric.queue_bytes=32768",
        "fabric.trimming={}",
        "qp.congestion_control=nscc",
    )


@pytest.fixture(scope="module")
def outage(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Trace]:
    """Return a run in which a link dies, and its trace."""
    return traced(
        tmp_path_factory.mktemp("perfetto") / "outage",
        "faults=[{kind: down, link: p1.t0.1-p1.t1.2, from_us: 12}]",
        "workload.bytes_per_nic=131072",
    )


def test_every_packet_is_a_slice_of_its_port(incast: tuple[Run, Trace]) -> None:
    run, trace = incast
    packets = run.columns("packets")
    for host in range(4):
        for plane in range(4):
            for arrived, verb in ((0, "sends"), (1, "receives")):
                mine = (
                    (packets["nic"] == host) & (packets["plane"] == plane) & (packets["arrived"] == arrived)
                )
                slices = trace.track(f"h{host}", f"plane {plane} {verb}")
                assert len(slices) == np.count_nonzero(mine)
                ends = [item["ts"] + item["dur"] for item in slices]
                assert ends == pytest.approx(np.sort(packets["time_ps"][mine]) / 1e6, abs=0.002)


def test_arrows_lead_from_data_over_cut_and_nack_to_the_retransmission(incast: tuple[Run, Trace]) -> None:
    run, trace = incast
    packets = run.columns("packets")
    sent_again = (packets["data"] == 1) & (packets["arrived"] == 0) & (packets["retransmission"] == 1)
    assert len(trace.arrows) == np.count_nonzero(sent_again) > 10
    whole = 0
    for stations in trace.arrows.values():
        tracks = [track for track, _ in stations]
        names = [item["name"] for _, item in stations]
        psns = {item["args"]["psn"] for _, item in stations}
        assert len(psns) == 1
        assert names[-1].endswith("(again)") and "sends" in tracks[-1] and "sends" in tracks[0]
        if "NACK" in names:
            assert [name.split()[0] for name in names].count("NACK") == 2
            assert any(name.endswith("(cut)") for name in names)
            assert tracks.index("h0 " + tracks[1].split(" ", 1)[1]) == 1
            whole += 1
    assert whole > 10


def test_arrows_of_a_silent_loss_lead_over_the_decision(outage: tuple[Run, Trace]) -> None:
    run, trace = outage
    assert trace.arrows
    for stations in trace.arrows.values():
        names = [item["name"] for _, item in stations]
        assert names[1:-1] == ["LOSS"]
        assert "QP 0x100 → h" in stations[1][0]
    (fault,) = trace.track("faults", "1 down on link p1.t0.1-p1.t1.2")
    assert fault["ts"] == 12


def test_states_of_paths_are_slices_of_their_ev(outage: tuple[Run, Trace]) -> None:
    run, trace = outage
    changes = ev_changes(run.columns("events"))
    bad = [change for change in changes if change.new == 3]
    assert bad
    for change in bad:
        slices = trace.track(f"h{change.host}", f"QP 0x100 EV {change.ev:#010x} plane {change.plane}")
        assert any(
            item["name"] == "ASSUMED_BAD" and item["ts"] == pytest.approx(change.time_ps / 1e6, abs=0.002)
            for item in slices
        )


def test_counters_hold_queues_and_windows(incast: tuple[Run, Trace]) -> None:
    run, trace = incast
    queues = run.columns("queues")
    deepest = max(
        value
        for (_, name), points in trace.counters.items()
        if name.startswith("queue ")
        for _, value in points
    )
    assert deepest == queues["peak_bytes"].max()
    names = {name for _, name in trace.counters}
    assert {"QP 0x100 window (bytes)", "QP 0x100 bytes in flight", "QP 0x100 RTT (ns)"} <= names
    for points in trace.counters.values():
        assert points == sorted(points, key=lambda point: point[0])


def test_messages_are_asynchronous_slices(incast: tuple[Run, Trace]) -> None:
    run, trace = incast
    assert len(trace.asynchronous) == run.value("messages_completed") == 6


def test_a_part_of_the_time_is_a_part_of_the_trace(incast: tuple[Run, Trace], tmp_path: Path) -> None:
    run, trace = incast
    part = read_trace(export_perfetto(run.path, tmp_path / "part.json", from_us=30, to_us=60))
    times = [item["ts"] for slices in part.slices.values() for item in slices]
    assert times and min(times) >= 30 and max(times) <= 60
    assert 0 < len(part.arrows) < len(trace.arrows)
    with pytest.raises(MrcError, match=r"to_us must be after from_us = 30, got 20"):
        export_perfetto(run.path, tmp_path / "part.json", from_us=30, to_us=20)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(mrc, ["export", *arguments], standalone_mode=False)


def test_the_command_writes_the_file(outage: tuple[Run, Trace], tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    result = invoke(str(outage[0].path), "--perfetto", "--out", str(out))
    assert result.output.strip() == str(out)
    assert len(read_trace(out).slices) == len(outage[1].slices)
    assert "--perfetto" in str(invoke(str(outage[0].path)).exception)
