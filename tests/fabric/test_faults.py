"""Faults on the fabric: what each kind does to packets, where, when, and to which ones.

Sweep: every kind; links, ports, switches, planes and EVs; both directions and one; all traffic, data,
answers; windows of 1, 1/2 and 1/7 of the look-ahead and orders of calls with all kinds at once.
Stimulus: data and SACK packets of every pair of hosts over every path of the quickstart topology, at a pace.
Checks: which packets arrive, when and with which bytes, counters, what NICs are told, messages of refusals.
Timing: simulated picoseconds, exact.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from fabric.objects import data_frame
from fabric.test_model import by_port_backwards, interleaved
from fabric.traffic import Send, build_frame, outer, quickstart, run, star
from mrc_host.errors import ConfigError
from mrc_host.fabric.faults.base import FAULTS, FaultSpec, check_fault
from mrc_host.fabric.faults.running import LinkChange, RunningFaults
from mrc_host.fabric.model import Arrival, Fabric
from mrc_host.fabric.packet import DropReason
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import UsidPlan
from mrc_host.packets.codec import complete, decode, encode
from mrc_host.packets.packet import COMPUTE_ICRC
from mrc_host.packets.peek import peek
from mrc_rtl.wire import Dscp, Ecn, Opcode, ev_value

START_PS = 1_000_000
US = 1_000_000
LONG_PS = 600 * US
STEP_PS = 2 * US


def fault(**keys: object) -> FaultSpec:
    checked = check_fault(keys)
    assert isinstance(checked, FaultSpec)
    return checked


def arm(fabric: Fabric, *specs: FaultSpec, seed: int = 1) -> tuple[RunningFaults, list[LinkChange]]:
    """Put faults on a fabric and start them."""
    for spec in specs:
        spec.check(fabric.topology)
    faults = RunningFaults(specs, fabric, seed)
    return faults, faults.start(START_PS, LONG_PS)


def traffic(topology: Topology, rounds: int = 20) -> list[Send]:
    """In every round each host sends, on every plane, a data packet and a SACK to the host across T1."""
    sends: list[Send] = []
    for number in range(rounds):
        for host in range(topology.hosts):
            for plane in range(topology.planes):
                port = topology.nic_port(host, plane)
                target = (host + 2) % 4
                uplink = number % 2 + 1
                for opcode, dscp, late in (
                    (Opcode.WRITE_MIDDLE, Dscp.TRIMMABLE, 0),
                    (Opcode.SACK, Dscp.CONTROL, 500_000),
                ):
                    frame = data_frame(
                        topology,
                        host,
                        target,
                        plane,
                        uplink,
                        psn=number,
                        dscp=dscp,
                        opcode=opcode,
                        payload=256,
                    )
                    sends.append((START_PS + (number + 1) * STEP_PS + late, port, frame))
    return sends


def send_through(topology: Topology, *specs: FaultSpec, sends: list[Send] | None = None, seed: int = 1):
    """Run traffic with faults; return arrivals, the faults' outcomes and the fabric."""
    fabric = Fabric(topology, seed=2)
    faults, _ = arm(fabric, *specs, seed=seed)
    arrivals = run(fabric, traffic(topology) if sends is None else sends, LONG_PS)
    totals = fabric.totals()
    assert totals.entered + totals.added == totals.delivered + totals.dropped
    return arrivals, faults.outcomes(), fabric


def key(arrival: Arrival) -> tuple[int, int, int, int]:
    """(opcode, receiving NIC, plane, PSN) of a packet."""
    info = peek(arrival.frame)
    return info.opcode, arrival.nic, arrival.port, info.psn


TOPOLOGY = quickstart(planes=2)
EVERYTHING = send_through(TOPOLOGY)[0]
ALL_KEYS = {key(arrival): arrival for arrival in EVERYTHING}


def missing(arrivals: list[Arrival]) -> set[tuple[int, int, int, int]]:
    """Return what did not arrive although it would have without faults."""
    return set(ALL_KEYS) - {key(arrival) for arrival in arrivals}


def expected(**wanted: object) -> set[tuple[int, int, int, int]]:
    """Return the packets with given receivers, planes, opcodes or PSNs."""
    nics, planes, opcodes, psns = (wanted.get(name) for name in ("nics", "planes", "opcodes", "psns"))
    return {
        (opcode, nic, plane, psn)
        for opcode, nic, plane, psn in ALL_KEYS
        if (nics is None or nic in nics)
        and (planes is None or plane in planes)
        and (opcodes is None or opcode in opcodes)
        and (psns is None or psn in psns)
    }


