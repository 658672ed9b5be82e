"""NSCC in floating and in fixed point.

Sweep: rates, round-trip times, MTUs; random traces of SACKs, marks, NACKs, losses and penalties.
Stimulus: single events; seeded traces; a closed loop over one queue.
Checks: the worked values of nscc.md 2.2 and protocol.md 2.7; each rule of 2.3 to 2.5 by itself; agreement of
both arithmetics as profile.md 8 demands.
Timing: none, ticks are arguments.
"""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.errors import ConfigError
from mrc_host.model.nscc import (
    TICK_NS,
    UNLIMITED,
    Decision,
    FloatNscc,
    NsccParameters,
    congestion_control,
    congestion_names,
    create_congestion_control,
)
from mrc_host.model.nscc_fixed import FixedNscc

MTU = 4096


def parameters(gbps=400.0, rtt_ns=9350, mtu=MTU, trimming=True, **changes):
    derived = NsccParameters.derive(bytes_per_ns=gbps / 8, base_rtt_ns=rtt_ns, mtu=mtu, trimming=trimming)
    return replace(derived, **changes)


# -- parameters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "gbps, rtt_ns, bdp, target_ticks, alpha, fi, eta, fi_scale, max_window",
    [
        (100, 9350, 116.9e3, 55, 136, 16.0e3, 479, 0.195, 175e3),
        (400, 9350, 467.5e3, 55, 545, 63.8e3, 1915, 0.779, 701e3),
        (800, 10_000, 1.0e6, 59, 1165, 136.5e3, 4096, 1.667, 1.5e6),
    ],
)
def test_worked_values_of_nscc(gbps, rtt_ns, bdp, target_ticks, alpha, fi, eta, fi_scale, max_window):
    p = parameters(gbps, rtt_ns)
    fixed = FixedNscc(p, 0)
    assert p.max_cwnd / 1.5 == pytest.approx(bdp, rel=1e-3)
    assert fixed.target == target_ticks
    assert round(p.alpha * TICK_NS) == alpha
    assert p.fi == pytest.approx(fi, rel=3e-3)
    assert p.eta == pytest.approx(eta, rel=1e-3)
    assert p.fi_scale == pytest.approx(fi_scale, rel=2e-3)
    assert p.max_cwnd == pytest.approx(max_window, rel=2e-3)
    assert fixed.window == pytest.approx(p.max_cwnd, rel=1e-3)
    assert FloatNscc(p, 0).window == p.max_cwnd


@pytest.mark.parametrize(
    "gbps, rtt_us, mtu, bdp, target, alpha, fi, eta, fi_scale, max_window, qa, adjust",
    [
        (10, 10, 1024, 12500, 7.50, 0.0284, 427, 12.8, 0.0208, 18750, 30, 8192),
        (25, 10, 4096, 31250, 7.50, 0.2844, 4267, 128, 0.0521, 46875, 30, 32768),
        (100, 8, 4096, 100000, 6.00, 0.9102, 13653, 409.6, 0.1667, 150000, 24, 32768),
        (100, 12, 4096, 150000, 9.00, 1.3653, 20480, 614.4, 0.25, 225000, 36, 32768),
        (400, 10, 4096, 500000, 7.50, 4.5511, 68267, 2048, 0.8333, 750000, 30, 32768),
        (800, 10, 4096, 1000000, 7.50, 9.1022, 136533, 4096, 1.6667, 1500000, 30, 32768),
    ],
)
def test_worked_values_of_the_protocol(
    gbps, rtt_us, mtu, bdp, target, alpha, fi, eta, fi_scale, max_window, qa, adjust
):
    p = parameters(gbps, rtt_us * 1000, mtu)
    assert p.target_delay / 1000 == pytest.approx(target)
    assert p.alpha == pytest.approx(alpha, abs=6e-5)
    assert p.fi == pytest.approx(fi, abs=0.7)
    assert p.eta == pytest.approx(eta, abs=0.5)
    assert p.fi_scale == pytest.approx(fi_scale, abs=6e-5)
    assert p.max_cwnd == max_window == 1.5 * bdp
    assert p.adjust_bytes_threshold == adjust
    untrimmed = parameters(gbps, rtt_us * 1000, mtu, trimming=False)
    assert untrimmed.target_delay == rtt_us * 1000
    assert 4 * p.target_delay / 1000 == pytest.approx(qa)
    assert untrimmed.qa_threshold == 4 * untrimmed.target_delay


