"""EV expansion in Python.

Sweep: the vectors; random profiles against a bit-by-bit reference; every validation rule.
Stimulus: profiles and EVs.
Checks: equal results, exact messages.
Timing: none.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.packets.ev_expansion import EvField, EvProfile
from packets.ev_profiles import profiles
from packets.strategies import load

PROFILES = load("ev_expansion.json")["profiles"]
VECTORS = [(p, v["ev"], v["expanded"]) for p in PROFILES for v in p["vectors"]]


@pytest.mark.parametrize(
    ("profile", "ev", "expanded"), VECTORS, ids=[f"{p['profile']}-{ev}" for p, ev, _ in VECTORS]
)
def test_vector(profile, ev, expanded):
    assert EvProfile.from_json(profile).expand_hex(ev) == expanded
    assert EvProfile.from_json(profile).expand_hex("0x" + ev.upper()) == expanded


def bit_by_bit(profile: EvProfile, ev: str) -> str:
    """Follow protocol.md 2.8 literally, on strings of bits."""
    bits = iter(ev)
    result = ""
    for number, width in enumerate(profile.format_widths):
        if number >= len(profile.fields):
            result += "0" * width
            continue
        item = profile.fields[number]
        init, mask = f"{item.init_val:0{item.width}b}", f"{item.mask:0{item.width}b}"
        value = "".join(next(bits) if masked == "1" else kept for kept, masked in zip(init, mask))
        result += value.rjust(width, "0")
    return result


@settings(deadline=None, max_examples=200)
@given(profiles(), st.data())
def test_equals_bit_by_bit(profile, data):
    ev = data.draw(st.integers(0, (1 << profile.ev_bits) - 1))
    bits = f"{ev:0{profile.ev_bits}b}" if profile.ev_bits else ""
    assert f"{profile.expand(ev):0{profile.width}b}" == bit_by_bit(profile, bits)


def test_expand_all():
    profile = EvProfile.from_json(PROFILES[2])
    assert profile.expand_all([0xA4, 0x7F]) == [0x010A0204, 0x0107020F]


@pytest.mark.parametrize(
    ("widths", "fields", "message"),
    [
        ((16, 0), (), "format_widths[1] must be at least 1 bit, got 0"),
        ((200, 57), (), "format_widths must be 1 to 256 bits in sum, got 257"),
        ((), (), "format_widths must be 1 to 256 bits in sum, got 0"),
        ((8,), (EvField(4), EvField(4)), "fields must be at most as many as the 1 format fields, got 2"),
        ((8,), (EvField(9),), "fields[0].width must be between 1 and the format field's 8 bits, got 9"),
        (
            (8, 8),
            (EvField(8), EvField(4, 0x10)),
            "fields[1].init_val must be within 4 bits (0 to 0xf), got 0x10",
        ),
        ((8,), (EvField(4, 0, 0x1F),), "fields[0].mask must be within 4 bits (0 to 0xf), got 0x1f"),
        (
            (8,),
            (EvField(8, 0, 0xF, 0, 16),),
            "fields[0].max_val must be within the 4 bits set in the mask (0 to 0xf), got 0x10",
        ),
        ((8,), (EvField(8, 0, 0xF, 9, 8),), "fields[0].min_val must be between 0 and max_val 0x8, got 0x9"),
        (
            (8,),
            (EvField(8, 3, 0, 0, 1),),
            "fields[0].max_val must be within the 0 bits set in the mask (0 to 0x0), got 0x1",
        ),
    ],
)
def test_profile_messages(widths, fields, message):
    with pytest.raises(ValueError) as caught:
        EvProfile(widths, fields)
    assert str(caught.value) == message


def test_ev_messages():
    profile = EvProfile((16, 16), (EvField(8, 0, 0xFF, 0, 179), EvField(4, 0, 0x3)), "t0_links")
    cases = {
        "b3": "ev must have at least 10 bits for t0_links, got 8",
        "b401": "ev must be zero behind its first 10 bits, got 'b401'",
        "b400": "the EV bits of fields[0] must be between 0 and 179, got 180",
        "xyz": "ev must be hexadecimal, got 'xyz'",
    }
    for ev, message in cases.items():
        with pytest.raises(ValueError) as caught:
            profile.expand_hex(ev)
        assert str(caught.value) == message
    assert profile.expand_hex("b3c") == "00b30003"
    with pytest.raises(ValueError, match="ev must be within the 10 bits t0_links consumes, got 0x400"):
        profile.expand(0x400)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "a profile must be an object, got list"),
        ({"fields": []}, "format_widths must be a list, got None"),
        ({"format_widths": [8], "fields": [7]}, "fields[0] must be an object with a width, got 7"),
        (
            {"format_widths": [8], "fields": [{"width": 8, "msk": 1}]},
            "fields[0] has keys width, init_val, mask, min_val, max_val; got 'msk'",
        ),
        (
            {"format_widths": ["x"], "fields": []},
            "format_widths[0] must be a number or a string such as \"0xff\", got 'x'",
        ),
    ],
)
def test_json_messages(data, message):
    with pytest.raises(ValueError) as caught:
        EvProfile.from_json(data)
    assert str(caught.value) == message
