"""Captures of links, and the speed measurement.

Sweep: one link, a pattern, a size cap.
Stimulus: one frame each way across the quickstart fabric.
Checks: interfaces, directions, time stamps by hand, frames as the NICs see them; the bench moves packets.
Timing: simulated picoseconds, exact.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric.traffic import build_frame, quickstart, run
from mrc_host.fabric.bench import fabric_packets_per_second
from mrc_host.fabric.capture import capture_link
from mrc_host.fabric.model import Fabric
from mrc_host.packets.pcapng import read_capture

LONG_PS = 100_000_000
SLOT_PS = 1024 * 1280


def test_both_directions_of_a_nic_port(tmp_path: Path) -> None:
    topology = quickstart()
    fabric = Fabric(topology)
    out, back = build_frame(topology, 0, 2, 0, 1), build_frame(topology, 2, 0, 0, 1)
    path = tmp_path / "h0.p0.pcapng"
    with capture_link(fabric, "h0-p0.t0.1", path) as writer:
        sends = [(2_000_000, 0, out), (3_000_000, topology.nic_port(2, 0), back)]
        arrivals = run(fabric, sends, LONG_PS)
    assert writer.frames == 2
    frames = list(read_capture(path))
    assert [frame.data for frame in frames] == [out, arrivals[1].frame]
    assert [frame.interface for frame in frames] == ["h0.p0", "h0.p0"]
    assert [frame.time_ps for frame in frames] == [2_000_000 - SLOT_PS, arrivals[1].time_first_bit_ps]
    assert [frame.direction for frame in frames] == [2, 1]


def test_pattern_makes_an_interface_per_link(tmp_path: Path) -> None:
    topology = quickstart()
    fabric = Fabric(topology)
    path = tmp_path / "uplinks.pcapng"
    with capture_link(fabric, "p0.t0.1-p0.t1.*", path):
        sends = [(2_000_000 * (i + 1), 0, build_frame(topology, 0, 2, 0, i + 1)) for i in range(2)]
        run(fabric, sends, LONG_PS)
    assert [frame.interface for frame in read_capture(path)] == ["p0.t0.1.u1", "p0.t0.1.u2"]


def test_cap_keeps_the_file_small(tmp_path: Path) -> None:
    topology = quickstart()
    fabric = Fabric(topology)
    path = tmp_path / "capped.pcapng"
    with capture_link(fabric, "h0-p0.t0.1", path, max_bytes=8_000) as writer:
        frame = build_frame(topology, 0, 2, 0, 1)
        run(fabric, [(2_000_000 * (i + 1), 0, frame) for i in range(20)], LONG_PS)
    assert path.stat().st_size <= 8_000
    assert 0 < writer.frames < 20 == writer.frames + writer.discarded


def test_unknown_link_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="link must be a name such as"):
        capture_link(Fabric(quickstart()), "h7-*", tmp_path / "none.pcapng")
    assert list(tmp_path.iterdir()) == []


def test_bench_moves_packets() -> None:
    assert fabric_packets_per_second(160) > 100
