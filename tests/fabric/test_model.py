"""The event model: timing to the picosecond, queues, taps, counters, and independence of windows.

Sweep: windows of 1, 1/2 and 1/7 of the look-ahead and random ones; call orders within a window; random
topologies with one frame per path.
Stimulus: single frames, bursts from several NICs to one, random mixed traffic with small queues and taps that
keep state.
Checks: times computed by hand, order and drops of queues, every counter, equality bit for bit.
Timing: simulated picoseconds, exact.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings

from fabric.traffic import Send, build_frame, quickstart, run, specs, star
from mrc_host.fabric.events import NEVER, RandomStream, component_key, random_bits
from mrc_host.fabric.links import Direction
from mrc_host.fabric.model import Fabric
from mrc_host.fabric.packet import DropReason
from mrc_host.fabric.spec import TopologySpec
from mrc_host.fabric.topology import Topology
from mrc_rtl.wire import Dscp

LONG_PS = 200_000_000


def test_one_frame_through_three_switches_by_hand() -> None:
    """6.25 Gb/s is 1280 ps a byte; 1000 + 24 bytes are 1,310,720 ps; links 1, 1, 1, 1 µs.

    Last bit leaves the NIC at 2,000,000 and reaches the T0 at 3,000,000, the T1 at 3,000,000 + slot + 1 µs =
    5,310,720, the other T0 at 7,621,440; the first bit of its slot there reaches the NIC 1 µs later.
    """
    topology = quickstart()
    frame = build_frame(topology, 0, 2, 0, 1)
    [arrival] = run(Fabric(topology), [(2_000_000, 0, frame)], LONG_PS)
    assert arrival.time_first_bit_ps == 8_621_440
    assert (arrival.nic, arrival.port, arrival.sequence) == (2, 0, 1)


def test_slow_t1_and_switch_latency_by_hand() -> None:
    """Two links of 5 µs instead of 1, and 300 ns in each of three switches."""
    topology = quickstart(switch_latency_ns=300)
    frame = build_frame(topology, 0, 2, 0, 2)
    [arrival] = run(Fabric(topology), [(2_000_000, 0, frame)], LONG_PS)
    assert arrival.time_first_bit_ps == 8_621_440 + 2 * 4_000_000 + 3 * 300_000


def test_taps_see_the_first_bit_enter_each_link() -> None:
    topology = quickstart()
    times: list[int] = []
    fabric = Fabric(topology)

    def look(direction: Direction, time_ps: int, frame: bytes) -> None:
        times.append(time_ps)

    fabric.tap("*", look)
    run(fabric, [(2_000_000, 0, build_frame(topology, 0, 2, 0, 1))], LONG_PS)
    assert times == [2_000_000 - 1_310_720, 3_000_000, 5_310_720, 7_621_440]


@settings(max_examples=25, deadline=None)
@given(specs())
def test_every_path_takes_what_the_topology_says(spec: TopologySpec) -> None:
    topology = Topology(spec)
    step = 1_000_000_000
    sends: list[Send] = []
    wanted = []
    time = step
    for source in {0, spec.hosts - 1}:
        for target in range(spec.hosts):
            for path in topology.paths(source, target):
                frame = build_frame(topology, source, target, path.plane, path.uplink, size=777)
                sends.append((time, topology.nic_port(source, path.plane), frame))
                first, last = path.directions[0], path.directions[-1]
                taken = topology.one_way_ps(path, 777) - first.slot_ps(777) - last.slot_ps(777)
                wanted.append((time + taken, target, path.plane))
                time += step
    fabric = Fabric(topology)
    for when, port, frame in sends:
        fabric.transmit(port, when, frame)
    arrivals = fabric.advance(time + step)
    assert [arrival[:3] for arrival in arrivals] == wanted
    assert fabric.totals().delivered == len(sends)
    assert fabric.totals().in_flight == 0


# -- queues ----------------------------------------------------------------------------------------------


def test_back_to_back_frames_leave_slot_by_slot() -> None:
    """Four NICs send 1000 bytes at once to a fifth; 100 Gb/s, slot (1000 + 24) · 80 ps = 81,920 ps."""
    topology = star(5)
    sends = [(1_000_000, port, build_frame(topology, port, 4)) for port in range(4)]
    fabric = Fabric(topology)
    arrivals = run(fabric, sends, LONG_PS)
    assert [arrival.time_first_bit_ps for arrival in arrivals] == [3_000_000 + i * 81_920 for i in range(4)]
    assert [arrival.frame[6:12] for arrival in arrivals] == [arrivals[0].frame[6:12]] * 4
    assert [arrival.sequence for arrival in arrivals] == [1, 2, 3, 4]
    [half] = topology.directions_named("p0.t0.1.d5>h4.p0")
    assert fabric.counters()[half.number].queue_high_water_bytes == 3000


def test_ties_break_by_port() -> None:
    topology = star(5)
    sends = [(1_000_000, port, build_frame(topology, port, 4, mark=port)) for port in (3, 1, 2, 0)]
    arrivals = run(Fabric(topology), sends, LONG_PS, order=lambda batch: batch[::-1])
    assert [int.from_bytes(arrival.frame[54:], "big") for arrival in arrivals] == [0, 1, 2, 3]


def test_control_goes_ahead_of_data_but_does_not_interrupt() -> None:
    topology = star(5)
    sends = [
        (1_000_000, port, build_frame(topology, port, 4, mark=port, dscp=dscp))
        for port, dscp in enumerate((Dscp.TRIMMABLE, Dscp.RETX, Dscp.TRIMMED, Dscp.CONTROL))
    ]
    arrivals = run(Fabric(topology), sends, LONG_PS)
    assert [int.from_bytes(arrival.frame[54:], "big") for arrival in arrivals] == [0, 2, 3, 1]


def test_queue_overflow_is_counted() -> None:
    """One frame in its slot, two in a queue of 2,999 bytes, the fourth and fifth dropped."""
    topology = star(6, queue_bytes=2_999)
    sends = [(1_000_000, port, build_frame(topology, port, 5, mark=port)) for port in range(5)]
    fabric = Fabric(topology)
    arrivals = run(fabric, sends, LONG_PS)
    assert [int.from_bytes(arrival.frame[54:], "big") for arrival in arrivals] == [0, 1, 2]
    [half] = topology.directions_named("p0.t0.1.d6>h5.p0")
    counters = fabric.counters()[half.number]
    assert counters.drops == {DropReason.QUEUE_FULL: 2}
    assert counters.queue_high_water_bytes == 2000
    assert (counters.frames, counters.bytes, counters.wire_bytes) == (3, 3000, 3072)


def test_queue_holds_exactly_its_size() -> None:
    topology = star(5, queue_bytes=3_000)
    sends = [(1_000_000, port, build_frame(topology, port, 4)) for port in range(4)]
    assert len(run(Fabric(topology), sends, LONG_PS)) == 4


def test_control_queue_is_separate() -> None:
    topology = star(7, queue_bytes=1_000, control_queue_bytes=2_000)
    dscps = (8, 8, 8, 46, 46, 46)
    sends = [
        (1_000_000, port, build_frame(topology, port, 6, mark=port, dscp=dscp))
        for port, dscp in enumerate(dscps)
    ]
    fabric = Fabric(topology)
    arrivals = run(fabric, sends, LONG_PS)
    assert [int.from_bytes(arrival.frame[54:], "big") for arrival in arrivals] == [0, 3, 4, 1]
    assert fabric.totals().drops == {DropReason.QUEUE_FULL: 1, DropReason.CONTROL_QUEUE_FULL: 1}


def test_slot_end_comes_before_an_arrival_of_that_instant() -> None:
    """The second frame leaves the queue at the instant the third arrives, so a queue of one is enough."""
    topology = star(4, queue_bytes=1_000)
    slot = 81_920
    sends = [
        (1_000_000 + late, port, build_frame(topology, port, 3)) for port, late in enumerate((0, 1, slot))
    ]
    fabric = Fabric(topology)
    assert len(run(fabric, sends, LONG_PS)) == 3
    assert fabric.totals().drops == {}


def test_idle_port_sends_at_once_at_the_end_of_a_slot() -> None:
    topology = star(3)
    sends = [(1_000_000, 0, build_frame(topology, 0, 2)), (1_081_920, 1, build_frame(topology, 1, 2))]
    fabric = Fabric(topology)
    arrivals = run(fabric, sends, LONG_PS)
    assert [arrival.time_first_bit_ps for arrival in arrivals] == [3_000_000, 3_081_920]
    assert all(counter.queue_high_water_bytes == 0 for counter in fabric.counters()), "nobody waited"


def test_queue_samples_by_hand() -> None:
    """Four frames at 2 µs, slots of 81.92 ns, samples each 50 ns: 3000 wait, one frame less each slot."""
    topology = star(5)
    sends = [(1_000_000, port, build_frame(topology, port, 4)) for port in range(4)]
    fabric = Fabric(topology, sample_interval_ps=50_000)
    run(fabric, sends, LONG_PS)
    [half] = topology.directions_named("p0.t0.1.d5>h4.p0")
    assert [tuple(row) for row in fabric.samples.rows()] == [
        (2_050_000, half.number, 3000, 3000),
        (2_100_000, half.number, 2000, 3000),
        (2_150_000, half.number, 2000, 2000),
        (2_200_000, half.number, 1000, 2000),
        (2_250_000, half.number, 0, 1000),
    ]
    assert fabric.counters()[half.number].queue_high_water_bytes == 3000


# -- taps ------------------------------------------------------------------------------------------------


def test_tap_drops_duplicates_delays_and_corrupts() -> None:
    topology = quickstart()
    path = topology.path(0, 2, 0, 1)
    plain = 8_621_440
    frame = build_frame(topology, 0, 2, 0, 1, mark=7)
    for half in path.directions:
        for name, action, wanted in (
            ("drop", lambda data: [], []),
            ("pass", lambda data: None, [plain]),
            ("duplicate", lambda data: [(0, data), (400_000_000, data)], [plain, plain + 400_000_000]),
            ("delay", lambda data: [(123, data)], [plain + 123]),
            ("corrupt", lambda data: [(0, data[:-1] + b"\xff")], [plain]),
        ):
            fabric = Fabric(topology)
            fabric.tap(half.name, lambda direction, time, data, action=action: action(data))
            arrivals = run(fabric, [(2_000_000, 0, frame)], 1_000_000_000)
            assert [arrival.time_first_bit_ps for arrival in arrivals] == wanted, (half.name, name)
            for arrival in arrivals:
                assert arrival.frame[-1] == (0xFF if name == "corrupt" else 7)
            totals = fabric.totals()
            assert totals.entered + totals.added == totals.delivered + totals.dropped
            assert totals.added == (name == "duplicate")
            counted = fabric.counters()[half.number]
            assert counted.frames == 1
            assert counted.drops == ({DropReason.FAULT: 1} if name == "drop" else {})


def test_a_tap_that_passes_frames_on_changes_no_time() -> None:
    topology = quickstart(switch_latency_ns=300)
    sends = [(2_000_000, 0, build_frame(topology, 0, 2, 0, 1)), (9_000_000, 0, build_frame(topology, 0, 1))]
    fabric = Fabric(topology)
    times: dict[str, list[int]] = {"captured": [], "replaced": []}

    def capture(direction: Direction, time_ps: int, frame: bytes) -> None:
        times["captured"].append(time_ps)

    def replace(direction: Direction, time_ps: int, frame: bytes) -> list[tuple[int, bytes]]:
        times["replaced"].append(time_ps)
        return [(0, frame)]

    fabric.tap("*", capture)
    fabric.tap("*", replace)
    assert run(fabric, sends, LONG_PS) == run(Fabric(topology), sends, LONG_PS)
    assert times["captured"] == times["replaced"]
    assert times["captured"][:2] == [2_000_000 - 1_310_720, 3_000_000 + 300_000]


def test_tap_trims_and_the_rest_of_the_way_is_shorter() -> None:
    """Trimmed to 128 bytes on the link to the T1: two slots of 152 instead of 1024 byte times follow."""
    topology = quickstart()
    fabric = Fabric(topology)
    fabric.tap("p0.t0.1.u1>p0.t1.1.d1", lambda direction, time, data: [(0, data[:128])])
    [arrival] = run(fabric, [(2_000_000, 0, build_frame(topology, 0, 2, 0, 1))], LONG_PS)
    assert len(arrival.frame) == 128
    assert arrival.time_first_bit_ps == 8_621_440 - (1024 - 152) * 1280


def test_taps_form_a_chain_and_can_be_removed() -> None:
    topology = star(2)
    fabric = Fabric(topology)
    seen: list[tuple[int, int]] = []
    remove = fabric.tap("h0-p0.t0.1", lambda direction, time, data: [(0, data), (50, data)])
    fabric.tap("h0.p0>p0.t0.1.d1", lambda direction, time, data: seen.append((time, len(data))))
    frame = build_frame(topology, 0, 1, size=100)
    fabric.transmit(0, 1_000_000, frame)
    assert len(fabric.advance(10_000_000)) == 2
    assert seen == [(1_000_000 - 124 * 80, 100), (1_000_000 - 124 * 80 + 50, 100)]
    remove()
    fabric.transmit(0, 10_000_000, frame)
    assert len(fabric.advance(20_000_000)) == 1


def test_tap_errors() -> None:
    topology = star(2)
    fabric = Fabric(topology)
    fabric.tap("h0.p0>p0.t0.1.d1", lambda direction, time, data: [(-1, data)])
    fabric.transmit(0, 1_000_000, build_frame(topology, 0, 1))
    with pytest.raises(
        ValueError, match=r"delay of a tap on h0\.p0>p0\.t0\.1\.d1 must be at least 0, got -1"
    ):
        fabric.advance(10_000_000)
    with pytest.raises(ValueError, match="link must be a name such as"):
        fabric.tap("nowhere", lambda direction, time, data: None)


def test_a_tap_may_destroy_the_header() -> None:
    topology = quickstart()
    fabric = Fabric(topology)
    fabric.tap("p0.t0.1-p0.t1.1", lambda direction, time, data: [(0, data[:20])])
    assert run(fabric, [(2_000_000, 0, build_frame(topology, 0, 2, 0, 1))], LONG_PS) == []
    assert fabric.totals().drops == {DropReason.NOT_IPV6: 1}


# -- windows ---------------------------------------------------------------------------------------------


def random_traffic(topology: Topology, seed: int, frames: int) -> list[Send]:
    """Frames of all ports to random hosts in random classes, each port at its link's pace or slower."""
    rng = random.Random(seed)
    sends: list[Send] = []
    for host in range(topology.hosts):
        for plane in range(topology.planes):
            port = topology.nic_port(host, plane)
            time = rng.randrange(1_000_000)
            for mark in range(frames):
                size = rng.choice((60, 178, 500, 1086, 4258))
                time += topology.directions[port].slot_ps(size) + rng.choice((0, 0, 1, 777_777))
                target = rng.choice([other for other in range(topology.hosts) if other != host])
                uplink = rng.randrange(1, topology.t1_per_plane + 1)
                dscp = rng.choice((4, 8, 10, 46))
                frame = build_frame(
                    topology, host, target, plane, uplink, size=size, dscp=dscp, mark=mark % 256
                )
                sends.append((time, port, frame))
    return sends


