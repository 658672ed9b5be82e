"""Payload from packet buffers to host memory.

Sweep: data widths 64, 128 and 512 bits; every lane of the destination against lengths around every multiple
of the width; packets that touch block and 4 KiB boundaries; lengths 0 and MTU; drops in between.
Stimulus: buffers of all planes that give each beat once; a memory with random acceptance and latency that
answers in any order, with and without errors.
Checks: every burst is aligned, full width, at most 256 beats and inside its 4 KiB; each strobed byte
belongs to the packet that its identifier stands for and is written once; a packet is placed after its last
answer, in the order of the commands, with its fields and its error; every beat is taken from its buffer;
several packets are outstanding. Timing: back to back at most one cycle more than its beats per packet; every
wait is bounded.
"""

import random
from collections import deque

import pytest
from amaranth.sim import Simulator

from mrc_rtl import records
from mrc_rtl.config import NicConfig
from mrc_rtl.responder.placement import COMMAND_QUEUE_DEPTH, Placement

PLANES = 2


def config_of(width, mtu=1024):
    return NicConfig(planes=PLANES, data_width=width, mtu=mtu, receive_buffer_bytes=4 * mtu)


class Bench:
    """Buffers, memory and scoreboard around one Placement."""

    def __init__(self, config, packets, *, seed=1, stall=0.3, latency=(1, 40), errors=0.0, taker=0.8):
        self.config, self.dut = config, Placement(config)
        self.random = random.Random(seed)
        self.packets, self.stall, self.latency, self.error_rate, self.taker = (
            packets,
            stall,
            latency,
            errors,
            taker,
        )
        self.width = config.data_bytes
        self.rows = config.receive_buffer_bytes // self.width
        self.buffer = [deque() for _ in range(PLANES)]
        self.placed, self.counted = [], 0
        self.most_outstanding, self.data_cycles = 0, []

    def admit(self, packet):
        """Put a packet into its plane's buffer; False when there is no room."""
        plane, beats = packet["plane"], -(-packet["length"] // self.width)
        if len(self.buffer[plane]) + beats > self.rows:
            return False
        for beat in range(beats):
            part = packet["payload"][beat * self.width : (beat + 1) * self.width]
            garbage = self.random.randbytes(self.width - len(part))
            self.buffer[plane].append(int.from_bytes(part + garbage, "little"))
        return True

    def run(self, limit):
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)

        async def main(ctx):
            await self.main(ctx, limit)

        simulator.add_testbench(main)
        simulator.run()
        return self

    async def main(self, ctx, limit):
        dut, rnd, write = self.dut, self.random, self.dut.write
        waiting, offered = deque(self.packets), None
        placed_names = [name for name, _ in records.placed_record(self.config)]
        watched = {
            "taken": dut.place.valid & dut.place.ready,
            "aw": write.awvalid & write.awready,
            "awid": write.awid, "awaddr": write.awaddr, "awlen": write.awlen,
            "awsize": write.awsize, "awburst": write.awburst,
            "w": write.wvalid & write.wready,
            "wdata": write.wdata, "wstrb": write.wstrb, "wlast": write.wlast,
            "bready": write.bready,
            "placed": dut.placed.valid & dut.placed.ready,
            "counter": dut.counter.valid & dut.counter.ready,
            **{f"placed_{name}": dut.placed.payload[name] for name in placed_names},
            **{f"take{p}": dut.take[p] for p in range(PLANES)},
            "idle": dut.idle,
        }  # fmt: skip
        expected = sum(not packet["drop"] for packet in self.packets)
        self.pending = []  # packets handed over and not placed
        self.addresses, self.answers = deque(), []
        quiet = answer_waits = 0
        answer = None
        for cycle in range(limit):
            if offered is None and waiting and self.admit(waiting[0]):
                offered = waiting.popleft()
                fields = {name: value for name, value in offered.items() if name != "payload"}
                ctx.set(dut.place.payload, fields)
            ctx.set(dut.place.valid, offered is not None)
            ctx.set(write.awready, rnd.random() >= self.stall)
            # Data of a burst whose address was not taken yet wait, as behind an arbiter.
            ctx.set(write.wready, bool(self.addresses) and rnd.random() >= self.stall)
            ctx.set(dut.placed.ready, rnd.random() < self.taker)
            ctx.set(dut.counter.ready, rnd.random() < 0.5)
            due = [answer for answer in self.answers if answer["time"] <= cycle]
            if not answer_waits:
                answer = rnd.choice(due) if due else None
            ctx.set(write.bvalid, answer is not None)
            if answer:
                ctx.set(write.bid, answer["id"])
                ctx.set(write.bresp, answer["response"])
            _, _, *values = await ctx.tick().sample(*watched.values())
            now = dict(zip(watched, values, strict=True))
            for plane in range(PLANES):
                if now[f"take{plane}"]:
                    ctx.set(dut.read_data[plane], self.buffer[plane].popleft())
            # Answers wait for commands that begin: one cycle, unless several have no bytes.
            answer_waits = answer_waits + 1 if answer and not now["bready"] else 0
            assert answer_waits <= config_of(64).placements
            if now["taken"]:
                if not offered["drop"]:
                    self.pending.append({**offered, "written": set(), "bursts": 0, "answered": 0, "bad": 0})
                offered = None
            if now["aw"]:
                self.take_address(now)
            if now["w"]:
                self.take_beat(now, cycle)
            if answer and now["bready"]:
                self.answers.remove(answer)
                answer["packet"]["answered"] += 1
                answer["packet"]["bad"] |= answer["response"] >> 1
            if now["placed"]:
                self.take_placed({name: now[f"placed_{name}"] for name in placed_names})
            self.counted += now["counter"]
            self.most_outstanding = max(self.most_outstanding, len({a["id"] for a in self.answers}))
            quiet = quiet + 1 if len(self.placed) == expected and not waiting and now["idle"] else 0
            if quiet == 3:
                break
        else:
            raise AssertionError(f"{len(self.placed)} of {expected} packets placed in {limit} cycles")
        assert not any(self.buffer)
        assert not self.answers and not self.addresses
        assert self.counted == sum(fields["error"] for fields in self.placed)

    def take_address(self, now):
        address, beats = now["awaddr"], now["awlen"] + 1
        assert address % self.width == 0
        assert address // 4096 == (address + beats * self.width - 1) // 4096
        assert now["awburst"] == 1 and 1 << now["awsize"] == self.width
        # Packets start in the order of their commands: the next bytes to write belong to the first one
        # whose range is not covered by bursts yet.
        packet = next(
            p for p in self.pending if p.get("covered", p["bus_address"]) < p["bus_address"] + p["length"]
        )
        covered = packet.get("covered", packet["bus_address"])
        assert address == covered // self.width * self.width
        packet["covered"] = min(address + beats * self.width, packet["bus_address"] + packet["length"])
        assert packet["covered"] > address + (beats - 1) * self.width, "a beat without bytes"
        assert packet.setdefault("id", now["awid"]) == now["awid"]
        for other in self.pending:
            if other is not packet and other.get("id") == now["awid"]:
                assert other["answered"] == other["bursts"], "an identifier in use"
        packet["bursts"] += 1
        self.addresses.append({"packet": packet, "address": address, "left": beats, "id": now["awid"]})

    def take_beat(self, now, cycle):
        self.data_cycles.append(cycle)
        burst = self.addresses[0]
        packet = burst["packet"]
        for lane in range(self.width):
            if now["wstrb"] >> lane & 1:
                offset = burst["address"] + lane - packet["bus_address"]
                assert 0 <= offset < packet["length"]
                assert offset not in packet["written"]
                packet["written"].add(offset)
                assert now["wdata"] >> 8 * lane & 0xFF == packet["payload"][offset]
        burst["address"] += self.width
        burst["left"] -= 1
        assert now["wlast"] == (burst["left"] == 0)
        if burst["left"] == 0:
            self.addresses.popleft()
            self.answers.append(
                {
                    "packet": packet,
                    "id": burst["id"],
                    "time": cycle + self.random.randint(*self.latency),
                    "response": 2 if self.random.random() < self.error_rate else 0,
                }
            )

    def take_placed(self, fields):
        packet = self.pending.pop(0)
        for name, value in fields.items():
            if name != "error":
                assert packet[name] == value, name
        assert packet["written"] == set(range(packet["length"]))
        assert packet["answered"] == packet["bursts"]
        assert fields["error"] == packet["bad"]
        self.placed.append(fields)


