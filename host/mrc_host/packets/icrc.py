"""Invariant CRC of RoCEv2 and MRC packets, and the IPv4 header checksum.

CRC-32 (``zlib.crc32``) over eight bytes of ones, the IP header next to UDP with its variant fields set to
ones, UDP with its checksum set to ones, BTH with byte 4 set to ones, and everything from there to the pad.
The result is sent least significant byte first. Under SRv6 the **inner** IP header is used, because the
outer destination changes at every switch.

Source: protocol.md 1.18; IBTA volume 1 annex A17 (RoCEv2); RFC 791 and 1071 for the IPv4 checksum.
"""

from __future__ import annotations

import zlib

from mrc_rtl.wire import BTH, ICRC_MASKED_PREFIX, IPV4, IPV6, UDP

__all__ = ["icrc_bytes", "icrc_value", "ipv4_checksum"]

_IPV6_PREFIX = ICRC_MASKED_PREFIX + b"\x6f\xff\xff\xff"
_VAR_RES = BTH.byte_offset("var_res")
_CHECKSUM = UDP.byte_offset("checksum")


def icrc_value(frame: bytes, ip_offset: int, udp_offset: int, end: int) -> int:
    """Compute the ICRC as the number CRC-32 yields; on the wire its least significant byte goes first.

    Parameters
    ----------
    frame : bytes
        The frame or packet.
    ip_offset, udp_offset : int
        Byte offsets of the IP header next to UDP and of UDP itself.
    end : int
        Byte offset behind the pad, where the ICRC stands or will stand.

    Raises
    ------
    ValueError
        When the frame ends before the BTH does or the header at ``ip_offset`` is not IPv4 or IPv6.
    """
    bth_offset = udp_offset + UDP.bytes
    if end < bth_offset + BTH.bytes or len(frame) < end:
        raise ValueError(
            f"ICRC needs the bytes up to the end of the BTH at {bth_offset + BTH.bytes}, "
            f"got {min(end, len(frame))} bytes"
        )
    version = frame[ip_offset] >> 4
    if version == 6:
        masked = (
            _IPV6_PREFIX
            + frame[ip_offset + 4 : ip_offset + 7]
            + b"\xff"
            + frame[ip_offset + 8 : ip_offset + IPV6.bytes]
        )
    elif version == 4:
        header = bytearray(frame[ip_offset : ip_offset + IPV4.bytes])
        header[1] = header[8] = header[10] = header[11] = 0xFF
        masked = ICRC_MASKED_PREFIX + header
    else:
        raise ValueError(f"IP version must be 4 or 6, got {version}")
    masked += (
        frame[udp_offset : udp_offset + _CHECKSUM]
        + b"\xff\xff"
        + frame[bth_offset : bth_offset + _VAR_RES]
        + b"\xff"
    )
    return zlib.crc32(memoryview(frame)[bth_offset + _VAR_RES + 1 : end], zlib.crc32(masked))


def icrc_bytes(frame: bytes, ip_offset: int, udp_offset: int, end: int) -> bytes:
    """Compute the four bytes of the ICRC as they stand on the wire; parameters as :func:`icrc_value`."""
    return icrc_value(frame, ip_offset, udp_offset, end).to_bytes(4, "little")


def ipv4_checksum(header: bytes | bytearray) -> int:
    """Compute the checksum of an IPv4 header, whose own checksum bytes are left out (RFC 791)."""
    total = sum(int.from_bytes(header[at : at + 2], "big") for at in range(0, len(header), 2) if at != 10)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF
