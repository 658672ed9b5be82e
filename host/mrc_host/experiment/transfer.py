"""The application of an experiment: sends flows message by message, receives them, and checks every byte.

One :class:`Transfer` runs on each host. It prepares its buffers before the run (:meth:`Transfer.prepare`),
keeps ``outstanding_messages`` of each outgoing flow posted while it runs, and compares memory afterwards
(:meth:`Transfer.verify`). Flows are shared between their two hosts, as software would do over a socket.

Source: profile.md 7 and 10; design.md 5.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from mrc_host.experiment.application import Application, Host
from mrc_host.experiment.pattern import GUARD_BYTES, guard_pattern, message_pattern
from mrc_host.experiment.phases import Phases
from mrc_host.experiment.workload import Flow
from mrc_host.nic.device import (
    Access,
    AsyncEvent,
    Buffer,
    CompletionQueue,
    Context,
    EventKind,
    MemoryRegion,
    ProtectionDomain,
    QueuePair,
    WorkCompletion,
    WorkRequestOpcode,
)

__all__ = ["FlowState", "Message", "Transfer", "Verification", "memory_bytes"]

MESSAGE_BITS = 32
ALIGNMENT = 4096
SEND_ZONE, RECEIVE_ZONE = 0, 1


@dataclass(slots=True)
class Message:
    """What happened to a message; all times in picoseconds, None while it has not happened.

    Parameters
    ----------
    posted_ps : int
        Software began to write the work request and its doorbell.
    last_byte_ps : int
        The receiver's memory answered the write of its last byte.
    sender_done_ps, receiver_done_ps : int
        Its completion is in memory, at the sender and (write_imm) at the receiver.
    """

    posted_ps: int | None = None
    last_byte_ps: int | None = None
    sender_done_ps: int | None = None
    receiver_done_ps: int | None = None


@dataclass
class FlowState:
    """A flow while it runs.

    Parameters
    ----------
    flow : Flow
        What is to be sent.
    outstanding : int
        Messages posted and not completed at most.
    messages : list of Message
        By number.
    sender, receiver : QueuePair
        Its ends; set when they are connected.
    source, target : Buffer
        Where all its messages come from and go to, one behind the other.
    source_region, target_region : MemoryRegion
        Regions that cover the buffers.
    posted, sent, received : int
        Messages posted, completed at the sender, completed at the receiver.
    offsets : list of int
        Where each message begins in the buffers.
    immediates : int
        Messages that complete at the receiver as well.
    failure : str
        Why it was given up; empty while all is well.
    """

    flow: Flow
    outstanding: int
    messages: list[Message] = field(default_factory=list)
    sender: QueuePair | None = None
    receiver: QueuePair | None = None
    source: Buffer | None = None
    target: Buffer | None = None
    source_region: MemoryRegion | None = None
    target_region: MemoryRegion | None = None
    posted: int = 0
    sent: int = 0
    received: int = 0
    receives_posted: int = 0
    failure: str = ""

    def __post_init__(self) -> None:
        plan = self.flow.plan
        self.messages = [Message() for _ in plan]
        self.offsets = [0, *accumulate(message.bytes for message in plan)][:-1]
        self.immediates = sum(message.immediate for message in plan)

    @property
    def done(self) -> bool:
        """Whether nothing more will happen."""
        complete = self.sent == len(self.messages) and self.received == self.immediates
        return complete or bool(self.failure)

    @property
    def completed_messages(self) -> list[int]:
        """Numbers of the messages that completed at both ends."""
        return [
            number
            for number, message in enumerate(self.messages)
            if message.sender_done_ps is not None
            and (message.receiver_done_ps is not None or not self.flow.plan[number].immediate)
        ]


@dataclass(frozen=True)
class Verification:
    """What the comparison of a host's memory found.

    Parameters
    ----------
    verified, mismatched : int
        Bytes of completed messages that are right and wrong.
    disturbed : int
        Bytes that changed where nothing may be written.
    """

    verified: int
    mismatched: int
    disturbed: int


def memory_bytes(flows: list[Flow], host: int, rings: int) -> int:
    """Return the host memory a host needs for its buffers, guards and completion rings."""
    at_host = [flow for flow in flows if host in (flow.source, flow.target)]
    buffers = sum(-(-flow.bytes // ALIGNMENT) * ALIGNMENT + 2 * GUARD_BYTES for flow in at_host)
    return buffers + rings + 16 * ALIGNMENT


class Transfer(Application):
    """The application on one host.

    Parameters
    ----------
    host : int
        Its number.
    seed : int
        Seed of the run, for the patterns.
    states : list of FlowState
        All flows of the run; those that begin or end here are its own.
    phases : Phases
        What messages wait for, shared by all hosts.
    """

    def __init__(self, host: int, seed: int, states: list[FlowState], phases: Phases) -> None:
        self.number = host
        self.seed = seed
        self.phases = phases
        self.outgoing = [state for state in states if state.flow.source == host]
        self.incoming = [state for state in states if state.flow.target == host]
        self.unexpected_completions = 0
        self.events: list[AsyncEvent] = []
        self._latency_ps = 0
        self._start_ps = 0
        self._guards: list[tuple[int, Buffer]] = []
        self._top = 0
        self._memory: npt.NDArray[np.uint8] | None = None

    # -- before the run ----------------------------------------------------------------------------------

    def prepare(self, context: Context, domain: ProtectionDomain) -> None:
        """Allocate, fill and register the buffers of all flows of this host, and watch the incoming ones."""
        self._memory = context.nic.memory
        remote = Access.LOCAL_WRITE | Access.REMOTE_WRITE
        for state in self.outgoing:
            state.source = self._guarded(context, state.flow, SEND_ZONE)
            for number in range(state.flow.messages):
                self._part(state, state.source, number)[:] = self._pattern(state, number)
            state.source_region = domain.register(state.source)
        for state in self.incoming:
            state.target = self._guarded(context, state.flow, RECEIVE_ZONE)
            state.target.data[:] = 0
            state.target_region = domain.register(state.target, remote)
            if state.flow.bytes:
                context.nic.watch(_watch_tag(state), state.target.bus_address, state.flow.bytes)

    def post_receives(self) -> None:
        """Post as many receives as the queue pairs take, at once."""
        for state in self.incoming:
            assert state.receiver is not None
            depth = state.receiver.context.capabilities.receive_queue_depth
            for _ in range(min(depth, state.immediates)):
                self._post_receive(state)

    def _guarded(self, context: Context, flow: Flow, zone: int) -> Buffer:
        """Allocate a buffer between two guard zones."""
        block = context.allocator.allocate(flow.bytes + 2 * GUARD_BYTES, ALIGNMENT)
        for end, offset in enumerate((0, GUARD_BYTES + flow.bytes)):
            number = flow.number << 2 | zone << 1 | end
            guard = block.part(offset, GUARD_BYTES)
            guard.data[:] = guard_pattern(self.seed, number)
            self._guards.append((number, guard))
        return block.part(GUARD_BYTES, flow.bytes)

    def _part(self, state: FlowState, buffer: Buffer, number: int) -> npt.NDArray[np.uint8]:
        offset = state.offsets[number]
        return buffer.data[offset : offset + state.flow.plan[number].bytes]

    def _pattern(self, state: FlowState, number: int) -> npt.NDArray[np.uint8]:
        return message_pattern(self.seed, state.flow.number, number, state.flow.plan[number].bytes)

    # -- while it runs -----------------------------------------------------------------------------------

    def start(self, time_ps: int, host: Host) -> None:
        """Post the first messages of every outgoing flow, the flows taking turns; others have their times."""
        # Everything was allocated from the bottom up: nothing may ever be written from here on.
        self._top = host.context.allocator.allocate(1, ALIGNMENT).bus_address
        self._latency_ps = host.latency_ps
        self._start_ps = time_ps
        self.phases.begin(time_ps, lambda opened_ps: host.schedule(opened_ps, self._post_due))
        for _ in range(max((state.outstanding for state in self.outgoing), default=0)):
            for state in self.outgoing:
                if self._may_post(state, time_ps):
                    self._post(state, time_ps)
        times = {message.after_ps for state in self.outgoing for message in state.flow.plan}
        for after_ps in sorted(times - {0}):
            host.schedule(time_ps + after_ps, self._post_due)

    def on_completion(self, time_ps: int, queue: CompletionQueue, completion: WorkCompletion) -> None:
        """Note when a message completed, and post the next one."""
        if completion.opcode is WorkRequestOpcode.RECEIVE_IMM:
            self._on_received(time_ps, completion)
        else:
            self._on_sent(time_ps, completion)

    def on_event(self, time_ps: int, event: AsyncEvent) -> None:
        """Give up the flows of a queue pair that went to ERROR."""
        self.events.append(event)
        if event.kind is not EventKind.QP_ERROR or event.reason is None:
            return
        for state in (*self.outgoing, *self.incoming):
            pair = state.sender if state in self.outgoing else state.receiver
            if pair is not None and pair.number == event.qp_number and not state.done:
                state.failure = f"host {self.number}: {event.reason.name.lower().replace('_', ' ')}"

    @property
    def done(self) -> bool:
        """Whether all flows of this host are complete or given up."""
        return all(state.done for state in (*self.outgoing, *self.incoming))

    def _may_post(self, state: FlowState, time_ps: int) -> bool:
        """Whether the next message of a flow may be posted now."""
        return (
            state.posted < len(state.messages)
            and state.posted - state.sent < state.outstanding
            and state.flow.plan[state.posted].after_ps <= time_ps - self._start_ps
            and self.phases.allows(state.flow.plan[state.posted], time_ps)
            and not state.failure
        )

    def _post_due(self, time_ps: int) -> None:
        """Post what may be posted since now."""
        for state in self.outgoing:
            while self._may_post(state, time_ps):
                self._post(state, time_ps)

    def _post(self, state: FlowState, time_ps: int) -> None:
        assert state.sender and state.source and state.target and state.source_region and state.target_region
        number = state.posted
        plan, offset = state.flow.plan[number], state.offsets[number]
        size = plan.bytes
        wr_id = state.flow.number << MESSAGE_BITS | number
        state.messages[number].posted_ps = time_ps + self._latency_ps
        state.posted += 1
        if plan.immediate:
            state.sender.write_imm(
                wr_id,
                local_address=state.source.address + offset,
                lkey=state.source_region.lkey,
                length=size,
                remote_address=state.target.address + offset,
                rkey=state.target_region.rkey,
                immediate=number,
            )
        else:
            state.sender.write(
                wr_id,
                local_address=state.source.address + offset,
                lkey=state.source_region.lkey,
                length=size,
                remote_address=state.target.address + offset,
                rkey=state.target_region.rkey,
            )

    def _post_receive(self, state: FlowState) -> None:
        assert state.receiver is not None
        state.receiver.post_recv(state.flow.number << MESSAGE_BITS | state.receives_posted)
        state.receives_posted += 1

    def _on_sent(self, time_ps: int, completion: WorkCompletion) -> None:
        flow, number = divmod(completion.wr_id, 1 << MESSAGE_BITS)
        state = next((state for state in self.outgoing if state.flow.number == flow), None)
        if state is None or number >= state.posted or state.messages[number].sender_done_ps is not None:
            self.unexpected_completions += 1
            return
        if not completion.ok:
            state.failure = state.failure or f"host {self.number}: {_words(completion)}"
            return
        state.messages[number].sender_done_ps = time_ps
        state.sent += 1
        if not state.flow.plan[number].immediate:
            self.phases.arrived(state.flow.plan[number])
            self.phases.completed(state.flow.plan[number], time_ps)
        while self._may_post(state, time_ps):
            self._post(state, time_ps)

    def _on_received(self, time_ps: int, completion: WorkCompletion) -> None:
        state = next(
            (
                state
                for state in self.incoming
                if state.receiver is not None and state.receiver.number == completion.qp_number
            ),
            None,
        )
        if state is not None and not completion.ok:
            state.failure = state.failure or f"host {self.number}: {_words(completion)}"
            return
        number = completion.immediate
        if (
            state is None
            or number >= len(state.messages)
            or not state.flow.plan[number].immediate
            or state.messages[number].receiver_done_ps is not None
            or completion.byte_length != state.flow.plan[number].bytes
        ):
            self.unexpected_completions += 1
            return
        state.messages[number].receiver_done_ps = time_ps
        state.received += 1
        self.phases.arrived(state.flow.plan[number])
        self.phases.completed(state.flow.plan[number], time_ps)
        if state.flow.plan[number].key >= 0:
            self._post_due(time_ps)
        if state.receives_posted < state.immediates and not state.failure:
            self._post_receive(state)

    def note_write(self, tag: int, time_ps: int, address: int, length: int) -> None:
        """Take note of a write of the engine into the buffer of an incoming flow.

        Parameters
        ----------
        tag : int
            Of the watch.
        time_ps : int
            When memory answered.
        address, length : int
            On the memory bus.
        """
        state = next((state for state in self.incoming if _watch_tag(state) == tag), None)
        if state is None or state.target is None:
            return
        begin = max(0, address - state.target.bus_address)
        end = min(state.target.length, address + length - state.target.bus_address)
        first = bisect_right(state.offsets, begin) - 1
        for number in range(first, bisect_right(state.offsets, end - 1)):
            before = state.messages[number].last_byte_ps or 0
            state.messages[number].last_byte_ps = max(before, time_ps)

    # -- after the run -----------------------------------------------------------------------------------

    def verify(self) -> Verification:
        """Compare every byte of the completed incoming messages, and all memory that must not change."""
        verified = mismatched = disturbed = 0
        for state in self.incoming:
            assert state.target is not None
            for number in state.completed_messages:
                wrong = np.count_nonzero(
                    self._part(state, state.target, number) != self._pattern(state, number)
                )
                mismatched += int(wrong)
                verified += state.flow.plan[number].bytes - int(wrong)
        for state in self.outgoing:
            assert state.source is not None
            for number in range(state.flow.messages):
                content = self._part(state, state.source, number)
                disturbed += int(np.count_nonzero(content != self._pattern(state, number)))
        for number, guard in self._guards:
            disturbed += int(np.count_nonzero(guard.data != guard_pattern(self.seed, number)))
        assert self._memory is not None
        disturbed += int(np.count_nonzero(self._memory[self._top :]))
        return Verification(verified, mismatched, disturbed)


def _watch_tag(state: FlowState) -> int:
    """Return the tag of the watch on a flow's buffer; completion queues have the tags below."""
    return 1 << 16 | state.flow.number


def _words(completion: WorkCompletion) -> str:
    return completion.status.name.lower().replace("_", " ")
