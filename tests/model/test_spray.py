"""Rounds over planes, and the spray policies.

Sweep: 1 to 8 planes; each policy; slow planes; marks, trims, losses.
Stimulus: calls.
Checks: order and evenness of planes; equality of a round with its description; what each policy does to the
next picks; registration of plug-ins and their messages.
Timing: none, times are arguments.
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.errors import ConfigError
from mrc_host.model.ev_set import NONE, SKIPPED, EvSet, PathState
from mrc_host.model.options import ModelOptions
from mrc_host.model.spray import PlaneRounds, SprayPolicy, create_policy, policy_names, spray_policy

ALL = 0b1111
EVS = 8


def take(rounds, usable, room, now=0):
    plane = rounds.choose(usable, room, now)
    if plane >= 0:
        rounds.take(plane)
    return plane


# -- planes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planes", range(1, 9))
def test_planes_take_turns(planes):
    rounds = PlaneRounds(planes, 1000)
    everyone = (1 << planes) - 1
    assert [take(rounds, everyone, everyone) for _ in range(3 * planes)] == [*range(planes)] * 3


def test_whoever_has_room_goes_first_but_nobody_twice_in_a_round():
    rounds = PlaneRounds(4, 1000)
    assert [take(rounds, ALL, 0b0100), take(rounds, ALL, 0b0110), take(rounds, ALL, 0b0110)] == [2, 1, -1]
    assert rounds.wake_ps == 1000
    assert take(rounds, ALL, 0b1001) == 3
    assert take(rounds, ALL, 0b1111) == 0


def test_patience_ends_and_a_slow_plane_must_keep_up_with_three_rounds():
    rounds = PlaneRounds(2, 1000)
    take(rounds, 0b11, 0b01)
    assert take(rounds, 0b11, 0b01, now=500) == -1 and rounds.wake_ps == 1500
    assert take(rounds, 0b11, 0b01, now=1499) == -1
    assert take(rounds, 0b11, 0b01, now=1500) == 0
    # From now on nobody waits for plane 1 ...
    assert [take(rounds, 0b11, 0b01, now=1600) for _ in range(3)] == [0, 0, 0]
    # ... until it had its turn in three rounds.
    for _ in range(3):
        assert take(rounds, 0b11, 0b10, now=1700) == 1
        assert take(rounds, 0b11, 0b11, now=1700) == 0
    assert [take(rounds, 0b11, 0b10, now=1700) for _ in range(2)] == [1, 1]  # the second begins a round
    assert take(rounds, 0b11, 0b10, now=1800) == -1


def test_unusable_planes_have_no_part():
    rounds = PlaneRounds(4, 1000)
    assert [take(rounds, 0b0101, ALL) for _ in range(4)] == [0, 2, 0, 2]
    assert take(rounds, 0, ALL) == -1 and rounds.wake_ps == -1


@given(st.lists(st.integers(1, 15), min_size=1, max_size=80))
@settings(deadline=None)
def test_no_plane_is_two_packets_ahead_within_patience(rooms):
    rounds = PlaneRounds(4, 1 << 40)
    sent = Counter(dict.fromkeys(range(4), 0))
    for room in rooms:
        plane = take(rounds, ALL, room)
        if plane >= 0:
            assert room >> plane & 1
            sent[plane] += 1
        assert max(sent.values()) - min(sent.values()) <= 1


# -- policies ------------------------------------------------------------------------------------------------


def policy(name, evs=EVS, planes=1, **options):
    words = EvSet(planes, 32)
    for plane in range(planes):
        words.write(plane, (1 << evs) - 1, 0, 5)
    return create_policy(words, ModelOptions(spray_policy=name, **options), seed=1, key=2)


def test_names_and_registration():
    assert set(policy_names()) == {"mrc", "oblivious", "bitmap", "reps", "mixed"}
    with pytest.raises(ConfigError, match=r"model\.spray_policy must be one of mrc, .*got 'random'"):
        policy("random")
    with pytest.raises(ValueError, match="'mrc' must be registered once"):
        spray_policy("mrc")(SprayPolicy)


@pytest.mark.parametrize("name", ["mrc", "oblivious", "bitmap"])
def test_every_ev_comes_once_per_rotation(name):
    spray = policy(name)
    for _ in range(5):
        assert sorted(spray.pick(0, 0) for _ in range(EVS)) == [*range(EVS)]


@pytest.mark.parametrize("name", ["mrc", "oblivious", "bitmap", "reps", "mixed"])
def test_only_usable_evs_are_picked_and_none_when_there_is_none(name):
    spray = policy(name, planes=2)
    spray.on_ack(32 + 3, False, 0)
    spray.evs.deny(32 + 3)
    picks = {spray.pick(1, 0) for _ in range(200)}
    assert picks == {32 + place for place in range(EVS)} - {32 + 3}
    spray.evs.write(1, 0, 0, 0)
    assert spray.pick(1, 0) == NONE


def test_mrc_skips_a_marked_ev_for_one_turn():
    spray = policy("mrc")
    spray.on_ack(3, True, 0)
    assert spray.evs.state(3) is PathState.SKIP
    picks = [spray.pick(0, 0) for _ in range(EVS)]
    assert SKIPPED in picks and 3 not in picks
    assert spray.evs.state(3) is PathState.GOOD
    assert 3 in [spray.pick(0, 0) for _ in range(EVS)]


def test_mrc_skips_a_trimmed_ev_for_so_many_turns_and_retires_a_lost_one():
    spray = policy("mrc", trim_skip_turns=3)
    spray.on_trim(3, 0)
    picks = [spray.pick(0, 0) for _ in range(3 * EVS)]
    assert picks.count(SKIPPED) == 3 and 3 not in picks
    spray.on_loss(5, 0)
    assert 5 not in [spray.pick(0, 0) for _ in range(2 * EVS)]
    spray.on_undo(5)
    assert 5 in [spray.pick(0, 0) for _ in range(2 * EVS)]


def test_oblivious_remembers_nothing():
    spray = policy("oblivious")
    for react in (spray.on_trim, spray.on_loss):
        react(3, 0)
    spray.on_ack(3, True, 0)
    assert sorted(spray.pick(0, 0) for _ in range(EVS)) == [*range(EVS)]


def test_bitmap_penalties_cost_that_many_searches():
    spray = policy("bitmap")
    spray.on_ack(3, True, 0)
    spray.on_trim(3, 0)
    assert spray.penalties[3] == 5
    counts = Counter(spray.pick(0, 0) for _ in range(EVS * 30))
    assert spray.penalties[3] == 0 and 24 <= counts[3] <= 26
    spray.on_loss(3, 0)
    spray.on_loss(3, 0)
    assert spray.penalties[3] == 15
    for index in range(EVS):
        spray.on_loss(index, 0)
    assert spray.pick(0, 0) >= 0  # one loop at most


def test_reps_recycles_clean_evs_oldest_first_and_once():
    spray = policy("reps")
    for index in (4, 1, 6):
        spray.on_ack(index, False, 0)
    spray.on_ack(2, True, 0)
    assert [spray.pick(0, 0) for _ in range(3)] == [4, 1, 6]
    assert len({spray.pick(0, 0) for _ in range(100)}) == EVS  # random again


def test_reps_freezes_after_a_loss_and_explores_later():
    spray = policy("reps")
    for index in (4, 1):
        spray.on_ack(index, False, 0)
    spray.on_loss(7, 1000)
    assert {spray.pick(0, 2000) for _ in range(50)} == {4, 1}
    later = 1000 + 10_000_000_000
    spray.on_ack(5, False, later)
    explored = [spray.pick(0, later) for _ in range(16)]
    assert len(set(explored)) > 2
    assert spray.pick(0, later) in (4, 1, 5)


def test_mixed_takes_the_ring_first_and_then_the_bitmap():
    spray = policy("mixed")
    spray.on_ack(4, False, 0)
    assert spray.pick(0, 0) == 4
    spray.on_loss(3, 0)
    assert 3 not in [spray.pick(0, 0) for _ in range(EVS)]
