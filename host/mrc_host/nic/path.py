"""How a QP's packets travel: addresses and encapsulation (the header template), and its entropy values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mrc_host.fabric.usid import QpTemplate
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl import wire
from mrc_rtl.config import NicConfig
from mrc_rtl.tables import (
    EV_VALUES_PER_PLANE,
    TEMPLATE_IMAGE_OFFSET,
    TEMPLATE_WORDS,
    Encapsulation,
)

__all__ = ["EvProfile", "Path"]


@dataclass(frozen=True)
class Path:
    """The address handle of a QP.

    Parameters
    ----------
    source, destination : int
        Inner IPv6 addresses of this host and of the peer, 128 bits.
    outer : QpTemplate, optional
        Outer addresses for SRv6 (``UsidPlan.template``); None sends plain IPv6.

    Source: profile.md 2; protocol.md 1.1, 1.16.
    """

    source: int
    destination: int
    outer: QpTemplate | None = None

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


@dataclass(frozen=True)
class EvProfile:
    """An array of entropy values that QPs can refer to; made by ``Context.ev_profile``.

    Parameters
    ----------
    number : int
        Its number in the engine.
    planes : tuple of tuples of int
        The values of each plane, at most 32.
    """

    number: int
    planes: tuple[tuple[int, ...], ...]

    @staticmethod
    def check(config: NicConfig, planes: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """Return the values as tuples when an engine can hold them.

        Raises
        ------
        VerbsError
            EINVAL for the number of planes, of values, or for a value that does not fit 32 bits.
        """
        if len(planes) != config.planes:
            raise VerbsError("EINVAL", "ev_profile.planes", len(planes), f"{config.planes}, one list a plane")
        limit = min(EV_VALUES_PER_PLANE, config.evs_per_plane)
        for plane, values in enumerate(planes):
            check_range(f"ev_profile.planes[{plane}].count", len(values), 1, limit)
            for value in values:
                check_range(f"ev_profile.planes[{plane}].value", value, 0, (1 << 32) - 1)
        return tuple(tuple(values) for values in planes)

    @staticmethod
    def by_plane(values: Sequence[int], planes: int) -> list[list[int]]:
        """Sort SRv6 entropy values (``UsidPlan.ev_set``) by the plane they carry."""
        return [[ev for ev in values if wire.EV.unpack(ev)["plane"] == plane] for plane in range(planes)]


def _bytes(header: wire.Header, **fields: int) -> bytes:
    return header.pack(fields).to_bytes(header.bytes, "big")
