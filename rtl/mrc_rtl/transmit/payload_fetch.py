"""Reads the payload of data packets from host memory into slots, ahead of the decision how they leave."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records, tables
from ..config import NicConfig
from ..requester.records import ready_slot, slot_packet
from ..stream import Axi4ReadSignature

__all__ = ["PayloadFetch", "fetch_request", "slot_bits", "slot_record"]

#: AXI4: bursts stay inside 4 KiB and have at most 256 beats. Both hold when none crosses a multiple of the
#: smaller of the two.
_BOUNDARY_BYTES = 4096
_LONGEST_BURST = 256


def slot_bits(config: NicConfig) -> int:
    """Bits of a slot number."""
    return max(1, (config.transmit_slots - 1).bit_length())


def fetch_request(config: NicConfig) -> data.StructLayout:
    """A packet to fetch: ``bus_address`` is the AXI address of its first payload byte."""
    return data.StructLayout(
        {"bus_address": config.address_width, "descriptor": records.transmit_descriptor(config)}
    )


def slot_record(config: NicConfig) -> data.StructLayout:
    """A slot that is no longer read."""
    return data.StructLayout({"slot": slot_bits(config)})


class PayloadFetch(wiring.Component):
    """Reads payloads over AXI4 into a pool of slots; several reads are outstanding.

    A request takes a free slot, is handed on with its number, and becomes one or more bursts. Read data come
    back in order; they are shifted so that the first payload byte lands in lane 0 of the slot's first beat,
    and lanes behind the last payload byte become zero, so that the pad of a frame is there already. One beat
    is taken per cycle; an unaligned source costs one cycle more. Packets become ready in the order of their
    requests; a packet of which a beat came with an error never does: its QP is reported and its slot is free
    again.

    Parameters
    ----------
    config : NicConfig
    id_width : int
        Width of the AXI identifier, which is always 0.

    Members
    -------
    fetch : In(stream of :func:`fetch_request`)
        ``descriptor.length`` is 0 to the MTU.
    axi : Out(Axi4ReadSignature)
    packet : Out(stream of :func:`mrc_rtl.requester.records.slot_packet`)
        The request's descriptor and slot; the request is taken only after it. A packet whose read fails never
        becomes ready, and its slot is handed on with another packet later.
    ready : Out(stream of :func:`mrc_rtl.requester.records.ready_slot`)
        The payload of the packet in this slot is complete.
    read_slot, read_beat : In
        Address of a beat in the slots.
    read_data : Out(data_width)
        That beat, one cycle later.
    free : In(stream of :func:`slot_record`)
        Taken in any order and in every cycle.
    error : Out(stream of :func:`mrc_rtl.records.qp_error`)
        Reason LOCAL_READ.
    counter : Out(stream of :func:`mrc_rtl.records.counter_event`)
        READ_ERRORS, one per packet of which a beat came with an error.
    idle : Out(1)
        All slots are free and no request waits.

    Source: design.md 4, rule 13; AXI4 (ARM IHI 0022) A3.4.1 for the burst limits.
    """

    def __init__(self, config: NicConfig, *, id_width: int = 1) -> None:
        self._config = config
        super().__init__(
            {
                "fetch": In(stream.Signature(fetch_request(config))),
                "axi": Out(Axi4ReadSignature(config.data_width, config.address_width, id_width)),
                "packet": Out(stream.Signature(slot_packet(config))),
                "ready": Out(stream.Signature(ready_slot(config))),
                "read_slot": In(slot_bits(config)),
                "read_beat": In(range(config.mtu // config.data_bytes)),
                "read_data": Out(config.data_width),
                "free": In(stream.Signature(slot_record(config))),
                "error": Out(stream.Signature(records.qp_error(config))),
                "counter": Out(stream.Signature(records.counter_event(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        lanes = config.data_bytes
        lane_bits = (lanes - 1).bit_length()
        slots = config.transmit_slots
        # A power of two.
        burst_beats = min(_LONGEST_BURST, _BOUNDARY_BYTES // lanes)
        burst_bits = (burst_beats - 1).bit_length()
        # Number of the last beat of a read: an unaligned one may have one beat more than the slot.
        beat_bits = (config.mtu // lanes).bit_length()

        # Packets in order of their requests: a ring with one entry more than needed for none or all slots.
        # ``turn``: lane of the first payload byte, less one; ``tail``: valid bytes of the last beat in the
        # slot, 0 for all; ``spill``: that beat is complete only after the last beat read, which completed the
        # one before.
        read_layout = data.StructLayout(
            {
                "slot": slot_bits(config),
                "qp": config.qp_bits,
                "turn": lane_bits,
                "tail": lane_bits,
                "empty": 1,
                "spill": 1,
                "last_beat": beat_bits,
            }
        )
        m.submodules.reads = reads = Memory(shape=read_layout, depth=slots, init=[])
        ring_bits = slot_bits(config)
        requested = Signal(ring_bits + 1)
        fetched = Signal(ring_bits + 1)
        handed = Signal(ring_bits + 1)
        failed = Signal(slots)
        ring_full = Signal()
        m.d.comb += ring_full.eq(requested == handed ^ slots)

        # Free slots, lowest first; the next one is chosen ahead and does not change while a request uses it.
        free_slots = Signal(slots, init=(1 << slots) - 2)
        slot = Signal(slot_bits(config))
        slot_there = Signal(init=1)
        chosen = Signal(slots)
        accept = Signal()
        released = Signal(slots)
        m.d.comb += self.free.ready.eq(1)
        with m.If(self.free.valid):
            m.d.comb += released.bit_select(self.free.payload.slot, 1).eq(1)
        with m.If(accept):
            m.d.sync += slot_there.eq(0)
        with m.Elif(~slot_there & free_slots.any()):
            m.d.comb += chosen.eq(free_slots & -free_slots)
            m.d.sync += slot_there.eq(1)
            for number in reversed(range(slots)):
                with m.If(free_slots[number]):
                    m.d.sync += slot.eq(number)

        # A request is handed on before it is taken, while the one before may still become bursts.
        request = self.fetch.payload
        handed_on = Signal()
        with m.If(accept):
            m.d.sync += handed_on.eq(0)
        with m.Elif(self.packet.valid & self.packet.ready):
            m.d.sync += handed_on.eq(1)
        bursting = Signal()
        ending = Signal()
        m.d.comb += [
            self.packet.valid.eq(self.fetch.valid & slot_there & ~ring_full & ~handed_on),
            self.packet.payload.slot.eq(slot),
            self.packet.payload.descriptor.eq(request.descriptor),
            self.fetch.ready.eq(
                (handed_on | self.packet.valid & self.packet.ready) & (~bursting & ~self.axi.arvalid | ending)
            ),
            accept.eq(self.fetch.valid & self.fetch.ready),
        ]

        # Requests become bursts. ``left``: beats that remain, less one.
        length = request.descriptor.length
        offset = request.bus_address[:lane_bits]
        empty = Signal()
        over = Signal(lane_bits + 2)  # bytes of the last beats, less one; negative for none
        left = Signal(beat_bits)
        last_beat = Signal(beat_bits)
        row = Signal(config.address_width - lane_bits)
        reach = Signal(max(beat_bits, burst_bits) + 1)
        beyond = Signal()
        last_burst = Signal()
        low_row = row[:burst_bits]
        m.d.comb += [
            empty.eq(length == 0),
            over.eq(length[:lane_bits] + offset - 1),
            last_beat.eq(length[lane_bits:] + over[lane_bits:].as_signed()),
            reach.eq(left + low_row),
            beyond.eq(reach[burst_bits:].any()),
            self.axi.arsize.eq(lane_bits),
            self.axi.arburst.eq(1),
            ending.eq(self.axi.arvalid & self.axi.arready & last_burst),
        ]
        with m.If(bursting & ~self.axi.arvalid):
            m.d.sync += [
                self.axi.araddr.eq(Cat(Const(0, lane_bits), row)),
                self.axi.arlen.eq(Mux(beyond, ~low_row, left)),
                self.axi.arvalid.eq(1),
                last_burst.eq(~beyond),
                bursting.eq(beyond),
                left.eq(Cat(reach[:burst_bits], reach[burst_bits:] - 1)),
                row.eq(Cat(Const(0, burst_bits), row[burst_bits:] + 1)),
            ]
        with m.If(self.axi.arvalid & self.axi.arready):
            m.d.sync += self.axi.arvalid.eq(0)
        reads_write = reads.write_port()
        new = reads_write.data
        m.d.comb += [
            reads_write.en.eq(accept),
            reads_write.addr.eq(requested),
            new.slot.eq(slot),
            new.qp.eq(request.descriptor.qp),
            new.turn.eq(offset - 1),
            new.tail.eq(length),
            new.empty.eq(empty),
            # Of an unaligned read as many beats as the slot has.
            new.spill.eq((offset != 0) & (length[:lane_bits] != 0) & ~over[lane_bits]),
            new.last_beat.eq(last_beat),
        ]
        with m.If(accept):
            m.d.sync += [
                row.eq(request.bus_address[lane_bits:]),
                left.eq(last_beat),
                bursting.eq(~empty),
                requested.eq(requested + 1),
            ]

        self._receive(m, reads.read_port(domain="comb"), requested, fetched, failed)

        # In order: a packet is handed over, or reported and forgotten.
        entry = reads.read_port(domain="comb")
        head_there = Signal()
        head_failed = Signal()
        m.d.comb += [
            entry.addr.eq(handed),
            head_there.eq(handed != fetched),
            head_failed.eq(failed.bit_select(handed[:ring_bits], 1)),
            self.ready.valid.eq(head_there & ~head_failed),
            self.ready.payload.slot.eq(entry.data.slot),
            self.ready.payload.qp.eq(entry.data.qp),
            self.error.valid.eq(head_there & head_failed & ~self.counter.valid),
            self.error.payload.qp.eq(entry.data.qp),
            self.error.payload.reason.eq(tables.QpErrorReason.LOCAL_READ),
            self.counter.payload.index.eq(
                config.planes * records.PORT_COUNTERS + records.GlobalCounter.READ_ERRORS
            ),
        ]
        returned = Signal(slots)
        reported = self.error.valid & self.error.ready
        with m.If(self.counter.ready):
            m.d.sync += self.counter.valid.eq(0)
        with m.If(reported):
            m.d.comb += returned.bit_select(entry.data.slot, 1).eq(1)
            m.d.sync += self.counter.valid.eq(1)
        with m.If(head_there & Mux(head_failed, reported, self.ready.ready)):
            m.d.sync += handed.eq(handed + 1)
        m.d.sync += free_slots.eq(free_slots & ~chosen | released | returned)
        m.d.comb += self.idle.eq(
            slot_there
            & (free_slots | (1 << slot)[:slots]).all()
            & (requested == handed)
            & ~self.fetch.valid
            & ~self.counter.valid
        )
        return m

    def _receive(
        self, m: Module, entry: wiring.PureInterface, requested: Signal, fetched: Signal, failed: Signal
    ) -> None:
        """Build the path of read data: shift over two beats, cut behind the end, write to the slot.

        The window of a slot beat begins at byte ``turn + 1`` of the beat before and this one; an aligned read
        takes this beat alone. The upper two bits of ``turn`` select one of four windows, each in a register
        that is zero unless it is the one, so that their sum is all it takes; a shifter does the rest.
        """
        config = self._config
        lanes = config.data_bytes
        lane_bits = (lanes - 1).bit_length()
        slot_rows = config.mtu // lanes
        row_bits = (slot_rows - 1).bit_length()
        ring_bits = slot_bits(config)
        m.submodules.slots = memory = Memory(
            shape=config.data_width, depth=config.transmit_slots * slot_rows, init=[]
        )
        read_port = memory.read_port()
        write_port = memory.write_port()
        m.d.comb += [
            read_port.addr.eq(Cat(self.read_beat, self.read_slot)),
            self.read_data.eq(read_port.data),
        ]

        # First stage: count, select.
        arriving = Signal(ring_bits + 1)
        beat = Signal(entry.data.last_beat.shape())
        wrong = Signal()
        current = entry.data
        m.d.comb += entry.addr.eq(arriving)
        waiting = Signal()
        last = Signal()
        taken = Signal()
        flush = Signal()
        m.d.comb += [
            waiting.eq(arriving != requested),
            last.eq(beat == current.last_beat),
            self.axi.rready.eq(waiting & ~current.empty & ~flush),
            taken.eq(self.axi.rvalid & self.axi.rready),
        ]
        before = Signal(config.data_width)
        slot = Signal(ring_bits)
        skip = Signal()  # the first beat of an unaligned read completes none
        left = Signal(lane_bits)
        there = Signal()
        ended = Signal()
        step = lanes // 4
        step_bits = (step - 1).bit_length()
        taken_turn = Signal(lane_bits)
        turn = Signal(lane_bits)
        m.d.comb += turn.eq(Mux(flush, taken_turn, current.turn))
        both = Cat(before, self.axi.rdata)
        windows = []
        for number in range(4):
            window = Signal(8 * (lanes + step - 1), name=f"window{number}", reset_less=True)
            with m.If(turn[step_bits:] == number):
                m.d.sync += window.eq(both[8 * (step * number + 1) :])
            with m.Else():
                m.d.sync += window.eq(0)
            windows.append(window)
        m.d.sync += [there.eq(taken), ended.eq(0), flush.eq(0)]
        finished = Signal()
        m.d.comb += finished.eq(taken & last | waiting & ~flush & current.empty)
        with m.If(taken):
            m.d.sync += [
                before.eq(self.axi.rdata),
                taken_turn.eq(current.turn),
                skip.eq(~current.turn.all() & (beat == 0)),
                slot.eq(current.slot),
                left.eq(current.tail),
                beat.eq(beat + 1),
                wrong.eq(wrong | self.axi.rresp[1]),
            ]
        with m.If(finished):
            m.d.sync += [
                beat.eq(0),
                wrong.eq(0),
                arriving.eq(arriving + 1),
                failed.bit_select(arriving[:ring_bits], 1).eq(taken & (wrong | self.axi.rresp[1])),
                ended.eq(1),
                # The last beat ends one slot beat and begins another, which then takes a cycle of its own.
                flush.eq(taken & current.spill),
            ]

        # Second stage: shift and write; a packet is fetched when its last beat is in the memory.
        flushing = Signal()
        m.d.sync += flushing.eq(flush)
        write_beat = Signal(row_bits)
        complete = Signal()
        whole = Signal()
        m.d.comb += [
            complete.eq(flushing | ended & ~flush),
            whole.eq(~complete | (left == 0)),
        ]
        value = windows[0] | windows[1] | windows[2] | windows[3]
        for stage in reversed(range(step_bits)):
            width = 8 * (lanes + (1 << stage) - 1)
            shifted = Signal(width, name=f"shifted{stage}")
            m.d.comb += shifted.eq(Mux(taken_turn[stage], value[8 << stage :], value))
            value = shifted
        kept = Cat((whole | (lane < left)).replicate(8) for lane in range(lanes))
        m.d.comb += [
            write_port.en.eq(flushing | there & ~skip),
            write_port.addr.eq(Cat(write_beat, slot)),
            write_port.data.eq(value & kept),
        ]
        with m.If(complete):
            m.d.sync += [fetched.eq(fetched + 1), write_beat.eq(0)]
        with m.Elif(write_port.en):
            m.d.sync += write_beat.eq(write_beat + 1)
