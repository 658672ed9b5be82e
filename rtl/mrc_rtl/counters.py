"""The engine's counters: one memory, incremented by events."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from . import records
from .config import NicConfig
from .record_streams import RecordArbiter
from .stream import TableBus

__all__ = ["COUNTER_BITS", "CounterBank"]

#: Width of a counter; it wraps.
COUNTER_BITS = 32


class CounterBank(wiring.Component):
    """Owner of the counters.

    Events of all sources are taken in turns, one a cycle; each one is read, incremented and written back,
    with the last result forwarded to an event of the same counter right behind it. A read by the host passes
    the same way and adds nothing. After reset a sequence clears the memory before the first event is taken.

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

        m.submodules.values = values = Memory(shape=COUNTER_BITS, depth=count, init=[])
        read, write = values.read_port(), values.write_port()

        clearing = Signal(init=1)
        place = Signal(bits)
        valid = Signal()
        for_table = Signal()
        bad = Signal()
        index = Signal(bits)
        last_index = Signal(bits)
        last_value = Signal(COUNTER_BITS)
        last_valid = Signal()
        value = Signal(COUNTER_BITS)
        forward = Signal()
        counts = Signal()

        wrong = table.write | (table.index >= count) | (table.word != 0)
        ask = table.valid & ~clearing
        event = arbiter.output
        m.d.comb += [
            table.ready.eq(ask),
            event.ready.eq(~clearing & ~table.valid),
            read.addr.eq(Mux(table.valid, table.index, event.payload.index)),
        ]
        m.d.sync += [
            valid.eq(ask | (event.valid & event.ready)),
            for_table.eq(ask),
            counts.eq(event.valid & event.ready),
            bad.eq(wrong),
            index.eq(read.addr),
        ]

        m.d.comb += [
            forward.eq(last_valid & (last_index == index)),
            value.eq(Mux(clearing, 0, Mux(forward, last_value, read.data)) + counts),
            write.addr.eq(Mux(clearing, place, index)),
            write.data.eq(value),
            write.en.eq(clearing | (valid & ~for_table)),
            table.done.eq(valid & for_table),
            table.error.eq(bad),
            table.read_data.eq(value),
        ]
        m.d.sync += last_valid.eq(write.en & ~clearing)
        with m.If(write.en):
            m.d.sync += [last_index.eq(index), last_value.eq(value)]
        with m.If(clearing):
            m.d.sync += place.eq(place + 1)
            with m.If(place == count - 1):
                m.d.sync += clearing.eq(0)

        m.d.comb += self.idle.eq(~clearing & arbiter.idle & ~valid & ~table.valid)
        return m
