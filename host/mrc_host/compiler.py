"""Makes the compiled modules of :mod:`mrc_host.compiled`: mypyc writes C, the C compiler a shared library.

mypyc reads the types that mypy checks anyway. All modules become one library, so that they call each other
directly, and one small file each, which Python imports. The C files are compiled on all processors.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mrc_host.compiled import FLAGS, GROUP, MODULES, imported_sources, source_of
from mrc_host.errors import InfrastructureError
from mrc_rtl.toolchain import cache_directory, cached_directory, content_key

__all__ = ["compilation", "compilation_key", "make_compilation", "missing_tools"]

_KIND = "model"
_SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]
_LINES_SHOWN = 20


def _compiler_version() -> str | None:
    """First line of what the C compiler says of itself; None when there is none."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0] or None


def _mypy_version() -> str | None:
    try:
        return importlib.metadata.version("mypy")
    except importlib.metadata.PackageNotFoundError:
        return None


def missing_tools() -> list[str]:
    """Return what is missing for making the compilation, each with how to get it."""
    missing = []
    if _compiler_version() is None:
        missing.append("a C compiler (cc; apt-get install gcc)")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        missing.append("Python's C headers (apt-get install python3-dev)")
    if _mypy_version() is None:
        missing.append("mypy (make install)")
    return missing


def compilation_key() -> str:
    """Return the key of the compilation: its sources, Python, mypy, C compiler and flags."""
    versions = [sys.version, _SUFFIX, str(_mypy_version()), str(_compiler_version()), *FLAGS, *MODULES]
    return content_key(*versions, source_of("mrc_host.compiler"), *imported_sources())


def compilation() -> Path | None:
    """Return the folder of the compilation of the present sources; None when it is not in the cache."""
    folder = cache_directory(_KIND) / compilation_key()
    return folder if folder.is_dir() else None


def make_compilation() -> Path:
    """Return the same, made first if it is not in the cache.

    Raises
    ------
    InfrastructureError
        A tool is missing, or the compilation failed.
    """
    folder = compilation()
    if folder is not None:
        return folder
    missing = missing_tools()
    if missing:
        raise InfrastructureError(f"compiling the model needs {' and '.join(missing)}")
    print(
        f"Compiling the model ({len(MODULES)} modules); this takes two minutes, once",
        file=sys.stderr,
        flush=True,
    )
    return cached_directory(_KIND, compilation_key(), _make, keep=4)


def _make(folder: Path) -> None:
    """Fill a folder with the compiled modules."""
    tree = folder / "tree"
    for package in ("mrc_host", "mrc_rtl"):
        shutil.copytree(
            source_of(f"{package}.__init__").parent,
            tree / package,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    environment = {**os.environ, "MRC_COMPILED": "0", "MYPYPATH": str(tree), "PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", "mrc_host.compiler", "--translate"]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()[-_LINES_SHOWN:]
        raise InfrastructureError("mypyc cannot compile the model:\n" + "\n".join(lines))
    for library in tree.glob(f"*{_SUFFIX}"):
        library.rename(folder / library.name)
    shutil.rmtree(tree)


def _translate() -> None:
    """Compile the tree in the working directory; the modules appear in it under their full names."""
    from mypyc.build import mypycify

    options = ["--explicit-package-bases", "--namespace-packages", "--follow-imports=silent"]
    files = [f"{module.replace('.', os.sep)}.py" for module in MODULES]
    extensions = mypycify(
        [*options, *files], opt_level="2", debug_level="0", multi_file=True, group_name=GROUP
    )
    settings = sysconfig.get_config_vars()
    compile_one = [*settings["CC"].split(), *settings["CFLAGS"].split(), *settings["CCSHARED"].split()]
    headers = [f"-I{sysconfig.get_path('include')}"]

    def compiled(job: tuple[str, list[str], list[str]]) -> str:
        source, includes, flags = job
        target = f"{source}.o"
        _run([*compile_one, *headers, *includes, *flags, *FLAGS, "-c", source, "-o", target])
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        linked = []
        for extension in extensions:
            includes = [f"-I{folder}" for folder in extension.include_dirs]
            jobs = [(str(source), includes, extension.extra_compile_args) for source in extension.sources]
            linked.append((extension.name, pool.map(compiled, jobs)))
        for name, objects in linked:
            _run([*settings["LDSHARED"].split(), *objects, "-o", name + _SUFFIX])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stderr}")


def main() -> None:
    """Make the compilation, or say in one line why the model runs as plain Python."""
    if sys.argv[1:] == ["--translate"]:
        _translate()
        return
    try:
        print(f"The model is compiled: {make_compilation()}")
    except InfrastructureError as error:
        print(f"The model runs as plain Python, several times slower: {error}")


if __name__ == "__main__":
    main()
