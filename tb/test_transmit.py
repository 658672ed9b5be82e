"""Payload fetch and transmitter together, from requests and plans to frames on the ports.

Sweep: data widths 64, 128 and 512; plain and SRv6; payloads of 0 to 130 bytes and around the MTU from any
alignment, with and without immediate; SACK, NACK and ACK bodies; ports that never or randomly wait.
Stimulus: random memory, random templates behind the image, plans bound as room allows.
Checks: frames byte for byte against the packet codec, per plane in order; AXI rules of every burst; read
errors and discarded plans; counters; templates read back and changed over; idle again at the end.
Timing: efficiency at 4096 and 1024 bytes with 40 cycles of memory latency; interval of short frames;
every wait is bounded.
"""

import random

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

import runner
from mrc_rtl import records, tables
from mrc_rtl.config import NicConfig
from mrc_rtl.paths.images import image_word_bits
from mrc_rtl.requester.records import ready_slot, slot_packet
from mrc_rtl.stream import Axi4ReadSignature, PacketStream, TableBus
from mrc_rtl.transmit.payload_fetch import PayloadFetch, fetch_request
from mrc_rtl.transmit.transmitter import Transmitter
from transmit_world import CONFIG, World, configuration, running_world, template

WIDTHS = (64, 128, 512)
EFFICIENCY = {4096: 0.95, 1024: 0.90}


