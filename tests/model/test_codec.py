"""The model's codec against the general one.

Sweep: every opcode, with and without TSETH, plain and SRv6, payloads around the pad; frames cut at every
    length, with every header byte flipped, trimmed to every size.
Stimulus: packets with pseudo-random fields; frames made by ``mrc_host.packets``.
Checks: bytes equal to the general codec's; fields equal after decoding; reasons by the rules of a port.
Timing: none.
"""

import random

import pytest

from mrc_host.fabric.packet import Packet
from mrc_host.fabric.usid import QpTemplate
from mrc_host.model.decoder import FrameDecoder
from mrc_host.model.encoder import FrameEncoder
from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import ModelPacket
from mrc_host.model.shell import Settings
from mrc_host.model.templates import Template
from mrc_host.nic.path import Path
from mrc_host.packets.codec import build, decode
from mrc_host.packets.trim import set_dscp, trim
from mrc_rtl import wire
from mrc_rtl.records import PortCounter, Trimmed
from mrc_rtl.wire import Opcode

OWN, PEER = wire.inner_address(1), wire.inner_address(2)
PLANE = 1
OWN_USID, PEER_USID = 0x0801, 0x0803
EV = wire.ev_value(PLANE, 5, 0x1234)
OUTER = QpTemplate(
    wire.outer_address([0x0002, OWN_USID]),
    wire.outer_address([0x0002, 0x0400, 0x0004, PEER_USID]),
    (0, 1, 2, 3),
    1,
)
OPCODES = list(Opcode)


def template(srv6, source=OWN, destination=PEER):
    path = Path(source, destination, OUTER if srv6 else None)
    return Template(path.template_words(destination_qpn=0x123, partition_key=0x8001, udp_port=4971))


def settings(host):
    result = Settings(2)
    result.own_address = OWN if host == 1 else PEER
    result.own_usid = OWN_USID if host == 1 else PEER_USID
    result.mac = [0x020000000001, 0x020000010001]
    result.next_hop_mac = [0x02FF00000001, 0x02FF00010001]
    return result


def sample(opcode, seed=0, length=37, stamped=True):
    """A packet whose fields that the opcode carries are all different from zero."""
    draw = random.Random(f"{opcode} {seed}").randrange
    packet = ModelPacket(int(opcode), 0, draw(1 << 24))
    packet.ev = EV
    packet.traffic_class = int(wire.Dscp.TRIMMABLE) << 2 | 2
    packet.ack_request, packet.retransmission = draw(2) == 1, draw(2) == 1
    if wire.is_write(opcode):
        packet.timestamped = stamped
        packet.timestamp = draw(1 << 16) if stamped else 0
        packet.receive_number, packet.message_number = draw(1 << 16), draw(1 << 16)
        packet.address, packet.remote_key, packet.message_length = draw(1 << 64), draw(1 << 32), draw(1 << 32)
        packet.immediate = draw(1 << 32) if wire.has_immediate(opcode) else 0
        packet.payload = bytes(draw(256) for _ in range(length))
        packet.length = length
    elif opcode == Opcode.SACK:
        packet.mark, packet.entropy, packet.mpr_units = draw(3), draw(1 << 32), draw(256)
        packet.source_context, packet.destination_context = draw(1 << 16), draw(1 << 16)
        packet.cumulative_psn = packet.psn
        packet.acknowledged_psn = packet.psn + draw(1 << 16) - 0x8000 & 0xFFFFFF
        packet.sack_base, packet.sack_bitmap = packet.psn + draw(4096) - 64 & 0xFFFFFF, draw(1 << 64)
        packet.timestamp, packet.out_of_order = draw(1 << 16), draw(1 << 15)
        packet.restore, packet.penalty, packet.received_units = True, draw(128), draw(1 << 24)
    elif opcode == Opcode.ACKNOWLEDGE:
        packet.syndrome, packet.message_number = draw(256), draw(1 << 24)
    elif opcode == Opcode.NACK:
        packet.reason, packet.entropy, packet.acknowledged_psn = 7, draw(1 << 32), draw(1 << 24)
        packet.source_context, packet.destination_context = draw(1 << 16), draw(1 << 16)
        packet.timestamp = draw(1 << 16)
    elif opcode == Opcode.PROBE:
        packet.probe_id, packet.source_context = draw(1 << 16), draw(1 << 16)
        packet.destination_context = draw(1 << 16)
        packet.timestamped, packet.timestamp = True, draw(1 << 16)
    elif opcode == Opcode.ENDPOINT_REQUEST:
        packet.operation, packet.port_mask = 1, draw(1 << 32)
        packet.timestamped, packet.timestamp = True, draw(1 << 16)
    else:
        packet.operation, packet.timestamp = 1, draw(1 << 16)
    return packet


