"""A plane's packet buffer: a ring of beats with commit and rollback."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import NicConfig
from .frame_words import WORD_BYTES

__all__ = ["PacketBuffer"]


class PacketBuffer(wiring.Component):
    """Gathers payload words to beats and keeps them until placement has read them.

    A frame's beats are written behind the committed ones. When the frame proves good they are committed, else
    the write pointer goes back: nothing can leak and nothing is freed twice. A frame that does not fit sets
    ``full`` and the rest of it is not written.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    valid, word, last : 1, 64, 1
        Words of one payload, first byte in lane 0; ``last`` completes the beat.
    commit, rollback : 1
        Pulse, between two payloads: keep the beats of this frame, or forget them.
    full : 1
        Beats of this frame are missing; cleared by commit and rollback.
    take, read_data : 1, data width
        Pulse: the oldest committed beat leaves the buffer; it stands on ``read_data`` from the next cycle on,
        until another one is taken.
    idle : 1
        No committed beat is held.

    Source: profile.md 5, design rule 13.
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "valid": In(1),
                "word": In(8 * WORD_BYTES),
                "last": In(1),
                "commit": In(1),
                "rollback": In(1),
                "full": Out(1),
                "take": In(1),
                "read_data": Out(config.data_width),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self._config
        address_bits = records.buffer_address_bits(config)
        words = config.data_bytes // WORD_BYTES
        m.submodules.beats = beats = Memory(shape=config.data_width, depth=1 << address_bits, init=[])
        read, write = beats.read_port(), beats.write_port()

        # Gathering: earlier words of the beat wait in registers, the last one goes straight on.
        complete = Signal()
        if words == 1:
            m.d.comb += [complete.eq(self.valid), write.data.eq(self.word)]
        else:
            lane = Signal(range(words))
            gathered = [Signal(8 * WORD_BYTES, name=f"gathered{n}") for n in range(words - 1)]
            m.d.comb += complete.eq(self.valid & (self.last | (lane == words - 1)))
            with m.If(self.valid):
                m.d.sync += lane.eq(Mux(complete, 0, lane + 1))
                for n, target in enumerate(gathered):
                    with m.If(lane == n):
                        m.d.sync += target.eq(self.word)
            with m.If(self.commit | self.rollback):
                m.d.sync += lane.eq(0)
            for n in range(words):
                part = write.data.word_select(n, 8 * WORD_BYTES)
                m.d.comb += part.eq(self.word if n == words - 1 else Mux(lane == n, self.word, gathered[n]))

        # Pointers have one bit more than addresses, so that full and empty differ.
        head = Signal(address_bits + 1)
        committed = Signal(address_bits + 1)
        tail = Signal(address_bits + 1)
        occupied = Signal(address_bits + 1)
        m.d.comb += [
            occupied.eq(head - tail),
            read.addr.eq(tail),
            read.en.eq(self.take),
            self.read_data.eq(read.data),
            write.addr.eq(head),
            write.en.eq(complete & ~occupied[-1] & ~self.full),
            self.idle.eq(committed == tail),
        ]
        with m.If(complete & occupied[-1]):
            m.d.sync += self.full.eq(1)
        with m.If(write.en):
            m.d.sync += head.eq(head + 1)
        with m.If(self.take):
            m.d.sync += tail.eq(tail + 1)
        with m.If(self.commit):
            m.d.sync += [committed.eq(head), self.full.eq(0)]
        with m.If(self.rollback):
            m.d.sync += [head.eq(committed), self.full.eq(0)]
        return m
