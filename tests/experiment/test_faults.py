"""Faults in whole runs: from the experiment file through the run to the report, on NICs of plain Python.

Sweep: windows of 1 and 1/7; a fault that matters, one that meets nothing, one after the end; every example of
the faults page.
Stimulus: the quickstart with 4 messages of 16 KiB for each NIC; the NICs never retransmit.
Checks: what arrives, verdict and error, faults.json, metrics, what NICs are told, marks in the report.
Timing: simulated; the limit of simulated time bounds every run.
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from experiment.fake_nic import FakeNic
from experiment.runs import QUICKSTART, run_small
from mrc_host.errors import ConfigError
from mrc_host.experiment.load import load_experiment, resolved_yaml
from mrc_host.fabric.faults import FAULTS, FaultSpec
from mrc_host.fabric.faults.base import SELECTORS
from mrc_rtl.wire import Dscp

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


class TrimmableNic(FakeNic):
    """A NIC whose data may be trimmed, which it notices."""

    data_dscp = Dscp.TRIMMABLE


SHORT = "limits.simulated_time_us=150"


def faults_of(directory: Path) -> list[dict]:
    return json.loads((directory / "faults.json").read_text())


def test_a_delay_changes_times_and_nothing_else(tmp_path: Path) -> None:
    plain = run_small(tmp_path / "plain")
    late = run_small(tmp_path / "late", "faults=[{kind: delay, plane: [0, 1, 2, 3], delay_ns: 5000}]")
    assert late.verdict == "PASS"
    assert late.metrics["bytes_verified"].value == plain.metrics["bytes_verified"].value
    assert late.metrics["fct_us_p50"].value >= plain.metrics["fct_us_p50"].value + 5
    assert faults_of(tmp_path / "plain") == []
    [fault] = faults_of(tmp_path / "late")
    assert fault["met"] == fault["hit"] > 64
    assert late.metrics["fault_hits"].value == fault["hit"]


def test_loss_is_counted_marked_and_shown(tmp_path: Path) -> None:
    result = run_small(
        tmp_path / "run",
        SHORT,
        'faults=[{kind: blackhole, link: "p0.t0.1-p0.t1.1", traffic: data, from_us: 4, to_us: 90},'
        " {kind: random_loss, plane: 1, probability: 0.2, from_us: 2}]",
        "criteria=[{metric: packets_lost, at_least: 1, source: test}]",
    )
    assert result.verdict == "PASS"
    assert result.complete is False, "the fake NICs never send again"
    hole, loss = faults_of(tmp_path / "run")
    assert (
        hole["hit"] + loss["hit"]
        == result.metrics["packets_lost"].value
        == result.metrics["fault_hits"].value
    )
    assert (hole["place"], hole["traffic"]) == ("link p0.t0.1-p0.t1.1", "data")
    page = (tmp_path / "run" / "report.html").read_text()
    assert '<section id="faults">' in page
    assert "1 blackhole" in page
    assert "2 random loss" in page
    goodput = (tmp_path / "run" / "plots" / "goodput.svg").read_text()
    assert goodput.count('class="span"') == 2


@pytest.mark.parametrize("fraction", ["1", "1/7"])
def test_nics_are_told_at_the_right_time_whatever_the_windows(tmp_path: Path, fraction: str) -> None:
    nics: list[FakeNic] = []

    def keep(testbed) -> None:
        nics.extend(nic for nic in testbed.nics if isinstance(nic, FakeNic))

    run_small(
        tmp_path / "run",
        SHORT,
        f"runner.window_fraction={fraction}",
        "faults=[{kind: flap, port: h1.p2, period_us: 30, down_us: 10, from_us: 5, to_us: 80, signal: true}]",
        prepare=keep,
    )
    told = [[(time, port, up) for time, port, up in nic.link_changes] for nic in nics]
    assert [len(changes) for changes in told] == [0, 6, 0, 0]
    first = told[1][0][0]
    assert [(time - first, port, up) for time, port, up in told[1]] == [
        (0, 2, False),
        (10_000_000, 2, True),
        (30_000_000, 2, False),
        (40_000_000, 2, True),
        (60_000_000, 2, False),
        (70_000_000, 2, True),
    ]
    assert faults_of(tmp_path / "run")[0]["signals"] == 6


def test_windows_do_not_show_with_faults(tmp_path: Path) -> None:
    settings = (
        SHORT,
        "fabric.trimming={size_bytes: 128}",
        "faults=[{kind: duplicate, plane: 0, probability: 0.3, delay_ns: 700, traffic: acks},"
        " {kind: reorder, plane: [1, 2], probability: 0.3, delay_ns: 3000},"
        ' {kind: slow, link: "p3.t0.*-p3.t1.*", rate_share: 0.5}]',
    )
    run_small(tmp_path / "one", *settings)
    run_small(tmp_path / "other", *settings, "runner.window_fraction=1/7", "runner.jobs=1")
    for name in ("metrics.json", "faults.json", "counters.json", "packets.parquet", "queues.parquet"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes(), name


def test_a_fault_that_meets_nothing_is_an_error_after_all_is_measured(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"faults\.0 must be a fault that meets a packet in the run"
    ) as caught:
        run_small(tmp_path / "run", "faults=[{kind: blackhole, plane: 0, traffic: probes}]")
    assert caught.value.exit_code == 2
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert document["verdict"] == "ERROR"
    assert "faults.0" in document["error"]
    assert (
        json.loads((tmp_path / "run" / "metrics.json").read_text())["bytes_verified"]["value"] == 4 * 65_536
    )
    assert "faults.0 must be a fault that meets" in (tmp_path / "run" / "report.html").read_text()


def test_a_fault_after_the_end_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"faults\.0 .* from 1900 µs"):
        run_small(tmp_path / "run", "faults=[{kind: down, plane: 0, from_us: 1900}]")


# -- the file --------------------------------------------------------------------------------------------


def test_mistakes_are_named_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    text = QUICKSTART.read_text() + "\nfaults:\n  - kind: down\n    link: h0-p0.t0.1\n    {}\n"
    lines = text[: text.index("{}")].count("\n") + 1
    for line, message in (
        ("form_us: 3", "faults.0.form_us must be a known key (did you mean from_us?): kind, link, port"),
        ("to_us: 0", "faults.0.to_us must be a number of microseconds above 0 to 1e+09, got 0"),
        ("signal: 2", "faults.0.signal must be true or false, got 2"),
        ("traffic: data", "faults.0.traffic must be all: down acts on everything, got 'data'"),
    ):
        file.write_text(text.replace("{}", line))
        with pytest.raises(ConfigError) as caught:
            load_experiment(file)
        assert str(caught.value).startswith(f"{file}:{lines}: {message}")
    file.write_text(text.replace("{}", "plane: 9"))
    with pytest.raises(ConfigError, match=r"mine\.yaml:\d+: faults\.0 must be a fault with exactly one of"):
        load_experiment(file)


def test_an_ev_must_be_one_of_the_queue_pairs() -> None:
    with pytest.raises(
        ConfigError, match=r"faults\.0\.ev must be one of a queue pair's 32 EVs, such as 0xc0010000"
    ):
        load_experiment(QUICKSTART, ["faults=[{kind: blackhole, ev: 0xc00100ff}]"])


def test_a_resolved_file_has_the_same_faults(tmp_path: Path) -> None:
    settings = [
        "faults=[{kind: blackhole, ev: [0xc0010000, '0xc1020000']},"
        " {kind: flap, plane: 0, period_us: 9, down_us: 1}]"
    ]
    experiment = load_experiment(QUICKSTART, settings)
    (tmp_path / "again.yaml").write_text(resolved_yaml(experiment))
    assert load_experiment(tmp_path / "again.yaml") == experiment


# -- the page --------------------------------------------------------------------------------------------

EXAMPLES = re.findall(r"^### `(\w+)`\n(.*?)```yaml\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_every_kind_has_its_section_with_all_its_fields() -> None:
    assert [kind for kind, _, _ in EXAMPLES] == sorted(FAULTS)
    for kind, text, _ in EXAMPLES:
        own = set(FAULTS[kind].model_fields) - set(FaultSpec.model_fields)
        for field in own:
            assert f"`{field}`" in text, (kind, field)
        places = ", ".join(FAULTS[kind].SELECTORS)
        assert f"On: {places}" in text, (kind, places)
    assert SELECTORS == ("link", "port", "switch", "plane", "ev")


@pytest.mark.parametrize(("kind", "example"), [(kind, example) for kind, _, example in EXAMPLES])
def test_every_example_of_the_page_runs_and_hits(tmp_path: Path, kind: str, example: str) -> None:
    faults = YAML(typ="safe").load(example)
    assert [fault["kind"] for fault in faults] == [kind]
    result = run_small(tmp_path / "run", SHORT, f"faults={json.dumps(faults)}", factory=TrimmableNic)
    [outcome] = faults_of(tmp_path / "run")
    assert outcome["kind"] == kind
    assert outcome["hit"] > 0
    assert result.metrics["bytes_mismatched"].value == 0


def test_the_kind_of_the_readers_own_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "fault_of_the_reader.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        importlib.import_module("fault_of_the_reader")
        run_small(tmp_path / "run", "faults=[{kind: hiccup, plane: 0, probability: 0.5}]")
        assert faults_of(tmp_path / "run")[0]["hit"] > 0
    finally:
        FAULTS.pop("hiccup", None)
