"""What a fabric may do to packets, done to packets between two engines, and what becomes of them.

Sweep: trimmed to every size, with and without corrected lengths and last-hop mark; dropped (data, transport
    ACK, retransmission); duplicated at once, later and much later; bits flipped in every part that the ICRC
    protects; everything dropped.
Stimulus: two hosts exchange messages of odd sizes in both directions through one T0; taps act on chosen data
    packets of one direction.
Checks: every byte, completions at both ends; counters of both ends to the packet; ERROR with its reason and
    flushed completions when retries are exhausted.
Timing: the quickstart engine, shared with other tests; every run is bounded in simulated time.
"""

import pytest
from exchange import MICROSECOND, TWO_HOSTS, Bed

from mrc_host.nic.device import CompletionStatus, QpErrorReason, QpState, Retry, read_counters
from mrc_host.packets.peek import peek
from mrc_host.packets.trim import trim
from mrc_rtl.wire import Opcode, has_payload

FROM_FIRST = "h0.p*>*"
TO_SECOND = "*>h1.p*"
TO_FIRST = "*>h0.p*"
TIMEOUT = 7  # 131 us: several round trips, more than a probe of the tail takes
TRIM_SIZES = (118, 122, 128, 138, 206, 256)
LATER_PS = (0, 3 * MICROSECOND, 300 * MICROSECOND)

#: Bytes whose change the ICRC must notice, counted from the begin of the BTH: source of the inner header, QP
#: number, PSN, message number, timestamp, address, key, payload.
FLIPS = (-25, 7, 11, 15, 21, 27, 34, 40, 41, 1000, 2048)
#: The same from the end of the frame: last byte of the payload, first and last byte of the ICRC.
FLIPS_FROM_END = (-5, -4, -1)


class Counted:
    """Counters of both hosts, summed over ports."""

    def __init__(self, bed):
        self.values = [read_counters(item.context.driver) for item in bed.applications]
        for item, counters in zip(bed.applications, self.values):
            assert [counters.unaccounted(port) for port in range(4)] == [0] * 4
            statistics = item.context.nic.statistics
            assert statistics.memory_violations == statistics.memory_outside == 0

    def port(self, host, name):
        return sum(port[name] for port in self.values[host].ports)

    def engine(self, host, name):
        return self.values[host].engine[name]

    def losses(self, host):
        """Every counter of frames that were not taken as they should."""
        return {
            name: total
            for name in self.values[host].ports[0]
            if name.startswith(("drop_", "trim", "duplicate")) and (total := self.port(host, name))
        }


def exchange(direction, tap, **options):
    """Run the exchange with a tap; return bed and counters after every byte was checked."""
    bed = Bed(TWO_HOSTS, [(0, 1)], timeout=TIMEOUT, **options)
    bed.fabric.tap(direction, tap)
    assert bed.run(limit_us=20_000, drain_ps=1000 * MICROSECOND).finished
    for item in bed.applications:
        item.check()
        assert not item.events
    return bed, Counted(bed)


class Nth:
    """A tap that acts on chosen first transmissions of data, counted from 0, in turn with each action."""

    def __init__(self, numbers, *actions):
        self.numbers, self.actions = numbers, actions
        self.seen, self.done = 0, 0

    def __call__(self, direction, time_ps, frame):
        info = peek(frame)
        if info is None or not has_payload(info.opcode) or info.rtx:
            return None
        self.seen += 1
        if self.seen - 1 not in self.numbers:
            return None
        self.done += 1
        return self.actions[(self.done - 1) % len(self.actions)](frame, info)


def test_trimmed_packets_are_sent_again_at_once():
    # Packets too short to be cut are marked only, which counts as trimmed too.
    actions = [
        lambda frame, info, size=size, correct=correct, last=last: [(0, trim(frame, size, correct, last))]
        for size in TRIM_SIZES
        for correct, last in ((False, True), (True, False))
    ]
    tap = Nth(range(1, 33, 2), *actions)
    _, counted = exchange(TO_SECOND, tap)
    assert tap.done >= len(actions)
    assert counted.losses(1) == {"trimmed_answered": tap.done}
    assert counted.engine(1, "nack_sent") == counted.engine(0, "nack_received") == tap.done
    assert counted.port(0, "tx_retransmissions") == tap.done
    assert counted.engine(0, "timeouts") == 0
    assert counted.losses(0) == {}


def test_dropped_packets_are_sent_again_without_a_timeout():
    # The first and the last packet of messages, neighbours, and one in the middle.
    tap = Nth({0, 3, 4, 5, 20, 28}, lambda frame, info: [])
    _, counted = exchange(FROM_FIRST, tap)
    assert tap.done == 6
    assert counted.port(0, "tx_retransmissions") == 6 and counted.engine(0, "timeouts") == 0
    assert counted.losses(0) == counted.losses(1) == {}


