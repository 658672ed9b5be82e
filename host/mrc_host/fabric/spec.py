"""What a user writes about a topology, as a checked schema.

Units stand in the names of the keys. Unknown keys are refused. Every message has the form
"planes must be a whole number between 1 and 8, got 9"; the loader of a file adds file and line.

Source: profile.md 1 and 2; design.md 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from mrc_host.errors import ConfigError
from mrc_rtl.wire import EV, TRIM_SIZE_DEFAULT, TRIM_SIZE_MINIMUM, USID

__all__ = [
    "HOSTS_MAXIMUM",
    "PLANES_MAXIMUM",
    "T0_MAXIMUM",
    "T1_MAXIMUM",
    "EcnSpec",
    "LinkOverride",
    "TopologySpec",
    "TrimmingSpec",
    "config_errors",
    "parse_topology",
]

PLANES_MAXIMUM = USID["plane"].mask + 1
"""Planes a uSID and an EV can name (3 bits)."""
T0_MAXIMUM = USID["index"].mask
"""T0 switches per plane and hosts per T0: a uSID index has 10 bits and counts from 1."""
T1_MAXIMUM = EV["uplink"].mask
"""T1 switches per plane: the EV's uplink field has 8 bits and counts from 1."""
HOSTS_MAXIMUM = 1 << 16
"""Hosts: the MAC address and the inner address have 16 bits for the host."""

RATE_MAXIMUM_GBPS = 1600
DELAY_MAXIMUM_NS = 1_000_000_000


def _refuse(expected: str, value: Any) -> PydanticCustomError:
    """Return an error that reads "must be <expected>, got <value>" behind the key."""
    return PydanticCustomError(
        "mrc_config", "must be {expected}, got {value}", {"expected": expected, "value": value}
    )


