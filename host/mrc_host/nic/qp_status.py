"""What a device says about a queue pair when it is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mrc_host.nic.driver import Driver
from mrc_rtl.tables import ControlTableId, TableId

__all__ = ["QpStatus"]


@dataclass(frozen=True)
class QpStatus:
    """What the device says about a QP.

    Parameters
    ----------
    next_psn, unacked_psn : int
        Next new PSN, and the oldest one that no cumulative SACK covers.
    attempt : int
        Timeouts since the last progress.
    cumulative_psn, highest_psn : int
        Everything up to this PSN, and the highest one, stands in memory.
    message_number : int
        Messages received.
    mpr_psns : int
        PSNs the peer tracks, as last told.
    peer_ports : int or None
        Peer's ports that are reachable, bit = port − 1; None where the device does not know.
    window, in_flight : int or None
        Congestion window and bytes in flight; None without congestion control.
    base_rtt_ticks : int or None
        Smallest round-trip time seen, in 128 ns.
    """

    next_psn: int
    unacked_psn: int
    attempt: int
    cumulative_psn: int
    highest_psn: int
    message_number: int
    mpr_psns: int
    peer_ports: int | None = None
    window: int | None = None
    in_flight: int | None = None
    base_rtt_ticks: int | None = None

    @classmethod
    def read(cls, driver: Driver, controlled: bool, index: int) -> QpStatus:
        """Read it from the device's tables.

        Parameters
        ----------
        driver : Driver
        controlled : bool
            The device has the controller's tables.
        index : int
            Of the QP.
        """
        send = driver.read_table(TableId.QP_SEND, index)
        receive = driver.read_table(TableId.QP_RECEIVE, index)
        status = cls(
            next_psn=send["next_psn"],
            unacked_psn=send["unacked_psn"],
            attempt=send["attempt"],
            cumulative_psn=receive["cumulative_psn"],
            highest_psn=receive["highest_psn"],
            message_number=receive["message_number"],
            mpr_psns=send["mpr_psns"],
        )
        if not controlled:
            return status
        option = driver.read_table(ControlTableId.QP_OPTION, index)
        status = replace(status, mpr_psns=option["mpr_psns"], peer_ports=option["peer_ports"])
        if not option["cc_enabled"]:
            return status
        return replace(
            status,
            window=option["window"],
            in_flight=option["in_flight"],
            base_rtt_ticks=option["base_rtt"],
        )
