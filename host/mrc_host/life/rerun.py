"""Carries out a recorded run once more, with instruments attached.

Equal sources, experiment and seed give an equal run, so what was not recorded can be looked at afterwards:
only the packets and times that are asked for, at no cost for runs nobody asks about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mrc_host.errors import MrcError
from mrc_host.experiment.lockstep import Lockstep, Observer
from mrc_host.experiment.nics import NicFactory, NicKinds
from mrc_host.experiment.schema import Experiment
from mrc_host.experiment.testbed import Testbed, build_testbed, set_up
from mrc_host.nic.base import TraceRecord, Watch
from mrc_host.results import Run

__all__ = ["Instruments", "factory_of", "rerun"]

MICROSECOND_PS = 1_000_000


@dataclass
class Instruments:
    """What looks at a run.

    Parameters
    ----------
    attach : callable
        Called with the testbed before the run.
    traced : callable
        Called with (host, records) for the trace records of NICs.
    """

    attach: Callable[[Testbed], None]
    traced: Callable[[int, Sequence[TraceRecord]], None]


class _Watcher(Observer):
    """Starts what the experiment plans, and hands on what instruments look at."""

    def __init__(self, testbed: Testbed, instruments: Instruments, limit_ps: int) -> None:
        self._testbed = testbed
        self._instruments = instruments
        self._limit_ps = limit_ps
        self.start_ps = 0

    def started(self, start_ps: int, limit_ps: int) -> None:
        """Faults and controllers get the times of the whole run, however early this one stops."""
        self.start_ps = start_ps
        self._testbed.start(start_ps, start_ps + self._limit_ps)

    def watched(self, host: int, watches: Sequence[Watch]) -> None:
        """Note writes into receive buffers, which completions wait for."""
        for watch in watches:
            self._testbed.applications[host].note_write(watch.tag, watch.time_ps, watch.address, watch.length)

    def traced(self, host: int, records: Sequence[TraceRecord]) -> None:
        """Hand on trace records."""
        self._instruments.traced(host, self._testbed.decisions(host, records))


def factory_of(run: Run) -> NicKinds:
    """Return what made the NICs of a run.

    Raises
    ------
    MrcError
        It was no kind of NIC that can be made again.
    """
    kinds = str(run.document.get("nic", "other"))
    if kinds == "other":
        raise MrcError(f"{run.path} must have NICs that can be made again (rtl or model), got others")
    return NicKinds.parse(kinds)


def rerun(
    run: Run,
    instruments: Instruments,
    *,
    until_ps: int,
    factory: NicFactory | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> int:
    """Carry out a run again up to a time.

    Parameters
    ----------
    run : Run
    instruments : Instruments
    until_ps : int
        Simulated time after the start of the run.
    factory : callable, optional
        Makes the NICs, for runs whose NICs were neither gateware nor models.
    progress : callable
        Gets a line for each step of a build.

    Returns
    -------
    int
        Time at which the run began; subtract it from what instruments saw.

    Raises
    ------
    MrcError
        Its NICs cannot be made again.
    """
    factory = factory or factory_of(run)
    experiment = run.experiment
    if isinstance(factory, NicKinds) and not factory.has_gateware:
        experiment = _traced(experiment)
    testbed = build_testbed(experiment, factory, progress)
    try:
        set_up(testbed)
        instruments.attach(testbed)
        limit_ps = round(experiment.limits.simulated_time_us * MICROSECOND_PS)
        watcher = _Watcher(testbed, instruments, limit_ps)
        longest = min([testbed.fabric.lookahead_ps, *(host.latency_ps for host in testbed.hosts)])
        lockstep = Lockstep(
            testbed.hosts,
            testbed.fabric,
            window_ps=longest,
            workers=experiment.runner.jobs,
            drain_ps=max(longest, until_ps),
            observer=watcher,
            packets=True,
        )
        lockstep.run(max(1, min(limit_ps, until_ps)))
        return watcher.start_ps
    finally:
        testbed.close()


def _traced(experiment: Experiment) -> Experiment:
    """Return an experiment whose models report every decision, which changes none of them."""
    parameters = {**experiment.nic.parameters, "trace": True}
    return experiment.model_copy(update={"nic": experiment.nic.model_copy(update={"parameters": parameters})})
