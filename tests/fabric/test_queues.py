"""What a switch port does to frames that wait: priorities, the share of control, marks, trimming.

Sweep: the three queues; control at 1 to 50 % of a saturated link; trim sizes from 118 to 256 bytes, with and
without corrected lengths, at the last hop and before it; thresholds of ECN; packets as bytes and as objects.
Stimulus: bursts from several NICs to one over a star or two tiers, real packets from the codec where they
are cut.
Checks: the order of frames, bytes equal to the codec's own trimming, counters, shares, statistics of marks.
Timing: simulated picoseconds, exact.
"""

from __future__ import annotations

import pytest

from fabric.objects import Made, data_frame
from fabric.traffic import Send, build_frame, outer, quickstart, run, star
from mrc_host.errors import ConfigError
from mrc_host.fabric.model import Arrival, Fabric, NicObserver
from mrc_host.fabric.packet import DropReason, Packet, QueueClass
from mrc_host.fabric.port import CONTROL_BURST_BYTES, Port
from mrc_host.fabric.spec import parse_topology
from mrc_host.fabric.topology import Topology
from mrc_host.packets.peek import peek
from mrc_host.packets.trim import trim
from mrc_rtl.wire import Dscp, Ecn

LONG_PS = 400_000_000
SECTIONS = {"hosts": 4, "planes": 1, "rate_gbps": 100}


def marks(arrivals: list[Arrival]) -> list[int]:
    return [int.from_bytes(arrival.frame[54:], "big") for arrival in arrivals]


def last_port(fabric: Fabric) -> Port:
    """Return the port to the last host."""
    topology = fabric.topology
    return fabric.ports[topology.host_link(topology.hosts - 1, 0).down.number]


def test_three_queues_in_order_of_priority() -> None:
    topology = star(8)
    dscps = (8, 8, 8, 10, 10, 46, 12)
    sends = [
        (1_000_000, port, build_frame(topology, port, 7, mark=port, dscp=dscp))
        for port, dscp in enumerate(dscps)
    ]
    fabric = Fabric(topology)
    assert marks(run(fabric, sends, LONG_PS)) == [0, 5, 6, 3, 4, 1, 2]
    counters = fabric.counters()[last_port(fabric).number]
    assert counters.queues == {
        QueueClass.CONTROL: (2, 2000, 2000),
        QueueClass.RETRANSMISSION: (2, 2000, 2000),
        QueueClass.DATA: (3, 3000, 2000),
    }
    assert counters.queue_high_water_bytes == 6000


def test_retransmissions_have_a_size_and_a_reason_of_their_own() -> None:
    topology = star(5, queue_bytes=9_000, retransmission_queue_bytes=1_999)
    sends = [(1_000_000, port, build_frame(topology, port, 4, dscp=10)) for port in range(4)]
    fabric = Fabric(topology)
    assert len(run(fabric, sends, LONG_PS)) == 2
    assert fabric.totals().drops == {DropReason.RETRANSMISSION_QUEUE_FULL: 2}


@pytest.mark.parametrize("percent", [1, 25, 50])
def test_control_has_its_share_while_data_wait(percent: int) -> None:
    """Two NICs flood one link with control, two with data; the burst allowance comes on top."""
    topology = star(5, control_share_percent=percent, queue_bytes=1 << 20)
    frames = 120
    sends: list[Send] = []
    for port, dscp, size in ((0, 46, 154), (1, 46, 154), (2, 8, 4238), (3, 8, 4238)):
        frame = build_frame(topology, port, 4, size=size, dscp=dscp)
        count = frames if dscp == 8 else frames * 4262 // 178
        step = topology.directions[port].slot_ps(size)
        sends += [(1_000_000 + number * step, port, frame) for number in range(1, count + 1)]
    fabric = Fabric(topology)
    until = 2_000_000 + (frames - 5) * topology.directions[0].slot_ps(4238)
    fabric.advance(0)
    for time, port, frame in sorted(sends, key=lambda send: send[:2]):
        fabric.transmit(port, time, frame)
    fabric.advance(until)
    port = last_port(fabric)
    control = port.queues[QueueClass.CONTROL].sent_bytes + 24 * port.queues[QueueClass.CONTROL].sent
    data = port.queues[QueueClass.DATA].sent_bytes + 24 * port.queues[QueueClass.DATA].sent
    burst = CONTROL_BURST_BYTES + 178
    assert control - burst <= (control + data - burst) * percent / 100 + 4262
    assert control >= (control + data) * percent / 100 - 4262
    assert port.queues[QueueClass.CONTROL].depth > 0
    assert port.queues[QueueClass.DATA].depth > 0


