"""Which directions of links a place means.

======== ============================================ ===========================================
place    what touches it (``touched``)                where a packet meets it once (``passed``)
======== ============================================ ===========================================
link     both directions of it                        each direction
port     both directions of its link                  each direction
switch   every direction that ends or begins there    the directions that lead into it
plane    every direction of the plane                 the directions from its hosts
EV       –                                            its links T0 → T1; in a star, T0 → host
======== ============================================ ===========================================

``direction: up`` and ``down`` keep the directions towards the higher or the lower tier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from mrc_host.errors import ConfigError
from mrc_host.fabric.links import Direction
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import ev_fields

__all__ = ["SELECTORS", "Place", "fed_by_switches", "select"]

SELECTORS = ("link", "port", "switch", "plane", "ev")
"""Keys that name a place; a fault has exactly one of them."""


class Place(NamedTuple):
    """A place of a fault.

    Parameters
    ----------
    name : str
        As it is called in tables.
    touched, passed : tuple of int
        Numbers of directions: all that touch it, and those where a packet that crosses it is met once.
    evs : frozenset of int
        The EVs that are meant; empty for all packets.
    """

    name: str
    touched: tuple[int, ...]
    passed: tuple[int, ...]
    evs: frozenset[int] = frozenset()


def select(topology: Topology, key: str, value: object, direction: str) -> list[Place]:
    """Return the places a selector means.

    Parameters
    ----------
    topology : Topology
        The fabric.
    key : str
        One of :data:`SELECTORS`.
    value : object
        A name or pattern (link, port, switch), or a list of numbers (plane, EV).
    direction : str
        ``both``, ``up`` or ``down``.

    Raises
    ------
    ConfigError
        When nothing of that name exists, or the direction leaves nothing; its path is the key.
    """
    if key in ("plane", "ev"):
        assert isinstance(value, tuple)
        if direction != "both":
            raise ConfigError("direction", f"both with {key}: packets go up and then down", direction)
        make = _plane if key == "plane" else _ev
        return [make(topology, number) for number in value]
    assert isinstance(value, str)
    places = {"link": _links, "port": _ports, "switch": _switches}[key](topology, value)
    if not places:
        raise ConfigError(key, f"{_example(topology, key)}, or a pattern that matches one", value)
    if direction == "both":
        return places
    ups = {link.up.number for link in topology.links}
    kept = [_filtered(place, ups, direction) for place in places]
    kept = [place for place in kept if place.touched]
    if not kept:
        raise ConfigError("direction", f"one that {value} has, or both", direction)
    return kept


def fed_by_switches(place: Place, topology: Topology, key: str, direction: str) -> tuple[int, ...]:
    """Return the directions of a place that a switch feeds; of a switch, those that it feeds itself.

    Raises
    ------
    ConfigError
        There is none; its path is ``direction``.
    """
    halves = [topology.directions[number] for number in place.touched]
    fed = [half for half in halves if half.source_switch >= 0]
    if key == "switch":
        fed = [half for half in fed if half.source_port.startswith(f"{place.name}.")]
    if not fed:
        raise ConfigError("direction", f"one of {place.name} that a switch feeds, or both", direction)
    return tuple(half.number for half in fed)


def _filtered(place: Place, ups: set[int], direction: str) -> Place:
    def keep(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(number for number in numbers if (number in ups) == (direction == "up"))

    return place._replace(touched=keep(place.touched), passed=keep(place.passed))


def _example(topology: Topology, key: str) -> str:
    if key == "link":
        return f"the name of a link such as {topology.links[0].name}"
    if key == "port":
        return f"the name of a port such as {topology.directions[0].source_port}"
    return f"the name of a switch such as {topology.switches[0].name}"


def _grouped(
    halves: Sequence[Direction], name: str, of: Callable[[Direction], Sequence[str]]
) -> dict[str, list[Direction]]:
    """Return directions by whatever name of theirs is equal to, or matches, a pattern."""
    exact: dict[str, list[Direction]] = {}
    matching: dict[str, list[Direction]] = {}
    for half in halves:
        for candidate in of(half):
            if candidate == name:
                exact.setdefault(candidate, []).append(half)
            elif fnmatchcase(candidate, name):
                matching.setdefault(candidate, []).append(half)
    return exact or matching


def _links(topology: Topology, name: str) -> list[Place]:
    groups = _grouped(topology.directions, name, lambda half: (half.link,))
    groups = groups or _grouped(topology.directions, name, lambda half: (half.name,))
    return [Place(key, numbers := _numbers(halves), numbers) for key, halves in groups.items()]


def _ports(topology: Topology, name: str) -> list[Place]:
    groups = _grouped(topology.directions, name, lambda half: (half.source_port, half.target_port))
    return [Place(key, numbers := _numbers(halves), numbers) for key, halves in groups.items()]


def _switches(topology: Topology, name: str) -> list[Place]:
    names = [switch.name for switch in topology.switches]

    def ends(half: Direction) -> list[str]:
        return [names[end] for end in (half.source_switch, half.target_switch) if end >= 0]

    places = []
    for switch, halves in _grouped(topology.directions, name, ends).items():
        entering = [half for half in halves if half.target_switch == names.index(switch)]
        places.append(Place(switch, _numbers(halves), _numbers(entering)))
    return places


def _plane(topology: Topology, plane: int) -> Place:
    if not 0 <= plane < topology.planes:
        raise ConfigError("plane", f"between 0 and {topology.planes - 1}", plane)
    halves = [half for half in topology.directions if half.plane == plane]
    return Place(f"plane {plane}", _numbers(halves), _numbers([h for h in halves if h.source_switch < 0]))


def _ev(topology: Topology, ev: int) -> Place:
    try:
        fields = ev_fields(ev)
    except ValueError as error:
        raise ConfigError("ev", "32 bits that begin with 0b11000, such as 0xc0010000", hex(ev)) from error
    uplinks = max(1, topology.t1_per_plane)
    if fields.plane >= topology.planes or not 1 <= fields.uplink <= uplinks:
        raise ConfigError(
            "ev", f"of a plane below {topology.planes} and an uplink between 1 and {uplinks}", hex(ev)
        )
    if topology.t1_per_plane:
        halves = [
            topology.t1_link(fields.plane, t0, fields.uplink).up for t0 in range(1, topology.t0_per_plane + 1)
        ]
    else:
        halves = [topology.host_link(host, fields.plane).down for host in range(topology.hosts)]
    return Place(f"EV {ev:08x}", (), _numbers(halves), frozenset((ev,)))


def _numbers(halves: Sequence[Direction]) -> tuple[int, ...]:
    return tuple(half.number for half in halves)
