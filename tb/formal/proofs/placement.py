"""Placement: a packet's bytes and no others, in bursts AXI allows, and told of when all are answered."""

from typing import Any

from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, Signal

from mrc_rtl.config import NicConfig
from mrc_rtl.responder import placement as under_proof

from ..opened import Opened, free_inputs, keeps_offer
from ..proof import Proof, implies

__all__ = ["PlacementProof"]

_PAGE = 4096
_LONGEST = 256


class PlacementProof(Proof):
    """The command that is written now, one arbitrary place of the ring, and one arbitrary slot are watched.

    Assumed: offers stay until they are taken; payload is at most one MTU and does not pass the end of the
    address space (:class:`formal.proofs.regions.RegionsProof` shows it); the memory answers a burst once,
    after it took its address. What the lanes make of a beat is :class:`formal.proofs.lanes.LanesProof`.

    Parameters
    ----------
    config : NicConfig
    """

    def __init__(self, config: NicConfig) -> None:
        super().__init__(config)
        self.lane_bits = (config.data_bytes - 1).bit_length()
        self.block_bits = (min(_LONGEST, _PAGE // config.data_bytes) - 1).bit_length()

    def describe(self, m: Module) -> None:
        """Watch addresses, beats, answers and reports."""
        config = self.config
        self.block = block = under_proof.Placement(config)
        self.opened = opened = Opened(m, "placement", block)
        self.slots = opened.part("slots")
        self.lanes = opened.part("lanes")
        free_inputs(m, block)
        keeps_offer(m, block.place)
        command = block.place.payload
        m.d.comb += [
            Assume(command.length <= config.mtu),
            Assume(command.drop | (command.bus_address + command.length <= 1 << config.address_width)),
            Assume(command.plane < config.planes),
        ]
        self.head, self.current, self.tail = (opened.signal(name) for name in ("head", "current", "tail"))
        self.begun, self.begin = opened.signal("begun"), opened.signal("begin")
        self._ring(m)
        self._current(m)
        self._addresses(m)
        self._beats(m)
        self._answers(m)

    def _ring(self, m: Module) -> None:
        """Commands leave the ring in the order in which they came, unchanged."""
        head, current, tail = self.head, self.current, self.tail
        bits = len(head)
        rows = 1 << bits - 1
        held, unwritten = Signal(bits), Signal(bits)
        self.used = used = Signal(bits)
        m.d.comb += [
            held.eq(head - tail),
            unwritten.eq(head - current),
            used.eq(current - tail),
            Assert(held <= rows),
            Assert(unwritten <= held),
            Assert(used <= self.config.placements),
            Assert(implies(self.begun, (unwritten != 0) & (used < self.config.placements))),
        ]
        watched = AnyConst(bits - 1)
        came = Signal(self.block.place.payload.shape())
        with m.If(self.block.place.valid & self.block.place.ready & (head[:-1] == watched)):
            m.d.sync += came.eq(self.block.place.payload)
        inside = (watched - tail)[: bits - 1] < held
        for memory in ("work", "reported"):
            row = self.opened.memory_row(memory, watched)
            m.d.comb += [Assert(implies(inside, row[name] == came[name])) for name in row.shape().members]
        placed = self.block.placed
        names = [name for name in placed.payload.shape().members if name != "error"]
        ours = placed.valid & (tail[:-1] == watched)
        m.d.comb += [
            *(Assert(implies(ours, placed.payload[name] == came[name])) for name in names),
            Assert(implies(inside, came.length <= self.config.mtu)),
            Assert(
                implies(inside & ~came.drop, came.bus_address + came.length <= 1 << self.config.address_width)
            ),
            Assert(implies(inside, came.plane < self.config.planes)),
        ]
        # The row that is written now is one like the watched one, of which this is asserted above.
        row = self.opened.memory_row("work", current)
        there = unwritten != 0
        m.d.comb += [
            Assume(implies(there, row.length <= self.config.mtu)),
            Assume(
                implies(there & ~row.drop, row.bus_address + row.length <= 1 << self.config.address_width)
            ),
            Assume(implies(there, row.plane < self.config.planes)),
        ]

    def _current(self, m: Module) -> None:
        """What the command that is written now is to cause, in beats."""
        row: Any = self.opened.memory_row("work", self.current)
        self.row = row
        lane_bits, address_bits = self.lane_bits, self.config.address_width
        self.last_byte = Signal(address_bits)
        self.first_beat = row.bus_address[lane_bits:]
        self.offset = Signal(lane_bits)
        self.count = Signal(14)  # bus beats, or buffer beats of a dropped packet
        m.d.comb += [
            self.last_byte.eq(row.bus_address + row.length - 1),
            self.offset.eq(Mux(row.drop, 0, row.bus_address[:lane_bits])),
            self.count.eq(((self.offset + row.length - 1) >> lane_bits) + 1),
        ]
        self.last_beat = self.last_byte[lane_bits:]
        self.in_block = self.first_beat[: self.block_bits]
        begun = self.begun
        kept_last = self.opened.signal("last_beat")
        m.d.comb += [
            Assert(implies(begun, row.length != 0)),
            Assert(implies(begun, kept_last == self.in_block + self.count - 1)),
            Assert(implies(begun, self.opened.signal("more_beats") == self.count - 1)),
            Assert(
                implies(
                    begun,
                    self.opened.signal("spills")
                    == (((row.length - 1)[:lane_bits] + self.offset) >= self.config.data_bytes),
                )
            ),
        ]
        self.last_block = kept_last >> self.block_bits
        self.finish = self.opened.signal("finish")

    def _addresses(self, m: Module) -> None:
        """Bursts follow each other from the packet's first beat to its last one."""
        bus, begun, row = self.block.write, self.begun, self.row
        addressed, burst = self.opened.signal("addressed"), self.opened.signal("burst")
        following = Signal(len(self.first_beat) + 1)  # beat of the next burst, as what was taken shows
        after = Signal.like(following)
        self.taken = taken = Signal()
        beats = bus.awlen + 1
        start = bus.awaddr[self.lane_bits :]
        blocks = self.first_beat[self.block_bits :] + burst
        m.d.comb += [
            taken.eq(bus.awvalid & bus.awready),
            after.eq(Mux(taken, start + beats, following)),
            # What AXI allows.
            Assert(implies(bus.awvalid, bus.awaddr[: self.lane_bits] == 0)),
            Assert(implies(bus.awvalid, bus.awaddr[:12] + (beats << self.lane_bits) <= _PAGE)),
            Assert(implies(bus.awvalid, beats <= _LONGEST)),
            Assert(implies(bus.awvalid, (bus.awburst == 1) & (bus.awsize == self.lane_bits))),
            # Inside the packet, one behind the other, up to its end.
            Assert(implies(bus.awvalid, begun & ~row.drop & (start == following))),
            Assert(implies(bus.awvalid, start + beats <= self.last_beat + 1)),
            Assert(implies(self.finish & begun & ~row.drop, after == self.last_beat + 1)),
            # Induction.
            Assert(implies(begun & row.drop, addressed)),
            Assert(implies(begun & ~addressed, burst <= self.last_block)),
            Assert(implies(begun & addressed & ~row.drop, burst == self.last_block + 1)),
            Assert(implies(begun & addressed & ~row.drop, following == self.last_beat + 1)),
            Assert(
                implies(
                    begun & ~addressed,
                    following == Mux(burst == 0, self.first_beat, blocks << self.block_bits),
                )
            ),
        ]
        m.d.sync += following.eq(Mux(self.begin, self.first_beat, after))
        waiting, address, length = Signal(), Signal.like(bus.awaddr), Signal(8)
        m.d.sync += [waiting.eq(bus.awvalid & ~bus.awready), address.eq(bus.awaddr), length.eq(bus.awlen)]
        m.d.comb += [
            Assert(implies(waiting, bus.awvalid & (bus.awaddr == address) & (bus.awlen == length))),
            Cover(taken & (burst == 2) & (bus.awlen == 0)),
            Cover(taken & (bus.awlen == 255) if self.block_bits == 8 else taken),
        ]

    def _beats(self, m: Module) -> None:
        """The lanes get each beat of the packet once, told which of its bytes count."""
        begun, row, lanes = self.begun, self.row, self.lanes.block
        reading, first, beat = (self.opened.signal(name) for name in ("reading", "first", "beat"))
        issue = self.opened.signal("issue")
        issued, taken = Signal(14), Signal(14)
        takes = Signal()
        last = issued == self.count - 1
        buffer_beats = (row.length + self.config.data_bytes - 1) >> self.lane_bits
        m.d.comb += takes.eq(Cat(*self.block.take).any())
        m.d.sync += [
            issued.eq(Mux(self.begin, 0, issued + issue)),
            taken.eq(Mux(self.begin, 0, taken + takes)),
        ]
        for plane, take in enumerate(self.block.take):
            m.d.comb += Assert(implies(take, begun & (row.plane == plane)))
        m.d.comb += [
            Assert(implies(issue, begun & (issued < self.count))),
            Assert(implies(self.finish & begun, issued + issue == self.count)),
            # Every beat of the buffer leaves it, whether it is written or dropped.
            Assert(implies(self.finish & begun, taken + takes == buffer_beats)),
            Assert(implies(self.finish & ~begun, row.length == 0)),
            # Induction.
            Assert(implies(reading, begun)),
            Assert(implies(begun & reading, (beat == self.in_block + issued) & (issued < self.count))),
            Assert(implies(begun & reading, first == (issued == 0))),
            Assert(implies(begun & ~reading, issued == self.count)),
            Assert(implies(begun, taken == Mux(issued < buffer_beats, issued, buffer_beats))),
        ]
        # What stands at the lanes, a cycle later.
        expected = {
            "plane": (lanes.plane, row.plane),
            "offset": (lanes.offset, self.offset),
            "first": (lanes.first, issued == 0),
            "last": (lanes.last, last),
            "burst_end": (
                lanes.burst_end,
                last | ((self.first_beat + issued + 1)[: self.block_bits] == 0),
            ),
        }
        for name, (port, value) in expected.items():
            kept = Signal(len(port), name=f"expected_{name}")
            with m.If(issue):
                m.d.sync += kept.eq(value)
            m.d.comb += Assert(implies(lanes.valid, port == kept))
        ending = Signal.like(lanes.end)
        with m.If(issue):
            m.d.sync += ending.eq(self.last_byte)
        m.d.comb += [
            Assert(implies(lanes.valid & lanes.last, lanes.end == ending)),
            Cover(self.finish & begun & (self.count == 3) & (buffer_beats == 2) & ~row.drop),
            Cover(self.finish & begun & row.drop & (self.count == 2)),
        ]

    def _answers(self, m: Module) -> None:
        """A packet is reported when all its bursts are answered, with an error when one was bad."""
        bus, placed = self.block.write, self.block.placed
        slot_bits = len(bus.awid)
        watched = AnyConst(slot_bits)
        outstanding, bad, dropped = Signal(3), Signal(), Signal()
        now = self.current[:slot_bits] == watched
        opens = self.begin & now
        asked = self.taken & (bus.awid == watched)
        answered = bus.bvalid & bus.bready & (bus.bid == watched)
        m.d.comb += Assume(implies(bus.bvalid & (bus.bid == watched), outstanding != 0))
        m.d.sync += outstanding.eq(outstanding + asked - answered)
        with m.If(opens):
            m.d.sync += [bad.eq(0), dropped.eq(self.row.drop)]
        with m.Elif(answered):
            m.d.sync += bad.eq(bad | bus.bresp[1])
        state: Any = self.slots.memory_row("memory", watched)
        in_use = (watched - self.tail)[:slot_bits] < self.used + self.begun
        to_ask = Mux(
            self.begun & now & ~self.opened.signal("addressed"),
            self.last_block + 1 - self.opened.signal("burst"),
            0,
        )
        oldest = (self.tail[:slot_bits] == watched) & (self.tail != self.current)
        m.d.comb += [
            Assert(implies(bus.awvalid & (bus.awid == watched), now & in_use)),
            Assert(implies(oldest & placed.valid, (outstanding == 0) & ~dropped)),
            Assert(implies(oldest & placed.valid, placed.payload.error == bad)),
            Assert(implies(placed.valid, self.tail != self.current)),
            # Induction.
            Assert(implies(~in_use, outstanding == 0)),
            Assert(implies(in_use, state.missing == outstanding + to_ask)),
            Assert(implies(in_use, (state.failed == bad) & (state.dropped == dropped))),
            Assert(implies(in_use & dropped, (outstanding == 0) & (to_ask == 0))),
            Cover(oldest & placed.valid & placed.ready & placed.payload.error),
        ]
