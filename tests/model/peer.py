"""The other end of a model NIC in a test: makes frames as a peer would, and reads what comes back."""

from dataclasses import dataclass

from stub_requester import StubRequester

from mrc_host.fabric.usid import QpTemplate
from mrc_host.model.decoder import FrameDecoder
from mrc_host.model.encoder import FrameEncoder
from mrc_host.model.nic import ModelNic
from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import ModelPacket
from mrc_host.model.shell import Settings as Registers
from mrc_host.model.templates import Template
from mrc_host.nic.device import Access, Context, Endpoint, Identity, Path, Settings, read_counters
from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_rtl import wire
from mrc_rtl.config import QP_NUMBER_BASE, TICK_PS, NicConfig
from mrc_rtl.wire import Opcode

CONFIG = NicConfig(
    planes=2, clock_ps=4_000, mtu=1024, qps=4, evs_per_plane=8, ev_profiles=4, send_queue_depth=64,
    receive_queue_depth=64, memory_regions=8, completion_queues=4, receive_buffer_bytes=16_384,
)  # fmt: skip
NIC_HOST, PEER_HOST = 1, 2
NIC_ADDRESS, PEER_ADDRESS = wire.inner_address(NIC_HOST), wire.inner_address(PEER_HOST)
NIC_USID, PEER_USID = 0x0801, 0x0803
PEER_QPN = 0x345
FIRST_PSN = 0xFFFFF0
EVS = [[wire.ev_value(plane, 1, replica) for replica in range(4)] for plane in range(2)]
WRITE_CYCLES = 10


def outer(host):
    """Template of outer addresses from a host to the other one, 16 bits of a plane left open."""
    own, peer = (NIC_USID, PEER_USID) if host == NIC_HOST else (PEER_USID, NIC_USID)
    own_t0, peer_t0 = (1, 2) if host == NIC_HOST else (2, 1)
    return QpTemplate(
        wire.outer_address([own_t0, own]),
        wire.outer_address([own_t0, 0x0400, peer_t0, peer]),
        (0, 1, 2, 3),
        1,
    )


@dataclass
class Sent:
    """A packet the NIC sent, with the time of its last bit."""

    time_ps: int
    packet: ModelPacket


