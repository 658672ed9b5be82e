"""Attributes of queue pairs beyond the gateware's, ports, asynchronous events.

Sweep: hints, versions, tracking ranges, switches of the peer, the verbs' attributes that MRC lacks, path
    against format, port administration, every kind of event.
Stimulus: calls of the API on a device of tables; state put there as the device would.
Checks: rows of QP_OPTION, registers, errno and rule.
Timing: none.
"""

import pytest
from control import IDENTITY, OWN, PEER, PEER_END, check_refused, make_context, stev_format
from register_nic import CONFIG, FULL, RegisterNic

from mrc_host.fabric.usid import QpTemplate
from mrc_host.nic.device import (
    Context,
    DeviceFlag,
    EventKind,
    EvFormatMode,
    EvMode,
    Path,
    PortState,
    ProfileState,
    QpErrorReason,
    QpHint,
    QpState,
    Settings,
    WriteRequest,
)
from mrc_host.nic.qp_attributes import UNSUPPORTED_VERBS
from mrc_rtl.tables import GATEWARE_FLAGS, ControlTableId, TableId, WorkRequestOpcode

RTR = {"path": Path(OWN, PEER), "path_mtu": 256, "dest_qp_num": 0x123, "rq_psn": 0, "mpr_dest": 1}


def new_pair(context):
    pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
    return pair, context.ev_profile([[1], [2]])


def test_all_options_reach_the_device():
    context = Context(RegisterNic(config=CONFIG.with_(mpr_psns=1024, immediates=128)), IDENTITY)
    pair, profile = new_pair(context)
    hint = QpHint(num_qps_per_peer=2, num_send_peers=3, num_remote_recv_peers=7, vendor=b"x" * 128)
    pair.to_init(profile, protocol_version=1, hint=hint)
    pair.modify(
        QpState.RTR, **RTR, dynamic_mpr=True, trim_nack_dest_unsupported=True, svc_time_dest_unsupported=True,
        probes_dest_unsupported=True, requests_dest_unsupported=True,
    )  # fmt: skip
    pair.to_rts(mpr=4, max_wimm=100)
    assert context.nic.row(ControlTableId.QP_OPTION) == {
        "cc_profile": 0, "cc_enabled": 0, "dynamic_mpr": 1, "trim_nack_dest_unsupported": 1,
        "svc_time_dest_unsupported": 1, "probes_dest_unsupported": 1, "requests_dest_unsupported": 1,
        "own_mpr_psns": 512, "own_max_immediates": 100, "qps_per_peer": 2,
        "send_peers": 3, "receive_peers": 7,
    }  # fmt: skip


def test_what_the_peer_says_is_taken():
    context = make_context()
    pair, profile = new_pair(context)
    pair.to_init(profile)
    pair.to_rtr(Path(OWN, PEER), PEER_END, path_mtu=256)
    option = context.nic.row(ControlTableId.QP_OPTION)
    names = ("trim_nack", "svc_time", "probes", "requests")
    assert [option[f"{name}_dest_unsupported"] for name in names] == [0, 1, 0, 0]


@pytest.mark.parametrize("flags", [None, GATEWARE_FLAGS, FULL])
def test_a_device_tells_what_it_answers(flags):
    told = new_pair(make_context(flags))[0].endpoint()
    able = GATEWARE_FLAGS if flags is None else flags
    assert told.probe_answers is (DeviceFlag.PROBE_ANSWERS in able)
    assert told.endpoint_answers is (DeviceFlag.ENDPOINT_ANSWERS in able)
    context = make_context()
    pair, profile = new_pair(context)
    pair.to_init(profile)
    pair.to_rtr(Path(OWN, PEER), told, path_mtu=256)
    option = context.nic.row(ControlTableId.QP_OPTION)
    assert option["probes_dest_unsupported"] == (not told.probe_answers)
    assert option["requests_dest_unsupported"] == (not told.endpoint_answers)


@pytest.mark.parametrize(
    ("values", "attribute", "rule"),
    [
        ({"num_qps_per_peer": -1}, "num_qps_per_peer", "between 0 and 65535"),
        ({"num_send_peers": 1 << 16}, "num_send_peers", "between 0 and 65535"),
        ({"num_remote_recv_peers": "1"}, "num_remote_recv_peers", "between 0 and 65535"),
        ({"vendor": bytes(129)}, "vendor.length", "between 0 and 128"),
        ({"vendor": "x"}, "vendor", "of type bytes"),
    ],
)
def test_hints_out_of_range(values, attribute, rule):
    with check_refused("EINVAL", f"qp.hint.{attribute}", rule):
        QpHint(**values)


