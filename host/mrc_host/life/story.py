"""Puts together what happened to a packet, step by step, and why.

Source: design.md 7; profile.md 3, 4 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mrc_host.experiment.nic_events import EvChange
from mrc_host.experiment.nics import NicFactory
from mrc_host.experiment.testbed import Testbed
from mrc_host.fabric.packet import QueueClass
from mrc_host.fabric.topology import Topology
from mrc_host.life.find import Found, find_packet, recorded_copies
from mrc_host.life.probe import Copy, Hop, PacketProbe, Target
from mrc_host.life.rerun import Instruments, rerun
from mrc_host.model.ev_set import PathState
from mrc_host.nic.base import TraceRecord
from mrc_host.results import Run
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.records import PortCounter, TraceKind
from mrc_rtl.wire import EV, GAP_PREAMBLE_FCS_BYTES, Mark, NackReason, Opcode

__all__ = ["Life", "Step", "why"]

MARGIN_PS = 50_000_000
"""How long a run is carried out again behind the last moment at which the packet was named."""


@dataclass(frozen=True)
class Step:
    """Something that happened.

    Parameters
    ----------
    time_ps : int
        After the start of the run.
    place : str
        NIC, port or link.
    text : str
        What happened, and why where that is known.
    kind : str
        sent, waits, trimmed, marked, lost, arrived, decided, answer, path: for scripts.
    """

    time_ps: int
    place: str
    text: str
    kind: str


@dataclass
class Life:
    """A packet's life.

    Parameters
    ----------
    found : Found
    copies : list of Copy
        Transmissions and answers.
    steps : list of Step
        In order of time.
    complete : bool
        Queues were looked at; otherwise only what the run had recorded.
    repeated : bool
        The run, carried out again, sent the packet at the recorded times; False casts doubt on the queues.
    """

    found: Found
    copies: list[Copy]
    steps: list[Step]
    complete: bool
    repeated: bool = True

    @property
    def transmissions(self) -> list[Copy]:
        """Copies of the packet itself."""
        return [copy for copy in self.copies if copy.is_data]

    @property
    def delivered_ps(self) -> int | None:
        """When it arrived intact for the first time."""
        times = [
            copy.arrived_ps
            for copy in self.transmissions
            if copy.arrived_ps is not None and not copy.arrived_trimmed
        ]
        return min(times, default=None)

    @property
    def summary(self) -> str:
        """The whole in a sentence."""
        copies = self.transmissions
        first = copies[0].sent_ps
        trimmed = sum(copy.arrived_trimmed for copy in copies)
        gone = sum(copy.arrived_ps is None for copy in copies)
        waited = sum(_waited_ps(hop) for copy in copies for hop in copy.hops)
        parts = [f"sent {_times(len(copies))}"]
        parts += [f"cut {_times(trimmed)}"] if trimmed else []
        parts += [f"never arrived {_times(gone)}"] if gone else []
        delivered = self.delivered_ps
        if delivered is None:
            parts.append("has not arrived intact")
        else:
            parts.append(f"arrived intact {(delivered - first) / 1e6:.3f} µs after it was first sent")
        if self.complete:
            parts.append(f"waited {waited / 1e6:.3f} µs in queues of switches")
        return ", ".join(parts)


@dataclass
class _Decisions:
    """Trace records about the packet, and changes of the paths of its QP."""

    target: Target
    records: list[tuple[int, TraceRecord]] = field(default_factory=list)
    changes: list[EvChange] = field(default_factory=list)

    def note(self, host: int, records: Sequence[TraceRecord]) -> None:
        target = self.target
        for record in records:
            qp = record.qp + QP_NUMBER_BASE
            if record.kind == TraceKind.EV_CHANGE:
                if host == target.source and qp == target.source_qp:
                    ev, old, new = (
                        record.detail & 0xFFFF_FFFF,
                        record.detail >> 32 & 15,
                        record.detail >> 36 & 15,
                    )
                    self.changes.append(
                        EvChange(record.time_ps, host, record.qp, record.plane, record.psn, ev, old, new)
                    )
            elif record.psn == target.psn and (host, qp) in (
                (target.source, target.source_qp),
                (target.target, target.target_qp),
            ):
                self.records.append((host, record))


def why(
    run: Run,
    qp: str,
    psn: int,
    *,
    again: bool = True,
    factory: NicFactory | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Life:
    """Tell what happened to a packet.

    Parameters
    ----------
    run : Run
    qp : str
        Number of the sender's QP; ``h0:0x100`` with its host.
    psn : int
    again : bool
        Carry the run out once more, up to the end of the packet's life, to see queues and decisions.
        Otherwise only what was recorded is told.
    factory : callable, optional
        Makes the NICs again, where they were neither gateware nor models.
    progress : callable
        Gets a line for each step of a build.

    Raises
    ------
    MrcError
        There is no such packet, or the run's NICs cannot be made again.
    """
    found = find_packet(run, qp, psn)
    topology = run.experiment.topology()
    recorded = recorded_copies(run, found.target)
    decisions = _Decisions(found.target)
    if not again:
        return Life(found, recorded, _steps(run, found, topology, recorded, decisions, None), complete=False)
    probe = PacketProbe(found.target)
    beds: list[Testbed] = []

    def attach(testbed: Testbed) -> None:
        beds.append(testbed)
        probe.attach(testbed)

    start_ps = rerun(
        run,
        Instruments(attach, decisions.note),
        until_ps=found.last_ps + MARGIN_PS,
        factory=factory,
        progress=progress,
    )
    _shift(probe.copies, decisions, start_ps)
    before = [copy.sent_ps for copy in recorded if copy.is_data]
    now = [copy.sent_ps for copy in probe.copies if copy.is_data]
    steps = _steps(run, found, topology, probe.copies, decisions, _Losses(beds[0], start_ps))
    return Life(found, probe.copies, steps, complete=True, repeated=before == now[: len(before)])


class _Losses:
    """Says which fault was at work where a packet vanished."""

    def __init__(self, testbed: Testbed, start_ps: int) -> None:
        self._faults = testbed.faults.faults
        self._start_ps = start_ps

    def at(self, port: int, begin_ps: int, end_ps: int) -> str:
        """Name the faults that acted on a direction between two times after the start: an outage takes all
        that has a bit on the link.
        """
        begin_ps, end_ps = begin_ps + self._start_ps, end_ps + self._start_ps
        names = [
            f"{fault.spec.kind.replace('_', ' ')} on {fault.spec.place_text}"
            for fault in self._faults
            if port in fault.sites and fault.begin_ps <= end_ps and begin_ps < fault.end_ps
        ]
        return " and ".join(names)


def _shift(copies: list[Copy], decisions: _Decisions, start_ps: int) -> None:
    """Count all times from the start of the run."""
    for copy in copies:
        copy.sent_ps -= start_ps
        copy.arrived_ps = None if copy.arrived_ps is None else copy.arrived_ps - start_ps
        for hop in copy.hops:
            hop.arrived_ps -= start_ps
            hop.began_ps = None if hop.began_ps is None else hop.began_ps - start_ps
    copies.sort(key=lambda copy: copy.sent_ps)
    decisions.records = [
        (host, record._replace(time_ps=record.time_ps - start_ps)) for host, record in decisions.records
    ]
    decisions.changes = [change._replace(time_ps=change.time_ps - start_ps) for change in decisions.changes]


def _steps(
    run: Run,
    found: Found,
    topology: Topology,
    copies: list[Copy],
    decisions: _Decisions,
    losses: _Losses | None,
) -> list[Step]:
    steps = _posting(run, found)
    for copy in copies:
        steps += _journey(found, topology, copy, losses)
    steps += [_decision(host, record) for host, record in decisions.records if _told(record)]
    steps += _paths(copies, decisions, steps)
    return sorted(steps, key=lambda step: step.time_ps)


def _posting(run: Run, found: Found) -> list[Step]:
    if len(found.flows) != 1 or found.message < 0:
        return []
    messages = run.columns("messages")
    row = (messages["flow"] == found.flows[0]) & (messages["message"] == found.message)
    if not row.any():
        return []
    size, posted, last = (messages[name][row][0] for name in ("bytes", "posted_ps", "last_byte_ps"))
    text = (
        f"doorbell of message {found.message}, {int(size):,} bytes, "
        f"of which this packet carries {found.payload_bytes:,}"
    )
    steps = [Step(int(posted), f"h{found.target.source}", text, "decided")]
    if last == last:  # not NaN: the message was completed
        where = f"h{found.target.target}"
        steps.append(
            Step(int(last), where, f"the last byte of message {found.message} is in memory", "decided")
        )
    return steps


def _journey(found: Found, topology: Topology, copy: Copy, losses: _Losses | None) -> list[Step]:
    """Return the steps of a copy from port to port."""
    name = Opcode(copy.opcode).name
    target = found.target
    forth = copy.is_data
    source, end = (target.source, target.target) if forth else (target.target, target.source)
    kind = "sent" if forth else "answer"
    what = f"{name}, sent again" if copy.retransmission and forth else name
    words = [f"{what} leaves, {copy.size} bytes, EV {copy.ev:#010x}"]
    if forth and not topology.same_t0(source, end):
        words.append(f"over T1 {copy.ev >> EV.shift('uplink') & EV['uplink'].mask}")
    words += _answer_words(copy)
    steps = [Step(copy.sent_ps, f"h{source}.p{copy.plane}", ", ".join(words), kind)]
    for hop in copy.hops:
        steps += _hop(topology, hop, name)
    if copy.arrived_ps is not None:
        state = "arrives cut: its headers only" if copy.arrived_trimmed and forth else "arrives"
        steps.append(
            Step(
                copy.arrived_ps, f"h{end}.p{copy.plane}", f"{name} {state}", "arrived" if forth else "answer"
            )
        )
    else:
        steps.append(_vanished(topology, copy, source, name, losses))
    return steps


def _answer_words(copy: Copy) -> list[str]:
    if copy.opcode == Opcode.NACK:
        known = copy.reason in NackReason._value2member_map_
        return (
            [NackReason(copy.reason).name if known else f"reason {copy.reason:#04x}"] if copy.reason else []
        )
    if copy.opcode == Opcode.SACK:
        mark = f", mark {Mark(copy.mark).name}" if copy.mark else ""
        return [f"covers all up to {copy.cumulative:#08x} and this packet{mark}"]
    if copy.opcode == Opcode.ACKNOWLEDGE:
        return [f"up to {copy.cumulative:#08x}"]
    return []


def _hop(topology: Topology, hop: Hop, name: str) -> list[Step]:
    half = topology.directions[hop.port]
    control, again, data = hop.waiting
    queues = f"control {control:,} B, retransmissions {again:,} B, data {data:,} B wait"
    steps = []
    waited = _waited_ps(hop)
    if hop.trimmed:
        limit = topology.trim_threshold_bytes(half)
        own = QueueClass(hop.queue).name.lower()
        text = f"{name} finds {queues}: the queue of {own} may hold {limit:,} B, so it is cut"
        steps.append(Step(hop.arrived_ps, half.source_port, text, "trimmed"))
        if hop.began_ps is not None:
            text = f"its headers leave after {waited / 1e6:.3f} µs in the control queue"
            steps.append(Step(hop.began_ps, half.source_port, text, "waits"))
    elif hop.began_ps is not None:
        text = (
            f"{name} goes through at once" if not waited else f"{name} waits {waited / 1e6:.3f} µs; {queues}"
        )
        steps.append(Step(hop.arrived_ps, half.source_port, text, "waits"))
    if hop.marked and hop.began_ps is not None:
        steps.append(Step(hop.began_ps, half.source_port, f"{name} is marked with CE", "marked"))
    return steps


def _vanished(topology: Topology, copy: Copy, source: int, name: str, losses: _Losses | None) -> Step:
    """Say where a copy was last seen, and what took it."""
    if losses is None:
        return Step(copy.sent_ps, f"h{source}.p{copy.plane}", f"{name} never arrives", "lost")
    if not copy.hops:
        half = topology.host_link(source, copy.plane).up
        time_ps, verb = copy.sent_ps, f"{name} is lost on the link {half.name}"
    else:
        hop = copy.hops[-1]
        half = topology.directions[hop.port]
        if hop.began_ps is None:
            queue = QueueClass(hop.queue).name.lower()
            text = f"{name} is dropped: {sum(hop.waiting):,} B wait, no room in the queue of {queue}"
            cause = losses.at(hop.port, hop.arrived_ps, hop.arrived_ps)
            return Step(hop.arrived_ps, half.source_port, text + (f" ({cause})" if cause else ""), "lost")
        time_ps, verb = hop.began_ps, f"{name} is lost on the link {half.name}"
    slot_ps = int((copy.size + GAP_PREAMBLE_FCS_BYTES) * half.byte_ps)
    cause = losses.at(half.number, time_ps - slot_ps, time_ps + slot_ps + half.delay_ps)
    return Step(time_ps, half.source_port, verb + (f": {cause}" if cause else ""), "lost")


def _told(record: TraceRecord) -> bool:
    return record.kind in (TraceKind.LOSS, TraceKind.TIMER, TraceKind.ADMIT, TraceKind.PLACE)


def _decision(host: int, record: TraceRecord) -> Step:
    place, detail = f"h{host}", record.detail
    if record.kind == TraceKind.LOSS:
        text = "taken for lost: " + (
            "the retransmission timer ran out"
            if detail >> 16 & 1
            else "what was sent later has been acknowledged, and the reordering window is over"
        )
        return Step(record.time_ps, place, text, "decided")
    if record.kind == TraceKind.TIMER:
        return Step(
            record.time_ps,
            place,
            f"retransmission timer ran out, attempt {detail & 31}, oldest missing",
            "decided",
        )
    if record.kind == TraceKind.ADMIT:
        outcome = detail & 0xFF
        known = outcome in PortCounter._value2member_map_
        word = PortCounter(outcome).name.lower().replace("_", " ") if known else f"outcome {outcome}"
        expected = detail >> 16 & 0xFF_FFFF
        return Step(
            record.time_ps, place, f"admission: {word}; the next PSN in order is {expected:#08x}", "decided"
        )
    expected, above = detail & 0xFF_FFFF, detail >> 24 & 0xFFFF
    text = (
        f"payload is in memory; the next PSN in order is {expected:#08x}, "
        f"{above} packets beyond it have arrived"
    )
    return Step(record.time_ps, place, text, "decided")


def _paths(copies: list[Copy], decisions: _Decisions, steps: list[Step]) -> list[Step]:
    """Return the changes of its paths that its own fate caused, and those of a path before a transmission."""
    evs = {(copy.plane, copy.ev) for copy in copies if copy.is_data}
    causes = [step.time_ps for step in steps if step.kind == "decided"]
    causes += [copy.arrived_ps for copy in copies if not copy.is_data and copy.arrived_ps is not None]
    begin = min((copy.sent_ps for copy in copies), default=0)
    end = max([*causes, *(copy.arrived_ps or copy.sent_ps for copy in copies)], default=0) + MARGIN_PS // 10
    return [
        Step(
            change.time_ps,
            f"h{change.host}",
            f"EV {change.ev:#010x} of plane {change.plane}: {_state(change.old)} → {_state(change.new)}",
            "path",
        )
        for change in decisions.changes
        if (change.plane, change.ev) in evs and begin <= change.time_ps <= end
    ]


def _state(number: int) -> str:
    return PathState(number).name if number in PathState._value2member_map_ else str(number)


def _waited_ps(hop: Hop) -> int:
    return 0 if hop.began_ps is None else hop.began_ps - hop.arrived_ps


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