class Bench:
    """A model NIC with one connected QP, and its peer."""

    def __init__(self, options=None, config=CONFIG, connect=True, **memory):
        memory = {"size": 1 << 20, "write_latency": WRITE_CYCLES, **memory}
        self.config = config
        self.nic = ModelNic(
            config,
            MacOptions(gbps=10, fifo_bytes=2048),
            MemoryOptions(**memory),
            options=ModelOptions(**{"reverse_probes": False, **(options or {})}),
            make_requester=StubRequester,
        )
        self.engine = self.nic._engine
        identity = Identity(NIC_ADDRESS, NIC_USID, (0x11, 0x12), (0x21, 0x22))
        self.context = Context(self.nic, identity, Settings(sack_threshold=4096, base_rtt_ps=8 * TICK_PS))
        registers = Registers(2)
        registers.own_address, registers.own_usid = PEER_ADDRESS, PEER_USID
        registers.mac, registers.next_hop_mac = [0x31, 0x32], [0x41, 0x42]
        self.peer_options = ModelOptions()
        self._encoders = [FrameEncoder(plane, registers, self.peer_options) for plane in range(2)]
        self._decoders = [FrameDecoder(plane, registers, self.peer_options, 4096) for plane in range(2)]
        self.domain, self.queue = self.context.protection_domain(), self.context.completion_queue(64)
        self.buffer = self.context.allocator.allocate(65_536)
        self.region = self.domain.register(self.buffer, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
        self.pair = self.context.queue_pair(self.domain, self.queue)
        self.profile = self.context.ev_profile(EVS)
        self.template = self._template(self.pair.number)
        if connect:
            self.connect()
        self.next_free = [self.nic.time_ps] * 2
        self.outputs = []

    def _template(self, qpn):
        path = Path(PEER_ADDRESS, NIC_ADDRESS, outer(PEER_HOST))
        return Template(path.template_words(destination_qpn=qpn, partition_key=0xFFFF, udp_port=4791))

    def connect(self, first_psn=FIRST_PSN):
        self.pair.to_init(self.profile)
        end = Endpoint(PEER_QPN, first_psn, PEER_ADDRESS, mpr=1, max_wimm=32)
        self.pair.to_rtr(Path(NIC_ADDRESS, PEER_ADDRESS, outer(NIC_HOST)), end, path_mtu=1024)
        self.pair.to_rts(sq_psn=7)

    # -- what the peer sends -----------------------------------------------------------------------------

    def write(self, number, content=b"\x5a" * 64, opcode=Opcode.WRITE_ONLY, offset=0, **fields):
        """A write whose PSN is the first one plus a number."""
        packet = ModelPacket(int(opcode), 0, FIRST_PSN + number & 0xFFFFFF)
        packet.payload, packet.length = content, len(content)
        packet.address, packet.remote_key = self.buffer.address + offset, self.region.rkey
        packet.message_length = len(content)
        packet.timestamped, packet.timestamp = True, 0x1000 + number & 0xFFFF
        for name, value in fields.items():
            setattr(packet, name, value)
        return packet

    def frame(self, packet, plane=0, ev=None, edit=None):
        packet.ev = EVS[plane][0] if ev is None else ev
        packet.traffic_class = (
            wire.Dscp.TRIMMABLE << 2 | 2 if not packet.traffic_class else packet.traffic_class
        )
        frame = self._encoders[plane].encode(packet, self.template)
        frame = edit(frame) if edit else frame
        end = wire.outer_address([NIC_USID | plane << 12]).to_bytes(16, "big")
        return frame[:38] + end + frame[54:]

    def send(self, packet, plane=0, ev=None, edit=None, bad_fcs=False):
        """Put a packet on the line as soon as the plane is free; returns the time of its last bit."""
        frame = self.frame(packet, plane, ev, edit)
        start = max(self.nic.time_ps, self.next_free[plane])
        self.nic.deliver(plane, start, frame, bad_fcs)
        self.next_free[plane] = start + 800 * (len(frame) + 24)
        return start + 800 * (len(frame) + 12)

    # -- what comes back ---------------------------------------------------------------------------------

    def run(self, duration_ps=20_000_000):
        """Let time go on; returns the packets the NIC sent, in order of time."""
        outputs = self.nic.run(self.nic.time_ps + duration_ps)
        self.outputs.append(outputs)
        sent = []
        for frame in outputs.frames:
            plane = frame.port
            end = wire.outer_address([PEER_USID | plane << 12]).to_bytes(16, "big")
            decoder = self._decoders[plane]
            packet = decoder.decode(frame.data[:38] + end + frame.data[54:])
            assert packet is not None, f"the peer refuses a frame with reason {decoder.reason}"
            sent.append(Sent(frame.time_last_bit_ps, packet))
        return sent

    def answers(self, duration_ps=20_000_000):
        """The packets alone."""
        return [item.packet for item in self.run(duration_ps)]

    def counters(self, plane=0):
        """Port counters that are not 0; every frame must have one outcome."""
        counters = read_counters(self.context.driver)
        assert [counters.unaccounted(port) for port in range(2)] == [0, 0]
        return {name: value for name, value in counters.ports[plane].items() if value}

    @property
    def engine_counters(self):
        return {name: value for name, value in read_counters(self.context.driver).engine.items() if value}

    @property
    def calls(self):
        return self.engine.requester.calls

    @property
    def state(self):
        return self.engine.responder.qps[self.pair.index].state

    def tracker_row(self):
        return self.engine.responder.qps[self.pair.index].row()

    @property
    def peer_low(self):
        return PEER_QPN & 0xFFFF, QP_NUMBER_BASE + self.pair.index