def headers_of(packet):
    """The same packet as headers of the general codec, behind BTH."""
    opcode, stamp = Opcode(packet.opcode), {"tx_timestamp": packet.timestamp, "ftype": 1}
    if wire.is_write(opcode):
        parts = [("meth", {"rqmsn": packet.receive_number, "msn": packet.message_number})]
        parts += [("tseth", stamp)] if packet.timestamped else []
        parts.append(
            ("reth", {"va": packet.address, "rkey": packet.remote_key, "dma_len": packet.message_length})
        )
        return parts + ([("immdt", {"imm": packet.immediate})] if wire.has_immediate(opcode) else [])
    contexts = {"spdcid": packet.source_context, "dpdcid": packet.destination_context}
    if opcode is Opcode.SACK:
        cumulative = packet.cumulative_psn

        def offset(psn):
            return (psn - cumulative + (1 << 23) & 0xFFFFFF) - (1 << 23)

        seth = {
            "m": packet.mark, "pr": 0, "ack_psn_offset": offset(packet.acknowledged_psn),
            "entropy": packet.entropy, "cack_psn": cumulative, "mpr": packet.mpr_units,
            "sack_offset": offset(packet.sack_base), "sack_bitmap": packet.sack_bitmap, **contexts,
        }  # fmt: skip
        state = {
            "tx_timestamp": packet.timestamp, "ooo_count": packet.out_of_order,
            "restore_cwnd": packet.restore, "rcv_cwnd_pen": packet.penalty,
            "rcvd_bytes": packet.received_units,
        }  # fmt: skip
        return [("seth", seth), ("cc_state", state)]
    if opcode is Opcode.ACKNOWLEDGE:
        return [("aeth", {"syndrome": packet.syndrome, "msn": packet.message_number})]
    if opcode is Opcode.NACK:
        neth = {
            "nack_reason": packet.reason, "entropy": packet.entropy, "nack_psn": packet.acknowledged_psn,
            "tx_timestamp": packet.timestamp, **contexts,
        }  # fmt: skip
        return [("neth", neth)]
    if opcode is Opcode.PROBE:
        return [("peth", {"probe_id": packet.probe_id, **contexts, **stamp})]
    if opcode is Opcode.ENDPOINT_REQUEST:
        return [("erth", {"op": packet.operation, "port_status_mask": packet.port_mask, **stamp})]
    return [("eeth", {"op": packet.operation, "tx_timestamp": packet.timestamp})]


def reference(packet, srv6):
    """The frame by the general codec."""
    common = {"traffic_class": packet.traffic_class, "flow_label": EV & 0xFFFF}
    endpoint = packet.opcode in (Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE)
    outer = {
        "source": wire.outer_address([0x1002, OWN_USID | 0x1000]),
        "destination": wire.outer_address([0x1002, 0x1405, 0x1004, PEER_USID | 0x1000]),
    }
    bth = {
        "opcode": packet.opcode, "pkey": 0x8001, "dest_qp": 2 if endpoint else 0x123, "psn": packet.psn,
        "ack_req": packet.ack_request, "rtx": packet.retransmission,
        "ts": packet.timestamped and wire.is_write(packet.opcode),
    }  # fmt: skip
    return build(
        ("ethernet", {"destination": 0x02FF00010001, "source": 0x020000010001}),
        *([("ipv6", {**common, **outer})] if srv6 else []),
        ("ipv6", {**common, "source": OWN, "destination": PEER}),
        ("udp", {"source_port": EV >> 16, "destination_port": 4971}),
        ("bth", bth),
        *headers_of(packet),
        payload=packet.payload,
    )


