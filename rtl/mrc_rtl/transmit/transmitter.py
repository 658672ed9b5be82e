"""From plans to frames on the ports."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import NicConfig
from ..paths.images import image_word_bits
from ..records import PORT_COUNTERS, PortCounter
from ..stream import PacketStream, TableBus
from .header_builder import HeaderBuilder
from .icrc_insert import IcrcInsert
from .payload_fetch import slot_bits, slot_record
from .port_arbiter import PortArbiter

__all__ = ["Transmitter"]

#: Frames whose counter events may wait; further frames wait for them.
_EVENTS = 8


class Transmitter(wiring.Component):
    """Header builder, ICRC insertion and plane FIFOs, and the counters of what was sent.

    Every frame counts as TX_FRAMES and as one of TX_DATA (first transmission), TX_RETRANSMISSIONS and
    TX_CONTROL. No count is lost: a frame waits while its event finds no place.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    plan : In(stream of :func:`mrc_rtl.records.transmit_plan`)
        Waits until its plane has room.
    room : Out(planes)
        A further plan for the plane may be made; a plan on offer is counted already.
    table : In(TableBus)
        Templates.
    settings : In(:func:`mrc_rtl.records.settings`)
    image_read, image_row, image_word, image_data, image_done, image_done_row
        As in :class:`mrc_rtl.paths.bind.Bind`, seen from here.
    read_slot, read_beat, read_data, free
        As in :class:`PayloadFetch`, seen from here.
    ports : Out(PacketStream), one per plane
    counter : Out(stream of :func:`mrc_rtl.records.counter_event`)
    idle : Out(1)
        No plan waits, no frame is on its way, no count is on its way.

    Source: design.md 4; hardware.md 3 for the interval between packets.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "plan": In(stream.Signature(records.transmit_plan(config))),
                "room": Out(config.planes),
                "table": In(TableBus()),
                "settings": In(records.settings(config)),
                "image_read": Out(1),
                "image_row": Out(records.image_row_bits(config)),
                "image_word": Out(image_word_bits(config)),
                "image_data": In(config.data_width),
                "image_done": Out(1),
                "image_done_row": Out(records.image_row_bits(config)),
                "read_slot": Out(slot_bits(config)),
                "read_beat": Out(range(config.mtu // config.data_bytes)),
                "read_data": In(config.data_width),
                "free": Out(stream.Signature(slot_record(config))),
                "ports": Out(PacketStream(config.data_width)).array(config.planes),
                "counter": Out(stream.Signature(records.counter_event(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.header_builder = builder = HeaderBuilder(config)
        m.submodules.icrc = icrc = IcrcInsert(config.data_width, tag_bits=records.plane_bits(config))
        m.submodules.port_arbiter = arbiter = PortArbiter(config)
        wiring.connect(m, wiring.flipped(self.plan), builder.plan)
        wiring.connect(m, wiring.flipped(self.table), builder.table)
        wiring.connect(m, builder.free, wiring.flipped(self.free))
        wiring.connect(m, builder.frame, icrc.sink)
        wiring.connect(m, icrc.source, arbiter.frame)
        for plane in range(config.planes):
            wiring.connect(m, arbiter.ports[plane], wiring.flipped(self.ports[plane]))

        plan = self.plan.payload
        bound = Signal()
        counted = Signal()
        m.d.comb += [
            builder.settings.eq(self.settings),
            self.read_slot.eq(builder.read_slot),
            self.read_beat.eq(builder.read_beat),
            builder.read_data.eq(self.read_data),
            self.image_read.eq(builder.image_read),
            self.image_row.eq(builder.image_row),
            self.image_word.eq(builder.image_word),
            builder.image_data.eq(self.image_data),
            self.image_done.eq(builder.image_done),
            self.image_done_row.eq(builder.image_done_row),
            icrc.srv6.eq(builder.frame_srv6),
            icrc.sink_tag.eq(builder.frame_plane),
            arbiter.frame_plane.eq(icrc.source_tag),
            arbiter.waiting.eq(self.plan.valid & ~plan.discard),
            arbiter.waiting_plane.eq(plan.plane),
            arbiter.bound.eq(bound),
            arbiter.bound_plane.eq(plan.plane),
            bound.eq(self.plan.valid & self.plan.ready & ~plan.discard),
            self.room.eq(arbiter.room),
            builder.allow.eq(arbiter.fits.bit_select(plan.plane, 1) & counted),
            self.idle.eq(builder.idle & icrc.idle & arbiter.idle & ~self.counter.valid),
        ]

        # One entry per frame: it leaves as two events.
        kinds = (PortCounter.TX_DATA, PortCounter.TX_RETRANSMISSIONS, PortCounter.TX_CONTROL)
        entry = data.StructLayout({"plane": records.plane_bits(config), "kind": range(len(kinds))})
        m.submodules.events = events = Memory(shape=entry, depth=_EVENTS, init=[])
        write_port = events.write_port()
        read_port = events.read_port(domain="comb")
        written = Signal(range(2 * _EVENTS))
        read = Signal(range(2 * _EVENTS))
        second = Signal()
        code = Signal(range(PORT_COUNTERS))
        m.d.comb += [
            counted.eq(written != read ^ _EVENTS),
            write_port.en.eq(bound),
            write_port.addr.eq(written),
            write_port.data.plane.eq(plan.plane),
            write_port.data.kind.eq(Mux(plan.data, plan.retransmission, 2)),
            read_port.addr.eq(read),
            code.eq(PortCounter.TX_FRAMES),
            self.counter.valid.eq(read != written),
            self.counter.payload.index.eq(read_port.data.plane * PORT_COUNTERS + code),
        ]
        with m.If(second), m.Switch(read_port.data.kind):
            for number, kind in enumerate(kinds):
                with m.Case(number):
                    m.d.comb += code.eq(kind)
        with m.If(bound):
            m.d.sync += written.eq(written + 1)
        with m.If(self.counter.valid & self.counter.ready):
            m.d.sync += [second.eq(~second), read.eq(read + second)]
        return m
