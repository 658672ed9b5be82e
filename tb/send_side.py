"""The sending half of an engine (requester and bind) as one component, and what surrounds it in a bench.

Around it stand, as Python models stepped once a clock: the memory regions, payload fetch, the planes with a
time per frame, and a peer that keeps the receiver's bitmap and answers with SACK, NACK and transport ACK.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from images import take_apart
from mrc_rtl import records, tables, wire
from mrc_rtl.config import NicConfig
from mrc_rtl.frame_image import image_words
from mrc_rtl.paths.bind import Bind
from mrc_rtl.paths.images import image_word_bits
from mrc_rtl.requester.records import doorbell_record, fetch_command, ready_slot, slot_packet
from mrc_rtl.requester.requester import Requester
from mrc_rtl.stream import TableBus

__all__ = ["Peer", "SendSide", "SendSideBench", "pack", "unpack"]

PSN = wire.PSN_MASK


class SendSide(wiring.Component):
    """Requester and bind, wired as in the engine."""

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "qp_send": In(TableBus()),
                "send_request": In(TableBus()),
                "ev_set": In(TableBus()),
                "ev_value": In(TableBus()),
                "operation": In(stream.Signature(records.path_operation(config))),
                "ev_event": Out(stream.Signature(records.event_record(config))),
                "doorbell": In(stream.Signature(doorbell_record(config))),
                "region": Out(stream.Signature(records.region_request(config))),
                "region_answer": In(stream.Signature(records.region_answer(config))),
                "fetch": Out(stream.Signature(fetch_command(config))),
                "packet": In(stream.Signature(slot_packet(config))),
                "ready": In(stream.Signature(ready_slot(config))),
                "control": In(stream.Signature(records.control_request(config))),
                "plan": Out(stream.Signature(records.transmit_plan(config))),
                "image_read": In(1),
                "image_row": In(records.image_row_bits(config)),
                "image_word": In(image_word_bits(config)),
                "image_data": Out(config.data_width),
                "image_done": In(1),
                "feedback": In(stream.Signature(records.feedback_record(config))),
                "completion": Out(stream.Signature(records.completion_record(config))),
                "error_in": In(stream.Signature(records.qp_error(config))),
                "error_out": Out(stream.Signature(records.qp_error(config))),
                "counter": Out(stream.Signature(records.counter_event(config))),
                "path": Out(stream.Signature(records.path_operation(config))),
                "probe_answer": Out(stream.Signature(records.probe_answer(config))),
                "tail_probe": Out(stream.Signature(records.tail_probe(config))),
                "settings": In(records.settings(config)),
                "room": In(config.planes),
                "one_each": In(1),  # room is for one frame
                "port_up": In(config.planes),
                "peer_update": In(records.peer_update(config)),
                "peer_updates": In(1),
                "now": In(48),
                "next_deadline": Out(32),
                "deadline_valid": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.requester = requester = Requester(self.config)
        m.submodules.bind = bind = Bind(self.config)
        for block, names in (
            (requester, ("qp_send", "send_request", "doorbell", "region_answer", "feedback", "error_in")),
            (bind, ("ev_set", "ev_value", "operation", "packet", "ready", "control")),
        ):
            for name in names:
                wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(block, name))
        for block, names in (
            (requester, ("region", "fetch", "completion", "error_out", "counter")),
            (requester, ("path", "probe_answer", "tail_probe")),
            (bind, ("plan",)),
        ):
            for name in names:
                wiring.connect(m, getattr(block, name), wiring.flipped(getattr(self, name)))
        wiring.connect(m, bind.sent, requester.sent)
        wiring.connect(m, bind.event, wiring.flipped(self.ev_event))
        # The receive side starts every QP once.
        started = Signal(range(self.config.qps + 1))
        m.d.comb += [
            bind.peer_init.valid.eq(started != self.config.qps),
            bind.peer_init.payload.qp.eq(started),
            bind.peer_update.eq(self.peer_update),
            bind.peer_updates.eq(self.peer_updates),
        ]
        with m.If(bind.peer_init.valid & bind.peer_init.ready):
            m.d.sync += started.eq(started + 1)
        offered = Signal(self.config.planes)
        handed = Signal(self.config.planes)
        m.d.sync += handed.eq(offered)
        m.d.comb += [
            bind.path_qp.eq(requester.path_qp),
            requester.path_there.eq(bind.path_there),
            requester.state_qp.eq(bind.state_qp),
            bind.state_sending.eq(requester.state_sending),
            bind.state_profile.eq(requester.state_profile),
            requester.settings.eq(self.settings),
            bind.settings.eq(self.settings),
            requester.now.eq(self.now),
            bind.now.eq(self.now),
            # As the transmitter's: a plan on offer counts at once; the bench sees it one cycle later.
            offered.eq(bind.plan.valid << bind.plan.payload.plane),
            bind.room.eq(self.room & ~Mux(self.one_each, offered | handed, 0)),
            bind.port_up.eq(self.port_up),
            bind.image_read.eq(self.image_read),
            bind.image_row.eq(self.image_row),
            bind.image_word.eq(self.image_word),
            self.image_data.eq(bind.image_data),
            bind.image_done.eq(self.image_done),
            bind.image_done_row.eq(self.image_row),
            self.next_deadline.eq(requester.next_deadline),
            self.deadline_valid.eq(requester.deadline_valid),
            self.idle.eq(requester.idle & bind.idle),
        ]
        return m


def pack(layout: data.StructLayout, **values: Any) -> int:
    """Integer of a record; fields not named are 0, a nested record is a dict."""
    result = 0
    for name, value in values.items():
        field = layout[name]
        if isinstance(value, dict):
            value = pack(field.shape, **value)
        assert 0 <= value < 1 << field.width, f"{name} must fit {field.width} bits, got {value:#x}"
        result |= value << field.offset
    return result


def unpack(layout: data.StructLayout, integer: int) -> dict[str, Any]:
    """Fields of a record as a dict."""
    result: dict[str, Any] = {}
    for name, field in layout:
        value = integer >> field.offset & ((1 << field.width) - 1)
        result[name] = unpack(field.shape, value) if isinstance(field.shape, data.StructLayout) else value
    return result


class _Source:
    """Drives a stream from a queue of integers; ``taken`` hears of each one that was taken."""

    def __init__(self, design: Any, name: str) -> None:
        self.valid = getattr(design, f"{name}__valid")
        self.ready = getattr(design, f"{name}__ready")
        self.payload = getattr(design, f"{name}__payload")
        self.queue: deque[int] = deque()
        self.driven = False
        self.taken: Callable[[int], None] = lambda payload: None
        self.valid.value = 0
        self.payload.value = 0

    def forget(self) -> None:
        """Drop what is not yet on offer."""
        while len(self.queue) > self.driven:
            self.queue.pop()

    def step(self) -> None:
        if self.driven and self.ready.value == 1:
            self.taken(self.queue.popleft())
            self.driven = False
            if not self.queue:
                self.valid.value = 0
        if self.queue and not self.driven:
            self.payload.value = self.queue[0]
            self.valid.value = 1
            self.driven = True


class _Sink:
    """Takes a stream; ``stall`` says for the coming cycle whether to wait."""

    def __init__(self, design: Any, name: str, take: Callable[[int], None]) -> None:
        self.valid = getattr(design, f"{name}__valid")
        self.ready = getattr(design, f"{name}__ready")
        self.payload = getattr(design, f"{name}__payload")
        self.take = take
        self.open = True
        self.ready.value = 1
        self.waiting: int | None = None

    def step(self, stall: bool = False) -> None:
        if self.valid.value == 1:
            payload = int(self.payload.value)
            assert self.waiting is None or self.waiting == payload, "a payload changed before it was taken"
            self.waiting = payload
            if self.open:
                self.waiting = None
                self.take(payload)
        else:
            assert self.waiting is None, "a record was withdrawn"
        if self.open == stall:
            self.open = not stall
            self.ready.value = int(self.open)


class Peer:
    """The receiver of one QP: bitmap over PSNs, answers, and a check that every byte is written once.

    ``fate(packet)`` decides what the network does: "ok", "drop", "trim", "trim_last" or a reason code of a
    NACK.
    """

    def __init__(self, bench: "SendSideBench", qp: int, initial_psn: int, ack_every: int = 4) -> None:
        self.bench = bench
        self.qp = qp
        self.expected = initial_psn
        self.placed: set[int] = set()
        self.reported: set[int] = set()
        self.messages: dict[int, dict[str, int]] = {}
        self.ends: dict[int, int] = {}
        self.ranges: list[tuple[int, int]] = []
        self.packets: list[dict[str, Any]] = []
        self.fate: Callable[[dict[str, Any]], Any] = lambda packet: "ok"
        self.since_ack = 0
        self.asked = False
        self.ack_every = ack_every
        self.message_number = 0
        self.delay = 40  # cycles from plan to answer
        self.late: Callable[[dict[str, Any]], int] = lambda packet: 0  # more of it
        self.acks = True
        self.sacks = True
        self.answers = False  # questions about the tail

    def arrive(self, packet: dict[str, Any]) -> None:
        """A packet's plan left bind."""
        self.packets.append(packet)
        what = self.fate(packet)
        if what == "drop":
            return
        if what in ("trim", "trim_last") or isinstance(what, int):
            reason = {"trim": 0x01, "trim_last": 0x02}.get(what, what)
            self.bench.later(self.delay, self.bench.nack, self.qp, packet["psn"], reason, packet["ev"])
            return
        self.bench.later(self.delay + self.late(packet), self._accept, packet)

    def _accept(self, packet: dict[str, Any]) -> None:
        ahead = (packet["psn"] - self.expected) & PSN
        new = ahead < 1 << 23 and packet["psn"] not in self.placed
        if new:
            self.placed.add(packet["psn"])
            self.ranges.append((packet["reth"]["va"], packet["length"]))
            if packet["opcode"] in (0xC8, 0xC9, 0xCA, 0xCB):
                self.ends[packet["psn"]] = packet["meth"]["msn"]
        advanced = False
        while self.expected in self.placed:
            self.placed.discard(self.expected)
            if self.expected in self.ends:
                self.message_number += 1
                advanced = True
            self.expected = self.expected + 1 & PSN
        self.since_ack += 1
        # An answer asked for comes again when the hole below it is filled.
        self.asked |= bool(packet["ack_request"])
        filled = self.asked and not self.placed
        self.asked &= not filled
        trigger = packet["ack_request"] or packet["retransmission"] or not new or filled
        if trigger or self.since_ack >= self.ack_every:
            self.since_ack = 0
            if self.sacks:
                self.sack(packet)
            if self.acks and (advanced or packet["ack_request"] or not new or filled):
                self.bench.ack(self.qp, self.expected - 1 & PSN, self.message_number)

    def asked_for(self, question: dict[str, int]) -> None:
        """A probe of the tail left."""
        if self.answers:
            self.bench.later(self.delay, self._answer, question)

    def _answer(self, question: dict[str, int]) -> None:
        self._tell(0, pr=1, left=question["time"], ack_psn_offset=question["number"])

    def sack(self, packet: dict[str, Any]) -> None:
        behind = (packet["psn"] - (self.expected - 1) + (1 << 23) & PSN) - (1 << 23)
        offset = max(behind, -0x8000)
        self._tell(packet["ev"], rtx=packet["retransmission"], ack_psn_offset=offset)

    def _tell(self, ev: int, **more: Any) -> None:
        base = self.expected
        self.reported &= self.placed
        if self.placed:
            # As the receive side does: first what no SACK has shown yet.
            base = min(
                self.placed - self.reported or self.placed, key=lambda psn: (psn - self.expected) & PSN
            )
        shown = {base + n & PSN for n in range(64)} & self.placed
        bitmap = sum(1 << (psn - base & PSN) for psn in shown)
        self.reported |= shown
        cumulative = self.expected - 1 & PSN
        self.bench.sack(
            self.qp, cumulative, (base - cumulative) & 0xFFFF, bitmap, ev, held=len(self.placed), **more
        )


