"""Which operation of the sequencer comes next."""

from typing import TYPE_CHECKING

from amaranth.hdl import Mux, Signal, Value

from .queues import Operation

if TYPE_CHECKING:
    from .sequencer import Sequencer

__all__ = ["add"]


def add(s: "Sequencer", waiting: Signal) -> Value:
    """Choose an operation and its QP: of the kinds that waited a cycle ago, one not served lately.

    Returns whether any could be taken.
    """
    m = s.m
    # One cycle old, which is soon enough: nothing stops waiting but by an operation, and that one has
    # its last cycle behind it. Only a timer's report is withdrawn, by a command to the timers.
    served = Signal(len(Operation))
    fresh = Signal(len(Operation))
    candidates = Signal(len(Operation))
    chosen = Signal(len(Operation))
    new_round = Signal()
    able = Signal(len(Operation))
    m.d.comb += [
        able.eq(waiting),
        fresh.eq(able & ~served),
        candidates.eq(Mux(fresh.any(), fresh, able)),
        s.others.eq(chosen[: Operation.TURN].any() | s.ready_queue.r_rdy),
    ]
    with m.If(s.ending | s.timer_valid):
        m.d.comb += able[Operation.TIMEOUT].eq(0)
    m.d.sync += new_round.eq(~fresh.any())
    m.d.sync += [chosen[n].eq(candidates[n] & ~candidates[:n].any()) for n in range(len(Operation))]
    sources = {
        Operation.SENT: s.again.payload.qp,
        Operation.FAILED: s.failed.payload.qp,
        Operation.ERROR: s.error_in.payload.qp,
        Operation.FEEDBACK: s.feedback.payload.qp,
        Operation.TIMEOUT: s.expired.payload.qp,
        Operation.HOST: s.host.payload.qp,
        Operation.DOORBELL: s.doorbell.payload.qp,
        Operation.COMPLETE: s.complete_queue.r_data,
        Operation.RETRANSMIT: s.entry.qp,
        Operation.TURN: s.ready_queue.r_data,
    }
    next_qp = Signal(s.config.qp_bits)
    m.d.comb += [
        next_qp.eq(s.qp),
        s.store.qp.eq(next_qp),
        s.host_settings.read_qp.eq(s.qp),
    ]
    with m.If(s.take):
        m.d.comb += s.store.change.eq(1)
        m.d.sync += [s.qp.eq(next_qp), served.eq(Mux(new_round, chosen, served | chosen))]
        with m.Switch(chosen):
            for operation in Operation:
                with m.Case("-" * (len(Operation) - 1 - operation) + "1" + "-" * operation):
                    m.d.comb += next_qp.eq(sources[operation])
                    m.d.sync += s.operation.eq(operation)
    return chosen.any()
