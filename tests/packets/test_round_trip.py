"""Bytes and packets go both ways without loss.

Sweep: every header, every opcode and stack, JSON, any bytes.
Stimulus: hypothesis.
Checks: unpack(pack(fields)) == fields, decode(encode(packet)) == packet, encode(decode(bytes)) == bytes, the
same through JSON, and exact messages for what cannot be packed.
Timing: none.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.packets.codec import STARTS, Packet, complete, decode, encode
from mrc_host.packets.header_codec import HEADER_CODECS
from mrc_host.packets.json_form import from_json, to_json
from mrc_host.packets.peek import peek
from mrc_rtl.wire import HEADERS, Opcode
from packets.strategies import STACKS, frame_of, header_fields, packets

SETTINGS = settings(deadline=None, max_examples=60)
FRAMES = [frame_of(opcode, stack) for opcode in Opcode for stack in STACKS]


@pytest.mark.parametrize("name", HEADERS)
def test_header(name):
    codec = HEADER_CODECS[name]

    @SETTINGS
    @given(header_fields(codec.header))
    def check(fields):
        data = codec.pack(fields)
        assert len(data) == codec.bytes
        assert int.from_bytes(data, "big") == codec.header.pack(fields)
        assert codec.unpack(b"\x5a" + data, 1) == fields

    check()


@settings(deadline=None, max_examples=150)
@given(packets())
def test_packet(packet):
    whole = complete(packet)
    data = encode(whole)
    decoded = decode(data, packet.start)
    assert decoded.headers == whole.headers
    assert (decoded.payload, decoded.padding, decoded.icrc) == (whole.payload, whole.padding, whole.icrc)
    assert decoded.icrc_ok is True
    assert decoded.rest == decoded.trailing == b""
    info = peek(data, 14 if packet.start == "ethernet" else 0)
    assert info is not None
    assert (info.opcode, info.ev, info.psn) == (decoded.opcode, decoded.ev, decoded["bth"]["psn"])
    assert info.payload_len == len(decoded.payload)


@settings(deadline=None, max_examples=300)
@given(
    st.one_of(st.binary(max_size=200), st.sampled_from(FRAMES)),
    st.lists(st.tuples(st.integers(0, 199), st.integers(0, 255)), max_size=4),
    st.integers(0, 300),
    st.binary(max_size=5),
    st.sampled_from(STARTS),
)
def test_any_bytes(frame, changes, keep, more, start):
    data = bytearray(frame[:keep] + more)
    for at, value in changes:
        if at < len(data):
            data[at] = value
    data = bytes(data)
    packet = decode(data, start)
    assert encode(packet) == data
    text = json.dumps(to_json(packet))
    again = from_json(json.loads(text))
    assert encode(complete(again)) == data
    assert again.headers == packet.headers
    peek(data)
    peek(data, 0)


def test_start_must_be_known():
    with pytest.raises(ValueError, match=r"^start must be one of auto, ethernet, ip, got 'mac'$"):
        decode(b"", "mac")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("bth", {"psn": 1 << 24}, "bth.psn must be between 0 and 0xffffff, got 0x1000000"),
        ("bth", {"psn": -1}, "bth.psn must be between 0 and 0xffffff, got -1"),
        ("bth", {"rtx": 2}, "bth.rtx must be between 0 and 0x1, got 0x2"),
        ("seth", {"sack_offset": 40000}, "seth.sack_offset must be between -32768 and 32767, got 40000"),
        ("bth", {"psn": "7"}, "bth.psn must be an integer, got '7'"),
    ],
)
def test_pack_messages(name, change, message):
    fields = HEADERS[name].unpack(0)
    with pytest.raises(ValueError) as caught:
        HEADER_CODECS[name].pack({**fields, **change})
    assert str(caught.value) == message


def test_pack_names_a_missing_field():
    fields = HEADERS["bth"].unpack(0)
    del fields["psn"]
    with pytest.raises(ValueError, match=r"^bth.psn is missing$"):
        HEADER_CODECS["bth"].pack(fields)


def test_encode_refuses_an_icrc_still_to_be_computed():
    with pytest.raises(ValueError, match="icrc must be between 0 and 0xffffffff, got -1"):
        encode(Packet("ip", icrc=-1))
