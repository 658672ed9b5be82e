"""Rows of a QP's congestion window: its state and parameters, and how numbers lie in them.

A row has 36 bits, a signed number. Bytes have 8 fraction bits, ticks of 128 ns lie from bit 20 on (a
round-trip time of 12 bits ends where 24 bits of bytes end), received units of 256 bytes from bit 12 on (so
that their differences are signed ones of 24 bits).

Source: nscc.md 2.1, 2.2 and 2.7.
"""

from collections.abc import Mapping
from enum import IntEnum

__all__ = ["BYTES", "ROW_BITS", "ROWS", "TICKS", "UNITS", "Row", "fixed_rows", "row_values", "state_of"]

#: Bits of a row.
ROW_BITS = 36

#: Rows of a QP.
ROWS = 64

#: Lowest bit of a number of bytes, of ticks, and of units of 256 bytes.
BYTES, TICKS, UNITS = 8, 20, 12


class Row(IntEnum):
    """Where what stands. The low three bits of the FULL rows and of ONE are the packets they stand for."""

    ZERO = 0
    ONE = 1  # nothing, too: the packet that may leave when any may
    FULL2 = 2
    # State
    FULL3 = 3  # three full packets
    CWND = 4
    SAVED = 5
    MAX_WINDOW = 6
    GATE = 7
    IN_FLIGHT = 8
    FULL = 9
    ACHIEVED = 10
    IGNORED = 11
    TO_IGNORE = 12
    FAST_COUNT = 13
    RECEIVED = 14
    BASE_RTT = 15
    AVERAGE = 16
    INCREASE = 17
    LAST_ADJUST = 18
    LAST_DECREASE = 19
    EPOCH_END = 20
    LAST_UNITS = 21
    FAST = 22
    TRIGGER = 23
    QUARTER_RTT = 24
    # Of one event
    DELTA = 25
    DELAY = 26
    FIRST = 27
    SECOND = 28
    # Parameters
    MTU = 29
    TARGET = 30
    CONFIGURED_RTT = 31
    LEAST_RTT = 32
    PER_TICK = 33
    GATE_PER_TICK = 34
    ALPHA = 35
    FI = 36
    ETA = 37
    FI_SCALE = 38
    GAMMA = 39
    JUMP = 40
    ADJUST_BYTES = 41
    PERIOD = 42
    QA_THRESHOLD = 43
    # Constants
    UNIT = 44  # one
    ALL_SET = 45  # 2^24 - 1 bytes
    MOST_UNITS = 46  # 2^16 - 1 units
    RAISED = 47  # the flags FAST and TRIGGER
    WHOLE = 48  # a factor of 1
    LARGEST_DELAY = 49
    NO_DELAY = 50  # least delay that is one
    THIRTEEN = 51
    HALF = 52
    FRACTION = 53  # what a window's fraction may be
    # Zero in the memory: reading one reads a field of the event instead.
    EVENT_UNITS = 56
    EVENT_RTT = 57
    EVENT_NOW = 58
    EVENT_SIZE = 59
    EVENT_SENT = 60
    EVENT_PENALTY = 61
    #: 1: the QP has a window; writing it starts it anew or ends it.
    ENABLED = 63


#: Constants of the algorithm. Ticks below 8 (1.024 us) are no delay; the filter is 13/1024, rounded.
_CONSTANTS = {
    Row.UNIT: 1,
    Row.ALL_SET: (1 << 24) - 1 << BYTES,
    Row.MOST_UNITS: 0xFFFF << UNITS,
    Row.RAISED: -1 << ROW_BITS - 1,
    Row.WHOLE: 1 << 16,
    Row.LARGEST_DELAY: 4095 << TICKS,
    Row.NO_DELAY: 8 << TICKS,
    Row.THIRTEEN: 13 << 28,
    Row.HALF: 512 << BYTES,
    Row.FRACTION: 255,
}

