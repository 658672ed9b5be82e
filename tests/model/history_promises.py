"""What model NICs promise whatever happens to them, checked while an experiment runs.

No byte is lost and none written twice; completions come in order and only after placement, and buffers are
the application's own again; entropy values change only as their states allow; trackers stay inside their
windows; counters add up.
"""

from collections import Counter

import numpy as np

from mrc_host.experiment.application import Application
from mrc_host.experiment.lockstep import Observer
from mrc_host.experiment.transfer import MESSAGE_BITS
from mrc_host.nic.device import CompletionStatus, WorkRequestOpcode
from mrc_rtl.records import PORT_COUNTERS, PortCounter, TraceKind
from mrc_rtl.wire import PSN_MASK

# PathState: ABSENT 0, GOOD 1, SKIP 2, ASSUMED_BAD 3, DENIED 4, BACKUP 5
LEGAL = {
    *((0, new) for new in (1, 4)),
    *((1, new) for new in (0, 2, 3, 4, 5)),
    *((2, new) for new in (0, 1, 3, 4, 5)),
    *((3, new) for new in (0, 1, 4)),
    *((4, new) for new in (0, 1)),
    *((5, new) for new in (0, 1, 4)),
}
STATES = ("ABSENT", "GOOD", "SKIP", "ASSUMED_BAD", "DENIED", "BACKUP")
NOT_YET = -1
US = 1_000_000
SETTLED_PS = 2 * US
"""From the time of an action until it must have taken effect, the host's latency of 1 us included."""


class Violation(AssertionError):
    """A promise was broken.

    Parameters
    ----------
    promise : str
        Which one.
    text : str
        How.
    """

    def __init__(self, promise, text):
        super().__init__(f"{promise}: {text}")
        self.promise = promise


class Placement:
    """When each byte of a flow was written."""

    def __init__(self, state):
        self.state = state
        self.times = np.full(max(1, state.flow.bytes), NOT_YET, np.int64)

    def write(self, time_ps, address, length):
        """Take note of a write into the flow's buffer, byte for byte."""
        begin = max(0, address - self.state.target.bus_address)
        times = self.times[begin : address + length - self.state.target.bus_address]
        if (times != NOT_YET).any():
            at = begin + int(np.argmax(times != NOT_YET))
            raise Violation(
                "bytes are written once", f"byte {at} of {self.state.flow.name} again at {time_ps}"
            )
        times[:] = time_ps

    def check(self, number, time_ps, what):
        """Check that a message stood in memory whole, and right, at a time."""
        offset = self.state.offsets[number]
        times = self.times[offset : offset + self.state.flow.plan[number].bytes]
        if (times == NOT_YET).any() or times.max(initial=NOT_YET) > time_ps:
            text = f"{what} of message {number} of {self.state.flow.name} at {time_ps}"
            raise Violation("completion comes after placement", text)


class Witness(Application):
    """The application of a host, with somebody who looks at everything it is told."""

    def __init__(self, application, placements):
        self.application = application
        self.placements = placements
        self.start, self.on_event = application.start, application.on_event
        self.handed_back = []

    def start(self, time_ps, host):
        """Replaced by the application's own."""

    def on_event(self, time_ps, event):
        """Replaced by the application's own."""

    @property
    def done(self):
        """Whether the application has nothing left to do."""
        return self.application.done

    def on_completion(self, time_ps, queue, completion):
        """Check a completion before the application sees it."""
        if completion.status is not CompletionStatus.SUCCESS:
            raise Violation("everything succeeds", f"{completion.opcode.name} was {completion.status.name}")
        if completion.opcode is WorkRequestOpcode.RECEIVE_IMM:
            self._received(time_ps, completion)
        else:
            self._sent(time_ps, completion)
        self.application.on_completion(time_ps, queue, completion)

    def _sent(self, time_ps, completion):
        flow, number = divmod(completion.wr_id, 1 << MESSAGE_BITS)
        state = next(state for state in self.application.outgoing if state.flow.number == flow)
        if number != state.sent:
            raise Violation("completions come in order", f"send {state.sent} is next, got {number}")
        self.placements[flow].check(number, time_ps, "send completion")
        # The buffer is the application's again: whoever reads it now reads something else.
        offset = state.offsets[number]
        part = state.source.data[offset : offset + state.flow.plan[number].bytes]
        part ^= 0xFF
        self.handed_back.append(part)

    def _received(self, time_ps, completion):
        incoming = self.application.incoming
        state = next(state for state in incoming if state.receiver.number == completion.qp_number)
        plan = state.flow.plan
        number = [place for place, message in enumerate(plan) if message.immediate][state.received]
        if (completion.immediate, completion.byte_length) != (number, plan[number].bytes):
            raise Violation(
                "completions come in order", f"receive of message {number} is next, got {completion}"
            )
        for earlier in range(number + 1):
            self.placements[state.flow.number].check(earlier, time_ps, f"receive completion {number}")

    def take_back(self):
        """Make the senders' buffers what they were, for the comparison at the end."""
        for part in self.handed_back:
            part ^= 0xFF


