"""The window runner with verilated engines, a wire between them, and software that reacts.

Sweep: windows of 1, 1/2, 1/7 and an odd length; 1, 2 and 4 workers; with and without reactions.
Stimulus: four hosts in a ring pass messages on, each after a completion, some after a pause; a QP error.
Checks: frames, calls of the software with their times, memory and end of the run equal for all windows and
    workers; no reaction before the host latency; jumps over idle time; limits and interruption.
Timing: one compiled engine; a few seconds.
"""

from dataclasses import dataclass, field

import pytest

from mrc_host.experiment.application import Application, Host
from mrc_host.experiment.lockstep import Lockstep, Observer
from mrc_host.fabric.events import NEVER
from mrc_host.fabric.model import Arrival
from mrc_host.nic.device import CompletionStatus, Context, Endpoint, Identity, Path, QpErrorReason

MICROSECOND = 1_000_000
LATENCY_PS = 1_500_000
DELAY_PS = 1_000_000
HOSTS = 4
IDENTITY = Identity(1, 1, (1, 2), (3, 4))


class Ring:
    """A fabric: what host h sends on a plane reaches host h + 1 after the delay."""

    lookahead_ps = DELAY_PS

    def __init__(self):
        self.now_ps = 0
        self.waiting = []
        self.sequence = [0] * 2 * HOSTS

    def transmit(self, port, time_of_last_bit_ps, frame):
        assert time_of_last_bit_ps + DELAY_PS >= self.now_ps
        host, plane = divmod(port, 2)
        self.sequence[port] += 1
        entry = (time_of_last_bit_ps + DELAY_PS, (host + 1) % HOSTS, plane, self.sequence[port], frame)
        self.waiting.append(entry)

    def advance(self, until_ps):
        ready = sorted(entry for entry in self.waiting if entry[0] < until_ps)
        self.waiting = [entry for entry in self.waiting if entry[0] >= until_ps]
        self.now_ps = until_ps
        return [Arrival(time, nic, plane, frame, number) for time, nic, plane, number, frame in ready]

    def next_arrival_bound_ps(self):
        return min((entry[0] for entry in self.waiting), default=NEVER)


@dataclass
class PassOn(Application):
    """Sends on QP 0 and 1 in turn whenever something arrived, until it has seen enough."""

    pairs: list
    total: int
    begins: bool = False
    fails: bool = False
    calls: list = field(default_factory=list)
    completions: int = 0

    def start(self, time_ps, host):
        self.host = host
        self.calls.append(("start", time_ps))
        if self.begins:
            for _ in range(3):
                self.send(time_ps)
        if self.fails:
            host.schedule(time_ps + 40 * MICROSECOND, self.fail)

    def send(self, time_ps):
        self.calls.append(("send", time_ps))
        pair = self.pairs[self.completions % 2]
        if pair.sends_outstanding < 60:
            pair.write(self.completions, local_address=0, lkey=1, length=1, remote_address=0, rkey=1)

    def fail(self, time_ps):
        pair = self.pairs[2]
        pair.post_recv(99)
        pair.write(1, local_address=0, lkey=1, length=1, remote_address=0, rkey=1)

    def on_completion(self, time_ps, queue, completion):
        self.calls.append(("completion", time_ps, completion))
        if completion.status is CompletionStatus.FLUSHED:
            return
        self.completions += 1
        if self.completions % 5 == 0:
            self.host.schedule(time_ps + 30 * MICROSECOND, self.send)
        else:
            self.send(time_ps)

    def on_event(self, time_ps, event):
        self.calls.append(("event", time_ps, event))

    @property
    def done(self):
        return self.completions >= self.total


class Recorder(Observer):
    def __init__(self):
        self.frames, self.arrivals, self.times = [], [], []

    def transmitted(self, host, frames):
        self.frames += [(frame[:3], host, frame.data) for frame in frames]

    def arrived(self, arrivals):
        self.arrivals += arrivals

    def advanced(self, time_ps):
        self.times.append(time_ps)


def build(mailbox, total=24, fails=False, begins=(0,)):
    hosts = []
    for number in range(HOSTS):
        context = Context(mailbox(gbps=5, stall_share=0.1, seed=number), IDENTITY)
        domain, queue = context.protection_domain(), context.completion_queue(16)
        profile = context.ev_profile([[1], [2]])
        pairs = []
        for index in range(4):
            pair = context.queue_pair(domain, queue)
            pair.to_init(profile)
            pair.to_rtr(Path(1, 2), Endpoint(0x100 + index, 0, 2, 1, 32), path_mtu=256)
            pair.to_rts()
            pairs.append(pair)
        application = PassOn([pairs[0], pairs[1], pairs[3]], total, number in begins, fails and number == 1)
        hosts.append(Host(context, application, LATENCY_PS))
    return hosts


