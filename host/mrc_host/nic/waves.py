"""Verilated NICs that write their signals into VCD files, inside windows of time only.

The engine is the one of :mod:`mrc_host.nic.verilated`, built a second time with Verilator's tracing: the
result of a run is the same, so a recorded run can be repeated for its waveforms around a fault. One sample a
clocked cycle, before its clock edge; cycles that were skipped while the engine rested have none.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mrc_host.errors import InfrastructureError
from mrc_host.nic.build import (
    COMPILER_FLAGS,
    FAST_FLAGS,
    LIBRARY,
    SHIM,
    SUPPORT,
    VERILATOR_FLAGS,
    Progress,
    print_progress,
)
from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_host.nic.pins import MODEL, parse_ports, pins_header
from mrc_host.nic.verilated import VerilatedNic
from mrc_rtl.config import NicConfig
from mrc_rtl.toolchain import (
    cached_directory,
    content_key,
    verilator_bin_dir,
    verilator_environment,
    verilator_include_dir,
)

__all__ = ["WavesNic", "build_waves_library"]

REPLACED = Path(__file__).parent / "shim_waves"
LEFT_OUT = {"bare.cpp", "stimulus.h"}
"""Files of the shim that have no place here: they replay recorded stimuli."""
FLAGS = (*VERILATOR_FLAGS, "--trace-vcd", "--trace-structs")
TRACING = "verilated_vcd_c.cpp"


class WavesNic(VerilatedNic):
    """A verilated NIC with waveforms; see the module's text.

    Parameters
    ----------
    config, mac, memory, verilog, progress
        As for :class:`~mrc_host.nic.verilated.VerilatedNic`.
    file : Path
        The VCD file; it appears with the first sample.

    Raises
    ------
    InfrastructureError
        The engine cannot be built.
    """

    def __init__(
        self,
        config: NicConfig,
        mac: MacOptions | None = None,
        memory: MemoryOptions | None = None,
        *,
        file: Path,
        verilog: Path | None = None,
        progress: Progress = print_progress,
    ) -> None:
        super().__init__(config, mac, memory, verilog=verilog, progress=progress, build=build_waves_library)
        for name, arguments in (
            ("mrc_waves_into", [ctypes.c_void_p, ctypes.c_char_p]),
            ("mrc_waves_window", [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]),
        ):
            function = getattr(self._library, name)
            function.restype, function.argtypes = None, arguments
        self._waves = self.new_stimulus()
        self._library.mrc_waves_into(self._waves.handle, str(file).encode())
        self.record_stimulus(self._waves)

    @property
    def samples(self) -> int:
        """Cycles written so far."""
        return self._waves.cycles

    def show(self, begin_ps: int, end_ps: int) -> None:
        """Write what happens between two times; windows may overlap.

        Raises
        ------
        ValueError
            The window has ended already, or ends before it begins.
        """
        if not max(self.time_ps, begin_ps) < end_ps:
            raise ValueError(f"end_ps must be after {max(self.time_ps, begin_ps)}, got {end_ps}")
        self._library.mrc_waves_window(self._waves.handle, begin_ps, end_ps)

    def close(self) -> None:
        """Free the model, and with it close the file."""
        if self._handle is not None:
            self.record_stimulus(None)
            self._waves.close()
        super().close()


def build_waves_library(
    verilog: Path, *, planes: int, data_width: int, trace: bool, progress: Progress = print_progress
) -> Path:
    """Return the shared library of an engine with waveforms, built if it is not in the cache.

    Parameters and errors are those of :func:`mrc_host.nic.build.build_library`.
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise InfrastructureError(f"C++ compiler {compiler} must be on PATH, but is not (or set CXX)")
    sources = [path for path in sorted(SHIM.iterdir()) if path.name not in LEFT_OUT]
    sources += sorted(REPLACED.iterdir())
    include = verilator_include_dir()
    key = content_key(
        verilog, *sources, Path(__file__), f"{planes} {data_width} {trace} {FLAGS}",
        importlib.metadata.version("verilator"),
    )  # fmt: skip

    def make(folder: Path) -> None:
        started = time.monotonic()
        progress("verilator: Verilog to C++, with waveforms")
        work = folder / "build"
        work.mkdir()
        verilator = str(verilator_bin_dir() / "verilator")
        _run([verilator, *FLAGS, "--Mdir", str(work), str(verilog)], work, verilator_environment())
        for source in sources:
            shutil.copy(source, work)
        header = (work / f"{MODEL}.h").read_text()
        (work / "pins.h").write_text(pins_header(parse_ports(header), planes, data_width, trace))
        files = [*work.glob("*.cpp"), *(include / name for name in (*SUPPORT, TRACING))]
        files.sort(key=lambda path: path.stat().st_size, reverse=True)
        base = [compiler, *COMPILER_FLAGS, "-DVM_TRACE=1", "-DVM_TRACE_VCD=1", *FAST_FLAGS]
        places = [f"-I{work}", f"-I{include}", f"-I{include / 'vltstd'}"]
        commands = [[*base, *places, "-c", str(file), "-o", f"{file.stem}.o"] for file in files]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for number, _ in enumerate(pool.map(lambda command: _run(command, work), commands), 1):
                progress(f"compiled {number} of {len(commands)} files")
        objects = [f"{file.stem}.o" for file in files]
        _run([compiler, "-shared", "-o", str(folder / LIBRARY), *objects, "-pthread"], work)
        shutil.rmtree(work)
        progress(f"engine with waveforms built in {time.monotonic() - started:.0f} s")

    return cached_directory("engine-waves", key, make) / LIBRARY


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    result = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if result.returncode:
        lines = "\n".join((result.stdout + result.stderr).strip().splitlines()[-40:])
        raise InfrastructureError(f"{Path(command[0]).name} failed with status {result.returncode}:\n{lines}")
