"""Put packets together: byte for byte from their parts, or with everything absent filled in.

Source: protocol.md 1; layouts and defaults in :mod:`mrc_rtl.wire`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mrc_rtl.wire import HEADERS, IPV6, NextHeader

from .decoding import ETHERTYPE_TO_HEADER, PROTOCOL_TO_HEADER
from .header_codec import HEADER_CODECS
from .icrc import icrc_bytes, ipv4_checksum
from .packet import COMPUTE_ICRC, HeaderValue, Packet

__all__ = ["build", "complete", "encode"]

_HEADER_TO_ETHERTYPE = {name: number for number, name in ETHERTYPE_TO_HEADER.items()}
_HEADER_TO_PROTOCOL = {name: number for number, name in PROTOCOL_TO_HEADER.items()}
_SIZES = {name: header.bytes for name, header in HEADERS.items()}


def encode(packet: Packet) -> bytes:
    """Put a packet together exactly as its parts say; nothing is filled in or corrected.

    Raises
    ------
    ValueError
        For a missing field, a value that does not fit, or an ICRC still to be computed
        (:func:`complete` does both).
    """
    parts = [HEADER_CODECS[name].pack(fields) for name, fields in packet.headers]
    parts += (packet.rest, packet.payload, packet.padding)
    if packet.icrc is not None:
        if not 0 <= packet.icrc <= 0xFFFFFFFF:
            raise ValueError(f"icrc must be between 0 and 0xffffffff, got {packet.icrc}")
        parts.append(packet.icrc.to_bytes(4, "big"))
    parts.append(packet.trailing)
    return b"".join(parts)


def complete(packet: Packet) -> Packet:
    """Return a copy with every absent field filled in.

    Lengths, next headers, EtherType, pad, ``bth.ts`` and the IPv4 checksum follow from the packet; other
    absent fields take the default of :mod:`mrc_rtl.wire`. Fields that are there stay as they are, right or
    wrong. An ICRC of :data:`COMPUTE_ICRC` is computed.

    Raises
    ------
    ValueError
        For an unknown header, a BTH without opcode, or a value that does not fit its field.
    """
    names = [name for name, _ in packet.headers]
    for name in names:
        if name not in HEADERS:
            raise ValueError(f"header must be one of {', '.join(HEADERS)}, got {name!r}")
    filled = [dict(fields) for _, fields in packet.headers]
    padding = packet.padding
    for name, fields in zip(names, filled):
        if name == "bth":
            if "opcode" not in fields:
                raise ValueError("bth.opcode is missing")
            fields.setdefault("ts", int("tseth" in names))
            if "pad_count" not in fields:
                padding = padding or bytes(-len(packet.payload) % 4)
                fields["pad_count"] = len(padding) & 3
    length = len(packet.rest) + len(packet.payload) + len(padding) + (0 if packet.icrc is None else 4)
    following = ""
    for name, fields in zip(reversed(names), reversed(filled)):
        length += _SIZES[name]
        if name == "ethernet":
            fields.setdefault("ethertype", _HEADER_TO_ETHERTYPE.get(following, 0))
        elif name == "ipv6":
            fields.setdefault("payload_length", length - IPV6.bytes)
            fields.setdefault("next_header", _HEADER_TO_PROTOCOL.get(following, int(NextHeader.NONE)))
        elif name == "ipv4":
            fields.setdefault("total_length", length)
            fields.setdefault("protocol", _HEADER_TO_PROTOCOL.get(following, int(NextHeader.NONE)))
        elif name == "srh":
            fields.setdefault("next_header", _HEADER_TO_PROTOCOL.get(following, int(NextHeader.NONE)))
        elif name == "udp":
            fields.setdefault("length", length)
        for item in HEADERS[name].fields:
            if name != "ipv4" or item.name != "checksum":
                fields.setdefault(item.name, int(item.default))
        if name == "ipv4" and "checksum" not in fields:
            fields["checksum"] = ipv4_checksum(HEADER_CODECS["ipv4"].pack({**fields, "checksum": 0}))
        following = name
    headers = [HeaderValue(name, fields) for name, fields in zip(names, filled)]
    result = replace(packet, headers=headers, padding=padding)
    if packet.icrc == COMPUTE_ICRC:
        result.icrc = _computed_icrc(result)
    return result


def _computed_icrc(packet: Packet) -> int:
    names = [name for name, _ in packet.headers]
    if names[-1:] == ["udp"] or "udp" not in names:
        raise ValueError(f"an ICRC needs IP, UDP and BTH headers, got {', '.join(names) or 'none'}")
    frame = encode(replace(packet, icrc=None, trailing=b""))
    offset = ip_offset = udp_offset = 0
    for name in names:
        if name in ("ipv6", "ipv4"):
            ip_offset = offset
        elif name == "udp":
            udp_offset = offset
        offset += _SIZES[name]
    return int.from_bytes(icrc_bytes(frame, ip_offset, udp_offset, len(frame)), "big")


def build(
    *headers: tuple[str, Mapping[str, int]],
    payload: bytes = b"",
    icrc: int | None = COMPUTE_ICRC,
) -> bytes:
    """Make the bytes of a packet from headers whose absent fields are filled in by :func:`complete`.

    Parameters
    ----------
    *headers : tuple of (name, fields)
        Headers in wire order, from Ethernet or IP on.
    payload : bytes
        Payload; the pad is added.
    icrc : int or None
        ICRC to send, computed by default; None leaves it out.
    """
    start = "ethernet" if headers and headers[0][0] == "ethernet" else "ip"
    parts = [HeaderValue(name, dict(fields)) for name, fields in headers]
    return encode(complete(Packet(start, parts, payload=bytes(payload), icrc=icrc)))
