"""Appends the invariant CRC to frames on their way to the ports.

Source: protocol.md 1.18; the arithmetic in :mod:`mrc_rtl.icrc`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import wire
from ..icrc import INNER_OFFSETS, STATE_BITS, IcrcCover, IcrcStep, advance
from ..stream import PacketStream

__all__ = ["IcrcInsert"]

#: Bytes by which the end of a frame misses a multiple of four.
_SHIFT = 2


class IcrcInsert(wiring.Component):
    """Appends the ICRC to frames; one beat per cycle, and one cycle more where the ICRC needs a beat more.

    Frames come without ICRC and padded, so that their length is 2 modulo 4 (Ethernet has 14 bytes, all that
    follows is a multiple of 4): each lane then holds one certain byte of the ICRC. The last word of a frame
    has two bytes; the register stops behind half a beat when the other half has none, and further words that
    are missing are taken back in stages of one bit of their number each.

    Parameters
    ----------
    width : int
        Width of a beat in bits.
    tag_bits : int
        Bits that travel beside each beat.

    Members
    -------
    sink : In(PacketStream)
        ``tready`` is low in the cycle after a last beat that needs another one behind it, and while
        ``source`` waits.
    srv6 : In(1)
        The inner IPv6 header stands behind an outer one; constant over a frame.
    sink_tag, source_tag : In, Out(tag_bits)
        For the owner's use.
    source : Out(PacketStream)
    idle : Out(1)
        No beat is held.
    """

    def __init__(self, width: int, tag_bits: int = 1) -> None:
        self._width = width
        self._tag_bits = tag_bits
        super().__init__(
            {
                "sink": In(PacketStream(width)),
                "srv6": In(1),
                "sink_tag": In(tag_bits),
                "source": Out(PacketStream(width)),
                "source_tag": Out(tag_bits),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self._width // 8
        moving = Signal()
        split = Signal()
        beyond = Signal()
        take = Signal()
        at_start = Signal(init=1)
        m.d.comb += [
            moving.eq(~self.source.tvalid | self.source.tready),
            self.sink.tready.eq(moving & ~beyond),
            take.eq(self.sink.tvalid & self.sink.tready),
            # A frame that fills its last beat but for two bytes: the ICRC lies on both sides of the edge.
            split.eq(self.sink.tlast & self.sink.tkeep[lanes - 3]),
        ]
        with m.If(moving):
            m.d.sync += beyond.eq(take & split)
        with m.If(take):
            m.d.sync += at_start.eq(self.sink.tlast)

        # The ICRC works on beats that begin with the last two lanes of the beat before: so the words of the
        # ICRC are whole, and all that is covered ends with one.
        behind = Signal(8 * _SHIFT)
        with m.If(take):
            m.d.sync += behind.eq(self.sink.tdata[-8 * _SHIFT :])
        offsets = [offset + _SHIFT for offset in INNER_OFFSETS]
        m.submodules.cover = cover = IcrcCover(self._width, offsets)
        m.submodules.step = step = IcrcStep(self._width, offsets)
        missing = Cat(Const(0, _SHIFT), ~self.sink.tkeep)[:lanes]
        m.d.comb += [
            cover.choice.eq(self.srv6),
            cover.first.eq(at_start),
            cover.enable.eq(take),
            step.data.eq(Cat(behind, self.sink.tdata)),
            # At 64 bits a beat lacks nothing or a whole half, which does not count then.
            step.empty.eq(cover.empty | (missing if lanes > 8 else 0)),
            step.early.eq(cover.early),
            step.begin.eq(cover.begin),
            step.choice.eq(self.srv6),
            step.short.eq(self.sink.tlast & ~self.sink.tkeep[lanes // 2]),
            step.valid.eq(take),
            step.enable.eq(moving),
        ]

        # The beats wait beside the register and the stages behind it. ``groups``: words that the
        # last half of a beat that counts lacks.
        stages = (lanes // 8 - 1).bit_length()
        groups = Signal(stages)
        for group in range(lanes // 4):
            with m.If(self.sink.tkeep[4 * group]):
                m.d.comb += groups.eq(~Const(group, stages))
        beat: dict[str, Value] = {
            "data": self.sink.tdata,
            "keep": self.sink.tkeep,
            "last": self.sink.tlast,
            "split": split,
            "tag": self.sink_tag,
            "groups": groups,
        }
        valid: Value = take
        held: list[Value] = []
        state: Value = step.state
        for depth in range(1 + max(1, stages)):
            if depth >= 2:
                before, state = state, Signal(STATE_BITS, name=f"state{depth}")
                with m.If(moving & valid):
                    m.d.sync += state.eq(before)
            delayed = {name: Signal(len(value), name=f"{name}{depth}") for name, value in beat.items()}
            delayed_valid = Signal(name=f"valid{depth}")
            with m.If(moving):
                m.d.sync += delayed_valid.eq(valid)
                with m.If(valid):
                    m.d.sync += [delayed[name].eq(value) for name, value in beat.items()]
            beat, valid = delayed, delayed_valid
            held.append(valid)
            if 1 <= depth <= stages:
                fours = 1 << depth - 1
                state = Mux(beat["groups"][depth - 1], advance(state, -32 * fours), state)

        # Lane n holds byte n - 2 modulo 4 of the ICRC, behind the last byte of the frame.
        icrc = Signal(STATE_BITS)
        crc = advance(state, STATE_BITS) if stages else step.crc
        m.d.comb += icrc.eq(crc ^ wire.ICRC_FINAL_XOR)
        rest = Signal(16)
        rest_waits = Signal()
        keep, last = beat["keep"], beat["last"]
        with m.If(moving):
            m.d.sync += [
                self.source.tvalid.eq(valid | rest_waits),
                rest_waits.eq(valid & last & beat["split"]),
            ]
            with m.If(valid):
                m.d.sync += [
                    self.source.tlast.eq(last & ~beat["split"]),
                    self.source_tag.eq(beat["tag"]),
                    rest.eq(icrc[16:]),
                ]
                for lane in range(lanes):
                    near = keep[lane - 4] if lane >= 4 else 1
                    byte = icrc.word_select((lane - 2) % 4, 8)
                    place = slice(8 * lane, 8 * lane + 8)
                    m.d.sync += [
                        self.source.tdata[place].eq(
                            Mux(last & ~keep[lane] & near, byte, beat["data"][place])
                        ),
                        self.source.tkeep[lane].eq(keep[lane] | last & near),
                    ]
            with m.Elif(rest_waits):
                m.d.sync += [
                    self.source.tdata[:16].eq(rest),
                    self.source.tkeep.eq(0b11),
                    self.source.tlast.eq(1),
                ]
        m.d.comb += self.idle.eq(~(self.sink.tvalid | self.source.tvalid | rest_waits | Cat(held).any()))
        return m
