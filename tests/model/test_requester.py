"""The model's requester on a bench shell, with the test as its peer.

Sweep: every send condition, reaction to feedback, error, and table of the requester.
Stimulus: posts, SACKs, NACKs, transport ACKs, timers, ports.
Checks: the packets that leave (header by header where it matters), states of EVs, completions, counters.
Timing: simulated; deadlines to the picosecond.
"""

import pytest
from bench_shell import BASE_RTT_PS, FIRST, MTU, PEER, US, Bench

from mrc_host.errors import ConfigError
from mrc_host.model.ev_set import PathState
from mrc_host.model.packet import UNBOUND, ModelPacket
from mrc_rtl.config import TICK_PS
from mrc_rtl.records import GlobalCounter
from mrc_rtl.tables import (
    CompletionStatus,
    ControlTableId,
    EndpointStatus,
    EvState,
    NoticeKind,
    QpErrorReason,
    QpState,
    TableId,
)
from mrc_rtl.wire import AethSyndrome, Dscp, EndpointOp, Mark, NackReason, Opcode

T_PS = 1_024_000 << 7
W_PS = BASE_RTT_PS // 2
SUCCESS, FLUSHED = CompletionStatus.SUCCESS, CompletionStatus.FLUSHED


def numbers(packets):
    return [packet.psn - FIRST & 0xFFFFFF for packet in packets]


def state(bench, number):
    return bench.qp.evs.state(number)


# -- segmentation --------------------------------------------------------------------------------------------


def test_a_message_becomes_packets_across_the_wrap_of_psns():
    bench = Bench()
    bench.post(5 * MTU + 10, wr_id=7, immediate=0xABCD)
    bench.post(1)
    packets = bench.writes()
    assert numbers(packets) == [*range(7)]
    names = [Opcode(packet.opcode).name for packet in packets]
    assert names == ["WRITE_FIRST", *["WRITE_MIDDLE"] * 4, "WRITE_LAST_IMM", "WRITE_ONLY"]
    assert [packet.address for packet in packets] == [*(0x2000 + MTU * n for n in range(6)), 0x2000]
    assert [packet.length for packet in packets] == [MTU] * 5 + [10, 1]
    assert {packet.message_length for packet in packets[:6]} == {5 * MTU + 10}
    assert [packet.message_number for packet in packets] == [0] * 6 + [1]
    assert [packet.receive_number for packet in packets] == [0] * 7
    assert packets[5].immediate == 0xABCD
    assert [packet.ack_request for packet in packets] == [False] * 5 + [True] * 2  # each ended the backlog
    assert all(packet.timestamped and not packet.retransmission for packet in packets)
    assert {packet.traffic_class for packet in packets} == {Dscp.NO_TRIM << 2 | 2}


def test_zero_length_only_with_an_immediate():
    bench = Bench()
    bench.post(0, immediate=1)
    assert [packet.opcode for packet in bench.writes()] == [Opcode.WRITE_ONLY_IMM]
    bench.post(0, wr_id=3)
    assert bench.shell.errors == [(0, QpErrorReason.LOCAL_PROTECTION)]
    assert (3, CompletionStatus.GENERAL_ERROR) in bench.shell.completions
    refused = Bench(zero_length_immediate=False)
    refused.post(0, immediate=1)
    assert refused.shell.errors


def test_unreadable_memory_ends_the_qp_before_the_packet_leaves():
    for reason, status in (
        (QpErrorReason.LOCAL_PROTECTION, CompletionStatus.LOCAL_PROTECTION_ERROR),
        (QpErrorReason.LOCAL_READ, CompletionStatus.GENERAL_ERROR),
    ):
        bench = Bench()
        bench.shell.readable, bench.shell.read_failure = False, int(reason)
        bench.post(10, wr_id=1)
        bench.post(10, wr_id=2)
        assert bench.writes() == []
        assert bench.shell.errors == [(0, reason)]
        assert bench.shell.completions == [(1, status), (2, FLUSHED)]


def test_classes_follow_trimming_and_the_peer():
    for option, dscp in ((0, Dscp.TRIMMABLE), (1, Dscp.NO_TRIM)):
        bench = Bench(trimming=True, option={"trim_nack_dest_unsupported": option})
        bench.post(1)
        bench.wait(T_PS)
        first, again = bench.writes()
        assert first.traffic_class >> 2 == dscp
        assert again.traffic_class >> 2 == (Dscp.RETX if not option else Dscp.NO_TRIM)


# -- send conditions -----------------------------------------------------------------------------------------


def test_the_window_is_the_peers_tracking_range():
    bench = Bench(row={"mpr_psns": 16})
    bench.post(100 * MTU)
    packets = bench.writes()
    assert len(packets) == 16 and packets[-1].ack_request and not packets[-2].ack_request
    bench.sack(range(5))
    assert numbers(bench.writes()) == [*range(16, 21)]
    bench.sack([*range(5), *range(6, 16)])
    assert bench.writes() == []


