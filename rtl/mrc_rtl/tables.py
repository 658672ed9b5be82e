"""Entries of the engine's tables and of the completion queue, as plain data.

The host reads and writes tables through commands to the block that owns them (one 64-bit word after the
other, applied as a whole). This page is the only description of their contents: gateware, host driver and
documentation import it.

Tables of :class:`TableId` have an owner in the gateware. Those of :class:`ControlTableId` have none yet: a
command to one of them is refused as for any unknown table, and the host takes that to mean that the device
lacks what the table is for. The golden model has them all.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag

__all__ = [
    "CC_PROFILE",
    "CQE",
    "CompletionStatus",
    "CONGESTION_INDEX",
    "ControlTableId",
    "CQ_ENTRY",
    "DEVICE",
    "DeviceFlag",
    "Encapsulation",
    "ENDPOINT_OPERATION",
    "EndpointOperation",
    "EndpointStatus",
    "EV_ENTRY",
    "EV_ORDER",
    "EV_ORDER_INDEX",
    "EV_POLICY",
    "EV_POLICY_INDEX",
    "EV_PROFILE",
    "EvProfileState",
    "EV_SET",
    "EvState",
    "EventKind",
    "EV_VALUE",
    "EV_VALUES_PER_PLANE",
    "GATEWARE_FLAGS",
    "MEMORY_REGION",
    "NOTICE",
    "NoticeKind",
    "QP_OPTION",
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
    PORT_DOWN = 2  # a port lost its link; `qp` is the port, from 0 (not from the gateware)
    PORT_UP = 3  # a port has link again; `qp` is the port, from 0 (not from the gateware)
    EV_STATE = 4  # an EV of the QP changed its state; `reason` is its plane, `place` its number there
    EV_DROPPED = 5  # events EV_STATE lost before the next: reason + 2^4 place + 2^9 state + 2^11 qp


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


class ControlTableId(IntEnum):
    """Numbers of the tables behind the OCP controller API; the gateware has no owner for any of them.

    Source: protocol.md 1.20, 2.8.
    """

    DEVICE = 10
    QP_OPTION = 11
    EV_PROFILE = 12
    EV_ENTRY = 13
    CC_PROFILE = 14
    ENDPOINT_OPERATION = 15


class DeviceFlag(IntFlag):
    """What a device can do beyond what every engine does."""

    TRIM_NACK = 1 << 0  # answers trimmed packets by NACK
    DYNAMIC_MPR = 1 << 1  # obeys and tells the MPR of each SACK
    SVC_TIME = 1 << 2  # takes its own service time out of reflected timestamps
    CC_NSCC = 1 << 3  # congestion control, table CC_PROFILE
    EV_STATES = 1 << 4  # EV state machine with backups and probes, EV operations: tables EV_PROFILE, EV_ENTRY
    EV_EXPLICIT = 1 << 5  # profiles of mode EXPLICIT
    EV_GENERATED = 1 << 6  # profiles of mode GENERATED
    EV_EXPLICIT_RANGE = 1 << 7  # explicit values of a port must be one contiguous range
    EV_PROFILE_MODIFY_ONLINE = 1 << 8  # event mask, entries and fields may change while ONLINE
    EV_EVENTS = 1 << 9  # notices of kind EV_STATE
    EV_EVENT_DROP_COUNT = 1 << 10  # their drop_count is exact, not just 0 or 1
    FORMAT_STEV = 1 << 11  # 32-bit EVs in source port and flow label
    FORMAT_UDP = 1 << 12  # 16-bit EVs in the source port
    FORMAT_SRV6 = 1 << 13  # EVs expanded to outer destinations
    FORMAT_SRV6_SRH = 1 << 14  # and to one segment in a routing header
    EP_EV_PROBE = 1 << 15  # endpoint operation EV_PROBE
    EP_PORT_STATUS_UPDATE = 1 << 16  # endpoint operation PORT_STATUS_UPDATE, and reactions to a peer's
    PORT_EVENTS = 1 << 17  # events PORT_DOWN and PORT_UP
    PROBE_ANSWERS = 1 << 18  # answers reliability probes
    ENDPOINT_ANSWERS = 1 << 19  # answers endpoint requests, EV probes and port status updates
    EV_DESTINATIONS = 1 << 20  # a destination for each entry: EXPLICIT and GENERATED in format SRV6
    GO_BACK_N = 1 << 21  # QP type go-back-N with an in-order responder


#: What a device without table DEVICE can do, which is the gateware. It tells its peers so.
GATEWARE_FLAGS = (
    DeviceFlag.TRIM_NACK
    | DeviceFlag.SVC_TIME
    | DeviceFlag.EV_STATES
    | DeviceFlag.EV_EXPLICIT
    | DeviceFlag.EV_GENERATED
    | DeviceFlag.EV_PROFILE_MODIFY_ONLINE
    | DeviceFlag.EV_EVENTS
    | DeviceFlag.EV_EVENT_DROP_COUNT
    | DeviceFlag.CC_NSCC
    | DeviceFlag.FORMAT_STEV
    | DeviceFlag.FORMAT_UDP
    | DeviceFlag.FORMAT_SRV6
    | DeviceFlag.PROBE_ANSWERS
    | DeviceFlag.ENDPOINT_ANSWERS
    | DeviceFlag.GO_BACK_N
)


class EvProfileState(IntEnum):
    """Life cycle of an EV profile (protocol.md 2.8)."""

    INIT = 0
    OFFLINE = 1
    ONLINE = 2


class EvState(IntEnum):
    """States of an entropy value that the API shows; SKIP is internal and reads as GOOD."""

    UNPOPULATED = 0  # the entry has no value
    GOOD = 1 << 0
    ASSUMED_BAD = 1 << 1
    DENIED = 1 << 2
    UNKNOWN = 1 << 31  # the host cannot tell; never in a table


class EndpointOperation(IntEnum):
    """Operation of an endpoint request, numbered as on the wire (the API has them the other way round)."""

    PORT_STATUS_UPDATE = 0
    EV_PROBE = 1


class EndpointStatus(IntEnum):
    """What became of an endpoint request."""

    IDLE = 0
    WAITING = 1
    ANSWERED = 2
    TIMED_OUT = 3


class NoticeKind(IntEnum):
    """What an entry of the notice ring tells."""

    EV_STATE = 0  # an EV changed its state
    ENDPOINT_DONE = 1  # an endpoint request was answered, or timed out


@dataclass(frozen=True)
class TableField:
    """One field of a table entry.

    Parameters
    ----------
    name : str
        Several fields of one name are pieces of one, the lowest bits first.
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
        """The field of that name, or its first piece; KeyError when the table has none."""
        return self._pieces(name)[0]

    def _pieces(self, name: str) -> list[TableField]:
        pieces = [field for field in self.fields if field.name == name]
        if not pieces:
            raise KeyError(f"table {self.name} has no field {name!r}")
        return pieces

    def pack(self, **values: int) -> list[int]:
        """Words of an entry; fields not named are zero. ValueError when a value does not fit."""
        words = [0] * self.words
        for name, value in values.items():
            pieces = self._pieces(name)
            width = sum(piece.width for piece in pieces)
            if not 0 <= value < 1 << width:
                raise ValueError(f"{self.name}.{name} must fit {width} bits, got {value:#x}")
            for piece in pieces:
                words[piece.word] |= (value & (1 << piece.width) - 1) << piece.low
                value >>= piece.width
        return words

    def unpack(self, words: list[int]) -> dict[str, int]:
        """Fields of an entry given as words (missing words read as zero)."""
        padded = [*words, *[0] * (self.words - len(words))]
        values: dict[str, int] = {}
        for name in dict.fromkeys(field.name for field in self.fields):
            low = values[name] = 0
            for piece in self._pieces(name):
                values[name] |= (padded[piece.word] >> piece.low & (1 << piece.width) - 1) << low
                low += piece.width
        return values


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
        _f(
            "go_back_n",
            0,
            42,
            1,
            "send everything again from a PSN that was missed on",
        ),
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
        _f("in_order", 0, 57, 1, "accept writes in the order of their PSNs only"),
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


