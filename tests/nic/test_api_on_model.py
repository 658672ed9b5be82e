"""The device API on golden models that are connected by a fabric.

Sweep: every completion status and error a user can cause; profiles of all modes; backups, floors, denial,
    events, drops; congestion control; tracking ranges; endpoint operations; ports.
Stimulus: calls of the API, faults of the fabric.
Checks: bytes, completions, events, states as the API tells them.
Timing: simulated microseconds, bounded.
"""

from dataclasses import replace

import pytest
from model_world import MEMORY_BYTES, World

from mrc_host.nic.device import (
    UNPOPULATED,
    Access,
    Buffer,
    CompletionStatus,
    Endpoint,
    EndpointOperation,
    EndpointRequest,
    EndpointStatus,
    EventKind,
    EvField,
    EvFormatMode,
    EvKey,
    EvMode,
    EvReplacement,
    EvState,
    EvStateChange,
    NsccConfig,
    Path,
    ProfileState,
    QpErrorReason,
    QpState,
    Retry,
    WorkRequestOpcode,
)
from mrc_host.packets.peek import peek
from mrc_rtl import wire

STATUS, REASON = CompletionStatus, QpErrorReason


def statuses(end):
    return [completion.status for completion in end.queue.poll(64)]


def reasons(end):
    return [event.reason for event in end.context.poll_events() if event.kind is EventKind.QP_ERROR]


def test_both_ends_complete():
    world = World()
    a, b = world.ends
    b.pair.post_recv(9)
    a.pair.write_imm(1, immediate=5, **a.place())
    b.pair.write(2, **b.place(1000))
    world.run()
    (sent,), completions = a.queue.poll(), b.queue.poll()
    assert sent.ok and sent.opcode is WorkRequestOpcode.WRITE_WITH_IMM
    by_opcode = {completion.opcode: completion for completion in completions}
    assert by_opcode[WorkRequestOpcode.RECEIVE_IMM].immediate == 5
    assert by_opcode[WorkRequestOpcode.WRITE].wr_id == 2 and all(item.ok for item in completions)
    assert (b.target.buffer.data == 1).all() and (a.target.buffer.data[:1000] == 2).all()
    assert not a.target.buffer.data[1000:].any()


# -- errors ----------------------------------------------------------------------------------------------


def beyond_memory(end):
    """A region whose bytes are not in the memory."""
    buffer = Buffer(0x1000, 2 * MEMORY_BYTES, end.source.buffer.data[:4096])
    return end.domain.register(buffer, Access.LOCAL_WRITE | Access.REMOTE_WRITE)


@pytest.mark.parametrize(
    ("case", "status", "own", "peers"),
    [
        ("local key", STATUS.LOCAL_PROTECTION_ERROR, REASON.LOCAL_PROTECTION, None),
        ("local memory", STATUS.GENERAL_ERROR, REASON.LOCAL_READ, None),
        ("remote key", STATUS.REMOTE_ACCESS_ERROR, REASON.REMOTE_NAK, REASON.REMOTE_ACCESS),
        ("remote memory", STATUS.REMOTE_OPERATION_ERROR, REASON.REMOTE_NAK, REASON.REMOTE_OPERATION),
        ("no receive", STATUS.REMOTE_INVALID_REQUEST, REASON.REMOTE_NAK, REASON.INVALID_REQUEST),
    ],
)
def test_errors_of_a_request(case, status, own, peers):
    world = World()
    a, b = world.ends
    place = a.place(4096)
    if case == "local key":
        place["lkey"] ^= 0x80
    elif case == "local memory":
        region = beyond_memory(a)
        place.update(local_address=region.address, lkey=region.lkey)
    elif case == "remote key":
        place["rkey"] ^= 0x80
    elif case == "remote memory":
        region = beyond_memory(b)
        place.update(remote_address=region.address, rkey=region.rkey)
    if case == "no receive":
        a.pair.write_imm(1, immediate=3, **place)
    else:
        a.pair.write(1, **place)
    a.pair.write(2, **a.place(100))
    world.run()
    assert statuses(a) == [status, STATUS.FLUSHED]
    assert reasons(a) == [own] and a.pair.state is QpState.ERROR
    assert reasons(b) == ([] if peers is None else [peers])


