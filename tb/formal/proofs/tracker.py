"""Receive tracker: the cumulative PSN moves over placed PSNs only, as far as it can, and never back."""

from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, Signal, Value

from mrc_rtl.responder import rx_tracker as under_proof

from ..opened import Opened, free_inputs, keeps_offer
from ..proof import Proof
from ..window import in_window, lap, place_in_window

__all__ = ["TrackerProof"]

_PSN = 24


class TrackerProof(Proof):
    """One arbitrary place of the ring of one arbitrary QP is watched, with the PSN that has it in the window.

    Assumed: offers stay until they are taken; a packet of the watched QP comes when the QP has begun, inside
    the window, and the watched PSN once (:class:`formal.proofs.claims.ClaimsProof`); a QP begins anew while
    nothing of it is on its way. Failed writes, snapshots, reads of the state and late takers come at will.
    """

    def describe(self, m: Module) -> None:
        """Place packets and begin QPs in any order."""
        config = self.config
        bits = config.psn_ring_bits
        word_bits = under_proof.placed_word_bits(config)
        index = (word_bits - 1).bit_length()
        block = under_proof.RxTracker(config)
        opened = Opened(m, "tracker", block)
        contexts, step, clear = (opened.part(name) for name in ("contexts", "step", "clear"))
        free_inputs(m, block)
        for offer in (block.placed, block.init, block.snapshot, block.state_request):
            keeps_offer(m, offer)

        watched_qp, watched = AnyConst(config.qp_bits), AnyConst(bits)
        packet, init = block.placed.payload, block.init.payload
        live, placed = Signal(), Signal()
        expected, psn = Signal(_PSN), Signal(_PSN)
        ours, begins = Signal(), Signal()
        m.d.comb += [
            expected.eq(contexts.memory_row("expected", watched_qp)),
            psn.eq(place_in_window(expected, watched)),
            ours.eq(block.placed.valid & (packet.qp == watched_qp)),
            begins.eq(block.init.valid & (init.qp == watched_qp)),
        ]

        # What comes, when it comes.
        known = Signal()  # the packet on offer was there before
        m.d.sync += known.eq(block.placed.valid & ~block.placed.ready)
        m.d.comb += [
            Assume(known | ~ours | (live & in_window(config, expected, packet.psn))),
            Assume(known | ~ours | packet.error | (packet.psn != psn) | ~placed),
            Assume(~(ours & begins)),
        ]

        # What a commit does to the watched PSN.
        working = opened.state("MODIFY", "COMMIT", "NEXT_WORD")
        qp = opened.signal("qp")
        on_ours = qp == watched_qp
        walking = step.block.walking
        commit = Signal()
        now_placed, passes = Signal(), Signal()
        moved = Signal(_PSN)
        m.d.comb += [
            commit.eq(opened.signal("commit") & on_ours),
            now_placed.eq(placed | (~walking & (packet.psn == psn))),
            moved.eq(Mux(commit, contexts.block.new_expected - expected, 0)),
            passes.eq(moved > (psn - expected)[:_PSN]),
            # It moves forward, inside the window, and over nothing that is not placed.
            Assert(moved <= config.mpr_psns),
            Assert(~passes | now_placed),
            # When a packet is done with, nothing more can be passed.
            Assert(~(~(working & walking & on_ours) & live & (psn == expected)) | ~placed),
        ]
        with m.If(block.init.ready & begins):
            m.d.sync += [live.eq(1), placed.eq(0)]
            m.d.comb += Assert(expected == init.initial_psn)
        with m.Elif(begins):
            m.d.sync += live.eq(0)
        with m.Elif(commit):
            m.d.sync += placed.eq(now_placed & ~passes)

        # The advance that others hear of is the cumulative PSN; after a commit it follows one cycle later.
        told = block.advance
        fresh = Signal()
        m.d.sync += fresh.eq(commit & step.block.is_next)
        m.d.comb += Assert(~fresh | (told.valid & (told.payload.qp == watched_qp)))
        heard, heard_psn = Signal(), Signal(_PSN)
        with m.If(commit & step.block.is_next & (contexts.block.new_expected != expected)):
            m.d.sync += [heard.eq(1), heard_psn.eq(contexts.block.new_expected - 1)]
        with m.Elif(told.ready | (commit & step.block.is_next)):
            m.d.sync += heard.eq(0)
        m.d.comb += Assert(~heard | (told.valid & (told.payload.cumulative_psn == heard_psn)))

        # Induction: what a packet carries through its steps.

        row_of = Mux(walking, expected[index:bits], packet.psn[index:bits])
        here = (row_of == watched[index:]) & on_ours
        place = watched[:index]
        bit = opened.memory_row("words", Cat(watched[index:], watched_qp)).placed.bit_select(place, 1)
        run = step.signal("run")
        position = opened.signal("position")
        word = opened.read_data("words")

        def at(value: Value) -> Value:
            return value.bit_select(place, 1)

        held = contexts.block.expected
        first = packet.psn == expected
        m.d.comb += [
            Assert(opened.legal_state()),
            Assert(~live | ((bit ^ lap(config, psn)) == placed)),
            Assert(~working | (block.placed.valid & (packet.qp == qp) & ~packet.error)),
            Assert(~(working & on_ours) | live),
            Assert(~(working & ~walking) | ~opened.state("NEXT_WORD")),
            Assert(~(opened.state("MODIFY", "COMMIT") & on_ours) | (held == expected)),
            Assert(~(ours & ~(working & walking)) | (live & in_window(config, expected, packet.psn))),
            Assert(~(ours & ~(working & walking) & ~packet.error & (packet.psn == psn)) | ~placed),
            Assert(~(opened.state("MODIFY") & ~walking) | (position == packet.psn[:index])),
            Assert(~(opened.state("COMMIT") & ~walking) | (position == packet.psn[:index])),
            Assert(~(opened.state("MODIFY", "COMMIT") & walking) | (position == 0)),
            Assert(~(working & walking & on_ours) | ((expected[:index] == 0) & step.block.is_next)),
            Assert(
                ~(opened.state("NEXT_WORD") & on_ours)
                | ((held[index:] + 1)[: _PSN - index] == expected[index:])
            ),
            Assert(~(opened.state("MODIFY") & here) | (at(word.placed) == bit)),
        ]
        committing = opened.state("COMMIT") & on_ours
        further = place >= position
        m.d.comb += [
            Assert(~opened.state("COMMIT") | ((run & (run + 1)[:word_bits]) == 0)),
            Assert(~(committing & ~walking) | (step.block.is_next == first)),
            Assert(~(committing & step.block.is_next & here & further & at(run)) | now_placed),
            Assert(
                ~(committing & step.block.is_next & here & further & ~at(run))
                | ((place != 0) & ~run.bit_select((place - 1)[:index], 1))
                | ~now_placed
            ),
            Assert(~(committing & ~walking) | run.bit_select(packet.psn[:index], 1)),
            Assert(
                ~(committing & ~walking & here)
                | (
                    at(step.block.new_word.placed)
                    == Mux(packet.psn[:index] == place, ~lap(config, packet.psn), bit)
                )
            ),
        ]

        # Induction: a ring that is cleared.
        running, next_row = clear.signal("running"), clear.block.word
        writes, write_row = opened.signal("clearing"), opened.signal("clear_row")
        clears = opened.state("CLEAR", "CLEARED", "START") & on_ours
        empty = lap(config, place_in_window(init.initial_psn, watched))
        written = Mux(opened.state("CLEAR"), next_row - writes > watched[index:], opened.state("START"))
        cleared = opened.state("CLEARED") & (watched[index:].all() == 0)
        row_now = at(step.block.below) ^ opened.signal("clear_lap")
        m.d.comb += [
            Assert(running == opened.state("CLEAR")),
            Assert(running | (next_row == 0)),
            Assert(~opened.state("CLEAR", "CLEARED", "START") | (block.init.valid & (init.qp == qp))),
            Assert(~clears | ~live),
            Assert(~(opened.state("CLEAR") & (next_row != 0)) | writes),
            Assert(~(opened.state("CLEAR") & (next_row == 0)) | ~writes),
            Assert(opened.state("CLEAR", "CLEARED") | ~writes),
            Assert(~opened.state("CLEARED") | writes),
            Assert(~writes | (write_row == (next_row - 1)[: len(write_row)])),
            Assert(~(clears & (written | cleared)) | (bit == empty)),
            Assert(~(clears & writes & (write_row == watched[index:])) | (row_now == empty)),
            Assert(~(opened.state("CLEARED", "START") & on_ours) | (expected == init.initial_psn)),
        ]

        m.d.comb += [
            Cover(passes & (moved == 2)),
            Cover(passes & (psn == 0)),
            Cover(passes & walking),
            Cover(opened.state("IDLE") & live & placed & (expected != psn)),
        ]
