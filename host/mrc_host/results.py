"""A finished run as an object: what a script or a notebook reads of a run directory.

Nothing is read before it is asked for, so that hundreds of runs can be opened for their metrics alone.

Source: lab.md 5; interfaces.md, "Files".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrc_host.errors import InfrastructureError, MrcError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from mrc_host.experiment.metrics import Metric
    from mrc_host.experiment.schema import Experiment
    from mrc_host.packets.pcapng import CapturedFrame

__all__ = ["TABLES", "Run", "open_run", "open_runs"]

TABLES = ("messages", "packets", "queues", "events", "metrics")
"""Tables of a run directory, each in a Parquet file of that name."""


class Run:
    """A run directory that holds a measured run.

    Parameters
    ----------
    path : Path
        The directory.

    Raises
    ------
    MrcError
        There is no run in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / "run.json").is_file():
            raise MrcError(f"{path} must be the directory of a run, missing in it: run.json")

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {self.name}, seed {self.seed}, {self.verdict})"

    @cached_property
    def document(self) -> dict[str, Any]:
        """Contents of ``run.json``."""
        document: dict[str, Any] = self._json("run.json")
        return document

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return str(self.document["name"])

    @property
    def seed(self) -> int:
        """Seed of everything random."""
        return int(self.document["seed"])

    @property
    def verdict(self) -> str:
        """PASS, FAIL, INCONCLUSIVE or ERROR."""
        return str(self.document["verdict"])

    @property
    def complete(self) -> bool:
        """Whether all messages were completed and nobody interrupted the run."""
        return bool(self.document["complete"])

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """Metrics by name."""
        from mrc_host.experiment.metrics import Metric

        return {
            name: Metric(
                entry["value"], entry["unit"], entry["definition"], entry.get("reason", ""),
                entry["limits"] or {}, entry["verdict"],
            )
            for name, entry in self._json("metrics.json").items()
        }  # fmt: skip

    def value(self, name: str) -> int | float | None:
        """Return the value of a metric; None when it could not be stated.

        Raises
        ------
        MrcError
            The run has no metric of that name.
        """
        if name not in self.metrics:
            raise MrcError(f"metric must be one of {', '.join(self.metrics)}, got {name!r}")
        return self.metrics[name].value

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment with all defaults, as it was run."""
        from mrc_host.experiment.load import load_experiment

        return load_experiment(self.path / "experiment.yaml")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All settings by dotted key, without the seed and what changes no result."""
        return _flatten(self.experiment.model_dump(mode="json", exclude={"seed", "runner", "capture"}))

    def table(self, name: str) -> pa.Table:
        """Return one of :data:`TABLES` as an Arrow table (``to_pandas()`` makes a data frame of it).

        Raises
        ------
        MrcError
            There is no such table, or the run was recorded without it.
        InfrastructureError
            The file is damaged.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if name not in TABLES:
            raise MrcError(f"table must be one of {', '.join(TABLES)}, got {name!r}")
        file = self.path / f"{name}.parquet"
        if not file.is_file():
            raise MrcError(f"{self.path} must hold {file.name}, but was recorded without it")
        try:
            return pq.read_table(file)
        except (OSError, pa.ArrowException) as error:
            raise InfrastructureError(f"{file} must be a readable Parquet file, got: {error}") from error

    def columns(self, name: str) -> dict[str, npt.NDArray[np.int64]]:
        """Return a table as numpy arrays by the names of its columns; see :meth:`table`."""
        import numpy as np

        table = self.table(name)
        return {
            column: np.asarray(table.column(column).to_numpy(zero_copy_only=False))
            for column in table.column_names
        }

    @property
    def flows(self) -> list[dict[str, Any]]:
        """Completed flows against their bounds."""
        flows: list[dict[str, Any]] = self._json("flows.json")
        return flows

    @property
    def faults(self) -> list[dict[str, Any]]:
        """What each fault of the experiment met."""
        faults: list[dict[str, Any]] = self._json("faults.json")
        return faults

    @property
    def captured_ports(self) -> list[str]:
        """NIC ports with a capture (``mrc run --pcap``), such as ``h0.p0``."""
        return sorted(file.stem for file in (self.path / "pcap").glob("*.pcapng"))

    def frames(self, port: str) -> Iterator[CapturedFrame]:
        """Yield the captured frames of a NIC port in order of time.

        Raises
        ------
        MrcError
            The run has no capture of that port.
        """
        from mrc_host.packets.pcapng import read_capture

        if port not in self.captured_ports:
            known = ", ".join(self.captured_ports) or "none: run it with --pcap"
            raise MrcError(f"port must be one with a capture ({known}), got {port!r}")
        return read_capture(self.path / "pcap" / f"{port}.pcapng")

    def _json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise MrcError(f"{self.path} must be the directory of a measured run, missing: {name}") from None
        except (OSError, ValueError) as error:
            raise InfrastructureError(f"{self.path / name} must be readable JSON, got: {error}") from error


def open_run(path: str | Path) -> Run:
    """Return the run in a directory.

    Raises
    ------
    MrcError
        There is none.
    """
    return Run(Path(path))


def open_runs(path: str | Path) -> list[Run]:
    """Return the runs in a directory: the one it holds, or those in its folders, in order of their names.

    Raises
    ------
    MrcError
        There is none.
    """
    root = Path(path)
    if (root / "run.json").is_file():
        return [Run(root)]
    runs = [Run(file.parent) for file in sorted(root.glob("**/run.json"))]
    if not runs:
        raise MrcError(f"{root} must be a run directory or hold some, but there is no run.json below it")
    return runs


def _flatten(content: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(content, dict):
        items = [(str(key), value) for key, value in content.items()]
    elif isinstance(content, list) and any(isinstance(value, dict | list) for value in content):
        items = [(str(place), value) for place, value in enumerate(content)]
    else:
        return {prefix: content}
    flat: dict[str, Any] = {}
    for key, value in items:
        flat |= _flatten(value, f"{prefix}.{key}" if prefix else key)
    return flat
