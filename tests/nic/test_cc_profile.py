"""Congestion control profiles: NSCC's parameters, their life cycle, and which queue pairs take them.

Sweep: every parameter out of range, defaults of the networks in protocol.md 2.7, every step.
Stimulus: calls of the API on a device of tables.
Checks: the worked values, rows of CC_PROFILE and QP_OPTION, errno and rule.
Timing: none.
"""

import struct
from dataclasses import fields, replace

import pytest
from control import PEER_END, check_refused, make_context

from mrc_host.model.cc_profiles import CcProfiles
from mrc_host.model.nscc_fixed import FixedNscc
from mrc_host.nic.congestion import CongestionWindow
from mrc_host.nic.device import CcProfile, NsccConfig, Path, ProfileState
from mrc_rtl.congestion.rows import ROWS, Row, state_of
from mrc_rtl.tables import CC_PROFILE, CONGESTION_INDEX, ControlTableId, TableId

INIT, OFFLINE, ONLINE = ProfileState
CONFIG = NsccConfig.for_network(rate_gbps=100, base_rtt_ns=12_000, mtu=4096, trimming=True)


def single(bits):
    return struct.unpack(">f", bits.to_bytes(4, "big"))[0]


@pytest.mark.parametrize(
    ("rate", "rtt", "mtu", "target", "alpha", "fi", "eta", "fi_scale", "window", "adjust"),
    [
        (10, 10_000, 1024, 7500, 0.0284, 427, 12.8, 0.0208, 18_750, 8192),
        (25, 10_000, 4096, 7500, 0.2844, 4267, 128, 0.0521, 46_875, 32_768),
        (100, 8_000, 4096, 6000, 0.9102, 13_653, 409.6, 0.1667, 150_000, 32_768),
        (100, 12_000, 4096, 9000, 1.3653, 20_480, 614.4, 0.25, 225_000, 32_768),
        (400, 10_000, 4096, 7500, 4.5511, 68_267, 2048, 0.8333, 750_000, 32_768),
        (800, 10_000, 4096, 7500, 9.1022, 136_533, 4096, 1.6667, 1_500_000, 32_768),
    ],
)
def test_worked_values(rate, rtt, mtu, target, alpha, fi, eta, fi_scale, window, adjust):
    config = NsccConfig.for_network(rate_gbps=rate, base_rtt_ns=rtt, mtu=mtu, trimming=True)
    assert (config.target_delay, config.max_cwnd, config.adjust_bytes_threshold) == (target, window, adjust)
    assert config.alpha == pytest.approx(alpha, rel=2e-3)
    assert config.fi == pytest.approx(fi, abs=0.5) and config.eta == pytest.approx(eta, rel=1e-3)
    assert config.fi_scale == pytest.approx(fi_scale, rel=3e-3)
    assert (config.gamma, config.max_md_jump, config.qa_gate, config.disable_qa) == (0.8, 0.5, 3, False)
    assert config.adjust_period_threshold == config.base_rtt == rtt


def test_without_trimming_delay_alone_adapts():
    config = NsccConfig.for_network(rate_gbps=100, base_rtt_ns=12_000, mtu=4096)
    assert (config.target_delay, config.qa_threshold) == (12_000, 48_000)
    assert CONFIG.qa_threshold == 0xFFFFFFFF
    assert NsccConfig.for_network(rate_gbps=1, base_rtt_ns=10, mtu=256, gamma=0.5).gamma == 0.5


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("disable_qa", 1, "True or False"),
        ("adjust_bytes_threshold", 0, "between 1 and"),
        ("adjust_period_threshold", 1 << 32, "between 1 and"),
        ("base_rtt", 0, "between 1 and"),
        ("base_rtt", 1.5, "between 1 and"),
        ("eta", -1.0, "between 0 and"),
        ("fi", float("nan"), "a finite number"),
        ("fi", "7", "a finite number"),
        ("fi_scale", float("inf"), "a finite number"),
        ("gamma", 1.5, "between 0 and 1"),
        ("max_md_jump", -0.1, "between 0 and 1"),
        ("max_cwnd", 255, "between 256 and"),
        ("qa_gate", 256, "between 0 and 255"),
        ("qa_threshold", -1, "between 0 and"),
        ("target_delay", 0, "between 1 and"),
    ],
)
def test_parameters_out_of_range(name, value, rule):
    with check_refused("EINVAL", f"cc_profile.config.{name}", rule):
        replace(CONFIG, **{name: value})


def test_networks_out_of_range():
    for changes, attribute in (({"rate_gbps": 0}, "rate_gbps"), ({"base_rtt_ns": 0}, "base_rtt_ns"),
                               ({"mtu": 100}, "mtu"), ({"rate_gbps": "1"}, "rate_gbps")):  # fmt: skip
        with check_refused("EINVAL", attribute):
            NsccConfig.for_network(**{"rate_gbps": 100, "base_rtt_ns": 8_000, "mtu": 4096, **changes})


def test_every_parameter_has_its_field():
    row = CONFIG.row()
    assert row.keys() == {field.name for field in CC_PROFILE.fields}
    assert row.keys() - {"alpha"} == {field.name for field in fields(NsccConfig)}
    assert single(row["fi"]) == 20_480 and single(row["gamma"]) == pytest.approx(0.8)
    assert row["max_cwnd"] == 225_000 and row["disable_qa"] == 0