def test_retries_end():
    world = World(rts={"timeout": 3, "retry": Retry(2, 1)})
    a, b = world.ends
    world.session.fault(kind="blackhole", link="h0-*")
    a.pair.write(1, **a.place(10_000))
    a.pair.write(2, **a.place(100))
    world.run(2000)
    assert statuses(a) == [STATUS.RETRY_EXCEEDED, STATUS.FLUSHED]
    assert reasons(a) == [REASON.RETRY_EXCEEDED] and b.pair.state is QpState.RTS


def test_the_host_stops_a_queue_pair_and_begins_again():
    world = World()
    a, b = world.ends
    a.pair.write(1, **a.place())
    a.pair.to_error()
    b.pair.to_error()
    world.run(20)
    assert statuses(a) == [STATUS.FLUSHED] and a.pair.error_reason is REASON.HOST
    for end in world.ends:
        end.pair.reset()
    world.run(50)
    world.connect({}, {}, {})
    a.pair.write(2, **a.place())
    world.run()
    assert statuses(a) == [STATUS.SUCCESS] and (b.target.buffer.data == 1).all()


def test_a_completion_queue_overruns():
    world = World(connected=False)
    a, _ = world.ends
    small = a.context.completion_queue(2)
    a.pair = a.context.queue_pair(a.domain, small)
    world.connect({}, {}, {})
    for number in range(4):
        a.pair.write(number, **a.place(64))
    world.run()
    (event, *_) = a.context.poll_events()
    assert event.kind is EventKind.COMPLETION_OVERRUN and event.qp_number == a.pair.number


# -- entropy values --------------------------------------------------------------------------------------


def expanded_profile(end):
    """EXPLICIT, with the whole outer destination of each path to the peer as fields; EV bits are the T1."""
    context, template = end.context, end.path.outer
    form = context.ev_format()
    form.modify(ProfileState.OFFLINE, mode=EvFormatMode.SRV6)
    form.modify(ProfileState.ONLINE, fields=(32, 16, 16, 16, 16))
    fields = {}
    for plane in range(2):
        address = template.outer_destination(plane, 0)
        usids = [address >> shift & 0xFFFF for shift in (80, 64, 48, 32)]
        fields[plane + 1] = (
            EvField(32, address >> 96), EvField(16, usids[0]),
            EvField(16, usids[1], mask=0x7, min_val=1, max_val=4), EvField(16, usids[2]),
            EvField(16, usids[3]),
        )  # fmt: skip
    return context, form, fields


def explicit(end):
    context, form, fields = expanded_profile(end)
    profile = context.create_ev_profile()
    profile.modify(ProfileState.OFFLINE, mode=EvMode.EXPLICIT, format=form, ev_count=8, fields=fields)
    keys = [EvKey(uplink, port) for uplink in range(1, 5) for port in (1, 2)]
    profile.replace_ev([EvReplacement(UNPOPULATED, key) for key in keys])
    profile.modify(ProfileState.ONLINE, ev_min_active=1, ev_event_mask=3)
    return profile


def generated(end):
    context, form, fields = expanded_profile(end)
    profile = context.create_ev_profile()
    profile.modify(ProfileState.OFFLINE, mode=EvMode.GENERATED, format=form, ev_count=16, fields=fields)
    profile.modify(ProfileState.ONLINE, ev_min_active=1, ev_event_mask=3)
    return profile


def automatic(end):
    profile = end.context.create_ev_profile()
    profile.modify(ProfileState.OFFLINE, mode=EvMode.AUTO, ev_count=16, uplinks=4)
    profile.modify(ProfileState.ONLINE, ev_min_active=1, ev_event_mask=3)
    return profile


