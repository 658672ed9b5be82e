"""Congestion windows of the gateware: a profile's numbers in fixed point, and what the engine says of them.

A device with the controller's tables takes floating-point parameters (CC_PROFILE); the gateware takes the
rows of its sequencer for each queue pair. Both go through the golden model's conversion, so that both work
with the same integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mrc_host.model.cc_profiles import CcProfiles
from mrc_host.model.nscc_fixed import fixed_parameters
from mrc_host.model.send_qp import HEADER_BYTES
from mrc_host.nic.driver import Driver
from mrc_host.nic.verbs_error import VerbsError
from mrc_rtl.congestion.rows import ROWS, fixed_rows, state_of
from mrc_rtl.tables import CONGESTION_INDEX, TableId

__all__ = ["CongestionWindow", "WindowState"]

#: Rows that one command moves.
_WORDS = 16
_COMMANDS = ROWS // _WORDS


@dataclass(frozen=True)
class WindowState:
    """What a window says: bytes that may be in flight, bytes that are, the least round-trip time in ticks."""

    window: int
    in_flight: int
    base_rtt_ticks: int


class CongestionWindow:
    """The window of one queue pair in the gateware.

    Parameters
    ----------
    driver : Driver
    index : int
        Of the queue pair.

    Attributes
    ----------
    active : bool
        The queue pair has one.
    """

    def __init__(self, driver: Driver, index: int) -> None:
        self._driver = driver
        self._first = CONGESTION_INDEX + _COMMANDS * index
        self.active = False

    def start(self, row: Mapping[str, int], mtu: int) -> None:
        """Let it begin, full and empty of packets.

        Parameters
        ----------
        row : mapping
            Fields of table CC_PROFILE.
        mtu : int
            Bytes.

        Raises
        ------
        VerbsError
            EINVAL when the parameters do not go with the MTU or the engine's numbers.
        """
        profiles = CcProfiles()
        profiles.write(0, dict(row))
        parameters = profiles.parameters(0, mtu, 0)
        if parameters is None:
            raise VerbsError("EINVAL", "cc_profile.config", dict(row), f"within NSCC's limits for MTU {mtu}")
        rows = fixed_rows(fixed_parameters(parameters), mtu + HEADER_BYTES)
        self.end()
        # The last row of all starts it.
        for number in range(_COMMANDS):
            self._write(number, rows[_WORDS * number : _WORDS * (number + 1)])
        self.active = True

    def end(self) -> None:
        """Let the tracking range alone limit the queue pair."""
        if self.active:
            self._write(_COMMANDS - 1, [0] * _WORDS)
        self.active = False

    def read(self) -> WindowState:
        """Ask the engine (at once only)."""
        rows: list[int] = []
        for number in range(_COMMANDS):
            rows += self._driver.read_words(TableId.QP_SEND, self._first + number, _WORDS)
        state = state_of(rows)
        return WindowState(state["cwnd"] >> 8, state["in_flight"], state["base_rtt"])

    def _write(self, number: int, words: list[int]) -> None:
        self._driver.write_words(TableId.QP_SEND, self._first + number, words)
