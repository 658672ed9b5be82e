"""Trace records of gateware, told as a model tells them.

The path table of the gateware knows an EV by its place and its state by three bits; a timer's record says
more than reports need. Differential tests read the records as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from mrc_host.model.ev_set import PathState
from mrc_host.nic.base import TraceRecord
from mrc_rtl.records import TraceKind

__all__ = ["as_of_model"]

#: By the bits good, skip and bad of ``mrc_rtl.paths.ev_state.EvCode``, from bit 0.
_STATES = {
    0b000: PathState.DENIED,
    0b001: PathState.GOOD,
    0b010: PathState.BACKUP,
    0b011: PathState.SKIP,
    0b100: PathState.ASSUMED_BAD,
    0b110: PathState.ASSUMED_BAD,
    0b111: PathState.SKIP,  # a floor keeps it in use
}
_ATTEMPT, _IDLE = 31, 1 << 5


def as_of_model(records: Sequence[TraceRecord], evs: Sequence[Sequence[int]]) -> list[TraceRecord]:
    """Return records with the details of models; those that say nothing to a report are left out.

    Parameters
    ----------
    records : sequence of TraceRecord
    evs : sequence of sequences of int
        Values of the EVs of every plane, by place.
    """
    told = []
    for record in records:
        detail = record.detail
        if record.kind == TraceKind.EV_CHANGE:
            old, new = _STATES[detail >> 32 & 7], _STATES[detail >> 36 & 7]
            if old is new:
                continue
            value = evs[record.plane][record.psn] if record.psn < len(evs[record.plane]) else 0
            record = record._replace(detail=value | old << 32 | new << 36)
        elif record.kind == TraceKind.TIMER:
            if detail & _IDLE:
                continue
            record = record._replace(detail=detail & _ATTEMPT)
        told.append(record)
    return told
