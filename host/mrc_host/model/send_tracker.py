"""What a QP has sent and not yet seen acknowledged, packet by packet.

PSNs are counted without wrapping inside (``initial_psn`` plus the number of packets); :meth:`SendTracker.psn`
turns those of headers into such numbers. Per packet there is the EV it left on, when, how often, and how
large it is; the ring of slots is as long as the peer's tracking range.

Source: profile.md 4; protocol.md 2.4; Table 7-4.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from mrc_host.model.loss import NOBODY, ProvenLists
from mrc_host.model.options import ModelOptions

__all__ = ["SendTracker"]

_HALF: Final = 0x80_0000
_MASK: Final = 0xFF_FFFF
_BITMAP_BITS: Final = 64
_WORD: Final = 0xFFFF_FFFF

_WIDEST: Final = 4
_CALM: Final = 16
_DATA: Final = 0
_RETRANSMISSION: Final = 1


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
    size, transmissions, sent_ps, ev : vec of i64
        Per slot: bytes that windows count; times sent; when and on which EV index it was sent last.
    heard_ps : vec of i64
        Per plane: when a packet of it was last reported to have arrived.
    waiting, lost : vec of i64
        Per slot: 1 when it waits to be sent again; 1 when it was declared lost and a blame is open (EV in
        ``blamed``).
    complete_view : bool
        No report of the responder is missing, as far as CC_STATE.ooo_count tells.
    """

    __slots__ = (
        "_acked",
        "_acked_count",
        "_by_count",
        "_evs",
        "_first_window",
        "_mask",
        "_proof_evs",
        "_proof_planes",
        "_psn_of",
        "_quiet",
        "_reported",
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

    def __init__(self, planes: int, stride: int, ring: int, options: ModelOptions, window_ps: i64) -> None:
        self._mask: i64 = ring - 1
        self._stride: i64 = stride
        self._rules: bool = options.loss_rule in ("rack", "count")
        self._by_count: bool = options.loss_rule == "count"
        self._view: bool = options.complete_view
        # Lists of the same plane and class, and of the same EV and class (two classes each).
        window = options.duplicate_threshold if self._by_count else max(1, window_ps)
        self.planes: ProvenLists = ProvenLists(2 * planes, ring, window)
        self._evs: ProvenLists = ProvenLists(2 * planes * stride, ring, 1)
        self._first_window: i64 = window
        self._quiet: i64 = 0
        self._sequence: i64 = 0
        self.heard_ps: vec[i64] = vec[i64]([-1] * planes)
        self._proof_planes: list[i64] = []
        self._proof_evs: list[i64] = []
        self._psn_of: vec[i64] = vec[i64]([-1] * ring)
        self._acked: vec[i64] = vec[i64]([0] * ring)
        self._acked_count: i64 = 0
        self._seen_base: i64 = 0
        self._reported: i64 = 0
        self.size: vec[i64] = vec[i64]([0] * ring)
        self.transmissions: vec[i64] = vec[i64]([0] * ring)
        self.sent_ps: vec[i64] = vec[i64]([0] * ring)
        self.ev: vec[i64] = vec[i64]([0] * ring)
        self.waiting: vec[i64] = vec[i64]([0] * ring)
        self.lost: vec[i64] = vec[i64]([0] * ring)
        self.blamed: vec[i64] = vec[i64]([NOBODY] * ring)
        self.unacked: i64 = 0
        self.next: i64 = 0
        self.newly: list[i64] = []
        self.complete_view: bool = True

    def start(self, first: i64) -> None:
        """Begin at a PSN; there is nothing outstanding."""
        self.unacked = first
        self.next = first
        self._acked = vec[i64]([0] * (int(self._mask) + 1))
        self._acked_count = 0

    # -- numbers -----------------------------------------------------------------------------------------

    def psn(self, header: i64) -> i64:
        """The PSN nearest to the window that a header's 24 bits mean."""
        return self.unacked + ((header - self.unacked + _HALF & _MASK) - _HALF)

    def slot(self, psn: i64) -> i64:
        """Slot of a PSN."""
        return psn & self._mask

    def knows(self, psn: i64) -> bool:
        """Whether the attributes of a PSN are still there: it was sent, and no later one took its slot."""
        return self._psn_of[psn & self._mask] == psn

    def is_acked(self, psn: i64) -> bool:
        """Whether a PSN is acknowledged, cumulatively or selectively."""
        if psn < self.unacked:
            return True
        return psn < self.next and self._acked[psn & self._mask] == 1

    @property
    def outstanding(self) -> i64:
        """PSNs from the oldest unacknowledged one on."""
        return self.next - self.unacked

    @property
    def missing(self) -> i64:
        """PSNs sent and not acknowledged."""
        return self.next - self.unacked - self._acked_count

    # -- sending -----------------------------------------------------------------------------------------

    def sent(self, psn: i64, ev: i64, now_ps: i64, size: i64) -> None:
        """A new packet (``psn == next``) or one that was sent before leaves on an EV."""
        slot: i64 = psn & self._mask
        kind: i64
        if psn == self.next:
            self.next = psn + 1
            self._psn_of[slot] = psn
            self.transmissions[slot] = 1
            self.size[slot] = size
            self.lost[slot] = 0
            self.blamed[slot] = NOBODY
            kind = _DATA
        else:
            self.transmissions[slot] = self.transmissions[slot] + 1
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

    def give_up(self, psn: i64) -> None:
        """This transmission counts as lost or refused: it waits to be sent again and proves nothing more."""
        slot: i64 = psn & self._mask
        self.waiting[slot] = 1
        self.planes.remove(slot)
        self._evs.remove(slot)

    # -- acknowledgements --------------------------------------------------------------------------------

    def advance(self, cumulative: i64) -> bool:
        """Everything up to a PSN arrived; fills ``newly``. True when the oldest outstanding PSN moved."""
        self.newly = []
        return self._advance(cumulative)

    def merge(self, cumulative: i64, base: i64, bitmap: int, out_of_order: i64) -> bool:
        """Take over a SACK's state; fills ``newly``. Bits of PSNs never sent are ignored.

        Returns True when the oldest outstanding PSN moved. ``cumulative`` must be below ``next``. A SACK that
        another one overtook adds what it shows, but not what is missing: that may have come since.
        """
        self.newly = []
        current = cumulative + 1 >= self.unacked
        moved = self._advance(cumulative)
        # Two halves, since the 64 bits do not fit a signed word.
        self._take(base, bitmap & _WORD)
        self._take(base + 32, bitmap >> 32)
        if current and out_of_order >= self._reported:
            self._reported = out_of_order
            self._seen_base = base
        # What the responder holds above its cumulative PSN has all been reported to us.
        self.complete_view = not self._view or (current and self._acked_count >= self._reported)
        return moved

    def prove(self, psn: i64) -> None:
        """A newly acknowledged packet arrived by its last transmission: others may be proven lost by it."""
        slot: i64 = psn & self._mask
        number: i64 = self.planes.prove(slot)
        if number != NOBODY:
            self._proof_planes.append(number)
        number = self._evs.prove(slot)
        if number != NOBODY:
            self._proof_evs.append(number)

    def forget(self, psn: i64) -> None:
        """A newly acknowledged packet arrived by an earlier transmission: it proves nothing."""
        slot: i64 = psn & self._mask
        self.planes.remove(slot)
        self._evs.remove(slot)
        self.waiting[slot] = 0

    def first_missing(self) -> i64:
        """The oldest PSN without an acknowledgement; ``next`` when there is none."""
        psn: i64 = self.unacked
        while psn < self.next and self._acked[psn & self._mask]:
            psn += 1
        return psn

    # -- losses ------------------------------------------------------------------------------------------

    def adapt(self, wrong: bool) -> None:
        """A loss that was inferred stood the test of time so far, or was wrong: W is doubled by each that was
        wrong, to four times what it was at most, and falls back after 16 in a row that were not.
        """
        planes = self.planes
        if wrong:
            self._quiet = 0
            planes.window = min(2 * planes.window, _WIDEST * self._first_window)
        elif planes.window != self._first_window:
            self._quiet += 1
            if self._quiet >= _CALM:
                self._quiet = 0
                planes.window = self._first_window

    def next_loss(self, now_ps: i64, base_rtt_ps: i64) -> i64:
        """A PSN that what was proven since shows to be lost; :data:`NOBODY` when there is none.

        Call :meth:`give_up` for it and ask again. A hole counts when the bitmap shows it, or when no report
        is missing; a retransmission not before one base RTT.
        """
        lists, numbers = self.planes, self._proof_planes
        while True:
            while numbers:
                slot: i64 = lists.overdue(numbers[-1])
                if slot == NOBODY:
                    numbers.pop()
                    continue
                psn: i64 = self._psn_of[slot]
                if not self._counts(psn, slot, now_ps, base_rtt_ps):
                    numbers.pop()
                    continue
                return psn
            if lists is self._evs:
                return NOBODY
            lists, numbers = self._evs, self._proof_evs

    def losses_before(self, sent_before_ps: i64, silent_since_ps: i64) -> list[i64]:
        """PSNs whose last transmission left at a time or before and that the last SACK still misses: what the
        answer to a probe proves lost.

        A plane that was heard of after ``silent_since_ps`` is slow, not dead: what is missing there may wait
        in a queue, and its later packets prove what was lost.
        """
        found: list[i64] = []
        psn: i64 = self.unacked - 1
        while psn + 1 < self.next:
            psn += 1
            slot: i64 = psn & self._mask
            if self._acked[slot] or self.waiting[slot]:
                continue
            if self.sent_ps[slot] > sent_before_ps or not self._shown(psn):
                continue
            if self.heard_ps[self.ev[slot] // self._stride] <= silent_since_ps or self._overtaken_there(slot):
                found.append(psn)
        return found

    def overtaken(self, patience_ps: i64) -> bool:
        """Whether a packet is out that left so much before one that is proven, of whatever plane and class.

        That proves nothing (planes differ), but is a reason to ask.
        """
        return self._rules and not self._by_count and self.planes.overtaken(patience_ps)

    # -- inside ------------------------------------------------------------------------------------------

    def _advance(self, cumulative: i64) -> bool:
        psn: i64 = self.unacked
        if psn > cumulative:
            return False
        acked = self._acked
        while psn <= cumulative:
            slot: i64 = psn & self._mask
            if acked[slot]:
                acked[slot] = 0
                self._acked_count -= 1
            else:
                self.newly.append(psn)
            psn += 1
        self.unacked = psn
        self._reported = 0
        return True

    def _take(self, base: i64, bits: i64) -> None:
        """Acknowledge the PSNs that half a bitmap shows, from a base on."""
        psn: i64 = base
        acked = self._acked
        while bits:
            if bits & 1 and self.unacked <= psn < self.next:
                slot: i64 = psn & self._mask
                if not acked[slot]:
                    acked[slot] = 1
                    self._acked_count += 1
                    self.newly.append(psn)
            bits >>= 1
            psn += 1

    def _overtaken_there(self, slot: i64) -> bool:
        """Whether new data that left W after a retransmission on its plane arrived: that one goes first."""
        if self.transmissions[slot] == 1 or self._by_count:
            return False
        newest: i64 = self.planes.newest_of(self.ev[slot] // self._stride << 1 | _DATA)
        return newest >= self.sent_ps[slot] + self.planes.window

    def _counts(self, psn: i64, slot: i64, now_ps: i64, base_rtt_ps: i64) -> bool:
        if self.transmissions[slot] > 1 and now_ps - self.sent_ps[slot] < base_rtt_ps:
            return False
        return self._shown(psn)

    def _shown(self, psn: i64) -> bool:
        """Whether it is known, not just not heard, that the responder lacks a PSN."""
        return self.complete_view or psn == self.unacked or 0 <= psn - self._seen_base < _BITMAP_BITS
