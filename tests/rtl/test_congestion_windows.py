"""Congestion windows in gateware against the fixed-point model, event by event.

Sweep: 64 and 128 bit (8 and 16 QPs); parameters from 0.8 to 800 Gb/s, MTUs of 256 to 4096, extremes.
Stimulus: random and adversarial sequences of sent packets, SACKs, NACKs, losses and idle times of several
QPs, interleaved; packets given out ahead; events in a row without a pause.
Checks: every word of state after every event, in the program's Python model and in gateware; packets that may
be given out; wake-ups; that QPs without a window are not held up; cycles of an event, of a sent packet.
Timing: at most 400 cycles for a SACK and 16 for a sent packet, asserted and printed.
"""

import random
from dataclasses import replace

import pytest
from amaranth.sim import Simulator

from congestion_machine import Machine
from mrc_host.model.nscc import NsccParameters
from mrc_host.model.nscc_fixed import FixedNscc, fixed_parameters
from mrc_rtl.config import NicConfig
from mrc_rtl.congestion.assembler import Condition, Op, Program, ProgramError
from mrc_rtl.congestion.rows import ROWS, Row, fixed_rows, state_of
from mrc_rtl.congestion.windows import CongestionWindows
from mrc_rtl.records import CongestionKind

HEADERS = 88
CONFIGS = {64: NicConfig.small(), 128: NicConfig.default()}
LONGEST_SACK = 400
FAST_SENT = 16


def random_parameters(draw):
    """Parameters of a plausible network, some of them at their limits."""
    p = NsccParameters.derive(
        bytes_per_ns=draw.choice((0.1, 0.5, 1.0, 12.5, 50.0, 100.0)),
        base_rtt_ns=draw.choice((600, 2000, 9350, 50_000)),
        mtu=draw.choice((256, 512, 1024, 4096)),
        trimming=draw.random() < 0.5,
    )
    changes = {}
    if draw.random() < 0.2:
        changes["disable_qa"] = True
    if draw.random() < 0.3:
        changes |= {"gamma": draw.choice((0.0, 0.3, 1.0)), "max_md_jump": draw.choice((0.0, 0.3, 1.0))}
    if draw.random() < 0.3:
        changes["qa_gate"] = draw.randrange(31)
    if draw.random() < 0.2:
        changes["base_rtt_min"] = p.base_rtt * draw.random()
    if draw.random() < 0.2:
        changes |= {"alpha": 64.0, "fi": float(1 << 24), "eta": float(1 << 24), "fi_scale": 255.0}
    return replace(p, **changes)


