"""Admission with the tracker and the memory regions it works with, and a bench that sets them up."""

from collections import defaultdict
from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring

from mrc_rtl import wire
from mrc_rtl.config import QP_NUMBER_BASE, NicConfig
from mrc_rtl.memory_regions import MemoryRegions
from mrc_rtl.records import PORT_COUNTERS, PortCounter
from mrc_rtl.responder.admit import Admission
from mrc_rtl.responder.rx_tracker import RxTracker
from mrc_rtl.tables import MEMORY_REGION, QP_RECEIVE, QpState
from mrc_rtl.wire import Opcode
from record_benches import command, send, simulate
from record_words import RecordSource

__all__ = [
    "BASE", "BASE_RTT", "BUS", "FIRST_PSN", "KEY", "OWN", "PEER", "PSNS", "QP", "REGION_BYTES", "Bench",
    "body", "record",
]  # fmt: skip

PSNS = 1 << 24
PEER = wire.inner_address(3)
OWN = wire.inner_address(1)
BASE_RTT = 63
KEY = 2 << 8 | 0x55
BASE = 0xFFFF_0000_0000
REGION_BYTES = 1 << 20
BUS = 0x0100_0000
FIRST_PSN = PSNS - 40
QP = 1
TICK = 1 << 16
COLLECTED = ("place", "stash", "feedback", "refused", "error_out", "counter")


class Core(wiring.Component):
    """The three blocks, wired as in the engine."""

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        self.admission = Admission(config)
        self.tracker = RxTracker(config)
        self.regions = MemoryRegions(config)
        super().__init__({})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.admission = admission = self.admission
        m.submodules.tracker = tracker = self.tracker
        m.submodules.regions = regions = self.regions
        wiring.connect(m, admission.region, regions.requests[0])
        wiring.connect(m, regions.answers[0], admission.region_answer)
        for name in ("init", "state_request"):
            wiring.connect(m, getattr(admission, name), getattr(tracker, name))
        wiring.connect(m, tracker.state_answer, admission.state_answer)
        m.d.comb += [
            admission.region_drain.eq(regions.drain),
            regions.drained.eq(admission.region_drained),
            tracker.expected_qp.eq(admission.expected_qp),
            admission.expected_psn.eq(tracker.expected_psn),
            admission.retired.eq(tracker.retired),
            admission.retired_epoch.eq(tracker.retired_epoch),
        ]
        return m


def body(
    opcode: int,
    *,
    stamped: int = 1,
    va: int = BASE,
    key: int = KEY,
    rqmsn: int = 0,
    headers: dict[str, dict[str, int]] | None = None,
) -> int:
    """Headers behind BTH as the 36 bytes of a record; ``headers``: fields of further ones, by name."""
    fields = {
        "meth": {"rqmsn": rqmsn, "msn": 0x0405},
        "tseth": {"tx_timestamp": 0x7001},
        "reth": {"va": va, "rkey": key, "dma_len": 9999},
        "immdt": {"imm": 0xCAFE_0001},
        **(headers or {}),
    }
    parts = wire.headers_after_bth(Opcode(opcode), bool(stamped)) if opcode in list(Opcode) else ()
    content = b"".join(
        part.pack({k: v for k, v in fields.get(part.name, {}).items() if k in {f.name for f in part.fields}})
        .to_bytes(part.bytes, "big")
        for part in parts
    )  # fmt: skip
    return int.from_bytes(content.ljust(36, b"\xee"), "big")


def record(opcode: int = Opcode.WRITE_ONLY, psn: int = FIRST_PSN, **changes: Any) -> dict[str, int]:
    """A record that is accepted unless something is changed."""
    in_body = {name: changes.pop(name) for name in ("va", "key", "rqmsn", "headers") if name in changes}
    stamped = changes.get("timestamped", 1)
    return {
        "opcode": opcode,
        "psn": psn % PSNS,
        "destination_qpn": QP_NUMBER_BASE + QP,
        "partition_key": 0xFFFF,
        "timestamped": stamped,
        "source": PEER,
        "body": body(opcode, stamped=stamped, **in_body),
        "ev": 0xC000_0000 | psn & 0xFFFF,
        "length": 64,
        "received_at": 77,
        **changes,
    }


