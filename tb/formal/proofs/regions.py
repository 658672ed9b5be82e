"""Look-up of memory regions: what is allowed lies inside the region, byte for byte, in 64 bits."""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Cover, Module, Signal
from amaranth.lib import data

from mrc_rtl import memory_regions as under_proof
from mrc_rtl.entry_memory import EntryMemory

from ..opened import Opened, free_inputs, keeps_offer
from ..proof import Proof, implies

__all__ = ["RegionsProof"]


class RegionsProof(Proof):
    """One arbitrary entry of the table is watched, with any content.

    Assumed: requests stay until they are taken; the entry does not change while it is looked up, for which
    the table holds look-ups back.

    Parameters
    ----------
    config : NicConfig
        64 bits wide: a row of the table is one word.
    """

    def describe(self, m: Module) -> None:
        """Ask for any range under any key."""
        config = self.config
        entries = EntryMemory(config, config.memory_regions, 1)
        entries._MustUse__used = True
        block = under_proof._Lookup(config, entries)
        opened = Opened(m, "lookup", block)
        word = Signal(64)
        free_inputs(m, block, block.data)
        keeps_offer(m, block.request)

        # The table.
        entry = AnyConst(entries.entry_bits)
        words = [AnyConst(64) for _ in range(4)]
        m.d.comb += block.data.eq(word)
        with m.If(block.enable):
            m.d.sync += word.eq(AnySeq(64))
            with m.If(block.entry == entry):
                with m.Switch(block.row):
                    for number, content in enumerate(words):
                        with m.Case(number):
                            m.d.sync += word.eq(content)
        first = data.View(under_proof._word_layout(0), words[0][: under_proof._word_layout(0).size])
        base, length, bus_base = words[1:]

        # The question under way, and the one that is answered.
        asked = Signal(block.request.payload.shape())
        told = Signal(block.request.payload.shape())
        starts = block.request.valid & block.request.ready
        with m.If(starts):
            m.d.sync += asked.eq(block.request.payload)
        with m.If(block.finishes):
            m.d.sync += told.eq(asked)

        def ours(question: data.View) -> object:
            index = question.key[under_proof._KEY_INDEX_LOW :]
            return index == entry

        def rights(question: data.View) -> object:
            return (
                first.valid
                & (first.key == question.key)
                & (first.protection_domain == question.protection_domain)
                & (first.remote_write | ~question.write)
            )

        end = Signal(66)
        offset = Signal(64)
        inside = Signal()
        m.d.comb += [
            offset.eq(told.address - base),
            end.eq(offset + told.length),
            inside.eq((told.address >= base) & (end <= length)),
        ]
        answer = block.answer
        answers = answer.valid & ours(told)
        m.d.comb += [
            Assert(implies(answers, answer.payload.ok == (rights(told) & inside))),
            Assert(
                implies(
                    answers & answer.payload.ok,
                    answer.payload.bus_address == (bus_base + offset)[: config.address_width],
                )
            ),
        ]

        # Induction: a step for each word.
        busy, step, below = (opened.signal(name) for name in ("busy", "step", "below"))
        request = opened.signal("request")
        kept = data.View(
            data.StructLayout(
                {name: field.shape for name, field in block.request.payload.shape() if name != "address"}
            ),
            request,
        )
        runs = busy & ours(asked)
        asked_offset, left = Signal(64), Signal(65)
        m.d.comb += [
            asked_offset.eq(asked.address - base),
            left.eq(length - asked_offset),
            *(Assert(implies(busy, kept[name] == asked[name])) for name in kept.shape().members),
            Assert(implies(busy, step <= 3)),
            Assert(implies(busy & (step <= 1), below == ~asked.address)),
            Assert(implies(runs & (step >= 2), below == ~asked_offset)),
            *(Assert(implies(runs & (step == n), word == words[n])) for n in range(4)),
            Assert(implies(runs, opened.signal("known"))),
            Assert(implies(runs & (step >= 1), opened.signal("allowed") == rights(asked))),
            Assert(implies(runs & (step >= 2), opened.signal("above") == (asked.address >= base))),
            Assert(implies(runs & (step == 3), opened.signal("inside") == (asked_offset <= length))),
            Assert(implies(runs & (step == 3), opened.signal("left") == left[:64])),
            Cover(answers & answer.payload.ok & (told.length == 7)),
            Cover(answers & ~answer.payload.ok & rights(told)),
        ]
