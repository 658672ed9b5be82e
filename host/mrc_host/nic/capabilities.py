"""What a device can do: its sizes, and which parts of the OCP MRC APIs it has."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from mrc_host.nic.base import RegisterError
from mrc_host.nic.driver import Driver
from mrc_host.nic.verbs_error import VerbsError
from mrc_rtl.tables import GATEWARE_FLAGS, ControlTableId, DeviceFlag

__all__ = [
    "API_VERSION",
    "CC_ALGORITHM_NSCC",
    "DRIVER_CC_PROFILES",
    "EV_OP_MAX_ENTRIES",
    "FMT_MAX_FIELDS",
    "MPR_UNIT_PSNS",
    "PROTOCOL_VERSION_1",
    "Capabilities",
    "DeviceFlag",
]

#: Unit of the MPR attributes.
MPR_UNIT_PSNS = 128
#: The only version of the protocol; versions are bits of a mask.
PROTOCOL_VERSION_1 = 1 << 0
#: Of both APIs: major 1, minor 0, sub 1.
API_VERSION = 1 << 24 | 0 << 16 | 1
#: Entries of one batch of operations on EVs.
EV_OP_MAX_ENTRIES = 64
#: Fields of an EV format profile.
FMT_MAX_FIELDS = 16
#: Congestion control profiles of a device that leaves them to the driver.
DRIVER_CC_PROFILES = 16
#: The congestion control algorithm there is.
CC_ALGORITHM_NSCC = "uet-1.0-nscc"


@dataclass(frozen=True)
class _Sizes:
    """The parameters of ``NicConfig`` a device was built with, read from the registers ``capability_*``."""

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
    congestion_control: int
    loss_inference: int
    go_back_n: int


@dataclass(frozen=True)
class Capabilities(_Sizes):
    """Limits of a device.

    The first fields are the parameters of ``NicConfig``, by name. The others come from table DEVICE; a
    device without it, such as the gateware, has the defaults.

    Parameters
    ----------
    flags : DeviceFlag
        What it can do, see :meth:`require`.
    ev_count_align : int
        ``ev_count`` of an EV profile is a multiple of this.
    endpoint_slots : int
        Endpoint requests that may be outstanding.
    cc_profiles : int
        Congestion control profiles; those of the gateware are kept by the driver.
    controlled : bool
        It has the tables behind the controller API.

    Source: protocol.md 1.20, 2.8.
    """

    flags: DeviceFlag = GATEWARE_FLAGS
    ev_count_align: int = 1
    endpoint_slots: int = 0
    cc_profiles: int = DRIVER_CC_PROFILES
    controlled: bool = False

    # -- by the names of the application API ---------------------------------------------------------------

    @property
    def protocol_versions(self) -> int:
        """Mask of the protocol versions it speaks."""
        return PROTOCOL_VERSION_1

    @property
    def api_version(self) -> int:
        """Version of the API that this one follows, major in bits 31:24, minor 23:16, sub 15:0."""
        return API_VERSION

    @property
    def mpr(self) -> int:
        """Tracking range in units of 128 PSNs, as it is told to peers."""
        return self.mpr_psns // MPR_UNIT_PSNS

    @property
    def mpr_resolution(self) -> int:
        """Step of the attribute ``mpr``; the whole range where a device cannot track less."""
        return 1 if self.controlled else self.mpr

    @property
    def max_wimm(self) -> int:
        """Most WRITE WITH IMMEDIATEs in flight towards it, for a QP."""
        return self.immediates

    @property
    def trim_nack(self) -> bool:
        """It answers trimmed packets by NACK."""
        return DeviceFlag.TRIM_NACK in self.flags

    @property
    def dynamic_mpr(self) -> bool:
        """It obeys and tells the tracking range in each SACK."""
        return DeviceFlag.DYNAMIC_MPR in self.flags

    @property
    def svc_time(self) -> bool:
        """It takes its own service time out of reflected timestamps."""
        return DeviceFlag.SVC_TIME in self.flags

    @property
    def probe_answers(self) -> bool:
        """It answers reliability probes. Not in the API."""
        return DeviceFlag.PROBE_ANSWERS in self.flags

    @property
    def endpoint_answers(self) -> bool:
        """It answers endpoint requests of peers. Not in the API."""
        return DeviceFlag.ENDPOINT_ANSWERS in self.flags

    # -- by the names of the controller API ----------------------------------------------------------------

    @property
    def phy_port_mask(self) -> int:
        """Ports there are: bit N for port N, from 1."""
        return ((1 << self.planes) - 1) << 1

    @property
    def ev_max_count_profile(self) -> int:
        """Most entropy values in a profile."""
        return self.planes * self.evs_per_plane

    @property
    def ev_op_max_entries(self) -> int:
        """Most entries of one operation on EVs."""
        return EV_OP_MAX_ENTRIES

    @property
    def fmt_max_fields(self) -> int:
        """Most fields of an EV format profile."""
        return FMT_MAX_FIELDS

    @property
    def cc_algorithms(self) -> tuple[str, ...]:
        """Congestion control algorithms by name."""
        return (CC_ALGORITHM_NSCC,) if DeviceFlag.CC_NSCC in self.flags else ()

    # -- questions -------------------------------------------------------------------------------------------

    def require(self, flag: DeviceFlag, attribute: str, value: object) -> None:
        """Do nothing when the device can do something.

        Parameters
        ----------
        flag : DeviceFlag
            What it needs.
        attribute, value
            What was asked for.

        Raises
        ------
        VerbsError
            EOPNOTSUPP, naming the capability, when it cannot.
        """
        if flag not in self.flags:
            raise VerbsError(
                "EOPNOTSUPP", attribute, value, f"left out on a device without capability {flag.name}"
            )

    @classmethod
    def of_gateware(cls, sizes: dict[str, Any]) -> Capabilities:
        """Those of a device without table DEVICE."""
        flags = GATEWARE_FLAGS
        for size, flag in (("congestion_control", DeviceFlag.CC_NSCC), ("go_back_n", DeviceFlag.GO_BACK_N)):
            if not sizes[size]:
                flags &= ~flag
        return cls(**sizes, flags=flags)

    @classmethod
    def read(cls, driver: Driver) -> Capabilities:
        """Read them from a device."""
        sizes: dict[str, Any] = {
            field.name: driver.read(f"capability_{field.name}") for field in fields(_Sizes)
        }
        try:
            row = driver.read_table(ControlTableId.DEVICE, 0)
        except RegisterError:
            return cls.of_gateware(sizes)
        if not row["ev_count_align"]:
            return cls.of_gateware(sizes)
        return cls(
            **sizes,
            flags=DeviceFlag(row["flags"]),
            ev_count_align=row["ev_count_align"],
            endpoint_slots=row["endpoint_slots"],
            cc_profiles=row["cc_profiles"],
            controlled=True,
        )
