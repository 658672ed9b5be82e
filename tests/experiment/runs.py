"""Small experiments for the tests, and runs of them on fake NICs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiment.fake_nic import fake_nic
from mrc_host.experiment.load import load_experiment
from mrc_host.experiment.nics import NicFactory
from mrc_host.experiment.runner import RunResult, run_experiment

QUICKSTART = Path(__file__).parents[2] / "experiments" / "quickstart.yaml"
SMALL = (
    "workload.bytes_per_nic=65536",
    "workload.message_bytes=16384",
    "workload.outstanding_messages=4",
    "limits.simulated_time_us=2000",
    "criteria=[{metric: bytes_mismatched, equals: 0, source: test}]",
)
"""The quickstart with 4 messages of 16 KiB for each NIC and one criterion."""


def run_small(out: Path, *settings: str, factory: NicFactory = fake_nic, **options: Any) -> RunResult:
    """Run the small experiment with more settings."""
    experiment = load_experiment(QUICKSTART, [*SMALL, *settings])
    return run_experiment(experiment, out=out, nic_factory=factory, **options)
