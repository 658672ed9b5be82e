"""Fast packing and unpacking of single headers.

For each :class:`mrc_rtl.wire.Header` two functions are compiled once at import, in the way the standard
library's ``dataclasses`` makes its methods: the fields are gathered into words of 32 bits (or longer fields
of whole bytes), so that a header costs one ``struct`` call and one shift and mask per field. Nothing walks
over bits while packets are decoded.

Source of the layouts: :mod:`mrc_rtl.wire`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mrc_rtl.wire import HEADERS, Field, Header

__all__ = ["HEADER_CODECS", "HeaderCodec", "compile_header"]

Fields = dict[str, int]

_STRUCT_CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}


@dataclass(frozen=True)
class HeaderCodec:
    """Compiled packing and unpacking of one header.

    Parameters
    ----------
    header : Header
        The layout.
    unpack : callable
        ``unpack(buffer, byte_offset)`` returns the fields as integers; the buffer must be long enough.
    pack : callable
        ``pack(fields)`` returns the bytes; raises ``ValueError`` that names a missing field or a value out
        of range. Names the header does not have are ignored.
    """

    header: Header
    unpack: Callable[[bytes, int], Fields]
    pack: Callable[[Mapping[str, int]], bytes]

    @property
    def bytes(self) -> int:
        """Length of the header."""
        return self.header.bytes


def _words(header: Header) -> list[list[Field]]:
    """Gather the fields into groups of whole bytes: up to the next 32-bit boundary, long fields alone."""
    groups: list[list[Field]] = []
    group: list[Field] = []
    bits = position = 0
    for item in header.fields:
        if group and bits % 8 == 0 and item.bits >= 64:
            groups.append(group)
            group, bits = [], 0
        group.append(item)
        bits += item.bits
        position += item.bits
        if bits % 8 == 0 and (position % 32 == 0 or item.bits >= 64):
            groups.append(group)
            group, bits = [], 0
    if group:
        groups.append(group)
    return groups


def _explain(header: Header, values: Mapping[str, Any]) -> ValueError:
    """Find the field :func:`pack` failed on and say what is wrong with it."""
    for item in header.fields:
        if item.name not in values:
            return ValueError(f"{header.name}.{item.name} is missing")
        value = values[item.name]
        low, high = (-(1 << (item.bits - 1)), item.mask >> 1) if item.signed else (0, item.mask)
        if not isinstance(value, int):
            return ValueError(f"{header.name}.{item.name} must be an integer, got {value!r}")
        if not low <= value <= high:
            limits = f"{low} and {high}" if item.signed else f"0 and {high:#x}"
            got = value if item.signed or value < 0 else f"{value:#x}"
            return ValueError(f"{header.name}.{item.name} must be between {limits}, got {got}")
    return ValueError(f"{header.name} cannot be packed from {dict(values)!r}")


def compile_header(header: Header) -> HeaderCodec:
    """Compile the pack and unpack functions of ``header``."""
    codes: list[str] = []
    words: list[str] = []
    prepare: list[str] = []
    items: list[str] = []
    packed: list[str] = []
    checks: list[str] = []
    for number, group in enumerate(_words(header)):
        bits = sum(item.bits for item in group)
        word = f"w{number}"
        words.append(word)
        code = _STRUCT_CODES.get(bits)
        if code is None:
            code = f"{bits // 8}s"
            prepare.append(f"    {word} = from_bytes({word}, 'big')")
        codes.append(code)
        shift = bits
        parts: list[str] = []
        for item in group:
            shift -= item.bits
            value = f"{word} >> {shift}" if shift else word
            if item.bits != bits:
                value = f"({value}) & {item.mask:#x}"
            source = f"f[{item.name!r}]"
            if item.signed:
                sign = 1 << (item.bits - 1)
                value = f"(({value}) ^ {sign:#x}) - {sign:#x}"
                checks.append(f"({source} + {sign:#x} >> {item.bits})")
                source = f"({source} & {item.mask:#x})"
            else:
                checks.append(f"({source} >> {item.bits})")
            items.append(f"{item.name!r}: {value}")
            parts.append(f"{source} << {shift}" if shift else source)
        expression = " | ".join(parts)
        packed.append(f"({expression}).to_bytes({bits // 8}, 'big')" if code.endswith("s") else expression)
    lines = [
        "def unpack(buffer, offset):",
        f"    {', '.join(words)}, = unpack_from(buffer, offset)",
        *prepare,
        f"    return {{{', '.join(items)}}}",
        "def pack(f):",
        "    try:",
        f"        if {' | '.join(checks)}:",
        "            raise explain(header, f)",
        f"        return pack_words({', '.join(packed)})",
        "    except (KeyError, TypeError):",
        "        raise explain(header, f) from None",
    ]
    packer = struct.Struct(">" + "".join(codes))
    assert packer.size == header.bytes
    namespace: dict[str, Any] = {
        "unpack_from": packer.unpack_from,
        "pack_words": packer.pack,
        "from_bytes": int.from_bytes,
        "explain": _explain,
        "header": header,
    }
    exec(compile("\n".join(lines), f"<codec of {header.name}>", "exec"), namespace)
    return HeaderCodec(header, namespace["unpack"], namespace["pack"])


HEADER_CODECS: dict[str, HeaderCodec] = {name: compile_header(header) for name, header in HEADERS.items()}
"""Compiled codec of every header by name."""
