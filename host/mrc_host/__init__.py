"""Experiments, fabric, NIC drivers, packets, reports and the `mrc` command.

From a script or a notebook::

    import mrc_host as mrc

    finished = mrc.open_run("runs/mine")
    print(finished.verdict, finished.value("goodput_gbps"))

Names are imported when they are used, so that `mrc --help` imports nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from mrc_host.compiled import activate

if TYPE_CHECKING:
    from mrc_host.library import compare, why
    from mrc_host.results import Run, open_run, open_runs

__all__ = ["Run", "compare", "open_run", "open_runs", "why"]

_PLACES = {
    "Run": "mrc_host.results",
    "compare": "mrc_host.library",
    "open_run": "mrc_host.results",
    "open_runs": "mrc_host.results",
    "why": "mrc_host.library",
}

activate()


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
