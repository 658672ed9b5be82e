"""Two NICs, queue pairs that exchange messages, and a fabric that does everything to packets that one may do.

Messages go in both directions of every queue pair, with and without immediates, into slots of the peer's
memory that are used over and over: the bytes of a message are compared when its sender or its receiver hears
of its end, and what lies in its slot is replaced then, so that a packet placed too late shows.
"""

import random
from dataclasses import dataclass, field

import numpy as np
from exchange import CONFIG, MAC, MICROSECOND, TWO_HOSTS

from mrc_host.experiment.application import Application, Host
from mrc_host.experiment.lockstep import Lockstep
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
    read_counters,
)
from mrc_host.nic.options import MemoryOptions
from mrc_host.nic.verilated import VerilatedNic
from mrc_host.packets.peek import peek
from mrc_host.packets.trim import trim
from mrc_rtl.wire import ETHERNET, IPV6, PSN_MASK, TRIM_SIZES, has_payload

__all__ = ["Soak", "Weather"]

#: Path MTUs of the queue pairs, one drawn for each; small ones, so that most of the time goes into packets.
MTUS = ((256,), (256, 512), (256, 1024, 4096))
MESSAGE_PACKETS = 16
SLOTS, OUTSTANDING, RECEIVES = 16, 12, 24
GUARD = 64
WASTE = 0xEE
MEMORY_BYTES = 1 << 23
#: A starting PSN is less than this below the wrap, and no further than the packets of its flow reach.
BELOW_WRAP = 10_000
PACKET_LIMIT_US = 200
DRAIN_US = 4000
OUTER_BYTES = ETHERNET.bytes + IPV6.bytes


@dataclass
class Weather:
    """A tap that drops, cuts, marks, doubles, delays and damages packets at random.

    Parameters
    ----------
    draw : random.Random
    shares : dict
        Action → its share of packets.
    """

    draw: random.Random
    shares: dict[str, float]
    done: dict[str, int] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})
    delivered: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})

    @classmethod
    def of(cls, draw: random.Random) -> "Weather":
        """Fair to foul, each action with its own share."""
        return cls(draw, {
            "drop": draw.uniform(0.001, 0.03), "cut": draw.uniform(0.001, 0.05), "mark": draw.uniform(0, 0.3),
            "double": draw.uniform(0.001, 0.05), "delay": draw.uniform(0.01, 0.2),
            "damage": draw.uniform(0, 0.01),
        })  # fmt: skip

    def tap(self, host: int):
        """The tap for what a host sends."""

        def act(direction, time_ps, frame):
            self.sent[host] += 1
            result = self._act(frame)
            self.delivered[host] += 1 if result is None else len(result)
            return result

        return act

    def _act(self, frame):
        draw = self.draw
        weights = (*self.shares.values(), 1 - sum(self.shares.values()))
        action = draw.choices((*self.shares, None), weights)[0]
        if action is None or (action == "cut" and not has_payload(peek(frame).opcode)):
            return None
        self.done[action] = self.done.get(action, 0) + 1
        if action == "drop":
            return []
        if action == "cut":
            return [(0, trim(frame, draw.choice(TRIM_SIZES), draw.random() < 0.5, draw.random() < 0.5))]
        if action == "double":
            return [(0, frame), (draw.choice((0, 3, 40, 600)) * MICROSECOND, frame)]
        if action == "delay":
            return [(draw.randrange(1, 25 * MICROSECOND), frame)]
        changed = bytearray(frame)
        if action == "mark":
            changed[15] |= 0x30  # CE in the outer traffic class
        else:  # behind the outer header, by which switches send it on
            changed[draw.randrange(OUTER_BYTES, len(frame))] ^= 1 << draw.randrange(8)
        return [(0, bytes(changed))]


