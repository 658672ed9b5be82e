"""When packets are answered, and by what.

Sweep: 1, 2, 3 and 8 planes; thresholds from below one packet to 64 KiB; every kind of trigger.
Stimulus: random reports of several QPs against a model of the rules, planes that stop coming, a control
stream that does not move, a tracker that answers after a random time with random states.
Checks: exactly the triggers of the model; echoes cover all planes in use; plain triggers give way to others
in a crowded queue and every loss is counted; each field of SACK, NACK, transport ACK and NAK; the tracker
never waits. Timing: at most 16 cycles for a SACK with a tracker that takes 9; every wait is bounded.
"""

import random

import pytest

from mrc_rtl import wire
from mrc_rtl.config import QP_NUMBER_BASE, NicConfig
from mrc_rtl.records import BODY_BITS, PORT_COUNTERS, AnswerKind, GlobalCounter
from mrc_rtl.responder.sack import SackGenerator
from mrc_rtl.responder.sack_triggers import PLAIN_LIMIT, TRIGGER_QUEUE_DEPTH, SackTriggers
from record_agents import LIMIT, Sink, send, simulate

MASK = (1 << 24) - 1


def configured(planes, mtu=4096):
    return NicConfig(planes=planes, mtu=mtu, receive_buffer_bytes=2 * mtu, loss_inference=True)


class Rules:
    """The rules of one QP in plain Python."""

    def __init__(self, planes, threshold, mtu):
        self.planes, self.threshold = planes, threshold
        self.unit = 1024 if mtu <= 1024 else 1  # bytes in which the tracker counts
        self.count, self.seen, self.last, self.asked, self.ack = 0, set(), 0, False, False
        self.due = 0  # how often the count exceeded the threshold
        self.owed = False

    def take(self, r):
        """Trigger of a report: None, or whether an ACK goes with it."""
        self.seen.add(r["plane"])
        turn = next(
            p for p in ((self.last + d) % self.planes for d in range(1, self.planes + 1)) if p in self.seen
        )
        if not r["duplicate"]:
            self.count += max(1024, r["length"])
        strong = r["marked"] or r["retransmission"] or r["duplicate"] or r["ack_request"]
        strong = strong or (self.asked and (r["drained"] or r["advanced"]))
        self.asked = (self.asked or (r["ack_request"] and not r["duplicate"])) and not r["drained"]
        self.ack = bool(self.ack or r["advanced"] or r["ack_request"] or r["below"])
        is_turn = r["plane"] == turn
        if self.count > self.threshold:
            self.count, self.due = self.count - self.threshold // self.unit * self.unit, self.due + 1
        if not (strong or self.due > 1 or (is_turn and (self.owed or self.due))):
            return None
        ack, self.ack, self.count, self.due = self.ack, False, 0, 0
        if strong:
            return ack
        if is_turn:
            self.last = turn
        elif self.owed:
            self.last = turn
            self.seen.discard(turn)
        self.owed = not is_turn
        return ack


def report(rnd, qp, plane, **fields):
    names = ("marked", "retransmission", "duplicate", "below", "ack_request", "advanced", "drained")
    return {
        "qp": qp, "plane": plane, "psn": rnd.getrandbits(24), "ev": rnd.getrandbits(32),
        "age": rnd.getrandbits(16), "timestamped": 1,
        "length": rnd.randrange(0, 4097), **dict.fromkeys(names, 0), **fields,
    }  # fmt: skip


async def give(ctx, dut, fields):
    """Hand over a report, or a duplicate as a refused packet. Returns the cycles it took."""
    if fields["duplicate"]:
        kind = AnswerKind.SACK_AND_ACK if fields["below"] else AnswerKind.SACK
        return await send(ctx, dut.refused, **fields, kind=kind)
    ctx.set(dut.coming, 1)
    cycles = await send(ctx, dut.report, **fields)
    ctx.set(dut.coming, 0)
    return cycles


