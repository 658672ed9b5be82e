"""Random frames of an attacker, by seed: mutated, random, and rule-breaking with a right ICRC.

Each entry of :data:`BREAKS` breaks one rule of a good frame; then the frame is sealed with a right ICRC. Each
entry of :data:`DAMAGES` changes bytes of a sealed frame as a line or a fool would.
"""

from fuzz_bed import GOOD, IDLE, KEY, RESET, TARGET
from fuzz_craft import (
    ATTACKER,
    ENCAPSULATIONS,
    ETHERTYPE_AT,
    OUTER_AT,
    PEER,
    PLAIN,
    PLANES,
    SRV6,
    Hostile,
    control,
    write,
)

from mrc_rtl import wire
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.wire import AethSyndrome, Dscp, EtherType, NackReason, Opcode

WRITES = tuple(opcode for opcode in Opcode if wire.is_write(opcode))
CONTROLS = tuple(opcode for opcode in Opcode if not wire.is_write(opcode))
EXTENSIONS = (0, 43, 44, 50, 51, 60, 135, 139, 140)
"""IPv6 extension headers (RFC 8200 and IANA): hop by hop, routing, fragment, ESP, AH, destination ..."""
EDGES = (
    0,
    1,
    2,
    63,
    64,
    126,
    127,
    128,
    129,
    255,
    256,
    1000,
    0x7FFFFE,
    0x7FFFFF,
    0x800000,
    0x800001,
    0x800002,
)
SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 31, 63, 64, 255, 256, 1024)
LONGEST = 9000


# -- rules that are broken ---------------------------------------------------------------------------------


def opcode(rng, draft):
    draft.set(draft.bth, wire.BTH, "opcode", rng.randrange(256))


def other_opcode(rng, draft):
    draft.set(draft.bth, wire.BTH, "opcode", rng.choice(tuple(Opcode)))


def pad_count(rng, draft):
    draft.set_bits(draft.bth, wire.BTH, "pad_count", rng.randrange(4))


def stamp_flag(rng, draft):
    draft.set_bits(draft.bth, wire.BTH, "ts", rng.randrange(2))


def reserved_bits(rng, draft):
    draft.data[min(draft.bth + rng.choice((1, 4, 8)), len(draft.data) - 1)] ^= rng.choice((1, 2, 4, 8))


def partition_key(rng, draft):
    draft.set(draft.bth, wire.BTH, "pkey", rng.choice((0, 0x7FFF, 0x8001, rng.getrandbits(16))))


def queue_pair(rng, draft):
    numbers = [0, 1, 2, 3, 0xFF, 0xFFFFFF, rng.getrandbits(24)]
    numbers += [QP_NUMBER_BASE + index for index in (GOOD, IDLE, RESET, 4, 5, 0x100, 0x10000)]
    draft.set(draft.bth, wire.BTH, "dest_qp", rng.choice(numbers))


def psn(rng, draft):
    place = draft.get(draft.bth, wire.BTH, "psn") + rng.choice((-1, 1)) * rng.choice(EDGES)
    draft.set(draft.bth, wire.BTH, "psn", rng.choice((place, rng.getrandbits(24))))


def udp_port(rng, draft):
    ports = (0, 4790, 4792, 4970, 4972, 0xFFFF, rng.getrandbits(16))
    draft.set(draft.udp, wire.UDP, "destination_port", rng.choice(ports))


def udp_length(rng, draft):
    change = rng.choice((-8, -4, -1, 1, 4, 8, rng.randrange(-2000, 2000)))
    draft.set(draft.udp, wire.UDP, "length", draft.get(draft.udp, wire.UDP, "length") + change)


def ip_length(rng, draft):
    at = rng.choice((draft.inner, OUTER_AT))
    change = rng.choice((-8, -4, -1, 1, 4, 8, rng.randrange(-2000, 2000)))
    draft.set(at, wire.IPV6, "payload_length", draft.get(at, wire.IPV6, "payload_length") + change)


def both_lengths(rng, draft):
    draft.set_lengths(rng.choice((-16, -8, -4, -1, 1, 2, 4, 8, 16, 1000)))


def huge_length(rng, draft):
    draft.set(draft.inner, wire.IPV6, "payload_length", rng.choice((0, 4, 0xFFFC, 0xFFFF)))