class TransmitPath(wiring.Component):
    """Both blocks with the slots between them."""

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "fetch": In(stream.Signature(fetch_request(config))),
                "axi": Out(Axi4ReadSignature(config.data_width, config.address_width, 1)),
                "packet": Out(stream.Signature(slot_packet(config))),
                "ready": Out(stream.Signature(ready_slot(config))),
                "error": Out(stream.Signature(records.qp_error(config))),
                "read_errors": Out(8),
                "plan": In(stream.Signature(records.transmit_plan(config))),
                "image_read": Out(1),
                "image_row": Out(records.image_row_bits(config)),
                "image_word": Out(image_word_bits(config)),
                "image_data": In(config.data_width),
                "image_done": Out(1),
                "image_done_row": Out(records.image_row_bits(config)),
                "room": Out(config.planes),
                "table": In(TableBus()),
                "settings": In(records.settings(config)),
                "ports": Out(PacketStream(config.data_width)).array(config.planes),
                "counter": Out(stream.Signature(records.counter_event(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.fetch = fetch = PayloadFetch(self.config)
        m.submodules.transmitter = transmitter = Transmitter(self.config)
        for name in ("fetch", "axi", "packet", "ready", "error"):
            member = wiring.flipped(getattr(self, name))
            wiring.connect(m, getattr(fetch, name), member)
        for name in ("plan", "table", "counter"):
            wiring.connect(m, getattr(transmitter, name), wiring.flipped(getattr(self, name)))
        for inner, outer in zip(transmitter.ports, self.ports, strict=True):
            wiring.connect(m, inner, wiring.flipped(outer))
        wiring.connect(m, transmitter.free, fetch.free)
        read_errors = self.config.planes * records.PORT_COUNTERS + records.GlobalCounter.READ_ERRORS
        m.d.sync += self.read_errors.eq(
            self.read_errors + (fetch.counter.valid & (fetch.counter.payload.index == read_errors))
        )
        m.d.comb += [
            fetch.counter.ready.eq(1),
            transmitter.settings.eq(self.settings),
            fetch.read_slot.eq(transmitter.read_slot),
            fetch.read_beat.eq(transmitter.read_beat),
            transmitter.read_data.eq(fetch.read_data),
            self.image_read.eq(transmitter.image_read),
            self.image_row.eq(transmitter.image_row),
            self.image_word.eq(transmitter.image_word),
            transmitter.image_data.eq(self.image_data),
            self.image_done.eq(transmitter.image_done),
            self.image_done_row.eq(transmitter.image_done_row),
            self.room.eq(transmitter.room),
            self.idle.eq(fetch.idle & transmitter.idle),
        ]
        return m


@pytest.mark.parametrize("width", WIDTHS)
def test_transmit(simulation: runner.Simulation, width: int) -> None:
    runner.run_bench(
        lambda: TransmitPath(configuration(width)), __file__, simulation, parameters={"width": width}
    )


LENGTHS = [*range(131), 1023, 1024, 1025, *range(4096 - 9, 4097)]


@cocotb.test(timeout_time=20, timeout_unit="ms")
@cocotb.parametrize(waits=[False, True])
async def every_length(dut, waits) -> None:
    world = await running_world(
        dut, port_wait=0.4 if waits else 0.0, memory_wait=0.3 if waits else 0.0, bind_any=waits
    )
    lengths = random.sample(LENGTHS, len(LENGTHS))
    for length in lengths:
        world.requests.append(world.random_data(length))
    for _ in range(60):
        world.control.append(world.random_control())
    await world.finish(200_000)
    world.check_counters()


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def read_errors_and_discards(dut) -> None:
    world = await running_world(dut)
    lanes = CONFIG.data_bytes
    wrong = 0
    for number in range(60):
        job = world.random_data(random.choice((0, 1, 7, 64, 300)), immediate=number % 2)
        job.discard = number % 5 == 1
        world.requests.append(job)
        if number % 4 == 3 and job.payload:
            beats = range(job.address // lanes, (job.address + len(job.payload) - 1) // lanes + 1)
            world.bad_addresses.add(random.choice(beats) * lanes)
    for job in world.requests:
        touched = range(job.address - job.address % lanes, job.address + len(job.payload), lanes)
        wrong += bool(job.payload) and not world.bad_addresses.isdisjoint(touched)
    assert wrong > 5
    await world.finish(20_000)
    assert len(world.errors) == int(dut.read_errors.value) == wrong
    assert world.discarded > 5
    world.check_counters()


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def templates(dut) -> None:
    world = await running_world(dut)
    images = {}
    for qp in range(CONFIG.qps):
        world.srv6[qp] = not world.srv6[qp]
        images[qp] = template(qp, world.srv6[qp])
        await world.write_template(qp, images[qp])
    for _ in range(150):
        world.control.append(world.random_control())
    # Read back while frames are on their way: the wait is bounded.
    for qp, image in images.items():
        words, refused = await world.command(False, qp, [0] * tables.TEMPLATE_WORDS)
        assert not refused
        assert b"".join(word.to_bytes(8, "little") for word in words) == image
    _, refused = await world.command(True, CONFIG.qps, [0])
    assert refused
    _, refused = await world.command(False, 0xFFFF, [0])
    assert refused
    await world.finish(20_000)
    # The engine never sees half an entry: the old one is in use until the last word.
    image = template(0, not world.srv6[0])
    words = [int.from_bytes(image[at : at + 8], "little") for at in range(0, 128, 8)]
    writing = cocotb.start_soon(world.command(True, 0, words))
    for _ in range(6):
        await RisingEdge(dut.clk)
    world.control.append(world.random_control(qp=0))
    await writing
    await world.finish(5_000)
    for plane, monitor in enumerate(world.monitors):
        monitor.frames.clear()
        world.sent[plane].clear()
    world.srv6[0] = not world.srv6[0]
    world.control.append(world.random_control(qp=0))
    await world.finish(5_000)


async def _rate(world: World, limit: int) -> tuple[float, int]:
    """Run; return efficiency and cycles from the first to the last beat on the ports."""
    world.bind_any = True
    await world.finish(limit)
    frames = [frame for monitor in world.monitors for frame in monitor.frames]
    first = min(frame.first_cycle for frame in frames)
    last = max(frame.last_cycle for frame in frames)
    cycles = last - first + 1
    return sum(len(frame.data) for frame in frames) / (cycles * CONFIG.data_bytes), cycles


@cocotb.test(timeout_time=10, timeout_unit="ms")
@cocotb.parametrize(length=[1024, 4096])
async def efficiency(dut, length) -> None:
    world = await running_world(dut, latency=40)
    for _ in range(16 if length == 4096 else 40):
        world.requests.append(world.random_data(length, qp=1))
    measured, _ = await _rate(world, 60_000)
    dut._log.warning("efficiency at %d bytes and %d bits: %.3f", length, CONFIG.data_width, measured)
    assert measured >= EFFICIENCY[length]


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(words=[1, 5, 9])
@cocotb.parametrize(qp=[0, 1])
async def short_frames(dut, words, qp) -> None:
    world = await running_world(dut)
    count = 100
    for _ in range(count):
        world.control.append(world.random_control(words, qp=qp))
    _, cycles = await _rate(world, 20_000)
    beats = -(-len(world.sent[0][0].frame(0, world.srv6[qp])) // CONFIG.data_bytes)
    dut._log.warning(
        "interval of %d-word control frames: %.2f cycles, %d beats", words, cycles / count, beats
    )
    assert cycles <= count * max(beats, CONFIG.packet_interval)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def idle_cycles_change_nothing(dut) -> None:
    world = await running_world(dut)
    for gap in (0, 1, 2, 3, 5, 17, 64):
        for _ in range(gap):
            await RisingEdge(dut.clk)
        world.control.append(world.random_control())
        world.requests.append(world.random_data(random.randrange(200)))
        await world.finish(2_000)
    world.check_counters()
