"""All proofs, with the sizes they are done at and the broken copies they must refuse."""

from .mutation import Mutation
from .proofs.claims import ClaimsProof
from .proofs.immediates import ImmediatesProof
from .proofs.lanes import LanesProof
from .proofs.ledger import LedgerProof
from .proofs.packet_buffer import PacketBufferProof
from .proofs.placement import PlacementProof
from .proofs.regions import RegionsProof
from .proofs.tracker import TrackerProof
from .runner import Claim
from .sizes import ProofConfig

__all__ = ["CLAIMS"]

_RING_LAP = Mutation(
    "responder.psn_ring",
    "lap_parity(self._config, self.initial_psn) ^ (self.word < first)",
    "lap_parity(self._config, self.initial_psn)",
)

CLAIMS = (
    Claim(
        name="claims",
        shows="a PSN of the window is claimed at most once, on every lap of the ring and over the wrap",
        make=lambda: ClaimsProof(ProofConfig(qps=2, mpr_psns=32)),
        mode="induction",
        depth=2,
        cover_depth=16,
        mutations=(
            _RING_LAP,
            Mutation("responder.claim_bits", "ring.hold.eq(self.claim)", "ring.hold.eq(0)"),
        ),
    ),
    Claim(
        name="tracker",
        shows="the cumulative PSN passes placed PSNs only, all it can, by at most one window",
        make=lambda: TrackerProof(ProofConfig(qps=2, mpr_psns=64)),
        mode="induction",
        depth=2,
        cover_depth=18,
        mutations=(
            _RING_LAP,
            Mutation("responder.rx_tracker", "Mux(reading, bitmap.lap, step.lap)", "bitmap.lap"),
            Mutation("responder.ring_word", "whole & group[: n + 1].all()", "whole & group[n]"),
        ),
    ),
    *(
        Claim(
            name=f"packet_buffer_{width}",
            shows="beats taken are those committed, once each, in order and unchanged; none is lost",
            make=lambda width=width: PacketBufferProof(
                ProofConfig(mtu=width // 2, receive_buffer_bytes=width, data_width=width, clock_ps=4000)
            ),
            mode="induction",
            depth=3,
            cover_depth=24,
            mutations=(
                Mutation(
                    "responder.packet_buffer", "m.d.sync += [head.eq(committed)", "m.d.sync += [head.eq(tail)"
                ),
                Mutation(
                    "responder.packet_buffer",
                    "complete & ~occupied[-1] & ~self.full",
                    "complete & ~self.full",
                ),
            ),
        )
        for width in (64, 128)
    ),
    Claim(
        name="ledger",
        shows="beats of packets that are not placed are given back, each once, a plane at a time",
        make=lambda: LedgerProof(ProofConfig(planes=3, mtu=256, receive_buffer_bytes=1024)),
        mode="induction",
        depth=2,
        cover_depth=10,
        mutations=(
            Mutation("responder.buffer_ledger", "~self.add | self.length[:lane_bits].any()", "~self.add"),
            Mutation("responder.buffer_ledger", "(self.add | self.take) &", "self.add &"),
        ),
    ),
    Claim(
        name="placement",
        shows="bursts cover a packet and nothing else, within a page and 256 beats; answers complete it",
        make=lambda: PlacementProof(
            ProofConfig(planes=2, mtu=4096, receive_buffer_bytes=8192, placements=4, address_width=16)
        ),
        mode="induction",
        depth=2,
        cover_depth=14,
        solver="yices",
        mutations=(
            Mutation(
                "responder.placement",
                "self.write.awlen.eq(Mux(last_burst, more_beats, ~first_beat[:block_bits]))",
                "self.write.awlen.eq(more_beats)",
            ),
            Mutation(
                "responder.placement",
                "(last_in_block >> block_bits) + 1",
                "(last_in_block >> block_bits) | 1",
            ),
            Mutation("responder.placement_slots", "self.ready.eq(~self.open)", "self.ready.eq(1)"),
        ),
    ),
    Claim(
        name="lanes",
        shows="each byte stands in the lane of its address; strobes are set for those and no others",
        make=lambda: LanesProof(ProofConfig(planes=2)),
        mode="induction",
        depth=2,
        cover_depth=8,
        solver="yices",
        mutations=(
            Mutation("responder.placement_lanes", "lane > self.end", "lane >= self.end"),
            Mutation(
                "responder.placement_lanes",
                "window[: width - 8].eq(window[width:])",
                "window[: width - 8].eq(0)",
            ),
        ),
    ),
    Claim(
        name="regions",
        shows="a range is allowed if and only if key, domain and rights fit and all of it lies in the region",
        make=lambda: RegionsProof(ProofConfig(memory_regions=4)),
        mode="induction",
        depth=2,
        cover_depth=10,
        solver="yices",
        mutations=(
            Mutation("memory_regions", "allowed & above & inside & enough", "allowed & above & inside"),
            Mutation("memory_regions", "allowed & above & inside & enough", "allowed & inside & enough"),
        ),
    ),
    Claim(
        name="immediates",
        shows="messages are delivered in order, once each, to posted requests, after all that precedes",
        make=lambda: ImmediatesProof(ProofConfig(qps=2, immediates=4, receive_queue_depth=4)),
        mode="induction",
        depth=2,
        cover_depth=20,
        solver="yices",
        mutations=(
            Mutation("responder.immediates", "with m.If(beyond | mark.valid):", "with m.If(mark.valid):"),
            Mutation(
                "responder.immediates",
                "complete = mark.valid & ~(now.cumulative - mark.psn[:near])[near - 1]",
                "complete = mark.valid",
            ),
        ),
    ),
)
