"""What went wrong in other implementations (docs/verification.md), each in the form of its whole kind.

Sweep: both kinds of NIC; starts and lengths around pages and words; frames longer than a buffer; every byte
    of a packet flipped; each packet of a message lost; PSNs at every edge, from starts around the wrap.
Stimulus: an attacker's writes, which say where they go; messages of a good peer in both directions.
Checks: memory byte for byte, one outcome for every frame, a memory that counts what AXI4 forbids, a NIC that
    rests.
Timing: bounded by ``fuzz_bed``.
"""

import random

import pytest
from attacks import Kit
from fuzz_bed import FIRST_PSN, KINDS, PLANES, Bed
from fuzz_play import Play
from test_hostile_timing import connect, deliver

from mrc_host.packets.peek import peek
from mrc_rtl import wire
from mrc_rtl.records import PortCounter

PAGE = 4096
BEAT = 8
WINDOW = 128
HALF = 1 << 23


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_every_alignment_around_a_page(kind):
    play = Play(kind)
    kit = Kit(play.bed.regions)
    # Packets that begin around the edge of a page, end there, cover a page, and take 256 beats.
    pieces = [(PAGE + shift, size) for shift in range(-BEAT - 1, BEAT + 2) for size in (1, BEAT, BEAT + 1)]
    pieces += [(PAGE + shift - 255, 255) for shift in range(-2, 3)]
    pieces += [(PAGE + shift, size) for shift in (-1, 0, 1) for size in (PAGE - 1, PAGE)]
    pieces += [(2 * PAGE - 2048 + shift, 2048 + more) for shift in (-1, 0, 1) for more in (-1, 0, 1)]
    for plane in range(PLANES):
        frames = [
            kit.write(FIRST_PSN + number, size, offset=offset, plane=plane).done()
            for number, (offset, size) in enumerate(pieces)
        ]
        assert len(frames) < WINDOW
        play.batch(frames)
        assert play.sent == len(frames) * (plane + 1)
        if not play.ended_in_error:
            play._renew()
    assert play.total[PortCounter.ACCEPTED] == play.sent + play.good_packets
    play.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_every_length_both_ways(kind):
    bed = Bed(kind)
    lengths = [*range(1, 2 * BEAT + 2), *range(PAGE - BEAT - 1, PAGE + BEAT + 2), 2 * PAGE, 2 * PAGE + 1]
    offset = 0
    for length in lengths:
        # The other direction has another length, and both begin at every lane.
        bed.post(length, lengths[-1] - length + 1, offset % 4099)
        bed.until(lambda: bed.completed and not bed.busy)
        bed.check_messages()
        offset += 509
    bed.settle()
    bed.check_surroundings()
    bed.counters()
    bed.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_frames_longer_than_the_buffer_pass_by(kind):
    play = Play(kind)
    kit = Kit(play.bed.regions)
    assert play.bed.nic.nic.config.receive_buffer_bytes == 16_384
    sizes = (4097, 16_384 - 64, 16_384, 16_385, 20_000, 60_000)
    frames = [kit.write(FIRST_PSN, size, plane=plane).done() for size in sizes for plane in range(PLANES)]
    play.batch(frames)
    assert play.total[PortCounter.DROP_LENGTH] == len(frames)
    play.batch([kit.write(FIRST_PSN, 4096).done()])
    assert play.sent == len(frames) + 1
    play.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_every_flipped_byte_is_found_between_frames_of_any_size(kind):
    play = Play(kind)
    kit, draw = Kit(play.bed.regions), random.Random(kind)
    size = len(kit.write(size=37).data)
    at, psn = 54, FIRST_PSN
    while at < size:
        frames = []
        for place in range(at, min(at + 30, size)):
            plane = draw.randrange(PLANES)
            draft = kit.write(psn, 37, plane=plane)
            draft.data[place] ^= 1 << draw.randrange(8)
            # Each PSN is used by good frames only; what no check covers is a write of its own.
            frames += [draft.done(), kit.write(psn, draw.randrange(1, 900), plane=plane).done()]
            psn = psn + 1 & wire.PSN_MASK
        play.batch(frames)
        if play.oracle.expected == FIRST_PSN:
            psn = FIRST_PSN
        at += 30
    assert play.total[PortCounter.DROP_ICRC] > 60
    play.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_each_packet_of_a_message_is_lost_in_turn(kind):
    bed = Bed(kind)
    length, packets = 6 * PAGE - 5, 6
    for lost in range(packets):
        for first in (False, True):
            seen = [0, 0]
            hit = [False, False]

            def tap(sender, frame, seen=seen, hit=hit, first=first, lost=lost):
                info = peek(frame.data)
                if info is None or not wire.is_write(info.opcode) or info.rtx:
                    return [(0, frame.data)]
                seen[sender] += 1
                hit[sender] |= seen[sender] - 1 == lost
                gone = seen[sender] - 1 == lost or (first and seen[sender] == 1)
                return [] if gone else [(0, frame.data)]

            bed.tap = tap
            bed.post(length, length, 64 * lost + first)
            bed.until(lambda: bed.completed and not bed.busy)
            bed.check_messages()
            assert hit == [True, True]
    bed.settle()
    bed.check_surroundings()
    bed.counters()
    bed.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_edges_of_the_window_around_the_wrap(kind):
    bed = Bed(kind)
    kit = Kit(bed.regions)
    before = bed.counters()
    edges = [
        (-1, "duplicate"), (1 - HALF, "duplicate"), (HALF, "drop_window"), (HALF - 1, "drop_window"),
        (WINDOW, "drop_window"), (WINDOW - 1, "accepted"), (WINDOW - 1, "duplicate"), (0, "accepted"),
    ]  # fmt: skip
    for start in (0, 1, WINDOW, HALF - 1, HALF, HALF + 1, (1 << 24) - WINDOW, (1 << 24) - 2, (1 << 24) - 1):
        bed.target.reset()
        connect(bed, bed.target, start)
        bed.align()
        # And once more when the window has moved on by one.
        again = [(distance + 1, outcome) for distance, outcome in edges[:6] if distance != WINDOW - 1]
        for distance, outcome in [*edges, *again, (WINDOW, "accepted"), (1, "accepted")]:
            deliver(bed, [kit.write(start + distance)])
            after = bed.counters()
            changed = {
                name: value - before.ports[0][name]
                for name, value in after.ports[0].items()
                if value != before.ports[0][name] and not name.startswith("tx_")
            }
            assert changed == {"rx_frames": 1, outcome: 1}, (start, distance)
            before = after
    bed.close()