def test_immediates_in_flight_are_bounded_until_their_transport_ack():
    bench = Bench(row={"max_immediates": 2})
    for number in range(4):
        bench.post(1, wr_id=number, immediate=number)
    bench.post(1, wr_id=4)
    packets = bench.writes()
    assert numbers(packets) == [0, 1] and packets[-1].ack_request
    bench.sack(range(2))
    assert bench.writes() == []
    bench.ack(0)
    assert numbers(bench.writes()) == [2]
    bench.ack(2)
    assert numbers(bench.writes()) == [3, 4]
    assert bench.shell.completions == [(0, SUCCESS), (1, SUCCESS), (2, SUCCESS)]


def test_dynamic_mpr_grows_and_never_shrinks_below_what_was_sent():
    bench = Bench(row={"mpr_psns": 128}, option={"dynamic_mpr": 1}, config={"mpr_psns": 512})
    bench.post(1000 * MTU)
    assert len(bench.writes()) == 128
    bench.sack(range(10), mpr=2)
    assert len(bench.writes()) == 10 + 128
    bench.sack(range(20), mpr=0)
    assert len(bench.writes()) == 10
    bench.sack(range(30), mpr=1)
    assert bench.writes() == []
    bench.sack(range(200), mpr=1)
    assert len(bench.writes()) == 200 + 128 - (128 + 10 + 128 + 10)
    still = Bench(row={"mpr_psns": 128}, config={"mpr_psns": 512})
    still.post(1000 * MTU)
    still.take()
    still.sack(range(10), mpr=2)
    assert len(still.writes()) == 10


