"""Turns completion orders into completion records."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import completion_record
from ..tables import WorkRequestOpcode
from .records import completion_order, send_slot_bits

__all__ = ["RequestCompletions"]


class RequestCompletions(wiring.Component):
    """A short queue of orders; each is joined by the wr_id, read from the work queue, and sent off.

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
        layout = completion_order(self.config)
        m.submodules.orders = orders = fifo.SyncFIFOBuffered(width=layout.size, depth=4)
        order = layout(orders.r_data)
        record = self.completion.payload
        opcode = Mux(order.immediate, WorkRequestOpcode.WRITE_WITH_IMM, WorkRequestOpcode.WRITE)
        m.d.comb += [
            orders.w_data.eq(self.order.payload),
            orders.w_en.eq(self.order.valid),
            self.order.ready.eq(orders.w_rdy),
            self.wr_index.eq(Cat(order.slot, order.qp)),
            self.wr_read.eq(orders.r_rdy & (~self.completion.valid | self.completion.ready) & ~self.wr_done),
            orders.r_en.eq(self.wr_done),
            self.idle.eq(~orders.r_rdy & ~self.completion.valid & (orders.level == 0)),
        ]
        with m.If(self.completion.ready):
            m.d.sync += self.completion.valid.eq(0)
        with m.If(self.wr_done):
            m.d.sync += [
                self.completion.valid.eq(1),
                record.queue.eq(order.queue),
                record.qp.eq(order.qp),
                record.wr_id.eq(self.wr_id),
                record.opcode.eq(opcode),
                record.status.eq(order.status),
                record.byte_length.eq(order.length),
                record.immediate.eq(0),
                record.message_number.eq(order.message_number),
            ]
        return m
