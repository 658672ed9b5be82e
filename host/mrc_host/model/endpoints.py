"""Endpoint operations of the requester: the host's requests, and port status between peers.

Source: profile.md 9; protocol.md 1.13, 1.14, 2.8, 3.7, 7-Q12; tables ENDPOINT_OPERATION and NOTICE.
"""

from __future__ import annotations

from mrc_host.model.binder import Binder
from mrc_host.model.packet import UNBOUND, ModelPacket
from mrc_host.model.port_status import (
    STATUS_IDS,
    EndpointTable,
    PeerUpdate,
    PortStatusTable,
    status_update,
)
from mrc_host.model.prober import Prober
from mrc_host.model.send_side import SendSide
from mrc_host.model.shell import RESPONDER_REQUESTS
from mrc_rtl.config import TICK_PS
from mrc_rtl.tables import EndpointStatus, NoticeKind
from mrc_rtl.wire import TIMESTAMP_TICK_NS, EndpointOp, Opcode

__all__ = ["Endpoints"]

_FIRST_REPEAT_PS = 50_000_000
_LONGEST_REPEAT_PS = 10_000_000_000
_CONFIRM_PS = 1_000_000_000


class Endpoints:
    """Sends endpoint requests and takes their answers.

    Parameters
    ----------
    side : SendSide
    binder : Binder
    prober : Prober
    """

    def __init__(self, side: SendSide, binder: Binder, prober: Prober) -> None:
        self._side = side
        self._shell = side.shell
        self._binder = binder
        self._prober = prober
        self._tells: bool = side.options.port_status_updates
        self.table: EndpointTable = EndpointTable()
        self.status: PortStatusTable = PortStatusTable(side.options.port_mask_base)

    # -- the host's requests -----------------------------------------------------------------------------

    def begin(self, index: int, fields: dict[str, int]) -> bool:
        """A row of ENDPOINT_OPERATION was written: send the request. False when it is refused."""
        packet = self.table.begin(index, fields, self._side.planes)
        if packet is None:
            return False
        shell = self._shell
        slot = self.table.slots[index]
        packet.plane = fields["port"] - 1
        slot.sent_ps = shell.now_ps
        slot.timestamp = shell.now_ps // TICK_PS & 0xFFFF
        self._binder.control.append(packet)
        shell.schedule(
            shell.now_ps + fields["timeout"] * 1000, self._timed_out, index << 16 | fields["request_id"]
        )
        return True

    def sent(self, packet: ModelPacket) -> None:
        """A request leaves: its round trip begins."""
        index = self.table.find(packet.psn)
        if index >= 0:
            slot = self.table.slots[index]
            slot.sent_ps = self._shell.now_ps
            slot.timestamp = packet.timestamp

    def on_response(self, packet: ModelPacket) -> None:
        """An answer, or a request to ourselves that came back."""
        update = self.status.answered(packet.psn)
        if update is not None:
            if update.unsure:
                update.unsure = False
                self._shell.schedule(self._shell.now_ps + _CONFIRM_PS, self._confirm, update.changed_ps)
            return
        index = self.table.find(packet.psn)
        if index < 0:
            return
        slot = self.table.slots[index]
        rtt = (packet.received_ps - slot.sent_ps) // 1000
        adjusted = self._compensates(slot.fields["peer_high"] << 64 | slot.fields["peer_low"])
        if adjusted:
            service_ticks = packet.timestamp - slot.timestamp & 0xFFFF
            if service_ticks < 0x8000:
                rtt -= service_ticks * TIMESTAMP_TICK_NS
        slot.fields["rtt"] = max(0, rtt)
        slot.fields["adjusted"] = int(adjusted)
        slot.fields["answer_port"] = packet.plane + 1
        self._finish(index, EndpointStatus.ANSWERED)

    def _compensates(self, peer: int) -> bool:
        """Whether a peer takes its service time out of reflected timestamps.

        Nothing on the wire says so, and a time below one tick does not show: what counts is what the peer
        said when a QP was connected with it. Of others, and of this host, all of the time is told.
        """
        index = self._qp_of(peer)
        return index >= 0 and not self._side.qps[index].option.get("svc_time_dest_unsupported", 0)

    def _timed_out(self, key: int) -> None:
        index = key >> 16
        fields = self.table.slots[index].fields
        waits = fields.get("status") == EndpointStatus.WAITING and fields["request_id"] == key & 0xFFFF
        if waits and self._shell.now_ps >= self.table.slots[index].sent_ps:
            self._finish(index, EndpointStatus.TIMED_OUT)

    def _finish(self, index: int, status: EndpointStatus) -> None:
        fields = self.table.slots[index].fields
        fields["status"] = int(status)
        self._shell.notice(
            {
                "kind": int(NoticeKind.ENDPOINT_DONE),
                "port": fields["answer_port"],
                "state": int(status),
                "adjusted": fields["adjusted"],
                "request_id": fields["request_id"],
                "value": fields["rtt"],
                "slot": index,
            }
        )

    # -- port status -------------------------------------------------------------------------------------

    def port_changed(self, plane: int, up: bool) -> None:
        """Our own port changed: stop or begin to use it, and tell every peer."""
        side = self._side
        bit = 1 << plane
        side.up = side.up | bit if up else side.up & ~bit
        addresses = set()
        for qp in side.qps:
            if not up:
                self._prober.ask_soon(qp)
            side.wake(qp)
            address = self._shell.peer_address(qp.index)
            if address and not qp.option.get("requests_dest_unsupported", 0):
                addresses.add(address)
        if self._tells:
            control = self._binder.control
            # What has not left yet is out of date.
            control[:] = [packet for packet in control if not self._is_update(packet)]
            for update in self.status.announce(addresses, self._shell.now_ps):
                self._tell(update, _FIRST_REPEAT_PS)

    def on_peer_ports(self, source: int, port_mask: int) -> None:
        """A peer tells which of its ports are reachable; it acts on the QPs of that address only."""
        if not self._tells:
            return
        planes = self.status.planes(port_mask)
        for qp in self._side.qps:
            if self._shell.peer_address(qp.index) != source:
                continue
            gone = qp.peer_ports & ~planes
            qp.peer_ports = planes
            if gone & (1 << self._side.planes) - 1:
                self._prober.ask_soon(qp)
            self._side.wake(qp)

    def _tell(self, update: PeerUpdate, repeat_ps: int) -> None:
        """Send an update over the next live plane, and again until it is answered."""
        side, shell = self._side, self._shell
        qp = self._qp_of(update.address)
        if qp < 0:
            self.status.forget(update.address)
            return
        packet = status_update(qp, update.number, self.status.mask(side.up))
        packet.plane = UNBOUND
        if side.up:
            update.plane = (update.plane + 1) % side.planes
            ahead = int(side.up >> update.plane << update.plane or side.up)
            packet.plane = (ahead & -ahead).bit_length() - 1
        self._binder.control.append(packet)
        update.repeat_ps = repeat_ps
        update.due_ps = shell.now_ps + repeat_ps
        shell.schedule(update.due_ps, self._repeat, update.number)

    def _repeat(self, number: int) -> None:
        for update in list(self.status.peers.values()):
            if update.number == number and self._shell.now_ps >= update.due_ps:
                self._tell(update, min(2 * update.repeat_ps, _LONGEST_REPEAT_PS))

    def _confirm(self, changed_ps: int) -> None:
        """Say once more what is true, in case an older update arrived behind the last one."""
        for update in list(self.status.peers.values()):
            if update.changed_ps == changed_ps and update.number < 0:
                self.status.renew(update)
                self._tell(update, _FIRST_REPEAT_PS)

    @staticmethod
    def _is_update(packet: ModelPacket) -> bool:
        return (
            packet.opcode == Opcode.ENDPOINT_REQUEST
            and packet.operation == EndpointOp.PORT_STATUS_UPDATE
            and STATUS_IDS <= packet.psn < RESPONDER_REQUESTS
        )

    def _qp_of(self, address: int) -> int:
        for qp in self._side.qps:
            if self._shell.peer_address(qp.index) == address:
                return qp.index
        return -1
