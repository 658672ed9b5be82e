"""Memory that answers late, packets that come twice, queue pairs that come and go, memory that fails.

Sweep: both kinds of NIC; memory delays of none to many round trips with stalls; every packet of both
    directions twice, the second one at once to several round trips later; a hundred lives of a queue pair;
    memory that fails in the first, a middle and the last burst of a packet, and under what the NIC reads.
Stimulus: messages in both directions; floods; writes in the air when their queue pair is destroyed.
Checks: every byte of memory, completions, one outcome for every frame, states and reasons, a NIC that rests.
Timing: bounded by ``fuzz_bed``.
"""

import random

import fuzz_bed
import pytest
from attacks import Kit
from fuzz_bed import ATTACKER_QPN, FIRST_PSN, KEY, KINDS, PLANES, Bed
from fuzz_craft import ATTACKER, NIC
from fuzz_play import Play

from mrc_host.benches.rig import path
from mrc_host.nic.device import (
    CompletionStatus,
    Endpoint,
    QpErrorReason,
    QpState,
    Retry,
    read_counters,
)
from mrc_host.packets.codec import decode
from mrc_rtl import wire
from mrc_rtl.records import PortCounter
from mrc_rtl.wire import AethSyndrome, Opcode

MICROSECOND = 1_000_000
SLOW = {
    "jitter": {"latency_jitter": 400, "write_latency": 1, "read_latency": 1},
    "slow": {"latency_jitter": 3000, "write_latency": 500, "read_latency": 500},
    "stalls": {"latency_jitter": 100, "stall_share": 0.4, "outstanding": 2},
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory", SLOW)
def test_memory_delayed_at_random_while_every_packet_comes_twice(kind, memory):
    play = Play(kind, **SLOW[memory])
    draw = random.Random(memory)
    later = (0, 100_000, MICROSECOND, 3 * MICROSECOND, 20 * MICROSECOND)
    play.bed.tap = lambda sender, frame: [(0, frame.data), (draw.choice(later), frame.data)]
    for _ in range(12):
        play.batch([])
    total = play.total
    assert total[PortCounter.DUPLICATE] >= total[PortCounter.ACCEPTED] > 12
    assert total[PortCounter.ACCEPTED] == play.good_packets
    play.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_flood_is_dropped_and_counted_and_stalls_no_port(kind, monkeypatch):
    """More than a slow memory takes, back to back on both ports."""
    monkeypatch.setattr(fuzz_bed, "SHORTEST_PS", 1)
    bed = Bed(kind, write_latency=20_000, outstanding=4)
    kit = Kit(bed.regions)
    drafts = [
        kit.write(FIRST_PSN + number // 4, size=1000, offset=120 * (number // 4), plane=number % 2)
        for number in range(400)
    ]
    bed.post(9000, 9000, 0)
    before = bed.target_buffer.data.copy()
    deliver(bed, drafts)
    bed.until(lambda: bed.completed and not bed.busy)
    bed.settle()
    bed.check_messages()
    bed.check_surroundings()
    counters = bed.counters()
    total = {name: sum(port[name] for port in counters.ports) for name in counters.ports[0]}
    assert total["drop_no_pkt_buffer"] > 0
    assert total["accepted"] + total["duplicate"] + total["drop_no_pkt_buffer"] >= len(drafts)
    # Every byte is what it was, or what one of the writes that cover it says.
    data = bed.target_buffer.data
    for place in (place for place in range(len(data)) if data[place] != before[place]):
        covering = range(max(0, (place - 1000) // 120 + 1), min(100, place // 120 + 1))
        assert data[place] in {(place - 120 * number) & 0xFF for number in covering}
    bed.close()


def connect(bed, pair, first_psn):
    pair.to_init(bed.nic.profile, partition_key=KEY)
    end = Endpoint(ATTACKER_QPN, first_psn, wire.inner_address(ATTACKER), mpr=1, max_wimm=32)
    pair.to_rtr(path(NIC, ATTACKER), end, path_mtu=256)
    pair.to_rts(sq_psn=first_psn ^ 0xFFF, timeout=12, retry=Retry(7, 25))


def deliver(bed, drafts):
    """Put frames on the line and wait until they are decided."""
    stage = [[] for _ in range(PLANES)]
    for draft in drafts:
        stage[draft.plane].append(draft.done())
    bed.until(lambda: not any(stage) and max(bed.free[0]) <= bed.now, stage, "the line")
    bed.settle()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_lives_of_a_queue_pair_under_traffic(kind):
    bed = Bed(kind)
    kit, draw = Kit(bed.regions), random.Random(kind)
    buffer, number = bed.target_buffer, bed.target.number
    first_psn = FIRST_PSN
    for life in range(100):
        bed.post(draw.randrange(1, 9000), draw.randrange(1, 9000), 8 * life)
        # Writes of the life that ends are on the line, in the engine and in the memory's queue.
        late = [
            kit.write(first_psn + 40 + place, size=512, offset=512 * place, plane=place % 2).done()
            for place in range(8)
        ]
        stage = [[frame for frame in late if frame.plane == plane] for plane in range(PLANES)]
        for _ in range(draw.randrange(1, 4)):
            bed.step(stage)
        bed.target.destroy()
        stage = [[], []]
        bed.align()
        at_rest = buffer.data.copy()
        bed.target = bed.nic.context.queue_pair(bed.target_domain, bed.target_queue)
        assert bed.target.number == number
        first_psn = draw.getrandbits(24)
        connect(bed, bed.target, first_psn)
        bed.align()
        status = bed.target.query()
        bed.align()
        before = first_psn - 1 & wire.PSN_MASK
        assert (status.cumulative_psn, status.highest_psn, status.message_number) == (before, before, 0)
        # What the old one had claimed is not known to the new one: all of these are new.
        deliver(
            bed, [kit.write(first_psn + place, size=100, offset=9000 + 100 * place) for place in range(4)]
        )
        status = bed.target.query()
        bed.align()
        assert status.cumulative_psn == first_psn + 3 & wire.PSN_MASK
        assert (buffer.data[:9000] == at_rest[:9000]).all(), "nothing is written after the end of a life"
        bed.until(lambda: bed.completed and not bed.busy)
        bed.check_messages()
        bed.check_surroundings()
    bed.settle()
    counters = bed.counters()
    assert sum(port["drop_no_pkt_buffer"] for port in counters.ports) == 0
    bed.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("burst", ["first", "middle", "last"])
@pytest.mark.parametrize("kind", KINDS)
def test_memory_that_refuses_a_write_ends_its_queue_pair_alone(kind, burst):
    bed = Bed(kind)
    kit = Kit(bed.regions)
    # One packet over two pages: three bursts of 64-bit beats of at most 2 KiB, cut at 4 KiB.
    offset, size = 4096 - 1000, 4000
    at = {"first": offset + 8, "middle": 4096 + 100, "last": offset + size - 8}[burst]
    bed.nic.nic.fail_memory(bed.target_buffer.bus_address + at, 4)
    bed.post(9000, 9000, 0)
    before = bed.target_buffer.data.copy()
    deliver(
        bed, [kit.write(FIRST_PSN, size=64, offset=0), kit.write(FIRST_PSN + 1, size=size, offset=offset)]
    )
    bed.until(lambda: bed.completed and not bed.busy)
    (event,) = bed.nic.context.poll_events()
    bed.align()
    assert event.reason is QpErrorReason.REMOTE_OPERATION
    assert bed.target.state is QpState.ERROR
    bed.check_messages()
    bed.check_surroundings()
    counters = bed.counters()
    assert counters.engine["write_errors"] == counters.engine["nak_sent"] == 1
    naks = [
        packet
        for packet in (decode(frame.data) for frame in bed.sent)
        if packet.opcode == Opcode.ACKNOWLEDGE and packet["aeth"]["syndrome"] != AethSyndrome.ACK
    ]
    assert [packet["aeth"]["syndrome"] for packet in naks] == [AethSyndrome.NAK_REMOTE_OPERATIONAL]
    assert naks[0]["bth"]["psn"] == FIRST_PSN + 1
    # The packet before it stands, and nothing lies beside it and the one that failed.
    data = bed.target_buffer.data
    assert (data[:64] == list(range(64))).all()
    assert (data[64:offset] == before[64:offset]).all() and (
        data[offset + size :] == before[offset + size :]
    ).all()
    bed.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_memory_that_refuses_a_read_lets_nothing_of_the_packet_leave(kind):
    bed = Bed(kind)
    bed.settle()
    bed.sent.clear()
    bed.nic.nic.fail_memory(bed.nic.source.bus_address + 1500, 1)
    with bed.nic.context.driver.at(bed.now):
        for number, offset in enumerate((4096, 1024, 8192)):
            bed.nic.pair.write(
                number, local_address=bed.nic.source.address + offset, lkey=bed.nic.source_region.lkey,
                length=1024, remote_address=bed.peer.sink.address + offset, rkey=bed.peer.sink_region.rkey,
            )  # fmt: skip
    bed.until(lambda: len(bed.nic.finished) >= 3, what="the flush")
    bed.nic.context.poll_events()
    bed.align()
    statuses = [item.status for item in bed.nic.finished]
    # The error stands on the oldest request that is not acknowledged yet, which may be the one before.
    assert statuses.count(CompletionStatus.GENERAL_ERROR) == 1
    assert CompletionStatus.SUCCESS not in statuses[1:] and statuses[2] is CompletionStatus.FLUSHED
    assert bed.nic.pair.error_reason is QpErrorReason.LOCAL_READ
    assert read_counters(bed.nic.context.driver).engine["read_errors"] >= 1
    bed.align()
    peer = wire.inner_address(1)
    written = {
        packet["reth"]["va"] - bed.peer.sink.address
        for packet in (decode(frame.data) for frame in bed.sent)
        if wire.is_write(packet.opcode) and packet.inner_ip.fields["destination"] == peer
    }
    assert 1024 not in written and not bed.peer.sink.data[1024:2048].any()
    bed.close()