def version(rng, draft):
    at = rng.choice((draft.inner, OUTER_AT))
    draft.data[at] = rng.choice((0, 4, 5, 7, 15)) << 4 | draft.data[at] & 15


def next_header(rng, draft):
    at = rng.choice((draft.inner, OUTER_AT))
    draft.set(at, wire.IPV6, "next_header", rng.choice((*EXTENSIONS, 6, 17, 41, 59, rng.getrandbits(8))))


def extension(rng, draft):
    """A real extension header, of a right length, in front of UDP or of the inner IPv6 header."""
    at = rng.choice((draft.inner, OUTER_AT))
    kind, units = rng.choice(EXTENSIONS), rng.randrange(3)
    following = draft.get(at, wire.IPV6, "next_header")
    units = 0 if kind == 44 else units
    content = bytes((following, units)) + rng.randbytes(6 + 8 * units)
    draft.set(at, wire.IPV6, "next_header", kind)
    end = at + wire.IPV6.bytes
    draft.data[end:end] = content
    if at < draft.inner:
        draft.inner += len(content)
        announced = draft.get(OUTER_AT, wire.IPV6, "payload_length") + len(content)
        draft.set(OUTER_AT, wire.IPV6, "payload_length", announced)
    else:
        draft.set(at, wire.IPV6, "payload_length", len(draft.data) - end)


def source(rng, draft):
    hosts = (wire.inner_address(PEER), wire.inner_address(ATTACKER), wire.inner_address(0), 0)
    draft.set(draft.inner, wire.IPV6, "source", rng.choice((*hosts, rng.getrandbits(128))))


def destination(rng, draft):
    near = wire.inner_address(0) ^ 1 << rng.randrange(128)
    wanted = rng.choice((near, wire.inner_address(PEER), rng.getrandbits(128)))
    draft.set(draft.inner, wire.IPV6, "destination", wanted)


def outer_destination(rng, draft):
    right = draft.get(OUTER_AT, wire.IPV6, "destination")
    near = right ^ 1 << rng.randrange(128)
    draft.set(OUTER_AT, wire.IPV6, "destination", rng.choice((near, right | rng.getrandbits(80), 0)))


def segment_header(rng, draft):
    """Bytes of what stands where a segment routing header would."""
    draft.data[OUTER_AT + wire.IPV6.bytes + rng.randrange(8)] = rng.choice((0, 1, 2, 4, 41, 255))


def congestion(rng, draft):
    at = rng.choice((draft.inner, OUTER_AT)) + 1
    draft.data[at] |= 0x30


def traffic_class(rng, draft):
    mark(draft.data, rng.choice((*Dscp, rng.randrange(64))))


def mark(data, dscp):
    """Write the DSCP of an IPv6 header behind Ethernet, whatever is there."""
    if len(data) > OUTER_AT + 1:
        data[OUTER_AT] = data[OUTER_AT] & 0xF0 | dscp >> 2
        data[OUTER_AT + 1] = data[OUTER_AT + 1] & 0x3F | (dscp & 3) << 6


def remote_key(rng, draft):
    at = draft.body + wire.METH.bytes + wire.TSETH.bytes
    key = draft.get(at, wire.RETH, "rkey")
    keys = (0, key ^ 1 << rng.randrange(32), key + 1, key ^ 0x100, rng.getrandbits(32))
    draft.set(at, wire.RETH, "rkey", rng.choice(keys))


def address(rng, draft):
    at = draft.body + wire.METH.bytes + wire.TSETH.bytes
    right = draft.get(at, wire.RETH, "va")
    far = (0, (1 << 64) - 1, (1 << 64) - 8, right ^ 1 << rng.randrange(64), rng.getrandbits(64), right - 1)
    draft.set(at, wire.RETH, "va", rng.choice((*far, right + 16_384, right - 4096, right + (1 << 32))))


def message_length(rng, draft):
    at = draft.body + wire.METH.bytes + wire.TSETH.bytes
    draft.set(at, wire.RETH, "dma_len", rng.choice((0, 1, 0xFFFFFFFF, rng.getrandbits(32))))


def message_numbers(rng, draft):
    draft.put(draft.body, rng.getrandbits(32), 4)


def stamp_kind(rng, draft):
    draft.put(draft.body + wire.METH.bytes, rng.getrandbits(32), 4)


