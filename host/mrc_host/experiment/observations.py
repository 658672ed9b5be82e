"""What a run recorded, as far as metrics need it."""

from __future__ import annotations

from dataclasses import dataclass, field

from mrc_host.experiment.nic_events import EventColumns, NicEvents
from mrc_host.experiment.packet_log import PacketColumns
from mrc_host.experiment.phases import PhaseTimes
from mrc_host.experiment.schema import Experiment
from mrc_host.experiment.transfer import FlowState, Verification
from mrc_host.fabric.topology import Topology
from mrc_rtl.config import NicConfig

__all__ = ["Observations"]


@dataclass
class Observations:
    """What a run recorded.

    Parameters
    ----------
    experiment : Experiment
        What was run.
    config : NicConfig
        Sizes of the NICs.
    topology : Topology
        Between them.
    states : list of FlowState
        Flows with the times of their messages.
    packets : PacketColumns
        Every packet at every NIC port.
    verifications : list of Verification
        By host.
    frames_dropped : int
        By the fabric.
    frames_discarded : int
        By the NICs.
    frames_marked, frames_trimmed, trimmed_headers_lost : int
        By switches; of those that were trimmed, what found no room after all.
    fault_hits : int
        Packets that a fault changed, delayed, repeated or lost.
    events : dict of arrays
        What NICs decided (:mod:`mrc_host.experiment.nic_events`).
    phases : list of PhaseTimes
        When phases of the workload happened.
    start_ps, end_ps : int
        Of the run.
    """

    experiment: Experiment
    config: NicConfig
    topology: Topology
    states: list[FlowState]
    packets: PacketColumns
    verifications: list[Verification]
    frames_dropped: int
    frames_discarded: int
    frames_marked: int = 0
    frames_trimmed: int = 0
    trimmed_headers_lost: int = 0
    fault_hits: int = 0
    events: EventColumns = field(default_factory=lambda: NicEvents().columns())
    phases: list[PhaseTimes] = field(default_factory=list)
    start_ps: int = 0
    end_ps: int = 0
