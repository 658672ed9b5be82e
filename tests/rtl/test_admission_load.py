"""Admission when everything happens at once and nothing is taken in time.

Sweep: data widths 64 and 512. Stimulus: writes that are accepted, refused or end their QP, trims,
probes and endpoint requests back to back on both planes; outputs that are taken at random; host commands and
errors from elsewhere in between; a memory that answers in random order. Checks: one outcome for each frame;
no PSN placed twice in one life of a QP; what is accepted is placed; records stay until they are taken; what a
host reads of a QP is what it wrote; a QP that failed says so until it is set up again.
Timing: every wait is bounded.
"""

import random
from collections import defaultdict
from typing import Any

import pytest

from admission_bench import FIRST_PSN, KEY, PEER, PSNS, Bench, record
from mrc_rtl import wire
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.records import PORT_COUNTERS, AnswerKind, PortCounter
from mrc_rtl.tables import QP_RECEIVE, QpErrorReason, QpState
from mrc_rtl.wire import EndpointOp, Opcode
from record_benches import command, send

FRAMES = 240
LONGEST = 20_000
#: QPs 0 to 2 live all the time, 3 and 4 fail and are set up again.
STEADY, FRAIL = (0, 1, 2), (3, 4)
PEERS = {qp: PEER ^ (qp % 3) for qp in (*STEADY, *FRAIL)}
STRANGER = wire.inner_address(3 + 8)


