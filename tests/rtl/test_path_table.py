"""Path table against the golden model's EV sets.

Sweep: 2 and 3 planes, profiles with and without floor, events and policy, EV sets with and without backups.
Stimulus: random operations of feedback, probes and the host, picks between them, pauses of the picks.
Checks: after each operation the words of every plane, the usable planes, every change with its cause, every
event by the mask, the bad words; the rotations of picks; commands that are refused.
Timing: an operation that only changes its EV holds picks for at most 8 cycles, any other for 32 a plane and
20 more.
"""

import random

import pytest
from amaranth.sim import Simulator

from mrc_host.model.ev_set import EvSet, PathState
from mrc_rtl.config import NicConfig
from mrc_rtl.paths.ev_state import EvCode, change_detail
from mrc_rtl.paths.path_table import PathTable
from mrc_rtl.records import PathOperation, TraceKind
from mrc_rtl.tables import (
    EV_ORDER,
    EV_ORDER_INDEX,
    EV_POLICY,
    EV_POLICY_INDEX,
    EV_SET,
    EventKind,
    EvState,
)

SEED = 0x155
POLICIES = (
    {"min_active": 0, "events": 3, "oblivious": 0, "floor_mask": 0},
    {"min_active": 9, "events": 2, "oblivious": 0, "floor_mask": 3},
    {"min_active": 4, "events": 1, "oblivious": 0, "floor_mask": 7},
    {"min_active": 5, "events": 3, "oblivious": 1, "floor_mask": 3},
)
FEEDBACK = {
    PathOperation.SKIP: lambda evs, index: evs.mark_skip(index, 1),
    PathOperation.LOST: EvSet.lost,
    PathOperation.CONDEMN: EvSet.condemn,
    PathOperation.UNDO: EvSet.undo,
    PathOperation.RECOVER: EvSet.recover,
}
SHOWN = {PathState.ASSUMED_BAD: EvState.ASSUMED_BAD, PathState.DENIED: None, PathState.ABSENT: None}


