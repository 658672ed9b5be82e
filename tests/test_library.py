"""The library: every block of docs/library.md runs, and the command and the library come to the same.

Sweep: all blocks of the page, in order; experiments as file, mapping and object; wrong use.
Stimulus: the page; the quickstart at reduced size on golden models.
Checks: what the blocks leave behind; equal metrics from command and library; errors.
Timing: none.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import mrc_host as mrc
from mrc_host.cli import mrc as command
from mrc_host.errors import MrcError
from mrc_host.experiment.load import parse_experiment

ROOT = Path(__file__).parents[1]
SMALL = {"workload.bytes_per_nic": 65536, "workload.message_bytes": 16384, "criteria": []}
MAPPING = {
    "name": "two",
    "nic": {"engine": "small"},
    "fabric": {"hosts": 2, "planes": 2, "rate_gbps": 1},
    "workload": {"kind": "pairs", "flow_pairs": [[0, 1]], "bytes_per_nic": 8192, "message_bytes": 4096},
}


def test_every_block_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    page = (ROOT / "docs" / "library.md").read_text()
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        lines = page[: page.index(block)].count("\n")
        exec(compile("\n" * lines + block, "docs/library.md", "exec"), names)
    assert names["run"].complete
    assert names["run"].value("messages_completed") == 16
    assert names["packet"].kind.startswith("WRITE") or names["packet"].kind in ("SACK", "ACKNOWLEDGE")
    assert names["change"].plane == 1
    assert "sent twice" in names["life"].summary
    assert names["comparison"].settings == [("qp.entropy_values", "4", "8")]
    assert names["outcome"].same


def test_command_and_library_come_to_the_same(tmp_path: Path) -> None:
    file = ROOT / "experiments" / "quickstart.yaml"
    run = mrc.run(file, {**SMALL, "seed": 5}, nic="model", out=tmp_path / "library")
    settings = ["--set", "workload.bytes_per_nic=65536", "--set", "workload.message_bytes=16384"]
    arguments = ["run", str(file), *settings, "--set", "criteria=[]", "--seed", "5", "--nic", "model"]
    result = CliRunner().invoke(command, [*arguments, "--out", str(tmp_path / "command")])
    assert result.exception is None
    assert (tmp_path / "command" / "metrics.json").read_bytes() == (run.path / "metrics.json").read_bytes()


def test_experiments_may_be_mappings_and_objects(tmp_path: Path) -> None:
    first = mrc.run(MAPPING, nic="model", out=tmp_path / "mapping")
    second = mrc.run(parse_experiment(MAPPING), nic="model", out=tmp_path / "object")
    assert first.value("messages_completed") == second.value("messages_completed") == 2
    assert first.settings == second.settings
    with pytest.raises(MrcError, match=r"settings must be left out where the experiment is no file"):
        mrc.run(MAPPING, {"seed": 2}, nic="model", out=tmp_path / "never")


def test_what_a_run_does_not_have_is_named(tmp_path: Path) -> None:
    run = mrc.run(MAPPING, nic="model", out=tmp_path / "run")
    assert repr(run).startswith("Run('") and "seed 1" in repr(run)
    with pytest.raises(MrcError, match=r"metric must be one of .*, bytes_verified, .*, got 'speed'"):
        run.value("speed")
    with pytest.raises(MrcError, match=r"table must be one of messages, packets, .*, got 'frames'"):
        run.table("frames")
    with pytest.raises(MrcError, match=r"one with a capture \(none: run it with --pcap\), got 'h0.p0'"):
        run.frames("h0.p0")
    (run.path / "queues.parquet").unlink()
    with pytest.raises(MrcError, match=r"must hold queues\.parquet, but was recorded without it"):
        run.columns("queues")
    with pytest.raises(MrcError, match=r"must be the directory of a run, missing in it: run\.json"):
        mrc.open_run(tmp_path)


def test_importing_the_library_imports_nothing_of_it() -> None:
    heavy = ("numpy", "pydantic", "pyarrow", "click")
    code = f"import sys, mrc_host; print([name for name in {heavy} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


def test_every_name_of_the_library_is_there() -> None:
    for name in mrc.__all__:
        assert callable(getattr(mrc, name)), name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = mrc.nothing
