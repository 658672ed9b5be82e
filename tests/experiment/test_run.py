"""Whole runs, on NICs of plain Python behind the real registers.

Sweep: windows of 1, 1/2 and 1/7; 1, 2 and 4 threads; wrong bytes in a message, a guard zone and unused
memory; an interruption; an error in a stage; what the command refuses.
Stimulus: the quickstart with 4 messages of 16 KiB for each NIC; faults by a hook in a NIC.
Checks: metrics bit for bit, verdicts, exit codes, the files of the run directory and what they say.
Timing: simulated; the limit of simulated time bounds every run.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from experiment.fake_nic import FakeNic, fake_nic
from experiment.runs import QUICKSTART, SMALL, run_small
from mrc_host.cli import mrc
from mrc_host.errors import ConfigError, InfrastructureError, MrcError
from mrc_host.experiment.load import load_experiment
from mrc_host.experiment.nics import NIC_FACTORIES, NicRequest
from mrc_host.experiment.rundir import RunDirectory
from mrc_host.packets.pcapng import read_capture

SAME = (
    "metrics.json",
    "counters.json",
    "flows.json",
    "messages.parquet",
    "packets.parquet",
    "queues.parquet",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished run."""
    directory = tmp_path_factory.mktemp("run") / "small"
    assert run_small(directory).exit_code == 0
    return directory


def document(directory: Path, name: str = "run.json") -> dict:
    return json.loads((directory / name).read_text())


@pytest.mark.parametrize(
    "settings",
    [
        ["runner.window_fraction=1/2"],
        ["runner.window_fraction=1/7"],
        ["runner.jobs=1"],
        ["runner.jobs=4"],
        ["runner.jobs=4", "runner.window_fraction=1/7"],
        [],
    ],
    ids=["half", "seventh", "one", "four", "both", "again"],
)
def test_how_it_is_run_changes_nothing(finished: Path, tmp_path: Path, settings: list[str]) -> None:
    run_small(tmp_path / "other", *settings)
    for name in SAME:
        assert (tmp_path / "other" / name).read_bytes() == (finished / name).read_bytes(), name
    assert document(tmp_path / "other")["experiment_sha256"] == document(finished)["experiment_sha256"]


def test_another_seed_changes_the_hash_but_not_the_verdict(finished: Path, tmp_path: Path) -> None:
    result = run_small(tmp_path / "other", "seed=2")
    assert result.verdict == "PASS"
    assert document(tmp_path / "other")["experiment_sha256"] != document(finished)["experiment_sha256"]