@pytest.mark.parametrize("profile", [explicit, generated, automatic])
def test_all_modes_use_all_paths(profile):
    world = World(profile)
    a, b = world.ends
    a.pair.write(1, **a.place())
    world.run()
    assert statuses(a) == [STATUS.SUCCESS] and (b.target.buffer.data == 1).all()
    names = [port.half.name for port in world.session.fabric.ports]
    used = {
        name for name, counters in zip(names, world.session.fabric.counters(), strict=True)
        if ".t0." in name.split(">")[0] and counters.frames
    }  # fmt: skip
    assert sum("t1" in name for name in used) >= 8


def test_an_explicit_value_goes_bad_and_is_replaced():
    world = World(explicit)
    a, b = world.ends
    assert a.context.poll_ev_events() == []
    world.session.fault(kind="blackhole", link="p1.t0.1-p1.t1.3")
    a.pair.write(1, **a.place())
    world.run(400)
    assert statuses(a) == [STATUS.SUCCESS] and (b.target.buffer.data == 1).all()
    assert {(event.ev, event.state) for event in a.context.poll_ev_events()} == {
        (EvKey(3, 2), EvState.ASSUMED_BAD)
    }
    (answer,) = world.profiles[0].query_ev_state([EvKey(3, 2)])
    assert (answer.state, answer.bad_qps) == (EvState.ASSUMED_BAD, 1)
    world.profiles[0].replace_ev([EvReplacement(EvKey(3, 2), EvKey(4, 2))])
    assert world.profiles[0].query_ev_array(0, 8)[5].state is EvState.GOOD
    a.pair.write(2, **a.place())
    world.run()
    assert statuses(a) == [STATUS.SUCCESS] and a.context.poll_ev_events() == []


def test_denied_values_carry_nothing():
    world = World()
    a, b = world.ends
    hook = world.session.fault(kind="delay", link="p0.t0.1-p0.t1.2", direction="up", delay_ns=1)
    denied = [EvKey(wire.ev_value(0, 2, replica), 1) for replica in range(2)]
    world.profiles[0].modify_ev_state([EvStateChange(ev, EvState.DENIED) for ev in denied])
    a.pair.write(1, **a.place())
    world.run()
    assert statuses(a) == [STATUS.SUCCESS] and (b.target.buffer.data == 1).all()
    assert hook.hit == 0
    world.profiles[0].modify_ev_state([EvStateChange(ev, EvState.GOOD) for ev in denied])
    a.pair.write(2, **a.place())
    world.run()
    assert statuses(a) == [STATUS.SUCCESS] and hook.hit > 0


def test_a_backup_takes_over():
    world = World(lambda end: world_values(end, backups=2))
    a, _ = world.ends
    backup = world.session.fault(kind="delay", ev=[wire.ev_value(0, 4, 1)], delay_ns=1)
    a.pair.write(1, **a.place())
    world.run()
    assert statuses(a) == [STATUS.SUCCESS] and backup.hit == 0
    world.session.fault(kind="blackhole", ev=[wire.ev_value(0, 1, 0), wire.ev_value(0, 2, 0)])
    a.pair.write(2, **a.place())
    a.pair.write(3, **a.place())
    world.run(600)
    assert statuses(a) == [STATUS.SUCCESS] * 2 and backup.hit > 0


def world_values(end, **options):
    return end.world.values(end, **options)


def test_events_that_do_not_fit_are_counted():
    world = World()
    a, _ = world.ends
    a.context.open_notices(2)
    world.session.fault(kind="blackhole", link="p0.t0.1-p0.t1.[123]", to_us=300)
    a.pair.write(1, **a.place())
    world.run(5000)
    assert statuses(a) == [STATUS.SUCCESS]
    first = a.context.poll_ev_events()
    assert [event.drop_count for event in first] == [0, 0]
    a.context.notices.read()
    world.session.fault(kind="blackhole", link="p0.t0.1-p0.t1.1", to_us=300)
    a.pair.write(2, **a.place())
    world.run(400)
    assert sum(event.drop_count for event in a.context.poll_ev_events()) > 0


# -- window, ports, probes -------------------------------------------------------------------------------


