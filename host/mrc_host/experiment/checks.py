"""What must fit together between the sections of an experiment.

Source: profile.md 1, 4, 6, 7.
"""

from __future__ import annotations

from collections import Counter

from mrc_host.errors import ConfigError
from mrc_host.experiment.definitions import DEFINITIONS
from mrc_host.experiment.schema import Experiment
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import ev_set
from mrc_rtl.config import NicConfig
from mrc_rtl.wire import MPR_UNIT_PSNS

__all__ = ["check_experiment"]

DEPTH_OF_QUEUES = "what the engine's queues hold"


def check_experiment(experiment: Experiment) -> None:
    """Check what must fit together between sections.

    Raises
    ------
    ConfigError
        For the first thing that does not fit, with the path of its key.
    """
    config = experiment.nic.config()
    experiment.nic.check_model()
    topology = experiment.topology()
    _check_engine_and_fabric(experiment, config, topology)
    _check_queue_pairs(experiment, config)
    _check_faults(experiment, config, topology)
    _check_script(experiment, config, topology)
    flows = experiment.flows()
    peers = Counter(
        host
        for low, high, _ in {(*sorted((flow.source, flow.target)), flow.lane) for flow in flows}
        for host in (low, high)
    )
    for host, count in sorted(peers.items()):
        if count > config.qps:
            raise ConfigError(
                "workload", f"one that gives host {host} at most {config.qps} peers (nic qps)", count
            )
    if experiment.workload.outstanding_messages > min(config.send_queue_depth, config.receive_queue_depth):
        raise ConfigError(
            "workload.outstanding_messages",
            f"at most {min(config.send_queue_depth, config.receive_queue_depth)}, {DEPTH_OF_QUEUES}",
            experiment.workload.outstanding_messages,
        )
    for index, criterion in enumerate(experiment.criteria):
        if criterion.metric not in DEFINITIONS:
            raise ConfigError(
                f"criteria.{index}.metric", f"a metric: {', '.join(DEFINITIONS)}", criterion.metric
            )
        if any(other.metric == criterion.metric for other in experiment.criteria[:index]):
            raise ConfigError(
                f"criteria.{index}.metric", "a metric without a criterion above", criterion.metric
            )


def _check_engine_and_fabric(experiment: Experiment, config: NicConfig, topology: Topology) -> None:
    if config.planes != topology.planes:
        raise ConfigError("fabric.planes", f"{config.planes}, the planes of the NIC", topology.planes)
    limit = config.data_width * 1000 / config.clock_ps
    if experiment.fabric.rate_gbps > limit:
        raise ConfigError(
            "fabric.rate_gbps",
            f"at most {limit:g}, what the NIC's data path carries (data width × clock)",
            experiment.fabric.rate_gbps,
        )
    for link in topology.links[: topology.hosts * topology.planes]:
        if link.rate_gbps != experiment.fabric.rate_gbps:
            raise ConfigError(
                "fabric.links",
                f"so that the host link {link.name} keeps fabric.rate_gbps: the MACs of a NIC have one rate",
                link.rate_gbps,
            )
    if experiment.nic.transmit_fifo_bytes < 2 * config.data_bytes:
        raise ConfigError(
            "nic.transmit_fifo_bytes",
            f"at least two beats of the NIC, {2 * config.data_bytes}",
            experiment.nic.transmit_fifo_bytes,
        )


def _check_queue_pairs(experiment: Experiment, config: NicConfig) -> None:
    section = experiment.qp
    if section.mtu_bytes is not None and section.mtu_bytes > config.mtu:
        raise ConfigError("qp.mtu_bytes", f"at most the NIC's mtu, {config.mtu}", section.mtu_bytes)
    if section.mpr_psns is not None and (
        section.mpr_psns > config.mpr_psns or section.mpr_psns % MPR_UNIT_PSNS
    ):
        raise ConfigError(
            "qp.mpr_psns",
            f"a multiple of {MPR_UNIT_PSNS}, at most the NIC's mpr_psns, {config.mpr_psns}",
            section.mpr_psns,
        )
    count = experiment.entropy_values(config)
    if count % config.planes or count > config.evs:
        raise ConfigError(
            "qp.entropy_values",
            f"a multiple of the {config.planes} planes, at most {config.evs} "
            f"({config.evs_per_plane} a plane: nic evs_per_plane)",
            count,
        )
    if section.type == "go_back_n" and not config.go_back_n:
        raise ConfigError("qp.type", "mrc, or an engine with nic.parameters.go_back_n: true", section.type)
    if experiment.workload.immediates:
        limit = config.immediates
        if experiment.workload.outstanding_messages > limit:
            raise ConfigError(
                "workload.outstanding_messages",
                f"at most {limit}, the immediates a NIC can stash",
                experiment.workload.outstanding_messages,
            )


def _check_faults(experiment: Experiment, config: NicConfig, topology: Topology) -> None:
    known = ev_set(experiment.entropy_values(config), topology.planes, topology.t1_per_plane)
    for index, fault in enumerate(experiment.faults):
        path = f"faults.{index}"
        try:
            fault.check(topology)
        except ConfigError as error:
            raise ConfigError(f"{path}.{error.path}", error.expected, error.value) from error
        for ev in fault.ev or ():
            if ev not in known:
                raise ConfigError(
                    f"{path}.ev", f"one of a queue pair's {len(known)} EVs, such as {known[0]:#x}", hex(ev)
                )
        if fault.from_us >= experiment.limits.simulated_time_us:
            raise ConfigError(
                f"{path}.from_us",
                f"below limits.simulated_time_us = {experiment.limits.simulated_time_us:g}",
                fault.from_us,
            )


def _check_script(experiment: Experiment, config: NicConfig, topology: Topology) -> None:
    known = ev_set(experiment.entropy_values(config), topology.planes, topology.t1_per_plane)
    limit = experiment.limits.simulated_time_us
    for index, action in enumerate(experiment.script):
        path = f"script.{index}"
        try:
            action.check(topology.hosts, topology.planes, known)
        except ConfigError as error:
            raise ConfigError(f"{path}.{error.path}", error.expected, error.value) from error
        if action.from_us >= limit:
            raise ConfigError(
                f"{path}.from_us", f"below limits.simulated_time_us = {limit:g}", action.from_us
            )
