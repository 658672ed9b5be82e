"""The session that puts faults into the gateware: its list, its journal and its verdict.

Sweep: every fault of the list. Stimulus: journals with results; a mutant of a small copy whose test fails.
Checks: each fault changes one place of a file that has covering tests; what is done is not done again unless
file or tests changed; fewer than nine in ten noticed fail the session. Timing: no test of the gateware runs.
"""

from pathlib import Path

import pytest

import mutants
from mutant_faults import COVERING, FAULTS, QUICK
from mutants import Journal, mutated

ROOT = Path(__file__).parent.parent
BLOCKS = (
    "paths/spray",
    "requester/",
    "responder/rx",
    "responder/admit",
    "responder/placement",
    "responder/sack",
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_changes_one_place(fault):
    text = (ROOT / "rtl" / "mrc_rtl" / fault.file).read_text()
    assert mutated(fault, text) != text
    compile(mutated(fault, text), fault.file, "exec")


def test_the_list():
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names)) >= 40
    assert len(QUICK) == 4 and set(QUICK) <= set(names)
    for block in BLOCKS:
        assert sum(fault.file.startswith(block) for fault in FAULTS) >= 3, block
    for tests in COVERING.values():
        assert all((ROOT / test.partition("::")[0]).is_file() for test in tests)


def test_a_text_that_is_not_there_once_is_named():
    with pytest.raises(ValueError, match=r"must contain .* exactly once, but does 2 times"):
        mutated(FAULTS[0], FAULTS[0].old * 2)


def played(monkeypatch, survivors):
    """Let faults be noticed or not without running anything; returns the names that are asked for."""
    asked = []

    def notices(fault, folder):
        asked.append(fault.name)
        return None if fault.name in survivors else "a test"

    monkeypatch.setattr(mutants, "notices", notices)
    return asked


def test_the_session_goes_on_where_it_was(monkeypatch, tmp_path, capsys):
    asked = played(monkeypatch, [])
    journal = tmp_path / "journal"
    assert mutants.main(["--quick", "--journal", str(journal)]) == 0
    assert set(asked) == set(QUICK)
    assert mutants.main(["--journal", str(journal)]) == 0
    assert sorted(asked) == sorted(fault.name for fault in FAULTS)
    assert f"{len(FAULTS)} of {len(FAULTS)} faults noticed" in capsys.readouterr().out
    monkeypatch.setattr(mutants, "key_of", lambda fault: "another" + fault.name)
    assert not Journal(journal).holds(FAULTS[0])


def test_survivors_are_named_and_too_many_fail(monkeypatch, tmp_path, capsys):
    few, many = [fault.name for fault in FAULTS[:3]], [fault.name for fault in FAULTS[:12]]
    played(monkeypatch, few)
    assert mutants.main(["--journal", str(tmp_path / "few")]) == 0
    assert f"not noticed: {few[0]} ({FAULTS[0].file}): {FAULTS[0].breaks}" in capsys.readouterr().out
    played(monkeypatch, many)
    assert mutants.main(["--journal", str(tmp_path / "many")]) == 1
    assert mutants.main(["--journal", str(tmp_path / "many"), FAULTS[0].name]) == 1
    assert mutants.main(["--journal", str(tmp_path / "many"), FAULTS[-1].name]) == 0


def test_an_unknown_name_is_refused(capsys):
    with pytest.raises(SystemExit):
        mutants.main(["nonsense"])
    assert "no such fault: nonsense; --list names all" in capsys.readouterr().err
