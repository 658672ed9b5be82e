"""The sending half: requester and bind between models of memory, planes and a peer.

Sweep: data widths 64, 128 and 512 bits; message lengths around multiples of the MTU, 1 to 8 QPs, initial PSNs
that wrap; drops, trims, duplicates, lost feedback.
Stimulus: requests through the tables, doorbells, feedback of the peer model or forged by hand.
Checks: every packet that leaves, new or again, against its request (addresses, length, opcode, numbers,
keys); the bytes of a message tile it exactly; completions once, in order, with status; counters; timer
intervals. Timing: packet interval at most K in bursts of short packets;
every wait is bounded.
"""

import random
from dataclasses import replace
from typing import Any

import cocotb
import pytest

import runner
from agents import start
from mrc_host.model.nscc import NsccParameters
from mrc_host.model.nscc_fixed import fixed_parameters
from mrc_rtl import records, wire
from mrc_rtl.config import NicConfig
from mrc_rtl.congestion.rows import Row, fixed_rows
from mrc_rtl.records import GlobalCounter
from mrc_rtl.tables import CONGESTION_INDEX, CompletionStatus, QpErrorReason
from send_side import PSN, Peer, SendSide, SendSideBench, pack

WIDTH = runner.parameters().get("width", 64)
#: At 512 bit with the slots of *large*: with fewer, the time from fetch to plan limits the rate. Without
#: congestion windows and QPs that go back at 64 bit, as in *small*.
CONFIGS = {
    width: NicConfig().with_(
        data_width=width,
        transmit_slots=slots,
        congestion_control=width > 64,
        go_back_n=width > 64,
        loss_inference=True,
    )
    for width, slots in ((64, 4), (128, 4), (512, 8))
}
CONFIG = CONFIGS[WIDTH]
MTU = CONFIG.mtu
DEPTH = CONFIG.send_queue_depth


@pytest.mark.parametrize("width", [64, 128, 512])
def test_requester(simulation: runner.Simulation, width: int) -> None:
    runner.run_bench(lambda: SendSide(CONFIGS[width]), __file__, simulation, parameters={"width": width})


