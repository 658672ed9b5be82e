"""The way to host memory: writes are answered in order, some time later, and change memory then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrc_host.fabric.events import component_key, random_bits
from mrc_host.model.agenda import INSIDE, Agenda
from mrc_host.nic.options import MemoryOptions

__all__ = ["MemoryPort"]

_COMPONENT = component_key("memory latency")


class MemoryPort:
    """Plans the answers of the memory to writes.

    Parameters
    ----------
    options : MemoryOptions
        ``write_latency``, ``latency_jitter`` and ``seed`` count; the model's memory never holds an address
        or a beat back, so ``outstanding`` and the stalls do not.
    clock_ps : int
        Its cycle.
    agenda : Agenda
        Where answers are entered.
    """

    __slots__ = ("_agenda", "_answer_ps", "_clock_ps", "_draws", "_jitter", "_latency_ps", "_seed")

    def __init__(self, options: MemoryOptions, clock_ps: int, agenda: Agenda) -> None:
        self._agenda = agenda
        self._clock_ps = clock_ps
        self._latency_ps: int = options.write_latency * clock_ps
        self._jitter: int = options.latency_jitter
        self._seed: int = options.seed
        self._draws: int = 0
        self._answer_ps: int = 0

    def write(self, now_ps: int, answered: Callable[[Any], None]) -> None:
        """A write is complete now; call back when the memory answers it. Answers keep their order."""
        answer = now_ps + self._latency_ps
        if self._jitter:
            draw = random_bits(self._seed, _COMPONENT, self._draws)
            answer += draw % (self._jitter + 1) * self._clock_ps
            self._draws += 1
        if answer < self._answer_ps:
            answer = self._answer_ps
        self._answer_ps = answer
        self._agenda.enter(answer, INSIDE, answered, None)
