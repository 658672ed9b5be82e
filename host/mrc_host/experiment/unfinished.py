"""The watchdog: names the flows of a run that did not finish, and what each of them waits for.

It goes by what the run recorded, so it says the same of gateware and of models: which message is the first
that is not complete, whether software could post it, whether its packets left, whether they arrived, and
which answer is missing.

Source: lab.md 5, "time-outs that say which stage".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrc_host.experiment import analysis
from mrc_host.experiment.nic_events import EventColumns, ev_changes
from mrc_host.experiment.packet_log import PacketColumns
from mrc_host.experiment.transfer import FlowState
from mrc_host.model.ev_set import PathState
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.wire import PSN_MASK, Opcode

__all__ = ["Unfinished", "unfinished_flows"]

_FIRSTS = [int(o) for o in Opcode if o.name.startswith(("WRITE_FIRST", "WRITE_ONLY"))]
_ANSWERS = [int(o) for o in (Opcode.SACK, Opcode.NACK, Opcode.ACKNOWLEDGE)]


@dataclass(frozen=True)
class Unfinished:
    """A flow that did not finish.

    Parameters
    ----------
    flow : str
        Its name.
    completed, messages : int
        Messages complete at both ends, and all of them.
    message : int
        The first that is not complete.
    stage : str
        given up, posting, sending, arriving, completing or acknowledging.
    waits_for : str
        What it waits for, in words.
    qp, psn : int or None
        The sender's QP and the packet that is missing, for ``mrc why``.
    """

    flow: str
    completed: int
    messages: int
    message: int
    stage: str
    waits_for: str
    qp: int | None = None
    psn: int | None = None


def unfinished_flows(
    states: Sequence[FlowState], packets: PacketColumns, events: EventColumns, start_ps: int, mtu: int
) -> list[Unfinished]:
    """Return the flows that are not complete, in order of their numbers.

    Parameters
    ----------
    states : sequence of FlowState
        All flows.
    packets, events : dict of arrays
        What the run recorded.
    start_ps : int
        Start of the run.
    mtu : int
        Payload of a full packet.
    """
    found = []
    for state in states:
        done = set(state.completed_messages)
        if len(done) == len(state.messages):
            continue
        number = next(place for place in range(len(state.messages)) if place not in done)
        stage, text, psn = _stage(state, number, packets, events, start_ps, mtu)
        qp = None if state.sender is None else state.sender.number
        found.append(
            Unfinished(state.flow.name, len(done), len(state.messages), number, stage, text, qp, psn)
        )
    return found


def _stage(
    state: FlowState, number: int, packets: PacketColumns, events: EventColumns, start_ps: int, mtu: int
) -> tuple[str, str, int | None]:
    message = state.messages[number]
    if state.failure:
        return "given up", f"nothing more, it was given up: {state.failure}", None
    if message.posted_ps is None:
        return "posting", _posting(state, number, start_ps), None
    flow = state.flow
    qp = None if state.receiver is None else state.receiver.number
    sent = analysis.data_of_flow(packets, flow.source, flow.target, arrived=False, qp=qp)
    psns = analysis.unwrap_psns(sent["psn"])
    begins = np.sort(psns[np.isin(sent["opcode"], _FIRSTS) & (sent["retransmission"] == 0)])
    size = flow.plan[number].bytes
    count = max(1, -(-size // mtu))
    posted = f"message {number}, posted at {_us(message.posted_ps, start_ps)}"
    if number >= len(begins):
        return "sending", f"the NIC to send {posted}: {_held_back(state, psns, packets, events)}", None
    first = int(begins[number])
    wanted = np.arange(first, first + count)
    left = np.isin(wanted, psns)
    arrivals = analysis.data_of_flow(packets, flow.source, flow.target, arrived=True, qp=qp)
    intact = arrivals["psn"][arrivals["trimmed"] == 0]
    arrived = np.isin(wanted & PSN_MASK, intact)
    missing = wanted[left & ~arrived]
    if len(missing):
        psn = int(missing[0])
        return "arriving", _missing(sent, psns, arrivals, psn, start_ps), psn & PSN_MASK
    if not left.all():
        rest = int(np.count_nonzero(~left))
        why = _held_back(state, psns, packets, events)
        return "sending", f"the NIC to send {rest} of {count} packets of {posted}: {why}", None
    last = f"all {count} packets of message {number} have arrived"
    if flow.plan[number].immediate and message.receiver_done_ps is None:
        return "completing", f"the receiver's completion: {last}", None
    return "acknowledging", f"the sender's completion (transport ACK): {last}", None


def _posting(state: FlowState, number: int, start_ps: int) -> str:
    plan = state.flow.plan[number]
    if plan.needs >= 0:
        return f"a message that message {number} needs to arrive at h{state.flow.source} first"
    if plan.phase:
        return f"phase {plan.phase} to begin: messages of the phases before are not complete"
    if plan.after_ps:
        return f"its time: message {number} may be posted {plan.after_ps / 1e6:g} µs after the start"
    return f"message {number} to be posted: {state.posted - state.sent} are posted and not complete"


def _held_back(
    state: FlowState, psns: analysis.Integers, packets: PacketColumns, events: EventColumns
) -> str:
    """Say what may keep a sender from sending."""
    flow = state.flow
    if not len(psns):
        return "it has sent nothing to this peer"
    reasons = []
    if state.sender is not None:
        qp = state.sender.number - QP_NUMBER_BASE
        latest = {
            (c.plane, c.place): c.new for c in ev_changes(events) if (c.host, c.qp) == (flow.source, qp)
        }
        bad = sum(new == PathState.ASSUMED_BAD for new in latest.values())
        reasons += [f"{bad} of its EVs are ASSUMED_BAD"] if bad else []
    back = (packets["arrived"] == 1) & (packets["nic"] == flow.source) & (packets["source"] == flow.target)
    if not (back & np.isin(packets["opcode"], _ANSWERS)).any():
        reasons.append(f"no answer of h{flow.target} ever arrived")
    highest = int(psns.max())
    reasons.append(
        f"the highest PSN sent is {highest & PSN_MASK:#08x}; its windows are full or it has no path"
    )
    return ", ".join(reasons)


def _missing(
    sent: PacketColumns, psns: analysis.Integers, arrivals: PacketColumns, psn: int, start_ps: int
) -> str:
    mine = np.flatnonzero(psns == psn)
    last = int(mine[-1])
    cut = int(np.count_nonzero((arrivals["psn"] == psn & PSN_MASK) & (arrivals["trimmed"] == 1)))
    times = "once" if len(mine) == 1 else f"{len(mine)} times"
    text = (
        f"packet {psn & PSN_MASK:#08x} to arrive: sent {times}, last at "
        f"{_us(int(sent['time_ps'][last]), start_ps)} on plane {int(sent['plane'][last])} "
        f"with EV {int(sent['ev'][last]):#010x}"
    )
    return text + (f"; {cut} arrived cut" if cut else "")


def _us(time_ps: int, start_ps: int) -> str:
    return f"{(time_ps - start_ps) / 1e6:.3f} µs"
