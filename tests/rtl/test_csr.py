"""The register block on AXI4-Lite.

Sweep: the small configuration and one with eight planes. Stimulus: every word of the address range read and
written with random values, partial strobes, table commands against owners of random latency, doorbells with
a slow taker, events beyond the queue's depth.
Checks: each register behaves as its kind says, settings follow their registers and wide ones change at
once, unknown addresses are refused and change nothing, entries move whole and in order, doorbells are
neither lost nor doubled. Timing: a write of a setting takes at most 5 cycles, of a wide one 8, every wait is
bounded.
"""

import random

import pytest
from amaranth.sim import Simulator

from mrc_rtl.config import NicConfig
from mrc_rtl.csr import EVENT_QUEUE_DEPTH, CsrBlock
from mrc_rtl.registers import RegisterKind, constant_value, register_map
from mrc_rtl.table_commands import read_bits, table_port
from mrc_rtl.tables import EventKind, TableId

MAP = register_map()
OKAY, SLVERR = 0, 2
SMALL = NicConfig.small()
WIDE = NicConfig(planes=8, qps=256)
LIMIT = 2000


class Master:
    """Reads and writes words; counts the cycles of the last access."""

    def __init__(self, ctx, dut):
        self.ctx, self.bus, self.cycles = ctx, dut.control, 0

    async def _until(self, signal, *others):
        for _ in range(LIMIT):
            _, _, done, *values = await self.ctx.tick().sample(signal, *others)
            self.cycles += 1
            if done:
                return values
        raise AssertionError(f"no answer within {LIMIT} cycles")

    async def write(self, address, value, strobes=0xF):
        ctx, bus = self.ctx, self.bus
        self.cycles = 0
        for signal, content in (
            (bus.awaddr, address), (bus.awvalid, 1), (bus.wdata, value), (bus.wstrb, strobes), (bus.wvalid, 1)
        ):  # fmt: skip
            ctx.set(signal, content)
        await self._until(bus.awready & bus.wready)
        ctx.set(bus.awvalid, 0)
        ctx.set(bus.wvalid, 0)
        ctx.set(bus.bready, 1)
        (response,) = await self._until(bus.bvalid, bus.bresp)
        ctx.set(bus.bready, 0)
        return response

    async def read(self, address):
        ctx, bus = self.ctx, self.bus
        self.cycles = 0
        ctx.set(bus.araddr, address)
        ctx.set(bus.arvalid, 1)
        await self._until(bus.arready)
        ctx.set(bus.arvalid, 0)
        ctx.set(bus.rready, 1)
        response, value = await self._until(bus.rvalid, bus.rresp, bus.rdata)
        ctx.set(bus.rready, 0)
        return response, value

    async def get(self, name, index=0):
        register = MAP[name]
        total = 0
        for word in range(register.words):
            response, value = await self.read(register.address(index, word))
            assert response == OKAY, (name, word)
            total |= value << 32 * word
        return total

    async def put(self, name, value, index=0):
        register = MAP[name]
        for word in range(register.words):
            assert await self.write(register.address(index, word), value >> 32 * word & 0xFFFFFFFF) == OKAY


def simulate(dut, bench, *helpers):
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)

    async def main(ctx):
        await ctx.tick().until(dut.idle)
        await bench(ctx, Master(ctx, dut))

    simulator.add_testbench(main)
    for helper in helpers:
        simulator.add_testbench(helper, background=True)
    simulator.run()


def elements(register, config):
    return min(register.count, config.planes) if register.name.startswith("port_") else register.count


@pytest.mark.parametrize("config", [SMALL, WIDE], ids=["small", "wide"])
def test_reset_values_and_constants(config):
    dut = CsrBlock(config)

    async def bench(ctx, master):
        for register in MAP:
            for index in range(elements(register, config)):
                if register.kind is RegisterKind.CONSTANT:
                    assert await master.get(register.name) == constant_value(register, config), register.name
                elif register.kind in (RegisterKind.SETTING, RegisterKind.STATE, RegisterKind.POP):
                    assert await master.get(register.name, index) == register.reset, register.name
        assert ctx.get(dut.settings.dscp_control) == 46
        assert ctx.get(dut.settings.usid_block) == 0x5F000000
        assert ctx.get(dut.idle)

    simulate(dut, bench)


