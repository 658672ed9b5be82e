"""A little of the foul weather of ``nox -s soak``, and that it would tell.

Sweep: three queue pairs of different path MTUs, both directions, starting PSNs just below the wrap.
Stimulus: messages of all sizes; every packet of either direction may be dropped, cut, marked, doubled,
    delayed or damaged.
Checks: every byte at the end of its message and nothing later; frames sent and received as the fabric saw
    them; one outcome for each frame; each packet accepted once; that a changed byte, one that is written late
    and a frame that nobody sent are found; that the session goes on where it was and reports a failure.
Timing: the quickstart engine, shared with other tests; bounded in simulated time.
"""

import pytest
import soak_session
from soak import Soak

PACKETS = 1500
FEW = 60


@pytest.mark.timeout(900)
def test_foul_weather():
    soak = Soak("tests", PACKETS)
    counted = soak.run()
    soak.close()
    assert counted["wraps"] == 6
    assert counted["packets"] >= PACKETS
    assert min(counted[action] for action in soak.weather.shares) >= 3, counted
    assert counted["retransmissions"] >= counted["cut"]


@pytest.fixture
def soak():
    soak = Soak("few", FEW)
    yield soak
    soak.close()


def test_a_wrong_byte_is_found(soak):
    compare = soak.ends[0].compare

    def disturbed(number, last):
        corrupt(soak, number, last)
        compare(number, last)

    soak.ends[0].compare = disturbed
    with pytest.raises(AssertionError):
        soak.run()


def corrupt(soak, number, last):
    """Change a byte of the message that is to be compared."""
    sink = soak.ends[1].sink.data
    sink[soak.ends[0].place(number, last)] ^= 1


def test_what_is_written_after_a_message_has_ended_is_found(soak):
    compare = soak.ends[0].compare

    def late(number, last):
        compare(number, last)
        soak.ends[1].sink.data[soak.ends[0].place(number, last)] = 0

    soak.ends[0].compare = late
    with pytest.raises(AssertionError):
        soak.run()


def test_a_frame_that_is_not_accounted_for_is_found(soak):
    soak.weather.sent[0] += 1
    with pytest.raises(AssertionError):
        soak.run()


def test_a_session_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    played = []

    def episode(seed, number):
        played.append((seed, number))
        return {"packets": soak_session.EPISODE_PACKETS, "wraps": 6}

    monkeypatch.setattr(soak_session, "run_episode", episode)
    journal = tmp_path / "journal"
    command = ["--journal", str(journal), "--seed", "4", "--packets"]
    assert soak_session.main([*command, "40000"]) == 0
    assert soak_session.main([*command, "60000"]) == 0
    assert played == [(4, 0), (4, 1), (4, 2)]
    assert "60,000 packets passed, 0 episodes failed" in capsys.readouterr().out

    def fails(seed, number):
        raise AssertionError("planted")

    monkeypatch.setattr(soak_session, "run_episode", fails)
    assert soak_session.main([*command, "80000"]) == 1
    assert "planted" in journal.read_text()
