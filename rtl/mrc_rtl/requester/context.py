"""The send context of a queue pair and the memories that hold it."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from .records import send_slot_bits

__all__ = ["ContextStore", "send_context"]


def send_context(config: NicConfig) -> data.StructLayout:
    """Everything the requester knows of a QP, in the groups that are memories of their own.

    ``settings``, ``limits``
        What the host wrote (:data:`mrc_rtl.tables.QP_SEND`); ``limits.mpr_psns`` is at most the engine's
        ring.
    ``psns``
        Next new PSN, oldest PSN without a cumulative SACK, last PSN of the newest opened message.
    ``queue``
        Requests as counters: ``completed`` counts from 0 and is the MSN of the oldest incomplete request;
        ``open`` and ``posted`` count modulo twice the ring; ``immediates`` are opened and not completed.
    ``progress``
        ``ack_next``: first PSN without a transport ACK. ``rqmsn``: WRITE_WITH_IMMs opened. ``attempt``:
        timeouts since the last progress. ``in_ready``, ``in_complete``: the QP stands in that queue of the
        sequencer. ``message_open``: ``psns.last`` is not yet sent. ``blocked``: the next request waits for an
        immediate to complete. ``armed``: the timer runs. ``failed``, ``failed_slot``, ``failed_status``: the
        request an error is reported for.
    """
    slot = send_slot_bits(config)
    return data.StructLayout(
        {
            "settings": data.StructLayout(
                {
                    "state": 3,
                    "mtu_log2": 4,
                    "timeout": 5,
                    "linear_count": 3,
                    "exponential_count": 5,
                    "protection_domain": 8,
                    "completion_queue": 6,
                    "ev_profile": 8,
                }
            ),
            "limits": data.StructLayout({"initial_psn": 24, "mpr_psns": 13, "max_immediates": 16}),
            "psns": data.StructLayout({"next": 24, "unacked": 24, "last": 24}),
            "queue": data.StructLayout(
                {"completed": 24, "open": slot + 1, "posted": slot + 1, "immediates": slot + 1}
            ),
            "progress": data.StructLayout(
                {
                    "ack_next": 24,
                    "rqmsn": 16,
                    "attempt": 5,
                    "in_ready": 1,
                    "in_complete": 1,
                    "message_open": 1,
                    "message_immediate": 1,
                    "blocked": 1,
                    "armed": 1,
                    "failed": 1,
                    "failed_status": 5,
                    "failed_slot": slot,
                }
            ),
        }
    )


class ContextStore(wiring.Component):
    """One memory per group of :func:`send_context`, read and written together.

    After reset every context is written, one a cycle, with ``write_context``, which the writer keeps at zero
    (state RESET) until ``cleared``: that costs no gates.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    read_qp, context : qp_bits, send_context
        ``context`` is valid one cycle after ``read_qp``.
    write, write_qp, write_context
        Write a context.
    cleared : 1
        The sequence after reset is over.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        layout = send_context(config)
        super().__init__(
            {
                "read_qp": In(config.qp_bits),
                "context": Out(layout),
                "write": In(1),
                "write_qp": In(config.qp_bits),
                "write_context": In(layout),
                "cleared": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.sequence = sequence = ClearSequence(self.config.qps)
        m.d.comb += self.cleared.eq(sequence.cleared)
        for name, field in send_context(self.config):
            m.submodules[name] = memory = Memory(shape=field.shape, depth=self.config.qps, init=[])
            read_port, write_port = memory.read_port(), memory.write_port()
            m.d.comb += [
                read_port.addr.eq(self.read_qp),
                self.context[name].eq(read_port.data),
                write_port.addr.eq(self.write_qp),
                write_port.data.eq(self.write_context[name]),
                write_port.en.eq(self.write),
            ]
            with m.If(~sequence.cleared):
                m.d.comb += [write_port.addr.eq(sequence.row), write_port.en.eq(1)]
        return m


class ClearSequence(wiring.Component):
    """Counts the rows of a memory once after reset, so that they can be written with zeros.

    Parameters
    ----------
    rows : int

    Members
    -------
    row, cleared
        ``row`` is to be cleared in every cycle in which ``cleared`` is 0.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        super().__init__({"row": Out(max(1, (rows - 1).bit_length())), "cleared": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(~self.cleared):
            m.d.sync += self.row.eq(self.row + 1)
            with m.If(self.row == self.rows - 1):
                m.d.sync += self.cleared.eq(1)
        return m