def test_parameters_out_of_range_are_named():
    with pytest.raises(ConfigError, match=r"cc\.max_cwnd must be between 4096 and 16777215, got 4095"):
        parameters(max_cwnd=4095)
    with pytest.raises(ConfigError, match=r"cc\.gamma must be between 0\.0 and 1\.0, got 1\.5"):
        parameters(gamma=1.5)


def test_algorithms_are_plug_ins():
    assert {"none", "nscc_float", "nscc_fixed"} <= set(congestion_names())
    none = create_congestion_control("none", parameters(), 0)
    none.on_send(1000)
    none.on_loss(0, 1000)
    assert none.window == UNLIMITED and none.in_flight == 1000
    none.on_idle()
    assert none.in_flight == 0
    with pytest.raises(ConfigError, match=r"model\.congestion must be one of none, nscc_float, .*got 'reno'"):
        create_congestion_control("reno", parameters(), 0)
    with pytest.raises(ValueError, match="once"):
        congestion_control("none")(FixedNscc)


# -- rules, in both arithmetics ------------------------------------------------------------------------------

BASE = 73  # ticks of 9350 ns
TARGET = 55


def make(kind, **changes):
    p = parameters(**changes)
    return FixedNscc(p, 1000) if kind == "fixed" else FloatNscc(p, 1000)


def shrink(cc, size):
    """Bring the window down to make room for an increase."""
    while cc.window > size + MTU:
        cc.on_loss(1000, MTU)
    cc.trigger = False
    cc.ignored = 0


def sack(cc, now, units, ecn=False, rtt=BASE, penalty=0, restore=False):
    cc.on_sack(now, units & 0xFFFFFF, ecn, rtt, penalty, restore)


@pytest.fixture(params=["fixed", "float"])
def cc(request):
    return make(request.param)


@pytest.fixture(params=["fixed", "float"])
def still(request):
    """Without the increase per period."""
    return make(request.param, eta=0.0)


def test_in_flight_is_what_was_sent_less_what_the_responder_counted(cc):
    for _ in range(4):
        cc.on_send(4200)
    sack(cc, 1001, 32)
    assert cc.in_flight == 4 * 4200 - 32 * 256
    cc.on_loss(1002, 4200)
    cc.on_nack(1002, 4200, False)
    cc.on_nack(1002, 4200, False)
    assert cc.in_flight == 0  # saturates


def test_a_stale_count_of_bytes_is_ignored_and_wraps_modulo_24_bits(cc):
    cc.last_units = 0xFFFFF0
    cc.on_send(100_000)
    sack(cc, 1001, 0x10)
    assert cc.in_flight == 100_000 - 32 * 256
    sack(cc, 1002, 0x0F)
    assert cc.decision & Decision.STALE
    assert cc.in_flight == 100_000 - 32 * 256 and cc.last_units == 0x10


def test_proportional_increase_is_written_when_eight_mtus_are_acknowledged(cc):
    shrink(cc, 200_000)
    before = cc.window
    delay = 20
    for n in range(1, 9):
        sack(cc, 1001, 16 * n, rtt=BASE + delay)
        assert cc.decision & Decision.PROPORTIONAL and not cc.decision & Decision.FULFIL
        assert cc.window == before
    sack(cc, 1001, 16 * 9, rtt=BASE + delay)
    assert cc.decision & Decision.FULFIL and not cc.decision & Decision.PERIOD
    expected = 545 * 9 * MTU * (TARGET - delay) / before
    assert cc.window - before == pytest.approx(expected, rel=0.01)


