"""Reading experiments: what is wrong is named with file, line, path, value and what is expected.

Sweep: unknown keys in every kind of section, wrong types, units and ranges, sections that do not fit.
Stimulus: the quickstart file with one line changed, or overridden.
Checks: the whole message; the resolved file reads back equal; overrides are checked like the file.
Timing: none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from experiment.runs import QUICKSTART
from mrc_host.errors import ConfigError, MrcError
from mrc_host.experiment.load import load_experiment, parse_experiment, resolved_yaml


def changed(tmp_path: Path, old: str, new: str) -> tuple[Path, int]:
    """Return a copy of the quickstart with one text replaced, and the line where that was."""
    text = QUICKSTART.read_text()
    assert text.count(old) == 1
    line = text[: text.index(old)].count("\n") + 1
    file = tmp_path / "changed.yaml"
    file.write_text(text.replace(old, new))
    return file, line


@pytest.mark.parametrize(
    ("old", "new", "path", "expected"),
    [
        ("rate_gbps: 6.25", "rate_gpbs: 6.25", "fabric.rate_gpbs", "did you mean rate_gbps?"),
        ("host_latency_ns: 1000", "host_latency_us: 1", "host_latency_us", "did you mean host_latency_ns?"),
        (
            "message_bytes: 65536",
            "message_byte: 65536",
            "workload.message_byte",
            "did you mean message_bytes?",
        ),
        ("read_latency_ns: 100", "read_latency: 100", "nic.memory.read_latency", "read_latency_ns"),
        ("equals: 256", "equal: 256", "criteria.2.equal", "did you mean equals?"),
        ("seed: 1", "seed: x", "seed", "a whole number between 0 and"),
        (
            "message_bytes: 65536",
            "message_bytes: 64 KiB",
            "workload.message_bytes",
            "a whole number of bytes",
        ),
        (
            "read_latency_ns: 100",
            "read_latency_ns: 1us",
            "nic.memory.read_latency_ns",
            "a number of nanoseconds",
        ),
        ("hosts: 4", "hosts: 5", "fabric.t0_per_plane", "a divisor of hosts = 5"),
        ("  planes: 4", "  planes: 2", "fabric.planes", "4, the planes of the NIC"),
        ("peer_offset: 2 ", "peer_offset: 4 ", "workload.peer_offset", "between 1 and 3"),
        (
            "kind: permutation",
            "kind: outcast",
            "workload",
            "a section with kind: all_to_all or incast or messages",
        ),
        ("engine: quickstart ", "engine: huge ", "nic.engine", "one of small, default, large, quickstart"),
        ("metric: packets_lost", "metric: packet_lost", "criteria.3.metric", "a metric: bytes_verified"),
        ("rate_gbps: 6.25 ", "rate_gbps: 40 ", "fabric.rate_gbps", "at most 32"),
        (
            "outstanding_messages: 8",
            "outstanding_messages: 48",
            "workload.outstanding_messages",
            "at most 32",
        ),
        ("bytes_per_nic: 4194304", "bytes_per_nic: 4194305", "workload.bytes_per_nic", "a multiple of"),
        ("transmit_fifo_bytes: 256 ", "transmit_fifo_bytes: 16 ", "nic.transmit_fifo_bytes", "two beats"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, old: str, new: str, path: str, expected: str
) -> None:
    file, line = changed(tmp_path, old, new)
    with pytest.raises(ConfigError) as caught:
        load_experiment(file)
    error = caught.value
    assert error.path == path
    assert expected in error.expected
    assert error.file == file
    # A value may be judged by another one: then the line is that of the key in the message.
    shown = file.read_text().splitlines()[(error.line or 0) - 1]
    assert error.line == line or path.rsplit(".", 1)[-1] in shown
    assert str(error).startswith(f"{file}:{error.line}: {path} must be {error.expected}, got ")


def test_a_parameter_of_the_engine_is_checked_by_its_own_rules(tmp_path: Path) -> None:
    old = "engine: quickstart "
    file, line = changed(tmp_path, old, "engine: quickstart\n  parameters: {qps: 3} ")
    with pytest.raises(ConfigError, match=r"nic\.parameters\.qps must be a power of two, got 3") as caught:
        load_experiment(file)
    assert caught.value.line == line + 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("fabric.planes=9", "--set: fabric.planes must be a whole number between 1 and 8, got 9"),
        ("fabrik.planes=2", r"--set: fabrik must be a known key \(did you mean fabric\?\)"),
        ("criteria.9.equals=1", "--set: criteria.9 must be a position between 0 and 6, got '9'"),
        ("seed.low=1", "--set: seed must be a section, to set a key in it, got 1"),
        ("seed", "--set must be key=value with a dotted key"),
        ("seed=[1", "--set must be key=value with a value in YAML"),
        (
            "qp.mtu_bytes=1000",
            "--set: qp.mtu_bytes must be one of 256, 512, 1024, 2048, 4096 bytes, got 1000",
        ),
        ("qp.mpr_psns=192", "--set: qp.mpr_psns must be a multiple of 128"),
        ("qp.entropy_values=30", "--set: qp.entropy_values must be a multiple of the 4 planes"),
        (
            "runner.window_fraction=3/2",
            "--set: runner.window_fraction must be a fraction above 0 and at most 1",
        ),
        ("capture.pcap=yes please", "--set: capture.pcap must be true or false, got 'yes please'"),
    ],
)
def test_overrides_are_checked_like_the_file(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_experiment(QUICKSTART, [setting])


def test_overrides_reach_sections_lists_and_new_keys() -> None:
    experiment = load_experiment(
        QUICKSTART, ["qp.mtu_bytes=1024", "criteria.0.equals=7", "fabric.t1_link_delay_ns=[10, 20]", "seed=5"]
    )
    assert experiment.qp.mtu_bytes == 1024
    assert experiment.criteria[0].equals == 7
    assert experiment.fabric.t1_link_delay_ns == [10.0, 20.0]
    assert experiment.seed == 5


def test_the_resolved_file_reads_back_equal(tmp_path: Path) -> None:
    experiment = load_experiment(QUICKSTART, ["runner.window_fraction=1/7", "qp.mtu_bytes=2048"])
    file = tmp_path / "resolved.yaml"
    file.write_text(resolved_yaml(experiment))
    assert load_experiment(file) == experiment
    assert "exponential_retries: 25" in file.read_text()


def test_explicit_pairs() -> None:
    settings = [
        "workload={kind: pairs, flow_pairs: [[0, 2], [1, 2]], bytes_per_nic: 512, message_bytes: 256}"
    ]
    flows = load_experiment(QUICKSTART, settings).flows()
    assert [(flow.source, flow.target, flow.messages) for flow in flows] == [(0, 2, 2), (1, 2, 2)]
    for pairs in ("[[0, 0]]", "[[0, 9]]", "[[0, 1], [0, 1]]", "[[0]]", "[]"):
        with pytest.raises(ConfigError, match="flow_pairs"):
            load_experiment(QUICKSTART, [settings[0].replace("[[0, 2], [1, 2]]", pairs)])


def test_files_that_are_no_experiments(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    with pytest.raises(MrcError, match="must be a readable text file"):
        load_experiment(file)
    file.write_text("name: a\nfabric: [1\n")
    with pytest.raises(MrcError, match=r"bad\.yaml:\d+: must be valid YAML"):
        load_experiment(file)
    file.write_text("- a\n")
    with pytest.raises(ConfigError, match="a mapping of keys to values"):
        load_experiment(file)
    with pytest.raises(ConfigError, match="fabric must be given"):
        parse_experiment({"name": "a"})
