"""A packet that one model sends and another receives, without bytes in between.

The fabric carries it as an object; its frame is made only for who asks: a capture, a tap, gateware. What a
switch did to it stands in the fabric's packet around it.
"""

from __future__ import annotations

from mrc_host.fabric.packet import Packet, PacketContent, route_key
from mrc_host.model.decoder import FrameDecoder
from mrc_host.model.encoder import FrameEncoder
from mrc_host.model.layouts import BODY_BYTES
from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import ModelPacket
from mrc_host.model.shell import Settings
from mrc_host.model.templates import Template
from mrc_host.packets.peek import FrameInfo
from mrc_rtl import wire
from mrc_rtl.records import PortCounter, Trimmed
from mrc_rtl.wire import Dscp, Ecn, Opcode

__all__ = ["ModelFrame", "PortReceiver"]

_WRITES = frozenset(int(opcode) for opcode in Opcode if wire.is_write(opcode))
_HEAD = wire.ETHERNET.bytes + wire.IPV6.bytes + wire.UDP.bytes + wire.BTH.bytes
_ENDPOINT = (int(Opcode.ENDPOINT_REQUEST), int(Opcode.ENDPOINT_RESPONSE))
_TRIMMED = (int(Dscp.TRIMMED), int(Dscp.TRIMMED_LASTHOP))


class ModelFrame(PacketContent):
    """A packet on its way.

    Parameters
    ----------
    packet : ModelPacket
        As the sender made it; the receiver takes it over.
    template : Template or None
        Of the sender's QP.
    encoder : FrameEncoder
        Of the sender's port.
    own_address : int
        Inner address of the sender.

    Attributes
    ----------
    size, bth_at : int
        Bytes of the frame without FCS; offset of its BTH.
    """

    __slots__ = ("_bytes", "_encoder", "_taken", "_template", "bth_at", "packet", "size")

    def __init__(
        self, packet: ModelPacket, template: Template | None, encoder: FrameEncoder, own_address: int
    ) -> None:
        self.packet = packet
        self._template = template
        self._encoder = encoder
        self._bytes: bytes | None = None
        self._taken: bool = False
        outer = 0
        if packet.outer_destination:
            outer = wire.IPV6.bytes + (wire.SRH.bytes if packet.segment else 0)
        elif template is not None and template.encapsulated:
            outer = wire.IPV6.bytes
        opcode = packet.opcode
        length = len(packet.payload)
        body = BODY_BYTES[opcode]
        if packet.timestamped and opcode in _WRITES:
            body += wire.TSETH.bytes
        self.bth_at: int = _HEAD - wire.BTH.bytes + outer
        self.size: int = _HEAD + outer + body + length + (-length & 3) + wire.ICRC.bytes
        # What the receiver reads and the encoder takes from the template.
        packet.length = length
        if opcode in _WRITES:
            packet.message_number &= 0xFFFF
        if template is None:
            packet.source = own_address
            packet.partition_key = wire.PKEY_DEFAULT
        else:
            packet.source = template.source
            packet.destination = template.destination
            packet.partition_key = template.partition_key
            packet.destination_qpn = template.destination_qpn
        if opcode in _ENDPOINT:
            packet.destination_qpn = wire.ENDPOINT_QPN
            if template is not None and template.encapsulated and not packet.outer_source:
                packet.outer_source = int.from_bytes(template.outer_source(packet.plane), "big")

    def carried(self) -> Packet:
        """The packet as the fabric carries it."""
        packet, template = self.packet, self._template
        if template is not None and template.encapsulated and not packet.outer_destination:
            key = template.outer(packet.plane, packet.ev)[16:]
        else:
            key = route_key(self.frame())
        return Packet.of_content(self, self.size, packet.traffic_class, key)

    def frame(self) -> bytes:
        """The frame as its sender put it on the link, from Ethernet on, without FCS."""
        if self._bytes is None:
            self._bytes = self._encoder.encode(self.packet, self._template)
        return self._bytes

    def info(self) -> FrameInfo:
        """What a quick look at the frame would tell."""
        packet = self.packet
        write = packet.opcode in _WRITES
        dscp = packet.traffic_class >> 2
        return FrameInfo(
            packet.opcode,
            packet.destination_qpn,
            packet.psn,
            packet.ack_request,
            packet.retransmission,
            write and packet.timestamped,
            packet.ev,
            dscp,
            packet.traffic_class & 3,
            dscp in _TRIMMED,
            self.bth_at > _HEAD,
            packet.length,
            packet.message_number & 0xFFFF if write else None,
            packet.address if write else None,
            wire.ETHERNET.bytes,
            self.bth_at,
        )

    @property
    def hosts(self) -> tuple[int, int]:
        """Numbers of the sending and the receiving host, from the inner addresses."""
        packet = self.packet
        return packet.source >> 64 & 0xFFFF, packet.destination >> 64 & 0xFFFF

    def take(self, keep: bool) -> ModelPacket:
        """The packet for a receiver, which may change it.

        Parameters
        ----------
        keep : bool
            The receiver changes what the frame is made of: it gets a copy. So does the second receiver of a
            packet that was duplicated on the way.
        """
        if keep or self._taken:
            return _copy(self.packet)
        self._taken = True
        return self.packet


class PortReceiver(FrameDecoder):
    """Judges what arrives at a port, as frames or as packets of another model.

    Parameters
    ----------
    plane, settings, options, mtu
        See :class:`FrameDecoder`.
    """

    __slots__ = ()

    def __init__(self, plane: int, settings: Settings, options: ModelOptions, mtu: int) -> None:
        super().__init__(plane, settings, options, mtu)

    def take(self, carried: Packet) -> ModelPacket | None:
        """As :meth:`decode` of the packet's frame: the packet for this NIC, or None and the reason."""
        content = carried.content
        assert isinstance(content, ModelFrame)
        sent = content.packet
        settings = self._settings
        if sent.destination != settings.own_address:
            return self._refuse(PortCounter.DROP_ADDRESS)
        dscp = carried.traffic_class >> 2
        trimmed = int(Trimmed.NO)
        if dscp == settings.dscp_trimmed:
            trimmed = int(Trimmed.FABRIC)
        elif dscp == settings.dscp_trimmed_last_hop:
            trimmed = int(Trimmed.LAST_HOP)
        if trimmed:
            return self._take_trimmed(content, carried, trimmed)
        if sent.length > self._mtu:
            return self._refuse(PortCounter.DROP_LENGTH)
        packet = content.take(keep=False)
        packet.marked = Ecn.CE in (carried.ecn, packet.traffic_class & 3)
        return packet

    def _take_trimmed(self, content: ModelFrame, carried: Packet, trimmed: int) -> ModelPacket | None:
        left = carried.size - content.bth_at - wire.BTH.bytes - wire.METH.bytes
        whole = carried.size == content.size
        if content.packet.opcode not in _WRITES or left < 0 or (self._strict_trim and not whole):
            return self._refuse(PortCounter.TRIM_IGNORED)
        packet = content.take(keep=True)
        packet.trimmed = trimmed
        packet.payload = b""
        packet.length = 0
        packet.marked = Ecn.CE in (carried.ecn, packet.traffic_class & 3)
        if left < wire.TSETH.bytes:
            packet.timestamped = False
            packet.timestamp = 0
        return packet


def _copy(packet: ModelPacket) -> ModelPacket:
    other = ModelPacket(packet.opcode)
    for name in ModelPacket.__slots__:
        setattr(other, name, getattr(packet, name))
    return other
