"""Spraying, seen from outside: planes, entropy values and control packets of the sending half.

Sweep: 2 and 4 planes at 64 bit; EV sets from one GOOD entry to 32, with SKIP and backup ones; all planes
free, of equal rate, one slow, one without room, one down. Stimulus: long messages of one or several QPs,
control requests, changes of EV sets while packets leave. Checks: share of planes and EVs, order in a
rotation, SKIP cleared by costing one turn, priority and cap of control packets, discards of QPs that stopped,
feedback and the host's orders change states, nothing left behind (idle). Timing: one decision in 5/8 of K
cycles; control waits at most for its own plane; every wait is bounded.
"""

import random
from collections import Counter
from typing import Any

import cocotb
import pytest

import runner
from agents import start
from mrc_rtl import records, tables, wire
from mrc_rtl.config import NicConfig
from send_side import SendSide, SendSideBench, pack

PLANES = runner.parameters().get("planes", 2)
CONFIG = NicConfig().with_(planes=PLANES)
MTU = CONFIG.mtu


@pytest.mark.parametrize("planes", [2, 4])
def test_bind(simulation: runner.Simulation, planes: int) -> None:
    config = NicConfig().with_(planes=planes)
    runner.run_bench(lambda: SendSide(config), __file__, simulation, parameters={"planes": planes})


async def begin(dut: Any, frame_cycles: int = 0) -> SendSideBench:
    bench = SendSideBench(dut, CONFIG, frame_cycles)
    bench.fetch_latency = bench.region_latency = 1
    await start(dut)
    await bench.run(20)
    return bench


async def send(bench: SendSideBench, qp: int, packets: int, slot: int = 0) -> None:
    await bench.post(qp, slot, length=packets * MTU, local_key=1, remote_key=2)
    bench.ring(qp)


async def set_evs(bench: SendSideBench, qp: int, plane: int, good: int, skip: int = 0) -> None:
    entry = tables.EV_SET.pack(good=good, skip=skip)
    assert await bench.command("ev_set", qp * PLANES + plane, entry) is not None


async def read_evs(bench: SendSideBench, qp: int, plane: int) -> dict[str, int]:
    words = await bench.command("ev_set", qp * PLANES + plane, None, 4)
    assert words is not None
    return tables.EV_SET.unpack(words)


def control(bench: SendSideBench, qp: int, plane: int, psn: int) -> None:
    bench.sources["control"].queue.append(
        pack(
            records.control_request(CONFIG),
            qp=qp,
            plane=plane,
            opcode=wire.Opcode.SACK,
            psn=psn,
            body=psn << 256 | 0x55,
            body_words=9,
            retransmission=psn & 1,
        )  # fmt: skip
    )


def share(packets: list[dict[str, Any]]) -> Counter:
    return Counter(packet["plane"] for packet in packets)


