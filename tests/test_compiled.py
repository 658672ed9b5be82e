"""The compiled model: the same results as plain Python, and never a compilation of other source.

Sweep: both ways to run; each answer of the search for a compilation; each tool that may be missing.
Stimulus: one experiment of model NICs with trims and losses; edited source; an emptied PATH.
Checks: all metrics and the packet log equal; keys; messages.
Timing: bounded by the two runs, and by one compilation when the cache has none.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mrc_host import compiled, compiler
from mrc_host.errors import InfrastructureError

SETTINGS = (
    "faults=[{kind: random_loss, plane: 1, probability: 0.01}, "
    "{kind: trim_storm, switch: p0.t1.1, share: 0.05}]",
    "fabric.trimming={correct_lengths: false}",
    "workload.bytes_per_nic=1048576",
    "qp.congestion_control=nscc",
)
JUDGED = (0, 1)
"""Exit codes of a run that ended; the criteria in the experiment's file do not fit these settings."""


def run_quickstart(folder: Path, wish: str) -> tuple[dict[str, object], bytes, dict[str, object]]:
    """Metrics, packet log and versions of a run in a process of its own."""
    command = [sys.executable, "-m", "mrc_host", "run", "experiments/quickstart.yaml", "--nic", "model"]
    command += ["--out", str(folder)]
    for setting in SETTINGS:
        command += ["--set", setting]
    done = subprocess.run(
        command,
        env={**os.environ, "MRC_COMPILED": wish},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode in JUDGED, done.stdout + done.stderr
    (run,) = folder.rglob("run.json")
    metrics = json.loads((run.parent / "metrics.json").read_text())
    return metrics, (run.parent / "packets.parquet").read_bytes(), json.loads(run.read_text())["versions"]


def test_compiled_and_plain_runs_are_equal(tmp_path: Path) -> None:
    missing = compiler.missing_tools()
    if missing:
        pytest.skip(f"compiling needs {' and '.join(missing)}")
    plain = run_quickstart(tmp_path / "plain", "0")
    fast = run_quickstart(tmp_path / "compiled", "1")
    assert plain[2]["model"] == "plain"
    assert fast[2]["model"] == "compiled"
    assert plain[0] == fast[0]
    assert plain[1] == fast[1]


def test_edited_source_has_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "module.py"
    source.write_text("A = 1\n")
    monkeypatch.setattr(compiler, "imported_sources", lambda: [source])
    before = compiler.compilation_key()
    assert compiler.compilation_key() == before
    source.write_text("A = 2\n")
    assert compiler.compilation_key() != before


def test_every_module_and_what_it_imports_counts() -> None:
    sources = compiled.imported_sources()
    assert {compiled.source_of(module) for module in compiled.MODULES} <= set(sources)
    assert compiled.source_of("mrc_rtl.wire") in sources
    assert compiled.source_of("mrc_rtl.config") in sources
    assert all(source.is_file() for source in sources)


def test_nothing_in_the_cache_means_plain_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path))
    finder = compiled.Finder(make=False)
    assert finder.find_spec("mrc_host.model.engine", None) is None
    assert finder.found is False


def test_other_modules_are_left_to_python() -> None:
    finder = compiled.Finder(make=True)
    assert finder.find_spec("mrc_host.cli", None) is None
    assert finder.found is None


def test_what_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="a C compiler .cc; apt-get install gcc."):
        compiled.Finder(make=True).look()
    monkeypatch.setattr(sys, "argv", ["compiler"])
    compiler.main()
    assert capsys.readouterr().out.startswith(
        "The model runs as plain Python, several times slower: compiling the"
    )


@pytest.mark.parametrize("wish", ["2", "yes"])
def test_other_wishes_are_refused(wish: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import mrc_host"],
        env={**os.environ, "MRC_COMPILED": wish},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert f"MRC_COMPILED must be 0 or 1, got '{wish}'" in done.stderr
