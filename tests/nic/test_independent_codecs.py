"""Frames of another encoder are accepted, and another decoder reads what a NIC sends.

Sweep: both kinds of NIC; every write opcode and every kind of feedback, plain, SRv6 and with a routing
    header, with and without TSETH; payloads around the pad.
Stimulus: frames built by scapy, whose MRC headers are written down here from the specification's tables;
    what the NIC sends while it exchanges messages, answers duplicates and trims, and refuses writes.
Checks: one outcome each, memory byte for byte; tshark finds no malformed field and no expert error in any
    frame, and reads addresses, traffic classes, port, lengths and BTH as our codec does.
Timing: bounded by ``fuzz_bed``. Skipped, with the reason printed, where scapy or tshark is absent.
"""

import json
import shutil
import subprocess
import warnings

import pytest
from attacks import Attack, Kit, forged_trim, hostile, replay, stale_psn, wrong_r_key
from fuzz_bed import FIRST_PSN, KINDS, TARGET
from fuzz_craft import ATTACKER, NIC, PEER, Hostile
from fuzz_play import Play

from mrc_host.packets.codec import decode
from mrc_host.packets.pcapng import PcapngWriter
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.records import PortCounter

# -- an encoder that is not ours -------------------------------------------------------------------------

OUR_IPV6 = "fd00::1"
ATTACKER_IPV6 = "fd00:0:0:2::1"
HOST_ON_PLANE = ("5f00:0:801::", "5f00:0:1801::")
FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM = range(0xC6, 0xCC)
ACK, SACK, NACK = 0xD1, 0xDC, 0xDD
SIZES = (1, 2, 3, 4, 5, 64, 1023, 4096)


