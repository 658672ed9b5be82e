"""Who a host is on the fabric, and the static settings of its device."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mrc_host.fabric.usid import UsidPlan
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl import wire
from mrc_rtl.config import TICK_PS

__all__ = ["Identity", "Settings"]


@dataclass(frozen=True)
class Identity:
    """Who a host is on the fabric.

    Parameters
    ----------
    address : int
        Inner IPv6 address, 128 bits.
    usid : int
        uSID of the host with plane bits zero, 16 bits.
    macs, next_hop_macs : tuple of int
        MAC address of each port, and of the switch port it is connected to.
    usid_block : int
        Locator block, 32 bits.
    """

    address: int
    usid: int
    macs: tuple[int, ...]
    next_hop_macs: tuple[int, ...]
    usid_block: int = wire.USID_BLOCK

    def check(self, planes: int) -> None:
        """Check all of it for a device with so many planes.

        Raises
        ------
        VerbsError
            EINVAL for a value out of range or another number of MAC addresses.
        """
        check_range("identity.address", self.address, 0, (1 << 128) - 1)
        check_range("identity.usid", self.usid, 0, 0xFFFF)
        check_range("identity.usid_block", self.usid_block, 0, (1 << 32) - 1)
        for name in ("mac", "next_hop_mac"):
            macs = getattr(self, f"{name}s")
            if not isinstance(macs, tuple | list) or len(macs) != planes:
                found = len(macs) if isinstance(macs, tuple | list) else macs
                raise VerbsError("EINVAL", f"identity.{name}s", found, f"{planes}, one for each port")
            for mac in macs:
                check_range(f"identity.{name}", mac, 0, (1 << 48) - 1)

    @classmethod
    def of_host(cls, plan: UsidPlan, host: int) -> Identity:
        """Return the identity of a host of a topology."""
        planes = range(plan.topology.planes)
        return cls(
            address=plan.inner_address(host),
            usid=plan.host_usid(host, 0),
            macs=tuple(plan.host_mac(host, plane) for plane in planes),
            next_hop_macs=tuple(plan.next_hop_mac(host, plane) for plane in planes),
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Static settings of a device; the defaults are those of profile.md.

    Parameters
    ----------
    udp_destination_port : int
    dscp_no_trim, dscp_trimmable, dscp_retransmission, dscp_control, dscp_trimmed, dscp_trimmed_last_hop : int
        Traffic classes.
    trimming : bool
        Data leaves in the classes that a fabric may trim.
    sack_threshold : int
        Bytes received between SACKs.
    base_rtt_ps : int
        Round-trip time of the empty network.
    reorder_window_ps : int
        How much later a packet that arrived must have left for one that is missing to be taken for lost;
        0: half of ``base_rtt_ps``. Counted in ticks of 128 ns, rounded up.
    """

    udp_destination_port: int = wire.UDP_PORT_ROCE
    dscp_no_trim: int = wire.Dscp.NO_TRIM
    dscp_trimmable: int = wire.Dscp.TRIMMABLE
    dscp_retransmission: int = wire.Dscp.RETX
    dscp_control: int = wire.Dscp.CONTROL
    dscp_trimmed: int = wire.Dscp.TRIMMED
    dscp_trimmed_last_hop: int = wire.Dscp.TRIMMED_LASTHOP
    trimming: bool = False
    sack_threshold: int = 16_384
    base_rtt_ps: int = 63 * TICK_PS
    reorder_window_ps: int = 0

    @property
    def base_rtt_ticks(self) -> int:
        """Round-trip time of the empty network in ticks of 128 ns, rounded up."""
        return -(-self.base_rtt_ps // TICK_PS)

    @property
    def reorder_window_ticks(self) -> int:
        """``reorder_window_ps`` in ticks of 128 ns, rounded up."""
        return -(-self.reorder_window_ps // TICK_PS)

    def check(self) -> None:
        """Check all of them.

        Raises
        ------
        VerbsError
            EINVAL for a value out of range.
        """
        check_range("udp_destination_port", self.udp_destination_port, 1, 0xFFFF)
        for field in fields(self):
            if field.name.startswith("dscp_"):
                check_range(field.name, getattr(self, field.name), 0, 63)
        if not isinstance(self.trimming, bool):
            raise VerbsError("EINVAL", "trimming", self.trimming, "True or False")
        check_range("sack_threshold", self.sack_threshold, 1024, 65_536)
        for name in ("base_rtt_ps", "reorder_window_ps"):
            if not isinstance(getattr(self, name), int):
                raise VerbsError("EINVAL", name, getattr(self, name), "a whole number of ps")
        check_range("base_rtt_ps / 128 ns", self.base_rtt_ticks, 1, 0xFFFF)
        check_range("reorder_window_ps / 128 ns", self.reorder_window_ticks, 0, 0x7FFF)
