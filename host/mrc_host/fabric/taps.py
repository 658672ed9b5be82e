"""Taps on links: the one way to capture frames and to do something to them.

A tap is a function. Captures return None; faults return what arrives instead of the frame. It is called in
the order of the simulation, never in the order of calls from outside, so that a tap may keep state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mrc_host.fabric.links import Direction

__all__ = ["Tap", "TapChains"]

Tap = Callable[[Direction, int, bytes], list[tuple[int, bytes]] | None]
"""Called for each frame of a direction with (direction, time its first bit enters the link in ps, frame).

None lets the frame pass, which is what a capture returns. A list replaces it: each entry is (additional
delay in ps, frame). An empty list drops it, two entries duplicate it, other bytes corrupt or trim it. The
times on the link stay those of the original frame, plus the additional delay.
"""


class TapChains:
    """The taps of every direction of a fabric, in the order they were attached.

    Parameters
    ----------
    directions : sequence of Direction
        All directions, by number.

    Attributes
    ----------
    chains : list of list of Tap
        Taps by direction.
    """

    __slots__ = ("_directions", "chains")

    def __init__(self, directions: Sequence[Direction]) -> None:
        self._directions = directions
        self.chains: list[list[Tap]] = [[] for _ in directions]

    def attach(self, directions: Sequence[Direction], tap: Tap) -> Callable[[], None]:
        """Add a tap to some directions and return the function that removes it again."""
        chains = [self.chains[half.number] for half in directions]
        for chain in chains:
            chain.append(tap)

        def remove() -> None:
            for chain in chains:
                chain.remove(tap)

        return remove

    def run(self, direction: int, start_ps: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Return (additional delay in ps, frame) for each frame that leaves the taps of a direction.

        Raises
        ------
        ValueError
            When a tap returns a negative delay.
        """
        half = self._directions[direction]
        frames = [(0, frame)]
        for tap in self.chains[direction]:
            passed: list[tuple[int, bytes]] = []
            for delay, data in frames:
                result = tap(half, start_ps + delay, data)
                if result is None:
                    passed.append((delay, data))
                    continue
                for more, replaced in result:
                    if more < 0:
                        raise ValueError(f"delay of a tap on {half.name} must be at least 0, got {more}")
                    passed.append((delay + more, bytes(replaced)))
            frames = passed
        return frames
