"""Ledger of buffer beats: all that it was told of is handed out, once, in pieces placement can take."""

from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Assume, Cover, Module, Mux, Signal

from mrc_rtl.responder import buffer_ledger as under_proof

from ..opened import Opened, free_inputs
from ..proof import Proof, implies

__all__ = ["LedgerProof"]


class LedgerProof(Proof):
    """Beats of one arbitrary plane are counted, in and out.

    Assumed, as admission does it: a packet is added or a piece is taken, not both; a piece is taken of a
    plane that owes one; no more is added than a plane's buffer holds, which
    :class:`formal.proofs.packet_buffer.PacketBufferProof` shows of committed beats.
    """

    def describe(self, m: Module) -> None:
        """Add packets and take pieces in any order."""
        config = self.config
        block = under_proof.BufferLedger(config)
        opened = Opened(m, "ledger", block)
        free_inputs(m, block)
        plane = AnyConst(range(config.planes))
        depth = config.receive_buffer_bytes // config.data_bytes
        longest = config.mtu // config.data_bytes
        owed = Signal(range(depth + 1))
        beats, piece = Signal(14), Signal(14)
        chosen = Signal()
        m.d.comb += [
            chosen.eq(block.chosen == plane),
            beats.eq(Mux(block.add & chosen, (block.length + config.data_bytes - 1) // config.data_bytes, 0)),
            piece.eq(Mux(block.take & chosen, block.piece // config.data_bytes, 0)),
            Assume(block.length <= config.mtu),
            Assume(block.chosen < config.planes),
            Assume(~(block.add & block.take)),
            Assume(implies(block.take & chosen, block.owes.bit_select(plane, 1))),
            Assume(implies(block.add & chosen, owed + beats <= depth)),
        ]
        m.d.sync += owed.eq(owed + beats - piece)
        m.d.comb += [
            Assert(owed <= depth),
            Assert(block.owes.bit_select(plane, 1) == (owed != 0)),
            Assert(implies(chosen & (owed != 0), (block.piece != 0) & (block.piece <= config.mtu))),
            Assert(implies(chosen, block.piece % config.data_bytes == 0)),
            Assert(implies(chosen, block.piece // config.data_bytes <= owed)),
            Assert(implies(chosen & (owed >= longest), block.piece == config.mtu)),
            # Induction.
            *(Assert(implies(plane == n, opened.signal(f"sum{n}") == owed)) for n in range(config.planes)),
            Cover(block.take & chosen & (owed > longest)),
            Cover(owed == depth),
            Cover(block.take & chosen & (piece == 1)),
        ]