def _by_eight(name: str, low: int, text: str, read_only: bool = False) -> tuple[TableField, ...]:
    """A field with a bit for each EV of a plane: eight in each of four words."""
    return tuple(
        _f(name, word, low, 8, f"{text}: EVs {8 * word} to {8 * word + 7}", read_only) for word in range(4)
    )


EV_SET = Table(
    "ev_set",
    "QP index x planes + plane",
    (
        *_by_eight("good", 0, "with skip: 10 GOOD, 11 SKIP, 01 backup (behind all others), 00 not in use"),
        *_by_eight("skip", 8, "see good; where good is 0 and bad 1: blamed more than once"),
        *_by_eight("bad", 16, "where good is 0: ASSUMED_BAD, where it is 1: in a long SKIP", read_only=True),
    ),
)

#: Commands to EV_SET from this index on are about rows of EV_POLICY.
EV_POLICY_INDEX = 0x4000

EV_POLICY = Table(
    "ev_policy",
    "profile; in commands to EV_SET at EV_POLICY_INDEX + profile, of the gateware only",
    (
        _f("min_active", 0, 0, 16, "EVs of a QP below which none goes to ASSUMED_BAD by a loss"),
        _f("events", 0, 16, 2, "states whose beginning is told as EV_STATE: bit 0 GOOD, bit 1 ASSUMED_BAD"),
        _f("oblivious", 0, 18, 1, "marks, trims and losses change no state: all EVs take turns"),
        _f("floor_mask", 0, 19, 5, "a long SKIP ends when these bits of a draw are 0, see `min_active`"),
    ),
)

