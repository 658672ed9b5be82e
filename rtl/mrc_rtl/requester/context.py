"""The send context of a queue pair and the memories that hold it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from .records import send_slot_bits

__all__ = ["ClearSequence", "ContextStore", "SettingsStore", "qp_settings", "send_context"]

#: Most bits of a row of contexts that are moved serially: the width of one block RAM.
_SERIAL_BITS = 36

#: Widest memory of contexts that are moved at once.
_PARALLEL_BITS = 72


def qp_settings(config: NicConfig) -> data.StructLayout:
    """What the host wrote (:data:`mrc_rtl.tables.QP_SEND`) and only the host changes.

    ``mpr_psns`` is at most the engine's ring. ``go_back_n`` exists where the configuration has it.
    """
    return data.StructLayout(
        {
            **({"go_back_n": 1} if config.go_back_n else {}),
            "mtu_log2": 4,
            "timeout": 5,
            "linear_count": 3,
            "exponential_count": 5,
            "protection_domain": 8,
            "completion_queue": 6,
            "ev_profile": 8,
            "initial_psn": 24,
            "mpr_psns": config.psn_ring_bits + 1,
            "max_immediates": 16,
        }
    )


def send_context(config: NicConfig) -> data.StructLayout:
    """What changes while a QP sends.

    ``state``
        :class:`mrc_rtl.tables.QpState`.
    ``psns``
        Next new PSN, and oldest PSN without a cumulative SACK; how many behind that one are known to be
        ``held`` by the peer, and how many it has ``reported`` to hold, with ``config.loss_inference``.
    ``queue``
        Requests as counters: ``completed`` counts from 0 and is the MSN of the oldest incomplete request;
        ``open`` and ``posted`` count modulo twice the ring; ``immediates`` are opened and not completed.
    ``progress``
        ``ack_next``: first PSN without a transport ACK. ``rqmsn``: WRITE_WITH_IMMs opened. ``attempt``:
        timeouts since the last progress. ``in_ready``, ``in_complete``: the QP stands in that queue of the
        sequencer. ``message_open``: the newest opened request is not yet sent. ``blocked``: the next request
        waits for an immediate to complete. ``armed``: the timers run. ``asked``, with
        ``config.loss_inference``: a probe of the tail left, and nothing new was heard since. ``failed``,
        ``failed_slot``, ``failed_status``: the request an error is reported for. ``resending``, ``resend``,
        with ``config.go_back_n``: everything from this PSN on is sent again before anything new.
    """
    going_back = {"resend": 24, "resending": 1} if config.go_back_n else {}
    count = config.psn_ring_bits + 1
    known = {"held": count, "reported": count} if config.loss_inference else {}
    slot = send_slot_bits(config)
    return data.StructLayout(
        {
            "state": 3,
            "psns": data.StructLayout({"next": 24, "unacked": 24, **known}),
            "queue": data.StructLayout(
                {"completed": 24, "open": slot + 1, "posted": slot + 1, "immediates": slot + 1}
            ),
            "progress": data.StructLayout(
                {
                    **going_back,
                    "ack_next": 24,
                    "rqmsn": 16,
                    "attempt": 5,
                    "in_ready": 1,
                    "in_complete": 1,
                    "message_open": 1,
                    "message_immediate": 1,
                    "blocked": 1,
                    "armed": 1,
                    **({"asked": 1} if config.loss_inference else {}),
                    "failed": 1,
                    "failed_status": 5,
                    "failed_slot": slot,
                }
            ),
        }
    )


class SettingsStore(wiring.Component):
    """Memory of :func:`qp_settings`; what was read stays until the next read.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    read, read_qp, settings : 1, qp_bits, qp_settings
        ``settings`` is valid from the cycle after ``read`` on.
    write, write_qp, write_settings
        Write an entry.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        layout = qp_settings(config)
        super().__init__(
            {
                "read": In(1),
                "read_qp": In(config.qp_bits),
                "settings": Out(layout),
                "write": In(1),
                "write_qp": In(config.qp_bits),
                "write_settings": In(layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        new, held = self.write_settings.as_value(), self.settings.as_value()
        for low in range(0, len(held), _PARALLEL_BITS):
            part = slice(low, min(low + _PARALLEL_BITS, len(held)))
            m.submodules[f"bits{low}"] = memory = Memory(
                shape=len(held[part]), depth=self.config.qps, init=[]
            )
            read_port, write_port = memory.read_port(), memory.write_port()
            m.d.comb += [
                read_port.addr.eq(self.read_qp),
                read_port.en.eq(self.read),
                held[part].eq(read_port.data),
                write_port.addr.eq(self.write_qp),
                write_port.data.eq(new[part]),
                write_port.en.eq(self.write),
            ]
        return m


class ContextStore(wiring.Component):
    """Memory of :func:`send_context`; one context stands in the user's register, the others here.

    A change of contexts writes the one that leaves while it reads the one that comes: ``shift`` tells the
    user to shift its register down by a row, in which ``row`` moves into the top. Up to a data width of
    64 bits, where a packet has 16 cycles, a context is several narrow rows of one block RAM; at more it is a
    single row, and moves in one cycle. After reset every row is written with zeros, which the register must
    hold until ``cleared``.

    Parameters
    ----------
    config : NicConfig

    Attributes
    ----------
    row_bits, rows : int
        The user's register has ``rows`` times ``row_bits`` bits, the context in the lowest ones.

    Members
    -------
    change, qp : 1, qp_bits
        Pulse: the context of ``qp`` is wanted. Nothing moves when it is there already. ``qp`` stays.
    shift, row : 1, row_bits
        In each of the cycles after ``change`` in which a row moves.
    last : 1
        The context wanted is there after this cycle; held until the next ``change``.
    leaving : row_bits
        Lowest row of the user's register.
    cleared : 1
        The sequence after reset is over.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        size = send_context(config).size
        self.rows = -(-size // _SERIAL_BITS) if config.packet_interval > 8 else 1
        self.row_bits = -(-size // self.rows)
        super().__init__(
            {
                "change": In(1),
                "qp": In(config.qp_bits),
                "shift": Out(1),
                "row": Out(self.row_bits),
                "last": Out(1),
                "leaving": In(self.row_bits),
                "cleared": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        count_bits = (self.rows - 1).bit_length()
        m.submodules.sequence = sequence = ClearSequence(config.qps << count_bits)
        here = Signal(config.qp_bits)  # whose context the register holds
        different = Signal()
        count = Signal(count_bits)
        m.d.comb += [
            self.cleared.eq(sequence.cleared),
            different.eq(self.qp != here),
            self.last.eq(~self.shift | (count == self.rows - 1)),
        ]
        reading = Signal(count_bits)
        m.d.comb += reading.eq(Mux(self.change, 0, count + 1))
        with m.If(self.change):
            m.d.sync += self.shift.eq(different)
        with m.Elif(self.shift):
            m.d.sync += count.eq(count + 1)
            with m.If(self.last):
                m.d.sync += [self.shift.eq(0), count.eq(0), here.eq(self.qp)]
        for low in range(0, self.row_bits, _PARALLEL_BITS):
            part = slice(low, min(low + _PARALLEL_BITS, self.row_bits))
            m.submodules[f"bits{low}"] = memory = Memory(
                shape=len(self.row[part]), depth=config.qps << count_bits, init=[]
            )
            read_port, write_port = memory.read_port(), memory.write_port()
            m.d.comb += [
                read_port.addr.eq(Cat(reading, self.qp)),
                self.row[part].eq(read_port.data),
                write_port.addr.eq(Mux(sequence.cleared, Cat(count, here), sequence.row)),
                write_port.data.eq(self.leaving[part]),
                write_port.en.eq(self.shift | ~sequence.cleared),
            ]
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
