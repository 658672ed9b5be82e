"""The receiving half of the model, packet by packet.

Sweep: every outcome of an arriving packet, every SACK trigger, trims, probes, endpoint operations, faults of
    memory, life of a QP, options.
Stimulus: frames made by a peer, in and out of order, on both planes.
Checks: counters by reason, content of each answer, memory, completions and the time at which they appear.
Timing: data is placed, and answered, one memory latency behind its arrival and not before.
"""

import pytest
from peer import (
    CONFIG,
    EVS,
    FIRST_PSN,
    NIC_ADDRESS,
    NIC_USID,
    PEER_ADDRESS,
    PEER_QPN,
    PEER_USID,
    WRITE_CYCLES,
    Bench,
)

from mrc_host.model.packet import ModelPacket
from mrc_host.nic.base import Watch
from mrc_host.nic.device import Endpoint, QpErrorReason, QpState
from mrc_host.packets.trim import set_dscp, trim
from mrc_rtl import wire
from mrc_rtl.config import TICK_PS
from mrc_rtl.records import TraceKind
from mrc_rtl.tables import ControlTableId
from mrc_rtl.wire import AethSyndrome, EndpointOp, Mark, NackReason, Opcode


def psn(number):
    return FIRST_PSN + number & 0xFFFFFF


def kinds(packets):
    return [Opcode(packet.opcode).name for packet in packets]


def of_kind(packets, opcode):
    return [packet for packet in packets if packet.opcode == opcode]


# -- placement -------------------------------------------------------------------------------------------


def test_data_is_placed_and_answered_a_memory_latency_after_it_came():
    bench = Bench()
    bench.nic.watch(77, bench.buffer.bus_address, bench.buffer.length)
    last_bit = bench.send(bench.write(0, b"abcde", offset=100, ack_request=True))
    answers = bench.run()
    assert kinds([item.packet for item in answers]) == ["SACK", "ACKNOWLEDGE"]
    (watch,) = bench.outputs[0].watches
    decided = last_bit + 24 * CONFIG.clock_ps
    placed = decided + WRITE_CYCLES * CONFIG.clock_ps
    assert watch == Watch(placed, 77, bench.buffer.bus_address + 100, 5)
    assert bench.buffer.data[99:106].tobytes() == b"\0abcde\0"
    sack = answers[0].packet
    assert answers[0].time_ps == placed + 24 * CONFIG.clock_ps + 800 * (154 + 12)
    assert (sack.cumulative_psn, sack.psn, sack.acknowledged_psn) == (psn(0), psn(0), psn(0))
    assert (sack.sack_base, sack.sack_bitmap, sack.out_of_order) == (psn(1), 0, 0)
    assert (sack.entropy, sack.mark, sack.probe, sack.mpr_units) == (EVS[0][0], Mark.NONE, False, 1)
    assert (sack.destination_qpn, sack.source_context, sack.destination_context) == (PEER_QPN, 0x100, 0x345)
    # UDP 8, BTH 12, METH 4, TSETH 4, RETH 16, payload and pad 8, ICRC 4, and 40: 96 bytes are one unit.
    assert sack.received_units == 1
    service = placed // TICK_PS - last_bit // TICK_PS
    assert sack.timestamp == 0x1000 + service
    assert sack.traffic_class == wire.Dscp.CONTROL << 2
    acknowledge = answers[1].packet
    assert (acknowledge.syndrome, acknowledge.psn, acknowledge.message_number) == (0x1F, psn(0), 1)
    assert bench.counters() == {"rx_frames": 1, "accepted": 1, "tx_frames": 2, "tx_control": 2}
    assert bench.engine_counters == {"sack_sent": 1, "ack_sent": 1}


