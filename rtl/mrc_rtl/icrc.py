"""Invariant CRC over a stream, one beat per cycle: the register and its constants.

Insertion into frames that are sent stands in :mod:`mrc_rtl.transmit.icrc_insert`, the check of received ones
in :mod:`mrc_rtl.responder.icrc_check`.

CRC-32 is linear: a step over half a beat is ``state' = A * state + D * data`` with constant bit matrices; at
64 bits ``D`` is 1. ``D`` works ahead of the loop in a stage of its own, so that the loop holds 32-bit
matrices at every width. Two consequences of linearity replace the shifting of bytes:

* The covered bytes start inside a beat, and some are masked. These count as zero: what they stand for, with
  the eight masked bytes of the InfiniBand header in front, is in the state from which the register starts.
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
    "IcrcCover",
    "IcrcStep",
    "advance",
    "advance_sharing",
    "masked_bytes",
    "shifted",
    "start_state",
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


def start_state(offset: int) -> int:
    """State before the first covered byte with which all bytes of :func:`masked_bytes` count as zero.

    The register is linear: the state holds what they stand for, taken back over the words in front of them.

    Parameters
    ----------
    offset : int
        Position of the inner IPv6 header in bytes.
    """
    state = 0
    for place, value in masked_bytes(offset).items():
        word, lane = divmod(place - offset, STATE_BITS // 8)
        state ^= shifted(value << 8 * lane, -STATE_BITS * (word + 1))
    return state


class IcrcCover(wiring.Component):
    """Says which lanes of a beat the ICRC covers as they are.

    Parameters
    ----------
    width : int
        Width of a beat in bits.
    offsets : sequence of int
        Positions in the beats of the inner IPv6 header, in bytes, that can be chosen.

    Members
    -------
    choice : In
        Which of the offsets; constant over a frame.
    first : In(1)
        First beat of a frame.
    enable : In(1)
        The beat is there.
    empty : Out(width / 8)
        Lanes that count as zero: those before the inner IPv6 header, and masked bytes.
    early, begin : Out(1)
        The beat stands before the one with the first covered byte, or is that one.
    """

    def __init__(self, width: int, offsets: Sequence[int]) -> None:
        self._lanes = width // 8
        self._offsets = tuple(offsets)
        super().__init__(
            {
                "choice": In(range(max(2, len(self._offsets)))),
                "first": In(1),
                "enable": In(1),
                "empty": Out(self._lanes),
                "early": Out(1),
                "begin": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self._lanes
        places = [sorted(masked_bytes(offset)) for offset in self._offsets]
        beats = max(max(some) for some in places) // lanes + 1
        position = Signal(range(beats + 1))
        beat = Signal(range(beats + 1))
        m.d.comb += beat.eq(Mux(self.first, 0, position))
        with m.If(self.enable & (beat != beats)):
            m.d.sync += position.eq(beat + 1)
        empty: list[Value] = [Const(0, 1)] * lanes
        early: Value = Const(0, 1)
        begin: Value = Const(0, 1)
        for choice, (offset, masked) in enumerate(zip(self._offsets, places, strict=True)):
            start = offset // lanes
            at = Signal(beats, name=f"at{choice}")
            m.d.comb += at.eq((1 << beat) & (self.choice == choice).replicate(beats))
            early = early | at[:start].any()
            begin = begin | at[start]
            for lane in range(lanes):
                numbers = {place // lanes for place in masked if place % lanes == lane}
                numbers |= {start} if start * lanes + lane < offset else set()
                empty[lane] = empty[lane] | Cat(at[number] for number in sorted(numbers)).any()
        m.d.comb += [
            self.early.eq(early),
            self.begin.eq(begin),
            self.empty.eq(Cat(some | self.early for some in empty)),
        ]
        return m


class IcrcStep(wiring.Component):
    """The CRC register: one beat per cycle, in two stages.

    The first stage folds each half of a beat into 32 bits, the second advances the register over one half
    after the other. The register holds the state before the last 32 bits are shifted out: the sum of the last
    word and what was before it. It starts from a state that holds the masked bytes. At 64 bits the matrix
    that makes the CRC of the register is the first one of the loop, which has nothing else to do behind the
    last beat of a frame, as the next one's first beat holds nothing that is covered.

    Parameters
    ----------
    width : int
        Width of a beat in bits, a multiple of 64.
    offsets : sequence of int
        Positions in the beats of the inner IPv6 header, in bytes, that can be chosen; multiples of 4, at 64
        bit of 8.

    Members
    -------
    data : In(width)
        A beat.
    empty : In(width / 8)
        Lanes that count as zero.
    early, begin, choice : In
        Beats before the one with the first covered byte, that one, and which of the offsets it has.
    short : In(1)
        Only the first half of the beat counts.
    valid : In(1)
        The beat is there.
    enable : In(1)
        Both stages advance.
    state : Out(32)
        The register, two enabled cycles after the beat.
    crc : Out(32)
        In that cycle: the register advanced by 32 bits, which makes the CRC of it.

    Raises
    ------
    ValueError
        The width is not a multiple of 64 bits.
    """

    def __init__(self, width: int, offsets: Sequence[int]) -> None:
        if width < 2 * STATE_BITS or width % (2 * STATE_BITS):
            raise ValueError(f"width must be a positive multiple of 64 bits, got {width}")
        self._width = width
        self._offsets = tuple(offsets)
        super().__init__(
            {
                "data": In(width),
                "empty": In(width // 8),
                "early": In(1),
                "begin": In(1),
                "choice": In(range(max(2, len(self._offsets)))),
                "short": In(1),
                "valid": In(1),
                "enable": In(1, init=1),
                "state": Out(STATE_BITS),
                "crc": Out(STATE_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self._width // 8
        half = self._width // 2
        narrow = half == STATE_BITS
        # States before the beat with the first covered byte.
        starts = [shifted(start_state(offset), -8 * (offset % lanes)) for offset in self._offsets]
        shares = [Signal(STATE_BITS, name=f"share{n}", reset_less=True) for n in range(2)]
        early, begin, short, valid = (
            Signal(name=f"share_{name}") for name in ("early", "begin", "short", "valid")
        )
        choice = Signal.like(self.choice)
        with m.If(self.enable):
            m.d.sync += valid.eq(self.valid)
            with m.If(self.valid):
                m.d.sync += [
                    early.eq(self.early),
                    begin.eq(self.begin),
                    choice.eq(self.choice),
                    short.eq(self.short),
                ]
            if narrow:
                # Flip-flops are reset where a multiplier by bits would take LUTs.
                for lane in range(lanes):
                    target = shares[lane // 4].word_select(lane % 4, 8)
                    with m.If(self.empty[lane] | ~self.valid):
                        m.d.sync += target.eq(0)
                    with m.Else():
                        m.d.sync += target.eq(self.data.word_select(lane, 8))
        before: Value = self.state
        if not narrow:
            columns = [
                shifted(1 << n % STATE_BITS, half - STATE_BITS - n // STATE_BITS * STATE_BITS)
                for n in range(half)
            ]
            covered = self.data & Cat((~bit).replicate(8) for bit in self.empty)
            with m.If(self.enable & self.valid):
                m.d.sync += [
                    shares[0].eq(_multiply(columns, covered[:half])),
                    shares[1].eq(_multiply(columns, covered[half:])),
                ]
            start = Signal(STATE_BITS)
            with m.Switch(choice):
                for number, value in enumerate(starts):
                    with m.Case(number):
                        m.d.comb += start.eq(value)
            before = Mux(begin, start, self.state)
        middle = Signal(STATE_BITS)
        m.d.comb += [
            middle.eq(advance_sharing(m, before, half, "first") ^ shares[0]),
            self.crc.eq(middle if narrow else advance(self.state, STATE_BITS)),
        ]
        with m.If(self.enable & valid):
            m.d.sync += self.state.eq(
                Mux(short, middle, advance_sharing(m, middle, half, "second") ^ shares[1])
            )
            if narrow:
                with m.If(early):
                    m.d.sync += self.state.eq(starts[0])
        return m
