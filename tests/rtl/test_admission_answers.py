"""What admission answers beside writes that it takes: probes, endpoint requests, and refusals by NACK.

Sweep: data widths 64, 128 and 512. Stimulus: reliability probes; endpoint requests of hosts with no, one and
several QPs, of the NIC itself, and responses; writes outside the window and for a QP in ERROR, at times
around the base RTT; writes that found no room. Checks: outcome and answer of each, which QPs learn of a
peer's ports, how often a limited NACK goes out. Timing: requests of one peer take at most K cycles each.
"""

from typing import Any

import pytest

from admission_bench import BASE_RTT, FIRST_PSN, OWN, PEER, PSNS, QP, Bench, record
from mrc_rtl import wire
from mrc_rtl.records import AnswerKind, PortCounter, Trimmed
from mrc_rtl.tables import QpState
from mrc_rtl.wire import EndpointOp, NackReason, Opcode
from record_benches import send

STRANGER = wire.inner_address(3 + 8)  # in the same group of the search as the peer
FAR = PEER ^ 1  # differs in the lower half only


def request(number: int, operation: int = EndpointOp.EV_PROBE, **changes: Any) -> dict[str, int]:
    """An endpoint request, as a record."""
    erth = {"op": operation, "port_status_mask": changes.pop("mask", 0), "tx_timestamp": 0x7001}
    fields = {
        "destination_qpn": wire.ENDPOINT_QPN, "length": 0, "timestamped": 0,
        "headers": {"erth": {**erth, "ftype": changes.pop("ftype", 1)}}, **changes,
    }  # fmt: skip
    return record(Opcode.ENDPOINT_REQUEST, number, **fields)


def probe(number: int, **changes: Any) -> dict[str, int]:
    """A reliability probe, as a record."""
    peth = {"probe_id": number, "tx_timestamp": 0x7001, "ftype": changes.pop("ftype", 1)}
    return record(Opcode.PROBE, 0, length=0, timestamped=0, headers={"peth": peth}, **changes)


class Updates:
    """A background bench that writes down what QPs learn of their peer's ports."""

    def __init__(self, bench: Bench) -> None:
        self._admission = bench.core.admission
        self.found: list[tuple[int, int]] = []

    async def run(self, ctx: Any) -> None:
        update = self._admission.update
        while True:
            *_, valid, qp, mask = await ctx.tick().sample(
                self._admission.updates, update.qp, update.reachable
            )
            if valid:
                self.found.append((qp, mask))


@pytest.mark.parametrize("width", [64, 128, 512])
def test_reliability_probes(width: int) -> None:
    bench = Bench(width)

    async def script(ctx: Any) -> None:
        assert await bench.outcome(ctx, probe(0xFFEE, marked=1), 1) == PortCounter.CONTROL
        assert await bench.outcome(ctx, probe(7, ftype=0)) == PortCounter.CONTROL
        assert await bench.outcome(ctx, probe(7, source=FAR)) == PortCounter.DROP_PEER
        first, second = bench.found["refused"]
        assert first["kind"] == second["kind"] == AnswerKind.SACK_OF_PROBE
        assert (first["qp"], first["psn"], first["plane"], first["marked"]) == (QP, 0xFFEE, 1, 1)
        assert (first["timestamped"], first["age"]) == (1, 0x7001 - 77)
        assert (second["psn"], second["marked"], second["timestamped"]) == (7, 0, 0)

    bench.run(script)


