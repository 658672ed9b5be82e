"""Exports a run for Perfetto: tracks for queue pairs, EVs, planes and queues, arrows from loss to repair.

One process for each host, with a track for each queue pair (losses, timeouts), for what each plane sends and
receives, and for every EV that changed its state; one for the fabric with its queues; one for faults. Arrows
lead from a data packet over its trimmed arrival, the NACK and the loss to the retransmission.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from mrc_host.errors import InfrastructureError, MrcError
from mrc_host.experiment.nic_events import EvChange, ev_changes, window_samples
from mrc_host.export.trace_events import Slice, TraceBuilder, Track
from mrc_host.model.ev_set import PathState
from mrc_host.report.data import RunData, read_run
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.records import TraceKind
from mrc_rtl.wire import GAP_PREAMBLE_FCS_BYTES, Opcode

__all__ = ["DEFAULT_NAME", "export_perfetto"]

DEFAULT_NAME = "trace.perfetto.json"
MICROSECOND_PS = 1_000_000
MOMENT_PS = 10_000
"""Length of the slice of something that takes no time: long enough to be clicked."""

Key = tuple[int, int, int, int]
"""A packet: source, target, QP number at the target, PSN."""


def export_perfetto(
    path: Path, out: Path | None = None, *, from_us: float = 0.0, to_us: float | None = None
) -> Path:
    """Write the trace of a run.

    Parameters
    ----------
    path : Path
        The run directory.
    out : Path, optional
        The file; ``trace.perfetto.json`` in the directory by default.
    from_us, to_us : float
        Only what happened between these times; a long run makes a file too large for a browser.

    Raises
    ------
    MrcError
        It is no measured run, or the times are in the wrong order.
    InfrastructureError
        The file cannot be written.
    """
    if to_us is not None and to_us <= from_us:
        raise MrcError(f"to_us must be after from_us = {from_us:g}, got {to_us:g}")
    data = read_run(path)
    last = max([data.end_us, *(data.packets["time_ps"][-1:] / MICROSECOND_PS)])
    export = _Export(
        data, round(from_us * MICROSECOND_PS), round((last if to_us is None else to_us) * MICROSECOND_PS)
    )
    target = out or path / DEFAULT_NAME
    try:
        with target.open("w", encoding="utf-8") as file:
            export.builder.write(file)
    except OSError as error:
        raise InfrastructureError(f"{target} must be a file that can be written, got: {error}") from error
    return target


class _Export:
    """A run being exported."""

    def __init__(self, data: RunData, begin_ps: int, end_ps: int) -> None:
        self.data = data
        self.builder = TraceBuilder()
        self._begin_ps, self._end_ps = begin_ps, end_ps
        self._chains: dict[Key, list[tuple[int, str, Slice]]] = defaultdict(list)
        packets = data.packets
        again = (packets["retransmission"] == 1) & (packets["data"] == 1)
        self._repaired = set(
            zip(*(packets[name][again].tolist() for name in ("source", "target", "qp", "psn")), strict=True)
        )
        self._faults()
        for host in range(data.topology.hosts):
            self._host(host)
        self._queues()
        self._arrows()

    def _inside(self, time_ps: int) -> bool:
        return self._begin_ps <= time_ps <= self._end_ps

    # -- tracks ------------------------------------------------------------------------------------------

    def _faults(self) -> None:
        for fault in self.data.faults:
            begin = max(self._begin_ps, round(fault["from_us"] * MICROSECOND_PS))
            end = self._end_ps if fault["to_us"] is None else round(fault["to_us"] * MICROSECOND_PS)
            end = min(end, self._end_ps)
            if begin < end:
                name = f"{fault['kind'].replace('_', ' ')} on {fault['place']}"
                track = self.builder.track("faults", f"{fault['number'] + 1} {name}")
                self.builder.slice(
                    track, begin, end, name, "fault", {"met": fault["met"], "hit": fault["hit"]}
                )

    def _host(self, host: int) -> None:
        process = f"h{host}"
        self.builder.process(process)
        self._messages(process, host)
        self._queue_pairs(process, host)
        for plane in range(self.data.topology.planes):
            self._port(process, host, plane)
        self._paths(process, host)
        self._windows(process, host)

    def _messages(self, process: str, host: int) -> None:
        messages = self.data.messages
        names = ("flow", "message", "bytes", "posted_ps", "last_byte_ps")
        mine = (messages["source"] == host) & ~np.isnan(messages["last_byte_ps"].astype(float))
        for flow, message, size, posted, last in zip(
            *(messages[n][mine].tolist() for n in names), strict=True
        ):
            if self._inside(int(posted)):
                name = f"{self.data.flows[int(flow)].name} message {int(message)}"
                details = {"bytes": int(size)}
                self.builder.asynchronous(process, int(posted), int(last), name, "message", details)

    def _queue_pairs(self, process: str, host: int) -> None:
        """Losses and timeouts of each queue pair that sends."""
        events = self.data.events
        for pair in self.data.queue_pairs:
            if pair["source"] != host:
                continue
            number = pair["source_qp"]
            track = self.builder.track(process, f"QP {number:#x} → h{pair['target']}")
            mine = (events["host"] == host) & (events["qp"] == number - QP_NUMBER_BASE)
            free_ps = 0
            for time_ps, kind, plane, psn, detail in self._rows(
                events, mine, "kind", "plane", "psn", "detail"
            ):
                if kind not in (TraceKind.LOSS, TraceKind.TIMER) or not self._inside(time_ps):
                    continue
                begin = max(time_ps, free_ps)  # several losses of one moment stand one behind the other
                free_ps = begin + MOMENT_PS
                details: dict[str, Any] = {"psn": f"{psn:#08x}", "at_us": time_ps / MICROSECOND_PS}
                if kind == TraceKind.LOSS:
                    details |= {"plane": plane, "by_timeout": bool(detail >> 16 & 1)}
                name = TraceKind(kind).name
                item = self.builder.slice(track, begin, free_ps, name, "decision", details)
                key = (host, pair["target"], pair["target_qp"], psn)
                if kind == TraceKind.LOSS and key in self._repaired:
                    self._chains[key].append((time_ps, "loss", item))

    def _port(self, process: str, host: int, plane: int) -> None:
        """What a port sends and receives: a slice for each packet, as long as its slot on the link."""
        packets = self.data.packets
        link = self.data.topology.host_link(host, plane)
        names = (
            "source", "target", "opcode", "qp", "psn", "ev", "frame_bytes", "retransmission", "trimmed",
            "data",
        )  # fmt: skip
        for arrived, verb, half in ((0, "sends", link.up), (1, "receives", link.down)):
            mine = (packets["nic"] == host) & (packets["plane"] == plane) & (packets["arrived"] == arrived)
            track: Track | None = None
            free_ps = -1
            for time_ps, source, target, opcode, qp, psn, ev, size, again, trimmed, data in self._rows(
                packets, mine, *names
            ):
                slot = int((size + GAP_PREAMBLE_FCS_BYTES) * half.byte_ps)
                # A link at a rate of its own for a time may be faster or slower: slices never overlap.
                begin = max(time_ps - slot, free_ps)
                if not self._inside(begin) or begin >= time_ps:
                    continue
                free_ps = time_ps
                track = track or self.builder.track(process, f"plane {plane} {verb}")
                name = Opcode(opcode).name if opcode in Opcode._value2member_map_ else f"{opcode:#04x}"
                name += " (again)" if again and data else " (cut)" if trimmed else ""
                details = {
                    "psn": f"{psn:#08x}", "qp": f"{qp:#x}", "ev": f"{ev:#010x}", "bytes": size,
                    "from": f"h{source}", "to": f"h{target}",
                }  # fmt: skip
                item = self.builder.slice(track, begin, time_ps, name, "packet", details)
                self._note(source, target, opcode, qp, psn, time_ps, bool(data), bool(trimmed), arrived, item)

    def _note(
        self, source: int, target: int, opcode: int, qp: int, psn: int, time_ps: int,
        data: bool, trimmed: bool, arrived: int, item: Slice,
    ) -> None:  # fmt: skip
        """Remember the slices that the arrows of a repaired packet lead over."""
        if data:
            key = (source, target, qp, psn)
            if key in self._repaired and (not arrived or trimmed):
                self._chains[key].append((time_ps, "cut" if arrived else "sent", item))
        elif opcode == Opcode.NACK:
            for pair in self.data.queue_pairs:
                ends = (pair["target"], pair["source"], pair["source_qp"])
                key = (target, source, pair["target_qp"], psn)
                if ends == (source, target, qp) and key in self._repaired:
                    self._chains[key].append((time_ps, "nack", item))

    def _paths(self, process: str, host: int) -> None:
        """States of the EVs that changed, GOOD left empty."""
        by_path: dict[tuple[int, int, int], list[EvChange]] = defaultdict(list)
        for change in ev_changes(self.data.events):
            if change.host == host:
                by_path[change.qp, change.plane, change.ev].append(change)
        for (qp, plane, ev), changes in sorted(by_path.items()):
            track = self.builder.track(process, f"QP {qp + QP_NUMBER_BASE:#x} EV {ev:#010x} plane {plane}")
            begin, state = 0, changes[0].old
            for end, new in [*((c.time_ps, c.new) for c in changes), (self._end_ps, int(PathState.GOOD))]:
                low, high = max(begin, self._begin_ps), min(end, self._end_ps)
                if state != PathState.GOOD and low < high:
                    self.builder.slice(track, low, high, PathState(state).name, "path", {})
                begin, state = end, new

    def _windows(self, process: str, host: int) -> None:
        for sample in window_samples(self.data.events):
            if sample.host != host or not self._inside(sample.time_ps):
                continue
            qp = f"QP {sample.qp + QP_NUMBER_BASE:#x}"
            self.builder.counter(process, sample.time_ps, f"{qp} bytes in flight", sample.in_flight)
            if sample.window is not None:
                self.builder.counter(process, sample.time_ps, f"{qp} window (bytes)", sample.window)
            if sample.rtt_ps is not None:
                self.builder.counter(process, sample.time_ps, f"{qp} RTT (ns)", sample.rtt_ps / 1000)

    def _queues(self) -> None:
        """Depths of switch queues: most bytes in each interval, 0 where nothing waited."""
        queues = self.data.queues
        interval_ps = round(self.data.experiment.records.interval_ns * 1000)
        halves = self.data.topology.directions
        last: dict[int, int] = {}
        for time_ps, direction, peak in self._rows(queues, slice(None), "direction", "peak_bytes"):
            if not self._inside(time_ps):
                continue
            name = f"queue {halves[direction].source_port} (bytes)"
            if direction in last and time_ps - last[direction] > interval_ps:
                self.builder.counter("fabric", last[direction] + interval_ps, name, 0)
            self.builder.counter("fabric", time_ps, name, peak)
            last[direction] = time_ps
        for direction, time_ps in last.items():
            name = f"queue {halves[direction].source_port} (bytes)"
            self.builder.counter("fabric", time_ps + interval_ps, name, 0)

    # -- arrows ------------------------------------------------------------------------------------------

    def _arrows(self) -> None:
        """Lead arrows from each transmission to the next one, over what caused it."""
        for key, chain in self._chains.items():
            chain.sort(key=lambda entry: entry[:2])
            sends = [place for place, (_, kind, _) in enumerate(chain) if kind == "sent"]
            for first, second in zip(sends, sends[1:], strict=False):
                last = chain[second][2]
                # Losses of one moment stand one behind the other: the last may come too late to be shown.
                between = [e[2] for e in chain[first:second] if e[2].inside_ps < last.inside_ps]
                slices = [*sorted(between, key=lambda item: item.inside_ps), last]
                self.builder.arrows(slices, f"repair of {key[3]:#08x}")

    @staticmethod
    def _rows(columns: dict[str, Any], mine: Any, *names: str) -> list[tuple[int, ...]]:
        """Return rows of a table in order of time: the time and some columns."""
        chosen = [columns[name][mine].tolist() for name in ("time_ps", *names)]
        return sorted(zip(*chosen, strict=True), key=lambda row: row[0])
