"""The whole way with real engines: device API, verilated NICs, fabric, and software in lockstep.

Sweep: windows of 1, 1/2 and 1/7, workers 1, 2 and 4, idle time skipped or clocked.
Stimulus: four hosts in two pairs exchange messages of odd sizes in both directions through T0 and T1 switches
    of different delay, with posted receives; one message goes to memory the peer does not allow.
Checks: every byte, completions at both ends, nothing beside the buffers; frames, completions with their times
    and memory equal for all windows, workers and with idle time clocked; the error reaches both ends.
Timing: the quickstart engine, compiled once for all; well under a minute.
"""

import pytest
from exchange import ACROSS, FOUR_HOSTS, MICROSECOND, SIZES, Bed

from mrc_host.nic.device import CompletionStatus, QpErrorReason, QpState, read_counters


@pytest.fixture(scope="module")
def reference():
    bed = Bed(FOUR_HOSTS, ACROSS)
    result = bed.run()
    return bed, result, bed.outcome()


def test_messages_arrive_whole_and_in_order(reference):
    bed, result, _ = reference
    assert result.finished
    for item in bed.applications:
        item.check()
        assert not item.events
        statistics = item.context.nic.statistics
        assert (statistics.underruns, statistics.receive_stalls, statistics.memory_violations) == (0, 0, 0)
        assert (statistics.transmit_bad, statistics.memory_outside) == (0, 0)
        counters = read_counters(item.context.driver)
        assert [counters.unaccounted(port) for port in range(4)] == [0] * 4
        assert sum(port["tx_retransmissions"] for port in counters.ports) == 0


@pytest.mark.parametrize("divisor, workers", [(1, 2), (1, 4), (2, 1), (7, 4)])
def test_windows_and_workers_are_invisible(reference, divisor, workers):
    bed = Bed(FOUR_HOSTS, ACROSS)
    bed.run(window_ps=MICROSECOND // divisor, workers=workers)
    for what, expected in reference[2].items():
        assert bed.outcome()[what] == expected, what


def test_skipping_idle_time_is_invisible(reference):
    bed = Bed(FOUR_HOSTS, ACROSS, skip_idle=False)
    bed.run(workers=2)
    for what, expected in reference[2].items():
        assert bed.outcome()[what] == expected, what
    skipped = reference[0].applications[0].context.nic.statistics.cycles_skipped
    assert skipped > 0 and bed.applications[0].context.nic.statistics.cycles_skipped == 0


def test_a_write_without_permission_ends_both_qps(reference):
    bed = Bed(FOUR_HOSTS, ACROSS)
    item = bed.applications[0]
    item.peer.sink_region.deregister()
    bed.run(limit_us=300)
    assert [completion.status for completion in item.sent] == [
        CompletionStatus.REMOTE_ACCESS_ERROR,
        *[CompletionStatus.FLUSHED] * (len(item.sent) - 1),
    ]
    assert len(item.sent) >= 2 and item.pair.state is item.peer.pair.state is QpState.ERROR
    assert item.peer.pair.error_reason is QpErrorReason.REMOTE_ACCESS
    assert item.pair.error_reason is QpErrorReason.REMOTE_NAK
    flushed = [completion.wr_id for completion in item.peer.received if not completion.ok]
    assert flushed == [100 + message for message in range(len(SIZES))]
    assert not item.peer.sink.data.any()
    # The other pair is not concerned.
    for other in (bed.applications[1], bed.applications[3]):
        other.check()
