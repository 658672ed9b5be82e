"""Malformed packets decode as far as they go and say what is wrong, and at which byte.

Sweep: every opcode cut at every byte; one fault at a time elsewhere.
Stimulus: well-formed frames with one change.
Checks: exact problem byte and text, icrc_ok, headers decoded, encode gives the same bytes.
Timing: none.
"""

from __future__ import annotations

import zlib

import pytest

from mrc_host.packets.codec import build, decode, encode
from mrc_rtl.wire import HEADERS, Opcode
from packets.strategies import STACKS, frame_of


def changed(frame: bytes, at: int, value: int) -> bytes:
    return frame[:at] + bytes([value]) + frame[at + 1 :]


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)
def test_cut_at_every_byte(opcode, stack):
    frame = frame_of(opcode, stack)
    whole = decode(frame)
    assert whole.problems == []
    assert whole.icrc_ok is True
    ends, at = [], 0
    for name, _ in whole.headers:
        at += HEADERS[name].bytes
        ends.append(at)
    for size in range(len(frame)):
        packet = decode(frame[:size], "ethernet")
        assert encode(packet) == frame[:size]
        # A cut SRH is not looked into before its first four bytes are there; otherwise every whole header is.
        assert len(packet.headers) == sum(end <= size for end in ends)
        assert packet.problems, size
        assert packet.icrc_ok is not True
        assert max(problem.byte for problem in packet.problems) <= size


def problems_of(frame: bytes) -> list[tuple[int, str]]:
    packet = decode(frame)
    assert encode(packet) == frame
    return [tuple(problem) for problem in packet.problems]


def test_cut_messages():
    frame = frame_of(Opcode.WRITE_ONLY, "ipv6")
    assert problems_of(frame[:10]) == [(10, "ethernet header needs 14 bytes, got 10")]
    assert problems_of(frame[:20]) == [(20, "ipv6 header needs 40 bytes, got 6")]
    assert problems_of(frame[:70]) == [
        (18, "payload_length states 96 bytes more than are present"),
        (70, "bth header needs 12 bytes, got 8"),
    ]
    packet = decode(frame[:-1])
    assert [tuple(problem) for problem in packet.problems] == [
        (18, "payload_length states 1 bytes more than are present")
    ]
    assert packet.icrc is None
    assert packet.icrc_ok is False
    assert packet.rest_of == ""


def test_unknown_opcode_keeps_its_body_and_its_icrc():
    addresses = {"source": 1, "destination": 2}
    frame = build(("ipv6", addresses), ("udp", {}), ("bth", {"opcode": 0xC4}), payload=b"what is this")
    packet = decode(frame)
    assert [tuple(problem) for problem in packet.problems] == [(48, "opcode 0xc4 is not an MRC opcode")]
    assert packet.kind == "unknown"
    assert packet.rest == b"what is this"
    assert packet.icrc_ok is True
    assert encode(packet) == frame


def test_bad_icrc():
    frame = frame_of(Opcode.WRITE_ONLY, "ipv6")
    wrong = changed(frame, len(frame) - 20, frame[-20] ^ 1)
    packet = decode(wrong)
    assert packet.icrc_ok is False
    at, text = packet.problems[0]
    assert at == len(frame) - 4
    assert text.startswith("ICRC must be ")
    assert text.endswith(f", got {frame[-4:].hex()}")


def test_icrc_does_not_cover_what_switches_change():
    frame = frame_of(Opcode.WRITE_ONLY, "srv6")
    for at in (15, 21, 40, 55, 61):  # outer traffic class, hop limit, destination; inner class and hop limit
        assert decode(changed(frame, at, frame[at] ^ 1)).icrc_ok is True
    assert decode(changed(frame, 94, frame[94] ^ 1)).icrc_ok is False  # UDP source port: the EV's upper half


@pytest.mark.parametrize(
    ("stack", "at", "value", "problem"),
    [
        ("ipv6", 12, 0x81, (12, "ethertype must be 0x86dd or 0x800, got 0x81dd")),
        ("ipv6", 20, 6, (20, "next header must be 17, 41, 43 or 4, got 6")),
        ("ipv6", 57, 1, (56, "UDP destination port must be 4791 or 4971, got 4609")),
        ("ipv6", 59, 4, (58, "udp length must be at least 8, got 4")),
        ("ipv6", 59, 0x80, (58, "udp length states 16 bytes more than are present")),
        ("ipv6", 59, 0x6C, (58, "udp length 108 leaves 4 bytes of the IP packet over")),
        ("ipv6", 63, 0x01, (63, "tver must be 0, got 1")),
        ("ipv4", 14, 0x46, (14, "ihl must be 5 (no options), got 6")),
        ("ipv4", 17, 0x10, (16, "total_length must be at least 20, got 16")),
        ("ipv4", 20, 0x20, (20, "IPv4 fragments are not decoded")),
        ("srv6_srh", 55, 4, (55, "hdr_ext_len must be 2 (one segment), got 4")),
        ("srv6_srh", 56, 2, (56, "routing type must be 4 (SRH), got 2")),
        ("srv6_srh", 57, 2, (57, "segments_left must be 0 or 1, got 2")),
        ("srv6_srh", 58, 1, (58, "last_entry must be 0, got 1")),
    ],
)
def test_one_wrong_field(stack, at, value, problem):
    frame = changed(frame_of(Opcode.WRITE_ONLY, stack), at, value)
    packet = decode(frame, "ethernet")
    assert encode(packet) == frame
    assert problem in [tuple(item) for item in packet.problems]