def imbalance(packets: list[dict[str, Any]]) -> int:
    """Largest difference between two planes at any moment."""
    counts = [0] * PLANES
    worst = 0
    for packet in packets:
        counts[packet["plane"]] += 1
        worst = max(worst, max(counts) - min(counts))
    return worst


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def planes_take_turns(dut) -> None:
    """Idle planes, saturated planes, several QPs: the planes differ by at most one packet at any moment."""
    for frame_cycles in (0, 40):
        bench = await begin(dut, frame_cycles)
        for qp in range(3):
            await bench.start_qp(qp, evs=5)
        for qp in range(3):
            await send(bench, qp, 40)
        done = bench.completions
        await bench.until(lambda done=done: len(done) == 3, 20_000, "completions")
        assert len(bench.data) == 120
        assert imbalance(bench.data) == 1
        if frame_cycles:
            cycles = bench.data[-1]["cycle"] - bench.data[0]["cycle"]
            assert cycles <= 120 * frame_cycles // PLANES * 1.05 + 100, "a plane stood idle"


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def rotation(dut) -> None:
    """Every GOOD EV of a plane comes once in each rotation, each rotation in another order."""
    bench = await begin(dut)
    await bench.start_qp(0, evs=32)
    good = 0xA5F0_13C7
    number = good.bit_count()
    for plane in range(PLANES):
        await set_evs(bench, 0, plane, good, skip=~good & 0xFFFF_0000)
    for slot in range(4):
        await send(bench, 0, number * PLANES, slot)
    await bench.until(lambda: len(bench.completions) == 4, 20_000, "completions")
    expected = sorted(n + 1 for n in range(32) if good >> n & 1)
    for plane in range(PLANES):
        uplinks = [packet["ev"] >> 16 & 0xFF for packet in bench.data if packet["plane"] == plane]
        assert len(uplinks) == 4 * number
        rounds = [uplinks[n : n + number] for n in range(0, 4 * number, number)]
        for order in rounds:
            assert sorted(order) == expected
        assert len({tuple(order) for order in rounds}) > 1
    # Without a packet in between the words are as they were written.
    assert await read_evs(bench, 0, 0) == {"good": good, "skip": ~good & 0xFFFF_0000, "bad": 0}


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def skip(dut) -> None:
    """A SKIP EV is cleared when it is met and costs its plane that turn, nothing else."""
    bench = await begin(dut)
    await bench.start_qp(0, evs=4)
    await set_evs(bench, 0, 0, 0b1111, 0b0101)
    await send(bench, 0, 10)
    await bench.until(lambda: len(bench.completions) == 1, 5000, "completion")
    counts = share(bench.data)
    assert sum(counts.values()) == 10
    others = [counts[plane] for plane in range(1, PLANES)]
    missed = max(others) - counts[0]
    turns = counts[0] + missed
    if turns >= 4:
        assert await read_evs(bench, 0, 0) == {"good": 0b1111, "skip": 0, "bad": 0}
        assert 1 <= missed <= 3
    # Only SKIP EVs on every plane: the packet still leaves.
    for plane in range(PLANES):
        await set_evs(bench, 0, plane, 0b11, 0b11)
    await send(bench, 0, 1, 1)
    await bench.until(lambda: len(bench.completions) == 2, 5000, "completion")


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def passed_over(dut) -> None:
    """Planes without a GOOD EV or down have no part in a round; one without room is waited for, not long."""
    bench = await begin(dut)
    await bench.start_qp(0, evs=3)
    await set_evs(bench, 0, PLANES - 1, 0, 0b111)
    await send(bench, 0, 12)
    await bench.until(lambda: len(bench.completions) == 1, 5000, "completion")
    assert PLANES - 1 not in share(bench.data)
    await set_evs(bench, 0, PLANES - 1, 0b1)
    bench.data.clear()
    bench.up &= ~1
    dut.port_up.value = bench.up
    await bench.run(3)
    await send(bench, 0, 12, 1)
    await bench.until(lambda: len(bench.completions) == 2, 5000, "completion")
    assert 0 not in share(bench.data)
    bench.up |= 1
    dut.port_up.value = bench.up
    await bench.run(3)
    # Rounds go on without a plane that never has room; when it has, it gets its turn in every round.
    bench.data.clear()
    bench.blocked_planes = 1
    await send(bench, 0, 2 * (PLANES - 1), 2)
    await bench.until(lambda: len(bench.completions) == 3, 5000, "completion")
    assert 0 not in share(bench.data)
    bench.blocked_planes = 0
    bench.data.clear()
    await send(bench, 0, 2 + PLANES, 3)
    await bench.until(lambda: len(bench.completions) == 4, 5000, "completion")
    counts = share(bench.data)
    assert max(counts.values()) - min(counts.values()) <= 1, counts


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def planes_of_a_peer(dut) -> None:
    """Planes that a QP's peer is not reached on have no part in its rounds; those of other QPs keep it."""
    bench = await begin(dut)
    for qp in range(2):
        await bench.start_qp(qp, evs=4)

    async def tell(qp: int, reachable: int) -> None:
        dut.peer_update.value = pack(records.peer_update(CONFIG), qp=qp, reachable=reachable)
        dut.peer_updates.value = 1
        await bench.run(1)
        dut.peer_updates.value = 0

    async def planes_used(slot: int) -> dict[int, set[int]]:
        bench.data.clear()
        done = len(bench.completions)
        for qp in range(2):
            await send(bench, qp, 3 * PLANES, slot)
        await bench.until(lambda: len(bench.completions) == done + 2, 10_000, "completions")
        return {qp: {packet["plane"] for packet in bench.data if packet["qp"] == qp} for qp in range(2)}

    everywhere = set(range(PLANES))
    assert await planes_used(0) == {0: everywhere, 1: everywhere}
    await tell(1, 0b10)
    assert await planes_used(1) == {0: everywhere, 1: {1}}
    # A mask without a usable plane would stop the QP, and in the end all others: it is not obeyed.
    await tell(1, 0)
    assert await planes_used(2) == {0: everywhere, 1: everywhere}
    await tell(1, 0b01)
    await set_evs(bench, 1, 0, good=0)
    assert await planes_used(3) == {0: everywhere, 1: everywhere - {0}}
    await tell(1, (1 << PLANES) - 1)
    await set_evs(bench, 1, 0, good=1)
    assert await planes_used(4) == {0: everywhere, 1: everywhere}


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def one_does_not_block(dut) -> None:
    """A QP without a usable plane keeps its packets waiting; others pass them; it goes on when it can."""
    bench = await begin(dut)
    for qp in range(2):
        await bench.start_qp(qp, evs=3)
    await set_evs(bench, 0, 0, 0)
    for plane in range(1, PLANES):
        await set_evs(bench, 0, plane, 0)
    await send(bench, 0, 1)
    await bench.run(200)
    await send(bench, 1, 30)
    await bench.until(lambda: len(bench.completions) == 1, 5000, "completion")
    assert bench.completions[0]["qp"] == 1 and all(packet["qp"] == 1 for packet in bench.data)
    await set_evs(bench, 0, 1, 1)
    await bench.until(lambda: len(bench.completions) == 2, 500, "completion")
    assert bench.data[-1]["plane"] == 1
    # One that is stopped frees its slots at once, whatever the planes do.
    bench.blocked_planes = (1 << PLANES) - 1
    await send(bench, 0, 3, 1)
    await bench.run(200)
    assert await bench.write_qp(0, state=0)
    assert len(bench.discarded) == 3 and len(bench.free_slots) == CONFIG.transmit_slots
    await bench.quiet()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def stranded(dut) -> None:
    """A QP that loses its last plane with all slots full of its packets keeps no slot; its timer resumes."""
    bench = await begin(dut)
    for qp in range(2):
        await bench.start_qp(qp, evs=3, timeout=5)
    bench.blocked_planes = (1 << PLANES) - 1
    await send(bench, 0, 12)
    await bench.until(lambda: len(bench.free_slots) < 2, 1000, "slots to fill")
    for plane in range(PLANES):
        await set_evs(bench, 0, plane, 0)
    bench.blocked_planes = 0
    await send(bench, 1, 30)
    await bench.until(lambda: bench.completions, 5000, "completion of the other QP")
    assert bench.completions[0]["qp"] == 1 and all(packet["qp"] == 1 for packet in bench.data)
    # What was in the slots and on its way to them is lost; nothing else was handed out meanwhile.
    lost = len(bench.discarded)
    print(f"planes {PLANES}: {lost} packets lost")
    assert CONFIG.transmit_slots <= lost <= 2 * CONFIG.transmit_slots + 4
    await set_evs(bench, 0, 1, 7)
    await bench.until(lambda: len(bench.completions) == 2, 200_000, "completion after the timer")
    assert all(packet["plane"] == 1 for packet in bench.data if packet["qp"] == 0)
    await bench.quiet()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def controls(dut) -> None:
    """Control packets leave unchanged on their plane, in its EVs, and do not wait for another plane."""
    bench = await begin(dut, frame_cycles=60)
    for qp in range(2):
        await bench.start_qp(qp, evs=4)
    await bench.write_qp(5, state=1, mtu_log2=10, ev_profile=1)
    # Without an EV set: the first value of the plane, and no RTS is needed.
    control(bench, 5, 1, 7)
    await bench.until(lambda: bool(bench.controls), 200, "control")
    packet = bench.controls[0]
    assert packet["ev"] == wire.ev_value(1, 1, 1) and packet["plane"] == 1
    assert packet["psn"] == 7 and packet["opcode"] == wire.Opcode.SACK and packet["retransmission"] == 1
    assert packet["body"] == 7 << 256 | 0x55 and packet["body_words"] == 9
    assert packet["dscp"] == 46 and packet["ecn"] == 0 and packet["timestamped"] == 0 and packet["data"] == 0
    await bench.quiet()
    bench.controls.clear()
    # Plane 0 has no room: control for plane 1 passes.
    bench.blocked_planes = 1
    control(bench, 0, 0, 1)
    control(bench, 0, 1, 2)
    await bench.until(lambda: len(bench.controls) == 1, 200, "control on plane 1")
    assert bench.controls[0]["psn"] == 2
    bench.blocked_planes = 0
    await bench.until(lambda: len(bench.controls) == 2, 200, "control on plane 0")
    # Four in a row use the four EVs of the plane.
    await bench.quiet()
    for n in range(4):
        control(bench, 1, 0, n)
    await bench.until(lambda: len(bench.controls) == 6, 2000, "controls")
    assert len({packet["ev"] for packet in bench.controls[2:]}) == 4
    # SKIP EVs are passed over, and stay SKIP; they are better than none.
    bench.controls.clear()
    await set_evs(bench, 1, 0, 0b111, 0b101)
    for n in range(6):
        control(bench, 1, 0, n)
    await bench.until(lambda: len(bench.controls) == 6, 2000, "controls")
    uplinks = [packet["ev"] >> 16 & 0xFF for packet in bench.controls]
    assert uplinks.count(2) >= 3
    assert await read_evs(bench, 1, 0) == {"good": 0b111, "skip": 0b101, "bad": 0}
    await set_evs(bench, 1, 0, 0b11, 0b11)
    for n in range(4):
        control(bench, 1, 0, n)
    await bench.until(lambda: len(bench.controls) == 10, 2000, "controls")
    assert {packet["ev"] >> 16 & 0xFF for packet in bench.controls[6:]} == {1, 2}
    # The port goes down: another plane takes it.
    bench.up &= ~1
    dut.port_up.value = bench.up
    control(bench, 1, 0, 99)
    await bench.until(lambda: len(bench.controls) == 11, 500, "control on another plane")
    assert bench.controls[-1]["plane"] == 1 and bench.controls[-1]["ev"] >> 24 & 7 == 1
    bench.up |= 1
    dut.port_up.value = bench.up


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def control_cap(dut) -> None:
    """Under a flood of control data still leave: at least one packet for three control packets."""
    bench = await begin(dut, frame_cycles=16)
    await bench.start_qp(0, evs=4, mpr_psns=128)
    generator = random.Random(2)
    for n in range(300):
        control(bench, 1, generator.randrange(PLANES), n)
    await send(bench, 0, 60)
    await bench.until(lambda: len(bench.controls) == 300 and bench.completions, 20_000, "all")
    order = sorted([(p["cycle"], 1) for p in bench.controls] + [(p["cycle"], 0) for p in bench.data])
    first = next(n for n, (_, kind) in enumerate(order) if kind == 0)
    last = max(n for n, (_, kind) in enumerate(order) if kind == 0)
    run = longest = 0
    for _, kind in order[first:last]:
        run = run + 1 if kind else 0
        longest = max(longest, run)
    assert longest <= 3 + 5, longest  # three, and while no data is ready


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def decisions(dut) -> None:
    """A decision at least every 5/8 of K cycles (reading a packet takes six at 64 bit)."""
    bench = await begin(dut)
    bench.fetch_latency = 1
    await bench.start_qp(0, evs=8)
    for n in range(40):
        control(bench, 0, n % PLANES, n)
    await bench.until(lambda: len(bench.controls) == 40, 2000, "controls")
    cycles = [packet["cycle"] for packet in bench.controls]
    interval = (cycles[-1] - cycles[4]) / (len(cycles) - 5)
    print(f"planes {PLANES}: {interval:.2f} cycles a decision")
    assert interval <= CONFIG.packet_interval * 5 / 8


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def changes(dut) -> None:
    """An EV taken out of the set while packets leave is used by at most two more packets."""
    bench = await begin(dut)
    await bench.start_qp(0, evs=32)
    for plane in range(PLANES):
        await set_evs(bench, 0, plane, 0b11)
    await send(bench, 0, 100)
    await bench.until(lambda: len(bench.data) > 20, 2000, "packets")
    await set_evs(bench, 0, 0, 0b10)
    before = len(bench.data)
    await bench.until(lambda: len(bench.completions) == 1, 5000, "completion")
    late = [p for p in bench.data[before:] if p["plane"] == 0 and p["ev"] >> 16 & 0xFF == 1]
    assert len(late) <= 2
    assert share(bench.data)[0] >= 45 * 2 // PLANES


