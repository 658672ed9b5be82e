"""One port's receive side: parse once, check, keep the payload, hand over a record."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from .. import records, wire
from ..config import NicConfig
from ..records import PORT_COUNTERS, PortCounter, Trimmed
from ..stream import PacketStream
from .frame_words import WORD_BYTES, FrameWords
from .header_parser import BODY_OFFSET, HeaderParser
from .icrc_check import IcrcCheck
from .normaliser import Normaliser
from .packet_buffer import PacketBuffer
from .record_memory import RecordMemory, RecordPort

__all__ = ["PlaneReceive"]

#: Frames whose outcome waits to be counted one by one; more are only added up.
_OUTCOMES = 8
_UNCOUNTED_BITS = 16

_OUTCOME_BITS = 5

#: Outcome of a frame that goes to admission, which counts the rest: only the frame itself is counted here.
_HANDED_OVER = PortCounter.RX_FRAMES


class PlaneReceive(wiring.Component):
    """Receives the frames of one plane, at 64 bits a cycle, and never holds the port.

    Words are normalised (an outer IPv6 header is skipped) and checked on the way while the payload of a write
    goes to the plane's packet buffer. Three cycles after the last word the ICRC is known: then the frame is
    dropped with one reason and its beats are forgotten, or they are committed together with its record, which
    admission finds behind those that still wait. A frame whose record has no room is dropped (no packet
    buffer); one whose payload alone has none becomes a record without it, so that admission can tell the
    sender.

    The reason of a frame is the first that holds of: cut in the queue, frame error, EtherType, IPv4, not MRC,
    address; for trimmed frames then too short or not a write; for others truncated, lengths, ICRC, opcode,
    no packet buffer.

    Parameters
    ----------
    config : NicConfig
    plane : int
        Number of this plane, from 0.

    Members
    -------
    port : PacketStream, in
        ``tready`` is always 1.
    settings : records.settings
    now : 48
        Ticks of 128 ns in bits 47:16.
    record : RecordPort, out
    take, read_data : 1, data width
        The oldest beat of the packet buffer, for placement; see :class:`PacketBuffer`.
    counter : stream of records.counter_event, out
        RX_FRAMES for every frame, and the reason of those that are dropped here.
    idle : 1
        Nothing is held but beats of the buffer that belong to records handed over.

    Source: profile.md 2, 5, 6; protocol.md 1; design, rules 3, 8 and 13.
    """

    def __init__(self, config: NicConfig, plane: int) -> None:
        if not 0 <= plane < config.planes:
            raise ValueError(f"plane must be between 0 and {config.planes - 1}, got {plane}")
        self.config = config
        self.plane = plane
        super().__init__(
            {
                "port": In(PacketStream(config.data_width)),
                "settings": In(records.settings(config)),
                "now": In(48),
                "record": Out(RecordPort(config)),
                "take": In(1),
                "read_data": Out(config.data_width),
                "counter": Out(stream.Signature(records.counter_event(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self.config
        m.submodules.words = words = FrameWords(config)
        m.submodules.normaliser = normaliser = Normaliser(config, self.plane)
        m.submodules.parser = parser = HeaderParser(config)
        m.submodules.icrc = icrc = IcrcCheck()
        m.submodules.buffer = buffer = PacketBuffer(config)
        m.submodules.kept = kept = RecordMemory(config)
        wiring.connect(m, kept.port, wiring.flipped(self.record))
        wiring.connect(m, words.port, wiring.flipped(self.port))
        end = Signal()
        m.d.comb += [
            end.eq(words.valid & words.last),
            normaliser.valid.eq(words.valid),
            normaliser.data.eq(words.data),
            normaliser.keep.eq(words.keep),
            normaliser.last.eq(words.last),
            normaliser.settings.eq(self.settings),
            parser.here.eq(normaliser.here),
            parser.position.eq(normaliser.position),
            parser.data.eq(words.data),
            parser.keep.eq(words.keep),
            parser.end.eq(end),
            parser.end_incomplete.eq(normaliser.incomplete),
            parser.settings.eq(self.settings),
            kept.write.eq(normaliser.here),
            kept.position.eq(normaliser.position),
            kept.data.eq(words.data),
            icrc.data.eq(words.data),
            icrc.position.eq(normaliser.position),
            icrc.valid.eq(words.valid),
            icrc.last.eq(words.last),
            icrc.begin.eq(normaliser.restart),
            icrc.early.eq(~words.keep[2]),
            buffer.take.eq(self.take),
            self.read_data.eq(buffer.read_data),
        ]
        self._payload(m, words, normaliser, parser, buffer)
        ending = self._outcomes(m, words, normaliser, parser, buffer, kept, icrc, end)
        m.d.comb += self.idle.eq(words.idle & normaliser.first & icrc.idle & ~ending & ~self.record.valid)
        return m

    def _payload(self, m: Module, words: Any, normaliser: Any, parser: Any, buffer: Any) -> None:
        """Payload begins in lane 6 or 2: each word is the end of one and the begin of the next."""
        headers = wire.METH.bytes + wire.RETH.bytes
        starts = [divmod(BODY_OFFSET + headers + 4 * extra, WORD_BYTES) for extra in range(3)]
        assert starts == [(11, 6), (12, 2), (12, 6)], "the two shifts below"
        before = Signal(8 * WORD_BYTES, reset_less=True)
        begins = Signal()
        inside = Signal()
        m.d.comb += [
            begins.eq(
                normaliser.here
                & (normaliser.position == Mux(parser.stamped | parser.immediate, 12, 11))
                & parser.write
                & (normaliser.trimmed == Trimmed.NO)
                & ~parser.payload_ends
            ),
            buffer.valid.eq(words.valid & inside),
            buffer.last.eq(parser.payload_ends),
            buffer.word.eq(
                Mux(parser.low_lane, Cat(before[16:], words.data[:16]), Cat(before[48:], words.data[:48]))
            ),
        ]
        with m.If(words.valid):
            with m.If(begins | inside):
                m.d.sync += before.eq(words.data)
            m.d.sync += inside.eq((begins | (inside & ~parser.payload_ends)) & ~words.last)

    def _outcomes(
        self,
        m: Module,
        words: Any,
        normaliser: Any,
        parser: Any,
        buffer: Any,
        kept: Any,
        icrc: Any,
        end: Signal,
    ) -> Value:
        """The end of a frame, over three cycles, and its counting; returns whether one is under way."""
        # First cycle: the findings about all words are there.
        ended = Signal(2)
        error = Signal()
        overflow = Signal()
        m.d.sync += ended.eq(Cat(end, ended[0]))
        with m.If(end):
            m.d.sync += [
                error.eq(words.error | normaliser.short),
                overflow.eq(words.overflow),
            ]
        early = Signal(_OUTCOME_BITS)
        early_now = Signal(_OUTCOME_BITS)
        trimmed = Signal(Trimmed)
        marked = Signal()
        for condition, reason in reversed(
            (
                (overflow, PortCounter.DROP_NO_PKT_BUFFER),
                (error, PortCounter.DROP_FRAME_ERROR),
                (normaliser.bad_ethertype, PortCounter.DROP_ETHERTYPE),
                (normaliser.ipv4, PortCounter.DROP_IPV4),
                (normaliser.not_mrc | parser.not_mrc, PortCounter.DROP_NOT_MRC),
                (normaliser.bad_address | parser.bad_address, PortCounter.DROP_ADDRESS),
            )
        ):
            with m.If(condition):
                m.d.comb += early_now.eq(reason)
        received_at = Signal(16)
        with m.If(ended[0]):
            m.d.sync += [
                early.eq(early_now),
                trimmed.eq(normaliser.trimmed),
                marked.eq(normaliser.marked),
                received_at.eq(self.now[16:32]),
            ]

        # Second cycle: lengths. What is left after it depends on the ICRC only.
        verdict = Signal(_OUTCOME_BITS)
        with m.If(early != 0):
            m.d.comb += verdict.eq(early)
        with m.Elif(trimmed != Trimmed.NO):
            with m.If(~parser.trim_there | ~parser.write):
                m.d.comb += verdict.eq(PortCounter.TRIM_IGNORED)
        with m.Elif(~parser.headers_there | parser.short):
            m.d.comb += verdict.eq(PortCounter.DROP_TRUNCATED)
        with m.Elif(parser.long | parser.bad_length):
            m.d.comb += verdict.eq(PortCounter.DROP_LENGTH)
        judged = Signal()
        reason = Signal(_OUTCOME_BITS)
        late_reason = Signal(_OUTCOME_BITS)  # behind a right ICRC
        exempt = Signal()
        without_payload = Signal()
        m.d.sync += judged.eq(ended[1])
        with m.If(ended[1]):
            m.d.sync += [reason.eq(verdict), exempt.eq(trimmed != Trimmed.NO), late_reason.eq(_HANDED_OVER)]
            m.d.sync += without_payload.eq(buffer.full)
            with m.If(kept.full):
                m.d.sync += late_reason.eq(PortCounter.DROP_NO_PKT_BUFFER)
            with m.If(~parser.known):
                m.d.sync += late_reason.eq(PortCounter.DROP_OPCODE)
        m.d.comb += [
            kept.find.eq(ended[1]),
            kept.found.length.eq(Mux((trimmed != Trimmed.NO) | buffer.full, 0, parser.length)),
            kept.found.received_at.eq(received_at),
            kept.found.timestamped.eq(parser.stamped & parser.stamp_there),
            kept.found.marked.eq(marked),
            kept.found.trimmed.eq(Mux(buffer.full, Trimmed.NO_ROOM, trimmed)),
        ]

        # Third cycle: the ICRC.
        outcome = Signal(_OUTCOME_BITS)
        with m.If(reason != 0):
            m.d.comb += outcome.eq(reason)
        with m.Elif(~exempt & ~icrc.ok):
            m.d.comb += outcome.eq(PortCounter.DROP_ICRC)
        with m.Else():
            m.d.comb += outcome.eq(late_reason)

        m.submodules.outcomes = queue = SyncFIFOBuffered(width=_OUTCOME_BITS, depth=_OUTCOMES)
        uncounted = Signal(_UNCOUNTED_BITS)
        good = Signal()
        m.d.comb += [
            good.eq(judged & (outcome == _HANDED_OVER) & queue.w_rdy),
            queue.w_data.eq(outcome),
            queue.w_en.eq(judged),
            buffer.commit.eq(good & ~without_payload),
            kept.commit.eq(good),
            buffer.rollback.eq(judged & ~(good & ~without_payload)),
        ]

        # Counting: the frame, then its reason. Frames that find the queue full count as no packet buffer.
        second = Signal()
        from_queue = Signal()
        chosen = Signal()  # of the frame that is being counted
        counted = self.counter.valid & self.counter.ready
        current = Signal(_OUTCOME_BITS)
        ends = Signal()
        m.d.comb += [
            from_queue.eq(Mux(second, chosen, queue.r_rdy)),
            current.eq(Mux(from_queue, queue.r_data, PortCounter.DROP_NO_PKT_BUFFER)),
            self.counter.valid.eq(queue.r_rdy | (uncounted != 0)),
            self.counter.payload.index.eq(
                self.plane * PORT_COUNTERS + Mux(second, current, PortCounter.RX_FRAMES)
            ),
            ends.eq(counted & (second | (current == _HANDED_OVER))),
            queue.r_en.eq(ends & from_queue),
        ]
        with m.If(counted):
            m.d.sync += [second.eq(~ends), chosen.eq(from_queue)]
        lost = judged & ~queue.w_rdy
        added_up = ends & ~from_queue
        with m.If(lost | words.missed | added_up):
            one, two = lost ^ words.missed ^ added_up, lost & words.missed & ~added_up
            down = added_up & ~lost & ~words.missed
            m.d.sync += uncounted.eq(uncounted + Cat(one, two | down, down.replicate(_UNCOUNTED_BITS - 2)))
        return ended.any() | judged | queue.r_rdy | (queue.level != 0) | (uncounted != 0)
