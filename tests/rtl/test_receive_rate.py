"""The rate of the blocks behind admission, together.

Sweep: data widths 64, 128 and 512 bits. Stimulus: the shortest packets of eight QPs, a message each, commands
as fast as they are taken, in order and shuffled; a SACK about every 16 packets of a QP, of all QPs at once; a
memory that takes everything and answers after some cycles. Timing: any 64 packets in a row take at most 64 K
cycles.
"""

import random
from collections import deque
from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from mrc_rtl.config import NicConfig
from mrc_rtl.responder.immediates import Immediates
from mrc_rtl.responder.placement import Placement
from mrc_rtl.responder.rx_tracker import RxTracker
from mrc_rtl.responder.sack import SackGenerator
from record_benches import send, simulate

LATENCY = 12
PACKETS = 40
THRESHOLD = 16384
QPS = range(8)


class Core(wiring.Component):
    """Placement, tracker, SACKs and immediates, wired as in the engine."""

    def __init__(self, config: NicConfig) -> None:
        self.placement = Placement(config)
        self.tracker = RxTracker(config)
        self.sack = SackGenerator(config)
        self.immediates = Immediates(config)
        super().__init__({})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for name in ("placement", "tracker", "sack", "immediates"):
            m.submodules[name] = getattr(self, name)
        for source, sink in (
            (self.placement.placed, self.tracker.placed), (self.tracker.report, self.sack.report),
            (self.tracker.advance, self.immediates.advance), (self.sack.snapshot, self.tracker.snapshot),
            (self.tracker.snapshot_answer, self.sack.snapshot_answer), (self.immediates.nak, self.sack.nak),
        ):  # fmt: skip
            wiring.connect(m, source, sink)
        m.d.comb += self.sack.coming.eq(self.tracker.coming)
        return m


@pytest.mark.parametrize("width", [64, 128, 512])
@pytest.mark.parametrize("order", ["in order", "shuffled"])
def test_the_shortest_packets_come_every_k_cycles(width: int, order: str) -> None:
    config = NicConfig(data_width=width, mtu=4096, receive_buffer_bytes=16384, qps=8, placements=16)
    core = Core(config)
    placed: list[int] = []
    cycle = 0

    async def memory(ctx: Any) -> None:
        """Takes addresses and data at once; the answer follows after some cycles."""
        nonlocal cycle
        write, source = core.placement.write, core.tracker.placed
        ctx.set(write.awready, 1)
        ctx.set(write.wready, 1)
        ctx.set(core.sack.control.ready, 1)
        ctx.set(core.sack.counter.ready, 1)
        due: deque[tuple[int, int]] = deque()
        while True:
            answer = bool(due) and due[0][0] <= cycle
            ctx.set(write.bvalid, answer)
            ctx.set(write.bid, due[0][1] if answer else 0)
            *_, valid, number, ready, given, taken = await ctx.tick().sample(
                write.awvalid, write.awid, write.bready, source.valid, source.ready
            )
            cycle += 1
            if answer and ready:
                due.popleft()
            if valid:
                due.append((cycle + LATENCY, number))
            if given and taken:
                placed.append(cycle)

    async def bench(ctx: Any) -> None:
        chooser = random.Random(width)
        ctx.set(core.sack.settings.sack_threshold, THRESHOLD)
        for qp in QPS:
            for block in (core.tracker, core.sack, core.immediates):
                await send(ctx, block.init, qp=qp, active=1, initial_psn=100 * qp)
        packets = [(qp, 100 * qp + number) for number in range(PACKETS) for qp in QPS]
        if order == "shuffled":
            packets = [
                packets[n] for n in sorted(range(len(packets)), key=lambda n: n + chooser.randrange(40))
            ]
        port = core.placement.place
        for number, (qp, psn) in enumerate(packets):
            fields = {"qp": qp, "psn": psn, "plane": number % 2, "length": 1, "last": 1}
            await send(ctx, port, **fields, bus_address=0x1000 + 64 * number)
        for _ in range(200):
            await ctx.tick()
        assert len(placed) == len(packets)
        assert all(b - a <= 64 * config.packet_interval for a, b in zip(placed, placed[64:], strict=False))

    simulate(core, bench, background=(memory,))
