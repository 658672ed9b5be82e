"""Builds what an experiment describes: NICs, the fabric, connected queue pairs, and the applications on top.

Source: design.md 3; profile.md 2, 4 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from mrc_host.errors import ConfigError
from mrc_host.experiment.application import Host
from mrc_host.experiment.gateware_trace import as_of_model
from mrc_host.experiment.nics import NicFactory, NicRequest, verilated_nic
from mrc_host.experiment.packet_log import PacketLog
from mrc_host.experiment.phases import Phases
from mrc_host.experiment.schema import MEBIBYTE, Experiment
from mrc_host.experiment.script import RunningScript
from mrc_host.experiment.transfer import FlowState, Transfer, memory_bytes
from mrc_host.experiment.workload import Flow
from mrc_host.fabric.bounds import control_frame_bytes, data_frame_bytes
from mrc_host.fabric.events import component_key, random_bits
from mrc_host.fabric.faults.running import RunningFaults
from mrc_host.fabric.model import Fabric
from mrc_host.fabric.topology import Topology
from mrc_host.fabric.usid import UsidPlan
from mrc_host.nic.base import Nic, TraceRecord
from mrc_host.nic.device import (
    CcProfile,
    Context,
    EvProfile,
    Identity,
    NsccConfig,
    Path,
    ProfileState,
    ProtectionDomain,
    Retry,
    Settings,
)
from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_rtl.config import NicConfig
from mrc_rtl.wire import MPR_UNIT_PSNS, PSN_MASK, Opcode

__all__ = ["Testbed", "base_rtt_ps", "build_testbed", "set_up"]

CQE_BYTES = 32
STARTING_PSN = component_key("starting PSN")


@dataclass
class Testbed:
    """A run that is ready to go.

    Parameters
    ----------
    experiment : Experiment
        What was asked for.
    config : NicConfig
        Sizes of every NIC.
    topology : Topology
        The fabric's plan.
    fabric : Fabric
        The fabric itself.
    nics, hosts, applications : lists
        By host number.
    states : list of FlowState
        By flow number.
    log : PacketLog
        Every packet at every NIC port.
    faults : RunningFaults
        What goes wrong on the fabric.
    script : RunningScript
        What controllers do to the NICs.
    phases : Phases
        What messages wait for.
    evs : list of list of int
        Entropy values of every plane, by place; the same for all queue pairs.
    """

    experiment: Experiment
    config: NicConfig
    topology: Topology
    fabric: Fabric
    log: PacketLog
    states: list[FlowState]
    faults: RunningFaults
    script: RunningScript
    phases: Phases
    nics: list[Nic] = field(default_factory=list)
    hosts: list[Host] = field(default_factory=list)
    applications: list[Transfer] = field(default_factory=list)
    evs: list[list[int]] = field(default_factory=list)

    def start(self, start_ps: int, limit_ps: int) -> None:
        """Give faults and controllers their times, and let NICs see the links that go down and up.

        Parameters
        ----------
        start_ps, limit_ps : int
            When the run begins, and when it ends at the latest.
        """
        for change in self.faults.start(start_ps, limit_ps):
            self.nics[change.host].schedule_link(change.time_ps, change.plane, change.up)
        self.script.start(start_ps, self.hosts)

    def decisions(self, host: int, records: Sequence[TraceRecord]) -> Sequence[TraceRecord]:
        """Return trace records of a host's NIC as a model tells them."""
        return as_of_model(records, self.evs) if self.nics[host].gateware else records

    def close(self) -> None:
        """Free the NICs."""
        for nic in self.nics:
            nic.close()


@dataclass(frozen=True)
class _End:
    """What a host's queue pairs share."""

    context: Context
    domain: ProtectionDomain
    profile: EvProfile
    congestion: CcProfile | None


def base_rtt_ps(experiment: Experiment, topology: Topology, config: NicConfig) -> int:
    """Return the round-trip time the NICs' timers start from: as configured, or the longest path's."""
    if experiment.qp.base_rtt_ns is not None:
        return round(experiment.qp.base_rtt_ns * 1000)
    frame = data_frame_bytes(experiment.mtu(config), srv6=experiment.srv6)
    answer = control_frame_bytes(Opcode.SACK, srv6=experiment.srv6)
    return max(
        topology.base_rtt_ps(path, frame, answer)
        for flow in experiment.flows()
        for path in topology.paths(flow.source, flow.target)
    )


