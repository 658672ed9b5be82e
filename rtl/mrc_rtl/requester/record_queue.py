"""A first-in first-out queue of a few records."""

from amaranth.hdl import Module, Signal
from amaranth.lib import fifo, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..memory_rules import DISTRIBUTED_ROWS

__all__ = ["RecordQueue"]


class RecordQueue(wiring.Component):
    """The oldest record is on show while ``r_rdy``. A short queue is distributed RAM, read without a clock.

    Parameters
    ----------
    width : int
        Bits of a record.
    depth : int
        Most records, a power of two from 2.

    Members
    -------
    w_data, w_en, w_rdy
        Put a record in; ``w_en`` only with ``w_rdy``, or with ``r_en``, which makes room.
    r_data, r_en, r_rdy
        The oldest record; ``r_en`` with ``r_rdy`` takes it out.
    level
        Records in the queue, those on their way to the output included.
    """

    def __init__(self, width: int, depth: int) -> None:
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two from 2, got {depth}")
        self.width, self.depth = width, depth
        super().__init__(
            {
                "w_data": In(width),
                "w_en": In(1),
                "w_rdy": Out(1),
                "r_data": Out(width),
                "r_en": In(1),
                "r_rdy": Out(1),
                "level": Out(range(self.depth + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.depth > DISTRIBUTED_ROWS:
            m.submodules.fifo = inner = fifo.SyncFIFOBuffered(width=self.width, depth=self.depth)
            m.d.comb += [
                inner.w_data.eq(self.w_data),
                inner.w_en.eq(self.w_en),
                self.w_rdy.eq(inner.w_rdy),
                self.r_data.eq(inner.r_data),
                inner.r_en.eq(self.r_en),
                self.r_rdy.eq(inner.r_rdy),
                self.level.eq(inner.level),
            ]
            return m
        m.submodules.memory = memory = Memory(shape=self.width, depth=self.depth, init=[])
        write_port, read_port = memory.write_port(), memory.read_port(domain="comb")
        # One bit more than a row needs: equal rows of different laps mean full.
        written, read = Signal(range(2 * self.depth)), Signal(range(2 * self.depth))
        m.d.comb += [
            write_port.addr.eq(written),
            write_port.data.eq(self.w_data),
            write_port.en.eq(self.w_en),
            read_port.addr.eq(read),
            self.r_data.eq(read_port.data),
            self.level.eq(written - read),
            self.r_rdy.eq(written != read),
            self.w_rdy.eq(written ^ read != self.depth),
        ]
        with m.If(self.w_en):
            m.d.sync += written.eq(written + 1)
        with m.If(self.r_en & self.r_rdy):
            m.d.sync += read.eq(read + 1)
        return m
