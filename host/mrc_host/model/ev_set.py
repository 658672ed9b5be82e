"""The entropy values of a QP: which may be used, where the rotation through them stands, who replaces whom.

An EV of a QP is known by its index ``plane × stride + place``. The state of the places of one plane stands in
two words, coded as the gateware's: {good, skip} is 10 GOOD, 11 SKIP, 01 backup, 00 none of these
(ASSUMED_BAD, DENIED or absent, told apart by further words).

Source: profile.md 3; protocol.md 2.1 to 2.3; design.md 4, rule 5.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from mypy_extensions import i64

__all__ = ["NONE", "SKIPPED", "EvSet", "PathState", "PlaneEvs", "Rotation", "count_of", "lowest_of"]

NONE: Final = -1
"""Outcome of a pick: no EV may be used."""

SKIPPED: Final = -2
"""Outcome of a pick: a SKIP EV was met, its turn is used up."""

_HASH_BITS: Final = 11
_HASH_MASK: Final = (1 << _HASH_BITS) - 1


class PathState(IntEnum):
    """State of an EV of a QP."""

    ABSENT = 0
    GOOD = 1
    SKIP = 2
    ASSUMED_BAD = 3
    DENIED = 4
    BACKUP = 5


def bit_of(place: i64) -> i64:
    """The word with one bit set, of at most 62.

    Compiled, a 1 that is shifted is one of 32 bits, also when a variable holds it: so this shifts twice.
    """
    half: i64 = place >> 1
    word: i64 = 1 << half
    return word << (place - half)


def lowest_of(word: i64) -> i64:
    """Number of the lowest bit that is set in a word of at most 32 bits, which is not 0."""
    place: i64 = 0
    if not word & 0xFFFF:
        word >>= 16
        place = 16
    if not word & 0xFF:
        word >>= 8
        place += 8
    if not word & 0xF:
        word >>= 4
        place += 4
    if not word & 3:
        word >>= 2
        place += 2
    return place if word & 1 else place + 1


def highest_of(word: i64) -> i64:
    """Number of the highest bit that is set in a word of at most 32 bits, which is not 0."""
    return int(word).bit_length() - 1


def count_of(word: i64) -> int:
    """Bits that are set in a word of at most 32 bits."""
    return int(word).bit_count()


_LOW_HALVES: Final = (0x5555_5555, 0x3333_3333, 0x0F0F_0F0F, 0x00FF_00FF, 0x0000_FFFF)
"""Words of 32 bits: those bits whose number has bit 0 clear, bit 1, and so on."""


def _permuted(word: i64, key: i64, bits: i64) -> i64:
    """Move bit i of a word to place i XOR key, for words of 2^bits bits, at most 32."""
    step: i64 = 1
    for bit in range(bits):
        if key >> bit & 1:
            low: i64 = _LOW_HALVES[bit]
            word = (word & low) << step | word >> step & low
        step <<= 1
    return word


class Rotation:
    """A place in a permuted order: each GOOD or SKIP EV comes once per rotation, then a new key is drawn.

    EV i has the place i XOR key; the key is the low bits of an 11-bit shift register (x^11 + x^9 + 1).

    Parameters
    ----------
    bits : int
        log2 of the number of places: 5, a word has 32 bits.

    Attributes
    ----------
    draw : int
        Five random bits, others for each EV that came and each rotation.
    """

    __slots__ = ("_ahead", "_bits", "_hash", "_mask", "draw", "key", "place")

    def __init__(self, bits: int) -> None:
        self._bits: i64 = bits
        self._mask: i64 = (1 << bits) - 1
        self._hash: i64 = 1
        self._ahead: i64 = 0
        self.key: i64 = 1
        self.place: i64 = 0
        self.draw: i64 = 0

    def start(self, seed: int, good: i64) -> None:
        """Begin anew; rows with other seeds (10 bits) have other orders."""
        self._hash = (seed << 1 | 1) & _HASH_MASK
        self.place = 0
        self._take_key(good)

    def changed(self, good: i64) -> None:
        """The EVs that may come are others now."""
        self._ahead = _permuted(good, self.key, self._bits)

    def next(self, good: i64) -> i64:
        """Number of the next EV, and move on behind it; :data:`NONE` when ``good`` is empty."""
        left: i64 = self._ahead >> self.place
        if left == 0:
            if good == 0:
                return NONE
            # Nothing at or behind the place: once more from the start of a new rotation.
            self._redraw(good)
            left = self._ahead
        place: i64 = self.place + lowest_of(left)
        index: i64 = place ^ self.key
        self.draw = (self._hash >> 5 ^ index) & 31
        if left & left - 1 == 0:
            self._redraw(good)
        else:
            self.place = place + 1
        return index

    def _redraw(self, good: i64) -> None:
        value: i64 = self._hash
        for _ in range(self._bits):
            value = (value << 1 | (value >> 10 ^ value >> 8) & 1) & _HASH_MASK
        self._hash = value
        self.place = 0
        self._take_key(good)

    def _take_key(self, good: i64) -> None:
        self.key = self._hash & self._mask
        self._ahead = _permuted(good, self.key, self._bits)


class PlaneEvs:
    """The EVs of one (QP, plane).

    Parameters
    ----------
    bits : int
        log2 of the number of places.

    Attributes
    ----------
    good, skip : int
        Words of the state, see the module's text.
    bad, denied : int
        Words of places whose EV is ASSUMED_BAD, or DENIED.
    turns : list of int
        Turns a SKIP EV still has to be met before it is GOOD again.
    first_backup : int
        First place of a backup when the host wrote the words, :data:`NONE` without backups: so many EVs of
        the plane are to be active, and the places from there on are those of backups.
    """

    __slots__ = ("bad", "control", "data", "denied", "first_backup", "good", "skip", "turns")

    def __init__(self, bits: int) -> None:
        self.good: i64 = 0
        self.skip: i64 = 0
        self.bad: i64 = 0
        self.denied: i64 = 0
        self.turns: list[int] = [0] * (1 << bits)
        self.data: Rotation = Rotation(bits)
        self.control: Rotation = Rotation(bits)
        self.first_backup: i64 = NONE

    def write(self, good: i64, skip: i64, seed: int) -> None:
        """Set the words and begin both rotations anew; DENIED stays."""
        self.good = good & ~self.denied
        self.skip = skip & ~self.denied
        self.bad = 0
        self.turns = [int(self.skip >> place & 1) for place in range(len(self.turns))]
        backups: i64 = skip & ~good
        self.first_backup = lowest_of(backups) if backups else NONE
        self.data.start(seed, self.good)
        self.control.start(seed, self.good)

    def state(self, place: i64) -> PathState:
        """State of the EV at a place."""
        code: i64 = (self.good >> place & 1) << 1 | self.skip >> place & 1
        if code == 2:
            return PathState.GOOD
        if code == 3:
            return PathState.SKIP
        if code == 1:
            return PathState.BACKUP
        if self.denied >> place & 1:
            return PathState.DENIED
        return PathState.ASSUMED_BAD if self.bad >> place & 1 else PathState.ABSENT

    def set_good(self, place: i64) -> None:
        """Make an EV GOOD."""
        self._clear(place)
        self._set_good_word(self.good | bit_of(place))

    def set_skip(self, place: i64, turns: int) -> None:
        """Make a GOOD EV SKIP for so many turns, or a SKIP one for at least so many."""
        self.skip |= bit_of(place)
        if self.turns[place] < turns:
            self.turns[place] = turns

    def set_bad(self, place: i64) -> None:
        """Make an EV ASSUMED_BAD."""
        self._clear(place)
        self.bad |= bit_of(place)

    def set_denied(self, place: i64) -> None:
        """Make an EV DENIED."""
        self._clear(place)
        self.denied |= bit_of(place)

    def set_backup(self, place: i64) -> None:
        """Make an EV a backup."""
        self._clear(place)
        self.skip |= bit_of(place)

    def set_absent(self, place: i64) -> None:
        """Forget an EV."""
        self._clear(place)

    def activate_backup(self) -> i64:
        """Make the last backup GOOD and return its place; :data:`NONE` when there is none."""
        backups: i64 = self.skip & ~self.good
        if backups == 0:
            return NONE
        place: i64 = highest_of(backups)
        self.set_good(place)
        return place

    def surplus_backup(self) -> i64:
        """Place of the last active EV at a backup's place, when more EVs are active than planned;
        :data:`NONE` otherwise.
        """
        first: i64 = self.first_backup
        if first == NONE or count_of(self.good) <= first:
            return NONE
        active: i64 = self.good >> first
        return first + highest_of(active) if active else NONE

    def met_skip(self, place: i64, draws: bool) -> bool:
        """A pick met this SKIP EV: one turn is used up. True when it is GOOD again.

        With ``draws`` a long SKIP ends by chance, at a turn in so many.
        """
        left = self.turns[place] - 1
        if left > 0:
            if not draws:
                self.turns[place] = left
                return False
            if self.data.draw & (1 << left.bit_length()) - 1:
                return False
        self.turns[place] = 0
        self.skip &= ~bit_of(place)
        return True

    def pick_control(self) -> i64:
        """Next EV for a control packet: GOOD ones, in a rotation of their own that clears no SKIP."""
        tries = count_of(self.good)
        first: i64 = NONE
        while tries:
            place: i64 = self.control.next(self.good)
            if not self.skip >> place & 1:
                return place
            if first == NONE:
                first = place
            tries -= 1
        return first

    def _clear(self, place: i64) -> None:
        keep: i64 = ~bit_of(place)
        self.skip &= keep
        self.bad &= keep
        self.denied &= keep
        self.turns[place] = 0
        if self.good >> place & 1:
            self._set_good_word(self.good & keep)

    def _set_good_word(self, good: i64) -> None:
        self.good = good
        self.data.changed(good)
        self.control.changed(good)


class EvSet:
    """The EV set of a QP: states, backups and blame.

    Every change of a state is appended to ``changes`` as ``index << 8 | old << 4 | new``
    (:class:`PathState`); whoever owns the set takes them out and reports them.

    Parameters
    ----------
    planes : int
    places : int
        EVs a plane can have, at most 32; indexes are spaced by that.

    Attributes
    ----------
    planes : list of PlaneEvs
    stride : int
        Indexes of a plane.
    minimum_active : int
        ``ev_min_active``: with so few active EVs, none goes to ASSUMED_BAD by a loss.
    floor_rule : str
        What happens then: ``skip`` (long SKIP), ``keep`` or ``ignore`` (the minimum does not count).
    floor_turns : int
        Turns of the long SKIP.
    floor_draws : bool
        It ends by chance, at one turn in so many, which takes no counter.
    counts_two : bool
        Blames are counted up to two, up to one in a long SKIP; the responder's condemnation counts as two.
    oblivious : bool
        Marks, trims and losses change nothing.
    changes : list of int
    """

    __slots__ = (
        "_bits",
        "_blames",
        "changes",
        "counts_two",
        "floor_draws",
        "floor_rule",
        "floor_turns",
        "minimum_active",
        "oblivious",
        "planes",
        "stride",
    )

    def __init__(self, planes: int, places: int) -> None:
        self._bits: i64 = max(5, (places - 1).bit_length())
        self.stride: int = int(1 << self._bits)
        self.planes: list[PlaneEvs] = [PlaneEvs(int(self._bits)) for _ in range(planes)]
        self._blames: list[int] = [0] * int(planes << self._bits)
        self.minimum_active: int = 0
        self.floor_rule: str = "skip"
        self.floor_turns: int = 16
        self.floor_draws: bool = False
        self.counts_two: bool = False
        self.oblivious: bool = False
        self.changes: list[int] = []

    @property
    def active(self) -> int:
        """EVs that are GOOD or SKIP, over all planes."""
        return sum([count_of(plane.good) for plane in self.planes])

    def write(self, plane: int, good: i64, skip: i64, seed: int) -> None:
        """Set the words of a plane (table EV_SET); its rotations begin anew, its blames are forgotten."""
        first = plane << self._bits
        self._blames[int(first) : int(first) + self.stride] = [0] * self.stride
        self.planes[plane].write(good, skip, seed)

    def state(self, index: i64) -> PathState:
        """State of an EV."""
        return self.planes[index >> self._bits].state(index & self.stride - 1)

    def mark_skip(self, index: i64, turns: int) -> None:
        """A packet on this EV was marked or trimmed: GOOD becomes SKIP; other states stay."""
        plane = self.planes[index >> self._bits]
        place = index & self.stride - 1
        if self.oblivious or not plane.good >> place & 1:
            return
        if not plane.skip >> place & 1:
            self._note(index, PathState.GOOD, PathState.SKIP)
        plane.set_skip(place, turns)

    def met_skip(self, index: i64) -> None:
        """A pick met this SKIP EV."""
        if self.planes[index >> self._bits].met_skip(index & self.stride - 1, self.floor_draws):
            self._blames[index] = 0
            self._note(index, PathState.SKIP, PathState.GOOD)

    def lost(self, index: i64) -> PathState:
        """A packet on this EV was lost: GOOD and SKIP become ASSUMED_BAD, and a backup of the plane takes
        over. At the minimum of active EVs ``floor_rule`` decides. Returns the state it is in now.
        """
        plane = self.planes[index >> self._bits]
        place = index & self.stride - 1
        state = plane.state(place)
        if self.oblivious or state in (PathState.BACKUP, PathState.DENIED, PathState.ABSENT):
            return state
        if not self.counts_two or self._blames[index] < 2:
            self._blames[index] += 1
        if state is PathState.ASSUMED_BAD:
            return state
        at_floor = self.active <= self.minimum_active and plane.skip & ~plane.good == 0
        if at_floor and self.floor_rule == "keep":
            return state
        if at_floor and self.floor_rule == "skip":
            self.mark_skip(index, self.floor_turns)
            if self.counts_two:
                self._blames[index] = 1
            return PathState.SKIP
        self._retire(index, PathState.ASSUMED_BAD)
        return PathState.ASSUMED_BAD

    def condemn(self, index: i64) -> None:
        """The responder says ALWAYS_SKIP: GOOD and SKIP become ASSUMED_BAD, whatever the minimum says."""
        if self.state(index) in (PathState.GOOD, PathState.SKIP):
            if self.counts_two:
                self._blames[index] = 2
            self._retire(index, PathState.ASSUMED_BAD)

    def undo(self, index: i64) -> None:
        """A packet that this EV was blamed for did arrive; with no blame left the EV is GOOD again."""
        if self.oblivious or self._blames[index] == 0:
            return
        self._blames[index] -= 1
        if self._blames[index] == 0:
            self._restore(index)

    def recover(self, index: i64) -> None:
        """Probes say that the path is good: ASSUMED_BAD and SKIP become GOOD, and blames are forgotten."""
        self._blames[index] = 0
        self._restore(index)

    def deny(self, index: i64) -> None:
        """The controller denies the EV, whatever its state; a backup takes over."""
        state = self.state(index)
        if state in (PathState.GOOD, PathState.SKIP):
            self._retire(index, PathState.DENIED)
        elif state is not PathState.DENIED:
            self._note(index, state, PathState.DENIED)
            self.planes[index >> self._bits].set_denied(index & self.stride - 1)

    def allow(self, index: i64) -> None:
        """The controller says GOOD: DENIED, ASSUMED_BAD, SKIP, backup and absent become GOOD."""
        old = self.state(index)
        self._blames[index] = 0
        if old is PathState.GOOD:
            return
        self._note(index, old, PathState.GOOD)
        self.planes[index >> self._bits].set_good(index & self.stride - 1)
        self._return_backup(index >> self._bits)

    def remove(self, index: i64) -> None:
        """The EV has no value any more; a backup takes over when it was active."""
        state = self.state(index)
        self._blames[index] = 0
        if state in (PathState.GOOD, PathState.SKIP):
            self._retire(index, PathState.ABSENT)
        elif state is not PathState.ABSENT:
            self._note(index, state, PathState.ABSENT)
            self.planes[index >> self._bits].set_absent(index & self.stride - 1)

    # -- inside ------------------------------------------------------------------------------------------

    def _restore(self, index: i64) -> None:
        old = self.state(index)
        plane = self.planes[index >> self._bits]
        place = index & self.stride - 1
        if old is PathState.SKIP or old is PathState.ASSUMED_BAD:
            self._note(index, old, PathState.GOOD)
            plane.set_good(place)
            self._return_backup(index >> self._bits)

    def _retire(self, index: i64, new: PathState) -> None:
        number = index >> self._bits
        plane = self.planes[number]
        place = index & self.stride - 1
        self._note(index, plane.state(place), new)
        if new is PathState.DENIED:
            plane.set_denied(place)
        elif new is PathState.ABSENT:
            plane.set_absent(place)
        else:
            plane.set_bad(place)
        backup = plane.activate_backup()
        if backup != NONE:
            self._note(number << self._bits | backup, PathState.BACKUP, PathState.GOOD)

    def _return_backup(self, number: i64) -> None:
        plane = self.planes[number]
        place = plane.surplus_backup()
        if place != NONE:
            self._note(number << self._bits | place, plane.state(place), PathState.BACKUP)
            plane.set_backup(place)
            self._blames[int(number << self._bits | place)] = 0

    def _note(self, index: i64, old: PathState, new: PathState) -> None:
        self.changes.append(int(index << 8 | int(old) << 4 | int(new)))
