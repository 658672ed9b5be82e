"""Completion queues: rings in host memory that the engine writes and software reads by a phase bit."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.tables import CQE, CompletionStatus, TableId, WorkRequestOpcode

if TYPE_CHECKING:
    from mrc_host.nic.context import Context

__all__ = ["CompletionQueue", "WorkCompletion"]

ENTRY_BYTES = 32
LARGEST_LOG2 = 20
COUNT_MASK = (1 << 24) - 1


@dataclass(frozen=True)
class WorkCompletion:
    """What became of a work request.

    Parameters
    ----------
    wr_id : int
        Of the work request.
    status : CompletionStatus
    opcode : WorkRequestOpcode
    qp_number : int
    byte_length : int
        Message length.
    immediate : int
        Receive completions only, else 0.
    message_number : int
        MSN.
    """

    wr_id: int
    status: CompletionStatus
    opcode: WorkRequestOpcode
    qp_number: int
    byte_length: int = 0
    immediate: int = 0
    message_number: int = 0

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return self.status is CompletionStatus.SUCCESS


class CompletionQueue:
    """A ring of completions; made by ``Context.completion_queue``.

    Parameters
    ----------
    context : Context
    number : int
        Its number in the engine.
    entries : int
        Size of the ring, a power of two.

    Attributes
    ----------
    ring : Buffer
        The ring itself.
    """

    def __init__(self, context: Context, number: int, entries: int) -> None:
        check_range("cq.entries", entries, 2, 1 << LARGEST_LOG2)
        if entries & (entries - 1):
            raise VerbsError("EINVAL", "cq.entries", entries, "a power of two")
        self.context = context
        self.number = number
        self.entries = entries
        self.ring = context.allocator.allocate(entries * ENTRY_BYTES)
        self.ring.data[:] = 0
        self._consumed = 0
        self._reported = 0
        self._collected: deque[WorkCompletion] = deque()
        self._software: deque[WorkCompletion] = deque()
        context.driver.write_table(
            TableId.COMPLETION_QUEUE,
            number,
            {"base": self.ring.bus_address, "log2_entries": entries.bit_length() - 1, "enabled": 1},
        )
        context.nic.watch(number, self.ring.bus_address, self.ring.length)

    def poll(self, limit: int = 16) -> list[WorkCompletion]:
        """Take up to ``limit`` completions: those of the engine first, then receives the driver flushed.

        Raises
        ------
        VerbsError
            EINVAL for the limit.
        """
        check_range("cq.poll.limit", limit, 1, COUNT_MASK)
        completions: list[WorkCompletion] = []
        while len(completions) < limit:
            if self._collected:
                completion: WorkCompletion | None = self._collected.popleft()
            else:
                completion = self._take_entry() or (self._software.popleft() if self._software else None)
            if completion is None:
                break
            completions.append(completion)
        self._report_consumed()
        return completions

    def collect(self) -> None:
        """Take what the engine has written out of the ring; :meth:`poll` returns it first."""
        while (completion := self._take_entry()) is not None:
            self._collected.append(completion)
        self._report_consumed()

    def poll_software(self) -> list[WorkCompletion]:
        """Take the completions that the driver made."""
        completions = list(self._software)
        self._software.clear()
        return completions

    def entries_written(self, address: int, length: int) -> int:
        """Return how many entries end inside a write to the ring (as a watch reports it)."""
        first, last = (point - self.ring.bus_address for point in (address, address + length))
        return last // ENTRY_BYTES - first // ENTRY_BYTES

    def add_software_completion(self, completion: WorkCompletion) -> None:
        """Add a completion that the driver makes itself (receives flushed at ERROR)."""
        self._software.append(completion)

    def close(self) -> None:
        """Disable the ring and give its number back.

        Raises
        ------
        VerbsError
            EBUSY while a queue pair uses it.
        """
        users = sum(self in (qp.send_queue, qp.receive_queue) for qp in self.context.queue_pairs.values())
        if users:
            raise VerbsError("EBUSY", "cq.users", users, "0")
        self.context.driver.write_table(TableId.COMPLETION_QUEUE, self.number, {})
        self.context.nic.unwatch(self.number)
        del self.context.completion_queues[self.number]
        self.context.completion_queue_numbers.release(self.number)

    def _take_entry(self) -> WorkCompletion | None:
        offset = self._consumed % self.entries * ENTRY_BYTES
        content = self.ring.data[offset : offset + ENTRY_BYTES].tobytes()
        words = [int.from_bytes(content[at : at + 8], "little") for at in range(0, ENTRY_BYTES, 8)]
        fields = CQE.unpack(words)
        if fields["phase"] == self._consumed // self.entries % 2:
            return None
        self._consumed += 1
        completion = WorkCompletion(
            wr_id=fields["wr_id"],
            status=CompletionStatus(fields["status"]),
            opcode=WorkRequestOpcode(fields["opcode"]),
            qp_number=fields["qpn"],
            byte_length=fields["byte_length"],
            immediate=fields["immediate"],
            message_number=fields["message_number"],
        )
        pair = self.context.queue_pairs.get(completion.qp_number - QP_NUMBER_BASE)
        if pair is not None:
            pair.account(completion)
        return completion

    def _report_consumed(self) -> None:
        # Telling the engine costs a register write, so it is done a quarter of a ring at a time.
        if self._consumed - self._reported >= max(1, self.entries // 4):
            self._reported = self._consumed
            self.context.driver.write_fields(
                "cq_consumer", queue=self.number, index=self._consumed & COUNT_MASK
            )
