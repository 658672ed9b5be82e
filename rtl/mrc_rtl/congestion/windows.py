"""Congestion windows of all queue pairs: events in, and who may send out."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import CongestionKind, congestion_event
from ..requester.record_queue import RecordQueue
from ..stream import TableBus
from .assembler import PROGRAM_LENGTH, Condition, instruction_word
from .datapath import Datapath
from .gate import Gate
from .program import START, program
from .rows import BYTES, ROW_BITS, ROWS, TICKS, UNITS, Row

__all__ = ["CongestionWindows", "sent_bytes"]

#: Packets handed over for sending whose sizes wait.
_WAITING = 16


def sent_bytes(config: NicConfig) -> data.StructLayout:
    """A packet of ``size`` bytes, as windows count, was handed over for sending."""
    return data.StructLayout({"qp": config.qp_bits, "size": 13})


class CongestionWindows(wiring.Component):
    """NSCC for all QPs: a sequencer of its own with the program of :mod:`mrc_rtl.congestion.program`.

    State and parameters of a QP are 64 rows of one memory (:class:`mrc_rtl.congestion.rows.Row`), its program
    is a second one. An instruction takes one cycle, a product or quotient one more for each bit; it is read
    in the first cycle, its row in the second, and its sum is there in the third. Events of one QP are taken
    in their order, those that tell of sent packets on their own: all they do is add up. An event of a QP
    without a window is dropped.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    table : TableBus
        Rows of a QP, 16 for each index, each in the low bits of its word (CONGESTION of
        :mod:`mrc_rtl.tables`); only the low bits of the index count. Writing the last row starts or ends the
        QP's window.
    event : stream of records.congestion_event, in
        Kind SENT is not expected here.
    sent : stream of :func:`sent_bytes`, in
    look_qp, may_send, last : qp_bits, 1, 1
        One cycle after ``look_qp``: its window leaves room for one more packet, and for no second one.
    give : 1
        A packet of ``look_qp`` is given out; ``may_send`` counts it from the next cycle on.
    stop : 1
        ``look_qp`` has something to send and may not.
    wake : stream of {qp}, out
        A stopped QP may perhaps send again.
    now : 16
        Ticks of 128 ns.
    idle : 1

    Source: nscc.md; profile.md 8.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "table": In(TableBus()),
                "event": In(stream.Signature(congestion_event(config))),
                "sent": In(stream.Signature(sent_bytes(config))),
                "look_qp": In(config.qp_bits),
                "may_send": Out(1),
                "last": Out(1),
                "give": In(1),
                "stop": In(1),
                "wake": Out(stream.Signature(data.StructLayout({"qp": config.qp_bits}))),
                "now": In(16),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.gate = gate = Gate(config)
        m.submodules.datapath = unit = Datapath()
        m.submodules.code = code = Memory(
            shape=instruction_word().size, depth=PROGRAM_LENGTH, init=[this.word for this in program()]
        )
        m.submodules.rows = rows = Memory(shape=ROW_BITS, depth=config.qps * ROWS, init=[])
        code_read = code.read_port()
        row_read, row_write = rows.read_port(), rows.write_port()
        m.d.comb += [
            gate.look_qp.eq(self.look_qp),
            gate.give.eq(self.give),
            gate.stop.eq(self.stop),
            self.may_send.eq(gate.may_send),
            self.last.eq(gate.last),
        ]
        wiring.connect(m, gate.wake, wiring.flipped(self.wake))

        word = data.View(instruction_word(), code_read.data)
        target = word.target
        running = Signal()
        looping = Signal()
        first = Signal()  # of an event
        finishing = Signal()
        kind = Signal(range(START + 1))
        qp = Signal(config.qp_bits)

        # Events.
        kept = Signal(congestion_event(config))
        kept_valid = Signal()
        m.submodules.queue = queue = RecordQueue(sent_bytes(config).size, _WAITING)
        sent = data.View(sent_bytes(config), queue.r_data)
        m.d.comb += [
            self.event.ready.eq(~kept_valid),
            gate.event_qp.eq(self.event.payload.qp),
            gate.sent_qp.eq(self.sent.payload.qp),
            self.sent.ready.eq(queue.w_rdy | ~gate.sent_on),
            queue.w_data.eq(self.sent.payload),
            queue.w_en.eq(self.sent.valid & queue.w_rdy & gate.sent_on),
        ]
        with m.If(self.event.ready):
            m.d.sync += [kept.eq(self.event.payload), kept_valid.eq(self.event.valid & gate.event_on)]

        # Who is next: the start of a window, the host, then events and sent packets in turns.
        table = self.table
        starting = Signal()
        start_qp = Signal(config.qp_bits)
        served_sent = Signal()
        take_start, take_event, take_sent, take_host = Signal(), Signal(), Signal(), Signal()
        take = Signal()
        free = Signal()
        ending = Signal()
        answering = Signal()
        writing = Signal()
        m.d.comb += [
            free.eq(~running & ~finishing & ~answering),
            take_start.eq(free & starting & ~self.give),
            take_host.eq(free & ~starting & table.valid),
            take_event.eq(free & ~starting & ~table.valid & kept_valid & (served_sent | ~queue.r_rdy)),
            take_sent.eq(free & ~starting & ~table.valid & queue.r_rdy & ~take_event),
            take.eq(take_start | take_event | take_sent),
            queue.r_en.eq(ending & (kind == CongestionKind.SENT)),
        ]
        entry = Signal(range(START + 1))
        m.d.comb += entry.eq(Mux(take_start, START, Mux(take_event, kept.kind, CongestionKind.SENT)))
        m.d.sync += first.eq(take)
        moment = Signal(16)
        with m.If(take):
            m.d.sync += [
                running.eq(1),
                moment.eq(self.now),
                kind.eq(entry),
                qp.eq(Mux(take_start, start_qp, Mux(take_event, kept.qp, sent.qp))),
                served_sent.eq(take_sent),
            ]
        with m.If(take_start):
            m.d.sync += starting.eq(0)

        # Loops, jumps and the next instruction.
        count = Signal(6)
        last = Signal()
        stall = Signal()
        negative = Signal()
        facts = Signal(8)
        m.d.comb += [
            facts[Condition.NEGATIVE].eq(negative),
            facts[Condition.MARKED].eq(kept.marked | (kept.kind == CongestionKind.LOSS)),
            facts[Condition.SAMPLED].eq(kept.sampled),
            facts[Condition.RESTORE].eq(kept.restore),
            facts[Condition.PENALTY].eq(kept.penalty.any()),
            facts[Condition.NACK].eq(kept.kind == CongestionKind.NACK),
            facts[Condition.ALWAYS].eq(1),
            last.eq(count == 1),
            stall.eq(running & word.loops & (~looping | ~last)),
            ending.eq(running & word.ends),
        ]
        jumps = Signal()
        m.d.comb += jumps.eq(word.jumps & (facts.bit_select(word.condition, 1) ^ word.inverted))
        place = Signal(range(PROGRAM_LENGTH))
        following = Signal(range(PROGRAM_LENGTH))
        m.d.comb += [
            following.eq(Mux(jumps, target, place + 1)),
            code_read.en.eq(take | (running & ~stall)),
            code_read.addr.eq(Mux(running, following, entry)),
        ]
        with m.If(code_read.en):
            m.d.sync += place.eq(code_read.addr)
        with m.If(word.counts):
            m.d.sync += count.eq(target)
        with m.Elif(looping):
            m.d.sync += count.eq(count - 1)
        m.d.sync += looping.eq(stall)
        m.d.sync += finishing.eq(ending)
        with m.If(ending):
            m.d.sync += running.eq(0)
            with m.If((kind != CongestionKind.SENT) & (kind != START)):
                m.d.sync += kept_valid.eq(0)

        # The row: of a product only where the multiplier has a one.
        place_of_row = Signal(6)
        address = Signal(config.qp_bits + 6)
        m.d.comb += [
            place_of_row.eq(target[:6] & (~looping | unit.top).replicate(6)),
            address.eq(Mux(running, Cat(place_of_row, qp), Cat(table.word, table.index))),
            row_read.addr.eq(address),
        ]
        fields = []
        for row, value, low in (
            (Row.EVENT_UNITS, kept.units, UNITS),
            (Row.EVENT_RTT, kept.rtt, TICKS),
            (Row.EVENT_NOW, moment, TICKS),
            (Row.EVENT_SIZE, kept.size, BYTES),
            (Row.EVENT_SENT, sent.size, BYTES),
            (Row.EVENT_PENALTY, kept.penalty, 9),
        ):
            # Zero but in its cycle: a reset costs nothing, and a sum less than a multiplexer.
            shown = Signal(len(value), name=f"shown_{row.name.lower()}")
            with m.If(running & (place_of_row == row)):
                m.d.sync += shown.eq(value)
            with m.Else():
                m.d.sync += shown.eq(0)
            fields.append(Cat(Signal(low, name=f"below_{row.name.lower()}"), shown))
        given = row_read.data
        for value in fields:
            given = given | value
        m.d.comb += unit.row.eq(given[:ROW_BITS])

        # One cycle later: the sum.
        written = Signal(len(address))
        packets = Signal(3)
        store, clear = Signal(), Signal()
        host_data = Signal(ROW_BITS)
        m.d.comb += [
            unit.load_multiplier.eq(running & word.product & ~looping),
            unit.shift.eq(looping & ~word.quotient),
        ]
        m.d.sync += [written.eq(address), packets.eq(target[:3])]
        flags: list[tuple[Any, Any]] = [
            (unit.write, word.sums | looping),
            (unit.subtract, word.subtracts),
            (unit.positive, word.positive),
            (unit.not_positive, word.not_positive),
            (unit.take, word.takes),
            (unit.double, looping & (~last | word.quotient)),
            (unit.divide, looping & word.quotient),
            (unit.last, last),
            (unit.load_factor, word.factor),
            (unit.high, word.high),
            (store, word.stores),
            (clear, word.clears),
        ]
        with m.If(running):
            m.d.sync += [flag.eq(value) for flag, value in flags]
        with m.Else():
            m.d.sync += [flag.eq(0) for flag, _ in flags]
        m.d.comb += [
            unit.clear.eq(clear),
            row_write.addr.eq(written),
            row_write.data.eq(unit.store | host_data),
            row_write.en.eq(store | writing),
        ]
        with m.If(unit.write):
            m.d.sync += negative.eq(unit.negative)

        # The gate: packets beyond those handed over.
        m.d.comb += [
            gate.begin.eq(first),
            gate.qp.eq(qp),
            gate.starts.eq(kind == START),
            gate.sends.eq(kind == CongestionKind.SENT),
            gate.more.eq(unit.take & unit.negative),
            gate.packets.eq(packets),
            gate.end.eq(finishing),
            gate.start_qp.eq(start_qp),
            gate.restart.eq(take_start),
        ]

        # The host.
        m.d.comb += table.ready.eq(take_host)
        m.d.sync += [answering.eq(take_host), writing.eq(take_host & table.write)]
        with m.If(take_host & table.write):
            m.d.sync += host_data.eq(table.write_data)
        with m.Else():
            m.d.sync += host_data.eq(0)
        m.d.comb += [
            table.done.eq(answering),
            table.read_data.eq(row_read.data),
            gate.switch.eq(writing & (written[:6] == Row.ENABLED)),
            gate.switch_qp.eq(written[6:]),
            gate.switch_on.eq(host_data[0]),
        ]
        with m.If(gate.switch & host_data[0]):
            m.d.sync += [starting.eq(1), start_qp.eq(written[6:])]
        m.d.comb += self.idle.eq(
            free & ~starting & ~table.valid & ~kept_valid & ~queue.r_rdy & gate.idle & ~self.event.valid
        )
        return m
