"""What a plane keeps of its good frames until admission has read them, and the port through which it does."""

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import Trimmed
from .frame_words import WORD_BYTES

__all__ = [
    "FINDINGS_WORD",
    "FIRST_WORD",
    "LAST_WORD",
    "RECORDS",
    "RecordMemory",
    "RecordPort",
    "findings",
    "reading_order",
    "row_words",
]

#: Records that a plane keeps, with the one of the frame that comes in.
RECORDS = 32

#: Words of a normalised frame in a record: those with the fields that admission needs, first and last.
FIRST_WORD, LAST_WORD = 2, 13

#: Admission reads this word first: it holds the QP and tells where RETH is.
_START_WORD = 8

#: Word in whose place the findings about a frame stand: it holds nothing but our own address.
FINDINGS_WORD = 5

_WORDS = 16
_WORD_BITS = 8 * WORD_BYTES


def row_words(config: NicConfig) -> int:
    """Words that are read in one cycle, so that a record takes at most K cycles."""
    return {16: 1, 8: 2, 4: 8}[config.packet_interval]


def reading_order(config: NicConfig) -> list[int]:
    """Rows of a record as admission reads them: behind UDP first, then from IPv6 on, each time ascending."""
    words = [*range(_START_WORD, LAST_WORD + 1), *range(FIRST_WORD, _START_WORD)]
    return list(dict.fromkeys(word // row_words(config) for word in words))


def findings() -> data.StructLayout:
    """What is not in the words of a frame, or was made of them.

    ``length``: payload in bytes without pad and ICRC, which stands in the plane's packet buffer behind that
    of the records before; 0 for frames that lost it. ``received_at``: low 16 bits of the tick counter when
    the frame ended. ``timestamped``: TSETH is there. ``marked``: congestion was experienced.
    """
    return data.StructLayout(
        {"length": 13, "received_at": 16, "timestamped": 1, "marked": 1, "trimmed": Trimmed}
    )


class RecordPort(wiring.Signature):
    """How admission reads the oldest record of a plane, seen from the plane.

    Members
    -------
    valid : 1
        There is a record: a good frame, addressed to this NIC, complete.
    row : row of a record
    data : row_words x 64
        Word n of the frame without outer header stands in row n // row_words; one cycle after ``row``, while
        there is a record.
    done : 1
        Pulse: its last row is asked for; from the next cycle on the port is about the next record.
    """

    def __init__(self, config: NicConfig) -> None:
        self.words = row_words(config)
        super().__init__(
            {
                "valid": Out(1),
                "row": In(range(_WORDS // self.words)),
                "data": Out(_WORD_BITS * self.words),
                "done": In(1),
            }
        )


class RecordMemory(wiring.Component):
    """Ring of records, each as large as 16 words; the frame that comes in is written behind the others.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    write, position, data : 1, 4, 64
        A word of the normalised frame, as it comes.
    find, found : 1, findings
        Pulse, when the frame has ended: what was found about it.
    commit : 1
        Pulse, later: keep the record. The word in this cycle is the next frame's.
    full : 1
        There is no room for one more record; the frame that comes in must not be committed.
    port : RecordPort

    Source: design.md 4 (control queue: records only, never behind placement).
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        super().__init__(
            {
                "write": In(1),
                "position": In(range(_WORDS)),
                "data": In(_WORD_BITS),
                "find": In(1),
                "found": In(findings()),
                "commit": In(1),
                "full": Out(1),
                "port": Out(RecordPort(config)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        words = row_words(self._config)
        word_bits = (words - 1).bit_length()
        port = self.port
        head = Signal(range(RECORDS))
        tail = Signal(range(RECORDS))
        # Also the record that comes in has a place.
        following = Signal(range(RECORDS))
        slot = Signal(range(RECORDS))
        m.d.comb += [
            following.eq(head + 1),
            self.full.eq(following == tail),
            port.valid.eq(head != tail),
        ]
        with m.If(self.commit):
            m.d.comb += slot.eq(following)
            m.d.sync += head.eq(following)
        with m.Else():
            m.d.comb += slot.eq(head)
        m.d.sync += tail.eq(tail + port.done)

        row: Value = self.position[word_bits:]
        for number in range(words):
            m.submodules[f"words{number}"] = memory = Memory(
                shape=_WORD_BITS, depth=RECORDS * _WORDS // words, init=[]
            )
            write, read = memory.write_port(), memory.read_port()
            needed = self.write & (self.position <= LAST_WORD)
            if words > 1:
                needed &= self.position[:word_bits] == number
            m.d.comb += [
                write.addr.eq(Cat(row, slot)),
                write.data.eq(self.data),
                write.en.eq(needed),
                read.addr.eq(Cat(port.row, tail)),
                read.en.eq(port.valid),
                port.data.word_select(number, _WORD_BITS).eq(read.data),
            ]
            if number == FINDINGS_WORD % words:
                with m.If(self.find):
                    m.d.comb += [
                        write.addr[: len(row)].eq(FINDINGS_WORD >> word_bits),
                        write.data[: findings().size].eq(self.found),
                        write.en.eq(1),
                    ]
        return m
