"""Small agents for block benches in Amaranth's simulator: record streams and table commands."""

import random
from typing import Any

from amaranth.sim import Simulator

__all__ = ["collector", "command", "send", "simulate", "take"]

#: Cycles after which a bench gives up.
LIMIT = 5000


async def take(ctx: Any, port: Any, *fields: str) -> dict[str, int]:
    """Take one record of an output stream."""
    ctx.set(port.ready, 1)
    names = fields or tuple(port.payload.shape().members)
    sampled = await ctx.tick().sample(*(port.payload[name] for name in names)).until(port.valid)
    ctx.set(port.ready, 0)
    return dict(zip(names, sampled[-len(names) :], strict=True))


async def send(ctx: Any, port: Any, **values: int) -> None:
    """Hand over one record."""
    ctx.set(port.payload, values)
    ctx.set(port.valid, 1)
    for _ in range(LIMIT):
        *_, ready = await ctx.tick().sample(port.ready)
        if ready:
            break
    else:
        raise AssertionError("the record is not taken")
    ctx.set(port.valid, 0)


def simulate(dut: Any, *benches: Any, background: tuple[Any, ...] = ()) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    for bench in benches:
        simulator.add_testbench(bench)
    for bench in background:
        simulator.add_testbench(bench, background=True)
    simulator.run()


def collector(port: Any, found: list[dict[str, int]], chooser: random.Random | None = None) -> Any:
    """A bench that takes every record; at random times when a chooser is given."""
    names = tuple(port.payload.shape().members)

    async def bench(ctx: Any) -> None:
        while True:
            ctx.set(port.ready, chooser is None or chooser.randrange(4) == 0)
            sampled = await ctx.tick().sample(port.valid, port.ready, *(port.payload[name] for name in names))
            valid, ready, *values = sampled[-len(names) - 2 :]
            if valid and ready:
                found.append(dict(zip(names, values, strict=True)))

    return bench


async def command(ctx: Any, bus: Any, *, write: bool, index: int, words: list[int]) -> tuple[list[int], bool]:
    """Move the words of an entry as the host's command unit does."""
    answers, error = [], False
    for number, word in enumerate(words):
        ctx.set(bus.valid, 1)
        ctx.set(bus.write, write)
        ctx.set(bus.index, index)
        ctx.set(bus.word, number)
        ctx.set(bus.last, number == len(words) - 1)
        ctx.set(bus.write_data, word)
        taken = False
        for _ in range(LIMIT):
            *_, ready, done, wrong, data = await ctx.tick().sample(
                bus.ready, bus.done, bus.error, bus.read_data
            )
            if ready and not taken:
                taken = True
                ctx.set(bus.valid, 0)
            if taken and done:
                answers.append(data)
                error |= bool(wrong)
                break
        else:
            raise AssertionError("the command is not answered")
    return answers, error
