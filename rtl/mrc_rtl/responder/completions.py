"""Writes completions into the rings in host memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import QP_NUMBER_BASE, NicConfig
from ..records import GlobalCounter
from ..stream import Axi4WriteSignature, TableBus
from ..tables import CQ_ENTRY, CQE, QpErrorReason
from .write_arbiter import COMPLETION_ID_BITS

__all__ = ["CQE_BYTES", "LARGEST_RING_LOG2", "Completions"]

#: Bytes of a completion.
CQE_BYTES = 8 * CQE.words

#: Entries of a ring, log2: the lap is a bit of the 24-bit producer.
LARGEST_RING_LOG2 = 23

_MOST_OUTSTANDING = 15


class Completions(wiring.Component):
    """Owner of the completion queues: turns records into entries of a ring, in order.

    A record is taken when its entry has been handed to the write channel. A queue that does not exist or
    whose ring is full (the host has not moved its consumer) loses the completion: it is counted and the QP
    reported. All entries use one AXI identifier, so the memory keeps their order; the lap bit is in an
    entry's last word. What a completion covers is already in memory when its record comes.

    A table write starts a queue anew: producer and consumer become 0, the first lap has phase 1. It is
    refused when the ring is not aligned to an entry, beyond the AXI address, or larger than 2^23 entries.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    table : TableBus, in
        Table COMPLETION_QUEUE.
    completion : stream of records.completion_record, in
    consumer : stream of records.consumer_record, in
        Always taken within two cycles.
    write : AXI4 write channels
    overrun : stream of records.qp_error
    counter : stream of records.counter_event
        COMPLETIONS, COMPLETION_OVERRUN, WRITE_ERRORS.
    idle : 1

    Source: rule 2 of design.md 4; profile.md 7 (host contract).
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "table": In(TableBus()),
                "completion": In(stream.Signature(records.completion_record(config))),
                "consumer": In(stream.Signature(records.consumer_record(config))),
                "write": Out(Axi4WriteSignature(config.data_width, config.address_width, COMPLETION_ID_BITS)),
                "overrun": Out(stream.Signature(records.qp_error(config))),
                "counter": Out(stream.Signature(records.counter_event(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        queues = config.completion_queues
        record = self.completion.payload
        entry_bits = (CQE_BYTES - 1).bit_length()
        lane_bits = (config.data_bytes - 1).bit_length()
        ring_shape = data.StructLayout({"base": config.address_width - entry_bits, "log2": 5})

        m.submodules.rings = rings = Memory(shape=ring_shape, depth=queues, init=[])
        m.submodules.producers = producers = Memory(shape=24, depth=queues, init=[])
        m.submodules.consumers = consumers = Memory(shape=24, depth=queues, init=[])
        ring_read, ring_write = rings.read_port(), rings.write_port()
        producer_read, producer_write = producers.read_port(), producers.write_port()
        consumer_read, consumer_write = consumers.read_port(), consumers.write_port()
        enabled = Signal(queues)

        # Table: an entry collects in registers until its last word.
        table = self.table
        base = Signal(config.address_width - entry_bits)
        log2 = Signal(5)
        enable = Signal()
        refused = Signal()
        known = Signal()
        table_queue = Signal(records.queue_bits(config))
        table_word = Signal(4)
        table_last = Signal()
        log2_field, enabled_field = CQ_ENTRY.field("log2_entries"), CQ_ENTRY.field("enabled")
        apply = Signal()
        queue = Signal(records.queue_bits(config))  # of the table command or of the record
        for_table = Signal()
        m.d.comb += [
            queue.eq(Mux(for_table, table.index, record.queue)),
            ring_read.addr.eq(queue),
            producer_read.addr.eq(queue),
            consumer_read.addr.eq(queue),
            ring_write.addr.eq(table_queue),
            ring_write.data.base.eq(base),
            ring_write.data.log2.eq(log2),
            ring_write.en.eq(apply),
        ]

        # What a table read answers; looked at while ``done`` is set only.
        ring = ring_read.data
        with m.If(table_word == 0):
            m.d.comb += table.read_data.eq(Cat(Const(0, entry_bits), ring.base))
        with m.Elif(table_word == 1):
            m.d.comb += [
                table.read_data[log2_field.low : log2_field.low + log2_field.width].eq(ring.log2),
                table.read_data[enabled_field.low].eq(enabled.bit_select(table_queue, 1)),
            ]
        with m.Elif(table_word == 2):
            m.d.comb += table.read_data.eq(producer_read.data)

        # The host's consumer, and its start at 0; never in the cycle in which it is read.
        reading = Signal()
        m.d.comb += [
            self.consumer.ready.eq(~apply & ~reading),
            consumer_write.addr.eq(Mux(apply, table_queue, self.consumer.payload.queue)),
            consumer_write.data.eq(Mux(apply, 0, self.consumer.payload.index)),
            consumer_write.en.eq(apply | (self.consumer.valid & ~reading)),
        ]

        # What a record becomes.
        full = Signal()
        phase = Signal()
        address = Signal(config.address_width - entry_bits)  # in entries
        offset = Signal(24)
        producer = Signal(24)
        advance = Signal()
        m.d.comb += [
            producer_write.addr.eq(Mux(apply, table_queue, record.queue)),
            producer_write.data.eq(Mux(apply, 0, producer + 1)),
            producer_write.en.eq(apply | advance),
        ]
        entry = Signal(8 * CQE_BYTES)
        values = {
            "wr_id": record.wr_id,
            "byte_length": record.byte_length,
            "immediate": record.immediate,
            "qpn": QP_NUMBER_BASE | record.qp,
            "opcode": record.opcode,
            "message_number": record.message_number,
            "status": record.status,
            "phase": phase,
        }
        for field in CQE.fields:
            low = 64 * field.word + field.low
            m.d.comb += entry[low : low + field.width].eq(values[field.name])

        # Write channels: an entry is one burst or a part of one beat.
        beats = max(1, CQE_BYTES // config.data_bytes)
        beat = Signal(range(beats + 1))
        address_sent = Signal()
        writing = Signal()
        outstanding = Signal(range(_MOST_OUTSTANDING + 1))
        write = self.write
        m.d.comb += [
            write.awvalid.eq(writing & ~address_sent),
            write.awlen.eq(beats - 1),
            write.awsize.eq(lane_bits),
            write.awburst.eq(0b01),
            write.wvalid.eq(writing & (beat != beats)),
            write.wlast.eq(beat == beats - 1),
            write.bready.eq(1),
        ]
        if config.data_bytes <= CQE_BYTES:
            m.d.comb += [write.awaddr.eq(Cat(Const(0, entry_bits), address)), write.wstrb.eq(-1)]
            with m.Switch(beat):
                for number in range(beats):
                    with m.Case(number):
                        m.d.comb += write.wdata.eq(entry.word_select(number, config.data_width))
        else:
            parts = config.data_bytes // CQE_BYTES
            part = address[: (parts - 1).bit_length()]
            m.d.comb += [
                write.awaddr.eq(Cat(Const(0, lane_bits), address[len(part) :])),
                write.wdata.eq(entry.replicate(parts)),
                write.wstrb.eq(Const((1 << CQE_BYTES) - 1, config.data_bytes) << (part * CQE_BYTES)),
            ]
        address_now = write.awvalid & write.awready
        beat_now = write.wvalid & write.wready
        finished = Signal()
        m.d.comb += finished.eq(
            writing & (address_sent | address_now) & ((beat == beats) | (beat_now & (beat == beats - 1)))
        )
        with m.If(address_now):
            m.d.sync += address_sent.eq(1)
        with m.If(beat_now):
            m.d.sync += beat.eq(beat + 1)
        with m.If(finished & ~write.bvalid):
            m.d.sync += outstanding.eq(outstanding + 1)
        with m.Elif(~finished & write.bvalid):
            m.d.sync += outstanding.eq(outstanding - 1)

        # What a record became waits here to be counted, and holds the next one; errors gather. The memory
        # answers a bounded number of writes, so no error is lost.
        became = Signal(range(16))
        to_count = Signal()
        errors = Signal(range(2 * _MOST_OUTSTANDING + 2))  # from half of it on, no record is taken
        count_now = Signal()
        load = Signal()
        error_now = write.bvalid & write.bresp[1]
        error_less = Signal()
        m.d.comb += [
            load.eq(~self.counter.valid | self.counter.ready),
            error_less.eq(load & ~to_count & (errors != 0)),
        ]
        with m.If(load):
            m.d.sync += [
                self.counter.valid.eq(to_count | (errors != 0)),
                self.counter.payload.index.eq(
                    config.planes * records.PORT_COUNTERS + Mux(to_count, became, GlobalCounter.WRITE_ERRORS)
                ),
                to_count.eq(0),
            ]
        with m.If(count_now):
            m.d.sync += to_count.eq(1)
        with m.If(error_now & ~error_less & ~errors.all()):
            m.d.sync += errors.eq(errors + 1)
        with m.Elif(error_less & ~error_now):
            m.d.sync += errors.eq(errors - 1)

        m.d.comb += [
            self.overrun.payload.qp.eq(record.qp),
            self.overrun.payload.reason.eq(QpErrorReason.COMPLETION_OVERRUN),
        ]
        host_turn = Signal()
        with m.FSM() as machine:
            with m.State("IDLE"):
                with m.If(table.valid & (host_turn | ~self.completion.valid)):
                    m.d.comb += [for_table.eq(1), table.ready.eq(1)]
                    m.d.sync += [
                        host_turn.eq(0),
                        known.eq(table.index < queues),
                        table_queue.eq(table.index),
                        table_word.eq(table.word),
                        table_last.eq(table.last),
                    ]
                    with m.If(table.write):
                        with m.If(table.word == 0):
                            m.d.sync += [
                                base.eq(table.write_data[entry_bits:]),
                                log2.eq(0),
                                enable.eq(0),
                                refused.eq(
                                    (table.index >= queues)
                                    | table.write_data[:entry_bits].any()
                                    | table.write_data[config.address_width :].any()
                                ),
                            ]
                        with m.If(table.word == 1):
                            size = table.write_data[log2_field.low : log2_field.low + log2_field.width]
                            m.d.sync += [
                                log2.eq(size),
                                enable.eq(table.write_data[enabled_field.low]),
                                refused.eq(refused | (size > LARGEST_RING_LOG2)),
                            ]
                        m.next = "TABLE_WRITTEN"
                    with m.Else():
                        m.next = "TABLE_READ"
                with m.Elif(
                    self.completion.valid
                    & (~to_count | load)
                    & ~errors[-1]
                    & (outstanding != _MOST_OUTSTANDING)
                ):
                    m.d.comb += reading.eq(1)
                    m.d.sync += host_turn.eq(1)
                    m.next = "CHECK"
            with m.State("TABLE_WRITTEN"):
                m.d.comb += [table.done.eq(1), table.error.eq(refused), apply.eq(table_last & ~refused)]
                with m.If(apply):
                    m.d.sync += enabled.bit_select(table_queue, 1).eq(enable)
                m.next = "IDLE"
            with m.State("TABLE_READ"):
                m.d.comb += [table.done.eq(1), table.error.eq(~known)]
                m.next = "IDLE"
            with m.State("CHECK"):
                used = Signal(24)
                mask = Signal(24)
                m.d.comb += [
                    used.eq(producer_read.data - consumer_read.data),
                    mask.eq(Cat(number < ring.log2 for number in range(24))),
                ]
                m.d.sync += [
                    producer.eq(producer_read.data),
                    offset.eq(producer_read.data & mask),
                    full.eq((used & ~mask).any() | ~enabled.bit_select(record.queue, 1)),
                    # The bit above the mask.
                    phase.eq(~(producer_read.data & ~mask & (Cat(1, mask)[:24])).any()),
                    address.eq(ring.base),
                ]
                m.next = "ADDRESS"
            with m.State("ADDRESS"):
                m.d.sync += [address.eq(address + offset), beat.eq(0), address_sent.eq(0)]
                with m.If(full):
                    m.next = "OVERRUN"
                with m.Else():
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [writing.eq(1), advance.eq(finished), self.completion.ready.eq(finished)]
                with m.If(finished):
                    m.d.comb += count_now.eq(1)
                    m.d.sync += became.eq(GlobalCounter.COMPLETIONS)
                    m.next = "IDLE"
            with m.State("OVERRUN"):
                m.d.comb += [self.overrun.valid.eq(1), self.completion.ready.eq(self.overrun.ready)]
                with m.If(self.overrun.ready):
                    m.d.comb += count_now.eq(1)
                    m.d.sync += became.eq(GlobalCounter.COMPLETION_OVERRUN)
                    m.next = "IDLE"
        m.d.comb += self.idle.eq(
            machine.ongoing("IDLE")
            & ~self.completion.valid
            & ~table.valid
            & ~self.consumer.valid
            & (outstanding == 0)
            & ~to_count
            & (errors == 0)
            & ~self.counter.valid
        )
        return m