def build_testbed(
    experiment: Experiment, factory: NicFactory = verilated_nic, progress: Callable[[str], None] = print
) -> Testbed:
    """Build fabric and NICs; nothing is configured yet.

    Raises
    ------
    ConfigError
        The buffers do not fit the memory.
    InfrastructureError
        A NIC cannot be built.
    """
    config = experiment.nic.config()
    topology = experiment.topology()
    flows = experiment.flows()
    fabric = Fabric(topology, experiment.seed, round(experiment.records.interval_ns * 1000))
    states = [FlowState(flow, experiment.workload.outstanding_messages) for flow in flows]
    faults = RunningFaults(experiment.faults, fabric, experiment.seed)
    testbed = Testbed(
        experiment,
        config,
        topology,
        fabric,
        PacketLog(fabric),
        states,
        faults,
        RunningScript(experiment.script),
        Phases(flows, experiment.workload.computing_ps(), round(experiment.host_latency_ns * 1000)),
    )
    mac = MacOptions(
        gbps=Fraction(str(experiment.fabric.rate_gbps)), fifo_bytes=experiment.nic.transmit_fifo_bytes
    )
    try:
        for host in range(topology.hosts):
            memory = _memory_options(experiment, config, flows, host)
            request = NicRequest(
                host,
                config,
                mac,
                memory,
                progress,
                hosts=topology.hosts,
                seed=experiment.seed,
                model=experiment.nic.model,
            )
            testbed.nics.append(factory(request))
    except BaseException:
        testbed.close()
        raise
    return testbed


