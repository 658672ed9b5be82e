"""Random EV profiles for the tests of the Python and the gateware expansion."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from mrc_host.packets.ev_expansion import EvField, EvProfile


@st.composite
def profiles(draw: st.DrawFn, maximum_bits: int = 256) -> EvProfile:
    """Any valid profile up to a total width."""
    return random_profile(draw(st.randoms(use_true_random=False)), maximum_bits)


def random_profile(source: random.Random, maximum_bits: int, maximum_ev_bits: int = 256) -> EvProfile:
    """A valid profile with fields narrower than their format fields, split masks and fewer fields."""
    while True:
        widths: list[int] = []
        while sum(widths) < maximum_bits and len(widths) < 8 and (not widths or source.random() < 0.8):
            widths.append(source.randint(1, min(32, maximum_bits - sum(widths))))
        fields: list[EvField] = []
        for format_width in widths[: source.randint(0, len(widths))]:
            width = source.randint(1, format_width)
            mask = source.getrandbits(width) & source.choice((source.getrandbits(width), (1 << width) - 1))
            fields.append(EvField(width, source.getrandbits(width), mask))
        profile = EvProfile(tuple(widths), tuple(fields))
        if profile.ev_bits <= maximum_ev_bits:
            return profile