def test_all_kinds_are_there() -> None:
    assert set(FAULTS) == {
        "bit_errors",
        "blackhole",
        "burst_loss",
        "delay",
        "down",
        "duplicate",
        "flap",
        "mark",
        "random_loss",
        "reboot",
        "reorder",
        "skew",
        "slow",
        "trim_storm",
    }


# -- places ----------------------------------------------------------------------------------------------

EVEN, ODD = range(0, 20, 2), range(1, 20, 2)  # PSNs over uplink 1 and 2
PLACES = [
    ({"link": "h0-p0.t0.1"}, expected(nics={0, 2}, planes={0})),
    ({"link": "h0-p0.t0.1", "direction": "up"}, expected(nics={2}, planes={0})),
    ({"link": "h0-p0.t0.1", "direction": "down"}, expected(nics={0}, planes={0})),
    ({"link": "h0.p0>p0.t0.1.d1"}, expected(nics={2}, planes={0})),
    ({"link": "h0-*"}, expected(nics={0, 2})),
    ({"link": "p1.t0.1-p1.t1.2", "direction": "up"}, expected(nics={2, 3}, planes={1}, psns=ODD)),
    ({"link": "p1.t0.1-p1.t1.2"}, expected(planes={1}, psns=ODD)),
    ({"port": "h3.p1", "direction": "down"}, expected(nics={3}, planes={1})),
    ({"port": "p0.t0.1.u2", "direction": "up"}, expected(nics={2, 3}, planes={0}, psns=ODD)),
    ({"port": "p0.t1.2.d1", "direction": "down"}, expected(nics={0, 1}, planes={0}, psns=ODD)),
    ({"switch": "p0.t1.1"}, expected(planes={0}, psns=EVEN)),
    ({"switch": "p0.t0.2", "direction": "up"}, expected(nics={0, 1}, planes={0})),
    ({"switch": "p*.t1.1"}, expected(psns=EVEN)),
    ({"plane": 1}, expected(planes={1})),
    ({"plane": [0, 1]}, expected()),
    ({"ev": ev_value(1, 2, 0)}, expected(planes={1}, psns=ODD)),
    (
        {"ev": [ev_value(0, 1, 0), "0xc1020000"]},
        expected(planes={0}, psns=EVEN) | expected(planes={1}, psns=ODD),
    ),
    ({"plane": 0, "traffic": "data"}, expected(planes={0}, opcodes={Opcode.WRITE_MIDDLE})),
    ({"plane": 0, "traffic": "acks"}, expected(planes={0}, opcodes={Opcode.SACK})),
    ({"plane": 0, "traffic": "probes"}, set()),
]


@pytest.mark.parametrize(("place", "lost"), PLACES, ids=[str(place) for place, _ in PLACES])
def test_a_blackhole_swallows_exactly_what_passes_its_place(place: dict, lost: set) -> None:
    arrivals, [outcome], fabric = send_through(TOPOLOGY, fault(kind="blackhole", **place))
    assert missing(arrivals) == lost
    assert (outcome.met, outcome.hit) == (len(lost), len(lost))
    assert outcome.matched == bool(lost)
    assert fabric.totals().drops == ({DropReason.FAULT: len(lost)} if lost else {})


def test_an_ev_in_a_star_is_met_on_the_last_link() -> None:
    topology = star(3)
    frames = [data_frame(topology, 0, 1, 0, 1, psn=index, replica=index % 2) for index in range(6)]
    sends = [(START_PS + (index + 1) * STEP_PS, 0, frame) for index, frame in enumerate(frames)]
    arrivals, [outcome], _ = send_through(
        topology, fault(kind="blackhole", ev=ev_value(0, 1, 1)), sends=sends
    )
    assert [peek(arrival.frame).psn for arrival in arrivals] == [0, 2, 4]
    assert outcome.place == "ev c0010001"


def test_times_begin_and_end_with_the_first_bit_of_a_packet() -> None:
    """The packet of round n leaves its NIC 2(n + 1) µs after the start; its slot is (398 + 24) · 1280 ps."""
    spec = fault(kind="blackhole", port="h0.p0", direction="up", traffic="data", from_us=5.45, to_us=11.45)
    arrivals, _, _ = send_through(TOPOLOGY, spec)
    assert {psn for _, _, _, psn in missing(arrivals)} == {2, 3, 4}
    later = fault(kind="blackhole", port="h0.p0", direction="up", traffic="data", from_us=5.46, to_us=11.46)
    assert {psn for _, _, _, psn in missing(send_through(TOPOLOGY, later)[0])} == {3, 4, 5}


