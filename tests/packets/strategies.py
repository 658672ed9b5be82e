"""Hypothesis strategies and samples for packets, shared by the tests of this directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from mrc_host.packets.codec import HeaderValue, Packet, build
from mrc_rtl.wire import HEADERS, Header, Opcode, headers_after_bth

VECTORS = Path(__file__).parents[1] / "vectors"
ADDRESSES = {"source": 0xFD << 120 | 1, "destination": 0xFD << 120 | 2}
STACKS = {
    "ipv6": (("ipv6", ADDRESSES),),
    "ipv4": (("ipv4", {"source": 0x0A000001, "destination": 0x0A000002}),),
    "srv6": (("ipv6", ADDRESSES), ("ipv6", ADDRESSES)),
    "srv6_srh": (("ipv6", ADDRESSES), ("srh", {"segment": 5}), ("ipv6", ADDRESSES)),
}


def load(name: str) -> Any:
    """Return the content of a vector file."""
    return json.loads((VECTORS / name).read_text())


def number(value: int | str) -> int:
    """Read a vector's number: an integer, a string in any base, or the name of a mark."""
    marks = {"NONE": 0, "SKIP_ONCE": 1, "ALWAYS_SKIP": 2}
    return value if isinstance(value, int) else marks[value] if value in marks else int(value, 0)


def frame_of(
    opcode: Opcode, stack: str = "srv6", payload: bytes | None = None, dscp: int = 8, ethernet: bool = True
) -> bytes:
    """Return a well-formed frame of an opcode, with TSETH in writes."""
    ts = opcode <= Opcode.WRITE_ONLY_IMM
    if payload is None:
        payload = bytes(range(64)) if ts else b""
    names = [header.name for header in headers_after_bth(opcode, ts)]
    fields = {"reth": {"va": 0x1000, "rkey": 5, "dma_len": len(payload)}, "neth": {"nack_reason": 1}}
    headers: list[tuple[str, dict[str, int]]] = (
        [("ethernet", {"source": 1, "destination": 2})] if ethernet else []
    )
    headers += [
        (name, {**values, "traffic_class": dscp << 2} if name != "srh" else dict(values))
        for name, values in STACKS[stack]
    ]
    headers += [
        ("udp", {"source_port": 0xC001}),
        ("bth", {"opcode": opcode, "dest_qp": 0x123, "psn": 0xABCDEF}),
    ]
    headers += [(name, fields.get(name, {})) for name in names]
    return build(*headers, payload=payload)


def header_fields(header: Header) -> st.SearchStrategy[dict[str, int]]:
    """Any values of all fields of a header."""
    return st.fixed_dictionaries(
        {
            item.name: st.integers(-(1 << item.bits - 1), (1 << item.bits - 1) - 1)
            if item.signed
            else st.integers(0, item.mask)
            for item in header.fields
        }
    )


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    """A packet of any MRC opcode and stack whose free fields are drawn; lengths are left to be filled in."""
    opcode = draw(st.sampled_from(list(Opcode)))
    stack = draw(st.sampled_from(sorted(STACKS)))
    ts = draw(st.booleans()) if opcode <= Opcode.WRITE_ONLY_IMM else False
    payload = draw(st.binary(min_size=1, max_size=40)) if opcode <= Opcode.WRITE_ONLY_IMM else b""
    headers = [HeaderValue(name, dict(values)) for name, values in STACKS[stack]]
    if draw(st.booleans()):
        headers.insert(
            0, HeaderValue("ethernet", {"source": draw(st.integers(0, 2**48 - 1)), "destination": 2})
        )
    udp = {
        "source_port": draw(st.integers(0, 0xFFFF)),
        "destination_port": draw(st.sampled_from((4791, 4971))),
    }
    headers.append(HeaderValue("udp", udp))
    bth = draw(header_fields(HEADERS["bth"]))
    bth.update(opcode=opcode, ts=int(ts), tver=0)
    del bth["pad_count"]
    headers.append(HeaderValue("bth", bth))
    for header in headers_after_bth(opcode, ts):
        headers.append(HeaderValue(header.name, draw(header_fields(header))))
    start = "ethernet" if headers[0].name == "ethernet" else "ip"
    return Packet(start, headers, payload=payload, icrc=-1)
