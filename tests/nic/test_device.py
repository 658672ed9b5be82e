"""The device API on the engine's real registers, with plain memories as tables.

Sweep: every step between QP states, every attribute out of range, plain and SRv6 templates, ring laps.
Stimulus: calls of the API; completions are written into the ring as the engine would.
Checks: table entries read back through the mailbox, the template against the packet headers' descriptions,
    errno name, attribute, value and rule of each refusal.
Timing: one compiled engine; about two seconds.
"""

import pytest

from mrc_host.errors import InfrastructureError
from mrc_host.fabric.usid import QpTemplate
from mrc_host.nic.device import (
    Access,
    CompletionStatus,
    Context,
    Endpoint,
    EventKind,
    EvProfile,
    Identity,
    Path,
    QpErrorReason,
    QpState,
    Retry,
    Settings,
    VerbsError,
    WorkCompletion,
    WorkRequestOpcode,
    connect,
    read_counters,
)
from mrc_host.nic.driver import Driver
from mrc_rtl import wire
from mrc_rtl.config import NicConfig
from mrc_rtl.tables import CQE, GATEWARE_FLAGS, TEMPLATE_IMAGE_OFFSET, ControlTableId, DeviceFlag, TableId

OWN, PEER = wire.inner_address(1), wire.inner_address(2)
IDENTITY = Identity(OWN, 0x0801, (0x020000000001, 0x020000010001), (0x0201, 0x0202))
PEER_END = Endpoint(qp_number=0x123, starting_psn=0xFFFFF0, address=PEER, mpr=8, max_wimm=64)


@pytest.fixture
def context(mailbox):
    return Context(mailbox(), IDENTITY)


def refused(name, attribute, rule):
    return pytest.raises(VerbsError, match=f"^{name}: {attribute} must be {rule}")


def new_pair(context):
    domain, queue = context.protection_domain(), context.completion_queue(16)
    return context.queue_pair(domain, queue), context.ev_profile([[0x10, 0x11, 0x12], [0x20]])


def ready_pair(context, **rts):
    pair, profile = new_pair(context)
    pair.to_init(profile, partition_key=0x8001)
    pair.to_rtr(Path(OWN, PEER), PEER_END, path_mtu=1024)
    pair.to_rts(**{"sq_psn": 0x123456, **rts})
    return pair


def test_identity_and_settings_reach_the_registers(mailbox):
    settings = Settings(
        trimming=True, sack_threshold=8192, base_rtt_ps=1_000_000, dscp_control=40, reorder_window_ps=300_000
    )
    context = Context(mailbox(), IDENTITY, settings)
    read = context.driver.read
    assert read("own_address") == OWN and read("own_usid") == 0x0801 and read("usid_block") == wire.USID_BLOCK
    assert [read("port_mac", plane) for plane in range(2)] == list(IDENTITY.macs)
    assert [read("port_next_hop_mac", plane) for plane in range(2)] == list(IDENTITY.next_hop_macs)
    assert (read("trimming"), read("sack_threshold"), read("base_rtt"), read("control")) == (1, 8192, 8, 1)
    assert read("reorder_window") == 3
    assert context.driver.read_fields("dscp_sent") == {
        "dscp_no_trim": 4, "dscp_trimmable": 8, "dscp_retransmission": 10, "dscp_control": 40,
    }  # fmt: skip
    assert context.port_up(1)
    context.set_ports([0])
    assert context.port_up(0) and not context.port_up(1)


def test_capabilities_are_those_of_the_configuration(context):
    config = context.nic.config.as_dict()
    values = vars(context.capabilities)
    beyond = {"flags", "ev_count_align", "endpoint_slots", "cc_profiles", "controlled"}
    assert all(config[name] == value for name, value in values.items() if name not in beyond)
    assert beyond <= values.keys()
    assert context.capabilities.mpr == 1
    assert not context.capabilities.controlled
    parts = {"congestion_control": DeviceFlag.CC_NSCC, "go_back_n": DeviceFlag.GO_BACK_N}
    flags = GATEWARE_FLAGS
    for name, flag in parts.items():
        if not config[name]:
            flags &= ~flag
    assert context.capabilities.flags == flags


