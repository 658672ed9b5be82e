"""States of the entropy values of a QP on a plane, as bits, and what the operations on them make of each."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import PathOperation

__all__ = ["EvCode", "EvStep", "ORDERED", "change_detail", "ev_policy", "ev_word", "rotation"]

_HASH_BITS = 11

#: First of the operations that only the host orders; those before it come from feedback and probes.
ORDERED = PathOperation.ALLOW


class EvCode(enum.Enum, shape=3):
    """State of one EV: bits good, skip and bad, from bit 0.

    BAD_TWICE: blamed for two losses or more, or condemned by the responder. OUT is DENIED, or no EV at all.
    """

    OUT = 0b000
    GOOD = 0b001
    BACKUP = 0b010
    SKIP = 0b011
    BAD = 0b100
    BAD_TWICE = 0b110
    FLOORED = 0b111


def ev_word() -> data.StructLayout:
    """What a pick sees of the 32 EVs of a (QP, plane): 10 GOOD, 11 SKIP, else not to be used."""
    return data.StructLayout({"good": 32, "skip": 32})


def rotation() -> data.StructLayout:
    """Place in the permuted order, and a shift register whose low five bits are the permutation key."""
    return data.StructLayout({"place": 5, "hash": _HASH_BITS})


def ev_policy(config: NicConfig) -> data.StructLayout:
    """What QPs of a profile do with feedback (:data:`mrc_rtl.tables.EV_POLICY`)."""
    return data.StructLayout(
        {"min_active": (config.planes * 32).bit_length(), "events": 2, "oblivious": 1, "floor_mask": 5}
    )


def change_detail() -> data.StructLayout:
    """``detail`` of an EV_CHANGE trace record, whose ``psn`` is the EV's place on its plane.

    ``old``, ``new``: the bits of :class:`EvCode`. ``cause``: a PathOperation, or 8 for a turn that used up a
    SKIP; of a second change (a backup that came or went) that of the first one.
    """
    return data.StructLayout({"unused": 32, "old": 4, "new": 4, "cause": 4, "second": 1, "rest": 19})


class EvStep(wiring.Component):
    """What one operation makes of the state of one EV; logic without a clock.

    Members
    -------
    operation : 3
        PathOperation; not looked at with ``met``.
    met : 1
        A pick met the EV, which is SKIP.
    drawn : 1
        A long SKIP that is met ends.
    oblivious : 1
        Marks, trims and losses do not count.
    code, new : 3
        EvCode before and after; of a loss as if there were no floor.
    retires : 1
        The EV was in use and is no more: a backup may take over.
    restores : 1
        It is in use again: a backup may go back.
    lost : 1
        It retires because of a loss: not when too few would be left.

    Source: protocol.md 2.2; profile.md 3 and 4.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "operation": In(3),
                "met": In(1),
                "drawn": In(1),
                "oblivious": In(1),
                "code": In(3),
                "new": Out(3),
                "retires": Out(1),
                "restores": Out(1),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        good, skip, bad = self.code
        operation = Signal(PathOperation)
        m.d.comb += [operation.eq(self.operation), self.new.eq(self.code)]
        with m.If(self.met):
            with m.If(~bad | self.drawn):
                m.d.comb += self.new.eq(EvCode.GOOD)
        with m.Else():
            with m.Switch(operation):
                with m.Case(PathOperation.SKIP):
                    with m.If(good & ~self.oblivious):
                        m.d.comb += self.new[1].eq(1)
                with m.Case(PathOperation.LOST):
                    with m.If((good | bad) & ~self.oblivious):
                        # A floored EV has been blamed before.
                        m.d.comb += [self.new.eq(EvCode.BAD), self.new[1].eq(bad), self.lost.eq(good)]
                with m.Case(PathOperation.CONDEMN):
                    with m.If(good):
                        m.d.comb += self.new.eq(EvCode.BAD_TWICE)
                with m.Case(PathOperation.UNDO):
                    with m.If(bad & ~self.oblivious):
                        m.d.comb += self.new.eq(EvCode.GOOD)
                        with m.If(~good & skip):
                            m.d.comb += self.new.eq(EvCode.BAD)
                with m.Case(PathOperation.RECOVER):
                    with m.If(good | bad):
                        m.d.comb += self.new.eq(EvCode.GOOD)
                with m.Case(PathOperation.ALLOW):
                    m.d.comb += self.new.eq(EvCode.GOOD)
                with m.Case(PathOperation.DENY):
                    m.d.comb += self.new.eq(EvCode.OUT)
        m.d.comb += [
            self.retires.eq(good & ~self.new[0]),
            self.restores.eq(~good & self.new[0]),
        ]
        return m
