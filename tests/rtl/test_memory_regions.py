"""Look-ups in the memory region table.

Sweep: data widths 64, 128 and 512. Stimulus: random regions and requests around every bound, keys of other
generations, wrapping addresses, host commands between look-ups, answers taken late. Checks: every answer
equals the rule written in Python; read-back equals what was written; a write ends only after ``drained``.
Timing: at most K cycles a look-up when the answers are taken at once.
"""

import random
from typing import Any

import pytest

from mrc_rtl.config import NicConfig
from mrc_rtl.memory_regions import MemoryRegions
from mrc_rtl.tables import MEMORY_REGION
from record_benches import command, simulate

TOP = 1 << 64


def expected(regions: dict[int, dict[str, int]], request: dict[str, int], config: NicConfig) -> int | None:
    """Bus address of an allowed request, None for a refused one."""
    region = regions.get(request["key"] >> 8)
    if region is None or not region["valid"] or region["key"] != request["key"]:
        return None
    if region["protection_domain"] != request["protection_domain"]:
        return None
    if request["write"] and not region["remote_write"]:
        return None
    start, end = request["address"], request["address"] + request["length"]
    if start < region["base"] or end > region["base"] + region["length"] or end > TOP:
        return None
    return (region["bus_address"] + start - region["base"]) % (1 << config.address_width)


def random_region(chooser: random.Random, index: int) -> dict[str, int]:
    base = chooser.choice([0, 4096, chooser.getrandbits(40), TOP - 8192, chooser.getrandbits(64)])
    return {
        "key": index << 8 | chooser.getrandbits(8),
        "protection_domain": chooser.randrange(3),
        "remote_write": chooser.randrange(4) != 0,
        "local_write": 1,
        "valid": chooser.randrange(6) != 0,
        "base": base,
        "length": min(chooser.choice([1, 100, 4096, 1 << 33]), TOP - base),
        "bus_address": chooser.getrandbits(31),
    }


def random_request(chooser: random.Random, regions: dict[int, dict[str, int]], count: int) -> dict[str, int]:
    index = chooser.randrange(count + 2)
    region = regions.get(index) or random_region(chooser, index)
    length = chooser.choice([0, 1, 7, 64, 1024, 4096, 8191])
    edges = [region["base"], region["base"] + region["length"] - length, region["base"] + region["length"]]
    return {
        "key": region["key"] ^ (chooser.randrange(8) == 0) << chooser.choice([0, 7, 8, 31]),
        "protection_domain": region["protection_domain"] ^ (chooser.randrange(10) == 0),
        "address": (chooser.choice(edges) + chooser.choice([-1, 0, 0, 0, 1])) % TOP,
        "length": length,
        "write": chooser.randrange(2),
    }


@pytest.mark.parametrize("width", [64, 128, 512])
def test_lookups_follow_the_rule(width: int) -> None:
    config = NicConfig(data_width=width)
    dut = MemoryRegions(config)
    chooser = random.Random(width)
    regions: dict[int, dict[str, int]] = {}
    cycle = 0

    async def bench(ctx: Any) -> None:
        nonlocal cycle
        for turn in range(40):
            index = chooser.randrange(config.memory_regions)
            regions[index] = random_region(chooser, index)
            words = MEMORY_REGION.pack(**regions[index])
            ctx.set(dut.drained, 1)
            assert not (await command(ctx, dut.table, write=True, index=index, words=words))[1]
            ctx.set(dut.drained, 0)
            back, error = await command(ctx, dut.table, write=False, index=index, words=[0] * 4)
            assert (back, error) == (words, False)
            for port in range(2):
                wanted, answers, times = [], [], []
                requests = [random_request(chooser, regions, config.memory_regions) for _ in range(12)]
                late = turn % 3 == 0
                request, answer = dut.requests[port], dut.answers[port]
                pending = 0
                for _ in range(600):
                    if pending < len(requests):
                        ctx.set(request.payload, requests[pending])
                    ctx.set(request.valid, pending < len(requests))
                    ctx.set(answer.ready, not late or chooser.randrange(3) == 0)
                    *_, ready, valid, taking, ok, address = await ctx.tick().sample(
                        request.ready,
                        answer.valid,
                        answer.ready,
                        answer.payload.ok,
                        answer.payload.bus_address,
                    )
                    cycle += 1
                    if ready and pending < len(requests):
                        wanted.append(expected(regions, requests[pending], config))
                        times.append(cycle)
                        pending += 1
                    if valid and taking:
                        answers.append(address if ok else None)
                    if len(answers) == len(requests):
                        break
                assert answers == wanted
                if not late:
                    assert (
                        max(b - a for a, b in zip(times, times[1:], strict=False)) <= config.packet_interval
                    )

    simulate(dut, bench)


