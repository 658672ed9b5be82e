"""The JSON form of packets.

Sweep: every opcode; what people write by hand; wrong input.
Stimulus: decoded packets and dictionaries.
Checks: hexadecimal PSN, EV and addresses; filled-in fields; exact messages with the path.
Timing: none.
"""

from __future__ import annotations

import json

import pytest

from mrc_host.packets.codec import complete, decode, encode
from mrc_host.packets.json_form import describe, from_json, to_json
from mrc_host.packets.trim import trim
from mrc_rtl.wire import Opcode
from packets.strategies import frame_of, load

ACK = {
    "headers": [
        {"header": "ipv6", "source": "fd00:0:0:1::1", "destination": "fd00:0:0:2::1"},
        {"header": "udp", "source_port": "0xc001"},
        {"header": "bth", "opcode": "0xd1", "dest_qp": 52, "psn": "0x340"},
        {"header": "aeth", "msn": 7},
    ]
}


@pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)
def test_both_ways(opcode):
    frame = frame_of(opcode)
    for data in (frame, trim(frame, 118, True, False), frame[:-3], frame + b"\x07"):
        packet = decode(data)
        again = from_json(json.loads(json.dumps(to_json(packet))))
        assert again.headers == packet.headers
        assert encode(again) == encode(complete(again)) == data


def test_psn_ev_and_addresses_are_hexadecimal():
    vector = load("packets.json")["packets"]["sack"]
    data = to_json(decode(bytes.fromhex(vector["hex"])))
    assert data["kind"] == "SACK"
    assert data["ev"] == vector["fields"]["ev"]
    assert data["icrc_ok"] is True
    headers = {header["header"]: header for header in data["headers"]}
    assert headers["ipv6"]["source"] == "fd00:0:22::1"
    assert headers["bth"]["psn"] == "0x340"
    assert headers["seth"]["entropy"] == "0x01030204"
    assert headers["seth"]["m"] == "SKIP_ONCE"
    assert headers["seth"]["ack_psn_offset"] == 5
    ethernet = to_json(decode(frame_of(Opcode.SACK)))["headers"][0]
    assert ethernet["source"] == "00:00:00:00:00:01"


def test_icrc_ok_is_null_for_a_trimmed_packet():
    data = to_json(decode(trim(frame_of(Opcode.WRITE_ONLY), 128, False, False)))
    assert data["icrc_ok"] is None
    assert data["icrc"] is None
    assert data["trimmed"] is True


def test_absent_fields_are_filled_in():
    packet = decode(encode(complete(from_json(ACK))))
    assert packet.problems == []
    assert packet.icrc_ok is True
    assert packet["aeth"] == {"syndrome": 0x1F, "msn": 7}
    assert packet["ipv6"]["payload_length"] == 28


def test_a_trimmed_packet_gets_no_icrc():
    data = encode(complete(from_json({**ACK, "trimmed": True})))
    whole = encode(complete(from_json(ACK)))
    assert len(data) == len(whole) - 4
    assert decode(data)["ipv6"]["payload_length"] == decode(data)["udp"]["length"] == 24


def test_numbers_may_be_written_in_any_base():
    fields = {
        "m": "SKIP_ONCE",
        "sack_bitmap": "0b110110",
        "mpr": "8",
        "ack_psn_offset": -2,
        "sack_offset": "-1",
    }
    data = {"headers": [{"header": "seth", **fields}], "icrc": None}
    seth = complete(from_json(data))["seth"]
    assert (seth["m"], seth["sack_bitmap"], seth["mpr"]) == (1, 0x36, 8)
    assert (seth["ack_psn_offset"], seth["sack_offset"]) == (-2, -1)


def with_header(**fields: object) -> dict[str, object]:
    return {"headers": [fields]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "a packet must be an object, got list"),
        ({}, "headers must be a list, got None"),
        ({"headers": [], "start": "udp"}, "start must be ethernet or ip, got 'udp'"),
        ({"headers": [], "payload": "0g"}, "payload must be a string of hexadecimal bytes, got '0g'"),
        ({"headers": [], "icrc": 1 << 32}, "icrc must be between 0 and 0xffffffff, got 4294967296"),
        (with_header(header="meth", psn=1), "headers[0]: fields of meth are rqmsn, msn; got 'psn'"),
        (with_header(header="meth", msn=65536), "headers[0].msn must be between 0 and 0xffff, got 65536"),
        (
            with_header(header="meth", msn="x"),
            "headers[0].msn must be a number or a string such as \"0x1f\", got 'x'",
        ),
        (
            with_header(header="ipv6", source="fd00::g"),
            "headers[0].source must be an IPv6 address, got 'fd00::g'",
        ),
        (
            with_header(header="ethernet", source="02:00"),
            "headers[0].source must be a MAC address of six bytes, got '02:00'",
        ),
        (
            with_header(header="seth", sack_offset=40000),
            "headers[0].sack_offset must be between -32768 and 32767, got 40000",
        ),
    ],
)
def test_messages(data, message):
    with pytest.raises(ValueError) as caught:
        from_json(data)
    assert str(caught.value) == message


def test_unknown_names_list_what_is_allowed():
    with pytest.raises(ValueError, match=r"^keys of a packet are start, trimmed, headers, .*; got 'header'$"):
        from_json({"header": []})
    with pytest.raises(
        ValueError, match=r"^headers\[0\].header must be one of ethernet, ipv6, .*, got 'bht'$"
    ):
        from_json(with_header(header="bht"))
    with pytest.raises(ValueError, match=r"^bth.opcode is missing$"):
        complete(from_json(with_header(header="bth")))
    with pytest.raises(ValueError, match=r"^an ICRC needs IP, UDP and BTH headers, got bth$"):
        complete(from_json(with_header(header="bth", opcode=0xD1)))


def test_description_names_offsets_values_and_problems():
    vector = bytes.fromhex(load("packets.json")["packets"]["write_only_tseth"]["hex"])
    text = describe(decode(vector))
    assert "   48  bth       opcode=0xca (WRITE_ONLY)" in text
    assert "traffic_class=0x22 (DSCP TRIMMABLE, ECT0)" in text
    assert "  100  icrc      bea8b737 right" in text
    wrong = describe(decode(vector[:-1] + b"\0"))
    assert "       problem at byte 100: ICRC must be bea8b737, got bea8b700" in wrong
    assert "begin of reth" in describe(decode(trim(frame_of(Opcode.WRITE_ONLY), 128, True, False)))
