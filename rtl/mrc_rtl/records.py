"""Records that travel between the blocks of the engine, and the numbers of counters and trace kinds.

A packet is parsed once into a record; nobody parses it again downstream. ``body`` is always the big-endian
integer of the headers behind BTH, first byte in the most significant bits: use the layouts of
:mod:`mrc_rtl.layouts` on slices of it.
"""

from enum import IntEnum

from amaranth.lib import data

from .config import NicConfig
from .wire import NackReason

__all__ = [
    "AnswerKind",
    "BODY_BITS",
    "CONTROL_IMAGES",
    "CongestionKind",
    "DATA_BODY_BITS",
    "GlobalCounter",
    "NACK_REASONS",
    "PORT_COUNTERS",
    "PathOperation",
    "PortCounter",
    "TraceKind",
    "Trimmed",
    "advance_record",
    "completion_record",
    "congestion_event",
    "control_request",
    "counter_event",
    "consumer_record",
    "doorbell",
    "event_record",
    "feedback_record",
    "image_row_bits",
    "nak_trigger",
    "path_operation",
    "path_probe",
    "peer_query",
    "peer_update",
    "place_command",
    "placed_record",
    "probe_answer",
    "qp_error",
    "receive_init",
    "receive_state",
    "received_report",
    "refused_packet",
    "region_answer",
    "region_request",
    "settings",
    "snapshot_answer",
    "snapshot_request",
    "stash_record",
    "tail_probe",
    "trace_record",
    "transmit_descriptor",
    "transmit_plan",
]

#: Longest header stack behind BTH: SETH and CC_STATE, 36 bytes.
BODY_BITS = 288

#: METH, TSETH, RETH and ImmDt of a write, 28 bytes.
DATA_BODY_BITS = 224

#: Control packets kept by bind until their frame is built: four that wait, and those on their way.
CONTROL_IMAGES = 8


class Trimmed(IntEnum):
    """How a frame's payload got lost, if it did: two cuts, from the DSCP of its outermost IPv6 header."""

    NO = 0
    FABRIC = 1
    LAST_HOP = 2
    NO_ROOM = 3  # whole on the wire, but its plane's packet buffer was full


class AnswerKind(IntEnum):
    """What a packet is answered by.

    The two low bits of a NAK are those of its AETH syndrome.
    """

    SACK = 0
    SACK_AND_ACK = 1
    SACK_OF_PROBE = 2
    ENDPOINT_RESPONSE = 3
    NAK_PSN_SEQUENCE = 4
    NAK_INVALID_REQUEST = 5
    NAK_REMOTE_ACCESS = 6
    NAK_REMOTE_OPERATIONAL = 7
    NACK_TRIMMED = 8
    NACK_TRIMMED_LASTHOP = 9
    NACK_NO_PKT_BUFFER = 10
    NACK_PSN_OOR_WINDOW = 11
    NACK_UNEXP_EVENT = 12


#: Bits of an AnswerKind.
ANSWER_KIND_BITS = 4

#: Reason of each kind of NACK.
NACK_REASONS = {
    AnswerKind.NACK_TRIMMED: NackReason.TRIMMED,
    AnswerKind.NACK_TRIMMED_LASTHOP: NackReason.TRIMMED_LASTHOP,
    AnswerKind.NACK_NO_PKT_BUFFER: NackReason.NO_PKT_BUFFER,
    AnswerKind.NACK_PSN_OOR_WINDOW: NackReason.PSN_OOR_WINDOW,
    AnswerKind.NACK_UNEXP_EVENT: NackReason.UNEXP_EVENT,
}


class PortCounter(IntEnum):
    """Outcomes of received frames, one per frame and port, then what a port sent.

    Frames received equal the sum of all outcomes from ACCEPTED to TRIM_IGNORED (rule 8 of the design).
    """

    RX_FRAMES = 0
    ACCEPTED = 1
    DUPLICATE = 2
    CONTROL = 3  # feedback handed to the requester, probes, endpoint requests and responses
    TRIMMED_ANSWERED = 4
    DROP_FRAME_ERROR = 5  # the MAC marked it, or it is shorter than an Ethernet header
    DROP_ETHERTYPE = 6  # VLAN, ARP and all else but IPv6
    DROP_IPV4 = 7
    DROP_NOT_MRC = 8  # IPv6, but no UDP to an accepted port, extension headers, bad version
    DROP_ADDRESS = 9  # inner or outer destination is not this port's
    DROP_TRUNCATED = 10  # shorter than its headers say, without a trimmed DSCP
    DROP_LENGTH = 11  # lengths contradict each other, or the payload exceeds the MTU
    DROP_ICRC = 12
    DROP_OPCODE = 13
    DROP_NO_PKT_BUFFER = 14
    DROP_QP = 15  # no such QP, or not in a receiving state
    DROP_PEER = 16
    DROP_PKEY = 17
    DROP_WINDOW = 18
    DROP_ACCESS = 19  # region, key, rights, bounds
    DROP_FEEDBACK = 20  # feedback for a PSN never sent, or that contradicts the record
    TRIM_IGNORED = 21  # trimmed, but not a write, or too short
    TX_FRAMES = 24
    TX_DATA = 25
    TX_RETRANSMISSIONS = 26
    TX_CONTROL = 27


