"""Planes on which peers are reached.

Stimulus: a peer tells of its ports in the very cycle in which a packet of its QP is looked at, and before.
Checks: the packet goes by the new mask; one that leaves nothing is not obeyed; a QP that starts reaches all.
Timing: one look-up takes one cycle.
"""

from amaranth.sim import Simulator

from mrc_rtl.config import NicConfig
from mrc_rtl.paths.peer_planes import PeerPlanes


def test_a_mask_counts_from_the_cycle_in_which_it_comes():
    block = PeerPlanes(NicConfig(planes=4))
    seen = []

    async def bench(ctx):
        ctx.set(block.usable, 0b1111)
        ctx.set(block.init.payload.qp, 3)
        ctx.set(block.init.valid, 1)
        await ctx.tick().until(block.init.ready)
        ctx.set(block.init.valid, 0)
        ctx.set(block.look_qp, 3)
        for reachable, told in ((0, 0), (0b0110, 1), (0, 0), (0b1000, 1), (0b0000, 1)):
            ctx.set(block.update.qp, 3)
            ctx.set(block.update.reachable, reachable)
            ctx.set(block.updates, told)
            await ctx.tick()
            seen.append(ctx.get(block.choice))

    simulator = Simulator(block)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert seen == [0b1111, 0b0110, 0b0110, 0b1000, 0b1111]
