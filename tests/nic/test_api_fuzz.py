"""Whatever is given to the device API runs, or is refused by errno, attribute, rule and value.

Sweep: every attribute of queue pairs, formats and profiles; every field of requests, hints, configurations,
    identity and settings; operations on EVs; JSON of endpoints.
Stimulus: values at and beyond the limits, of wrong types, in random order and combination.
Checks: nothing but a VerbsError is raised, its text is whole, and a refusal leaves state and attributes as
    they were; what went through fits the device's tables (they refuse to pack a value that does not fit).
Timing: none.
"""

import errno
import json
import math
import re
from dataclasses import fields

import pytest
from control import IDENTITY, OWN, PEER, PEER_END, STEV_FIELDS, make_context, stev_format
from hypothesis import given, settings
from hypothesis import strategies as st
from register_nic import FULL, RegisterNic

from mrc_host.fabric.usid import QpTemplate
from mrc_host.nic.device import (
    Access,
    Context,
    DeviceFlag,
    Endpoint,
    EndpointOperation,
    EndpointRequest,
    EvEventMask,
    EvField,
    EvFlag,
    EvFormatMode,
    EvKey,
    EvMode,
    EvReplacement,
    EvState,
    EvStateChange,
    Identity,
    NsccConfig,
    Path,
    ProfileState,
    QpHint,
    QpState,
    RemoteRegion,
    Retry,
    Settings,
    VerbsError,
    WriteRequest,
)
from mrc_host.nic.qp_attributes import UNSUPPORTED_VERBS, attribute_names
from mrc_rtl import wire

EXAMPLES = settings(deadline=None, max_examples=40)
MESSAGE = re.compile(r"(E[A-Z]+): \S.* must be \S.*, got .*", re.DOTALL)
EDGES = [
    bound + step
    for bound in (
        0,
        1,
        2,
        7,
        8,
        16,
        25,
        31,
        32,
        63,
        64,
        128,
        255,
        256,
        1 << 12,
        1 << 16,
        1 << 24,
        1 << 32,
        1 << 64,
    )
    for step in (-1, 0, 1)
]
JUNK = st.one_of(
    st.none(), st.booleans(), st.sampled_from(EDGES), st.integers(), st.floats(), st.text(max_size=3),
    st.binary(max_size=3), st.lists(st.sampled_from(EDGES), max_size=3),
    st.sampled_from([EvMode.AUTO, EvFormatMode.STEV, QpState.RTS, ProfileState.ONLINE, object, {}, {1: 2}]),
)  # fmt: skip
NETWORK = NsccConfig.for_network(rate_gbps=100, base_rtt_ns=12_000, mtu=4096)
OUTER = QpTemplate(wire.outer_address([3, 0x801]), wire.outer_address([3, 0x400, 4, 0x807]), (0, 1, 2, 3), 1)
#: Class → fields that are right.
RIGHT = {
    NsccConfig: vars(NETWORK),
    QpHint: {"num_qps_per_peer": 1, "num_send_peers": 2, "num_remote_recv_peers": 3, "vendor": b"x"},
    Retry: {"linear_cnt": 7, "exp_cnt": 25},
    Path: {"source": OWN, "destination": PEER, "outer": None},
    WriteRequest: {
        "wr_id": 1, "local_address": 2, "lkey": 3, "length": 4, "remote_address": 5, "rkey": 6,
        "signalled": True, "immediate": 7,
    },
}  # fmt: skip


def attempt(call, *arguments, **keywords):
    """Return the result, or the refusal, which must say everything."""
    try:
        return call(*arguments, **keywords)
    except VerbsError as error:
        assert MESSAGE.fullmatch(str(error)), str(error)
        assert error.errno == getattr(errno, error.name) and error.attribute and error.rule
        return error


def changed(right, part):
    """Draw fields that are right but for some."""
    return st.dictionaries(st.sampled_from([*right]), part, max_size=3).map(lambda odd: {**right, **odd})


