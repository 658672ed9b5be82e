"""Take a frame apart as far as its bytes go, and say what is wrong with it.

Source: protocol.md 1; profile.md 5 (trimmed and truncated packets) and 6 (SRH); RFC 8200, 791, 768, 8754.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection

from mrc_rtl.wire import (
    BTH,
    ETHERNET,
    HEADERS_AFTER_BTH,
    IPV4,
    SRH_ROUTING_TYPE,
    UDP,
    UDP_PORTS,
    EtherType,
    Mark,
    NackReason,
    NextHeader,
    Opcode,
    has_payload,
)

from .header_codec import HEADER_CODECS
from .icrc import icrc_bytes, ipv4_checksum
from .packet import TRIMMED_DSCPS, HeaderValue, Packet, Problem

__all__ = ["ETHERTYPE_TO_HEADER", "PROTOCOL_TO_HEADER", "STARTS", "decode", "recognise"]

STARTS = ("auto", "ethernet", "ip")
ETHERTYPE_TO_HEADER = {int(EtherType.IPV6): "ipv6", int(EtherType.IPV4): "ipv4"}
"""Header name behind Ethernet by EtherType."""
PROTOCOL_TO_HEADER = {
    int(NextHeader.UDP): "udp",
    int(NextHeader.IPV6): "ipv6",
    int(NextHeader.IPV4): "ipv4",
    int(NextHeader.ROUTING): "srh",
}
"""Header name by IPv6 next header or IPv4 protocol number."""
_VERSION_TO_HEADER = {6: "ipv6", 4: "ipv4"}
_MINIMUM_FRAME_BYTES = 60
_UNPACK = {name: (codec.header.bytes, codec.unpack) for name, codec in HEADER_CODECS.items()}
# The headers behind the BTH by opcode and ts bit, looked up once a packet.
_AFTER_BTH: dict[tuple[int, int], tuple[str, ...]] = {
    (int(opcode), ts): tuple(header.name for header in headers if ts or header.name != "tseth")
    for opcode, headers in HEADERS_AFTER_BTH.items()
    for ts in (0, 1)
}


def recognise(frame: bytes) -> str:
    """Tell whether the bytes start at Ethernet or at IP.

    An EtherType of IPv6 or IPv4 with the matching version nibble behind it, or a VLAN tag, means Ethernet;
    otherwise a first nibble of 6 or 4 means IP; anything else is Ethernet.
    """
    if len(frame) > ETHERNET.bytes:
        ethertype = int.from_bytes(frame[12:14], "big")
        nibble = frame[ETHERNET.bytes] >> 4
        if (ethertype, nibble) in ((EtherType.IPV6, 6), (EtherType.IPV4, 4)):
            return "ethernet"
        if ethertype in (EtherType.VLAN, EtherType.QINQ):
            return "ethernet"
    return "ip" if frame and frame[0] >> 4 in _VERSION_TO_HEADER else "ethernet"


def decode(
    frame: bytes | bytearray | memoryview,
    start: str = "auto",
    trimmed_dscps: Collection[int] = TRIMMED_DSCPS,
) -> Packet:
    """Take a frame or packet apart as far as its bytes go.

    Parameters
    ----------
    frame : bytes
        The bytes, with or without FCS.
    start : str
        ``"ethernet"``, ``"ip"``, or ``"auto"`` for :func:`recognise`.
    trimmed_dscps : collection of int
        DSCPs of the outermost IP header that mark a trimmed packet.

    Raises
    ------
    ValueError
        For another ``start``. Bytes never raise; see :attr:`Packet.problems`.
    """
    data = bytes(frame)
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
    if start == "auto":
        start = recognise(data)
    return _Decoder(data, Packet(start), trimmed_dscps).run()


class _Decoder:
    """State of one :func:`decode`: where it stands, where the packet ends, what it found."""

    __slots__ = (
        "data",
        "end",
        "headers",
        "ip_count",
        "ip_offset",
        "offset",
        "packet",
        "truncated",
        "trimmed_dscps",
    )

    def __init__(self, data: bytes, packet: Packet, trimmed_dscps: Collection[int]) -> None:
        self.data = data
        self.packet = packet
        self.headers = packet.headers
        self.trimmed_dscps = trimmed_dscps
        self.offset = 0
        self.end = len(data)
        self.ip_offset = 0
        self.ip_count = 0
        self.truncated = False

    def run(self) -> Packet:
        """Decode header after header, then the body."""
        packet = self.packet
        if packet.start == "ethernet":
            following = self._ethernet()
        else:
            following = self._version() if self.data else "ipv6"
        while following:
            if following == "ipv6":
                following = self._ipv6()
            elif following == "udp":
                following = self._udp()
            elif following == "bth":
                following = self._bth()
            elif following == "ipv4":
                following = self._ipv4()
            else:
                following = self._srh()
        if self.offset < self.end:
            packet.rest = self.data[self.offset : self.end]
        packet.trailing = self.data[self.end :]
        if packet.trailing and not packet.trimmed:
            self._check_trailing()
        return packet

    def _problem(self, byte: int, text: str) -> None:
        self.packet.problems.append(Problem(byte, text))

    def _take(self, name: str) -> dict[str, int] | None:
        """Decode one header and step behind it; None when its bytes are not all there."""
        size, unpack = _UNPACK[name]
        offset = self.offset
        if offset + size > self.end:
            self.packet.rest_of = name
            if not self.packet.trimmed:
                self._problem(self.end, f"{name} header needs {size} bytes, got {self.end - offset}")
            return None
        fields = unpack(self.data, offset)
        self.headers.append(HeaderValue(name, fields))
        self.offset = offset + size
        return fields

    def _ethernet(self) -> str:
        fields = self._take("ethernet")
        if fields is None:
            return ""
        ethertype = fields["ethertype"]
        following = ETHERTYPE_TO_HEADER.get(ethertype, "")
        if not following:
            tag = " (VLAN tag)" if ethertype in (EtherType.VLAN, EtherType.QINQ) else ""
            self._problem(12, f"ethertype must be 0x86dd or 0x800, got {ethertype:#x}{tag}")
        return following

    def _version(self) -> str:
        version = self.data[self.offset] >> 4
        following = _VERSION_TO_HEADER.get(version, "")
        if not following:
            self._problem(self.offset, f"IP version must be 6 or 4, got {version}")
        return following

    def _enter_ip(self, start: int, traffic_class: int) -> None:
        self.ip_offset = start
        self.ip_count += 1
        if self.ip_count == 1:
            self.packet.trimmed = traffic_class >> 2 in self.trimmed_dscps
        elif self.ip_count == 3:
            self._problem(start, "at most one encapsulation is allowed, got a third IP header")

    def _limit(self, field_at: int, what: str, end: int) -> None:
        """Take a stated end of the packet into account."""
        if end <= self.end:
            self.end = end
        elif not self.packet.trimmed and not self.truncated:
            self.truncated = True
            self._problem(field_at, f"{what} states {end - self.end} bytes more than are present")

    def _protocol(self, byte: int, protocol: int) -> str:
        following = PROTOCOL_TO_HEADER.get(protocol, "")
        if not following:
            self._problem(byte, f"next header must be 17, 41, 43 or 4, got {protocol}")
        return following

    def _ipv6(self) -> str:
        start = self.offset
        fields = self._take("ipv6")
        if fields is None:
            return ""
        if fields["version"] != 6:
            self._problem(start, f"IP version must be 6, got {fields['version']}")
        self._enter_ip(start, fields["traffic_class"])
        self._limit(start + 4, "payload_length", self.offset + fields["payload_length"])
        return self._protocol(start + 6, fields["next_header"])

    def _ipv4(self) -> str:
        start = self.offset
        fields = self._take("ipv4")
        if fields is None:
            return ""
        if fields["version"] != 4:
            self._problem(start, f"IP version must be 4, got {fields['version']}")
        self._enter_ip(start, fields["traffic_class"])
        if fields["ihl"] != 5:
            self._problem(start, f"ihl must be 5 (no options), got {fields['ihl']}")
            return ""
        expected = ipv4_checksum(self.data[start : self.offset])
        if fields["checksum"] != expected:
            self._problem(start + 10, f"IPv4 checksum must be {expected:#06x}, got {fields['checksum']:#06x}")
        if fields["more_fragments"] or fields["fragment_offset"]:
            self._problem(start + 6, "IPv4 fragments are not decoded")
            return ""
        if fields["total_length"] < IPV4.bytes:
            self._problem(start + 2, f"total_length must be at least 20, got {fields['total_length']}")
        else:
            self._limit(start + 2, "total_length", start + fields["total_length"])
        return self._protocol(start + 9, fields["protocol"])

    def _srh(self) -> str:
        start = self.offset
        if start + 4 <= self.end:
            extension, kind, left = self.data[start + 1 : start + 4]
            if kind != SRH_ROUTING_TYPE:
                self._problem(start + 2, f"routing type must be {SRH_ROUTING_TYPE} (SRH), got {kind}")
                return ""
            if extension != 2:
                self._problem(start + 1, f"hdr_ext_len must be 2 (one segment), got {extension}")
                return ""
            if left > 1:
                self._problem(start + 3, f"segments_left must be 0 or 1, got {left}")
        fields = self._take("srh")
        if fields is None:
            return ""
        if fields["last_entry"]:
            self._problem(start + 4, f"last_entry must be 0, got {fields['last_entry']}")
        return self._protocol(start, fields["next_header"])

    def _udp(self) -> str:
        start = self.offset
        fields = self._take("udp")
        if fields is None:
            return ""
        length = fields["length"]
        if length < UDP.bytes:
            self._problem(start + 4, f"udp length must be at least 8, got {length}")
        elif not self.packet.trimmed:
            if start + length < self.end:
                over = self.end - start - length
                self._problem(start + 4, f"udp length {length} leaves {over} bytes of the IP packet over")
            self._limit(start + 4, "udp length", start + length)
        port = fields["destination_port"]
        if port not in UDP_PORTS:
            self._problem(start + 2, f"UDP destination port must be 4791 or 4971, got {port}")
            return ""
        return "bth"

    def _bth(self) -> str:
        packet = self.packet
        start = self.offset
        icrc_at = self.end - 4
        if not packet.trimmed:
            packet.icrc_ok = False
        fields = self._take("bth")
        if fields is None:
            return ""
        opcode = fields["opcode"]
        whole = True
        names = _AFTER_BTH.get((opcode, fields["ts"]))
        if names is None:
            self._problem(start, f"opcode {opcode:#04x} is not an MRC opcode")
            whole = False
        else:
            for name in names:
                if self._take(name) is None:
                    whole = False
                    break
        if fields["tver"]:
            self._problem(start + 1, f"tver must be 0, got {fields['tver']}")
        if packet.trimmed or self.truncated:
            if whole and has_payload(opcode):
                packet.payload = self.data[self.offset : self.end]
                self.offset = self.end
            return ""
        if self.offset > icrc_at or (not whole and names is not None):
            if whole:
                self._problem(self.offset, f"ICRC needs 4 bytes, got {self.end - self.offset}")
            return ""
        present = self.data[icrc_at : self.end]
        packet.icrc = int.from_bytes(present, "big")
        # Which fields the ICRC masks depends on the version; a header without one was reported already.
        if self.data[self.ip_offset] >> 4 in _VERSION_TO_HEADER:
            expected = icrc_bytes(self.data, self.ip_offset, start - UDP.bytes, icrc_at)
            packet.icrc_ok = present == expected
            if not packet.icrc_ok:
                self._problem(icrc_at, f"ICRC must be {expected.hex()}, got {present.hex()}")
        if whole:
            self._body(start, icrc_at, opcode, fields["pad_count"])
        else:
            packet.rest = self.data[self.offset : icrc_at]
        self.offset = self.end
        return ""

    def _body(self, bth: int, icrc_at: int, opcode: int, pad: int) -> None:
        """Split payload and pad of a whole packet and check what the opcode demands."""
        packet = self.packet
        size = icrc_at - self.offset
        if pad > size:
            self._problem(bth + 1, f"pad_count {pad} exceeds the {size} bytes between headers and ICRC")
            pad = size
        elif size % 4:
            self._problem(icrc_at, f"payload and pad must be a multiple of 4 bytes, got {size}")
        packet.payload = self.data[self.offset : icrc_at - pad]
        packet.padding = self.data[icrc_at - pad : icrc_at]
        length = size - pad
        if not has_payload(opcode):
            if size:
                self._problem(self.offset, f"{packet.kind} carries no payload, got {size} bytes")
            self._check_control(bth)
            return
        dma_len = self.headers[-1 if self.headers[-1].name == "reth" else -2].fields["dma_len"]
        if opcode in (Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM):
            if dma_len != length:
                self._problem(self.offset, f"payload must be dma_len = {dma_len} bytes, got {length}")
        elif length > dma_len:
            self._problem(self.offset, f"payload must be at most dma_len = {dma_len} bytes, got {length}")
        if opcode in (Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE) and pad:
            self._problem(bth + 1, f"pad_count must be 0 in {packet.kind}, got {pad}")

    def _check_control(self, bth: int) -> None:
        packet = self.packet
        at = bth + BTH.bytes
        if "seth" in packet and packet["seth"]["m"] == Mark.RESERVED:
            self._problem(at + 1, "m must be 0 to 2, got 3")
        if "neth" in packet and packet["neth"]["nack_reason"] not in NackReason._value2member_map_:
            self._problem(at + 2, f"nack_reason {packet['neth']['nack_reason']:#x} is not known")

    def _check_trailing(self) -> None:
        """Name bytes behind the stated end, unless they are Ethernet's own: FCS, or fill to 60 bytes."""
        data, extra = self.data, self.packet.trailing
        if self.packet.start == "ethernet":
            if len(extra) == 4 and zlib.crc32(data[:-4]).to_bytes(4, "little") == extra:
                return
            if len(data) <= _MINIMUM_FRAME_BYTES and not any(extra):
                return
        self._problem(self.end, f"{len(extra)} bytes follow the end of the packet")
