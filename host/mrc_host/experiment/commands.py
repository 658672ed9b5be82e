"""The ``mrc run`` and ``mrc report`` commands: thin wrappers around the library."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from mrc_host.errors import MrcError

__all__ = ["report", "run"]

FABRIC_KINDS = ("model",)


def _refuse_kind(option: str, value: str, available: Iterable[str]) -> None:
    if value not in available:
        raise MrcError(f"{option} must be {' or '.join(available)} in this build, got {value!r}")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Run directory, new or empty.")
@click.option("--nic", default="rtl", show_default=True, help="NICs: rtl, model, or rtl,model half each.")
@click.option("--fabric", default="model", show_default=True, help="What connects them: model.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed, instead of the file's.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a value by its dotted key.")
@click.option("--jobs", type=click.IntRange(1, 256), help="Threads, or processes of a file of several runs.")
@click.option("--variant", help="Scale of a file that has several, such as F or f.")
@click.option("--case", "cases", multiple=True, help="Only this case of a file that has several.")
@click.option("--pcap", is_flag=True, help="Capture every NIC port in pcap/<port>.pcapng.")
@click.option("--waves", metavar="WHEN", help="Waveforms of gateware: fault±20us, 53.4us±5us, 10us..30us.")
def run(
    file: Path,
    out: Path | None,
    nic: str,
    fabric: str,
    seed: int | None,
    overrides: tuple[str, ...],
    jobs: int | None,
    variant: str | None,
    cases: tuple[str, ...],
    pcap: bool,
    waves: str | None,
) -> int:
    """Run the experiment in FILE (YAML) and write a run directory with a report.

    Exit codes: 0 no criterion failed and at least one was judged, 1 a criterion failed, 2 wrong use or
    configuration, 3 infrastructure error or nothing judged, 130 interrupted (partial results are valid).
    """
    _refuse_kind("--fabric", fabric, FABRIC_KINDS)
    from mrc_host.compiled import note
    from mrc_host.experiment.load import load_experiment
    from mrc_host.experiment.nics import NicKinds
    from mrc_host.experiment.progress import view_for
    from mrc_host.experiment.runner import run_experiment
    from mrc_host.experiment.study import is_study
    from mrc_host.experiment.summary import print_summary

    kinds = NicKinds.parse(nic)
    if "model" in kinds.names and (line := note()):
        click.echo(line, err=True)
    if is_study(file):
        from mrc_host.experiment.study_run import run_study

        selection: dict[str, Any] = {"seed": seed, "variant": variant, "cases": cases}
        return run_study(file, out, kinds, overrides, jobs=jobs or 2, argv=sys.argv, **selection)
    if variant is not None or cases:
        raise MrcError(f"--variant and --case must be left out: {file} is one run, without cases")
    settings = list(overrides)
    settings += [f"seed={seed}"] if seed is not None else []
    settings += [f"runner.jobs={jobs}"] if jobs is not None else []
    settings += ["capture.pcap=true"] if pcap else []
    experiment = load_experiment(file, settings)
    if waves is None:
        result = run_experiment(experiment, out=out, nic_factory=kinds, view=view_for(), argv=sys.argv)
    else:
        from mrc_host.life.waves import collected_waves, move_waves

        with collected_waves(waves, kinds.names, experiment) as traced:
            result = run_experiment(
                experiment,
                out=out,
                nic_factory=traced,
                view=view_for(),
                argv=sys.argv,
                prepare=traced.prepare,
            )
            move_waves(traced, result.directory)
    print_summary(result)
    return result.exit_code


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
def report(directory: Path) -> None:
    """Make the report of the run in DIRECTORY again, from the data in it.

    When DIRECTORY holds several runs, the report shows their metrics over the settings in which they differ,
    with bands over seeds.
    """
    from mrc_host.library import report as make

    click.echo(make(directory))
