"""``nox -s bench``: measures speed and efficiency, prints a table and writes ``bench.json``.

``bench.json`` lies at the root of the repository and maps a name to ``{value, unit, definition}``. A measure
that misses its bound is marked and makes the exit code 1; speeds depend on the machine, so only their ratio
has one.

Source: interfaces.md (Bench metric names); profile.md 10.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mrc_host.benches.engine_rates import engine_efficiency, packet_intervals
from mrc_host.benches.model_speed import MEGABYTES, measure_apart
from mrc_host.benches.rig import small_state
from mrc_host.benches.simulation_speed import cocotb_speed, simulation_speed
from mrc_host.benches.state_size import state_size
from mrc_host.compiler import missing_tools
from mrc_host.errors import MrcError
from mrc_host.experiment.lockstep import PARTS
from mrc_host.fabric.bench import fabric_packets_per_second
from mrc_host.packets.bench import codec_packets_per_second, peek_packets_per_second
from mrc_rtl.config import NicConfig

__all__ = ["BENCHES", "Measure", "main"]

RESULT = Path(__file__).parents[2] / "bench.json"

#: Width in bits → configuration whose engine is measured. The 512-bit one has fewer QPs, regions, profiles
#: and PSNs than *large*, which compiles quicker; nothing of it is on the data path.
WIDTHS = {
    128: NicConfig.quickstart(),
    64: NicConfig.quickstart().with_(planes=2, data_width=64),
    512: small_state(NicConfig.large()),
}
MAIN_WIDTH = 128
EFFICIENCY_BOUNDS = {4096: 0.95, 1024: 0.90, 256: None}
RATIO_BOUND = 0.7
#: In a mix the packets are so few that those at the ends of the interval shift the mean a little.
MIX_TOLERANCE = 1.05
#: Runs, compiled and plain, of which the best counts, while a run is short.
MODEL_RUNS = {True: 8, False: 3}
PACKETS = {False: 2000, True: 600}


@dataclass(frozen=True)
class Measure:
    """A measured value.

    Parameters
    ----------
    name : str
    value : float
    unit : str
    definition : str
        What was measured, in one sentence.
    at_least, at_most : float, optional
        Bounds.
    """

    name: str
    value: float
    unit: str
    definition: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def ok(self) -> bool:
        """Whether it keeps its bounds."""
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    @property
    def bound(self) -> str:
        """The bounds in words; empty when there are none."""
        parts = (("at least", self.at_least), ("at most", self.at_most))
        return ", ".join(f"{words} {_number(limit)}" for words, limit in parts if limit is not None)


Bench = Callable[[bool], Iterator[Measure]]


def bench_engine(reduced: bool) -> Iterator[Measure]:
    """Efficiency and packet intervals of the engine at 64, 128 and 512 bits."""
    for width, config in WIDTHS.items():
        suffixes = ("", f"_{width}") if width == MAIN_WIDTH else (f"_{width}",)
        for mtu, bound in EFFICIENCY_BOUNDS.items():
            found = engine_efficiency(config, mtu, PACKETS[reduced])
            for suffix in suffixes:
                yield Measure(
                    f"engine_efficiency_{mtu}{suffix}",
                    found.value,
                    "1",
                    f"frame bytes without FCS over cycles x width, worst direction of two {width}-bit "
                    f"engines that send to each other at MTU {mtu}",
                    at_least=bound,
                )
            yield Measure(
                f"engine_frames_lost_{mtu}_{width}",
                found.lost,
                "frames",
                "dropped for want of a buffer, duplicated or sent again in the same transfer",
                at_most=None if bound is None else 0,
            )
        yield from _intervals(config, width, suffixes)


def _intervals(config: NicConfig, width: int, suffixes: Sequence[str]) -> Iterator[Measure]:
    count = min(256, config.qps * config.send_queue_depth)
    generator = random.Random(1)
    mixed = [generator.choice((1, 7, 64, 100, generator.randrange(1, 257))) for _ in range(count)]
    both = packet_intervals(config, [1] * count, srv6=False)
    for direction, verb, interval in zip(("tx", "rx"), ("sends", "places"), both, strict=True):
        for suffix in suffixes:
            yield Measure(
                f"packet_interval_minimum_{direction}{suffix}",
                interval.cycles,
                "cycles",
                f"between the shortest writes (110-byte frames) that a {width}-bit engine {verb}",
                at_most=interval.bound,
            )
    both = packet_intervals(config, mixed)
    for direction, verb, interval in zip(("tx", "rx"), ("sends", "places"), both, strict=True):
        yield Measure(
            f"packet_interval_mix_over_bound_{direction}_{width}",
            interval.cycles / interval.bound,
            "1",
            f"interval of writes of 1 to 256 bytes that a {width}-bit engine {verb}, over max(beats, K)",
            at_most=MIX_TOLERANCE,
        )


def bench_simulation(reduced: bool) -> Iterator[Measure]:
    """Cycles a second of VerilatedNic, of a bare loop, and of cocotb."""
    speed = simulation_speed(8 if reduced else 24)
    transfer = "of the quickstart engine while it sends to itself as fast as it can"
    yield Measure("verilated_cycles_per_second", speed.verilated, "1/s", f"VerilatedNic: cycles {transfer}")
    yield Measure(
        "bare_cycles_per_second",
        speed.bare,
        "1/s",
        "bare C++ loop over the same model with the recorded pins of the same transfer",
    )
    yield Measure(
        "verilated_over_bare",
        speed.verilated / speed.bare,
        "1",
        "verilated_cycles_per_second over bare_cycles_per_second",
        at_least=RATIO_BOUND,
    )
    cocotb = cocotb_speed(1 if reduced else 4)
    yield Measure(
        "cocotb_cycles_per_second", cocotb, "1/s", f"cocotb with cocotbext-axi agents: cycles {transfer}"
    )
    yield Measure(
        "verilated_over_cocotb",
        speed.verilated / cocotb,
        "1",
        "verilated_cycles_per_second over cocotb_cycles_per_second",
    )


def bench_software(reduced: bool) -> Iterator[Measure]:
    """Packets a second of the codec and of the fabric model."""
    seconds = 0.3 if reduced else 1.0
    yield Measure(
        "codec_packets_per_second",
        codec_packets_per_second(seconds),
        "1/s",
        "4096-byte SRv6 writes decoded and encoded again",
    )
    yield Measure(
        "peek_packets_per_second", peek_packets_per_second(seconds), "1/s", "frames looked into by peek"
    )
    yield Measure(
        "fabric_packets_per_second",
        fabric_packets_per_second(4_000 if reduced else 20_000),
        "1/s",
        "4096-byte packets through the quickstart fabric, three switches each",
    )


def bench_model(reduced: bool) -> Iterator[Measure]:
    """Data packets a second of the golden model, compiled where it can be and plain, and where time goes."""
    missing = missing_tools()
    for hosts, megabytes in MEGABYTES.items():
        if reduced and hosts > 8:
            continue
        name = "8x4" if hosts == 8 else str(hosts)
        for compiled in (False,) if missing else (True, False):
            size = min(megabytes, 2) if reduced else megabytes
            runs = MODEL_RUNS[compiled] if hosts <= 64 else 1
            speeds = [measure_apart(hosts, size, compiled) for _ in range(runs)]
            speed = max(speeds, key=lambda speed: speed.data_packets_per_second)
            suffix = name if compiled else f"{name}_plain"
            yield Measure(
                f"model_packets_per_second_{suffix}",
                speed.data_packets_per_second,
                "1/s",
                f"data packets sent by {hosts} model NICs with 4 planes of 100 Gb/s, over the processor time "
                "of the simulation: NICs, fabric, software and packet log"
                + ("" if compiled else "; not compiled"),
            )
            for part, seconds in speed.parts.items():
                yield Measure(
                    f"model_share_{part}_{suffix}",
                    seconds / speed.seconds,
                    "1",
                    f"share of that time: {PARTS[part]}",
                )


def bench_state(reduced: bool) -> Iterator[Measure]:
    """Memory per queue pair."""
    size = state_size()
    yield Measure(
        "state_bytes_per_qp",
        size.total,
        "B",
        "memory bits that one more QP adds, at 128 PSNs, 128 EVs and 32 immediates, without request rings",
    )
    yield Measure(
        "state_bytes_per_qp_without_psns", size.without_psns, "B", "the same without what grows with PSNs"
    )
    for block, value in sorted(size.blocks.items(), key=lambda item: -item[1]):
        yield Measure(f"state_bytes_per_qp_{block}", value, "B", f"share of {block}")
    yield Measure("state_bytes_per_psn", size.per_psn, "B", "memory that one more PSN of a QP adds")
    yield Measure("state_bytes_per_send_request", size.per_send_request, "B", "one entry of a send ring")
    yield Measure(
        "state_bytes_per_receive_request", size.per_receive_request, "B", "one entry of a receive ring"
    )


BENCHES: dict[str, Bench] = {
    "software": bench_software,
    "model": bench_model,
    "state": bench_state,
    "simulation": bench_simulation,
    "engine": bench_engine,
}
"""Benches by name, in the order in which they run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benches and return the exit code: 0, 1 when a bound is missed, 3 when one cannot be run."""
    parser = argparse.ArgumentParser(prog="python -m mrc_host.bench", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--reduced", action="store_true", help="shorter transfers, for continuous integration"
    )
    parser.add_argument(
        "--only", choices=BENCHES, action="append", help="run this bench only (may be repeated)"
    )
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 132)
    measures: list[Measure] = []
    failed = False
    for name in options.only or BENCHES:
        started = time.monotonic()
        try:
            for measure in BENCHES[name](options.reduced):
                measures.append(measure)
                console.print(f"{measure.name} = {_number(measure.value)} {measure.unit}", highlight=False)
        except MrcError as error:
            failed = True
            console.print(f"bench {name} failed: {error}", style="red", markup=False)
        console.print(f"{name}: {time.monotonic() - started:.0f} s", style="dim")
    RESULT.write_text(json.dumps({measure.name: _entry(measure) for measure in measures}, indent=1) + "\n")
    console.print(_table(measures))
    for measure in measures:
        if not measure.ok:
            console.print(
                f"{measure.name} must be {measure.bound}, got {_number(measure.value)}", style="red"
            )
    if failed:
        return 3
    return 0 if all(measure.ok for measure in measures) else 1


def _entry(measure: Measure) -> dict[str, float | str]:
    return {"value": measure.value, "unit": measure.unit, "definition": measure.definition}


def _table(measures: Sequence[Measure]) -> Table:
    table = Table(title="bench.json")
    for heading in ("measure", "value", "unit", "bound", "what it is"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for measure in measures:
        style = None if measure.ok else "red"
        row = (measure.name, _number(measure.value), measure.unit, measure.bound, measure.definition)
        table.add_row(*row, style=style)
    return table


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main())
