r"""Attributes of a queue pair, and which of them each step between its states needs and allows.

| step | needs | allows |
|---|---|---|
| RESET → INIT | ev_profile | partition_key, protocol_version, hint, cc_profile, go_back_n† |
| INIT → RTR | path, path_mtu, dest_qp_num, rq_psn, mpr_dest | max_wimm_dest, dynamic_mpr, \* |
| RTR → RTS | sq_psn | timeout, retry, mpr, max_wimm |
| any → ERROR, any → RESET | – | – |

\* trim_nack_dest_unsupported, svc_time_dest_unsupported, and two that are not in the API:
probes_dest_unsupported and requests_dest_unsupported stop reliability probes, and the device's own endpoint
requests, to a peer that would drop them. † Not in the API either: a QP that accepts writes in the order of
their PSNs only, and sends everything again from a lost one on, as RoCE does; both ends are of this type. With
one EV it is the single-path baseline (profile.md 10). Defaults: partition_key 0xFFFF, protocol_version 0 (the
device's choice), max_wimm_dest 32, timeout 7, retry 7 linear and 25 exponential, mpr and max_wimm the
device's, no hint, no congestion control, switches and go_back_n False.

The verbs' port number, retry counts, RNR timer, read depths and alternate path do not exist in MRC;
``timeout`` and ``retry`` take the place of the verbs' timeout and retry count.

Source: protocol.md 1.20 (Table 10-1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mrc_host.nic.capabilities import MPR_UNIT_PSNS, PROTOCOL_VERSION_1, Capabilities
from mrc_host.nic.cc_profile import CcProfile
from mrc_host.nic.ev_profile import EvProfile
from mrc_host.nic.path import Path
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl.tables import DeviceFlag, QpState

__all__ = ["LARGEST_PSN", "UNSUPPORTED_VERBS", "QpHint", "Retry", "attribute_names", "check_attributes"]

SOURCE = "protocol 1.20"
LARGEST_PSN = (1 << 24) - 1
LARGEST_QPN = (1 << 24) - 1
LEAST_WIMM = 32
LARGEST_VENDOR_HINT = 128

#: Attributes of the verbs that MRC queue pairs do not have.
UNSUPPORTED_VERBS = (
    "port_num", "retry_cnt", "rnr_retry", "min_rnr_timer", "max_rd_atomic", "max_dest_rd_atomic", "alt_path",
    "path_mig_state",
)  # fmt: skip


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
class QpHint:
    """What an application knows about its traffic; a device may size things by it.

    Parameters
    ----------
    num_qps_per_peer : int
        QPs to one peer, 0 for unknown.
    num_send_peers : int
        Peers that this host sends to.
    num_remote_recv_peers : int
        Peers that send to the peer: the expected degree of incast.
    vendor : bytes
        At most 128 bytes for a vendor's device; none of ours reads it.
    """

    num_qps_per_peer: int = 0
    num_send_peers: int = 0
    num_remote_recv_peers: int = 0
    vendor: bytes = b""

    def __post_init__(self) -> None:
        for name in ("num_qps_per_peer", "num_send_peers", "num_remote_recv_peers"):
            check_range(f"qp.hint.{name}", getattr(self, name), 0, 0xFFFF, SOURCE)
        if not isinstance(self.vendor, bytes):
            raise VerbsError("EINVAL", "qp.hint.vendor", self.vendor, "of type bytes")
        check_range("qp.hint.vendor.length", len(self.vendor), 0, LARGEST_VENDOR_HINT, SOURCE)


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
    step = capabilities.mpr_resolution
    check_range("qp.mpr", value, step, capabilities.mpr, SOURCE)
    if value % step:
        raise VerbsError("EINVAL", "qp.mpr", value, f"a multiple of {step} (capability mpr_resolution)")


def _own_wimm(capabilities: Capabilities, value: Any) -> None:
    check_range("qp.max_wimm", value, LEAST_WIMM, capabilities.immediates, SOURCE)


def _protocol_version(capabilities: Capabilities, value: Any) -> None:
    check_range("qp.protocol_version", value, 0, (1 << 32) - 1, SOURCE)
    if value not in (0, PROTOCOL_VERSION_1):
        raise VerbsError("EOPNOTSUPP", "qp.protocol_version", value, f"0 or {PROTOCOL_VERSION_1} ({SOURCE})")


def _ev_profile(capabilities: Capabilities, value: Any) -> None:
    _of_type("ev_profile", EvProfile)(capabilities, value)
    value.require_online("qp.ev_profile")


def _cc_profile(capabilities: Capabilities, value: Any) -> None:
    _of_type("cc_profile", CcProfile)(capabilities, value)
    value.require_online("qp.cc_profile")


def _option(name: str, flag: DeviceFlag) -> _Check:
    """Return the check of a switch that only a device with a capability can turn on."""

    def check(capabilities: Capabilities, value: Any) -> None:
        if not isinstance(value, bool):
            raise VerbsError("EINVAL", f"qp.{name}", value, "True or False")
        if value:
            capabilities.require(flag, f"qp.{name}", value)

    return check


def _switch(name: str) -> _Check:
    """Return the check of what is said about the peer: the device without the capability needs nothing."""

    def check(capabilities: Capabilities, value: Any) -> None:
        if not isinstance(value, bool):
            raise VerbsError("EINVAL", f"qp.{name}", value, "True or False")

    return check


_CHECKS: dict[str, _Check] = {
    "ev_profile": _ev_profile,
    "partition_key": _integer("partition_key", 0, 0xFFFF),
    "protocol_version": _protocol_version,
    "hint": _of_type("hint", QpHint),
    "cc_profile": _cc_profile,
    "go_back_n": _option("go_back_n", DeviceFlag.GO_BACK_N),
    "path": _of_type("path", Path),
    "path_mtu": _path_mtu,
    "dest_qp_num": _integer("dest_qp_num", 3, LARGEST_QPN),
    "rq_psn": _integer("rq_psn", 0, LARGEST_PSN),
    "mpr_dest": _integer("mpr_dest", 1, 255),
    "max_wimm_dest": _integer("max_wimm_dest", LEAST_WIMM, 0xFFFF),
    "dynamic_mpr": _option("dynamic_mpr", DeviceFlag.DYNAMIC_MPR),
    "trim_nack_dest_unsupported": _switch("trim_nack_dest_unsupported"),
    "svc_time_dest_unsupported": _switch("svc_time_dest_unsupported"),
    "probes_dest_unsupported": _switch("probes_dest_unsupported"),
    "requests_dest_unsupported": _switch("requests_dest_unsupported"),
    "sq_psn": _integer("sq_psn", 0, LARGEST_PSN),
    "timeout": _integer("timeout", 0, 24),
    "retry": _of_type("retry", Retry),
    "mpr": _own_mpr,
    "max_wimm": _own_wimm,
}

#: (from, to) → names it needs, and those it allows with their default.
_STEPS: dict[tuple[QpState, QpState], tuple[tuple[str, ...], dict[str, Any]]] = {
    (QpState.RESET, QpState.INIT): (
        ("ev_profile",),
        {
            "partition_key": 0xFFFF,
            "protocol_version": 0,
            "hint": None,
            "cc_profile": None,
            "go_back_n": False,
        },
    ),
    (QpState.INIT, QpState.RTR): (
        ("path", "path_mtu", "dest_qp_num", "rq_psn", "mpr_dest"),
        {
            "max_wimm_dest": LEAST_WIMM,
            "dynamic_mpr": False,
            "trim_nack_dest_unsupported": False,
            "svc_time_dest_unsupported": False,
            "probes_dest_unsupported": False,
            "requests_dest_unsupported": False,
        },
    ),
    (QpState.RTR, QpState.RTS): (
        ("sq_psn",),
        {"timeout": 7, "retry": Retry(), "mpr": None, "max_wimm": None},
    ),
}


def attribute_names(state: QpState | None = None) -> tuple[str, ...]:
    """Return the names of all attributes, or of those that belong to the step to a state."""
    if state is None:
        return tuple(_CHECKS)
    return tuple(
        name
        for (_, after), (needed, allowed) in _STEPS.items()
        if after is state
        for name in (*needed, *allowed)
    )


def check_attributes(
    capabilities: Capabilities, before: QpState, after: QpState, attributes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the attributes of a step, completed by defaults and by ``mpr_psns`` (the send window's bound).

    Raises
    ------
    VerbsError
        EINVAL for a step that does not exist, an attribute that is missing or does not belong to the step, or
        a value out of range; EOPNOTSUPP for an attribute of the verbs that MRC does not have, and for what
        the device cannot do.
    """
    if not isinstance(after, QpState):
        raise VerbsError("EINVAL", "qp.state", after, "of type QpState")
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
        if name in UNSUPPORTED_VERBS:
            raise VerbsError("EOPNOTSUPP", f"qp.{name}", value, f"left out: MRC does not have it ({SOURCE})")
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