def test_every_word_follows_its_kind():
    config = NicConfig(planes=3)
    words = {}
    for register in MAP:
        for index in range(elements(register, config)):
            for word in range(register.words):
                words[register.address(index, word)] = register
    dut = CsrBlock(config)

    async def taker(ctx):
        for port in (dut.send_doorbell, dut.receive_doorbell, dut.consumer):
            ctx.set(port.ready, 1)
        await ctx.tick()

    async def bench(ctx, master):
        for address in [*range(0, 0x440, 4), 0x8000, 0xFFFC, 0x82, 0x200 | 1]:
            register = words.get(address)
            response, _ = await master.read(address)
            assert response == (OKAY if register and register.readable else SLVERR), hex(address)
            if register and register.kind is RegisterKind.COMMAND:
                continue
            before = ctx.get(dut.settings.as_value())
            if not (register and register.writable):
                assert await master.write(address, 0xFFFFFFFF) == SLVERR, hex(address)
                assert ctx.get(dut.settings.as_value()) == before, hex(address)
            else:
                assert await master.write(address, 0xFFFFFFFF, strobes=0x7) == SLVERR, hex(address)
                assert ctx.get(dut.settings.as_value()) == before, hex(address)

    simulate(dut, bench, taker)


@pytest.mark.parametrize("config", [SMALL, WIDE], ids=["small", "wide"])
def test_settings(config):
    dut = CsrBlock(config)
    random_ = random.Random(5)

    def visible(ctx, field, index, register):
        if register.name == "control":
            return ctx.get(dut.settings.enable)
        if field.name == "up":
            return ctx.get(dut.settings.port_up)
        signal = getattr(dut.settings, field.name)
        return ctx.get(signal[index] if register.count > 1 else signal)

    async def bench(ctx, master):
        ctx.set(dut.link_up, (1 << config.planes) - 1)
        written = {}
        for _ in range(3):
            for register in MAP:
                if register.kind is not RegisterKind.SETTING:
                    continue
                for index in range(elements(register, config)):
                    value = random_.getrandbits(register.width)
                    for word in range(register.words):
                        part = value >> 32 * word & 0xFFFFFFFF
                        before = ctx.get(dut.settings.as_value())
                        assert await master.write(register.address(index, word), part) == OKAY
                        assert master.cycles <= (8 if register.words > 1 else 5)
                        if word < register.words - 1:
                            assert ctx.get(dut.settings.as_value()) == before
                            if (register.name, index) in written:
                                # Half a write is not read back either.
                                assert await master.get(register.name, index) == written[register.name, index]
                    written[register.name, index] = value & register.mask
                    for field in register.fields:
                        expected = value >> field.low & field.mask
                        if field.name == "up":
                            expected &= (1 << config.planes) - 1
                        assert visible(ctx, field, index, register) == expected, field.name
            for (name, index), value in written.items():
                assert await master.get(name, index) == value, name

    simulate(dut, bench)


def test_link_and_administration():
    dut = CsrBlock(SMALL)

    async def bench(ctx, master):
        assert ctx.get(dut.settings.port_up) == 0
        ctx.set(dut.link_up, 0b10)
        assert await master.get("port_status") == 0b10
        assert ctx.get(dut.settings.port_up) == 0b10
        await master.put("port_administration", 0b01)
        assert ctx.get(dut.settings.port_up) == 0

    simulate(dut, bench)


