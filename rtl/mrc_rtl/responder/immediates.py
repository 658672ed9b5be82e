"""Keeps immediates until everything before them is placed, and hands them to posted receives in order."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import NicConfig
from ..records import AnswerKind
from ..stream import TableBus
from ..tables import CompletionStatus, QpErrorReason, WorkRequestOpcode

__all__ = ["Immediates"]

_PSN = 24
_RQMSN = 16


class Immediates(wiring.Component):
    """Stash of immediates, owner of the receive requests.

    The immediate of message RQMSN stands in row RQMSN modulo ``config.immediates`` of its QP, with the PSN of
    the message's last packet; a row is free again when its message is delivered. Immediates and posted
    requests share one memory, because they are never read in the same cycle.
    The row of the next message in turn is delivered when it is there and the cumulative PSN has reached its
    PSN, whichever comes last: it takes the oldest posted request and becomes a completion. A message beyond
    the stash, a second one with the same number, or one that finds no posted request cannot be delivered:
    the peer gets a NAK (invalid request), the QP goes to ERROR and nothing more of it is delivered.

    A stash record takes 2 cycles, an advance 3, a delivery 3 more.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    table : TableBus, in
        Table RECEIVE_REQUEST. Slot of a QP: requests posted since its reset, modulo the queue depth.
    doorbell : stream of records.doorbell, in
        Requests posted. More than the queue holds are ignored.
    init : stream of records.receive_init, in
        A QP's receive state starts anew; posted requests stay when it becomes active and go when it is reset.
    stash : stream of records.stash_record, in
    advance : stream of records.advance_record, in
    completion : stream of records.completion_record
        RECEIVE_IMM, one per message, in the order of RQMSN.
    nak : stream of records.nak_trigger
    error_out : stream of records.qp_error
    idle : 1

    Source: protocol.md 3.3 and 1.5, profile.md 7.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "table": In(TableBus()),
                "doorbell": In(stream.Signature(records.doorbell(config))),
                "init": In(stream.Signature(records.receive_init(config))),
                "stash": In(stream.Signature(records.stash_record(config))),
                "advance": In(stream.Signature(records.advance_record(config))),
                "completion": Out(stream.Signature(records.completion_record(config))),
                "nak": Out(stream.Signature(records.nak_trigger(config))),
                "error_out": Out(stream.Signature(records.qp_error(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        row_bits = (config.immediates - 1).bit_length()
        slot_bits = (config.receive_queue_depth - 1).bit_length()
        requests_depth = config.qps * config.receive_queue_depth
        table, bell, init = self.table, self.doorbell.payload, self.init.payload
        stash, advance = self.stash.payload, self.advance.payload

        # Low bits of a PSN that tell what is reached: a message's PSN is in the peer's window when it comes,
        # and the cumulative PSN does not get further ahead of it than the window is long. A peer that leaves
        # out a message can make a later one wait, but none come early.
        near = min(_PSN, config.psn_ring_bits + 4)
        context_shape = data.StructLayout(
            {
                "active": 1,  # the QP may deliver: it was started and has not failed
                "next": _RQMSN,  # message in turn
                "cumulative": near,
                "posted": slot_bits + 1,
                "used": slot_bits + 1,
                "queue": records.queue_bits(config),
            }
        )
        # Widths that fill one and two block RAMs: the message number stands in both memories.
        mark_shape = data.StructLayout(
            {"valid": 1, "psn": _PSN, "plane": records.plane_bits(config), "message_high": 8}
        )
        content_shape = data.StructLayout({"length": 32, "immediate": 32, "message_low": 8})
        rows = config.qps * config.immediates
        m.submodules.contexts = contexts = Memory(shape=context_shape, depth=config.qps, init=[])
        m.submodules.marks = marks = Memory(shape=mark_shape, depth=rows, init=[])
        m.submodules.contents = contents = Memory(
            shape=content_shape, depth=2 * max(rows, requests_depth), init=[]
        )
        context_read, context_write = contexts.read_port(), contexts.write_port()
        mark_read, mark_write = marks.read_port(), marks.write_port()
        content_read, content_write = contents.read_port(), contents.write_port()
        request_bit = len(content_read.addr) - 1  # of the address: requests stand behind the immediates

        def request_row(address: Value) -> Cat:
            return Cat(address[:request_bit], Const(0, max(0, request_bit - len(address))), 1)

        # The QP that is worked on. What the memories read stays until the next read.
        qp = Signal(config.qp_bits)
        now = Signal(context_shape)
        chosen_qp = Signal(config.qp_bits)
        mark = mark_read.data
        context = context_read.data

        def row(of_qp: Signal, rqmsn: Signal) -> Cat:
            return Cat(rqmsn[:row_bits], of_qp)

        fill = Signal(row_bits)
        failing_psn = Signal(_PSN)
        failing_plane = Signal(records.plane_bits(config))
        told = Signal(2)
        host_turn = Signal()
        bad_index = Signal()
        m.d.comb += [
            context_read.addr.eq(chosen_qp),
            context_read.en.eq(0),
            context_write.addr.eq(qp),
            context_write.data.eq(now),
            mark_read.addr.eq(row(qp, now.next)),
            content_read.addr.eq(mark_read.addr),
            content_read.en.eq(0),
            mark_read.en.eq(0),
            mark_write.addr.eq(row(qp, stash.rqmsn)),
            mark_write.data.valid.eq(1),
            mark_write.data.psn.eq(stash.psn),
            mark_write.data.plane.eq(stash.plane),
            mark_write.data.message_high.eq(stash.message_number[8:]),
            content_write.addr.eq(row(qp, stash.rqmsn)),
            content_write.data.immediate.eq(stash.immediate),
            content_write.data.length.eq(stash.length),
            content_write.data.message_low.eq(stash.message_number[:8]),
        ]

        content = Signal(content_shape, reset_less=True)
        completion, nak, error_out = self.completion.payload, self.nak.payload, self.error_out.payload
        m.d.comb += [
            completion.queue.eq(now.queue),
            completion.qp.eq(qp),
            completion.wr_id.eq(Value.cast(content_read.data)[:64]),
            completion.opcode.eq(WorkRequestOpcode.RECEIVE_IMM),
            completion.status.eq(CompletionStatus.SUCCESS),
            completion.byte_length.eq(content.length),
            completion.immediate.eq(content.immediate),
            completion.message_number.eq(Cat(content.message_low, mark.message_high)),
            nak.qp.eq(qp),
            nak.psn.eq(failing_psn),
            nak.plane.eq(failing_plane),
            nak.kind.eq(AnswerKind.NAK_INVALID_REQUEST),
            error_out.qp.eq(qp),
            error_out.reason.eq(QpErrorReason.INVALID_REQUEST),
            # Looked at while ``done`` is set only.
            table.read_data.eq(content_read.data),
        ]

        host_waits = table.valid | self.doorbell.valid
        busy = Signal()
        m.d.comb += busy.eq(1)
        with m.FSM():
            with m.State("FILL"):
                # After reset no QP delivers and none has posted requests.
                m.d.comb += context_write.en.eq(1)
                m.d.sync += qp.eq(qp + 1)
                with m.If(qp.all()):
                    m.next = "IDLE"
            with m.State("IDLE"):
                m.d.comb += [busy.eq(0), context_read.en.eq(1)]
                m.d.sync += [qp.eq(chosen_qp), told.eq(0)]
                engine_waits = self.init.valid | self.stash.valid | self.advance.valid
                with m.If(host_waits & (host_turn | ~engine_waits)):
                    m.d.sync += host_turn.eq(0)
                    m.d.comb += chosen_qp.eq(bell.qp)
                    with m.If(table.valid):
                        wrong = (table.index >= requests_depth) | (table.word != 0)
                        m.d.comb += [
                            table.ready.eq(1),
                            content_read.addr.eq(request_row(table.index)),
                            content_read.en.eq(~table.write),
                            content_write.addr.eq(request_row(table.index)),
                            content_write.data.eq(table.write_data),
                            content_write.en.eq(table.write & ~wrong),
                        ]
                        m.d.sync += bad_index.eq(wrong)
                        m.next = "TABLE"
                    with m.Else():
                        m.next = "RING"
                with m.Elif(engine_waits):
                    m.d.sync += host_turn.eq(1)
                    with m.If(self.init.valid):
                        m.d.comb += chosen_qp.eq(init.qp)
                        m.next = "INIT"
                    with m.Elif(self.stash.valid):
                        m.d.comb += [
                            chosen_qp.eq(stash.qp),
                            mark_read.addr.eq(row(stash.qp, stash.rqmsn)),
                            mark_read.en.eq(1),
                        ]
                        m.next = "STASH"
                    with m.Else():
                        m.d.comb += chosen_qp.eq(advance.qp)
                        m.next = "ADVANCE"
            with m.State("TABLE"):
                m.d.comb += [table.done.eq(1), table.error.eq(bad_index)]
                m.next = "IDLE"
            with m.State("RING"):
                # The level before is at most the depth, so with a count up to the depth only a sum of twice
                # the depth can be mistaken: it looks like none.
                posted = Signal(slot_bits + 1)
                level = Signal(slot_bits + 1)
                m.d.comb += [
                    posted.eq(context.posted + bell.count),
                    level.eq(posted - context.used),
                    self.doorbell.ready.eq(1),
                ]
                m.d.sync += now.eq(context)
                low, top = bell.count[:slot_bits].any(), bell.count[slot_bits]
                few = ~bell.count[slot_bits + 1 :].any() & ~(top & low)
                with m.If(few & (level[:slot_bits].any() ^ level[slot_bits])):
                    m.d.sync += now.posted.eq(posted)
                m.next = "KEEP"
            with m.State("KEEP"):
                m.d.comb += context_write.en.eq(1)
                m.next = "IDLE"
            with m.State("INIT"):
                # First the context, which is written while the rows of the QP are cleared.
                m.d.sync += [
                    now.eq(context),
                    now.active.eq(init.active),
                    now.next.eq(0),
                    # Behind every PSN of the window.
                    now.cumulative.eq(
                        Cat(init.initial_psn[: near - 2], init.initial_psn[near - 2 : near] - 1)
                    ),
                    now.queue.eq(init.completion_queue),
                ]
                with m.If(~init.active):
                    m.d.sync += [now.posted.eq(0), now.used.eq(0)]
                m.next = "CLEAR"
            with m.State("CLEAR"):
                m.d.comb += [
                    mark_write.addr.eq(Cat(fill[:row_bits], qp)),
                    mark_write.data.valid.eq(0),
                    mark_write.en.eq(1),
                    context_write.en.eq(1),
                ]
                m.d.sync += fill.eq(fill + 1)
                with m.If(fill.all()):
                    m.d.comb += self.init.ready.eq(1)
                    m.next = "IDLE"
            with m.State("STASH"):
                ahead = Signal(_RQMSN)
                m.d.comb += [ahead.eq(stash.rqmsn - context.next), self.stash.ready.eq(1)]
                m.d.sync += [now.eq(context), failing_psn.eq(stash.psn), failing_plane.eq(stash.plane)]
                beyond = ahead[row_bits:].any()
                m.next = "IDLE"
                with m.If(context.active):
                    with m.If(beyond | mark.valid):
                        m.d.sync += now.active.eq(0)
                        m.next = "REFUSE"
                    with m.Else():
                        m.d.comb += [mark_write.en.eq(1), content_write.en.eq(1)]
                        # Only when the packet was placed before its immediate came here.
                        with m.If((ahead == 0) & ~(context.cumulative - stash.psn[:near])[near - 1]):
                            m.next = "LOOK"
            with m.State("ADVANCE"):
                m.d.comb += [
                    self.advance.ready.eq(1),
                    mark_read.addr.eq(row(qp, context.next)),
                    mark_read.en.eq(1),
                    content_read.en.eq(1),
                ]
                m.d.sync += [now.eq(context), now.cumulative.eq(advance.cumulative_psn)]
                with m.If(context.active):
                    m.next = "HEAD"
                with m.Else():
                    m.next = "IDLE"
            with m.State("LOOK"):
                m.d.comb += [mark_read.en.eq(1), content_read.en.eq(1)]
                m.next = "HEAD"
            with m.State("HEAD"):
                m.d.comb += [
                    content_read.addr.eq(request_row(Cat(now.used[:slot_bits], qp))),
                    content_read.en.eq(1),
                ]
                m.d.sync += content.eq(content_read.data)
                m.d.sync += [failing_psn.eq(mark.psn), failing_plane.eq(mark.plane)]
                complete = mark.valid & ~(now.cumulative - mark.psn[:near])[near - 1]
                with m.If(~complete):
                    m.d.comb += context_write.en.eq(1)
                    m.next = "IDLE"
                with m.Elif(now.posted == now.used):
                    m.d.sync += now.active.eq(0)
                    m.next = "REFUSE"
                with m.Else():
                    m.next = "DELIVER"
            with m.State("DELIVER"):
                m.d.comb += self.completion.valid.eq(1)
                m.d.comb += [
                    mark_write.addr.eq(row(qp, now.next)),
                    mark_write.data.valid.eq(0),
                    mark_write.en.eq(self.completion.ready),
                ]
                with m.If(self.completion.ready):
                    m.d.sync += [now.next.eq(now.next + 1), now.used.eq(now.used + 1)]
                    m.next = "LOOK"
            with m.State("REFUSE"):
                now_told = Signal(2)
                m.d.comb += [
                    self.nak.valid.eq(~told[0]),
                    self.error_out.valid.eq(~told[1]),
                    now_told.eq(told | Cat(self.nak.ready, self.error_out.ready)),
                    context_write.en.eq(1),
                ]
                m.d.sync += told.eq(now_told)
                with m.If(now_told.all()):
                    m.next = "IDLE"

        m.d.comb += self.idle.eq(
            ~(busy | host_waits | self.init.valid | self.stash.valid | self.advance.valid)
        )
        return m