class Requests:
    """Posts requests of one QP and knows what each of its packets must look like."""

    def __init__(self, bench: SendSideBench, qp: int, psn: int, mtu: int = MTU) -> None:
        self.bench, self.qp, self.psn, self.mtu = bench, qp, psn, mtu
        self.messages: list[dict[str, int]] = []
        self.immediates = 0
        self.checked = 0
        self.fetched = 0

    async def post(self, length: int, imm: bool = False, ring: bool = True, **more: int) -> dict[str, int]:
        number = len(self.messages)
        packets = max(1, -(-length // self.mtu))
        message = {
            "wr_id": random.getrandbits(64),
            "local_address": random.getrandbits(40),
            "remote_address": random.getrandbits(60),
            "length": length,
            "local_key": 0x100 + number,
            "remote_key": random.getrandbits(32),
            "immediate": random.getrandbits(32),
            "opcode": int(imm),
            **more,
        }
        await self.bench.post(self.qp, number, **message)
        message |= {
            "first": self.psn, "packets": packets, "msn": number & 0xFFFF, "rqmsn": self.immediates & 0xFFFF
        }  # fmt: skip
        self.immediates += imm
        self.psn = self.psn + packets & PSN
        self.messages.append(message)
        if ring:
            self.bench.ring(self.qp)
        return message

    def of(self, psn: int) -> tuple[dict[str, int], int]:
        for message in self.messages:
            number = psn - message["first"] & PSN
            if number < message["packets"]:
                return message, number
        raise AssertionError(f"PSN {psn:#x} belongs to no request")

    def check_packet(self, packet: dict[str, Any]) -> None:
        message, number = self.of(packet["psn"])
        first, last = number == 0, number == message["packets"] - 1
        imm = bool(message["opcode"]) and last
        offset = number * self.mtu
        length = message["length"] - offset if last else self.mtu
        opcode = {
            (1, 1, 0): 0xCA, (1, 1, 1): 0xCB, (1, 0, 0): 0xC6, (0, 0, 0): 0xC7, (0, 1, 0): 0xC8, (0, 1, 1):
            0xC9,
        }[first, last, imm]  # fmt: skip
        assert packet["opcode"] == opcode
        assert packet["length"] == length
        assert packet["reth"] == {
            "va": message["remote_address"] + offset,
            "rkey": message["remote_key"],
            "dma_len": message["length"],
        }
        assert packet["meth"] == {"msn": message["msn"], "rqmsn": message["rqmsn"] if imm else 0}
        assert packet["body_words"] == (7 if imm else 6)
        assert not imm or packet["imm"] == message["immediate"]
        assert packet["tseth"]["ftype"] == 1 and packet["timestamped"] == 1
        assert packet["plane"] == packet["ev"] >> 24 & 7, "the EV belongs to another plane"

    def check(self, fetches: bool = True) -> None:
        """All packets so far, and the fetch of each one."""
        mine = [packet for packet in self.bench.data if packet["qp"] == self.qp]
        for packet in mine[self.checked :]:
            self.check_packet(packet)
        self.checked = len(mine)
        if not fetches:
            return
        mine = [fetch for fetch in self.bench.fetches if fetch["descriptor"]["qp"] == self.qp]
        mask = (1 << CONFIG.address_width) - 1
        for fetch in mine[self.fetched :]:
            message, number = self.of(fetch["descriptor"]["psn"])
            if fetch["descriptor"]["length"]:
                assert fetch["bus_address"] == message["local_address"] + number * self.mtu & mask
        self.fetched = len(mine)

    def completed(self, status: CompletionStatus = CompletionStatus.SUCCESS) -> int:
        """Number of completions; checks that they come in order and carry what they must."""
        mine = [completion for completion in self.bench.completions if completion["qp"] == self.qp]
        signalled = [message for message in self.messages if message.get("signalled", 1)]
        for completion, message in zip(mine, signalled, strict=False):
            assert completion["wr_id"] == message["wr_id"]
            assert completion["message_number"] == message["msn"]
            assert completion["byte_length"] == message["length"]
            assert completion["opcode"] == message["opcode"]
            assert completion["queue"] == 1
            assert completion["status"] == status
        return len(mine)


async def begin(dut: Any, frame_cycles: int = 0) -> SendSideBench:
    bench = SendSideBench(dut, CONFIG, frame_cycles)
    await start(dut)
    await bench.run(20)
    return bench


async def connect(bench: SendSideBench, qp: int, psn: int, **values: int) -> tuple[Peer, Requests]:
    peer = await bench.start_qp(qp, psn=psn, **values)
    assert peer is not None
    mtu = 1 << values.get("mtu_log2", MTU.bit_length() - 1)
    return peer, Requests(bench, qp, psn, mtu)


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def lengths(dut) -> None:
    """Every kind of message, one after the other, over the PSN wrap; nothing is left afterwards."""
    bench = await begin(dut)
    peer, requests = await connect(bench, 3, PSN - 9)
    sizes = [1, MTU - 1, MTU, MTU + 1, 3 * MTU, 3 * MTU + 7, 2]
    for number, (length, imm) in enumerate([(n, k) for k in (False, True) for n in sizes] + [(0, True)]):
        await requests.post(length, imm, signalled=int(number % 3 != 1))
        await bench.quiet()
    requests.check()
    assert requests.completed() == len([m for m in requests.messages if m["signalled"]])
    total = sum(message["length"] for message in requests.messages)
    assert sum(length for _, length in peer.ranges) == total
    state = await bench.read_qp(3)
    assert state["next_psn"] == state["unacked_psn"] == requests.psn
    assert not bench.errors and dut.deadline_valid.value == 1  # a bound, not yet found out to be too low
    for counter in (GlobalCounter.FEEDBACK_IGNORED, GlobalCounter.TIMEOUTS):
        assert counter not in bench.counts


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def many(dut) -> None:
    """All QPs at once with drops, trims, NACKs, lost feedback and stalled streams: every byte once."""
    bench = await begin(dut, frame_cycles=24)
    generator = random.Random(7)
    pairs = []
    for qp in range(CONFIG.qps):
        peer, requests = await connect(bench, qp, generator.getrandbits(24), timeout=5, exponential_count=25)
        peer.delay = generator.randrange(30, 300)

        def fate(packet: dict[str, Any]) -> Any:
            return generator.choices(["ok", "drop", "trim", "trim_last", 0x07, 0x0B], [80, 4, 8, 4, 3, 1])[0]

        peer.fate = fate
        pairs.append((peer, requests))
    for name in bench.sinks:
        bench.stalls[name] = lambda name=name: (
            generator.random() < 0.3 or (name == "fetch" and len(bench.free_slots) < 2)
        )
    for _round in range(DEPTH):
        for _, requests in pairs:
            await requests.post(generator.randrange(1, 5 * MTU), generator.random() < 0.5)
    # Time of the timers runs faster than the clock, so that a timeout does not take 2000 cycles.
    bench.step_time *= 4
    await bench.until(
        lambda: all(requests.completed() == DEPTH for _, requests in pairs), 150_000, "all completions"
    )
    for peer, requests in pairs:
        requests.check()
        for message in requests.messages:
            pieces = sorted(
                (va - message["remote_address"], length)
                for va, length in peer.ranges
                if 0 <= va - message["remote_address"] < message["length"]
            )
            assert pieces == [
                (n * MTU, min(MTU, message["length"] - n * MTU)) for n in range(message["packets"])
            ]
    assert any(packet["retransmission"] for packet in bench.data)
    assert all(packet["dscp"] == 4 and packet["ecn"] == 2 for packet in bench.data)
    assert not bench.errors


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def window(dut) -> None:
    """A silent peer stops the QP at the window, which another QP does not notice; a SACK lets it go on."""
    bench = await begin(dut)
    peer, requests = await connect(bench, 0, 0x10)
    other, more = await connect(bench, 5, 0x999)
    peer.fate = lambda packet: "drop"
    await requests.post(200 * MTU)
    await more.post(20 * MTU)
    await bench.quiet()
    assert more.completed() == 1
    mine = [packet for packet in bench.data if packet["qp"] == 0]
    assert len(mine) == CONFIG.mpr_psns and mine[-1]["ack_request"] == 1
    assert not any(packet["ack_request"] for packet in mine[:-1])
    bench.sack(0, 0x10 + 9, 1, 0)
    await bench.quiet()
    assert len([packet for packet in bench.data if packet["qp"] == 0]) == CONFIG.mpr_psns + 10
    # A smaller window of the peer holds as well.
    third, last = await connect(bench, 2, 0, mpr_psns=5)
    third.fate = lambda packet: "drop"
    await last.post(20 * MTU)
    await bench.quiet()
    assert len([packet for packet in bench.data if packet["qp"] == 2]) == 5
    for checked in (requests, more, last):
        checked.check()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def trimmed(dut) -> None:
    """A trimmed packet is sent again once, from the same bytes, in its class; stale NACKs change nothing."""
    bench = await begin(dut)
    bench.set_settings(trimming=1)
    peer, requests = await connect(bench, 1, PSN - 3)
    lost = {PSN - 1, 2}
    peer.fate = lambda packet: "trim" if packet["psn"] in lost and not packet["retransmission"] else "ok"
    for length in (3 * MTU, 2 * MTU, 4 * MTU):
        await requests.post(length)
    await bench.until(lambda: requests.completed() == 3, 3000, "completions")
    await bench.quiet()
    again = [packet for packet in bench.data if packet["retransmission"]]
    assert {packet["psn"] for packet in again} == lost and len(again) == 2
    assert all(packet["dscp"] == 10 and packet["ack_request"] for packet in again)
    assert all(packet["dscp"] == 8 for packet in bench.data if not packet["retransmission"])
    requests.check()
    # Now by hand: a NACK counts once, and only with the EV of the last transmission.
    peer.fate = lambda packet: "drop"
    await requests.post(4 * MTU)
    await bench.quiet()
    packet = bench.data[-2]
    ignored = bench.counts.get(GlobalCounter.FEEDBACK_IGNORED, 0)
    bench.nack(1, packet["psn"], 1, packet["ev"] ^ 1)
    await bench.quiet()
    assert bench.data[-1]["retransmission"] == 0
    for _ in range(4):
        bench.nack(1, packet["psn"], 1, packet["ev"])
    await bench.quiet()
    sent_again = [p for p in bench.data if p["psn"] == packet["psn"] and p["retransmission"]]
    assert len(sent_again) == 1 and sent_again[0]["ev"] != packet["ev"]
    assert bench.counts[GlobalCounter.FEEDBACK_IGNORED] == ignored + 4
    # The second transmission can be trimmed as well.
    bench.nack(1, packet["psn"], 2, sent_again[0]["ev"])
    await bench.quiet()
    assert len([p for p in bench.data if p["psn"] == packet["psn"]]) == 3
    # A SACKed PSN is not sent again.
    bench.sack(
        1, requests.messages[-1]["first"] - 1 & PSN, packet["psn"] - requests.messages[-1]["first"] + 1, 1
    )
    bench.nack(1, packet["psn"], 1, bench.data[-1]["ev"])
    await bench.quiet()
    assert len([p for p in bench.data if p["psn"] == packet["psn"]]) == 3
    requests.check()


class InOrderPeer(Peer):
    """Takes packets in the order of their PSNs; the first that comes early is answered by a NACK."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer.bench, peer.qp, peer.expected, peer.ack_every)
        self.early = 0
        self.gap = -1

    def _accept(self, packet: dict[str, Any]) -> None:
        ahead = packet["psn"] - self.expected & PSN
        if not 0 < ahead < 1 << 23:
            self.gap = -1
            super()._accept(packet)
            return
        self.early += 1
        if self.gap != self.expected:
            self.gap = self.expected
            last = next(p for p in reversed(self.packets) if p["psn"] == self.expected)
            self.bench.nack(self.qp, self.expected, 0x0B, last["ev"])


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def goes_back(dut) -> None:
    """A QP of the type go-back-N sends everything again from a missed PSN on, before anything new."""
    if not CONFIG.go_back_n:
        return
    bench = await begin(dut)
    _, requests = await connect(bench, 2, PSN - 20, go_back_n=1)
    peer = bench.peers[2] = InOrderPeer(bench.peers[2])
    other, more = await connect(bench, 4, 77)
    lost = {PSN - 11, 3, 4}
    peer.fate = lambda p: "drop" if p["psn"] in lost and not p["retransmission"] else "ok"
    for length in (30 * MTU, 10 * MTU, 7, 40 * MTU):
        await requests.post(length)
    await more.post(20 * MTU)
    await bench.until(lambda: requests.completed() == 4 and more.completed() == 1, 20_000, "completions")
    await bench.quiet()
    mine = [p["psn"] for p in peer.packets]
    assert len(peer.ranges) == 81, "each packet is placed once"
    assert peer.early > 0 and len(mine) >= 81 + len(lost)
    # Behind a step back every PSN comes in order up to the newest, and only then a new one.
    newest = mine[0]
    steps = 0
    for before, psn in zip(mine, mine[1:], strict=False):
        if psn - before & PSN != 1:
            steps += 1
            assert newest - psn & PSN < 1 << 23, "a new packet jumped the queue"
        if psn - newest & PSN < 1 << 23:
            newest = psn
    assert steps >= 1
    assert all(not p["retransmission"] for p in other.packets)
    # The first packet sent again is lost as well: nobody knows but the timer.
    state = await bench.read_qp(2)
    assert (state["go_back_n"], state["next_psn"], state["unacked_psn"]) == (1, requests.psn, requests.psn)
    start, sent = requests.psn, len(peer.packets)
    tries = {start: 2}

    def fate(packet):
        tries[packet["psn"]] = tries.get(packet["psn"], 0) - 1
        return "drop" if tries[packet["psn"]] >= 0 else "ok"

    peer.fate = fate
    await requests.post(6 * MTU)
    await bench.quiet()
    assert len(peer.packets) > sent + 6
    await bench.expire()
    await bench.until(lambda: requests.completed() == 5, 20_000, "completion behind the timeout")
    await bench.quiet()
    assert bench.counts[GlobalCounter.TIMEOUTS] >= 1 and not bench.errors
    requests.check()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def going_back_ends_with_the_qp(dut) -> None:
    """A QP that is reset while it goes back leaves nothing behind; its next life is whole."""
    if not CONFIG.go_back_n:
        return
    bench = await begin(dut)
    for psn in (0x100, 0x9000):
        peer, requests = await connect(bench, 1, psn, go_back_n=1)
        peer.fate = lambda packet: "drop"
        await requests.post(60 * MTU)
        await bench.quiet()
        bench.nack(1, psn, 0x0B, peer.packets[0]["ev"])
        packets = peer.packets
        await bench.until(
            lambda packets=packets: any(p["retransmission"] for p in packets), 400, "going back"
        )
        await bench.write_qp(1, state=0)
        await bench.quiet()
    peer, requests = await connect(bench, 1, 0x200)
    await requests.post(20 * MTU)
    await bench.until(lambda: requests.completed() == 1, 5000, "the next life")
    assert not any(p["retransmission"] for p in peer.packets)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def bitmaps(dut) -> None:
    """Every alignment of a SACK bitmap: what it marks is not sent again, what it does not mark is."""
    bench = await begin(dut)
    generator = random.Random(3)
    for qp, psn in enumerate((0, 17, PSN - 40)):
        peer, requests = await connect(bench, qp, psn, timeout=12)
        peer.fate = lambda packet: "drop"
        await requests.post(120 * MTU)
        await bench.quiet()
        evs = {packet["psn"]: packet["ev"] for packet in bench.data if packet["qp"] == qp}
        acked: set[int] = set()
        for _ in range(6):
            base = generator.randrange(1, 119)
            bitmap = generator.getrandbits(64)
            acked |= {base + n for n in range(64) if bitmap >> n & 1 and base + n < 120}
            bench.sack(qp, psn - 1 & PSN, base + 1, bitmap)
        await bench.quiet()
        before = len(bench.data)
        # NACKs in pieces, so that the retransmission queue does not overflow.
        for n in range(0, 120, 8):
            for number in range(n, n + 8):
                bench.nack(qp, psn + number & PSN, 1, evs[psn + number & PSN])
            await bench.quiet()
        again = sorted((packet["psn"] - psn & PSN) for packet in bench.data[before:])
        assert again == sorted(set(range(120)) - acked)
        requests.check()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timeouts(dut) -> None:
    """Linear, then doubling intervals; only the oldest PSN, with ack_request; then everything is flushed."""
    bench = await begin(dut)
    peer, requests = await connect(bench, 4, 100, timeout=4, linear_count=2, exponential_count=3)
    peer.fate = lambda packet: "drop"
    for length in (2 * MTU, 5, 7):
        await requests.post(length, imm=True)
    await bench.quiet()
    assert len(bench.data) == 4
    started = bench.data[0]["tseth"]["tx_timestamp"]
    moments = [started]
    interval = 8 << 4
    for attempt in range(1, 6):
        await bench.expire()
        assert len(bench.data) == 4 + attempt
        packet = bench.data[-1]
        assert packet["psn"] == 100 and packet["retransmission"] and packet["ack_request"]
        moments.append(packet["tseth"]["tx_timestamp"])
        assert (await bench.read_qp(4))["attempt"] == attempt
    steps = [after - before for before, after in zip(moments, moments[1:], strict=False)]
    for step, wanted in zip(steps, [1, 1, 2, 4, 8], strict=True):
        assert 0 <= step - wanted * interval <= 20, (steps, wanted)
    assert not bench.completions
    for _ in range(2000):
        await bench.skip_to_deadline()
        await bench.quiet()
        if bench.completions:
            break
    assert [completion["status"] for completion in bench.completions] == [
        CompletionStatus.RETRY_EXCEEDED, CompletionStatus.FLUSHED, CompletionStatus.FLUSHED
    ]  # fmt: skip
    assert [c["wr_id"] for c in bench.completions] == [m["wr_id"] for m in requests.messages]
    assert bench.errors == [{"qp": 4, "reason": QpErrorReason.RETRY_EXCEEDED}]
    assert (await bench.read_qp(4))["state"] == 4
    assert bench.counts[GlobalCounter.TIMEOUTS] == 5
    # What is posted now is flushed as well, nothing leaves, and no timer runs.
    await requests.post(9)
    await bench.quiet()
    assert len(bench.completions) == 4 and len(bench.data) == 9
    bench.now += 1 << 40
    await bench.quiet()
    assert dut.deadline_valid.value == 0


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timer_progress(dut) -> None:
    """Progress resets the attempts; other QPs' timers keep their time; timeout 0 never fires."""
    bench = await begin(dut)
    peer, requests = await connect(bench, 4, 0, timeout=5)
    slow, later = await connect(bench, 6, 0, timeout=8)
    never, silent = await connect(bench, 7, 0, timeout=0)
    for each in (peer, slow, never):
        each.fate = lambda packet: "drop"
    for each in (requests, later, silent):
        await each.post(4 * MTU)
    await bench.quiet()
    for attempt in (1, 2, 3):
        await bench.expire()
        assert bench.counts[GlobalCounter.TIMEOUTS] == attempt
    assert (await bench.read_qp(4))["attempt"] == 3
    bench.sack(4, 1, 1, 0)
    await bench.quiet()
    state = await bench.read_qp(4)
    assert state["attempt"] == 0 and state["unacked_psn"] == 2
    peer.fate = slow.fate = lambda packet: "ok"
    peer.expected = 2
    peer.placed = {3}
    slow.placed = {1, 2, 3}
    peer.ends[3] = slow.ends[3] = 0
    for _ in range(8):
        if requests.completed() and later.completed():
            break
        await bench.expire()
    assert requests.completed() == later.completed() == 1
    assert [p["psn"] for p in bench.data if p["qp"] == 6 and p["retransmission"]] == [0]
    assert not [p for p in bench.data if p["qp"] == 7 and p["retransmission"]]
    assert silent.completed() == 0 and not bench.errors


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def lost_acks(dut) -> None:
    """All is SACKed but the transport ACK is lost: the oldest request's last packet goes out again."""
    bench = await begin(dut)
    peer, requests = await connect(bench, 2, 50)
    peer.acks = False
    await requests.post(3 * MTU)
    await requests.post(2 * MTU)
    await bench.quiet()
    assert requests.completed() == 0
    state = await bench.read_qp(2)
    assert state["unacked_psn"] == state["next_psn"] == 55
    peer.acks = True
    await bench.expire()
    assert [p["psn"] for p in bench.data if p["retransmission"]] == [52]
    assert requests.completed() == 2
    requests.check()
    # A lost SACK alone needs nothing: the transport ACK proves the same.
    peer.sacks = False
    await requests.post(3 * MTU)
    await bench.quiet()
    assert requests.completed() == 3
    assert (await bench.read_qp(2))["unacked_psn"] == 58


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def forged(dut) -> None:
    """Feedback beyond what was sent, stale or unknown: counted, without effect on anything."""
    bench = await begin(dut)
    peer, requests = await connect(bench, 1, 1000)
    peer.fate = lambda packet: "drop"
    await requests.post(10 * MTU)
    await bench.quiet()
    sent = len(bench.data)
    bench.sack(1, 1010, 1, 0)  # cumulative: 1009 is the last one sent
    bench.ack(1, 1010)
    bench.nack(1, 1010, 1, bench.data[0]["ev"])
    bench.nack(1, 999, 1, bench.data[0]["ev"])
    bench.sack(1, 1000 + (1 << 22), 1, 0)
    bench._feedback(1, 0xD9, 1003, 0)
    bench.ack(1, 1003, syndrome=0x60)
    bench.ack(1, 1010, syndrome=0x62)
    bench.sack(1, 990, 1, 0)  # stale: fine
    bench.ack(1, 990)  # stale: fine
    bench.sack(1, 999, 11, 0xFF)  # bits above what was sent
    bench.sack(1, 999, 0x8000, (1 << 64) - 1)  # far below
    bench.sack(1, 999, 0x7FFF, (1 << 64) - 1)  # far above
    bench.sack(6, 0, 1, 0)  # a QP in RESET
    await bench.quiet()
    state = await bench.read_qp(1)
    assert state["unacked_psn"] == 1000 and state["next_psn"] == 1010 and state["state"] == 3
    assert len(bench.data) == sent and not bench.completions and not bench.errors
    assert bench.counts[GlobalCounter.FEEDBACK_IGNORED] == 11
    # Nothing was marked: each PSN can still be asked for.
    for packet in bench.data[:10]:
        bench.nack(1, packet["psn"], 1, packet["ev"])
    await bench.quiet()
    assert len(bench.data) == sent + 10
    requests.check()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def errors(dut) -> None:
    """NAKs, local protection, errors from outside and forbidden requests: status, reason, flush in order."""
    status, reason = CompletionStatus, QpErrorReason
    bench = await begin(dut)

    async def case(psn: int, cause: Any, wanted: list[int], reasons: list[int], **request: int) -> None:
        bench.errors.clear()
        bench.completions.clear()
        await bench.write_qp(2, state=0)
        peer, requests = await connect(bench, 2, psn)
        peer.fate = lambda packet: "drop"
        for n in range(4):
            await requests.post(2 * MTU, **(request if n == 2 else {}))
        await bench.quiet()
        cause()
        await bench.quiet()
        assert [completion["status"] for completion in bench.completions] == wanted
        assert [m["wr_id"] for m in requests.messages] == [c["wr_id"] for c in bench.completions]
        assert bench.errors == [{"qp": 2, "reason": reason} for reason in reasons]
        assert (await bench.read_qp(2))["state"] == 4
        assert await bench.write_qp(2, state=3, mtu_log2=10) is False  # only RESET leads out of ERROR

    flushed = status.FLUSHED
    for syndrome, code in (
        (0x61, status.REMOTE_INVALID_REQUEST), (0x62, status.REMOTE_ACCESS_ERROR), (0x63,
        status.REMOTE_OPERATION_ERROR)
    ):  # fmt: skip
        await case(
            PSN - 1,
            lambda syndrome=syndrome: (bench.ack(2, PSN), bench.ack(2, 3, syndrome=syndrome)),
            [status.SUCCESS, flushed, code, flushed],
            [reason.REMOTE_NAK],
        )
    outside = pack(records.qp_error(CONFIG), qp=2, reason=reason.REMOTE_ACCESS)
    await case(5, lambda: bench.sources["error_in"].queue.append(outside), [flushed] * 4, [])
    bench.bad_keys = {0x102}
    await case(
        5, lambda: None, [flushed, flushed, status.LOCAL_PROTECTION_ERROR, flushed], [reason.LOCAL_PROTECTION]
    )
    bench.bad_keys = set()
    await case(
        5,
        lambda: bench.nack(2, 9, 0x19, bench.data[-4]["ev"]),
        [flushed, flushed, status.GENERAL_ERROR, flushed],
        [reason.UNEXPECTED_EVENT],
    )
    await case(
        5,
        lambda: None,
        [flushed, flushed, status.GENERAL_ERROR, flushed],
        [reason.LOCAL_PROTECTION],
        opcode=7,
    )


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def immediates(dut) -> None:
    """At most max_immediates in flight; the QP that waits for one does not block another."""
    bench = await begin(dut)
    peer, requests = await connect(bench, 0, 0, max_immediates=2)
    other, more = await connect(bench, 1, 0)
    peer.acks = False
    for _ in range(5):
        await requests.post(MTU + 1, imm=True)
    await more.post(9 * MTU, imm=True)
    await bench.quiet()
    assert more.completed() == 1
    mine = [packet for packet in bench.data if packet["qp"] == 0]
    assert len(mine) == 4 and mine[-1]["ack_request"] == 1
    peer.acks = True
    bench.ack(0, 1)
    await bench.quiet()
    assert requests.completed() == 5
    requests.check()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def delayed(dut) -> None:
    """NACKs for lack of resources or outside a window that has moved since: again after one base_rtt."""
    bench = await begin(dut)
    peer, requests = await connect(bench, 0, 0, timeout=9)
    peer.fate = lambda packet: "drop"
    await requests.post(8 * MTU)
    await bench.quiet()
    for psn, code in ((1, 0x06), (2, 0x07), (3, 0x0A), (4, 0x55), (5, 0x0B)):
        bench.nack(0, psn, code, bench.data[psn]["ev"])
    told = bench.now >> 16
    await bench.until(lambda: len(bench.data) > 8, 4000, "the first one again")
    assert 20 <= (bench.now >> 16) - told <= 30
    await bench.quiet()
    assert [packet["psn"] for packet in bench.data[8:]] == [1, 2, 3, 4, 5]
    assert bench.paths == []
    requests.check()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def echoes(dut) -> None:
    """What feedback says of a path is told with the EV stored for its PSN, if the echo is the same."""
    bench = await begin(dut)
    peer, requests = await connect(bench, 2, PSN - 2, timeout=9)
    peer.fate = lambda packet: "drop"
    await requests.post(8 * MTU)
    await bench.quiet()
    sent = {packet["psn"]: packet for packet in bench.data}

    def path(name: str, psn: int) -> tuple[str, int, int, int]:
        packet = sent[psn & PSN]
        return (name, 2, packet["plane"], place(packet))

    def place(packet: dict[str, Any]) -> int:
        values = [wire.ev_value(packet["plane"], n + 1, 2) for n in range(4)]
        return values.index(packet["ev"])

    first = PSN - 2
    for trigger, mark, ev in ((0, 1, None), (1, 2, None), (2, 0, None), (3, 1, 1), (-9, 1, None)):
        psn = first + trigger & PSN
        value = ev if ev is not None else sent.get(psn, {"ev": 0})["ev"]
        bench.sack(2, first - 1 & PSN, 1, 0, value, m=mark, ack_psn_offset=trigger + 1)
    await bench.quiet()
    assert bench.paths == [path("SKIP", first), path("CONDEMN", first + 1)]
    bench.paths.clear()
    # The answer to a probe says nothing of a packet; those with the top bit set are handed on.
    for number in (0x8001, 5):
        bench.sack(
            2,
            first - 1 & PSN,
            1,
            0,
            sent[first]["ev"],
            m=1,
            pr=1,
            left=sent[first]["time"],
            ack_psn_offset=number - (number >> 15 << 16),
        )
    await bench.quiet()
    assert bench.paths == []
    (answer,) = bench.answers
    assert answer["rtt"] > 1
    assert {**answer, "rtt": 0} == {"qp": 2, "number": 0x8001, "marked": 1, "rtt": 0}
    for trigger, reason in ((4, 1), (5, 2), (6, 6)):
        bench.nack(2, first + trigger & PSN, reason, sent[first + trigger & PSN]["ev"])
    await bench.quiet()
    assert bench.paths == [path("SKIP", first + 4)]
    bench.paths.clear()
    await bench.expire()
    assert bench.paths == [path("LOST", first)]
    requests.check()


def sent_again(bench: SendSideBench) -> list[int]:
    return [packet["psn"] for packet in bench.data if packet["retransmission"]]


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def overtaken(dut) -> None:
    """What a later packet of the same plane proves lost, and what not: time, plane, EV, echo, view."""
    bench = await begin(dut, frame_cycles=24)
    peer, requests = await connect(bench, 1, 100, timeout=12)
    peer.fate = lambda packet: "drop"
    await requests.post(40 * MTU)
    await bench.until(lambda: len(bench.data) == 40, 8000, "all sent")
    await bench.quiet()
    packets = bench.data[:40]

    async def arrived(number: int, held: int = 1, covered: int = 0, **more: int) -> list[int]:
        """Only this packet arrived, and the peer says how many; which ones leave again?"""
        before = len(bench.data)
        packet = packets[number]
        offset = number + 1 - covered
        fields = {"ev": packet["ev"], "held": held, "ack_psn_offset": offset, **more}
        bench.sack(1, 99 + covered, offset, 1, **fields)
        await bench.quiet()
        return [packet["psn"] - 100 for packet in bench.data[before:]]

    plane = packets[0]["plane"]
    mine = [n for n, packet in enumerate(packets) if packet["plane"] == plane]
    assert packets[mine[1]]["ev"] != packets[0]["ev"]
    window = 10
    close = [n for n in mine[1:] if packets[n]["time"] - packets[0]["time"] < window]
    close = [n for n in close if packets[n]["ev"] != packets[0]["ev"]]
    late = next(n for n in mine if packets[n]["time"] - packets[0]["time"] >= window)
    assert close, "the planes are too slow for this test"
    # Sent within the reorder window of the first one.
    assert await arrived(close[0]) == []
    # An echo of another value, and a repetition that did not leave: nothing is certain.
    assert await arrived(late, held=2, ev=packets[late]["ev"] ^ 1) == []
    assert await arrived(late, held=2, rtx=1) == []
    # Only the oldest one is missing for certain while the peer holds more than is known.
    assert await arrived(late, held=9) == [0]
    overdue = [n for n in mine if packets[late]["time"] - packets[n]["time"] >= window]
    assert len(overdue) < 3
    # With everything known, all that are old enough, on this plane alone; each once.
    last = mine[-1]
    told = len(bench.paths)
    missing = [n for n in mine[1:-1] if n not in (close[0], late)]
    ev = packets[last]["ev"]

    def lost(number: int) -> bool:
        gap = packets[last]["time"] - packets[number]["time"]
        return gap >= window or (packets[number]["ev"] == ev and gap > 0)

    expected = []
    for n in missing:
        if not lost(n):
            break
        expected.append(n)
    assert len(expected) > 8
    assert await arrived(last, held=9) == []
    assert await arrived(last, held=3, covered=1) == expected
    assert [path[:3] for path in bench.paths[told:]] == [("LOST", 1, plane)] * len(expected)
    assert await arrived(last, held=3, covered=1) == []
    assert GlobalCounter.TIMEOUTS not in bench.counts
    requests.check()


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def losses(dut) -> None:
    """Packets get lost and overtake each other by less than the window: just the lost ones leave again."""
    bench = await begin(dut, frame_cycles=64)
    generator = random.Random(11)
    pairs = []
    for qp in range(4):
        peer, requests = await connect(bench, qp, generator.getrandbits(24), timeout=12)
        dropped: list[int] = []
        end = requests.psn + 200

        def fate(packet: dict[str, Any], dropped: list[int] = dropped, end: int = end) -> Any:
            # The last ones have none behind them that could prove anything.
            if packet["retransmission"] or (end - packet["psn"] & PSN) < 40 or generator.random() < 0.95:
                return "ok"
            dropped.append(packet["psn"])
            return "drop"

        peer.fate = fate
        # Packets of one EV keep their order.
        ways = {(plane, n): 300 * plane + 20 * n for plane in range(CONFIG.planes) for n in range(4)}
        peer.late = lambda packet, ways=ways: ways[packet["plane"], (packet["ev"] >> 16 & 0xFF) - 1]
        peer.ack_every = 1 + 2 * (qp % 2)  # as the receive side does, echoes cover all planes
        pairs.append((qp, peer, requests, dropped))
        for _ in range(4):
            await requests.post(50 * MTU)
    await bench.until(
        lambda: all(requests.completed() == 4 for _, _, requests, _ in pairs), 60000, "completions"
    )
    for qp, peer, requests, dropped in pairs:
        again = [packet["psn"] for packet in bench.data if packet["qp"] == qp and packet["retransmission"]]
        assert sorted(again) == sorted(dropped) and len(dropped) > 3
        assert peer.expected == requests.psn
        requests.check()
    assert not bench.counts.get(GlobalCounter.TIMEOUTS)
    assert {path[0] for path in bench.paths} == {"LOST"}


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def tails(dut) -> None:
    """What gets lost at the end is proven by the answer to a probe on another plane: no timer runs out."""
    bench = await begin(dut, frame_cycles=64)
    generator = random.Random(13)
    peer, requests = await connect(bench, 6, PSN - 20, timeout=12)
    peer.answers = True
    # The last of all, all of a window, retransmissions as well; then half of everything.
    for share, length in ((0.0, 1), (1.0, 1), (1.0, 30), (0.5, 60)):
        lost: list[int] = []

        def fate(packet: dict[str, Any], lost: list[int] = lost, share: float = share) -> Any:
            if generator.random() < share and lost.count(packet["psn"]) < 2:
                lost.append(packet["psn"])
                return "drop"
            return "ok"

        peer.fate = fate
        bench.questions.clear(), bench.data.clear()
        begun = bench.now >> 16
        done = requests.completed()
        await requests.post(length * MTU)
        await bench.until(lambda done=done: requests.completed() > done, 30000, "completion")
        assert sorted(sent_again(bench)) == sorted(lost)
        if share == 1.0:
            # The first question comes two base RTTs after the first packet was given out.
            assert bench.questions[0]["time"] - bench.data[0]["time"] & 0xFFFF in range(34, 52)
            assert bench.questions[0]["plane"] != bench.data[0]["plane"]
            assert bench.questions[-1]["number"] == requests.psn & 0x7FFF
        assert (bench.now >> 16) - begun < 4000
    assert not bench.counts.get(GlobalCounter.TIMEOUTS)
    assert not bench.counts.get(GlobalCounter.FEEDBACK_IGNORED)
    # With everything acknowledged nobody asks.
    bench.questions.clear()
    await bench.run(3000)
    assert not bench.questions
    requests.check()


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def undone(dut) -> None:
    """A packet taken for lost arrives: before it leaves again, it does not; later, its blame is undone."""
    for blocked in (True, False):
        bench = await begin(dut, frame_cycles=24)
        peer, requests = await connect(bench, 5, 1000, timeout=12)
        peer.ack_every = 1
        slow = requests.psn + 4
        peer.late = lambda packet, slow=slow: (
            2500 if packet["psn"] == slow and not packet["retransmission"] else 0
        )
        await requests.post(60 * MTU)
        await bench.until(lambda bench=bench: bench.paths != [], 6000, "a loss")
        if blocked:
            bench.blocked_planes = 3
            await bench.run(3000)
            bench.blocked_planes = 0
        await bench.until(lambda requests=requests: requests.completed() == 1, 9000, "completion")
        await bench.quiet()
        packet = next(packet for packet in bench.data if packet["psn"] == slow)
        (name, qp, plane, place), (undo, *same) = bench.paths
        assert (name, undo, qp) == ("LOST", "UNDO", 5) and same == [qp, plane, place]
        assert plane == packet["plane"] and packet["ev"] == wire.ev_value(plane, place + 1, 5)
        requests.check()
        assert await bench.write_qp(5, state=0)


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def again(dut) -> None:
    """The same QP number is used again and again, in the middle of everything: nothing is left over."""
    bench = await begin(dut, frame_cycles=30)
    generator = random.Random(5)
    for turn in range(10):
        psn = generator.getrandbits(24)
        peer, requests = await connect(bench, 3, psn, evs=turn % 4 + 1)
        bench.data.clear(), bench.fetches.clear(), bench.completions.clear()
        requests.checked = requests.fetched = 0
        kinds = ["ok", "ok", "drop", "trim", 0x07]
        peer.fate = lambda packet, kinds=kinds: generator.choice(kinds)
        for _ in range(DEPTH):
            await requests.post(generator.randrange(1, 9 * MTU))
        if turn % 3 == 2:
            bench.blocked_planes = 3
        await bench.run(generator.randrange(100, 1500))
        requests.check()
        assert await bench.write_qp(3, state=0)
        requests.check(fetches=False)
        bench.sources["feedback"].forget()
        bench.events = [
            event for event in bench.events if event[2] != peer._accept and event[2] != bench.nack
        ]
        sent = len(bench.data)
        await bench.run(300)
        assert len(bench.data) == sent, "a packet of the old QP left"
        bench.blocked_planes = 0
        state = await bench.read_qp(3)
        assert not any(state.values()), state
    assert not bench.errors
    peer, requests = await connect(bench, 3, 77)
    bench.data.clear(), bench.fetches.clear(), bench.completions.clear()
    await requests.post(20 * MTU)
    await bench.until(lambda: requests.completed() == 1, 4000, "completion")
    requests.check()
    assert sorted(packet["psn"] for packet in bench.data) == list(range(77, 97))


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def doorbells(dut) -> None:
    """Doorbells for QPs in every state, for more than was posted, and in floods."""
    bench = await begin(dut)
    for qp in range(CONFIG.qps):
        bench.ring(qp, 5)
    await bench.quiet()
    assert not bench.data and not bench.completions
    peer, requests = await connect(bench, 0, 0)
    for _ in range(DEPTH):
        await requests.post(10, ring=False)
    for _ in range(50):
        bench.ring(0, 2047)
    bench.ring(7, 3)
    await bench.until(lambda: requests.completed() == DEPTH, 3000, "completions")
    await bench.write_qp(0, state=4, mtu_log2=10)
    await bench.quiet()
    # The flood posted more than there was; what is too much was flushed or sent, never more than the ring at
    # once.
    assert (await bench.read_qp(0))["state"] == 4
    assert await bench.write_qp(0, state=0)
    peer, requests = await connect(bench, 0, 9)
    bench.data.clear(), bench.fetches.clear(), bench.completions.clear()
    await requests.post(10 * MTU)
    await bench.until(lambda: requests.completed() == 1, 3000, "completion")
    requests.check()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def tables(dut) -> None:
    """What is written can be read back; what is not allowed is refused and changes nothing."""
    bench = await begin(dut)
    fields = {
        "state": 1, "mtu_log2": 9, "timeout": 24, "linear_count": 7, "exponential_count": 25,
        "protection_domain": 0xA5, "completion_queue": 3, "ev_profile": 6, "initial_psn": 0xABCDEF,
        "mpr_psns": 77, "max_immediates": 0xBEEF,
    }  # fmt: skip
    assert await bench.write_qp(5, **fields)
    state = await bench.read_qp(5)
    assert {name: state[name] for name in fields} == fields
    for bad in ({"timeout": 25}, {"mtu_log2": 13}, {"mtu_log2": 7}, {"mtu_log2": 11}, {"state": 5}):
        assert not await bench.write_qp(5, **{**fields, **bad})
    assert await bench.command("qp_send", CONFIG.qps, None, 3) is None
    assert await bench.command("qp_send", 5, None, 4) is None
    state = await bench.read_qp(5)
    assert {name: state[name] for name in fields} == fields
    words = [random.getrandbits(64) for _ in range(6)]
    for index in (0, 63):
        assert await bench.command("send_request", index, words) is not None
        assert await bench.command("send_request", index, None, 6) == words
        words = [word ^ 0xFFFF for word in words]
    assert await bench.command("send_request", 64, words) is None
    for bus, index, bits in (("ev_set", 15, 16), ("ev_value", 511, 36)):
        value = random.getrandbits(bits)
        assert await bench.command(bus, index, [value]) is not None
        assert await bench.command(bus, index, None, 1) == [value]
        assert await bench.command(bus, index + 1, [value]) is None


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def rate(dut) -> None:
    """Bursts of one-packet messages and long messages, one QP and several: at most K cycles a packet."""
    bench = await begin(dut)
    bench.fetch_latency = 2
    bench.region_latency = 1
    for name, qps, length in (("messages", 1, 5), ("long", 1, 40 * MTU), ("several", 4, 40 * MTU)):
        pairs = [await connect(bench, qp, 0) for qp in range(qps)]
        bench.data.clear(), bench.fetches.clear(), bench.completions.clear()
        for peer, requests in pairs:
            peer.ack_every = 16
            for _ in range(DEPTH if length == 5 else 1):
                await requests.post(length, ring=False)
        for qp in range(qps):
            bench.ring(qp, DEPTH if length == 5 else 1)

        def done(pairs: list[tuple[Peer, Requests]] = pairs) -> bool:
            return all(requests.completed() == len(requests.messages) for _, requests in pairs)

        await bench.until(done, 4000, "done")
        cycles = [packet["cycle"] for packet in bench.data]
        # Without the first packet, for which everything was idle.
        interval = (cycles[-1] - cycles[1]) / (len(cycles) - 2)
        print(f"width {WIDTH}, {name}: {interval:.2f} cycles a packet, K {CONFIG.packet_interval}")
        # With many QPs a feedback now and then has to be waited for.
        assert interval <= CONFIG.packet_interval * (1.05 if qps > 1 else 1)
        for qp in range(qps):
            await bench.write_qp(qp, state=0)


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def congestion_window(dut) -> None:
    """A QP sends what its congestion window allows and no more; another QP does not notice that it stops.

    An engine without windows refuses their rows.
    """
    bench = await begin(dut)
    if not CONFIG.congestion_control:
        assert await bench.command("qp_send", CONGESTION_INDEX + 4, [0] * 16) is None
        return
    packets, full = 5, MTU + 88
    parameters = NsccParameters.derive(bytes_per_ns=0.5, base_rtt_ns=100_000, mtu=MTU, trimming=True)
    parameters = replace(parameters, max_cwnd=packets * full, base_rtt_min=100_000, eta=0.0)
    rows = fixed_rows(fixed_parameters(parameters), full)
    for part in range(4):
        words = rows[16 * part : 16 * part + 16]
        assert await bench.command("qp_send", CONGESTION_INDEX + 4 + part, words) is not None
    peer, requests = await connect(bench, 1, 0x20)
    other, more = await connect(bench, 5, 0x999)
    flying = most = received = 0

    def answer(packet):
        """The responder's count of bytes rises by what arrived, rounded down to units."""
        nonlocal flying, received
        received += packet["length"]
        flying -= 1
        psn = packet["psn"]
        body = wire.SETH.pack(cack_psn=psn, entropy=packet["ev"])
        state = wire.CC_STATE.pack(rcvd_bytes=received // 256, tx_timestamp=bench.now >> 16 & 0xFFFF)
        bench._feedback(1, wire.Opcode.SACK, psn, body << 64 | state)
        if psn == 0x20 + 39:
            bench.ack(1, psn, 1)

    def count(packet):
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        bench.later(600, answer, packet)
        return "drop"

    peer.fate = count
    await requests.post(40 * MTU)
    await more.post(20 * MTU)
    await bench.until(lambda: len(peer.packets) >= packets, 20_000, "the first window")
    asked = [packet["ack_request"] for packet in peer.packets]
    assert asked == [0] * (packets - 1) + [1], "the last packet before the stop asks for a SACK"
    await bench.until(lambda: more.completed() == 1, 60_000, "the QP without a window")
    await bench.until(lambda: requests.completed() == 1, 200_000, "the QP with one")
    assert len(peer.packets) == 40 and most == packets
    in_flight = (await bench.command("qp_send", CONGESTION_INDEX + 4, None, 16))[Row.IN_FLIGHT]
    assert in_flight == 0, "nothing is outstanding"
    assert await bench.command("qp_send", CONGESTION_INDEX + 7, [0] * 16) is not None
    peer.fate = lambda packet: "ok"
    peer.expected = requests.psn
    await requests.post(20 * MTU)
    await bench.quiet()
    assert not bench.errors
