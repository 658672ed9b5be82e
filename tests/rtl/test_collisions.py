"""A read that meets a write of the same row returns anything, in benches and after synthesis.

Sweep: an ordinary read port and one declared transparent. Checks: the first is undefined on a collision in
the Verilog, the second keeps the new row; nothing else of the design changes.
"""

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from mrc_rtl.toolchain import verilog_of, with_undefined_collisions


class Store(wiring.Component):
    """A memory whose read and write address are ports."""

    def __init__(self, transparent):
        self.transparent = transparent
        super().__init__({"row": In(4), "written": In(4), "data": In(8), "read": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=8, depth=16, init=[])
        write = memory.write_port()
        read = memory.read_port(transparent_for=(write,) if self.transparent else ())
        m.d.comb += [write.addr.eq(self.written), write.data.eq(self.data), write.en.eq(1)]
        m.d.comb += [read.addr.eq(self.row), self.read.eq(read.data)]
        return m


@pytest.mark.parametrize("transparent", [False, True])
def test_only_undeclared_collisions_are_undefined(transparent):
    assert ("8'hxx" in verilog_of(Store(transparent)).read_text()) == (not transparent)


def test_nothing_else_changes():
    text = rtlil.convert(Store(False), emit_src=False)
    changed = with_undefined_collisions(text)
    assert changed != text
    assert changed.replace("COLLISION_X_MASK 1'1", "COLLISION_X_MASK 1'0") == text
