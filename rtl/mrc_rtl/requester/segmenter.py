"""Builds the descriptor of a packet from its send request."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import region_answer, region_request
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

    Three steps overlap. *Locate*: offset = (psn - first PSN of the message) x MTU, while the request is read
    (not again for the same request). *Compute*: one 64-bit addition a cycle. *Look up*: the packet's own
    bytes in the memory regions, then the fetch command. A new packet and a retransmission take the same way.

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
        m.submodules.messages = messages = Memory(
            shape=message_info(config), depth=config.qps * config.send_queue_depth, init=[]
        )
        message_read, message_write = messages.read_port(), messages.write_port()
        job = self.job.payload
        index = Cat(job.slot, job.qp)
        m.d.comb += [
            view_write.addr.eq(self.view_qp),
            view_write.data.eq(self.view),
            view_write.en.eq(self.view_write),
            message_write.addr.eq(self.message_index),
            message_write.data.eq(self.message),
            message_write.en.eq(self.message_write),
            view_read.addr.eq(job.qp),
            message_read.addr.eq(index),
        ]

        # The request register: whose request it holds, and whether the compute step still needs it.
        held_index = Signal.like(self.read_index)
        held = Signal()
        stale = Signal()
        reading = Signal()
        computing = Signal()
        compute_taken = Signal()

        # Locate
        located = Signal(segment_job(config))
        distance = Signal(24)
        offset = Signal(32)
        mtu_log2 = Signal(4)
        domain = Signal(8)
        msn = Signal(16)
        rqmsn = Signal(16)
        locate_valid = Signal()
        want_read = Signal()
        m.d.comb += [
            self.read_index.eq(Cat(located.slot, located.qp)),
            self.read.eq(want_read & ~reading & ~computing),
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
            with m.State("TAKE"):
                with m.If(self.job.valid):
                    m.d.comb += self.job.ready.eq(1)
                    m.d.sync += located.eq(job)
                    m.next = "DISTANCE"
            with m.State("DISTANCE"):
                m.d.sync += [
                    distance.eq(located.psn - message_read.data.first),
                    msn.eq(message_read.data.msn),
                    rqmsn.eq(message_read.data.rqmsn),
                    mtu_log2.eq(view_read.data.mtu_log2),
                    domain.eq(view_read.data.protection_domain),
                ]
                m.d.sync += want_read.eq(~held | stale | self.forget | (held_index != self.read_index))
                m.next = "OFFSET"
            with m.State("OFFSET"):
                with m.Switch(mtu_log2):
                    for exponent in mtu_exponents(config):
                        with m.Case(exponent):
                            m.d.sync += offset.eq(distance << exponent)
                m.d.sync += locate_valid.eq(1)
                m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(compute_taken):
                    m.d.sync += locate_valid.eq(0)
                    m.next = "TAKE"

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
        look_free = Signal()
        load = Signal()
        m.d.comb += compute_taken.eq(locate_valid & ~reading & ~want_read & ~computing)
        with m.If(compute_taken):
            m.d.sync += [
                computing.eq(1),
                remaining.eq(request.length - offset),
                local.eq(request.local_address + offset),
                first.eq(distance == 0),
                current.eq(located),
                current_offset.eq(offset),
                current_mtu.eq(mtu_log2),
                current_domain.eq(domain),
                current_msn.eq(msn),
                current_rqmsn.eq(rqmsn),
            ]
        m.d.comb += load.eq(computing & look_free)
        with m.If(load):
            m.d.sync += computing.eq(0)

        mtu = Signal(13)
        last = Signal()
        m.d.comb += [
            mtu.eq(1 << current_mtu),
            last.eq(remaining <= mtu),
        ]
        immediate = request.opcode[0]
        opcode = Signal(8)
        with m.If(first & last):
            m.d.comb += opcode.eq(Mux(immediate, Opcode.WRITE_ONLY_IMM, Opcode.WRITE_ONLY))
        with m.Elif(last):
            m.d.comb += opcode.eq(Mux(immediate, Opcode.WRITE_LAST_IMM, Opcode.WRITE_LAST))
        with m.Else():
            m.d.comb += opcode.eq(Mux(first, Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE))

        # Look up
        descriptor = self.fetch.payload.descriptor
        bus_address = self.fetch.payload.bus_address
        ask = self.region.payload
        with m.If(load):
            m.d.sync += [
                descriptor.qp.eq(current.qp),
                descriptor.psn.eq(current.psn),
                descriptor.opcode.eq(opcode),
                descriptor.ack_request.eq(current.ack_request),
                descriptor.retransmission.eq(current.retransmission),
                descriptor.immediate.eq(immediate & last),
                descriptor.length.eq(Mux(last, remaining[:13], mtu)),
                descriptor.send_slot.eq(current.slot),
                # First byte on the wire in the most significant bits: METH, TSETH, RETH, ImmDt.
                descriptor.body.eq(
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
                ask.length.eq(Mux(last, remaining[:13], mtu)),
            ]
        with m.FSM(name="look_up") as looking:
            with m.State("FREE"):
                m.d.comb += look_free.eq(1)
                with m.If(load):
                    m.next = "ASK"
            with m.State("ASK"):
                with m.If(descriptor.length == 0):
                    m.d.sync += bus_address.eq(0)
                    m.next = "FETCH"
                with m.Else():
                    m.d.comb += self.region.valid.eq(1)
                    with m.If(self.region.ready):
                        m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.region_answer.ready.eq(1)
                m.d.sync += bus_address.eq(self.region_answer.payload.bus_address)
                with m.If(self.region_answer.valid):
                    m.next = "FETCH"
                    with m.If(~self.region_answer.payload.ok):
                        m.next = "FAILED"
            with m.State("FETCH"):
                m.d.comb += self.fetch.valid.eq(1)
                with m.If(self.fetch.ready):
                    m.d.comb += look_free.eq(1)
                    m.next = "FREE"
                    with m.If(load):
                        m.next = "ASK"
            with m.State("FAILED"):
                m.d.comb += self.failed.valid.eq(1)
                with m.If(self.failed.ready):
                    m.next = "FREE"
        m.d.comb += [
            self.failed.payload.qp.eq(descriptor.qp),
            self.failed.payload.psn.eq(descriptor.psn),
            self.failed.payload.slot.eq(descriptor.send_slot),
            self.idle.eq(~self.job.valid & locating.ongoing("TAKE") & ~computing & looking.ongoing("FREE")),
        ]
        return m
