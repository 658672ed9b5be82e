"""Replays into the model what a NIC of gateware received, and compares every decision of its receive side.

The gateware's time does not count, only its order: its trace says in which order it decided about packets and
placed them, its SACKs say behind which packet their content was read. The model makes the same steps in that
order, and each must come out the same: the outcome of every packet with the state it met, the state behind
every packet placed, and every answer, byte for byte.

What may differ, because it is a matter of time and not of rules:

* a packet that found no room in the gateware's buffer is left out on this side (``allowed_drops``);
* the tick in which a time stamp was made, within the time the answer really took;
* the order of answers that were made between the same two placed packets;
* how far behind its SACK the content of a transport ACK was read;
* the base of a SACK's bitmap: the gateware keeps a bound of the lowest PSN that was never reported, which may
  lie below it. Its bits must be right all the same, and show that PSN; with nothing unreported the base must
  be a whole number of bitmaps from the word of the expected PSN.

Source: design, "Seeing inside"; profile.md 5.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from mrc_host.model.engine import Access, ModelEngine
from mrc_host.model.frames import PortReceiver
from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import ModelPacket
from mrc_host.model.registers import OKAY
from mrc_host.model.replay_answers import AnswerComparison, Collector, Divergence
from mrc_host.model.shell import Requester, Shell
from mrc_host.nic.base import NEVER, TraceRecord
from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_host.nic.recorded import RecordedNic
from mrc_rtl import wire
from mrc_rtl.records import PORT_COUNTERS, PortCounter, TraceKind
from mrc_rtl.registers import register_map
from mrc_rtl.wire import Opcode

__all__ = ["ReceiveReplay", "ReplayResult"]

_AHEAD = 8
"""Records of different blocks may be reported in another order than they were decided in, by so many."""
_BUFFER_BYTES = 1 << 20
_PSN = wire.PSN_MASK
_STATEFUL = frozenset(
    int(outcome)
    for outcome in (
        PortCounter.ACCEPTED,
        PortCounter.DUPLICATE,
        PortCounter.TRIMMED_ANSWERED,
        PortCounter.DROP_WINDOW,
        PortCounter.DROP_ACCESS,
    )
)


@dataclass
class ReplayResult:
    """What was compared.

    Parameters
    ----------
    admitted, placed, answers : int
        Packets decided about, packets placed, answers that agreed.
    allowed_drops : int
        Packets for which the gateware had no room.
    outcomes : dict
        Packets by outcome.
    """

    admitted: int = 0
    placed: int = 0
    answers: int = 0
    allowed_drops: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)


class ReceiveReplay:
    """The receive side of one recorded NIC.

    Parameters
    ----------
    recorded : RecordedNic
        A NIC of gateware whose configuration has ``trace``, after a run at whose end it rested.
    mac : MacOptions
        Of that NIC.
    options : ModelOptions, optional
        What the gateware does where the references leave a choice.
    """

    def __init__(self, recorded: RecordedNic, mac: MacOptions, options: ModelOptions | None = None) -> None:
        config = recorded.config
        if not config.trace:
            raise ValueError("the recorded NIC must have config.trace, got one without")
        options = options or ModelOptions.round_one()
        self._recorded = recorded
        self._made: list[Collector] = []
        # Whether there is room is a matter of time: the gateware's own drops are followed.
        self._engine = ModelEngine(
            replace(config, receive_buffer_bytes=_BUFFER_BYTES),
            mac,
            MemoryOptions(size=len(recorded.memory), latency_jitter=0),
            options,
            0,
            self._collector,
            self._answered,
        )
        self._engine.settings.enable = True
        for port in self._engine.ports:
            port.link_up = True
        self._decoders = [
            PortReceiver(plane, self._engine.settings, options, config.mtu) for plane in range(config.planes)
        ]
        self._frames = [deque(frames) for frames in recorded.received]
        self._writes = deque(recorded.written)
        # The host's index counts completions of sends too, which this side does not make.
        self._consumer_at = register_map()["cq_consumer"].offset
        self._options = options
        self._result = ReplayResult()

    def _collector(self, shell: Shell, options: ModelOptions) -> Requester:
        self._made.append(Collector(shell, options))
        return self._made[0]

    @staticmethod
    def _answered(access: Access) -> None:
        """Register accesses are carried out directly."""

    # -- order -------------------------------------------------------------------------------------------

    def run(self) -> ReplayResult:
        """Make every step and compare it.

        Raises
        ------
        Divergence
            At the first difference.
        """
        records = [
            (number, record)
            for number, record in enumerate(self._recorded.trace)
            if record.kind in (TraceKind.ADMIT, TraceKind.PLACE)
        ]
        admits = deque(item for item in records if item[1].kind == TraceKind.ADMIT)
        places = deque(item for item in records if item[1].kind == TraceKind.PLACE)
        self._write_until(self._recorded.trace[0].time_ps if self._recorded.trace else NEVER)
        self._answers = AnswerComparison(
            self._engine, self._made[0], self._recorded.sent, self._options.sack_base_align
        )
        while admits or places:
            if places and not (admits and self._admit_first(admits[0], places[0])):
                number, record = places.popleft()
                # A duplicate may have asked for its answer before, though it was reported later.
                while admits and self._answers.lacks(record.qp) and admits[0][0] - number <= _AHEAD:
                    self._admit(*admits.popleft())
                self._place(number, record)
            else:
                self._admit(*admits.popleft())
        self._answers.finish()
        self._result.answers = self._answers.matched
        return self._result

    def _admit_first(self, admit: tuple[int, TraceRecord], place: tuple[int, TraceRecord]) -> bool:
        """Which of the two oldest records was decided first: admission tells the state it met."""
        (admit_number, admitted), (place_number, placed) = admit, place
        met = admitted.detail >> 16 & _PSN
        judged = admitted.detail & 0xFF in _STATEFUL
        if admit_number < place_number:
            behind = judged and met != self._expected(admitted.qp)
            return not (behind and placed.qp == admitted.qp and place_number - admit_number <= _AHEAD)
        after = placed.detail & _PSN
        changes = placed.qp == admitted.qp and after != met
        return (
            judged
            and changes
            and met == self._expected(admitted.qp)
            and admit_number - place_number <= _AHEAD
        )

    def _expected(self, qp: int) -> int:
        return self._engine.responder.qps[qp].tracker.expected

    def _write_until(self, time_ps: int) -> None:
        """Carry out the host's register writes up to a time."""
        engine = self._engine
        while self._writes and self._writes[0].time_ps <= time_ps:
            write = self._writes.popleft()
            if write.address == self._consumer_at:
                continue
            engine.now_ps = max(engine.now_ps, write.time_ps)
            response = engine.registers.write(write.address, write.value)
            if response != OKAY:
                raise Divergence(
                    f"write of {write.value:#x} to register {write.address:#06x} at {write.time_ps} ps: the "
                    f"gateware took it, the model answers {response}"
                )

    # -- steps -------------------------------------------------------------------------------------------

    def _admit(self, number: int, record: TraceRecord) -> None:
        """The gateware decided about a packet."""
        engine = self._engine
        self._write_until(record.time_ps)
        engine.now_ps = record.time_ps
        outcome = record.detail & 0xFF
        packet = self._next_packet(number, record)
        if outcome == PortCounter.DROP_NO_PKT_BUFFER:
            self._result.allowed_drops += 1
            engine.responder.refuse_room(packet)
            self._answers.drain(record.qp)
            return
        before = self._expected(record.qp)
        first = record.plane * PORT_COUNTERS
        counters = [int(engine.counters[first + index]) for index in range(PORT_COUNTERS)]
        engine.responder.on_packet(packet)
        found = [index for index in range(PORT_COUNTERS) if engine.counters[first + index] != counters[index]]
        name = PortCounter(outcome).name
        if found != [outcome]:
            names = ", ".join(PortCounter(index).name for index in found) or "nothing"
            self._differ(number, record, f"outcome: gateware {name}, model {names}")
        if outcome in _STATEFUL:
            self._equal(number, record, "expected PSN met", record.detail >> 16 & _PSN, before)
            self._equal(number, record, "trimmed", record.detail >> 8 & 0xFF, int(packet.trimmed))
        self._result.admitted += 1
        self._result.outcomes[name] = self._result.outcomes.get(name, 0) + 1
        self._answers.drain(record.qp)

    def _next_packet(self, number: int, record: TraceRecord) -> ModelPacket:
        """The next packet that the port of a record lets pass."""
        frames = self._frames[record.plane]
        while frames:
            received = frames.popleft()
            port = self._engine.ports[record.plane]
            last_bit = port.arrive(received.time_first_bit_ps, len(received.data))
            packet = self._decoders[record.plane].decode(received.data, received.bad_fcs)
            if packet is not None:
                packet.plane = record.plane
                packet.received_ps = last_bit
                psn = packet.probe_id if packet.opcode == Opcode.PROBE else packet.psn
                if psn != record.psn:
                    self._differ(number, record, f"packet: the model's port lets pass PSN {psn:#08x}")
                return packet
        self._differ(number, record, "packet: the model's port lets none pass")
        raise AssertionError

    def _place(self, number: int, record: TraceRecord) -> None:
        """The gateware placed a packet."""
        engine = self._engine
        self._write_until(record.time_ps)
        qp = record.qp
        self._answers.require(qp)
        engine.now_ps = record.time_ps
        engine.traces.clear()
        for queue in range(len(engine.rings)):
            engine.rings[queue].consumer = engine.rings[queue].producer
        made: list[TraceRecord] = []
        while engine.agenda.active and not made:  # ports report room there too
            engine.carry_out(engine.agenda.take())
            made = [trace for trace in engine.traces if trace.kind == TraceKind.PLACE]
        if not made:
            self._differ(number, record, "placement: the model places nothing")
        for what, mine, theirs in (
            ("QP", made[0].qp, qp),
            ("PSN", made[0].psn, record.psn),
            ("plane", made[0].plane, record.plane),
            ("expected PSN", made[0].detail & _PSN, record.detail & _PSN),
            ("packets above", made[0].detail >> 24 & 0xFFFF, record.detail >> 24 & 0xFFFF),
            ("message end passed", made[0].detail >> 40 & 1, record.detail >> 40 & 1),
        ):
            self._equal(number, record, what, theirs, mine)
        self._result.placed += 1
        self._answers.placed(qp, record.psn)

    # -- differences -------------------------------------------------------------------------------------

    def _equal(self, number: int, record: TraceRecord, what: str, gateware: int, model: int) -> None:
        if gateware != model:
            self._differ(number, record, f"{what}: gateware {gateware:#x}, model {model:#x}")

    def _differ(self, number: int, record: TraceRecord, text: str) -> None:
        raise Divergence(
            f"record {number} ({TraceKind(record.kind).name} at {record.time_ps} ps, QP {record.qp}, plane "
            f"{record.plane}, PSN {record.psn:#08x}, detail {record.detail:#x}): {text}; "
            f"{self._answers.state(record.qp)}"
        )
