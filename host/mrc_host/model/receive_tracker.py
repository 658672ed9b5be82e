"""What a responder knows of the PSNs of one QP.

Two bits a PSN: *claimed* at acceptance, *placed* when the memory has answered; cack, SACK bitmap, rcvd_bytes
and completions go by *placed*. They stand in a ring of words, one for each PSN of the window.

Source: profile.md 5; protocol.md 3.1, 3.3, 3.4 and 2.7 (nominal size).
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from mrc_rtl import wire

__all__ = ["ReceiveTracker", "nominal_bytes"]

# Literals, which compiled code has at hand; they are compared with where they stand for all.
_MASK: Final = 0xFF_FFFF
_HALF: Final = 0x80_0000
_BITMAP_BITS: Final = 64
_UNIT: Final = 256
_HEADERS: Final = 84
"""nominal_hdrsize: headers of a write and 40."""
assert (_MASK, _HALF) == (wire.PSN_MASK, 1 << (wire.PSN_BITS - 1))
assert (_BITMAP_BITS, _UNIT) == (wire.SACK_BITMAP_BITS, wire.RCVD_BYTES_UNIT)
assert _HEADERS == (
    wire.UDP.bytes + wire.BTH.bytes + wire.METH.bytes + wire.RETH.bytes + wire.ICRC.bytes + 40
)

# Flags of a PSN from the expected one on. Above it each is set once, and all go when it is passed.
_CLAIMED: Final = 1
_PLACED: Final = 2
_END: Final = 4
_REPORTED: Final = 8


def nominal_bytes(length: i64, stamped: bool, immediate: bool) -> i64:
    """Size of a write as congestion control counts it: UDP length and 40."""
    size: i64 = _HEADERS + (length + 3 & ~3)
    if stamped:
        size += 4
    if immediate:
        size += 4
    return size


class ReceiveTracker:
    """PSNs of one QP.

    Parameters
    ----------
    window : int
        Most PSNs that are tracked from the expected one on.

    Attributes
    ----------
    expected : int
        Lowest PSN that is not placed (ePSN); the cumulative PSN is the one before it.
    highest : int
        Highest PSN placed.
    messages : int
        MSN: messages completed, 24 bits.
    out_of_order : int
        Packets placed above the cumulative PSN.
    """

    __slots__ = (
        "_flags", "_fresh", "_received", "_ring", "_since_walk", "_walk", "expected", "highest", "messages",
        "out_of_order",
    )  # fmt: skip

    def __init__(self, window: int = 256) -> None:
        size = 1 << (window - 1).bit_length()
        self._ring: i64 = size - 1
        self._flags: vec[i64] = vec[i64]([0] * size)
        self.expected: i64 = 0
        self.highest: i64 = 0
        self.messages: i64 = 0
        self.out_of_order: i64 = 0
        self._fresh: i64 = 0  # of those, never reported
        self._received: i64 = 0
        self._walk: i64 = 0
        self._since_walk: i64 = 0
        self.start(0)

    def start(self, initial_psn: i64) -> None:
        """Begin anew: nothing has been received, the first PSN expected is given."""
        self._flags = vec[i64]([0] * (int(self._ring) + 1))
        self.expected = initial_psn
        self.highest = initial_psn - 1 & _MASK
        self.messages = 0
        self.out_of_order = 0
        self._fresh = 0
        self._received = 0
        self._walk = 0
        self._since_walk = 0

    @property
    def cumulative(self) -> i64:
        """cack_psn."""
        return self.expected - 1 & _MASK

    @property
    def received_units(self) -> i64:
        """rcvd_bytes: bytes of new packets at nominal size, in units of 256, rounded up, modulo 2^24."""
        return (self._received + _UNIT - 1) // _UNIT & _MASK

    def distance(self, psn: i64) -> i64:
        """PSNs from the expected one, modulo 2^24: below the window's length inside, from 2^23 on behind."""
        return psn - self.expected & _MASK

    def claimed(self, distance: i64) -> bool:
        """Whether the PSN at a distance inside the window has been accepted."""
        return self._flags[self.expected + distance & self._ring] & _CLAIMED != 0

    def claim(self, distance: i64) -> None:
        """Accept the PSN at a distance inside the window."""
        slot: i64 = self.expected + distance & self._ring
        self._flags[slot] = self._flags[slot] | _CLAIMED

    def place(self, psn: i64, last: bool, nominal: i64) -> i64:
        """The memory has answered for a claimed PSN.

        Parameters
        ----------
        psn : int
        last : bool
            It ends a message.
        nominal : int
            Its nominal size.

        Returns
        -------
        int
            Messages that are now completed.
        """
        self._received += nominal
        if psn - self.highest & _MASK < _HALF:
            self.highest = psn
        flags = self._flags
        if psn != self.expected:
            self.out_of_order += 1
            self._fresh += 1
            flags[psn & self._ring] = flags[psn & self._ring] | (_PLACED | _END if last else _PLACED)
            return 0
        passed: i64 = 1 if last else 0
        flags[psn & self._ring] = 0
        psn = psn + 1 & _MASK
        state: i64 = flags[psn & self._ring]
        while state & _PLACED:
            if state & _END:
                passed += 1
            if not state & _REPORTED:
                self._fresh -= 1
            self.out_of_order -= 1
            flags[psn & self._ring] = 0
            psn = psn + 1 & _MASK
            state = flags[psn & self._ring]
        self.expected = psn
        self.messages = self.messages + passed & _MASK
        return passed

    def bitmap(self, align: i64, walk_every: i64 = 0) -> tuple[i64, int]:
        """Base and bits of the SACK that is sent now; what it shows counts as reported.

        The base is the lowest PSN placed and never reported. With nothing unreported it walks what is placed
        above the cumulative PSN in steps of 64, so that a lost SACK is made good. Bits up to the cumulative
        PSN read 1.

        Parameters
        ----------
        align : int
            The base is aligned down to so many PSNs.
        walk_every : int
            Every so many calls one walks although something is unreported; 0 for never.
        """
        flags = self._flags
        ring: i64 = self._ring
        expected: i64 = self.expected
        top: i64 = (self.highest - expected & _MASK) if self.out_of_order else 0
        start: i64 = 0
        walks = self._fresh == 0
        if walk_every and self.out_of_order:
            self._since_walk += 1
            if self._since_walk >= walk_every:
                walks = True
        if walks:
            self._since_walk = 0
        if not walks:
            start = 1
            while flags[expected + start & ring] & (_PLACED | _REPORTED) != _PLACED:
                start += 1
        elif self.out_of_order:
            start = self._walk * _BITMAP_BITS
            if start >= top + align:
                self._walk = start = 0
            self._walk += 1
        base: i64 = expected + start & _MASK
        if align > 1:
            down: i64 = base % align
            base -= down
            start -= down
        # Two halves, since the 64 bits do not fit a signed word.
        low: i64 = 0
        high: i64 = 0
        bit: i64 = 1
        place: i64 = 0
        while place < _BITMAP_BITS and start + place <= top:
            if place == 32:
                low, high, bit = high, 0, 1
            shown = start + place < 0
            if not shown:
                slot: i64 = expected + start + place & ring
                state: i64 = flags[slot]
                if state & _PLACED:
                    shown = True
                    if not state & _REPORTED:
                        flags[slot] = state | _REPORTED
                        self._fresh -= 1
            if shown:
                high |= bit
            bit <<= 1
            place += 1
        if place <= 32:
            return base, int(high)
        return base, int(high) << 32 | int(low)
