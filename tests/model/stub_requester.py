"""A requester that sends nothing of its own: what a responder needs, and a record of what it was told."""

from collections import deque

from mrc_host.model.packet import UNBOUND
from mrc_host.model.shell import Requester
from mrc_rtl import wire
from mrc_rtl.tables import EV_VALUES_PER_PLANE, ControlTableId, QpState, TableId


class StubRequester(Requester):
    """Keeps rows, sends control packets in order, notes everything else in ``calls``."""

    def __init__(self, shell, options):
        self.shell, self.options = shell, options
        self.rows, self.queue, self.calls = {}, deque(), []
        self.rotor = 0
        self.sent_ps = {}
        self.hold = False

    def write_row(self, table, index, fields):
        if index >= 0x8000:
            return False
        self.rows[table, index] = dict(fields)
        if table == ControlTableId.EV_ENTRY:
            self.rows[TableId.EV_VALUE, index] = {name: fields[name] for name in ("value", "port")}
        if table == TableId.QP_SEND and fields["state"] == QpState.RESET:
            self.queue = deque(item for item in self.queue if item[0].qp != index)
        return True

    def read_row(self, table, index):
        return self.rows.get((table, index), {})

    def post(self, qp, request):
        self.calls.append(("post", qp, request["wr_id"]))

    def on_sack(self, qp, packet):
        self.calls.append(("sack", qp, packet.cumulative_psn))

    def on_ack(self, qp, packet):
        self.calls.append(("ack", qp, packet.psn))

    def on_nack(self, qp, packet):
        self.calls.append(("nack", qp, packet.acknowledged_psn))

    def on_endpoint_response(self, packet):
        self.calls.append(("response", packet.psn, packet.plane))

    def on_peer_ports(self, source, port_mask):
        self.calls.append(("ports", source, port_mask))

    def on_error(self, qp):
        self.calls.append(("error", qp))

    def port_changed(self, plane, up):
        self.calls.append(("port", plane, up))

    def enqueue_control(self, packet, qp, plane):
        self.queue.append((packet, plane))

    def data_sent_ps(self, qp):
        return self.sent_ps.get(qp, -1)

    def good_evs(self, qp, plane):
        config = self.shell.config
        good = self.rows.get((TableId.EV_SET, qp * config.planes + plane), {"good": 0})["good"]
        profile = self.rows.get((TableId.QP_SEND, qp), {"ev_profile": 0})["ev_profile"]
        base = (profile * config.planes + plane) * EV_VALUES_PER_PLANE
        return [self.rows[TableId.EV_VALUE, base + i]["value"] for i in range(32) if good >> i & 1]

    def pump(self):
        while self.queue and not self.hold:
            packet, wanted = self.queue[0]
            planes = range(self.shell.config.planes)
            up = [plane for plane in planes if self.shell.port_up(plane)]
            plane = wanted if wanted in up else up[0]
            if not self.shell.room(plane):
                return
            self.queue.popleft()
            if packet.ev == UNBOUND:
                packet.ev = self.shell.reverse_ev(packet.qp, plane) if packet.qp >= 0 else 0xC0010000
            if packet.ev == UNBOUND:
                choices = self.good_evs(packet.qp, plane)
                self.rotor += 1
                packet.ev = choices[self.rotor % len(choices)]
            packet.traffic_class = wire.Dscp.CONTROL << 2
            self.shell.transmit(plane, packet)
