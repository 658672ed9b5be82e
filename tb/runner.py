"""Builds a component once and runs cocotb tests against it, many tests on one compiled model.

The stock runner of cocotb makes every signal of a design public to Python, which multiplies the time
Verilator and the C++ compiler take and slows the model down. This one publishes the ports of the top
module only. Models are cached by content: a bench that did not change its design does not compile.

A bench file is both sides: pytest collects its `test_` functions, which call `run_bench`; the
simulator imports the same file and runs its `@cocotb.test` coroutines, whose names must not start
with `test_`.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import cocotb_tools.config
from cocotb_tools.runner import Icarus, Runner, Verilator

from mrc_rtl.toolchain import (
    cached_directory,
    content_key,
    verilator_command,
    verilator_environment,
    verilog_of,
)

__all__ = ["CLOCK_PERIOD_PS", "BenchFailed", "Model", "Simulation", "build", "parameters", "run", "run_bench"]

CLOCK_PERIOD_PS = 16_000
"""Clock period of every bench: 62.5 MHz, the frequency the engine needs on a board."""

LIMIT_SECONDS = {"verilator": 240.0, "icarus": 3600.0}
"""Wall time of one simulation. Icarus takes twenty times as long for a large block."""

_PARAMETERS = "MRC_BENCH_PARAMETERS"
_TOP = "top"
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


def _ports(verilog: str) -> list[tuple[str, str]]:
    """Return (direction, name) of the ports of the top module."""
    header = re.search(rf"^module {_TOP}\(([^)]*)\);", verilog, re.MULTILINE)
    if header is None:
        raise ValueError(f"Verilog must contain a module {_TOP!r}, but does not")
    names = {name.strip() for name in header[1].split(",")}
    body = verilog[header.end() : verilog.index("endmodule", header.end())]
    declared = re.findall(r"^\s*(input|output)\s+(?:\[[^]]*\]\s*)?([A-Za-z_]\w*)\s*;", body, re.MULTILINE)
    # Functions inside the module have inputs too.
    return [(direction, name) for direction, name in declared if name in names]


def _control_file(verilog: str) -> str:
    """Return the Verilator control file that publishes the ports and nothing else."""
    lines = ["`verilator_config"]
    for _, name in _ports(verilog):
        lines.append(f'public_flat_rw -module "{_TOP}" -var "{name}"')
    return "\n".join(lines) + "\n"


_ZERO_MEMORY = re.compile(r"  initial begin\n((?:    \S+\[\d+\] = \d+'[bdh]0+;\n)+)  end\n")
_MEMORY_WORD = re.compile(r"    (\S+)\[\d+\] = (\d+)'")
_RANDOM_BITS = 32
"""Width of $urandom."""


def _with_random_memories(verilog: str) -> str:
    """Let memories that the design writes power up with random words instead of zeros.

    Block RAM powers up with what is in it; a block that counts on zeros must fail its bench. Memories
    with other contents are tables and keep them, and so do zeros nobody ever writes. The words are
    drawn when the simulation starts, so that another seed needs no other model. Leaving them to
    `--x-initial unique` would fill a whole memory with one and the same word.
    """

    def replace(match: re.Match[str]) -> str:
        words = match[1].splitlines()
        first = _MEMORY_WORD.match(words[0])
        assert first is not None, "the outer expression consists of these lines"
        name, width = first[1], int(first[2])
        if not re.search(rf"^\s+{re.escape(name)}\[[^]]+\](?:\s*\[[^]]+\])? <= ", verilog, re.MULTILINE):
            return match[0]
        parts = ", ".join(["$urandom"] * -(-width // _RANDOM_BITS))
        return (
            f"  initial begin : power_up_{match.start()}\n    integer word;\n"
            f"    for (word = 0; word < {len(words)}; word = word + 1) {name} [word] = {{{parts}}};\n  end\n"
        )

    return _ZERO_MEMORY.sub(replace, verilog)


_UNSET_REGISTER = re.compile(
    r"^  reg (?:\[(\d+):0\] )?(\S+) ;$|^  reg (?:\[(\d+):0\] )?([A-Za-z_]\w*);$", re.MULTILINE
)


def _with_random_registers(verilog: str) -> str:
    """Give registers without an initial value a random one: the outputs of memories.

    Verilator does so by itself. Icarus leaves them undefined, and an undefined value spreads even through
    logic whose result does not depend on it.
    """

    def replace(match: re.Match[str]) -> str:
        name = match[2] or match[4]
        width = int(match[1] or match[3] or 0) + 1
        parts = ", ".join(["$urandom"] * -(-width // _RANDOM_BITS))
        return f"  reg [{width - 1}:0] {name} = {{{parts}}};"

    return _UNSET_REGISTER.sub(replace, verilog)


class _Bounded(Runner):
    """What both runners share: a bench's own folder on the Python path, and a limit on wall time."""

    bench_directory = Path(__file__).parent
    limit_seconds: float | None = None

    def _set_env_test(self) -> None:
        super()._set_env_test()
        folders = dict.fromkeys([str(self.bench_directory), str(Path(__file__).parent)])
        self.env["PYTHONPATH"] = os.pathsep.join([*folders, self.env["PYTHONPATH"]])

    def _execute_cmds(
        self, cmds: Sequence[list[str]], cwd: os.PathLike[str] | str, stdout: TextIO | None = None
    ) -> None:
        for command in cmds:
            try:
                code = subprocess.run(
                    command,
                    cwd=cwd,
                    env=self.env,
                    check=False,
                    stdout=stdout,
                    stderr=None if stdout is None else subprocess.STDOUT,
                    timeout=self.limit_seconds,
                ).returncode
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"{command[0]} ran longer than {self.limit_seconds:g} s") from None
            if code != 0:
                raise RuntimeError(f"{command[0]} ended with code {code}")


