"""What a responder answers beside good writes: gateware and golden model, packet by packet.

Sweep: verilated gateware and golden model; both planes.
Stimulus: frames of a peer that is connected and of others: reliability probes with and without a time stamp,
    marked, trimmed; endpoint requests of both kinds, of strangers and of the NIC itself; writes outside the
    window, to a region that is not there, to a queue pair in ERROR, at times around the base RTT.
Checks: the outcome that each frame is counted as, the answers to it field by field, and that the two kinds of
    NIC differ in neither.
Timing: the engine of the 64-bit measurements; every wait is bounded in simulated time.
"""

import functools

import pytest
from fuzz_bed import FIRST_PSN, KINDS, SENT_BYTES, TARGET, TARGET_ROOM, Bed, outcomes
from fuzz_craft import ATTACKER, NIC, PEER, PLANES, Crafter, Hostile, control, write

from mrc_host.packets.decoding import decode
from mrc_host.packets.trim import trim
from mrc_rtl import wire
from mrc_rtl.config import QP_NUMBER_BASE, TICK_PS
from mrc_rtl.records import PortCounter
from mrc_rtl.wire import EndpointOp, Opcode

QPN = QP_NUMBER_BASE + TARGET
STRANGER = 9
BASE_RTT_PS = 80 * TICK_PS
STAMP = 0x4321
ANSWERS = (Opcode.SACK, Opcode.NACK, Opcode.ACKNOWLEDGE, Opcode.ENDPOINT_RESPONSE)
#: Where the bitmap begins is the responder's choice, and how long it took is a matter of time.
FREE = {"sack_offset", "sack_bitmap", "tx_timestamp"}
LATEST = 20  # ticks that an answer may take


class Script:
    """Sends one frame after the other to a NIC, and notes what became of it and what came back."""

    def __init__(self, kind):
        self.kind = kind
        self.bed = Bed(kind)
        self.crafter = Crafter()
        self.notes = []

    def pause(self, time_ps):
        """Let time go by."""
        end = self.bed.now + time_ps
        while self.bed.now < end:
            self.bed.step()

    def offer(self, *packets, plane=0, cut=False, **options):
        """Send packets to the attacker's queue pair, or wherever the options say, one behind the other."""
        bed = self.bed
        before = outcomes(bed.counters(), plane)
        bed.sent.clear()
        frames = [[] for _ in range(PLANES)]
        for packet in packets:
            data = self.crafter.draft(packet, plane, **{"qpn": QPN, **options}).done().data
            if cut:
                data = trim(data, wire.TRIM_SIZE_MINIMUM, correct_lengths=False, last_hop=False)
            frames[plane].append(Hostile(plane, data))
        while any(frames):
            bed.step(frames)
        bed.settle()
        self.pause(2_000_000)
        after = outcomes(bed.counters(), plane)
        found = {
            counter: after[counter] - before[counter]
            for counter in after
            if counter != PortCounter.RX_FRAMES and after[counter] != before[counter]
        }
        self.notes.append((found, [self._answer(answer, packets[0]) for answer in self._answers()]))

    def _answers(self):
        """Frames to the attacker that answer something."""
        packets = (decode(frame.data) for frame in self.bed.sent)
        to = wire.inner_address(ATTACKER)
        return [
            packet
            for packet in packets
            if packet.opcode in ANSWERS and packet.inner_ip.fields["destination"] == to
        ]

    @staticmethod
    def _answer(packet, request):
        """What an answer says, without what is free; the time it reflects is the request's or a bit later."""
        assert packet.icrc_ok and not packet.problems
        result = {
            name: packet["bth"][name] for name in ("opcode", "dest_qp", "psn", "rtx", "ack_req", "pkey")
        }
        for header in wire.headers_after_bth(Opcode(packet.opcode), False):
            values = packet[header.name]
            result |= {f"{header.name}.{name}": value for name, value in values.items() if name not in FREE}
            if "tx_timestamp" in values:
                late = values["tx_timestamp"] - request.timestamp & 0xFFFF
                result["reflects"] = late <= LATEST if request.timestamped else values["tx_timestamp"] == 0
        return result


