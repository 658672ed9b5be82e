"""From the ports to host memory: the front of the receive side with placement and counters, as one.

Sweep: data widths 64, 128 and 512 bits; stimulus and power-up contents by seed.
Stimulus: writes of one QP over two planes in random order, each sent up to three times, with frames between
them that must be dropped (cut, bit errors, foreign addresses, wrong keys and windows, trims, giants, runts),
a memory that pauses at random.
Checks: memory holds exactly the bytes of the writes; every frame has one outcome, per port, and those of the
frames whose fate does not depend on timing are as told; a report for every placed packet.
Timing: everything ends within a bounded number of cycles, the assembly is idle then, and frames of the
smallest size back to back at 64 bits a cycle are all accepted, as are a SACK and an ACK for every packet.
"""

import random

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge

import runner
from agents import axi_memory_write, idle_inputs, random_pauses, start, stream_frame, stream_source
from mrc_host.packets.codec import build
from mrc_host.packets.trim import trim
from mrc_rtl import records, wire
from mrc_rtl.config import QP_NUMBER_BASE, NicConfig
from mrc_rtl.counters import CounterBank
from mrc_rtl.memory_regions import MemoryRegions
from mrc_rtl.records import PORT_COUNTERS, AnswerKind, PortCounter
from mrc_rtl.responder.admit import Admission
from mrc_rtl.responder.placement import Placement, placement_id_bits
from mrc_rtl.responder.plane_receive import PlaneReceive
from mrc_rtl.responder.rx_tracker import RxTracker
from mrc_rtl.stream import Axi4WriteSignature, PacketStream, TableBus
from mrc_rtl.tables import MEMORY_REGION, QP_RECEIVE, QpState
from mrc_rtl.wire import Opcode
from stream_monitor import StreamMonitor

PLANES = 2
MEMORY_BYTES = 1 << 18
REGION_BASE = 0x10_0000_0000
BUS_BASE = 0x8000
REGION_BYTES = 0x20000
KEY = 3 << 8 | 0x21
QP = 5
FIRST_PSN = (1 << 24) - 30
OWN, PEER = wire.inner_address(9), wire.inner_address(4)
OWN_USID = wire.usid_value(0, wire.Tier.HOST, 6)
LIMIT = 100_000


def configured(width):
    return NicConfig(planes=PLANES, data_width=width)


class ReceiveFront(wiring.Component):
    """Planes, admission, tracker, memory regions, placement and counters, wired as in the engine."""

    def __init__(self, config):
        self.config = config
        members = {
            "settings": In(records.settings(config)),
            "now": In(48),
            "qps": In(TableBus()),
            "regions": In(TableBus()),
            "counters": In(TableBus()),
            "memory": Out(
                Axi4WriteSignature(config.data_width, config.address_width, placement_id_bits(config))
            ),
            "idle": Out(1),
        }
        for name, layout in (
            ("report", records.received_report), ("feedback", records.feedback_record),
            ("refused", records.refused_packet), ("stash", records.stash_record),
        ):  # fmt: skip
            members[name] = Out(stream.Signature(layout(config)))
        for plane in range(PLANES):
            members[f"receive_{plane}"] = In(PacketStream(config.data_width))
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.admission = admission = Admission(config)
        m.submodules.tracker = tracker = RxTracker(config)
        m.submodules.memory_regions = regions = MemoryRegions(config)
        m.submodules.placement = placement = Placement(config)
        m.submodules.bank = bank = CounterBank(config, PLANES + 2)
        outer = wiring.flipped
        pairs = [
            (outer(self.qps), admission.table), (outer(self.regions), regions.table),
            (outer(self.counters), bank.table), (admission.region, regions.requests[0]),
            (regions.answers[0], admission.region_answer), (admission.init, tracker.init),
            (admission.state_request, tracker.state_request),
            (tracker.state_answer, admission.state_answer), (admission.place, placement.place),
            (placement.placed, tracker.placed), (placement.write, outer(self.memory)),
            (admission.counter, bank.events[PLANES]), (placement.counter, bank.events[PLANES + 1]),
            (tracker.report, outer(self.report)), (admission.feedback, outer(self.feedback)),
            (admission.refused, outer(self.refused)), (admission.stash, outer(self.stash)),
        ]  # fmt: skip
        blocks = [admission, tracker, regions, placement, bank]
        for plane in range(PLANES):
            m.submodules[f"plane{plane}"] = receive = PlaneReceive(config, plane)
            blocks.append(receive)
            pairs += [
                (outer(getattr(self, f"receive_{plane}")), receive.port),
                (receive.record, admission.records[plane]),
                (receive.counter, bank.events[plane]),
            ]
            m.d.comb += [
                receive.settings.eq(self.settings),
                receive.now.eq(self.now),
                receive.take.eq(placement.take[plane]),
                placement.read_data[plane].eq(receive.read_data),
            ]
        for one, other in pairs:
            wiring.connect(m, one, other)
        m.d.comb += [
            admission.region_drain.eq(regions.drain),
            regions.drained.eq(admission.region_drained),
            tracker.expected_qp.eq(admission.expected_qp),
            admission.expected_psn.eq(tracker.expected_psn),
            admission.retired.eq(tracker.retired),
            admission.retired_epoch.eq(tracker.retired_epoch),
            admission.error_out.ready.eq(1),
            tracker.error_out.ready.eq(1),
            tracker.advance.ready.eq(1),
        ]
        idle = 1
        for block in blocks:
            idle &= block.idle
        m.d.comb += self.idle.eq(idle)
        return m


