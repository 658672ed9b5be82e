"""Merging and spreading streams of records."""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RecordArbiter", "RecordBroadcast"]


class RecordArbiter(wiring.Component):
    """Merges several record streams into one, in turns, through one register.

    The source after the one served last comes first, so every source waits for at most one record of each
    other one. One record a cycle passes.

    Parameters
    ----------
    layout : data.Layout
        Of the records.
    sources : int
        Number of inputs, at least 1.

    Members
    -------
    inputs
        The sources.
    output
        The merged stream.
    idle : 1
        Nothing is held.

    Raises
    ------
    ValueError
        There is no source.
    """

    def __init__(self, layout: data.Layout, sources: int) -> None:
        if sources < 1:
            raise ValueError(f"sources must be at least 1, got {sources}")
        self.sources = sources
        super().__init__(
            {
                "inputs": In(stream.Signature(layout)).array(sources),
                "output": Out(stream.Signature(layout)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        later = Signal(self.sources)  # the sources behind the one that was served last
        chosen = Signal(range(self.sources))
        some = Signal()
        # Later assignments win: the lowest source, then the lowest one behind the last.
        for source in reversed(range(self.sources)):
            with m.If(self.inputs[source].valid):
                m.d.comb += [chosen.eq(source), some.eq(1)]
        for source in reversed(range(self.sources)):
            with m.If(self.inputs[source].valid & later[source]):
                m.d.comb += chosen.eq(source)
        free = Signal()
        m.d.comb += [
            free.eq(~self.output.valid | self.output.ready),
            self.idle.eq(~self.output.valid & ~some),
        ]
        with m.If(free):
            m.d.sync += self.output.valid.eq(some)
            with m.Switch(chosen):
                for source in range(self.sources):
                    with m.Case(source):
                        m.d.comb += self.inputs[source].ready.eq(some)
                        with m.If(some):
                            m.d.sync += later.eq(-1 << (source + 1))
                        with m.If(some):
                            m.d.sync += self.output.payload.eq(self.inputs[source].payload)
        return m


class RecordBroadcast(wiring.Component):
    """Hands every record to all of several sinks, each at its own time; the next follows when all took it.

    Parameters
    ----------
    layout : data.Layout
        Of the records.
    sinks : int
        Number of outputs.

    Members
    -------
    input
        The source.
    outputs
        The sinks.
    idle : 1
        Nothing is waiting.
    """

    def __init__(self, layout: data.Layout, sinks: int) -> None:
        self.sinks = sinks
        super().__init__(
            {
                "input": In(stream.Signature(layout)),
                "outputs": Out(stream.Signature(layout)).array(sinks),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        served = Signal(self.sinks)
        now_served = Signal(self.sinks)
        for number, output in enumerate(self.outputs):
            m.d.comb += [
                output.valid.eq(self.input.valid & ~served[number]),
                output.payload.eq(self.input.payload),
                now_served[number].eq(served[number] | (output.valid & output.ready)),
            ]
        m.d.comb += [self.input.ready.eq(now_served.all()), self.idle.eq(~self.input.valid)]
        with m.If(self.input.valid):
            m.d.sync += served.eq(now_served)
            with m.If(self.input.ready):
                m.d.sync += served.eq(0)
        return m