def test_run_directory(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert names >= {"run.json", "experiment.yaml", "journal.jsonl", "report.html", "plots", *SAME}
    assert not list(finished.rglob("*.part"))
    run = document(finished)
    assert run["complete"] is True
    assert run["interrupted"] is False
    assert run["verdict"] == "PASS"
    assert run["schema_version"] == 1
    assert run["speed"]["windows"] > 0
    assert "amaranth" in run["versions"]
    stages = [json.loads(line) for line in (finished / "journal.jsonl").read_text().splitlines()]
    ended = [entry["stage"] for entry in stages if entry["event"] == "stage stop"]
    assert ended == ["set up", "configure", "simulate", "verify", "measure", "report"]
    assert load_experiment(finished / "experiment.yaml").seed == 1


def test_metrics_of_a_run(finished: Path) -> None:
    metrics = document(finished, "metrics.json")
    assert metrics["bytes_verified"]["value"] == 4 * 65_536
    assert metrics["messages_completed"]["value"] == 16
    assert metrics["plane_imbalance_packets"]["value"] <= 1
    assert metrics["out_of_order_fraction"]["value"] > 0.1
    assert metrics["paths_used"]["value"] == 8
    assert 0.3 < metrics["goodput_over_bound"]["value"] < 1
    assert metrics["bytes_mismatched"]["limits"] == {"equals": 0, "source": "test"}
    fabric = document(finished, "counters.json")["fabric"]
    assert fabric["in_flight"] == 0
    assert fabric["entered"] == fabric["delivered"]


def test_times_of_messages(finished: Path) -> None:
    messages = pq.read_table(finished / "messages.parquet").to_pylist()
    assert len(messages) == 16
    for message in messages:
        # In memory, then complete at the receiver, then, after the way of an answer, at the sender.
        assert message["posted_ps"] < message["last_byte_ps"] <= message["receiver_done_ps"]
        assert message["receiver_done_ps"] + 4_000_000 < message["sender_done_ps"]


class Corrupting(FakeNic):
    """Writes a wrong byte where it is told to, halfway through."""

    place = 0

    def __init__(self, request: NicRequest) -> None:
        super().__init__(request)
        self.host = request.host
        self.fault = self.corrupt

    def corrupt(self, time_ps: int) -> None:
        if self.host == 2 and self.place is not None:
            self.memory[self.place] ^= 0x40
            self.place = None


@pytest.mark.parametrize("zone", ["guard before the message", "never given out"])
def test_bytes_outside_messages_are_noticed(tmp_path: Path, zone: str) -> None:
    def factory(request: NicRequest) -> FakeNic:
        nic = Corrupting(request)
        original = nic.watch

        def watch(tag: int, address: int, length: int) -> None:
            original(tag, address, length)
            if tag >= 1 << 16:
                nic.place = address - 1 if zone.startswith("guard") else len(nic.memory) - 1

        nic.watch = watch
        return nic

    result = run_small(tmp_path / "run", factory=factory)
    assert result.metrics["bytes_mismatched"].value == 1
    assert result.metrics["bytes_verified"].value == 4 * 65_536
    assert result.verdict == "FAIL"
    assert result.exit_code == 1


def test_a_wrong_byte_in_a_message_is_noticed(tmp_path: Path) -> None:
    class Wrong(FakeNic):
        def _store(self, time_ps: int, address: int, content) -> None:
            if len(content) == 4096 and not getattr(self, "spoilt", False):
                self.spoilt = True
                content = content.copy()
                content[17] ^= 1
            super()._store(time_ps, address, content)

    result = run_small(tmp_path / "run", factory=Wrong)
    assert result.metrics["bytes_mismatched"].value == 4  # one in each of the four NICs
    assert result.metrics["bytes_verified"].value == 4 * 65_536 - 4
    assert result.exit_code == 1


def test_the_limit_of_time_leaves_a_partial_run(tmp_path: Path) -> None:
    result = run_small(tmp_path / "run", "limits.simulated_time_us=60")
    assert result.complete is False
    assert result.exit_code == 0  # no byte was wrong, and that was judged
    assert result.metrics["messages_completed"].value < 16
    assert result.metrics["goodput_gbps"].value is None
    assert "limit of simulated time" in (tmp_path / "run" / "report.html").read_text()
    assert document(tmp_path / "run")["complete"] is False


def test_without_criteria_nothing_is_judged(tmp_path: Path) -> None:
    result = run_small(tmp_path / "run", "criteria=[]")
    assert (result.verdict, result.exit_code) == ("INCONCLUSIVE", 3)


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interruption_leaves_a_valid_partial_run(tmp_path: Path, jobs: int) -> None:
    def factory(request: NicRequest) -> FakeNic:
        nic = fake_nic(request)
        if request.host == 3:

            def interrupt(time_ps: int) -> None:
                if time_ps > 60_000_000:
                    raise KeyboardInterrupt

            nic.fault = interrupt
        return nic

    result = run_small(tmp_path / "run", f"runner.jobs={jobs}", factory=factory)
    assert result.exit_code == 130
    assert result.complete is False
    assert 0 < result.metrics["messages_completed"].value < 16
    assert result.metrics["bytes_mismatched"].value == 0
    assert result.metrics["bytes_mismatched"].verdict == "INCONCLUSIVE"
    run = document(tmp_path / "run")
    assert run["interrupted"] is True
    assert run["complete"] is False
    assert "Interrupted from the keyboard" in (tmp_path / "run" / "report.html").read_text()


def test_an_error_names_its_stage(tmp_path: Path) -> None:
    def factory(request: NicRequest) -> FakeNic:
        nic = fake_nic(request)

        def fail(time_ps: int) -> None:
            raise RuntimeError("wires crossed")

        nic.fault = fail
        return nic

    with pytest.raises(InfrastructureError, match="stage 'simulate' failed: RuntimeError: wires crossed"):
        run_small(tmp_path / "run", "runner.jobs=1", factory=factory)
    run = document(tmp_path / "run")
    assert run["complete"] is False
    assert run["verdict"] == "ERROR"
    assert "wires crossed" in (tmp_path / "run" / "journal.jsonl").read_text()


def test_memory_that_is_too_small_is_a_wrong_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nic\.memory\.size_mib must be at least 2 for the buffers, got 1"):
        run_small(tmp_path / "run", "nic.memory.size_mib=1", "workload.bytes_per_nic=524288", "criteria=[]")


def test_a_directory_with_files_is_refused(finished: Path) -> None:
    with pytest.raises(InfrastructureError, match="must be a new or empty directory"):
        RunDirectory(finished)


def test_names_of_new_directories_differ(tmp_path: Path) -> None:
    first, second = (RunDirectory.create("same", tmp_path) for _ in range(2))
    assert first.path != second.path
    assert first.path.name.endswith("-same")
    first.close()
    second.close()


def test_captures(tmp_path: Path) -> None:
    run_small(tmp_path / "run", "capture.pcap=true")
    files = sorted(path.name for path in (tmp_path / "run" / "pcap").iterdir())
    assert files == [f"h{host}.p{plane}.pcapng" for host in range(4) for plane in range(4)]
    frames = list(read_capture(tmp_path / "run" / "pcap" / "h0.p0.pcapng"))
    data = [frame for frame in frames if frame.original_length > 4000]
    assert {frame.direction for frame in data} == {1, 2}
    assert len(data) == 8  # a quarter of 16 packets each way


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    """Return a runner of commands, in an empty directory, with NICs of plain Python."""
    monkeypatch.setitem(NIC_FACTORIES, "rtl", fake_nic)
    monkeypatch.chdir(tmp_path)
    return CliRunner()


def run_command(cli: CliRunner, *arguments: str) -> tuple[object, str]:
    """Run a command as ``mrc`` does; return what becomes the exit code, and the output."""
    settings = [part for setting in SMALL for part in ("--set", setting)]
    result = cli.invoke(mrc, ["run", str(QUICKSTART), *settings, *arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.output


def test_run_command(cli: CliRunner, tmp_path: Path) -> None:
    code, output = run_command(cli, "--seed", "3", "--jobs", "1", "--pcap")
    assert code == 0
    (directory,) = (tmp_path / "runs").iterdir()
    assert directory.name.endswith("Z-quickstart")
    assert "bytes_mismatched" in output
    assert "PASS" in output
    assert "report.html" in output.replace("\n", "")
    assert document(directory)["seed"] == 3
    assert (directory / "pcap" / "h3.p3.pcapng").exists()


def test_exit_code_of_a_failed_criterion(cli: CliRunner) -> None:
    code, output = run_command(
        cli, "--set", "criteria=[{metric: paths_used, at_least: 9, source: test}]", "--out", "failed"
    )
    assert code == 1
    assert "FAIL" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--nic", "rtl,board"],
            "--nic must be rtl or model in this build, or several with commas, got 'rtl,",
        ),
        (["--fabric", "linux"], "--fabric must be model in this build, got 'linux'"),
        (["--waves", "fault±20us"], "waves must name a time where the experiment has no fault"),
        (["--nic", "model", "--waves", "1us..2us"], "--waves must go with NICs of gateware"),
    ],
)
def test_what_this_build_has_not_is_refused(cli: CliRunner, arguments: list[str], message: str) -> None:
    with pytest.raises(MrcError, match=message) as caught:
        run_command(cli, *arguments)
    assert caught.value.exit_code == 2
