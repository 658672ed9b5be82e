"""Spraying: the next plane, the next entropy value on it, and the table of values."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import plane_bits
from ..stream import TableBus
from ..tables import EV_VALUE, EV_VALUES_PER_PLANE
from .ev_state import ev_word, rotation

__all__ = ["EvPick", "EvValues", "PlaneChoice", "pick_stages"]

#: Rounds in which a slow plane must have had its turn before it is waited for again.
_PROBATION = 3


class PlaneChoice(wiring.Component):
    """Planes take turns in rounds: in a round each usable plane gets one packet, whichever has room first.

    So no plane is ever two packets ahead of another. A plane that has no room for longer than ``patience``
    while others wait for it is slow: rounds end without it until it has kept up with three of them. A plane
    without an entropy value, or whose port is down, has no part in the round.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    usable : planes
        Planes that are up and on which the QP has an entropy value.
    room : planes
        Planes that can take a frame.
    ask : 1
        A packet asks in this cycle.
    valid, plane
        The choice; it does not wait for ``take``.
    take : 1
        The choice is used, in a cycle with ``ask``: the round moves on, one cycle later.
    tick, patience : 16
        Time and the longest wait, in ticks of 128 ns.

    Source: design.md 4 rule 5, profile.md 3 (imbalance of at most one packet).
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "usable": In(config.planes),
                "room": In(config.planes),
                "ask": In(1),
                "valid": Out(1),
                "plane": Out(plane_bits(config)),
                "take": In(1),
                "tick": In(16),
                "patience": In(16),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        planes = self.config.planes
        turn = Signal(range(planes))
        served = Signal(planes)
        probation = [Signal(range(_PROBATION + 1), name=f"probation{plane}") for plane in range(planes)]
        slow = Signal(planes)
        due = Signal(planes)  # usable planes that still have a turn in this round
        new_round = Signal()
        candidates = Signal(planes)
        blocked = Signal()
        since = Signal(16)
        late = Signal()
        expired = Signal()
        m.d.comb += [
            slow.eq(Cat(count != 0 for count in probation)),
            due.eq(self.usable & ~served),
            blocked.eq(self.ask & ~(due & self.room).any() & (self.usable & self.room).any()),
            # Nobody is left to wait for: all had their turn, or only slow planes have not.
            new_round.eq(~(due & self.room).any() & (~(due & ~slow).any() | expired)),
            candidates.eq(self.room & Mux(new_round, self.usable, due)),
            self.valid.eq(candidates.any()),
        ]
        waiting = Signal()
        with m.If(self.ask):
            m.d.sync += waiting.eq(blocked & ~new_round)
            with m.If(~waiting):
                m.d.sync += since.eq(self.tick)
        # Registered, as the comparison is long: a wait ends one cycle later. What a wait that is over left
        # behind does not count, as ``waiting`` is 0 for a cycle between two waits.
        m.d.sync += late.eq(waiting & ((self.tick - since)[:16] > self.patience))
        m.d.comb += expired.eq(waiting & late)
        with m.Switch(turn):
            for origin in range(planes):
                with m.Case(origin):
                    for distance in reversed(range(planes)):
                        plane = (origin + distance) % planes
                        with m.If(candidates[plane]):
                            m.d.comb += self.plane.eq(plane)
        # What follows from a choice comes one cycle later; the next packet asks later still.
        taken = Signal()
        taken_plane = Signal.like(self.plane)
        began = Signal()  # a new round
        left_out = Signal(planes)
        m.d.sync += [
            taken.eq(self.take),
            taken_plane.eq(self.plane),
            began.eq(new_round),
            left_out.eq(due & new_round.replicate(planes)),
        ]
        chosen = Signal(planes)
        m.d.comb += chosen.eq(1 << taken_plane)
        with m.If(taken):
            m.d.sync += [
                turn.eq(Mux(taken_plane == planes - 1, 0, taken_plane + 1)),
                served.eq(Mux(began, chosen, served | chosen)),
            ]
            for plane, count in enumerate(probation):
                with m.If(left_out[plane]):
                    m.d.sync += count.eq(_PROBATION)
                with m.Elif(chosen[plane] & ~began & slow[plane]):
                    m.d.sync += count.eq(count - 1)
        return m


def pick_stages(config: NicConfig) -> int:
    """Stages of :class:`EvPick` that the interval between packets leaves time for."""
    return {16: 3, 8: 2, 4: 1}[config.packet_interval]


