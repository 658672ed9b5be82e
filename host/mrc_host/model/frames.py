"""What a port makes of a packet that another model sent, without bytes in between.

What a switch did to it stands in what it inherits from the fabric's packet.
"""

from __future__ import annotations

from typing import Final

from mrc_host.model.decoder import FrameDecoder
from mrc_host.model.packet import ModelPacket
from mrc_rtl import wire
from mrc_rtl.records import PortCounter, Trimmed
from mrc_rtl.wire import Ecn

__all__ = ["PortReceiver"]

_HEADERS: Final = wire.BTH.bytes + wire.METH.bytes
_STAMP: Final = wire.TSETH.bytes
_CE: Final = int(Ecn.CE)
_NO: Final = int(Trimmed.NO)
_FABRIC: Final = int(Trimmed.FABRIC)
_LAST_HOP: Final = int(Trimmed.LAST_HOP)
_DROP_ADDRESS: Final = int(PortCounter.DROP_ADDRESS)
_DROP_LENGTH: Final = int(PortCounter.DROP_LENGTH)
_TRIM_IGNORED: Final = int(PortCounter.TRIM_IGNORED)


class PortReceiver(FrameDecoder):
    """Judges what arrives at a port, as frames or as packets of another model.

    Parameters
    ----------
    plane, settings, options, mtu
        See :class:`FrameDecoder`.
    """

    __slots__ = ()

    def take(self, packet: ModelPacket) -> bool:
        """As :meth:`decode` of the packet's frame: false and the reason for one that is refused; others tell
        from now on what arrived.
        """
        settings = self._settings
        if packet.destination != settings.own_address:
            self.reason = _DROP_ADDRESS
            return False
        outer = packet.outer_class
        packet.marked = outer & 3 == _CE or packet.traffic_class & 3 == _CE
        dscp = outer >> 2
        if dscp == settings.dscp_trimmed:
            return self._take_trimmed(packet, _FABRIC)
        if dscp == settings.dscp_trimmed_last_hop:
            return self._take_trimmed(packet, _LAST_HOP)
        packet.trimmed = _NO
        if packet.length > self._mtu:
            self.reason = _DROP_LENGTH
            return False
        return True

    def _take_trimmed(self, packet: ModelPacket, trimmed: int) -> bool:
        left = packet.size - packet.bth_at - _HEADERS
        whole = packet.size == packet.full_size
        if not packet.is_write or left < 0 or (self._strict_trim and not whole):
            self.reason = _TRIM_IGNORED
            return False
        packet.trimmed = trimmed
        packet.payload = b""
        packet.length = 0
        if left < _STAMP:
            packet.timestamped = False
            packet.timestamp = 0
        return True