@pytest.mark.parametrize(("planes", "mtu"), [(1, 4096), (2, 1024), (3, 4096), (8, 4096)])
def test_triggers_follow_the_rules(planes, mtu):
    config = configured(planes, mtu)
    dut = SackTriggers(config)
    triggers = Sink(dut.trigger)
    rnd = random.Random(planes)
    copied = ("qp", "psn", "plane", "ev", "age", "timestamped", "marked", "retransmission")
    expected = []

    async def bench(ctx):
        for threshold in (500, 4096, 16384):
            ctx.set(dut.settings.sack_threshold, threshold)
            rules = {}
            for qp in (0, 5):
                await send(ctx, dut.init, qp=qp, active=1)
                rules[qp] = Rules(planes, threshold, mtu)
            for step in range(150):
                qp = rnd.choice((0, 5))
                # In the last third one plane does not come any more.
                plane = rnd.randrange(planes) if step < 100 else rnd.randrange(max(1, planes - 1))
                flags = {}
                for name, share in (
                    ("marked", 0.05), ("retransmission", 0.03), ("ack_request", 0.05), ("advanced", 0.1),
                    ("drained", 0.5), ("duplicate", 0.05),
                ):  # fmt: skip
                    flags[name] = int(rnd.random() < share)
                if flags["duplicate"]:
                    flags |= {"below": rnd.getrandbits(1), "advanced": 0, "drained": 0}
                fields = report(rnd, qp, plane, **flags, length=rnd.randrange(mtu + 1))
                ack = rules[qp].take(fields)
                if ack is not None:
                    expected.append(
                        {
                            **{name: fields[name] for name in copied},
                            "kind": AnswerKind.SACK_AND_ACK if ack else AnswerKind.SACK,
                        }
                    )
                assert await give(ctx, dut, fields) <= 3
        for _ in range(4):
            await ctx.tick()
        assert ctx.get(dut.idle)
        assert triggers.records == expected
        assert len(expected) > 100
        assert not refusals

    refusals = []
    simulate(dut, bench, triggers.run, pulses(dut.dropped, refusals))


def pulses(signal, found):
    """Background bench: an entry for each cycle in which the signal is 1."""

    async def bench(ctx):
        while True:
            _, _, value = await ctx.tick().sample(signal)
            if value:
                found.append(value)

    return bench


