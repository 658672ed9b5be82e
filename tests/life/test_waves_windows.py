"""Windows of waveforms: what a user may write, and what NICs are told of it.

Sweep: faults, times and spans in all units; wrong texts; mixed NICs.
Stimulus: texts; a run on NICs of plain Python that take the place of those with waveforms.
Checks: windows in picoseconds, counted from the start of the run; files end in the run directory; errors.
Timing: none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from experiment.fake_nic import FakeNic, fake_nic
from experiment.runs import QUICKSTART, SMALL, run_small
from mrc_host.cli import mrc
from mrc_host.errors import MrcError
from mrc_host.experiment import runner
from mrc_host.experiment.load import load_experiment
from mrc_host.experiment.nics import NicRequest
from mrc_host.life import waves as module
from mrc_host.life.waves import WavesKinds, waves_windows
from mrc_host.results import Run

FAULT = "faults=[{kind: blackhole, plane: 1, from_us: 30, to_us: 50.5}, {kind: mark, plane: 0, from_us: 2}]"
EXPERIMENT = load_experiment(QUICKSTART, [*SMALL, FAULT])
US = 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fault±20us", [(0, 22 * US), (10 * US, 50 * US), (30_500_000, 70_500_000)]),
        ("fault+-500ns", [(1_500_000, 2_500_000), (29_500_000, 30_500_000), (50 * US, 51 * US)]),
        ("53.4us±5us", [(48_400_000, 58_400_000)]),
        ("10us..30us, 1ms..1.5ms", [(10 * US, 30 * US), (1000 * US, 1500 * US)]),
        ("2µs+/-100ns", [(1_900_000, 2_100_000)]),
    ],
)
def test_texts_and_windows(text: str, expected: list[tuple[int, int]]) -> None:
    assert waves_windows(text, EXPERIMENT) == expected


@pytest.mark.parametrize("text", ["fault", "20us", "fault±20", "10us..", "30us..10us", "fault±0us"])
def test_wrong_texts_are_refused(text: str) -> None:
    with pytest.raises(MrcError, match="waves must be "):
        waves_windows(text, EXPERIMENT)


def test_faults_that_do_not_exist() -> None:
    with pytest.raises(MrcError, match="must name a time where the experiment has no fault"):
        waves_windows("fault±20us", load_experiment(QUICKSTART, SMALL))


def test_models_have_no_waveforms() -> None:
    with pytest.raises(MrcError, match=r"--waves must go with NICs of gateware: --nic rtl, got model"):
        WavesKinds(("model",))


class WindowedNic(FakeNic):
    """A fake NIC that notes its windows in a file."""

    def __init__(self, config: Any, mac: Any, memory: Any, *, file: Path, progress: Any) -> None:
        super().__init__(NicRequest(0, config, mac, memory, progress))
        self._file = file

    def show(self, begin_ps: int, end_ps: int) -> None:
        with self._file.open("a") as file:
            file.write(f"{begin_ps} {end_ps}\n")


def test_windows_count_from_the_start_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WavesNic", WindowedNic)
    monkeypatch.setattr(runner, "netlist_sha256", lambda experiment: "0")
    arguments = ["run", str(QUICKSTART), *(text for setting in SMALL for text in ("--set", setting))]
    CliRunner().invoke(mrc, [*arguments, "--out", str(tmp_path / "run"), "--waves", "10us..20us"])
    files = sorted(path.name for path in (tmp_path / "run" / "wave").iterdir())
    assert files == ["h0.vcd", "h1.vcd", "h2.vcd", "h3.vcd"]
    begin, end = map(int, (tmp_path / "run" / "wave" / "h2.vcd").read_text().split())
    assert end - begin == 10 * US
    assert begin % US == 0 and begin >= 10 * US
    run = Run(tmp_path / "run")
    assert run.complete and run.document["nic"] == "rtl"


def test_a_run_is_repeated_for_its_waveforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WavesNic", WindowedNic)
    monkeypatch.setattr(runner, "netlist_sha256", lambda experiment: "0")
    run_small(tmp_path / "run", factory=fake_nic)
    text = (tmp_path / "run" / "run.json").read_text()
    (tmp_path / "run" / "run.json").write_text(text.replace('"nic": "other"', '"nic": "rtl"'))
    arguments = ["replay", str(tmp_path / "run"), "--out", str(tmp_path / "again"), "--waves", "1us..2us"]
    result = CliRunner().invoke(mrc, arguments, standalone_mode=False)
    assert result.return_value == 0, result.exception
    assert str(tmp_path / "again" / "wave" / "h3.vcd") in result.output
    assert "the same again, bit for bit" in result.output