class Owner:
    """Owns a table of four words an entry; refuses entries from 8 on, answers after a random time."""

    def __init__(self, bus, seed, delays):
        self.bus, self.random, self.delays = bus, random.Random(seed), delays
        self.entries = {}
        self.log = []

    async def run(self, ctx):
        pending = {}
        while True:
            for _ in range(self.random.choice(self.delays)):
                await ctx.tick()
            ctx.set(self.bus.ready, 1)
            bus = self.bus
            while True:
                # A word may be answered in the cycle it is taken.
                fast = 0 in self.delays and self.random.random() < 0.5
                word, index, write = ctx.get(bus.word), ctx.get(bus.index), ctx.get(bus.write)
                here = fast and ctx.get(bus.valid)
                ctx.set(bus.done, here)
                ctx.set(bus.error, index >= 8)
                ctx.set(
                    bus.read_data, self.entries.get(index, [0] * 16)[word] if here and not write else 0x5A
                )
                _, _, valid, word, index, write, last, value = await ctx.tick().sample(
                    bus.valid, bus.word, bus.index, bus.write, bus.last, bus.write_data
                )
                if valid:
                    break
                assert not here
            ctx.set(bus.ready, 0)
            ctx.set(bus.done, 0)
            self.log.append((write, index, word, last))
            if write:
                pending[word] = value
                if last:
                    if index < 8:
                        entry = self.entries.setdefault(index, [0] * 16)
                        for number, content in pending.items():
                            entry[number] = content
                    pending = {}
            if here:
                continue
            for _ in range(self.random.choice(self.delays)):
                await ctx.tick()
            ctx.set(bus.done, 1)
            ctx.set(bus.error, index >= 8)
            ctx.set(bus.read_data, 0 if write else self.entries.get(index, [0] * 16)[word])
            await ctx.tick()
            ctx.set(bus.done, 0)


@pytest.mark.parametrize("delays", [(0,), (1, 2, 7)], ids=["fast", "slow"])
def test_table_commands(delays):
    dut = CsrBlock(SMALL)
    owners = [
        Owner(getattr(dut, table_port(table)), seed, delays)
        for seed, table in enumerate((TableId.QP_SEND, TableId.EV_VALUE, TableId.COUNTER))
    ]
    random_ = random.Random(9)

    async def write_entry(master, table, index, words):
        for number, word in enumerate(words):
            await master.write(MAP["data"].address(2 * number), word & 0xFFFFFFFF)
            await master.write(MAP["data"].address(2 * number + 1), word >> 32)
        await master.put("command", MAP["command"].pack(table=table, write=1, count=len(words), index=index))

    async def read_entry(master, table, index, count):
        await master.put("command", MAP["command"].pack(table=table, count=count, index=index))
        return [await master_word(master, number) for number in range(count)]

    async def master_word(master, number):
        _, low = await master.read(MAP["data"].address(2 * number))
        _, high = await master.read(MAP["data"].address(2 * number + 1))
        return high << 32 | low

    async def bench(ctx, master):
        expected = {}
        for step in range(24):
            which = random_.randrange(3)
            table = (TableId.QP_SEND, TableId.EV_VALUE, TableId.COUNTER)[which]
            index, count = random_.randrange(8), random_.choice((1, 2, 6, 16))
            words = [random_.getrandbits(64) for _ in range(count)]
            await write_entry(master, table, index, words)
            entry = expected.setdefault((table, index), [0] * 16)
            entry[:count] = words
            (table, index), entry = random_.choice(list(expected.items()))
            got = await read_entry(master, table, index, 16)
            assert got == [word & (1 << read_bits(table)) - 1 for word in entry], step
            assert await master.get("command_status") == 0
        assert owners[0].entries == {i: e for (t, i), e in expected.items() if t == TableId.QP_SEND}
        # Refusals: by the owner, for an unknown table, for impossible counts.
        seen = [len(owner.log) for owner in owners]
        await write_entry(master, TableId.COUNTER, 9, [1, 2])
        assert await read_entry(master, TableId.QP_SEND, 7, 1)
        await write_entry(master, TableId.EV_VALUE, 8, [1, 2])
        await master.read(MAP["data"].address(0))
        assert await master.get("command_status") == 0b10
        assert [len(owner.log) for owner in owners] == [seen[0] + 1, seen[1] + 2, seen[2] + 2]
        for bad in ({"table": 10, "count": 1}, {"table": 0, "count": 0}, {"table": 0, "count": 17}):
            await master.put("command", MAP["command"].pack(**bad))
            assert await master.get("command_status") == 0b10
        await read_entry(master, TableId.QP_SEND, 0, 1)
        assert await master.get("command_status") == 0
        for owner in owners:
            for (_, _, word, last), following in zip(owner.log, owner.log[1:], strict=False):
                assert following[2] == (0 if last else word + 1)

    simulate(dut, bench, *(owner.run for owner in owners))