# -- outages ---------------------------------------------------------------------------------------------


def test_down_loses_what_is_on_the_link() -> None:
    """A link of 1 µs: a packet whose last bit is still under way when it goes down is lost."""
    spec = fault(kind="down", port="h0.p0", from_us=4.3, to_us=4.4, direction="up")
    arrivals, [outcome], _ = send_through(TOPOLOGY, spec)
    # The data packet of round 1 left at 4 µs; its SACK begins at 4.2 and both are on the wire.
    assert missing(arrivals) == {(Opcode.WRITE_MIDDLE, 2, 0, 1), (Opcode.SACK, 2, 0, 1)}
    assert outcome.signals == 0


def test_down_of_a_switch_ends_what_leaves_it_too() -> None:
    spec = fault(kind="down", switch="p0.t0.1")
    assert missing(send_through(TOPOLOGY, spec)[0]) == expected(planes={0})


def test_nics_are_told_only_with_a_signal() -> None:
    def told(**keys: object) -> list[LinkChange]:
        return arm(Fabric(TOPOLOGY), fault(from_us=10, to_us=20, **keys))[1]

    at = [START_PS + 10 * US, START_PS + 20 * US]
    assert told(kind="down", port="h1.p1", signal=True) == [
        LinkChange(at[0], 1, 1, False),
        LinkChange(at[1], 1, 1, True),
    ]
    assert told(kind="down", port="h1.p1") == []
    assert told(kind="down", link="p0.t0.1-p0.t1.1", signal=True) == []
    assert [change.host for change in told(kind="down", switch="p0.t0.2", signal=True)] == [2, 3, 2, 3]
    assert len(told(kind="reboot", plane=1)) == 8
    assert told(kind="reboot", switch="p1.t1.1") == []


def test_outages_that_overlap_are_told_once() -> None:
    specs = [
        fault(kind="down", port="h1.p1", signal=True, from_us=10, to_us=20),
        fault(kind="down", plane=1, signal=True, from_us=15, to_us=30),
        fault(kind="down", port="h1.p1", signal=True, from_us=40),
    ]
    _, changes = arm(Fabric(TOPOLOGY), *specs)
    assert [(change.time_ps - START_PS, change.up) for change in changes if change.host == 1] == [
        (10 * US, False),
        (30 * US, True),
        (40 * US, False),
    ]


def test_flap_is_down_at_the_begin_of_every_period() -> None:
    spec = fault(kind="flap", port="h0.p0", period_us=10, down_us=3, from_us=5, signal=True, direction="both")
    fabric = Fabric(TOPOLOGY)
    faults, changes = arm(fabric, spec)
    arrivals = run(fabric, traffic(TOPOLOGY), LONG_PS)
    lost = {psn for opcode, nic, _, psn in missing(arrivals) if nic == 2 and opcode == Opcode.WRITE_MIDDLE}
    # Round n: first bit 0.54 µs before 2(n + 1), last bit 1 µs after; outages at 5 to 8, 15 to 18, ...
    wanted = {
        n
        for n in range(20)
        if any(2 * (n + 1) - 0.54016 < begin + 3 and 2 * (n + 1) + 1 >= begin for begin in range(5, 60, 10))
    }
    assert lost == wanted
    assert [(c.time_ps - START_PS) / US for c in changes[:4]] == [5, 8, 15, 18]
    assert faults.outcomes()[0].signals == len(changes)


CONVERGENCE_US = 20
ECMP = quickstart(planes=1, ecmp_convergence_us=CONVERGENCE_US)


def flows_of(topology: Topology, times_us: range, source: int = 0, target: int = 3) -> list[Send]:
    """At each time, counted from the start of faults, 16 plain packets with other flow labels each."""
    destination = UsidPlan(topology).inner_address(target)
    sends: list[Send] = []
    for time_us in times_us:
        for flow in range(16):
            mark = time_us << 8 | flow
            frame = build_frame(
                topology, source, target, destination=destination, flow_label=flow, size=100, mark=mark
            )
            at = START_PS + time_us * US + flow * 200_000
            sends.append((at, topology.nic_port(source, 0), frame))
    return sends


def lost_flows(*specs: FaultSpec, source: int = 0, target: int = 3) -> dict[int, set[int]]:
    """By time in microseconds, the flows that did not arrive."""
    times = range(0, 120, 10)
    arrivals = send_through(ECMP, *specs, sends=flows_of(ECMP, times, source, target))[0]
    marks = {int.from_bytes(arrival.frame[-4:], "big") for arrival in arrivals}
    return {time: {flow for flow in range(16) if time << 8 | flow not in marks} for time in times}


