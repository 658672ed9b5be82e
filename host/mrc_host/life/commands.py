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
@click.option("--waves", metavar="WHEN", help="Waveforms of gateware: fault±20us, 53.4us±5us, 10us..30us.")
def replay(directory: Path, out: Path | None, waves: str | None) -> int:
    """Repeat the run in DIRECTORY and compare: metrics and every packet must be the same, bit for bit.

    With --waves, NICs of gateware write their signals at those times into wave/ of the new directory. Exit
    codes: 0 the same, 1 not the same; the first difference is printed, and whether sources differ.
    """
    from mrc_host.experiment.progress import view_for
    from mrc_host.life.replay import replay as repeat
    from mrc_host.life.replay import replay_text
    from mrc_host.results import open_run

    run, view = open_run(directory), view_for()
    if waves is None:
        outcome = repeat(run, out=out, view=view, argv=sys.argv)
    else:
        from mrc_host.life.rerun import factory_of
        from mrc_host.life.waves import collected_waves, move_waves

        with collected_waves(waves, factory_of(run).names, run.experiment) as kinds:
            outcome = repeat(run, out=out, factory=kinds, view=view, argv=sys.argv, prepare=kinds.prepare)
            for file in move_waves(kinds, outcome.again.path):
                click.echo(file)
    click.echo(replay_text(outcome))
    return 0 if outcome.same else 1