def test_packets_in_any_order_fill_the_window_once():
    bench = Bench()
    order = [5, 0, 3, 1, 127, 2, 4]
    for number in order:
        content = bytes([number]) * 512
        bench.send(bench.write(number, content, offset=512 * number), plane=number % 2)
    bench.run()
    row = bench.tracker_row()
    assert (row["cumulative_psn"], row["highest_psn"], row["message_number"]) == (psn(5), psn(127), 6)
    for number in range(128):
        expected = number if number in order else 0
        assert set(bench.buffer.data[512 * number : 512 * number + 512].tobytes()) == {expected}
    assert row["received_units"] == -(-7 * (88 + 512) // 256)


def test_a_claimed_packet_is_a_duplicate_before_it_is_placed():
    bench = Bench(write_latency=2000)
    bench.send(bench.write(0, b"first"))
    bench.send(bench.write(0, b"other"))
    assert kinds(bench.answers(4_000_000)) == ["SACK"]
    assert bench.tracker_row()["cumulative_psn"] == psn(-1)
    bench.run()
    assert bench.buffer.data[:5].tobytes() == b"first"
    assert bench.tracker_row()["cumulative_psn"] == psn(0)
    assert bench.counters()["duplicate"] == 1


def test_payload_of_nothing_needs_no_region():
    bench = Bench()
    bench.pair.post_recv(9)
    bench.send(bench.write(0, b"", Opcode.WRITE_ONLY_IMM, remote_key=0, immediate=5, ack_request=True))
    assert kinds(bench.answers()) == ["SACK", "ACKNOWLEDGE"]
    (completion,) = bench.queue.poll()
    assert (completion.immediate, completion.byte_length, completion.wr_id) == (5, 0, 9)


# -- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, outcome",
    [
        ({"destination": "0x101"}, "drop_qp"),
        ({"destination": "0x2"}, "drop_qp"),
        ({"destination": "0x900"}, "drop_qp"),
        ({"source": "other"}, "drop_peer"),
        ({"key": 0x8001}, "drop_pkey"),
    ],
)
def test_packets_for_nobody_here(change, outcome):
    bench = Bench()
    template = bench.template
    if "destination" in change:
        template.destination_qpn = int(change["destination"], 16)
    if "source" in change:
        template.inner = wire.inner_address(9).to_bytes(16, "big") + template.inner[16:]
    template.partition_key = change.get("key", 0xFFFF)
    bench.send(bench.write(0))
    assert bench.answers() == []
    assert bench.counters() == {"rx_frames": 1, outcome: 1}
    assert not bench.buffer.data.any()
    if outcome == "drop_pkey":
        relaxed = Bench({"partition_keys": "any"})
        relaxed.template.partition_key = 0x8001
        relaxed.send(relaxed.write(0))
        relaxed.run()
        assert relaxed.counters()["accepted"] == 1


def test_damaged_frames_are_counted_and_change_nothing():
    bench = Bench()
    bench.send(bench.write(0), bad_fcs=True)
    bench.send(bench.write(0), edit=lambda frame: frame[:-9] + b"!" + frame[-8:])
    bench.send(bench.write(0), edit=lambda frame: frame[:150])
    assert bench.answers() == []
    assert bench.counters() == {"rx_frames": 3, "drop_frame_error": 1, "drop_icrc": 1, "drop_truncated": 1}
    assert bench.tracker_row()["highest_psn"] == psn(-1)


def test_out_of_window_is_answered_once_a_round_trip():
    bench = Bench()
    for number in (128, 129, -(1 << 23)):
        bench.send(bench.write(number))
    (nack,) = bench.answers()
    assert (nack.opcode, nack.reason, nack.psn) == (Opcode.NACK, NackReason.PSN_OOR_WINDOW, psn(128))
    assert nack.acknowledged_psn == psn(128) and nack.entropy == EVS[0][0]
    bench.send(bench.write(500))
    assert kinds(bench.answers()) == ["NACK"]
    assert bench.counters()["drop_window"] == 4
    silent = Bench({"out_of_window": "drop"})
    silent.send(silent.write(128))
    assert silent.answers() == [] and silent.counters()["drop_window"] == 1


