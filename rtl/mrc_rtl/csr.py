"""The engine's registers on AXI4-Lite, made from the elaborated register map."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from . import records
from .config import NicConfig
from .records import GlobalCounter
from .registers import Register, RegisterKind, constant_value, register_map
from .stream import AxiLiteSignature, TableBus
from .table_commands import TableCommands, table_port
from .tables import EventKind, TableId

__all__ = ["ADDRESS_BITS", "EVENT_QUEUE_DEPTH", "CsrBlock"]

#: Bits of a byte address of the control port.
ADDRESS_BITS = 16

#: Events kept for the host.
EVENT_QUEUE_DEPTH = 16

#: Places of the queue that events of EVs leave to all others.
_RESERVED = 4

#: Marks a lower word of a wide register, in place of the number of words below; no register has three words.
_COLLECTS = 2

#: Rows of the map, in 32-bit words, of which the last quarter is unused; settings and constants come first.
_ROWS = 256
_HELD = _ROWS // 2
_DATA_LAST = 159

_OKAY = 0b00
_SLVERR = 0b10


class CsrBlock(wiring.Component):
    """AXI4-Lite subordinate: static settings, table commands, doorbells, events.

    What can be read back without looking at the engine stands in one memory of 32-bit rows: constants and
    reset values are copied into it after reset, settings are written by the host, the data buffer by both
    sides. So reading costs a memory, not a multiplexer over every register. What a row may do, its mask and
    its value after reset stand in places of the same memory that no row uses and that are never written: an
    access looks there first, in a cycle in which no command reads. A register of several words collects its
    lower words in a shift register; the write of its highest word applies it and then fills in the rows.

    One access runs at a time. A write waits until the running command is done and its own doorbell is taken.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    control : AXI4-Lite
    settings : records.settings
        Stable; wide ones change in one cycle.
    link_up : one bit per plane
        From the MACs.
    table_* : TableBus
        One per TableId, named by :func:`mrc_rtl.table_commands.table_port`.
    send_doorbell, receive_doorbell : stream of records.doorbell
    consumer : stream of records.consumer_record
    event : stream of records.event_record, in
        Always taken; when the queue is full the event is counted and lost.
    ev_event : stream of records.event_record, in
        Kind EV_STATE. Taken at once unless an ``event`` comes. They leave some places of the queue free:
        those that find no place are counted, and the count goes ahead of the next one as EV_DROPPED.
    event_waiting : 1
        The event queue is not empty.
    counter : stream of records.counter_event
        EVENTS_DROPPED.
    idle : 1

    Source: profile.md 7; the register map says what each register does.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "control": In(AxiLiteSignature(ADDRESS_BITS)),
                "settings": Out(records.settings(config), init=self._reset_values()),
                "link_up": In(config.planes),
                "send_doorbell": Out(stream.Signature(records.doorbell(config))),
                "receive_doorbell": Out(stream.Signature(records.doorbell(config))),
                "consumer": Out(stream.Signature(records.consumer_record(config))),
                "event": In(stream.Signature(records.event_record(config))),
                "ev_event": In(stream.Signature(records.event_record(config))),
                "event_waiting": Out(1),
                "counter": Out(stream.Signature(records.counter_event(config))),
                "idle": Out(1),
                **{table_port(table): Out(TableBus()) for table in TableId},
            }
        )

    # The map as rows ---------------------------------------------------------------------------------

    def _elements(self, register: Register) -> int:
        """How many elements of an array this engine has."""
        return (
            min(register.count, self.config.planes) if register.name.startswith("port_") else register.count
        )

    def _setting_fields(self, register: Register, index: int) -> list[tuple[Any, Any]]:
        """Pairs of (signal of the settings, RegisterField) of one setting register."""
        result = []
        for field in register.fields:
            if register.name == "control":
                result.append((self.settings.enable, field))
            elif register.name == "port_administration":
                result.append((self._administration, field))
            elif register.count > 1:
                result.append((getattr(self.settings, field.name)[index], field))
            else:
                result.append((getattr(self.settings, field.name), field))
        return result

    def _reset_values(self) -> dict[str, Any]:
        """Field of the settings → value after reset, as the register map says."""
        values: dict[str, Any] = {}
        for register in register_map():
            if register.kind is RegisterKind.SETTING and register.name not in (
                "control",
                "port_administration",
            ):
                for field in register.fields:
                    many = register.count > 1
                    values[field.name] = [field.reset] * self.config.planes if many else field.reset
        return values

    def _initial_rows(self) -> dict[int, int]:
        """Row → value after reset, of what the memory holds."""
        rows: dict[int, int] = {}
        for register in register_map():
            if register.kind is RegisterKind.CONSTANT:
                rows[register.offset // 4] = constant_value(register, self.config)
            elif register.kind is RegisterKind.SETTING:
                for index in range(self._elements(register)):
                    for word in range(register.words):
                        rows[register.address(index, word) // 4] = register.reset >> 32 * word & 0xFFFFFFFF
        return rows

    def _contents(self) -> list[int]:
        """Contents of the memory when the engine is configured: all ones in rows, and what is never written.

        A row's value after reset stands one map behind it, what it may do half a map behind that; of rows
        without a value after reset the latter stands in the last quarter of the rows. It is the mask of a
        write, readable, writable, and how a register of several words is written: 1 to 3 words below the one
        that applies it, or :data:`_COLLECTS` for a lower word.
        """
        contents = [(1 << 36) - 1] * (_ROWS * 3 // 4) + [0] * (_ROWS * 5 // 4)
        for row, value in self._initial_rows().items():
            assert row < _HELD, "only the first half of the map has values after reset"
            contents[_ROWS + row] = value
        for register in register_map():
            setting = register.kind is RegisterKind.SETTING
            for index in range(self._elements(register)):
                for word in range(register.words):
                    mask = register.mask >> 32 * word & 0xFFFFFFFF if setting else 0xFFFFFFFF
                    wide = 0
                    if setting:
                        wide = register.words - 1 if word == register.words - 1 else _COLLECTS
                    row = register.address(index, word) // 4
                    assert row < _ROWS * 3 // 4, "the last quarter of the map is unused"
                    place = row + _ROWS + _HELD if row < _HELD else row + _ROWS // 4
                    contents[place] = mask | register.readable << 32 | register.writable << 33 | wide << 34
        return contents

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        described = register_map()
        bus = self.control
        self._administration = Signal(
            config.planes, init=described["port_administration"].reset & (1 << config.planes) - 1
        )

        row_bits = (_ROWS - 1).bit_length()
        m.submodules.rows = rows = Memory(shape=36, depth=2 * _ROWS, init=self._contents())
        row_read, row_write = rows.read_port(), rows.write_port()
        fact_shape = data.StructLayout({"mask": 32, "readable": 1, "writable": 1, "wide": 2})
        fact = data.View(fact_shape, row_read.data)  # of the row, one cycle after ``looks``
        m.submodules.commands = commands = TableCommands()
        for table in TableId:
            wiring.connect(
                m, getattr(commands, table_port(table)), wiring.flipped(getattr(self, table_port(table)))
            )

        # The access in progress.
        address = Signal(ADDRESS_BITS)
        row = Signal(row_bits)
        value = Signal(32)
        all_strobes = Signal()
        m.d.comb += row.eq(address[2:])
        beyond = address[2 + row_bits :].any() | (row[-2:] == 0b11)
        aligned = ~(address[:2].any() | beyond)

        def row_of(name: str) -> int:
            return described[name].offset // 4

        data_first = row_of("data")
        assert data_first == _HELD and data_first + described["data"].count - 1 == _DATA_LAST

        # Where the memory says what the row is, or its value after reset.
        filling = Signal()
        looks = Signal()
        fact_place = Cat(row[:6], row[6] | row[7], ~filling | row[7], ~row[7])
        settings_write = Signal()  # apply the value to the setting at this row
        shadow = [Signal(32, name=f"shadow{n}") for n in range(3)]
        with m.If(settings_write):
            with m.Switch(row):
                for register in described:
                    if register.kind is not RegisterKind.SETTING:
                        continue
                    whole = Cat(*reversed(shadow[: register.words - 1]), value)
                    for index in range(self._elements(register)):
                        with m.Case(register.address(index, register.words - 1) // 4):
                            for target, field in self._setting_fields(register, index):
                                m.d.sync += target.eq(whole[field.low : field.low + field.width])
        m.d.comb += self.settings.port_up.eq(self._administration & self.link_up)

        # Commands, doorbells.
        command = described["command"]

        def part(register: Register, name: str) -> Any:
            field = register.field(name)
            return value[field.low : field.low + field.width]

        m.d.comb += [
            commands.table.eq(part(command, "table")),
            commands.write.eq(part(command, "write")),
            commands.count.eq(part(command, "count")),
            commands.index.eq(part(command, "index")),
            commands.read_data.eq(row_read.data[:32]),
        ]
        ring_error = Signal()
        streams = {
            row_of("send_doorbell"): self.send_doorbell,
            row_of("receive_doorbell"): self.receive_doorbell,
            row_of("cq_consumer"): self.consumer,
        }
        bell = described["send_doorbell"]
        for name in ("send_doorbell", "receive_doorbell"):
            payload = getattr(self, name).payload
            m.d.comb += [payload.qp.eq(part(bell, "qp")), payload.count.eq(part(bell, "count"))]
        consumer = described["cq_consumer"]
        m.d.comb += [
            self.consumer.payload.queue.eq(part(consumer, "queue")),
            self.consumer.payload.index.eq(part(consumer, "index")),
        ]
        is_bell = Signal()
        with m.Switch(row):
            for name in ("send_doorbell", "receive_doorbell"):
                with m.Case(row_of(name)):
                    m.d.comb += [is_bell.eq(1), ring_error.eq(part(bell, "qp")[config.qp_bits :].any())]
            with m.Case(row_of("cq_consumer")):
                m.d.comb += [
                    is_bell.eq(1),
                    # Queues, as QPs, are a power of two.
                    ring_error.eq(part(consumer, "queue")[records.queue_bits(config) :].any()),
                ]

        # Events.
        event_shape = records.event_record(config)
        m.submodules.events = events = SyncFIFOBuffered(width=event_shape.size, depth=EVENT_QUEUE_DEPTH)
        dropped = Signal(16)
        to_count = Signal(4)
        lost = self.event.valid & ~events.w_rdy
        evs_lost = Signal(11 + config.qp_bits)
        place_left = Signal()
        offered = Signal(event_shape)
        m.d.sync += place_left.eq(events.w_level < EVENT_QUEUE_DEPTH - _RESERVED)
        m.d.comb += [
            offered.eq(self.event.payload),
            self.event.ready.eq(1),
            events.w_data.eq(offered),
            events.w_en.eq(self.event.valid | (self.ev_event.valid & place_left)),
            self.event_waiting.eq(events.r_rdy),
            self.counter.payload.index.eq(
                config.planes * records.PORT_COUNTERS + GlobalCounter.EVENTS_DROPPED
            ),
            self.counter.valid.eq(to_count != 0),
        ]
        with m.If(lost):
            m.d.sync += dropped.eq(dropped + 1)
        with m.If(~self.event.valid & self.ev_event.valid):
            with m.If(~place_left):
                m.d.comb += self.ev_event.ready.eq(1)
                m.d.sync += evs_lost.eq(evs_lost + ~evs_lost.all())
            with m.Elif(evs_lost.any()):
                m.d.comb += [
                    offered.kind.eq(EventKind.EV_DROPPED),
                    Cat(offered.reason, offered.place, offered.state, offered.qp).eq(evs_lost),
                ]
                m.d.sync += evs_lost.eq(0)
            with m.Else():
                m.d.comb += [offered.eq(self.ev_event.payload), self.ev_event.ready.eq(1)]
        counted = self.counter.valid & self.counter.ready
        with m.If(lost & ~counted & (to_count != 15)):
            m.d.sync += to_count.eq(to_count + 1)
        with m.Elif(~lost & counted):
            m.d.sync += to_count.eq(to_count - 1)
        oldest = Signal(event_shape)
        m.d.comb += oldest.eq(events.r_data)

        # State that is not in the memory.
        state = Signal(32)
        is_state = Signal()
        is_event = Signal()
        event = described["event"]
        with m.Switch(row):
            with m.Case(row_of("port_status")):
                m.d.comb += [is_state.eq(1), state.eq(self.link_up)]
            with m.Case(row_of("command_status")):
                m.d.comb += [is_state.eq(1), state.eq(Cat(commands.busy, commands.error))]
            with m.Case(row_of("event_dropped")):
                m.d.comb += [is_state.eq(1), state.eq(dropped)]
            with m.Case(row_of("event")):
                m.d.comb += [is_state.eq(1), is_event.eq(1)]
                with m.If(events.r_rdy):
                    for name, source in (
                        ("reason", oldest.reason),
                        ("kind", oldest.kind),
                        ("qp", oldest.qp),
                        ("place", oldest.place),
                        ("state", oldest.state),
                        ("valid", 1),
                    ):
                        field = event.field(name)
                        m.d.comb += state[field.low : field.low + field.width].eq(source)

        # Who writes the memory: the sequence after reset, a running command, or the access. While one does,
        # what the others would write is zero.
        store_value = Signal()
        store_shadow = Signal()
        lower_words = Signal()
        masked = Signal(32)
        filled = Signal()
        memory_row = Signal(row_bits)
        m.d.comb += [
            masked.eq((value | filled.replicate(32)) & fact.mask),
            memory_row.eq(Mux(commands.busy, data_first | commands.row, row)),
            row_read.addr.eq(Mux(looks, fact_place, memory_row)),
            row_write.addr.eq(memory_row),
            row_write.data.eq(masked | (shadow[2] & lower_words.replicate(32)) | commands.store_data),
            row_write.en.eq(commands.store | store_value | store_shadow),
        ]
        shift = Signal()
        load_value = Signal()
        clear_value = Signal()
        with m.If(shift):
            m.d.sync += [shadow[0].eq(masked), shadow[1].eq(shadow[0]), shadow[2].eq(shadow[1])]

        four_words = Signal()
        rows_left = Signal(2)
        take_row = Signal()
        was_write = Signal()
        # What a write does; nothing of it when it is refused.
        rings, begins, collects, applies = Signal(), Signal(), Signal(), Signal()
        response = Signal(2)
        m.d.comb += [bus.bresp.eq(response), bus.rresp.eq(response)]
        take_write = bus.awvalid & bus.wvalid & ~commands.busy & ~(bus.arvalid & was_write)
        with m.FSM() as machine:
            with m.State("FILL"):
                m.d.comb += [filling.eq(1), looks.eq(1)]
                m.next = "FILL_ROW"
            with m.State("FILL_ROW"):
                # Of a value of all ones the masked bits are the row's value after reset; the data buffer has
                # none, and the value is zero. Behind it stands what is never written.
                m.d.comb += [store_value.eq(row <= _DATA_LAST), filled.eq(~row[-1])]
                m.d.sync += address[2 : 2 + row_bits].eq(row + 1)
                m.next = "FILL"
                with m.If(row.all()):
                    m.next = "IDLE"
            with m.State("IDLE"):
                with m.If(take_write):
                    m.d.comb += [bus.awready.eq(1), bus.wready.eq(1), load_value.eq(1)]
                    m.d.sync += [
                        address.eq(bus.awaddr),
                        all_strobes.eq(bus.wstrb.all()),
                        was_write.eq(1),
                    ]
                    m.next = "LOOK"
                with m.Elif(bus.arvalid):
                    m.d.comb += bus.arready.eq(1)
                    m.d.sync += [address.eq(bus.araddr), was_write.eq(0)]
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.d.comb += looks.eq(~commands.reads)
                with m.If(looks):
                    m.next = "READ"
                    with m.If(was_write):
                        m.next = "JUDGE"
            with m.State("JUDGE"):
                # No command runs, and the mask is needed once more.
                m.d.comb += looks.eq(1)
                # What the memory says of the row is too late to decide anything in the same cycle.
                fits = fact.writable & aligned & all_strobes & ~ring_error
                starts = row == row_of("command")
                m.d.sync += [
                    rings.eq(fits & is_bell),
                    begins.eq(fits & ~is_bell & starts),
                    collects.eq(fits & ~is_bell & ~starts & (fact.wide == _COLLECTS)),
                    applies.eq(fits & ~is_bell & ~starts & (fact.wide != _COLLECTS)),
                    response.eq(Mux(fits, _OKAY, _SLVERR)),
                ]
                m.next = "WRITE"
            with m.State("WRITE"):
                m.next = "WRITTEN"
                m.d.comb += [commands.start.eq(begins), shift.eq(collects)]
                m.d.comb += [store_value.eq(applies), settings_write.eq(applies)]
                with m.If(rings):
                    m.next = "RING"
                with m.If(begins):
                    m.d.comb += clear_value.eq(1)
                with m.If(applies):
                    m.d.sync += [rows_left.eq(3), four_words.eq(fact.wide == 3)]
                    with m.If(fact.wide != 0):
                        m.d.comb += clear_value.eq(1)
                        m.d.sync += address[2:4].eq(address[2:4] + 1)
                        m.next = "LOWER_WORDS"
            with m.State("LOWER_WORDS"):
                # A wide register has two or four words and is aligned to its size: the row wraps from its
                # highest word to what is three words before it, or would be with four.
                m.d.comb += [
                    lower_words.eq(1),
                    shift.eq(1),
                    store_shadow.eq(four_words | (rows_left == 1)),
                ]
                m.d.sync += [address[2:4].eq(address[2:4] + 1), rows_left.eq(rows_left - 1)]
                with m.If(rows_left == 1):
                    m.next = "WRITTEN"
            with m.State("RING"):
                with m.Switch(row):
                    for place, port in streams.items():
                        with m.Case(place):
                            m.d.comb += port.valid.eq(1)
                            with m.If(port.ready):
                                m.next = "WRITTEN"
            with m.State("WRITTEN"):
                m.d.comb += bus.bvalid.eq(1)
                with m.If(bus.bready):
                    m.next = "IDLE"
            with m.State("READ"):
                # The memory belongs to a running command; state can be read at any time.
                with m.If(~(fact.readable & aligned)):
                    m.d.sync += response.eq(_SLVERR)
                    m.next = "ANSWER"
                with m.Elif(is_state):
                    m.d.sync += response.eq(_OKAY)
                    m.d.comb += events.r_en.eq(is_event)
                    m.next = "ANSWER"
                with m.Elif(~commands.busy):
                    m.next = "READ_ROW"
                with m.Else():
                    m.next = "AWAIT_COMMAND"
            with m.State("AWAIT_COMMAND"):
                with m.If(~commands.busy):
                    m.next = "READ_ROW"
            with m.State("READ_ROW"):
                m.d.comb += take_row.eq(1)
                m.d.sync += response.eq(_OKAY)
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += bus.rvalid.eq(1)
                with m.If(bus.rready):
                    m.next = "IDLE"

        # Outside of the states, so that the flip-flops' resets are used instead of LUTs.
        with m.If(machine.ongoing("READ")):
            m.d.sync += bus.rdata.eq(state)
        with m.Elif(take_row):
            m.d.sync += bus.rdata.eq(row_read.data[:32])
        with m.If(clear_value):
            m.d.sync += value.eq(0)
        with m.Elif(load_value):
            m.d.sync += value.eq(bus.wdata)

        m.d.comb += self.idle.eq(machine.ongoing("IDLE") & ~commands.busy & (to_count == 0))
        return m