def operate(bench: SendSideBench, qp: int, plane: int, place: int, operation: records.PathOperation) -> None:
    bench.sources["operation"].queue.append(
        pack(records.path_operation(CONFIG), qp=qp, plane=plane, ev_index=place, operation=operation)
    )


async def set_policy(bench: SendSideBench, **fields: int) -> None:
    words = tables.EV_POLICY.pack(**fields)
    assert await bench.command("ev_set", tables.EV_POLICY_INDEX, words) is not None


def on(packets: list[dict[str, Any]], plane: int, place: int) -> int:
    """Packets on an EV."""
    return sum(p["plane"] == plane and p["ev"] >> 16 & 0xFF == place + 1 for p in packets)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def feedback_changes_states(dut) -> None:
    """While packets leave, EVs go and come by feedback and by the host's orders, and planes stay balanced."""
    bench = await begin(dut, frame_cycles=40)
    await set_policy(bench, events=3)
    await bench.start_qp(0, evs=4, mpr_psns=128)
    for plane in range(PLANES):
        await set_evs(bench, 0, plane, 0b0111, 0b1000)
    await send(bench, 0, 400)

    async def goes_on(packets: int) -> list[dict[str, Any]]:
        """The next packets, without those already decided."""
        start = len(bench.data)
        await bench.until(lambda: len(bench.data) >= start + packets, 40 * packets, "packets")
        return bench.data[start + 2 :]

    await goes_on(20)
    assert on(bench.data, 0, 1) and not on(bench.data, 0, 3)
    operate(bench, 0, 0, 1, records.PathOperation.LOST)
    await bench.until(lambda: bool(bench.ev_events), 200, "event")
    (event,) = bench.ev_events
    assert (event["qp"], event["reason"], event["place"]) == (0, 0, 1)
    assert event["kind"] == tables.EventKind.EV_STATE and event["state"] == tables.EvState.ASSUMED_BAD
    later = await goes_on(6 * PLANES + 20)
    assert on(later, 0, 1) == 0 and on(later, 0, 3) and on(later, 0, 0)
    operate(bench, 0, 0, 1, records.PathOperation.UNDO)
    later = await goes_on(6 * PLANES + 20)
    assert on(later, 0, 1) and not on(later, 0, 3), "the surplus backup goes back"
    assert [e["state"] for e in bench.ev_events] == [tables.EvState.ASSUMED_BAD, tables.EvState.GOOD]
    order = tables.EV_ORDER.pack(place=2, operation=records.PathOperation.DENY)
    assert await bench.command("ev_set", tables.EV_ORDER_INDEX + 1, order) is not None
    later = await goes_on(6 * PLANES + 20)
    assert on(later, 1, 2) == 0 and on(later, 1, 3)
    for operation in (records.PathOperation.UNDO, records.PathOperation.RECOVER):
        operate(bench, 0, 1, 2, operation)
    later = await goes_on(6 * PLANES + 20)
    assert on(later, 1, 2) == 0, "what the controller denies comes back by its order alone"
    order = tables.EV_ORDER.pack(place=2, operation=records.PathOperation.ALLOW)
    assert await bench.command("ev_set", tables.EV_ORDER_INDEX + 1, order) is not None
    later = await goes_on(6 * PLANES + 20)
    assert on(later, 1, 2) and not on(later, 1, 3)
    assert len(bench.ev_events) == 2, "the host's own orders are no news"
    # An oblivious profile does not mind losses and marks.
    await set_policy(bench, events=3, oblivious=1)
    for place in range(3):
        operate(bench, 0, 0, place, records.PathOperation.LOST)
        operate(bench, 0, 0, place, records.PathOperation.SKIP)
    later = await goes_on(6 * PLANES + 20)
    assert all(on(later, 0, place) for place in range(3))
    assert imbalance(bench.data) <= 1
    await bench.until(lambda: len(bench.completions) == 1, 40 * 400, "completion")
    await bench.quiet()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def marks_do_not_slow_bind(dut) -> None:
    """With a mark for every packet, decisions still come faster than packets can leave."""
    bench = await begin(dut)
    await bench.start_qp(0, evs=32, mpr_psns=128)
    await send(bench, 0, 100)
    await bench.until(lambda: len(bench.data) > 10, 2000, "packets")
    first, begun = bench.cycle, len(bench.data)
    while len(bench.data) < 90:
        if not bench.sources["operation"].queue:
            operate(bench, 0, bench.cycle % PLANES, bench.cycle % 32, records.PathOperation.SKIP)
        await bench.run(4)
    interval = (bench.cycle - first) / (len(bench.data) - begun)
    print(f"planes {PLANES}: {interval:.2f} cycles a packet, with marks as fast as they are taken")
    assert interval <= 2.5 * CONFIG.packet_interval
    await bench.until(lambda: len(bench.completions) == 1, 5000, "completion")


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def a_port_goes_down(dut) -> None:
    """From the cycle after the port is seen down on, no decision is for it, at whatever cycle it goes."""
    bench = await begin(dut)
    await bench.start_qp(0, evs=8, mpr_psns=128)
    bench.down_is_fatal = False
    for delay in range(24):
        await send(bench, 0, 12, delay % CONFIG.send_queue_depth)
        start = len(bench.data)
        await bench.until(lambda start=start: len(bench.data) > start + 2, 2000, "packets")
        await bench.run(delay % 12)
        bench.up &= ~1
        dut.port_up.value = bench.up
        # What was decided before: the plan on offer and the one behind it.
        await bench.run(24)
        before = len(bench.data)
        await bench.until(lambda: len(bench.completions) == 1, 5000, "completion")
        assert all(packet["plane"] != 0 for packet in bench.data[before:])
        bench.completions.clear()
        bench.up |= 1
        dut.port_up.value = bench.up
        await bench.run(3)
    await bench.quiet()
