"""What an experiment file may say. Units stand in the names of the keys; unknown keys are refused.

The models check single values; :mod:`mrc_host.experiment.checks` checks what must fit together. Files, line
numbers and overrides are the business of :mod:`mrc_host.experiment.load`.

Source: profile.md 1, 4, 6, 7; experiments.md 1.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from mrc_host.errors import ConfigError
from mrc_host.experiment.fields import (
    Flag,
    Name,
    Section,
    WindowFraction,
    check_kind,
    choice,
    number,
    refuse,
    text,
    whole,
)
from mrc_host.experiment.script import Action, check_action
from mrc_host.experiment.workload import Flow, Setting, Traffic
from mrc_host.experiment.workloads import WORKLOADS
from mrc_host.fabric.faults import FaultSpec, check_fault
from mrc_host.fabric.spec import TopologySpec
from mrc_host.fabric.topology import Topology
from mrc_host.model.options import ModelOptions
from mrc_rtl.config import ConfigurationError, NicConfig
from mrc_rtl.wire import MTU_CHOICES, PSN_MASK

__all__ = [
    "Capture",
    "Criterion",
    "Experiment",
    "Limits",
    "Memory",
    "NicSection",
    "QueuePairSection",
    "Records",
    "Runner",
]

ENGINES = ("small", "default", "large", "quickstart")
MEBIBYTE = 1 << 20

NANOSECONDS = "nanoseconds"
Latency = Annotated[float, number(NANOSECONDS, 0, 1e6, low_allowed=False)]


class Memory(Section):
    """The host memory behind a NIC.

    Parameters
    ----------
    size_mib : int, optional
        Size; what the buffers need when left out.
    read_latency_ns, write_latency_ns : float
        From the address to the first beat; from the last beat to the response. Rounded up to clock cycles.
    latency_jitter_ns : float
        At most so much more, at random; answers stay in order.
    outstanding_bursts : int
        Bursts of each direction accepted before the first one is answered.
    """

    size_mib: Annotated[int, whole(1, 1 << 16, "MiB")] | None = None
    read_latency_ns: Latency = 100.0
    write_latency_ns: Latency = 60.0
    latency_jitter_ns: Annotated[float, number(NANOSECONDS, 0, 1e6)] = 0.0
    outstanding_bursts: Annotated[int, whole(1, 1024)] = 16


class NicSection(Section):
    """The NICs, all alike. Their link rate is that of the fabric's host links.

    Parameters
    ----------
    engine : str
        Named configuration of ``NicConfig``.
    parameters : mapping
        Parameters of ``NicConfig`` that differ from the named configuration.
    transmit_fifo_bytes : int
        FIFO of a MAC: what the engine sees as room on a plane.
    sack_threshold_bytes : int
        Bytes received before a SACK is due.
    memory : Memory
        Host memory.
    model : mapping
        Options of NICs that are models, see docs/golden-model.md.
    """

    engine: Annotated[str, choice(*ENGINES)] = "quickstart"
    parameters: dict[str, Any] = Field(default_factory=dict)
    transmit_fifo_bytes: Annotated[int, whole(16, MEBIBYTE, "bytes")] = 256
    sack_threshold_bytes: Annotated[int, whole(1024, 65_536, "bytes")] = 16_384
    memory: Memory = Field(default_factory=Memory)
    model: dict[str, Any] = Field(default_factory=dict)

    def check_model(self) -> None:
        """Check the options of models.

        Raises
        ------
        ConfigError
            An option does not exist or its value is not allowed.
        """
        import mrc_host.model.nscc_fixed  # noqa: F401  (makes itself known to the names below)
        from mrc_host.model.nscc import congestion_names
        from mrc_host.model.spray import policy_names

        try:
            ModelOptions.from_mapping(self.model)
        except ConfigError as error:
            raise ConfigError(f"nic.{error.path}", error.expected, error.value) from error
        for option, known in (("spray_policy", policy_names()), ("congestion", congestion_names())):
            if option in self.model and self.model[option] not in known:
                raise ConfigError(f"nic.model.{option}", f"one of {', '.join(known)}", self.model[option])

    def config(self) -> NicConfig:
        """Return the engine's configuration.

        Raises
        ------
        ConfigError
            A parameter does not exist or is out of range.
        """
        base: NicConfig = getattr(NicConfig, self.engine)()
        known = base.as_dict()
        for name, value in self.parameters.items():
            path = f"nic.parameters.{name}"
            if name not in known:
                raise ConfigError(path, f"a parameter of NicConfig: {', '.join(known)}", name)
            if type(value) is not type(known[name]):
                kind = "true or false" if isinstance(known[name], bool) else "a whole number"
                raise ConfigError(path, kind, value)
        try:
            return base.with_(**self.parameters)
        except ConfigurationError as error:
            rule = str(error)
            name = rule.split(" ", 1)[0]
            expected = rule.removeprefix(f"{name} ").removeprefix("must be ").rsplit(", got", 1)[0]
            raise ConfigError(f"nic.parameters.{name}", expected, self.parameters.get(name)) from error


def _check_mtu(value: Any) -> Any:
    if isinstance(value, bool) or value not in MTU_CHOICES:
        raise refuse(f"one of {', '.join(map(str, MTU_CHOICES))} bytes", value)
    return value


class QueuePairSection(Section):
    """Attributes of every queue pair; what is left out is what the engine offers.

    Parameters
    ----------
    mtu_bytes : int, optional
        Path MTU: payload of a full packet.
    mpr_psns : int, optional
        Window: PSNs in flight; a multiple of 128.
    entropy_values : int, optional
        EVs of a queue pair over all planes; a multiple of the number of planes.
    timeout_exponent : int
        Retransmission timeout is 1.024 µs × 2^this; 0 means none.
    linear_retries, exponential_retries : int
        Timeouts at the fixed and at doubling intervals before the QP goes to ERROR; 25 exponential ones
        mean no limit.
    base_rtt_ns : float, optional
        Round-trip time of the empty network the timers start from; the longest path's when left out.
    starting_psn : int, optional
        First PSN in both directions of every connection; drawn from the seed when left out.
    dynamic_mpr : bool
        Whether windows follow the MPR that SACKs tell.
    type : str
        ``mrc``, or ``go_back_n``: writes are accepted in the order of their PSNs only, and everything is
        sent again from a lost one on, as RoCE does. With one entropy value it is the single-path baseline.
    oblivious : bool
        Marks, trims and losses change the state of no entropy value.
    routing : str
        ``srv6``: the NIC writes the path of every packet; ``ecmp``: plain IPv6, and switches hash.
    congestion_control : str
        ``none``, or ``nscc`` with the API's defaults for the fabric's rate and round-trip time.
    """

    mtu_bytes: Annotated[int, BeforeValidator(_check_mtu)] | None = None
    mpr_psns: Annotated[int, whole(128, 4096)] | None = None
    entropy_values: Annotated[int, whole(1, 256)] | None = None
    timeout_exponent: Annotated[int, whole(0, 24)] = 9
    linear_retries: Annotated[int, whole(0, 7)] = 7
    exponential_retries: Annotated[int, whole(0, 25)] = 25
    base_rtt_ns: Annotated[float, number(NANOSECONDS, 128, 8_000_000)] | None = None
    starting_psn: Annotated[int, whole(0, PSN_MASK)] | None = None
    dynamic_mpr: Flag = False
    type: Annotated[str, choice("mrc", "go_back_n")] = "mrc"
    oblivious: Flag = False
    routing: Annotated[str, choice("srv6", "ecmp")] = "srv6"
    congestion_control: Annotated[str, choice("none", "nscc")] = "none"


class Limits(Section):
    """When a run that does not finish is given up.

    Parameters
    ----------
    simulated_time_us : float
        Simulated time after the first doorbell.
    """

    simulated_time_us: Annotated[float, number("microseconds", 0, 1e9, low_allowed=False)] = 100_000.0


class Criterion(Section):
    """A bound on a metric, judged at the end.

    Parameters
    ----------
    metric : str
        Name of a metric.
    equals, at_least, at_most : float, optional
        The bound; at least one.
    source : str
        Where the bound comes from.
    """

    metric: str
    equals: Annotated[float, number("the metric's unit", -1e18, 1e18)] | None = None
    at_least: Annotated[float, number("the metric's unit", -1e18, 1e18)] | None = None
    at_most: Annotated[float, number("the metric's unit", -1e18, 1e18)] | None = None
    source: Annotated[str, text("text that says where the bound comes from")]

    @model_validator(mode="after")
    def _has_a_bound(self) -> Criterion:
        if self.equals is None and self.at_least is None and self.at_most is None:
            raise refuse("a criterion with equals, at_least or at_most", self.metric)
        return self

    @property
    def limits(self) -> dict[str, float]:
        """The bounds that are given, by name."""
        bounds = {"equals": self.equals, "at_least": self.at_least, "at_most": self.at_most}
        return {name: value for name, value in bounds.items() if value is not None}


class Capture(Section):
    """Captures of the NICs' links.

    Parameters
    ----------
    pcap : bool
        Write ``pcap/<port>.pcapng`` for every NIC port.
    megabytes_per_port : float
        Size cap of each file; the newest frames are kept.
    """

    pcap: Flag = False
    megabytes_per_port: Annotated[float, number("megabytes", 0.01, 1e5)] = 16.0


class Records(Section):
    """Time series.

    Parameters
    ----------
    interval_ns : float
        Width of a bin of the time series.
    """

    interval_ns: Annotated[float, number(NANOSECONDS, 100, 1e9)] = 10_000.0


class Runner(Section):
    """How the simulation is carried out; nothing here changes a result.

    Parameters
    ----------
    window_fraction : str
        Length of the lock-step windows, as a fraction of the longest allowed one.
    jobs : int
        Threads that advance NICs.
    """

    window_fraction: WindowFraction = "1"
    jobs: Annotated[int, whole(1, 256)] = 2

    @property
    def fraction(self) -> Fraction:
        """The window fraction as a number."""
        return Fraction(self.window_fraction)


def _check_workload(value: Any) -> Any:
    return check_kind(value, Traffic, WORKLOADS, "a section with kind", " or ")


@lru_cache(maxsize=4)
def _planned_once(
    text: str, hosts: int, seed: int, host_gbps: float, kind: type[Traffic]
) -> tuple[Flow, ...]:
    workload = kind.model_validate_json(text)
    return tuple(workload.planned(Setting(hosts, seed, host_gbps)))


def _planned(workload: Traffic, hosts: int, seed: int, host_gbps: float) -> tuple[Flow, ...]:
    """Return the flows of a workload; the same experiment asks for them again and again."""
    return _planned_once(workload.model_dump_json(), hosts, seed, host_gbps, type(workload))


class Experiment(Section):
    """One experiment.

    Parameters
    ----------
    name : str
        Part of the run directory's name.
    title, description : str
        Shown in the report.
    seed : int
        Seed of everything random.
    nic, fabric, workload, qp, limits, criteria, capture, records, runner
        Sections.
    faults : list of FaultSpec
        What goes wrong, where and when; see docs/faults.md.
    script : list of Action
        What controllers do to NICs, and when.
    host_latency_ns : float
        Time from a completion in memory to what software does about it.
    """

    name: Name
    title: str = ""
    description: str = ""
    seed: Annotated[int, whole(0, (1 << 63) - 1)] = 1
    nic: NicSection = Field(default_factory=NicSection)
    fabric: TopologySpec
    workload: Annotated[SerializeAsAny[Traffic], BeforeValidator(_check_workload)]
    qp: QueuePairSection = Field(default_factory=QueuePairSection)
    faults: list[Annotated[SerializeAsAny[FaultSpec], BeforeValidator(check_fault)]] = Field(
        default_factory=list
    )
    script: list[Annotated[SerializeAsAny[Action], BeforeValidator(check_action)]] = Field(
        default_factory=list
    )
    host_latency_ns: Annotated[float, number(NANOSECONDS, 1, 1e6)] = 1000.0
    limits: Limits = Field(default_factory=Limits)
    criteria: list[Criterion] = Field(default_factory=list)
    capture: Capture = Field(default_factory=Capture)
    records: Records = Field(default_factory=Records)
    runner: Runner = Field(default_factory=Runner)

    def topology(self) -> Topology:
        """Build the topology.

        Raises
        ------
        ConfigError
            An override of links matches none.
        """
        try:
            return Topology(self.fabric)
        except ConfigError as error:
            raise ConfigError(f"fabric.{error.path}", error.expected, error.value) from error

    def flows(self) -> list[Flow]:
        """Return who sends what to whom."""
        return list(_planned(self.workload, self.fabric.hosts, self.seed, self.host_gbps))

    @property
    def host_gbps(self) -> float:
        """Rate of all links of a host together."""
        return self.fabric.rate_gbps * self.fabric.planes

    @property
    def srv6(self) -> bool:
        """Whether packets have an outer header that says their path."""
        return self.qp.routing == "srv6"

    def mtu(self, config: NicConfig) -> int:
        """Payload of a full packet in bytes."""
        return self.qp.mtu_bytes or config.mtu

    def mpr_psns(self, config: NicConfig) -> int:
        """PSNs a queue pair may have in flight."""
        return self.qp.mpr_psns or config.mpr_psns

    def entropy_values(self, config: NicConfig) -> int:
        """EVs of a queue pair."""
        return self.qp.entropy_values or config.evs
