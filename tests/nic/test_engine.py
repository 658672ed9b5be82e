"""The whole way with real engines: device API, verilated NICs, fabric, and software in lockstep.

Sweep: windows of 1, 1/2 and 1/7, workers 1, 2 and 4, idle time skipped or clocked.
Stimulus: four hosts in two pairs exchange messages of odd sizes in both directions through T0 and T1 switches
    of different delay, with posted receives; one message goes to memory the peer does not allow.
Checks: every byte, completions at both ends, nothing beside the buffers; frames, completions with their times
    and memory equal for all windows, workers and with idle time clocked; the error reaches both ends.
Timing: the quickstart engine, compiled once for all; well under a minute.
"""

from fractions import Fraction

import numpy as np
import pytest

from mrc_host.experiment.application import Application, Host
from mrc_host.experiment.lockstep import Lockstep, Observer
from mrc_host.fabric.model import Fabric
from mrc_host.fabric.spec import parse_topology
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import UsidPlan
from mrc_host.nic.device import (
    Access,
    CompletionStatus,
    Context,
    EvProfile,
    Identity,
    Path,
    QpErrorReason,
    QpState,
    WorkRequestOpcode,
    connect,
    read_counters,
)
from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_host.nic.verilated import VerilatedNic
from mrc_rtl.config import NicConfig

MICROSECOND = 1_000_000
CONFIG = NicConfig.quickstart()
SIZES = [1, 4095, 4096, 4097, 20_001, 65_536, 3, 12_345]
PAIRS = [(0, 2), (1, 3)]
GUARD = 64
TOPOLOGY = {
    "hosts": 4, "planes": 4, "t0_per_plane": 2, "t1_per_plane": 2, "rate_gbps": 6.25, "queue_bytes": 262_144,
    "host_link_delay_ns": 1000, "t1_link_delay_ns": [1000, 5000],
}  # fmt: skip


class Exchange(Application):
    """Sends every message once, two at a time, and receives as many."""

    def __init__(self, context, number):
        self.context, self.number = context, number
        self.domain, self.queue = context.protection_domain(), context.completion_queue(32)
        self.pair = context.queue_pair(self.domain, self.queue)
        room = sum(SIZES) + GUARD * (len(SIZES) + 1)
        self.source, self.sink = (context.allocator.allocate(room, 64) for _ in range(2))
        self.source.data[:] = np.random.default_rng(number).integers(0, 256, room, dtype=np.uint8)
        self.source_region = self.domain.register(self.source)
        self.sink_region = self.domain.register(self.sink, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
        self.sent, self.received, self.log, self.events = [], [], [], []
        self.posted = 0

    def offset(self, message):
        return sum(SIZES[:message]) + GUARD * (message + 1)

    def start(self, time_ps, host):
        for message in range(len(SIZES)):
            self.pair.post_recv(100 + message)
        self.post()
        self.post()

    def post(self):
        if self.posted < len(SIZES):
            at, peer = self.offset(self.posted), self.peer
            self.pair.write_imm(
                self.posted,
                local_address=self.source.address + at,
                lkey=self.source_region.lkey,
                length=SIZES[self.posted],
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
        return len(self.sent) == len(self.received) == len(SIZES)

    def check(self):
        """What arrived is what the peer sent, in order, and nothing lies beside it."""
        assert [item.wr_id for item in self.sent] == list(range(len(SIZES)))
        assert [item.wr_id for item in self.received] == [100 + message for message in range(len(SIZES))]
        assert all(item.ok for item in self.sent + self.received)
        expected = np.zeros_like(self.sink.data)
        for message, size in enumerate(SIZES):
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
    """Four hosts, connected in pairs."""

    def __init__(self, skip_idle=True):
        topology = Topology(parse_topology(TOPOLOGY))
        plan = UsidPlan(topology)
        self.fabric = Fabric(topology)
        self.applications = []
        for host in range(4):
            nic = VerilatedNic(
                CONFIG,
                MacOptions(gbps=Fraction(25, 4)),
                MemoryOptions(size=1 << 20, stall_share=0.05, latency_jitter=10, seed=host),
                skip_idle=skip_idle,
            )
            self.applications.append(Exchange(Context(nic, Identity.of_host(plan, host)), host))
        for ends in PAIRS:
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


@pytest.fixture(scope="module")
def reference():
    bed = Bed()
    result = bed.run()
    return bed, result, bed.outcome()


def test_messages_arrive_whole_and_in_order(reference):
    bed, result, _ = reference
    assert result.finished
    for item in bed.applications:
        item.check()
        assert not item.events
        statistics = item.context.nic.statistics
        assert (statistics.underruns, statistics.receive_stalls, statistics.memory_violations) == (0, 0, 0)
        assert (statistics.transmit_bad, statistics.memory_outside) == (0, 0)
        counters = read_counters(item.context.driver)
        assert [counters.unaccounted(port) for port in range(4)] == [0] * 4
        assert sum(port["tx_retransmissions"] for port in counters.ports) == 0


@pytest.mark.parametrize("divisor, workers", [(1, 2), (1, 4), (2, 1), (7, 4)])
def test_windows_and_workers_are_invisible(reference, divisor, workers):
    bed = Bed()
    bed.run(window_ps=MICROSECOND // divisor, workers=workers)
    for what, expected in reference[2].items():
        assert bed.outcome()[what] == expected, what


def test_skipping_idle_time_is_invisible(reference):
    bed = Bed(skip_idle=False)
    bed.run(workers=2)
    for what, expected in reference[2].items():
        assert bed.outcome()[what] == expected, what
    skipped = reference[0].applications[0].context.nic.statistics.cycles_skipped
    assert skipped > 0 and bed.applications[0].context.nic.statistics.cycles_skipped == 0


def test_a_write_without_permission_ends_both_qps(reference):
    bed = Bed()
    item = bed.applications[0]
    item.peer.sink_region.deregister()
    bed.run(limit_us=300)
    assert [completion.status for completion in item.sent] == [
        CompletionStatus.REMOTE_ACCESS_ERROR,
        *[CompletionStatus.FLUSHED] * (len(item.sent) - 1),
    ]
    assert len(item.sent) >= 2 and item.pair.state is item.peer.pair.state is QpState.ERROR
    assert item.peer.pair.error_reason is QpErrorReason.REMOTE_ACCESS
    assert item.pair.error_reason is QpErrorReason.REMOTE_NAK
    flushed = [completion.wr_id for completion in item.peer.received if not completion.ok]
    assert flushed == [100 + message for message in range(len(SIZES))]
    assert not item.peer.sink.data.any()
    # The other pair is not concerned.
    for other in (bed.applications[1], bed.applications[3]):
        other.check()
