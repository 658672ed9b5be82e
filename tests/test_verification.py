"""docs/verification.md names tests that exist.

Sweep: every name in the page.
Stimulus: none; files are parsed, not run.
Checks: the file is there and defines the test, bench or class; every field bug has a row with a test.
Timing: none.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "verification.md").read_text()
NAMES = sorted(set(re.findall(r"`((?:tests|tb)/[\w/.]+\.py::\w+)`", PAGE)))
FIELD_BUGS = 11


def rows(title):
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


@pytest.mark.parametrize("name", NAMES)
def test_named_tests_exist(name):
    path, _, wanted = name.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    assert wanted in {node.name for node in tree.body if isinstance(node, kinds)}


def test_every_case_has_a_test():
    assert len(rows("Field bugs")) == FIELD_BUGS
    for row in rows("Field bugs") + rows("From the protocol itself"):
        assert "::" in row.split("|")[-2], row
