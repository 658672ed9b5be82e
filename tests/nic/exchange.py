"""Two or four hosts with verilated engines, a fabric between them, and software that exchanges messages."""

from fractions import Fraction

import numpy as np

from mrc_host.experiment.application import Application, Host
from mrc_host.experiment.lockstep import Lockstep, Observer
from mrc_host.fabric.bounds import control_frame_bytes, data_frame_bytes
from mrc_host.fabric.model import Fabric
from mrc_host.fabric.spec import parse_topology
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import UsidPlan
from mrc_host.nic.device import (
    Access,
    Context,
    EvProfile,
    Identity,
    Path,
    Retry,
    Settings,
    WorkRequestOpcode,
    connect,
)
from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_host.nic.verilated import VerilatedNic
from mrc_rtl.config import NicConfig
from mrc_rtl.wire import Opcode

MICROSECOND = 1_000_000
CONFIG = NicConfig.quickstart()
MAC = MacOptions(gbps=Fraction(25, 4))
SIZES = [1, 4095, 4096, 4097, 20_001, 65_536, 3, 12_345]
GUARD = 64
FOUR_HOSTS = {
    "hosts": 4, "planes": 4, "t0_per_plane": 2, "t1_per_plane": 2, "rate_gbps": 6.25, "queue_bytes": 262_144,
    "host_link_delay_ns": 1000, "t1_link_delay_ns": [1000, 5000],
}  # fmt: skip
ACROSS = [(0, 2), (1, 3)]
TWO_HOSTS = {
    "hosts": 2, "planes": 4, "rate_gbps": 6.25, "queue_bytes": 262_144, "host_link_delay_ns": 1000,
}  # fmt: skip


class Exchange(Application):
    """Sends every message once, two at a time, and receives as many."""

    def __init__(self, context, number, sizes=SIZES):
        self.context, self.number, self.sizes = context, number, sizes
        self.domain, self.queue = context.protection_domain(), context.completion_queue(32)
        self.pair = context.queue_pair(self.domain, self.queue)
        room = sum(self.sizes) + GUARD * (len(self.sizes) + 1)
        self.source, self.sink = (context.allocator.allocate(room, 64) for _ in range(2))
        self.source.data[:] = np.random.default_rng(number).integers(0, 256, room, dtype=np.uint8)
        self.source_region = self.domain.register(self.source)
        self.sink_region = self.domain.register(self.sink, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
        self.sent, self.received, self.log, self.events = [], [], [], []
        self.posted = 0

    def offset(self, message):
        return sum(self.sizes[:message]) + GUARD * (message + 1)

    def start(self, time_ps, host):
        for message in range(len(self.sizes)):
            self.pair.post_recv(100 + message)
        self.post()
        self.post()

    def post(self):
        if self.posted < len(self.sizes):
            at, peer = self.offset(self.posted), self.peer
            self.pair.write_imm(
                self.posted,
                local_address=self.source.address + at,
                lkey=self.source_region.lkey,
                length=self.sizes[self.posted],
                remote_address=peer.sink.address + at,
                rkey=peer.sink_region.rkey,
                immediate=0xABC0 + self.posted,
            )
            self.posted += 1

    def on_completion(self, time_ps, queue, completion):
        self.log.append((time_ps, completion))
        if completion.opcode is WorkRequestOpcode.RECEIVE_IMM:
            self.received.append(completion)
        else:
            self.sent.append(completion)
            self.post()

    def on_event(self, time_ps, event):
        self.events.append((time_ps, event))

    @property
    def done(self):
        return len(self.sent) == len(self.received) == len(self.sizes)

    def check(self):
        """What arrived is what the peer sent, in order, and nothing lies beside it."""
        assert [item.wr_id for item in self.sent] == list(range(len(self.sizes)))
        assert [item.wr_id for item in self.received] == [100 + message for message in range(len(self.sizes))]
        assert all(item.ok for item in self.sent + self.received)
        expected = np.zeros_like(self.sink.data)
        for message, size in enumerate(self.sizes):
            assert self.received[message].immediate == 0xABC0 + message
            assert self.received[message].byte_length == size
            at = self.offset(message)
            expected[at : at + size] = self.peer.source.data[at : at + size]
        assert (self.sink.data == expected).all()


class Frames(Observer):
    def __init__(self):
        self.frames = []

    def transmitted(self, host, frames):
        self.frames += [(host, *frame) for frame in frames]


class Bed:
    """Hosts, connected in pairs. ``wrap`` puts something before each NIC."""

    def __init__(
        self, description, ends_of_pairs, *, skip_idle=True, timeout=7, retry=None, config=CONFIG, wrap=None,
        memory=None, sizes=SIZES, seed=0,
    ):  # fmt: skip
        topology = Topology(parse_topology(description))
        plan = UsidPlan(topology)
        self.fabric = Fabric(topology)
        self.applications = []
        frame, answer = data_frame_bytes(config.mtu, srv6=True), control_frame_bytes(Opcode.SACK, srv6=True)
        base_rtt_ps = max(
            topology.base_rtt_ps(path, frame, answer)
            for ends in ends_of_pairs
            for path in topology.paths(*ends)
        )
        for host in range(topology.hosts):
            nic = VerilatedNic(
                config,
                MAC,
                MemoryOptions(
                    **{"size": 1 << 20, "stall_share": 0.05, "latency_jitter": 10, "seed": seed + host}
                    | (memory or {})
                ),
                skip_idle=skip_idle,
            )
            nic = wrap(nic) if wrap else nic
            identity = Identity.of_host(plan, host)
            context = Context(nic, identity, Settings(trimming=True, base_rtt_ps=base_rtt_ps))
            self.applications.append(Exchange(context, seed + host, sizes))
        for ends in ends_of_pairs:
            first, second = (self.applications[host] for host in ends)
            first.peer, second.peer = second, first
            profiles = [
                item.context.ev_profile(EvProfile.by_plane(plan.ev_set(32), 4)) for item in (first, second)
            ]
            paths = [
                Path(plan.inner_address(own), plan.inner_address(peer), plan.template(own, peer))
                for own, peer in (ends, ends[::-1])
            ]
            connect(
                first.pair,
                second.pair,
                profiles=tuple(profiles),
                paths=tuple(paths),
                path_mtu=4096,
                starting_psns=(0xFFFFF0, 7),
                timeout=timeout,
                retry=retry or Retry(),
            )
        self.hosts = [Host(item.context, item, MICROSECOND) for item in self.applications]

    def run(self, limit_us=1000, **options):
        observer = Frames()
        result = Lockstep(self.hosts, self.fabric, observer=observer, **options).run(limit_us * MICROSECOND)
        self.frames = sorted(observer.frames)
        return result

    def outcome(self):
        return {
            "frames": self.frames,
            "completions": [item.log for item in self.applications],
            "memory": [item.context.nic.memory.tobytes() for item in self.applications],
            "time": [item.context.nic.time_ps for item in self.applications],
        }
