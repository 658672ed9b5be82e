"""Packet buffer beats of packets that are not placed, on their way back to their plane."""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import NicConfig

__all__ = ["BufferLedger"]


class BufferLedger(wiring.Component):
    """Adds up the beats that each plane's buffer gets back, and hands them out in pieces of at most one MTU.

    Beats are released in the order of the buffer, so a plane's sum has to be handed out before the next
    packet of that plane is placed. Summing them up means that a full placement queue never holds admission.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    add, length : 1, 13
        Pulse: a packet of ``length`` bytes of plane ``chosen`` is not placed.
    owes : one bit per plane
        The plane's sum is not zero.
    chosen : plane, in
        Plane of the packet, or of the next piece.
    piece : 13, out
        Its size in bytes.
    take : 1
        The piece is handed out. Not together with ``add``.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "add": In(1),
                "length": In(13),
                "owes": Out(config.planes),
                "chosen": In(records.plane_bits(config)),
                "piece": Out(13),
                "take": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self._config
        lane_bits = (config.data_bytes - 1).bit_length()
        piece_bits = (config.mtu // config.data_bytes - 1).bit_length()
        sums = [Signal(records.buffer_address_bits(config) + 1, name=f"sum{n}") for n in range(config.planes)]
        m.d.comb += [self.owes[n].eq(total.any()) for n, total in enumerate(sums)]
        current = Signal.like(sums[0])
        piece = Signal(piece_bits + 1)
        m.d.comb += [
            current.eq(Array(sums)[self.chosen]),
            piece.eq(Mux(current[piece_bits:].any(), 1 << piece_bits, current[:piece_bits])),
            self.piece.eq(piece << lane_bits),
        ]
        # One adder for both; its lowest bit carries in a begun beat, or the one of the complement.
        change = Signal(len(current))
        piece_wide = Signal(len(current))
        carry = Signal()
        total = Signal.like(current)
        m.d.comb += [
            piece_wide.eq(piece),
            change.eq(Mux(self.add, self.length[lane_bits:], ~piece_wide)),
            carry.eq(~self.add | self.length[:lane_bits].any()),
            total.eq((Cat(1, current) + Cat(carry, change))[1:]),
        ]
        for n, kept in enumerate(sums):
            with m.If((self.add | self.take) & (self.chosen == n)):
                m.d.sync += kept.eq(total)
        return m
