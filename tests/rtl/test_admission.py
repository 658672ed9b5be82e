"""Admission together with the tracker and the memory regions it works with.

Sweep: data widths 64, 128 and 512. Stimulus: records with one thing wrong each, every PSN region, duplicates,
trims, feedback, a placement queue that does not take, host commands while packets are in flight, random
traffic over both planes. Checks: the outcome of each record, what leaves for placement, stash, feedback,
reports, NACKs and errors, the order in which buffer beats come back, and that no PSN is placed twice.
Timing: at most K cycles a packet.
"""

import random
from collections import defaultdict
from typing import Any

import pytest

from admission_bench import BASE, BUS, FIRST_PSN, KEY, PEER, PSNS, QP, REGION_BYTES, Bench, body, record
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.records import PORT_COUNTERS, AnswerKind, PortCounter, TraceKind, Trimmed
from mrc_rtl.tables import QP_RECEIVE, QpErrorReason, QpState
from mrc_rtl.wire import Opcode
from record_benches import command, send, simulate, take


@pytest.mark.parametrize("width", [64, 128, 512])
def test_checks_in_their_order(width: int) -> None:
    bench = Bench(width)
    other = QP_NUMBER_BASE + 2
    reason = PortCounter
    cases = [
        ({"destination_qpn": other, "source": 1}, reason.DROP_QP),
        ({"destination_qpn": QP, "source": 1}, reason.DROP_QP),
        ({"destination_qpn": 1 << 23 | QP_NUMBER_BASE + QP}, reason.DROP_QP),
        ({"source": PEER ^ 1 << 127, "partition_key": 1}, reason.DROP_PEER),
        ({"source": PEER ^ 1, "partition_key": 1}, reason.DROP_PEER),
        ({"partition_key": 0x7FFF, "opcode": Opcode.PROBE}, reason.DROP_PKEY),
        ({"opcode": Opcode.ENDPOINT_REQUEST}, reason.DROP_QP),
        ({"psn": FIRST_PSN + 128, "key": 0}, reason.DROP_WINDOW),
        ({"psn": FIRST_PSN + (1 << 23) - 1, "key": 0}, reason.DROP_WINDOW),
        ({"psn": FIRST_PSN - (1 << 23), "key": 0}, reason.DROP_WINDOW),
        ({"psn": FIRST_PSN - 1, "key": 0}, reason.DUPLICATE),
        ({"psn": FIRST_PSN - (1 << 23) + 1, "key": 0}, reason.DUPLICATE),
        ({"opcode": Opcode.SACK, "length": 0}, reason.CONTROL),
        ({"psn": FIRST_PSN + 127}, reason.ACCEPTED),
        ({"psn": FIRST_PSN + 127}, reason.DUPLICATE),
        ({"psn": FIRST_PSN, "key": KEY ^ 1}, reason.DROP_ACCESS),
        ({"psn": FIRST_PSN}, reason.DROP_QP),
    ]

    async def script(ctx: Any) -> None:
        for number, (changes, wanted) in enumerate(cases):
            changes = {"psn": FIRST_PSN, "opcode": Opcode.WRITE_ONLY, **changes}
            found = await bench.outcome(ctx, record(**changes), number % 2)
            assert found == wanted, changes
        assert [(r["kind"], r["psn"]) for r in bench.found["refused"]] == [
            (AnswerKind.NACK_PSN_OOR_WINDOW, (FIRST_PSN + 128) % PSNS),
            (AnswerKind.SACK_AND_ACK, (FIRST_PSN - 1) % PSNS),
            (AnswerKind.SACK_AND_ACK, (FIRST_PSN - (1 << 23) + 1) % PSNS),
            (AnswerKind.SACK, (FIRST_PSN + 127) % PSNS),
            (AnswerKind.NAK_REMOTE_ACCESS, FIRST_PSN),
        ]
        feedback = bench.found["feedback"]
        assert len(feedback) == 1
        assert feedback[0] == {
            "qp": QP, "plane": 0, "opcode": Opcode.SACK, "psn": FIRST_PSN, "retransmission": 0,
            "body": body(Opcode.SACK), "received_at": 77,
        }  # fmt: skip
        assert bench.found["error_out"] == [{"qp": QP, "reason": QpErrorReason.REMOTE_ACCESS}]
        data, _ = await command(ctx, bench.core.admission.table, write=False, index=QP, words=[0] * 6)
        assert QP_RECEIVE.unpack(data)["state"] == QpState.ERROR

    bench.run(script)