def outcome(mailbox, window=None, workers=1, **options):
    hosts, recorder = build(mailbox, **options), Recorder()
    runner = Lockstep(hosts, Ring(), window_ps=window, workers=workers, observer=recorder)
    result = runner.run(500 * MICROSECOND)
    return {
        "result": (result.start_ps, result.end_ps, result.finished, result.interrupted),
        "frames": sorted(recorder.frames),
        "arrivals": recorder.arrivals,
        "calls": [host.application.calls for host in hosts],
        "memory": [host.nic.memory.tobytes() for host in hosts],
        "clocked": [host.nic.statistics.cycles_clocked for host in hosts],
    }, result


@pytest.fixture(scope="module")
def reference(mailbox):
    return outcome(mailbox, fails=True)


def test_the_ring_does_what_it_should(reference):
    seen, result = reference
    assert result.finished and not result.interrupted and result.jumped_ps > 50 * MICROSECOND
    completions = [[call for call in calls if call[0] == "completion"] for calls in seen["calls"]]
    assert all(len(item) >= 24 for item in completions)
    # A failing QP raises an event, and its receive is flushed at that time.
    (event,) = [call for call in seen["calls"][1] if call[0] == "event"]
    assert event[2].reason is QpErrorReason.REMOTE_ACCESS and event[2].qp_number == 0x103
    (flushed,) = [call for call in completions[1] if not call[2].ok]
    assert (flushed[1], flushed[2].wr_id) == (event[1], 99)
    for calls in seen["calls"]:
        assert [call[1] for call in calls] == sorted(call[1] for call in calls)


def test_no_reaction_is_earlier_than_the_host_latency(reference):
    seen, _ = reference
    sends = [call[1] for call in seen["calls"][0] if call[0] == "send"]
    first_frames = sorted(frame[0][0] for frame in seen["frames"] if frame[1] == 0)
    assert len(first_frames) >= 20
    # 128 bytes, preamble and FCS need 224 ns at 5 Gb/s.
    assert all(left >= asked + LATENCY_PS + 224_000 for asked, left in zip(sends, first_frames))


@pytest.mark.parametrize(
    "window, workers",
    [
        (None, 2),
        (None, 4),
        (DELAY_PS // 2, 1),
        (DELAY_PS // 2, 4),
        (DELAY_PS // 7, 1),
        (DELAY_PS // 7, 2),
        (777_777, 4),
    ],
)
def test_windows_and_workers_are_invisible(mailbox, reference, window, workers):
    seen, _ = outcome(mailbox, window, workers, fails=True)
    for what, expected in reference[0].items():
        assert seen[what] == expected, what


def test_repetition_is_identical(mailbox, reference):
    assert outcome(mailbox, fails=True)[0] == reference[0]


def test_the_limit_ends_a_run_that_does_nothing(mailbox):
    hosts = build(mailbox, begins=())
    runner = Lockstep(hosts, Ring())
    result = runner.run(1000 * MICROSECOND)
    assert not result.finished and result.end_ps == result.start_ps + 1000 * MICROSECOND
    # Nothing but the set-up is clocked.
    assert result.windows < 10 and hosts[0].nic.statistics.cycles_clocked < 5_000
    assert [host.nic.time_ps for host in hosts] == [result.end_ps] * HOSTS


def test_an_interrupted_run_says_so(mailbox):
    class Interrupt(Observer):
        def advanced(self, time_ps):
            if time_ps > 40 * MICROSECOND:
                raise KeyboardInterrupt

    hosts = build(mailbox, total=1000)
    result = Lockstep(hosts, Ring(), workers=2, observer=Interrupt()).run(1000 * MICROSECOND)
    assert result.interrupted and not result.finished
    assert 40 * MICROSECOND < result.end_ps < 200 * MICROSECOND


def test_out_of_range_parameters_are_named(mailbox):
    hosts = build(mailbox)
    with pytest.raises(ValueError, match="window_ps must be between 1 and 1000000 .*, got 1000001"):
        Lockstep(hosts, Ring(), window_ps=1_000_001)
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        Lockstep(hosts, Ring(), workers=0)
    with pytest.raises(ValueError, match="latency_ps must be at least 1, got 0"):
        Host(hosts[0].context, hosts[0].application, 0)


def test_actions_cannot_be_scheduled_in_the_past(mailbox):
    hosts = build(mailbox, begins=())
    order = []
    host = hosts[0]
    host.schedule(60 * MICROSECOND, lambda time: order.append(time))
    host.schedule(50 * MICROSECOND, lambda time: host.schedule(time + 1, order.append))
    with pytest.raises(ValueError, match="time_ps must be at least 55000000, got 54000000"):
        host.schedule(55 * MICROSECOND, lambda time: host.schedule(time - MICROSECOND, order.append))
        Lockstep(hosts, Ring()).run(100 * MICROSECOND)
    assert order == [50 * MICROSECOND + 1]
