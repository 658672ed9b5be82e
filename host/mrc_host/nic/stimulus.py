"""Recorded input pins of a model, and the bare C++ loop that replays them."""

from __future__ import annotations

import ctypes

__all__ = ["Stimulus"]


class Stimulus:
    """Recorded input pins of a model, to be replayed in a bare C++ loop.

    Parameters
    ----------
    engine : ctypes.CDLL
        Library of the model.
    """

    def __init__(self, engine: ctypes.CDLL) -> None:
        self._library = engine
        self.handle: int | None = engine.mrc_stimulus_create()

    @property
    def cycles(self) -> int:
        """Cycles recorded."""
        return int(self._library.mrc_stimulus_cycles(self.handle))

    def replay(self, check: bool = False) -> int:
        """Clock a fresh model through the recording; with ``check`` return a hash of what it transmitted."""
        return int(self._library.mrc_replay(self.handle, check))

    def close(self) -> None:
        """Free the recording; no NIC may record into it any more."""
        if self.handle is not None:
            self._library.mrc_stimulus_destroy(self.handle)
            self.handle = None

    def __del__(self) -> None:
        self.close()
