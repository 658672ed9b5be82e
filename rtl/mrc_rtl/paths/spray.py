"""Spraying: the next plane, the next entropy value on it, and the table of values."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import plane_bits
from ..stream import TableBus
from ..tables import EV_VALUE, EV_VALUES_PER_PLANE
from .path_table import ev_word, rotation

__all__ = ["EvPick", "EvValues", "PlaneChoice"]

#: A plane remembers at most this many turns that it missed for lack of room.
_DEBT_LIMIT = 3


class PlaneChoice(wiring.Component):
    """Planes take turns; one without room is passed over and makes up for it when it has room again.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    usable : planes
        Planes that are up and on which the QP has an entropy value.
    room : planes
        Planes that can take a frame.
    valid, plane
        The choice; it does not wait for ``take``.
    take : 1
        The choice is used: turn and debts move on.

    Source: design.md 4 rule 5, profile.md 3 (imbalance).
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "usable": In(config.planes),
                "room": In(config.planes),
                "valid": Out(1),
                "plane": Out(plane_bits(config)),
                "take": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        planes = self.config.planes
        turn = Signal(range(planes))
        debts = [Signal(range(_DEBT_LIMIT + 1), name=f"debt{plane}") for plane in range(planes)]
        free = Signal(planes)
        owed = Signal(planes)
        wanted = Signal(planes)
        passed = Signal(planes)
        m.d.comb += [
            free.eq(self.usable & self.room),
            owed.eq(free & Cat(debt != 0 for debt in debts)),
            wanted.eq(Mux(owed.any(), owed, free)),
            self.valid.eq(free.any()),
        ]
        with m.Switch(turn):
            for origin in range(planes):
                with m.Case(origin):
                    order = [(origin + distance) % planes for distance in range(planes)]
                    for plane in reversed(order):
                        with m.If(wanted[plane]):
                            m.d.comb += self.plane.eq(plane)
                    for position, plane in enumerate(order):
                        # Passed over: nobody before it, nor itself, can be the choice.
                        before = Cat(wanted[other] for other in order[: position + 1])
                        m.d.comb += passed[plane].eq(self.usable[plane] & ~self.room[plane] & ~before.any())
        with m.If(self.take):
            with m.If(owed.any()):
                for plane, debt in enumerate(debts):
                    with m.If(self.plane == plane):
                        m.d.sync += debt.eq(debt - 1)
            with m.Else():
                m.d.sync += turn.eq(Mux(self.plane == planes - 1, 0, self.plane + 1))
                for plane, debt in enumerate(debts):
                    with m.If(passed[plane] & (debt != _DEBT_LIMIT)):
                        m.d.sync += debt.eq(debt + 1)
        return m


