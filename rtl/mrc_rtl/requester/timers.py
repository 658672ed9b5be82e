"""Timers of all QPs: for retransmissions, and for the tail of what was sent."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from .context import ClearSequence

__all__ = ["MAXIMUM_EXPONENT", "Timers", "timer_command"]

#: 1.024 us is this power of two of 128 ns ticks.
_UNIT_LOG2 = 3

#: Longest interval: 1.024 us x 2^24 = 17.18 s.
MAXIMUM_EXPONENT = 24


def timer_command(config: NicConfig) -> data.StructLayout:
    """Start timers of a QP anew, or stop them: of ``retransmission`` and of the ``tail`` those that are set.

    ``attempt``: timeouts since the last progress.
    """
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "retransmission": 1,
            "tail": 1,
            "start": 1,
            "timeout": 5,
            "linear_count": 3,
            "attempt": 5,
        }
    )


class Timers(wiring.Component):
    """Two deadlines per QP in a memory, and a scanner that looks at them only when one may have passed.

    The earliest deadline is kept as a lower bound: starting a timer can only lower it, stopping one leaves
    it. When ``now`` reaches it, all rows are looked at in order from 0, those that expired are reported, and
    the earliest of the others is taken. A bound that was too low costs one scan. Interval before attempt k:
    T = 1.024 us x 2^timeout for k up to linear_count, then doubling, at most 17.18 s. That of a tail is
    ``patience``; there is none without ``config.loss_inference``.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    command, command_valid : timer_command, 1
        Taken in every cycle; at least four cycles apart.
    expired : stream of {qp, tail}, out
        Withdrawn when a command for that timer comes first.
    patience : 17
        Ticks.
    now : 32
        Ticks of 128 ns.
    next_deadline, deadline_valid : 32, 1
        No timer expires before it.
    cleared, idle : 1, 1

    Source: profile.md 4 (timeout), protocol.md 7-Q11.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "command": In(timer_command(config)),
                "command_valid": In(1),
                "expired": Out(stream.Signature(data.StructLayout({"qp": config.qp_bits, "tail": 1}))),
                "patience": In(17),
                "now": In(32),
                "next_deadline": Out(32),
                "deadline_valid": Out(1),
                "cleared": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        rows = config.qps << config.loss_inference
        m.submodules.sequence = sequence = ClearSequence(rows)
        m.submodules.deadlines = deadlines = Memory(
            shape=data.StructLayout({"deadline": 32, "armed": 1}), depth=rows, init=[]
        )
        read_port, write_port = deadlines.read_port(), deadlines.write_port()
        m.d.comb += self.cleared.eq(sequence.cleared)

        # A command: exponent, then deadline, then memory and bound, while the other deadline is made.
        command = Signal(timer_command(config))
        stage = Signal(3 + config.loss_inference)
        attempts_over = Signal(range(64))
        exponent = Signal(range(MAXIMUM_EXPONENT + 1))
        deadline = Signal(32)
        wanted = Signal(7)
        m.d.comb += [
            # Attempt k = attempt + 1 doubles k - linear_count times.
            attempts_over.eq(
                Mux(command.attempt >= command.linear_count, command.attempt + 1 - command.linear_count, 0)
            ),
            wanted.eq(command.timeout + attempts_over),
        ]
        m.d.sync += stage.eq((stage << 1) | self.command_valid)
        with m.If(self.command_valid):
            m.d.sync += command.eq(self.command)
        with m.If(stage[0]):
            m.d.sync += exponent.eq(Mux(wanted > MAXIMUM_EXPONENT, MAXIMUM_EXPONENT, wanted))
        with m.If(stage[1] | stage[2]):
            m.d.sync += deadline.eq(self.now + Mux(stage[2], self.patience, 1 << (exponent + _UNIT_LOG2)))
        written = Signal()
        m.d.comb += [
            written.eq(stage[2] & command.retransmission),
            write_port.addr.eq(Cat(command.qp, stage[3:])),
            write_port.data.deadline.eq(deadline),
            write_port.data.armed.eq(command.start),
            write_port.en.eq(written),
        ]
        if config.loss_inference:
            m.d.comb += written.eq((stage[2] & command.retransmission) | (stage[3] & command.tail))
        with m.If(~sequence.cleared):
            m.d.comb += [
                write_port.addr.eq(sequence.row),
                write_port.data.eq(0),
                write_port.en.eq(1),
            ]
        busy = Signal()
        m.d.comb += busy.eq(self.command_valid | stage.any())

        # The bound. A scan begins without one and gathers it anew.
        bound = Signal(32)
        bound_valid = Signal()
        scanning = Signal()
        candidate = Signal(32)
        candidate_valid = Signal()
        row_difference = Signal(32)
        with m.If(candidate_valid & (~bound_valid | (candidate - bound)[31])):
            m.d.sync += [bound.eq(candidate), bound_valid.eq(1)]

        passed = Signal()
        m.d.comb += [
            passed.eq(bound_valid & ~scanning & ~(self.now - bound)[31]),
            self.next_deadline.eq(bound),
            self.deadline_valid.eq(bound_valid),
            self.idle.eq(sequence.cleared & ~busy & ~scanning & ~passed),
        ]

        number = Signal(config.qp_bits + config.loss_inference)
        row = read_port.data
        changed = Signal()  # a command for the timer looked at
        expired = self.expired.payload
        m.d.comb += [
            read_port.addr.eq(number),
            Cat(expired.qp, expired.tail).eq(number),
            row_difference.eq(self.now - row.deadline),
            candidate.eq(Mux(written, deadline, row.deadline)),
            candidate_valid.eq(written & command.start),
            changed.eq(
                self.command_valid
                & (self.command.qp == expired.qp)
                & Mux(expired.tail, self.command.tail, self.command.retransmission)
            ),
        ]
        last = number == rows - 1

        def advance() -> None:
            m.d.sync += number.eq(number + 1)
            with m.If(last):
                m.d.sync += number.eq(0)
                m.d.sync += scanning.eq(0)
                m.next = "PARKED"
            with m.Else():
                m.next = "LOOK"

        with m.FSM():
            with m.State("PARKED"):
                with m.If(passed & ~busy):
                    m.d.sync += [scanning.eq(1), bound_valid.eq(0)]
                    m.next = "LOOK"
            with m.State("LOOK"):
                with m.If(~busy):
                    m.next = "JUDGE"
            with m.State("JUDGE"):
                # The row is one of before a command that came meanwhile: look again.
                with m.If(busy):
                    m.next = "LOOK"
                with m.Elif(~row.armed):
                    advance()
                with m.Elif(row_difference[31]):
                    m.d.comb += candidate_valid.eq(1)
                    advance()
                with m.Else():
                    m.next = "REPORT"
            with m.State("REPORT"):
                m.d.comb += self.expired.valid.eq(1)
                with m.If(self.expired.ready):
                    m.next = "AWAIT"
                with m.If(changed):
                    advance()
            with m.State("AWAIT"):
                # The report's own command writes the row; then it is looked at like any other.
                with m.If(changed):
                    advance()
        return m
