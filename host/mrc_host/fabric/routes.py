"""Ways through the switches, found once and remembered.

Routes are static, so the way of a packet is known when it enters: the switch tables are walked once, and
every packet with the same key (:func:`~mrc_host.fabric.packet.route_key`) takes the result. What the
switches write into the destination address on that way is remembered with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrc_host.fabric.packet import Packet
from mrc_host.fabric.switch import Header, build_tables
from mrc_host.fabric.topology import Topology

if TYPE_CHECKING:
    from mrc_host.fabric.port import Port

__all__ = ["Route", "RouteFinder"]

REMEMBERED_PER_PORT = 1 << 16
"""Ways kept for each direction; then they are forgotten, and found again when they are needed."""


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

    def enter(self, packet: Packet, came_by: Port) -> None:
        """Give a packet its way from the switch at the end of a direction."""
        route = came_by.routes.get(packet.key)
        if route is None:
            route = self._walk(packet, came_by)
            if len(came_by.routes) >= REMEMBERED_PER_PORT:
                came_by.routes.clear()
            came_by.routes[packet.key] = route
        packet.route = route
        packet.outputs = route.outputs
        packet.hop = 0

    def _walk(self, packet: Packet, came_by: Port) -> Route:
        header = Header(packet.original)
        outputs: list[Port | None] = []
        destinations: list[bytes] = []
        segments_left: list[int] = []
        at = came_by.number
        drop = -1
        while drop < 0:
            output = self._tables[at].forward(header)
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
