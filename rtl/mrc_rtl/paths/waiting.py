"""The order in which packets wait for bind."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["OrderList"]


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
