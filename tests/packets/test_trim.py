"""Trimming as switches do it, and how trimmed packets decode.

Sweep: the trim sizes offered, every size from the minimum to the whole frame, lengths corrected or not, last
hop or not, every stack.
Stimulus: write frames.
Checks: length, DSCP of the outermost header only, ECN kept, lengths, IPv4 checksum, decoding without problems
and without loss, refusal below the minimum with the exact message.
Timing: none.
"""

from __future__ import annotations

import pytest

from mrc_host.packets.codec import decode, encode
from mrc_host.packets.icrc import ipv4_checksum
from mrc_host.packets.peek import peek
from mrc_host.packets.trim import minimum_trim_size, set_dscp, trim
from mrc_rtl.wire import TRIM_SIZE_MINIMUM, TRIM_SIZES, Dscp, Opcode
from packets.strategies import frame_of

FRAME = frame_of(Opcode.WRITE_ONLY, "srv6", bytes(512))
MINIMUM = {"ipv6": 78, "ipv4": 58, "srv6": 118, "srv6_srh": 142}


@pytest.mark.parametrize("last_hop", [False, True])
@pytest.mark.parametrize("correct", [False, True])
@pytest.mark.parametrize("size", TRIM_SIZES)
def test_sizes_offered(size, correct, last_hop):
    cut = trim(FRAME, size, correct_lengths=correct, last_hop=last_hop)
    assert len(cut) == size
    packet = decode(cut)
    outer, inner = (header.fields for header in packet.headers[1:3])
    assert outer["traffic_class"] >> 2 == (Dscp.TRIMMED_LASTHOP if last_hop else Dscp.TRIMMED)
    assert inner["traffic_class"] >> 2 == Dscp.TRIMMABLE
    assert outer["payload_length"] == (size - 54 if correct else len(FRAME) - 54)
    assert inner["payload_length"] == len(FRAME) - 94
    assert packet.trimmed
    assert packet.icrc_ok is None
    assert packet.problems == []
    assert encode(packet) == cut


@pytest.mark.parametrize("stack", MINIMUM)
def test_every_size(stack):
    frame = frame_of(Opcode.WRITE_ONLY_IMM, stack)
    minimum = minimum_trim_size(frame)
    assert minimum == MINIMUM[stack]
    for size in range(minimum, len(frame) + 2):
        for correct in (False, True):
            cut = trim(frame, size, correct, last_hop=False)
            assert len(cut) == min(size, len(frame))
            packet = decode(cut)
            assert packet.problems == []
            assert packet["meth"] == decode(frame)["meth"]
            assert packet.ev == decode(frame).ev
            assert encode(packet) == cut
            info = peek(cut)
            assert info is not None
            assert info.trimmed
            assert info.payload_len == 0
            assert info.msn == packet["meth"]["msn"]
            assert (info.va is None) == (size < minimum + 4 + 8)


@pytest.mark.parametrize(("size", "last"), [(118, "meth"), (122, "tseth"), (138, "reth")])
def test_what_each_size_keeps(size, last):
    assert decode(trim(FRAME, size, True, False)).headers[-1].name == last


def test_a_header_cut_short_is_named():
    packet = decode(trim(FRAME, 128, True, False))
    assert packet.rest_of == "reth"
    assert packet.rest == FRAME[122:128]


@pytest.mark.parametrize("ecn", range(4))
def test_ecn_is_kept(ecn):
    frame = bytearray(FRAME)
    frame[15] = frame[15] & 0xCF | ecn << 4
    cut = trim(bytes(frame), 128, False, False)
    assert decode(cut)["ipv6"]["traffic_class"] == Dscp.TRIMMED << 2 | ecn
    info = peek(cut)
    assert info is not None
    assert info.ecn == ecn


def test_ipv4_checksum_follows():
    cut = trim(frame_of(Opcode.WRITE_ONLY, "ipv4"), 70, True, True)
    assert decode(cut)["ipv4"]["checksum"] == ipv4_checksum(cut[14:34])
    assert decode(cut)["ipv4"]["total_length"] == 56


def test_another_dscp():
    assert decode(trim(FRAME, 128, True, False, dscp=48))["ipv6"]["traffic_class"] >> 2 == 48
    assert decode(set_dscp(FRAME, 3))["ipv6"]["traffic_class"] == 3 << 2


def test_refusals():
    with pytest.raises(ValueError) as caught:
        trim(FRAME, TRIM_SIZE_MINIMUM - 1, True, False)
    assert str(caught.value) == "trim size must be at least 118 bytes for this frame, got 117"
    with pytest.raises(ValueError, match="dscp must be between 0 and 63, got 64"):
        set_dscp(FRAME, 64)
    with pytest.raises(ValueError, match="frame must carry IPv6 or IPv4 behind Ethernet, got 0102"):
        trim(b"\x01\x02", 118, True, False)
    with pytest.raises(ValueError, match="frame must reach a UDP header, got next header 41 at byte 54"):
        minimum_trim_size(FRAME[:60])
