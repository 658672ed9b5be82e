"""Attributes of a queue pair, and which of them each step between its states needs and allows.

| step | needs | allows |
|---|---|---|
| RESET → INIT | ev_profile | partition_key (0xFFFF) |
| INIT → RTR | path, path_mtu, dest_qp_num, rq_psn, mpr_dest | max_wimm_dest (32) |
| RTR → RTS | sq_psn | timeout (7), retry (7 linear, 25 exponential), mpr, max_wimm |
| any → ERROR, any → RESET | – | – |

The verbs' port number, retry counts, RNR timer, read depths and alternate path do not exist in MRC.

Source: protocol.md 1.20 (Table 10-1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mrc_host.nic.capabilities import MPR_UNIT_PSNS, Capabilities
from mrc_host.nic.path import EvProfile, Path
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl.tables import QpState

__all__ = ["Endpoint", "Retry", "check_attributes"]

SOURCE = "protocol 1.20"
LARGEST_PSN = (1 << 24) - 1
LARGEST_QPN = (1 << 24) - 1
LEAST_WIMM = 32


@dataclass(frozen=True)
class Retry:
    """How often a timeout is answered by a retransmission before the QP goes to ERROR.

    Parameters
    ----------
    linear_cnt : int
        Retries at the fixed interval, at most 7.
    exp_cnt : int
        Retries at doubling intervals after those, at most 25; 25 means no limit.
    """

    linear_cnt: int = 7
    exp_cnt: int = 25

    def __post_init__(self) -> None:
        check_range("qp.retry.linear_cnt", self.linear_cnt, 0, 7, SOURCE)
        check_range("qp.retry.exp_cnt", self.exp_cnt, 0, 25, SOURCE)


@dataclass(frozen=True)
class Endpoint:
    """What the two ends of a connection tell each other.

    Parameters
    ----------
    qp_number : int
    starting_psn : int
        First PSN this end sends.
    address : int
        Inner IPv6 address.
    mpr : int
        Tracking range in units of 128 PSNs.
    max_wimm : int
        WRITE WITH IMMEDIATEs in flight this end can stash.
    """

    qp_number: int
    starting_psn: int
    address: int
    mpr: int
    max_wimm: int


_Check = Callable[[Capabilities, Any], None]


def _integer(name: str, low: int, high: int) -> _Check:
    return lambda capabilities, value: _ignore(check_range(f"qp.{name}", value, low, high, SOURCE))


def _ignore(value: int) -> None:
    """Drop the value of a check."""


def _of_type(name: str, kind: type) -> _Check:
    def check(capabilities: Capabilities, value: Any) -> None:
        if not isinstance(value, kind):
            raise VerbsError("EINVAL", f"qp.{name}", value, f"of type {kind.__name__}")

    return check


def _path_mtu(capabilities: Capabilities, value: Any) -> None:
    allowed = [size for size in (256, 512, 1024, 2048, 4096) if size <= capabilities.mtu]
    if value not in allowed:
        raise VerbsError("EINVAL", "qp.path_mtu", value, f"one of {', '.join(map(str, allowed))} ({SOURCE})")


def _own_mpr(capabilities: Capabilities, value: Any) -> None:
    if value != capabilities.mpr:
        raise VerbsError("EINVAL", "qp.mpr", value, f"{capabilities.mpr}, the range the engine tracks")


def _own_wimm(capabilities: Capabilities, value: Any) -> None:
    check_range("qp.max_wimm", value, LEAST_WIMM, capabilities.immediates, SOURCE)


_CHECKS: dict[str, _Check] = {
    "ev_profile": _of_type("ev_profile", EvProfile),
    "partition_key": _integer("partition_key", 0, 0xFFFF),
    "path": _of_type("path", Path),
    "path_mtu": _path_mtu,
    "dest_qp_num": _integer("dest_qp_num", 3, LARGEST_QPN),
    "rq_psn": _integer("rq_psn", 0, LARGEST_PSN),
    "mpr_dest": _integer("mpr_dest", 1, 255),
    "max_wimm_dest": _integer("max_wimm_dest", LEAST_WIMM, 0xFFFF),
    "sq_psn": _integer("sq_psn", 0, LARGEST_PSN),
    "timeout": _integer("timeout", 0, 24),
    "retry": _of_type("retry", Retry),
    "mpr": _own_mpr,
    "max_wimm": _own_wimm,
}

#: (from, to) → names it needs, and those it allows with their default.
_STEPS: dict[tuple[QpState, QpState], tuple[tuple[str, ...], dict[str, Any]]] = {
    (QpState.RESET, QpState.INIT): (("ev_profile",), {"partition_key": 0xFFFF}),
    (QpState.INIT, QpState.RTR): (
        ("path", "path_mtu", "dest_qp_num", "rq_psn", "mpr_dest"),
        {"max_wimm_dest": LEAST_WIMM},
    ),
    (QpState.RTR, QpState.RTS): (
        ("sq_psn",),
        {"timeout": 7, "retry": Retry(), "mpr": None, "max_wimm": None},
    ),
}


def check_attributes(
    capabilities: Capabilities, before: QpState, after: QpState, attributes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the attributes of a step, completed by defaults and by ``mpr_psns`` (the send window's bound).

    Raises
    ------
    VerbsError
        EINVAL for a step that does not exist, an attribute that is missing or does not belong to the step, or
        a value out of range.
    """
    if after in (QpState.ERROR, QpState.RESET):
        needed: tuple[str, ...] = ()
        allowed: dict[str, Any] = {}
    elif (before, after) in _STEPS:
        needed, allowed = _STEPS[before, after]
    else:
        steps = [f"{end.name}" for start, end in _STEPS if start is before] + ["ERROR", "RESET"]
        raise VerbsError("EINVAL", "qp.state", after.name, f"{' or '.join(steps)} after {before.name}")
    for name in needed:
        if name not in attributes:
            raise VerbsError(
                "EINVAL", f"qp.{name}", None, f"given for {before.name} to {after.name} ({SOURCE})"
            )
    for name, value in attributes.items():
        if name not in needed and name not in allowed:
            names = ", ".join((*needed, *allowed)) or "no attributes"
            raise VerbsError(
                "EINVAL", "qp.attribute", name, f"one of {names} for {before.name} to {after.name}"
            )
        _CHECKS[name](capabilities, value)
    complete = {**{name: value for name, value in allowed.items() if value is not None}, **attributes}
    if "mpr_dest" in complete:
        complete["mpr_psns"] = min(complete["mpr_dest"] * MPR_UNIT_PSNS, capabilities.mpr_psns)
    return complete
