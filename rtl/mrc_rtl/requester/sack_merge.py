"""Merges the bitmap of a SACK into the acked bits of a ring of PSNs."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import NicConfig

__all__ = ["WORD", "WORD_LOG2", "SackMerge"]

#: PSNs whose bits share a word of memory.
WORD_LOG2 = 3
WORD = 1 << WORD_LOG2

_BITMAP = 64


def _words(psn: Value, base: Value) -> tuple[Value, Value]:
    """Words from the base's to that of a PSN: their number, at most 15, and whether it is negative."""
    distance = (psn[WORD_LOG2:] - base[WORD_LOG2:])[: 24 - WORD_LOG2]
    far = distance[4:-1].any()
    return distance[:4] | far.replicate(4), distance[-1]


def _from(place: Value) -> Value:
    """Ones from bit ``place`` of a word upwards."""
    return (((1 << WORD) - 1) << place)[:WORD]


class SackMerge(wiring.Component):
    """Walks the nine words of eight PSNs that a bitmap may touch, one a cycle.

    A word's eight bits are cut out of the bitmap's byte at hand and the one before it; bits below ``unacked``
    and from ``next`` on are masked. The word read is written back one cycle later, while the next one is
    read.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    start : 1
        Pulse. ``base`` (24), ``bitmap`` (64), ``unacked`` (24) and ``next`` (24) stay until ``done``.
    word_number
        Word of the ring that is read, while ``busy``.
    write, bits : 1, 8
        The bits to add to the word that was read in the cycle before; zero without ``write``.
    busy, done : 1
        ``done`` pulses in the last cycle of ``busy``, with the last ``write``.
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
                "bitmap": In(_BITMAP),
                "unacked": In(24),
                "next": In(24),
                "word_number": Out(config.psn_ring_bits + 1 - WORD_LOG2),
                "write": Out(1),
                "bits": Out(WORD),
                "busy": Out(1),
                "done": Out(1),
                "beyond": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        base = Signal(24, reset_less=True)
        count = Signal(range(_BITMAP // WORD + 1))
        before = Signal(WORD, reset_less=True)  # the byte of the bitmap before the one at hand
        walking = Signal()

        # The words in which the first PSN that counts and the first one that does not stand, seen from the
        # base's; ``started`` and ``ended`` tell that they lie before the word in work.
        first, end = Signal(4, reset_less=True), Signal(4, reset_less=True)
        started, ended = Signal(), Signal()
        first_word, first_before = _words(self.unacked, base)
        end_word, end_before = _words(self.next, base)

        at_hand = Signal(WORD)
        cut = Signal(WORD)
        allowed, excess = Signal(WORD), Signal(WORD)
        in_first, in_end = Signal(), Signal()
        m.d.comb += [
            # Behind the bitmap's last byte come zeros.
            at_hand.eq(Cat(self.bitmap, Const(0, WORD)).word_select(count, WORD)),
            cut.eq((Cat(before, at_hand) << base[:WORD_LOG2])[WORD : 2 * WORD]),
            in_first.eq(count == first),
            in_end.eq(count == end),
            allowed.eq(
                started.replicate(WORD) | (_from(self.unacked[:WORD_LOG2]) & in_first.replicate(WORD))
            ),
            excess.eq(ended.replicate(WORD) | (_from(self.next[:WORD_LOG2]) & in_end.replicate(WORD))),
        ]
        too_far = Signal(WORD)  # bits of the last word behind the end
        some_before = Signal()
        m.d.sync += [self.write.eq(walking), self.bits.eq(0)]
        m.d.comb += [self.busy.eq(1), self.beyond.eq(some_before | too_far.any())]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.busy.eq(0)
                with m.If(self.start):
                    m.d.sync += [base.eq(self.base), too_far.eq(0), some_before.eq(0)]
                    m.next = "LIMIT"
            with m.State("LIMIT"):
                m.d.sync += [
                    first.eq(first_word),
                    started.eq(first_before),
                    end.eq(end_word),
                    ended.eq(end_before),
                    self.word_number.eq(base[WORD_LOG2:]),
                    count.eq(0),
                    before.eq(0),
                ]
                m.next = "WALK"
            with m.State("WALK"):
                m.d.comb += walking.eq(1)
                m.d.sync += [
                    self.bits.eq(cut & allowed & ~excess),
                    before.eq(at_hand),
                    self.word_number.eq(self.word_number + 1),
                    count.eq(count + 1),
                ]
                with m.If(in_first):
                    m.d.sync += started.eq(1)
                with m.If(in_end):
                    m.d.sync += ended.eq(1)
                m.d.sync += [
                    too_far.eq(cut & allowed & excess),
                    some_before.eq(self.beyond),
                ]
                with m.If(count == _BITMAP // WORD):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
        return m
