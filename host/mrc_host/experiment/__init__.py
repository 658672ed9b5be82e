"""Experiments: description, workloads, the window runner, metrics and run directories.

From a script::

    from pathlib import Path
    from mrc_host.experiment import load_experiment, run_experiment

    experiment = load_experiment(Path("experiments/quickstart.yaml"), ["workload.bytes_per_nic=1048576"])
    result = run_experiment(experiment)
    print(result.verdict, result.metrics["goodput_gbps"].value, result.directory)

Names are imported when they are used, so that single parts can be had without the rest.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mrc_host.experiment.load import load_experiment, parse_experiment
    from mrc_host.experiment.runner import RunResult, run_experiment

__all__ = ["RunResult", "load_experiment", "parse_experiment", "run_experiment"]

_PLACES = {
    "RunResult": "mrc_host.experiment.runner",
    "load_experiment": "mrc_host.experiment.load",
    "parse_experiment": "mrc_host.experiment.load",
    "run_experiment": "mrc_host.experiment.runner",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
