"""The ``mrc why`` and ``mrc replay`` commands: thin wrappers around the library."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mrc_host.errors import MrcError

__all__ = ["replay", "why"]


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--qp", required=True, metavar="QP", help="The sender's QP: 0x100, or h0:0x100 with its host.")
@click.option("--psn", required=True, metavar="PSN", help="The packet, decimal or 0x…")
@click.option("--recorded", is_flag=True, help="Tell what was recorded; do not carry the run out again.")
@click.option("--json", "as_json", is_flag=True, help="Steps as JSON.")
def why(directory: Path, qp: str, psn: str, recorded: bool, as_json: bool) -> None:
    """Tell the life of one packet of the run in DIRECTORY: queues it met, what became of it, and why.

    The run is carried out once more, up to the end of that packet's life, with a probe at every queue.
    """
    from mrc_host.life.story import why as tell
    from mrc_host.life.text import life_json, life_text
    from mrc_host.results import open_run

    try:
        number = int(psn, 0)
    except ValueError:
        raise MrcError(f"psn must be a number such as 4711 or 0x1267, got {psn!r}") from None

    def progress(line: str) -> None:
        click.echo(line, err=True)

    life = tell(open_run(directory), qp, number, again=not recorded, progress=progress)
    click.echo(life_json(life) if as_json else life_text(life))


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="New run directory.")
def replay(directory: Path, out: Path | None) -> int:
    """Repeat the run in DIRECTORY and compare: metrics and every packet must be the same, bit for bit.

    Exit codes: 0 the same, 1 not the same; the first difference is printed, and whether sources differ.
    """
    from mrc_host.experiment.progress import view_for
    from mrc_host.life.replay import replay as repeat
    from mrc_host.life.replay import replay_text
    from mrc_host.results import open_run

    outcome = repeat(open_run(directory), out=out, view=view_for(), argv=sys.argv)
    click.echo(replay_text(outcome))
    return 0 if outcome.same else 1
