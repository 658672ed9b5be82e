"""What all proofs have in common."""

from typing import Any

from amaranth.hdl import ClockDomain, Elaboratable, Module, Value

from mrc_rtl.config import NicConfig

__all__ = ["Proof", "implies"]


class Proof(Elaboratable):
    """A block with assumptions about its surroundings, assertions, and covers that show it alive.

    A subclass adds all of it in :meth:`describe`. Registers begin with their reset values and are never
    reset again; what memories hold at first is anything.

    Parameters
    ----------
    config : NicConfig
        Sizes of the block.

    Attributes
    ----------
    domain : ClockDomain
        Of the block; its clock is the only port.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        self.domain = ClockDomain("sync", reset_less=True)

    def describe(self, m: Module) -> None:
        """Add the block, assumptions, assertions and covers to the module of the proof."""
        raise AssertionError(f"{type(self).__name__} must describe itself")

    def elaborate(self, platform: Any) -> Module:
        """Return the module that :meth:`describe` fills."""
        m = Module()
        m.domains += self.domain
        self.describe(m)
        return m


def implies(condition: Value, conclusion: Value) -> Value:
    """Whether the conclusion holds wherever the condition does."""
    return ~Value.cast(condition).any() | Value.cast(conclusion).any()
