"""Queue pairs that accept writes in the order of their PSNs only, as RoCE does."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..memory_rules import DISTRIBUTED_ROWS

__all__ = ["InOrder"]


class InOrder(wiring.Component):
    """Remembers the PSN that each QP accepts next, and whether its peer was told that it is missing.

    Claimed PSNs of such a QP leave no gap, so the one behind the newest of them is all there is to know. Its
    peer is told once of each gap; should that NACK be lost, the peer's timer finds out.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    look, look_qp : 1, qp
        Look up a QP.
    next_psn, told : 24, 1
        From two cycles behind ``look`` on, until the next one.
    qp, psn : qp, 24
        Of the packet that is decided.
    accepted : 1
        Pulse: it is accepted, the one behind it comes next.
    tell : 1
        Pulse: it came early, and the peer is told which one is missing.
    clear, clear_qp, clear_psn : 1, qp, 24
        Pulse: the QP starts from this PSN; the others stay until a cycle without the two pulses above.

    Source: profile.md 10 (single-path baseline); IBTA 9.7.5 (NAK of a PSN sequence error, once a gap).
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "look": In(1),
                "look_qp": In(config.qp_bits),
                "next_psn": Out(24),
                "told": Out(1),
                "qp": In(config.qp_bits),
                "psn": In(24),
                "accepted": In(1),
                "tell": In(1),
                "clear": In(1),
                "clear_qp": In(config.qp_bits),
                "clear_psn": In(24),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self._config
        layout = data.StructLayout({"next_psn": 24, "told": 1})
        m.submodules.rows = rows = Memory(shape=layout, depth=config.qps, init=[])
        write = rows.write_port()
        row = Signal(layout, reset_less=True)
        if config.qps > DISTRIBUTED_ROWS:
            read = rows.read_port()
            looked = Signal()
            m.d.comb += [read.en.eq(self.look), read.addr.eq(self.look_qp)]
            m.d.sync += looked.eq(self.look)
            with m.If(looked):
                m.d.sync += row.eq(read.data)
        else:
            read = rows.read_port(domain="comb")
            m.d.comb += read.addr.eq(self.look_qp)
            with m.If(self.look):
                m.d.sync += row.eq(read.data)
        changes = self.accepted | self.tell
        clearing = Signal()
        m.d.sync += clearing.eq((clearing | self.clear) & changes)
        m.d.comb += [
            self.next_psn.eq(row.next_psn),
            self.told.eq(row.told),
            write.en.eq(changes | self.clear | clearing),
            write.addr.eq(Mux(changes, self.qp, self.clear_qp)),
            write.data.told.eq(self.tell),
            write.data.next_psn.eq(
                Mux(self.accepted, self.psn + 1, Mux(self.tell, row.next_psn, self.clear_psn))
            ),
        ]
        return m
