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
    dropped with one reason and its beats are forgotten, or they are committed and the record, which was
    loaded meanwhile, becomes valid. A record that is still waiting when the next one is due drops that frame
    (no packet buffer).

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
    record : stream of records.receive_record, out
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
                "record": Out(stream.Signature(records.receive_record(config))),
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
            parser.count.eq(normaliser.count),
            parser.data.eq(words.data),
            parser.keep.eq(words.keep),
            parser.end.eq(end),
            parser.end_incomplete.eq(normaliser.incomplete),
            parser.settings.eq(self.settings),
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
        ending = self._outcomes(m, words, normaliser, parser, buffer, icrc, end)
        m.d.comb += self.idle.eq(words.idle & normaliser.first & icrc.idle & ~ending & ~self.record.valid)
        return m

    def _payload(self, m: Module, words: Any, normaliser: Any, parser: Any, buffer: Any) -> None:
        """Payload begins in lane 6 or 2: each word is the end of one and the begin of the next."""
        headers = wire.METH.bytes + wire.RETH.bytes
        starts = [divmod(BODY_OFFSET + headers + 4 * extra, WORD_BYTES) for extra in range(3)]
        late = Signal()  # it begins a word later, because TSETH or ImmDt is there
        low_lane = Signal()
        assert starts == [(11, 6), (12, 2), (12, 6)], "the two shifts below"
        m.d.comb += [
            late.eq(parser.stamped | parser.immediate),
            low_lane.eq(parser.stamped ^ parser.immediate),
        ]
        before = Signal(8 * WORD_BYTES)
        left = Signal(range(self.config.mtu + 1))
        length = parser.payload_length
        fits = Signal()
        starting = Signal()
        m.d.comb += [
            fits.eq((length > 0) & (length <= self.config.mtu)),
            starting.eq(
                normaliser.here
                & (normaliser.position == Mux(late, 12, 11))
                & parser.write
                & (normaliser.trimmed == Trimmed.NO)
                & fits
            ),
            buffer.valid.eq(words.valid & (left != 0)),
            buffer.last.eq(left <= WORD_BYTES),
            buffer.word.eq(
                Mux(low_lane, Cat(before[16:], words.data[:16]), Cat(before[48:], words.data[:48]))
            ),
        ]
        with m.If(words.valid):
            m.d.sync += left.eq(Mux(left > WORD_BYTES, left - WORD_BYTES, 0))
            with m.If(starting | (left != 0)):
                m.d.sync += before.eq(words.data)
            with m.If(starting):
                m.d.sync += left.eq(length)
            with m.If(words.last):
                m.d.sync += left.eq(0)

    def _outcomes(
        self,
        m: Module,
        words: Any,
        normaliser: Any,
        parser: Any,
        buffer: Any,
        icrc: Any,
        end: Signal,
    ) -> Value:
        """The end of a frame, over three cycles, and its counting; returns whether one is under way."""
        config = self.config
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
        length = parser.payload_length
        short_frame = ~parser.headers_there | parser.difference[-1]
        wrong_length = (
            (parser.difference != 0)
            | parser.lengths_differ
            | (parser.known & ((length < 0) | (length > Mux(parser.write, config.mtu, 0))))
        )
        verdict = Signal(_OUTCOME_BITS)
        with m.If(early != 0):
            m.d.comb += verdict.eq(early)
        with m.Elif(trimmed != Trimmed.NO):
            with m.If(~parser.trim_there | ~parser.write):
                m.d.comb += verdict.eq(PortCounter.TRIM_IGNORED)
        with m.Elif(short_frame):
            m.d.comb += verdict.eq(PortCounter.DROP_TRUNCATED)
        with m.Elif(wrong_length):
            m.d.comb += verdict.eq(PortCounter.DROP_LENGTH)
        record = self.record
        record_free = Signal()
        load = Signal()
        m.d.comb += [
            record_free.eq(~record.valid | record.ready),
            load.eq(ended[1] & (verdict == 0) & record_free),
        ]
        judged = Signal()
        reason = Signal(_OUTCOME_BITS)
        late_reason = Signal(_OUTCOME_BITS)  # behind a right ICRC
        exempt = Signal()
        m.d.sync += judged.eq(ended[1])
        with m.If(ended[1]):
            m.d.sync += [reason.eq(verdict), exempt.eq(trimmed != Trimmed.NO), late_reason.eq(_HANDED_OVER)]
            with m.If(~record_free | buffer.full):
                m.d.sync += late_reason.eq(PortCounter.DROP_NO_PKT_BUFFER)
            with m.If(~parser.known):
                m.d.sync += late_reason.eq(PortCounter.DROP_OPCODE)
        payload = record.payload
        with m.If(load):
            for name in (
                "opcode", "psn", "destination_qpn", "partition_key", "ack_request", "retransmission",
                "source", "body", "ev",
            ):  # fmt: skip
                m.d.sync += payload[name].eq(getattr(parser, name))
            m.d.sync += [
                payload.timestamped.eq(parser.stamped & parser.stamp_there),
                payload.marked.eq(marked),
                payload.trimmed.eq(trimmed),
                payload.length.eq(Mux(trimmed != Trimmed.NO, 0, length[:13])),
                payload.received_at.eq(received_at),
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
            buffer.commit.eq(good),
            buffer.rollback.eq(judged & ~good),
        ]
        with m.If(record.ready):
            m.d.sync += record.valid.eq(0)
        with m.If(good):
            m.d.sync += record.valid.eq(1)

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
            m.d.sync += uncounted.eq(uncounted + lost + words.missed - added_up)
        return ended.any() | judged | queue.r_rdy | (queue.level != 0) | (uncounted != 0)
