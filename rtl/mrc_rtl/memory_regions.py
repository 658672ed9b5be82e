"""Memory regions: the table of keys, and the look-ups that turn a virtual address into a bus address."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from . import records, tables
from .config import NicConfig
from .entry_memory import EntryMemory
from .stream import TableBus

__all__ = ["LOOKUP_PORTS", "MemoryRegions"]

#: Port 0 serves the receive side, port 1 the requester.
LOOKUP_PORTS = 2

_KEY_INDEX_LOW = 8

#: Up to this data width both ports share one look-up.
_SHARED_UP_TO = 128


def _word_layout(word: int) -> data.StructLayout:
    """Layout of one word of a memory region entry, from the table's description."""
    fields: dict[str, Any] = {}
    position = 0
    for field in sorted(tables.MEMORY_REGION.fields, key=lambda field: field.low):
        if field.word == word:
            if field.low != position:
                raise ValueError(f"memory_region word {word} must have no gap below {field.name}")
            fields[field.name] = field.width
            position = field.low + field.width
    return data.StructLayout(fields)


class _Lookup(wiring.Component):
    """One look-up at a time: reads an entry row by row, one 64-bit addition or comparison a cycle.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    request, answer : streams
    blocked : 1
        Start nothing: the table is being written.
    enable, entry, row, data
        Read port of the table's memory.
    active : 1
        A look-up runs and needs the memory.
    finishes : 1
        The answer appears in the next cycle.
    busy : 1
        Something is waiting, running or not taken yet.
    """

    def __init__(self, config: NicConfig, entries: EntryMemory) -> None:
        self._config = config
        self._rows = entries.rows
        self._row_words = entries.row_words
        self._entry_bits = entries.entry_bits
        super().__init__(
            {
                "request": In(stream.Signature(records.region_request(config))),
                "answer": Out(stream.Signature(records.region_answer(config))),
                "blocked": In(1),
                "enable": Out(1),
                "entry": Out(entries.entry_bits),
                "row": Out(max(1, entries.row_bits)),
                "data": In(64 * entries.row_words),
                "active": Out(1),
                "finishes": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        rows, row_words = self._rows, self._row_words
        kept = {name: field.shape for name, field in records.region_request(config) if name != "address"}
        request = Signal(data.StructLayout(kept), reset_less=True)
        answer = self.answer

        def word(number: int) -> Any:
            start = 64 * (number % row_words)
            return self.data[start : start + 64]

        # Steps: a cycle for each row's arrival, but at least two, then the last comparison.
        offset_step = 1 // row_words
        end_step = max(2 // row_words, offset_step + 1)
        bus_step = max(3 // row_words, end_step)
        final = end_step + 1
        step = Signal(range(final + 1))
        busy = Signal()
        done = Signal()
        m.d.comb += [
            done.eq(busy & (step == final) & (~answer.valid | answer.ready)),
            self.request.ready.eq(~self.blocked & (~busy | done)),
            self.active.eq(busy),
            self.finishes.eq(done),
            self.busy.eq(busy | answer.valid | self.request.valid),
        ]

        index = Signal(24)
        start = Signal()
        known = Signal()
        m.d.comb += [
            start.eq(self.request.valid & self.request.ready),
            index.eq(self.request.payload.key[_KEY_INDEX_LOW:]),
            self.entry.eq(
                Mux(start, index[: self._entry_bits], request.key[_KEY_INDEX_LOW:][: self._entry_bits])
            ),
            self.enable.eq(start | (busy & (step < rows - 1))),
            self.row.eq(Mux(start, 0, step + 1)),
        ]
        with m.If(done):
            m.d.sync += busy.eq(0)
        with m.If(start):
            m.d.sync += [
                busy.eq(1),
                step.eq(0),
                *(request[name].eq(self.request.payload[name]) for name in kept),
                known.eq(~index[self._entry_bits :].any()),
            ]
        with m.Elif(busy & (step != final)):
            m.d.sync += step.eq(step + 1)

        # One adder serves base and length. ``below`` is ~address, then, the base added, ~offset; the length
        # added with a carry in is what the region has behind the first byte.
        first = data.View(_word_layout(0), word(0)[: _word_layout(0).size])
        allowed = Signal()
        below = Signal(64, reset_less=True)
        added = Signal(64)
        sum_ = Signal(65)
        above = Signal()
        inside = Signal()
        left = Signal(64, reset_less=True)
        enough = Signal()
        for_length = Signal()
        bus_now = Signal(config.address_width)
        bus_address = Signal(config.address_width, reset_less=True)
        m.d.comb += [
            enough.eq(left[len(request.length) :].any() | (request.length <= left[: len(request.length)])),
            for_length.eq(step != offset_step),
            # A bit below the sum is the carry in.
            bus_now.eq((Cat(0, word(3)) - Cat(1, below))[1 : config.address_width + 1]),
        ]
        # With one word a row the memory itself selects.
        m.d.comb += added.eq(word(1) if row_words == 1 else Mux(for_length, word(2), word(1)))
        m.d.comb += sum_.eq((Cat(1, below) + Cat(for_length, added)) >> 1)
        with m.If(start):
            m.d.sync += below.eq(~self.request.payload.address)
        with m.Elif(busy & (step == offset_step)):
            m.d.sync += below.eq(sum_)
        with m.If(busy):
            with m.If(step == 0):
                m.d.sync += allowed.eq(
                    known
                    & first.valid
                    & (first.key == request.key)
                    & (first.protection_domain == request.protection_domain)
                    & (first.remote_write | ~request.write)
                )
            with m.If(step == offset_step):
                m.d.sync += above.eq(~sum_[64])
            with m.If(step == end_step):
                m.d.sync += [inside.eq(sum_[64]), left.eq(sum_)]
            with m.If(step == bus_step):
                m.d.sync += bus_address.eq(bus_now)

        with m.If(answer.valid & answer.ready):
            m.d.sync += answer.valid.eq(0)
        with m.If(done):
            m.d.sync += [
                answer.valid.eq(1),
                answer.payload.ok.eq(allowed & above & inside & enough),
                answer.payload.bus_address.eq(bus_now if bus_step == final else bus_address),
            ]
        return m


class _Sharing(wiring.Component):
    """Lets the ports take turns with one look-up; each has its own answer register, so none holds another.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    requests, answers : streams, arrays of 2
    request, answer : streams
        To and from the look-up.
    finishes : 1
        See :class:`_Lookup`.
    busy : 1
        Something is waiting, running or not taken yet.
    """

    def __init__(self, config: NicConfig) -> None:
        request = stream.Signature(records.region_request(config))
        answer = stream.Signature(records.region_answer(config))
        super().__init__(
            {
                "requests": In(request).array(LOOKUP_PORTS),
                "answers": Out(answer).array(LOOKUP_PORTS),
                "request": Out(request),
                "answer": In(answer),
                "finishes": In(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        asks = Signal(LOOKUP_PORTS)
        under_way = Signal(LOOKUP_PORTS)
        chosen = Signal()
        running = Signal()  # port of the look-up that runs, and of the one that ends
        ending = Signal()
        accepted = Signal()
        for n, (request, answer) in enumerate(zip(self.requests, self.answers, strict=True)):
            m.d.comb += [
                asks[n].eq(request.valid & ~under_way[n] & (~answer.valid | answer.ready)),
                request.ready.eq(self.request.ready & asks[n] & (chosen == n)),
            ]
            with m.If(answer.ready):
                m.d.sync += answer.valid.eq(0)
            with m.If(self.answer.valid & (ending == n)):
                m.d.sync += [answer.valid.eq(1), answer.payload.eq(self.answer.payload), under_way[n].eq(0)]
            with m.If(accepted & (chosen == n)):
                m.d.sync += under_way[n].eq(1)
        # The port that was not served last comes first.
        m.d.comb += [
            chosen.eq(Mux(running, ~asks[0], asks[1])),
            self.request.valid.eq(asks.any()),
            self.request.payload.eq(Mux(chosen, self.requests[1].payload, self.requests[0].payload)),
            accepted.eq(self.request.valid & self.request.ready),
            self.answer.ready.eq(1),
            self.busy.eq(under_way.any() | Cat(port.valid for port in (*self.requests, *self.answers)).any()),
        ]
        with m.If(accepted):
            m.d.sync += running.eq(chosen)
        with m.If(self.finishes):
            m.d.sync += ending.eq(running)
        return m


class MemoryRegions(wiring.Component):
    """Owner of the memory region table, with a look-up port for the receive side and one for the requester.

    A region is found by its key: bits 31:8 are the entry, and the whole key, generation included, must be
    equal. The entry must be valid and of the asked protection domain, have the right to be written by a peer
    when ``write`` is set, and hold every byte of the range; address and bounds are compared in full 64 bits.
    A region ends with the address space at the latest, and so does every range in it.

    A host command holds look-ups back from its first word to its last, so that they never see half an entry.
    A write is answered only when every packet that was admitted under the old entry has left the engine
    (``drain``): an invalidated key is not used any more when the host learns of it. Until the sequenced clear
    after reset has run, look-ups wait.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    table : TableBus
        Table memory_region.
    requests, answers : streams, arrays of 2
        Look-up ports; each answers in order. Both together get one look-up each in at most K cycles: up to
        128 bits they share the logic and the memory, at more they have their own.
    drain : 1, out
        Held until ``drained``.
    drained : 1, in
        Pulse: no packet admitted before ``drain`` rose is in flight. Tie to 1 where nothing is.
    idle : 1

    Source: profile.md 5 and 7; design, rules 1 and 12.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "table": In(TableBus()),
                "requests": In(stream.Signature(records.region_request(config))).array(LOOKUP_PORTS),
                "answers": Out(stream.Signature(records.region_answer(config))).array(LOOKUP_PORTS),
                "drain": Out(1),
                "drained": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        bus = self.table
        count = 1 if config.data_width <= _SHARED_UP_TO else LOOKUP_PORTS
        m.submodules.entries = entries = EntryMemory(config, config.memory_regions, count)
        lookups = [_Lookup(config, entries) for _ in range(count)]

        clearing = Signal(init=1)
        cleared = Signal(entries.entry_bits)
        in_command = Signal()  # between the first and the last word of a write
        reading = Signal()
        blocked = Signal()
        m.d.comb += blocked.eq(clearing | in_command | reading | bus.valid | self.drain)
        busy = Signal()
        if count == 1:
            m.submodules.sharing = sharing = _Sharing(config)
            for n in range(LOOKUP_PORTS):
                wiring.connect(m, sharing.requests[n], wiring.flipped(self.requests[n]))
                wiring.connect(m, sharing.answers[n], wiring.flipped(self.answers[n]))
            wiring.connect(m, sharing.request, lookups[0].request)
            wiring.connect(m, lookups[0].answer, sharing.answer)
            m.d.comb += [sharing.finishes.eq(lookups[0].finishes), busy.eq(sharing.busy)]
        else:
            for n, lookup in enumerate(lookups):
                wiring.connect(m, lookup.request, wiring.flipped(self.requests[n]))
                wiring.connect(m, lookup.answer, wiring.flipped(self.answers[n]))
            m.d.comb += busy.eq(Cat(lookup.busy for lookup in lookups).any())
        for n, lookup in enumerate(lookups):
            m.submodules[f"lookup{n}"] = lookup
            m.d.comb += [
                lookup.blocked.eq(blocked),
                lookup.data.eq(entries.data[n]),
                entries.enable[n].eq(lookup.enable),
                entries.entry[n].eq(lookup.entry),
                entries.row[n].eq(lookup.row),
            ]
        # The clear after reset, then the host's writes.
        known = Signal()
        m.d.comb += [known.eq(~bus.index[entries.entry_bits :].any()), entries.write_data.eq(bus.write_data)]
        with m.If(clearing):
            m.d.comb += [
                entries.write.eq(1),
                entries.write_entry.eq(cleared),
                entries.write_last.eq(1),
                entries.write_data[tables.MEMORY_REGION.field("valid").low].eq(0),
            ]
            m.d.sync += cleared.eq(cleared + 1)
            with m.If(cleared == config.memory_regions - 1):
                m.d.sync += clearing.eq(0)
        with m.Else():
            m.d.comb += [
                entries.write.eq(bus.valid & bus.ready & bus.write & known & (bus.word < 4)),
                entries.write_entry.eq(bus.index[: entries.entry_bits]),
                entries.write_word.eq(bus.word[:2]),
                entries.write_last.eq(bus.last),
            ]

        # A read borrows the memory port of look-up 0.
        place_bits = (entries.row_words - 1).bit_length()
        place = Signal(max(1, place_bits))
        m.d.comb += bus.read_data.eq(entries.data[0].word_select(place, 64))
        lookup_runs = Signal()
        m.d.comb += lookup_runs.eq(Cat(lookup.active for lookup in lookups).any())
        with m.If(bus.valid & ~clearing & ~lookup_runs & ~self.drain & ~reading):
            m.d.comb += bus.ready.eq(1)
            m.d.sync += place.eq(bus.word[:place_bits])
            with m.If(~known | (bus.word >= 4)):
                m.d.comb += [bus.done.eq(1), bus.error.eq(1)]
                with m.If(bus.last):
                    m.d.sync += in_command.eq(0)
            with m.Elif(bus.write):
                m.d.sync += in_command.eq(~bus.last)
                with m.If(bus.last):
                    m.d.sync += self.drain.eq(1)
                with m.Else():
                    m.d.comb += bus.done.eq(1)
            with m.Else():
                m.d.sync += reading.eq(1)
                m.d.comb += [
                    entries.enable[0].eq(1),
                    entries.entry[0].eq(bus.index[: entries.entry_bits]),
                    entries.row[0].eq(bus.word[place_bits:2]),
                ]
        with m.If(reading):
            m.d.comb += bus.done.eq(1)
            m.d.sync += reading.eq(0)
        with m.If(self.drain & self.drained):
            m.d.comb += bus.done.eq(1)
            m.d.sync += self.drain.eq(0)
        m.d.comb += self.idle.eq(~(clearing | in_command | reading | bus.valid | self.drain | busy))
        return m
