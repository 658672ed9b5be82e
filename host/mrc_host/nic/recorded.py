"""A NIC that remembers all that was put into it and all that came out."""

from __future__ import annotations

from typing import NamedTuple

from mrc_host.nic.base import Frame, Nic, Outputs, Statistics, TraceRecord

__all__ = ["ReceivedFrame", "RecordedNic", "WrittenRegister"]


class WrittenRegister(NamedTuple):
    """A register write that was put in."""

    time_ps: int
    address: int
    value: int


class ReceivedFrame(NamedTuple):
    """A frame that was handed to a port, without FCS."""

    time_first_bit_ps: int
    data: bytes
    bad_fcs: bool


class RecordedNic(Nic):
    """Stands before another NIC and keeps a record.

    Parameters
    ----------
    nic : Nic
        What does the work; it must not be used directly any more.

    Attributes
    ----------
    written : list of WrittenRegister
        In the order of the calls.
    received : list of list of ReceivedFrame
        For every port.
    sent : list of Frame
    trace : list of TraceRecord
        In the order the engine reported them.
    """

    def __init__(self, nic: Nic) -> None:
        self._nic = nic
        self.config = nic.config
        self.memory = nic.memory
        self.gateware = nic.gateware
        self.written: list[WrittenRegister] = []
        self.received: list[list[ReceivedFrame]] = [[] for _ in range(nic.config.planes)]
        self.sent: list[Frame] = []
        self.trace: list[TraceRecord] = []

    @property
    def time_ps(self) -> int:
        """Time up to which the NIC has run."""
        return self._nic.time_ps

    @property
    def next_activity_ps(self) -> int:
        """Time before which nothing happens unless something is put in."""
        return self._nic.next_activity_ps

    @property
    def statistics(self) -> Statistics:
        """What it cost so far."""
        return self._nic.statistics

    def run(self, until_ps: int) -> Outputs:
        """Advance to a time and return all outputs before it."""
        outputs = self._nic.run(until_ps)
        self.sent += outputs.frames
        self.trace += outputs.trace
        return outputs

    def deliver(self, port: int, time_first_bit_ps: int, frame: bytes, bad_fcs: bool = False) -> None:
        """Hand a frame to a port."""
        self._nic.deliver(port, time_first_bit_ps, frame, bad_fcs)
        self.received[port].append(ReceivedFrame(time_first_bit_ps, bytes(frame), bad_fcs))

    def schedule_write(self, time_ps: int, address: int, value: int) -> None:
        """Write a register at a time."""
        self._nic.schedule_write(time_ps, address, value)
        self.written.append(WrittenRegister(time_ps, address, value))

    def schedule_read(self, time_ps: int, address: int, tag: int) -> None:
        """Read a register at a time."""
        self._nic.schedule_read(time_ps, address, tag)

    def schedule_link(self, time_ps: int, port: int, up: bool) -> None:
        """Change the link of a port at a time."""
        self._nic.schedule_link(time_ps, port, up)

    def read32(self, address: int) -> int:
        """Read a register now."""
        return self._nic.read32(address)

    def write32(self, address: int, value: int) -> None:
        """Write a register now."""
        self.written.append(WrittenRegister(self._nic.time_ps, address, value))
        self._nic.write32(address, value)

    def watch(self, tag: int, address: int, length: int) -> None:
        """Report writes into a range of memory under a tag."""
        self._nic.watch(tag, address, length)

    def unwatch(self, tag: int) -> None:
        """Forget the ranges of a tag."""
        self._nic.unwatch(tag)

    def settle(self, limit_cycles: int = 100_000) -> None:
        """Let time go on until the NIC rests."""
        self._nic.settle(limit_cycles)

    def close(self) -> None:
        """Free what the NIC holds."""
        self._nic.close()