def encoded(packet, srv6=True, **options):
    return FrameEncoder(PLANE, settings(1), ModelOptions(**options)).encode(packet, template(srv6))


def arriving(frame, srv6=True):
    """The frame as it reaches the peer: the path is used up."""
    if not srv6:
        return frame
    end = wire.outer_address([PEER_USID | PLANE << 12]).to_bytes(16, "big")
    return frame[:38] + end + frame[54:]


def decoder(mtu=4096, **options):
    return FrameDecoder(PLANE, settings(2), ModelOptions(**options), mtu)


def fields(packet):
    sealed = {"full_size", "bth_at", "source_host", "destination_host"}
    names = set(dir(ModelPacket)) - set(dir(Packet)) - sealed
    values = {name: getattr(packet, name) for name in names if not name.startswith("_")}
    return {name: value for name, value in values.items() if not callable(value)}


@pytest.mark.parametrize("srv6", [False, True])
@pytest.mark.parametrize("opcode", OPCODES)
def test_frames_are_those_of_the_general_codec(opcode, srv6):
    for seed in range(20):
        packet = sample(opcode, seed, length=seed + 1, stamped=seed % 3 != 0)
        frame = encoded(packet, srv6)
        assert frame == reference(packet, srv6)
        assert decode(frame).icrc_ok


@pytest.mark.parametrize("srv6", [False, True])
@pytest.mark.parametrize("opcode", OPCODES)
def test_decoding_gives_back_what_was_encoded(opcode, srv6):
    for seed in range(20):
        packet = sample(opcode, seed, length=seed, stamped=seed % 3 != 0)
        found = decoder().decode(arriving(encoded(packet, srv6), srv6))
        assert found is not None
        endpoint = opcode in (Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE)
        expected = {
            **fields(packet), "qp": -1, "plane": PLANE, "source": OWN, "destination": PEER,
            "partition_key": 0x8001, "destination_qpn": 2 if endpoint else 0x123,
            "outer_source": wire.outer_address([0x1002, OWN_USID | 0x1000]) if srv6 else 0,
            "outer_destination": wire.outer_address([PEER_USID | 0x1000]) if srv6 else 0,
        }  # fmt: skip
        assert fields(found) == expected


def test_far_duplicates_saturate_the_offset_and_probes_replace_it():
    packet = sample(Opcode.SACK)
    packet.cumulative_psn = packet.psn = packet.sack_base = 0x800000
    packet.acknowledged_psn = 0x100000
    found = decoder().decode(arriving(encoded(packet)))
    assert found.acknowledged_psn == 0x800000 - 0x8000
    packet.probe, packet.probe_id = True, 0xBEEF
    found = decoder().decode(arriving(encoded(packet)))
    assert (found.probe, found.probe_id, found.acknowledged_psn) == (True, 0xBEEF, 0x800000)


def test_an_explicit_outer_destination_replaces_the_template():
    packet = sample(Opcode.WRITE_ONLY)
    packet.outer_destination = wire.outer_address([5, 6])
    headers = decode(encoded(packet)).headers
    assert headers[1].fields["destination"] == wire.outer_address([5, 6])
    assert headers[1].fields["source"] == wire.outer_address([0x1002, OWN_USID | 0x1000])
    packet.segment = wire.outer_address([7])
    found = decode(encoded(packet))
    assert [name for name, _ in found.headers[:5]] == ["ethernet", "ipv6", "srh", "ipv6", "udp"]
    assert (found["srh"]["segment"], found.icrc_ok) == (packet.segment, True)


