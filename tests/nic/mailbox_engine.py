"""An engine with the real registers and simple insides, to test the driver, the device API and the runner.

Tables are plain memories. A send doorbell transmits the QP's header template, 128 bytes, on plane QP mod 2.
A received frame writes a completion into queue 0: RECEIVE_IMM with the frame's first 8 bytes as wr_id. A
doorbell of QP 3 raises the event REMOTE_ACCESS instead.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import fifo, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from mrc_rtl.config import QP_NUMBER_BASE, NicConfig
from mrc_rtl.csr import CsrBlock
from mrc_rtl.stream import Axi4ReadSignature, Axi4WriteSignature, AxiLiteSignature, PacketStream
from mrc_rtl.tables import TEMPLATE_WORDS, EventKind, QpErrorReason, TableId, WorkRequestOpcode

ENTRIES_LOG2 = 4
EVENT_QP = 3


class MailboxEngine(wiring.Component):
    """See the module's text. Parameters and ports are those of the engine, 64 bit and 2 planes."""

    def __init__(self, config: NicConfig):
        assert config.data_width == 64 and config.planes == 2
        self.config = config
        members = {
            "now": In(48),
            "quiescent": Out(1),
            "next_deadline": Out(32),
            "deadline_valid": Out(1),
            "event_waiting": Out(1),
            "control": In(AxiLiteSignature(16)),
            "memory_read": Out(Axi4ReadSignature(64, config.address_width, 4)),
            "memory_write": Out(Axi4WriteSignature(64, config.address_width, 4)),
            "link_up": In(config.planes),
        }
        for plane in range(config.planes):
            members[f"transmit_{plane}"] = Out(PacketStream(64))
            members[f"receive_{plane}"] = In(PacketStream(64))
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.csr = csr = CsrBlock(self.config)
        wiring.connect(m, wiring.flipped(self.control), csr.control)
        m.d.comb += [
            csr.link_up.eq(self.link_up),
            csr.consumer.ready.eq(1),
            csr.receive_doorbell.ready.eq(1),
            self.event_waiting.eq(csr.event_waiting),
        ]
        m.d.comb += self.event_waiting.eq(csr.event_waiting)
        second = {
            table: self._table(m, table, getattr(csr, f"table_{table.name.lower()}")) for table in TableId
        }

        sending = self._send(m, csr, second[TableId.TEMPLATE])
        completing = self._complete(m, second[TableId.COMPLETION_QUEUE])
        m.d.comb += self.quiescent.eq(csr.idle & ~sending & ~completing)
        return m

    def _table(self, m, table, bus):
        memory = Memory(shape=64, depth=2048, init=[])
        m.submodules[f"memory_{table.name.lower()}"] = memory
        write, read, second = memory.write_port(), memory.read_port(), memory.read_port()
        pending = Signal(name=f"pending_{table.name.lower()}")
        address = Cat(bus.word, bus.index[:7])
        m.d.comb += [
            bus.ready.eq(~pending), bus.done.eq(pending), bus.read_data.eq(read.data),
            read.addr.eq(address), write.addr.eq(address), write.data.eq(bus.write_data),
            write.en.eq(bus.valid & bus.ready & bus.write),
        ]  # fmt: skip
        m.d.sync += pending.eq(bus.valid & bus.ready)
        return second

    def _send(self, m, csr, template):
        qp, word, running, fetched = Signal(8), Signal(range(TEMPLATE_WORDS + 1)), Signal(), Signal()
        bell = csr.send_doorbell
        is_event = bell.payload.qp == EVENT_QP
        m.d.comb += [
            bell.ready.eq(~running),
            csr.event.valid.eq(bell.valid & bell.ready & is_event),
            csr.event.payload.kind.eq(EventKind.QP_ERROR),
            csr.event.payload.reason.eq(QpErrorReason.REMOTE_ACCESS),
            csr.event.payload.qp.eq(bell.payload.qp),
            template.addr.eq(Cat(word[:4], qp[:7])),
        ]
        with m.If(bell.valid & bell.ready & ~is_event):
            m.d.sync += [qp.eq(bell.payload.qp), word.eq(0), running.eq(1), fetched.eq(0)]
        sinks = [self.transmit_0, self.transmit_1]
        for number, sink in enumerate(sinks):
            m.d.comb += [
                sink.tvalid.eq(running & fetched & (qp[0] == number)),
                sink.tdata.eq(template.data),
                sink.tkeep.eq(0xFF),
                sink.tlast.eq(word == TEMPLATE_WORDS - 1),
            ]
        with m.If(running & ~fetched):
            m.d.sync += fetched.eq(1)
        with m.If(running & fetched & Array(sink.tready for sink in sinks)[qp[0]]):
            m.d.sync += [fetched.eq(0), word.eq(word + 1)]
            with m.If(word == TEMPLATE_WORDS - 1):
                m.d.sync += running.eq(0)
        return running | bell.valid

    def _complete(self, m, queue_entry):
        waiting, levels = [], []
        for number, source in enumerate((self.receive_0, self.receive_1)):
            queue = fifo.SyncFIFOBuffered(width=64, depth=64)
            m.submodules[f"received_{number}"] = queue
            inside, first = Signal(name=f"inside_{number}"), Signal(64, name=f"first_{number}")
            with m.If(source.tvalid):
                m.d.sync += inside.eq(~source.tlast)
                with m.If(~inside):
                    m.d.sync += first.eq(source.tdata)
            m.d.comb += [
                source.tready.eq(1),
                queue.w_en.eq(source.tvalid & source.tlast & inside),
                queue.w_data.eq(first),
            ]
            waiting.append(queue)
            levels += [queue.r_rdy, queue.w_level.any(), inside]
        bus = self.memory_write
        produced, beat = Signal(24), Signal(3)
        running, addressed, choice = Signal(), Signal(), Signal()
        wr_id, base = Signal(64), Signal(64)
        m.d.comb += [queue_entry.addr.eq(0), base.eq(queue_entry.data)]
        with m.If(~running):
            m.d.sync += choice.eq(~waiting[0].r_rdy)
            with m.If(waiting[0].r_rdy | waiting[1].r_rdy):
                m.d.sync += [
                    running.eq(1), beat.eq(0), addressed.eq(0),
                    wr_id.eq(Mux(waiting[0].r_rdy, waiting[0].r_data, waiting[1].r_data)),
                ]  # fmt: skip
                m.d.comb += [
                    waiting[0].r_en.eq(1), waiting[1].r_en.eq(~waiting[0].r_rdy)
                ]  # fmt: skip
        number = Const(QP_NUMBER_BASE | WorkRequestOpcode.RECEIVE_IMM << 24, 64)
        phase = Cat(Const(0, 63), ~produced[ENTRIES_LOG2])
        m.d.comb += [
            bus.awaddr.eq(base + (produced[:ENTRIES_LOG2] << 5)), bus.awlen.eq(3), bus.awsize.eq(3),
            bus.awburst.eq(1), bus.awvalid.eq(running & ~addressed),
            bus.wdata.eq(Array([wr_id, Const(0, 64), number, phase])[beat[:2]]), bus.wstrb.eq(0xFF),
            bus.wlast.eq(beat == 3), bus.wvalid.eq(running & (beat < 4)), bus.bready.eq(1),
        ]  # fmt: skip
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += addressed.eq(1)
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += beat.eq(beat + 1)
        with m.If(bus.bvalid):
            m.d.sync += [running.eq(0), produced.eq(produced + 1)]
        return running | Cat(levels).any()
