"""Wide entries in a narrow memory.

Sweep: entry widths below, equal to and above the word, words of 64 to 512 bits. Stimulus: random reads and
writes of eight entries. Checks: every read returns the entry last written, and takes exactly one cycle per
word plus one. Timing: bounded by the number of operations.
"""

import random

import pytest
from amaranth.sim import Simulator

from mrc_rtl.context_memory import ContextMemory


@pytest.mark.parametrize(("bits", "word_bits"), [(60, 64), (64, 64), (130, 128), (250, 64), (250, 512)])
def test_reads_return_what_was_written(bits, word_bits):
    dut = ContextMemory(bits=bits, depth=8, word_bits=word_bits)
    random_ = random.Random(f"{bits}/{word_bits}")
    reads = 0

    async def bench(ctx):
        nonlocal reads
        written = {}
        for _ in range(200):
            assert ctx.get(dut.ready)
            entry = random_.randrange(8)
            if entry not in written or random_.random() < 0.5:
                written[entry] = random_.getrandbits(bits)
                ctx.set(dut.write, 1)
                ctx.set(dut.write_index, entry)
                ctx.set(dut.write_data, written[entry])
                for _ in range(dut.words - 1):
                    assert not ctx.get(dut.write_done)
                    await ctx.tick()
                    ctx.set(dut.write, 0)
                assert ctx.get(dut.write_done)
                await ctx.tick()
                ctx.set(dut.write, 0)
            else:
                ctx.set(dut.read, 1)
                ctx.set(dut.read_index, entry)
                for cycle in range(1, dut.words + 2):
                    await ctx.tick()
                    ctx.set(dut.read, 0)
                    assert ctx.get(dut.read_done) == (cycle == dut.words + 1)
                assert ctx.get(dut.read_data) == written[entry]
                reads += 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert reads > 50


@pytest.mark.parametrize("sizes", [(0, 8, 64), (8, 0, 64), (8, 8, 0)])
def test_sizes_are_checked(sizes):
    bits, depth, word_bits = sizes
    with pytest.raises(ValueError, match="must be positive"):
        ContextMemory(bits=bits, depth=depth, word_bits=word_bits)
