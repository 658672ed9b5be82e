"""Layouts of the headers as struct formats, for the model's fast codec.

The descriptions are those of :mod:`mrc_rtl.wire`; test_codec.py compares every field with them.
"""

from __future__ import annotations

from struct import Struct

from mrc_rtl import wire
from mrc_rtl.wire import Opcode

__all__ = [
    "AETH",
    "BODY_BYTES",
    "EETH",
    "ERTH",
    "ICRC",
    "IMMEDIATE",
    "IMMEDIATES",
    "IPV6_TYPE",
    "METH",
    "NETH",
    "PETH",
    "SETH",
    "STAMP",
    "STAMP_VALID",
    "WRITE",
    "WRITES",
    "WRITE_STAMPED",
]

WRITE = Struct(">HHQII")
"""METH, RETH."""
WRITE_STAMPED = Struct(">HHHHQII")
"""METH, TSETH, RETH."""
IMMEDIATE = Struct(">I")
SETH = Struct(">HHIHHIBBHQHHI")
"""SETH and CC_STATE."""
NETH = Struct(">HBBIHHIBBH")
PETH = Struct(">HBBHHHHHH")
ERTH = Struct(">HBBIIHH")
EETH = Struct(">HH24xHHI")
AETH = Struct(">I")
METH = Struct(">HH")
STAMP = Struct(">HH")
"""TSETH."""
ICRC = Struct("<I")

STAMP_VALID = 1
"""ftype of a timestamp."""
IPV6_TYPE = int(wire.EtherType.IPV6).to_bytes(2, "big")
WRITES = frozenset(int(opcode) for opcode in Opcode if wire.is_write(opcode))
"""Opcodes of writes."""
IMMEDIATES = frozenset(int(opcode) for opcode in Opcode if wire.has_immediate(opcode))
"""Opcodes with ImmDt."""
BODY_BYTES = {
    int(opcode): sum(header.bytes for header in wire.headers_after_bth(opcode, False)) for opcode in Opcode
}
"""Bytes of headers behind the BTH by opcode, without TSETH."""