@pytest.mark.parametrize("srv6", [False, True])
def test_endpoint_operations_need_no_template(srv6):
    packet = sample(Opcode.ENDPOINT_REQUEST)
    packet.destination = PEER
    if srv6:
        packet.outer_source = wire.outer_address([1, 2])
        packet.outer_destination = wire.outer_address([PEER_USID | 0x1000])
    frame = FrameEncoder(PLANE, settings(1), ModelOptions()).encode(packet, None)
    found = decoder().decode(frame)
    assert (found.source, found.destination, found.destination_qpn) == (OWN, PEER, 2)
    assert (found.outer_source, found.psn, found.ev) == (packet.outer_source, packet.psn, EV)


def test_options_of_the_wire_format():
    packet = sample(Opcode.WRITE_ONLY)
    swapped = arriving(encoded(packet, source_port_half="lower", timestamp_resolution=1))
    assert decode(swapped)["udp"]["source_port"] == EV & 0xFFFF
    assert decode(swapped)["tseth"]["tsr"] == 1
    assert decoder(source_port_half="lower").decode(swapped).ev == EV
    judge = decoder(udp_ports="4791")
    assert judge.decode(swapped) is None and judge.reason == PortCounter.DROP_NOT_MRC
    response = encoded(sample(Opcode.ENDPOINT_RESPONSE), endpoint_op_shift=4)
    assert response[114 + 1] >> 4 & 3 == 1
    assert decoder(endpoint_op_shift=4).decode(arriving(response)).operation == 1
    assert decode(encoded(sample(Opcode.SACK), cc_flags=5))["seth"]["cc_fl"] == 5
    request = sample(Opcode.ENDPOINT_REQUEST)
    request.timestamped = False
    frame = arriving(encoded(request))
    assert not decoder().decode(frame).timestamped
    assert decoder(timestamp_always_valid=True).decode(frame).timestamped
    cut = arriving(trim(encoded(packet), 128, True, False))
    assert decoder().decode(cut).trimmed
    judge = decoder(trimmed_length="headers")
    assert judge.decode(cut) is None and judge.reason == PortCounter.TRIM_IGNORED


def refusal(frame, **options):
    judge = decoder(options.pop("mtu", 4096))
    assert judge.decode(frame, **options) is None
    return PortCounter(judge.reason)


def changed(frame, offset, value):
    return frame[:offset] + bytes([value]) + frame[offset + 1 :]


@pytest.mark.parametrize("srv6", [False, True])
def test_each_reason_of_a_port(srv6):
    packet = sample(Opcode.WRITE_ONLY, length=40)
    frame = arriving(encoded(packet, srv6), srv6)
    inner = 54 if srv6 else 14
    bth = inner + 48
    assert refusal(frame, bad_fcs=True) is PortCounter.DROP_FRAME_ERROR
    assert refusal(frame[:13]) is PortCounter.DROP_FRAME_ERROR
    assert refusal(changed(frame, 12, 0x81)) is PortCounter.DROP_ETHERTYPE
    assert refusal(frame[:12] + b"\x08\x00" + frame[14:]) is PortCounter.DROP_IPV4
    assert refusal(changed(frame, inner, 0x40)) is PortCounter.DROP_NOT_MRC
    assert refusal(changed(frame, inner + 6, 6)) is PortCounter.DROP_NOT_MRC
    assert refusal(changed(frame, inner + 42, 0)) is PortCounter.DROP_NOT_MRC
    assert refusal(changed(frame, inner + 39, 7)) is PortCounter.DROP_ADDRESS
    if srv6:
        assert refusal(changed(frame, 20, 59)) is PortCounter.DROP_NOT_MRC
        assert refusal(changed(frame, 43, 0x77)) is PortCounter.DROP_ADDRESS
        assert refusal(changed(frame, 53, 1)) is PortCounter.DROP_ADDRESS
    assert refusal(frame[:-1]) is PortCounter.DROP_TRUNCATED
    assert refusal(frame + b"\0") is PortCounter.DROP_LENGTH
    assert refusal(changed(frame, inner + 45, frame[inner + 45] ^ 4)) is PortCounter.DROP_LENGTH
    assert refusal(frame, mtu=32) is PortCounter.DROP_LENGTH
    assert refusal(changed(frame, bth + 11, frame[bth + 11] ^ 1)) is PortCounter.DROP_ICRC
    headers = [(n, {**f, "opcode": 0xC1} if n == "bth" else f) for n, f in decode(frame).headers]
    assert refusal(build(*headers, payload=packet.payload)) is PortCounter.DROP_OPCODE


