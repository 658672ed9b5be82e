"""Everything around the transmit path of a NIC, driven cycle by cycle, and the frames that must come out.

The frames are built by the host's packet codec, which shares only the header layouts with the gateware.
"""

import random
from collections import deque
from dataclasses import dataclass, field

import cocotb
from amaranth.lib import data
from cocotb.triggers import FallingEdge, RisingEdge

import runner
from agents import start
from images import build_image
from mrc_host.packets.codec import build
from mrc_rtl import records, tables, wire
from mrc_rtl.config import NicConfig
from mrc_rtl.records import PORT_COUNTERS, PortCounter
from mrc_rtl.requester.records import ready_slot, slot_packet
from mrc_rtl.transmit.payload_fetch import fetch_request
from stream_monitor import StreamMonitor

__all__ = ["CONFIG", "Job", "World", "configuration", "running_world", "template"]

MEMORY_BYTES = 1 << 16
OUTER_SOURCE = wire.outer_address(
    [wire.usid_value(0, wire.Tier.T0, 3), wire.usid_value(0, wire.Tier.HOST, 7)]
)
TEMPLATE_USIDS = [
    wire.usid_value(0, wire.Tier.T0, 3),
    wire.USID.pack(tier=wire.Tier.T1),
    wire.usid_value(0, wire.Tier.T0, 9),
    wire.usid_value(0, wire.Tier.HOST, 1),
]
PLANE_MASK, UPLINK_MASK = 0b1111, 0b0010


def configuration(width: int) -> NicConfig:
    return NicConfig(
        planes=2,
        data_width=width,
        mtu=4096,
        receive_buffer_bytes=8192,
        qps=4,
        transmit_slots=8 if width == 512 else 4,
    )


CONFIG = configuration(runner.parameters().get("width", 64))


def pack(layout: data.Layout, values: dict) -> int:
    return layout.const(values).as_bits()


def settings_values() -> dict:
    return {
        "mac": [wire.mac_address(plane, 5) for plane in range(CONFIG.planes)],
        "next_hop_mac": [0x02AA_0000_1100 | plane for plane in range(CONFIG.planes)],
    }


def template(qp: int, srv6: bool) -> bytes:
    """Options, image and rubbish behind it."""
    ipv6 = wire.IPV6.pack(
        source=wire.inner_address(5), destination=wire.inner_address(6 + qp), payload_length=0
    ).to_bytes(40, "big")
    outer = wire.IPV6.pack(
        source=OUTER_SOURCE,
        destination=wire.outer_address(TEMPLATE_USIDS),
        next_header=wire.NextHeader.IPV6,
    ).to_bytes(40, "big")
    image = b"\x86\xdd" + (outer if srv6 else b"") + ipv6
    image += wire.UDP.pack().to_bytes(8, "big") + wire.BTH.pack(dest_qp=0x1234 + qp, opcode=0).to_bytes(
        12, "big"
    )
    options = bytes([srv6, PLANE_MASK, UPLINK_MASK]) + random.randbytes(9)
    return (options + image).ljust(114, b"\xa5") + random.randbytes(14)


