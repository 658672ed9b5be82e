"""Tracker, immediates, triggers and reverse EVs of the responder against plain descriptions of them.

Sweep: arbitrary orders of placement over the PSN wrap, lost SACKs, laps of message numbers.
Stimulus: hypothesis.
Checks: against sets and lists kept beside; every placed PSN is reported at last.
Timing: none.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.model.immediates import Immediates
from mrc_host.model.receive_tracker import ReceiveTracker, nominal_bytes
from mrc_host.model.reverse_evs import ReverseEvs
from mrc_host.model.sack_triggers import SackTriggers

WINDOW = 128
MASK = 0xFFFFFF


@settings(max_examples=60, deadline=None)
@given(
    start=st.integers(0, MASK) | st.integers(MASK - 200, MASK),
    order=st.permutations(range(100)),
    ends=st.sets(st.integers(0, 99)),
    align=st.sampled_from([1, 32, 64]),
)
def test_the_tracker_against_a_set(start, order, ends, align):
    tracker = ReceiveTracker()
    tracker.start(start)
    placed, expected, messages, received = set(), 0, 0, 0
    for number in order:
        psn = start + number & MASK
        distance = tracker.distance(psn)
        assert distance == number - expected and not tracker.claimed(distance)
        tracker.claim(distance)
        assert tracker.claimed(distance)
        received += nominal_bytes(number, True, False)
        passed = tracker.place(psn, number in ends, nominal_bytes(number, True, False))
        placed.add(number)
        before = expected
        while expected in placed:
            expected += 1
        assert passed == len(ends & set(range(before, expected)))
        messages += passed
        assert tracker.expected == start + expected & MASK
        assert tracker.highest == start + max(placed) & MASK
        assert tracker.out_of_order == sum(item > expected for item in placed)
        assert tracker.messages == messages and tracker.received_units == -(-received // 256)
        if number % 5 == 0:
            base, bits = tracker.bitmap(align)
            assert base % align == 0
            for bit in range(64):
                shown = (base + bit - start + (1 << 23) & MASK) - (1 << 23)
                assert bits >> bit & 1 == (shown < expected or shown in placed)


@settings(max_examples=60, deadline=None)
@given(placed=st.sets(st.integers(1, WINDOW - 1), min_size=1), align=st.sampled_from([1, 32]))
def test_every_hole_shows_up_even_when_sacks_are_lost(placed, align):
    tracker = ReceiveTracker()
    tracker.start(MASK - 20)
    for number in sorted(placed):
        tracker.place(MASK - 20 + number & MASK, False, 0)
    # The first SACKs are lost, all of them; the walk begins again.
    for _ in range(6):
        tracker.bitmap(align)
    shown = set()
    for _ in range(6):
        base, bits = tracker.bitmap(align)
        shown |= {base + bit - (MASK - 20) & MASK for bit in range(64) if bits >> bit & 1}
    assert {number for number in shown if number < WINDOW} == placed


def test_nominal_sizes():
    # UDP 8, BTH 12, METH 4, RETH 16, ICRC 4 and 40.
    assert nominal_bytes(0, False, False) == 84
    assert nominal_bytes(4096, True, True) == 84 + 4096 + 8
    assert nominal_bytes(5, False, False) == 84 + 8


@settings(max_examples=60, deadline=None)
@given(order=st.permutations(range(20)), advances=st.lists(st.integers(0, 20), max_size=10))
def test_immediates_are_delivered_in_order_once_their_psn_is_behind(order, advances):
    stash = Immediates(32)
    stash.start(32, True)
    stash.post(20)
    found, known, reached = [], set(), 0
    for step, number in enumerate(order):
        assert stash.stash(number, number, 0, number, number * 3, number)
        known.add(number)
        reached = max(reached, advances[step] if step < len(advances) else 0)
        assert stash.advance(reached, found)
        due = 0
        while due in known and due < reached:
            due += 1
        assert [item.immediate for item in found] == [3 * item for item in range(due)]
        assert [item.slot for item in found] == list(range(due))


def test_message_numbers_wrap_and_receives_run_out():
    stash = Immediates(4)
    stash.start(32, True)
    found = []
    for number in range(0x10010):
        if number % 4 == 0:
            stash.post(4)
        assert stash.stash(number & 0xFFFF, number, 0, 0, number, 0)
        assert stash.advance(number + 1, found)
    assert [item.immediate for item in found] == list(range(0x10010))
    stash.post(5)
    assert stash.stash(0x10, 0x10010, 1, 0, 0, 0)
    assert not stash.advance(0x10011, found)
    assert (stash.failing_psn, stash.failing_plane) == (0x10010, 1)
    stash.start(32, False)
    stash.post(4)
    stash.post(1)
    for number in range(5):
        assert stash.stash(number, number, 0, 0, 0, 0)
    assert not stash.advance(5, found)


def plain(triggers, plane, length=1024, threshold=4096):
    return triggers.add_placed(plane, length, False, False, False, True, threshold)


def test_a_plane_that_left_is_forgotten_and_does_not_hold_back_the_others():
    triggers = SackTriggers(4)
    for plane in range(4):
        assert not plain(triggers, plane)
    fired = []
    for number in range(200):
        plane = number % 3
        if plain(triggers, plane):
            triggers.take(plane)
            fired.append((number, plane))
    gaps = [later[0] - earlier[0] for earlier, later in zip(fired, fired[1:], strict=False)]
    assert {plane for _, plane in fired[-6:]} == {0, 1, 2}
    assert max(gaps) <= 9 and max(gaps[10:]) <= 7


def test_strong_triggers_and_the_end_of_disorder():
    triggers = SackTriggers(2)
    assert triggers.add_placed(0, 10, True, False, False, False, 4096) and triggers.strong
    assert not triggers.take(0)
    assert triggers.add_placed(0, 10, False, True, False, False, 4096)
    assert triggers.take(0)
    assert not triggers.add_placed(0, 10, False, False, False, False, 4096)
    assert triggers.add_placed(0, 10, False, False, True, True, 4096)
    assert triggers.take(0)
    assert not triggers.add_placed(0, 10, False, False, True, True, 4096)
    triggers.add_duplicate(1, False, False)
    assert triggers.strong and triggers.take(1)
    triggers.add_duplicate(1, False, False)
    assert not triggers.take(1)


def test_reverse_evs_know_what_was_confirmed_and_when():
    evs = ReverseEvs(2, 4, seed=5)
    assert [evs.value(1, plane) for plane in range(4)] == [-1] * 4
    assert evs.plane(1, 2, 100) == 2
    number, ev = evs.probe(1, 3, [10, 11, 12])
    assert ev in (10, 11, 12) and evs.answered(number, 1000) and not evs.answered(number, 1000)
    assert evs.value(1, 3) == ev and evs.value(0, 3) == -1
    assert evs.plane(1, 2, 100) == 3 and evs.plane(1, 2, 2000) == 2
    evs.confirm(1, 2, 99, 950)
    assert evs.plane(1, 2, 100) == 2 and evs.plane(1, 2, 10) == 3
    assert [evs.next_plane(0) for _ in range(5)] == [0, 1, 2, 3, 0]
    assert evs.due(0, 50, 100) and not evs.due(0, 149, 100) and evs.due(0, 150, 100)
    open_number, _ = evs.probe(1, 0, [1])
    evs.start(1)
    assert not evs.answered(open_number, 0) and evs.value(1, 3) == -1
    for _ in range(300):
        last, _ = evs.probe(0, 0, [7])
    assert evs.answered(last, 5) and not evs.answered(last - 256, 5)
