"""Turns completion orders into completion records."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import completion_record
from ..tables import WorkRequestOpcode
from .records import completion_order, send_slot_bits

__all__ = ["RequestCompletions"]


class RequestCompletions(wiring.Component):
    """Holds one order, joins it with the wr_id, read from the work queue, and sends it off.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    order : stream of completion_order, in
    wr_read, wr_index, wr_done, wr_id
        Look-up in the work queue.
    completion : stream of completion_record, out
    idle : 1

    Source: profile.md 7 (CQE).
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "order": In(stream.Signature(completion_order(config))),
                "wr_read": Out(1),
                "wr_index": Out(config.qp_bits + send_slot_bits(config)),
                "wr_done": In(1),
                "wr_id": In(64),
                "completion": Out(stream.Signature(completion_record(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        order = Signal(completion_order(self.config))
        held = Signal()
        record = self.completion.payload
        m.d.comb += [
            self.order.ready.eq(~held),
            self.wr_index.eq(Cat(order.slot, order.qp)),
            self.wr_read.eq(held & ~self.completion.valid & ~self.wr_done),
            record.queue.eq(order.queue),
            record.qp.eq(order.qp),
            record.opcode.eq(Mux(order.immediate, WorkRequestOpcode.WRITE_WITH_IMM, WorkRequestOpcode.WRITE)),
            record.status.eq(order.status),
            record.byte_length.eq(order.length),
            record.message_number.eq(order.message_number),
            self.idle.eq(~held),
        ]
        with m.If(self.order.valid & self.order.ready):
            m.d.sync += [held.eq(1), order.eq(self.order.payload)]
        with m.If(self.wr_done):
            m.d.sync += [self.completion.valid.eq(1), record.wr_id.eq(self.wr_id)]
        with m.If(self.completion.valid & self.completion.ready):
            m.d.sync += [self.completion.valid.eq(0), held.eq(0)]
        return m
