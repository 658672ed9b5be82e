"""The ``mrc export`` command: a thin wrapper around the library."""

from __future__ import annotations

from pathlib import Path

import click

from mrc_host.errors import MrcError

__all__ = ["export"]


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--perfetto", is_flag=True, help="A trace for ui.perfetto.dev.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The file.")
@click.option("--from-us", default=0.0, show_default=True, help="Only from this time on.")
@click.option("--to-us", type=float, help="Only up to this time.")
def export(directory: Path, perfetto: bool, out: Path | None, from_us: float, to_us: float | None) -> None:
    """Write what happened in the run in DIRECTORY in the form of another program."""
    from mrc_host.export.perfetto import export_perfetto

    if not perfetto:
        raise MrcError("a form must be given: --perfetto")
    click.echo(export_perfetto(directory, out, from_us=from_us, to_us=to_us))
