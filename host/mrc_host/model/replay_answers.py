"""The answers of a replay: what the gateware sent against what the model wants to send.

Source: protocol.md 1.9 to 1.11, 3.4 to 3.6; profile.md 5.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrc_host.errors import MrcError
from mrc_host.model.engine import ModelEngine
from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import ModelPacket
from mrc_host.model.shell import Requester, Shell
from mrc_host.nic.base import NEVER, Frame
from mrc_host.packets.decoding import decode
from mrc_host.packets.packet import Packet
from mrc_rtl import wire
from mrc_rtl.config import TICK_PS
from mrc_rtl.wire import Dscp, Opcode

__all__ = ["AnswerComparison", "Collector", "Divergence"]

_SLACK_TICKS = 1
_PSN = wire.PSN_MASK
_BEHIND = 1 << (wire.PSN_BITS - 1)
_FREE_IN_SACK = ("sack_offset", "sack_bitmap")
_ANSWERS = frozenset((int(Opcode.SACK), int(Opcode.NACK), int(Opcode.ACKNOWLEDGE)))


class Divergence(MrcError):
    """The model decided otherwise than the gateware; the text names the first such record and both states."""


class Collector(Requester):
    """Stands for the sending half: keeps the answers that the responder wants to send.

    Attributes
    ----------
    answers : list of (time in ps, packet, plane)
        Those that wait.
    """

    def __init__(self, shell: Shell, options: ModelOptions) -> None:
        self.answers: list[tuple[int, ModelPacket, int]] = []
        self._shell = shell

    def write_row(self, table: int, index: int, fields: dict[str, int]) -> bool:
        """Rows of the sending half do not matter here."""
        return True

    def read_row(self, table: int, index: int) -> dict[str, int] | None:
        """There are none."""
        return None

    def post(self, qp: int, request: dict[str, int]) -> None:
        """Nothing is sent."""

    def on_sack(self, qp: int, packet: ModelPacket) -> None:
        """Feedback changes nothing here."""

    def on_ack(self, qp: int, packet: ModelPacket) -> None:
        """Feedback changes nothing here."""

    def on_nack(self, qp: int, packet: ModelPacket) -> None:
        """Feedback changes nothing here."""

    def on_endpoint_response(self, packet: ModelPacket) -> None:
        """Nothing was asked."""

    def on_peer_ports(self, source: int, port_mask: int) -> None:
        """All planes are taken as they come."""

    def on_error(self, qp: int) -> None:
        """Nothing is flushed."""

    def port_changed(self, plane: int, up: bool) -> None:
        """Answers keep their plane."""

    def enqueue_control(self, packet: ModelPacket, qp: int, plane: int) -> None:
        """An answer waits, asked for now; endpoint responses are no matter of a QP's state."""
        if packet.opcode == Opcode.ENDPOINT_RESPONSE:
            return
        self.answers.append((self._shell.now_ps, packet, plane))

    def data_sent_ps(self, qp: int) -> int:
        """Never."""
        return -1

    def good_evs(self, qp: int, plane: int) -> list[int]:
        """None: EVs come from the gateware's frames."""
        return []

    def pump(self) -> None:
        """Answers wait until the gateware sends them."""


@dataclass
class _Answer:
    """A frame the gateware sent in answer to what it received."""

    frame: Frame
    packet: Packet
    placed: int
    """Packets of the QP placed when its content was read; −1 when it does not tell."""