@pytest.mark.parametrize("link", ["p0.t0.1-p0.t1.1", "p0.t0.2-p0.t1.1"], ids=["own link", "link beyond"])
def test_a_signalled_outage_is_repaired_for_plain_packets_after_the_convergence_time(link: str) -> None:
    silent = lost_flows(fault(kind="down", link=link, from_us=27, to_us=67))
    told = lost_flows(fault(kind="down", link=link, from_us=27, to_us=67, signal=True))
    hashed_there = silent[40]
    assert 4 <= len(hashed_there) <= 12
    assert {time for time, flows in silent.items() if flows} == {30, 40, 50, 60}
    assert all(flows in (set(), hashed_there) for flows in silent.values())
    # Down at 27 and known at 47; up at 67, and used again from 87 on without a loss.
    assert {time: flows for time, flows in told.items() if flows} == {30: hashed_there, 40: hashed_there}


def test_a_repair_knows_when_nothing_is_left_and_leaves_usid_lists_alone() -> None:
    both = [fault(kind="down", link=f"p0.t0.1-p0.t1.{n}", from_us=5, signal=True) for n in (1, 2)]
    fabric = Fabric(ECMP, seed=2)
    arm(fabric, *both)
    run(fabric, flows_of(ECMP, range(40, 50, 10)), LONG_PS)
    assert fabric.ports[ECMP.nic_port(0, 0)].drops[DropReason.NO_ROUTE] == 16
    lists = send_through(TOPOLOGY, fault(kind="down", link="p0.t0.1-p0.t1.1", signal=True))[0]
    quiet = send_through(TOPOLOGY, fault(kind="down", link="p0.t0.1-p0.t1.1"))[0]
    assert {key(arrival) for arrival in lists} == {key(arrival) for arrival in quiet} != set(ALL_KEYS)


def test_overlapping_outages_of_two_links_are_learned_one_by_one() -> None:
    first = fault(kind="down", link="p0.t0.1-p0.t1.1", from_us=5, to_us=70, signal=True)
    second = fault(kind="down", link="p0.t0.1-p0.t1.2", from_us=41, to_us=70, signal=True)
    told = lost_flows(first, second)
    assert told[30] == set(), "all use the second link"
    assert told[40] == told[50] == set(range(16)), "the second link is down, and not known to be"
    assert told[60] == told[70] == told[80] == set(range(16)), "both are known to be down"
    assert told[90] == told[100] == set()