def stamped(opcode, psn=0, **fields):
    return control(opcode, psn, timestamped=True, timestamp=STAMP, **fields)


def wrong_write(psn=FIRST_PSN, key=0):
    return write(psn, b"12345678", 0, key, timestamp=STAMP)


def probes(script):
    marked = wire.Dscp.TRIMMABLE << 2 | wire.Ecn.CE
    script.offer(stamped(Opcode.PROBE, probe_id=0xFEDC))
    script.offer(stamped(Opcode.PROBE, probe_id=1, traffic_class=marked), plane=1)
    script.offer(control(Opcode.PROBE, probe_id=2), plane=1)
    script.offer(stamped(Opcode.PROBE, probe_id=3), qpn=QP_NUMBER_BASE + 77)
    script.offer(stamped(Opcode.PROBE, probe_id=4), cut=True)
    script.offer(stamped(Opcode.PROBE, probe_id=5), source=STRANGER)


def requests(script):
    probe, update = int(EndpointOp.EV_PROBE), int(EndpointOp.PORT_STATUS_UPDATE)
    to_host = {"qpn": wire.ENDPOINT_QPN}
    script.offer(stamped(Opcode.ENDPOINT_REQUEST, 0x1234, operation=probe), **to_host)
    script.offer(stamped(Opcode.ENDPOINT_REQUEST, 2, operation=update, port_mask=3), plane=1, **to_host)
    script.offer(control(Opcode.ENDPOINT_REQUEST, 3, operation=probe), plane=1, **to_host)
    # One of its own that comes back is its own answer.
    script.offer(stamped(Opcode.ENDPOINT_REQUEST, 4, operation=probe), source=NIC, **to_host)
    script.offer(stamped(Opcode.ENDPOINT_REQUEST, 5, operation=probe))
    script.offer(stamped(Opcode.ENDPOINT_RESPONSE, 6, operation=probe), **to_host)
    script.offer(stamped(Opcode.ENDPOINT_REQUEST, 7, operation=probe), cut=True, **to_host)


def refusals(script):
    script.offer(*(wrong_write(FIRST_PSN + distance) for distance in (5000, 5001, -(1 << 23))))
    script.pause(2 * BASE_RTT_PS)
    script.offer(wrong_write(FIRST_PSN + 5002), plane=1)
    script.pause(2 * BASE_RTT_PS)
    script.offer(wrong_write(FIRST_PSN + 5003), cut=True)
    script.pause(2 * BASE_RTT_PS)
    script.offer(wrong_write(FIRST_PSN - (1 << 23) + 1))
    # The queue pair goes to ERROR: its peer is told once for each RTT, and nobody else.
    script.offer(wrong_write())
    script.pause(2 * BASE_RTT_PS)
    script.offer(wrong_write(FIRST_PSN + 1), wrong_write(FIRST_PSN + 2))
    script.pause(2 * BASE_RTT_PS)
    script.offer(wrong_write(FIRST_PSN + 3), source=STRANGER)
    script.offer(stamped(Opcode.PROBE, probe_id=3))
    script.offer(wrong_write(FIRST_PSN + 3), plane=1)


@functools.cache
def played(kind, scenario):
    script = Script(kind)
    scenario(script)
    script.bed.check_surroundings()
    script.bed.close()
    return script.notes


@pytest.mark.parametrize("scenario", [probes, requests, refusals])
def test_gateware_and_model_answer_alike(scenario):
    gateware, model = (played(kind, scenario) for kind in KINDS)
    for number, (one, other) in enumerate(zip(gateware, model, strict=True)):
        assert one == other, f"frame {number} of the scenario"


def outcomes_of(notes):
    return [found for found, _ in notes]


def opcodes_of(notes):
    return [[answer["opcode"] for answer in answers] for _, answers in notes]


