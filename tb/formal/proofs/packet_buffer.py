"""Packet buffer of a plane: what is taken out is what was committed, once each and in order."""

from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Assume, Cover, Module, Signal

from mrc_rtl.responder import packet_buffer as under_proof

from ..opened import Opened, free_inputs
from ..proof import Proof

__all__ = ["PacketBufferProof"]


class PacketBufferProof(Proof):
    """One arbitrary place of the ring and its beat are watched.

    Assumed: a frame is committed or rolled back, not both, and between two payloads; beats are only taken
    when one is committed.
    """

    def describe(self, m: Module) -> None:
        """Write, commit, roll back and take in any order."""
        block = under_proof.PacketBuffer(self.config)
        opened = Opened(m, "buffer", block)
        free_inputs(m, block)
        head, committed, tail = (opened.signal(name) for name in ("head", "committed", "tail"))
        bits = len(head) - 1
        m.d.comb += [
            Assume(~(block.commit & block.rollback)),
            Assume(~((block.commit | block.rollback) & block.valid)),
            Assume(~(block.take & block.idle)),
        ]

        # No leak, no double free: tail, committed and head stand in this order, at most the depth apart.
        occupied, kept = Signal(bits + 1), Signal(bits + 1)
        m.d.comb += [
            occupied.eq(head - tail),
            kept.eq(committed - tail),
            Assert(occupied <= 1 << bits),
            Assert(kept <= occupied),
            Assert(block.idle == (kept == 0)),
        ]

        # Beats in, beats out: a count of its own must agree with the pointers.
        pending, whole = Signal(bits + 1), Signal(bits + 1)
        entered = Signal()
        beat_words = self.config.data_bytes // 8
        words = Signal(range(beat_words + 1))
        complete = Signal()
        m.d.comb += [
            complete.eq(block.valid & (block.last | (words == beat_words - 1))),
            entered.eq(complete & (whole + pending != 1 << bits) & ~block.full),
        ]
        with m.If(block.valid):
            m.d.sync += words.eq(words + 1)
        with m.If(complete | block.commit | block.rollback):
            m.d.sync += words.eq(0)
        with m.If(block.commit):
            m.d.sync += [whole.eq(whole + pending - block.take), pending.eq(0)]
        with m.Else():
            m.d.sync += whole.eq(whole - block.take)
            with m.If(block.rollback):
                m.d.sync += pending.eq(0)
            with m.Else():
                m.d.sync += pending.eq(pending + entered)
        m.d.comb += [
            Assert(whole == kept),
            Assert(pending == ((head - committed)[: bits + 1])),
            Assert(words < beat_words),
        ]
        if beat_words > 1:
            m.d.comb += Assert(words == opened.signal("lane"))

        # A frame that missed a beat says so until its end.
        missed = Signal()
        with m.If(block.commit | block.rollback):
            m.d.sync += missed.eq(0)
        with m.Elif(complete & ~entered):
            m.d.sync += missed.eq(1)
        m.d.comb += Assert(block.full == missed)

        # The watched beat: gathered from words, kept in its place, given out when it is taken.
        place = AnyConst(bits)
        lane = AnyConst(range(beat_words)) if beat_words > 1 else 0
        word = Signal(64)
        fresh = Signal(64)
        stored = Signal(64)
        m.d.comb += fresh.eq(block.word if beat_words == 1 else word)
        with m.If(block.valid & (words == lane)):
            m.d.sync += word.eq(block.word)
            if beat_words > 1:
                m.d.comb += fresh.eq(block.word)
        holds = Signal()
        reaches = (words == lane) | (words > lane)
        with m.If(entered & (head[:bits] == place)):
            m.d.sync += [stored.eq(fresh), holds.eq(reaches)]
        inside = Signal()
        distance = Signal(bits)
        row = opened.memory_row("beats", place)
        m.d.comb += [
            distance.eq(place - tail[:bits]),
            inside.eq((distance < occupied) & holds),
            Assert(~inside | (row.word_select(lane, 64) == stored)),
        ]
        if beat_words > 1:
            gathered = [opened.signal(f"gathered{n}") for n in range(beat_words - 1)]
            for n, target in enumerate(gathered):
                m.d.comb += Assert((lane != n) | (words <= n) | (target == word))
        taken = Signal()
        value = Signal(64)
        m.d.sync += taken.eq(block.take & (tail[:bits] == place) & holds)
        with m.If(block.take & (tail[:bits] == place)):
            m.d.sync += value.eq(stored)
        m.d.comb += Assert(~taken | (block.read_data.word_select(lane, 64) == value))

        m.d.comb += [
            Cover(block.full),
            Cover(block.rollback & (pending == 2) & (whole == 2)),
            Cover(taken & (tail > 3) & (value == 0x1234)),
        ]
