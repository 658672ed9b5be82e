"""Invariant CRC over a stream, one beat per cycle: the register and its constants.

Insertion into frames that are sent stands in :mod:`mrc_rtl.transmit.icrc_insert`, the check of received ones
in :mod:`mrc_rtl.responder.icrc_check`.

CRC-32 is linear: a step over half a beat is ``state' = A * state + D * data`` with constant bit matrices; at
64 bits ``D`` is 1. ``D`` works ahead of the loop in a stage of its own, so that the loop holds 32-bit
matrices at every width. Two consequences of linearity replace the shifting of bytes:

* The covered bytes start inside a beat. Bytes before them count as zero with a zero state, and the state
  that the eight masked bytes of the InfiniBand header would leave is folded into the first four covered
  bytes, which are the constant 6F FF FF FF.
* A frame ends inside a beat. The missing bytes count as zero. A checker compares the state with the residue
  advanced by that many zero bytes; an inserter takes them back with the inverse of ``A``.

Bits are in the order of the wire: lane 0 first, least significant bit first.

Source: protocol.md 1.18; IBTA volume 1 annex A17 (RoCEv2); masked bytes and constants in
:mod:`mrc_rtl.wire`.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from . import wire

__all__ = [
    "INNER_OFFSETS",
    "STATE_BITS",
    "IcrcMasks",
    "IcrcStep",
    "advance",
    "advance_sharing",
    "masked_bytes",
    "shifted",
]

_POLYNOMIAL = wire.ICRC_POLYNOMIAL_REFLECTED
#: Bits of the CRC register.
STATE_BITS = 32

#: Offset of the inner IPv6 header: plain, and behind one outer IPv6 header.
INNER_OFFSETS = (wire.ETHERNET.bytes, wire.ETHERNET.bytes + wire.IPV6.bytes)


def _forward(state: int, bits: int) -> int:
    """State after ``bits`` zero bits."""
    for _ in range(bits):
        state = state >> 1 ^ (_POLYNOMIAL if state & 1 else 0)
    return state


def _backward(state: int, bits: int) -> int:
    """State before ``bits`` zero bits; bit 31 of the polynomial tells whether it was added."""
    for _ in range(bits):
        state = (state ^ _POLYNOMIAL) << 1 | 1 if state >> 31 else state << 1
    return state


def shifted(state: int, bits: int) -> int:
    """State after ``bits`` zero bits; with a negative number, the state before them."""
    return _forward(state, bits) if bits >= 0 else _backward(state, -bits)


@lru_cache
def _sums(columns: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """Sums that several rows of a bit matrix have in common, and the rows in terms of inputs and sums.

    A sum is of two or three terms, so that it fits a LUT4 with one input to spare; term ``n`` is input ``n``,
    or behind the inputs a sum. The sum that saves most is taken first, as long as one saves anything.
    """
    rows = [{n for n, column in enumerate(columns) if column >> row & 1} for row in range(STATE_BITS)]
    sums: list[tuple[int, ...]] = []
    while True:
        uses = Counter(part for row in rows for size in (2, 3) for part in combinations(sorted(row), size))
        # A LUT4 takes three terms off a row's sum, of which one stays.
        part = max(uses, key=lambda part: (uses[part] * (len(part) - 1), part), default=())
        if uses[part] * (len(part) - 1) <= 3:
            return tuple(sums), tuple(tuple(sorted(row)) for row in rows)
        for row in rows:
            if row.issuperset(part):
                row.difference_update(part)
                row.add(len(columns) + len(sums))
        sums.append(part)


def _multiply(columns: Sequence[int], vector: Value) -> Value:
    """Product of a bit matrix, given by columns, with a vector: the parity of the masked vector per row."""
    return Cat(
        (vector & Const(sum((column >> row & 1) << n for n, column in enumerate(columns)), len(vector))).xor()
        for row in range(STATE_BITS)
    )


def advance(state: Value, bits: int) -> Value:
    """State after a number of zero bits, as an expression of constant matrices.

    Parameters
    ----------
    state : Value
        32 bits.
    bits : int
        Zero bits that follow; negative: that are taken back.
    """
    return _multiply([shifted(1 << n, bits) for n in range(STATE_BITS)], state)


def advance_sharing(m: Module, state: Value, bits: int, name: str) -> Value:
    """As :func:`advance`, with what rows have in common made once, which takes a third of the area off.

    Parameters
    ----------
    m : Module
        Gets the common sums.
    state : Value
        32 bits.
    bits : int
        Zero bits that follow.
    name : str
        Begin of the names of the common sums.
    """
    sums, rows = _sums(tuple(shifted(1 << n, bits) for n in range(STATE_BITS)))
    terms: list[Value] = [state[n] for n in range(STATE_BITS)]
    for number, part in enumerate(sums):
        common = Signal(name=f"{name}{number}")
        m.d.comb += common.eq(Cat(terms[n] for n in part).xor())
        terms.append(common)
    return Cat(Cat(terms[n] for n in row).xor() for row in rows)


def _start_constant() -> int:
    """First four covered bytes with the state behind the masked InfiniBand header folded in."""
    state = wire.ICRC_INITIAL
    for byte in wire.ICRC_MASKED_PREFIX:
        state = _forward(state ^ byte, 8)
    return state ^ int.from_bytes(b"\x6f\xff\xff\xff", "little")


def masked_bytes(offset: int) -> dict[int, int]:
    """Bytes of a frame that the ICRC does not cover as they are: position and value that stands for them.

    Parameters
    ----------
    offset : int
        Position of the inner IPv6 header in bytes; all bytes before it are zero and not listed.
    """
    udp = offset + wire.IPV6.bytes
    bth = udp + wire.UDP.bytes
    masked = dict(enumerate(_start_constant().to_bytes(4, "little"), offset))
    masked[offset + wire.IPV6.byte_offset("hop_limit")] = 0xFF
    checksum = udp + wire.UDP.byte_offset("checksum")
    masked |= {checksum: 0xFF, checksum + 1: 0xFF, bth + wire.BTH.byte_offset("var_res"): 0xFF}
    return masked


class IcrcMasks(wiring.Component):
    """Replaces what the ICRC does not cover: bytes before the inner IPv6 header, variant fields, no bytes.

    Parameters
    ----------
    width : int
        Width of a beat in bits.
    offsets : sequence of int
        Positions of the inner IPv6 header that can be chosen.

    Members
    -------
    data, keep : In(width), In(width / 8)
        The beat and its valid lanes.
    choice : In
        Which of the offsets; constant over a frame.
    first : In(1)
        First beat of a frame.
    enable : In(1)
        The beat is there.
    masked : Out(width)
        The beat as covered, the same cycle.
    """

    def __init__(self, width: int, offsets: Sequence[int]) -> None:
        self._lanes = width // 8
        self._offsets = tuple(offsets)
        super().__init__(
            {
                "data": In(width),
                "keep": In(self._lanes),
                "choice": In(range(len(self._offsets)) if len(self._offsets) > 1 else 1),
                "first": In(1),
                "enable": In(1),
                "masked": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self._lanes
        patterns = [masked_bytes(offset) for offset in self._offsets]
        beats = max(max(pattern) for pattern in patterns) // lanes + 1
        position = Signal(range(beats + 1))
        beat = Signal(range(beats + 1))
        m.d.comb += beat.eq(Mux(self.first, 0, position))
        with m.If(self.enable & (beat != beats)):
            m.d.sync += position.eq(beat + 1)

        def spread(bits: Value) -> Value:
            return Cat(bit.replicate(8) for bit in bits)

        # Selecting bits and sums of products: a multiplexer by the beat's number costs several times as much.
        bare: Value = Const(0, lanes)
        forced: Value = Const(0, 8 * lanes)
        for choice, (offset, pattern) in enumerate(zip(self._offsets, patterns, strict=True)):
            early = beat < offset // lanes
            chosen = self.choice == choice if len(patterns) > 1 else Const(1)
            bare = bare | (early & chosen).replicate(lanes)
            for number in range(offset // lanes, beats):
                places = range(number * lanes, (number + 1) * lanes)
                uncovered = sum(
                    1 << n for n, place in enumerate(places) if place < offset or place in pattern
                )
                force = sum(pattern.get(place, 0) << 8 * n for n, place in enumerate(places))
                here = Signal(name=f"beat{choice}_{number}")
                m.d.comb += here.eq((beat == number) & chosen)
                bare = bare | here.replicate(lanes) & uncovered
                forced = forced | here.replicate(8 * lanes) & force
        covered = Signal(lanes)
        m.d.comb += [
            covered.eq(~bare),
            self.masked.eq((self.data & spread(covered) | forced) & spread(self.keep)),
        ]
        return m


class IcrcStep(wiring.Component):
    """The CRC register: one beat per cycle, in two stages.

    The first stage folds each half of a beat into 32 bits, the second advances the register over one half
    after the other. The register holds the state before the last 32 bits are shifted out: the sum of the last
    word and what was before it.

    Parameters
    ----------
    width : int
        Width of a beat in bits, a multiple of 64.
    late : bool
        The beat that starts a frame holds nothing that is covered, and ``data`` is 0 while no beat is there.
        Then ``crc`` takes no logic of its own at 64 bits.

    Members
    -------
    data : In(width)
        A beat as covered.
    first : In(1)
        The beat starts a frame: the state before it is zero.
    short : In(1)
        Only the first half of the beat counts.
    valid : In(1)
        The beat is there.
    enable : In(1)
        Both stages advance.
    state : Out(32)
        The register, valid two enabled cycles after the beat.
    crc : Out(32)
        The CRC, which is the register advanced by 32 bits.

    Raises
    ------
    ValueError
        The width is not a multiple of 64 bits.
    """

    def __init__(self, width: int, *, late: bool = False) -> None:
        if width < 2 * STATE_BITS or width % (2 * STATE_BITS):
            raise ValueError(f"width must be a positive multiple of 64 bits, got {width}")
        self._width = width
        self._late = late
        super().__init__(
            {
                "data": In(width),
                "first": In(1),
                "short": In(1),
                "valid": In(1),
                "enable": In(1, init=1),
                "state": Out(STATE_BITS),
                "crc": Out(STATE_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        half = self._width // 2
        columns = [
            shifted(1 << n % STATE_BITS, half - STATE_BITS - n // STATE_BITS * STATE_BITS)
            for n in range(half)
        ]
        shares = [Signal(STATE_BITS, name=f"share{n}") for n in range(2)]
        share_first = Signal()
        share_short = Signal()
        share_valid = Signal()
        middle = Signal(STATE_BITS)
        # A late frame's first beat, and no beat, leaves the state of the frame before to be seen, and its
        # shares are zero.
        before = self.state if self._late else Mux(share_first, 0, self.state)
        m.d.comb += [
            middle.eq(advance_sharing(m, before, half, "first") ^ shares[0]),
            self.crc.eq(middle if self._late and half == STATE_BITS else advance(self.state, STATE_BITS)),
        ]
        with m.If(self.enable):
            m.d.sync += share_valid.eq(self.valid)
            with m.If(self.valid | self._late):
                m.d.sync += [
                    shares[0].eq(_multiply(columns, self.data[:half])),
                    shares[1].eq(_multiply(columns, self.data[half:])),
                    share_first.eq(self.first),
                    share_short.eq(self.short),
                ]
            with m.If(share_valid):
                m.d.sync += self.state.eq(
                    Mux(share_short, middle, advance_sharing(m, middle, half, "second") ^ shares[1])
                )
                if self._late:
                    with m.If(share_first):
                        m.d.sync += self.state.eq(0)
        return m