class Flow:
    """One QP: the model, and what happens to it."""

    def __init__(self, draw, now):
        self.draw = draw
        self.parameters = random_parameters(draw)
        self.model = FixedNscc(self.parameters, now)
        self.rows = fixed_rows(fixed_parameters(self.parameters), self.parameters.mtu + HEADERS)
        self.first_rtt = self.model.base_rtt
        self.units = 0
        self.wild = draw.random() < 0.2

    @property
    def full(self):
        return self.parameters.mtu + HEADERS

    def pause(self):
        return self.draw.choice((0, 1, 3, 20, 100, 1000 if self.wild else 30, 40_000 if self.wild else 10))

    def step(self, now):
        """Draw an event, apply it to the model, and return (kind, fields)."""
        draw, model = self.draw, self.model
        kind = draw.random()
        if kind < 0.35:
            size = draw.randrange(HEADERS, self.full + 5)
            model.on_send(size)
            return "sent", (size,)
        if kind < 0.85:
            backwards = -5 if draw.random() < 0.2 else 8
            self.units += draw.choice((0, 1, 4, 16, 16, 16, 100, 70_000 if self.wild else 20, backwards))
            base, target = self.first_rtt, model.target
            rtt = draw.choice(
                (-1, base, base + 3, base + 9, base + target - 1, base + target, base + target + 1,
                 base + 2 * target, base - draw.randrange(4), draw.randrange(1 << 15) if self.wild else 99)
            )  # fmt: skip
            rtt = -1 if rtt < 0 else min(max(rtt, 1), 0x7FFF)
            penalty = draw.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, 64, 127))
            fields = (self.units & 0xFF_FFFF, draw.random() < 0.3, rtt, penalty, draw.random() < 0.05)
            model.on_sack(now, *fields)
            return "sack", fields
        if kind < 0.92:
            trimmed = draw.random() < 0.6
            model.on_nack(now, self.full, trimmed)
            return "nack", (self.full, trimmed)
        if kind < 0.98:
            model.on_loss(now, self.full)
            return "loss", (self.full,)
        model.on_idle()
        return "idle", ()

    def expected(self):
        """State by name, and how many packets may be given out beyond those handed over."""
        room = self.model.window - self.model.in_flight
        return (
            {name: int(getattr(self.model, name)) for name in state_of(self.rows)},
            0 if room <= 0 else min(7, -(-room // self.full)),
        )


@pytest.mark.parametrize("seed", range(20))
def test_the_program_does_what_the_model_does(seed):
    draw = random.Random(seed)
    now = draw.randrange(1 << 16)
    flow = Flow(draw, now)
    machine = Machine(flow.rows)
    machine.start(now)
    for _ in range(300):
        now += flow.pause()
        kind, fields = flow.step(now)
        getattr(machine, kind)(*(fields if kind in ("sent", "idle") else (now, *fields)))
        state, more = flow.expected()
        assert state_of(machine.rows) == state, (kind, fields)
        assert machine.more == more
        assert machine.cycles <= LONGEST_SACK


def test_programs_that_break_the_pipeline_are_refused():
    p = Program()
    p.store(Row.CWND)
    p.add(Row.CWND)
    with pytest.raises(ProgramError, match="CWND must not be read at once"):
        p.finish()
    p = Program()
    p.label("here")
    p.add(Row.CWND)
    p.jump("here", Condition.NEGATIVE)
    with pytest.raises(ProgramError, match="must not follow the sum"):
        p.finish()
    p = Program()
    p.do(Op.LDV, Row.CWND)
    p.do(Op.MUL, Row.CWND)
    with pytest.raises(ProgramError, match="V must not be used at once"):
        p.finish()


class Bench:
    """Drives the block from a testbench."""

    def __init__(self, config):
        self.config = config
        self.dut = CongestionWindows(config)
        self.woken = []

    def run(self, testbench):
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(testbench)
        simulator.add_testbench(self._listen, background=True)
        simulator.run()

    async def _listen(self, ctx):
        ctx.set(self.dut.wake.ready, 1)
        while True:
            _, _, valid, qp = await ctx.tick().sample(self.dut.wake.valid, self.dut.wake.payload.qp)
            if valid:
                self.woken.append(qp)

    async def command(self, ctx, qp, row, value=None):
        """Write a row, or read it."""
        table = self.dut.table
        ctx.set(table.valid, 1)
        ctx.set(table.write, value is not None)
        ctx.set(table.index, qp * (ROWS // 16) + row // 16)
        ctx.set(table.word, row % 16)
        ctx.set(table.last, 1)
        ctx.set(table.write_data, value or 0)
        await self.until(ctx, table.ready)
        await ctx.tick()
        ctx.set(table.valid, 0)
        await self.until(ctx, table.done)
        result = ctx.get(table.read_data)
        await ctx.tick()
        return result

    async def until(self, ctx, signal, limit=2000):
        for cycle in range(limit):
            if ctx.get(signal):
                return cycle
            await ctx.tick()
        raise AssertionError(f"{signal} must come within {limit} cycles")

    async def arm(self, ctx, qp, rows, now):
        ctx.set(self.dut.now, now & 0xFFFF)
        for row, value in enumerate(rows):
            await self.command(ctx, qp, row, value)
        await self.until(ctx, self.dut.idle)

    async def state(self, ctx, qp):
        needed = [0] * ROWS
        for row in Row:
            if Row.CWND <= row <= Row.QUARTER_RTT:
                needed[row] = await self.command(ctx, qp, row)
        return state_of(needed)

    async def happen(self, ctx, qp, kind, fields):
        """Hand over an event; returns without waiting for its end."""
        dut = self.dut
        if kind == "sent":
            ctx.set(dut.sent.payload.qp, qp)
            ctx.set(dut.sent.payload.size, fields[0])
            port = dut.sent
        else:
            port, event = dut.event, dut.event.payload
            values = dict.fromkeys(("size", "units", "marked", "rtt", "sampled", "penalty", "restore"), 0)
            if kind == "sack":
                units, marked, rtt, penalty, restore = fields
                values |= {
                    "units": units, "marked": marked, "rtt": max(rtt, 0), "sampled": rtt >= 0,
                    "penalty": penalty, "restore": restore,
                }  # fmt: skip
            elif kind == "nack":
                values |= {"size": fields[0], "marked": fields[1]}
            elif kind == "loss":
                values |= {"size": fields[0]}
            for name, value in values.items():
                ctx.set(event[name], int(value))
            ctx.set(event.qp, qp)
            ctx.set(event.kind, CongestionKind[kind.upper()])
        ctx.set(port.valid, 1)
        await self.until(ctx, port.ready)
        await ctx.tick()
        ctx.set(port.valid, 0)

    async def may_give(self, ctx, qp, most=8):
        """Give packets of a QP out until it may not."""
        dut = self.dut
        ctx.set(dut.look_qp, qp)
        await ctx.tick()
        for given in range(most + 1):
            if not ctx.get(dut.may_send) or given == most:
                return given
            ctx.set(dut.give, 1)
            await ctx.tick()
            ctx.set(dut.give, 0)
        return most


@pytest.mark.parametrize("width", CONFIGS)
def test_gateware_follows_the_model_for_several_queue_pairs(width):
    bench = Bench(CONFIGS[width])
    draw = random.Random(width)
    worst = {}

    async def testbench(ctx):
        now = draw.randrange(1 << 16)
        qps = draw.sample(range(bench.config.qps), 3)
        flows = {}
        for qp in qps:
            flows[qp] = Flow(draw, now)
            await bench.arm(ctx, qp, flows[qp].rows, now)
        for number in range(100):
            qp = draw.choice(qps)
            flow = flows[qp]
            now += flow.pause()
            ctx.set(bench.dut.now, now & 0xFFFF)
            kind, fields = flow.step(now)
            await bench.happen(ctx, qp, kind, fields)
            cycles = await bench.until(ctx, bench.dut.idle)
            worst[kind] = max(worst.get(kind, 0), cycles)
            state, _ = flow.expected()
            assert await bench.state(ctx, qp) == state, (number, kind, fields)

    bench.run(testbench)
    print(f"{width} bit, cycles: {worst}")
    assert worst["sack"] <= LONGEST_SACK
    # Waking takes a few cycles more, beside the next event.
    assert worst["sent"] <= FAST_SENT + 4


def plain(mtu=1024, packets=8):
    """A flow whose window takes so many packets."""
    p = NsccParameters.derive(bytes_per_ns=0.5, base_rtt_ns=10_000, mtu=mtu, trimming=True)
    p = replace(p, max_cwnd=packets * (mtu + HEADERS))
    rows = fixed_rows(fixed_parameters(p), mtu + HEADERS)
    rows[Row.CWND] = rows[Row.MAX_WINDOW] = packets * (mtu + HEADERS) << 8
    return rows


def test_packets_given_out_count_at_once_and_a_stopped_queue_pair_is_woken():
    bench = Bench(CONFIGS[64])
    full = 1024 + HEADERS

    async def testbench(ctx):
        await bench.arm(ctx, 2, plain(packets=3), 0)
        assert await bench.may_give(ctx, 5) == 8  # without a window
        assert await bench.may_give(ctx, 2) == 3
        for _ in range(3):
            await bench.happen(ctx, 2, "sent", (full,))
        await bench.until(ctx, bench.dut.idle)
        assert await bench.may_give(ctx, 2) == 0
        ctx.set(bench.dut.stop, 1)
        await ctx.tick()
        ctx.set(bench.dut.stop, 0)
        await bench.happen(ctx, 2, "sack", (0, False, -1, 0, False))  # opens nothing
        await bench.until(ctx, bench.dut.idle)
        assert not bench.woken
        await bench.happen(ctx, 2, "sack", (4, False, -1, 0, False))  # 1024 bytes arrived
        await bench.until(ctx, bench.dut.idle)
        await ctx.tick()
        assert bench.woken == [2]
        assert await bench.may_give(ctx, 2) == 1
        await bench.happen(ctx, 2, "sent", (100,))  # a short one
        await bench.until(ctx, bench.dut.idle)
        assert await bench.may_give(ctx, 2) == 1
        await bench.happen(ctx, 2, "idle", ())
        await bench.until(ctx, bench.dut.idle)
        # One is given out and not handed over: it counts as a full one.
        assert await bench.may_give(ctx, 2) == 2
        # The end of the window.
        await bench.command(ctx, 2, Row.ENABLED, 0)
        assert await bench.may_give(ctx, 2) == 8

    bench.run(testbench)


def test_a_window_begins_anew():
    bench = Bench(CONFIGS[64])

    async def testbench(ctx):
        for now in (7, 60_000):
            await bench.arm(ctx, 1, plain(), now)
            assert await bench.may_give(ctx, 1) == 7
            state = await bench.state(ctx, 1)
            base = plain()[Row.BASE_RTT] >> 20
            assert state["last_adjust"] == state["epoch_end"] == now
            assert state["last_decrease"] == now - base & 0xFFFF
            assert state["in_flight"] == 0
            await bench.happen(ctx, 1, "sent", (1000,))
            await bench.until(ctx, bench.dut.idle)
            assert (await bench.state(ctx, 1))["in_flight"] == 1000
            await bench.command(ctx, 1, Row.ENABLED, 0)

    bench.run(testbench)


@pytest.mark.parametrize("width", CONFIGS)
def test_nobody_without_a_window_waits_and_no_event_is_lost(width):
    bench = Bench(CONFIGS[width])
    dut = bench.dut

    async def testbench(ctx):
        await bench.arm(ctx, 3, plain(packets=1000), 0)
        # One sent packet in every interval is taken at once, even behind a SACK.
        for number in range(8):
            if number == 4:
                await bench.happen(ctx, 3, "sack", (4, False, 90, 0, False))
            assert ctx.get(dut.sent.ready)
            await bench.happen(ctx, 3, "sent", (500,))
            await ctx.tick().repeat(15)
        # Back to back: they wait, and all are counted.
        for _ in range(40):
            await bench.happen(ctx, 3, "sent", (500,))
        await bench.until(ctx, dut.idle, 5000)
        assert (await bench.state(ctx, 3))["in_flight"] == 48 * 500 - 1024
        # Without a window: one in every cycle.
        ctx.set(dut.sent.payload.qp, 4)
        ctx.set(dut.sent.valid, 1)
        ctx.set(dut.event.payload.qp, 4)
        ctx.set(dut.event.valid, 1)
        for _ in range(50):
            assert ctx.get(dut.sent.ready) and ctx.get(dut.event.ready)
            await ctx.tick()

    bench.run(testbench)
