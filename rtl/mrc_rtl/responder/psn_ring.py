"""Bits per PSN in a ring of words, and how one bit serves every lap without ever being cleared.

The bit of a PSN stands at PSN modulo ``mpr_psns``. Its meaning alternates with the lap: the PSN is *set* when
the bit differs from the PSN's lap parity (bit ``psn_ring_bits`` of the PSN). So the bit of a PSN that was set
reads as not set for the PSN one lap later, and moving the window costs nothing. 2^24 is an even number of
laps, so the parity runs on over the wrap of the PSN.

Source: design, rules 4 and 11; profile.md 5.
"""

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import NicConfig

__all__ = ["BLOCK_RAM", "RingClear", "below_mask", "lap_parity", "near_bits", "ring_rows", "row_address"]

#: Attributes of a memory that goes to block RAM however few rows it has: distributed RAM costs a LUT a bit
#: for every 16 rows.
BLOCK_RAM = {"ram_style": "block"}


def near_bits(config: NicConfig) -> int:
    """Low bits of a PSN that order any two which are less than four windows apart."""
    return config.psn_ring_bits + 3


def ring_rows(config: NicConfig, word_bits: int) -> int:
    """Words of all rings."""
    return config.qps * config.mpr_psns // word_bits


def row_address(config: NicConfig, word_bits: int, qp: Value, psn: Value) -> Value:
    """Row that holds the bit of a PSN of a QP."""
    return Cat(psn[(word_bits - 1).bit_length() : config.psn_ring_bits], qp)


def lap_parity(config: NicConfig, psn: Value) -> Value:
    """Parity of the lap of a PSN: what the bit of a PSN that is not set reads."""
    return psn[config.psn_ring_bits]


def below_mask(position: Value) -> Value:
    """Word with ones in every bit below ``position``."""
    return Cat(position > n for n in range(1 << len(position)))


class RingClear(wiring.Component):
    """Goes through the words of one QP's ring so that no PSN from ``initial_psn`` on is set.

    Parameters
    ----------
    config : NicConfig
    word_bits : int
        PSNs in a word, a power of two.

    Members
    -------
    start : 1
        Pulse; ``initial_psn`` must stay until ``done``.
    hold : 1
        Write nothing in this cycle.
    write, word : 1, number of a word
        One word a cycle: ``below_mask(position)``, turned over when ``lap``.
    position, lap : position in a word, 1
    done : 1
        Pulses with the last word.
    """

    def __init__(self, config: NicConfig, word_bits: int) -> None:
        self._config = config
        self._index_bits = (word_bits - 1).bit_length()
        super().__init__(
            {
                "start": In(1),
                "initial_psn": In(24),
                "hold": In(1),
                "write": Out(1),
                "word": Out(config.psn_ring_bits - self._index_bits),
                "position": Out(self._index_bits),
                "lap": Out(1),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        first = self.initial_psn[self._index_bits : self._config.psn_ring_bits]
        running = Signal()
        m.d.comb += [
            self.write.eq(running & ~self.hold),
            self.done.eq(self.write & self.word.all()),
            # PSNs below the first one come one lap later.
            self.lap.eq(lap_parity(self._config, self.initial_psn) ^ (self.word < first)),
        ]
        with m.If(self.start):
            m.d.sync += running.eq(1)
        with m.If(self.write):
            m.d.sync += self.word.eq(self.word + 1)
        with m.If(self.done):
            m.d.sync += running.eq(0)
        with m.If(self.word == first):
            m.d.comb += self.position.eq(self.initial_psn)
        return m
