"""Hosts, planes, switches, links and paths, with every time an integer in picoseconds.

A plane is a complete small fabric: T0 switches with hosts below and, unless the topology is a star, T1
switches above; every T0 has one uplink to every T1 of its plane. Each host has one port in every plane and is
attached to the same T0 number in all of them.

Names
-----
========================  =========================================================================
``h0``                    host, counted from 0
``p0.t0.1``, ``p0.t1.2``  switch: plane from 0, tier, index from 1
``h0.p3``                 port of host 0 in plane 3
``p0.t0.1.d2``            downlink 2 of a T0 (to its second host), or of a T1 (to T0 number 2)
``p0.t0.1.u2``            uplink 2 of a T0, to T1 number 2
``h0-p0.t0.1``            link, lower end first; also ``p0.t0.1-p0.t1.2``
``h0.p0>p0.t0.1.d1``      one direction of a link, from port to port
========================  =========================================================================

Directions of links are numbered without holes, and tables of the event model are indexed by that number:
first host → T0 (number = host · planes + plane, which is also the number of the NIC port), then T0 → host,
then T0 → T1, then T1 → T0.

Source: profile.md 1 and 2; design.md 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from fractions import Fraction

from mrc_host.errors import ConfigError
from mrc_host.fabric.events import NEVER
from mrc_host.fabric.links import Direction, Link, Path, Switch
from mrc_host.fabric.spec import LinkOverride, TopologySpec, TrimmingSpec
from mrc_rtl.wire import ICRC, Opcode, Tier, fixed_headers_bytes

__all__ = ["Direction", "Link", "Path", "Switch", "Topology"]

PICOSECONDS_PER_BYTE_AT_1_GBPS = 8000
MTU = 4096


def _picoseconds(nanoseconds: float) -> int:
    return round(Fraction(str(nanoseconds)) * 1000)


class Topology:
    """A built topology: everything of :class:`~mrc_host.fabric.spec.TopologySpec`, spelled out.

    Parameters
    ----------
    spec : TopologySpec
        The checked description.

    Attributes
    ----------
    hosts, planes, t0_per_plane, t1_per_plane, hosts_per_t0 : int
        Counts.
    switches : tuple of Switch
        All switches, by number.
    directions : tuple of Direction
        All directions of links, by number.
    links : tuple of Link
        All links: host links by host and plane, then T0-T1 links by plane, T0 and T1.
    switch_latency_ps : int
        Time between the last bit of a frame received and its place in the output queue.
    queue_bytes, control_queue_bytes, retransmission_queue_bytes : int
        Sizes of the queues of a switch port.
    trimming : TrimmingSpec
        How switches trim, whether or not they do it when a queue is full.

    Raises
    ------
    ConfigError
        When the link pattern of an override matches no link.
    """

    def __init__(self, spec: TopologySpec) -> None:
        self.spec = spec
        self.hosts = spec.hosts
        self.planes = spec.planes
        self.t0_per_plane = spec.t0_per_plane
        self.t1_per_plane = spec.t1_per_plane
        self.hosts_per_t0 = spec.hosts // spec.t0_per_plane
        self.switch_latency_ps = _picoseconds(spec.switch_latency_ns)
        self.queue_bytes = spec.queue_bytes
        self.control_queue_bytes = spec.control_queue_bytes or spec.queue_bytes
        self.retransmission_queue_bytes = spec.retransmission_queue_bytes or spec.queue_bytes
        self.trimming = spec.trimming or TrimmingSpec()
        self.switches = tuple(self._build_switches())
        self._overrides_used = [0] * len(spec.links)
        self.links = tuple(self._build_links())
        for index, used in enumerate(self._overrides_used):
            if not used:
                raise ConfigError(
                    f"links.{index}.link",
                    f"the name of a link, such as {self.links[0].name} or {self.links[-1].name}, "
                    "or a pattern that matches one",
                    spec.links[index].link,
                )
        halves = [half for link in self.links for half in (link.up, link.down)]
        self.directions = tuple(sorted(halves, key=lambda half: half.number))

    # -- construction ------------------------------------------------------------------------------------

    def _build_switches(self) -> Iterator[Switch]:
        number = 0
        for plane in range(self.planes):
            for tier, count in ((Tier.T0, self.t0_per_plane), (Tier.T1, self.t1_per_plane)):
                for index in range(1, count + 1):
                    yield Switch(number, plane, tier, index)
                    number += 1

    def _link(
        self,
        ends: tuple[str, str],
        ports: tuple[str, str],
        switches: tuple[int, int],
        numbers: tuple[int, int],
        host: int,
        plane: int,
        rate_gbps: float,
        delay_ns: float,
    ) -> Link:
        """Make one link; ends, ports and switches are given lower tier first, numbers up first."""
        name = f"{ends[0]}-{ends[1]}"
        for index, override in enumerate(self.spec.links):
            if self._override_matches(override, name):
                self._overrides_used[index] += 1
                rate_gbps = rate_gbps if override.rate_gbps is None else override.rate_gbps
                delay_ns = delay_ns if override.delay_ns is None else override.delay_ns
        delay = max(1, _picoseconds(delay_ns))
        byte = PICOSECONDS_PER_BYTE_AT_1_GBPS / Fraction(str(rate_gbps))
        low, high = ports
        below, above = switches
        return Link(
            name,
            Direction(numbers[0], name, low, high, below, above, host, plane, delay, rate_gbps, byte),
            Direction(numbers[1], name, high, low, above, below, host, plane, delay, rate_gbps, byte),
        )

    @staticmethod
    def _override_matches(override: LinkOverride, name: str) -> bool:
        return override.link == name or fnmatchcase(name, override.link)

    def _build_links(self) -> Iterator[Link]:
        spec = self.spec
        nic_ports = self.hosts * self.planes
        for host in range(self.hosts):
            for plane in range(self.planes):
                t0 = self.switches[self.t0_number(plane, self.t0_of(host))]
                number = self.nic_port(host, plane)
                yield self._link(
                    (f"h{host}", t0.name),
                    (f"h{host}.p{plane}", f"{t0.name}.d{self.downlink_of(host)}"),
                    (-1, t0.number),
                    (number, nic_ports + number),
                    host,
                    plane,
                    spec.rate_gbps,
                    spec.host_link_delay_ns,
                )
        uplinks = self.planes * self.t0_per_plane * self.t1_per_plane
        number = 2 * nic_ports
        for plane in range(self.planes):
            for low in range(1, self.t0_per_plane + 1):
                for high in range(1, self.t1_per_plane + 1):
                    t0 = self.switches[self.t0_number(plane, low)]
                    t1 = self.switches[self.t1_number(plane, high)]
                    yield self._link(
                        (t0.name, t1.name),
                        (f"{t0.name}.u{high}", f"{t1.name}.d{low}"),
                        (t0.number, t1.number),
                        (number, number + uplinks),
                        -1,
                        plane,
                        spec.t1_rate_gbps or spec.rate_gbps,
                        spec.t1_delay_ns(high),
                    )
                    number += 1

    # -- numbers -----------------------------------------------------------------------------------------

    def _check(self, what: str, value: int, low: int, high: int) -> None:
        if not low <= value <= high:
            raise ValueError(f"{what} must be between {low} and {high}, got {value}")

    def t0_of(self, host: int) -> int:
        """Return the index (from 1) of the T0 a host is attached to, the same in every plane."""
        self._check("host", host, 0, self.hosts - 1)
        return host // self.hosts_per_t0 + 1

    def downlink_of(self, host: int) -> int:
        """Return the downlink number (from 1) of a host within its T0: the index in its uSID."""
        self._check("host", host, 0, self.hosts - 1)
        return host % self.hosts_per_t0 + 1

    def nic_port(self, host: int, plane: int) -> int:
        """Return the number of a NIC port, which is also that of the direction host → T0."""
        self._check("host", host, 0, self.hosts - 1)
        self._check("plane", plane, 0, self.planes - 1)
        return host * self.planes + plane

    def t0_number(self, plane: int, index: int) -> int:
        """Return the number of a T0 switch."""
        self._check("plane", plane, 0, self.planes - 1)
        self._check("T0 index", index, 1, self.t0_per_plane)
        return plane * (self.t0_per_plane + self.t1_per_plane) + index - 1

    def t1_number(self, plane: int, index: int) -> int:
        """Return the number of a T1 switch."""
        self._check("plane", plane, 0, self.planes - 1)
        self._check("T1 index", index, 1, self.t1_per_plane)
        return plane * (self.t0_per_plane + self.t1_per_plane) + self.t0_per_plane + index - 1

    def host_link(self, host: int, plane: int) -> Link:
        """Return the link between a host and its T0 in a plane."""
        return self.links[self.nic_port(host, plane)]

    def t1_link(self, plane: int, t0: int, t1: int) -> Link:
        """Return the link between T0 number ``t0`` and T1 number ``t1`` of a plane."""
        self.t0_number(plane, t0)
        self.t1_number(plane, t1)
        return self.links[
            self.hosts * self.planes + (plane * self.t0_per_plane + t0 - 1) * self.t1_per_plane + t1 - 1
        ]

    # -- paths and what they cost ------------------------------------------------------------------------

    def same_t0(self, source: int, target: int) -> bool:
        """Whether two hosts share their T0, so that no T1 is crossed."""
        return self.t0_of(source) == self.t0_of(target)

    def path(self, source: int, target: int, plane: int, uplink: int | None = None) -> Path:
        """Return one path.

        Parameters
        ----------
        source, target : int
            Hosts. ``source`` equal to ``target`` is the way to the T0 and back, as self-probes take.
        plane : int
            Plane.
        uplink : int, optional
            Index of the T1; ignored when the hosts share their T0.

        Raises
        ------
        ValueError
            When the hosts are on different T0s and ``uplink`` is missing or out of range.
        """
        first = self.host_link(source, plane).up
        last = self.host_link(target, plane).down
        if self.same_t0(source, target):
            return Path(plane, None, (first, last))
        self._check("uplink", 0 if uplink is None else uplink, 1, self.t1_per_plane)
        assert uplink is not None
        up = self.t1_link(plane, self.t0_of(source), uplink).up
        down = self.t1_link(plane, self.t0_of(target), uplink).down
        return Path(plane, uplink, (first, up, down, last))

    def paths(self, source: int, target: int) -> list[Path]:
        """Return every shortest path between two hosts: by plane, then by uplink."""
        if self.same_t0(source, target):
            return [self.path(source, target, plane) for plane in range(self.planes)]
        return [
            self.path(source, target, plane, uplink)
            for plane in range(self.planes)
            for uplink in range(1, self.t1_per_plane + 1)
        ]

    def one_way_ps(self, path: Path, frame_bytes: int) -> int:
        """Time from the first bit of a frame at the sender to the end of its slot at the receiver.

        Queues are empty; every switch stores and forwards. ``frame_bytes`` is without FCS.
        """
        moving = sum(half.slot_ps(frame_bytes) + half.delay_ps for half in path.directions)
        return moving + (len(path.directions) - 1) * self.switch_latency_ps

    def base_rtt_ps(self, path: Path, frame_bytes: int, answer_bytes: int) -> int:
        """Round trip over one path with empty queues: a frame one way, its answer back the same way.

        The answering NIC's own service time is not contained.
        """
        reverse = Path(
            path.plane, path.uplink, tuple(self.opposite(half) for half in reversed(path.directions))
        )
        return self.one_way_ps(path, frame_bytes) + self.one_way_ps(reverse, answer_bytes)

    def plane_bdp_bytes(self) -> int:
        """Return the bandwidth-delay product of a plane: what one host link carries in a round trip.

        The round trip is that of a full packet of 4096 bytes and a SACK over the longest path of plane 0.
        """
        frame = fixed_headers_bytes(Opcode.WRITE_MIDDLE, True, True) + MTU + ICRC.bytes
        answer = fixed_headers_bytes(Opcode.SACK, False, True) + ICRC.bytes
        paths = [path for path in self.paths(0, self.hosts - 1) if path.plane == 0]
        longest = max(self.base_rtt_ps(path, frame, answer) for path in paths)
        return int(longest / self.host_link(0, 0).up.byte_ps)

    @property
    def ecn_thresholds_bytes(self) -> tuple[int, int]:
        """Lower and upper threshold of marking in bytes, as given or from the bandwidth-delay product."""
        ecn = self.spec.ecn
        if ecn is not None and ecn.min_bytes is not None and ecn.max_bytes is not None:
            return ecn.min_bytes, ecn.max_bytes
        product = self.plane_bdp_bytes()
        return product // 5, product * 4 // 5

    def trim_threshold_bytes(self, direction: Direction) -> int:
        """Return the bytes in a queue above which the port of a direction trims; NEVER where it does not."""
        trimming = self.spec.trimming
        if trimming is None or direction.source_switch < 0:
            return NEVER
        threshold = trimming.threshold_bytes
        if direction.target_switch < 0:
            threshold = trimming.host_threshold_bytes or threshold
        return threshold or self.queue_bytes

    def directions_named(self, name: str) -> list[Direction]:
        """Return the directions of links that a name means.

        Parameters
        ----------
        name : str
            Name of a direction, of a link for both its directions, or a pattern of either with ``*``, ``?``.

        Raises
        ------
        ValueError
            When there is none.
        """
        found = [half for half in self.directions if name in (half.name, half.link)]
        found = found or [
            half for half in self.directions if fnmatchcase(half.name, name) or fnmatchcase(half.link, name)
        ]
        if not found:
            first = self.directions[0]
            raise ValueError(f"link must be a name such as {first.link} or {first.name}, got {name!r}")
        return found

    def opposite(self, direction: Direction) -> Direction:
        """Return the other direction of the same link."""
        nic_ports = self.hosts * self.planes
        uplinks = self.planes * self.t0_per_plane * self.t1_per_plane
        number = direction.number
        if number < 2 * nic_ports:
            return self.directions[(number + nic_ports) % (2 * nic_ports)]
        return self.directions[2 * nic_ports + (number - 2 * nic_ports + uplinks) % (2 * uplinks)]

    def host_rate_gbps(self, host: int) -> float:
        """Return the sum of a host's link rates over all planes in Gb/s."""
        return sum(self.host_link(host, plane).rate_gbps for plane in range(self.planes))

    def bisection_gbps(self) -> float:
        """Return what the lower half of the T0 switches can send to the upper half, in Gb/s.

        All planes together; an odd T0 in the middle belongs to the upper half. For a star the cut runs
        through the hosts: the rate of the lower half of them.
        """
        if self.t1_per_plane == 0 or self.t0_per_plane == 1:
            return sum(self.host_rate_gbps(host) for host in range(self.hosts // 2))
        half = self.t0_per_plane // 2
        total = 0.0
        for plane in range(self.planes):
            for t1 in range(1, self.t1_per_plane + 1):
                rates = [self.t1_link(plane, t0, t1).rate_gbps for t0 in range(1, self.t0_per_plane + 1)]
                total += min(sum(rates[:half]), sum(rates[half:]))
        return total

    @property
    def lookahead_ps(self) -> int:
        """Longest safe window: the shortest delay of a host link in picoseconds."""
        return min(link.delay_ps for link in self.links[: self.hosts * self.planes])