class SendSideBench:
    """Steps all models once a clock.

    Parameters
    ----------
    design :
        Top level handle of a `SendSide`.
    config : NicConfig
    frame_cycles :
        Cycles a plane is busy with a data frame; 0: always room.
    """

    def __init__(self, design: Any, config: NicConfig, frame_cycles: int = 0) -> None:
        self.design, self.config = design, config
        self.frame_cycles = frame_cycles
        self.cycle = 0
        self.now = 5 << 16
        self.step_time = (1 << 16) // config.cycles_per_tick
        self.plan_layout = records.transmit_plan(config)
        self.sources = {
            name: _Source(design, name)
            for name in (
                "doorbell",
                "region_answer",
                "packet",
                "ready",
                "control",
                "feedback",
                "error_in",
                "operation",
            )
        }
        self.sources["packet"].taken = self._handed_on
        self.sinks = {
            "region": _Sink(design, "region", self._region),
            "fetch": _Sink(design, "fetch", self._fetch),
            "plan": _Sink(design, "plan", self._plan),
            "completion": _Sink(design, "completion", self._completion),
            "error_out": _Sink(design, "error_out", self._error),
            "counter": _Sink(design, "counter", self._counter),
            "path": _Sink(design, "path", self._path),
            "probe_answer": _Sink(design, "probe_answer", self._answer),
            "tail_probe": _Sink(design, "tail_probe", self._question),
            "ev_event": _Sink(design, "ev_event", self._ev_event),
        }
        self.stalls: dict[str, Callable[[], bool]] = {}
        self.events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.free_slots = deque(range(config.transmit_slots))
        self.slot_length: dict[int, int] = {}
        self.busy_until = [0] * config.planes
        self.room_now = -1
        self.up = (1 << config.planes) - 1
        self.blocked_planes = 0
        self.down_is_fatal = True  # a port goes down while nothing is on its way only
        self.peers: dict[int, Peer] = {}
        self.plans: deque[dict[str, Any]] = deque()
        self.image: list[int] = []
        self.image_asked = 0
        self.data: list[dict[str, Any]] = []
        self.discarded: list[dict[str, Any]] = []
        self.controls: list[dict[str, Any]] = []
        self.completions: list[dict[str, int]] = []
        self.errors: list[dict[str, int]] = []
        self.counts: dict[int, int] = {}
        self.paths: list[tuple[str, int, int, int]] = []
        self.answers: list[dict[str, int]] = []
        self.questions: list[dict[str, int]] = []
        self.ev_events: list[dict[str, int]] = []
        self.fetches: list[dict[str, Any]] = []
        self.bad_keys: set[int] = set()
        self.fetch_latency = 20
        self.region_latency = 4
        self.set_settings()
        for bus in ("qp_send", "send_request", "ev_set", "ev_value"):
            for signal in ("valid", "write", "index", "word", "last", "write_data"):
                getattr(design, f"{bus}__{signal}").value = 0
        for name in ("image_read", "image_row", "image_word", "image_done"):
            getattr(design, name).value = 0
        design.port_up.value = self.up
        design.peer_updates.value = 0
        design.room.value = self.up
        design.now.value = self.now
        design.one_each.value = int(frame_cycles > 0)

    def set_settings(self, **values: int) -> None:
        defaults = {
            "enable": 1,
            "dscp_no_trim": 4,
            "dscp_trimmable": 8,
            "dscp_retransmission": 10,
            "dscp_control": 46,
            "base_rtt": 20,
            "reorder_window": 10,
        }
        self.design.settings.value = pack(records.settings(self.config), **{**defaults, **values})

    # Models

    def later(self, cycles: int, action: Callable[..., None], *arguments: Any) -> None:
        self.events.append((self.cycle + cycles, len(self.events), action, arguments))

    def _region(self, payload: int) -> None:
        request = unpack(records.region_request(self.config), payload)
        ok = request["key"] not in self.bad_keys
        bus = request["address"] & ((1 << self.config.address_width) - 1)
        answer = pack(records.region_answer(self.config), ok=int(ok), bus_address=bus if ok else 0)
        assert request["write"] == 0 and 0 < request["length"] <= self.config.mtu
        self.later(self.region_latency, self.sources["region_answer"].queue.append, answer)

    def _ev_event(self, payload: int) -> None:
        self.ev_events.append(unpack(records.event_record(self.config), payload))

    def _fetch(self, payload: int) -> None:
        command = unpack(fetch_command(self.config), payload)
        self.fetches.append(command)
        slot = self.free_slots.popleft()
        descriptor = payload >> self.config.address_width
        word = slot | descriptor << slot_packet(self.config)["descriptor"].offset
        self.sources["packet"].queue.append(word)

    def _handed_on(self, payload: int) -> None:
        packet = unpack(slot_packet(self.config), payload)
        word = pack(ready_slot(self.config), slot=packet["slot"], qp=packet["descriptor"]["qp"])
        self.later(self.fetch_latency, self.sources["ready"].queue.append, word)

    def _plan(self, payload: int) -> None:
        """Take a plan: its plane is busy from now on; the packet is known when its image is read."""
        plan = unpack(self.plan_layout, payload)
        plan["cycle"] = self.cycle
        if plan["discard"]:
            self.free_slots.append(plan["row"])
            self.discarded.append(plan)
            return
        self.plans.append(plan)
        plane = plan["plane"]
        assert plane < self.config.planes
        assert not self.down_is_fatal or self.up >> plane & 1, "a frame for a port that is down"
        if self.frame_cycles:
            cost = self.frame_cycles if plan["data"] else max(1, self.frame_cycles // 8)
            self.busy_until[plane] = max(self.cycle, self.busy_until[plane]) + cost

    def _read_image(self) -> None:
        """A word of the oldest plan's image a cycle, as the transmitter does; data come one cycle later."""
        design = self.design
        design.image_done.value = 0
        if not self.plans:
            return
        plan = self.plans[0]
        total = image_words(self.config, control=not plan["data"])
        if self.image_asked >= 2:
            self.image.append(int(design.image_data.value))
        if len(self.image) == total:
            design.image_done.value = 1
            plan.update(take_apart(self.config, self.image, data=bool(plan["data"])))
            self.plans.popleft()
            self.image, self.image_asked = [], 0
            self._leave(plan)
            return
        design.image_row.value = plan["row"]
        design.image_word.value = min(self.image_asked, total - 1)
        design.image_read.value = int(self.image_asked < total)
        self.image_asked += 1

    def _leave(self, plan: dict[str, Any]) -> None:
        if not plan["data"]:
            self.controls.append(plan)
            return
        self.free_slots.append(plan["row"])
        body = plan["body"]
        plan["meth"] = wire.METH.unpack(body >> 192)
        plan["tseth"] = wire.TSETH.unpack(body >> 160 & 0xFFFFFFFF) | {"tx_timestamp": plan["time"]}
        plan["reth"] = wire.RETH.unpack(body >> 32 & (1 << 128) - 1)
        plan["imm"] = body & 0xFFFFFFFF
        assert plan["pad_count"] == -plan["length"] % 4
        self.data.append(plan)
        if plan["qp"] in self.peers:
            self.peers[plan["qp"]].arrive(plan)

    def _completion(self, payload: int) -> None:
        self.completions.append(unpack(records.completion_record(self.config), payload))

    def _error(self, payload: int) -> None:
        self.errors.append(unpack(records.qp_error(self.config), payload))

    def _counter(self, payload: int) -> None:
        index = payload - self.config.planes * records.PORT_COUNTERS
        self.counts[index] = self.counts.get(index, 0) + 1

    def _path(self, payload: int) -> None:
        made = unpack(records.path_operation(self.config), payload)
        name = records.PathOperation(made["operation"]).name
        self.paths.append((name, made["qp"], made["plane"], made["ev_index"]))

    def _answer(self, payload: int) -> None:
        self.answers.append(unpack(records.probe_answer(self.config), payload))

    def _question(self, payload: int) -> None:
        question = unpack(records.tail_probe(self.config), payload)
        question["time"] = self.now >> 16 & 0xFFFF
        self.questions.append(question)
        if question["qp"] in self.peers:
            self.peers[question["qp"]].asked_for(question)

    # Feedback

    def _feedback(self, qp: int, opcode: int, psn: int, body: int, **more: int) -> None:
        layout = records.feedback_record(self.config)
        arrived = self.now >> 16 & 0xFFFF
        fields = {"qp": qp, "opcode": opcode, "psn": psn, "body": body, "received_at": arrived, **more}
        self.sources["feedback"].queue.append(pack(layout, **fields))

    def sack(
        self, qp: int, cack: int, offset: int, bitmap: int, ev: int = 0, *, rtx: int = 0, held: int = 0,
        left: int | None = None, **seth: int,
    ) -> None:  # fmt: skip
        """``held``: CC_STATE.ooo_count; ``left``: the time reflected; ``seth``: further fields of SETH."""
        signed = offset - 0x10000 if offset & 0x8000 else offset
        body = wire.SETH.pack(cack_psn=cack, sack_offset=signed, sack_bitmap=bitmap, entropy=ev, **seth)
        stamp = (self.now >> 16 if left is None else left) & 0xFFFF
        state = wire.CC_STATE.pack(ooo_count=held, tx_timestamp=stamp)
        self._feedback(qp, wire.Opcode.SACK, cack, body << 64 | state, retransmission=rtx)

    def nack(self, qp: int, psn: int, reason: int, ev: int) -> None:
        body = wire.NETH.pack(nack_psn=psn, nack_reason=reason, entropy=ev)
        self._feedback(qp, wire.Opcode.NACK, psn, body << (288 - 160))

    def ack(self, qp: int, psn: int, message_number: int = 0, syndrome: int = 0x1F) -> None:
        body = wire.AETH.pack(syndrome=syndrome, msn=message_number)
        self._feedback(qp, wire.Opcode.ACKNOWLEDGE, psn, body << (288 - 32))

    # Running

    async def step(self) -> None:
        """One clock."""
        await RisingEdge(self.design.clk)
        self.cycle += 1
        due = [event for event in self.events if event[0] <= self.cycle]
        if due:
            self.events = [event for event in self.events if event[0] > self.cycle]
            for _, _, action, arguments in due:
                action(*arguments)
        for name, sink in self.sinks.items():
            stall = self.stalls.get(name)
            sink.step(stall() if stall else name == "fetch" and len(self.free_slots) < 2)
        for source in self.sources.values():
            source.step()
        self._read_image()
        room = 0
        for plane, until in enumerate(self.busy_until):
            # A plane holds the frame it sends and half of one more.
            if until <= self.cycle + self.frame_cycles // 2 and not self.blocked_planes >> plane & 1:
                room |= 1 << plane
        if room != self.room_now:
            self.room_now = room
            self.design.room.value = room
        self.now += self.step_time
        self.design.now.value = self.now

    async def run(self, cycles: int) -> None:
        for _ in range(cycles):
            await self.step()

    async def until(self, condition: Callable[[], bool], limit: int, what: str) -> None:
        """Step until the condition holds; fail after ``limit`` cycles."""
        for _ in range(limit):
            if condition():
                return
            await self.step()
        raise AssertionError(f"not within {limit} cycles: {what}")

    def pending(self) -> bool:
        """Whether a model still has something to do."""
        return bool(self.events or self.plans) or any(source.queue for source in self.sources.values())

    async def quiet(self, limit: int = 4000) -> None:
        """Step until design and models have nothing to do (timers may run)."""
        await self.until(lambda: self.design.idle.value == 1 and not self.pending(), limit, "idle")

    async def skip_to_deadline(self) -> None:
        """Jump to the next deadline, as a simulation does with idle time."""
        await self.quiet()
        assert self.design.deadline_valid.value == 1, "no timer runs"
        deadline = int(self.design.next_deadline.value)
        distance = (deadline - (self.now >> 16)) & 0xFFFFFFFF
        if distance < 1 << 31:
            self.now += distance << 16
        await self.run(30)

    async def expire(self, limit: int = 2000) -> None:
        """Jump from deadline to deadline until a timeout is counted: those of tails come before."""
        before = self.counts.get(records.GlobalCounter.TIMEOUTS, 0)
        for _ in range(limit):
            await self.skip_to_deadline()
            await self.quiet()
            if self.counts.get(records.GlobalCounter.TIMEOUTS, 0) > before:
                return
        raise AssertionError(f"no timeout at {limit} deadlines")

    # Host

    async def command(
        self, bus: str, index: int, words: list[int] | None, count: int = 0
    ) -> list[int] | None:
        """A table command; None when it was refused."""
        signals = {
            name: getattr(self.design, f"{bus}__{name}")
            for name in (
                "valid",
                "ready",
                "write",
                "index",
                "word",
                "last",
                "write_data",
                "done",
                "error",
                "read_data",
            )
        }
        answer: list[int] = []
        refused = False
        total = len(words) if words is not None else count
        for word in range(total):
            signals["valid"].value = 1
            signals["write"].value = int(words is not None)
            signals["index"].value = index
            signals["word"].value = word
            signals["last"].value = int(word == total - 1)
            signals["write_data"].value = words[word] if words is not None else 0
            taken = False
            for _ in range(20000):
                await self.step()
                if not taken and signals["ready"].value == 1:
                    taken = True
                    signals["valid"].value = 0
                if signals["done"].value == 1:
                    assert taken
                    refused |= signals["error"].value == 1
                    answer.append(int(signals["read_data"].value))
                    break
            else:
                raise AssertionError(f"{bus} command was not answered")
        return None if refused else answer

    async def write_qp(self, qp: int, **values: int) -> bool:
        entry = tables.QP_SEND.pack(**values)[: tables.QP_SEND.write_words]
        return await self.command("qp_send", qp, entry) is not None

    async def read_qp(self, qp: int) -> dict[str, int]:
        words = await self.command("qp_send", qp, None, tables.QP_SEND.words)
        assert words is not None
        return tables.QP_SEND.unpack(words)

    async def post(self, qp: int, slot: int, **values: int) -> None:
        index = qp * self.config.send_queue_depth + slot % self.config.send_queue_depth
        fields = {"signalled": 1, **values}
        assert await self.command("send_request", index, tables.SEND_REQUEST.pack(**fields)) is not None

    def ring(self, qp: int, count: int = 1) -> None:
        self.sources["doorbell"].queue.append(pack(doorbell_record(self.config), qp=qp, count=count))

    async def start_qp(
        self, qp: int, psn: int = 0, evs: int = 4, peer: bool = True, **values: int
    ) -> Peer | None:
        """EV sets on all planes, the QP in RTS, and its peer."""
        fields = {
            "state": 3, "mtu_log2": self.config.mtu.bit_length() - 1, "timeout": 6, "linear_count": 2,
            "exponential_count": 2, "protection_domain": 5, "completion_queue": 1, "ev_profile": qp % 4,
            "initial_psn": psn, "mpr_psns": self.config.mpr_psns, "max_immediates": 32, **values,
        }  # fmt: skip
        for plane in range(self.config.planes):
            entry = tables.EV_SET.pack(good=(1 << evs) - 1)
            assert await self.command("ev_set", qp * self.config.planes + plane, entry) is not None
            block = (fields["ev_profile"] * self.config.planes + plane) * 32
            for n in range(evs):
                value = wire.ev_value(plane, n + 1, qp)
                assert await self.command("ev_value", block + n, [value | (plane + 1) << 32]) is not None
        assert await self.write_qp(qp, **fields)
        if peer:
            self.peers[qp] = Peer(self, qp, psn)
            return self.peers[qp]
        return None