#: Counters of one port; counter index = port x PORT_COUNTERS + PortCounter.
PORT_COUNTERS = 32


class GlobalCounter(IntEnum):
    """Counters of the whole engine; counter index = planes x PORT_COUNTERS + GlobalCounter."""

    SACK_SENT = 0
    NACK_SENT = 1
    ACK_SENT = 2
    NAK_SENT = 3
    SACK_RECEIVED = 4
    NACK_RECEIVED = 5
    ACK_RECEIVED = 6
    FEEDBACK_IGNORED = 7
    TIMEOUTS = 8
    RETRANSMIT_QUEUE_FULL = 9
    SACK_TRIGGERS_DROPPED = 10
    COMPLETIONS = 11
    COMPLETION_OVERRUN = 12
    EVENTS_DROPPED = 13
    READ_ERRORS = 14
    WRITE_ERRORS = 15


class TraceKind(IntEnum):
    """Kinds of trace records."""

    BIND = 1
    ADMIT = 2
    PLACE = 3
    MERGE = 4
    LOSS = 5
    EV_CHANGE = 6
    TIMER = 7
    WINDOW = 8


def buffer_address_bits(config: NicConfig) -> int:
    """Bits that address a beat of one plane's packet buffer."""
    return (config.receive_buffer_bytes // config.data_bytes - 1).bit_length()


def plane_bits(config: NicConfig) -> int:
    """Bits of a plane number (at least one)."""
    return max(1, (config.planes - 1).bit_length())


def _trigger_fields(config: NicConfig) -> dict[str, int]:
    """What travels with an admitted packet to the tracker and on to the SACK that it triggers.

    ``age`` is the packet's timestamp less the time it came in: adding the time of the answer makes the
    reflected timestamp with the service time in it. ``immediate`` tells the length of its headers, ``epoch``
    which drain (see ``drain``) waits for it. The placement hands all of them on unchanged.
    """
    return {
        "qp": config.qp_bits,
        "psn": 24,
        "plane": plane_bits(config),
        "ev": 32,
        "age": 16,
        "timestamped": 1,
        "marked": 1,
        "retransmission": 1,
        "ack_request": 1,
        "immediate": 1,
        "epoch": 1,
    }


def place_command(config: NicConfig) -> data.StructLayout:
    """An admitted packet on its way to memory. ``bus_address`` is the AXI address of its first byte.

    ``drop``: nothing is written and nothing reported, the packet's beats are only taken from its plane's
    buffer; of the other fields only ``plane`` and ``length`` count then.
    """
    return data.StructLayout(
        {
            **_trigger_fields(config),
            "length": 13,
            "last": 1,
            "drop": 1,
            "bus_address": config.address_width,
        }
    )


def placed_record(config: NicConfig) -> data.StructLayout:
    """A packet all of whose memory writes were answered. ``error``: one of them with an error."""
    return data.StructLayout({**_trigger_fields(config), "length": 13, "last": 1, "error": 1})


def received_report(config: NicConfig) -> data.StructLayout:
    """A packet whose memory writes were answered: it may trigger a SACK.

    ``failed``: with an error, so that the peer gets a NAK; ``advanced``: the cumulative PSN moved over the
    end of a message; ``drained``: nothing above the cumulative PSN is placed any more.
    """
    return data.StructLayout(
        {**_trigger_fields(config), "length": 13, "failed": 1, "advanced": 1, "drained": 1}
    )


def refused_packet(config: NicConfig) -> data.StructLayout:
    """A packet that is not placed and is answered, see :class:`AnswerKind`.

    Duplicates are answered by a SACK, those below the expected PSN by a transport ACK as well. Of a
    reliability probe ``psn`` is the probe id, of an endpoint request the request's, and its operation stands
    in ``marked`` (low bit) and ``retransmission``.
    """
    names = ("qp", "psn", "plane", "ev", "age", "timestamped", "marked", "retransmission", "ack_request")
    fields = _trigger_fields(config)
    return data.StructLayout({**{name: fields[name] for name in names}, "kind": ANSWER_KIND_BITS})


def receive_init(config: NicConfig) -> data.StructLayout:
    """A QP's receive state starts anew (its qp_receive entry was written); nothing of it is in flight.

    ``active``: it now accepts packets (RTR or RTS), from ``initial_psn`` on; otherwise it was reset.
    """
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "active": 1,
            "initial_psn": 24,
            "peer_qpn_low": 16,
            "completion_queue": max(1, (config.completion_queues - 1).bit_length()),
        }
    )


