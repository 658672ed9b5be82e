"""The whole engine between AXI agents, with its memories powered up random.

Sweep: memory and ports that never or randomly wait; frames received with and without gaps; small
configuration.
Stimulus: two queue pairs of one engine send each other messages around the MTU at odd addresses, with and
without immediates; every frame leaves on a plane and comes back on it, its list shifted as by a switch.
Checks: every byte and nothing beside; completions of both kinds with length and immediate; frames received
equal the sum of outcomes on each port; frames of the counters are those that went round; a monitor on every
stream; the engine rests in the end.
Timing: every wait is bounded.
"""

import random

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles

import runner
from agents import random_pauses
from bench_nic import SelfConnection, started
from mrc_host.nic.device import WorkRequestOpcode
from mrc_rtl.config import NicConfig
from mrc_rtl.nic import MrcNic
from stream_monitor import StreamMonitor

CONFIG = NicConfig.small()
MEMORY_BYTES = 1 << 17
BUFFER_BYTES = 16_384
MTU = 1024
SIZES = (1, 1023, 1024, 1025, 2500, 64)
LIMIT_CYCLES = 40_000
REST_CYCLES = 2_000


def test_nic(simulation: runner.Simulation) -> None:
    runner.run_bench(lambda: MrcNic(CONFIG), __file__, simulation)


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(waits=[False, True])
async def messages_between_two_queue_pairs(dut, waits) -> None:
    nic = await started(dut, CONFIG, MEMORY_BYTES)
    monitors = [
        StreamMonitor(dut, f"{direction}_{plane}")
        for direction in ("transmit", "receive")
        for plane in range(CONFIG.planes)
    ]
    link = await SelfConnection.call(SelfConnection, nic, BUFFER_BYTES, MTU)
    if waits:
        for channel in (nic.read.ar_channel, nic.read.r_channel, nic.write.aw_channel):
            channel.set_pause_generator(random_pauses(0.3))
        for channel in (nic.write.w_channel, nic.write.b_channel, *nic.sinks, *nic.sources):
            channel.set_pause_generator(random_pauses(0.2))
    expected = [np.zeros(BUFFER_BYTES, dtype=np.uint8) for _ in link.pairs]
    offset, posted = 3, []
    for number, size in enumerate(SIZES):
        for end in (0, 1):
            immediate = random.getrandbits(32) if number % 2 else None
            if immediate is not None:
                await link.call(link.pairs[1 - end].post_recv, 1000 + number)
            await link.call(link.write, end, number, offset, size, immediate)
            expected[1 - end][offset : offset + size] = link.sources[end].data[offset : offset + size]
            posted.append((end, number, size, immediate))
        offset += size + 5
    with_immediate = [entry for entry in posted if entry[3] is not None]
    found = await link.completions(len(posted) + len(with_immediate), LIMIT_CYCLES)

    assert all(item.ok for item in found)
    for end, pair in enumerate(link.pairs):
        assert (link.sinks[end].data == expected[end]).all()
        own = [item for item in found if item.qp_number == pair.number]
        sent = [item for item in own if item.opcode is not WorkRequestOpcode.RECEIVE_IMM]
        assert [item.wr_id for item in sent] == list(range(len(SIZES)))
        received = [item for item in own if item.opcode is WorkRequestOpcode.RECEIVE_IMM]
        assert [(item.wr_id - 1000, item.byte_length, item.immediate) for item in received] == [
            (number, size, immediate) for sender, number, size, immediate in with_immediate if sender != end
        ]

    await ClockCycles(dut.clk, REST_CYCLES)
    assert dut.quiescent.value == 1
    assert all(monitor.idle for monitor in monitors)
    counters = await link.counters()
    packets = 2 * sum(-(-size // MTU) for size in SIZES)
    for plane in range(CONFIG.planes):
        assert counters.unaccounted(plane) == 0
        port = counters.ports[plane]
        sent, taken = (len(monitors[side + plane].frames) for side in (0, CONFIG.planes))
        assert port["tx_frames"] == port["rx_frames"] == sent == taken
        assert port["accepted"] + port["control"] == port["rx_frames"]
    assert sum(port["accepted"] for port in counters.ports) == packets
    assert sum(port["tx_data"] for port in counters.ports) == packets
    assert sum(port["tx_retransmissions"] for port in counters.ports) == 0
    assert counters.engine["completions"] == len(found)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def queue_pairs_leave_nothing_behind(dut) -> None:
    """The numbers of destroyed queue pairs are used again, from other PSNs."""
    nic = await started(dut, CONFIG, MEMORY_BYTES)
    link = await SelfConnection.call(SelfConnection, nic, BUFFER_BYTES, MTU)
    for size, psns in ((3000, None), (2000, (7, 0x800000)), (1500, (0xFFFFFF, 0xFFFFFC))):
        if psns is not None:
            await link.call(link.reconnect, psns)
        for end in (0, 1):
            link.sinks[end].data[:] = 0
            await link.call(link.write, end, size, 1, size)
        found = await link.completions(2, LIMIT_CYCLES)
        assert [item.wr_id for item in found] == [size, size] and all(item.ok for item in found)
        for end in (0, 1):
            assert (link.sinks[end].data[1 : 1 + size] == link.sources[1 - end].data[1 : 1 + size]).all()
            assert not link.sinks[end].data[1 + size :].any()
