"""The gateware's receive side against the golden model, decision by decision.

Sweep: MRC_SCENARIOS random scenarios (20 unless said otherwise). Each draws message sizes, memory latency and
    how often packets of either direction are dropped, duplicated, delayed, cut, marked or damaged.
Stimulus: two hosts exchange messages in both directions through one T0; a tap acts on every packet.
Checks: `mrc_host.model.replay` finds that the model decides the same about every packet and answers the same,
    byte for byte; every byte arrived. A planted difference is found, with record and both states in the text.
Timing: the quickstart engine with its trace stream; every run is bounded in simulated time.
"""

import os
import random
from dataclasses import replace

import pytest
from exchange import CONFIG, MAC, MICROSECOND, TWO_HOSTS, Bed

from mrc_host.model.replay import ReceiveReplay
from mrc_host.model.replay_answers import Divergence
from mrc_host.nic.recorded import RecordedNic
from mrc_host.packets.peek import peek
from mrc_host.packets.trim import trim
from mrc_rtl.records import TraceKind
from mrc_rtl.wire import TRIM_SIZES, Opcode, has_payload

SCENARIOS = int(os.environ.get("MRC_SCENARIOS", "20"))
TRACED = replace(CONFIG, trace=True)
ACTIONS = ("drop", "double", "delay", "cut", "mark", "damage")


class Mischief:
    """A tap that does something to some of the packets."""

    def __init__(self, draw):
        self.draw = draw
        total = draw.choice((0.0, 0.1, 0.3))
        shares = [draw.random() for _ in ACTIONS]
        self.weights = [total * share / sum(shares) for share in shares]
        self.done = dict.fromkeys(ACTIONS, 0)

    def __call__(self, direction, time_ps, frame):
        draw = self.draw
        action = draw.choices((*ACTIONS, None), (*self.weights, 1 - sum(self.weights)))[0]
        if action is None or (action == "cut" and not has_payload(peek(frame).opcode)):
            return None
        self.done[action] += 1
        if action == "drop":
            return []
        if action == "double":
            return [(0, frame), (draw.randrange(40 * MICROSECOND), frame)]
        if action == "delay":
            return [(draw.randrange(20 * MICROSECOND), frame)]
        if action == "cut":
            return [(0, trim(frame, draw.choice(TRIM_SIZES), draw.random() < 0.5, draw.random() < 0.5))]
        changed = bytearray(frame)
        if action == "mark":
            changed[15] |= 0x30  # CE in the outer traffic class
        else:
            changed[draw.randrange(40, len(frame))] ^= 1 << draw.randrange(8)
        return [(0, bytes(changed))]


def scenario(seed):
    """Run a scenario; return bed and tap."""
    draw = random.Random(seed)
    sizes = [draw.choice((1, 3, 100, 4095, 4096, 4097, 9000, 30_000)) for _ in range(draw.randint(4, 12))]
    memory = {
        "latency_jitter": draw.choice((0, 10, 200)), "stall_share": draw.choice((0.0, 0.05, 0.3)),
        "write_latency": draw.choice((4, 30, 300)),
    }  # fmt: skip
    bed = Bed(
        TWO_HOSTS, [(0, 1)], timeout=draw.choice((5, 6)), config=TRACED, wrap=RecordedNic,
        memory=memory, sizes=sizes, seed=seed,
    )  # fmt: skip
    tap = Mischief(draw)
    bed.fabric.tap("h*.p*>*", tap)
    assert bed.run(limit_us=200_000, drain_ps=1000 * MICROSECOND).finished
    return bed, tap


def replays(bed):
    return [ReceiveReplay(item.context.nic, MAC) for item in bed.applications]


@pytest.mark.parametrize("seed", range(SCENARIOS))
def test_the_model_decides_as_the_gateware_did(seed):
    bed, _ = scenario(seed)
    for item, replay in zip(bed.applications, replays(bed)):
        item.check()
        result = replay.run()
        assert result.placed >= len(item.sizes)
        assert result.answers >= 1


def test_scenarios_meet_every_kind_of_decision():
    done = dict.fromkeys(ACTIONS, 0)
    outcomes = {}
    for seed in range(8):
        bed, tap = scenario(seed)
        for name, count in tap.done.items():
            done[name] += count
        for replay in replays(bed):
            for name, count in replay.run().outcomes.items():
                outcomes[name] = outcomes.get(name, 0) + count
    assert min(done.values()) >= 3, done
    assert {"ACCEPTED", "DUPLICATE", "TRIMMED_ANSWERED", "CONTROL"} <= outcomes.keys(), outcomes


def answered(bed, opcode):
    """Position of the first frame of a kind that the first host sent."""
    sent = bed.applications[0].context.nic.sent
    return next(index for index, frame in enumerate(sent) if peek(frame.data).opcode == opcode)


class TestPlantedDifferences:
    @pytest.fixture
    def bed(self):
        bed = Bed(TWO_HOSTS, [(0, 1)], config=TRACED, wrap=RecordedNic, sizes=[5000, 70, 20_000])
        assert bed.run(drain_ps=100 * MICROSECOND).finished
        return bed

    def test_an_outcome(self, bed):
        trace = bed.applications[0].context.nic.trace
        at = next(index for index, record in enumerate(trace) if record.kind == TraceKind.ADMIT)
        trace[at] = trace[at]._replace(detail=trace[at].detail & ~0xFF | 2)
        with pytest.raises(
            Divergence, match=rf"record {at} \(ADMIT .*gateware DUPLICATE, model ACCEPTED; model: "
        ):
            replays(bed)[0].run()

    def test_a_state(self, bed):
        trace = bed.applications[0].context.nic.trace
        at = next(index for index, record in enumerate(trace) if record.kind == TraceKind.PLACE)
        trace[at] = trace[at]._replace(detail=trace[at].detail + 1)
        with pytest.raises(Divergence, match=rf"record {at} \(PLACE .*expected PSN: gateware 0x.* model 0x"):
            replays(bed)[0].run()

    def test_a_field_of_an_answer(self, bed):
        sent = bed.applications[0].context.nic.sent
        at = answered(bed, Opcode.SACK)
        frame = bytearray(sent[at].data)
        frame[-5] ^= 1  # rcvd_bytes
        sent[at] = sent[at]._replace(data=bytes(frame))
        with pytest.raises(Divergence, match=r"SACK .*cc_state.rcvd_bytes: gateware 0x.*, model 0x"):
            replays(bed)[0].run()

    def test_an_answer_that_is_missing(self, bed):
        del bed.applications[0].context.nic.sent[answered(bed, Opcode.SACK)]
        with pytest.raises(
            Divergence, match="the model answers QP 0 .* by SACK on plane .* the gateware does not"
        ):
            replays(bed)[0].run()

    def test_an_answer_too_many(self, bed):
        sent = bed.applications[0].context.nic.sent
        sent.append(sent[answered(bed, Opcode.SACK)])
        with pytest.raises(Divergence, match="the gateware sent SACK .* the model does not"):
            replays(bed)[0].run()
