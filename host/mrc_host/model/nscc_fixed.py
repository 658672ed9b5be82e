"""NSCC in the gateware's arithmetic: integers of stated widths, one division of 40 by 24 bits at a time.

| value | unit | bits |
|---|---|---|
| cwnd, saved | bytes | 24 + 8 fraction |
| largest (max_window) | bytes | 24 + 8 fraction |
| in_flight, achieved, ignored, to_ignore, fast_count, received | bytes | 24, saturating |
| base_rtt | ticks | 12 |
| average | ticks | 12 + 12 fraction |
| increase | 256 bytes × bytes | 32, saturating: 40 of bytes × bytes |
| last_adjust, last_decrease, epoch_end | ticks | 16, modulo |
| alpha | bytes per tick | 13 + 8 fraction |
| fi | bytes | 24 |
| eta | bytes | 24 + 8 fraction |
| fi_scale | | 8 + 12 fraction |
| gamma | 1/256 | 9 |
| jump | 1/65536 | 17 |
| gate | bytes that quick adapt asks for | 24 + 8 fraction |

The filter is 13/1024, rounded. Comparisons of stamps are of signed 16-bit differences, so a pause of more
than 4 ms may delay one decision by as much. A SACK counts at most 2^16 - 1 new units of 256 bytes. The first
epoch ends with its first sample and only starts the clock: what was achieved before counts as all that can
be. The gateware's program for the same steps is :mod:`mrc_rtl.congestion.program`.

Source: nscc.md 2.1 to 2.5 and 2.7; profile.md 8.
"""

from __future__ import annotations

from typing import Final

from mrc_host.model.nscc import (
    TICK_NS,
    ZERO_DELAY_TICKS,
    CongestionControl,
    Decision,
    NsccParameters,
    congestion_control,
)

__all__ = ["FixedNscc", "fixed_parameters"]

_M16: Final = 0xFFFF
_M15: Final = (1 << 15) - 1
_M24: Final = (1 << 24) - 1
_MOST_INCREASE: Final = _M24 << 8
_FILTER_NUMERATOR: Final = 13
_FILTER_SHIFT: Final = 10


def _saturated(value: int, limit: int) -> int:
    return value if value < limit else limit


def _window_of(per_tick: int, base_rtt: int) -> int:
    """A window in bytes and 8 fraction bits from its share of a tick."""
    return _saturated(per_tick * base_rtt, _M24 << 8)


def fixed_parameters(parameters: NsccParameters) -> dict[str, int]:
    """The integers that an algorithm in fixed point starts from, each rounded to the nearest once.

    Times are ticks, and those that stamps are compared with below half of their circle. ``per_tick`` and
    ``gate_per_tick`` are the largest window and what quick adapt asks for, in 1/256 byte for each tick of the
    base RTT; nothing with ``disable_qa``.
    """
    p = parameters
    configured = round(p.base_rtt / TICK_NS)
    per_tick = round(p.max_cwnd * 256 / configured)
    gate_per_tick = 0 if p.disable_qa else round(p.max_cwnd * 256 / configured / (1 << p.qa_gate))
    return {
        "mtu": p.mtu,
        "target": round(p.target_delay / TICK_NS),
        "alpha": round(p.alpha * TICK_NS * 256),
        "fi": _saturated(round(p.fi), _M24),
        "eta": round(p.eta * 256),
        "fi_scale": round(p.fi_scale * 4096),
        "gamma": round(p.gamma * 256),
        "jump": round(p.max_md_jump * 65536),
        "adjust_bytes": p.adjust_bytes_threshold,
        "period": _saturated(round(p.adjust_period_threshold / TICK_NS), _M15),
        "qa_threshold": _saturated(round(p.qa_threshold / TICK_NS), _M15),
        "configured_rtt": configured,
        "least_rtt": max(1, round(p.base_rtt_min / TICK_NS)),
        "per_tick": per_tick,
        "gate_per_tick": gate_per_tick,
        "largest": max(_window_of(per_tick, configured), p.mtu << 8),
        "gate": _window_of(gate_per_tick, configured),
    }


