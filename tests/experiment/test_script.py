"""Messages one by one, and what controllers do: parts of an experiment with exact times.

Sweep: sizes from 0 bytes, both operations, times; EVs denied and ports out of use for a while; first PSNs
    before the end of their range; congestion control.
Stimulus: two hosts in a star, models.
Checks: bytes, times of posts, planes and EVs of packets in the packet log, completions; refusals.
Timing: simulated, exact.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from mrc_host.errors import ConfigError
from mrc_host.experiment.load import parse_experiment, resolved_yaml
from mrc_host.experiment.nics import NicKinds
from mrc_host.experiment.runner import RunResult, run_experiment
from mrc_host.nic.device import VerbsError

MODEL = NicKinds.parse("model")
LATENCY_US = 1.0
EVS = (0xC0010000, 0xC0010001, 0xC1010000, 0xC1010001)


def described(*messages: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """Return an experiment of two hosts with two planes of two EVs."""
    return {
        "name": "scripted",
        "nic": {"engine": "small", "parameters": {"planes": 2, "qps": 2}},
        "fabric": {"hosts": 2, "planes": 2, "rate_gbps": 2},
        "workload": {"kind": "messages", "messages": list(messages)},
        "qp": {"entropy_values": 4},
        "criteria": [{"metric": "bytes_mismatched", "equals": 0, "source": "test"}],
        **sections,
    }


def played(out: Path, *messages: dict[str, Any], **sections: Any) -> RunResult:
    return run_experiment(parse_experiment(described(*messages, **sections)), out=out, nic_factory=MODEL)


def sends(**keys: Any) -> dict[str, Any]:
    return {"source": 0, "target": 1, **keys}


def packets(out: Path) -> list[dict[str, Any]]:
    """Return the data packets that host 0 sent, in order."""
    rows = parquet.read_table(out / "packets.parquet").to_pylist()
    return [row for row in rows if row["nic"] == 0 and row["data"] and not row["arrived"]]


def test_messages_have_their_sizes_and_times(tmp_path: Path) -> None:
    listed = (
        sends(bytes=1000),
        sends(bytes=0, at_us=30),
        {"source": 1, "target": 0, "bytes": 3, "operation": "write", "at_us": 7.5},
        sends(bytes=2500, operation="write", count=2, at_us=20),
    )
    result = played(tmp_path, *listed)
    assert result.verdict == "PASS" and result.complete
    assert result.metrics["bytes_verified"].value == 1000 + 3 + 2 * 2500
    assert result.metrics["messages_completed"].value == 5
    assert result.metrics["goodput_gbps"].value is None
    rows = parquet.read_table(tmp_path / "messages.parquet").to_pylist()
    found = [(row["source"], row["bytes"], row["posted_ps"] / 1e6 - LATENCY_US) for row in rows]
    # In the order of the file within a flow: what comes behind a message waits for its time.
    assert found == [(0, 1000, 0), (0, 0, 30), (0, 2500, 30), (0, 2500, 30), (1, 3, 7.5)]


def test_a_flow_of_nothing_but_immediates_completes(tmp_path: Path) -> None:
    result = played(tmp_path, sends(bytes=0, count=3))
    assert result.complete
    assert result.metrics["messages_completed"].value == 3


def test_what_stands_outstanding_is_bounded(tmp_path: Path) -> None:
    workload = {"kind": "messages", "outstanding_messages": 1, "messages": [sends(bytes=600, count=4)]}
    played(tmp_path, workload=workload)
    rows = parquet.read_table(tmp_path / "messages.parquet").to_pylist()
    for before, after in zip(rows, rows[1:]):
        assert after["posted_ps"] > before["sender_done_ps"]


def test_denied_evs_carry_nothing_until_they_are_allowed(tmp_path: Path) -> None:
    action = {"do": "deny_evs", "host": 0, "ev": list(EVS[:3]), "from_us": 20, "to_us": 60}
    played(tmp_path, sends(bytes=60_000), script=[action], qp={"entropy_values": 4, "starting_psn": 0xFFFFFE})
    seen: dict[str, set[int]] = {"before": set(), "within": set(), "behind": set()}
    first = packets(tmp_path)[0]["time_ps"]
    for row in packets(tmp_path):
        time_us = (row["time_ps"] - first) / 1e6
        when = (
            "before" if time_us < 15 else "within" if 25 < time_us < 55 else "behind" if time_us > 70 else ""
        )
        if when:
            seen[when].add(row["ev"])
    assert seen == {"before": {*EVS}, "within": {EVS[3]}, "behind": {*EVS}}
    assert [row["psn"] for row in packets(tmp_path)[:4]] == [0xFFFFFE, 0xFFFFFF, 0, 1]


def test_what_ends_ends_before_the_next_begins(tmp_path: Path) -> None:
    later = {"do": "deny_evs", "host": 0, "ev": list(EVS[:3]), "from_us": 40, "to_us": 80}
    sooner = {**later, "from_us": 10, "to_us": 40}
    played(tmp_path, sends(bytes=60_000), script=[later, sooner])
    first = packets(tmp_path)[0]["time_ps"]
    used = {row["ev"] for row in packets(tmp_path) if 45 < (row["time_ps"] - first) / 1e6 < 75}
    assert used == {EVS[3]}


def test_a_disabled_port_sends_nothing_and_the_peer_is_told(tmp_path: Path) -> None:
    action = {"do": "disable_port", "host": 0, "plane": 1, "from_us": 20, "to_us": 60}
    result = played(tmp_path, sends(bytes=60_000), script=[action])
    assert result.verdict == "PASS" and result.complete
    first = packets(tmp_path)[0]["time_ps"]
    times = [(row["time_ps"] - first) / 1e6 for row in packets(tmp_path) if row["plane"] == 1]
    assert any(time < 15 for time in times) and any(time > 70 for time in times)
    assert not any(25 < time < 55 for time in times)


def test_congestion_control_is_an_attribute(tmp_path: Path) -> None:
    """Two hosts send to a third one: with congestion control the queue in front of it stays short."""
    depths = {}
    messages = [{"source": source, "target": 2, "bytes": 300_000} for source in (0, 1)]
    fabric = {"hosts": 3, "planes": 2, "rate_gbps": 2, "queue_bytes": 1 << 20}
    for name in ("none", "nscc"):
        qp = {"entropy_values": 4, "congestion_control": name}
        result = played(tmp_path / name, *messages, qp=qp, fabric=fabric)
        assert result.verdict == "PASS" and result.complete
        counters = json.loads((tmp_path / name / "counters.json").read_text())
        depths[name] = max(link["queue_high_water_bytes"] for link in counters["links"])
    assert depths["nscc"] < depths["none"] / 4


def test_the_resolved_file_is_the_experiment(tmp_path: Path) -> None:
    from mrc_host.experiment.load import load_experiment

    action = {"do": "disable_port", "host": 1, "plane": 0, "from_us": 1, "to_us": 2}
    experiment = parse_experiment(described(sends(bytes=9, count=3, at_us=1), script=[action]))
    file = tmp_path / "resolved.yaml"
    file.write_text(resolved_yaml(experiment))
    assert load_experiment(file) == experiment


def test_an_action_behind_the_end_is_an_error(tmp_path: Path) -> None:
    action = {"do": "disable_port", "host": 0, "plane": 1, "from_us": 5000}
    with pytest.raises(
        ConfigError, match=r"script\.0\.from_us must be within the run \(of .* µs\), got 5000"
    ):
        played(tmp_path, sends(bytes=10), script=[action])
    assert json.loads((tmp_path / "run.json").read_text())["verdict"] == "ERROR"


def test_what_a_nic_cannot_do_is_refused(tmp_path: Path) -> None:
    from mrc_host.nic.device import Context

    experiment = parse_experiment(described(sends(bytes=10), script=[DENY]))
    from mrc_host.experiment.testbed import build_testbed, set_up

    testbed = build_testbed(experiment, MODEL)
    old = Context._configure

    def without_states(context: Context) -> None:
        old(context)
        flags = context.capabilities.flags & ~context.capabilities.flags.EV_STATES
        object.__setattr__(context.capabilities, "flags", flags)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(VerbsError, match=r"script\.do"):
        patch.setattr(Context, "_configure", without_states)
        set_up(testbed)


DENY = {"do": "deny_evs", "host": 0, "ev": EVS[0]}
OFF = {"do": "disable_port", "host": 0, "plane": 0}


@pytest.mark.parametrize(
    ("sections", "path", "expected"),
    [
        ({"messages": [sends(bytes=0, operation="write")]}, "workload.messages.0.bytes", "at least 1"),
        ({"messages": [sends(bytes=1), sends(bytes=1, at_us=-1)]}, "workload.messages.1.at_us", "from 0"),
        ({"messages": [{"source": 0, "target": 2, "bytes": 1}]}, "workload.messages.0.target", "a host"),
        (
            {"messages": [{"source": 1, "target": 1, "bytes": 1}]},
            "workload.messages.0.target",
            "another host",
        ),
        ({"messages": []}, "workload.messages", "at least one"),
        ({"messages": [sends(bytes=1, size=2)]}, "workload.messages.0.size", "a known key: source, target"),
        ({"script": [{**OFF, "host": 2}]}, "script.0.host", "between 0 and 1"),
        ({"script": [OFF, {**OFF, "plane": 2}]}, "script.1.plane", "between 0 and 1"),
        ({"script": [{**OFF, "from_us": 5, "to_us": 5}]}, "script.0.to_us", "above from_us = 5"),
        ({"script": [{**OFF, "until_us": 5}]}, "script.0.until_us", "did you mean to_us"),
        ({"script": [{"do": "dance", "host": 0}]}, "script.0", "an action with do: deny_evs, disable_port"),
        ({"script": [{**DENY, "ev": 7}]}, "script.0.ev", "one of a queue pair's 4 EVs, such as 0xc0010000"),
        ({"script": [{**OFF, "from_us": 1e8}]}, "script.0.from_us", "below limits.simulated_time_us"),
        ({"script": ["nothing"]}, "script.0", "a mapping"),
        ({"qp": {"starting_psn": 1 << 24}}, "qp.starting_psn", "between 0 and 16777215"),
        ({"qp": {"congestion_control": "dcqcn"}}, "qp.congestion_control", "one of none, nscc"),
    ],
)
def test_refusals(sections: dict[str, Any], path: str, expected: str) -> None:
    messages = sections.pop("messages", [sends(bytes=1)])
    with pytest.raises(ConfigError) as caught:
        parse_experiment(described(*messages, **sections))
    assert caught.value.path == path
    assert expected in caught.value.expected