def body(rng, draft):
    """Any word of the headers behind BTH."""
    draft.put(draft.body + 4 * rng.randrange(10), rng.getrandbits(32), 4)


def oversized(rng, draft):
    """More payload than the MTU, up to a jumbo frame, with lengths that agree."""
    end = len(draft.data) - wire.ICRC.bytes
    size = rng.choice((1024, 4096, 4100, 8000, LONGEST, 4 * rng.randrange(1, 2000)))
    draft.data[end:end] = rng.randbytes(max(0, min(size, LONGEST - len(draft.data))) & ~3)
    draft.set_lengths()


def empty(rng, draft):
    """Headers and ICRC only, with lengths that agree; sometimes headers are missing too."""
    keep = draft.body + 4 * rng.randrange(8)
    del draft.data[keep : len(draft.data) - wire.ICRC.bytes]
    draft.set_bits(draft.bth, wire.BTH, "pad_count", 0)
    draft.set_lengths()


BREAKS = (
    opcode, other_opcode, pad_count, stamp_flag, reserved_bits, partition_key, queue_pair, psn, udp_port,
    udp_length, ip_length, both_lengths, huge_length, version, next_header, extension, source, destination,
    outer_destination, segment_header, congestion, traffic_class, remote_key, address, message_length,
    message_numbers, stamp_kind, body, oversized, empty,
)  # fmt: skip


# -- damage ------------------------------------------------------------------------------------------------


def flip(rng, data):
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def flip_header(rng, data):
    data[rng.randrange(min(len(data), 142))] ^= 1 << rng.randrange(8)


def set_byte(rng, data):
    data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.getrandbits(8)))


def cut(rng, data):
    del data[rng.choice((rng.randrange(1, len(data)), rng.randrange(1, min(len(data), 150)))) :]


def extend(rng, data):
    data += rng.randbytes(rng.choice((1, 2, 4, 8, 46, rng.randrange(1, 2000))))


def drop_piece(rng, data):
    at, size = rng.randrange(1, len(data)), rng.choice((1, 2, 4, 8, 40))
    del data[at : at + size]


def double_piece(rng, data):
    at, size = rng.randrange(len(data)), rng.choice((1, 2, 4, 8, 40))
    data[at:at] = data[at : at + size]


def tag(rng, data):
    kind = rng.choice((EtherType.VLAN, EtherType.QINQ, 0x9100))
    data[ETHERTYPE_AT:ETHERTYPE_AT] = kind.to_bytes(2, "big") + rng.randbytes(2)


def ethertype(rng, data):
    kind = rng.choice((EtherType.IPV4, 0x0806, EtherType.VLAN, 0, 0xFFFF, 0x86DC, rng.getrandbits(16)))
    data[ETHERTYPE_AT : ETHERTYPE_AT + 2] = kind.to_bytes(2, "big")


def noise(rng, data):
    at = rng.choice((0, 12, 14, 20, 54, 62, 94, 102, 114))
    data[at:] = rng.randbytes(rng.randrange(1, 400))


def trimmed(rng, data):
    """What a switch makes of it, cut anywhere; sometimes where no switch may."""
    size = rng.choice((118, 122, 128, 138, rng.randrange(60, 200), len(data)))
    del data[size:]
    mark(data, rng.choice((Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP)))


DAMAGES = (
    flip, flip, flip_header, flip_header, set_byte, cut, extend, drop_piece, double_piece, tag, ethertype,
    noise, trimmed, trimmed,
)  # fmt: skip


