"""Claimed bits: every PSN of the window is claimed at most once, over all laps of the ring."""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Signal

from mrc_rtl.responder import claim_bits as under_proof

from ..opened import Opened
from ..proof import Proof
from ..window import in_window, lap, place_in_window

__all__ = ["ClaimsProof"]

_PSN = 24


class ClaimsProof(Proof):
    """One arbitrary place of the ring of one arbitrary QP is watched, with the PSN that has it in the window.

    Assumed, as admission does it: one packet at a time is read and then claimed or not; it is claimed only
    when it was inside the window and not claimed when it was read. The window moves by any distance, but
    over the watched PSN only after that was claimed (:class:`formal.proofs.tracker.TrackerProof`). A QP is
    cleared while no packet of it is looked at.
    """

    def describe(self, m: Module) -> None:
        """Claim, move the window and clear in any order."""
        config = self.config
        bits = config.psn_ring_bits
        block = under_proof.ClaimBits(config)
        opened = Opened(m, "claims", block)
        ring = opened.part("ring")
        running, word = ring.signal("running"), ring.block.word

        watched_qp, watched = AnyConst(config.qp_bits), AnyConst(bits)
        live = Signal()  # the QP is cleared
        expected = Signal(_PSN)
        psn = Signal(_PSN)  # the watched one
        claimed = Signal()
        m.d.comb += psn.eq(place_in_window(expected, watched))

        # The window moves.
        move = AnySeq(bits + 1)
        passes = Signal()
        m.d.comb += [
            Assume(move <= config.mpr_psns),
            passes.eq(live & (move > (psn - expected)[:_PSN])),
            Assume(~passes | claimed),
        ]

        # One packet at a time.
        read, wants = AnySeq(1), AnySeq(1)
        pending, looking, allowed = Signal(), Signal(), Signal()
        held_qp, held_psn = Signal(config.qp_bits), Signal(_PSN)
        clearing, clear_qp, clear_psn = Signal(), Signal(config.qp_bits), Signal(_PSN)
        same_qp = held_qp == watched_qp
        same = same_qp & (held_psn[:bits] == watched)
        inside = in_window(config, expected, held_psn) | ~same_qp
        m.d.comb += [
            block.read.eq(read & ~pending),
            block.qp.eq(AnySeq(config.qp_bits)),
            block.psn.eq(AnySeq(_PSN)),
            block.held_qp.eq(held_qp),
            block.held_psn.eq(held_psn),
            block.claim.eq(pending & ~looking & allowed & wants),
            Assume(~(block.read & clearing & (block.qp == clear_qp))),
            Assume(~(block.read & ~live & (block.qp == watched_qp))),
        ]
        m.d.sync += looking.eq(block.read)
        with m.If(block.read):
            m.d.sync += [pending.eq(1), held_qp.eq(block.qp), held_psn.eq(block.psn)]
        with m.If(looking):
            m.d.sync += allowed.eq(inside & ~block.claimed)
        with m.Elif(pending & wants):
            m.d.sync += pending.eq(0)

        # Clears.
        start = AnySeq(1)
        m.d.comb += [
            block.clear.eq(start & ~clearing),
            block.clear_qp.eq(clear_qp),
            block.clear_psn.eq(clear_psn),
        ]
        new_qp, new_psn = AnySeq(config.qp_bits), AnySeq(_PSN)
        with m.If(block.clear):
            m.d.comb += [
                block.clear_qp.eq(new_qp),
                block.clear_psn.eq(new_psn),
                Assume(~(pending & (held_qp == new_qp))),
                Assume(~(block.read & (block.qp == new_qp))),
            ]
            m.d.sync += [clearing.eq(1), clear_qp.eq(new_qp), clear_psn.eq(new_psn)]
        with m.If(block.cleared):
            m.d.sync += clearing.eq(0)

        # What is known of the watched PSN.
        claims = block.claim & same
        with m.If(block.cleared & (clear_qp == watched_qp)):
            m.d.sync += [live.eq(1), expected.eq(clear_psn), claimed.eq(0)]
        with m.Elif(block.clear & (new_qp == watched_qp)):
            m.d.sync += live.eq(0)
        with m.Elif(live):
            m.d.sync += [expected.eq(expected + move), claimed.eq((claimed | claims) & ~passes)]
        m.d.comb += [
            # The claim: at most once, and inside the window.
            Assert(~claims | (live & ~claimed & (held_psn == psn))),
            Assert(~(looking & same & inside) | (block.claimed == claimed)),
        ]

        # Induction: what the memory says, and what was read of it.
        row = opened.memory_row("words", Cat(watched[3:], watched_qp))
        bit = row.bit_select(watched[:3], 1)
        cleared_psn = place_in_window(clear_psn, watched)
        clears = clearing & (clear_qp == watched_qp)
        read_row = opened.read_data("words")
        m.d.comb += [
            Assert(~live | ((bit ^ lap(config, psn)) == claimed)),
            Assert(running == clearing),
            Assert(running | (word == 0)),
            Assert(~(clears & live)),
            Assert(~(clears & (word > watched[3:])) | (bit == lap(config, cleared_psn))),
            Assert(~(pending & (held_qp == clear_qp) & clearing)),
            Assert(~looking | pending),
            Assert(~(pending & same_qp) | live),
            Assert(
                ~(pending & same_qp & (held_psn[3:bits] == watched[3:]))
                | (read_row.bit_select(watched[:3], 1) == bit)
            ),
            Assert(~(pending & ~looking & allowed & same) | ((held_psn == psn) & ~claimed)),
        ]

        laps = Signal(2)
        with m.If(passes):
            m.d.sync += laps.eq(laps + 1)
        m.d.comb += [
            Cover(claims & (laps == 2)),
            Cover(claims & (psn == 0) & (expected > 0xFFFFF0)),
            Cover(looking & same & inside & block.claimed),
            Cover(block.claim & clears),
        ]
