"""Hooks on links: the one way to capture packets and to do something to them.

A hook acts on packets (:class:`Hook`), which is what faults do; a tap is a function that sees bytes. Both are
called in the order of the simulation, never in the order of calls from outside, so that they may keep state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from mrc_host.fabric.links import Direction
from mrc_host.fabric.packet import Packet

if TYPE_CHECKING:
    from mrc_host.fabric.port import Port

__all__ = ["Hook", "Tap", "TapHook", "attach"]

Tap = Callable[[Direction, int, bytes], list[tuple[int, bytes]] | None]
"""Called for each frame of a direction with (direction, time its first bit enters the link in ps, frame).

None lets the frame pass, which is what a capture returns. A list replaces it: each entry is (additional
delay in ps, frame). An empty list drops it, two entries duplicate it, other bytes corrupt or trim it. The
times on the link stay those of the original frame, plus the additional delay.
"""


@mypyc_attr(allow_interpreted_subclasses=True)
class Hook(ABC):
    """Something that acts on the packets of a direction."""

    __slots__ = ()

    @abstractmethod
    def act(self, port: Port, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Return what leaves instead of a packet, or None to let it pass.

        Parameters
        ----------
        port : Port
            The direction.
        start_ps : int
            Time its first bit enters the link.
        packet : Packet
            The packet; a second one in the answer must be a copy.

        Returns
        -------
        list of (int, Packet), or None
            Additional delay in ps and packet, for each that leaves.
        """


class TapHook(Hook):
    """A tap as a hook: makes bytes of every packet, and packets of what the tap returns.

    Parameters
    ----------
    tap : Tap
        What to call.
    """

    __slots__ = ("_tap",)

    def __init__(self, tap: Tap) -> None:
        self._tap = tap

    def act(self, port: Port, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Call the tap; a frame it returns as it got it stays the packet it was."""
        data = packet.to_bytes(port.macs)
        result = self._tap(port.half, start_ps, data)
        if result is None:
            return None
        packets: list[tuple[int, Packet]] = []
        kept = False
        for delay, replaced in result:
            if replaced is not data:
                packets.append((delay, Packet.of_frame(bytes(replaced))))
            else:
                packets.append((delay, packet.copy() if kept else packet))
                kept = True
        return packets


def attach(ports: Sequence[Port], hook: Hook) -> Callable[[], None]:
    """Add a hook to some directions and return the function that removes it again."""
    for port in ports:
        port.hooks.append(hook)
        port.refresh()

    def remove() -> None:
        for port in ports:
            port.hooks.remove(hook)
            port.refresh()

    return remove