def test_a_write_waits_for_the_command_and_state_can_be_read():
    dut = CsrBlock(SMALL)
    bus = dut.table_counter

    async def bench(ctx, master):
        await master.put("command", MAP["command"].pack(table=TableId.COUNTER, count=1, index=3))
        assert await master.get("command_status") == 1
        assert not ctx.get(dut.idle)
        ctx.set(dut.control.awvalid, 1)
        ctx.set(dut.control.wvalid, 1)
        for _ in range(50):
            _, _, taken = await ctx.tick().sample(dut.control.awready)
            assert not taken
        ctx.set(dut.control.awvalid, 0)
        ctx.set(dut.control.wvalid, 0)
        ctx.set(bus.ready, 1)
        await ctx.tick()
        ctx.set(bus.ready, 0)
        ctx.set(bus.done, 1)
        ctx.set(bus.read_data, 0x1122334455667788)
        await ctx.tick()
        ctx.set(bus.done, 0)
        assert await master.read(MAP["data"].address(0)) == (OKAY, 0x55667788)
        # A counter has 32 bits; what a table does not use reads as zero.
        assert await master.read(MAP["data"].address(1)) == (OKAY, 0)
        assert await master.get("command_status") == 0
        assert ctx.get(dut.idle)

    simulate(dut, bench)


@pytest.mark.parametrize("offset", range(6))
def test_reads_while_a_command_reads_the_buffer(offset):
    """What a row may do stands in the memory of the data buffer: neither reader takes the other's cycle."""
    dut = CsrBlock(SMALL)
    owner = Owner(dut.table_qp_send, offset, (0, 1))
    words = [random.Random(offset).getrandbits(64) for _ in range(16)]

    async def bench(ctx, master):
        for number, word in enumerate(words):
            assert await master.write(MAP["data"].address(2 * number), word & 0xFFFFFFFF) == OKAY
            assert await master.write(MAP["data"].address(2 * number + 1), word >> 32) == OKAY
        command = MAP["command"].pack(table=TableId.QP_SEND, write=1, count=16, index=5)
        await master.put("command", command)
        for _ in range(offset):
            await ctx.tick()
        polls = 0
        while await master.get("command_status"):
            polls += 1
            assert (await master.read(MAP["command"].address(0)))[0] == SLVERR
            assert await master.get("port_status") == 0
        assert polls > 2
        assert owner.entries == {5: words}
        # A row of the map waits for the command, and is right then.
        await master.put("command", command)
        for _ in range(offset):
            await ctx.tick()
        assert await master.get("magic") == constant_value(MAP["magic"], SMALL)
        assert await master.get("command_status") == 0
        assert not MAP["command"].readable

    simulate(dut, bench, owner.run)


def test_doorbells():
    dut = CsrBlock(SMALL)
    random_ = random.Random(2)
    got = {"send_doorbell": [], "receive_doorbell": [], "consumer": []}

    def taker(name):
        async def take(ctx):
            port = getattr(dut, name)
            while True:
                ctx.set(port.ready, random_.random() < 0.2)
                _, _, valid, ready, payload = await ctx.tick().sample(
                    port.valid, port.ready, port.payload.as_value()
                )
                if valid and ready:
                    got[name].append(payload)

        return take

    async def bench(ctx, master):
        sent = {name: [] for name in got}
        for _ in range(40):
            name = random_.choice(list(got))
            if name == "consumer":
                queue, index = random_.randrange(4), random_.getrandbits(24)
                await master.put("cq_consumer", MAP["cq_consumer"].pack(queue=queue, index=index))
                sent[name].append(queue | index << 2)
            else:
                qp, count = random_.randrange(8), random_.randrange(1, 2048)
                await master.put(name, MAP[name].pack(qp=qp, count=count))
                sent[name].append(qp | count << 3)
        assert await master.write(MAP["send_doorbell"].offset, MAP["send_doorbell"].pack(qp=8)) == SLVERR
        assert await master.write(MAP["cq_consumer"].offset, MAP["cq_consumer"].pack(queue=4)) == SLVERR
        assert got == sent

    simulate(dut, bench, *(taker(name) for name in got))