@pytest.mark.parametrize("width", [64, 128, 512])
def test_receive_front(simulation: runner.Simulation, width: int) -> None:
    runner.run_bench(
        lambda: ReceiveFront(configured(width)), __file__, simulation, parameters={"width": width}
    )


WIDTH = runner.parameters().get("width", 64)
CONFIG = configured(WIDTH)


def frame(plane, opcode, payload=b"", *, psn, va=REGION_BASE, key=KEY, srv6=True, stamped=True, **bth):
    """A frame from the peer."""
    fields = {
        "tseth": {"tx_timestamp": 5, "ftype": 1},
        "reth": {"va": va, "rkey": key, "dma_len": len(payload)},
        "meth": {"rqmsn": psn & 0xFFFF},
    }
    stack = [("ethernet", {})]
    common = {"traffic_class": wire.Dscp.TRIMMABLE << 2 | wire.Ecn.ECT0}
    if srv6:
        target = wire.outer_address([OWN_USID | plane << 12])
        stack.append(("ipv6", {"source": 1, "destination": target, **common}))
    stack.append(("ipv6", {"source": PEER, "destination": OWN, **common}))
    stack += [("udp", {"source_port": 0xC000}), ("bth", {
        "opcode": opcode, "dest_qp": QP_NUMBER_BASE + QP, "psn": psn & wire.PSN_MASK, **bth
    })]  # fmt: skip
    stack += [(h.name, fields.get(h.name, {})) for h in wire.headers_after_bth(opcode, stamped)]
    return build(*stack, payload=payload)