@pytest.mark.parametrize("kind", KINDS)
def test_reliability_probes(kind):
    notes = played(kind, probes)
    reasons = PortCounter
    assert outcomes_of(notes) == [
        *[{reasons.CONTROL: 1}] * 3, {reasons.DROP_QP: 1}, {reasons.TRIM_IGNORED: 1}, {reasons.DROP_PEER: 1},
    ]  # fmt: skip
    assert opcodes_of(notes) == [[Opcode.SACK]] * 3 + [[]] * 3
    for (_, (answer,)), offset, mark in zip(notes[:3], (0xFEDC - 0x10000, 1, 2), (0, 1, 0), strict=True):
        assert (answer["seth.pr"], answer["seth.ack_psn_offset"], answer["seth.m"]) == (1, offset, mark)
        assert answer["reflects"]


@pytest.mark.parametrize("kind", KINDS)
def test_endpoint_requests(kind):
    notes = played(kind, requests)
    reasons = PortCounter
    assert outcomes_of(notes) == [
        *[{reasons.CONTROL: 1}] * 4, {reasons.DROP_QP: 1}, {reasons.CONTROL: 1}, {reasons.TRIM_IGNORED: 1},
    ]  # fmt: skip
    assert opcodes_of(notes) == [[Opcode.ENDPOINT_RESPONSE]] * 3 + [[]] * 4
    for (_, (answer,)), number, operation in zip(notes[:3], (0x1234, 2, 3), (1, 0, 1), strict=True):
        assert (answer["dest_qp"], answer["psn"]) == (wire.ENDPOINT_QPN, number)
        assert (answer["eeth.op"], answer["reflects"]) == (operation, True)


@pytest.mark.parametrize("kind", KINDS)
def test_refusals(kind):
    notes = played(kind, refusals)
    reasons = PortCounter
    assert outcomes_of(notes) == [
        {reasons.DROP_WINDOW: 3}, {reasons.DROP_WINDOW: 1}, {reasons.DROP_WINDOW: 1}, {reasons.DUPLICATE: 1},
        {reasons.DROP_ACCESS: 1}, {reasons.DROP_QP: 2}, *[{reasons.DROP_QP: 1}] * 3,
    ]  # fmt: skip
    nack, sack, nak = Opcode.NACK, Opcode.SACK, Opcode.ACKNOWLEDGE
    assert opcodes_of(notes) == [[nack], [nack], [nack], [sack, nak], [nak], [nack], [], [], [nack]]
    codes = [answer.get("neth.nack_reason") for _, answers in notes for answer in answers]
    outside, unexpected = wire.NackReason.PSN_OOR_WINDOW, wire.NackReason.UNEXP_EVENT
    assert [code for code in codes if code is not None] == [outside] * 3 + [unexpected] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_ports_of_a_peer(kind):
    """Packets avoid a port that their peer says is down, and no other queue pair takes notice."""
    script = Script(kind)
    bed = script.bed
    region, half = bed.regions["target"], TARGET_ROOM // 2

    def planes(mask):
        script.offer(
            stamped(
                Opcode.ENDPOINT_REQUEST, mask, operation=int(EndpointOp.PORT_STATUS_UPDATE), port_mask=mask
            ),
            qpn=wire.ENDPOINT_QPN,
        )
        assert opcodes_of(script.notes)[-1] == [Opcode.ENDPOINT_RESPONSE]
        bed.sent.clear()
        with bed.nic.context.driver.at(bed.now):
            bed.target.write(
                50 + mask, local_address=region.address, lkey=region.lkey, length=SENT_BYTES,
                remote_address=0, rkey=1,
            )  # fmt: skip
        bed.post(half, half, 0)
        bed.until(lambda: bed.completed)
        used = {wire.inner_address(host): set() for host in (PEER, ATTACKER)}
        for frame in bed.sent:
            packet = decode(frame.data)
            if wire.is_write(packet.opcode):
                used[packet.inner_ip.fields["destination"]].add(frame.port)
        return [used[wire.inner_address(host)] for host in (PEER, ATTACKER)]

    everywhere = set(range(PLANES))
    assert planes(0b11) == [everywhere, everywhere]
    assert planes(0b01) == [everywhere, {0}]
    assert planes(0b10) == [everywhere, {1}]
    assert planes(0b11) == [everywhere, everywhere]
    bed.check_surroundings()
    bed.close()