def test_congestion_control_limits_the_window():
    config = NsccConfig.for_network(rate_gbps=200, base_rtt_ns=9_000, mtu=4096, max_cwnd=40_000)
    world = World(connected=False)
    for end, profile in zip(world.ends, world.profiles, strict=True):
        cc = end.context.cc_profile()
        cc.modify(ProfileState.OFFLINE, algorithm="uet-1.0-nscc")
        cc.modify(ProfileState.ONLINE, config=config)
        end.pair.to_init(profile, cc_profile=cc)
        end.pair.to_rtr(end.path, end.peer.pair.endpoint(), path_mtu=4096)
    for end in world.ends:
        end.pair.to_rts()
    a, _ = world.ends
    a.pair.write(1, **a.place())
    world.run(10)
    status = a.pair.query()
    assert 4096 <= status.window <= 40_000 and 0 < status.in_flight <= 40_000 + 4096
    assert status.base_rtt_ticks > 0
    world.run(400)
    assert statuses(a) == [STATUS.SUCCESS]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_small_tracking_range_slows_the_peer_and_loses_nothing(dynamic):
    world = World(connected=False)
    a, b = world.ends
    for end, profile in zip(world.ends, world.profiles, strict=True):
        end.pair.to_init(profile)
    for end in world.ends:
        peer = end.peer.pair.endpoint()
        end.pair.to_rtr(end.path, peer, path_mtu=1024, dynamic_mpr=dynamic)
    for end in world.ends:
        end.pair.to_rts(mpr=1, max_wimm=32, timeout=6)
    a.pair.write(1, **a.place())
    world.run(3000)
    assert statuses(a) == [STATUS.SUCCESS] and (b.target.buffer.data == 1).all()
    assert a.pair.query().mpr_psns == (128 if dynamic else 1024)


def test_ports_go_and_come():
    world = World()
    a, b = world.ends
    b.context.ports.modify(1, enabled=False)
    world.run(100)
    assert a.pair.query().peer_ports == 0b10
    a.pair.write(1, **a.place())
    world.run()
    assert statuses(a) == [STATUS.SUCCESS] and (b.target.buffer.data == 1).all()
    b.context.ports.modify(1, enabled=True)
    world.session.fault(kind="down", link="h1-p1*", signal=True, to_us=100)
    world.run(300)
    kinds = [(event.kind, event.port) for event in b.context.poll_events()]
    assert (EventKind.PORT_DOWN, 2) in kinds and (EventKind.PORT_UP, 2) in kinds
    assert a.pair.query().peer_ports == 0b11


def test_probes_of_paths_and_updates_of_ports():
    world = World()
    a, b = world.ends
    world.session.fault(kind="blackhole", link="p0.t0.1-p0.t1.2", direction="up")
    evs = [entry.ev for entry in world.profiles[0].query_ev_array()]
    batch = a.context.endpoint_operations.post(
        [EndpointRequest.of_profile(world.profiles[0], ev, a.path) for ev in evs], timeout_ns=50_000
    )
    assert not batch.poll()
    world.run(100)
    assert batch.poll()
    lost = {ev for ev, result in zip(evs, batch.results, strict=True) if not result.answered}
    assert lost == {EvKey(wire.ev_value(0, 2, replica), 1) for replica in range(2)}
    assert {result.status for result in batch.results} == {EndpointStatus.ANSWERED, EndpointStatus.TIMED_OUT}
    update = EndpointRequest(
        path=a.path, port=2, value=wire.ev_value(1, 1), operation=EndpointOperation.PORT_STATUS_UPDATE,
        port_mask=0b10,
    )  # fmt: skip
    batch = a.context.endpoint_operations.post([update])
    world.run(50)
    assert batch.poll() and batch.results[0].answered
    assert b.pair.query().peer_ports == 0b10


