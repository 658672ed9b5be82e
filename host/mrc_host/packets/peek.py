"""A quick look at a frame for simulation loops: few fields, no objects built for the rest.

Source: protocol.md 1.1 to 1.7 and 1.15; profile.md 5 (trimmed packets).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from mrc_rtl.wire import (
    BTH,
    ETHERNET,
    HEADERS_AFTER_BTH,
    ICRC,
    IPV4,
    IPV6,
    METH,
    SRH,
    UDP,
    UDP_PORTS,
    has_payload,
)

from .packet import TRIMMED_DSCPS

__all__ = ["FrameInfo", "peek"]


class FrameInfo(NamedTuple):
    """What a simulation loop wants to know of an MRC frame.

    Parameters
    ----------
    opcode, dest_qp, psn : int
        From the BTH.
    ack_req, rtx, ts : bool
        From the BTH.
    ev : int
        32-bit EV {UDP source port, flow label[15:0]} of the inner header.
    dscp : int
        DSCP of the outermost IP header.
    ecn : int
        ECN bits; CE when any IP header says CE, else those of the outermost header.
    trimmed : bool
        Whether the outermost DSCP says trimmed.
    encapsulated : bool
        Whether there is an outer IP header.
    payload_len : int
        Payload bytes of a write, from the UDP length; 0 for control and trimmed packets.
    msn : int or None
        METH.msn of a write that holds it.
    va : int or None
        RETH.va of a write that holds it.
    outer_offset, bth_offset : int
        Byte offsets of the outermost IP header and of the BTH.
    """

    opcode: int
    dest_qp: int
    psn: int
    ack_req: bool
    rtx: bool
    ts: bool
    ev: int
    dscp: int
    ecn: int
    trimmed: bool
    encapsulated: bool
    payload_len: int
    msn: int | None
    va: int | None
    outer_offset: int
    bth_offset: int


_ETHERTYPE = Struct(">H").unpack_from
_IPV6_START = Struct(">IxxB").unpack_from
_UDP_BTH = Struct(">HHHxxBBxxII").unpack_from
_MSN = Struct(">xxH").unpack_from
_VA = Struct(">Q").unpack_from
_UDP_BTH_BYTES = UDP.bytes + BTH.bytes
# Bytes of headers behind the BTH and offset of RETH from the BTH, by opcode with and without ts.
_AFTER_BTH = {
    int(opcode): tuple(sum(h.bytes for h in headers if ts or h.name != "tseth") for ts in (0, 1))
    for opcode, headers in HEADERS_AFTER_BTH.items()
}
_WRITES = frozenset(opcode for opcode in _AFTER_BTH if has_payload(opcode))
_METH_AT = BTH.bytes
_RETH_AT = BTH.bytes + METH.bytes


def peek(frame: bytes, offset: int = ETHERNET.bytes) -> FrameInfo | None:
    """Look into a frame; None when it is not MRC or ends before the BTH does.

    The ICRC, lengths and address fields are not checked: this is for traffic a simulation made itself.

    Parameters
    ----------
    frame : bytes
        A frame from Ethernet on, or a packet from IP on with ``offset`` 0.
    offset : int
        Byte offset of the outermost IP header.
    """
    size = len(frame)
    if size < offset + IPV4.bytes + _UDP_BTH_BYTES:
        return None
    outer = offset
    traffic_class = flow_label = -1
    congested = False
    headers = 0
    following = 41 if frame[offset] >> 4 == 6 else 4
    while following != 17:
        if following == 41:
            if size < offset + IPV6.bytes:
                return None
            word, following = _IPV6_START(frame, offset)
            if word >> 28 != 6:
                return None
            here = word >> 20 & 0xFF
            flow_label = word & 0xFFFF
            offset += IPV6.bytes
        elif following == 43:
            if size < offset + SRH.bytes or frame[offset + 1] != 2:
                return None
            following = frame[offset]
            offset += SRH.bytes
            continue
        elif following == 4:
            if size < offset + IPV4.bytes or frame[offset] != 0x45:
                return None
            here = frame[offset + 1]
            flow_label = 0
            following = frame[offset + 9]
            offset += IPV4.bytes
        else:
            return None
        headers += 1
        if traffic_class < 0:
            traffic_class = here
        congested = congested or here & 3 == 3
    bth = offset + UDP.bytes
    if size < bth + BTH.bytes:
        return None
    source_port, destination_port, length, opcode, flags, dest_qp, flags_psn = _UDP_BTH(frame, offset)
    after_bth = _AFTER_BTH.get(opcode)
    if after_bth is None or destination_port not in UDP_PORTS:
        return None
    ts = flags_psn >> 28 & 1
    dscp = traffic_class >> 2
    trimmed = dscp in TRIMMED_DSCPS
    payload_len = 0
    msn = va = None
    if opcode in _WRITES:
        if not trimmed:
            payload_len = length - _UDP_BTH_BYTES - after_bth[ts] - (flags >> 4 & 3) - ICRC.bytes
        if size >= bth + _RETH_AT:
            (msn,) = _MSN(frame, bth + _METH_AT)
            reth = bth + _RETH_AT + 4 * ts
            if size >= reth + 8:
                (va,) = _VA(frame, reth)
    return FrameInfo(
        opcode,
        dest_qp & 0xFFFFFF,
        flags_psn & 0xFFFFFF,
        flags_psn >> 31 == 1,
        flags_psn >> 29 & 1 == 1,
        ts == 1,
        source_port << 16 | flow_label,
        dscp,
        3 if congested else traffic_class & 3,
        trimmed,
        headers > 1,
        payload_len,
        msn,
        va,
        outer,
        bth,
    )