def test_fair_increase_above_the_target_without_a_mark_and_eta_once_a_period(cc):
    shrink(cc, 200_000)
    before = cc.window
    sack(cc, 1000 + BASE, 160, rtt=BASE + TARGET + 5)
    assert cc.decision & Decision.FAIR and cc.decision & Decision.PERIOD
    assert cc.window - before == pytest.approx(63_800 * 160 * 256 / before + 1915, rel=0.01)


def test_fast_increase_after_a_window_without_delay_until_the_first_delay(cc):
    shrink(cc, 100_000)
    units = 0
    while not cc.decision & Decision.FAST:
        units += 16
        sack(cc, 1001, units, rtt=BASE + 7)
        assert units * 256 < 400_000
    assert units * 256 > 100_000
    before = cc.window
    sack(cc, 1001, units + 16, rtt=BASE)
    assert cc.window - before >= 0.75 * MTU
    sack(cc, 1001, units + 32, rtt=BASE + 8)
    assert not cc.decision & Decision.FAST
    sack(cc, 1001, units + 48, rtt=BASE)
    assert not cc.decision & Decision.FAST


def test_a_mark_below_the_target_changes_nothing(cc):
    shrink(cc, 200_000)
    before = cc.window
    sack(cc, 1001, 16, ecn=True, rtt=BASE + TARGET - 1)
    assert cc.window == before and cc.increase == 0


def test_multiplicative_decrease_by_the_average_once_per_base_rtt(still):
    for n in range(400):
        sack(still, 1001, n, ecn=True, rtt=BASE + 200)
        if still.decision & Decision.DECREASE:
            break
    average = 200 * (1 - (1 - 0.0125) ** (n + 1))
    assert average == pytest.approx(TARGET, abs=3)  # the average decides, not the sample
    before = still.window
    for _ in range(50):
        sack(still, 1001 + BASE - 1, n + 1, ecn=True, rtt=BASE + 200)
    assert still.window == before
    sack(still, 1001 + BASE, n + 2, ecn=True, rtt=BASE + 200)
    assert still.decision & Decision.DECREASE
    assert 0.5 * before < still.window < before


def test_decrease_is_at_most_the_jump(still):
    for n in range(600):
        still.last_decrease = 1001
        sack(still, 1001, n, ecn=True, rtt=BASE + 1000)
    before = still.window
    sack(still, 1001 + BASE, 601, ecn=True, rtt=BASE + 1000)
    assert still.window == pytest.approx(before / 2, abs=2)


def test_unmarked_delay_is_noise_for_the_filter(cc):
    for n in range(500):
        sack(cc, 1001, n, rtt=BASE + 300)
    average = cc.average / 4096 if isinstance(cc, FixedNscc) else cc.average
    assert average == pytest.approx(BASE / 4, rel=0.01)


def test_the_base_rtt_falls_to_its_floor_and_takes_the_window_along():
    for kind in ("fixed", "float"):
        cc = make(kind, base_rtt_min=40 * TICK_NS)
        top = cc.window
        sack(cc, 1001, 1, rtt=50)
        assert cc.decision & Decision.NEW_BASE
        assert cc.window == pytest.approx(top * 50 / BASE, rel=2e-3)
        sack(cc, 1002, 2, rtt=20)
        assert cc.window == pytest.approx(top * 40 / BASE, rel=2e-3)


def test_without_a_sample_only_the_accounts_change(cc):
    shrink(cc, 200_000)
    before, average = cc.window, cc.average
    cc.on_send(MTU)
    sack(cc, 1000 + 200, 16, rtt=-1)
    assert cc.decision == Decision.NO_SAMPLE
    assert (cc.window, cc.average, cc.in_flight) == (before, average, 0)


