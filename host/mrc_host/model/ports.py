"""One Ethernet port of a model NIC: line rate and 24 bytes of overhead a frame.

The rules of time are those of the verilated NIC's MAC (``nic/shim/mac.h``): a frame's time is that of its
last bit, the end of the FCS; a received frame counts from the first bit of its preamble.

There is room for a frame as soon as it would begin right behind the one before it. So frames begin in the
order in which they were decided on, also on different planes, and late feedback still counts. What a MAC
buffers beyond that would only break this order; the depth of its FIFO has no part in the model.
"""

from __future__ import annotations

from collections import deque
from fractions import Fraction
from typing import Final

from mypy_extensions import i64

from mrc_host.fabric.heap import PacketList
from mrc_host.fabric.packet import Packet
from mrc_host.nic.base import NEVER, Frame
from mrc_rtl import wire

__all__ = ["Port"]

_PREAMBLE_AND_FCS: Final = 12
_OVERHEAD: Final = wire.GAP_PREAMBLE_FCS_BYTES
_GAP: Final = _OVERHEAD - _PREAMBLE_AND_FCS


class Port:
    """A port's two lines.

    Parameters
    ----------
    number : int
        Plane.
    byte_ps : Fraction
        Picoseconds of a byte on the line.
    latency_ps : int
        From the decision to send to the first bit, when the line is free.

    Attributes
    ----------
    link_up, administratively_up : bool
    lost_link_down : int
        Frames sent or received without link.
    """

    __slots__ = (
        "_denominator",
        "_free_ps",
        "_latency_ps",
        "_line_free_ps",
        "_numerator",
        "_packets",
        "_sent",
        "_sequence",
        "administratively_up",
        "link_up",
        "lost_link_down",
        "number",
    )

    def __init__(self, number: i64, byte_ps: Fraction, latency_ps: i64) -> None:
        self.number: i64 = number
        self._numerator: i64 = byte_ps.numerator
        self._denominator: i64 = byte_ps.denominator
        self._latency_ps: i64 = latency_ps
        self._free_ps: i64 = 0
        self._line_free_ps: i64 = 0
        self._sequence: i64 = 0
        self._sent: deque[Frame] = deque()
        self._packets: PacketList = PacketList()
        self.link_up: bool = True
        self.administratively_up: bool = True
        self.lost_link_down: i64 = 0

    @property
    def up(self) -> bool:
        """Whether the port takes part."""
        return self.link_up and self.administratively_up

    def _up(self, count: i64) -> i64:
        return -(-count * self._numerator // self._denominator)

    # -- transmit ----------------------------------------------------------------------------------------

    def room(self, now_ps: i64) -> bool:
        """Whether one more frame of any size may be sent now."""
        return self._free_ps <= now_ps + self._latency_ps

    @property
    def room_ps(self) -> i64:
        """From when on there is room."""
        return self._free_ps - self._latency_ps

    def _slot(self, now_ps: i64, size: i64) -> i64:
        """Take the next slot of the line; returns the time of its last bit, −1 when there is no link."""
        start: i64 = self.start_ps(now_ps)
        # The gap is subtracted rounded down, so that slots as others compute them never overlap.
        self._free_ps = start + self._up(_OVERHEAD + size)
        if not self.link_up:
            self.lost_link_down += 1
            return -1
        self._sequence += 1
        return self._free_ps - _GAP * self._numerator // self._denominator

    def start_ps(self, now_ps: i64) -> i64:
        """When the first bit of a frame sent now would leave."""
        earliest: i64 = now_ps + self._latency_ps
        return earliest if earliest > self._free_ps else self._free_ps

    def send(self, now_ps: i64, frame: bytes) -> None:
        """Put a frame onto the line behind those before it."""
        last_bit: i64 = self._slot(now_ps, len(frame))
        if last_bit >= 0:
            self._sent.append(Frame(int(last_bit), int(self.number), int(self._sequence - 1), frame))

    def send_packet(self, now_ps: i64, packet: Packet) -> None:
        """The same with a packet that is an object."""
        last_bit: i64 = self._slot(now_ps, packet.size)
        if last_bit >= 0:
            packet.time_ps = last_bit
            packet.port = self.number
            self._packets.append(packet)

    @property
    def free_ps(self) -> int:
        """When the line is free again."""
        return int(self._free_ps)

    @property
    def next_departure_ps(self) -> int:
        """Time of the last bit of the next frame, NEVER when there is none."""
        first = self._sent[0].time_last_bit_ps if self._sent else NEVER
        packet = self._packets.first
        return first if packet is None else min(first, int(packet.time_ps))

    def take_sent(self, until_ps: int, frames: list[Frame]) -> None:
        """Append the frames whose last bit left before a time."""
        sent = self._sent
        while sent and sent[0].time_last_bit_ps < until_ps:
            frames.append(sent.popleft())

    def take_packets(self, until_ps: i64, packets: list[Packet]) -> None:
        """Append the packets whose last bit left before a time."""
        sent = self._packets
        packet = sent.first
        while packet is not None and packet.time_ps < until_ps:
            packets.append(sent.take())
            packet = sent.first

    def set_link(self, now_ps: i64, up: bool) -> None:
        """Change the link; frames whose last bit has not left are lost with it."""
        self.link_up = up
        if up:
            return
        lost: i64 = 0
        while self._sent and self._sent[-1].time_last_bit_ps > now_ps:
            self._sent.pop()
            lost += 1
        left: list[Packet] = []
        self.take_packets(now_ps + 1, left)
        lost += self._packets.count
        self._packets.clear()
        for packet in left:
            self._packets.append(packet)
        self._sequence -= lost
        self.lost_link_down += lost

    # -- receive -----------------------------------------------------------------------------------------

    def arrive(self, time_first_bit_ps: i64, length: i64) -> i64:
        """Time of the last bit of a frame whose first bit comes at a time, or behind the frame before it."""
        start: i64 = time_first_bit_ps if time_first_bit_ps > self._line_free_ps else self._line_free_ps
        self._line_free_ps = start + self._up(_PREAMBLE_AND_FCS + length)
        return self._line_free_ps
