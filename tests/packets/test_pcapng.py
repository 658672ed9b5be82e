"""Captures: written and read back.

Sweep: resolutions, comments, several interfaces, size cap, ring; classic pcap in four flavours; damage.
Stimulus: frames of random size.
Checks: equal frames, exact time stamps, file sizes under the cap, exact messages; scapy reads the file too.
Timing: none.
"""

from __future__ import annotations

import random
import struct
import warnings

import pytest

from mrc_host.packets.pcapng import CapturedFrame, CaptureError, Interface, PcapngWriter, read_capture

PORTS = [Interface("host1.plane0", "NIC port", 6_250_000_000), Interface("host1.plane1"), Interface("t0.1")]


def frames(count: int, seed: int = 1) -> list[tuple[int, bytes, int]]:
    source = random.Random(seed)
    return [
        (n * 14_241, source.randbytes(source.randint(60, 300)), source.randrange(3)) for n in range(count)
    ]


def test_round_trip(tmp_path):
    path = tmp_path / "a.pcapng"
    sent = frames(50)
    with PcapngWriter(path, PORTS) as writer:
        for number, (time, data, port) in enumerate(sent):
            comment = "dropped: queue full (ü)" if number % 3 == 0 else ""
            assert writer.write(time, data, port, comment=comment, direction=number % 3)
    assert (writer.frames, writer.discarded) == (50, 0)
    got = list(read_capture(path))
    assert got == [
        CapturedFrame(
            time,
            PORTS[port].name,
            data,
            len(data),
            1,
            ("dropped: queue full (ü)",) if number % 3 == 0 else (),
            number % 3,
        )
        for number, (time, data, port) in enumerate(sent)
    ]


@pytest.mark.parametrize(("resolution", "step"), [(9, 1000), (10, 100), (11, 10), (12, 1)])
def test_resolution(tmp_path, resolution, step):
    path = tmp_path / "a.pcapng"
    with PcapngWriter(path, ["p"], resolution=resolution) as writer:
        writer.write(123_456_789_012_345_678, b"x" * 60)
    assert next(read_capture(path)).time_ps == 123_456_789_012_345_678 // step * step


def test_cut_frames_keep_their_length(tmp_path):
    path = tmp_path / "a.pcapng"
    with PcapngWriter(path, ["p"]) as writer:
        writer.write(0, b"x" * 64, original_length=4242)
    frame = next(read_capture(path))
    assert (len(frame.data), frame.original_length) == (64, 4242)


def test_cap_keeps_the_oldest(tmp_path):
    path = tmp_path / "a.pcapng"
    sent = frames(200)
    with PcapngWriter(path, PORTS, max_bytes=20_000) as writer:
        written = [writer.write(*item) for item in sent]
    assert path.stat().st_size <= 20_000
    assert writer.frames == sum(written) < 200
    assert writer.discarded == 200 - writer.frames
    assert [frame.data for frame in read_capture(path)] == [data for _, data, _ in sent[: writer.frames]]


@pytest.mark.parametrize("count", [10, 100, 1000])
def test_ring_keeps_the_newest(tmp_path, count):
    path = tmp_path / "a.pcapng"
    sent = frames(count)
    with PcapngWriter(path, PORTS, max_bytes=40_000, ring=True) as writer:
        assert all(writer.write(*item) for item in sent)
    assert path.stat().st_size <= 40_000
    assert [item.name for item in tmp_path.iterdir()] == ["a.pcapng"]
    kept = [frame.data for frame in read_capture(path)]
    assert kept == [data for _, data, _ in sent[-len(kept) :]]
    assert (writer.frames, writer.discarded) == (len(kept), count - len(kept))
    assert len(kept) == count or sum(map(len, kept)) > 15_000


def test_flush_shows_whole_blocks(tmp_path):
    path = tmp_path / "a.pcapng"
    writer = PcapngWriter(path, ["p"])
    writer.write(1, b"y" * 61)
    writer.flush()
    assert [frame.data for frame in read_capture(path)] == [b"y" * 61]
    writer.close()
    writer.close()


def classic(order: str, magic: int, stamps: list[tuple[int, int]]) -> bytes:
    data = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, 1)
    for seconds, fraction in stamps:
        data += struct.pack(order + "IIII", seconds, fraction, 60, 90) + bytes(60)
    return data


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "unit"), [(0xA1B2C3D4, 10**6), (0xA1B23C4D, 10**3)])
def test_classic(tmp_path, order, magic, unit):
    path = tmp_path / "a.pcap"
    path.write_bytes(classic(order, magic, [(3, 7), (4, 999)]))
    assert list(read_capture(path)) == [
        CapturedFrame(3 * 10**12 + 7 * unit, "if0", bytes(60), 90),
        CapturedFrame(4 * 10**12 + 999 * unit, "if0", bytes(60), 90),
    ]


