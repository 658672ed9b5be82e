"""Writes completions into the rings in host memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import QP_NUMBER_BASE, NicConfig
from ..records import GlobalCounter
from ..stream import Axi4WriteSignature, TableBus
from ..tables import CQ_ENTRY, CQE, CompletionStatus, QpErrorReason, WorkRequestOpcode
from .write_arbiter import COMPLETION_ID_BITS

__all__ = ["CQE_BYTES", "LARGEST_RING_LOG2", "Completions"]

#: Bytes of a completion.
CQE_BYTES = 8 * CQE.words

#: Entries of a ring, log2: the lap is a bit of the 24-bit producer.
LARGEST_RING_LOG2 = 23

_MOST_OUTSTANDING = 15


class Completions(wiring.Component):
    """Owner of the completion queues: turns records into entries of a ring, in order.

    The halves of the QPs take turns. A record is read word by word as the write channel takes them: nothing
    of it is held here, and it is taken when its entry has been handed over. A queue that does not exist or
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
    sent, received : streams of records.completion_record, in
        Of send requests, whose ``immediate`` is not looked at, and of receive requests, which always succeed
        (``opcode`` and ``status`` are not looked at).
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
                "sent": In(stream.Signature(records.completion_record(config))),
                "received": In(stream.Signature(records.completion_record(config))),
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
        entry_bits = (CQE_BYTES - 1).bit_length()
        lane_bits = (config.data_bytes - 1).bit_length()
        log2_field, enabled_field = CQ_ENTRY.field("log2_entries"), CQ_ENTRY.field("enabled")
        base_bits = config.address_width - entry_bits

        # Two rows a queue: the ring as the table's first word has it, its size in the bits that are zero
        # there, and the producer.
        assert log2_field.width == entry_bits, "the size fits below the base"
        m.submodules.rings = rings = Memory(shape=max(config.address_width, 24), depth=2 * queues, init=[])
        m.submodules.consumers = consumers = Memory(shape=24, depth=queues, init=[])
        ring_read, ring_write = rings.read_port(), rings.write_port()
        consumer_read, consumer_write = consumers.read_port(), consumers.write_port()
        enabled = Signal(queues)

        # The record that is at work stays with its source until it is done with.
        chosen = Signal()  # the received one
        following = Signal()
        waits = Signal()
        m.d.comb += [
            waits.eq(self.sent.valid | self.received.valid),
            following.eq(Mux(chosen, ~self.sent.valid, self.received.valid)),
        ]

        def of(number: Signal, name: str) -> Value:
            return Mux(number, self.received.payload[name], self.sent.payload[name])

        # Table: an entry collects in registers until its last word.
        table = self.table
        base = Signal(base_bits, reset_less=True)
        log2 = Signal(log2_field.width)
        enable = Signal()
        refused = Signal()
        known = Signal()
        queue = Signal(records.queue_bits(config))  # of the table command or of the record
        table_word = Signal(4)
        table_last = Signal()
        apply = Signal()
        clear = Signal()  # one cycle behind

        # What a table read answers; looked at while ``done`` is set only.
        ring = Signal(len(ring_read.data))
        m.d.comb += ring.eq(ring_read.data)
        size_bits = slice(log2_field.low, log2_field.low + log2_field.width)
        with m.If(table_word == 0):
            m.d.comb += table.read_data.eq(Cat(Const(0, entry_bits), ring[entry_bits:]))
        with m.Elif(table_word == 1):
            m.d.comb += [
                table.read_data[size_bits].eq(ring),
                table.read_data[enabled_field.low].eq(enabled.bit_select(queue, 1)),
            ]
        with m.Elif(table_word == 2):
            m.d.comb += table.read_data.eq(ring[:24])

        # The host's consumer, and its start at 0; never in the cycle in which it is read.
        reading = Signal()
        m.d.comb += [
            self.consumer.ready.eq(~clear & ~reading),
            consumer_read.addr.eq(queue),
            consumer_read.en.eq(reading),
            consumer_write.addr.eq(Mux(clear, queue, self.consumer.payload.queue)),
            consumer_write.data.eq(Mux(clear, 0, self.consumer.payload.index)),
            consumer_write.en.eq(clear | (self.consumer.valid & ~reading)),
        ]

        # What a record becomes.
        full = Signal()
        phase = Signal()
        address = Signal(base_bits, reset_less=True)  # in entries
        mask = Signal(24)
        produced = Signal(24, reset_less=True)
        advance = Signal()
        m.d.comb += [
            ring_write.addr.eq(Cat(~apply, queue)),
            ring_write.data.eq(Mux(apply, Cat(log2, base), produced + 1)),
            ring_write.en.eq(apply | clear | advance),
        ]
        entries: list[Value] = []
        for payload, of_half in (
            (
                self.sent.payload,
                {"opcode": self.sent.payload.opcode, "status": self.sent.payload.status},
            ),
            (
                self.received.payload,
                {
                    "immediate": self.received.payload.immediate,
                    "opcode": WorkRequestOpcode.RECEIVE_IMM,
                    "status": CompletionStatus.SUCCESS,
                },
            ),
        ):
            values = {name: payload[name] for name in ("wr_id", "byte_length", "message_number")}
            values |= {"qpn": QP_NUMBER_BASE | payload.qp, **of_half}
            entry = Signal(8 * CQE_BYTES, name=f"entry{len(entries)}")
            for name, value in values.items():
                field = CQE.field(name)
                low = 64 * field.word + field.low
                m.d.comb += entry[low : low + field.width].eq(value)
            entries.append(entry)

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
        ]
        # A beat is the sum of registers that are zero out of turn, which is smaller than a multiplexer.
        show = Signal()
        turn = Signal.like(beat)  # beat that follows
        width = min(config.data_width, 8 * CQE_BYTES)
        shown: Value = Const(0, width)
        for half, entry in enumerate(entries):
            for number in range(beats):
                part = Signal(width, name=f"part{half}_{number}", reset_less=True)
                with m.If(show):
                    m.d.sync += part.eq(entry.word_select(number, width))
                    with m.If((turn != number) | (chosen != half)):
                        m.d.sync += part.eq(0)
                shown = shown | part
        last_bit = CQE.field("phase").low
        assert last_bit == 63, "the lap's bit is the last one of an entry"
        data = Cat(shown[: width - 1], shown[width - 1] | (phase & write.wlast))
        if config.data_bytes <= CQE_BYTES:
            m.d.comb += [
                write.awaddr.eq(Cat(Const(0, entry_bits), address)),
                write.wstrb.eq(-1),
                write.wdata.eq(data),
            ]
        else:
            parts = config.data_bytes // CQE_BYTES
            part = address[: (parts - 1).bit_length()]
            m.d.comb += [
                write.awaddr.eq(Cat(Const(0, lane_bits), address[len(part) :])),
                write.wdata.eq(data.replicate(parts)),
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
        m.d.comb += [show.eq(beat_now), turn.eq(beat + 1)]
        with m.If(beat_now):
            m.d.sync += beat.eq(turn)
        answered = write.bvalid & write.bready
        with m.If(finished & ~answered):
            m.d.sync += outstanding.eq(outstanding + 1)
        with m.Elif(~finished & answered):
            m.d.sync += outstanding.eq(outstanding - 1)

        # What a record became waits here to be counted, and holds the next one; an error holds the answers.
        overran = Signal()
        to_count = Signal()
        failed = Signal()
        count_now = Signal()
        load = Signal()
        m.d.comb += [load.eq(~self.counter.valid | self.counter.ready), write.bready.eq(~failed)]
        with m.If(load):
            m.d.sync += [
                self.counter.valid.eq(to_count | failed),
                self.counter.payload.index.eq(
                    config.planes * records.PORT_COUNTERS
                    + Mux(
                        to_count,
                        Mux(overran, GlobalCounter.COMPLETION_OVERRUN, GlobalCounter.COMPLETIONS),
                        GlobalCounter.WRITE_ERRORS,
                    )
                ),
                to_count.eq(0),
            ]
            with m.If(~to_count):
                m.d.sync += failed.eq(0)
        with m.If(count_now):
            m.d.sync += to_count.eq(1)
        with m.If(answered & write.bresp[1]):
            m.d.sync += failed.eq(1)

        m.d.comb += [
            self.overrun.payload.qp.eq(of(chosen, "qp")),
            self.overrun.payload.reason.eq(QpErrorReason.COMPLETION_OVERRUN),
        ]
        host_turn = Signal()
        taken = Signal()
        m.d.comb += [self.sent.ready.eq(taken & ~chosen), self.received.ready.eq(taken & chosen)]
        with m.FSM() as machine:
            with m.State("IDLE"):
                with m.If(table.valid & (host_turn | ~waits)):
                    m.d.comb += [
                        table.ready.eq(1),
                        ring_read.addr.eq(Cat(table.word[1], table.index[: len(queue)])),
                    ]
                    m.d.sync += [
                        host_turn.eq(0),
                        known.eq(table.index < queues),
                        queue.eq(table.index),
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
                            size = table.write_data[size_bits]
                            m.d.sync += [
                                log2.eq(size),
                                enable.eq(table.write_data[enabled_field.low]),
                                refused.eq(refused | (size > LARGEST_RING_LOG2)),
                            ]
                        m.next = "TABLE_WRITTEN"
                    with m.Else():
                        m.next = "TABLE_READ"
                with m.Elif(waits & (~to_count | load) & (outstanding != _MOST_OUTSTANDING)):
                    m.d.comb += ring_read.addr.eq(Cat(1, of(following, "queue")))
                    m.d.sync += [host_turn.eq(1), chosen.eq(following), queue.eq(of(following, "queue"))]
                    m.next = "PRODUCER"
            with m.State("TABLE_WRITTEN"):
                m.d.comb += apply.eq(table_last & ~refused)
                m.d.sync += produced.eq(-1)  # the producer is written as one more
                with m.If(apply):
                    m.d.sync += enabled.bit_select(queue, 1).eq(enable)
                    m.next = "TABLE_CLEAR"
                with m.Else():
                    m.d.comb += [table.done.eq(1), table.error.eq(refused)]
                    m.next = "IDLE"
            with m.State("TABLE_CLEAR"):
                m.d.comb += [clear.eq(1), table.done.eq(1)]
                m.next = "IDLE"
            with m.State("TABLE_READ"):
                m.d.comb += [table.done.eq(1), table.error.eq(~known)]
                m.next = "IDLE"
            with m.State("PRODUCER"):
                m.d.comb += [ring_read.addr.eq(Cat(0, queue)), reading.eq(1)]
                m.d.sync += produced.eq(ring)
                m.next = "RING"
            with m.State("RING"):
                used = Signal(24)
                m.d.comb += [
                    mask.eq(Cat(number < ring[:entry_bits] for number in range(24))),
                    used.eq(produced - consumer_read.data),
                    show.eq(1),
                    turn.eq(0),
                ]
                m.d.sync += [
                    address.eq(ring[entry_bits:] + (produced & mask)),
                    full.eq((used & ~mask).any() | ~enabled.bit_select(queue, 1)),
                    phase.eq(~produced.bit_select(ring[:entry_bits], 1)),
                    beat.eq(0),
                    address_sent.eq(0),
                ]
                m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [
                    writing.eq(~full),
                    advance.eq(finished),
                    self.overrun.valid.eq(full),
                    taken.eq(finished | (full & self.overrun.ready)),
                    count_now.eq(taken),
                ]
                m.d.sync += overran.eq(full)
                with m.If(taken):
                    m.next = "IDLE"
        m.d.comb += self.idle.eq(
            machine.ongoing("IDLE")
            & ~waits
            & ~table.valid
            & ~self.consumer.valid
            & (outstanding == 0)
            & ~to_count
            & ~failed
            & ~self.counter.valid
        )
        return m
