"""A log of every MRC packet at every NIC port.

Rows are kept in one flat array and ordered at the end by time and port, so that the log of a run is the same
whatever the windows and threads.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from librt.vecs import append, vec
from mypy_extensions import i64

from mrc_host.fabric.model import Fabric, NicObserver
from mrc_host.fabric.packet import Packet
from mrc_host.fabric.port import Port
from mrc_host.model.packet import ModelPacket
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

_ROW_WORDS = 4
_PLACES = {
    "time_ps": (0, 0, 62),
    "arrived": (1, 56, 1),
    "nic": (3, 40, 14),
    "plane": (2, 56, 4),
    "source": (2, 24, 16),
    "target": (2, 40, 16),
    "opcode": (3, 54, 8),
    "qp": (2, 0, 24),
    "psn": (1, 32, 24),
    "ev": (1, 0, 32),
    "frame_bytes": (3, 0, 20),
    "payload_bytes": (3, 20, 20),
    "retransmission": (1, 57, 1),
    "trimmed": (1, 58, 1),
    "data": (1, 59, 1),
}
"""Where a column stands in the words of a row: number of the word, lowest bit, bits. Two bits stay 0."""

PacketColumns = dict[str, npt.NDArray[np.int64]]
"""Columns of a log by name, all of one length."""


class PacketLog(NicObserver):
    """The log; attach it to a fabric before the run.

    A row is four words: its time, and the other fields packed as the table below says.

    Parameters
    ----------
    fabric : Fabric, optional
        Observed. Without one, rows are added by :meth:`append` only.
    """

    def __init__(self, fabric: Fabric | None = None) -> None:
        self._words: vec[i64] = vec[i64]()
        if fabric is not None:
            fabric.observe(self)

    def append(self, row: PacketRow) -> None:
        """Add a row."""
        words = [0] * _ROW_WORDS
        for value, (word, shift, _) in zip(row, _PLACES.values(), strict=True):
            words[word] |= value << shift
        for content in words:
            self._words = append(self._words, content)

    def __len__(self) -> int:
        return len(self._words) // _ROW_WORDS

    def columns(self) -> PacketColumns:
        """Return all rows as columns, ordered by time, then as they were logged."""
        table = np.array(self._words, dtype=np.int64).reshape(-1, _ROW_WORDS)
        columns = {
            name: table[:, word] >> shift & (1 << bits) - 1 for name, (word, shift, bits) in _PLACES.items()
        }
        order = np.lexsort((columns["plane"], columns["nic"], columns["arrived"], columns["time_ps"]))
        return {name: column[order] for name, column in columns.items()}

    def sent(self, port: Port, start_ps: i64, packet: Packet) -> None:
        """A packet whose first bit enters a NIC's link."""
        self._note(port, start_ps, packet, 0)

    def delivered(self, port: Port, first_bit_ps: i64, packet: Packet) -> None:
        """A packet whose first bit reaches a NIC."""
        self._note(port, first_bit_ps, packet, 1)

    def _note(self, port: Port, first_bit_ps: i64, packet: Packet, arrived: i64) -> None:
        end_ps: i64 = first_bit_ps - -packet.wire_bytes * port.byte_numerator // port.byte_denominator
        if not isinstance(packet, ModelPacket):
            self._note_frame(port, end_ps, packet, arrived)
            return
        flags: i64 = arrived
        payload: i64 = packet.length
        if packet.retransmission:
            flags |= 2
        if packet.is_trimmed:
            flags |= 4
            payload = 0
        if packet.is_write:
            flags |= 8
        hosts: i64 = packet.source_host << 24 | packet.destination_host << 40
        words = append(self._words, end_ps)
        words = append(words, packet.ev | packet.psn << 32 | flags << 56)
        words = append(words, packet.destination_qpn | hosts | port.plane << 56)
        self._words = append(words, packet.size | payload << 20 | port.host << 40 | packet.opcode << 54)

    def _note_frame(self, port: Port, end_ps: i64, packet: Packet, arrived: i64) -> None:
        info = packet.info()
        if info is None:
            return
        source, target = _HOSTS(packet.original, info.bth_offset - HOSTS_BEFORE_BTH)
        self.append(
            PacketRow(
                end_ps, arrived, port.host, port.plane, source, target, info.opcode, info.dest_qp, info.psn,
                info.ev, packet.size, info.payload_len, info.rtx, info.trimmed, has_payload(info.opcode),
            )
        )  # fmt: skip
