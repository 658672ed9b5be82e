"""What a responder knows of the PSNs of one QP.

Two bits a PSN: *claimed* at acceptance, *placed* when the memory has answered; cack, SACK bitmap, rcvd_bytes
and completions go by *placed*. All bit masks begin at the expected PSN.

Source: profile.md 5; protocol.md 3.1, 3.3, 3.4 and 2.7 (nominal size).
"""

from __future__ import annotations

from mrc_rtl import wire

__all__ = ["ReceiveTracker", "nominal_bytes"]

_MASK = wire.PSN_MASK
_BITMAP_BITS = wire.SACK_BITMAP_BITS
_BITMAP = (1 << _BITMAP_BITS) - 1
_UNIT = wire.RCVD_BYTES_UNIT
_HEADERS = (
    wire.UDP.bytes + wire.BTH.bytes + wire.METH.bytes + wire.RETH.bytes + wire.ICRC.bytes + 40
)  # nominal_hdrsize


def nominal_bytes(length: int, stamped: bool, immediate: bool) -> int:
    """Size of a write as congestion control counts it: UDP length and 40."""
    return _HEADERS + length + (-length & 3) + (4 if stamped else 0) + (4 if immediate else 0)


class ReceiveTracker:
    """PSNs of one QP.

    Attributes
    ----------
    expected : int
        Lowest PSN that is not placed (ePSN); the cumulative PSN is the one before it.
    highest : int
        Highest PSN placed.
    messages : int
        MSN: messages completed, 24 bits.
    """

    __slots__ = (
        "_claimed", "_ends", "_placed", "_received", "_reported", "_walk", "expected", "highest", "messages"
    )  # fmt: skip

    def __init__(self) -> None:
        self.start(0)

    def start(self, initial_psn: int) -> None:
        """Begin anew: nothing has been received, the first PSN expected is given."""
        self.expected: int = initial_psn
        self.highest: int = initial_psn - 1 & _MASK
        self.messages: int = 0
        self._claimed: int = 0
        self._placed: int = 0
        self._ends: int = 0
        self._reported: int = 0
        self._received: int = 0
        self._walk: int = 0

    @property
    def cumulative(self) -> int:
        """cack_psn."""
        return self.expected - 1 & _MASK

    @property
    def received_units(self) -> int:
        """rcvd_bytes: bytes of new packets at nominal size, in units of 256, rounded up, modulo 2^24."""
        return (self._received + _UNIT - 1) // _UNIT & _MASK

    @property
    def out_of_order(self) -> int:
        """Packets placed above the cumulative PSN."""
        return self._placed.bit_count()

    def distance(self, psn: int) -> int:
        """PSNs from the expected one, modulo 2^24: below the window's length inside, from 2^23 on behind."""
        return psn - self.expected & _MASK

    def claimed(self, distance: int) -> bool:
        """Whether the PSN at a distance inside the window has been accepted."""
        return self._claimed >> distance & 1 == 1

    def claim(self, distance: int) -> None:
        """Accept the PSN at a distance inside the window."""
        self._claimed |= 1 << distance

    def place(self, psn: int, last: bool, nominal: int) -> int:
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
        distance = psn - self.expected & _MASK
        bit = 1 << distance
        placed = self._placed | bit
        self._received += nominal
        if last:
            self._ends |= bit
        if psn - self.highest & _MASK < 1 << 23:
            self.highest = psn
        if distance:
            self._placed = placed
            return 0
        run = (placed ^ placed + 1).bit_length() - 1
        passed = (self._ends & (1 << run) - 1).bit_count()
        self._placed = placed >> run
        self._claimed >>= run
        self._ends >>= run
        self._reported >>= run
        self.expected = self.expected + run & _MASK
        self.messages = self.messages + passed & _MASK
        return passed

    def bitmap(self, align: int) -> tuple[int, int]:
        """Base and bits of the SACK that is sent now; what it shows counts as reported.

        The base is the lowest PSN placed and never reported. With nothing unreported it walks what is placed
        above the cumulative PSN in steps of 64, so that a lost SACK is made good. Bits up to the cumulative
        PSN read 1.

        Parameters
        ----------
        align : int
            The base is aligned down to so many PSNs.
        """
        placed = self._placed
        unreported = placed & ~self._reported
        start = 0
        if unreported:
            start = (unreported & -unreported).bit_length() - 1
        elif placed:
            start = self._walk * _BITMAP_BITS
            if start >= placed.bit_length() + align - 1:
                self._walk = start = 0
            self._walk += 1
        base = self.expected + start & _MASK
        if align > 1:
            down = base % align
            base -= down
            start -= down
        if start >= 0:
            shown = _BITMAP << start
            bits = placed >> start & _BITMAP
        else:
            shown = _BITMAP >> -start
            bits = (placed << -start | (1 << -start) - 1) & _BITMAP
        self._reported |= placed & shown
        return base, bits