class Bench:
    """The table, the model's sets beside it, and what the table told.

    QP q uses profile q of :data:`POLICIES`.
    """

    def __init__(self, ctx, dut, seed):
        self.ctx, self.dut, self.config = ctx, dut, dut.config
        self.random = random.Random(seed)
        self.sets = []
        for policy in POLICIES:
            evs = EvSet(self.config.planes, 32)
            evs.floor_draws = evs.counts_two = True
            evs.floor_turns = policy["floor_mask"] + 1
            evs.minimum_active = policy["min_active"]
            evs.oblivious = policy["oblivious"] == 1
            self.sets.append(evs)
        self.told, self.events, self.scans, self.went_bad = [], [], [], []
        self.held = 0

    async def tick(self):
        dut = self.dut
        sampled = await self.ctx.tick().sample(
            dut.hold, dut.state_qp, dut.trace.valid, dut.trace.payload, dut.event.valid, dut.event.ready,
            dut.event.payload, dut.scanned, dut.bad, dut.went_bad, dut.changed_qp, dut.changed_plane,
            dut.changed_index,
        )  # fmt: skip
        _, _, hold, qp, traced, trace, told, ready, event, scanned, bad, went_bad, *changed = sampled
        self.held += hold
        self.ctx.set(dut.profile, qp)
        if traced:
            assert trace.kind == TraceKind.EV_CHANGE
            self.told.append((trace.qp, trace.plane, trace.psn, change_detail().from_bits(trace.detail)))
        if told and ready:
            assert event.kind == EventKind.EV_STATE
            self.events.append((event.qp, event.reason, event.place, event.state))
        if scanned:
            self.scans.append(bad)
        if went_bad:
            self.went_bad.append(tuple(changed))
        self.ctx.set(dut.event.ready, self.random.random() < 0.6)

    async def until(self, condition, limit):
        for _ in range(limit):
            if condition():
                return
            await self.tick()
        raise AssertionError(f"nothing happened within {limit} cycles")

    async def command(self, index, words, count=0):
        """Write words, or read so many; None when refused."""
        ctx, table = self.ctx, self.dut.table
        total = len(words) if words else count
        answers, error = [], False
        for number in range(total):
            ctx.set(table.valid, 1)
            ctx.set(table.write, words is not None)
            ctx.set(table.index, index)
            ctx.set(table.word, number)
            ctx.set(table.last, number == total - 1)
            ctx.set(table.write_data, words[number] if words else 0)
            await self.until(lambda: ctx.get(table.ready), 400)
            await self.tick()
            ctx.set(table.valid, 0)
            await self.until(lambda: ctx.get(table.done), 400)
            error = error or ctx.get(table.error)
            answers.append(ctx.get(table.read_data))
            await self.tick()
        return None if error else answers

    async def operate(self, qp, plane, place, operation):
        ctx, stream = self.ctx, self.dut.operation
        ctx.set(stream.payload, {"qp": qp, "plane": plane, "ev_index": place, "operation": operation})
        ctx.set(stream.valid, 1)
        await self.until(lambda: ctx.get(stream.ready), 400)
        await self.tick()
        ctx.set(stream.valid, 0)

    async def settle(self):
        await self.until(lambda: self.ctx.get(self.dut.idle), 400)

    def row(self, qp, plane):
        return qp * self.config.planes + plane

    async def write_set(self, qp, plane, good, skip):
        assert await self.command(self.row(qp, plane), EV_SET.pack(good=good, skip=skip)) is not None
        self.sets[qp].write(plane, good, skip, (self.row(qp, plane) ^ SEED) & 0x3FF)

    def word(self, qp, plane):
        """What the table shows of a plane when it is in the model's state."""
        evs = self.sets[qp]
        words = {"good": 0, "skip": 0, "bad": 0}
        for place in range(32):
            index = plane * evs.stride + place
            state, bit = evs.state(index), 1 << place
            if state in (PathState.GOOD, PathState.SKIP):
                words["good"] |= bit
            if state in (PathState.SKIP, PathState.BACKUP):
                words["skip"] |= bit
            if state is PathState.SKIP and evs.planes[plane].turns[place] > 1:
                words["bad"] |= bit
            if state is PathState.ASSUMED_BAD:
                words["bad"] |= bit
                words["skip"] |= bit if evs._blames[index] > 1 else 0
        return words

    async def check_sets(self, only=None):
        for qp, evs in enumerate(self.sets):
            if only not in (None, qp):
                continue
            for plane in range(self.config.planes):
                found = EV_SET.unpack(await self.command(self.row(qp, plane), None, 4))
                assert found == self.word(qp, plane), (qp, plane)
            self.ctx.set(self.dut.look_qp, qp)
            await self.tick()
            usable = sum(1 << n for n, plane in enumerate(evs.planes) if plane.good)
            assert self.ctx.get(self.dut.usable) == usable

    def check_told(self, qp, cause, hosted):
        """Every change and event since the last call, as the model has them."""
        evs, masks = self.sets[qp], POLICIES[qp]["events"]
        changes = [(c >> 8, PathState(c >> 4 & 15), PathState(c & 15)) for c in evs.changes]
        evs.changes.clear()
        seen = [(at, plane * evs.stride + place) for at, plane, place, _ in self.told]
        # DENIED and absent are one for the table.
        known = [item for item in changes if not {item[1], item[2]} <= {PathState.DENIED, PathState.ABSENT}]
        assert len(seen) >= len(known) and [(qp, index) for index, _, _ in known] == [
            item for item, (_, _, _, detail) in zip(seen, self.told, strict=True)
            if not self._same(detail.old, detail.new)
        ]  # fmt: skip
        for _, _, _, detail in self.told:
            assert detail.cause == cause
        self.told.clear()
        expected = []
        for index, old, new in changes:
            before, after = SHOWN.get(old, EvState.GOOD), SHOWN.get(new, EvState.GOOD)
            if not hosted and after != before and masks & int(after):
                expected.append((qp, *divmod(index, evs.stride), int(after)))
        assert self.events == expected
        self.events.clear()

    @staticmethod
    def _same(old, new):
        """Codes that the model has one state for."""
        bad = {EvCode.BAD.value, EvCode.BAD_TWICE.value}
        good = {EvCode.SKIP.value, EvCode.FLOORED.value}
        return {old, new} <= bad or {old, new} <= good


def run(config, test, seed=1):
    dut = PathTable(config)
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)

    async def main(ctx):
        bench = Bench(ctx, dut, seed)
        ctx.set(dut.seed, SEED)
        ctx.set(dut.trace.ready, 1)
        await bench.settle()
        for profile, policy in enumerate(POLICIES):
            assert await bench.command(EV_POLICY_INDEX + profile, EV_POLICY.pack(**policy)) is not None
        await test(bench)

    simulator.add_testbench(main)
    simulator.run()


CONFIGS = [NicConfig.small().with_(trace=True), NicConfig.small().with_(planes=3, trace=True)]


