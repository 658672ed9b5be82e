"""Between the bytes of a frame and a :class:`ModelPacket`, one struct call a header stack.

``mrc_host.packets`` is the general codec; this one knows only the stacks a NIC of the profile sends and
accepts, and judges what it refuses by the reasons a port counts. A test holds the two against each other.

Source: protocol.md 1, profile.md 2, 5 and 6.
"""

from __future__ import annotations

import zlib
from struct import Struct

from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import UNBOUND, ModelPacket
from mrc_host.model.shell import Settings
from mrc_host.model.templates import Template, address_bytes
from mrc_rtl import wire
from mrc_rtl.records import PortCounter, Trimmed
from mrc_rtl.wire import Opcode

__all__ = ["BODY_BYTES", "FrameDecoder", "FrameEncoder", "body_bytes"]

PSN_MASK = wire.PSN_MASK
_HALF = 1 << (wire.PSN_BITS - 1)
_WRITES = frozenset(int(opcode) for opcode in Opcode if wire.is_write(opcode))
_IMMEDIATES = frozenset(int(opcode) for opcode in Opcode if wire.has_immediate(opcode))
_SACK, _NACK, _ACK = int(Opcode.SACK), int(Opcode.NACK), int(Opcode.ACKNOWLEDGE)
_PROBE = int(Opcode.PROBE)
_REQUEST, _RESPONSE = int(Opcode.ENDPOINT_REQUEST), int(Opcode.ENDPOINT_RESPONSE)

# Layouts of wire.py as struct formats; test_codec.py compares every field with them.
_WRITE = Struct(">HHQII")
_WRITE_STAMPED = Struct(">HHHHQII")
_IMMEDIATE = Struct(">I")
_SETH = Struct(">HHIHHIBBHQHHI")
_NETH = Struct(">HBBIHHIBBH")
_PETH = Struct(">HBBHHHHHH")
_ERTH = Struct(">HBBIIHH")
_EETH = Struct(">HH24xHHI")
_AETH = Struct(">I")
_SEGMENT = Struct(">BBBBBBH16s")
_METH = Struct(">HH")
_STAMP = Struct(">HH")
_OUTER = Struct(">IHBB32s")
_INNER = Struct(">IHBB32sHHHHBBHII")
_ICRC_HEAD = Struct(">8sIHBB32sHHHHBBHII")
_ICRC = Struct("<I")
_IPV6_START = Struct(">IHBB")
_UDP_BTH = Struct(">HHHHBBHII")

_STAMP_VALID = 1  # ftype
_CC_TYPE_NACK = int(wire.NETH["cc_type"].default) << 4
_VERSION = 6 << 28
_MASKED_PREFIX = wire.ICRC_MASKED_PREFIX
_MASKED_WORD = 0x6FFFFFFF
_UDP, _IPV6, _ROUTING = int(wire.NextHeader.UDP), int(wire.NextHeader.IPV6), int(wire.NextHeader.ROUTING)
_ETHERNET_BYTES = wire.ETHERNET.bytes
_IPV6_BYTES = wire.IPV6.bytes
_SRH_BYTES = wire.SRH.bytes
_UDP_BYTES, _BTH_BYTES, _METH_BYTES = wire.UDP.bytes, wire.BTH.bytes, wire.METH.bytes
_ICRC_BYTES = wire.ICRC.bytes
_IPV6_TYPE = int(wire.EtherType.IPV6).to_bytes(2, "big")
_IPV4_TYPE = int(wire.EtherType.IPV4).to_bytes(2, "big")