def test_a_controller_asks_at_simulated_times():
    world = World()
    a = world.ends[0]
    (profile, _), session = world.profiles, world.session
    session.attach(a.context)
    keys = [entry.ev for entry in profile.query_ev_array()]
    bad = [key for key in keys if key.port == 1 and key.value >> 16 & 0xFF == 2]
    session.fault(kind="blackhole", link="p0.t0.1-p0.t1.2")
    a.pair.write(1, **a.place())
    begin = a.context.nic.time_ps
    queries = []
    for microseconds in (0, 100):
        with a.context.driver.at(begin + microseconds * 1_000_000):
            queries.append(profile.query_ev_state(keys))
    assert {entry.state for query in queries for entry in query} == {EvState.UNKNOWN}
    world.run(50)
    assert queries[0].done and not queries[1].done
    assert {entry.state for entry in queries[0]} == {EvState.GOOD}
    world.run(60)
    assert queries[1].done and all(queries[1].success)
    assert [entry.ev for entry in queries[1] if entry.state is EvState.ASSUMED_BAD] == bad
    assert queries[1] == profile.query_ev_state(keys)


class Tapped:
    """Counts the control packets that reach the T0 switches from hosts."""

    def __init__(self, world):
        self.seen = {}
        for host in range(2):
            for plane in range(2):
                half = world.session.fabric.topology.host_link(host, plane).up
                world.session.fabric.tap(half.name, self.look)

    def look(self, direction, time_ps, frame):
        opcode = peek(frame).opcode
        self.seen[opcode] = self.seen.get(opcode, 0) + 1


@pytest.mark.parametrize("probes", [True, False])
@pytest.mark.parametrize("requests", [True, False])
def test_what_a_peer_does_not_answer_is_not_sent(probes, requests):
    world = World(connected=False)
    a, b = world.ends
    for end, profile in zip(world.ends, world.profiles, strict=True):
        told = replace(end.peer.pair.endpoint(), probe_answers=probes, endpoint_answers=requests)
        end.pair.to_init(profile)
        end.pair.to_rtr(end.path, Endpoint.from_json(told.to_json()), path_mtu=4096)
    for end in world.ends:
        end.pair.to_rts(timeout=5, retry=Retry(7, 25))
    tapped = Tapped(world)
    # Values go bad, so that there is something to ask.
    world.session.fault(kind="blackhole", link="p0.t0.1-p0.t1.1", to_us=100)
    for number in range(4):
        a.pair.write(number, **a.place())
    world.run(300)
    b.context.ports.modify(2, enabled=False)
    world.run(2000)
    assert statuses(a) == [STATUS.SUCCESS] * 4 and (b.target.buffer.data == 1).all()
    assert (tapped.seen.get(wire.Opcode.PROBE, 0) > 0) == probes
    assert (tapped.seen.get(wire.Opcode.ENDPOINT_REQUEST, 0) > 0) == requests
    assert a.pair.query().peer_ports == (0b01 if requests else 0b11)


@pytest.mark.parametrize("compensates", [True, False])
def test_all_answers_of_a_batch_say_alike_whose_time_was_taken_out(compensates):
    world = World(connected=False)
    a, b = world.ends
    for end, profile in zip(world.ends, world.profiles, strict=True):
        end.pair.to_init(profile)
        told = replace(end.peer.pair.endpoint(), svc_time=compensates)
        end.pair.to_rtr(end.path, told, path_mtu=4096)
    for end in world.ends:
        end.pair.to_rts()
    # Data of the asked host holds some answers back for more than a tick, and others not.
    for number in range(4):
        b.pair.write(number, **b.place())
    profile = world.profiles[0]
    keys = [entry.ev for entry in profile.query_ev_array()]
    results = []
    for _ in range(4):
        requests = [EndpointRequest.of_profile(profile, key, a.path) for key in keys]
        batch = a.context.endpoint_operations.post(requests)
        world.run(20)
        assert batch.poll()
        results += batch.results
    assert all(result.answered for result in results)
    assert {result.adj_svc_time for result in results} == {compensates}
    spread = max(result.rtt_ns for result in results) - min(result.rtt_ns for result in results)
    assert spread > 0
    own = Path(a.path.source, a.path.source, world.plan.template(0, 0))
    alone = a.context.endpoint_operations.post([EndpointRequest.of_profile(profile, keys[0], own)])
    world.run(20)
    assert alone.poll() and not alone.results[0].adj_svc_time
