"""What is known of the packets whose memory writes are outstanding."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig

__all__ = ["PlacementSlots"]

#: Most bursts of a packet: 4096 bytes touch three blocks of 256 beats of 8 bytes.
_BURST_BITS = 2


class PlacementSlots(wiring.Component):
    """Counts the missing answers of each slot in one small memory.

    Its only write port belongs to the command that takes a slot; answers wait for that cycle.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    open, opened, bursts, drop : 1, slot, 2, 1
        Pulse: a command takes slot ``opened`` and will have so many bursts; ``drop`` is kept for it.
    answer, answered, bad, ready : 1, slot, 1, 1
        The memory has answered a burst of slot ``answered``, ``bad``: with an error.
    asked, complete, failed, dropped : slot, 1, 1, 1
        State of a slot: no answer is missing, one was bad, and its ``drop``.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        bits = max(1, (config.placements - 1).bit_length())
        super().__init__(
            {
                "open": In(1),
                "opened": In(bits),
                "bursts": In(_BURST_BITS),
                "drop": In(1),
                "answer": In(1),
                "answered": In(bits),
                "bad": In(1),
                "ready": Out(1),
                "asked": In(bits),
                "complete": Out(1),
                "failed": Out(1),
                "dropped": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = data.StructLayout({"missing": _BURST_BITS, "failed": 1, "dropped": 1})
        m.submodules.memory = memory = Memory(shape=shape, depth=self._config.placements, init=[])
        write = memory.write_port()
        old, state = memory.read_port(domain="comb"), memory.read_port(domain="comb")
        m.d.comb += [
            old.addr.eq(self.answered),
            state.addr.eq(self.asked),
            self.ready.eq(~self.open),
            write.en.eq(self.open | self.answer),
            write.addr.eq(Mux(self.open, self.opened, self.answered)),
            write.data.missing.eq(Mux(self.open, self.bursts, old.data.missing - 1)),
            write.data.failed.eq(~self.open & (old.data.failed | self.bad)),
            write.data.dropped.eq(self.open & self.drop),
            self.complete.eq(state.data.missing == 0),
            self.failed.eq(state.data.failed),
            self.dropped.eq(state.data.dropped),
        ]
        return m
