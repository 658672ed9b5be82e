"""What no protocol can beat: goodput and completion times that links and headers allow.

Everything is computed from the headers of the packets really sent, with preamble, FCS and gap on the wire.

==========================================  =====
around a payload, SRv6, with time stamps    bytes
==========================================  =====
preamble, FCS, gap                          24
Ethernet, outer and inner IPv6              94
UDP, BTH, METH, TSETH, RETH                 44
ICRC                                        4
sum                                         166
immediate, in the last packet of a message  4
==========================================  =====

A payload of 4096 bytes therefore has at most 4096 / 4262 = 96.11 % of the link.

Source: experiments.md 3.1 and 3.2; profile.md 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from mrc_host.fabric.topology import Topology
from mrc_rtl.wire import FCS_BYTES, GAP_PREAMBLE_FCS_BYTES, ICRC, Opcode, fixed_headers_bytes

__all__ = [
    "control_frame_bytes",
    "data_frame_bytes",
    "delivery_ps",
    "fct_bound_ps",
    "goodput_bound_gbps",
    "message_wire_bytes",
    "reverse_wire_bytes_per_packet",
    "wire_bytes",
]

GAP_BYTES = 12
"""The gap behind a frame, counted into its slot."""


def wire_bytes(frame_bytes: int) -> int:
    """Return the bytes a frame without FCS occupies on a link: 24 more."""
    return frame_bytes + GAP_PREAMBLE_FCS_BYTES


def data_frame_bytes(
    payload_bytes: int, *, srv6: bool = True, timestamps: bool = True, immediate: bool = False
) -> int:
    """Return the length of a write packet from Ethernet to ICRC, padded to four bytes.

    Parameters
    ----------
    payload_bytes : int
        Payload, 0 or more.
    srv6 : bool
        With an outer IPv6 header.
    timestamps : bool
        With TSETH.
    immediate : bool
        With ImmDt.
    """
    opcode = Opcode.WRITE_LAST_IMM if immediate else Opcode.WRITE_MIDDLE
    headers = fixed_headers_bytes(opcode, timestamps, srv6)
    return headers + payload_bytes + -payload_bytes % 4 + ICRC.bytes


def control_frame_bytes(opcode: Opcode, *, srv6: bool = True) -> int:
    """Return the length of a SACK, NACK, ACK or probe from Ethernet to ICRC."""
    return fixed_headers_bytes(opcode, False, srv6) + ICRC.bytes


def message_wire_bytes(
    message_bytes: int,
    mtu: int,
    *,
    srv6: bool = True,
    timestamps: bool = True,
    immediate: bool = False,
) -> int:
    """Return the bytes on the wire of one message, cut into packets of ``mtu`` bytes of payload.

    Raises
    ------
    ValueError
        When message or MTU are below 1.
    """
    packets, last = _cut(message_bytes, mtu)
    full = wire_bytes(data_frame_bytes(mtu, srv6=srv6, timestamps=timestamps))
    tail = data_frame_bytes(last, srv6=srv6, timestamps=timestamps, immediate=immediate)
    return (packets - 1) * full + wire_bytes(tail)


def reverse_wire_bytes_per_packet(
    packets_per_sack: float, packets_per_ack: float, *, srv6: bool = True
) -> float:
    """Return the answers' bytes on the wire for each data packet of the opposite direction.

    Parameters
    ----------
    packets_per_sack : float
        Data packets for each SACK, above 0.
    packets_per_ack : float
        Data packets for each transport ACK, above 0: those of a message, when every message is answered.
    srv6 : bool
        With an outer IPv6 header.

    Raises
    ------
    ValueError
        When a number of packets is not above 0.
    """
    for name, value in (("packets_per_sack", packets_per_sack), ("packets_per_ack", packets_per_ack)):
        if not value > 0:
            raise ValueError(f"{name} must be above 0, got {value}")
    sack = wire_bytes(control_frame_bytes(Opcode.SACK, srv6=srv6))
    ack = wire_bytes(control_frame_bytes(Opcode.ACKNOWLEDGE, srv6=srv6))
    return sack / packets_per_sack + ack / packets_per_ack


def goodput_bound_gbps(
    rate_gbps: float,
    message_bytes: int,
    mtu: int,
    *,
    srv6: bool = True,
    timestamps: bool = True,
    immediate: bool = False,
    reverse_bytes_per_packet: float = 0.0,
) -> float:
    """Return the most payload per time that links of a total rate can carry.

    Parameters
    ----------
    rate_gbps : float
        Sum of the rates of the live planes in Gb/s.
    message_bytes, mtu : int
        Size of a message and payload of a full packet in bytes.
    srv6, timestamps, immediate : bool
        Headers the packets carry.
    reverse_bytes_per_packet : float
        Bytes on the wire that share the direction for each data packet, see
        :func:`reverse_wire_bytes_per_packet`: with equal traffic both ways, answers to the opposite
        direction take their part. 0 for traffic one way.

    Raises
    ------
    ValueError
        When a size is below 1.
    """
    packets, _ = _cut(message_bytes, mtu)
    wire = message_wire_bytes(message_bytes, mtu, srv6=srv6, timestamps=timestamps, immediate=immediate)
    return rate_gbps * message_bytes / (wire + packets * reverse_bytes_per_packet)


def delivery_ps(topology: Topology, source: int, target: int, frame_bytes: int) -> int:
    """Return the least time from the end of a frame's first slot to its last byte in the receiver's memory.

    Over the best path, with empty queues. The receiver needs the frame up to its ICRC: FCS and gap at the
    end of the last slot are not waited for.
    """
    best = []
    for path in topology.paths(source, target):
        last = path.directions[-1]
        unneeded = (FCS_BYTES + GAP_BYTES) * last.byte_ps.numerator // last.byte_ps.denominator
        first_slot = path.directions[0].slot_ps(frame_bytes)
        best.append(topology.one_way_ps(path, frame_bytes) - first_slot - unneeded)
    return min(best)


def fct_bound_ps(
    topology: Topology,
    source: int,
    target: int,
    message_bytes: int,
    mtu: int,
    *,
    messages: int = 1,
    srv6: bool = True,
    timestamps: bool = True,
    immediate: bool = False,
    reverse_bytes_per_packet: float = 0.0,
) -> int:
    """Return the least flow completion time: doorbell to last byte in the receiver's memory.

    The larger of two bounds holds. All bytes must pass the sender's links together, then the shortest packet
    must still travel. And packets are not divided among planes: full ones need their slots on whole links.

    Parameters
    ----------
    topology : Topology
        The fabric; all planes of both hosts are taken as live.
    source, target : int
        Hosts.
    message_bytes, mtu : int
        Size of a message and payload of a full packet in bytes.
    messages : int
        Messages posted at once; the time is that of the last one.
    srv6, timestamps, immediate : bool
        Headers the packets carry.
    reverse_bytes_per_packet : float
        As for :func:`goodput_bound_gbps`.

    Raises
    ------
    ValueError
        When a size or the number of messages is below 1.
    """
    if messages < 1:
        raise ValueError(f"messages must be at least 1, got {messages}")
    packets, last = _cut(message_bytes, mtu)
    full = data_frame_bytes(mtu, srv6=srv6, timestamps=timestamps)
    tail = data_frame_bytes(last, srv6=srv6, timestamps=timestamps, immediate=immediate)
    rates = [topology.host_link(source, plane).up.byte_ps for plane in range(topology.planes)]

    wire = message_wire_bytes(message_bytes, mtu, srv6=srv6, timestamps=timestamps, immediate=immediate)
    total = messages * (wire + packets * Fraction(reverse_bytes_per_packet))
    together = int(total / sum(1 / byte for byte in rates))
    bounds = [together + delivery_ps(topology, source, target, min(full, tail))]

    whole = messages * (packets if tail >= full else packets - 1)
    if whole:
        apart = _slots_ps(rates, wire_bytes(full), whole)
        bounds.append(apart + delivery_ps(topology, source, target, full))
    else:
        apart = _slots_ps(rates, wire_bytes(tail), messages)
        bounds.append(apart + delivery_ps(topology, source, target, tail))
    return max(bounds)


def _slots_ps(byte_times: Sequence[Fraction], size: int, count: int) -> int:
    """Return the least time in which links can send ``count`` frames of ``size`` bytes on the wire."""
    low, high = 0, int(min(byte_times) * size * count) + 1
    while low < high:
        middle = (low + high) // 2
        if sum(middle // (byte * size) for byte in byte_times) >= count:
            high = middle
        else:
            low = middle + 1
    return low


def _cut(message_bytes: int, mtu: int) -> tuple[int, int]:
    """Return the number of packets of a message and the payload of the last one."""
    for name, value in (("message_bytes", message_bytes), ("mtu", mtu)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    packets = -(-message_bytes // mtu)
    return packets, message_bytes - (packets - 1) * mtu
