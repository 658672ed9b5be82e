"""Which times a user wants waveforms of, and the NICs that write them.

``fault±20us`` is the time around the begin and the end of every fault; ``53.4us±5us`` that around a time
after the start of the run; ``10us..30us`` a span. Several are separated by commas.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mrc_host.errors import MrcError
from mrc_host.experiment.lockstep import START_GRID_PS
from mrc_host.experiment.nics import NicKinds, NicRequest
from mrc_host.experiment.schema import Experiment
from mrc_host.experiment.testbed import Testbed
from mrc_host.nic.base import Nic
from mrc_host.nic.waves import WavesNic

__all__ = ["WavesKinds", "collected_waves", "move_waves", "waves_windows"]

FOLDER = "wave"
UNITS = {"ns": 1_000, "us": 1_000_000, "µs": 1_000_000, "ms": 1_000_000_000}
_TIME = r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms)"
_AROUND = re.compile(rf"(?:fault|{_TIME})\s*(?:±|\+-|\+/-)\s*{_TIME}")
_SPAN = re.compile(rf"{_TIME}\s*\.\.\s*{_TIME}")
ALLOWED = "fault±20us, a time such as 53.4us±5us, or a span such as 10us..30us, several with commas"


def waves_windows(text: str, experiment: Experiment) -> list[tuple[int, int]]:
    """Return windows of time in picoseconds after the start of a run.

    Raises
    ------
    MrcError
        The text says something else, or the experiment has no fault.
    """
    windows = []
    for part in text.split(","):
        if found := _AROUND.fullmatch(part.strip()):
            half = _ps(found[3], found[4])
            centres = _fault_times(experiment) if found[1] is None else [_ps(found[1], found[2])]
            windows += [(max(0, centre - half), centre + half) for centre in centres]
        elif found := _SPAN.fullmatch(part.strip()):
            windows.append((_ps(found[1], found[2]), _ps(found[3], found[4])))
        else:
            raise MrcError(f"waves must be {ALLOWED}; got {part.strip()!r}")
    for begin, end in windows:
        if end <= begin:
            raise MrcError(f"waves must be a span that ends after it begins, got {begin} ps to {end} ps")
    return sorted(windows)


def _fault_times(experiment: Experiment) -> list[int]:
    times = [time for fault in experiment.faults for time in (fault.from_us, fault.to_us) if time is not None]
    if not times:
        raise MrcError("waves must name a time where the experiment has no fault, got 'fault'")
    return [round(time * UNITS["us"]) for time in times]


def _ps(number: str, unit: str) -> int:
    return round(float(number) * UNITS[unit])


@dataclass(frozen=True)
class WavesKinds(NicKinds):
    """Makes the NICs of a run; those of gateware write waveforms.

    Parameters
    ----------
    names : tuple of str
        Kinds, as for :class:`~mrc_host.experiment.nics.NicKinds`.
    folder : Path
        Where a file for each NIC goes, ``h0.vcd`` and so on.
    windows : list of (int, int)
        In picoseconds after the start of the run.

    Raises
    ------
    MrcError
        None of the NICs is gateware.
    """

    folder: Path = Path()
    windows: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.has_gateware:
            raise MrcError(f"--waves must go with NICs of gateware: --nic rtl, got {self.text}")

    def __call__(self, request: NicRequest) -> Nic:
        """Make the NIC of a host."""
        if self.kind_of(request.host, request.hosts) != "rtl":
            return super().__call__(request)
        file = self.folder / f"h{request.host}.vcd"
        return WavesNic(request.config, request.mac, request.memory, file=file, progress=request.progress)

    def prepare(self, testbed: Testbed) -> None:
        """Set the windows, now that it is known when the run will begin."""
        start_ps = -(-max(nic.time_ps for nic in testbed.nics) // START_GRID_PS) * START_GRID_PS
        for nic in testbed.nics:
            if isinstance(nic, WavesNic):
                for begin, end in self.windows:
                    nic.show(start_ps + begin, start_ps + end)


@contextmanager
def collected_waves(text: str, names: tuple[str, ...], experiment: Experiment) -> Iterator[WavesKinds]:
    """Yield the NICs for a run with waveforms; :func:`move_waves` takes the files into its directory.

    Raises
    ------
    MrcError
        As :func:`waves_windows`, or no NIC is gateware.
    """
    with tempfile.TemporaryDirectory(prefix="mrc-waves-") as folder:
        yield WavesKinds(names, Path(folder), waves_windows(text, experiment))


def move_waves(kinds: WavesKinds, directory: Path) -> list[Path]:
    """Move the files of a finished run into ``wave/`` of its directory; returns them."""
    files = sorted(kinds.folder.glob("*.vcd"))
    target = directory / FOLDER
    if files:
        target.mkdir(exist_ok=True)
    return [Path(shutil.move(file, target / file.name)) for file in files]