class FixedNscc(CongestionControl):
    """See the module's text; parameters are rounded to the nearest value once."""

    def __init__(self, parameters: NsccParameters, now: int) -> None:
        super().__init__(parameters, now)
        numbers = fixed_parameters(parameters)
        self._mtu: int = numbers["mtu"]
        self.target: int = numbers["target"]
        self._alpha: int = numbers["alpha"]
        self._fi: int = numbers["fi"]
        self._eta: int = numbers["eta"]
        self._fi_scale: int = numbers["fi_scale"]
        self._gamma: int = numbers["gamma"]
        self._jump: int = numbers["jump"]
        self._adjust_bytes: int = numbers["adjust_bytes"]
        self.period: int = numbers["period"]
        self._qa_threshold: int = numbers["qa_threshold"]
        self._configured_rtt: int = numbers["configured_rtt"]
        self._least_rtt: int = numbers["least_rtt"]
        self._per_tick: int = numbers["per_tick"]
        self._gate_per_tick: int = numbers["gate_per_tick"]

        self.base_rtt: int = self._configured_rtt
        self.largest: int = numbers["largest"]
        self.max_window: int = self.largest >> 8
        self.gate: int = numbers["gate"]
        self.cwnd: int = self.largest
        self.average: int = 0
        self.increase: int = 0
        self.received: int = 0
        self.achieved: int = _M24
        self.last_adjust: int = now & _M16
        self.last_decrease: int = now - self.base_rtt & _M16
        self.epoch_end: int = now & _M16
        self.ignored: int = 0
        self.to_ignore: int = 0
        self.fast_count: int = 0
        self.fast: bool = False
        self.trigger: bool = False
        self.saved: int = 0
        self.last_units: int = 0
        self.window = self.max_window

    def on_send(self, size: int) -> None:
        """See :class:`CongestionControl`."""
        self.in_flight = _saturated(self.in_flight + size, _M24)

    def on_sack(self, now: int, units: int, ecn: bool, rtt: int, penalty: int, restore: bool) -> None:
        """See :class:`CongestionControl`; steps 1 to 8 of nscc.md 2.3."""
        self.decision = 0
        delta = units - self.last_units & _M24
        if delta < 0x80_0000:
            self.last_units = units
            delta = _saturated(delta, _M16) << 8
        else:
            self.decision = Decision.STALE
            delta = 0
        self._leave_flight(delta)
        self.ignored = _saturated(self.ignored + delta, _M24)
        self.received = _saturated(self.received + delta, _M24)
        self.achieved = _saturated(self.achieved + delta, _M24)
        if penalty or restore:
            self._penalise(penalty, restore, delta)
        if rtt < 0:
            self.decision |= Decision.NO_SAMPLE
        else:
            self._sample(now & _M16, ecn, rtt, delta)
        self._clamp()

    def on_nack(self, now: int, size: int, trimmed: bool) -> None:
        """See :class:`CongestionControl` and nscc.md 2.4."""
        self.decision = 0
        self._leave_flight(size)
        if trimmed:
            self._filter(self._configured_rtt << 12)
            self.ignored = _saturated(self.ignored + size, _M24)
            self.trigger = True
            if self._quick_adapt(now & _M16, True, True, 0):
                self.increase = self.received = 0
            else:
                self._take(size)
        self._clamp()

    def on_loss(self, now: int, size: int) -> None:
        """See :class:`CongestionControl` and nscc.md 2.4."""
        self.decision = 0
        self._leave_flight(size)
        self.ignored = _saturated(self.ignored + size, _M24)
        self._take(size)
        self.trigger = True
        self._clamp()

    # -- inside ------------------------------------------------------------------------------------------

    def _set_max_window(self) -> None:
        self.largest = max(_window_of(self._per_tick, self.base_rtt), self._mtu << 8)
        self.max_window = self.largest >> 8
        self.gate = _window_of(self._gate_per_tick, self.base_rtt)

    def _clamp(self) -> None:
        cwnd = self.cwnd
        if cwnd > self.largest:
            cwnd = self.largest
        if cwnd < self._mtu << 8:
            cwnd = self._mtu << 8
        self.cwnd = cwnd
        self.window = cwnd >> 8

    def _take(self, size: int) -> None:
        self.cwnd = max(self.cwnd - (size << 8), self._mtu << 8)

    def _leave_flight(self, size: int) -> None:
        # A packet declared lost and delivered later is taken out twice.
        self.in_flight = self.in_flight - size if self.in_flight > size else 0

    def _filter(self, sample: int) -> None:
        self.average += (sample - self.average) * _FILTER_NUMERATOR + (
            1 << _FILTER_SHIFT - 1
        ) >> _FILTER_SHIFT

    def _penalise(self, penalty: int, restore: bool, delta: int) -> None:
        if restore:
            if self.saved:
                self.cwnd = self.saved
                self.saved = 0
                self.decision |= Decision.RESTORE
            return
        if not self.saved:
            self.saved = self.cwnd
            self.cwnd = min(self.cwnd, self.in_flight << 8)
        self.cwnd = max(self.cwnd - ((penalty * delta >> 7) << 8), self._mtu << 8)
        self.decision |= Decision.PENALTY

    def _sample(self, now: int, ecn: bool, rtt: int, delta: int) -> None:
        if rtt < self.base_rtt:
            self.base_rtt = max(rtt, self._least_rtt)
            self._set_max_window()
            self.decision |= Decision.NEW_BASE
        delay = rtt - self.base_rtt if rtt > self.base_rtt else 0
        noise = not ecn and delay > self.target
        self._filter(self.base_rtt << 10 if noise else _saturated(delay, 4095) << 12)
        if self._quick_adapt(now, False, ecn, delay):
            self.increase = self.received = 0
            return
        if delay >= ZERO_DELAY_TICKS:
            self.fast_count = 0
            self.fast = False
        if not ecn and delay < self.target:
            if not self._fast_increase(delay, delta):
                grown = self.increase + (self._alpha * (delta >> 8) * (self.target - delay) >> 8)
                self.increase = _saturated(grown, _MOST_INCREASE)
                self.decision |= Decision.PROPORTIONAL
        elif not ecn:
            self.increase = _saturated(self.increase + self._fi * (delta >> 8), _MOST_INCREASE)
            self.decision |= Decision.FAIR
        elif delay >= self.target:
            self._decrease(now)
        self._fulfil(now)

    def _fast_increase(self, delay: int, delta: int) -> bool:
        if delay >= ZERO_DELAY_TICKS:
            return False
        self.fast_count = _saturated(self.fast_count + delta, _M24)
        if self.fast or self.fast_count > self.cwnd >> 8:
            self.fast = True
            self.cwnd = _saturated(self.cwnd + (delta * self._fi_scale >> 4), self.largest)
            self.decision |= Decision.FAST
            return True
        return False

    def _decrease(self, now: int) -> None:
        self.fast_count = 0
        self.fast = False
        above = self.average - (self.target << 12)
        if above > 0 and (now - self.last_decrease & _M16) >= self.base_rtt:
            factor = max(65536 - (self._gamma * above << 8) // self.average, self._jump)
            self.cwnd = max((self.cwnd >> 8) * factor >> 8, self._mtu << 8)
            self.last_decrease = now
            self.decision |= Decision.DECREASE

    def _fulfil(self, now: int) -> None:
        period = (now - self.last_adjust & _M16) >= self.period
        if not period and self.received <= self._adjust_bytes:
            return
        self.decision |= Decision.FULFIL
        self.cwnd += (self.increase << 8) // (self.cwnd >> 8) << 8
        if period:
            self.cwnd += self._eta
            self.last_adjust = now
            self.decision |= Decision.PERIOD
        self.increase = self.received = 0

    def _quick_adapt(self, now: int, loss: bool, ecn: bool, delay: int) -> bool:
        if ecn and self.ignored < self.to_ignore:
            self.decision |= Decision.SWALLOWED
            return True
        acted = False
        if now - self.epoch_end & 0x8000:
            return False
        wanted = self.trigger or loss or delay > self._qa_threshold
        if wanted and self.achieved << 8 < self.gate:
            self.cwnd = max(self.achieved, self._mtu) << 8
            self.to_ignore = self.in_flight
            self.ignored = 0
            self.trigger = False
            self.decision |= Decision.QUICK_ADAPT
            acted = True
        self.achieved = 0
        self.epoch_end = now + self.base_rtt + self.target & _M16
        self.decision |= Decision.EPOCH
        return acted


congestion_control("nscc_fixed")(FixedNscc)