def test_right_values_are_all_there():
    for kind, right in RIGHT.items():
        assert right.keys() == {field.name for field in fields(kind)}
        assert not isinstance(attempt(kind, **right), VerbsError)


@pytest.mark.parametrize("kind", RIGHT, ids=lambda kind: kind.__name__)
@EXAMPLES
@given(data=st.data())
def test_fields_of_objects(kind, data):
    values = data.draw(changed(RIGHT[kind], JUNK))
    result = attempt(kind, **values)
    if isinstance(result, NsccConfig):
        assert all(math.isfinite(value) for value in vars(result).values())
    if isinstance(result, NsccConfig | WriteRequest):
        assert all(value >= 0 for value in result.row().values())


@EXAMPLES
@given(changed(vars(IDENTITY), JUNK), changed(vars(Settings()), JUNK))
def test_identity_and_settings(identity, values):
    attempt(Context, RegisterNic(), Identity(**identity), Settings(**values))


@EXAMPLES
@given(JUNK, JUNK, JUNK, JUNK)
def test_objects_of_a_context(one, two, three, four):
    context = make_context()
    domain = context.protection_domain()
    buffer = attempt(context.allocator.allocate, one, two)
    if not isinstance(buffer, VerbsError):
        attempt(domain.register, buffer, three, address=four)
        attempt(domain.register, buffer, Access.LOCAL_WRITE, address=four)
        attempt(buffer.part, three, four)
    attempt(domain.register, one, two)
    attempt(context.completion_queue, one)
    attempt(context.queue_pair, domain, one, two)
    attempt(context.ev_profile, one)
    attempt(context.ev_profile, [one, two])
    attempt(context.ev_profile, [[one], [two]], ev_min_active=three, ev_event_mask=four, backups=one)
    attempt(context.ports.query, one)
    attempt(context.ports.modify, two, enabled=three)
    attempt(context.open_notices, one)
    attempt(context.poll_ev_events, two)
    queue = context.completion_queue(16)
    attempt(queue.poll, four)


# -- profiles --------------------------------------------------------------------------------------------

STATES = st.sampled_from([None, *ProfileState, *ProfileState, 1, "ONLINE"])
FIELD_GROUPS = st.one_of(
    st.just(STEV_FIELDS),
    st.lists(
        st.builds(EvField, *(st.sampled_from(EDGES[:24]) for _ in range(3))), max_size=4
    ),
    st.just({1: STEV_FIELDS, 2: STEV_FIELDS}),
    JUNK,
)  # fmt: skip


def drawn(data, name, right):
    """A value that is often right."""
    return data.draw(st.one_of(right[name], right[name], right[name], JUNK), label=name)


def modify_at_random(data, thing, right):
    """Change attributes and state once; a refusal must leave both alone."""
    names = data.draw(st.sets(st.sampled_from([*right, *right, "colour"])))
    values = {name: drawn(data, name, {**right, "colour": JUNK}) for name in sorted(names)}
    before = thing.state, dict(thing.attributes)
    result = attempt(thing.modify, data.draw(STATES, label="state"), **values)
    if isinstance(result, VerbsError):
        assert (thing.state, thing.attributes) == before
    return result