def test_the_window_is_that_of_the_qp():
    bench = Bench()
    bench.context.driver.write_table(ControlTableId.QP_OPTION, 0, {"own_mpr_psns": 64})
    bench.send(bench.write(63))
    bench.send(bench.write(64))
    bench.run()
    assert (bench.counters()["accepted"], bench.counters()["drop_window"]) == (1, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"remote_key": 0},
        {"remote_key": 0x7FFFFF00},
        {"address": 0},
        {"address": "behind"},
        {"remote_key": "old"},
        {"remote_key": "read only"},
        {"remote_key": "other domain"},
    ],
)
def test_a_violation_of_rights_is_a_nak_and_an_error(fields):
    bench = Bench()
    key = fields.get("remote_key")
    if key == "old":
        fields = {"remote_key": bench.region.rkey}
        bench.region.deregister()
        bench.domain.register(bench.buffer)
    elif key == "read only":
        fields = {"remote_key": bench.domain.register(bench.buffer).rkey}
    elif key == "other domain":
        other = bench.context.protection_domain()
        fields = {"remote_key": other.register(bench.buffer, bench.region.access).rkey}
    elif fields.get("address") == "behind":
        fields = {"address": bench.buffer.address + bench.buffer.length - 63}
    bench.send(bench.write(0, b"x" * 64, **fields))
    bench.send(bench.write(1))
    answers = bench.answers()
    assert kinds(answers) == ["ACKNOWLEDGE", "NACK"]
    assert (answers[0].syndrome, answers[0].psn) == (AethSyndrome.NAK_REMOTE_ACCESS, psn(0))
    assert answers[1].reason == NackReason.UNEXP_EVENT
    (event,) = bench.context.poll_events()
    assert event.reason is QpErrorReason.REMOTE_ACCESS and bench.state == QpState.ERROR
    assert bench.counters()["drop_access"] == bench.counters()["drop_qp"] == 1
    assert not bench.buffer.data.any() and bench.calls[-1] == ("error", 0)


def test_a_memory_error_is_told_to_both_ends():
    bench = Bench({"error_nack": False})
    bench.nic.fail_memory(bench.buffer.bus_address + 10, 1)
    bench.send(bench.write(0, b"x" * 64))
    bench.send(bench.write(1, b"y" * 64, offset=100))
    (nak,) = bench.answers()
    assert (nak.opcode, nak.syndrome, nak.psn) == (
        Opcode.ACKNOWLEDGE, AethSyndrome.NAK_REMOTE_OPERATIONAL, psn(0),
    )  # fmt: skip
    (event,) = bench.context.poll_events()
    assert event.reason is QpErrorReason.REMOTE_OPERATION
    assert not bench.buffer.data[:100].any()
    assert bench.engine_counters == {"nak_sent": 1, "write_errors": 1}


def test_a_full_buffer_is_a_nack_or_silence():
    for nacks in (True, False):
        bench = Bench({"resource_nack": nacks}, write_latency=10_000)
        for number in range(18):
            bench.send(bench.write(number, b"z" * 1024))
        answers = of_kind(bench.answers(19_000_000), Opcode.NACK)
        assert [(item.reason, item.psn) for item in answers] == [
            (NackReason.NO_PKT_BUFFER, psn(number)) for number in (16, 17) if nacks
        ]
        assert bench.counters()["drop_no_pkt_buffer"] == 2
        bench.run(100_000_000)
        bench.send(bench.write(16))
        bench.run(100_000_000)
        assert bench.tracker_row()["cumulative_psn"] == psn(16)


# -- SACKs -----------------------------------------------------------------------------------------------


def test_the_byte_count_and_each_strong_trigger():
    bench = Bench()
    for number in range(4):
        bench.send(bench.write(number, b"x" * 1024))
    assert bench.answers() == []
    bench.send(bench.write(4, b"x"))
    assert kinds(bench.answers()) == ["SACK", "ACKNOWLEDGE"]
    bench.send(bench.write(5), edit=lambda frame: frame[:15] + bytes([frame[15] | 0x30]) + frame[16:])
    answers = bench.answers()
    assert answers[0].mark == Mark.SKIP_ONCE
    bench.send(bench.write(6, retransmission=True))
    (sack, _) = bench.answers()
    assert sack.retransmission and sack.mark == Mark.NONE
    bench.send(bench.write(9))
    assert bench.answers() == []
    bench.send(bench.write(9))
    assert kinds(bench.answers()) == ["SACK"]
    bench.send(bench.write(7, opcode=Opcode.WRITE_FIRST))
    assert bench.answers() == []
    bench.send(bench.write(3))
    sack, acknowledge = bench.answers()
    assert (sack.acknowledged_psn, sack.cumulative_psn) == (psn(3), psn(7))
    assert (acknowledge.psn, acknowledge.message_number) == (psn(7), 7)


