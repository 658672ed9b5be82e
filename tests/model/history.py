"""Random histories of two model NICs, wire to wire, that everything bad happens to; all from one seed.

Software on both sides posts writes with and without immediate; the wires lose, double, delay, mark, trim and
damage frames, links flap, entropy values stop working without a word, and the controller denies and allows
them. After a while the network is good again, and everything has to come to an end.
"""

import random
from heapq import heappop, heappush

import numpy as np

from mrc_host.errors import InfrastructureError
from mrc_host.model.nic import ModelNic
from mrc_host.model.options import ModelOptions
from mrc_host.nic.base import NEVER
from mrc_host.nic.device import (
    Access,
    CompletionStatus,
    Context,
    Identity,
    NsccConfig,
    Path,
    ProfileState,
    Retry,
    Settings,
    WorkRequestOpcode,
    connect,
)
from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_host.packets.trim import trim
from mrc_rtl.config import QP_NUMBER_BASE, NicConfig
from mrc_rtl.records import PORT_COUNTERS, PortCounter, TraceKind
from mrc_rtl.tables import ControlTableId, EvState
from mrc_rtl.wire import Dscp, ev_value

US = 1_000_000
MTU = 256
WINDOW_PS = 500_000
DELAY_PS = 1_000_000
LIMIT_PS = 20_000 * US
TRIMMABLE = (Dscp.TRIMMABLE, Dscp.RETX)
SIZES = (1, 3, 255, 256, 257, 1000, 1024, 2500, 4000)
GUARD = 16

# PathState: ABSENT 0, GOOD 1, SKIP 2, ASSUMED_BAD 3, DENIED 4, BACKUP 5
LEGAL = {
    *((0, new) for new in (1, 4)),
    *((1, new) for new in (0, 2, 3, 4, 5)),
    *((2, new) for new in (0, 1, 3, 4, 5)),
    *((3, new) for new in (0, 1, 4)),
    *((4, new) for new in (0, 1)),
    *((5, new) for new in (0, 1, 4)),
}


class Violation(AssertionError):
    """A history broke a promise."""


class Message:
    def __init__(self, number, length, immediate, at):
        self.number, self.length, self.immediate, self.at = number, length, immediate, at
        self.expected = b""


class Flow:
    """One direction of a connected pair of QPs."""

    def __init__(self, world, host, pair, messages):
        self.world, self.host, self.pair, self.messages = world, host, pair, messages
        context = pair.context
        size = sum(message.length + GUARD for message in messages) + GUARD
        self.source = context.allocator.allocate(size, 64)
        self.source.data[:] = world.numpy.integers(0, 256, size, dtype=np.uint8)
        self.source_region = pair.protection_domain.register(self.source)
        self.sink = self.sink_region = None
        self.posted = self.sent = self.received = 0
        self.with_immediate = [message for message in messages if message.immediate is not None]
        for message in messages:
            message.expected = bytes(self.source.data[message.at : message.at + message.length])

    def post(self):
        """Post messages while there is room."""
        depth = self.pair.context.capabilities.send_queue_depth
        while self.posted < len(self.messages) and self.pair.sends_outstanding < depth:
            message = self.messages[self.posted]
            operands = {
                "local_address": self.source.address + message.at, "lkey": self.source_region.lkey,
                "length": message.length, "remote_address": self.sink.address + message.at,
                "rkey": self.sink_region.rkey,
            }  # fmt: skip
            if message.immediate is None:
                self.pair.write(message.number, **operands)
            else:
                self.pair.write_imm(message.number, immediate=message.immediate, **operands)
            self.posted += 1

    def check_placed(self, message, what):
        found = bytes(self.sink.data[message.at : message.at + message.length])
        if found != message.expected:
            raise Violation(f"{what} of message {message.number} before all of it was placed")

    def on_sent(self, completion):
        if completion.status is not CompletionStatus.SUCCESS:
            raise Violation(f"send {completion.wr_id} completed with {completion.status.name}")
        if completion.wr_id != self.sent:
            raise Violation(f"send {self.sent} must complete next, got {completion.wr_id}")
        message = self.messages[self.sent]
        self.check_placed(message, "send completion")
        # The buffer is the application's again: whoever reads it now reads something else.
        self.source.data[message.at : message.at + message.length] ^= 0xFF
        self.sent += 1

    def on_received(self, completion):
        message = self.with_immediate[self.received]
        if (completion.immediate, completion.byte_length) != (message.immediate, message.length):
            raise Violation(f"receive {self.received} must bring {message.immediate:#x}, got {completion}")
        for earlier in self.messages[: message.number + 1]:
            self.check_placed(earlier, f"receive completion {self.received}")
        self.received += 1

    @property
    def done(self):
        return self.sent == len(self.messages) and self.received == len(self.with_immediate)


