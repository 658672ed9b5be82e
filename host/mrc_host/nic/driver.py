"""Registers by name and tables by field: the layer between the device API and a NIC's register bus.

The driver works at once or at a time. At once (``time_ps`` None, for set-up) each access lets the NIC's time
go on until it is answered. At a time (:meth:`Driver.at`, while a simulation runs) writes are queued at that
simulated time and carried out in order; what is read comes later (:meth:`Driver.start_read`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from mrc_host.errors import InfrastructureError
from mrc_host.nic.base import Nic, RegisterError, RegisterRead
from mrc_rtl.registers import Register, config_hash, register_map
from mrc_rtl.tables import TABLES, ControlTableId, TableId

__all__ = ["Driver", "TableAnswer"]

TableAnswer = Callable[[dict[str, int] | None], None]
"""Gets the fields of a table's entry, or None when the owner refused."""

WORD_MASK = 0xFFFFFFFF
MAGIC = 0x4D524331
#: Tags of scheduled reads that belong to the driver; others may use smaller ones.
COMMAND_TAG = 1 << 40
EVENT_TAG = COMMAND_TAG + 1
IGNORED_TAG = COMMAND_TAG + 2
#: Table reads have numbers from here on.
TABLE_TAG = COMMAND_TAG + 16


@dataclass
class _TableRead:
    """A table's entry that was asked for at a time.

    Parameters
    ----------
    table : TableId or ControlTableId
    answer : callable
        Gets the fields.
    values : list of int
        Words of the bus that have come: halves of the entry's words, then the command's status.
    """

    table: TableId | ControlTableId
    answer: TableAnswer
    values: list[int] = field(default_factory=list)


