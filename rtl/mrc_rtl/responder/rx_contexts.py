"""The moving part of the QPs' receive state, field by field in small memories."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..memory_rules import DISTRIBUTED_ROWS
from .psn_ring import near_bits
from .sack_bitmap import BITMAP_BITS

__all__ = ["RxContexts"]

#: The sum of bytes begins here, in units of 4 bytes, so that units of 256 are rounded up.
_ROUND_UP = 256 // 4 - 1


class RxContexts(wiring.Component):
    """One row a QP in a memory for each field that has a writer of its own.

    Fields, each with an output, an input ``new_`` and a pulse ``write_``:

    ``expected``
        Expected PSN, cumulative + 1; a second copy is looked up by admission.
    ``highest``
        Highest PSN that is placed.
    ``above``
        Placed packets above the expected PSN.
    ``messages``
        Completed messages.
    ``received``
        Received bytes in units of 4, begins at 63 so that units of 256 are rounded up.
    ``lowest``, ``turn``
        State of :class:`mrc_rtl.responder.sack_bitmap.SackBitmap`.
    ``peer``
        Low bits of the peer's QP number.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    qp : qp
        Row that is written.
    read, read_qp : 1, qp
        The fields are those of this QP from the next cycle on.
    fresh : 1
        From the next cycle on ``messages`` and ``received`` are those of a QP that starts, 0 and 63, and
        ``above`` is -1: it begins at 0 when one is added.
    expected_qp, expected_psn : qp, 24
        Admission's look-up, one cycle later, at any time.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        self.fields = {
            "expected": 24,
            "highest": 24,
            "above": config.psn_ring_bits + 1,
            "messages": 24,
            "received": 30,
            "lowest": near_bits(config),
            "turn": (config.mpr_psns // BITMAP_BITS - 1).bit_length(),
            "peer": 16,
        }
        members: dict[str, Any] = {
            "qp": In(config.qp_bits),
            "read": In(1),
            "read_qp": In(config.qp_bits),
            "fresh": In(1),
            "expected_qp": In(config.qp_bits),
            "expected_psn": Out(24),
        }
        for name, width in self.fields.items():
            members |= {name: Out(width), f"new_{name}": In(width), f"write_{name}": In(1)}
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        fresh_values = {"above": -1, "messages": 0, "received": _ROUND_UP}
        for name, width in self.fields.items():
            memory = Memory(shape=width, depth=self._config.qps, init=[])
            m.submodules[name] = memory
            write = memory.write_port()
            m.d.comb += [
                write.addr.eq(self.qp),
                write.data.eq(getattr(self, f"new_{name}")),
                write.en.eq(getattr(self, f"write_{name}")),
            ]
            self._reading(m, memory, getattr(self, name), fresh_values.get(name))
            if name == "expected":
                # Also in the cycle in which the row changes.
                look_up = memory.read_port(transparent_for=(write,))
                m.d.comb += [look_up.addr.eq(self.expected_qp), self.expected_psn.eq(look_up.data)]
        return m

    def _reading(self, m: Module, memory: Memory, field: Value, fresh_value: int | None) -> None:
        """Connect a field's read port: a register that can be set costs nothing behind distributed RAM."""
        if fresh_value is not None and self._config.qps <= DISTRIBUTED_ROWS:
            read = memory.read_port(domain="comb")
            m.d.comb += read.addr.eq(self.read_qp)
            with m.If(self.read):
                m.d.sync += field.eq(read.data)
            with m.If(self.fresh):
                m.d.sync += field.eq(fresh_value)
            return
        read = memory.read_port()
        m.d.comb += [read.addr.eq(self.read_qp), read.en.eq(self.read), field.eq(read.data)]
        if fresh_value is not None:
            was_fresh = Signal()
            with m.If(self.read):
                m.d.sync += was_fresh.eq(self.fresh)
            m.d.comb += field.eq(Mux(was_fresh, fresh_value, read.data))
