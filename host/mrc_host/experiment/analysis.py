"""What a packet log tells: reordering, evenness, paths, and why packets were sent again.

Functions work on the columns of :class:`~mrc_host.experiment.packet_log.PacketLog`, of one flow unless stated
otherwise, and on nothing else, so that a report can be made from the run directory alone.

Source: profile.md 3, 4 and 10; design.md 4 (rule 5).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mrc_host.experiment.packet_log import PacketColumns
from mrc_rtl.wire import EV, PSN_BITS, PSN_MASK

__all__ = [
    "Reordering",
    "Retransmissions",
    "data_of_flow",
    "first_copies",
    "path_numbers",
    "plane_imbalance",
    "reordering",
    "retransmissions",
    "select",
    "uplinks",
    "unwrap_psns",
]

Integers = npt.NDArray[np.int64]
HALF_PSN = 1 << (PSN_BITS - 1)


def select(columns: PacketColumns, mask: npt.NDArray[np.bool_]) -> PacketColumns:
    """Return the rows of a mask."""
    return {name: column[mask] for name, column in columns.items()}


def data_of_flow(
    columns: PacketColumns, source: int, target: int, *, arrived: bool, qp: int | None = None
) -> PacketColumns:
    """Return the data packets of a flow, at its sender or at its receiver, in order of time.

    Parameters
    ----------
    columns : PacketColumns
        A packet log.
    source, target : int
        Hosts.
    arrived : bool
        At the receiver.
    qp : int, optional
        Number of the receiving queue pair, where two hosts have several.
    """
    mask = (
        (columns["data"] == 1)
        & (columns["arrived"] == int(arrived))
        & (columns["source"] == source)
        & (columns["target"] == target)
    )
    return select(columns, mask if qp is None else mask & (columns["qp"] == qp))


def unwrap_psns(psns: Integers) -> Integers:
    """Return PSNs as numbers that go on beyond 2^24: neighbours differ by less than half of the circle."""
    if not len(psns):
        return psns
    steps = np.diff(psns)
    steps = (steps + HALF_PSN & PSN_MASK) - HALF_PSN
    return np.cumsum(np.concatenate((psns[:1], steps)))


def first_copies(arrivals: PacketColumns) -> tuple[PacketColumns, Integers]:
    """Return the first intact copy of every data packet in order of arrival, and its unwrapped PSN."""
    intact = select(arrivals, arrivals["trimmed"] == 0)
    psns = unwrap_psns(intact["psn"])
    _, first = np.unique(psns, return_index=True)
    keep = np.sort(first)
    return {name: column[keep] for name, column in intact.items()}, psns[keep]


@dataclass(frozen=True)
class Reordering:
    """How a flow's data packets arrived.

    Parameters
    ----------
    depth : array of int
        For each first intact copy in order of arrival: PSNs below the highest that had arrived, 0 in order.
    """

    depth: Integers

    @property
    def late(self) -> int:
        """Packets that arrived after one with a higher PSN."""
        return int(np.count_nonzero(self.depth))


def reordering(arrivals: PacketColumns) -> Reordering:
    """Measure the reordering of a flow from its arrivals."""
    _, psns = first_copies(arrivals)
    if not len(psns):
        return Reordering(psns)
    return Reordering(np.maximum.accumulate(psns) - psns)


def plane_imbalance(sent: PacketColumns, planes: int) -> int:
    """Return the most by which planes ever differed in new data packets, counted as they are sent."""
    new = select(sent, sent["retransmission"] == 0)
    if not len(new["psn"]):
        return 0
    counts = np.cumsum(new["plane"][:, None] == np.arange(planes)[None, :], axis=0)
    return int((counts.max(axis=1) - counts.min(axis=1)).max())


def uplinks(columns: PacketColumns) -> Integers:
    """Return the T1 each packet crosses, from its EV."""
    return columns["ev"] >> EV.shift("uplink") & EV["uplink"].mask


def path_numbers(columns: PacketColumns, across_t1: bool) -> Integers:
    """Return a number for each packet's path: plane · 256 + uplink; between hosts of one T0 the plane."""
    return columns["plane"] << 8 | (uplinks(columns) if across_t1 else 0)


@dataclass(frozen=True)
class Retransmissions:
    """Why packets were sent again, see the definitions of the metrics."""

    trim: int = 0
    loss: int = 0
    spurious: int = 0


INTACT, TRIMMED, LOST = range(3)


def retransmissions(sent: PacketColumns, arrivals: PacketColumns) -> Retransmissions:
    """Sort the retransmissions of a flow by cause.

    Copies of a packet are matched with arrivals by plane, EV and the rtx mark, in order.
    """
    again = np.unique(sent["psn"][sent["retransmission"] == 1])
    if not len(again):
        return Retransmissions()
    arrived: dict[tuple[int, ...], list[int]] = defaultdict(list)
    rows = select(arrivals, np.isin(arrivals["psn"], again))
    for *copy, trimmed in _rows(rows, "psn", "plane", "ev", "retransmission", "trimmed"):
        arrived[tuple(copy)].append(TRIMMED if trimmed else INTACT)
    fates: dict[int, list[int]] = defaultdict(list)
    counts = [0, 0, 0]
    rows = select(sent, np.isin(sent["psn"], again))
    for psn, plane, ev, marked in _rows(rows, "psn", "plane", "ev", "retransmission"):
        if not marked:
            fates[psn] = []
        elif INTACT in fates[psn]:
            counts[INTACT] += 1
        elif TRIMMED in fates[psn]:
            counts[TRIMMED] += 1
        else:
            counts[LOST] += 1
        waiting = arrived[psn, plane, ev, marked]
        fates[psn].append(waiting.pop(0) if waiting else LOST)
    return Retransmissions(trim=counts[TRIMMED], loss=counts[LOST], spurious=counts[INTACT])


def _rows(columns: PacketColumns, *names: str) -> list[tuple[int, ...]]:
    return list(zip(*(columns[name].tolist() for name in names)))