def test_another_configuration_is_refused(mailbox):
    nic = mailbox()
    nic.config = NicConfig.small()
    with pytest.raises(InfrastructureError, match="configuration must have hash 0x"):
        Driver(nic)


@pytest.mark.parametrize(
    "values, attribute",
    [
        ({"sack_threshold": 100}, "sack_threshold"),
        ({"base_rtt_ps": 1 << 40}, "base_rtt_ps / 128 ns"),
        ({"reorder_window_ps": 1 << 40}, "reorder_window_ps / 128 ns"),
    ],
)
def test_settings_out_of_range(mailbox, values, attribute):
    with refused("EINVAL", attribute, "between"):
        Context(mailbox(), IDENTITY, Settings(**values))
    with refused("EINVAL", "identity.macs", "2, one for each port"):
        Context(mailbox(), Identity(OWN, 1, (1,), (1, 2)))


def test_the_walk_to_rts_fills_the_tables(context):
    pair = ready_pair(context, timeout=8, retry=Retry(3, 20))
    read = context.driver.read_table
    assert read(TableId.QP_SEND, 0) == {
        "state": QpState.RTS, "mtu_log2": 10, "timeout": 8, "linear_count": 3, "exponential_count": 20,
        "protection_domain": 0, "completion_queue": 0, "ev_profile": 0, "initial_psn": 0x123456,
        "mpr_psns": 128, "max_immediates": 64, "next_psn": 0, "unacked_psn": 0, "attempt": 0,
        "go_back_n": 0,
    }  # fmt: skip
    assert read(TableId.QP_RECEIVE, 0) == {
        "state": QpState.RTR, "protection_domain": 0, "completion_queue": 0, "partition_key": 0x8001,
        "peer_qpn": 0x123, "in_order": 0, "initial_psn": 0xFFFFF0,
        "peer_high": PEER >> 64, "peer_low": PEER & 2**64 - 1,
        "cumulative_psn": 0, "highest_psn": 0, "message_number": 0, "received_units": 0,
    }  # fmt: skip
    assert [read(TableId.EV_SET, plane)["good"] for plane in range(2)] == [0b111, 1]
    assert [read(TableId.EV_VALUE, i) for i in (2, 32)] == [
        {"value": 0x12, "port": 1},
        {"value": 0x20, "port": 2},
    ]
    assert (pair.state, pair.number) == (QpState.RTS, 0x100)
    assert pair.endpoint(5) == Endpoint(
        0x100, 5, OWN, 1, 32,
        svc_time=DeviceFlag.SVC_TIME in GATEWARE_FLAGS,
        probe_answers=DeviceFlag.PROBE_ANSWERS in GATEWARE_FLAGS,
        endpoint_answers=DeviceFlag.ENDPOINT_ANSWERS in GATEWARE_FLAGS,
    )  # fmt: skip


@pytest.mark.parametrize("srv6", [False, True])
def test_the_template_is_the_head_of_the_frame(srv6):
    outer = QpTemplate(
        wire.outer_address([3, 0x801]), wire.outer_address([3, 0x400, 4, 0x807]), (0, 1, 2, 3), 1
    )
    path = Path(OWN, PEER, outer if srv6 else None)
    words = path.template_words(destination_qpn=0x123, partition_key=0xFFFE, udp_port=4791)
    image = b"".join(word.to_bytes(8, "little") for word in words)
    assert list(image[:3]) == ([1, 0b1111, 0b0010] if srv6 else [0, 0, 0])
    assert image[3:TEMPLATE_IMAGE_OFFSET] == bytes(9)
    at = wire.ETHERNET.bytes
    assert image[12:at] == b"\x86\xdd"

    def header(layout):
        nonlocal at
        fields = layout.unpack(int.from_bytes(image[at : at + layout.bytes], "big"))
        at += layout.bytes
        return fields

    if srv6:
        fields = header(wire.IPV6)
        assert (fields["next_header"], fields["hop_limit"]) == (wire.NextHeader.IPV6, 64)
        assert (fields["source"], fields["destination"]) == (outer.source, outer.destination)
    fields = header(wire.IPV6)
    assert (fields["version"], fields["next_header"]) == (6, wire.NextHeader.UDP)
    assert (fields["source"], fields["destination"]) == (OWN, PEER)
    assert (fields["payload_length"], fields["flow_label"], fields["traffic_class"]) == (0, 0, 0)
    assert header(wire.UDP) == {"source_port": 0, "destination_port": 4791, "length": 0, "checksum": 0}
    fields = header(wire.BTH)
    assert (fields["pkey"], fields["dest_qp"], fields["opcode"], fields["psn"]) == (0xFFFE, 0x123, 0, 0)
    assert not any(image[at:])


