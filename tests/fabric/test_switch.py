"""Shift-and-forward: what every switch makes of a frame, hop by hop.

Sweep: all paths between all hosts of the quickstart topology; plain addresses with 64 flow labels; frames
with a routing header; frames a switch must drop.
Stimulus: single frames from a NIC port, far apart in time.
Checks: outer destination, hop limit, MAC addresses and unchanged rest on each link; the host that receives;
the reason counter of every drop and its place.
Timing: none beyond order.
"""

from __future__ import annotations

from ipaddress import IPv6Address

import pytest

from fabric.traffic import build_frame, outer, quickstart, run, star
from mrc_host.fabric.links import Direction
from mrc_host.fabric.model import Fabric
from mrc_host.fabric.packet import DropReason, Packet, QueueClass
from mrc_host.fabric.spec import TopologySpec
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import UsidPlan
from mrc_rtl import wire

LONG_PS = 100_000_000
FIRST_PS = 2_000_000


def send_one(topology: Topology, port: int, frame: bytes, seed: int = 0):
    """Send one frame; return arrivals, the frames seen on each direction, and the fabric."""
    fabric = Fabric(topology, seed=seed)
    seen: list[tuple[str, bytes]] = []

    def look(direction: Direction, time_ps: int, data: bytes) -> None:
        seen.append((direction.name, data))

    fabric.tap("*", look)
    arrivals = run(fabric, [(FIRST_PS, port, frame)], LONG_PS)
    return arrivals, seen, fabric


def text(address: int) -> str:
    return str(IPv6Address(address))


def test_hop_by_hop_as_in_appendix_b() -> None:
    spec = TopologySpec(hosts=18 * 8, planes=6, t0_per_plane=18, t1_per_plane=0x2A, rate_gbps=100)
    topology = Topology(spec)
    source, target = 2 * 8, 0x10 * 8 + 6
    frame = build_frame(topology, source, target, 5, 0x2A, mark=0xABCDEF)
    arrivals, seen, _ = send_one(topology, topology.nic_port(source, 5), frame)
    assert [(name, text(outer(data)["destination"]), outer(data)["hop_limit"]) for name, data in seen] == [
        ("h16.p5>p5.t0.3.d1", "5f00:0:5003:542a:5011:5807::", 64),
        ("p5.t0.3.u42>p5.t1.42.d3", "5f00:0:542a:5011:5807::", 63),
        ("p5.t1.42.d17>p5.t0.17.u42", "5f00:0:5011:5807::", 62),
        ("p5.t0.17.d7>h134.p5", "5f00:0:5807::", 61),
    ]
    [arrival] = arrivals
    assert (arrival.nic, arrival.port, arrival.sequence) == (134, 5, 1)
    assert arrival.frame == seen[-1][1]
    assert arrival.frame[54:] == frame[54:], "nothing behind the outer header changes"
    assert arrival.frame[12:21] == frame[12:21], "type, traffic class, flow label, length stay"


def test_mac_addresses_change_on_every_link() -> None:
    topology = quickstart()
    plan = UsidPlan(topology)
    frame = build_frame(topology, 0, 3, 1, 2)
    _, seen, _ = send_one(topology, topology.nic_port(0, 1), frame)
    t0a, t0b = (topology.switches[topology.t0_number(1, index)] for index in (1, 2))
    t1 = topology.switches[topology.t1_number(1, 2)]
    chain = [
        plan.host_mac(0, 1),
        *(plan.switch_mac(switch) for switch in (t0a, t1, t0b)),
        plan.host_mac(3, 1),
    ]
    wanted = [(chain[i + 1].to_bytes(6, "big"), chain[i].to_bytes(6, "big")) for i in range(4)]
    assert [(data[:6], data[6:12]) for _, data in seen] == wanted