def test_an_answer_asked_for_during_disorder_comes_again_when_it_ends():
    bench = Bench()
    bench.send(bench.write(1, opcode=Opcode.WRITE_LAST, ack_request=True))
    first = bench.answers()
    assert kinds(first) == ["SACK", "ACKNOWLEDGE"]
    assert (first[0].cumulative_psn, first[0].out_of_order, first[0].sack_bitmap) == (psn(-1), 1, 1)
    assert first[0].sack_base == psn(1) and first[1].message_number == 0
    bench.send(bench.write(0, opcode=Opcode.WRITE_FIRST))
    second = bench.answers()
    assert kinds(second) == ["SACK", "ACKNOWLEDGE"]
    assert (second[0].cumulative_psn, second[0].out_of_order) == (psn(1), 0)
    assert second[1].message_number == 1


def test_one_acknowledgement_a_message_when_told_so():
    bench = Bench({"transport_ack": "each"})
    for number in range(3):
        bench.send(bench.write(number))
    answers = bench.answers()
    assert [(packet.psn, packet.message_number) for packet in answers] == [
        (psn(number), number + 1) for number in range(3)
    ]
    assert {packet.opcode for packet in answers} == {Opcode.ACKNOWLEDGE}


@pytest.mark.parametrize("threshold", [1024, 1500, 4096])
def test_echoes_cover_all_planes(threshold):
    bench = Bench()
    bench.context.driver.write("sack_threshold", threshold)
    planes = set()
    for number in range(60):
        plane = number % 2
        bench.send(bench.write(number, b"x" * 1024), plane=plane, ev=EVS[plane][number % 4])
        for sack in of_kind(bench.answers(2_000_000), Opcode.SACK):
            planes.add(wire.EV.unpack(sack.entropy)["plane"])
            assert wire.EV.unpack(sack.ev)["plane"] == wire.EV.unpack(sack.entropy)["plane"]
    assert planes == {0, 1}


def test_the_state_is_that_of_the_moment_a_sack_leaves():
    bench = Bench()
    requester = bench.engine.requester
    requester.hold = True
    bench.send(bench.write(0, ack_request=True))
    bench.send(bench.write(1))
    bench.run()
    requester.hold = False
    bench.nic.schedule_read(bench.nic.time_ps, 0, 5)
    sack, acknowledge = bench.answers()
    assert (sack.cumulative_psn, sack.acknowledged_psn) == (psn(1), psn(0))
    assert (acknowledge.psn, acknowledge.message_number) == (psn(1), 2)
    # The whole wait is service time.
    assert sack.timestamp - 0x1000 >= 19_000_000 // TICK_PS


def test_waiting_answers_are_bounded():
    bench = Bench()
    bench.engine.requester.hold = True
    for number in range(30):
        bench.send(bench.write(number, b"x" * 8, ack_request=number >= 20))
        bench.send(bench.write(number, b"x" * 1024))
    bench.run(100_000_000)
    bench.engine.requester.hold = False
    bench.nic.schedule_read(bench.nic.time_ps, 0, 5)
    answers = bench.answers(100_000_000)
    assert len(answers) <= 17
    counters = bench.engine_counters
    assert counters["sack_sent"] == len(of_kind(answers, Opcode.SACK))
    assert counters["sack_triggers_dropped"] > 0
    bench.send(bench.write(30, ack_request=True))
    assert kinds(bench.answers()) == ["SACK", "ACKNOWLEDGE"]


def test_service_time_can_be_left_in():
    bench = Bench({"service_time": False}, write_latency=1000)
    bench.send(bench.write(0, ack_request=True))
    assert bench.answers()[0].timestamp == 0x1000
    bench.send(bench.write(1, ack_request=True, timestamped=False))
    assert bench.answers()[0].timestamp == 0


