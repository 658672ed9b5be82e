"""The way to host memory: writes are answered in order, some time later, and change memory then."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from mrc_host.fabric.events import component_key, random_bits
from mrc_host.model.agenda import ENTRY, PLACEMENT, Agenda
from mrc_host.nic.options import MemoryOptions

__all__ = ["MemoryPort"]

_COMPONENT: Final = component_key("memory latency")


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
        self._agenda: Agenda = agenda
        self._clock_ps: i64 = clock_ps
        self._latency_ps: i64 = options.write_latency * clock_ps
        self._jitter: int = options.latency_jitter
        self._seed: int = options.seed
        self._draws: int = 0
        self._answer_ps: i64 = 0

    def write(self, now_ps: i64, payload: bool) -> None:
        """A write of a packet's payload, or of an entry of a ring, is complete now: the memory answers later.
        Answers keep their order.
        """
        answer: i64 = now_ps + self._latency_ps
        if self._jitter:
            draw = random_bits(self._seed, _COMPONENT, self._draws)
            answer += draw % (self._jitter + 1) * int(self._clock_ps)
            self._draws += 1
        if answer < self._answer_ps:
            answer = self._answer_ps
        self._answer_ps = answer
        self._agenda.enter_answer(answer, PLACEMENT if payload else ENTRY)
