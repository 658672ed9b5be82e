"""The end of admission's checks: what becomes of a packet, and what it is answered by."""

from typing import Any

from amaranth.hdl import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..records import AnswerKind, PortCounter, Trimmed
from .admitted import admitted

__all__ = ["Verdict"]


class Verdict(wiring.Component):
    """One outcome for each packet, from what was found out about it; no state.

    Order of the checks of a write: state of the QP, window, duplicate, trimmed, order, room, region. A
    write that passes them all is to be placed; should the placement have no room for it, ``answer`` is its
    NACK.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    packet : admitted
    receiving, in_error : 1
        State of its QP.
    inside, below, claimed : 1
        Its PSN lies in the window; lies below the expected one; was accepted before.
    region_ok : 1
        It may be written where it wants to.
    out_of_order : 1
        Its QP accepts another PSN next, and nothing else.
    told : 1
        The peer knows that.
    may_nack : 1
        A NACK that is limited to one a base RTT and QP may go out.
    wants_place : 1
        It is to be placed; otherwise ``outcome`` counts.
    outcome : PortCounter
    answers, answer : 1, AnswerKind
        It is answered.
    limited : 1
        That answer is one of the limited ones.
    early : 1
        It is refused as out of order.
    fails : 1
        Its QP goes to ERROR: remote access.

    Source: protocol.md 3.2, 3.5, 7 (Q5); profile.md 5; design, rules 1, 3 and 8.
    """

    def __init__(self, config: NicConfig) -> None:
        super().__init__(
            {
                "packet": In(admitted(config)),
                "receiving": In(1),
                "in_error": In(1),
                "inside": In(1),
                "below": In(1),
                "claimed": In(1),
                "region_ok": In(1),
                "out_of_order": In(1),
                "told": In(1),
                "may_nack": In(1),
                "wants_place": Out(1),
                "outcome": Out(PortCounter),
                "answers": Out(1),
                "answer": Out(AnswerKind),
                "limited": Out(1),
                "early": Out(1),
                "fails": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        packet = self.packet
        trimmed = (packet.trimmed == Trimmed.FABRIC) | (packet.trimmed == Trimmed.LAST_HOP)
        m.d.comb += self.outcome.eq(packet.outcome)
        with m.If(packet.from_peer & ~self.receiving):
            m.d.comb += [
                self.outcome.eq(PortCounter.DROP_QP),
                self.answer.eq(AnswerKind.NACK_UNEXP_EVENT),
                self.answers.eq(self.in_error & self.may_nack),
                self.limited.eq(1),
            ]
        with m.Elif(packet.outcome != PortCounter.ACCEPTED):
            m.d.comb += [
                self.answers.eq(packet.probe | packet.request),
                self.answer.eq(Mux(packet.probe, AnswerKind.SACK_OF_PROBE, AnswerKind.ENDPOINT_RESPONSE)),
            ]
        with m.Elif(~self.inside & ~self.below):
            m.d.comb += [
                self.outcome.eq(PortCounter.DROP_WINDOW),
                self.answer.eq(AnswerKind.NACK_PSN_OOR_WINDOW),
                self.answers.eq(self.may_nack),
                self.limited.eq(1),
            ]
        with m.Elif(self.below | self.claimed):
            m.d.comb += [
                self.outcome.eq(Mux(trimmed, PortCounter.TRIMMED_ANSWERED, PortCounter.DUPLICATE)),
                self.answer.eq(Mux(self.below, AnswerKind.SACK_AND_ACK, AnswerKind.SACK)),
                self.answers.eq(1),
            ]
        with m.Elif(trimmed):
            in_fabric = packet.trimmed == Trimmed.FABRIC
            m.d.comb += [
                self.outcome.eq(PortCounter.TRIMMED_ANSWERED),
                self.answer.eq(Mux(in_fabric, AnswerKind.NACK_TRIMMED, AnswerKind.NACK_TRIMMED_LASTHOP)),
                self.answers.eq(1),
            ]
        with m.Elif(self.out_of_order):
            m.d.comb += [
                self.outcome.eq(PortCounter.DROP_WINDOW),
                self.answer.eq(AnswerKind.NACK_PSN_OOR_WINDOW),
                self.answers.eq(~self.told),
                self.early.eq(1),
            ]
        with m.Elif(packet.trimmed == Trimmed.NO_ROOM):
            m.d.comb += [
                self.outcome.eq(PortCounter.DROP_NO_PKT_BUFFER),
                self.answer.eq(AnswerKind.NACK_NO_PKT_BUFFER),
                self.answers.eq(1),
            ]
        with m.Elif(~self.region_ok):
            m.d.comb += [
                self.outcome.eq(PortCounter.DROP_ACCESS),
                self.answer.eq(AnswerKind.NAK_REMOTE_ACCESS),
                self.answers.eq(1),
                self.fails.eq(1),
            ]
        with m.Else():
            m.d.comb += [self.wants_place.eq(1), self.answer.eq(AnswerKind.NACK_NO_PKT_BUFFER)]
        return m
