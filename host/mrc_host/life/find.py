"""Finds the packet a user means among those a run recorded."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from mrc_host.errors import MrcError
from mrc_host.experiment.analysis import unwrap_psns
from mrc_host.life.probe import Copy, Target
from mrc_host.results import Run
from mrc_rtl.wire import Opcode

__all__ = ["Found", "find_packet", "recorded_copies"]

_QP = re.compile(r"(?:h(?P<host>\d+)\s*[:.])?\s*(?P<qp>0x[0-9a-fA-F]+|\d+)")
_FIRSTS = [int(opcode) for opcode in Opcode if opcode.name.startswith(("WRITE_FIRST", "WRITE_ONLY"))]


@dataclass(frozen=True)
class Found:
    """A packet of a run.

    Parameters
    ----------
    target : Target
    flows : tuple of int
        Flows that use its queue pair.
    message : int
        Number of its message among those of the queue pair, from 0; −1 when it is not known.
    opcode, payload_bytes : int
    last_ps : int
        When the run last saw it or an answer that names it.
    """

    target: Target
    flows: tuple[int, ...]
    message: int
    opcode: int
    payload_bytes: int
    last_ps: int


def find_packet(run: Run, qp: str, psn: int) -> Found:
    """Find a data packet.

    Parameters
    ----------
    run : Run
    qp : str
        Number of the sender's QP, decimal or 0x…; with ``h<host>:`` before it where several hosts have it.
    psn : int

    Raises
    ------
    MrcError
        There is no such QP, it is one of several, or it sent no such packet.
    """
    pairs = _queue_pairs(run)
    chosen = _choose(pairs, qp)
    ends = {(pair["source"], pair["target"], pair["source_qp"], pair["target_qp"]) for pair in chosen}
    source, target, source_qp, target_qp = next(iter(ends))
    packets = run.columns("packets")
    mine = (
        (packets["arrived"] == 0)
        & (packets["data"] == 1)
        & (packets["source"] == source)
        & (packets["target"] == target)
        & (packets["qp"] == target_qp)
    )
    psns = packets["psn"][mine]
    if not (psns == psn).any():
        numbers = unwrap_psns(psns)
        known = "it sent none"
        if len(psns):
            first, last = psns[int(np.argmin(numbers))], psns[int(np.argmax(numbers))]
            known = f"it sent {first:#08x} to {last:#08x}"
        raise MrcError(f"psn must be one that QP {source_qp:#x} of h{source} sent ({known}), got {psn:#08x}")
    place = int(np.flatnonzero(mine)[np.flatnonzero(psns == psn)[0]])
    numbers = unwrap_psns(psns)
    own = numbers[np.flatnonzero(psns == psn)[0]]
    begins = np.isin(packets["opcode"][mine], _FIRSTS) & (packets["retransmission"][mine] == 0)
    named = (packets["psn"] == psn) & (
        ((packets["source"] == source) & (packets["target"] == target) & (packets["qp"] == target_qp))
        | ((packets["source"] == target) & (packets["target"] == source) & (packets["qp"] == source_qp))
    )
    return Found(
        Target(source, target, source_qp, target_qp, psn),
        tuple(sorted({pair["flow"] for pair in chosen})),
        int(np.count_nonzero(begins & (numbers <= own))) - 1,
        int(packets["opcode"][place]),
        int(packets["payload_bytes"][place]),
        int(packets["time_ps"][named].max()),
    )


def recorded_copies(run: Run, target: Target) -> list[Copy]:
    """Return the recorded transmissions of a packet and NACKs for it, without their hops."""
    packets = run.columns("packets")
    forth = (
        (packets["target"] == target.target) & (packets["qp"] == target.target_qp) & (packets["data"] == 1)
    )
    back = (
        (packets["target"] == target.source)
        & (packets["qp"] == target.source_qp)
        & (packets["opcode"] == int(Opcode.NACK))
    )
    wanted = (packets["psn"] == target.psn) & (forth | back)
    names = (
        "time_ps",
        "arrived",
        "opcode",
        "source",
        "plane",
        "ev",
        "retransmission",
        "frame_bytes",
        "trimmed",
    )
    copies: list[Copy] = []
    for time_ps, arrived, opcode, source, plane, ev, again, size, trimmed in zip(
        *(packets[name][wanted].tolist() for name in names), strict=True
    ):
        if not arrived:
            copies.append(Copy(opcode, source, plane, ev, bool(again), size, time_ps))
            continue
        for copy in copies:
            same = (copy.opcode, copy.host, copy.plane, copy.ev) == (opcode, source, plane, ev)
            if same and copy.arrived_ps is None and copy.retransmission == bool(again):
                copy.arrived_ps, copy.arrived_trimmed = time_ps, bool(trimmed)
                break
    return copies


def _queue_pairs(run: Run) -> list[dict[str, Any]]:
    file = run.path / "qps.json"
    if not file.is_file():
        raise MrcError(f"{run.path} must hold qps.json, but was recorded without it: run it again")
    pairs: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return pairs


def _choose(pairs: list[dict[str, Any]], qp: str) -> list[dict[str, Any]]:
    """Return the entries of the queue pair a user means."""
    match = _QP.fullmatch(qp.strip())
    if match is None:
        raise MrcError(f"qp must be a number such as 0x100, or h0:0x100 with its host, got {qp!r}")
    number, host = int(match["qp"], 0), match["host"]
    known = [p for p in pairs if p["source_qp"] == number and (host is None or p["source"] == int(host))]
    ends = sorted({(p["source"], p["target"]) for p in known})
    if len(ends) == 1:
        return known
    listed = sorted({(p["source"], p["source_qp"], p["target"]) for p in (known or pairs)})
    text = ", ".join(f"h{source}:{sender:#x} (to h{target})" for source, sender, target in listed[:12])
    text += ", …" if len(listed) > 12 else ""
    raise MrcError(f"qp must name one queue pair that sends: {text}; got {qp!r}")
