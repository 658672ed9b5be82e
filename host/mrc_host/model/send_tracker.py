"""What a QP has sent and not yet seen acknowledged, packet by packet.

PSNs are counted without wrapping inside (``initial_psn`` plus the number of packets); :meth:`SendTracker.psn`
turns those of headers into such numbers. Per packet there is the EV it left on, when, how often, and how
large it is; the ring of slots is as long as the peer's tracking range.

Source: profile.md 4; protocol.md 2.4; Table 7-4.
"""

from __future__ import annotations

from mrc_host.model.loss import NOBODY, ProvenLists
from mrc_host.model.options import ModelOptions

__all__ = ["SendTracker"]

_HALF = 1 << 23
_MASK = (1 << 24) - 1
_BITMAP_BITS = 64

_DATA, _RETRANSMISSION = 0, 1


class SendTracker:
    """The tracker of one QP.

    Parameters
    ----------
    planes, stride : int
        EV indexes are ``plane × stride + place``.
    ring : int
        Slots, a power of two.
    options : ModelOptions
    window_ps : int
        W of the loss rule.

    Attributes
    ----------
    unacked, next : int
        Oldest PSN without a cumulative acknowledgement, and the next new one.
    newly : list of int
        PSNs that the last :meth:`merge` or :meth:`advance` acknowledged, in order.
    size, transmissions, sent_ps, ev : lists
        Per slot: bytes that windows count; times sent; when and on which EV index it was sent last.
    heard_ps : list of int
        Per plane: when a packet of it was last reported to have arrived.
    waiting, lost : bytearray
        Per slot: it waits to be sent again; it was declared lost and a blame is open (EV in ``blamed``).
    complete_view : bool
        No report of the responder is missing, as far as CC_STATE.ooo_count tells.
    """

    __slots__ = (
        "_acked",
        "_by_count",
        "_evs",
        "_mask",
        "_proof_evs",
        "_proof_planes",
        "_psn_of",
        "_rules",
        "_seen_base",
        "_sequence",
        "_stride",
        "_view",
        "blamed",
        "complete_view",
        "ev",
        "heard_ps",
        "lost",
        "newly",
        "next",
        "planes",
        "sent_ps",
        "size",
        "transmissions",
        "unacked",
        "waiting",
    )

    def __init__(self, planes: int, stride: int, ring: int, options: ModelOptions, window_ps: int) -> None:
        self._mask: int = ring - 1
        self._stride: int = stride
        self._rules: bool = options.loss_rule != "none"
        self._by_count: bool = options.loss_rule == "count"
        self._view: bool = options.complete_view
        # Lists of the same plane and class, and of the same EV and class (two classes each).
        window = options.duplicate_threshold if self._by_count else max(1, window_ps)
        self.planes: ProvenLists = ProvenLists(2 * planes, ring, window)
        self._evs: ProvenLists = ProvenLists(2 * planes * stride, ring, 1)
        self._sequence: int = 0
        self.heard_ps: list[int] = [-1] * planes
        self._proof_planes: list[int] = []
        self._proof_evs: list[int] = []
        self._psn_of: list[int] = [-1] * ring
        self._acked: int = 0
        self._seen_base: int = 0
        self.size: list[int] = [0] * ring
        self.transmissions: list[int] = [0] * ring
        self.sent_ps: list[int] = [0] * ring
        self.ev: list[int] = [0] * ring
        self.waiting: bytearray = bytearray(ring)
        self.lost: bytearray = bytearray(ring)
        self.blamed: list[int] = [NOBODY] * ring
        self.unacked: int = 0
        self.next: int = 0
        self.newly: list[int] = []
        self.complete_view: bool = True

    def start(self, first: int) -> None:
        """Begin at a PSN; there is nothing outstanding."""
        self.unacked = self.next = first

    # -- numbers -----------------------------------------------------------------------------------------

    def psn(self, header: int) -> int:
        """The PSN nearest to the window that a header's 24 bits mean."""
        return self.unacked + ((header - self.unacked + _HALF & _MASK) - _HALF)

    def slot(self, psn: int) -> int:
        """Slot of a PSN."""
        return psn & self._mask

    def knows(self, psn: int) -> bool:
        """Whether the attributes of a PSN are still there: it was sent, and no later one took its slot."""
        return self._psn_of[psn & self._mask] == psn

    def is_acked(self, psn: int) -> bool:
        """Whether a PSN is acknowledged, cumulatively or selectively."""
        return psn < self.unacked or self._acked >> psn - self.unacked & 1 == 1

    @property
    def outstanding(self) -> int:
        """PSNs from the oldest unacknowledged one on."""
        return self.next - self.unacked

    @property
    def missing(self) -> int:
        """PSNs sent and not acknowledged."""
        return self.next - self.unacked - self._acked.bit_count()

    # -- sending -----------------------------------------------------------------------------------------

    def sent(self, psn: int, ev: int, now_ps: int, size: int) -> None:
        """A new packet (``psn == next``) or one that was sent before leaves on an EV."""
        slot = psn & self._mask
        if psn == self.next:
            self.next = psn + 1
            self._psn_of[slot] = psn
            self.transmissions[slot] = 1
            self.size[slot] = size
            self.lost[slot] = 0
            self.blamed[slot] = NOBODY
            kind = _DATA
        else:
            self.transmissions[slot] += 1
            kind = _RETRANSMISSION
        self.waiting[slot] = 0
        self.sent_ps[slot] = now_ps
        self.ev[slot] = ev
        if not self._rules:
            return
        self.planes.remove(slot)
        if self._by_count:
            self._sequence += 1
            self.planes.append(slot, kind, self._sequence)
        else:
            self._evs.remove(slot)
            self.planes.append(slot, ev // self._stride << 1 | kind, now_ps)
            self._evs.append(slot, ev << 1 | kind, now_ps)

    def give_up(self, psn: int) -> None:
        """This transmission counts as lost or refused: it waits to be sent again and proves nothing more."""
        slot = psn & self._mask
        self.waiting[slot] = 1
        self.planes.remove(slot)
        self._evs.remove(slot)

    # -- acknowledgements --------------------------------------------------------------------------------

    def advance(self, cumulative: int) -> bool:
        """Everything up to a PSN arrived; fills ``newly``. True when the oldest outstanding PSN moved."""
        self.newly = []
        return self._advance(cumulative)

    def merge(self, cumulative: int, base: int, bitmap: int, out_of_order: int) -> bool:
        """Take over a SACK's state; fills ``newly``. Bits of PSNs never sent are ignored.

        Returns True when the oldest outstanding PSN moved. ``cumulative`` must be below ``next``.
        """
        self.newly = []
        current = cumulative + 1 >= self.unacked
        moved = self._advance(cumulative)
        # A bitmap beyond everything sent shows nothing, and need not be shifted there.
        distance = min(base - self.unacked, self.outstanding)
        shown = bitmap << distance if distance >= 0 else bitmap >> -distance
        fresh = shown & ~self._acked & (1 << self.outstanding) - 1
        self._acked |= fresh
        first = self.unacked
        while fresh:
            lowest = fresh & -fresh
            self.newly.append(first + lowest.bit_length() - 1)
            fresh ^= lowest
        self._seen_base = base
        if current:
            # What the responder holds above its cumulative PSN has all been reported to us.
            self.complete_view = not self._view or self._acked.bit_count() >= out_of_order
        return moved

    def prove(self, psn: int) -> None:
        """A newly acknowledged packet arrived by its last transmission: others may be proven lost by it."""
        slot = psn & self._mask
        number = self.planes.prove(slot)
        if number != NOBODY:
            self._proof_planes.append(number)
        number = self._evs.prove(slot)
        if number != NOBODY:
            self._proof_evs.append(number)

    def forget(self, psn: int) -> None:
        """A newly acknowledged packet arrived by an earlier transmission: it proves nothing."""
        slot = psn & self._mask
        self.planes.remove(slot)
        self._evs.remove(slot)
        self.waiting[slot] = 0

    def first_missing(self) -> int:
        """The oldest PSN without an acknowledgement; ``next`` when there is none."""
        # The lowest zero of the acknowledged bits.
        free = ~self._acked
        return min(self.unacked + (free & -free).bit_length() - 1, self.next)

    # -- losses ------------------------------------------------------------------------------------------

    def next_loss(self, now_ps: int, base_rtt_ps: int) -> int:
        """A PSN that what was proven since shows to be lost; :data:`NOBODY` when there is none.

        Call :meth:`give_up` for it and ask again. A hole counts when the bitmap shows it, or when no report
        is missing; a retransmission not before one base RTT.
        """
        lists, numbers = self.planes, self._proof_planes
        while True:
            while numbers:
                slot = lists.overdue(numbers[-1])
                if slot == NOBODY:
                    numbers.pop()
                    continue
                psn = self._psn_of[slot]
                if not self._counts(psn, slot, now_ps, base_rtt_ps):
                    numbers.pop()
                    continue
                return psn
            if lists is self._evs:
                return NOBODY
            lists, numbers = self._evs, self._proof_evs

    def losses_before(self, sent_before_ps: int, silent_since_ps: int) -> list[int]:
        """PSNs whose last transmission left at a time or before and that the last SACK still misses: what the
        answer to a probe proves lost.

        A plane that was heard of after ``silent_since_ps`` is slow, not dead: what is missing there may wait
        in a queue, and its later packets prove what was lost.
        """
        found = []
        missing = ~self._acked & (1 << self.outstanding) - 1
        while missing:
            lowest = missing & -missing
            missing ^= lowest
            psn = self.unacked + lowest.bit_length() - 1
            slot = psn & self._mask
            if self.waiting[slot] or self.sent_ps[slot] > sent_before_ps or not self._shown(psn):
                continue
            if self.heard_ps[self.ev[slot] // self._stride] <= silent_since_ps or self._overtaken_there(slot):
                found.append(psn)
        return found

    def overtaken(self, patience_ps: int) -> bool:
        """Whether a packet is out that left so much before one that is proven, of whatever plane and class.

        That proves nothing (planes differ), but is a reason to ask.
        """
        return self._rules and not self._by_count and self.planes.overtaken(patience_ps)

    # -- inside ------------------------------------------------------------------------------------------

    def _advance(self, cumulative: int) -> bool:
        count = cumulative + 1 - self.unacked
        if count <= 0:
            return False
        fresh = ~self._acked & (1 << count) - 1
        first = self.unacked
        while fresh:
            lowest = fresh & -fresh
            self.newly.append(first + lowest.bit_length() - 1)
            fresh ^= lowest
        self._acked >>= count
        self.unacked = cumulative + 1
        return True

    def _overtaken_there(self, slot: int) -> bool:
        """Whether new data that left W after a retransmission on its plane arrived: that one goes first."""
        if self.transmissions[slot] == 1 or self._by_count:
            return False
        newest = self.planes.newest_of(self.ev[slot] // self._stride << 1 | _DATA)
        return newest >= self.sent_ps[slot] + self.planes.window

    def _counts(self, psn: int, slot: int, now_ps: int, base_rtt_ps: int) -> bool:
        if self.transmissions[slot] > 1 and now_ps - self.sent_ps[slot] < base_rtt_ps:
            return False
        return self._shown(psn)

    def _shown(self, psn: int) -> bool:
        """Whether it is known, not just not heard, that the responder lacks a PSN."""
        return self.complete_view or psn == self.unacked or 0 <= psn - self._seen_base < _BITMAP_BITS
