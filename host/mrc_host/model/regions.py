"""Memory of a model NIC: the bytes, the regions that keys name, ranges that fail, and watched ranges."""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mypy_extensions import i64

from mrc_host.nic.base import Watch

__all__ = ["HostMemory", "MemoryRegions"]

_INVALID: Final = -1


class _Region:
    """A row as the checks of every packet read it."""

    __slots__ = ("base", "bus_address", "domain", "key", "length", "remote_write", "row", "valid")

    def __init__(self, row: dict[str, int]) -> None:
        self.row: dict[str, int] = row
        self.valid: bool = row.get("valid", 0) == 1
        self.key: i64 = row.get("key", 0)
        self.domain: i64 = row.get("protection_domain", 0)
        self.base: int = row.get("base", 0)
        self.length: int = row.get("length", 0)
        self.remote_write: bool = row.get("remote_write", 0) == 1
        self.bus_address: int = row.get("bus_address", 0)


class MemoryRegions:
    """Owner of table MEMORY_REGION: translates and checks.

    Parameters
    ----------
    count : int
        Rows.

    Attributes
    ----------
    in_flight : list of int
        Packets of each region whose memory writes are not answered; a region is invalidated behind them.

    Source: profile.md 7.
    """

    __slots__ = ("_rows", "in_flight")

    def __init__(self, count: int) -> None:
        self._rows: list[_Region] = [_Region({}) for _ in range(count)]
        self.in_flight: list[int] = [0] * count

    def write(self, index: int, fields: dict[str, int]) -> bool:
        """Replace a row; False when there is none of that number."""
        if index >= len(self._rows):
            return False
        self._rows[index] = _Region(dict(fields))
        return True

    def read(self, index: int) -> dict[str, int] | None:
        """The fields of a row; None when there is none of that number."""
        return self._rows[index].row if index < len(self._rows) else None

    def translate(self, key: i64, domain: i64, address: int, length: int, remote: bool) -> int:
        """Bus address of the first byte, −1 when key, domain, rights or bounds forbid the access.

        Parameters
        ----------
        key, domain : int
            Key, and the protection domain of the QP.
        address, length : int
            Virtual address and bytes.
        remote : bool
            A peer writes; otherwise the region is read locally.
        """
        index: i64 = key >> 8
        if index >= len(self._rows):
            return _INVALID
        row = self._rows[index]
        if not row.valid or row.key != key or row.domain != domain or (remote and not row.remote_write):
            return _INVALID
        offset: int = address - row.base
        if offset < 0 or offset + length > row.length:
            return _INVALID
        return row.bus_address + offset


class _Range:
    """A watched range of memory, up to its end and without it."""

    __slots__ = ("end", "start", "tag")

    def __init__(self, start: int, end: int, tag: int) -> None:
        self.start: int = start
        self.end: int = end
        self.tag: int = tag


class HostMemory:
    """The bytes of a host, with ranges that answer with errors and ranges that are watched.

    Parameters
    ----------
    size : int
        Bytes; untouched pages cost nothing.

    Attributes
    ----------
    data : numpy array of uint8
    reads, writes, outside : int
        Accesses, and those beyond the end of the memory.
    """

    __slots__ = (
        "_buffer",
        "_failing",
        "_last",
        "_overlapping",
        "_readers",
        "_size",
        "_starts",
        "_view",
        "_watched",
        "data",
        "outside",
        "reads",
        "writes",
    )

    def __init__(self, size: int) -> None:
        self.data: npt.NDArray[np.uint8] = np.zeros(size, dtype=np.uint8)
        # One reading of bytes costs less than a slice of a view and a copy of it.
        self._readers: dict[int, Struct] = {}
        self._buffer: Any = self.data  # numpy's types do not say that it is a buffer
        self._view: memoryview = self.data.data
        self._size: int = size
        self._failing: list[tuple[int, int]] = []
        self._watched: list[_Range] = []
        self._last: _Range | None = None
        self._starts: list[int] = []
        self._overlapping: bool = False
        self.reads: i64 = 0
        self.writes: i64 = 0
        self.outside: i64 = 0

    def read(self, address: int, length: int) -> bytes | None:
        """Bytes at an address; None when the memory answers with an error."""
        self.reads += 1
        end: int = address + length
        if (end > self._size or self._failing) and not self._answers(address, end):
            return None
        reader = self._readers.get(length)
        if reader is None:
            reader = self._readers[length] = Struct(f"{length}s")
        content: bytes = reader.unpack_from(self._buffer, address)[0]
        return content

    def write(self, address: int, content: bytes) -> bool:
        """Write bytes; False, and nothing changes, when the memory answers with an error."""
        self.writes += 1
        end: int = address + len(content)
        if (end > self._size or self._failing) and not self._answers(address, end):
            return False
        self._view[address:end] = content
        return True

    def fail(self, address: int, length: int) -> None:
        """Answer accesses that touch a range with an error from now on."""
        self._failing.append((address, address + length))

    def clear_failures(self) -> None:
        """Forget the ranges of :meth:`fail`."""
        self._failing.clear()

    def watch(self, tag: int, address: int, length: int) -> None:
        """Watch a range under a tag.

        Raises
        ------
        ValueError
            The range does not lie inside the memory.
        """
        if address < 0 or length < 1 or address + length > len(self.data):
            raise ValueError(
                f"watched range must lie inside {len(self.data)} bytes of memory, "
                f"got {length} at {address:#x}"
            )
        self._watched.append(_Range(address, address + length, tag))
        self._order()

    def unwatch(self, tag: int) -> None:
        """Forget the ranges of a tag."""
        self._watched = [item for item in self._watched if item.tag != tag]
        self._order()

    def watches(self, time_ps: int, address: int, length: int, found: list[Watch]) -> None:
        """Append what to report of a write that was answered at a time."""
        end = address + length
        last = self._last
        if last is not None and last.start <= address and end <= last.end:
            # No other range is there, and most writes are into the same one as the one before.
            found.append(Watch(time_ps, last.tag, address, length))
            return
        place = bisect_left(self._starts, end)
        while place > 0:
            place -= 1
            watched = self._watched[place]
            if watched.end > address:
                found.append(Watch(time_ps, watched.tag, address, length))
                self._last = None if self._overlapping else watched
            elif not self._overlapping:
                break

    def _answers(self, address: int, end: int) -> bool:
        if end > self._size:
            self.outside += 1
            return False
        return not any(address < stop and start < end for start, stop in self._failing)

    def _order(self) -> None:
        self._watched.sort(key=_order)
        self._starts = [item.start for item in self._watched]
        self._overlapping = False
        self._last = None
        end = 0
        for item in self._watched:
            if item.start < end:
                self._overlapping = True
            end = item.end


def _order(item: _Range) -> tuple[int, int, int]:
    return item.start, item.end, item.tag
