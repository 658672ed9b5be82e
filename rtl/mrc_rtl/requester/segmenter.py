"""Builds the descriptor of a packet from its send request."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import region_answer, region_request, transmit_descriptor
from ..wire import TSETH, Opcode
from .records import (
    failed_job,
    fetch_command,
    request_layout,
    segment_job,
    send_slot_bits,
)

__all__ = ["Segmenter", "message_info", "mtu_exponents", "segment_view"]


def mtu_exponents(config: NicConfig) -> range:
    """The path MTUs a QP may have, log2 of bytes."""
    return range(8, config.mtu.bit_length())


def segment_view(config: NicConfig) -> data.StructLayout:
    """What the segmenter needs of a QP."""
    return data.StructLayout({"mtu_log2": 4, "protection_domain": 8})


def message_info(config: NicConfig) -> data.StructLayout:
    """Of an opened request: its first PSN, its number, and the WRITE_WITH_IMMs before it."""
    return data.StructLayout({"first": 24, "msn": 16, "rqmsn": 16})


class Segmenter(wiring.Component):
    """Computes offset, addresses, length and opcode of one packet, and looks its local region up.

    Four steps overlap. *Locate*: offset = (psn - first PSN of the message) x MTU, while the request is read
    (not again for the same request). *Compute*: the additions. *Ask* for the packet's own bytes in the memory
    regions, and *wait* for the answer, then for the fetch command to be taken. A new packet and a
    retransmission take the same way.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    job : stream of segment_job, in
    view_write, view_qp, view, message_write, message_index, message
        Writes of the sequencer into the memories of :func:`segment_view` and :func:`message_info`.
    read, read_index, read_done, request
        The work queue's serial read.
    forget : 1
        The request held may be out of date: the host wrote a request.
    region, region_answer : streams
        Local look-up (``write`` is 0). A packet without payload needs none.
    fetch : stream of fetch_command, out
    failed : stream of failed_job, out
        The region does not allow the access; the packet is gone.
    idle : 1

    Source: protocol.md 1.4 to 1.8; design.md 4, rule 4.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        #: An offset is shifted bit by bit.
        self.serial = config.packet_interval > 8
        #: A step takes the next packet in the cycle in which it gives one away.
        self.ahead = config.packet_interval <= 4
        index = config.qp_bits + send_slot_bits(config)
        super().__init__(
            {
                "job": In(stream.Signature(segment_job(config))),
                "view_write": In(1),
                "view_qp": In(config.qp_bits),
                "view": In(segment_view(config)),
                "message_write": In(1),
                "message_index": In(index),
                "message": In(message_info(config)),
                "read": Out(1),
                "read_index": Out(index),
                "read_done": In(1),
                "request": In(request_layout()),
                "forget": In(1),
                "region": Out(stream.Signature(region_request(config))),
                "region_answer": In(stream.Signature(region_answer(config))),
                "fetch": Out(stream.Signature(fetch_command(config))),
                "failed": Out(stream.Signature(failed_job(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.views = views = Memory(shape=segment_view(config), depth=config.qps, init=[])
        view_write = views.write_port()
        view_read = views.read_port(transparent_for=[view_write])
        job = self.job.payload
        index = Cat(job.slot, job.qp)
        m.d.comb += [
            view_write.addr.eq(self.view_qp),
            view_write.data.eq(self.view),
            view_write.en.eq(self.view_write),
            view_read.addr.eq(job.qp),
        ]

        # The request register: whose request it holds, and whether the compute step still needs it.
        held_index = Signal.like(self.read_index)
        held = Signal()
        stale = Signal()
        reading = Signal()
        computing = Signal()
        compute_taken = Signal()
        load = Signal()

        # Locate
        located = Signal(segment_job(config))
        offset = Signal(32)
        mtu_log2 = Signal(4)
        domain = Signal(8)
        msn = Signal(16)
        rqmsn = Signal(16)
        locate_valid = Signal()
        want_read = Signal()
        second = Signal()  # what is read now are the numbers of the message
        message = self._add_messages(m, index, Cat(located.slot, located.qp), second)
        if self.serial:
            numbered = Signal()  # they are there
            m.d.sync += numbered.eq(second)
            with m.If(numbered):
                m.d.sync += [msn.eq(message.msn), rqmsn.eq(message.rqmsn)]
        first_byte = (located.psn - message.first)[:24] << mtu_exponents(config).start
        turns = Signal(range(len(mtu_exponents(config))))
        m.d.comb += [
            self.read_index.eq(Cat(located.slot, located.qp)),
            self.read.eq(want_read & ~reading & (~computing | (load if self.ahead else 0))),
        ]
        with m.If(self.forget):
            m.d.sync += stale.eq(1)
        with m.If(self.read):
            m.d.sync += [
                reading.eq(1),
                want_read.eq(0),
                held_index.eq(self.read_index),
                stale.eq(self.forget),
            ]
        with m.If(self.read_done):
            m.d.sync += [reading.eq(0), held.eq(1)]
        with m.FSM(name="locate") as locating:

            def take() -> None:
                with m.If(self.job.valid):
                    m.d.comb += self.job.ready.eq(1)
                    m.d.sync += [
                        located.eq(job),
                        want_read.eq(~held | stale | self.forget | (held_index != index)),
                    ]
                    m.next = "DISTANCE"

            with m.State("TAKE"):
                take()
            with m.State("DISTANCE"):
                m.d.comb += second.eq(1)
                if not self.serial:
                    m.d.sync += [msn.eq(message.msn), rqmsn.eq(message.rqmsn)]
                m.d.sync += [
                    offset.eq(first_byte),
                    turns.eq(view_read.data.mtu_log2 - mtu_exponents(config).start),
                    mtu_log2.eq(view_read.data.mtu_log2),
                    domain.eq(view_read.data.protection_domain),
                ]
                m.next = "OFFSET"
            with m.State("OFFSET"):
                if self.serial:
                    with m.If(turns == 0):
                        m.d.sync += locate_valid.eq(1)
                        m.next = "WAIT"
                    with m.Else():
                        m.d.sync += [offset.eq(offset << 1), turns.eq(turns - 1)]
                else:
                    m.d.sync += [offset.eq(offset << turns), locate_valid.eq(1)]
                    m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(compute_taken):
                    m.d.sync += locate_valid.eq(0)
                    m.next = "TAKE"
                    if self.ahead:
                        take()

        # Compute
        request = self.request
        remaining = Signal(32)
        local = Signal(64)
        first = Signal()
        current = Signal(segment_job(config))
        current_offset = Signal(32)
        current_mtu = Signal(4)
        current_domain = Signal(8)
        current_msn = Signal(16)
        current_rqmsn = Signal(16)
        ask_free = Signal()
        m.d.comb += [
            compute_taken.eq(locate_valid & (~reading | self.read_done) & ~want_read & ~computing),
            load.eq(computing & ask_free),
        ]
        with m.If(compute_taken):
            m.d.sync += [
                computing.eq(1),
                remaining.eq(request.length - offset),
                local.eq(request.local_address + offset),
                first.eq(offset == 0),
                current.eq(located),
                current_offset.eq(offset),
                current_mtu.eq(mtu_log2),
                current_domain.eq(domain),
                current_msn.eq(msn),
                current_rqmsn.eq(rqmsn),
            ]
        with m.If(load):
            m.d.sync += computing.eq(0)

        mtu = Signal(13)
        last = Signal()
        m.d.comb += mtu.eq(1 << current_mtu)
        with m.Switch(current_mtu):
            for exponent in mtu_exponents(config):
                with m.Case(exponent):
                    # At most one MTU: a power of two needs no comparator.
                    more = remaining[exponent + 1 :].any() | (
                        remaining[exponent] & remaining[:exponent].any()
                    )
                    m.d.comb += last.eq(~more)
        immediate = request.opcode[0]
        opcode = Signal(8)
        with m.If(first & last):
            m.d.comb += opcode.eq(Mux(immediate, Opcode.WRITE_ONLY_IMM, Opcode.WRITE_ONLY))
        with m.Elif(last):
            m.d.comb += opcode.eq(Mux(immediate, Opcode.WRITE_LAST_IMM, Opcode.WRITE_LAST))
        with m.Else():
            m.d.comb += opcode.eq(Mux(first, Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE))

        # Look up: the packet that asks, and the one that waits for the answer.
        asking = Signal()
        answer_due = Signal()  # it has asked
        waiting_free = Signal()
        moves = Signal()
        asked = Signal(transmit_descriptor(config))
        descriptor = self.fetch.payload.descriptor
        ask = self.region.payload
        empty = Signal()
        m.d.comb += [
            empty.eq(asked.length == 0),
            ask_free.eq(~asking | (moves if self.ahead else 0)),
            self.region.valid.eq(asking & ~empty & ~answer_due),
            moves.eq(asking & waiting_free & (empty | answer_due | (self.region.ready if self.ahead else 0))),
        ]
        with m.If(load):
            m.d.sync += [
                asking.eq(1),
                asked.qp.eq(current.qp),
                asked.psn.eq(current.psn),
                asked.opcode.eq(opcode),
                asked.ack_request.eq(current.ack_request),
                asked.retransmission.eq(current.retransmission),
                asked.immediate.eq(immediate & last),
                asked.length.eq(Mux(last, remaining[:13], mtu)),
                asked.send_slot.eq(current.slot),
                # First byte on the wire in the most significant bits: METH, TSETH, RETH, ImmDt.
                asked.body.eq(
                    Cat(
                        request.immediate,
                        request.length,
                        request.remote_key,
                        (request.remote_address + current_offset)[:64],
                        Const(TSETH.pack(), TSETH.bits),
                        current_msn,
                        Mux(immediate & last, current_rqmsn, 0),
                    )
                ),
                ask.key.eq(request.local_key),
                ask.protection_domain.eq(current_domain),
                ask.address.eq(local),
            ]
        with m.Elif(moves):
            m.d.sync += asking.eq(0)
        with m.If(moves | load):
            m.d.sync += answer_due.eq(0)
        with m.Elif(self.region.valid & self.region.ready):
            m.d.sync += answer_due.eq(1)
        m.d.comb += ask.length.eq(asked.length)
        with m.If(waiting_free):
            m.d.sync += descriptor.eq(asked)
        answer = self.region_answer
        bus_address = Signal(config.address_width)
        m.d.comb += self.fetch.payload.bus_address.eq(bus_address)
        with m.FSM(name="look_up") as looking:

            def take_next() -> None:
                m.d.comb += waiting_free.eq(1)
                m.next = "FREE"
                with m.If(moves):
                    m.next = "ANSWER"
                    with m.If(empty):
                        # No byte and no lane to shift; the other bits do not count.
                        m.d.sync += bus_address[: (config.data_bytes - 1).bit_length()].eq(0)
                        m.next = "FETCH"

            with m.State("FREE"):
                take_next()
            with m.State("ANSWER"):
                m.d.comb += answer.ready.eq(1)
                m.d.sync += bus_address.eq(answer.payload.bus_address)
                with m.If(answer.valid & ~answer.payload.ok):
                    m.next = "FAILED"
                with m.Elif(answer.valid):
                    m.next = "FETCH"
                    if self.ahead:
                        m.d.comb += [
                            self.fetch.valid.eq(1),
                            self.fetch.payload.bus_address.eq(answer.payload.bus_address),
                        ]
                        with m.If(self.fetch.ready):
                            take_next()
            with m.State("FETCH"):
                m.d.comb += self.fetch.valid.eq(1)
                with m.If(self.fetch.ready):
                    if self.ahead:
                        take_next()
                    else:
                        m.next = "FREE"
            with m.State("FAILED"):
                m.d.comb += self.failed.valid.eq(1)
                with m.If(self.failed.ready):
                    m.next = "FREE"
        m.d.comb += [
            self.failed.payload.qp.eq(descriptor.qp),
            self.failed.payload.psn.eq(descriptor.psn),
            self.failed.payload.slot.eq(descriptor.send_slot),
            self.idle.eq(
                ~(self.job.valid | computing | asking) & locating.ongoing("TAKE") & looking.ongoing("FREE")
            ),
        ]
        return m

    def _add_messages(self, m: Module, index: Value, located: Value, second: Value) -> data.View:
        """Add the memory of :func:`message_info`; what is read, one cycle later.

        Where a packet takes its time an entry is two rows, so that one block RAM holds them: the first PSN at
        ``index``, and with ``second`` the numbers at ``located``. They are written one after the other.
        """
        depth = self.config.qps * self.config.send_queue_depth
        shape = message_info(self.config)
        if not self.serial:
            m.submodules.messages = messages = Memory(shape=shape, depth=depth, init=[])
            read, write = messages.read_port(), messages.write_port()
            m.d.comb += [
                write.addr.eq(self.message_index),
                write.data.eq(self.message),
                write.en.eq(self.message_write),
                read.addr.eq(index),
            ]
            return read.data
        width = shape["msn"].width + shape["rqmsn"].width
        m.submodules.messages = messages = Memory(shape=width, depth=2 * depth, init=[])
        read, write = messages.read_port(), messages.write_port()
        numbers = Signal(width, reset_less=True)
        written = Signal.like(self.message_index)
        again = Signal()
        m.d.sync += again.eq(self.message_write)
        with m.If(self.message_write):
            m.d.sync += [
                numbers.eq(Cat(self.message.msn, self.message.rqmsn)),
                written.eq(self.message_index),
            ]
        m.d.comb += [
            write.addr.eq(Mux(again, Cat(Const(1, 1), written), Cat(Const(0, 1), self.message_index))),
            write.data.eq(Mux(again, numbers, self.message.first)),
            write.en.eq(self.message_write | again),
            read.addr.eq(Mux(second, Cat(Const(1, 1), located), Cat(Const(0, 1), index))),
        ]
        message = Signal(shape)
        msn_bits = shape["msn"].width
        m.d.comb += [
            message.first.eq(read.data),
            message.msn.eq(read.data[:msn_bits]),
            message.rqmsn.eq(read.data[msn_bits:]),
        ]
        return message
