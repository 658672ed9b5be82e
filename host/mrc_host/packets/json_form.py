"""The JSON form of packets, and the text a person reads.

Field names are those of protocol.md. PSN, EV, keys and addresses are hexadecimal strings; numbers that count
are numbers. The ICRC is written in the order of its bytes on the wire. On input a number may be written as a
number or as a string in any base Python knows ("0x10", "0b110", "16"); a mark (``m``) also by its name.
Absent fields are filled in when the packet is encoded.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from mrc_rtl.wire import HEADERS, AethSyndrome, Dscp, Ecn, EndpointOp, Field, Mark, NackReason

from .packet import COMPUTE_ICRC, HeaderValue, Packet

__all__ = ["describe", "from_json", "to_json"]

_BYTE_PARTS = ("rest", "payload", "padding", "trailing")
# Keys a decoder adds for the reader; an encoder takes no notice of them.
_DERIVED = ("kind", "ev", "icrc_ok", "problems", "rest_of")
_EV_FIELDS = ("entropy",)
_COLUMNS = 100
_NAMES = {
    ("neth", "nack_reason"): NackReason,
    ("aeth", "syndrome"): AethSyndrome,
    ("erth", "op"): EndpointOp,
    ("eeth", "op"): EndpointOp,
}


def _field_to_json(item: Field, value: int) -> int | str:
    if item.name == "m" and item.bits == 2:
        return Mark(value).name
    if item.name in _EV_FIELDS:
        return f"{value:#010x}"
    if item.kind == "hex":
        return f"{value:#x}"
    if item.kind == "ipv6":
        return str(ipaddress.IPv6Address(value))
    if item.kind == "ipv4":
        return str(ipaddress.IPv4Address(value))
    if item.kind == "mac":
        return value.to_bytes(6, "big").hex(":")
    return f"{value:#x}" if item.kind == "reserved" and value else value


def to_json(packet: Packet) -> dict[str, Any]:
    """Return the packet as plain data for ``json.dumps``; :func:`from_json` brings the same packet back."""
    ev = packet.ev
    result: dict[str, Any] = {
        "start": packet.start,
        "kind": packet.kind,
        "ev": None if ev is None else f"{ev:#010x}",
        "trimmed": packet.trimmed,
        "headers": [
            {
                "header": name,
                **{item.name: _field_to_json(item, fields[item.name]) for item in HEADERS[name].fields},
            }
            for name, fields in packet.headers
        ],
    }
    for part in _BYTE_PARTS:
        result[part] = getattr(packet, part).hex()
    result["rest_of"] = packet.rest_of
    result["icrc"] = None if packet.icrc is None else f"{packet.icrc:#010x}"
    result["icrc_ok"] = packet.icrc_ok
    result["problems"] = [{"byte": problem.byte, "text": problem.text} for problem in packet.problems]
    return result


def _integer(path: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return int(value, 0)
        except ValueError:
            pass
    raise ValueError(f'{path} must be a number or a string such as "0x1f", got {value!r}')


def _field_from_json(path: str, item: Field, value: Any) -> int:
    if isinstance(value, str):
        try:
            if item.kind == "ipv6" and ":" in value:
                return int(ipaddress.IPv6Address(value))
            if item.kind == "ipv4" and "." in value:
                return int(ipaddress.IPv4Address(value))
        except ValueError:
            raise ValueError(
                f"{path} must be an {item.kind.replace('ip', 'IP')} address, got {value!r}"
            ) from None
        if item.kind == "mac" and ":" in value:
            digits = value.replace(":", "")
            if len(digits) != 12:
                raise ValueError(f"{path} must be a MAC address of six bytes, got {value!r}")
            value = "0x" + digits
        if item.name == "m" and value in Mark.__members__:
            return Mark[value].value
    number = _integer(path, value)
    low, high = (-(1 << (item.bits - 1)), item.mask >> 1) if item.signed else (0, item.mask)
    if not low <= number <= high:
        raise ValueError(
            f"{path} must be between {low} and {high if item.signed else hex(high)}, got {value!r}"
        )
    return number


def _bytes_from_json(path: str, value: Any) -> bytes:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise ValueError(f"{path} must be a string of hexadecimal bytes, got {value!r}") from None


def from_json(data: Any) -> Packet:
    """Read a packet from its JSON form.

    Only ``headers`` is needed. What a decoder derives (kind, ev, icrc_ok, problems, rest_of) is ignored.
    Without a key ``icrc`` the ICRC is computed when the packet is completed, unless it is trimmed; null means
    that there is none.

    Raises
    ------
    ValueError
        With the path of the wrong or unknown key, what is allowed, and what was given.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"a packet must be an object, got {type(data).__name__}")
    allowed = ("start", "trimmed", "headers", "icrc", *_BYTE_PARTS)
    for key in data:
        if key not in allowed and key not in _DERIVED:
            raise ValueError(f"keys of a packet are {', '.join((*allowed, *_DERIVED))}; got {key!r}")
    entries = data.get("headers")
    if not isinstance(entries, list):
        raise ValueError(f"headers must be a list, got {entries!r}")
    headers: list[HeaderValue] = []
    for number, entry in enumerate(entries):
        path = f"headers[{number}]"
        if not isinstance(entry, Mapping) or entry.get("header") not in HEADERS:
            got = entry.get("header") if isinstance(entry, Mapping) else entry
            raise ValueError(f"{path}.header must be one of {', '.join(HEADERS)}, got {got!r}")
        header = HEADERS[entry["header"]]
        fields: dict[str, int] = {}
        by_name = {item.name: item for item in header.fields}
        for key, value in entry.items():
            if key == "header":
                continue
            if key not in by_name:
                raise ValueError(f"{path}: fields of {header.name} are {', '.join(by_name)}; got {key!r}")
            fields[key] = _field_from_json(f"{path}.{key}", by_name[key], value)
        headers.append(HeaderValue(header.name, fields))
    start = data.get("start", "ethernet" if headers and headers[0].name == "ethernet" else "ip")
    if start not in ("ethernet", "ip"):
        raise ValueError(f"start must be ethernet or ip, got {start!r}")
    packet = Packet(start, headers, trimmed=bool(data.get("trimmed", False)))
    for part in _BYTE_PARTS:
        setattr(packet, part, _bytes_from_json(part, data.get(part, "")))
    if "icrc" not in data:
        packet.icrc = None if packet.trimmed else COMPUTE_ICRC
    elif data["icrc"] is not None:
        packet.icrc = _integer("icrc", data["icrc"])
        if not 0 <= packet.icrc <= 0xFFFFFFFF:
            raise ValueError(f"icrc must be between 0 and 0xffffffff, got {data['icrc']!r}")
    return packet