def test_steps_between_states(context):
    pair, profile = new_pair(context)
    with refused("EINVAL", "qp.state", "INIT or ERROR or RESET after RESET, got RTS"):
        pair.modify(QpState.RTS, sq_psn=0)
    with refused("EINVAL", "qp.ev_profile", "given for RESET to INIT"):
        pair.modify(QpState.INIT)
    with refused("EINVAL", "qp.attribute", "one of ev_profile, partition_key, .* for RESET to INIT"):
        pair.modify(QpState.INIT, ev_profile=profile, timeout=3)
    with refused("EINVAL", "qp.ev_profile", "of type EvProfile"):
        pair.modify(QpState.INIT, ev_profile=3)
    pair.to_init(profile)
    with refused("EINVAL", "qp.state", "RTR or ERROR or RESET after INIT, got INIT"):
        pair.to_init(profile)
    assert pair.state is QpState.INIT


RTR = {"path": Path(OWN, PEER), "path_mtu": 1024, "dest_qp_num": 0x100, "rq_psn": 0, "mpr_dest": 1}


@pytest.mark.parametrize(
    "name, value, rule",
    [
        ("path", 5, "of type Path"),
        ("path_mtu", 4096, "one of 256, 512, 1024"),
        ("path_mtu", 1000, "one of 256, 512, 1024"),
        ("dest_qp_num", 2, "between 3 and 16777215"),
        ("rq_psn", 1 << 24, "between 0 and 16777215"),
        ("mpr_dest", 0, "between 1 and 255"),
        ("max_wimm_dest", 31, "between 32 and 65535"),
    ],
)
def test_attributes_of_rtr(context, name, value, rule):
    pair, profile = new_pair(context)
    pair.to_init(profile)
    with refused("EINVAL", f"qp.{name}", rule) as caught:
        pair.modify(QpState.RTR, **{**RTR, name: value})
    assert (caught.value.attribute, caught.value.value, caught.value.errno) == (f"qp.{name}", value, 22)
    assert pair.state is QpState.INIT


@pytest.mark.parametrize(
    "name, value, rule",
    [
        ("sq_psn", -1, "between 0 and 16777215"),
        ("timeout", 25, "between 0 and 24"),
        ("retry", 7, "of type Retry"),
        ("mpr", 2, "between 1 and 1"),
        ("max_wimm", 33, "between 32 and 32"),
    ],
)
def test_attributes_of_rts(context, name, value, rule):
    pair, profile = new_pair(context)
    pair.to_init(profile)
    pair.modify(QpState.RTR, **RTR)
    with refused("EINVAL", f"qp.{name}", rule):
        pair.modify(QpState.RTS, **{"sq_psn": 0, name: value})
    with refused("EINVAL", r"qp\.retry\.linear_cnt", "between 0 and 7"):
        Retry(8, 0)
    with refused("EINVAL", r"qp\.retry\.exp_cnt", "between 0 and 25"):
        Retry(0, 26)


def test_send_requests(context):
    pair = ready_pair(context)
    arguments = {
        "local_address": 1 << 40,
        "lkey": 0x101,
        "length": 5000,
        "remote_address": 1 << 63,
        "rkey": 0x203,
    }
    pair.write(77, **arguments, signalled=False)
    pair.write_imm((1 << 64) - 1, **{**arguments, "length": 0}, immediate=0xCAFEF00D)
    read = context.driver.read_table
    assert read(TableId.SEND_REQUEST, 0) == {
        "wr_id": 77, "local_address": 1 << 40, "remote_address": 1 << 63, "length": 5000, "local_key": 0x101,
        "immediate": 0, "remote_key": 0x203, "opcode": WorkRequestOpcode.WRITE, "signalled": 0,
    }  # fmt: skip
    second = read(TableId.SEND_REQUEST, 1)
    assert (second["wr_id"], second["length"], second["immediate"]) == ((1 << 64) - 1, 0, 0xCAFEF00D)
    assert (second["opcode"], second["signalled"]) == (WorkRequestOpcode.WRITE_WITH_IMM, 1)
    with refused("EINVAL", "wr.length", "between 1 and 4294967295, got 0"):
        pair.write(1, **{**arguments, "length": 0})
    with refused("EINVAL", "wr.rkey", "between 0 and 4294967295, got 0x100000000"):
        pair.write(1, **{**arguments, "rkey": 1 << 32})
    for number in range(62):
        pair.write(number, **arguments)
    with refused("ENOMEM", "qp.sends_outstanding", "at most 64"):
        pair.write(1, **arguments)
    assert pair.sends_outstanding == 64


