"""Records that planes keep for admission, as words and as fields, and an agent that offers them."""

from collections import deque
from itertools import count
from typing import Any

from mrc_rtl import wire
from mrc_rtl.config import NicConfig
from mrc_rtl.responder.header_parser import BODY_OFFSET, BTH_OFFSET, UDP_OFFSET
from mrc_rtl.responder.normaliser import IP_OFFSET
from mrc_rtl.responder.record_memory import FINDINGS_WORD, findings, row_words

__all__ = ["RecordSource", "read_record", "record_fields", "record_words"]

_WORDS = 16
_SOURCE = IP_OFFSET + wire.IPV6.byte_offset("source")
_FLOW = IP_OFFSET + 2
_BODY_BYTES = 36
_BTH = {
    "opcode": "opcode", "psn": "psn", "destination_qpn": "dest_qp", "partition_key": "pkey",
    "ack_request": "ack_req", "retransmission": "rtx",
}  # fmt: skip
_FOUND = tuple(findings().members)


def record_words(fields: dict[str, int]) -> list[int]:
    """The 16 words of a record; fields that are not named are zero."""
    frame = bytearray(8 * _WORDS)
    bth = {theirs: fields.get(ours, 0) for ours, theirs in _BTH.items()}
    for place, size, value in (
        (_FLOW, 2, fields.get("ev", 0) & 0xFFFF),
        (_SOURCE, 16, fields.get("source", 0)),
        (UDP_OFFSET, 2, fields.get("ev", 0) >> 16),
        (BTH_OFFSET, wire.BTH.bytes, wire.BTH.pack(ts=fields.get("timestamped", 0), **bth)),
        (BODY_OFFSET, _BODY_BYTES, fields.get("body", 0)),
    ):
        frame[place : place + size] = value.to_bytes(size, "big")
    words = [int.from_bytes(frame[start : start + 8], "little") for start in range(0, len(frame), 8)]
    words[FINDINGS_WORD] = findings().const({name: fields.get(name, 0) for name in _FOUND}).as_bits()
    return words


def record_fields(words: list[int]) -> dict[str, int]:
    """Fields of a record, the inverse of :func:`record_words`."""
    frame = b"".join(word.to_bytes(8, "little") for word in words)

    def number(place: int, size: int) -> int:
        return int.from_bytes(frame[place : place + size], "big")

    bth = wire.BTH.unpack(number(BTH_OFFSET, wire.BTH.bytes))
    found = findings().from_bits(words[FINDINGS_WORD] & (1 << findings().size) - 1)
    return {
        **{ours: bth[theirs] for ours, theirs in _BTH.items()},
        "source": number(_SOURCE, 16),
        "body": number(BODY_OFFSET, _BODY_BYTES),
        "ev": number(UDP_OFFSET, 2) << 16 | number(_FLOW, 2),
        **{name: int(getattr(found, name)) for name in _FOUND},
    }


async def read_record(ctx: Any, port: Any, config: NicConfig) -> dict[str, int]:
    """Read the record that a plane offers, and free it."""
    size = row_words(config)
    words: list[int] = []
    for row in range(_WORDS // size):
        ctx.set(port.row, row)
        ctx.set(port.done, row == _WORDS // size - 1)
        await ctx.tick()
        value = ctx.get(port.data)
        words += [value >> 64 * n & (1 << 64) - 1 for n in range(size)]
    ctx.set(port.done, 0)
    return record_fields(words)


class RecordSource:
    """Offers records to admission as a plane does; ``run`` is a bench for the background."""

    def __init__(self, port: Any, config: NicConfig) -> None:
        self._port, self._size = port, row_words(config)
        self.waiting: deque[list[int]] = deque()
        #: Cycles in which records were done with.
        self.taken_at: list[int] = []

    def put(self, fields: dict[str, int]) -> None:
        self.waiting.append(record_words(fields))

    async def run(self, ctx: Any) -> None:
        port = self._port
        for cycle in count():
            ctx.set(port.valid, bool(self.waiting))
            *_, row, done = await ctx.tick().sample(port.row, port.done)
            if self.waiting:
                words = self.waiting[0][row * self._size : (row + 1) * self._size]
                ctx.set(port.data, sum(word << 64 * n for n, word in enumerate(words)))
            if done:
                self.waiting.popleft()
                self.taken_at.append(cycle)
