"""Merges the AXI4 write channels of placement and completions."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..stream import Axi4WriteSignature
from .placement import placement_id_bits

__all__ = ["COMPLETION_ID_BITS", "WriteArbiter", "write_id_bits"]

#: Completions use one identifier, so that the memory keeps their order.
COMPLETION_ID_BITS = 1

#: Bursts whose address is on its way and whose data are not complete.
_ORDER_DEPTH = 4


def write_id_bits(config: NicConfig) -> int:
    """Bits of an identifier on the merged channels: the manager's own and the manager in the top bit."""
    return placement_id_bits(config) + 1


class WriteArbiter(wiring.Component):
    """Two managers on one set of write channels.

    Addresses are taken in turns through one register, at most every second cycle and from a manager that was
    chosen before, so that no path leads from one side to another; the order in which they are taken is the
    order of the data, as AXI4 demands. Responses return by the top bit of the identifier: 0 placement, 1
    completions.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    placement, completions : AXI4 write channels, in
    write : AXI4 write channels
    idle : 1
        No address and no data are held; answers may be outstanding, their managers know.

    Source: AMBA AXI4, A5.2 (write data follow the order of the addresses).
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        width, address_width = config.data_width, config.address_width
        super().__init__(
            {
                "placement": In(Axi4WriteSignature(width, address_width, placement_id_bits(config))),
                "completions": In(Axi4WriteSignature(width, address_width, COMPLETION_ID_BITS)),
                "write": Out(Axi4WriteSignature(width, address_width, write_id_bits(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        out, managers = self.write, (self.placement, self.completions)

        # Managers of the bursts whose data are due, the oldest in bit 0; a one above them marks the end.
        order = Signal(_ORDER_DEPTH + 1, init=1)
        pushed = Signal(_ORDER_DEPTH + 2)
        oldest_ends = Signal()
        due = Signal()
        chosen = Signal()
        waits = Cat(manager.awvalid for manager in managers)
        take = Signal()
        m.d.comb += [
            take.eq(waits.bit_select(chosen, 1) & ~out.awvalid & ~order[-1]),
            due.eq(order != 1),
            out.awsize.eq((self.config.data_bytes - 1).bit_length()),
            out.awburst.eq(0b01),
        ]
        # The other one is chosen when it waits, as soon as this one is served or does not wait.
        with m.If(take | ~waits.bit_select(chosen, 1)):
            m.d.sync += chosen.eq(chosen ^ waits.bit_select(~chosen, 1))
        with m.If(out.awready):
            m.d.sync += out.awvalid.eq(0)
        for number, manager in enumerate(managers):
            with m.If(take & (chosen == number)):
                m.d.comb += manager.awready.eq(1)
                m.d.sync += [
                    out.awvalid.eq(1),
                    out.awaddr.eq(manager.awaddr),
                    out.awlen.eq(manager.awlen),
                    out.awid.eq(Cat(manager.awid, Signal(len(out.awid) - 1 - len(manager.awid)), chosen)),
                ]

        for number, manager in enumerate(managers):
            with m.If(due & (order[0] == number)):
                m.d.comb += [
                    out.wvalid.eq(manager.wvalid),
                    out.wdata.eq(manager.wdata),
                    out.wstrb.eq(manager.wstrb),
                    out.wlast.eq(manager.wlast),
                    manager.wready.eq(out.wready),
                    oldest_ends.eq(manager.wvalid & out.wready & manager.wlast),
                ]

        # The mark moves up by one, and the manager takes its place.
        m.d.comb += pushed.eq(order)
        with m.If(take):
            for place in range(_ORDER_DEPTH):
                with m.If(~order[place + 1 :].any() & order[place]):
                    m.d.comb += [pushed[place].eq(chosen), pushed[place + 1].eq(1)]
        m.d.sync += order.eq(Mux(oldest_ends, pushed[1:], pushed))

        to_completions = out.bid[-1]
        for number, manager in enumerate(managers):
            m.d.comb += [
                manager.bvalid.eq(out.bvalid & (to_completions == number)),
                manager.bid.eq(out.bid),
                manager.bresp.eq(out.bresp),
            ]
        m.d.comb += [
            out.bready.eq(Mux(to_completions, self.completions.bready, self.placement.bready)),
            self.idle.eq(~out.awvalid & ~due),
        ]
        return m
