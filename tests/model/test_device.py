"""The device API on the model: the same calls as on the engine's real registers.

Sweep: identity and settings, every table, capabilities, the walk between states, completions, events.
Stimulus: calls of the API, at once and at a time.
Checks: registers and tables read back, refusals, order and time of what happens.
Timing: registers answer at once.
"""

import numpy as np
import pytest
from stub_requester import StubRequester

from mrc_host.errors import InfrastructureError
from mrc_host.model.nic import ModelNic
from mrc_host.model.options import ModelOptions
from mrc_host.nic.base import RegisterError
from mrc_host.nic.device import (
    Access,
    CompletionStatus,
    Context,
    Endpoint,
    EventKind,
    Identity,
    Path,
    QpErrorReason,
    QpState,
    Retry,
    Settings,
    VerbsError,
    WorkRequestOpcode,
    read_counters,
)
from mrc_host.nic.driver import Driver
from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_rtl import wire
from mrc_rtl.config import NicConfig
from mrc_rtl.registers import register_map
from mrc_rtl.tables import ControlTableId, DeviceFlag, TableId

OWN, PEER = wire.inner_address(1), wire.inner_address(2)
IDENTITY = Identity(OWN, 0x0801, (0x020000000001, 0x020000010001), (0x0201, 0x0202))
PEER_END = Endpoint(qp_number=0x123, starting_psn=0xFFFFF0, address=PEER, mpr=8, max_wimm=64)
CONFIG = NicConfig(
    planes=2, clock_ps=4_000, mtu=1024, qps=4, evs_per_plane=8, ev_profiles=4, send_queue_depth=64,
    receive_queue_depth=16, memory_regions=8, completion_queues=4,
)  # fmt: skip


@pytest.fixture
def nic():
    return ModelNic(CONFIG, MacOptions(gbps=10), MemoryOptions(size=1 << 20), make_requester=StubRequester)


@pytest.fixture
def context(nic):
    return Context(nic, IDENTITY)


def new_pair(context):
    domain, queue = context.protection_domain(), context.completion_queue(16)
    return context.queue_pair(domain, queue), context.ev_profile([[0x10, 0x11, 0x12], [0x20]])


def ready_pair(context, **rts):
    pair, profile = new_pair(context)
    pair.to_init(profile, partition_key=0x8001)
    pair.to_rtr(Path(OWN, PEER), PEER_END, path_mtu=1024)
    pair.to_rts(**{"sq_psn": 0x123456, **rts})
    return pair


def requester(context):
    return context.nic._engine.requester


def test_identity_and_settings_reach_the_registers(nic):
    settings = Settings(trimming=True, sack_threshold=8192, base_rtt_ps=1_000_000, dscp_control=40)
    context = Context(nic, IDENTITY, settings)
    read = context.driver.read
    assert read("own_address") == OWN and read("own_usid") == 0x0801 and read("usid_block") == wire.USID_BLOCK
    assert [read("port_mac", plane) for plane in range(2)] == list(IDENTITY.macs)
    assert (read("trimming"), read("sack_threshold"), read("base_rtt"), read("control")) == (1, 8192, 8, 1)
    seen = nic._engine.settings
    assert (seen.own_address, seen.own_usid, seen.mac, seen.next_hop_mac) == (
        OWN, 0x0801, list(IDENTITY.macs), list(IDENTITY.next_hop_macs),
    )  # fmt: skip
    assert (seen.trimming, seen.enable, seen.dscp_control, seen.base_rtt) == (True, True, 40, 8)


def test_capabilities_and_hash_are_those_of_the_configuration(nic, context):
    config = CONFIG.as_dict()
    for name in ("planes", "mtu", "qps", "mpr_psns", "clock_ps", "immediates"):
        assert context.driver.read(f"capability_{name}") == config[name]
    nic.config = NicConfig.small()
    with pytest.raises(InfrastructureError, match="configuration must have hash 0x"):
        Driver(nic)


def test_every_register_answers_as_the_map_says(nic):
    described = {
        register.address(element, word): register
        for register in register_map()
        for element in range(
            min(register.count, CONFIG.planes) if register.name.startswith("port_") else register.count
        )
        for word in range(register.words)
    }
    for address in range(0, 0x400, 4):
        register = described.get(address)
        if register is not None and register.readable:
            assert 0 <= nic.read32(address) < 1 << 32
        else:
            with pytest.raises(RegisterError, match=f"register {address:#06x} must allow to be read"):
                nic.read32(address)
        if register is None or not register.writable:
            with pytest.raises(RegisterError, match="must allow to be written, got AXI response 2"):
                nic.write32(address, 0)