def _bounded_integer(low: int, high: int) -> BeforeValidator:
    """Return a validator for whole numbers between two limits, both allowed."""

    def check(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _refuse(f"a whole number between {low} and {high}", value)
        return value

    return BeforeValidator(check)


def _check_number(value: Any, what: str, low: float, high: float, *, low_allowed: bool) -> float:
    good = not isinstance(value, bool) and isinstance(value, int | float)
    if not good or not (low <= value if low_allowed else low < value) or not value <= high:
        low_text = f"from {low:g}" if low_allowed else f"above {low:g}"
        raise _refuse(f"a number of {what} {low_text} to {high:g}", value)
    return float(value)


def _check_rate(value: Any) -> float:
    return _check_number(value, "Gb/s", 0, RATE_MAXIMUM_GBPS, low_allowed=False)


def _check_delay(value: Any) -> float:
    return _check_number(value, "nanoseconds", 0, DELAY_MAXIMUM_NS, low_allowed=True)


def _check_convergence(value: Any) -> float:
    return _check_number(value, "microseconds", 0, DELAY_MAXIMUM_NS, low_allowed=True)


def _check_link_delay(value: Any) -> float:
    # A link without delay would leave no look-ahead between the NICs and the fabric.
    return _check_number(value, "nanoseconds", 0, DELAY_MAXIMUM_NS, low_allowed=False)


def _check_delays(value: Any) -> Any:
    if isinstance(value, list):
        return [_check_link_delay(item) for item in value]
    return _check_link_delay(value)


def _check_flag(value: Any) -> Any:
    if not isinstance(value, bool):
        raise _refuse("true or false", value)
    return value


def _check_trim_size(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not TRIM_SIZE_MINIMUM <= value <= 9000:
        raise _refuse(
            f"a whole number of bytes between {TRIM_SIZE_MINIMUM} (what keeps METH behind an outer IPv6 "
            "header) and 9000",
            value,
        )
    return value


def _check_hash(value: Any) -> Any:
    if value not in ECMP_HASHES:
        raise _refuse(f"one of {', '.join(ECMP_HASHES)}", value)
    return value


ECMP_HASHES = ("both", "flow_label", "ports")

Flag = Annotated[bool, BeforeValidator(_check_flag)]
QueueBytes = Annotated[int, _bounded_integer(64, 1 << 32)]
Rate = Annotated[float, BeforeValidator(_check_rate)]
Delay = Annotated[float, BeforeValidator(_check_delay)]
LinkDelay = Annotated[float, BeforeValidator(_check_link_delay)]
LinkDelays = Annotated[float | list[float], BeforeValidator(_check_delays)]


class LinkOverride(BaseModel):
    """Another rate or delay for some links.

    Parameters
    ----------
    link : str
        Name of a link, ``h0-p0.t0.1`` or ``p0.t0.1-p0.t1.2``, or a pattern with ``*`` and ``?`` as in
        ``p*.t0.*-p*.t1.2``. At least one link must match.
    rate_gbps : float, optional
        Rate of both directions in Gb/s.
    delay_ns : float, optional
        Propagation delay of both directions in nanoseconds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    link: str = Field(min_length=1)
    rate_gbps: Rate | None = None
    delay_ns: LinkDelay | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> LinkOverride:
        if self.rate_gbps is None and self.delay_ns is None:
            raise _refuse("a link with rate_gbps or delay_ns", self.link)
        return self


class EcnSpec(BaseModel):
    """Where and when switches mark packets.

    Parameters
    ----------
    min_bytes, max_bytes : int, optional
        Bytes in a queue, the packet included, from which a packet is marked with some probability, and from
        which it always is; in between it rises linearly. A fifth and four fifths of a plane's bandwidth-delay
        product when left out.
    host_ports : bool
        Whether ports to hosts mark too; off by default, so that a mark speaks of the fabric.

    Source: protocol.md 4; profile.md 6.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_bytes: QueueBytes | None = None
    max_bytes: QueueBytes | None = Field(default=None, validate_default=True)
    host_ports: Flag = False

    @field_validator("max_bytes")
    @classmethod
    def _is_the_larger(cls, value: int | None, info: ValidationInfo) -> int | None:
        low = info.data.get("min_bytes")
        if (value is None) != (low is None):
            raise _refuse("given together with min_bytes, or left out with it", value)
        if value is not None and low is not None and value < low:
            raise _refuse(f"at least min_bytes = {low}", value)
        return value


class TrimmingSpec(BaseModel):
    """How switches trim packets instead of dropping them.

    Parameters
    ----------
    size_bytes : int
        What is kept, from Ethernet on: 118 keeps METH, 122 TSETH, 138 RETH behind one outer IPv6 header.
    correct_lengths : bool
        Whether the outermost IP header's length is corrected; switches do either.
    threshold_bytes : int, optional
        Bytes in a queue above which trimmable packets are trimmed; what the queue holds when left out.
    host_threshold_bytes : int, optional
        The same for ports to hosts; that of the others when left out.

    Source: profile.md 6; protocol.md 4.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    size_bytes: Annotated[int, BeforeValidator(_check_trim_size)] = TRIM_SIZE_DEFAULT
    correct_lengths: Flag = False
    threshold_bytes: QueueBytes | None = None
    host_threshold_bytes: QueueBytes | None = None


class TopologySpec(BaseModel):
    """A two-tier multi-plane topology, or a star of one T0 per plane.

    Parameters
    ----------
    hosts : int
        Hosts; each has one port in every plane. Attached evenly to the T0 switches, in order.
    planes : int
        Parallel planes, 1 to 8.
    t0_per_plane : int
        T0 (leaf) switches of a plane, 1 to 1023; divides ``hosts``.
    t1_per_plane : int
        T1 (spine) switches of a plane, 0 to 255; 0 makes a star and needs one T0 per plane. Every T0 has
        one uplink to every T1 of its plane.
    rate_gbps : float
        Rate of the host links in Gb/s.
    t1_rate_gbps : float, optional
        Rate of the T0-T1 links in Gb/s; that of the host links when left out.
    host_link_delay_ns : float
        Propagation delay of the host links in nanoseconds, above 0.
    t1_link_delay_ns : float or list of float
        Propagation delay of the T0-T1 links in nanoseconds: one value, or one for each T1 of a plane.
    queue_bytes : int
        Size of a switch port's data queue in bytes of frames without FCS.
    control_queue_bytes, retransmission_queue_bytes : int, optional
        Sizes of its other queues; ``queue_bytes`` when left out.
    control_share_percent : int
        Share of a link that control and trimmed packets may take while others wait, 1 to 99.
    ecn : EcnSpec, optional
        Marking; none when left out.
    trimming : TrimmingSpec, optional
        Trimming; none when left out.
    ecmp_hash : str
        What tells plain packets of two hosts apart for ECMP: ``flow_label``, UDP ``ports`` or ``both``.
    ecmp_convergence_us : float
        Time from a signalled change of a link between switches until no T0 hashes plain packets over it, or
        all do again, in microseconds.
    switch_latency_ns : float
        Time from the last bit of a frame received to its place in the output queue, in nanoseconds.
    links : list of LinkOverride
        Other rates or delays for single links; a later entry wins.

    Raises
    ------
    pydantic.ValidationError
        A subclass of ValueError, for unknown keys, values out of range and topologies that cannot be.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    hosts: Annotated[int, _bounded_integer(1, HOSTS_MAXIMUM)]
    planes: Annotated[int, _bounded_integer(1, PLANES_MAXIMUM)]
    t0_per_plane: Annotated[int, _bounded_integer(1, T0_MAXIMUM)] = Field(default=1, validate_default=True)
    t1_per_plane: Annotated[int, _bounded_integer(0, T1_MAXIMUM)] = Field(default=0, validate_default=True)
    rate_gbps: Rate
    t1_rate_gbps: Rate | None = None
    host_link_delay_ns: LinkDelay = 1000.0
    t1_link_delay_ns: LinkDelays = 1000.0
    queue_bytes: QueueBytes = 256 * 1024
    control_queue_bytes: QueueBytes | None = None
    retransmission_queue_bytes: QueueBytes | None = None
    control_share_percent: Annotated[int, _bounded_integer(1, 99)] = 25
    ecn: EcnSpec | None = None
    trimming: TrimmingSpec | None = None
    ecmp_hash: Annotated[str, BeforeValidator(_check_hash)] = "both"
    ecmp_convergence_us: Annotated[float, BeforeValidator(_check_convergence)] = 1000.0
    switch_latency_ns: Delay = 0.0
    links: list[LinkOverride] = Field(default_factory=list)

    @field_validator("t0_per_plane")
    @classmethod
    def _divides_hosts(cls, value: int, info: ValidationInfo) -> int:
        hosts = info.data.get("hosts")
        if hosts is not None:
            if hosts % value:
                raise _refuse(f"a divisor of hosts = {hosts}", value)
            if hosts // value > T0_MAXIMUM:
                least = -(-hosts // T0_MAXIMUM)
                raise _refuse(
                    f"at least {least} for hosts = {hosts} (a uSID tells {T0_MAXIMUM} hosts per T0 apart)",
                    value,
                )
        return value

    @field_validator("t1_per_plane")
    @classmethod
    def _connects_the_t0(cls, value: int, info: ValidationInfo) -> int:
        t0 = info.data.get("t0_per_plane")
        if value == 0 and t0 is not None and t0 != 1:
            raise _refuse(f"at least 1 with t0_per_plane = {t0} (only a star of one T0 has none)", value)
        return value

    @field_validator("t1_link_delay_ns")
    @classmethod
    def _one_delay_for_each_t1(cls, value: float | list[float], info: ValidationInfo) -> float | list[float]:
        t1 = info.data.get("t1_per_plane")
        if isinstance(value, list) and t1 is not None and len(value) != t1:
            raise _refuse(f"one number or a list of t1_per_plane = {t1} numbers", value)
        return value

    @field_validator("trimming")
    @classmethod
    def _threshold_fits_the_queues(
        cls, value: TrimmingSpec | None, info: ValidationInfo
    ) -> TrimmingSpec | None:
        size = info.data.get("queue_bytes")
        if value is not None and size is not None:
            for name in ("threshold_bytes", "host_threshold_bytes"):
                threshold = getattr(value, name)
                if threshold is not None and threshold > size:
                    raise _refuse(f"a section whose {name} is at most queue_bytes = {size}", threshold)
        return value

    def t1_delay_ns(self, index: int) -> float:
        """Return the delay of the links to T1 number ``index`` (from 1), before overrides."""
        delays = self.t1_link_delay_ns
        return delays[index - 1] if isinstance(delays, list) else delays


SECTIONS: dict[str, type[BaseModel]] = {"links": LinkOverride, "ecn": EcnSpec, "trimming": TrimmingSpec}
"""Models of the keys of a topology that hold sections."""


def config_errors(error: ValidationError, model: type[BaseModel] = TopologySpec) -> list[ConfigError]:
    """Turn the errors of a validated model into this project's form, which a loader can give a place.

    Parameters
    ----------
    error : ValidationError
        What pydantic raised.
    model : type
        The model that was validated, to name the keys it knows.
    """
    problems = []
    # Unknown keys first: a key that is missing is most often one that is misspelt.
    for item in sorted(error.errors(), key=lambda item: item["type"] != "extra_forbidden"):
        path = ".".join(str(part) for part in item["loc"])
        kind, value = item["type"], item.get("input")
        if kind == "extra_forbidden":
            nested = len(item["loc"]) > 1 and model is TopologySpec
            known = SECTIONS.get(str(item["loc"][0]), model) if nested else model
            expected = f"a known key: {', '.join(known.model_fields)}"
            problems.append(ConfigError(path, expected, item["loc"][-1]))
        elif kind == "missing":
            problems.append(ConfigError(path, "given"))
        elif kind == "mrc_config":
            context = item["ctx"]
            problems.append(ConfigError(path, context["expected"], context["value"]))
        else:
            expected = item["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            problems.append(ConfigError(path, expected, value))
    return problems


def parse_topology(data: Mapping[str, Any]) -> TopologySpec:
    """Check what a file says about a topology.

    Raises
    ------
    ConfigError
        For the first thing that is wrong.
    """
    try:
        return TopologySpec.model_validate(data)
    except ValidationError as error:
        raise config_errors(error)[0] from error
