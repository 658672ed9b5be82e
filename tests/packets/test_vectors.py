"""The golden packets and headers of tests/vectors/packets.json.

Sweep: every packet and header of the file.
Stimulus: its bytes.
Checks: decoded fields equal the file's, the ICRC is right, encoding gives the same bytes, building the packet
from the fields alone gives the same bytes.
Timing: none.
"""

from __future__ import annotations

import pytest

from mrc_host.packets.codec import COMPUTE_ICRC, HeaderValue, Packet, complete, decode, encode
from mrc_host.packets.header_codec import HEADER_CODECS
from mrc_host.packets.peek import peek
from packets.strategies import load, number

FILE = load("packets.json")
COMPUTED = ("length", "payload_length", "next_header", "pad_count", "ts")


@pytest.mark.parametrize("name", FILE["packets"])
def test_packet(name):
    data = bytes.fromhex(FILE["packets"][name]["hex"])
    packet = decode(data)
    assert packet.start == "ip"
    assert packet.icrc_ok is True
    assert packet.problems == []
    flat = {key: value for header in packet.headers for key, value in header.fields.items()}
    for key, expected in FILE["packets"][name]["fields"].items():
        if key == "payload":
            assert packet.payload.hex() == expected
        elif key == "ev":
            assert packet.ev == number(expected)
        else:
            assert flat[key] == number(expected), key
    assert encode(packet) == data


@pytest.mark.parametrize("name", FILE["packets"])
def test_build_from_fields_alone(name):
    data = bytes.fromhex(FILE["packets"][name]["hex"])
    packet = decode(data)
    headers = [
        HeaderValue(header, {key: value for key, value in fields.items() if key not in COMPUTED})
        for header, fields in packet.headers
    ]
    bare = Packet("ip", headers, payload=packet.payload, icrc=COMPUTE_ICRC)
    assert encode(complete(bare)) == data


@pytest.mark.parametrize("name", FILE["packets"])
def test_peek_agrees(name):
    data = bytes.fromhex(FILE["packets"][name]["hex"])
    packet, info = decode(data), peek(data, 0)
    assert info is not None
    assert (info.opcode, info.psn, info.ev) == (packet.opcode, packet["bth"]["psn"], packet.ev)
    assert info.payload_len == len(packet.payload)
    assert info.va == (packet["reth"]["va"] if "reth" in packet else None)


@pytest.mark.parametrize(("name", "parts"), [("seth_cc_state", ("seth", "cc_state")), ("peth", ("peth",))])
def test_header(name, parts):
    data = bytes.fromhex(FILE["headers"][name]["hex"])
    fields, packed, offset = {}, b"", 0
    for part in parts:
        codec = HEADER_CODECS[part]
        values = codec.unpack(data, offset)
        offset += codec.bytes
        packed += codec.pack(values)
        fields |= values
    assert offset == len(data)
    assert packed == data
    for key, expected in FILE["headers"][name]["fields"].items():
        assert fields[key] == number(expected), key
