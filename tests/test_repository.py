"""What holds for the repository as a whole.

Sweep: every tracked file, session, dependency, page and test file.
Stimulus: none; files are read.
Checks: the README's two commands, docstrings of sessions, declared and explained dependencies, links,
heads of test files, no machine paths, no package registry, no notes to self.
Timing: none.
"""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SESSIONS = {
    "sim",
    "tests",
    "tb",
    "lint",
    "reproduce",
    "types",
    "bench",
    "synth",
    "docs",
    "histories",
    "formal",
    "coverage",
    "differential",
    "fuzz",
    "schema",
    "soak",
    "mutants",
}
TEXT_SUFFIXES = {
    ".py",
    ".md",
    ".toml",
    ".yaml",
    ".yml",
    ".json",
    ".rdl",
    ".cpp",
    ".h",
    ".j2",
    ".css",
    ".js",
    "",
}
PACKAGE_FOLDERS = ["rtl", "host", "lab"]
TEST_FOLDERS = ["tests", "tb"]
COMES_WITH_ANOTHER = {"find-libpython", "pydantic-core"}
"""Distributions that exist only as parts of cocotb and of pydantic."""

# Written so that this file does not contain what it looks for.
MACHINE_PATHS = re.compile(r"(?<![\w.$}])/(?:" + "work|tmp" + r"|root|home/\w+|Users/\w+)/[\w.]")
REGISTRIES = re.compile(
    r"\b(?:files\.)?(?:test\.)?" + "py" + r"(?:pi\.org|thonhosted\.org)|\bregistry\.npm" + r"js\.org"
)
NOTES = re.compile(r"\b(?:TO" + "DO|FIX" + "ME|XX" + "X|HA" + r"CK)\b|\bNotImplemented" + "Error")


@cache
def tracked() -> tuple[Path, ...]:
    """Return tracked files; without git, as in a source archive, all that are not ignored by their place."""
    result = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        names = result.stdout.splitlines()
        return tuple(path for name in names if (path := ROOT / name).is_file())
    left_out = {".venv", "runs", "__pycache__"}
    return tuple(
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not left_out & set(path.relative_to(ROOT).parts)
    )


def texts(*suffixes: str) -> list[tuple[str, str]]:
    """Return (name, content) of tracked text files with these suffixes."""
    wanted = set(suffixes) or TEXT_SUFFIXES
    return [
        (str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
        for path in tracked()
        if path.suffix in wanted
    ]


def matches(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_machine_paths() -> None:
    assert not matches(MACHINE_PATHS)


def test_no_package_registry() -> None:
    assert not matches(REGISTRIES)


def test_nothing_is_left_to_do() -> None:
    assert not matches(NOTES)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (MACHINE_PATHS, "cd /" + "work/main"),
        (MACHINE_PATHS, '"/' + 'home/someone/x"'),
        (REGISTRIES, "https://" + "py" + "pi.org/simple"),
        (NOTES, "# TO" + "DO later"),
        (NOTES, "raise NotImplemented" + "Error"),
    ],
)
def test_the_checks_see_what_they_look_for(pattern: re.Pattern[str], line: str) -> None:
    assert pattern.search(line)


def test_readme_gives_exactly_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    commands = [line.split("#")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]
    assert commands == ["make sim", "make test"]


def test_readme_shows_one_picture_on_its_first_screen() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    pictures = [(number, line) for number, line in enumerate(lines) if line.startswith("![")]
    assert len(pictures) == 1
    number, line = pictures[0]
    assert number < 40
    assert "docs/images/quickstart.png" in line


def test_docs_links_lead_somewhere() -> None:
    broken = []
    for name, text in texts(".md"):
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target) or target.startswith("#"):
                continue
            if not ((ROOT / name).parent / target.split("#")[0]).exists():
                broken.append(f"{name}: {target}")
    assert not broken


def test_docs_index_names_every_page() -> None:
    index = (ROOT / "docs/index.md").read_text()
    pages = sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name != "index.md")
    assert [page for page in pages if f"({page})" not in index] == []


def session_functions() -> dict[str, ast.FunctionDef]:
    tree = ast.parse((ROOT / "noxfile.py").read_text())
    return {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any("session" in ast.unparse(d) for d in node.decorator_list)
    }


def test_sessions() -> None:
    assert set(session_functions()) == SESSIONS


def test_every_session_has_one_line_of_explanation() -> None:
    for name, function in session_functions().items():
        text = ast.get_docstring(function)
        assert text and "\n" not in text and text.endswith("."), name


def test_make_test_runs_the_four_sessions() -> None:
    assert "nox -s lint types tests tb" in (ROOT / "Makefile").read_text()


@cache
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def required_names(extra: str | None = None) -> set[str]:
    requirements = project()["optional-dependencies"][extra] if extra else project()["dependencies"]
    return {re.match(r"[\w.-]+", requirement)[0].lower() for requirement in requirements}


