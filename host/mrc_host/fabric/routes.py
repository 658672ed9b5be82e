"""Ways through the switches, found once and remembered.

The way of a packet is known when it enters: the switch tables are walked once, and every packet with the same
key (:func:`~mrc_host.fabric.packet.route_key`) takes the result. What the switches write into the destination
address on that way is remembered with it.

Routes of uSIDs are static. Those of plain packets change when switches learn that a link went down or up
(:meth:`RouteFinder.learn`): then all ways are found anew.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from mrc_host.fabric.packet import DESTINATION_AT, HOP_LIMIT_AT, HOPS_MAXIMUM, Packet
from mrc_host.fabric.switch import ADDRESS_BYTES, Header, build_tables
from mrc_host.fabric.topology import Topology

if TYPE_CHECKING:
    from mrc_host.fabric.port import Port

__all__ = ["Route", "RouteFinder"]

REMEMBERED_PER_PORT = 1 << 16
"""Ways kept for each direction; then they are forgotten, and found again when they are needed."""

_BEFORE_ADDRESS = bytes(HOP_LIMIT_AT) + bytes((HOPS_MAXIMUM + 1,)) + bytes(DESTINATION_AT - HOP_LIMIT_AT - 1)
"""What stands before the destination in a frame of which nothing else matters: hops for every way."""


class Route:
    """A way through the fabric from one switch on.

    Attributes
    ----------
    outputs : tuple of Port or None
        The output port at each switch, closed by None.
    destinations : tuple of bytes
        The destination address on the link of each output.
    segments_left : tuple of int
        Segments Left of the routing header there, once a switch has counted it down; −1 before.
    drop : int
        Why the switch behind the last output drops the packet, a DropReason; −1 where the way ends at a NIC.
    """

    __slots__ = ("destinations", "drop", "outputs", "segments_left")

    def __init__(
        self,
        outputs: tuple[Port | None, ...],
        destinations: tuple[bytes, ...],
        segments_left: tuple[int, ...],
        drop: int,
    ) -> None:
        self.outputs = outputs
        self.destinations = destinations
        self.segments_left = segments_left
        self.drop = drop


class RouteFinder:
    """Finds the ways of packets.

    Parameters
    ----------
    topology : Topology
        The fabric.
    seed : int
        Seed of the run, for the ECMP hashes.
    ports : list of Port
        All directions, by number.
    """

    def __init__(self, topology: Topology, seed: int, ports: list[Port]) -> None:
        tables = build_tables(topology, seed)
        # The table a frame meets at the end of each direction; never used for an end at a host.
        self._tables = [tables[half.target_switch] for half in topology.directions]
        self._ports = ports
        # Directions that are known to be dead from each time on, and which of these times a direction's
        # remembered ways belong to.
        self._times: list[int] = [-1]
        self._dead: list[frozenset[int]] = [frozenset()]
        self._known: list[int] = [0] * len(ports)

    def learn(self, time_ps: int, direction: int, up: bool) -> None:
        """Let the switches know from a time on that a direction is down, or up again.

        Nothing may have entered at or after that time, and what they learn of one direction must come in the
        order of time.
        """
        number = bisect_right(self._times, time_ps) - 1
        if self._times[number] != time_ps:
            number += 1
            self._times.insert(number, time_ps)
            self._dead.insert(number, self._dead[number - 1])
        for later in range(number, len(self._times)):
            dead = self._dead[later]
            self._dead[later] = dead - {direction} if up else dead | {direction}

    def enter(self, packet: Packet, came_by: Port, time_ps: int) -> None:
        """Give a packet its way from the switch at the end of a direction, which it enters at a time."""
        if len(self._times) > 1:
            self._catch_up(came_by, time_ps)
        route = came_by.routes.get(packet.key)
        if route is None:
            route = self._walk(packet, came_by)
            if len(came_by.routes) >= REMEMBERED_PER_PORT:
                came_by.routes.clear()
            came_by.routes[packet.key] = route
        packet.route = route
        packet.outputs = route.outputs
        packet.hop = 0

    def _catch_up(self, came_by: Port, time_ps: int) -> None:
        """Forget the ways of a direction when switches have learned something since."""
        number = bisect_right(self._times, time_ps) - 1
        if number != self._known[came_by.number]:
            self._known[came_by.number] = number
            came_by.routes.clear()

    def _walk(self, packet: Packet, came_by: Port) -> Route:
        key = packet.key
        # Where the destination decides alone, no frame has to be made for it.
        header = Header(_BEFORE_ADDRESS + key if len(key) == ADDRESS_BYTES else packet.original)
        outputs: list[Port | None] = []
        destinations: list[bytes] = []
        segments_left: list[int] = []
        at = came_by.number
        drop = -1
        dead = self._dead[self._known[came_by.number]]
        while drop < 0:
            output = self._tables[at].forward(header, dead)
            if output < 0:
                drop = -1 - output
                break
            port = self._ports[output]
            outputs.append(port)
            destinations.append(header.destination)
            segments_left.append(header.segments_left)
            if port.to_nic:
                break
            at = output
        outputs.append(None)
        return Route(tuple(outputs), tuple(destinations), tuple(segments_left), drop)
