"""What scripts and notebooks call, and the `mrc` command too: it only reads arguments and prints.

Source: interfaces.md, "Commands".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrc_host.errors import MrcError
from mrc_host.results import Run, open_run, open_runs

if TYPE_CHECKING:
    from mrc_host.comparison.compare import Comparison
    from mrc_host.experiment.nics import NicFactory
    from mrc_host.experiment.progress import ProgressView
    from mrc_host.experiment.schema import Experiment
    from mrc_host.life.replay import Replay
    from mrc_host.life.story import Life

__all__ = ["compare", "export_perfetto", "replay", "report", "run", "why"]


def compare(first: str | Path, second: str | Path, *, tolerance: float = 0.0) -> Comparison:
    """Compare two runs, or two sets of runs over seeds.

    Parameters
    ----------
    first, second : path
        The baseline, and what is compared with it: a run directory, or a folder that holds some.
    tolerance : float
        Share by which a ratio may differ from 1 without being a difference.

    Raises
    ------
    MrcError
        There are no finished runs in a folder, or two of one seed.
    """
    from mrc_host.comparison.compare import Side
    from mrc_host.comparison.compare import compare as compare_sides

    names = _names([Path(first), Path(second)])
    sides = [Side.of(name, open_runs(path)) for name, path in zip(names, (first, second), strict=True)]
    return compare_sides(sides[0], sides[1], tolerance=tolerance)


def export_perfetto(
    path: str | Path, out: str | Path | None = None, *, from_us: float = 0.0, to_us: float | None = None
) -> Path:
    """Write a run as a trace for ui.perfetto.dev; see :func:`mrc_host.export.perfetto.export_perfetto`.

    Parameters
    ----------
    path : path
        The run directory.
    out : path, optional
        The file; ``trace.perfetto.json`` in the directory by default.
    from_us, to_us : float
        Only what happened between these times.

    Raises
    ------
    MrcError
        It is no measured run, or the times are in the wrong order.
    """
    from mrc_host.export.perfetto import export_perfetto as export

    return export(Path(path), None if out is None else Path(out), from_us=from_us, to_us=to_us)


def replay(run: Run | str | Path, *, out: str | Path | None = None) -> Replay:
    """Repeat a finished run in a new directory and compare; see :func:`mrc_host.life.replay.replay`.

    Parameters
    ----------
    run : Run or path
        The run, or its directory.
    out : path, optional
        The new run directory.

    Raises
    ------
    MrcError
        The run was interrupted, or its NICs cannot be made again.
    """
    from mrc_host.life.replay import replay as repeat

    return repeat(run if isinstance(run, Run) else open_run(run), out=None if out is None else Path(out))


def run(
    experiment: Experiment | Mapping[str, Any] | str | Path,
    settings: Mapping[str, Any] | None = None,
    *,
    nic: str | NicFactory = "rtl",
    out: str | Path | None = None,
    view: ProgressView | None = None,
) -> Run:
    """Run an experiment.

    Parameters
    ----------
    experiment : path, mapping or Experiment
        A YAML file; the same as nested mappings; or an experiment that was checked already.
    settings : mapping, optional
        Values by dotted key that replace those of a file, such as ``{"seed": 7, "qp.mtu_bytes": 1024}``.
    nic : str or callable
        ``rtl``, ``model``, both with a comma, or what makes the NICs.
    out : path, optional
        Run directory, new or empty; ``runs/<UTC>-<name>`` by default.
    view : ProgressView, optional
        Shows what goes on; nothing by default.

    Raises
    ------
    ConfigError
        The experiment is not allowed, or a fault met nothing.
    InfrastructureError
        A stage failed.
    MrcError
        There are settings, but no file.
    """
    from mrc_host.experiment.load import load_experiment, parse_experiment
    from mrc_host.experiment.nics import NicKinds
    from mrc_host.experiment.runner import run_experiment

    if isinstance(experiment, str | Path):
        texts = [f"{key}={json.dumps(value)}" for key, value in (settings or {}).items()]
        checked = load_experiment(Path(experiment), texts)
    elif settings:
        raise MrcError(f"settings must be left out where the experiment is no file, got {dict(settings)}")
    else:
        checked = parse_experiment(experiment) if isinstance(experiment, Mapping) else experiment
    factory = NicKinds.parse(nic) if isinstance(nic, str) else nic
    result = run_experiment(checked, out=None if out is None else Path(out), nic_factory=factory, view=view)
    return Run(result.directory)


def report(path: str | Path) -> Path:
    """Make the report of a run, or of all runs in a folder as a sweep; returns the page.

    Parameters
    ----------
    path : path
        A run directory, or a folder that holds some.

    Raises
    ------
    MrcError
        There is no measured run.
    InfrastructureError
        A file cannot be read or written.
    """
    folder = Path(path)
    if (folder / "run.json").is_file() or not list(folder.glob("**/run.json")):
        from mrc_host.report import make_report

        return make_report(folder)
    from mrc_host.report.sweep import make_sweep_report

    return make_sweep_report(open_runs(folder), folder)


def why(run: Run | str | Path, qp: str | int, psn: int, *, again: bool = True) -> Life:
    """Tell the life of one packet of a finished run; see :func:`mrc_host.life.story.why`.

    Parameters
    ----------
    run : Run or path
        The run, or its directory.
    qp : str or int
        Number of the sender's QP; ``"h0:0x100"`` with its host.
    psn : int
    again : bool
        Carry the run out once more to see queues and decisions; otherwise tell what was recorded.

    Raises
    ------
    MrcError
        There is no such packet, or the run's NICs cannot be made again.
    """
    from mrc_host.life.story import why as tell

    return tell(run if isinstance(run, Run) else open_run(run), str(qp), psn, again=again)


def _names(directories: list[Path]) -> list[str]:
    """Return names that tell folders apart: the last parts of their paths."""
    resolved = [path.resolve() for path in directories]
    for parts in range(1, max(len(path.parts) for path in resolved) + 1):
        names = ["/".join(path.parts[-parts:]) for path in resolved]
        if len(set(names)) == len(names):
            return names
    raise MrcError(f"directories must be different ones, got {', '.join(map(str, directories))}")
