"""An engine with all ports of the NIC and simple insides, to test what surrounds the engine.

* Frames that arrive on plane p leave on plane p + 1 through a FIFO; a frame marked bad loses its mark but
  gets 0xBD into lane 0 of its last beat, so that tests see it.
* Registers: 0x00 magic, 0x04 scratch, 0x08 copies started, 0x0C low 32 bits of the tick at the last write of
  scratch, 0x10 source, 0x14 destination, 0x18 beats (a write starts the copy), 0x1C response codes of the
  last copy (read, then write), 0x20 deadline in ticks from now (a write arms it; when it fires, a frame of
  one beat leaves on plane 0), 0x24 link state. Others answer SLVERR.
"""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from mrc_rtl.config import NicConfig
from mrc_rtl.records import trace_record
from mrc_rtl.stream import Axi4ReadSignature, Axi4WriteSignature, AxiLiteSignature, PacketStream

MAGIC = 0x4D524300
SCRATCH, COPIES, STAMP, SOURCE, DESTINATION, BEATS, RESPONSES, DEADLINE, LINKS = range(4, 0x28, 4)


class StandIn(wiring.Component):
    """See the module's text. Parameters and ports are those of the engine."""

    def __init__(self, config: NicConfig):
        self.config = config
        width = config.data_width
        members = {
            "now": In(48),
            "quiescent": Out(1),
            "next_deadline": Out(32),
            "deadline_valid": Out(1),
            "event_waiting": Out(1),
            "control": In(AxiLiteSignature(16)),
            "memory_read": Out(Axi4ReadSignature(width, config.address_width, 4)),
            "memory_write": Out(Axi4WriteSignature(width, config.address_width, 4)),
            "link_up": In(config.planes),
        }
        for plane in range(config.planes):
            members[f"transmit_{plane}"] = Out(PacketStream(width))
            members[f"receive_{plane}"] = In(PacketStream(width))
        if config.trace:
            members["trace"] = Out(stream.Signature(trace_record(config)))
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        lanes = self.config.data_bytes
        deadline, armed = Signal(32), Signal()
        fire = armed & ((self.now[16:] - deadline)[:32].as_signed() >= 0)
        m.d.comb += [self.next_deadline.eq(deadline), self.deadline_valid.eq(armed)]

        busy = Signal(self.config.planes)
        for plane in range(self.config.planes):
            source = getattr(self, f"receive_{plane}")
            queue = fifo.SyncFIFOBuffered(width=9 * lanes + 1, depth=1024)
            m.submodules[f"queue_{plane}"] = queue
            data = Signal.like(source.tdata)
            m.d.comb += [
                data.eq(source.tdata),
                source.tready.eq(1),
                queue.w_en.eq(source.tvalid),
                queue.w_data.eq(Cat(data, source.tkeep, source.tlast)),
                busy[plane].eq(queue.r_rdy | queue.w_level.any()),
            ]
            with m.If(source.tlast & source.tuser):
                m.d.comb += data[:8].eq(0xBD)
            sink = getattr(self, f"transmit_{(plane + 1) % self.config.planes}")
            m.d.comb += [
                Cat(sink.tdata, sink.tkeep, sink.tlast).eq(queue.r_data),
                sink.tvalid.eq(queue.r_rdy),
                queue.r_en.eq(sink.tready),
            ]
            if plane == self.config.planes - 1:
                # The alarm frame goes between frames of the queue that ends at plane 0.
                inside, alarm = Signal(), Signal()
                with m.If(fire & ~alarm):
                    m.d.sync += [alarm.eq(1), armed.eq(0)]
                with m.If(sink.tvalid & sink.tready):
                    m.d.sync += inside.eq(~sink.tlast)
                with m.If(alarm & ~inside):
                    m.d.comb += [
                        sink.tdata.eq(Cat(self.now, deadline)),
                        sink.tkeep.eq(Const(-1, lanes)),
                        sink.tlast.eq(1),
                        sink.tvalid.eq(1),
                        queue.r_en.eq(0),
                    ]
                    with m.If(sink.tready):
                        m.d.sync += alarm.eq(0)

        copying = self._copy(m)
        self._registers(m, deadline, armed, copying)
        m.d.comb += self.quiescent.eq(~busy.any() & ~alarm & ~copying & ~self._answering)
        if self.config.trace:
            beat = self.transmit_0
            m.d.comb += [
                self.trace.valid.eq(beat.tvalid & beat.tready & beat.tlast),
                self.trace.payload.kind.eq(1),
                self.trace.payload.psn.eq(beat.tdata[:24]),
                self.trace.payload.detail.eq(self.now),
            ]
        return m

    def _copy(self, m):
        """Read beats and write them elsewhere, in bursts of 16 beats, at the end of 1."""
        read, write = self.memory_read, self.memory_write
        lanes = self.config.data_bytes
        self._source, self._destination, self._beats = Signal(32), Signal(32), Signal(16)
        self._start, self._copies, self._responses = Signal(), Signal(32), Signal(32)
        read_at, write_at = Signal(32), Signal(32)
        burst, left, running = Signal(range(17)), Signal(16), Signal()
        read_sent, write_sent, received, beats_sent = Signal(), Signal(), Signal(5), Signal(5)
        queue = m.submodules.copy_queue = fifo.SyncFIFOBuffered(width=8 * lanes, depth=16)
        size = lanes.bit_length() - 1
        m.d.comb += [
            read.arid.eq(1), read.araddr.eq(read_at), read.arlen.eq(burst - 1), read.arsize.eq(size),
            read.arburst.eq(1), read.arvalid.eq(running & ~read_sent),
            read.rready.eq(queue.w_rdy), queue.w_en.eq(read.rvalid), queue.w_data.eq(read.rdata),
            write.awid.eq(2), write.awaddr.eq(write_at), write.awlen.eq(burst - 1), write.awsize.eq(size),
            write.awburst.eq(1), write.awvalid.eq(running & ~write_sent),
            write.wdata.eq(queue.r_data), write.wstrb.eq(Const(-1, lanes)),
            write.wlast.eq(beats_sent == burst - 1),
            write.wvalid.eq(queue.r_rdy), queue.r_en.eq(write.wready), write.bready.eq(1),
        ]  # fmt: skip
        with m.If(self._start):
            m.d.sync += [
                running.eq(1), left.eq(self._beats), read_at.eq(self._source), write_at.eq(self._destination),
                burst.eq(0), self._copies.eq(self._copies + 1), self._responses.eq(0),
            ]  # fmt: skip
        with m.If(running & (burst == 0)):
            m.d.sync += [read_sent.eq(0), write_sent.eq(0), received.eq(0), beats_sent.eq(0)]
            with m.If(left == 0):
                m.d.sync += running.eq(0)
            with m.Else():
                m.d.sync += burst.eq(1)
                with m.If(left >= 16):
                    m.d.sync += burst.eq(16)
        # A burst of 0 beats means that the next one is chosen; the valid signals wait for that.
        with m.If(burst == 0):
            m.d.comb += [read.arvalid.eq(0), write.awvalid.eq(0)]
        with m.If(read.arvalid & read.arready):
            m.d.sync += read_sent.eq(1)
        with m.If(write.awvalid & write.awready):
            m.d.sync += write_sent.eq(1)
        with m.If(read.rvalid & read.rready):
            m.d.sync += self._responses[:4].eq(self._responses[:4] | read.rresp)
        with m.If(write.wvalid & write.wready):
            m.d.sync += beats_sent.eq(beats_sent + 1)
        with m.If(write.bvalid):
            m.d.sync += [
                self._responses[4:8].eq(self._responses[4:8] | write.bresp), left.eq(left - burst),
                read_at.eq(read_at + burst * lanes), write_at.eq(write_at + burst * lanes), burst.eq(0),
            ]  # fmt: skip
        return running | self._start

    def _registers(self, m, deadline, armed, copying):
        bus = self.control
        scratch, stamp = Signal(32), Signal(32)
        take = Signal()
        self._answering = bus.bvalid | bus.rvalid
        values = {
            0: Const(MAGIC, 32), SCRATCH: scratch, COPIES: self._copies, STAMP: stamp, SOURCE: self._source,
            DESTINATION: self._destination, BEATS: self._beats, RESPONSES: self._responses,
            DEADLINE: deadline, LINKS: self.link_up,
        }  # fmt: skip
        m.d.comb += [
            take.eq(bus.awvalid & bus.wvalid & ~bus.bvalid & ~copying),
            bus.awready.eq(take), bus.wready.eq(take), bus.arready.eq(~bus.rvalid),
        ]  # fmt: skip
        m.d.sync += self._start.eq(0)
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        with m.If(take):
            m.d.sync += [bus.bvalid.eq(1), bus.bresp.eq(0)]
            with m.Switch(bus.awaddr):
                with m.Case(SCRATCH):
                    m.d.sync += [scratch.eq(bus.wdata), stamp.eq(self.now[16:])]
                with m.Case(SOURCE):
                    m.d.sync += self._source.eq(bus.wdata)
                with m.Case(DESTINATION):
                    m.d.sync += self._destination.eq(bus.wdata)
                with m.Case(BEATS):
                    m.d.sync += [self._beats.eq(bus.wdata), self._start.eq(1)]
                with m.Case(DEADLINE):
                    m.d.sync += [deadline.eq(self.now[16:] + bus.wdata), armed.eq(1)]
                with m.Default():
                    m.d.sync += bus.bresp.eq(2)
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [bus.rvalid.eq(1), bus.rresp.eq(2), bus.rdata.eq(0)]
            with m.Switch(bus.araddr):
                for address, value in values.items():
                    with m.Case(address):
                        m.d.sync += [bus.rdata.eq(value), bus.rresp.eq(0)]
