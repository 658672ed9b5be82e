"""Two hosts of a fabric with golden models, connected by a queue pair each."""

from __future__ import annotations

from mrc_host.experiment.session import Session
from mrc_host.fabric.model import Fabric
from mrc_host.fabric.spec import parse_topology
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import UsidPlan
from mrc_host.model.nic import ModelNic
from mrc_host.nic.device import Access, Context, EvProfile, Identity, Path, Retry
from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_rtl.config import NicConfig

CONFIG = NicConfig(
    planes=2, data_width=512, clock_ps=4_000, mtu=4096, qps=4, mpr_psns=1024, evs_per_plane=8,
    receive_buffer_bytes=16_384, address_width=64,
)  # fmt: skip
FABRIC = {
    "hosts": 2, "planes": 2, "t0_per_plane": 2, "t1_per_plane": 4, "rate_gbps": 100,
    "host_link_delay_ns": 1000, "t1_link_delay_ns": 1000, "queue_bytes": 262_144,
}  # fmt: skip
MEMORY_BYTES = 4 << 20


class End:
    """A host: device, domain, queue, source and target regions, queue pair."""

    def __init__(self, world, host):
        self.world, self.host = world, host
        self.context = Context(world.session.nics[host], Identity.of_host(world.plan, host))
        self.domain = self.context.protection_domain()
        self.queue = self.context.completion_queue(64)
        self.source = self.domain.register(self.context.allocator.allocate(1 << 19))
        both = Access.LOCAL_WRITE | Access.REMOTE_WRITE
        self.target = self.domain.register(self.context.allocator.allocate(1 << 19), both)
        self.source.buffer.data[:] = host + 1
        self.pair = self.context.queue_pair(self.domain, self.queue)

    @property
    def peer(self):
        return self.world.ends[1 - self.host]

    @property
    def path(self):
        plan, other = self.world.plan, 1 - self.host
        return Path(plan.inner_address(self.host), plan.inner_address(other), plan.template(self.host, other))

    def place(self, length=None, **changes):
        """Operands of a write from the own source to the peer's target."""
        return {
            "local_address": self.source.address, "lkey": self.source.lkey,
            "length": length or self.source.length, "remote_address": self.peer.target.address,
            "rkey": self.peer.target.rkey, **changes,
        }  # fmt: skip


class World:
    """See the module's text.

    Parameters
    ----------
    profile : callable
        Makes the EV profile of an End; by default two values for each path.
    init, rtr, rts : dicts
        Attributes of the steps.
    """

    def __init__(self, profile=None, init=None, rtr=None, rts=None, connected=True):
        topology = Topology(parse_topology(FABRIC))
        self.plan = UsidPlan(topology)
        mac, memory = MacOptions(gbps=100, fifo_bytes=8192), MemoryOptions(size=MEMORY_BYTES)
        nics = [ModelNic(CONFIG, mac, memory, seed=host) for host in range(2)]
        self.session = Session(nics, Fabric(topology))
        self.ends = [End(self, host) for host in range(2)]
        self.profiles = [(profile or self.values)(end) for end in self.ends]
        if connected:
            self.connect(init or {}, rtr or {}, rts or {})

    def values(self, end, **options):
        return end.context.ev_profile(EvProfile.by_plane(self.plan.ev_set(16), 2), **options)

    def connect(self, init, rtr, rts):
        for end, profile in zip(self.ends, self.profiles, strict=True):
            end.pair.to_init(profile, **init)
            end.pair.to_rtr(end.path, end.peer.pair.endpoint(), path_mtu=4096, **rtr)
        for end in self.ends:
            end.pair.to_rts(**{"timeout": 5, "retry": Retry(7, 25), **rts})

    def run(self, microseconds=200):
        self.session.run(microseconds)
