"""Planes on which the peers of the QPs can be reached, as they told us."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import peer_update, receive_init

__all__ = ["PeerPlanes"]


class PeerPlanes(wiring.Component):
    """One mask a QP, which takes planes out of the turns of its packets.

    A QP that starts begins with all planes. A mask that would leave none is not obeyed: packets that cannot
    leave would keep those of other QPs waiting, and no host may do that to another.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    init : stream of records.receive_init, in
    update, updates : peer_update, 1
        Pulse: the peer of this QP told of its ports.
    look_qp : qp_bits
    usable : planes
        Planes that could be taken, one cycle after ``look_qp``.
    choice : planes
        Those of them that reach the peer, in the same cycle.

    Source: profile.md 9, protocol.md 3.7.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "init": In(stream.Signature(receive_init(config))),
                "update": In(peer_update(config)),
                "updates": In(1),
                "look_qp": In(config.qp_bits),
                "usable": In(config.planes),
                "choice": Out(config.planes),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self.config
        m.submodules.masks = masks = Memory(shape=config.planes, depth=config.qps, init=[])
        write = masks.write_port()
        # A peer may tell of its ports while a packet of its QP is looked at.
        read = masks.read_port(transparent_for=[write])
        reached = Signal(config.planes)
        m.d.comb += [
            read.addr.eq(self.look_qp),
            reached.eq(self.usable & read.data),
            self.choice.eq(Mux(reached.any(), reached, self.usable)),
            self.init.ready.eq(~self.updates),
            write.addr.eq(Mux(self.updates, self.update.qp, self.init.payload.qp)),
            write.data.eq(Mux(self.updates, self.update.reachable, (1 << config.planes) - 1)),
            write.en.eq(self.updates | self.init.valid),
        ]
        return m
