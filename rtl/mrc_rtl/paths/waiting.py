"""Places where packets wait for bind: an order, and rows of records in narrow memories."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["OrderList", "RecordRows"]

_COLUMN_BITS = 64


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
    """A few wide records, in columns narrow enough for one memory each.

    Parameters
    ----------
    layout : data.Layout
    rows : int

    Members
    -------
    write, write_row, new
        Write a row.
    read_row, record
        ``record`` follows one cycle after ``read_row``.
    """

    def __init__(self, layout: data.Layout, rows: int) -> None:
        self.layout = layout
        self.rows = rows
        row_bits = max(1, (rows - 1).bit_length())
        super().__init__(
            {
                "write": In(1),
                "write_row": In(row_bits),
                "new": In(layout),
                "read_row": In(row_bits),
                "record": Out(layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        new = self.new.as_value()
        columns = []
        for low in range(0, len(new), _COLUMN_BITS):
            part = new[low : low + _COLUMN_BITS]
            m.submodules[f"column{low}"] = memory = Memory(shape=len(part), depth=self.rows, init=[])
            read_port, write_port = memory.read_port(), memory.write_port()
            m.d.comb += [
                read_port.addr.eq(self.read_row),
                write_port.addr.eq(self.write_row),
                write_port.data.eq(part),
                write_port.en.eq(self.write),
            ]
            columns.append(read_port.data)
        m.d.comb += self.record.as_value().eq(Cat(*columns))
        return m