@pytest.mark.parametrize("planes", [2, 3, 8])
@pytest.mark.parametrize("threshold", [1024, 5000, 10000, 65536])
@pytest.mark.parametrize("order", ["in turn", "random"])
def test_echoes_cover_all_planes(planes, threshold, order):
    config = configured(planes)
    dut = SackTriggers(config)
    triggers = Sink(dut.trigger)
    rnd = random.Random(threshold)
    lengths = 4096
    packets = 4 * planes * (threshold // lengths + 2)

    async def bench(ctx):
        ctx.set(dut.settings.sack_threshold, threshold)
        await send(ctx, dut.init, qp=1, active=1)
        for number in range(packets):
            plane = number % planes if order == "in turn" else rnd.randrange(planes)
            await give(ctx, dut, report(rnd, 1, plane, length=lengths))
        await ctx.tick()
        await ctx.tick()
        echoed = [trigger["plane"] for trigger in triggers.records]
        assert len(echoed) >= 2 * planes
        assert set(echoed) == set(range(planes))
        # Never more often than one in a threshold, on the average.
        assert len(echoed) <= packets * lengths / threshold + 1
        if order == "in turn":
            for start in range(len(echoed) - 3 * planes + 1):
                assert set(echoed[start : start + 3 * planes]) == set(range(planes))

    simulate(dut, bench, triggers.run)


def test_a_crowded_queue():
    config = configured(2)
    dut = SackTriggers(config)
    rnd = random.Random(1)
    refusals = []

    async def bench(ctx):
        ctx.set(dut.settings.sack_threshold, 1)
        await send(ctx, dut.init, qp=2, active=1)
        for _ in range(PLAIN_LIMIT + 12):
            await give(ctx, dut, report(rnd, 2, 0, length=0))
        await ctx.tick()
        assert len(refusals) == 12
        # An endpoint request takes no place that a QP may need.
        await send(ctx, dut.refused, qp=2, kind=AnswerKind.ENDPOINT_RESPONSE)
        await ctx.tick()
        assert len(refusals) == 13
        left = TRIGGER_QUEUE_DEPTH - PLAIN_LIMIT
        for number in range(left + 3):
            kind = ("marked", "retransmission", "ack_request")[number % 3]
            await give(ctx, dut, report(rnd, 2, 0, **{kind: 1}))
        await send(ctx, dut.refused, qp=2, kind=AnswerKind.NACK_TRIMMED)
        await send(ctx, dut.nak, qp=2, kind=AnswerKind.NAK_INVALID_REQUEST)
        await ctx.tick()
        assert len(refusals) == 13 + 3 + 2
        assert not ctx.get(dut.idle)
        ctx.set(dut.trigger.ready, 1)
        given = 0
        for _ in range(40):
            _, _, valid = await ctx.tick().sample(dut.trigger.valid)
            given += valid
        assert given == TRIGGER_QUEUE_DEPTH
        assert ctx.get(dut.idle)

    simulate(dut, bench, pulses(dut.dropped, refusals))


@pytest.mark.parametrize("stream", ["report", "refused"])
def test_reports_and_refused_packets_take_turns(stream):
    """Neither stream waits for more than one packet of the other."""
    config = configured(2)
    dut = SackTriggers(config)
    rnd = random.Random(2)

    async def bench(ctx):
        await send(ctx, dut.init, qp=1, active=1)
        ctx.set(dut.trigger.ready, 1)
        port, other = (dut.report, dut.refused) if stream == "report" else (dut.refused, dut.report)
        ctx.set(dut.coming, 1)
        ctx.set(other.valid, 1)
        for _ in range(10):
            fields = report(rnd, 1, 0)
            assert await send(ctx, port, **fields) <= 6

    simulate(dut, bench)


class Tracker:
    """Answers snapshots after some cycles, without a bitmap at once; checks that it never waits."""

    def __init__(self, dut, states, delays=(1, 10), taking=0.7, seed=1):
        self.dut, self.states, self.delays, self.taking = dut, states, delays, taking
        self.random = random.Random(seed)
        self.asked = []

    async def run(self, ctx):
        dut = self.dut
        while True:
            ctx.set(dut.snapshot.ready, self.random.random() < self.taking)
            _, _, valid, ready, qp, reported = await ctx.tick().sample(
                dut.snapshot.valid, dut.snapshot.ready, dut.snapshot.payload.qp, dut.snapshot.payload.reported
            )
            if not (valid and ready):
                continue
            ctx.set(dut.snapshot.ready, 0)
            self.asked.append((qp, reported))
            for _ in range(self.random.randint(*self.delays) if reported else 0):
                await ctx.tick()
            ctx.set(dut.snapshot_answer.payload, self.states[qp])
            ctx.set(dut.snapshot_answer.valid, 1)
            _, _, taken = await ctx.tick().sample(dut.snapshot_answer.ready)
            assert taken, "the tracker must not wait"
            ctx.set(dut.snapshot_answer.valid, 0)
            ctx.set(dut.snapshot_answer.payload, dict.fromkeys(self.states[qp], 0))


def states_of(config, rnd):
    result = {}
    for qp in range(config.qps):
        cumulative = rnd.getrandbits(24)
        result[qp] = {
            "cumulative_psn": cumulative,
            "base": (cumulative + rnd.randrange(-31, 100)) % (8 * config.mpr_psns),
            "bitmap": rnd.getrandbits(64),
            "ooo_count": rnd.getrandbits(15),
            "received_units": rnd.getrandbits(24),
            "message_number": rnd.getrandbits(24),
            "peer_qpn_low": rnd.getrandbits(16),
        }
    return result


def headers_of(control, *headers):
    bits = sum(header.bits for header in headers)
    assert control["body_words"] * 32 == bits
    value = control["body"] >> (BODY_BITS - bits)
    result = {}
    for header in reversed(headers):
        result[header.name] = header.unpack(value & ((1 << header.bits) - 1))
        value >>= header.bits
    return result


NACKS = tuple(kind for kind in AnswerKind if kind.name.startswith("NACK_"))
NAKS = tuple(kind for kind in AnswerKind if kind.name.startswith("NAK_"))
CODES = {
    **{kind: wire.NackReason[kind.name.removeprefix("NACK_")] for kind in NACKS},
    AnswerKind.NAK_PSN_SEQUENCE: wire.AethSyndrome.NAK_PSN_SEQUENCE,
    AnswerKind.NAK_INVALID_REQUEST: wire.AethSyndrome.NAK_INVALID_REQUEST,
    AnswerKind.NAK_REMOTE_ACCESS: wire.AethSyndrome.NAK_REMOTE_ACCESS,
    AnswerKind.NAK_REMOTE_OPERATIONAL: wire.AethSyndrome.NAK_REMOTE_OPERATIONAL,
}


def signed(value, bits=24):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


@pytest.mark.parametrize("stall", [0.0, 0.7])
def test_content(stall):
    config = configured(3)
    dut = SackGenerator(config)
    rnd = random.Random(8)
    states = states_of(config, rnd)
    tracker = Tracker(dut, states)
    controls, counters = Sink(dut.control, stall), Sink(dut.counter, stall)
    now = 0x1234_5678_9ABC

    async def bench(ctx):
        ctx.set(dut.now, now)
        ctx.set(dut.settings.sack_threshold, 100)
        ticks = (now >> 16) & 0xFFFF
        for qp in range(config.qps):
            await send(ctx, dut.init, qp=qp, active=1)
        expected = []
        for step in range(80):
            qp, plane = rnd.randrange(config.qps), rnd.randrange(3)
            state = states[qp]
            kind = rnd.choice(["sack", "ack", "nack", "nak", "probe", "endpoint", "question"])
            psn = (state["cumulative_psn"] + rnd.randrange(-200, 200)) & MASK
            if step == 7:
                kind, psn = "sack", (state["cumulative_psn"] - (1 << 20)) & MASK
            fields = report(rnd, qp, plane, psn=psn, timestamped=rnd.getrandbits(1))
            reflected = (fields["age"] + ticks) & 0xFFFF
            if not fields["timestamped"]:
                reflected = 0
            if kind in ("sack", "ack"):
                fields |= {
                    "duplicate": 1,
                    "below": int(kind == "ack"),
                    "marked": rnd.getrandbits(1),
                    "retransmission": rnd.getrandbits(1),
                }
                await give(ctx, dut, fields)
            elif kind == "question":
                fields["number"], reflected = rnd.getrandbits(16), ticks
                await send(ctx, dut.tail_probe, qp=qp, plane=plane, number=fields["number"])
            elif kind in ("probe", "endpoint"):
                fields["marked"] = rnd.getrandbits(1)
                if kind == "probe":
                    fields |= {"kind": AnswerKind.SACK_OF_PROBE, "psn": rnd.getrandbits(16)}
                else:
                    fields |= {"kind": AnswerKind.ENDPOINT_RESPONSE, "retransmission": rnd.getrandbits(1)}
                await send(ctx, dut.refused, **fields)
            else:
                answer = rnd.choice(NACKS if kind == "nack" else NAKS)
                fields["kind"], fields["code"] = answer, CODES[answer]
                if answer == AnswerKind.NAK_REMOTE_OPERATIONAL and rnd.randrange(2):
                    ctx.set(dut.coming, 1)
                    await send(ctx, dut.report, **fields, failed=1)
                    ctx.set(dut.coming, 0)
                else:
                    await send(
                        ctx, rnd.choice((dut.refused, dut.nak)) if kind == "nak" else dut.refused, **fields
                    )
            expected.append((kind, fields, reflected))
            for _ in range(60):
                await ctx.tick()
            for _ in range(LIMIT):
                if ctx.get(dut.idle):
                    break
                await ctx.tick()
        await ctx.tick()
        got = iter(controls.records)
        counts = dict.fromkeys(GlobalCounter, 0)
        for kind, fields, reflected in expected:
            control, state = next(got), states[fields["qp"]]
            cumulative = state["cumulative_psn"]
            ids = {"spdcid": QP_NUMBER_BASE + fields["qp"], "dpdcid": state["peer_qpn_low"]}
            assert (control["qp"], control["plane"]) == (fields["qp"], fields["plane"])
            if kind == "question":
                assert (control["opcode"], control["psn"]) == (wire.Opcode.PROBE, 0)
                assert control["retransmission"] == 0
                assert headers_of(control, wire.PETH)["peth"] == {
                    **dict.fromkeys((field.name for field in wire.PETH.fields), 0),
                    "probe_id": fields["number"], **ids, "tx_timestamp": reflected, "ftype": 1,
                }  # fmt: skip
            elif kind == "endpoint":
                assert (control["opcode"], control["psn"]) == (wire.Opcode.ENDPOINT_RESPONSE, fields["psn"])
                assert control["retransmission"] == 0
                assert headers_of(control, wire.EETH)["eeth"] == {
                    **dict.fromkeys((field.name for field in wire.EETH.fields), 0),
                    "op": fields["retransmission"] << 1 | fields["marked"], "tx_timestamp": reflected,
                }  # fmt: skip
            elif kind in ("sack", "ack", "probe"):
                counts[GlobalCounter.SACK_SENT] += 1
                assert (control["opcode"], control["psn"]) == (wire.Opcode.SACK, cumulative)
                assert control["retransmission"] == fields["retransmission"]
                parts = headers_of(control, wire.SETH, wire.CC_STATE)
                offset = max(signed(fields["psn"] - cumulative), -0x8000)
                if kind == "probe":
                    offset = signed(fields["psn"], 16)
                assert parts["seth"] == {
                    "type": 0, "nxt": 0, "m": fields["marked"], "reserved0": 0, "pr": int(kind == "probe"),
                    "reserved1": 0,
                    "ack_psn_offset": offset, "entropy": fields["ev"], **ids, "reserved2": 0,
                    "cack_psn": cumulative, "cc_type": 0, "cc_fl": 0, "mpr": config.mpr_psns // 128,
                    "sack_offset": signed(state["base"] - cumulative, 10), "sack_bitmap": state["bitmap"],
                }  # fmt: skip
                assert parts["cc_state"] == {
                    "tx_timestamp": reflected, "reserved": 0, "ooo_count": state["ooo_count"],
                    "restore_cwnd": 0, "rcv_cwnd_pen": 0, "rcvd_bytes": state["received_units"],
                }  # fmt: skip
                if kind == "ack":
                    counts[GlobalCounter.ACK_SENT] += 1
                    control = next(got)
                    assert (control["qp"], control["plane"]) == (fields["qp"], fields["plane"])
                    assert (control["opcode"], control["psn"]) == (wire.Opcode.ACKNOWLEDGE, cumulative)
                    assert control["retransmission"] == 0
                    aeth = headers_of(control, wire.AETH)["aeth"]
                    assert aeth == {"syndrome": 0x1F, "msn": state["message_number"]}
            elif kind == "nack":
                counts[GlobalCounter.NACK_SENT] += 1
                assert (control["opcode"], control["psn"]) == (wire.Opcode.NACK, fields["psn"])
                neth = headers_of(control, wire.NETH)["neth"]
                assert neth == {
                    "type": 0, "nxt": 0, "reserved0": 0, "nack_reason": fields["code"], "vendor_info": 0,
                    "entropy": fields["ev"], **ids, "reserved1": 0, "nack_psn": fields["psn"], "cc_type": 2,
                    "cc_fl": 0, "reserved2": 0, "tx_timestamp": reflected,
                }  # fmt: skip
            else:
                counts[GlobalCounter.NAK_SENT] += 1
                assert (control["opcode"], control["psn"]) == (wire.Opcode.ACKNOWLEDGE, fields["psn"])
                aeth = headers_of(control, wire.AETH)["aeth"]
                assert aeth == {"syndrome": fields["code"], "msn": state["message_number"]}
        assert next(got, None) is None
        asked = []
        for kind, fields, _ in expected:
            asked.append((fields["qp"], int(kind in ("sack", "ack", "probe"))))
            asked += [(fields["qp"], 0)] * (kind == "ack")
        assert tracker.asked == asked
        seen = dict.fromkeys(GlobalCounter, 0)
        for record in counters.records:
            seen[GlobalCounter(record["index"] - 3 * PORT_COUNTERS)] += 1
        assert seen == counts

    simulate(dut, bench, tracker.run, controls.run, counters.run)


def test_lost_triggers_are_counted_while_the_counters_are_busy():
    config = configured(2)
    dut = SackGenerator(config)
    rnd = random.Random(9)
    tracker = Tracker(dut, states_of(config, rnd))
    controls, counters = Sink(dut.control), Sink(dut.counter, 0.8)
    reports = 2 * TRIGGER_QUEUE_DEPTH

    async def bench(ctx):
        await send(ctx, dut.init, qp=2, active=1)
        for number in range(reports):
            if number % 3 == 0:
                await send(ctx, dut.refused, **report(rnd, 2, 0), kind=AnswerKind.NACK_TRIMMED)
            else:
                await give(ctx, dut, report(rnd, 2, 0, marked=1))
        for _ in range(LIMIT):
            if ctx.get(dut.idle):
                break
            await ctx.tick()
        for _ in range(200):
            await ctx.tick()
        seen = [GlobalCounter(record["index"] - 2 * PORT_COUNTERS) for record in counters.records]
        sent = seen.count(GlobalCounter.SACK_SENT) + seen.count(GlobalCounter.NACK_SENT)
        assert sent == sum(record["opcode"] != wire.Opcode.ACKNOWLEDGE for record in controls.records)
        assert seen.count(GlobalCounter.SACK_TRIGGERS_DROPPED) == reports - sent > 0

    simulate(dut, bench, tracker.run, controls.run, counters.run)


def test_rate():
    config = configured(2)
    dut = SackGenerator(config)
    rnd = random.Random(3)
    tracker = Tracker(dut, states_of(config, rnd), delays=(8, 8), taking=1)
    controls, counters = Sink(dut.control), Sink(dut.counter)

    async def bench(ctx):
        await send(ctx, dut.init, qp=4, active=1)
        for _ in range(12):
            await give(ctx, dut, report(rnd, 4, 0, ack_request=1))
        for _ in range(12 * 20):
            await ctx.tick()
        assert len(controls.records) == 24
        sacks = [c for c, r in zip(controls.cycles, controls.records, strict=True) if r["opcode"] == 0xDC]
        assert max(b - a for a, b in zip(sacks, sacks[1:], strict=False)) <= 16

    simulate(dut, bench, tracker.run, controls.run, counters.run)