def test_every_path_reaches_its_host() -> None:
    topology = quickstart()
    for source in range(topology.hosts):
        for target in range(topology.hosts):
            for path in topology.paths(source, target):
                frame = build_frame(topology, source, target, path.plane, path.uplink)
                port = topology.nic_port(source, path.plane)
                arrivals, seen, _ = send_one(topology, port, frame)
                assert [(arrival.nic, arrival.port) for arrival in arrivals] == [(target, path.plane)]
                assert [name for name, _ in seen] == [half.name for half in path.directions]


def test_reduced_routing_header_continues_the_list() -> None:
    """RFC 8754 4.1 and profile.md 6: Segments Left 1, Last Entry 0, list ends in the T1."""
    topology = quickstart()
    plan = UsidPlan(topology)
    whole = plan.outer_destination(0, 2, 3, 1)
    usids = [whole >> shift & 0xFFFF for shift in (80, 64, 48, 32)]
    srh = wire.SRH.pack(segment=wire.outer_address(usids[2:])).to_bytes(wire.SRH.bytes, "big")
    frame = build_frame(
        topology,
        0,
        2,
        3,
        destination=wire.outer_address(usids[:2]),
        next_header=wire.NextHeader.ROUTING,
        payload=srh + bytes(100),
        size=54 + wire.SRH.bytes + 100,
    )
    arrivals, seen, _ = send_one(topology, topology.nic_port(0, 3), frame)
    assert [text(outer(data)["destination"]) for _, data in seen] == [
        "5f00:0:3001:3401::",
        "5f00:0:3401::",
        "5f00:0:3002:3801::",
        "5f00:0:3801::",
    ]
    assert [data[54 + 3] for _, data in seen] == [1, 1, 0, 0], "Segments Left"
    assert arrivals[0].nic == 2
    assert arrivals[0].frame[54 + 4 :] == frame[54 + 4 :]


def test_plain_addresses_take_one_of_the_uplinks() -> None:
    topology = quickstart()
    plan = UsidPlan(topology)
    used = set()
    for flow_label in range(64):
        frame = build_frame(topology, 0, 3, destination=plan.inner_address(3), flow_label=flow_label)
        arrivals, seen, _ = send_one(topology, 0, frame, seed=5)
        assert [(arrival.nic, arrival.port) for arrival in arrivals] == [(3, 0)]
        again = send_one(topology, 0, frame, seed=5)[1]
        assert [name for name, _ in again] == [name for name, _ in seen]
        used.add(seen[1][0])
    assert used == {"p0.t0.1.u1>p0.t1.1.d1", "p0.t0.1.u2>p0.t1.2.d1"}


def test_udp_ports_enter_the_hash() -> None:
    topology = quickstart()
    destination = UsidPlan(topology).inner_address(3)
    used = set()
    for port in range(32):
        udp = wire.UDP.pack(source_port=0xC000 + port, length=8 + 92).to_bytes(8, "big")
        frame = build_frame(
            topology, 0, 3, destination=destination, next_header=17, payload=udp + bytes(92), size=154
        )
        used.add(send_one(topology, 0, frame)[1][1][0])
    assert len(used) == 2


def test_plain_address_within_a_t0() -> None:
    topology = quickstart()
    frame = build_frame(topology, 0, 1, destination=UsidPlan(topology).inner_address(1))
    arrivals, seen, _ = send_one(topology, 0, frame)
    assert arrivals[0].nic == 1
    assert len(seen) == 2


@pytest.mark.parametrize("hop_limit", [0, 1, 2, 3])
def test_hop_limit_ends_at_the_right_switch(hop_limit: int) -> None:
    topology = quickstart()
    frame = build_frame(topology, 0, 2, 0, 1, hop_limit=hop_limit)
    arrivals, seen, fabric = send_one(topology, 0, frame)
    assert arrivals == []
    assert len(seen) == max(1, hop_limit)
    assert fabric.totals().drops == {DropReason.HOP_LIMIT: 1}
    came_by = topology.path(0, 2, 0, 1).directions[len(seen) - 1]
    assert fabric.counters()[came_by.number].drops == {DropReason.HOP_LIMIT: 1}


