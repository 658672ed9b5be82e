"""Which PSNs are in memory: placed bits, the cumulative PSN, and what SACKs say about both."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import NicConfig
from ..tables import QpErrorReason
from .psn_ring import BLOCK_RAM, RingClear, below_mask, lap_parity, near_bits, ring_rows
from .ring_word import leading_ones, looked_up, number_of_ones, thermometer_count
from .rx_contexts import RxContexts
from .sack_bitmap import SackBitmap

__all__ = ["RxTracker", "placed_word_bits"]

#: Headers of a packet that NSCC counts beside payload and pad, in units of 4 bytes: UDP 8, BTH 12, METH 4,
#: RETH 16, ICRC 4 and the nominal 40 of protocol.md 2.7; TSETH and ImmDt come on top when they are there.
_NOMINAL_WORDS = (8 + 12 + 4 + 16 + 4 + 40) // 4

_PSN = 24


def placed_word_bits(config: NicConfig) -> int:
    """PSNs in a word of placed bits: as many as the rate asks for, fewer make a smaller tracker."""
    return 16 if config.packet_interval > 4 else 32


class RxTracker(wiring.Component):
    """Owner of the placed bits and of the moving part of the QPs' receive state.

    A packet whose memory writes are answered sets the bit of its PSN. When it was the expected one, the
    cumulative PSN moves over the leading run of placed bits, one word a step, and the last packets of
    messages that it passes are counted. Three cycles a packet and three more for each further word.

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
        near = near_bits(config)
        placed = self.placed.payload
        init = self.init.payload
        report = self.report

        m.submodules.bitmap = bitmap = SackBitmap(config, word_bits)
        m.submodules.clear = clear = RingClear(config, word_bits)
        m.submodules.contexts = contexts = RxContexts(config)
        word_layout = data.StructLayout({"placed": word_bits, "last": word_bits})
        words = Memory(shape=word_layout, depth=ring_rows(config, word_bits), init=[], attrs=BLOCK_RAM)
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
        walking = Signal()  # over the words behind the packet's
        position = Signal(index_bits)  # in a word: of the packet, or of the expected PSN for a bitmap
        clearing = Signal()
        reading = Signal()  # a bitmap
        lap = Signal()
        upto = Signal(word_bits)
        below = Signal(word_bits)
        view = Signal(word_bits)
        m.d.comb += [
            below.eq(below_mask(position)),
            upto.eq(Cat(1, below[:-1]) & (~walking).replicate(word_bits)),
            lap.eq(Mux(walking, lap_parity(config, contexts.expected), lap_parity(config, placed.psn))),
            view.eq(word.data.placed ^ Mux(reading, bitmap.lap, lap).replicate(word_bits)),
        ]

        # First cycle: what the packet changes, and how far the ones reach.
        new_word = Signal(word_layout)
        run = Signal(word_bits)  # ones up to the first PSN that is not placed
        ends = Signal(word_bits)  # last packets of messages among those that the step passes
        is_next = Signal()
        newer = Signal()
        becomes_lowest = Signal()
        nominal = Signal(12)
        modify = Signal()
        bit = upto & ~below
        last_word = (word.data.last & ~bit) | (bit & placed.last.replicate(word_bits))
        leading = leading_ones(view | upto)
        with m.If(modify):
            m.d.sync += [
                new_word.placed.eq(Mux(lap, word.data.placed & ~bit, word.data.placed | bit)),
                new_word.last.eq(last_word),
                run.eq(leading),
                ends.eq(leading & ~below & last_word),
            ]
            with m.If(~walking):
                next_now = placed.psn[:near] == contexts.expected[:near]
                header_words = [_NOMINAL_WORDS + n.bit_count() for n in range(8)]
                extra = Cat(placed.length[:2].any(), placed.timestamped, placed.immediate)
                m.d.sync += [
                    is_next.eq(next_now),
                    newer.eq((contexts.highest[:near] - placed.psn[:near])[near - 1]),
                    # The bound is renewed with every expected packet, so that it stays near the window.
                    becomes_lowest.eq(
                        next_now
                        | (contexts.highest[:near] - contexts.lowest)[near - 1]
                        | (placed.psn[:near] - contexts.lowest)[near - 1]
                    ),
                    nominal.eq(placed.length[2:] + looked_up(extra, header_words, 6)),
                ]

        # Second cycle: where the step ends.
        whole = run[-1]
        run_length = Signal(index_bits)  # modulo the word
        start = contexts.expected[:index_bits]
        passed = Signal(signed(index_bits + 2))  # packets above the expected PSN that become fewer
        fewer = Signal(signed(index_bits + 2))
        new_expected = Signal(_PSN)
        new_above = Signal(config.psn_ring_bits + 1)
        passed_end = Signal()
        m.d.comb += [
            run_length.eq(thermometer_count(run)),
            # A packet that is placed now was not above: it only adds to those when it is not the next.
            passed.eq((Cat(1, run_length, whole) + Cat(walking, ~start, 1, 1))[1:]),
            fewer.eq(Mux(is_next, passed, -1)),
            new_expected.eq(
                Cat(
                    Mux(is_next, run_length, start),
                    (contexts.expected[index_bits:] + (is_next & whole))[: _PSN - index_bits],
                )
            ),
            new_above.eq(contexts.above - fewer),
            passed_end.eq(is_next & ends.any()),
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
            word_write.data.placed.eq(Mux(clearing, below ^ clear_lap.replicate(word_bits), new_word.placed)),
            word_write.data.last.eq(new_word.last),
            cumulative.eq(contexts.expected - 1),
            contexts.new_expected.eq(Mux(starting, init.initial_psn, new_expected)),
            contexts.new_highest.eq(Mux(starting, cumulative, placed.psn)),
            contexts.new_above.eq(new_above),
            contexts.new_messages.eq(contexts.messages + number_of_ones(ends)),
            contexts.new_received.eq(contexts.received + nominal),
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
            report.payload.advanced.eq(any_end | passed_end),
            report.payload.drained.eq(is_next & (contexts.above == passed.as_unsigned())),
            self.error_out.payload.qp.eq(placed.qp),
            self.error_out.payload.reason.eq(QpErrorReason.REMOTE_OPERATION),
            self.retired.eq(self.placed.valid & self.placed.ready),
            self.retired_epoch.eq(placed.epoch),
        ]  # fmt: skip
        with m.If(advance.ready):
            m.d.sync += advance.valid.eq(0)

        busy = Signal(init=1)
        m.d.comb += busy.eq(1)
        word_row = Signal(config.psn_ring_bits - index_bits)
        m.d.comb += [word.addr.eq(Cat(word_row, chosen_qp)), chosen_qp.eq(qp)]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [busy.eq(0), contexts.read.eq(1), word_row.eq(packet_row)]
                m.d.sync += [
                    qp.eq(chosen_qp),
                    walking.eq(0),
                    any_end.eq(0),
                    told.eq(0),
                    position.eq(placed.psn),
                    wants_bitmap.eq(self.snapshot.payload.reported),
                ]
                with m.If(self.init.valid):
                    m.d.comb += [chosen_qp.eq(init.qp), clear.start.eq(1)]
                    m.next = "CLEAR"
                with m.Elif(self.snapshot.valid):
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
                m.d.comb += modify.eq(1)
                m.next = "COMMIT"
            with m.State("COMMIT"):
                more = is_next & whole
                goes_on = advance_free | ~is_next
                commit = Signal()
                m.d.comb += [
                    report.valid.eq(~more & goes_on & traced),
                    commit.eq(goes_on & (more | (report.ready & traced))),
                ]
                with m.If(commit):
                    m.d.comb += [
                        word_write.en.eq(~walking),
                        contexts.write_expected.eq(1),
                        contexts.write_above.eq(1),
                        contexts.write_messages.eq(is_next),
                        contexts.write_highest.eq(newer),
                        contexts.write_lowest.eq(becomes_lowest & ~walking),
                        contexts.write_received.eq(~walking),
                    ]
                    m.d.sync += any_end.eq(any_end | passed_end)
                    with m.If(is_next):
                        m.d.sync += [advance.valid.eq(1), advance.payload.qp.eq(qp)]
                        # A further word that begins with a PSN that is not placed changes nothing.
                        with m.If(run[0]):
                            m.d.sync += advance.payload.cumulative_psn.eq(
                                Cat((run_length - 1)[:index_bits], contexts.expected[index_bits:])
                            )
                    with m.If(more):
                        m.d.sync += walking.eq(1)
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
                    is_next.eq(0),
                    ends.eq(0),
                    nominal.eq(0),
                ]
                m.d.comb += word_write.en.eq(clearing)
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
                        Cat(new_expected, (new_above | Const(0, 16))[:16], report.payload.advanced)
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
