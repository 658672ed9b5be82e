"""The codec's own measure.

Sweep: decode with encode, and the quick look.
Stimulus: the sample frame, a short slice of time.
Checks: the sample is a well-formed SRv6 write; both speeds are plausible and the quick look is much quicker.
Timing: under a second.
"""

from __future__ import annotations

from mrc_host.packets.bench import codec_packets_per_second, peek_packets_per_second, sample_frame
from mrc_host.packets.codec import decode


def test_sample():
    frame = sample_frame()
    packet = decode(frame)
    assert len(frame) == 138 + 4096 + 4
    assert packet.problems == []
    assert packet.icrc_ok is True
    assert packet.ev == 0xC0010000


def test_speeds():
    both, quick = codec_packets_per_second(0.2), peek_packets_per_second(0.2)
    assert both > 1000
    assert quick > 3 * both
