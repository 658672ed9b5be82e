"""The prober: entropy values that were given up are asked, each on its own path, until they answer."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import PathOperation, path_operation, path_probe, plane_bits, probe_answer
from ..records import settings as settings_layout

__all__ = ["DUE_BITS", "Prober", "bad_path", "probe_number"]

#: Bits of a time at which something is due, in ticks of 128 ns: half of the circle is 67 ms.
DUE_BITS = 20

#: Base RTTs after which a probe counts as lost, log2 (protocol.md 7-Q17).
_BOUND_SHIFT = 2

#: Probes that may leave in the time of as many spacings, log2.
_BURST_LOG2 = 4


def probe_number(config: NicConfig) -> data.StructLayout:
    """The id of a prober's probe; bit 15 tells it from one of the tail, ``sequence`` from one before."""
    return data.StructLayout({"ev_index": 5, "plane": 3, "sequence": 7, "prober": 1})


def bad_path() -> data.StructLayout:
    """What is known about an EV that is probed.

    ``due``: when it is looked at next, in ticks. ``waiting``: a probe with ``sequence`` is out, and counts as
    lost when it is due. ``successes``: answers without a mark in a row. ``level``: how often the interval
    was doubled.
    """
    return data.StructLayout({"due": DUE_BITS, "waiting": 1, "sequence": 7, "successes": 4, "level": 4})


