"""Time and chance in the discrete event simulation: rules, and random numbers without a generator.

Rules that make a run independent of how it is cut into windows and of the order of calls:

* time is an integer in picoseconds;
* an event is a tuple that begins with ``(time, order)``; the order that breaks ties is made of port and
  sequence, and both come from where a frame travels, never from when somebody called;
* a random number is a hash of (seed, component, counter): the component counts its own draws, so that no
  draw of one component shifts those of another.

The layout is meant to be compiled: integers as attributes of slotted objects, no dictionary per packet.

Source: design.md 5.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

__all__ = ["NEVER", "RandomStream", "component_key", "random_bits"]

NEVER: Final = (1 << 62) - 1
"""A time later than any event, in picoseconds (53 days). Compiled code keeps larger integers as objects."""

MASK_64 = (1 << 64) - 1


def component_key(name: str) -> int:
    """Return the 64-bit key of a component's name, the same on every machine and in every process."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


def random_bits(seed: int, component: int, counter: int) -> int:
    """Return 64 random bits that depend on nothing but the three arguments.

    Parameters
    ----------
    seed : int
        Seed of the run.
    component : int
        Key of the component, see :func:`component_key`.
    counter : int
        Number of the draw within the component.

    Source: the finaliser of splitmix64 (Steele, Lea, Flood 2014), applied after each argument.
    """
    state = 0
    for word in (seed, component, counter):
        state = (state + word + 0x9E3779B97F4A7C15) & MASK_64
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK_64
        state = (state ^ state >> 27) * 0x94D049BB133111EB & MASK_64
        state ^= state >> 31
    return state


class RandomStream:
    """The draws of one component, counted.

    Parameters
    ----------
    seed : int
        Seed of the run.
    name : str
        Name of the component; two streams of one name and seed are equal.
    """

    __slots__ = ("_component", "_seed", "counter")

    def __init__(self, seed: int, name: str) -> None:
        self._seed = seed
        self._component = component_key(name)
        self.counter = 0

    def bits(self) -> int:
        """Return the next 64 random bits."""
        value = random_bits(self._seed, self._component, self.counter)
        self.counter += 1
        return value

    def below(self, limit: int) -> int:
        """Return a number from 0 to ``limit`` − 1; the bias is below limit / 2^64."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        return self.bits() * limit >> 64

    def chance(self, probability: float) -> bool:
        """Return true with the given probability (0 to 1)."""
        if not 0 <= probability <= 1:
            raise ValueError(f"probability must be between 0 and 1, got {probability}")
        return self.bits() < int(probability * (1 << 64))