class EvPick(wiring.Component):
    """The pick inside a word of 32 entropy values, in two stages.

    In each rotation every GOOD EV comes once, in the order place 0 to 31, where EV i has the place i XOR key;
    with a new rotation comes a new key. A SKIP EV met is reported, and loses its skip bit.

    Parameters
    ----------
    none

    Members
    -------
    word, place : ev_word, rotation
        Stage one; registered.
    restart : 1
        Stage one: begin a new rotation instead of going on at ``place``.
    index : 5
        Stage two: number of the EV found.
    found, skip : 1, 1
        Stage two: there is an EV at or behind the place; it is a SKIP one.
    new_skip, new_place
        Stage two: what the word's skip bits and the rotation become.

    Source: design.md 4 rule 5; protocol.md 2.3 (permutation re-drawn at each wrap).
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "word": In(ev_word()),
                "place": In(rotation()),
                "restart": In(1),
                "index": Out(5),
                "found": Out(1),
                "skip": Out(1),
                "new_skip": Out(32),
                "new_place": Out(rotation()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def redraw(value: Signal) -> Cat:
            """Five steps of x^11 + x^9 + 1, so that all five bits of the key are new."""
            bits = list(value)
            for _ in range(5):
                bits = [bits[10] ^ bits[8], *bits[:-1]]
            return Cat(*bits)

        hash_ = Signal(11)
        m.d.comb += hash_.eq(Mux(self.restart, redraw(self.place.hash), self.place.hash))
        ordered = self.word.good
        for bit in range(5):
            step = 1 << bit
            swapped = Signal(32, name=f"swapped{bit}")
            m.d.comb += swapped.eq(Cat(Mux(hash_[bit], ordered[n ^ step], ordered[n]) for n in range(32)))
            ordered = swapped
        ahead = Signal(32)
        m.d.comb += ahead.eq(Mux(self.restart, 0xFFFF_FFFF, (0xFFFF_FFFF << self.place.place) & 0xFFFF_FFFF))

        left = Signal(32)
        key_hash = Signal(11)
        skips = Signal(32)
        m.d.sync += [left.eq(ordered & ahead), key_hash.eq(hash_), skips.eq(self.word.skip)]

        # Lowest bit: first the group of eight, then the bit in it.
        place = Signal(5)
        groups = Signal(4)
        group = Signal(2)
        inside = Signal(8)
        m.d.comb += [
            groups.eq(Cat(left.word_select(n, 8).any() for n in range(4))),
            inside.eq(left.word_select(group, 8)),
            place[3:].eq(group),
        ]
        for n in reversed(range(4)):
            with m.If(groups[n]):
                m.d.comb += group.eq(n)
        for n in reversed(range(8)):
            with m.If(inside[n]):
                m.d.comb += place[:3].eq(n)
        more = Signal()
        m.d.comb += [
            more.eq((left & (left - 1)).any()),
            self.found.eq(left.any()),
            self.index.eq(place ^ key_hash[:5]),
            self.skip.eq(skips.bit_select(self.index, 1)),
            self.new_skip.eq(skips & ~(1 << self.index)),
            self.new_place.place.eq(Mux(more, place + 1, 0)),
            self.new_place.hash.eq(Mux(more, key_hash, redraw(key_hash))),
        ]
        return m


class EvValues(wiring.Component):
    """Owner of the entropy values of all profiles.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    table : TableBus
        EV_VALUE.
    block, index : profile x planes + plane, 5
        Address; ``value`` (32) follows one cycle later.
    base_profile, base_plane, base_block
        ``block`` of a profile and plane.
    idle : 1

    Source: profile.md 3.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        self.blocks = config.ev_profiles * config.planes
        block_bits = max(1, (self.blocks - 1).bit_length())
        super().__init__(
            {
                "table": In(TableBus()),
                "base_profile": In(8),
                "base_plane": In(plane_bits(config)),
                "base_block": Out(block_bits),
                "read": In(1),
                "block": In(block_bits),
                "index": In(5),
                "value": Out(32),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        table = self.table
        rows = self.blocks * EV_VALUES_PER_PLANE
        bits = EV_VALUE.field("port").low + EV_VALUE.field("port").width
        m.submodules.values = values = Memory(shape=bits, depth=rows, init=[])
        read_port, write_port = values.read_port(), values.write_port()
        allowed = Signal()
        asked = Signal()
        refused = Signal()
        m.d.comb += [
            self.base_block.eq(self.base_profile * self.config.planes + self.base_plane),
            allowed.eq((table.index < rows) & (table.word == 0)),
            table.ready.eq(~self.read),
            write_port.addr.eq(table.index),
            write_port.data.eq(table.write_data),
            write_port.en.eq(table.valid & table.ready & table.write & allowed),
            read_port.addr.eq(Mux(self.read, Cat(self.index, self.block), table.index)),
            self.value.eq(read_port.data[:32]),
            table.read_data.eq(read_port.data),
            table.done.eq(asked),
            table.error.eq(refused),
            self.idle.eq(~table.valid & ~asked),
        ]
        m.d.sync += asked.eq(table.valid & table.ready)
        with m.If(table.valid):
            m.d.sync += refused.eq(~allowed)
        return m