def receive_state(config: NicConfig) -> data.StructLayout:
    """The read-only words of a qp_receive entry, as the tracker answers for the host."""
    return data.StructLayout(
        {"cumulative_psn": 24, "highest_psn": 24, "message_number": 24, "received_units": 24}
    )


def advance_record(config: NicConfig) -> data.StructLayout:
    """Everything up to ``cumulative_psn`` of a QP is placed."""
    return data.StructLayout({"qp": config.qp_bits, "cumulative_psn": 24})


def region_answer(config: NicConfig) -> data.StructLayout:
    """Outcome of a region look-up; ``bus_address`` counts only when ``ok``."""
    return data.StructLayout({"ok": 1, "bus_address": config.address_width})


def snapshot_request(config: NicConfig) -> data.StructLayout:
    """The SACK generator asks for a QP's receive state at the moment it builds a control packet.

    ``reported``: the bitmap of the answer goes out in a SACK, so that the tracker moves its lowest
    unreported PSN or its walk of the window; otherwise the question changes nothing.
    """
    return data.StructLayout({"qp": config.qp_bits, "reported": 1})


def snapshot_answer(config: NicConfig) -> data.StructLayout:
    """A QP's receive state. Bit i of ``bitmap`` is PSN ``base`` + i; ``received_units`` are 256 bytes.

    ``cumulative_psn`` is the highest PSN up to which everything is placed (cack_psn), ``message_number`` the
    messages completed, ``peer_qpn_low`` the low 16 bits of the peer's QP number (qp_receive word 0).
    ``bitmap`` and ``base``, the low bits of a PSN near the window, count only when it was ``reported``.
    """
    return data.StructLayout(
        {
            "cumulative_psn": 24,
            "base": config.psn_ring_bits + 3,
            "bitmap": 64,
            "ooo_count": 15,
            "received_units": 24,
            "message_number": 24,
            "peer_qpn_low": 16,
        }
    )


def nak_trigger(config: NicConfig) -> data.StructLayout:
    """A transport NAK for a packet that was placed before."""
    return data.StructLayout(
        {"qp": config.qp_bits, "psn": 24, "plane": plane_bits(config), "kind": ANSWER_KIND_BITS}
    )


def stash_record(config: NicConfig) -> data.StructLayout:
    """The immediate of a claimed *_IMM packet, which came in on ``plane``.

    ``length`` is the message's length (RETH.dma_len), ``rqmsn`` and ``message_number`` are METH.RQMSN and
    METH.MSN.
    """
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "psn": 24,
            "plane": plane_bits(config),
            "rqmsn": 16,
            "message_number": 16,
            "immediate": 32,
            "length": 32,
        }
    )


def feedback_record(config: NicConfig) -> data.StructLayout:
    """A SACK, NACK or transport ACK for the requester; QP, peer and P_Key are checked."""
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "plane": plane_bits(config),
            "opcode": 8,
            "psn": 24,
            "retransmission": 1,
            "body": BODY_BITS,
            "received_at": 16,
        }
    )


def region_request(config: NicConfig) -> data.StructLayout:
    """A look-up in the memory region table: ``length`` bytes at ``address`` under ``key``.

    ``write`` asks for the right to be written by a peer; otherwise the region only has to be local.
    """
    return data.StructLayout({"key": 32, "protection_domain": 8, "address": 64, "length": 13, "write": 1})


def peer_query(config: NicConfig) -> data.StructLayout:
    """A host whose QPs are wanted.

    ``source``: its inner IPv6 address. ``updates``: it tells which of its ports are ``reachable`` (bit:
    plane), which concerns all of its QPs; otherwise one is enough.
    """
    return data.StructLayout({"source": 128, "updates": 1, "reachable": config.planes})


