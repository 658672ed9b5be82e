"""What surrounds a verilated engine: its MACs and its host memory."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from mrc_host.errors import ConfigError
from mrc_rtl.config import NicConfig

__all__ = ["MacOptions", "MemoryOptions", "byte_time"]

PS_PER_BYTE_AT_1_GBPS = 8000


@dataclass(frozen=True, kw_only=True)
class MacOptions:
    """The MACs of a NIC.

    Parameters
    ----------
    gbps : Fraction, int or float
        Line rate of every port in Gb/s, at most what the engine's data path carries.
    fifo_bytes : int
        Transmit FIFO of a port in bytes, at least two beats: what the engine sees as *room*.
    """

    gbps: Fraction | int | float = 10
    fifo_bytes: int = 256


@dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """The host memory behind a NIC.

    Parameters
    ----------
    size : int
        Bytes; untouched pages cost nothing.
    read_latency, write_latency : int
        Cycles from the address to the first beat, and from the last beat to the response; at least 1.
    latency_jitter : int
        Up to so many cycles more, pseudo-random; answers stay in order.
    outstanding : int
        Bursts of each direction that are accepted before the first one is answered.
    stall_period, stall_cycles : int
        Of every period of cycles the first ones refuse new transfers on all channels.
    stall_share : float
        Share of the cycles, 0 to below 1, in which a channel refuses, pseudo-random and independent.
    seed : int
        Seed of jitter and stalls.
    """

    size: int = 64 << 20
    read_latency: int = 25
    write_latency: int = 15
    latency_jitter: int = 0
    outstanding: int = 16
    stall_period: int = 1
    stall_cycles: int = 0
    stall_share: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("size", 4096, 1 << 40),
            ("read_latency", 1, 1 << 20),
            ("write_latency", 1, 1 << 20),
            ("latency_jitter", 0, 1 << 20),
            ("outstanding", 1, 1 << 10),
            ("stall_period", 1, 1 << 20),
            ("stall_cycles", 0, self.stall_period - 1),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"memory.{name}", f"between {low} and {high}", value)
        if not 0 <= self.stall_share < 1:
            raise ConfigError("memory.stall_share", "at least 0 and below 1", self.stall_share)


def byte_time(config: NicConfig, mac: MacOptions) -> Fraction:
    """Return picoseconds of a byte on the wire; ConfigError when rate or FIFO are out of range."""
    rate = Fraction(mac.gbps).limit_denominator(1_000_000)
    limit = Fraction(config.data_width * 1000, config.clock_ps)
    if not 0 < rate <= limit:
        raise ConfigError("mac.gbps", f"above 0 and at most {float(limit):g} (data width x clock)", mac.gbps)
    if not 2 * config.data_bytes <= mac.fifo_bytes <= 1 << 20:
        raise ConfigError("mac.fifo_bytes", f"between {2 * config.data_bytes} and {1 << 20}", mac.fifo_bytes)
    return PS_PER_BYTE_AT_1_GBPS / rate
