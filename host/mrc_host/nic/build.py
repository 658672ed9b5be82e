"""Builds an engine into a shared library: Amaranth → Verilog → C++ → library, cached by content.

The model is split into files that all processors work on at the same time, behind one precompiled header.
Set-up code that runs once is compiled without optimisation; Verilator's own sources are compiled once for all
engines. What decides the result (Verilog, shim, versions, flags) is the key of the cache; a second call
returns the file.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path

from mrc_host.errors import InfrastructureError
from mrc_host.nic.pins import MODEL, parse_ports, pins_header
from mrc_rtl.config import NicConfig
from mrc_rtl.toolchain import (
    cached_directory,
    content_key,
    verilator_bin_dir,
    verilator_environment,
    verilator_include_dir,
    verilog_of,
)

__all__ = ["Progress", "build_library", "engine_verilog"]

Progress = Callable[[str], None]
"""Called with one line of text for each step of a build."""

SHIM = Path(__file__).parent / "shim"
LIBRARY = "engine.so"

VERILATOR_FLAGS = (
    "--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-assert", "--no-timing",
    "--output-split", "12000", "--output-split-cfuncs", "3000", "-Wno-fatal", "-Wno-lint",
    "--top-module", "top", "--prefix", MODEL,
)  # fmt: skip
COMPILER_FLAGS = ("-std=c++20", "-fPIC", "-fno-strict-aliasing", "-fvisibility=hidden", "-w")
FAST_FLAGS = ("-O2",)
SLOW_FLAGS = ("-O0",)
SUPPORT = ("verilated.cpp", "verilated_threads.cpp", "verilated_random.cpp")


def print_progress(line: str) -> None:
    """Write a step to standard error."""
    print(line, file=sys.stderr, flush=True)


@cache
def engine_verilog(config: NicConfig) -> Path:
    """Return the Verilog file of ``MrcNic(config)``, converted if nobody has.

    Within a process the answer stays the same, even when somebody edits the gateware meanwhile: all NICs of
    a run are the same engine.
    """

    def engine() -> object:
        from mrc_rtl.nic import MrcNic  # imported only when the conversion is not in the cache: it is slow

        return MrcNic(config)

    return verilog_of(engine, key=repr(config))


def build_library(
    verilog: Path, *, planes: int, data_width: int, trace: bool, progress: Progress = print_progress
) -> Path:
    """Return the shared library of an engine with the shim, built if it is not in the cache.

    Parameters
    ----------
    verilog : Path
        Verilog with the engine as module ``top``.
    planes, data_width : int
        Ports and their width in bits, checked against the ports of the model.
    trace : bool
        The engine has a trace stream.
    progress : callable
        Gets a line for each step.

    Raises
    ------
    InfrastructureError
        There is no C++ compiler, or a tool failed; the message ends with what it printed.
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise InfrastructureError(
            f"C++ compiler {compiler} must be on PATH, but is not: apt-get install g++ (or set CXX)"
        )
    version = _run([compiler, "--version"], Path.cwd()).splitlines()[0]
    key = content_key(
        verilog, *sorted(SHIM.iterdir()), Path(__file__), Path(__file__).with_name("pins.py"),
        f"{planes} {data_width} {trace}", version, importlib.metadata.version("verilator"),
    )  # fmt: skip

    def make(folder: Path) -> None:
        started = time.monotonic()
        progress("verilator: Verilog to C++")
        work = folder / "build"
        work.mkdir()
        _run(
            [str(verilator_bin_dir() / "verilator"), *VERILATOR_FLAGS, "--Mdir", str(work), str(verilog)],
            work,
            verilator_environment(),
        )
        header = (work / f"{MODEL}.h").read_text()
        (work / "pins.h").write_text(pins_header(parse_ports(header), planes, data_width, trace))
        objects = _compile_model(compiler, work, progress) + _support_objects(compiler, version, progress)
        _run([compiler, "-shared", "-o", str(folder / LIBRARY), *map(str, objects), "-pthread"], work)
        shutil.rmtree(work)
        progress(f"engine built in {time.monotonic() - started:.0f} s")

    return cached_directory("engine", key, make) / LIBRARY


def _compile_model(compiler: str, work: Path, progress: Progress) -> list[Path]:
    """Compile what Verilator wrote, and the shim; return the object files."""
    header = f"{MODEL}__pch.h"
    flags = [*COMPILER_FLAGS, f"-I{work}", f"-I{SHIM}", *_include_flags()]
    (work / f"{header}.gch").mkdir()
    headers = [
        [compiler, *flags, *optimise, "-x", "c++-header", header, "-o", f"{header}.gch/{name}"]
        for name, optimise in (("fast", FAST_FLAGS), ("slow", SLOW_FLAGS))
    ]
    _run_all(headers, work, lambda number: None)

    sources = sorted(
        [*work.glob("*.cpp"), *SHIM.glob("*.cpp")], key=lambda path: path.stat().st_size, reverse=True
    )
    jobs = []
    for source in sources:
        optimise = SLOW_FLAGS if source.stem.endswith("__Slow") else FAST_FLAGS
        jobs.append([compiler, *flags, *optimise, "-include", header, *_output(source)])
    _run_all(jobs, work, lambda number: progress(f"compiled {number} of {len(jobs)} files"))
    return [work / f"{source.stem}.o" for source in sources]


def _support_objects(compiler: str, version: str, progress: Progress) -> list[Path]:
    """Return the object files of Verilator's own sources, compiled if they are not in the cache."""
    include = verilator_include_dir()
    sources = [include / name for name in SUPPORT]
    key = content_key(version, repr((COMPILER_FLAGS, FAST_FLAGS)), *sources)

    def make(folder: Path) -> None:
        progress("compiling Verilator's support code (once)")
        command = [compiler, *COMPILER_FLAGS, *FAST_FLAGS, *_include_flags()]
        _run_all([[*command, *_output(source)] for source in sources], folder, lambda number: None)

    folder = cached_directory("verilator-support", key, make)
    return [folder / f"{source.stem}.o" for source in sources]


def _include_flags() -> list[str]:
    include = verilator_include_dir()
    return [f"-I{include}", f"-I{include / 'vltstd'}"]


def _output(source: Path) -> list[str]:
    return ["-c", str(source), "-o", f"{source.stem}.o"]


def _run_all(commands: list[list[str]], folder: Path, finished: Callable[[int], None]) -> None:
    """Run commands, as many at a time as there are processors; ``finished`` is told how many are done."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = [pool.submit(_run, command, folder) for command in commands]
        try:
            for number, job in enumerate(as_completed(running), 1):
                job.result()
                finished(number)
        finally:
            for job in running:
                job.cancel()


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    result = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode:
        lines = "\n".join(result.stdout.strip().splitlines()[-40:])
        raise InfrastructureError(f"{Path(command[0]).name} failed with status {result.returncode}:\n{lines}")
    return result.stdout
