"""Finds the QPs that are connected with a host: for an endpoint request, which names none."""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import tables
from ..config import NicConfig
from ..entry_memory import ENTRY_WORDS
from ..records import peer_query, peer_update
from .receive_contexts import context_word, is_receiving

__all__ = ["PeerSearch", "share_contexts"]

#: Where a search begins is remembered for so many groups of sources.
_HINTS = 8


class PeerSearch(wiring.Component):
    """Compares one QP's peer after the other with an address, in cycles in which nobody reads the contexts.

    Where a peer's address takes two rows of the contexts, the upper half is compared first, a QP a cycle, and
    the lower half only when that fits. A search begins with the QP that was found last for a source with the
    same low bits in the middle of its address, where the address plan has the host's number: requests of a
    few peers are answered without a walk. A host without a QP costs a walk over all of them.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    start, query : 1, records.peer_query
        Pulse, while not ``busy``.
    enable, row, qp, grant, data : context read port
        ``grant``: the row asked for comes in the next cycle.
    state : 3
        State of ``qp``, one cycle later.
    busy : 1
        From ``start`` until ``taken``.
    done, found, found_qp : 1, 1, qp
        The search is over, until ``taken``.
    taken : 1
    last : qp
        The QP that was found last.
    update : records.peer_update
    updates : 1
        Pulse: what a QP's peer told of its ports.

    Source: protocol.md 1.13; profile.md 9 (a received mask acts only on QPs of that source address).
    """

    def __init__(self, config: NicConfig) -> None:
        self._config = config
        self._row_words = min(config.data_width // 64, ENTRY_WORDS)
        super().__init__(
            {
                "start": In(1),
                "query": In(peer_query(config)),
                "enable": Out(1),
                "row": Out(max(1, (ENTRY_WORDS // self._row_words - 1).bit_length())),
                "qp": Out(config.qp_bits),
                "grant": In(1),
                "data": In(64 * self._row_words),
                "state": In(3),
                "busy": Out(1),
                "done": Out(1),
                "found": Out(1),
                "found_qp": Out(config.qp_bits),
                "taken": In(1),
                "last": Out(config.qp_bits),
                "update": Out(peer_update(config)),
                "updates": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self._config
        field = tables.QP_RECEIVE.field
        high_row, low_row = (field(name).word // self._row_words for name in ("peer_high", "peer_low"))
        split = high_row != low_row
        query = Signal(self.query.shape(), reset_less=True)
        address = Value.cast(query.source)
        with m.If(self.start):
            m.d.sync += query.eq(self.query)

        hint_bits = (_HINTS - 1).bit_length()
        group = address[64 : 64 + hint_bits]
        asked = Value.cast(self.query.source)[64 : 64 + hint_bits]
        hints = Array(Signal(config.qp_bits, name=f"hint{n}") for n in range(_HINTS))

        # The walk, three stages: asked for, there, compared.
        walking = Signal()
        asks = Signal()
        left = Signal(range(config.qps + 1))
        candidate = Signal(config.qp_bits)
        there = Signal()
        there_qp = Signal(config.qp_bits)
        compared = Signal()
        compared_qp = Signal(config.qp_bits)
        equal = Signal()
        fits = Signal()
        checked = Signal(config.qp_bits)
        halves = {"peer_high": address[64:], "peer_low": address[:64]}
        at_first = ("peer_high",) if split else tuple(halves)
        m.d.comb += [
            fits.eq(compared & equal),
            asks.eq(walking & ~fits & (left != 0)),
            self.enable.eq(asks),
            self.row.eq(high_row),
            self.qp.eq(candidate),
            self.last.eq(self.found_qp),
            self.update.qp.eq(checked),
            self.update.reachable.eq(query.reachable),
        ]
        m.d.sync += [
            there.eq(asks & self.grant),
            there_qp.eq(candidate),
            compared.eq(there & ~fits),
            compared_qp.eq(there_qp),
            equal.eq(
                Cat(context_word(self.data, name) == halves[name] for name in at_first).all()
                & is_receiving(self.state)
            ),
        ]
        with m.If(asks & self.grant):
            m.d.sync += [candidate.eq(candidate + 1), left.eq(left - 1)]

        match = Signal()
        with m.FSM() as states:
            with m.State("IDLE"):
                m.d.sync += [self.found.eq(0), candidate.eq(hints[asked]), left.eq(config.qps)]
                with m.If(self.start):
                    m.next = "WALK"
            with m.State("WALK"):
                m.d.comb += walking.eq(1)
                with m.If(fits):
                    # The one behind it, if it is there already, is asked for again.
                    m.d.sync += [
                        checked.eq(compared_qp),
                        candidate.eq(compared_qp + 1),
                        left.eq(left + there),
                    ]
                    m.d.sync += match.eq(1)
                    m.next = "ASK" if split else "JUDGE"
                with m.Elif((left == 0) & ~there & ~compared):
                    m.next = "DONE"
            if split:
                with m.State("ASK"):
                    m.d.comb += [self.enable.eq(1), self.row.eq(low_row), self.qp.eq(checked)]
                    with m.If(self.grant):
                        m.next = "COMPARE"
                with m.State("COMPARE"):
                    m.d.sync += match.eq(context_word(self.data, "peer_low") == halves["peer_low"])
                    m.next = "JUDGE"
            with m.State("JUDGE"):
                m.d.comb += self.updates.eq(match & query.updates)
                with m.If(match):
                    m.d.sync += [self.found.eq(1), self.found_qp.eq(checked), hints[group].eq(checked)]
                with m.If(match & ~query.updates):
                    m.next = "DONE"
                with m.Else():
                    m.next = "WALK"
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                with m.If(self.taken):
                    m.next = "IDLE"
        m.d.comb += self.busy.eq(~states.ongoing("IDLE"))
        return m


def share_contexts(m: Module, intake: Any, search: PeerSearch, contexts: Any) -> None:
    """Let intake read the contexts when it wants to, and a search in the cycles between."""
    port = contexts.context
    m.d.comb += [
        port.reading.eq(intake.reading | (search.busy & ~search.done)),
        port.enable.eq(intake.enable | search.enable),
        port.qp.eq(Mux(intake.enable, intake.qp, search.qp)),
        port.row.eq(Mux(intake.enable, intake.row, search.row)),
        port.state_enable.eq(intake.state_enable),
        search.grant.eq(search.enable & ~intake.enable),
        *(reader.data.eq(port.data) for reader in (intake, search)),
        intake.state.eq(port.state),
        intake.busy.eq(port.busy),
        contexts.state_enable[1].eq(search.busy),
        contexts.state_qp[1].eq(search.qp),
        search.state.eq(contexts.state[1]),
    ]
