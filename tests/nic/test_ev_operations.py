"""REPLACE_EV, MODIFY_EV_STATE and the queries: success of each entry, and what reaches the device.

Sweep: offline and online, copies, every refusal, batch limits, the device's own view of states.
Stimulus: batches on EXPLICIT profiles of a device of tables; states put there as the device would.
Checks: array, rows of EV_ENTRY and EV_SET, which entries succeeded, errno and rule of the one that did not.
Timing: scheduled queries.
"""

import pytest
from control import PEER_END, check_refused, explicit_profile, make_context
from register_nic import FULL

from mrc_host.nic.device import (
    UNPOPULATED,
    DeviceFlag,
    EvArrayEntry,
    EvBatchError,
    EvFlag,
    EvKey,
    EvMode,
    EvReplacement,
    EvState,
    EvStateChange,
    Path,
    ProfileState,
)
from mrc_rtl.tables import ControlTableId, TableId

GOOD, DENIED = EvState.GOOD, EvState.DENIED
KEYS = [EvKey(0x1000 + n, n % 2 + 1) for n in range(4)]


@pytest.fixture
def context():
    return make_context()


@pytest.fixture
def profile(context):
    profile = explicit_profile(context)
    assert profile.replace_ev([EvReplacement(UNPOPULATED, key) for key in KEYS]) == [1] * 4
    profile.modify(ProfileState.ONLINE, ev_min_active=1, ev_event_mask=3)
    return profile


def row(profile, plane, place):
    index = (profile.number * 2 + plane) * 32 + place
    return profile.context.nic.row(ControlTableId.EV_ENTRY, index)


def failed(number, name, attribute, rule):
    """Expect an entry to fail, and return what the error is checked with."""
    return pytest.raises(EvBatchError, match=rf"^{name}: entries\[{number}\].{attribute} must be {rule}")


def test_replacing_online_keeps_place_and_port(profile):
    new = EvKey(0x13B0, 1)
    assert profile.replace_ev([EvReplacement(KEYS[2], new, DENIED)]) == [1]
    assert row(profile, 0, 1)["value"] == new.value << 16
    assert row(profile, 0, 1)["state"] == DENIED
    assert [item.ev for item in profile.query_ev_array()] == [KEYS[0], KEYS[1], new, KEYS[3]]
    with failed(0, "EINVAL", "ev_new.port", "1 as before while ONLINE"):
        profile.replace_ev([EvReplacement(KEYS[0], EvKey(0x1234, 2))])


def test_the_first_failure_ends_the_batch(profile):
    batch = [
        EvReplacement(KEYS[0], EvKey(0x1100, 1)),
        EvReplacement(EvKey(0x7777, 1), EvKey(0x1101, 1)),
        EvReplacement(KEYS[1], EvKey(0x1102, 2)),
    ]
    with failed(1, "ENOENT", "ev", "in the profile's array") as caught:
        profile.replace_ev(batch)
    assert caught.value.number == 1 and caught.value.success == (True, False, False)
    assert caught.value.errno == 2
    assert [item.ev for item in profile.query_ev_array()] == [EvKey(0x1100, 1), *KEYS[1:]]


@pytest.mark.parametrize(
    ("order", "name", "attribute", "rule"),
    [
        (EvReplacement(KEYS[0], EvKey(0x1100, 0)), "EINVAL", "ev_new.port", "between 1 and 2"),
        (EvReplacement(KEYS[0], EvKey(0x1100, 3)), "EINVAL", "ev_new.port", "between 1 and 2"),
        (EvReplacement(KEYS[0], EvKey(0x10000, 1)), "EINVAL", "ev.value", "within the 16 bits"),
        (EvReplacement(KEYS[0], EvKey(-1, 1)), "EINVAL", "ev_new.value", "between 0 and"),
        (EvReplacement(KEYS[0], EvKey("1", 1)), "EINVAL", "ev_new.value", "between 0 and"),
        (EvReplacement(KEYS[0], 0x1100), "EINVAL", "ev_new", "of type EvKey"),
        (EvReplacement(0x1000, KEYS[0]), "ENOENT", "ev", "in the profile's array"),
        (EvReplacement(KEYS[0], EvKey(0xB400, 1)), "EINVAL", r"ev.fields\[0\]", "between 0 and 179"),
        (EvReplacement(KEYS[0], EvKey(1, 1), EvState.ASSUMED_BAD), "EINVAL", "state", "GOOD or DENIED"),
        (EvReplacement(KEYS[0], EvKey(1, 1), EvState.UNKNOWN), "EINVAL", "state", "GOOD or DENIED"),
        (EvReplacement(KEYS[0], EvKey(1, 1), flags=1), "EINVAL", "flags", "of type EvFlag"),
    ],
)
def test_replacements_out_of_range(profile, order, name, attribute, rule):
    with failed(0, name, attribute, rule):
        profile.replace_ev([order])
    assert [item.ev for item in profile.query_ev_array()] == KEYS


