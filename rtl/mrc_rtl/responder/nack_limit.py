"""How often a QP's peer is told what it should have known: once in a round-trip time."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..memory_rules import DISTRIBUTED_ROWS

__all__ = ["NackLimit"]

#: Ticks of 128 ns after which the time of the last NACK comes again: 2.1 s.
_TIME_BITS = 24


class NackLimit(wiring.Component):
    """Remembers when each QP sent its last limited NACK.

    A NACK that comes a multiple of 2^24 ticks (2.1 s) behind the last one is held back as well, which does no
    harm: nobody waits for it.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    now : 24
        Ticks of 128 ns.
    interval : 16
        Ticks between two NACKs of a QP.
    look, look_qp : 1, qp
        Look up a QP.
    may : 1
        From two cycles behind ``look`` on: its last NACK is long ago, or there was none.
    sent, sent_qp : 1, qp
        Pulse: a NACK is sent.
    clear, clear_qp : 1, qp
        Pulse: the QP starts anew; ``clear_qp`` stays until a cycle without ``sent``.

    Source: protocol.md 7-Q5, profile.md 5.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "now": In(_TIME_BITS),
                "interval": In(16),
                "look": In(1),
                "look_qp": In(config.qp_bits),
                "may": Out(1),
                "sent": In(1),
                "sent_qp": In(config.qp_bits),
                "clear": In(1),
                "clear_qp": In(config.qp_bits),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self._config
        layout = data.StructLayout({"told": 1, "time": _TIME_BITS})
        m.submodules.times = times = Memory(shape=layout, depth=config.qps, init=[])
        write = times.write_port()
        found = Signal(layout, reset_less=True)
        if config.qps > DISTRIBUTED_ROWS:
            read = times.read_port()
            m.d.comb += [read.en.eq(self.look), read.addr.eq(self.look_qp), found.eq(read.data)]
        else:
            read = times.read_port(domain="comb")
            m.d.comb += read.addr.eq(self.look_qp)
            with m.If(self.look):
                m.d.sync += found.eq(read.data)
        since = Signal(_TIME_BITS)
        told = Signal()
        looked = Signal()
        m.d.sync += looked.eq(self.look)
        with m.If(looked):
            m.d.sync += [since.eq(self.now - found.time), told.eq(found.told)]
        clearing = Signal()
        m.d.sync += clearing.eq((clearing | self.clear) & self.sent)
        m.d.comb += [
            self.may.eq(~told | (since >= self.interval)),
            write.addr.eq(Mux(self.sent, self.sent_qp, self.clear_qp)),
            write.data.told.eq(self.sent),
            write.data.time.eq(self.now),
            write.en.eq(self.sent | self.clear | clearing),
        ]
        return m
