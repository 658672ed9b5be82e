"""Locating tools and caching what they make.

Sweep: every tool of the toolchain; places of the cache; ways a conversion can end.
Stimulus: small components; environments; two processes at once.
Checks: paths exist, variables are what the tools need, one conversion for many callers, nothing
half-made stays.
Timing: two conversions of a tiny design; lock waits are bounded by the test's timeout.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from mrc_rtl import toolchain
from mrc_rtl.toolchain import (
    ToolMissing,
    cache_directory,
    cached_directory,
    content_key,
    package_directory,
    verilator_environment,
    verilog_of,
)


class Adder(wiring.Component):
    """Adds a constant to its input."""

    def __init__(self, constant: int) -> None:
        self.constant = constant
        super().__init__({"given": In(8), "sum": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.sum.eq(self.given + self.constant)
        return m


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_tools_are_there() -> None:
    for command in (
        toolchain.verilator_command(),
        toolchain.yosys_command(),
        toolchain.nextpnr_command(),
        toolchain.ecppack_command(),
    ):
        assert os.access(command[0], os.X_OK), command
    assert (toolchain.verilator_include_dir() / "verilated.h").is_file()


def test_a_missing_package_names_its_remedy() -> None:
    with pytest.raises(ToolMissing, match=r"no_such_package must be installed in .*: run 'make install'"):
        package_directory("no_such_package")


def test_verilator_environment() -> None:
    outer = {
        "PATH": "/usr/bin",
        "MAKEFLAGS": "-j8 --jobserver-auth=3,4",
        "MAKELEVEL": "1",
        "VERILATOR_ROOT": "",
    }
    environment = verilator_environment(outer)
    assert environment["PATH"].split(os.pathsep) == [str(toolchain.verilator_bin_dir()), "/usr/bin"]
    assert "jobserver" not in environment["MAKEFLAGS"]
    assert "CFG_CXXFLAGS_PCH_I=-include" in environment["MAKEFLAGS"]
    assert f"PYTHON3={sys.executable}" in environment["MAKEFLAGS"]
    assert "MAKELEVEL" not in environment
    assert Path(environment["VERILATOR_ROOT"]).is_dir()
    assert outer["PATH"] == "/usr/bin"


def test_cache_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_directory("a", "b") == tmp_path / "cache/a/b"
    monkeypatch.delenv("MRC_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg/mrc-testbed"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_directory() == tmp_path / "home/.cache/mrc-testbed"


def test_content_key_keeps_parts_apart(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("ab")
    assert content_key("ab", "c") != content_key("a", "bc")
    assert content_key(file) == content_key("ab") == content_key(b"ab")


def test_a_folder_is_made_once() -> None:
    calls = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "content").write_text("x")

    first = cached_directory("kind", "key", make)
    assert cached_directory("kind", "key", make) == first
    assert len(calls) == 1
    assert (first / "content").read_text() == "x"


def test_a_failed_attempt_leaves_nothing(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cached_directory("kind", "key", fail)
    assert [path.name for path in (cache / "kind").iterdir()] == ["key.lock"]
    assert cached_directory("kind", "key", lambda folder: None).is_dir()


def test_old_entries_go_when_there_are_many(cache: Path) -> None:
    for number in range(4):
        path = cached_directory("kind", f"old{number}", lambda folder: None, keep=2)
        os.utime(path, (number, number))
    cached_directory("kind", "new", lambda folder: None, keep=2)
    assert {path.name for path in (cache / "kind").iterdir() if path.is_dir()} == {"new", "old3"}


def test_recent_entries_stay(cache: Path) -> None:
    for number in range(4):
        cached_directory("kind", f"key{number}", lambda folder: None, keep=2)
    assert len([path for path in (cache / "kind").iterdir() if path.is_dir()]) == 4


def test_verilog_depends_on_the_design() -> None:
    one, two, again = (
        verilog_of(Adder(1), "adder"),
        verilog_of(Adder(2), "adder"),
        verilog_of(Adder(1), "adder"),
    )
    assert one == again != two
    text = one.read_text()
    assert "module adder(" in text
    assert "1'h1" in text
    assert "src =" not in text


def test_a_key_spares_the_elaboration() -> None:
    calls = []

    def component() -> Adder:
        calls.append(1)
        return Adder(3)

    assert verilog_of(component, "adder", key="three") == verilog_of(component, "adder", key="three")
    assert len(calls) == 1


def test_ports_of_an_elaboratable() -> None:
    m = Module()
    given, result = Signal(4, name="given"), Signal(4, name="result")
    m.d.comb += result.eq(~given)
    text = verilog_of(m, "inverter", ports=[given, result]).read_text()
    assert "input [3:0] given;" in text
    assert "output [3:0] result;" in text


def test_two_processes_make_a_folder_once(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from mrc_rtl.toolchain import cached_directory\n"
        "def make(folder):\n"
        "    time.sleep(0.5)\n"
        "    open(sys.argv[1], 'a').write('made\\n')\n"
        "cached_directory('kind', 'key', make)\n"
    )
    record = tmp_path / "record"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(record)]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    assert record.read_text() == "made\n"
