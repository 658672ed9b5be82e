"""A link, port, switch or plane is down."""

from __future__ import annotations

from mrc_host.fabric.faults.base import register_fault
from mrc_host.fabric.faults.outage import Outage

__all__ = ["Down"]


@register_fault("down")
class Down(Outage):
    """All links that touch the place are down from ``from_us`` to ``to_us``."""