@pytest.mark.parametrize(
    ("name", "attribute", "value", "rule"),
    [
        ("EINVAL", "hint", 3, "of type QpHint"),
        ("EOPNOTSUPP", "protocol_version", 2, "0 or 1"),
        ("EINVAL", "protocol_version", -1, "between 0 and"),
        ("EINVAL", "partition_key", 1 << 16, "between 0 and 65535"),
    ],
)
def test_attributes_of_init(name, attribute, value, rule):
    context = make_context()
    pair, profile = new_pair(context)
    with check_refused(name, f"qp.{attribute}", rule):
        pair.modify(QpState.INIT, ev_profile=profile, **{attribute: value})
    assert pair.state is QpState.RESET and pair.attributes == {}


@pytest.mark.parametrize(
    "attribute",
    [
        "dynamic_mpr",
        "trim_nack_dest_unsupported",
        "svc_time_dest_unsupported",
        "probes_dest_unsupported",
        "requests_dest_unsupported",
    ],
)
def test_switches_are_truth_values(attribute):
    context = make_context()
    pair, profile = new_pair(context)
    pair.to_init(profile)
    with check_refused("EINVAL", f"qp.{attribute}", "True or False, got 1"):
        pair.modify(QpState.RTR, **RTR, **{attribute: 1})


@pytest.mark.parametrize("name", UNSUPPORTED_VERBS)
@pytest.mark.parametrize("state", [QpState.INIT, QpState.RTR, QpState.RTS, QpState.ERROR, QpState.RESET])
def test_the_verbs_attributes_that_mrc_lacks(name, state):
    context = make_context()
    pair, profile = new_pair(context)
    if state > QpState.INIT:
        pair.to_init(profile)
    if state > QpState.RTR:
        pair.modify(QpState.RTR, **RTR)
    given = {QpState.INIT: {"ev_profile": profile}, QpState.RTR: RTR, QpState.RTS: {"sq_psn": 0}}
    with check_refused("EOPNOTSUPP", f"qp.{name}", "left out: MRC does not have it"):
        pair.modify(state, **given.get(state, {}), **{name: 1})


def test_tracking_ranges():
    for context, good, bad in (
        (Context(RegisterNic(config=CONFIG.with_(mpr_psns=1024)), IDENTITY), (1, 8), (0, 9)),
        (Context(RegisterNic(None, config=CONFIG.with_(mpr_psns=1024)), IDENTITY), (8,), (1, 7, 9)),
    ):
        for mpr in (*bad, *good):
            pair, profile = new_pair(context)
            pair.to_init(profile)
            pair.modify(QpState.RTR, **RTR)
            if mpr in bad:
                with check_refused("EINVAL", "qp.mpr", "between"):
                    pair.to_rts(mpr=mpr)
            else:
                pair.to_rts(mpr=mpr)
            pair.destroy()
            profile.destroy()


def test_a_peer_that_does_not_answer_trimmed_packets():
    context = Context(RegisterNic(None), IDENTITY, Settings(trimming=True))
    pair, profile = new_pair(context)
    pair.to_init(profile)
    with check_refused("EOPNOTSUPP", "qp.trim_nack_dest_unsupported", "False on a device that trims for all"):
        pair.modify(QpState.RTR, **RTR, trim_nack_dest_unsupported=True)
    pair.modify(QpState.RTR, **RTR)
    pair, _ = new_pair(make_context(None))
    pair.to_init(pair.context.ev_profile([[1], [2]]))
    pair.modify(QpState.RTR, **RTR, trim_nack_dest_unsupported=True)


def test_path_and_format_belong_together():
    context = make_context()
    outer = QpTemplate(1 << 64, 1 << 65, (0, 1), None)
    plain, encapsulated = Path(OWN, PEER), Path(OWN, PEER, outer)
    srv6 = context.ev_format()
    srv6.modify(ProfileState.OFFLINE, mode=EvFormatMode.SRV6)
    srv6.modify(ProfileState.ONLINE, fields=(32, 16))
    for form, good, bad, rule in (
        (srv6, encapsulated, plain, "given for a profile of format SRV6"),
        (stev_format(context), plain, encapsulated, "left out for a profile of format STEV"),
    ):
        profile = context.create_ev_profile()
        profile.modify(ProfileState.OFFLINE, mode=EvMode.AUTO, format=form, ev_count=2)
        profile.modify(ProfileState.ONLINE, ev_min_active=0, ev_event_mask=0)
        pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
        pair.to_init(profile)
        with check_refused("EINVAL", "qp.path.outer", rule):
            pair.modify(QpState.RTR, **{**RTR, "path": bad})
        pair.modify(QpState.RTR, **{**RTR, "path": good})
        pair.destroy()