def test_life_cycle():
    context = make_context()
    profile = context.cc_profile()
    with check_refused("EINVAL", "cc_profile.algorithm", "given to go OFFLINE"):
        profile.modify(OFFLINE)
    with check_refused("EINVAL", "cc_profile.algorithm", "uet-1.0-nscc or None, got dcqcn"):
        profile.modify(OFFLINE, algorithm="dcqcn")
    profile.modify(OFFLINE, algorithm="uet-1.0-nscc")
    with check_refused("EINVAL", "cc_profile.config", "given to go ONLINE"):
        profile.modify(ONLINE)
    with check_refused("EINVAL", "cc_profile.config", "of type NsccConfig"):
        profile.modify(ONLINE, config={"gamma": 0.5})
    profile.modify(ONLINE, config=CONFIG)
    assert context.nic.row(ControlTableId.CC_PROFILE) == CONFIG.row()
    with check_refused("EINVAL", "cc_profile.config", "changed while OFFLINE only"):
        profile.modify(config=CONFIG)
    pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
    pair.to_init(context.ev_profile([[1], [2]]), cc_profile=profile)
    for call in (lambda: profile.modify(OFFLINE), profile.destroy):
        with check_refused("EBUSY", "cc_profile.users", "0, got 1"):
            call()
    pair.destroy()
    profile.modify(OFFLINE)
    profile.modify(INIT)
    profile.destroy()
    assert isinstance(context.cc_profile(), CcProfile) and context.cc_profile().number == 1
    with check_refused("ENOMEM", "device.cc_profiles", "at most 2 at a time"):
        context.cc_profile()


def test_queue_pairs_take_it():
    context = make_context()
    first, second = context.cc_profile(), context.cc_profile()
    first.modify(OFFLINE, algorithm=None)
    first.modify(ONLINE)
    second.modify(OFFLINE, algorithm="uet-1.0-nscc", config=CONFIG)
    values = context.ev_profile([[1], [2]])
    pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
    with check_refused("EINVAL", "qp.cc_profile.state", "ONLINE, got OFFLINE"):
        pair.to_init(values, cc_profile=second)
    with check_refused("EINVAL", "qp.cc_profile", "of type CcProfile"):
        pair.to_init(values, cc_profile=1)
    with check_refused("EINVAL", "qp.cc_profile", "of this device"):
        other = make_context().cc_profile()
        other.modify(OFFLINE, algorithm=None)
        other.modify(ONLINE)
        pair.to_init(values, cc_profile=other)
    second.modify(ONLINE)
    pair.to_init(values, cc_profile=second)
    option = context.nic.row(ControlTableId.QP_OPTION)
    assert (option["cc_profile"], option["cc_enabled"]) == (1, 1)
    assert pair.query().window == 0
    other_pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
    other_pair.to_init(values, cc_profile=first)
    assert context.nic.row(ControlTableId.QP_OPTION, 1)["cc_enabled"] == 0
    other_pair.to_rtr(Path(1, 2), PEER_END, path_mtu=256)
    assert other_pair.query().window is None


class RowMemory:
    """A driver of a device that only has the gateware's congestion windows."""

    def __init__(self):
        self.rows = {}
        self.enabled = []

    def write_words(self, table, index, words):
        assert table is TableId.QP_SEND and index >= CONGESTION_INDEX
        self.rows[index - CONGESTION_INDEX] = list(words)
        if (index - CONGESTION_INDEX) % 4 == 3:
            self.enabled.append(words[Row.ENABLED % 16])

    def read_words(self, table, index, count):
        return self.rows[index - CONGESTION_INDEX][:count]

    def of(self, qp):
        return sum((self.rows[4 * qp + part] for part in range(4)), [])


@pytest.mark.parametrize("mtu", [256, 1024, 4096])
def test_gateware_and_model_start_from_the_same_integers(mtu):
    profiles = CcProfiles()
    profiles.write(0, CONFIG.row())
    model = FixedNscc(profiles.parameters(0, mtu, 0), 0)
    driver = RowMemory()
    window = CongestionWindow(driver, 5)
    assert not window.active
    window.start(CONFIG.row(), mtu)
    assert window.active and driver.enabled == [1] and len(driver.of(5)) == ROWS
    state = state_of(driver.of(5))
    stamps = {"last_adjust", "last_decrease", "epoch_end"}  # the engine enters the time
    assert {name: value for name, value in state.items() if name not in stamps} == {
        name: int(getattr(model, name)) for name in state if name not in stamps
    }
    read = window.read()
    assert (read.window, read.in_flight, read.base_rtt_ticks) == (model.window, 0, model.base_rtt)
    window.end()
    assert not window.active and driver.enabled == [1, 0]
    window.end()
    assert driver.enabled == [1, 0]


def test_parameters_that_do_not_go_with_the_mtu_are_refused():
    driver = RowMemory()
    with check_refused("EINVAL", "cc_profile.config", "within NSCC's limits for MTU 4096"):
        CongestionWindow(driver, 0).start(replace(CONFIG, max_cwnd=1000).row(), 4096)
    assert not driver.rows
