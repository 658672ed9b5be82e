"""Write and read packet captures: pcapng both ways, classic pcap for reading.

The writer makes one file with an interface per NIC port or link, picosecond or nanosecond time stamps and
comments (why a frame was dropped, what a switch did to it). It can be capped: it then either stops, or keeps
the newest frames in two segments that replace each other. The reader streams: one block in memory at a time.

Source: IETF draft-ietf-opsawg-pcapng (block and option codes), draft-ietf-opsawg-pcap (classic files).
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple

__all__ = [
    "LINKTYPES_IP",
    "LINKTYPE_ETHERNET",
    "CapturedFrame",
    "CaptureError",
    "Interface",
    "PcapngWriter",
    "read_capture",
]

LINKTYPE_ETHERNET = 1
LINKTYPES_IP = frozenset({101, 228, 229})
"""Link types whose frames start at IP: raw, IPv4, IPv6."""

_SECTION, _INTERFACE, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 3, 6
_BYTE_ORDER = 0x1A2B3C4D
_OPT_END, _OPT_COMMENT = 0, 1
_SHB_USERAPPL = 4
_IF_NAME, _IF_DESCRIPTION, _IF_SPEED, _IF_TSRESOL, _IF_TSOFFSET = 2, 3, 8, 9, 14
_EPB_FLAGS = 2
_PICOSECONDS = 10**12
# Classic pcap magic numbers, read little endian: (byte order, picoseconds per time stamp fraction).
_CLASSIC = {
    0xA1B2C3D4: ("<", 1_000_000),
    0xA1B23C4D: ("<", 1_000),
    0xD4C3B2A1: (">", 1_000_000),
    0x4D3CB2A1: (">", 1_000),
}
_LARGEST_BLOCK = 1 << 24


class CaptureError(ValueError):
    """A capture file that cannot be read; the message names file, byte offset and what is wrong."""


class Interface(NamedTuple):
    """An interface of a capture: ``name`` as shown, ``description``, ``speed`` in bit/s (0: not stated)."""

    name: str
    description: str = ""
    speed: int = 0


class CapturedFrame(NamedTuple):
    """One frame of a capture.

    Parameters
    ----------
    time_ps : int
        Time stamp in picoseconds.
    interface : str
        Name of the interface, or ``"if<n>"`` for one without a name.
    data : bytes
        The bytes captured.
    original_length : int
        Length on the wire.
    link_type : int
        1 for Ethernet; see :data:`LINKTYPES_IP`.
    comments : tuple of str
        Comments on the frame.
    direction : int
        0 not stated, 1 inbound, 2 outbound.
    """

    time_ps: int
    interface: str
    data: bytes
    original_length: int
    link_type: int = LINKTYPE_ETHERNET
    comments: tuple[str, ...] = ()
    direction: int = 0


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 4)


def _option(code: int, content: bytes) -> bytes:
    return struct.pack("<HH", code, len(content)) + _padded(content)


def _block(kind: int, body: bytes) -> bytes:
    size = len(body) + 12
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)


class PcapngWriter:
    """Write a pcapng file frame by frame; use it as a context manager or call :meth:`close`.

    Parameters
    ----------
    path : path
        File to write; its directory must exist. With ``ring`` a second file ``<name>.older`` exists beside
        it until :meth:`close` joins the two.
    interfaces : sequence of Interface or str
        Interfaces by number; a name alone is enough.
    resolution : int
        Time stamp resolution, 9 (nanoseconds) to 12 (picoseconds, the default). Picoseconds reach 213 days.
    max_bytes : int or None
        Size cap of the file.
    ring : bool
        With a cap: keep the newest frames (between half the cap and the cap) instead of the oldest.

    Members
    -------
    frames : int
        Frames written.
    discarded : int
        Frames the cap kept out or threw out.

    Raises
    ------
    ValueError
        For a resolution outside 9 to 12, no interfaces, a ring without a cap, or a cap that holds no frame.
    """

    def __init__(
        self,
        path: str | Path,
        interfaces: Sequence[Interface | str],
        *,
        resolution: int = 12,
        max_bytes: int | None = None,
        ring: bool = False,
    ) -> None:
        if not 9 <= resolution <= 12:
            raise ValueError(f"resolution must be between 9 and 12, got {resolution}")
        if not interfaces:
            raise ValueError("interfaces must name at least one interface, got none")
        if ring and max_bytes is None:
            raise ValueError("ring needs max_bytes, got None")
        named = [Interface(item) if isinstance(item, str) else item for item in interfaces]
        self._header = self._file_header(named, resolution)
        self.path = Path(path)
        self._older = self.path.with_name(self.path.name + ".older")
        self._interfaces = len(named)
        self._divisor = 10 ** (12 - resolution)
        self._ring = ring
        self._cap = max_bytes
        if max_bytes is not None:
            least = 2 * len(self._header) + 4096
            if max_bytes < least:
                raise ValueError(f"max_bytes must be at least {least}, got {max_bytes}")
            if ring:
                self._cap = max_bytes // 2
        self.frames = 0
        self.discarded = 0
        self._older_frames = 0
        self._segment_frames = 0
        self._full = False
        self._file: BinaryIO = self.path.open("wb")
        self._size = self._file.write(self._header)

    @staticmethod
    def _file_header(interfaces: Sequence[Interface], resolution: int) -> bytes:
        section = struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1)
        section += _option(_SHB_USERAPPL, b"mrc-testbed") + _option(_OPT_END, b"")
        blocks = [_block(_SECTION, section)]
        for item in interfaces:
            body = struct.pack("<HHI", LINKTYPE_ETHERNET, 0, 0) + _option(_IF_NAME, item.name.encode())
            if item.description:
                body += _option(_IF_DESCRIPTION, item.description.encode())
            if item.speed:
                body += _option(_IF_SPEED, struct.pack("<Q", item.speed))
            body += _option(_IF_TSRESOL, bytes([resolution])) + _option(_OPT_END, b"")
            blocks.append(_block(_INTERFACE, body))
        return b"".join(blocks)

    def write(
        self,
        time_ps: int,
        frame: bytes,
        interface: int = 0,
        *,
        comment: str = "",
        direction: int = 0,
        original_length: int | None = None,
    ) -> bool:
        """Write one frame; False when the cap kept it out.

        Parameters
        ----------
        time_ps : int
            Time stamp in picoseconds.
        frame : bytes
            The frame from Ethernet on.
        interface : int
            Number of the interface.
        comment : str
            Note on the frame, such as why it was dropped.
        direction : int
            0 not stated, 1 inbound, 2 outbound.
        original_length : int or None
            Length on the wire when only a part is written.

        Raises
        ------
        ValueError
            For an unknown interface number or a time stamp that does not fit 64 bits.
        """
        if not 0 <= interface < self._interfaces:
            raise ValueError(f"interface must be between 0 and {self._interfaces - 1}, got {interface}")
        stamp = time_ps // self._divisor
        if not 0 <= stamp < 1 << 64:
            raise ValueError(f"time must be between 0 and {(1 << 64) * self._divisor - 1} ps, got {time_ps}")
        if self._full:
            self.discarded += 1
            return False
        size = len(frame)
        options = b""
        if comment or direction:
            if comment:
                options += _option(_OPT_COMMENT, comment.encode())
            if direction:
                options += _option(_EPB_FLAGS, struct.pack("<I", direction))
            options += _option(_OPT_END, b"")
        total = 32 + size + (-size % 4) + len(options)
        if self._cap is not None and self._size + total > self._cap and not self._make_room():
            self.discarded += 1
            return False
        self._file.write(
            struct.pack(
                "<IIIIIII",
                _ENHANCED,
                total,
                interface,
                stamp >> 32,
                stamp & 0xFFFFFFFF,
                size,
                size if original_length is None else original_length,
            )
            + _padded(bytes(frame))
            + options
            + struct.pack("<I", total)
        )
        self._size += total
        self.frames += 1
        self._segment_frames += 1
        return True

    def _make_room(self) -> bool:
        """Begin a new segment of the ring, or note that the file is full."""
        if not self._ring:
            self._full = True
            return False
        self._file.close()
        self.frames -= self._older_frames
        self.discarded += self._older_frames
        self._older_frames, self._segment_frames = self._segment_frames, 0
        self.path.replace(self._older)
        self._file = self.path.open("wb")
        self._size = self._file.write(self._header)
        return True

    def flush(self) -> None:
        """Hand what was written to the operating system, so that a reader sees whole blocks."""
        self._file.flush()

    def close(self) -> None:
        """Finish the file; a ring's two segments become one file. Closing twice does nothing."""
        if self._file.closed:
            return
        self._file.close()
        if self._older.exists():
            with self._older.open("ab") as joined, self.path.open("rb") as newer:
                newer.seek(len(self._header))
                shutil.copyfileobj(newer, joined)
            self._older.replace(self.path)

    def __enter__(self) -> PcapngWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _ReadInterface(NamedTuple):
    name: str
    link_type: int
    ps_per_unit: tuple[int, int]
    offset_ps: int