class Faults:
    """What the network does, until ``end_ps``; drawn once per history."""

    def __init__(self, draw, planes, values):
        self.end_ps = draw.choice((0, 60, 150, 400)) * US
        chance = lambda share, top: draw.random() * top if draw.random() < share else 0.0  # noqa: E731
        self.loss = [[chance(0.3, 0.3) for _ in range(planes)] for _ in range(2)]
        self.double, self.delay = chance(0.3, 0.1), chance(0.5, 0.3)
        self.delay_ps = draw.choice((2, 10, 40)) * US
        self.mark, self.trim, self.damage = chance(0.4, 0.4), chance(0.4, 0.3), chance(0.3, 0.05)
        self.last_hop = draw.random() < 0.3
        self.correct = draw.random() < 0.5
        #: (direction, EV or plane, from, until): frames on it vanish.
        self.holes = []
        for _ in range(draw.choice((0, 0, 1, 3))):
            start = draw.random() * self.end_ps
            what = draw.choice(values) if draw.random() < 0.7 else draw.randrange(planes)
            self.holes.append((draw.randrange(2), what, start, start + draw.random() * self.end_ps))
        self.control_only = draw.random() < 0.1
        self.data_only = draw.random() < 0.2
        self.flaps = []
        for _ in range(draw.choice((0, 0, 0, 1, 4))):
            start = int(draw.random() * self.end_ps)
            plane, host = draw.randrange(planes), draw.randrange(2)
            self.flaps.append((start, host, plane, min(start + draw.randrange(1, 80) * US, self.end_ps)))
        self.operations = sorted(
            (
                int(draw.random() * self.end_ps),
                draw.randrange(2),
                draw.randrange(len(values)),
                draw.random() < 0.5,
            )
            for _ in range(draw.choice((0, 0, 0, 6)))
        )


