"""How fast simulated engines run: ``VerilatedNic``, a bare loop over the same model, and cocotb.

All three clock the quickstart engine while it sends to itself at the rate of its data path.

Source: design.md 5.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from mrc_host.benches.engine_rates import check_bytes
from mrc_host.benches.rig import Rig
from mrc_host.errors import InfrastructureError
from mrc_host.nic.build import Progress, print_progress
from mrc_rtl.config import NicConfig

__all__ = ["SimulationSpeed", "cocotb_speed", "simulation_speed"]

MESSAGE_BYTES = 32_768
COCOTB_SCRIPT = Path(__file__).parents[3] / "tb" / "nic_speed.py"
COCOTB_LIMIT_SECONDS = 1800


@dataclass(frozen=True)
class SimulationSpeed:
    """Cycles a second of the best of several runs.

    Parameters
    ----------
    verilated : float
        Through ``VerilatedNic``: frames, memory, registers and time of the Python calls included.
    bare : float
        The recorded input pins in a bare C++ loop over the same model.
    cycles : int
        Cycles of a run.
    """

    verilated: float
    bare: float
    cycles: int


def simulation_speed(
    messages: int = 24, repetitions: int = 3, progress: Progress = print_progress
) -> SimulationSpeed:
    """Time the transfer and the bare replay of its pins in turn.

    Parameters
    ----------
    messages : int
        Messages of 32 KiB in each direction.
    repetitions : int
        The best run of each kind counts, so that a busy machine disturbs little.
    progress : callable
        Gets a line for each step of a build.
    """
    recorded = _Transfer(messages, progress, record=True)
    stimulus = recorded.stimulus
    best_verilated = best_bare = 0.0
    cycles = 0
    for _ in range(repetitions):
        transfer = _Transfer(messages, progress)
        best_verilated = max(best_verilated, transfer.cycles / transfer.seconds)
        cycles = transfer.cycles
        started = time.perf_counter()
        stimulus.replay()
        best_bare = max(best_bare, stimulus.cycles / (time.perf_counter() - started))
    return SimulationSpeed(best_verilated, best_bare, cycles)


def cocotb_speed(messages: int = 4) -> float:
    """Return cycles a second of the same transfer under cocotb with AXI agents.

    Raises
    ------
    InfrastructureError
        The benches are not there (they are part of the repository, not of the package), or the run failed.
    """
    if not COCOTB_SCRIPT.is_file():
        raise InfrastructureError(f"{COCOTB_SCRIPT} must exist: run the bench in a clone of the repository")
    parameters = json.dumps({"messages": messages, "message_bytes": MESSAGE_BYTES})
    result = subprocess.run(
        [sys.executable, str(COCOTB_SCRIPT), parameters],
        capture_output=True,
        text=True,
        timeout=COCOTB_LIMIT_SECONDS,
        check=False,
    )
    if result.returncode:
        raise InfrastructureError(f"{COCOTB_SCRIPT.name} failed:\n{result.stdout}\n{result.stderr}")
    measured = json.loads(result.stdout.splitlines()[-1])
    return float(measured["cycles"] / measured["seconds"])


class _Transfer:
    """One transfer of an engine with itself, and what it took."""

    def __init__(self, messages: int, progress: Progress, *, record: bool = False) -> None:
        rig = Rig(NicConfig.quickstart(), nics=1, record=record, progress=progress)
        self.stimulus = rig.stimulus
        try:
            connection = rig.connect(mtu=rig.config.mtu, buffer_bytes=messages * MESSAGE_BYTES)
            rig.align()
            before = rig.nics[0].statistics.cycles_clocked
            rig.seconds = 0.0
            with rig.scheduled():
                for number in range(messages):
                    for end in (0, 1):
                        connection.post(end, number, number * MESSAGE_BYTES, MESSAGE_BYTES)
            rig.run(2 * messages)
            self.seconds = rig.seconds
            self.cycles = rig.nics[0].statistics.cycles_clocked - before
            check_bytes(connection)
        finally:
            rig.nics[0].record_stimulus(None)
            rig.close()
