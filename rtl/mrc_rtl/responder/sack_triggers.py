"""Decides which received packets are answered by a SACK, and by a transport ACK with it."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records
from ..config import NicConfig
from ..records import AnswerKind

__all__ = ["LEAST_BYTES", "PLAIN_LIMIT", "TRIGGER_QUEUE_DEPTH", "SackTriggers", "trigger_record"]

#: Triggers that wait to be answered.
TRIGGER_QUEUE_DEPTH = 16

#: From this many waiting triggers on only those are taken that nothing else makes good.
PLAIN_LIMIT = 8

#: What a packet adds to its QP's count at least.
LEAST_BYTES = 1024

_THRESHOLD_BITS = 17
_COUNTED_KINDS = 2  # the first ones of AnswerKind: they change the QP's count


def trigger_record(config: NicConfig) -> data.StructLayout:
    """An answer that is due: ``kind`` says which, the rest is of the packet (``records.refused_packet``)."""
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
            "kind": records.ANSWER_KIND_BITS,
        }
    )


class SackTriggers(wiring.Component):
    """Counts received bytes per QP and queues the triggers of SACKs, NACKs, NAKs and endpoint responses.

    A packet triggers a SACK at once when it is marked, a retransmission, a duplicate, or asks for an answer;
    also when the out-of-order packets drain after one that asked. Otherwise it adds its bytes to the count,
    and when the count exceeds the threshold the packet of the plane whose turn it is triggers: the next one
    behind the plane of the last such SACK, among those the QP was seen on. If it does not come before the
    count exceeds the threshold once more, another plane's packet triggers, and the plane in turn is owed an
    echo: its next packet triggers whatever the count is. If it does not come for another such round either,
    it is forgotten and the turn passes on. So the echoes cover all planes in use, for any threshold.

    A transport ACK goes with the SACK when the cumulative PSN has moved over the end of a message since the
    last one, when the packet asked for an answer, and for duplicates below the expected PSN.

    The queue takes plain triggers up to :data:`PLAIN_LIMIT`; one that is refused stays due, so that the next
    packet tries again. Answers of endpoint requests are taken up to there, too, so that they disturb no QP:
    who asked asks again. The others are refused only when it is full. Refused triggers are counted.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    settings : records.settings, in
        ``sack_threshold``.
    init : stream of records.receive_init, in
    coming, report : 1, stream of records.received_report, in
        Three cycles each, of which the last is the one in which ``report`` is valid.
    refused : stream of records.refused_packet, in
        In turns with the reports.
    nak : stream of records.nak_trigger, in
    trigger : stream of trigger_record
    dropped : 1
        Pulse: a trigger was refused.
    idle : 1

    Source: protocol.md 3.4 and 3.5, profile.md 5.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "settings": In(records.settings(config)),
                "init": In(stream.Signature(records.receive_init(config))),
                "coming": In(1),
                "report": In(stream.Signature(records.received_report(config))),
                "refused": In(stream.Signature(records.refused_packet(config))),
                "nak": In(stream.Signature(records.nak_trigger(config))),
                "trigger": Out(stream.Signature(trigger_record(config))),
                "dropped": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        report, refused, nak = self.report.payload, self.refused.payload, self.nak.payload
        # Where packets are no longer than the least count, all of them count the same.
        unit_bits = 10 if config.mtu <= LEAST_BYTES else 0
        count_bits = _THRESHOLD_BITS + 1 - unit_bits
        context_shape = data.StructLayout(
            {
                "count": count_bits,  # since the last trigger, beyond the threshold when that is exceeded
                "due": 1,  # it exceeded the threshold
                "overdue": 1,  # and again
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

        # The packet that is worked on.
        qp = Signal(config.qp_bits)
        is_refused = Signal()
        packet = Signal(records.refused_packet(config))
        here = Signal(config.planes)
        m.d.comb += [
            *(packet[name].eq(Mux(is_refused, refused[name], report[name]))
              for name, _ in packet.shape() if name not in ("qp", "kind")),
            here.bit_select(packet.plane, 1).eq(1),
            write.addr.eq(qp),
        ]  # fmt: skip

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

        # First cycle behind the reading: what the packet adds.
        add = Signal()
        old = Signal(context_shape)
        turn = Signal.like(following)
        strong = Signal()
        longer = report.length[10:].any()
        if unit_bits:
            added = Cat(~is_refused)
        else:
            bytes_added = Cat(report.length[:10] & longer.replicate(10), report.length[10] | ~longer)
            added = Mux(is_refused, 0, Cat(bytes_added, report.length[11:]))
        with m.If(add):
            m.d.sync += [
                old.eq(context),
                old.count.eq(context.count + added),
                old.seen.eq(all_seen),
                old.ack.eq(context.ack | packet.ack_request | (refused.kind[0] & is_refused)),
                turn.eq(following),
                strong.eq(packet.marked | packet.retransmission | packet.ack_request | is_refused),
            ]

        # Second cycle: whether it triggers.
        decide = Signal()
        advanced = Signal()
        drained = Signal()
        over = Signal()
        excess = Signal(count_bits)
        due = Signal()
        overdue = Signal()
        is_turn = Signal()
        wants_ack = Signal()
        at_once = Signal()
        fires = Signal()
        taken = Signal()
        echoes = Signal()  # a plain trigger
        forgotten = Signal(config.planes)
        room = Signal()
        crowded = Signal()
        new = Signal(context_shape)
        threshold = self.settings.sack_threshold[unit_bits:]
        m.d.comb += [
            advanced.eq(report.advanced & ~is_refused),
            drained.eq(report.drained & ~is_refused),
            over.eq(old.count > threshold),
            excess.eq(old.count - threshold),
            due.eq(old.due | over),
            overdue.eq(old.overdue | (old.due & over)),
            is_turn.eq(packet.plane == turn),
            wants_ack.eq(old.ack | advanced),
            at_once.eq(strong | (old.asked & (drained | advanced))),
            fires.eq(at_once | (is_turn & (due | old.owed)) | overdue),
            taken.eq(fires & room & (at_once | ~crowded)),
            echoes.eq(taken & ~at_once),
            forgotten.bit_select(turn, 1).eq(echoes & ~is_turn & old.owed),
            # It may overflow while it is overdue.
            new.count.eq(Mux(taken, 0, Mux(over, excess, old.count))),
            new.due.eq(due & ~taken),
            new.overdue.eq(overdue & ~taken),
            new.seen.eq(old.seen & ~forgotten),
            new.last.eq(Mux(echoes & (is_turn | old.owed), turn, old.last)),
            new.owed.eq(Mux(echoes, ~is_turn, old.owed)),
            new.asked.eq((old.asked | (packet.ack_request & ~is_refused)) & ~drained),
            new.ack.eq(wants_ack & ~taken),
            write.data.eq(new),
            write.en.eq(0),
        ]

        # The queue; what goes into it stands in a register for a cycle.
        slot_bits = (TRIGGER_QUEUE_DEPTH - 1).bit_length()
        m.submodules.queue = queue = Memory(shape=trigger_record(config), depth=TRIGGER_QUEUE_DEPTH, init=[])
        queue_write, queue_read = queue.write_port(), queue.read_port(domain="comb")
        head, tail = Signal(slot_bits + 1), Signal(slot_bits + 1)
        level = Signal(slot_bits + 1)
        entry = Signal(trigger_record(config))
        push = Signal()
        make = Signal()  # the entry
        from_nak = Signal()
        m.d.comb += [
            level.eq(head - tail),
            room.eq(~level[-1]),
            crowded.eq(level[-2:].any()),
            queue_write.addr.eq(head),
            queue_write.data.eq(entry),
            queue_write.en.eq(push),
            queue_read.addr.eq(tail),
            self.trigger.payload.eq(queue_read.data),
            self.trigger.valid.eq(head != tail),
        ]
        m.d.sync += [
            push.eq(0),
            head.eq(head + push),
            tail.eq(tail + (self.trigger.valid & self.trigger.ready)),
        ]
        with m.If(make):
            m.d.sync += [
                entry.qp.eq(qp),
                *(
                    entry[name].eq(packet[name])
                    for name in ("ev", "age", "timestamped", "marked", "retransmission")
                ),
                entry.psn.eq(Mux(from_nak, nak.psn, packet.psn)),
                entry.plane.eq(Mux(from_nak, nak.plane, packet.plane)),
            ]

        busy = Signal()
        after_refused = Signal()
        takes_refused = Signal()
        m.d.comb += [
            busy.eq(1),
            takes_refused.eq(self.refused.valid & ~(self.coming & after_refused)),
            read.addr.eq(Mux(takes_refused, refused.qp, report.qp)),
            read.en.eq(0),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [busy.eq(0), read.en.eq(1)]
                m.d.sync += [qp.eq(read.addr), is_refused.eq(takes_refused)]
                with m.If(self.init.valid):
                    m.d.sync += qp.eq(self.init.payload.qp)
                    m.next = "INIT"
                with m.Elif(self.nak.valid):
                    m.d.sync += qp.eq(nak.qp)
                    m.next = "NAK"
                with m.Elif(takes_refused):
                    m.d.sync += after_refused.eq(1)
                    m.next = "REFUSE"
                    with m.If(refused.kind < _COUNTED_KINDS):
                        m.next = "ADD"
                with m.Elif(self.coming):
                    m.d.sync += after_refused.eq(0)
                    m.next = "ADD"
            with m.State("INIT"):
                m.d.comb += [write.data.eq(0), write.en.eq(1), self.init.ready.eq(1)]
                m.next = "IDLE"
            with m.State("NAK"):
                m.d.comb += [make.eq(1), from_nak.eq(1), self.nak.ready.eq(1), self.dropped.eq(~room)]
                m.d.sync += [entry.kind.eq(nak.kind), push.eq(room)]
                m.next = "IDLE"
            with m.State("REFUSE"):
                takes = room & ~(crowded & (refused.kind == AnswerKind.ENDPOINT_RESPONSE))
                m.d.comb += [make.eq(1), self.refused.ready.eq(1), self.dropped.eq(~takes)]
                m.d.sync += [entry.kind.eq(refused.kind), push.eq(takes)]
                m.next = "IDLE"
            with m.State("ADD"):
                m.d.comb += add.eq(1)
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.comb += [
                    make.eq(1),
                    decide.eq(is_refused | self.report.valid),
                    self.report.ready.eq(~is_refused),
                    self.refused.ready.eq(is_refused),
                ]
                failed = report.failed & ~is_refused
                with m.If(failed):
                    m.d.sync += entry.kind.eq(AnswerKind.NAK_REMOTE_OPERATIONAL)
                with m.Else():
                    m.d.sync += entry.kind.eq(Cat(wants_ack, Const(0, records.ANSWER_KIND_BITS - 1)))
                with m.If(decide):
                    m.d.sync += push.eq(Mux(failed, room, taken))
                    m.d.comb += [
                        write.en.eq(~failed),
                        self.dropped.eq(Mux(failed, ~room, fires & ~taken)),
                    ]
                    m.next = "IDLE"

        m.d.comb += self.idle.eq(
            ~(busy | self.init.valid | self.coming | self.refused.valid | self.nak.valid | push)
            & ~self.trigger.valid
        )
        return m
