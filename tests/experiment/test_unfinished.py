"""The watchdog: every flow that does not finish is named with what it waits for.

Sweep: nothing posted yet, nothing sent, a packet that never arrives, windows that are full, a completion that
    is missing, a flow that was given up, a limit that is too short, a finished run.
Stimulus: the small experiment on golden models and on a NIC that never retransmits, with faults.
Checks: stage and words, the packet that `mrc why` takes, the terminal, the report, and run.json.
Timing: simulated.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiment.fake_nic import fake_nic
from experiment.runs import run_small
from mrc_host.experiment.nics import NicFactory, NicKinds
from mrc_host.experiment.summary import print_summary
from mrc_host.life.story import why
from mrc_host.results import Run

MODEL = NicKinds.parse("model")


def waiting(path: Path, *settings: str, factory: NicFactory = MODEL) -> list[dict[str, Any]]:
    run_small(path, *settings, factory=factory)
    found: list[dict[str, Any]] = json.loads((path / "run.json").read_text())["unfinished"]
    return found


def test_a_packet_that_never_arrives_is_named(tmp_path: Path) -> None:
    lost = "faults=[{kind: blackhole, plane: 2, from_us: 3, traffic: data}]"
    flows = waiting(tmp_path / "run", lost, factory=fake_nic)
    assert [flow["flow"] for flow in flows] == ["h0→h2", "h1→h3", "h2→h0", "h3→h1"]
    assert {flow["stage"] for flow in flows} == {"arriving"}
    first = flows[0]
    assert f"packet {first['psn']:#08x} to arrive: sent once, last at" in first["waits_for"]
    assert "on plane 2 with EV 0x" in first["waits_for"]
    life = why(Run(tmp_path / "run"), f"h0:{first['qp']}", first["psn"], factory=fake_nic)
    assert life.delivered_ps is None
    page = (tmp_path / "run" / "report.html").read_text()
    assert "waits for packet" in page


def test_a_time_that_has_not_come(tmp_path: Path) -> None:
    messages = "{source: 0, target: 1, bytes: 1000}, {source: 0, target: 1, bytes: 1000, at_us: 900}"
    flows = waiting(
        tmp_path / "run",
        f"workload={{kind: messages, messages: [{messages}]}}",
        "limits.simulated_time_us=100",
    )
    assert [(flow["completed"], flow["message"], flow["stage"]) for flow in flows] == [(1, 1, "posting")]
    assert flows[0]["waits_for"] == "its time: message 1 may be posted 900 µs after the start"


def test_a_sender_that_cannot_send_says_why(tmp_path: Path) -> None:
    flows = waiting(
        tmp_path / "run",
        "faults=[{kind: blackhole, plane: [0, 1, 2, 3], from_us: 0, traffic: acks}]",
        "workload.bytes_per_nic=4194304",
        "workload.message_bytes=1048576",
        "limits.simulated_time_us=1500",
    )
    stages = {flow["stage"] for flow in flows}
    assert stages <= {"sending", "acknowledging", "completing"}
    sending = next(flow for flow in flows if flow["stage"] == "sending")
    assert "no answer of h2 ever arrived" in sending["waits_for"]
    assert "windows are full or it has no path" in sending["waits_for"]


def test_a_completion_that_is_missing(tmp_path: Path) -> None:
    flows = waiting(
        tmp_path / "run",
        "workload.bytes_per_nic=16384",
        "workload.message_bytes=16384",
        "faults=[{kind: blackhole, plane: [0, 1, 2, 3], traffic: acks}]",
        "limits.simulated_time_us=200",
    )
    assert {flow["stage"] for flow in flows} == {"acknowledging"}
    assert flows[0]["waits_for"].startswith("the sender's completion (transport ACK): all 4 packets")


def test_a_flow_that_was_given_up_names_the_reason(tmp_path: Path) -> None:
    flows = waiting(
        tmp_path / "run",
        "faults=[{kind: blackhole, plane: [0, 1, 2, 3], from_us: 2}]",
        "qp.timeout_exponent=4",
        "qp.linear_retries=1",
        "qp.exponential_retries=0",
    )
    given_up = [flow for flow in flows if flow["stage"] == "given up"]
    assert given_up
    assert "retry exceeded" in given_up[0]["waits_for"]


def test_the_terminal_names_flows_and_the_command_that_tells_more(tmp_path: Path) -> None:
    lost = "faults=[{kind: blackhole, plane: 2, from_us: 3, traffic: data}]"
    result = run_small(tmp_path / "run", lost, factory=fake_nic)
    text = io.StringIO()
    print_summary(result, Console(file=text, width=300))
    lines = text.getvalue().splitlines()
    assert sum(" messages, waits for packet " in line for line in lines) == 4
    assert lines[-1].startswith(f"mrc why {tmp_path / 'run'} --qp h0:0x100 --psn 0x")


def test_a_finished_run_names_none(tmp_path: Path) -> None:
    assert run_small(tmp_path / "run", factory=fake_nic).complete
    assert "unfinished" not in json.loads((tmp_path / "run" / "run.json").read_text())


@pytest.mark.parametrize("limit", [2, 12])
def test_a_limit_that_is_too_short_is_told_from_a_loss(tmp_path: Path, limit: int) -> None:
    flows = waiting(tmp_path / "run", f"limits.simulated_time_us={limit}")
    assert len(flows) == 4
    assert {flow["stage"] for flow in flows} <= {"sending", "arriving", "completing", "acknowledging"}
