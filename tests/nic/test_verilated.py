"""VerilatedNic around the stand-in engine.

Sweep: frame sizes around every multiple of the width, line rates, windows, skipping on and off, memory
    latency and stalls, threads.
Stimulus: frames looped from port to port, copies in memory, register accesses, a timer, link changes.
Checks: every byte, exact line spacing, outputs equal for any windows, errors by text.
Timing: one compiled engine; a few seconds.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from stand_in import (
    BEATS,
    COPIES,
    DEADLINE,
    DESTINATION,
    LINKS,
    MAGIC,
    RESPONSES,
    SCRATCH,
    SOURCE,
    STAMP,
)

from mrc_host.errors import ConfigError, InfrastructureError
from mrc_host.nic.base import NEVER, RegisterError, RegisterRead
from mrc_host.nic.options import MemoryOptions
from mrc_host.nic.pins import ModelPort, engine_ports, parse_ports, pins_header

MICROSECOND = 1_000_000
CLOCK_PS = 4_000


def pattern(length, seed=0):
    return np.random.default_rng(seed).integers(0, 256, length, dtype=np.uint8).tobytes()


def byte_time(gbps):
    return Fraction(8000) / Fraction(gbps)


def up(value):
    return -(-value.numerator // value.denominator)


def run_all(nic, until, window):
    """Run in windows and return everything that came out."""
    frames, watches, reads, trace = [], [], [], []
    for end in itertools.count(nic.time_ps + window, window):
        outputs = nic.run(min(end, until))
        frames += outputs.frames
        watches += outputs.watches
        reads += outputs.reads
        trace += outputs.trace
        if end >= until:
            return frames, watches, reads, trace


@pytest.mark.parametrize("length", [1, 15, 16, 17, 60, 64, 127, 128, 129, 1500, 4242])
def test_frames_of_any_size_pass(stand_in, length):
    nic = stand_in()
    frame = pattern(length)
    nic.deliver(0, 1000, frame)
    nic.deliver(1, 2000, frame[::-1])
    frames = nic.run(20 * MICROSECOND).frames
    assert {(item.port, item.sequence, item.data) for item in frames} == {(1, 0, frame), (0, 0, frame[::-1])}
    assert nic.statistics.receive_stalls == 0


@pytest.mark.parametrize("gbps", [1, Fraction(25, 4), 12.5, 32])
@pytest.mark.parametrize("length", [64, 100, 1500])
def test_back_to_back_frames_leave_at_line_rate(stand_in, gbps, length):
    nic = stand_in(gbps=gbps)
    slot = byte_time(gbps) * (length + 24)
    for number in range(20):
        nic.deliver(0, up(slot * number), pattern(length, number))
    frames = nic.run(up(slot * 20) + 5 * MICROSECOND).frames
    assert [frame.data for frame in frames] == [pattern(length, number) for number in range(20)]
    times = [frame.time_last_bit_ps for frame in frames]
    # The engine adds some cycles, the line sets the pace: never faster than a slot, and on average exact.
    assert all(later - earlier >= int(slot) for earlier, later in itertools.pairwise(times))
    assert abs(times[-1] - times[0] - 19 * slot) <= 2 * CLOCK_PS + 20
    # Cut through the engine, the frame can at best leave as fast as it arrives.
    received = byte_time(gbps) * (8 + length + 4)
    assert received <= times[0] <= received + byte_time(gbps) * (8 + length + 4) + 12 * CLOCK_PS


def test_last_bit_of_a_lone_frame_is_exact(stand_in):
    nic = stand_in(gbps=Fraction(25, 4))
    byte = 1280
    nic.deliver(0, 10_000, pattern(16))
    (frame,) = nic.run(MICROSECOND).frames
    # The only beat is presented in the first cycle that begins after preamble, data and FCS; the loop has a
    # buffered FIFO (two cycles); then preamble, data and FCS leave, counted from the end of that cycle.
    presented = -(-(10_000 + (8 + 16 + 4) * byte) // CLOCK_PS) * CLOCK_PS
    taken = presented + 2 * CLOCK_PS
    assert frame.time_last_bit_ps == taken + CLOCK_PS + (8 + 16 + 4) * byte


def test_overlapping_frames_are_received_one_after_the_other(stand_in):
    nic = stand_in(gbps=10)
    for number in range(3):
        nic.deliver(0, 5000, pattern(200, number))
    frames = nic.run(5 * MICROSECOND).frames
    assert [frame.data for frame in frames] == [pattern(200, number) for number in range(3)]


def test_bad_frames_are_marked_on_the_last_beat(stand_in):
    nic = stand_in()
    nic.deliver(0, 0, bytes(40), bad_fcs=True)
    (frame,) = nic.run(MICROSECOND).frames
    assert frame.data == bytes(32) + b"\xbd" + bytes(7)


def test_registers_now_and_at_a_time(stand_in):
    nic = stand_in()
    assert nic.read32(0) == MAGIC
    nic.write32(SCRATCH, 0xDEADBEEF)
    assert nic.read32(SCRATCH) == 0xDEADBEEF
    nic.schedule_write(300 * MICROSECOND, SCRATCH, 3)
    nic.schedule_write(100 * MICROSECOND, SCRATCH, 1)
    nic.schedule_read(100 * MICROSECOND, STAMP, 5)
    nic.schedule_read(200 * MICROSECOND, SCRATCH, 6)
    nic.schedule_read(400 * MICROSECOND, SCRATCH, 7)
    reads = nic.run(500 * MICROSECOND).reads
    assert [(read.tag, read.address, read.value) for read in reads] == [
        (5, STAMP, 100 * MICROSECOND // 128_000),
        (6, SCRATCH, 1),
        (7, SCRATCH, 3),
    ]
    for read, time in zip(reads, (100, 200, 400)):
        assert time * MICROSECOND <= read.time_ps <= time * MICROSECOND + 10 * CLOCK_PS
    assert isinstance(reads[0], RegisterRead)


def test_refused_register_accesses_are_errors(stand_in):
    nic = stand_in()
    with pytest.raises(RegisterError, match="register 0x0100 must allow to be read, got AXI response 2"):
        nic.read32(0x100)
    with pytest.raises(RegisterError, match="register 0x0000 must allow to be written"):
        nic.write32(0, 1)
    nic.schedule_write(nic.time_ps, 0x200, 1)
    with pytest.raises(RegisterError, match="register 0x0200 must allow to be written"):
        nic.run(nic.time_ps + MICROSECOND)
    with pytest.raises(ValueError, match="address must be a multiple of 4 below 0x10000, got 0x2"):
        nic.read32(2)
    assert nic.read32(0) == MAGIC


def start_copy(nic, source, destination, beats):
    for register, value in ((SOURCE, source), (DESTINATION, destination), (BEATS, beats)):
        nic.write32(register, value)


@pytest.mark.parametrize(
    "options",
    [
        {"read_latency": 1, "write_latency": 1},
        {"read_latency": 200, "write_latency": 90, "latency_jitter": 40},
        {"stall_period": 7, "stall_cycles": 5},
        {"stall_share": 0.7, "seed": 5},
        {"outstanding": 1, "stall_share": 0.3},
    ],
)
def test_memory_carries_bursts_under_latency_and_stalls(stand_in, options):
    nic = stand_in(**options)
    nic.memory[:8192] = np.frombuffer(pattern(8192), dtype=np.uint8)
    start_copy(nic, 0, 0x10000, 509)
    nic.settle()
    assert bytes(nic.memory[0x10000 : 0x10000 + 509 * 16]) == pattern(8192)[: 509 * 16]
    assert not nic.memory[0x10000 + 509 * 16 :].any()
    statistics = nic.statistics
    assert (statistics.memory_read_beats, statistics.memory_write_beats) == (509, 509)
    assert (statistics.memory_outside, statistics.memory_violations) == (0, 0)


def test_memory_changes_at_the_response_and_the_watch_sees_it(stand_in):
    nic = stand_in(write_latency=1000)
    nic.memory[:256] = 7
    nic.watch(3, 0x10010, 4)
    nic.watch(4, 0x20000, 4)
    start = nic.time_ps
    start_copy(nic, 0, 0x10000, 16)
    assert not nic.run(start + 900 * CLOCK_PS).watches
    assert not nic.memory[0x10000:].any()
    (watch,) = nic.run(start + 1500 * CLOCK_PS).watches
    assert (watch.tag, watch.address, watch.length) == (3, 0x10000, 256)
    assert watch.time_ps > start + 1000 * CLOCK_PS and (nic.memory[0x10000:0x10100] == 7).all()
    nic.unwatch(3)
    start_copy(nic, 0, 0x10000, 2)
    assert not nic.run(nic.time_ps + 1500 * CLOCK_PS).watches


@pytest.mark.parametrize("where, code", [(0x0040, 0x02), (0x10040, 0x20)])
def test_failing_memory_answers_with_an_error_and_keeps_its_bytes(stand_in, where, code):
    nic = stand_in()
    nic.memory[:1024] = 9
    nic.fail_memory(where, 4)
    start_copy(nic, 0, 0x10000, 16)
    nic.settle()
    assert nic.read32(RESPONSES) == code
    if code == 0x20:
        assert not nic.memory[0x10000:].any()
    nic.clear_memory_errors()
    start_copy(nic, 0, 0x10000, 16)
    nic.settle()
    assert nic.read32(RESPONSES) == 0 and (nic.memory[0x10000:0x10100] == 9).all()


def test_bursts_outside_and_across_4k_are_counted(stand_in):
    nic = stand_in()
    start_copy(nic, 0, 1 << 20, 16)
    nic.settle()
    assert nic.read32(RESPONSES) == 0x30 and nic.statistics.memory_outside == 1
    start_copy(nic, 0xFF0, 0x10000, 16)
    nic.settle()
    assert nic.statistics.memory_violations == 1


def stimulate(nic, microseconds):
    """Put in a mix of everything, with pauses."""
    random = np.random.default_rng(3)
    nic.memory[:4096] = np.frombuffer(pattern(4096), dtype=np.uint8)
    nic.watch(1, 0x10000, 4096)
    begin = nic.time_ps
    times = np.sort(random.integers(begin, begin + microseconds * MICROSECOND, 60))
    for number, time in enumerate(times.tolist()):
        nic.deliver(number % 2, time, pattern(int(random.integers(1, 1600)), number), number % 7 == 0)
    for number, time in enumerate(times[::5].tolist()):
        nic.schedule_write(time, SCRATCH, number)
        nic.schedule_read(time, STAMP, number)
        nic.schedule_write(time + 777, DEADLINE, 9 + number)
        for register, value in ((SOURCE, 16 * number), (DESTINATION, 0x10000 + 256 * number), (BEATS, 20)):
            nic.schedule_write(time + 1000, register, value)
        nic.schedule_read(time + 2000, COPIES, 100 + number)
    nic.schedule_link(int(times[30]), 1, False)
    nic.schedule_link(int(times[40]), 1, True)


MEMORY = {"stall_share": 0.2, "latency_jitter": 9}


@pytest.fixture(scope="module")
def reference(stand_in):
    """Outputs, memory and clocked cycles with one long window and idle time skipped."""
    nic = stand_in(**MEMORY)
    stimulate(nic, 200)
    outputs = run_all(nic, 260 * MICROSECOND, 260 * MICROSECOND)
    return outputs, bytes(nic.memory), nic.statistics


def test_the_mix_does_something(reference):
    (frames, watches, reads, trace), _, statistics = reference
    alarms = [frame for frame in frames if frame.port == 0 and len(frame.data) == 16]
    assert len(frames) > 50 and len(watches) >= 24 and len(reads) == 24
    assert len(alarms) >= 10 and len(trace) >= 20 and statistics.lost_link_down > 0
    assert frames == sorted(frames, key=lambda frame: frame[:3])
    assert statistics.cycles_skipped > statistics.cycles_clocked


@pytest.mark.parametrize("window", [MICROSECOND, MICROSECOND // 2, MICROSECOND // 7, 12_345_678])
def test_windows_are_invisible(stand_in, reference, window):
    nic = stand_in(**MEMORY)
    stimulate(nic, 200)
    outputs, memory, statistics = reference
    assert run_all(nic, 260 * MICROSECOND, window) == outputs
    assert bytes(nic.memory) == memory
    assert nic.statistics.cycles_clocked == statistics.cycles_clocked


def test_skipping_is_invisible(stand_in, reference):
    nic = stand_in(skip_idle=False, **MEMORY)
    stimulate(nic, 200)
    outputs, memory, _ = reference
    assert run_all(nic, 260 * MICROSECOND, 7 * MICROSECOND) == outputs
    assert bytes(nic.memory) == memory
    assert nic.statistics.cycles_skipped == 0
    assert nic.statistics.cycles_clocked == 260 * MICROSECOND // CLOCK_PS


def test_nics_in_threads_do_not_disturb_each_other(stand_in, reference):
    nics = [stand_in(**MEMORY) for _ in range(4)]
    for nic in nics:
        stimulate(nic, 200)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda nic: run_all(nic, 260 * MICROSECOND, 3 * MICROSECOND), nics))
    assert all(result == reference[0] for result in results)


def test_next_activity_bounds_what_happens(stand_in):
    nic = stand_in()
    nic.settle()
    assert nic.next_activity_ps == NEVER
    nic.write32(DEADLINE, 100)
    nic.settle()
    due = (nic.read32(STAMP) + nic.read32(DEADLINE)) * 128_000
    nic.settle()
    assert nic.next_activity_ps == due
    begin = nic.time_ps
    nic.deliver(0, begin + 3 * MICROSECOND, bytes(100))
    # The first beat is there after preamble and 16 bytes at 10 Gb/s.
    assert nic.next_activity_ps == -(-(begin + 3 * MICROSECOND + 24 * 800) // CLOCK_PS) * CLOCK_PS
    assert not nic.run(nic.next_activity_ps).frames
    (frame,) = nic.run(begin + 4 * MICROSECOND).frames
    assert len(frame.data) == 100
    nic.schedule_read(nic.time_ps + MICROSECOND, SCRATCH, 1)
    assert nic.next_activity_ps == -(-(begin + 5 * MICROSECOND) // CLOCK_PS) * CLOCK_PS


def test_frames_in_the_mac_count_as_activity(stand_in):
    nic = stand_in(gbps=1, fifo_bytes=4096)
    nic.deliver(0, 0, bytes(1000))
    outputs = nic.run(9 * MICROSECOND)
    while not outputs.frames:
        following = nic.next_activity_ps
        assert following < NEVER
        outputs = nic.run(max(following + 1, nic.time_ps + CLOCK_PS))
    assert outputs.frames[0].time_last_bit_ps < nic.time_ps < 20 * MICROSECOND


def test_link_down_loses_frames_both_ways(stand_in):
    nic = stand_in()
    assert nic.read32(LINKS) == 3
    begin = nic.time_ps
    nic.schedule_link(begin, 1, False)
    nic.deliver(0, begin + 1000, bytes(64))
    nic.deliver(1, begin + 1000, bytes(64))
    assert not nic.run(begin + 2 * MICROSECOND).frames
    assert nic.read32(LINKS) == 1 and nic.statistics.lost_link_down == 2
    nic.schedule_link(nic.time_ps, 1, True)
    nic.deliver(1, nic.time_ps + 1000, bytes(64))
    assert len(nic.run(nic.time_ps + 2 * MICROSECOND).frames) == 1


def test_replay_of_the_recorded_pins_transmits_the_same(stand_in):
    def recorded(frames):
        nic = stand_in()
        stimulus = nic.new_stimulus()
        nic.record_stimulus(stimulus)
        for number in range(frames):
            nic.deliver(0, number * 2 * MICROSECOND, pattern(300, number))
        nic.run(50 * MICROSECOND)
        assert stimulus.cycles == nic.statistics.cycles_clocked
        return stimulus.replay(check=True)

    assert recorded(5) == recorded(5) != 0
    assert recorded(5) != recorded(6)


def test_wrong_use_is_named(stand_in):
    nic = stand_in()
    nic.run(MICROSECOND)
    with pytest.raises(ValueError, match="until_ps must be at least 1000000, got 5"):
        nic.run(5)
    with pytest.raises(ValueError, match="port must be between 0 and 1, got 2"):
        nic.deliver(2, MICROSECOND, bytes(60))
    with pytest.raises(ValueError, match="time_first_bit_ps must be at least 1000000, got 7"):
        nic.deliver(0, 7, bytes(60))
    with pytest.raises(ValueError, match="frame must have at least 1 byte, got 0"):
        nic.deliver(0, MICROSECOND, b"")
    nic.deliver(0, 3 * MICROSECOND, bytes(60))
    with pytest.raises(ValueError, match="of port 0 must be at least that of its previous frame"):
        nic.deliver(0, 2 * MICROSECOND, bytes(60))
    with pytest.raises(ValueError, match="watched range must lie inside 1048576 bytes"):
        nic.watch(0, 1 << 20, 4)
    with pytest.raises(ConfigError, match=r"mac\.gbps must be above 0 and at most 32 .*, got 33"):
        stand_in(gbps=33)
    with pytest.raises(ConfigError, match=r"mac\.fifo_bytes must be between 32 and 1048576, got 16"):
        stand_in(fifo_bytes=16)
    with pytest.raises(ConfigError, match=r"memory\.stall_share must be at least 0 and below 1, got 1"):
        MemoryOptions(stall_share=1)
    with pytest.raises(ConfigError, match=r"memory\.stall_cycles must be between 0 and 4, got 5"):
        MemoryOptions(stall_period=5, stall_cycles=5)


def test_settle_is_bounded(stand_in):
    nic = stand_in(write_latency=1 << 19)
    start_copy(nic, 0, 0x10000, 2)
    with pytest.raises(InfrastructureError, match="must rest within 1000 cycles, but is still busy"):
        nic.settle(limit_cycles=1000)


def test_ports_of_the_model_are_compared_with_the_table():
    text = "VL_IN8(&clk,0,0);\nVL_OUT64(&receive_0___05Ftdata,63,0);\nVL_INW(&wide,127,0,4);"
    ports = parse_ports(text)
    assert ports == [
        ModelPort("clk", "in", 1),
        ModelPort("receive_0__tdata", "out", 64),
        ModelPort("wide", "in", 128),
    ]
    with pytest.raises(InfrastructureError, match="missing: rst, now, .*; unknown: wide"):
        pins_header(ports, 1, 64, False)
    assert len(engine_ports(4, False)) == len(set(engine_ports(4, True))) - 3
