"""The receive tracker against a set of PSNs.

Sweep: data widths 64 and 512, tracking ranges 128 and 1024. Stimulus: packets placed in random order inside
the window, messages of random length, PSNs across the wrap, snapshots in between, failed writes,
late takers, a QP that starts anew, a lone packet far ahead, a trace that is taken late.
Checks: every report, advance and snapshot equals the reference; the bitmap's base never jumps over a placed
packet that no bitmap has shown. Timing: at most 4 cycles a packet on average, in and out of order.
"""

import random
from typing import Any

import pytest

from mrc_rtl.config import NicConfig
from mrc_rtl.records import TraceKind
from mrc_rtl.responder.rx_tracker import RxTracker, placed_word_bits
from mrc_rtl.tables import QpErrorReason
from record_benches import collector, send, simulate, take

PSNS = 1 << 24


class Reference:
    """Receive state of one QP, with PSNs counted from its first one and never wrapped."""

    def __init__(self, first: int, mpr: int) -> None:
        self.first, self.mpr = first, mpr
        self.placed: dict[int, bool] = {}  # number → last packet of a message
        self.expected = 0
        self.bytes = 0
        self.messages = 0

    def place(self, number: int, last: bool, nominal: int) -> bool:
        """Whether the end of a message was passed."""
        assert number not in self.placed and self.expected <= number < self.expected + self.mpr
        self.placed[number] = last
        self.bytes += nominal
        before = self.messages
        while self.expected in self.placed:
            self.messages += self.placed[self.expected]
            self.expected += 1
        return self.messages != before

    def psn(self, number: int) -> int:
        return (self.first + number) % PSNS

    def number(self, psn: int) -> int:
        """Of a PSN near the window."""
        near = (psn - self.psn(self.expected)) % PSNS
        return self.expected + (near if near < PSNS // 2 else near - PSNS)

    def whole_psn(self, low: int, modulus: int) -> int:
        """The PSN near the window that ends in these bits."""
        offset = (low - self.psn(self.expected)) % modulus
        return (self.psn(self.expected) + offset - (modulus if offset >= modulus // 2 else 0)) % PSNS

    def bitmap(self, base: int) -> int:
        start = self.number(base)
        return sum(
            (n < self.expected or n in self.placed) << i for i, n in enumerate(range(start, start + 64))
        )


@pytest.mark.parametrize(("width", "mpr", "late"), [(64, 128, False), (64, 128, True), (512, 1024, False)])
def test_random_order(width: int, mpr: int, late: bool) -> None:
    config = NicConfig(data_width=width, mpr_psns=mpr, qps=4)
    dut = RxTracker(config)
    chooser = random.Random(width + late)
    reports: list[dict[str, int]] = []
    advances: list[dict[str, int]] = []

    async def bench(ctx: Any) -> None:
        for first in (PSNS - 70, 0, 5, mpr + 17, chooser.getrandbits(24)):
            qp = chooser.randrange(config.qps)
            model = Reference(first, mpr)
            await send(ctx, dut.init, qp=qp, active=1, initial_psn=first, peer_qpn_low=first & 0xABCD)
            unreported: set[int] = set()
            waiting: list[int] = []
            following = 0
            for _ in range(160):
                while following < model.expected + mpr and len(waiting) < chooser.choice([4, 40, mpr]):
                    waiting.append(following)
                    following += 1
                action = chooser.randrange(8)
                if action == 0:
                    await send(ctx, dut.snapshot, qp=qp, reported=1)
                    answer = await take(ctx, dut.snapshot_answer)
                    base = answer["base"]
                    assert answer["cumulative_psn"] == model.psn(model.expected - 1)
                    base = model.whole_psn(base, 1 << len(dut.snapshot_answer.payload.base))
                    assert answer["bitmap"] == model.bitmap(base), (model.expected, model.number(base))
                    assert base % placed_word_bits(config) == 0
                    assert answer["ooo_count"] == sum(n >= model.expected for n in model.placed)
                    assert answer["message_number"] == model.messages
                    assert answer["received_units"] == (model.bytes + 255) >> 8
                    assert answer["peer_qpn_low"] == first & 0xABCD
                    open_numbers = {n for n in unreported if n >= model.expected}
                    start = model.number(base)
                    if open_numbers:
                        assert start <= min(open_numbers)
                    unreported = {n for n in open_numbers if not start <= n < start + 64}
                elif action == 1:
                    await send(ctx, dut.snapshot, qp=qp, reported=0)
                    answer = await take(ctx, dut.snapshot_answer)
                    assert answer["cumulative_psn"] == model.psn(model.expected - 1)
                    assert answer["message_number"] == model.messages
                else:
                    number = waiting.pop(0 if chooser.randrange(2) else chooser.randrange(len(waiting)))
                    last = chooser.randrange(3) == 0
                    length, stamped, immediate = (
                        chooser.randrange(4097),
                        chooser.randrange(2),
                        chooser.randrange(2),
                    )
                    nominal = 84 + (length + 3) // 4 * 4 + 4 * stamped + 4 * immediate
                    count, moved = len(reports), model.expected
                    await send(
                        ctx, dut.placed, qp=qp, psn=model.psn(number), length=length, last=last,
                        timestamped=stamped, immediate=immediate, epoch=number & 1, ev=number, plane=1,
                    )  # fmt: skip
                    passed = model.place(number, last, nominal)
                    unreported.add(number)
                    for _ in range(400):
                        if len(reports) > count:
                            break
                        await ctx.tick()
                    drained = model.expected > max(model.placed)
                    assert [
                        (r["psn"], r["ev"], r["advanced"], r["drained"], r["failed"], r["length"])
                        for r in reports[count:]
                    ] == [(model.psn(number), number, passed, drained, 0, length)]
                    if model.expected != moved:
                        for _ in range(60):
                            if advances and advances[-1]["cumulative_psn"] == model.psn(model.expected - 1):
                                break
                            await ctx.tick()
                        assert advances[-1] == {"qp": qp, "cumulative_psn": model.psn(model.expected - 1)}
            await send(ctx, dut.state_request, qp=qp)
            state = await take(ctx, dut.state_answer)
            assert state["cumulative_psn"] == model.psn(model.expected - 1)
            assert state["highest_psn"] == model.psn(max(model.placed))
            assert state["message_number"] == model.messages
            ctx.set(dut.expected_qp, qp)
            await ctx.tick()
            assert ctx.get(dut.expected_psn) == model.psn(model.expected)
        for _ in range(100):
            await ctx.tick()
        assert ctx.get(dut.idle)

    takers = chooser if late else None
    simulate(
        dut,
        bench,
        background=(collector(dut.report, reports, takers), collector(dut.advance, advances, takers)),
    )


def test_the_walk_shows_the_whole_window_and_a_full_ring_is_passed_at_once() -> None:
    config = NicConfig(qps=2)
    dut = RxTracker(config)
    reports: list[dict[str, int]] = []
    advances: list[dict[str, int]] = []

    async def bench(ctx: Any) -> None:
        first = 1000
        model = Reference(first, 128)
        await send(ctx, dut.init, qp=1, active=1, initial_psn=first)
        for number in range(127, 0, -1):
            await send(ctx, dut.placed, qp=1, psn=first + number, length=4, last=1)
            model.place(number, True, 92)
        shown: set[int] = set()
        for _ in range(6):
            await send(ctx, dut.snapshot, qp=1, reported=1)
            answer = await take(ctx, dut.snapshot_answer)
            base = model.whole_psn(answer["base"], 1 << len(dut.snapshot_answer.payload.base))
            assert answer["bitmap"] == model.bitmap(base)
            shown.add(base)
            # A question that is not reported moves nothing.
            await send(ctx, dut.snapshot, qp=1, reported=0)
            await take(ctx, dut.snapshot_answer)
        assert shown == {992, 1056, 1120}
        await send(ctx, dut.placed, qp=1, psn=first, length=4, last=0)
        model.place(0, False, 92)
        for _ in range(30):
            await ctx.tick()
        assert advances[-1]["cumulative_psn"] == first + 127
        await send(ctx, dut.snapshot, qp=1, reported=1)
        answer = await take(ctx, dut.snapshot_answer)
        assert (answer["message_number"], answer["ooo_count"]) == (127, 0)
        assert answer["bitmap"] == model.bitmap(1120) and answer["base"] == 1120 % 1024

    simulate(dut, bench, background=(collector(dut.report, reports), collector(dut.advance, advances)))


@pytest.mark.parametrize("width", [64, 512])
def test_a_bitmap_passes_by_what_shows_nothing(width: int) -> None:
    config = NicConfig(data_width=width)
    dut = RxTracker(config)
    reports: list[dict[str, int]] = []
    advances: list[dict[str, int]] = []

    async def bench(ctx: Any) -> None:
        first = PSNS - 64  # a word's begin, for words of any width
        model = Reference(first, 128)
        await send(ctx, dut.init, qp=0, active=1, initial_psn=first)
        for number in (*range(10), 110):
            await send(ctx, dut.placed, qp=0, psn=model.psn(number), length=4, last=1)
            model.place(number, True, 92)
        # The unreported packets are below the expected PSN by now; the first 64 from there show none.
        await send(ctx, dut.snapshot, qp=0, reported=1)
        answer = await take(ctx, dut.snapshot_answer)
        base = model.whole_psn(answer["base"], 1 << len(dut.snapshot_answer.payload.base))
        assert answer["bitmap"] == model.bitmap(base) == 1 << 110 - model.number(base)
        assert answer["cumulative_psn"] == model.psn(9)

    simulate(dut, bench, background=(collector(dut.report, reports), collector(dut.advance, advances)))


def test_each_placed_packet_is_traced_once_however_late_the_trace_is_taken() -> None:
    config = NicConfig(trace=True)
    dut = RxTracker(config)
    traced: list[dict[str, int]] = []
    others: list[dict[str, int]] = []

    async def bench(ctx: Any) -> None:
        await send(ctx, dut.init, qp=2, active=1, initial_psn=7)
        for psn in (8, 7, 9, 12):
            await send(ctx, dut.placed, qp=2, psn=psn, length=4, last=1, plane=psn & 1)
        for _ in range(100):
            await ctx.tick()
        assert [(r["kind"], r["qp"], r["psn"], r["plane"]) for r in traced] == [
            (TraceKind.PLACE, 2, psn, psn & 1) for psn in (8, 7, 9, 12)
        ]
        assert ctx.get(dut.idle)

    simulate(
        dut,
        bench,
        background=(
            collector(dut.trace, traced, random.Random(3)),
            collector(dut.report, others),
            collector(dut.advance, others[:]),
        ),
    )


def test_a_failed_write_places_nothing_and_ends_the_qp() -> None:
    config = NicConfig()
    dut = RxTracker(config)
    reports: list[dict[str, int]] = []
    errors: list[dict[str, int]] = []

    async def bench(ctx: Any) -> None:
        await send(ctx, dut.init, qp=3, active=1, initial_psn=7)
        await send(ctx, dut.placed, qp=3, psn=7, length=4, error=1, ev=99, plane=1, age=5, epoch=1)
        await send(ctx, dut.state_request, qp=3)
        assert (await take(ctx, dut.state_answer))["cumulative_psn"] == 6
        assert errors == [{"qp": 3, "reason": QpErrorReason.REMOTE_OPERATION}]
        assert [(r["qp"], r["psn"], r["failed"], r["plane"]) for r in reports] == [(3, 7, 1, 1)]

    simulate(
        dut,
        bench,
        background=(
            collector(dut.report, reports, random.Random(1)),
            collector(dut.error_out, errors, random.Random(2)),
        ),
    )


@pytest.mark.parametrize("order", ["ascending", "shuffled"])
def test_rate(order: str) -> None:
    config = NicConfig(data_width=512, mpr_psns=1024)
    dut = RxTracker(config)
    found: list[dict[str, int]] = []

    async def bench(ctx: Any) -> None:
        await send(ctx, dut.init, qp=0, active=1, initial_psn=50)
        numbers = list(range(50, 50 + 512))
        if order == "shuffled":
            random.Random(4).shuffle(numbers)
        cycles = 0
        ctx.set(dut.placed.valid, 1)
        for psn in numbers:
            ctx.set(dut.placed.payload, {"qp": 0, "psn": psn, "length": 64, "last": 1})
            while True:
                cycles += 1
                *_, ready = await ctx.tick().sample(dut.placed.ready)
                if ready:
                    break
        ctx.set(dut.placed.valid, 0)
        assert cycles <= 4 * len(numbers)
        assert cycles / len(numbers) < 3.2

    simulate(dut, bench, background=(collector(dut.report, found), collector(dut.advance, found)))


@pytest.mark.parametrize("width", [64, 128, 512])
def test_messages_of_one_qp_are_counted_while_another_qps_packets_come(width: int) -> None:
    """Two QPs at once, one in order with a message per packet, one out of order, without a pause."""
    config = NicConfig(data_width=width, qps=4)
    dut = RxTracker(config)
    reports: list[dict[str, int]] = []
    advances: list[dict[str, int]] = []

    async def bench(ctx: Any) -> None:
        for qp in range(2):
            await send(ctx, dut.init, qp=qp, active=1, initial_psn=100 * qp)
        for number in range(40):
            await send(ctx, dut.placed, qp=0, psn=number, length=4, last=1)
            await send(ctx, dut.placed, qp=1, psn=100 + 1 + number, length=4, last=1)
        for _ in range(60):
            await ctx.tick()
        numbers = []
        for qp in range(2):
            await send(ctx, dut.state_request, qp=qp)
            numbers.append((await take(ctx, dut.state_answer))["message_number"])
        assert numbers == [40, 0]
        await send(ctx, dut.placed, qp=1, psn=100, length=4, last=0)
        await send(ctx, dut.placed, qp=0, psn=40, length=4, last=1)
        for _ in range(60):
            await ctx.tick()
        for qp, expected in ((0, 41), (1, 40)):
            await send(ctx, dut.state_request, qp=qp)
            assert (await take(ctx, dut.state_answer))["message_number"] == expected

    simulate(dut, bench, background=(collector(dut.report, reports), collector(dut.advance, advances)))
    assert len(reports) == 82
