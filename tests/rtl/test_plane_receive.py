"""A plane's receive side against frames built by the host's codec.

Sweep: port widths 64, 128 and 512; plain, SRv6 and SRv6 with SRH; every opcode; payload lengths around every
alignment and the MTU. Stimulus: good frames, frames cut at every byte, trimmed at every byte, one thing wrong
at a time, giants and runts, a full packet buffer, bursts of feedback whose records nobody takes. Checks:
record, payload in the buffer, one outcome a frame, and the frame behind is never disturbed. Timing:
back-to-back smallest frames at 64 bits a cycle lose nothing.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from mrc_host.packets.codec import build
from mrc_host.packets.trim import trim
from mrc_rtl import wire
from mrc_rtl.config import NicConfig
from mrc_rtl.records import PORT_COUNTERS, PortCounter, Trimmed
from mrc_rtl.responder.plane_receive import PlaneReceive
from mrc_rtl.responder.record_memory import RECORDS
from mrc_rtl.wire import Opcode
from record_benches import simulate
from record_words import read_record

PLANE = 1
HOST = 7
OWN = wire.inner_address(HOST)
PEER = wire.inner_address(3)
OWN_USID = wire.usid_value(0, wire.Tier.HOST, 5)
STACKS = ("plain", "srv6", "srh")

Outcomes = list[PortCounter]


def headers(stack: str, *, dscp: int = 8, ecn: int = 2, sport: int = 0xC123, flow: int = 0x4567) -> Any:
    """Headers from Ethernet to UDP."""
    traffic_class = dscp << 2 | ecn
    inner = ("ipv6", {"source": PEER, "destination": OWN, "traffic_class": traffic_class, "flow_label": flow})
    result: list[tuple[str, dict[str, int]]] = [("ethernet", {"destination": 2, "source": 3})]
    if stack != "plain":
        destination = wire.outer_address([OWN_USID | PLANE << 12])
        outer = {"source": 1, "destination": destination, "traffic_class": traffic_class, "flow_label": flow}
        result.append(("ipv6", outer))
    if stack == "srh":
        result.append(("srh", {"segment": destination}))
    return [*result, inner, ("udp", {"source_port": sport})]


def packet(
    stack: str, opcode: Opcode, payload: bytes = b"", *, stamped: bool = True, psn: int = 5, **options: int
) -> bytes:
    """A good frame with recognisable fields."""
    fields: dict[str, dict[str, int]] = {
        "meth": {"rqmsn": 0x1122, "msn": psn & 0xFFFF},
        "tseth": {"tx_timestamp": 0xABCD, "ftype": 1},
        "reth": {"va": 0x1234_5678_9ABC_DEF0, "rkey": 0x0000_0342, "dma_len": 77},
        "immdt": {},
    }
    parts = [(header.name, fields.get(header.name, {})) for header in wire.headers_after_bth(opcode, stamped)]
    bth = ("bth", {"opcode": opcode, "dest_qp": 0x103, "psn": psn, "ack_req": psn & 1, "rtx": psn >> 1 & 1})
    return build(*headers(stack, **options), bth, *parts, payload=payload)


class Bench:
    """Drives frames, takes records, reads and frees the buffer, adds up counter events."""

    def __init__(self, width: int, **changes: int) -> None:
        self.config = NicConfig(data_width=width, **changes)
        self.dut = PlaneReceive(self.config, PLANE)
        self.records: list[dict[str, int]] = []
        self.payloads: list[bytes] = []
        self.events: list[int] = []
        self.take_records = True
        self.take_payloads = True
        self.waiting: list[int] = []
        self.reading = False

    def beats(self, frame: bytes, error: bool) -> list[tuple[int, int, int, int]]:
        size = self.config.data_bytes
        result = []
        for start in range(0, len(frame), size):
            part = frame[start : start + size]
            last = start + size >= len(frame)
            result.append((int.from_bytes(part, "little"), (1 << len(part)) - 1, last, last and error))
        return result

    async def send(
        self, ctx: Any, frames: list[tuple[bytes, bool]], *, gap: int = 0, paced: bool = True
    ) -> None:
        port = self.dut.port
        period = self.config.data_bytes // 8 if paced else 1
        for frame, error in frames:
            for data, keep, last, user in self.beats(frame, error):
                ctx.set(port.tdata, data)
                ctx.set(port.tkeep, keep)
                ctx.set(port.tlast, last)
                ctx.set(port.tuser, user)
                ctx.set(port.tvalid, 1)
                *_, ready = await ctx.tick().sample(port.tready)
                assert ready
                words = -(-bin(keep).count("1") // 8) if last else period
                ctx.set(port.tvalid, 0)
                if paced:
                    for _ in range(words - 1):
                        await ctx.tick()
            for _ in range(gap):
                await ctx.tick()

    async def collect(self, ctx: Any) -> None:
        port = self.dut.record
        while True:
            *_, valid = await ctx.tick().sample(port.valid)
            if valid and self.take_records:
                self.reading = True
                found = await read_record(ctx, port, self.config)
                self.records.append(found)
                self.waiting.append(found["length"])
                if self.take_payloads:
                    await self.take(ctx)
                self.reading = False

    async def take(self, ctx: Any) -> None:
        """Take the payloads of all records so far from the buffer."""
        size = self.config.data_bytes
        for length in self.waiting:
            content = b""
            for _ in range(-(-length // size)):
                ctx.set(self.dut.take, 1)
                await ctx.tick()
                ctx.set(self.dut.take, 0)
                content += ctx.get(self.dut.read_data).to_bytes(size, "little")
            self.payloads.append(content[:length])
        self.waiting.clear()

    async def count(self, ctx: Any) -> None:
        counter = self.dut.counter
        ctx.set(counter.ready, 1)
        while True:
            *_, valid, index = await ctx.tick().sample(counter.valid, counter.payload.index)
            if valid:
                assert index // PORT_COUNTERS == PLANE
                self.events.append(index % PORT_COUNTERS)

    def outcomes(self) -> tuple[int, Outcomes]:
        """Frames counted, and the reasons of those dropped here, in order."""
        frames = self.events.count(PortCounter.RX_FRAMES)
        return frames, [PortCounter(event) for event in self.events if event != PortCounter.RX_FRAMES]

    def run(self, script: Callable[[Any], Any]) -> None:
        async def bench(ctx: Any) -> None:
            settings = self.dut.settings
            ctx.set(settings.own_address, OWN)
            ctx.set(settings.own_usid, OWN_USID)
            ctx.set(settings.usid_block, wire.USID_BLOCK)
            ctx.set(settings.dscp_trimmed, wire.Dscp.TRIMMED)
            ctx.set(settings.dscp_trimmed_last_hop, wire.Dscp.TRIMMED_LASTHOP)
            ctx.set(self.dut.now, 0x1234_5678_0000)
            await script(ctx)

        simulate(self.dut, bench, background=(self.collect, self.count))

    async def settle(self, ctx: Any, cycles: int = 400) -> None:
        quiet = 0
        for _ in range(cycles):
            await ctx.tick()
            quiet = quiet + 1 if ctx.get(self.dut.idle) and not self.reading else 0
            if quiet == 3:
                return
        raise AssertionError("the plane does not become idle")


def check(found: dict[str, int], frame: bytes, stack: str, *, stamped: bool = True) -> None:
    """Compare a record with the frame it was made from."""
    bth = {"plain": 62, "srv6": 102, "srh": 126}[stack]
    values = wire.BTH.unpack(int.from_bytes(frame[bth : bth + 12], "big"))
    assert found["opcode"] == values["opcode"]
    assert found["psn"] == values["psn"]
    assert found["destination_qpn"] == values["dest_qp"]
    assert found["partition_key"] == values["pkey"]
    assert (found["ack_request"], found["retransmission"]) == (values["ack_req"], values["rtx"])
    assert found["timestamped"] == (values["ts"] if stamped else 0)
    assert found["source"] == PEER
    assert found["ev"] == 0xC123_4567
    assert found["received_at"] == 0x5678
    body = frame[bth + 12 : bth + 48]
    assert found["body"].to_bytes(36, "big")[: len(body)] == body


@pytest.mark.parametrize("width", [64, 128, 512])
@pytest.mark.parametrize("stack", STACKS)
def test_good_frames(width: int, stack: str) -> None:
    bench = Bench(width, mtu=256, receive_buffer_bytes=1024)
    chooser = random.Random(width)
    lengths = [*range(20), 63, 64, 65, 127, 128, 129, 255, 256]
    frames, payloads = [], []
    for number, length in enumerate(lengths):
        content = chooser.randbytes(length)
        opcode = list(Opcode)[number % 6]
        stamped = bool(number // 6 % 2)
        frames.append(packet(stack, opcode, content, stamped=stamped, psn=number, ecn=3 if number % 3 else 2))
        payloads.append(content)
    for opcode in Opcode:
        if not wire.is_write(opcode):
            frames.append(packet(stack, opcode, psn=int(opcode)))
            payloads.append(b"")

    async def script(ctx: Any) -> None:
        for frame in frames:
            await bench.send(ctx, [(frame, False)], gap=0)
            await bench.settle(ctx)
        assert len(bench.records) == len(frames)
        assert bench.payloads == payloads
        assert bench.outcomes() == (len(frames), [])
        for found, frame, content in zip(bench.records, frames, payloads, strict=True):
            check(found, frame, stack)
            assert found["length"] == len(content)
            assert found["trimmed"] == 0
            assert found["marked"] == (frame[15] >> 4 & 3 == 3)

    bench.run(script)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("width", [64, 512])
def test_frames_cut_at_every_byte(width: int, stack: str) -> None:
    bench = Bench(width, mtu=256, receive_buffer_bytes=1024)
    whole = packet(stack, Opcode.WRITE_ONLY, bytes(range(40)))
    good = packet(stack, Opcode.WRITE_ONLY_IMM, b"the frame behind", psn=9)
    sizes = range(1, len(whole))

    async def script(ctx: Any) -> None:
        for size in sizes:
            await bench.send(ctx, [(whole[:size], False), (good, False)])
            await bench.settle(ctx)
        reasons = [PortCounter.DROP_FRAME_ERROR if n < 14 else PortCounter.DROP_TRUNCATED for n in sizes]
        assert bench.outcomes() == (2 * len(sizes), reasons)
        assert bench.payloads == [b"the frame behind"] * len(sizes)

    bench.run(script)


@pytest.mark.parametrize(("stack", "last_hop"), [("plain", False), ("srv6", True), ("srh", False)])
def test_trimmed_at_every_byte(stack: str, last_hop: bool) -> None:
    bench = Bench(64, mtu=256, receive_buffer_bytes=1024)
    whole = packet(stack, Opcode.WRITE_MIDDLE, bytes(200))
    shift = {"plain": 0, "srv6": 40, "srh": 64}[stack]
    marked = trim(whole, len(whole), correct_lengths=False, last_hop=last_hop)
    sizes = range(60, 150 + shift)

    async def script(ctx: Any) -> None:
        for size in sizes:
            await bench.send(ctx, [(marked[:size], False)])
            await bench.settle(ctx)
        kept = [size for size in sizes if size >= 78 + shift]
        ignored = [PortCounter.TRIM_IGNORED] * (len(sizes) - len(kept))
        assert bench.outcomes() == (len(sizes), ignored)
        assert len(bench.records) == len(kept)
        for size, found in zip(kept, bench.records, strict=True):
            check(found, marked[:size], stack, stamped=size >= 82 + shift)
            assert found["length"] == 0
            assert found["trimmed"] == (2 if last_hop else 1)
        before = len(bench.records)
        sack = trim(packet(stack, Opcode.SACK), 500, correct_lengths=False, last_hop=last_hop)
        await bench.send(ctx, [(sack, False)])
        await bench.settle(ctx)
        assert len(bench.records) == before
        assert bench.outcomes()[1][-1] == PortCounter.TRIM_IGNORED

    bench.run(script)


def changed(frame: bytes, at: int, value: bytes) -> bytes:
    return frame[:at] + value + frame[at + len(value) :]


def wrong_frames() -> list[tuple[str, bytes, bool, PortCounter]]:
    """One thing wrong each: what, frame, error flag, reason."""
    plain = packet("plain", Opcode.WRITE_ONLY, bytes(32))
    srv6 = packet("srv6", Opcode.WRITE_ONLY, bytes(32))
    srh = packet("srh", Opcode.WRITE_ONLY, bytes(32))
    reason = PortCounter

    def lengths(change: int, udp_change: int | None = None) -> bytes:
        bth = ("bth", {"opcode": Opcode.WRITE_ONLY, "dest_qp": 0x103})
        parts = [bth, ("meth", {}), ("tseth", {}), ("reth", {})]
        stack = headers("plain")
        size = len(plain) - 54
        stack[1][1]["payload_length"] = size + change
        stack[2][1]["length"] = size + (change if udp_change is None else udp_change)
        return build(*stack, *parts, payload=bytes(32))

    def unknown_opcode() -> bytes:
        value = 0xDF
        return build(*headers("plain"), ("bth", {"opcode": value}), payload=bytes(16))

    result = [
        ("error flag", plain, True, reason.DROP_FRAME_ERROR),
        ("VLAN", changed(plain, 12, b"\x81\x00"), False, reason.DROP_ETHERTYPE),
        ("ARP", changed(plain, 12, b"\x08\x06"), False, reason.DROP_ETHERTYPE),
        ("IPv4", changed(plain, 12, b"\x08\x00"), False, reason.DROP_IPV4),
        ("version", changed(plain, 14, b"\x40"), False, reason.DROP_NOT_MRC),
        ("inner version", changed(srv6, 54, b"\x40"), False, reason.DROP_NOT_MRC),
        ("TCP", changed(plain, 20, b"\x06"), False, reason.DROP_NOT_MRC),
        ("IPv6 thrice", changed(srv6, 60, b"\x29"), False, reason.DROP_NOT_MRC),
        ("hop-by-hop", changed(srv6, 20, b"\x00"), False, reason.DROP_NOT_MRC),
        ("SRH behind SRH", changed(srh, 54, b"\x2b"), False, reason.DROP_NOT_MRC),
        ("SRH of two segments", changed(srh, 55, b"\x04"), False, reason.DROP_NOT_MRC),
        ("routing type", changed(srh, 56, b"\x00"), False, reason.DROP_NOT_MRC),
        ("UDP port", changed(plain, 56, b"\x12\xb8"), False, reason.DROP_NOT_MRC),
        ("own address, first bytes", changed(plain, 38, b"\xfe"), False, reason.DROP_ADDRESS),
        ("own address, middle", changed(plain, 44, b"\x01"), False, reason.DROP_ADDRESS),
        ("own address, last byte", changed(plain, 53, b"\x02"), False, reason.DROP_ADDRESS),
        ("uSID block", changed(srv6, 38, b"\x5e"), False, reason.DROP_ADDRESS),
        ("uSID of another plane", changed(srv6, 42, b"\x28"), False, reason.DROP_ADDRESS),
        ("one uSID more", changed(srv6, 45, b"\x01"), False, reason.DROP_ADDRESS),
        ("last uSID", changed(srv6, 53, b"\x01"), False, reason.DROP_ADDRESS),
        ("last uSID before an SRH", changed(srh, 53, b"\x01"), False, reason.DROP_ADDRESS),
        ("inner address", changed(srv6, 93, b"\x09"), False, reason.DROP_ADDRESS),
        ("four bytes too few", plain[:-4], False, reason.DROP_TRUNCATED),
        ("four bytes too many", plain + bytes(4), False, reason.DROP_LENGTH),
        ("UDP length", lengths(0, 4), False, reason.DROP_LENGTH),
        ("not a multiple of 4", lengths(-2)[:-2], False, reason.DROP_LENGTH),
        ("payload over MTU", packet("plain", Opcode.WRITE_ONLY, bytes(260)), False, reason.DROP_LENGTH),
        ("SACK with payload", packet("srv6", Opcode.SACK, bytes(4)), False, reason.DROP_LENGTH),
        ("ICRC", changed(plain, len(plain) - 1, b"\x00"), False, reason.DROP_ICRC),
        ("payload bit", changed(plain, 110, b"\x01"), False, reason.DROP_ICRC),
        ("BTH bit", changed(srv6, 105, b"\x01"), False, reason.DROP_ICRC),
        ("opcode", unknown_opcode(), False, reason.DROP_OPCODE),
        ("giant", plain + bytes(9000), False, reason.DROP_LENGTH),
        ("giant beyond every counter", plain + bytes(140_000), False, reason.DROP_LENGTH),
        ("one byte", b"\x00", False, reason.DROP_FRAME_ERROR),
        ("padded ARP", bytes(12) + b"\x08\x06" + bytes(46), False, reason.DROP_ETHERTYPE),
        ("SACK cut in its body", packet("plain", Opcode.SACK)[:100], False, reason.DROP_TRUNCATED),
    ]
    short = build(*headers("plain"), ("bth", {"opcode": Opcode.WRITE_ONLY}), payload=b"")
    return [*result, ("write without headers", short, False, reason.DROP_LENGTH)]


@pytest.mark.parametrize("width", [64, 512])
def test_every_reason(width: int) -> None:
    bench = Bench(width, mtu=256, receive_buffer_bytes=1024)
    good = packet("srv6", Opcode.WRITE_FIRST, b"the frame behind", psn=1)
    cases = [case for case in wrong_frames() if width == 64 or len(case[1]) < 100_000]

    async def script(ctx: Any) -> None:
        for number, (what, frame, error, reason) in enumerate(cases):
            await bench.send(ctx, [(frame, error), (good, False)])
            await bench.settle(ctx)
            frames, reasons = bench.outcomes()
            assert (frames, len(reasons), reasons[-1]) == (2 * number + 2, number + 1, reason), what
            assert bench.payloads[number] == b"the frame behind", what

    bench.run(script)


def test_masked_fields_may_change_on_the_way() -> None:
    bench = Bench(64)
    frame = packet("srv6", Opcode.WRITE_ONLY, b"abcd")
    for at, value in ((61, b"\x01"), (21, b"\x02"), (55, b"\x33"), (100, b"\xde\xad"), (106, b"\x55")):
        frame = changed(frame, at, value)

    async def script(ctx: Any) -> None:
        await bench.send(ctx, [(frame, False)])
        await bench.settle(ctx)
        assert bench.payloads == [b"abcd"]

    bench.run(script)


@pytest.mark.parametrize("width", [64, 128, 512])
def test_a_full_buffer_forgets_the_payload_and_says_so(width: int) -> None:
    bench = Bench(width, mtu=256, receive_buffer_bytes=512)
    bench.take_payloads = False
    chooser = random.Random(3)

    async def script(ctx: Any) -> None:
        kept = []
        for _ in range(12):
            contents = [chooser.randbytes(chooser.choice([100, 200, 256])) for _ in range(5)]
            used = 0
            dropped = 0
            for content in contents:
                frame = packet("srv6", Opcode.WRITE_ONLY, content)
                await bench.send(ctx, [(frame, False)])
                await bench.settle(ctx)
                beats = -(-len(content) // bench.config.data_bytes)
                if (used + beats) * bench.config.data_bytes <= 512:
                    used += beats
                    kept.append(content)
                    lost = Trimmed.NO
                else:
                    dropped += 1
                    kept.append(b"")
                    lost = Trimmed.NO_ROOM
                # The record is complete in any case.
                found = bench.records[-1]
                check(found, frame, "srv6")
                assert (found["trimmed"], found["length"]) == (lost, len(kept[-1]))
            assert dropped
            # Admission counts what becomes of it.
            assert bench.outcomes() == (len(kept), [])
            await bench.take(ctx)
            assert bench.payloads == kept

    bench.run(script)


@pytest.mark.parametrize("width", [64, 512])
def test_a_burst_of_feedback_waits_for_admission(width: int) -> None:
    """A SACK and an ACK for every packet, back to back, while no record is taken."""
    bench = Bench(width)
    bench.take_records = False
    kept = RECORDS - 1
    kinds = (Opcode.SACK, Opcode.ACKNOWLEDGE)

    # What comes when the memory is full finds no place, and disturbs none of those that wait.
    late = [(packet("plain", Opcode.WRITE_ONLY, b"late", psn=99), False)] * 3

    async def script(ctx: Any) -> None:
        for start in (0, 100):
            frames = [packet("plain", kinds[n % 2], psn=start + n) for n in range(kept)]
            await bench.send(ctx, [*((frame, False) for frame in frames), *late])
            for _ in range(60):
                await ctx.tick()
            bench.take_records = True
            await bench.settle(ctx, 2000)
            bench.take_records = False
            for found, frame in zip(bench.records, frames, strict=True):
                check(found, frame, "plain")
            bench.records.clear()
        assert bench.outcomes() == (2 * (kept + 3), [PortCounter.DROP_NO_PKT_BUFFER] * 6)
        assert set(bench.payloads) == {b""}

    bench.run(script)


@pytest.mark.parametrize("width", [64, 512])
def test_back_to_back_smallest_frames(width: int) -> None:
    bench = Bench(width)
    frames = [(packet("plain", Opcode.ACKNOWLEDGE, psn=n), False) for n in range(40)]
    frames += [
        (packet("plain", Opcode.WRITE_ONLY, bytes([n]), psn=n, stamped=False), False) for n in range(40)
    ]

    async def script(ctx: Any) -> None:
        await bench.send(ctx, frames)
        await bench.settle(ctx, 1000)
        assert bench.outcomes() == (80, [])
        assert [found["psn"] for found in bench.records] == [*range(40), *range(40)]
        assert bench.payloads[40:] == [bytes([n]) for n in range(40)]

    bench.run(script)


def test_a_burst_of_runts_is_counted_to_the_last_one() -> None:
    bench = Bench(64)
    good = packet("plain", Opcode.WRITE_ONLY, b"good")

    async def script(ctx: Any) -> None:
        await bench.send(ctx, [(b"\x01", False)] * 100 + [(good, False)])
        await bench.settle(ctx)
        frames, reasons = bench.outcomes()
        assert frames == 101
        assert len(reasons) == 100
        assert set(Counter(reasons)) <= {PortCounter.DROP_FRAME_ERROR, PortCounter.DROP_NO_PKT_BUFFER}
        assert bench.payloads == [b"good"]

    bench.run(script)


def test_a_port_faster_than_its_plane_loses_whole_frames() -> None:
    bench = Bench(512)
    chooser = random.Random(8)
    frames = [(packet("srv6", Opcode.WRITE_ONLY, chooser.randbytes(chooser.choice([1, 200, 1000]))), False)]
    frames += [
        (packet("srv6", Opcode.WRITE_ONLY, bytes([n]) * chooser.choice([1, 200, 1000])), False)
        for n in range(60)
    ]
    good = packet("plain", Opcode.WRITE_ONLY, b"good")

    async def script(ctx: Any) -> None:
        await bench.send(ctx, frames, paced=False)
        await bench.settle(ctx)
        counted, reasons = bench.outcomes()
        assert counted == len(frames)
        assert counted - len(reasons) == len(bench.payloads)
        assert set(reasons) == {PortCounter.DROP_NO_PKT_BUFFER}
        assert all(len(set(content)) == 1 for content in bench.payloads[1:])
        await bench.send(ctx, [(good, False)])
        await bench.settle(ctx)
        assert bench.payloads[-1] == b"good"

    bench.run(script)


def test_plane_out_of_range() -> None:
    with pytest.raises(ValueError, match="plane must be between 0 and 1, got 2"):
        PlaneReceive(NicConfig(), 2)