@pytest.mark.parametrize("width", [64, 128, 512])
def test_endpoint_requests(width: int) -> None:
    bench = Bench(width)
    updates = Updates(bench)

    async def script(ctx: Any) -> None:
        await bench.write_qp(ctx, 0, peer_low=FAR & (1 << 64) - 1)
        for qp in (4, 6):
            await bench.write_qp(ctx, qp)
        await bench.write_qp(ctx, 7, state=QpState.INIT)
        await send(ctx, bench.core.admission.error_in, qp=4, reason=1)
        cases = [
            (request(1), PortCounter.CONTROL, PEER, 1),
            (request(2, source=STRANGER), PortCounter.DROP_PEER, 0, 0),
            (request(3, source=FAR), PortCounter.CONTROL, FAR, 1),
            (request(4, EndpointOp.PORT_STATUS_UPDATE, mask=0xFFFF_FFF2), PortCounter.CONTROL, PEER, 0),
            (request(5, source=OWN), PortCounter.CONTROL, 0, 0),
            (request(6, destination_qpn=0x101), PortCounter.DROP_QP, 0, 0),
            (request(7, 3, ftype=0), PortCounter.CONTROL, PEER, 3),
            (record(Opcode.ENDPOINT_RESPONSE, 8, destination_qpn=2, source=STRANGER, length=0),
             PortCounter.CONTROL, 0, 0),
            (record(Opcode.WRITE_ONLY, destination_qpn=2), PortCounter.DROP_QP, 0, 0),
        ]  # fmt: skip
        expected = []
        for number, (packet, outcome, source, operation) in enumerate(cases):
            assert await bench.outcome(ctx, packet, number % 2) == outcome, number
            if source:
                expected.append((packet, source, operation, number % 2))
        assert len(bench.found["refused"]) == len(expected)
        for answer, (packet, source, operation, plane) in zip(bench.found["refused"], expected, strict=True):
            assert answer["kind"] == AnswerKind.ENDPOINT_RESPONSE
            assert answer["qp"] in ((0,) if source == FAR else (QP, 6))
            assert (answer["psn"], answer["plane"], answer["ev"]) == (packet["psn"], plane, packet["ev"])
            assert (answer["marked"], answer["retransmission"]) == (operation & 1, operation >> 1)
            assert answer["timestamped"] == (packet["psn"] != 7)
            assert answer["age"] == 0x7001 - 77
        # What the peer said of its ports is for the QPs that are connected with it.
        assert sorted(updates.found) == [(QP, 0b10), (6, 0b10)]
        assert ctx.get(bench.core.admission.idle)

    bench.run(script, updates.run)


def test_requests_between_writes_keep_their_order() -> None:
    bench = Bench()

    async def script(ctx: Any) -> None:
        for number in range(6):
            bench.sources[0].put(record(psn=FIRST_PSN + number))
            bench.sources[0].put(request(number, source=PEER if number % 2 else STRANGER))
        while bench.sources[0].waiting:
            await ctx.tick()
        await bench.pause(ctx, 40)
        reason = PortCounter
        assert [event["index"] for event in bench.found["counter"]] == [
            reason.ACCEPTED, reason.DROP_PEER, reason.ACCEPTED, reason.CONTROL,
        ] * 3  # fmt: skip
        assert [answer["psn"] for answer in bench.found["refused"]] == [1, 3, 5]

    bench.run(script)


@pytest.mark.parametrize("width", [64, 512])
def test_what_a_search_found_waits_for_an_answer_that_is_not_taken(width: int) -> None:
    bench = Bench(width)
    held = [True]
    bench.takes = lambda name: name != "refused" or not held[0]  # type: ignore[method-assign]

    async def script(ctx: Any) -> None:
        for number in range(3):
            bench.sources[0].put(request(number))
        await bench.pause(ctx, 120)
        assert not bench.found["refused"] and len(bench.found["counter"]) == 1
        held[0] = False
        await bench.pause(ctx, 120)
        assert [(answer["psn"], answer["qp"]) for answer in bench.found["refused"]] == [
            (number, QP) for number in range(3)
        ]
        assert ctx.get(bench.core.admission.idle)

    bench.run(script)


@pytest.mark.parametrize("width", [64, 128, 512])
def test_rate_of_requests(width: int) -> None:
    bench = Bench(width)

    async def script(ctx: Any) -> None:
        await bench.outcome(ctx, request(0))
        for number in range(20):
            bench.sources[number % 2].put(request(number) if number % 4 else probe(number))
        while any(source.waiting for source in bench.sources):
            await ctx.tick()
        await bench.pause(ctx, 40)
        assert len(bench.found["refused"]) == 21
        taken = sorted(cycle for source in bench.sources for cycle in source.taken_at)[1:]
        gaps = [b - a for a, b in zip(taken, taken[1:], strict=False)]
        assert max(gaps) <= bench.config.packet_interval, gaps

    bench.run(script)


