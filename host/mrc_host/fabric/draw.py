"""A picture of a topology: one lane per plane, with its T1 switches, T0 switches and the hosts' ports.

Every host has one port in every plane, so it appears once in each lane. Line patterns tell delays apart, line
widths rates; the legend names both, and each T1 names its own delay. Long rows are shortened.
Colours are those of Okabe and Ito, which colour-blind people can tell apart; nothing is said by colour alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from mrc_host.fabric.links import Link
from mrc_host.fabric.topology import Topology

__all__ = ["PLANE_COLOURS", "delay_text", "rate_text", "topology_svg"]

PLANE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7a6a00", "#666666")
"""Okabe-Ito colours by plane; yellow and black are darkened and lightened to work as lines on white."""

DASHES = ("none", "7 4", "2 3", "10 3 2 3", "4 2", "1 4")
LANES_PER_ROW = 4
WIDTH_AIM = 1320
"""Lanes stand side by side up to about this width."""
COLUMN = 46
SWITCH_WIDTH = 58
SWITCH_HEIGHT = 34
GROUP_WIDTH = 92
"""Width of the node that stands for all hosts of a T0."""
MARGIN = 20
LANE_GAP = 16
HEADER = 58
LEGEND_ROW = 22
T1_AT = 62
"""Vertical centre of the T1 row, from the lane's top."""
T0_BELOW_T1, HOSTS_BELOW_T0, LANE_BELOW_HOSTS = 98, 74, 38
HOSTS_BELOW_STAR = 108
"""Lines of a star fan out wider and need more height."""
SWITCHES_SHOWN = 6
PORTS_SHOWN = 16

STYLE = """
.mrc-topology text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;fill:#1b2733}
.mrc-topology .ground{fill:#ffffff}
.mrc-topology .lane{fill:#f4f6f8;stroke:#d8dee4}
.mrc-topology .node{fill:#ffffff;stroke-width:1.6}
.mrc-topology .title{font-size:17px;font-weight:600}
.mrc-topology .subtitle{font-size:12.5px;fill:#52606d}
.mrc-topology .name{font-size:12px;font-weight:600;text-anchor:middle}
.mrc-topology .note{font-size:10.5px;fill:#52606d;text-anchor:middle}
.mrc-topology .tag{font-size:10px;fill:#1b2733;text-anchor:middle;paint-order:stroke;stroke:#f4f6f8;
stroke-width:4px;stroke-linejoin:round}
.mrc-topology .legend{font-size:12px}
.mrc-topology .link{fill:none;stroke-linecap:butt}
@media (prefers-color-scheme:dark){
.mrc-topology text{fill:#e6edf3}
.mrc-topology .ground{fill:#12171d}
.mrc-topology .lane{fill:#1a2129;stroke:#313b46}
.mrc-topology .node{fill:#12171d}
.mrc-topology .subtitle,.mrc-topology .note{fill:#a9b6c3}
.mrc-topology .tag{fill:#e6edf3;stroke:#1a2129}
}
"""


def delay_text(delay_ps: int) -> str:
    """Return a delay in the unit that suits it, such as ``5 µs`` or ``350.5 ns``."""
    if delay_ps >= 1_000_000:
        return f"{delay_ps / 1_000_000:.6g} µs"
    return f"{delay_ps / 1000:.6g} ns"


def rate_text(rate_gbps: float) -> str:
    """Return a rate such as ``6.25 Gb/s``."""
    return f"{rate_gbps:.6g} Gb/s"


@dataclass(frozen=True, slots=True)
class _Lane:
    """Where the nodes of a plane stand, from the lane's upper left corner; all lanes are alike."""

    width: float
    t0_at: int
    """Vertical centre of the T0 row."""
    t1: dict[int, float]
    """Horizontal centre of each T1 shown, by index."""
    t0: dict[int, float]
    hosts: dict[int, float]
    """Horizontal centre of each host shown; empty when there are too many for single nodes."""
    gaps: tuple[tuple[float, int], ...]
    """Centres of the places where something was left out."""

    @property
    def host_at(self) -> int:
        """Vertical centre of the hosts' row."""
        return self.t0_at + (HOSTS_BELOW_T0 if self.t1 else HOSTS_BELOW_STAR)

    @property
    def height(self) -> int:
        """Height of the lane."""
        return self.host_at + LANE_BELOW_HOSTS


def _shown(count: int, limit: int) -> list[int | None]:
    """Return positions 0 to count − 1, shortened in the middle to ``limit`` entries; None marks the gap."""
    if count <= limit:
        return list(range(count))
    return [*range(limit - 2), None, count - 1]


def _spread(entries: Sequence[int | None], left: float, width: float) -> list[tuple[int | None, float]]:
    """Return entries with evenly spread positions."""
    step = width / max(1, len(entries))
    return [(entry, left + step * (place + 0.5)) for place, entry in enumerate(entries)]


