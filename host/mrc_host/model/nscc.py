"""Congestion control of a QP: the interface, its parameters, and NSCC in floating point.

Units inside are bytes and ticks of 128 ns (the unit of TSETH). The gateware's arithmetic is
:mod:`mrc_host.model.nscc_fixed`; both follow nscc.md step by step, so that they can be compared per event.

Source: nscc.md; profile.md 8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, Final

from mypy_extensions import mypyc_attr

from mrc_host.errors import ConfigError

__all__ = [
    "NOMINAL_HEADER_BYTES",
    "TICK_NS",
    "UNLIMITED",
    "ZERO_DELAY_TICKS",
    "CongestionControl",
    "Decision",
    "FloatNscc",
    "NsccParameters",
    "congestion_control",
    "congestion_names",
    "create_congestion_control",
]

TICK_NS: Final = 128
ZERO_DELAY_TICKS: Final = 8
"""A delay below this (1.024 us) counts as none."""

UNLIMITED: Final = 0xFFFF_FFFF
"""Window without congestion control."""

NOMINAL_HEADER_BYTES: Final = 40
"""Added to the UDP length: the size of a packet that windows count (protocol.md 2.7)."""

_REFERENCE_BYTES: Final = 150_000
_REFERENCE_NS: Final = 12_000
_FILTER: Final = 0.0125


class Decision(IntFlag):
    """What an event made the algorithm do, to compare two of them."""

    STALE = 1
    NO_SAMPLE = 1 << 1
    NEW_BASE = 1 << 2
    SWALLOWED = 1 << 3
    QUICK_ADAPT = 1 << 4
    EPOCH = 1 << 5
    FAST = 1 << 6
    PROPORTIONAL = 1 << 7
    FAIR = 1 << 8
    DECREASE = 1 << 9
    FULFIL = 1 << 10
    PERIOD = 1 << 11
    PENALTY = 1 << 12
    RESTORE = 1 << 13


@dataclass(frozen=True, kw_only=True)
class NsccParameters:
    """Parameters of NSCC, by the names and units of the controller API.

    Parameters
    ----------
    mtu : int
        Bytes; the least window.
    base_rtt, target_delay, qa_threshold, adjust_period_threshold : float
        ns.
    max_cwnd, adjust_bytes_threshold : int
        Bytes.
    alpha : float
        Proportional increase in bytes per ns.
    fi, eta : float
        Fair increase and the increase per period, bytes.
    fi_scale, gamma, max_md_jump : float
    qa_gate : int
        Quick adapt needs less than max_cwnd >> qa_gate achieved.
    disable_qa : bool
    base_rtt_min : float
        ns; the running minimum stops there.

    Raises
    ------
    ConfigError
        A value is out of range.
    """

    mtu: int
    base_rtt: float
    target_delay: float
    max_cwnd: int
    alpha: float
    fi: float
    eta: float
    fi_scale: float
    gamma: float = 0.8
    max_md_jump: float = 0.5
    adjust_bytes_threshold: int
    adjust_period_threshold: float
    qa_gate: int = 3
    qa_threshold: float
    disable_qa: bool = False
    base_rtt_min: float = 0.0

    def __post_init__(self) -> None:
        limits: tuple[tuple[str, Any, Any], ...] = (  # whole numbers stay whole in the message
            ("mtu", 256, 4096),
            ("base_rtt", TICK_NS, 4095 * TICK_NS),
            ("target_delay", TICK_NS, 4095 * TICK_NS),
            ("max_cwnd", self.mtu, (1 << 24) - 1),
            ("alpha", 0.0, 64.0),
            ("fi", 0.0, float(1 << 24)),
            ("eta", 0.0, float(1 << 24)),
            ("fi_scale", 0.0, 255.0),
            ("gamma", 0.0, 1.0),
            ("max_md_jump", 0.0, 1.0),
            ("adjust_bytes_threshold", 0, (1 << 20) - 1),
            ("adjust_period_threshold", 0.0, 65_535.0 * TICK_NS),
            ("qa_gate", 0, 31),
            ("qa_threshold", 0.0, float(1 << 32)),
            ("base_rtt_min", 0.0, self.base_rtt),
        )
        for name, low, high in limits:
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"cc.{name}", f"between {low} and {high}", value)

    @classmethod
    def derive(
        cls,
        *,
        bytes_per_ns: float,
        base_rtt_ns: float,
        mtu: int,
        trimming: bool,
        base_rtt_min_ns: float = 0.0,
    ) -> NsccParameters:
        """The defaults of nscc.md 2.2 for a rate (all planes in use), a base RTT and an MTU."""
        bdp = bytes_per_ns * base_rtt_ns
        scale = bdp / _REFERENCE_BYTES
        target = (0.75 if trimming else 1.0) * base_rtt_ns
        return cls(
            mtu=mtu,
            base_rtt=base_rtt_ns,
            target_delay=target,
            max_cwnd=max(mtu, round(1.5 * bdp)),
            alpha=4 * scale * mtu / _REFERENCE_NS,
            fi=5 * mtu * scale,
            eta=0.15 * mtu * scale,
            fi_scale=0.25 * scale,
            adjust_bytes_threshold=8 * mtu,
            adjust_period_threshold=base_rtt_ns,
            qa_threshold=float(1 << 32) if trimming else 4 * target,
            base_rtt_min=base_rtt_min_ns,
        )


@mypyc_attr(allow_interpreted_subclasses=True)
class CongestionControl:
    """The window of a QP. This one limits nothing; NSCC changes what it needs to.

    Parameters
    ----------
    parameters : NsccParameters
    now : int
        Tick at which the QP starts to send.

    Attributes
    ----------
    window, in_flight : int
        Bytes; the QP may send while the window is greater.
    decision : int
        :class:`Decision` of the last event.
    """

    def __init__(self, parameters: NsccParameters, now: int) -> None:
        self.parameters: NsccParameters = parameters
        self.window: int = UNLIMITED
        self.in_flight: int = 0
        self.decision: int = 0

    def on_send(self, size: int) -> None:
        """A packet of that size (UDP length + 40) leaves, for the first time or again."""
        self.in_flight += size

    def on_sack(self, now: int, units: int, ecn: bool, rtt: int, penalty: int, restore: bool) -> None:
        """A SACK came.

        Parameters
        ----------
        now : int
            Tick.
        units : int
            CC_STATE.rcvd_bytes, units of 256 bytes, 24 bits.
        ecn : bool
            The packet that triggered it was marked.
        rtt : int
            Sample in ticks, −1 for none.
        penalty : int
            rcv_cwnd_pen, 0 to 127.
        restore : bool
            restore_cwnd.
        """

    def on_nack(self, now: int, size: int, trimmed: bool) -> None:
        """A NACK came for a packet of that size; ``trimmed``: a switch cut it, inside or at the last hop."""

    def on_loss(self, now: int, size: int) -> None:
        """A packet of that size is taken for lost, by a SACK hole or by a timer."""

    def on_idle(self) -> None:
        """Nothing is outstanding: what is still counted in flight was lost and given up."""
        self.in_flight = 0


_Factory = Callable[[NsccParameters, int], CongestionControl]
_ALGORITHMS: dict[str, _Factory] = {}


def congestion_control(name: str) -> Callable[[_Factory], _Factory]:
    """Register an algorithm under a name.

    Raises
    ------
    ValueError
        The name is taken.
    """

    def register(factory: _Factory) -> _Factory:
        if name in _ALGORITHMS:
            raise ValueError(f"congestion control {name!r} must be registered once, got it twice")
        _ALGORITHMS[name] = factory
        return factory

    return register


def congestion_names() -> tuple[str, ...]:
    """Names of the registered algorithms."""
    return tuple(_ALGORITHMS)


def create_congestion_control(name: str, parameters: NsccParameters, now: int) -> CongestionControl:
    """The algorithm of that name for one QP.

    Raises
    ------
    ConfigError
        No algorithm has that name.
    """
    factory = _ALGORITHMS.get(name)
    if factory is None:
        raise ConfigError("model.congestion", f"one of {', '.join(_ALGORITHMS)}", name)
    return factory(parameters, now)


congestion_control("none")(CongestionControl)


class FloatNscc(CongestionControl):
    """NSCC in floating point; time is ticks, never wrapped. See nscc.md 2.1 for the state.

    Thresholds in time are rounded to whole ticks, like everything that is compared with them.
    """

    def __init__(self, parameters: NsccParameters, now: int) -> None:
        super().__init__(parameters, now)
        p = parameters
        self._target: float = float(round(p.target_delay / TICK_NS))
        self._alpha: float = p.alpha * TICK_NS
        self._qa_threshold: float = float(round(p.qa_threshold / TICK_NS))
        self._period: float = float(round(p.adjust_period_threshold / TICK_NS))
        self._configured_rtt: float = float(round(p.base_rtt / TICK_NS))
        self._least_rtt: float = float(round(p.base_rtt_min / TICK_NS))
        self.cwnd: float = float(p.max_cwnd)
        self.flight: float = 0.0
        self.base_rtt: float = self._configured_rtt
        self.max_window: float = float(p.max_cwnd)
        self.average: float = 0.0
        self.increase: float = 0.0
        self.received: float = 0.0
        self.achieved: float = 0.0
        self.last_adjust: int = now
        self.last_decrease: int = now - (1 << 16)
        self.epoch_end: float = -1.0
        self.ignored: float = 0.0
        self.to_ignore: float = 0.0
        self.fast_count: float = 0.0
        self.fast: bool = False
        self.trigger: bool = False
        self.saved: float = 0.0
        self.last_units: int = 0
        self._publish()

    def on_send(self, size: int) -> None:
        """See :class:`CongestionControl`."""
        self.flight += size
        self.in_flight = int(self.flight)

    def on_sack(self, now: int, units: int, ecn: bool, rtt: int, penalty: int, restore: bool) -> None:
        """See :class:`CongestionControl`; steps 1 to 8 of nscc.md 2.3."""
        self.decision = 0
        difference = units - self.last_units & 0xFF_FFFF
        delta = 0.0
        if difference < 0x80_0000:
            delta = 256.0 * difference
            self.last_units = units
        else:
            self.decision |= Decision.STALE
        self.flight = max(0.0, self.flight - delta)
        self.ignored += delta
        self.received += delta
        self.achieved += delta
        self._penalise(penalty, restore, delta)
        if rtt < 0:
            self.decision |= Decision.NO_SAMPLE
        else:
            self._sample(now, ecn, float(rtt), delta)
        self._publish()

    def on_nack(self, now: int, size: int, trimmed: bool) -> None:
        """See :class:`CongestionControl` and nscc.md 2.4."""
        self.decision = 0
        self.flight = max(0.0, self.flight - size)
        if trimmed:
            self.average += (self._configured_rtt - self.average) * _FILTER
            self.ignored += size
            self.trigger = True
            if self._quick_adapt(now, True, True, 0.0):
                self.increase = self.received = 0.0
            else:
                self.cwnd = max(self.cwnd - size, float(self.parameters.mtu))
        self._publish()

    def on_loss(self, now: int, size: int) -> None:
        """See :class:`CongestionControl` and nscc.md 2.4."""
        self.decision = 0
        self.flight = max(0.0, self.flight - size)
        self.ignored += size
        self.cwnd = max(self.cwnd - size, float(self.parameters.mtu))
        self.trigger = True
        self._publish()

    def on_idle(self) -> None:
        """See :class:`CongestionControl`."""
        self.flight = 0.0
        self.in_flight = 0

    # -- inside ------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        self.cwnd = min(max(self.cwnd, float(self.parameters.mtu)), self.max_window)
        self.window = int(self.cwnd)
        self.in_flight = int(self.flight)

    def _penalise(self, penalty: int, restore: bool, delta: float) -> None:
        if restore and self.saved:
            self.cwnd = self.saved
            self.saved = 0.0
            self.decision |= Decision.RESTORE
        elif penalty and not restore:
            if not self.saved:
                self.saved = self.cwnd
                self.cwnd = min(self.cwnd, self.flight)
            self.cwnd -= penalty * delta / 128
            self.cwnd = max(self.cwnd, float(self.parameters.mtu))
            self.decision |= Decision.PENALTY

    def _sample(self, now: int, ecn: bool, rtt: float, delta: float) -> None:
        if rtt < self.base_rtt:
            self.base_rtt = max(rtt, self._least_rtt, 1.0)
            self.max_window = max(
                self.parameters.max_cwnd * self.base_rtt / self._configured_rtt, float(self.parameters.mtu)
            )
            self.decision |= Decision.NEW_BASE
        delay = max(0.0, rtt - self.base_rtt)
        noise = not ecn and delay > self._target
        self.average += ((self.base_rtt / 4 if noise else delay) - self.average) * _FILTER
        if self._quick_adapt(now, False, ecn, delay):
            self.increase = self.received = 0.0
            return
        if delay >= ZERO_DELAY_TICKS:
            self.fast_count = 0.0
            self.fast = False
        if not ecn and delay < self._target:
            if not self._fast_increase(delay, delta):
                self.increase += self._alpha * delta * (self._target - delay)
                self.decision |= Decision.PROPORTIONAL
        elif not ecn:
            self.increase += self.parameters.fi * delta
            self.decision |= Decision.FAIR
        elif delay >= self._target:
            self._decrease(now)
        self._fulfil(now)

    def _fast_increase(self, delay: float, delta: float) -> bool:
        if delay >= ZERO_DELAY_TICKS:
            return False
        self.fast_count += delta
        if self.fast_count > self.cwnd or self.fast:
            self.fast = True
            self.cwnd = min(self.cwnd + delta * self.parameters.fi_scale, self.max_window)
            self.decision |= Decision.FAST
            return True
        return False

    def _decrease(self, now: int) -> None:
        self.fast_count = 0.0
        self.fast = False
        if self.average > self._target and now - self.last_decrease >= self.base_rtt:
            factor = 1.0 - self.parameters.gamma * (self.average - self._target) / self.average
            self.cwnd = max(self.cwnd * max(factor, self.parameters.max_md_jump), float(self.parameters.mtu))
            self.last_decrease = now
            self.decision |= Decision.DECREASE

    def _fulfil(self, now: int) -> None:
        period = now - self.last_adjust >= self._period
        if not period and self.received <= self.parameters.adjust_bytes_threshold:
            return
        self.decision |= Decision.FULFIL
        self.cwnd += self.increase / self.cwnd
        if period:
            self.cwnd += self.parameters.eta
            self.last_adjust = now
            self.decision |= Decision.PERIOD
        self.increase = self.received = 0.0

    def _quick_adapt(self, now: int, loss: bool, ecn: bool, delay: float) -> bool:
        if self.parameters.disable_qa:
            return False
        if ecn and self.ignored < self.to_ignore:
            self.decision |= Decision.SWALLOWED
            return True
        acted = False
        if self.epoch_end >= 0 and now < self.epoch_end:
            return False
        if self.epoch_end >= 0:
            wanted = self.trigger or loss or delay > self._qa_threshold
            # The gate is a shift of whole bytes in every arithmetic.
            if wanted and self.achieved < int(self.max_window) >> self.parameters.qa_gate:
                self.cwnd = max(self.achieved, float(self.parameters.mtu))
                self.to_ignore = self.flight
                self.ignored = 0.0
                self.trigger = False
                self.decision |= Decision.QUICK_ADAPT
                acted = True
        self.achieved = 0.0
        self.epoch_end = now + self.base_rtt + self._target
        self.decision |= Decision.EPOCH
        return acted


congestion_control("nscc_float")(FloatNscc)
