"""Endpoint operations that arrive, and the probes that find EVs for a QP's answers.

Source: protocol.md 1.13, 1.14, 2.6 and 6; profile.md 5.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import ModelPacket
from mrc_host.model.receive_qp import ReceiveQp
from mrc_host.model.reverse_evs import ReverseEvs
from mrc_host.model.shell import RESPONDER_REQUESTS, Requester, Shell
from mrc_rtl import wire
from mrc_rtl.config import TICK_PS
from mrc_rtl.records import PortCounter
from mrc_rtl.wire import EndpointOp, Opcode

__all__ = ["EndpointAnswers", "answer_to"]

_TICK: Final = 0xFFFF
_TICK_PS: Final = int(TICK_PS)
_REQUEST: Final = int(Opcode.ENDPOINT_REQUEST)
_RESPONSE: Final = int(Opcode.ENDPOINT_RESPONSE)


def answer_to(opcode: int, packet: ModelPacket, service_time: bool) -> ModelPacket:
    """An answer to a packet; ``Responder.fill`` completes its time when it leaves.

    Parameters
    ----------
    opcode : int
        Of the answer.
    packet : ModelPacket
        What it answers.
    service_time : bool
        The time until it leaves is taken out of the round trip.
    """
    answer = ModelPacket(opcode, packet.qp, packet.psn)
    answer.acknowledged_psn = packet.psn
    answer.entropy = packet.ev
    answer.timestamped = packet.timestamped
    if packet.timestamped:
        age = packet.timestamp
        if service_time:
            age -= packet.received_ps // TICK_PS
        answer.timestamp = age & _TICK
    return answer


class EndpointAnswers:
    """Answers endpoint requests, and sends reverse EV probes.

    Parameters
    ----------
    shell : Shell
    options : ModelOptions
    qps : list of ReceiveQp
        Of the responder.
    reverse : ReverseEvs

    Attributes
    ----------
    requester : Requester
        Set before the first packet comes.
    """

    def __init__(
        self, shell: Shell, options: ModelOptions, qps: list[ReceiveQp], reverse: ReverseEvs
    ) -> None:
        self._shell = shell
        self._service_time: bool = options.service_time
        self._strangers: bool = options.answer_strangers
        self._qps = qps
        self._reverse = reverse
        self.requester: Requester

    def arrived(self, packet: ModelPacket) -> None:
        """An endpoint request or response, on QPN 2."""
        if packet.destination_qpn != wire.ENDPOINT_QPN:
            self._count(packet, PortCounter.DROP_QP)
            return
        if packet.opcode == _RESPONSE or packet.source == self._shell.settings.own_address:
            self._count(packet, PortCounter.CONTROL)
            if packet.psn & RESPONDER_REQUESTS and packet.opcode == _RESPONSE:
                self._reverse.answered(packet.psn & ~RESPONDER_REQUESTS, self._shell.now_ps)
            else:
                self.requester.on_endpoint_response(packet)
            return
        answer = answer_to(_RESPONSE, packet, self._service_time)
        answer.qp = self._qp_of_peer(packet.source)
        answer.operation = packet.operation
        if answer.qp < 0 and not (self._strangers and self._way_back(packet, answer)):
            self._count(packet, PortCounter.DROP_PEER)
            return
        self._count(packet, PortCounter.CONTROL)
        if packet.operation == EndpointOp.PORT_STATUS_UPDATE:
            self.requester.on_peer_ports(packet.source, packet.port_mask)
        self.requester.enqueue_control(answer, answer.qp, packet.plane)

    def _qp_of_peer(self, address: int) -> int:
        """Index of a QP that is connected with a host, −1 when there is none."""
        for index, qp in enumerate(self._qps):
            if qp.receiving and qp.peer == address:
                return index
        return -1

    def _way_back(self, packet: ModelPacket, answer: ModelPacket) -> bool:
        """Path of an answer to a host no QP is connected with: over the request's plane and uplink."""
        answer.ev = packet.ev
        answer.destination = packet.source
        if not packet.outer_source:
            return True
        own = self._shell.outer_source(packet.plane)
        if not own:
            return False
        answer.outer_source = own
        own_t0, _ = _first_usids(own)
        peer_t0, peer_host = _first_usids(packet.outer_source)
        uplink = wire.EV.unpack(packet.ev)["uplink"]
        path = [own_t0, peer_host]
        if own_t0 != peer_t0:
            path = [own_t0, wire.usid_value(packet.plane, wire.Tier.T1, max(1, uplink)), peer_t0, peer_host]
        answer.outer_destination = wire.outer_address(path)
        return True

    def probe_reverse(self, index: int) -> None:
        """Send an endpoint probe with a random EV when the QP receives and does not send (2.6)."""
        shell = self._shell
        rtt: i64 = shell.settings.base_rtt * _TICK_PS
        sent: i64 = shell.data_sent_ps(index)
        if (sent >= 0 and shell.now_ps - sent < rtt) or not self._reverse.due(index, shell.now_ps, rtt):
            return
        plane = self._reverse.next_plane(index)
        choices = self.requester.good_evs(index, plane) if shell.port_up(plane) else []
        if not choices:
            return
        number, ev = self._reverse.probe(index, plane, choices)
        probe = ModelPacket(_REQUEST, index, RESPONDER_REQUESTS | number)
        probe.operation = int(EndpointOp.EV_PROBE)
        probe.ev = ev
        probe.timestamped = True
        probe.timestamp = shell.tick & _TICK
        self.requester.enqueue_control(probe, index, plane)

    def _count(self, packet: ModelPacket, outcome: PortCounter) -> None:
        self._shell.count_port(packet.plane, outcome)


def _first_usids(address: int) -> tuple[int, int]:
    """The first two uSIDs of an outer address."""
    low = 128 - wire.USID_BLOCK_BITS - 2 * wire.USID_BITS
    both = address >> low & 0xFFFF_FFFF
    return both >> 16, both & 0xFFFF
