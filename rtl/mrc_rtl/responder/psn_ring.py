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

__all__ = [
    "WORD_BITS",
    "WORD_INDEX_BITS",
    "RingClear",
    "below_mask",
    "lap_parity",
    "row_address",
    "ring_rows",
]

#: Attributes of a memory that goes to block RAM however few rows it has: as distributed RAM, 32 rows of 64
#: bits cost some 250 LUT4.
BLOCK_RAM = {"ram_style": "block"}

#: PSNs in a word.
WORD_BITS = 32

#: Bits of a PSN that choose a bit inside its word.
WORD_INDEX_BITS = 5


def ring_rows(config: NicConfig) -> int:
    """Words of all rings."""
    return config.qps * config.mpr_psns // WORD_BITS


def row_address(config: NicConfig, qp: Value, psn: Value) -> Value:
    """Row that holds the bit of a PSN of a QP."""
    return Cat(psn[WORD_INDEX_BITS : config.psn_ring_bits], qp)


def lap_parity(config: NicConfig, psn: Value) -> Value:
    """Parity of the lap of a PSN: what the bit of a PSN that is not set reads."""
    return psn[config.psn_ring_bits]


def below_mask(position: Value) -> Value:
    """Word with ones in every bit below ``position`` (0 to 31)."""
    return Cat(position > n for n in range(WORD_BITS))


class RingClear(wiring.Component):
    """Writes the words of one QP's ring so that no PSN from ``initial_psn`` on is set.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    start : 1
        Pulse; ``qp`` and ``initial_psn`` must stay until ``done``.
    hold : 1
        Write nothing in this cycle.
    write, address : 1, row
        One word a cycle: ``below_mask(position)``, turned over when ``lap``.
    position, lap : 5, 1
    done : 1
        Pulses with the last word.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "qp": In(config.qp_bits),
                "initial_psn": In(24),
                "hold": In(1),
                "write": Out(1),
                "address": Out(range(ring_rows(config))),
                "position": Out(WORD_INDEX_BITS),
                "lap": Out(1),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self._config
        first = self.initial_psn[WORD_INDEX_BITS : config.psn_ring_bits]
        running = Signal()
        word = Signal(config.psn_ring_bits - WORD_INDEX_BITS)
        lap = lap_parity(config, self.initial_psn)
        m.d.comb += [
            self.write.eq(running & ~self.hold),
            self.address.eq(Cat(word, self.qp)),
            self.done.eq(self.write & word.all()),
        ]
        with m.If(self.start):
            m.d.sync += running.eq(1)
        with m.If(self.write):
            m.d.sync += word.eq(word + 1)
        with m.If(self.done):
            m.d.sync += running.eq(0)
        # PSNs below the first one come one lap later.
        m.d.comb += self.lap.eq(lap ^ (word < first))
        with m.If(word == first):
            m.d.comb += self.position.eq(self.initial_psn)
        return m
