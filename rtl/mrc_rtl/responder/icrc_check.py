"""Checks the ICRC of the normalised frames of a plane, one word of 64 bits a cycle."""

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..icrc import STATE_BITS, advance_sharing, masked_bytes, shifted
from .frame_words import WORD_BYTES
from .normaliser import IP_OFFSET, LAST_POSITION

__all__ = ["IcrcCheck"]

_HALF = 4 * WORD_BYTES
_WORD = 8 * WORD_BYTES

#: What the register holds after a frame with its right ICRC behind it, 32 zero bits before the end.
_RESIDUE = shifted(0xDEBB20E3, -STATE_BITS)

#: First word that counts as it comes: of those before it only constants are covered.
_FIRST = IP_OFFSET // WORD_BYTES + 1


def _constant_bytes() -> dict[tuple[int, int], int]:
    """Bytes that are not covered as they are: (word, lane) and the value that stands for them."""
    return {divmod(place, WORD_BYTES): value for place, value in masked_bytes(IP_OFFSET).items()}


def _start() -> int:
    """State before the first word with which all constant bytes may be left out of the words.

    Their sum up to the last of them, taken back over as many zero bits: the register is linear.
    """
    words: dict[int, int] = {}
    for (word, lane), value in _constant_bytes().items():
        words[word] = words.get(word, 0) | value << 8 * lane
    state = 0
    for word in range(max(words) + 1):
        data = words.get(word, 0)
        state = shifted(state, _HALF) ^ data & (1 << _HALF) - 1
        state = shifted(state, _HALF) ^ data >> _HALF
    return shifted(state, -_WORD * (max(words) - _FIRST + 1))


class IcrcCheck(wiring.Component):
    """Says for each frame whether its ICRC is right; it takes a word in every cycle.

    The ICRC needs no extraction: the register holds a known residue behind a right one. Bytes that are not
    covered count as zero, what they stand for is in the state from which a frame starts. The frame ends in
    lane 1 or 5, because everything behind Ethernet is a multiple of four bytes long; of others and of those
    that end before the last constant byte ``ok`` says nothing.

    Members
    -------
    data : 64
        Lane i holds byte i of the word.
    position : 4
        Of the word in the normalised frame.
    valid, last : 1
        The word is one of the frame's or stands before them; it is the last one.
    begin : 1
        The word stands for word 0 of a frame.
    early : 1
        With ``last``: the word ends in lane 1, otherwise in lane 5.
    ok : 1
        Three cycles after the last word: the ICRC is right. Valid for one cycle.
    idle : 1
        No word is on its way.

    Source: protocol.md 1.18; IBTA volume 1 annex A17 (RoCEv2).
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "data": In(_WORD),
                "position": In(range(LAST_POSITION + 1)),
                "valid": In(1),
                "last": In(1),
                "begin": In(1),
                "early": In(1),
                "ok": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # First stage: lanes that do not count are reset.
        word = Signal(_WORD, reset_less=True)
        word_valid = Signal()
        word_begins = Signal()
        m.d.sync += word_valid.eq(self.valid)
        with m.If(self.valid):
            m.d.sync += word_begins.eq(self.begin | (self.position < _FIRST))
            for lane in range(WORD_BYTES):
                empty = Signal(name=f"empty{lane}")
                constant = [number for number, at in _constant_bytes() if at == lane and number >= _FIRST]
                ends = 0 if lane < 2 else self.last if lane >= 6 else self.last & self.early
                m.d.comb += empty.eq(Cat(self.position == number for number in constant).any() | ends)
                with m.If(empty):
                    m.d.sync += word.word_select(lane, 8).eq(0)
                with m.Else():
                    m.d.sync += word.word_select(lane, 8).eq(self.data.word_select(lane, 8))

        # Second stage: the first half of the word is advanced over the second, ahead of the loop.
        share = Signal(STATE_BITS, reset_less=True)
        share_valid = Signal()
        share_begins = Signal()
        m.d.sync += share_valid.eq(word_valid)
        with m.If(word_valid):
            m.d.sync += [
                share.eq(advance_sharing(m, word[:_HALF], _HALF, "half") ^ word[_HALF:]),
                share_begins.eq(word_begins),
            ]

        # Third: the register, which is set back up to the frame's first word.
        state = Signal(STATE_BITS, reset_less=True)
        with m.If(share_valid):
            m.d.sync += state.eq(advance_sharing(m, state, _WORD, "whole") ^ share)
            with m.If(share_begins):
                m.d.sync += state.eq(_start())

        # The comparison, with the residue in front of the zeros that stand for the missing lanes.
        early = Signal(3)
        ended = Signal(3)
        m.d.sync += [early.eq(Cat(self.early, early)), ended.eq(Cat(self.valid & self.last, ended))]
        residues = [shifted(_RESIDUE, 8 * (WORD_BYTES - count)) for count in (6, 2)]
        differs = [
            state[n] ^ (early[-1] if residues[1] >> n & 1 else ~early[-1])
            if (residues[0] ^ residues[1]) >> n & 1
            else state[n] ^ (residues[0] >> n & 1)
            for n in range(STATE_BITS)
        ]
        m.d.comb += [
            self.ok.eq(~Cat(differs).any()),
            self.idle.eq(~(self.valid | word_valid | share_valid | ended.any())),
        ]
        return m