def _name_of(header: str, name: str, value: int) -> str:
    """Return a name in brackets for values that have one."""
    if name == "traffic_class":
        dscp = value >> 2
        known = Dscp(dscp).name if dscp in Dscp._value2member_map_ else str(dscp)
        return f" (DSCP {known}, {Ecn(value & 3).name})"
    names = _NAMES.get((header, name))
    if names is not None and value in names._value2member_map_:
        return f" ({names(value).name})"
    return ""


def describe(packet: Packet) -> str:
    """Return several lines for a person: one per header with its byte offset, then body and problems.

    Reserved fields that are 0 are left out.
    """
    lines: list[str] = []
    offset = 0
    for name, fields in packet.headers:
        shown: list[str] = []
        for item in HEADERS[name].fields:
            value = fields[item.name]
            if item.kind == "reserved" and not value:
                continue
            note = packet.kind if (name, item.name) == ("bth", "opcode") else ""
            note = f" ({note})" if note else _name_of(name, item.name, value)
            shown.append(f"{item.name}={_field_to_json(item, value)}{note}")
        lines += _wrapped(f"{offset:5}  {name:9}", shown)
        offset += HEADERS[name].bytes
    for part in _BYTE_PARTS[:3]:
        content: bytes = getattr(packet, part)
        if content:
            of = f" (begin of {packet.rest_of})" if part == "rest" and packet.rest_of else ""
            lines.append(f"{offset:5}  {part:9} {len(content)} bytes{of}: {_shorten(content)}")
            offset += len(content)
    if packet.icrc is not None:
        verdict = {True: "right", False: "wrong", None: "not checked"}[packet.icrc_ok]
        lines.append(f"{offset:5}  icrc      {packet.icrc:08x} {verdict}")
        offset += 4
    if packet.trailing:
        lines.append(f"{offset:5}  trailing  {len(packet.trailing)} bytes: {_shorten(packet.trailing)}")
    if packet.ev is not None:
        lines.append(f"       ev        {packet.ev:#010x}")
    if packet.trimmed:
        lines.append("       trimmed by a switch: no ICRC to check")
    lines += [f"       problem at byte {problem.byte}: {problem.text}" for problem in packet.problems]
    return "\n".join(lines)


def _wrapped(head: str, items: list[str]) -> list[str]:
    """Lines of at most :data:`_COLUMNS` characters; no item is broken."""
    lines = [head]
    for item in items:
        if len(lines[-1]) + 1 + len(item) > _COLUMNS and lines[-1].strip():
            lines.append(" " * len(head))
        lines[-1] += " " + item
    return lines


def _shorten(content: bytes) -> str:
    return content.hex() if len(content) <= 32 else f"{content[:32].hex()}…"
