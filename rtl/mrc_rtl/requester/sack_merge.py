"""Merges the bitmap of a SACK into words of 32 acked bits."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import NicConfig

__all__ = ["SackMerge"]

_WORDS = 3  # a bitmap of 64 bits at any alignment touches at most three words of 32


class SackMerge(wiring.Component):
    """Walks the three words a bitmap may touch, four cycles each, and writes those in which a bit is new.

    Both halves of the bitmap are rotated by the base's place in its word; a mask of that place then says
    which bits of a word come from the half before and which from the half at hand. One rotator and one mask
    generator do all of it, one after the other.

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

    Source: protocol.md 1.10 (bit i of the bitmap is PSN base + i), profile.md 4 (feedback for a PSN never
    sent).
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
        place = self.base[:5]
        count = Signal(range(_WORDS))
        rotated = Signal(32)  # half at hand
        before = Signal(32)  # half before it
        split = Signal(32)  # ones from the base's place upwards
        distance = Signal(24)
        from_distance = Signal(32)
        low_mask = Signal(32)
        high_mask = Signal(32)
        bits = Signal(32)

        half = Signal(32)
        m.d.comb += half.eq(Mux(count == 0, self.bitmap[:32], self.bitmap[32:]))
        turned = half
        for bit in range(5):
            stage = Signal(32, name=f"turned{bit}")
            m.d.comb += stage.eq(Mux(place[bit], turned.rotate_left(1 << bit), turned))
            turned = stage

        # Ones from bit ``distance`` upwards; all when it is negative, none from 32 on.
        m.d.comb += from_distance.eq(
            (0xFFFF_FFFF << distance[:5]) & Mux(distance[5:23].any(), 0, 0xFFFF_FFFF)
        )
        with m.If(distance[23]):
            m.d.comb += from_distance.eq(0xFFFF_FFFF)

        new = Signal(32)
        m.d.comb += [new.eq(bits & low_mask), self.merged.eq(self.word | (new & high_mask))]
        m.d.comb += self.busy.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.busy.eq(0)
                with m.If(self.start):
                    m.d.sync += [distance.eq(place), self.psn.eq(Cat(Const(0, 5), self.base[5:]))]
                    m.d.sync += [before.eq(0), count.eq(0), self.beyond.eq(0)]
                    m.next = "SPLIT"
            with m.State("SPLIT"):
                m.d.sync += split.eq(from_distance)
                m.next = "ALIGN"
            with m.State("ALIGN"):
                m.d.sync += [rotated.eq(turned), distance.eq(self.unacked - self.psn)]
                with m.If(count == _WORDS - 1):
                    m.d.sync += rotated.eq(0)
                m.next = "LOW"
            with m.State("LOW"):
                m.d.sync += [
                    low_mask.eq(from_distance),
                    distance.eq(self.next - self.psn),
                    bits.eq((before & ~split) | (rotated & split)),
                    before.eq(rotated),
                ]
                m.next = "HIGH"
            with m.State("HIGH"):
                m.d.sync += high_mask.eq(~from_distance)
                m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += self.write.eq((new & high_mask).any())
                with m.If((new & ~high_mask).any()):
                    m.d.sync += self.beyond.eq(1)
                m.d.sync += [count.eq(count + 1), self.psn.eq(self.psn + 32)]
                m.next = "ALIGN"
                with m.If(count == _WORDS - 1):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
        return m
