"""The ICRC against an independent implementation.

Sweep: plain IPv4 and IPv6, payload sizes 1 to 65 and 4096, every flag bit of BTH byte 8.
Stimulus: packets of the codec with random content.
Checks: the four ICRC bytes equal those scapy.contrib.roce computes; the golden vectors hold without scapy.
Timing: none. Skipped, with the reason printed, where scapy is absent.
"""

from __future__ import annotations

import random
import warnings

import pytest

from mrc_host.packets.codec import build, decode
from mrc_host.packets.icrc import icrc_bytes, icrc_value, ipv4_checksum
from packets.strategies import load


def scapy_icrc(packet: bytes, version: int) -> bytes:
    """Have scapy take the packet apart, forget its ICRC, and build it again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scapy warns of its own dependencies
        pytest.importorskip("scapy", reason="scapy is not installed: no second opinion on the ICRC")
        from scapy.contrib.roce import BTH
        from scapy.layers.inet import IP
        from scapy.layers.inet6 import IPv6

        dissected = (IPv6 if version == 6 else IP)(packet)
        dissected[BTH].icrc = None
        return bytes(dissected)[-4:]


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 63, 64, 65, 4096])
def test_equals_scapy(version, size):
    source = random.Random(size * version)
    name = f"ipv{version}"
    width = 32 if version == 4 else 128
    ip = {
        "traffic_class": source.getrandbits(8),
        "source": source.getrandbits(width),
        "destination": source.getrandbits(width),
    }
    if version == 6:
        ip["flow_label"] = source.getrandbits(20)
    packet = build(
        (name, ip),
        ("udp", {"source_port": source.getrandbits(16), "destination_port": 4791}),
        ("bth", {"opcode": 0xCA, "psn": source.getrandbits(24), "ack_req": 1, "rtx": 1, "dest_qp": 0x12}),
        ("meth", {"msn": source.getrandbits(16)}),
        ("tseth", {"tx_timestamp": source.getrandbits(16)}),
        ("reth", {"va": source.getrandbits(64), "dma_len": size}),
        payload=source.randbytes(size),
    )
    assert scapy_icrc(packet, version) == packet[-4:]
    assert decode(packet).icrc_ok is True


@pytest.mark.parametrize("name", load("packets.json")["packets"])
def test_golden(name):
    data = bytes.fromhex(load("packets.json")["packets"][name]["hex"])
    assert icrc_bytes(data, 0, 40, len(data) - 4) == data[-4:]


def test_messages():
    with pytest.raises(
        ValueError, match=r"^ICRC needs the bytes up to the end of the BTH at 60, got 10 bytes$"
    ):
        icrc_value(bytes(10), 0, 40, 10)
    with pytest.raises(ValueError, match=r"^IP version must be 4 or 6, got 0$"):
        icrc_value(bytes(80), 0, 40, 80)


def test_ipv4_checksum_of_the_textbook_header():
    header = bytes.fromhex("45000073000040004011b861c0a80001c0a800c7")
    assert ipv4_checksum(header) == 0xB861
