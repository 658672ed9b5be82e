"""Amaranth struct layouts of every header in :mod:`mrc_rtl.wire`.

How network order maps
----------------------
An Amaranth ``StructLayout`` puts its first field at the least significant bits, a header puts its first
field at the most significant bits of its first byte. The layouts here hold a header's fields in reverse
order, so that the value of the struct equals the big-endian integer of the header's bytes: with
``view = data.View(BTH, signal)`` and ``signal`` the integer of the twelve bytes, ``view.psn`` is the PSN.

A stream carries the first byte of a frame in its lowest lane (bits [7:0]). :func:`to_network_order` turns
such lanes into the struct's integer and back; it is wiring only.

Source: profile.md 2 and 3, protocol.md 1; layouts in :mod:`mrc_rtl.wire`.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Shape, Value, signed, unsigned
from amaranth.lib import data

from . import wire

__all__ = ["LAYOUTS", "header_layout", "headers_layout", "to_network_order"]


def header_layout(header: wire.Header) -> data.StructLayout:
    """Return the struct layout of a header; its value equals the big-endian integer of the header's bytes."""

    def shape(item: wire.Field) -> Shape:
        return signed(item.bits) if item.signed else unsigned(item.bits)

    return data.StructLayout({item.name: shape(item) for item in reversed(header.fields)})


def headers_layout(*headers: wire.Header) -> data.StructLayout:
    """Return a layout of several headers one behind the other, first header first on the wire.

    Raises
    ------
    ValueError
        When a header appears twice.
    """
    names = [header.name for header in headers]
    if len(set(names)) != len(names):
        raise ValueError(f"headers must differ, got {', '.join(names)}")
    return data.StructLayout({header.name: LAYOUTS[header.name] for header in reversed(headers)})


def to_network_order(lanes: Any) -> Value:
    """Reverse the byte order of ``lanes``: first byte in bits [7:0] becomes first byte in the top bits.

    Raises
    ------
    ValueError
        When the width is not a whole number of bytes.
    """
    value = Value.cast(lanes)
    if len(value) % 8:
        raise ValueError(f"lanes must be a whole number of bytes, got {len(value)} bits")
    return Cat(value[start : start + 8] for start in reversed(range(0, len(value), 8)))


LAYOUTS: dict[str, data.StructLayout] = {
    header.name: header_layout(header) for header in wire.HEADERS.values()
}
"""Layout of every header by the header's name."""

LAYOUTS |= {header.name: header_layout(header) for header in (wire.USID, wire.EV, wire.MAC)}

ETHERNET = LAYOUTS["ethernet"]
IPV6 = LAYOUTS["ipv6"]
IPV4 = LAYOUTS["ipv4"]
SRH = LAYOUTS["srh"]
UDP = LAYOUTS["udp"]
BTH = LAYOUTS["bth"]
METH = LAYOUTS["meth"]
TSETH = LAYOUTS["tseth"]
RETH = LAYOUTS["reth"]
IMMDT = LAYOUTS["immdt"]
AETH = LAYOUTS["aeth"]
SETH = LAYOUTS["seth"]
CC_STATE = LAYOUTS["cc_state"]
NETH = LAYOUTS["neth"]
PETH = LAYOUTS["peth"]
ERTH = LAYOUTS["erth"]
EETH = LAYOUTS["eeth"]
ICRC = LAYOUTS["icrc"]
USID = LAYOUTS["usid"]
EV = LAYOUTS["ev"]
MAC = LAYOUTS["mac"]

__all__ += [name.upper() for name in LAYOUTS]
