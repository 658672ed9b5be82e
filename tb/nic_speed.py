"""Times a transfer on the whole engine under cocotb: ``python nic_speed.py '{"messages": …}'`` prints JSON.

The engine talks to itself through AXI agents, as in ``test_nic.py`` but without monitors: what is timed is
the simulation with its agents. ``nox -s bench`` compares it with the same transfer on ``VerilatedNic``.
"""

import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

import cocotb
from cocotb.simtime import get_sim_time

import runner
from bench_nic import SelfConnection, started
from mrc_rtl.config import NicConfig
from mrc_rtl.nic import MrcNic

CONFIG = NicConfig.quickstart()
LIMIT_CYCLES = 2_000_000
LIMIT_SECONDS = 900.0
RESULT = "speed.json"
PORT_BITS = 64
"""A plane's receive side takes so many bits a cycle, which paces the agents that feed it."""


@cocotb.test()
async def timed_transfer(dut) -> None:
    parameters = runner.parameters()
    messages, size = parameters["messages"], parameters["message_bytes"]
    nic = await started(dut, CONFIG, 1 << 22)
    for source in nic.sources:
        source.set_pause_generator(itertools.cycle([False] + [True] * (CONFIG.data_width // PORT_BITS - 1)))
    link = await SelfConnection.call(SelfConnection, nic, messages * size, CONFIG.mtu)
    begin, began_ps = time.perf_counter(), get_sim_time("ps")
    for number in range(messages):
        for end in (0, 1):
            await link.call(link.write, end, number, number * size, size)
    await link.completions(2 * messages, LIMIT_CYCLES)
    seconds = time.perf_counter() - begin
    cycles = (get_sim_time("ps") - began_ps) / runner.CLOCK_PERIOD_PS
    for end in (0, 1):
        assert (link.sinks[end].data == link.sources[1 - end].data).all()
    Path(parameters["result"]).write_text(json.dumps({"cycles": cycles, "seconds": seconds}))


def main(parameters: dict[str, int]) -> None:
    """Build the engine, run the transfer and print cycles and seconds."""
    model = runner.build(lambda: MrcNic(CONFIG), key=f"nic_speed {CONFIG!r}", random_memories=False)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / RESULT
        runner.run(
            model,
            __file__,
            parameters={**parameters, "result": str(result)},
            results=Path(folder),
            timeout_seconds=LIMIT_SECONDS,
        )
        print(result.read_text())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
