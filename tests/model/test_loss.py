"""Lists of sent packets, the tracker, timers and probe bookkeeping.

Sweep: rings, PSNs at the wrap, every loss rule, SACKs in and out of order.
Stimulus: calls.
Checks: which packets are declared lost and which are not; equality of the lists with plain Python; bounds.
Timing: none, times are arguments.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.model.loss import NOBODY, ProvenLists
from mrc_host.model.options import ModelOptions
from mrc_host.model.probes import BadPath, ProbeBudget, ProbeNumbers
from mrc_host.model.send_tracker import SendTracker
from mrc_host.model.timers import RetransmissionTimer, interval_ps

US = 1_000_000
RTT = 10 * US
W = 5 * US


# -- lists ---------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("aprs"), st.integers(0, 15), st.integers(0, 2)), max_size=120))
@settings(deadline=None)
def test_lists_are_lists(operations):
    lists = ProvenLists(3, 16, 4)
    plain, newest, order = [[], [], []], [-1, -1, -1], {}
    where = {}
    for time, (name, slot, number) in enumerate(operations):
        if name == "a" and slot not in where:
            lists.append(slot, number, time)
            plain[number].append(slot)
            where[slot], order[slot] = number, time
        elif name in "pr":
            expected = where.pop(slot, NOBODY)
            assert (lists.prove if name == "p" else lists.remove)(slot) == expected
            if expected != NOBODY:
                plain[expected].remove(slot)
                if name == "p":
                    newest[expected] = max(newest[expected], order[slot])
        for index in range(3):
            late = [item for item in plain[index][:1] if order[item] + 4 <= newest[index]]
            assert lists.overdue(index) == (late[0] if late else NOBODY)
        oldest = [order[items[0]] for items in plain if items]
        assert lists.overtaken(4) == any(item <= max(newest) - 4 for item in oldest)
        assert all(lists.holds(item) == (item in where) for item in range(16))


# -- tracker -------------------------------------------------------------------------------------------------


def tracker(first=0, planes=2, ring=128, window=W, **options):
    made = SendTracker(planes, 32, ring, ModelOptions(**options), window)
    made.start(first)
    return made


def send(made, count, spacing=US, start=0, ev=None):
    """Packets by turns over planes, and over EVs of each."""
    first = made.next
    for number in range(count):
        index = ev if ev is not None else number % 2 * 32 + number // 2 % 8
        made.sent(first + number, index, start + number * spacing, 340)


def sack(made, received, out_of_order=None, base=None):
    """Merge what a responder would say that holds those PSNs; prove all."""
    cumulative = made.unacked - 1
    while cumulative + 1 in received:
        cumulative += 1
    above = [psn for psn in received if psn > cumulative]
    base = cumulative + 1 if base is None else base
    bitmap = sum(1 << psn - base for psn in received if 0 <= psn - base < 64)
    bitmap |= sum(1 << psn - base for psn in range(base, cumulative + 1) if psn - base < 64)
    made.merge(cumulative, base, bitmap, len(above) if out_of_order is None else out_of_order)
    for psn in made.newly:
        made.prove(psn)


def losses(made, now):
    found = []
    while (psn := made.next_loss(now, RTT)) != NOBODY:
        made.give_up(psn)
        found.append(psn)
    return sorted(found)


@pytest.mark.parametrize("first", [0, 0xFFFFF0, 0x7FFFFF])
def test_psns_of_headers_and_back(first):
    made = tracker(first)
    send(made, 40)
    for psn in range(first, first + 40):
        assert made.psn(psn & 0xFFFFFF) == psn
    assert made.psn(first - 5 & 0xFFFFFF) == first - 5
    made.advance(first + 9)
    assert made.unacked == first + 10 and made.outstanding == 30 == made.missing


def test_a_sack_acknowledges_each_packet_once_and_nothing_never_sent():
    made = tracker()
    send(made, 10)
    made.merge(2, 0, 0xFFFF_FFFF_FFFF_FFFF & ~0b1111000, 0)
    assert made.newly == [0, 1, 2, 7, 8, 9]
    assert made.first_missing() == 3 and made.missing == 4
    made.merge(2, 0, (1 << 64) - 1, 0)
    assert made.newly == [3, 4, 5, 6]
    assert made.first_missing() == made.next == 10
    made.merge(9, 10, 0, 0)
    assert made.newly == [] and made.outstanding == 0
    made.merge(4, 5, 0b11111, 0)  # an old one, overtaken
    assert made.newly == [] and made.unacked == 10


def test_a_later_packet_of_the_plane_proves_a_loss_after_the_window():
    made = tracker()
    send(made, 12)  # even PSNs on plane 0, odd ones on plane 1, 1 us apart
    sack(made, {1, 3, 5, 7, 9, 11})  # plane 1 proves nothing about plane 0
    assert losses(made, RTT) == []
    sack(made, {1, 3, 5, 7, 9, 11, 4})  # 4 us after packet 0, 2 us after packet 2
    assert losses(made, RTT) == []
    sack(made, {1, 3, 5, 7, 9, 11, 4, 6})
    assert losses(made, RTT) == [0]
    sack(made, {1, 3, 5, 7, 9, 11, 4, 6, 10})
    assert losses(made, RTT) == [2]


def test_a_later_packet_of_the_same_ev_proves_a_loss_at_once():
    made = tracker()
    made.sent(0, 3, 0, 340)
    made.sent(1, 4, 1, 340)
    made.sent(2, 3, 2, 340)
    sack(made, {1})
    assert losses(made, RTT) == []
    sack(made, {1, 2})
    assert losses(made, RTT) == [0]


def test_retransmissions_are_a_class_of_their_own():
    made = tracker()
    send(made, 4, ev=3)
    sack(made, {1, 2, 3})
    assert losses(made, RTT) == [0]
    made.sent(0, 3, RTT, 340)
    made.sent(4, 3, RTT + 1, 340)
    made.sent(5, 3, RTT + W + 1, 340)
    sack(made, {1, 2, 3, 4, 5})  # data behind it proves nothing
    assert losses(made, 3 * RTT) == []


def test_one_fast_retransmission_per_rtt():
    made = tracker()
    send(made, 3, ev=3)
    sack(made, {2})
    assert losses(made, RTT) == [0, 1]
    made.sent(0, 4, RTT, 340)
    made.sent(1, 4, RTT + 1, 340)
    sack(made, {1, 2})  # a later retransmission on the same EV arrived
    assert losses(made, 2 * RTT - 1) == []
    sack(made, {1, 2})
    made.prove(1)
    assert made.next_loss(2 * RTT, RTT) == NOBODY  # nothing new was proven
    made.sent(3, 4, 2 * RTT, 340)


def test_a_missing_report_is_no_hole():
    made = tracker()
    send(made, 100, ev=3)
    received = set(range(1, 100))
    # The first SACK is lost; this one shows PSNs from 64 on and says that 99 packets lie above the hole.
    sack(made, received, base=64)
    assert not made.complete_view
    assert losses(made, RTT) == [0]  # the oldest hole is certain
    sack(made, received, base=1)
    assert made.complete_view and made.missing == 1
    without = tracker(complete_view=False)
    send(without, 100, ev=3)
    sack(without, received, base=64)
    assert losses(without, RTT) == [*range(64)]


def test_an_overtaken_sack_completes_no_view():
    made = tracker()
    send(made, 10, ev=3)
    # 4, 2 and 6 arrived in this order, each told of by a SACK of its own. That of 2 is still on its way.
    sack(made, {6}, out_of_order=3, base=6)
    sack(made, {4}, out_of_order=1, base=4)
    assert not made.complete_view
    assert losses(made, RTT) == [0]
    sack(made, {2}, out_of_order=2, base=2)
    assert made.complete_view
    made.prove(6)
    sack(made, {7}, out_of_order=4, base=7)
    assert losses(made, RTT) == [1, 3, 5]
    # A transport ACK moves on: what was told before of what lies above counts no more.
    made.advance(2)
    sack(made, {4, 8}, out_of_order=2, base=4)
    assert made.complete_view and made.missing == 3


def test_the_answer_to_a_probe_proves_what_was_sent_well_before_it():
    made = tracker()
    send(made, 10)
    sack(made, {0, 1, 2})
    assert made.losses_before(6 * US, 0) == [3, 4, 5, 6]
    made.give_up(3)
    assert made.losses_before(6 * US, 0) == [4, 5, 6]


def test_the_answer_to_a_probe_proves_nothing_of_a_plane_that_is_only_slow():
    made = tracker()
    for psn in range(10):
        made.sent(psn, psn % 2 * 32, psn * US, 340)
    sack(made, {0})
    made.heard_ps[0] = 20 * US
    assert made.losses_before(9 * US, 20 * US) == [*range(1, 10)]
    assert made.losses_before(9 * US, 19 * US) == [1, 3, 5, 7, 9]
    # What was sent again is not held back by a queue of data: new data of the same plane proves it lost.
    made.give_up(2)
    made.sent(2, 0, 10 * US, 340)
    made.sent(10, 0, 14 * US, 340)
    made.sent(11, 0, 15 * US, 340)
    sack(made, {0, 10})
    assert made.losses_before(10 * US, 19 * US) == [1, 3, 5, 7, 9]
    sack(made, {0, 10, 11})
    assert made.losses_before(10 * US, 19 * US) == [1, 2, 3, 5, 7, 9]


def test_the_window_adapts_to_losses_that_were_wrong():
    made = tracker()
    assert made.planes.window == W
    for expected in (2 * W, 4 * W, 4 * W):
        made.adapt(True)
        assert made.planes.window == expected
    for _ in range(15):
        made.adapt(False)
    assert made.planes.window == 4 * W
    made.adapt(True)  # begins to count anew
    for _ in range(15):
        made.adapt(False)
    assert made.planes.window == 4 * W
    made.adapt(False)
    assert made.planes.window == W


def test_overtaken_packets_are_a_reason_to_ask():
    made = tracker()
    send(made, 20)
    sack(made, {psn for psn in range(20) if psn % 2})
    assert losses(made, 0) == []
    assert made.overtaken(19 * US) and not made.overtaken(20 * US)


def test_counting_rule_looks_at_all_planes():
    made = tracker(loss_rule="count", duplicate_threshold=8)
    send(made, 12)
    sack(made, {1, 3, 5, 7})
    assert losses(made, RTT) == []
    sack(made, {1, 3, 5, 7, 9})
    assert losses(made, RTT) == [0]
    none = tracker(loss_rule="none")
    send(none, 12)
    sack(none, {11})
    assert losses(none, RTT) == [] and not none.overtaken(0)


# -- timer ---------------------------------------------------------------------------------------------------


def test_intervals_double_after_the_linear_ones_up_to_17_seconds():
    assert [interval_ps(3, 2, attempt) // 1_024_000 for attempt in range(6)] == [8, 8, 16, 32, 64, 128]
    assert interval_ps(24, 0, 31) == 1_024_000 << 24


def test_a_timer_is_exhausted_after_its_attempts_and_progress_begins_anew():
    timer = RetransmissionTimer()
    timer.configure(3, 2, 1)
    timer.start(0)
    assert timer.deadline_ps == 8 * 1_024_000
    for attempt in range(3):
        assert not timer.exhausted
        timer.attempt = attempt + 1
    assert timer.exhausted
    timer.progress(100)
    assert not timer.exhausted and timer.deadline_ps == 100 + 8 * 1_024_000
    timer.configure(3, 2, 25)
    timer.attempt = 31
    assert not timer.exhausted
    timer.configure(0, 2, 25)
    timer.stop()
    timer.start(0)
    assert timer.deadline_ps == -1  # timeout 0: none


# -- probes --------------------------------------------------------------------------------------------------


def test_a_bad_path_needs_answers_in_a_row_and_is_asked_ever_more_rarely():
    path = BadPath(0, 5, ModelOptions(probe_interval_min_ns=64_000, probe_interval_max_ns=300_000))
    intervals = []
    for _ in range(5):
        path.sent_ps = 0
        path.lost()
        intervals.append(path.next_ps() // 1_000_000)
    assert intervals == [128, 256, 300, 300, 300]
    assert not path.answered(False) and path.next_ps() // 1_000_000 == 64
    assert not path.answered(False)
    assert not path.answered(True)  # alive, but marked: the count begins anew
    assert [path.answered(False) for _ in range(3)] == [False, False, True]


def test_the_budget_allows_a_burst_and_then_its_rate():
    budget = ProbeBudget(packet_ps=1000, permille=10)
    assert [budget.wait_ps(0) for _ in range(16)] == [0] * 16
    assert budget.wait_ps(0) == 100_000
    assert budget.wait_ps(100_000) == 0


def test_numbers_are_answered_once():
    numbers = ProbeNumbers()
    first, second = numbers.take(7, 10), numbers.take(-1, 20)
    assert first != second
    assert numbers.find(second) == (-1, 20) and numbers.find(second) is None
    assert numbers.find(first) == (7, 10) and numbers.find(9) is None
