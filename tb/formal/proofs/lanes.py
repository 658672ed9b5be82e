"""Lanes of placement: every byte stands where it belongs, and no other lane is written."""

from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Cat, Cover, Module, Mux, Signal

from mrc_rtl.responder import placement_lanes as under_proof

from ..opened import Opened, free_inputs
from ..proof import Proof, implies

__all__ = ["LanesProof"]


class LanesProof(Proof):
    """One arbitrary lane of the bus is watched, for every sequence of beats and pauses.

    Nothing is assumed. The lane must show the byte that many lanes down the beat that entered, or, below the
    offset, the byte of the beat before it; it is written unless it lies below the packet's first byte or
    above its last one.

    Parameters
    ----------
    config : NicConfig
        64 bits wide: the pipeline has one stage of shifts.
    """

    def describe(self, m: Module) -> None:
        """Offer any beats, and hold the bus at any time."""
        config = self.config
        block = under_proof.LaneAligner(config)
        opened = Opened(m, "lanes", block)
        free_inputs(m, block)
        size, bits = config.data_bytes, block.lane_bits
        enters = block.valid & block.advance
        chosen = Signal(config.data_width)
        with m.Switch(block.plane):
            for number, beat in enumerate(block.data):
                with m.Case(number):
                    m.d.comb += chosen.eq(beat)

        # A copy of what entered, in step with the pipeline.
        fields = {
            "now": config.data_width, "before": config.data_width, "offset": bits, "end": bits,
            "first": 1, "last": 1, "burst_end": 1,
        }  # fmt: skip
        inner = {name: Signal(width, name=f"inner_{name}") for name, width in fields.items()}
        outer = {name: Signal(width, name=f"outer_{name}") for name, width in fields.items()}
        inner_valid, outer_valid = Signal(), Signal()
        with m.If(block.advance):
            m.d.sync += [inner_valid.eq(block.valid), outer_valid.eq(inner_valid)]
        with m.If(enters):
            m.d.sync += [inner["now"].eq(chosen), inner["before"].eq(inner["now"])]
            m.d.sync += [inner[name].eq(getattr(block, name)) for name in list(fields)[2:]]
        with m.If(inner_valid & block.advance):
            m.d.sync += [outer[name].eq(inner[name]) for name in fields]

        lane = AnyConst(bits)
        offset, wide = outer["offset"], Signal(bits + 1)
        both = Cat(outer["before"], outer["now"])
        m.d.comb += wide.eq(lane + size - offset)  # of the byte, from the beat before on
        left_out = (outer["first"] & (lane < offset)) | (outer["last"] & (lane > outer["end"]))
        m.d.comb += [
            Assert(block.beat_valid == outer_valid),
            Assert(implies(outer_valid, block.beat.word_select(lane, 8) == both.word_select(wide, 8))),
            Assert(implies(outer_valid, block.strobes.bit_select(lane, 1) == ~left_out)),
            Assert(implies(outer_valid, block.beat_last == outer["burst_end"])),
            # Induction.
            Assert(opened.signal("valid") == inner_valid),
        ]
        inner_left_out = (inner["first"] & (lane < inner["offset"])) | (inner["last"] & (lane > inner["end"]))
        window = opened.signal("window")
        m.d.comb += [
            Assert(window[config.data_width - 8 :] == inner["now"]),
            Assert(window[: config.data_width - 8] == inner["before"][8:]),
            Assert(implies(inner_valid, opened.signal("shift") == ~inner["offset"])),
            Assert(
                implies(inner_valid, opened.signal("$signal", size).bit_select(lane, 1) == ~inner_left_out)
            ),
            Assert(implies(inner_valid, opened.signal("$signal", 1) == inner["burst_end"])),
            Cover(outer_valid & (offset == 5) & (lane == 2) & ~outer["first"] & ~left_out),
            Cover(outer_valid & outer["first"] & left_out & Mux(lane == 0, 1, 0)),
        ]
