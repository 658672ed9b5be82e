"""Kinds of NICs by name.

Sweep: one kind, mixtures over host counts that divide and do not, names that are not known.
Stimulus: requests to kinds, with factories replaced.
Checks: which kind makes which host's NIC; options of models in experiments and in mixtures.
Timing: none.
"""

import pytest

from experiment.runs import QUICKSTART
from mrc_host.errors import ConfigError, MrcError
from mrc_host.experiment import nics
from mrc_host.experiment.load import load_experiment
from mrc_host.experiment.nics import NicKinds, NicRequest
from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_rtl.config import NicConfig


@pytest.mark.parametrize(
    ("text", "hosts", "expected"),
    [
        ("model", 3, "model model model"),
        ("rtl,model", 4, "rtl rtl model model"),
        ("model, rtl", 5, "model model model rtl rtl"),
        ("rtl,model,rtl", 3, "rtl model rtl"),
        ("rtl,model", 1, "rtl"),
    ],
)
def test_hosts_are_divided_into_blocks(text: str, hosts: int, expected: str) -> None:
    kinds = NicKinds.parse(text)
    assert " ".join(kinds.kind_of(host, hosts) for host in range(hosts)) == expected
    assert kinds.text == text.replace(" ", "")


@pytest.mark.parametrize("text", ["", "rtl,", "board", "rtl,fpga"])
def test_unknown_kinds_are_refused(text: str) -> None:
    with pytest.raises(MrcError, match="--nic must be rtl or model in this build, or several with commas"):
        NicKinds.parse(text)


def test_a_request_goes_to_the_kind_of_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, int]] = []
    for name in ("rtl", "model"):
        monkeypatch.setitem(
            nics.NIC_FACTORIES, name, lambda request, name=name: made.append((name, request.host))
        )
    for host in range(4):
        config = NicConfig.quickstart()
        request = NicRequest(host, config, MacOptions(gbps=6.25), MemoryOptions(size=4096), print, hosts=4)
        NicKinds.parse("rtl,model")(request)
    assert made == [("rtl", 0), ("rtl", 1), ("model", 2), ("model", 3)]


def test_gateware_refuses_links_that_its_planes_cannot_follow() -> None:
    request = NicRequest(0, NicConfig.large(), MacOptions(gbps=17), MemoryOptions(size=4096), print, hosts=1)
    with pytest.raises(ConfigError, match=r"fabric.rate_gbps must be at most 16 for gateware.*, got 17"):
        nics.verilated_nic(request)


def test_options_of_models_stand_in_the_experiment() -> None:
    experiment = load_experiment(QUICKSTART, ["nic.model={out_of_window: drop, burst: 8}"])
    assert experiment.nic.model == {"out_of_window": "drop", "burst": 8}
    for setting, path, expected in (
        ("nic.model={out_of_window: maybe}", "nic.model.out_of_window", "one of nack, drop"),
        ("nic.model={burst: 0}", "nic.model.burst", "between 1 and 64"),
        ("nic.model={colour: 1}", "nic.model.colour", "a known option"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_experiment(QUICKSTART, [setting])
        assert caught.value.path == path and caught.value.expected.startswith(expected)
