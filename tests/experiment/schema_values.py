"""Values of every field of the experiment schema: tiny experiments that must run with each of them.

``SIMPLE`` has the fields of sections, ``KINDS`` those of sections that come in kinds (workloads, faults,
actions), ``PARAMETERS`` those of ``NicConfig``. The tests hold these tables against the schema.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

EVS = (0xC0010000, 0xC0010001, 0xC1010000, 0xC1010001)
KIBIBYTES = 3072
TRACE = Path(__file__).parent / "trace.csv"


def tiny() -> dict[str, Any]:
    """Return an experiment of two hosts that ends after a few microseconds."""
    return {
        "name": "tiny",
        "nic": {"engine": "small"},
        "fabric": {"hosts": 2, "planes": 2, "rate_gbps": 2},
        "workload": {
            "kind": "pairs",
            "flow_pairs": [[0, 1]],
            "bytes_per_nic": KIBIBYTES,
            "message_bytes": KIBIBYTES // 3,
            "outstanding_messages": 2,
        },
        "qp": {"entropy_values": 4, "timeout_exponent": 5},
        "limits": {"simulated_time_us": 3000},
        "criteria": [{"metric": "bytes_mismatched", "equals": 0, "source": "test"}],
    }


def tree(hosts: int = 4) -> dict[str, Any]:
    """Return a fabric of two tiers."""
    return {"hosts": hosts, "planes": 2, "rate_gbps": 2, "t0_per_plane": 2, "t1_per_plane": 2}


def star(**keys: Any) -> dict[str, Any]:
    return {"fabric": {**tiny()["fabric"], **keys}}


def qp(**keys: Any) -> dict[str, Any]:
    return {"qp": {**tiny()["qp"], **keys}}


def memory(**keys: Any) -> dict[str, Any]:
    return {"nic": {"engine": "small", "memory": keys}}


def judged(**keys: Any) -> dict[str, Any]:
    return {"criteria": [{"metric": "bytes_verified", "source": "test", **keys}]}


ONE_PLANE = {"nic": {"engine": "small", "parameters": {"planes": 1}}}
LINK = "p0.t0.1-p0.t1.1"

SIMPLE: dict[str, list[dict[str, Any]]] = {
    "name": [{"name": "a"}, {"name": "0.b-c_d"}],
    "title": [{"title": "T"}],
    "description": [{"description": "Long.\nText."}],
    "seed": [{"seed": 0}, {"seed": (1 << 63) - 1}],
    "nic.engine": [
        {"nic": {"engine": name, "parameters": {"planes": 2}}}
        for name in ("small", "default", "large", "quickstart")
    ],
    "nic.parameters": [{"nic": {"engine": "small", "parameters": {"mtu": 512}}}],
    "nic.transmit_fifo_bytes": [{"nic": {"engine": "small", "transmit_fifo_bytes": n}} for n in (16, 4096)],
    "nic.sack_threshold_bytes": [
        {"nic": {"engine": "small", "sack_threshold_bytes": n}} for n in (1024, 65_536)
    ],
    "nic.model": [{"nic": {"engine": "small", "model": {"loss_rule": "count"}}}],
    "nic.memory.size_mib": [memory(size_mib=1), memory(size_mib=3)],
    "nic.memory.read_latency_ns": [memory(read_latency_ns=1), memory(read_latency_ns=2000)],
    "nic.memory.write_latency_ns": [memory(write_latency_ns=1), memory(write_latency_ns=2000)],
    "nic.memory.latency_jitter_ns": [memory(latency_jitter_ns=0), memory(latency_jitter_ns=500)],
    "nic.memory.outstanding_bursts": [memory(outstanding_bursts=1), memory(outstanding_bursts=1024)],
    "fabric.hosts": [star(hosts=2), star(hosts=5)],
    "fabric.planes": [{**star(planes=1), **qp(entropy_values=2), **ONE_PLANE}],
    "fabric.t0_per_plane": [{"fabric": tree()}, {"fabric": {**tree(), "t0_per_plane": 4}}],
    "fabric.t1_per_plane": [{"fabric": {**tree(), "t1_per_plane": count}} for count in (1, 3)],
    "fabric.rate_gbps": [star(rate_gbps=0.5), star(rate_gbps=4)],
    "fabric.t1_rate_gbps": [{"fabric": {**tree(), "t1_rate_gbps": 1.5}}],
    "fabric.host_link_delay_ns": [star(host_link_delay_ns=1), star(host_link_delay_ns=5000)],
    "fabric.t1_link_delay_ns": [{"fabric": {**tree(), "t1_link_delay_ns": ns}} for ns in (5, [100, 3000])],
    "fabric.queue_bytes": [star(queue_bytes=2048), star(queue_bytes=1 << 32)],
    "fabric.control_queue_bytes": [star(control_queue_bytes=256)],
    "fabric.retransmission_queue_bytes": [star(retransmission_queue_bytes=2048)],
    "fabric.control_share_percent": [star(control_share_percent=1), star(control_share_percent=99)],
    "fabric.ecn.min_bytes": [star(ecn={"min_bytes": 64, "max_bytes": 64})],
    "fabric.ecn.max_bytes": [star(ecn={"min_bytes": 64, "max_bytes": 9000})],
    "fabric.ecn.host_ports": [star(ecn={"host_ports": True}), star(ecn={"host_ports": False})],
    "fabric.trimming.size_bytes": [star(trimming={"size_bytes": n}) for n in (118, 138, 9000)],
    "fabric.trimming.correct_lengths": [star(trimming={"correct_lengths": True})],
    "fabric.trimming.threshold_bytes": [star(trimming={"threshold_bytes": 1500})],
    "fabric.trimming.host_threshold_bytes": [star(trimming={"host_threshold_bytes": 1500})],
    "fabric.ecmp_hash": [star(ecmp_hash=name) for name in ("both", "flow_label", "ports")],
    "fabric.ecmp_convergence_us": [star(ecmp_convergence_us=us) for us in (0, 50)],
    "fabric.switch_latency_ns": [star(switch_latency_ns=0), star(switch_latency_ns=700)],
    "fabric.links.link": [{"fabric": {**tree(), "links": [{"link": "p?.t0.*-p*.t1.2", "rate_gbps": 1}]}}],
    "fabric.links.rate_gbps": [{"fabric": {**tree(), "links": [{"link": LINK, "rate_gbps": 9}]}}],
    "fabric.links.delay_ns": [star(links=[{"link": "h0-*", "delay_ns": 1.5}])],
    "qp.mtu_bytes": [qp(mtu_bytes=256), qp(mtu_bytes=1024)],
    "qp.mpr_psns": [qp(mpr_psns=128)],
    "qp.entropy_values": [qp(entropy_values=2), qp(entropy_values=64)],
    "qp.timeout_exponent": [qp(timeout_exponent=0), qp(timeout_exponent=24)],
    "qp.linear_retries": [qp(linear_retries=0), qp(linear_retries=7)],
    "qp.exponential_retries": [qp(exponential_retries=0), qp(exponential_retries=25)],
    "qp.base_rtt_ns": [qp(base_rtt_ns=128), qp(base_rtt_ns=100_000)],
    "qp.starting_psn": [qp(starting_psn=0), qp(starting_psn=(1 << 24) - 1)],
    "qp.dynamic_mpr": [qp(dynamic_mpr=True), qp(dynamic_mpr=False)],
    "qp.routing": [qp(routing=name) for name in ("srv6", "ecmp")],
    "qp.type": [
        {**qp(type=name), "nic": {**tiny()["nic"], "parameters": {"go_back_n": True}}}
        for name in ("mrc", "go_back_n")
    ],
    "qp.oblivious": [qp(oblivious=value) for value in (True, False)],
    "qp.congestion_control": [qp(congestion_control=name) for name in ("none", "nscc")],
    "host_latency_ns": [{"host_latency_ns": 1}, {"host_latency_ns": 20_000}],
    "limits.simulated_time_us": [{"limits": {"simulated_time_us": 500}}],
    "criteria.metric": [judged(equals=KIBIBYTES)],
    "criteria.equals": [judged(equals=KIBIBYTES)],
    "criteria.at_least": [judged(at_least=-1e18), judged(at_least=5, at_most=1e18)],
    "criteria.at_most": [judged(at_most=1e18)],
    "criteria.source": [judged(at_least=0)],
    "capture.pcap": [{"capture": {"pcap": False}}],
    "capture.megabytes_per_port": [{"capture": {"megabytes_per_port": 0.01}}],
    "records.interval_ns": [{"records": {"interval_ns": 100}}, {"records": {"interval_ns": 1e9}}],
    "runner.window_fraction": [{"runner": {"window_fraction": value}} for value in ("1/7", 1, 0.25)],
    "runner.jobs": [{"runner": {"jobs": 1}}, {"runner": {"jobs": 256}}],
}  # fmt: skip
"""Sections that replace those of :func:`tiny`, by the field they are about."""

UP = {"port": "h0.p0", "direction": "up"}
DOWN = {"port": "h1.p0", "direction": "down"}
MESSAGE = {"source": 0, "target": 1, "bytes": 100}

KINDS: dict[str, dict[str, dict[str, list[dict[str, Any]]]]] = {
    "workload": {
        "*": {
            "outstanding_messages": [{"outstanding_messages": 1}, {"outstanding_messages": 8}],
            "bytes_per_nic": [{"bytes_per_nic": 1024}],
            "message_bytes": [{"message_bytes": 1}, {"message_bytes": KIBIBYTES}],
            "operation": [{"operation": "write"}, {"operation": "write_imm"}],
            "queue_pairs": [{"queue_pairs": 1}, {"queue_pairs": 3}],
        },
        "incast": {
            "": [{"target": 1}],
            "target": [{"target": 0}, {"target": 1}],
            "senders": [{"senders": 1}],
            "victim": [{"victim": None}],
            "victim_bytes": [{"victim_bytes": 2048}],
        },
        "ring_all_reduce": {
            "": [{}],
            "steps": [{"steps": 1}, {"steps": 3}],
            "compute_us": [{"compute_us": 0}, {"compute_us": 2.5}],
        },
        "all_to_all": {
            "": [{}],
            "steps": [{"steps": 2}],
            "compute_us": [{"compute_us": 1}],
        },
        "random_arrivals": {
            "": [{"load": 0.5, "duration_us": 40, "sizes": "fixed", "fixed_bytes": 1000}],
            "load": [{"load": 1}],
            "duration_us": [{"duration_us": 30}],
            "sizes": [{"sizes": "web_search", "largest_bytes": 500, "duration_us": 200}],
            "fixed_bytes": [{"fixed_bytes": 1}],
            "cdf": [{"sizes": "fixed", "fixed_bytes": 700}],
            "largest_bytes": [{"largest_bytes": 300}],
        },
        "trace": {
            "": [{"file": str(TRACE)}],
            "file": [{"file": str(TRACE)}],
        },
        "permutation": {"": [{}], "peer_offset": [{"peer_offset": 1}]},
        "pairs": {"": [{"flow_pairs": [[0, 1]]}], "flow_pairs": [{"flow_pairs": [[0, 1], [1, 0]]}]},
        "messages": {
            "": [{"messages": [MESSAGE]}],
            "messages.source": [{"messages": [{**MESSAGE, "source": 1, "target": 0}]}],
            "messages.target": [{"messages": [MESSAGE]}],
            "messages.operation": [{"messages": [{**MESSAGE, "operation": "write"}]}],
            "messages.bytes": [{"messages": [{**MESSAGE, "bytes": size}]} for size in (0, 1, 5000)],
            "messages.count": [{"messages": [{**MESSAGE, "count": 3}]}],
            "messages.at_us": [{"messages": [{**MESSAGE, "at_us": 12.5}]}],
        },
    },
    "faults": {
        "*": {
            "link": [{"link": "h0-p0.t0.1"}, {"link": "h0.p0>p0.t0.1.d1"}, {"link": "h0-*"}],
            "port": [{"port": "h0.p0"}],
            "switch": [{"switch": "p0.t0.1"}],
            "plane": [{"plane": 0}, {"plane": [0, 1], "packets": 1}],
            "ev": [{"ev": EVS[0]}, {"ev": list(EVS[:2])}],
            "direction": [UP, DOWN, {"port": "h0.p0", "direction": "both"}],
            "traffic": [{**UP, "traffic": "data"}, {"plane": [0, 1], "traffic": "acks", "packets": 1}],
            "packets": [{**UP, "packets": 1}, {**UP, "packets": [1, 2]}],
            "from_us": [{**UP, "from_us": 0}],
            "to_us": [{**UP, "to_us": 40}],
        },
        "bit_errors": {
            "": [{**UP, "bit_error_rate": 1e-4}],
            "bit_error_rate": [{**UP, "bit_error_rate": 0.5, "packets": 1}],
            "part": [{**UP, "bit_error_rate": 1e-4, "part": part} for part in ("covered", "frame")],
            "caught_by": [{**UP, "bit_error_rate": 1e-4, "caught_by": name} for name in ("icrc", "fcs")],
        },
        "blackhole": {"": [UP]},
        "burst_loss": {
            "": [{**UP, "loss": 0.1, "burst_packets": 2}],
            "loss": [{**UP, "loss": 0.9, "burst_packets": 1.5, "to_us": 30}],
            "burst_packets": [{**UP, "loss": 0.5, "burst_packets": 1, "to_us": 30}],
        },
        "delay": {
            "": [{**UP, "delay_ns": 100}],
            "delay_ns": [{**UP, "delay_ns": 9000}],
            "jitter_ns": [{**UP, "delay_ns": 1, "jitter_ns": 3000}],
        },
        "down": {
            "": [{"port": "h0.p0"}],
            "signal": [{"port": "h0.p0", "signal": on} for on in (True, False)],
        },
        "duplicate": {
            "": [{**UP, "probability": 1}],
            "probability": [{**UP, "probability": 0.5}],
            "delay_ns": [{**UP, "probability": 1, "delay_ns": 9000}],
        },
        "flap": {
            "": [{"port": "h0.p0", "period_us": 8, "down_us": 2}],
            "period_us": [{"port": "h0.p0", "period_us": 50, "down_us": 2}],
            "down_us": [{"port": "h0.p0", "period_us": 8, "down_us": 7.5}],
            "signal": [{"port": "h0.p0", "period_us": 9, "down_us": 1, "signal": True}],
        },
        "mark": {"": [DOWN], "share": [{**DOWN, "share": 0.3}]},
        "random_loss": {"": [{**UP, "probability": 0.2}], "probability": [{**UP, "probability": 1}]},
        "reboot": {
            "": [{"switch": "p0.t0.1", "to_us": 20}],
            "signal": [{"switch": "p0.t0.1", "to_us": 20, "signal": False}],
        },
        "reorder": {
            "": [{**UP, "probability": 0.3, "delay_ns": 2000}],
            "probability": [{**UP, "probability": 1, "delay_ns": 5}],
            "delay_ns": [{**UP, "probability": 0.5, "delay_ns": 40_000}],
        },
        "skew": {
            "": [{"plane": [0, 1], "spread_ns": 500}],
            "spread_ns": [{"plane": [1, 0], "spread_ns": 9000}],
        },
        "slow": {
            "": [{**DOWN, "rate_share": 0.5}],
            "rate_share": [{**DOWN, "rate_share": 0.01, "to_us": 30}],
        },
        "trim_storm": {"": [DOWN], "share": [{**DOWN, "share": 0.5}]},
    },
    "script": {
        "*": {
            "host": [{"host": 0}, {"host": 1}],
            "from_us": [{"from_us": 0}, {"from_us": 3.5}],
            "to_us": [{"to_us": 6}],
        },
        "deny_evs": {"": [{"ev": EVS[0]}], "ev": [{"ev": list(EVS[:3])}]},
        "disable_port": {"": [{"plane": 1}], "plane": [{"plane": 0}]},
    },
}  # fmt: skip
"""By section, kind ("*": common fields) and field; "" is what the kind needs at least."""

PARAMETERS: dict[str, list[object]] = {
    "planes": [2],
    "data_width": [128],
    "clock_ps": [4000],
    "mtu": [256, 2048],
    "qps": [2, 16],
    "mpr_psns": [256],
    "evs_per_plane": [2, 16],
    "ev_profiles": [1, 4],
    "send_queue_depth": [2, 16],
    "receive_queue_depth": [4, 32],
    "memory_regions": [2, 64],
    "completion_queues": [2, 8],
    "immediates": [32, 64],
    "receive_buffer_bytes": [8192],
    "transmit_slots": [2, 8],
    "placements": [2, 16],
    "address_width": [32, 64],
    "congestion_control": [True, False],
    "loss_inference": [True, False],
    "go_back_n": [True, False],
    "trace": [True, False],
}