class Bench:
    """Sets up one QP and one region, and collects what leaves admission."""

    def __init__(self, width: int = 64, **changes: int) -> None:
        self.config = NicConfig(data_width=width, **changes)
        self.core = Core(self.config)
        self.found: dict[str, list[dict[str, int]]] = defaultdict(list)
        self.reports: list[dict[str, int]] = []
        self.sources = [RecordSource(port, self.config) for port in self.core.admission.records]
        self.place_ready = True

    def takes(self, name: str) -> bool:
        """Whether a stream's record is taken in the next cycle."""
        return name != "place" or self.place_ready

    async def collect(self, ctx: Any) -> None:
        """Background bench: keep what is taken. What waits must stay as it is."""
        held: dict[str, Any] = {}
        ports = [(name, getattr(self.core.admission, name)) for name in COLLECTED]
        ports.append(("report", self.core.tracker.report))
        for name in ("advance", "error_out"):
            ports.append((f"tracker_{name}", getattr(self.core.tracker, name)))
        while True:
            for name, port in ports:
                ctx.set(port.ready, self.takes(name))
            signals = [signal for _, port in ports for signal in (port.valid, port.ready)]
            payloads = [port.payload for _, port in ports]
            sampled = await ctx.tick().sample(*signals, *payloads)
            values = sampled[-3 * len(ports) :]
            for n, (name, port) in enumerate(ports):
                valid, ready = values[2 * n : 2 * n + 2]
                value = values[2 * len(ports) + n]
                entry = {key: value[key] for key in port.payload.shape().members}
                assert name not in held or (valid and entry == held[name]), f"{name}: a record must stay"
                held.pop(name, None)
                if valid and ready:
                    self.found[name].append(entry)
                elif valid:
                    held[name] = entry

    async def write_qp(self, ctx: Any, qp: int = QP, **changes: int) -> None:
        fields = {
            "state": QpState.RTR,
            "protection_domain": 6,
            "completion_queue": 1,
            "partition_key": 0xFFFF,
            "peer_qpn": 0x123456,
            "initial_psn": FIRST_PSN,
            "peer_high": PEER >> 64,
            "peer_low": PEER & (1 << 64) - 1,
            **changes,
        }
        words = QP_RECEIVE.pack(**fields)[: QP_RECEIVE.write_words]
        assert not (await command(ctx, self.core.admission.table, write=True, index=qp, words=words))[1]

    async def set_up(self, ctx: Any) -> None:
        ctx.set(self.core.admission.settings.base_rtt, BASE_RTT)
        ctx.set(self.core.admission.settings.own_address, OWN)
        words = MEMORY_REGION.pack(
            key=KEY,
            protection_domain=6,
            remote_write=1,
            valid=1,
            base=BASE,
            length=REGION_BYTES,
            bus_address=BUS,
        )
        await command(ctx, self.core.regions.table, write=True, index=KEY >> 8, words=words)
        await self.write_qp(ctx)

    async def offer(self, ctx: Any, packet: dict[str, int], plane: int = 0) -> None:
        self.sources[plane].put(packet)
        while self.sources[plane].waiting:
            await ctx.tick()

    async def outcome(self, ctx: Any, packet: dict[str, int], plane: int = 0) -> PortCounter:
        """Offer a record and return what becomes of it."""
        count = len(self.found["counter"])
        await self.offer(ctx, packet, plane)
        for _ in range(60):
            if len(self.found["counter"]) > count:
                break
            await ctx.tick()
        await self.pause(ctx, 4)
        assert len(self.found["counter"]) == count + 1
        index = self.found["counter"][-1]["index"]
        assert index // PORT_COUNTERS == plane
        return PortCounter(index % PORT_COUNTERS)

    def at_tick(self, ctx: Any, tick: int) -> None:
        """Let it be a time, in ticks of 128 ns."""
        ctx.set(self.core.admission.now, tick * TICK)

    async def pause(self, ctx: Any, cycles: int) -> None:
        for _ in range(cycles):
            await ctx.tick()

    async def placed(self, ctx: Any, place: dict[str, int], **changes: int) -> None:
        """The memory has answered a place command."""
        names = self.core.tracker.placed.payload.shape().members
        values = {name: place[name] for name in names if name in place} | changes
        await send(ctx, self.core.tracker.placed, **values)
        await self.pause(ctx, 8)

    def run(self, script: Any, *background: Any) -> None:
        async def bench(ctx: Any) -> None:
            await self.set_up(ctx)
            await script(ctx)
            assert not self.found["tracker_error_out"]

        simulate(
            self.core, bench, background=(self.collect, *background, *(source.run for source in self.sources))
        )