class Driver:
    """Register and table access of one NIC.

    Parameters
    ----------
    nic : Nic
        The NIC.

    Attributes
    ----------
    time_ps : int or None
        Time at which accesses take place; None: at once.

    Raises
    ------
    InfrastructureError
        What answers is not an engine of the NIC's configuration.
    """

    def __init__(self, nic: Nic) -> None:
        self.nic = nic
        self.registers = register_map()
        self.time_ps: int | None = None
        self._table_reads: dict[int, _TableRead] = {}
        self._next_table_read = TABLE_TAG
        magic, version = self.read("magic"), self.read_fields("version")
        if magic != MAGIC or version["major"] != 1:
            raise InfrastructureError(
                f"magic and version of the registers must be {MAGIC:#x} and 1.x, got {magic:#x} and "
                f"{version['major']}.{version['minor']}"
            )
        found, expected = self.read("config_hash"), config_hash(nic.config)
        if found != expected:
            raise InfrastructureError(
                f"the engine's configuration must have hash {expected:#010x}, got {found:#010x}"
            )

    @contextmanager
    def at(self, time_ps: int) -> Iterator[None]:
        """Let the accesses of the block take place at a simulated time.

        Parameters
        ----------
        time_ps : int
            At least the NIC's time.
        """
        before, self.time_ps = self.time_ps, time_ps
        try:
            yield
        finally:
            self.time_ps = before

    # -- registers ---------------------------------------------------------------------------------------

    def write(self, name: str, value: int, element: int = 0) -> None:
        """Write a register (an element of an array) as a whole, the lowest word first.

        Raises
        ------
        KeyError, IndexError
            There is no such register or element.
        ValueError
            The value has bits outside the register's fields.
        """
        register = self.registers[name]
        if value & ~register.mask or value < 0:
            raise ValueError(f"{name} must fit the bits {register.mask:#x}, got {value:#x}")
        for word in range(register.words):
            self._write_word(register.address(element, word), value >> 32 * word & WORD_MASK)

    def write_fields(self, name: str, element: int = 0, **fields: int) -> None:
        """Write a register from its fields; those not named get their reset value."""
        self.write(name, self.registers[name].pack(**fields), element)

    def read(self, name: str, element: int = 0) -> int:
        """Read a register as a whole (at once only)."""
        register = self._readable(name)
        return sum(
            self.nic.read32(register.address(element, word)) << 32 * word for word in range(register.words)
        )

    def read_fields(self, name: str, element: int = 0) -> dict[str, int]:
        """Read a register and split it into its fields (at once only)."""
        return self.registers[name].unpack(self.read(name, element))

    # -- tables ------------------------------------------------------------------------------------------

    def write_table(
        self, table: TableId | ControlTableId, index: int, fields: Mapping[str, int], check: bool = True
    ) -> None:
        """Write an entry of a described table; fields not named are zero.

        Parameters
        ----------
        table : TableId or ControlTableId
        index : int
            Entry, see :data:`mrc_rtl.tables.TABLES`.
        fields : mapping
            Field name → value.
        check : bool
            Read back whether the owner took it. Without, a refusal goes unnoticed but the bus is free sooner.

        Raises
        ------
        ValueError
            A value does not fit its field.
        RegisterError
            The owner refused the command.
        """
        description = TABLES[table]
        words = description.pack(**dict(fields))[: description.write_words]
        self.write_words(table, index, words, check)

    def write_words(
        self, table: TableId | ControlTableId, index: int, words: Sequence[int], check: bool = True
    ) -> None:
        """Write an entry of any table as 64-bit words, see :meth:`write_table`."""
        data = self.registers["data"]
        for number, word in enumerate(words):
            self._write_word(data.address(2 * number), word & WORD_MASK)
            self._write_word(data.address(2 * number + 1), word >> 32)
        self._command(table, index, len(words), write=True)
        if check:
            self._check_command(table, index)

    def read_table(self, table: TableId | ControlTableId, index: int) -> dict[str, int]:
        """Read an entry of a described table (at once only)."""
        description = TABLES[table]
        return description.unpack(self.read_words(table, index, description.words))

    def read_words(self, table: TableId | ControlTableId, index: int, count: int) -> list[int]:
        """Read 64-bit words of an entry of any table (at once only).

        Raises
        ------
        RegisterError
            The owner refused the command.
        """
        data = self._readable("data")
        self._command(table, index, count, write=False)
        halves = [self.nic.read32(data.address(number)) for number in range(2 * count)]
        self._check_command(table, index)
        return [halves[2 * number] | halves[2 * number + 1] << 32 for number in range(count)]

    def start_read(self, table: TableId | ControlTableId, index: int, answer: TableAnswer) -> None:
        """Read an entry of a described table, at once or at a time.

        Parameters
        ----------
        table : TableId or ControlTableId
        index : int
        answer : callable
            Gets the fields, or None when the owner refuses: during this call when it is at once, otherwise
            during the :meth:`take_reads` that gets the last of the answers.
        """
        if self.time_ps is None:
            try:
                fields = self.read_table(table, index)
            except RegisterError:
                answer(None)
                return
            answer(fields)
            return
        tag, self._next_table_read = self._next_table_read, self._next_table_read + 1
        self._table_reads[tag] = _TableRead(table, answer)
        count, data = TABLES[table].words, self.registers["data"]
        self._command(table, index, count, write=False)
        for number in range(2 * count):
            self.nic.schedule_read(self.time_ps, data.address(number), tag)
        self.nic.schedule_read(self.time_ps, self.registers["command_status"].offset, tag)

    def request_event(self) -> None:
        """Ask for the oldest event; :meth:`take_reads` returns it (at a time only)."""
        assert self.time_ps is not None
        self.nic.schedule_read(self.time_ps, self.registers["event"].offset, EVENT_TAG)

    def shows_event(self, read: RegisterRead) -> bool:
        """Whether a scheduled read took an event out of the queue, of whatever kind: there may be another."""
        return read.tag == EVENT_TAG and self.registers["event"].unpack(read.value)["valid"] == 1

    def take_reads(self, reads: Sequence[RegisterRead]) -> list[tuple[int, dict[str, int]]]:
        """Check the driver's own scheduled reads, hand over those of tables, and return (time, fields) of
        each answer to request_event.

        Raises
        ------
        RegisterError
            A scheduled table command was refused.
        """
        events = []
        for read in reads:
            if read.tag == EVENT_TAG:
                events.append((read.time_ps, self.registers["event"].unpack(read.value)))
            elif read.tag == COMMAND_TAG and self.registers["command_status"].unpack(read.value)["error"]:
                raise RegisterError(
                    f"a table command before {read.time_ps} ps must be allowed, but was refused"
                )
            elif read.tag in self._table_reads:
                self._take_table_read(read.tag, read.value)
        return events

    def _take_table_read(self, tag: int, value: int) -> None:
        pending = self._table_reads[tag]
        description, values = TABLES[pending.table], pending.values
        values.append(value)
        if len(values) <= 2 * description.words:
            return
        del self._table_reads[tag]
        if self.registers["command_status"].unpack(value)["error"]:
            pending.answer(None)
            return
        words = [values[2 * n] | values[2 * n + 1] << 32 for n in range(description.words)]
        pending.answer(description.unpack(words))

    # -- inside ------------------------------------------------------------------------------------------

    def _readable(self, name: str) -> Register:
        if self.time_ps is not None:
            raise ValueError(f"{name} can only be read at once, got a read scheduled at {self.time_ps} ps")
        return self.registers[name]

    def _write_word(self, address: int, value: int) -> None:
        if self.time_ps is None:
            self.nic.write32(address, value)
        else:
            self.nic.schedule_write(self.time_ps, address, value)

    def _command(self, table: TableId | ControlTableId, index: int, count: int, write: bool) -> None:
        self.write_fields("command", table=table, write=write, count=count, index=index)

    def _check_command(self, table: TableId | ControlTableId, index: int) -> None:
        # A read of the data buffer waits for the command; after it the status is final.
        data, status = self.registers["data"].offset, self.registers["command_status"]
        if self.time_ps is not None:
            self.nic.schedule_read(self.time_ps, data, IGNORED_TAG)
            self.nic.schedule_read(self.time_ps, status.offset, COMMAND_TAG)
            return
        self.nic.read32(data)
        if status.unpack(self.nic.read32(status.offset))["error"]:
            raise RegisterError(
                f"entry {index} of table {table.name} must allow the command, but it was refused"
            )
