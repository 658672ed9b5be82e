"""Every kind of fault through whole runs on golden models: what it does to them, and that they get over it.

Sweep: all kinds of faults, one run each, and one undisturbed.
Stimulus: the quickstart with 1 MiB for each NIC; most faults end early enough for paths to be taken back.
Checks: every byte, completions at both ends, what the fault met; then what only that kind does, in metrics,
    counters, EV events and the packets on the wire.
Timing: simulated; the limit of simulated time bounds every run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiment.runs import QUICKSTART
from mrc_host.experiment import testbed as setup
from mrc_host.experiment.load import load_experiment
from mrc_host.experiment.nics import NicKinds
from mrc_host.experiment.runner import run_experiment
from mrc_host.fabric.faults import FAULTS
from mrc_host.nic.device import EvEvent, EvState
from mrc_rtl import wire

BYTES = 1 << 20
US = 1_000_000
SETTINGS = (
    f"workload.bytes_per_nic={BYTES}",
    # Without ECN, queues push the paths of a plane further apart than the fixed window of the quickstart.
    "nic.model.reorder_adaptation=true",
    "limits.simulated_time_us=5000",
    "criteria=[{metric: bytes_mismatched, equals: 0, source: test}]",
)
EVENTS = 4096


@dataclass
class Ran:
    """A finished run: metrics by name, port counters of all NICs, EV events by host, packets, faults."""

    metrics: dict[str, Any]
    ports: list[dict[str, int]]
    events: list[list[EvEvent]]
    packets: dict[str, np.ndarray]
    faults: list[dict[str, Any]]
    start_ps: int

    def port_sum(self, name: str) -> int:
        """Sum of a counter over all ports."""
        return sum(port[name] for port in self.ports)

    def sent(self, **wanted: int) -> np.ndarray:
        """Times in µs after the start at which data packets with given fields were sent."""
        chosen = (self.packets["arrived"] == 0) & (self.packets["data"] == 1)
        for name, value in wanted.items():
            chosen &= self.packets[name] == value
        return (self.packets["time_ps"][chosen] - self.start_ps) / US

    def bad_and_back(self) -> tuple[set[int], set[int]]:
        """Values on the wire that went bad, and those among them whose last change was to be taken back."""
        last: dict[tuple[int, int, int], EvState] = {}
        for host, events in enumerate(self.events):
            for event in events:
                last[host, event.qp_number, event.wire_value] = event.state
        back = {value for (_, _, value), state in last.items() if state is EvState.GOOD}
        stuck = {value for (_, _, value), state in last.items() if state is not EvState.GOOD}
        return {value for _, _, value in last}, back - stuck


def run(out: Path, *settings: str) -> Ran:
    """Run on models and check what must hold whatever goes wrong."""
    beds: list[setup.Testbed] = []

    def prepare(testbed: setup.Testbed) -> None:
        beds.append(testbed)
        for host in testbed.hosts:
            host.context.open_notices(EVENTS)

    experiment = load_experiment(QUICKSTART, [*SETTINGS, *settings])
    result = run_experiment(experiment, out=out, nic_factory=NicKinds(("model",)), prepare=prepare)
    assert (result.verdict, result.complete) == ("PASS", True)
    metrics = {name: metric.value for name, metric in result.metrics.items()}
    assert metrics["bytes_verified"] == 4 * BYTES and metrics["messages_completed"] == 4 * BYTES // 65536
    table = pq.read_table(out / "packets.parquet")
    packets = {name: table[name].to_numpy() for name in table.column_names}
    counters = json.loads((out / "counters.json").read_text())
    return Ran(
        metrics,
        [port for nic in counters["nics"] for port in nic["ports"]],
        [host.context.poll_ev_events(EVENTS) for host in beds[0].hosts],
        packets,
        json.loads((out / "faults.json").read_text()),
        int(packets["time_ps"].min()),
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The same run without a fault."""
    ran = run(tmp_path_factory.mktemp("faults") / "none")
    assert ran.metrics["packets_lost"] == ran.metrics["retransmissions_loss"] == 0
    assert not any(ran.events)
    return ran


def uplink_of(value: int) -> tuple[int, int]:
    fields = wire.EV.unpack(value)
    return fields["plane"], fields["uplink"]