class Load:
    """The traffic, and what it must come to."""

    def __init__(self, width: int, seed: int) -> None:
        self.random = random.Random(f"{width}/{seed}")
        self.bench = Bench(width, mtu=256, receive_buffer_bytes=4096)
        self.bench.takes = self._takes  # type: ignore[method-assign]
        self.offered = [0, 0]
        self.sent = False
        self.answered = False
        self.calm = False

    def _takes(self, name: str) -> bool:
        return self.calm or self.random.random() < 0.6

    def packet(self) -> dict[str, int]:
        draw = self.random
        qp = draw.choice((*STEADY, *FRAIL))
        kind = draw.randrange(12)
        psn = FIRST_PSN + draw.randrange(100)
        changes = {"destination_qpn": QP_NUMBER_BASE + qp, "source": PEERS[qp]}
        if kind == 0:
            return record(psn=psn, trimmed=1, length=0, **changes)
        if kind in (1, 2, 3):
            erth = {"op": draw.choice(list(EndpointOp)), "port_status_mask": 0xFFFF, "ftype": 1}
            return record(
                Opcode.ENDPOINT_REQUEST, psn, destination_qpn=wire.ENDPOINT_QPN, timestamped=0, length=0,
                source=draw.choice((*PEERS.values(), STRANGER)), headers={"erth": erth},
            )  # fmt: skip
        if kind == 4:
            return record(
                Opcode.PROBE,
                0,
                length=0,
                timestamped=0,
                headers={"peth": {"probe_id": psn & 0xFFFF}},
                **changes,
            )
        if kind == 5 and qp in FRAIL:
            return record(psn=psn, key=KEY ^ 1, **changes)  # no such region: the QP fails
        if kind == 6:
            return record(psn=psn + 5000, **changes)
        opcode = draw.choice((Opcode.WRITE_ONLY, Opcode.WRITE_MIDDLE, Opcode.WRITE_ONLY_IMM))
        return record(opcode, psn, length=draw.choice((1, 8, 60, 256)), **changes)

    async def source(self, ctx: Any, plane: int) -> None:
        for _ in range(FRAMES // 2):
            self.bench.sources[plane].put(self.packet())
            self.offered[plane] += 1
            while len(self.bench.sources[plane].waiting) > 2:
                await ctx.tick()
        while self.bench.sources[plane].waiting:
            await ctx.tick()

    async def memory(self, ctx: Any) -> None:
        """Answers place commands in random order until nothing comes any more."""
        seen, quiet = 0, 0
        waiting: list[dict[str, int]] = []
        while quiet < 200:
            await ctx.tick()
            commands = self.bench.found["place"]
            waiting += [place for place in commands[seen:] if not place["drop"]]
            seen = len(commands)
            quiet = quiet + 1 if self.sent and not waiting else 0
            if waiting and (len(waiting) > 3 or self.random.randrange(8) == 0):
                place = waiting.pop(self.random.randrange(len(waiting)))
                names = self.bench.core.tracker.placed.payload.shape().members
                await send(ctx, self.bench.core.tracker.placed, **{k: place[k] for k in names if k in place})
        self.answered = True

    async def set_up(self, ctx: Any, qp: int) -> None:
        await self.bench.write_qp(ctx, qp, peer_high=PEERS[qp] >> 64, peer_low=PEERS[qp] & (1 << 64) - 1)

    async def read(self, ctx: Any, qp: int) -> dict[str, int]:
        table = self.bench.core.admission.table
        words, error = await command(ctx, table, write=False, index=qp, words=[0] * QP_RECEIVE.words)
        assert not error
        return QP_RECEIVE.unpack(words)

    async def host(self, ctx: Any) -> None:
        """Reads QPs, lets some fail, and sets those that failed up again."""
        core, draw = self.bench.core, self.random
        while not self.sent:
            qp = draw.choice((*STEADY, *FRAIL))
            status = await self.read(ctx, qp)
            assert status["peer_low"] == PEERS[qp] & (1 << 64) - 1
            assert status["peer_qpn"] == 0x123456
            ahead = (status["cumulative_psn"] + 1 - FIRST_PSN) % PSNS
            assert ahead <= 100 and (status["highest_psn"] + 1 - FIRST_PSN) % PSNS <= 100
            if qp in STEADY:
                assert status["state"] == QpState.RTR
            elif status["state"] == QpState.ERROR:
                await self.set_up(ctx, qp)
            elif draw.randrange(4) == 0:
                await send(ctx, core.admission.error_in, qp=qp, reason=QpErrorReason.RETRY_EXCEEDED)
            await self.bench.pause(ctx, draw.randrange(12))

    def check(self, ctx: Any) -> None:
        counts: dict[int, int] = defaultdict(int)
        for event in self.bench.found["counter"]:
            counts[event["index"]] += 1
        for plane in range(2):
            outcomes = range(plane * PORT_COUNTERS, (plane + 1) * PORT_COUNTERS)
            assert sum(counts[index] for index in outcomes) == self.offered[plane] == FRAMES // 2
        reason = PortCounter
        total = {kind: counts[kind] + counts[PORT_COUNTERS + kind] for kind in reason if kind < PORT_COUNTERS}
        placed = [place for place in self.bench.found["place"] if not place["drop"]]
        assert total[reason.ACCEPTED] == len(placed) > 50
        for qp in STEADY:
            psns = [place["psn"] for place in placed if place["qp"] == qp]
            assert len(psns) == len(set(psns))
        for kind in (reason.DUPLICATE, reason.DROP_WINDOW, reason.DROP_ACCESS, reason.DROP_PEER,
                     reason.DROP_QP, reason.CONTROL, reason.TRIMMED_ANSWERED):  # fmt: skip
            assert total[kind], kind
        naks = [
            answer for answer in self.bench.found["refused"] if answer["kind"] == AnswerKind.NAK_REMOTE_ACCESS
        ]
        assert {answer["qp"] for answer in naks} <= set(FRAIL)
        assert ctx.get(self.bench.core.admission.idle)


@pytest.mark.parametrize(("width", "seed"), [(64, 1), (64, 2), (512, 3)])
def test_everything_at_once(width: int, seed: int) -> None:
    load = Load(width, seed)

    async def script(ctx: Any) -> None:
        for qp in PEERS:
            await load.set_up(ctx, qp)
        started.append(True)
        await load.host(ctx)
        for _ in range(LONGEST):
            if load.answered:
                break
            await ctx.tick()
        load.calm = True
        await load.bench.pause(ctx, 50)
        load.check(ctx)

    started: list[bool] = []
    running = [2]

    def source(plane: int) -> Any:
        async def run(ctx: Any) -> None:
            while not started:
                await ctx.tick()
            await load.source(ctx, plane)
            running[0] -= 1
            load.sent = running[0] == 0

        return run

    load.bench.run(script, source(0), source(1), load.memory)
