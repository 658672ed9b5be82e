"""Spraying: the plane whose turn it is, and the policies that pick an entropy value on it.

A policy is one class registered under a name (:func:`spray_policy`); the option ``spray_policy`` names the
one a NIC uses. Policies differ in what they remember of feedback; which EVs exist, are denied or held back is
the EV set's affair (:mod:`mrc_host.model.ev_set`), for all of them.

Source: nscc.md 2.6; protocol.md 2.3; design.md 4, rule 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from mrc_host.errors import ConfigError
from mrc_host.fabric.events import random_bits
from mrc_host.model.ev_set import NONE, SKIPPED, EvSet, count_of, lowest_of
from mrc_host.model.options import ModelOptions

__all__ = [
    "BitmapPolicy",
    "MixedPolicy",
    "MrcPolicy",
    "ObliviousPolicy",
    "PlaneRounds",
    "RepsPolicy",
    "SprayPolicy",
    "create_policy",
    "policy_names",
    "spray_policy",
]

_PROBATION: Final = 3
"""Rounds in which a slow plane must have had its turn before it is waited for again."""

_PENALTY_MARK: Final = 1
_PENALTY_TRIM: Final = 4
_PENALTY_LIMIT: Final = 15
_RING: Final = 8
_FREEZE_PS: Final = 10_000_000_000
_EXPLORE: Final = 16


class PlaneRounds:
    """Planes take turns in rounds: in a round each usable plane gets one packet, whichever has room first.

    So no plane is ever two packets ahead of another. A plane that has no room for longer than ``patience``
    while others wait for it is slow: rounds end without it until it has kept up with three of them. A plane
    without an entropy value, or whose port is down, has no part in the round.

    Parameters
    ----------
    planes : int
    patience_ps : int

    Attributes
    ----------
    wake_ps : int
        Time at which the patience with the plane that is waited for ends; −1 when none is.
    begins_round : bool
        The last choice is the first of a new round.
    """

    __slots__ = (
        "_planes",
        "_probation",
        "_served",
        "_slow",
        "_turn",
        "_usable",
        "begins_round",
        "patience_ps",
        "wake_ps",
    )

    def __init__(self, planes: int, patience_ps: int) -> None:
        self.patience_ps: i64 = patience_ps
        self.wake_ps: i64 = -1
        self._planes: i64 = planes
        self._turn: i64 = 0
        self._served: i64 = 0
        self._slow: i64 = 0
        self._probation: list[int] = [0] * planes
        self.begins_round: bool = False
        self._usable: i64 = 0

    def choose(self, usable: i64, room: i64, now_ps: i64) -> i64:
        """The plane of the next packet, or −1 to wait; :meth:`take` confirms it.

        Parameters
        ----------
        usable : int
            Mask of planes that are up and on which the QP has an EV.
        room : int
            Mask of planes that can take a frame.
        now_ps : int
        """
        due: i64 = usable & ~self._served
        candidates: i64 = due & room
        self.begins_round = False
        if candidates == 0:
            candidates = usable & room
            if candidates == 0:
                self.wake_ps = -1
                return -1
            if due & ~self._slow:
                if self.wake_ps < 0:
                    self.wake_ps = now_ps + self.patience_ps
                if now_ps < self.wake_ps:
                    return -1
            self.begins_round = True
        self._usable = usable
        planes: i64 = self._planes
        plane: i64 = self._turn
        while not candidates >> plane & 1:
            plane += 1
            if plane == planes:
                plane = 0
        return plane

    def take(self, plane: i64) -> None:
        """The chosen plane is used: the round moves on."""
        chosen: i64 = 1 << plane
        if self.begins_round:
            late: i64 = self._usable & ~self._served
            self._served = chosen
            if late:
                for other in range(len(self._probation)):
                    if late >> other & 1:
                        self._probation[other] = _PROBATION
                self._slow |= late
        else:
            self._served |= chosen
            if self._slow & chosen:
                self._probation[plane] -= 1
                if self._probation[plane] == 0:
                    self._slow &= ~chosen
        self._turn = plane + 1 if plane + 1 < self._planes else 0
        self.wake_ps = -1


@mypyc_attr(allow_interpreted_subclasses=True)
class SprayPolicy:
    """How a QP picks EVs, and what feedback does to them. This one takes every EV in a permuted rotation and
    remembers nothing; policies change what they need to.

    Parameters
    ----------
    evs : EvSet
        The QP's set; its ``good`` words say which EVs may be used.
    options : ModelOptions
    seed : int
        Of the NIC.
    key : int
        Of the QP, so that QPs draw differently.
    """

    def __init__(self, evs: EvSet, options: ModelOptions, seed: int, key: int) -> None:
        self.evs: EvSet = evs
        self._seed: int = seed
        self._key: int = key
        self._draws: int = 0

    def pick(self, plane: i64, now_ps: i64) -> i64:
        """Index of the next packet's EV on a plane; :data:`SKIPPED` when the plane's turn is used up, or
        :data:`NONE`.
        """
        words = self.evs.planes[plane]
        place = words.data.next(words.good)
        return NONE if place == NONE else plane * self.evs.stride + place

    def on_ack(self, index: i64, marked: bool, now_ps: i64) -> None:
        """A SACK echoes this EV, whose packet was or was not marked."""

    def on_trim(self, index: i64, now_ps: i64) -> None:
        """A packet on this EV was trimmed inside the fabric."""

    def on_loss(self, index: i64, now_ps: i64) -> None:
        """A packet on this EV was lost."""

    def on_undo(self, index: i64) -> None:
        """That loss was none."""

    def draw(self, limit: int) -> int:
        """A random number below a limit."""
        self._draws += 1
        return random_bits(self._seed, self._key, self._draws) * limit >> 64


_Factory = Callable[[EvSet, ModelOptions, int, int], SprayPolicy]
_POLICIES: dict[str, _Factory] = {}


def spray_policy(name: str) -> Callable[[_Factory], _Factory]:
    """Register a policy class under a name.

    Raises
    ------
    ValueError
        The name is taken.
    """

    def register(factory: _Factory) -> _Factory:
        if name in _POLICIES:
            raise ValueError(f"spray policy {name!r} must be registered once, got it twice")
        _POLICIES[name] = factory
        return factory

    return register


def policy_names() -> tuple[str, ...]:
    """Names of the registered policies."""
    return tuple(_POLICIES)


def create_policy(evs: EvSet, options: ModelOptions, seed: int, key: int) -> SprayPolicy:
    """The policy that ``options.spray_policy`` names.

    Raises
    ------
    ConfigError
        No policy has that name.
    """
    factory = _POLICIES.get(options.spray_policy)
    if factory is None:
        raise ConfigError("model.spray_policy", f"one of {', '.join(_POLICIES)}", options.spray_policy)
    return factory(evs, options, seed, key)


class MrcPolicy(SprayPolicy):
    """MRC's own: next GOOD EV of a permuted rotation; a mark or trim costs a turn, a loss retires the EV.

    Source: protocol.md 2.2, 2.3; profile.md 3.
    """

    def __init__(self, evs: EvSet, options: ModelOptions, seed: int, key: int) -> None:
        super().__init__(evs, options, seed, key)
        self._ecn_turns: int = options.ecn_skip_turns
        self._trim_turns: int = options.trim_skip_turns

    def pick(self, plane: i64, now_ps: i64) -> i64:
        """See :class:`SprayPolicy`. A SKIP EV met uses up the plane's turn."""
        words = self.evs.planes[plane]
        place = words.data.next(words.good)
        if place == NONE:
            return NONE
        index = plane * self.evs.stride + place
        if words.skip >> place & 1:
            self.evs.met_skip(index)
            return SKIPPED
        return index

    def on_ack(self, index: i64, marked: bool, now_ps: i64) -> None:
        """GOOD becomes SKIP when marked."""
        if marked:
            self.evs.mark_skip(index, self._ecn_turns)

    def on_trim(self, index: i64, now_ps: i64) -> None:
        """GOOD becomes SKIP."""
        self.evs.mark_skip(index, self._trim_turns)

    def on_loss(self, index: i64, now_ps: i64) -> None:
        """GOOD and SKIP become ASSUMED_BAD."""
        self.evs.lost(index)

    def on_undo(self, index: i64) -> None:
        """GOOD again when nothing else is held against it."""
        self.evs.undo(index)


