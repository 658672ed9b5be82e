"""Table DEVICE and the notice ring: EV events and results of endpoint operations for the controller.

Source: protocol.md 2.8; :data:`mrc_rtl.tables.DEVICE`, :data:`mrc_rtl.tables.NOTICE`.
"""

from __future__ import annotations

from mrc_host.model.rings import Ring
from mrc_host.model.shell import CC_PROFILES, ENDPOINT_SLOTS
from mrc_rtl.config import NicConfig
from mrc_rtl.tables import NOTICE, DeviceFlag

__all__ = ["MODEL_FLAGS", "Notices"]

MODEL_FLAGS = ~DeviceFlag.EV_EXPLICIT_RANGE
"""The model does everything; a range of explicit values is a restriction it does not have."""
_ALL_FLAGS = sum(flag for flag in DeviceFlag)


class Notices:
    """Owner of table DEVICE.

    Parameters
    ----------
    config : NicConfig
    service_time : bool
        The responder takes its service time out of reflected timestamps.
    """

    __slots__ = ("_dropped", "_flags", "_planes", "_unreported", "ring")

    def __init__(self, config: NicConfig, service_time: bool = True) -> None:
        self._flags: int = int(MODEL_FLAGS) & _ALL_FLAGS
        if not service_time:
            self._flags &= ~int(DeviceFlag.SVC_TIME)
        self._planes: int = config.planes
        self._dropped: int = 0
        self._unreported: int = 0
        self.ring = Ring()

    def write(self, index: int, fields: dict[str, int]) -> bool:
        """Apply row 0; False for any other or a ring that is not allowed."""
        if index:
            return False
        base, log2, enabled = (
            fields[name] for name in ("notice_base", "notice_log2_entries", "notice_enabled")
        )
        same = self.ring.enabled and enabled and (base, log2) == (self.ring.base, self.ring.log2_entries)
        if not same and not self.ring.configure(base, log2, enabled == 1):
            return False
        self.ring.consumer = fields["notice_consumer"]
        return True

    def read(self, index: int) -> dict[str, int] | None:
        """All fields of row 0; None for any other."""
        if index:
            return None
        ring = self.ring
        return {
            "notice_base": ring.base,
            "notice_log2_entries": ring.log2_entries,
            "notice_enabled": int(ring.enabled),
            "notice_consumer": ring.consumer,
            "notice_producer": ring.producer,
            "notice_dropped": self._dropped & 0xFFFF_FFFF,
            "flags": self._flags,
            "ev_count_align": self._planes,
            "endpoint_slots": ENDPOINT_SLOTS,
            "cc_profiles": CC_PROFILES,
        }

    def push(self, tick: int, fields: dict[str, int]) -> tuple[int, bytes] | None:
        """Take a place in the ring for a notice; None when it is dropped."""
        if not self.ring.enabled or self.ring.full:
            self._dropped += 1
            self._unreported += 1
            return None
        words = NOTICE.pack(**fields, time=tick, dropped=self._unreported & 0xFFFF_FFFF)
        self._unreported = 0
        return self.ring.push((words[0], words[1], words[2], words[3]))