def test_hop_limit_four_just_arrives() -> None:
    topology = quickstart()
    arrivals, _, _ = send_one(topology, 0, build_frame(topology, 0, 2, 0, 1, hop_limit=4))
    assert outer(arrivals[0].frame)["hop_limit"] == 1


def test_a_list_with_a_foreign_first_usid_is_routed_unshifted() -> None:
    """A /48 route is a route: a T0 sends a list that begins with a T1 to that T1 as it is."""
    topology = quickstart()
    whole = UsidPlan(topology).outer_destination(0, 2, 0, 2)
    usids = [whole >> shift & 0xFFFF for shift in (64, 48, 32)]
    frame = build_frame(topology, 0, 2, destination=wire.outer_address(usids))
    arrivals, seen, _ = send_one(topology, 0, frame)
    assert arrivals[0].nic == 2
    assert outer(seen[1][1])["destination"] == wire.outer_address(usids)


DROPS = [
    ("5f00:0:1::", DropReason.END_OF_LIST, 1),
    ("5f00:0:1:403:2:801::", DropReason.NO_ROUTE, 1),  # no third T1
    ("5f00:0:1:1:401::", DropReason.NO_ROUTE, 1),  # the same switch twice
    ("5f00:0:1:0:401::", DropReason.NO_ROUTE, 1),  # a hole in the list
    ("5f00:0:1:402::", DropReason.END_OF_LIST, 2),
    ("5f00:0:1:401:3::", DropReason.NO_ROUTE, 2),  # no third T0
    ("5f00:0:1:401:1002::", DropReason.NO_ROUTE, 2),  # a T0 of another plane
    ("5f01:0:1:401::", DropReason.NO_ROUTE, 1),  # another block
    ("fd00:0:0:4::1", DropReason.NO_ROUTE, 2),  # inner prefix, no such host: the T1 knows
    ("2001:db8::1", DropReason.NO_ROUTE, 1),
]


@pytest.mark.parametrize(("destination", "reason", "hops"), DROPS)
def test_destinations_without_a_way(destination: str, reason: DropReason, hops: int) -> None:
    topology = quickstart()
    frame = build_frame(topology, 0, 2, destination=int(IPv6Address(destination)))
    arrivals, seen, fabric = send_one(topology, 0, frame)
    assert arrivals == []
    assert len(seen) == hops
    assert fabric.totals().drops == {reason: 1}


def test_frames_that_are_not_for_the_switch() -> None:
    topology = star(2)
    good = build_frame(topology, 0, 1)
    wrong_mac = b"\x02\x00\x00\x00\x00\x01" + good[6:]
    bad = [
        (wrong_mac, DropReason.WRONG_MAC),
        (good[:12] + b"\x08\x00" + good[14:], DropReason.NOT_IPV6),
        (good[:14] + b"\x46" + good[15:], DropReason.NOT_IPV6),
        (good[:53], DropReason.NOT_IPV6),
        (b"", DropReason.NOT_IPV6),
    ]
    for frame, reason in bad:
        arrivals, _, fabric = send_one(topology, 0, frame)
        assert arrivals == []
        assert fabric.totals().drops == {reason: 1}


def test_shortest_frame_passes_whatever_its_length_field_says() -> None:
    topology = star(2)
    frame = build_frame(topology, 0, 1, size=1000)[:54]
    arrivals, _, _ = send_one(topology, 0, frame)
    assert len(arrivals[0].frame) == 54


@pytest.mark.parametrize("dscp", range(64))
def test_class_of_every_dscp(dscp: int) -> None:
    packet = Packet.of_frame(build_frame(star(2), 0, 1, dscp=dscp))
    known = {
        12: QueueClass.CONTROL,
        16: QueueClass.CONTROL,
        46: QueueClass.CONTROL,
        10: QueueClass.RETRANSMISSION,
    }
    assert packet.queue == known.get(dscp, QueueClass.DATA)
    assert packet.is_trimmed == (dscp in (12, 16))
