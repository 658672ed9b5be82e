"""Writes what a run recorded into tables; their columns carry their meaning in the files.

=========================  ==========================================================================
``messages.parquet``       a row per message: flow, sizes, and the times of its life
``packets.parquet``        a row per packet at a NIC port
``queues.parquet``         depth of switch queues at sampling times
``events.parquet``         what NICs decided: states of EVs, losses, timeouts, windows
``qps.json``               queue pairs: whose they are, and which flow uses them
``flows.json``             a completed flow against its bounds
``faults.json``            what each fault of the experiment met
``counters.json``          counters of links, ports and NICs
``metrics.parquet``        the metrics in long form
=========================  ==========================================================================

All times are picoseconds after the first doorbell could be rung (the start of the run); packets of the
set-up do not exist.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from mrc_host.experiment.flow_results import FlowResult
from mrc_host.experiment.metrics import Metric
from mrc_host.experiment.nic_events import COLUMNS as EVENT_COLUMNS
from mrc_host.experiment.observations import Observations
from mrc_host.experiment.packet_log import COLUMNS
from mrc_host.experiment.rundir import RunDirectory
from mrc_host.experiment.testbed import Testbed
from mrc_host.nic.device import Counters

__all__ = ["write_records", "write_results"]

MESSAGE_COLUMNS = {
    "flow": "number of the flow",
    "source": "host",
    "target": "host",
    "message": "number within the flow",
    "bytes": "length of the message",
    "posted_ps": "doorbell, after the start of the run",
    "last_byte_ps": "last byte in the receiver's memory",
    "sender_done_ps": "completion in the sender's memory",
    "receiver_done_ps": "completion in the receiver's memory",
}


def write_results(directory: RunDirectory, testbed: Testbed, flows: list[FlowResult]) -> None:
    """Write what is small: flows against their bounds, and what faults met.

    Parameters
    ----------
    directory : RunDirectory
        Where to.
    testbed : Testbed
        The run.
    flows : list of FlowResult
        Completed flows against their bounds.
    """
    directory.write_json("flows.json", [_flow(result) for result in flows])
    directory.write_json("faults.json", [asdict(outcome) for outcome in testbed.faults.outcomes()])


def write_records(
    directory: RunDirectory,
    testbed: Testbed,
    seen: Observations,
    metrics: dict[str, Metric],
    counters: list[Counters],
    start_ps: int,
) -> None:
    """Write all tables of a run.

    Parameters
    ----------
    directory : RunDirectory
        Where to.
    testbed : Testbed
        The run.
    seen : Observations
        What it recorded.
    metrics : dict of Metric
        By name.
    counters : list of Counters
        Of each NIC.
    start_ps : int
        Time that becomes 0 in the tables.
    """
    directory.write_table("messages.parquet", _messages(seen, start_ps), MESSAGE_COLUMNS)
    packets = {name: seen.packets[name] for name in COLUMNS}
    packets["time_ps"] = packets["time_ps"] - start_ps
    directory.write_table("packets.parquet", packets, {"time_ps": "end of its slot at the NIC's port"})
    samples = testbed.fabric.samples
    directory.write_table(
        "queues.parquet",
        {
            "time_ps": np.array(samples.time_ps, dtype=np.int64) - start_ps,
            "direction": np.array(samples.direction, dtype=np.int64),
            "depth_bytes": np.array(samples.depth_bytes, dtype=np.int64),
            "peak_bytes": np.array(samples.peak_bytes, dtype=np.int64),
        },
        {"direction": "number of the link direction the port feeds", "peak_bytes": "since the sample before"},
    )
    happened = {name: seen.events[name] for name in EVENT_COLUMNS}
    happened["time_ps"] = happened["time_ps"] - start_ps
    directory.write_table("events.parquet", happened, {"kind": "of mrc_rtl.records.TraceKind"})
    directory.write_json("qps.json", _queue_pairs(seen))
    directory.write_json("counters.json", _counters(testbed, counters))
    known = {name: metric for name, metric in metrics.items() if metric.value is not None}
    directory.write_table(
        "metrics.parquet",
        {
            "run": [directory.path.name] * len(known),
            "metric": list(known),
            "value": [float(metric.value or 0) for metric in known.values()],
            "unit": [metric.unit for metric in known.values()],
        },
        {"value": "metrics without a value are left out"},
    )


def _messages(seen: Observations, start_ps: int) -> dict[str, Any]:
    import pyarrow as pa

    columns: dict[str, list[int | None]] = {name: [] for name in MESSAGE_COLUMNS}
    for state in seen.states:
        flow = state.flow
        for number, message in enumerate(state.messages):
            for name, value in zip(
                ("flow", "source", "target", "message", "bytes"),
                (flow.number, flow.source, flow.target, number, flow.plan[number].bytes),
            ):
                columns[name].append(value)
            for name in ("posted_ps", "last_byte_ps", "sender_done_ps", "receiver_done_ps"):
                time_ps = getattr(message, name)
                columns[name].append(None if time_ps is None else time_ps - start_ps)
    return {name: pa.array(values, pa.int64()) for name, values in columns.items()}


def _queue_pairs(seen: Observations) -> list[dict[str, Any]]:
    """Return the ends of every flow: the numbers by which packets and events name its queue pairs."""
    return [
        {
            "flow": state.flow.number,
            "source": state.flow.source,
            "target": state.flow.target,
            "source_qp": state.sender.number,
            "target_qp": state.receiver.number,
        }
        for state in seen.states
        if state.sender is not None and state.receiver is not None
    ]


def _flow(result: FlowResult) -> dict[str, Any]:
    return {
        "name": result.flow.name,
        "source": result.flow.source,
        "target": result.flow.target,
        "bytes": result.flow.bytes,
        "fct_us": result.fct_ps / 1_000_000,
        "fct_bound_us": result.bound_ps / 1_000_000,
        "goodput_gbps": round(result.goodput_gbps, 6),
        "goodput_bound_gbps": round(result.goodput_bound_gbps, 6),
        "reverse_share": round(result.reverse_share, 9),
    }


def _counters(testbed: Testbed, counters: list[Counters]) -> dict[str, Any]:
    totals = testbed.fabric.totals()
    links = [
        {
            "direction": item.direction,
            "frames": item.frames,
            "bytes": item.bytes,
            "drops": {reason.name.lower(): count for reason, count in item.drops.items()},
            "queue_high_water_bytes": item.queue_high_water_bytes,
            "queues": {
                queue.name.lower(): {
                    "frames": used.frames,
                    "bytes": used.bytes,
                    "high_water_bytes": used.high_water_bytes,
                }
                for queue, used in item.queues.items()
            },
            "marked": item.marked,
            "trimmed": item.trimmed,
            "overlaps": item.overlaps,
        }
        for item in testbed.fabric.counters()
    ]
    statistics = [nic.statistics for nic in testbed.nics]
    nics = [
        {
            "engine": counter.engine,
            "ports": list(counter.ports),
            "memory_outside": statistic.memory_outside,
            "memory_violations": statistic.memory_violations,
            "receive_stalls": statistic.receive_stalls,
            "transmit_bad": statistic.transmit_bad,
            "underruns": statistic.underruns,
            "lost_link_down": statistic.lost_link_down,
        }
        for counter, statistic in zip(counters, statistics)
    ]
    fabric = {
        "entered": totals.entered,
        "added": totals.added,
        "delivered": totals.delivered,
        "in_flight": totals.in_flight,
        "marked": totals.marked,
        "trimmed": totals.trimmed,
        "drops": {reason.name.lower(): count for reason, count in totals.drops.items()},
    }
    return {"fabric": fabric, "links": links, "nics": nics}
