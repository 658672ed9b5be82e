"""Arithmetic of the congestion sequencer: one adder of 44 bits, and a divider beside it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .rows import ROW_BITS

__all__ = ["Datapath"]

#: Bits of the accumulator, and of the number that a division divides.
WIDTH, DIVIDEND = 44, 40

#: Bits of the multiplier and of a divisor, and where they lie in a row.
FACTOR, FACTOR_LOW = 24, 8


class Datapath(wiring.Component):
    """Accumulator A, multiplier M and factor V; what happens in a cycle is told by flags.

    A product grows from the top bit of M: A = 2 (A + R), where the row R is zero when the bit is. A quotient
    enters A from below while the dividend leaves at bit 39 and M holds the rest. What a positive product
    loses above bit 41 stays seen in bit 41, so that it is not taken for a small one.

    Members
    -------
    row : 36
        R of this cycle, signed.
    write, subtract, positive, not_positive, double, clear : 1
        A becomes the sum or difference; zero when that is (not) negative; twice the sum; zero.
    take : 1
        Only write a negative sum.
    load_factor, load_multiplier, shift, divide, last : 1
        V from the row; M from V; the next bit of M; a step of a division, the last one.
    negative, top : 1
        Sign of the sum; top bit of M.
    store : 36, high : 1
        A for the memory, without its low 8 bits with ``high``.

    Source: nscc.md 2.7.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "row": In(ROW_BITS),
                "write": In(1),
                "subtract": In(1),
                "positive": In(1),
                "not_positive": In(1),
                "double": In(1),
                "clear": In(1),
                "take": In(1),
                "load_factor": In(1),
                "load_multiplier": In(1),
                "shift": In(1),
                "divide": In(1),
                "last": In(1),
                "negative": Out(1),
                "top": Out(1),
                "high": In(1),
                "store": Out(ROW_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        total = Signal(WIDTH)
        value = Signal(WIDTH)
        row = Signal(WIDTH)
        fits = Signal()
        m.d.comb += [
            row.eq(self.row.as_signed()),
            # The bit below the sum is the carry in.
            value.eq((Cat(1, total) + Cat(self.subtract, row ^ self.subtract.replicate(WIDTH)))[1:]),
            self.negative.eq(value[-1]),
            self.store.eq(Mux(self.high, total[FACTOR_LOW:], total[:ROW_BITS])),
        ]

        complement = Signal(FACTOR)  # of V
        multiplier = Signal(FACTOR)
        rest = Signal(FACTOR + 1)
        difference = Signal(FACTOR + 1)
        m.d.comb += [
            rest.eq(Cat(total[DIVIDEND - 1] & self.divide, multiplier)),
            # Of a load the complement: nothing is in M then, and nothing carried in.
            difference.eq((Cat(1, rest) + Cat(self.divide, complement, 1))[1:]),
            fits.eq(self.divide & ~difference[-1]),
            self.top.eq(multiplier[-1]),
        ]
        with m.If(self.load_factor):
            m.d.sync += complement.eq(~self.row[FACTOR_LOW : FACTOR_LOW + FACTOR])
        with m.If(self.divide & self.last):
            m.d.sync += multiplier.eq(0)
        with m.Elif(self.divide | self.shift | self.load_multiplier):
            loaded = difference ^ self.load_multiplier.replicate(FACTOR + 1)
            m.d.sync += multiplier.eq(Mux(fits | self.load_multiplier, loaded, rest))

        doubled = Signal(WIDTH)
        sign = value[-1]
        m.d.comb += [
            doubled.eq(Cat(fits, value)),
            # A division takes its dividend out at bit 39.
            doubled[DIVIDEND].eq(value[DIVIDEND - 1] & ~self.divide),
            doubled[-3].eq(value[-4] | (~sign & value[-3:-1].any())),
            doubled[-2:].eq(sign.replicate(2)),
        ]
        with m.If(self.clear | (self.positive & sign) | (self.not_positive & ~sign)):
            m.d.sync += total.eq(0)
        with m.Elif(self.write & (~self.take | sign)):
            m.d.sync += total.eq(Mux(self.double, doubled, value))
        return m