def test_the_congestion_window_limits_and_is_in_the_options_row():
    row = {
        "adjust_bytes_threshold": 2048, "adjust_period_threshold": 10_000, "base_rtt": 10_000,
        "target_delay": 7_500, "eta": 0, "fi": 0, "fi_scale": 0, "gamma": 0, "max_md_jump": 0,
        "max_cwnd": 3400, "qa_threshold": 1 << 31, "qa_gate": 3, "disable_qa": 1, "alpha": 0,
    }  # fmt: skip
    bench = Bench(congestion="nscc_fixed")
    assert bench.write(ControlTableId.CC_PROFILE, 3, **row)
    assert bench.write(TableId.QP_SEND, 0, **{**bench.row, "state": QpState.RESET})
    for plane in range(2):
        bench.write(TableId.EV_SET, plane, good=0xFF, skip=0)
    assert bench.write(ControlTableId.QP_OPTION, 0, cc_profile=4, cc_enabled=1)
    assert not bench.write(TableId.QP_SEND, 0, **bench.row)  # that profile was never written
    assert bench.write(ControlTableId.QP_OPTION, 0, cc_profile=3, cc_enabled=1)
    assert bench.write(TableId.QP_SEND, 0, **bench.row)
    bench.post(100 * MTU)
    packets = bench.writes()
    size = MTU + 88
    assert len(packets) == -(-3400 // size) and packets[-1].ack_request
    read = bench.requester.read_row(ControlTableId.QP_OPTION, 0)
    assert read["window"] == pytest.approx(3400, abs=50) and read["in_flight"] == len(packets) * size
    bench.sack(range(4), units=4 * size // 256)
    assert len(bench.writes()) == 4
    off = Bench(congestion="nscc_fixed")
    assert off.requester.read_row(ControlTableId.QP_OPTION, 0)["window"] == 0xFFFF_FFFF


def test_qps_take_turns_and_a_blocked_one_blocks_nobody():
    bench = Bench(burst=2)
    bench.write(TableId.EV_SET, 2, good=1, skip=0)
    bench.write(TableId.QP_SEND, 1, **{**bench.row, "mpr_psns": 128})
    bench.shell.space = [0, 0]
    bench.post(10 * MTU)
    bench.post(10 * MTU, qp=1)
    bench.shell.space = [100, 100]
    bench.requester.pump()
    assert [packet.qp for packet in bench.writes()][:8] == [0, 0, 1, 1, 0, 0, 1, 1]


# -- planes and EVs ------------------------------------------------------------------------------------------


def test_planes_take_turns_and_every_ev_is_used():
    bench = Bench(planes=4)
    bench.post(64 * MTU)
    packets = bench.writes()
    assert [packet.plane for packet in packets] == [0, 1, 2, 3] * 16
    assert len({packet.ev for packet in packets[:32]}) == 32
    assert all(packet.ev >> 24 & 7 == packet.plane for packet in packets)


def test_a_retransmission_avoids_the_only_ev_of_a_plane():
    bench = Bench(
        planes=2,
        evs=1,
        row={"exponential_count": 25},
        tail_probe=False,
        recovery_probes=False,
        loss_blame="none",
    )
    for parity in range(2):
        bench.post((2 + parity) * MTU)  # the turn is once at one plane and once at the other
        first = bench.take()[0]
        bench.wait(T_PS)
        (again,) = bench.writes()
        assert again.psn == first.psn and again.plane != first.plane
        sent = 2 + 3 * parity
        bench.sack(range(sent))
        bench.ack(sent - 1)


def test_a_skip_ev_met_costs_the_plane_its_turn():
    bench = Bench(planes=2, evs=1)
    bench.qp.evs.mark_skip(0, 1)
    bench.post(4 * MTU)
    assert [packet.plane for packet in bench.writes()] == [1, 0, 1, 0]


def test_ports_without_link_or_room_are_passed_over():
    bench = Bench()
    bench.shell.down = {1}
    bench.requester.port_changed(1, False)
    bench.post(4 * MTU)
    assert {packet.plane for packet in bench.writes()} == {0}
    bench.shell.down = set()
    bench.requester.port_changed(1, True)
    bench.shell.space[0] = 0
    bench.post(4 * MTU)
    assert {packet.plane for packet in bench.writes()} == {1}


def test_a_mark_skips_the_ev_stored_with_the_psn():
    bench = Bench()
    bench.post(8 * MTU)
    index = bench.index_of(2)
    bench.sack(range(4), trigger=2, mark=Mark.SKIP_ONCE)
    assert state(bench, index) is PathState.SKIP
    assert bench.shell.confirmed == [(0, 0, bench.ev_of(2))]
    bench.sack(range(5), trigger=4, mark=Mark.SKIP_ONCE, entropy=0xDEAD)
    assert bench.statistics.echoes_differ == 1
    assert state(bench, bench.index_of(4)) is PathState.GOOD


def test_always_skip_is_obeyed_or_not():
    for obey, after in ((True, PathState.ASSUMED_BAD), (False, PathState.GOOD)):
        bench = Bench(obey_always_skip=obey)
        bench.post(8 * MTU)
        bench.sack(range(4), trigger=2, mark=Mark.ALWAYS_SKIP)
        assert state(bench, bench.index_of(2)) is after


# -- losses --------------------------------------------------------------------------------------------------


def spread(bench, count, spacing=US):
    """Send packets one by one."""
    for _ in range(count):
        bench.post(MTU)
        bench.wait(spacing)


def test_a_hole_is_retransmitted_on_another_ev_and_blames_its_ev():
    bench = Bench()
    spread(bench, 16)
    index = bench.index_of(2)
    bench.take()
    bench.sack([0, 1, *range(3, 6)])
    assert bench.writes() == []  # 4 left on the same plane, but only 2 us later
    bench.sack([0, 1, *range(3, 16)])
    (again,) = bench.writes()
    assert numbers([again]) == [2] and again.retransmission and again.ack_request
    assert again.ev != bench.shell.sent[2][1].ev
    assert state(bench, index) is PathState.ASSUMED_BAD
    assert bench.statistics.losses == bench.statistics.retransmissions_loss == 1


def test_without_the_window_the_same_plane_proves_it():
    bench = Bench(reorder_window_ns=2000)
    spread(bench, 8)
    bench.take()
    bench.sack([0, 1, 3, 5, 7])  # the other plane proves nothing
    assert bench.writes() == []
    bench.sack([0, 1, 3, 4, 5, 7])
    assert numbers(bench.writes()) == [2]


def test_an_early_sack_undoes_the_loss_and_the_blame():
    bench = Bench(reorder_window_ns=2000)
    spread(bench, 8)
    bench.take()
    index = bench.index_of(2)
    bench.sack([0, 1, 3, 4, 5, 7], trigger=7)
    assert numbers(bench.writes()) == [2] and state(bench, index) is PathState.ASSUMED_BAD
    bench.wait(US)  # the retransmission cannot have been answered yet
    bench.sack([0, 1, 2, 3, 4, 5, 7], trigger=7)
    assert state(bench, index) is PathState.GOOD
    assert (bench.statistics.losses_undone, bench.statistics.retransmissions_spurious) == (1, 1)


def test_the_originals_own_sack_undoes_it_however_late_and_a_retransmissions_does_not():
    for rtx, after, undone in ((False, PathState.GOOD, 1), (True, PathState.ASSUMED_BAD, 0)):
        bench = Bench(reorder_window_ns=2000, recovery_probes=False)
        spread(bench, 8)
        index = bench.index_of(2)
        bench.sack([0, 1, 3, 4, 5, 7], trigger=7)
        bench.wait(3 * BASE_RTT_PS)
        bench.sack([0, 1, 2, 3, 4, 5, 7], trigger=2, rtx=rtx)
        assert state(bench, index) is after
        assert bench.statistics.losses_undone == undone


def test_the_tail_is_probed_on_another_plane_and_the_answer_proves_the_loss():
    bench = Bench()
    bench.post(4 * MTU)
    bench.take()
    bench.sack(range(3))
    bench.wait(2 * BASE_RTT_PS - 1)  # no trimming: the target delay is one base RTT
    assert bench.take() == []
    bench.wait(BASE_RTT_PS)
    (probe,) = bench.take()
    assert probe.opcode == Opcode.PROBE and probe.psn == 0
    assert probe.plane != bench.shell.sent[3][1].plane
    assert bench.statistics.tail_probes == 1
    bench.wait(BASE_RTT_PS)
    bench.sack(range(3), probe=probe.probe_id)
    assert numbers(bench.writes()) == [3]


def test_a_plane_that_died_without_a_word_is_asked_about_while_others_go_on():
    bench = Bench()
    spread(bench, 60)
    probes = [packet for packet in bench.take() if packet.opcode == Opcode.PROBE]
    assert len(probes) <= 3
    dead = [n for n in range(60) if bench.shell.sent[n][1].plane == 1]
    bench.sack([n for n in range(60) if n not in dead], ooo=len([n for n in range(1, 60) if n not in dead]))
    bench.wait(3 * BASE_RTT_PS)
    assert any(packet.opcode == Opcode.PROBE for packet in bench.take())


# -- NACKs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason, after", [(NackReason.TRIMMED, PathState.SKIP), (NackReason.TRIMMED_LASTHOP, PathState.GOOD)]
)
def test_a_trim_is_retransmitted_at_once(reason, after):
    bench = Bench()
    bench.post(4 * MTU)
    index = bench.index_of(1)
    bench.take()
    bench.nack(1, reason)
    assert numbers(bench.writes()) == [1]
    assert state(bench, index) is after
    assert bench.statistics.retransmissions_trim == 1
    bench.nack(1, reason, entropy=bench.shell.sent[1][1].ev)  # of the transmission before
    assert bench.writes() == []


@pytest.mark.parametrize(
    "reason",
    [NackReason.NO_BITMAP, NackReason.NO_PKT_BUFFER, NackReason.NO_RESOURCE, NackReason.PSN_OOR_WINDOW, 0x33],
)
def test_a_refused_packet_is_sent_again_after_one_base_rtt(reason):
    bench = Bench()
    bench.post(4 * MTU)
    index = bench.index_of(1)
    bench.take()
    bench.nack(1, reason)
    bench.wait(BASE_RTT_PS - 1)
    assert bench.writes() == []
    bench.wait(1)
    assert numbers(bench.writes()) == [1]
    assert state(bench, index) is PathState.GOOD


def test_nacks_that_do_not_count_are_counted():
    bench = Bench()
    bench.post(4 * MTU)
    bench.take()
    bench.sack([0, 2])
    for number, entropy in ((0, None), (2, None), (1, 0xBAD), (9, 0)):
        bench.nack(number, NackReason.TRIMMED, entropy=entropy)
    assert bench.writes() == []
    assert bench.shell.counters[GlobalCounter.FEEDBACK_IGNORED] == 4


def test_an_unexpected_event_ends_the_qp_and_so_may_an_unknown_reason():
    for reason, options in ((NackReason.UNEXP_EVENT, {}), (0x33, {"unknown_nack": "error"})):
        bench = Bench(**options)
        bench.post(4 * MTU, wr_id=5)
        bench.nack(1, reason)
        assert bench.shell.errors == [(0, QpErrorReason.UNEXPECTED_EVENT)]
        assert bench.shell.completions == [(5, CompletionStatus.GENERAL_ERROR)]


# -- transport ACKs and forged feedback ----------------------------------------------------------------------


def test_completions_come_in_order_with_the_transport_ack_only():
    bench = Bench()
    for number in range(4):
        bench.post(2 * MTU, wr_id=number, signalled=number != 1)
    bench.sack(range(8))
    assert bench.shell.completions == []
    bench.ack(4)
    assert bench.shell.completions == [(0, SUCCESS)]
    bench.ack(7)
    assert bench.shell.completions == [(0, SUCCESS), (2, SUCCESS), (3, SUCCESS)]
    bench.ack(3)
    assert len(bench.shell.completions) == 3


@pytest.mark.parametrize(
    "syndrome, status",
    [
        (AethSyndrome.NAK_INVALID_REQUEST, CompletionStatus.REMOTE_INVALID_REQUEST),
        (AethSyndrome.NAK_REMOTE_ACCESS, CompletionStatus.REMOTE_ACCESS_ERROR),
        (AethSyndrome.NAK_REMOTE_OPERATIONAL, CompletionStatus.REMOTE_OPERATION_ERROR),
    ],
)
def test_a_nak_gives_its_request_the_status_and_flushes_the_rest(syndrome, status):
    bench = Bench()
    for number in range(4):
        bench.post(2 * MTU, wr_id=number)
    bench.ack(1)
    bench.ack(5, syndrome)
    assert bench.shell.completions == [(0, SUCCESS), (1, FLUSHED), (2, status), (3, FLUSHED)]
    assert bench.shell.errors == [(0, QpErrorReason.REMOTE_NAK)]
    bench.take()
    bench.post(1, wr_id=9)
    assert bench.shell.completions[-1] == (9, FLUSHED)
    bench.wait(20 * T_PS)
    assert bench.take() == []


def test_feedback_for_what_was_never_sent_is_ignored():
    bench = Bench()
    bench.post(2 * MTU)
    bench.take()
    bench.sack(range(3))
    bench.ack(2)
    bench.ack(0, 0x60)
    assert bench.shell.counters[GlobalCounter.FEEDBACK_IGNORED] == 3
    assert bench.qp.tracker.outstanding == 2
    bench.sack([0], sack_bitmap=(1 << 64) - 1)  # bits beyond what was sent
    assert bench.qp.tracker.missing == 0 and bench.qp.tracker.outstanding == 1


# -- timer ---------------------------------------------------------------------------------------------------


def test_timeouts_are_linear_then_double_and_then_the_qp_ends():
    bench = Bench(tail_probe=False, recovery_probes=False)
    bench.post(2 * MTU, wr_id=1)
    bench.take()
    times = []
    for _ in range(6):
        before = len(bench.shell.sent)
        while len(bench.shell.sent) == before and not bench.shell.errors:
            bench.run(bench.shell.agenda[0][0])
        times.append(bench.shell.now_ps // T_PS)
        if bench.shell.errors:
            break
    assert times == [1, 2, 4, 8, 16]
    again = bench.writes()
    assert numbers(again) == [0] * 4 and all(p.retransmission and p.ack_request for p in again)
    assert bench.shell.errors == [(0, QpErrorReason.RETRY_EXCEEDED)]
    assert bench.shell.completions == [(1, CompletionStatus.RETRY_EXCEEDED)]
    assert bench.shell.counters[GlobalCounter.TIMEOUTS] == 4


def test_a_timeout_blames_only_the_oldest_packets_ev():
    bench = Bench(tail_probe=False, recovery_probes=False)
    bench.post(4 * MTU)
    index = bench.index_of(1)
    bench.sack([0, 3])
    bench.wait(T_PS)
    assert [state(bench, n) for n in {bench.index_of(0), bench.index_of(2)}].count(PathState.GOOD) == 2
    assert state(bench, index) is PathState.ASSUMED_BAD
    assert bench.statistics.retransmissions_timeout == 1


def test_progress_starts_the_interval_and_the_attempts_anew():
    bench = Bench(tail_probe=False)
    bench.post(4 * MTU)
    bench.wait(T_PS + 1)
    assert bench.qp.timer.attempt == 1
    bench.sack([0])
    assert bench.qp.timer.attempt == 0
    bench.take()
    bench.wait(T_PS - 1)
    assert bench.take() == []
    bench.wait(1)
    assert numbers(bench.writes()) == [1]


def test_a_lost_transport_ack_brings_the_last_packet_again():
    bench = Bench()
    bench.post(3 * MTU)
    bench.take()
    bench.sack(range(3))
    bench.wait(T_PS)
    (again,) = bench.writes()
    assert numbers([again]) == [2] and again.retransmission and again.ack_request
    bench.ack(2)
    bench.wait(10 * T_PS)
    assert bench.take() == []


# -- recovery probes -----------------------------------------------------------------------------------------


def lose_one(bench):
    """One packet is lost and arrives the second time, everything completes. Returns the packet as it left."""
    spread(bench, 8)
    lost = bench.shell.sent[2][1]
    bench.sack([0, 1, 3, 4, 5, 7])
    bench.sack(range(8), trigger=2, rtx=True)
    bench.ack(7)
    bench.take()
    return lost


def test_a_bad_ev_is_probed_until_three_answers_bring_it_back():
    bench = Bench(reorder_window_ns=2000, tail_probe=False, stale_probe=False, undo_rule="none")
    lost = lose_one(bench)
    index = (lost.ev >> 24 & 7) * 32 + (lost.ev >> 16 & 0xFF) - 1
    start, answered = bench.shell.now_ps, 0
    while state(bench, index) is PathState.ASSUMED_BAD:
        bench.run(bench.shell.agenda[0][0])
        for packet in bench.take():
            assert (packet.opcode, packet.ev, packet.plane) == (Opcode.PROBE, lost.ev, lost.plane)
            if answered == 0:
                assert bench.shell.now_ps == start + BASE_RTT_PS
            answered += 1
            bench.wait(BASE_RTT_PS)
            bench.sack(range(8), probe=packet.probe_id)
        assert bench.shell.now_ps < start + 1000 * US
    assert answered == 3 == bench.statistics.probes_answered
    # first after one base RTT, then the shortest interval each
    assert bench.shell.now_ps == start + 2 * BASE_RTT_PS + 2 * 64 * US


def test_unanswered_probes_become_rare_and_a_dead_port_is_not_asked():
    bench = Bench(reorder_window_ns=2000, tail_probe=False, stale_probe=False, undo_rule="none")
    lost = lose_one(bench)
    bench.wait(3000 * US)
    probes = [packet for packet in bench.take() if packet.opcode == Opcode.PROBE]
    assert 4 <= len(probes) <= 6  # 0.01, 0.14, 0.4, 0.9, 1.9 ms
    bench.shell.down = {lost.plane}
    bench.requester.port_changed(lost.plane, False)
    bench.requester.pump()
    bench.take()
    bench.wait(30_000 * US)
    assert not [packet for packet in bench.take() if packet.opcode == Opcode.PROBE]


# -- control packets -----------------------------------------------------------------------------------------


def control(bench, plane, count=1, qp=0):
    for _ in range(count):
        bench.requester.enqueue_control(ModelPacket(int(Opcode.SACK)), qp, plane)


def test_control_packets_go_first_but_at_most_three_in_a_row():
    bench = Bench(planes=1)
    bench.shell.space = [0]
    bench.post(4 * MTU)
    control(bench, 0, 7)
    bench.shell.space = [100]
    bench.requester.pump()
    kinds = ["C" if packet.opcode == Opcode.SACK else "D" for packet in bench.take()]
    assert "".join(kinds) == "CCCDCCCDCDD"


def test_control_packets_take_the_reverse_ev_or_the_qps_in_turns_and_a_live_plane():
    bench = Bench()
    bench.shell.reverse = {0: 0x1234}
    control(bench, 0)
    control(bench, 1, 8)
    bench.requester.pump()
    first, *others = bench.take()
    assert first.ev == 0x1234 and first.traffic_class == Dscp.CONTROL << 2
    assert {packet.plane for packet in others} == {1} and len({packet.ev for packet in others}) == 8
    bench.shell.down = {1}
    bench.requester.port_changed(1, False)
    bench.requester.pump()
    bench.take()
    control(bench, 1)
    control(bench, UNBOUND)
    bench.requester.pump()
    assert [packet.plane for packet in bench.take()] == [0, 0]
    ingress = Bench(control_path="ingress")
    ingress.shell.reverse = {0: 0x1234}
    control(ingress, 0)
    ingress.requester.pump()
    assert ingress.take()[0].ev != 0x1234


def test_data_leave_a_plane_to_the_control_packet_that_waits_for_it():
    bench = Bench()
    bench.shell.space = [5, 0]
    control(bench, 1)
    bench.post(2 * MTU)
    assert {packet.plane for packet in bench.take()} == {0}
    bench.shell.space = [5, 1]
    bench.requester.pump()
    assert [packet.opcode for packet in bench.take() if packet.plane == 1] == [Opcode.SACK]


# -- port status and endpoint operations ---------------------------------------------------------------------


def test_peers_are_told_of_a_port_change_until_they_answer():
    bench = Bench()
    bench.shell.down = {1}
    bench.requester.port_changed(1, False)
    bench.requester.pump()
    (told,) = bench.take()
    assert (told.opcode, told.operation, told.port_mask) == (
        Opcode.ENDPOINT_REQUEST,
        EndpointOp.PORT_STATUS_UPDATE,
        1,
    )
    assert told.plane == 0 and told.destination_qpn == 2
    bench.wait(50 * US)
    (again,) = bench.take()
    assert again.psn == told.psn
    answer = ModelPacket(int(Opcode.ENDPOINT_RESPONSE), 0, told.psn)
    bench.requester.on_endpoint_response(answer)
    bench.wait(10_000 * US)
    assert bench.take() == []


def change_port(bench, plane, up):
    bench.shell.down = bench.shell.down - {plane} if up else bench.shell.down | {plane}
    bench.requester.port_changed(plane, up)
    bench.requester.pump()


def test_an_update_close_behind_another_is_confirmed_once():
    bench = Bench()
    change_port(bench, 1, False)
    bench.wait(US)
    change_port(bench, 1, True)
    first, second = bench.take()
    assert (first.port_mask, second.port_mask) == (1, 3)
    for answered in (first, second):
        bench.requester.on_endpoint_response(ModelPacket(int(Opcode.ENDPOINT_RESPONSE), 0, answered.psn))
    bench.wait(999 * US)
    assert bench.take() == []
    bench.wait(US)
    (third,) = bench.take()
    assert third.port_mask == 3 and third.psn not in (first.psn, second.psn)
    bench.requester.on_endpoint_response(ModelPacket(int(Opcode.ENDPOINT_RESPONSE), 0, third.psn))
    bench.wait(20_000 * US)
    assert bench.take() == []


def test_an_update_that_could_not_leave_is_replaced():
    bench = Bench(planes=1)
    change_port(bench, 0, False)
    assert bench.take() == []
    change_port(bench, 0, True)
    assert [packet.port_mask for packet in bench.take()] == [1]


def test_a_peer_without_any_port_is_tried_all_the_same():
    bench = Bench()
    bench.requester.on_peer_ports(PEER, 0)
    bench.post(4 * MTU)
    assert {packet.plane for packet in bench.writes()} == {0, 1}


def test_a_peers_port_mask_acts_on_its_qps_only():
    bench = Bench()
    bench.requester.on_peer_ports(PEER + 1, 0b01)
    bench.post(4 * MTU)
    assert {packet.plane for packet in bench.writes()} == {0, 1}
    bench.requester.on_peer_ports(PEER, 0b01)
    bench.post(4 * MTU)
    assert {packet.plane for packet in bench.writes()} == {0}
    assert bench.requester.read_row(ControlTableId.QP_OPTION, 0)["peer_ports"] == 1
    bench.requester.on_peer_ports(PEER, 0b11)
    bench.post(4 * MTU)
    assert {packet.plane for packet in bench.writes()} == {0, 1}


ENDPOINT = {
    "request_id": 5, "operation": EndpointOp.EV_PROBE, "encapsulation": 1, "segment": 0, "port": 2,
    "dscp": 46,
    "value": 0xC1010000, "timeout": 100_000, "port_mask": 0, "peer_high": PEER >> 64, "peer_low": 1,
    "source_high": 1, "source_low": 2, "destination_high": 3, "destination_low": 4, "segment_high": 0,
    "segment_low": 0,
}  # fmt: skip


def test_an_endpoint_request_is_answered_or_times_out():
    bench = Bench()
    assert bench.write(ControlTableId.ENDPOINT_OPERATION, 0, **ENDPOINT)
    bench.requester.pump()
    (request,) = bench.take()
    assert (request.plane, request.ev, request.psn, request.traffic_class) == (1, 0xC1010000, 5, 46 << 2)
    assert (request.outer_source, request.outer_destination) == (1 << 64 | 2, 3 << 64 | 4)
    assert not bench.write(ControlTableId.ENDPOINT_OPERATION, 0, **ENDPOINT)  # it waits
    assert not bench.write(ControlTableId.ENDPOINT_OPERATION, 1, **ENDPOINT)  # the id is in use
    bench.wait(20 * US)
    answer = ModelPacket(int(Opcode.ENDPOINT_RESPONSE), -1, 5)
    answer.received_ps, answer.plane = bench.shell.now_ps, 1
    answer.timestamp = request.timestamp + 3  # three ticks of service
    bench.requester.on_endpoint_response(answer)
    row = bench.requester.read_row(ControlTableId.ENDPOINT_OPERATION, 0)
    assert (row["status"], row["rtt"], row["adjusted"], row["answer_port"]) == (
        EndpointStatus.ANSWERED, 20_000 - 3 * 128, 1, 2,
    )  # fmt: skip
    assert bench.write(ControlTableId.ENDPOINT_OPERATION, 0, **{**ENDPOINT, "request_id": 6})
    bench.wait(101 * US)
    assert (
        bench.requester.read_row(ControlTableId.ENDPOINT_OPERATION, 0)["status"] == EndpointStatus.TIMED_OUT
    )
    assert [(n["kind"], n["request_id"], n["state"]) for n in bench.shell.notices] == [
        (NoticeKind.ENDPOINT_DONE, 5, EndpointStatus.ANSWERED),
        (NoticeKind.ENDPOINT_DONE, 6, EndpointStatus.TIMED_OUT),
    ]


@pytest.mark.parametrize("change", [{"port": 0}, {"port": 3}, {"timeout": 0}, {"request_id": 0x4000}])
def test_endpoint_requests_that_are_refused(change):
    assert not Bench().write(ControlTableId.ENDPOINT_OPERATION, 0, **{**ENDPOINT, **change})
    assert not Bench().write(ControlTableId.ENDPOINT_OPERATION, 64, **ENDPOINT)


# -- profiles and EV events ----------------------------------------------------------------------------------


def entry(bench, place, state, value=None, **fields):
    old = bench.requester.read_row(TableId.EV_VALUE, place)
    row = {"value": old["value"] if value is None else value, "port": old["port"], "state": state}
    addresses = ("destination_high", "destination_low", "segment_high", "segment_low")
    return bench.write(
        ControlTableId.EV_ENTRY, place, **row, **{name: fields.get(name, 0) for name in addresses}
    )


def test_ev_events_are_noticed_as_the_profile_says_and_not_what_the_host_ordered():
    bench = Bench(reorder_window_ns=2000, tail_probe=False)
    profile = {
        "state": 2,
        "expanded": 0,
        "segment": 0,
        "events": EvState.GOOD | EvState.ASSUMED_BAD,
        "min_active": 0,
        "oblivious": 0,
    }
    assert bench.write(ControlTableId.EV_PROFILE, 0, **profile)
    spread(bench, 8)
    index = bench.index_of(2)
    bench.sack([0, 1, 3, 4, 5, 7])
    (notice,) = bench.shell.notices
    assert (notice["state"], notice["place"], notice["port"], notice["qp"]) == (
        EvState.ASSUMED_BAD, index % 32, index // 32 + 1, 0,
    )  # fmt: skip
    row = bench.requester.read_row(ControlTableId.EV_ENTRY, index)
    assert (row["state"], row["bad_qps"]) == (EvState.ASSUMED_BAD, 1)
    assert entry(bench, index, EvState.GOOD)
    assert state(bench, index) is PathState.GOOD and len(bench.shell.notices) == 1


def test_a_denied_ev_is_not_used_and_a_replaced_one_has_its_new_value():
    bench = Bench(planes=1)
    assert entry(bench, 3, EvState.DENIED)
    assert state(bench, 3) is PathState.DENIED
    old = bench.requester.read_row(TableId.EV_VALUE, 3)["value"]
    bench.post(32 * MTU)
    assert old not in {packet.ev for packet in bench.writes()}
    assert not entry(bench, 3, EvState.ASSUMED_BAD)
    assert entry(bench, 3, EvState.GOOD, value=0xC0770000)
    bench.post(32 * MTU)
    assert 0xC0770000 in {packet.ev for packet in bench.writes()}
    assert entry(bench, 3, EvState.UNPOPULATED, value=0)
    assert state(bench, 3) is PathState.ABSENT
    assert bench.requester.read_row(ControlTableId.EV_ENTRY, 3)["state"] == EvState.UNPOPULATED


def test_denial_outlives_the_qp_that_saw_it_but_only_in_its_profile():
    bench = Bench(planes=1)
    entry(bench, 3, EvState.DENIED)
    for profile, expected in ((0, PathState.DENIED), (1, PathState.GOOD)):
        bench.write(TableId.QP_SEND, 0, **{**bench.row, "state": QpState.RESET})
        bench.write(TableId.EV_SET, 0, good=0xFF, skip=0)
        bench.write(TableId.QP_SEND, 0, **{**bench.row, "ev_profile": profile})
        assert state(bench, 3) is expected


def test_an_offline_profile_stops_its_qps_and_expanded_entries_carry_their_path():
    bench = Bench(planes=1)
    offline = {"state": 1, "expanded": 1, "segment": 1, "events": 0, "min_active": 3, "oblivious": 0}
    assert bench.write(ControlTableId.EV_PROFILE, 0, **offline)
    assert bench.qp.evs.minimum_active == 3
    for place in range(8):
        entry(bench, place, EvState.GOOD, destination_high=place, destination_low=1, segment_low=place)
    bench.post(8 * MTU)
    assert bench.take() == []
    assert bench.write(ControlTableId.EV_PROFILE, 0, **{**offline, "state": 2})
    bench.requester.pump()
    packets = bench.writes()
    assert len(packets) == 8
    for packet in packets:
        place = (packet.ev >> 16 & 0xFF) - 1
        assert (packet.outer_destination, packet.segment) == (place << 64 | 1, place)
    assert not bench.write(ControlTableId.EV_PROFILE, 0, **{**offline, "state": 3})
    assert not bench.write(ControlTableId.EV_PROFILE, 2, **offline)
    assert bench.requester.read_row(ControlTableId.EV_PROFILE, 0)["qps"] == 1


def test_backups_wait_when_the_option_says_so():
    bench = Bench(planes=1, backups_per_plane=2)
    assert bench.requester.read_row(TableId.EV_SET, 0) == {"good": 0x3F, "skip": 0xC0, "bad": 0}
    bench.post(32 * MTU)
    assert len({packet.ev for packet in bench.writes()}) == 6


# -- QP_SEND -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{"mtu_log2": 7}, {"mtu_log2": 9}, {"timeout": 25}, {"state": 5}, {"state": 1}, {"ev_profile": 2}],
)
def test_rows_that_are_refused(change):
    bench = Bench()
    assert not bench.write(TableId.QP_SEND, 0, **{**bench.row, **change})
    assert not bench.write(TableId.QP_SEND, 2, **bench.row)
    assert not bench.write(TableId.EV_SET, 4, good=1, skip=0)
    assert not bench.write(TableId.EV_VALUE, 2 * 2 * 32, value=1, port=1)
    assert bench.requester.read_row(TableId.QP_SEND, 2) is None
    assert bench.requester.read_row(TableId.EV_SET, 4) is None


def test_error_flushes_and_only_reset_leaves_it_with_nothing_left_over():
    bench = Bench()
    bench.post(4 * MTU, wr_id=1)
    assert bench.write(TableId.QP_SEND, 0, **{**bench.row, "state": QpState.ERROR})
    assert bench.shell.completions == [(1, FLUSHED)]
    assert not bench.write(TableId.QP_SEND, 0, **bench.row)
    assert bench.write(TableId.QP_SEND, 0, **{**bench.row, "state": QpState.RESET})
    for plane in range(2):
        bench.write(TableId.EV_SET, plane, good=0xFF, skip=0)
    assert bench.write(TableId.QP_SEND, 0, **{**bench.row, "initial_psn": 77})
    bench.take()
    bench.post(1)
    (packet,) = bench.writes()
    assert (packet.psn, packet.message_number) == (77, 0)
    read = bench.requester.read_row(TableId.QP_SEND, 0)
    assert (read["next_psn"], read["unacked_psn"], read["attempt"]) == (78, 77, 0)


def test_unknown_plug_ins_are_refused():
    with pytest.raises(ConfigError, match=r"model\.congestion must be one of none, .*got 'reno'"):
        Bench(congestion="reno")
    with pytest.raises(ConfigError, match=r"model\.spray_policy must be one of mrc"):
        Bench(spray_policy="random")


def test_timestamps_are_ticks_and_samples_give_the_least_rtt():
    bench = Bench()
    bench.run(5 * TICK_PS + 1)
    bench.post(MTU)
    assert bench.writes()[0].timestamp == 5
    bench.wait(BASE_RTT_PS)
    bench.sack([0])
    assert bench.qp.least_rtt == BASE_RTT_PS // TICK_PS
