"""Claimed bits: which PSNs were accepted, so that a payload reaches memory at most once."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..memory_rules import DISTRIBUTED
from .psn_ring import BLOCK_RAM, RingClear, below_mask, lap_parity, ring_rows, row_address

__all__ = ["ClaimBits"]

#: PSNs in a word: few, because only one of them is looked at.
_WORD_BITS = 8

#: Up to so many words distributed RAM is the better place: a block RAM would be almost empty.
_FEW_ROWS = 128


class ClaimBits(wiring.Component):
    """Owner of the claimed bits, one small word of PSNs at a time.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    read, qp, psn : 1, qp, 24
        Fetch the word of this PSN.
    held_qp, held_psn : qp, 24
        The PSN that was fetched; must stay while its word is used.
    claimed : 1
        Valid from the cycle after ``read``: the PSN is claimed.
    claim : 1
        Pulse, after ``read``: claim it.
    clear, clear_qp, clear_psn : 1, qp, 24
        Pulse: no PSN from ``clear_psn`` on is claimed; the others stay until ``cleared``. A clear waits for
        cycles without a claim.
    cleared : 1
        Pulse.

    Source: profile.md 5 (two bits a PSN); design, rule 1.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "read": In(1),
                "qp": In(config.qp_bits),
                "psn": In(24),
                "held_qp": In(config.qp_bits),
                "held_psn": In(24),
                "claimed": Out(1),
                "claim": In(1),
                "clear": In(1),
                "clear_qp": In(config.qp_bits),
                "clear_psn": In(24),
                "cleared": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self._config
        rows = ring_rows(config, _WORD_BITS)
        m.submodules.words = words = Memory(
            shape=_WORD_BITS, depth=rows, init=[], attrs=DISTRIBUTED if rows <= _FEW_ROWS else BLOCK_RAM
        )
        read, write = words.read_port(), words.write_port()
        m.submodules.ring = ring = RingClear(config, _WORD_BITS)
        bit = self.held_psn[: (_WORD_BITS - 1).bit_length()]
        toggled = Signal(_WORD_BITS)
        held_row = row_address(config, _WORD_BITS, self.held_qp, self.held_psn)
        m.d.comb += [
            read.en.eq(self.read),
            read.addr.eq(row_address(config, _WORD_BITS, self.qp, self.psn)),
            self.claimed.eq(read.data.bit_select(bit, 1) ^ lap_parity(config, self.held_psn)),
            # A PSN that is not claimed is claimed by turning its bit over.
            toggled.eq(read.data ^ (1 << bit)),
            ring.start.eq(self.clear),
            ring.initial_psn.eq(self.clear_psn),
            ring.hold.eq(self.claim),
            self.cleared.eq(ring.done),
            write.en.eq(self.claim | ring.write),
            write.addr.eq(Mux(self.claim, held_row, Cat(ring.word, self.clear_qp))),
            write.data.eq(
                Mux(self.claim, toggled, below_mask(ring.position) ^ ring.lap.replicate(_WORD_BITS))
            ),
        ]
        return m
