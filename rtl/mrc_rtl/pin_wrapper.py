"""A wrapper that brings a component with thousands of ports onto a few registered pins.

For measuring timing and area only: every input of the component is fed from one long shift register, every
output is captured in registers and folded into a parity, so that no logic is optimised away and no path
starts or ends at a pin.
"""

from functools import reduce
from operator import xor
from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["PinWrapper"]


class PinWrapper(wiring.Component):
    """Wraps a component for place and route.

    Parameters
    ----------
    component : wiring.Component
        What is measured; all its ports are unsigned signals of any width.

    Members
    -------
    serial_in : 1
        Shifted through all inputs.
    parity_out : 1
        Parity of all registered outputs.
    """

    def __init__(self, component: Any) -> None:
        self.component = component
        super().__init__({"serial_in": In(1), "parity_out": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.component = component = self.component
        inputs, outputs = [], []
        for _, member, value in component.signature.flatten(component):
            (inputs if member.flow is In else outputs).append(Value.cast(value))
        shift = Signal(max(1, sum(len(value) for value in inputs)))
        m.d.sync += shift.eq(Cat(self.serial_in, shift))
        m.d.comb += Cat(*inputs).eq(shift)
        captured = Signal(max(1, sum(len(value) for value in outputs)))
        m.d.sync += captured.eq(Cat(*outputs))
        # Parity in two registered stages, so that the measuring logic is never the critical path.
        words = [captured[start : start + 32] for start in range(0, len(captured), 32)]
        partial = Signal(len(words))
        m.d.sync += partial.eq(Cat(word.xor() for word in words))
        groups = [partial[start : start + 32].xor() for start in range(0, len(partial), 32)]
        folded = Signal(len(groups))
        m.d.sync += folded.eq(Cat(groups))
        m.d.sync += self.parity_out.eq(reduce(xor, folded))
        return m
