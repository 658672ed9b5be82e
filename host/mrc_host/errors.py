"""Errors a user can do something about. The `mrc` command prints them without a traceback."""

from pathlib import Path

__all__ = ["ConfigError", "InfrastructureError", "MrcError"]


class MrcError(Exception):
    """Base of all errors whose message is meant for the user.

    Members
    -------
    exit_code : int
        What `mrc` exits with: 2 for wrong use or configuration, 3 for infrastructure.
    """

    exit_code = 2


class InfrastructureError(MrcError):
    """Something outside the experiment failed: a tool is missing, a file cannot be written."""

    exit_code = 3


class _NoValue:
    """Stands for a value that is absent, since None is a value in YAML."""

    def __repr__(self) -> str:
        return "nothing"


NO_VALUE = _NoValue()


class ConfigError(MrcError):
    """A value in a configuration is not allowed.

    The message reads `experiment.yaml:12: topology.planes must be between 1 and 8, got 9`.

    Parameters
    ----------
    path:
        The key, dotted from the root of the file, for example "topology.planes".
    expected:
        What is allowed, worded to follow "must be": "between 1 and 8", "a known key: a, b or c".
    value:
        What was found. Leave it out where nothing was found.
    file:
        The file, if the value comes from one.
    line:
        Line in the file, counted from 1.
    """

    def __init__(
        self,
        path: str,
        expected: str,
        value: object = NO_VALUE,
        *,
        file: str | Path | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(path, expected, value)
        self.path = path
        self.expected = expected
        self.value = value
        self.file = None if file is None else Path(file)
        self.line = line

    def __str__(self) -> str:
        place = ""
        if self.file is not None:
            place = f"{self.file}:" if self.line is None else f"{self.file}:{self.line}:"
            place += " "
        return f"{place}{self.path} must be {self.expected}, got {self.value!r}"

    def located(self, file: str | Path, line: int | None) -> "ConfigError":
        """Return the same error with a place in a file, for code that checks values without knowing it."""
        return ConfigError(self.path, self.expected, self.value, file=file, line=line)
