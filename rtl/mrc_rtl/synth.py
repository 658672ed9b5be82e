"""Synthesis of the small engine for an LFE5U-25F: sizes per module, ceilings, place and route.

``python -m mrc_rtl.synth`` maps the engine with yosys, writes ``synth.json`` and fails when a ceiling of
``budget.toml`` is broken or a memory breaks the design's rule. ``--pnr`` also places and routes it in a
wrapper whose pins are registered, with three seeds, and names the critical path. ``--pipelines`` does so for
the blocks whose state is read and written within a few cycles, each on its own, with five seeds; it takes
minutes where the engine takes an hour.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.back import rtlil

from .config import NicConfig
from .memory_rules import violations
from .paths.bind import Bind
from .paths.path_table import PathTable
from .paths.spray import EvPick, pick_stages
from .pin_wrapper import PinWrapper
from .requester.tx_tracker import TxTracker
from .responder.rx_tracker import RxTracker
from .toolchain import nextpnr_command, with_undefined_collisions, yosys_command

__all__ = ["PIPELINES", "ModuleSize", "main", "place_and_route", "synthesise"]

#: Cells of the ECP5 library that count as one LUT4, with their weight.
_LUT_WEIGHTS = {"LUT4": 1, "PFUMX": 0, "L6MUX21": 0, "CCU2C": 2, "TRELLIS_DPR16X4": 4}
_WHOLE = "whole small engine, mapped as one, with the pin wrapper"
_BLOCK_RAMS = ("DP16KD", "PDPW16KD")
_FLIP_FLOPS = ("TRELLIS_FF",)

#: The pick and the pipelines of state of a (QP, plane), a QP or a PSN, by the name of their figure.
PIPELINES: dict[str, Callable[[NicConfig], Any]] = {
    "pick": lambda config: EvPick(stages=pick_stages(config)),
    "path_table": PathTable,
    "bind": Bind,
    "tx_tracker": TxTracker,
    "rx_tracker": RxTracker,
}
_PIPELINE_SEEDS = range(1, 6)


@dataclass(frozen=True)
class ModuleSize:
    """Size of one module with all that is below it.

    Parameters
    ----------
    name : str
    lut4 : int
        LUT4, with two for a carry cell and four for 16 x 4 bits of distributed RAM,
        as nextpnr counts them.
    ff : int
    block_ram : int
    """

    name: str
    lut4: int
    ff: int
    block_ram: int


def _run(command: list[str], log: Path) -> str:
    # The tools run in a sandbox that sees the current folder: file names are relative to it.
    with open(log, "w") as handle:
        result = subprocess.run(command, stdout=handle, stderr=subprocess.STDOUT, cwd=log.parent, check=False)
    text = log.read_text(errors="replace")
    if result.returncode:
        tail = "\n".join(text.splitlines()[-30:])
        raise RuntimeError(f"{Path(command[0]).name} failed, its last lines:\n{tail}")
    return text


def _sizes(statistics_json: dict[str, Any], top: str) -> dict[str, ModuleSize]:
    modules = {
        name.lstrip("\\"): value["num_cells_by_type"] for name, value in statistics_json["modules"].items()
    }
    done: dict[str, ModuleSize] = {}

    def size(name: str) -> ModuleSize:
        if name not in done:
            lut4 = ff = block_ram = 0
            for cell, count in modules[name].items():
                kind = cell.lstrip("\\")
                if kind in modules:
                    below = size(kind)
                    lut4 += count * below.lut4
                    ff += count * below.ff
                    block_ram += count * below.block_ram
                else:
                    lut4 += count * _LUT_WEIGHTS.get(kind, 0)
                    ff += count * (kind in _FLIP_FLOPS)
                    block_ram += count * (kind in _BLOCK_RAMS)
            done[name] = ModuleSize(name, lut4, ff, block_ram)
        return done[name]

    size(top)
    return done


def synthesise(design: Any, folder: Path, *, flatten: bool, name: str = "top") -> dict[str, ModuleSize]:
    """Map a component for ECP5 and return the size of each module, the top under ``name``.

    Parameters
    ----------
    design : Component
    folder : Path
        Where ``top.json`` (the netlist) and the logs go.
    flatten : bool
        One flat netlist, as place and route wants it; otherwise the hierarchy stays and every module is
        sized on its own.

    Raises
    ------
    RuntimeError
        yosys failed; the text ends with its last lines.
    """
    (folder / "top.il").write_text(
        with_undefined_collisions(rtlil.convert(design, name=name, emit_src=False))
    )
    # Without wide multiplexer cells the engine takes half the LUTs and is no slower.
    mapping = f"synth_ecp5 -top {name} -nowidelut {'' if flatten else '-noflatten'} -json top.json"
    script = "; ".join(
        [
            "read_rtlil top.il",
            "scratchpad -copy abc9.script.flow2 abc9.script",
            mapping,
            "tee -o stat.json stat -json",
        ]
    )
    _run([*yosys_command(), "-q", "-p", script], folder / "yosys.log")
    return _sizes(json.loads((folder / "stat.json").read_text()), name)


@dataclass(frozen=True)
class Routed:
    """Outcome of one place and route run: seed, highest clock in MHz, and the critical path."""

    seed: int
    fmax_mhz: float
    critical_path: str


def place_and_route(netlist: Path, folder: Path, seed: int, *, speed: int = 6) -> Routed:
    """Place and route a flat netlist for the LFE5U-25F.

    Parameters
    ----------
    netlist : Path
        JSON of :func:`synthesise` with ``flatten``, in ``folder``.
    folder : Path
        For the report and the log.
    seed : int
    speed : int
        Speed grade, 6 to 8.
    """
    report = folder / f"report-{seed}.json"
    command = [
        *nextpnr_command(), "--25k", "--package", "CABGA381", "--speed", str(speed), "--json", netlist.name,
        "--seed", str(seed), "--freq", "62.5", "--timing-allow-fail", "--lpf-allow-unconstrained",
        "--report", report.name,
    ]  # fmt: skip
    _run(command, folder / f"nextpnr-{seed}.log")
    facts = json.loads(report.read_text())
    clock, value = max(facts["fmax"].items(), key=lambda item: item[1]["achieved"])
    path = next(
        (p for p in facts["critical_paths"] if p["from"].endswith(clock) and p["to"].endswith(clock)), None
    )
    return Routed(seed, value["achieved"], _describe(path) if path else "none")


def _describe(path: dict[str, Any]) -> str:
    steps = path["path"]

    def readable(cell: str) -> str:
        return re.sub(r"_(TRELLIS_FF|LUT4|PFUMX|L6MUX21|CCU2C|DP16KD|TRELLIS_DPR16X4).*$", "", cell)

    logic = sum(step["type"] == "logic" for step in steps)
    delay = sum(step["delay"] for step in steps)
    first, last = readable(steps[0]["from"]["cell"]), readable(steps[-1]["to"]["cell"])
    return f"{first} to {last}, {delay:.1f} ns, {logic} logic levels"


def _breaches(total: ModuleSize, budget: dict[str, Any]) -> list[str]:
    ceilings = budget["small"]
    return [
        f"{name} must be at most {ceilings[name]}, got {value}"
        for name, value in (("lut4", total.lut4), ("ff", total.ff), ("block_ram", total.block_ram))
        if value > ceilings[name]
    ]


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns 0 when every ceiling holds, 1 when one is broken."""
    parser = argparse.ArgumentParser(prog="python -m mrc_rtl.synth", description=__doc__)
    parser.add_argument("--pnr", action="store_true", help="place and route with three seeds, speed grade 6")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of place and route (default 3)")
    parser.add_argument("--first-seed", type=int, default=1, help="first of the seeds (default 1)")
    parser.add_argument(
        "--out", type=Path, default=Path("synth.json"), help="result file (default synth.json)"
    )
    parser.add_argument("--budget", type=Path, default=Path("budget.toml"))
    parser.add_argument("--pipelines", action="store_true", help="place and route pipelines of state only")
    options = parser.parse_args(arguments)

    config = NicConfig.small()
    budget = tomllib.loads(options.budget.read_text())
    if options.pipelines:
        return _pipelines(config, budget, options.out)

    from .nic import MrcNic

    problems = violations(MrcNic(config), config)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        modules = synthesise(MrcNic(config), folder, flatten=False)
        for size in sorted(modules.values(), key=lambda s: -s.lut4):
            print(f"{size.name[:60]:60} {size.lut4:6} LUT4 {size.ff:6} FF {size.block_ram:3} block RAM")
        # What is placed is mapped as one: yosys then simplifies across the borders of modules.
        total = synthesise(PinWrapper(MrcNic(config)), folder, flatten=True)["top"]
        print(f"{_WHOLE}: {total.lut4} LUT4, {total.ff} FF, {total.block_ram} block RAM")
        result: dict[str, Any] = {
            "configuration": config.as_dict(),
            "lut4": _figure(total.lut4, "LUT4", f"{_WHOLE}, LUT4 + 2 x CCU2C + 4 x TRELLIS_DPR16X4"),
            "ff": _figure(total.ff, "flip-flops", _WHOLE),
            "block_ram": _figure(total.block_ram, "DP16KD", _WHOLE),
            "modules": {
                n: {"lut4": s.lut4, "ff": s.ff, "block_ram": s.block_ram} for n, s in modules.items()
            },
        }
        problems += _breaches(total, budget)
        if options.pnr:
            # The tool uses one core, and a seed takes it a quarter of an hour.
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                seeds = range(options.first_seed, options.first_seed + options.seeds)
                jobs = [pool.submit(place_and_route, folder / "top.json", folder, seed) for seed in seeds]
                runs = [job.result() for job in jobs]
            for routed in runs:
                print(f"seed {routed.seed}: {routed.fmax_mhz:.1f} MHz; critical path: {routed.critical_path}")
            median = statistics.median(run.fmax_mhz for run in runs)
            result["fmax_mhz"] = _figure(median, "MHz", "median over the seeds, LFE5U-25F speed grade 6")
            result["seeds"] = [run.seed for run in runs]
            result["fmax_mhz_all_seeds"] = [run.fmax_mhz for run in runs]
            result["critical_paths"] = [run.critical_path for run in runs]
            if median < budget["small"]["fmax_mhz"]:
                problems.append(f"fmax must be at least {budget['small']['fmax_mhz']} MHz, got {median:.1f}")
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    result |= {name: kept[name] for name in ("pipelines",) if name in kept}
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    for problem in problems:
        print(f"over budget: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _pipelines(config: NicConfig, budget: dict[str, Any], out: Path) -> int:
    """Measure :data:`PIPELINES` and add them to the result file; 1 when one is too slow."""
    problems = []
    figures = {}
    for name, build in PIPELINES.items():
        with tempfile.TemporaryDirectory() as folder_name, ThreadPoolExecutor(os.cpu_count()) as pool:
            folder = Path(folder_name)
            synthesise(PinWrapper(build(config)), folder, flatten=True)
            jobs = [
                pool.submit(place_and_route, folder / "top.json", folder, seed) for seed in _PIPELINE_SEEDS
            ]
            runs = sorted((job.result() for job in jobs), key=lambda run: run.fmax_mhz)
        middle = runs[len(runs) // 2]
        print(f"{name}: {middle.fmax_mhz:.1f} MHz; critical path: {middle.critical_path}", flush=True)
        figures[name] = {"fmax_mhz": middle.fmax_mhz, "critical_path": middle.critical_path}
        if middle.fmax_mhz < budget["pipelines"]["fmax_mhz"]:
            least = budget["pipelines"]["fmax_mhz"]
            problems.append(f"fmax of {name} must be at least {least} MHz, got {middle.fmax_mhz:.1f}")
    result = json.loads(out.read_text()) if out.exists() else {}
    out.write_text(json.dumps({**result, "pipelines": figures}, indent=2) + "\n")
    for problem in problems:
        print(f"over budget: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _figure(value: float, unit: str, definition: str) -> dict[str, Any]:
    return {"value": value, "unit": unit, "definition": definition}


if __name__ == "__main__":
    sys.exit(main())