def test_quick_adapt_cuts_to_what_was_achieved_once_per_epoch(cc):
    cc.on_send(600_000)
    sack(cc, 1001, 0)
    assert cc.decision & Decision.EPOCH and not cc.decision & Decision.QUICK_ADAPT  # the first one only arms
    sack(cc, 1002, 64)  # 16 KB achieved in this epoch
    cc.on_nack(1003, 4200, True)
    assert not cc.decision & Decision.QUICK_ADAPT  # not at the end yet: one packet less
    assert cc.window == make_window(cc) - 4200
    end = 1001 + BASE + TARGET
    cc.on_nack(end, 4200, True)
    assert cc.decision & Decision.QUICK_ADAPT
    assert cc.window == 64 * 256
    assert cc.to_ignore == cc.in_flight
    # What was sent before the cut may be marked without consequence.
    sack(cc, end + 1, 80, ecn=True, rtt=BASE + 500)
    assert cc.decision & Decision.SWALLOWED and cc.window == 64 * 256


def make_window(cc):
    """First window of a fresh one of the same kind."""
    return type(cc)(cc.parameters, 0).window


def test_quick_adapt_needs_little_achieved_and_can_be_off(cc):
    sack(cc, 1001, 0)
    sack(cc, 1002, 400)  # 102 KB, more than an eighth of 701 KB
    cc.on_nack(1001 + BASE + TARGET, 4200, True)
    assert not cc.decision & Decision.QUICK_ADAPT and cc.decision & Decision.EPOCH
    off = make("fixed" if isinstance(cc, FixedNscc) else "float", disable_qa=True)
    sack(off, 1001, 0)
    off.on_nack(1001 + BASE + TARGET, 4200, True)
    assert not off.decision & Decision.QUICK_ADAPT and off.window == make_window(off) - 4200


def test_a_delay_above_the_threshold_triggers_quick_adapt_without_trimming():
    for kind in ("fixed", "float"):
        cc = make(kind, trimming=False)
        target = round(9350 / TICK_NS)
        sack(cc, 1001, 0)
        sack(cc, 1001 + BASE + target, 10, rtt=BASE + 4 * target + 1)
        assert cc.decision & Decision.QUICK_ADAPT
        assert cc.window == MTU


def test_losses_cost_a_packet_of_window_each_down_to_one_mtu(cc):
    top = cc.window
    cc.on_send(10 * 4200)
    cc.on_loss(1001, 4200)
    assert cc.window == top - 4200 and cc.in_flight == 9 * 4200 and cc.trigger
    for _ in range(300):
        cc.on_loss(1001, 4200)
    assert cc.window == MTU


def test_the_penalty_is_entered_once_and_undone_by_restore(cc):
    cc.on_send(300_000)
    top = cc.window
    sack(cc, 1001, 100, penalty=64, rtt=-1)
    first = cc.window
    assert first == pytest.approx(300_000 - 25_600 - 12_800, abs=1)
    sack(cc, 1002, 90, penalty=64, rtt=-1)  # reordered: nothing new
    assert cc.window == first
    sack(cc, 1003, 200, penalty=127, rtt=-1)
    assert cc.window == pytest.approx(first - 25_400, abs=1)
    sack(cc, 1004, 200, restore=True, rtt=-1)
    assert cc.window == top
    sack(cc, 1005, 200, restore=True, rtt=-1)
    assert cc.window == top and not cc.decision & Decision.RESTORE


# -- agreement (profile.md 8) --------------------------------------------------------------------------------


def load(fixed, now):
    """A floating-point algorithm in the state of a fixed-point one."""
    twin = FloatNscc(fixed.parameters, now)
    since = lambda stamp: now - (now - stamp & 0xFFFF)  # noqa: E731
    twin.cwnd = fixed.cwnd / 256
    twin.flight = float(fixed.in_flight)
    twin.base_rtt = float(fixed.base_rtt)
    twin.max_window = float(fixed.max_window)
    twin.average = fixed.average / 4096
    twin.increase = 256.0 * fixed.increase
    twin.received = float(fixed.received)
    twin.achieved = float(fixed.achieved)
    twin.last_adjust = since(fixed.last_adjust)
    twin.last_decrease = since(fixed.last_decrease)
    ahead = fixed.epoch_end - now & 0xFFFF
    twin.epoch_end = float(now + (ahead if ahead < 0x8000 else ahead - 0x10000))
    twin.ignored = float(fixed.ignored)
    twin.to_ignore = float(fixed.to_ignore)
    twin.fast_count = float(fixed.fast_count)
    twin.fast = fixed.fast
    twin.trigger = fixed.trigger
    twin.saved = fixed.saved / 256
    twin.last_units = fixed.last_units
    twin.in_flight = fixed.in_flight
    return twin


