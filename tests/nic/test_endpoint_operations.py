"""EV probes and port status updates in batches.

Sweep: plain and SRv6 paths, values of profiles, both operations, every refusal, numbers and slots in use,
    answers by notice and by table, timeouts.
Stimulus: batches; answers put there as the device would.
Checks: rows of ENDPOINT_OPERATION, results, which request numbers may be used again and when.
Timing: the time after which a number may be used again.
"""

import pytest
from control import OWN, PEER, check_refused, explicit_profile, make_context

from mrc_host.fabric.usid import QpTemplate
from mrc_host.nic.device import (
    UNPOPULATED,
    EndpointOperation,
    EndpointRequest,
    EndpointResult,
    EndpointStatus,
    EvField,
    EvFormatMode,
    EvKey,
    EvReplacement,
    Path,
    ProfileState,
)
from mrc_rtl import wire
from mrc_rtl.tables import ControlTableId, Encapsulation, NoticeKind

OUTER = QpTemplate(wire.outer_address([3, 0x801]), wire.outer_address([3, 0x400, 4, 0x807]), (0, 1, 2, 3), 1)
PLAIN, SRV6 = Path(OWN, PEER), Path(OWN, PEER, OUTER)
OPERATION = ControlTableId.ENDPOINT_OPERATION


@pytest.fixture
def context():
    return make_context()


def probe(**changes):
    return EndpointRequest(**{"path": PLAIN, "port": 1, "value": 0xC1230000, **changes})


def answer(context, slot, request_id, rtt=8_000, status=EndpointStatus.ANSWERED, port=1):
    context.nic.row(OPERATION, slot).update(status=status, answer_port=port, rtt=rtt, adjusted=1)
    context.nic.notice(
        kind=NoticeKind.ENDPOINT_DONE, slot=slot, request_id=request_id, state=status, port=port, value=rtt,
        adjusted=1,
    )  # fmt: skip


def test_a_batch_and_its_answers(context):
    batch = context.endpoint_operations.post(
        [probe(), probe(port=2, req_tc=8), probe(request_id=0x3FFF)], timeout_ns=50_000
    )
    assert batch.request_ids == (0, 1, 0x3FFF) and not batch.poll()
    row = context.nic.row(OPERATION, 1)
    assert (row["request_id"], row["port"], row["dscp"], row["timeout"]) == (1, 2, 8, 50_000)
    assert (row["operation"], row["encapsulation"]) == (EndpointOperation.EV_PROBE, Encapsulation.PLAIN)
    assert (row["peer_high"], row["peer_low"]) == (PEER >> 64, 1)
    assert context.nic.row(OPERATION)["dscp"] == 4
    answer(context, 1, 1, rtt=9_000, port=2)
    assert not batch.poll()
    assert batch.results == [None, EndpointResult(EndpointStatus.ANSWERED, 2, 9_000, True), None]
    answer(context, 0, 0)
    answer(context, 2, 0x3FFF, rtt=0, status=EndpointStatus.TIMED_OUT, port=0)
    assert batch.poll() and [result.answered for result in batch.results] == [True, True, False]


def test_at_a_simulated_time_notices_are_all_there_is(context):
    operations = context.endpoint_operations
    with context.driver.at(1_000_000):
        batch = operations.post([probe()])
    context.nic.run(2_000_000)
    assert context.nic.row(OPERATION)["status"] == EndpointStatus.WAITING
    context.nic.row(OPERATION)["status"] = EndpointStatus.ANSWERED
    with context.driver.at(3_000_000):
        assert not batch.poll()
        answer(context, 0, 7)  # a late notice of an earlier request in this slot
        assert not batch.poll()
        answer(context, 0, 0)
        assert batch.poll()
    answer(context, 0, 0)
    assert batch.poll() and batch.results == [EndpointResult(EndpointStatus.ANSWERED, 1, 8_000, True)]


def test_a_dropped_notice_is_made_good_by_the_table(context):
    context.open_notices(2)
    batch = context.endpoint_operations.post([probe() for _ in range(4)])
    for slot in range(4):
        answer(context, slot, slot)
    assert batch.poll()


def test_slots_and_numbers_in_use(context):
    operations = context.endpoint_operations
    batch = operations.post([probe(), probe(request_id=9)])
    with check_refused("ENOMEM", "endpoint.requests", "between 1 and 2"):
        operations.post([probe()] * 3)
    with check_refused("EINVAL", "endpoint.requests", "between 1 and 2"):
        operations.post([])
    for requests in ([probe(request_id=9)], [probe(request_id=5), probe(request_id=5)]):
        with check_refused(
            "EINVAL", r"endpoint.requests\[\d\].request_id", "unique until the fabric has drained"
        ):
            operations.post(requests)
    for slot, number in enumerate(batch.request_ids):
        answer(context, slot, number)
    assert batch.poll()
    with check_refused("EINVAL", r"endpoint.requests\[0\].request_id", "unique until"):
        operations.post([probe(request_id=9)])
    context.nic.run(context.nic.time_ps + 10_000_000_000)
    assert operations.post([probe(request_id=9)]).request_ids == (9,)
    assert operations.post([probe() for _ in range(3)]).request_ids == (1, 2, 3)


