"""A run is repeated: the same again bit for bit, or the first difference is named.

Sweep: models, a NIC of plain Python, a run whose records were changed, an interrupted one.
Stimulus: the small experiment with a fault.
Checks: outcome, text, exit code.
Timing: none.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from experiment.fake_nic import fake_nic
from experiment.runs import run_small
from mrc_host.cli import mrc
from mrc_host.errors import MrcError
from mrc_host.experiment.nics import NicKinds
from mrc_host.life.replay import replay, replay_text
from mrc_host.results import Run

MODEL = NicKinds.parse("model")
FAULT = "faults=[{kind: random_loss, plane: 1, probability: 0.1}]"


def test_a_run_comes_to_the_same_again(tmp_path: Path) -> None:
    run_small(tmp_path / "run", FAULT, "runner.jobs=1", factory=MODEL)
    result = CliRunner().invoke(
        mrc, ["replay", str(tmp_path / "run"), "--out", str(tmp_path / "again")], standalone_mode=False
    )
    assert result.return_value == 0
    assert result.output.startswith("the same again, bit for bit: ")
    again = Run(tmp_path / "again")
    assert again.document["nic"] == "model"
    assert (again.path / "metrics.json").read_bytes() == (tmp_path / "run" / "metrics.json").read_bytes()


def test_a_difference_is_named_where_it_begins(tmp_path: Path) -> None:
    run_small(tmp_path / "run", factory=fake_nic)
    run = Run(tmp_path / "run")
    table = run.table("packets")
    times = table.column("time_ps").to_pylist()
    times[17] += 1
    changed = table.set_column(table.column_names.index("time_ps"), "time_ps", pa.array(times, pa.int64()))
    pq.write_table(changed, run.path / "packets.parquet")
    metrics = json.loads((run.path / "metrics.json").read_text())
    metrics["paths_used"]["value"] += 1
    (run.path / "metrics.json").write_text(json.dumps(metrics))
    document = json.loads((run.path / "run.json").read_text())
    document["source"] = {"commit": "0" * 40, "diff_sha256": None}
    (run.path / "run.json").write_text(json.dumps(document))
    outcome = replay(Run(run.path), out=tmp_path / "again", factory=fake_nic)
    assert not outcome.same
    assert [name for name, *_ in outcome.metrics] == ["paths_used"]
    assert outcome.rows[0].startswith("packets: row 17 was {'time_ps': ")
    text = replay_text(outcome)
    assert "first difference in packets: row 17" in text
    assert "the sources differ: commit 000000000000 then" in text


def test_an_interrupted_run_is_refused(tmp_path: Path) -> None:
    run_small(tmp_path / "run", factory=fake_nic)
    file = tmp_path / "run" / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "interrupted": True}))
    with pytest.raises(MrcError, match="must be a run that was not interrupted"):
        replay(Run(tmp_path / "run"), factory=fake_nic)
