"""The sending half of one QP: its attributes, what is posted, what is out, and whether it may send.

Source: protocol.md 1.4, 1.5, 2.4, 2.5 and 3.3; profile.md 4 and 7; tables QP_SEND and QP_OPTION.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from mrc_host.model.ev_set import EvSet
from mrc_host.model.nscc import CongestionControl
from mrc_host.model.options import ModelOptions
from mrc_host.model.probes import BadPath, ProbeNumbers
from mrc_host.model.send_tracker import SendTracker
from mrc_host.model.spray import SprayPolicy
from mrc_host.model.timers import RetransmissionTimer
from mrc_rtl.tables import QpState, WorkRequestOpcode
from mrc_rtl.wire import Opcode

__all__ = ["HEADER_BYTES", "NO_PSN", "SendQp", "SendRequest", "nominal_size"]

NO_PSN: Final = -1

HEADER_BYTES: Final = 8 + 12 + 4 + 4 + 16 + 4 + 40
"""What a write counts for windows beside payload, pad and immediate: UDP, BTH, METH, TSETH, RETH, ICRC and
the nominal 40 bytes."""

_IMMEDIATE_BYTES: Final = 4
_RTS: Final = int(QpState.RTS)
_MIDDLE: Final = int(Opcode.WRITE_MIDDLE)
_ONLY: Final = int(Opcode.WRITE_ONLY)
_FIRST: Final = int(Opcode.WRITE_FIRST)
_LAST: Final = int(Opcode.WRITE_LAST)
_ONLY_IMM: Final = int(Opcode.WRITE_ONLY_IMM)
_LAST_IMM: Final = int(Opcode.WRITE_LAST_IMM)


def nominal_size(length: i64, immediate: bool) -> i64:
    """Bytes that a write of so much payload counts for windows (protocol.md 2.7)."""
    return (length + 3 & ~3) + HEADER_BYTES + (_IMMEDIATE_BYTES if immediate else 0)


class SendRequest:
    """A posted write.

    Parameters
    ----------
    row : dict
        Fields of SEND_REQUEST.

    Attributes
    ----------
    first, last : int
        Its PSNs, from the moment it is opened.
    message_number, receive_number : int
        MSN and RQMSN.
    """

    __slots__ = (
        "first",
        "immediate",
        "last",
        "length",
        "local_address",
        "local_key",
        "message_number",
        "opcode",
        "receive_number",
        "remote_address",
        "remote_key",
        "signalled",
        "with_immediate",
        "wr_id",
    )

    def __init__(self, row: dict[str, int]) -> None:
        self.wr_id: int = row["wr_id"]
        self.local_address: int = row["local_address"]
        self.remote_address: int = row["remote_address"]
        self.length: i64 = row["length"]
        self.local_key: i64 = row["local_key"]
        self.immediate: i64 = row["immediate"]
        self.remote_key: i64 = row["remote_key"]
        self.opcode: int = row["opcode"]
        self.signalled: bool = row["signalled"] == 1
        self.with_immediate: bool = self.opcode == WorkRequestOpcode.WRITE_WITH_IMM
        self.first: i64 = NO_PSN
        self.last: i64 = NO_PSN
        self.message_number: i64 = 0
        self.receive_number: i64 = 0

    def opcode_of(self, psn: i64) -> i64:
        """BTH opcode of one of its packets."""
        if psn == self.last:
            if psn == self.first:
                return _ONLY_IMM if self.with_immediate else _ONLY
            return _LAST_IMM if self.with_immediate else _LAST
        return _FIRST if psn == self.first else _MIDDLE


class SendQp:
    """One QP's sending half.

    Parameters
    ----------
    index : int
    planes, ring : int
    options : ModelOptions
    policy : SprayPolicy

    Attributes
    ----------
    state : int
        ``QpState``.
    row, option : dict
        Writable fields of QP_SEND and QP_OPTION as last written.
    domain : int
        Protection domain.
    never_trimmed : bool
        The peer takes no trimmed packets.
    goes_back : bool
        It sends everything again from the PSN on that its peer lacks.
    evs, policy, tracker, congestion, timer, probes
        Its parts; tracker and congestion are made anew when it starts to send.
    usable : int
        Planes with an EV to send on (mask), while its profile is online.
    peer_ports : int
        Planes on which the peer is reachable (mask).
    posted : deque of SendRequest
        Not opened yet.
    opened : deque of SendRequest
        Opened and not completed, oldest first.
    opening : SendRequest or None
        The one whose packets are being given out.
    window : int
        PSNs that may be outstanding, from the oldest unacknowledged one.
    edge : int
        First PSN that may not be sent.
    again : int
        Last PSN of a message whose transport ACK is missing, to be sent once more.
    urgent : deque of int
        PSNs to retransmit for a timeout, whatever the congestion window says.
    bad : dict of int to BadPath
        EVs that are probed, by index.
    base_rtt_ps, target_delay_ps : int
        As configured when it began to send; timers and probes go by them.
    least_rtt : int
        Smallest round-trip time seen, in ticks; 0 while there is none.
    window_due_ps : int
        When the next trace record of the congestion window may be made.
    last_sent_ps : int
        When data was sent last, −1 for never.
    tail_clock_ps, tail_alarm_ps, tail_probe_ps : int
        When something was newly acknowledged (or the first packet left), time of the scheduled look at that,
        and when the last tail probe left.
    generation : int
        Grows when the QP is cleared, so that calls scheduled before are known as such.
    """

    def __init__(
        self, index: int, planes: int, ring: int, options: ModelOptions, policy: SprayPolicy
    ) -> None:
        self.index: i64 = index
        self.state: i64 = int(QpState.RESET)
        self.row: dict[str, int] = {}
        self.option: dict[str, int] = {}
        self.options: ModelOptions = options
        self.policy: SprayPolicy = policy
        self.evs: EvSet = policy.evs
        self.ring: i64 = ring
        self.domain: i64 = 0
        self.never_trimmed: bool = False
        self.goes_back: bool = False
        self.planes: int = planes
        self.tracker: SendTracker = SendTracker(planes, self.evs.stride, ring, options, 1)
        self.congestion: CongestionControl | None = None
        self.timer: RetransmissionTimer = RetransmissionTimer()
        self.numbers: ProbeNumbers = ProbeNumbers()
        self.generation: i64 = 0
        self.usable: i64 = 0
        self.peer_ports: i64 = -1
        self.profile: i64 = 0
        self.mtu: i64 = 256
        self.all_planes: int = (1 << planes) - 1
        self.queued: bool = False
        self.last_sent_ps: i64 = -1
        self.tail_clock_ps: i64 = 0
        self.tail_turn: i64 = 0
        self.base_rtt_ps: i64 = 0
        self.target_delay_ps: i64 = 0
        self.least_rtt: int = 0
        self.window_due_ps: i64 = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything that was posted or sent."""
        self.posted: deque[SendRequest] = deque()
        self.opened: deque[SendRequest] = deque()
        self.opening: SendRequest | None = None
        self.failed: SendRequest | None = None
        self.failed_status: int = 0
        self.retransmissions: list[int] = []
        self.urgent: deque[int] = deque()
        self.again: i64 = NO_PSN
        self.immediates: i64 = 0
        self.max_immediates: i64 = 0
        self.message_number: i64 = 0
        self.receive_number: i64 = 0
        self.next_ack: i64 = 0
        self.window: i64 = 0
        self.edge: i64 = 0
        self.bad: dict[int, BadPath] = {}
        self.tail_alarm_ps: i64 = -1
        self.tail_probe_ps: i64 = -1
        self.timer.alarm_ps = -1
        self.generation += 1

    @property
    def sending(self) -> bool:
        """Whether the QP is in RTS."""
        return self.state == _RTS

    def reachable(self, up: i64) -> i64:
        """Planes to send on (mask), of those that are up. When the peer is said to be reachable on none of
        them, that may be old news, and trying costs nothing.
        """
        own: i64 = self.usable & up
        known: i64 = own & self.peer_ports
        return known if known else own

    # -- what may leave ----------------------------------------------------------------------------------

    def next_retransmission(self) -> i64:
        """PSN of the retransmission that is next, urgent ones first; :data:`NO_PSN` when none may leave."""
        tracker = self.tracker
        while self.urgent:
            psn = self.urgent[0]
            if tracker.waiting[psn & self.ring - 1] and not tracker.is_acked(psn):
                return psn
            self.urgent.popleft()
        if self.again != NO_PSN:
            if self.opened and self.opened[0].last == self.again:
                return self.again
            self.again = NO_PSN
        heap = self.retransmissions
        while heap:
            psn = heap[0]
            if tracker.is_acked(psn) or not tracker.waiting[psn & self.ring - 1]:
                heappop(heap)
                continue
            congestion = self.congestion
            if congestion is not None and congestion.in_flight >= congestion.window:
                return NO_PSN
            return psn
        return NO_PSN

    def queue_retransmission(self, psn: i64) -> None:
        """Retransmit a PSN as soon as the congestion window allows."""
        heappush(self.retransmissions, int(psn))

    def may_send_new(self) -> bool:
        """Whether a new packet may leave: something to send, inside the peer's window and ours."""
        if self.opening is None and (
            not self.posted or (self.posted[0].with_immediate and self.immediates >= self.max_immediates)
        ):
            return False
        if self.tracker.next >= self.edge:
            return False
        congestion = self.congestion
        return congestion is None or congestion.in_flight < congestion.window

    def open_next(self) -> SendRequest:
        """Open the oldest posted request: its PSNs and message numbers are known from here on."""
        request = self.posted.popleft()
        request.first = self.tracker.next
        behind: i64 = (request.length - 1) // self.mtu if request.length else 0
        request.last = request.first + behind
        request.message_number = self.message_number
        self.message_number = self.message_number + 1 & 0xFF_FFFF
        if request.with_immediate:
            request.receive_number = self.receive_number
            self.receive_number = self.receive_number + 1 & 0xFFFF
            self.immediates += 1
        self.opened.append(request)
        self.opening = request
        return request

    def stops_after(self, size: i64) -> bool:
        """Whether nothing new can follow the packet of that size that is next: it asks for a SACK (Q6)."""
        if self.tracker.next + 1 >= self.edge:
            return True
        congestion = self.congestion
        if congestion is not None and congestion.in_flight + size >= congestion.window:
            return True
        request = self.opening
        if request is not None and request.last != self.tracker.next:
            return False
        if not self.posted:
            return True
        return self.posted[0].with_immediate and self.immediates >= self.max_immediates

    def request_of(self, psn: i64) -> SendRequest | None:
        """The open request that holds a PSN; None when it is completed or was never sent."""
        for request in self.opened:
            if request.first <= psn <= request.last:
                return request
        return None
