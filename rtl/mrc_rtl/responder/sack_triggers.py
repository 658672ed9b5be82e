"""Decides which received packets are answered by a SACK, and by a transport ACK with it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import NicConfig
from ..records import GlobalCounter

__all__ = [
    "LEAST_BYTES",
    "NAK_SOURCES",
    "PLAIN_LIMIT",
    "TRIGGER_QUEUE_DEPTH",
    "SackTriggers",
    "trigger_record",
]

#: Triggers that wait to be answered.
TRIGGER_QUEUE_DEPTH = 16

#: Beyond this many waiting triggers only those are taken that nothing else makes good.
PLAIN_LIMIT = 8

#: What a packet adds to its QP's count at least.
LEAST_BYTES = 1024

#: Blocks that send NAKs and no NACKs: tracker and immediates.
NAK_SOURCES = 2

_COUNT_BITS = 19


def trigger_record(config: NicConfig) -> data.StructLayout:
    """An answer that is due. ``code`` counts for NACKs and NAKs, which are neither a ``sack`` nor an ``ack``.

    ``age`` is the packet's timestamp less the time it came in: adding the time of the answer makes the
    reflected timestamp with the service time in it.
    """
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "psn": 24,
            "plane": records.plane_bits(config),
            "ev": 32,
            "age": 16,
            "timestamped": 1,
            "marked": 1,
            "retransmission": 1,
            "sack": 1,
            "ack": 1,
            "nak": 1,
            "code": 8,
        }
    )


class SackTriggers(wiring.Component):
    """Counts received bytes per QP and queues the triggers of SACKs, NACKs and NAKs.

    A packet triggers a SACK at once when it is marked, a retransmission, a duplicate, or asks for an answer;
    also when the out-of-order packets drain after one that asked. Otherwise it adds its bytes to the count,
    and when the count exceeds the threshold the packet of the plane whose turn it is triggers: the next one
    behind the plane of the last such SACK, among those the QP was seen on. If it does not come before the
    count is twice the threshold, another plane's packet triggers, and the plane in turn is owed an echo: its
    next packet triggers whatever the count is. If it does not come for another such round either, it is
    forgotten and the turn passes on. So the echoes cover all planes in use, for any threshold.

    A transport ACK goes with the SACK when the cumulative PSN has moved over the end of a message since the
    last one, when the packet asked for an answer, and for duplicates below the expected PSN.

    The queue takes plain triggers up to :data:`PLAIN_LIMIT`; one that is refused leaves the count, so that
    the next packet tries again. The others are refused only when it is full. Refused triggers are counted.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    settings : records.settings, in
        ``sack_threshold``.
    init : stream of records.receive_init, in
    report : stream of records.received_report, in
        Three cycles each.
    nack : stream of records.nack_trigger, in
    naks : streams of records.nack_trigger, in, array of :data:`NAK_SOURCES`
        NAKs only, which carry neither EV nor timestamp: ``qp``, ``psn``, ``plane`` and ``code`` count. Each
        source needs some cycles from one to the next, so they come before ``nack``.
    trigger : stream of trigger_record
    counter : stream of records.counter_event
        SACK_TRIGGERS_DROPPED.
    idle : 1

    Source: protocol.md 3.4 and 3.5, profile.md 5.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "settings": In(records.settings(config)),
                "init": In(stream.Signature(records.receive_init(config))),
                "report": In(stream.Signature(records.received_report(config))),
                "nack": In(stream.Signature(records.nack_trigger(config))),
                "naks": In(stream.Signature(records.nack_trigger(config))).array(NAK_SOURCES),
                "trigger": Out(stream.Signature(trigger_record(config))),
                "counter": Out(stream.Signature(records.counter_event(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        report, nack = self.report.payload, self.nack.payload
        shape = trigger_record(config)
        m.submodules.queue = queue = SyncFIFOBuffered(width=shape.size, depth=TRIGGER_QUEUE_DEPTH)
        entry = Signal(shape)
        oldest = Signal(shape)
        m.d.comb += [
            queue.w_data.eq(entry),
            oldest.eq(queue.r_data),
            self.trigger.payload.eq(oldest),
            self.trigger.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.trigger.ready),
        ]
        crowded = Signal()
        m.d.comb += crowded.eq(queue.level >= PLAIN_LIMIT)

        context_shape = data.StructLayout(
            {
                "count": _COUNT_BITS,
                "seen": config.planes,
                "last": records.plane_bits(config),
                "owed": 1,  # the plane in turn was passed over
                "asked": 1,  # a packet asked while others were missing
                "ack": 1,  # the cumulative PSN moved over the end of a message
            }
        )
        m.submodules.contexts = contexts = Memory(shape=context_shape, depth=config.qps, init=[])
        read, write = contexts.read_port(), contexts.write_port()
        context = read.data
        qp = Signal(config.qp_bits)

        # What the report makes of the context.
        added = Signal(14)
        count = Signal(_COUNT_BITS)
        seen = Signal(config.planes)
        turn = Signal(records.plane_bits(config))
        over = Signal()
        far_over = Signal()
        strong = Signal()
        wants_ack = Signal()
        asked = Signal()
        owed = Signal()
        last = Signal(records.plane_bits(config))
        m.d.comb += [
            added.eq(Mux(report.length < LEAST_BYTES, LEAST_BYTES, report.length)),
            read.addr.eq(Mux(self.init.valid, self.init.payload.qp, report.qp)),
            read.en.eq(0),
            write.addr.eq(qp),
        ]
        here = Signal(config.planes)
        m.d.comb += here.bit_select(report.plane, 1).eq(1)
        # The nearest plane behind the last one, among those seen; later assignments win.
        following = Signal(records.plane_bits(config))
        all_seen = Signal(config.planes)
        m.d.comb += [all_seen.eq(context.seen | here), following.eq(context.last)]
        with m.Switch(context.last):
            for origin in range(config.planes):
                with m.Case(origin):
                    for distance in range(config.planes, 0, -1):
                        plane = (origin + distance) % config.planes
                        with m.If(all_seen[plane]):
                            m.d.comb += following.eq(plane)

        threshold = self.settings.sack_threshold
        is_turn = report.plane == turn
        fires = strong | (is_turn & (over | owed)) | far_over
        taken = Signal()
        dropped = Signal()
        push_report = Signal()
        new = Signal(context_shape)
        echoes = Signal()  # a plain trigger
        forgotten = Signal(config.planes)
        m.d.comb += [
            new.count.eq(Mux(taken, 0, Mux(count[-1], 1 << (_COUNT_BITS - 1), count))),
            echoes.eq(taken & ~strong),
            forgotten.bit_select(turn, 1).eq(echoes & ~is_turn & owed),
            new.seen.eq(seen & ~forgotten),
            new.last.eq(Mux(echoes & (is_turn | owed), turn, last)),
            new.owed.eq(Mux(echoes, ~is_turn, owed)),
            new.asked.eq(asked),
            new.ack.eq(wants_ack & ~taken),
            write.data.eq(new),
            write.en.eq(0),
        ]

        # Reports, NAKs and NACKs share the queue's port; a report uses it in one cycle of three.
        from_nak = Signal()
        nak_valid = Signal()
        m.d.comb += [
            from_nak.eq(Cat(port.valid for port in self.naks).any()),
            nak_valid.eq(from_nak | self.nack.valid),
        ]
        with m.If(push_report):
            m.d.comb += [entry[name].eq(report[name]) for name in ("qp", "psn", "plane")]
        with m.Elif(self.naks[0].valid):
            m.d.comb += [entry[name].eq(self.naks[0].payload[name]) for name in ("qp", "psn", "plane")]
        with m.Elif(self.naks[1].valid):
            m.d.comb += [entry[name].eq(self.naks[1].payload[name]) for name in ("qp", "psn", "plane")]
        with m.Else():
            m.d.comb += [entry[name].eq(nack[name]) for name in ("qp", "psn", "plane")]
        with m.If(self.naks[0].valid):
            m.d.comb += entry.code.eq(self.naks[0].payload.code)
        with m.Elif(self.naks[1].valid):
            m.d.comb += entry.code.eq(self.naks[1].payload.code)
        with m.Else():
            m.d.comb += entry.code.eq(nack.code)
        m.d.comb += [
            entry.ev.eq(Mux(push_report, report.ev, nack.ev)),
            entry.age.eq(
                Mux(
                    push_report,
                    report.timestamp - report.received_at,
                    nack.timestamp - nack.received_at,
                )
            ),
            entry.timestamped.eq(Mux(push_report, report.timestamped, nack.timestamped)),
            entry.marked.eq(push_report & report.marked),
            entry.retransmission.eq(push_report & report.retransmission),
            entry.sack.eq(push_report),
            entry.ack.eq(push_report & wants_ack),
            entry.nak.eq(~push_report & (from_nak | nack.nak)),
            self.naks[0].ready.eq(~push_report),
            self.naks[1].ready.eq(~push_report & ~self.naks[0].valid),
            self.nack.ready.eq(~push_report & ~from_nak),
            queue.w_en.eq(Mux(push_report, taken, nak_valid)),
        ]
        with m.If(~push_report & nak_valid & ~queue.w_rdy):
            m.d.comb += dropped.eq(1)

        busy = Signal()
        m.d.comb += busy.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [busy.eq(0), read.en.eq(1)]
                m.d.sync += qp.eq(read.addr)
                with m.If(self.init.valid):
                    m.next = "INIT"
                with m.Elif(self.report.valid):
                    m.next = "ADD"
            with m.State("INIT"):
                m.d.comb += [write.data.eq(0), write.en.eq(1), self.init.ready.eq(1)]
                m.next = "IDLE"
            with m.State("ADD"):
                plain_packet = ~report.duplicate
                m.d.sync += [
                    count.eq(context.count + Mux(plain_packet, added, 0)),
                    seen.eq(all_seen),
                    turn.eq(following),
                    last.eq(context.last),
                    owed.eq(context.owed),
                    wants_ack.eq(context.ack | report.advanced | report.ack_request | report.below),
                    asked.eq((context.asked | (report.ack_request & plain_packet)) & ~report.drained),
                    strong.eq(
                        report.marked
                        | report.retransmission
                        | report.duplicate
                        | report.ack_request
                        | (context.asked & (report.drained | report.advanced))
                    ),
                ]
                m.next = "COMPARE"
            with m.State("COMPARE"):
                m.d.sync += [over.eq(count > threshold), far_over.eq(count[1:] > threshold)]
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.comb += [
                    push_report.eq(1),
                    taken.eq(fires & queue.w_rdy & (strong | ~crowded)),
                    dropped.eq(fires & ~taken),
                    write.en.eq(1),
                    self.report.ready.eq(1),
                ]
                m.next = "IDLE"

        # The bank takes one in a bounded number of cycles, so the register does not fill up.
        to_count = Signal(8)
        counted = self.counter.valid & self.counter.ready
        m.d.comb += [
            self.counter.valid.eq(to_count != 0),
            self.counter.payload.index.eq(
                config.planes * records.PORT_COUNTERS + GlobalCounter.SACK_TRIGGERS_DROPPED
            ),
        ]
        with m.If(dropped & ~counted & ~to_count.all()):
            m.d.sync += to_count.eq(to_count + 1)
        with m.Elif(~dropped & counted):
            m.d.sync += to_count.eq(to_count - 1)

        m.d.comb += self.idle.eq(
            ~(busy | self.init.valid | self.report.valid | nak_valid | queue.r_rdy | (to_count != 0))
            & (queue.level == 0)
        )
        return m
