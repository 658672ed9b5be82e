"""A shell without a NIC: time, ports with room on demand, memory of zeros, and a record of everything."""

from heapq import heappop, heappush

from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import ModelPacket
from mrc_host.model.requester import ModelRequester
from mrc_host.model.shell import Settings, Shell
from mrc_rtl.config import TICK_PS, NicConfig
from mrc_rtl.tables import ControlTableId, QpErrorReason, QpState, TableId, WorkRequestOpcode
from mrc_rtl.wire import AethSyndrome, Opcode, ev_value

US = 1_000_000
MTU = 256
BASE_RTT_PS = 10 * US // TICK_PS * TICK_PS
FIRST = 0xFFFFF8
PEER = 0xFD00 << 112 | 9 << 64 | 1
UNLIMITED_ROOM = 1 << 30


class BenchShell(Shell):
    """See the module's text."""

    def __init__(self, planes=2, **config):
        self.config = NicConfig(planes=planes, mtu=MTU, qps=2, evs_per_plane=8, ev_profiles=2, **config)
        self.settings = Settings(planes)
        self.settings.enable = True
        self.settings.base_rtt = BASE_RTT_PS // TICK_PS
        self.settings.own_address = 0xFD00 << 112 | 1 << 64 | 1
        self.now_ps, self.seed = 0, 1
        self.read_failure = int(QpErrorReason.LOCAL_PROTECTION)
        self.down = set()
        self.space = [UNLIMITED_ROOM] * planes
        self.sent, self.completions, self.errors, self.events, self.notices = [], [], [], [], []
        self.counters, self.traces, self.confirmed, self.agenda = {}, [], [], []
        self.planned, self.readable = 0, True
        self.reverse = {}
        self.peers = [PEER, 0]

    def room(self, plane):
        return self.space[plane] > 0

    def port_up(self, plane):
        return plane not in self.down

    def start_ps(self, plane):
        return self.now_ps + len(self.sent) * US  # frames leave in the order in which they are sent

    def transmit(self, plane, packet):
        assert self.room(plane) and self.port_up(plane)
        self.space[plane] -= 1
        packet.plane = plane
        self.sent.append((self.now_ps, packet))

    def schedule(self, time_ps, callback, argument):
        assert time_ps >= self.now_ps
        self.planned += 1
        heappush(self.agenda, (time_ps, self.planned, callback, argument))

    def read_memory(self, protection_domain, local_key, address, length):
        return bytes(length) if self.readable else None

    def complete(self, queue, qp, wr_id, opcode, status, length, immediate, message_number):
        self.completions.append((wr_id, status))

    def enter_error(self, qp, reason):
        self.errors.append((qp, reason))
        self.requester.on_error(qp)

    def count(self, counter, amount=1):
        self.counters[counter] = self.counters.get(counter, 0) + amount

    def count_port(self, plane, counter):
        raise AssertionError("the requester counts nothing per port")

    def event(self, kind, qp, reason):
        self.events.append((kind, qp, reason))

    def notice(self, fields):
        self.notices.append(fields)

    def trace(self, kind, qp, plane, psn, detail):
        self.traces.append((kind, qp, plane, psn, detail))

    def peer_address(self, qp):
        return self.peers[qp]

    def byte_time_ps(self, plane):
        return 80

    def reverse_ev(self, qp, plane):
        return self.reverse.get(plane, -1)

    def outer_source(self, plane):
        return 0

    def confirm_ev(self, qp, plane, ev):
        self.confirmed.append((qp, plane, ev))

    def data_sent_ps(self, qp):
        return self.requester.data_sent_ps(qp)


