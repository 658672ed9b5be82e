"""Where packets wait for bind: an order of short entries, and rows of wide records in a narrow memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["OrderList", "RecordRows"]


class OrderList(wiring.Component):
    """Short entries in order of arrival, any of which can leave.

    Parameters
    ----------
    layout : data.Layout
        Of an entry.
    entries : int

    Members
    -------
    push, new
        Append an entry; there must be room.
    remove, position
        Take the entry at a position out; those behind it move up.
    items, count
        The entries, oldest first.
    full : 1
    """

    def __init__(self, layout: data.Layout, entries: int) -> None:
        self.entries = entries
        super().__init__(
            {
                "push": In(1),
                "new": In(layout),
                "remove": In(1),
                "position": In(range(entries)),
                "items": Out(layout).array(entries),
                "count": Out(range(entries + 1)),
                "full": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        end = Signal(range(self.entries + 1))
        m.d.comb += [self.full.eq(self.count == self.entries), end.eq(self.count - self.remove)]
        with m.If(self.push | self.remove):
            m.d.sync += self.count.eq(end + self.push)
        for n in range(self.entries):
            with m.If(self.push & (end == n)):
                m.d.sync += self.items[n].eq(self.new)
            if n + 1 < self.entries:
                with m.Elif(self.remove & (self.position <= n)):
                    m.d.sync += self.items[n].eq(self.items[n + 1])
        return m


class RecordRows(wiring.Component):
    """A few wide records, one behind the other in one memory, written and read word by word.

    Parameters
    ----------
    bits : int
        Width of a record.
    rows : int
    word_bits : int
        Width of the memory.

    Members
    -------
    write, write_row, new, written
        Hold ``write`` with row and record until ``written``, the cycle of the last word.
    read, read_row, done, record
        ``read`` is a pulse; ``record`` is complete from ``done`` on until the next read. Row and record may
        be the ones of a finished write only.
    idle : 1
        No write and no read runs.
    """

    def __init__(self, bits: int, rows: int, word_bits: int) -> None:
        self.bits = bits
        self.rows = rows
        self.word_bits = word_bits
        self.words = -(-bits // word_bits)
        row_bits = max(1, (rows - 1).bit_length())
        super().__init__(
            {
                "write": In(1),
                "write_row": In(row_bits),
                "new": In(bits),
                "written": Out(1),
                "read": In(1),
                "read_row": In(row_bits),
                "done": Out(1),
                "record": Out(bits),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words, width = self.words, self.word_bits
        bits = (words - 1).bit_length()
        m.submodules.memory = memory = Memory(shape=width, depth=self.rows << bits, init=[])
        read_port, write_port = memory.read_port(), memory.write_port()

        word = Signal(max(1, bits))
        m.d.comb += [
            write_port.en.eq(self.write),
            write_port.addr.eq(Cat(word[:bits], self.write_row)),
            self.written.eq(self.write & (word == words - 1)),
        ]
        with m.Switch(word):
            for n in range(words):
                with m.Case(n):
                    m.d.comb += write_port.data.eq(self.new[n * width : (n + 1) * width])
        with m.If(self.write):
            m.d.sync += word.eq(Mux(self.written, 0, word + 1))

        # The address of word n is given while word n - 1 arrives.
        row = Signal.like(self.read_row)
        ask = Signal(max(1, bits))
        asking = Signal()
        arrive = Signal(max(1, bits))
        arriving = Signal()
        m.d.comb += [
            read_port.addr.eq(Mux(asking, Cat(ask[:bits], row), Cat(Const(0, bits), self.read_row))),
            read_port.en.eq(self.read | asking),
            self.idle.eq(~self.write & ~asking & ~arriving & ~self.done),
        ]
        m.d.sync += [arriving.eq(self.read | asking), arrive.eq(Mux(asking, ask, 0)), self.done.eq(0)]
        with m.If(self.read):
            m.d.sync += [row.eq(self.read_row), ask.eq(1), asking.eq(words > 1)]
        with m.If(asking):
            m.d.sync += [ask.eq(ask + 1), asking.eq(ask != words - 1)]
        with m.If(arriving):
            with m.Switch(arrive):
                for n in range(words):
                    with m.Case(n):
                        m.d.sync += self.record[n * width : (n + 1) * width].eq(read_port.data)
            m.d.sync += self.done.eq(arrive == words - 1)
        return m
