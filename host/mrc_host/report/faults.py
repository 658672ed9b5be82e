"""Faults in a report: marks on the axes of time, and rows of a table."""

from __future__ import annotations

from mrc_host.report.chart import Chart
from mrc_host.report.data import RunData

__all__ = ["draw_faults", "fault_rows"]

ROWS_OF_LABELS = 3
"""Labels of neighbouring faults stand in so many rows, one below the other."""


def draw_faults(
    chart: Chart, data: RunData, end_us: float, begin_us: float = 0.0, *, labels: bool = True
) -> None:
    """Shade the time of every fault in a chart whose x axis is time in microseconds.

    Parameters
    ----------
    chart : Chart
        The chart.
    data : RunData
        The run.
    end_us : float
        End of the axis; a fault that stays ends there.
    begin_us : float
        Begin of the axis; faults that ended before are left out.
    labels : bool
        Write number and kind of each fault.
    """
    for fault in data.faults:
        begin = max(begin_us, float(fault["from_us"]))
        end = end_us if fault["to_us"] is None else min(float(fault["to_us"]), end_us)
        if begin >= end_us or end <= begin_us:
            continue
        number = int(fault["number"])
        title = f"{fault['kind']} on {fault['place']}"
        label = f"{number + 1} {_words(fault['kind'])}" if labels else ""
        chart.span(begin, end, label, number % ROWS_OF_LABELS, title)


def fault_rows(data: RunData) -> list[dict[str, str]]:
    """Return the faults as rows of a table."""
    return [
        {
            "number": str(fault["number"] + 1),
            "kind": _words(fault["kind"]),
            "place": fault["place"],
            "traffic": fault["traffic"],
            "begin": f"{fault['from_us']:g}",
            "end": "–" if fault["to_us"] is None else f"{fault['to_us']:g}",
            "met": str(fault["met"]),
            "hit": str(fault["hit"]),
            "signals": str(fault["signals"]),
        }
        for fault in data.faults
    ]


def _words(kind: str) -> str:
    return kind.replace("_", " ")