@dataclass
class Job:
    """A packet to send: what is in the plan, and its payload."""

    qp: int
    opcode: int
    body: bytes
    payload: bytes = b""
    data: bool = False
    address: int = 0
    retransmission: bool = False
    ack_request: bool = False
    discard: bool = False
    ev: int = field(default_factory=lambda: 0xC000_0000 | random.getrandbits(30))
    psn: int = field(default_factory=lambda: random.getrandbits(24))
    ecn: int = 0
    dscp: int = field(default_factory=lambda: random.getrandbits(6))

    @property
    def endpoint(self) -> bool:
        return self.opcode == wire.Opcode.ENDPOINT_RESPONSE

    def frame(self, plane: int, srv6: bool) -> bytes:
        traffic = {"traffic_class": self.dscp << 2 | self.ecn, "flow_label": self.ev & 0xFFFF}
        macs = settings_values()
        headers = [
            ("ethernet", {"destination": macs["next_hop_mac"][plane], "source": macs["mac"][plane]}),
        ]
        if srv6:
            uplink = self.ev >> 16 & 0xFF
            carrier = [usid | plane << 12 for usid in TEMPLATE_USIDS]
            carrier[1] |= uplink
            source = OUTER_SOURCE | (plane << 12) << 80 | (plane << 12) << 64
            headers.append(
                ("ipv6", {**traffic, "source": source, "destination": wire.outer_address(carrier)})
            )
        headers += [
            (
                "ipv6",
                {
                    **traffic,
                    "source": wire.inner_address(5),
                    "destination": wire.inner_address(6 + self.qp),
                },
            ),
            ("udp", {"source_port": self.ev >> 16}),
            (
                "bth",
                {
                    "opcode": self.opcode,
                    "dest_qp": wire.ENDPOINT_QPN if self.endpoint else 0x1234 + self.qp,
                    "psn": self.psn,
                    "ack_req": int(self.ack_request),
                    "rtx": int(self.retransmission),
                    "ts": int(self.data),
                },
            ),
        ]
        return build(*headers, payload=self.body + self.payload)

    def descriptor(self) -> dict:
        return {
            "qp": self.qp,
            "psn": self.psn,
            "opcode": self.opcode,
            "length": len(self.payload),
            "body": int.from_bytes(self.body.ljust(records.DATA_BODY_BITS // 8, b"\0"), "big"),
        }

    def plan(self, plane: int, row: int) -> int:
        return pack(
            records.transmit_plan(CONFIG),
            {
                "qp": self.qp,
                "plane": plane,
                "data": int(self.data),
                "discard": int(self.discard),
                "endpoint": int(self.endpoint),
                "ev": self.ev,
                "dscp": self.dscp,
                "ecn": self.ecn,
                "retransmission": int(self.retransmission),
                "time": int.from_bytes(self.body[4:6], "big") if self.data else random.getrandbits(16),
                "body_words": len(self.body) // 4,
                "row": row,
                "length": len(self.payload),
            },
        )

    def image(self) -> list[int]:
        # The time is in the plan.
        body = self.body[:4] + bytes(2) + self.body[6:] if self.data else self.body
        return build_image(
            CONFIG,
            data=self.data,
            opcode=self.opcode,
            psn=self.psn,
            body=body,
            length=len(self.payload),
            ack_request=self.ack_request,
            retransmission=self.retransmission,
        )


def _compare(got: bytes, wanted: bytes, name: str) -> None:
    """Fail with the first difference; frames are too long to be shown."""
    if got == wanted:
        return
    at = next(
        (n for n, pair in enumerate(zip(got, wanted)) if pair[0] != pair[1]), min(len(got), len(wanted))
    )
    raise AssertionError(
        f"{name}: {len(got)} bytes, should be {len(wanted)}; differs from byte {at} on: "
        f"{got[at : at + 16].hex()}, should be {wanted[at : at + 16].hex()}"
    )


class World:
    """Drives everything around the path, cycle by cycle: memory, requests, bind, ports, counters."""

    def __init__(self, dut) -> None:
        self.dut = dut
        self.memory = random.randbytes(MEMORY_BYTES)
        self.latency = 10
        self.bad_addresses: set[int] = set()
        self.port_wait = 0.0
        self.memory_wait = 0.0
        self.bind_any = False  # offer plans for planes without room, too
        self.cycle = 0
        self.requests: deque[Job] = deque()
        self.control: deque[Job] = deque()
        self.awaited: deque[Job] = deque()
        self.fetched: deque[tuple[Job, int]] = deque()
        self.sent: list[list[Job]] = [[] for _ in range(CONFIG.planes)]
        self.discarded = 0
        self.errors: list[int] = []
        self.counts: dict[int, int] = {}
        self.reads: deque[list[int]] = deque()
        self.bursts = 0
        self.turn = 0
        self.srv6 = {qp: bool(qp & 1) for qp in range(CONFIG.qps)}
        self.monitors: list[StreamMonitor] = []
        self.offered: tuple[Job, int] | None = None
        self.images: dict[int, list[int]] = {}
        self.control_row = 0

    async def start(self) -> None:
        dut = self.dut
        for name in runner.parameters()["inputs"]:
            if name not in ("clk", "rst"):
                getattr(dut, name).value = 0
        dut.settings.value = pack(records.settings(CONFIG), settings_values())
        self.monitors = [StreamMonitor(dut, f"ports__{plane}") for plane in range(CONFIG.planes)]
        await start(dut)
        cocotb.start_soon(self.run())
        for qp in range(CONFIG.qps):
            await self.write_template(qp, template(qp, self.srv6[qp]))

    async def command(self, write: bool, index: int, words: list[int]) -> tuple[list[int], bool]:
        """Carry out a table command; return words read and whether it was refused."""
        dut = self.dut
        answers, refused = [], False
        for number, word in enumerate(words):
            await RisingEdge(dut.clk)
            dut.table__valid.value = 1
            dut.table__write.value = int(write)
            dut.table__index.value = index
            dut.table__word.value = number
            dut.table__last.value = int(number == len(words) - 1)
            dut.table__write_data.value = word
            for _ in range(400):
                await FallingEdge(dut.clk)
                taken = int(dut.table__ready.value)
                done = int(dut.table__done.value)
                await RisingEdge(dut.clk)
                if taken:
                    dut.table__valid.value = 0
                    break
            else:
                raise AssertionError("the table did not take a word within 400 cycles")
            for _ in range(16):
                if done:
                    break
                await FallingEdge(dut.clk)
                done = int(dut.table__done.value)
            assert done, "the table did not answer a word within 16 cycles"
            refused |= bool(int(dut.table__error.value))
            answers.append(int(dut.table__read_data.value))
        return answers, refused

    async def write_template(self, qp: int, image: bytes) -> None:
        words = [int.from_bytes(image[at : at + 8], "little") for at in range(0, 128, 8)]
        _, refused = await self.command(True, qp, words)
        assert not refused

    def random_data(self, length: int, qp: int | None = None, immediate: bool | None = None) -> Job:
        immediate = random.random() < 0.5 if immediate is None else immediate
        address = random.randrange(MEMORY_BYTES - length)
        return Job(
            qp=random.randrange(CONFIG.qps) if qp is None else qp,
            opcode=wire.Opcode.WRITE_ONLY_IMM if immediate else wire.Opcode.WRITE_MIDDLE,
            body=random.randbytes(28 if immediate else 24),
            payload=self.memory[address : address + length],
            data=True,
            address=address,
            retransmission=random.random() < 0.3,
            ack_request=random.random() < 0.3,
            ecn=2,
        )

    def random_control(self, words: int | None = None, qp: int | None = None) -> Job:
        words = random.choice((1, 5, 9)) if words is None else words
        opcodes = {
            1: (wire.Opcode.ACKNOWLEDGE,),
            5: (wire.Opcode.NACK,),
            9: (wire.Opcode.SACK, wire.Opcode.ENDPOINT_RESPONSE),
        }
        return Job(
            qp=random.randrange(CONFIG.qps) if qp is None else qp,
            opcode=random.choice(opcodes[words]),
            body=random.randbytes(4 * words),
        )

    async def run(self) -> None:
        dut = self.dut
        lanes = CONFIG.data_bytes
        fetch_layout, ready_layout = fetch_request(CONFIG), ready_slot(CONFIG)
        packet_layout = slot_packet(CONFIG)
        stored: dict[int, int] = {}  # slot: descriptor
        offer: int | None = None
        request_valid = False
        read_valid = False
        dut.axi__arready.value = 1
        while True:
            # A cycle begins behind the rising edge: drive, let it settle, look.
            if not request_valid and self.requests:
                job = self.requests[0]
                dut.fetch__payload.value = pack(
                    fetch_layout, {"bus_address": job.address, "descriptor": job.descriptor()}
                )
                request_valid = True
                dut.fetch__valid.value = 1
            if not read_valid and self.reads and self.reads[0][0] <= self.cycle:
                if random.random() >= self.memory_wait:
                    _, address, left = self.reads[0]
                    dut.axi__rdata.value = int.from_bytes(self.memory[address : address + lanes], "little")
                    dut.axi__rresp.value = 2 if address in self.bad_addresses else 0
                    dut.axi__rlast.value = int(left == 1)
                    dut.axi__rvalid.value = 1
                    read_valid = True
            self._offer()
            # Bind needs several cycles to write a packet down; the offer stays unchanged meanwhile.
            dut.packet__ready.value = int(self.cycle % CONFIG.packet_interval < 2)
            dut.ready__ready.value = 1
            dut.error__ready.value = 1
            dut.counter__ready.value = int(self.cycle % 3 != 0)
            for plane in range(CONFIG.planes):
                ready = random.random() >= self.port_wait if self.port_wait else 1
                getattr(dut, f"ports__{plane}__tready").value = int(ready)
            await FallingEdge(dut.clk)
            if int(dut.packet__valid.value):
                record = packet_layout.from_bits(int(dut.packet__payload.value))
                assert record.as_bits() == offer or offer is None, "a packet on offer changed"
                offer = record.as_bits()
                if int(dut.packet__ready.value):
                    assert record.slot not in stored, "a slot was given twice"
                    stored[record.slot] = record.descriptor.as_bits()
                    offer = None
            else:
                assert offer is None, "a packet on offer was withdrawn"
            if request_valid and int(dut.fetch__ready.value):
                self.awaited.append(self.requests.popleft())
                request_valid = False
            took_read = read_valid and int(dut.axi__rready.value)
            if took_read:
                read = self.reads[0]
                read[1] += lanes
                read[2] -= 1
                if not read[2]:
                    self.reads.popleft()
                read_valid = False
            if int(dut.axi__arvalid.value):
                self._burst(int(dut.axi__araddr.value), int(dut.axi__arlen.value))
            if int(dut.ready__valid.value):
                record = ready_layout.from_bits(int(dut.ready__payload.value))
                job = self.awaited.popleft()
                assert record.qp == job.qp
                assert stored.pop(record.slot) == pack(
                    records.transmit_descriptor(CONFIG), job.descriptor()
                ), "a packet became ready with another descriptor, or out of order"
                self.fetched.append((job, record.slot))
            if int(dut.error__valid.value):
                error = records.qp_error(CONFIG).from_bits(int(dut.error__payload.value))
                assert error.reason == tables.QpErrorReason.LOCAL_READ
                job = self.awaited.popleft()
                assert error.qp == job.qp
                failed = pack(records.transmit_descriptor(CONFIG), job.descriptor())
                stored = {slot: packet for slot, packet in stored.items() if packet != failed}
                self.errors.append(error.qp)
            if int(dut.counter__valid.value) and self.cycle % 3 != 0:
                index = int(dut.counter__payload.value)
                self.counts[index] = self.counts.get(index, 0) + 1
            image_word: int | None = None
            if int(dut.image_read.value):
                image_word = self.images[int(dut.image_row.value)][int(dut.image_word.value)]
            if int(dut.image_done.value):
                # Nobody reads an image behind its frame.
                del self.images[int(dut.image_done_row.value)]
            plan_taken = self.offered is not None and int(dut.plan__ready.value)
            self.room = int(dut.room.value)
            if plan_taken:
                job, plane = self.offered
                if job.discard:
                    self.discarded += 1
                else:
                    self.sent[plane].append(job)
                self.offered = None
            await RisingEdge(dut.clk)
            self.cycle += 1
            dut.image_data.value = random.getrandbits(CONFIG.data_width) if image_word is None else image_word
            if plan_taken:
                dut.plan__valid.value = 0
            if not request_valid:
                dut.fetch__valid.value = 0
            if not read_valid:
                dut.axi__rvalid.value = 0

    room = 0

    def _offer(self) -> None:
        if self.offered is not None or not (self.control or self.fetched):
            return
        planes = [
            plane
            for turn in range(CONFIG.planes)
            for plane in [(self.turn + turn) % CONFIG.planes]
            if self.bind_any or self.room >> plane & 1
        ]
        if not planes:
            return
        plane = planes[0]
        self.turn = plane + 1
        if self.control:
            job = self.control.popleft()
            row = 1 << records.image_row_bits(CONFIG) - 1 | self.control_row
            self.control_row = (self.control_row + 1) % records.CONTROL_IMAGES
        else:
            job, row = self.fetched.popleft()
        assert row not in self.images, "an image is still in use"
        self.images[row] = job.image()
        self.offered = (job, plane)
        self.dut.plan__payload.value = job.plan(plane, row)
        self.dut.plan__valid.value = 1

    def _burst(self, address: int, length: int) -> None:
        lanes = CONFIG.data_bytes
        assert address % lanes == 0, f"bursts must be aligned to {lanes} bytes, got {address:#x}"
        last = address + lanes * length
        assert address >> 12 == last >> 12, f"burst of {length + 1} beats at {address:#x} crosses 4 KiB"
        assert int(self.dut.axi__arburst.value) == 1
        assert 1 << int(self.dut.axi__arsize.value) == lanes
        self.reads.append([self.cycle + self.latency, address, length + 1])
        self.bursts += 1

    async def finish(self, limit: int) -> None:
        """Wait until all is sent and everything is idle, then compare the frames."""
        for _ in range(0, limit, 8):
            for _ in range(8):
                await RisingEdge(self.dut.clk)
            pending = self.requests or self.control or self.awaited or self.fetched or self.offered
            if not pending and int(self.dut.idle.value):
                break
        else:
            raise AssertionError(f"not idle within {limit} cycles: {len(self.fetched)} packets wait for bind")
        for plane, monitor in enumerate(self.monitors):
            assert monitor.idle
            expected = [job.frame(plane, self.srv6[job.qp]) for job in self.sent[plane]]
            assert len(monitor.frames) == len(expected), f"frames missing on plane {plane}"
            for number, (frame, wanted) in enumerate(zip(monitor.frames, expected)):
                _compare(frame.data, wanted, f"plane {plane}, frame {number}")

    def check_counters(self) -> None:
        for plane, jobs in enumerate(self.sent):
            expected = {
                PortCounter.TX_FRAMES: len(jobs),
                PortCounter.TX_DATA: sum(job.data and not job.retransmission for job in jobs),
                PortCounter.TX_RETRANSMISSIONS: sum(job.data and job.retransmission for job in jobs),
                PortCounter.TX_CONTROL: sum(not job.data for job in jobs),
            }
            got = {code: self.counts.get(plane * PORT_COUNTERS + code, 0) for code in expected}
            assert got == expected


async def running_world(dut, **settings) -> World:
    """Return a world with these attributes, running, its templates written."""
    world = World(dut)
    for name, value in settings.items():
        setattr(world, name, value)
    await world.start()
    return world