def test_events_of_evs_leave_places_and_tell_how_many_were_lost():
    dut = CsrBlock(SMALL)
    layout = dut.event.payload.shape()

    async def bench(ctx, master):
        async def offer(number):
            """An event of an EV, which is taken within three cycles, beside one of a QP at times."""
            ctx.set(
                dut.ev_event.payload,
                {"qp": 5, "reason": 1, "kind": EventKind.EV_STATE, "place": number % 32, "state": 2},
            )
            ctx.set(dut.ev_event.valid, 1)
            for _ in range(3):
                _, _, ready = await ctx.tick().sample(dut.ev_event.ready)
                if ready:
                    break
            ctx.set(dut.ev_event.valid, 0)
            assert ready
            await ctx.tick()

        async def events():
            taken = []
            while word := await master.get("event"):
                taken.append(MAP["event"].unpack(word))
            return taken

        lost = 2100  # the count takes all its parts
        for number in range(12 + lost):
            await offer(number)
        ctx.set(dut.event.payload, {"qp": 3, "reason": 4, "kind": EventKind.QP_ERROR})
        ctx.set(dut.event.valid, 1)
        await ctx.tick()
        ctx.set(dut.event.valid, 0)
        taken = await events()
        assert [event["place"] for event in taken[:12]] == list(range(12))
        assert all((e["qp"], e["reason"], e["state"]) == (5, 1, 2) for e in taken[:12])
        assert [event["kind"] for event in taken[12:]] == [EventKind.QP_ERROR]
        # One of a QP goes first when both come in the same cycle.
        ctx.set(dut.event.valid, 1)
        ctx.set(dut.ev_event.valid, 1)
        await ctx.tick()
        ctx.set(dut.event.valid, 0)
        await offer(9)
        first, count, second = await events()
        assert (first["kind"], count["kind"], second["kind"]) == (
            EventKind.QP_ERROR, EventKind.EV_DROPPED, EventKind.EV_STATE
        )  # fmt: skip
        assert count["reason"] + (count["place"] << 4) + (count["state"] << 9) + (count["qp"] << 11) == lost
        assert second["place"] == 9
        assert await master.get("event_dropped") == 0

    assert layout.size == SMALL.qp_bits + 15
    simulate(dut, bench)


def test_events():
    dut = CsrBlock(SMALL)

    async def bench(ctx, master):
        assert await master.get("event") == 0
        for burst in (5, EVENT_QUEUE_DEPTH + 7):
            for number in range(burst):
                ctx.set(
                    dut.event.payload, {"qp": number % 8, "reason": number % 16, "kind": EventKind.QP_ERROR}
                )
                ctx.set(dut.event.valid, 1)
                _, _, ready = await ctx.tick().sample(dut.event.ready)
                assert ready
            ctx.set(dut.event.valid, 0)
            await ctx.tick()
            assert ctx.get(dut.event_waiting)
            kept = min(burst, EVENT_QUEUE_DEPTH)
            for number in range(kept):
                fields = MAP["event"].unpack(await master.get("event"))
                assert fields == {
                    "valid": 1, "qp": number % 8, "reason": number % 16, "kind": 0, "place": 0, "state": 0
                }  # fmt: skip
            assert await master.get("event") == 0
            assert not ctx.get(dut.event_waiting)
        assert await master.get("event_dropped") == 7
        counted = 0
        ctx.set(dut.counter.ready, 1)
        for _ in range(12):
            _, _, valid, index = await ctx.tick().sample(dut.counter.valid, dut.counter.payload.index)
            counted += valid
            assert not valid or index == 2 * 32 + 13
        assert counted == 7
        assert ctx.get(dut.idle)

    simulate(dut, bench)
