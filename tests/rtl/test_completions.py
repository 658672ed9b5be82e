"""Completions in host memory, alone and behind the write arbiter.

Sweep: data widths 64, 128 and 512 bits; rings of 1, 4 and 16 entries over several laps.
Stimulus: random records to several queues, a host that polls by the phase bit and moves its consumer, a
memory that hesitates and answers with and without errors; full rings and queues that do not exist; two
managers that write bursts of random length at the same time.
Checks: entries appear in order, exactly once, whole, with the right phase; nothing outside them is written;
a full ring loses the completion, counts it and reports the QP; refused table writes change nothing; the
arbiter keeps bursts together and in the order of their addresses and returns answers to their manager.
Timing: a completion takes at most 4 cycles and its beats; every wait is bounded.
"""

import random
from collections import deque

import pytest

from mrc_rtl.config import QP_NUMBER_BASE, NicConfig
from mrc_rtl.records import PORT_COUNTERS, GlobalCounter
from mrc_rtl.responder.completions import CQE_BYTES, Completions
from mrc_rtl.responder.write_arbiter import WriteArbiter
from mrc_rtl.tables import CQ_ENTRY, CQE, CompletionStatus, QpErrorReason, WorkRequestOpcode
from record_agents import LIMIT, Sink, read_entry, send, simulate, write_entry

WIDTHS = pytest.mark.parametrize("width", [64, 128, 512])


class Memory:
    """The memory behind one set of write channels; remembers bytes, bursts and what it answered."""

    def __init__(self, write, width, *, stall=0.3, errors=0.0, seed=1):
        self.write, self.lanes, self.stall, self.error_rate = write, width // 8, stall, errors
        self.random = random.Random(seed)
        self.bytes, self.bursts, self.answered, self.errors = {}, [], [], 0

    async def run(self, ctx):
        write, rnd = self.write, self.random
        addresses, answers = deque(), deque()
        cycle = 0
        while True:
            ctx.set(write.awready, rnd.random() >= self.stall)
            # Data wait for their address, as in many memories.
            ctx.set(write.wready, bool(addresses) and rnd.random() >= self.stall)
            answer = answers[0] if answers and answers[0][0] <= cycle else None
            ctx.set(write.bvalid, answer is not None)
            if answer:
                ctx.set(write.bid, answer[1])
                ctx.set(write.bresp, answer[2])
            sampled = await ctx.tick().sample(
                write.awvalid & write.awready, write.awaddr, write.awlen, write.awid, write.awsize,
                write.wvalid & write.wready, write.wdata, write.wstrb, write.wlast, write.bready,
            )  # fmt: skip
            aw, address, length, ident, size, w, data, strobes, last, bready = sampled[2:]
            if aw:
                assert 1 << size == self.lanes and address % self.lanes == 0
                addresses.append([address, length, ident, []])
            if w:
                burst = addresses[0]
                for lane in range(self.lanes):
                    if strobes >> lane & 1:
                        place = burst[0] + len(burst[3]) * self.lanes + lane
                        self.bytes[place] = data >> 8 * lane & 0xFF
                burst[3].append(data)
                assert last == (len(burst[3]) == burst[1] + 1)
                if last:
                    addresses.popleft()
                    self.bursts.append(tuple(burst[:3]) + (tuple(burst[3]),))
                    answers.append(
                        (cycle + rnd.randrange(1, 30), burst[2], 2 * (rnd.random() < self.error_rate))
                    )
            if answer and bready:
                answers.popleft()
                self.answered.append(answer[1])
                self.errors += answer[2] >> 1
            cycle += 1

    def entry(self, address):
        """The completion at an address, or None while it is not wholly written."""
        raw = [self.bytes.get(address + n) for n in range(CQE_BYTES)]
        if None in raw:
            return None
        return CQE.unpack([int.from_bytes(raw[n : n + 8], "little") for n in range(0, CQE_BYTES, 8)])


def tally(sink, config):
    counts = dict.fromkeys(GlobalCounter, 0)
    for record in sink.records:
        counts[GlobalCounter(record["index"] - config.planes * PORT_COUNTERS)] += 1
    return counts


async def settle(ctx, dut):
    for _ in range(LIMIT):
        await ctx.tick()
        if ctx.get(dut.idle):
            await ctx.tick()
            return
    raise AssertionError(f"still busy after {LIMIT} cycles")


