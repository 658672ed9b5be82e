"""The shell of the model: what stands between requester, responder and the outside.

Source: :mod:`mrc_host.model.shell`; profile.md 1, 5 and 7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from mrc_host.fabric.heap import PacketList
from mrc_host.fabric.packet import Packet
from mrc_host.model.agenda import (
    ACCESS,
    ARRIVAL,
    CALL,
    ENTRY,
    INSIDE,
    LINK,
    PLACEMENT,
    RECEIVED,
    ROOM,
    TIMER,
    Agenda,
    Call,
)  # fmt: skip
from mrc_host.model.encoder import FrameEncoder
from mrc_host.model.frames import PortReceiver
from mrc_host.model.memory_port import MemoryPort
from mrc_host.model.notices import Notices
from mrc_host.model.options import ModelOptions
from mrc_host.model.packet import ModelPacket
from mrc_host.model.ports import Port
from mrc_host.model.regions import HostMemory, MemoryRegions
from mrc_host.model.registers import OKAY, WAIT, CommandPort, RegisterBlock
from mrc_host.model.responder import ModelResponder
from mrc_host.model.rings import CompletionRings, completion_entry
from mrc_host.model.shell import Requester, Settings, Shell
from mrc_host.model.table_commands import TableCommands
from mrc_host.model.templates import Template, TemplateTable
from mrc_host.nic.base import Frame, TraceRecord, Watch
from mrc_host.nic.options import MacOptions, MemoryOptions, byte_time
from mrc_rtl.config import QP_NUMBER_BASE, NicConfig
from mrc_rtl.records import PORT_COUNTERS, GlobalCounter, PortCounter, TraceKind
from mrc_rtl.tables import EventKind, QpErrorReason, QpState
from mrc_rtl.wire import Opcode

__all__ = ["Access", "ModelEngine", "RequesterFactory"]

TRANSMIT_CYCLES: Final = 24
"""From the choice of path to the first bit: header, payload and ICRC of the frame."""
RECEIVE_CYCLES: Final = 24
"""From the last bit to the decision about the packet."""
_GLOBAL_COUNTERS: Final = 16
_ANSWERS: Final = tuple(
    opcode in (Opcode.SACK, Opcode.NACK, Opcode.ACKNOWLEDGE, Opcode.ENDPOINT_RESPONSE)
    for opcode in range(256)
)
_TX_FRAMES: Final = int(PortCounter.TX_FRAMES)
_TX_CONTROL: Final = int(PortCounter.TX_CONTROL)
_TX_RETRANSMISSIONS: Final = int(PortCounter.TX_RETRANSMISSIONS)
_TX_DATA: Final = int(PortCounter.TX_DATA)
_RX_FRAMES: Final = int(PortCounter.RX_FRAMES)
_ALWAYS: Final = tuple(
    kind in (TraceKind.LOSS, TraceKind.EV_CHANGE, TraceKind.TIMER, TraceKind.WINDOW) for kind in range(16)
)
"""Kinds of trace records that are rare enough to be reported whether or not tracing is on."""
_PORT_COUNTERS: Final = int(PORT_COUNTERS)

RequesterFactory = Callable[[Shell, ModelOptions], Requester]
"""Makes the requester of an engine."""


class Access:
    """A register access; ``tag`` is that of a read, −1 for a write. ``response`` comes with the answer."""

    __slots__ = ("address", "response", "tag", "time_ps", "value", "write")

    def __init__(self, address: int, value: int, tag: int, write: bool) -> None:
        self.address: int = address
        self.value: int = value
        self.tag: int = tag
        self.write: bool = write
        self.response: int = WAIT
        self.time_ps: int = 0


class ModelEngine(Shell, CommandPort):
    """Ports, registers, tables, memory and time of one model NIC.

    Parameters
    ----------
    config : NicConfig
    mac : MacOptions
    memory : MemoryOptions
    options : ModelOptions
    seed : int
    make_requester : callable
        The requester.
    answered : callable
        Gets each register access when it has been carried out.

    Attributes
    ----------
    agenda : Agenda
    ports : list of Port
    memory : HostMemory
    watches, traces, interrupts : lists
        What happened, in order of time, taken out by the NIC.
    counters : list of int
    objects : bool
        Packets leave as objects.
    """

    def __init__(
        self,
        config: NicConfig,
        mac: MacOptions,
        memory: MemoryOptions,
        options: ModelOptions,
        seed: int,
        make_requester: RequesterFactory,
        answered: Callable[[Access], None],
    ) -> None:
        planes = config.planes
        self.config = config
        self.now_ps: i64 = 0
        self.seed = seed
        self.settings = Settings(planes)
        self.read_failure: int = int(QpErrorReason.LOCAL_PROTECTION)
        self.agenda = Agenda()
        byte_ps = byte_time(config, mac)
        self._byte_ps: i64 = round(byte_ps)
        self._receive_ps: i64 = RECEIVE_CYCLES * config.clock_ps
        latency = TRANSMIT_CYCLES * config.clock_ps
        self.ports: list[Port] = [Port(p, byte_ps, latency) for p in range(planes)]
        self._rooms: i64 = (1 << planes) - 1
        self._room_calls: list[Call] = [Call(ROOM, plane) for plane in range(planes)]
        self._arrivals: list[Call] = [Call(ARRIVAL, plane) for plane in range(planes)]
        self._arriving: list[PacketList] = [PacketList() for _ in range(planes)]
        self._trace: bool = config.trace
        self._encoders = [FrameEncoder(p, self.settings, options) for p in range(planes)]
        self._decoders = [PortReceiver(p, self.settings, options, config.mtu) for p in range(planes)]
        self.memory = HostMemory(memory.size)
        self._memory_port = MemoryPort(memory, config.clock_ps, self.agenda)
        self.regions = MemoryRegions(config.memory_regions)
        self.rings = CompletionRings(config.completion_queues)
        self.notices = Notices(config, options.service_time)
        self._entries: deque[tuple[int, bytes]] = deque()
        self._templates = TemplateTable(config.qps)
        self.counters: vec[i64] = vec[i64]([0] * (planes * PORT_COUNTERS + _GLOBAL_COUNTERS))
        self._global_at: i64 = planes * PORT_COUNTERS
        self.watches: list[Watch] = []
        self.traces: list[TraceRecord] = []
        self.interrupts: list[int] = []
        self._accesses: deque[Access] = deque()
        self._answered = answered
        self.objects: bool = False
        self.responder = ModelResponder(
            self, options, self.regions, self.memory, self._memory_port, self.watches, seed
        )
        self.requester = make_requester(self, options)
        self.responder.attach(self.requester)
        self.registers = RegisterBlock(config, self.settings, self)
        self._commands = TableCommands(
            config,
            self.regions,
            self.rings,
            self._templates,
            self.notices,
            self.responder,
            self.requester,
            self.counters,
            self.registers.finish_command,
        )

    # -- time --------------------------------------------------------------------------------------------

    def run(self, until_ps: int) -> None:
        """Carry out everything before a time."""
        agenda, requester, commands = self.agenda, self.requester, self._commands
        until: i64 = until_ps
        while agenda.count:
            call = agenda.first()
            if call.time >= until:
                break
            self.now_ps = call.time
            if call.kind == ARRIVAL:
                self._packet_arrived(call)
            else:
                self.carry_out(agenda.take())
            if commands.waiting:
                commands.retry()
            if self._accesses:
                self._carry_out()
            requester.pump()
        self.now_ps = until_ps

    def carry_out(self, call: Call) -> None:
        """Carry out a call that was taken from the agenda."""
        kind: i64 = call.kind
        if kind == ROOM:
            # The requester is pumped behind every call, so that there is nothing more to do.
            self._rooms |= 1 << call.plane
            return
        callback, argument = call.callback, call.argument
        self.agenda.free(call)
        if kind == PLACEMENT:
            self.responder.memory_answered()
        elif kind == ENTRY:
            self._entry_written()
        else:
            assert kind == CALL and callback is not None
            callback(argument)

    def schedule(self, time_ps: i64, callback: Callable[[int], None], argument: int) -> None:
        """Call ``callback(argument)`` once at a time (not before now)."""
        self.agenda.enter(time_ps if time_ps > self.now_ps else self.now_ps, TIMER, callback, argument)

    # -- registers ---------------------------------------------------------------------------------------

    def access(self, time_ps: int, access: Access) -> None:
        """Carry out a register access at a time, behind those that wait for a table command."""
        self.agenda.enter(time_ps, ACCESS, self._accesses.append, access)

    def _carry_out(self) -> None:
        accesses, registers = self._accesses, self.registers
        while accesses:
            access = accesses[0]
            if access.write:
                response = registers.write(access.address, access.value)
            else:
                response = registers.read(access.address)
            if response == WAIT:
                return
            accesses.popleft()
            access.response, access.time_ps = response, int(self.now_ps)
            if not access.write:
                access.value = registers.value if response == OKAY else 0
            self._answered(access)

    def start_command(self, table: int, index: int, write: bool, words: list[int], count: int) -> None:
        """Begin a table command."""
        self._commands.start(table, index, write, words, count)

    def send_doorbell(self, qp: int, count: int) -> None:
        """Send requests were added."""
        self._commands.post(qp, count)

    def receive_doorbell(self, qp: int, count: int) -> None:
        """Receive requests were added."""
        self.responder.qps[qp].immediates.post(count)

    def move_consumer(self, queue: int, index: int) -> None:
        """The host has read completions of a queue up to an index."""
        self.rings[queue].consumer = index

    def settings_changed(self) -> None:
        """A setting has been written; ports may have been switched on or off."""
        for port in self.ports:
            allowed = self.settings.port_administration >> port.number & 1 == 1
            if allowed != port.administratively_up:
                before = port.up
                port.administratively_up = allowed
                if port.up != before:
                    self.requester.port_changed(port.number, port.up)

    def link_state(self) -> int:
        """Bit p: plane p has link."""
        return sum(port.link_up << port.number for port in self.ports)

    # -- ports -------------------------------------------------------------------------------------------

    def room(self, plane: i64) -> bool:
        """Whether the transmit FIFO of a plane takes one more frame of any size."""
        return self._rooms >> plane & 1 == 1

    def rooms(self) -> i64:
        """Bit p: plane p has room; a plane without has a call planned for when it has again."""
        return self._rooms

    def start_ps(self, plane: i64) -> i64:
        """When the first bit of a frame put into the transmit FIFO of a plane now would leave."""
        return self.ports[plane].start_ps(self.now_ps)

    def port_up(self, plane: i64) -> bool:
        """Whether a port has link and is administratively up."""
        return self.ports[plane].up

    def byte_time_ps(self, plane: int) -> int:
        """Picoseconds of a byte on a plane's line, rounded."""
        return int(self._byte_ps)

    def transmit(self, plane: i64, packet: ModelPacket) -> None:
        """Put a packet into the transmit FIFO of a plane; there must be room."""
        packet.plane = plane
        if _ANSWERS[packet.opcode]:
            self.responder.fill(packet)
        template = self._templates.rows[packet.qp] if packet.qp >= 0 else None
        port = self.ports[plane]
        encoder = self._encoders[plane]
        if self.objects:
            packet.seal(template, encoder, self.settings.own_address)
            port.send_packet(self.now_ps, packet)
        else:
            port.send(self.now_ps, encoder.encode(packet, template))
        counters = self.counters
        first: i64 = plane * _PORT_COUNTERS
        counters[first + _TX_FRAMES] += 1
        if not packet.is_write:
            counters[first + _TX_CONTROL] += 1
        elif packet.retransmission:
            counters[first + _TX_RETRANSMISSIONS] += 1
        else:
            counters[first + _TX_DATA] += 1
        bit: i64 = 1 << plane
        if self._rooms & bit and not port.room(self.now_ps):
            self._rooms &= ~bit
            self.agenda.plan(self._room_calls[plane], port.room_ps, INSIDE)

    def arrive(self, plane: int, time_first_bit_ps: int, frame: bytes, bad_fcs: bool) -> None:
        """A frame begins to arrive."""
        last_bit = int(self.ports[plane].arrive(time_first_bit_ps, len(frame)))
        self.agenda.enter(
            last_bit + self._receive_ps, RECEIVED + plane, self._received, (plane, last_bit, frame, bad_fcs)
        )

    def _received(self, item: tuple[int, int, bytes, bool]) -> None:
        plane, last_bit, frame, bad_fcs = item
        if self._takes_frame(plane):
            self._judged(plane, last_bit, self._decoders[plane].decode(frame, bad_fcs))

    def arrive_packet(self, plane: i64, time_first_bit_ps: i64, packet: ModelPacket) -> None:
        """A packet of another model begins to arrive."""
        packet.plane = plane
        received: i64 = self.ports[plane].arrive(time_first_bit_ps, packet.size)
        packet.received_ps = received
        line = self._arriving[plane]
        line.append(packet)
        if line.count == 1:
            self.agenda.plan(self._arrivals[plane], received + self._receive_ps, RECEIVED + plane)

    def _packet_arrived(self, call: Call) -> None:
        """The first packet on a line is received; its call, the next one, is kept for the packet behind."""
        plane: i64 = call.plane
        line = self._arriving[plane]
        packet = line.take()
        assert isinstance(packet, ModelPacket)
        behind = line.first
        if behind is None:
            self.agenda.take()
        else:
            assert isinstance(behind, ModelPacket)
            self.agenda.again(behind.received_ps + self._receive_ps)
        if self._takes_frame(plane):
            decoder = self._decoders[plane]
            if decoder.take(packet):
                self.responder.on_packet(packet)
            else:
                self.counters[plane * _PORT_COUNTERS + decoder.reason] += 1

    def _takes_frame(self, plane: i64) -> bool:
        """Count a frame that has arrived; false when the link is down or the NIC disabled."""
        if not self.ports[plane].link_up:
            self.ports[plane].lost_link_down += 1
            return False
        if not self.settings.enable:
            return False
        self.counters[plane * _PORT_COUNTERS + _RX_FRAMES] += 1
        return True

    def _judged(self, plane: int, last_bit: int, packet: ModelPacket | None) -> None:
        """Hand on what the decoder made of a frame, or count why it made nothing."""
        if packet is None:
            self.counters[plane * PORT_COUNTERS + self._decoders[plane].reason] += 1
            return
        packet.received_ps = last_bit
        self.responder.on_packet(packet)

    def link(self, time_ps: int, plane: int, up: bool) -> None:
        """Change the link of a port at a time."""
        self.agenda.enter(time_ps, LINK, self._change_link, (plane, up))

    def _change_link(self, item: tuple[int, bool]) -> None:
        plane, up = item
        port = self.ports[plane]
        if port.link_up == up:
            return
        before = port.up
        port.set_link(self.now_ps, up)
        self.event(EventKind.PORT_UP if up else EventKind.PORT_DOWN, plane, 0)
        if port.up != before:
            self.requester.port_changed(plane, port.up)

    # -- memory and completions --------------------------------------------------------------------------

    def read_memory(self, protection_domain: i64, local_key: i64, address: int, length: i64) -> bytes | None:
        """Payload of a packet to send, None when it cannot be read."""
        bus_address = self.regions.translate(local_key, protection_domain, address, int(length), False)
        if bus_address < 0:
            self.read_failure = int(QpErrorReason.LOCAL_PROTECTION)
            return None
        content = self.memory.read(bus_address, int(length))
        if content is None:
            self.read_failure = int(QpErrorReason.LOCAL_READ)
            self.count(GlobalCounter.READ_ERRORS)
        return content

    def complete(
        self,
        queue: int,
        qp: int,
        wr_id: int,
        opcode: int,
        status: int,
        length: int,
        immediate: int,
        message_number: int,
    ) -> None:
        """Write a completion to a ring."""
        ring = self.rings[queue] if queue < len(self.rings) else None
        if ring is None or not ring.enabled or ring.full:
            self.count(GlobalCounter.COMPLETION_OVERRUN)
            self._fail(qp, EventKind.COMPLETION_OVERRUN, QpErrorReason.COMPLETION_OVERRUN)
            return
        self.count(GlobalCounter.COMPLETIONS)
        words = completion_entry(
            QP_NUMBER_BASE + qp, wr_id, opcode, status, length, immediate, message_number
        )
        self._write_entry(ring.push(words))

    def notice(self, fields: dict[str, int]) -> None:
        """Append to the notice ring."""
        entry = self.notices.push(self.tick, fields)
        if entry is not None:
            self._write_entry(entry)

    def _write_entry(self, entry: tuple[int, bytes]) -> None:
        self._entries.append(entry)
        self._memory_port.write(self.now_ps, False)

    def _entry_written(self) -> None:
        address, content = self._entries.popleft()
        if self.memory.write(address, content):
            self.memory.watches(self.now_ps, address, len(content), self.watches)
        else:
            self.count(GlobalCounter.WRITE_ERRORS)

    def enter_error(self, qp: int, reason: int) -> None:
        """Put a QP into ERROR."""
        self._fail(qp, EventKind.QP_ERROR, reason)

    def _fail(self, qp: int, kind: int, reason: int) -> None:
        if self.responder.qps[qp].state in (QpState.RESET, QpState.ERROR):
            return
        self.responder.on_error(qp)
        self.event(kind, qp, reason)
        self.requester.on_error(qp)

    # -- observation -------------------------------------------------------------------------------------

    def count(self, counter: i64, amount: int = 1) -> None:
        """Increment a global counter."""
        self.counters[self._global_at + counter] += amount

    def count_port(self, plane: i64, counter: i64) -> None:
        """Increment a counter of a port."""
        self.counters[plane * _PORT_COUNTERS + counter] += 1

    def event(self, kind: int, qp: int, reason: int) -> None:
        """Append to the event queue behind the event register."""
        before = self.registers.events_dropped
        if self.registers.push_event(kind, qp, reason):
            self.interrupts.append(self.now_ps)
        if self.registers.events_dropped != before:
            self.count(GlobalCounter.EVENTS_DROPPED)

    def trace(self, kind: int, qp: int, plane: int, psn: int, detail: int) -> None:
        """Report a decision in the NIC's outputs: the rare ones always, others when tracing is on."""
        if self._trace or _ALWAYS[kind]:
            self.traces.append(TraceRecord(int(self.now_ps), int(kind), qp, plane, psn, detail))

    # -- between requester and responder -----------------------------------------------------------------

    def reverse_ev(self, qp: int, plane: int) -> int:
        """EV of the reverse EV set for control packets of a QP on a plane."""
        return self.responder.reverse.value(qp, plane)

    def confirm_ev(self, qp: int, plane: int, ev: int) -> None:
        """Feedback proved an EV of this QP to reach the peer."""
        self.responder.reverse.confirm(qp, plane, ev, self.now_ps)

    def data_sent_ps(self, qp: i64) -> i64:
        """Time the QP's requester last sent a data packet."""
        return self.requester.data_sent_ps(qp)

    def peer_address(self, qp: int) -> int:
        """Inner IPv6 address of a QP's peer."""
        return self.responder.qps[qp].peer

    def outer_source(self, plane: int) -> int:
        """This host's outer address on a plane, from any QP's template; 0 while none has one."""
        for qp in range(self.config.qps):
            template: Template = self._templates.rows[qp]
            if template.encapsulated:
                return int.from_bytes(template.outer_source(plane), "big")
        return 0

    def sent(self, until_ps: int) -> list[Frame]:
        """Frames whose last bit left before a time, in order of (time, port, sequence)."""
        frames: list[Frame] = []
        for port in self.ports:
            port.take_sent(until_ps, frames)
        frames.sort()
        return frames

    def sent_packets(self, until_ps: int) -> list[Packet]:
        """The same of packets that are objects, port by port."""
        packets: list[Packet] = []
        for port in self.ports:
            port.take_packets(until_ps, packets)
        return packets