def outcome(topology: Topology, sends: list[Send], window_ps: int, order) -> tuple:
    """Everything a run can tell, with faults that keep state and draw random numbers."""
    fabric = Fabric(topology, seed=3, sample_interval_ps=3_000_000)
    stream = RandomStream(9, "faults")
    seen: list[tuple[str, int, int]] = []

    def fault(direction: Direction, time_ps: int, frame: bytes) -> list[tuple[int, bytes]]:
        seen.append((direction.name, time_ps, len(frame)))
        draw = stream.below(10)
        if draw == 0:
            return []
        if draw == 1:
            return [(0, frame), (stream.below(9) * 500_000, frame)]
        return [(0, frame)]

    fabric.tap("h?-p0.*", fault)
    fabric.tap("p1.t0.1-p1.t1.*", fault)
    until = max(time for time, _, _ in sends) + LONG_PS
    arrivals = run(fabric, sends, until, window_ps, order)
    return arrivals, fabric.counters(), fabric.totals(), fabric.samples.rows(), seen


def by_port(batch: list[Send]) -> list[Send]:
    return sorted(batch, key=lambda send: send[1])


def by_port_backwards(batch: list[Send]) -> list[Send]:
    return sorted(batch, key=lambda send: -send[1])


def interleaved(batch: list[Send]) -> list[Send]:
    """A random merge of the ports, each in its own order."""
    rng = random.Random(len(batch))
    ports = [port for _, port, _ in batch]
    rng.shuffle(ports)
    queues = {port: [send for send in batch if send[1] == port] for port in set(ports)}
    return [queues[port].pop(0) for port in ports]


