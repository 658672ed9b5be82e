"""The life of a packet: found, followed through every queue, with the reasons for what became of it.

Sweep: a packet that is lost, cut, marked, delivered at once; models and a NIC that speaks bytes; carried out
    again and recorded only.
Stimulus: the small experiment with an outage, and an incast with trimming and ECN.
Checks: steps in order of time and of cause, times as recorded, queues, errors.
Timing: none.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from experiment.fake_nic import fake_nic
from experiment.runs import run_small
from mrc_host.cli import mrc
from mrc_host.errors import MrcError
from mrc_host.experiment.nics import NicKinds
from mrc_host.life.find import find_packet
from mrc_host.life.story import Life, why
from mrc_host.results import Run
from mrc_rtl.wire import Opcode

MODEL = NicKinds.parse("model")
INCAST = (
    "workload={kind: pairs, flow_pairs: [[1, 0], [2, 0], [3, 0]]}",
    "workload.bytes_per_nic=262144",
    "workload.message_bytes=65536",
    "fabric.queue_bytes=32768",
    "fabric.trimming={}",
    "fabric.ecn={}",
)
OUTAGE = (
    "faults=[{kind: down, link: p1.t0.1-p1.t1.2, from_us: 12}]",
    "workload.bytes_per_nic=131072",
)


@pytest.fixture(scope="module")
def outage(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run in which a link dies."""
    path = tmp_path_factory.mktemp("outage") / "run"
    run_small(path, *OUTAGE, factory=MODEL)
    return Run(path)


