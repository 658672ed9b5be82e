"""Random histories through two model NICs (see ``history.py``).

Sweep: seeds from 0, each of which draws sizes, options, traffic and faults; MRC_HISTORIES of them, 300
without it, 10,000 in the long session.
Stimulus: posts, losses, duplicates, delays, marks, trims, damage, silent holes, port flaps, EV operations.
Checks: no byte lost and none written twice to different effect, completions in order and only after
placement, legal EV states only, trackers inside the window, counters that add up; a failure names its seed.
Timing: simulated; a history that takes too long fails.
"""

import os

import pytest
from history import History, Violation, play

BATCH = 10
COUNT = int(os.environ.get("MRC_HISTORIES", "300"))


@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_histories(first):
    for seed in range(first, min(first + BATCH, COUNT)):
        assert all(flow.done for flow in play(seed).flows)


def finished(seed):
    history = History(seed)
    history.run()
    return history


def test_a_history_depends_on_its_seed_alone():
    first, second = finished(4), finished(4)
    assert first.counter == second.counter > 0
    assert [nic.calls for nic in first.nics] == [nic.calls for nic in second.nics]


def test_broken_promises_are_noticed():
    history = finished(0)
    flow = next(flow for flow in history.flows if flow.messages)
    flow.sink.data[0] ^= 1
    with pytest.raises(Violation, match="changed after completion, or beside it"):
        history._finish(history.nics[0].time_ps)
    flow.sink.data[0] ^= 1
    with pytest.raises(Violation, match="before all of it was placed"):
        flow.sink.data[flow.messages[0].at] ^= 1
        flow.check_placed(flow.messages[0], "completion")
    words = history.nics[0]._engine.requester.side.qps[0].evs.planes[0]
    words.bad |= words.good
    with pytest.raises(Violation, match="in two states"):
        history._check_requesters()
