"""A path of the gateware that stops carrying, and carries again.

Stimulus: two pairs of engines exchange messages across T1 while one link between T0 and T1 is dead for a
while. Checks, from the trace of the engine and the frames at its ports: entropy values are given up by
timeouts; at most two packets leave on one after that is written; probes leave on the bad value itself, no
sooner than a base RTT later, and bring it back when the link is up again; every byte arrives.
Timing: the traced quickstart engine, shared with other tests; every run is bounded in simulated time.
"""

from collections import defaultdict
from dataclasses import replace

import pytest
from exchange import ACROSS, CONFIG, FOUR_HOSTS, MICROSECOND, Bed

from mrc_host.experiment.gateware_trace import as_of_model
from mrc_host.fabric.faults import FAULTS
from mrc_host.fabric.faults.running import RunningFaults
from mrc_host.model.ev_set import PathState
from mrc_host.nic.device import EvState
from mrc_host.nic.recorded import RecordedNic
from mrc_host.packets.codec import decode
from mrc_host.packets.peek import peek
from mrc_rtl.records import TraceKind
from mrc_rtl.wire import Opcode, has_payload

TRACED = replace(CONFIG, trace=True)
DEAD_US = 150
#: Between two probes of an EV that answer, as the register has it after reset.
INTERVAL_PS = 64 * MICROSECOND


@pytest.fixture(scope="module")
def bed():
    bed = Bed(
        FOUR_HOSTS, ACROSS, timeout=6, sizes=[65_536] * 24, config=TRACED, wrap=RecordedNic,
        memory={"size": 1 << 22},
    )  # fmt: skip
    fault = FAULTS["down"].model_validate(
        {"kind": "down", "link": "p1.t0.1-p1.t1.2", "from_us": 20, "to_us": 20 + DEAD_US}
    )
    faults = RunningFaults([fault], bed.fabric, 1)
    start = bed.applications[0].start

    def start_all(time_ps, host):
        bed.started_ps = time_ps
        faults.start(time_ps, 1 << 62)
        start(time_ps, host)

    bed.applications[0].start = start_all
    assert bed.run(limit_us=8000, drain_ps=1500 * MICROSECOND).finished
    return bed


def changes(bed, host):
    """Changes of EV states that a host's engine wrote: (time, plane, place, new state, value)."""
    application = bed.applications[host]
    entries = application.pair.attributes["ev_profile"].array.entries
    evs = [[e.key.value for e in entries if e.key.port == plane + 1] for plane in range(CONFIG.planes)]
    found = as_of_model(application.context.nic.trace, evs)
    return [
        (r.time_ps, r.plane, r.psn, PathState(r.detail >> 36), r.detail & 0xFFFF_FFFF)
        for r in found
        if r.kind == TraceKind.EV_CHANGE
    ]


def bad_times(bed, host):
    """Of each value that went bad: when, and when it came back."""
    spans = defaultdict(list)
    for time_ps, _, _, state, value in changes(bed, host):
        if state is PathState.ASSUMED_BAD:
            spans[value].append([time_ps, 1 << 62])
        elif value in spans and spans[value][-1][1] == 1 << 62:
            spans[value][-1][1] = time_ps
    return spans


def frames_of(bed, host):
    """(time of the last bit, header) of all that a host sent."""
    return [(time_ps, peek(data)) for sender, time_ps, _, _, data in bed.frames if sender == host]


def test_every_byte_arrives(bed):
    for item in bed.applications:
        item.check()


def test_paths_leave_and_come_back(bed):
    lost = [value for host in range(4) for value in bad_times(bed, host)]
    assert lost, "timeouts gave up some values"
    for host in range(4):
        for spans in bad_times(bed, host).values():
            assert all(last < 1 << 62 for _, last in spans), "each came back"
        answers = bed.applications[host].pair.attributes["ev_profile"].query_ev_array()
        assert all(answer.state is EvState.GOOD for answer in answers)


def test_nothing_but_probes_leaves_on_a_bad_path(bed):
    for host in range(4):
        frames = frames_of(bed, host)
        for value, spans in bad_times(bed, host).items():
            for first, last in spans:
                inside = [info for time_ps, info in frames if info.ev == value and first < time_ps < last]
                assert sum(has_payload(info.opcode) for info in inside) <= 2
                # Sooner only a packet that did arrive takes the blame back.
                if last - first > 2 * INTERVAL_PS:
                    assert sum(info.opcode == Opcode.PROBE for info in inside) >= 3


def test_probes_wait_for_a_round_trip(bed):
    for host in range(4):
        probes = []
        for sender, time_ps, _, _, data in bed.frames:
            if sender == host and peek(data).opcode == Opcode.PROBE:
                packet = decode(data, start="ethernet")
                if packet["peth"]["probe_id"] >> 15:  # not one of the tail
                    probes.append((time_ps, packet.ev))
        spans = bad_times(bed, host)
        base_ps = bed.applications[host].context.settings.base_rtt_ps
        for time_ps, value in probes:
            begun = [first for first, last in spans[value] if first < time_ps <= last + base_ps]
            assert begun and time_ps - begun[-1] >= base_ps
