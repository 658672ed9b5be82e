"""Admission: every received packet is checked here, and all but placement is decided."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import NicConfig
from ..records import PORT_COUNTERS, AnswerKind, PortCounter, Trimmed
from ..stream import TableBus
from ..tables import QpErrorReason, QpState
from .admitted import admitted
from .buffer_ledger import BufferLedger
from .claim_bits import ClaimBits
from .in_order import InOrder
from .intake import Intake
from .nack_limit import NackLimit
from .peer_search import PeerSearch, share_contexts
from .receive_contexts import ReceiveContexts, is_receiving
from .record_memory import RecordPort
from .verdict import Verdict

__all__ = ["Admission"]


class Admission(wiring.Component):
    """Takes the planes' records in turn and decides about each, three packets at a time in three stages.

    *Intake* reads the record and the QP's static context: QP, state, peer, P_Key, opcode. Feedback goes to
    the requester, a write asks for its memory region, an endpoint request for a QP of its source. *Region*
    waits for the answer. *Decide* reads the QP's state again, its expected PSN and the claimed bit, and ends
    the packet with exactly one outcome: placed and claimed, duplicate, answered trim, probe, endpoint request
    or feedback, or dropped with a reason. A full placement queue drops, it never holds.

    Order of the checks of a write, each with its counter: QP, peer, P_Key, window, duplicate, region, room.
    A write of no bytes needs no region. A trimmed write needs none either and changes nothing, nor does one
    whose payload found no room.

    A NACK goes back for a trimmed packet (TRIMMED, TRIMMED_LASTHOP), one that finds no room (NO_PKT_BUFFER),
    one outside the window (PSN_OOR_WINDOW) and one of the peer for a QP in ERROR (UNEXP_EVENT); the last two
    once in a base RTT and QP. The two other reasons cannot arise: a ring has a bit for every PSN of the
    window (NO_BITMAP), and nothing else is shared (NO_RESOURCE).

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    records : RecordPort, one per plane
    settings : records.settings
        ``own_address`` and ``base_rtt``.
    now : 48
        Ticks of 128 ns in bits 47:16.
    table : TableBus
        Table qp_receive.
    region, region_answer : streams
        Look-up in the memory regions.
    region_drain, region_drained : 1
        See :class:`mrc_rtl.memory_regions.MemoryRegions`.
    place : stream of records.place_command
        Also with ``drop``, for the buffer beats of what is not placed.
    stash, feedback, refused, counter : streams
    error_in, error_out : streams of records.qp_error
    update, updates : records.peer_update, 1
        Pulse: what a QP's peer told of its ports.
    init, state_request, state_answer, expected_qp, expected_psn, retired, retired_epoch
        To the tracker; ``init`` also to the immediates.
    trace : stream of records.trace_record
        With ``config.trace``: ADMIT, detail {outcome 8, trimmed 8, expected PSN 24 (bits 39:16)}. A record
        that is not taken holds the next packet.
    idle : 1

    Source: protocol.md 1.11 to 1.14, 3.2, 3.5, 3.7 and 7 (Q5); profile.md 2, 5, 6, 9; design, rules 1, 3, 8
    and 13.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        members: dict[str, Any] = {
            "records": In(RecordPort(config)).array(config.planes),
            "settings": In(records.settings(config)),
            "now": In(48),
            "table": In(TableBus()),
            "region": Out(stream.Signature(records.region_request(config))),
            "region_answer": In(stream.Signature(records.region_answer(config))),
            "region_drain": In(1),
            "region_drained": Out(1),
            "place": Out(stream.Signature(records.place_command(config))),
            "stash": Out(stream.Signature(records.stash_record(config))),
            "feedback": Out(stream.Signature(records.feedback_record(config))),
            "refused": Out(stream.Signature(records.refused_packet(config))),
            "counter": Out(stream.Signature(records.counter_event(config))),
            "error_in": In(stream.Signature(records.qp_error(config))),
            "error_out": Out(stream.Signature(records.qp_error(config))),
            "update": Out(records.peer_update(config)),
            "updates": Out(1),
            "init": Out(stream.Signature(records.receive_init(config))),
            "state_request": Out(stream.Signature(data.StructLayout({"qp": config.qp_bits}))),
            "state_answer": In(stream.Signature(records.receive_state(config))),
            "expected_qp": Out(config.qp_bits),
            "expected_psn": In(24),
            "retired": In(1),
            "retired_epoch": In(1),
            "idle": Out(1),
        }
        if config.trace:
            members["trace"] = Out(stream.Signature(records.trace_record(config)))
        super().__init__(members)
        self._dense = config.packet_interval <= 4

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.contexts = contexts = ReceiveContexts(self.config)
        m.submodules.claims = claims = ClaimBits(self.config)
        for name in ("table", "error_in", "init", "state_request", "state_answer"):
            wiring.connect(m, getattr(contexts, name), wiring.flipped(getattr(self, name)))
        m.d.comb += [
            contexts.retired.eq(self.retired),
            contexts.retired_epoch.eq(self.retired_epoch),
            contexts.region_drain.eq(self.region_drain),
            self.region_drained.eq(contexts.region_drained),
            claims.clear.eq(contexts.clear),
            claims.clear_qp.eq(contexts.clear_qp),
            claims.clear_psn.eq(contexts.clear_psn),
            contexts.cleared.eq(claims.cleared),
        ]
        m.submodules.intake = intake = Intake(self.config)
        for plane, port in enumerate(self.records):
            wiring.connect(m, intake.records[plane], wiring.flipped(port))
        m.submodules.search = search = PeerSearch(self.config)
        share_contexts(m, intake.context, search, contexts)
        region_free = Signal()
        hand_over = Signal()
        m.d.comb += [
            intake.settings.eq(self.settings),
            intake.guess.eq(search.last),
            self.update.eq(search.update),
            self.updates.eq(search.updates),
            search.query.eq(intake.wanted),
            search.start.eq(hand_over & intake.searches),
            intake.epoch.eq(contexts.epoch),
            contexts.entered.eq(intake.start),
            self.region.payload.eq(intake.region),
            self.feedback.payload.eq(intake.feedback),
            self.region.valid.eq(intake.valid & region_free & intake.writes_region),
            self.feedback.valid.eq(intake.valid & region_free & intake.feeds_back),
            intake.ready.eq(
                region_free
                & (~intake.writes_region | self.region.ready)
                & (~intake.feeds_back | self.feedback.ready)
                & ~(intake.searches & search.busy)
            ),
            hand_over.eq(intake.valid & intake.ready),
        ]

        # Region: wait for the answer. Where packets are dense, two may wait.
        waiting = Signal()
        layout = data.StructLayout({"packet": admitted(self.config), "asked": 1, "searched": 1})
        behind = Signal(layout, reset_less=True)
        decide_free = Signal()
        move = Signal()
        entering = Signal(admitted(self.config))
        m.d.comb += [
            move.eq(
                waiting
                & decide_free
                & (~behind.asked | self.region_answer.valid)
                & (~behind.searched | search.done)
            ),
            self.region_answer.ready.eq(waiting & decide_free & behind.asked),
            search.taken.eq(move & behind.searched),
            entering.eq(behind.packet),
        ]
        with m.If(behind.searched):
            m.d.comb += entering.qp.eq(search.found_qp)
            with m.If(~search.found):
                m.d.comb += [entering.request.eq(0), entering.outcome.eq(PortCounter.DROP_PEER)]
        if self._dense:
            m.submodules.queue = queue = SyncFIFO(width=layout.size, depth=2)
            m.d.comb += [
                queue.w_data.eq(Cat(intake.packet, intake.writes_region, intake.searches)),
                queue.w_en.eq(hand_over),
                queue.r_en.eq(move),
                behind.eq(queue.r_data),
                waiting.eq(queue.r_rdy),
                region_free.eq(queue.w_rdy),
            ]
        else:
            m.d.comb += region_free.eq(~waiting)
            with m.If(move):
                m.d.sync += waiting.eq(0)
            with m.If(hand_over):
                m.d.sync += [
                    waiting.eq(1),
                    behind.packet.eq(intake.packet),
                    behind.asked.eq(intake.writes_region),
                    behind.searched.eq(intake.searches),
                ]

        deciding = self._decide(m, contexts, claims, entering, move, behind.asked, decide_free)
        m.d.comb += self.idle.eq(contexts.idle & ~(intake.busy | waiting | deciding))
        return m

    # Decide ------------------------------------------------------------------------------------------

    def _decide(
        self,
        m: Module,
        contexts: Any,
        claims: Any,
        arriving: Any,
        move: Signal,
        has_region: Signal,
        free: Signal,
    ) -> Value:
        """Last stage; returns whether it is busy."""
        config = self.config
        m.submodules.ledger = ledger = BufferLedger(config)
        m.submodules.limit = limit = NackLimit(config)
        if config.go_back_n:
            m.submodules.order = order = InOrder(config)
        packet = Signal(admitted(config), reset_less=True)
        region_ok = Signal()
        bus_address = Signal(config.address_width)
        inside = Signal()
        below = Signal()
        claimed = Signal()
        receiving = Signal()
        in_error = Signal()
        expected = Signal(24)
        looking = Signal()  # the memories answer
        deciding = Signal()
        open_ends = Signal(3)  # outputs that wait to be taken: stash, refused, error
        outputs = (self.stash, self.refused, self.error_out)
        taken = Signal(len(outputs))
        for number, output in enumerate(outputs):
            m.d.comb += [
                output.valid.eq(open_ends[number]),
                taken[number].eq(open_ends[number] & output.ready),
            ]
        m.d.sync += open_ends.eq(open_ends & ~taken)
        # Where packets are far enough apart, no path leads from the outputs to what comes next.
        held = open_ends & ~taken if self._dense else open_ends
        traced = self.trace.valid & ~self.trace.ready if config.trace else Const(0)
        m.d.comb += free.eq(~looking & ~deciding & ~held.any() & ~traced)

        m.d.comb += [
            claims.read.eq(move),
            claims.qp.eq(arriving.qp),
            claims.psn.eq(arriving.psn),
            claims.held_qp.eq(packet.qp),
            claims.held_psn.eq(packet.psn),
            contexts.state_enable[0].eq(move),
            contexts.state_qp[0].eq(arriving.qp),
            self.expected_qp.eq(arriving.qp),
            limit.now.eq(self.now[16:]),
            limit.interval.eq(self.settings.base_rtt),
            limit.look.eq(move),
            limit.look_qp.eq(arriving.qp),
            limit.clear.eq(contexts.clear),
            limit.clear_qp.eq(contexts.clear_qp),
        ]
        m.d.sync += looking.eq(move)
        with m.If(move):
            m.d.sync += [
                packet.eq(arriving),
                region_ok.eq(~has_region | self.region_answer.payload.ok),
                bus_address.eq(self.region_answer.payload.bus_address),
            ]
        distance = Signal(24)
        m.d.comb += distance.eq(packet.psn - self.expected_psn)
        with m.If(looking):
            m.d.sync += [
                deciding.eq(1),
                inside.eq(~distance[config.psn_ring_bits :].any()),
                # Half the PSNs are behind; the one opposite is neither ahead nor behind.
                below.eq(distance[-1] & distance[:-1].any()),
                claimed.eq(claims.claimed),
                receiving.eq(is_receiving(contexts.state[0])),
                in_error.eq(contexts.state[0] == QpState.ERROR),
                expected.eq(self.expected_psn),
            ]

        m.submodules.verdict = verdict = Verdict(config)
        m.d.comb += [
            verdict.packet.eq(packet),
            verdict.receiving.eq(receiving),
            verdict.in_error.eq(in_error),
            verdict.inside.eq(inside),
            verdict.below.eq(below),
            verdict.claimed.eq(claimed),
            verdict.region_ok.eq(region_ok),
            verdict.may_nack.eq(limit.may),
        ]
        if config.go_back_n:
            m.d.comb += [
                order.look.eq(move),
                order.look_qp.eq(arriving.qp),
                order.qp.eq(packet.qp),
                order.psn.eq(packet.psn),
                order.clear.eq(contexts.clear),
                order.clear_qp.eq(contexts.clear_qp),
                order.clear_psn.eq(contexts.clear_psn),
            ]
            m.d.comb += [
                verdict.out_of_order.eq(packet.in_order & (packet.psn != order.next_psn)),
                verdict.told.eq(order.told),
            ]

        place = self.place
        place_free = Signal()
        owes = Signal()  # this plane's beats go first
        uncounted = Signal()  # the packet before is still to be counted
        places = Signal()
        crowded = Signal()
        decided = Signal()
        gives_up = Signal()  # what is not placed, a cycle later
        m.d.comb += [
            place_free.eq(~place.valid | place.ready),
            owes.eq(ledger.owes.bit_select(packet.plane, 1)),
            crowded.eq(verdict.wants_place & ~place_free),
            uncounted.eq(self.counter.valid & ~(self.counter.ready if self._dense else 0)),
            places.eq(deciding & ~uncounted & verdict.wants_place & place_free & ~owes),
            decided.eq(deciding & ~uncounted & ~(verdict.wants_place & place_free & owes)),
            claims.claim.eq(places),
            contexts.fail.eq(decided & verdict.fails),
            contexts.fail_qp.eq(packet.qp),
            limit.sent.eq(decided & verdict.limited & verdict.answers),
            limit.sent_qp.eq(packet.qp),
            contexts.left.eq(decided & ~places),
            contexts.left_epoch.eq(packet.epoch),
            ledger.add.eq(gives_up),
            ledger.length.eq(packet.length),
        ]
        m.d.sync += gives_up.eq(decided & ~places)
        if config.go_back_n:
            m.d.comb += [
                order.accepted.eq(places),
                order.tell.eq(decided & verdict.early & ~order.told),
            ]
        counted = Signal(PortCounter)
        m.d.comb += counted.eq(Mux(crowded, PortCounter.DROP_NO_PKT_BUFFER, verdict.outcome))
        kind = Signal(AnswerKind)
        with m.If(self.counter.ready):
            m.d.sync += self.counter.valid.eq(0)
        with m.If(decided):
            m.d.sync += [
                deciding.eq(0),
                kind.eq(verdict.answer),
                open_ends.eq(Cat(places & packet.immediate, verdict.answers | crowded, verdict.fails)),
                self.counter.valid.eq(1),
                self.counter.payload.index.eq(packet.plane * PORT_COUNTERS + counted),
            ]

        # The placement's queue: a packet, or beats that only go back.
        give_back = Signal()
        lowest = Signal(records.plane_bits(config))
        for number in reversed(range(config.planes)):
            with m.If(ledger.owes[number]):
                m.d.comb += lowest.eq(number)
        m.d.comb += [
            ledger.chosen.eq(Mux(deciding | gives_up, packet.plane, lowest)),
            give_back.eq(
                place_free & ~gives_up & Mux(deciding, verdict.wants_place & owes, ledger.owes.any())
            ),
            ledger.take.eq(give_back),
        ]
        with m.If(place.ready):
            m.d.sync += place.valid.eq(0)
        with m.If(places | give_back):
            m.d.sync += [
                place.valid.eq(1),
                place.payload.drop.eq(give_back),
                place.payload.plane.eq(ledger.chosen),
                place.payload.length.eq(Mux(give_back, ledger.piece, packet.length)),
            ]
        with m.If(places):
            m.d.sync += place.payload.bus_address.eq(bus_address)
            for name in sorted(set(place.payload.shape().members) & set(packet.shape().members)):
                if name not in ("plane", "length"):
                    m.d.sync += place.payload[name].eq(packet[name])

        # Records that leave with the verdict.
        stash, refused = self.stash.payload, self.refused.payload
        m.d.comb += [
            stash.qp.eq(packet.qp),
            stash.psn.eq(packet.psn),
            stash.plane.eq(packet.plane),
            stash.rqmsn.eq(packet.rqmsn),
            stash.message_number.eq(packet.message_number),
            stash.immediate.eq(packet.immediate_value),
            stash.length.eq(packet.message_length),
            self.error_out.payload.qp.eq(packet.qp),
            self.error_out.payload.reason.eq(QpErrorReason.REMOTE_ACCESS),
        ]
        m.d.comb += refused.kind.eq(kind)
        for name in sorted(set(refused.shape().members) & set(packet.shape().members)):
            m.d.comb += refused[name].eq(packet[name])
        if config.go_back_n:
            # The answer to a write that came early names the one that is missing.
            missing = Signal(24)
            names_missing = Signal()
            with m.If(decided):
                m.d.sync += [names_missing.eq(verdict.early), missing.eq(order.next_psn)]
            with m.If(names_missing):
                m.d.comb += refused.psn.eq(missing)

        busy = looking | deciding | gives_up | open_ends.any() | place.valid | ledger.owes.any()
        busy |= self.counter.valid
        if config.trace:
            # No packet comes here before the record of the one before it is taken.
            busy |= self.trace.valid
            with m.If(self.trace.ready):
                m.d.sync += self.trace.valid.eq(0)
            with m.If(decided):
                detail = data.View(
                    data.StructLayout({"outcome": 8, "trimmed": 8, "expected": 24}),
                    self.trace.payload.detail[:40],
                )
                m.d.sync += [
                    self.trace.valid.eq(1),
                    self.trace.payload.kind.eq(records.TraceKind.ADMIT),
                    self.trace.payload.qp.eq(packet.qp),
                    self.trace.payload.plane.eq(packet.plane),
                    self.trace.payload.psn.eq(packet.psn),
                    detail.outcome.eq(counted),
                    # Only a cut on the way is one.
                    detail.trimmed.eq(Mux(packet.trimmed == Trimmed.NO_ROOM, Trimmed.NO, packet.trimmed)),
                    detail.expected.eq(expected),
                ]
        return busy