def test_big_endian_sections_simple_blocks_and_unknown_blocks(tmp_path):
    def block(kind: int, body: bytes) -> bytes:
        return struct.pack(">II", kind, len(body) + 12) + body + struct.pack(">I", len(body) + 12)

    section = block(0x0A0D0D0A, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1))
    # Resolution 2^-10 s and an offset of 5 s.
    options = struct.pack(">HHB3x", 9, 1, 0x8A) + struct.pack(">HHq", 14, 8, 5) + struct.pack(">HH", 0, 0)
    interface = block(1, struct.pack(">HHI", 101, 0, 0) + options)
    enhanced = block(6, struct.pack(">IIIII", 0, 0, 512, 4, 4) + b"abcd")
    simple = block(3, struct.pack(">I", 3) + b"xyz\0")
    path = tmp_path / "a.pcapng"
    path.write_bytes(section + block(0x0BAD, b"1234") + interface + enhanced + simple)
    first, second = read_capture(path)
    assert first == CapturedFrame(5 * 10**12 + 10**12 // 2, "if0", b"abcd", 4, 101)
    assert second == CapturedFrame(0, "if0", b"xyz", 3, 101)


def test_cut_anywhere_yields_whole_frames_then_names_the_byte(tmp_path):
    path = tmp_path / "a.pcapng"
    with PcapngWriter(path, ["p"]) as writer:
        starts = [path.stat().st_size]
        for _ in range(3):
            writer.write(0, bytes(61))
            writer.flush()
            starts.append(path.stat().st_size)
    data = path.read_bytes()
    starts[0] = starts[1] - (starts[2] - starts[1])
    for size in range(starts[0], len(data)):
        path.write_bytes(data[:size])
        got = []
        if size in starts:
            got = list(read_capture(path))
        else:
            with pytest.raises(CaptureError, match=r"a.pcapng, byte \d+: file ends after \d+ of \d+ bytes"):
                got.extend(read_capture(path))
            got = []
            reader = read_capture(path)
            for _ in range(sum(start <= size for start in starts) - 1):
                got.append(next(reader))
        assert len(got) == sum(start <= size for start in starts) - 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "byte 0: file must be pcapng or pcap, got magic nothing"),
        (b"GIF89a", "byte 0: file must be pcapng or pcap, got magic 47494638"),
        (
            b"\x0a\x0d\x0d\x0a\x1c\0\0\0\0\0\0\0",
            "byte 0: byte order magic must be 1a2b3c4d, got 00000000",
        ),
        (
            b"\x0a\x0d\x0d\x0a\x0b\0\0\0\x4d\x3c\x2b\x1a",
            "byte 0: block length must be a multiple of 4 from 12, got 11",
        ),
        (
            b"\x0a\x0d\x0d\x0a\x10\0\0\0\x4d\x3c\x2b\x1a\x14\0\0\0",
            "byte 0: block length is 16 at the front and 20 at the end",
        ),
        (classic("<", 0xA1B2C3D4, [(0, 0)])[:-1], "byte 24: file ends after 59 of 60 bytes"),
    ],
)
def test_messages(tmp_path, data, message):
    path = tmp_path / "a"
    path.write_bytes(data)
    with pytest.raises(CaptureError) as caught:
        list(read_capture(path))
    assert str(caught.value) == f"{path}, {message}"


def test_a_frame_without_interface_is_damage(tmp_path):
    path = tmp_path / "a.pcapng"
    with PcapngWriter(path, ["p", "q"]) as writer:
        writer.write(0, bytes(60), 1)
    data = path.read_bytes()
    at = data.index(struct.pack("<II", 6, 92))
    path.write_bytes(data[: at + 8] + b"\x02" + data[at + 9 :])
    with pytest.raises(CaptureError, match="block of type 6 is too short or names no interface"):
        list(read_capture(path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"resolution": 6}, "resolution must be between 9 and 12, got 6"),
        ({"interfaces": []}, "interfaces must name at least one interface, got none"),
        ({"ring": True}, "ring needs max_bytes, got None"),
    ],
)
def test_writer_messages(tmp_path, arguments, message):
    with pytest.raises(ValueError) as caught:
        PcapngWriter(tmp_path / "a", **{"interfaces": ["p"], **arguments})
    assert str(caught.value) == message
    assert list(tmp_path.iterdir()) == []


def test_write_messages(tmp_path):
    with pytest.raises(ValueError, match="max_bytes must be at least 4272, got 100"):
        PcapngWriter(tmp_path / "a", ["p"], max_bytes=100)
    with PcapngWriter(tmp_path / "b", ["p"]) as writer:
        with pytest.raises(ValueError, match="interface must be between 0 and 0, got 1"):
            writer.write(0, b"", 1)
        with pytest.raises(ValueError, match="time must be between 0 and 18446744073709551615 ps, got -1"):
            writer.write(-1, b"")


def test_scapy_reads_it(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("scapy", reason="scapy is not installed: no second reader")
        from scapy.utils import PcapNgReader

        path = tmp_path / "a.pcapng"
        sent = frames(5)
        with PcapngWriter(path, PORTS, resolution=9) as writer:
            for item in sent:
                writer.write(*item, comment="note")
        with PcapNgReader(str(path)) as reader:
            got = list(reader)
    assert [bytes(packet) for packet in got] == [data for _, data, _ in sent]
    assert [round(float(packet.time) * 1e9) for packet in got] == [time // 1000 for time, _, _ in sent]