@pytest.mark.parametrize("config", CONFIGS, ids=["planes2", "planes3"])
@pytest.mark.parametrize("seed", [1, 2])
def test_random_operations_as_the_model(config, seed):
    async def test(bench):
        source, ctx, dut = bench.random, bench.ctx, bench.dut
        for qp in range(len(POLICIES)):
            for plane in range(config.planes):
                active, backups = source.choice(((8, 0), (8, 3), (32, 0), (5, 27), (1, 1), (4, 2)))
                good = (1 << active) - 1
                await bench.write_set(qp, plane, good, (1 << active + backups) - 1 & ~good)
        await bench.check_sets()
        bench.told.clear()
        done = dict.fromkeys((*PathOperation, "met"), 0)
        for _ in range(350):
            qp, plane = source.randrange(len(POLICIES)), source.randrange(config.planes)
            place = source.choice((source.randrange(8), source.randrange(8), source.randrange(32)))
            evs = bench.sets[qp]
            words = evs.planes[plane]
            index = plane * evs.stride + place
            if source.random() < 0.35:
                for _ in range(4):
                    await pick(bench, qp, plane, done)
                continue
            operation = source.choice(
                list(PathOperation) + [PathOperation.LOST, PathOperation.UNDO, PathOperation.SKIP]
            )
            done[operation] += 1
            hosted = operation in (PathOperation.ALLOW, PathOperation.DENY)
            before = words.bad | sum(1 << n for n in range(32) if words.turns[n] > 1)
            bench.held = 0
            # A pick is in progress now and then: the operation waits for its end.
            if source.random() < 0.3:
                ctx.set(dut.busy, 1)
            if hosted:
                order = EV_ORDER.pack(place=place, operation=operation)
                task = bench.command(EV_ORDER_INDEX + bench.row(qp, plane), order)
            else:
                task = bench.operate(qp, plane, place, operation)
            if ctx.get(dut.busy):
                for _ in range(4):
                    await bench.tick()
                ctx.set(dut.busy, 0)
            assert await task is not False
            await bench.settle()
            assert bench.held <= 20 + 32 * config.planes + 64
            if operation is PathOperation.SCAN:
                assert bench.scans.pop() == before
            elif operation is PathOperation.ALLOW:
                evs.allow(index)
            elif operation is PathOperation.DENY:
                evs.deny(index)
            else:
                FEEDBACK[operation](evs, index)
            floored = words.bad | sum(1 << n for n in range(32) if words.turns[n] > 1)
            expected = [(qp, plane, place)] if floored & ~before & 1 << place else []
            assert bench.went_bad == expected
            bench.went_bad.clear()
            bench.check_told(qp, operation, hosted)
            await bench.check_sets(qp)
        assert min(done.values()) > 7, done

        await bench.check_sets()

    run(config, test, seed)


async def pick(bench, qp, plane, done):
    """A data packet's pick, as bind makes it."""
    ctx, dut, evs = bench.ctx, bench.dut, bench.sets[qp]
    words = evs.planes[plane]
    rotation = words.data
    ctx.set(dut.pick_qp, qp)
    ctx.set(dut.pick_plane, plane)
    ctx.set(dut.busy, 1)
    await bench.tick()
    await bench.tick()
    seen = bench.word(qp, plane)
    assert (ctx.get(dut.word.good), ctx.get(dut.word.skip)) == (seen["good"], seen["skip"])
    assert (ctx.get(dut.place.place), ctx.get(dut.place.hash)) == (rotation.place, rotation._hash)
    place = rotation.next(words.good)
    if place >= 0:
        met = bool(words.skip >> place & 1)
        ctx.set(dut.new_place, {"place": rotation.place, "hash": rotation._hash})
        ctx.set(dut.write, 1)
        ctx.set(dut.met, met)
        ctx.set(dut.met_index, place)
        ctx.set(dut.met_draw, rotation.draw)
        await bench.tick()
        ctx.set(dut.write, 0)
        ctx.set(dut.met, 0)
        if met:
            done["met"] += 1
            evs.met_skip(plane * evs.stride + place)
            bench.held = 0
    ctx.set(dut.busy, 0)
    await bench.settle()
    if place >= 0 and met:
        assert 0 < bench.held <= 8
        bench.check_told(qp, 8, False)


def test_commands_out_of_range_are_refused():
    config = CONFIGS[1]

    async def test(bench):
        rows, profiles = config.qps * config.planes, config.ev_profiles
        word = EV_SET.pack(good=1)
        for index, words, count in (
            (rows, word, 0), (rows, None, 4), (0, None, 5), (0, [*word, 0], 0),
            (EV_POLICY_INDEX + profiles, [0], 0), (EV_POLICY_INDEX, None, 2), (EV_ORDER_INDEX, None, 1),
            (EV_ORDER_INDEX + rows, [0], 0), (EV_ORDER_INDEX + EV_POLICY_INDEX, [0], 0),
        ):  # fmt: skip
            assert await bench.command(index, words, count) is None, (index, words, count)
        await bench.settle()
        for profile, policy in enumerate(POLICIES):
            assert EV_POLICY.unpack(await bench.command(EV_POLICY_INDEX + profile, None, 1)) == policy
        assert await bench.command(rows - 1, word) is not None
        assert EV_SET.unpack(await bench.command(rows - 1, None, 4)) == {"good": 1, "skip": 0, "bad": 0}
        bench.sets.clear()

    run(config, test)
