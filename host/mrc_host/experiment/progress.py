"""What a person sees while a run goes on; silent when nobody watches."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

__all__ = ["ProgressView", "Silent", "TerminalView", "view_for"]


class ProgressView(Protocol):
    """What a run tells while it goes on."""

    def stage(self, name: str) -> None:
        """A stage begins."""

    def detail(self, text: str) -> None:
        """Something worth a line within a stage."""

    def simulated(self, time_us: float, done: int, total: int) -> None:
        """The simulation stands at a time after the first doorbell, with so many messages completed."""

    def __enter__(self) -> ProgressView: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Silent:
    """Shows nothing."""

    def stage(self, name: str) -> None:
        """Ignore it."""

    def detail(self, text: str) -> None:
        """Ignore it."""

    def simulated(self, time_us: float, done: int, total: int) -> None:
        """Ignore it."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to end."""


class TerminalView:
    """A bar of the simulation and the name of the stage, on standard error."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._console = console
        self._task: TaskID | None = None

    def stage(self, name: str) -> None:
        """Show the stage; a bar appears once there is something to measure."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=None, text="")

    def detail(self, text: str) -> None:
        """Show a step of the stage."""
        if self._task is not None:
            self._progress.update(self._task, text=text)

    def simulated(self, time_us: float, done: int, total: int) -> None:
        """Move the bar."""
        if self._task is not None:
            text = f"{time_us:,.0f} µs simulated · {done} of {total} messages"
            self._progress.update(self._task, completed=done, total=total, text=text)

    def __enter__(self) -> TerminalView:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away; what remains on the screen is the summary."""
        self._progress.stop()


def view_for(stream_is_terminal: bool | None = None) -> ProgressView:
    """Return the view for standard error: silent when that is not a terminal."""
    interactive = sys.stderr.isatty() if stream_is_terminal is None else stream_is_terminal
    return TerminalView(Console(stderr=True)) if interactive else Silent()