def test_penalty_and_mpr_follow_the_buffer():
    bench = Bench({"penalty_start_permille": 250, "advertise_mpr": "buffer"}, write_latency=20_000)
    bench.context.driver.write_table(ControlTableId.QP_OPTION, 0, {"own_mpr_psns": 0})
    for number in range(8):
        bench.send(bench.write(number, b"x" * 1024))
    bench.send(bench.write(3, b"x" * 8))
    (sack,) = bench.answers(10_000_000)
    assert (sack.penalty, sack.restore, sack.mpr_units) == (250 * 127 // 750, False, 1)
    bench.run(200_000_000)
    bench.send(bench.write(3, b"x" * 8))
    sack = bench.answers()[0]
    assert (sack.penalty, sack.restore) == (0, True)


def test_always_skip_after_a_row_of_marks():
    bench = Bench({"always_skip_after": 2})

    def mark(frame):
        return frame[:15] + bytes([frame[15] | 0x30]) + frame[16:]

    marks = []
    for number, edit in enumerate([mark, mark, None, mark, mark, mark]):
        bench.send(bench.write(number, ack_request=True), edit=edit)
        marks.append(Mark(bench.answers()[0].mark).name)
    assert marks == ["SKIP_ONCE", "ALWAYS_SKIP", "NONE", "SKIP_ONCE", "ALWAYS_SKIP", "ALWAYS_SKIP"]


# -- trims and probes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("last_hop", [False, True])
@pytest.mark.parametrize("size", [118, 122, 138])
def test_trimmed_packets_are_answered_and_change_nothing(last_hop, size):
    bench = Bench()
    bench.send(bench.write(2, b"x" * 600), edit=lambda frame: trim(frame, size, True, last_hop))
    (nack,) = bench.answers()
    reason = NackReason.TRIMMED_LASTHOP if last_hop else NackReason.TRIMMED
    assert (nack.opcode, nack.reason, nack.psn, nack.entropy) == (Opcode.NACK, reason, psn(2), EVS[0][0])
    assert (nack.timestamp >= 0x1002) == (size >= 122)
    assert bench.counters()["trimmed_answered"] == 1 and not bench.buffer.data.any()
    bench.send(bench.write(2, b"x" * 600))
    bench.run()
    bench.send(bench.write(2, b"x" * 600), edit=lambda frame: trim(frame, size, True, last_hop))
    (sack,) = bench.answers()
    assert (sack.opcode, sack.acknowledged_psn) == (Opcode.SACK, psn(2))
    assert bench.counters()["trimmed_answered"] == 2


def test_probes_are_answered_with_their_id_and_mark():
    bench = Bench()
    bench.send(bench.write(1))
    bench.run()
    probe = ModelPacket(int(Opcode.PROBE))
    probe.probe_id, probe.timestamped, probe.timestamp = 0xBEEF, True, 0x2000
    bench.send(probe, plane=1, edit=lambda frame: frame[:15] + bytes([frame[15] | 0x30]) + frame[16:])
    (sack,) = bench.answers()
    assert (sack.probe, sack.probe_id, sack.mark, sack.entropy) == (True, 0xBEEF, Mark.SKIP_ONCE, EVS[1][0])
    assert (sack.cumulative_psn, sack.sack_base, sack.sack_bitmap) == (psn(-1), psn(1), 1)
    assert 0x2000 <= sack.timestamp < 0x2010
    bench.send(probe, edit=lambda frame: set_dscp(frame, wire.Dscp.TRIMMED))
    assert bench.answers() == []
    assert bench.counters(1)["control"] == 1 and bench.counters()["trim_ignored"] == 1


def test_feedback_reaches_the_requester():
    bench = Bench()
    for opcode in (Opcode.SACK, Opcode.ACKNOWLEDGE, Opcode.NACK):
        packet = ModelPacket(int(opcode), 0, 5)
        packet.acknowledged_psn = packet.cumulative_psn = packet.sack_base = 5
        bench.send(packet)
    bench.run()
    assert bench.calls == [("sack", 0, 5), ("ack", 0, 5), ("nack", 0, 5)]
    assert bench.engine_counters == {"sack_received": 1, "ack_received": 1, "nack_received": 1}


# -- immediates ------------------------------------------------------------------------------------------


def immediate(bench, number, rqmsn, **fields):
    return bench.write(
        number, bytes([number + 1]) * 16, Opcode.WRITE_ONLY_IMM, offset=16 * number,
        receive_number=rqmsn, message_number=number, immediate=0xA0 + rqmsn, **fields,
    )  # fmt: skip


def test_completions_come_in_the_order_of_their_numbers_and_behind_the_data():
    bench = Bench()
    for number in range(3):
        bench.pair.post_recv(100 + number)
    bench.send(immediate(bench, 2, 2))
    bench.send(immediate(bench, 1, 1))
    bench.run()
    assert bench.queue.poll() == []
    last_bit = bench.send(immediate(bench, 0, 0))
    bench.run()
    completions = bench.queue.poll()
    assert [(item.wr_id, item.immediate, item.byte_length) for item in completions] == [
        (100 + number, 0xA0 + number, 16) for number in range(3)
    ]
    assert [item.message_number for item in completions] == [0, 1, 2]
    written = [watch.time_ps for watch in bench.outputs[-1].watches]
    assert min(written) == last_bit + (24 + 2 * WRITE_CYCLES) * CONFIG.clock_ps


def test_no_receive_posted_is_an_error_not_a_retry():
    bench = Bench({"error_nack": False})
    bench.pair.post_recv(100)
    bench.send(immediate(bench, 0, 0))
    bench.send(immediate(bench, 1, 1))
    naks = [packet for packet in bench.answers() if packet.syndrome >= 0x60]
    assert [(nak.syndrome, nak.psn) for nak in naks] == [(AethSyndrome.NAK_INVALID_REQUEST, psn(1))]
    assert [item.wr_id for item in bench.queue.poll()] == [100]
    (event,) = bench.context.poll_events()
    assert event.reason is QpErrorReason.INVALID_REQUEST


@pytest.mark.parametrize("rqmsn", [32, 40, 0xFFFF, 3])
def test_more_immediates_than_allowed(rqmsn):
    bench = Bench({"error_nack": False})
    bench.pair.post_recv(100)
    bench.send(immediate(bench, 3, 3))
    bench.send(immediate(bench, 5, rqmsn))
    (nak,) = [packet for packet in bench.answers() if packet.syndrome >= 0x60]
    assert (nak.syndrome, nak.psn) == (AethSyndrome.NAK_INVALID_REQUEST, psn(5))
    assert bench.state == QpState.ERROR


def test_the_stash_is_as_large_as_the_qp_was_told():
    bench = Bench()
    bench.context.driver.write_table(ControlTableId.QP_OPTION, 0, {"own_max_immediates": 2})
    bench.send(immediate(bench, 1, 1))
    bench.run()
    assert bench.state == QpState.RTR
    bench.send(immediate(bench, 2, 2))
    bench.run()
    assert bench.state == QpState.ERROR


# -- endpoint operations and reverse path ----------------------------------------------------------------


def request(operation, number=0x123, mask=0):
    packet = ModelPacket(int(Opcode.ENDPOINT_REQUEST), 0, number)
    packet.operation, packet.port_mask = int(operation), mask
    packet.timestamped, packet.timestamp = True, 0x4000
    return packet


def test_port_status_updates_are_answered_and_handed_over():
    bench = Bench()
    bench.send(request(EndpointOp.PORT_STATUS_UPDATE, mask=0b10), plane=1)
    (answer,) = bench.answers()
    assert (answer.opcode, answer.psn, answer.operation, answer.destination_qpn) == (
        Opcode.ENDPOINT_RESPONSE, 0x123, EndpointOp.PORT_STATUS_UPDATE, 2,
    )  # fmt: skip
    assert 0x4000 <= answer.timestamp < 0x4010
    assert bench.calls == [("ports", PEER_ADDRESS, 0b10)]
    assert bench.counters(1)["control"] == 1


def test_a_probe_of_a_host_without_connection_is_answered_on_its_path():
    bench = Bench()
    packet = request(EndpointOp.EV_PROBE)
    packet.destination = NIC_ADDRESS
    stranger = wire.inner_address(77)
    bench.template.inner = stranger.to_bytes(16, "big") + bench.template.inner[16:]
    bench.send(packet, plane=1, ev=wire.ev_value(1, 3))
    (frame,) = bench.nic.run(bench.nic.time_ps + 20_000_000).frames
    assert frame.port == 1
    outer = [int.from_bytes(frame.data[at : at + 16], "big") for at in (22, 38)]
    assert outer == [
        wire.outer_address([0x1001, 0x1000 | NIC_USID]),
        wire.outer_address([0x1001, 0x1403, 0x1002, 0x1000 | PEER_USID]),
    ]
    assert frame.data[78:94] == stranger.to_bytes(16, "big")
    assert bench.counters(1)["control"] == 1


def test_own_probes_come_home_as_their_own_answer():
    bench = Bench()
    bench.template.inner = NIC_ADDRESS.to_bytes(16, "big") * 2
    bench.send(request(EndpointOp.EV_PROBE, 0x77), plane=1)
    assert bench.answers() == []
    assert bench.calls == [("response", 0x77, 1)]


def test_reverse_evs_are_probed_confirmed_and_used():
    bench = Bench({"reverse_probes": True})
    rtt = 8 * TICK_PS
    probes, number = [], 0
    while len(probes) < 2:
        bench.send(bench.write(number), plane=number % 2)
        probes += of_kind(bench.answers(2 * rtt), Opcode.ENDPOINT_REQUEST)
        number += 1
    assert [probe.plane for probe in probes] == [0, 1]
    for probe in probes:
        assert probe.ev in EVS[probe.plane] and probe.operation == EndpointOp.EV_PROBE
        answer = ModelPacket(int(Opcode.ENDPOINT_RESPONSE), 0, probe.psn)
        bench.send(answer, plane=probe.plane)
    bench.run(2 * rtt)
    for plane, probe in enumerate(probes):
        bench.send(bench.write(number, ack_request=True), plane=plane)
        sacks = of_kind(bench.answers(2 * rtt), Opcode.SACK)
        assert [sack.ev for sack in sacks] == [probe.ev]
        number += 1


def test_no_probes_while_the_qp_sends_or_when_switched_off():
    for options, sends in (
        ({}, True),
        ({"reverse_probes": False}, False),
        ({"control_path": "ingress"}, False),
    ):
        bench = Bench(options)
        found = []
        for number in range(5):
            if sends:
                bench.engine.requester.sent_ps[0] = bench.nic.time_ps
            bench.send(bench.write(number))
            found += of_kind(bench.answers(1_000_000), Opcode.ENDPOINT_REQUEST)
        assert found == []


def test_answers_leave_a_plane_whose_way_back_is_not_confirmed_any_more():
    bench = Bench({"reverse_probes": False})
    engine = bench.engine
    engine.confirm_ev(0, 0, EVS[0][1])
    engine.confirm_ev(0, 1, EVS[1][1])
    bench.send(bench.write(0, ack_request=True), plane=0)
    assert bench.answers()[0].ev == EVS[0][1]
    bench.run(20_000_000)
    engine.confirm_ev(0, 1, EVS[1][2])
    bench.send(bench.write(1, ack_request=True), plane=0)
    assert bench.answers()[0].ev == EVS[1][2]


# -- life of a QP ----------------------------------------------------------------------------------------


def test_a_reset_waits_for_the_data_in_flight():
    bench = Bench(write_latency=5000)
    bench.send(bench.write(0, b"late!"))
    bench.run(1_000_000)
    begin = bench.nic.time_ps
    bench.pair.modify(QpState.RESET)
    assert bench.nic.time_ps - begin > 15_000_000
    assert bench.buffer.data[:5].tobytes() == b"late!"
    bench.connect(first_psn=0x900000)
    bench.send(bench.write(0))
    assert bench.answers()[0].reason == NackReason.PSN_OOR_WINDOW
    bench.send(bench.write(0, psn=0x900000, ack_request=True))
    assert kinds(bench.answers(30_000_000)) == ["SACK", "ACKNOWLEDGE"]
    row = bench.tracker_row()
    assert (row["cumulative_psn"], row["message_number"]) == (0x900000, 1)


def test_deregistering_waits_for_the_data_in_flight():
    bench = Bench(write_latency=5000)
    bench.send(bench.write(0, b"late!"))
    bench.run(1_000_000)
    begin = bench.nic.time_ps
    bench.region.deregister()
    assert bench.nic.time_ps - begin > 15_000_000
    assert bench.buffer.data[:5].tobytes() == b"late!"
    bench.send(bench.write(1))
    bench.run()
    assert bench.counters()["drop_access"] == 1


def test_scheduled_accesses_wait_behind_a_reset():
    bench = Bench(write_latency=5000)
    bench.send(bench.write(0, b"late!"))
    begin = bench.nic.time_ps
    with bench.context.driver.at(begin + 1_000_000):
        bench.pair.modify(QpState.RESET)
    outputs = bench.nic.run(begin + 60_000_000)
    times = [read.time_ps for read in outputs.reads]
    assert len(times) == 4 and times[0] == begin + 1_000_000 and times[-1] > begin + 15_000_000
    assert bench.context.take_reads(outputs.reads) == []


def test_a_qp_that_does_not_receive_drops():
    bench = Bench(connect=False)
    bench.send(bench.write(0))
    bench.run()
    bench.pair.to_init(bench.profile)
    bench.send(bench.write(0))
    assert bench.answers() == []
    assert bench.counters() == {"rx_frames": 2, "drop_qp": 2}


def test_going_to_rts_does_not_disturb_the_receiving_half():
    bench = Bench(connect=False)
    bench.pair.to_init(bench.profile)
    end = Endpoint(PEER_QPN, FIRST_PSN, PEER_ADDRESS, mpr=1, max_wimm=32)
    from peer import NIC_HOST, outer

    from mrc_host.nic.device import Path

    bench.pair.to_rtr(Path(NIC_ADDRESS, PEER_ADDRESS, outer(NIC_HOST)), end, path_mtu=1024)
    bench.send(bench.write(0))
    bench.run()
    bench.pair.to_rts()
    assert bench.tracker_row()["cumulative_psn"] == psn(0)


def test_frames_are_lost_without_link_or_with_the_engine_off():
    bench = Bench()
    bench.nic.schedule_link(bench.nic.time_ps, 0, False)
    bench.send(bench.write(0))
    bench.run()
    assert bench.nic.statistics.lost_link_down == 1 and bench.counters() == {}
    bench.nic.schedule_link(bench.nic.time_ps, 0, True)
    bench.context.driver.write_fields("control", enable=0)
    bench.send(bench.write(0))
    bench.run()
    assert bench.counters() == {}


def test_outputs_do_not_depend_on_the_windows():
    def outcome(window_ps):
        bench = Bench(latency_jitter=50, seed=3)
        for number in (3, 0, 2, 7, 1, 4, 6, 5):
            bench.pair.post_recv(number)
            bench.send(immediate(bench, number, number), plane=number % 2)
        begin, found = bench.nic.time_ps, []
        while bench.nic.time_ps < begin + 30_000_000:
            outputs = bench.nic.run(bench.nic.time_ps + window_ps)
            found += [(frame.time_last_bit_ps, repr(frame)) for frame in outputs.frames]
            found += [(watch.time_ps, repr(watch)) for watch in outputs.watches]
        return sorted(found)

    reference = outcome(30_000_000)
    assert len(reference) > 8
    assert outcome(1_000) == outcome(777_777) == reference


def test_decisions_are_traced():
    bench = Bench(config=CONFIG.with_(trace=True))
    bench.send(bench.write(1))
    bench.send(bench.write(0))
    bench.run()
    records = [(TraceKind(item.kind).name, item.psn, item.detail) for item in bench.outputs[0].trace]
    assert records == [
        ("ADMIT", psn(1), 1 | psn(0) << 16),
        ("PLACE", psn(1), psn(0) | 1 << 24),
        ("ADMIT", psn(0), 1 | psn(0) << 16),
        ("PLACE", psn(0), psn(2) | 0 << 24 | 1 << 40),
    ]
