"""Reads the payload of data packets from host memory into slots, ahead of the decision how they leave."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records, tables
from ..config import NicConfig
from ..stream import Axi4ReadSignature

__all__ = ["PayloadFetch", "fetch_request", "fetched_packet", "slot_bits", "slot_record"]

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


def fetched_packet(config: NicConfig) -> data.StructLayout:
    """A packet whose payload is in its slot."""
    return data.StructLayout({"slot": slot_bits(config), "descriptor": records.transmit_descriptor(config)})


def slot_record(config: NicConfig) -> data.StructLayout:
    """A slot that is no longer read."""
    return data.StructLayout({"slot": slot_bits(config)})


class PayloadFetch(wiring.Component):
    """Reads payloads over AXI4 into a pool of slots; several reads are outstanding.

    A request takes a free slot and becomes one or more bursts. Read data come back in order; they are rotated
    so that the first payload byte lands in lane 0 of the slot's first beat, and lanes behind the last payload
    byte become zero, so that the pad of a frame is there already. One beat is taken per cycle; an unaligned
    source costs one cycle more. Packets become ready in the order of their requests; a packet of which a beat
    came with an error never does: its QP is reported and its slot is free again.

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
    ready : Out(stream of :func:`fetched_packet`)
    read_slot, read_beat : In
        Address of a beat in the slots.
    read_data : Out(data_width)
        That beat, one cycle later.
    free : In(stream of :func:`slot_record`)
        Taken in any order and in every cycle.
    error : Out(stream of :func:`mrc_rtl.records.qp_error`)
        Reason LOCAL_READ.
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
                "ready": Out(stream.Signature(fetched_packet(config))),
                "read_slot": In(slot_bits(config)),
                "read_beat": In(range(config.mtu // config.data_bytes)),
                "read_data": Out(config.data_width),
                "free": In(stream.Signature(slot_record(config))),
                "error": Out(stream.Signature(records.qp_error(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        lanes = config.data_bytes
        lane_bits = (lanes - 1).bit_length()
        slots = config.transmit_slots
        burst_beats = min(_LONGEST_BURST, _BOUNDARY_BYTES // lanes)
        burst_bits = (burst_beats - 1).bit_length()
        beats_range = range(config.mtu // lanes + 2)

        # Packets in order of their requests: a ring with one entry more than needed for none or all slots.
        read_layout = data.StructLayout(
            {"slot": slot_bits(config), "offset": lane_bits, "length": 13, "beats": beats_range}
        )
        m.submodules.reads = reads = Memory(shape=read_layout, depth=slots, init=[])
        m.submodules.descriptors = descriptors = Memory(
            shape=records.transmit_descriptor(config), depth=slots, init=[]
        )
        ring_bits = slot_bits(config)
        requested = Signal(ring_bits + 1)
        fetched = Signal(ring_bits + 1)
        handed = Signal(ring_bits + 1)
        failed = Signal(slots)
        ring_full = Signal()
        m.d.comb += ring_full.eq(requested == handed ^ slots)

        # Free slots, lowest first.
        free_slots = Signal(slots, init=(1 << slots) - 1)
        slot = Signal(slot_bits(config))
        for number in reversed(range(slots)):
            with m.If(free_slots[number]):
                m.d.comb += slot.eq(number)
        taken = Signal(slots)
        released = Signal(slots)
        m.d.comb += self.free.ready.eq(1)
        with m.If(self.free.valid):
            m.d.comb += released.bit_select(self.free.payload.slot, 1).eq(1)

        # Requests become bursts.
        request = self.fetch.payload
        offset = request.bus_address[:lane_bits]
        beats = Signal(beats_range)
        m.d.comb += beats.eq((request.descriptor.length + offset + (lanes - 1)) >> lane_bits)
        with m.If(request.descriptor.length == 0):
            m.d.comb += beats.eq(0)
        row = Signal(config.address_width - lane_bits)
        remaining = Signal(beats_range)
        burst = Signal(range(burst_beats + 1))
        room_in_block = Signal(range(burst_beats + 1))
        last_burst = Signal()
        ending = Signal()
        m.d.comb += [
            room_in_block.eq(burst_beats - row[:burst_bits]),
            self.axi.arsize.eq(lane_bits),
            self.axi.arburst.eq(1),
            ending.eq(self.axi.arvalid & self.axi.arready & last_burst),
            self.fetch.ready.eq(
                free_slots.any() & ~ring_full & ((remaining == 0) & ~self.axi.arvalid | ending)
            ),
        ]
        with m.If((remaining != 0) & ~self.axi.arvalid):
            m.d.comb += burst.eq(Mux(remaining > room_in_block, room_in_block, remaining))
            m.d.sync += [
                self.axi.araddr.eq(Cat(Const(0, lane_bits), row)),
                self.axi.arlen.eq(burst - 1),
                self.axi.arvalid.eq(1),
                last_burst.eq(remaining <= room_in_block),
                remaining.eq(remaining - burst),
                row.eq(row + burst),
            ]
        with m.If(self.axi.arvalid & self.axi.arready):
            m.d.sync += self.axi.arvalid.eq(0)
        reads_write = reads.write_port()
        descriptors_write = descriptors.write_port()
        m.d.comb += [
            reads_write.addr.eq(requested),
            reads_write.data.slot.eq(slot),
            reads_write.data.offset.eq(offset),
            reads_write.data.length.eq(request.descriptor.length),
            reads_write.data.beats.eq(beats),
            descriptors_write.addr.eq(requested),
            descriptors_write.data.eq(request.descriptor),
        ]
        with m.If(self.fetch.valid & self.fetch.ready):
            m.d.comb += [reads_write.en.eq(1), descriptors_write.en.eq(1), taken.bit_select(slot, 1).eq(1)]
            m.d.sync += [
                row.eq(request.bus_address[lane_bits:]),
                remaining.eq(beats),
                requested.eq(requested + 1),
            ]

        self._receive(m, reads.read_port(domain="comb"), requested, fetched, failed)

        # In order: a packet is handed over, or reported and forgotten.
        descriptor = descriptors.read_port(domain="comb")
        entry = reads.read_port(domain="comb")
        head_there = Signal()
        head_failed = Signal()
        m.d.comb += [
            descriptor.addr.eq(handed),
            entry.addr.eq(handed),
            head_there.eq(handed != fetched),
            head_failed.eq(failed.bit_select(handed[:ring_bits], 1)),
            self.ready.valid.eq(head_there & ~head_failed),
            self.ready.payload.slot.eq(entry.data.slot),
            self.ready.payload.descriptor.eq(descriptor.data),
            self.error.valid.eq(head_there & head_failed),
            self.error.payload.qp.eq(descriptor.data.qp),
            self.error.payload.reason.eq(tables.QpErrorReason.LOCAL_READ),
        ]
        returned = Signal(slots)
        with m.If(self.error.valid & self.error.ready):
            m.d.comb += returned.bit_select(entry.data.slot, 1).eq(1)
        with m.If(head_there & Mux(head_failed, self.error.ready, self.ready.ready)):
            m.d.sync += handed.eq(handed + 1)
        m.d.sync += free_slots.eq(free_slots & ~taken | released | returned)
        m.d.comb += self.idle.eq(free_slots.all() & (requested == handed) & ~self.fetch.valid)
        return m

    def _receive(
        self, m: Module, entry: wiring.PureInterface, requested: Signal, fetched: Signal, failed: Signal
    ) -> None:
        """Build the path of read data: rotate, join two beats, cut behind the end, write to the slot."""
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

        # First stage: count, rotate.
        arriving = Signal(ring_bits + 1)
        beat = Signal(range(slot_rows + 2))
        wrong = Signal()
        current = entry.data
        m.d.comb += entry.addr.eq(arriving)
        waiting = Signal()
        last = Signal()
        taken = Signal()
        flush = Signal()
        m.d.comb += [
            waiting.eq(arriving != requested),
            last.eq(beat + 1 == current.beats),
            self.axi.rready.eq(waiting & (current.beats != 0) & ~flush),
            taken.eq(self.axi.rvalid & self.axi.rready),
        ]
        rotated = Signal(config.data_width)
        before = Signal(config.data_width)
        slot = Signal(ring_bits)
        from_before = Signal(lanes)
        position = Signal(range(slot_rows + 2))
        left = Signal(lane_bits)
        there = Signal()
        ended = Signal()
        aligned = Signal()
        value = self.axi.rdata
        for stage in range(lane_bits):
            turned = value[8 << stage :] if len(value) > 8 << stage else value
            turned = Cat(turned, value[: 8 << stage])
            next_value = Signal(config.data_width, name=f"turned{stage}")
            m.d.comb += next_value.eq(Mux(current.offset[stage], turned, value))
            value = next_value
        m.d.sync += [there.eq(taken), ended.eq(0), flush.eq(0)]
        finished = Signal()
        m.d.comb += finished.eq(taken & last | waiting & ~flush & (current.beats == 0))
        with m.If(taken):
            m.d.sync += [
                rotated.eq(value),
                before.eq(rotated),
                from_before.eq(
                    Cat((current.offset != 0) & (lane + current.offset < lanes) for lane in range(lanes))
                ),
                aligned.eq(current.offset == 0),
                slot.eq(current.slot),
                left.eq(current.length),
                position.eq(beat),
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
                flush.eq(taken & (current.offset != 0) & (beat << lane_bits < current.length)),
            ]

        # Second stage: join and write; a packet is fetched when its last beat is in the memory.
        flushing = Signal()
        m.d.sync += flushing.eq(flush)
        write_beat = Signal(row_bits)
        joined = Signal(config.data_width)
        complete = Signal()
        whole = Signal()
        m.d.comb += [
            write_beat.eq(Mux(aligned | flushing, position, position - 1)),
            complete.eq(flushing | ended & ~flush),
            whole.eq(~complete | (left == 0)),
        ]
        for lane in range(lanes):
            place = slice(8 * lane, 8 * lane + 8)
            chosen = Mux(from_before[lane] & ~flushing, before[place], rotated[place])
            keep = whole | (lane < left)
            m.d.comb += joined[place].eq(chosen & keep.replicate(8))
        m.d.comb += [
            write_port.en.eq(flushing | there & (aligned | (position != 0))),
            write_port.addr.eq(Cat(write_beat, slot)),
            write_port.data.eq(joined),
        ]
        with m.If(complete):
            m.d.sync += fetched.eq(fetched + 1)
