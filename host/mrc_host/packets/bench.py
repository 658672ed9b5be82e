"""How fast the codec is, for ``nox -s bench``.

Source: interfaces.md, Metric names (``codec_packets_per_second``).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mrc_rtl.wire import Opcode, Tier, ev_value, inner_address, mac_address, outer_address, usid_value

from .codec import build, decode, encode
from .peek import peek

__all__ = ["codec_packets_per_second", "peek_packets_per_second", "sample_frame"]


def sample_frame(payload_bytes: int = 4096) -> bytes:
    """Return an SRv6 write with TSETH from host 1 to host 2 over plane 0."""
    plane, uplink = 0, 1
    ev = ev_value(plane, uplink)
    own, peer = ((usid_value(plane, Tier.T0, host), usid_value(plane, Tier.HOST, 1)) for host in (1, 2))
    path = (own[0], usid_value(plane, Tier.T1, uplink), *peer)
    common = {"traffic_class": 0x22, "flow_label": ev & 0xFFFF}
    return build(
        ("ethernet", {"source": mac_address(plane, 1), "destination": mac_address(plane, 2)}),
        ("ipv6", {**common, "source": outer_address(own), "destination": outer_address(path)}),
        ("ipv6", {**common, "source": inner_address(1), "destination": inner_address(2)}),
        ("udp", {"source_port": ev >> 16}),
        ("bth", {"opcode": Opcode.WRITE_ONLY, "dest_qp": 0x12, "psn": 0x345}),
        ("meth", {"msn": 7}),
        ("tseth", {"tx_timestamp": 0x1234}),
        ("reth", {"va": 0x7F0012345000, "rkey": 0xDEADBEEF, "dma_len": payload_bytes}),
        payload=bytes(index & 0xFF for index in range(payload_bytes)),
    )


def _rate(step: Callable[[], object], seconds: float) -> float:
    """Return calls per second: the best of five slices, so that a busy machine disturbs little."""
    best = 0.0
    for _ in range(5):
        count = 0
        begin = time.perf_counter()
        end = begin + seconds / 5
        while (now := time.perf_counter()) < end:
            for _ in range(200):
                step()
            count += 200
        best = max(best, count / (now - begin))
    return best


def codec_packets_per_second(seconds: float = 1.0) -> float:
    """Return how many 4096-byte SRv6 writes a second are decoded and encoded again."""
    frame = sample_frame()
    return _rate(lambda: encode(decode(frame)), seconds)


def peek_packets_per_second(seconds: float = 1.0) -> float:
    """Return how many frames a second :func:`mrc_host.packets.peek.peek` looks into."""
    frame = sample_frame()
    return _rate(lambda: peek(frame), seconds)
