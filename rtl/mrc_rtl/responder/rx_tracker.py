"""Which PSNs are in memory: placed bits, the cumulative PSN, and what SACKs say about both."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import NicConfig
from ..tables import QpErrorReason
from .placed_step import PlacedStep, placed_word
from .psn_ring import BLOCK_RAM, RingClear, below_mask, ring_rows
from .rx_contexts import RxContexts
from .sack_bitmap import SackBitmap

__all__ = ["RxTracker", "placed_word_bits"]

_PSN = 24

#: Cycles that a packet takes, and a bitmap with the question of the transport ACK behind it.
_PACKET_CYCLES, _BITMAP_CYCLES = 3, 13


def placed_word_bits(config: NicConfig) -> int:
    """PSNs in a word of placed bits: as many as the rate asks for, fewer make a smaller tracker."""
    return 16 if config.packet_interval > 4 else 32


class RxTracker(wiring.Component):
    """Owner of the placed bits and of the moving part of the QPs' receive state.

    A packet whose memory writes are answered sets the bit of its PSN. When it was the expected one, the
    cumulative PSN moves over the leading run of placed bits, one word a step, and the last packets of
    messages that it passes are counted. Three cycles a packet and three more for each further word.

    Where K leaves little time, bitmaps wait until enough packets have passed, so that SACKs which are due for
    many QPs at once do not hold the packets up.

    What a SACK shows is read by :class:`mrc_rtl.responder.sack_bitmap.SackBitmap`.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    placed : stream of records.placed_record, in
        ``error``: the bit is not set, the QP goes to ERROR and the peer is told.
    report : stream of records.received_report, out
        The packet that is placed now, straight from ``placed``.
    coming : 1
        ``report`` is about to become valid; ``advanced`` and ``drained`` do not count yet.
    advance : stream of records.advance_record, out
        One or more each time the cumulative PSN moves.
    error_out : stream of records.qp_error, out
    init : stream of records.receive_init, in
        Taken when the QP's ring is cleared and its state written.
    snapshot, snapshot_answer : streams
        For the SACK generator; the answer is the state at the moment it is given.
    state_request, state_answer : streams of {qp} and records.receive_state
        For the host's reads.
    expected_qp, expected_psn : qp, 24
        Look-up of the expected PSN (cumulative + 1), one cycle later.
    retired, retired_epoch : 1, 1
        A placed record was dealt with, and its epoch.
    trace : stream of records.trace_record, out
        With ``config.trace``: PLACE, detail {expected PSN 24, packets above it 16, message end passed 1}. The
        tracker waits for it.
    idle : 1

    Source: profile.md 5, protocol.md 3.1, 3.3, 3.4 and 2.7.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        query = data.StructLayout({"qp": config.qp_bits})
        members: dict[str, Any] = {
            "placed": In(stream.Signature(records.placed_record(config))),
            "report": Out(stream.Signature(records.received_report(config))),
            "coming": Out(1),
            "advance": Out(stream.Signature(records.advance_record(config))),
            "error_out": Out(stream.Signature(records.qp_error(config))),
            "init": In(stream.Signature(records.receive_init(config))),
            "snapshot": In(stream.Signature(records.snapshot_request(config))),
            "snapshot_answer": Out(stream.Signature(records.snapshot_answer(config))),
            "state_request": In(stream.Signature(query)),
            "state_answer": Out(stream.Signature(records.receive_state(config))),
            "expected_qp": In(config.qp_bits),
            "expected_psn": Out(_PSN),
            "retired": Out(1),
            "retired_epoch": Out(1),
            "idle": Out(1),
        }
        if config.trace:
            members["trace"] = Out(stream.Signature(records.trace_record(config)))
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self.config
        word_bits = placed_word_bits(config)
        index_bits = (word_bits - 1).bit_length()
        placed = self.placed.payload
        init = self.init.payload
        report = self.report

        m.submodules.bitmap = bitmap = SackBitmap(config, word_bits)
        m.submodules.clear = clear = RingClear(config, word_bits)
        m.submodules.contexts = contexts = RxContexts(config)
        m.submodules.step = step = PlacedStep(config, word_bits)
        words = Memory(
            shape=placed_word(word_bits), depth=ring_rows(config, word_bits), init=[], attrs=BLOCK_RAM
        )
        m.submodules.words = words
        word, word_write = words.read_port(), words.write_port()
        qp = Signal(config.qp_bits)
        chosen_qp = Signal(config.qp_bits)
        m.d.comb += [
            contexts.qp.eq(qp),
            contexts.read_qp.eq(chosen_qp),
            contexts.expected_qp.eq(self.expected_qp),
            self.expected_psn.eq(contexts.expected_psn),
        ]

        # One word as it looks in the lap of a PSN.
        position = Signal(index_bits)  # in a word: of the packet, or of the expected PSN for a bitmap
        clearing = Signal()
        reading = Signal()  # a bitmap
        below = Signal(word_bits)
        view = Signal(word_bits)
        m.d.comb += [
            below.eq(below_mask(position)),
            view.eq(word.data.placed ^ Mux(reading, bitmap.lap, step.lap).replicate(word_bits)),
            step.packet.eq(placed),
            step.word.eq(word.data),
            step.view.eq(view),
            step.below.eq(below),
            step.expected.eq(contexts.expected),
            step.above.eq(contexts.above),
            step.highest.eq(contexts.highest),
            step.lowest.eq(contexts.lowest),
        ]

        # Writes.
        clear_row = Signal(config.psn_ring_bits - index_bits)
        clear_lap = Signal()
        starting = Signal()  # a QP's state is written anew
        taken = Signal()  # the bitmap
        cumulative = Signal(_PSN)
        packet_row = placed.psn[index_bits : config.psn_ring_bits]
        m.d.sync += [clear_row.eq(clear.word), clear_lap.eq(clear.lap)]
        m.d.comb += [
            clear.initial_psn.eq(init.initial_psn),
            word_write.addr.eq(Cat(Mux(clearing, clear_row, packet_row), qp)),
            word_write.data.placed.eq(
                Mux(clearing, below ^ clear_lap.replicate(word_bits), step.new_word.placed)
            ),
            word_write.data.last.eq(step.new_word.last),
            cumulative.eq(contexts.expected - 1),
            contexts.new_expected.eq(Mux(starting, init.initial_psn, step.new_expected)),
            contexts.new_highest.eq(Mux(starting, cumulative, placed.psn)),
            contexts.new_above.eq(step.new_above),
            contexts.new_messages.eq(contexts.messages + step.messages),
            contexts.new_received.eq(contexts.received + step.nominal),
            contexts.new_lowest.eq(
                Mux(taken, bitmap.next_lowest, Mux(starting, init.initial_psn, placed.psn))
            ),
            contexts.new_turn.eq(Mux(starting, 0, bitmap.next_turn)),
            contexts.new_peer.eq(init.peer_qpn_low),
        ]

        self._answers(m, contexts, cumulative, bitmap)
        m.d.comb += [
            bitmap.expected.eq(contexts.expected),
            bitmap.highest.eq(contexts.highest),
            bitmap.lowest.eq(contexts.lowest),
            bitmap.turn.eq(contexts.turn),
            bitmap.below.eq(below),
            bitmap.view.eq(view),
            bitmap.taken.eq(taken),
        ]

        # The packet's report goes straight on, its advance through a register.
        any_end = Signal()  # of a message, in the steps before
        wants_bitmap = Signal()
        told = Signal()  # of a failed packet's error
        emit = Signal()
        advance = self.advance
        advance_free = Signal()
        traced = Signal()  # the trace takes a record now
        m.d.comb += [
            advance_free.eq(~advance.valid | advance.ready),
            self.coming.eq(self.placed.valid),
            *(report.payload[name].eq(placed[name]) for name in report.payload.shape().members
              if name in placed.shape().members),
            report.payload.failed.eq(placed.error),
            report.payload.advanced.eq(any_end | step.passed_end),
            report.payload.drained.eq(step.drained),
            self.error_out.payload.qp.eq(placed.qp),
            self.error_out.payload.reason.eq(QpErrorReason.REMOTE_OPERATION),
            self.retired.eq(self.placed.valid & self.placed.ready),
            self.retired_epoch.eq(placed.epoch),
        ]  # fmt: skip
        with m.If(advance.ready):
            m.d.sync += advance.valid.eq(0)

        # Packets between two bitmaps, when packets wait.
        spacing = -(-_BITMAP_CYCLES // (config.packet_interval - _PACKET_CYCLES))
        held = Signal()
        if spacing > 1:
            since = Signal(range(spacing + 1), init=spacing)
            enough = since == spacing
            m.d.comb += held.eq(self.placed.valid & self.snapshot.payload.reported & ~enough)
            with m.If(self.placed.valid & self.placed.ready & ~enough):
                m.d.sync += since.eq(since + 1)
            with m.If(bitmap.start):
                m.d.sync += since.eq(0)

        busy = Signal(init=1)
        m.d.comb += busy.eq(1)
        word_row = Signal(config.psn_ring_bits - index_bits)
        m.d.comb += [word.addr.eq(Cat(word_row, chosen_qp)), chosen_qp.eq(qp)]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [busy.eq(0), contexts.read.eq(1), word_row.eq(packet_row)]
                m.d.sync += [
                    qp.eq(chosen_qp),
                    step.walking.eq(0),
                    any_end.eq(0),
                    told.eq(0),
                    position.eq(placed.psn),
                    wants_bitmap.eq(self.snapshot.payload.reported),
                ]
                with m.If(self.init.valid):
                    m.d.comb += [chosen_qp.eq(init.qp), clear.start.eq(1)]
                    m.next = "CLEAR"
                with m.Elif(self.snapshot.valid & ~held):
                    m.d.comb += [
                        chosen_qp.eq(self.snapshot.payload.qp),
                        self.snapshot.ready.eq(1),
                        bitmap.start.eq(self.snapshot.payload.reported),
                    ]
                    m.next = "SNAPSHOT"
                with m.Elif(self.state_request.valid):
                    m.d.comb += [chosen_qp.eq(self.state_request.payload.qp), self.state_request.ready.eq(1)]
                    m.next = "STATE"
                with m.Elif(self.placed.valid):
                    m.d.comb += [chosen_qp.eq(placed.qp), word.en.eq(1)]
                    with m.If(placed.error):
                        m.next = "FAILED"
                    with m.Else():
                        m.next = "MODIFY"

            # A placed packet: read, modify, commit; more words as long as each is placed to its end.
            with m.State("NEXT_WORD"):
                following = contexts.expected[index_bits : config.psn_ring_bits] + 1
                m.d.comb += [word_row.eq(following), word.en.eq(1), contexts.read.eq(1)]
                m.d.sync += position.eq(0)
                m.next = "MODIFY"
            with m.State("MODIFY"):
                m.d.comb += step.modify.eq(1)
                m.next = "COMMIT"
            with m.State("COMMIT"):
                more = step.is_next & step.whole
                goes_on = advance_free | ~step.is_next
                commit = Signal()
                m.d.comb += [
                    report.valid.eq(~more & goes_on & traced),
                    commit.eq(goes_on & (more | (report.ready & traced))),
                ]
                with m.If(commit):
                    m.d.comb += [
                        word_write.en.eq(~step.walking),
                        contexts.write_expected.eq(1),
                        contexts.write_above.eq(1),
                        contexts.write_messages.eq(step.is_next),
                        contexts.write_highest.eq(step.newer),
                        contexts.write_lowest.eq(step.becomes_lowest & ~step.walking),
                        contexts.write_received.eq(~step.walking),
                    ]
                    m.d.sync += any_end.eq(any_end | step.passed_end)
                    with m.If(step.is_next):
                        m.d.sync += [advance.valid.eq(1), advance.payload.qp.eq(qp)]
                        # A further word that begins with a PSN that is not placed changes nothing.
                        with m.If(step.moves):
                            m.d.sync += advance.payload.cumulative_psn.eq(
                                Cat((step.run_end - 1)[:index_bits], contexts.expected[index_bits:])
                            )
                    with m.If(more):
                        m.d.sync += step.walking.eq(1)
                        m.next = "NEXT_WORD"
                    with m.Else():
                        m.d.comb += [emit.eq(1), self.placed.ready.eq(1)]
                        m.next = "IDLE"
            with m.State("FAILED"):
                # The peer is told by the report, the error goes to all others.
                m.d.comb += [self.error_out.valid.eq(~told), report.valid.eq(told | self.error_out.ready)]
                with m.If(self.error_out.ready):
                    m.d.sync += told.eq(1)
                with m.If(report.valid & report.ready):
                    m.d.comb += self.placed.ready.eq(1)
                    m.next = "IDLE"

            with m.State("SNAPSHOT"):
                m.d.comb += [
                    reading.eq(1),
                    word.en.eq(bitmap.read),
                    word_row.eq(bitmap.address[index_bits : config.psn_ring_bits]),
                    self.snapshot_answer.valid.eq(bitmap.valid | ~wants_bitmap),
                ]
                m.d.sync += position.eq(contexts.expected)
                with m.If(self.snapshot_answer.valid & self.snapshot_answer.ready):
                    m.d.comb += [
                        taken.eq(1),
                        contexts.write_lowest.eq(wants_bitmap & bitmap.unreported),
                        contexts.write_turn.eq(wants_bitmap & ~bitmap.unreported),
                    ]
                    m.next = "IDLE"
            with m.State("STATE"):
                m.d.comb += self.state_answer.valid.eq(1)
                with m.If(self.state_answer.ready):
                    m.next = "IDLE"

            # A QP starts anew. Each word of its ring is written a cycle after it was laid out.
            with m.State("CLEAR"):
                m.d.sync += [
                    position.eq(clear.position),
                    clearing.eq(clear.write),
                ]
                m.d.comb += [word_write.en.eq(clearing), step.clear.eq(1)]
                with m.If(clear.done):
                    m.d.comb += [starting.eq(1), contexts.write_expected.eq(1)]
                    m.next = "CLEARED"
            with m.State("CLEARED"):
                m.d.comb += [word_write.en.eq(1), contexts.read.eq(1), contexts.fresh.eq(1)]
                m.d.sync += clearing.eq(0)
                m.next = "START"
            with m.State("START"):
                # The highest PSN is the one before the first: the expected one that was read less one.
                m.d.comb += [
                    starting.eq(1),
                    *(getattr(contexts, f"write_{name}").eq(1) for name in contexts.fields),
                    self.init.ready.eq(1),
                ]
                m.next = "IDLE"

        waiting = self.init.valid | self.snapshot.valid | self.state_request.valid | self.placed.valid
        m.d.comb += self.idle.eq(~(busy | waiting | advance.valid))
        if config.trace:
            m.d.comb += traced.eq(~self.trace.valid | self.trace.ready)
            with m.If(self.trace.ready):
                m.d.sync += self.trace.valid.eq(0)
            with m.If(emit):
                m.d.sync += [
                    self.trace.valid.eq(1),
                    self.trace.payload.kind.eq(records.TraceKind.PLACE),
                    self.trace.payload.qp.eq(qp),
                    self.trace.payload.plane.eq(placed.plane),
                    self.trace.payload.psn.eq(placed.psn),
                    self.trace.payload.detail.eq(
                        Cat(step.new_expected, (step.new_above | Const(0, 16))[:16], report.payload.advanced)
                    ),
                ]
        else:
            m.d.comb += traced.eq(1)
        return m

    def _answers(self, m: Module, contexts: RxContexts, cumulative: Signal, bitmap: SackBitmap) -> None:
        """Answers come straight from the memories, whose outputs stay."""
        answer, state = self.snapshot_answer.payload, self.state_answer.payload
        m.d.comb += [
            answer.base.eq(bitmap.base),
            answer.bitmap.eq(bitmap.bitmap),
            answer.ooo_count.eq(contexts.above),
            answer.peer_qpn_low.eq(contexts.peer),
            state.highest_psn.eq(contexts.highest),
        ]
        for target in (answer, state):
            m.d.comb += [
                target.cumulative_psn.eq(cumulative),
                target.received_units.eq(contexts.received[6:]),
                target.message_number.eq(contexts.messages),
            ]
