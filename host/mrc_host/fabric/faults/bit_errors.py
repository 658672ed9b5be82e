"""Bits that flip on a link, or in the memory of a switch."""

from __future__ import annotations

from math import log, log1p
from typing import Annotated

from mrc_host.experiment.fields import choice, number
from mrc_host.fabric.faults.base import FaultSpec, register_fault
from mrc_host.fabric.faults.running import Site
from mrc_host.fabric.packet import IP_AT, Packet
from mrc_rtl.wire import BTH, IPV6, UDP

__all__ = ["BitErrors"]

INNER_SKIPPED = (*range(IPV6.byte_offset("payload_length")), IPV6.byte_offset("hop_limit"))
"""Bytes of the inner IPv6 header that the ICRC does not cover: before the length, and the hop limit."""
CHECKSUM_AT = UDP.byte_offset("checksum")
RESERVED_AT = 4
"""Byte of the BTH with FECN, BECN and reserved bits, which the ICRC masks."""


@register_fault("bit_errors")
class BitErrors(FaultSpec):
    """Bits of packets flip, each with the same probability, independently.

    Parameters
    ----------
    bit_error_rate : float
        Probability of each bit.
    part : str
        ``covered``: what the ICRC covers, from the length of the inner IPv6 header to the ICRC itself;
        ``frame``: all of the frame behind the MAC addresses.
    caught_by : str
        ``icrc``: the frame goes on with an FCS that fits, as when a switch's memory flips bits, and the NIC
        has to notice; ``fcs``: the next port drops it, as when the link flips them.
    """

    bit_error_rate: Annotated[float, number("errors a bit", 0, 0.5, low_allowed=False)]
    part: Annotated[str, choice("covered", "frame")] = "covered"
    caught_by: Annotated[str, choice("icrc", "fcs")] = "icrc"

    def act(self, site: Site, start_ps: int, packet: Packet) -> list[tuple[int, Packet]] | None:
        """Flip bits; None when none is hit."""
        offsets = self._offsets(packet)
        # Distances between errors are geometric: one draw for each error, not for each bit.
        step = log1p(-self.bit_error_rate)
        bit = -1
        hits = []
        while True:
            bit += 1 + int(log((site.draws.bits() + 1) / 2.0**64) / step)
            if bit >= 8 * len(offsets):
                break
            hits.append(bit)
        if not hits:
            return None
        if self.caught_by == "fcs":
            return []
        frame = bytearray(packet.to_bytes(site.port.macs))
        for hit in hits:
            frame[offsets[hit >> 3]] ^= 1 << (hit & 7)
        return [(0, Packet.of_frame(bytes(frame)))]

    def _offsets(self, packet: Packet) -> list[int]:
        """Return the byte offsets that may be hit."""
        info = packet.info() if self.part == "covered" else None
        if info is None:
            return list(range(IP_AT - 2, packet.size))
        udp = info.bth_offset - UDP.bytes
        inner = udp - IPV6.bytes
        skipped = {inner + offset for offset in INNER_SKIPPED}
        skipped |= {udp + CHECKSUM_AT, udp + CHECKSUM_AT + 1, info.bth_offset + RESERVED_AT}
        assert RESERVED_AT < BTH.bytes
        return [offset for offset in range(inner, packet.size) if offset not in skipped]