#: Parameters by their names in :func:`fixed_rows`, with the place of their lowest bit.
_PARAMETERS = {
    "mtu": (Row.MTU, BYTES),
    "target": (Row.TARGET, TICKS),
    "configured_rtt": (Row.CONFIGURED_RTT, TICKS),
    "least_rtt": (Row.LEAST_RTT, TICKS),
    "per_tick": (Row.PER_TICK, 0),
    "gate_per_tick": (Row.GATE_PER_TICK, 0),
    "alpha": (Row.ALPHA, 0),
    "fi": (Row.FI, 0),
    "eta": (Row.ETA, 0),
    "fi_scale": (Row.FI_SCALE, 4),
    "gamma": (Row.GAMMA, 23),
    "jump": (Row.JUMP, 0),
    "adjust_bytes": (Row.ADJUST_BYTES, BYTES),
    "period": (Row.PERIOD, TICKS),
    "qa_threshold": (Row.QA_THRESHOLD, TICKS),
}

#: State by name, with the place of the lowest bit.
_STATE = {
    "cwnd": (Row.CWND, 0),
    "saved": (Row.SAVED, 0),
    "largest": (Row.MAX_WINDOW, 0),
    "gate": (Row.GATE, 0),
    "in_flight": (Row.IN_FLIGHT, BYTES),
    "achieved": (Row.ACHIEVED, BYTES),
    "ignored": (Row.IGNORED, BYTES),
    "to_ignore": (Row.TO_IGNORE, BYTES),
    "fast_count": (Row.FAST_COUNT, BYTES),
    "received": (Row.RECEIVED, BYTES),
    "base_rtt": (Row.BASE_RTT, TICKS),
    "average": (Row.AVERAGE, 8),
    "increase": (Row.INCREASE, 0),
    "last_units": (Row.LAST_UNITS, UNITS),
    "last_adjust": (Row.LAST_ADJUST, TICKS),
    "last_decrease": (Row.LAST_DECREASE, TICKS),
    "epoch_end": (Row.EPOCH_END, TICKS),
    "fast": (Row.FAST, ROW_BITS - 1),
    "trigger": (Row.TRIGGER, ROW_BITS - 1),
}

_MASK = (1 << ROW_BITS) - 1


def fixed_rows(parameters: Mapping[str, int], full_packet: int) -> list[int]:
    """All rows of a QP whose window begins; the engine itself enters the time.

    Parameters
    ----------
    parameters : mapping
        The integers of the fixed-point model by name, :data:`_PARAMETERS`, and ``largest`` and ``gate``.
    full_packet : int
        Bytes that a packet of one MTU counts for windows.
    """
    rows = [0] * ROWS
    for row, value in _CONSTANTS.items():
        rows[row] = value & _MASK
    for name, (row, low) in _PARAMETERS.items():
        rows[row] = parameters[name] << low & _MASK
    for row, packets in ((Row.FULL, 1), (Row.FULL2, 2), (Row.FULL3, 3)):
        rows[row] = packets * full_packet << BYTES
    rows[Row.CWND] = rows[Row.MAX_WINDOW] = parameters["largest"]
    rows[Row.GATE] = parameters["gate"]
    # The first epoch only starts the clock: nobody achieves so much that it counts as little.
    rows[Row.ACHIEVED] = rows[Row.ALL_SET]
    rows[Row.BASE_RTT] = rows[Row.CONFIGURED_RTT]
    rows[Row.QUARTER_RTT] = rows[Row.CONFIGURED_RTT] >> 2
    rows[Row.ENABLED] = 1
    return rows


def row_values(name: str) -> tuple[Row, int]:
    """Row of a state by its name in the model, and the place of its lowest bit."""
    return _STATE[name]


def state_of(rows: Mapping[int, int] | list[int]) -> dict[str, int]:
    """The model's state by name from the rows of a QP."""
    return {name: (rows[row] & _MASK) >> low for name, (row, low) in _STATE.items()}