def _lay_out(topology: Topology) -> _Lane:
    """Place the nodes of a lane."""
    t0_shown = _shown(topology.t0_per_plane, SWITCHES_SHOWN)
    t1_shown = _shown(topology.t1_per_plane, SWITCHES_SHOWN)
    ports = topology.hosts_per_t0
    single = ports <= PORTS_SHOWN // len(t0_shown)
    pitch = max(SWITCH_WIDTH + 14, COLUMN * ports if single else GROUP_WIDTH + 10)
    inner = max(pitch * len(t0_shown), (SWITCH_WIDTH + 14) * len(t1_shown), 150)
    t0_at = T1_AT + T0_BELOW_T1 if t1_shown else T1_AT
    gaps: list[tuple[float, int]] = []

    t1: dict[int, float] = {}
    t0: dict[int, float] = {}
    hosts: dict[int, float] = {}
    for row, entries, y in ((t1, t1_shown, T1_AT), (t0, t0_shown, t0_at)):
        for entry, x in _spread(entries, 12, inner):
            if entry is None:
                gaps.append((x, y))
            else:
                row[entry + 1] = x
    if single:
        for index, x in t0.items():
            for port in range(ports):
                hosts[(index - 1) * ports + port] = x + COLUMN * (port - (ports - 1) / 2)
    return _Lane(inner + 24, t0_at, t1, t0, hosts, tuple(gaps))


class _Strokes:
    """How links are drawn: patterns by delay, the commonest one solid, and widths by rate."""

    def __init__(self, links: Sequence[Link]) -> None:
        shares = Counter(link.delay_ps for link in links)
        self.delays = sorted(shares, key=lambda delay: (-shares[delay], delay))
        self.rates = sorted({link.rate_gbps for link in links})
        self.kinds = sorted({(link.delay_ps, -link.rate_gbps) for link in links})

    def attributes(self, delay_ps: int, rate_gbps: float) -> str:
        """Return the stroke attributes of a link."""
        dash = DASHES[min(self.delays.index(delay_ps), len(DASHES) - 1)]
        width = 1.7 if len(self.rates) == 1 else 1 + 1.6 * (self.rates.index(rate_gbps) + 1) / len(self.rates)
        return f'stroke-width="{width:.2f}" stroke-dasharray="{dash}"'


def _text(kind: str, x: float, y: float, content: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(content)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, attributes: str, title: str) -> str:
    return (
        f'<line class="link" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f"{attributes}><title>{escape(title)}</title></line>"
    )


def _switch(x: float, y: float, colour: str, name: str, note: str, title: str) -> str:
    """Return the box of a switch with its name and, below it, a note."""
    left, top = x - SWITCH_WIDTH / 2, y - SWITCH_HEIGHT / 2
    lower = 4 if not note else -1.5
    return (
        f'<g><title>{escape(title)}</title><rect class="node" x="{left:.1f}" y="{top:.1f}" '
        f'width="{SWITCH_WIDTH}" height="{SWITCH_HEIGHT}" rx="7" stroke="{colour}"/>'
        + _text("name", x, y + lower, name)
        + (_text("note", x, y + 11.5, note) if note else "")
        + "</g>"
    )


def _host(x: float, y: float, colour: str, name: str, width: float, title: str) -> str:
    """Return the node of a host, or a wider one for the hosts of a T0."""
    return (
        f'<g><title>{escape(title)}</title><rect class="node" x="{x - width / 2:.1f}" y="{y - 16}" '
        f'width="{width}" height="32" rx="16" stroke="{colour}"/>' + _text("name", x, y + 4, name) + "</g>"
    )


def _link_title(link: Link) -> str:
    return f"{link.name}: {delay_text(link.delay_ps)}, {rate_text(link.rate_gbps)}"