@pytest.mark.parametrize("stamped", [0, 1])
@pytest.mark.parametrize("width", [64, 512])
def test_an_accepted_packet_and_its_immediate(width: int, stamped: int) -> None:
    bench = Bench(width)

    async def script(ctx: Any) -> None:
        packet = record(
            Opcode.WRITE_LAST_IMM, va=BASE + 4096, rqmsn=0x0203, timestamped=stamped, marked=1,
            retransmission=1, ack_request=1, length=100,
        )  # fmt: skip
        assert await bench.outcome(ctx, packet, 1) == PortCounter.ACCEPTED
        place = bench.found["place"]
        assert len(place) == 1
        wanted = {
            "qp": QP, "psn": FIRST_PSN, "plane": 1, "ev": packet["ev"], "timestamped": stamped,
            "marked": 1, "retransmission": 1, "ack_request": 1, "immediate": 1,
            "length": 100, "last": 1, "drop": 0, "bus_address": BUS + 4096,
        }  # fmt: skip
        assert {name: place[0][name] for name in wanted} == wanted
        if stamped:
            assert place[0]["age"] == 0x7001 - 77
        assert bench.found["stash"] == [
            {
                "qp": QP, "psn": FIRST_PSN, "plane": 1, "rqmsn": 0x0203, "message_number": 0x0405,
                "immediate": 0xCAFE_0001, "length": 9999,
            }
        ]  # fmt: skip
        await bench.placed(ctx, place[0])
        assert bench.found["tracker_advance"] == [{"qp": QP, "cumulative_psn": FIRST_PSN}]
        assert bench.found["report"][-1]["advanced"] == 1
        # Nothing to place needs no region.
        empty = record(Opcode.WRITE_ONLY_IMM, FIRST_PSN + 1, key=0, length=0)
        assert await bench.outcome(ctx, empty) == PortCounter.ACCEPTED

    bench.run(script)


def test_bounds_of_the_region() -> None:
    cases = [(BASE, 64, True), (BASE + REGION_BYTES - 64, 64, True), (BASE - 1, 64, False)]
    cases += [(BASE + REGION_BYTES - 63, 64, False), ((1 << 64) - 8, 64, False)]
    bench = Bench()

    async def script(ctx: Any) -> None:
        for number, (va, length, good) in enumerate(cases):
            await bench.write_qp(ctx)
            found = await bench.outcome(ctx, record(va=va, length=length))
            assert found == (PortCounter.ACCEPTED if good else PortCounter.DROP_ACCESS), number
            places = [place for place in bench.found["place"] if not place["drop"]]
            if good:
                assert places[-1]["bus_address"] == BUS + va - BASE
                await bench.placed(ctx, places[-1])

    bench.run(script)


def test_trimmed_packets_change_nothing() -> None:
    bench = Bench()

    async def script(ctx: Any) -> None:
        for trimmed, kind in (
            (Trimmed.FABRIC, AnswerKind.NACK_TRIMMED),
            (Trimmed.LAST_HOP, AnswerKind.NACK_TRIMMED_LASTHOP),
        ):
            packet = record(psn=FIRST_PSN + 3, trimmed=trimmed, length=0, key=0, timestamped=0)
            assert await bench.outcome(ctx, packet) == PortCounter.TRIMMED_ANSWERED
            nack = bench.found["refused"][-1]
            assert (nack["kind"], nack["psn"]) == (kind, (FIRST_PSN + 3) % PSNS)
            assert nack["timestamped"] == 0
        outside = record(psn=FIRST_PSN + 200, trimmed=1, length=0)
        assert await bench.outcome(ctx, outside) == PortCounter.DROP_WINDOW
        assert await bench.outcome(ctx, record(psn=FIRST_PSN + 3)) == PortCounter.ACCEPTED
        again = record(psn=FIRST_PSN + 3, trimmed=1, length=0)
        assert await bench.outcome(ctx, again) == PortCounter.TRIMMED_ANSWERED
        below = record(psn=FIRST_PSN - 3, trimmed=1, length=0)
        assert await bench.outcome(ctx, below) == PortCounter.TRIMMED_ANSWERED
        kinds = [packet["kind"] for packet in bench.found["refused"][2:]]
        assert kinds == [AnswerKind.NACK_PSN_OOR_WINDOW, AnswerKind.SACK, AnswerKind.SACK_AND_ACK]
        assert len([place for place in bench.found["place"] if not place["drop"]]) == 1

    bench.run(script)


