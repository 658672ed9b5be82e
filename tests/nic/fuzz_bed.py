"""A NIC under test with a good peer that exchanges data with it, and an open line for an attacker.

The NIC is verilated gateware or a golden model, the peer a model whose ports lead straight to the NIC's.
Queue pairs of the NIC: 0 belongs to the good peer, 1 to the attacker, who knows all that a peer knows, 2 is
connected with the good peer and idle, 3 is in RESET. Beside the attacker's region lie one without remote
write, one of another protection domain, and one that is gone.
"""

import numpy as np
from fuzz_craft import ATTACKER, NIC, PEER, PLANES

from mrc_host.bench import WIDTHS
from mrc_host.benches.rig import identity, path
from mrc_host.errors import InfrastructureError
from mrc_host.model.nic import ModelNic
from mrc_host.nic.device import Access, Context, Endpoint, QpState, Retry, Settings, read_counters
from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_host.nic.verilated import VerilatedNic
from mrc_rtl import wire
from mrc_rtl.config import TICK_PS
from mrc_rtl.records import PortCounter

CONFIG = WIDTHS[64]
GBPS = 8
BYTE_PS = 8000 // GBPS
GAP_BYTES = wire.GAP_PREAMBLE_FCS_BYTES
WIRE_PS = 1_000_000
SHORTEST_PS = 200_000
"""Least distance of two frames of the attacker on one port: the engine keeps up with all of them."""
MEMORY_BYTES = 1 << 20
GOOD, TARGET, IDLE, RESET = range(4)
ATTACKER_QPN = 0x345
FIRST_PSN = 0xFFFFE0
GOOD_PSN = 0xFFFF00
KEY, IDLE_KEY = 0xFFFF, 0x8001
ROOM = 65_536
SENT_BYTES = 1024
"""What the attacker's queue pair sends, in packets of 256 bytes from PSN 7 on."""
RECEIVES = 8
"""Posted on the attacker's queue pair: as many immediates as it may use."""
TARGET_ROOM = 16_384
EVS = [[wire.ev_value(plane, 1, replica) for replica in range(8)] for plane in range(PLANES)]
BOTH = Access.LOCAL_WRITE | Access.REMOTE_WRITE
LIMIT_PS = 20_000_000_000
KINDS = ("rtl", "model")


class Broken(AssertionError):
    """The NIC under test did what it must not do."""


class End:
    """One of the two NICs that exchange data."""

    def __init__(self, nic, host):
        self.nic, self.host = nic, host
        # A low threshold: feedback flows both ways all the time.
        self.context = Context(
            nic, identity(CONFIG, host), Settings(sack_threshold=4096, base_rtt_ps=80 * TICK_PS)
        )
        self.domain = self.context.protection_domain()
        self.queue = self.context.completion_queue(64)
        self.source = self.context.allocator.allocate(ROOM)
        self.sink = self.context.allocator.allocate(ROOM)
        self.source.data[:] = np.random.default_rng(host).integers(0, 256, ROOM, dtype=np.uint8)
        self.source_region = self.domain.register(self.source)
        self.sink_region = self.domain.register(self.sink, BOTH)
        self.profile = self.context.ev_profile(EVS)
        self.pair = self.context.queue_pair(self.domain, self.queue)
        self.finished = []

    def poll(self):
        self.finished += self.queue.poll(64)