def peer_update(config: NicConfig) -> data.StructLayout:
    """``reachable``: planes on which the peer of a QP can be reached, bit by plane."""
    return data.StructLayout({"qp": config.qp_bits, "reachable": config.planes})


def transmit_descriptor(config: NicConfig) -> data.StructLayout:
    """A data packet before bind. ``body`` holds METH, TSETH (timestamp zero), RETH and ImmDt."""
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "psn": 24,
            "opcode": 8,
            "ack_request": 1,
            "retransmission": 1,
            "immediate": 1,
            "length": 13,
            "send_slot": max(1, (config.send_queue_depth - 1).bit_length()),
            "body": DATA_BODY_BITS,
        }
    )


def control_request(config: NicConfig) -> data.StructLayout:
    """A SACK, NACK, transport ACK or endpoint response waiting for an EV on ``plane``.

    ``body_words``: 4-byte words of body.
    """
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "plane": plane_bits(config),
            "opcode": 8,
            "psn": 24,
            "retransmission": 1,
            "body": BODY_BITS,
            "body_words": 4,
        }
    )


class PathOperation(IntEnum):
    """What the feedback for a packet, a probe or the host says of an entropy value of a QP."""

    SKIP = 0  # the packet was marked, or trimmed inside the fabric
    LOST = 1  # it was lost: ASSUMED_BAD, unless too few values would be left
    CONDEMN = 2  # the responder says ALWAYS_SKIP: ASSUMED_BAD, however few are left
    UNDO = 3  # a packet it was blamed for did arrive
    RECOVER = 4  # probes say that the path is good
    SCAN = 5  # changes nothing: which of the plane are bad
    ALLOW = 6  # the host: GOOD, whatever it was
    DENY = 7  # the host: not to be used, until it is allowed


def path_operation(config: NicConfig) -> data.StructLayout:
    """A change that the owner of the path table is asked to make; ``operation`` is a PathOperation."""
    return data.StructLayout(
        {"qp": config.qp_bits, "plane": plane_bits(config), "ev_index": 5, "operation": 3}
    )


def path_probe(config: NicConfig) -> data.StructLayout:
    """A probe that leaves on one entropy value of a QP; the SACK that answers it has its ``number``."""
    return data.StructLayout({"qp": config.qp_bits, "plane": plane_bits(config), "ev_index": 5, "number": 16})


def tail_probe(config: NicConfig) -> data.StructLayout:
    """A question for a QP's peer about what it lacks, to leave on ``plane``; the SACK has its ``number``."""
    return data.StructLayout({"qp": config.qp_bits, "plane": plane_bits(config), "number": 16})


def probe_answer(config: NicConfig) -> data.StructLayout:
    """The answer to a probe: whether the path marked it, and the round-trip time in ticks of 128 ns."""
    return data.StructLayout({"qp": config.qp_bits, "number": 16, "marked": 1, "rtt": 16})


class CongestionKind(IntEnum):
    """What a congestion window learns of."""

    SENT = 0  # ``size`` bytes left
    SACK = 1  # a SACK arrived: all fields but ``size``
    NACK = 2  # a packet of ``size`` bytes was refused; ``marked``: because a switch trimmed it
    LOSS = 3  # one is taken for lost
    IDLE = 4  # nothing is outstanding: what is still counted was given up


def congestion_event(config: NicConfig) -> data.StructLayout:
    """An event of one QP's congestion window, in the order in which they happened.

    ``units``: the responder's rcvd_bytes (256 bytes); ``marked``: ECN; ``rtt``: ticks of 128 ns, with
    ``sampled``; ``penalty``, ``restore``: the destination's back-pressure (CC_STATE).
    """
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "kind": 3,
            "size": 13,
            "units": 24,
            "marked": 1,
            "rtt": 16,
            "sampled": 1,
            "penalty": 7,
            "restore": 1,
        }
    )


def image_row_bits(config: NicConfig) -> int:
    """Bits of the number of a waiting packet's image: its slot, or with the top bit set that of control."""
    return 1 + (max(CONTROL_IMAGES, config.transmit_slots) - 1).bit_length()


