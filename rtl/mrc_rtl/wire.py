"""Header layouts, opcodes and code points of MRC on the wire, as plain data.

This module is the only place where header layouts are written down. The gateware's struct layouts
(:mod:`mrc_rtl.layouts`) and the host's packet codec are both built from it. It imports nothing but the
standard library.

Conventions
-----------
* A :class:`Header` lists its fields in network order: the first field holds the most significant bits of
  the first byte. ``Field.kind`` says how a value is shown and whether it is signed.
* Sizes are in bits where a name says ``bits`` and in bytes where it says ``bytes``.

Source: profile.md 2, 3 and 6; protocol.md 1.1 to 1.18; RFC 768, 791, 8200, 8754, 9800; IBTA volume 1 for
the BTH, RETH, ImmDt and AETH layouts and the RoCEv2 annex for the ICRC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

__all__ = [
    "AETH",
    "AETH_NAK_MASK",
    "BTH",
    "CC_STATE",
    "EETH",
    "ENDPOINT_QPN",
    "ERTH",
    "ETHERNET",
    "EV",
    "EV_BITS",
    "FCS_BYTES",
    "GAP_PREAMBLE_FCS_BYTES",
    "HEADERS",
    "HEADERS_AFTER_BTH",
    "HOP_LIMIT",
    "ICRC",
    "ICRC_FINAL_XOR",
    "ICRC_INITIAL",
    "ICRC_MASKED_PREFIX",
    "ICRC_POLYNOMIAL",
    "ICRC_POLYNOMIAL_REFLECTED",
    "IMMDT",
    "IPV4",
    "IPV6",
    "MAC",
    "METH",
    "MPR_UNIT_PSNS",
    "MTU_CHOICES",
    "NETH",
    "PETH",
    "PKEY_DEFAULT",
    "PSN_BITS",
    "PSN_MASK",
    "RCVD_BYTES_UNIT",
    "RETH",
    "SACK_BITMAP_BITS",
    "SETH",
    "SRH",
    "INNER_PREFIX",
    "SRH_ROUTING_TYPE",
    "TIMESTAMP_TICK_NS",
    "TRIM_SIZES",
    "TRIM_SIZE_DEFAULT",
    "TRIM_SIZE_MINIMUM",
    "TSETH",
    "UDP",
    "UDP_PORTS",
    "UDP_PORT_MRC",
    "UDP_PORT_ROCE",
    "USID",
    "USID_BLOCK",
    "USID_BLOCK_BITS",
    "USID_BITS",
    "USID_PER_ADDRESS",
    "AethSyndrome",
    "Dscp",
    "Ecn",
    "EndpointOp",
    "EtherType",
    "EvState",
    "Field",
    "Header",
    "Mark",
    "NackReason",
    "NextHeader",
    "Opcode",
    "Tier",
    "ev_value",
    "fixed_headers_bytes",
    "has_immediate",
    "has_payload",
    "headers_after_bth",
    "inner_address",
    "is_first",
    "is_last",
    "is_write",
    "mac_address",
    "outer_address",
    "usid_value",
]


@dataclass(frozen=True)
class Field:
    """One field of a header.

    Parameters
    ----------
    name : str
        Field name; those of protocol.md and of the test vectors.
    bits : int
        Width in bits.
    kind : str
        ``"unsigned"``, ``"signed"`` (two's complement), ``"hex"`` (unsigned, shown in hexadecimal),
        ``"mac"``, ``"ipv4"``, ``"ipv6"`` (hexadecimal addresses) or ``"reserved"`` (sent as 0).
    default : int
        Value a sender writes when none is given.
    """

    name: str
    bits: int
    kind: str = "unsigned"
    default: int = 0

    @property
    def signed(self) -> bool:
        """Whether the value is two's complement."""
        return self.kind == "signed"

    @property
    def mask(self) -> int:
        """All ones over the width."""
        return (1 << self.bits) - 1


@dataclass(frozen=True)
class Header:
    """A header: a name and its fields in network order.

    Parameters
    ----------
    name : str
        Lower case name, as used in the JSON form of a packet.
    fields : tuple of Field
        First field first on the wire, most significant bit first.

    Members
    -------
    bits, bytes : int
        Width of the header in bits, and in whole bytes.

    Raises
    ------
    ValueError
        When two fields share a name.
    """

    name: str
    fields: tuple[Field, ...]
    bits: int = field(init=False, repr=False, compare=False)
    bytes: int = field(init=False, repr=False, compare=False)
    _offsets: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        offset = 0
        for item in self.fields:
            if item.name in self._offsets:
                raise ValueError(f"field names of header {self.name} must differ, got {item.name!r} twice")
            self._offsets[item.name] = offset
            offset += item.bits
        # A frozen dataclass sets its derived attributes this way; they are read in simulation loops.
        object.__setattr__(self, "bits", offset)
        object.__setattr__(self, "bytes", offset // 8)

    def offset(self, name: str) -> int:
        """Bit offset of field ``name`` from the first bit on the wire (0 is the most significant bit)."""
        return self._offsets[name]

    def byte_offset(self, name: str) -> int:
        """Offset of the byte in which field ``name`` starts."""
        return self._offsets[name] // 8

    def shift(self, name: str) -> int:
        """Bits to shift the big-endian integer of the header right to reach field ``name``."""
        return self.bits - self._offsets[name] - self[name].bits

    def __getitem__(self, name: str) -> Field:
        for item in self.fields:
            if item.name == name:
                return item
        raise KeyError(f"header {self.name} has fields {', '.join(self._offsets)}; got {name!r}")

    def pack(self, values: Mapping[str, int] | None = None, **more: int) -> int:
        """Build the big-endian integer of the header; fields not given take their default.

        Raises
        ------
        KeyError
            For a name the header does not have.
        ValueError
            For a value that does not fit its field.
        """
        given = {**(values or {}), **more}
        for name in given:
            if name not in self._offsets:
                raise KeyError(f"header {self.name} has fields {', '.join(self._offsets)}; got {name!r}")
        result = 0
        for item in self.fields:
            value = given.get(item.name, item.default)
            low, high = (-(1 << (item.bits - 1)), item.mask >> 1) if item.signed else (0, item.mask)
            if not low <= value <= high:
                raise ValueError(
                    f"{self.name}.{item.name} must be between {low} and {high:#x}, got {value:#x}"
                )
            result = result << item.bits | value & item.mask
        return result

    def unpack(self, integer: int) -> dict[str, int]:
        """Split the big-endian integer of the header into its fields (inverse of :meth:`pack`)."""
        values: dict[str, int] = {}
        shift = self.bits
        for item in self.fields:
            shift -= item.bits
            value = integer >> shift & item.mask
            if item.signed and value >> (item.bits - 1):
                value -= 1 << item.bits
            values[item.name] = value
        return values


# --------------------------------------------------------------------------------------------------------
# Code points


class EtherType(IntEnum):
    """EtherTypes the project knows."""

    IPV4 = 0x0800
    IPV6 = 0x86DD
    VLAN = 0x8100
    QINQ = 0x88A8


class NextHeader(IntEnum):
    """IPv6 next header and IPv4 protocol numbers (IANA)."""

    IPV4 = 4
    UDP = 17
    IPV6 = 41
    ROUTING = 43
    NONE = 59


class Opcode(IntEnum):
    """BTH opcodes of MRC; the class bits [7:5] are 0b110 (protocol.md 1.4)."""

    WRITE_FIRST = 0xC6
    WRITE_MIDDLE = 0xC7
    WRITE_LAST = 0xC8
    WRITE_LAST_IMM = 0xC9
    WRITE_ONLY = 0xCA
    WRITE_ONLY_IMM = 0xCB
    ACKNOWLEDGE = 0xD1
    ENDPOINT_REQUEST = 0xD8
    ENDPOINT_RESPONSE = 0xD9
    SACK = 0xDC
    NACK = 0xDD
    PROBE = 0xDE


class NackReason(IntEnum):
    """Reasons of a Reliability NACK (protocol.md 1.11)."""

    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    UNEXP_EVENT = 0x19


class AethSyndrome(IntEnum):
    """AETH syndrome bytes MRC sends (protocol.md 1.9); the credit field of an ACK is always 0x1F."""

    ACK = 0x1F
    NAK_PSN_SEQUENCE = 0x60
    NAK_INVALID_REQUEST = 0x61
    NAK_REMOTE_ACCESS = 0x62
    NAK_REMOTE_OPERATIONAL = 0x63


class Mark(IntEnum):
    """Values of SETH.m: what the responder saw on the triggering packet's path (protocol.md 1.10)."""

    NONE = 0
    SKIP_ONCE = 1
    ALWAYS_SKIP = 2
    RESERVED = 3


class EndpointOp(IntEnum):
    """Values of ERTH.op and EETH.op on the wire (protocol.md 1.13; the API counts the other way round)."""

    PORT_STATUS_UPDATE = 0
    EV_PROBE = 1


class EvState(IntEnum):
    """State of an EV as the two bits {good, skip} of profile.md 3.

    ASSUMED_BAD and DENIED share the code 0b00 in the word the scheduler reads: neither may be used. Which
    of the two it is stands in the profile's deny list.
    """

    ASSUMED_BAD = 0b00
    DENIED = 0b00
    BACKUP = 0b01
    GOOD = 0b10
    SKIP = 0b11


class Dscp(IntEnum):
    """Default DSCP of each traffic class (profile.md 6); every one is a CSR."""

    NO_TRIM = 4
    TRIMMABLE = 8
    RETX = 10
    TRIMMED = 12
    TRIMMED_LASTHOP = 16
    CONTROL = 46


class Ecn(IntEnum):
    """ECN code points, bits [1:0] of the traffic class (RFC 3168)."""

    NOT_ECT = 0b00
    ECT1 = 0b01
    ECT0 = 0b10
    CE = 0b11


class Tier(IntEnum):
    """Tier codes inside a uSID (profile.md 2)."""

    T0 = 0
    T1 = 1
    HOST = 2
    T2 = 3


AETH_NAK_MASK = 0xE0
"""Bits [7:5] of the AETH syndrome: 0b000 ACK, 0b011 NAK."""

UDP_PORT_ROCE = 4791
UDP_PORT_MRC = 4971
UDP_PORTS = (UDP_PORT_ROCE, UDP_PORT_MRC)
"""Destination ports a receiver accepts (protocol.md 7-Q1); the first is the default of a sender."""

PKEY_DEFAULT = 0xFFFF
ENDPOINT_QPN = 2
"""QPN of MRC endpoint operations."""

PSN_BITS = 24
PSN_MASK = (1 << PSN_BITS) - 1
SACK_BITMAP_BITS = 64
MPR_UNIT_PSNS = 128
"""SETH.mpr counts this many PSNs."""
RCVD_BYTES_UNIT = 256
"""CC_STATE.rcvd_bytes counts this many bytes."""
TIMESTAMP_TICK_NS = 128
"""Unit of tx_timestamp while tsr is 0."""
MTU_CHOICES = (256, 512, 1024, 2048, 4096)
HOP_LIMIT = 64
EV_BITS = 32
FCS_BYTES = 4
GAP_PREAMBLE_FCS_BYTES = 24
"""Bytes a frame occupies on a link beside the frame without FCS: preamble 8, FCS 4, gap 12."""

TRIM_SIZES = (118, 128, 138, 206, 256)
"""Trim sizes offered, in bytes of the frame from Ethernet without FCS (profile.md 6)."""
TRIM_SIZE_DEFAULT = 128
TRIM_SIZE_MINIMUM = 118
"""Smallest trim size that keeps METH behind one outer IPv6 header."""

ICRC_POLYNOMIAL = 0x04C11DB7
ICRC_POLYNOMIAL_REFLECTED = 0xEDB88320
ICRC_INITIAL = 0xFFFFFFFF
ICRC_FINAL_XOR = 0xFFFFFFFF
ICRC_MASKED_PREFIX = b"\xff" * 8
"""Eight bytes of ones that stand for the InfiniBand LRH at the start of the ICRC (protocol.md 1.18)."""

SRH_ROUTING_TYPE = 4


# --------------------------------------------------------------------------------------------------------
# Headers


def _header(name: str, *fields: tuple[str, int] | tuple[str, int, str] | tuple[str, int, str, int]) -> Header:
    return Header(name, tuple(Field(*item) for item in fields))


ETHERNET = _header(
    "ethernet",
    ("destination", 48, "mac"),
    ("source", 48, "mac"),
    ("ethertype", 16, "hex", EtherType.IPV6),
)

IPV6 = _header(
    "ipv6",
    ("version", 4, "unsigned", 6),
    ("traffic_class", 8, "hex"),
    ("flow_label", 20, "hex"),
    ("payload_length", 16),
    ("next_header", 8, "unsigned", NextHeader.UDP),
    ("hop_limit", 8, "unsigned", HOP_LIMIT),
    ("source", 128, "ipv6"),
    ("destination", 128, "ipv6"),
)

IPV4 = _header(
    "ipv4",
    ("version", 4, "unsigned", 4),
    ("ihl", 4, "unsigned", 5),
    ("traffic_class", 8, "hex"),
    ("total_length", 16),
    ("identification", 16, "hex"),
    ("reserved", 1, "reserved"),
    ("dont_fragment", 1, "unsigned", 1),
    ("more_fragments", 1),
    ("fragment_offset", 13),
    ("ttl", 8, "unsigned", HOP_LIMIT),
    ("protocol", 8, "unsigned", NextHeader.UDP),
    ("checksum", 16, "hex"),
    ("source", 32, "ipv4"),
    ("destination", 32, "ipv4"),
)

# Reduced form, RFC 8754 4.1: the first segment stands in the destination address only.
SRH = _header(
    "srh",
    ("next_header", 8, "unsigned", NextHeader.IPV6),
    ("hdr_ext_len", 8, "unsigned", 2),
    ("routing_type", 8, "unsigned", SRH_ROUTING_TYPE),
    ("segments_left", 8, "unsigned", 1),
    ("last_entry", 8, "unsigned", 0),
    ("flags", 8, "hex"),
    ("tag", 16, "hex"),
    ("segment", 128, "ipv6"),
)

UDP = _header(
    "udp",
    ("source_port", 16, "hex"),
    ("destination_port", 16, "unsigned", UDP_PORT_ROCE),
    ("length", 16),
    ("checksum", 16, "hex"),
)

BTH = _header(
    "bth",
    ("opcode", 8, "hex"),
    ("solicited", 1),
    ("mig_req", 1),
    ("pad_count", 2),
    ("tver", 4),
    ("pkey", 16, "hex", PKEY_DEFAULT),
    ("var_res", 8, "reserved"),
    ("dest_qp", 24, "hex"),
    ("ack_req", 1),
    ("reserved", 1, "reserved"),
    ("rtx", 1),
    ("ts", 1),
    ("inv_res", 4, "reserved"),
    ("psn", 24, "hex"),
)

METH = _header(
    "meth",
    ("rqmsn", 16),
    ("msn", 16),
)

TSETH = _header(
    "tseth",
    ("tx_timestamp", 16, "hex"),
    ("tsr", 1),
    ("reserved", 11, "reserved"),
    ("ftype", 4, "unsigned", 1),
)

RETH = _header(
    "reth",
    ("va", 64, "hex"),
    ("rkey", 32, "hex"),
    ("dma_len", 32),
)

IMMDT = _header(
    "immdt",
    ("imm", 32, "hex"),
)

AETH = _header(
    "aeth",
    ("syndrome", 8, "hex", AethSyndrome.ACK),
    ("msn", 24),
)

SETH = _header(
    "seth",
    ("type", 4),
    ("nxt", 5),
    ("m", 2),
    ("reserved0", 3, "reserved"),
    ("pr", 1),
    ("reserved1", 1, "reserved"),
    ("ack_psn_offset", 16, "signed"),
    ("entropy", 32, "hex"),
    ("spdcid", 16, "hex"),
    ("dpdcid", 16, "hex"),
    ("reserved2", 8, "reserved"),
    ("cack_psn", 24, "hex"),
    ("cc_type", 4),
    ("cc_fl", 4, "hex"),
    ("mpr", 8),
    ("sack_offset", 16, "signed"),
    ("sack_bitmap", 64, "hex"),
)

CC_STATE = _header(
    "cc_state",
    ("tx_timestamp", 16, "hex"),
    ("reserved", 1, "reserved"),
    ("ooo_count", 15),
    ("restore_cwnd", 1),
    ("rcv_cwnd_pen", 7),
    ("rcvd_bytes", 24),
)

NETH = _header(
    "neth",
    ("type", 4),
    ("nxt", 5),
    ("reserved0", 7, "reserved"),
    ("nack_reason", 8, "hex"),
    ("vendor_info", 8, "hex"),
    ("entropy", 32, "hex"),
    ("spdcid", 16, "hex"),
    ("dpdcid", 16, "hex"),
    ("reserved1", 8, "reserved"),
    ("nack_psn", 24, "hex"),
    ("cc_type", 4, "unsigned", 2),
    ("cc_fl", 4, "hex"),
    ("reserved2", 8, "reserved"),
    ("tx_timestamp", 16, "hex"),
)

PETH = _header(
    "peth",
    ("type", 4),
    ("nxt", 5),
    ("reserved0", 7, "reserved"),
    ("reserved1", 8, "reserved"),
    ("vendor_info", 8, "hex"),
    ("probe_id", 16, "hex"),
    ("reserved2", 16, "reserved"),
    ("spdcid", 16, "hex"),
    ("dpdcid", 16, "hex"),
    ("tx_timestamp", 16, "hex"),
    ("tsr", 1),
    ("reserved3", 11, "reserved"),
    ("ftype", 4, "unsigned", 1),
)

ERTH = _header(
    "erth",
    ("type", 4),
    ("nxt", 5),
    ("reserved0", 5, "reserved"),
    ("op", 2),
    ("reserved1", 8, "reserved"),
    ("vendor_info", 8, "hex"),
    ("port_status_mask", 32, "hex"),
    ("reserved2", 32, "reserved"),
    ("tx_timestamp", 16, "hex"),
    ("tsr", 1),
    ("reserved3", 11, "reserved"),
    ("ftype", 4, "unsigned", 1),
)

# op at bits [3:2] of the first half-word, as protocol.md 7-Q3 chooses; receivers do not read it.
EETH = _header(
    "eeth",
    ("type", 4),
    ("nxt", 5),
    ("reserved0", 3, "reserved"),
    ("op", 2),
    ("reserved1", 2, "reserved"),
    ("reserved2", 16, "reserved"),
    ("reserved3", 192, "reserved"),
    ("tx_timestamp", 16, "hex"),
    ("reserved4", 16, "reserved"),
    ("reserved5", 32, "reserved"),
)

# The value is CRC-32 sent least significant byte first; here it is the big-endian integer of those bytes.
ICRC = _header(
    "icrc",
    ("icrc", 32, "hex"),
)

HEADERS: dict[str, Header] = {
    header.name: header
    for header in (
        ETHERNET,
        IPV6,
        IPV4,
        SRH,
        UDP,
        BTH,
        METH,
        TSETH,
        RETH,
        IMMDT,
        AETH,
        SETH,
        CC_STATE,
        NETH,
        PETH,
        ERTH,
        EETH,
        ICRC,
    )
}
"""Every header by name."""

HEADERS_AFTER_BTH: dict[Opcode, tuple[Header, ...]] = {
    Opcode.WRITE_FIRST: (METH, TSETH, RETH),
    Opcode.WRITE_MIDDLE: (METH, TSETH, RETH),
    Opcode.WRITE_LAST: (METH, TSETH, RETH),
    Opcode.WRITE_LAST_IMM: (METH, TSETH, RETH, IMMDT),
    Opcode.WRITE_ONLY: (METH, TSETH, RETH),
    Opcode.WRITE_ONLY_IMM: (METH, TSETH, RETH, IMMDT),
    Opcode.ACKNOWLEDGE: (AETH,),
    Opcode.ENDPOINT_REQUEST: (ERTH,),
    Opcode.ENDPOINT_RESPONSE: (EETH,),
    Opcode.SACK: (SETH, CC_STATE),
    Opcode.NACK: (NETH,),
    Opcode.PROBE: (PETH,),
}
"""Headers behind the BTH by opcode; TSETH of a write is there only while BTH.ts is 1."""


def headers_after_bth(opcode: Opcode, ts: bool) -> tuple[Header, ...]:
    """Return the headers behind the BTH that are really there, given the BTH's ts bit."""
    return tuple(header for header in HEADERS_AFTER_BTH[opcode] if header is not TSETH or ts)


def fixed_headers_bytes(opcode: Opcode, ts: bool, srv6: bool) -> int:
    """Bytes from Ethernet to the last header before the payload; ``srv6`` adds one outer IPv6 header."""
    stack = ETHERNET.bytes + IPV6.bytes * (2 if srv6 else 1) + UDP.bytes + BTH.bytes
    return stack + sum(header.bytes for header in headers_after_bth(opcode, ts))


def is_write(opcode: int) -> bool:
    """Whether the opcode is one of the six writes."""
    return Opcode.WRITE_FIRST <= opcode <= Opcode.WRITE_ONLY_IMM


def has_payload(opcode: int) -> bool:
    """Whether a packet of this opcode carries payload."""
    return is_write(opcode)


def has_immediate(opcode: int) -> bool:
    """Whether the packet carries ImmDt."""
    return opcode in (Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM)


def is_first(opcode: int) -> bool:
    """Whether the packet is the first of its message."""
    return opcode in (Opcode.WRITE_FIRST, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM)


def is_last(opcode: int) -> bool:
    """Whether the packet is the last of its message."""
    return opcode in (Opcode.WRITE_LAST, Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM)


# --------------------------------------------------------------------------------------------------------
# Addresses and entropy values

USID_BITS = 16
USID_BLOCK_BITS = 32
USID_BLOCK = 0x5F000000
"""Locator block 5f00:0::/32 of the uSIDs (profile.md 2)."""
USID_PER_ADDRESS = (128 - USID_BLOCK_BITS) // USID_BITS

USID = _header("usid", ("zero", 1), ("plane", 3), ("tier", 2), ("index", 10))
"""A uSID of profile.md 2; index counts from 1, an all-zero uSID ends the list."""

EV = _header("ev", ("prefix", 2, "unsigned", 0b11), ("zero", 3), ("plane", 3), ("uplink", 8), ("replica", 16))
"""The 32-bit wire EV in SRv6 mode (profile.md 3): upper half UDP source port, lower half flow label."""

MAC = _header("mac", ("prefix", 24, "hex", 0x020000), ("plane", 8), ("host", 16))
"""MAC address of a NIC port (profile.md 2)."""

INNER_PREFIX = 0xFD00_0000_0000 << 80
"""fd00:0:0::/48: the fourth group of an inner address is the host, the last one is 1."""


def usid_value(plane: int, tier: int, index: int) -> int:
    """Return the 16-bit uSID of a node; ``index`` counts from 1 to 1023."""
    if index < 1:
        raise ValueError(f"uSID index must be between 1 and 1023, got {index}")
    return USID.pack(plane=plane, tier=tier, index=index)


def ev_value(plane: int, uplink: int, replica: int = 0) -> int:
    """Return the 32-bit wire EV of SRv6 mode; ``plane`` counts from 0, ``uplink`` is the T1's index."""
    return EV.pack(plane=plane, uplink=uplink, replica=replica)


def mac_address(plane: int, host: int) -> int:
    """Return the MAC address of host ``host`` on plane ``plane`` (counted from 0) as a 48-bit integer."""
    return MAC.pack(plane=plane, host=host)


def inner_address(host: int) -> int:
    """Return fd00:0:0:<host>::1, the address of a host that is valid on every plane."""
    if not 0 <= host <= 0xFFFF:
        raise ValueError(f"host must be between 0 and 65535, got {host}")
    return INNER_PREFIX | host << 64 | 1


def outer_address(usids: Iterable[int]) -> int:
    """Return the IPv6 address that is the uSID block followed by the given uSIDs, zero filled."""
    carrier = tuple(usids)
    if len(carrier) > USID_PER_ADDRESS:
        raise ValueError(f"an address holds at most {USID_PER_ADDRESS} uSIDs, got {len(carrier)}")
    value = USID_BLOCK
    for usid in carrier + (0,) * (USID_PER_ADDRESS - len(carrier)):
        value = value << USID_BITS | usid
    return value << (128 - USID_BLOCK_BITS - USID_BITS * USID_PER_ADDRESS)