class Flow:
    """One direction of a queue pair: what its sender has posted, and what of it has been compared."""

    def __init__(self, draw, mtu, packets):
        self.mtu = mtu
        self.packets = 0
        self.messages = []  # (bytes, immediate or None)
        while self.packets < packets:
            length = self._length(draw)
            self.packets += max(1, -(-length // mtu))
            plain = len(self.messages) % 3 != 2 and draw.random() < 0.4
            plain = plain and length > 0  # which needs an immediate
            self.messages.append((draw.randbytes(length), None if plain else draw.getrandbits(32)))
        if self.messages[-1][1] is None:
            self.messages[-1] = (self.messages[-1][0], draw.getrandbits(32))
        self.immediates = [
            number for number, (_, immediate) in enumerate(self.messages) if immediate is not None
        ]
        self.posted = self.sent = self.received = self.compared = 0

    def _length(self, draw):
        most = self.mtu * MESSAGE_PACKETS
        return draw.choice((
            draw.randrange(0, 130), draw.randrange(1, self.mtu + 2), self.mtu * draw.randrange(1, 5),
            draw.randrange(1, most), self.mtu * draw.randrange(1, 5) + draw.choice((-1, 1)),
        ))  # fmt: skip

    @property
    def slot_bytes(self):
        return self.mtu * MESSAGE_PACKETS + GUARD

    @property
    def done(self):
        return self.sent == len(self.messages) and self.received == len(self.immediates)


class End(Application):
    """One host: for each queue pair a flow that leaves and a peer's flow that arrives."""

    def __init__(self, context, flows):
        self.context, self.flows = context, flows
        domain = context.protection_domain()
        self.queues = [context.completion_queue(64) for _ in flows]
        self.pairs = [context.queue_pair(domain, queue) for queue in self.queues]
        self.places = np.cumsum([0, *(SLOTS * flow.slot_bytes + GUARD for flow in flows)]).tolist()
        self.source, self.sink = (context.allocator.allocate(self.places[-1], 64) for _ in range(2))
        self.sink.data[:] = WASTE
        self.source_region = domain.register(self.source)
        self.sink_region = domain.register(self.sink, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
        self.peer = self
        self.host = None
        self.events = []

    def start(self, time_ps, host):
        self.host = host
        for number, pair in enumerate(self.pairs):
            for place in range(RECEIVES):
                pair.post_recv(place)
            self.post(time_ps, number)

    def place(self, number, message):
        """Where a message lies, in the source and in the peer's sink."""
        flow = self.flows[number]
        return self.places[number] + GUARD + message % SLOTS * flow.slot_bytes

    def post(self, time_ps, number):
        flow = self.flows[number]
        while flow.posted < len(flow.messages) and flow.posted < flow.sent + OUTSTANDING:
            content, immediate = flow.messages[flow.posted]
            at = self.place(number, flow.posted)
            self.source.data[at : at + len(content)] = np.frombuffer(content, np.uint8)
            operands = {
                "local_address": self.source.address + at, "lkey": self.source_region.lkey,
                "length": len(content), "remote_address": self.peer.sink.address + at,
                "rkey": self.peer.sink_region.rkey,
            }  # fmt: skip
            if immediate is None:
                self.pairs[number].write(flow.posted, **operands)
            else:
                self.pairs[number].write_imm(flow.posted, immediate=immediate, **operands)
            flow.posted += 1

    def on_completion(self, time_ps, queue, completion):
        number = self.queues.index(queue)
        assert completion.ok, completion
        if completion.opcode is WorkRequestOpcode.RECEIVE_IMM:
            flow = self.peer.flows[number]
            message = flow.immediates[flow.received]
            content, immediate = flow.messages[message]
            assert (completion.immediate, completion.byte_length) == (immediate, len(content)), completion
            flow.received += 1
            self.peer.compare(number, message)
            self.pairs[number].post_recv(flow.received)
        else:
            flow = self.flows[number]
            assert completion.wr_id == flow.sent, completion
            flow.sent += 1
            self.compare(number, completion.wr_id)
            self.post(time_ps, number)

    def compare(self, number, last):
        """All messages up to one have arrived at the peer: look at their bytes, then replace them."""
        flow, sink = self.flows[number], self.peer.sink.data
        while flow.compared <= last:
            content = flow.messages[flow.compared][0]
            at = self.place(number, flow.compared)
            assert sink[at : at + len(content)].tobytes() == content, (number, flow.compared)
            sink[at : at + len(content)] = WASTE
            flow.compared += 1

    def on_event(self, time_ps, event):
        self.events.append((time_ps, event))

    @property
    def done(self):
        return all(flow.done for flow in self.flows)


class Soak:
    """One life of two NICs in random weather.

    Parameters
    ----------
    seed : str
        Decides everything.
    packets : int
        Data packets of both directions and all queue pairs, without those sent again; a message more at most
        in each direction.
    """

    def __init__(self, seed, packets):
        draw = random.Random(seed)
        topology = Topology(parse_topology(TWO_HOSTS))
        plan = UsidPlan(topology)
        self.fabric = Fabric(topology)
        self.weather = Weather.of(draw)
        share = -(-packets // (2 * len(MTUS)))
        mtus = [draw.choice(choices) for choices in MTUS]
        self.ends, self.hosts = [], []
        for host in range(2):
            options = MemoryOptions(
                size=MEMORY_BYTES, stall_share=draw.choice((0.0, 0.05, 0.2)), seed=draw.getrandbits(32),
                latency_jitter=draw.choice((0, 10, 150)),
            )  # fmt: skip
            context = Context(
                VerilatedNic(CONFIG, MAC, options), Identity.of_host(plan, host), Settings(trimming=True)
            )
            self.ends.append(End(context, [Flow(draw, mtu, share) for mtu in mtus]))
            self.hosts.append(Host(context, self.ends[-1], MICROSECOND))
            self.fabric.tap(f"h{host}.p*>*", self.weather.tap(host))
        first, second = self.ends
        first.peer, second.peer = second, first
        profiles = tuple(
            item.context.ev_profile(EvProfile.by_plane(plan.ev_set(32), 4)) for item in self.ends
        )
        paths = tuple(
            Path(plan.inner_address(own), plan.inner_address(peer), plan.template(own, peer))
            for own, peer in ((0, 1), (1, 0))
        )
        self.starts = []
        for number, mtu in enumerate(mtus):
            start = tuple(PSN_MASK + 1 - draw.randrange(1, min(BELOW_WRAP, share)) for _ in range(2))
            self.starts.append(start)
            connect(
                first.pairs[number], second.pairs[number], profiles=profiles, paths=paths, path_mtu=mtu,
                starting_psns=start, timeout=draw.choice((5, 6)), retry=Retry(),
            )  # fmt: skip
        self.packets = sum(flow.packets for end in self.ends for flow in end.flows)

    def wraps(self):
        """Directions of queue pairs whose PSNs pass 2^24."""
        return sum(
            start[host] + end.flows[number].packets > PSN_MASK + 1
            for number, start in enumerate(self.starts)
            for host, end in enumerate(self.ends)
        )

    def run(self):
        """Run to the end and check everything.

        Returns
        -------
        dict of str to int
            ``packets``, ``frames`` on the wire, ``wraps``, ``us`` of simulated time, retransmissions, and
            what was done to frames.
        """
        limit = self.packets * PACKET_LIMIT_US * MICROSECOND
        result = Lockstep(self.hosts, self.fabric, drain_ps=DRAIN_US * MICROSECOND).run(limit)
        assert result.finished, [
            (number, flow.posted, flow.sent, flow.received, len(flow.messages))
            for end in self.ends
            for number, flow in enumerate(end.flows)
        ]
        retransmissions = 0
        for host, end in enumerate(self.ends):
            assert not end.events, end.events
            assert (end.sink.data == WASTE).all(), "a packet was placed after its message had ended"
            retransmissions += self._count(host, end)
        return {
            "packets": self.packets, "frames": sum(self.weather.sent.values()), "wraps": self.wraps(),
            "us": (result.end_ps - result.start_ps) // MICROSECOND, "retransmissions": retransmissions,
            **self.weather.done,
        }  # fmt: skip

    def _count(self, host, end):
        """Counters of a host against what the fabric saw and the flows hold; returns its retransmissions."""
        counters = read_counters(end.context.driver)
        ports = range(CONFIG.planes)
        assert [counters.unaccounted(port) for port in ports] == [0] * CONFIG.planes, counters.ports
        total = {name: sum(port[name] for port in counters.ports) for name in counters.ports[0]}
        mine, peers = (sum(flow.packets for flow in item.flows) for item in (end, end.peer))
        assert total["accepted"] == peers, (host, total)
        assert total["rx_frames"] == self.weather.delivered[1 - host], (host, total, self.weather)
        assert total["tx_frames"] == self.weather.sent[host], (host, total, self.weather)
        assert total["tx_data"] == mine, (host, total)
        assert (
            sum(total[f"tx_{kind}"] for kind in ("data", "retransmissions", "control")) == total["tx_frames"]
        )
        statistics = end.context.nic.statistics
        assert statistics.memory_violations == statistics.memory_outside == 0
        assert counters.engine["completion_overrun"] == counters.engine["events_dropped"] == 0
        assert counters.engine["read_errors"] == counters.engine["write_errors"] == 0
        received = sum(len(flow.immediates) for flow in end.peer.flows)
        assert counters.engine["completions"] == received + sum(len(flow.messages) for flow in end.flows)
        return total["tx_retransmissions"]

    def close(self):
        """Let go of the engines."""
        for end in self.ends:
            end.context.nic.close()