def test_windows_and_call_order_do_not_show() -> None:
    topology = quickstart(planes=2, queue_bytes=6_000, control_queue_bytes=3_000)
    sends = random_traffic(topology, seed=1, frames=40)
    lookahead = topology.lookahead_ps
    reference = outcome(topology, sends, lookahead, lambda batch: batch)
    totals = reference[2]
    assert totals.drops.keys() >= {
        DropReason.QUEUE_FULL,
        DropReason.CONTROL_QUEUE_FULL,
        DropReason.FAULT,
    }, "the traffic does not stress the queues"
    assert totals.added > 0
    assert len(reference[0]) > 200
    for window, order in (
        (lookahead, by_port),
        (lookahead, by_port_backwards),
        (lookahead, interleaved),
        (lookahead // 2, by_port_backwards),
        (lookahead // 7, interleaved),
        (999_983, interleaved),
    ):
        assert outcome(topology, sends, window, order) == reference, window


def aligned_traffic(topology: Topology, seed: int, frames: int) -> list[Send]:
    """Frames whose slots and times are multiples of 100 ns, so that almost everything happens in ties."""
    rng = random.Random(seed)
    sends: list[Send] = []
    for host in range(topology.hosts):
        time = 0
        for mark in range(frames):
            time += rng.choice((100_000, 100_000, 200_000, 1_000_000))
            target = rng.choice([0, 1, rng.randrange(topology.hosts)])
            path = rng.choice(topology.paths(host, target))
            # (1226 + 24) bytes at 100 Gb/s last 100 ns.
            frame = build_frame(topology, host, target, 0, path.uplink, size=1226, mark=host * 1000 + mark)
            sends.append((time, host, frame))
    return sends


def test_windows_do_not_show_when_everything_is_a_tie() -> None:
    keys = {"planes": 1, "rate_gbps": 100, "t1_link_delay_ns": [300, 500], "queue_bytes": 4_000}
    topology = quickstart(**keys)
    sends = aligned_traffic(topology, seed=4, frames=150)

    def everything(window_ps: int, order) -> tuple:
        fabric = Fabric(topology, sample_interval_ps=100_000)
        stream = RandomStream(2, "delays")

        def delay(direction: Direction, time_ps: int, frame: bytes) -> list[tuple[int, bytes]]:
            return [(stream.below(4) * 100_000, frame)]

        fabric.tap("h*-p0.t0.*", delay)
        until = max(time for time, _, _ in sends) + LONG_PS
        arrivals = run(fabric, sends, until, window_ps, order)
        return arrivals, fabric.counters(), fabric.totals(), fabric.samples.rows()

    reference = everything(1_000_000, by_port)
    assert len({arrival.time_first_bit_ps for arrival in reference[0]}) < 0.8 * len(reference[0]), "few ties"
    assert reference[2].drops.keys() == {DropReason.QUEUE_FULL}
    for window, order in (
        (1_000_000, by_port_backwards),
        (500_000, interleaved),
        (1_000_000 // 7, by_port_backwards),
        (100_000, interleaved),
        (777_777, by_port),
    ):
        assert everything(window, order) == reference, window


def test_every_frame_is_accounted_for_at_any_time() -> None:
    topology = quickstart(planes=2, queue_bytes=6_000)
    sends = sorted(random_traffic(topology, seed=2, frames=30), key=lambda send: send[:2])
    fabric = Fabric(topology)
    at = 0
    while fabric.now_ps < 300_000_000:
        fabric.advance(fabric.now_ps + 1_000_000)
        while at < len(sends) and sends[at][0] < fabric.now_ps:
            fabric.transmit(sends[at][1], sends[at][0], sends[at][2])
            at += 1
        totals = fabric.totals()
        assert totals.entered == at
        assert totals.entered + totals.added == totals.delivered + totals.dropped + totals.in_flight
    assert fabric.totals().in_flight == 0
    assert sum(counter.overlaps for counter in fabric.counters()) == 0
    sent = [counter for counter in fabric.counters() if counter.direction.startswith("h")]
    assert sum(counter.frames for counter in sent) == len(sends)
    assert sum(counter.bytes for counter in sent) == sum(len(frame) for _, _, frame in sends)


def test_next_arrival_bound_never_lies() -> None:
    topology = quickstart()
    fabric = Fabric(topology)
    assert fabric.next_arrival_bound_ps() == NEVER
    fabric.transmit(0, 2_000_000, build_frame(topology, 0, 2, 0, 1))
    jumps = 0
    arrivals = []
    while not arrivals:
        bound = fabric.next_arrival_bound_ps()
        assert fabric.advance(bound) == []
        arrivals = fabric.advance(bound + 1)
        jumps += 1
        assert jumps < 10
    assert arrivals[0].time_first_bit_ps == 8_621_440
    assert fabric.next_arrival_bound_ps() == NEVER


# -- calls that are refused ------------------------------------------------------------------------------


def test_transmit_and_advance_errors() -> None:
    topology = star(2)
    frame = build_frame(topology, 0, 1)
    fabric = Fabric(topology)
    with pytest.raises(ValueError, match="port must be between 0 and 1, got 2"):
        fabric.transmit(2, 0, frame)
    fabric.transmit(0, 5_000_000, frame)
    with pytest.raises(
        ValueError, match="of port 0 must be at least that of its previous frame, 5000000, got 4"
    ):
        fabric.transmit(0, 4_000_000, frame)
    fabric.advance(8_000_000)
    with pytest.raises(
        ValueError, match=r"must be at least 7000000 \(the fabric stands at 8000000\), got 6999999"
    ):
        fabric.transmit(1, 6_999_999, frame)
    with pytest.raises(ValueError, match="until_ps must be at least 8000000, got 1"):
        fabric.advance(1)
    with pytest.raises(ValueError, match="sample_interval_ps must be at least 1, got 0"):
        Fabric(topology, sample_interval_ps=0)


def test_frames_closer_than_the_link_allows_are_counted() -> None:
    topology = star(2)
    frame = build_frame(topology, 0, 1)
    fabric = Fabric(topology)
    for time in (1_000_000, 1_081_920, 1_081_920 + 81_919):
        fabric.transmit(0, time, frame)
    assert fabric.counters()[0].overlaps == 1


# -- random numbers --------------------------------------------------------------------------------------


def test_random_numbers_are_pinned_and_independent() -> None:
    """The values are part of every seeded result: they must never change."""
    assert component_key("faults") == 0xA26CA2CF0543581F
    assert random_bits(1, 2, 3) == 0x6AE515C1C0AC7E37
    one, other = RandomStream(1, "a"), RandomStream(1, "b")
    first = [one.bits() for _ in range(4)]
    again = RandomStream(1, "a")
    other.bits()
    assert [again.bits() for _ in range(4)] == first
    assert one.counter == 4
    draws = [other.below(10) for _ in range(10_000)]
    assert all(900 < draws.count(value) < 1100 for value in range(10))
    assert 2800 < sum(other.chance(0.3) for _ in range(10_000)) < 3200
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        other.below(0)
    with pytest.raises(ValueError, match=r"probability must be between 0 and 1, got 1\.5"):
        other.chance(1.5)