class AnswerComparison:
    """Matches every answer of the gateware with one of the model, as soon as the replay has come that far.

    Parameters
    ----------
    engine : ModelEngine
        Its QPs are connected.
    collector : Collector
    sent : list of Frame
        All the gateware sent.
    word : int
        PSNs to which the base of a SACK's bitmap is aligned.

    Attributes
    ----------
    matched : int
        Answers that agreed.
    """

    def __init__(self, engine: ModelEngine, collector: Collector, sent: list[Frame], word: int) -> None:
        qps = len(engine.responder.qps)
        self.matched = 0
        self._engine = engine
        self._collector = collector
        self._word = word
        self._placed = [0] * qps
        self._above: list[set[int]] = [set() for _ in range(qps)]
        self._reported: list[set[int]] = [set() for _ in range(qps)]
        self._replies = self._by_qp(sent)

    def placed(self, qp: int, psn: int) -> None:
        """A packet was placed."""
        self._placed[qp] += 1
        self._above[qp].add(psn)
        self._above[qp] = {psn for psn in self._above[qp] if psn - self._expected(qp) & _PSN < _BEHIND}
        self.drain(qp)

    def lacks(self, qp: int) -> bool:
        """Whether the gateware has sent an answer by now that the model does not want to send yet."""
        self.drain(qp)
        replies = self._replies[qp]
        return bool(replies) and 0 <= replies[0].placed <= self._placed[qp]

    def require(self, qp: int) -> None:
        """All that the gateware has answered by now must be matched.

        Raises
        ------
        Divergence
            It is not.
        """
        if self.lacks(qp):
            self._missing(qp)

    def finish(self) -> None:
        """Nothing may be left on either side.

        Raises
        ------
        Divergence
            Something is.
        """
        for qp, replies in enumerate(self._replies):
            self.drain(qp)
            if replies:
                self._missing(qp)
        for asked_ps, packet, plane in self._collector.answers:
            raise Divergence(
                f"the model answers QP {packet.qp} PSN {packet.psn:#08x} at {asked_ps} ps by "
                f"{Opcode(packet.opcode).name} on plane {plane}, the gateware does not"
            )

    def _expected(self, qp: int) -> int:
        return self._engine.responder.qps[qp].tracker.expected

    def _by_qp(self, sent: list[Frame]) -> list[list[_Answer]]:
        """The answers the gateware sent, by QP, in the order in which their content was read."""
        qps = self._engine.responder.qps
        replies: list[list[_Answer]] = [[] for _ in qps]
        for frame in sent:
            packet = decode(frame.data, start="ethernet")
            if packet.opcode not in _ANSWERS:
                continue
            destination = packet["bth"]["dest_qp"]
            qp = next(index for index, item in enumerate(qps) if item.peer_qpn == destination)
            placed = -1
            if packet.opcode == Opcode.SACK:
                above = packet["cc_state"]["ooo_count"]
                placed = (packet["seth"]["cack_psn"] + 1 - self._expected(qp) & _PSN) + above
            replies[qp].append(_Answer(frame, packet, placed))
        return replies

    def drain(self, qp: int) -> None:
        """Match the gateware's answers with the model's as far as the present state reaches."""
        replies = self._replies[qp]
        for reply in list(replies):
            if reply.placed > self._placed[qp]:
                continue
            if self._match(qp, reply):
                replies.remove(reply)

    def _match(self, qp: int, reply: _Answer) -> bool:
        """Find the model's answer for one of the gateware's and compare them byte for byte."""
        engine = self._engine
        answers = self._collector.answers
        for place, (asked_ps, packet, plane) in enumerate(answers):
            if packet.qp != qp or packet.opcode != reply.packet.opcode or plane != reply.frame.port:
                continue
            if not _same_cause(packet, reply.packet, engine.responder.qps[qp].tracker.cumulative):
                continue
            packet.ev = reply.packet.ev or 0
            packet.traffic_class = int(Dscp.CONTROL) << 2
            stamped = packet.timestamped
            if stamped:
                engine.now_ps = self._moment(asked_ps, packet, reply)
            engine.transmit(plane, packet)
            mine = engine.sent(NEVER)[0].data
            if reply.packet.opcode == Opcode.SACK:
                self._check_bitmap(qp, reply)
                self._compare(qp, decode(mine, start="ethernet"), reply, _FREE_IN_SACK)
            elif mine != reply.frame.data:
                self._compare(qp, decode(mine, start="ethernet"), reply, ())
            del answers[place]
            self.matched += 1
            return True
        return False

    def _moment(self, asked_ps: int, packet: ModelPacket, reply: _Answer) -> int:
        """The tick in which the gateware must have made the time stamp of an answer."""
        header = "cc_state" if "cc_state" in reply.packet else "neth"
        ticks = reply.packet[header]["tx_timestamp"] - packet.timestamp & 0xFFFF
        first = asked_ps // TICK_PS - _SLACK_TICKS
        late = ticks - first & 0xFFFF
        if (first + late - _SLACK_TICKS) * TICK_PS > reply.frame.time_last_bit_ps:
            raise Divergence(
                f"time stamp of the answer to QP {packet.qp} PSN {packet.psn:#08x}: made in a tick whose low "
                f"16 bits are {ticks:#06x}, but asked for at {asked_ps} ps and sent before "
                f"{reply.frame.time_last_bit_ps} ps"
            )
        return (first + late) * TICK_PS

    def state(self, qp: int) -> str:
        """The model's state of a QP, for messages."""
        tracker = self._engine.responder.qps[qp].tracker
        waiting = [
            f"{Opcode(packet.opcode).name} {packet.psn:#08x} plane {plane}"
            for _, packet, plane in self._collector.answers
            if packet.qp == qp
        ]
        return (
            f"model: expected {tracker.expected:#08x}, {tracker.out_of_order} above, "
            f"highest {tracker.highest:#08x}, MSN {tracker.messages}, {self._placed[qp]} placed, answers "
            f"that wait: {', '.join(waiting) or 'none'}"
        )

    def _missing(self, qp: int) -> None:
        reply = self._replies[qp][0]
        raise Divergence(f"the gateware sent {_told(reply)}, the model does not; {self.state(qp)}")

    def _compare(self, qp: int, mine: Packet, reply: _Answer, free: tuple[str, ...]) -> None:
        """Compare header by header and field by field."""
        theirs = reply.packet
        found = [
            f"{header.name}.{name}: gateware {value:#x}, model {other.fields.get(name, 0):#x}"
            for header, other in zip(theirs.headers, mine.headers)
            for name, value in header.fields.items()
            if value != other.fields.get(name) and name not in free
        ]
        for what, gateware, model in (
            ("headers", [header.name for header in theirs.headers], [header.name for header in mine.headers]),
            ("good ICRC", theirs.icrc_ok, mine.icrc_ok),
            ("payload", theirs.payload, mine.payload),
        ):
            if gateware != model:
                found.append(f"{what}: gateware {gateware!r}, model {model!r}")
        if found:
            raise Divergence(f"{_told(reply)}: {'; '.join(found)}; {self.state(qp)}")

    def _check_bitmap(self, qp: int, reply: _Answer) -> None:
        """What a SACK of the gateware shows, against what is placed."""
        seth = reply.packet["seth"]
        expected = self._expected(qp)
        base = seth["cack_psn"] + seth["sack_offset"] & _PSN
        shown = [base + place & _PSN for place in range(wire.SACK_BITMAP_BITS)]
        wanted = sum(
            1 << place
            for place, psn in enumerate(shown)
            if psn in self._above[qp] or psn - expected & _PSN >= _BEHIND
        )
        unreported = self._above[qp] - self._reported[qp]
        if seth["sack_bitmap"] != wanted:
            text = f"bitmap from {base:#08x}: gateware {seth['sack_bitmap']:#018x}, placed {wanted:#018x}"
        elif base % self._word:
            text = f"base {base:#08x} must be a multiple of {self._word}"
        elif unreported:
            lowest = min(unreported, key=lambda psn: psn - expected & _PSN)
            if lowest in shown:
                self._reported[qp] = self._reported[qp] & self._above[qp] | set(shown) & self._above[qp]
                return
            text = f"base {base:#08x}: the lowest PSN never reported, {lowest:#08x}, must be shown"
        elif (base - (expected - expected % self._word)) % wire.SACK_BITMAP_BITS:
            text = f"base {base:#08x} must be whole bitmaps from the word of the expected PSN"
        else:
            return
        raise Divergence(f"{_told(reply)}: {text}; {self.state(qp)}")


def _same_cause(packet: ModelPacket, reply: Packet, cumulative: int) -> bool:
    """Whether an answer of the gateware answers what an answer of the model does."""
    if reply.opcode == Opcode.SACK:
        seth = reply["seth"]
        offset = seth["ack_psn_offset"]
        if seth["pr"] or packet.probe:
            return bool(seth["pr"]) and packet.probe and packet.probe_id == offset & 0xFFFF
        return packet.entropy == seth["entropy"] and (
            packet.acknowledged_psn == seth["cack_psn"] + offset & _PSN or offset == -0x8000
        )
    if reply.opcode == Opcode.NACK:
        neth = reply["neth"]
        return packet.acknowledged_psn == neth["nack_psn"] and packet.reason == neth["nack_reason"]
    if packet.syndrome != reply["aeth"]["syndrome"]:
        return False
    return packet.syndrome != wire.AethSyndrome.ACK or cumulative == reply["bth"]["psn"]


def _told(reply: _Answer) -> str:
    bth = reply.packet["bth"]
    return (
        f"{reply.packet.kind} {bth['psn']:#08x} to QPN {bth['dest_qp']:#x} on plane {reply.frame.port}, last "
        f"bit at {reply.frame.time_last_bit_ps} ps"
    )
