"""The ``mrc topology`` commands."""

from __future__ import annotations

from pathlib import Path

import click

from mrc_host.errors import InfrastructureError
from mrc_host.fabric.draw import topology_svg
from mrc_host.fabric.load import load_topology

__all__ = ["topology"]


@click.group()
def topology() -> None:
    """Look at topologies."""


@topology.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="SVG file to write; - is standard output. By default the name of FILE with .svg, in this directory.",
)
def draw(file: Path, out: Path | None) -> None:
    """Draw the topology of FILE, an experiment or a topology in YAML, as SVG."""
    picture = topology_svg(load_topology(file))
    if out == Path("-"):
        click.echo(picture, nl=False)
        return
    target = out or Path(f"{file.stem}.svg")
    try:
        target.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise InfrastructureError(f"{target}: must be a file that can be written, got: {error}") from error
    click.echo(f"wrote {target}")
