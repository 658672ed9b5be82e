"""A figure of a report: a picture, what it shows, and the data it was made from."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

from mrc_host.report.chart import CHART_STYLE

__all__ = ["Figure"]


@dataclass(frozen=True)
class Figure:
    """A figure.

    Parameters
    ----------
    name : str
        Name of its files in ``plots/``.
    title : str
        Headline.
    caption : str
        What is seen, in a sentence or two.
    svg : str
        The picture as an SVG element.
    columns : sequence of str
        Names of the data's columns, with units.
    rows : sequence of rows
        The data.
    wide : bool
        It takes the full width of the page.
    legend : list of (str, str)
        CSS class of a swatch, and what it stands for.
    """

    name: str
    title: str
    caption: str
    svg: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    wide: bool = False
    legend: list[tuple[str, str]] = field(default_factory=list)

    def csv_text(self) -> str:
        """Return the data as CSV with a line of column names."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return stream.getvalue()

    def standalone_svg(self) -> str:
        """Return the picture as a file of its own, with its style inside."""
        head, end, rest = self.svg.partition(">")
        if "<style>" in self.svg:
            return self.svg
        width, height = _view_box(head)
        return (
            f'{head} width="{width}" height="{height}"{end}<style>{CHART_STYLE}</style>'
            f'<rect width="{width}" height="{height}" style="fill:var(--ground)"/>{rest}\n'
        )


def _view_box(head: str) -> tuple[str, str]:
    """Return width and height from the view box in an opening tag."""
    _, _, box = head.partition('viewBox="')
    width, height = box.split('"', 1)[0].split()[2:]
    return width, height
