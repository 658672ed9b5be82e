"""How a QP's packets travel: addresses and encapsulation (the header template)."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_host.fabric.usid import QpTemplate
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl import wire
from mrc_rtl.tables import TEMPLATE_IMAGE_OFFSET, TEMPLATE_WORDS, Encapsulation

__all__ = ["Path"]


@dataclass(frozen=True)
class Path:
    """The address handle of a QP.

    Parameters
    ----------
    source, destination : int
        Inner IPv6 addresses of this host and of the peer, 128 bits.
    outer : QpTemplate, optional
        Outer addresses for SRv6 (``UsidPlan.template``); None sends plain IPv6.

    Raises
    ------
    VerbsError
        EINVAL for an address that does not fit, or another type of template.

    Source: profile.md 2; protocol.md 1.1, 1.16.
    """

    source: int
    destination: int
    outer: QpTemplate | None = None

    def __post_init__(self) -> None:
        check_range("path.source", self.source, 0, (1 << 128) - 1)
        check_range("path.destination", self.destination, 0, (1 << 128) - 1)
        if self.outer is not None and not isinstance(self.outer, QpTemplate):
            raise VerbsError("EINVAL", "path.outer", self.outer, "of type QpTemplate, or None")

    def template_words(self, *, destination_qpn: int, partition_key: int, udp_port: int) -> list[int]:
        """Return the header template of a QP as the 64-bit words of the TEMPLATE table.

        Bytes before :data:`~mrc_rtl.tables.TEMPLATE_IMAGE_OFFSET` are options, the rest is the image of the
        frame up to BTH with zeros where the engine fills in.
        """
        options = bytearray(TEMPLATE_IMAGE_OFFSET)
        image = _bytes(wire.ETHERNET)[TEMPLATE_IMAGE_OFFSET:]
        if self.outer is not None:
            options[:3] = (Encapsulation.SRV6, self.outer.plane_mask, self.outer.uplink_mask)
            image += _bytes(
                wire.IPV6,
                next_header=wire.NextHeader.IPV6,
                source=self.outer.source,
                destination=self.outer.destination,
            )
        else:
            options[0] = Encapsulation.PLAIN
        image += _bytes(wire.IPV6, source=self.source, destination=self.destination)
        image += _bytes(wire.UDP, destination_port=udp_port)
        image += _bytes(wire.BTH, pkey=partition_key, dest_qp=destination_qpn)
        content = bytes(options) + image
        content += bytes(8 * TEMPLATE_WORDS - len(content))
        return [int.from_bytes(content[at : at + 8], "little") for at in range(0, len(content), 8)]


def _bytes(header: wire.Header, **fields: int) -> bytes:
    return header.pack(fields).to_bytes(header.bytes, "big")