class Bench:
    """A requester with QP 0 in RTS, and a peer played by the test."""

    def __init__(
        self,
        planes=2,
        evs=8,
        skip=0,
        row=None,
        option=None,
        peer=True,
        config=None,
        trimming=False,
        **options,
    ):
        self.shell = BenchShell(planes, **(config or {}))
        self.shell.settings.trimming = trimming
        options = {"congestion": "none", **options}
        self.requester = self.shell.requester = ModelRequester(self.shell, ModelOptions(**options))
        self.qp = self.requester.side.qps[0]
        for plane in range(planes):
            for place in range(8):
                fields = {"value": ev_value(plane, place + 1), "port": plane + 1}
                assert self.write(TableId.EV_VALUE, plane * 32 + place, **fields)
            assert self.write(TableId.EV_SET, plane, good=(1 << evs) - 1 & ~skip, skip=skip)
        self.row = {
            "state": QpState.RTS, "mtu_log2": 8, "timeout": 7, "linear_count": 2, "exponential_count": 2,
            "protection_domain": 0, "completion_queue": 0, "ev_profile": 0, "initial_psn": FIRST,
            "go_back_n": 0, "mpr_psns": 128, "max_immediates": 32, **(row or {}),
        }  # fmt: skip
        if option:
            assert self.write(ControlTableId.QP_OPTION, 0, **option)
        self.taken = 0
        assert self.write(TableId.QP_SEND, 0, **self.row)

    def write(self, table, index, **fields):
        return self.requester.write_row(table, index, fields)

    @property
    def statistics(self):
        return self.requester.statistics

    def post(self, length, wr_id=0, immediate=None, signalled=1, qp=0):
        opcode = WorkRequestOpcode.WRITE if immediate is None else WorkRequestOpcode.WRITE_WITH_IMM
        request = {
            "wr_id": wr_id, "local_address": 0x1000, "remote_address": 0x2000, "length": length,
            "local_key": 1, "immediate": immediate or 0, "remote_key": 2, "opcode": opcode,
            "signalled": signalled,
        }  # fmt: skip
        self.requester.post(qp, request)
        self.requester.pump()

    def run(self, until_ps):
        """Let time go on; calls of the agenda come in order."""
        shell = self.shell
        while shell.agenda and shell.agenda[0][0] <= until_ps:
            shell.now_ps, _, callback, argument = heappop(shell.agenda)
            callback(argument)
            self.requester.pump()
        shell.now_ps = until_ps

    def wait(self, duration_ps):
        self.run(self.shell.now_ps + duration_ps)

    def take(self):
        """Packets sent since the last call."""
        packets = [packet for _, packet in self.shell.sent[self.taken :]]
        self.taken = len(self.shell.sent)
        return packets

    def writes(self):
        return [packet for packet in self.take() if packet.opcode < Opcode.ACKNOWLEDGE]

    # -- the peer ----------------------------------------------------------------------------------------

    def sack(
        self,
        received,
        trigger=None,
        *,
        mark=0,
        mpr=0,
        probe=None,
        ooo=None,
        units=0,
        base=None,
        rtx=False,
        **fields,
    ):
        """The peer holds these packets (numbers from 0 in order of PSN)."""
        received = set(received)
        cumulative = -1
        while cumulative + 1 in received:
            cumulative += 1
        base = cumulative + 1 if base is None else base
        packet = ModelPacket(int(Opcode.SACK), 0, FIRST + cumulative & 0xFFFFFF)
        packet.cumulative_psn = packet.psn
        packet.sack_base = FIRST + base & 0xFFFFFF
        packet.sack_bitmap = sum(1 << n - base for n in received if 0 <= n - base < 64)
        packet.out_of_order = len([n for n in received if n > cumulative]) if ooo is None else ooo
        packet.mark, packet.mpr_units, packet.retransmission = mark, mpr, rtx
        packet.received_units = units
        packet.received_ps = self.shell.now_ps
        if probe is not None:
            packet.probe, packet.probe_id = True, probe
        elif received:
            trigger = max(received) if trigger is None else trigger
            packet.acknowledged_psn = FIRST + trigger & 0xFFFFFF
            packet.entropy = self.ev_of(trigger)
        packet.timestamp = self.shell.now_ps // TICK_PS - BASE_RTT_PS // TICK_PS & 0xFFFF
        for name, value in fields.items():
            setattr(packet, name, value)
        self.requester.on_sack(0, packet)
        self.requester.pump()

    def ev_of(self, number):
        """EV that packet left on last."""
        psn = FIRST + number & 0xFFFFFF
        found = [p for _, p in self.shell.sent if p.psn == psn and p.opcode < Opcode.ACKNOWLEDGE]
        return found[-1].ev if found else 0

    def index_of(self, number):
        """Its EV index."""
        ev = self.ev_of(number)
        return (ev >> 24 & 7) * 32 + (ev >> 16 & 0xFF) - 1

    def nack(self, number, reason, entropy=None):
        packet = ModelPacket(int(Opcode.NACK), 0, FIRST + number & 0xFFFFFF)
        packet.reason = reason
        packet.entropy = self.ev_of(number) if entropy is None else entropy
        self.requester.on_nack(0, packet)
        self.requester.pump()

    def ack(self, number, syndrome=AethSyndrome.ACK):
        packet = ModelPacket(int(Opcode.ACKNOWLEDGE), 0, FIRST + number & 0xFFFFFF)
        packet.syndrome = syndrome
        self.requester.on_ack(0, packet)
        self.requester.pump()