@WIDTHS
@pytest.mark.parametrize("errors", [0.0, 0.2])
def test_rings(width, errors):
    config = NicConfig(data_width=width, receive_buffer_bytes=16384)
    dut = Completions(config)
    memory = Memory(dut.write, width, errors=errors)
    overruns, counters = Sink(dut.overrun, 0.5), Sink(dut.counter, 0.5)
    rnd = random.Random(width)
    rings = {0: (0x1000, 0), 1: (0x2020, 2), 3: (0x7FFF_F000, 4)}

    async def bench(ctx):
        for queue, (base, log2) in rings.items():
            words = CQ_ENTRY.pack(base=base, log2_entries=log2, enabled=1)[: CQ_ENTRY.write_words]
            assert await write_entry(ctx, dut.table, queue, words)
        sent = {queue: [] for queue in rings}
        read = dict.fromkeys(rings, 0)

        def poll(queue):
            base, log2 = rings[queue]
            while read[queue] < len(sent[queue]):
                entry = memory.entry(base + CQE_BYTES * (read[queue] % (1 << log2)))
                if entry is None or entry["phase"] != (~(read[queue] >> log2) & 1):
                    return
                expected = sent[queue][read[queue]]
                for name, value in expected.items():
                    assert entry[name] == value, name
                read[queue] += 1

        for _ in range(150):
            queue = rnd.choice(list(rings))
            if len(sent[queue]) - read[queue] == 1 << rings[queue][1]:
                await settle(ctx, dut)
                poll(queue)
                assert read[queue] == len(sent[queue])
                await send(ctx, dut.consumer, queue=queue, index=read[queue])
                continue
            fields = {
                "wr_id": rnd.getrandbits(64), "opcode": rnd.getrandbits(8), "status": rnd.getrandbits(8),
                "byte_length": rnd.getrandbits(32), "immediate": rnd.getrandbits(32),
                "message_number": rnd.getrandbits(24),
            }  # fmt: skip
            qp = rnd.randrange(config.qps)
            port = rnd.choice((dut.sent, dut.received))
            await send(ctx, port, queue=queue, qp=qp, **fields)
            if port is dut.sent:
                fields["immediate"] = 0
            else:
                fields |= {"opcode": WorkRequestOpcode.RECEIVE_IMM, "status": CompletionStatus.SUCCESS}
            sent[queue].append({**fields, "qpn": QP_NUMBER_BASE + qp})
        await settle(ctx, dut)
        inside = set()
        for queue, (base, log2) in rings.items():
            poll(queue)
            assert read[queue] == len(sent[queue]) > 2 << log2
            entry = await read_entry(ctx, dut.table, queue, CQ_ENTRY.words)
            assert CQ_ENTRY.unpack(entry) == {
                "base": base, "log2_entries": log2, "enabled": 1, "producer": len(sent[queue])
            }  # fmt: skip
            inside |= set(range(base, base + (CQE_BYTES << log2)))
        assert set(memory.bytes) <= inside
        assert not overruns.records
        counts = tally(counters, config)
        assert counts[GlobalCounter.COMPLETIONS] == sum(map(len, sent.values()))
        assert counts[GlobalCounter.WRITE_ERRORS] == memory.errors
        assert (memory.errors > 0) == (errors > 0)

    simulate(dut, bench, memory.run, overruns.run, counters.run)


def test_full_and_missing_queues():
    config = NicConfig.small()
    dut = Completions(config)
    memory = Memory(dut.write, config.data_width)
    overruns, counters = Sink(dut.overrun, 0.5), Sink(dut.counter)

    async def bench(ctx):
        words = CQ_ENTRY.pack(base=0x400, log2_entries=1, enabled=1)[:2]
        assert await write_entry(ctx, dut.table, 2, words)
        for number in range(4):
            await send(ctx, dut.sent, queue=2, qp=number, wr_id=number)
        await send(ctx, dut.received, queue=1, qp=5)
        await settle(ctx, dut)
        assert [r["qp"] for r in overruns.records] == [2, 3, 5]
        assert {r["reason"] for r in overruns.records} == {QpErrorReason.COMPLETION_OVERRUN}
        counts = tally(counters, config)
        assert (counts[GlobalCounter.COMPLETIONS], counts[GlobalCounter.COMPLETION_OVERRUN]) == (2, 3)
        assert [memory.entry(0x400 + CQE_BYTES * n)["wr_id"] for n in range(2)] == [0, 1]
        # One place is free again; started anew, the ring begins at its first entry.
        await send(ctx, dut.consumer, queue=2, index=1)
        await send(ctx, dut.sent, queue=2, qp=0, wr_id=40)
        await send(ctx, dut.sent, queue=2, qp=6, wr_id=41)
        assert await write_entry(ctx, dut.table, 2, words)
        await send(ctx, dut.sent, queue=2, qp=0, wr_id=50)
        await settle(ctx, dut)
        assert memory.entry(0x400) | {"wr_id": 50, "phase": 1} == memory.entry(0x400)
        assert [r["qp"] for r in overruns.records] == [2, 3, 5, 6]

    simulate(dut, bench, memory.run, overruns.run, counters.run)


def test_refused_table_commands():
    config = NicConfig.small()
    dut = Completions(config)

    async def bench(ctx):
        good = CQ_ENTRY.pack(base=0x40, log2_entries=3, enabled=1)[:2]
        assert await write_entry(ctx, dut.table, 1, good)
        bad = [
            {"base": 0x48, "log2_entries": 3, "enabled": 1},
            {"base": 1 << 32, "log2_entries": 3, "enabled": 1},
            {"base": 0x80, "log2_entries": 24, "enabled": 1},
        ]
        for fields in bad:
            assert not await write_entry(ctx, dut.table, 1, CQ_ENTRY.pack(**fields)[:2])
        assert not await write_entry(ctx, dut.table, config.completion_queues, good)
        assert await read_entry(ctx, dut.table, config.completion_queues, 1) is None
        assert await read_entry(ctx, dut.table, 1, 5) == [*good, 0, 0, 0]

    simulate(dut, bench)


