"""How fast the golden model runs, with fabric, software and packet log around it.

``python -m mrc_host.benches.model_speed HOSTS MEGABYTES`` makes one measurement and prints it as JSON.

Source: interfaces.md (Bench metric names); profile.md 1, configuration *F*.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mrc_host.errors import InfrastructureError
from mrc_host.experiment.load import parse_experiment
from mrc_host.experiment.lockstep import Lockstep
from mrc_host.experiment.nics import NicKinds
from mrc_host.experiment.testbed import build_testbed, set_up
from mrc_host.nic.device import read_counters

__all__ = ["MEGABYTES", "ModelSpeed", "f_experiment", "measure", "measure_apart"]

MESSAGE_BYTES = 2_000_000
LIMIT_PS = 10**10
PAGE_BYTES = 4096
DRAIN_PS = 10**7
HOSTS_PER_T0 = 4
T0_MAXIMUM = 32
MEMORY_REGIONS = 16

MEGABYTES = {8: 32.0, 64: 4.0, 128: 2.0, 512: 0.5, 1024: 0.5}
"""What each NIC sends, by number of hosts: large fabrics must fit the memory and end in minutes."""


@dataclass(frozen=True)
class ModelSpeed:
    """One measurement.

    Parameters
    ----------
    hosts : int
    data_packets, packets : int
        Writes that NICs sent, and packets of all kinds.
    seconds : float
        Processor time of the simulation alone, without set-up and verification.
    parts : dict of str to float
        Seconds of each of :data:`mrc_host.experiment.lockstep.PARTS`.
    """

    hosts: int
    data_packets: int
    packets: int
    seconds: float
    parts: dict[str, float]

    @property
    def data_packets_per_second(self) -> float:
        """Data packets over processor time."""
        return self.data_packets / self.seconds


def f_experiment(hosts: int, megabytes: float, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """Describe a permutation of 2 MB messages across T1 on *F*: 4 planes of 100 Gb/s, 4 hosts a T0.

    Parameters
    ----------
    hosts : int
        A multiple of 8; beyond 128 hosts the T0 become larger instead of more.
    megabytes : float
        What each NIC sends; below 2 in one message, otherwise even.
    settings : dict, optional
        Sections to replace.
    """
    size = round(megabytes * 1_000_000)
    switches = min(hosts // HOSTS_PER_T0, T0_MAXIMUM)
    return {
        "name": "model-speed",
        "title": "Speed of the golden model",
        "description": "A permutation of 2 MB messages on F.",
        "seed": 1,
        "nic": {
            "engine": "large",
            "parameters": {
                "planes": 4,
                "qps": 8,
                "mpr_psns": 256,
                "evs_per_plane": 32,
                "memory_regions": MEMORY_REGIONS,
                "completion_queues": 4,
            },
        },
        "fabric": {
            "hosts": hosts,
            "planes": 4,
            "t0_per_plane": switches,
            "t1_per_plane": hosts // switches,
            "rate_gbps": 100,
            "host_link_delay_ns": 1000,
            "t1_link_delay_ns": 1000,
        },
        "workload": {
            "kind": "permutation",
            "bytes_per_nic": size,
            "message_bytes": min(size, MESSAGE_BYTES),
            "operation": "write_imm",
            "outstanding_messages": 2,
        },
        "criteria": [{"metric": "bytes_mismatched", "equals": 0, "source": "every byte is compared"}],
        **(settings or {}),
    }


def measure(hosts: int, megabytes: float) -> ModelSpeed:
    """Run the permutation once.

    Parameters
    ----------
    hosts : int
    megabytes : float
        See :func:`f_experiment`.

    Raises
    ------
    InfrastructureError
        The transfer did not end, or a byte is wrong.
    """
    testbed = build_testbed(parse_experiment(f_experiment(hosts, megabytes)), NicKinds(("model",)))
    set_up(testbed)
    lockstep = Lockstep(testbed.hosts, testbed.fabric, drain_ps=DRAIN_PS, packets=True)
    for host in testbed.hosts:
        # The system hands out memory at the first write to it, which is not the simulation's time.
        pages = host.nic.memory[::PAGE_BYTES]
        pages[:] = pages.copy()
    started = time.process_time()
    result = lockstep.run(LIMIT_PS)
    seconds = time.process_time() - started
    wrong = sum(application.verify().mismatched for application in testbed.applications)
    if not result.finished or wrong:
        raise InfrastructureError(f"the transfer must end with every byte right, got {wrong} wrong ones")
    ports = [port for host in testbed.hosts for port in read_counters(host.context.driver).ports]
    testbed.close()
    return ModelSpeed(
        hosts,
        sum(port["tx_data"] + port["tx_retransmissions"] for port in ports),
        sum(port["tx_frames"] for port in ports),
        seconds,
        result.processor_seconds,
    )


def measure_apart(hosts: int, megabytes: float, compiled: bool) -> ModelSpeed:
    """Run the permutation in a process of its own, compiled or not.

    Parameters
    ----------
    hosts : int
    megabytes : float
        See :func:`f_experiment`.
    compiled : bool
        Whether the process uses the compiled model.

    Raises
    ------
    InfrastructureError
        The process failed.
    """
    command = [sys.executable, "-m", "mrc_host.benches.model_speed", str(hosts), str(megabytes)]
    environment = {**os.environ, "MRC_COMPILED": str(int(compiled))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InfrastructureError(f"the model's speed at {hosts} hosts cannot be measured:\n{done.stderr}")
    return ModelSpeed(**json.loads(done.stdout))


def main(arguments: Sequence[str]) -> None:
    """Print one measurement as JSON."""
    hosts, megabytes = arguments
    print(json.dumps(asdict(measure(int(hosts), float(megabytes)))))


if __name__ == "__main__":
    main(sys.argv[1:])
