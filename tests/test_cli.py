"""The `mrc` command as a whole.

Sweep: every command of the table; every kind of error.
Stimulus: command lines; commands made for the test that raise.
Checks: exit code, what is printed and what is not; modules imported at start.
Timing: starting takes 0.12 s of processor time; asserted with room for a slower machine.
"""

import resource
import subprocess
import sys
from collections.abc import Callable

import click
import pytest

from mrc_host import cli
from mrc_host.errors import ConfigError, InfrastructureError, MrcError
from mrc_rtl.toolchain import ToolMissing

START_SECONDS_ALLOWED = 1.0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mrc_host", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], int]:
    """Return a function that runs a command which raises, and returns the exit code."""

    def run_raising(error: BaseException) -> int:
        @click.command()
        def command() -> None:
            raise error

        monkeypatch.setattr(cli.mrc, "get_command", lambda ctx, name: command)
        with pytest.raises(SystemExit) as exit_info:
            cli.main(["anything"])
        assert isinstance(exit_info.value.code, int)
        return exit_info.value.code

    return run_raising


def test_help_lists_every_command() -> None:
    result = run("--help")
    assert result.returncode == 0
    for name, (_, summary) in cli.COMMANDS.items():
        assert f"  {name} " in result.stdout
        assert summary in result.stdout


def test_version_is_that_of_the_distribution() -> None:
    result = run("--version")
    assert result.returncode == 0
    assert result.stdout.startswith("mrc-testbed ")


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_has_help(name: str) -> None:
    result = run(name, "--help")
    assert result.returncode == 0, result.stderr
    assert f"mrc {name}" in result.stdout


def test_unknown_command_is_wrong_use() -> None:
    result = run("no-such-command")
    assert result.returncode == 2
    assert "No such command 'no-such-command'" in result.stderr


def test_start_imports_no_subcommand() -> None:
    code = (
        "import sys\n"
        "from mrc_host.cli import _run\n"
        "_run(['--help'])\n"
        "ours_or_slow = ('mrc_', 'numpy', 'amaranth', 'pydantic')\n"
        "print(sorted(name for name in sys.modules if name.startswith(ours_or_slow)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert (
        result.stdout.splitlines()[-1]
        == "['mrc_host', 'mrc_host.cli', 'mrc_host.compiled', 'mrc_host.errors']"
    )


def test_start_is_quick() -> None:
    # Processor time: what else the machine does must not count.
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert 0 < min(spent) < START_SECONDS_ALLOWED


@pytest.mark.parametrize(
    ("error", "code"),
    [(MrcError("a reason"), 2), (InfrastructureError("a reason"), 3), (ToolMissing("a reason"), 3)],
)
def test_expected_errors_have_no_traceback(
    error: Exception, code: int, raising: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error) == code
    printed = capsys.readouterr().err
    assert "mrc: a reason" in printed
    assert "Traceback" not in printed


def test_a_mistake_of_ours_is_not_a_failed_criterion(
    raising: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(ZeroDivisionError("division by zero")) == 3
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert "mistake in mrc-testbed" in printed


def test_interrupt(raising: Callable[[BaseException], int]) -> None:
    assert raising(KeyboardInterrupt()) == 130


def test_returned_exit_code_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def command() -> int:
        return 1

    monkeypatch.setattr(cli.mrc, "get_command", lambda ctx, name: command)
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["anything"])
    assert exit_info.value.code == 1


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConfigError("planes", "between 1 and 8", 9), "planes must be between 1 and 8, got 9"),
        (ConfigError("name", "a text"), "name must be a text, got nothing"),
        (ConfigError("a.b", "an integer", None, file="x.yaml"), "x.yaml: a.b must be an integer, got None"),
        (
            ConfigError("a.b", "an integer", "z").located("x.yaml", 12),
            "x.yaml:12: a.b must be an integer, got 'z'",
        ),
    ],
)
def test_configuration_errors_say_where_what_and_got(error: ConfigError, text: str) -> None:
    assert str(error) == text
    assert error.exit_code == 2
