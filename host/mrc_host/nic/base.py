"""What every NIC of the testbed is: ports, registers, memory and a clock.

Nothing above this module knows whether a NIC is verilated gateware, a model or a board.

Source: design.md 3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from mypy_extensions import mypyc_attr

from mrc_host.errors import InfrastructureError
from mrc_rtl.config import NicConfig

if TYPE_CHECKING:
    from mrc_host.fabric.packet import Packet

__all__ = [
    "NEVER",
    "Frame",
    "Nic",
    "Outputs",
    "RegisterError",
    "RegisterRead",
    "Statistics",
    "TraceRecord",
    "Watch",
]

NEVER: Final = (1 << 62) - 1
"""A time later than any event, in picoseconds."""


class RegisterError(InfrastructureError):
    """The engine refused a register access, or did not answer in time."""


class Frame(NamedTuple):
    """A frame that left a port.

    Parameters
    ----------
    time_last_bit_ps : int
        When its last bit, the end of the FCS, left the MAC.
    port : int
        Plane.
    sequence : int
        Counts the frames of the port from 0.
    data : bytes
        The frame without FCS.
    """

    time_last_bit_ps: int
    port: int
    sequence: int
    data: bytes


class Watch:
    """A write of the engine into a watched range of memory.

    Parameters
    ----------
    time_ps : int
        When the memory answered the write; the bytes are there from then on.
    tag : int
        Number given to the range.
    address, length : int
        From the first to the last byte written.
    """

    __slots__ = ("address", "length", "tag", "time_ps")

    def __init__(self, time_ps: int, tag: int, address: int, length: int) -> None:
        self.time_ps: int = time_ps
        self.tag: int = tag
        self.address: int = address
        self.length: int = length

    def __repr__(self) -> str:
        return f"Watch({self.time_ps}, {self.tag}, {self.address}, {self.length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Watch) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class RegisterRead(NamedTuple):
    """The answer to a scheduled read: when it came, the tag of the request, the address, and the value."""

    time_ps: int
    tag: int
    address: int
    value: int


class TraceRecord(NamedTuple):
    """A decision of the engine (``mrc_rtl.records.trace_record``), with the time it was reported."""

    time_ps: int
    kind: int
    qp: int
    plane: int
    psn: int
    detail: int


@dataclass
class Outputs:
    """What a NIC did in a window, each list in order of time (frames: time, port, sequence).

    ``interrupts`` holds the times at which the event queue got something to read after it had been empty;
    ``packets`` the frames of a NIC that hands them over as objects (:meth:`Nic.carry_packets`), port by port;
    ``time_ps`` and ``port`` of each say when its last bit left, and where.
    """

    frames: list[Frame] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)
    reads: list[RegisterRead] = field(default_factory=list)
    trace: list[TraceRecord] = field(default_factory=list)
    interrupts: list[int] = field(default_factory=list)
    packets: list[Packet] = field(default_factory=list)


@dataclass
class Statistics:
    """What a NIC cost and what its surroundings noticed.

    Parameters
    ----------
    cycles_clocked, cycles_skipped : int
        Cycles evaluated, and idle ones that were jumped over.
    wall_seconds : float
        Time spent running.
    underruns : int
        Beats that came too late for the line: the engine interrupted a frame.
    lost_link_down : int
        Frames sent or received while the link was down.
    receive_stalls : int
        Beats the engine did not take, which no MAC can hold back.
    transmit_bad : int
        Frames the engine marked as bad; they do not reach the link.
    memory_reads, memory_writes, memory_read_beats, memory_write_beats : int
        Bursts and beats.
    memory_outside : int
        Bursts beyond the end of the memory.
    memory_violations : int
        Bursts that AXI4 forbids.
    """

    cycles_clocked: int = 0
    cycles_skipped: int = 0
    wall_seconds: float = 0.0
    underruns: int = 0
    lost_link_down: int = 0
    receive_stalls: int = 0
    transmit_bad: int = 0
    memory_reads: int = 0
    memory_writes: int = 0
    memory_read_beats: int = 0
    memory_write_beats: int = 0
    memory_outside: int = 0
    memory_violations: int = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Nic(ABC):
    """A NIC in a simulation.

    All times are integer picoseconds. What is put in (frames, register accesses, link changes) must not lie
    before ``time_ps``; then the outputs do not depend on how :meth:`run` was cut into windows.

    Attributes
    ----------
    config : NicConfig
        Sizes of the NIC.
    memory : numpy array of uint8
        Host memory as the NIC sees it from address 0.
    gateware : bool
        Its trace records are those of the gateware (:mod:`mrc_host.experiment.gateware_trace`).
    """

    config: NicConfig
    memory: npt.NDArray[np.uint8]
    gateware: bool = False

    @property
    @abstractmethod
    def time_ps(self) -> int:
        """Time up to which the NIC has run."""

    @property
    @abstractmethod
    def next_activity_ps(self) -> int:
        """Time before which nothing happens unless something is put in; ``time_ps`` while it is busy."""

    @property
    @abstractmethod
    def statistics(self) -> Statistics:
        """What it cost so far."""

    @abstractmethod
    def run(self, until_ps: int) -> Outputs:
        """Advance to a time and return all outputs with a time before it (and after the last call)."""

    @abstractmethod
    def deliver(self, port: int, time_first_bit_ps: int, frame: bytes, bad_fcs: bool = False) -> None:
        """Hand a frame (without FCS) to a port; its first bit arrives at the given time.

        Frames of one port come in order of time; one that overlaps the frame before it is received after it.
        """

    def carry_packets(self) -> bool:
        """From now on, put frames into ``Outputs.packets`` as objects; returns whether the NIC has them so.

        Times, marks and bytes are the same; bytes are made only for who asks for them.
        """
        return False

    def deliver_packet(self, port: int, time_first_bit_ps: int, packet: Packet, macs: bytes) -> None:
        """Hand a packet of the fabric to a port; MAC addresses as on the link. See :meth:`deliver`."""
        self.deliver(port, time_first_bit_ps, packet.to_bytes(macs))

    @abstractmethod
    def schedule_write(self, time_ps: int, address: int, value: int) -> None:
        """Write a register at a time. Accesses of one time are carried out in the order of the calls."""

    @abstractmethod
    def schedule_read(self, time_ps: int, address: int, tag: int) -> None:
        """Read a register at a time; the answer appears in ``Outputs.reads`` under the tag (0 or more)."""

    @abstractmethod
    def schedule_link(self, time_ps: int, port: int, up: bool) -> None:
        """Change the link of a port at a time."""

    @abstractmethod
    def read32(self, address: int) -> int:
        """Read a register now; time goes on until the answer is there (for set-up).

        Raises
        ------
        RegisterError
            The address has no register that can be read, or the answer does not come.
        """

    @abstractmethod
    def write32(self, address: int, value: int) -> None:
        """Write a register now; time goes on until it is answered (for set-up).

        Raises
        ------
        RegisterError
            The address has no register that can be written, or the answer does not come.
        """

    @abstractmethod
    def watch(self, tag: int, address: int, length: int) -> None:
        """Report writes into a range of memory under a tag."""

    @abstractmethod
    def unwatch(self, tag: int) -> None:
        """Forget the ranges of a tag."""

    @abstractmethod
    def settle(self, limit_cycles: int = 100_000) -> None:
        """Let time go on until the NIC rests.

        Raises
        ------
        InfrastructureError
            It is still busy after so many cycles.
        """

    @abstractmethod
    def close(self) -> None:
        """Free what the NIC holds; it cannot be used any more."""
