"""Imports point only downwards: rtl knows nothing of host, host nothing of lab.

Sweep: every Python file of the three packages.
Stimulus: none; the files are parsed, not run.
Checks: no import of a higher layer or of tests and benches, whether at the top or inside a function;
`mrc_rtl.wire` and `mrc_rtl.registers` need no Amaranth.
Timing: none.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = {
    "rtl/mrc_rtl": {"mrc_host", "mrc_lab"},
    "host/mrc_host": {"mrc_lab"},
    "lab/mrc_lab": set(),
}
"""Package folder: packages it must not import."""

ABOVE_ALL = {path.stem for folder in ("tb", "tests") for path in (ROOT / folder).glob("*.py")} | {
    "tb",
    "tests",
    "cocotb",
    "cocotbext",
    "pytest",
    "hypothesis",
}


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, module) of every absolute import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "import_module"
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, str(node.args[0].value)


def breaches(source: str, forbidden: set[str]) -> list[str]:
    return [
        f"line {line}: {module}"
        for line, module in imported(ast.parse(source))
        if module.split(".")[0] in forbidden
    ]


@pytest.mark.parametrize("folder", LAYERS)
def test_layers(folder: str) -> None:
    paths = files(folder)
    assert paths, f"{folder} must hold Python files"
    found = {
        str(path.relative_to(ROOT)): bad
        for path in paths
        if (bad := breaches(path.read_text(), LAYERS[folder] | ABOVE_ALL))
    }
    assert not found


@pytest.mark.parametrize("name", ["wire.py", "registers.py", "toolchain.py"])
def test_plain_modules_need_no_amaranth_at_import(name: str) -> None:
    tree = ast.parse((ROOT / "rtl/mrc_rtl" / name).read_text())
    top_level = ast.Module([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], [])
    assert not [module for _, module in imported(top_level) if module.split(".")[0] == "amaranth"]


@pytest.mark.parametrize(
    "source",
    [
        "import mrc_host",
        "import mrc_host.packets as packets",
        "from mrc_host.packets import codec",
        "def f():\n    from mrc_host import cli",
        "import importlib\nimportlib.import_module('mrc_host.cli')",
    ],
)
def test_the_check_sees_every_form_of_import(source: str) -> None:
    assert breaches(source, {"mrc_host"})


def test_the_check_lets_others_pass() -> None:
    assert not breaches("import mrc_rtl\nfrom . import mrc_host\nfrom os import path", {"mrc_host"})
