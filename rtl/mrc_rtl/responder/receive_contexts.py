"""Static receive state of the QPs, what the host does to it, and the drain that makes both safe."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import records, tables
from ..config import NicConfig
from ..entry_memory import ENTRY_WORDS, EntryMemory
from ..memory_rules import DISTRIBUTED_ROWS
from ..stream import TableBus
from ..tables import QpState

__all__ = ["ContextRead", "ReceiveContexts", "context_field", "context_word", "is_receiving"]

_STATE_BITS = 3
_IN_FLIGHT_BITS = 7


def context_field(name: str, word: Value) -> Value:
    """Field of a qp_receive entry, cut out of the 64-bit word that holds it."""
    field = tables.QP_RECEIVE.field(name)
    return word[field.low : field.low + field.width]


def context_word(row: Value, name: str) -> Value:
    """The 64-bit word with a field of a qp_receive entry, out of the row of the memory that holds it."""
    words = len(row) // 64
    return row.word_select(tables.QP_RECEIVE.field(name).word % words, 64)


def is_receiving(state: Value) -> Value:
    """Whether a QP in this state takes packets."""
    return (state == QpState.RTR) | (state == QpState.RTS)


class ContextRead(wiring.Signature):
    """How admission reads a QP's static context and its state, seen from admission.

    Members
    -------
    reading, busy : 1
        The port is in use; it must not be taken into use.
    qp : qp
    enable, row, data : 1, row, row of the data path's width
        ``data`` is there from the next cycle on.
    state_enable, state : 1, 3
        Likewise the state.
    """

    def __init__(self, config: NicConfig) -> None:
        row_words = min(config.data_width // 64, ENTRY_WORDS)
        super().__init__(
            {
                "reading": Out(1),
                "busy": In(1),
                "qp": Out(config.qp_bits),
                "enable": Out(1),
                "row": Out(max(1, (ENTRY_WORDS // row_words - 1).bit_length())),
                "data": In(64 * row_words),
                "state_enable": Out(1),
                "state": In(_STATE_BITS),
            }
        )


class ReceiveContexts(wiring.Component):
    """Owner of the qp_receive table's written words and of the QPs' state on the receive side.

    The state has a memory of its own, so that an error can change it at once. Until the clear after reset has
    run, nothing is admitted. A host command holds admission back from its first word to its last.

    Writing RTR starts the QP from ``initial_psn``, so does RTS unless the QP already receives; writing RESET
    clears it. All three first stop the QP, wait until no packet that was admitted before is in flight, and
    then start claimed bits, tracker and immediates anew: nothing of the QP's former life reaches the new one.

    The drain: every packet carries the epoch in which it entered. To drain, the epoch changes and the count
    of the old one has to reach zero, which it does however many packets follow.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    table : TableBus
        Table qp_receive.
    context : ContextRead
    state_enable, state_qp, state : arrays of 1, qp, 3
        Two more look-ups of a state, one cycle later.
    fail, fail_qp : 1, qp
        Pulse: this QP goes to ERROR now.
    error_in : stream of records.qp_error, in
        Likewise, from elsewhere; ignored for a QP in RESET.
    epoch : 1, out
    entered, left, left_epoch, retired, retired_epoch : 1
        Pulses: a packet entered (in ``epoch``); one left without being placed; one left after placement.
    region_drain, region_drained : 1
        The same drain for the memory region table.
    clear, clear_qp, clear_psn, cleared : 1, qp, 24, 1
        Claimed bits: pulse, and its end.
    init : stream of records.receive_init, out
    state_request, state_answer : streams
        The tracker's words of the table.
    idle : 1

    Source: profile.md 5 and 7; design, rules 11 and 12.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        self.entries = EntryMemory(config, config.qps, 1)
        query = data.StructLayout({"qp": config.qp_bits})
        super().__init__(
            {
                "table": In(TableBus()),
                "context": In(ContextRead(config)),
                "state_enable": In(1).array(2),
                "state_qp": In(config.qp_bits).array(2),
                "state": Out(_STATE_BITS).array(2),
                "fail": In(1),
                "fail_qp": In(config.qp_bits),
                "error_in": In(stream.Signature(records.qp_error(config))),
                "epoch": Out(1),
                "entered": In(1),
                "left": In(1),
                "left_epoch": In(1),
                "retired": In(1),
                "retired_epoch": In(1),
                "region_drain": In(1),
                "region_drained": Out(1),
                "clear": Out(1),
                "clear_qp": Out(config.qp_bits),
                "clear_psn": Out(24),
                "cleared": In(1),
                "init": Out(stream.Signature(records.receive_init(config))),
                "state_request": Out(stream.Signature(query)),
                "state_answer": In(stream.Signature(records.receive_state(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self.config
        bus = self.table
        m.submodules.entries = entries = self.entries
        m.submodules.states = states = Memory(shape=_STATE_BITS, depth=config.qps, init=[])
        state_write = states.write_port()
        context = self.context

        def look_up(enable: Value, qp: Value) -> Value:
            """State of a QP, one cycle later. A failing packet changes its QP's row in any cycle; whether the
            new state or the one before is read in that cycle does not matter.
            """
            if config.qps > DISTRIBUTED_ROWS:
                port = states.read_port(transparent_for=(state_write,))
                m.d.comb += [port.en.eq(enable), port.addr.eq(qp)]
                return port.data
            port = states.read_port(domain="comb")
            found = Signal(_STATE_BITS, reset_less=True)
            m.d.comb += port.addr.eq(qp)
            with m.If(enable):
                m.d.sync += found.eq(port.data)
            return found

        own_state_enable = Signal()
        own_state = look_up(own_state_enable, Mux(bus.valid, bus.index, self.error_in.payload.qp))
        m.d.comb += [
            context.state.eq(look_up(context.state_enable, context.qp)),
            *(self.state[n].eq(look_up(self.state_enable[n], self.state_qp[n])) for n in range(2)),
        ]

        # Packets in flight, per epoch. That one left may be known a cycle later.
        left = Signal()
        left_epoch = Signal()
        m.d.sync += [left.eq(self.left), left_epoch.eq(self.left_epoch)]
        in_flight = [Signal(_IN_FLIGHT_BITS, name=f"in_flight{n}") for n in range(2)]
        for n, count in enumerate(in_flight):
            comes = self.entered & (self.epoch == n)
            goes = left & (left_epoch == n)
            retires = self.retired & (self.retired_epoch == n)
            change = Signal(signed(2), name=f"change{n}")  # from one more to two fewer
            m.d.comb += change.eq(Cat(comes ^ goes ^ retires, (goes & retires) | ((goes | retires) & ~comes)))
            m.d.sync += count.eq(count + change)
        drained = Signal()
        m.d.comb += drained.eq(Mux(self.epoch, in_flight[0] == 0, in_flight[1] == 0))

        index = Signal(config.qp_bits)
        new_state = Signal(_STATE_BITS)
        initial_psn = Signal(24)
        peer_low = Signal(16)
        completion_queue = Signal.like(self.init.payload.completion_queue)
        receives = Signal()  # before the command
        in_command = Signal()
        starts = Signal()
        known = Signal()
        m.d.comb += [
            known.eq((bus.index < config.qps) & (bus.word < tables.QP_RECEIVE.words)),
            starts.eq(
                (new_state == QpState.RESET)
                | (new_state == QpState.RTR)
                | ((new_state == QpState.RTS) & ~receives)
            ),
            self.clear_qp.eq(index),
            self.clear_psn.eq(initial_psn),
            self.init.payload.qp.eq(index),
            self.init.payload.active.eq(is_receiving(new_state)),
            self.init.payload.initial_psn.eq(initial_psn),
            self.init.payload.peer_qpn_low.eq(peer_low),
            self.init.payload.completion_queue.eq(completion_queue),
            self.state_request.payload.qp.eq(index),
        ]

        # State changes; a failing packet goes first.
        set_state = Signal()
        state_value = Signal(_STATE_BITS)
        m.d.comb += [
            state_write.en.eq(self.fail | set_state),
            state_write.addr.eq(Mux(self.fail, self.fail_qp, index)),
            state_write.data.eq(Mux(self.fail, QpState.ERROR, state_value)),
        ]

        place_bits = (entries.row_words - 1).bit_length()
        host_reads = Signal()
        m.d.comb += [
            entries.enable[0].eq(context.enable | host_reads),
            entries.entry[0].eq(Mux(context.reading, context.qp, bus.index)),
            entries.row[0].eq(Mux(context.reading, context.row, bus.word[place_bits:2])),
            context.data.eq(entries.data[0]),
            entries.write_entry.eq(bus.index),
            entries.write_word.eq(bus.word[:2]),
            entries.write_data.eq(bus.write_data),
            entries.write_last.eq(bus.last),
        ]

        # A word for the host is the sum of registers that are zero out of turn.
        word = Signal(4)
        collect = Signal()
        answer = self.state_answer.payload
        static = entries.data[0].word_select(word[: max(1, place_bits)] if place_bits else Const(0, 1), 64)
        state_field = tables.QP_RECEIVE.field("state")
        state_bits = slice(state_field.low, state_field.low + state_field.width)
        stored = Signal(64, reset_less=True)
        dynamic = [Signal(48, name=f"dynamic{n}", reset_less=True) for n in range(2)]
        with m.If(collect):
            m.d.sync += [
                stored.eq(static),
                dynamic[0].eq(Cat(answer.cumulative_psn, answer.highest_psn)),
                dynamic[1].eq(Cat(answer.message_number, answer.received_units)),
            ]
            with m.If(word == state_field.word):
                m.d.sync += stored[state_bits].eq(own_state)
            with m.If(word[2]):
                m.d.sync += stored.eq(0)
            for n, target in enumerate(dynamic):
                with m.If(~word[2] | (word[0] != n)):
                    m.d.sync += target.eq(0)
        m.d.comb += bus.read_data.eq(stored | dynamic[0] | dynamic[1])

        active = Signal()
        m.d.comb += [active.eq(1), context.busy.eq(1)]
        with m.FSM():
            with m.State("RESET"):
                m.d.comb += [set_state.eq(1), state_value.eq(QpState.RESET)]
                with m.If(~self.fail):
                    m.d.sync += index.eq(index + 1)
                    with m.If(index.all()):
                        m.next = "IDLE"
            with m.State("IDLE"):
                m.d.comb += [
                    own_state_enable.eq(1),
                    active.eq(in_command | bus.valid | self.error_in.valid | self.region_drain),
                    context.busy.eq(in_command | bus.valid),
                ]
                with m.If(bus.valid):
                    with m.If(~context.reading):
                        m.d.comb += bus.ready.eq(1)
                        m.d.sync += [word.eq(bus.word), index.eq(bus.index)]
                        with m.If(~known):
                            m.d.comb += [bus.done.eq(1), bus.error.eq(1)]
                        with m.Elif(bus.write):
                            m.d.comb += entries.write.eq(bus.word < ENTRY_WORDS)
                            m.d.sync += in_command.eq(~bus.last)
                            self._remember(m, new_state, initial_psn, peer_low, completion_queue)
                            m.next = "WRITTEN"
                        with m.Else():
                            m.d.comb += host_reads.eq(1)
                            m.next = "READ"
                with m.Elif(in_command):
                    pass
                with m.Elif(self.region_drain):
                    m.d.sync += self.epoch.eq(~self.epoch)
                    m.next = "REGION_DRAIN"
                with m.Elif(self.error_in.valid):
                    m.d.sync += index.eq(self.error_in.payload.qp)
                    m.next = "ERROR"
            with m.State("ERROR"):
                m.d.comb += [
                    context.busy.eq(0),
                    set_state.eq(own_state != QpState.RESET),
                    state_value.eq(QpState.ERROR),
                ]
                with m.If(~self.fail):
                    m.d.comb += self.error_in.ready.eq(1)
                    m.next = "IDLE"
            with m.State("READ"):
                m.d.comb += [collect.eq(1), self.state_request.valid.eq(word[2])]
                with m.If(~word[2]):
                    m.next = "ANSWER"
                with m.Elif(self.state_request.ready):
                    m.next = "READ_STATE"
            with m.State("READ_STATE"):
                m.d.comb += [collect.eq(1), self.state_answer.ready.eq(1)]
                with m.If(self.state_answer.valid):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += bus.done.eq(1)
                m.next = "IDLE"
            with m.State("WRITTEN"):
                with m.If(word == state_field.word):
                    m.d.sync += receives.eq(is_receiving(own_state))
                with m.If(in_command):
                    m.d.comb += bus.done.eq(1)
                    m.next = "IDLE"
                with m.Else():
                    m.next = "APPLY"
            with m.State("APPLY"):
                m.d.comb += [set_state.eq(1), state_value.eq(Mux(starts, QpState.RESET, new_state))]
                with m.If(~self.fail):
                    with m.If(starts):
                        m.d.sync += self.epoch.eq(~self.epoch)
                        m.next = "DRAIN"
                    with m.Else():
                        m.d.comb += bus.done.eq(1)
                        m.next = "IDLE"
            with m.State("DRAIN"):
                m.d.comb += context.busy.eq(0)
                with m.If(drained):
                    m.d.comb += self.clear.eq(1)
                    m.next = "CLEAR"
            with m.State("CLEAR"):
                with m.If(self.cleared):
                    m.next = "INIT"
            with m.State("INIT"):
                m.d.comb += self.init.valid.eq(1)
                with m.If(self.init.ready):
                    m.next = "START"
            with m.State("START"):
                m.d.comb += [set_state.eq(1), state_value.eq(new_state)]
                with m.If(~self.fail):
                    m.d.comb += bus.done.eq(1)
                    m.next = "IDLE"
            with m.State("REGION_DRAIN"):
                m.d.comb += context.busy.eq(0)
                with m.If(drained):
                    m.d.comb += self.region_drained.eq(1)
                    m.next = "IDLE"
        in_flight_any = in_flight[0].any() | in_flight[1].any()
        m.d.comb += self.idle.eq(~(active | in_flight_any))
        return m

    def _remember(
        self, m: Module, new_state: Signal, initial_psn: Signal, peer_low: Signal, completion_queue: Signal
    ) -> None:
        """Keep what a start needs of the words of a command; words it does not bring count as zero."""
        written = self.table.write_data
        with m.If(self.table.word == tables.QP_RECEIVE.field("state").word):
            m.d.sync += [
                new_state.eq(context_field("state", written)),
                peer_low.eq(context_field("peer_qpn", written)),
                completion_queue.eq(context_field("completion_queue", written)),
                initial_psn.eq(0),
            ]
        with m.If(self.table.word == tables.QP_RECEIVE.field("initial_psn").word):
            m.d.sync += initial_psn.eq(context_field("initial_psn", written))