class Attacker:
    """Draws frames for a bed.

    Parameters
    ----------
    crafter : Crafter
    regions : dict
        Regions of the NIC under test by name, see :class:`fuzz_bed.Bed`.
    """

    def __init__(self, crafter, regions):
        self._crafter = crafter
        self._regions = regions

    def frame(self, rng, expected):
        """One frame; ``expected`` is the next PSN of the attacker's queue pair."""
        what = rng.random()
        if what < 0.02:
            return Hostile(rng.randrange(PLANES), rng.randbytes(rng.randrange(1, 400)), note="random")
        draft = self._good(rng, expected)
        notes = [draft.note]
        if what < 0.55:
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                broken = rng.choice(BREAKS)
                if len(draft.data) > draft.body:
                    broken(rng, draft)
                    notes.append(broken.__name__)
            draft.seal()
        elif what < 0.85:
            for _ in range(rng.choice((1, 1, 2, 3))):
                damage = rng.choice(DAMAGES)
                if len(draft.data) > 1:
                    damage(rng, draft.data)
                    notes.append(damage.__name__)
        elif what < 0.88:
            draft.bad_fcs = True
            notes.append("bad FCS")
        draft.note = ", ".join(notes)
        return draft.done()

    def _good(self, rng, expected):
        """A frame with nothing wrong, from the attacker, or from the good peer where that cannot matter."""
        plane = rng.randrange(PLANES)
        encapsulation = rng.choice((SRV6, SRV6, PLAIN, *ENCAPSULATIONS))
        chosen = rng.choice(WRITES) if rng.random() < 0.75 else rng.choice(CONTROLS)
        forged = rng.random() < 0.15
        place = expected + rng.choice((*range(8), *range(8), rng.choice(EDGES), -rng.choice(EDGES)))
        qpn = QP_NUMBER_BASE + (GOOD if forged else TARGET)
        if wire.is_write(chosen):
            packet = self._write(rng, chosen, place)
            if forged:
                packet.psn = rng.getrandbits(24)
        else:
            packet = self._control(rng, chosen, place)
            if chosen in (Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE):
                qpn = wire.ENDPOINT_QPN
        draft = self._crafter.draft(
            packet, plane, qpn=qpn, source=PEER if forged else ATTACKER, key=KEY,
            encapsulation=encapsulation, port=rng.choice(wire.UDP_PORTS),
        )  # fmt: skip
        draft.note = f"{chosen.name} {encapsulation}" + (" as the peer" if forged else "")
        return draft

    def _write(self, rng, chosen, place):
        name = "target" if rng.random() < 0.95 else rng.choice(tuple(self._regions))
        region = self._regions[name]
        size = rng.choice((*SIZES, rng.randrange(1, 600)))
        at = rng.choice((0, region.length - size, rng.randrange(region.length - size)))
        return write(
            place, rng.randbytes(size), region.address + at, region.rkey, chosen,
            timestamped=rng.random() < 0.8, timestamp=rng.getrandbits(16),
            message_number=rng.randrange(4), receive_number=rng.choice((0, 0, 1, 2, rng.getrandbits(16))),
            immediate=rng.getrandbits(32), ack_request=rng.random() < 0.3,
            retransmission=rng.random() < 0.2,
        )  # fmt: skip

    def _control(self, rng, chosen, place):
        near = rng.choice((6, 7, 8, 9, 15, 16, rng.getrandbits(24)))  # around what the QP has sent
        stamp = {"timestamped": True, "timestamp": rng.getrandbits(16)}
        ev = wire.ev_value(rng.randrange(PLANES), 1, rng.randrange(9))
        if chosen is Opcode.SACK:
            return control(
                chosen, near, cumulative_psn=near, entropy=ev,
                acknowledged_psn=near + rng.randrange(-4, 5) & wire.PSN_MASK,
                sack_base=near + rng.choice((0, 1, -1, 64)) & wire.PSN_MASK,
                sack_bitmap=rng.choice((0, 1, 0xFFFF, (1 << 64) - 1, rng.getrandbits(64))),
                mark=rng.randrange(4), mpr_units=rng.choice((0, 1, 8, 255)), probe=rng.random() < 0.1,
                out_of_order=rng.randrange(1 << 15), penalty=rng.randrange(128),
                restore=rng.random() < 0.5, received_units=rng.getrandbits(24),
            )  # fmt: skip
        if chosen is Opcode.ACKNOWLEDGE:
            syndrome = AethSyndrome.ACK if rng.random() < 0.9 else rng.getrandbits(8)
            return control(chosen, near, syndrome=syndrome, message_number=rng.choice((0, 1, 2)))
        if chosen is Opcode.NACK:
            reason = rng.choice(tuple(NackReason)) if rng.random() < 0.9 else rng.getrandbits(8)
            return control(
                chosen, near, reason=reason, entropy=ev, acknowledged_psn=near, timestamp=rng.getrandbits(16)
            )
        if chosen is Opcode.PROBE:
            return control(chosen, 0, probe_id=rng.getrandbits(16), **stamp)
        identifier = rng.getrandbits(16)
        return control(chosen, identifier, operation=rng.randrange(4), port_mask=rng.getrandbits(32), **stamp)