def test_control_alone_takes_the_whole_link() -> None:
    topology = star(4, queue_bytes=1 << 20)
    frame = [build_frame(topology, port, 3, size=154, dscp=46) for port in range(3)]
    sends = [(1_000_000 + 14_240 * number, port, frame[port]) for number in range(200) for port in range(3)]
    arrivals = run(Fabric(topology), sends, LONG_PS)
    times = [arrival.time_first_bit_ps for arrival in arrivals]
    assert [later - time for time, later in zip(times, times[1:])] == [14_240] * 599


def test_a_short_burst_of_control_overtakes_all_data() -> None:
    topology = star(30, queue_bytes=1 << 20)
    sends = [(1_000_000, port, build_frame(topology, port, 29, size=1000, dscp=8)) for port in range(5)]
    sends += [(1_010_000, port, build_frame(topology, port, 29, size=154, dscp=46)) for port in range(5, 28)]
    arrivals = run(Fabric(topology), sends, LONG_PS)
    sizes = [len(arrival.frame) for arrival in arrivals]
    assert sizes == [1000] + [154] * 23 + [1000] * 4, "23 · 178 bytes are within the allowance"


# -- ECN -------------------------------------------------------------------------------------------------


def ecn_of(arrivals: list[Arrival]) -> list[int]:
    return [outer(arrival.frame)["traffic_class"] & 3 for arrival in arrivals]


def test_a_step_threshold_marks_by_the_queue_at_the_begin_of_a_slot() -> None:
    """Nine frames at once: one in its slot, eight wait. With a step at 3 frames, five are marked."""
    topology = star(10, ecn={"min_bytes": 3000, "max_bytes": 3000, "host_ports": True})
    sends = [(1_000_000, port, build_frame(topology, port, 9)) for port in range(9)]
    fabric = Fabric(topology)
    assert ecn_of(run(fabric, sends, LONG_PS)) == [2] + [3] * 5 + [2] * 3
    assert fabric.totals().marked == 5
    assert fabric.counters()[last_port(fabric).number].marked == 5


def test_host_ports_do_not_mark_by_default() -> None:
    topology = star(10, ecn={"min_bytes": 64, "max_bytes": 64})
    sends = [(1_000_000, port, build_frame(topology, port, 9)) for port in range(9)]
    assert set(ecn_of(run(Fabric(topology), sends, LONG_PS))) == {2}


def test_control_and_senders_without_ecn_are_not_marked() -> None:
    topology = star(10, ecn={"min_bytes": 64, "max_bytes": 64, "host_ports": True})
    plain = [build_frame(topology, port, 9) for port in range(9)]
    not_ect = [frame[:15] + bytes((frame[15] & 0xCF,)) + frame[16:] for frame in plain[:4]]
    control = [build_frame(topology, port, 9, dscp=46) for port in range(4, 8)]
    sends = [(1_000_000, port, frame) for port, frame in enumerate([*not_ect, *control, plain[8]])]
    arrivals = run(Fabric(topology), sends, LONG_PS)
    assert sorted(ecn_of(arrivals)) == [0] * 4 + [2] * 4 + [3]


def test_marks_between_the_thresholds_rise_linearly_and_depend_on_the_seed_only() -> None:
    """The queue stands at 10 to 11 frames of a range from 0 to 20: half of the frames are marked."""
    topology = star(13, ecn={"min_bytes": 64, "max_bytes": 20_064, "host_ports": True})

    def marked(seed: int) -> list[int]:
        fabric = Fabric(topology, seed)
        frames = [build_frame(topology, port, 12) for port in range(12)]
        sends = [(1_000_000, port, frames[port]) for port in range(11)]
        sends += [(1_040_000 + 81_920 * number, 11, frames[11]) for number in range(1, 801)]
        return ecn_of(run(fabric, sends, LONG_PS))

    first = marked(1)
    assert 330 < first[11:].count(3) < 470
    assert marked(1) == first
    assert marked(2) != first