def test_a_frame_cut_anywhere_is_refused():
    for opcode in OPCODES:
        frame = arriving(encoded(sample(opcode)))
        for size in range(len(frame)):
            reason = refusal(frame[:size])
            assert reason is (PortCounter.DROP_FRAME_ERROR if size < 14 else PortCounter.DROP_TRUNCATED)


def test_a_flipped_bit_is_refused_unless_no_check_covers_it():
    packet = sample(Opcode.WRITE_ONLY_IMM)
    frame = arriving(encoded(packet))
    # MAC addresses, the outer header's length, hop limits and source, flow labels, UDP checksum, BTH byte 4.
    free = {*range(12), 18, 19, 21, *range(22, 38), 61, 100, 101, 106}
    for offset in range(len(frame)):
        for bit in range(8):
            judge = decoder()
            found = judge.decode(changed(frame, offset, frame[offset] ^ 1 << bit))
            if found is not None and not found.trimmed:
                label = offset in (14, 15, 16, 17, 54, 55, 56, 57)
                assert offset in free or label, f"byte {offset} bit {bit}"
                assert found.payload == packet.payload and found.psn == packet.psn


@pytest.mark.parametrize("last_hop", [False, True])
@pytest.mark.parametrize("size", [118, 121, 122, 128, 138, 142, 206])
def test_trimmed_writes(size, last_hop):
    packet = sample(Opcode.WRITE_LAST_IMM, length=1024)
    found = decoder().decode(arriving(trim(encoded(packet), size, size % 2 == 0, last_hop)))
    assert found.trimmed == (Trimmed.LAST_HOP if last_hop else Trimmed.FABRIC)
    assert (found.psn, found.ev, found.destination_qpn) == (packet.psn, EV, 0x123)
    assert (found.receive_number, found.message_number) == (packet.receive_number, packet.message_number)
    assert (found.timestamped, found.timestamp) == ((True, packet.timestamp) if size >= 122 else (False, 0))
    assert (found.payload, found.length) == (b"", 0)


def test_other_trimmed_packets_are_ignored():
    frame = arriving(encoded(sample(Opcode.PROBE)))
    assert refusal(set_dscp(frame, wire.Dscp.TRIMMED)) is PortCounter.TRIM_IGNORED
    write = set_dscp(arriving(encoded(sample(Opcode.WRITE_FIRST))), wire.Dscp.TRIMMED)
    for size in range(14, 118):
        expected = PortCounter.DROP_TRUNCATED if size < 16 else PortCounter.TRIM_IGNORED
        assert refusal(write[:size]) is expected


@pytest.mark.parametrize("header", ["outer", "inner"])
def test_congestion_marks_on_either_header(header):
    frame = arriving(encoded(sample(Opcode.WRITE_ONLY)))
    at = 15 if header == "outer" else 55
    assert not decoder().decode(frame).marked
    assert decoder().decode(changed(frame, at, frame[at] | 0x30)).marked


def test_a_segment_routing_header_is_skipped():
    packet = sample(Opcode.WRITE_ONLY, length=40)
    headers = decode(arriving(encoded(packet))).headers
    outer = {**headers[1].fields, "next_header": 43}
    outer["payload_length"] += 24
    segment = {"next_header": 41, "segment": PEER, "segments_left": 0}
    frame = build(headers[0], ("ipv6", outer), ("srh", segment), *headers[2:], payload=packet.payload)
    assert decoder().decode(frame).payload == packet.payload
    for offset, value in ((54, 17), (55, 4), (56, 3)):
        assert refusal(changed(frame, offset, value)) is PortCounter.DROP_NOT_MRC
