"""What NICs report of their decisions ends in a run's tables, the same however the run was carried out.

Sweep: a quiet run and one with a plane that dies; windows of 1 and 1/7 of the longest, 1 and 2 threads.
Stimulus: the small experiment on golden models.
Checks: columns and their meaning, changes of states that follow from each other, samples of windows.
Timing: times lie within the run.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiment.runs import run_small
from mrc_host.experiment.nic_events import COLUMNS, NicEvents, ev_changes, window_samples
from mrc_host.experiment.nics import NicKinds
from mrc_host.model.ev_set import PathState
from mrc_host.nic.base import TraceRecord
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.records import TraceKind

MODEL = NicKinds.parse("model")
BLACKHOLE = ("faults=[{kind: blackhole, plane: 1, from_us: 10}]", "workload.bytes_per_nic=262144")


def events_of(directory: Path) -> dict[str, np.ndarray]:
    table = pq.read_table(directory / "events.parquet")
    return {name: table.column(name).to_numpy() for name in table.column_names}


@pytest.fixture(scope="module")
def dying(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run in which a plane dies."""
    directory = tmp_path_factory.mktemp("events") / "run"
    run_small(directory, *BLACKHOLE, factory=MODEL)
    return directory


def test_dead_paths_are_reported_with_their_plane(dying: Path) -> None:
    events = events_of(dying)
    assert tuple(events) == COLUMNS
    bad = [change for change in ev_changes(events) if change.new == PathState.ASSUMED_BAD]
    assert bad
    assert {change.plane for change in bad} == {1}
    simulated_us = json.loads((dying / "run.json").read_text())["simulated_us"]
    assert all(10 < change.time_ps / 1e6 < simulated_us for change in bad)
    assert (np.diff(events["time_ps"]) >= 0).all()
    losses = events["kind"] == TraceKind.LOSS
    assert set(events["plane"][losses].tolist()) == {1}


def test_changes_of_a_path_follow_from_each_other(dying: Path) -> None:
    states: dict[tuple[int, ...], int] = {}
    changes = ev_changes(events_of(dying))
    for change in changes:
        path = (change.host, change.qp, change.plane, change.place)
        assert states.get(path, change.old) == change.old
        assert change.old != change.new
        states[path] = change.new


def test_round_trips_are_sampled_without_congestion_control(dying: Path) -> None:
    samples = window_samples(events_of(dying))
    assert {sample.host for sample in samples} == {0, 1, 2, 3}
    assert {sample.window for sample in samples} == {None}
    assert all(4e6 < sample.rtt_ps < 200e6 for sample in samples if sample.rtt_ps is not None)


def test_windows_of_congestion_control_are_sampled(tmp_path: Path) -> None:
    run_small(tmp_path / "run", "qp.congestion_control=nscc", factory=MODEL)
    samples = window_samples(events_of(tmp_path / "run"))
    assert samples
    assert all(sample.window and 0 <= sample.in_flight <= 1 << 20 for sample in samples)


def test_queue_pairs_of_flows_are_named(dying: Path) -> None:
    pairs = json.loads((dying / "qps.json").read_text())
    assert [(pair["source"], pair["target"]) for pair in pairs] == [(0, 2), (1, 3), (2, 0), (3, 1)]
    assert all(pair["source_qp"] >= QP_NUMBER_BASE <= pair["target_qp"] for pair in pairs)


@pytest.mark.parametrize(("fraction", "jobs"), [("1/7", 1), ("1", 1), ("1/2", 2)])
def test_events_do_not_depend_on_windows_and_threads(
    dying: Path, tmp_path: Path, fraction: str, jobs: int
) -> None:
    settings = (f"runner.window_fraction={fraction}", f"runner.jobs={jobs}")
    run_small(tmp_path / "run", *BLACKHOLE, *settings, factory=MODEL)
    again, first = events_of(tmp_path / "run"), events_of(dying)
    for name in COLUMNS:
        assert np.array_equal(again[name], first[name]), name


def test_frequent_kinds_are_left_out() -> None:
    events = NicEvents()
    events.note(1, [TraceRecord(5, TraceKind.BIND, 0, 0, 1, 2), TraceRecord(6, TraceKind.TIMER, 3, 0, 9, 1)])
    events.note(0, [TraceRecord(6, TraceKind.LOSS, 1, 2, 7, 4)])
    columns = events.columns()
    assert columns["host"].tolist() == [0, 1]
    assert columns["psn"].tolist() == [7, 9]