def test_thresholds_come_from_the_bandwidth_delay_product() -> None:
    """On F a plane's round trip is 9.4 µs: at 100 Gb/s 117 KB."""
    spec = {"hosts": 8, "planes": 4, "t0_per_plane": 2, "t1_per_plane": 4, "rate_gbps": 100, "ecn": {}}
    topology = Topology(parse_topology(spec))
    product = topology.plane_bdp_bytes()
    assert 115_000 < product < 120_000
    assert topology.ecn_thresholds_bytes == (product // 5, product * 4 // 5)


# -- trimming --------------------------------------------------------------------------------------------


def incast(topology: Topology, dscp: int = Dscp.TRIMMABLE) -> list[Send]:
    """One packet from every host but the last to the last, at once."""
    last = topology.hosts - 1
    return [
        (1_000_000, topology.nic_port(host, 0), data_frame(topology, host, last, 0, 1, psn=host, dscp=dscp))
        for host in range(last)
    ]


@pytest.mark.parametrize("size", [118, 122, 128, 138, 206, 256])
@pytest.mark.parametrize("correct", [False, True])
def test_what_finds_no_room_is_trimmed_as_the_codec_does_it(size: int, correct: bool) -> None:
    trimming = {"size_bytes": size, "correct_lengths": correct}
    topology = star(6, queue_bytes=2 * 1200, trimming=trimming)
    fabric = Fabric(topology)
    sends = incast(topology)
    arrivals = run(fabric, sends, LONG_PS)
    # The first is in its slot, two wait, two are cut, and those go ahead.
    whole = Fabric(star(6))
    reference = {peek(a.frame).psn: a.frame for a in run(whole, sends, LONG_PS)}
    assert [peek(arrival.frame).psn for arrival in arrivals] == [0, 3, 4, 1, 2]
    for arrival in arrivals:
        psn = peek(arrival.frame).psn
        frame = reference[psn]
        wanted = trim(frame, size, correct_lengths=correct, last_hop=True) if psn in (3, 4) else frame
        assert arrival.frame == wanted
    assert fabric.totals().trimmed == 2
    assert fabric.totals().drops == {}
    port = last_port(fabric)
    assert port.trimmed == 2
    assert [queue.high_water for queue in port.queues] == [2 * size, 0, 2 * 1142]


def test_before_the_last_hop_the_dscp_is_another() -> None:
    """Two T0 with two hosts each; both hosts of one send across one T1, whose uplink port overflows."""
    topology = quickstart(planes=1, queue_bytes=64, control_queue_bytes=500, trimming={})
    frames = [data_frame(topology, host, 2 + host, 0, 1, psn=host) for host in range(2)]
    arrivals = run(Fabric(topology), [(1_000_000, host, frames[host]) for host in range(2)], LONG_PS)
    assert [(a.nic, outer(a.frame)["traffic_class"] >> 2, len(a.frame)) for a in arrivals] == [
        (2, Dscp.TRIMMABLE, len(frames[0])),
        (3, Dscp.TRIMMED, 128),
    ]
    assert outer(arrivals[1].frame)["hop_limit"] == 61


def test_only_what_may_be_trimmed_is_trimmed() -> None:
    topology = star(6, queue_bytes=1000, trimming={})
    for dscp, trimmed, reason in (
        (Dscp.NO_TRIM, 0, DropReason.QUEUE_FULL),
        (Dscp.RETX, 4, None),
        (Dscp.TRIMMABLE, 4, None),
    ):
        fabric = Fabric(topology)
        run(fabric, incast(topology, dscp), LONG_PS)
        totals = fabric.totals()
        assert (totals.trimmed, totals.drops) == (trimmed, {reason: 4} if reason is not None else {})


def test_thresholds_of_trimming_lie_below_the_size_of_the_queue() -> None:
    """Trimmable packets keep to 1 waiting packet; others may use the queue's four."""
    topology = star(8, queue_bytes=4 * 1142, trimming={"threshold_bytes": 1142})
    trimmable, other = Fabric(topology), Fabric(topology)
    run(trimmable, incast(topology), LONG_PS)
    run(other, incast(topology, Dscp.NO_TRIM), LONG_PS)
    assert trimmable.totals().trimmed == 5
    assert other.totals().drops == {DropReason.QUEUE_FULL: 2}


def test_a_lost_header_is_counted_by_itself() -> None:
    topology = star(6, queue_bytes=64, control_queue_bytes=130, trimming={})
    fabric = Fabric(topology)
    assert len(run(fabric, incast(topology), LONG_PS)) == 2
    assert fabric.totals().drops == {DropReason.TRIMMED_QUEUE_FULL: 3}


def test_a_packet_that_is_shorter_than_the_size_goes_whole() -> None:
    topology = star(4, queue_bytes=64, control_queue_bytes=500, trimming={"size_bytes": 256})
    sends = [(1_000_000, port, build_frame(topology, port, 3, size=200, dscp=8)) for port in range(3)]
    fabric = Fabric(topology)
    arrivals = run(fabric, sends, LONG_PS)
    assert [len(arrival.frame) for arrival in arrivals] == [200] * 3
    assert [outer(arrival.frame)["traffic_class"] >> 2 for arrival in arrivals] == [8, 16, 16]
    assert fabric.totals().trimmed == 2


def test_marks_survive_trimming() -> None:
    topology = star(4, queue_bytes=64, control_queue_bytes=500, trimming={})
    frames = [data_frame(topology, port, 3, 0, 1, ecn=Ecn.CE) for port in range(3)]
    arrivals = run(Fabric(topology), [(1_000_000, port, frames[port]) for port in range(3)], LONG_PS)
    assert ecn_of(arrivals) == [3, 3, 3]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"trimming": {"size_bytes": 117}},
            r"trimming\.size_bytes must be a whole number of bytes between 118 .*, got 117",
        ),
        (
            {"trimming": {"size": 128}},
            r"trimming\.size must be a known key: size_bytes, correct_lengths, threshold_bytes",
        ),
        (
            {"queue_bytes": 5000, "trimming": {"threshold_bytes": 5001}},
            "trimming must be a section whose threshold_bytes is at most queue_bytes = 5000, got 5001",
        ),
        ({"trimming": {"correct_lengths": 1}}, r"trimming\.correct_lengths must be true or false, got 1"),
        (
            {"ecn": {"min_bytes": 1000}},
            None,
        ),
        (
            {"ecn": {"min_bytes": 1000, "max_bytes": 999}},
            r"ecn\.max_bytes must be at least min_bytes = 1000, got 999",
        ),
        (
            {"control_share_percent": 0},
            "control_share_percent must be a whole number between 1 and 99, got 0",
        ),
        ({"ecmp_hash": "mac"}, "ecmp_hash must be one of both, flow_label, ports, got 'mac'"),
    ],
)
def test_sections_that_are_refused(section: dict, message: str | None) -> None:
    message = (
        message or r"ecn\.max_bytes must be given together with min_bytes, or left out with it, got None"
    )
    with pytest.raises(ConfigError, match=message):
        parse_topology({**SECTIONS, **section})