def near_a_threshold(fixed, now, rtt):
    """Whether an operand of a decision is within one tick of what it is compared with (the state before)."""
    base = min(rtt, fixed.base_rtt) if rtt >= 0 else fixed.base_rtt
    delay = rtt - base
    p = fixed.parameters
    compared = [
        (delay, p.target_delay / TICK_NS),
        (delay, 8),
        (delay, p.qa_threshold / TICK_NS),
        (fixed.average / 4096 + (delay - fixed.average / 4096) * 0.0125, p.target_delay / TICK_NS),
        (now - fixed.last_adjust & 0xFFFF, p.adjust_period_threshold / TICK_NS),
        (now - fixed.last_decrease & 0xFFFF, base),
        (now - fixed.epoch_end & 0xFFFF, 0),
        (fixed.epoch_end - now & 0xFFFF, 0),
    ]
    return any(abs(left - right) <= 1 for left, right in compared)


class Trace:
    """Random events of a plausible network: delays that drift, marks, trims, losses, penalties."""

    def __init__(self, seed, p):
        self.random = random.Random(seed)
        self.now = self.random.randrange(1 << 20)
        self.units = 0
        self.delay = 0.0
        self.p = p
        self.size = p.mtu + 84

    def step(self, cc_all):
        draw = self.random
        self.now += draw.choice((0, 0, 1, 1, 2, 5, 20, 300))
        # A random walk with a pull to the target, so that every quadrant is visited.
        target = self.p.target_delay / TICK_NS
        self.delay = max(0.0, self.delay + draw.gauss((target - self.delay) * 0.02, target / 8))
        if draw.random() < 0.02:
            self.delay = draw.choice((0.0, 3 * target))
        kind = draw.random()
        if kind < 0.45:
            return ("send", self.size)
        if kind < 0.97:
            self.units += draw.choice((0, 16, 16, 17, 64, 256))
            units = self.units - (draw.randrange(1, 50) if draw.random() < 0.03 else 0)
            rtt = -1 if draw.random() < 0.02 else self.base() + round(self.delay)
            marked = draw.random() < min(0.9, self.delay / (4 * target))
            penalty = draw.randrange(1, 128) if draw.random() < 0.01 else 0
            return ("sack", units & 0xFFFFFF, marked, rtt, penalty, draw.random() < 0.01)
        return ("nack", draw.random() < 0.8) if kind < 0.985 else ("loss",)

    def base(self):
        base = round(self.p.base_rtt / TICK_NS)
        return base - 3 if self.random.random() < 0.001 else base


def apply(cc, now, event, size):
    cc.decision = 0
    if event[0] == "send":
        cc.on_send(event[1])
    elif event[0] == "sack":
        cc.on_sack(now, *event[1:])
    elif event[0] == "nack":
        cc.on_nack(now, size, event[1])
    else:
        cc.on_loss(now, size)


