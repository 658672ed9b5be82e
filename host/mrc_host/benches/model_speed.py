"""How fast the golden model runs, with fabric, software and packet log around it.

Source: interfaces.md (Bench metric names); profile.md 1, configuration *F*.
"""

from __future__ import annotations

import time
from typing import Any

from mrc_host.errors import InfrastructureError
from mrc_host.experiment.load import parse_experiment
from mrc_host.experiment.lockstep import Lockstep
from mrc_host.experiment.nics import NicKinds
from mrc_host.experiment.testbed import build_testbed, set_up
from mrc_host.nic.device import read_counters

__all__ = ["f_experiment", "model_packets_per_second"]

MESSAGE_BYTES = 2_000_000
LIMIT_PS = 10**10
DRAIN_PS = 10**7


def f_experiment(hosts: int, megabytes: int, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """Describe a permutation of 2 MB messages across T1 on *F*: 4 planes of 100 Gb/s, 4 hosts a T0.

    Parameters
    ----------
    hosts : int
        A multiple of 8 on at most 32 T0.
    megabytes : int
        What each NIC sends, even.
    settings : dict, optional
        Sections to replace.
    """
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
                "memory_regions": 16,
                "completion_queues": 4,
            },
        },
        "fabric": {
            "hosts": hosts,
            "planes": 4,
            "t0_per_plane": hosts // 4,
            "t1_per_plane": 4,
            "rate_gbps": 100,
            "host_link_delay_ns": 1000,
            "t1_link_delay_ns": 1000,
        },
        "workload": {
            "kind": "permutation",
            "bytes_per_nic": megabytes * 1_000_000,
            "message_bytes": MESSAGE_BYTES,
            "operation": "write_imm",
            "outstanding_messages": 2,
        },
        "criteria": [{"metric": "bytes_mismatched", "equals": 0, "source": "every byte is compared"}],
        **(settings or {}),
    }


def model_packets_per_second(hosts: int, megabytes: int) -> float:
    """Return packets of all kinds that NICs sent, over the processor time of the simulation alone.

    Raises
    ------
    InfrastructureError
        The transfer did not end, or a byte is wrong.
    """
    testbed = build_testbed(parse_experiment(f_experiment(hosts, megabytes)), NicKinds(("model",)))
    set_up(testbed)
    lockstep = Lockstep(testbed.hosts, testbed.fabric, drain_ps=DRAIN_PS, packets=True)
    started = time.process_time()
    result = lockstep.run(LIMIT_PS)
    seconds = time.process_time() - started
    wrong = sum(application.verify().mismatched for application in testbed.applications)
    if not result.finished or wrong:
        raise InfrastructureError(f"the transfer must end with every byte right, got {wrong} wrong ones")
    sent = sum(
        port["tx_frames"] for host in testbed.hosts for port in read_counters(host.context.driver).ports
    )
    testbed.close()
    return sent / seconds