class History:
    """One history; :meth:`run` plays it and raises :class:`Violation` when a promise is broken.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed):
        self.seed = seed
        draw = self.draw = random.Random(seed)
        self.numpy = np.random.default_rng(seed)
        self.planes = draw.choice((1, 2, 2, 3, 4))
        self.evs = draw.choice((1, 2, 4, 8))
        self.config = NicConfig(
            planes=self.planes, mtu=MTU, qps=2, evs_per_plane=self.evs, ev_profiles=2, trace=True,
            send_queue_depth=draw.choice((2, 8)), clock_ps=4000, completion_queues=2,
        )  # fmt: skip
        self.values = [
            [ev_value(plane, 1, place) for place in range(self.evs)] for plane in range(self.planes)
        ]
        flat = [value for values in self.values for value in values]
        self.faults = Faults(draw, self.planes, flat)
        self.options = self._options()
        self.trimming = draw.random() < 0.5
        self.arrivals = [[], []]
        self.counter = 0
        self.states = [{}, {}]
        self.nics, self.contexts = [], []
        for host in range(2):
            self._make_host(host)
        self.flows = []
        self._connect(draw.choice((1, 1, 2)))

    def _options(self):
        draw = self.draw
        return ModelOptions(
            spray_policy=draw.choice(("mrc", "mrc", "mrc", "oblivious", "bitmap", "reps", "mixed")),
            backups_per_plane=draw.choice((0, 0, 1, 2)),
            loss_rule=draw.choice(("rack", "rack", "rack", "count", "none")),
            reorder_window_ns=draw.choice((-1, -1, 0, 20_000)),
            complete_view=draw.random() < 0.8,
            undo_rule=draw.choice(("proof", "proof", "flag", "none")),
            minimum_active_rule=draw.choice(("skip", "skip", "keep", "ignore")),
            congestion=draw.choice(("nscc_fixed", "nscc_float")),
            tail_probe=draw.random() < 0.8,
            stale_probe=draw.random() < 0.8,
            control_path=draw.choice(("reverse", "reverse", "ingress")),
            out_of_window=draw.choice(("nack", "drop")),
            transport_ack=draw.choice(("message", "each")),
            service_time=draw.random() < 0.7,
            trim_skip_turns=draw.choice((1, 4)),
            probe_interval_min_ns=8_000,
            probe_interval_max_ns=200_000,
            another_ev=draw.random() < 0.8,
            ack_request=draw.choice(("tail", "always")),
        )

    def describe(self):
        """What is special about this history, for the message of a failure."""
        faults = {name: value for name, value in vars(self.faults).items() if value}
        changed = {
            name: value
            for name, value in self.options.as_dict().items()
            if value != getattr(ModelOptions(), name)
        }
        return (
            f"seed {self.seed}: planes {self.planes}, EVs {self.evs}, trimming {self.trimming}, "
            f"faults {faults}, options {changed}"
        )

    # -- building ----------------------------------------------------------------------------------------

    def _make_host(self, host):
        draw = self.draw
        nic = ModelNic(
            self.config,
            MacOptions(gbps=10),
            MemoryOptions(size=1 << 19, latency_jitter=draw.choice((0, 60)), write_latency=30, seed=host),
            options=self.options,
            seed=self.seed * 2 + host,
        )
        identity = Identity(
            address=0xFD00 << 112 | (host + 1) << 64 | 1,
            usid=0x801 + host,
            macs=tuple(0x02_00_00_00_00_00 | plane << 16 | host + 1 for plane in range(self.planes)),
            next_hop_macs=tuple(0x02_00_00_00_00_00 | plane << 16 | 2 - host for plane in range(self.planes)),
        )
        threshold = draw.choice((1024, 2048, 16_384))
        settings = Settings(trimming=self.trimming, sack_threshold=threshold, base_rtt_ps=4 * US)
        self.nics.append(nic)
        self.contexts.append(Context(nic, identity, settings))

    def _connect(self, pairs):
        draw = self.draw
        queues = [context.completion_queue(64) for context in self.contexts]
        domains = [context.protection_domain() for context in self.contexts]
        self.queues = queues
        profiles = [context.ev_profile(self.values) for context in self.contexts]
        congestion = draw.random() < 0.6
        for _ in range(pairs):
            ends = [
                context.queue_pair(domain, queue)
                for context, domain, queue in zip(self.contexts, domains, queues)
            ]
            addresses = [context.identity.address for context in self.contexts]
            if congestion:
                self._connect_with_congestion_control(ends, profiles, addresses)
            else:
                connect(
                    ends[0], ends[1], profiles=tuple(profiles),
                    paths=(Path(*addresses), Path(*addresses[::-1])), path_mtu=MTU,
                    starting_psns=(draw.choice((0, 0xFFFFF0)), draw.randrange(1 << 24)),
                    timeout=draw.choice((4, 5)), retry=Retry(7, 25),
                )  # fmt: skip
            self._make_flows(ends)
        for nic in self.nics:
            nic.run(max(nic.time_ps for nic in self.nics))
        self.start_ps = self.nics[0].time_ps
        for flow in self.flows:
            for place in range(self.planes):
                for number in range(self.evs):
                    self.states[flow.host][flow.pair.index, place, number] = None

    def _connect_with_congestion_control(self, ends, profiles, addresses):
        draw = self.draw
        psns = [draw.randrange(1 << 24), 0xFFFFFE]
        timeout = draw.choice((4, 5))
        for end, pair in enumerate(ends):
            profile = self.contexts[end].cc_profile()
            config = NsccConfig.for_network(
                rate_gbps=10.0 * self.planes, base_rtt_ns=4000, mtu=MTU, trimming=self.trimming
            )
            profile.modify(ProfileState.OFFLINE, algorithm="uet-1.0-nscc")
            profile.modify(ProfileState.ONLINE, config=config)
            pair.to_init(profiles[end], cc_profile=profile)
        for end, pair in enumerate(ends):
            pair.to_rtr(
                Path(addresses[end], addresses[1 - end]), ends[1 - end].endpoint(psns[1 - end]), path_mtu=MTU
            )
        for end, pair in enumerate(ends):
            pair.to_rts(sq_psn=psns[end], timeout=timeout, retry=Retry(7, 25))

    def _make_flows(self, ends):
        draw = self.draw
        flows = []
        for host, pair in enumerate(ends):
            messages, at = [], GUARD
            for number in range(draw.randrange(0, 14)):
                with_immediate = draw.random() < 0.5
                length = draw.choice(SIZES if not with_immediate else (0, *SIZES))
                if draw.random() < 0.05:
                    length = 20_000
                messages.append(
                    Message(number, length, draw.randrange(1 << 32) if with_immediate else None, at)
                )
                at += length + GUARD
            flows.append(Flow(self, host, pair, messages))
        for flow, other in zip(flows, ends[::-1]):
            flow.sink = other.context.allocator.allocate(flow.source.length, 64)
            flow.sink.data[:] = 0
            flow.sink_region = other.protection_domain.register(
                flow.sink, Access.LOCAL_WRITE | Access.REMOTE_WRITE
            )
            flow.peer = other
            for number in range(len(flow.with_immediate)):
                other.post_recv(number)
        self.flows += flows

    # -- playing -----------------------------------------------------------------------------------------

    def run(self):
        """Play the history to its end and check it."""
        start = self.start_ps
        self.end_ps = start + self.faults.end_ps
        for time_ps, host, plane, until_ps in self.faults.flaps:
            for when, up in ((time_ps, False), (until_ps, True)):
                self.nics[host].schedule_link(start + when, plane, up)
        self.operations = [(start + item[0], *item[1:]) for item in self.faults.operations]
        self.restored = not self.operations
        self._software(start)
        now = start
        while not all(flow.done for flow in self.flows):
            if now > start + LIMIT_PS:
                raise Violation(f"not done after {(now - start) // US} us: {self._progress()}")
            now = self._step(now)
        self._finish(now)

    def _progress(self):
        return [(flow.host, flow.posted, flow.sent, flow.received, len(flow.messages)) for flow in self.flows]

    def _step(self, now, limit=NEVER):
        """Advance both hosts to the next thing that happens, at most to a limit."""
        due = min(nic.next_activity_ps for nic in self.nics)
        due = min(due, *(heap[0][0] if heap else due for heap in self.arrivals))
        if self.operations:
            due = min(due, self.operations[0][0])
        elif not self.restored:
            due = min(due, self.end_ps)
        due = min(due, limit)
        if due >= NEVER:
            raise Violation(f"nothing happens any more: {self._progress()}")
        now = max(now, due) + WINDOW_PS
        outputs = []
        for host, nic in enumerate(self.nics):
            heap = self.arrivals[host]
            while heap and heap[0][0] < now:
                time_ps, _, plane, frame = heappop(heap)
                nic.deliver(plane, time_ps, frame)
            outputs.append(nic.run(now))
        for host, output in enumerate(outputs):
            for frame in output.frames:
                self._carry(1 - host, frame)
            self._check_trace(host, output.trace)
        self._control(now)
        self._software(now)
        self._check_requesters()
        return now

    def _carry(self, target, sent):
        """A frame is on the wire."""
        draw, faults, frame = self.draw, self.faults, sent.data
        relative = sent.time_last_bit_ps - self.start_ps
        arrive = sent.time_last_bit_ps - len(frame) * 800 + DELAY_PS
        if relative >= faults.end_ps:
            self._enter(target, arrive, sent.port, frame)
            return
        is_data = (frame[54 + 8] & 0x1F) in range(6, 12)
        if (faults.control_only and is_data) or (faults.data_only and not is_data):
            self._enter(target, arrive, sent.port, frame)
            return
        ev = int.from_bytes(frame[54:56], "big") << 16 | int.from_bytes(frame[16:18], "big")
        for direction, what, start, until in faults.holes:
            if direction == target and what in (ev, sent.port) and start <= relative < until:
                return
        if draw.random() < faults.loss[target][sent.port]:
            return
        dscp = (frame[14] & 0xF) << 2 | frame[15] >> 6
        if dscp in TRIMMABLE and len(frame) > 140 and draw.random() < faults.trim:
            frame = trim(frame, draw.choice((78, 82, 98, 128)), faults.correct, faults.last_hop)
        elif frame[15] >> 4 & 3 and draw.random() < faults.mark:
            frame = frame[:15] + bytes([frame[15] | 0x30]) + frame[16:]
        if draw.random() < faults.damage:
            at = draw.randrange(14, len(frame))
            frame = frame[:at] + bytes([frame[at] ^ 1 << draw.randrange(8)]) + frame[at + 1 :]
        if draw.random() < faults.delay:
            arrive += draw.randrange(faults.delay_ps)
        self._enter(target, arrive, sent.port, frame)
        if draw.random() < faults.double:
            self._enter(target, arrive + draw.randrange(faults.delay_ps), sent.port, frame)

    def _enter(self, target, time_ps, plane, frame):
        self.counter += 1
        heappush(self.arrivals[target], (time_ps, self.counter, plane, frame))

    def _control(self, now):
        """The controller's operations on EVs; at the end everything is allowed again."""
        while self.operations and self.operations[0][0] <= now:
            _, host, number, deny = self.operations.pop(0)
            self._set_entry(now, host, number, EvState.DENIED if deny else EvState.GOOD)
        if not self.operations and not self.restored and now >= self.end_ps:
            self.restored = True
            for host in range(2):
                for number in range(self.planes * self.evs):
                    self._set_entry(now, host, number, EvState.GOOD)

    def _set_entry(self, now, host, number, state):
        plane, place = divmod(number, self.evs)
        driver = self.contexts[host].driver
        with driver.at(now):
            driver.write_table(
                ControlTableId.EV_ENTRY, plane * 32 + place,
                {"value": self.values[plane][place], "port": plane + 1, "state": state}, check=False,
            )  # fmt: skip

    def _software(self, now):
        """Both hosts' software: completions, then new posts."""
        for host, context in enumerate(self.contexts):
            with context.driver.at(now):
                for completion in self.queues[host].poll(64):
                    context.queue_pairs[completion.qp_number - QP_NUMBER_BASE].account(completion)
                    receives = completion.opcode is WorkRequestOpcode.RECEIVE_IMM
                    for flow in self.flows:
                        pair = flow.peer if receives else flow.pair
                        if pair.context is context and pair.number == completion.qp_number:
                            (flow.on_received if receives else flow.on_sent)(completion)
                for flow in self.flows:
                    if flow.host == host:
                        flow.post()

    # -- promises ----------------------------------------------------------------------------------------

    def _check_trace(self, host, records):
        """EVs change only as the state machine allows, and data leaves on GOOD ones only."""
        states = self.states[host]
        mrc = self.options.spray_policy == "mrc"
        for record in records:
            if record.kind == TraceKind.EV_CHANGE:
                old, new = record.detail >> 32 & 15, record.detail >> 36 & 15
                key = record.qp, record.plane, record.psn
                known = states.get(key)
                if (old, new) not in LEGAL or (known is not None and known != old):
                    raise Violation(f"EV {key} of host {host} went from {old} to {new}, was {known}")
                states[key] = new
            elif record.kind == TraceKind.BIND and not record.detail >> 57 & 1 and mrc:
                place = record.detail & 0xFFFF
                state = states.get((record.qp, record.plane, place))
                if state not in (None, 1):
                    raise Violation(f"a packet of host {host} left on an EV in state {state}")

    def _check_requesters(self):
        for nic in self.nics:
            for qp in nic._engine.requester.side.qps:
                tracker = qp.tracker
                if not 0 <= tracker.outstanding <= self.config.mpr_psns:
                    raise Violation(f"QP {qp.index} has {tracker.outstanding} PSNs outstanding")
                for words in qp.evs.planes:
                    if words.good & words.bad or words.good & words.denied or words.bad & words.denied:
                        raise Violation(f"an EV of QP {qp.index} is in two states")
                congestion = qp.congestion
                if congestion is not None and not MTU <= congestion.window < 1 << 24:
                    raise Violation(f"window of QP {qp.index} is {congestion.window}")

    def _finish(self, now):
        """Everything is done: let what is still under way arrive, then compare memory and counters."""
        until = now + 300 * US
        while now < until:
            now = self._step(now, until)
        for flow in self.flows:
            expected = np.zeros_like(flow.sink.data)
            for message in flow.messages:
                expected[message.at : message.at + message.length] = np.frombuffer(message.expected, np.uint8)
            if not (flow.sink.data == expected).all():
                raise Violation(f"memory written by host {flow.host} changed after completion, or beside it")
        for host in range(2):
            self._check_counters(host)

    def _check_counters(self, host):
        """At one moment: frames go on to come and go while probes ask about paths."""
        counters = self.nics[host]._engine.counters
        for plane in range(self.planes):
            port = counters[plane * PORT_COUNTERS : (plane + 1) * PORT_COUNTERS]
            if port[PortCounter.RX_FRAMES] != sum(port[PortCounter.ACCEPTED : PortCounter.TRIM_IGNORED + 1]):
                raise Violation(f"port {plane} of host {host} received frames without an outcome")
            kinds = (PortCounter.TX_DATA, PortCounter.TX_RETRANSMISSIONS, PortCounter.TX_CONTROL)
            if port[PortCounter.TX_FRAMES] != sum(port[kind] for kind in kinds):
                raise Violation(f"port {plane} of host {host} sent frames of no kind")


def play(seed):
    """Play one history; a failure names its seed."""
    history = History(seed)
    try:
        history.run()
    except (Violation, InfrastructureError, AssertionError) as error:
        raise Violation(f"{error}\n{history.describe()}\n(python tests/model/history.py {seed})") from error
    return history


if __name__ == "__main__":
    import sys

    for argument in sys.argv[1:]:
        play(int(argument))