class Front:
    """The design with what every test needs."""

    def __init__(self, dut):
        self.dut = dut
        self.sources = [stream_source(dut, f"receive_{plane}") for plane in range(PLANES)]
        self.monitors = [StreamMonitor(dut, f"receive_{plane}") for plane in range(PLANES)]
        self.ram = axi_memory_write(dut, "memory", MEMORY_BYTES)
        self.found = {}

    async def until(self, *signals):
        for _ in range(LIMIT):
            await FallingEdge(self.dut.clk)
            if all(int(signal.value) for signal in signals):
                return
        raise AssertionError(f"nothing happened within {LIMIT} cycles")

    async def command(self, name, index, words=(), read=0):
        """Write ``words`` to an entry, or read that many."""
        result = []
        count = read or len(words)
        port = {part: getattr(self.dut, f"{name}__{part}") for part in (
            "valid", "write", "index", "word", "last", "write_data", "ready", "done", "error", "read_data"
        )}  # fmt: skip
        for word in range(count):
            port["write"].value = int(not read)
            port["index"].value = index
            port["word"].value = word
            port["last"].value = int(word == count - 1)
            port["write_data"].value = 0 if read else words[word]
            port["valid"].value = 1
            await self.until(port["ready"])
            if not int(port["done"].value):
                await RisingEdge(self.dut.clk)
                port["valid"].value = 0
                await self.until(port["done"])
            assert not int(port["error"].value)
            result.append(int(port["read_data"].value))
            await RisingEdge(self.dut.clk)
            port["valid"].value = 0
        return result

    async def watch(self, name, layout):
        port = {part: getattr(self.dut, f"{name}__{part}") for part in ("valid", "ready", "payload")}
        port["ready"].value = 1
        records_of = self.found.setdefault(name, [])
        while True:
            await FallingEdge(self.dut.clk)
            if int(port["valid"].value):
                value = layout(CONFIG).from_bits(int(port["payload"].value))
                records_of.append({field: int(getattr(value, field)) for field, _ in layout(CONFIG)})

    async def begin(self, memory_pause=0.0):
        idle_inputs(self.dut)
        await start(self.dut)
        self.dut.settings.value = records.settings(CONFIG).const({
            "enable": 1, "own_address": OWN, "own_usid": OWN_USID, "usid_block": wire.USID_BLOCK,
            "port_up": (1 << PLANES) - 1, "dscp_trimmed": wire.Dscp.TRIMMED,
            "dscp_trimmed_last_hop": wire.Dscp.TRIMMED_LASTHOP,
        }).as_bits()  # fmt: skip
        if memory_pause:
            for channel in (self.ram.aw_channel, self.ram.w_channel, self.ram.b_channel):
                channel.set_pause_generator(random_pauses(memory_pause))
        for name, layout in (
            ("report", records.received_report), ("feedback", records.feedback_record),
            ("refused", records.refused_packet), ("stash", records.stash_record),
        ):  # fmt: skip
            cocotb.start_soon(self.watch(name, layout))
        await self.command("regions", KEY >> 8, MEMORY_REGION.pack(
            key=KEY, protection_domain=2, remote_write=1, valid=1, base=REGION_BASE, length=REGION_BYTES,
            bus_address=BUS_BASE,
        ))  # fmt: skip
        await self.command("qps", QP, QP_RECEIVE.pack(
            state=QpState.RTR, protection_domain=2, partition_key=0xFFFF, initial_psn=FIRST_PSN,
            peer_qpn=0x300, peer_high=PEER >> 64, peer_low=PEER & (1 << 64) - 1,
        )[:4])  # fmt: skip

    async def send(self, plane, data, *, error=False):
        """Queue a frame behind the plane's others, at most 64 bits a cycle on the link."""
        await self.sources[plane].send(stream_frame(data, error=error))

    async def drain(self):
        """Wait until everything sent has been dealt with."""
        for source in self.sources:
            await source.wait()
        for _ in range(2):
            await ClockCycles(self.dut.clk, 40)
            await self.until(self.dut.idle)
            await RisingEdge(self.dut.clk)

    async def counters(self, plane):
        """Outcomes of a port that are not zero."""
        found = {}
        for reason in PortCounter:
            (count,) = await self.command("counters", plane * PORT_COUNTERS + reason, read=1)
            if count and reason <= PortCounter.TRIM_IGNORED:
                found[reason] = count
        return found

    def pace(self):
        """Ports wider than 64 bits bring a beat only every so many cycles."""
        period = CONFIG.data_bytes // 8
        if period > 1:
            for source in self.sources:
                source.set_pause_generator(_every(period))


def _every(period):
    while True:
        yield False
        for _ in range(period - 1):
            yield True


