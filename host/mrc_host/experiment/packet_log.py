"""A log of every MRC packet at every NIC port.

Rows are kept in one flat array and ordered at the end by time and port, so that the log of a run is the same
whatever the windows and threads.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mrc_host.fabric.model import Fabric, NicObserver
from mrc_host.fabric.packet import Packet
from mrc_host.fabric.port import Port
from mrc_host.model.frames import ModelFrame
from mrc_rtl.wire import IPV6, UDP, has_payload

__all__ = ["COLUMNS", "PacketColumns", "PacketLog", "PacketRow"]


HOST_OFFSET = 6
"""Bytes of an inner address before the two that hold the host's number (fd00:0:0:<host>::1)."""
HOSTS_BEFORE_BTH = UDP.bytes + IPV6.bytes - IPV6.byte_offset("source") - HOST_OFFSET
_HOSTS = Struct(">H14xH").unpack_from


class PacketRow(NamedTuple):
    """One packet at one NIC port.

    Parameters
    ----------
    time_ps : int
        When its slot on the host's link ended at the NIC: sent, or arrived completely.
    arrived : int
        1 when it arrived at the NIC, 0 when the NIC sent it.
    nic, plane : int
        The port.
    source, target : int
        Hosts of the inner addresses.
    opcode, qp, psn, ev : int
        From its headers; ``qp`` is the number of the QP it is addressed to.
    frame_bytes, payload_bytes : int
        Length without FCS; payload of a write.
    retransmission, trimmed, data : int
        1 for a packet marked rtx, cut by a switch, of an opcode that carries payload.
    """

    time_ps: int
    arrived: int
    nic: int
    plane: int
    source: int
    target: int
    opcode: int
    qp: int
    psn: int
    ev: int
    frame_bytes: int
    payload_bytes: int
    retransmission: int
    trimmed: int
    data: int


COLUMNS = PacketRow._fields
"""Names of the columns of a log."""

PacketColumns = dict[str, npt.NDArray[np.int64]]
"""Columns of a log by name, all of one length."""


class PacketLog(NicObserver):
    """The log; attach it to a fabric before the run.

    Parameters
    ----------
    fabric : Fabric, optional
        Observed. Without one, rows are added by :meth:`append` only.
    """

    def __init__(self, fabric: Fabric | None = None) -> None:
        self._values = array("q")
        self._writes = {opcode for opcode in range(256) if has_payload(opcode)}
        if fabric is not None:
            fabric.observe(self)

    def append(self, row: PacketRow) -> None:
        """Add a row."""
        self._values.extend(row)

    def __len__(self) -> int:
        return len(self._values) // len(COLUMNS)

    def columns(self) -> PacketColumns:
        """Return all rows as columns, ordered by time, then as they were logged."""
        table = np.array(self._values, dtype=np.int64).reshape(-1, len(COLUMNS))
        columns = {name: table[:, number] for number, name in enumerate(COLUMNS)}
        order = np.lexsort((columns["plane"], columns["nic"], columns["arrived"], columns["time_ps"]))
        return {name: column[order] for name, column in columns.items()}

    def sent(self, port: Port, start_ps: int, packet: Packet) -> None:
        """A packet whose first bit enters a NIC's link."""
        self._note(port, start_ps, packet, 0)

    def delivered(self, port: Port, first_bit_ps: int, packet: Packet) -> None:
        """A packet whose first bit reaches a NIC."""
        self._note(port, first_bit_ps, packet, 1)

    def _note(self, port: Port, first_bit_ps: int, packet: Packet, arrived: int) -> None:
        info = packet.info()
        if info is None:
            return
        content = packet.content
        if isinstance(content, ModelFrame):
            source, target = content.hosts
        else:
            source, target = _HOSTS(packet.original, info.bth_offset - HOSTS_BEFORE_BTH)
        direction = port.half
        end_ps = first_bit_ps + direction.slot_ps(packet.size)
        self.append(
            PacketRow(
                end_ps,
                arrived,
                direction.host,
                direction.plane,
                source,
                target,
                info.opcode,
                info.dest_qp,
                info.psn,
                info.ev,
                packet.size,
                info.payload_len,
                info.rtx,
                info.trimmed,
                info.opcode in self._writes,
            )
        )