def make_packet(rnd, config, psn, *, length, address, drop=0, plane=None):
    """A command with random trigger fields; the PSN names it."""
    fields = {name: rnd.getrandbits(field.width) for name, field in records.place_command(config)}
    fields |= {
        "psn": psn,
        "plane": rnd.randrange(PLANES) if plane is None else plane,
        "length": length,
        "drop": drop,
        "bus_address": address,
    }
    return {**fields, "payload": rnd.randbytes(length)}


WIDTHS = pytest.mark.parametrize("width", [64, 128, 512])


@WIDTHS
def test_alignments_and_lengths(width):
    config, rnd = config_of(width), random.Random(width)
    lanes = width // 8
    lengths = [*range(1, lanes + 2), 2 * lanes - 1, 2 * lanes, 2 * lanes + 1, 3 * lanes + 1]
    offsets = range(lanes)
    if width > 64:
        lengths = rnd.sample(lengths, 8)
    if width > 128:
        offsets = rnd.sample(offsets, 20)
    cases = [(offset, length) for offset in offsets for length in lengths]
    packets = [
        make_packet(rnd, config, psn, length=length, address=0x10000 + 4096 * rnd.randrange(16) + offset)
        for psn, (offset, length) in enumerate(cases)
    ]
    bench = Bench(config, packets).run(40_000)
    assert bench.most_outstanding > 1


