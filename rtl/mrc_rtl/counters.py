"""The engine's counters: one memory, incremented by events."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from . import records
from .config import NicConfig
from .memory_rules import DISTRIBUTED
from .record_streams import RecordArbiter
from .stream import TableBus

__all__ = ["COUNTER_BITS", "CounterBank"]

#: Width of a counter; it wraps.
COUNTER_BITS = 32


class CounterBank(wiring.Component):
    """Owner of the counters.

    Events of all sources are taken in turns, one a cycle; each one is read, incremented and written back in
    three cycles, and an event of a counter on its way waits until it is written. A read by the host lets
    those on their way pass first. After reset a sequence clears the memory before the first event is taken.

    Parameters
    ----------
    config : NicConfig
    sources : int
        Streams of events, at least 1.

    Members
    -------
    events : streams of records.counter_event, in
        Each waits for at most one event of every other source (and for the clearing after reset).
    table : TableBus, in
        Table COUNTER: word 0 of entry i is counter i. Writes are refused.
    idle : 1

    Raises
    ------
    ValueError
        There is no source.

    Source: rule 8 of design.md 4.
    """

    def __init__(self, config: NicConfig, sources: int) -> None:
        self.config = config
        self._arbiter = RecordArbiter(records.counter_event(config), sources)
        super().__init__(
            {
                "events": In(stream.Signature(records.counter_event(config))).array(sources),
                "table": In(TableBus()),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = records.counter_count(self.config)
        bits = records.counter_bits(self.config)
        table = self.table
        m.submodules.arbiter = arbiter = self._arbiter
        for number, source in enumerate(self.events):
            wiring.connect(m, wiring.flipped(source), arbiter.inputs[number])

        m.submodules.values = values = Memory(shape=COUNTER_BITS, depth=count, init=[], attrs=DISTRIBUTED)
        read, write = values.read_port(), values.write_port()

        clearing = Signal(init=1)
        place = Signal(bits)
        # Stages behind the address: the counter read, and the incremented one.
        reads = Signal()
        read_index = Signal(bits)
        for_table = Signal()
        bad = Signal()
        writes = Signal()
        write_index = Signal(bits)
        value = Signal(COUNTER_BITS)

        index = table.index
        wrong = table.write | index[bits:].any() | (index[:bits] >= count) | (table.word != 0)
        # The host reads when nothing is on its way, so no counter is read while it is written.
        ask = table.valid & ~(clearing | reads | writes)
        event = arbiter.output
        on_its_way = Signal()
        m.d.comb += [
            on_its_way.eq(
                (reads & (read_index == event.payload.index))
                | (writes & (write_index == event.payload.index))
            ),
            table.ready.eq(ask),
            event.ready.eq(~clearing & ~table.valid & ~on_its_way),
            read.addr.eq(Mux(table.valid, table.index, event.payload.index)),
        ]
        m.d.sync += [
            for_table.eq(ask),
            reads.eq(event.valid & event.ready),
            bad.eq(wrong),
            read_index.eq(event.payload.index),
            writes.eq(reads),
            write_index.eq(read_index),
            value.eq(read.data + 1),
        ]
        # Cleared counters are the register's reset value.
        with m.If(clearing):
            m.d.sync += value.eq(0)
        m.d.comb += [
            write.addr.eq(Mux(clearing, place, write_index)),
            write.data.eq(value),
            write.en.eq(clearing | writes),
            table.done.eq(for_table),
            table.error.eq(bad),
            table.read_data.eq(read.data),
        ]
        with m.If(clearing):
            m.d.sync += place.eq(place + 1)
            with m.If(place == count - 1):
                m.d.sync += clearing.eq(0)

        m.d.comb += self.idle.eq(~(clearing | reads | writes | for_table | table.valid) & arbiter.idle)
        return m
