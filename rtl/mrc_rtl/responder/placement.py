"""Writes admitted payload to host memory and tells when the memory has answered."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import NicConfig
from ..records import GlobalCounter
from ..stream import Axi4WriteSignature
from .placement_lanes import LaneAligner

__all__ = ["COMMAND_QUEUE_DEPTH", "Placement", "burst_beats", "placement_id_bits"]

#: Admitted packets that wait for their turn.
COMMAND_QUEUE_DEPTH = 16

#: Beats between reading the packet buffer and the AXI4 write channel.
WRITE_QUEUE_DEPTH = 16

_BOUNDARY = 4096
_LONGEST_BURST = 256


def burst_beats(config: NicConfig) -> int:
    """Beats of an aligned block that a burst may fill: never more than 256, never across 4 KiB."""
    return min(_LONGEST_BURST, _BOUNDARY // config.data_bytes)


def placement_id_bits(config: NicConfig) -> int:
    """Bits of the AXI identifier of a placement: its slot."""
    return max(1, (config.placements - 1).bit_length())


class Placement(wiring.Component):
    """Reads a packet's payload from its plane's buffer, aligns it and writes it by AXI4.

    Commands wait in a queue. One at a time they take a slot, whose number is their AXI identifier, and their
    beats are read one a cycle, turned to the lanes of the destination and queued for the write channel;
    bursts end at aligned blocks of :func:`burst_beats` beats. Addresses go out beside the data. A slot counts
    the answers of its bursts; when the last one is there the packet is placed and the slot free. The buffer's
    beats are released when they are read, in the order of the commands, as are those of commands with
    ``drop``, which do nothing else. Payload of length 0 is placed without a write.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    place : stream of records.place_command, in
        ``ready`` while the queue has room; admission drops the packet otherwise.
    read_address, read_data : per plane
        Port of the plane's packet buffer; data come one cycle after the address.
    release : stream of records.buffer_release, per plane
    write : AXI4 write channels
        INCR, full width, addresses aligned to the width, exact strobes.
    placed : stream of records.placed_record
        In the order in which the memory answers.
    counter : stream of records.counter_event
        WRITE_ERRORS, one per packet that was answered with an error.
    idle : 1

    Source: rules 1 and 2 of design.md 4, profile.md 5; AMBA AXI4, A3.4.1 for bursts.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "place": In(stream.Signature(records.place_command(config))),
                "read_address": Out(records.buffer_address_bits(config)).array(config.planes),
                "read_data": In(config.data_width).array(config.planes),
                "release": Out(stream.Signature(records.buffer_release(config))).array(config.planes),
                "write": Out(
                    Axi4WriteSignature(config.data_width, config.address_width, placement_id_bits(config))
                ),
                "placed": Out(stream.Signature(records.placed_record(config))),
                "counter": Out(stream.Signature(records.counter_event(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        lane_bits = (config.data_bytes - 1).bit_length()
        block = burst_beats(config)
        block_bits = (block - 1).bit_length()
        beat_bits = (config.mtu // config.data_bytes + 1).bit_length()
        id_bits = placement_id_bits(config)
        command_shape = records.place_command(config)
        placed_shape = records.placed_record(config)
        # What of a command is reported when it is placed.
        kept_names = [name for name, _ in placed_shape if name != "error"]
        kept_shape = data.StructLayout({name: placed_shape[name].shape for name in kept_names})

        m.submodules.queue = queue = SyncFIFOBuffered(width=command_shape.size, depth=COMMAND_QUEUE_DEPTH)
        command = Signal(command_shape)
        m.d.comb += [
            queue.w_data.eq(self.place.payload),
            queue.w_en.eq(self.place.valid),
            self.place.ready.eq(queue.w_rdy),
            command.eq(queue.r_data),
        ]

        # The next packet, with its sizes in beats.
        next_valid = Signal()
        next_kept = Signal(kept_shape)
        next_drop = Signal()
        next_address = Signal(config.address_width - lane_bits)  # in beats
        next_offset = Signal(lane_bits)
        next_end = Signal(lane_bits)  # lane behind the last byte, 0: the last lane is full
        next_start = Signal(records.buffer_address_bits(config))
        next_beats = Signal(beat_bits)  # on the bus
        next_buffer_beats = Signal(beat_bits)
        start = Signal()
        load = Signal()
        m.d.comb += [load.eq(queue.r_rdy & (~next_valid | start)), queue.r_en.eq(load)]
        with m.If(start):
            m.d.sync += next_valid.eq(0)
        with m.If(load):
            offset = command.bus_address[:lane_bits]
            end = Signal(14)
            m.d.comb += end.eq(command.length + offset)
            none = command.drop | (command.length == 0)
            m.d.sync += [
                next_valid.eq(1),
                *(next_kept[name].eq(command[name]) for name in kept_names),
                next_drop.eq(command.drop),
                next_address.eq(command.bus_address[lane_bits:]),
                next_offset.eq(offset),
                next_end.eq(end),
                next_start.eq(command.buffer_start),
                next_beats.eq(Mux(none, 0, (end + config.data_bytes - 1) >> lane_bits)),
                next_buffer_beats.eq((command.length + config.data_bytes - 1) >> lane_bits),
            ]

        # Slots: answers that are missing, and whether one was bad.
        busy = Signal(config.placements)
        failed = Signal(config.placements)
        missing = [Signal(2, name=f"missing{n}") for n in range(config.placements)]
        free = Signal(id_bits)
        for number in reversed(range(config.placements)):
            with m.If(~busy[number]):
                m.d.comb += free.eq(number)

        # Reading beats of the current packet.
        reading = Signal()
        beats_left = Signal(beat_bits)
        row = Signal(records.buffer_address_bits(config))
        plane = Signal(records.plane_bits(config))
        first = Signal()
        place_in_block = Signal(block_bits)
        offset_now = Signal(lane_bits)
        end_now = Signal(lane_bits)
        credit = Signal(range(WRITE_QUEUE_DEPTH + 1), init=WRITE_QUEUE_DEPTH)
        issue = Signal()
        last = Signal()
        release_room = Signal()
        m.d.comb += [
            last.eq(beats_left == 1),
            issue.eq(reading & (credit != 0) & (~last | release_room)),
        ]
        for address in self.read_address:
            m.d.comb += address.eq(row)
        with m.If(issue):
            m.d.sync += [
                beats_left.eq(beats_left - 1),
                row.eq(row + 1),
                place_in_block.eq(place_in_block + 1),
                first.eq(0),
            ]
            with m.If(last):
                m.d.sync += reading.eq(0)

        # Releases: what the current packet holds, once it is read.
        held = Signal(records.buffer_release(config))
        held_plane = Signal(records.plane_bits(config))
        to_release = Signal()
        release_taken = Signal()
        for number, port in enumerate(self.release):
            m.d.comb += [port.payload.eq(held), port.valid.eq(to_release & (held_plane == number))]
            with m.If(held_plane == number):
                m.d.comb += release_taken.eq(to_release & port.ready)
        m.d.comb += release_room.eq(~to_release | release_taken)
        with m.If(release_taken):
            m.d.sync += to_release.eq(0)
        read_beats = Signal.like(held)
        with m.If(issue & last):
            m.d.sync += [held.eq(read_beats), held_plane.eq(plane), to_release.eq(1)]

        # Addresses of the current packet's bursts.
        address_beat = Signal(config.address_width - lane_bits)
        address_beats = Signal(beat_bits)
        address_id = Signal(id_bits)
        to_block_end = Signal(range(block + 1))
        burst = Signal(range(block + 1))
        more = Signal()
        address_taken = Signal()
        m.d.comb += [
            to_block_end.eq(block - address_beat[:block_bits]),
            more.eq(address_beats > to_block_end),
            burst.eq(Mux(more, to_block_end, address_beats)),
            self.write.awvalid.eq(address_beats != 0),
            self.write.awid.eq(address_id),
            self.write.awaddr.eq(Cat(Const(0, lane_bits), address_beat)),
            self.write.awlen.eq(burst - 1),
            self.write.awsize.eq(lane_bits),
            self.write.awburst.eq(0b01),
            address_taken.eq(self.write.awvalid & self.write.awready),
        ]
        with m.If(address_taken):
            m.d.sync += [
                address_beats.eq(Mux(more, address_beats - to_block_end, 0)),
                address_beat.eq(Cat(Const(0, block_bits), address_beat[block_bits:] + 1)),
            ]

        # A packet starts when the one before has issued its last beat and its last address.
        slot_free = ~busy.all()
        reader_free = ~reading | (issue & last)
        address_free = (address_beats == 0) | (address_taken & ~more)
        nothing_to_read = next_beats == 0
        m.d.comb += start.eq(
            next_valid
            & (next_drop | slot_free)
            & reader_free
            & address_free
            & (~nothing_to_read | (~reading & release_room))
        )
        bursts = Signal(2)
        last_in_block = Signal(range(block + config.mtu // config.data_bytes + 2))
        m.d.comb += [
            last_in_block.eq(next_address[:block_bits] + next_beats - 1),
            bursts.eq(Mux(nothing_to_read, 0, (last_in_block >> block_bits) + 1)),
        ]
        with m.If(start):
            with m.If(~nothing_to_read):
                m.d.sync += [
                    reading.eq(1),
                    first.eq(1),
                    beats_left.eq(next_beats),
                    row.eq(next_start),
                    plane.eq(next_kept.plane),
                    place_in_block.eq(next_address),
                    offset_now.eq(next_offset),
                    end_now.eq(next_end),
                    read_beats.eq(next_buffer_beats),
                    address_beat.eq(next_address),
                    address_beats.eq(next_beats),
                    address_id.eq(free),
                ]
            with m.Elif(next_buffer_beats != 0):
                m.d.sync += [held.eq(next_buffer_beats), held_plane.eq(next_kept.plane), to_release.eq(1)]

        m.submodules.slots = slots = Memory(shape=kept_shape, depth=config.placements, init=[])
        slot_write, slot_read = slots.write_port(), slots.read_port(domain="comb")
        m.d.comb += [
            slot_write.addr.eq(free), slot_write.data.eq(next_kept), slot_write.en.eq(start & ~next_drop)
        ]  # fmt: skip

        # Answers.
        m.d.comb += self.write.bready.eq(1)
        done = Signal(config.placements)
        chosen = Signal(id_bits)
        emit = Signal()
        for number in range(config.placements):
            m.d.comb += done[number].eq(busy[number] & (missing[number] == 0))
            with m.If(self.write.bvalid & (self.write.bid == number)):
                m.d.sync += missing[number].eq(missing[number] - 1)
                with m.If(self.write.bresp[1]):
                    m.d.sync += failed[number].eq(1)
            with m.If(start & ~next_drop & (free == number)):
                m.d.sync += [busy[number].eq(1), failed[number].eq(0), missing[number].eq(bursts)]
            with m.If(emit & (chosen == number)):
                m.d.sync += busy[number].eq(0)
        for number in reversed(range(config.placements)):
            with m.If(done[number]):
                m.d.comb += chosen.eq(number)
        bad = Signal()
        m.d.comb += [
            emit.eq(done.any() & (~self.placed.valid | self.placed.ready)),
            slot_read.addr.eq(chosen),
            bad.eq(failed.bit_select(chosen, 1)),
        ]
        with m.If(self.placed.ready):
            m.d.sync += self.placed.valid.eq(0)
        with m.If(emit):
            m.d.sync += [
                self.placed.valid.eq(1),
                *(self.placed.payload[name].eq(slot_read.data[name]) for name in kept_names),
                self.placed.payload.error.eq(bad),
            ]

        errors = Signal(range(config.placements + 1))
        counted = self.counter.valid & self.counter.ready
        m.d.comb += [
            self.counter.valid.eq(errors != 0),
            self.counter.payload.index.eq(config.planes * records.PORT_COUNTERS + GlobalCounter.WRITE_ERRORS),
        ]
        with m.If(emit & bad & ~counted & (errors != config.placements)):
            m.d.sync += errors.eq(errors + 1)
        with m.Elif(counted & ~(emit & bad)):
            m.d.sync += errors.eq(errors - 1)

        # Data: buffer → lanes → queue → write channel.
        m.submodules.lanes = lanes = LaneAligner(config)
        m.d.sync += lanes.plane.eq(plane)
        m.d.sync += [
            lanes.valid.eq(issue),
            lanes.offset.eq(offset_now),
            lanes.first.eq(first),
            lanes.last.eq(last),
            lanes.end.eq(end_now),
            lanes.burst_end.eq(last | (place_in_block == block - 1)),
        ]
        for source, target in zip(self.read_data, lanes.data, strict=True):
            m.d.comb += target.eq(source)
        beat_shape = data.StructLayout({"data": config.data_width, "strobes": config.data_bytes, "last": 1})
        m.submodules.beats = beats = SyncFIFOBuffered(width=beat_shape.size, depth=WRITE_QUEUE_DEPTH)
        oldest = Signal(beat_shape)
        m.d.comb += [
            beats.w_data.eq(Cat(lanes.beat, lanes.strobes, lanes.beat_last)),
            beats.w_en.eq(lanes.beat_valid),
            oldest.eq(beats.r_data),
            self.write.wvalid.eq(beats.r_rdy),
            self.write.wdata.eq(oldest.data),
            self.write.wstrb.eq(oldest.strobes),
            self.write.wlast.eq(oldest.last),
            beats.r_en.eq(self.write.wready),
        ]
        written = beats.r_rdy & self.write.wready
        with m.If(issue & ~written):
            m.d.sync += credit.eq(credit - 1)
        with m.Elif(~issue & written):
            m.d.sync += credit.eq(credit + 1)

        m.d.comb += self.idle.eq(
            ~queue.r_rdy
            & (queue.level == 0)
            & ~next_valid
            & ~reading
            & ~busy.any()
            & ~to_release
            & (address_beats == 0)
            & ~self.placed.valid
            & (errors == 0)
        )
        return m
