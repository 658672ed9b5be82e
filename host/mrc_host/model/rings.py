"""Rings in host memory that the NIC writes: completion queues and the notice ring.

Source: profile.md 7; :data:`mrc_rtl.tables.CQE`, :data:`mrc_rtl.tables.NOTICE`.
"""

from __future__ import annotations

from struct import Struct

from mrc_rtl.tables import CQE, Table

__all__ = ["ENTRY_BYTES", "INDEX_MASK", "CompletionRings", "Ring", "completion_entry"]

ENTRY_BYTES = 32
INDEX_MASK = (1 << 24) - 1
_LARGEST_LOG2 = 23
_ENTRY = Struct("<4Q")
_PHASE = CQE.field("phase").low


class Ring:
    """One ring.

    Attributes
    ----------
    enabled : bool
    producer, consumer : int
        Entries written and read since it was enabled, modulo 2^24.
    """

    __slots__ = ("_base", "_log2", "consumer", "enabled", "producer")

    def __init__(self) -> None:
        self._base: int = 0
        self._log2: int = 0
        self.enabled: bool = False
        self.producer: int = 0
        self.consumer: int = 0

    def configure(self, base: int, log2_entries: int, enabled: bool) -> bool:
        """Start the ring anew, or end it; False when base or size are not allowed."""
        if enabled and (base % ENTRY_BYTES or log2_entries > _LARGEST_LOG2):
            return False
        self._base, self._log2, self.enabled = base, log2_entries, enabled
        self.producer = self.consumer = 0
        return True

    @property
    def base(self) -> int:
        """Address of the first entry."""
        return self._base

    @property
    def log2_entries(self) -> int:
        """log2 of the entries."""
        return self._log2

    @property
    def full(self) -> bool:
        """Whether the host has not read enough for one more entry."""
        return (self.producer - self.consumer & INDEX_MASK) >= 1 << self._log2

    def push(self, words: tuple[int, int, int, int]) -> tuple[int, bytes]:
        """Take a place; returns its address and the entry's bytes with the phase bit of the lap."""
        lap = self.producer >> self._log2
        address = self._base + (self.producer & (1 << self._log2) - 1) * ENTRY_BYTES
        self.producer = self.producer + 1 & INDEX_MASK
        phase = (1 - lap & 1) << _PHASE
        return address, _ENTRY.pack(words[0], words[1], words[2], words[3] | phase)


class CompletionRings:
    """Owner of table COMPLETION_QUEUE.

    Parameters
    ----------
    count : int
        Completion queues.
    """

    __slots__ = ("_rings",)

    def __init__(self, count: int) -> None:
        self._rings: list[Ring] = [Ring() for _ in range(count)]

    def __getitem__(self, queue: int) -> Ring:
        return self._rings[queue]

    def __len__(self) -> int:
        return len(self._rings)

    def write(self, index: int, fields: dict[str, int]) -> bool:
        """Start a queue anew; False when there is none of that number or the ring is not allowed."""
        if index >= len(self._rings):
            return False
        return self._rings[index].configure(fields["base"], fields["log2_entries"], fields["enabled"] == 1)

    def read(self, index: int) -> dict[str, int] | None:
        """The fields of a row; None when there is none of that number."""
        if index >= len(self._rings):
            return None
        ring = self._rings[index]
        return {
            "base": ring.base,
            "log2_entries": ring.log2_entries,
            "enabled": int(ring.enabled),
            "producer": ring.producer,
        }


def completion_entry(
    qpn: int, wr_id: int, opcode: int, status: int, length: int, immediate: int, message_number: int
) -> tuple[int, int, int, int]:
    """Words of a completion, without its phase."""
    return (
        wr_id,
        length | immediate << 32,
        qpn | opcode << 24 | (message_number & 0xFFFFFF) << 32 | status << 56,
        0,
    )


def _check_layout(table: Table) -> None:
    words = table.pack(wr_id=1, byte_length=2, immediate=3, qpn=4, opcode=5, message_number=6, status=7)
    if tuple(words) != completion_entry(4, 1, 5, 7, 2, 3, 6):
        raise ValueError("completion_entry must lay a completion out as mrc_rtl.tables.CQE does")


_check_layout(CQE)
