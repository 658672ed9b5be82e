"""The simulators of the benches: cocotb's runners with only ports visible, and with bounded run time."""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from cocotb_tools.runner import Icarus, Runner, Verilator

from mrc_rtl.toolchain import cached_directory, content_key, verilator_command, verilator_environment

__all__ = ["BoundedIcarus", "PortsOnlyVerilator", "simulator_runner", "simulator_version"]


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

    #: Python takes most of the time of a bench, so a model that compiles fast beats a fast one.
    optimisation = "-O1"

    def _set_env_common(self) -> None:
        super()._set_env_common()
        self.env = verilator_environment(self.env)

    def _simulator_in_path_build_only(self) -> None:
        (self.executable,) = verilator_command()

    def _build_command(self) -> list[list[str]]:
        verilate, make = super()._build_command()
        verilate.remove("--public-flat-rw")
        return [verilate, [*make, f"OPT_FAST={self.optimisation}"]]

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

        key = content_key(simulator_version("verilator"), _compiler_version(), " ".join(make[5:] + objects))
        runtime = cached_directory("verilator-runtime", key, compile_objects)
        for name in objects:
            shutil.copy(runtime / name, self.build_dir)


class BoundedIcarus(_Bounded, Icarus):
    """The Icarus runner of cocotb with the limits of this module."""


def simulator_runner(simulator: str) -> PortsOnlyVerilator | BoundedIcarus:
    """Return a runner for "verilator" or "icarus"."""
    if simulator == "verilator":
        return PortsOnlyVerilator()
    if simulator == "icarus":
        return BoundedIcarus()
    raise ValueError(f"simulator must be 'verilator' or 'icarus', got {simulator!r}")


@functools.cache
def _compiler_version() -> str:
    return subprocess.run(["c++", "--version"], capture_output=True, text=True, check=True).stdout


@functools.cache
def simulator_version(simulator: str) -> str:
    """Return what the simulator says of its version."""
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
