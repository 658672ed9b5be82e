"""Immediates in order, from the stash to the completion.

Sweep: two QPs interleaved; stash before advance and after it; full stash; queue of requests full.
Stimulus: messages whose stash records come in any order inside the stash, advances in steps of random size,
doorbells and table commands in between, a QP started again, hostile RQMSNs.
Checks: each message is delivered exactly once, in order, with its request, length, immediate and MSN, and
never before the cumulative PSN has reached it; refusals give one NAK and one error and nothing more of that
QP. Timing: stash, advance and one delivery take at most 8 cycles together; every wait is bounded.
"""

import random

import pytest

from mrc_rtl.config import NicConfig
from mrc_rtl.records import AnswerKind
from mrc_rtl.responder.immediates import Immediates
from mrc_rtl.tables import QpErrorReason, WorkRequestOpcode
from record_agents import Sink, read_entry, send, simulate, write_entry

CONFIG = NicConfig.small()
DEPTH = CONFIG.receive_queue_depth
MASK = (1 << 24) - 1


class Receiver:
    """Drives one Immediates; keeps what the host knows of a QP."""

    def __init__(self, stall=0.0):
        self.dut = Immediates(CONFIG)
        self.completions = Sink(self.dut.completion, stall)
        self.naks = Sink(self.dut.nak, stall, 2)
        self.errors = Sink(self.dut.error_out, stall, 3)
        self.posted = [0] * CONFIG.qps

    def run(self, bench):
        simulate(self.dut, bench, self.completions.run, self.naks.run, self.errors.run)

    async def post(self, ctx, qp, wr_id):
        slot = self.posted[qp] % DEPTH
        assert await write_entry(ctx, self.dut.table, qp * DEPTH + slot, [wr_id])
        await send(ctx, self.dut.doorbell, qp=qp, count=1)
        self.posted[qp] += 1

    async def init(self, ctx, qp, psn, queue=0, active=1):
        await send(ctx, self.dut.init, qp=qp, active=active, initial_psn=psn, completion_queue=queue)
        if not active:
            self.posted[qp] = 0

    async def settle(self, ctx):
        for _ in range(300):
            await ctx.tick()
            if ctx.get(self.dut.idle):
                await ctx.tick()
                return
        raise AssertionError("still busy after 300 cycles")


@pytest.mark.parametrize("stall", [0.0, 0.6])
def test_messages_of_two_qps(stall):
    receiver = Receiver(stall)
    rnd = random.Random(4)
    first_psn = {1: MASK - 40, 6: 1000}
    messages = 90  # several laps of the stash

    async def bench(ctx):
        plan = {}
        for qp, psn in first_psn.items():
            await receiver.init(ctx, qp, psn, queue=qp % 4)
            plan[qp] = []
            for number in range(messages):
                psn = (psn + rnd.randrange(1, 4)) & MASK
                plan[qp].append(
                    {
                        "qp": qp,
                        "psn": psn,
                        "plane": rnd.randrange(2),
                        "rqmsn": number,
                        "message_number": rnd.getrandbits(16),
                        "immediate": rnd.getrandbits(32),
                        "length": rnd.getrandbits(32),
                    }
                )
        state = {qp: {"delivered": 0, "stashed": set(), "cumulative": -1, "wr": []} for qp in plan}
        while any(s["delivered"] < messages for s in state.values()):
            qp = rnd.choice([q for q, s in state.items() if s["delivered"] < messages])
            mine, s = plan[qp], state[qp]
            used = sum(c["qp"] == qp for c in receiver.completions.records)
            while len(s["wr"]) < messages and len(s["wr"]) - used < DEPTH and rnd.random() < 0.8:
                s["wr"].append(rnd.getrandbits(64))
                await receiver.post(ctx, qp, s["wr"][-1])
            # What may be stashed now: the window of the stash, in any order.
            room = [
                n for n in range(s["delivered"], min(messages, s["delivered"] + 32)) if n not in s["stashed"]
            ]
            for number in rnd.sample(room, min(len(room), rnd.randrange(4))):
                await send(ctx, receiver.dut.stash, **mine[number])
                s["stashed"].add(number)
            # The cumulative PSN moves to a message that has a request; its stash record may come later.
            reach = min(messages, len(s["wr"]), s["delivered"] + 32) - 1
            if reach > s["cumulative"]:
                s["cumulative"] = rnd.randrange(s["cumulative"] + 1, reach + 1)
                await send(ctx, receiver.dut.advance, qp=qp, cumulative_psn=mine[s["cumulative"]]["psn"])
            await receiver.settle(ctx)
            while s["delivered"] <= s["cumulative"] and s["delivered"] in s["stashed"]:
                s["delivered"] += 1
            got = [c for c in receiver.completions.records if c["qp"] == qp]
            assert len(got) == s["delivered"]
        for qp, mine in plan.items():
            got = [c for c in receiver.completions.records if c["qp"] == qp]
            for message, wr_id, completion in zip(mine, state[qp]["wr"], got, strict=True):
                assert completion == {
                    "queue": qp % 4, "qp": qp, "wr_id": wr_id, "opcode": WorkRequestOpcode.RECEIVE_IMM,
                    "status": 0, "byte_length": message["length"], "immediate": message["immediate"],
                    "message_number": message["message_number"],
                }  # fmt: skip
        assert not receiver.naks.records and not receiver.errors.records

    receiver.run(bench)


