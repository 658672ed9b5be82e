"""What the requester remembers of each PSN it has sent."""

from functools import reduce
from operator import add

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import plane_bits
from .records import send_slot_bits, sent_record
from .sack_merge import WORD, WORD_LOG2, SackMerge

__all__ = ["TxTracker", "ev_check", "psn_attributes", "psn_blame"]

#: Bits that stand for an entropy value.
_CHECK = 11


def ev_check(ev: Value) -> Value:
    """Eleven bits of an entropy value, to tell an echo of the last transmission from one of another.

    Values that differ in one bit differ in the result, and so do those of an EV set in SRv6 mode with up to
    16 uplinks, replicas and 8 planes; of others one pair in 2,048 looks alike.
    """
    # Replica, uplink and plane come to stand in four, four and three bits of their own.
    return ev[:11] ^ ev[11:22].rotate_right(1) ^ Cat(ev[22:], Const(0, 1)).rotate_left(6)


def psn_attributes(config: NicConfig) -> data.StructLayout:
    """Of the last transmission of a PSN: its entropy value, when, and the times it was sent again (to 3).

    ``check`` stands for the value on the wire (:func:`ev_check`), which ``plane`` and ``ev_index`` name.
    ``lap`` is the PSN's lowest bit above its place in the ring: with another one, the PSN has not left yet.
    """
    return data.StructLayout(
        {
            "check": _CHECK,
            "lap": 1,
            "plane": plane_bits(config),
            "ev_index": 5,
            "time": 16,
            "retransmissions": 2,
        }
    )


def psn_blame(config: NicConfig) -> data.StructLayout:
    """What became of a PSN's first transmission.

    ``again``: it was, or is to be, sent again. ``lost``: it is taken for lost, on the entropy value that
    follows.
    """
    return data.StructLayout({"again": 1, "lost": 1, "plane": plane_bits(config), "ev_index": 5})


