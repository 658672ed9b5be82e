"""Engines that several tests share, compiled once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from mailbox_engine import MailboxEngine
from stand_in import StandIn

from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_host.nic.verilated import VerilatedNic
from mrc_rtl.config import NicConfig
from mrc_rtl.toolchain import verilog_of


def _maker(engine, config):
    verilog = verilog_of(engine(config))

    def make(gbps=10, fifo_bytes=256, skip_idle=True, **memory):
        return VerilatedNic(
            config,
            MacOptions(gbps=gbps, fifo_bytes=fifo_bytes),
            MemoryOptions(**{"size": 1 << 20, **memory}),
            verilog=verilog,
            skip_idle=skip_idle,
        )

    return make


@pytest.fixture(scope="session")
def stand_in():
    """Make NICs of the stand-in engine: 2 planes, 128 bit at 250 MHz, trace."""
    return _maker(StandIn, NicConfig(planes=2, data_width=128, clock_ps=4_000, trace=True))


@pytest.fixture(scope="session")
def mailbox():
    """Make NICs of the mailbox engine: 2 planes, 64 bit at 250 MHz."""
    return _maker(
        MailboxEngine,
        NicConfig(
            planes=2, clock_ps=4_000, mtu=1024, qps=4, evs_per_plane=8, ev_profiles=4, send_queue_depth=64,
            receive_queue_depth=16, memory_regions=8, completion_queues=4,
        ),
    )  # fmt: skip
