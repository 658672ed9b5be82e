"""From a :class:`ModelPacket` to the bytes of a frame, in a struct call a header stack.

``mrc_host.packets`` is the general codec; this one knows only the stacks a NIC of the profile sends. A test
holds the two against each other.

Source: protocol.md 1, profile.md 2 and 6.
"""

from __future__ import annotations

import zlib
from struct import Struct

from mrc_host.model import layouts
from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import ModelPacket
from mrc_host.model.shell import Settings
from mrc_host.model.templates import Template, address_bytes
from mrc_rtl import wire
from mrc_rtl.wire import Opcode

__all__ = ["FrameEncoder", "body_bytes"]

PSN_MASK = wire.PSN_MASK
_HALF = 1 << (wire.PSN_BITS - 1)
_SACK, _NACK, _ACK = int(Opcode.SACK), int(Opcode.NACK), int(Opcode.ACKNOWLEDGE)
_PROBE = int(Opcode.PROBE)
_REQUEST, _RESPONSE = int(Opcode.ENDPOINT_REQUEST), int(Opcode.ENDPOINT_RESPONSE)
_SEGMENT = Struct(">BBBBBBH16s")
_OUTER = Struct(">IHBB32s")
_INNER = Struct(">IHBB32sHHHHBBHII")
_ICRC_HEAD = Struct(">8sIHBB32sHHHHBBHII")
_CC_TYPE_NACK = int(wire.NETH["cc_type"].default) << 4
_VERSION = 6 << 28
_MASKED_PREFIX = wire.ICRC_MASKED_PREFIX
_MASKED_WORD = 0x6FFFFFFF
_UDP, _IPV6, _ROUTING = int(wire.NextHeader.UDP), int(wire.NextHeader.IPV6), int(wire.NextHeader.ROUTING)
_IPV6_BYTES = wire.IPV6.bytes
_SRH_BYTES = wire.SRH.bytes
_UDP_BYTES, _BTH_BYTES, _METH_BYTES = wire.UDP.bytes, wire.BTH.bytes, wire.METH.bytes
_ICRC_BYTES = wire.ICRC.bytes


def body_bytes(packet: ModelPacket, options: ModelOptions) -> bytes:
    """The headers of a packet behind its BTH.

    Parameters
    ----------
    packet : ModelPacket
    options : ModelOptions
        ``timestamp_resolution``, ``cc_flags`` and ``endpoint_op_shift``.

    Raises
    ------
    ValueError
        For an opcode that is not one of MRC.
    """
    opcode = packet.opcode
    if opcode in layouts.WRITES:
        if packet.timestamped:
            body = layouts.WRITE_STAMPED.pack(
                packet.receive_number,
                packet.message_number & 0xFFFF,
                packet.timestamp,
                options.timestamp_resolution << 15 | layouts.STAMP_VALID,
                packet.address,
                packet.remote_key,
                packet.message_length,
            )
        else:
            body = layouts.WRITE.pack(
                packet.receive_number,
                packet.message_number & 0xFFFF,
                packet.address,
                packet.remote_key,
                packet.message_length,
            )
        return body + layouts.IMMEDIATE.pack(packet.immediate) if opcode in layouts.IMMEDIATES else body
    if opcode == _SACK:
        cumulative = packet.cumulative_psn
        offset = _distance(packet.acknowledged_psn, cumulative)
        return layouts.SETH.pack(
            packet.mark << 5 | packet.probe << 1,
            packet.probe_id if packet.probe else min(max(offset, -0x8000), 0x7FFF) & 0xFFFF,
            packet.entropy,
            packet.source_context,
            packet.destination_context,
            cumulative,
            options.cc_flags,
            packet.mpr_units,
            _distance(packet.sack_base, cumulative) & 0xFFFF,
            packet.sack_bitmap,
            packet.timestamp,
            packet.out_of_order,
            packet.restore << 31 | packet.penalty << 24 | packet.received_units,
        )
    if opcode == _ACK:
        return layouts.AETH.pack(packet.syndrome << 24 | packet.message_number)
    if opcode == _NACK:
        return layouts.NETH.pack(
            0,
            packet.reason,
            0,
            packet.entropy,
            packet.source_context,
            packet.destination_context,
            packet.acknowledged_psn,
            _CC_TYPE_NACK,
            0,
            packet.timestamp,
        )
    stamp = options.timestamp_resolution << 15 | layouts.STAMP_VALID if packet.timestamped else 0
    if opcode == _PROBE:
        return layouts.PETH.pack(
            0, 0, 0, packet.probe_id, 0, packet.source_context, packet.destination_context,
            packet.timestamp, stamp,
        )  # fmt: skip
    if opcode == _REQUEST:
        return layouts.ERTH.pack(packet.operation, 0, 0, packet.port_mask, 0, packet.timestamp, stamp)
    if opcode == _RESPONSE:
        return layouts.EETH.pack(packet.operation << options.endpoint_op_shift, 0, packet.timestamp, 0, 0)
    raise ValueError(f"opcode must be one of MRC, got {opcode:#04x}")


