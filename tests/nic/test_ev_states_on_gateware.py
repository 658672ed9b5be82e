"""EV states of the gateware through the device API.

Stimulus: two engines exchange messages; a controller denies entropy values while packets are under way, and
    allows them again. Events of an engine, as its register shows them, for QPs and EVs that exist and others.
Checks: values that are denied do not leave any more, and come back; a QP without any left holds up no other;
    queries; what becomes of events, with exact counts of those lost; every byte.
Timing: the quickstart engine, shared with other tests; every run is bounded in simulated time.
"""

import pytest
from control import check_refused, make_context
from exchange import MICROSECOND, TWO_HOSTS, Bed

from mrc_host.fabric.spec import parse_topology
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import UsidPlan
from mrc_host.nic.device import EvKey, EvProfile, EvState, EvStateChange, Path, QpErrorReason, connect
from mrc_host.packets.peek import peek
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.tables import EV_POLICY_INDEX, EventKind, TableId
from mrc_rtl.wire import has_payload

DENIED_PS, ALLOWED_PS = 60 * MICROSECOND, 140 * MICROSECOND
#: Commands take effect a host latency later, one after the other.
SETTLED_PS = 15 * MICROSECOND


def data_values(bed, first_ps, last_ps):
    """Entropy values of data that host 0 sent between two times."""
    infos = [
        peek(data) for host, time_ps, _, _, data in bed.frames if host == 0 and first_ps < time_ps < last_ps
    ]
    return {info.ev for info in infos if info and has_payload(info.opcode)}


def test_denied_values_do_not_leave_until_they_are_allowed():
    bed = Bed(TWO_HOSTS, [(0, 1)], timeout=9, sizes=[65_536] * 12, memory={"size": 1 << 21})
    application = bed.applications[0]
    profile = application.pair.attributes["ev_profile"]
    keys = [entry.key for entry in profile.array.entries if entry.place < 2]
    values = {key.value for key in keys}

    def order(state):
        return lambda time_ps: profile.modify_ev_state([EvStateChange(key, state) for key in keys])

    start = application.start

    def start_and_order(time_ps, host):
        start(time_ps, host)
        host.schedule(DENIED_PS, order(EvState.DENIED))
        host.schedule(ALLOWED_PS, order(EvState.GOOD))

    application.start = start_and_order
    assert bed.run(limit_us=2000, drain_ps=100 * MICROSECOND).finished
    for item in bed.applications:
        item.check()
    assert values & data_values(bed, 0, DENIED_PS)
    assert data_values(bed, DENIED_PS + SETTLED_PS, ALLOWED_PS)
    assert not values & data_values(bed, DENIED_PS + SETTLED_PS, ALLOWED_PS)
    assert values <= data_values(bed, ALLOWED_PS + SETTLED_PS, 1 << 60)

    profile.modify_ev_state([EvStateChange(keys[0], EvState.DENIED)])
    answers = profile.query_ev_array()
    assert answers.done and {answer.ev for answer in answers if answer.state is EvState.DENIED} == {keys[0]}
    assert all(answer.state is EvState.GOOD for answer in answers if answer.ev != keys[0])


