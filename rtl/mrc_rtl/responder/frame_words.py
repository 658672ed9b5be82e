"""A plane's beats as words of 64 bits, one a cycle, never holding the port."""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from ..config import PLANE_RECEIVE_BITS, NicConfig
from ..stream import PacketStream

__all__ = ["BEAT_QUEUE_DEPTH", "WORD_BYTES", "FrameWords"]

#: Bytes of a word: a plane works at 64 bits whatever the port's width.
WORD_BYTES = PLANE_RECEIVE_BITS // 8

#: Beats of a port wider than a word that may wait.
BEAT_QUEUE_DEPTH = 16


class FrameWords(wiring.Component):
    """Cuts the beats of a port into words of 64 bits.

    A port wider than a word has a queue of beats; the link behind it brings at most 64 bits a cycle. When the
    queue runs full the frame ends there with ``overflow``, for which a place is always kept, and the rest of
    it is thrown away; a frame that finds no place at all is counted as ``missed``. So no frame is mixed with
    the next one.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    port : PacketStream, in
        ``tready`` is always 1.
    valid, data, keep, last : 1, 64, 8, 1
        A word, from a register; lanes without ``keep`` may hold anything.
    error, overflow : 1
        On the last word: the MAC marked the frame; it is cut.
    missed : 1
        Pulse: a whole frame was lost.
    idle : 1
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "port": In(PacketStream(config.data_width)),
                "valid": Out(1),
                "data": Out(8 * WORD_BYTES),
                "keep": Out(WORD_BYTES),
                "last": Out(1),
                "error": Out(1),
                "overflow": Out(1),
                "missed": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        port = self.port
        m.d.comb += port.tready.eq(1)
        words = self._config.data_bytes // WORD_BYTES
        if words == 1:
            m.d.sync += self.valid.eq(port.tvalid)
            with m.If(port.tvalid):
                m.d.sync += [
                    self.data.eq(port.tdata),
                    self.keep.eq(port.tkeep),
                    self.last.eq(port.tlast),
                    self.error.eq(port.tlast & port.tuser),
                ]
            m.d.comb += self.idle.eq(~port.tvalid & ~self.valid)
            return m

        width, lanes = self._config.data_width, self._config.data_bytes
        m.submodules.queue = queue = SyncFIFOBuffered(width=width + lanes + 3, depth=BEAT_QUEUE_DEPTH)
        losing = Signal()
        room = Signal()
        m.d.comb += [
            # One place is kept for the end of a frame that is cut; the queue's output register is another.
            room.eq(queue.level < BEAT_QUEUE_DEPTH - 2),
            queue.w_data.eq(
                Cat(
                    port.tdata,
                    Mux(room, port.tkeep, 1),
                    ~room | port.tlast,
                    port.tlast & port.tuser,
                    ~room,
                )
            ),
        ]
        with m.If(port.tvalid & ~losing):
            m.d.comb += [queue.w_en.eq(1), self.missed.eq(~queue.w_rdy)]
            m.d.sync += losing.eq(~room & ~port.tlast)
        with m.Elif(port.tvalid & port.tlast):
            m.d.sync += losing.eq(0)

        index = Signal(range(words))
        data = queue.r_data[:width]
        keep = queue.r_data[width : width + lanes]
        beat_last, error, overflow = queue.r_data[width + lanes :]
        keeps = Array(keep.word_select(n, WORD_BYTES) for n in range(words))
        following = Array([*(keep[n * WORD_BYTES] for n in range(1, words)), 0])
        ends = Signal()
        m.d.comb += [
            ends.eq((index == words - 1) | (beat_last & ~following[index])),
            queue.r_en.eq(ends),
            self.idle.eq(~port.tvalid & ~queue.r_rdy & (queue.level == 0) & ~self.valid),
        ]
        m.d.sync += self.valid.eq(queue.r_rdy)
        with m.If(queue.r_rdy):
            m.d.sync += [
                index.eq(Mux(ends, 0, index + 1)),
                self.data.eq(data.word_select(index, 8 * WORD_BYTES)),
                self.keep.eq(keeps[index]),
                self.last.eq(ends & beat_last),
                self.error.eq(ends & error),
                self.overflow.eq(ends & overflow),
            ]
        return m