def _lane_svg(topology: Topology, plane: int, lane: _Lane, strokes: _Strokes) -> list[str]:
    """Return the elements of one lane, with its upper left corner at (0, 0)."""
    colour = PLANE_COLOURS[plane % len(PLANE_COLOURS)]
    t0_at = lane.t0_at
    parts = [
        f'<rect class="lane" x="0" y="0" width="{lane.width:.1f}" height="{lane.height}" rx="10"/>',
        f'<rect x="0" y="0" width="{lane.width:.1f}" height="5" rx="2.5" fill="{colour}"/>',
        f'<text class="legend" x="12" y="25" font-weight="600">plane {plane}</text>',
    ]
    tags: list[str] = []
    nodes: list[str] = []

    for index, x in lane.t1.items():
        delays = {topology.t1_link(plane, t0, index).delay_ps for t0 in range(1, topology.t0_per_plane + 1)}
        uniform = len(delays) == 1
        note = delay_text(min(delays)) if uniform else "mixed"
        for t0, below in lane.t0.items():
            link = topology.t1_link(plane, t0, index)
            attributes = strokes.attributes(link.delay_ps, link.rate_gbps)
            parts.append(_line(below, t0_at, x, T1_AT, colour, attributes, _link_title(link)))
            if not uniform:
                # Nearer to the T1, where the lines of one switch fan out and labels do not meet.
                at = 0.62
                tags.append(
                    _text(
                        "tag",
                        below + (x - below) * at,
                        t0_at + (T1_AT - t0_at) * at,
                        delay_text(link.delay_ps),
                    )
                )
        nodes.append(_switch(x, T1_AT, colour, f"T1 {index}", note, f"p{plane}.t1.{index}"))

    usual = topology.spec.host_link_delay_ns * 1000
    for host, x in lane.hosts.items():
        link = topology.host_link(host, plane)
        above = lane.t0[topology.t0_of(host)]
        attributes = strokes.attributes(link.delay_ps, link.rate_gbps)
        parts.append(_line(x, lane.host_at, above, t0_at, colour, attributes, _link_title(link)))
        if link.delay_ps != usual:
            # Beside the line, just above the host, where lines are furthest apart.
            tags.append(_text("tag", x + (above - x) * 0.35, lane.host_at - 22, delay_text(link.delay_ps)))
        nodes.append(_host(x, lane.host_at, colour, f"h{host}", 32, f"h{host}.p{plane}: {_link_title(link)}"))
    for index, x in lane.t0.items():
        nodes.append(_switch(x, t0_at, colour, f"T0 {index}", "", f"p{plane}.t0.{index}"))
        if not lane.hosts:
            first = (index - 1) * topology.hosts_per_t0
            last = first + topology.hosts_per_t0 - 1
            link = topology.host_link(first, plane)
            attributes = strokes.attributes(link.delay_ps, link.rate_gbps)
            parts.append(_line(x, lane.host_at, x, t0_at, colour, attributes, _link_title(link)))
            title = f"{topology.hosts_per_t0} hosts"
            nodes.append(_host(x, lane.host_at, colour, f"h{first}–h{last}", GROUP_WIDTH, title))
    nodes += [_text("name", x, y + 4, "…") for x, y in lane.gaps]
    return parts + tags + nodes


def _summary(topology: Topology) -> str:
    tiers = f"{topology.t0_per_plane} T0, {topology.t1_per_plane} T1" if topology.t1_per_plane else "one T0"
    return (
        f"per plane {tiers} · each host {rate_text(topology.host_rate_gbps(0))} · "
        f"bisection {rate_text(topology.bisection_gbps())} · "
        f"host links {delay_text(topology.host_link(0, 0).delay_ps)}"
    )


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def topology_svg(topology: Topology) -> str:
    """Return a picture of a topology as an SVG document, which may also stand inside a page.

    Parameters
    ----------
    topology : Topology
        What to draw. Rows of more than 6 switches are shortened in the middle; beyond about
        16 hosts one node stands for all hosts of a T0.
    """
    lane = _lay_out(topology)
    strokes = _Strokes(topology.links)
    fitting = max(1, min(topology.planes, LANES_PER_ROW, int(WIDTH_AIM // lane.width)))
    rows = -(-topology.planes // fitting)
    per_row = -(-topology.planes // rows)
    width = max(2 * MARGIN + per_row * lane.width + (per_row - 1) * LANE_GAP, 560)
    inset = (width - per_row * lane.width - (per_row - 1) * LANE_GAP) / 2
    legend_columns = max(1, int((width - 2 * MARGIN) // 190))
    legend_rows = -(-len(strokes.kinds) // legend_columns)
    legend_top = HEADER + rows * (lane.height + LANE_GAP) + 8
    height = legend_top + legend_rows * LEGEND_ROW + 8

    title = f"{_plural(topology.hosts, 'host')} × {_plural(topology.planes, 'plane')}"
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" class="mrc-topology" role="img" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" style="max-width:100%;height:auto">',
        f"<title>{escape(f'Topology: {title}, {_summary(topology)}')}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{width:.0f}" height="{height:.0f}" rx="12"/>',
        _text("title", MARGIN, 28, title),
        _text("subtitle", MARGIN, 46, _summary(topology)),
    ]
    for plane in range(topology.planes):
        row, column = divmod(plane, per_row)
        x = inset + column * (lane.width + LANE_GAP)
        y = HEADER + row * (lane.height + LANE_GAP)
        parts.append(f'<g transform="translate({x:.1f} {y:.1f})">')
        parts += _lane_svg(topology, plane, lane, strokes)
        parts.append("</g>")
    for place, (delay_ps, negative_rate) in enumerate(strokes.kinds):
        row, column = divmod(place, legend_columns)
        x, y = MARGIN + column * 190, legend_top + row * LEGEND_ROW + 8
        attributes = strokes.attributes(delay_ps, -negative_rate)
        label = f"{delay_text(delay_ps)}, {rate_text(-negative_rate)}"
        parts.append(_line(x, y, x + 44, y, "#7b8794", attributes, label))
        parts.append(_text("legend", x + 52, y + 4, label))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
