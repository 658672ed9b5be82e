"""Runs an experiment from its description to the report.

Stages, each one in the journal: *set up* (build the model), *configure* (devices, memory), *simulate*,
*verify*, *measure*, *report*. An interruption from the keyboard ends the simulation; what happened until then
is verified, measured and reported as far as it goes, marked as partial.

Source: design.md 5 and 7; lab.md 5.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mrc_host.errors import ConfigError, InfrastructureError, MrcError
from mrc_host.experiment.lockstep import Lockstep, LockstepResult, Observer
from mrc_host.experiment.metrics import (
    Metric,
    Observations,
    compute_metrics,
    flow_results,
    verdict_of,
)
from mrc_host.experiment.nic_events import NicEvents
from mrc_host.experiment.nics import NicFactory, NicKinds, verilated_nic
from mrc_host.experiment.progress import ProgressView, Silent
from mrc_host.experiment.provenance import (
    config_sha256,
    machine,
    netlist_sha256,
    source_state,
    tool_versions,
)
from mrc_host.experiment.recording import write_records, write_results
from mrc_host.experiment.rundir import RunDirectory, utc_now
from mrc_host.experiment.schema import Experiment
from mrc_host.experiment.testbed import Testbed, build_testbed, set_up
from mrc_host.experiment.unfinished import unfinished_flows
from mrc_host.fabric.capture import capture_link
from mrc_host.fabric.packet import DropReason
from mrc_host.nic.base import TraceRecord, Watch
from mrc_host.nic.device import Counters, read_counters
from mrc_host.packets.pcapng import PcapngWriter

__all__ = ["EXIT_CODES", "RunResult", "run_experiment"]

SCHEMA_VERSION = 1
PASS, FAIL, INCONCLUSIVE, ERROR = "PASS", "FAIL", "INCONCLUSIVE", "ERROR"
EXIT_CODES = {PASS: 0, FAIL: 1, INCONCLUSIVE: 3, ERROR: 3}
EXIT_INTERRUPTED = 130
PROGRESS_INTERVAL_SECONDS = 0.1
NOT_DISCARDED = frozenset({"accepted", "duplicate", "control", "trimmed_answered", "rx_frames"})
"""Port counters of received frames that were put to use; the others, except ``tx_``, count discarded ones."""


@dataclass
class RunResult:
    """What a run came to.

    Parameters
    ----------
    directory : Path
        The run directory.
    verdict : str
        PASS, FAIL, INCONCLUSIVE, or ERROR.
    metrics : dict of Metric
        By name.
    complete : bool
        False when it was interrupted.
    exit_code : int
        What ``mrc run`` exits with.
    """

    directory: Path
    verdict: str
    metrics: dict[str, Metric]
    complete: bool
    exit_code: int


@dataclass
class _Run:
    """A run in progress."""

    experiment: Experiment
    directory: RunDirectory
    view: ProgressView
    document: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Carry out a stage; an error in it is named with the stage."""
        self.view.stage(name)
        self.directory.journal.write("stage start", stage=name)
        started = time.perf_counter()
        try:
            yield
        except Exception as error:
            self.directory.journal.write(
                "stage failed", stage=name, error=str(error), traceback=traceback.format_exc()
            )
            if isinstance(error, MrcError) and error.exit_code != InfrastructureError.exit_code:
                raise
            kind = "" if isinstance(error, MrcError) else f"{type(error).__name__}: "
            raise InfrastructureError(
                f"stage '{name}' failed: {kind}{error} (see {self.directory.path / 'journal.jsonl'})"
            ) from error
        finally:
            self.seconds[name] = time.perf_counter() - started
        self.directory.journal.write("stage stop", stage=name, seconds=round(self.seconds[name], 3))

    def write_document(self) -> None:
        """Write ``run.json`` as it stands."""
        self.directory.write_json("run.json", self.document)


class _Watcher(Observer):
    """Passes on what the runner sees: the start, writes to memory, decisions of NICs, and the progress."""

    def __init__(self, testbed: Testbed, view: ProgressView, events: NicEvents) -> None:
        self._testbed = testbed
        self._view = view
        self._events = events
        self._shown = 0.0
        self._total = sum(state.flow.messages for state in testbed.states)

    def started(self, start_ps: int, limit_ps: int) -> None:
        """Start what the experiment has planned."""
        self._testbed.start(start_ps, limit_ps)

    def watched(self, host: int, watches: Sequence[Watch]) -> None:
        """Note writes into receive buffers."""
        note = self._testbed.applications[host].note_write
        for watch in watches:
            note(watch.tag, watch.time_ps, watch.address, watch.length)

    def traced(self, host: int, records: Sequence[TraceRecord]) -> None:
        """Keep what a NIC decided."""
        self._events.note(host, self._testbed.decisions(host, records))

    def advanced(self, time_ps: int) -> None:
        """Show the progress now and then."""
        now = time.monotonic()
        if now - self._shown >= PROGRESS_INTERVAL_SECONDS:
            self._shown = now
            states = self._testbed.states
            done = sum(min(s.sent, s.received) if s.immediates == len(s.messages) else s.sent for s in states)
            start = min((s.messages[0].posted_ps or time_ps for s in states), default=time_ps)
            self._view.simulated(max(0, time_ps - start) / 1_000_000, done, self._total)


