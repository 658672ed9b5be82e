"""Deliberate faults of the gateware, one at a time, and the tests of `make test` that cover their blocks."""

from typing import NamedTuple

__all__ = ["COVERING", "FAULTS", "QUICK", "Fault"]


class Fault(NamedTuple):
    """A change of one place that must not go unnoticed.

    Parameters
    ----------
    name : str
        Of the journal and of the command line.
    file : str
        Below rtl/mrc_rtl.
    old, new : str
        The text, which stands in the file exactly once, and what replaces it.
    breaks : str
        What goes wrong then.
    """

    name: str
    file: str
    old: str
    new: str
    breaks: str


COVERING = {
    "paths/spray.py": ("tb/test_bind.py::test_bind[2]", "tb/test_bind.py::test_bind[4]"),
    "requester/sack_merge.py": ("tests/rtl/test_requester_parts.py", "tb/test_requester.py"),
    "requester/tx_tracker.py": ("tests/rtl/test_requester_parts.py", "tb/test_requester.py"),
    "responder/rx_tracker.py": ("tests/rtl/test_rx_tracker.py", "tests/rtl/test_admission.py"),
    "responder/placed_step.py": ("tests/rtl/test_rx_tracker.py",),
    "responder/psn_ring.py": ("tests/rtl/test_rx_tracker.py", "tests/rtl/test_admission.py"),
    "responder/admit.py": (
        "tests/rtl/test_admission.py", "tests/rtl/test_admission_answers.py",
        "tests/rtl/test_admission_load.py",
    ),
    "responder/verdict.py": ("tests/rtl/test_admission.py", "tests/rtl/test_admission_answers.py"),
    "responder/claim_bits.py": ("tests/rtl/test_admission.py",),
    "responder/nack_limit.py": ("tests/rtl/test_admission_answers.py",),
    "responder/buffer_ledger.py": ("tests/rtl/test_admission.py",),
    "responder/placement.py": ("tests/rtl/test_placement.py",),
    "responder/placement_lanes.py": ("tests/rtl/test_placement.py",),
    "responder/placement_slots.py": ("tests/rtl/test_placement.py",),
    "responder/sack.py": ("tests/rtl/test_sack.py",),
    "responder/sack_triggers.py": ("tests/rtl/test_sack.py",),
    "responder/sack_bitmap.py": ("tests/rtl/test_rx_tracker.py",),
}  # fmt: skip
"""File → the tests that cover it, the quicker ones first. A mutant runs them until one fails."""

QUICK = ("claim-sticks", "run-stops-short", "strobes-one-late", "marks-not-echoed")
"""One of each of four blocks, noticed within seconds: those of the continuous integration."""

_SPRAY, _MERGE, _TX = "paths/spray.py", "requester/sack_merge.py", "requester/tx_tracker.py"
_RX, _STEP, _RING = "responder/rx_tracker.py", "responder/placed_step.py", "responder/psn_ring.py"
_ADMIT, _VERDICT, _CLAIM = "responder/admit.py", "responder/verdict.py", "responder/claim_bits.py"
_LIMIT, _LEDGER = "responder/nack_limit.py", "responder/buffer_ledger.py"
_PLACE, _LANES, _SLOTS = (f"responder/placement{part}.py" for part in ("", "_lanes", "_slots"))
_SACK, _TRIGGERS, _BITMAP = "responder/sack.py", "responder/sack_triggers.py", "responder/sack_bitmap.py"

