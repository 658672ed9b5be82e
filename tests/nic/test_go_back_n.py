"""Queue pairs of the type go-back-N, the single-path baseline, on golden models.

Sweep: both types over one EV. Stimulus: a transfer whose path is silent for a while.
Checks: rows of both ends; every byte; a QP that takes any order sends again what was lost, one that goes
back much more, because its peer drops what comes early. Timing: simulated time.
"""

from control import OWN, PEER, make_context
from model_world import World

from mrc_host.nic.counters import read_counters
from mrc_host.nic.device import (
    CompletionStatus,
    EvKey,
    EvProfile,
    EvState,
    EvStateChange,
    Path,
    QpState,
)
from mrc_rtl.tables import TableId


def one_value(end):
    """A profile with one EV that may be used, on plane 0, which no feedback retires."""
    values = [plane[:1] for plane in EvProfile.by_plane(end.world.plan.ev_set(16), 2)]
    profile = end.context.ev_profile(values, oblivious=True, ev_min_active=1)
    profile.modify_ev_state([EvStateChange(EvKey(values[1][0], 2), EvState.DENIED)])
    return profile


def test_both_ends_are_told():
    context = make_context()
    pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
    pair.to_init(context.ev_profile([[1], [2]]), go_back_n=True)
    pair.modify(QpState.RTR, path=Path(OWN, PEER), path_mtu=256, dest_qp_num=5, rq_psn=0, mpr_dest=1)
    assert context.nic.row(TableId.QP_RECEIVE)["in_order"] == 1
    assert context.nic.row(TableId.QP_SEND)["go_back_n"] == 1


def transfer(go_back_n):
    """Send half a megabyte over a path that is silent for 1 µs: packets sent, what the receiver counts."""
    world = World(profile=one_value, init={"go_back_n": go_back_n}, rts={"timeout": 4})
    a, b = world.ends
    world.session.fault(kind="blackhole", link="h0-p0*", from_us=8, to_us=9)
    a.pair.write(1, **a.place())
    world.run(2000)
    assert [completion.status for completion in a.queue.poll(4)] == [CompletionStatus.SUCCESS]
    assert (b.target.buffer.data[:] == 1).all()
    own = read_counters(a.context.driver).ports[0]
    return own["tx_data"] + own["tx_retransmissions"], read_counters(b.context.driver).ports[0]


def test_what_comes_behind_a_gap_is_dropped_and_sent_again():
    packets = (1 << 19) // 4096
    sent, counts = transfer(False)
    assert packets < sent < packets + 40 and counts["drop_window"] == 0
    assert counts["accepted"] == packets
    sent, counts = transfer(True)
    assert counts["accepted"] == packets
    assert counts["drop_window"] > 20, "what came early was dropped"
    assert sent >= packets + counts["drop_window"]