def run_experiment(
    experiment: Experiment,
    *,
    out: Path | None = None,
    nic_factory: NicFactory = verilated_nic,
    view: ProgressView | None = None,
    argv: Sequence[str] = (),
    prepare: Callable[[Testbed], None] | None = None,
    records: bool = True,
) -> RunResult:
    """Run an experiment and write its run directory.

    Parameters
    ----------
    experiment : Experiment
        A checked description (``load_experiment`` or ``parse_experiment``).
    out : Path, optional
        Run directory, new or empty; ``runs/<UTC>-<name>`` by default.
    nic_factory : callable
        Makes the NICs; verilated gateware by default.
    view : ProgressView, optional
        Shows what goes on; nothing by default.
    argv : sequence of str
        The command line, kept in ``run.json``.
    prepare : callable, optional
        Called with the testbed when it is ready to run: attaches taps and faults.
    records : bool
        Whether the directory gets tables and a report, or the metrics and what they are made of alone.

    Raises
    ------
    ConfigError
        The experiment cannot be built as described, or a fault met nothing; in the latter case everything
        was measured and reported all the same.
    InfrastructureError
        A stage failed; the message names it, and the directory holds the journal.
    """
    directory = RunDirectory(out) if out is not None else RunDirectory.create(experiment.name)
    with view or Silent() as shown:
        run = _Run(experiment, directory, shown, _first_document(experiment, argv))
        try:
            directory.write_text("experiment.yaml", _resolved(experiment))
            run.write_document()
            return _carry_out(run, nic_factory, prepare, records)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            run.document.update(
                verdict=INCONCLUSIVE if interrupted else ERROR,
                interrupted=interrupted,
                error=str(error) or type(error).__name__,
                finished=utc_now(),
            )
            run.write_document()
            directory.journal.write("run ended", error=run.document["error"])
            raise
        finally:
            directory.close()


def _carry_out(
    run: _Run, nic_factory: NicFactory, prepare: Callable[[Testbed], None] | None, records: bool
) -> RunResult:
    experiment = run.experiment
    with run.stage("set up"):
        testbed = build_testbed(experiment, nic_factory, run.view.detail)
    try:
        with run.stage("configure"):
            set_up(testbed)
            if prepare is not None:
                prepare(testbed)
            captures = _start_captures(testbed, run.directory)
        events = NicEvents()
        outcome = _simulate(run, testbed, captures, events)
        with run.stage("verify"):
            verifications = [application.verify() for application in testbed.applications]
            counters = [read_counters(host.context.driver) for host in testbed.hosts]
        with run.stage("measure"):
            totals = testbed.fabric.totals()
            seen = Observations(
                experiment,
                testbed.config,
                testbed.topology,
                testbed.states,
                testbed.log.columns(),
                verifications,
                totals.dropped,
                sum(_discarded(counter) for counter in counters),
                frames_marked=totals.marked,
                frames_trimmed=totals.trimmed,
                trimmed_headers_lost=totals.drops.get(DropReason.TRIMMED_QUEUE_FULL, 0),
                fault_hits=sum(fault.hit for fault in testbed.faults.outcomes()),
                events=events.columns(),
                phases=testbed.phases.times,
                start_ps=outcome.start_ps,
                end_ps=outcome.end_ps,
            )
            metrics = compute_metrics(seen)
            complete = outcome.finished and not outcome.interrupted
            verdict = verdict_of(metrics) if not outcome.interrupted else INCONCLUSIVE
            if outcome.interrupted:
                for metric in metrics.values():
                    metric.verdict = INCONCLUSIVE if metric.limits else None
            without_effect = _without_effect(testbed, outcome)
            if without_effect is not None:
                verdict = ERROR
                run.document["error"] = str(without_effect)
            run.directory.write_json(
                "metrics.json", {name: metric.as_dict() for name, metric in metrics.items()}
            )
            flows = flow_results(seen)
            write_results(run.directory, testbed, flows)
            if records:
                write_records(run.directory, testbed, seen, metrics, counters, outcome.start_ps)
            waiting = unfinished_flows(
                seen.states, seen.packets, seen.events, outcome.start_ps, experiment.mtu(testbed.config)
            )
            if waiting:
                run.document["unfinished"] = [asdict(flow) for flow in waiting]
        _finish_document(run, testbed, outcome, verdict, complete, nic_factory)
    finally:
        testbed.close()
    if records:
        with run.stage("report"):
            from mrc_host.report import make_report

            make_report(run.directory.path)
    run.document["speed"]["stage_seconds"] = {name: round(value, 3) for name, value in run.seconds.items()}
    run.write_document()
    if without_effect is not None:
        raise without_effect
    code = EXIT_INTERRUPTED if outcome.interrupted else EXIT_CODES[verdict]
    return RunResult(run.directory.path, verdict, metrics, complete, code)


