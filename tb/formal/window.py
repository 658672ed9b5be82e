"""PSNs in a window that moves over a ring."""

from amaranth.hdl import Value

from mrc_rtl.config import NicConfig

__all__ = ["in_window", "lap", "place_in_window"]

_PSN = 24


def in_window(config: NicConfig, expected: Value, psn: Value) -> Value:
    """Whether a PSN is one of the ``mpr_psns`` from the expected one on."""
    return (psn - expected)[:_PSN] < config.mpr_psns


def place_in_window(expected: Value, place: Value) -> Value:
    """The PSN of the window that stands in this place of the ring."""
    return (expected + (place - expected)[: len(place)])[:_PSN]


def lap(config: NicConfig, psn: Value) -> Value:
    """What the bit of a PSN that is not set reads."""
    return psn[config.psn_ring_bits]