def transmit_plan(config: NicConfig) -> data.StructLayout:
    """One frame to build: the outcome of bind for data, or a control packet. Nothing about it changes later.

    ``row`` is the packet's image (:mod:`mrc_rtl.frame_image`), for data also its slot; ``time`` is written
    into TSETH of data. ``discard``: the data packet's QP is no longer sending; its slot is only freed.
    ``endpoint``: an endpoint response, for no QP of the peer.
    """
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "plane": plane_bits(config),
            "data": 1,
            "discard": 1,
            "endpoint": 1,
            "ev": 32,
            "dscp": 6,
            "ecn": 2,
            "retransmission": 1,
            "time": 16,
            "body_words": 4,
            "row": image_row_bits(config),
            "length": 13,
        }
    )


def completion_record(config: NicConfig) -> data.StructLayout:
    """A completion on its way to host memory (:data:`mrc_rtl.tables.CQE`)."""
    return data.StructLayout(
        {
            "queue": max(1, (config.completion_queues - 1).bit_length()),
            "qp": config.qp_bits,
            "wr_id": 64,
            "opcode": 8,
            "status": 8,
            "byte_length": 32,
            "immediate": 32,
            "message_number": 24,
        }
    )


def qp_error(config: NicConfig) -> data.StructLayout:
    """A QP goes to ERROR; ``reason`` is a QpErrorReason."""
    return data.StructLayout({"qp": config.qp_bits, "reason": 4})


def doorbell(config: NicConfig) -> data.StructLayout:
    """``count`` requests of a QP were added to its send or receive queue."""
    return data.StructLayout({"qp": config.qp_bits, "count": 11})


def consumer_record(config: NicConfig) -> data.StructLayout:
    """The host has read the completions of a queue up to ``index`` (modulo 2^24)."""
    return data.StructLayout({"queue": queue_bits(config), "index": 24})


def queue_bits(config: NicConfig) -> int:
    """Bits of a completion queue number."""
    return max(1, (config.completion_queues - 1).bit_length())


def event_record(config: NicConfig) -> data.StructLayout:
    """Something the host is told through the event queue; ``kind`` is an EventKind.

    ``place``, ``state``: of EV_STATE, with an EvState.
    """
    return data.StructLayout({"qp": config.qp_bits, "reason": 4, "kind": 4, "place": 5, "state": 2})


def counter_event(config: NicConfig) -> data.StructLayout:
    """One increment of one counter."""
    return data.StructLayout({"index": counter_bits(config)})


def counter_count(config: NicConfig) -> int:
    """Counters of an engine: those of the ports, then the global ones."""
    return config.planes * PORT_COUNTERS + 16


def counter_bits(config: NicConfig) -> int:
    """Bits of a counter index."""
    return (counter_count(config) - 1).bit_length()


def trace_record(config: NicConfig) -> data.StructLayout:
    """One decision, for differential tests and reports. ``detail`` is described where it is emitted."""
    return data.StructLayout({"kind": 4, "qp": 8, "plane": 3, "psn": 24, "detail": 64})


def settings(config: NicConfig) -> data.StructLayout:
    """Static registers as the blocks see them (`mrc_rtl/registers.rdl` describes each one).

    ``own_address`` is the inner IPv6 address as big-endian integer, ``own_usid`` the uSID of this host with
    the plane bits zero, ``usid_block`` the 32-bit locator block. MACs are big-endian integers. ``port_up`` is
    link and administrative state together.
    """
    return data.StructLayout(
        {
            "enable": 1,
            "own_address": 128,
            "own_usid": 16,
            "usid_block": 32,
            "mac": data.ArrayLayout(48, config.planes),
            "next_hop_mac": data.ArrayLayout(48, config.planes),
            "port_up": config.planes,
            "udp_destination_port": 16,
            "dscp_no_trim": 6,
            "dscp_trimmable": 6,
            "dscp_retransmission": 6,
            "dscp_trimmed": 6,
            "dscp_trimmed_last_hop": 6,
            "dscp_control": 6,
            "trimming": 1,  # data leaves as TRIMMABLE (and RETX) instead of NO_TRIM
            "sack_threshold": 17,  # bytes; a SACK when the trigger count exceeds it
            "base_rtt": 16,  # ticks of 128 ns
            "reorder_window": 16,  # the same; 0: half of base_rtt
            "probe_interval": 16,  # likewise: between two probes of an EV
            "probe_doublings": 4,  # of that interval, while nothing answers
            "probe_successes": 4,  # answers in a row that make an EV GOOD
            "probe_spacing": 16,  # ticks; 16 probes of the NIC in 16 of them
        }
    )
