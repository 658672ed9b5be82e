"""From the bytes of a frame to a :class:`ModelPacket`, or to the reason why a port refuses it.

``mrc_host.packets`` is the general codec; this one knows only the stacks a NIC of the profile accepts, and
judges as the gateware's port does. A test holds the two against each other.

Source: protocol.md 1, profile.md 2, 5 and 6.
"""

from __future__ import annotations

import zlib
from struct import Struct

from mrc_host.model import layouts
from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import UNBOUND, ModelPacket
from mrc_host.model.shell import Settings
from mrc_rtl import wire
from mrc_rtl.records import PortCounter, Trimmed
from mrc_rtl.wire import Opcode

__all__ = ["FrameDecoder"]

PSN_MASK = wire.PSN_MASK
_SACK, _NACK, _ACK = int(Opcode.SACK), int(Opcode.NACK), int(Opcode.ACKNOWLEDGE)
_PROBE = int(Opcode.PROBE)
_REQUEST, _RESPONSE = int(Opcode.ENDPOINT_REQUEST), int(Opcode.ENDPOINT_RESPONSE)
_IPV6_START = Struct(">IHBB")
_UDP_BTH = Struct(">HHHHBBHII")
_MASKED_PREFIX = wire.ICRC_MASKED_PREFIX
_UDP, _IPV6, _ROUTING = int(wire.NextHeader.UDP), int(wire.NextHeader.IPV6), int(wire.NextHeader.ROUTING)
_ETHERNET_BYTES = wire.ETHERNET.bytes
_IPV6_BYTES = wire.IPV6.bytes
_SRH_BYTES = wire.SRH.bytes
_UDP_BYTES, _BTH_BYTES, _METH_BYTES = wire.UDP.bytes, wire.BTH.bytes, wire.METH.bytes
_ICRC_BYTES = wire.ICRC.bytes
_IPV4_TYPE = int(wire.EtherType.IPV4).to_bytes(2, "big")
_STAMP_BYTES = wire.TSETH.bytes


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
        if ethertype != layouts.IPV6_TYPE:
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
        write = opcode in layouts.WRITES
        stamped = write and bool(flags >> 28 & 1)
        known = opcode in layouts.BODY_BYTES
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
                start += layouts.BODY_BYTES[opcode] + (_STAMP_BYTES if stamped else 0)
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
    return layouts.ICRC.pack(zlib.crc32(memoryview(frame)[bth + 5 : end], zlib.crc32(head)))


def _read_trimmed(packet: ModelPacket, frame: bytes, at: int, stamped: bool) -> None:
    """METH and, where the cut left it, TSETH."""
    packet.receive_number, packet.message_number = layouts.METH.unpack_from(frame, at)
    at += _METH_BYTES
    if stamped and len(frame) >= at + _STAMP_BYTES:
        packet.timestamp, kind = layouts.STAMP.unpack_from(frame, at)
        packet.timestamped = kind & 0xF == layouts.STAMP_VALID


def _read_write(packet: ModelPacket, frame: bytes, at: int, stamped: bool) -> None:
    if stamped:
        (
            packet.receive_number, packet.message_number, packet.timestamp, kind,
            packet.address, packet.remote_key, packet.message_length,
        ) = layouts.WRITE_STAMPED.unpack_from(frame, at)  # fmt: skip
        packet.timestamped = kind & 0xF == layouts.STAMP_VALID
        at += layouts.WRITE_STAMPED.size
    else:
        (
            packet.receive_number, packet.message_number,
            packet.address, packet.remote_key, packet.message_length,
        ) = layouts.WRITE.unpack_from(frame, at)  # fmt: skip
        at += layouts.WRITE.size
    if packet.opcode in layouts.IMMEDIATES:
        (packet.immediate,) = layouts.IMMEDIATE.unpack_from(frame, at)


def _read_control(packet: ModelPacket, frame: bytes, at: int, op_shift: int) -> None:
    opcode = packet.opcode
    if opcode == _SACK:
        (
            first, offset, packet.entropy, packet.source_context, packet.destination_context, cumulative,
            _, packet.mpr_units, base, packet.sack_bitmap, packet.timestamp, out_of_order, last,
        ) = layouts.SETH.unpack_from(frame, at)  # fmt: skip
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
        (word,) = layouts.AETH.unpack_from(frame, at)
        packet.syndrome = word >> 24
        packet.message_number = word & PSN_MASK
    elif opcode == _NACK:
        (
            _, packet.reason, _, packet.entropy, packet.source_context, packet.destination_context, psn,
            _, _, packet.timestamp,
        ) = layouts.NETH.unpack_from(frame, at)  # fmt: skip
        packet.acknowledged_psn = psn & PSN_MASK
    elif opcode == _PROBE:
        (
            _, _, _, packet.probe_id, _, packet.source_context, packet.destination_context,
            packet.timestamp, kind,
        ) = layouts.PETH.unpack_from(frame, at)  # fmt: skip
        packet.timestamped = kind & 0xF == layouts.STAMP_VALID
    elif opcode == _REQUEST:
        first, _, _, packet.port_mask, _, packet.timestamp, kind = layouts.ERTH.unpack_from(frame, at)
        packet.operation = first & 3
        packet.timestamped = kind & 0xF == layouts.STAMP_VALID
    else:
        first, _, packet.timestamp, _, _ = layouts.EETH.unpack_from(frame, at)
        packet.operation = first >> op_shift & 3


def _signed(value: int) -> int:
    return value - 0x10000 if value & 0x8000 else value
