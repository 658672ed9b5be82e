"""The rule for memories finds what it forbids.

Sweep: a second write port, a granular write enable, a row too wide, a deep memory read without a clock, and
a memory that keeps the rule. Checks: the text of every violation.
"""

import pytest
from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory

from mrc_rtl.config import NicConfig
from mrc_rtl.memory_rules import memories_of, violations


class OneMemory(wiring.Component):
    """A component with one memory and nothing else."""

    def __init__(self, *, shape=64, depth=64, writes=1, granularity=None, domain="sync"):
        self.arguments = (shape, depth, writes, granularity, domain)
        super().__init__({})

    def elaborate(self, platform):
        shape, depth, writes, granularity, domain = self.arguments
        m = Module()
        m.submodules.store = memory = Memory(shape=shape, depth=depth, init=[])
        for _ in range(writes):
            memory.write_port(granularity=granularity)
        memory.read_port(domain=domain)
        return m


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"writes": 2}, "store: one write port is allowed, got 2"),
        ({"granularity": 8}, "store: rows of 64 bits must be written whole, got 8 bits"),
        ({"shape": 80}, "store: width must be at most 72 bits, got 80"),
        ({"domain": "comb"}, "store: 64 rows must be read with a clock"),
    ],
)
def test_a_breach_is_named(change, message):
    assert violations(OneMemory(**change), NicConfig.small()) == [message]


@pytest.mark.parametrize("change", [{}, {"shape": 300, "depth": 32, "domain": "comb"}])
def test_what_is_allowed_passes(change):
    assert violations(OneMemory(**change), NicConfig.small()) == []


def test_rows_may_be_structures():
    layout = data.StructLayout({"low": 20, "high": 12})
    assert [fact.width for fact in memories_of(OneMemory(shape=layout))] == [32]
