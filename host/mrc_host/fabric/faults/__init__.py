"""Faults: what can go wrong on a fabric, as timed events on a place of it.

Every kind is one class in one file of this package that registers itself under a name
(:func:`~mrc_host.fabric.faults.base.register_fault`); all of them are imported here. To add one, add a file.

* :mod:`~mrc_host.fabric.faults.base`: what all kinds have in common, and the registry;
* :mod:`~mrc_host.fabric.faults.selection`: which directions of links a place means;
* :mod:`~mrc_host.fabric.faults.running`: faults of a run, their counters, and what NICs are told.
"""

from __future__ import annotations

import importlib
import pkgutil

from mrc_host.fabric.faults.base import FAULTS, FaultSpec, check_fault, register_fault

__all__ = ["FAULTS", "FaultSpec", "check_fault", "register_fault"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