# -- what belongs to each kind ---------------------------------------------------------------------------


def lost_and_sent_again(ran: Ran, plain: Ran) -> None:
    """Packets were lost without a sign, and sent again; hardly any for nothing: W adapts to the skew of
    queues behind a fault after a few for each queue pair.
    """
    assert ran.metrics["packets_lost"] >= ran.metrics["retransmissions_loss"] > 0
    assert ran.metrics["retransmissions_trim"] == 0
    assert ran.metrics["retransmissions_spurious"] <= 4 * 6


def check_bit_errors(ran: Ran, plain: Ran) -> None:
    assert ran.port_sum("drop_icrc") == ran.faults[0]["hit"] == ran.metrics["packets_lost"]
    # The packet log sees them arrive, so it counts what replaces them as spurious.
    again = ran.metrics["retransmissions_loss"] + ran.metrics["retransmissions_spurious"]
    assert again >= ran.metrics["packets_lost"] > 0


def check_blackhole(ran: Ran, plain: Ran) -> None:
    lost_and_sent_again(ran, plain)
    bad, back = ran.bad_and_back()
    assert {value for value in bad if uplink_of(value) == (1, 1)}
    assert {uplink_of(value)[0] for value in bad} == {1} and back == bad, (
        "blamed by the skew of queues at most"
    )
    assert ran.sent(plane=1).max() > 200, "the plane is used to the end"


def check_burst_loss(ran: Ran, plain: Ran) -> None:
    lost_and_sent_again(ran, plain)
    # Losses stand in rows: of the packets that host 2 sent in a row on a plane, neighbours are lost.
    packets = ran.packets
    data = packets["data"] == 1
    there = data & (packets["arrived"] == 1) & (packets["source"] == 2)
    arrived = set(zip(packets["psn"][there], packets["retransmission"][there], strict=True))
    neighbours = total = 0
    for plane in range(4):
        left = data & (packets["arrived"] == 0) & (packets["nic"] == 2) & (packets["plane"] == plane)
        keys = zip(packets["psn"][left], packets["retransmission"][left], strict=True)
        gone = [key not in arrived for key in keys]
        total += sum(gone)
        neighbours += sum(a and b for a, b in zip(gone, gone[1:], strict=False))
    assert total > 0 and neighbours / total > 0.3


def check_delay(ran: Ran, plain: Ran) -> None:
    assert ran.metrics["out_of_order_depth_max"] > plain.metrics["out_of_order_depth_max"]
    assert ran.metrics["packets_lost"] == ran.metrics["retransmissions_loss"] == 0


def check_down(ran: Ran, plain: Ran) -> None:
    assert ran.faults[0]["signals"] == 2
    for nic in (0, 2):  # the host itself, and its peer, which it tells
        times = ran.sent(nic=nic, plane=0)
        assert not ((times > 60) & (times < 150)).any() and times.max() > 200
    requests = ran.packets["opcode"] == wire.Opcode.ENDPOINT_REQUEST
    assert (requests & (ran.packets["arrived"] == 1) & (ran.packets["source"] == 0)).any()


def check_duplicate(ran: Ran, plain: Ran) -> None:
    again = ran.metrics["retransmissions_spurious"]
    assert ran.port_sum("duplicate") == ran.faults[0]["hit"] + again
    assert ran.metrics["packets_lost"] == ran.metrics["retransmissions_loss"] == 0
    assert again <= 4, "only by the queues that copies make"


def check_flap(ran: Ran, plain: Ran) -> None:
    lost_and_sent_again(ran, plain)
    bad, back = ran.bad_and_back()
    assert bad and {uplink_of(value)[0] for value in bad} == {0} and back
    assert not {value for value in bad if uplink_of(value)[0] != 0}


def check_mark(ran: Ran, plain: Ran) -> None:
    assert ran.metrics["frames_marked"] > 0 and ran.metrics["packets_lost"] == 0
    # A marked value is left out for a turn: the plane gets less than the others.
    assert ran.metrics["plane_imbalance_packets"] > 4 and not any(ran.events)
    assert len(ran.sent(plane=2)) < 0.97 * len(ran.sent(plane=3))


def check_random_loss(ran: Ran, plain: Ran) -> None:
    lost_and_sent_again(ran, plain)
    bad, back = ran.bad_and_back()
    assert 0xC0010000 in bad and bad == back
    assert {uplink_of(value)[0] for value in bad} == {0}