def test_a_retransmission_may_be_lost_too():
    lost = []

    def tap(direction, time_ps, frame):
        info = peek(frame)
        if not has_payload(info.opcode) or info.psn != 0xFFFFF4 or len(lost) == 3:
            return None
        lost.append((time_ps, info.rtx, info.ev))
        return []

    _, counted = exchange(FROM_FIRST, tap)
    assert [again for _, again, _ in lost] == [False, True, True]
    assert lost[1][2] != lost[0][2] and lost[2][2] != lost[1][2]
    assert counted.port(0, "tx_retransmissions") == 3 and counted.engine(0, "timeouts") <= 1


def test_a_lost_transport_ack_is_made_good():
    lost = []

    def tap(direction, time_ps, frame):
        if peek(frame).opcode != Opcode.ACKNOWLEDGE or len(lost) == 2:
            return None
        lost.append(frame)
        return []

    _, counted = exchange(TO_FIRST, tap)
    assert len(lost) == 2
    assert counted.losses(1).keys() <= {"duplicate"}
    assert counted.port(1, "duplicate") == counted.port(0, "tx_retransmissions")


def test_lost_sacks_are_made_good():
    lost = []

    def tap(direction, time_ps, frame):
        if peek(frame).opcode != Opcode.SACK or len(lost) == 6:
            return None
        lost.append(frame)
        return []

    _, counted = exchange(TO_FIRST, tap)
    assert len(lost) == 6
    assert counted.losses(1).keys() <= {"duplicate"}
    assert counted.port(1, "duplicate") == counted.port(0, "tx_retransmissions")


def test_duplicates_change_nothing():
    actions = [lambda frame, info, later=later: [(0, frame), (later, frame)] for later in LATER_PS]
    tap = Nth(range(0, 30, 3), *actions)
    bed, counted = exchange(FROM_FIRST, tap)
    assert tap.done == 10
    assert counted.losses(1) == {"duplicate": 10}
    assert counted.port(0, "tx_retransmissions") == 0
    assert counted.engine(1, "completions") == 2 * len(bed.applications[1].received)


def test_corrupted_packets_are_dropped_and_sent_again():
    actions = [lambda frame, info, at=at: [(0, flipped(frame, info.bth_offset + at))] for at in FLIPS]
    actions += [lambda frame, info, at=at: [(0, flipped(frame, len(frame) + at))] for at in FLIPS_FROM_END]
    # These are longer than 2048 bytes.
    tap = Nth(range(6, 6 + len(actions)), *actions)
    _, counted = exchange(TO_SECOND, tap)
    assert tap.done == len(actions)
    assert counted.losses(1) == {"drop_icrc": len(actions)}
    assert counted.port(0, "tx_retransmissions") == len(actions) and counted.engine(0, "timeouts") == 0


def flipped(frame, at):
    changed = bytearray(frame)
    changed[at] ^= 0x02
    return bytes(changed)


def test_corrupted_feedback_is_dropped():
    hit = []

    def tap(direction, time_ps, frame):
        info = peek(frame)
        if has_payload(info.opcode) or len(hit) == 8:
            return None
        hit.append(frame)
        return [(0, flipped(frame, info.bth_offset + 12 + len(hit) % 4))]

    _, counted = exchange(TO_FIRST, tap)
    assert len(hit) == 8
    assert counted.losses(0) == {"drop_icrc": 8}
    assert counted.engine(0, "feedback_ignored") == 0


@pytest.mark.parametrize("healthy", [0, 9])
def test_retries_end_when_nothing_arrives(healthy):
    """All data of one end is lost, from the beginning or from some packet on."""
    retry = Retry(linear_cnt=2, exp_cnt=2)
    bed = Bed(TWO_HOSTS, [(0, 1)], timeout=5, retry=retry)
    arrived = []

    def tap(direction, time_ps, frame):
        if not has_payload(peek(frame).opcode):
            return None
        arrived.append(peek(frame))
        return None if len(arrived) <= healthy else []

    bed.fabric.tap(FROM_FIRST, tap)
    assert not bed.run(limit_us=2000).finished
    first, second = bed.applications
    failed = [item for item in first.sent if not item.ok]
    assert [item.status for item in failed] == [
        CompletionStatus.RETRY_EXCEEDED,
        *[CompletionStatus.FLUSHED] * (len(failed) - 1),
    ]
    assert len(failed) >= 2 and first.pair.state is QpState.ERROR
    assert first.pair.error_reason is QpErrorReason.RETRY_EXCEEDED
    assert [event.reason for _, event in first.events] == [QpErrorReason.RETRY_EXCEEDED]
    assert first.pair.sends_outstanding == 0
    flushed = [item for item in first.received if not item.ok]
    assert all(item.status is CompletionStatus.FLUSHED for item in flushed)
    # The other end heard nothing of it: its QP goes on, and what did arrive is right.
    assert second.pair.state is QpState.RTS and not second.events
    counted = Counted(bed)
    # Answers to probes let all that is missing leave again; that is no progress, which alone counts.
    again = [info for info in arrived if info.rtx]
    assert len(again) > counted.engine(0, "timeouts") == 4 + (healthy > 0)