def _time_unit(resolution: int) -> tuple[int, int]:
    """Return picoseconds per time stamp unit as a fraction."""
    if resolution & 0x80:
        return _PICOSECONDS, 1 << (resolution & 0x7F)
    return _PICOSECONDS, 10**resolution


def _options(order: str, data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + 4 <= len(data):
        code, size = struct.unpack_from(order + "HH", data, offset)
        if code == _OPT_END:
            return
        yield code, data[offset + 4 : offset + 4 + size]
        offset += 4 + size + (-size % 4)


def _read_exactly(file: BinaryIO, size: int, where: str) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise CaptureError(f"{where}: file ends after {len(data)} of {size} bytes")
    return data


def _interface_from(order: str, body: bytes, number: int) -> _ReadInterface:
    (link_type,) = struct.unpack_from(order + "H", body)
    name, resolution, offset_s = f"if{number}", 6, 0
    for code, content in _options(order, body[8:]):
        if code == _IF_NAME:
            name = content.decode(errors="replace")
        elif code == _IF_TSRESOL and content:
            resolution = content[0]
        elif code == _IF_TSOFFSET and len(content) == 8:
            (offset_s,) = struct.unpack(order + "q", content)
    return _ReadInterface(name, link_type, _time_unit(resolution), offset_s * _PICOSECONDS)


def _read_pcapng(file: BinaryIO, path: Path) -> Iterator[CapturedFrame]:
    order = "<"
    interfaces: list[_ReadInterface] = []
    offset = 0
    while head := file.read(8):
        where = f"{path}, byte {offset}"
        head += _read_exactly(file, 8 - len(head), where) if len(head) < 8 else b""
        if head[:4] == b"\x0a\x0d\x0d\x0a":
            mark = _read_exactly(file, 4, where)
            if mark == struct.pack("<I", _BYTE_ORDER):
                order = "<"
            elif mark == struct.pack(">I", _BYTE_ORDER):
                order = ">"
            else:
                raise CaptureError(f"{where}: byte order magic must be 1a2b3c4d, got {mark.hex()}")
            head += mark
            interfaces = []
        kind, size = struct.unpack_from(order + "II", head)
        if size < 12 or size % 4 or size > _LARGEST_BLOCK:
            raise CaptureError(f"{where}: block length must be a multiple of 4 from 12, got {size}")
        body = head[8:] + _read_exactly(file, size - len(head), where)
        (again,) = struct.unpack(order + "I", body[-4:])
        if again != size:
            raise CaptureError(f"{where}: block length is {size} at the front and {again} at the end")
        body = body[:-4]
        try:
            if kind == _INTERFACE:
                interfaces.append(_interface_from(order, body, len(interfaces)))
            elif kind == _ENHANCED:
                yield _enhanced(order, body, interfaces)
            elif kind == _SIMPLE:
                (original,) = struct.unpack_from(order + "I", body)
                first = interfaces[0]
                yield CapturedFrame(0, first.name, body[4 : 4 + original], original, first.link_type)
        except (struct.error, IndexError):
            raise CaptureError(f"{where}: block of type {kind} is too short or names no interface") from None
        offset += size


def _enhanced(order: str, body: bytes, interfaces: Sequence[_ReadInterface]) -> CapturedFrame:
    number, high, low, captured, original = struct.unpack_from(order + "IIIII", body)
    item = interfaces[number]
    data = body[20 : 20 + captured]
    if len(data) < captured:
        raise struct.error
    comments: list[str] = []
    direction = 0
    for code, content in _options(order, body[20 + captured + (-captured % 4) :]):
        if code == _OPT_COMMENT:
            comments.append(content.decode(errors="replace"))
        elif code == _EPB_FLAGS and len(content) == 4:
            direction = struct.unpack(order + "I", content)[0] & 3
    numerator, denominator = item.ps_per_unit
    time_ps = (high << 32 | low) * numerator // denominator + item.offset_ps
    return CapturedFrame(time_ps, item.name, data, original, item.link_type, tuple(comments), direction)


def _read_classic(file: BinaryIO, path: Path, order: str, fraction_ps: int) -> Iterator[CapturedFrame]:
    header = _read_exactly(file, 20, f"{path}, byte 4")
    link_type = struct.unpack_from(order + "I", header, 16)[0] & 0xFFFF
    offset = 24
    while head := file.read(16):
        where = f"{path}, byte {offset}"
        if len(head) < 16:
            raise CaptureError(f"{where}: file ends after {len(head)} of 16 bytes")
        seconds, fraction, captured, original = struct.unpack(order + "IIII", head)
        if captured > _LARGEST_BLOCK:
            raise CaptureError(f"{where}: frame length must be at most {_LARGEST_BLOCK}, got {captured}")
        data = _read_exactly(file, captured, where)
        time_ps = seconds * _PICOSECONDS + fraction * fraction_ps
        yield CapturedFrame(time_ps, "if0", data, original, link_type)
        offset += 16 + captured


def read_capture(path: str | Path) -> Iterator[CapturedFrame]:
    """Read a pcapng or classic pcap file frame by frame.

    Both byte orders, several sections, and blocks of unknown type are handled.

    Raises
    ------
    CaptureError
        For a file that is neither, or is damaged; frames before the damage have been yielded by then.
    OSError
        When the file cannot be opened.
    """
    path = Path(path)
    with path.open("rb") as file:
        magic = file.read(4)
        if magic == b"\x0a\x0d\x0d\x0a":
            file.seek(0)
            yield from _read_pcapng(file, path)
            return
        classic = _CLASSIC.get(int.from_bytes(magic, "little")) if len(magic) == 4 else None
        if classic is None:
            raise CaptureError(
                f"{path}, byte 0: file must be pcapng or pcap, got magic {magic.hex() or 'nothing'}"
            )
        yield from _read_classic(file, path, *classic)
