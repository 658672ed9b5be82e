"""Experiments, fabric, NIC drivers, packets, reports and the `mrc` command.

From a script or a notebook::

    import mrc_host as mrc

    finished = mrc.run("experiments/quickstart.yaml", {"seed": 7}, nic="model")
    print(finished.verdict, finished.value("goodput_gbps"))

Names are imported when they are used, so that `mrc --help` imports nothing. See docs/library.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

from mrc_host.compiled import activate

if TYPE_CHECKING:
    from mrc_host.library import compare, export_perfetto, replay, run, why
    from mrc_host.results import Run, open_run, open_runs

__all__ = ["Run", "compare", "export_perfetto", "open_run", "open_runs", "replay", "run", "why"]

_PLACES = {
    **dict.fromkeys(("compare", "export_perfetto", "replay", "run", "why"), "mrc_host.library"),
    **dict.fromkeys(("Run", "open_run", "open_runs"), "mrc_host.results"),
}

activate()


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
