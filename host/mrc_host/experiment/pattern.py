"""Bytes that messages carry: reproducible, different everywhere, and cheap to make.

The pattern of a message is the output of splitmix64 at consecutive counters, keyed by a hash of seed, flow
and message. A byte that ends up in the wrong message, at the wrong offset or in the wrong run is wrong with
probability 255/256, and a word practically always.

Source: design.md 5 (random numbers are hashes of seed, component, counter).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mrc_host.fabric.events import component_key, random_bits

__all__ = ["GUARD_BYTES", "guard_pattern", "message_pattern"]

GUARD_BYTES = 4096
"""Size of the zones before and behind a buffer that nobody may write."""

MASK_64 = (1 << 64) - 1
STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)

MESSAGE = component_key("message pattern")
GUARD = component_key("guard pattern")


def _pattern(key: int, length: int) -> npt.NDArray[np.uint8]:
    counters = np.arange(1, (length + 7) // 8 + 1, dtype=np.uint64)
    state = np.uint64(key) + counters * STEP
    state = (state ^ (state >> np.uint64(30))) * FIRST
    state = (state ^ (state >> np.uint64(27))) * SECOND
    state ^= state >> np.uint64(31)
    return state.astype("<u8").view(np.uint8)[:length]


def message_pattern(seed: int, flow: int, message: int, length: int) -> npt.NDArray[np.uint8]:
    """Return the bytes of a message.

    Parameters
    ----------
    seed : int
        Seed of the run.
    flow, message : int
        Number of the flow, and of the message within it.
    length : int
        Bytes.
    """
    return _pattern(random_bits(seed & MASK_64, MESSAGE, flow << 32 | message), length)


def guard_pattern(seed: int, zone: int, length: int = GUARD_BYTES) -> npt.NDArray[np.uint8]:
    """Return the bytes of a guard zone."""
    return _pattern(random_bits(seed & MASK_64, GUARD, zone), length)