class TxTracker(wiring.Component):
    """Rings of per-PSN state, one per QP, in three memories.

    *Bits*: words of 8 PSNs, acked and queued (for retransmission). The ring is twice as long as the largest
    window, so the word of a PSN that is sent for the first time holds nothing of the window any more: it is
    cleared when its first PSN is sent, and nothing has to be cleared when the window moves. *Slots*: the send
    request of a PSN, written when the PSN is given out, and the blame for its loss. *Attributes*: written
    when bind sends it.

    All commands come from the sequencer, one at a time; only ``sent`` records of first transmissions are
    written on their own.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    look_qp, look_psn
        Look-up; one cycle later ``acked``, ``queued``, ``slot``, ``blame`` and ``attributes`` belong to that
        PSN.
    clear
        Clear the word of bits that holds the PSN looked up in the cycle before.
    give, give_slot
        Remember the send request of the PSN that is being looked up.
    set_queued, clear_queued
        Change the queued bit of the PSN looked up in the cycle before.
    set_blame, clear_blame
        The same for its blame; only that for a first transmission is remembered, until it is queued again.
    merge, merge_base, merge_bitmap, merge_unacked, merge_next, merge_new, merge_done, merge_beyond
        Mark the PSNs of a SACK bitmap for ``look_qp``, from ``merge_unacked`` to below ``merge_next``, as
        acked; keep all inputs until ``merge_done``. ``merge_new``: how many became acked in this cycle.
        ``merge_beyond``: the bitmap held PSNs never sent.
    sent : stream of sent_record, in
        First transmissions are taken at once; a retransmission waits for ``take_sent``, which the sequencer
        gives one cycle after it has looked the PSN up.
    take_sent : 1
    idle : 1

    Source: profile.md 3 and 4.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        slot = send_slot_bits(config)
        super().__init__(
            {
                "look_qp": In(config.qp_bits),
                "look_psn": In(24),
                "acked": Out(1),
                "queued": Out(1),
                "slot": Out(slot),
                "attributes": Out(psn_attributes(config)),
                "clear": In(1),
                "give": In(1),
                "give_slot": In(slot),
                "set_queued": In(1),
                "clear_queued": In(1),
                "blame": Out(psn_blame(config)),
                "set_blame": In(1),
                "clear_blame": In(1),
                "merge": In(1),
                "merge_base": In(24),
                "merge_bitmap": In(64),
                "merge_unacked": In(24),
                "merge_next": In(24),
                "merge_new": Out(range(WORD + 1)),
                "merge_done": Out(1),
                "merge_beyond": Out(1),
                "sent": In(stream.Signature(sent_record(config))),
                "take_sent": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        ring = config.psn_ring_bits

        # Bits
        depth = config.qps << (ring + 1 - WORD_LOG2)
        m.submodules.bits = bits = Memory(shape=2 * WORD, depth=depth, init=[])
        bits_read, bits_write = bits.read_port(), bits.write_port()
        m.submodules.merging = merging = SackMerge(config)
        looked_row = Signal.like(bits_read.addr)
        looked_bit = Signal(WORD_LOG2)
        m.d.sync += [looked_row.eq(bits_read.addr), looked_bit.eq(self.look_psn[:WORD_LOG2])]
        word_number = Mux(merging.busy, merging.word_number, self.look_psn[WORD_LOG2 : ring + 1])
        acked, queued = bits_read.data[:WORD], bits_read.data[WORD:]
        changed = Signal(WORD)
        kept = (~self.clear).replicate(WORD)
        m.d.comb += [
            merging.start.eq(self.merge),
            merging.base.eq(self.merge_base),
            merging.bitmap.eq(self.merge_bitmap),
            merging.unacked.eq(self.merge_unacked),
            merging.next.eq(self.merge_next),
            self.merge_new.eq(reduce(add, merging.bits & ~acked)),
            self.merge_done.eq(merging.done),
            self.merge_beyond.eq(merging.beyond),
            bits_read.addr.eq(Cat(word_number, self.look_qp)),
            self.acked.eq(acked.bit_select(looked_bit, 1)),
            self.queued.eq(queued.bit_select(looked_bit, 1)),
            # Every change is one of the word that was read in the cycle before.
            changed.eq(1 << looked_bit),
            bits_write.addr.eq(looked_row),
            bits_write.en.eq(merging.write | self.clear | self.set_queued | self.clear_queued),
            bits_write.data[:WORD].eq((acked | merging.bits) & kept),
            bits_write.data[WORD:].eq(
                (
                    (queued & ~(changed & self.clear_queued.replicate(WORD)))
                    | (changed & self.set_queued.replicate(WORD))
                )
                & kept
            ),
        ]

        # Slots
        slot_layout = data.StructLayout({"slot": send_slot_bits(config), "blame": psn_blame(config)})
        m.submodules.slots = slots = Memory(shape=slot_layout, depth=config.qps << ring, init=[])
        slot_read, slot_write = slots.read_port(), slots.write_port()
        given, given_slot = Signal(), Signal.like(self.give_slot)
        looked = Cat(looked_bit, looked_row[: ring - WORD_LOG2], looked_row[ring + 1 - WORD_LOG2 :])
        m.d.sync += [given.eq(self.give), given_slot.eq(self.give_slot)]
        m.d.comb += [
            slot_read.addr.eq(Cat(self.look_psn[:ring], self.look_qp)),
            self.slot.eq(slot_read.data.slot),
            self.blame.eq(slot_read.data.blame),
            # Every write is about the PSN that was read in the cycle before.
            slot_write.addr.eq(looked),
            slot_write.data.slot.eq(Mux(given, given_slot, slot_read.data.slot)),
            slot_write.data.blame.again.eq(~given & (self.set_queued | slot_read.data.blame.again)),
            slot_write.data.blame.lost.eq(self.set_blame & ~slot_read.data.blame.again),
            slot_write.data.blame.plane.eq(self.attributes.plane),
            slot_write.data.blame.ev_index.eq(self.attributes.ev_index),
            slot_write.en.eq(given | self.set_queued | self.set_blame | self.clear_blame),
        ]

        # Attributes
        m.submodules.attributes = attributes = Memory(
            shape=psn_attributes(config), depth=config.qps << ring, init=[]
        )
        attribute_read, attribute_write = attributes.read_port(), attributes.write_port()
        sent = self.sent.payload
        again = attribute_read.data.retransmissions
        first = Signal()
        m.d.comb += [
            first.eq(~sent.retransmission | sent.discard),
            self.sent.ready.eq(first | self.take_sent),
            attribute_read.addr.eq(Cat(self.look_psn[:ring], self.look_qp)),
            self.attributes.eq(attribute_read.data),
            attribute_write.addr.eq(Cat(sent.psn[:ring], sent.qp)),
            attribute_write.en.eq(self.sent.valid & self.sent.ready & ~sent.discard),
            attribute_write.data.check.eq(ev_check(sent.ev)),
            attribute_write.data.lap.eq(sent.psn[ring]),
            attribute_write.data.plane.eq(sent.plane),
            attribute_write.data.ev_index.eq(sent.ev_index),
            attribute_write.data.time.eq(sent.time),
            attribute_write.data.retransmissions.eq(Mux(first, 0, Mux(again == 3, 3, again + 1))),
            self.idle.eq(~self.sent.valid & ~merging.busy),
        ]
        return m
