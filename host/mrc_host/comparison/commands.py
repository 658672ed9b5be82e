"""The ``mrc compare`` command: a thin wrapper around the library."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from mrc_host.errors import MrcError
from mrc_host.experiment.rundir import TIME_IN_NAME

__all__ = ["compare"]

EXIT_CODES = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3}


@click.command()
@click.argument(
    "directories", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Where the page goes.")
@click.option(
    "--tolerance", default=0.0, show_default=True, help="Share by which a ratio may differ from 1, e.g. 0.01."
)
def compare(directories: tuple[Path, ...], out: Path | None, tolerance: float) -> int:
    """Compare runs: the first of DIRECTORIES is the baseline, each other one is compared with it.

    A directory is a run, or holds runs that differ in their seeds; runs are paired by seed. Exit codes: 0 no
    metric is worse, 1 one is, 3 nothing could be judged (fewer than five pairs that differ).
    """
    from mrc_host.comparison.output import comparison_text, write_comparison
    from mrc_host.library import compare as compare_runs

    if len(directories) < 2:
        raise MrcError(
            f"directories must be at least two, the first one the baseline, got {len(directories)}"
        )
    stamp = datetime.datetime.now(datetime.UTC).strftime(TIME_IN_NAME)
    root = out or Path("runs") / f"{stamp}-compare"
    codes = []
    others = directories[1:]
    for number, other in enumerate(others, 1):
        comparison = compare_runs(directories[0], other, tolerance=tolerance)
        click.echo(comparison_text(comparison))
        page = write_comparison(comparison, root if len(others) == 1 else root / str(number))
        click.echo(str(page) + ("\n" if number < len(others) else ""))
        codes.append(EXIT_CODES[comparison.verdict])
    if 1 in codes:
        return 1
    return 0 if 0 in codes else 3