def test_reboot_loses_what_waits() -> None:
    """Three hosts flood the fourth, slots of 93 ns; two have arrived when the switch reboots."""
    topology = star(4, host_link_delay_ns=100)
    frames = [data_frame(topology, host, 3, 0, 1) for host in range(3)]
    sends = [(START_PS + 1_000_000 + 100_000 * (n // 3), n % 3, frames[n % 3]) for n in range(9)]
    spec = fault(kind="reboot", switch="p0.t0.1", from_us=1.45, to_us=30)
    arrivals, [outcome], fabric = send_through(topology, spec, sends=sends)
    assert len(arrivals) == 2
    assert fabric.totals().drops == {DropReason.FAULT: 9 - len(arrivals)}
    lost_on_links = outcome.hit
    assert 9 - len(arrivals) > lost_on_links, "some were lost while they waited"
    assert fabric.totals().in_flight == 0


# -- loss and damage -------------------------------------------------------------------------------------


def many(count: int, payload: int = 64) -> tuple[Topology, list[Send]]:
    """Return a star and many packets from host 0 to host 1."""
    topology = star(2)
    frame = [data_frame(topology, 0, 1, 0, 1, psn=psn, payload=payload) for psn in range(count)]
    step = topology.directions[0].slot_ps(len(frame[0]))
    return topology, [(START_PS + (psn + 1) * step, 0, frame[psn]) for psn in range(count)]


def test_random_loss_has_its_probability_and_its_seed() -> None:
    topology, sends = many(2000)
    spec = fault(kind="random_loss", plane=0, probability=0.05)
    first = send_through(topology, spec, sends=sends)
    again = send_through(topology, spec, sends=sends)
    other = send_through(topology, spec, sends=sends, seed=2)
    assert 65 <= first[1][0].hit <= 140
    assert first[1][0].met == 2000
    assert first[0] == again[0]
    assert first[0] != other[0]


def test_burst_loss_has_its_share_and_its_length() -> None:
    topology, sends = many(6000)
    spec = fault(kind="burst_loss", link="h0-*", direction="up", loss=0.1, burst_packets=8)
    arrivals, [outcome], _ = send_through(topology, spec, sends=sends)
    assert 350 < outcome.hit < 900
    there = [peek(arrival.frame).psn for arrival in arrivals]
    gaps = [later - psn - 1 for psn, later in zip(there, there[1:]) if later > psn + 1]
    assert 5 < sum(gaps) / len(gaps) < 12


def test_bit_errors_are_what_the_icrc_catches() -> None:
    topology = star(2)
    decoded = decode(data_frame(topology, 0, 1, 0, 1, payload=64))
    frame = encode(complete(replace(decoded, icrc=COMPUTE_ICRC)))
    step = topology.directions[0].slot_ps(len(frame))
    sends = [(START_PS + (n + 1) * step, 0, frame) for n in range(500)]
    rate = 0.001
    spec = fault(kind="bit_errors", plane=0, bit_error_rate=rate)
    arrivals, [outcome], _ = send_through(topology, spec, sends=sends)
    assert len(arrivals) == 500
    damaged = [arrival for arrival in arrivals if arrival.frame[54:] != frame[54:]]
    assert len(damaged) == outcome.hit
    bits = 8 * (len(frame) - 54 - 8)
    expected_share = 1 - (1 - rate) ** bits
    assert abs(len(damaged) / 500 - expected_share) < 0.08
    for arrival in damaged:
        assert not accepted(arrival.frame)
    assert accepted(next(arrival.frame for arrival in arrivals if arrival.frame[54:] == frame[54:]))


def accepted(frame: bytes) -> bool:
    """Whether a receiver would take a frame: it can be read and its ICRC is right."""
    try:
        return decode(frame).icrc_ok is True
    except ValueError:
        return False


def test_bit_errors_that_the_fcs_catches_do_not_arrive() -> None:
    topology, sends = many(400)
    spec = fault(kind="bit_errors", link="h1-*", bit_error_rate=0.0005, part="frame", caught_by="fcs")
    arrivals, [outcome], fabric = send_through(topology, spec, sends=sends)
    assert 0 < outcome.hit == 400 - len(arrivals)
    assert fabric.totals().drops == {DropReason.FAULT: outcome.hit}


def test_bit_errors_anywhere_end_in_any_reason() -> None:
    topology, sends = many(800)
    spec = fault(kind="bit_errors", port="h0.p0", direction="up", bit_error_rate=0.003, part="frame")
    arrivals, [outcome], fabric = send_through(topology, spec, sends=sends)
    totals = fabric.totals()
    assert outcome.hit > 400
    assert totals.drops.keys() >= {DropReason.NO_ROUTE, DropReason.NOT_IPV6}
    assert len(arrivals) + totals.dropped == 800


# -- time and order --------------------------------------------------------------------------------------


def lateness(arrivals: list[Arrival]) -> dict[tuple[int, int, int, int], int]:
    """Return by how much packets came later than without faults."""
    late = {key(a): a.time_first_bit_ps - ALL_KEYS[key(a)].time_first_bit_ps for a in arrivals}
    return {name: delay for name, delay in late.items() if delay}


def test_delay_of_a_plane_is_met_once() -> None:
    arrivals, [outcome], _ = send_through(TOPOLOGY, fault(kind="delay", plane=1, delay_ns=700))
    assert lateness(arrivals) == dict.fromkeys(expected(planes={1}), 700_000)
    assert outcome.hit == len(expected(planes={1}))


def test_jitter_keeps_the_order() -> None:
    topology, sends = many(300)
    plain = [a.time_first_bit_ps for a in send_through(topology, sends=sends)[0]]
    spec = fault(kind="delay", link="h1-*", direction="down", delay_ns=100, jitter_ns=2000)
    arrivals = send_through(topology, spec, sends=sends)[0]
    assert [peek(arrival.frame).psn for arrival in arrivals] == list(range(300))
    extra = [arrival.time_first_bit_ps - time for arrival, time in zip(arrivals, plain)]
    assert min(extra) >= 100_000
    assert max(extra) <= 2_100_000
    assert len(set(extra)) > 20


def test_skew_spreads_planes_and_evs() -> None:
    topology = quickstart(planes=4)
    reference = {key(a): a.time_first_bit_ps for a in send_through(topology)[0]}
    arrivals, _, _ = send_through(topology, fault(kind="skew", plane=[3, 2, 1, 0], spread_ns=3000))
    late = {(a.port, a.time_first_bit_ps - reference[key(a)]) for a in arrivals}
    assert late == {(3, 0), (2, 1_000_000), (1, 2_000_000), (0, 3_000_000)}
    evs = [ev_value(0, 1), ev_value(0, 2)]
    arrivals, [outcome], _ = send_through(topology, fault(kind="skew", ev=evs, spread_ns=500))
    late = {(a.port, key(a)[3] % 2, a.time_first_bit_ps - reference[key(a)]) for a in arrivals}
    assert (0, 1, 500_000) in late
    assert (0, 0, 0) in late
    assert {extra for plane, _, extra in late if plane} == {0}
    assert outcome.met == 2 * outcome.hit


def test_slow_links_take_longer_and_queue() -> None:
    """A quarter of 100 Gb/s to host 1: slots of four times 154 + 24 ... bytes, back to back."""
    topology, sends = many(50)
    slot = topology.directions[0].slot_ps(len(sends[0][2]))
    spec = fault(kind="slow", link="h1-*", direction="down", rate_share=0.25, to_us=3)
    arrivals, [outcome], fabric = send_through(topology, spec, sends=sends)
    times = [arrival.time_first_bit_ps for arrival in arrivals]
    steps = [later - time for time, later in zip(times, times[1:])]
    assert set(steps) == {slot, 4 * slot}
    assert steps == sorted(steps, reverse=True)
    assert steps.count(4 * slot) == outcome.hit
    assert max(counter.queue_high_water_bytes for counter in fabric.counters()) > 0


def test_duplicates_follow_their_packet() -> None:
    spec = fault(kind="duplicate", plane=0, traffic="data", probability=1, delay_ns=250)
    arrivals, [outcome], fabric = send_through(TOPOLOGY, spec)
    data = [key(arrival) for arrival in arrivals if key(arrival)[0] == Opcode.WRITE_MIDDLE]
    assert len(data) == len(set(data)) + outcome.hit
    assert outcome.hit == len(expected(planes={0}, opcodes={Opcode.WRITE_MIDDLE}))
    assert fabric.totals().added == outcome.hit


def test_reordered_packets_are_overtaken() -> None:
    topology, sends = many(300)
    spec = fault(kind="reorder", port="h0.p0", direction="up", probability=0.1, delay_ns=100)
    arrivals, [outcome], _ = send_through(topology, spec, sends=sends)
    order = [peek(arrival.frame).psn for arrival in arrivals]
    assert sorted(order) == list(range(300))
    overtaken = sum(later < psn for psn, later in zip(order, order[1:]))
    assert 0 < overtaken <= outcome.hit < 60


def test_trim_storm_trims_at_the_port_and_by_its_place() -> None:
    for place, dscp in (
        ({"port": "p0.t0.1.u1", "direction": "up"}, Dscp.TRIMMED),
        ({"link": "h2-p0.*"}, Dscp.TRIMMED_LASTHOP),
    ):
        arrivals, [outcome], fabric = send_through(TOPOLOGY, fault(kind="trim_storm", **place))
        trimmed = [a for a in arrivals if outer(a.frame)["traffic_class"] >> 2 == dscp]
        assert len(trimmed) == outcome.met == outcome.hit == fabric.totals().trimmed == 20
        assert {len(arrival.frame) for arrival in trimmed} == {128}
        assert {key(arrival)[0] for arrival in trimmed} == {Opcode.WRITE_MIDDLE}


def test_trim_storm_with_a_share_and_a_time() -> None:
    topology, sends = many(400)
    step = sends[1][0] - sends[0][0]
    spec = fault(
        kind="trim_storm", switch="p0.t0.1", share=0.5, from_us=1 + 100 * step / US, to_us=1 + 300 * step / US
    )
    arrivals, [outcome], _ = send_through(topology, spec, sends=sends)
    assert outcome.met == 200
    assert 70 < outcome.hit < 130
    assert sum(peek(arrival.frame).trimmed for arrival in arrivals) == outcome.hit


def test_mark_marks_what_is_capable_of_ecn() -> None:
    topology, sends = many(100)
    spec = fault(kind="mark", link="h1-p0.t0.1", direction="down", share=0.5)
    arrivals, [outcome], fabric = send_through(topology, spec, sends=sends)
    marked = [a for a in arrivals if outer(a.frame)["traffic_class"] & 3 == Ecn.CE]
    assert 30 < len(marked) == outcome.hit == fabric.totals().marked < 70
    assert outcome.met == len(arrivals) == 100


@pytest.mark.parametrize("kind", ["blackhole", "mark", "trim_storm"])
def test_a_fault_acts_on_exactly_the_packets_it_names(kind: str) -> None:
    topology, sends = many(40)
    spec = fault(kind=kind, link="h1-p0.t0.1", direction="down", packets=[3, 17, 99])
    arrivals, [outcome], fabric = send_through(topology, spec, sends=sends)
    assert outcome.met == outcome.hit == 2
    changed = {
        "blackhole": sorted({key(arrival)[3] for arrival in arrivals} ^ {*range(40)}),
        "mark": [key(a)[3] for a in arrivals if outer(a.frame)["traffic_class"] & 3 == Ecn.CE],
        "trim_storm": sorted(key(a)[3] for a in arrivals if peek(a.frame).trimmed),
    }
    assert changed[kind] == [2, 16]


# -- all at once -----------------------------------------------------------------------------------------

ZOO = [
    {"kind": "down", "link": "p0.t0.1-p0.t1.1", "from_us": 8, "to_us": 14},
    {"kind": "flap", "port": "h1.p0", "period_us": 9, "down_us": 2},
    {"kind": "reboot", "switch": "p1.t1.2", "from_us": 20, "to_us": 25},
    {"kind": "blackhole", "ev": ev_value(1, 1), "from_us": 30, "to_us": 34},
    {"kind": "random_loss", "plane": [0, 1], "probability": 0.05},
    {"kind": "burst_loss", "link": "h2-*", "loss": 0.1, "burst_packets": 3},
    {"kind": "bit_errors", "switch": "p0.t0.2", "bit_error_rate": 0.0001, "part": "frame"},
    {"kind": "delay", "link": "p1.t0.*-p1.t1.*", "delay_ns": 90, "jitter_ns": 900},
    {"kind": "skew", "plane": [0, 1], "spread_ns": 800},
    {"kind": "slow", "switch": "p1.t0.1", "rate_share": 0.4, "from_us": 5},
    {"kind": "duplicate", "link": "h3-*", "probability": 0.2, "delay_ns": 1500, "traffic": "data"},
    {"kind": "reorder", "plane": 0, "probability": 0.2, "delay_ns": 2500},
    {"kind": "trim_storm", "plane": 1, "share": 0.3},
    {"kind": "mark", "plane": 0, "share": 0.3, "packets": [1, 2, 3, 5, 8]},
]


def test_windows_and_call_order_do_not_show_with_all_faults() -> None:
    sends = traffic(TOPOLOGY, rounds=25)

    def everything(window_ps: int, order) -> tuple:
        fabric = Fabric(TOPOLOGY, seed=3, sample_interval_ps=1_000_000)
        faults, changes = arm(fabric, *(fault(**keys) for keys in ZOO), seed=5)
        arrivals = run(fabric, sends, LONG_PS, window_ps, order)
        return arrivals, faults.outcomes(), changes, fabric.counters(), fabric.totals(), fabric.samples.rows()

    reference = everything(US, lambda batch: batch)
    assert {spec["kind"] for spec in ZOO} == set(FAULTS)
    assert all(outcome.hit for outcome in reference[1]), [o for o in reference[1] if not o.hit]
    assert len(reference[0]) > 150
    for window, order in ((US, by_port_backwards), (US // 2, interleaved), (US // 7, by_port_backwards)):
        assert everything(window, order) == reference, window


def test_a_fault_does_not_change_the_draws_of_another() -> None:
    topology, sends = many(300)
    loss = fault(kind="random_loss", plane=0, probability=0.1)
    alone = {peek(a.frame).psn for a in send_through(topology, loss, sends=sends)[0]}
    both = send_through(topology, loss, fault(kind="duplicate", plane=0, probability=0.5), sends=sends)[0]
    assert {peek(arrival.frame).psn for arrival in both} == alone


# -- refusals --------------------------------------------------------------------------------------------

REFUSED_BY_THE_SCHEMA = [
    ({"kind": "down"}, "must be a fault with exactly one of link, port, switch, plane, got []"),
    (
        {"kind": "down", "ev": 0xC0010000},
        "must be a fault with exactly one of link, port, switch, plane, got ['ev']",
    ),
    (
        {"kind": "blackhole", "plane": 0, "link": "*"},
        "must be a fault with exactly one of link, port, switch, plane, ev, got ['link', 'plane']",
    ),
    ({"kind": "down", "plane": 0, "traffic": "data"}, "must be all: down acts on everything, got data"),
    ({"kind": "slow", "plane": 0, "packets": 1}, "must be left out: slow acts on everything, got [1]"),
    (
        {"kind": "mark", "plane": 0, "packets": [2, 0]},
        "must be a number that counts from 1, or a list of them",
    ),
    ({"kind": "down", "plane": "a"}, "must be a whole number or a list of them, got a"),
    ({"kind": "blackhole", "plane": [1, 1]}, "must be a list without repeated numbers, got [1, 1]"),
    (
        {"kind": "blackhole", "plane": 0, "traffic": "some"},
        "must be one of all, data, retransmissions, acks, probes",
    ),
    ({"kind": "blackhole", "plane": 0, "direction": "left"}, "must be one of both, up, down, got left"),
    ({"kind": "blackhole", "plane": 0, "from_us": 5, "to_us": 5}, "must be above from_us = 5, got 5"),
    (
        {"kind": "random_loss", "plane": 0, "probability": 1.5},
        "must be a number of probability above 0 to 1, got 1.5",
    ),
    ({"kind": "flap", "plane": 0, "period_us": 5, "down_us": 5}, "must be below period_us = 5, got 5"),
    (
        {"kind": "down", "link": "h0-*", "direction": "up", "signal": True},
        "must be false with direction = up: a port knows of a whole link only, got ",
    ),
]


@pytest.mark.parametrize(
    ("keys", "message"), REFUSED_BY_THE_SCHEMA, ids=[m for _, m in REFUSED_BY_THE_SCHEMA]
)
def test_what_the_schema_refuses(keys: dict, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        fault(**keys)
    assert message in str(caught.value)


REFUSED_BY_THE_TOPOLOGY = [
    (
        {"kind": "blackhole", "link": "h9-*"},
        "link must be the name of a link such as h0-p0.t0.1, or a pattern",
    ),
    ({"kind": "blackhole", "port": "h0"}, "port must be the name of a port such as h0.p0, or a pattern"),
    (
        {"kind": "blackhole", "switch": "t0.1"},
        "switch must be the name of a switch such as p0.t0.1, or a pattern",
    ),
    ({"kind": "blackhole", "plane": 2}, "plane must be between 0 and 1, got 2"),
    (
        {"kind": "blackhole", "ev": 5},
        "ev must be 32 bits that begin with 0b11000, such as 0xc0010000, got '0x5'",
    ),
    (
        {"kind": "blackhole", "ev": 0xC2010000},
        "ev must be of a plane below 2 and an uplink between 1 and 2, got '0xc2010000'",
    ),
    (
        {"kind": "blackhole", "plane": 0, "direction": "up"},
        "direction must be both with plane: packets go up and then down, got 'up'",
    ),
    (
        {"kind": "blackhole", "link": "h0.p0>p0.t0.1.d1", "direction": "down"},
        "direction must be one that h0.p0>p0.t0.1.d1 has, or both, got 'down'",
    ),
    (
        {"kind": "slow", "link": "h0-p0.t0.1", "rate_share": 0.5},
        "direction must be down on h0-p0.t0.1, because a NIC's MAC keeps its rate, got 'both'",
    ),
    (
        {"kind": "trim_storm", "link": "h0-p0.t0.1", "direction": "up"},
        "direction must be one of h0-p0.t0.1 that a switch feeds, or both, got 'up'",
    ),
    (
        {"kind": "skew", "plane": 0, "spread_ns": 5},
        "plane must be a list or pattern of at least two places, got (0,)",
    ),
]


@pytest.mark.parametrize(
    ("keys", "message"), REFUSED_BY_THE_TOPOLOGY, ids=[m for _, m in REFUSED_BY_THE_TOPOLOGY]
)
def test_what_does_not_fit_the_topology(keys: dict, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        fault(**keys).check(TOPOLOGY)
    assert str(caught.value).startswith(message)


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(Exception, match=r"must be a fault with kind: bit_errors, blackhole, .*, got gremlin"):
        check_fault({"kind": "gremlin"})


def test_a_fault_that_met_nothing_is_refused() -> None:
    fabric = Fabric(TOPOLOGY)
    faults, _ = arm(fabric, fault(kind="blackhole", plane=0), fault(kind="blackhole", plane=1, from_us=500))
    run(fabric, traffic(TOPOLOGY), LONG_PS)
    with pytest.raises(ConfigError) as caught:
        faults.check_matched(598.0)
    assert str(caught.value) == (
        "faults.1 must be a fault that meets a packet in the run (of 598 µs), "
        "got 'blackhole on plane 1 for all from 500 µs'"
    )
