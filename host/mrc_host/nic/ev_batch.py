"""Operations on many EVs at once: one success each, the first failure ends the batch.

Source: protocol.md 2.8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Flag
from typing import TypeVar

from mrc_host.nic.ev_values import EvKey
from mrc_host.nic.verbs_error import VerbsError, check_range
from mrc_rtl.tables import EvState

__all__ = [
    "EvArrayEntry",
    "EvBatchError",
    "EvFlag",
    "EvQuery",
    "EvReplacement",
    "EvStateChange",
    "run_batch",
]

_Entry = TypeVar("_Entry")
_Result = TypeVar("_Result")


class EvFlag(Flag):
    """Options of an entry of REPLACE_EV."""

    ALL_COPIES = 1
    """Replace every entry with that value and port, not only the first."""


@dataclass(frozen=True)
class EvReplacement:
    """An entry of REPLACE_EV.

    Parameters
    ----------
    ev : EvKey
        What is replaced; ``UNPOPULATED`` takes an entry that has no value yet.
    ev_new : EvKey
        What takes its place.
    state : EvState
        GOOD or DENIED.
    flags : EvFlag
    """

    ev: EvKey
    ev_new: EvKey
    state: EvState = EvState.GOOD
    flags: EvFlag = EvFlag(0)


@dataclass(frozen=True)
class EvStateChange:
    """An entry of MODIFY_EV_STATE.

    Parameters
    ----------
    ev : EvKey
        All copies of it change.
    state : EvState
        GOOD or DENIED.
    """

    ev: EvKey
    state: EvState


@dataclass(frozen=True)
class EvArrayEntry:
    """An answer of QUERY_EV_STATE and QUERY_EV_ARRAY.

    Parameters
    ----------
    ev : EvKey
    state : EvState
        ASSUMED_BAD when any QP holds it so; UNKNOWN until the device has answered, and when it refuses.
    bad_qps : int
        QPs in which it is ASSUMED_BAD.
    """

    ev: EvKey
    state: EvState
    bad_qps: int = 0


class EvQuery(list[EvArrayEntry]):
    """The answers of QUERY_EV_STATE or QUERY_EV_ARRAY, in the order of the questions.

    At once, all are there. A query at a simulated time is answered later: until then entries that only the
    device can tell are UNKNOWN.

    Attributes
    ----------
    success : list of bool or None
        For each entry whether it was answered; None while it is not known.
    """

    def __init__(self) -> None:
        super().__init__()
        self.success: list[bool | None] = []

    @property
    def done(self) -> bool:
        """Whether every entry was answered or refused."""
        return None not in self.success

    def expect(self, key: EvKey) -> int:
        """Add an entry that waits for its answer, and return its number."""
        self.append(EvArrayEntry(key, EvState.UNKNOWN))
        self.success.append(None)
        return len(self) - 1

    def answer(self, number: int, entry: EvArrayEntry | None) -> None:
        """Take the answer of an entry; None when the device refuses."""
        self.success[number] = entry is not None
        if entry is not None:
            self[number] = entry


class EvBatchError(VerbsError):
    """An entry of a batch failed: those before it have been carried out, the others have not been tried.

    Attributes
    ----------
    number : int
        Which entry, from 0.
    success : tuple of bool
        For each entry whether it was carried out.
    results : sequence
        What the call would have returned, for the entries before; of a query the :class:`EvQuery`.
    """

    def __init__(self, cause: VerbsError, number: int, count: int, results: Sequence[object] = ()) -> None:
        super().__init__(cause.name, f"entries[{number}].{cause.attribute}", cause.value, cause.rule)
        self.number = number
        self.results = results
        self.success = (True,) * number + (False,) * (count - number)


def run_batch(
    entries: Sequence[_Entry], kind: type[_Entry], limit: int, action: Callable[[_Entry], _Result]
) -> list[_Result]:
    """Carry out entries one after the other.

    Parameters
    ----------
    entries : sequence
        At least one.
    kind : type
        What they must be.
    limit : int
        Most of them, capability ``ev_op_max_entries``.
    action : callable
        Raises VerbsError when an entry fails.

    Raises
    ------
    VerbsError
        EINVAL for the number or type of entries: nothing was carried out.
    EvBatchError
        An entry failed.
    """
    check_range("entries.count", len(entries), 1, limit)
    for number, entry in enumerate(entries):
        if not isinstance(entry, kind):
            raise VerbsError("EINVAL", f"entries[{number}]", entry, f"of type {kind.__name__}")
    results: list[_Result] = []
    for number, entry in enumerate(entries):
        try:
            results.append(action(entry))
        except VerbsError as error:
            raise EvBatchError(error, number, len(entries), results) from error
    return results