class ObliviousPolicy(SprayPolicy):
    """Every EV in a permuted rotation, whatever feedback says."""


class BitmapPolicy(SprayPolicy):
    """A penalty of four bits per EV: mark 1, trim 4, loss 15.

    The first penalised EV that a search meets loses one and is passed over; others that are penalised are
    passed over too, for one loop at most.
    """

    def __init__(self, evs: EvSet, options: ModelOptions, seed: int, key: int) -> None:
        super().__init__(evs, options, seed, key)
        self.penalties: list[int] = [0] * (len(evs.planes) * evs.stride)

    def pick(self, plane: i64, now_ps: i64) -> i64:
        """See :class:`SprayPolicy`."""
        words = self.evs.planes[plane]
        base = plane * self.evs.stride
        decremented = False
        for _ in range(count_of(words.good)):
            index = base + words.data.next(words.good)
            if self.penalties[index] == 0:
                return index
            if not decremented:
                self.penalties[index] -= 1
                decremented = True
        place = words.data.next(words.good)
        return NONE if place == NONE else base + place

    def on_ack(self, index: i64, marked: bool, now_ps: i64) -> None:
        """One more when marked."""
        if marked:
            self._penalise(index, _PENALTY_MARK)

    def on_trim(self, index: i64, now_ps: i64) -> None:
        """Four more."""
        self._penalise(index, _PENALTY_TRIM)

    def on_loss(self, index: i64, now_ps: i64) -> None:
        """The most there is."""
        self._penalise(index, _PENALTY_LIMIT)

    def _penalise(self, index: i64, amount: int) -> None:
        self.penalties[index] = min(_PENALTY_LIMIT, self.penalties[index] + amount)


