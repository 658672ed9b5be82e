"""A NIC of plain Python behind the real registers, to test runner, metrics and report in seconds.

It keeps the tables the device API writes, builds real frames from the QP's template, sprays data over planes
in strict turn, places what arrives where its RETH says, answers with cumulative SACKs and transport ACKs,
and writes completions into their rings. It never retransmits: a flow that lost a frame waits for the limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from mrc_host.experiment.nics import NicRequest
from mrc_host.nic.base import NEVER, Frame, Nic, Outputs, RegisterRead, Statistics, Watch
from mrc_host.nic.options import byte_time
from mrc_host.packets.peek import peek
from mrc_rtl import wire
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.registers import constant_value, register_map
from mrc_rtl.tables import CQE, EV_VALUES_PER_PLANE, TABLES, TableId, WorkRequestOpcode
from mrc_rtl.wire import IPV6, METH, PSN_MASK, RETH, SETH, TSETH, UDP, Dscp, Opcode

OUTER, INNER = 14, 54
UDP_AT, BTH_AT = 94, 102
MEMORY_PS = 200_000
SACK_PACKETS = 4
ADDRESS_MASK = (1 << 16) - 1


@dataclass
class SendQueue:
    """What a QP has to send."""

    next_psn: int = 0
    unacked: int = 0
    requests: deque = field(default_factory=deque)  # (first psn, packets, fields), not completed
    unsent: deque = field(default_factory=deque)  # (psn, fields, index, packets)
    slots: int = 0
    rotor: int = 0
    messages: int = 0


@dataclass
class ReceiveQueue:
    """What a QP has received."""

    expected: int = 0
    placed: dict = field(default_factory=dict)  # unwrapped PSN → (opcode, immediate)
    posted: deque = field(default_factory=deque)
    slots: int = 0
    since_sack: int = 0
    message_bytes: int = 0
    messages: int = 0


class FakeNic(Nic):
    """See the module's text."""

    data_dscp = Dscp.NO_TRIM

    def __init__(self, request: NicRequest) -> None:
        self.config = request.config
        self.memory = np.zeros(request.memory.size, dtype=np.uint8)
        self._byte_ps = byte_time(request.config, request.mac)
        self._registers = register_map()
        self._values: dict[int, int] = {}
        for register in self._registers:
            if register.name.startswith(("magic", "version", "config_hash", "capability")):
                self._values[register.offset] = constant_value(register, self.config)
        self._tables: dict[tuple[int, int], list[int]] = {}
        self._events: list[tuple[int, int, int, Callable[[int], None]]] = []
        self._counter = 0
        self._time = 0
        self._out = Outputs()
        self._watches: list[tuple[int, int, int]] = []
        planes = self.config.planes
        self._busy = [0] * planes
        self._sequence = [0] * planes
        self._turn = 0
        self._control: list[deque[bytes]] = [deque() for _ in range(planes)]
        self._ready: deque[int] = deque()
        self._send: dict[int, SendQueue] = {}
        self._receive: dict[int, ReceiveQueue] = {}
        self._produced: dict[int, int] = {}
        self.fault: Callable[[int], None] = lambda time_ps: None
        self.statistics_value = Statistics()
        self.link_changes: list[tuple[int, int, bool]] = []

    # -- Nic ---------------------------------------------------------------------------------------------

    @property
    def time_ps(self) -> int:
        return self._time

    @property
    def next_activity_ps(self) -> int:
        return self._events[0][0] if self._events else NEVER

    @property
    def statistics(self) -> Statistics:
        return self.statistics_value

    def run(self, until_ps: int) -> Outputs:
        while self._events and self._events[0][0] < until_ps:
            time_ps, _, _, call = heappop(self._events)
            self._time = time_ps
            self.fault(time_ps)
            call(time_ps)
            self.statistics_value.cycles_clocked += 1
        self._time = until_ps
        out, self._out = self._out, Outputs()
        out.frames.sort(key=lambda frame: frame[:3])
        self._out.frames = [frame for frame in out.frames if frame.time_last_bit_ps >= until_ps]
        out.frames = [frame for frame in out.frames if frame.time_last_bit_ps < until_ps]
        out.watches.sort(key=lambda watch: (watch.time_ps, watch.tag, watch.address))
        self._out.watches = [watch for watch in out.watches if watch.time_ps >= until_ps]
        out.watches = [watch for watch in out.watches if watch.time_ps < until_ps]
        return out

    def deliver(self, port: int, time_first_bit_ps: int, frame: bytes, bad_fcs: bool = False) -> None:
        end = time_first_bit_ps + self._slot(len(frame))
        self._at(end, 1 + port, lambda time_ps: self._arrive(time_ps, port, frame))

    def schedule_write(self, time_ps: int, address: int, value: int) -> None:
        self._at(time_ps, 0, lambda now: self._write(now, address, value))

    def schedule_read(self, time_ps: int, address: int, tag: int) -> None:
        self._at(
            time_ps,
            0,
            lambda now: self._out.reads.append(RegisterRead(now, tag, address, self._read(address))),
        )

    def schedule_link(self, time_ps: int, port: int, up: bool) -> None:
        self._at(time_ps, 0, lambda now: self.link_changes.append((now, port, up)))

    def read32(self, address: int) -> int:
        return self._read(address)

    def write32(self, address: int, value: int) -> None:
        self._write(self._time, address, value)

    def watch(self, tag: int, address: int, length: int) -> None:
        self._watches.append((tag, address, length))

    def unwatch(self, tag: int) -> None:
        self._watches = [entry for entry in self._watches if entry[0] != tag]

    def settle(self, limit_cycles: int = 100_000) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing to free."""

    # -- registers ---------------------------------------------------------------------------------------

    def _at(self, time_ps: int, kind: int, call: Callable[[int], None]) -> None:
        self._counter += 1
        heappush(self._events, (time_ps, kind, self._counter, call))

    def _register(self, address: int) -> str:
        for register in self._registers:
            if (
                register.offset
                <= address
                < register.offset + max(register.count * register.stride, register.words * 4)
            ):
                return register.name
        raise AssertionError(f"register address must exist, got {address:#x}")

    def _read(self, address: int) -> int:
        return self._values.get(address, 0)

    def _write(self, time_ps: int, address: int, value: int) -> None:
        name = self._register(address)
        self._values[address] = value
        if name == "command":
            fields = self._registers["command"].unpack(value)
            self._command(fields)
        elif name == "send_doorbell":
            self._doorbell(time_ps, self._registers["send_doorbell"].unpack(value)["qp"])
        elif name == "receive_doorbell":
            qp = self._registers["receive_doorbell"].unpack(value)["qp"]
            queue = self._receive[qp]
            depth = self.config.receive_queue_depth
            request = self._entry(TableId.RECEIVE_REQUEST, qp * depth + queue.slots % depth)
            queue.slots += 1
            queue.posted.append(request["wr_id"])

    def _command(self, command: dict[str, int]) -> None:
        data = self._registers["data"]
        key = (command["table"], command["index"])
        if not command["write"]:
            words = self._tables.get(key, [0] * 16)
            for number in range(command["count"]):
                self._values[data.address(2 * number)] = words[number] & 0xFFFFFFFF
                self._values[data.address(2 * number + 1)] = words[number] >> 32
            return
        self._tables[key] = [
            self._values.get(data.address(2 * n), 0) | self._values.get(data.address(2 * n + 1), 0) << 32
            for n in range(command["count"])
        ]
        if command["table"] == TableId.QP_SEND:
            entry = self._entry(TableId.QP_SEND, command["index"])
            start = entry["initial_psn"]
            self._send[command["index"]] = SendQueue(next_psn=start, unacked=start)
        if command["table"] == TableId.QP_RECEIVE:
            entry = self._entry(TableId.QP_RECEIVE, command["index"])
            self._receive[command["index"]] = ReceiveQueue(expected=entry["initial_psn"])

    def _entry(self, table: TableId, index: int) -> dict[str, int]:
        return TABLES[table].unpack(self._tables[table, index])

    # -- sending -----------------------------------------------------------------------------------------

    def _slot(self, frame_bytes: int) -> int:
        return int(-(-(frame_bytes + wire.GAP_PREAMBLE_FCS_BYTES) * self._byte_ps // 1))

    def _doorbell(self, time_ps: int, qp: int) -> None:
        queue = self._send[qp]
        depth = self.config.send_queue_depth
        request = self._entry(TableId.SEND_REQUEST, qp * depth + queue.slots % depth)
        queue.slots += 1
        mtu = 1 << self._entry(TableId.QP_SEND, qp)["mtu_log2"]
        packets = -(-request["length"] // mtu)
        first = queue.next_psn
        queue.requests.append((first, packets, request))
        queue.unsent.extend((first + index, request, index, packets) for index in range(packets))
        queue.next_psn = first + packets
        self._pump(time_ps)

    def _pump(self, time_ps: int) -> None:
        """Give every idle plane something to send: control first, data in strict turn."""
        for plane in range(self.config.planes):
            if self._busy[plane] <= time_ps and self._control[plane]:
                self._transmit(time_ps, plane, self._control[plane].popleft())
        while self._busy[self._turn] <= time_ps:
            frame = self._next_data(self._turn)
            if frame is None:
                return
            plane, self._turn = self._turn, (self._turn + 1) % self.config.planes
            self._transmit(time_ps, plane, frame)

    def _transmit(self, time_ps: int, plane: int, frame: bytes) -> None:
        end = time_ps + self._slot(len(frame))
        self._busy[plane] = end
        self._out.frames.append(Frame(end, plane, self._sequence[plane], frame))
        self._sequence[plane] += 1
        self._at(end, 20 + plane, self._pump)

    def _next_data(self, plane: int) -> bytes | None:
        for qp, queue in self._send.items():
            window = self._entry(TableId.QP_SEND, qp)["mpr_psns"]
            if queue.unsent and queue.unsent[0][0] - queue.unacked < window:
                psn, request, index, packets = queue.unsent.popleft()
                return self._data_frame(qp, queue, plane, psn, request, index, packets)
        return None

    def _data_frame(self, qp, queue, plane, psn, request, index, packets) -> bytes:
        mtu = 1 << self._entry(TableId.QP_SEND, qp)["mtu_log2"]
        offset = index * mtu
        length = min(mtu, request["length"] - offset)
        immediate = request["opcode"] == WorkRequestOpcode.WRITE_WITH_IMM and index == packets - 1
        if index == packets - 1:
            opcode = Opcode.WRITE_LAST_IMM if immediate else Opcode.WRITE_LAST
        else:
            opcode = Opcode.WRITE_MIDDLE if index else Opcode.WRITE_FIRST
        region = self._region(request["local_key"])
        start = request["local_address"] + offset - region["base"] + region["bus_address"]
        body = METH.pack(msn=queue.messages & 0xFFFF).to_bytes(METH.bytes, "big")
        body += TSETH.pack().to_bytes(TSETH.bytes, "big")
        reth = RETH.pack(va=request["remote_address"] + offset, rkey=request["remote_key"], dma_len=length)
        body += reth.to_bytes(RETH.bytes, "big")
        body += request["immediate"].to_bytes(4, "big") if immediate else b""
        body += self.memory[start : start + length].tobytes() + bytes(-length % 4)
        return self._frame(qp, plane, opcode, psn, body, self.data_dscp, -length % 4)

    def _region(self, key: int) -> dict[str, int]:
        region = self._entry(TableId.MEMORY_REGION, key >> 8)
        assert region["key"] == key
        assert region["valid"]
        return region

    def _frame(
        self, qp: int, plane: int, opcode: int, psn: int, body: bytes, dscp: int, pad: int = 0
    ) -> bytes:
        """Fill the template of a QP in, for a plane and the next of its EVs."""
        queue = self._send[qp]
        words = self._tables[TableId.TEMPLATE, qp]
        image = bytearray(b"".join(word.to_bytes(8, "little") for word in words))
        plane_mask, uplink_mask = image[1], image[2]
        profile = self._entry(TableId.QP_SEND, qp)["ev_profile"]
        good = self._entry(TableId.EV_SET, qp * self.config.planes + plane)["good"]
        count = good.bit_length()
        row = (profile * self.config.planes + plane) * EV_VALUES_PER_PLANE
        ev = self._entry(TableId.EV_VALUE, row + queue.rotor // self.config.planes % count)["value"]
        queue.rotor += 1
        mac, next_hop = (self._registers[f"port_{name}"] for name in ("mac", "next_hop_mac"))
        for at, register in ((0, next_hop), (6, mac)):
            value = self._values[register.address(plane)] | self._values[register.address(plane, 1)] << 32
            image[at : at + 6] = value.to_bytes(6, "big")
        for position in range(6):
            place = OUTER + 24 + 4 + 2 * position
            if plane_mask >> position & 1:
                image[place] |= plane << 4
            if uplink_mask >> position & 1:
                image[place + 1] |= ev >> wire.EV.shift("uplink") & 0xFF
        for place in (OUTER + 8 + 4, OUTER + 8 + 6):
            image[place] |= plane << 4
        traffic = dscp << 2 | 2
        size = UDP.bytes + wire.BTH.bytes + len(body) + wire.ICRC.bytes
        for at, length in ((OUTER, size + IPV6.bytes), (INNER, size)):
            image[at : at + 4] = (6 << 28 | traffic << 20 | ev & 0xFFFF).to_bytes(4, "big")
            image[at + 4 : at + 6] = length.to_bytes(2, "big")
        image[UDP_AT : UDP_AT + 2] = (ev >> 16).to_bytes(2, "big")
        image[UDP_AT + 4 : UDP_AT + 6] = size.to_bytes(2, "big")
        image[BTH_AT] = opcode
        image[BTH_AT + 1] |= pad << 4
        timestamps = 1 << 28 if opcode < Opcode.ACKNOWLEDGE else 0
        image[BTH_AT + 8 : BTH_AT + 12] = (timestamps | psn & PSN_MASK).to_bytes(4, "big")
        return bytes(image[: BTH_AT + wire.BTH.bytes]) + body + bytes(wire.ICRC.bytes)

    # -- receiving ---------------------------------------------------------------------------------------

    def _arrive(self, time_ps: int, port: int, frame: bytes) -> None:
        info = peek(frame)
        assert info is not None
        qp = info.dest_qp - QP_NUMBER_BASE
        if info.opcode == Opcode.SACK:
            self._acknowledged(time_ps, qp, info.psn, complete=False)
        elif info.opcode == Opcode.ACKNOWLEDGE:
            self._acknowledged(time_ps, qp, info.psn, complete=True)
        elif not info.trimmed:
            self._data(time_ps, port, qp, info, frame)

    def _acknowledged(self, time_ps: int, qp: int, psn: int, *, complete: bool) -> None:
        queue = self._send[qp]
        step = (psn + 1 - queue.unacked) & PSN_MASK
        if step < 1 << 23:
            queue.unacked += step
        while complete and queue.requests:
            first, packets, request = queue.requests[0]
            if (psn + 1 - first - packets) & PSN_MASK >= 1 << 23:
                break
            queue.requests.popleft()
            queue.messages += 1
            number = self._entry(TableId.QP_SEND, qp)["completion_queue"]
            self._complete(time_ps, number, qp, request["wr_id"], request["opcode"], request["length"], 0)
        self._pump(time_ps)

    def _data(self, time_ps, port, qp, info, frame) -> None:
        queue = self._receive[qp]
        immediate = wire.has_immediate(info.opcode)
        at = info.bth_offset + wire.BTH.bytes + METH.bytes + TSETH.bytes
        va = int.from_bytes(frame[at : at + 8], "big")
        region = self._region(int.from_bytes(frame[at + 8 : at + 12], "big"))
        at += RETH.bytes
        value = int.from_bytes(frame[at : at + 4], "big") if immediate else 0
        at += 4 if immediate else 0
        start = va - region["base"] + region["bus_address"]
        payload = np.frombuffer(frame, dtype=np.uint8)[at : at + info.payload_len]
        self._store(time_ps + MEMORY_PS, start, payload)
        psn = queue.expected + ((info.psn - queue.expected) & PSN_MASK)
        queue.placed[psn] = (info.opcode, value, info.payload_len)
        queue.since_sack += 1
        self._at(time_ps + MEMORY_PS, 10, lambda now: self._advance(now, port, qp))

    def _advance(self, time_ps: int, port: int, qp: int) -> None:
        queue = self._receive[qp]
        ended = False
        while queue.expected in queue.placed:
            opcode, value, length = queue.placed.pop(queue.expected)
            queue.expected += 1
            queue.message_bytes += length
            if wire.is_last(opcode):
                ended = True
                if wire.has_immediate(opcode):
                    number = self._entry(TableId.QP_RECEIVE, qp)["completion_queue"]
                    wr_id = queue.posted.popleft()
                    kind = WorkRequestOpcode.RECEIVE_IMM
                    self._complete(time_ps, number, qp, wr_id, kind, queue.message_bytes, value)
                queue.message_bytes = 0
        psn = queue.expected - 1
        if queue.since_sack >= SACK_PACKETS or ended:
            queue.since_sack = 0
            seth = SETH.pack(cack_psn=psn & PSN_MASK).to_bytes(SETH.bytes, "big")
            body = seth.ljust(wire.fixed_headers_bytes(Opcode.SACK, False, True) - BTH_AT - 12, b"\0")
            self._control[port].append(self._frame(qp, port, Opcode.SACK, psn, body, Dscp.CONTROL))
        if ended:
            body = bytes(wire.fixed_headers_bytes(Opcode.ACKNOWLEDGE, False, True) - BTH_AT - 12)
            self._control[port].append(self._frame(qp, port, Opcode.ACKNOWLEDGE, psn, body, Dscp.CONTROL))
        self._pump(time_ps)

    def _complete(self, time_ps, number, qp, wr_id, opcode, length, immediate) -> None:
        ring = self._entry(TableId.COMPLETION_QUEUE, number)
        produced = self._produced.get(number, 0)
        self._produced[number] = produced + 1
        entries = 1 << ring["log2_entries"]
        words = CQE.pack(
            wr_id=wr_id,
            byte_length=length,
            immediate=immediate,
            qpn=QP_NUMBER_BASE + qp,
            opcode=opcode,
            phase=1 - produced // entries % 2,
        )
        content = b"".join(word.to_bytes(8, "little") for word in words)
        self._store(
            time_ps + MEMORY_PS,
            ring["base"] + produced % entries * len(content),
            np.frombuffer(content, dtype=np.uint8),
        )

    def _store(self, time_ps: int, address: int, content: np.ndarray) -> None:
        self.memory[address : address + len(content)] = content
        for tag, base, length in self._watches:
            if base <= address < base + length:
                self._out.watches.append(Watch(time_ps, tag, address, len(content)))


def fake_nic(request: NicRequest) -> FakeNic:
    """Make one, as the runner's ``nic_factory``."""
    return FakeNic(request)