class PortsOnlyVerilator(_Bounded, Verilator):
    """The Verilator runner of cocotb with only the ports of the top module visible to Python."""

    def _set_env_common(self) -> None:
        super()._set_env_common()
        self.env = verilator_environment(self.env)

    def _simulator_in_path_build_only(self) -> None:
        (self.executable,) = verilator_command()

    def _build_command(self) -> list[list[str]]:
        verilate, make = super()._build_command()
        verilate.remove("--public-flat-rw")
        # Python takes most of the time of a bench, so a model that compiles fast beats a fast one.
        return [verilate, [*make, "OPT_FAST=-O1"]]

    def _execute_cmds(
        self, cmds: Sequence[list[str]], cwd: os.PathLike[str] | str, stdout: TextIO | None = None
    ) -> None:
        first, *make = cmds
        super()._execute_cmds([first], cwd, stdout)
        for command in make:
            self._place_runtime(command, cwd, stdout)
            super()._execute_cmds([command], cwd, stdout)

    def _place_runtime(
        self, make: list[str], cwd: os.PathLike[str] | str, stdout: TextIO | None = None
    ) -> None:
        """Put the compiled runtime library of Verilator where make finds it up to date.

        It is the same for all models and takes longer to compile than most of them.
        """
        classes = (self.build_dir / "Vtop_classes.mk").read_text()
        section = classes[classes.index("VM_GLOBAL_FAST +=") : classes.index("VM_GLOBAL_SLOW +=")]
        objects = [f"{name}.o" for name in re.findall(r"^  (\w+)", section, re.MULTILINE)]

        def compile_objects(folder: Path) -> None:
            super(PortsOnlyVerilator, self)._execute_cmds([[*make, *objects]], cwd, stdout)
            for name in objects:
                shutil.copy(self.build_dir / name, folder)

        key = content_key(_simulator_version("verilator"), _compiler_version(), " ".join(make[5:] + objects))
        runtime = cached_directory("verilator-runtime", key, compile_objects)
        for name in objects:
            shutil.copy(runtime / name, self.build_dir)


class BoundedIcarus(_Bounded, Icarus):
    """The Icarus runner of cocotb with the limits of this module."""


def _runner(simulator: str) -> PortsOnlyVerilator | BoundedIcarus:
    if simulator == "verilator":
        return PortsOnlyVerilator()
    if simulator == "icarus":
        return BoundedIcarus()
    raise ValueError(f"simulator must be 'verilator' or 'icarus', got {simulator!r}")


@functools.cache
def _compiler_version() -> str:
    return subprocess.run(["c++", "--version"], capture_output=True, text=True, check=True).stdout


@functools.cache
def _simulator_version(simulator: str) -> str:
    if simulator == "verilator":
        return subprocess.run(
            [*verilator_command(), "--version"],
            env=verilator_environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return subprocess.run(["iverilog", "-V"], capture_output=True, text=True, check=True).stdout.split("\n")[
        0
    ]


def build(
    component: Any,
    *,
    simulator: str = "verilator",
    ports: list[Any] | None = None,
    key: str | None = None,
    random_memories: bool = True,
    waves: bool = False,
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

    Raises
    ------
    BenchFailed
        The model does not compile.
    """
    file = verilog_of(component, _TOP, ports=ports, key=key, continuous=simulator == "icarus")
    verilog = file.read_text()
    if random_memories:
        verilog = _with_random_memories(verilog)
    if simulator == "icarus":
        verilog = _with_random_registers(verilog)
    # The model is linked against cocotb's libraries by absolute path.
    entry = content_key(
        f"format {_FORMAT_VERSION}",
        _simulator_version(simulator),
        str(cocotb_tools.config.libs_dir),
        str(waves),
        verilog,
    )

    def make(folder: Path) -> None:
        source = folder / f"{_TOP}.v"
        source.write_text(verilog)
        sources = [source]
        arguments: list[str] = []
        if simulator == "verilator":
            control = folder / f"{_TOP}.vlt"
            control.write_text(_control_file(verilog))
            sources.append(control)
            arguments = ["-O3", "--x-assign", "unique", "--x-initial", "unique", "--assert"]
            arguments += ["-Wno-fatal", "-Wno-lint", "-Wno-style"]
        log = folder / "build.log"
        try:
            _runner(simulator).build(
                sources=sources,
                hdl_toplevel=_TOP,
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
    runner = _runner(model.simulator)
    runner.bench_directory = bench_file.parent
    runner.limit_seconds = timeout_seconds
    plusargs = []
    if model.simulator == "verilator":
        # 2: random bits instead of all zeros or all ones
        plusargs = ["+verilator+rand+reset+2", f"+verilator+seed+{seed}"]
    ports = _ports((model.directory / f"{_TOP}.v").read_text())
    known = {
        "simulator": model.simulator,
        "inputs": [name for direction, name in ports if direction == "input"],
        **(parameters or {}),
    }
    problem = None
    try:
        runner.test(
            test_module=bench_file.stem,
            hdl_toplevel=_TOP,
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
    )
    return run(
        model,
        bench_file,
        parameters=parameters,
        only=only,
        seed=simulation.seed,
        results=simulation.results,
        timeout_seconds=LIMIT_SECONDS[simulation.simulator],
    )


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
    """

    simulator: str
    seed: int
    results: Path
    waves: bool