@pytest.mark.parametrize(
    "gbps, rtt_ns, mtu", [(400, 9350, 4096), (100, 9350, 4096), (25, 8000, 1024), (800, 10_000, 4096)]
)
@pytest.mark.parametrize("trimming", [True, False])
def test_both_arithmetics_agree_per_event(gbps, rtt_ns, mtu, trimming):
    p = parameters(gbps, rtt_ns, mtu, trimming)
    bdp = p.max_cwnd / 1.5
    fixed = FixedNscc(p, 0)
    trace = Trace(f"{gbps} {rtt_ns} {mtu} {trimming}", p)
    events = 8_000
    excused = 0
    seen = 0
    for _ in range(events):
        event = trace.step(fixed)
        twin = load(fixed, trace.now)
        rtt = event[3] if event[0] == "sack" else fixed.base_rtt
        excuse = near_a_threshold(fixed, trace.now, rtt)
        apply(fixed, trace.now, event, trace.size)
        apply(twin, trace.now, event, trace.size)
        seen |= fixed.decision
        if fixed.decision != twin.decision:
            assert excuse, (event, Decision(fixed.decision), Decision(twin.decision))
            excused += 1
        else:
            assert abs(fixed.cwnd / 256 - twin.cwnd) <= 0.01 * bdp, (event, Decision(fixed.decision))
            assert abs(fixed.in_flight - twin.in_flight) <= 1
    assert excused <= 0.001 * events
    wanted = Decision.FAST | Decision.PROPORTIONAL | Decision.FAIR | Decision.DECREASE | Decision.QUICK_ADAPT
    assert seen & wanted == wanted


@given(st.lists(st.tuples(
    st.integers(0, 400), st.integers(0, 1 << 24), st.booleans(), st.integers(-1, 5000), st.integers(0, 127),
    st.booleans(), st.sampled_from(["sack", "send", "nack", "trim", "loss"]),
), max_size=60))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_the_fixed_state_stays_inside_its_widths(events):
    cc = FixedNscc(parameters(), 0)
    now = 0
    for step, units, ecn, rtt, penalty, restore, kind in events:
        now += step
        if kind == "sack":
            cc.on_sack(now, units & 0xFFFFFF, ecn, rtt, penalty, restore)
        elif kind == "send":
            cc.on_send(4180)
        elif kind == "loss":
            cc.on_loss(now, 4180)
        else:
            cc.on_nack(now, 4180, kind == "trim")
        assert MTU <= cc.window <= cc.max_window < 1 << 24
        assert cc.window == cc.cwnd >> 8
        assert 0 <= cc.in_flight < 1 << 24 and 0 <= cc.average < 1 << 24
        assert 0 <= cc.increase < 1 << 32 and 0 <= cc.gate < 1 << 32 and cc.largest < 1 << 32
        for value in (cc.received, cc.achieved, cc.ignored, cc.to_ignore, cc.fast_count):
            assert 0 <= value < 1 << 24
        for stamp in (cc.last_adjust, cc.last_decrease, cc.epoch_end):
            assert 0 <= stamp < 1 << 16
        assert 0 < cc.base_rtt < 1 << 12


def closed_loop(kind, seed, ticks=10_000):
    """Mean window of one sender over a queue that others load with bursts; marks from 0.2 to 0.8 BDP."""
    p = parameters(100, 9350)
    cc = FixedNscc(p, 0) if kind == "fixed" else FloatNscc(p, 0)
    draw = random.Random(seed)
    rate = 12.5 * TICK_NS  # bytes a tick
    bdp = rate * BASE
    size = MTU + 84
    queue, received, total = 0.0, 0, 0.0
    arriving = []
    for now in range(ticks):
        if draw.random() < 0.002:
            queue += draw.uniform(0, 1.5 * bdp)
        drained = min(queue, rate)
        queue -= drained
        while cc.in_flight < cc.window:
            cc.on_send(size)
            queue += size
            wait = queue / rate
            marked = draw.random() < (queue / bdp - 0.2) / 0.6
            arriving.append((now + BASE + int(wait), marked, BASE + int(wait)))
        while arriving and arriving[0][0] <= now:
            _, marked, rtt = arriving.pop(0)
            received += size
            cc.on_sack(now, received + 255 >> 8 & 0xFFFFFF, marked, rtt, 0, False)
        total += cc.window
    return total / ticks


def test_both_arithmetics_agree_running_freely():
    means = {kind: sum(closed_loop(kind, seed) for seed in range(5)) / 5 for kind in ("fixed", "float")}
    assert means["fixed"] == pytest.approx(means["float"], rel=0.02)
    assert 0.2 * 116_875 < means["fixed"] < 1.5 * 116_875