def test_numbers_run_out(context, monkeypatch):
    monkeypatch.setattr("mrc_host.nic.endpoint_operations.HOST_REQUEST_IDS", 2)
    operations = context.endpoint_operations
    assert operations.post([probe(), probe()]).request_ids == (0, 1)
    with check_refused("EAGAIN", r"endpoint.requests\[0\].request_id", "free within the last 10 ms"):
        operations.post([probe()])


def test_srv6_by_template(context):
    value = wire.ev_value(1, 5, 2)
    context.endpoint_operations.post([probe(path=SRV6, port=2, value=value)])
    row = context.nic.row(OPERATION)
    assert row["encapsulation"] == Encapsulation.SRV6 and row["segment"] == 0
    assert row["destination_high"] << 64 | row["destination_low"] == OUTER.outer_destination(1, 5)
    assert row["source_high"] << 64 | row["source_low"] == OUTER.outer_source(1)


def test_values_of_a_profile(context):
    form = context.ev_format()
    form.modify(ProfileState.OFFLINE, mode=EvFormatMode.SRV6)
    form.modify(ProfileState.ONLINE, fields=(32, 16, 16))
    profile = explicit_profile(
        context, 2, form, (EvField(32, 0x5F000000), EvField(16, 3), EvField(16, 0x400, mask=0xFF))
    )
    keys = [EvKey(0x11, 1), EvKey(0x12, 2)]
    profile.replace_ev([EvReplacement(UNPOPULATED, key) for key in keys])
    profile.modify(ProfileState.ONLINE, ev_min_active=0, ev_event_mask=0)
    context.endpoint_operations.post([EndpointRequest.of_profile(profile, key, SRV6) for key in keys])
    rows = [context.nic.row(OPERATION, slot) for slot in range(2)]
    assert [row["destination_high"] for row in rows] == [0x5F000000_0003_0411, 0x5F000000_0003_0412]
    assert [row["port"] for row in rows] == [1, 2]
    with check_refused("ENOENT", "ev", "in the profile's array"):
        EndpointRequest.of_profile(profile, EvKey(0x13, 1), SRV6)
    plain = EndpointRequest.of_profile(context.ev_profile([[7], [8]]), EvKey(8, 2), PLAIN)
    assert (plain.port, plain.value, plain.expanded) == (2, 8, None)


def test_port_status_update(context):
    request = probe(operation=EndpointOperation.PORT_STATUS_UPDATE, port_mask=0b01)
    context.endpoint_operations.post([request])
    row = context.nic.row(OPERATION)
    assert (row["operation"], row["port_mask"]) == (EndpointOperation.PORT_STATUS_UPDATE, 1)


@pytest.mark.parametrize(
    ("request_", "attribute", "rule"),
    [
        (7, "", "of type EndpointRequest"),
        (probe(operation=1), ".operation", "of type EndpointOperation"),
        (probe(path=None), ".path", "of type Path"),
        (probe(port=0), ".port", "between 1 and 2"),
        (probe(value=1 << 32), ".value", "between 0 and 4294967295"),
        (probe(port_mask=4), ".port_mask", "between 0 and 3"),
        (probe(req_tc=64), ".req_tc", "between 0 and 63"),
        (probe(request_id=0x4000), ".request_id", "between 0 and 16383"),
        (probe(segment=1), ".segment", "True or False"),
        (probe(path=SRV6, segment=True), ".segment", "False unless the value is expanded"),
        (probe(expanded=1), ".expanded", "left out without an outer path"),
        (probe(path=SRV6, value=1), ".value", "one that begins with 0b11000"),
        (probe(path=SRV6, value=wire.ev_value(1, 1, 0)), ".value.plane", "0, that of the port, got 1"),
        (probe(path=SRV6, expanded=-1), ".expanded", "between 0 and"),
    ],
)
def test_requests_out_of_range(context, request_, attribute, rule):
    with check_refused("EINVAL", rf"endpoint.requests\[1\]{attribute}", rule):
        context.endpoint_operations.post([probe(), request_])
    assert not any(table == OPERATION for table, _ in context.nic.written)
    with check_refused("EINVAL", "endpoint.timeout_ns", "between 1 and"):
        context.endpoint_operations.post([probe()], timeout_ns=0)
