"""Carries out the host's table commands, one 64-bit word after the other."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .stream import TableBus
from .tables import TABLES, TableId

__all__ = ["COMMAND_WORDS", "TableCommands", "read_bits", "table_port"]

#: 64-bit words of the data buffer.
COMMAND_WORDS = 16


def table_port(table: TableId) -> str:
    """Name of the port that leads to the owner of a table."""
    return f"table_{table.name.lower()}"


def read_bits(table: TableId) -> int:
    """Bits of a read word that a table uses at all; the rest of its ``read_data`` is not looked at."""
    if table is TableId.COUNTER:
        return 32
    return max(field.low + field.width for field in TABLES[table].fields) if table in TABLES else 64


class TableCommands(wiring.Component):
    """Moves one entry between the data buffer and the block that owns its table.

    A write reads two 32-bit rows of the buffer and hands the owner their 64 bits, a read puts the owner's
    answer into two rows; word by word, each one answered before the next. A refusal by the owner is
    remembered and the rest of the entry still moves, so that an owner never keeps half a command.

    Members
    -------
    start : 1
        Pulse: begin a command; ``table`` (4), ``write`` (1), ``count`` (5) and ``index`` (16) must be valid.
        Unknown tables and counts outside 1 to 16 are refused at once.
    busy, error : 1
        A command runs; the last one was refused.
    row : 5
        32-bit row of the buffer that is read or written.
    reads : 1
        ``row`` is read in this cycle.
    read_data : 32
        The row, one cycle after ``row``.
    store, store_data : 1, 32
        Write the row. ``store_data`` is 0 from two cycles after a command on.
    table_* : TableBus
        One per table, see :func:`table_port`.

    Source: profile.md 7 (wide entries move as a whole), rule 12 of design.md 4.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "table": In(4),
                "write": In(1),
                "count": In(5),
                "index": In(16),
                "busy": Out(1),
                "error": Out(1),
                "row": Out(5),
                "reads": Out(1),
                "read_data": In(32),
                "store": Out(1),
                "store_data": Out(32),
                **{table_port(table): Out(TableBus()) for table in TableId},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        buses = [getattr(self, table_port(table)) for table in TableId]

        table = Signal(range(len(buses)))
        write = Signal()
        index = Signal(16)
        word = Signal(4)
        last = Signal(4)
        low = Signal(32)
        write_data = Signal(64)
        # Flip-flops say which owner is asked and keep what it answers: owners let this decide about their own
        # work, so a path through here would be a path from each owner to all others.
        asking = Signal(len(buses))
        answered, failed = Signal(), Signal()

        for number, bus in enumerate(buses):
            m.d.comb += [
                bus.valid.eq(asking[number]),
                bus.write.eq(write),
                bus.index.eq(index),
                bus.word.eq(word),
                bus.last.eq(word == last),
                bus.write_data.eq(write_data),
            ]
        ready = reduce(or_, (asking[number] & bus.ready for number, bus in enumerate(buses)))
        m.d.sync += [
            answered.eq(reduce(or_, (bus.done for bus in buses))),
            failed.eq(reduce(or_, (bus.done & bus.error for bus in buses))),
        ]

        # What the owners answer is kept in one register a table, which is zero while another table is chosen:
        # a flip-flop's reset costs nothing, and a sum takes half the LUTs of a multiplexer.
        chosen = Signal(len(buses))
        m.d.sync += chosen.eq(Mux(self.busy, 1 << table, 0))
        kept: list[Value] = []
        for number, bus in enumerate(buses):
            answer = Signal(read_bits(TableId(number)), name=f"answer{number}", reset_less=True)
            with m.If(~chosen[number]):
                m.d.sync += answer.eq(0)
            with m.Elif(bus.done):
                m.d.sync += answer.eq(bus.read_data)
            kept.append(answer)
        answer = Signal(64)
        m.d.comb += answer.eq(reduce(or_, kept))

        high_row = Signal()
        m.d.comb += [
            self.row.eq(Cat(high_row, word)),
            self.store_data.eq(Mux(high_row, answer[32:], answer[:32])),
        ]

        def finish() -> None:
            """The owner has answered the word."""
            m.d.sync += self.error.eq(self.error | failed)
            with m.If(~write):
                m.next = "STORE_LOW"
            with m.Else():
                m.d.sync += word.eq(word + 1)
                with m.If(word == last):
                    m.next = "IDLE"
                with m.Else():
                    m.next = "READ_LOW"

        m.d.comb += self.busy.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.busy.eq(0)
                with m.If(self.start):
                    m.d.sync += [
                        table.eq(self.table),
                        write.eq(self.write),
                        index.eq(self.index),
                        word.eq(0),
                        last.eq(self.count - 1),
                        self.error.eq(0),
                    ]
                    refused = (self.table >= len(buses)) | (self.count == 0) | (self.count > COMMAND_WORDS)
                    with m.If(refused):
                        m.d.sync += self.error.eq(1)
                    with m.Elif(self.write):
                        m.next = "READ_LOW"
                    with m.Else():
                        m.next = "CHOOSE"
            with m.State("CHOOSE"):
                m.d.sync += asking.eq(1 << table)
                m.next = "ASK"
            with m.State("READ_LOW"):
                m.d.comb += self.reads.eq(1)
                m.next = "READ_HIGH"
            with m.State("READ_HIGH"):
                m.d.comb += [high_row.eq(1), self.reads.eq(1)]
                m.d.sync += low.eq(self.read_data)
                m.next = "TAKE_HIGH"
            with m.State("TAKE_HIGH"):
                m.d.sync += [write_data.eq(Cat(low, self.read_data)), asking.eq(1 << table)]
                m.next = "ASK"
            with m.State("ASK"):
                with m.If(ready):
                    m.d.sync += asking.eq(0)
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                with m.If(answered):
                    finish()
            with m.State("STORE_LOW"):
                m.d.comb += self.store.eq(1)
                m.next = "STORE_HIGH"
            with m.State("STORE_HIGH"):
                m.d.comb += [self.store.eq(1), high_row.eq(1)]
                m.d.sync += word.eq(word + 1)
                with m.If(word == last):
                    m.next = "IDLE"
                with m.Else():
                    m.d.sync += asking.eq(1 << table)
                    m.next = "ASK"
        return m
