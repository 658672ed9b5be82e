"""Turns buffer beats to the byte lanes of their destination."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import NicConfig

__all__ = ["LaneAligner"]

#: Levels of two-way multiplexers between two registers.
_LEVELS = 3


class LaneAligner(wiring.Component):
    """A pipeline that takes one buffer beat a cycle and gives one bus beat a cycle, with strobes.

    Payload starts in lane 0 of its first buffer beat and in lane ``offset`` of its first bus beat: a bus beat
    is a window of two buffer beats, which is narrowed in steps of halves. The last bus beat may need no
    buffer beat of its own: what is read then does not show.

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
        Lanes of the packet's first byte and of its last one.
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
        return 1 + -(-self.lane_bits // _LEVELS)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width, lanes = self.config.data_width, self.config.data_bytes
        advance = self.advance

        # The plane's beat behind the one before it, of which all but the lowest lane may be needed.
        valid = Signal()
        window: Value = Signal(2 * width - 8)
        shift: Value = Signal(self.lane_bits)
        carried = {"strobes": Signal(lanes), "burst_end": Signal()}
        with m.If(advance):
            m.d.sync += valid.eq(self.valid)
        with m.If(self.valid & advance):
            m.d.sync += window[: width - 8].eq(window[width:])
            with m.Switch(self.plane):
                for number, beat in enumerate(self.data):
                    with m.Case(number):
                        m.d.sync += window[width - 8 :].eq(beat)
            m.d.sync += [shift.eq(~self.offset), carried["burst_end"].eq(self.burst_end)]
            for lane in range(lanes):
                below, above = lane < self.offset, lane > self.end
                m.d.sync += carried["strobes"][lane].eq(~((self.first & below) | (self.last & above)))

        # The bus beat begins as many lanes up the window as the offset leaves free; widest step first.
        for top in range(self.lane_bits, 0, -_LEVELS):
            for bit in reversed(range(max(0, top - _LEVELS), top)):
                step = 8 << bit
                narrowed = Signal(width + step - 8, name=f"window{bit}")
                m.d.comb += narrowed.eq(Mux(shift[bit], window[step:], window))
                window = narrowed
            if top <= _LEVELS:
                break
            now = {"valid": valid, "window": window, "shift": shift, **carried}
            later = {name: Signal.like(value, name=f"{name}{top}") for name, value in now.items()}
            with m.If(advance):
                m.d.sync += later["valid"].eq(valid)
            with m.If(valid & advance):
                m.d.sync += [later[name].eq(value) for name, value in now.items() if name != "valid"]
            valid, window, shift = later["valid"], later["window"], later["shift"]
            carried = {name: later[name] for name in carried}
        with m.If(advance):
            m.d.sync += self.beat_valid.eq(valid)
        with m.If(valid & advance):
            m.d.sync += [
                self.beat.eq(window),
                self.strobes.eq(carried["strobes"]),
                self.beat_last.eq(carried["burst_end"]),
            ]
        return m
