"""Plays frames of an attacker to a NIC that serves a good peer, and checks all that must hold.

After every batch: the good messages of both directions have completed and are whole; memory holds what it
held before, those messages, and the payload of the attacker's accepted writes, and nothing else; every frame
has exactly one outcome, the one that was predicted; the NIC rests.
"""

import random
from collections import Counter

from fuzz_bed import GOOD_PSN, PLANES, Bed, Broken, outcomes
from fuzz_craft import Crafter
from fuzz_frames import Attacker
from fuzz_oracle import ASK_AGAIN, Oracle

from mrc_host.nic.device import QpState
from mrc_rtl import wire
from mrc_rtl.records import PortCounter

BATCH = 500
LONGEST_MESSAGE = 12_000
ROOM = 48_000
MTU = 4096
AFTERLIFE = 8
"""Frames the attacker sends on when its queue pair is in ERROR, before it is connected anew."""
LIFE = 0.15
"""Share of batches behind which the attacker's queue pair is connected anew although it is well."""


class Play:
    """One NIC and what happened to it.

    Parameters
    ----------
    kind : str
        "rtl" or "model".
    memory : dict
        Options of its host memory.
    """

    def __init__(self, kind, **memory):
        self.bed = Bed(kind, **memory)
        self.oracle = Oracle(self.bed)
        self.attacker = Attacker(Crafter(), self.bed.regions)
        self.number = 0
        self.sent = 0
        self.good_packets = 0
        self.played = []
        self.ended_in_error = False
        self._good_psn = GOOD_PSN
        self.total = Counter()
        self.bed.take_image()
        self._dead = 0
        self._before = self._outcomes()

    def draw(self, rng, count):
        """So many frames for the next batch, each drawn when the one before it has been judged."""
        for _ in range(count):
            yield self.attacker.frame(rng, self.oracle.expected)

    def batch(self, frames):
        """Play some frames and check everything; Broken says what is wrong."""
        bed, oracle = self.bed, self.oracle
        draw = random.Random(self.number)
        to_nic, from_nic = draw.randrange(1, LONGEST_MESSAGE), draw.randrange(1, LONGEST_MESSAGE)
        packets = -(-to_nic // MTU)
        oracle.good_expected = (self._good_psn, self._good_psn + packets & wire.PSN_MASK)
        self._good_psn = oracle.good_expected[1]
        self.good_packets += packets
        for plane in range(PLANES):
            bed.delivered_good[plane].clear()
        self._expected = [Counter() for _ in range(PLANES)]
        self._open = [Counter() for _ in range(PLANES)]
        bed.post(to_nic, from_nic, draw.randrange(ROOM), 0xABC if draw.random() < 0.5 else None)
        self._stage = [[] for _ in range(PLANES)]
        played = []
        self.played.append(played)
        for frame in frames:
            played.append(frame)
            self._take(frame)
        self._flush()
        bed.until(lambda: bed.completed and not bed.busy)
        bed.settle()
        bed.until(lambda: not bed.busy)
        bed.settle()
        bed.check_messages()
        bed.check_memory()
        self._check_outcomes()
        bed.check_surroundings()
        self._check_target(False)
        bed.target_queue.poll(256)
        self.number += 1
        self.ended_in_error = oracle.in_error
        if oracle.in_error or oracle.immediates or draw.random() < LIFE:
            self._renew()

    def _take(self, frame):
        oracle = self.oracle
        verdict = oracle.judge(frame)
        if verdict is ASK_AGAIN:
            self._flush()
            verdict = oracle.judge(frame)
        if verdict is None:
            return
        if verdict.alone:
            self._flush()
        oracle.accept(verdict)
        self.sent += 1
        if len(verdict.outcomes) == 1:
            self._expected[frame.plane][verdict.outcomes[0]] += 1
        else:
            self._open[frame.plane][verdict.outcomes] += 1
        if verdict.content is not None:
            at, content = verdict.content
            self.bed.image[at : at + len(content)] = memoryview(content)
        self._stage[frame.plane].append(frame)
        if verdict.alone:
            self._flush()
            self._check_target(verdict.fails)

        if oracle.in_error:
            self._dead += 1
            if self._dead == AFTERLIFE:
                self._flush()
                self._renew()

    def _renew(self):
        self._dead = 0
        self.bed.renew_target()
        self.oracle.renewed()

    def _flush(self):
        """Deliver what is staged, and wait until it is decided."""
        bed, stage = self.bed, self._stage
        if any(stage):
            bed.until(lambda: not any(stage) and max(bed.free[0]) <= bed.now, stage, "the line")
            bed.settle()
        self.oracle.settled()

    def _check_target(self, fails):
        """The attacker's queue pair is in the state it must be in."""
        if self.oracle.in_error:
            return
        self.bed.nic.context.poll_events()
        self.bed.align()
        state = self.bed.target.state
        if fails is not None and (state is QpState.ERROR) != fails:
            wanted = "ERROR" if fails else "RTS"
            raise Broken(f"the attacker's queue pair must be in {wanted}, got {state.name}")
        self.oracle.in_error = state is QpState.ERROR

    def _outcomes(self):
        counters = self.bed.counters()
        return [Counter(outcomes(counters, port)) for port in range(PLANES)]

    def _check_outcomes(self):
        after = self._outcomes()
        for port in range(PLANES):
            found = Counter(after[port])
            found.subtract(self._before[port])
            rest = Counter(found)
            rest.subtract(self._expected[port])
            good = self.bed.delivered_good[port]
            frames = rest.pop(PortCounter.RX_FRAMES)
            unsure = self._open[port]
            want = sum(self._expected[port].values()) + len(good) + unsure.total()
            if frames != want:
                raise Broken(f"port {port} must count {want} frames, got {frames}")
            writes = sum(map(wire.is_write, good))
            rest[PortCounter.CONTROL] -= len(good) - writes
            # What the good peer sent again, if it did, is a duplicate.
            accepted = min(writes, rest[PortCounter.ACCEPTED])
            rest[PortCounter.ACCEPTED] -= accepted
            rest[PortCounter.DUPLICATE] -= writes - accepted
            allowed = {outcome for group in unsure for outcome in group}
            wrong = {
                outcome.name.lower(): left
                for outcome, left in rest.items()
                if left < 0 or left and outcome not in allowed
            }
            if wrong or rest.total() != unsure.total():
                differences = ", ".join(f"{name} {left:+}" for name, left in wrong.items())
                raise Broken(f"outcomes of port {port} must be as predicted, got {differences or rest}")
            self.total.update(found)
        self._before = after

    def close(self):
        self.bed.close()
