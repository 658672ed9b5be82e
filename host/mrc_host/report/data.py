"""Reads a run directory: everything a report shows comes from the files in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mrc_host.errors import InfrastructureError, MrcError
from mrc_host.experiment import analysis
from mrc_host.experiment.load import load_experiment
from mrc_host.experiment.nic_events import EventColumns, NicEvents
from mrc_host.experiment.packet_log import PacketColumns
from mrc_host.experiment.schema import Experiment
from mrc_host.experiment.workload import Flow
from mrc_host.fabric.topology import Topology

__all__ = ["RunData", "read_run"]

NEEDED = ("run.json", "experiment.yaml", "metrics.json", "messages.parquet", "packets.parquet")


@dataclass
class RunData:
    """A run, read from its directory.

    Parameters
    ----------
    path : Path
        The directory.
    run, metrics, counters : dict
        Contents of the JSON files.
    flow_results : list of dict
        Completed flows against their bounds.
    experiment : Experiment
        As resolved.
    topology : Topology
        Its fabric.
    messages, queues : dict of arrays
        Tables; a time that is missing is NaN.
    packets : PacketColumns
        Every packet at every NIC port.
    faults : list of dict
        What each fault of the experiment met; empty for runs of before there were faults.
    events : dict of arrays
        What NICs decided (:mod:`mrc_host.experiment.nic_events`); empty for runs of before it was recorded.
    queue_pairs : list of dict
        The ends of every flow, by QP numbers.
    """

    path: Path
    run: dict[str, Any]
    metrics: dict[str, dict[str, Any]]
    counters: dict[str, Any]
    flow_results: list[dict[str, Any]]
    experiment: Experiment
    topology: Topology
    messages: dict[str, npt.NDArray[Any]]
    packets: PacketColumns
    queues: dict[str, npt.NDArray[Any]]
    faults: list[dict[str, Any]]
    events: EventColumns = field(default_factory=lambda: NicEvents().columns())
    queue_pairs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def flows(self) -> list[Flow]:
        """Flows by number."""
        return self.experiment.flows()

    @property
    def end_us(self) -> float:
        """When the last data packet arrived, in microseconds; 1 when none did."""
        arrived = self.packets["time_ps"][(self.packets["arrived"] == 1) & (self.packets["data"] == 1)]
        return float(arrived.max()) / 1e6 if len(arrived) else 1.0

    def arrivals(self, flow: Flow) -> PacketColumns:
        """Return the data packets of a flow at its receiver."""
        return analysis.data_of_flow(
            self.packets, flow.source, flow.target, arrived=True, qp=self._lane(flow)
        )

    def sent(self, flow: Flow) -> PacketColumns:
        """Return the data packets of a flow at its sender."""
        return analysis.data_of_flow(
            self.packets, flow.source, flow.target, arrived=False, qp=self._lane(flow)
        )

    def _lane(self, flow: Flow) -> int | None:
        """Number of a flow's receiving queue pair; None for runs of before it was recorded."""
        return next((int(p["target_qp"]) for p in self.queue_pairs if p["flow"] == flow.number), None)


def read_run(path: Path) -> RunData:
    """Read a run directory.

    Raises
    ------
    MrcError
        It is not one, or the run never came to measuring.
    InfrastructureError
        A file in it is damaged.
    """
    missing = [name for name in NEEDED if not (path / name).is_file()]
    if missing:
        raise MrcError(f"{path} must be the directory of a measured run, missing in it: {', '.join(missing)}")
    try:
        experiment = load_experiment(path / "experiment.yaml")
        return RunData(
            path=path,
            run=_json(path / "run.json"),
            metrics=_json(path / "metrics.json"),
            counters=_json(path / "counters.json"),
            flow_results=_json(path / "flows.json"),
            experiment=experiment,
            topology=experiment.topology(),
            messages=_table(path / "messages.parquet"),
            packets=_table(path / "packets.parquet"),
            queues=_table(path / "queues.parquet"),
            faults=_json(path / "faults.json") if (path / "faults.json").is_file() else [],
            **_recorded_since(path),
        )
    except (OSError, ValueError) as error:
        raise InfrastructureError(f"{path} must hold readable files, got: {error}") from error


def _recorded_since(path: Path) -> dict[str, Any]:
    """Read what runs of before do not have."""
    found: dict[str, Any] = {}
    if (path / "events.parquet").is_file():
        found["events"] = _table(path / "events.parquet")
    if (path / "qps.json").is_file():
        found["queue_pairs"] = _json(path / "qps.json")
    return found


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _table(path: Path) -> dict[str, npt.NDArray[Any]]:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    return {
        name: np.asarray(table.column(name).to_numpy(zero_copy_only=False)) for name in table.column_names
    }