def test_half_a_wide_register_is_never_seen(context):
    register, nic = register_map()["own_address"], context.nic
    for word in range(3):
        nic.write32(register.address(0, word), 0xFFFFFFFF)
    assert context.driver.read("own_address") == OWN == nic._engine.settings.own_address
    nic.write32(register.address(0, 3), 5)
    assert context.driver.read("own_address") == nic._engine.settings.own_address == (5 << 96) + (1 << 96) - 1


def test_the_walk_to_rts_fills_the_tables(context):
    pair = ready_pair(context, timeout=8, retry=Retry(3, 20))
    read = context.driver.read_table
    send = read(TableId.QP_SEND, 0)
    assert (send["state"], send["mtu_log2"], send["timeout"], send["initial_psn"]) == (
        QpState.RTS, 10, 8, 0x123456,
    )  # fmt: skip
    assert read(TableId.QP_RECEIVE, 0) == {
        "state": QpState.RTR, "protection_domain": 0, "completion_queue": 0, "partition_key": 0x8001,
        "peer_qpn": 0x123, "in_order": 0, "initial_psn": 0xFFFFF0,
        "peer_high": PEER >> 64, "peer_low": PEER & 2**64 - 1,
        "cumulative_psn": 0xFFFFEF, "highest_psn": 0xFFFFEF, "message_number": 0, "received_units": 0,
    }  # fmt: skip
    assert [read(TableId.EV_SET, plane)["good"] for plane in range(2)] == [0b111, 1]
    assert read(TableId.EV_VALUE, 2) == {"value": 0x12, "port": 1}
    words = Path(OWN, PEER).template_words(destination_qpn=0x123, partition_key=0x8001, udp_port=4791)
    assert context.driver.read_words(TableId.TEMPLATE, 0, 16) == words
    assert (pair.state, pair.number) == (QpState.RTS, 0x100)


@pytest.mark.parametrize(
    "table, index",
    [
        (TableId.QP_RECEIVE, 4),
        (TableId.QP_SEND, 4),
        (TableId.SEND_REQUEST, 256),
        (TableId.RECEIVE_REQUEST, 64),
        (TableId.MEMORY_REGION, 8),
        (TableId.COMPLETION_QUEUE, 4),
        (TableId.TEMPLATE, 4),
        (ControlTableId.DEVICE, 1),
        (ControlTableId.QP_OPTION, 4),
    ],
)
def test_commands_beyond_a_table_are_refused(context, table, index):
    with pytest.raises(RegisterError, match=f"entry {index} of table {table.name} must allow"):
        context.driver.write_words(table, index, [0])


def test_counters_cannot_be_written_and_unknown_rings_are_refused(context):
    with pytest.raises(RegisterError):
        context.driver.write_words(TableId.COUNTER, 0, [1])
    with pytest.raises(RegisterError):
        context.driver.read_words(TableId.COUNTER, 2 * 32 + 16, 1)
    with pytest.raises(RegisterError):
        context.driver.write_table(TableId.COMPLETION_QUEUE, 0, {"base": 16, "enabled": 1})
    counters = read_counters(context.driver)
    assert set(counters.ports[0].values()) == set(counters.engine.values()) == {0}


def test_send_requests_reach_the_requester_in_order(context):
    pair = ready_pair(context)
    for number in range(70):
        if number == 40:
            requester(context).calls.clear()
            pair._sends.clear()
        pair.write(number, local_address=0, lkey=1, length=1, remote_address=0, rkey=1)
    assert [call[2] for call in requester(context).calls if call[0] == "post"] == list(range(40, 70))
    assert context.driver.read_table(TableId.SEND_REQUEST, 5)["wr_id"] == 69


def test_completions_over_several_laps_and_an_overrun(context):
    pair = ready_pair(context)
    engine, queue = context.nic._engine, pair.send_queue
    for lap in range(5):
        for number in range(10):
            engine.complete(0, 0, 10 * lap + number, WorkRequestOpcode.WRITE, 0, 7, 0, lap)
        assert queue.poll() == []
        context.nic.settle()
        completions = queue.poll(16)
        assert [item.wr_id for item in completions] == [10 * lap + number for number in range(10)]
        assert all(item.ok and item.message_number == lap and item.byte_length == 7 for item in completions)
    for number in range(17):
        engine.complete(0, 0, number, WorkRequestOpcode.WRITE, CompletionStatus.FLUSHED, 0, 0, 0)
    context.nic.settle()
    assert len(queue.poll(32)) == 16
    (event,) = context.poll_events()
    assert (event.kind, event.qp_number) == (EventKind.COMPLETION_OVERRUN, 0x100)
    engine_counters = read_counters(context.driver).engine
    assert (engine_counters["completions"], engine_counters["completion_overrun"]) == (66, 1)
    assert context.driver.read_table(TableId.QP_RECEIVE, 0)["state"] == QpState.ERROR


