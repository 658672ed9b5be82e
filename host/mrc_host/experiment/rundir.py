"""The run directory: what another person opens in a year.

Every file is complete or absent: files are written under a temporary name and renamed. The journal grows
line by line, each line forced to disk, so that after a crash it tells the stage. ``run.json`` exists from the
first moment, with ``complete: false`` until everything else is written.

Source: lab.md 5; interfaces.md, "Files".
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mrc_host.errors import InfrastructureError

__all__ = ["Journal", "RunDirectory", "canonical_json", "utc_now"]

TIME_IN_NAME = "%Y%m%dT%H%M%SZ"


def utc_now() -> str:
    """Return the time in UTC, ISO 8601 with milliseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def canonical_json(content: Any) -> str:
    """Return JSON in the one form equal contents have: sorted keys, two spaces, a final newline."""
    return json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


class Journal:
    """Append-only events of a run as JSON lines, each one forced to disk.

    Parameters
    ----------
    path : Path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, event: str, **details: Any) -> None:
        """Add an event."""
        line = json.dumps({"time": utc_now(), "event": event, **details}, ensure_ascii=False)
        self._file.write(line + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class RunDirectory:
    """A run directory that is being written.

    Parameters
    ----------
    path : Path
        The directory; it must not exist, or be empty.

    Attributes
    ----------
    journal : Journal
        Its journal.

    Raises
    ------
    InfrastructureError
        The directory has contents already, or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise InfrastructureError(f"{path} must be a new or empty directory, got one with files")
            (path / "plots").mkdir()
            self.journal = Journal(path / "journal.jsonl")
        except OSError as error:
            raise InfrastructureError(
                f"{path} must be a directory that can be written, got: {error}"
            ) from error

    @classmethod
    def create(cls, name: str, root: Path = Path("runs")) -> RunDirectory:
        """Make ``<root>/<UTC>-<name>``; a number is appended while that exists."""
        stamp = datetime.datetime.now(datetime.UTC).strftime(TIME_IN_NAME)
        path = root / f"{stamp}-{name}"
        number = 2
        while path.exists():
            path = root / f"{stamp}-{name}-{number}"
            number += 1
        return cls(path)

    def write_text(self, name: str, content: str) -> Path:
        """Write a file as a whole."""
        with self.whole_file(name) as temporary:
            temporary.write_text(content, encoding="utf-8")
        return self.path / name

    def write_json(self, name: str, content: Any) -> Path:
        """Write a JSON file in canonical form."""
        return self.write_text(name, canonical_json(content))

    def write_table(self, name: str, columns: Mapping[str, Any], metadata: Mapping[str, str]) -> Path:
        """Write columns as Parquet; the metadata says what columns mean."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table(dict(columns))
        table = table.replace_schema_metadata(dict(metadata))
        with self.whole_file(name) as temporary:
            pq.write_table(table, temporary, compression="zstd")
        return self.path / name

    @contextmanager
    def whole_file(self, name: str) -> Iterator[Path]:
        """Yield a temporary path that becomes the file when the block ends well.

        Raises
        ------
        InfrastructureError
            The file cannot be written.
        """
        target = self.path / name
        temporary = target.with_name(f".{target.name}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            temporary.replace(target)
        except OSError as error:
            raise InfrastructureError(f"{target} must be a file that can be written, got: {error}") from error
        finally:
            temporary.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the journal."""
        self.journal.close()
