"""The `mrc` command: finds the subcommand, imports it only then, and turns errors into exit codes.

Exit codes: 0 no criterion failed and at least one was judged; 1 a criterion failed; 2 wrong use or
configuration; 3 infrastructure error or nothing judged; 130 interrupted, partial results are valid.
"""

import importlib
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from mrc_host.errors import MrcError

__all__ = ["EXIT_INFRASTRUCTURE", "EXIT_INTERRUPTED", "EXIT_WRONG_USE", "main", "mrc"]

EXIT_WRONG_USE = 2
EXIT_INFRASTRUCTURE = 3
EXIT_INTERRUPTED = 130

COMMANDS = {
    "compare": ("mrc_host.comparison.commands:compare", "Compare runs metric by metric, paired by seed."),
    "doctor": ("mrc_host.doctor:doctor", "List the tools the testbed can use, and which are missing."),
    "ev": ("mrc_host.packets.commands:ev", "Expand entropy values."),
    "export": ("mrc_host.export.commands:export", "Write a run in the form of another program."),
    "packet": ("mrc_host.packets.commands:packet", "Decode and encode packets."),
    "replay": ("mrc_host.life.commands:replay", "Repeat a run; it must come to the same, bit for bit."),
    "report": ("mrc_host.experiment.commands:report", "Make the report of a run again."),
    "run": ("mrc_host.experiment.commands:run", "Run one experiment and report what happened."),
    "why": ("mrc_host.life.commands:why", "Tell the life of one packet, and the reasons for it."),
    "topology": ("mrc_host.fabric.commands:topology", "Draw a topology."),
}
"""Subcommand: where it is and what it does. The text stands here so that `mrc --help` imports nothing."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are invoked, so that `mrc` starts quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command; None if there is no such name."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), f"{module}:{attribute} must be a click command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mrc-testbed", message="mrc-testbed %(version)s")
def mrc() -> None:
    """Multipath NICs in simulation, on a real SRv6 fabric and on boards: run them, see what they did."""


def _run(arguments: Sequence[str] | None) -> int:
    try:
        result = mrc.main(
            args=None if arguments is None else list(arguments), prog_name="mrc", standalone_mode=False
        )
    except click.Abort:
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return EXIT_WRONG_USE
    except MrcError as error:
        click.echo(f"mrc: {error}", err=True)
        return error.exit_code
    except Exception as error:
        from mrc_rtl.toolchain import ToolMissing

        if isinstance(error, ToolMissing):
            click.echo(f"mrc: {error}\n'mrc doctor' lists every tool.", err=True)
        else:
            # Python's own exit code for this, 1, would read as a failed criterion.
            traceback.print_exc()
            click.echo("mrc: this is a mistake in mrc-testbed, not in what you asked for", err=True)
        return EXIT_INFRASTRUCTURE
    return result if isinstance(result, int) else 0


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Parameters
    ----------
    arguments:
        Without the program's name; by default those of the process.
    """
    sys.exit(_run(arguments))
