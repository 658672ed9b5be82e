"""Messages from a file: a trace of what an application sent.

The file has a line for each message: CSV with the columns ``time_us,source,target,bytes`` and, if wanted,
``operation``; a first line names the columns.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

from mrc_host.errors import ConfigError
from mrc_host.experiment.fields import text
from mrc_host.experiment.workload import (
    MICROSECOND_PS,
    OPERATIONS,
    SIZE_MAXIMUM,
    Flow,
    PlannedMessage,
    Traffic,
    register_workload,
)

__all__ = ["Trace"]

COLUMNS = ("time_us", "source", "target", "bytes")
LONGEST_US = 1e9


@register_workload("trace")
class Trace(Traffic):
    """The messages of a trace file; those between two hosts are posted in the order of their lines.

    Parameters
    ----------
    file : str
        CSV; a relative path begins at the experiment file's folder.
    """

    file: Annotated[str, text("the name of a file")]

    @property
    def immediates(self) -> bool:
        """Whether any message may complete at the receiver too: it does unless the trace says ``write``."""
        return True

    def flows(self, hosts: int) -> list[Flow]:
        """Return one flow for each source and target.

        Raises
        ------
        ConfigError
            The file cannot be read, or a line of it is wrong.
        """
        try:
            with Path(self.file).open(encoding="utf-8", newline="") as stream:
                rows = list(csv.DictReader(stream, restkey="more", restval=""))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("workload.file", "a file that can be read", f"{self.file}: {error}") from error
        plans: dict[tuple[int, int], list[PlannedMessage]] = {}
        for line, row in enumerate(rows, 2):
            ends, message = self._message(row, line, hosts)
            plans.setdefault(ends, []).append(message)
        if not plans:
            raise ConfigError(
                "workload.file", f"a CSV file with {','.join(COLUMNS)} and a message", self.file
            )
        return [
            Flow(place, source, target, tuple(plan))
            for place, ((source, target), plan) in enumerate(plans.items())
        ]

    def _message(self, row: dict[str, str], line: int, hosts: int) -> tuple[tuple[int, int], PlannedMessage]:
        where = f"{self.file}:{line}"
        missing = [name for name in COLUMNS if not row.get(name)]
        if missing or "more" in row:
            raise ConfigError("workload.file", f"a file whose lines have {','.join(COLUMNS)}", where)
        operation = row.get("operation") or "write_imm"
        try:
            time_us = float(row["time_us"])
            source, target, size = (int(row[name]) for name in COLUMNS[1:])
        except ValueError as error:
            raise ConfigError("workload.file", "a file of numbers", f"{where}: {error}") from error
        hosts_fit = 0 <= source < hosts and 0 <= target < hosts and source != target
        if not hosts_fit:
            raise ConfigError(
                "workload.file",
                f"a file with two different hosts between 0 and {hosts - 1} in each line",
                f"{where}: {source}, {target}",
            )
        least = int(operation == "write")
        if operation not in OPERATIONS or not least <= size < SIZE_MAXIMUM or not 0 <= time_us <= LONGEST_US:
            raise ConfigError(
                "workload.file",
                f"a file with times from 0 to {LONGEST_US:g} µs, sizes from {least} to {SIZE_MAXIMUM - 1}, "
                f"and operations {' or '.join(OPERATIONS)}",
                f"{where}: {time_us:g}, {size}, {operation}",
            )
        message = PlannedMessage(size, operation == "write_imm", round(time_us * MICROSECOND_PS))
        return (source, target), message
