"""Writes admitted payload to host memory and tells when the memory has answered."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import NicConfig
from ..records import GlobalCounter
from ..stream import Axi4WriteSignature
from .placement_lanes import LaneAligner

__all__ = ["COMMAND_QUEUE_DEPTH", "Placement", "burst_beats", "placement_id_bits"]

#: Admitted packets from their command to the report that they are placed, at least.
COMMAND_QUEUE_DEPTH = 16

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

    Commands stand in a ring until they are reported. One at a time they take a slot, whose number is their
    AXI identifier, and their beats are read one a cycle, turned to the lanes of the destination and offered
    to the write channel, which holds the whole pipeline back while it is not ready; bursts end at aligned
    blocks of :func:`burst_beats` beats. Addresses go out beside the data. A slot counts the answers of its
    bursts; when the last one is there the packet is placed; slots are used again in turn. The buffer's beats
    are released when they are read, in the order of the commands, as are those of commands with ``drop``,
    which do nothing else. Payload of length 0 is placed without a write.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    place : stream of records.place_command, in
        ``ready`` while the ring has room; admission drops the packet otherwise.
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

        # A ring of commands: what is reported is read when the answers are there, the rest when it is loaded.
        ring_bits = (max(COMMAND_QUEUE_DEPTH, 2 * config.placements) - 1).bit_length()
        ring = 1 << ring_bits
        head, loaded, begun, tail = (
            Signal(ring_bits + 1, name=name) for name in ("head", "loaded", "begun", "tail")
        )
        work_names = ("plane", "length", "drop", "bus_address", "buffer_start")
        work_shape = data.StructLayout({name: command_shape[name].shape for name in work_names})
        m.submodules.reported = reported = Memory(shape=kept_shape, depth=ring, init=[])
        m.submodules.work = work = Memory(shape=work_shape, depth=ring, init=[])
        reported_write, reported_read = reported.write_port(), reported.read_port(domain="comb")
        work_write, work_read = work.write_port(), work.read_port(domain="comb")
        command = work_read.data
        push = self.place.valid & self.place.ready
        m.d.comb += [
            self.place.ready.eq(head != tail ^ ring),
            *(reported_write.data[name].eq(self.place.payload[name]) for name in kept_names),
            *(work_write.data[name].eq(self.place.payload[name]) for name in work_names),
            reported_write.addr.eq(head),
            reported_write.en.eq(push),
            work_write.addr.eq(head),
            work_write.en.eq(push),
            work_read.addr.eq(loaded),
        ]
        m.d.sync += head.eq(head + push)

        # The next packet, with its sizes in beats.
        next_valid = Signal()
        next_plane = Signal(records.plane_bits(config))
        next_drop = Signal()
        next_address = Signal(config.address_width - lane_bits)  # in beats
        next_offset = Signal(lane_bits)
        next_end = Signal(lane_bits)  # lane behind the last byte, 0: the last lane is full
        next_start = Signal(records.buffer_address_bits(config))
        next_beats = Signal(beat_bits)  # on the bus
        next_buffer_beats = Signal(beat_bits)
        start = Signal()
        load = Signal()
        m.d.comb += load.eq((head != loaded) & (~next_valid | start))
        m.d.sync += [loaded.eq(loaded + load), begun.eq(begun + start)]
        with m.If(start):
            m.d.sync += next_valid.eq(0)
        with m.If(load):
            offset = command.bus_address[:lane_bits]
            end = Signal(14)
            m.d.comb += end.eq(command.length + offset)
            none = command.drop | (command.length == 0)
            m.d.sync += [
                next_valid.eq(1),
                next_plane.eq(command.plane),
                next_drop.eq(command.drop),
                next_address.eq(command.bus_address[lane_bits:]),
                next_offset.eq(offset),
                next_end.eq(end),
                next_start.eq(command.buffer_start),
                next_beats.eq(Mux(none, 0, (end + config.data_bytes - 1) >> lane_bits)),
                next_buffer_beats.eq((command.length + config.data_bytes - 1) >> lane_bits),
            ]

        # Slots: answers that are missing, and whether one was bad.
        waits = Signal(config.placements)
        failed = Signal(config.placements)
        missing = [Signal(2, name=f"missing{n}") for n in range(config.placements)]

        # Reading beats of the current packet.
        reading = Signal()
        beats_left = Signal(beat_bits)
        row = Signal(records.buffer_address_bits(config))
        plane = Signal(records.plane_bits(config))
        first = Signal()
        place_in_block = Signal(block_bits)
        offset_now = Signal(lane_bits)
        end_now = Signal(lane_bits)
        issue = Signal()
        advance = Signal()  # of the beats on their way to the write channel
        shown_row = Signal(records.buffer_address_bits(config), reset_less=True)
        last = Signal()
        release_room = Signal()
        m.d.comb += [
            last.eq(beats_left == 1),
            issue.eq(reading & advance & (~last | release_room)),
        ]
        for address in self.read_address:
            # A beat that cannot move on is read again.
            m.d.comb += address.eq(Mux(advance, row, shown_row))
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
        # A beat that is held back is read again, so its place is released when it has moved on.
        last_moves = Signal()
        m.d.comb += release_room.eq(~last_moves & (~to_release | release_taken))
        with m.If(release_taken):
            m.d.sync += to_release.eq(0)
        read_beats = Signal.like(held)
        with m.If(issue & last):
            m.d.sync += [held.eq(read_beats), held_plane.eq(plane), last_moves.eq(1)]
        with m.If(last_moves & advance):
            m.d.sync += [last_moves.eq(0), to_release.eq(1)]

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
        slot_free = (begun - tail)[: ring_bits + 1] != config.placements
        reader_free = ~reading | (issue & last)
        address_free = (address_beats == 0) | (address_taken & ~more)
        nothing_to_read = next_beats == 0
        m.d.comb += start.eq(
            next_valid
            & slot_free
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
                    plane.eq(next_plane),
                    place_in_block.eq(next_address),
                    offset_now.eq(next_offset),
                    end_now.eq(next_end),
                    read_beats.eq(next_buffer_beats),
                    address_beat.eq(next_address),
                    address_beats.eq(next_beats),
                    address_id.eq(begun),
                ]
            with m.Elif(next_buffer_beats != 0):
                m.d.sync += [held.eq(next_buffer_beats), held_plane.eq(next_plane), to_release.eq(1)]

        # Answers.
        m.d.comb += self.write.bready.eq(1)
        done = Signal(config.placements)
        chosen = Signal(id_bits)
        emit = Signal()
        bad = Signal()
        for number in range(config.placements):
            m.d.comb += done[number].eq(waits[number] & (missing[number] == 0))
            with m.If(self.write.bvalid & (self.write.bid == number)):
                m.d.sync += missing[number].eq(missing[number] - 1)
                with m.If(self.write.bresp[1]):
                    m.d.sync += failed[number].eq(1)
            with m.If(start & (begun[:id_bits] == number)):
                m.d.sync += [waits[number].eq(~next_drop), failed[number].eq(0), missing[number].eq(bursts)]
            with m.If(emit & (chosen == number)):
                m.d.sync += waits[number].eq(0)
        for number in reversed(range(config.placements)):
            with m.If(done[number]):
                m.d.comb += chosen.eq(number)
        # A slot below the tail's is of the tail's next round.
        place = tail[:id_bits]
        m.d.comb += [
            reported_read.addr.eq(Cat(chosen, tail[id_bits:] + (chosen < place))),
            emit.eq(done.any() & (~self.placed.valid | self.placed.ready)),
            bad.eq(failed.bit_select(chosen, 1)),
        ]
        m.d.sync += tail.eq(tail + ((begun != tail) & ~waits.bit_select(place, 1)))
        with m.If(self.placed.ready):
            m.d.sync += self.placed.valid.eq(0)
        with m.If(emit):
            m.d.sync += [
                self.placed.valid.eq(1),
                *(self.placed.payload[name].eq(reported_read.data[name]) for name in kept_names),
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

        # Data: buffer → lanes → write channel.
        m.submodules.lanes = lanes = LaneAligner(config)
        with m.If(advance):
            m.d.sync += [lanes.valid.eq(issue), shown_row.eq(row)]
        with m.If(issue):
            m.d.sync += [
                lanes.plane.eq(plane),
                lanes.offset.eq(offset_now),
                lanes.first.eq(first),
                lanes.last.eq(last),
                lanes.end.eq(end_now),
                lanes.burst_end.eq(last | (place_in_block == block - 1)),
            ]
        for source, target in zip(self.read_data, lanes.data, strict=True):
            m.d.comb += target.eq(source)
        m.d.comb += [
            advance.eq(~lanes.beat_valid | self.write.wready),
            lanes.advance.eq(advance),
            self.write.wvalid.eq(lanes.beat_valid),
            self.write.wdata.eq(lanes.beat),
            self.write.wstrb.eq(lanes.strobes),
            self.write.wlast.eq(lanes.beat_last),
        ]

        m.d.comb += self.idle.eq((head == tail) & ~to_release & ~self.placed.valid & (errors == 0))
        return m