def imported_distributions(folders: list[str]) -> dict[str, str]:
    """Return the distributions that Python files under some folders import, with a file that does."""
    by_module = importlib.metadata.packages_distributions()
    own = {"mrc_rtl", "mrc_host", "mrc_lab"}
    own |= {path.stem for folder in TEST_FOLDERS for path in (ROOT / folder).rglob("*.py")}
    own |= {path.name for folder in TEST_FOLDERS for path in (ROOT / folder).iterdir()}
    found: dict[str, str] = {}
    for path in tracked():
        if path.suffix != ".py" or path.relative_to(ROOT).parts[0] not in folders:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules = [node.module]
            else:
                continue
            for module in modules:
                top = module.split(".")[0]
                # A namespace package belongs to several distributions: the longer name tells which.
                names = sorted(set(by_module.get(top, [top])))
                if len(names) > 1 and "." in module:
                    names = [name for name in names if name.endswith(module.split(".")[1])]
                if top not in sys.stdlib_module_names and top not in own:
                    found[names[0].lower().replace("_", "-")] = str(path.relative_to(ROOT))
    return found


def test_what_the_packages_import_is_declared() -> None:
    declared = required_names() | required_names("scapy") | COMES_WITH_ANOTHER
    imported = imported_distributions(PACKAGE_FOLDERS)
    assert {name: path for name, path in imported.items() if name not in declared} == {}


def test_what_tests_and_benches_import_is_declared() -> None:
    declared = required_names() | required_names("dev") | COMES_WITH_ANOTHER
    imported = imported_distributions(TEST_FOLDERS)
    assert {name: path for name, path in imported.items() if name not in declared} == {}


def test_every_dependency_is_explained() -> None:
    decisions = (ROOT / "docs/decisions.md").read_text().lower()
    names = required_names().union(*(required_names(extra) for extra in project()["optional-dependencies"]))
    assert sorted(name for name in names if f"`{name}`" not in decisions) == []


def test_every_dependency_has_a_comment() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    section = text[text.index("dependencies = [") : text.index("[project.scripts]")]
    lines = [line for line in section.splitlines() if re.match(r'(    |scapy = \[)"', line)]
    assert lines
    assert [line for line in lines if "#" not in line and not line.startswith("scapy")] == []


def test_every_test_file_says_what_it_does() -> None:
    silent = []
    for path in tracked():
        folder = path.relative_to(ROOT).parts[0]
        if folder in TEST_FOLDERS and path.name.startswith("test_"):
            text = ast.get_docstring(ast.parse(path.read_text())) or ""
            if "\n" not in text.strip() and len(text) < 80:
                silent.append(str(path.relative_to(ROOT)))
    assert silent == []


CHECKING_CALLS = {"raises", "warns", "fail", "run_bench", "run_stream_case"}


def called_names(function: ast.AST) -> set[str]:
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {
        f.attr if isinstance(f, ast.Attribute) else f.id
        for f in calls
        if isinstance(f, ast.Attribute | ast.Name)
    }


def asserts(function: ast.AST, helpers: set[str]) -> bool:
    """Say whether a function can fail: it asserts, expects an exception, or calls a helper that does."""
    if any(isinstance(node, ast.Assert) for node in ast.walk(function)):
        return True
    return any(name in helpers or name.startswith(("check", "assert")) for name in called_names(function))


def test_no_test_without_an_assertion() -> None:
    empty = []
    for path in tracked():
        if path.relative_to(ROOT).parts[0] not in TEST_FOLDERS or not path.name.startswith("test_"):
            continue
        tree = ast.parse(path.read_text())
        functions = [
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        helpers = set(CHECKING_CALLS)
        for _ in range(3):  # helpers that call helpers
            helpers |= {function.name for function in functions if asserts(function, helpers)}
        empty += [
            f"{path.relative_to(ROOT)}: {function.name}"
            for function in functions
            if function.name.startswith("test_") and not asserts(function, helpers - {function.name})
        ]
    assert empty == []


def test_public_methods_of_the_gateware_are_documented() -> None:
    silent = []
    for path in tracked():
        if path.suffix != ".py" or path.relative_to(ROOT).parts[0] != "rtl":
            continue
        for owner in ast.walk(ast.parse(path.read_text())):
            if not isinstance(owner, ast.ClassDef) or owner.name.startswith("_"):
                continue
            for node in owner.body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    if node.name != "elaborate" and not ast.get_docstring(node):
                        silent.append(f"{path.relative_to(ROOT)}: {owner.name}.{node.name}")
    assert silent == []


@pytest.mark.parametrize("name", ["Makefile", ".ci/run", "LICENSE", "noxfile.py"])
def test_there_is(name: str) -> None:
    assert (ROOT / name).is_file()


def test_ci_script_is_executable() -> None:
    assert (ROOT / ".ci/run").stat().st_mode & 0o111
