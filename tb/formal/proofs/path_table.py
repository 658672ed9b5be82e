"""Path table: EV states are the host's, but for skips that picks use up."""

from typing import Any

from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Signal

from mrc_rtl.paths import path_table as under_proof

from ..opened import Opened, free_inputs
from ..proof import Proof, implies

__all__ = ["PathTableProof"]


class PathTableProof(Proof):
    """The word of one arbitrary QP on one arbitrary plane is watched.

    Assumed, as bind does it: no pick starts while the table holds picks back, and a pick writes while it is
    busy. A host's command stays until it is taken.
    """

    def describe(self, m: Module) -> None:
        """Write, read and pick in any order."""
        config = self.config
        planes = config.planes
        block = under_proof.PathTable(config)
        opened = Opened(m, "path_table", block)
        sequence = opened.part("sequence").block
        free_inputs(m, block)
        table = block.table
        qp, plane = AnyConst(config.qp_bits), AnyConst(range(planes))
        row = Signal(range(config.qps * planes + planes))
        command = Cat(table.write, table.index, table.word, table.last, table.write_data)
        waits, before = Signal(), Signal(len(command))
        held, busy = Signal(), Signal()
        m.d.sync += [waits.eq(table.valid & ~table.ready), before.eq(command)]
        m.d.sync += [held.eq(block.hold), busy.eq(block.busy)]
        m.d.comb += [
            row.eq(qp * planes + plane),
            Assume(plane < planes),
            Assume(implies(waits, table.valid & (command == before))),
            Assume(implies(held & ~busy, ~block.busy)),
            Assume(implies(block.write, block.busy)),
            Assume(block.pick_plane < planes),
            # A shift register that began at anything but zero never gets there.
            Assume(implies(block.write, block.new_place.hash != 0)),
        ]

        # What the host and the picks have made of the word.
        good, skip, written = Signal(32), Signal(32), Signal()
        access = Signal()
        picked = Signal()
        m.d.comb += [
            access.eq(opened.signal("access") & (table.index == row)),
            picked.eq((block.pick_qp == qp) & (block.pick_plane == plane)),
        ]
        with m.If(access):
            m.d.sync += [good.eq(table.write_data[:32]), skip.eq(table.write_data[32:]), written.eq(1)]
        with m.Elif(block.write & block.write_skip & picked):
            m.d.sync += skip.word_select(block.skip_group, 8).eq(block.new_skip)

        # What is read is that, a cycle after the address.
        looked, asked, told = Signal(), Signal(), Signal()
        was_good, was_skip = Signal(32), Signal(32)
        usable = Signal()
        changes = opened.state("ACCESS") | ~sequence.cleared
        reads = opened.state("ACCESS") & (table.index == row) & ~table.write
        m.d.sync += [
            looked.eq((block.look_qp == qp) & ~changes),
            asked.eq(picked & ~opened.state("ACCESS", "RESTART") & ~block.write),
            told.eq(reads),
            usable.eq(written & good.any()),
            was_good.eq(good),
            was_skip.eq(skip),
        ]
        word = block.word
        m.d.comb += [
            Assert(implies(looked, block.usable.bit_select(plane, 1) == usable)),
            Assert(implies(asked & written, (word.good == was_good) & (word.skip == was_skip))),
            Assert(implies(told & written, table.done & ~table.error)),
            Assert(implies(told & written, table.read_data == Cat(was_good, was_skip))),
            # A command never meets a pick.
            Assert(implies(opened.state("ACCESS", "RESTART"), ~block.busy)),
        ]

        # Induction.
        stored_skip = Cat(*(opened.memory_row(f"skip{group}", row) for group in range(4)))
        stored_planes: Any = opened.memory_row("planes", qp)
        control = AnyConst(1)
        place: Any = opened.memory_row("places", Cat(control, row[: len(opened.signal("row"))]))
        began, restarted = Signal(), opened.signal("restarted")
        with m.If(opened.state("RESTART") & (table.index == row) & (restarted == control)):
            m.d.sync += began.eq(1)
        at_row, at_plane, rest = (opened.signal(name) for name in ("row", "plane", "rest"))
        divided = opened.signal("qp")
        working = opened.state("DIVIDE", "WAIT", "ACCESS", "RESTART")
        m.d.comb += [
            Assert(opened.legal_state()),
            Assert(implies(written, opened.memory_row("good", row) == good)),
            Assert(implies(written, stored_skip == skip)),
            Assert(
                implies(
                    sequence.cleared | (sequence.row > qp),
                    stored_planes.bit_select(plane, 1) == (written & good.any()),
                )
            ),
            Assert(implies(~sequence.cleared, ~written & opened.state("IDLE"))),
            Assert(implies(working, table.valid & (table.index < config.qps * planes))),
            Assert(implies(opened.state("DIVIDE"), divided * planes + rest == at_row)),
            Assert(
                implies(
                    opened.state("WAIT", "ACCESS"),
                    (at_plane < planes) & (divided * planes + at_plane == at_row),
                )
            ),
            Assert(
                implies(
                    opened.state("ACCESS") & (divided == qp),
                    opened.read_data("planes", 1) == stored_planes,
                )
            ),
            Assert(implies(opened.state("ACCESS"), held & ~busy)),
            Assert(implies(opened.state("RESTART"), held & ~busy)),
            Assert(implies(opened.state("IDLE", "DIVIDE", "WAIT", "ACCESS"), ~restarted)),
            Assert(implies(working, ~opened.signal("refused"))),
            Assert(implies(began, place.hash != 0)),
            Cover(looked & usable & (plane == planes - 1)),
            Cover(asked & written & (was_skip == 0x00FF00) & (was_good != 0) & began),
            Cover(told & written),
        ]
