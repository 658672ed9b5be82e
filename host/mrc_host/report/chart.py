"""Small charts as SVG: axes, steps, bars, marks. Text stays text, colours come from the page's style sheet.

A chart is drawn into a box of its own size and scales with the page. Nothing is said by colour alone: lines
carry labels, marks have shapes. Colours are those of Okabe and Ito, which colour-blind people can tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from mrc_host.fabric.draw import PLANE_COLOURS

__all__ = ["CHART_STYLE", "Chart", "ticks"]

LEFT, RIGHT, TOP, BOTTOM = 58, 18, 18, 42
DARK_COLOURS = ("#4ba3e3", "#f08a3c", "#2fc79a", "#e29ac4", "#7cc8f2", "#f0b840", "#b5a642", "#a0a0a0")
"""The same hues, lightened for a dark ground."""
SHAPES = ("circle", "triangle", "square", "diamond")

_LIGHT = "".join(f"--plane-{number}:{colour};" for number, colour in enumerate(PLANE_COLOURS))
_DARK = "".join(f"--plane-{number}:{colour};" for number, colour in enumerate(DARK_COLOURS))
_PLANES = "".join(f".chart .p{n}{{--c:var(--plane-{n})}}" for n in range(len(PLANE_COLOURS)))

CHART_STYLE = f"""
:root{{{_LIGHT}--ink:#1b2733;--soft:#52606d;--grid:#e3e8ed;--ground:#ffffff;--accent:#0072b2}}
@media (prefers-color-scheme:dark){{@media screen{{:root{{{_DARK}--ink:#e6edf3;--soft:#a9b6c3;--grid:#2b3540;
--ground:#151b22;--accent:#4ba3e3}}}}}}
.chart{{display:block;width:100%;height:auto;
font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}}
.chart text{{fill:var(--ink);font-size:12px}}
.chart .tick,.chart .axis{{fill:var(--soft)}}
.chart .axis{{font-size:12px}}
.chart .note{{fill:var(--soft);font-size:11.5px}}
.chart .strong{{font-weight:650}}
.chart .grid{{stroke:var(--grid);stroke-width:1}}
.chart .base{{stroke:var(--soft);stroke-width:1}}
.chart .bound{{stroke:var(--ink);stroke-width:1.4;stroke-dasharray:6 4;fill:none}}
.chart .area{{fill:var(--c);fill-opacity:.78;stroke:var(--ground);stroke-width:.6}}
.chart .line{{fill:none;stroke:var(--c,var(--accent));stroke-width:1.8;stroke-linejoin:round}}
.chart .line.p1{{stroke-dasharray:8 3}}.chart .line.p2{{stroke-dasharray:3 2}}
.chart .line.p3{{stroke-dasharray:9 3 2 3}}.chart .line.p4{{stroke-dasharray:14 4}}
.chart .line.p5{{stroke-dasharray:1 3}}.chart .line.p6{{stroke-dasharray:6 2 1 2 1 2}}
.chart .line.p7{{stroke-dasharray:4 6}}
.chart .thin{{fill:none;stroke:var(--soft);stroke-width:1;stroke-opacity:.55}}
.chart .bar{{fill:var(--c,var(--accent))}}
.chart .mark{{fill:var(--c,var(--accent));stroke:var(--ground);stroke-width:.7}}
.chart .late{{fill:var(--ground);stroke:var(--c,var(--accent));stroke-width:1.7}}
.chart .span{{fill:var(--ink);fill-opacity:.09}}
.chart .good{{fill:var(--grid);fill-opacity:.55}}
.chart .evstate,.legend .evstate{{fill:var(--s);background:var(--s)}}
.skip{{--s:#e69f00}}.bad{{--s:var(--ink)}}.denied{{--s:#d55e00}}.backup{{--s:#56b4e9}}
.absent{{--s:var(--ground)}}
.chart .denied{{fill:none;stroke:#d55e00;stroke-width:1.4}}
.chart .count{{fill:none;stroke:var(--s)}}
.chart .count.skip{{stroke-dasharray:2 3}}.chart .count.denied{{stroke-dasharray:8 5}}
.chart .band{{fill:var(--c,var(--accent));fill-opacity:.16;stroke:none}}
.chart .loss{{stroke:var(--ink);stroke-width:1.2}}
.chart .again{{stroke:var(--accent);stroke-width:1.2;stroke-dasharray:2 2}}
.chart .edge{{stroke:var(--ink);stroke-width:1;stroke-dasharray:2 3;fill:none}}
.chart .halo{{paint-order:stroke;stroke:var(--ground);stroke-width:4px;stroke-linejoin:round}}
{_PLANES}
"""
"""Rules every chart needs; the page includes them once, a file of its own carries them inside."""


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round values between two limits, about ``count`` of them."""
    if high <= low:
        return [low]
    raw = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", "\u202f")
    return f"{value:.6g}"


class Chart:
    """A chart with linear axes, from which its SVG text is made.

    Parameters
    ----------
    title : str
        Read out by screen readers.
    x_label, y_label : str
        With units.
    x_range, y_range : (float, float)
        Limits of the axes.
    width, height : int
        Size of the box in pixels.
    left, right, bottom : int
        Room for the labels of the axes, and for what stands below the chart.
    """

    def __init__(
        self,
        title: str,
        x_label: str,
        y_label: str,
        x_range: tuple[float, float],
        y_range: tuple[float, float],
        *,
        width: int = 620,
        height: int = 300,
        left: int = LEFT,
        right: int = RIGHT,
        bottom: int = BOTTOM,
    ) -> None:
        self.title = title
        self.width, self.height = width, height
        self._left, self._right = left, width - right
        self._top, self._bottom = TOP, height - bottom
        self._x_range, self._y_range = x_range, y_range
        self._labels = (x_label, y_label)
        self._parts: list[str] = []

    # -- places ------------------------------------------------------------------------------------------

    def x(self, value: float) -> float:
        """Return the horizontal place of a value."""
        low, high = self._x_range
        return self._left + (value - low) / ((high - low) or 1) * (self._right - self._left)

    def y(self, value: float) -> float:
        """Return the vertical place of a value."""
        low, high = self._y_range
        return self._bottom - (value - low) / ((high - low) or 1) * (self._bottom - self._top)

    # -- axes --------------------------------------------------------------------------------------------

    def below(self, top: int, bottom: int, y_range: tuple[float, float], label: str) -> Chart:
        """Return a chart with the same x axis in another part of the box; add its ``parts`` to this one."""
        other = Chart(
            self.title, self._labels[0], label, self._x_range, y_range, width=self.width, height=self.height
        )
        other._left, other._right = self._left, self._right
        other._top, other._bottom = top, bottom
        return other

    @property
    def parts(self) -> str:
        """The elements drawn so far."""
        return "".join(self._parts)

    def x_axis(self, count: int = 6, at: int | None = None) -> None:
        """Draw the x axis below the chart, or at a height in pixels."""
        bottom = self._bottom if at is None else at
        for value in ticks(*self._x_range, count):
            place = self.x(value)
            self._parts.append(
                f'<line class="base" x1="{place:.1f}" x2="{place:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
            )
            self.text(place, bottom + 17, _number(value), "tick", "middle")
        self._parts.append(f'<path class="base" d="M{self._left} {bottom}H{self._right}"/>')
        self.text((self._left + self._right) / 2, self.height - 6, self._labels[0], "axis", "middle")

    def x_axis_names(self, names: dict[float, str]) -> None:
        """Draw the x axis with names at some places."""
        for place, name in names.items():
            self.text(self.x(place), self._bottom + 17, name, "tick", "middle")
        self._parts.append(f'<path class="base" d="M{self._left} {self._bottom}H{self._right}"/>')
        self.text((self._left + self._right) / 2, self.height - 6, self._labels[0], "axis", "middle")

    def y_axis(self, count: int = 5) -> None:
        """Draw the y axis as grid lines."""
        self.y_axis_names({value: _number(value) for value in ticks(*self._y_range, count)})

    def y_axis_names(self, names: dict[float, str]) -> None:
        """Draw the y axis as grid lines with names at some places."""
        for value, name in names.items():
            place = self.y(value)
            self._parts.append(
                f'<line class="grid" x1="{self._left}" x2="{self._right}" y1="{place:.1f}" y2="{place:.1f}"/>'
            )
            self.text(self._left - 7, place + 4, name, "tick", "end")
        middle = (self._top + self._bottom) / 2
        self._parts.append(
            f'<text class="axis" transform="translate(13 {middle:.1f}) rotate(-90)" text-anchor="middle">'
            f"{escape(self._labels[1])}</text>"
        )

    # -- contents ----------------------------------------------------------------------------------------

    def add(self, markup: str) -> None:
        """Add SVG elements as they are."""
        self._parts.append(markup)

    def text(self, x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> None:
        """Write text at a place in pixels."""
        self._parts.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'
        )

    def steps(self, xs: Sequence[float], ys: Sequence[float], kind: str, title: str = "") -> None:
        """Draw a step line: ``ys[i]`` holds from ``xs[i]`` to ``xs[i + 1]``, the last one as a point."""
        if not xs:
            return
        path = [f"M{self.x(xs[0]):.1f} {self.y(ys[0]):.1f}"]
        for x, y in zip(xs[1:], ys[1:], strict=True):
            path.append(f"H{self.x(x):.1f}V{self.y(y):.1f}")
        self._parts.append(f'<path class="{kind}" d="{"".join(path)}">{_title(title)}</path>')

    def step_area(
        self, edges: Sequence[float], low: Sequence[float], high: Sequence[float], kind: str, title: str
    ) -> None:
        """Fill between two step functions; bin i lies between ``edges[i]`` and ``edges[i + 1]``."""
        if not high:
            return
        path = [f"M{self.x(edges[0]):.1f} {self.y(low[0]):.1f}"]
        for number, value in enumerate(high):
            path.append(f"V{self.y(value):.1f}H{self.x(edges[number + 1]):.1f}")
        for number in reversed(range(len(low))):
            path.append(f"V{self.y(low[number]):.1f}H{self.x(edges[number]):.1f}")
        self._parts.append(f'<path class="{kind}" d="{"".join(path)}Z">{_title(title)}</path>')

    def band(
        self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], kind: str, title: str
    ) -> None:
        """Fill between two lines through the points ``(xs[i], low[i])`` and ``(xs[i], high[i])``."""
        there = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in zip(xs, high, strict=True))
        back = "L".join(
            f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in reversed(list(zip(xs, low, strict=True)))
        )
        self._parts.append(f'<path class="{kind}" d="M{there}L{back}Z">{_title(title)}</path>')

    def polyline(self, xs: Sequence[float], ys: Sequence[float], kind: str, title: str = "") -> None:
        """Draw a line through points."""
        points = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in zip(xs, ys, strict=True))
        self._parts.append(f'<path class="{kind}" d="M{points}">{_title(title)}</path>')

    def bar(self, x: float, width: float, value: float, kind: str, title: str) -> None:
        """Draw an upright bar that begins at ``x`` and is ``width`` wide, in units of the x axis."""
        left, top = self.x(x), self.y(value)
        self._parts.append(
            f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" '
            f'width="{max(1.0, self.x(x + width) - left - 1):.1f}" height="{self._bottom - top:.1f}">'
            f"{_title(title)}</rect>"
        )

    def span(self, begin: float, end: float, label: str, row: int, title: str) -> None:
        """Shade a range of the x axis from top to bottom, with a label at its begin, in a row."""
        left, right = self.x(begin), max(self.x(end), self.x(begin) + 1)
        self._parts.append(
            f'<rect class="span" x="{left:.1f}" y="{self._top}" width="{right - left:.1f}" '
            f'height="{self._bottom - self._top}">{_title(title)}</rect>'
            f'<path class="edge" d="M{left:.1f} {self._top}V{self._bottom}"/>'
        )
        place = self._top + 12 + 15 * row
        if left < (self._left + self._right) / 2:
            self.text(left + 4, place, label, "note halo", "start")
        else:
            self.text(left - 4, place, label, "note halo", "end")

    def level(self, value: float, label: str) -> None:
        """Draw a dashed level across the chart, with a label above its right end."""
        place = self.y(value)
        self._parts.append(
            f'<line class="bound" x1="{self._left}" x2="{self._right}" y1="{place:.1f}" y2="{place:.1f}"/>'
        )
        self.text(self._right, place - 5, label, "note halo", "end")

    def marker(self, x: float, y: float, plane: int, shape: int, *, hollow: bool, title: str) -> None:
        """Draw a mark whose shape is told by a number."""
        place_x, place_y, size = self.x(x), self.y(y), 4.0
        kind = f"{'late' if hollow else 'mark'} p{plane % len(PLANE_COLOURS)}"
        self._parts.append(marker(place_x, place_y, shape, size, kind, title))

    def svg(self) -> str:
        """Return the chart as an element for a page that includes :data:`CHART_STYLE`."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" '
            f'viewBox="0 0 {self.width} {self.height}"><title>{escape(self.title)}</title>'
            + "".join(self._parts)
            + "</svg>"
        )


def marker(x: float, y: float, shape: int, size: float, kind: str, title: str = "") -> str:
    """Return a mark at a place in pixels: circle, triangle, square or diamond."""
    name = SHAPES[shape % len(SHAPES)]
    if name == "circle":
        return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}">{_title(title)}</circle>'
    corners = {
        "triangle": ((0, -1.25), (1.15, 0.85), (-1.15, 0.85)),
        "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        "diamond": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    }[name]
    points = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in corners)
    return f'<polygon class="{kind}" points="{points}">{_title(title)}</polygon>'


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""