def wrong_frame(rnd, plane, psn):
    """A frame that never reaches memory, and its outcome."""
    good = frame(plane, Opcode.WRITE_ONLY, rnd.randbytes(40), psn=psn)
    flip = rnd.randrange(62 + 40 + 12, len(good))
    reason = PortCounter
    return rnd.choice([
        (good[: rnd.randrange(14, len(good))], reason.DROP_TRUNCATED),
        (good[:flip] + bytes([good[flip] ^ 1]) + good[flip + 1 :], reason.DROP_ICRC),
        (frame(plane ^ 1, Opcode.WRITE_ONLY, b"x", psn=psn), reason.DROP_ADDRESS),
        (frame(plane, Opcode.WRITE_ONLY, b"x", psn=psn, dest_qp=0x101), reason.DROP_QP),
        (frame(plane, Opcode.WRITE_ONLY, b"x", psn=psn, pkey=1), reason.DROP_PKEY),
        (frame(plane, Opcode.WRITE_ONLY, b"x", psn=psn + 1000), reason.DROP_WINDOW),
        (frame(plane, Opcode.PROBE, psn=0), reason.CONTROL),
        (frame(plane, Opcode.ENDPOINT_REQUEST, psn=0), reason.DROP_QP),
        (frame(plane, Opcode.ENDPOINT_REQUEST, psn=9, dest_qp=wire.ENDPOINT_QPN), reason.CONTROL),
        (frame(plane, Opcode.SACK, psn=3), reason.CONTROL),
        (trim(good, 118, correct_lengths=False, last_hop=bool(psn & 1)), reason.TRIMMED_ANSWERED),
        (good + bytes(rnd.choice([4, 5000])), reason.DROP_LENGTH),
        (bytes(rnd.randrange(1, 14)), reason.DROP_FRAME_ERROR),
        (b"\xff" * 12 + b"\x08\x00" + bytes(50), reason.DROP_IPV4),
    ])  # fmt: skip


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def writes_in_any_order_between_bad_frames(dut) -> None:
    front = Front(dut)
    rnd = random.Random(random.getrandbits(32))
    await front.begin(memory_pause=0.3)
    front.pace()
    wanted = bytearray(MEMORY_BYTES)
    packets = []
    place = 0
    for number in range(120):
        size = rnd.choice([1, rnd.randrange(1, 130), rnd.randrange(1, 1025), 1024])
        place += rnd.randrange(3)
        content = rnd.randbytes(size)
        wanted[BUS_BASE + place : BUS_BASE + place + size] = content
        packets.append((FIRST_PSN + number, REGION_BASE + place, content))
        place += size
    expected = [dict.fromkeys(PortCounter, 0) for _ in range(PLANES)]
    sent = [0] * PLANES
    rnd.shuffle(packets)
    for psn, va, content in packets:
        for copy in range(rnd.choice([1, 1, 1, 2, 3])):
            plane = rnd.randrange(PLANES)
            opcode = rnd.choice([Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST, Opcode.WRITE_ONLY_IMM])
            data = frame(
                plane, opcode, content, psn=psn, va=va, srv6=rnd.random() < 0.7, stamped=rnd.random() < 0.7
            )
            sent[plane] += 1
            expected[plane][PortCounter.DUPLICATE if copy else PortCounter.ACCEPTED] += 1
            await front.send(plane, data)
            # One packet after the other, so that every outcome is known.
            await front.drain()
        for _ in range(rnd.randrange(3)):
            plane = rnd.randrange(PLANES)
            data, reason = wrong_frame(rnd, plane, psn)
            sent[plane] += 1
            expected[plane][reason] += 1
            await front.send(plane, data)
    await front.drain()
    written = front.ram.read(0, MEMORY_BYTES)
    assert written[BUS_BASE : BUS_BASE + REGION_BYTES] == wanted[BUS_BASE : BUS_BASE + REGION_BYTES]
    for plane in range(PLANES):
        counted = await front.counters(plane)
        assert counted.pop(PortCounter.RX_FRAMES) == sent[plane] == sum(counted.values())
        assert counted == {reason: count for reason, count in expected[plane].items() if count}
    accepted = sum(counts[PortCounter.ACCEPTED] for counts in expected)
    placed = front.found["report"]
    assert len(placed) == accepted == len(packets)
    assert [report["drained"] for report in placed][-1] == 1
    state = QP_RECEIVE.unpack(await front.command("qps", QP, read=6))
    assert state["cumulative_psn"] == (FIRST_PSN + len(packets) - 1) & wire.PSN_MASK


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def streams_over_both_planes_are_placed_and_counted(dut) -> None:
    front = Front(dut)
    rnd = random.Random(random.getrandbits(32))
    await front.begin(memory_pause=0.1)
    front.pace()
    wanted = bytearray(MEMORY_BYTES)
    sent = [0] * PLANES
    for number in range(110):
        content = rnd.randbytes(rnd.choice([1, 64, 300, 1024]))
        wanted[BUS_BASE + 1024 * number : BUS_BASE + 1024 * number + len(content)] = content
        plane = number % PLANES
        data = frame(
            plane, Opcode.WRITE_ONLY, content, psn=FIRST_PSN + number, va=REGION_BASE + 1024 * number
        )
        for _ in range(3):  # what finds no room comes again
            await front.send(plane, data)
            sent[plane] += 1
        if rnd.random() < 0.2:
            await front.send(plane, bytes(rnd.randrange(1, 3000)), error=True)
            sent[plane] += 1
    await front.drain()
    placed = {report["psn"] for report in front.found["report"]}
    assert len(placed) == len(front.found["report"])
    written = front.ram.read(0, MEMORY_BYTES)
    accepted = 0
    for plane in range(PLANES):
        counted = await front.counters(plane)
        assert counted.pop(PortCounter.RX_FRAMES) == sent[plane] == sum(counted.values())
        assert set(counted) <= {
            PortCounter.ACCEPTED, PortCounter.DUPLICATE, PortCounter.DROP_FRAME_ERROR,
            PortCounter.DROP_NO_PKT_BUFFER, PortCounter.DROP_WINDOW,
        }  # fmt: skip
        accepted += counted[PortCounter.ACCEPTED]
    assert accepted == len(placed) > 80
    for number in range(110):
        if (FIRST_PSN + number) & wire.PSN_MASK in placed:
            part = slice(BUS_BASE + 1024 * number, BUS_BASE + 1024 * (number + 1))
            assert written[part] == wanted[part]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def smallest_frames_back_to_back_are_all_accepted(dut) -> None:
    front = Front(dut)
    await front.begin()
    front.pace()
    count = 60
    for number in range(count):
        plane = number % PLANES
        data = frame(
            plane, Opcode.WRITE_ONLY, b"%02d" % number, psn=FIRST_PSN + number, va=REGION_BASE + 2 * number
        )
        await front.send(plane, data)
    await front.drain()
    for plane in range(PLANES):
        assert await front.counters(plane) == {
            PortCounter.RX_FRAMES: count // PLANES, PortCounter.ACCEPTED: count // PLANES
        }  # fmt: skip
        frames = front.monitors[plane].frames
        cycles = frames[-1].last_cycle - frames[0].first_cycle + 1
        words = sum(-(-len(seen.data) // 8) for seen in frames)
        assert cycles <= words * 1.3 + 8, "the source sends back to back"
    assert front.ram.read(BUS_BASE, 2 * count) == b"".join(b"%02d" % number for number in range(count))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_sack_and_an_ack_for_every_packet_are_all_handed_over(dut) -> None:
    front = Front(dut)
    await front.begin()
    front.pace()
    pairs = 20
    for number in range(pairs):
        for plane in range(PLANES):
            for opcode in (Opcode.SACK, Opcode.ACKNOWLEDGE):
                await front.send(plane, frame(plane, opcode, psn=number, srv6=False))
    await front.drain()
    for plane in range(PLANES):
        assert await front.counters(plane) == {
            PortCounter.RX_FRAMES: 2 * pairs, PortCounter.CONTROL: 2 * pairs
        }  # fmt: skip
        found = [
            (record["opcode"], record["psn"])
            for record in front.found["feedback"]
            if record["plane"] == plane
        ]
        assert found == [
            (opcode, number) for number in range(pairs) for opcode in (Opcode.SACK, Opcode.ACKNOWLEDGE)
        ]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def probes_and_endpoint_requests_are_answered_at_line_rate(dut) -> None:
    front = Front(dut)
    await front.begin()
    front.pace()
    pairs = 15
    for number in range(pairs):
        for plane in range(PLANES):
            await front.send(plane, frame(plane, Opcode.PROBE, psn=0))
            await front.send(
                plane, frame(plane, Opcode.ENDPOINT_REQUEST, psn=number, dest_qp=wire.ENDPOINT_QPN)
            )
    await front.drain()
    for plane in range(PLANES):
        assert await front.counters(plane) == {
            PortCounter.RX_FRAMES: 2 * pairs, PortCounter.CONTROL: 2 * pairs
        }  # fmt: skip
        found = [
            (record["kind"], record["psn"], record["qp"])
            for record in front.found["refused"]
            if record["plane"] == plane
        ]
        kinds = (AnswerKind.SACK_OF_PROBE, 0), (AnswerKind.ENDPOINT_RESPONSE, 1)
        assert found == [(kind, number * sent, QP) for number in range(pairs) for kind, sent in kinds]