@pytest.fixture(scope="module")
def scapy():
    """The layers of scapy, and MRC's headers as scapy packets (protocol.md 1.3 to 1.11)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scapy warns of its own dependencies
        pytest.importorskip("scapy", reason="scapy is not installed: no second encoder")
        from scapy import fields
        from scapy.contrib.roce import BTH
        from scapy.layers.inet import UDP
        from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
        from scapy.layers.l2 import Ether
        from scapy.packet import Packet, Raw

    class Layers:
        ether, ipv6, routing, udp, bth, raw = Ether, IPv6, IPv6ExtHdrSegmentRouting, UDP, BTH, Raw

    def header(name, *described):
        return type(name, (Packet,), {"name": name, "fields_desc": list(described)})

    bits = fields.BitField
    Layers.meth = header("METH", bits("rqmsn", 0, 16), bits("msn", 0, 16))
    Layers.tseth = header(
        "TSETH", bits("time", 0, 16), bits("tsr", 0, 1), bits("res", 0, 11), bits("ftype", 1, 4)
    )
    Layers.reth = header("RETH", bits("va", 0, 64), bits("rkey", 0, 32), bits("length", 0, 32))
    Layers.immdt = header("ImmDt", bits("imm", 0, 32))
    Layers.aeth = header("AETH", bits("syndrome", 0x1F, 8), bits("msn", 0, 24))
    Layers.seth = header(
        "SETH", bits("type", 0, 4), bits("nxt", 0, 5), bits("m", 0, 2), bits("r", 0, 3), bits("pr", 0, 1),
        bits("r2", 0, 1), bits("offset", 0, 16), bits("entropy", 0, 32), bits("spdcid", 0, 16),
        bits("dpdcid", 0, 16), bits("res", 0, 8), bits("cack", 0, 24), bits("cc", 0, 8),
        bits("mpr", 0, 8), bits("sack_offset", 0, 16), bits("bitmap", 0, 64), bits("time", 0, 16),
        bits("ooo", 0, 16), bits("restore", 0, 1), bits("penalty", 0, 7), bits("rcvd", 0, 24),
    )  # fmt: skip
    Layers.neth = header(
        "NETH", bits("first", 0, 16), bits("reason", 0, 8), bits("vendor", 0, 8), bits("entropy", 0, 32),
        bits("spdcid", 0, 16), bits("dpdcid", 0, 16), bits("res", 0, 8), bits("psn", 0, 24),
        bits("cc_type", 2, 4), bits("cc_fl", 0, 4), bits("res2", 0, 8), bits("time", 0, 16),
    )  # fmt: skip
    return Layers


def below(scapy, plane, form, dscp):
    """Ethernet to UDP."""
    stack = scapy.ether(dst=f"02:00:00:0{plane}:00:00", src=f"02:00:00:0{plane}:00:02")
    if form != "plain":
        stack /= scapy.ipv6(
            src=f"5f00:0:{0x1001 if plane else 1:x}::", dst=HOST_ON_PLANE[plane], tc=dscp << 2
        )
    if form == "routed":
        stack /= scapy.routing(addresses=[OUR_IPV6], segleft=1, lastentry=0)
    stack /= scapy.ipv6(src=ATTACKER_IPV6, dst=OUR_IPV6, tc=dscp << 2 | 2, fl=3)
    return stack / scapy.udp(sport=0xC001 | plane << 8, dport=4791, chksum=0)


def scapy_write(scapy, plane, form, opcode, psn, region, at, content, stamped):
    pad = -len(content) % 4
    flags = 0x10 if stamped else 0
    frame = below(scapy, plane, form, 8)
    frame /= scapy.bth(opcode=opcode, padcount=pad, dqpn=QP_NUMBER_BASE + TARGET, psn=psn, resv7=flags)
    frame /= scapy.meth(rqmsn=0, msn=1)
    if stamped:
        frame /= scapy.tseth(time=0x1234)
    frame /= scapy.reth(va=region.address + at, rkey=region.rkey, length=len(content))
    if opcode in (LAST_IMM, ONLY_IMM):
        frame /= scapy.immdt(imm=0xCAFE)
    return Hostile(plane, bytes(frame / scapy.raw(content + bytes(pad))))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_frames_of_scapy_are_accepted(kind, scapy):
    play = Play(kind)
    region, frames, expected = play.bed.regions["target"], [], play.bed.target_buffer.data.copy()
    at = 1
    for number, size in enumerate(SIZES):
        form = ("plain", "srv6", "routed")[number % 3]
        content = bytes((7 * number + place) & 0xFF for place in range(size))
        psn = FIRST_PSN + number & 0xFFFFFF
        opcode = (ONLY, FIRST, MIDDLE, LAST)[number % 4]
        frames.append(scapy_write(scapy, number % 2, form, opcode, psn, region, at, content, number % 2 == 0))
        expected[at : at + size] = list(content)
        at += size + 3
    play.batch(frames)
    assert (
        play.sent == play.total[PortCounter.RX_FRAMES] - sum(map(len, play.bed.delivered_good)) == len(SIZES)
    )
    assert (play.bed.target_buffer.data == expected).all()
    assert not any(value for outcome, value in play.total.items() if PortCounter.DUPLICATE <= outcome != 3)
    play.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_immediates_and_feedback_of_scapy_are_accepted(kind, scapy):
    play = Play(kind)
    region = play.bed.regions["target"]
    qpn = QP_NUMBER_BASE + TARGET
    write = scapy_write(scapy, 0, "srv6", ONLY_IMM, FIRST_PSN, region, 40, b"immediate", True)
    ends = [
        (SACK, scapy.seth(offset=0, cack=8, sack_offset=1, bitmap=0, mpr=1, entropy=0xC0010000)),
        (NACK, scapy.neth(reason=1, psn=10, entropy=0xC0010000)),
        (ACK, scapy.aeth(msn=0)),
    ]
    frames = [write]
    for plane, form in ((0, "plain"), (1, "srv6"), (0, "routed")):
        for opcode, end in ends:
            head = below(scapy, plane, form, 46) / scapy.bth(opcode=opcode, dqpn=qpn, psn=8)
            frames.append(Hostile(plane, bytes(head / end)))
    completions = []
    poll = play.bed.target_queue.poll
    play.bed.target_queue.poll = lambda limit: completions.extend(poll(limit)) or []
    play.batch(frames)
    assert play.sent == len(frames)
    assert [item.immediate for item in completions if item.opcode.name == "RECEIVE_IMM"] == [0xCAFE]
    assert play.bed.target_buffer.data[40:49].tobytes() == b"immediate"
    assert play.bed.sent
    play.close()


# -- a decoder that is not ours --------------------------------------------------------------------------

FIELDS = (
    "_ws.malformed", "_ws.expert.severity", "_ws.expert.message", "eth.type", "ipv6.src", "ipv6.dst",
    "ipv6.tclass", "udp.srcport", "udp.dstport", "udp.length", "infiniband.bth.opcode",
    "infiniband.bth.padcnt", "infiniband.bth.p_key", "infiniband.bth.destqp", "infiniband.bth.psn",
)  # fmt: skip
ERROR_SEVERITY = 0x00800000
"""Expert items of this severity and above: PI_ERROR of Wireshark."""


def tshark(path):
    """Every frame of a capture, as fields with a list of values each."""
    program = shutil.which("tshark")
    if program is None:
        pytest.skip("tshark is not installed: no second decoder (apt-get install tshark)")
    # RoCEv2 sends no UDP checksum, also over IPv6 (RFC 6936).
    command = [program, "-n", "-r", str(path), "-T", "json", "-o", "udp.ignore_ipv6_zero_checksum:TRUE"]
    for name in FIELDS:
        command += ["-e", name]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    return [item["_source"]["layers"] for item in json.loads(found.stdout)]


def everything_sent(kind):
    """What a NIC sends in an exchange, and in answer to what is wrong."""
    play = Play(kind)
    kit = Kit(play.bed.regions)
    play.batch([])
    for frames in (replay, stale_psn, forged_trim):
        play.batch(hostile(Attack(frames, ()), kit))
    play.batch(hostile(Attack(wrong_r_key, ()), kit)[:1])
    sent = list(play.bed.sent)
    play.close()
    return sent


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_tshark_reads_all_that_is_sent(kind, tmp_path):
    sent = everything_sent(kind)
    packets = [decode(frame.data) for frame in sent]
    assert {"WRITE_FIRST", "WRITE_LAST", "SACK", "ACKNOWLEDGE", "NACK"} <= {p.kind for p in packets}
    path = tmp_path / "sent.pcapng"
    with PcapngWriter(path, ["port 0", "port 1"]) as writer:
        for frame in sent:
            writer.write(frame.time_last_bit_ps, frame.data, frame.port)
    seen = tshark(path)
    assert len(seen) == len(sent)
    hosts = {f"fd00:0:0:{host:x}::1" if host else "fd00::1" for host in (NIC, PEER, ATTACKER)}
    for packet, layers in zip(packets, seen, strict=True):
        assert "_ws.malformed" not in layers, layers
        worst = max((int(value) for value in layers.get("_ws.expert.severity", ["0"])), default=0)
        assert worst < ERROR_SEVERITY, layers
        bth, udp = packet["bth"], packet["udp"]
        assert layers["eth.type"] == ["0x86dd"]
        assert {layers["ipv6.src"][-1], layers["ipv6.dst"][-1]} <= hosts
        assert len(layers["ipv6.dst"]) == 2  # SRv6
        assert [int(value, 0) for value in layers["ipv6.tclass"]] == [
            fields["traffic_class"] for name, fields in packet.headers if name == "ipv6"
        ]
        assert int(layers["udp.srcport"][0]) == udp["source_port"]
        assert int(layers["udp.length"][0]) == udp["length"]
        assert int(layers["infiniband.bth.opcode"][0], 0) == bth["opcode"]
        assert int(layers["infiniband.bth.padcnt"][0], 0) == bth["pad_count"]
        assert int(layers["infiniband.bth.p_key"][0], 0) == bth["pkey"]
        assert int(layers["infiniband.bth.destqp"][0], 0) == bth["dest_qp"]
        assert int(layers["infiniband.bth.psn"][0], 0) == bth["psn"]
