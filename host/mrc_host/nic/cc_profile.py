"""Congestion control profiles: the parameters of NSCC by the names of the controller API."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

from mrc_host.nic.capabilities import CC_ALGORITHM_NSCC
from mrc_host.nic.life_cycle import LifeCycle, ProfileState
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl.tables import ControlTableId, DeviceFlag

if TYPE_CHECKING:
    from mrc_host.nic.context import Context

__all__ = ["CcProfile", "NsccConfig"]

#: The network that NSCC's parameters are scaled from: 100 Gb/s x 12 us.
REFERENCE_BYTES = 150_000
REFERENCE_DELAY_NS = 12_000

_U8, _U32 = (1 << 8) - 1, (1 << 32) - 1
_LARGEST_FLOAT = float(1 << 32)
#: Field → least and largest value.
_LIMITS: dict[str, tuple[float, float]] = {
    "disable_qa": (0, 1),
    "adjust_bytes_threshold": (1, _U32),
    "adjust_period_threshold": (1, _U32),
    "base_rtt": (1, _U32),
    "eta": (0.0, _LARGEST_FLOAT),
    "fi": (0.0, _LARGEST_FLOAT),
    "fi_scale": (0.0, _LARGEST_FLOAT),
    "gamma": (0.0, 1.0),
    "max_md_jump": (0.0, 1.0),
    "max_cwnd": (256, _U32),
    "qa_gate": (0, _U8),
    "qa_threshold": (0, _U32),
    "target_delay": (1, _U32),
}
_FLOATS = ("eta", "fi", "fi_scale", "gamma", "max_md_jump")


@dataclass(frozen=True, kw_only=True)
class NsccConfig:
    """Parameters of NSCC.

    Parameters
    ----------
    disable_qa : bool
        No quick adapt.
    adjust_bytes_threshold : int
        Acknowledged bytes after which deferred increases are applied.
    adjust_period_threshold : int
        Time in ns after which they are.
    base_rtt : int
        Round-trip time of the empty network in ns.
    eta : float
        Bytes added each period.
    fi : float
        Fair increase in bytes.
    fi_scale : float
        Fast increase, share of the acknowledged bytes.
    gamma : float
        Strength of a decrease, 0 to 1.
    max_md_jump : float
        Least factor of a decrease, 0 to 1.
    max_cwnd : int
        Largest window in bytes.
    qa_gate : int
        Quick adapt when less than ``max_cwnd >> qa_gate`` was achieved.
    qa_threshold : int
        Delay in ns from which quick adapt needs no loss.
    target_delay : int
        Queueing delay in ns that is aimed at.

    Raises
    ------
    VerbsError
        EINVAL for a value out of range.

    Source: protocol.md 2.7, nscc.md 2.2.
    """

    disable_qa: bool = False
    adjust_bytes_threshold: int
    adjust_period_threshold: int
    base_rtt: int
    eta: float
    fi: float
    fi_scale: float
    gamma: float = 0.8
    max_md_jump: float = 0.5
    max_cwnd: int
    qa_gate: int = 3
    qa_threshold: int
    target_delay: int

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            attribute = f"cc_profile.config.{name}"
            if name == "disable_qa":
                if not isinstance(value, bool):
                    raise VerbsError("EINVAL", attribute, value, "True or False")
            elif name not in _FLOATS:
                check_range(attribute, value, int(low), int(high))
            elif isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
                raise VerbsError("EINVAL", attribute, value, "a finite number")
            elif not low <= value <= high:
                raise VerbsError("EINVAL", attribute, value, f"between {low:g} and {high:g}")

    @property
    def alpha(self) -> float:
        """Proportional increase in bytes per ns of missing delay, which the API leaves to the device.

        alpha = 4 · a · MTU / 12 us and fi = 5 · a · MTU, so that it follows from ``fi``.
        """
        return 0.8 * self.fi / REFERENCE_DELAY_NS

    @classmethod
    def for_network(
        cls, *, rate_gbps: float, base_rtt_ns: int, mtu: int, trimming: bool = False, **changes: Any
    ) -> NsccConfig:
        """Return the defaults of a network.

        Parameters
        ----------
        rate_gbps : float
            Sum over the planes in use.
        base_rtt_ns : int
        mtu : int
            Bytes.
        trimming : bool
            Switches trim: a smaller target delay, and no quick adapt by delay alone.
        changes
            Fields that differ from the defaults.

        Raises
        ------
        VerbsError
            EINVAL for rate, MTU or a resulting value out of range.
        """
        if isinstance(rate_gbps, bool) or not isinstance(rate_gbps, int | float) or not rate_gbps > 0:
            raise VerbsError("EINVAL", "rate_gbps", rate_gbps, "above 0")
        check_range("base_rtt_ns", base_rtt_ns, 1, _U32)
        check_range("mtu", mtu, 256, 4096)
        bdp = rate_gbps * base_rtt_ns / 8
        scale = bdp / REFERENCE_BYTES
        target = round((0.75 if trimming else 1.0) * base_rtt_ns)
        values: dict[str, Any] = {
            "adjust_bytes_threshold": 8 * mtu,
            "adjust_period_threshold": base_rtt_ns,
            "base_rtt": base_rtt_ns,
            "eta": 0.15 * mtu * scale,
            "fi": 5 * mtu * scale,
            "fi_scale": 0.25 * scale,
            "max_cwnd": max(mtu, round(1.5 * bdp)),
            "qa_threshold": _U32 if trimming else 4 * target,
            "target_delay": target,
        }
        return cls(**{**values, **changes})

    def row(self) -> dict[str, int]:
        """Return the row of table CC_PROFILE."""
        row = {
            field.name: _single(value) if field.name in _FLOATS else int(value)
            for field in fields(self)
            for value in (getattr(self, field.name),)
        }
        return {**row, "alpha": _single(self.alpha)}


class CcProfile(LifeCycle):
    """A congestion control algorithm with its parameters; made by ``Context.cc_profile``.

    Attributes of :meth:`modify`
    ----------------------------
    algorithm : str or None
        ``"uet-1.0-nscc"``, or None for no congestion control; needed to go OFFLINE.
    config : NsccConfig
        Needed to go ONLINE unless the algorithm is None.

    Source: protocol.md 2.7, 2.8.
    """

    kind = "cc_profile"
    names = ("algorithm", "config")
    needed: ClassVar[Mapping[ProfileState, tuple[str, ...]]] = {
        ProfileState.OFFLINE: ("algorithm",),
        ProfileState.ONLINE: (),
    }

    def __init__(self, context: Context, number: int) -> None:
        super().__init__()
        self.context = context
        self.number = number

    @property
    def enabled(self) -> bool:
        """Whether it has an algorithm."""
        return self.attributes.get("algorithm") is not None

    def _checked(
        self, attributes: dict[str, Any], changed: frozenset[str], after: ProfileState
    ) -> dict[str, Any]:
        algorithms = self.context.capabilities.cc_algorithms
        if "algorithm" in attributes and attributes["algorithm"] not in (None, *algorithms):
            names = " or ".join((*algorithms, "None"))
            raise VerbsError("EINVAL", "cc_profile.algorithm", attributes["algorithm"], names)
        config = attributes.get("config")
        if config is not None and not isinstance(config, NsccConfig):
            raise VerbsError("EINVAL", "cc_profile.config", config, "of type NsccConfig")
        if after is ProfileState.ONLINE and attributes["algorithm"] == CC_ALGORITHM_NSCC and config is None:
            raise VerbsError("EINVAL", "cc_profile.config", None, "given to go ONLINE")
        return attributes

    def _apply(self, before: ProfileState, changed: frozenset[str]) -> None:
        # Without the controller's tables the driver keeps it, and queue pairs take it from here.
        if self.state is ProfileState.ONLINE and self.enabled and self.context.capabilities.controlled:
            row = self.attributes["config"].row()
            self.context.driver.write_table(ControlTableId.CC_PROFILE, self.number, row)

    def _users(self) -> int:
        return sum(pair.attributes.get("cc_profile") is self for pair in self.context.queue_pairs.values())

    def _release(self) -> None:
        self.context.cc_profile_numbers.release(self.number)

    @staticmethod
    def require(context: Context) -> None:
        """Raise VerbsError EOPNOTSUPP when a device has no congestion control."""
        context.capabilities.require(DeviceFlag.CC_NSCC, "cc_profile", "a new one")


def _single(value: float) -> int:
    """Return a number as the bits of an IEEE 754 single."""
    return int.from_bytes(struct.pack(">f", value), "big")
