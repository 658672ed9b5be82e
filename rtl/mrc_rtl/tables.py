"""Entries of the engine's tables and of the completion queue, as plain data.

The host reads and writes tables through commands to the block that owns them (one 64-bit word after the
other, applied as a whole). This page is the only description of their contents: gateware, host driver and
documentation import it.
"""

from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "CQE",
    "CompletionStatus",
    "CQ_ENTRY",
    "Encapsulation",
    "EV_SET",
    "EventKind",
    "EV_VALUE",
    "EV_VALUES_PER_PLANE",
    "MEMORY_REGION",
    "QP_RECEIVE",
    "QP_SEND",
    "QpErrorReason",
    "QpState",
    "RECEIVE_REQUEST",
    "SEND_REQUEST",
    "TEMPLATE_IMAGE_OFFSET",
    "TEMPLATE_WORDS",
    "TABLES",
    "Table",
    "TableField",
    "TableId",
    "WorkRequestOpcode",
]


class QpState(IntEnum):
    """States of a queue pair (IBTA 10.3), the ones the engine distinguishes."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    ERROR = 4


class QpErrorReason(IntEnum):
    """Why the engine put a QP into ERROR; reported in the event queue."""

    HOST = 0
    REMOTE_ACCESS = 1  # responder: region, key, rights, bounds
    REMOTE_OPERATION = 2  # responder: the memory answered a write with an error
    INVALID_REQUEST = 3  # responder: immediate stash overrun or no receive posted
    LOCAL_READ = 4  # requester: the memory answered a read with an error
    LOCAL_PROTECTION = 5  # requester: local key, rights or bounds
    RETRY_EXCEEDED = 6  # requester: timeouts exhausted
    REMOTE_NAK = 7  # requester: a transport NAK arrived
    UNEXPECTED_EVENT = 8  # requester: NACK UNEXP_EVENT
    COMPLETION_OVERRUN = 9  # the completion queue is full


class EventKind(IntEnum):
    """What an entry of the event queue tells."""

    QP_ERROR = 0  # the QP went to ERROR; the reason is a QpErrorReason
    COMPLETION_OVERRUN = 1  # a completion of this QP was dropped, its queue is full


class CompletionStatus(IntEnum):
    """Status of a completion (the verbs' work completion statuses that MRC can produce)."""

    SUCCESS = 0
    LOCAL_PROTECTION_ERROR = 4
    FLUSHED = 5
    REMOTE_INVALID_REQUEST = 9
    REMOTE_ACCESS_ERROR = 10
    REMOTE_OPERATION_ERROR = 11
    RETRY_EXCEEDED = 12
    GENERAL_ERROR = 21


class WorkRequestOpcode(IntEnum):
    """Operation of a send request, and of a completion (receive completions carry RECEIVE_IMM)."""

    WRITE = 0
    WRITE_WITH_IMM = 1
    RECEIVE_IMM = 129


class Encapsulation(IntEnum):
    """Header stack of a QP's template."""

    PLAIN = 0
    SRV6 = 1


class TableId(IntEnum):
    """Number of a table in a command."""

    QP_SEND = 0
    QP_RECEIVE = 1
    SEND_REQUEST = 2
    RECEIVE_REQUEST = 3
    MEMORY_REGION = 4
    COMPLETION_QUEUE = 5
    EV_SET = 6
    EV_VALUE = 7
    TEMPLATE = 8
    COUNTER = 9


@dataclass(frozen=True)
class TableField:
    """One field of a table entry.

    Parameters
    ----------
    name : str
    word : int
        64-bit word of the entry.
    low, width : int
        Position of the least significant bit and width in bits.
    read_only : bool
        Written by the engine only; ignored in a write command.
    text : str
        Meaning and unit.
    """

    name: str
    word: int
    low: int
    width: int
    text: str
    read_only: bool = False


@dataclass(frozen=True)
class Table:
    """A table: name, what its index means, and the fields of an entry."""

    name: str
    index: str
    fields: tuple[TableField, ...]

    @property
    def words(self) -> int:
        """64-bit words of an entry."""
        return 1 + max(field.word for field in self.fields)

    @property
    def write_words(self) -> int:
        """Words that a write command moves (trailing read-only words are not written)."""
        return 1 + max(field.word for field in self.fields if not field.read_only)

    def field(self, name: str) -> TableField:
        """The field of that name; KeyError when the table has none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(f"table {self.name} has no field {name!r}")

    def pack(self, **values: int) -> list[int]:
        """Words of an entry; fields not named are zero. ValueError when a value does not fit."""
        words = [0] * self.words
        for name, value in values.items():
            field = self.field(name)
            if not 0 <= value < 1 << field.width:
                raise ValueError(f"{self.name}.{name} must fit {field.width} bits, got {value:#x}")
            words[field.word] |= value << field.low
        return words

    def unpack(self, words: list[int]) -> dict[str, int]:
        """Fields of an entry given as words (missing words read as zero)."""
        padded = [*words, *[0] * (self.words - len(words))]
        return {field.name: padded[field.word] >> field.low & (1 << field.width) - 1 for field in self.fields}


def _f(name: str, word: int, low: int, width: int, text: str, read_only: bool = False) -> TableField:
    return TableField(name, word, low, width, text, read_only)


QP_SEND = Table(
    "qp_send",
    "QP index",
    (
        _f("state", 0, 0, 3, "QpState; writing RESET clears everything, RTS starts from initial_psn"),
        _f("mtu_log2", 0, 3, 4, "path MTU, log2 of bytes, 8 to 12"),
        _f("timeout", 0, 7, 5, "local ACK timeout exponent: 1.024 us x 2^timeout, 0 means none, at most 24"),
        _f("linear_count", 0, 12, 3, "retries at the fixed interval, 0 to 7"),
        _f("exponential_count", 0, 15, 5, "doubling retries, 0 to 25; 25 means no limit"),
        _f("protection_domain", 0, 20, 8, "PD that local keys must belong to"),
        _f("completion_queue", 0, 28, 6, "CQ of send completions"),
        _f("ev_profile", 0, 34, 8, "array of entropy values"),
        _f("initial_psn", 1, 0, 24, "first PSN sent"),
        _f("mpr_psns", 1, 24, 13, "peer's tracking range in PSNs, at most the engine's ring"),
        _f("max_immediates", 1, 37, 16, "WRITE_WITH_IMM messages in flight the peer allows"),
        _f("next_psn", 2, 0, 24, "next new PSN", True),
        _f("unacked_psn", 2, 24, 24, "oldest PSN not covered by a cumulative SACK", True),
        _f("attempt", 2, 48, 5, "timeouts since the last progress", True),
    ),
)

QP_RECEIVE = Table(
    "qp_receive",
    "QP index",
    (
        _f("state", 0, 0, 3, "QpState; writing RESET clears everything, RTR or RTS starts from initial_psn"),
        _f("protection_domain", 0, 3, 8, "PD that remote keys must belong to"),
        _f("completion_queue", 0, 11, 6, "CQ of receive completions"),
        _f("partition_key", 0, 17, 16, "P_Key that packets must carry"),
        _f("peer_qpn", 0, 33, 24, "peer's QP number"),
        _f("initial_psn", 1, 0, 24, "first PSN expected"),
        _f("peer_high", 2, 0, 64, "peer's inner IPv6 address, first 8 bytes, big endian"),
        _f("peer_low", 3, 0, 64, "peer's inner IPv6 address, last 8 bytes, big endian"),
        _f("cumulative_psn", 4, 0, 24, "cack_psn: everything up to it is placed", True),
        _f("highest_psn", 4, 24, 24, "highest PSN placed", True),
        _f("message_number", 5, 0, 24, "MSN: messages completed", True),
        _f("received_units", 5, 24, 24, "rcvd_bytes: received bytes in units of 256", True),
    ),
)

SEND_REQUEST = Table(
    "send_request",
    "QP index x send queue depth + slot",
    (
        _f("wr_id", 0, 0, 64, "returned in the completion"),
        _f("local_address", 1, 0, 64, "virtual address of the data"),
        _f("remote_address", 2, 0, 64, "virtual address at the peer"),
        _f("length", 3, 0, 32, "bytes, 1 to 2^32 - 1"),
        _f("local_key", 3, 32, 32, "key of the region that holds local_address"),
        _f("immediate", 4, 0, 32, "immediate value"),
        _f("remote_key", 4, 32, 32, "key of the peer's region"),
        _f("opcode", 5, 0, 8, "WorkRequestOpcode"),
        _f("signalled", 5, 8, 1, "write a completion on success"),
    ),
)

RECEIVE_REQUEST = Table(
    "receive_request",
    "QP index x receive queue depth + slot",
    (_f("wr_id", 0, 0, 64, "returned in the completion"),),
)

MEMORY_REGION = Table(
    "memory_region",
    "region index = key bits 31:8",
    (
        _f("key", 0, 0, 32, "index in bits 31:8, generation in bits 7:0"),
        _f("protection_domain", 0, 32, 8, "PD"),
        _f("remote_write", 0, 40, 1, "a peer may write"),
        _f("local_write", 0, 41, 1, "the owner may write"),
        _f("valid", 0, 42, 1, "the entry is in use"),
        _f("base", 1, 0, 64, "virtual address of the first byte"),
        _f("length", 2, 0, 64, "bytes"),
        _f("bus_address", 3, 0, 64, "AXI address of the first byte"),
    ),
)

CQ_ENTRY = Table(
    "completion_queue",
    "CQ number",
    (
        _f("base", 0, 0, 64, "AXI address of the ring, aligned to its entry size"),
        _f("log2_entries", 1, 0, 5, "log2 of the entries in the ring"),
        _f("enabled", 1, 5, 1, "the ring exists"),
        _f("producer", 2, 0, 24, "entries written since it was enabled", True),
    ),
)

EV_SET = Table(
    "ev_set",
    "QP index x planes + plane",
    (
        _f("good", 0, 0, 32, "EV i may be used; with skip: 10 GOOD, 11 SKIP, 01 backup, 00 bad or denied"),
        _f("skip", 0, 32, 32, "see good"),
    ),
)

#: Rows of the EV value table that belong to one plane of one profile, whatever evs_per_plane is.
EV_VALUES_PER_PLANE = 32

EV_VALUE = Table(
    "ev_value",
    "(profile x planes + plane) x 32 + i",
    (
        _f("value", 0, 0, 32, "32-bit entropy value on the wire"),
        _f("port", 0, 32, 4, "port number, from 1"),
    ),
)

#: 64-bit words of a header template: byte n of the frame is byte n % 8 (bits 7:0 first) of word n // 8.
TEMPLATE_WORDS = 16

#: Bytes before this one are MAC addresses on the wire, which belong to the port; in the template they hold
#: options: byte 0 the Encapsulation, byte 1 the mask of outer-destination uSIDs that take the plane (bit 0:
#: the first), byte 2 the mask of those that take the uplink. From here on the template is the image of the
#: frame up to the last byte of BTH; dynamic fields are zero in it and ORed in by the header builder.
TEMPLATE_IMAGE_OFFSET = 12

TABLES: dict[TableId, Table] = {
    TableId.QP_SEND: QP_SEND,
    TableId.QP_RECEIVE: QP_RECEIVE,
    TableId.SEND_REQUEST: SEND_REQUEST,
    TableId.RECEIVE_REQUEST: RECEIVE_REQUEST,
    TableId.MEMORY_REGION: MEMORY_REGION,
    TableId.COMPLETION_QUEUE: CQ_ENTRY,
    TableId.EV_SET: EV_SET,
    TableId.EV_VALUE: EV_VALUE,
}

#: A completion in host memory: 32 bytes, little endian words. ``phase`` starts at 1 in the first lap of the
#: ring and changes with every lap; it is in the last word, which is written last.
CQE = Table(
    "completion",
    "producer modulo ring size",
    (
        _f("wr_id", 0, 0, 64, "of the work request"),
        _f("byte_length", 1, 0, 32, "message length"),
        _f("immediate", 1, 32, 32, "immediate, receive completions only"),
        _f("qpn", 2, 0, 24, "QP number"),
        _f("opcode", 2, 24, 8, "WorkRequestOpcode"),
        _f("message_number", 2, 32, 24, "MSN"),
        _f("status", 2, 56, 8, "CompletionStatus"),
        _f("phase", 3, 63, 1, "lap parity"),
    ),
)