class EvPick(wiring.Component):
    """The pick inside a word of 32 entropy values, in two stages, or with registers behind its parts in three
    or four.

    In each rotation every GOOD EV comes once, in the order place 0 to 31, where EV i has the place i XOR key;
    with a new rotation comes a new key. A SKIP EV met is reported.

    Parameters
    ----------
    stages : int
        Cycles from ``word`` to the outcome: 1 (only what is at or behind the place is registered), 2 (the
        outcome, too) or 3 (the group of eight, too), for clocks that are high for their technology.

    Members
    -------
    word, place : ev_word, rotation
        Stage one; they stay until the outcome.
    restart : 1
        Stage one: begin a new rotation instead of going on at ``place``.
    index : 5
        Outcome: number of the EV found.
    found, skip : 1, 1
        Outcome: there is an EV at or behind the place; it is a SKIP one.
    draw : 5
        Outcome: random bits, others for each EV and rotation.
    new_place : rotation
        Outcome: what the rotation becomes.

    Source: design.md 4 rule 5; protocol.md 2.3 (permutation re-drawn at each wrap).
    """

    def __init__(self, *, stages: int) -> None:
        self.stages = stages
        super().__init__(
            {
                "word": In(ev_word()),
                "place": In(rotation()),
                "restart": In(1),
                "index": Out(5),
                "found": Out(1),
                "skip": Out(1),
                "draw": Out(5),
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
        # EV i is at or behind the place: by its group of eight, then by its number inside. The word itself is
        # not permuted, only the order in which the pick looks at it.
        key = hash_[:5]
        behind = Signal(4)
        same = Signal(4)
        inside_ahead = Signal(8)
        at = self.place.place
        m.d.comb += [
            behind.eq(Cat(self.restart | ((Const(g, 2) ^ key[3:]) > at[3:]) for g in range(4))),
            same.eq(Cat((Const(g, 2) ^ key[3:]) == at[3:] for g in range(4))),
            inside_ahead.eq(Cat((Const(n, 3) ^ key[:3]) >= at[:3] for n in range(8))),
        ]
        left = Signal(32)
        key_hash = Signal(11)
        m.d.sync += [
            left.eq(
                Cat(
                    self.word.good[i] & (behind[i // 8] | (same[i // 8] & inside_ahead[i % 8]))
                    for i in range(32)
                )
            ),
            key_hash.eq(hash_),
        ]

        # First in the order of places: first the group of eight, then the bit in it.
        def first(bits: Value, key: Value) -> Value:
            """Number of the set bit that comes first when bit i has the place i XOR ``key``."""
            if len(key) == 0:
                return Const(0, 0)
            half = len(bits) // 2
            upper = Signal(name=f"upper{half}")
            m.d.comb += upper.eq(Mux(key[-1], bits[half:].any(), ~bits[:half].any()))
            part = Signal(half, name=f"part{half}")
            m.d.comb += part.eq(Mux(upper, bits[half:], bits[:half]))
            return Cat(first(part, key[:-1]), upper)

        groups = Signal(4)
        first_group = Signal(2)
        m.d.comb += [
            groups.eq(Cat(left.word_select(n, 8).any() for n in range(4))),
            first_group.eq(first(groups, key_hash[3:5])),
        ]
        group = Signal(2)
        inside = Signal(8)
        inside_skip = Signal(8)
        some = Signal()
        others = Signal()  # groups with an EV left, besides the first one
        hash_then = Signal(11)
        grouped = m.d.sync if self.stages > 2 else m.d.comb
        grouped += [
            group.eq(first_group),
            inside.eq(left.word_select(first_group, 8)),
            inside_skip.eq(self.word.skip.word_select(first_group, 8)),
            some.eq(groups.any()),
            others.eq((groups & (groups - 1)).any()),
            hash_then.eq(key_hash),
        ]

        index = Signal(5)
        more = Signal()
        m.d.comb += [
            index.eq(Cat(first(inside, hash_then[:3]), group)),
            more.eq(others | (inside & (inside - 1)).any()),
        ]
        place = index ^ hash_then[:5]
        outcome = m.d.sync if self.stages > 1 else m.d.comb
        outcome += [
            self.found.eq(some),
            self.index.eq(index),
            self.skip.eq(inside_skip.bit_select(index[:3], 1)),
            self.draw.eq(hash_then[5:10] ^ index),
            self.new_place.place.eq(Mux(more, place + 1, 0)),
            self.new_place.hash.eq(Mux(more, hash_then, redraw(hash_then))),
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