@pytest.mark.parametrize("reason", [NackReason.PSN_OOR_WINDOW, NackReason.UNEXP_EVENT])
def test_limited_nacks(reason: NackReason) -> None:
    bench = Bench()
    in_error = reason == NackReason.UNEXP_EVENT
    kind = AnswerKind[f"NACK_{reason.name}"]
    outcome = PortCounter.DROP_QP if in_error else PortCounter.DROP_WINDOW
    psn = (FIRST_PSN if in_error else FIRST_PSN + 500) % PSNS

    async def script(ctx: Any) -> None:
        async def offer(tick: int, nacks: bool, **changes: Any) -> None:
            bench.at_tick(ctx, tick)
            before = len(bench.found["refused"])
            assert await bench.outcome(ctx, record(psn=psn, **changes)) == outcome
            found = bench.found["refused"][before:]
            assert [(answer["kind"], answer["psn"]) for answer in found] == [(kind, psn)] * nacks, tick

        await bench.write_qp(ctx, 2)
        for qp in (QP, 2):
            if in_error:
                await send(ctx, bench.core.admission.error_in, qp=qp, reason=1)
        second = {"destination_qpn": 0x102}
        start = (1 << 32) - 20  # the low bits of the time turn over on the way
        await offer(start, True)
        await offer(start, True, **second)
        await offer(start, False)
        await offer(start + BASE_RTT - 1, False)
        await offer(start + BASE_RTT, True)
        await offer(start + BASE_RTT + 1, False, trimmed=Trimmed.FABRIC, length=0)
        await offer(start + 5 * BASE_RTT, True, **second)
        await offer(start + 5 * BASE_RTT, True)
        # A QP that starts anew has sent none.
        await bench.write_qp(ctx, QP, state=QpState.RESET)
        await bench.write_qp(ctx, QP)
        if in_error:
            await send(ctx, bench.core.admission.error_in, qp=QP, reason=1)
        await offer(start + 5 * BASE_RTT, True)
        await offer(start + 5 * BASE_RTT, False, **second)
        if in_error:
            # Nobody but the peer is told, and of nothing but its writes.
            bench.at_tick(ctx, start + 9 * BASE_RTT)
            count = len(bench.found["refused"])
            for packet in (record(source=FAR), record(Opcode.SACK, length=0), probe(1)):
                assert await bench.outcome(ctx, packet) == PortCounter.DROP_QP
            assert len(bench.found["refused"]) == count

    bench.run(script)


@pytest.mark.parametrize("width", [64, 512])
def test_a_write_without_room_changes_nothing(width: int) -> None:
    bench = Bench(width)

    async def script(ctx: Any) -> None:
        lost = {"trimmed": Trimmed.NO_ROOM, "length": 0, "key": 0}
        assert await bench.outcome(ctx, record(**lost)) == PortCounter.DROP_NO_PKT_BUFFER
        assert await bench.outcome(ctx, record()) == PortCounter.ACCEPTED
        assert await bench.outcome(ctx, record(**lost)) == PortCounter.DUPLICATE
        below = record(psn=FIRST_PSN - 1, **lost)
        assert await bench.outcome(ctx, below) == PortCounter.DUPLICATE
        assert [answer["kind"] for answer in bench.found["refused"]] == [
            AnswerKind.NACK_NO_PKT_BUFFER, AnswerKind.SACK, AnswerKind.SACK_AND_ACK,
        ]  # fmt: skip
        assert not bench.found["error_out"]
        # The placement's queue is full: the same answer.
        bench.place_ready = False
        await bench.pause(ctx, 4)
        for number in range(1, 4):
            await bench.offer(ctx, record(psn=FIRST_PSN + number))
        await bench.pause(ctx, 40)
        crowded = bench.found["refused"][3:]
        assert len(crowded) >= 2
        assert {answer["kind"] for answer in crowded} == {AnswerKind.NACK_NO_PKT_BUFFER}
        bench.place_ready = True

    bench.run(script)


def test_a_time_stamp_counts_when_its_type_says_so() -> None:
    bench = Bench()

    async def script(ctx: Any) -> None:
        for number, kind in enumerate((1, 0, 2)):
            stamp = {"tseth": {"tx_timestamp": 0x7001, "ftype": kind}}
            packet = record(psn=FIRST_PSN + number, headers=stamp)
            assert await bench.outcome(ctx, packet) == PortCounter.ACCEPTED
            place = [place for place in bench.found["place"] if not place["drop"]][-1]
            assert place["timestamped"] == (kind == 1)

    bench.run(script)
