"""Agents for record streams in Amaranth's simulator: sources, sinks and a table command, all bounded."""

import random
from collections.abc import Callable
from typing import Any

from amaranth.sim import Simulator

__all__ = ["LIMIT", "Sink", "read_entry", "send", "simulate", "write_entry"]

#: Cycles after which a wait has failed.
LIMIT = 3000


def simulate(dut: Any, bench: Callable[..., Any], *background: Callable[..., Any]) -> None:
    """Run one test bench against a component, with others in the background."""
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    for other in background:
        simulator.add_testbench(other, background=True)
    simulator.run()


async def send(ctx: Any, port: Any, **fields: int) -> int:
    """Hand over one record; fields not named are zero. Returns the cycles it took."""
    ctx.set(port.payload, {name: fields.get(name, 0) for name, _ in port.payload.shape()})
    ctx.set(port.valid, 1)
    for cycle in range(LIMIT):
        _, _, ready = await ctx.tick().sample(port.ready)
        if ready:
            ctx.set(port.valid, 0)
            return cycle + 1
    raise AssertionError(f"the record was not taken within {LIMIT} cycles")


class Sink:
    """Takes records all the time and keeps them as dictionaries, with the cycle in which each one came.

    Parameters
    ----------
    port:
        The stream.
    stall:
        Probability of a pause in one cycle.
    seed:
        Of the pauses.
    """

    def __init__(self, port: Any, stall: float = 0.0, seed: int = 1) -> None:
        self.port, self.stall = port, stall
        self.random = random.Random(seed)
        self.records: list[dict[str, int]] = []
        self.cycles: list[int] = []

    async def run(self, ctx: Any) -> None:
        """Background bench. Checks that a record stays until it is taken."""
        shape = self.port.payload.shape()
        names = [name for name, _ in shape]
        fields = [self.port.payload[name] for name in names]
        cycle, held = 0, None
        while True:
            ready = self.random.random() >= self.stall
            ctx.set(self.port.ready, ready)
            _, _, valid, *values = await ctx.tick().sample(self.port.valid, *fields)
            if held is not None:
                assert valid and values == held, "a waiting record must stay"
            held = values if valid and not ready else None
            if valid and ready:
                self.records.append(dict(zip(names, (int(value) for value in values), strict=True)))
                self.cycles.append(cycle)
            cycle += 1


async def _word(
    ctx: Any, bus: Any, *, write: int, index: int, word: int, last: bool, value: int
) -> tuple[int, int]:
    for signal, content in (
        (bus.write, write), (bus.index, index), (bus.word, word), (bus.last, last), (bus.write_data, value),
        (bus.valid, 1),
    ):  # fmt: skip
        ctx.set(signal, content)
    taken = False
    for _ in range(LIMIT):
        _, _, ready, done, error, answer = await ctx.tick().sample(
            bus.ready, bus.done, bus.error, bus.read_data
        )
        if ready and not taken:
            taken = True
            # What a command carries counts only while it is offered.
            for signal in (bus.valid, bus.index, bus.word, bus.last, bus.write_data):
                ctx.set(signal, 0)
        if taken and done:
            return int(error), int(answer)
    raise AssertionError(f"the table did not answer within {LIMIT} cycles")


async def write_entry(ctx: Any, bus: Any, index: int, words: list[int]) -> bool:
    """Write an entry; true when the owner accepted every word."""
    good = True
    for word, value in enumerate(words):
        error, _ = await _word(
            ctx, bus, write=1, index=index, word=word, last=word == len(words) - 1, value=value
        )
        good &= not error
    return good


async def read_entry(ctx: Any, bus: Any, index: int, words: int) -> list[int] | None:
    """Read an entry; None when the owner refused a word."""
    result = []
    for word in range(words):
        error, value = await _word(ctx, bus, write=0, index=index, word=word, last=word == words - 1, value=0)
        if error:
            return None
        result.append(value)
    return result
