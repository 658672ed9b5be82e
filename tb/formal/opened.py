"""A block with its inside in view: registers, states and memories that a proof by induction speaks of.

A block that is proved stays as it is synthesised. Its module is elaborated here, and what it holds is found
by name. Amaranth has no public way to a module's registers, so the private names it takes are here only.
"""

from typing import Any

from amaranth.asserts import AnySeq
from amaranth.hdl import Assume, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

__all__ = ["Opened", "free_inputs", "keeps_offer"]


class Opened:
    """An elaborated block as a submodule of a proof.

    Parameters
    ----------
    m : Module
        Of the proof.
    name : str
        Name of the submodule.
    block : wiring.Component

    Attributes
    ----------
    block
        The component with its ports.
    """

    def __init__(self, m: Module, name: str, block: Any) -> None:
        self.block = block
        self._m = m
        self._name = name
        self._open()
        m.submodules[name] = self._module

    def _open(self) -> None:
        self.block._MustUse__used = True
        self._module = self.block.elaborate(None)
        parts = [self.block, *(part for part, _ in self._module._named_submodules.values())]
        self._ports = {
            id(value)
            for part in parts
            if isinstance(part, wiring.Component)
            for _, _, value in part.signature.flatten(part)
        }

    def part(self, name: str) -> "Opened":
        """Open a submodule of the block."""
        part = Opened.__new__(Opened)
        part.block = self._module.submodules[name]
        part._m, part._name = self._m, f"{self._name}_{name}"
        part._open()
        _, location = self._module._named_submodules[name]
        self._module._named_submodules[name] = (part._module, location)
        return part

    def signal(self, name: str, width: int | None = None) -> Value:
        """A register of the block, by its name, or a wire when no register has this name.

        Ports of the block and of its submodules come last. With ``width`` only those of so many bits count:
        Amaranth calls every signal ``$signal`` whose name it cannot see.

        Raises
        ------
        LookupError
            There is none of this name, or there are several.
        """
        driven = [(signal, where) for signal, where in self._module._driving.items() if signal.name == name]
        driven = [(signal, where) for signal, where in driven if width in (None, len(signal))]
        own = [(signal, where) for signal, where in driven if id(signal) not in self._ports]
        registers = [signal for signal, where in own if "comb" not in where]
        found = registers or [signal for signal, _ in own or driven]
        if len(found) != 1:
            raise LookupError(f"{self._name} must have one signal {name!r}, has {len(found)}")
        return found[0]

    def memory_row(self, name: str, address: Any) -> Any:
        """What a memory of the block holds in a row now."""
        port = self._module.submodules[name].read_port(domain="comb")
        self._m.d.comb += port.addr.eq(address)
        return port.data

    def read_data(self, name: str, number: int = 0) -> Any:
        """What a clocked read port of a memory of the block holds, by its number among those."""
        ports = [port for port in self._module.submodules[name].read_ports if port.domain != "comb"]
        return ports[number].data

    def state(self, *names: str) -> Value:
        """Whether the block's state machine is in one of these states.

        Raises
        ------
        LookupError
            There is no such state.
        """
        machine = self._module._generated["fsm"]
        unknown = set(names) - set(machine.encoding)
        if unknown:
            raise LookupError(f"{self._name} has no state {', '.join(sorted(unknown))}")
        result: Value = Const(0, 1)
        for name in names:
            result = result | (machine._data["signal"] == machine.encoding[name])
        return result

    def legal_state(self) -> Value:
        """Whether the number of the state is that of a state."""
        machine = self._module._generated["fsm"]
        return machine._data["signal"] < len(machine.encoding)


def free_inputs(m: Module, component: wiring.Component, *driven: Any) -> None:
    """Let every input of a component take any value in every cycle.

    Parameters
    ----------
    m : Module
    component : wiring.Component
    driven
        Inputs that the proof drives itself.
    """
    kept = {id(value) for value in driven}
    for _, member, value in component.signature.flatten(component):
        if member.flow == In and id(value) not in kept:
            signal = Value.cast(value)
            m.d.comb += signal.eq(AnySeq(len(signal)))


def keeps_offer(m: Module, offer: Any) -> None:
    """Assume that a stream into the block keeps its offer until it is taken.

    Parameters
    ----------
    m : Module
    offer : stream
    """
    payload = Value.cast(offer.payload)
    waited = Signal(name="waited")
    before = Signal(len(payload), name="before")
    m.d.sync += [waited.eq(offer.valid & ~offer.ready), before.eq(payload)]
    m.d.comb += Assume(~waited | (offer.valid & (payload == before)))
