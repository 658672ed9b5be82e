"""What NICs decided during a run: EV states, losses, timeouts, windows; read from their trace records.

Models report these kinds always, gateware with ``nic.parameters.trace: true`` (and those it has). Frequent
kinds (bind, admit, place, merge) are not kept: a run has one of them for each packet.

========== ==================================================== ===========================================
kind       psn                                                  detail
========== ==================================================== ===========================================
LOSS       PSN taken for lost                                   number of its EV | by timeout << 16
EV_CHANGE  place of the EV in its plane                         EV | old state << 32 | new state << 36
TIMER      oldest missing PSN                                   attempt
WINDOW     oldest PSN not covered                               window | bytes in flight << 24 | RTT << 48
========== ==================================================== ===========================================

Source: design.md 4, "Seeing inside".
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mrc_host.nic.base import TraceRecord
from mrc_rtl.config import TICK_PS
from mrc_rtl.records import TraceKind

__all__ = [
    "COLUMNS",
    "KINDS",
    "EvChange",
    "EventColumns",
    "NicEvents",
    "WindowSample",
    "ev_changes",
    "window_samples",
]

COLUMNS = ("time_ps", "host", "kind", "qp", "plane", "psn", "detail")
"""Names of the columns; ``qp`` is the QP's index, its number less ``QP_NUMBER_BASE``."""
KINDS = frozenset({TraceKind.LOSS, TraceKind.EV_CHANGE, TraceKind.TIMER, TraceKind.WINDOW})
"""Kinds that are kept."""
UNLIMITED = 0xFF_FFFF
NO_SAMPLE = 0x7FFF

EventColumns = dict[str, npt.NDArray[np.int64]]


class NicEvents:
    """The events of a run, in order of time and host however the run was cut into windows."""

    def __init__(self) -> None:
        self._columns = {name: array("q") for name in COLUMNS}

    def note(self, host: int, records: Sequence[TraceRecord]) -> None:
        """Keep what a host's NIC reported, in order of time."""
        columns = self._columns
        for record in records:
            if record.kind in KINDS:
                values = (record.time_ps, host, *record[1:])
                for name, value in zip(COLUMNS, values, strict=True):
                    columns[name].append(value)

    def columns(self) -> EventColumns:
        """Return all events as columns."""
        columns = {name: np.array(values, dtype=np.int64) for name, values in self._columns.items()}
        order = np.lexsort((columns["host"], columns["time_ps"]))
        return {name: column[order] for name, column in columns.items()}


class EvChange(NamedTuple):
    """An EV of a QP began a state (:class:`mrc_host.model.ev_set.PathState` by number)."""

    time_ps: int
    host: int
    qp: int
    plane: int
    place: int
    ev: int
    old: int
    new: int


def ev_changes(events: EventColumns) -> list[EvChange]:
    """Return the changes of states among the events, in order."""
    return [
        EvChange(
            row[0], row[1], row[3], row[4], row[5], row[6] & 0xFFFF_FFFF, row[6] >> 32 & 15, row[6] >> 36
        )
        for row in _rows(events, TraceKind.EV_CHANGE)
    ]


class WindowSample(NamedTuple):
    """Window and bytes in flight in bytes, round-trip time in ps, at a time; None when unknown."""

    time_ps: int
    host: int
    qp: int
    window: int | None
    in_flight: int
    rtt_ps: int | None


def window_samples(events: EventColumns) -> list[WindowSample]:
    """Return the samples of windows among the events, in order."""
    samples = []
    for row in _rows(events, TraceKind.WINDOW):
        window, flying, rtt = row[6] & UNLIMITED, row[6] >> 24 & UNLIMITED, row[6] >> 48 & NO_SAMPLE
        known = None if window == UNLIMITED else window
        samples.append(
            WindowSample(row[0], row[1], row[3], known, flying, None if rtt == NO_SAMPLE else rtt * TICK_PS)
        )
    return samples


def _rows(events: EventColumns, kind: TraceKind) -> list[tuple[int, ...]]:
    chosen = events["kind"] == kind
    return list(zip(*(events[name][chosen].tolist() for name in COLUMNS), strict=True))
