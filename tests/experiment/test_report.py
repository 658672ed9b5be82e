"""The report: every section is there, it stands alone, and it is made again from the directory.

Sweep: a finished run; a run in which nothing arrived; a run without criteria; one plane and a star.
Stimulus: small runs on NICs of plain Python.
Checks: sections, figures and their files, no reference to other places, values as in metrics.json.
Timing: none.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from experiment.runs import run_small
from mrc_host.cli import mrc
from mrc_host.errors import MrcError
from mrc_host.experiment.definitions import DEFINITIONS
from mrc_host.experiment.nics import NicKinds
from mrc_host.report import make_report
from mrc_host.report.chart import ticks

SECTIONS = ("criteria", "flows", "similarity", "counters", "metrics", "run")
FIGURES = (
    "topology",
    "goodput",
    "arrivals",
    "out_of_order",
    "path_delay",
    "completion_times",
    "ev_states",
    "ev_map",
    "queues",
    "window",
    "rtt",
    "ev_share",
)
FROM_EVENTS = ("ev_map", "ev_states", "window", "rtt")
"""Figures that need what NICs report of their decisions."""
MODEL = NicKinds.parse("model")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished run."""
    directory = tmp_path_factory.mktemp("report") / "small"
    run_small(directory)
    return directory


def test_every_section_and_figure_is_there(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    found = re.findall(r'<(?:section|figure) id="(\w+)"', page)
    assert sorted(found) == sorted((*SECTIONS, *FIGURES))
    for name in DEFINITIONS:
        assert f"<code>{name}</code>" in page
    assert page.count("<svg") == len(FIGURES)
    assert "every byte verified" in page
    assert "PASS" in page


def test_the_page_stands_alone(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    loaded = re.findall(r'(?:src=|url\(|@import)\s*["\']?([^"\')\s]+)', page)
    assert loaded == []
    links = set(re.findall(r'href="([^"]+)"', page))
    assert links == {f"plots/{name}.{kind}" for name in FIGURES for kind in ("svg", "csv")}
    assert all((finished / link).is_file() for link in links)
    assert len(page) < 1_000_000


def test_every_figure_is_a_picture_with_its_data(finished: Path) -> None:
    for name in FIGURES:
        picture = ElementTree.parse(finished / "plots" / f"{name}.svg").getroot()
        assert picture.tag.endswith("svg")
        assert "<style>" in (finished / "plots" / f"{name}.svg").read_text()
        rows = list(csv.reader(io.StringIO((finished / "plots" / f"{name}.csv").read_text())))
        assert len(rows) > 1 or name in FROM_EVENTS, name
        assert {len(row) for row in rows} == {len(rows[0])}, name


def table(finished: Path, name: str) -> list[dict[str, str]]:
    with (finished / "plots" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_figures_agree_with_the_metrics(finished: Path) -> None:
    metrics = json.loads((finished / "metrics.json").read_text())
    shares = table(finished, "ev_share")
    assert sum(int(row["packets"]) for row in shares) == 4 * 16
    late = sum(int(row["packets"]) for row in table(finished, "out_of_order"))
    assert late / 64 == pytest.approx(metrics["out_of_order_fraction"]["value"])
    depths = [int(row["depth_to"]) for row in table(finished, "out_of_order") if int(row["packets"])]
    assert max(depths) == metrics["out_of_order_depth_max"]["value"]
    assert len(table(finished, "path_delay")) == metrics["paths_used"]["value"]
    assert len(table(finished, "completion_times")) == metrics["messages_completed"]["value"]
    goodput = table(finished, "goodput")
    carried = sum(
        float(row[f"plane_{plane}_gbps"]) * (float(row["end_us"]) - float(row["start_us"])) * 1000 / 8
        for row in goodput
        for plane in range(4)
    )
    assert carried == pytest.approx(4 * 65_536, rel=1e-3)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run on models in which a link dies and comes back."""
    directory = tmp_path_factory.mktemp("report") / "faulty"
    run_small(
        directory,
        "workload.bytes_per_nic=524288",
        "faults=[{kind: down, link: p1.t0.1-p1.t1.2, from_us: 30, to_us: 60}]",
        "qp.congestion_control=nscc",
        "records.interval_ns=1000",
        factory=MODEL,
    )
    return directory


def test_states_of_paths_are_drawn_where_they_changed(faulty: Path) -> None:
    rows = table(faulty, "ev_map")
    bad = [row for row in rows if row["new"] == "ASSUMED_BAD"]
    assert bad
    assert {(row["plane"], int(row["ev"], 16) >> 16 & 0xFF) for row in bad} == {("1", 2)}
    page = (faulty / "report.html").read_text()
    picture = page.split('id="ev_map"')[1].split("</figure>")[0]
    worst = picture.split("EV states over time: ")[1].split("<")[0]
    drawn = set(re.findall(r"<title>EV (0x[0-9a-f]+), plane 1: ASSUMED_BAD", picture))
    host = worst.removeprefix("h").split("→")[0]
    assert drawn == {row["ev"] for row in bad if row["host"] == host}
    counted = table(faulty, "ev_states")
    assert max(int(row["assumed_bad"]) for row in counted) >= len(drawn)


def test_faults_are_marked_on_every_axis_of_time(faulty: Path) -> None:
    page = (faulty / "report.html").read_text()
    for name in ("goodput", "ev_map", "ev_states", "queues", "window", "rtt", "fault_1_begin", "fault_1_end"):
        picture = page.split(f'id="{name}"')[1].split("</figure>")[0]
        assert 'class="span"' in picture, name
        assert "down on link p1.t0.1-p1.t1.2" in picture, name


def test_each_fault_is_looked_at_closely(faulty: Path) -> None:
    rows = table(faulty, "fault_1_begin")
    assert float(rows[0]["start_us"]) < 30 < float(rows[-1]["end_us"])
    assert sum(int(row["losses"]) for row in rows) > 0
    assert sum(int(row["sent_again"]) for row in rows) > 0
    assert max(int(row["evs_bad"]) for row in rows) > 0
    before = [row for row in rows if float(row["end_us"]) < 30]
    assert sum(int(row["evs_bad"]) + int(row["losses"]) for row in before) == 0
    goodput = sum(
        float(row[f"plane_{plane}_gbps"]) * (float(row["end_us"]) - float(row["start_us"])) * 125
        for row in rows
        for plane in range(4)
    )
    packets = pq.read_table(faulty / "packets.parquet").to_pydict()
    low, high = float(rows[0]["start_us"]) * 1e6, float(rows[-1]["end_us"]) * 1e6
    seen = {}
    for time_ps, arrived, data, target, psn, size, trimmed in zip(
        *(packets[k] for k in ("time_ps", "arrived", "data", "target", "psn", "payload_bytes", "trimmed")),
        strict=True,
    ):
        if arrived and data and not trimmed and (target, psn) not in seen:
            seen[target, psn] = (time_ps, size)
    assert goodput == pytest.approx(sum(s for t, s in seen.values() if low <= t <= high), rel=1e-3)


def test_windows_and_round_trips_are_drawn(faulty: Path) -> None:
    windows, trips = table(faulty, "window"), table(faulty, "rtt")
    assert {row["flow"] for row in windows} == {"h0→h2", "h1→h3", "h2→h0", "h3→h1"}
    assert all(int(row["window_bytes"]) > 0 for row in windows)
    assert all(float(row["rtt_us"]) > 4 for row in trips)


def test_flows_of_several_queue_pairs_are_told_apart(tmp_path: Path) -> None:
    run_small(tmp_path / "run", "workload.queue_pairs=2", factory=MODEL)
    shares = table(tmp_path / "run", "ev_share")
    packets: dict[str, int] = {}
    for row in shares:
        packets[row["flow"]] = packets.get(row["flow"], 0) + int(row["packets"])
    assert len(packets) == 8
    assert set(packets.values()) == {8}
    assert {row["flow"] for row in table(tmp_path / "run", "rtt")} <= set(packets)


def test_a_sweep_shows_medians_and_ranges_over_seeds(tmp_path: Path) -> None:
    for seed in (1, 2):
        for entropy_values in (4, 8):
            out = tmp_path / f"{entropy_values}-{seed}"
            run_small(out, f"seed={seed}", f"qp.entropy_values={entropy_values}", factory=MODEL)
    result = CliRunner().invoke(mrc, ["report", str(tmp_path)])
    assert result.output.strip() == str(tmp_path / "sweep.html")
    page = (tmp_path / "sweep.html").read_text()
    assert "4 runs over <code>qp.entropy_values</code>" in page
    rows = list(csv.DictReader((tmp_path / "sweep.csv").read_text().splitlines()))
    assert [(row["qp.entropy_values"], row["seed"]) for row in rows] == [
        ("4", "1"), ("4", "2"), ("8", "1"), ("8", "2"),
    ]  # fmt: skip
    drawn = table(tmp_path, "goodput_gbps")
    assert [row["qp.entropy_values"] for row in drawn] == ["4", "8"]
    for row in drawn:
        values = [
            float(r["goodput_gbps"]) for r in rows if r["qp.entropy_values"] == row["qp.entropy_values"]
        ]
        assert float(row["least"]) == pytest.approx(min(values))
        assert float(row["largest"]) == pytest.approx(max(values))
    assert 'class="band' in page


def test_the_report_is_made_again_from_the_directory(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    before = (copy / "report.html").read_text()
    (copy / "report.html").unlink()
    shutil.rmtree(copy / "plots")
    result = CliRunner().invoke(mrc, ["report", str(copy)])
    assert result.exit_code == 0
    assert result.output.strip() == str(copy / "report.html")
    assert (copy / "report.html").read_text().replace("replay copy", "replay small") == before
    assert (copy / "plots" / "goodput.csv").read_bytes() == (finished / "plots" / "goodput.csv").read_bytes()


def test_a_run_of_before_a_metric_was_defined_is_still_reported(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    metrics = json.loads((copy / "metrics.json").read_text())
    del metrics["fct_us_p50"], metrics["window_packets"]
    metrics["of_another_time"] = {**metrics["paths_used"], "value": 7}
    (copy / "metrics.json").write_text(json.dumps(metrics))
    for file in ("events.parquet", "qps.json", "faults.json"):
        (copy / file).unlink()
    page = make_report(copy).read_text()
    assert "<code>fct_us_p50</code>" not in page
    assert "<code>of_another_time</code>" in page


def test_a_directory_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MrcError, match=r"must be the directory of a measured run, missing in it: run\.json"):
        make_report(tmp_path)


def test_a_run_in_which_nothing_arrived(tmp_path: Path) -> None:
    run_small(tmp_path / "run", "limits.simulated_time_us=5", "criteria=[]")
    page = (tmp_path / "run" / "report.html").read_text()
    assert 'id="criteria"' not in page
    assert "no data packet arrived" in page
    assert "No flow was completed." in page


def test_a_star_of_one_plane(tmp_path: Path) -> None:
    result = run_small(
        tmp_path / "run",
        "nic.parameters.planes=1",
        "fabric={hosts: 3, planes: 1, rate_gbps: 25}",
        "workload={kind: pairs, flow_pairs: [[0, 2], [1, 2]], bytes_per_nic: 32768, message_bytes: 8192}",
        "qp.entropy_values=2",
    )
    assert result.verdict == "PASS"
    assert result.metrics["messages_completed"].value == 8
    assert result.metrics["out_of_order_fraction"].value == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert (
        "T1"
        not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
        .split('id="ev_share"')[0]
        .split('id="arrivals"')[1]
    )


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (0, 0.9, [0, 0.2, 0.4, 0.6, 0.8]),
        (3, 11, [4, 6, 8, 10]),
        (5, 5, [5]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected
