"""Builds a component once and runs cocotb tests against it, many tests on one compiled model.

The stock runner of cocotb makes every signal of a design public to Python, which multiplies the time
Verilator and the C++ compiler take and slows the model down. This one publishes the ports of the top
module only. Models are cached by content: a bench that did not change its design does not compile.

A bench file is both sides: pytest collects its `test_` functions, which call `run_bench`; the
simulator imports the same file and runs its `@cocotb.test` coroutines, whose names must not start
with `test_`.
"""

import json
import os
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cocotb_tools.config

from mrc_rtl.toolchain import cached_directory, content_key, verilog_of
from simulators import simulator_runner, simulator_version
from verilog_text import TOP, control_file, with_random_memories, with_random_registers
from verilog_text import ports as ports_of

__all__ = ["CLOCK_PERIOD_PS", "BenchFailed", "Model", "Simulation", "build", "parameters", "run", "run_bench"]

CLOCK_PERIOD_PS = 16_000
"""Clock period of every bench: 62.5 MHz, the frequency the engine needs on a board."""

LIMIT_SECONDS = {"verilator": 600.0, "icarus": 3600.0}
"""Wall time of one simulation. Icarus takes twenty times as long for a large block."""

LARGE_BYTES = 2_000_000
"""Verilog of a design that is split into several C++ files."""

_PARAMETERS = "MRC_BENCH_PARAMETERS"
_LOG_LINES_SHOWN = 60
_FAILURES_SHOWN = 5
_FORMAT_VERSION = 1
"""Raised when models are built differently, so that old cache entries are not used."""


class BenchFailed(AssertionError):
    """A simulation failed; the message names the failed tests and shows the end of the log."""


@dataclass(frozen=True)
class Model:
    """A compiled design, ready to run.

    Parameters
    ----------
    directory:
        Folder with the compiled model.
    simulator:
        "verilator" or "icarus".
    waves:
        Built so that signal traces can be recorded.
    """

    directory: Path
    simulator: str
    waves: bool


def build(
    component: Any,
    *,
    simulator: str = "verilator",
    ports: list[Any] | None = None,
    key: str | None = None,
    random_memories: bool = True,
    waves: bool = False,
    coverage: bool = False,
) -> Model:
    """Compile a component into a model, or return the one an earlier call made.

    Parameters
    ----------
    component, ports, key:
        As in `mrc_rtl.toolchain.verilog_of`.
    simulator:
        "verilator" or "icarus".
    random_memories:
        Memories that the design writes power up with random contents.
    waves:
        Make signal traces possible; the whole design is traced.
    coverage:
        Count lines and toggles (Verilator only); a simulation leaves `coverage.dat` in its results.

    Raises
    ------
    BenchFailed
        The model does not compile.
    """
    file = verilog_of(component, TOP, ports=ports, key=key, continuous=simulator == "icarus")
    verilog = file.read_text()
    if random_memories:
        verilog = with_random_memories(verilog)
    if simulator == "icarus":
        verilog = with_random_registers(verilog)
    # The model is linked against cocotb's libraries by absolute path.
    entry = content_key(
        f"format {_FORMAT_VERSION}",
        simulator_version(simulator),
        str(cocotb_tools.config.libs_dir),
        str(waves),
        *(["coverage"] if coverage else []),
        verilog,
    )

    def make(folder: Path) -> None:
        source = folder / f"{TOP}.v"
        source.write_text(verilog)
        sources = [source]
        arguments: list[str] = []
        if simulator == "verilator":
            control = folder / f"{TOP}.vlt"
            control.write_text(control_file(verilog))
            sources.append(control)
            arguments = ["-O3", "--x-assign", "unique", "--x-initial", "unique", "--assert"]
            arguments += ["-Wno-fatal", "-Wno-lint", "-Wno-style"]
            if coverage:
                arguments += ["--coverage-line", "--coverage-toggle"]
            if coverage or len(verilog) > LARGE_BYTES:
                # Several files are compiled at a time; one file of this size would take minutes.
                arguments += ["--output-split", "12000", "--output-split-cfuncs", "3000"]
        log = folder / "build.log"
        builder = simulator_runner(simulator)
        if coverage and simulator == "verilator":
            # Counters are five times the code; optimising it takes ten times as long as running it plainly.
            builder.optimisation = "-O0"
        try:
            builder.build(
                sources=sources,
                hdl_toplevel=TOP,
                build_dir=folder,
                build_args=arguments,
                timescale=("1ns", "1ps"),
                waves=waves,
                log_file=log,
            )
        except RuntimeError as error:
            raise BenchFailed(f"{simulator} could not build the model: {error}\n{_end_of(log)}") from error
        for path in folder.iterdir():
            if path.suffix in (".o", ".a", ".gch", ".d", ".cpp", ".h", ".fast", ".slow"):
                path.unlink()

    return Model(cached_directory("models", entry, make), simulator, waves)


def _end_of(log: Path) -> str:
    if not log.exists():
        return "(no log)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:])


