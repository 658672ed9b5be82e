"""Makes topologies from a few numbers: how many hosts, planes and ports a switch has."""

from __future__ import annotations

from math import ceil
from typing import Any

from mrc_host.errors import ConfigError
from mrc_host.fabric.spec import TopologySpec, parse_topology

__all__ = ["generate_topology", "topology_yaml"]


def generate_topology(
    hosts: int, planes: int, rate_gbps: float, *, switch_ports: int = 64, oversubscription: float = 1.0
) -> TopologySpec:
    """Return the smallest two-tier topology of switches of one size, or a star when one T0 is enough.

    Hosts are spread evenly over as few T0s as their ports allow; each T0 has one uplink to every T1, and
    uplinks carry together the rate of its hosts over ``oversubscription``.

    Parameters
    ----------
    hosts, planes : int
        Hosts; planes in parallel, each of its own switches.
    rate_gbps : float
        Rate of every link.
    switch_ports : int
        Ports of a switch, at least 2.
    oversubscription : float
        Rate of a T0's hosts over that of its uplinks, above 0.

    Raises
    ------
    ConfigError
        A number is out of range, or two tiers of such switches are too few; the path names the number.
    """
    if switch_ports < 2:
        raise ConfigError("switch_ports", "at least 2", switch_ports)
    if not oversubscription > 0:
        raise ConfigError("oversubscription", "above 0", oversubscription)
    base: dict[str, Any] = {"hosts": hosts, "planes": planes, "rate_gbps": rate_gbps}
    if hosts <= switch_ports:
        return parse_topology(base)
    for t0 in range(2, hosts + 1):
        if hosts % t0:
            continue
        below = hosts // t0
        above = ceil(below / oversubscription)
        if below + above <= switch_ports:
            if t0 > switch_ports:
                break
            return parse_topology({**base, "t0_per_plane": t0, "t1_per_plane": above})
    largest = switch_ports * int(switch_ports / (1 + 1 / oversubscription))
    raise ConfigError(
        "hosts",
        f"a number that divides evenly among T0s, at most {largest} for two tiers of {switch_ports} ports "
        f"with an oversubscription of {oversubscription:g}",
        hosts,
    )


def topology_yaml(spec: TopologySpec) -> str:
    """Return a topology as a file of a few lines: what differs from the defaults."""
    lines = []
    for name, value in spec.model_dump(mode="json", exclude_defaults=True).items():
        lines.append(f"{name}: {value:g}" if isinstance(value, float) else f"{name}: {value}")
    return "\n".join(lines) + "\n"