def refusal(receiver, qp, psn, plane):
    (nak,) = receiver.naks.records
    (error,) = receiver.errors.records
    assert (nak["qp"], nak["psn"], nak["plane"]) == (qp, psn, plane)
    assert nak["kind"] == AnswerKind.NAK_INVALID_REQUEST
    assert error == {"qp": qp, "reason": QpErrorReason.INVALID_REQUEST}


@pytest.mark.parametrize("case", ["no request", "beyond the stash", "before the turn", "twice"])
def test_refusals(case):
    receiver = Receiver(0.4)
    dut = receiver.dut

    async def bench(ctx):
        await receiver.init(ctx, 3, 100)
        await receiver.init(ctx, 4, 100)
        await receiver.post(ctx, 3, 7)
        if case == "no request":
            receiver.posted[3] = 0
            await send(ctx, dut.stash, qp=3, psn=100, rqmsn=0)
            await send(ctx, dut.stash, qp=3, psn=101, rqmsn=1, plane=1)
            await send(ctx, dut.advance, qp=3, cumulative_psn=105)
        elif case == "beyond the stash":
            await send(ctx, dut.stash, qp=3, psn=101, rqmsn=32, plane=1)
        elif case == "before the turn":
            await send(ctx, dut.stash, qp=3, psn=101, rqmsn=0xFFFF, plane=1)
        else:
            await send(ctx, dut.stash, qp=3, psn=100, rqmsn=5)
            await send(ctx, dut.stash, qp=3, psn=101, rqmsn=5, plane=1)
        await receiver.settle(ctx)
        refusal(receiver, 3, 101, 1)
        delivered = len(receiver.completions.records)
        assert delivered == (case == "no request")
        # Nothing more of this QP, all of the other.
        await receiver.post(ctx, 3, 8)
        await receiver.post(ctx, 4, 9)
        for qp in (3, 4):
            await send(ctx, dut.stash, qp=qp, psn=100, rqmsn=0)
            await send(ctx, dut.advance, qp=qp, cumulative_psn=120)
        await receiver.settle(ctx)
        assert [c["wr_id"] for c in receiver.completions.records[delivered:]] == [9]
        # Started again it works from the beginning; the reset took its requests.
        await receiver.init(ctx, 3, 0, active=0)
        await receiver.post(ctx, 3, 50)
        await receiver.init(ctx, 3, 500)
        await send(ctx, dut.stash, qp=3, psn=500, rqmsn=0)
        await send(ctx, dut.advance, qp=3, cumulative_psn=499)
        await receiver.settle(ctx)
        assert len(receiver.completions.records) == delivered + 1
        await send(ctx, dut.advance, qp=3, cumulative_psn=500)
        await receiver.settle(ctx)
        assert receiver.completions.records[-1]["wr_id"] == 50
        assert len(receiver.naks.records) == 1

    receiver.run(bench)


def test_rows_of_an_earlier_life_are_not_delivered():
    receiver = Receiver()

    async def bench(ctx):
        await receiver.init(ctx, 0, 10)
        for number in range(4):
            await send(ctx, receiver.dut.stash, qp=0, psn=10 + number, rqmsn=number)
        await receiver.init(ctx, 0, 0, active=0)
        await receiver.post(ctx, 0, 1)
        await receiver.init(ctx, 0, 10)
        await send(ctx, receiver.dut.advance, qp=0, cumulative_psn=50)
        await receiver.settle(ctx)
        assert not receiver.completions.records and not receiver.naks.records

    receiver.run(bench)


def test_doorbells_and_table():
    receiver = Receiver()
    table = receiver.dut.table

    async def bench(ctx):
        await receiver.init(ctx, 2, 0)
        words = [random.Random(1).getrandbits(64) for _ in range(DEPTH)]
        for slot, word in enumerate(words):
            assert await write_entry(ctx, table, 2 * DEPTH + slot, [word])
        for slot, word in enumerate(words):
            assert await read_entry(ctx, table, 2 * DEPTH + slot, 1) == [word]
        assert not await write_entry(ctx, table, CONFIG.qps * DEPTH, [1])
        assert not await write_entry(ctx, table, 0, [1, 2])
        await send(ctx, receiver.dut.doorbell, qp=2, count=DEPTH + 1)  # more than there is: ignored
        await send(ctx, receiver.dut.doorbell, qp=2, count=DEPTH)
        await send(ctx, receiver.dut.doorbell, qp=2, count=2047)
        for number in range(DEPTH + 1):
            await send(ctx, receiver.dut.stash, qp=2, psn=number, rqmsn=number)
        await send(ctx, receiver.dut.advance, qp=2, cumulative_psn=DEPTH)
        await receiver.settle(ctx)
        assert [c["wr_id"] for c in receiver.completions.records] == words
        assert len(receiver.errors.records) == 1

    receiver.run(bench)


def test_rate():
    receiver = Receiver()
    dut = receiver.dut

    async def bench(ctx):
        await receiver.init(ctx, 5, 0)
        for number in range(8):
            await receiver.post(ctx, 5, number)
        total = 0
        for number in range(8):
            total += await send(ctx, dut.stash, qp=5, psn=number, rqmsn=number)
            total += await send(ctx, dut.advance, qp=5, cumulative_psn=number)
        await receiver.settle(ctx)
        assert len(receiver.completions.records) == 8
        assert total <= 8 * 8

    receiver.run(bench)
