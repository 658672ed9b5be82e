"""Telling peers which of our ports are reachable, and the endpoint requests of the host.

On a change of a port a PORT_STATUS_UPDATE goes to every peer over a live plane, and again over the next one
until it is answered. What a peer says of its own ports acts on the QPs of its address only.

Source: profile.md 9; protocol.md 1.13, 1.14, 2.8 and 3.7; table ENDPOINT_OPERATION of :mod:`mrc_rtl.tables`.
"""

from __future__ import annotations

from mrc_host.model.packet import ModelPacket
from mrc_host.model.shell import ENDPOINT_SLOTS
from mrc_rtl.tables import EndpointStatus
from mrc_rtl.wire import ENDPOINT_QPN, EndpointOp, Opcode

__all__ = ["STATUS_IDS", "EndpointSlot", "EndpointTable", "PeerUpdate", "PortStatusTable", "status_update"]

STATUS_IDS = 0x4000
"""Ids of endpoint requests from here on (and below 0x8000) are port status updates; the host's are below."""

_STATUS_COUNT = 0x4000

_UNSURE_PS = 10_000_000_000
"""Updates this close to each other may overtake each other."""


class PeerUpdate:
    """What one peer still has to be told.

    Attributes
    ----------
    address : int
        Inner IPv6 address.
    number : int
        Id of the request that is out, −1 when the peer knows.
    plane : int
        Where the last one left.
    due_ps, repeat_ps : int
        When it is sent again, and how long after the last time.
    changed_ps : int
        When a port changed last.
    unsure : bool
        Another update left shortly before and may arrive behind this one: it is confirmed once.
    """

    __slots__ = ("address", "changed_ps", "due_ps", "number", "plane", "repeat_ps", "unsure")

    def __init__(self, address: int) -> None:
        self.address: int = address
        self.number: int = -1
        self.plane: int = 0
        self.due_ps: int = -1
        self.repeat_ps: int = 0
        self.changed_ps: int = -1
        self.unsure: bool = False


class PortStatusTable:
    """The peers that are told of port changes.

    Parameters
    ----------
    base : int
        Port of mask bit 0, less one (option ``port_mask_base``).
    """

    __slots__ = ("_base", "_next", "peers")

    def __init__(self, base: int) -> None:
        self._base: int = base
        self._next: int = 0
        self.peers: dict[int, PeerUpdate] = {}

    def mask(self, up: int) -> int:
        """The mask on the wire for a mask of planes that are up."""
        return up << self._base

    def planes(self, mask: int) -> int:
        """The planes of a mask on the wire."""
        return mask >> self._base

    def announce(self, addresses: set[int], now_ps: int) -> list[PeerUpdate]:
        """A port changed: everybody has to be told. Returns the updates to send now."""
        updates = []
        for address in sorted(addresses):
            update = self.peers.get(address)
            if update is None:
                update = self.peers[address] = PeerUpdate(address)
            update.unsure = 0 <= update.changed_ps > now_ps - _UNSURE_PS
            update.changed_ps = now_ps
            self.renew(update)
            updates.append(update)
        return updates

    def renew(self, update: PeerUpdate) -> None:
        """Give an update that is to be sent an id of its own."""
        update.number = STATUS_IDS + self._next
        self._next = (self._next + 1) % _STATUS_COUNT

    def answered(self, number: int) -> PeerUpdate | None:
        """A peer answered; None for an id that is not out (any more)."""
        for update in self.peers.values():
            if update.number == number:
                update.number = -1
                return update
        return None

    def forget(self, address: int) -> None:
        """No QP is connected with that peer any more."""
        self.peers.pop(address, None)


class EndpointSlot:
    """One row of ENDPOINT_OPERATION."""

    __slots__ = ("fields", "sent_ps", "timestamp")

    def __init__(self) -> None:
        self.fields: dict[str, int] = {}
        self.sent_ps: int = 0
        self.timestamp: int = 0


class EndpointTable:
    """Requests of the host to any endpoint, also to itself."""

    __slots__ = ("slots",)

    def __init__(self) -> None:
        self.slots: list[EndpointSlot] = [EndpointSlot() for _ in range(ENDPOINT_SLOTS)]

    def begin(self, index: int, fields: dict[str, int], planes: int) -> ModelPacket | None:
        """Take a request into a slot; the packet to send, or None when it is refused."""
        if index >= ENDPOINT_SLOTS or not 1 <= fields["port"] <= planes or fields["timeout"] == 0:
            return None
        number = fields["request_id"]
        if number >= STATUS_IDS or self.find(number) >= 0:
            return None
        slot = self.slots[index]
        if slot.fields.get("status", EndpointStatus.IDLE) == EndpointStatus.WAITING:
            return None
        slot.fields = {**fields, "status": EndpointStatus.WAITING, "answer_port": 0, "adjusted": 0, "rtt": 0}
        packet = ModelPacket(int(Opcode.ENDPOINT_REQUEST), -1, number)
        packet.destination_qpn = ENDPOINT_QPN
        packet.operation = fields["operation"]
        packet.port_mask = fields["port_mask"]
        packet.ev = fields["value"]
        packet.traffic_class = fields["dscp"] << 2
        packet.destination = fields["peer_high"] << 64 | fields["peer_low"]
        if fields["encapsulation"]:
            packet.outer_source = fields["source_high"] << 64 | fields["source_low"]
            packet.outer_destination = fields["destination_high"] << 64 | fields["destination_low"]
            if fields["segment"]:
                packet.segment = fields["segment_high"] << 64 | fields["segment_low"]
        return packet

    def find(self, number: int) -> int:
        """Slot of a request that waits; −1 when there is none of that id."""
        for index, slot in enumerate(self.slots):
            if slot.fields.get("request_id") == number and slot.fields["status"] == EndpointStatus.WAITING:
                return index
        return -1

    def read(self, index: int) -> dict[str, int] | None:
        """A row; None when there is none of that number."""
        return dict(self.slots[index].fields) if index < ENDPOINT_SLOTS else None


def status_update(qp: int, number: int, mask: int) -> ModelPacket:
    """A PORT_STATUS_UPDATE over the path of a QP."""
    packet = ModelPacket(int(Opcode.ENDPOINT_REQUEST), qp, number)
    packet.destination_qpn = ENDPOINT_QPN
    packet.operation = int(EndpointOp.PORT_STATUS_UPDATE)
    packet.port_mask = mask
    return packet
