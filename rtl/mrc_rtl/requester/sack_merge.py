"""Merges the bitmap of a SACK into words of 32 acked bits."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import NicConfig

__all__ = ["SackMerge"]

_WORDS = 3  # a bitmap of 64 bits at any alignment touches at most three words of 32


def _turned(half: Value, place: Value) -> Value:
    """``half`` rotated upwards by ``place``, in one cycle."""
    for bit in range(5):
        half = Mux(place[bit], half.rotate_left(1 << bit), half)
    return half


class SackMerge(wiring.Component):
    """Walks the three words a bitmap may touch, four cycles each, and writes those in which a bit is new.

    Both halves of the bitmap are rotated by the base's place in its word; a mask of that place then says
    which bits of a word come from the half before and which from the half at hand. One rotator, one
    subtractor and one mask generator do all of it, one after the other. At 64 and 128 bit, where feedback
    comes more slowly, the rotator is a register that turns by 8, 2 or 1: at most 8 cycles more for each half.

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
        self.serial = config.packet_interval > 4
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
        last = Signal()
        rotated = Signal(32)  # half at hand
        before = Signal(32)  # half before it
        split = Signal(32)  # ones from the base's place upwards
        steps = Signal(5)  # by how much the half still has to turn
        minuend = Signal(24)
        words = Signal(19)  # words of 32 from the one in work to that of the minuend
        place_from = Signal(5)
        from_distance = Signal(32)
        high_mask = Signal(32)
        bits = Signal(32)

        half = Signal(32)
        m.d.comb += [
            last.eq(count == _WORDS - 1),
            half.eq(Mux(count == 0, self.bitmap[:32], self.bitmap[32:])),
            minuend.eq(self.base),
        ]
        # Ones from the bit upwards that is the minuend's place, seen from the word in work; all when that is
        # before the word, none when it is behind.
        m.d.comb += from_distance.eq((0xFFFF_FFFF << place_from) & Mux(words.any(), 0, 0xFFFF_FFFF))
        with m.If(words[-1]):
            m.d.comb += from_distance.eq(0xFFFF_FFFF)

        m.d.comb += [self.busy.eq(1), self.merged.eq(self.word | (bits & high_mask))]
        m.d.sync += [words.eq(minuend[5:] - self.psn[5:]), place_from.eq(minuend[:5])]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.busy.eq(0)
                with m.If(self.start):
                    m.d.sync += self.psn.eq(Cat(Const(0, 5), self.base[5:]))
                    m.d.sync += [before.eq(0), count.eq(0), self.beyond.eq(0)]
                    m.d.sync += words.eq(0)  # the base is in the first word
                    m.next = "SPLIT"
            with m.State("SPLIT"):
                m.d.sync += split.eq(from_distance)
                m.next = "ALIGN"
            with m.State("ALIGN"):
                m.d.comb += minuend.eq(self.unacked)
                m.next = "LOW"
                with m.If(last):
                    m.d.sync += rotated.eq(0)
                with m.Else():
                    m.d.sync += [rotated.eq(half if self.serial else _turned(half, place)), steps.eq(place)]
                    if self.serial:
                        m.next = "TURN"
            if self.serial:
                with m.State("TURN"):
                    m.d.comb += minuend.eq(self.unacked)
                    with m.If(steps[3:].any()):
                        m.d.sync += [rotated.eq(rotated.rotate_left(8)), steps[3:].eq(steps[3:] - 1)]
                    with m.Elif(steps[1:3].any()):
                        m.d.sync += [rotated.eq(rotated.rotate_left(2)), steps[1:3].eq(steps[1:3] - 1)]
                    with m.Elif(steps[0]):
                        m.d.sync += [rotated.eq(rotated.rotate_left(1)), steps[0].eq(0)]
                    with m.Else():
                        m.next = "LOW"
            with m.State("LOW"):
                m.d.comb += minuend.eq(self.next)
                m.d.sync += [
                    bits.eq(((before & ~split) | (rotated & split)) & from_distance),
                    before.eq(rotated),
                ]
                m.next = "HIGH"
            with m.State("HIGH"):
                m.d.sync += high_mask.eq(~from_distance)
                m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += self.write.eq((bits & high_mask).any())
                with m.If((bits & ~high_mask).any()):
                    m.d.sync += self.beyond.eq(1)
                m.d.sync += [count.eq(count + 1), self.psn[5:].eq(self.psn[5:] + 1)]
                m.next = "ALIGN"
                with m.If(last):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
        return m
