"""EV events through the notice ring, and what is counted when they are dropped.

Sweep: laps of the ring, a full ring, more events than software keeps, exact and inexact drop counts, replaced
    values, a ring of one's own size, polling at once and at a time.
Stimulus: notices written as the device would.
Checks: events in order with profile, value, port, state, QP and drop count; the consumer's index.
Timing: times of notices in ticks.
"""

import pytest
from control import check_refused, explicit_profile, make_context
from register_nic import FULL

from mrc_host.nic.device import (
    UNPOPULATED,
    DeviceFlag,
    EvEvent,
    EvKey,
    EvReplacement,
    EvState,
    ProfileState,
)
from mrc_host.nic.notices import NOTICE_TAG
from mrc_rtl.tables import ControlTableId, NoticeKind

KEYS = [EvKey(0x1000, 1), EvKey(0x1001, 2)]


def watched(flags=FULL, entries=8):
    """A device with a ring, and a profile of two values."""
    context = make_context(flags)
    context.open_notices(entries)
    profile = explicit_profile(context, 2)
    profile.replace_ev([EvReplacement(UNPOPULATED, key) for key in KEYS])
    profile.modify(ProfileState.ONLINE, ev_min_active=0, ev_event_mask=3)
    return context, profile


def change(context, port=1, state=EvState.ASSUMED_BAD, qp=0, time=0):
    context.nic.notice(
        kind=NoticeKind.EV_STATE, profile=0, port=port, place=0, state=state, qp=qp, time=time,
        value=KEYS[port - 1].value << 16,
    )  # fmt: skip


def test_events_tell_who_and_where():
    context, _ = watched()
    assert context.poll_ev_events() == []
    change(context, time=100)
    change(context, port=2, state=EvState.GOOD, qp=3, time=101)
    assert context.poll_ev_events() == [
        EvEvent(100 * 128_000, 0, KEYS[0], EvState.ASSUMED_BAD, 0, 0x100, 1, 0x10000000),
        EvEvent(101 * 128_000, 0, KEYS[1], EvState.GOOD, 0, 0x103, 2, 0x10010000),
    ]
    assert context.poll_ev_events() == []


def test_the_ring_goes_round():
    context, _ = watched()
    times = []
    for time in range(50):
        change(context, time=time)
        if time % 3 == 0:
            times += [event.time_ps // 128_000 for event in context.poll_ev_events()]
    assert times == list(range(49))
    # Software tells a quarter of the ring at a time how far it has read.
    assert 49 - context.nic.row(ControlTableId.DEVICE)["notice_consumer"] <= 2


@pytest.mark.parametrize(("flag", "told"), [(DeviceFlag(0), 5), (DeviceFlag.EV_EVENT_DROP_COUNT, 1)])
def test_a_full_ring_drops_and_counts(flag, told):
    context, _ = watched(FULL & ~flag)
    for time in range(13):
        change(context, time=time)
    events = context.poll_ev_events()
    assert [event.time_ps // 128_000 for event in events] == list(range(8))
    assert {event.drop_count for event in events} == {0}
    change(context, time=20)
    change(context, time=21)
    assert [(e.time_ps // 128_000, e.drop_count) for e in context.poll_ev_events()] == [(20, told), (21, 0)]


def test_software_keeps_as_many_as_the_ring_and_counts_the_rest():
    context, _ = watched(entries=4)
    for time in range(10):
        change(context, time=time)
        context.notices.read()
    assert [event.time_ps // 128_000 for event in context.poll_ev_events()] == [0, 1, 2, 3]
    change(context, time=10)
    assert [event.drop_count for event in context.poll_ev_events()] == [6]


def test_limits_of_a_poll():
    context, _ = watched()
    for time in range(5):
        change(context, time=time)
    assert len(context.poll_ev_events(2)) == 2
    assert len(context.poll_ev_events(16)) == 3


def test_a_value_that_was_replaced_is_not_named():
    context, profile = watched()
    change(context)
    profile.replace_ev([EvReplacement(KEYS[0], EvKey(0x1100, 1))])
    context.nic.notice(kind=NoticeKind.EV_STATE, profile=3, port=1, state=EvState.GOOD)
    first, second = context.poll_ev_events()
    assert (first.ev, first.wire_value) == (None, 0x10000000)
    assert (second.ev, second.profile_id) == (None, 3)


def test_the_ring_and_its_watch():
    context = make_context()
    assert NOTICE_TAG not in context.nic.watches
    for entries, rule in ((3, "a power of two"), (1, "between 2 and"), (1 << 21, "between 2 and")):
        with check_refused("EINVAL", "notices.entries", rule):
            context.open_notices(entries)
    ring = context.open_notices(16).ring
    assert context.nic.watches[NOTICE_TAG] == (ring.bus_address, 16 * 32)
    row = context.nic.row(ControlTableId.DEVICE)
    assert (row["notice_base"], row["notice_log2_entries"], row["notice_enabled"]) == (ring.bus_address, 4, 1)
    with check_refused("EBUSY", "notices.entries", "given before the ring is first used"):
        context.open_notices()
    assert make_context().notices.entries == 256


def test_events_are_read_at_a_simulated_time():
    context, _ = watched(entries=4)
    change(context)
    with context.driver.at(5_000_000):
        assert len(context.poll_ev_events()) == 1
    assert context.nic.row(ControlTableId.DEVICE)["notice_consumer"] == 0
    context.nic.run(6_000_000)
    assert context.nic.row(ControlTableId.DEVICE)["notice_consumer"] == 1