# -- packets as objects ----------------------------------------------------------------------------------


class Log(NicObserver):
    """Notes what it sees."""

    def __init__(self) -> None:
        self.rows: list[tuple] = []

    def sent(self, port: Port, start_ps: int, packet: Packet) -> None:
        self.rows.append(("sent", port.number, start_ps, packet.info()))

    def delivered(self, port: Port, first_bit_ps: int, packet: Packet) -> None:
        self.rows.append(("delivered", port.number, first_bit_ps, packet.info()))


@pytest.mark.parametrize("tapped", [False, True])
def test_objects_and_bytes_give_the_same(tapped: bool) -> None:
    topology = quickstart(
        planes=2,
        queue_bytes=1_200,
        trimming={"size_bytes": 122},
        ecn={"min_bytes": 64, "max_bytes": 3000, "host_ports": True},
    )
    fabrics, logs, results, made = [], [], [], []
    for objects in (False, True):
        fabric, log = Fabric(topology, seed=3), Log()
        fabric.observe(log)
        if tapped:
            fabric.tap("h1-*", lambda direction, time, data: [(1000, data)])
        for number in range(120):
            source, plane = number % 4, number // 4 % 2
            target = (source + 1 + number % 3) % 4
            uplink = number // 8 % 2 + 1
            dscp = (Dscp.TRIMMABLE, Dscp.RETX, Dscp.NO_TRIM)[number % 3]
            frame = data_frame(topology, source, target, plane, uplink, psn=number, dscp=dscp)
            time = 2_000_000 + number // 8 * 700_000
            port = topology.nic_port(source, plane)
            if objects:
                made.append(Made(frame))
                fabric.transmit_packet(port, time, made[-1])
            else:
                fabric.transmit(port, time, frame)
        arrivals = fabric.advance_packets(LONG_PS)
        results.append([(packet.time_ps, packet.came_by.number, packet.frame()) for packet in arrivals])
        if objects:
            assert all(tapped or packet in made for packet in arrivals)
        fabrics.append(fabric)
        logs.append(log.rows)
    assert results[0] == results[1]
    assert logs[0] == logs[1]
    assert fabrics[0].counters() == fabrics[1].counters()
    totals = fabrics[0].totals()
    assert totals == fabrics[1].totals()
    assert totals.trimmed > 5
    assert totals.marked > 5


def test_bytes_of_an_object_are_made_only_where_they_are_needed() -> None:
    topology = star(2)
    first, second = (Made(data_frame(topology, 0, 1, 0, 1)) for _ in range(2))
    fabric = Fabric(topology)
    fabric.transmit_packet(0, 1_000_000, first)
    fabric.transmit_packet(0, 2_000_000, second)
    assert fabric.advance_packets(LONG_PS) == [first, second]
    assert (first.encoded, second.encoded) == (0, 0), "the key tells the way"
    assert second.frame() == run(Fabric(topology), [(1_000_000, 0, first.bytes)], LONG_PS)[0].frame
    assert (first.encoded, second.encoded) == (0, 1)