def test_vlan_tag_is_named():
    frame = frame_of(Opcode.SACK)
    tagged = frame[:12] + b"\x81\x00\x00\x05" + frame[12:]
    packet = decode(tagged)
    assert [tuple(problem) for problem in packet.problems] == [
        (12, "ethertype must be 0x86dd or 0x800, got 0x8100 (VLAN tag)")
    ]
    assert packet.rest == tagged[14:]
    assert packet.icrc_ok is None
    assert encode(packet) == tagged


def test_ipv4_checksum_is_checked():
    frame = frame_of(Opcode.SACK, "ipv4")
    text = problems_of(changed(frame, 24, frame[24] ^ 0xFF))[0][1]
    assert text.startswith("IPv4 checksum must be 0x")


def test_three_ip_headers():
    addresses = {"source": 1, "destination": 2}
    frame = build(
        *[("ipv6", addresses)] * 3, ("udp", {}), ("bth", {"opcode": Opcode.ACKNOWLEDGE}), ("aeth", {})
    )
    assert problems_of(frame) == [(80, "at most one encapsulation is allowed, got a third IP header")]


def test_body_rules():
    write = [
        ("ipv6", {"source": 1, "destination": 2}),
        ("udp", {}),
        ("bth", {"opcode": Opcode.WRITE_ONLY}),
        ("meth", {}),
    ]
    assert problems_of(build(*write, ("reth", {"dma_len": 9}), payload=b"12345678")) == [
        (80, "payload must be dma_len = 9 bytes, got 8")
    ]
    last = [*write[:2], ("bth", {"opcode": Opcode.WRITE_LAST}), ("meth", {}), ("reth", {"dma_len": 4})]
    assert problems_of(build(*last, payload=b"12345678")) == [
        (80, "payload must be at most dma_len = 4 bytes, got 8")
    ]
    first = [*write[:2], ("bth", {"opcode": Opcode.WRITE_FIRST}), ("meth", {}), ("reth", {"dma_len": 400})]
    assert problems_of(build(*first, payload=b"123")) == [(49, "pad_count must be 0 in WRITE_FIRST, got 1")]
    padless = [*write[:2], ("bth", {"opcode": Opcode.WRITE_ONLY, "pad_count": 0}), ("meth", {})]
    assert problems_of(build(*padless, ("reth", {"dma_len": 3}), payload=b"123")) == [
        (83, "payload and pad must be a multiple of 4 bytes, got 3")
    ]
    ack = [*write[:2], ("bth", {"opcode": Opcode.ACKNOWLEDGE}), ("aeth", {})]
    assert problems_of(build(*ack, payload=b"1234")) == [(64, "ACKNOWLEDGE carries no payload, got 4 bytes")]
    assert problems_of(build(*write[:2], ("bth", {"opcode": 0xD1, "pad_count": 2}), ("aeth", {}))) == [
        (49, "pad_count 2 exceeds the 0 bytes between headers and ICRC")
    ]
    assert problems_of(
        build(*write[:2], ("bth", {"opcode": 0xDC}), ("seth", {"m": 3}), ("cc_state", {}))
    ) == [(61, "m must be 0 to 2, got 3")]
    assert problems_of(build(*write[:2], ("bth", {"opcode": 0xDD}), ("neth", {"nack_reason": 9}))) == [
        (62, "nack_reason 0x9 is not known")
    ]


def test_trailing_bytes_are_a_problem_unless_they_are_the_fcs():
    frame = frame_of(Opcode.SACK)
    assert problems_of(frame + zlib.crc32(frame).to_bytes(4, "little")) == []
    assert problems_of(frame + b"\0\0\0\0") == [(len(frame), "4 bytes follow the end of the packet")]


def test_empty():
    assert problems_of(b"") == [(0, "ethernet header needs 14 bytes, got 0")]
    assert [tuple(p) for p in decode(b"", "ip").problems] == [(0, "ipv6 header needs 40 bytes, got 0")]
    assert [tuple(p) for p in decode(b"\x15", "ip").problems] == [(0, "IP version must be 6 or 4, got 1")]


@pytest.mark.parametrize("version", [0, 5, 15])
@pytest.mark.parametrize("stack", STACKS)
def test_ip_version_that_is_none(stack, version):
    """Nobody knows what such a packet's ICRC covers."""
    frame = frame_of(Opcode.SACK, stack)
    at = 0
    for name, _ in decode(frame).headers:
        if name.startswith("ip"):
            innermost = at
        at += HEADERS[name].bytes
    packet = decode(changed(frame, innermost, version << 4), "ethernet")
    assert packet.icrc_ok is not True
    assert any(
        problem.byte == innermost and "IP version must be" in problem.text for problem in packet.problems
    )
    assert encode(packet) == changed(frame, innermost, version << 4)
