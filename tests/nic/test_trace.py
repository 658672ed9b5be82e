"""Trace records of the sending half: what feedback and timeouts did.

Sweep: packets lost or not.
Stimulus: two hosts exchange messages in both directions; a tap drops some packets.
Checks: a MERGE record for every SACK, NACK and transport ACK, a TIMER record for every timeout, as many as
    the counters say; the oldest PSN that is not covered goes on from record to record, and never back.
Timing: the quickstart engine with its trace stream; the run is bounded in simulated time.
"""

from dataclasses import replace

import pytest
from exchange import CONFIG, TWO_HOSTS, Bed

from mrc_host.nic.device import read_counters
from mrc_host.nic.recorded import RecordedNic
from mrc_host.packets.peek import peek
from mrc_rtl import wire
from mrc_rtl.records import TraceKind
from mrc_rtl.requester.trace import merge_detail, timer_detail
from mrc_rtl.wire import Opcode, has_payload

TRACED = replace(CONFIG, trace=True)
SIZES = [5000, 70, 20_000, 4096]
FEEDBACK = {Opcode.SACK: "sack_received", Opcode.NACK: "nack_received", Opcode.ACKNOWLEDGE: "ack_received"}


def records(item, kind, layout):
    """Records of a kind with their details taken apart."""
    shape = layout()
    return [
        (record, shape.from_bits(record.detail & (1 << shape.size) - 1))
        for record in item.context.nic.trace
        if record.kind == kind
    ]


@pytest.mark.parametrize("losses", [0, 3])
def test_feedback_and_timeouts_leave_records(losses):
    lost = []

    def tap(direction, time_ps, frame):
        info = peek(frame)
        if len(lost) == losses or not has_payload(info.opcode) or info.psn % 3:
            return None
        lost.append(info.psn)
        return []

    bed = Bed(TWO_HOSTS, [(0, 1)], timeout=6, config=TRACED, wrap=RecordedNic, sizes=SIZES)
    bed.fabric.tap("h0.p*>*", tap)
    assert bed.run(limit_us=20_000, drain_ps=1000 * 1_000_000).finished
    assert len(lost) == losses
    for number, item in enumerate(bed.applications):
        item.check()
        counted = read_counters(item.context.driver).engine
        merges = records(item, TraceKind.MERGE, merge_detail)
        for opcode, counter in FEEDBACK.items():
            assert sum(detail.opcode == opcode for _, detail in merges) == counted[counter]
        assert sum(detail.ignored for _, detail in merges) == counted["feedback_ignored"]
        assert not any(detail.failed for _, detail in merges)
        timers = records(item, TraceKind.TIMER, timer_detail)
        late = [(record, detail) for record, detail in timers if not detail.idle]
        assert len(late) == counted["timeouts"]
        assert (number, bool(late)) in ((0, losses > 0), (1, bool(late)))
        assert {record.psn for record, _ in late} >= (set(lost) if number == 0 else set())
        oldest = None
        for _, detail in merges:
            step = (detail.unacked_after - detail.unacked) & wire.PSN_MASK
            assert oldest in (None, detail.unacked) and step < 1 << 23
            oldest = detail.unacked_after