def _distance(psn: int, origin: int) -> int:
    """PSNs from an origin, −2^23 to 2^23 − 1."""
    return (psn - origin + _HALF & PSN_MASK) - _HALF


class FrameEncoder:
    """Makes frames of one port.

    Parameters
    ----------
    plane : int
        Number of the port.
    settings : Settings
        MAC addresses, own address and UDP port, followed when they change.
    options : ModelOptions
        What :func:`body_bytes` takes, and ``source_port_half``.
    """

    __slots__ = ("_ethernet", "_macs", "_options", "_plane", "_settings", "_upper")

    def __init__(self, plane: int, settings: Settings, options: ModelOptions) -> None:
        self._plane = plane
        self._settings = settings
        self._options = options
        self._upper: bool = options.source_port_half == "upper"
        self._macs: tuple[int, int] = (-1, -1)
        self._ethernet: bytes = b""

    def encode(self, packet: ModelPacket, template: Template | None) -> bytes:
        """The bytes of a frame, without FCS.

        Parameters
        ----------
        packet : ModelPacket
            ``ev`` must be bound.
        template : Template or None
            Of the QP it belongs to; None for an endpoint operation that belongs to none.
        """
        settings, plane = self._settings, self._plane
        macs = (settings.next_hop_mac[plane], settings.mac[plane])
        if macs != self._macs:
            self._macs = macs
            self._ethernet = macs[0].to_bytes(6, "big") + macs[1].to_bytes(6, "big") + layouts.IPV6_TYPE
        payload = packet.payload
        pad = -len(payload) & 3
        body = body_bytes(packet, self._options)
        tail = body + payload + bytes(pad) if payload else body
        datagram = _UDP_BYTES + _BTH_BYTES + len(tail) + _ICRC_BYTES
        opcode = packet.opcode
        ev = packet.ev if self._upper else packet.ev >> 16 | (packet.ev & 0xFFFF) << 16
        word = _VERSION | packet.traffic_class << 20 | ev & 0xFFFF
        flags = packet.ack_request << 31 | packet.retransmission << 29 | packet.psn
        if packet.timestamped and opcode in layouts.WRITES:
            flags |= 1 << 28
        qpn = wire.ENDPOINT_QPN
        if template is None:
            inner = address_bytes(settings.own_address) + address_bytes(packet.destination)
            port, key, hops = settings.udp_destination_port, wire.PKEY_DEFAULT, wire.HOP_LIMIT
        else:
            inner, port, key = template.inner, template.udp_port, template.partition_key
            hops = template.hop_limit
            if opcode not in (_REQUEST, _RESPONSE):
                qpn = template.destination_qpn
        crc = zlib.crc32(
            _ICRC_HEAD.pack(
                _MASKED_PREFIX, _MASKED_WORD, datagram, _UDP, 0xFF, inner,
                ev >> 16, port, datagram, 0xFFFF,
                opcode, pad << 4, key, 0xFF00_0000 | qpn, flags,
            )
        )  # fmt: skip
        crc = zlib.crc32(tail, crc)
        ip = _INNER.pack(
            word, datagram, _UDP, hops, inner, ev >> 16, port, datagram, 0, opcode, pad << 4, key, qpn, flags
        )
        end = layouts.ICRC.pack(crc)
        if template is not None and template.encapsulated and not packet.outer_destination:
            head = _OUTER.pack(
                word,
                datagram + _IPV6_BYTES,
                _IPV6,
                template.outer_hop_limit,
                template.outer(plane, packet.ev),
            )
            return self._ethernet + head + ip + tail + end
        if packet.outer_destination:
            source = template.outer_source(plane) if template is not None else b""
            return self._ethernet + self._outer(packet, source, word, datagram) + ip + tail + end
        return self._ethernet + ip + tail + end

    def _outer(self, packet: ModelPacket, source: bytes, word: int, datagram: int) -> bytes:
        """The outer headers of a packet that says where it goes."""
        if packet.outer_source:
            source = address_bytes(packet.outer_source)
        outer = source + address_bytes(packet.outer_destination)
        length = datagram + _IPV6_BYTES
        if not packet.segment:
            return _OUTER.pack(word, length, _IPV6, wire.HOP_LIMIT, outer)
        segment = _SEGMENT.pack(_IPV6, 2, wire.SRH_ROUTING_TYPE, 1, 0, 0, 0, address_bytes(packet.segment))
        return _OUTER.pack(word, length + _SRH_BYTES, _ROUTING, wire.HOP_LIMIT, outer) + segment
