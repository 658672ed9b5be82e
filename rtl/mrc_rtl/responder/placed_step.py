"""What a placed packet changes in one word of placed bits, and how far the cumulative PSN moves in it."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import NicConfig
from .psn_ring import lap_parity, near_bits
from .ring_word import leading_ones, looked_up, number_of_ones, thermometer_count

__all__ = ["PlacedStep", "placed_word"]

#: Headers of a packet that NSCC counts beside payload and pad, in units of 4 bytes: UDP 8, BTH 12, METH 4,
#: RETH 16, ICRC 4 and the nominal 40 of protocol.md 2.7; TSETH and ImmDt come on top when they are there.
_NOMINAL_WORDS = (8 + 12 + 4 + 16 + 4 + 40) // 4

_PSN = 24


def placed_word(word_bits: int) -> data.StructLayout:
    """A word of the ring: which PSNs are placed, by lap, and which of those are the last of a message."""
    return data.StructLayout({"placed": word_bits, "last": word_bits})


class PlacedStep(wiring.Component):
    """One step of the tracker over one word: two cycles, the first with ``modify``.

    The first step takes the packet's own word, sets its bit and compares its PSN; further ones walk over the
    words behind it while each is placed to its end.

    Parameters
    ----------
    config : NicConfig
    word_bits : int
        PSNs in a word.

    Members
    -------
    modify : 1
        First cycle: the inputs below are there. The outputs count in the second one.
    walking : 1
        This is a further step.
    clear : 1
        Forget the packet: nothing is passed and no bytes are counted.
    packet : records.placed_record
    word, view, below : word, bits, bits
        The word, its PSNs that are placed in ``lap``, and ones below the packet's place (none when walking).
    lap : 1, out
        Lap parity of the PSNs of this step.
    expected, above, highest, lowest : 24, above, near, near
        Fields of :class:`mrc_rtl.responder.rx_contexts.RxContexts`.
    new_word : word
    is_next, whole, moves : 1, 1, 1
        The packet is the expected one; the ones reach the end of the word; they begin with it.
    newer, becomes_lowest : 1, 1
        The packet has the highest PSN, the lowest one that was not reported.
    run_end : place in a word
        First PSN that is not placed, 0 when ``whole``.
    new_expected, new_above, nominal, messages : 24, above, 12, count
        ``nominal``: bytes of the packet as NSCC counts them, in units of 4. ``messages``: message ends
        passed.
    passed_end, drained : 1, 1
        A message's end is passed; nothing above the expected PSN is left.

    Source: protocol.md 2.7, 3.1 and 3.3.
    """

    def __init__(self, config: NicConfig, word_bits: int) -> None:
        self._config = config
        self._word_bits = word_bits
        near = near_bits(config)
        above = config.psn_ring_bits + 1
        super().__init__(
            {
                "modify": In(1),
                "walking": In(1),
                "clear": In(1),
                "packet": In(records.placed_record(config)),
                "word": In(placed_word(word_bits)),
                "view": In(word_bits),
                "below": In(word_bits),
                "lap": Out(1),
                "expected": In(_PSN),
                "above": In(above),
                "highest": In(near),
                "lowest": In(near),
                "new_word": Out(placed_word(word_bits)),
                "is_next": Out(1),
                "whole": Out(1),
                "moves": Out(1),
                "newer": Out(1),
                "becomes_lowest": Out(1),
                "run_end": Out((word_bits - 1).bit_length()),
                "new_expected": Out(_PSN),
                "new_above": Out(above),
                "nominal": Out(12),
                "messages": Out(word_bits.bit_length()),
                "passed_end": Out(1),
                "drained": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config, word_bits, packet = self._config, self._word_bits, self.packet
        near = near_bits(config)
        index_bits = (word_bits - 1).bit_length()

        # First cycle: what the packet changes, and how far the ones reach.
        run = Signal(word_bits)  # ones up to the first PSN that is not placed
        ends = Signal(word_bits)  # last packets of messages among those that the step passes
        upto = Signal(word_bits)
        m.d.comb += [
            upto.eq(Cat(1, self.below[:-1]) & (~self.walking).replicate(word_bits)),
            self.lap.eq(Mux(self.walking, lap_parity(config, self.expected), lap_parity(config, packet.psn))),
        ]
        bit = upto & ~self.below
        last_word = (self.word.last & ~bit) | (bit & packet.last.replicate(word_bits))
        leading = leading_ones(self.view | upto)
        with m.If(self.modify):
            m.d.sync += [
                self.new_word.placed.eq(Mux(self.lap, self.word.placed & ~bit, self.word.placed | bit)),
                self.new_word.last.eq(last_word),
                run.eq(leading),
                ends.eq(leading & ~self.below & last_word),
            ]
            with m.If(~self.walking):
                psn = packet.psn[:near]
                next_now = psn == self.expected[:near]
                header_words = [_NOMINAL_WORDS + n.bit_count() for n in range(8)]
                extra = Cat(packet.length[:2].any(), packet.timestamped, packet.immediate)
                m.d.sync += [
                    self.is_next.eq(next_now),
                    self.newer.eq((self.highest - psn)[near - 1]),
                    # The bound is renewed with every expected packet, so that it stays near the window.
                    self.becomes_lowest.eq(
                        next_now | (self.highest - self.lowest)[near - 1] | (psn - self.lowest)[near - 1]
                    ),
                    self.nominal.eq(packet.length[2:] + looked_up(extra, header_words, 6)),
                ]
        with m.If(self.clear):
            m.d.sync += [self.is_next.eq(0), ends.eq(0), self.nominal.eq(0)]

        # Second cycle: where the step ends.
        start = self.expected[:index_bits]
        passed = Signal(signed(index_bits + 2))  # packets above the expected PSN that become fewer
        m.d.comb += [
            self.whole.eq(run[-1]),
            self.moves.eq(run[0]),
            self.run_end.eq(thermometer_count(run)),
            # A packet that is placed now was not above: it only adds to those when it is not the next.
            passed.eq((Cat(1, self.run_end, self.whole) + Cat(self.walking, ~start, 1, 1))[1:]),
            self.new_expected.eq(
                Cat(
                    Mux(self.is_next, self.run_end, start),
                    (self.expected[index_bits:] + (self.is_next & self.whole))[: _PSN - index_bits],
                )
            ),
            self.new_above.eq(self.above - Mux(self.is_next, passed, -1)),
            self.messages.eq(number_of_ones(ends)),
            self.passed_end.eq(self.is_next & ends.any()),
            self.drained.eq(self.is_next & (self.above == passed.as_unsigned())),
        ]
        return m
