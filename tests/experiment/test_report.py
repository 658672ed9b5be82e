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

import pytest
from click.testing import CliRunner

from experiment.runs import run_small
from mrc_host.cli import mrc
from mrc_host.errors import MrcError
from mrc_host.experiment.definitions import DEFINITIONS
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
    "queues",
    "ev_share",
)


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
        assert len(rows) > 1, name
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


def test_the_report_is_made_again_from_the_directory(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    before = (copy / "report.html").read_text()
    (copy / "report.html").unlink()
    shutil.rmtree(copy / "plots")
    result = CliRunner().invoke(mrc, ["report", str(copy)])
    assert result.exit_code == 0
    assert result.output.strip() == str(copy / "report.html")
    assert (copy / "report.html").read_text().replace("copy/experiment", "small/experiment") == before
    assert (copy / "plots" / "goodput.csv").read_bytes() == (finished / "plots" / "goodput.csv").read_bytes()


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
