"""NSCC in the gateware's arithmetic: integers of stated widths, one division of 40 by 24 bits at a time.

| value | unit | bits |
|---|---|---|
| cwnd, saved_cwnd | bytes | 24 + 8 fraction |
| in_flight, max_window, achieved, ignored, to_ignore, fast_count | bytes | 24, saturating |
| base_rtt | ticks | 12 |
| average | ticks | 12 + 12 fraction |
| increase | bytes × bytes | 40, saturating |
| received | bytes | 20, saturating |
| last_adjust, last_decrease, epoch_end | ticks | 16, modulo; epoch_end 0 means not armed |
| alpha | bytes per tick | 13 + 8 fraction |
| fi | bytes | 24 |
| eta | bytes | 24 + 8 fraction |
| fi_scale | | 8 + 12 fraction |
| gamma | 1/256 | 9 |
| max_md_jump | 1/65536 | 17 |

The filter is 13/1024, rounded. Comparisons of stamps are of signed 16-bit differences, so a pause of more
than 4 ms may delay one decision by as much.

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

__all__ = ["FixedNscc"]

_M16: Final = 0xFFFF
_M20: Final = (1 << 20) - 1
_M24: Final = (1 << 24) - 1
_M40: Final = (1 << 40) - 1
_FILTER_NUMERATOR: Final = 13
_FILTER_SHIFT: Final = 10


def _saturated(value: int, limit: int) -> int:
    return value if value < limit else limit


class FixedNscc(CongestionControl):
    """See the module's text; parameters are rounded to the nearest value once."""

    def __init__(self, parameters: NsccParameters, now: int) -> None:
        super().__init__(parameters, now)
        p = parameters
        self._mtu: int = p.mtu
        self.target: int = round(p.target_delay / TICK_NS)
        self._alpha: int = round(p.alpha * TICK_NS * 256)
        self._fi: int = round(p.fi)
        self._eta: int = round(p.eta * 256)
        self._fi_scale: int = round(p.fi_scale * 4096)
        self._gamma: int = round(p.gamma * 256)
        self._jump: int = round(p.max_md_jump * 65536)
        self._adjust_bytes: int = p.adjust_bytes_threshold
        self.period: int = round(p.adjust_period_threshold / TICK_NS)
        self._gate: int = p.qa_gate
        self._qa_threshold: int = _saturated(round(p.qa_threshold / TICK_NS), _M16)
        self._quick: bool = not p.disable_qa
        self._configured_rtt: int = round(p.base_rtt / TICK_NS)
        self._least_rtt: int = max(1, round(p.base_rtt_min / TICK_NS))
        self._per_tick: int = round(p.max_cwnd * 256 / self._configured_rtt)

        self.base_rtt: int = self._configured_rtt
        self.max_window: int = 0
        self._set_max_window()
        self.cwnd: int = self.max_window << 8
        self.average: int = 0
        self.increase: int = 0
        self.received: int = 0
        self.achieved: int = 0
        self.last_adjust: int = now & _M16
        self.last_decrease: int = now - self.base_rtt & _M16
        self.epoch_end: int = 0
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
            delta = _saturated(delta << 8, _M24)
        else:
            self.decision = Decision.STALE
            delta = 0
        self._leave_flight(delta)
        self.ignored = _saturated(self.ignored + delta, _M24)
        self.received = _saturated(self.received + delta, _M20)
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
        self.max_window = max(_saturated(self._per_tick * self.base_rtt >> 8, _M24), self._mtu)

    def _clamp(self) -> None:
        cwnd = self.cwnd
        if cwnd > self.max_window << 8:
            cwnd = self.max_window << 8
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
                grown = self.increase + (self._alpha * delta * (self.target - delay) >> 8)
                self.increase = _saturated(grown, _M40)
                self.decision |= Decision.PROPORTIONAL
        elif not ecn:
            self.increase = _saturated(self.increase + self._fi * delta, _M40)
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
            self.cwnd = _saturated(self.cwnd + (delta * self._fi_scale >> 4), self.max_window << 8)
            self.decision |= Decision.FAST
            return True
        return False

    def _decrease(self, now: int) -> None:
        self.fast_count = 0
        self.fast = False
        above = self.average - (self.target << 12)
        if above > 0 and (now - self.last_decrease & _M16) >= self.base_rtt:
            factor = max(65536 - (self._gamma * above << 8) // self.average, self._jump)
            self.cwnd = max(self.cwnd * factor >> 16, self._mtu << 8)
            self.last_decrease = now
            self.decision |= Decision.DECREASE

    def _fulfil(self, now: int) -> None:
        period = (now - self.last_adjust & _M16) >= self.period
        if not period and self.received <= self._adjust_bytes:
            return
        self.decision |= Decision.FULFIL
        self.cwnd += self.increase // (self.cwnd >> 8) << 8
        if period:
            self.cwnd += self._eta
            self.last_adjust = now
            self.decision |= Decision.PERIOD
        self.increase = self.received = 0

    def _quick_adapt(self, now: int, loss: bool, ecn: bool, delay: int) -> bool:
        if not self._quick:
            return False
        if ecn and self.ignored < self.to_ignore:
            self.decision |= Decision.SWALLOWED
            return True
        acted = False
        if self.epoch_end:
            if now - self.epoch_end & 0x8000:
                return False
            wanted = self.trigger or loss or delay > self._qa_threshold
            if wanted and self.achieved < self.max_window >> self._gate:
                self.cwnd = max(self.achieved, self._mtu) << 8
                self.to_ignore = self.in_flight
                self.ignored = 0
                self.trigger = False
                self.decision |= Decision.QUICK_ADAPT
                acted = True
        self.achieved = 0
        self.epoch_end = (now + self.base_rtt + self.target & _M16) or 1
        self.decision |= Decision.EPOCH
        return acted


congestion_control("nscc_fixed")(FixedNscc)