@pytest.mark.parametrize("width", [64, 128, 512])
def test_both_ports_at_once_keep_the_packet_rate(width: int) -> None:
    config = NicConfig(data_width=width)
    dut = MemoryRegions(config)
    times: list[list[int]] = [[], []]

    async def bench(ctx: Any) -> None:
        region = random_region(random.Random(1), 0) | {
            "valid": 1,
            "remote_write": 1,
            "base": 0,
            "length": 100,
        }
        ctx.set(dut.drained, 1)
        await command(ctx, dut.table, write=True, index=0, words=MEMORY_REGION.pack(**region))
        for n in range(2):
            request = {"key": region["key"], "protection_domain": region["protection_domain"], "length": 1}
            ctx.set(dut.requests[n].payload, request | {"address": n})
            ctx.set(dut.requests[n].valid, 1)
            ctx.set(dut.answers[n].ready, 1)
        for cycle in range(200):
            for n in range(2):
                if ctx.get(dut.answers[n].valid):
                    times[n].append(cycle)
                    assert ctx.get(dut.answers[n].payload.ok)
                    assert ctx.get(dut.answers[n].payload.bus_address) == region["bus_address"] + n
            await ctx.tick()
        for port in times:
            assert len(port) > 10
            assert max(b - a for a, b in zip(port, port[1:], strict=False)) <= config.packet_interval
        # An answer that nobody takes holds only its own port.
        ctx.set(dut.answers[1].ready, 0)
        served = 0
        for _ in range(100):
            served += ctx.get(dut.answers[0].valid)
            await ctx.tick()
        assert served >= 100 // config.packet_interval

    simulate(dut, bench)


def test_a_write_waits_for_the_drain_and_wrong_indices_are_refused() -> None:
    config = NicConfig()
    dut = MemoryRegions(config)

    async def bench(ctx: Any) -> None:
        assert (await command(ctx, dut.table, write=True, index=config.memory_regions, words=[0] * 4))[1]
        assert (await command(ctx, dut.table, write=False, index=0xFFFF, words=[0]))[1]
        ctx.set(dut.table.valid, 1)
        ctx.set(dut.table.write, 1)
        ctx.set(dut.table.index, 1)
        ctx.set(dut.table.word, 0)
        ctx.set(dut.table.last, 1)
        done_seen = 0
        for cycle in range(60):
            ctx.set(dut.drained, cycle == 50)
            *_, done, drain, ready = await ctx.tick().sample(dut.table.done, dut.drain, dut.table.ready)
            if ready:
                ctx.set(dut.table.valid, 0)
            if done:
                assert drain
                done_seen = cycle
        assert done_seen == 50
        assert ctx.get(dut.idle)

    simulate(dut, bench)


def test_no_entry_is_valid_after_reset_whatever_the_memory_holds() -> None:
    config = NicConfig(memory_regions=4)
    dut = MemoryRegions(config)

    async def bench(ctx: Any) -> None:
        for _ in range(40):
            await ctx.tick()
        for index in range(4):
            ctx.set(dut.requests[0].payload, {"key": index << 8 | 255, "length": 1, "address": 1 << 64 - 1})
            ctx.set(dut.requests[0].valid, 1)
            await ctx.tick().until(dut.requests[0].ready)
            ctx.set(dut.requests[0].valid, 0)
            ctx.set(dut.answers[0].ready, 1)
            *_, ok = await ctx.tick().sample(dut.answers[0].payload.ok).until(dut.answers[0].valid)
            assert ok == 0

    simulate(dut, bench)
