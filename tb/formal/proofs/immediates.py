"""Immediates: delivered in the order of their messages, each once, when all before it is placed."""

from typing import Any

from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Cat, Const, Cover, Module, Mux, Signal, Value
from amaranth.lib import data

from mrc_rtl.responder import immediates as under_proof

from ..opened import Opened, free_inputs, keeps_offer
from ..proof import Proof, implies

__all__ = ["ImmediatesProof"]


class ImmediatesProof(Proof):
    """One arbitrary message of one arbitrary QP is watched, and one of its posted requests.

    Assumed: offers stay until they are taken. Everything else comes at will: messages in any order, twice or
    never, requests that are posted late or changed, QPs that begin anew at any time.
    """

    def describe(self, m: Module) -> None:
        """Stash, advance, post and begin anew in any order."""
        config = self.config
        self.block = block = under_proof.Immediates(config)
        self.opened = opened = Opened(m, "immediates", block)
        free_inputs(m, block)
        for offer in (block.doorbell, block.init, block.stash, block.advance):
            keeps_offer(m, offer)
        self.row_bits = (config.immediates - 1).bit_length()
        self.slot_bits = (config.receive_queue_depth - 1).bit_length()
        self.watched_qp = AnyConst(config.qp_bits)
        self.qp = opened.signal("qp")
        self.ours = self.qp == self.watched_qp
        self.stored: Any = opened.memory_row("contexts", self.watched_qp)
        self.now: Any = data.View(self.stored.shape(), opened.signal("now"))
        self.near = len(self.now.cumulative)

        # What a reader of the specification knows of the QP.
        self.active, self.posted, self.used = Signal(), Signal(self.slot_bits + 1), Signal(self.slot_bits + 1)
        self.next, self.reached = Signal(16), Signal(self.near)
        self.delivers = Signal()
        m.d.comb += self.delivers.eq(block.completion.valid & block.completion.ready & self.ours)
        self._context(m)
        self._messages(m)
        self._requests(m)

    def _context(self, m: Module) -> None:
        """The QP's state follows what came in; while it is worked on it stands in a register."""
        opened, ours, now, stored = self.opened, self.ours, self.now, self.stored
        block, depth = self.block, self.config.receive_queue_depth
        level = Signal(self.slot_bits + 1)
        total = Signal(len(block.doorbell.payload.count) + 2)
        m.d.comb += [level.eq(self.posted - self.used), total.eq(level + block.doorbell.payload.count)]
        init = block.init.payload
        self.begins = opened.state("INIT") & ours
        refuses = ours & (
            (opened.state("STASH") & self.active & self._refused())
            | (opened.state("HEAD") & self._complete() & (self.posted == self.used))
        )
        with m.If(self.begins):
            m.d.sync += [
                self.active.eq(init.active),
                self.next.eq(0),
                # Behind the whole window, which begins at the first PSN.
                self.reached.eq(init.initial_psn[: self.near] - (1 << self.near - 2)),
            ]
            with m.If(~init.active):
                m.d.sync += [self.posted.eq(0), self.used.eq(0)]
        with m.If(opened.state("RING") & ours & (total <= depth)):
            m.d.sync += self.posted.eq(self.posted + block.doorbell.payload.count)
        with m.If(opened.state("ADVANCE") & ours & self.active):
            m.d.sync += self.reached.eq(block.advance.payload.cumulative_psn)
        with m.If(self.delivers):
            m.d.sync += [self.next.eq(self.next + 1), self.used.eq(self.used + 1)]
        with m.If(refuses):
            m.d.sync += self.active.eq(0)

        known = ~opened.state("FILL") | (self.qp > self.watched_qp)
        in_register = ours & opened.state("KEEP", "CLEAR", "LOOK", "HEAD", "DELIVER", "REFUSE")
        fields = {
            "active": self.active,
            "next": self.next,
            "posted": self.posted,
            "used": self.used,
            "cumulative": self.reached,
        }
        kept: Any = data.View(stored.shape(), Mux(in_register, self.now.as_value(), stored.as_value()))
        read: Any = opened.read_data("contexts")
        fetched = opened.state("RING", "INIT", "STASH", "ADVANCE") & ours
        m.d.comb += [
            Assert(opened.legal_state()),
            Assert(level <= depth),
            Assert(implies(opened.state("FILL"), now.as_value() == 0)),
            *(
                Assert(
                    implies(
                        known & (self.active if name in ("next", "cumulative") else 1), kept[name] == value
                    )
                )
                for name, value in fields.items()
            ),
            Assert(implies(fetched, read.as_value() == stored.as_value())),
            Assert(
                implies(opened.state("FILL") & ~known, ~self.active & (self.posted == 0) & (self.used == 0))
            ),
            *(
                Assert(implies(opened.state(state), offer.valid & (offer.payload.qp == self.qp)))
                for state, offer in (
                    ("RING", block.doorbell),
                    ("INIT", block.init),
                    ("CLEAR", block.init),
                    ("STASH", block.stash),
                    ("ADVANCE", block.advance),
                )
            ),
            Assert(implies(opened.state("LOOK", "HEAD", "DELIVER") & ours, self.active)),
            # Nothing is delivered by a QP that failed or was not started, or without a request.
            Assert(implies(self.delivers, self.active & (self.posted != self.used))),
            Assert(implies(opened.state("DELIVER") & ours, self.posted != self.used)),
            Cover(self.block.nak.valid & ours & (self.next == 0)),
        ]

    def _refused(self) -> Value:
        """Whether the message that comes is beyond the stash or already in it."""
        ahead = (self.block.stash.payload.rqmsn - self.next)[:16]
        return (ahead >= self.config.immediates) | self.opened.read_data("marks").valid

    def _complete(self) -> Value:
        """Whether the message in turn is there and everything up to it is placed."""
        mark: Any = self.opened.read_data("marks")
        return mark.valid & ~(self.reached - mark.psn[: self.near])[self.near - 1]

    def _messages(self, m: Module) -> None:
        """A message is delivered when it is the next one, with what was stashed for it."""
        opened, ours, block = self.opened, self.ours, self.block
        number = AnyConst(16)
        stash, init = block.stash.payload, block.init.payload
        came = Signal(stash.shape())
        stashed = Signal()
        turn = self.next == number
        arrives = opened.state("STASH") & ours & self.active & ~self._refused() & (stash.rqmsn == number)
        with m.If(self.begins):
            m.d.sync += stashed.eq(0)
        with m.Elif(arrives):
            m.d.sync += [stashed.eq(1), came.eq(stash)]
        with m.Elif(self.delivers & turn):
            m.d.sync += stashed.eq(0)
        completion = block.completion.payload
        ends = self.delivers & turn
        m.d.comb += [
            Assert(implies(ends, stashed & ~(self.reached - came.psn[: self.near])[self.near - 1])),
            Assert(implies(ends, completion.immediate == came.immediate)),
            Assert(implies(ends, completion.byte_length == came.length)),
            Assert(implies(ends, completion.message_number == came.message_number)),
            Assert(implies(ends, completion.qp == self.watched_qp)),
        ]

        # Induction: the message's row holds it, and nothing else while its turn can come.
        row = Cat(number[: self.row_bits], self.watched_qp)
        mark: Any = opened.memory_row("marks", row)
        content: Any = opened.memory_row("contents", self._padded(row))
        in_reach = (number - self.next)[:16] < self.config.immediates
        clears = opened.state("CLEAR") & ours
        fill = opened.signal("fill")
        holds = self.active & in_reach & ~clears & ~self.begins

        def row_now(of: Value) -> Value:
            return of[: self.row_bits] == number[: self.row_bits]

        read_mark: Any = opened.read_data("marks")
        read_content: Any = opened.read_data("contents")
        kept: Any = data.View(content.shape(), opened.signal("content"))
        m.d.comb += [
            Assert(implies(holds, mark.valid == stashed)),
            Assert(implies(self.active & ~in_reach, ~stashed)),
            Assert(
                implies(
                    holds & stashed, (mark.psn == came.psn) & (mark.message_high == came.message_number[8:])
                )
            ),
            Assert(implies(holds & stashed, self._same(content, came))),
            Assert(implies(clears, ~stashed)),
            Assert(implies(clears & (fill > number[: self.row_bits]), ~mark.valid)),
            Assert(implies(~opened.state("CLEAR"), fill == 0)),
            Assert(implies(clears, (self.now.active == init.active) & (self.next == 0))),
            Assert(
                implies(
                    opened.state("STASH") & ours & row_now(stash.rqmsn),
                    read_mark.as_value() == mark.as_value(),
                )
            ),
            Assert(
                implies(
                    opened.state("HEAD", "DELIVER") & ours & row_now(self.next),
                    read_mark.as_value() == mark.as_value(),
                )
            ),
            Assert(
                implies(
                    opened.state("HEAD") & ours & row_now(self.next),
                    read_content.as_value() == content.as_value(),
                )
            ),
            Assert(
                implies(
                    opened.state("DELIVER") & ours & row_now(self.next), kept.as_value() == content.as_value()
                )
            ),
            Assert(implies(opened.state("DELIVER") & ours, self._complete())),
            Cover(ends & (number == 0)),
            Cover(arrives & (number == 2) & (self.next == 0)),
        ]

    @staticmethod
    def _same(content: Any, came: Any) -> Value:
        return (
            (content.length == came.length)
            & (content.immediate == came.immediate)
            & (content.message_low == came.message_number[:8])
        )

    def _padded(self, row: Value) -> Value:
        """Address of an immediate: requests stand in the upper half of the memory."""
        bits = max(self.row_bits, self.slot_bits) + self.config.qp_bits
        return Cat(row, Const(0, bits + 1 - len(row)))

    def _requests(self, m: Module) -> None:
        """Requests are used in the order of their slots, each once for each time it is posted."""
        opened, table = self.opened, self.block.table
        slot = AnyConst(self.slot_bits)
        index = Cat(slot, self.watched_qp)
        request = Signal(64)
        written = Signal()
        with m.If(table.valid & table.ready & table.write & (table.index == index) & (table.word == 0)):
            m.d.sync += [request.eq(table.write_data), written.eq(1)]
        bits = max(self.row_bits, self.slot_bits) + self.config.qp_bits
        row: Any = opened.memory_row("contents", Cat(index, Const(0, bits - len(index)), Const(1, 1)))
        now = self.ours & (self.used[: self.slot_bits] == slot)
        read: Any = opened.read_data("contents")
        m.d.comb += [
            Assert(implies(self.delivers & now & written, self.block.completion.payload.wr_id == request)),
            Assert(implies(written, row.as_value()[:64] == request)),
            Assert(implies(opened.state("DELIVER") & now, read.as_value() == row.as_value())),
            Cover(self.delivers & now & written),
        ]
