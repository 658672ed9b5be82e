"""The ``mrc topology`` commands."""

from __future__ import annotations

from pathlib import Path

import click

from mrc_host.errors import InfrastructureError
from mrc_host.fabric.draw import topology_svg
from mrc_host.fabric.generate import generate_topology, topology_yaml
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


@topology.command()
@click.option("--hosts", type=int, required=True, help="Hosts.")
@click.option("--planes", type=int, default=4, show_default=True, help="Planes in parallel.")
@click.option("--rate-gbps", type=float, default=100, show_default=True, help="Rate of every link.")
@click.option("--switch-ports", type=int, default=64, show_default=True, help="Ports of a switch.")
@click.option("--oversubscription", type=float, default=1, show_default=True, help="Host rate over uplinks.")
def generate(hosts: int, planes: int, rate_gbps: float, switch_ports: int, oversubscription: float) -> None:
    """Print the smallest topology of switches of one size as YAML: a star, or two tiers."""
    spec = generate_topology(
        hosts, planes, rate_gbps, switch_ports=switch_ports, oversubscription=oversubscription
    )
    click.echo(topology_yaml(spec), nl=False)
