"""Topologies: structure, names, numbers, costs, and what is refused.

Sweep: random valid topologies up to 8 planes, 4 T0, 4 T1; one wrong key at a time.
Stimulus: specifications as dictionaries, as a file gives them.
Checks: numbering without holes, both directions of links, path lists, delays and rates with overrides, round
trip and bisection computed by hand, the text of every message.
Timing: simulated picoseconds, exact.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from fabric.traffic import quickstart, specs, star
from mrc_host.errors import ConfigError
from mrc_host.fabric.spec import TopologySpec, config_errors, parse_topology
from mrc_host.fabric.topology import Topology


@settings(max_examples=60, deadline=None)
@given(specs())
def test_structure_of_random_topologies(spec: TopologySpec) -> None:
    topology = Topology(spec)
    assert [half.number for half in topology.directions] == list(range(len(topology.directions)))
    assert [switch.number for switch in topology.switches] == list(range(len(topology.switches)))
    assert len({half.name for half in topology.directions}) == len(topology.directions)
    assert len({link.name for link in topology.links}) == len(topology.links)
    assert len(topology.switches) == spec.planes * (spec.t0_per_plane + spec.t1_per_plane)
    for link in topology.links:
        assert topology.opposite(link.up) is link.down
        assert topology.opposite(link.down) is link.up
        assert (link.up.source_port, link.up.target_port) == (link.down.target_port, link.down.source_port)
    for source in range(spec.hosts):
        for target in range(spec.hosts):
            paths = topology.paths(source, target)
            same = topology.same_t0(source, target)
            assert len(paths) == spec.planes * (1 if same else spec.t1_per_plane)
            for path in paths:
                halves = path.directions
                assert (halves[0].host, halves[-1].host) == (source, target)
                assert all(a.target_switch == b.source_switch for a, b in zip(halves, halves[1:]))


def test_names_and_ports() -> None:
    topology = quickstart()
    path = topology.path(0, 3, 1, 2)
    assert path.name == "p1.u2"
    assert [half.name for half in path.directions] == [
        "h0.p1>p1.t0.1.d1",
        "p1.t0.1.u2>p1.t1.2.d1",
        "p1.t1.2.d2>p1.t0.2.u2",
        "p1.t0.2.d2>h3.p1",
    ]
    assert [half.link for half in path.directions] == [
        "h0-p1.t0.1",
        "p1.t0.1-p1.t1.2",
        "p1.t0.2-p1.t1.2",
        "h3-p1.t0.2",
    ]
    assert topology.nic_port(3, 1) == 13
    assert topology.directions[13].name == "h3.p1>p1.t0.2.d2"
    assert topology.path(0, 1, 2).name == "p2"


def test_hosts_are_attached_in_order() -> None:
    topology = quickstart(hosts=6)
    assert [topology.t0_of(host) for host in range(6)] == [1, 1, 1, 2, 2, 2]
    assert [topology.downlink_of(host) for host in range(6)] == [1, 2, 3, 1, 2, 3]


def test_costs_by_hand() -> None:
    topology = quickstart(switch_latency_ns=0.5)
    fast, slow = topology.path(0, 2, 0, 1), topology.path(0, 2, 0, 2)
    slot = (1000 + 24) * 1280
    assert topology.one_way_ps(fast, 1000) == 4 * 1_000_000 + 4 * slot + 3 * 500
    assert topology.one_way_ps(slow, 1000) == 2 * 1_000_000 + 2 * 5_000_000 + 4 * slot + 3 * 500
    answer = (154 + 24) * 1280
    assert topology.base_rtt_ps(fast, 1000, 154) == 8 * 1_000_000 + 4 * (slot + answer) + 6 * 500
    assert topology.lookahead_ps == 1_000_000
    assert topology.bisection_gbps() == 4 * 2 * 6.25
    assert topology.host_rate_gbps(0) == 25


def test_round_trip_of_f() -> None:
    """Experiments.md 1 gives about 9.4 µs for the default fabric."""
    topology = quickstart(hosts=8, t1_per_plane=4, t1_link_delay_ns=1000, rate_gbps=100)
    rtt = topology.base_rtt_ps(topology.path(0, 4, 0, 1), 4096 + 142, 154)
    assert rtt == 8_000_000 + 4 * (4262 + 178) * 80
    assert 9.3e6 < rtt < 9.5e6


def test_rates_that_do_not_divide_round_up() -> None:
    half = star(2, rate_gbps=3).directions[0]
    assert half.slot_ps(1) == -(-25 * 8000 // 3)
    assert half.slot_ps(3 * 1000 - 24) == 8_000_000


def test_overrides() -> None:
    topology = quickstart(
        links=[
            {"link": "p*.t0.*-p*.t1.2", "delay_ns": 7000},
            {"link": "p1.t0.2-p1.t1.2", "delay_ns": 9000.25, "rate_gbps": 1},
            {"link": "h3-p0.t0.2", "delay_ns": 500},
        ]
    )
    assert topology.t1_link(0, 1, 1).delay_ps == 1_000_000
    assert topology.t1_link(0, 1, 2).delay_ps == 7_000_000
    assert topology.t1_link(1, 2, 2).delay_ps == 9_000_250
    assert topology.t1_link(1, 2, 2).down.slot_ps(976) == 8_000_000
    assert topology.host_link(3, 0).delay_ps == 500_000
    assert topology.lookahead_ps == 500_000
    assert topology.bisection_gbps() == 7 * 6.25 + 1


def test_bisection_of_a_star_and_of_odd_counts() -> None:
    assert star(8).bisection_gbps() == 400
    assert quickstart(hosts=3, t0_per_plane=3).bisection_gbps() == 4 * 2 * 6.25


def test_directions_named() -> None:
    topology = quickstart()
    assert [half.name for half in topology.directions_named("h0-p0.t0.1")] == [
        "h0.p0>p0.t0.1.d1",
        "p0.t0.1.d1>h0.p0",
    ]
    assert len(topology.directions_named("p0.t0.1.u2>p0.t1.2.d1")) == 1
    assert len(topology.directions_named("p2.t0.*-p2.t1.*")) == 8
    with pytest.raises(ValueError, match=r"link must be a name such as h0-p0\.t0\.1 or .*, got 'h9-p0'"):
        topology.directions_named("h9-p0")


GOOD: dict[str, Any] = {"hosts": 4, "planes": 4, "t0_per_plane": 2, "t1_per_plane": 2, "rate_gbps": 6.25}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"planes": 9}, "planes must be a whole number between 1 and 8, got 9"),
        ({"planes": "4"}, "planes must be a whole number between 1 and 8, got '4'"),
        ({"planes": True}, "planes must be a whole number between 1 and 8, got True"),
        ({"hosts": 0}, "hosts must be a whole number between 1 and 65536, got 0"),
        ({"hosts": 5}, "t0_per_plane must be a divisor of hosts = 5, got 2"),
        ({"t1_per_plane": 256}, "t1_per_plane must be a whole number between 0 and 255, got 256"),
        ({"t0_per_plane": 1024}, "t0_per_plane must be a whole number between 1 and 1023, got 1024"),
        (
            {"t1_per_plane": 0},
            "t1_per_plane must be at least 1 with t0_per_plane = 2 (only a star of one T0 has none), got 0",
        ),
        (
            {"hosts": 2048},
            "t0_per_plane must be at least 3 for hosts = 2048 (a uSID tells 1023 hosts per T0 apart), got 2",
        ),
        ({"rate_gbps": 0}, "rate_gbps must be a number of Gb/s above 0 to 1600, got 0"),
        ({"rate_gbps": float("nan")}, "rate_gbps must be a number of Gb/s above 0 to 1600, got nan"),
        (
            {"host_link_delay_ns": 0},
            "host_link_delay_ns must be a number of nanoseconds above 0 to 1e+09, got 0",
        ),
        (
            {"t1_link_delay_ns": [1000]},
            "t1_link_delay_ns must be one number or a list of t1_per_plane = 2 numbers, got [1000.0]",
        ),
        (
            {"t1_link_delay_ns": [1000, "5 us"]},
            "t1_link_delay_ns must be a number of nanoseconds above 0 to 1e+09, got '5 us'",
        ),
        (
            {"switch_latency_ns": -1},
            "switch_latency_ns must be a number of nanoseconds from 0 to 1e+09, got -1",
        ),
        ({"queue_bytes": 10}, "queue_bytes must be a whole number between 64 and 4294967296, got 10"),
        (
            {"rate_mbps": 10},
            "rate_mbps must be a known key: hosts, planes, t0_per_plane, t1_per_plane, rate_gbps, "
            "t1_rate_gbps, host_link_delay_ns, t1_link_delay_ns, queue_bytes, control_queue_bytes, "
            "retransmission_queue_bytes, control_share_percent, ecn, trimming, ecmp_hash, "
            "ecmp_convergence_us, switch_latency_ns, links, got 'rate_mbps'",
        ),
        (
            {"links": [{"link": "h0-p0.t0.1"}]},
            "links.0 must be a link with rate_gbps or delay_ns, got 'h0-p0.t0.1'",
        ),
        (
            {"links": [{"link": "x", "delay_us": 1}]},
            "links.0.delay_us must be a known key: link, rate_gbps, delay_ns, got 'delay_us'",
        ),
        ({"links": 3}, "links must be a valid list, got 3"),
        ({"links": [{"link": 5, "delay_ns": 1}]}, "links.0.link must be a valid string, got 5"),
    ],
)
def test_messages(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_topology(GOOD | change)
    assert str(error.value) == message


def test_missing_key_is_named() -> None:
    with pytest.raises(ConfigError) as error:
        parse_topology({key: value for key, value in GOOD.items() if key != "rate_gbps"})
    assert str(error.value) == "rate_gbps must be given, got nothing"


def test_left_out_t1_needs_one_t0() -> None:
    with pytest.raises(ConfigError, match="t1_per_plane must be at least 1 with t0_per_plane = 2"):
        parse_topology({key: value for key, value in GOOD.items() if key != "t1_per_plane"})


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ValidationError) as error:
        TopologySpec.model_validate(GOOD | {"planes": 0, "rate_gbps": -1})
    assert [problem.path for problem in config_errors(error.value)] == ["planes", "rate_gbps"]


def test_override_of_no_link_is_refused() -> None:
    with pytest.raises(ConfigError) as error:
        quickstart(links=[{"link": "p0.t0.1-p0.t1.3", "delay_ns": 1}])
    assert str(error.value) == (
        "links.0.link must be the name of a link, such as h0-p0.t0.1 or p3.t0.2-p3.t1.2, "
        "or a pattern that matches one, got 'p0.t0.1-p0.t1.3'"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.nic_port(4, 0), "host must be between 0 and 3, got 4"),
        (lambda t: t.nic_port(0, 4), "plane must be between 0 and 3, got 4"),
        (lambda t: t.t1_link(0, 3, 1), "T0 index must be between 1 and 2, got 3"),
        (lambda t: t.t1_link(0, 1, 3), "T1 index must be between 1 and 2, got 3"),
    ],
)
def test_wrong_numbers(call, message: str) -> None:
    with pytest.raises(ValueError) as error:
        call(quickstart())
    assert str(error.value) == message
