"""What the engine must carry, measured between two engines whose ports lead to each other.

Sweep: 64 and 128 bit (512 bit is measured by the bench session); MTU 4096 and 1024; writes of 1 byte with
    the shortest and the usual headers, of 256 bytes, and of mixed sizes.
Stimulus: long messages in both directions at once; one-packet messages that wait for the ports to open, and
    their frames delivered 10 % quicker than the receiver must take them.
Checks: efficiency of all four directions; mean cycles between packets that are sent, and that are placed,
    against max(beats of the frame, K); every byte; no frame dropped, duplicated or sent again.
Timing: two engines are compiled once; the measurements take some seconds.
"""

import random

import pytest

from mrc_host.bench import MIX_TOLERANCE, WIDTHS
from mrc_host.benches.engine_rates import engine_efficiency, packet_intervals

EFFICIENCY = {4096: 0.95, 1024: 0.90}
PACKETS = 400
MESSAGES = 256


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mtu", EFFICIENCY)
@pytest.mark.parametrize("width", [64, 128])
def test_efficiency(width, mtu):
    found = engine_efficiency(WIDTHS[width], mtu, PACKETS)
    assert found.value >= EFFICIENCY[mtu]
    assert found.lost == 0


@pytest.mark.parametrize("length, srv6", [(1, False), (1, True), (256, True)])
@pytest.mark.parametrize("width", [64, 128])
def test_interval(width, length, srv6):
    sent, placed = packet_intervals(WIDTHS[width], [length] * MESSAGES, srv6=srv6)
    assert sent.cycles <= sent.bound
    assert placed.cycles <= placed.bound


@pytest.mark.parametrize("width", [64, 128])
def test_interval_of_mixed_sizes(width):
    generator = random.Random(width)
    lengths = [generator.randrange(1, 257) for _ in range(MESSAGES)]
    sent, placed = packet_intervals(WIDTHS[width], lengths)
    assert sent.cycles <= MIX_TOLERANCE * sent.bound
    assert placed.cycles <= MIX_TOLERANCE * placed.bound
