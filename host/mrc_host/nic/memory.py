"""Protection domains, memory regions, and buffers in the host memory a NIC works on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mrc_host.nic.connection import RemoteRegion
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl.tables import TableId

if TYPE_CHECKING:
    from mrc_host.nic.context import Context

__all__ = ["Access", "Allocator", "Buffer", "MemoryRegion", "ProtectionDomain"]

#: Virtual addresses of buffers begin here, so that a missing translation is seen.
VIRTUAL_BASE = 0x7F00_0000_0000
GENERATIONS = 256


class Access(Flag):
    """Rights of a memory region."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2


@dataclass(frozen=True)
class Buffer:
    """A piece of host memory.

    Parameters
    ----------
    address : int
        Virtual address of the first byte, what work requests name.
    bus_address : int
        Its address on the NIC's memory bus.
    data : numpy array of uint8
        The bytes themselves.
    """

    address: int
    bus_address: int
    data: npt.NDArray[np.uint8]

    @property
    def length(self) -> int:
        """Bytes."""
        return len(self.data)

    def part(self, offset: int, length: int) -> Buffer:
        """Return a piece of the buffer.

        Raises
        ------
        VerbsError
            EINVAL when the piece does not lie inside.
        """
        check_range("buffer.offset", offset, 0, (1 << 64) - 1)
        check_range("buffer.length", length, 0, (1 << 64) - 1)
        if offset + length > self.length:
            raise VerbsError("EINVAL", "buffer.part", (offset, length), f"inside {self.length} bytes")
        return Buffer(self.address + offset, self.bus_address + offset, self.data[offset : offset + length])


class Allocator:
    """Hands out pieces of a NIC's host memory from the bottom up.

    Parameters
    ----------
    memory : numpy array of uint8
        All of it.
    """

    def __init__(self, memory: npt.NDArray[np.uint8]) -> None:
        self._memory = memory
        self._next = 0

    def allocate(self, length: int, alignment: int = 4096) -> Buffer:
        """Return a buffer whose bus address is a multiple of ``alignment``.

        Raises
        ------
        VerbsError
            ENOMEM when the memory is used up.
        """
        check_range("buffer.alignment", alignment, 1, len(self._memory))
        start = -(-self._next // alignment) * alignment
        if not isinstance(length, int) or length < 1 or start + length > len(self._memory):
            raise VerbsError("ENOMEM", "buffer.length", length, f"between 1 and {len(self._memory) - start}")
        self._next = start + length
        return Buffer(VIRTUAL_BASE + start, start, self._memory[start : start + length])


class ProtectionDomain:
    """Binds regions and queue pairs that may work together; made by ``Context.protection_domain``.

    Parameters
    ----------
    context : Context
    number : int
        Its number in the engine's tables, 0 to 255.
    """

    def __init__(self, context: Context, number: int) -> None:
        self.context = context
        self.number = number
        self.regions: list[MemoryRegion] = []

    def register(
        self, buffer: Buffer, access: Access = Access.LOCAL_WRITE, *, address: int | None = None
    ) -> MemoryRegion:
        """Register a buffer.

        Parameters
        ----------
        buffer : Buffer
            What the region covers.
        access : Access
            Rights; every region may be read locally. Remote write needs local write.
        address : int, optional
            Virtual address of the first byte, by default the buffer's.

        Raises
        ------
        VerbsError
            EINVAL for rights or addresses, ENOMEM when all regions are in use.
        """
        for name, value, kind in (("mr.buffer", buffer, Buffer), ("mr.access", access, Access)):
            if not isinstance(value, kind):
                raise VerbsError("EINVAL", name, value, f"of type {kind.__name__}")
        if Access.REMOTE_WRITE in access and Access.LOCAL_WRITE not in access:
            raise VerbsError(
                "EINVAL", "mr.access", access, "with LOCAL_WRITE when it has REMOTE_WRITE (verbs)"
            )
        virtual = buffer.address if address is None else address
        check_range("mr.address", virtual, 0, (1 << 64) - buffer.length)
        region = MemoryRegion(self, self.context.regions.take(), buffer, virtual, access)
        self.regions.append(region)
        return region

    def close(self) -> None:
        """Give the domain back.

        Raises
        ------
        VerbsError
            EBUSY while it has regions or queue pairs.
        """
        users = len(self.regions) + sum(
            qp.protection_domain is self for qp in self.context.queue_pairs.values()
        )
        if users:
            raise VerbsError("EBUSY", "pd.users", users, "0")
        self.context.protection_domains.release(self.number)


class MemoryRegion:
    """A registered piece of memory; made by :meth:`ProtectionDomain.register`.

    Attributes
    ----------
    key : int
        Local and remote key: index in bits 31:8, generation in bits 7:0. A new region at the same index has
        the next generation, so that old keys fail.

    Source: profile.md 7.
    """

    def __init__(
        self, domain: ProtectionDomain, index: int, buffer: Buffer, address: int, access: Access
    ) -> None:
        context = domain.context
        self.domain = domain
        self.index = index
        self.buffer = buffer
        self.address = address
        self.length = buffer.length
        self.access = access
        # The first generation is 1: no region ever has key 0, which forgotten keys have.
        generation = context.generations[index] = (context.generations.get(index, 0) + 1) % GENERATIONS
        self.key = index << 8 | generation
        self.valid = True
        self._write(valid=1)

    @property
    def lkey(self) -> int:
        """Key for local use."""
        return self.key

    @property
    def rkey(self) -> int:
        """Key for the peer."""
        return self.key

    def remote(self, name: str = "") -> RemoteRegion:
        """Return what the peer must know to write here, for ``QueuePair.endpoint``."""
        return RemoteRegion(self.address, self.length, self.rkey, name)

    def deregister(self) -> None:
        """Make the key invalid and give the entry back; the engine first finishes writes that are in flight.

        Raises
        ------
        VerbsError
            EINVAL when it is deregistered already.
        """
        if not self.valid:
            raise VerbsError("EINVAL", "mr.key", self.key, "registered")
        self.valid = False
        self._write(valid=0)
        self.domain.regions.remove(self)
        self.domain.context.regions.release(self.index)

    def _write(self, valid: int) -> None:
        self.domain.context.driver.write_table(
            TableId.MEMORY_REGION,
            self.index,
            {
                "key": self.key,
                "protection_domain": self.domain.number,
                "remote_write": Access.REMOTE_WRITE in self.access,
                "local_write": Access.LOCAL_WRITE in self.access,
                "valid": valid,
                "base": self.address,
                "length": self.length,
                "bus_address": self.buffer.bus_address,
            },
        )