#: Commands to EV_SET from this index on are about rows of EV_ORDER.
EV_ORDER_INDEX = 0x8000

EV_ORDER = Table(
    "ev_order",
    "as EV_SET; in commands to EV_SET at EV_ORDER_INDEX + index, of the gateware only, and only written",
    (
        _f("place", 0, 0, 5, "number of the EV on the plane"),
        _f("operation", 0, 5, 3, "PathOperation ALLOW or DENY; traffic goes on meanwhile"),
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

DEVICE = Table(
    "device",
    "0; not in the gateware",
    (
        _f("notice_base", 0, 0, 64, "AXI address of the notice ring, aligned to its entry size (NOTICE)"),
        _f("notice_log2_entries", 1, 0, 5, "log2 of the entries of the notice ring"),
        _f("notice_enabled", 1, 5, 1, "the ring exists; enabling it starts at its first entry with phase 1"),
        _f("notice_consumer", 1, 8, 24, "entries the host has read since it was enabled, modulo 2^24"),
        _f("notice_producer", 2, 0, 24, "entries written since the ring was enabled, modulo 2^24", True),
        _f("notice_dropped", 2, 24, 32, "notices lost because the ring was full or not enabled", True),
        _f("flags", 3, 0, 32, "what the device can do, DeviceFlag", True),
        _f("ev_count_align", 3, 32, 8, "ev_count of a profile is a multiple of this", True),
        _f("endpoint_slots", 3, 40, 16, "endpoint requests that may be outstanding", True),
        _f("cc_profiles", 3, 56, 8, "entries of CC_PROFILE", True),
    ),
)

QP_OPTION = Table(
    "qp_option",
    "QP index; not in the gateware. Written before the QP goes to INIT, RTR and RTS; RESET of the send side "
    "clears it",
    (
        _f("cc_profile", 0, 0, 8, "entry of CC_PROFILE"),
        _f("cc_enabled", 0, 8, 1, "1: that profile limits the window, 0: the tracking range alone does"),
        _f("dynamic_mpr", 0, 9, 1, "obey the MPR in received SACKs"),
        _f("trim_nack_dest_unsupported", 0, 10, 1, "the peer does not answer trimmed packets: send NO_TRIM"),
        _f("svc_time_dest_unsupported", 0, 11, 1, "the peer's reflected timestamps include its service time"),
        _f("probes_dest_unsupported", 0, 12, 1, "the peer does not answer reliability probes: send none"),
        _f("requests_dest_unsupported", 0, 13, 1, "the peer does not answer endpoint requests: send none"),
        _f("own_mpr_psns", 0, 16, 13, "PSNs this responder tracks and advertises; 0 means the engine's ring"),
        _f("own_max_immediates", 0, 32, 16, "immediates it stashes; 0 means as many as the engine can"),
        _f("qps_per_peer", 1, 0, 16, "hint: QPs that share this peer, 0 unknown"),
        _f("send_peers", 1, 16, 16, "hint: peers this host sends to, 0 unknown"),
        _f("receive_peers", 1, 32, 16, "hint: peers that send to the peer (expected incast), 0 unknown"),
        _f("mpr_psns", 2, 0, 13, "PSNs the peer tracks, as last told", True),
        _f("base_rtt", 2, 16, 16, "smallest round-trip time seen, ticks of 128 ns", True),
        _f("peer_ports", 2, 32, 32, "peer's ports that are reachable, bit = port - 1, as last told", True),
        _f("window", 3, 0, 32, "congestion window in bytes; all ones without congestion control", True),
        _f("in_flight", 3, 32, 32, "bytes sent and not accounted for", True),
    ),
)

#: Commands to QP_SEND from this index on are about the gateware's congestion windows: CONGESTION_INDEX +
#: 4 x QP + n holds rows 16 n to 16 n + 15 of :class:`mrc_rtl.congestion.rows.Row`, one in each word.
CONGESTION_INDEX = 0x8000

EV_PROFILE = Table(
    "ev_profile",
    "profile; not in the gateware. One that was never written is ONLINE with all fields zero",
    (
        _f("state", 0, 0, 2, "EvProfileState; ONLINE lets QPs send on its values"),
        _f("expanded", 0, 2, 1, "1: the outer destination is the entry's, 0: the QP's template makes it"),
        _f("segment", 0, 3, 1, "1: a routing header carries the entry's segment"),
        _f("events", 0, 4, 4, "states whose beginning is noticed: mask of EvState GOOD and ASSUMED_BAD"),
        _f("min_active", 0, 8, 16, "EVs of a QP below which none goes to ASSUMED_BAD by a loss"),
        _f("oblivious", 0, 24, 1, "marks, trims and losses change no state: all EVs take turns"),
        _f("qps", 1, 0, 16, "QPs that use the profile and are not in RESET", True),
    ),
)

EV_ENTRY = Table(
    "ev_entry",
    "as EV_VALUE; not in the gateware. A write sets EV_VALUE too. When value and port stay, it only changes "
    "the state: DENIED stops the EV in every QP of the profile; GOOD makes it GOOD in those where it was "
    "DENIED or ASSUMED_BAD. When they change, every QP has the new EV in the written state. ASSUMED_BAD "
    "cannot be written. A change the host orders is not noticed",
    (
        _f("value", 0, 0, 32, "32-bit entropy value on the wire"),
        _f("port", 0, 32, 4, "port number, from 1; plane + 1 of the index"),
        _f(
            "state",
            0,
            36,
            4,
            "EvState: write GOOD, DENIED or UNPOPULATED; ASSUMED_BAD when any QP has it so",
        ),
        _f("destination_high", 1, 0, 64, "expanded outer destination, first 8 bytes, big endian"),
        _f("destination_low", 2, 0, 64, "expanded outer destination, last 8 bytes, big endian"),
        _f("segment_high", 3, 0, 64, "expanded segment of the routing header, first 8 bytes, big endian"),
        _f("segment_low", 4, 0, 64, "expanded segment of the routing header, last 8 bytes, big endian"),
        _f("bad_qps", 5, 0, 16, "QPs in which the EV is ASSUMED_BAD", True),
    ),
)

CC_PROFILE = Table(
    "cc_profile",
    "congestion control profile; not in the gateware. QPs take it when they go to RTS",
    (
        _f("adjust_bytes_threshold", 0, 0, 32, "bytes"),
        _f("adjust_period_threshold", 0, 32, 32, "ns"),
        _f("base_rtt", 1, 0, 32, "ns"),
        _f("target_delay", 1, 32, 32, "ns"),
        _f("eta", 2, 0, 32, "bytes, IEEE 754 single"),
        _f("fi", 2, 32, 32, "bytes, IEEE 754 single"),
        _f("fi_scale", 3, 0, 32, "IEEE 754 single"),
        _f("gamma", 3, 32, 32, "IEEE 754 single"),
        _f("max_md_jump", 4, 0, 32, "IEEE 754 single"),
        _f("max_cwnd", 4, 32, 32, "bytes"),
        _f("qa_threshold", 5, 0, 32, "ns"),
        _f("qa_gate", 5, 32, 8, "quick adapt needs less than max_cwnd >> qa_gate achieved"),
        _f("disable_qa", 5, 40, 1, "no quick adapt"),
        _f("alpha", 6, 0, 32, "bytes per ns, IEEE 754 single; not in the API, which leaves it to the device"),
    ),
)

ENDPOINT_OPERATION = Table(
    "endpoint_operation",
    "slot; not in the gateware. A write sends the request; while one is WAITING there it is refused. The "
    "result is also noticed as ENDPOINT_DONE",
    (
        _f("request_id", 0, 0, 16, "on the wire; the host takes numbers below 0x4000, each once at a time"),
        _f("operation", 0, 16, 1, "EndpointOperation"),
        _f("encapsulation", 0, 17, 1, "Encapsulation"),
        _f("segment", 0, 18, 1, "1: a routing header carries the segment"),
        _f("port", 0, 20, 4, "port it leaves on, from 1"),
        _f("dscp", 0, 24, 6, "traffic class of the request"),
        _f("value", 0, 32, 32, "32-bit entropy value on the wire"),
        _f("timeout", 1, 0, 32, "ns until it is given up, at least 1"),
        _f("port_mask", 1, 32, 32, "PORT_STATUS_UPDATE: own ports that are reachable, bit = port - 1"),
        _f("peer_high", 2, 0, 64, "peer's inner IPv6 address, first 8 bytes, big endian"),
        _f("peer_low", 3, 0, 64, "peer's inner IPv6 address, last 8 bytes, big endian"),
        _f("source_high", 4, 0, 64, "outer source, first 8 bytes, big endian"),
        _f("source_low", 5, 0, 64, "outer source, last 8 bytes, big endian"),
        _f("destination_high", 6, 0, 64, "outer destination, first 8 bytes, big endian"),
        _f("destination_low", 7, 0, 64, "outer destination, last 8 bytes, big endian"),
        _f("segment_high", 8, 0, 64, "segment of the routing header, first 8 bytes, big endian"),
        _f("segment_low", 9, 0, 64, "segment of the routing header, last 8 bytes, big endian"),
        _f("status", 10, 0, 2, "EndpointStatus", True),
        _f("answer_port", 10, 4, 4, "port the answer came in on, from 1", True),
        _f("adjusted", 10, 8, 1, "the round-trip time leaves out the peer's service time", True),
        _f("rtt", 10, 32, 32, "round-trip time in ns", True),
    ),
)

#: 64-bit words of a header template: byte n of the frame is byte n % 8 (bits 7:0 first) of word n // 8.
TEMPLATE_WORDS = 16

#: Bytes before this one are MAC addresses on the wire, which belong to the port; in the template they hold
#: options: byte 0 the Encapsulation, byte 1 the mask of outer-destination uSIDs that take the plane (bit 0:
#: the first), byte 2 the mask of those that take the uplink. From here on the template is the image of the
#: frame up to the last byte of BTH; dynamic fields are zero in it and ORed in by the header builder.
TEMPLATE_IMAGE_OFFSET = 12

TABLES: dict[TableId | ControlTableId, Table] = {
    TableId.QP_SEND: QP_SEND,
    TableId.QP_RECEIVE: QP_RECEIVE,
    TableId.SEND_REQUEST: SEND_REQUEST,
    TableId.RECEIVE_REQUEST: RECEIVE_REQUEST,
    TableId.MEMORY_REGION: MEMORY_REGION,
    TableId.COMPLETION_QUEUE: CQ_ENTRY,
    TableId.EV_SET: EV_SET,
    TableId.EV_VALUE: EV_VALUE,
    ControlTableId.DEVICE: DEVICE,
    ControlTableId.QP_OPTION: QP_OPTION,
    ControlTableId.EV_PROFILE: EV_PROFILE,
    ControlTableId.EV_ENTRY: EV_ENTRY,
    ControlTableId.CC_PROFILE: CC_PROFILE,
    ControlTableId.ENDPOINT_OPERATION: ENDPOINT_OPERATION,
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

#: An entry of the notice ring in host memory: 32 bytes, as :data:`CQE` with ``phase`` in the last word. The
#: ring never overruns: a notice that finds it full is dropped and counted.
NOTICE = Table(
    "notice",
    "producer modulo ring size; not from the gateware",
    (
        _f("kind", 0, 0, 4, "NoticeKind"),
        _f("profile", 0, 4, 8, "EV_STATE: EV profile"),
        _f("port", 0, 12, 4, "EV_STATE: port of the EV, from 1. ENDPOINT_DONE: port of the answer, from 1"),
        _f("place", 0, 16, 8, "EV_STATE: number of the EV on its plane, i of EV_VALUE"),
        _f("state", 0, 24, 4, "EV_STATE: EvState begun. ENDPOINT_DONE: EndpointStatus"),
        _f("adjusted", 0, 28, 1, "ENDPOINT_DONE: the round-trip time leaves out the peer's service time"),
        _f("qp", 0, 32, 16, "EV_STATE: QP index"),
        _f("request_id", 0, 48, 16, "ENDPOINT_DONE: of the request"),
        _f("value", 1, 0, 32, "EV_STATE: 32-bit entropy value. ENDPOINT_DONE: round-trip time in ns"),
        _f("dropped", 1, 32, 32, "notices dropped since the one before this"),
        _f("time", 2, 0, 64, "when it happened, ticks of 128 ns"),
        _f("slot", 3, 0, 16, "ENDPOINT_DONE: slot of the request"),
        _f("phase", 3, 63, 1, "lap parity"),
    ),
)
