"""Real data packets for the tests of the fabric, as frames and as objects; no tests here."""

from __future__ import annotations

from mrc_host.fabric.packet import Packet, route_key
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import UsidPlan
from mrc_rtl import wire
from mrc_rtl.wire import Dscp, Ecn, NextHeader, Opcode


def data_frame(
    topology: Topology,
    source: int,
    target: int,
    plane: int,
    uplink: int,
    *,
    psn: int = 0,
    dscp: int = Dscp.TRIMMABLE,
    ecn: int = Ecn.ECT0,
    payload: int = 1000,
    opcode: int = Opcode.WRITE_MIDDLE,
    replica: int = 0,
    srv6: bool = True,
) -> bytes:
    """A packet from Ethernet to ICRC over one path; the ICRC is not computed."""
    plan = UsidPlan(topology)
    ev = wire.ev_value(plane, uplink, replica)
    write = wire.has_payload(opcode)
    rest = wire.fixed_headers_bytes(opcode, write, False) - 14 - 40 - 8 - 12
    body = bytes(rest) + bytes(index & 0xFF for index in range(payload if write else 0)) + bytes(4)
    size = wire.UDP.bytes + wire.BTH.bytes + len(body)
    traffic = dscp << 2 | ecn
    bth = wire.BTH.pack(
        opcode=opcode, dest_qp=100 + target, psn=psn, ts=int(write), rtx=int(dscp == Dscp.RETX)
    )
    inner = wire.IPV6.pack(
        traffic_class=traffic,
        flow_label=ev & 0xFFFF,
        payload_length=size,
        next_header=NextHeader.UDP,
        source=plan.inner_address(source),
        destination=plan.inner_address(target),
    )
    packet = inner.to_bytes(40, "big")
    packet += wire.UDP.pack(source_port=ev >> 16, length=size).to_bytes(8, "big")
    packet += bth.to_bytes(wire.BTH.bytes, "big") + body
    ethernet = wire.ETHERNET.pack(
        destination=plan.next_hop_mac(source, plane), source=plan.host_mac(source, plane)
    )
    head = ethernet.to_bytes(14, "big")
    if srv6:
        path = topology.path(source, target, plane, uplink)
        outer = wire.IPV6.pack(
            traffic_class=traffic,
            flow_label=ev & 0xFFFF,
            payload_length=len(packet),
            next_header=NextHeader.IPV6,
            source=plan.outer_source(source, plane),
            destination=plan.outer_destination(source, target, plane, path.uplink),
        )
        head += outer.to_bytes(40, "big")
    return head + packet


class Made(Packet):
    """A packet that counts how often its bytes are made."""

    def __init__(self, frame: bytes) -> None:
        super().__init__()
        self.bytes = frame
        self.encoded = 0
        self.enter(len(frame), (frame[14] & 15) << 4 | frame[15] >> 4, route_key(frame))

    def make_frame(self) -> bytes:
        self.encoded += 1
        return self.bytes

    def copy(self) -> Packet:
        other = Made(self.bytes)
        self.copy_state(other)
        return other