@EXAMPLES
@given(st.data())
def test_formats(data):
    context = make_context(data.draw(st.sampled_from([FULL, DeviceFlag(0), None])))
    form = context.ev_format()
    right = {"mode": st.sampled_from(EvFormatMode), "fields": st.lists(st.integers(0, 33), max_size=6)}
    for _ in range(5):
        modify_at_random(data, form, right)
    if form.state is ProfileState.ONLINE:
        assert 1 <= sum(form.widths) <= form.mode.bits


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_profiles(data):
    context = make_context(
        data.draw(st.sampled_from([FULL, FULL, FULL | DeviceFlag.EV_EXPLICIT_RANGE, None]))
    )
    form = stev_format(context)
    right = {
        "mode": st.sampled_from(EvMode), "format": st.just(form), "ev_count": st.sampled_from([2, 4, 6, 16]),
        "fields": FIELD_GROUPS, "ev_min_active": st.integers(0, 5),
        "ev_event_mask": st.sampled_from([0, 1, 2, 3, EvEventMask.GOOD]), "backups": st.integers(0, 2),
        "uplinks": st.integers(1, 4), "oblivious": st.booleans(),
    }  # fmt: skip
    profile = context.create_ev_profile()
    assert right.keys() == set(profile.names)
    keys = st.builds(EvKey, st.one_of(st.integers(0, 20), JUNK), st.one_of(st.integers(0, 3), JUNK))
    states = st.one_of(st.sampled_from(EvState), JUNK)
    odd = st.one_of(keys, keys, JUNK)
    for _ in range(6):
        modify_at_random(data, profile, right)
        order = st.builds(EvReplacement, st.one_of(st.just(EvKey(0, 0)), odd), odd, states,
                          st.one_of(st.sampled_from([EvFlag(0), EvFlag.ALL_COPIES]), JUNK))  # fmt: skip
        attempt(profile.replace_ev, data.draw(st.lists(st.one_of(order, JUNK), max_size=3)))
        attempt(
            profile.modify_ev_state, data.draw(st.lists(st.builds(EvStateChange, odd, states), max_size=2))
        )
        attempt(profile.query_ev_state, data.draw(st.lists(odd, max_size=2)))
        attempt(profile.query_ev_array, data.draw(JUNK), data.draw(JUNK))
    if profile.state is ProfileState.ONLINE:
        assert all(entry.key.port for entry in profile.array.entries)
        assert all(0 <= value < 1 << 32 for plane in profile.planes for value in plane)
        for port in range(1, 3):
            places = [entry.place for entry in profile.array.of_port(port)]
            assert len(set(places)) == len(places) <= 8 and max(places, default=0) < 8
    assert attempt(profile.destroy) is None
    assert form.users == 0


@EXAMPLES
@given(st.data())
def test_congestion_control(data):
    context = make_context()
    profile = context.cc_profile()
    right = {"algorithm": st.sampled_from([None, "uet-1.0-nscc"]), "config": st.just(NETWORK)}
    assert right.keys() == set(profile.names)
    for _ in range(5):
        modify_at_random(data, profile, right)
    if profile.state is ProfileState.ONLINE and profile.enabled:
        assert profile.attributes["config"] == NETWORK