@WIDTHS
def test_rate(width):
    config = NicConfig(data_width=width, receive_buffer_bytes=16384)
    dut = Completions(config)
    memory = Memory(dut.write, width, stall=0)
    counters = Sink(dut.counter)

    async def bench(ctx):
        await write_entry(ctx, dut.table, 0, CQ_ENTRY.pack(base=0, log2_entries=6, enabled=1)[:2])
        cycles = 0
        for number in range(32):
            cycles += await send(ctx, dut.sent, queue=0, wr_id=number)
        assert cycles <= 32 * (4 + max(1, CQE_BYTES * 8 // width))

    simulate(dut, bench, memory.run, counters.run)


def test_halves_take_turns():
    config = NicConfig.small()
    dut = Completions(config)
    memory = Memory(dut.write, config.data_width)
    counters = Sink(dut.counter)
    ready = []
    count = 12

    def source(port, qp):
        async def bench(ctx):
            while not ready:
                await ctx.tick()
            for number in range(count):
                await send(ctx, port, queue=0, qp=qp, wr_id=number)

        return bench

    async def bench(ctx):
        await write_entry(ctx, dut.table, 0, CQ_ENTRY.pack(base=0, log2_entries=6, enabled=1)[:2])
        ready.append(True)
        for _ in range(LIMIT):
            await ctx.tick()
            entries = [memory.entry(CQE_BYTES * number) for number in range(2 * count)]
            if None not in entries:
                break
        order = [(entry["qpn"] - QP_NUMBER_BASE, entry["wr_id"]) for entry in entries]
        # A source offers its next record a cycle late: the other one may come twice at the begin.
        for qp in (1, 2):
            places = [place for place, (owner, _) in enumerate(order) if owner == qp]
            assert [order[place][1] for place in places] == list(range(count))
            assert max(b - a for a, b in zip(places, places[1:], strict=False)) <= 3

    simulate(dut, bench, memory.run, counters.run, source(dut.sent, 1), source(dut.received, 2))


@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_arbiter(stall):
    config = NicConfig.small()
    dut = WriteArbiter(config)
    memory = Memory(dut.write, config.data_width, stall=stall)
    sent = {0: [], 1: []}
    answers = {0: [], 1: []}
    done = []
    total = 25

    def manager(number, port):
        rnd = random.Random(number)

        async def address(ctx):
            for burst in range(total):
                while rnd.random() < 0.3:
                    await ctx.tick()
                beats = rnd.choice([1, 1, 4, 9])
                ident = rnd.randrange(1 << len(port.awid)) if number == 0 else 0
                place = (number << 20) + burst * 0x100
                words = tuple(rnd.getrandbits(64) for _ in range(beats))
                sent[number].append((place, beats - 1, ident | number << 3, words))
                for signal, value in (
                    (port.awaddr, place), (port.awlen, beats - 1), (port.awid, ident), (port.awvalid, 1)
                ):  # fmt: skip
                    ctx.set(signal, value)
                for _ in range(LIMIT):
                    _, _, ready = await ctx.tick().sample(port.awready)
                    if ready:
                        break
                assert ready
                ctx.set(port.awvalid, 0)

        async def beats(ctx):
            for burst in range(total):
                while len(sent[number]) <= burst:
                    await ctx.tick()
                words = sent[number][burst][3]
                for beat, word in enumerate(words):
                    while rnd.random() < 0.2:
                        await ctx.tick()
                    ctx.set(port.wdata, word)
                    ctx.set(port.wstrb, 0xFF)
                    ctx.set(port.wlast, beat == len(words) - 1)
                    ctx.set(port.wvalid, 1)
                    for _ in range(LIMIT):
                        _, _, ready = await ctx.tick().sample(port.wready)
                        if ready:
                            break
                    assert ready
                    ctx.set(port.wvalid, 0)
            done.append(number)

        async def responses(ctx):
            while True:
                ctx.set(port.bready, rnd.random() >= stall)
                _, _, valid, ready, ident = await ctx.tick().sample(port.bvalid, port.bready, port.bid)
                if valid and ready:
                    answers[number].append(ident)

        return address, beats, responses

    async def bench(ctx):
        for _ in range(LIMIT):
            await ctx.tick()
            if len(done) == 2 and ctx.get(dut.idle) and len(memory.answered) == 2 * total:
                break
        await ctx.tick()
        assert len(memory.answered) == 2 * total
        for number in (0, 1):
            assert [b for b in memory.bursts if b[0] >> 20 == number] == sent[number]
            assert answers[number] == [b[2] & 7 for b in sent[number]]
        # Neither waits for more than a few bursts of the other.
        order = [b[0] >> 20 for b in memory.bursts]
        assert 0 in order[:6] and 1 in order[:6]

    background = [*manager(0, dut.placement), *manager(1, dut.completions)]
    simulate(dut, bench, memory.run, *background)
