"""Ports: what the controller sees of them and decides about them. Here ports count from 1, as in the API."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from mrc_host.nic.verbs_error import VerbsError, check_range

if TYPE_CHECKING:
    from mrc_host.nic.context import Context

__all__ = ["PortAttributes", "PortState", "Ports"]


class PortState(IntEnum):
    """State of a port, numbered as in the verbs."""

    DOWN = 1
    ACTIVE = 4


@dataclass(frozen=True)
class PortAttributes:
    """What is known about a port.

    Parameters
    ----------
    port : int
        From 1.
    state : PortState
        ACTIVE when it has link and is enabled.
    link : bool
        What the MAC says.
    enabled : bool
        What the controller has decided.
    mac, next_hop_mac : int
        Addresses of its own and of the switch port behind it.
    """

    port: int
    state: PortState
    link: bool
    enabled: bool
    mac: int
    next_hop_mac: int


class Ports:
    """Port administration of a device; ``Context.ports``.

    Parameters
    ----------
    context : Context

    Source: protocol.md 2.8, 3.7.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._enabled = (1 << context.capabilities.planes) - 1

    def query(self, port: int) -> PortAttributes:
        """Return what is known about a port (at once only).

        Raises
        ------
        VerbsError
            EINVAL for a port that does not exist.
        """
        plane = self._plane(port)
        link = bool(self.context.driver.read("port_status") >> plane & 1)
        enabled = bool(self._enabled >> plane & 1)
        identity = self.context.identity
        return PortAttributes(
            port=port,
            state=PortState.ACTIVE if link and enabled else PortState.DOWN,
            link=link,
            enabled=enabled,
            mac=identity.macs[plane],
            next_hop_mac=identity.next_hop_macs[plane],
        )

    def modify(self, port: int, *, enabled: bool) -> None:
        """Take a port into use or out of it; the others stay as they are.

        Raises
        ------
        VerbsError
            EINVAL for a port that does not exist, or a value that is not a truth value.
        """
        plane = self._plane(port)
        if not isinstance(enabled, bool):
            raise VerbsError("EINVAL", "port.enabled", enabled, "True or False")
        self.set_mask(self._enabled & ~(1 << plane) | enabled << plane)

    def set_mask(self, mask: int) -> None:
        """Take the ports of a mask (bit = port − 1) into use and all others out of it."""
        self._enabled = mask
        self.context.driver.write("port_administration", mask)

    @property
    def mask(self) -> int:
        """Ports that are ACTIVE, bit = port − 1 (at once only)."""
        return self.context.driver.read("port_status") & self._enabled

    def _plane(self, port: int) -> int:
        return check_range("port.number", port, 1, self.context.capabilities.planes) - 1
