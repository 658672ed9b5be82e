"""Mistakes a model could make: each one a patch on a method, to see that histories notice it.

The classes must be plain Python: a process that uses this sets MRC_COMPILED=0.
"""

import sys
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from history import failure_of, play, watch
from history_draw import draw_history
from history_promises import Violation

from mrc_host.experiment.load import load_experiment
from mrc_host.model.engine import ModelEngine
from mrc_host.model.ev_set import EvSet, PathState
from mrc_host.model.immediates import Immediates
from mrc_host.model.receive_tracker import ReceiveTracker
from mrc_host.model.regions import HostMemory
from mrc_host.model.requester import ModelRequester
from mrc_host.model.responder import ModelResponder
from mrc_host.model.send_side import SendSide
from mrc_rtl.records import PortCounter
from mrc_rtl.wire import PSN_MASK

MUTANTS = {}
"""Mistakes by name: the promise that must be found broken, class, method, and what stands in its place."""


def mutant(promise, owner, method):
    """Make a mistake known; the function is given the method it replaces, and returns another."""

    def register(make):
        MUTANTS[make.__name__] = (promise, owner, method, make)
        return make

    return register


def planted(name):
    """Return a context manager in which a mistake stands in the model."""
    _, owner, method, make = MUTANTS[name]
    stack = ExitStack()
    stack.enter_context(mock.patch.object(owner, method, make(getattr(owner, method))))
    return stack


@mutant("bytes are written once", ModelResponder, "_count")
def writes_duplicates(original):
    """A duplicate is answered and counted as it should be, and written again."""

    def count(responder, packet, outcome):
        if outcome == PortCounter.DUPLICATE and packet.length:
            domain, length = responder.qps[packet.qp].protection_domain, packet.length
            at = responder._regions.translate(packet.remote_key, domain, packet.address, length, True)
            responder._memory.write(at, packet.payload)
            responder._memory.watches(responder._shell.now_ps, at, length, responder._watches)
        original(responder, packet, outcome)

    return count


@mutant("completion comes after placement", SendSide, "complete_up_to")
def completes_sends_early(original):
    """A cumulative acknowledgement covers four packets more than it says."""
    return lambda side, qp, psn: original(side, qp, psn + 4 & PSN_MASK)


@mutant("completion comes after placement", Immediates, "advance")
def completes_receives_early(original):
    """A message counts as placed while two of its packets are missing."""
    return lambda stash, expected, found: original(stash, expected + 2 & PSN_MASK, found)


@mutant("completions come in order", ModelEngine, "complete")
def swaps_completions(original):
    """Every second completion overtakes the one before."""
    held = []

    def complete(engine, *fields, **named):
        held.append((engine, fields, named))
        if len(held) == 2:
            for one, values, names in held[::-1]:
                original(one, *values, **names)
            held.clear()

    return complete


@mutant("data leaves on GOOD EVs", EvSet, "deny")
def forgets_denials(original):
    """The controller's word is not heard."""
    return lambda evs, index: None


@mutant("EVs change as their states allow", EvSet, "lost")
def condemns_denied_evs(original):
    """A packet that is lost makes an EV ASSUMED_BAD although it is DENIED."""

    def lost(evs, index):
        if evs.state(index) is PathState.DENIED:
            evs._retire(index, PathState.ASSUMED_BAD)
        return original(evs, index)

    return lost


@mutant("counters add up", ModelEngine, "count_port")
def forgets_duplicates_in_counters(original):
    """A duplicate is not counted."""

    def count_port(engine, plane, counter):
        if counter != PortCounter.DUPLICATE:
            original(engine, plane, counter)

    return count_port


@mutant("memory is right at the end", HostMemory, "write")
def flips_a_bit(original):
    """The last byte of a long write is wrong."""

    def write(memory, address, payload):
        wrong = bytes(payload)
        if len(wrong) > 200:
            wrong = wrong[:-1] + bytes((wrong[-1] ^ 1,))
        return original(memory, address, wrong)

    return write


@mutant("memory is right at the end", HostMemory, "write")
def writes_too_much(original):
    """A short write leaves a byte behind its end."""

    def write(memory, address, payload):
        return original(memory, address, bytes(payload) + b"x" * (len(payload) < 4))

    return write


@mutant("completion comes after placement", ReceiveTracker, "place")
def skips_a_hole(original):
    """The cumulative PSN goes on over a missing packet when two wait above it."""

    def place(tracker, psn, last, nominal):
        passed = original(tracker, psn, last, nominal)
        if tracker.out_of_order > 2:
            tracker.expected = tracker.expected + 1 & PSN_MASK
        return passed

    return place


@mutant("everything ends", ModelRequester, "on_ack")
def ignores_transport_acknowledgements(original):
    """Transport ACKs are not looked at."""
    return lambda requester, qp, packet: None


def find(name, seeds):
    """Play histories until one finds a mistake; return its seed and failure, or None."""
    with planted(name):
        for seed in range(seeds):
            failure = failure_of(draw_history(seed))
            if failure is not None and failure[0] == MUTANTS[name][0]:
                return seed, failure[1]
    return None


def main(arguments):
    """``find NAME SEEDS``, ``shrink NAME SEED DIRECTORY`` or ``file NAME FILE``."""
    what, name, *others = arguments
    if what == "find":
        found = find(name, int(others[0]))
        print(f"{name}: {found}")
        return 0 if found else 1
    with planted(name):
        if what == "file":
            watch(load_experiment(Path(others[0])))
            return 0
        try:
            play(int(others[0]), Path(others[1]))
        except Violation as violation:
            print(violation)
            return 0
    print(f"{name}: seed {others[0]} does not find it")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
