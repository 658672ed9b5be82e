"""Declarations of the shim's C interface (``shim/interface.cpp``), for ctypes.

Structures here and in the shim have the same members in the same order; :func:`load` gives every function its
types. ctypes releases the interpreter lock during a call, so that several NICs run at the same time.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path

__all__ = ["Counters", "MemoryParameters", "OutputViews", "Parameters", "View", "load"]


class MemoryParameters(ctypes.Structure):
    """``shim::MemoryParameters``."""

    _fields_ = [
        ("bytes", c_void_p),
        ("size", c_int64),
        ("read_latency", c_int64),
        ("write_latency", c_int64),
        ("latency_jitter", c_int64),
        ("outstanding", c_int64),
        ("stall_period", c_int64),
        ("stall_cycles", c_int64),
        ("stall_share", c_int64),
        ("seed", c_uint64),
    ]


class Parameters(ctypes.Structure):
    """``shim::Parameters``."""

    _fields_ = [
        ("period", c_int64),
        ("cycles_per_tick", c_int64),
        ("byte_numerator", c_int64),
        ("byte_denominator", c_int64),
        ("fifo_bytes", c_int64),
        ("skip_idle", c_int64),
        ("memory", MemoryParameters),
    ]


class Counters(ctypes.Structure):
    """``shim::Counters``; the members are those of :class:`mrc_host.nic.base.Statistics`."""

    _fields_ = [
        (name, c_int64)
        for name in (
            "cycles_clocked", "cycles_skipped",
            "underruns", "lost_link_down", "receive_stalls", "transmit_bad",
            "memory_reads", "memory_writes", "memory_read_beats", "memory_write_beats", "memory_outside",
            "memory_violations",
        )
    ]  # fmt: skip


class View(ctypes.Structure):
    """A flat array of records inside the shim."""

    _fields_ = [("records", c_void_p), ("count", c_int64)]


class OutputViews(ctypes.Structure):
    """``Outputs`` of the shim."""

    _fields_ = [
        (name, View) for name in ("frames", "frame_bytes", "watches", "accesses", "traces", "interrupts")
    ]


_FUNCTIONS: dict[str, tuple[object, list[object]]] = {
    "mrc_create": (c_void_p, [POINTER(Parameters)]),
    "mrc_destroy": (None, [c_void_p]),
    "mrc_run": (None, [c_void_p, c_int64]),
    "mrc_settle": (c_int, [c_void_p, c_int64, c_int]),
    "mrc_time": (c_int64, [c_void_p]),
    "mrc_next_activity": (c_int64, [c_void_p]),
    "mrc_deliver": (c_int, [c_void_p, c_int, c_int64, c_char_p, c_int64, c_int]),
    "mrc_schedule_link": (None, [c_void_p, c_int64, c_int, c_int]),
    "mrc_schedule_access": (
        None,
        [c_void_p, c_int64, c_int, c_uint32, c_uint32, c_int64],
    ),
    "mrc_watch": (None, [c_void_p, c_int64, c_int64, c_int64]),
    "mrc_unwatch": (None, [c_void_p, c_int64]),
    "mrc_fail_memory": (None, [c_void_p, c_int64, c_int64]),
    "mrc_clear_memory_errors": (None, [c_void_p]),
    "mrc_outputs": (None, [c_void_p, POINTER(OutputViews)]),
    "mrc_clear_outputs": (None, [c_void_p]),
    "mrc_counters": (None, [c_void_p, POINTER(Counters)]),
    "mrc_stimulus_create": (c_void_p, []),
    "mrc_stimulus_destroy": (None, [c_void_p]),
    "mrc_record": (None, [c_void_p, c_void_p]),
    "mrc_stimulus_cycles": (c_int64, [c_void_p]),
    "mrc_replay": (c_uint64, [c_void_p, c_int]),
}


@cache
def load(path: Path) -> ctypes.CDLL:
    """Load the library of an engine and declare its functions."""
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
