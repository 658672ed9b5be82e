"""Waveforms of a verilated NIC: windows of time, one sample a cycle, and the same run as without.

Sweep: one window, two windows, a window behind the end, none.
Stimulus: frames through the stand-in engine.
Checks: times in the VCD file, signals by their names, frames and times as without waveforms, errors.
Timing: simulated.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from stand_in import StandIn

from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_host.nic.verilated import VerilatedNic
from mrc_host.nic.waves import WavesNic
from mrc_rtl.config import NicConfig
from mrc_rtl.toolchain import verilog_of

CONFIG = NicConfig(planes=2, data_width=128, clock_ps=4_000, trace=True)
OPTIONS = (MacOptions(gbps=10, fifo_bytes=256), MemoryOptions(size=1 << 20))


def waves_nic(file: Path) -> WavesNic:
    return WavesNic(CONFIG, *OPTIONS, file=file, verilog=verilog_of(StandIn(CONFIG)))


def frames(nic: VerilatedNic) -> list[tuple[int, int, bytes]]:
    """Send a frame every 2 µs for 20 µs; return what leaves, with times."""
    for number in range(10):
        nic.deliver(number % 2, 2_000_000 * number + 100_000, bytes([number]) * 300)
    out = nic.run(25_000_000)
    return [(frame.time_last_bit_ps, frame.port, frame.data) for frame in out.frames]


def times(file: Path) -> list[int]:
    return [int(time) for time in re.findall(r"^#(\d+)$", file.read_text(), re.MULTILINE)]


def test_a_window_is_all_that_is_written(tmp_path: Path) -> None:
    nic = waves_nic(tmp_path / "w.vcd")
    nic.show(6_000_000, 7_000_000)
    frames(nic)
    samples = nic.samples
    nic.close()
    seen = times(tmp_path / "w.vcd")
    assert samples >= len(seen) > 40
    assert min(seen) >= 6_000_000 and max(seen) <= 7_000_000
    assert {time % 4_000 for time in seen} == {0}
    text = (tmp_path / "w.vcd").read_text()
    assert "$timescale 1ps" in re.sub(r"\s+", " ", text)
    for name in ("receive_0__tdata", "transmit_1__tvalid", "now"):
        assert re.search(rf"\$var wire +\d+ +\S+ {name}\b", text), name


def test_several_windows_share_a_file(tmp_path: Path) -> None:
    nic = waves_nic(tmp_path / "w.vcd")
    nic.show(2_000_000, 2_500_000)
    nic.show(10_000_000, 10_500_000)
    frames(nic)
    nic.close()
    seen = times(tmp_path / "w.vcd")
    assert [time for time in seen if 2_500_000 < time < 10_000_000] == []
    assert min(seen) < 2_500_000 and max(seen) > 10_000_000


def test_the_run_is_the_same_as_without(tmp_path: Path, stand_in) -> None:
    nic = waves_nic(tmp_path / "w.vcd")
    nic.show(1_000_000, 20_000_000)
    plain = stand_in()
    assert frames(nic) == frames(plain)
    assert nic.statistics.cycles_clocked == plain.statistics.cycles_clocked
    nic.close()
    plain.close()


def test_without_a_window_there_is_no_file(tmp_path: Path) -> None:
    nic = waves_nic(tmp_path / "w.vcd")
    frames(nic)
    with pytest.raises(ValueError, match=r"end_ps must be after 25000000, got 20000000"):
        nic.show(10_000_000, 20_000_000)
    nic.close()
    assert not (tmp_path / "w.vcd").exists()