def test_completions_appear_at_the_time_of_their_watch(context):
    ready_pair(context)
    nic = context.nic
    begin = nic.time_ps
    nic.run(begin)
    nic._engine.complete(0, 0, 5, WorkRequestOpcode.WRITE, 0, 1, 0, 0)
    answer = begin + MemoryOptions().write_latency * CONFIG.clock_ps
    assert nic.run(answer).watches == [] and context.completion_queues[0].poll() == []
    (watch,) = nic.run(answer + 1).watches
    assert (watch.time_ps, watch.tag, watch.length) == (answer, 0, 32)
    assert [item.wr_id for item in context.completion_queues[0].poll()] == [5]


def test_an_error_is_told_once_to_both_halves_and_the_host(context):
    pair = ready_pair(context)
    pair.post_recv(5)
    engine = context.nic._engine
    engine.enter_error(0, QpErrorReason.RETRY_EXCEEDED)
    engine.enter_error(0, QpErrorReason.REMOTE_NAK)
    engine.enter_error(1, QpErrorReason.REMOTE_NAK)
    (event,) = context.poll_events()
    assert event.reason is pair.error_reason is QpErrorReason.RETRY_EXCEEDED
    assert requester(context).calls[-1] == ("error", 0)
    assert [item.wr_id for item in pair.receive_queue.poll()] == [5]


def test_events_beyond_the_queue_are_counted(context):
    engine = context.nic._engine
    for number in range(20):
        engine.event(EventKind.QP_ERROR, number, 1)
    assert len(context.nic.run(context.nic.time_ps + 1).interrupts) == 1
    assert [event.qp_number - 0x100 for event in context.poll_events()] == list(range(16))
    assert context.driver.read("event_dropped") == 4
    assert read_counters(context.driver).engine["events_dropped"] == 4


def test_links_and_port_administration(context):
    nic = context.nic
    begin = nic.time_ps
    nic.schedule_link(begin + 1000, 1, False)
    nic.schedule_link(begin + 3000, 1, True)
    nic.schedule_link(begin + 3000, 0, True)
    outputs = nic.run(begin + 2000)
    assert outputs.interrupts == [begin + 1000]
    assert not context.port_up(1) and context.port_up(0)
    nic.run(begin + 20_000)
    events = [context.driver.read_fields("event") for _ in range(3)]
    assert [(event["kind"], event["qp"], event["valid"]) for event in events] == [
        (EventKind.PORT_DOWN, 1, 1), (EventKind.PORT_UP, 1, 1), (0, 0, 0),
    ]  # fmt: skip
    context.set_ports([0])
    assert context.port_up(0) and not context.port_up(1)
    ports = [call for call in requester(context).calls if call[0] == "port"]
    assert ports == [("port", 1, False), ("port", 1, True), ("port", 1, False)]


def test_regions_translate_and_protect(context):
    domain, other = context.protection_domain(), context.protection_domain()
    buffer = context.allocator.allocate(8192)
    buffer.data[:] = np.arange(8192, dtype=np.uint16).astype(np.uint8)
    region = domain.register(buffer, Access.LOCAL_WRITE, address=0x1000)
    engine = context.nic._engine
    read = engine.read_memory
    assert read(domain.number, region.lkey, 0x1005, 10) == buffer.data[5:15].tobytes()
    assert read(domain.number, region.lkey, 0x1000 + 8190, 2) is not None
    for arguments in (
        (other.number, region.lkey, 0x1000, 1),
        (domain.number, region.lkey + 1, 0x1000, 1),
        (domain.number, 0x700, 0x1000, 1),
        (domain.number, 0x70000, 0x1000, 1),
        (domain.number, region.lkey, 0xFFF, 1),
        (domain.number, region.lkey, 0x1000 + 8190, 3),
    ):
        assert read(*arguments) is None
        assert engine.read_failure == QpErrorReason.LOCAL_PROTECTION
    assert engine.regions.translate(region.lkey, domain.number, 0x1000, 1, True) == -1
    context.nic.fail_memory(buffer.bus_address + 100, 1)
    assert read(domain.number, region.lkey, 0x1000 + 100, 1) is None
    assert engine.read_failure == QpErrorReason.LOCAL_READ
    assert read(domain.number, region.lkey, 0x1000, 100) is not None
    context.nic.clear_memory_errors()
    assert read(domain.number, region.lkey, 0x1000 + 100, 1) is not None
    region.deregister()
    assert read(domain.number, region.lkey, 0x1000, 1) is None


