"""Which entropy values of a QP may be used on each plane, and where the rotation through them stands."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import plane_bits
from ..requester.context import ClearSequence
from ..stream import TableBus

__all__ = ["PathTable", "ev_word", "rotation"]

_HASH_BITS = 11


def ev_word() -> data.StructLayout:
    """State of the 32 EVs of a (QP, plane): 10 GOOD, 11 SKIP, 01 backup, 00 bad or denied."""
    return data.StructLayout({"good": 32, "skip": 32})


def rotation() -> data.StructLayout:
    """Place in the permuted order, and a shift register whose low five bits are the permutation key."""
    return data.StructLayout({"place": 5, "hash": _HASH_BITS})


class PathTable(wiring.Component):
    """Owner of the EV words, the rotations, and per QP the planes with an EV to send on.

    A host write starts the rotation of its (QP, plane) anew. It waits for a pause between two picks, and
    picks wait for it, so a pick works on one state of the word from reading it to writing it.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    table : TableBus
        EV_SET.
    look_qp, usable : qp_bits, planes
        Planes on which the QP has a GOOD or SKIP EV, one cycle after ``look_qp``.
    pick_qp, pick_plane, pick_control, word, place : qp_bits, plane bits, 1, ev_word, rotation
        Word and rotation, one cycle after the address. Control packets have a rotation of their own, so that
        they do not disturb how evenly data use the EVs.
    seed : 10
        Where the rotations of this NIC begin, so that NICs with the same EVs do not take them in step.
    write, write_skip, skip_group, new_skip, new_place
        With ``write``: the picked (QP, plane)'s rotation becomes ``new_place``, and with ``write_skip`` the
        skip bits of one group of eight EVs ``new_skip``. The address is the one picked.
    busy : 1, in
        A pick is in progress: its address stays.
    hold : 1
        A host command waits: start no pick.
    idle : 1

    Source: profile.md 3, design.md 4 rules 5 and 12.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "table": In(TableBus()),
                "look_qp": In(config.qp_bits),
                "usable": Out(config.planes),
                "pick_qp": In(config.qp_bits),
                "pick_plane": In(plane_bits(config)),
                "pick_control": In(1),
                "seed": In(10),
                "word": Out(ev_word()),
                "place": Out(rotation()),
                "write": In(1),
                "write_skip": In(1),
                "skip_group": In(2),
                "new_skip": In(8),
                "new_place": In(rotation()),
                "busy": In(1),
                "hold": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        rows = config.qps * config.planes
        # GOOD bits are the host's alone; of the skip bits a pick writes the eight of a group.
        m.submodules.good = good = Memory(shape=32, depth=rows, init=[])
        skips = [Memory(shape=8, depth=rows, init=[]) for _ in range(4)]
        for group, memory in enumerate(skips):
            m.submodules[f"skip{group}"] = memory
        m.submodules.places = places = Memory(shape=rotation(), depth=2 * rows, init=[])
        m.submodules.planes = planes = Memory(shape=config.planes, depth=config.qps, init=[])
        m.submodules.sequence = sequence = ClearSequence(config.qps)
        good_read, good_write = good.read_port(), good.write_port()
        skip_reads = [memory.read_port() for memory in skips]
        skip_writes = [memory.write_port() for memory in skips]
        place_read, place_write = places.read_port(), places.write_port()
        look_read, change_read, plane_write = planes.read_port(), planes.read_port(), planes.write_port()
        table = self.table

        # A row is a QP and a plane; the host's command tells only the row, which is then taken apart.
        address = Signal(range(rows))
        row = Signal(range(rows))
        qp = Signal(config.qp_bits)
        plane = Signal(range(config.planes))
        rest = Signal(range(rows))
        command = Signal()  # the address is the command's
        access = Signal()  # its word is written
        m.d.comb += [
            row.eq(table.index),
            address.eq(Mux(command, row, self.pick_qp * config.planes + self.pick_plane)),
            look_read.addr.eq(self.look_qp),
            self.usable.eq(look_read.data),
            change_read.addr.eq(qp),
            good_read.addr.eq(address),
            self.word.good.eq(good_read.data),
            self.word.skip.eq(Cat(port.data for port in skip_reads)),
            place_read.addr.eq(Cat(self.pick_control, address)),
            self.place.eq(place_read.data),
            good_write.addr.eq(row),
            good_write.data.eq(table.write_data),
            good_write.en.eq(access),
            place_write.addr.eq(Cat(self.pick_control, address)),
            place_write.data.eq(self.new_place),
            place_write.en.eq(self.write),
            plane_write.addr.eq(qp),
            table.read_data.eq(self.word),
        ]
        for group, (reader, writer) in enumerate(zip(skip_reads, skip_writes, strict=True)):
            picked = self.write & self.write_skip & (self.skip_group == group)
            m.d.comb += [
                reader.addr.eq(address),
                writer.addr.eq(address),
                writer.data.eq(
                    Mux(command, table.write_data[32 + 8 * group : 40 + 8 * group], self.new_skip)
                ),
                writer.en.eq(access | picked),
            ]
        one_hot = Signal(config.planes)
        m.d.comb += one_hot.eq(1 << plane)
        refused = Signal()
        restarted = Signal()  # the rotation for data begins anew, that for control packets is next
        m.d.comb += table.error.eq(refused)
        with m.FSM() as states:
            with m.State("IDLE"):
                m.d.sync += [rest.eq(row), qp.eq(0), refused.eq(0)]
                with m.If(table.valid & sequence.cleared):
                    m.next = "DIVIDE"
                    with m.If((table.index >= rows) | (table.word != 0)):
                        m.d.comb += table.ready.eq(1)
                        m.d.sync += refused.eq(1)
                        m.next = "DONE"
            with m.State("DIVIDE"):
                m.d.sync += plane.eq(rest)
                with m.If(rest < config.planes):
                    m.next = "WAIT"
                with m.Else():
                    m.d.sync += [rest.eq(rest - config.planes), qp.eq(qp + 1)]
            with m.State("WAIT"):
                m.d.comb += self.hold.eq(1)
                with m.If(~self.busy):
                    m.next = "ACCESS"
            with m.State("ACCESS"):
                m.d.comb += [self.hold.eq(1), command.eq(1)]
                m.next = "RESTART"
                with m.If(~table.write):
                    m.d.comb += table.ready.eq(1)
                    m.next = "DONE"
                with m.Else():
                    some = table.write_data[:32].any()
                    m.d.comb += [
                        access.eq(1),
                        plane_write.data.eq(
                            (change_read.data & ~one_hot) | (one_hot & some.replicate(config.planes))
                        ),
                        plane_write.en.eq(1),
                    ]
            with m.State("RESTART"):
                m.d.comb += [
                    self.hold.eq(1),
                    command.eq(1),
                    place_write.addr.eq(Cat(restarted, row)),
                    place_write.data.place.eq(0),
                    # Any value but zero keeps the shift register going; rows start at different keys.
                    place_write.data.hash.eq(Cat(Const(1, 1), (row ^ self.seed)[: _HASH_BITS - 1])),
                    place_write.en.eq(1),
                ]
                m.d.sync += restarted.eq(~restarted)
                with m.If(restarted):
                    m.d.comb += table.ready.eq(1)
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += table.done.eq(1)
                m.next = "IDLE"
        with m.If(~sequence.cleared):
            m.d.comb += [plane_write.addr.eq(sequence.row), plane_write.data.eq(0), plane_write.en.eq(1)]
        m.d.comb += self.idle.eq(states.ongoing("IDLE") & ~table.valid & sequence.cleared)
        return m
