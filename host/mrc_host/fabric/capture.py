"""Captures of links in pcapng files."""

from __future__ import annotations

from pathlib import Path

from mrc_host.fabric.links import Direction
from mrc_host.fabric.model import Fabric
from mrc_host.packets.pcapng import Interface, PcapngWriter

__all__ = ["capture_link"]

INBOUND, OUTBOUND = 1, 2


def capture_link(
    fabric: Fabric, name: str, path: str | Path, *, max_bytes: int | None = None, ring: bool = False
) -> PcapngWriter:
    """Capture links as the port at their lower end sees them: a NIC's port, or the uplink of a T0.

    Frames are stamped with the time of their first bit at that port, in picoseconds, and marked inbound or
    outbound. A tap attached before this one has acted already: a frame it dropped is not captured.

    Parameters
    ----------
    fabric : Fabric
        The fabric.
    name : str
        Name of a link, of one of its directions, or a pattern; see ``Fabric.tap``.
    path : path
        File to write.
    max_bytes, ring
        As for :class:`~mrc_host.packets.pcapng.PcapngWriter`.

    Returns
    -------
    PcapngWriter
        The file, one interface per link; close it after the run.

    Raises
    ------
    ValueError
        When no link is named so.
    """
    topology = fabric.topology
    halves = topology.directions_named(name)
    up_by_link = {link.name: link.up for link in topology.links}
    names = list(dict.fromkeys(half.link for half in halves))
    numbers = {link: number for number, link in enumerate(names)}
    interfaces = [
        Interface(up_by_link[link].source_port, f"link {link}", int(up_by_link[link].rate_gbps * 1e9))
        for link in names
    ]
    writer = PcapngWriter(path, interfaces, max_bytes=max_bytes, ring=ring)

    def record(direction: Direction, time_ps: int, frame: bytes) -> None:
        outbound = direction is up_by_link[direction.link]
        writer.write(
            time_ps if outbound else time_ps + direction.delay_ps,
            frame,
            numbers[direction.link],
            direction=OUTBOUND if outbound else INBOUND,
        )

    fabric.tap(name, record)
    return writer
