"""Which PSNs are in memory: placed bits, the cumulative PSN, and what SACKs say about both."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records, wire
from ..config import NicConfig
from ..tables import QpErrorReason
from .psn_ring import (
    BLOCK_RAM,
    WORD_BITS,
    WORD_INDEX_BITS,
    RingClear,
    below_mask,
    lap_parity,
    ring_rows,
    row_address,
)

__all__ = ["RxTracker"]

#: Headers of a packet that NSCC counts beside payload and pad, in units of 4 bytes: UDP 8, BTH 12, METH 4,
#: RETH 16, ICRC 4 and the nominal 40 of protocol.md 2.7; TSETH and ImmDt come on top when they are there.
_NOMINAL_WORDS = (8 + 12 + 4 + 16 + 4 + 40) // 4

#: The sum of bytes begins here, in units of 4 bytes, so that units of 256 are rounded up.
_ROUND_UP = 256 // 4 - 1

_PSN = 24
_PSN_WORD = _PSN - WORD_INDEX_BITS


def _thermometer_count(mask: Value) -> Value:
    """Number of ones of a 32-bit mask that is ones from bit 0 upwards and not all ones, in 5 bits."""
    bits = []
    rest = mask[:31]
    size = 16
    while size:
        half = rest[size - 1]
        bits.append(half)
        rest = Mux(half, rest[size : 2 * size - 1], rest[: size - 1]) if size > 1 else rest
        size //= 2
    return Cat(reversed(bits))


def _looked_up(select: Value, values: list[int], width: int) -> Value:
    """Entry ``select`` of a list of constants, one small table a bit."""
    return Cat(
        Const(sum((value >> bit & 1) << n for n, value in enumerate(values)), len(values)).bit_select(
            select, 1
        )
        for bit in range(width)
    )


def _leading(mask: Value) -> Value:
    """The ones of a mask below its lowest zero, found by groups of four."""
    runs, whole = [], Const(1, 1)
    for first in range(0, len(mask), 4):
        group = mask[first : first + 4]
        runs += [whole & group[: n + 1].all() for n in range(4)]
        whole = whole & group.all()
    return Cat(runs)


def _ones(mask: Value) -> Value:
    """Number of ones, from a table or by a tree of adders."""
    if len(mask) <= 4:
        return _looked_up(mask, [n.bit_count() for n in range(1 << len(mask))], len(mask).bit_length())
    terms = list(mask)
    while len(terms) > 1:
        pairs = [terms[n] + terms[n + 1] for n in range(0, len(terms) - 1, 2)]
        terms = pairs + terms[2 * len(pairs) :]
    return terms[0]


class RxTracker(wiring.Component):
    """Owner of the placed bits and of the moving part of the QPs' receive state.

    A packet whose memory writes are answered sets the bit of its PSN. When it was the expected one, the
    cumulative PSN moves over the leading run of placed bits, one word of 32 PSNs a step, and the last packets
    of messages that it passes are counted. Three cycles a packet and three more for each further word.

    The bitmap of a SACK is two whole words: its base is the lowest PSN that was placed and never reported,
    aligned down to a word. That PSN is kept as a bound: what lies behind a bitmap counts as unreported again,
    and a base moves on over words that show nothing. With nothing unreported it walks the window in steps of
    64 from the expected PSN, so that a lost SACK is made good. Bits up to the cumulative PSN read 1, bits
    behind the window 0.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    placed : stream of records.placed_record, in
        ``error``: the bit is not set, the QP goes to ERROR and the peer is told.
    duplicate : stream of records.received_report, in
        Handed on to ``report``.
    report : stream of records.received_report, out
    nack : stream of records.nack_trigger, out
        The NAK of a failed write.
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
        With ``config.trace``: PLACE, detail {expected PSN 24, packets above it 16, message end passed 1}.
        A record that is not taken at once may be lost.
    idle : 1

    Source: profile.md 5, protocol.md 3.1, 3.3, 3.4 and 2.7.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        query = data.StructLayout({"qp": config.qp_bits})
        report = stream.Signature(records.received_report(config))
        members: dict[str, Any] = {
            "placed": In(stream.Signature(records.placed_record(config))),
            "duplicate": In(report),
            "report": Out(report),
            "nack": Out(stream.Signature(records.nack_trigger(config))),
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
        ring_bits = config.psn_ring_bits
        placed = self.placed.payload
        init = self.init.payload

        # Memories. `where` is the part that decides about PSNs, `seen` what SACKs need.
        word_layout = data.StructLayout({"placed": WORD_BITS, "last": WORD_BITS})
        where_layout = data.StructLayout({"expected": _PSN, "highest": _PSN, "above": ring_bits + 1})
        seen_layout = data.StructLayout({"received": 30, "lowest": _PSN})
        turns = config.mpr_psns // (2 * WORD_BITS)  # of 64 PSNs over the window
        walk_layout = data.StructLayout({"turn": range(turns), "peer": 16})
        m.submodules.words = words = Memory(
            shape=word_layout, depth=ring_rows(config), init=[], attrs=BLOCK_RAM
        )
        m.submodules.where = where_memory = Memory(shape=where_layout, depth=config.qps, init=[])
        m.submodules.seen = seen_memory = Memory(shape=seen_layout, depth=config.qps, init=[])
        m.submodules.walk = walk_memory = Memory(shape=walk_layout, depth=config.qps, init=[])
        m.submodules.messages = message_memory = Memory(shape=_PSN, depth=config.qps, init=[])
        m.submodules.expected = expected_memory = Memory(shape=_PSN, depth=config.qps, init=[])
        word_read, word_write = words.read_port(), words.write_port()
        where, where_write = where_memory.read_port(), where_memory.write_port()
        seen, seen_write = seen_memory.read_port(), seen_memory.write_port()
        walk, walk_write = walk_memory.read_port(), walk_memory.write_port()
        messages, messages_write = message_memory.read_port(), message_memory.write_port()
        expected_write = expected_memory.write_port()
        # Admission asks at any time, also in the cycle in which the row changes.
        expected_read = expected_memory.read_port(transparent_for=(expected_write,))
        m.d.comb += [expected_read.addr.eq(self.expected_qp), self.expected_psn.eq(expected_read.data)]

        qp = Signal(config.qp_bits)
        expected = Signal(_PSN)  # while a packet is worked on
        above = Signal(ring_bits + 1)
        walking = Signal()
        new_word = Signal(word_layout)
        run = Signal(WORD_BITS)  # ones up to the first PSN that is not placed
        ends = Signal(WORD_BITS)  # last packets of messages among those that the step passes
        is_next = Signal()
        newer = Signal()
        becomes_lowest = Signal()
        nominal = Signal(12)
        any_message = Signal()  # of the steps before

        # One word as seen from a PSN in it: bits that are placed in that PSN's lap.
        position = Signal(WORD_INDEX_BITS)
        lap = Signal()
        upto = Signal(WORD_BITS)
        below = Signal(WORD_BITS)
        view = Signal(WORD_BITS)
        m.d.comb += [
            upto.eq(Cat(~walking, below_mask(position)[:-1] & (~walking).replicate(WORD_BITS - 1))),
            below.eq(upto[1:]),
            view.eq(word_read.data.placed ^ lap.replicate(WORD_BITS)),
        ]

        # The SACK's view: a PSN that is compared with the highest one, and from which words are read.
        probe = Signal(_PSN)
        within = Signal()
        base = Signal(_PSN_WORD)
        bitmap = Signal(2 * WORD_BITS)
        unreported = Signal()
        outside = Signal()  # the second word lies behind the window
        nothing = Signal()
        second = Signal()
        turn = Signal(range(turns))
        reported = Signal()
        # Both lie in the window, or at most a bitmap behind it, or a word below it.
        near = ring_bits + 2
        m.d.comb += within.eq(~(where.data.highest[:near] - probe[:near])[near - 1])
        index_bits = ring_bits - WORD_INDEX_BITS
        cursor = probe[WORD_INDEX_BITS:]
        expected_word = where.data.expected[WORD_INDEX_BITS:]
        same_place = Signal()
        same_word = Signal()
        shown = Signal(WORD_BITS)
        show = Signal(2)
        m.d.comb += [
            same_place.eq(cursor[:index_bits] == expected_word[:index_bits]),
            same_word.eq(same_place & (cursor[index_bits] == expected_word[index_bits])),
            show.eq(Mux(outside, 0, Mux(same_word, 2, Mux(same_place, 3, 1)))),
        ]
        with m.Switch(show):
            with m.Case(1):
                m.d.comb += shown.eq(view)
            with m.Case(2):
                m.d.comb += shown.eq(view | below)
            with m.Case(3):
                # The expected PSN's place one lap later: only the PSNs below it are in the window.
                m.d.comb += shown.eq(view & below)
        # One adder moves the cursor: from the expected PSN's word by `stride`, or on by a word.
        onwards = Signal()
        stride = Signal(range(2 * turns))
        moved = Signal(_PSN_WORD)
        move_cursor = Signal()
        to_lowest = Signal()
        m.d.comb += moved.eq(Mux(onwards, cursor, expected_word) + stride)
        with m.If(move_cursor):
            m.d.sync += cursor.eq(Mux(to_lowest, seen.data.lowest[WORD_INDEX_BITS:], moved))

        report_free = Signal()
        advance_free = Signal()
        m.d.comb += [
            report_free.eq(~self.report.valid | self.report.ready),
            advance_free.eq(~self.advance.valid | self.advance.ready),
        ]
        with m.If(self.report.ready):
            m.d.sync += self.report.valid.eq(0)
        with m.If(self.advance.ready):
            m.d.sync += self.advance.valid.eq(0)
        emit = Signal()  # the packet's report is made in this cycle
        m.d.comb += self.duplicate.ready.eq(report_free & ~emit)
        advanced = Signal()
        drained = Signal()
        with m.If(emit):
            m.d.sync += self.report.valid.eq(1)
            for name in sorted(set(placed.shape().members) & set(self.report.payload.shape().members)):
                m.d.sync += self.report.payload[name].eq(placed[name])
            m.d.sync += [
                self.report.payload.duplicate.eq(0),
                self.report.payload.below.eq(0),
                self.report.payload.advanced.eq(advanced),
                self.report.payload.drained.eq(drained),
            ]
        with m.Elif(self.duplicate.valid & self.duplicate.ready):
            m.d.sync += [self.report.valid.eq(1), self.report.payload.eq(self.duplicate.payload)]

        # Messages are counted behind the rest, some bits of a word a cycle, as many as the rate asks for.
        chunk = WORD_BITS if config.packet_interval <= 4 else 2 * WORD_BITS // config.packet_interval
        uncounted = Signal(WORD_BITS)
        chunks_left = Signal(range(WORD_BITS // chunk + 1))
        counted = Signal(6)
        counting = Signal()
        count_ends = Signal()
        counting_qp = Signal(config.qp_bits)
        m.d.comb += [
            messages_write.addr.eq(Mux(counting, counting_qp, qp)),
            messages_write.data.eq(Mux(counting, messages.data + counted, 0)),
            messages_write.en.eq(counting & (chunks_left == 0)),
        ]
        with m.If(count_ends):
            m.d.sync += [
                counting.eq(1),
                counting_qp.eq(qp),
                chunks_left.eq(WORD_BITS // chunk),
                counted.eq(0),
                uncounted.eq(ends),
            ]
        with m.Elif(counting):
            m.d.sync += [
                counting.eq(chunks_left != 0),
                chunks_left.eq(chunks_left - 1),
                counted.eq(counted + _ones(uncounted[:chunk])),
                uncounted.eq(uncounted >> chunk),
            ]

        m.submodules.clear = clear = RingClear(config)
        m.d.comb += [
            clear.qp.eq(init.qp),
            clear.initial_psn.eq(init.initial_psn),
            word_write.addr.eq(Mux(clear.write, clear.address, row_address(config, qp, placed.psn))),
            word_write.data.placed.eq(
                Mux(clear.write, below ^ clear.lap.replicate(WORD_BITS), new_word.placed)
            ),
            word_write.data.last.eq(new_word.last),
        ]

        # Where a step over a word ends.
        whole = run[-1]
        run_length = Signal(WORD_INDEX_BITS)  # modulo 32
        passes = Signal(signed(WORD_INDEX_BITS + 3))  # packets above the expected PSN that become fewer
        new_expected = Signal(_PSN)
        new_above = Signal(ring_bits + 1)
        thermometer = _thermometer_count(run)
        m.d.comb += [
            run_length.eq(Mux(whole, 0, thermometer)),
            # A packet that is placed now was not above: it only adds to those when it is not the next.
            passes.eq(
                Mux(
                    is_next,
                    (Cat(1, run_length, whole) + Cat(walking, ~expected[:WORD_INDEX_BITS], 1, 1))[1:7],
                    -1,
                )
            ),
            new_expected.eq(
                Cat(
                    Mux(is_next, run_length, expected[:WORD_INDEX_BITS]),
                    (expected[WORD_INDEX_BITS:] + (is_next & whole))[:_PSN_WORD],
                )
            ),
            new_above.eq(above - passes),
            drained.eq(new_above == 0),
        ]

        clearing_state = Signal()
        cumulative = Signal(_PSN)
        m.d.comb += [
            where_write.addr.eq(qp),
            seen_write.addr.eq(qp),
            walk_write.addr.eq(qp),
            expected_write.addr.eq(qp),
        ]
        with m.If(clearing_state):
            m.d.comb += [
                where_write.data.expected.eq(init.initial_psn),
                where_write.data.highest.eq(cumulative),
                where_write.data.above.eq(0),
                seen_write.data.received.eq(_ROUND_UP),
                seen_write.data.lowest.eq(init.initial_psn),
                walk_write.data.turn.eq(0),
                walk_write.data.peer.eq(init.peer_qpn_low),
                expected_write.data.eq(init.initial_psn),
            ]
        with m.Else():
            m.d.comb += [
                where_write.data.expected.eq(new_expected),
                where_write.data.highest.eq(Mux(newer, placed.psn, where.data.highest)),
                where_write.data.above.eq(new_above),
                seen_write.data.received.eq(seen.data.received + nominal),
                seen_write.data.lowest.eq(Mux(becomes_lowest, placed.psn, seen.data.lowest)),
                walk_write.data.turn.eq(turn),
                walk_write.data.peer.eq(walk.data.peer),
                expected_write.data.eq(new_expected),
            ]

        # Answers, straight from the memories, whose outputs stay.
        answer = self.snapshot_answer.payload
        units = Signal(_PSN)
        m.d.comb += [
            cumulative.eq(where.data.expected - 1),
            units.eq(seen.data.received[6:]),
            answer.cumulative_psn.eq(cumulative),
            answer.base.eq(Cat(Const(0, WORD_INDEX_BITS), base)),
            answer.bitmap.eq(bitmap),
            answer.ooo_count.eq(where.data.above),
            answer.received_units.eq(units),
            answer.message_number.eq(messages.data),
            answer.peer_qpn_low.eq(walk.data.peer),
            self.state_answer.payload.cumulative_psn.eq(cumulative),
            self.state_answer.payload.highest_psn.eq(where.data.highest),
            self.state_answer.payload.message_number.eq(messages.data),
            self.state_answer.payload.received_units.eq(units),
        ]

        nack, error_out = self.nack.payload, self.error_out.payload
        for name in ("qp", "psn", "plane", "ev", "timestamp", "timestamped", "received_at"):
            m.d.comb += nack[name].eq(placed[name])
        m.d.comb += [
            nack.nak.eq(1),
            nack.code.eq(wire.AethSyndrome.NAK_REMOTE_OPERATIONAL),
            error_out.qp.eq(placed.qp),
            error_out.reason.eq(QpErrorReason.REMOTE_OPERATION),
        ]
        told = Signal(2)

        chosen_qp = Signal(config.qp_bits)
        contexts_enable = Signal()
        for port in (where, seen, walk):
            m.d.comb += [port.addr.eq(chosen_qp), port.en.eq(contexts_enable)]
        commit = Signal()
        reread = Signal()  # the message number, which is written a cycle after the rest
        m.d.comb += [
            messages.addr.eq(qp),
            messages.en.eq(count_ends | reread),
            self.retired.eq(self.placed.valid & self.placed.ready),
            self.retired_epoch.eq(placed.epoch),
        ]

        busy = Signal(init=1)
        m.d.comb += busy.eq(1)
        word_psn = Signal(_PSN)
        m.d.comb += word_read.addr.eq(row_address(config, chosen_qp, word_psn))
        m.d.comb += word_read.en.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [busy.eq(0), contexts_enable.eq(1), word_psn.eq(placed.psn)]
                m.d.sync += [qp.eq(chosen_qp), walking.eq(0), any_message.eq(0), told.eq(0)]
                with m.If(counting & (self.init.valid | self.snapshot.valid | self.state_request.valid)):
                    pass
                with m.Elif(self.init.valid):
                    m.d.comb += [chosen_qp.eq(init.qp), clear.start.eq(1)]
                    m.next = "CLEAR"
                with m.Elif(self.snapshot.valid):
                    m.d.comb += [chosen_qp.eq(self.snapshot.payload.qp), self.snapshot.ready.eq(1)]
                    m.d.sync += reported.eq(self.snapshot.payload.reported)
                    m.next = "SNAPSHOT_LOWEST"
                with m.Elif(self.state_request.valid):
                    m.d.comb += [chosen_qp.eq(self.state_request.payload.qp), self.state_request.ready.eq(1)]
                    m.next = "STATE_MESSAGES"
                with m.Elif(self.placed.valid):
                    m.d.comb += [chosen_qp.eq(placed.qp), word_read.en.eq(1)]
                    with m.If(placed.error):
                        m.next = "FAILED"
                    with m.Else():
                        m.next = "MODIFY"

            # A placed packet: read, modify, commit; more words as long as each is placed to its end.
            with m.State("NEXT_WORD"):
                m.d.comb += [chosen_qp.eq(qp), word_psn.eq(expected), word_read.en.eq(1)]
                m.next = "MODIFY"
            with m.State("MODIFY"):
                bit = Signal(WORD_BITS)
                placed_word = Signal(WORD_BITS)
                last_word = Signal(WORD_BITS)
                m.d.comb += [
                    position.eq(placed.psn[:WORD_INDEX_BITS]),
                    lap.eq(Mux(walking, lap_parity(config, expected), lap_parity(config, placed.psn))),
                    bit.eq(upto & ~below),
                    placed_word.eq(Mux(lap, word_read.data.placed & ~bit, word_read.data.placed | bit)),
                    last_word.eq((word_read.data.last & ~bit) | Mux(placed.last, bit, 0)),
                ]
                leading = _leading(view | upto)
                m.d.sync += [
                    new_word.placed.eq(placed_word),
                    new_word.last.eq(last_word),
                    run.eq(leading),
                    ends.eq(leading & ~below & last_word),
                ]
                with m.If(~walking):
                    m.d.sync += [
                        expected.eq(where.data.expected),
                        above.eq(where.data.above),
                        is_next.eq(placed.psn == where.data.expected),
                        newer.eq((where.data.highest[:near] - placed.psn[:near])[near - 1]),
                        becomes_lowest.eq(
                            (where.data.highest - seen.data.lowest)[_PSN - 1]
                            | (placed.psn - seen.data.lowest)[_PSN - 1]
                        ),
                        nominal.eq(
                            placed.length[2:] + _looked_up(
                                Cat(placed.length[:2].any(), placed.timestamped, placed.immediate),
                                [_NOMINAL_WORDS + n.bit_count() for n in range(8)],
                                6,
                            )
                        ),
                    ]  # fmt: skip
                m.next = "COMMIT"
            with m.State("COMMIT"):
                more = is_next & whole
                message_passed = Signal()
                m.d.comb += [
                    message_passed.eq(is_next & ends.any()),
                    commit.eq((report_free | more) & ((advance_free & ~counting) | ~is_next)),
                    count_ends.eq(commit & message_passed),
                ]
                with m.If(commit):
                    m.d.comb += [
                        word_write.en.eq(~walking),
                        where_write.en.eq(1),
                        seen_write.en.eq(~walking),
                        expected_write.en.eq(1),
                    ]
                    m.d.sync += [
                        expected.eq(new_expected),
                        above.eq(new_above),
                        any_message.eq(any_message | message_passed),
                    ]
                    with m.If(is_next):
                        m.d.sync += [
                            self.advance.valid.eq(1),
                            self.advance.payload.qp.eq(qp),
                        ]
                        # A further word that begins with a PSN that is not placed changes nothing.
                        with m.If(run[0]):
                            m.d.sync += self.advance.payload.cumulative_psn.eq(
                                Cat((thermometer - ~whole)[:WORD_INDEX_BITS], expected[WORD_INDEX_BITS:])
                            )
                    with m.If(more):
                        m.d.sync += walking.eq(1)
                        m.next = "NEXT_WORD"
                    with m.Else():
                        m.d.comb += [
                            emit.eq(1),
                            advanced.eq(any_message | message_passed),
                            self.placed.ready.eq(1),
                        ]
                        m.next = "IDLE"
            with m.State("FAILED"):
                m.d.comb += [self.nack.valid.eq(~told[0]), self.error_out.valid.eq(~told[1])]
                now_told = Signal(2)
                m.d.comb += now_told.eq(
                    told | Cat(self.nack.valid & self.nack.ready, self.error_out.valid & self.error_out.ready)
                )
                m.d.sync += told.eq(now_told)
                with m.If(now_told.all()):
                    m.d.comb += self.placed.ready.eq(1)
                    m.next = "IDLE"

            # A SACK's content: where the bitmap begins, then its two words.
            with m.State("SNAPSHOT_LOWEST"):
                m.d.comb += reread.eq(1)
                passed_by = (seen.data.lowest - where.data.expected)[_PSN - 1]
                m.d.sync += [
                    probe[:WORD_INDEX_BITS].eq(
                        Mux(passed_by, where.data.expected, seen.data.lowest)[:WORD_INDEX_BITS]
                    )
                ]
                m.d.comb += [move_cursor.eq(1), to_lowest.eq(~passed_by)]
                m.next = "SNAPSHOT_BASE"
            with m.State("SNAPSHOT_BASE"):
                m.d.sync += unreported.eq(within)
                with m.If(within):
                    m.next = "SNAPSHOT_READ"
                with m.Else():
                    m.d.comb += [move_cursor.eq(1), stride.eq(walk.data.turn << 1)]
                    m.next = "SNAPSHOT_WALK"
            with m.State("SNAPSHOT_WALK"):
                m.d.sync += turn.eq(Mux(within, walk.data.turn + 1, 1))
                m.d.comb += move_cursor.eq(~within)
                m.next = "SNAPSHOT_READ"
            with m.State("SNAPSHOT_READ"):
                m.d.comb += [chosen_qp.eq(qp), word_psn.eq(probe), word_read.en.eq(1)]
                m.d.sync += [base.eq(cursor), outside.eq(0), nothing.eq(1), second.eq(0)]
                m.next = "SNAPSHOT_WORD"
            with m.State("SNAPSHOT_WORD"):
                m.d.comb += [
                    position.eq(where.data.expected[:WORD_INDEX_BITS]),
                    chosen_qp.eq(qp),
                    lap.eq(cursor[index_bits]),
                    onwards.eq(1),
                    stride.eq(1),
                    move_cursor.eq(1),
                    word_psn.eq(Cat(Const(0, WORD_INDEX_BITS), moved)),
                    word_read.en.eq(~second),
                ]
                m.d.sync += [
                    second.eq(1),
                    bitmap.eq(Cat(bitmap[WORD_BITS:], shown)),
                    probe[:WORD_INDEX_BITS].eq(0),
                    outside.eq(outside | (same_place & ~same_word)),
                    nothing.eq(nothing & ~(shown & ~(below & same_word.replicate(WORD_BITS))).any()),
                ]
                with m.If(second):
                    m.next = "SNAPSHOT_ANSWER"
            with m.State("SNAPSHOT_ANSWER"):
                with m.If(unreported & nothing & within):
                    m.next = "SNAPSHOT_READ"
                with m.Else():
                    m.d.comb += self.snapshot_answer.valid.eq(1)
                    with m.If(self.snapshot_answer.ready):
                        m.d.comb += [
                            seen_write.en.eq(reported & unreported),
                            walk_write.en.eq(reported & ~unreported),
                            seen_write.data.received.eq(seen.data.received),
                            seen_write.data.lowest.eq(probe),
                        ]
                        m.next = "IDLE"
            with m.State("STATE_MESSAGES"):
                m.d.comb += reread.eq(1)
                m.next = "STATE"
            with m.State("STATE"):
                m.d.comb += self.state_answer.valid.eq(1)
                with m.If(self.state_answer.ready):
                    m.next = "IDLE"
            with m.State("CLEAR"):
                m.d.comb += [position.eq(clear.position), word_write.en.eq(clear.write)]
                with m.If(clear.done):
                    m.d.comb += [clearing_state.eq(1), where_write.en.eq(1)]
                    m.next = "CLEARED"
            with m.State("CLEARED"):
                m.d.comb += [chosen_qp.eq(qp), contexts_enable.eq(1)]
                m.next = "START"
            with m.State("START"):
                # The highest PSN is the one before the first: the expected one that was read less one.
                m.d.comb += [
                    clearing_state.eq(1),
                    where_write.en.eq(1),
                    seen_write.en.eq(1),
                    walk_write.en.eq(1),
                    expected_write.en.eq(1),
                    messages_write.en.eq(1),
                    self.init.ready.eq(1),
                ]
                m.next = "IDLE"

        waiting = self.init.valid | self.snapshot.valid | self.state_request.valid | self.placed.valid
        m.d.comb += self.idle.eq(
            ~(busy | waiting | self.duplicate.valid | self.report.valid | self.advance.valid | counting)
        )
        if config.trace:
            with m.If(self.trace.ready):
                m.d.sync += self.trace.valid.eq(0)
            with m.If(emit):
                detail = Cat(new_expected, Cat(new_above, Const(0, 16))[:16], any_message)
                m.d.sync += [
                    self.trace.valid.eq(1),
                    self.trace.payload.kind.eq(records.TraceKind.PLACE),
                    self.trace.payload.qp.eq(qp),
                    self.trace.payload.plane.eq(placed.plane),
                    self.trace.payload.psn.eq(placed.psn),
                    self.trace.payload.detail.eq(detail),
                ]
        return m
