"""From admitted packets to host memory, completions and answers: the back of the receive side as one.

Sweep: 64 bits, the widths are swept block by block in tests/rtl; two seeds of stimulus, random power-up.
Stimulus: WRITE_WITH_IMM messages of one to four packets on two QPs, packets of a window in random order over
two planes, a memory and a control stream that pause at random; a message without a receive request.
Checks: every byte of every message is in memory and nothing between them; completions in the ring with
request, immediate and length, in each QP's order; SACKs move forward and the last one covers everything;
counters equal what was seen; buffers are empty in the end; the refused message gets a NAK and an error.
Timing: everything ends within a bounded number of cycles, and the assembly is idle then.
"""

import random

import cocotb
import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from cocotb.triggers import FallingEdge, RisingEdge

import runner
from agents import axi_memory_write, idle_inputs, random_pauses, start
from mrc_rtl import records, wire
from mrc_rtl.config import QP_NUMBER_BASE, NicConfig
from mrc_rtl.counters import CounterBank
from mrc_rtl.record_streams import RecordArbiter, RecordBroadcast
from mrc_rtl.records import PORT_COUNTERS, GlobalCounter
from mrc_rtl.responder.completions import CQE_BYTES, Completions
from mrc_rtl.responder.immediates import Immediates
from mrc_rtl.responder.placement import Placement
from mrc_rtl.responder.rx_tracker import RxTracker
from mrc_rtl.responder.sack import SackGenerator
from mrc_rtl.responder.write_arbiter import WriteArbiter, write_id_bits
from mrc_rtl.stream import Axi4WriteSignature, TableBus
from mrc_rtl.tables import CQ_ENTRY, CQE, QpErrorReason

PLANES = 2
MEMORY_BYTES = 1 << 20
RING = 0x8000
RING_LOG2 = 7
LIMIT = 60_000
PSN_MASK = (1 << 24) - 1


def configured(width):
    return NicConfig(planes=PLANES, data_width=width, receive_queue_depth=64, receive_buffer_bytes=8192)