@pytest.fixture(scope="module")
def incast(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run in which three hosts send to one through small queues."""
    path = tmp_path_factory.mktemp("incast") / "run"
    run_small(path, *INCAST, factory=MODEL)
    return Run(path)


def packet_of(run: Run, source: int, **wanted: int) -> int:
    """PSN of the first data packet of a host with given fields."""
    packets = run.columns("packets")
    mask = (packets["data"] == 1) & (packets["source"] == source)
    for name, value in wanted.items():
        mask &= packets[name] == value
    return int(packets["psn"][np.flatnonzero(mask)[0]])


def kinds(life: Life) -> list[str]:
    return [step.kind for step in life.steps]


def test_a_lost_packet_names_link_fault_and_what_followed(outage: Run) -> None:
    psn = packet_of(outage, 0, retransmission=1, arrived=0)
    life = why(outage, "h0:0x100", psn)
    assert life.repeated
    first, second = life.transmissions
    assert first.arrived_ps is None
    assert second.arrived_ps is not None and second.retransmission
    texts = [step.text for step in life.steps]
    lost = next(step for step in life.steps if step.kind == "lost")
    assert "p1.t0.1" in lost.text and lost.text.endswith("down on link p1.t0.1-p1.t1.2")
    order = [
        next(number for number, text in enumerate(texts) if part in text)
        for part in ("doorbell of message", "is lost on the link", "taken for lost", "→ ASSUMED_BAD",
                     "sent again", "admission: accepted", "payload is in memory", "covers all up to")
    ]  # fmt: skip
    assert order == sorted(order)
    assert life.summary.startswith("sent twice, never arrived once, arrived intact ")
    assert (np.diff([step.time_ps for step in life.steps]) >= 0).all()


def test_a_cut_packet_names_the_full_queue_and_its_nack(incast: Run) -> None:
    psn = packet_of(incast, 1, trimmed=1, arrived=1)
    life = why(incast, "h1:256", psn)
    trimmed = next(step for step in life.steps if step.kind == "trimmed")
    copy = life.transmissions[0]
    hop = next(hop for hop in copy.hops if hop.trimmed)
    topology = incast.experiment.topology()
    limit = topology.trim_threshold_bytes(topology.directions[hop.port])
    assert hop.waiting[hop.queue] + hop.size > limit
    assert f"may hold {limit:,} B" in trimmed.text
    assert copy.arrived_trimmed
    nack = next(item for item in life.copies if item.opcode == Opcode.NACK)
    assert nack.sent_ps > copy.arrived_ps
    assert any("TRIMMED_LASTHOP" in step.text for step in life.steps)
    again = life.transmissions[1]
    assert again.sent_ps > nack.arrived_ps
    assert "cut" in life.summary


def test_queues_tell_how_long_a_packet_waited(incast: Run) -> None:
    packets = incast.columns("packets")
    sent = (packets["data"] == 1) & (packets["arrived"] == 0) & (packets["source"] == 2)
    psns = packets["psn"][sent]
    life = why(incast, "h2:256", int(psns[len(psns) // 2]))
    delivered = next(copy for copy in life.transmissions if copy.arrived_ps and not copy.arrived_trimmed)
    assert len(delivered.hops) in (1, 3)
    for hop in delivered.hops:
        assert hop.began_ps is not None
        assert 0 <= hop.began_ps - hop.arrived_ps
        if not sum(hop.waiting):
            # Nothing but the frame in its slot was ahead.
            slot = (delivered.size + 24) * 8 / 6.25 * 1000
            assert hop.began_ps - hop.arrived_ps <= slot


def test_marks_are_seen_where_they_are_made(incast: Run) -> None:
    packets = incast.columns("packets")
    sent = (packets["data"] == 1) & (packets["arrived"] == 0) & (packets["source"] == 3)
    marked = []
    for psn in packets["psn"][sent][20:40]:
        life = why(incast, "h3:256", int(psn))
        marked += [hop for copy in life.transmissions for hop in copy.hops if hop.marked]
    assert marked
    assert all(hop.waiting[hop.queue] > 0 for hop in marked)


def test_the_run_is_not_disturbed_by_being_looked_at(incast: Run) -> None:
    packets = incast.columns("packets")
    arrived = (packets["data"] == 1) & (packets["arrived"] == 1) & (packets["source"] == 1)
    psn = int(packets["psn"][arrived][-1])
    life = why(incast, "h1:256", psn)
    mine = arrived & (packets["psn"] == psn)
    assert [c.arrived_ps for c in life.transmissions if c.arrived_ps] == packets["time_ps"][mine].tolist()


def test_nics_that_speak_bytes_are_followed_as_well(tmp_path: Path) -> None:
    run_small(tmp_path / "run", factory=fake_nic)
    run = Run(tmp_path / "run")
    psn = packet_of(run, 0)
    with pytest.raises(MrcError, match=r"must have NICs that can be made again \(rtl or model\)"):
        why(run, "h0:256", psn)
    life = why(run, "h0:256", psn, factory=fake_nic)
    assert life.repeated
    (copy,) = life.transmissions
    assert len(copy.hops) == 3
    sack = next(item for item in life.copies if item.opcode == Opcode.SACK)
    assert sack.covers and sack.arrived_ps is not None
    assert sack.arrived_ps > copy.arrived_ps


def test_what_was_recorded_is_told_without_another_run(outage: Run) -> None:
    psn = packet_of(outage, 0, retransmission=1, arrived=0)
    life = why(outage, "h0:0x100", psn, again=False)
    assert not life.complete
    assert "waits" not in kinds(life)
    whole = why(outage, "h0:0x100", psn)
    assert [c.sent_ps for c in life.transmissions] == [c.sent_ps for c in whole.transmissions]
    assert life.delivered_ps == whole.delivered_ps


def test_packets_that_do_not_exist_are_refused_with_those_that_do(outage: Run) -> None:
    with pytest.raises(
        MrcError, match=r"qp must name one queue pair that sends: h0:0x100 \(to h2\), h1:0x100"
    ):
        find_packet(outage, "0x100", 1)
    with pytest.raises(MrcError, match=r"qp must be a number such as 0x100, or h0:0x100 .*, got 'first'"):
        find_packet(outage, "first", 1)
    first = packet_of(outage, 0)
    with pytest.raises(MrcError, match=rf"it sent {first:#08x} to 0x[0-9a-f]+\), got {first - 1:#08x}"):
        find_packet(outage, "h0:0x100", first - 1)


def test_messages_are_counted_by_their_first_packets(outage: Run) -> None:
    first = packet_of(outage, 0)
    per_message = 16384 // 4096
    for number in (0, 3, 4, 31):
        assert find_packet(outage, "h0:0x100", first + number & 0xFF_FFFF).message == number // per_message


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(mrc, ["why", *arguments], standalone_mode=False)


def test_the_command_prints_text_and_json(outage: Run) -> None:
    psn = packet_of(outage, 0, retransmission=1, arrived=0)
    result = invoke(str(outage.path), "--qp", "h0:256", "--psn", hex(psn))
    assert result.exception is None
    lines = result.output.splitlines()
    assert lines[0].startswith("WRITE_") and f"PSN {psn:#08x}" in lines[0]
    assert max(map(len, lines)) <= 110
    result = invoke(str(outage.path), "--qp", "h0:256", "--psn", str(psn), "--json", "--recorded")
    document = json.loads(result.output)
    assert document["packet"]["psn"] == psn
    assert not document["complete"]
    assert isinstance(invoke(str(outage.path), "--qp", "h0:256", "--psn", "x").exception, MrcError)
