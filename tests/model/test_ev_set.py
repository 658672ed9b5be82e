"""EV sets: states, the permuted rotation, backups, blame, the floor.

Sweep: 1 to 64 places a plane, every transition of protocol.md 2.2, random operations.
Stimulus: calls.
Checks: state after each transition and the reported changes; each GOOD EV once per rotation; equality with
the gateware's pick over thousands of turns; invariants of random histories.
Timing: none.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.model.ev_set import NONE, EvSet, PathState, PlaneEvs, Rotation

GOOD, SKIP, BAD = PathState.GOOD, PathState.SKIP, PathState.ASSUMED_BAD
DENIED, BACKUP, ABSENT = PathState.DENIED, PathState.BACKUP, PathState.ABSENT


def ev_set(planes=2, good=0xFF, skip=0, **attributes):
    evs = EvSet(planes, 32)
    for plane in range(planes):
        evs.write(plane, good, skip, plane)
    for name, value in attributes.items():
        setattr(evs, name, value)
    return evs


def changes(evs):
    taken = [(change >> 8, PathState(change >> 4 & 15), PathState(change & 15)) for change in evs.changes]
    evs.changes.clear()
    return taken


# -- rotation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("good", [0xF00F_A5A5, 0xFFFF_FFFF, 0x8000_0001])
@pytest.mark.parametrize("seed", [0, 1, 37, 1023])
def test_every_good_ev_comes_once_per_rotation_in_changing_order(good, seed):
    rotation = Rotation(5)
    rotation.start(seed, good)
    expected = sorted(place for place in range(32) if good >> place & 1)
    orders = [[rotation.next(good) for _ in expected] for _ in range(50)]
    assert all(sorted(order) == expected for order in orders)
    assert len({tuple(order) for order in orders}) > (20 if len(expected) > 2 else 1)


def test_no_good_ev_no_pick_and_back_again():
    rotation = Rotation(5)
    rotation.start(3, 0)
    assert rotation.next(0) == NONE
    rotation.changed(1 << 17)
    assert [rotation.next(1 << 17) for _ in range(3)] == [17, 17, 17]


def gateware_picks(good, seed, turns):
    """What ``mrc_rtl.paths.spray.EvPick`` does, from its text: place, then first GOOD one at or behind it."""

    def redraw(value):
        for _ in range(5):
            value = (value << 1 | (value >> 10 ^ value >> 8) & 1) & 0x7FF
        return value

    hash_, place, picks = (seed << 1 | 1) & 0x7FF, 0, []
    for _ in range(turns):
        key = hash_ & 31
        left = [p for p in range(32) if good >> (p ^ key) & 1 and p >= place]
        if not left:
            hash_, place = redraw(hash_), 0
            key = hash_ & 31
            left = [p for p in range(32) if good >> (p ^ key) & 1]
        picks.append(left[0] ^ key)
        if len(left) > 1:
            place = left[0] + 1
        else:
            hash_, place = redraw(hash_), 0
    return picks


@given(st.integers(1, (1 << 32) - 1), st.integers(0, 1023))
@settings(deadline=None, max_examples=50)
def test_the_order_is_the_gateware_s(good, seed):
    rotation = Rotation(5)
    rotation.start(seed, good)
    assert [rotation.next(good) for _ in range(200)] == gateware_picks(good, seed, 200)


def test_control_packets_have_their_own_rotation_and_clear_no_skip():
    plane = PlaneEvs(5)
    plane.write(0b111, 0b010, 1)
    before = (plane.data.place, plane.data.key)
    assert {plane.pick_control() for _ in range(20)} == {0, 2}
    assert (plane.data.place, plane.data.key) == before and plane.state(1) is SKIP
    plane.write(0b010, 0b010, 1)
    assert plane.pick_control() == 1  # better a SKIP EV than none
    plane.write(0, 0, 1)
    assert plane.pick_control() == NONE


# -- transitions (protocol.md 2.2) ---------------------------------------------------------------------------


def test_codes_of_the_words():
    evs = EvSet(1, 32)
    evs.write(0, good=0b0011, skip=0b0110, seed=0)
    assert [evs.state(index) for index in range(4)] == [GOOD, SKIP, BACKUP, ABSENT]


def test_a_mark_skips_once_and_the_turn_makes_it_good_again():
    evs = ev_set()
    evs.mark_skip(3, 1)
    evs.mark_skip(3, 1)
    assert changes(evs) == [(3, GOOD, SKIP)]
    evs.met_skip(3)
    assert changes(evs) == [(3, SKIP, GOOD)] and evs.state(3) is GOOD


def test_a_longer_skip_takes_so_many_turns():
    evs = ev_set()
    evs.mark_skip(3, 4)
    evs.mark_skip(3, 2)  # never shortens it
    for _ in range(3):
        evs.met_skip(3)
        assert evs.state(3) is SKIP
    evs.met_skip(3)
    assert evs.state(3) is GOOD


@pytest.mark.parametrize("before", [GOOD, SKIP])
def test_a_loss_makes_it_bad_at_once(before):
    evs = ev_set()
    if before is SKIP:
        evs.mark_skip(5, 1)
    changes(evs)
    assert evs.lost(5) is BAD and evs.state(5) is BAD
    assert changes(evs) == [(5, before, BAD)]
    evs.mark_skip(5, 1)
    assert evs.state(5) is BAD and changes(evs) == []


def test_a_backup_of_the_same_plane_takes_over_and_goes_back():
    evs = ev_set(good=0b0111, skip=0b11000)
    assert evs.lost(32 + 1) is BAD
    assert changes(evs) == [(33, GOOD, BAD), (32 + 4, BACKUP, GOOD)]
    assert evs.active == 6
    evs.recover(33)
    assert changes(evs) == [(33, BAD, GOOD), (36, GOOD, BACKUP)]
    assert evs.planes[1].good == 0b0111


def test_with_all_backups_gone_the_plane_has_fewer():
    evs = ev_set(planes=1, good=0b11, skip=0b100)
    evs.lost(0)
    evs.lost(1)
    assert evs.planes[0].good == 0b100
    evs.lost(2)
    assert evs.planes[0].good == 0
    evs.recover(0)
    evs.recover(1)
    assert evs.planes[0].good == 0b11
    evs.recover(2)
    assert evs.planes[0].good == 0b11 and evs.state(2) is BACKUP


def test_an_undo_takes_one_blame_back():
    evs = ev_set()
    evs.lost(4)
    evs.lost(4)
    evs.undo(4)
    assert evs.state(4) is BAD
    evs.undo(4)
    assert evs.state(4) is GOOD
    evs.undo(4)
    assert evs.state(4) is GOOD


def test_a_recovery_forgets_the_blame():
    evs = ev_set()
    evs.lost(4)
    evs.recover(4)
    evs.lost(4)
    evs.undo(4)
    assert evs.state(4) is GOOD


def test_denied_from_every_state_and_only_the_controller_allows_it():
    for prepare in (lambda e: None, lambda e: e.mark_skip(2, 1), lambda e: e.lost(2), lambda e: e.deny(2)):
        evs = ev_set()
        prepare(evs)
        evs.deny(2)
        assert evs.state(2) is DENIED
        evs.recover(2)
        evs.undo(2)
        assert evs.lost(2) is DENIED
        evs.condemn(2)
        assert evs.state(2) is DENIED
        evs.write(0, 0xFF, 0, 0)
        assert evs.state(2) is DENIED  # the profile's, not the host row's
        evs.allow(2)
        assert evs.state(2) is GOOD


def test_always_skip_condemns_even_at_the_floor():
    evs = ev_set(planes=1, good=0b1, minimum_active=1)
    evs.condemn(0)
    assert evs.state(0) is BAD


@pytest.mark.parametrize("rule, state", [("skip", SKIP), ("keep", GOOD), ("ignore", BAD)])
def test_at_the_floor(rule, state):
    evs = ev_set(planes=1, good=0b111, minimum_active=2, floor_rule=rule, floor_turns=3)
    assert evs.lost(0) is BAD
    assert evs.lost(1) is state
    if rule == "skip":
        assert evs.planes[0].turns[1] == 3
        evs.undo(1)
        assert evs.state(1) is GOOD


def test_at_the_floor_a_backup_still_takes_over():
    evs = ev_set(planes=1, good=0b11, skip=0b100, minimum_active=2)
    assert evs.lost(0) is BAD and evs.state(2) is GOOD


def test_removed_evs():
    evs = ev_set(planes=1, good=0b11, skip=0b100)
    evs.remove(0)
    assert (evs.state(0), evs.state(2)) == (ABSENT, GOOD)
    evs.lost(1)
    changes(evs)
    evs.remove(1)
    assert changes(evs) == [(1, BAD, ABSENT)]
    evs.remove(1)
    assert changes(evs) == []


# -- random histories ----------------------------------------------------------------------------------------

operation = st.tuples(
    st.sampled_from(
        ["mark", "met", "lost", "undo", "recover", "condemn", "deny", "allow", "pick", "control"]
    ),
    st.integers(0, 15),
)


@given(st.integers(0, 0xFF), st.integers(0, 0xFF), st.integers(0, 8), st.lists(operation, max_size=120))
@settings(deadline=None, max_examples=200)
def test_no_history_reaches_an_illegal_state(good, skip, minimum, operations):
    evs = ev_set(planes=2, good=good, skip=skip, minimum_active=minimum)
    states = {index: evs.state(index) for index in (*range(8), *range(32, 40))}
    for name, number in operations:
        index = number & 7 | (number & 8) << 2
        plane = evs.planes[number >> 3]
        before = states[index]
        if name == "mark":
            evs.mark_skip(index, 2)
        elif name == "met":
            if before is SKIP:
                evs.met_skip(index)
        elif name == "pick":
            place = plane.data.next(plane.good)
            assert place == NONE if plane.good == 0 else plane.good >> place & 1
        elif name == "control":
            place = plane.pick_control()
            assert place == NONE if plane.good == 0 else plane.good >> place & 1
        else:
            getattr(evs, name)(index)
        for changed, old, new in changes(evs):
            assert states[changed] is old and old is not new
            states[changed] = new
        for key, state in states.items():
            assert evs.state(key) is state
        for words in evs.planes:
            assert words.good & words.bad == words.good & words.denied == words.bad & words.denied == 0
            assert all(bool(words.turns[p]) <= bool(words.skip >> p & 1) for p in range(32))
        if name in ("lost", "undo", "recover", "condemn") and before is DENIED:
            assert states[index] is DENIED