def test_what_the_device_says_of_a_queue_pair():
    context = make_context()
    pair, profile = new_pair(context)
    pair.to_init(profile)
    context.nic.row(TableId.QP_SEND).update(next_psn=9, unacked_psn=7, attempt=2)
    context.nic.row(TableId.QP_RECEIVE).update(cumulative_psn=4, highest_psn=6, message_number=3)
    context.nic.row(ControlTableId.QP_OPTION).update(
        mpr_psns=128, peer_ports=0b10, cc_enabled=1, window=40_000, in_flight=4096, base_rtt=60
    )
    status = pair.query()
    assert (status.next_psn, status.unacked_psn, status.attempt) == (9, 7, 2)
    assert (status.cumulative_psn, status.highest_psn, status.message_number) == (4, 6, 3)
    assert (status.mpr_psns, status.peer_ports) == (128, 0b10)
    assert (status.window, status.in_flight, status.base_rtt_ticks) == (40_000, 4096, 60)
    status = new_pair(make_context(None))[0].query()
    assert (status.peer_ports, status.window, status.in_flight, status.base_rtt_ticks) == (None,) * 4


def test_one_request_object_for_both_writes():
    context = make_context()
    pair, profile = new_pair(context)
    pair.to_init(profile)
    pair.modify(QpState.RTR, **RTR)
    pair.to_rts()
    operands = {"local_address": 1, "lkey": 2, "length": 3, "remote_address": 4, "rkey": 5}
    pair.write(10, **operands)
    pair.write_imm(11, immediate=6, **operands, signalled=False)
    pair.post_send(WriteRequest(wr_id=12, immediate=0, **{**operands, "length": 0}))
    rows = [context.nic.row(TableId.SEND_REQUEST, slot) for slot in range(3)]
    assert [row["opcode"] for row in rows] == [
        WorkRequestOpcode.WRITE,
        *[WorkRequestOpcode.WRITE_WITH_IMM] * 2,
    ]
    assert [(row["wr_id"], row["immediate"], row["signalled"]) for row in rows] == [
        (10, 0, 1), (11, 6, 0), (12, 0, 1),
    ]  # fmt: skip
    with check_refused("EINVAL", "wr.length", "between 1 and"):
        pair.write(13, **{**operands, "length": 0})
    with check_refused("EINVAL", "wr.immediate", "between 0 and"):
        pair.write_imm(13, immediate=None, **operands)
    with check_refused("EINVAL", "wr.signalled", "True or False"):
        pair.write(13, **operands, signalled=None)
    with pytest.raises(TypeError, match="colour"):
        pair.write(13, **operands, colour=1)


# -- ports and events ------------------------------------------------------------------------------------


def test_ports():
    context = make_context()
    port = context.ports.query(2)
    assert (port.port, port.state, port.link, port.enabled) == (2, PortState.ACTIVE, True, True)
    assert (port.mac, port.next_hop_mac) == (IDENTITY.macs[1], IDENTITY.next_hop_macs[1])
    context.ports.modify(2, enabled=False)
    assert context.driver.read("port_administration") == 0b01 and context.ports.mask == 0b01
    assert (context.ports.query(2).state, context.ports.query(2).link) == (PortState.DOWN, True)
    context.ports.modify(2, enabled=True)
    context.nic.schedule_link(0, 0, False)
    assert (context.ports.query(1).state, context.ports.query(1).enabled) == (PortState.DOWN, True)
    assert not context.port_up(0) and context.port_up(1)
    context.set_ports([0])
    assert not context.ports.query(2).enabled
    for port in (0, 3):
        with check_refused("EINVAL", "port.number", "between 1 and 2"):
            context.ports.query(port)
    with check_refused("EINVAL", "port.enabled", "True or False"):
        context.ports.modify(1, enabled=1)


@pytest.mark.parametrize(
    ("fields", "name", "port"),
    [
        ({"kind": EventKind.PORT_DOWN, "qp": 1}, "IBV_EVENT_PORT_ERR", 2),
        ({"kind": EventKind.PORT_UP, "qp": 0}, "IBV_EVENT_PORT_ACTIVE", 1),
        ({"kind": EventKind.COMPLETION_OVERRUN, "qp": 0}, "IBV_EVENT_CQ_ERR", None),
        *(
            (
                {"kind": EventKind.QP_ERROR, "qp": 0, "reason": reason},
                {
                    QpErrorReason.REMOTE_ACCESS: "IBV_EVENT_QP_ACCESS_ERR",
                    QpErrorReason.INVALID_REQUEST: "IBV_EVENT_QP_REQ_ERR",
                }.get(reason, "IBV_EVENT_QP_FATAL"),
                None,
            )
            for reason in QpErrorReason
        ),
    ],
)
def test_asynchronous_events(fields, name, port):
    context = make_context()
    pair, profile = new_pair(context)
    pair.to_init(profile)
    context.nic.events.append(fields)
    (event,) = context.poll_events()
    assert (event.verbs_name, event.port) == (name, port)
    assert event.qp_number == (0 if port else 0x100)
    is_error = fields["kind"] is EventKind.QP_ERROR
    assert (pair.state is QpState.ERROR) == is_error
    assert pair.error_reason == (fields["reason"] if is_error else None)
