"""What a SACK shows: where its bitmap begins, and its bits."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from .psn_ring import near_bits

__all__ = ["BITMAP_BITS", "SackBitmap"]

#: PSNs of a bitmap.
BITMAP_BITS = 64


class SackBitmap(wiring.Component):
    """Reads the words of a bitmap from the tracker's ring.

    Its base is the lowest PSN that was placed and never reported, aligned down to a word. That PSN is kept as
    a bound: what lies behind a bitmap counts as unreported again, and a base moves on over bitmaps that show
    nothing. With nothing unreported it walks the window in steps of a bitmap from the expected PSN, so that a
    lost SACK is made good. Bits up to the cumulative PSN read 1, bits behind the window 0. PSNs are compared
    in their low bits only: all of them are near the window.

    Parameters
    ----------
    config : NicConfig
    word_bits : int
        PSNs in a word of the ring.

    Members
    -------
    start : 1
        Pulse; the next inputs count from the next cycle on, until ``taken``.
    expected, highest, lowest, turn : near, near, near, turn
        State of the QP: the expected PSN, the highest one placed, the bound, and the next step of the walk.
    below : word
        Ones below the expected PSN's place in its word; from the second cycle on.
    read, address : 1, near
        Read the word of this PSN.
    lap : 1
        Lap parity of the word that was read.
    view : word
        Its PSNs that are placed in this lap.
    valid, base, bitmap : 1, near, 64
        The answer; it stays until ``taken``.
    unreported : 1
        The bitmap begins at the bound, which moves to ``next_lowest``; otherwise the walk moves to
        ``next_turn``.
    taken : 1
        Pulse.

    Source: profile.md 5; protocol.md 3.4.
    """

    def __init__(self, config: NicConfig, word_bits: int) -> None:
        self._config = config
        self._word_bits = word_bits
        near = near_bits(config)
        turns = range(config.mpr_psns // BITMAP_BITS)
        super().__init__(
            {
                "start": In(1),
                "expected": In(near),
                "highest": In(near),
                "lowest": In(near),
                "turn": In(turns),
                "below": In(word_bits),
                "read": Out(1),
                "address": Out(near),
                "lap": Out(1),
                "view": In(word_bits),
                "valid": Out(1),
                "base": Out(near),
                "bitmap": Out(BITMAP_BITS),
                "unreported": Out(1),
                "next_lowest": Out(near),
                "next_turn": Out(turns),
                "taken": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config, word_bits = self._config, self._word_bits
        near = near_bits(config)
        index_bits = (word_bits - 1).bit_length()
        words = BITMAP_BITS // word_bits
        lap_bit = config.psn_ring_bits - index_bits  # of a word's number

        # A PSN that is compared with the highest one, and from whose word bits are read.
        probe = Signal(near)
        cursor = probe[index_bits:]
        expected_word = self.expected[index_bits:]
        within = Signal()
        passed_by = Signal()  # the cumulative PSN has passed the bound
        m.d.comb += [
            within.eq(~(self.highest - probe)[near - 1]),
            passed_by.eq((self.lowest - self.expected)[near - 1]),
            self.next_lowest.eq(probe),
            self.lap.eq(cursor[lap_bit]),
        ]
        # One adder moves the cursor: from the expected PSN's word by `stride`, or on by a word.
        onwards = Signal()
        stride = Signal(len(cursor))
        moved = Signal(len(cursor))
        m.d.comb += [
            moved.eq(Mux(onwards, cursor, expected_word) + stride),
            self.address.eq(Cat(probe[:index_bits], Mux(onwards, moved, cursor))),
        ]

        # One word, as it shows.
        same_place = Signal()
        same_word = Signal()
        outside = Signal()  # behind the window
        show = Signal(2)
        shown = Signal(word_bits)
        m.d.comb += [
            same_place.eq(cursor[:lap_bit] == expected_word[:lap_bit]),
            same_word.eq(same_place & (cursor[lap_bit] == expected_word[lap_bit])),
            show.eq(Mux(outside, 0, Mux(same_word, 2, Mux(same_place, 3, 1)))),
        ]
        with m.Switch(show):
            with m.Case(1):
                m.d.comb += shown.eq(self.view)
            with m.Case(2):
                m.d.comb += shown.eq(self.view | self.below)
            with m.Case(3):
                # The expected PSN's place one lap later: only the PSNs below it are in the window.
                m.d.comb += shown.eq(self.view & self.below)

        # Whether any word shows a PSN above the cumulative one is seen a cycle later.
        was_expected = Signal()
        nothing = Signal()
        nothing_now = Signal()
        hidden = self.below & was_expected.replicate(word_bits)
        count = Signal(range(words))
        m.d.comb += nothing_now.eq(nothing & ~(self.bitmap[-word_bits:] & ~hidden).any())

        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.next = "BOUND"
            with m.State("BOUND"):
                m.d.sync += probe.eq(Mux(passed_by, self.expected, self.lowest))
                m.next = "BASE"
            with m.State("BASE"):
                m.d.sync += self.unreported.eq(within)
                m.d.comb += stride.eq(self.turn * words)
                with m.If(within):
                    m.next = "READ"
                with m.Else():
                    m.d.sync += cursor.eq(moved)
                    m.next = "WALK"
            with m.State("WALK"):
                m.d.sync += self.next_turn.eq(Mux(within, self.turn + 1, 1))
                with m.If(~within):
                    m.d.sync += cursor.eq(moved)
                m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.read.eq(1)
                m.d.sync += [self.base[index_bits:].eq(cursor), outside.eq(0), nothing.eq(1)]
                m.next = "WORD"
            with m.State("WORD"):
                m.d.comb += [onwards.eq(1), stride.eq(1), self.read.eq(1)]
                m.d.sync += [
                    count.eq(count + 1),
                    self.bitmap.eq(Cat(self.bitmap[word_bits:], shown)),
                    probe.eq(Cat(Const(0, index_bits), moved)),
                    outside.eq(outside | (same_place & ~same_word)),
                    was_expected.eq(same_word),
                ]
                with m.If(count != 0):
                    m.d.sync += nothing.eq(nothing_now)
                with m.If(count == words - 1):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                with m.If(self.unreported & nothing_now & within):
                    m.next = "READ"
                with m.Else():
                    m.d.comb += self.valid.eq(1)
                    with m.If(self.taken):
                        m.next = "IDLE"
        return m
