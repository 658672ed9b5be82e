"""Random histories through two and three model NICs (see ``history.py``).

Sweep: seeds from 0, each of which draws sizes, options, traffic and faults; MRC_HISTORIES of them, 300
without it, 10,000 in the long session.
Stimulus: posts, losses, duplicates, reordering, marks, trims, damage, silent holes, port flaps, reboots, EV
operations and port administration.
Checks: no byte lost and none written twice, completions in order and only after placement, legal EV states
only, trackers inside the window, counters that add up; a failure names its seed and an experiment file made
small; mistakes planted in the model are found; everything that can happen does.
Timing: simulated; a history that takes too long fails.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from history import play, watch
from history_draw import draw_history
from history_promises import Violation

from mrc_host.experiment.load import load_experiment, parse_experiment
from mrc_host.experiment.script import ACTIONS
from mrc_host.fabric.faults import FAULTS

BATCH = 10
COUNT = int(os.environ.get("MRC_HISTORIES", "300"))
HERE = Path(__file__).parent
MISTAKES = {
    "writes_duplicates": 40,
    "completes_sends_early": 40,
    "completes_receives_early": 40,
    "forgets_denials": 40,
    "forgets_duplicates_in_counters": 20,
    "writes_too_much": 20,
}
"""Mistakes planted here, and how many seeds may pass before one shows; ``history_mutants.py`` has more."""


CHANGES = (
    "GOOD to SKIP",
    "SKIP to GOOD",
    "GOOD to ASSUMED_BAD",
    "ASSUMED_BAD to GOOD",
    "GOOD to DENIED",
    "DENIED to GOOD",
    "BACKUP to GOOD",
    "GOOD to BACKUP",
)
COUNTERS = (
    "DUPLICATE",
    "DROP_ICRC",
    "DROP_NO_PKT_BUFFER",
    "TRIMMED_ANSWERED",
    "TX_RETRANSMISSIONS",
    "TX_CONTROL",
    "ACCEPTED",
)


@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_histories(first, record_property):
    for seed in range(first, min(first + BATCH, COUNT)):
        seen = play(seed).seen
        assert seen["histories"] == 1
        for name, count in seen.items():
            record_property(f"seen {name}", count)


def test_a_history_depends_on_its_seed_alone():
    first, second = (watch(parse_experiment(draw_history(4))) for _ in range(2))
    assert first.seen == second.seen
    assert first.seen["writes"] + first.seen["writes with immediate"] > 0
    assert draw_history(4) == draw_history(4) != draw_history(5)


def test_everything_happens():
    """A few dozen histories meet every kind of fault, action and change that all of them are about."""
    seen = Counter()
    for seed in range(40):
        seen += watch(parse_experiment(draw_history(seed))).seen
    wanted = {f"fault {kind} hit" for kind in FAULTS}
    wanted |= {f"action {do}" for do in ACTIONS}
    wanted |= {"writes", "writes with immediate", "links down or up"}
    wanted |= {f"EV {change}" for change in CHANGES}
    wanted |= {f"port counter {name}" for name in COUNTERS}
    assert not wanted - set(seen), wanted - set(seen)


def test_what_no_mistake_shows_is_noticed_too():
    """States that the models' own structure rules out."""
    promises = watch(parse_experiment(draw_history(4)))
    promises.advanced(0)
    side = promises.testbed.nics[0]._engine.requester.side
    words = side.qps[0].evs.planes[0]
    good, words.bad = words.good, words.good
    with pytest.raises(Violation, match="in two states"):
        promises.advanced(0)
    words.good, words.bad = good, 0
    side.qps[0].tracker.next += promises.testbed.config.mpr_psns + 1
    with pytest.raises(Violation, match="PSNs outstanding"):
        promises.advanced(0)


def plant(*arguments):
    """Run ``history_mutants.py`` on plain Python, where methods can be replaced."""
    return subprocess.run(
        [sys.executable, str(HERE / "history_mutants.py"), *map(str, arguments)],
        env={**os.environ, "MRC_COMPILED": "0"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_found(mistake):
    done = plant("find", mistake, MISTAKES[mistake])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_failure_is_made_small_and_can_be_played_again(tmp_path):
    """A receiver that writes duplicates again: the file that is left says little more."""
    done = plant("shrink", "writes_duplicates", 1, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    file = tmp_path / "seed-1.yaml"
    assert f"made small: {file}" in done.stdout
    assert "seed 1: bytes are written once" in done.stdout
    small = load_experiment(file)
    actions = [*small.workload.messages, *small.faults, *small.script]
    assert 1 <= len(actions) <= 6
    assert len(file.read_text().splitlines()) < 45
    # It fails with the mistake, and with nothing else.
    again = plant("file", "writes_duplicates", file)
    assert again.returncode == 1 and "bytes are written once" in again.stdout + again.stderr
    watch(small)
