"""Generated topologies.

Sweep: hosts, ports, oversubscription; numbers that do not fit.
Stimulus: none.
Checks: ports of switches suffice, hosts are all attached, the file reads back, messages.
Timing: none.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.cli import main
from mrc_host.errors import ConfigError
from mrc_host.fabric.generate import generate_topology, topology_yaml
from mrc_host.fabric.load import load_topology
from mrc_host.fabric.topology import Topology


@settings(deadline=None)
@given(
    hosts=st.integers(1, 400),
    planes=st.integers(1, 8),
    ports=st.integers(2, 64),
    over=st.sampled_from([0.5, 1.0, 2.0, 3.0]),
)
def test_switches_have_ports_enough_and_uplinks_carry_what_is_asked(
    hosts: int, planes: int, ports: int, over: float
) -> None:
    try:
        spec = generate_topology(hosts, planes, 100, switch_ports=ports, oversubscription=over)
    except ConfigError as error:
        assert error.path == "hosts"
        return
    topology = Topology(spec)
    assert topology.hosts == hosts
    assert topology.hosts_per_t0 + topology.t1_per_plane <= ports
    assert topology.t0_per_plane <= ports
    if topology.t1_per_plane:
        assert topology.t1_per_plane * over >= topology.hosts_per_t0
        assert all(path.uplink for path in topology.paths(0, hosts - 1))


def test_known_sizes() -> None:
    spec = generate_topology(2048, 4, 400, switch_ports=64)
    assert (spec.t0_per_plane, spec.t1_per_plane) == (64, 32)
    assert generate_topology(64, 4, 400).t1_per_plane == 0
    with pytest.raises(ConfigError, match="hosts must be a number that .* at most 2048 for two tiers of 64"):
        generate_topology(2049, 4, 400)
    with pytest.raises(ConfigError, match="switch_ports must be at least 2, got 1"):
        generate_topology(4, 4, 400, switch_ports=1)
    with pytest.raises(ConfigError, match="oversubscription must be above 0, got 0"):
        generate_topology(4, 4, 400, oversubscription=0)


def test_the_command_prints_a_file_of_at_most_ten_lines_that_reads_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["topology", "generate", "--hosts", "128", "--switch-ports", "16", "--rate-gbps", "12.5"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 10
    (tmp_path / "t.yaml").write_text(text)
    spec = load_topology(tmp_path / "t.yaml").spec
    assert spec == generate_topology(128, 4, 12.5, switch_ports=16)
    assert topology_yaml(spec) == text