class Bed:
    """See the module's text.

    Parameters
    ----------
    kind : str
        "rtl" or "model": what the NIC under test is.
    memory : dict
        Options of its host memory.
    """

    def __init__(self, kind, **memory):
        self.kind = kind
        mac, options = (
            MacOptions(gbps=GBPS, fifo_bytes=512),
            MemoryOptions(**{"size": MEMORY_BYTES, **memory}),
        )
        nic = VerilatedNic(CONFIG, mac, options) if kind == "rtl" else ModelNic(CONFIG, mac, options)
        peer = ModelNic(CONFIG, mac, MemoryOptions(size=MEMORY_BYTES), seed=1)
        self.ends = [End(nic, NIC), End(peer, PEER)]
        self.nic, self.peer = self.ends
        self._connect_good()
        self._prepare_target()
        self.flying = [[[] for _ in range(PLANES)] for _ in range(2)]  # (time, frame) to each NIC
        self.free = [[0] * PLANES for _ in range(2)]
        self.delivered_good = [[] for _ in range(PLANES)]  # opcodes
        self.sent = []
        self.tap = None
        self.stalled = None
        self.posted = 0
        self.image = None
        self.align()

    # -- set-up ------------------------------------------------------------------------------------------

    def _connect_good(self):
        nic, peer = self.ends
        for end, other in ((nic, peer), (peer, nic)):
            end.pair.to_init(end.profile)
            first = GOOD_PSN if other is peer else 5
            end.pair.to_rtr(path(end.host, other.host), other.pair.endpoint(first), path_mtu=4096)
        nic.pair.to_rts(sq_psn=5, timeout=8, retry=Retry(7, 25))
        peer.pair.to_rts(sq_psn=GOOD_PSN, timeout=8, retry=Retry(7, 25))

    def _prepare_target(self):
        nic = self.nic
        context, allocate = nic.context, nic.context.allocator.allocate
        self.target_domain = context.protection_domain()
        self.target_queue = context.completion_queue(256)
        self.target = context.queue_pair(self.target_domain, self.target_queue)
        self.target_buffer = allocate(TARGET_ROOM)
        allocate(4096)  # nobody's
        local, foreign, gone = (allocate(4096) for _ in range(3))
        self.regions = {
            "target": self.target_domain.register(self.target_buffer, BOTH),
            "local": self.target_domain.register(local),
            "foreign": nic.domain.register(foreign, BOTH),
            "gone": self.target_domain.register(gone, BOTH),
            "good": nic.sink_region,
        }
        self.regions["gone"].deregister()
        self.start_target()
        idle = context.queue_pair(nic.domain, nic.queue)
        idle.to_init(nic.profile, partition_key=IDLE_KEY)
        end = Endpoint(0x777, 0x1000, wire.inner_address(PEER), mpr=1, max_wimm=32)
        idle.to_rtr(path(NIC, PEER), end, path_mtu=4096)
        idle.to_rts(sq_psn=1, timeout=20)
        self.idle = idle
        reset = context.queue_pair(nic.domain, nic.queue)
        assert [nic.pair.index, self.target.index, idle.index, reset.index] == [GOOD, TARGET, IDLE, RESET]

    def start_target(self):
        """Connect the attacker's queue pair, and let it send something that nobody will acknowledge."""
        target = self.target
        target.to_init(self.nic.profile, partition_key=KEY)
        end = Endpoint(ATTACKER_QPN, FIRST_PSN, wire.inner_address(ATTACKER), mpr=1, max_wimm=32)
        target.to_rtr(path(NIC, ATTACKER), end, path_mtu=256)
        target.to_rts(sq_psn=7, timeout=12, retry=Retry(7, 25))
        for number in range(RECEIVES):
            target.post_recv(number)
        buffer = self.target_buffer
        target.write(
            99, local_address=buffer.address, lkey=self.regions["target"].lkey, length=SENT_BYTES,
            remote_address=0, rkey=1,
        )  # fmt: skip

    def renew_target(self):
        """Destroy the attacker's queue pair and connect it anew from the same PSN on."""
        self.nic.context.poll_events()
        self.target.reset()
        self.target_queue.poll(256)
        self.start_target()
        self.align()

    # -- time --------------------------------------------------------------------------------------------

    @property
    def now(self):
        return max(end.nic.time_ps for end in self.ends)

    def align(self):
        """Bring both NICs to one time, behind whatever was set up at once."""
        now = self.now
        for number in range(len(self.ends)):
            self._run(number, now)

    def _run(self, number, until):
        outputs = self.ends[number].nic.run(until)
        self.ends[number].context.driver.take_reads(outputs.reads)
        at = wire.IPV6.byte_offset("destination") + wire.ETHERNET.bytes + wire.IPV6.bytes
        wanted = wire.inner_address((NIC, PEER)[1 - number]).to_bytes(16, "big")
        for frame in outputs.frames:
            if number == 0:
                self.sent.append(frame)
            if frame.data[at : at + 16] == wanted:
                parts = [(0, frame.data)] if self.tap is None else self.tap(number, frame)
                for later, data in parts:
                    time = frame.time_last_bit_ps + WIRE_PS + later
                    self.flying[1 - number][frame.port].append((time, data))
        self.ends[number].poll()

    def step(self, hostile=None):
        """Let both NICs run, at most for the delay of the wire.

        ``hostile`` holds a list of frames for each port; then the step ends no later than they do.
        """
        begin = self.now
        end = begin + WIRE_PS
        if hostile is not None:
            needed = [
                max(begin + 1, self.free[0][plane]) + sum(line_time(len(frame.data)) for frame in frames)
                for plane, frames in enumerate(hostile)
            ]
            end = min(end, max(needed))
        for number in range(2):
            for plane in range(PLANES):
                flying = self.flying[number][plane]
                due = sorted((item for item in flying if item[0] < end), key=lambda item: item[0])
                self.flying[number][plane] = [item for item in flying if item[0] >= end]
                queue = [(time, data, False, True) for time, data in due]
                if hostile is not None and number == 0:
                    queue = self._mix(queue, hostile[plane], max(begin, self.free[0][plane]), end)
                for time, data, bad_fcs, good in queue:
                    self._deliver(number, plane, max(time, begin), data, bad_fcs, good)
        for number in range(2):
            self._run(number, end)

    def _mix(self, queue, frames, time, end):
        """Put frames of the attacker between those that are due."""
        mixed = []
        while frames and time < end:
            while queue and queue[0][0] <= time:
                item = queue.pop(0)
                mixed.append(item)
                time = max(time, item[0]) + (len(item[1]) + GAP_BYTES) * BYTE_PS
            frame = frames.pop(0)
            mixed.append((time, frame.data, frame.bad_fcs, False))
            time += line_time(len(frame.data))
        return mixed + queue

    def _deliver(self, number, plane, time, data, bad_fcs, good):
        start = max(time, self.free[number][plane])
        self.ends[number].nic.deliver(plane, start, data, bad_fcs)
        self.free[number][plane] = start + line_time(len(data))
        if good and number == 0:
            at = wire.ETHERNET.bytes + 2 * wire.IPV6.bytes + wire.UDP.bytes
            self.delivered_good[plane].append(data[at])

    @property
    def busy(self):
        """Whether frames are on their way."""
        now = self.now
        return any(self.flying[0]) or any(self.flying[1]) or max(map(max, self.free)) > now

    def until(self, done, hostile=None, what="the exchange"):
        """Step until something holds; Broken when it takes too long."""
        limit = self.now + LIMIT_PS
        while not done():
            self.step(hostile)
            if self.now > limit:
                raise Broken(f"{what} must end within {LIMIT_PS // 10**9} ms, {self.describe()}")

    def describe(self):
        """Where the good exchange stands, for a message."""
        states = ", ".join(f"{end.pair.state.name}" for end in self.ends)
        return f"queue pairs are in {states} and {len(self.nic.finished)} of their messages have completed"

    # -- the good exchange -------------------------------------------------------------------------------

    def post(self, to_nic, from_nic, offset, immediate=None):
        """Post a message of each direction (lengths, offset of both ends) and forget older completions."""
        for end in self.ends:
            end.finished.clear()
        with self.nic.context.driver.at(self.now), self.peer.context.driver.at(self.now):
            for end, other, length in ((self.peer, self.nic, to_nic), (self.nic, self.peer, from_nic)):
                operands = {
                    "local_address": end.source.address + offset, "lkey": end.source_region.lkey,
                    "length": length, "remote_address": other.sink.address + offset,
                    "rkey": other.sink_region.rkey,
                }  # fmt: skip
                if immediate is None:
                    end.pair.write(self.posted, **operands)
                else:
                    other.pair.post_recv(1000 + self.posted)
                    end.pair.write_imm(self.posted, immediate=immediate, **operands)
        self.expect = (to_nic, from_nic, offset, 1 if immediate is None else 2)
        self.posted += 1

    @property
    def completed(self):
        return all(len(end.finished) >= self.expect[3] for end in self.ends)

    def check_messages(self):
        """The messages of the last post arrived whole; the NIC's memory image follows."""
        to_nic, from_nic, offset, completions = self.expect
        for end in self.ends:
            if len(end.finished) != completions or not all(item.ok for item in end.finished):
                found = [item.status.name for item in end.finished]
                raise Broken(f"{completions} completions must be good on host {end.host}, got {found}")
        for end, other, length in ((self.nic, self.peer, to_nic), (self.peer, self.nic, from_nic)):
            expected = other.source.data[offset : offset + length]
            if not np.array_equal(end.sink.data[offset : offset + length], expected):
                raise Broken(f"{length} bytes at {offset} must arrive whole at host {end.host}")
        if self.image is not None:
            at = self.nic.sink.bus_address + offset
            self.image[at : at + to_nic] = self.peer.source.data[offset : offset + to_nic]

    # -- what is checked ---------------------------------------------------------------------------------

    def settle(self):
        """Wait until the NIC rests."""
        try:
            self.nic.nic.settle()
        except InfrastructureError as error:
            raise Broken(f"the engine must not stall: {error}") from error
        self.align()

    def take_image(self):
        """Remember the NIC's memory: from now on every byte must be accounted for."""
        self.image = self.nic.nic.memory.copy()
        self.rings = [self.nic.queue.ring, self.target_queue.ring]
        if self.kind == "model":
            self.rings.append(self.nic.context.notices.ring)

    def check_memory(self):
        """No byte beside the completion rings differs from the image."""
        memory, image = self.nic.nic.memory, self.image
        for ring in self.rings:
            span = slice(ring.bus_address, ring.bus_address + ring.length)
            image[span] = memory[span]
        if not np.array_equal(memory, image):
            (wrong,) = np.nonzero(memory != image)
            first, last = int(wrong[0]), int(wrong[-1])
            raise Broken(
                f"memory must hold what was allowed to be written, got {len(wrong)} other bytes from "
                f"{first:#x} to {last:#x} ({self._place(first)})"
            )

    def _place(self, address):
        places = {
            "source": self.nic.source, "sink": self.nic.sink, "attacker's region": self.target_buffer,
            **{f"region {name}": region.buffer for name, region in self.regions.items()},
        }  # fmt: skip
        for name, buffer in places.items():
            if buffer.bus_address <= address < buffer.bus_address + buffer.length:
                return f"{name} + {address - buffer.bus_address}"
        return "outside every region"

    def check_surroundings(self):
        """The bus, the ports and the good queue pairs noticed nothing."""
        statistics = self.nic.nic.statistics
        for name in ("memory_outside", "memory_violations", "receive_stalls", "underruns", "transmit_bad"):
            if found := getattr(statistics, name):
                raise Broken(f"{name} must be 0, got {found}")
        for end in self.ends:
            if end.pair.state is not QpState.RTS:
                raise Broken(f"the good queue pair must stay in RTS, got {end.pair.state.name}")

    def counters(self):
        """Outcomes of each port; every frame must have exactly one."""
        counters = read_counters(self.nic.context.driver)
        self.align()
        for port in range(PLANES):
            if missing := counters.unaccounted(port):
                raise Broken(f"every frame of port {port} must have one outcome, {missing} have none")
        return counters

    def close(self):
        for end in self.ends:
            end.nic.close()


def outcomes(counters, port):
    """Received frames and their outcomes of a port, by PortCounter."""
    values = counters.ports[port]
    return {
        counter: values[counter.name.lower()] for counter in PortCounter if counter < PortCounter.TX_FRAMES
    }


def line_time(size):
    """Time a frame takes on a port of the NIC under test, in ps."""
    return max(SHORTEST_PS, (size + GAP_BYTES) * BYTE_PS)


def modulo(a, b):
    """Distance of two PSNs, 0 to 2^24 - 1."""
    return (a - b) & wire.PSN_MASK
