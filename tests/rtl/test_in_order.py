"""Queue pairs whose writes are accepted in the order of their PSNs only.

Sweep: data widths 64 and 512, few QPs and more than distributed RAM holds. Stimulus: writes that come early,
again, trimmed and in order across the wrap of PSNs; the QP started anew; a QP of the other kind beside it.
Checks: outcome and answer of each; the NACK names the missing PSN and is said once a gap; nothing that
came early is placed. Timing: none.
"""

from typing import Any

import pytest

from admission_bench import FIRST_PSN, PSNS, QP, Bench, record
from mrc_rtl.config import QP_NUMBER_BASE
from mrc_rtl.records import AnswerKind, PortCounter, Trimmed
from mrc_rtl.tables import QpState

OTHER = 5


@pytest.mark.parametrize(("width", "qps"), [(64, 8), (64, 64), (512, 8)])
def test_writes_that_come_early_are_refused_and_the_gap_is_named_once(width: int, qps: int) -> None:
    bench = Bench(width, go_back_n=True, qps=qps)
    counter = PortCounter

    def placed() -> list[dict[str, int]]:
        """Commands that write, without those that only give room back."""
        return [place for place in bench.found["place"] if not place["drop"]]

    async def script(ctx: Any) -> None:
        async def arrives(
            offset: int, outcome: PortCounter, *answers: tuple[AnswerKind, int], **changes: int
        ) -> None:
            """A write comes; its outcome, and what it is answered by (kind, PSN from the first one)."""
            told = len(bench.found["refused"])
            assert await bench.outcome(ctx, record(psn=FIRST_PSN + offset, **changes)) == outcome, offset
            found = [(r["kind"], (r["psn"] - FIRST_PSN) % PSNS) for r in bench.found["refused"][told:]]
            assert found == list(answers), offset

        early = AnswerKind.NACK_PSN_OOR_WINDOW
        await bench.write_qp(ctx, in_order=1)
        await arrives(1, counter.DROP_WINDOW, (early, 0))
        await arrives(2, counter.DROP_WINDOW)
        await arrives(0, counter.ACCEPTED)
        # One that is claimed is no gap, though it is not in memory yet.
        await arrives(1, counter.ACCEPTED)
        await arrives(1, counter.DUPLICATE, (AnswerKind.SACK, 1))
        await arrives(4, counter.DROP_WINDOW, (early, 2))
        await arrives(3, counter.TRIMMED_ANSWERED, (AnswerKind.NACK_TRIMMED, 3), trimmed=Trimmed.FABRIC)
        await arrives(3, counter.DROP_WINDOW)
        await arrives(2, counter.ACCEPTED)
        await arrives(4, counter.DROP_WINDOW, (early, 3))
        assert len(placed()) == 3
        for place in placed():
            await bench.placed(ctx, place)
        # Its number says nothing of a QP that takes any order.
        await bench.write_qp(ctx, OTHER, peer_qpn=7)
        beside = record(psn=FIRST_PSN + 9, destination_qpn=QP_NUMBER_BASE + OTHER)
        assert await bench.outcome(ctx, beside) == counter.ACCEPTED
        # Anew: nothing is left of the gap that was told.
        await bench.placed(ctx, placed()[-1])
        await bench.write_qp(ctx, in_order=1, initial_psn=FIRST_PSN + 3)
        await arrives(4, counter.DROP_WINDOW, (early, 3))
        await arrives(3, counter.ACCEPTED)
        await bench.placed(ctx, placed()[-1])
        # And of the other kind.
        await bench.write_qp(ctx, in_order=0, state=QpState.RTR, initial_psn=FIRST_PSN)
        await arrives(4, counter.ACCEPTED)

    bench.run(script)


def test_psns_wrap() -> None:
    bench = Bench(64, go_back_n=True)

    async def script(ctx: Any) -> None:
        await bench.write_qp(ctx, QP, in_order=1, initial_psn=PSNS - 1)
        assert await bench.outcome(ctx, record(psn=0)) == PortCounter.DROP_WINDOW
        assert bench.found["refused"][-1]["psn"] == PSNS - 1
        assert await bench.outcome(ctx, record(psn=PSNS - 1)) == PortCounter.ACCEPTED
        assert await bench.outcome(ctx, record(psn=1)) == PortCounter.DROP_WINDOW
        assert bench.found["refused"][-1]["psn"] == 0
        assert await bench.outcome(ctx, record(psn=0)) == PortCounter.ACCEPTED

    bench.run(script)
