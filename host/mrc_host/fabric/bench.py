"""How fast the event model is, for ``nox -s bench``."""

from __future__ import annotations

import time

from mrc_host.fabric.bounds import data_frame_bytes
from mrc_host.fabric.model import Fabric
from mrc_host.fabric.spec import TopologySpec
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import UsidPlan
from mrc_rtl.wire import ETHERNET, IPV6, Dscp, Ecn, NextHeader

__all__ = ["fabric_packets_per_second"]


def fabric_packets_per_second(packets: int = 20_000) -> float:
    """Return packets a second through the quickstart fabric: 4 hosts, 4 planes, three switches on each way.

    All NIC ports send frames of 4096 bytes of payload at line rate to the peer across the T1 switches, both
    T1 in turn; windows are the look-ahead; queues are sampled every 10 µs.

    Parameters
    ----------
    packets : int
        Packets to send, at least 16; the best of three runs counts.
    """
    spec = TopologySpec(
        hosts=4, planes=4, t0_per_plane=2, t1_per_plane=2, rate_gbps=6.25, t1_link_delay_ns=[1000.0, 5000.0]
    )
    topology = Topology(spec)
    return max(_one_run(topology, packets) for _ in range(3))


def _one_run(topology: Topology, packets: int) -> float:
    size = data_frame_bytes(4096)
    ports = [(host, plane) for host in range(topology.hosts) for plane in range(topology.planes)]
    frames = {
        (host, plane, uplink): _frame(UsidPlan(topology), host, (host + 2) % 4, plane, uplink, size)
        for host, plane in ports
        for uplink in (1, 2)
    }
    slot = topology.directions[0].slot_ps(size)
    fabric = Fabric(topology, sample_interval_ps=10_000_000)
    rounds = packets // len(ports)
    window = fabric.lookahead_ps
    sent = received = 0
    begin = time.perf_counter()
    while received < rounds * len(ports):
        received += len(fabric.advance(fabric.now_ps + window))
        while sent < rounds and (sent + 1) * slot < fabric.now_ps:
            sent += 1
            for host, plane in ports:
                frame = frames[host, plane, (sent + plane) % 2 + 1]
                fabric.transmit(topology.nic_port(host, plane), sent * slot, frame)
    return received / (time.perf_counter() - begin)


def _frame(plan: UsidPlan, source: int, target: int, plane: int, uplink: int, size: int) -> bytes:
    ethernet = ETHERNET.pack(
        destination=plan.next_hop_mac(source, plane), source=plan.host_mac(source, plane)
    )
    header_bytes = ETHERNET.bytes + IPV6.bytes
    ip = IPV6.pack(
        traffic_class=Dscp.NO_TRIM << 2 | Ecn.ECT0,
        payload_length=size - header_bytes,
        next_header=NextHeader.IPV6,
        source=plan.outer_source(source, plane),
        destination=plan.outer_destination(source, target, plane, uplink),
    )
    headers = ethernet.to_bytes(ETHERNET.bytes, "big") + ip.to_bytes(IPV6.bytes, "big")
    return headers + bytes(size - header_bytes)
