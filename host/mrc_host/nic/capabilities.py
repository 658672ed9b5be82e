"""What an engine can do, read from its registers."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mrc_host.nic.driver import Driver

__all__ = ["MPR_UNIT_PSNS", "Capabilities"]

#: Unit of the MPR attributes.
MPR_UNIT_PSNS = 128


@dataclass(frozen=True)
class Capabilities:
    """Limits of a device, named as the parameters of ``NicConfig`` they come from."""

    planes: int
    data_width: int
    clock_ps: int
    mtu: int
    qps: int
    mpr_psns: int
    evs_per_plane: int
    ev_profiles: int
    send_queue_depth: int
    receive_queue_depth: int
    memory_regions: int
    completion_queues: int
    immediates: int

    @property
    def mpr(self) -> int:
        """Tracking range in units of 128 PSNs, as it is told to peers."""
        return self.mpr_psns // MPR_UNIT_PSNS

    @classmethod
    def read(cls, driver: Driver) -> Capabilities:
        """Read them from a device."""
        return cls(**{field.name: driver.read(f"capability_{field.name}") for field in fields(cls)})
