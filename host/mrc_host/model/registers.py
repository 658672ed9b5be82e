"""The register bus of a model NIC: what an access to an address does.

The map is ``registers.rdl``, as for the gateware; the same rules hold: whole words, wide registers applied by
their highest word, SLVERR for what is not there, a write waits for the table command before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

from mypy_extensions import trait

from mrc_host.model.shell import Settings
from mrc_rtl.config import NicConfig
from mrc_rtl.registers import Register, RegisterKind, constant_value, register_map

__all__ = ["EVENT_QUEUE_DEPTH", "OKAY", "SLVERR", "WAIT", "CommandPort", "RegisterBlock"]

OKAY, SLVERR = 0, 2
WAIT = -1
"""The access must be repeated when the table command that runs is done."""
EVENT_QUEUE_DEPTH = 16
_WORD = 0xFFFF_FFFF
_COMMAND_WORDS = 16


@trait
class CommandPort(ABC):
    """Who carries out what commands and doorbells ask for."""

    @abstractmethod
    def start_command(self, table: int, index: int, write: bool, words: list[int], count: int) -> None:
        """Begin a table command; ``RegisterBlock.finish_command`` is called when it is done."""

    @abstractmethod
    def send_doorbell(self, qp: int, count: int) -> None:
        """Send requests were added."""

    @abstractmethod
    def receive_doorbell(self, qp: int, count: int) -> None:
        """Receive requests were added."""

    @abstractmethod
    def move_consumer(self, queue: int, index: int) -> None:
        """The host has read completions of a queue up to an index."""

    @abstractmethod
    def settings_changed(self) -> None:
        """A setting has been written."""

    @abstractmethod
    def link_state(self) -> int:
        """Bit p: plane p has link."""


class RegisterBlock:
    """All registers of a NIC.

    Parameters
    ----------
    config : NicConfig
    settings : Settings
        Written by the settings registers.
    port : CommandPort

    Attributes
    ----------
    busy : bool
        A table command runs.
    events_dropped : int
        Events that found the queue full.
    value : int
        What the last read gave.
    """

    def __init__(self, config: NicConfig, settings: Settings, port: CommandPort) -> None:
        self._config = config
        self._settings = settings
        self._port = port
        self._places: dict[int, tuple[Register, int, int]] = {}
        self._words: dict[int, int] = {}
        self._shadow: dict[int, int] = {}
        self._events: deque[int] = deque()
        self._map = register_map()
        self.busy: bool = False
        self._error: bool = False
        self.events_dropped: int = 0
        self.value: int = 0
        for register in self._map:
            ports = register.name.startswith("port_") and register.count > 1
            for element in range(min(register.count, config.planes) if ports else register.count):
                reset = register.reset if register.kind is not RegisterKind.CONSTANT else 0
                if register.kind is RegisterKind.CONSTANT:
                    reset = constant_value(register, config)
                for word in range(register.words):
                    address = register.address(element, word)
                    self._places[address] = (register, element, word)
                    self._words[address] = reset >> 32 * word & _WORD
                if register.kind is RegisterKind.SETTING:
                    self._apply(register, element)
        self._data_at = self._map["data"].offset

    # -- accesses ----------------------------------------------------------------------------------------

    def read(self, address: int) -> int:
        """Read a word into ``value``; returns OKAY, SLVERR or WAIT."""
        place = self._places.get(address)
        self.value = 0
        if place is None or not place[0].readable:
            return SLVERR
        register = place[0]
        if register.kind is RegisterKind.STATE:
            self.value = self._state(register.name)
            return OKAY
        if register.kind is RegisterKind.POP:
            self.value = self._events.popleft() if self._events else 0
            return OKAY
        if self.busy:
            return WAIT
        self.value = self._words[address]
        return OKAY

    def write(self, address: int, value: int) -> int:
        """Write a word; returns OKAY, SLVERR or WAIT."""
        if self.busy:
            return WAIT
        place = self._places.get(address)
        if place is None or not place[0].writable:
            return SLVERR
        register, element, word = place
        if register.kind is RegisterKind.BUFFER:
            self._words[address] = value
            return OKAY
        if register.kind is RegisterKind.COMMAND:
            return self._command(register, value)
        self._shadow[address] = value & register.mask >> 32 * word & _WORD
        if word == register.words - 1:
            for lower in range(register.words):
                at = register.address(element, lower)
                self._words[at] = self._shadow.get(at, self._words[at])
            self._apply(register, element)
            self._port.settings_changed()
        return OKAY

    # -- commands ----------------------------------------------------------------------------------------

    def _command(self, register: Register, value: int) -> int:
        fields = register.unpack(value)
        if register.name == "command":
            self._start(fields)
            return OKAY
        if register.name == "cq_consumer":
            if fields["queue"] >= self._config.completion_queues:
                return SLVERR
            self._port.move_consumer(fields["queue"], fields["index"])
            return OKAY
        if fields["qp"] >= self._config.qps:
            return SLVERR
        if register.name == "send_doorbell":
            self._port.send_doorbell(fields["qp"], fields["count"])
        else:
            self._port.receive_doorbell(fields["qp"], fields["count"])
        return OKAY

    def _start(self, fields: dict[str, int]) -> None:
        count = fields["count"]
        if not 1 <= count <= _COMMAND_WORDS:
            self._error = True
            return
        words = []
        for number in range(count):
            at = self._data_at + 8 * number
            words.append(self._words[at] | self._words[at + 4] << 32)
        self.busy = True
        write = fields["write"] == 1
        self._port.start_command(fields["table"], fields["index"], write, words if write else [], count)

    def finish_command(self, words: list[int] | None) -> None:
        """The command is done: with the words read, none after a write, or None when it was refused."""
        self.busy = False
        self._error = words is None
        for number, word in enumerate(words or []):
            at = self._data_at + 8 * number
            self._words[at], self._words[at + 4] = word & _WORD, word >> 32

    # -- state -------------------------------------------------------------------------------------------

    def push_event(self, kind: int, qp: int, reason: int) -> bool:
        """Append an event; returns whether the queue had been empty, and drops it when it is full."""
        if len(self._events) >= EVENT_QUEUE_DEPTH:
            self.events_dropped += 1
            return False
        self._events.append(self._map["event"].pack(kind=kind, qp=qp, reason=reason, valid=1))
        return len(self._events) == 1

    def _state(self, name: str) -> int:
        if name == "port_status":
            return self._port.link_state()
        if name == "command_status":
            return int(self.busy) | self._error << 1
        return self.events_dropped & 0xFFFF

    def _apply(self, register: Register, element: int) -> None:
        """Put a setting's value where the model looks for it."""
        value = sum(
            self._words[register.address(element, word)] << 32 * word for word in range(register.words)
        )
        settings = self._settings
        for field in register.fields:
            content = value >> field.low & field.mask
            if register.name == "port_administration":
                settings.port_administration = content
            elif register.count > 1:
                getattr(settings, field.name)[element] = content
            elif field.name in ("enable", "trimming"):
                setattr(settings, field.name, content == 1)
            else:
                setattr(settings, field.name, content)