def test_a_queue_pair_without_a_path_holds_up_no_other():
    bed = Bed(TWO_HOSTS, [(0, 1)], timeout=9, sizes=[65_536] * 4, memory={"size": 1 << 22})
    first, second = bed.applications
    plan = UsidPlan(Topology(parse_topology(TWO_HOSTS)))
    queue = first.context.completion_queue(8)
    mine = first.context.queue_pair(first.domain, queue)
    theirs = second.context.queue_pair(second.domain, second.context.completion_queue(8))
    profiles = [item.context.ev_profile(EvProfile.by_plane(plan.ev_set(32), 4)) for item in (first, second)]
    paths = [
        Path(plan.inner_address(own), plan.inner_address(1 - own), plan.template(own, 1 - own))
        for own in (0, 1)
    ]
    connect(
        mine,
        theirs,
        profiles=tuple(profiles),
        paths=tuple(paths),
        path_mtu=4096,
        starting_psns=(5, 9),
        timeout=9,
    )
    keys = [entry.key for entry in profiles[0].array.entries]
    start, take, ends = first.start, first.on_completion, {}

    def order(state):
        return lambda time_ps: profiles[0].modify_ev_state([EvStateChange(key, state) for key in keys])

    def start_both(time_ps, host):
        # Many packets of the one whose values are denied are under way when that happens.
        at = first.offset(0)
        mine.write(
            7, local_address=first.source.address + at, lkey=first.source_region.lkey, length=200_000,
            remote_address=second.sink.address + at, rkey=second.sink_region.rkey,
        )  # fmt: skip
        start(time_ps, host)
        host.schedule(30 * MICROSECOND, order(EvState.DENIED))
        host.schedule(1000 * MICROSECOND, order(EvState.GOOD))

    def note(time_ps, which, completion):
        if completion.wr_id == 7:
            assert completion.ok
            ends["stopped"] = time_ps
        else:
            ends["other"] = time_ps
            take(time_ps, which, completion)

    first.start, first.on_completion = start_both, note
    assert bed.run(limit_us=3000, drain_ps=3000 * MICROSECOND).finished
    assert ends["other"] < 1000 * MICROSECOND < ends["stopped"]
    assert len(first.sent) == len(first.received) == 4 and not first.events


def gateware_context():
    context = make_context(None)
    profile = context.ev_profile([[0x10, 0x11], [0x20, 0x21]])
    pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
    pair.to_init(profile)
    return context, profile, pair


def tell(context, pair, **fields):
    """Let the event queue hold one more event."""
    state = {"kind": EventKind.EV_STATE, "qp": pair.index, "reason": 0, "place": 0, "state": 2}
    context.nic.events.append(state | fields)


def test_events_of_the_register_become_those_of_the_api():
    context, profile, pair = gateware_context()
    tell(context, pair, reason=1, place=1)
    tell(context, pair, kind=EventKind.QP_ERROR, reason=QpErrorReason.REMOTE_NAK)
    tell(context, pair, kind=EventKind.EV_DROPPED, reason=1, place=2, state=3, qp=1)
    tell(context, pair, state=1)
    first, second = context.poll_ev_events()
    assert (first.profile_id, first.ev, first.state) == (profile.number, EvKey(0x21, 2), EvState.ASSUMED_BAD)
    assert (first.drop_count, first.qp_number) == (0, QP_NUMBER_BASE + pair.index)
    assert (first.port, first.wire_value) == (2, 0x21)
    assert (second.ev, second.state) == (EvKey(0x10, 1), EvState.GOOD)
    assert second.drop_count == 1 + (2 << 4) + (3 << 9) + (1 << 11)
    assert context.poll_ev_events() == []
    assert [item.reason for item in context.poll_events()] == [QpErrorReason.REMOTE_NAK]
    assert context.poll_events() == []


def test_events_that_nobody_can_name_or_keep_are_counted():
    context, _, pair = gateware_context()
    context.open_notices(2)
    for fields in ({"qp": 3}, {"place": 9}, {}, {}, {}):
        tell(context, pair, **fields)
    assert [item.drop_count for item in context.poll_ev_events()] == [2, 0]
    tell(context, pair)
    assert [item.drop_count for item in context.poll_ev_events()] == [1]
    with check_refused("EINVAL", "ev_events.limit", "between 1"):
        context.poll_ev_events(0)


@pytest.mark.parametrize("oblivious", [False, True])
def test_a_profile_says_what_feedback_does(oblivious):
    context = make_context(None)
    profile = context.ev_profile([[1, 2], [3, 4]], ev_min_active=3, oblivious=oblivious)
    assert context.nic.row(TableId.EV_SET, EV_POLICY_INDEX + profile.number) == {
        "min_active": 3, "events": 3, "oblivious": oblivious, "floor_mask": 15,
    }  # fmt: skip
    with check_refused("EINVAL", "ev_profile.oblivious", "of type bool"):
        context.ev_profile([[1], [2]], oblivious=2)