def test_a_full_placement_queue_drops_and_gives_the_beats_back_in_order() -> None:
    bench = Bench(mtu=256, receive_buffer_bytes=4096)

    async def script(ctx: Any) -> None:
        bench.place_ready = False
        lengths = [256, 200, 1, 256, 8, 9, 255]
        wanted = [PortCounter.ACCEPTED] + [PortCounter.DROP_NO_PKT_BUFFER] * 6
        for number, length in enumerate(lengths):
            packet = record(psn=FIRST_PSN + number, length=length)
            assert await bench.outcome(ctx, packet, 1) == wanted[number]
        sack = record(Opcode.SACK, length=0)
        assert await bench.outcome(ctx, sack) == PortCounter.CONTROL
        assert len(bench.found["stash"]) == 0
        bench.place_ready = True
        packet = record(psn=FIRST_PSN + 1, length=40)
        assert await bench.outcome(ctx, packet, 1) == PortCounter.ACCEPTED
        await bench.pause(ctx, 20)
        first, *pieces, last = bench.found["place"]
        assert (first["drop"], last["drop"], last["length"]) == (0, 0, 40)
        assert all(piece["drop"] and piece["plane"] == 1 and piece["length"] <= 256 for piece in pieces)
        beats = sum(-(-length // 8) for length in lengths[1:])
        assert sum(-(-piece["length"] // 8) for piece in pieces) == beats
        for place in (first, last):
            await bench.placed(ctx, place)
        assert ctx.get(bench.core.admission.idle)

    bench.run(script)


def test_a_qp_starts_anew_only_when_nothing_of_it_is_in_flight() -> None:
    bench = Bench()

    async def script(ctx: Any) -> None:
        assert await bench.outcome(ctx, record()) == PortCounter.ACCEPTED
        old = bench.found["place"][-1]
        bus = bench.core.admission.table
        words = QP_RECEIVE.pack(
            state=QpState.RTR, partition_key=0xFFFF, protection_domain=6, initial_psn=FIRST_PSN,
            peer_high=PEER >> 64, peer_low=PEER & (1 << 64) - 1,
        )[:4]  # fmt: skip
        for number, word in enumerate(words):
            ctx.set(bus.valid, 1)
            ctx.set(bus.write, 1)
            ctx.set(bus.index, QP)
            ctx.set(bus.word, number)
            ctx.set(bus.last, number == 3)
            ctx.set(bus.write_data, word)
            await ctx.tick().until(bus.ready)
            ctx.set(bus.valid, 0)
            await bench.pause(ctx, 3)
        # The command waits for the packet; other packets of the QP find it stopped.
        done = False
        for _ in range(30):
            *_, now = await ctx.tick().sample(bus.done)
            done |= bool(now)
        assert not done
        assert await bench.outcome(ctx, record(psn=FIRST_PSN + 1)) == PortCounter.DROP_QP
        await send(ctx, bench.core.tracker.placed, **{
            name: old[name] for name in bench.core.tracker.placed.payload.shape().members if name in old
        })  # fmt: skip
        await ctx.tick().until(bus.done)
        await bench.pause(ctx, 3)
        assert await bench.outcome(ctx, record()) == PortCounter.ACCEPTED
        data, _ = await command(ctx, bus, write=False, index=QP, words=[0] * 6)
        read = QP_RECEIVE.unpack(data)
        assert (read["state"], read["cumulative_psn"]) == (QpState.RTR, FIRST_PSN - 1)
        await bench.placed(ctx, bench.found["place"][-1])
        # RTR to RTS changes the state only.
        await bench.write_qp(ctx, state=QpState.RTS)
        data, _ = await command(ctx, bus, write=False, index=QP, words=[0] * 6)
        read = QP_RECEIVE.unpack(data)
        assert (read["state"], read["cumulative_psn"]) == (QpState.RTS, FIRST_PSN)
        assert (read["peer_low"], read["initial_psn"]) == (PEER & (1 << 64) - 1, FIRST_PSN)
        await bench.write_qp(ctx, state=QpState.RESET)
        assert await bench.outcome(ctx, record()) == PortCounter.DROP_QP

    bench.run(script)


def test_a_region_is_gone_only_when_nothing_of_it_is_in_flight() -> None:
    bench = Bench()

    async def script(ctx: Any) -> None:
        assert await bench.outcome(ctx, record()) == PortCounter.ACCEPTED
        bus = bench.core.regions.table
        ctx.set(bus.valid, 1)
        ctx.set(bus.write, 1)
        ctx.set(bus.index, KEY >> 8)
        ctx.set(bus.word, 0)
        ctx.set(bus.write_data, 0)
        ctx.set(bus.last, 1)
        await ctx.tick().until(bus.ready)
        ctx.set(bus.valid, 0)
        for _ in range(40):
            *_, done = await ctx.tick().sample(bus.done)
            assert not done
        place = bench.found["place"][-1]
        await send(ctx, bench.core.tracker.placed, **{
            name: place[name] for name in bench.core.tracker.placed.payload.shape().members if name in place
        })  # fmt: skip
        await ctx.tick().until(bus.done)
        assert await bench.outcome(ctx, record(psn=FIRST_PSN + 1)) == PortCounter.DROP_ACCESS

    bench.run(script)


def test_errors_from_elsewhere_stop_a_qp_at_once() -> None:
    bench = Bench()

    async def script(ctx: Any) -> None:
        await send(ctx, bench.core.admission.error_in, qp=3, reason=1)
        data, _ = await command(ctx, bench.core.admission.table, write=False, index=3, words=[0])
        assert QP_RECEIVE.unpack(data)["state"] == QpState.RESET
        await send(ctx, bench.core.admission.error_in, qp=QP, reason=1)
        await ctx.tick()
        assert await bench.outcome(ctx, record()) == PortCounter.DROP_QP
        assert (await command(ctx, bench.core.admission.table, write=True, index=99, words=[0]))[1]
        assert (await command(ctx, bench.core.admission.table, write=False, index=1, words=[0] * 7))[1]

    bench.run(script)


@pytest.mark.parametrize("width", [64, 128, 512])
def test_rate(width: int) -> None:
    bench = Bench(width, mpr_psns=1024)

    async def script(ctx: Any) -> None:
        for number in range(60):
            kind = (Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM, Opcode.SACK)[number // 2 % 3]
            packet = record(kind, FIRST_PSN + number, length=0 if kind == Opcode.SACK else 64)
            bench.sources[number % 2].put(packet)
        while any(source.waiting for source in bench.sources):
            await ctx.tick()
        await bench.pause(ctx, 40)
        assert len(bench.found["counter"]) == 60
        taken = sorted(cycle for source in bench.sources for cycle in source.taken_at)
        gaps = [b - a for a, b in zip(taken, taken[1:], strict=False)]
        assert max(gaps) <= bench.config.packet_interval, gaps

    bench.run(script)


@pytest.mark.parametrize("width", [64, 512])
def test_random_traffic_places_each_psn_once(width: int) -> None:
    bench = Bench(width, mtu=256, receive_buffer_bytes=4096)
    chooser = random.Random(width)
    offered: dict[int, list[int]] = {0: [], 1: []}
    state = {"expected": 0, "done": False, "answered": False}
    placed: set[int] = set()

    async def source(ctx: Any) -> None:
        await ctx.tick().until(bench.core.admission.init.valid)
        await bench.pause(ctx, 20)
        for _ in range(700):
            number = state["expected"] + chooser.randrange(-20, 150)
            plane = chooser.randrange(2)
            length = chooser.choice([1, 8, 60, 256])
            if chooser.randrange(10) == 0:
                await bench.offer(ctx, record(Opcode.NACK, length=0), plane)
                offered[plane].append(0)
            elif chooser.randrange(10) == 0:
                trim = record(psn=FIRST_PSN + number, trimmed=1, length=0)
                await bench.offer(ctx, trim, plane)
                offered[plane].append(0)
            else:
                await bench.offer(ctx, record(psn=FIRST_PSN + number, length=length), plane)
                offered[plane].append(-(-length // bench.config.data_bytes))
            bench.place_ready = chooser.randrange(5) != 0
        bench.place_ready = True
        state["done"] = True

    async def memory(ctx: Any) -> None:
        """Answers place commands in random order."""
        seen = 0
        waiting: list[dict[str, int]] = []
        quiet = 0
        while quiet < 60:
            await ctx.tick()
            quiet = quiet + 1 if state["done"] and not waiting else 0
            while seen < len(bench.found["place"]):
                place = bench.found["place"][seen]
                seen += 1
                if not place["drop"]:
                    number = (place["psn"] - FIRST_PSN) % PSNS
                    assert number not in placed
                    placed.add(number)
                    waiting.append(place)
            if waiting and (len(waiting) > 6 or chooser.randrange(20) == 0):
                place = waiting.pop(chooser.randrange(len(waiting)))
                await bench.placed(ctx, place)
                advances = bench.found["tracker_advance"]
                if advances:
                    state["expected"] = (advances[-1]["cumulative_psn"] + 1 - FIRST_PSN) % PSNS
        state["answered"] = True

    async def script(ctx: Any) -> None:
        while not state["answered"]:
            await ctx.tick()
        counts = defaultdict(int)
        for event in bench.found["counter"]:
            counts[event["index"]] += 1
        assert sum(counts.values()) == 700
        for plane in range(2):
            assert sum(counts[plane * PORT_COUNTERS + reason] for reason in PortCounter) == len(
                offered[plane]
            )
            beats = sum(
                -(-place["length"] // bench.config.data_bytes)
                for place in bench.found["place"]
                if place["plane"] == plane
            )
            assert beats == sum(offered[plane])
        assert len(placed) > 100
        assert counts[PortCounter.DUPLICATE] and counts[PortCounter.DROP_WINDOW]
        assert ctx.get(bench.core.admission.idle)

    async def first(ctx: Any) -> None:
        await bench.set_up(ctx)
        await script(ctx)

    simulate(
        bench.core, first, source, memory, background=(bench.collect, *(one.run for one in bench.sources))
    )


def test_a_trace_that_is_taken_slowly_loses_nothing() -> None:
    bench = Bench(trace=True)
    traced: list[tuple[int, int]] = []

    async def watch(ctx: Any) -> None:
        port = bench.core.admission.trace
        while True:
            await bench.pause(ctx, 30)
            found = await take(ctx, port, "kind", "psn")
            traced.append((found["kind"], found["psn"]))

    async def script(ctx: Any) -> None:
        for number in range(12):
            kind = Opcode.SACK if number % 3 == 2 else Opcode.WRITE_ONLY
            bench.sources[number % 2].put(record(kind, number, length=0))
        for _ in range(800):
            await ctx.tick()
            if len(traced) == 12:
                break
        await bench.pause(ctx, 3)
        assert sorted(traced) == [(TraceKind.ADMIT, number) for number in range(12)]
        assert len(bench.found["counter"]) == 12

    async def first(ctx: Any) -> None:
        await bench.set_up(ctx)
        await script(ctx)

    sources = (source.run for source in bench.sources)
    simulate(bench.core, first, background=(bench.collect, watch, *sources))