def check_reboot(ran: Ran, plain: Ran) -> None:
    assert ran.faults[0]["signals"] == 4 and ran.metrics["packets_lost"] > 0
    for nic in range(4):
        times = ran.sent(nic=nic, plane=1)
        assert not ((times > 80) & (times < 120)).any() and times.max() > 200


def check_reorder(ran: Ran, plain: Ran) -> None:
    assert ran.metrics["out_of_order_fraction"] > plain.metrics["out_of_order_fraction"]
    assert ran.metrics["packets_lost"] == 0 and ran.metrics["retransmissions_loss"] == 0
    assert ran.metrics["retransmissions_spurious"] > 0, "held back for longer than the reorder window"
    assert ran.bad_and_back()[0] == ran.bad_and_back()[1], "blame is undone when the original arrives"


def check_skew(ran: Ran, plain: Ran) -> None:
    assert ran.metrics["out_of_order_depth_max"] > plain.metrics["out_of_order_depth_max"]
    assert ran.metrics["packets_lost"] == ran.metrics["retransmissions_spurious"] == 0


def check_slow(ran: Ran, plain: Ran) -> None:
    assert ran.metrics["goodput_over_bound"] < 0.9 * plain.metrics["goodput_over_bound"]
    assert ran.metrics["packets_lost"] == ran.metrics["retransmissions_spurious"] == 0
    assert not any(ran.events), "slow is not bad"


def check_trim_storm(ran: Ran, plain: Ran) -> None:
    assert ran.metrics["frames_trimmed"] == ran.faults[0]["hit"] == ran.port_sum("trimmed_answered")
    assert ran.metrics["retransmissions_trim"] == ran.metrics["frames_trimmed"]
    assert ran.metrics["retransmissions_loss"] == 0 and not any(ran.events), "a trim is no loss"


Check = Callable[[Ran, Ran], None]
CASES: dict[str, tuple[str, Check]] = {
    "bit_errors": ("plane: 1, bit_error_rate: 2.0e-6, traffic: data", check_bit_errors),
    "blackhole": ("link: p1.t0.1-p1.t1.1, from_us: 20, to_us: 60", check_blackhole),
    "burst_loss": (
        'link: "h2-*", direction: up, traffic: data, loss: 0.05, burst_packets: 3',
        check_burst_loss,
    ),
    "delay": ("plane: 3, delay_ns: 8000", check_delay),
    "down": ("port: h0.p0, from_us: 20, to_us: 160, signal: true", check_down),
    "duplicate": ("plane: [0, 1], traffic: data, probability: 0.3, delay_ns: 800", check_duplicate),
    "flap": ("link: h1-p0.t0.1, period_us: 40, down_us: 6, from_us: 20, to_us: 70", check_flap),
    "mark": ("plane: 2, share: 0.1", check_mark),
    "random_loss": ("ev: 0xc0010000, traffic: data, probability: 0.5, to_us: 60", check_random_loss),
    "reboot": ("switch: p1.t0.1, from_us: 20, to_us: 130", check_reboot),
    "reorder": ("plane: [0, 1, 2, 3], traffic: data, probability: 0.05, delay_ns: 40000", check_reorder),
    "skew": ("plane: [0, 1, 2, 3], spread_ns: 8000", check_skew),
    "slow": ('link: "p0.t0.*-p0.t1.*", rate_share: 0.5', check_slow),
    "trim_storm": ("plane: 2, share: 0.1, to_us: 150", check_trim_storm),
}


def test_every_kind_has_its_case() -> None:
    assert sorted(CASES) == sorted(FAULTS)


@pytest.mark.parametrize("kind", CASES)
def test_models_get_over_it_and_show_it(tmp_path: Path, undisturbed: Ran, kind: str) -> None:
    fields, check = CASES[kind]
    settings = [f"faults=[{{kind: {kind}, {fields}}}]"]
    if kind == "trim_storm":
        settings.append("fabric.trimming={size_bytes: 128}")
    ran = run(tmp_path / "run", *settings)
    [fault] = ran.faults
    assert fault["met"] > 0 and fault["hit"] > 0
    check(ran, undisturbed)
