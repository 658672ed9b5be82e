"""Counters of links and ports, and queue depths over time."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import NamedTuple

from mrc_host.fabric.packet import DropReason, QueueClass
from mrc_rtl.wire import GAP_PREAMBLE_FCS_BYTES

__all__ = ["DirectionCounters", "FabricTotals", "QueueCounters", "QueueSample", "QueueSamples"]


class QueueCounters(NamedTuple):
    """Frames and bytes without FCS that a queue's class sent, and the most bytes that ever waited in it."""

    frames: int
    bytes: int
    high_water_bytes: int


@dataclass(frozen=True, slots=True)
class DirectionCounters:
    """What happened on one direction of a link and in the switch port that feeds it.

    Parameters
    ----------
    direction : str
        Name of the direction.
    frames, bytes : int
        Frames sent and their bytes without FCS. A frame removed by a tap was sent.
    drops : dict of DropReason to int
        Only reasons that occurred. A full queue counts at the direction it feeds, what a switch cannot
        forward at the direction it came in by, a tap at its own direction.
    queue_high_water_bytes : int
        Most bytes that ever waited, all queues together; the frame being sent does not wait.
    overlaps : int
        NIC ports only: frames that began before the slot of the previous one had ended, which a MAC paced at
        the link's rate never does.
    queues : dict of QueueClass to QueueCounters
        By queue; only those that were used.
    marked, trimmed : int
        Frames this port marked with CE, and frames it trimmed.
    """

    direction: str
    frames: int
    bytes: int
    drops: dict[DropReason, int]
    queue_high_water_bytes: int
    overlaps: int
    queues: dict[QueueClass, QueueCounters]
    marked: int
    trimmed: int

    @property
    def wire_bytes(self) -> int:
        """Bytes with preamble, FCS and gap."""
        return self.bytes + self.frames * GAP_PREAMBLE_FCS_BYTES


@dataclass(frozen=True, slots=True)
class FabricTotals:
    """Where every frame went: ``entered + added = delivered + dropped + in_flight``, always.

    Parameters
    ----------
    entered : int
        Frames given to the fabric.
    added : int
        Frames that hooks made beyond those they were given.
    delivered : int
        Frames handed to NICs.
    drops : dict of DropReason to int
        Frames dropped; only reasons that occurred.
    in_flight : int
        Frames on links and in queues.
    marked, trimmed : int
        Frames switches marked with CE, and frames they trimmed; both go on.
    """

    entered: int
    added: int
    delivered: int
    drops: dict[DropReason, int]
    in_flight: int
    marked: int
    trimmed: int

    @property
    def dropped(self) -> int:
        """Frames dropped for any reason."""
        return sum(self.drops.values())


class QueueSample(NamedTuple):
    """Depth of one port's queues at one sampling time."""

    time_ps: int
    direction: int
    depth_bytes: int
    peak_bytes: int


class QueueSamples:
    """Queue depths at multiples of an interval, kept only while a queue is in use.

    Columns are flat arrays, ready for a data frame. A port without a sample at some time was empty through
    the whole interval that ended then.

    Attributes
    ----------
    time_ps : array
        Sampling time.
    direction : array
        Number of the direction the port feeds.
    depth_bytes : array
        Bytes waiting at that time, after all events before it.
    peak_bytes : array
        Most bytes that waited during the interval that ends then.
    """

    __slots__ = ("depth_bytes", "direction", "peak_bytes", "time_ps")

    def __init__(self) -> None:
        self.time_ps = array("q")
        self.direction = array("q")
        self.depth_bytes = array("q")
        self.peak_bytes = array("q")

    def append(self, time_ps: int, direction: int, depth_bytes: int, peak_bytes: int) -> None:
        """Add one sample."""
        self.time_ps.append(time_ps)
        self.direction.append(direction)
        self.depth_bytes.append(depth_bytes)
        self.peak_bytes.append(peak_bytes)

    def __len__(self) -> int:
        return len(self.time_ps)

    def rows(self) -> list[QueueSample]:
        """Return all samples in order of time."""
        columns = zip(self.time_ps, self.direction, self.depth_bytes, self.peak_bytes, strict=True)
        return [QueueSample(*row) for row in columns]
