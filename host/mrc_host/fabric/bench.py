"""How fast the event model is, for ``nox -s bench``; ``python -m mrc_host.fabric.bench`` prints a table.

Speeds are packets a second of CPU time of one core, so that other programs on the machine matter little.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from mrc_host.fabric import model
from mrc_host.fabric.bounds import data_frame_bytes
from mrc_host.fabric.model import Fabric
from mrc_host.fabric.packet import Packet, route_key
from mrc_host.fabric.spec import TopologySpec
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import UsidPlan
from mrc_rtl.wire import ETHERNET, IPV6, Dscp, Ecn, NextHeader

__all__ = ["FABRICS", "fabric_packets_per_second"]

FABRICS = {
    "quickstart": TopologySpec(
        hosts=4, planes=4, t0_per_plane=2, t1_per_plane=2, rate_gbps=6.25, t1_link_delay_ns=[1000.0, 5000.0]
    ),
    "F": TopologySpec(hosts=8, planes=4, t0_per_plane=2, t1_per_plane=4, rate_gbps=100),
    "128": TopologySpec(hosts=128, planes=4, t0_per_plane=8, t1_per_plane=8, rate_gbps=100),
}
"""Fabrics by name: that of the quickstart, F of profile.md 1, and one of 128 hosts."""

RUNS = 3
TRAFFIC_CLASS = Dscp.NO_TRIM << 2 | Ecn.ECT0


class _Object(Packet):
    """A packet that stands for one of a model of a NIC."""

    __slots__ = ("_built",)

    def __init__(self, frame: bytes, key: bytes) -> None:
        super().__init__()
        self._built = frame
        self.enter(len(frame), TRAFFIC_CLASS, key)

    def make_frame(self) -> bytes:
        """Return the frame that was built before the run."""
        return self._built


def fabric_packets_per_second(
    packets: int = 20_000, fabric: str = "quickstart", *, objects: bool = False
) -> float:
    """Return packets a second through a fabric, three switches on each way.

    All NIC ports send frames of 4096 bytes of payload at line rate to the peer across the T1 switches, all
    T1 in turn; windows are the look-ahead; queues are sampled every 10 µs.

    Parameters
    ----------
    packets : int
        Packets to send, at least one for each NIC port; the best of three runs counts.
    fabric : str
        One of :data:`FABRICS`.
    objects : bool
        NICs hand over and take packets as objects instead of bytes.
    """
    topology = Topology(FABRICS[fabric])
    return max(_one_run(topology, packets, objects) for _ in range(RUNS))


def _one_run(topology: Topology, packets: int, objects: bool) -> float:
    size = data_frame_bytes(4096)
    hosts, uplinks = topology.hosts, topology.t1_per_plane
    plan = UsidPlan(topology)
    ports = [(host, plane) for host in range(hosts) for plane in range(topology.planes)]
    frames = {
        (host, plane, uplink): _frame(plan, host, (host + hosts // 2) % hosts, plane, uplink, size)
        for host, plane in ports
        for uplink in range(1, uplinks + 1)
    }
    keys = {way: route_key(frame) for way, frame in frames.items()}
    slot = topology.directions[0].slot_ps(size)
    fabric = Fabric(topology, sample_interval_ps=10_000_000)
    rounds = packets // len(ports)
    window = fabric.lookahead_ps
    advance = fabric.advance_packets if objects else fabric.advance
    sent = received = 0
    begin = time.process_time()
    while received < rounds * len(ports):
        received += len(advance(fabric.now_ps + window))
        while sent < rounds and (sent + 1) * slot < fabric.now_ps:
            sent += 1
            for number, (host, plane) in enumerate(ports):
                way = host, plane, (sent + plane + host) % uplinks + 1
                if objects:
                    fabric.transmit_packet(number, sent * slot, _Object(frames[way], keys[way]))
                else:
                    fabric.transmit(number, sent * slot, frames[way])
    return received / (time.process_time() - begin)


def _frame(plan: UsidPlan, source: int, target: int, plane: int, uplink: int, size: int) -> bytes:
    ethernet = ETHERNET.pack(
        destination=plan.next_hop_mac(source, plane), source=plan.host_mac(source, plane)
    )
    header_bytes = ETHERNET.bytes + IPV6.bytes
    ip = IPV6.pack(
        traffic_class=TRAFFIC_CLASS,
        payload_length=size - header_bytes,
        next_header=NextHeader.IPV6,
        source=plan.outer_source(source, plane),
        destination=plan.outer_destination(source, target, plane, uplink),
    )
    headers = ethernet.to_bytes(ETHERNET.bytes, "big") + ip.to_bytes(IPV6.bytes, "big")
    return headers + bytes(size - header_bytes)


def main(packets: int = 20_000) -> None:
    """Print the speed on every fabric, as bytes and as objects."""
    print(f"event loop: {Path(model.__file__).name}, {packets} packets a run")
    for name in FABRICS:
        speeds = [fabric_packets_per_second(packets, name, objects=objects) for objects in (False, True)]
        print(f"{name:>10}: {speeds[0]:8.0f} packets/s as bytes, {speeds[1]:8.0f} as objects", flush=True)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
