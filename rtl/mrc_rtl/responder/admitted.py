"""A packet on its way through the stages of admission."""

from amaranth.lib import data

from .. import records
from ..config import NicConfig

__all__ = ["admitted"]


def admitted(config: NicConfig) -> data.StructLayout:
    """A packet behind its first checks.

    ``outcome``: decided already, ACCEPTED: a write to be decided. ``from_peer``: a write from the peer of its
    QP. ``probe``, ``request``: a reliability probe, an endpoint request to be answered; its ``psn`` is then
    what :func:`mrc_rtl.records.refused_packet` says. ``in_order``: its QP accepts writes in order only.
    """
    place = records.place_command(config)
    kept = {name: place.members[name] for name in place.members if name not in ("drop", "bus_address")}
    found = {"trimmed": 2, "outcome": 5, "from_peer": 1, "probe": 1, "request": 1}
    if config.go_back_n:
        found["in_order"] = 1
    of_message = {"rqmsn": 16, "message_number": 16, "message_length": 32, "immediate_value": 32}
    return data.StructLayout({**kept, **found, **of_message})