def test_the_notice_ring(context):
    ring = context.allocator.allocate(4 * 32, 32)
    write = context.driver.write_table
    fields = {"notice_base": ring.bus_address, "notice_log2_entries": 2, "notice_enabled": 1}
    engine = context.nic._engine
    engine.notice({"kind": 0, "value": 1})
    write(ControlTableId.DEVICE, 0, fields)
    for value in range(2, 8):
        engine.notice({"kind": 0, "value": value})
    context.nic.settle()
    words = ring.data.view(np.uint64).reshape(4, 4)
    assert [int(row[1]) for row in words] == [2 | 1 << 32, 3, 4, 5]
    assert all(int(row[3]) >> 63 for row in words)
    state = context.driver.read_table(ControlTableId.DEVICE, 0)
    assert (state["notice_producer"], state["notice_dropped"]) == (4, 3)
    assert state["flags"] & DeviceFlag.EV_STATES and not state["flags"] & DeviceFlag.EV_EXPLICIT_RANGE
    write(ControlTableId.DEVICE, 0, {**fields, "notice_consumer": 4})
    engine.notice({"kind": 0, "value": 9})
    context.nic.settle()
    assert int(words[0][1]) == 9 | 2 << 32 and not int(words[0][3]) >> 63


def test_scheduled_calls_take_effect_at_their_time(context):
    pair = ready_pair(context)
    nic = context.nic
    begin = nic.time_ps
    with context.driver.at(begin + 50_000_000):
        pair.write(1, local_address=0, lkey=1, length=1, remote_address=0, rkey=1)
        pair.modify(QpState.ERROR)
    nic.run(begin + 50_000_000)
    assert not requester(context).calls
    outputs = nic.run(begin + 50_000_001)
    assert requester(context).calls == [("post", 0, 1)]
    assert context.take_reads(outputs.reads) == []
    assert context.driver.read_table(TableId.QP_SEND, 0)["state"] == QpState.ERROR


def test_refused_scheduled_accesses(context):
    nic = context.nic
    nic.schedule_write(nic.time_ps + 5, 0x3FC, 1)
    with pytest.raises(RegisterError, match="register 0x03fc must allow to be written"):
        nic.run(nic.time_ps + 10)
    with context.driver.at(nic.time_ps + 10):
        context.driver.write_table(TableId.MEMORY_REGION, 100, {})
    with pytest.raises(RegisterError, match="a table command before"):
        context.take_reads(nic.run(nic.time_ps + 20).reads)
    for call in (
        lambda: nic.schedule_write(nic.time_ps - 1, 0, 0),
        lambda: nic.schedule_link(nic.time_ps - 1, 0, True),
        lambda: nic.deliver(0, nic.time_ps - 1, b"x"),
        lambda: nic.deliver(2, nic.time_ps, b"x"),
        lambda: nic.deliver(0, nic.time_ps, b""),
        lambda: nic.run(nic.time_ps - 1),
        lambda: nic.read32(2),
        lambda: nic.write32(0, 1 << 32),
        lambda: nic.schedule_read(nic.time_ps, 0, -1),
        lambda: nic.watch(9, 0, 2 << 20),
    ):
        with pytest.raises(ValueError, match="must"):
            call()


def test_a_full_receive_queue_is_refused_and_flushed_by_software(context):
    pair = ready_pair(context)
    for number in range(16):
        pair.post_recv(1000 + number)
    with pytest.raises(VerbsError):
        pair.post_recv(9)
    assert context.driver.read_table(TableId.RECEIVE_REQUEST, 15)["wr_id"] == 1015
    pair.destroy()
    assert context.driver.read_table(TableId.QP_RECEIVE, 0)["state"] == QpState.RESET


@pytest.mark.parametrize("service_time", [True, False])
def test_a_device_says_whether_it_takes_out_its_service_time(service_time):
    nic = ModelNic(CONFIG, options=ModelOptions(service_time=service_time))
    context = Context(nic, IDENTITY)
    assert context.capabilities.svc_time is service_time
    pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
    assert pair.endpoint().svc_time is service_time
    assert bool(DeviceFlag.SVC_TIME & context.capabilities.flags) is service_time
