"""Merges the bitmap of a SACK into words of 32 acked bits."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import NicConfig

__all__ = ["SackMerge"]

_WORDS = 3  # a bitmap of 64 bits at any alignment touches at most three words of 32


class SackMerge(wiring.Component):
    """Walks the three words a bitmap may touch, three cycles each, and skips those without a set bit.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    start : 1
        Pulse. ``base`` (24), ``bitmap`` (64), ``unacked`` (24) and ``next`` (24) stay until ``done``.
    psn : 24
        First PSN of the word in work: address of the bits memory while ``busy``.
    word : 32
        Acked bits read from there.
    write, merged : 1, 32
        Write the word back.
    busy, done : 1
        ``done`` pulses in the last cycle of ``busy``.
    beyond : 1
        With ``done``: a bit stood for a PSN that is not below ``next``, and was ignored.

    Source: protocol.md 1.10 (bit i of the bitmap is PSN base + i), profile.md 4 (feedback for a PSN never sent).
    """

    def __init__(self, config: NicConfig) -> None:
        super().__init__(
            {
                "start": In(1),
                "base": In(24),
                "bitmap": In(64),
                "unacked": In(24),
                "next": In(24),
                "psn": Out(24),
                "word": In(32),
                "write": Out(1),
                "merged": Out(32),
                "busy": Out(1),
                "done": Out(1),
                "beyond": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rest = Signal(64)  # bits not yet taken, the next word's in the low half
        before = Signal(32)  # the 32 bits before those
        count = Signal(range(_WORDS))
        shift = self.base[:5]
        above_low = Signal(24)  # PSNs from the word's first one to the window's start
        above_high = Signal(24)  # and to its end
        shifted = Signal(39)
        bits = Signal(32)
        low_mask = Signal(32)
        high_mask = Signal(32)

        def from_bit(distance: Signal) -> Mux:
            """Ones from bit ``distance`` upwards; all when it is negative, none from 32 on."""
            ones = Signal(32)
            m.d.comb += ones.eq((0xFFFF_FFFF << distance[:5]) & 0xFFFF_FFFF)
            return Mux(distance[23], 0xFFFF_FFFF, Mux(distance[5:].any(), 0, ones))

        m.d.comb += [
            self.merged.eq(self.word | (bits & low_mask & high_mask)),
        ]
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.d.sync += [
                        rest.eq(self.bitmap),
                        before.eq(0),
                        count.eq(0),
                        self.psn.eq(Cat(shift & 0, self.base[5:])),
                        self.beyond.eq(0),
                    ]
                    m.next = "ALIGN"
            with m.State("ALIGN"):
                # Bit 0 of the word is bit -shift of the bitmap: a funnel of 32 old and 32 new bits, in two steps.
                m.d.comb += self.busy.eq(1)
                coarse = Signal(3)
                m.d.comb += coarse.eq(Mux(shift[:3] == 0, 4 - shift[3:], 3 - shift[3:]))
                m.d.sync += [
                    shifted.eq(Cat(before, rest[:32]) >> (coarse << 3)),
                    above_low.eq(self.unacked - self.psn),
                    above_high.eq(self.next - self.psn),
                    rest.eq(rest >> 32),
                    before.eq(rest[:32]),
                ]
                m.next = "MASK"
            with m.State("MASK"):
                m.d.comb += self.busy.eq(1)
                fine = Signal(3)
                m.d.comb += fine.eq(-shift[:3])
                m.d.sync += [
                    bits.eq(shifted >> fine),
                    low_mask.eq(from_bit(above_low)),
                    high_mask.eq(~from_bit(above_high)),
                ]
                m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [self.busy.eq(1), self.write.eq((bits & low_mask & high_mask).any())]
                with m.If((bits & low_mask & ~high_mask).any()):
                    m.d.sync += self.beyond.eq(1)
                m.d.sync += [count.eq(count + 1), self.psn.eq(self.psn + 32)]
                with m.If(count == _WORDS - 1):
                    m.next = "DONE"
                with m.Else():
                    m.next = "ALIGN"
            with m.State("DONE"):
                m.d.comb += [self.busy.eq(1), self.done.eq(1)]
                m.next = "IDLE"
        return m