def run(
    model: Model,
    bench_file: str | Path,
    *,
    parameters: Mapping[str, Any] | None = None,
    only: str | None = None,
    seed: int = 1,
    results: Path,
    timeout_seconds: float = LIMIT_SECONDS["verilator"],
) -> Path:
    """Run the cocotb tests of a bench file against a model.

    Parameters
    ----------
    model:
        From `build`.
    bench_file:
        The Python file with `@cocotb.test` coroutines, usually `__file__`.
    parameters:
        What the tests must know of the design; JSON values. They read it with `parameters()`.
    only:
        Regular expression over test names, to run a part of the file.
    seed:
        Seeds Python's random generator in the tests and the power-up contents of the model.
    results:
        Folder for the log, the results and the signal trace.
    timeout_seconds:
        Wall time after which the simulation is killed.

    Returns
    -------
    Path
        The log.

    Raises
    ------
    BenchFailed
        A test failed, none ran, the simulator crashed or took too long.
    """
    bench_file = Path(bench_file).resolve()
    results.mkdir(parents=True, exist_ok=True)
    log = results / "simulation.log"
    report = results.resolve() / "results.xml"
    runner = simulator_runner(model.simulator)
    runner.bench_directory = bench_file.parent
    runner.limit_seconds = timeout_seconds
    plusargs = []
    if model.simulator == "verilator":
        # 2: random bits instead of all zeros or all ones
        plusargs = ["+verilator+rand+reset+2", f"+verilator+seed+{seed}"]
    declared = ports_of((model.directory / f"{TOP}.v").read_text())
    known = {
        "simulator": model.simulator,
        "inputs": [name for direction, name in declared if direction == "input"],
        **(parameters or {}),
    }
    problem = None
    try:
        runner.test(
            test_module=bench_file.stem,
            hdl_toplevel=TOP,
            hdl_toplevel_lang="verilog",
            build_dir=model.directory,
            test_dir=results,
            results_xml=str(report),
            seed=seed,
            plusargs=plusargs,
            extra_env={_PARAMETERS: json.dumps(known)},
            test_filter=only,
            waves=model.waves,
            timescale=("1ns", "1ps") if model.simulator == "icarus" else None,
            log_file=log,
        )
    except (RuntimeError, SystemExit) as error:
        problem = str(error)
    _judge(report, log, problem)
    return log


def _judge(report: Path, log: Path, problem: str | None) -> None:
    """Raise BenchFailed unless the report shows tests and every one of them passed or was skipped."""
    ran = 0
    failed: dict[str, str] = {}
    if report.is_file():
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            ran += 1
            for kind in ("failure", "error"):
                for element in case.iter(kind):
                    failed[case.get("name", "?")] = element.text or element.get("message", "")
    if failed:
        texts = [f"{name}\n{text}" for name, text in list(failed.items())[:_FAILURES_SHOWN]]
        raise BenchFailed(f"{len(failed)} of {ran} tests failed, log: {log}\n" + "\n".join(texts))
    if not report.is_file():
        headline = f"the simulation ended without results: {problem or 'no reason given'}"
    elif ran == 0:
        headline = "no test ran: the bench file has none, or the filter matches none"
    elif problem is not None:
        headline = f"every test passed, but {problem}"
    else:
        return
    raise BenchFailed(f"{headline}\nlog: {log}\n{_end_of(log)}")


def parameters() -> dict[str, Any]:
    """Return the parameters of this run, "simulator" and "inputs" (names of the design's input ports).

    Empty when pytest only collects the file.
    """
    return dict(json.loads(os.environ.get(_PARAMETERS, "{}")))


def run_bench(
    component: Any,
    bench_file: str | Path,
    simulation: "Simulation",
    *,
    parameters: Mapping[str, Any] | None = None,
    only: str | None = None,
    ports: list[Any] | None = None,
    random_memories: bool = True,
) -> Path:
    """Build a component and run a bench file against it: the usual body of a bench's pytest function.

    Parameters
    ----------
    component, ports, random_memories:
        As in `build`.
    bench_file, parameters, only:
        As in `run`.
    simulation:
        The fixture of that name: simulator, seed and folder chosen on pytest's command line.

    Raises
    ------
    BenchFailed
        As `build` and `run`.
    """
    model = build(
        component,
        simulator=simulation.simulator,
        ports=ports,
        random_memories=random_memories,
        waves=simulation.waves,
        coverage=simulation.coverage is not None,
    )
    log = run(
        model,
        bench_file,
        parameters=parameters,
        only=only,
        seed=simulation.seed,
        results=simulation.results,
        timeout_seconds=LIMIT_SECONDS[simulation.simulator],
    )
    if simulation.coverage is not None:
        name = f"{Path(bench_file).stem}-{simulation.results.name}"
        shutil.copy(simulation.results / "coverage.dat", simulation.coverage / f"{name}.dat")
        shutil.copy(model.directory / f"{TOP}.v", simulation.coverage / f"{name}.v")
    return log


@dataclass(frozen=True)
class Simulation:
    """How to simulate, as the `simulation` fixture hands it to a bench.

    Parameters
    ----------
    simulator:
        "verilator" or "icarus" (`--sim`).
    seed:
        See `run` (`--seed`).
    results:
        A folder of this test alone.
    waves:
        Record signal traces (`--waves`).
    coverage:
        Folder for each bench's counters of lines and toggles and the Verilog they are of (`--coverage-to`).
    """

    simulator: str
    seed: int
    results: Path
    waves: bool
    coverage: Path | None = None
