"""Frames an attacker can put on the wire: any field set to anything, with a right ICRC or without one.

A frame begins as a good one of the model's encoder; what is wrong with it is changed in its bytes, at the
places that ``mrc_rtl.wire`` says, and then it is sealed with a right ICRC again, or not.
"""

from dataclasses import dataclass

from mrc_host.benches.rig import path
from mrc_host.model.encoder import FrameEncoder
from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import ModelPacket
from mrc_host.model.shell import Settings as Registers
from mrc_host.model.templates import Template
from mrc_host.packets.icrc import icrc_bytes
from mrc_rtl import wire
from mrc_rtl.wire import Opcode

PLANES = 2
NIC, PEER, ATTACKER = 0, 1, 2
"""Hosts: the NIC under test, the good peer, and who connects the second queue pair."""

ETHERTYPE_AT = wire.ETHERNET.byte_offset("ethertype")
OUTER_AT = wire.ETHERNET.bytes
PLAIN, SRV6, ROUTED = "plain", "srv6", "routed"
ENCAPSULATIONS = (PLAIN, SRV6, ROUTED)
INNER_AT = {
    PLAIN: OUTER_AT,
    SRV6: OUTER_AT + wire.IPV6.bytes,
    ROUTED: OUTER_AT + wire.IPV6.bytes + wire.SRH.bytes,
}
NIC_USID = wire.usid_value(0, wire.Tier.HOST, NIC + 1)


@dataclass(frozen=True)
class Hostile:
    """A frame of the attacker: the port it is put on, its bytes without FCS, whether the FCS is wrong."""

    plane: int
    data: bytes
    bad_fcs: bool = False
    note: str = ""


@dataclass
class Draft:
    """A frame in the making.

    Attributes
    ----------
    data : bytearray
    inner : int
        Offset of the IPv6 header next to UDP.
    """

    plane: int
    data: bytearray
    inner: int
    note: str = ""
    bad_fcs: bool = False

    @property
    def udp(self):
        return self.inner + wire.IPV6.bytes

    @property
    def bth(self):
        return self.udp + wire.UDP.bytes

    @property
    def body(self):
        return self.bth + wire.BTH.bytes

    def put(self, at, value, size):
        """Write a number over some bytes; beyond the frame nothing happens."""
        content = (value & (1 << 8 * size) - 1).to_bytes(size, "big")
        room = max(0, min(size, len(self.data) - at))
        self.data[at : at + room] = content[:room]

    def take(self, at, size):
        return int.from_bytes(self.data[at : at + size], "big")

    def set(self, base, header, name, value):
        """Write a header's field of whole bytes."""
        assert header.offset(name) % 8 == header[name].bits % 8 == 0, name
        self.put(base + header.byte_offset(name), value, header[name].bits // 8)

    def get(self, base, header, name):
        return self.take(base + header.byte_offset(name), header[name].bits // 8)

    def set_bits(self, base, header, name, value):
        """Write a field inside one byte."""
        bit, bits = header.offset(name), header[name].bits
        at, low = base + bit // 8, 8 - bit % 8 - bits
        if at < len(self.data):
            self.data[at] = self.data[at] & ~(header[name].mask << low) | (value & header[name].mask) << low

    def set_lengths(self, change=0):
        """Let IPv6 and UDP, and the outer header, say how long the frame is, plus a change."""
        announced = len(self.data) - self.udp + change
        self.set(self.inner, wire.IPV6, "payload_length", announced)
        self.set(self.udp, wire.UDP, "length", announced)
        if self.inner > OUTER_AT:
            self.set(OUTER_AT, wire.IPV6, "payload_length", announced + self.udp - OUTER_AT - wire.IPV6.bytes)

    def seal(self):
        """Give the frame a right ICRC, if it has room for one."""
        end = len(self.data) - wire.ICRC.bytes
        if end >= self.body and self.data[self.inner] >> 4 in (4, 6):
            self.data[end:] = icrc_bytes(bytes(self.data), self.inner, self.udp, end)

    def done(self):
        return Hostile(self.plane, bytes(self.data), self.bad_fcs, self.note)


class Crafter:
    """Makes good frames for the NIC under test, from any host to any of its queue pairs."""

    def __init__(self):
        self._registers = Registers(PLANES)
        self._registers.own_address = wire.inner_address(ATTACKER)
        self._registers.mac = [wire.mac_address(plane, ATTACKER) for plane in range(PLANES)]
        self._registers.next_hop_mac = [wire.mac_address(plane, NIC) for plane in range(PLANES)]
        self._encoders = [FrameEncoder(plane, self._registers, ModelOptions()) for plane in range(PLANES)]
        self._templates = {}

    def template(self, source, qpn, key, srv6, port):
        wanted = (source, qpn, key, srv6, port)
        if wanted not in self._templates:
            if len(self._templates) > 4096:
                self._templates.clear()
            words = path(source, NIC, srv6=srv6).template_words(
                destination_qpn=qpn, partition_key=key, udp_port=port
            )
            self._templates[wanted] = Template(words)
        return self._templates[wanted]

    def draft(
        self, packet, plane, *, qpn, source=ATTACKER, key=wire.PKEY_DEFAULT, encapsulation=SRV6,
        port=wire.UDP_PORT_ROCE,
    ):  # fmt: skip
        """A good frame of a packet whose EV, if unbound, becomes one of the plane's."""
        if packet.ev < 0:
            packet.ev = wire.ev_value(plane, 1, packet.psn & 7)
        if not packet.traffic_class:
            dscp = wire.Dscp.TRIMMABLE if wire.is_write(packet.opcode) else wire.Dscp.CONTROL
            packet.traffic_class = dscp << 2 | (wire.Ecn.ECT0 if wire.is_write(packet.opcode) else 0)
        if encapsulation == ROUTED:
            packet.outer_destination = wire.outer_address([NIC_USID | plane << 12])
            packet.segment = wire.inner_address(NIC)
        endpoint = packet.opcode in (Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE)
        template = self.template(source, qpn, key, encapsulation != PLAIN, port)
        data = bytearray(self._encoders[plane].encode(packet, template))
        result = Draft(plane, data, INNER_AT[encapsulation])
        if endpoint and qpn != wire.ENDPOINT_QPN:
            result.set(result.bth, wire.BTH, "dest_qp", qpn)
            result.seal()
        return result


def write(psn, content, address, key, opcode=Opcode.WRITE_ONLY, **fields):
    """A write packet."""
    packet = ModelPacket(int(opcode), 0, psn & wire.PSN_MASK)
    packet.payload, packet.length = content, len(content)
    packet.address, packet.remote_key = address, key
    packet.message_length = len(content)
    packet.timestamped = True
    for name, value in fields.items():
        setattr(packet, name, value)
    return packet


def control(opcode, psn=0, **fields):
    """A packet without payload."""
    packet = ModelPacket(int(opcode), 0, psn & wire.PSN_MASK)
    for name, value in fields.items():
        setattr(packet, name, value)
    return packet
