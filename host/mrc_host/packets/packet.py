"""The decoded form of a packet.

Source: protocol.md 1.1 (stacks), 1.15 (EV), 1.17 (traffic classes), 1.18 (ICRC).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mrc_rtl.wire import Dscp, Opcode

__all__ = ["COMPUTE_ICRC", "TRIMMED_DSCPS", "HeaderValue", "Packet", "Problem"]

COMPUTE_ICRC = -1
"""Value of :attr:`Packet.icrc` that asks :func:`mrc_host.packets.codec.complete` to compute it."""

TRIMMED_DSCPS = frozenset({int(Dscp.TRIMMED), int(Dscp.TRIMMED_LASTHOP)})
"""DSCPs that mark a packet as trimmed, unless the caller says otherwise."""


class HeaderValue(NamedTuple):
    """One header of a packet: its name in :data:`mrc_rtl.wire.HEADERS` and its fields as integers."""

    name: str
    fields: dict[str, int]


class Problem(NamedTuple):
    """Something wrong with a packet: offset of the byte it shows at, and what it is."""

    byte: int
    text: str


@dataclass(slots=True)
class Packet:
    """A packet or frame taken apart.

    The bytes are, in this order: ``headers``, ``rest``, ``payload``, ``padding``, ``icrc``, ``trailing``.
    Nothing is lost: encoding a decoded packet gives the same bytes, also for malformed ones.

    Parameters
    ----------
    start : str
        ``"ethernet"`` or ``"ip"``: the first header.
    headers : list of HeaderValue
        Headers in wire order; with SRv6 the outer IPv6 header comes before the inner one.
    rest : bytes
        Bytes that were not decoded: a header cut short, an unknown protocol or an unknown opcode's body.
    rest_of : str
        Name of the header that ``rest`` begins with, empty when unknown.
    payload : bytes
        Payload of a write, without pad; of a trimmed packet what is left of it.
    padding : bytes
        Pad bytes between payload and ICRC.
    icrc : int or None
        ICRC as the big-endian integer of its four bytes, :data:`COMPUTE_ICRC`, or None when there is none.
    icrc_ok : bool or None
        Whether the ICRC is there and right; None for a trimmed packet and for what is not MRC.
    trailing : bytes
        Bytes behind the end the lengths state, such as the FCS.
    trimmed : bool
        Whether the outermost DSCP says that a switch trimmed the packet.
    problems : list of Problem
        What is wrong, in the order of the bytes met.
    """

    start: str
    headers: list[HeaderValue] = field(default_factory=list)
    rest: bytes = b""
    rest_of: str = ""
    payload: bytes = b""
    padding: bytes = b""
    icrc: int | None = None
    icrc_ok: bool | None = None
    trailing: bytes = b""
    trimmed: bool = False
    problems: list[Problem] = field(default_factory=list)

    def __getitem__(self, name: str) -> dict[str, int]:
        """Return the fields of the first header of that name.

        Raises
        ------
        KeyError
            When the packet has no such header.
        """
        for header in self.headers:
            if header.name == name:
                return header.fields
        raise KeyError(
            f"packet has headers {', '.join(h.name for h in self.headers) or 'none'}; got {name!r}"
        )

    def __contains__(self, name: object) -> bool:
        return any(header.name == name for header in self.headers)

    @property
    def opcode(self) -> int | None:
        """BTH opcode, None without a BTH."""
        return self["bth"]["opcode"] if "bth" in self else None

    @property
    def kind(self) -> str:
        """Name of the opcode, ``"unknown"`` for one that is not MRC, empty without a BTH."""
        opcode = self.opcode
        if opcode is None:
            return ""
        return Opcode(opcode).name if opcode in Opcode._value2member_map_ else "unknown"

    @property
    def inner_ip(self) -> HeaderValue | None:
        """The IP header next to UDP, None without one."""
        for header in reversed(self.headers):
            if header.name in ("ipv6", "ipv4"):
                return header
        return None

    @property
    def ev(self) -> int | None:
        """The 32-bit EV {UDP source port, flow label[15:0]}; over IPv4 the lower half is 0."""
        ip = self.inner_ip
        if ip is None or "udp" not in self:
            return None
        return self["udp"]["source_port"] << 16 | ip.fields.get("flow_label", 0) & 0xFFFF
