"""The gate of the sender: how many packets of a queue pair may still be given out."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..memory_rules import DISTRIBUTED_ROWS

__all__ = ["Gate"]


def count_bits(config: NicConfig) -> int:
    """Bits of a count of packets: up to 7 may be given out, and some that ask nobody come on top."""
    return 4 if config.packet_interval > 4 else 5


class Gate(wiring.Component):
    """Counts per QP, modulo 16 or 32: packets given out, handed over, and how many may be given out.

    A packet counts as a full one from the moment it is given out until its size is known. After every event
    the sequencer tells how many full packets the window leaves room for beyond those handed over, up to 7.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    look_qp, may_send, last, give, stop, wake
        See :class:`mrc_rtl.congestion.windows.CongestionWindows`.
    event_qp, event_on, sent_qp, sent_on : qp_bits, 1
        Whether a QP has a window.
    switch, switch_qp, switch_on : 1, qp_bits, 1
        A window begins or ends.
    restart, start_qp : 1, qp_bits
        Nothing of the QP is given out.
    begin, qp, starts, sends : 1, qp_bits, 1, 1
        An event of ``qp`` begins: the start of its window, or a packet handed over.
    more, packets : 1, 3
        There is room for so many more.
    end : 1
        The event ends.
    idle : 1

    Source: profile.md 8; protocol.md 2.7 (a QP sends while less is in flight than its window).
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        qp = config.qp_bits
        super().__init__(
            {
                "look_qp": In(qp),
                "may_send": Out(1),
                "last": Out(1),
                "give": In(1),
                "stop": In(1),
                "wake": Out(stream.Signature(data.StructLayout({"qp": qp}))),
                "event_qp": In(qp),
                "event_on": Out(1),
                "sent_qp": In(qp),
                "sent_on": Out(1),
                "switch": In(1),
                "switch_qp": In(qp),
                "switch_on": In(1),
                "restart": In(1),
                "start_qp": In(qp),
                "begin": In(1),
                "qp": In(qp),
                "starts": In(1),
                "sends": In(1),
                "more": In(1),
                "packets": In(3),
                "end": In(1),
                "idle": Out(1),
            }
        )

    def _counts(self, m: Module, name: str, read_qp: Value) -> data.View:
        """Add a count for each QP: ``value`` is that of ``read_qp``, ``write`` puts ``data`` into ``row``.

        Up to as many QPs as distributed RAM has rows they are a memory, otherwise flip-flops: an engine of
        that size is only simulated.
        """
        bits, qps = count_bits(self.config), self.config.qps
        layout = {"value": bits, "row": self.config.qp_bits, "data": bits, "write": 1}
        port = Signal(data.StructLayout(layout), name=name)
        if qps > DISTRIBUTED_ROWS:
            counts = Signal(bits * qps, name=f"{name}_counts")
            m.d.comb += port.value.eq(counts.word_select(read_qp, bits))
            with m.If(port.write):
                m.d.sync += counts.word_select(port.row, bits).eq(port.data)
            return port
        m.submodules[name] = memory = Memory(shape=bits, depth=qps, init=[])
        read_port, write_port = memory.read_port(domain="comb"), memory.write_port()
        m.d.comb += [
            read_port.addr.eq(read_qp),
            port.value.eq(read_port.data),
            write_port.addr.eq(port.row),
            write_port.data.eq(port.data),
            write_port.en.eq(port.write),
        ]
        return port

    def elaborate(self, platform: object) -> Module:
        m = Module()
        qps, bits = self.config.qps, count_bits(self.config)
        on, stopped, due = Signal(qps), Signal(qps), Signal(qps)
        given = self._counts(m, "given", self.look_qp)
        handed = self._counts(m, "handed", self.qp)
        limits = self._counts(m, "limits", self.look_qp)

        m.d.comb += [
            self.event_on.eq(on.bit_select(self.event_qp, 1)),
            self.sent_on.eq(on.bit_select(self.sent_qp, 1)),
        ]
        with m.If(self.switch):
            m.d.sync += on.bit_select(self.switch_qp, 1).eq(self.switch_on)

        # Given out
        count = Signal(bits)
        looked_on = Signal()
        room = Signal(bits)
        m.d.comb += [
            looked_on.eq(on.bit_select(self.look_qp, 1)),
            count.eq(given.value + self.give),
            given.row.eq(Mux(self.restart, self.start_qp, self.look_qp)),
            given.data.eq(Mux(self.restart, 0, count)),
            given.write.eq(self.restart | (self.give & looked_on)),
            # One less than the difference.
            room.eq(limits.value + ~count),
        ]
        m.d.sync += [self.may_send.eq(~looked_on | ~room[-1]), self.last.eq(looked_on & (room == 0))]

        # Handed over, and the limit
        limit = Signal(bits)
        handed_next = Signal(bits)
        opened = Signal()
        m.d.comb += [
            handed_next.eq(Mux(self.starts, 0, handed.value + self.sends)),
            handed.row.eq(self.qp),
            handed.data.eq(handed_next),
            handed.write.eq(self.begin),
            limits.row.eq(self.qp),
            limits.data.eq(limit),
            limits.write.eq(self.end),
        ]
        with m.If(self.begin):
            m.d.sync += [limit.eq(handed_next), opened.eq(0)]
        with m.Elif(self.more):
            m.d.sync += [limit.eq(limit + self.packets), opened.eq(1)]

        # Waking: whoever was stopped by what was true before the limit was written is known two cycles later.
        later = Signal(3)
        event_qp = Signal(self.config.qp_bits)
        # So is whoever has no window any more.
        m.d.sync += later.eq(later << 1 | (self.end & opened) | self.switch)
        with m.If(self.end | self.switch):
            m.d.sync += event_qp.eq(Mux(self.switch, self.switch_qp, self.qp))
        lowest = Signal(self.config.qp_bits)
        for number in reversed(range(qps)):
            with m.If(due[number]):
                m.d.comb += lowest.eq(number)
        free = ~self.wake.valid | self.wake.ready
        m.d.comb += self.idle.eq(~due.any() & ~later.any() & ~self.wake.valid)
        with m.If(free):
            m.d.sync += [self.wake.valid.eq(due.any()), self.wake.payload.qp.eq(lowest)]
            with m.If(due.any()):
                m.d.sync += due.bit_select(lowest, 1).eq(0)
        with m.If(later[-1] & stopped.bit_select(event_qp, 1)):
            m.d.sync += due.bit_select(event_qp, 1).eq(1)
            m.d.sync += stopped.bit_select(event_qp, 1).eq(0)
        with m.If(self.stop):
            m.d.sync += stopped.bit_select(self.look_qp, 1).eq(1)
        return m