# -- queue pairs -----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_queue_pairs(data):
    context = make_context(data.draw(st.sampled_from([FULL, FULL, None])))
    values = context.ev_profile([[1, 2], [3, 4]])
    right = {
        "ev_profile": st.just(values), "partition_key": st.integers(0, 0xFFFF),
        "protocol_version": st.sampled_from([0, 1]), "hint": st.just(QpHint(1, 2, 3)),
        "go_back_n": st.booleans() if DeviceFlag.GO_BACK_N in context.capabilities.flags else st.just(False),
        "cc_profile": st.nothing() if not context.capabilities.controlled else st.just(online_cc(context)),
        "path": st.sampled_from([Path(OWN, PEER), Path(OWN, PEER, OUTER)]),
        "path_mtu": st.sampled_from([256, 1024]), "dest_qp_num": st.just(0x123), "rq_psn": st.just(5),
        "mpr_dest": st.integers(1, 255), "max_wimm_dest": st.integers(32, 100), "dynamic_mpr": st.booleans(),
        "trim_nack_dest_unsupported": st.booleans(), "svc_time_dest_unsupported": st.booleans(),
        "probes_dest_unsupported": st.booleans(), "requests_dest_unsupported": st.booleans(),
        "sq_psn": st.just(7), "timeout": st.integers(0, 24), "retry": st.just(Retry(1, 2)), "mpr": st.just(1),
        "max_wimm": st.just(32),
    }  # fmt: skip
    assert right.keys() == set(attribute_names())
    needed = {
        QpState.INIT: {"ev_profile"}, QpState.RTS: {"sq_psn"},
        QpState.RTR: {"path", "path_mtu", "dest_qp_num", "rq_psn", "mpr_dest"},
    }  # fmt: skip
    pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
    order = [QpState.INIT, QpState.RTR, QpState.RTS, QpState.ERROR, QpState.RESET]
    for step in range(7):
        state = data.draw(st.one_of(st.just(order[step % 5]), st.sampled_from(QpState), JUNK), label="state")
        allowed = sorted(attribute_names(state)) if isinstance(state, QpState) else []
        pool = [*allowed, *allowed, *right, *UNSUPPORTED_VERBS, "colour"]
        names = data.draw(st.sets(st.sampled_from(pool), max_size=2)) if data.draw(st.booleans()) else set()
        names |= needed.get(state, set()) if isinstance(state, QpState) else set()
        given = {name: drawn(data, name, {name: JUNK, **right}) for name in sorted(names)}
        before = pair.state, dict(pair.attributes)
        if isinstance(attempt(pair.modify, state, **given), VerbsError):
            assert (pair.state, pair.attributes) == before
        attempt(pair.post_recv, data.draw(JUNK))
        attempt(pair.write, data.draw(JUNK), **data.draw(changed(OPERANDS, JUNK)))
        attempt(pair.write_imm, 3, immediate=data.draw(JUNK), **data.draw(changed(OPERANDS, JUNK)))
        attempt(pair.endpoint, data.draw(JUNK))
        attempt(pair.to_rtr, data.draw(st.one_of(st.just(Path(OWN, PEER)), JUNK)),
                data.draw(st.one_of(st.just(PEER_END), JUNK)), path_mtu=data.draw(JUNK))  # fmt: skip


OPERANDS = {"local_address": 2, "lkey": 3, "length": 4, "remote_address": 5, "rkey": 6}


def online_cc(context):
    """A congestion control profile that may be used."""
    profile = context.cc_profile()
    profile.modify(ProfileState.OFFLINE, algorithm="uet-1.0-nscc")
    profile.modify(ProfileState.ONLINE, config=NETWORK)
    return profile


# -- endpoints -------------------------------------------------------------------------------------------


@EXAMPLES
@given(st.data())
def test_endpoint_requests(data):
    context = make_context()
    right = {
        "path": Path(OWN, PEER, OUTER), "port": 1, "value": wire.ev_value(0, 1), "expanded": None,
        "operation": EndpointOperation.EV_PROBE, "segment": False, "port_mask": 1, "req_tc": None,
        "request_id": None,
    }  # fmt: skip
    assert right.keys() == {field.name for field in fields(EndpointRequest)}
    assert not isinstance(attempt(context.endpoint_operations.post, [EndpointRequest(**right)]), VerbsError)
    requests = [
        EndpointRequest(**data.draw(changed(right, JUNK))) for _ in range(data.draw(st.integers(0, 3)))
    ]
    attempt(context.endpoint_operations.post, requests, timeout_ns=data.draw(st.one_of(st.just(1000), JUNK)))


DOCUMENT = json.loads(Endpoint(0x100, 5, OWN, 8, 64, regions=(RemoteRegion(1, 2, 3, "x"),)).to_json())
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.sampled_from(EDGES), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.one_of(st.sampled_from([*DOCUMENT]), st.text(max_size=3)), JSON, max_size=3), JSON)
def test_json_of_endpoints(odd, other):
    attempt(Endpoint.from_json, json.dumps({**DOCUMENT, **odd}))
    attempt(Endpoint.from_json, json.dumps(other))
    region = {**DOCUMENT["regions"][0], **odd} if odd else other
    result = attempt(Endpoint.from_json, json.dumps({**DOCUMENT, "regions": [region]}))
    if isinstance(result, Endpoint):
        assert Endpoint.from_json(result.to_json()) == result
    attempt(Endpoint.from_json, other)
