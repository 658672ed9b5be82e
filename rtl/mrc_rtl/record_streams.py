"""Merging and spreading streams of records."""

from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RecordArbiter", "RecordBroadcast", "RecordRegister"]


class RecordArbiter(wiring.Component):
    """Merges several record streams into one, in turns, through one register.

    The source after the one served last comes first, so every source waits for at most one record of each
    other one. One record a cycle passes while several wait, every second cycle one of a source alone. Which
    source is next is decided a cycle ahead, so a source's ``ready`` depends on no other source.

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
        # The choice is made a cycle before the record passes: no path leads from one source to another.
        granted = Signal(self.sources)
        last = Signal(self.sources)
        free, passes = Signal(), Signal()
        waiting = Cat(source.valid for source in self.inputs) & ~granted
        # All bits above the lowest bit of a word are those of -word without that bit: a carry chain's work.
        later = waiting & (last | -last) & ~last
        among = Mux(later.any(), later, waiting)
        m.d.comb += [
            free.eq(~self.output.valid | self.output.ready),
            passes.eq(granted.any() & free),
            self.idle.eq(~self.output.valid & ~Cat(source.valid for source in self.inputs).any()),
        ]
        with m.If(~granted.any() | free):
            m.d.sync += granted.eq(among & -among)
            with m.If(among.any()):
                m.d.sync += last.eq(among & -among)
        with m.If(free):
            m.d.sync += self.output.valid.eq(passes)
        words = [
            Value.cast(source.payload) & granted[number].replicate(len(Value.cast(source.payload)))
            for number, source in enumerate(self.inputs)
        ]
        with m.If(passes):
            m.d.sync += Value.cast(self.output.payload).eq(reduce(or_, words))
        for number, source in enumerate(self.inputs):
            m.d.comb += source.ready.eq(granted[number] & free)
        return m


class RecordBroadcast(wiring.Component):
    """Hands every record to all of several sinks, each at its own time; the next follows two cycles after
    all took it, so that no path leads from the sinks to the source.

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
        m.d.comb += [self.input.ready.eq(served.all()), self.idle.eq(~self.input.valid)]
        for number, output in enumerate(self.outputs):
            m.d.comb += [
                output.valid.eq(self.input.valid & ~served[number]),
                output.payload.eq(self.input.payload),
            ]
            with m.If(output.valid & output.ready):
                m.d.sync += served[number].eq(1)
        with m.If(served.all()):
            m.d.sync += served.eq(0)
        return m


class RecordRegister(wiring.Component):
    """Holds one record between two blocks: no path leads through it in either direction.

    A record stays for at least one cycle and the next one is taken when it has gone, so that one passes every
    second cycle.

    Parameters
    ----------
    layout : data.Layout
        Of the records.

    Members
    -------
    input, output
        The stream, before and behind.
    idle : 1
        Nothing is held.
    """

    def __init__(self, layout: data.Layout) -> None:
        super().__init__(
            {
                "input": In(stream.Signature(layout)),
                "output": Out(stream.Signature(layout)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        held = Value.cast(self.output.payload)
        m.d.comb += [self.input.ready.eq(~self.output.valid), self.idle.eq(~self.output.valid)]
        with m.If(~self.output.valid):
            m.d.sync += [self.output.valid.eq(self.input.valid), held.eq(Value.cast(self.input.payload))]
        with m.Elif(self.output.ready):
            m.d.sync += self.output.valid.eq(0)
        return m