class Prober(wiring.Component):
    """Sends probes on bad EVs, judges their answers, and gives EVs back.

    An EV that went bad is asked one base RTT later, then at intervals that double while nothing answers and
    drop back at the first answer. Enough answers in a row without a mark make it GOOD. A dead port is not
    asked. A budget lets 16 probes of the NIC leave in the time of 16 spacings, at once or not.

    The agenda is a row for every EV of every QP and one time, at which the first of them is due. Then the
    rows of the (QP, plane)s in which an EV went bad are walked: the path table says which EVs are bad, so
    nothing has to be taken off the agenda when the host changes EVs or a QP ends. Answers are judged between
    two EVs of a walk.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    settings : settings
        ``base_rtt``, ``port_up`` and the probe registers.
    now : 48
        Ticks of 128 ns in bits 47:16.
    operation : stream of path_operation, out
        SCAN and RECOVER.
    scanned, bad, went_bad, changed_qp, changed_plane, changed_index
        From :class:`mrc_rtl.paths.path_table.PathTable`.
    state_qp, sending : qp_bits, 1
        Look-up in the requester, one cycle later: a QP that does not send is not probed for.
    answer : stream of probe_answer, in
    probe : stream of path_probe, out
    next_deadline, deadline_valid : 32, 1
        Tick at which an EV is due at the earliest.
    idle : 1

    Source: protocol.md 2.2, 7-Q17 and Q18; profile.md 3 and 10.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "settings": In(settings_layout(config)),
                "now": In(48),
                "operation": Out(stream.Signature(path_operation(config))),
                "scanned": In(1),
                "bad": In(32),
                "went_bad": In(1),
                "changed_qp": In(config.qp_bits),
                "changed_plane": In(plane_bits(config)),
                "changed_index": In(5),
                "state_qp": Out(config.qp_bits),
                "sending": In(1),
                "answer": In(stream.Signature(probe_answer(config))),
                "probe": Out(stream.Signature(path_probe(config))),
                "next_deadline": Out(32),
                "deadline_valid": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config, settings = self.config, self.settings
        plane_width = plane_bits(config)
        rows = config.qps << plane_width
        entry_shape = bad_path()
        m.submodules.entries = entries = Memory(shape=entry_shape, depth=rows * 32, init=[])
        read, write = entries.read_port(), entries.write_port()
        # Whether an EV of a (QP, plane) may be bad. Whatever it holds after a reset is found out by a walk.
        m.submodules.suspects = suspects = Memory(shape=1, depth=rows, init=[])
        suspect_read, suspect_write = suspects.read_port(), suspects.write_port()

        now = Signal(DUE_BITS)
        bound = Signal(DUE_BITS)
        m.d.comb += [now.eq(self.now[16:]), bound.eq(settings.base_rtt << _BOUND_SHIFT)]

        # The first time at which something is due, from times that are told one a cycle.
        told = Signal()
        candidate = write.data.due
        earliest = Signal(DUE_BITS)
        ahead = Signal(DUE_BITS)
        restart = Signal()
        tells = Signal()  # that of the EV at work
        m.d.comb += [
            ahead.eq(earliest - now),
            self.next_deadline.eq(self.now[16:] + Cat(ahead, ahead[-1].replicate(32 - DUE_BITS))),
        ]
        with m.If(restart):
            m.d.sync += self.deadline_valid.eq(0)
        with m.Elif(told & (~self.deadline_valid | (candidate - earliest)[DUE_BITS - 1])):
            m.d.sync += [self.deadline_valid.eq(1), earliest.eq(candidate)]

        # An EV that went bad waits here for a cycle in which its row can be written.
        fresh = Signal()
        fresh_row = Signal(range(rows))
        fresh_index = Signal(5)
        with m.If(self.went_bad):
            m.d.sync += [
                fresh.eq(1),
                fresh_row.eq(Cat(self.changed_plane, self.changed_qp)),
                fresh_index.eq(self.changed_index),
            ]

        # The walk, and the EV at work: one of the walk, or that of an answer.
        row = Signal(range(rows))
        place = Signal(5)
        left = Signal(32)  # bad EVs from ``place`` on
        walking = Signal()
        answering = Signal()
        answered = Signal()  # an answer waits
        number = Signal(probe_number(config))
        answer_qp = Signal(config.qp_bits)
        marked = Signal()
        answer_number = probe_number(config)(self.answer.payload.number)
        m.d.comb += self.answer.ready.eq(~answered)
        with m.If(self.answer.valid & ~answered):
            m.d.sync += [
                answered.eq(1),
                number.eq(answer_number),
                answer_qp.eq(self.answer.payload.qp),
                marked.eq(self.answer.payload.marked),
            ]
        work_row = Signal(range(rows))
        work_index = Signal(5)
        m.d.comb += [
            work_row.eq(Mux(answering, Cat(number.plane[:plane_width], answer_qp), row)),
            work_index.eq(Mux(answering, number.ev_index, place)),
            read.addr.eq(Cat(work_index, work_row)),
            suspect_read.addr.eq(row),
            self.state_qp.eq(work_row[plane_width:]),
        ]

        entry = read.data
        following = Signal(entry_shape)
        level = Signal(4)
        base = Signal(DUE_BITS)
        span = Signal(DUE_BITS)
        sequence = Signal(7)
        spent = Signal(_BURST_LOG2 + 1)  # of the budget
        renewed = Signal(DUE_BITS)  # when it was new
        renews = Signal()
        due = Signal()
        successes = Signal(4)
        plane_up = Signal()
        sum_ = Signal(DUE_BITS)
        store = Signal()
        clear_suspect = Signal()
        m.d.comb += [
            due.eq(~(now - entry.due)[-1]),
            # Once in half of the circle of times it comes late, which costs a spacing.
            renews.eq(((now - renewed) >> _BURST_LOG2)[: DUE_BITS - _BURST_LOG2] >= settings.probe_spacing),
            successes.eq(Mux(marked, 0, entry.successes + 1)),
            plane_up.eq(settings.port_up.bit_select(work_row[:plane_width], 1)),
            sum_.eq(base + span),
            self.operation.payload.qp.eq(work_row[plane_width:]),
            self.operation.payload.plane.eq(work_row[:plane_width]),
            self.operation.payload.ev_index.eq(work_index),
            write.addr.eq(Mux(tells, Cat(work_index, work_row), Cat(fresh_index, fresh_row))),
            write.en.eq(store | (fresh & ~tells)),
            suspect_write.addr.eq(Mux(clear_suspect, row, fresh_row)),
            suspect_write.data.eq(~clear_suspect),
            suspect_write.en.eq(clear_suspect | (fresh & ~tells)),
        ]
        with m.If(tells):
            m.d.comb += [write.data.eq(following), write.data.due.eq(sum_), told.eq(1)]
        with m.Else():
            m.d.comb += write.data.due.eq(now + settings.base_rtt)
            with m.If(fresh & ~clear_suspect & ~restart):
                m.d.comb += told.eq(1)
                m.d.sync += fresh.eq(self.went_bad)

        probe = self.probe.payload
        m.d.comb += [
            probe.qp.eq(work_row[plane_width:]),
            probe.plane.eq(work_row[:plane_width]),
            probe.ev_index.eq(work_index),
            probe.number.eq(
                Cat(work_index, (work_row[:plane_width] | Const(0, 3))[:3], sequence, Const(1, 1))
            ),
        ]

        def wait_for_interval() -> None:
            """The next time is the interval at ``level`` from ``base`` on."""
            m.d.sync += span.eq(settings.probe_interval)
            m.next = "DOUBLE"

        with m.FSM() as states:
            with m.State("IDLE"):
                m.d.sync += [row.eq(0), walking.eq(0), answering.eq(0)]
                with m.If(answered):
                    m.d.sync += answering.eq(1)
                    m.next = "READ"
                with m.Elif(self.deadline_valid & ahead[-1] | (self.deadline_valid & ~ahead.any())):
                    m.d.sync += walking.eq(1)
                    m.d.comb += restart.eq(1)
                    m.next = "ROW"

            # The walk over rows.
            with m.State("ROW"):
                m.next = "SUSPECT"
            with m.State("SUSPECT"):
                m.next = "SCAN"
                with m.If(~suspect_read.data | (row[:plane_width] >= config.planes)):
                    m.next = "NEXT_ROW"
            with m.State("NEXT_ROW"):
                m.d.sync += row.eq(row + 1)
                m.next = "ROW"
                with m.If(row == rows - 1):
                    m.next = "IDLE"
            with m.State("SCAN"):
                m.d.comb += [
                    self.operation.valid.eq(1),
                    self.operation.payload.operation.eq(PathOperation.SCAN),
                ]
                with m.If(self.operation.ready):
                    m.next = "SCANNING"
            with m.State("SCANNING"):
                m.d.sync += [place.eq(0), left.eq(self.bad)]
                with m.If(self.scanned):
                    m.next = "PLACE"
                    with m.If(~self.bad.any()):
                        # None went bad since, for that takes the table longer than this.
                        m.d.comb += clear_suspect.eq(1)
                        m.next = "NEXT_ROW"
            with m.State("PLACE"):
                m.d.sync += answering.eq(0)
                with m.If(answered):
                    m.d.sync += answering.eq(1)
                    m.next = "READ"
                with m.Elif(left[0]):
                    m.next = "READ"
                with m.Else():
                    m.d.sync += [place.eq(place + 1), left.eq(left >> 1)]
                    with m.If(~left.any()):
                        m.next = "NEXT_ROW"

            # One EV.
            with m.State("READ"):
                m.next = "JUDGE"
            with m.State("JUDGE"):
                m.d.sync += [
                    following.eq(entry),
                    base.eq(entry.due - bound),  # when the probe left
                    level.eq(0),
                ]
                with m.If(answering):
                    m.d.sync += [
                        following.waiting.eq(0),
                        following.level.eq(0),
                        following.successes.eq(successes),
                    ]
                    wait_for_interval()
                    with m.If(~entry.waiting | (entry.sequence != number.sequence)):
                        m.next = "DONE"
                    with m.Elif(successes >= settings.probe_successes):
                        m.next = "RECOVER"
                with m.Elif(~due):
                    m.d.sync += [base.eq(entry.due), span.eq(0)]
                    m.next = "TELL"
                with m.Elif(entry.waiting):
                    m.d.sync += [following.waiting.eq(0), following.successes.eq(0)]
                    with m.If(entry.level != settings.probe_doublings):
                        m.d.sync += [following.level.eq(entry.level + 1), level.eq(entry.level + 1)]
                    with m.Else():
                        m.d.sync += level.eq(entry.level)
                    wait_for_interval()
                with m.Else():
                    m.d.sync += [base.eq(now), level.eq(entry.level)]
                    # Neither a dead port nor a QP that has ended says anything about the path.
                    wait_for_interval()
                    with m.If(renews):
                        m.d.sync += [spent.eq(0), renewed.eq(now)]
                    with m.If(plane_up & self.sending & (renews | ~spent[-1])):
                        m.next = "SEND"
                    with m.Elif(plane_up & self.sending):
                        m.d.sync += span.eq(settings.probe_spacing)
                        m.next = "STORE"
            with m.State("SEND"):
                m.d.comb += self.probe.valid.eq(1)
                m.d.sync += [
                    following.waiting.eq(1),
                    following.sequence.eq(sequence),
                    base.eq(now),
                    span.eq(bound),
                ]
                with m.If(self.probe.ready):
                    m.d.sync += [sequence.eq(sequence + 1), spent.eq(spent + 1)]
                    m.next = "STORE"
            with m.State("DOUBLE"):
                m.d.sync += [level.eq(level - 1), span.eq(span << 1)]
                with m.If(level == 0):
                    m.d.sync += span.eq(span)
                    m.next = "STORE"
            with m.State("STORE"):
                m.d.comb += [store.eq(1), tells.eq(1)]
                m.next = "DONE"
            with m.State("TELL"):
                m.d.comb += tells.eq(1)
                m.next = "DONE"
            with m.State("RECOVER"):
                m.d.comb += [
                    self.operation.valid.eq(1),
                    self.operation.payload.operation.eq(PathOperation.RECOVER),
                ]
                with m.If(self.operation.ready):
                    # The EV may stand among those that the walk still has to look at.
                    m.d.sync += [answering.eq(0), answered.eq(0)]
                    m.next = "IDLE"
                    with m.If(walking):
                        m.next = "SCAN"
            with m.State("DONE"):
                with m.If(answering):
                    m.d.sync += answered.eq(0)
                m.next = "IDLE"
                with m.If(walking):
                    m.next = "PLACE"
                    with m.If(~answering):
                        m.d.sync += [place.eq(place + 1), left.eq(left >> 1)]
        m.d.comb += self.idle.eq(
            states.ongoing("IDLE")
            & ~answered
            & ~self.answer.valid
            & ~fresh
            & ~(self.deadline_valid & (ahead[-1] | ~ahead.any()))
        )
        return m
