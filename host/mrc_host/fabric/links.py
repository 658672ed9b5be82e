"""The parts of a topology: switches, links with two directions, and paths. Names as in ``topology``."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from mrc_rtl.wire import GAP_PREAMBLE_FCS_BYTES, Tier

__all__ = ["Direction", "Link", "Path", "Switch"]


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch.

    Parameters
    ----------
    number : int
        Position among all switches of the topology, from 0.
    plane : int
        Plane, from 0.
    tier : Tier
        ``Tier.T0`` or ``Tier.T1``.
    index : int
        Index within plane and tier, from 1.
    """

    number: int
    plane: int
    tier: Tier
    index: int

    @property
    def name(self) -> str:
        """Name such as ``p0.t1.2``."""
        return f"p{self.plane}.t{self.tier.value}.{self.index}"


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a link.

    Parameters
    ----------
    number : int
        Number of the direction, the index into the event model's tables.
    link : str
        Name of the link.
    source_port, target_port : str
        Names of the ports it leaves and reaches.
    source_switch, target_switch : int
        Numbers of the switches at its ends; -1 where the end is a host.
    host : int
        Number of the host at one end; -1 between switches.
    plane : int
        Plane it belongs to.
    delay_ps : int
        Propagation delay in picoseconds.
    rate_gbps : float
        Rate in Gb/s, as written by the user.
    byte_ps : fractions.Fraction
        Exact time of one byte in picoseconds.
    """

    number: int
    link: str
    source_port: str
    target_port: str
    source_switch: int
    target_switch: int
    host: int
    plane: int
    delay_ps: int
    rate_gbps: float
    byte_ps: Fraction

    @property
    def name(self) -> str:
        """Name such as ``h0.p0>p0.t0.1.d1``."""
        return f"{self.source_port}>{self.target_port}"

    def slot_ps(self, frame_bytes: int) -> int:
        """Time a frame without FCS occupies the link: its bytes, preamble, FCS and gap (24), rounded up."""
        return -(-(frame_bytes + GAP_PREAMBLE_FCS_BYTES) * self.byte_ps.numerator // self.byte_ps.denominator)


@dataclass(frozen=True, slots=True)
class Link:
    """A cable: two directions with the same rate and delay.

    Parameters
    ----------
    name : str
        ``h0-p0.t0.1`` or ``p0.t0.1-p0.t1.2``.
    up, down : Direction
        Towards the higher and the lower tier.
    """

    name: str
    up: Direction
    down: Direction

    @property
    def delay_ps(self) -> int:
        """Propagation delay of either direction in picoseconds."""
        return self.up.delay_ps

    @property
    def rate_gbps(self) -> float:
        """Rate of either direction in Gb/s."""
        return self.up.rate_gbps


@dataclass(frozen=True, slots=True)
class Path:
    """A way from one host to another.

    Parameters
    ----------
    plane : int
        Plane it runs in.
    uplink : int or None
        Index of the T1 it crosses, None between hosts of one T0.
    directions : tuple of Direction
        The directions of links it crosses, in order.
    """

    plane: int
    uplink: int | None
    directions: tuple[Direction, ...]

    @property
    def name(self) -> str:
        """Name such as ``p0.u2``, or ``p0`` without a T1."""
        return f"p{self.plane}" if self.uplink is None else f"p{self.plane}.u{self.uplink}"

    @property
    def delay_ps(self) -> int:
        """Sum of the propagation delays in picoseconds."""
        return sum(direction.delay_ps for direction in self.directions)
