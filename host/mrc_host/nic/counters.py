"""The engine's counters by name."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_host.nic.driver import Driver
from mrc_rtl.tables import TableId

__all__ = ["Counters", "read_counters"]


@dataclass(frozen=True)
class Counters:
    """Values of all counters.

    Parameters
    ----------
    ports : tuple of dicts
        For each port, value by name (``mrc_rtl.records.PortCounter``, lower case).
    engine : dict
        Value by name (``GlobalCounter``, lower case).
    """

    ports: tuple[dict[str, int], ...]
    engine: dict[str, int]

    def unaccounted(self, port: int) -> int:
        """Return frames received on a port minus the sum of their outcomes: 0 when the engine rests."""
        counted = sum(
            value
            for name, value in self.ports[port].items()
            if not name.startswith("tx_") and name != "rx_frames"
        )
        return self.ports[port]["rx_frames"] - counted


def read_counters(driver: Driver) -> Counters:
    """Read all counters at once (the NIC's time goes on while they are read)."""
    from mrc_rtl.records import PORT_COUNTERS, GlobalCounter, PortCounter  # imports Amaranth, which is slow

    def value(index: int) -> int:
        return driver.read_words(TableId.COUNTER, index, 1)[0]

    planes = driver.nic.config.planes
    ports = tuple(
        {counter.name.lower(): value(plane * PORT_COUNTERS + counter) for counter in PortCounter}
        for plane in range(planes)
    )
    engine = {counter.name.lower(): value(planes * PORT_COUNTERS + counter) for counter in GlobalCounter}
    return Counters(ports, engine)
