"""The commands ``packet`` and ``ev``.

Sweep: every subcommand and option; wrong use.
Stimulus: the golden vectors, files in a temporary directory.
Checks: output, exit codes, messages.
Timing: none.
"""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from mrc_host.packets.commands import ev, packet
from mrc_host.packets.pcapng import PcapngWriter
from mrc_host.packets.trim import trim
from mrc_rtl.wire import Opcode
from packets.strategies import VECTORS, frame_of, load

PACKETS = load("packets.json")["packets"]


def run(group, *arguments: str, code: int = 0, stdin: str | None = None) -> str:
    result = CliRunner().invoke(group, arguments, input=stdin)
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize("name", PACKETS)
def test_json_and_back(tmp_path, name):
    output = run(packet, "decode", PACKETS[name]["hex"], "--json")
    data = json.loads(output)
    assert data["icrc_ok"] is True
    file = tmp_path / "packet.json"
    file.write_text(output)
    assert run(packet, "encode", str(file)).strip() == PACKETS[name]["hex"]
    del data["icrc"]
    for header in data["headers"]:
        for key in ("payload_length", "length", "next_header", "pad_count"):
            header.pop(key, None)
    data["padding"] = ""
    file.write_text(json.dumps(data))
    assert run(packet, "encode", str(file)).strip() == PACKETS[name]["hex"]


def test_text():
    output = run(packet, "decode", PACKETS["sack"]["hex"])
    assert "opcode=0xdc (SACK)" in output
    assert "sack_bitmap=0x36" in output
    assert "2eecce6d right" in output


@pytest.mark.parametrize("form", ["0x{}", "{}\n", " {} "])
def test_forms_of_hex(form):
    assert "SACK" in run(packet, "decode", form.format(PACKETS["sack"]["hex"]))


def test_standard_input_with_colons():
    text = bytes.fromhex(PACKETS["sack"]["hex"]).hex(":", 4)
    assert "SACK" in run(packet, "decode", "-", stdin=text + "\n")


def test_start_can_be_forced():
    output = run(packet, "decode", PACKETS["sack"]["hex"], "--start", "ethernet")
    assert "problem at byte 12: ethertype must be 0x86dd or 0x800" in output


def test_capture(tmp_path):
    path = tmp_path / "a.pcapng"
    write = frame_of(Opcode.WRITE_ONLY)
    with PcapngWriter(path, ["h1.p0", "h1.p1"]) as writer:
        writer.write(1_500_000, write, 0)
        writer.write(2_500_000, trim(write, 128, True, False), 1, comment="trimmed at t1.1")
        writer.write(3_500_000, write[:-1], 1)
    lines = run(packet, "decode", "--pcap", str(path)).splitlines()
    assert len(lines) == 4
    assert "1.500000 us h1.p0" in lines[0]
    assert "WRITE_ONLY       qp 0x000123 psn 0xabcdef ev 0xc0010000 64 B" in lines[0]
    assert lines[1].endswith("trimmed [trimmed at t1.1]")
    assert "problem at byte 18: payload_length states 1 bytes more than are present" in lines[2]
    assert lines[3] == "3 frames"
    objects = [json.loads(line) for line in run(packet, "decode", "--pcap", str(path), "--json").splitlines()]
    assert [item["icrc_ok"] for item in objects] == [True, None, False]
    assert objects[1]["comments"] == ["trimmed at t1.1"]
    assert [item["time_us"] for item in objects] == [1.5, 2.5, 3.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("decode",), "give either HEX or --pcap FILE, not both and not neither"),
        (("decode", "62zz"), "HEX must be hexadecimal digits, got 'z' at digit 2."),
        (("decode", "622"), "HEX must be whole bytes (an even number of digits), got 3 digits"),
        (("encode", "missing.json"), "File 'missing.json' does not exist."),
        (
            ("decode", "--pcap", str(VECTORS / "packets.json")),
            "file must be pcapng or pcap, got magic 7b0a2022",
        ),
    ],
)
def test_wrong_use(arguments, message):
    assert message in run(packet, *arguments, code=2)


def test_encode_names_file_and_place(tmp_path):
    file = tmp_path / "packet.json"
    file.write_text('{"headers": [\n  {"header": }]}')
    assert "line 2, column 14: JSON expected, Expecting value" in run(packet, "encode", str(file), code=2)
    file.write_text('{"headers": [{"header": "meth", "msn": 70000}]}')
    assert "headers[0].msn must be between 0 and 0xffff, got 70000" in run(
        packet, "encode", str(file), code=2
    )
    file.write_bytes(b"\xff")
    assert "JSON must be UTF-8 text, invalid start byte at byte 0" in run(packet, "encode", str(file), code=2)


@pytest.mark.parametrize("entry", load("ev_expansion.json")["profiles"], ids=lambda entry: entry["profile"])
def test_expand(tmp_path, entry):
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(entry))
    values = [vector["ev"] for vector in entry["vectors"]]
    lines = run(ev, "expand", "--profile", str(file), *values).splitlines()
    assert lines == [vector["expanded"] for vector in entry["vectors"]]


def test_expand_from_a_file_of_several():
    file = str(VECTORS / "ev_expansion.json")
    assert run(ev, "expand", "--profile", file, "--name", "stev_nibbles", "a4") == "010a0204\n"
    output = run(ev, "expand", "--profile", file, "a4", code=2)
    assert "--name must be one of stev_16_16, stev_32, stev_nibbles" in output


def test_expand_wrong_use(tmp_path):
    file = tmp_path / "profile.json"
    file.write_text('{"format_widths": [8], "fields": [{"width": 9}]}')
    output = run(ev, "expand", "--profile", str(file), "00", code=2)
    assert "fields[0].width must be between 1 and the format field's 8 bits, got 9" in output
    file.write_text('{"format_widths": [8], "fields": [{"width": 8, "mask": 255}]}')
    output = run(ev, "expand", "--profile", str(file), "f", code=2)
    assert "ev must have at least 8 bits for profile, got 4" in output
