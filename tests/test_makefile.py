"""The Makefile names what a machine lacks before it makes anything.

Sweep: no python3, an old one, one that cannot make environments, no C++ compiler.
Stimulus: a PATH of stand-ins; the real make.
Checks: the message holds the command that brings what is missing, the exit code is not zero, no
environment is left behind; a second call with everything made does nothing.
Timing: bounded; nothing is installed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return a folder with the Makefile and a `bin` that holds only a shell's companions."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "rm", "touch", "make"):
        found = shutil.which(name)
        assert found is not None, f"{name} must be on PATH"
        (folder / name).symlink_to(found)
    return tmp_path


def program(machine: Path, name: str, script: str) -> None:
    path = machine / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def make(machine: Path, target: str = "install") -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(machine / "bin"), "HOME": os.environ.get("HOME", "")}
    return subprocess.run(
        ["make", target],
        cwd=machine,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def assert_named(machine: Path, message: str) -> None:
    result = make(machine)
    assert result.returncode != 0
    assert message in result.stderr
    assert not (machine / ".venv").exists()


def test_no_python(machine: Path) -> None:
    assert_named(machine, "python3 is missing. Get it: apt-get install python3 python3-venv")


def test_an_old_python(machine: Path) -> None:
    program(machine, "python3", 'case "$1" in -V) echo Python 3.9.2;; *) exit 1;; esac')
    assert_named(
        machine, "python3 must be 3.11 or newer, is Python 3.9.2. Get it: apt-get install python3.11"
    )


def test_a_python_without_ensurepip(machine: Path) -> None:
    program(machine, "python3", 'case "$2" in *ensurepip*) exit 1;; *) exit 0;; esac')
    assert_named(machine, "cannot make environments. Get it: apt-get install python3-venv")


def test_no_compiler(machine: Path) -> None:
    (machine / "bin/python3").symlink_to(sys.executable)
    assert_named(machine, "A C++ compiler (c++) is missing. Get it: apt-get install g++")


def test_an_environment_that_cannot_be_made_does_not_stay(machine: Path) -> None:
    program(machine, "python3", 'case "$2" in venv) mkdir .venv; exit 1;; *) exit 0;; esac')
    program(machine, "c++", "exit 0")
    (machine / "bin/mkdir").symlink_to(shutil.which("mkdir") or "mkdir")
    result = make(machine)
    assert result.returncode != 0
    assert not (machine / ".venv").exists()


def test_a_second_call_does_nothing(machine: Path) -> None:
    (machine / ".venv").mkdir()
    (machine / ".venv/.installed").touch()
    result = make(machine)
    assert result.returncode == 0
    assert "Installing" not in result.stdout


def test_help_names_the_two_commands(machine: Path) -> None:
    result = make(machine, "help")
    assert result.returncode == 0
    assert "make sim" in result.stdout
    assert "make test" in result.stdout