BODY_BYTES = {
    int(opcode): sum(header.bytes for header in wire.headers_after_bth(opcode, False)) for opcode in Opcode
}
"""Bytes of headers behind the BTH by opcode, without TSETH."""
_STAMP_BYTES = wire.TSETH.bytes


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
    if opcode in _WRITES:
        if packet.timestamped:
            body = _WRITE_STAMPED.pack(
                packet.receive_number,
                packet.message_number & 0xFFFF,
                packet.timestamp,
                options.timestamp_resolution << 15 | _STAMP_VALID,
                packet.address,
                packet.remote_key,
                packet.message_length,
            )
        else:
            body = _WRITE.pack(
                packet.receive_number,
                packet.message_number & 0xFFFF,
                packet.address,
                packet.remote_key,
                packet.message_length,
            )
        return body + _IMMEDIATE.pack(packet.immediate) if opcode in _IMMEDIATES else body
    if opcode == _SACK:
        cumulative = packet.cumulative_psn
        offset = _distance(packet.acknowledged_psn, cumulative)
        return _SETH.pack(
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
        return _AETH.pack(packet.syndrome << 24 | packet.message_number)
    if opcode == _NACK:
        return _NETH.pack(
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
    stamp = options.timestamp_resolution << 15 | _STAMP_VALID if packet.timestamped else 0
    if opcode == _PROBE:
        return _PETH.pack(
            0, 0, 0, packet.probe_id, 0, packet.source_context, packet.destination_context,
            packet.timestamp, stamp,
        )  # fmt: skip
    if opcode == _REQUEST:
        return _ERTH.pack(packet.operation, 0, 0, packet.port_mask, 0, packet.timestamp, stamp)
    if opcode == _RESPONSE:
        return _EETH.pack(packet.operation << options.endpoint_op_shift, 0, packet.timestamp, 0, 0)
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
            self._ethernet = macs[0].to_bytes(6, "big") + macs[1].to_bytes(6, "big") + _IPV6_TYPE
        payload = packet.payload
        pad = -len(payload) & 3
        body = body_bytes(packet, self._options)
        tail = body + payload + bytes(pad) if payload else body
        datagram = _UDP_BYTES + _BTH_BYTES + len(tail) + _ICRC_BYTES
        opcode = packet.opcode
        ev = packet.ev if self._upper else packet.ev >> 16 | (packet.ev & 0xFFFF) << 16
        word = _VERSION | packet.traffic_class << 20 | ev & 0xFFFF
        flags = packet.ack_request << 31 | packet.retransmission << 29 | packet.psn
        if packet.timestamped and opcode in _WRITES:
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
        end = _ICRC.pack(crc)
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


class FrameDecoder:
    """Takes the frames of one port apart and judges them as the gateware's port does.

    Parameters
    ----------
    plane : int
        Number of the port.
    settings : Settings
        Own addresses and DSCPs, followed when they change.
    options : ModelOptions
        ``udp_ports``, ``source_port_half``, ``timestamp_always_valid``, ``trimmed_length`` and
        ``endpoint_op_shift``.
    mtu : int
        Largest payload in bytes.

    Attributes
    ----------
    reason : int
        PortCounter of the frame that was refused last.
    """

    __slots__ = (
        "_any_stamp", "_mtu", "_op_shift", "_plane", "_ports", "_settings", "_strict_trim", "_upper", "reason"
    )  # fmt: skip

    def __init__(self, plane: int, settings: Settings, options: ModelOptions, mtu: int) -> None:
        self._plane = plane
        self._settings = settings
        self._mtu = mtu
        accepted = options.udp_ports
        self._ports: tuple[int, ...] = wire.UDP_PORTS if accepted == "both" else (int(accepted),)
        self._upper: bool = options.source_port_half == "upper"
        self._any_stamp: bool = options.timestamp_always_valid
        self._strict_trim: bool = options.trimmed_length == "headers"
        self._op_shift: int = options.endpoint_op_shift
        self.reason: int = 0

    def decode(self, frame: bytes, bad_fcs: bool = False) -> ModelPacket | None:
        """A packet addressed to this NIC, complete and with a good ICRC or trimmed; None for all others.

        Reasons are looked for in the order: frame error, EtherType, not MRC, address, trimmed and too short
        or no write, truncated, lengths, ICRC, opcode.
        """
        size = len(frame)
        if bad_fcs or size < _ETHERNET_BYTES:
            return self._refuse(PortCounter.DROP_FRAME_ERROR)
        ethertype = frame[12:14]
        if ethertype != _IPV6_TYPE:
            return self._refuse(
                PortCounter.DROP_IPV4 if ethertype == _IPV4_TYPE else PortCounter.DROP_ETHERTYPE
            )
        settings = self._settings
        at = _ETHERNET_BYTES
        wrong_address = not_mrc = marked = False
        trimmed = int(Trimmed.NO)
        inner = -1  # where the inner header begins
        word = 0
        if size >= at + 2:
            dscp = (frame[at] & 0xF) << 2 | frame[at + 1] >> 6
            if dscp == settings.dscp_trimmed:
                trimmed = int(Trimmed.FABRIC)
            elif dscp == settings.dscp_trimmed_last_hop:
                trimmed = int(Trimmed.LAST_HOP)
        if size >= at + 8:
            word, _, following, _ = _IPV6_START.unpack_from(frame, at)
            not_mrc = word >> 28 != 6
            marked = word >> 20 & 3 == 3
            if following == _UDP:
                inner = at
            elif following in (_IPV6, _ROUTING):
                destination = frame[at + 24 : at + _IPV6_BYTES]
                wanted = settings.usid_block << 16 | settings.own_usid | self._plane << 12
                expected = (wanted << 80).to_bytes(16, "big")
                wrong_address = destination != expected[: len(destination)]
                at += _IPV6_BYTES
                if following == _ROUTING:
                    not_mrc = not_mrc or not _is_segment(frame[at : at + 3])
                    at += _SRH_BYTES
                if size >= at + 2:
                    inner = at
                if size >= at + 8:
                    word, _, following, _ = _IPV6_START.unpack_from(frame, at)
                    not_mrc = not_mrc or word >> 28 != 6 or following != _UDP
                    marked = marked or word >> 20 & 3 == 3
            else:
                not_mrc = True
        udp = inner + _IPV6_BYTES
        bth = udp + _UDP_BYTES
        if inner >= 0:
            if size >= udp + 4:
                port = frame[udp + 2] << 8 | frame[udp + 3]
                not_mrc = not_mrc or port not in self._ports
            own = settings.own_address.to_bytes(16, "big")
            destination = frame[inner + 24 : inner + _IPV6_BYTES]
            wrong_address = wrong_address or destination != own[: len(destination)]
        if not_mrc:
            return self._refuse(PortCounter.DROP_NOT_MRC)
        if wrong_address:
            return self._refuse(PortCounter.DROP_ADDRESS)
        body = bth + _BTH_BYTES
        if inner < 0 or size < body:
            return self._refuse(PortCounter.TRIM_IGNORED if trimmed else PortCounter.DROP_TRUNCATED)
        return self._transport(frame, inner, word, trimmed, marked)

    def _refuse(self, reason: int) -> ModelPacket | None:
        self.reason = reason
        return None

    def _transport(
        self, frame: bytes, inner: int, word: int, trimmed: int, marked: bool
    ) -> ModelPacket | None:
        size = len(frame)
        announced = frame[inner + 4] << 8 | frame[inner + 5]
        udp = inner + _IPV6_BYTES
        source_port, _, udp_length, _, opcode, pads, key, qpn, flags = _UDP_BTH.unpack_from(frame, udp)
        body = udp + _UDP_BYTES + _BTH_BYTES
        write = opcode in _WRITES
        stamped = write and bool(flags >> 28 & 1)
        known = opcode in BODY_BYTES
        length = 0
        start = body
        if trimmed:
            contradicts = self._strict_trim and announced != size - udp
            if not write or size < body + _METH_BYTES or contradicts:
                return self._refuse(PortCounter.TRIM_IGNORED)
        else:
            difference = size - udp - announced
            if difference < 0:
                return self._refuse(PortCounter.DROP_TRUNCATED)
            pad = pads >> 4 & 3
            if known:
                start += BODY_BYTES[opcode] + (_STAMP_BYTES if stamped else 0)
                length = size - start - pad - _ICRC_BYTES
            if (
                difference > 0
                or announced != udp_length
                or announced & 3
                or not 0 <= length <= (self._mtu if write else 0)
            ):
                return self._refuse(PortCounter.DROP_LENGTH)
            if _icrc(frame, inner, size - _ICRC_BYTES) != frame[size - _ICRC_BYTES :]:
                return self._refuse(PortCounter.DROP_ICRC)
            if not known:
                return self._refuse(PortCounter.DROP_OPCODE)
        packet = ModelPacket(opcode, UNBOUND, flags & PSN_MASK)
        packet.destination_qpn = qpn & PSN_MASK
        packet.partition_key = key
        packet.ack_request = flags >> 31 == 1
        packet.retransmission = flags >> 29 & 1 == 1
        if self._upper:
            packet.ev = source_port << 16 | word & 0xFFFF
        else:
            packet.ev = (word & 0xFFFF) << 16 | source_port
        packet.plane = self._plane
        packet.traffic_class = word >> 20 & 0xFF
        packet.marked = marked
        packet.trimmed = trimmed
        packet.source = int.from_bytes(frame[inner + 8 : inner + 24], "big")
        packet.destination = int.from_bytes(frame[inner + 24 : inner + 40], "big")
        packet.length = length
        if inner > _ETHERNET_BYTES:
            packet.outer_source = int.from_bytes(frame[22:38], "big")
            packet.outer_destination = int.from_bytes(frame[38:54], "big")
        if trimmed:
            _read_trimmed(packet, frame, body, stamped)
        elif write:
            _read_write(packet, frame, body, stamped)
            packet.payload = frame[start : start + length]
        else:
            _read_control(packet, frame, body, self._op_shift)
        if self._any_stamp and (stamped or opcode in (_PROBE, _REQUEST)):
            packet.timestamped = True
        return packet


def _is_segment(start: bytes) -> bool:
    """Whether what is there of a routing header is one SRH segment with IPv6 behind it."""
    wanted = bytes((_IPV6, 2, wire.SRH_ROUTING_TYPE))
    return start == wanted[: len(start)]


def _icrc(frame: bytes, inner: int, end: int) -> bytes:
    """ICRC over the inner header on (protocol.md 1.18)."""
    udp = inner + _IPV6_BYTES
    bth = udp + _UDP_BYTES
    head = b"".join(
        (
            _MASKED_PREFIX, b"\x6f\xff\xff\xff", frame[inner + 4 : inner + 7], b"\xff",
            frame[inner + 8 : udp + 6], b"\xff\xff", frame[bth : bth + 4], b"\xff",
        )
    )  # fmt: skip
    return _ICRC.pack(zlib.crc32(memoryview(frame)[bth + 5 : end], zlib.crc32(head)))


def _read_trimmed(packet: ModelPacket, frame: bytes, at: int, stamped: bool) -> None:
    """METH and, where the cut left it, TSETH."""
    packet.receive_number, packet.message_number = _METH.unpack_from(frame, at)
    at += _METH_BYTES
    if stamped and len(frame) >= at + _STAMP_BYTES:
        packet.timestamp, kind = _STAMP.unpack_from(frame, at)
        packet.timestamped = kind & 0xF == _STAMP_VALID


def _read_write(packet: ModelPacket, frame: bytes, at: int, stamped: bool) -> None:
    if stamped:
        (
            packet.receive_number, packet.message_number, packet.timestamp, kind,
            packet.address, packet.remote_key, packet.message_length,
        ) = _WRITE_STAMPED.unpack_from(frame, at)  # fmt: skip
        packet.timestamped = kind & 0xF == _STAMP_VALID
        at += _WRITE_STAMPED.size
    else:
        (
            packet.receive_number, packet.message_number,
            packet.address, packet.remote_key, packet.message_length,
        ) = _WRITE.unpack_from(frame, at)  # fmt: skip
        at += _WRITE.size
    if packet.opcode in _IMMEDIATES:
        (packet.immediate,) = _IMMEDIATE.unpack_from(frame, at)


def _read_control(packet: ModelPacket, frame: bytes, at: int, op_shift: int) -> None:
    opcode = packet.opcode
    if opcode == _SACK:
        (
            first, offset, packet.entropy, packet.source_context, packet.destination_context, cumulative,
            _, packet.mpr_units, base, packet.sack_bitmap, packet.timestamp, out_of_order, last,
        ) = _SETH.unpack_from(frame, at)  # fmt: skip
        cumulative &= PSN_MASK
        packet.mark = first >> 5 & 3
        packet.probe = first >> 1 & 1 == 1
        packet.cumulative_psn = cumulative
        packet.probe_id = offset if packet.probe else 0
        packet.acknowledged_psn = cumulative + (0 if packet.probe else _signed(offset)) & PSN_MASK
        packet.sack_base = cumulative + _signed(base) & PSN_MASK
        packet.out_of_order = out_of_order & 0x7FFF
        packet.restore = last >> 31 == 1
        packet.penalty = last >> 24 & 0x7F
        packet.received_units = last & PSN_MASK
    elif opcode == _ACK:
        (word,) = _AETH.unpack_from(frame, at)
        packet.syndrome = word >> 24
        packet.message_number = word & PSN_MASK
    elif opcode == _NACK:
        (
            _, packet.reason, _, packet.entropy, packet.source_context, packet.destination_context, psn,
            _, _, packet.timestamp,
        ) = _NETH.unpack_from(frame, at)  # fmt: skip
        packet.acknowledged_psn = psn & PSN_MASK
    elif opcode == _PROBE:
        (
            _, _, _, packet.probe_id, _, packet.source_context, packet.destination_context,
            packet.timestamp, kind,
        ) = _PETH.unpack_from(frame, at)  # fmt: skip
        packet.timestamped = kind & 0xF == _STAMP_VALID
    elif opcode == _REQUEST:
        first, _, _, packet.port_mask, _, packet.timestamp, kind = _ERTH.unpack_from(frame, at)
        packet.operation = first & 3
        packet.timestamped = kind & 0xF == _STAMP_VALID
    else:
        first, _, packet.timestamp, _, _ = _EETH.unpack_from(frame, at)
        packet.operation = first >> op_shift & 3


def _signed(value: int) -> int:
    return value - 0x10000 if value & 0x8000 else value