FAULTS = (
    # Pick
    Fault("round-forgets-a-plane", _SPRAY, "Mux(began, chosen, served | chosen)",
          "Mux(began, chosen, chosen)", "a plane gets two packets in a round"),
    Fault("plane-without-room", _SPRAY, "candidates.eq(self.room & Mux(new_round, self.usable, due))",
          "candidates.eq(Mux(new_round, self.usable, due))", "a full plane is picked"),
    Fault("unusable-plane", _SPRAY, "due.eq(self.usable & ~served)", "due.eq(~served)",
          "a plane that is down or has no entropy value is picked"),
    Fault("ev-behind-ignored", _SPRAY, "> at[3:]) for g in range(4)", ">= at[3:]) for g in range(4)",
          "entropy values come twice in a rotation"),
    Fault("ev-place-strict", _SPRAY, ">= at[:3] for n in range(8)", "> at[:3] for n in range(8)",
          "an entropy value is left out of a rotation"),
    Fault("skip-of-another-group", _SPRAY, "inside_skip.eq(self.word.skip.word_select(first_group, 8))",
          "inside_skip.eq(self.word.skip[:8])", "values that were told to be skipped are used"),
    Fault("key-never-new", _SPRAY, "self.new_place.hash.eq(Mux(more, hash_then, redraw(hash_then)))",
          "self.new_place.hash.eq(hash_then)", "the permutation stays the same"),
    Fault("rotation-stands", _SPRAY, "self.new_place.place.eq(Mux(more, place + 1, 0))",
          "self.new_place.place.eq(Mux(more, place, 0))", "one entropy value is used all the time"),
    # TX tracker
    Fault("merge-next-included", _MERGE, "self.bits.eq(cut & allowed & ~excess)",
          "self.bits.eq(cut & allowed)", "a PSN never sent counts as acknowledged"),
    Fault("merge-below-unacked", _MERGE, "too_far.eq(cut & allowed & excess)", "too_far.eq(cut & excess)",
          "old bits of a bitmap count as PSNs never sent"),
    Fault("merge-shift-lost", _MERGE, "before.eq(at_hand)", "before.eq(0)",
          "bits of a bitmap that does not begin at a word are lost"),
    Fault("merge-short", _MERGE, "with m.If(count == _BITMAP // WORD):",
          "with m.If(count == _BITMAP // WORD - 1):", "the last word of a bitmap is left out"),
    Fault("clear-keeps-queued", _TX, "                )\n                & kept", "                )",
          "a new PSN counts as queued for retransmission"),
    Fault("acked-forgotten", _TX, "bits_write.data[:WORD].eq((acked | merging.bits) & kept)",
          "bits_write.data[:WORD].eq(merging.bits & kept)", "acknowledged PSNs are sent again"),
    Fault("retransmissions-wrap", _TX, "Mux(first, 0, Mux(again == 3, 3, again + 1))",
          "Mux(first, 0, again)", "retransmissions of a PSN are not counted"),
    # RX tracker
    Fault("run-stops-short", _STEP, "self.run_end.eq(thermometer_count(run))",
          "self.run_end.eq(thermometer_count(run >> 1))", "the cumulative PSN stays behind"),
    Fault("lap-not-turned", _STEP, "Mux(self.lap, self.word.placed & ~bit, self.word.placed | bit)",
          "self.word.placed | bit", "PSNs of every other lap are lost"),
    Fault("last-lost", _STEP, "last_word = (self.word.last & ~bit) |", "last_word = self.word.last |",
          "ends of messages of the last lap count again"),
    Fault("newer-turned", _STEP, "self.newer.eq((self.highest - psn)[near - 1])",
          "self.newer.eq((psn - self.highest)[near - 1])", "the highest PSN goes back"),
    Fault("above-not-raised", _STEP, "self.new_above.eq(self.above - Mux(self.is_next, passed, -1))",
          "self.new_above.eq(self.above - Mux(self.is_next, passed, 0))",
          "packets out of order are not counted"),
    Fault("failed-write-placed", _RX, "with m.If(placed.error):", "with m.If(0):",
          "a packet whose write failed is acknowledged"),
    Fault("walk-stays-in-word", _RX, "more = step.is_next & step.whole", "more = Const(0)",
          "the cumulative PSN stops at the end of a word"),
    Fault("bytes-twice", _RX, "contexts.write_received.eq(~step.walking)", "contexts.write_received.eq(1)",
          "received bytes are counted with every word that is passed"),
    Fault("clear-lap", _RING, "^ (self.word < first)", "^ (self.word <= first)",
          "a new QP finds PSNs placed that were not"),
    # Admit
    Fault("window-too-long", _ADMIT, "inside.eq(~distance[config.psn_ring_bits :].any())",
          "inside.eq(~distance[config.psn_ring_bits + 1 :].any())", "a PSN outside the window is placed"),
    Fault("half-is-below", _ADMIT, "below.eq(distance[-1] & distance[:-1].any())", "below.eq(distance[-1])",
          "the PSN opposite counts as a duplicate"),
    Fault("beats-not-given-back", _ADMIT, "gives_up.eq(decided & ~places)", "gives_up.eq(0)",
          "the packet buffer fills with what was dropped"),
    Fault("region-unchecked", _ADMIT, "region_ok.eq(~has_region | self.region_answer.payload.ok)",
          "region_ok.eq(1)", "a write outside its memory region is placed"),
    Fault("owes-ignored", _ADMIT, "verdict.wants_place & place_free & ~owes)",
          "verdict.wants_place & place_free)", "payload of a dropped packet is written for the next one"),
    Fault("claim-late", _ADMIT, "claims.claim.eq(places)", "claims.claim.eq(places & ~packet.immediate)",
          "a packet with an immediate is placed twice"),
    Fault("crowded-unanswered", _ADMIT, "verdict.answers | crowded, verdict.fails",
          "verdict.answers, verdict.fails", "a packet without room is not asked for again"),
    Fault("in-flight-leaks", _ADMIT, "contexts.left.eq(decided & ~places)",
          "contexts.left.eq(decided & ~places & ~verdict.fails)", "a QP that failed can never start again"),
    Fault("claim-sticks", _CLAIM, "toggled.eq(read.data ^ (1 << bit))", "toggled.eq(read.data | (1 << bit))",
          "PSNs of every other lap are never claimed"),
    Fault("trim-claims", _VERDICT, "with m.Elif(trimmed):", "with m.Elif(0):", "a trimmed packet is placed"),
    Fault("error-state-taken", _VERDICT, "with m.If(packet.from_peer & ~self.receiving):",
          "with m.If(packet.from_peer & ~self.receiving & ~self.in_error):",
          "a QP in ERROR goes on receiving"),
    Fault("duplicate-below-no-ack", _VERDICT, "Mux(self.below, AnswerKind.SACK_AND_ACK, AnswerKind.SACK)",
          "AnswerKind.SACK", "a lost transport ACK is never repeated"),
    Fault("nack-unlimited", _LIMIT, "self.may.eq(~told | (since >= self.interval))", "self.may.eq(1)",
          "a NACK for every packet outside the window"),
    Fault("ledger-rounds-down", _LEDGER, "carry.eq(~self.add | self.length[:lane_bits].any())",
          "carry.eq(~self.add)", "the last beat of a dropped packet stays in the buffer"),
    # Placement
    Fault("burst-crosses-page", _PLACE, "_BOUNDARY = 4096", "_BOUNDARY = 8192", "a burst crosses 4 KiB"),
    Fault("spill-forgotten", _PLACE, "take.eq(issue & ~(last & spills) & (command.plane == number))",
          "take.eq(issue & (command.plane == number))", "a beat of the next packet is lost"),
    Fault("drop-written", _PLACE, "lanes.valid.eq(issue & ~command.drop)", "lanes.valid.eq(issue)",
          "a dropped packet is written"),
    Fault("wrong-plane", _PLACE, "lanes.plane.eq(command.plane)", "lanes.plane.eq(0)",
          "payload of another plane is written"),
    Fault("error-unseen", _PLACE, "slots.bad.eq(self.write.bresp[1])", "slots.bad.eq(0)",
          "a write that failed counts as placed"),
    Fault("strobes-one-late", _LANES, "lane > self.end", "lane >= self.end", "the last byte is not written"),
    Fault("strobes-open", _LANES, "~((self.first & below) | (self.last & above))", "~(self.last & above)",
          "bytes before the packet are overwritten"),
    Fault("answer-of-another", _SLOTS, "Mux(self.open, self.opened, self.answered)",
          "Mux(self.open, self.opened, self.asked)", "a packet is reported before its bytes are there"),
    # SACK
    Fault("offset-not-held", _SACK, "Mux(distance[-1] & ~distance[15:].all(), 0x8000, distance)",
          "distance", "a far duplicate is echoed as another PSN"),
    Fault("marks-not-echoed", _SACK, "Mux(trigger.marked, wire.Mark.SKIP_ONCE, wire.Mark.NONE)",
          "wire.Mark.NONE", "congestion marks are lost"),
    Fault("time-not-zero", _SACK, "Mux(trigger.timestamped, trigger.age + self.now[16:32], 0)",
          "trigger.age + self.now[16:32]", "a round-trip time without a timestamp"),
    Fault("ack-for-ever", _TRIGGERS, "new.ack.eq(wants_ack & ~taken)", "new.ack.eq(wants_ack)",
          "every SACK comes with a transport ACK"),
    Fault("excess-forgotten", _TRIGGERS, "Mux(taken, 0, Mux(over, excess, old.count))",
          "Mux(taken, 0, Mux(over, 0, old.count))", "SACKs become rarer than the threshold says"),
    Fault("planes-not-in-turn", _TRIGGERS, "(is_turn & (due | old.owed))", "(due | old.owed)",
          "echoes leave planes out"),
    Fault("bound-stays", _BITMAP, "probe.eq(Mux(passed_by, self.expected, self.lowest))",
          "probe.eq(self.lowest)", "a bitmap begins behind the window"),
    Fault("lap-of-bitmap", _BITMAP, "shown.eq(self.view & self.below)", "shown.eq(self.view)",
          "PSNs behind the window show as placed"),
)  # fmt: skip
