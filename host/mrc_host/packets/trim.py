"""Trim a packet the way a switch does instead of dropping it.

Source: profile.md 5 and 6 (sizes, DSCPs, outermost header); protocol.md 1.17; the two answers to whether a
switch corrects the IP length are both modelled.
"""

from __future__ import annotations

from mrc_rtl.wire import BTH, ETHERNET, IPV4, IPV6, METH, SRH, UDP, Dscp, EtherType, NextHeader

from .icrc import ipv4_checksum

__all__ = ["cut", "minimum_trim_size", "set_dscp", "trim"]


def _ip_version(frame: bytes) -> int:
    """Return the IP version behind Ethernet; raises ``ValueError`` for anything else."""
    if len(frame) > ETHERNET.bytes:
        ethertype = int.from_bytes(frame[12:14], "big")
        version = frame[ETHERNET.bytes] >> 4
        if (ethertype, version) in ((EtherType.IPV6, 6), (EtherType.IPV4, 4)):
            return version
    raise ValueError(f"frame must carry IPv6 or IPv4 behind Ethernet, got {frame[:15].hex()}")


def minimum_trim_size(frame: bytes) -> int:
    """Return the smallest size in bytes, from Ethernet on, that keeps this frame's METH.

    118 behind one outer IPv6 header, 78 without one; an SRH adds its 24 bytes.

    Raises
    ------
    ValueError
        For a frame that is not IP, or that ends before its UDP header.
    """
    following: int = NextHeader.IPV6 if _ip_version(frame) == 6 else NextHeader.IPV4
    offset = ETHERNET.bytes
    while following != NextHeader.UDP:
        if following == NextHeader.IPV6 and len(frame) >= offset + IPV6.bytes:
            following, offset = frame[offset + IPV6.byte_offset("next_header")], offset + IPV6.bytes
        elif following == NextHeader.IPV4 and len(frame) >= offset + IPV4.bytes:
            following, offset = frame[offset + IPV4.byte_offset("protocol")], offset + IPV4.bytes
        elif following == NextHeader.ROUTING and len(frame) >= offset + SRH.bytes:
            following, offset = frame[offset], offset + SRH.bytes
        else:
            raise ValueError(f"frame must reach a UDP header, got next header {following} at byte {offset}")
    return offset + UDP.bytes + BTH.bytes + METH.bytes


def set_dscp(frame: bytes, dscp: int) -> bytes:
    """Return the frame with another DSCP in its outermost IP header; ECN stays, IPv4 checksum follows.

    Raises
    ------
    ValueError
        For a DSCP outside 0 to 63 or a frame that is not IP.
    """
    if not 0 <= dscp <= 63:
        raise ValueError(f"dscp must be between 0 and 63, got {dscp}")
    changed = bytearray(frame)
    at = ETHERNET.bytes
    if _ip_version(frame) == 6:
        changed[at] = 0x60 | dscp >> 2
        changed[at + 1] = (dscp & 3) << 6 | changed[at + 1] & 0x3F
    else:
        changed[at + 1] = dscp << 2 | changed[at + 1] & 3
        changed[at + 10 : at + 12] = ipv4_checksum(changed[at : at + IPV4.bytes]).to_bytes(2, "big")
    return bytes(changed)


def cut(frame: bytes, size: int, correct_lengths: bool) -> bytes:
    """Return the first ``size`` bytes of a frame; a frame that is not longer stays as it is.

    Parameters
    ----------
    frame : bytes
        A frame of IP over Ethernet, without FCS.
    size : int
        Bytes to keep, from Ethernet on; at least the outermost IP header.
    correct_lengths : bool
        Whether the outermost IP header's length is corrected; inner lengths never are.

    Raises
    ------
    ValueError
        For a frame that is not IP over Ethernet.
    """
    version = _ip_version(frame)
    if size >= len(frame):
        return frame
    if not correct_lengths:
        return frame[:size]
    at = ETHERNET.bytes
    if version == 6:
        field_at, length = at + IPV6.byte_offset("payload_length"), size - at - IPV6.bytes
    else:
        field_at, length = at + IPV4.byte_offset("total_length"), size - at
    return frame[:field_at] + length.to_bytes(2, "big") + frame[field_at + 2 : size]


def trim(
    frame: bytes,
    size: int,
    correct_lengths: bool,
    last_hop: bool,
    dscp: int | None = None,
) -> bytes:
    """Cut a frame to ``size`` bytes and mark it as trimmed.

    A frame that is not longer than ``size`` is only marked: switches send it whole on the trim queue.

    Parameters
    ----------
    frame : bytes
        The frame from Ethernet on, without FCS.
    size : int
        Bytes to keep, from Ethernet on.
    correct_lengths : bool
        Whether the outermost IP header's length is corrected; inner lengths never are.
    last_hop : bool
        Whether the port leads to a NIC: DSCP TRIMMED_LASTHOP instead of TRIMMED.
    dscp : int or None
        DSCP to write instead of the default.

    Raises
    ------
    ValueError
        For a size that cuts off METH, with the minimum named; for a frame that is not IP over Ethernet.
    """
    minimum = minimum_trim_size(frame)
    if size < minimum:
        raise ValueError(f"trim size must be at least {minimum} bytes for this frame, got {size}")
    if dscp is None:
        dscp = Dscp.TRIMMED_LASTHOP if last_hop else Dscp.TRIMMED
    return set_dscp(cut(frame, size, correct_lengths), dscp)
