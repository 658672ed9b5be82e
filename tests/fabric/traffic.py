"""Frames and traffic for the tests of the fabric; no tests here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hypothesis import strategies as st

from mrc_host.fabric.model import Arrival, Fabric
from mrc_host.fabric.spec import TopologySpec
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import UsidPlan
from mrc_rtl import wire
from mrc_rtl.wire import Dscp, Ecn

Send = tuple[int, int, bytes]
"""(time of last bit in ps, NIC port, frame)"""


def quickstart(**changes: object) -> Topology:
    """The topology of the quickstart experiment, with changes."""
    keys: dict[str, object] = {
        "hosts": 4,
        "planes": 4,
        "t0_per_plane": 2,
        "t1_per_plane": 2,
        "rate_gbps": 6.25,
        "host_link_delay_ns": 1000,
        "t1_link_delay_ns": [1000, 5000],
    }
    return Topology(TopologySpec.model_validate(keys | changes))


def star(hosts: int, **changes: object) -> Topology:
    """A star of 100 Gb/s links (80 ps a byte) with 1 µs delay."""
    keys: dict[str, object] = {"hosts": hosts, "planes": 1, "rate_gbps": 100}
    return Topology(TopologySpec.model_validate(keys | changes))


@st.composite
def specs(draw: st.DrawFn) -> TopologySpec:
    """Random topologies that can be built."""
    t1 = draw(st.integers(0, 4))
    t0 = draw(st.integers(1, 4)) if t1 else 1
    delay = st.integers(1, 20_000).map(float)
    return TopologySpec(
        hosts=t0 * draw(st.integers(1, 3)),
        planes=draw(st.integers(1, 8)),
        t0_per_plane=t0,
        t1_per_plane=t1,
        rate_gbps=draw(st.sampled_from([1, 6.25, 12.5, 40, 100, 400])),
        t1_rate_gbps=draw(st.sampled_from([None, 25, 3])),
        host_link_delay_ns=draw(delay),
        t1_link_delay_ns=draw(st.one_of(delay, st.lists(delay, min_size=t1, max_size=t1))),
        switch_latency_ns=draw(st.sampled_from([0, 350.5])),
    )


def build_frame(
    topology: Topology,
    source: int,
    target: int,
    plane: int = 0,
    uplink: int | None = None,
    *,
    size: int = 1000,
    dscp: int = Dscp.NO_TRIM,
    hop_limit: int = wire.HOP_LIMIT,
    mark: int = 0,
    destination: int | None = None,
    next_header: int = wire.NextHeader.IPV6,
    flow_label: int = 0,
    payload: bytes | None = None,
) -> bytes:
    """A frame of ``size`` bytes with a real outer header; ``mark`` tells frames apart."""
    plan = UsidPlan(topology)
    if destination is None:
        destination = plan.outer_destination(source, target, plane, uplink)
    ethernet = wire.ETHERNET.pack(
        destination=plan.next_hop_mac(source, plane), source=plan.host_mac(source, plane)
    )
    header_bytes = wire.ETHERNET.bytes + wire.IPV6.bytes
    ip = wire.IPV6.pack(
        traffic_class=dscp << 2 | Ecn.ECT0,
        flow_label=flow_label,
        payload_length=size - header_bytes,
        next_header=next_header,
        hop_limit=hop_limit,
        source=plan.outer_source(source, plane),
        destination=destination,
    )
    body = mark.to_bytes(size - header_bytes, "big") if payload is None else payload
    return ethernet.to_bytes(wire.ETHERNET.bytes, "big") + ip.to_bytes(wire.IPV6.bytes, "big") + body


def outer(frame: bytes) -> dict[str, int]:
    """The fields of a frame's outermost IPv6 header."""
    at = wire.ETHERNET.bytes
    return wire.IPV6.unpack(int.from_bytes(frame[at : at + wire.IPV6.bytes], "big"))


def run(
    fabric: Fabric,
    sends: Iterable[Send],
    until_ps: int,
    window_ps: int | None = None,
    order: Callable[[list[Send]], list[Send]] = lambda batch: batch,
) -> list[Arrival]:
    """Drive a fabric as the runner does: advance by a window, then hand in the frames of that window."""
    window = window_ps or fabric.lookahead_ps
    waiting = sorted(sends, key=lambda send: send[:2])
    arrivals: list[Arrival] = []
    at = 0
    while fabric.now_ps < until_ps:
        end = min(fabric.now_ps + window, until_ps)
        arrivals += fabric.advance(end)
        batch = []
        while at < len(waiting) and waiting[at][0] < end:
            batch.append(waiting[at])
            at += 1
        for time, port, frame in order(batch):
            fabric.transmit(port, time, frame)
    assert at == len(waiting), "the run was too short for its traffic"
    return arrivals
