"""uSID plan, QP templates and entropy values.

Sweep: every pair, plane and uplink of the quickstart topology; random EV fields; set sizes 1 to 256.
Stimulus: the example of protocol.md appendix B in the layout of profile.md 2.
Checks: addresses as written there, template and path agree, EV round trip, evenness, message texts.
Timing: none.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.traffic import quickstart, star
from mrc_host.fabric.spec import TopologySpec
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import QpTemplate, UsidPlan, address_text, ev_fields, ev_set, ev_value, mac_text


def address(text: str) -> int:
    return int(IPv6Address(text))


@pytest.fixture(scope="module")
def large() -> Topology:
    """A topology in which plane 5, T0 3 and 0x11, uplink 0x2a and host index 7 exist."""
    spec = TopologySpec(hosts=18 * 8, planes=6, t0_per_plane=18, t1_per_plane=0x2A, rate_gbps=100)
    return Topology(spec)


def test_example_of_appendix_b(large: Topology) -> None:
    plan = UsidPlan(large)
    source = (3 - 1) * 8
    target = (0x11 - 1) * 8 + 7 - 1
    template = plan.template(source, target)
    assert address_text(template.destination) == "5f00:0:3:400:11:807::"
    assert ev_value(5, 0x2A) == 0xC52A0000
    wanted = "5f00:0:5003:542a:5011:5807::"
    assert address_text(template.outer_destination(5, 0x2A)) == wanted
    assert address_text(plan.outer_destination(source, target, 5, 0x2A)) == wanted
    assert template.plane_mask == 0b1111
    assert template.uplink_mask == 0b0010
    assert address_text(template.outer_source(5)) == "5f00:0:5003:5801::"


def test_template_equals_path_everywhere() -> None:
    topology = quickstart()
    plan = UsidPlan(topology)
    for source in range(topology.hosts):
        for target in range(topology.hosts):
            template = plan.template(source, target)
            for path in topology.paths(source, target):
                wanted = plan.outer_destination(source, target, path.plane, path.uplink)
                assert template.outer_destination(path.plane, path.uplink or 1) == wanted
                assert template.outer_source(path.plane) == plan.outer_source(source, path.plane)


def test_same_t0_takes_two_hops() -> None:
    topology = quickstart()
    template = UsidPlan(topology).template(0, 1)
    assert template == QpTemplate(
        source=address("5f00:0:1:801::"),
        destination=address("5f00:0:1:802::"),
        plane_positions=(0, 1),
        uplink_position=None,
    )
    assert template.uplink_mask == 0
    assert address_text(template.outer_destination(3, 2)) == "5f00:0:3001:3802::"


def test_star_has_two_hop_lists_only() -> None:
    plan = UsidPlan(star(9))
    assert address_text(plan.outer_destination(8, 0, 0)) == "5f00:0:1:801::"
    assert address_text(plan.outer_source(8, 0)) == "5f00:0:1:809::"
    assert plan.ev_set(3) == (0xC0010000, 0xC0010001, 0xC0010002)


def test_inner_and_mac_addresses() -> None:
    topology = quickstart()
    plan = UsidPlan(topology)
    assert address_text(plan.inner_address(3)) == "fd00:0:0:3::1"
    assert mac_text(plan.host_mac(3, 2)) == "02:00:00:02:00:03"
    assert plan.next_hop_mac(3, 2) == plan.switch_mac(topology.switches[topology.t0_number(2, 2)])
    macs = [plan.host_mac(host, plane) for host in range(4) for plane in range(4)]
    macs += [plan.switch_mac(switch) for switch in topology.switches]
    assert len(set(macs)) == len(macs)
    assert all(mac >> 40 & 3 == 2 for mac in macs), "locally administered, not a group"


@given(st.integers(0, 7), st.integers(1, 255), st.integers(0, 65535))
def test_ev_round_trip(plane: int, uplink: int, replica: int) -> None:
    ev = ev_value(plane, uplink, replica)
    assert ev >> 27 == 0b11000
    assert ev_fields(ev) == (plane, uplink, replica)


@pytest.mark.parametrize(("planes", "uplinks"), [(1, 1), (4, 2), (4, 4), (8, 3), (2, 0)])
@pytest.mark.parametrize("count", [1, 8, 31, 32, 128, 256])
def test_ev_set_is_even(planes: int, uplinks: int, count: int) -> None:
    evs = ev_set(count, planes, uplinks)
    assert len(set(evs)) == count
    fields = [ev_fields(ev) for ev in evs]
    planes_used = Counter(field.plane for field in fields)
    paths_used = Counter((field.plane, field.uplink) for field in fields)
    per_plane = [planes_used[plane] for plane in range(planes)]
    per_path = [
        paths_used[plane, uplink] for plane in range(planes) for uplink in range(1, max(1, uplinks) + 1)
    ]
    for shares in (per_plane, per_path):
        assert sum(shares) == count, "no EV lies outside the topology"
        assert max(shares) - min(shares) <= 1


def test_f_has_sixteen_paths_of_eight() -> None:
    shares = Counter((ev_fields(ev).plane, ev_fields(ev).uplink) for ev in ev_set(128, 4, 4))
    assert set(shares.values()) == {8}
    assert len(shares) == 16


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ev_value(8, 1), "plane must be between 0 and 7, got 8"),
        (lambda: ev_value(0, 0), "uplink must be between 1 and 255, got 0"),
        (lambda: ev_value(0, 256), "uplink must be between 1 and 255, got 256"),
        (lambda: ev_value(0, 1, 65536), "replica must be between 0 and 65535, got 65536"),
        (lambda: ev_fields(0x80010000), "EV must be 32 bits that begin with 0b11000, got 0x80010000"),
        (lambda: ev_fields(0x1C0010000), "EV must be 32 bits that begin with 0b11000, got 0x1c0010000"),
        (lambda: ev_set(0, 4, 2), "count must be between 1 and 524288, got 0"),
        (lambda: ev_set(8, 9, 2), "planes must be between 1 and 8, got 9"),
        (
            lambda: UsidPlan(quickstart()).outer_destination(0, 2, 0, 3),
            "uplink must be between 1 and 2, got 3",
        ),
        (lambda: UsidPlan(quickstart()).outer_destination(0, 2, 0), "uplink must be between 1 and 2, got 0"),
        (lambda: UsidPlan(quickstart()).inner_address(4), "host must be between 0 and 3, got 4"),
        (
            lambda: UsidPlan(quickstart()).template(0, 2).outer_source(8),
            "plane must be between 0 and 7, got 8",
        ),
    ],
)
def test_messages(call, message: str) -> None:
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value) == message
