"""What a user writes about a topology, as a checked schema.

Units stand in the names of the keys. Unknown keys are refused. Every message has the form
"planes must be between 1 and 8, got 9"; the loader of experiment files adds file and line.

Source: profile.md 1 and 2; design.md 5.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from mrc_rtl.wire import EV, USID

__all__ = [
    "HOSTS_MAXIMUM",
    "PLANES_MAXIMUM",
    "T0_MAXIMUM",
    "T1_MAXIMUM",
    "LinkOverride",
    "TopologySpec",
    "describe_validation_error",
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


def _bounded_integer(low: int, high: int) -> BeforeValidator:
    """Return a validator for whole numbers between two limits, both allowed."""

    def check(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise PydanticCustomError(
                "mrc_range",
                "must be a whole number between {low} and {high}, got {value}",
                {"low": low, "high": high, "value": repr(value)},
            )
        return value

    return BeforeValidator(check)


def _check_number(value: Any, what: str, low: float, high: float, *, low_allowed: bool) -> float:
    good = not isinstance(value, bool) and isinstance(value, int | float)
    if not good or not (low <= value if low_allowed else low < value) or not value <= high:
        low_text = f"from {low:g}" if low_allowed else f"above {low:g}"
        raise PydanticCustomError(
            "mrc_range",
            "must be a number of {what} {low} to {high}, got {value}",
            {"what": what, "low": low_text, "high": f"{high:g}", "value": repr(value)},
        )
    return float(value)


def _check_rate(value: Any) -> float:
    return _check_number(value, "Gb/s", 0, RATE_MAXIMUM_GBPS, low_allowed=False)


def _check_delay(value: Any) -> float:
    return _check_number(value, "nanoseconds", 0, DELAY_MAXIMUM_NS, low_allowed=True)


def _check_link_delay(value: Any) -> float:
    # A link without delay would leave no look-ahead between the NICs and the fabric.
    return _check_number(value, "nanoseconds", 0, DELAY_MAXIMUM_NS, low_allowed=False)


def _check_delays(value: Any) -> Any:
    return (
        [_check_link_delay(item) for item in value] if isinstance(value, list) else _check_link_delay(value)
    )


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
            raise PydanticCustomError(
                "mrc_override",
                "must give rate_gbps or delay_ns for link {link}, got neither",
                {"link": self.link},
            )
        return self


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
    control_queue_bytes : int, optional
        Size of its control queue; ``queue_bytes`` when left out.
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
    t0_per_plane: Annotated[int, _bounded_integer(1, T0_MAXIMUM)] = 1
    t1_per_plane: Annotated[int, _bounded_integer(0, T1_MAXIMUM)] = 0
    rate_gbps: Rate
    t1_rate_gbps: Rate | None = None
    host_link_delay_ns: LinkDelay = 1000.0
    t1_link_delay_ns: LinkDelays = 1000.0
    queue_bytes: Annotated[int, _bounded_integer(64, 1 << 32)] = 256 * 1024
    control_queue_bytes: Annotated[int, _bounded_integer(64, 1 << 32)] | None = None
    switch_latency_ns: Delay = 0.0
    links: list[LinkOverride] = Field(default_factory=list)

    @model_validator(mode="after")
    def _can_be_built(self) -> TopologySpec:
        if self.hosts % self.t0_per_plane:
            raise PydanticCustomError(
                "mrc_topology",
                "hosts must be a multiple of t0_per_plane = {t0}, got {hosts}",
                {"t0": self.t0_per_plane, "hosts": self.hosts},
            )
        if self.hosts // self.t0_per_plane > T0_MAXIMUM:
            raise PydanticCustomError(
                "mrc_topology",
                "hosts must be at most {limit} per T0 (10 bits of uSID index), "
                "got {got} with t0_per_plane = {t0}",
                {"limit": T0_MAXIMUM, "got": self.hosts // self.t0_per_plane, "t0": self.t0_per_plane},
            )
        if self.t1_per_plane == 0 and self.t0_per_plane != 1:
            raise PydanticCustomError(
                "mrc_topology",
                "t0_per_plane must be 1 when t1_per_plane is 0 (a star), got {t0}",
                {"t0": self.t0_per_plane},
            )
        if isinstance(self.t1_link_delay_ns, list) and len(self.t1_link_delay_ns) != self.t1_per_plane:
            raise PydanticCustomError(
                "mrc_topology",
                "t1_link_delay_ns must have one value for each of t1_per_plane = {t1} switches, got {got}",
                {"t1": self.t1_per_plane, "got": len(self.t1_link_delay_ns)},
            )
        return self

    def t1_delay_ns(self, index: int) -> float:
        """Return the delay of the links to T1 number ``index`` (from 1), before overrides."""
        delays = self.t1_link_delay_ns
        return delays[index - 1] if isinstance(delays, list) else delays


def describe_validation_error(error: ValidationError) -> list[tuple[tuple[str | int, ...], str]]:
    """Turn pydantic's errors into (path to the key, text) pairs in this project's wording.

    The text begins with the key, for instance ``planes must be a whole number between 1 and 8, got 9``.
    """
    lines: list[tuple[tuple[str | int, ...], str]] = []
    for item in error.errors():
        path = tuple(item["loc"])
        name = ".".join(str(part) for part in path)
        kind = item["type"]
        if kind == "extra_forbidden":
            text = f"{name} is not a key of this section"
        elif kind == "missing":
            text = f"{name} must be given, got nothing"
        elif kind == "mrc_topology":
            text = f"{name}: {item['msg']}" if name else item["msg"]
        elif kind.startswith("mrc_"):
            text = f"{name} {item['msg']}" if name else item["msg"]
        else:
            text = f"{name}: {item['msg']}, got {item.get('input')!r}"
        lines.append((path, text))
    return lines
