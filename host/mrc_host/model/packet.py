"""A packet inside the model: every header field that anything reads, as an integer attribute."""

from __future__ import annotations

__all__ = ["UNBOUND", "ModelPacket"]

UNBOUND = -1
"""Value of ``ModelPacket.ev`` and ``plane`` before a path has been chosen."""


class ModelPacket:
    """One packet, made by a sender and read by a receiver; fields its opcode does not carry stay 0.

    Attributes
    ----------
    opcode : int
        ``wire.Opcode``.
    qp : int
        Index of the local QP: whose template builds the frame, or whose packet arrived; −1 for none.
    destination_qpn : int
        BTH; the template gives it when the packet is sent, except for ``wire.ENDPOINT_QPN``.
    psn : int
        BTH: PSN of a write; what protocol.md 1.3 says for control packets (id of endpoint operations).
    partition_key : int
        BTH.
    ack_request, retransmission, timestamped : bool
        BTH bits a, rtx and ts.
    ev : int
        32-bit entropy value of the packet's own headers, :data:`UNBOUND` before one is chosen.
    plane : int
        Plane it leaves or came in on, :data:`UNBOUND` before one is chosen.
    traffic_class : int
        DSCP and ECN of the packet (the inner header's when received).
    marked : bool
        Received with CE on any of its IPv6 headers.
    trimmed : int
        ``mrc_rtl.records.Trimmed``: how it arrived.
    source, destination : int
        Inner IPv6 addresses.
    outer_source, outer_destination : int
        Outer IPv6 addresses: as received, 0 without an outer header. To send: instead of the template's where
        they are not 0; a packet without QP has an outer header when ``outer_destination`` is not 0.
    segment : int
        Segment of a routing header to send, 0 for none.
    timestamp : int
        16 bits in ticks of 128 ns: TSETH, PETH, ERTH of requests; reflected in SACK, NACK and responses.
    message_number, receive_number : int
        METH.MSN and METH.RQMSN; AETH.MSN in ``message_number`` of a transport ACK.
    address, remote_key, message_length : int
        RETH: VA of this packet's payload, R_Key, length of the whole message.
    immediate : int
        ImmDt.
    payload : bytes
        Without pad.
    length : int
        Bytes of payload (also when ``payload`` is gone because a switch trimmed it).
    syndrome : int
        AETH.
    entropy : int
        EV echoed by SETH or NETH.
    mark : int
        SETH.m (``wire.Mark``).
    probe : bool
        SETH.pr: the SACK answers the reliability probe ``probe_id``.
    probe_id : int
        PETH, or the field ack_psn_offset of a SACK with pr = 1.
    acknowledged_psn : int
        PSN of the packet that triggered a SACK (cack_psn + ack_psn_offset), or of a NACK's packet.
    cumulative_psn : int
        SETH.cack_psn.
    mpr_units : int
        SETH.mpr in units of 128 PSNs, 0 for no update.
    sack_base, sack_bitmap : int
        PSN of bit 0 (cack_psn + sack_offset) and the 64 bits.
    source_context, destination_context : int
        spdcid and dpdcid of control headers.
    out_of_order : int
        CC_STATE.ooo_count.
    restore : bool
        CC_STATE.restore_cwnd.
    penalty : int
        CC_STATE.rcv_cwnd_pen, 0 to 127.
    received_units : int
        CC_STATE.rcvd_bytes in units of 256 bytes, 24 bits.
    reason : int
        NETH.nack_reason.
    operation, port_mask : int
        ERTH.op or EETH.op, and ERTH.port_status_mask.
    received_ps : int
        Time its last bit arrived.
    """

    __slots__ = (
        "ack_request",
        "acknowledged_psn",
        "address",
        "cumulative_psn",
        "destination",
        "destination_context",
        "destination_qpn",
        "entropy",
        "ev",
        "immediate",
        "length",
        "mark",
        "marked",
        "message_length",
        "message_number",
        "mpr_units",
        "opcode",
        "operation",
        "out_of_order",
        "outer_destination",
        "outer_source",
        "partition_key",
        "payload",
        "penalty",
        "plane",
        "port_mask",
        "probe",
        "probe_id",
        "psn",
        "qp",
        "reason",
        "receive_number",
        "received_ps",
        "received_units",
        "remote_key",
        "restore",
        "retransmission",
        "sack_base",
        "sack_bitmap",
        "segment",
        "source",
        "source_context",
        "syndrome",
        "timestamp",
        "timestamped",
        "traffic_class",
        "trimmed",
    )

    def __init__(self, opcode: int, qp: int = -1, psn: int = 0) -> None:
        self.opcode: int = opcode
        self.qp: int = qp
        self.destination_qpn: int = 0
        self.psn: int = psn
        self.partition_key: int = 0
        self.ack_request: bool = False
        self.retransmission: bool = False
        self.timestamped: bool = False
        self.ev: int = UNBOUND
        self.plane: int = UNBOUND
        self.traffic_class: int = 0
        self.marked: bool = False
        self.trimmed: int = 0
        self.source: int = 0
        self.destination: int = 0
        self.outer_source: int = 0
        self.outer_destination: int = 0
        self.segment: int = 0
        self.timestamp: int = 0
        self.message_number: int = 0
        self.receive_number: int = 0
        self.address: int = 0
        self.remote_key: int = 0
        self.message_length: int = 0
        self.immediate: int = 0
        self.payload: bytes = b""
        self.length: int = 0
        self.syndrome: int = 0
        self.entropy: int = 0
        self.mark: int = 0
        self.probe: bool = False
        self.probe_id: int = 0
        self.acknowledged_psn: int = 0
        self.cumulative_psn: int = 0
        self.mpr_units: int = 0
        self.sack_base: int = 0
        self.sack_bitmap: int = 0
        self.source_context: int = 0
        self.destination_context: int = 0
        self.out_of_order: int = 0
        self.restore: bool = False
        self.penalty: int = 0
        self.received_units: int = 0
        self.reason: int = 0
        self.operation: int = 0
        self.port_mask: int = 0
        self.received_ps: int = 0