@WIDTHS
def test_boundaries_drops_and_errors(width):
    config, rnd = config_of(width, mtu=4096), random.Random(width)
    packets = []
    for psn in range(60):
        length = rnd.choice(
            [0, 1, rnd.randrange(1, 200), rnd.randrange(1, 200), rnd.randrange(1, 4097), 4096]
        )
        if psn > 12:
            length = min(length, 300)
        near = rnd.choice([2048, 4096]) - rnd.randrange(0, 2 * length + 2)
        packets.append(
            make_packet(
                rnd, config, psn, length=length, address=0x7FFF_0000 + near, drop=int(rnd.random() < 0.2)
            )
        )  # fmt: skip
    bench = Bench(config, packets, errors=0.3, latency=(1, 120)).run(40_000)
    assert 0 < bench.counted < len(bench.placed)


@WIDTHS
@pytest.mark.parametrize("beats", [1, 2, 16])
def test_rate(width, beats):
    config, rnd = config_of(width), random.Random(1)
    count = 40
    length = min(config.mtu, beats * width // 8)
    packets = [
        make_packet(rnd, config, psn, length=length, address=0x4000 + psn * config.mtu)
        for psn in range(count)
    ]
    bench = Bench(config, packets, stall=0, latency=(3, 3), taker=1.0).run(5_000)
    data_beats = length * 8 // width
    assert len(bench.data_cycles) == count * data_beats
    assert bench.data_cycles[-1] - bench.data_cycles[0] <= count * (data_beats + 1)


def test_a_full_queue_refuses_and_a_silent_memory_holds_everything():
    config = config_of(64)
    dut = Placement(config)
    rnd = random.Random(3)
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)

    async def bench(ctx):
        assert ctx.get(dut.idle)
        taken = 0
        for psn in range(60):
            packet = make_packet(rnd, config, psn, length=8, address=0x1000)
            fields = {name: value for name, value in packet.items() if name != "payload"}
            ctx.set(dut.place.payload, fields)
            ctx.set(dut.place.valid, 1)
            _, _, ready = await ctx.tick().sample(dut.place.ready)
            taken += ready
        assert not ready
        assert taken == COMMAND_QUEUE_DEPTH
        assert not ctx.get(dut.idle)

    simulator.add_testbench(bench)
    simulator.run()
