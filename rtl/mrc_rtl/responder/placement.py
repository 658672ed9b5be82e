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
from .placement_slots import PlacementSlots

__all__ = ["COMMAND_QUEUE_DEPTH", "Placement", "burst_beats", "placement_id_bits"]

#: Admitted packets from their command to the report that they are placed.
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

    Commands stand in a ring until they are reported; nothing of them is copied. The oldest one that is not
    written is the current one: it takes a slot, whose number is its AXI identifier, and its beats are taken
    from the buffer one a cycle, turned to the lanes of the destination and offered to the write channel,
    which holds the whole pipeline back while it is not ready. Bursts end at aligned blocks of
    :func:`burst_beats` beats; their addresses go out beside the data. A slot counts the answers of its
    bursts; when the last one is there the packet is placed. The memory may answer in any order; packets are
    reported, and their slots used again, in the order of the commands. Commands with ``drop`` take their
    beats from the buffer and do nothing else. Payload of length 0 is placed without a write.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    place : stream of records.place_command, in
        ``ready`` while the ring has room; admission drops the packet otherwise.
    take, read_data : per plane
        The oldest beat of the plane's packet buffer, which leaves it; see
        :class:`mrc_rtl.responder.packet_buffer.PacketBuffer`.
    write : AXI4 write channels
        INCR, full width, addresses aligned to the width, exact strobes.
    placed : stream of records.placed_record
        In the order of the commands.
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
                "take": Out(1).array(config.planes),
                "read_data": In(config.data_width).array(config.planes),
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
        block_bits = (burst_beats(config) - 1).bit_length()
        length_bits = config.mtu.bit_length()
        command_shape = records.place_command(config)
        placed_shape = records.placed_record(config)
        widths = {name: field.shape for name, field in command_shape} | {"length": length_bits}
        # What of a command is reported when it is placed, and what it takes to write it.
        kept_names = [name for name, _ in placed_shape if name != "error"]
        kept_shape = data.StructLayout({name: widths[name] for name in kept_names})
        work_names = ("plane", "length", "drop", "bus_address")
        work_shape = data.StructLayout({name: widths[name] for name in work_names})

        # A ring of commands: from `tail` up to `current` they wait for answers, up to `head` to be written.
        ring_bits = (max(COMMAND_QUEUE_DEPTH, 2 * config.placements) - 1).bit_length()
        head, current, tail = (Signal(ring_bits + 1, name=name) for name in ("head", "current", "tail"))
        m.submodules.reported = reported = Memory(shape=kept_shape, depth=1 << ring_bits, init=[])
        m.submodules.work = work = Memory(shape=work_shape, depth=1 << ring_bits, init=[])
        reported_write, reported_read = reported.write_port(), reported.read_port(domain="comb")
        work_write, work_read = work.write_port(), work.read_port(domain="comb")
        push = Signal()
        finish = Signal()  # of the current command
        m.d.comb += [
            self.place.ready.eq(head != tail ^ 1 << ring_bits),
            push.eq(self.place.valid & self.place.ready),
            *(reported_write.data[name].eq(self.place.payload[name]) for name in kept_names),
            *(work_write.data[name].eq(self.place.payload[name]) for name in work_names),
            reported_write.addr.eq(head),
            reported_write.en.eq(push),
            work_write.addr.eq(head),
            work_write.en.eq(push),
            work_read.addr.eq(current),
            reported_read.addr.eq(tail),
        ]
        m.d.sync += [head.eq(head + push), current.eq(current + finish)]

        # The current packet in beats. Its first and last byte stand in these lanes of its bus beats.
        command = work_read.data
        first_beat = command.bus_address[lane_bits:]
        offset = Signal(lane_bits)
        ending = Signal(length_bits + 1)  # the last byte, from the first lane on
        last_in_block = Signal(range((1 << block_bits) + config.mtu // config.data_bytes + 1))
        empty = Signal()
        m.d.comb += [
            # The beats of a dropped packet are those of the buffer.
            offset.eq(Mux(command.drop, 0, command.bus_address[:lane_bits])),
            ending.eq(command.length + (offset - 1)),
            last_in_block.eq(first_beat[:block_bits] + ending[lane_bits:]),
            empty.eq(command.length == 0),
        ]

        # Begin: one cycle in which the command takes a slot and its sizes are kept.
        m.submodules.slots = slots = PlacementSlots(config)
        begin = Signal()
        begun = Signal()
        used = Signal(ring_bits + 1)
        slot = current[: placement_id_bits(config)]
        last_beat = Signal.like(last_in_block)  # from the begin of the first one's block
        more_beats = Signal(length_bits + 1 - lane_bits)  # behind the first one
        spills = Signal()  # the last bus beat holds only bytes of the buffer beat before it
        m.d.comb += [
            used.eq(current - tail),
            begin.eq((head != current) & (used != config.placements) & ~begun),
            slots.open.eq(begin),
            slots.opened.eq(slot),
            slots.bursts.eq(Mux(empty | command.drop, 0, (last_in_block >> block_bits) + 1)),
            slots.drop.eq(command.drop),
        ]
        with m.If(finish):
            m.d.sync += begun.eq(0)

        # Addresses of the packet's bursts.
        addressed = Signal()  # all of them are taken
        burst = Signal(2)
        last_burst = burst == last_beat >> block_bits
        address_taken = Signal()
        address_ends = Signal()
        m.d.comb += [
            self.write.awvalid.eq(begun & ~addressed),
            self.write.awid.eq(slot),
            self.write.awaddr.eq(
                Cat(
                    Const(0, lane_bits),
                    Mux(burst == 0, first_beat[:block_bits], 0),
                    (first_beat[block_bits:] + burst)[: len(first_beat) - block_bits],
                )
            ),
            self.write.awsize.eq(lane_bits),
            self.write.awburst.eq(0b01),
            address_taken.eq(self.write.awvalid & self.write.awready),
            address_ends.eq(addressed | (address_taken & last_burst)),
        ]
        with m.If(burst == 0):
            m.d.comb += self.write.awlen.eq(Mux(last_burst, more_beats, ~first_beat[:block_bits]))
        with m.Else():
            m.d.comb += self.write.awlen.eq(last_beat[:block_bits] | (~last_burst).replicate(block_bits))
        with m.If(address_taken):
            m.d.sync += [burst.eq(burst + 1), addressed.eq(last_burst)]

        # Beats of the packet.
        reading = Signal()
        first = Signal()
        last = Signal()
        beat = Signal.like(last_beat)
        issue = Signal()
        advance = Signal()  # of the beats on their way to the write channel
        m.d.comb += [
            issue.eq(reading & advance),
            last.eq(beat == last_beat),
            finish.eq((begin & empty) | (begun & address_ends & (~reading | (issue & last)))),
        ]
        for number, take in enumerate(self.take):
            m.d.comb += take.eq(issue & ~(last & spills) & (command.plane == number))
        with m.If(issue):
            m.d.sync += [beat.eq(beat + 1), first.eq(0), reading.eq(~last)]
        with m.If(begin):
            m.d.sync += [
                begun.eq(~empty),
                reading.eq(~empty),
                first.eq(1),
                beat.eq(first_beat[:block_bits]),
                last_beat.eq(last_in_block),
                more_beats.eq(ending[lane_bits:]),
                spills.eq((command.length - 1)[:lane_bits] + offset >= config.data_bytes),
                addressed.eq(command.drop),
                burst.eq(0),
            ]

        # Buffer → lanes → write channel.
        m.submodules.lanes = lanes = LaneAligner(config)
        with m.If(advance):
            m.d.sync += lanes.valid.eq(issue & ~command.drop)
        with m.If(issue):
            m.d.sync += [
                lanes.plane.eq(command.plane),
                lanes.offset.eq(offset),
                lanes.first.eq(first),
                lanes.last.eq(last),
                lanes.end.eq(ending),
                lanes.burst_end.eq(last | beat[:block_bits].all()),
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

        # Answers, and the report of the oldest command.
        counting = Signal()
        over = Signal()  # the oldest command's slot
        m.d.comb += [
            slots.answer.eq(self.write.bvalid),
            slots.answered.eq(self.write.bid),
            slots.bad.eq(self.write.bresp[1]),
            self.write.bready.eq(slots.ready),
            slots.asked.eq(tail),
            # A failure is told when the one before is counted.
            over.eq((tail != current) & slots.complete & ~(slots.failed & counting)),
            self.placed.valid.eq(over & ~slots.dropped),
            *(self.placed.payload[name].eq(reported_read.data[name]) for name in kept_names),
            self.placed.payload.error.eq(slots.failed),
            self.counter.valid.eq(counting),
            self.counter.payload.index.eq(config.planes * records.PORT_COUNTERS + GlobalCounter.WRITE_ERRORS),
        ]
        with m.If(counting):
            m.d.sync += counting.eq(~self.counter.ready)
        with m.If(over & (slots.dropped | self.placed.ready)):
            m.d.sync += tail.eq(tail + 1)
            with m.If(slots.failed):
                m.d.sync += counting.eq(1)

        m.d.comb += self.idle.eq((head == tail) & ~counting)
        return m