def test_copies(context):
    profile = explicit_profile(context, 6)
    twice = EvKey(0x1000, 1)
    profile.replace_ev([EvReplacement(UNPOPULATED, twice)] * 3)
    assert profile.replace_ev([EvReplacement(UNPOPULATED, KEYS[1], flags=EvFlag.ALL_COPIES)]) == [3]
    profile.modify(ProfileState.ONLINE, ev_min_active=0, ev_event_mask=0)
    assert profile.planes == ((0x10000000,) * 3, (0x10010000,) * 3)
    assert profile.replace_ev([EvReplacement(twice, KEYS[2])]) == [1]
    assert profile.replace_ev([EvReplacement(twice, KEYS[0], flags=EvFlag.ALL_COPIES)]) == [2]
    assert profile.modify_ev_state([EvStateChange(KEYS[1], DENIED)]) == [3]
    assert [profile.ev_words(plane)["good"] for plane in range(2)] == [0b111, 0]
    row(profile, 0, 2).update(state=EvState.ASSUMED_BAD, bad_qps=2)
    assert profile.query_ev_state([KEYS[0]]) == [EvArrayEntry(KEYS[0], EvState.ASSUMED_BAD, 2)]


def test_a_port_takes_what_the_engine_holds(context):
    profile = explicit_profile(context, 10)
    orders = [EvReplacement(UNPOPULATED, EvKey(n, 1)) for n in range(9)]
    with failed(8, "ENOSPC", "ev_new.port", "a port with fewer than 8 entries"):
        profile.replace_ev(orders)


def test_moving_offline_leaves_holes_that_are_filled(context):
    profile = explicit_profile(context)
    profile.replace_ev([EvReplacement(UNPOPULATED, key) for key in KEYS])
    profile.replace_ev([EvReplacement(KEYS[0], EvKey(5, 2)), EvReplacement(KEYS[1], EvKey(6, 1))])
    profile.modify(ProfileState.ONLINE, ev_min_active=0, ev_event_mask=0, backups=1)
    assert profile.planes == ((0x60000, 0x10020000), (0x10030000, 0x50000))
    assert [profile.ev_words(plane) for plane in range(2)] == [
        {"good": 1, "skip": 2},
        {"good": 2, "skip": 4},
    ]


def test_denied_values_stay_out_of_new_queue_pairs(profile):
    context = profile.context
    assert profile.modify_ev_state([EvStateChange(KEYS[0], DENIED)]) == [1]
    assert row(profile, 0, 0)["state"] == DENIED
    pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
    pair.to_init(profile)
    pair.to_rtr(Path(1, 2), PEER_END, path_mtu=256)
    assert [context.nic.row(TableId.EV_SET, plane)["good"] for plane in range(2)] == [0b10, 0b11]
    assert profile.query_ev_state(KEYS[:2]) == [EvArrayEntry(KEYS[0], DENIED), EvArrayEntry(KEYS[1], GOOD)]
    assert profile.modify_ev_state([EvStateChange(KEYS[0], GOOD)]) == [1]
    assert row(profile, 0, 0)["state"] == GOOD
    with failed(0, "EINVAL", "state", "GOOD or DENIED .*, got ASSUMED_BAD"):
        profile.modify_ev_state([EvStateChange(KEYS[0], EvState.ASSUMED_BAD)])
    with failed(1, "ENOENT", "ev", "in the profile's array"):
        profile.modify_ev_state([EvStateChange(KEYS[0], GOOD), EvStateChange(EvKey(KEYS[0].value, 2), GOOD)])


def test_the_device_tells_which_are_assumed_bad(profile):
    row(profile, 1, 1).update(state=EvState.ASSUMED_BAD, bad_qps=3)
    answers = profile.query_ev_array(2)
    assert answers == [EvArrayEntry(KEYS[2], GOOD), EvArrayEntry(KEYS[3], EvState.ASSUMED_BAD, 3)]