def set_up(testbed: Testbed) -> None:
    """Configure the NICs, allocate and fill buffers, connect queue pairs, post receives."""
    experiment, topology, config = testbed.experiment, testbed.topology, testbed.config
    plan = UsidPlan(topology)
    settings = Settings(
        trimming=experiment.fabric.trimming is not None,
        sack_threshold=experiment.nic.sack_threshold_bytes,
        base_rtt_ps=base_rtt_ps(experiment, topology, config),
    )
    values = EvProfile.by_plane(plan.ev_set(experiment.entropy_values(config)), config.planes)
    testbed.evs = values
    rtt_ns = -(-settings.base_rtt_ps // 1000)
    ends: list[_End] = []
    for host, nic in enumerate(testbed.nics):
        context = Context(nic, Identity.of_host(plan, host), settings)
        application = Transfer(host, experiment.seed, testbed.states, testbed.phases)
        domain = context.protection_domain()
        for _ in ("send", "receive"):
            context.completion_queue(_ring_entries(experiment, host))
        application.prepare(context, domain)
        congestion = None
        if experiment.qp.congestion_control == "nscc":
            congestion = _congestion_profile(experiment, config, context, rtt_ns)
        profile = context.ev_profile(values, oblivious=experiment.qp.oblivious)
        ends.append(_End(context, domain, profile, congestion))
        testbed.applications.append(application)
        testbed.hosts.append(Host(context, application, round(experiment.host_latency_ns * 1000)))
    testbed.script.require([end.context for end in ends])
    for low, high, lane in _connections(testbed.states):
        _connect(testbed, plan, ((low, ends[low]), (high, ends[high])), lane)
    for application in testbed.applications:
        application.post_receives()


def _congestion_profile(
    experiment: Experiment, config: NicConfig, context: Context, rtt_ns: int
) -> CcProfile:
    """Return a profile of congestion control for the fabric that is ONLINE."""
    profile = context.cc_profile()
    profile.modify(ProfileState.OFFLINE, algorithm="uet-1.0-nscc")
    profile.modify(
        ProfileState.ONLINE,
        config=NsccConfig.for_network(
            rate_gbps=experiment.fabric.rate_gbps * config.planes,
            base_rtt_ns=rtt_ns,
            mtu=experiment.mtu(config),
            trimming=experiment.fabric.trimming is not None,
        ),
    )
    return profile


def _memory_options(experiment: Experiment, config: NicConfig, flows: list[Flow], host: int) -> MemoryOptions:
    section = experiment.nic.memory
    needed = memory_bytes(flows, host, 2 * CQE_BYTES * _ring_entries(experiment, host))
    size = section.size_mib * MEBIBYTE if section.size_mib else -(-needed // MEBIBYTE) * MEBIBYTE
    if size < needed:
        raise ConfigError(
            "nic.memory.size_mib", f"at least {-(-needed // MEBIBYTE)} for the buffers", section.size_mib
        )
    if size > 1 << config.address_width:
        raise ConfigError(
            "workload", f"so that buffers fit the NIC's {config.address_width} address bits", f"{size} bytes"
        )
    return MemoryOptions(
        size=size,
        read_latency=_cycles(section.read_latency_ns, config),
        write_latency=_cycles(section.write_latency_ns, config),
        latency_jitter=round(section.latency_jitter_ns * 1000) // config.clock_ps,
        outstanding=section.outstanding_bursts,
        seed=experiment.seed & 0xFFFFFFFF,
    )


def _cycles(nanoseconds: float, config: NicConfig) -> int:
    return max(1, -(-round(nanoseconds * 1000) // config.clock_ps))


def _ring_entries(experiment: Experiment, host: int) -> int:
    """Return a ring size that holds all completions that can be under way at a host, four times."""
    flows = sum(host in (flow.source, flow.target) for flow in experiment.flows())
    most = 4 * flows * experiment.workload.outstanding_messages
    return 1 << max(6, (most - 1).bit_length())


def _connections(states: list[FlowState]) -> list[tuple[int, int, int]]:
    """Return the pairs of hosts, with a lane, that need a queue pair: one serves both directions."""
    return sorted(
        {(min(ends), max(ends), s.flow.lane) for s in states for ends in [(s.flow.source, s.flow.target)]}
    )


def _connect(
    testbed: Testbed, plan: UsidPlan, hosts: tuple[tuple[int, _End], tuple[int, _End]], lane: int
) -> None:
    """Walk the two queue pairs of a connection to RTS, as two programs with a socket between them would."""
    experiment, config = testbed.experiment, testbed.config
    pairs, endpoints = [], []
    for (host, end), (other, _) in (hosts, hosts[::-1]):
        queues = end.context.completion_queues
        pair = end.context.queue_pair(end.domain, queues[0], queues[1])
        psn = experiment.qp.starting_psn
        if psn is None:
            psn = random_bits(experiment.seed, STARTING_PSN, lane << 56 | host << 32 | other) & PSN_MASK
        pairs.append(pair)
        endpoints.append(replace(pair.endpoint(psn), mpr=experiment.mpr_psns(config) // MPR_UNIT_PSNS))
        for state in testbed.states:
            if state.flow.lane != lane:
                continue
            if (state.flow.source, state.flow.target) == (host, other):
                state.sender = pair
            if (state.flow.source, state.flow.target) == (other, host):
                state.receiver = pair
    for side, ((host, end), (other, _)) in enumerate((hosts, hosts[::-1])):
        outer = plan.template(host, other) if experiment.srv6 else None
        path = Path(plan.inner_address(host), plan.inner_address(other), outer)
        attributes: dict[str, Any] = {"go_back_n": experiment.qp.type == "go_back_n"}
        if end.congestion is not None:
            attributes["cc_profile"] = end.congestion
        pairs[side].to_init(end.profile, **attributes)
        pairs[side].to_rtr(
            path,
            endpoints[1 - side],
            path_mtu=experiment.mtu(config),
            dynamic_mpr=experiment.qp.dynamic_mpr,
        )
    for pair, endpoint in zip(pairs, endpoints, strict=True):
        pair.to_rts(
            sq_psn=endpoint.starting_psn,
            timeout=experiment.qp.timeout_exponent,
            retry=Retry(experiment.qp.linear_retries, experiment.qp.exponential_retries),
        )