def _simulate(run: _Run, testbed: Testbed, captures: list[PcapngWriter], events: NicEvents) -> LockstepResult:
    experiment = run.experiment
    longest = min([testbed.fabric.lookahead_ps, *(host.latency_ps for host in testbed.hosts)])
    with run.stage("simulate"):
        lockstep = Lockstep(
            testbed.hosts,
            testbed.fabric,
            window_ps=max(1, int(longest * experiment.runner.fraction)),
            workers=experiment.runner.jobs,
            drain_ps=_drain_ps(testbed),
            observer=_Watcher(testbed, run.view, events),
            packets=True,
        )
        try:
            return lockstep.run(round(experiment.limits.simulated_time_us * 1_000_000))
        finally:
            for capture in captures:
                capture.close()


def _without_effect(testbed: Testbed, outcome: LockstepResult) -> ConfigError | None:
    """Return what is wrong with a run in which a fault met nothing or an action never came; an interrupted
    one may end before it.
    """
    if outcome.interrupted:
        return None
    simulated_us = (outcome.end_ps - outcome.start_ps) / 1_000_000
    try:
        testbed.faults.check_matched(simulated_us)
        testbed.script.check_begun(simulated_us)
    except ConfigError as error:
        return error
    return None


def _drain_ps(testbed: Testbed) -> int:
    """Return how long answers can still be under way when all is done: a round trip and full queues."""
    topology = testbed.topology
    longest = max(
        topology.base_rtt_ps(path, testbed.config.mtu, testbed.config.mtu)
        for state in testbed.states
        for path in topology.paths(state.flow.source, state.flow.target)
    )
    slowest = max(half.byte_ps for half in topology.directions)
    return longest + int(2 * topology.queue_bytes * slowest)


def _start_captures(testbed: Testbed, directory: RunDirectory) -> list[PcapngWriter]:
    capture = testbed.experiment.capture
    if not capture.pcap:
        return []
    folder = directory.path / "pcap"
    folder.mkdir(exist_ok=True)
    limit = int(capture.megabytes_per_port * 1_000_000)
    topology = testbed.topology
    return [
        capture_link(
            testbed.fabric,
            link.name,
            folder / f"{link.up.source_port}.pcapng",
            max_bytes=limit,
            ring=True,
        )
        for link in topology.links[: topology.hosts * topology.planes]
    ]


def _discarded(counters: Counters) -> int:
    return sum(
        value
        for port in counters.ports
        for name, value in port.items()
        if name not in NOT_DISCARDED and not name.startswith("tx_")
    )


# -- run.json --------------------------------------------------------------------------------------------


def _resolved(experiment: Experiment) -> str:
    from mrc_host.experiment.load import resolved_yaml

    return f"# Resolved, all defaults written out; sha256 {config_sha256(experiment)}\n" + resolved_yaml(
        experiment
    )


def _first_document(experiment: Experiment, argv: Sequence[str]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "name": experiment.name,
        "complete": False,
        "interrupted": False,
        "verdict": None,
        "seed": experiment.seed,
        "argv": list(argv),
        "started": utc_now(),
        "experiment_sha256": config_sha256(experiment),
        "source": source_state(),
        "versions": tool_versions(),
        "machine": machine(),
    }


def _kinds(nic_factory: NicFactory) -> str:
    """What the NICs of a run are, for ``run.json``."""
    if isinstance(nic_factory, NicKinds):
        return nic_factory.text
    return "rtl" if nic_factory is verilated_nic else "other"


def _finish_document(
    run: _Run,
    testbed: Testbed,
    outcome: LockstepResult,
    verdict: str,
    complete: bool,
    nic_factory: NicFactory,
) -> None:
    statistics = [nic.statistics for nic in testbed.nics]
    clocked = sum(item.cycles_clocked for item in statistics)
    skipped = sum(item.cycles_skipped for item in statistics)
    wall = outcome.wall_seconds
    gateware = nic_factory.has_gateware if isinstance(nic_factory, NicKinds) else nic_factory is verilated_nic
    failures = {state.flow.name: state.failure for state in testbed.states if state.failure}
    run.document.update(
        complete=complete,
        interrupted=outcome.interrupted,
        verdict=verdict,
        finished=utc_now(),
        nic=_kinds(nic_factory),
        fabric="model",
        netlist_sha256=netlist_sha256(run.experiment) if gateware else None,
        flows_given_up=failures,
        unexpected_completions=sum(app.unexpected_completions for app in testbed.applications),
        simulated_us=round((outcome.end_ps - outcome.start_ps) / 1_000_000, 3),
        speed={
            "simulate_seconds": round(wall, 3),
            "cycles_clocked": clocked,
            "cycles_skipped": skipped,
            "cycles_per_second": round(clocked / wall) if wall else None,
            "windows": outcome.windows,
            "jumped_us": round(outcome.jumped_ps / 1_000_000, 3),
            "packets_at_nic_ports": len(testbed.log),
        },
    )
    run.write_document()
