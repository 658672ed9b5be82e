"""`.ci/run` with stand-ins for everything it calls.

Sweep: all steps pass, a required step fails, optional installations fail, no package manager.
Stimulus: a folder with a copy of the script and programs that only print.
Checks: exit code, steps taken, what is installed, the closing lines of pytest in the summary.
Timing: bounded; nothing is installed or compiled.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COMPANIONS = (
    "bash",
    "env",
    "dirname",
    "basename",
    "mktemp",
    "rm",
    "touch",
    "tee",
    "grep",
    "sed",
    "id",
    "cat",
)
CLOSING_LINE = "== 12 passed, 1 skipped in 3.45s =="


def program(machine: Path, name: str, script: str) -> None:
    path = machine / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "$(basename "$0") $*" >> "{machine}/calls"\n{script}\n')
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return a folder where every step passes, the compiler is there, and nothing can be installed."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    (tmp_path / "bin").mkdir()
    for name in COMPANIONS:
        found = shutil.which(name)
        assert found is not None, f"{name} must be on PATH"
        (tmp_path / "bin" / name).symlink_to(found)
    (tmp_path / "bin/python3").symlink_to(sys.executable)
    program(tmp_path, "bin/c++", "exit 0")
    program(tmp_path, "bin/make", f'echo "{CLOSING_LINE}"')
    program(tmp_path, ".venv/bin/nox", f'echo "{CLOSING_LINE}"')
    program(tmp_path, ".venv/bin/mrc", "exit 0")
    (tmp_path / "calls").touch()
    return tmp_path


def run(machine: Path) -> tuple[int, str, list[str]]:
    result = subprocess.run(
        [str(machine / ".ci/run")],
        env={"PATH": str(machine / "bin"), "HOME": os.environ.get("HOME", "")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return result.returncode, result.stdout, (machine / "calls").read_text().splitlines()


def test_everything_passes(machine: Path) -> None:
    code, output, calls = run(machine)
    assert code == 0, output
    assert "make --no-print-directory test" in calls
    assert "nox -s synth" in calls
    assert any(call.startswith("nox -s bench -- --reduced") for call in calls)
    assert "nox -s histories" in calls
    assert "nox -s schema" in calls
    assert "nox -s formal" in calls
    assert "nox -s coverage" in calls
    assert "nox -s mutants -- --quick" in calls
    assert "nox -s fuzz -- --frames 20000" in calls
    assert output.count(f"    {CLOSING_LINE}") == 9
    assert "everything passed in 0 minutes" in output


def test_a_failed_step_fails_the_run_and_the_others_still_run(machine: Path) -> None:
    program(machine, "bin/make", "echo '1 failed, 3 passed in 2.00s'; exit 2")
    code, output, calls = run(machine)
    assert code == 1
    assert "failed: test" in output
    assert "nox -s synth" in calls


def test_missing_extras_do_not_fail_the_run(machine: Path) -> None:
    code, output, _ = run(machine)
    assert code == 0
    assert "going on without tshark" in output
    assert "apt-get is missing: cannot install tshark" in output


@pytest.mark.skipif(os.getuid() != 0, reason="installs only as root, or with sudo that asks nothing")
def test_what_is_missing_is_installed(machine: Path) -> None:
    (machine / "bin/c++").unlink()
    program(machine, "bin/apt-get", 'case "$*" in *tshark*) exit 100;; esac')
    code, output, calls = run(machine)
    assert code == 0
    installs = [call.split("--no-install-recommends ")[1] for call in calls if "install" in call]
    assert "g++" in installs
    assert "iverilog" in installs
    assert sum("update" in call for call in calls) == 1
    assert "going on without tshark" in output


def test_icarus_is_used_where_it_is(machine: Path) -> None:
    program(machine, "bin/iverilog", "exit 0")
    _, _, calls = run(machine)
    assert any(call.startswith("nox -s tb -- --sim icarus") for call in calls)