def test_at_a_simulated_time_answers_come_later(profile):
    context = profile.context
    profile.modify_ev_state([EvStateChange(KEYS[0], DENIED)])
    row(profile, 1, 1).update(state=EvState.ASSUMED_BAD, bad_qps=3)
    with context.driver.at(1_000_000):
        query = profile.query_ev_state([KEYS[3], KEYS[0], KEYS[2]])
        everything = profile.query_ev_array()
        with failed(1, "ENOENT", "ev", "in the profile's array") as caught:
            profile.query_ev_state([KEYS[1], EvKey(7, 1), KEYS[2]])
    # What the host decided it knows; the rest only the device does.
    unknown = [EvArrayEntry(key, EvState.UNKNOWN) for key in KEYS]
    assert query == [unknown[3], EvArrayEntry(KEYS[0], DENIED), unknown[2]]
    assert query.success == [None, True, None] and not query.done and not everything.done
    assert caught.value.success == (True, False, False) and caught.value.results == [unknown[1]]
    assert context.take_reads(context.nic.run(2_000_000).reads) == []
    bad = EvArrayEntry(KEYS[3], EvState.ASSUMED_BAD, 3)
    assert query == [bad, EvArrayEntry(KEYS[0], DENIED), EvArrayEntry(KEYS[2], GOOD)]
    assert query.done and query.success == [True] * 3
    assert everything.done and everything[3] == bad
    assert caught.value.results == [EvArrayEntry(KEYS[1], GOOD)]


def test_a_device_that_refuses_to_tell(profile):
    context = profile.context
    with context.driver.at(1_000_000):
        query = profile.query_ev_state([KEYS[3], KEYS[2]])
    context.nic.refused.add((ControlTableId.EV_ENTRY, (profile.number * 2 + 1) * 32 + 1))
    context.take_reads(context.nic.run(2_000_000).reads)
    assert query == [EvArrayEntry(KEYS[3], EvState.UNKNOWN), EvArrayEntry(KEYS[2], GOOD)]
    assert query.done and query.success == [False, True]
    assert profile.query_ev_state([KEYS[3]]).success == [False]


def test_ranges_and_batches(profile):
    assert [item.ev for item in profile.query_ev_array(1, 2)] == KEYS[1:3]
    for first, count, attribute, rule in (
        (4, None, "ev_array.first", "between 0 and 3"),
        (0, 5, "ev_array.count", "between 1 and 4"),
        (3, 0, "ev_array.count", "between 1 and 1"),
    ):
        with check_refused("EINVAL", attribute, rule):
            profile.query_ev_array(first, count)
    with check_refused("EINVAL", "entries.count", "between 1 and 64, got 0"):
        profile.query_ev_state([])
    with check_refused("EINVAL", "entries.count", "between 1 and 64, got 65"):
        profile.query_ev_state([KEYS[0]] * 65)
    with check_refused("EINVAL", r"entries\[1\]", "of type EvKey"):
        profile.query_ev_state([KEYS[0], 7])
    with failed(0, "ENOENT", "ev", "in the profile's array"):
        profile.query_ev_state([EvKey(1, 1)])


def test_states_in_which_operations_are_refused(context):
    profile = context.create_ev_profile()
    for name, call in (
        ("REPLACE_EV", lambda: profile.replace_ev([])),
        ("MODIFY_EV_STATE", lambda: profile.modify_ev_state([])),
        ("QUERY_EV_STATE", lambda: profile.query_ev_state([])),
        ("QUERY_EV_ARRAY", lambda: profile.query_ev_array()),
    ):
        with check_refused("EINVAL", "ev_profile.state", f"OFFLINE or ONLINE for {name}, got INIT"):
            call()
    profile.modify(ProfileState.OFFLINE, mode=EvMode.AUTO, ev_count=4)
    with check_refused("EINVAL", "ev_profile.mode", "EXPLICIT for REPLACE_EV, got AUTO"):
        profile.replace_ev([EvReplacement(UNPOPULATED, KEYS[0])])
    explicit = explicit_profile(context, 2)
    with failed(0, "EINVAL", "ev", "a populated entry"):
        explicit.modify_ev_state([EvStateChange(UNPOPULATED, DENIED)])


def test_replacing_online_needs_the_capability():
    context = make_context(FULL & ~DeviceFlag.EV_PROFILE_MODIFY_ONLINE)
    profile = explicit_profile(context, 2)
    profile.replace_ev([EvReplacement(UNPOPULATED, key) for key in KEYS[:2]])
    profile.modify(ProfileState.ONLINE, ev_min_active=0, ev_event_mask=0)
    with check_refused("EOPNOTSUPP", "ev_profile.entries while ONLINE", ".*EV_PROFILE_MODIFY_ONLINE"):
        profile.replace_ev([EvReplacement(KEYS[0], EvKey(1, 1))])
    assert profile.modify_ev_state([EvStateChange(KEYS[0], DENIED)]) == [1]