class ReceiveBack(wiring.Component):
    """The blocks behind admission, wired as in the engine, with packet buffers that the bench fills."""

    def __init__(self, config):
        self.config = config

        def source(layout):
            return Out(stream.Signature(layout(config)))

        def sink(layout):
            return In(stream.Signature(layout(config)))

        super().__init__(
            {
                "init": sink(records.receive_init),
                "place": sink(records.place_command),
                "stash": sink(records.stash_record),
                "doorbell": sink(records.doorbell),
                "consumer": sink(records.consumer_record),
                "requests": In(TableBus()),
                "queues": In(TableBus()),
                "counters": In(TableBus()),
                "control": source(records.control_request),
                "error": source(records.qp_error),
                "memory": Out(
                    Axi4WriteSignature(config.data_width, config.address_width, write_id_bits(config))
                ),
                "fill": In(1).array(PLANES),
                "fill_row": In(records.buffer_address_bits(config)),
                "fill_data": In(config.data_width),
                "taken": Out(16).array(PLANES),
                "threshold": In(17),
                "now": In(48),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.placement = placement = Placement(config)
        m.submodules.tracker = tracker = RxTracker(config)
        m.submodules.sack = sack = SackGenerator(config)
        m.submodules.immediates = immediates = Immediates(config)
        m.submodules.completions = completions = Completions(config)
        m.submodules.writes = writes = WriteArbiter(config)
        m.submodules.inits = inits = RecordBroadcast(records.receive_init(config), 3)
        m.submodules.errors = errors = RecordArbiter(records.qp_error(config), 3)
        m.submodules.bank = bank = CounterBank(config, 3)

        outer = wiring.flipped
        for one, other in (
            (outer(self.place), placement.place), (outer(self.stash), immediates.stash),
            (outer(self.doorbell), immediates.doorbell), (outer(self.consumer), completions.consumer),
            (outer(self.requests), immediates.table), (outer(self.queues), completions.table),
            (outer(self.counters), bank.table), (outer(self.init), inits.input),
            (inits.outputs[0], tracker.init), (inits.outputs[1], sack.init),
            (inits.outputs[2], immediates.init),
            (placement.placed, tracker.placed), (tracker.report, sack.report),
            (tracker.advance, immediates.advance), (sack.snapshot, tracker.snapshot),
            (tracker.snapshot_answer, sack.snapshot_answer), (sack.control, outer(self.control)),
            (immediates.nak, sack.nak),
            (immediates.completion, completions.received),
            (placement.write, writes.placement), (completions.write, writes.completions),
            (writes.write, outer(self.memory)),
            (tracker.error_out, errors.inputs[0]), (immediates.error_out, errors.inputs[1]),
            (completions.overrun, errors.inputs[2]), (errors.output, outer(self.error)),
            (placement.counter, bank.events[0]), (sack.counter, bank.events[1]),
            (completions.counter, bank.events[2]),
        ):  # fmt: skip
            wiring.connect(m, one, other)
        m.d.comb += [
            sack.now.eq(self.now),
            sack.coming.eq(tracker.coming),
            sack.settings.sack_threshold.eq(self.threshold),
        ]
        for plane in range(PLANES):
            memory = Memory(shape=config.data_width, depth=1 << len(self.fill_row), init=[])
            m.submodules[f"buffer{plane}"] = memory
            read, write = memory.read_port(), memory.write_port()
            taken = self.taken[plane]
            m.d.comb += [
                read.addr.eq(taken),
                read.en.eq(placement.take[plane]),
                placement.read_data[plane].eq(read.data),
                write.addr.eq(self.fill_row),
                write.data.eq(self.fill_data),
                write.en.eq(self.fill[plane]),
            ]
            with m.If(placement.take[plane]):
                m.d.sync += taken.eq(taken + 1)
        blocks = (placement, tracker, sack, immediates, completions, writes, inits, errors, bank)
        m.d.comb += self.idle.eq(Cat(block.idle for block in blocks).all())
        return m


@pytest.mark.parametrize("width", [64])
def test_receive_back(simulation: runner.Simulation, width: int) -> None:
    runner.run_bench(
        lambda: ReceiveBack(configured(width)), __file__, simulation, parameters={"width": width}
    )


WIDTH = runner.parameters().get("width", 64)
CONFIG = configured(WIDTH)


class Driver:
    """Hands records and table words to the design; every wait is bounded."""

    def __init__(self, dut):
        self.dut = dut
        self.head = [0] * PLANES
        self.rows = CONFIG.receive_buffer_bytes // CONFIG.data_bytes

    async def _until(self, *signals):
        for _ in range(LIMIT):
            await FallingEdge(self.dut.clk)
            if all(int(signal.value) for signal in signals):
                return
        raise AssertionError(f"nothing happened within {LIMIT} cycles")

    async def settle(self):
        """Wait until the design is idle and what it gave out is taken."""
        await self._until(self.dut.idle)
        await RisingEdge(self.dut.clk)

    async def send(self, name, layout, **fields):
        port = getattr(self.dut, f"{name}__payload")
        port.value = layout(CONFIG).const(fields).as_bits()
        getattr(self.dut, f"{name}__valid").value = 1
        await self._until(getattr(self.dut, f"{name}__ready"))
        await RisingEdge(self.dut.clk)
        getattr(self.dut, f"{name}__valid").value = 0

    async def command(self, name, index, words=(), read=0):
        """Write ``words`` to an entry, or read that many; returns what was read."""
        result = []
        count = read or len(words)
        for word in range(count):
            fields = {
                "write": int(not read), "index": index, "word": word, "last": int(word == count - 1),
                "write_data": 0 if read else words[word], "valid": 1,
            }  # fmt: skip
            for field, value in fields.items():
                getattr(self.dut, f"{name}__{field}").value = value
            await self._until(getattr(self.dut, f"{name}__ready"))
            done = getattr(self.dut, f"{name}__done")
            if not int(done.value):
                await RisingEdge(self.dut.clk)
                getattr(self.dut, f"{name}__valid").value = 0
                await self._until(done)
            assert not int(getattr(self.dut, f"{name}__error").value)
            result.append(int(getattr(self.dut, f"{name}__read_data").value))
            await RisingEdge(self.dut.clk)
            getattr(self.dut, f"{name}__valid").value = 0
        return result

    async def fill(self, plane, payload):
        """Put payload into a plane's buffer."""
        beats = -(-len(payload) // CONFIG.data_bytes)
        for _ in range(LIMIT):
            used = (self.head[plane] - int(getattr(self.dut, f"taken__{plane}").value)) & 0xFFFF
            if used + beats <= self.rows:
                break
            await RisingEdge(self.dut.clk)
        start_row = self.head[plane] % self.rows
        for beat in range(beats):
            part = payload[beat * CONFIG.data_bytes : (beat + 1) * CONFIG.data_bytes]
            self.dut.fill_row.value = (start_row + beat) % self.rows
            self.dut.fill_data.value = int.from_bytes(part, "little")
            getattr(self.dut, f"fill__{plane}").value = 1
            await RisingEdge(self.dut.clk)
        getattr(self.dut, f"fill__{plane}").value = 0
        self.head[plane] += beats


async def watch(dut, name, layout, pause, found):
    """Take every record of an output, with random pauses."""
    ready, valid, payload = (getattr(dut, f"{name}__{part}") for part in ("ready", "valid", "payload"))
    pauses = random_pauses(pause)
    while True:
        ready.value = int(not next(pauses))
        await FallingEdge(dut.clk)
        if int(valid.value) and int(ready.value):
            record = layout(CONFIG).from_bits(int(payload.value))
            found.append({field: int(getattr(record, field)) for field, _ in layout(CONFIG)})
        await RisingEdge(dut.clk)


def messages_of(rnd, qp, psn, base, count):
    """Messages with their packets; each one's bytes stand 64 bytes or more apart in memory."""
    result, place = [], base
    for number in range(count):
        place += 64 + rnd.randrange(64)
        packets = []
        length = 0
        for _ in range(rnd.choice([1, 1, 2, 4])):
            size = rnd.choice([1, rnd.randrange(1, 200), rnd.randrange(1, 1025), 1024])
            packets.append({"psn": psn, "address": place + length, "payload": rnd.randbytes(size), "last": 0})
            length += size
            psn = (psn + 1) & PSN_MASK
        packets[-1]["last"] = 1
        result.append(
            {
                "qp": qp, "packets": packets, "address": place, "length": length, "rqmsn": number,
                "immediate": rnd.getrandbits(32), "wr_id": rnd.getrandbits(64),
            }
        )  # fmt: skip
        place += length
    return result


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(seed=[1, 2])
async def messages_arrive(dut, seed) -> None:
    rnd = random.Random(seed)
    idle_inputs(dut)
    ram = axi_memory_write(dut, "memory", MEMORY_BYTES)
    for channel in (ram.aw_channel, ram.w_channel, ram.b_channel):
        channel.set_pause_generator(random_pauses(0.3, rnd.getrandbits(32)))
    await start(dut)
    dut.threshold.value = 4096
    dut.now.value = 5 << 16
    driver = Driver(dut)
    controls, errors = [], []
    cocotb.start_soon(watch(dut, "control", records.control_request, 0.5, controls))
    cocotb.start_soon(watch(dut, "error", records.qp_error, 0.5, errors))

    entry = CQ_ENTRY.pack(base=RING, log2_entries=RING_LOG2, enabled=1)[: CQ_ENTRY.write_words]
    await driver.command("queues", 2, entry)
    plan = {
        1: messages_of(rnd, 1, PSN_MASK - 30, 0x10000, 40),
        6: messages_of(rnd, 6, 77, 0x40000, 40),
    }
    for qp, messages in plan.items():
        first = messages[0]["packets"][0]["psn"]
        await driver.send(
            "init", records.receive_init, qp=qp, active=1, initial_psn=first, peer_qpn_low=0x200 + qp,
            completion_queue=2,
        )  # fmt: skip
        for number, message in enumerate(messages):
            index = qp * CONFIG.receive_queue_depth + number
            await driver.command("requests", index, [message["wr_id"]])
        await driver.send("doorbell", records.doorbell, qp=qp, count=len(messages))

    # Each QP's packets are shuffled inside a window of 24 PSNs; the immediate comes with the last one.
    queue = []
    for messages in plan.values():
        mine = [(m, p) for m in messages for p in m["packets"]]
        order = sorted(range(len(mine)), key=lambda n: n + rnd.randrange(24))
        queue.append([mine[n] for n in order])
    while any(queue):
        packets = rnd.choice([part for part in queue if part])
        message, packet = packets.pop(0)
        plane = rnd.randrange(PLANES)
        await driver.fill(plane, packet["payload"])
        if packet["last"]:
            await driver.send(
                "stash", records.stash_record, qp=message["qp"], psn=packet["psn"], plane=plane,
                rqmsn=message["rqmsn"], message_number=message["rqmsn"], immediate=message["immediate"],
                length=message["length"],
            )  # fmt: skip
        await driver.send(
            "place", records.place_command, qp=message["qp"], psn=packet["psn"], plane=plane,
            ev=rnd.getrandbits(32), length=len(packet["payload"]), last=packet["last"],
            bus_address=packet["address"], timestamped=1, age=-1 & 0xFFFF,
            ack_request=int(not packets),
        )  # fmt: skip
    await driver.settle()

    for messages in plan.values():
        end = messages[0]["address"]
        for message in messages:
            assert not any(ram.read(end, message["address"] - end)), "bytes between messages"
            whole = b"".join(packet["payload"] for packet in message["packets"])
            assert ram.read(message["address"], len(whole)) == whole
            end = message["address"] + len(whole)
    expected = {qp: list(messages) for qp, messages in plan.items()}
    for number in range(sum(map(len, plan.values()))):
        raw = ram.read(RING + CQE_BYTES * number, CQE_BYTES)
        words = [int.from_bytes(raw[n : n + 8], "little") for n in range(0, CQE_BYTES, 8)]
        cqe = CQE.unpack(words)
        message = expected[cqe["qpn"] - QP_NUMBER_BASE].pop(0)
        for name, value in (
            ("wr_id", message["wr_id"]), ("immediate", message["immediate"]), ("phase", 1), ("status", 0),
            ("byte_length", message["length"]), ("message_number", message["rqmsn"]),
        ):  # fmt: skip
            assert cqe[name] == value, name
    assert not any(expected.values())
    assert not errors

    newest = {}
    for control in controls:
        if control["opcode"] == wire.Opcode.SACK:
            seth = wire.SETH.unpack(control["body"] >> (records.BODY_BITS - wire.SETH.bits))
            assert seth["dpdcid"] == 0x200 + control["qp"]
            assert seth["cack_psn"] == control["psn"]
            before = newest.get(control["qp"], control["psn"])
            assert (control["psn"] - before) & PSN_MASK < 1 << 23
            newest[control["qp"]] = control["psn"]
    assert newest == {qp: messages[-1]["packets"][-1]["psn"] for qp, messages in plan.items()}
    kinds = [control["opcode"] for control in controls]
    base = PLANES * PORT_COUNTERS
    for counter, value in (
        (GlobalCounter.SACK_SENT, kinds.count(wire.Opcode.SACK)),
        (GlobalCounter.ACK_SENT, kinds.count(wire.Opcode.ACKNOWLEDGE)),
        (GlobalCounter.NACK_SENT, 0), (GlobalCounter.NAK_SENT, 0),
        (GlobalCounter.COMPLETIONS, sum(map(len, plan.values()))),
        (GlobalCounter.COMPLETION_OVERRUN, 0), (GlobalCounter.WRITE_ERRORS, 0),
    ):  # fmt: skip
        assert await driver.command("counters", base + counter, read=1) == [value], counter
    for plane in range(PLANES):
        assert int(getattr(dut, f"taken__{plane}").value) == driver.head[plane] & 0xFFFF


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_message_without_request_is_refused(dut) -> None:
    idle_inputs(dut)
    axi_memory_write(dut, "memory", MEMORY_BYTES)
    await start(dut)
    dut.threshold.value = 4096
    driver = Driver(dut)
    controls, errors = [], []
    cocotb.start_soon(watch(dut, "control", records.control_request, 0.5, controls))
    cocotb.start_soon(watch(dut, "error", records.qp_error, 0.5, errors))
    await driver.send("init", records.receive_init, qp=3, active=1, initial_psn=9, peer_qpn_low=0x203)
    await driver.fill(1, b"refused")
    await driver.send("stash", records.stash_record, qp=3, psn=9, plane=1)
    await driver.send(
        "place", records.place_command, qp=3, psn=9, plane=1, length=7, last=1, bus_address=0x100,
    )  # fmt: skip
    await driver.settle()
    assert errors == [{"qp": 3, "reason": QpErrorReason.INVALID_REQUEST}]
    (nak,) = controls
    assert (nak["opcode"], nak["psn"], nak["plane"]) == (wire.Opcode.ACKNOWLEDGE, 9, 1)
    aeth = wire.AETH.unpack(nak["body"] >> (records.BODY_BITS - wire.AETH.bits))
    assert aeth == {"syndrome": wire.AethSyndrome.NAK_INVALID_REQUEST, "msn": 1}
