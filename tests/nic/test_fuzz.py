"""A little of the hostile traffic of ``nox -s fuzz``, and its tools.

Sweep: gateware and golden model; frames drawn from a seed, and every case of the corpus.
Stimulus: mutated, random, trimmed and rule-breaking but correctly sealed frames on both ports of a NIC, for
    its queue pairs and for none, while another queue pair exchanges messages in both directions.
Checks: memory byte for byte, one outcome for every frame and the one predicted, the good messages, the state
    of the attacker's queue pair, a NIC that rests; that each of these checks fails when its cause is there;
    that a session goes on where it was, and that a failing frame is found among others.
Timing: the engine of the 64-bit measurements; every wait is bounded in simulated time.
"""

import json
import random
from collections import Counter

import fuzz_corpus
import fuzz_session
import pytest
from fuzz_bed import KINDS, TARGET, Broken
from fuzz_craft import Crafter, Hostile, write
from fuzz_frames import BREAKS, DAMAGES
from fuzz_play import Play

from mrc_rtl.records import PortCounter

CASES = sorted(fuzz_corpus.FOLDER.glob("*.json"))
FRAMES = {"rtl": 400, "model": 3000}
DROPS = [
    outcome
    for outcome in PortCounter
    if PortCounter.DROP_FRAME_ERROR <= outcome < PortCounter.DROP_FEEDBACK
    and outcome is not PortCounter.DROP_NO_PKT_BUFFER
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_traffic(kind):
    play = Play(kind)
    for number in range(FRAMES[kind] // 200):
        play.batch(play.draw(random.Random(f"test {number}"), 200))
    assert play.sent > 0.97 * FRAMES[kind]
    assert play.total[PortCounter.ACCEPTED] and play.total[PortCounter.TRIMMED_ANSWERED]
    if kind == "model":
        assert all(play.total[outcome] for outcome in DROPS), play.total


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_corpus(path, kind):
    assert fuzz_corpus.replay(kind, fuzz_corpus.load(path)) is None


def test_every_rule_is_broken_and_every_damage_done():
    play = Play("model")
    drawn = list(play.draw(random.Random(3), 3000))
    notes = {note for frame in drawn for note in frame.note.split(", ")}
    assert {item.__name__ for item in (*BREAKS, *DAMAGES)} <= notes
    assert any(frame.bad_fcs for frame in drawn)
    again = Play("model")
    assert list(again.draw(random.Random(3), 3000)) == drawn


UNKNOWN_QPN = 0x199


def harmless(count=5):
    """Good frames for a queue pair that does not exist."""
    crafter = Crafter()
    return [
        crafter.draft(write(number, b"1234", 0, 0), number % 2, qpn=UNKNOWN_QPN).done()
        for number in range(count)
    ]


def failing(play, match):
    with pytest.raises(Broken, match=match):
        play.batch(harmless())


def test_each_check_notices():
    play = Play("model")
    play.bed.nic.nic.memory[0x80000] ^= 1
    failing(play, "got 1 other bytes from 0x80000 to 0x80000 .outside every region")

    play = Play("model")
    engine = play.bed.nic.nic._engine
    engine.count_port(1, int(PortCounter.DROP_ICRC))
    failing(play, "every frame of port 1 must have one outcome, -1 have none")

    play = Play("model")
    engine = play.bed.nic.nic._engine
    for outcome in (PortCounter.RX_FRAMES, PortCounter.DROP_ICRC):
        engine.count_port(0, int(outcome))
    failing(play, "port 0 must count [0-9]+ frames, got ")

    play = Play("model")
    judge = play.oracle.judge
    play.oracle.judge = lambda frame: judge(Hostile(frame.plane, frame.data, not frame.bad_fcs))
    failing(play, "must be as predicted, got .*drop_frame_error -")

    play = Play("model")
    play.bed.target.to_error()
    failing(play, "attacker's queue pair must be in RTS, got ERROR")

    play = Play("model")
    play.bed.tap = lambda sender, frame: []
    import fuzz_bed

    limit, fuzz_bed.LIMIT_PS = fuzz_bed.LIMIT_PS, 1_000_000_000
    try:
        failing(play, "the exchange must end within 1 ms, queue pairs are in RTS, RTS")
    finally:
        fuzz_bed.LIMIT_PS = limit


def test_the_attackers_queue_pair_alone_goes_to_error():
    play = Play("model")
    play.batch(play.draw(random.Random("kill"), 200))
    assert play.total[PortCounter.DROP_ACCESS] and play.bed.nic.context.queue_pairs[TARGET]


class Wrong(Play):
    """Expects something else of every frame for the unknown queue pair."""

    def _take(self, frame):
        super()._take(frame)
        if is_for_unknown(frame):
            self._expected[frame.plane].update({PortCounter.DROP_PKEY: 1, PortCounter.DROP_QP: -1})


def is_for_unknown(frame):
    return frame.data[107:110] == UNKNOWN_QPN.to_bytes(3, "big")


def test_a_failing_frame_is_found_among_others_and_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(fuzz_corpus, "Play", Wrong)
    drawn = Play("model").draw(random.Random(5), 40)
    frames = [frame for frame in drawn if not is_for_unknown(frame)]
    (culprit,) = harmless(1)
    lines = []
    batches, text = fuzz_corpus.minimise("model", [frames[:20], [*frames[20:], culprit]], lines.append)
    assert batches == [[culprit]] and "drop_pkey -1" in text
    assert lines
    path = fuzz_corpus.save("model", batches, text, "here", tmp_path)
    assert fuzz_corpus.load(path) == [[culprit]]
    assert json.loads(path.read_text())["batches"][0][0]["packet"]["kind"]
    assert fuzz_corpus.minimise("model", [frames], lines.append) == ([frames], None)


class Crashing(Play):
    """Raises an error at a frame for the unknown queue pair."""

    def _take(self, frame):
        super()._take(frame)
        if is_for_unknown(frame):
            raise ValueError("as a NIC would")


def test_an_episode_that_breaks_is_reduced_and_written_down(monkeypatch, tmp_path):
    monkeypatch.setattr(fuzz_corpus, "Play", Crashing)
    monkeypatch.setattr(fuzz_session, "Play", Crashing)
    monkeypatch.setattr(fuzz_session, "BATCH", 3)
    monkeypatch.setattr(Crashing, "draw", lambda self, rng, count: harmless(count))
    monkeypatch.setattr(fuzz_session, "save", lambda *case: fuzz_corpus.save(*case, folder=tmp_path))
    entry = fuzz_session.run_episode("model", 4, 2, batches=2)
    assert entry["failure"] == "ValueError: as a NIC would"
    case = json.loads(fuzz_session.Path(entry["case"]).read_text())
    assert case["origin"] == "seed 4, episode 2" and [len(batch) for batch in case["batches"]] == [1]


def test_a_session_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    played = []

    def episode(kind, seed, number):
        played.append(number)
        return {"episode": number, "frames": fuzz_session.BATCH * fuzz_session.EPISODE_BATCHES}

    monkeypatch.setattr(fuzz_session, "run_episode", episode)
    monkeypatch.setattr(fuzz_session, "ProcessPoolExecutor", Here)
    journal = tmp_path / "journal.jsonl"
    arguments = ["--nic", "model", "--jobs", "1", "--journal", str(journal), "--frames"]
    assert fuzz_session.main([*arguments, "8000"]) == 0
    journal.write_text(journal.read_text() + '{"episode": 7, "fra')
    assert fuzz_session.main([*arguments, "16000"]) == 0
    assert played == [0, 1, 2, 3]
    assert "16,000 of 16,000 frames" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="is of another session"):
        fuzz_session.main([*arguments, "8000", "--seed", "2"])
    assert fuzz_session.main([*arguments, "4000", "--seed", "2", "--fresh"]) == 0
    assert played == [0, 1, 2, 3, 0]
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert Counter("seed" in line for line in lines) == {True: 1, False: 1}


class Here:
    """An executor that does everything at once."""

    def __init__(self, *arguments, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False

    def submit(self, function, *arguments):
        from concurrent.futures import Future

        future = Future()
        future.set_result(function(*arguments))
        return future
