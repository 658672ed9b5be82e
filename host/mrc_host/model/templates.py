"""Header templates: what a QP's frames have in common, kept ready for every plane and uplink."""

from __future__ import annotations

from struct import Struct
from typing import Final

from mypy_extensions import i64

from mrc_host.fabric.packet import HOPS_MAXIMUM
from mrc_rtl import wire
from mrc_rtl.tables import TEMPLATE_IMAGE_OFFSET, TEMPLATE_WORDS, Encapsulation

__all__ = ["OUTER_ADDRESSES", "Template", "TemplateTable"]

OUTER_ADDRESSES = 32
"""Bytes of an IPv6 source and destination."""

_ADDRESS = Struct(">QQ")
_ADDRESS_AT = wire.IPV6.byte_offset("source")
_UPLINK_MASK: Final = int(wire.EV["uplink"].mask)
_UPLINK_LOW: Final = int(wire.EV.shift("uplink"))
_PLANE_LOW = wire.USID.shift("plane")


class Template:
    """One QP's template, taken apart.

    Parameters
    ----------
    words : list of int
        The row of table TEMPLATE, see :data:`mrc_rtl.tables.TEMPLATE_IMAGE_OFFSET`.

    Attributes
    ----------
    encapsulated : bool
        SRv6: there is an outer header.
    inner : bytes
        Inner source and destination, 32 bytes.
    source, destination : int
        The same as integers.
    source_host, destination_host : int
        Numbers of the hosts in them.
    udp_port, partition_key, destination_qpn : int
    hop_limit, outer_hop_limit : int
    reaches_all : bool
        There is an outer header whose destination alone decides the way: its hops do not run out.
    """

    __slots__ = (
        "_keys",
        "_known",
        "_outer_destination",
        "_outer_source",
        "_plane_mask",
        "_uplink_mask",
        "destination",
        "destination_host",
        "destination_qpn",
        "encapsulated",
        "hop_limit",
        "inner",
        "outer_hop_limit",
        "partition_key",
        "reaches_all",
        "source",
        "source_host",
        "udp_port",
    )

    def __init__(self, words: list[int]) -> None:
        image = b"".join(word.to_bytes(8, "little") for word in words)
        self.encapsulated: bool = image[0] == Encapsulation.SRV6
        self._plane_mask: int = image[1]
        self._uplink_mask: int = image[2]
        self._known: dict[int, bytes] = {}
        self._keys: list[bytes | None] = []
        at = wire.ETHERNET.bytes
        self.outer_hop_limit: int = 0
        self.reaches_all: bool = False
        self._outer_source: int = 0
        self._outer_destination: int = 0
        if self.encapsulated:
            self.outer_hop_limit = image[at + wire.IPV6.byte_offset("hop_limit")]
            self.reaches_all = self.outer_hop_limit > HOPS_MAXIMUM
            self._outer_source = int.from_bytes(image[at + _ADDRESS_AT : at + _ADDRESS_AT + 16], "big")
            self._outer_destination = int.from_bytes(image[at + _ADDRESS_AT + 16 : at + 40], "big")
            at += wire.IPV6.bytes
        self.hop_limit: int = image[at + wire.IPV6.byte_offset("hop_limit")]
        self.inner: bytes = image[at + _ADDRESS_AT : at + wire.IPV6.bytes]
        self.source: int = int.from_bytes(self.inner[:16], "big")
        self.destination: int = int.from_bytes(self.inner[16:], "big")
        self.source_host: int = self.source >> 64 & 0xFFFF
        self.destination_host: int = self.destination >> 64 & 0xFFFF
        at += wire.IPV6.bytes
        self.udp_port: int = int.from_bytes(image[at + 2 : at + 4], "big")
        at += wire.UDP.bytes
        bth = wire.BTH.unpack(int.from_bytes(image[at : at + wire.BTH.bytes], "big"))
        self.partition_key: int = bth["pkey"]
        self.destination_qpn: int = bth["dest_qp"]

    def outer(self, plane: int, ev: int) -> bytes:
        """Outer source and destination for a plane and the uplink in an EV (protocol.md 1.16)."""
        uplink = ev >> _UPLINK_LOW & _UPLINK_MASK
        key = uplink << 3 | plane
        known = self._known.get(key)
        if known is None:
            source = _with_usids(self._outer_source, plane, 0, 0b11, 0)
            destination = _with_usids(
                self._outer_destination, plane, uplink, self._plane_mask, self._uplink_mask
            )
            known = self._known[key] = address_bytes(source) + address_bytes(destination)
        return known

    def key(self, plane: i64, ev: i64) -> bytes:
        """Outer destination alone, always the same object for the same way."""
        way: i64 = (ev >> _UPLINK_LOW & _UPLINK_MASK) << 3 | plane
        while way >= len(self._keys):
            self._keys.append(None)
        key = self._keys[way]
        if key is None:
            key = self.outer(int(plane), int(ev))[16:]
            self._keys[way] = key
        return key

    def outer_source(self, plane: int) -> bytes:
        """Outer source alone."""
        return self.outer(plane, 0)[:16]


class TemplateTable:
    """Owner of table TEMPLATE.

    Parameters
    ----------
    qps : int
        Rows.

    Attributes
    ----------
    rows : list of Template
        By QP.
    """

    __slots__ = ("_words", "rows")

    def __init__(self, qps: int) -> None:
        self._words: list[list[int]] = [[0] * TEMPLATE_WORDS for _ in range(qps)]
        self.rows: list[Template] = [Template(row) for row in self._words]

    def write(self, index: int, words: list[int]) -> bool:
        """Replace a row; False when there is none of that number or too many words."""
        if index >= len(self._words) or len(words) > TEMPLATE_WORDS:
            return False
        row = words + [0] * (TEMPLATE_WORDS - len(words))
        self._words[index] = row
        self.rows[index] = Template(row)
        return True

    def read(self, index: int) -> list[int] | None:
        """The words of a row; None when there is none of that number."""
        return list(self._words[index]) if index < len(self._words) else None


def address_bytes(address: int) -> bytes:
    """An IPv6 address as it stands on the wire."""
    return _ADDRESS.pack(address >> 64, address & 0xFFFF_FFFF_FFFF_FFFF)


def _with_usids(address: int, plane: int, uplink: int, plane_mask: int, uplink_mask: int) -> int:
    """OR plane and uplink into the uSIDs that the masks name (bit 0: the first)."""
    for number in range(wire.USID_PER_ADDRESS):
        shift = 128 - wire.USID_BLOCK_BITS - wire.USID_BITS * (number + 1)
        if plane_mask >> number & 1:
            address |= plane << _PLANE_LOW << shift
        if uplink_mask >> number & 1:
            address |= uplink << shift
    return address


assert TEMPLATE_IMAGE_OFFSET < wire.ETHERNET.bytes  # the options do not reach into what is read here