class _Ring:
    """The last EVs that clean SACKs echoed on one plane: 8 entries, each valid until it is used."""

    __slots__ = ("_entries", "_head", "_valid", "filled")

    def __init__(self) -> None:
        self._entries: list[int] = [NONE] * _RING
        self._valid: int = 0
        self._head: int = 0
        self.filled: int = 0

    def push(self, index: i64) -> None:
        """Add an EV in the place of the oldest."""
        self._entries[self._head] = int(index)
        self._valid |= 1 << self._head
        self._head = (self._head + 1) % _RING
        self.filled = min(_RING, self.filled + 1)

    def pop(self) -> int:
        """Take the oldest valid EV out; :data:`NONE` when none is."""
        for distance in range(_RING):
            place = (self._head + distance) % _RING
            if self._valid >> place & 1:
                self._valid &= ~(1 << place)
                return self._entries[place]
        return NONE

    def reuse(self) -> int:
        """The entries in turn, valid or not; :data:`NONE` when there never was one."""
        if self.filled == 0:
            return NONE
        for _ in range(_RING):
            index = self._entries[self._head]
            self._valid &= ~(1 << self._head)
            self._head = (self._head + 1) % _RING
            if index != NONE:
                return index
        return NONE


class RepsPolicy(SprayPolicy):
    """Recycled entropy: an EV whose SACK came back clean is used again, otherwise a random one.

    After a loss the ring freezes for 10 ms: only EVs in it are used, one after the other; then 16 packets
    explore at random. Each plane has its own ring of 8, since planes take turns.
    """

    def __init__(self, evs: EvSet, options: ModelOptions, seed: int, key: int) -> None:
        super().__init__(evs, options, seed, key)
        self._rings: list[_Ring] = [_Ring() for _ in evs.planes]
        self._frozen_until_ps: i64 = -1
        self._explore: i64 = 0

    def pick(self, plane: i64, now_ps: i64) -> i64:
        """See :class:`SprayPolicy`."""
        good = self.evs.planes[plane].good
        if good == 0:
            return NONE
        index = self._recycled(plane, now_ps)
        if index != NONE and good >> index % self.evs.stride & 1:
            return index
        return self._other(plane, now_ps)

    def on_ack(self, index: i64, marked: bool, now_ps: i64) -> None:
        """Clean EVs are pushed."""
        if not marked:
            self._rings[index // self.evs.stride].push(index)

    def on_loss(self, index: i64, now_ps: i64) -> None:
        """Freeze."""
        if now_ps >= self._frozen_until_ps:
            self._frozen_until_ps = now_ps + _FREEZE_PS
            self._explore = _EXPLORE

    def _recycled(self, plane: i64, now_ps: i64) -> int:
        ring = self._rings[plane]
        if now_ps < self._frozen_until_ps:
            return ring.reuse()
        if self._explore:
            self._explore -= 1
            return NONE
        return ring.pop()

    def _other(self, plane: i64, now_ps: i64) -> i64:
        """A random usable EV."""
        good: i64 = self.evs.planes[plane].good
        for _ in range(self.draw(count_of(good))):
            good &= good - 1
        return plane * self.evs.stride + lowest_of(good)


class MixedPolicy(RepsPolicy):
    """The ring first, the bitmap when it has nothing; the ring does not freeze."""

    def __init__(self, evs: EvSet, options: ModelOptions, seed: int, key: int) -> None:
        super().__init__(evs, options, seed, key)
        self._bitmap: BitmapPolicy = BitmapPolicy(evs, options, seed, key)

    def on_ack(self, index: i64, marked: bool, now_ps: i64) -> None:
        """Clean EVs are pushed, marked ones penalised."""
        super().on_ack(index, marked, now_ps)
        self._bitmap.on_ack(index, marked, now_ps)

    def on_trim(self, index: i64, now_ps: i64) -> None:
        """See :class:`BitmapPolicy`."""
        self._bitmap.on_trim(index, now_ps)

    def on_loss(self, index: i64, now_ps: i64) -> None:
        """See :class:`BitmapPolicy`."""
        self._bitmap.on_loss(index, now_ps)

    def _other(self, plane: i64, now_ps: i64) -> i64:
        return self._bitmap.pick(plane, now_ps)


spray_policy("mrc")(MrcPolicy)
spray_policy("oblivious")(ObliviousPolicy)
spray_policy("bitmap")(BitmapPolicy)
spray_policy("reps")(RepsPolicy)
spray_policy("mixed")(MixedPolicy)
