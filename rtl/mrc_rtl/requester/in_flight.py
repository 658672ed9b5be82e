"""Counts what is on its way inside the engine, per QP."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from .context import ClearSequence

__all__ = ["InFlight"]

_BITS = 7


class InFlight(wiring.Component):
    """Per QP: packets and retransmission entries that the engine still holds.

    A QP number may be used again when its count is zero; until then packets of the old QP could leave under
    the new one's addresses. One event a cycle.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    event, down, qp
        Count one up, or one down.
    watch_qp, empty
        ``empty``: nothing of ``watch_qp`` is in flight; valid two cycles after the last event.
    cleared : 1
        The sequence after reset is over.

    Source: profile.md 7 (QP destroy leaves nothing).
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "event": In(1),
                "down": In(1),
                "qp": In(config.qp_bits),
                "watch_qp": In(config.qp_bits),
                "empty": Out(1),
                "cleared": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.sequence = sequence = ClearSequence(self.config.qps)
        m.submodules.counts = counts = Memory(shape=_BITS, depth=self.config.qps, init=[])
        write_port = counts.write_port()
        read_port = counts.read_port(transparent_for=[write_port])
        watch_port = counts.read_port(transparent_for=[write_port])
        pending = Signal()
        down = Signal()
        qp = Signal(self.config.qp_bits)
        m.d.sync += pending.eq(self.event)
        with m.If(self.event):
            m.d.sync += [down.eq(self.down), qp.eq(self.qp)]
        m.d.comb += [
            self.cleared.eq(sequence.cleared),
            read_port.addr.eq(self.qp),
            write_port.addr.eq(qp),
            # One more, or, as all ones, one less.
            write_port.data.eq(read_port.data + Cat(1, down.replicate(_BITS - 1))),
            write_port.en.eq(pending),
            watch_port.addr.eq(self.watch_qp),
            self.empty.eq((watch_port.data == 0) & ~pending & ~self.event),
        ]
        with m.If(~sequence.cleared):
            m.d.comb += [write_port.addr.eq(sequence.row), write_port.data.eq(0), write_port.en.eq(1)]
        return m