class Promises(Observer):
    """Looks at a run of models, and raises :class:`Violation`.

    Parameters
    ----------
    testbed : Testbed
        Set up; its hosts' applications are watched from now on.

    Attributes
    ----------
    seen : Counter
        How often what happened.
    """

    def __init__(self, testbed):
        self.testbed = testbed
        self.seen = Counter()
        self.states = [{} for _ in testbed.hosts]
        self.all_flows = {state.flow.number: Placement(state) for state in testbed.states}
        self.witnesses = []
        for host in testbed.hosts:
            host.application = Witness(host.application, self.all_flows)
            self.witnesses.append(host.application)
        self.denied = [{} for _ in testbed.hosts]
        self.values = next(iter(testbed.hosts[0].context.ev_profiles.values())).planes
        self.mrc = testbed.experiment.nic.model.get("spray_policy", "mrc") == "mrc"

    def started(self, start_ps, limit_ps):
        """Start what the experiment has planned."""
        self.testbed.start(start_ps, limit_ps)
        for action in self.testbed.experiment.script:
            if action.do == "deny_evs":
                end_us = action.to_us if action.to_us is not None else float("inf")
                for ev in action.ev:
                    self.denied[action.host].setdefault(ev, []).append(
                        (start_ps + action.from_us * US, start_ps + end_us * US)
                    )

    def watched(self, host, watches):
        """Note writes into receive buffers; the tags of completion queues are small."""
        for watch in watches:
            placement = self.all_flows.get(watch.tag - (1 << 16))
            if placement is not None:
                placement.write(watch.time_ps, watch.address, watch.length)
                note = self.witnesses[host].application.note_write
                note(watch.tag, watch.time_ps, watch.address, watch.length)

    def traced(self, host, records):
        """EVs change only as the state machine allows, and data leaves on GOOD ones only."""
        states = self.states[host]
        for record in records:
            if record.kind == TraceKind.EV_CHANGE:
                old, new = record.detail >> 32 & 15, record.detail >> 36 & 15
                key = record.qp, record.plane, record.psn
                known = states.get(key)
                if (old, new) not in LEGAL or (known is not None and known != old):
                    text = f"{key} of host {host} went from {old} to {new}, was {known}"
                    raise Violation("EVs change as their states allow", text)
                states[key] = new
                self.seen[f"EV {STATES[old]} to {STATES[new]}"] += 1
            elif record.kind == TraceKind.BIND and not record.detail >> 57 & 1 and self.mrc:
                self._check_ev(host, record, record.detail & 0xFFFFFFFF)

    def _check_ev(self, host, record, ev):
        """New data was bound to an EV: it must be GOOD, and not be denied."""
        place = self.values[record.plane].index(ev)
        state = self.states[host].get((record.qp, record.plane, place))
        if state not in (None, 1):
            text = f"host {host} sent on one in state {state} at {record.time_ps}"
            raise Violation("data leaves on GOOD EVs", text)
        spans = self.denied[host].get(ev, ())
        # Spans may overlap: an EV is allowed again at the end of the first one that ends.
        for begin, _ in spans:
            until = min((end for _, end in spans if end > begin), default=begin)
            if begin + SETTLED_PS < record.time_ps < until:
                text = f"host {host} sent on {ev:#x}, which it had denied, at {record.time_ps}"
                raise Violation("data leaves on GOOD EVs", text)

    def advanced(self, time_ps):
        """Look at the trackers of all QPs."""
        config = self.testbed.config
        for host, nic in enumerate(self.testbed.nics):
            for qp in nic._engine.requester.side.qps:
                if not 0 <= qp.tracker.outstanding <= config.mpr_psns:
                    text = f"QP {qp.index} of host {host} has {qp.tracker.outstanding} PSNs outstanding"
                    raise Violation("trackers stay inside the window", text)
                for words in qp.evs.planes:
                    if words.good & words.bad or words.good & words.denied or words.bad & words.denied:
                        raise Violation("EVs change as their states allow", f"QP {qp.index}: in two states")
                congestion = qp.congestion
                if congestion is not None and not config.mtu <= congestion.window < 1 << 24:
                    text = f"QP {qp.index} has a congestion window of {congestion.window}"
                    raise Violation("trackers stay inside the window", text)
            for index, qp in enumerate(nic._engine.responder.qps):
                ahead = qp.tracker.highest - qp.tracker.expected + 1 & PSN_MASK
                if ahead > config.mpr_psns:
                    text = f"QP {index} of host {host} placed one {ahead} PSNs above the cumulative one"
                    raise Violation("trackers stay inside the window", text)

    # -- at the end --------------------------------------------------------------------------------------

    def finish(self, result):
        """The run is over: everything was done, memory is right, and counters add up."""
        testbed = self.testbed
        if not result.finished:
            missing = [(s.flow.name, s.posted, s.sent, s.received, s.failure) for s in testbed.states]
            raise Violation(
                "everything ends", f"not done after {result.end_ps - result.start_ps} ps: {missing}"
            )
        for witness in self.witnesses:
            witness.take_back()
            application = witness.application
            found = application.verify()
            if found.mismatched or found.disturbed or application.unexpected_completions:
                text = f"host {application.number}: {found}, {application.unexpected_completions} completions"
                raise Violation("memory is right at the end", text)
        for state in testbed.states:
            if (self.all_flows[state.flow.number].times[: state.flow.bytes] == NOT_YET).any():
                raise Violation("bytes are written once", f"some of {state.flow.name} never were")
        self._check_counters()
        self._count()

    def _check_counters(self):
        """At one moment: frames go on to come and go while probes ask about paths."""
        sent = received = lost = 0
        for host, nic in enumerate(self.testbed.nics):
            counters = nic._engine.counters
            lost += nic.statistics.lost_link_down
            for plane in range(self.testbed.config.planes):
                port = counters[plane * PORT_COUNTERS : (plane + 1) * PORT_COUNTERS]
                outcomes = sum(port[PortCounter.ACCEPTED : PortCounter.TRIM_IGNORED + 1])
                if port[PortCounter.RX_FRAMES] != outcomes:
                    text = (
                        f"port {plane} of host {host} received {port[PortCounter.RX_FRAMES]}, not {outcomes}"
                    )
                    raise Violation("counters add up", text)
                kinds = (PortCounter.TX_DATA, PortCounter.TX_RETRANSMISSIONS, PortCounter.TX_CONTROL)
                if port[PortCounter.TX_FRAMES] != sum(port[kind] for kind in kinds):
                    raise Violation("counters add up", f"port {plane} of host {host} sent frames of no kind")
                sent += port[PortCounter.TX_FRAMES]
                received += port[PortCounter.RX_FRAMES]
                for kind in PortCounter:
                    self.seen[f"port counter {kind.name}"] += port[kind]
        totals = self.testbed.fabric.totals()
        if totals.entered + totals.added != totals.delivered + totals.dropped + totals.in_flight:
            raise Violation("counters add up", f"the fabric has {totals}")
        self.frames = (sent, received, lost, totals.entered, totals.delivered)

    def _count(self):
        for fault in self.testbed.faults.outcomes():
            self.seen[f"fault {fault.kind} met"] += fault.met
            self.seen[f"fault {fault.kind} hit"] += fault.hit
            self.seen["links down or up"] += fault.signals
        script = self.testbed.script
        for action, begun in zip(script.actions, script.begun, strict=True):
            self.seen[f"action {action.do}"] += begun
        for state in self.testbed.states:
            self.seen["writes"] += len(state.messages) - state.immediates
            self.seen["writes with immediate"] += state.immediates
        self.seen["flows"] += len(self.testbed.states)
        self.seen["histories"] += 1
