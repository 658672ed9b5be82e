"""Turns buffer beats to the byte lanes of their destination."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import NicConfig

__all__ = ["LaneAligner"]

#: Levels of two-way multiplexers between two registers.
_LEVELS = 3


class LaneAligner(wiring.Component):
    """A pipeline that takes one buffer beat a cycle and gives one bus beat a cycle, with strobes.

    Payload starts in lane 0 of its first buffer beat and in lane ``offset`` of its first bus beat. A beat is
    rotated by ``offset`` lanes; the lanes below come from the rotated beat before it. The last bus beat may
    need no buffer beat of its own: what is read then does not show.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    valid : 1
        A beat enters.
    advance : 1
        The beats on their way move on; must be set when none is offered.
    data : data_width per plane
        Output of each plane's buffer in this cycle; ``plane`` says which one counts.
    offset, end : log2 of the lanes
        Lane of the packet's first byte and lane behind its last one (0: the last bus beat is full).
    first, last, burst_end : 1
        First and last bus beat of the packet; last of a burst.
    beat_valid, beat, strobes, beat_last
        A bus beat, ``latency`` cycles later.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        self.lane_bits = (config.data_bytes - 1).bit_length()
        super().__init__(
            {
                "valid": In(1),
                "advance": In(1),
                "data": In(config.data_width).array(config.planes),
                "plane": In(records.plane_bits(config)),
                "offset": In(self.lane_bits),
                "end": In(self.lane_bits),
                "first": In(1),
                "last": In(1),
                "burst_end": In(1),
                "beat_valid": Out(1),
                "beat": Out(config.data_width),
                "strobes": Out(config.data_bytes),
                "beat_last": Out(1),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from a beat's entry to its bus beat."""
        return 2 + -(-self.lane_bits // _LEVELS)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self.config.data_bytes

        # The plane's beat, and which lanes count.
        valid = Signal()
        turning = Signal(self.config.data_width)
        offset = Signal(self.lane_bits)
        low = Signal(lanes)  # lanes that come from the beat before
        strobes = Signal(lanes)
        burst_end = Signal()
        advance = self.advance
        with m.If(advance):
            m.d.sync += valid.eq(self.valid)
        with m.If(self.valid & advance):
            with m.Switch(self.plane):
                for number, beat in enumerate(self.data):
                    with m.Case(number):
                        m.d.sync += turning.eq(beat)
            m.d.sync += [offset.eq(self.offset), burst_end.eq(self.burst_end)]
            for lane in range(lanes):
                below = lane < self.offset
                inside = (self.end == 0) | (lane < self.end)
                m.d.sync += [
                    low[lane].eq(below),
                    strobes[lane].eq(~(self.first & below) & (~self.last | inside)),
                ]

        # Rotation, some levels a stage.
        for base in range(0, self.lane_bits, _LEVELS):
            bits = range(base, min(base + _LEVELS, self.lane_bits))
            turned = turning
            for bit in bits:
                level = Signal(self.config.data_width, name=f"level{bit}")
                with m.If(offset[bit]):
                    m.d.comb += level.eq(turned.rotate_left(8 << bit))
                with m.Else():
                    m.d.comb += level.eq(turned)
                turned = level
            later = {}
            for name, source in {
                "valid": valid, "turning": turned, "offset": offset, "low": low,
                "strobes": strobes, "burst_end": burst_end,
            }.items():  # fmt: skip
                later[name] = Signal.like(source, name=f"{name}{base}")
                with m.If(advance if name == "valid" else valid & advance):
                    m.d.sync += later[name].eq(source)
            valid, turning, offset = later["valid"], later["turning"], later["offset"]
            low, strobes, burst_end = later["low"], later["strobes"], later["burst_end"]

        before = Signal(self.config.data_width)
        with m.If(advance):
            m.d.sync += self.beat_valid.eq(valid)
        with m.If(valid & advance):
            m.d.sync += [
                before.eq(turning),
                self.strobes.eq(strobes),
                self.beat_last.eq(burst_end),
                self.beat.eq(turning),
            ]
            for lane in range(lanes):
                with m.If(low[lane]):
                    m.d.sync += self.beat[8 * lane : 8 * lane + 8].eq(before[8 * lane : 8 * lane + 8])
        return m
