"""A packet inside the model: every header field that anything reads, as an integer attribute.

Models hand it to the fabric, and through it to each other, as the object it is. Its frame is made only for
who asks: a capture, a tap, gateware.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from mrc_host.fabric.packet import Packet, route_key
from mrc_host.model.layouts import BODY_BYTES
from mrc_host.packets.peek import FrameInfo
from mrc_rtl import wire
from mrc_rtl.wire import Dscp, Opcode

if TYPE_CHECKING:
    from mrc_host.model.encoder import FrameEncoder
    from mrc_host.model.templates import Template

__all__ = ["UNBOUND", "ModelPacket"]

UNBOUND: Final = -1
"""Value of ``ModelPacket.ev`` and ``plane`` before a path has been chosen."""

_ETHERNET: Final = wire.ETHERNET.bytes
_OUTER: Final = wire.IPV6.bytes
_SEGMENT: Final = wire.SRH.bytes
_BTH_AT: Final = wire.ETHERNET.bytes + wire.IPV6.bytes + wire.UDP.bytes
_STAMP: Final = wire.TSETH.bytes
_TAIL: Final = wire.BTH.bytes + wire.ICRC.bytes
_WRITES: Final = tuple(wire.is_write(opcode) for opcode in range(256))
_BODIES: Final = tuple(BODY_BYTES.get(opcode, 0) for opcode in range(256))
_ENDPOINT: Final = tuple(
    opcode in (Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE) for opcode in range(256)
)
_ENDPOINT_QPN: Final = wire.ENDPOINT_QPN
_DEFAULT_KEY: Final = wire.PKEY_DEFAULT
_TRIMMED: Final = (int(Dscp.TRIMMED), int(Dscp.TRIMMED_LASTHOP))


class ModelPacket(Packet):
    """One packet, made by a sender and read by a receiver; fields its opcode does not carry stay 0.

    Attributes
    ----------
    opcode : int
        ``wire.Opcode``.
    is_write : bool
        It carries payload, and RETH.
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
        DSCP and ECN of the packet (the inner header's when received); what switches make of them on the way
        stands in ``outer_class``.
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
    bus_address, region : int
        Where a received write goes in host memory; row of its region, −1 without payload.
    full_size, bth_at : int
        Bytes of the frame as it left its sender, without FCS, and offset of the BTH; set by :meth:`seal`.
    source_host, destination_host : int
        Numbers of the hosts, from the inner addresses; set by :meth:`seal`.
    """

    __slots__ = (
        "_encoder",
        "_template",
        "ack_request",
        "acknowledged_psn",
        "address",
        "bth_at",
        "bus_address",
        "cumulative_psn",
        "destination",
        "destination_host",
        "destination_context",
        "destination_qpn",
        "entropy",
        "ev",
        "full_size",
        "immediate",
        "is_write",
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
        "region",
        "remote_key",
        "restore",
        "retransmission",
        "sack_base",
        "sack_bitmap",
        "segment",
        "source",
        "source_host",
        "source_context",
        "syndrome",
        "timestamp",
        "timestamped",
        "traffic_class",
        "trimmed",
    )

    def __init__(self, opcode: i64, qp: i64 = -1, psn: i64 = 0) -> None:
        super().__init__()
        self.opcode: i64 = opcode
        self.is_write: bool = _WRITES[opcode]
        self.qp: i64 = qp
        self.destination_qpn: i64 = 0
        self.psn: i64 = psn
        self.partition_key: i64 = 0
        self.ack_request: bool = False
        self.retransmission: bool = False
        self.timestamped: bool = False
        self.ev: i64 = UNBOUND
        self.plane: i64 = UNBOUND
        self.traffic_class: i64 = 0
        self.marked: bool = False
        self.trimmed: i64 = 0
        self.source: int = 0
        self.destination: int = 0
        self.outer_source: int = 0
        self.outer_destination: int = 0
        self.segment: int = 0
        self.timestamp: i64 = 0
        self.message_number: i64 = 0
        self.receive_number: i64 = 0
        self.address: int = 0
        self.remote_key: i64 = 0
        self.message_length: i64 = 0
        self.immediate: i64 = 0
        self.payload: bytes = b""
        self.length: i64 = 0
        self.syndrome: i64 = 0
        self.entropy: i64 = 0
        self.mark: i64 = 0
        self.probe: bool = False
        self.probe_id: i64 = 0
        self.acknowledged_psn: i64 = 0
        self.cumulative_psn: i64 = 0
        self.mpr_units: i64 = 0
        self.sack_base: i64 = 0
        self.sack_bitmap: int = 0
        self.source_context: i64 = 0
        self.destination_context: i64 = 0
        self.out_of_order: i64 = 0
        self.restore: bool = False
        self.penalty: i64 = 0
        self.received_units: i64 = 0
        self.reason: i64 = 0
        self.operation: i64 = 0
        self.port_mask: i64 = 0
        self.received_ps: i64 = 0
        self.bus_address: int = 0
        self.region: i64 = -1
        self.full_size: i64 = 0
        self.bth_at: i64 = 0
        self.source_host: i64 = 0
        self.destination_host: i64 = 0
        self._template: Template | None = None
        self._encoder: FrameEncoder | None = None

    def seal(self, template: Template | None, encoder: FrameEncoder, own_address: int) -> None:
        """Take from the template what the receiver reads, and say what switches look at: it leaves now.

        Parameters
        ----------
        template : Template or None
            Of the sender's QP.
        encoder : FrameEncoder
            Of the sender's port.
        own_address : int
            Inner address of the sender.
        """
        self._template = template
        self._encoder = encoder
        outer: i64 = 0
        if self.outer_destination:
            outer = _OUTER + _SEGMENT if self.segment else _OUTER
        elif template is not None and template.encapsulated:
            outer = _OUTER
        opcode: i64 = self.opcode
        length: i64 = len(self.payload)
        size: i64 = _BTH_AT + outer + _BODIES[opcode] + (length + 3 & ~3) + _TAIL
        self.bth_at = _BTH_AT + outer
        self.length = length
        if self.is_write:
            self.message_number &= 0xFFFF
            if self.timestamped:
                size += _STAMP
        self.full_size = size
        if template is None:
            self.source = own_address
            self.source_host = own_address >> 64 & 0xFFFF
            self.destination_host = self.destination >> 64 & 0xFFFF
            self.partition_key = _DEFAULT_KEY
        else:
            self.source = template.source
            self.destination = template.destination
            self.source_host = template.source_host
            self.destination_host = template.destination_host
            self.partition_key = template.partition_key
            self.destination_qpn = template.destination_qpn
        if _ENDPOINT[opcode]:
            self.destination_qpn = _ENDPOINT_QPN
            if template is not None and template.encapsulated and not self.outer_source:
                self.outer_source = int.from_bytes(template.outer_source(self.plane), "big")
        if template is not None and template.reaches_all and not self.outer_destination:
            key = template.key(self.plane, self.ev)
        else:
            key = route_key(self.original)
        self.enter(size, self.traffic_class, key)

    def make_frame(self) -> bytes:
        """Return the frame as its sender put it on the link, from Ethernet on, without FCS."""
        assert self._encoder is not None
        return self._encoder.encode(self, self._template)

    def look(self) -> FrameInfo:
        """Return what a quick look at that frame would tell."""
        write = self.is_write
        dscp = self.traffic_class >> 2
        return FrameInfo(
            self.opcode,
            self.destination_qpn,
            self.psn,
            self.ack_request,
            self.retransmission,
            write and self.timestamped,
            self.ev,
            dscp,
            self.traffic_class & 3,
            dscp in _TRIMMED,
            self.bth_at > _BTH_AT,
            self.length,
            self.message_number & 0xFFFF if write else None,
            self.address if write else None,
            _ETHERNET,
            self.bth_at,
        )

    def copy(self) -> ModelPacket:
        """Return another packet in the same state."""
        other = ModelPacket(self.opcode, self.qp, self.psn)
        self.copy_state(other)
        other.destination_qpn = self.destination_qpn
        other.partition_key = self.partition_key
        other.ack_request = self.ack_request
        other.retransmission = self.retransmission
        other.timestamped = self.timestamped
        other.ev = self.ev
        other.plane = self.plane
        other.traffic_class = self.traffic_class
        other.marked = self.marked
        other.trimmed = self.trimmed
        other.source = self.source
        other.destination = self.destination
        other.outer_source = self.outer_source
        other.outer_destination = self.outer_destination
        other.segment = self.segment
        other.timestamp = self.timestamp
        other.message_number = self.message_number
        other.receive_number = self.receive_number
        other.address = self.address
        other.remote_key = self.remote_key
        other.message_length = self.message_length
        other.immediate = self.immediate
        other.payload = self.payload
        other.length = self.length
        other.syndrome = self.syndrome
        other.entropy = self.entropy
        other.mark = self.mark
        other.probe = self.probe
        other.probe_id = self.probe_id
        other.acknowledged_psn = self.acknowledged_psn
        other.cumulative_psn = self.cumulative_psn
        other.mpr_units = self.mpr_units
        other.sack_base = self.sack_base
        other.sack_bitmap = self.sack_bitmap
        other.source_context = self.source_context
        other.destination_context = self.destination_context
        other.out_of_order = self.out_of_order
        other.restore = self.restore
        other.penalty = self.penalty
        other.received_units = self.received_units
        other.reason = self.reason
        other.operation = self.operation
        other.port_mask = self.port_mask
        other.received_ps = self.received_ps
        other.bus_address = self.bus_address
        other.region = self.region
        other.full_size = self.full_size
        other.bth_at = self.bth_at
        other.source_host = self.source_host
        other.destination_host = self.destination_host
        other._template = self._template
        other._encoder = self._encoder
        return other