def complete(queue, number, **fields):
    """Write completion ``number`` into the ring as the engine would."""
    values = {"qpn": 0x100, "opcode": WorkRequestOpcode.WRITE, **fields}
    words = CQE.pack(**values, phase=1 - number // queue.entries % 2)
    at = number % queue.entries * 32
    content = b"".join(word.to_bytes(8, "little") for word in words)
    queue.ring.data[at : at + 32] = memoryview(content)


def test_completions_over_several_laps(context):
    pair = ready_pair(context)
    queue = pair.send_queue
    assert queue.poll() == []
    for lap in range(5):
        for number in range(10 * lap, 10 * lap + 10):
            pair.write(
                number, local_address=0, lkey=1, length=1, remote_address=0, rkey=1, signalled=number % 2
            )
        for number in range(5 * lap, 5 * lap + 5):
            complete(queue, number, wr_id=2 * number + 1, byte_length=number, message_number=number)
        assert pair.sends_outstanding == 10
        completions = queue.poll()
        assert [item.wr_id for item in completions] == [2 * i + 1 for i in range(5 * lap, 5 * lap + 5)]
        assert all(item.ok and item.byte_length == item.message_number for item in completions)
        assert queue.poll() == [] and pair.sends_outstanding == 0


def test_receives_and_their_flush(context):
    pair, profile = new_pair(context)
    with refused("EINVAL", "qp.state", "INIT or later to post a receive, got RESET"):
        pair.post_recv(1)
    pair.to_init(profile)
    for number in range(16):
        pair.post_recv(1000 + number)
    with refused("ENOMEM", "qp.receives_outstanding", "at most 16"):
        pair.post_recv(9)
    assert context.driver.read_table(TableId.RECEIVE_REQUEST, 15)["wr_id"] == 1015
    complete(pair.receive_queue, 0, wr_id=1000, opcode=WorkRequestOpcode.RECEIVE_IMM, immediate=5)
    (completion,) = pair.receive_queue.poll()
    assert (completion.immediate, pair.receives_outstanding) == (5, 15)
    with refused("EINVAL", "qp.state", "RTS to post a send request, got INIT"):
        pair.write(1, local_address=0, lkey=1, length=1, remote_address=0, rkey=1)
    pair.to_error()
    assert context.driver.read_table(TableId.QP_RECEIVE, 0)["state"] == QpState.ERROR
    assert pair.error_reason is QpErrorReason.HOST
    pair.post_recv(7)
    pair.write(8, local_address=0, lkey=1, length=1, remote_address=0, rkey=1)
    flushed = pair.receive_queue.poll(100)
    assert [item.wr_id for item in flushed] == [*range(1001, 1016), 7, 8]
    assert {item.status for item in flushed} == {CompletionStatus.FLUSHED}
    assert flushed[-1] == WorkCompletion(8, CompletionStatus.FLUSHED, WorkRequestOpcode.WRITE, 0x100)


def test_a_receive_that_completed_is_not_flushed(context):
    pair, profile = new_pair(context)
    pair.to_init(profile)
    for number in range(4):
        pair.post_recv(number)
    for number in range(2):
        complete(pair.receive_queue, number, wr_id=number, opcode=WorkRequestOpcode.RECEIVE_IMM)
    pair.to_error()
    completions = [*pair.receive_queue.poll(1), *pair.receive_queue.poll()]
    assert [(item.wr_id, item.ok) for item in completions] == [(0, True), (1, True), (2, False), (3, False)]
    assert pair.receives_outstanding == 0 and pair.receive_queue.poll() == []


def test_an_event_puts_the_qp_into_error(context):
    ready_pair(context)
    pairs = [context.queue_pair(context.protection_domain(), context.completion_queue(16)) for _ in range(3)]
    pair = pairs[-1]
    assert pair.index == 3
    pair.to_init(context.ev_profile([[1], [2]]))
    pair.to_rtr(Path(OWN, PEER), PEER_END, path_mtu=256)
    pair.to_rts()
    pair.post_recv(5)
    assert context.poll_events() == []
    pair.write(1, local_address=0, lkey=1, length=1, remote_address=0, rkey=1)
    (event,) = context.poll_events()
    assert (event.kind, event.qp_number) == (EventKind.QP_ERROR, 0x103)
    assert event.reason is pair.error_reason is QpErrorReason.REMOTE_ACCESS
    assert pair.state is QpState.ERROR
    assert [item.wr_id for item in pair.receive_queue.poll()] == [5]


def test_destroyed_qps_start_from_nothing(context):
    pair = ready_pair(context)
    pair.write(1, local_address=0, lkey=1, length=1, remote_address=0, rkey=1)
    domain = pair.protection_domain
    with refused("EBUSY", "cq.users", "0, got 1"):
        pair.send_queue.close()
    with refused("EBUSY", "pd.users", "0, got 1"):
        domain.close()
    pair.destroy()
    assert context.driver.read_table(TableId.QP_SEND, 0)["state"] == QpState.RESET
    queue = pair.send_queue
    again = context.queue_pair(domain, queue)
    assert (again.index, again.sends_outstanding, again.attributes) == (0, 0, {})
    again.destroy()
    queue.close()
    domain.close()
    assert context.driver.read_table(TableId.COMPLETION_QUEUE, 0)["enabled"] == 0


def test_regions_and_their_generations(context):
    domain = context.protection_domain()
    buffer = context.allocator.allocate(8192)
    first = domain.register(buffer, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
    assert first.key == 0x001 and first.lkey == first.rkey
    assert context.driver.read_table(TableId.MEMORY_REGION, 0) == {
        "key": 1, "protection_domain": 0, "remote_write": 1, "local_write": 1, "valid": 1,
        "base": buffer.address, "length": 8192, "bus_address": buffer.bus_address,
    }  # fmt: skip
    second = domain.register(buffer.part(100, 50), Access(0), address=0x1234)
    assert (second.key, second.address, second.length) == (0x101, 0x1234, 50)
    first.deregister()
    assert context.driver.read_table(TableId.MEMORY_REGION, 0)["valid"] == 0
    with refused("EINVAL", "mr.key", "registered"):
        first.deregister()
    assert domain.register(buffer).key == 0x002
    for _ in range(254):
        domain.regions[-1].deregister()
        domain.register(buffer)
    assert domain.regions[-1].key == 0x000
    with refused("EINVAL", "mr.access", "with LOCAL_WRITE"):
        domain.register(buffer, Access.REMOTE_WRITE)
    with refused("EINVAL", "buffer.part", "inside 8192 bytes"):
        buffer.part(8000, 193)
    for _ in range(6):
        domain.register(buffer)
    with refused("ENOMEM", "device.memory_regions", "at most 8 at a time"):
        domain.register(buffer)
    with refused("ENOMEM", "buffer.length", "between 1 and"):
        context.allocator.allocate(2 << 20)


def test_profiles_and_queues_out_of_range(context):
    with refused("EINVAL", "ev_profile.planes", "2, one list a plane, got 1"):
        context.ev_profile([[1]])
    with refused("EINVAL", r"ev_profile.planes\[1\].count", "between 1 and 8, got 0"):
        context.ev_profile([[1], []])
    with refused("EINVAL", r"ev_profile.planes\[0\].value", "between 0 and 4294967295"):
        context.ev_profile([[1 << 32], [1]])
    for entries in (1, 48):
        with refused("EINVAL", "cq.entries", "(between|a power of two)"):
            context.completion_queue(entries)
    assert len([context.completion_queue(16) for _ in range(4)]) == 4
    with refused("ENOMEM", "device.completion_queues", "at most 4 at a time"):
        context.completion_queue(16)
    evs = [wire.ev_value(plane, 1, replica) for replica in range(2) for plane in range(2)]
    assert EvProfile.by_plane(evs, 2) == [[0xC0010000, 0xC0010001], [0xC1010000, 0xC1010001]]


def test_connect_exchanges_the_ends(mailbox):
    contexts = [
        Context(mailbox(), Identity(wire.inner_address(host), host, (1, 2), (3, 4))) for host in (1, 2)
    ]
    pairs = [
        context.queue_pair(context.protection_domain(), context.completion_queue(16)) for context in contexts
    ]
    profiles = tuple(context.ev_profile([[1], [2]]) for context in contexts)
    connect(
        *pairs,
        profiles=profiles,
        paths=(Path(OWN, PEER), Path(PEER, OWN)),
        path_mtu=512,
        starting_psns=(10, 20),
    )
    receive = [context.driver.read_table(TableId.QP_RECEIVE, 0) for context in contexts]
    assert [item["initial_psn"] for item in receive] == [20, 10]
    assert [item["peer_low"] for item in receive] == [1, 1]
    assert [item["peer_high"] & 0xFFFF for item in receive] == [2, 1]
    assert all(pair.state is QpState.RTS for pair in pairs)
    with refused("EINVAL", "qp.send_cq", "of this device"):
        contexts[0].queue_pair(contexts[0].protection_domain(), pairs[1].send_queue)


def test_scheduled_calls_take_effect_at_their_time(context):
    pair = ready_pair(context)
    begin = context.nic.time_ps
    with context.driver.at(begin + 50_000_000):
        pair.write(1, local_address=0, lkey=1, length=1, remote_address=0, rkey=1)
        pair.modify(QpState.ERROR)
        with pytest.raises(ValueError, match="data can only be read at once, got a read scheduled at"):
            context.driver.read_table(TableId.QP_SEND, 0)
    assert not context.nic.run(begin + 50_000_000).frames
    outputs = context.nic.run(begin + 60_000_000)
    # Writing 12 halves, the command and the doorbell takes some ten cycles each.
    assert begin + 50_000_000 < outputs.frames[0].time_last_bit_ps < begin + 52_000_000
    assert context.take_reads(outputs.reads) == []
    assert context.driver.read_table(TableId.QP_SEND, 0)["state"] == QpState.ERROR


def test_tables_are_read_at_a_time(context):
    driver, nic = context.driver, context.nic
    rows = [{"value": 0xC0000000 + n, "port": n + 1} for n in range(2)]
    for index, fields in enumerate(rows):
        driver.write_table(TableId.EV_VALUE, index, fields)
    answers = []
    driver.start_read(TableId.EV_VALUE, 0, answers.append)
    assert answers == rows[:1]
    begin = nic.time_ps + 1_000_000
    with driver.at(begin):
        for index in range(2):
            driver.start_read(TableId.EV_VALUE, index, answers.append)
        driver.write_table(TableId.EV_VALUE, 1, {"value": 7, "port": 1})
        driver.start_read(TableId.EV_VALUE, 1, answers.append)
    assert context.take_reads(nic.run(begin).reads) == [] and answers == rows[:1]
    assert context.take_reads(nic.run(begin + 10_000_000).reads) == []
    assert answers == [rows[0], *rows, {"value": 7, "port": 1}]
    with driver.at(nic.time_ps):
        driver.start_read(ControlTableId.EV_ENTRY, 0, answers.append)
    context.take_reads(nic.run(nic.time_ps + 10_000_000).reads)
    assert answers[-1] is None, "the gateware has no such table"


def test_counters_are_read_by_name(context):
    words = 2 * 32 + 5
    context.driver.write_words(TableId.COUNTER, 32 + 1, [11])
    context.driver.write_words(TableId.COUNTER, 32, [12])
    context.driver.write_words(TableId.COUNTER, words, [13])
    counters = read_counters(context.driver)
    assert (counters.ports[1]["accepted"], counters.ports[1]["rx_frames"]) == (11, 12)
    assert counters.engine["nack_received"] == 13
    assert (counters.unaccounted(0), counters.unaccounted(1)) == (0, 1)
